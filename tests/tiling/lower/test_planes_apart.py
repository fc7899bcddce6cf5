"""Planes of scratch that would fall into the same sets of a cache have a line between them; rows of a product are one run."""

from __future__ import annotations

from math import prod

import pytest

import hlo
import tiling
from tiling import Scope
from tiling.loops.ir import Contract

MACHINE = tiling.Machine(cores=2, vector_bytes=32, vector_registers=16)

TWO = """
func.func @main(%x: tensor<16x64x48xf32>, %v: tensor<{v}xf32>, %w: tensor<{w}xf32>) -> tensor<16x64x32xf32> {{
  %t = stablehlo.dot_general %x, %v, {dims} : (tensor<16x64x48xf32>, tensor<{v}xf32>) -> tensor<16x64x96xf32>
  %p = stablehlo.dot_general %t, %w, {dims} : (tensor<16x64x96xf32>, tensor<{w}xf32>) -> tensor<16x64x32xf32>
  return %p : tensor<16x64x32xf32>
}}
"""
OF_PLANES = TWO.format(v="16x48x96", w="16x96x32", dims="batching_dims = [0] x [0], contracting_dims = [2] x [1]")
OF_ROWS = TWO.format(v="48x96", w="96x32", dims="contracting_dims = [2] x [0]")


def _together(text: str, sizes: tuple[int, ...]) -> tiling.Schedule:
    """Both products as one kernel, with tiles of these sizes."""
    pin = tiling.Pin((0, 1), sizes)
    (fusion,) = tiling.plan(hlo.parse(text), machine=MACHINE, pins=[pin]).fusions
    return fusion.schedule


def _products(schedule: tiling.Schedule) -> list[Contract]:
    return [s for p in schedule.phases for s in p.all_steps if isinstance(s, Contract)]


def test_planes_that_products_are_made_of_lie_a_line_more_than_a_multiple_of_the_period_apart() -> None:
    schedule = _together(OF_PLANES, (16, 64, 32))
    (tile,) = schedule.buffers_in(Scope.THREAD)
    assert tile.strides == (64 * 96 + 16, 96, 1)
    assert tile.size_elems == 16 * tile.strides[0]
    assert tiling.prove(schedule).holds


@pytest.mark.parametrize("sizes", [(16, 64, 32), (8, 64, 32)], ids=str)
def test_rows_of_one_product_are_one_run_as_before(sizes: tuple[int, ...]) -> None:
    schedule = _together(OF_ROWS, sizes)
    (tile,) = schedule.buffers_in(Scope.THREAD)
    assert tile.strides == (64 * 96, 96, 1)
    assert [c.m for c in _products(schedule)] == [sizes[0] * 64] * 2


def test_few_planes_stay_where_they_are() -> None:
    schedule = _together(OF_PLANES, (4, 64, 32))
    (tile,) = schedule.buffers_in(Scope.THREAD)
    assert tile.strides == (64 * 96, 96, 1)


@pytest.mark.parametrize("rows", [(7, 7), (8, 7), (7, 14), (2, 3, 4)], ids=str)
def test_few_rows_are_one_run_whichever_loop_is_the_longest(rows: tuple[int, ...]) -> None:
    shape = "x".join(map(str, rows))
    text = f"""
    func.func @main(%x: tensor<{shape}x96xf32>, %w: tensor<96x64xf32>) -> tensor<{shape}x64xf32> {{
      %p = stablehlo.dot_general %x, %w, contracting_dims = [{len(rows)}] x [0]
        : (tensor<{shape}x96xf32>, tensor<96x64xf32>) -> tensor<{shape}x64xf32>
      return %p : tensor<{shape}x64xf32>
    }}
    """
    (fusion,) = tiling.plan(hlo.parse(text), machine=MACHINE, pins=[tiling.Pin((0,), (*rows, 64))]).fusions
    (product,) = _products(fusion.schedule)
    assert product.m == prod(rows)
