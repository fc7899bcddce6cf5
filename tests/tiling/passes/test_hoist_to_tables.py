"""Factors that depend on inner loops alone, in tables: what is put there, what is not, and that wrong tables are refuted."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
import tiling
from hlo.types import element_type
from indexing.expr import Const, Var
from tiling.loops.buffers import Scope, make_buffer
from tiling.loops.element_ir import IndexNode, Load, Node, loads, rebuild
from tiling.loops.ir import Contract, Loop, Nest, Schedule, Store
from tiling.passes.hoist_to_tables import hoist_to_tables
from tiling.proving.contents.tables import tables_of

MACHINE = tiling.Machine(cores=1)
TABLE = make_buffer("t", Scope.THREAD, element_type("f32"), (10,), (10,), (0,))


def program(factor: str, shape: str = "48x40") -> hlo.Module:
    """Rows of x times a row of factors, computed from w and from the columns' numbers."""
    return hlo.parse(f"""func.func @main(%x: tensor<{shape}xf32>, %w: tensor<40xf32>) -> tensor<{shape}xf32> {{
  %n = stablehlo.iota dim = 0 : tensor<40xf32>
  %f = {factor} : tensor<40xf32>
  %0 = stablehlo.broadcast_in_dim %f, dims = [1] : (tensor<40xf32>) -> tensor<{shape}xf32>
  %1 = stablehlo.multiply %x, %0 : tensor<{shape}xf32>
  return %1 : tensor<{shape}xf32>
}}""")


def planned(factor: str, shape: str = "48x40") -> tiling.Plan:
    return tiling.plan(program(factor, shape), supports=codegen.supports, machine=MACHINE)


@pytest.mark.parametrize(
    ("factor", "shape", "tables"),
    [
        ("stablehlo.cosine %n", "48x40", 1), ("stablehlo.rsqrt %w", "48x40", 1), ("stablehlo.negate %w", "48x40", 0),
        ("stablehlo.rsqrt %w", "3x40", 0),
    ],
)  # fmt: skip
def test_what_is_worth_a_table(factor: str, shape: str, tables: int) -> None:
    plan = planned(factor, shape)
    found = hoist_to_tables(plan.fusions[0].schedule)
    assert len(found.buffers) - len(plan.fusions[0].schedule.buffers) == tables
    proof = tiling.prove(plan)
    assert proof.holds and not proof.undecided
    w = np.linspace(0.5, 4, 40, dtype=np.float32)
    x = np.ones([int(n) for n in shape.split("x")], np.float32)
    wanted = {"cosine": np.cos(np.arange(40)), "rsqrt": 1 / np.sqrt(w), "negate": -w}[factor.split()[0].partition(".")[2]]
    np.testing.assert_allclose(codegen.compile(plan)(x, w)[0], x * wanted, rtol=1e-5, atol=1e-6)


def test_every_row_reads_one_computation() -> None:
    """The cosine of a column's number was computed for each row."""
    source = codegen.compile(planned("stablehlo.cosine %n")).source
    assert source.count("cos(") == 1 and "for i1 in range(40):\n            table0[i1] = cos(" in source


def deep(depth: int) -> tiling.Plan:
    """A factor of so many additions to what is looked up at run time, none of which may be a table."""
    steps = "\n".join(f"  %{k + 1} = stablehlo.add %{k}, %w : tensor<40xf32>" for k in range(depth))
    text = f"""func.func @main(%x: tensor<48x40xf32>, %w: tensor<40xf32>, %p: tensor<40x1xi32>) -> tensor<48x40xf32> {{
  %g = "stablehlo.gather"(%w, %p) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
    index_vector_dim = 1>, slice_sizes = array<i64: 1>, indices_are_sorted = false}}>
    : (tensor<40xf32>, tensor<40x1xi32>) -> tensor<40xf32>
  %0 = stablehlo.exponential %g : tensor<40xf32>
{steps}
  %b = stablehlo.broadcast_in_dim %{depth}, dims = [1] : (tensor<40xf32>) -> tensor<48x40xf32>
  %y = stablehlo.multiply %x, %b : tensor<48x40xf32>
  return %y : tensor<48x40xf32>
}}"""
    return tiling.plan(hlo.parse(text), supports=codegen.supports, machine=MACHINE)


def test_a_deep_factor_is_walked_once() -> None:
    """Four times the depth is about four times the calls; each node's own walk would make it sixteen."""
    calls = []
    for depth in (20, 80):
        (fusion,) = deep(depth).fusions
        profile = cProfile.Profile()
        assert profile.runcall(hoist_to_tables, fusion.schedule) is fusion.schedule
        calls.append(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]
    assert calls[1] < 6 * calls[0]


def _changed(schedule: Schedule, reads: Callable[[Load], Node], stores: Callable[[Store], Store]) -> Schedule:
    """A schedule whose loads of tables, and stores to them, are others."""
    (phase,) = schedule.phases
    steps = []
    for s in phase.steps:
        assert isinstance(s, Nest)
        if all(x.value is None for x in s.stores):
            steps.append(replace(s, stores=tuple(map(stores, s.stores))))
        else:
            steps.append(replace(s, stores=tuple(replace(x, node=rebuild(x.node, reads, tuple, {})) for x in s.stores)))
    return replace(schedule, phases=(replace(phase, steps=tuple(steps)),))


