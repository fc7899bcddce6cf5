"""What is laid out flat, turned, and laid out flat again is proved by looking at each iteration: isl did not end."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

import codegen
import hlo
import tiling
from hlo.access import Condition
from hlo.module import Value
from indexing import IndexingMap, Interval, Var, compose, maps_from
from tiling import Schedule
from tiling.proving.contents.each_iteration import in_every_iteration, leads_along
from tiling.proving.contents.written_and_read import Access, Flow, index_of, statements_of

CASES = [
    ((7, 50, 2, 60), (1, 0, 3, 2)),
    ((7, 10, 8, 10), (3, 2, 1, 0)),
    ((16, 8, 16, 30), (1, 3, 0, 2)),
    ((300, 2, 50, 8), (2, 0, 3, 1)),
]


def _program(shape: tuple[int, ...], dims: tuple[int, ...]) -> hlo.Module:
    there, n = tuple(reversed(shape)), prod(shape)
    x, y, z = ("x".join(map(str, s)) for s in (shape, there, [there[d] for d in dims]))
    return hlo.parse(f"""func.func @main(%x: tensor<{x}xf32>) -> tensor<{n}xf32> {{
  %0 = stablehlo.reshape %x : (tensor<{x}xf32>) -> tensor<{n}xf32>
  %1 = stablehlo.add %0, %0 : tensor<{n}xf32>
  %2 = stablehlo.reshape %1 : (tensor<{n}xf32>) -> tensor<{y}xf32>
  %3 = stablehlo.transpose %2, dims = [{", ".join(map(str, dims))}] : (tensor<{y}xf32>) -> tensor<{z}xf32>
  %4 = stablehlo.reshape %3 : (tensor<{z}xf32>) -> tensor<{n}xf32>
  return %4 : tensor<{n}xf32>
}}""")


@pytest.mark.parametrize(("shape", "dims"), CASES)
def test_turned_rows_laid_out_flat_are_proved(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    (fusion,) = tiling.plan(_program(shape, dims), supports=codegen.supports).fusions
    proof = tiling.prove(fusion)
    assert proof, proof.refuted
    assert not proof.undecided


def _access(schedule: Schedule) -> tuple[Access, Flow, Value]:
    (statement,) = (s for s in statements_of(schedule) if s.value is not None)
    (read,) = statement.reads
    assert read.value is not None
    assert statement.value is not None
    return statement.write, Flow(read.value, read, index_of(read)), statement.value


def test_one_iteration_that_loads_another_element_is_found() -> None:
    """The schedule's own map holds in all iterations; one that differs in one element, or in an interval, does not."""
    (fusion,) = tiling.plan(_program(*CASES[0]), supports=codegen.supports).fusions
    assert isinstance(fusion.schedule, Schedule)
    write, flow, value = _access(fusion.schedule)
    (m,) = maps_from(value, (flow.value,))[flow.value]
    assert leads_along(write, flow, m)
    d0 = m.dims[0].var
    last = prod(CASES[0][0]) - 1
    assert not leads_along(write, flow, replace(m, results=(*m.results[:3], m.results[3] + (d0 + 1) // (last + 1))))
    assert not leads_along(write, flow, replace(m, dims=(m.dims[0]._replace(interval=Interval(0, last - 1)),)))
    moved = IndexingMap(m.dims, ((d0 + 1) % (last + 1),))
    assert not leads_along(write, flow, compose(moved, m))


def test_a_load_under_a_condition_is_not_made_in_every_iteration() -> None:
    (fusion,) = tiling.plan(_program(*CASES[0]), supports=codegen.supports).fusions
    assert isinstance(fusion.schedule, Schedule)
    write, flow, _ = _access(fusion.schedule)
    assert in_every_iteration(flow.read, write)
    v: Var = flow.read.domain.variables[0][0]
    guarded = replace(flow.read, domain=flow.read.domain.with_guard([Condition(v, 1, 5)], []))
    assert not in_every_iteration(guarded, write)