@pytest.mark.parametrize("factor", ["stablehlo.cosine %n", "stablehlo.rsqrt %w"])
@pytest.mark.parametrize("fault", ["", "another place", "another value", "one place"])
def test_wrong_tables_are_refuted(factor: str, fault: str) -> None:
    plan = planned(factor)
    fusion = plan.fusions[0]

    def reads(x: Load) -> Node:
        if x.buffer is None or x.value.name == "x" or fault not in ("another place", "one place"):
            return x
        return Load(x.value, (39 - x.index[0],) if fault == "another place" else (Const(0),), x.buffer)

    def stores(s: Store) -> Store:
        if fault != "another value":
            return s
        (other,) = (n for n in (s.node.arguments if hasattr(s.node, "arguments") else ()))
        return replace(s, node=other)

    made = _changed(hoist_to_tables(fusion.schedule), reads, stores)
    proof = tiling.prove(tiling.with_schedule(plan, fusion.name, made))
    assert proof.holds == (not fault), proof
    assert bool(proof.refuted) == bool(fault), proof


def test_packed_factors_are_no_tables() -> None:
    """A contraction does not read through them: what is packed is compared with its operand."""
    module = hlo.parse("""func.func @main(%x: tensor<200x300xf32>, %w: tensor<300x160xf32>) -> tensor<200x160xf32> {
  %0 = stablehlo.exponential %x : tensor<200x300xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0]
    : (tensor<200x300xf32>, tensor<300x160xf32>) -> tensor<200x160xf32>
  return %1 : tensor<200x160xf32>
}""")
    schedule = tiling.plan(module, supports=codegen.supports, machine=MACHINE).fusions[0].schedule
    (contract,) = (s for p in schedule.phases for s in p.steps if isinstance(s, Contract))
    factor = contract.left.buffer
    n = Var("n")
    fill = Nest((Loop(n, Const(0), Const(9), 10),), (Store(None, TABLE, (n,), IndexNode(n, TABLE.element)),))
    read = replace(contract, left=replace(contract.left, buffer=TABLE))
    phase = schedule.main
    assert TABLE in tables_of(replace(schedule, phases=(replace(phase, steps=(fill,)),)))
    assert not {TABLE, factor} & tables_of(replace(schedule, phases=(replace(phase, steps=(fill, read)),))).keys()


def test_a_factor_below_a_runtime_variable_is_read_from_its_table() -> None:
    """Columns of an image by numbers that are computed: the table of numbers was made, and then computed again."""
    plan = tiling.plan(
        hlo.parse("""func.func @main(%x: tensor<6x9x7x16xf32>) -> tensor<6x9x70x16xf32> {
  %c = stablehlo.iota dim = 0 : tensor<70xf32>
  %ten = stablehlo.constant dense<10.0> : tensor<70xf32>
  %q = stablehlo.divide %c, %ten : tensor<70xf32>
  %f = stablehlo.floor %q : tensor<70xf32>
  %n = stablehlo.convert %f : (tensor<70xf32>) -> tensor<70xi32>
  %i = stablehlo.reshape %n : (tensor<70xi32>) -> tensor<70x1xi32>
  %y = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [0, 1, 3], collapsed_slice_dims = [2],
       start_index_map = [2], index_vector_dim = 1>, slice_sizes = array<i64: 6, 9, 1, 16>}
       : (tensor<6x9x7x16xf32>, tensor<70x1xi32>) -> tensor<6x9x70x16xf32>
  return %y : tensor<6x9x70x16xf32>
}"""),
        supports=codegen.supports, machine=MACHINE,
    )  # fmt: skip
    final = tiling.pipeline.finished(plan.fusions[0].schedule)
    nests = [s for p in final.phases for s in p.steps if isinstance(s, Nest)]
    made = {b.name for b in final.buffers} - {b.name for b in plan.fusions[0].schedule.buffers}
    assert made == {x.buffer.name for n in nests for x in loads(n.each) if x.buffer is not None} and made
    proof = tiling.prove(plan)
    assert proof.holds and not proof.undecided
    x = np.random.default_rng(0).standard_normal((6, 9, 7, 16), np.float32)
    np.testing.assert_array_equal(codegen.compile(plan)(x)[0], x.repeat(10, axis=2))


def test_a_power_that_three_columns_read_is_computed_once() -> None:
    """Forces between bodies: x / r ** 1.5 was a power for each of three coordinates, in a table of 16 KiB now."""
    module = hlo.parse("""func.func @main(%d: tensor<64x64x3xf32>, %r: tensor<64x64xf32>) -> tensor<64x3xf32> {
  %c = stablehlo.constant dense<1.5> : tensor<64x64xf32>
  %p = stablehlo.power %r, %c : tensor<64x64xf32>
  %b = stablehlo.broadcast_in_dim %p, dims = [0, 1] : (tensor<64x64xf32>) -> tensor<64x64x3xf32>
  %q = stablehlo.divide %d, %b : tensor<64x64x3xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%q init: %z) applies stablehlo.add across dimensions = [1]
     : (tensor<64x64x3xf32>, tensor<f32>) -> tensor<64x3xf32>
  return %s : tensor<64x3xf32>
}""")
    plan = tiling.plan(module, supports=codegen.supports, machine=MACHINE)
    made = codegen.compile(plan)
    assert made.source.count("power(") == 1 and "table0[" in made.source.partition("power(")[0].rpartition("\n")[2]
    assert tiling.prove(plan).holds
    rng = np.random.default_rng(0)
    d, r = rng.standard_normal((64, 64, 3)).astype(np.float32), rng.uniform(0.5, 2, (64, 64)).astype(np.float32)
    np.testing.assert_allclose(made(d, r)[0], (d / r[..., None] ** 1.5).sum(1), rtol=1e-4, atol=1e-4)
