"""Loops over strips: what is cut follows from maps, results are the evaluator's, and large values are there a strip at a time."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.remembered.plans import remembered_plan
from codegen.supports import supports
from hlo.clone import clone_block
from hlo.errors import Declined
from hlo.module import Block, Op, Value
from hlo.registry import Literal
from tests.indexing.index_helpers import op_of
from tests.indexing.op_examples import EXAMPLES
from tests.indexing.test_ops import inputs_of
from tiling.loops.buffers import Scope
from tiling.passing import without
from tiling.planning import plan as whole_plans
from tiling.planning import planner, strips
from tiling.planning.search import Searches
from tiling.program.as_module import as_module
from tiling.program.compute_again import Again, compute_again
from tiling.program.flatten import Program, flatten
from tiling.program.run_in_strips import StripFinder, Strips, run_in_strips
from tiling.program.strip_cuts import Cut, cut_of_result, cuts_of_operand, strip_of, strip_type
from tiling.program.updates.in_place import is_update


def test_numbers_of_strips_are_divisors() -> None:
    """Each at least half as large again as the one before; of a huge extent, too, without counting up to it."""

    def expected(extent: int) -> list[int]:
        found: list[int] = []
        for n in (n for n in range(2, extent + 1) if extent % n == 0):
            if not found or 2 * n >= 3 * found[-1]:
                found.append(n)
        return found[: strips.MOST_COUNTS]

    assert all(strips._counts(n) == expected(n) for n in (*range(1, 200), 720, 961, 1024, 2310))
    assert strips._counts(1 << 45) == [2 << k for k in range(strips.MOST_COUNTS)]


# A small one, so that small values are large, and launches count for nothing.
MACHINE = tiling.Machine(vector_bytes=32, vector_registers=16, l2_bytes=1 << 16, l3_bytes=1 << 18, launch_seconds=1e-8)

BATCHED = "operand_batching_dims = [0], start_indices_batching_dims = [0]"
MORE = {
    "rows looked up": (
        '%r = "stablehlo.gather"(%a, %i) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], '
        f"{BATCHED}, start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>, "
        "indices_are_sorted = false} : (tensor<4x6xf32>, tensor<4x1x1xi32>) -> tensor<4x1xf32>",
        "%a: tensor<4x6xf32>, %i: tensor<4x1x1xi32>",
    ),
    "rows placed": (
        '%r = "stablehlo.scatter"(%a, %i, %u) ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): '
        "%s = stablehlo.add %x, %y : tensor<f32> stablehlo.return %s : tensor<f32> }) {scatter_dimension_numbers = "
        "#stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], "
        "scatter_dims_to_operand_dims = [1], index_vector_dim = 2>, indices_are_sorted = false, unique_indices = false} "
        ": (tensor<4x6xf32>, tensor<4x1x1xi32>, tensor<4x1xf32>) -> tensor<4x6xf32>",
        "%a: tensor<4x6xf32>, %i: tensor<4x1x1xi32>, %u: tensor<4x1xf32>",
    ),
    "rows taken apart": ("%r = stablehlo.reshape %a : (tensor<8x3xf32>) -> tensor<4x2x3xf32>", "%a: tensor<8x3xf32>"),
    "rows put together": ("%r = stablehlo.reshape %a : (tensor<4x2x3xf32>) -> tensor<8x3xf32>", "%a: tensor<4x2x3xf32>"),
    "part of each row": ("%r = stablehlo.slice %a [0:4, 2:5] : (tensor<4x6xf32>) -> tensor<4x3xf32>", "%a: tensor<4x6xf32>"),
    "batches": (
        "%r = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1] "
        ": (tensor<4x6x5xf32>, tensor<4x5x2xf32>) -> tensor<4x6x2xf32>",
        "%a: tensor<4x6x5xf32>, %b: tensor<4x5x2xf32>",
    ),
}  # fmt: skip
OPS = {**EXAMPLES, **MORE}


def evaluated(op: Op, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """What the evaluator makes of one op on some arrays."""
    block = Block([v.type for v in op.operands])
    env = dict(zip(op.operands, block.arguments, strict=True))
    regions = [clone_block(b, {}) for b in op.regions]
    new = Op(op.definition, [env[v] for v in op.operands], op.attributes, regions, [r.type for r in op.results])
    program = Program("main", tuple(block.arguments), (new,), new.results)
    return [np.asarray(x) for x in interp.evaluate(as_module(program, hlo.Module({})), *arrays)]


def part(a: np.ndarray, axis: int | None, strip: int, count: int) -> np.ndarray:
    return a if axis is None else np.split(a, count, axis)[strip]


def strips_agree(op: Op, cut: Cut, count: int) -> None:
    """Checks that each strip of an op, on strips of its operands, is that strip of the op; or that all of them add up to it."""
    arrays = inputs_of(op, 3)
    whole = evaluated(op, arrays)
    types = [strip_type(v, k, count) for v, k in zip(op.operands, cut.operands, strict=True)]
    one = strip_of(op, cut, Block(types).arguments, count)
    assert not isinstance(one, Declined), one
    strips = [
        evaluated(one, [part(a, k, s, count) for a, k in zip(arrays, cut.operands, strict=True)]) for s in range(count)
    ]
    for k, expected in enumerate(whole):
        found = sum(x[k] for x in strips) if cut.axis is None else np.concatenate([x[k] for x in strips], cut.axis)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", OPS)
def test_a_strip_of_an_op_is_that_strip_of_what_the_whole_op_makes(name: str) -> None:
    op = op_of(*OPS[name])
    tried = 0
    for count in (2, 3, 4):
        for axis in range(min(r.rank for r in op.results)):
            cut = cut_of_result(op, axis, count)
            if not isinstance(cut, Declined):
                strips_agree(op, cut, count)
                tried += 1
        for v in dict.fromkeys(op.operands):
            for axis in range(v.rank):
                for cut in cuts_of_operand(op, v, axis, count) if v.shape[axis] % count == 0 else ():
                    if cut.axis is None:
                        strips_agree(op, cut, count)
                        tried += 1
    assert tried or name not in MORE


@pytest.mark.parametrize(
    ("name", "axis", "count", "reason"),
    [
        ("reverse", 0, 2, "strips of reverse read across the strips of operand 0"),
        ("slice", 0, 3, "strips of slice read across the strips of operand 0"),
        ("rows taken apart", 1, 2, "strips of reshape read across the strips of operand 0"),
        ("pad", 0, 2, "conditions of pad depend on the strip"),
        ("sort", 1, 2, "a strip of sort is none: "),
        ("convolution, feature groups", 2, 2, "a strip of convolution is none: "),
    ],
)
def test_what_reads_across_strips_is_declined_in_words(name: str, axis: int, count: int, reason: str) -> None:
    op = op_of(*OPS[name])
    count = next(c for c in (count, 2, 3, 4, 5, 7) if op.results[0].shape[axis] % c == 0)
    found = cut_of_result(op, axis, count)
    assert isinstance(found, Declined) and found.reason.startswith(reason)


# ---------------------------------------------------------------- programs

SCATTER = (
    '"stablehlo.scatter"(%none, %places, %minus) ({ ^bb0(%old: tensor<f32>, %new: tensor<f32>): '
    "%both = stablehlo.add %old, %new : tensor<f32> stablehlo.return %both : tensor<f32> }) {scatter_dimension_numbers = "
    "#stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], "
    "scatter_dims_to_operand_dims = [1], index_vector_dim = 2>, indices_are_sorted = false, unique_indices = false}"
)


def linear_cross_entropy(n: int, d: int, c: int) -> str:
    """The loss of n rows of x over c classes with its gradients by x and by the weights, as JAX writes it."""
    x, w, z, r, i = f"tensor<{n}x{d}xf32>", f"tensor<{d}x{c}xf32>", f"tensor<{n}x{c}xf32>", f"tensor<{n}xf32>", f"tensor<{n}xi32>"
    at, one = f"tensor<{n}x1x1xi32>", f"tensor<{n}x1xf32>"
    return f"""func.func @main(%x: {x}, %w: {w}, %y: {i}) -> (tensor<f32>, {x}, {w}) {{
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %z = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({x}, {w}) -> {z}
    %m = stablehlo.reduce(%z init: %low) applies stablehlo.maximum across dimensions = [1] : ({z}, tensor<f32>) -> {r}
    %mb = stablehlo.broadcast_in_dim %m, dims = [0] : ({r}) -> {z}
    %less = stablehlo.subtract %z, %mb : {z}
    %e = stablehlo.exponential %less : {z}
    %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : ({z}, tensor<f32>) -> {r}
    %l = stablehlo.log %t : {r}
    %lse = stablehlo.add %l, %m : {r}
    %places = stablehlo.reshape %y : ({i}) -> {at}
    %own = "stablehlo.gather"(%z, %places) {{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], {BATCHED},
      start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>, indices_are_sorted = false}}
      : ({z}, {at}) -> {one}
    %flat = stablehlo.reshape %own : ({one}) -> {r}
    %each = stablehlo.subtract %lse, %flat : {r}
    %loss = stablehlo.reduce(%each init: %zero) applies stablehlo.add across dimensions = [0] : ({r}, tensor<f32>) -> tensor<f32>
    %tb = stablehlo.broadcast_in_dim %t, dims = [0] : ({r}) -> {z}
    %p = stablehlo.divide %e, %tb : {z}
    %none = stablehlo.constant dense<0.0> : {z}
    %minus = stablehlo.constant dense<-1.0> : {one}
    %hot = {SCATTER} : ({z}, {at}, {one}) -> {z}
    %dz = stablehlo.add %p, %hot : {z}
    %dx = stablehlo.dot_general %dz, %w, contracting_dims = [1] x [1] : ({z}, {w}) -> {x}
    %dw = stablehlo.dot_general %x, %dz, contracting_dims = [0] x [0] : ({x}, {z}) -> {w}
    return %loss, %dx, %dw : tensor<f32>, {x}, {w}
  }}"""


def entropy_inputs(n: int, d: int, c: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n + c)
    return [
        rng.standard_normal((n, d)).astype(np.float32), (0.1 * rng.standard_normal((d, c))).astype(np.float32),
        rng.integers(0, c, n).astype(np.int32),
    ]  # fmt: skip


def strips_of(text: str, seed: str, axis: int, count: int) -> tuple[Program, Strips | Declined, hlo.Module]:
    module = hlo.parse(text)
    program = flatten(module, "main", supports)
    value: Value = next(r for op in program.ops for r in op.results if r.name == seed)
    return program, StripFinder(program).find(value, axis, count), module


def test_the_gradient_of_a_linear_layer_with_cross_entropy_is_summed_over_strips_of_rows() -> None:
    program, found, module = strips_of(linear_cross_entropy(12, 5, 7), "z", 0, 3)
    assert isinstance(found, Strips)
    made = run_in_strips(program, found)
    assert isinstance(made, Program)
    after = as_module(made, module)
    hlo.verify(after)
    made_whole = [op for op in after.entry.body.ops if not isinstance(op.definition.semantics, Literal)]
    assert not any(v.shape == (12, 7) for op in made_whole for v in op.results)
    arrays = entropy_inputs(12, 5, 7)
    for a, b in zip(interp.evaluate(after, *arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("seed", "axis", "count", "reason"),
    [
        ("z", 1, 7, "gather reads it across its strips"),
        ("z", 0, 5, "tensor<12x7xf32> has no 5 strips along dimension 0"),
        ("dw", 0, 5, "it is an argument or a result of the program"),
        ("e", 1, 7, "broadcast_in_dim needs all strips of what reduce makes"),
    ],
)
def test_strips_that_there_are_not_are_declined_in_words(seed: str, axis: int, count: int, reason: str) -> None:
    _, found, _ = strips_of(linear_cross_entropy(12, 5, 7), seed, axis, count)
    assert isinstance(found, Declined) and found.reason == reason


def test_numbers_along_the_strips_begin_where_a_strip_does() -> None:
    text = """func.func @main(%x: tensor<8x4xf32>, %w: tensor<4x6xf32>) -> tensor<8x4xf32> {
      %z = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
      %i = stablehlo.iota dim = 0 : tensor<8x6xi32>
      %j = stablehlo.iota dim = 1 : tensor<8x6xi32>
      %keep = stablehlo.compare GE, %i, %j : (tensor<8x6xi32>, tensor<8x6xi32>) -> tensor<8x6xi1>
      %zero = stablehlo.constant dense<0.0> : tensor<8x6xf32>
      %s = stablehlo.select %keep, %z, %zero : tensor<8x6xi1>, tensor<8x6xf32>
      %r = stablehlo.dot_general %s, %w, contracting_dims = [1] x [1] : (tensor<8x6xf32>, tensor<4x6xf32>) -> tensor<8x4xf32>
      return %r : tensor<8x4xf32>
    }"""
    program, found, module = strips_of(text, "z", 0, 4)
    assert isinstance(found, Strips)
    made = run_in_strips(program, found)
    assert isinstance(made, Program)
    after = as_module(made, module)
    assert [op.name for op in after.entry.body.ops if op.name == "stablehlo.iota"] == []
    arrays = [np.arange(32, dtype=np.float32).reshape(8, 4), np.ones((4, 6), np.float32)]
    for a, b in zip(interp.evaluate(after, *arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_mask_of_places_is_made_by_each_strip() -> None:
    """Whole, it was read by the loops of all strips: they were bounded by no mask, and computed what it leaves out (.78)."""
    x, z = "tensor<4x8x5xf32>", "tensor<4x8x8xf32>"
    text = f"""func.func @main(%x: {x}, %w: {x}) -> {x} {{
      %z = stablehlo.dot_general %x, %w, batching_dims = [0] x [0], contracting_dims = [2] x [2] : ({x}, {x}) -> {z}
      %i = stablehlo.iota dim = 0 : tensor<8x8xi32>
      %j = stablehlo.iota dim = 1 : tensor<8x8xi32>
      %keep = stablehlo.compare GE, %i, %j : (tensor<8x8xi32>, tensor<8x8xi32>) -> tensor<8x8xi1>
      %each = stablehlo.broadcast_in_dim %keep, dims = [1, 2] : (tensor<8x8xi1>) -> tensor<4x8x8xi1>
      %zero = stablehlo.constant dense<0.0> : {z}
      %s = stablehlo.select %each, %z, %zero : tensor<4x8x8xi1>, {z}
      %r = stablehlo.dot_general %s, %w, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({z}, {x}) -> {x}
      return %r : {x}
    }}"""
    program, found, module = strips_of(text, "z", 0, 4)
    assert isinstance(found, Strips)
    made = run_in_strips(program, found)
    assert isinstance(made, Program)
    after = as_module(made, module)
    hlo.verify(after)
    (loop,) = [op for op in after.entry.body.ops if op.name == "stablehlo.while"]
    assert [op.name for op in loop.regions[1].ops].count("stablehlo.compare") == 1
    assert [op.name for op in after.entry.body.ops].count("stablehlo.compare") == 0
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-3, 4, (4, 8, 5)).astype(np.float32) for _ in range(2)]
    for a, b in zip(interp.evaluate(after, *arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# ---------------------------------------------------------------- plans


@functools.cache
def planned(text: str) -> tiling.Plan:
    return tiling.plan(hlo.parse(text), machine=MACHINE, supports=supports)


LOSS = linear_cross_entropy(512, 64, 384)


def test_a_plan_has_large_values_a_strip_at_a_time_says_why_and_is_proved() -> None:
    plan = planned(LOSS)
    (step,) = plan.controls
    assert step.trips == 4 and not any(c.how == "exchanged" for c in step.carries)
    assert [d.fused for d in plan.decisions if d.consumer == "a loop over strips"][:1] == [True]
    assert "z into a loop over strips: 4 strips of 128 along dimension 0" in plan.explain()
    for p in plan.nested():
        for f in p.fusions:
            proof = tiling.prove(f)
            assert proof.holds, (f.name, proof.refuted, proof.undecided)


def test_scratch_is_that_of_a_strip_and_results_are_the_evaluators() -> None:
    with without("run_in_strips"):
        whole = tiling.plan(hlo.parse(LOSS), machine=MACHINE, supports=supports)
    stored = sum(v.tensor.size_bytes for f in whole.fusions for v in f.outputs if v not in whole.program.results)
    assert stored > 2 * 512 * 384 * 4, "what lies between kernels without strips"
    executable = codegen.compile(planned(LOSS))
    assert executable.stats.scratch_bytes * 2.5 < stored
    arrays = entropy_inputs(512, 64, 384)
    for a, b in zip(executable(*arrays), interp.evaluate(hlo.parse(LOSS), *arrays), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


def masked(heads: int, n: int, d: int, *, whole: bool) -> str:
    """exp(x wT) where a mask of places has it, for itself times w and times u: of each head the same part of it, or of none."""
    x, z, m, places = f"{heads}x{n}x{d}xf32", f"{heads}x{n}x{n}xf32", f"{heads}x{n}x{n}xi1", f"{n}x{n}xi32"
    x, z, m, places = (f"tensor<{t}>" for t in (x, z, m, places))
    first = "%i" if not whole else "%j"
    return f"""func.func @main(%x: {x}, %w: {x}, %u: {x}) -> ({x}, {x}) {{
    %z = stablehlo.dot_general %x, %w, batching_dims = [0] x [0], contracting_dims = [2] x [2] : ({x}, {x}) -> {z}
    %i = stablehlo.iota dim = 0 : {places}
    %j = stablehlo.iota dim = 1 : {places}
    %keep = stablehlo.compare GE, {first}, %j : ({places}, {places}) -> tensor<{n}x{n}xi1>
    %each = stablehlo.broadcast_in_dim %keep, dims = [1, 2] : (tensor<{n}x{n}xi1>) -> {m}
    %zero = stablehlo.constant dense<0.0> : {z}
    %e = stablehlo.exponential %z : {z}
    %s = stablehlo.select %each, %e, %zero : {m}, {z}
    %a = stablehlo.dot_general %s, %w, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({z}, {x}) -> {x}
    %b = stablehlo.dot_general %s, %u, batching_dims = [0] x [0], contracting_dims = [1] x [1] : ({z}, {x}) -> {x}
    return %a, %b : {x}, {x}
  }}"""


@pytest.mark.parametrize(("whole", "axis"), [(False, 0), (True, 1)])
def test_strips_leave_a_mask_in_place_where_there_are_others(whole: bool, axis: int) -> None:
    """A strip of rows has a part of the mask that is known at run time: its loops were bounded by none (.62)."""
    (pin,) = planned(masked(2, 512, 16, whole=whole)).strips
    assert pin.strips is not None and pin.strips[1] == axis


def test_a_strips_factor_is_packed_ahead_where_its_copy_is_small() -> None:
    """Each task packed it, as what is large is (a window of attention with gradients: .84 of what it takes now)."""
    small, large = (
        {b.scope for p in planned(text).nested() for f in p.fusions for b in f.schedule.buffers if b.name.endswith("_right")}
        for text in (masked(2, 512, 16, whole=False), linear_cross_entropy(512, 64, 384))
    )
    assert (small, large) == ({Scope.SHARED}, {Scope.THREAD})


def loops_of(plan: tiling.Plan) -> list[str]:
    return [str(f.schedule) for p in plan.nested() for f in p.fusions]


def test_pins_make_the_same_strips_again() -> None:
    plan = planned(LOSS)
    again = tiling.plan(plan.module, machine=MACHINE, supports=supports, pins=plan.pins())
    assert again.strips == plan.strips and loops_of(again) == loops_of(plan)


@pytest.mark.parametrize(
    ("ops", "strips", "reason"),
    [
        ((2,), (0, 0, 5), "has no 5 strips along dimension 0"),
        ((2,), (1, 0, 4), "stablehlo.dot_general has no result 1"),
        ((2, 3), (0, 0, 4), "expected one op and"),
        ((999,), (0, 0, 4), "expected one op and"),
    ],
)
def test_strips_that_cannot_be_are_refused_as_pins(ops: tuple[int, ...], strips: tuple[int, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=f"pin .*{reason}"):
        tiling.plan(hlo.parse(LOSS), machine=MACHINE, supports=supports, pins=[tiling.Pin(ops, strips=strips)])


def test_tasks_of_an_update_at_a_place_known_at_run_time_are_apart() -> None:
    text = """func.func @main(%a: tensor<2048x128xf32>, %u: tensor<512x128xf32>, %k: tensor<i32>) -> tensor<2048x128xf32> {
      %z = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %e, %r = stablehlo.while(%i = %z, %w = %a) : tensor<i32>, tensor<2048x128xf32>
      cond {
        %go = stablehlo.compare LT, %i, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %go : tensor<i1>
      } do {
        %b = stablehlo.dynamic_update_slice %w, %u, %i, %z
          : (tensor<2048x128xf32>, tensor<512x128xf32>, tensor<i32>, tensor<i32>) -> tensor<2048x128xf32>
        %next = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %next, %b : tensor<i32>, tensor<2048x128xf32>
      }
      return %r : tensor<2048x128xf32>
    }"""
    plan = tiling.plan(hlo.parse(text), machine=MACHINE, supports=supports)
    (update,) = [f for p in plan.nested() for f in p.fusions if is_update(f.stages[-1].op)]
    assert update.schedule.main.tasks > 1
    assert tiling.prove_memory(update.schedule).holds and tiling.prove(update).holds


def test_a_remembered_plan_has_the_same_strips(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    module = hlo.parse(LOSS)
    first = remembered_plan(module, machine=MACHINE)
    with monkeypatch.context() as patch:
        patch.setattr(whole_plans, "with_strips", lambda *given: pytest.fail("a remembered plan searches for no strips"))
        again = remembered_plan(module, machine=MACHINE)
    assert [p.strips for p in again.strips] == [p.strips for p in first.strips] == [(0, 0, 4)]
    assert loops_of(again) == loops_of(first)
    assert again.decisions == first.decisions


def test_the_plan_with_strips_finds_what_it_shares_with_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    module = hlo.parse(two_layers(256, 32, 1024))
    calls: list[int] = []
    original = planner.best_tiles

    def counted(*given: Any) -> Any:
        calls.append(1)
        return original(*given)

    monkeypatch.setattr(planner, "best_tiles", counted)
    first = tiling.plan(module, machine=MACHINE, supports=supports)
    shared = len(calls)
    calls.clear()
    made = planner.Planner
    monkeypatch.setattr(whole_plans, "Planner", lambda *given: made(*[Searches() if type(x) is Searches else x for x in given]))
    again = tiling.plan(module, machine=MACHINE, supports=supports)
    assert shared < len(calls) and first.strips
    assert loops_of(again) == loops_of(first)


# ---------------------------------------------------------------- what is computed again


def two_layers(n: int, d: int, c: int) -> str:
    """exp(x w) summed against u, another layer v v o behind it, and the gradient by w: it reads the exponentials."""
    x, w, z, v = f"tensor<{n}x{d}xf32>", f"tensor<{d}x{c}xf32>", f"tensor<{n}x{c}xf32>", f"tensor<{n}x{n}xf32>"
    return f"""func.func @main(%x: {x}, %w: {w}, %u: {w}, %v: {v}) -> ({x}, {w}) {{
    %vv = stablehlo.dot_general %v, %v, contracting_dims = [1] x [0] : ({v}, {v}) -> {v}
    %z = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({x}, {w}) -> {z}
    %e = stablehlo.exponential %z : {z}
    %o = stablehlo.dot_general %e, %u, contracting_dims = [1] x [1] : ({z}, {w}) -> {x}
    %a = stablehlo.dot_general %vv, %o, contracting_dims = [1] x [0] : ({v}, {x}) -> {x}
    %b = stablehlo.dot_general %a, %u, contracting_dims = [1] x [0] : ({x}, {w}) -> {z}
    %g = stablehlo.multiply %b, %e : {z}
    %dw = stablehlo.dot_general %x, %g, contracting_dims = [0] x [0] : ({x}, {z}) -> {w}
    return %a, %dw : {x}, {w}
  }}"""


def test_a_large_value_is_computed_again_for_those_who_read_it_behind_another_product() -> None:
    text = two_layers(8, 3, 16)
    program, found, module = strips_of(text, "e", 0, 4)
    assert isinstance(found, Declined) and found.reason == "dot_general needs all strips of what dot_general makes"
    seed = next(r for op in program.ops for r in op.results if r.name == "e")
    again = compute_again(program, seed)
    assert isinstance(again, Again) and sorted(str(v.name) for v in again.copies) == ["e", "z"]
    late = next(op for op in again.program.ops if op.name == "stablehlo.multiply")
    assert late.operands[1] is again.copies[seed]
    strips = StripFinder(again.program).find(again.copies[seed], 0, 4)
    assert isinstance(strips, Strips)
    made = run_in_strips(again.program, strips)
    assert isinstance(made, Program)
    after = as_module(made, module)
    hlo.verify(after)
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((8, 3), (3, 16), (3, 16), (8, 8))]
    for a, b in zip(interp.evaluate(after, *arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=1e-5)


def test_a_value_that_nobody_reads_later_is_not_computed_again() -> None:
    program, _, _ = strips_of(linear_cross_entropy(12, 5, 7), "z", 0, 3)
    seed = next(r for op in program.ops for r in op.results if r.name == "z")
    found = compute_again(program, seed)
    assert isinstance(found, Declined)
    assert found.reason == "nobody reads it later, after a product that waits for it"


def test_a_plan_computes_again_where_that_costs_little_and_its_pins_do_too() -> None:
    text = two_layers(1024, 16, 768)
    machine = dataclasses.replace(MACHINE, l3_bytes=1 << 20)
    plan = tiling.plan(hlo.parse(text), machine=machine, supports=supports)
    assert [p.strips[1:] for p in plan.strips] == [(), (0, 8)]
    again = tiling.plan(plan.module, machine=machine, supports=supports, pins=plan.pins())
    assert loops_of(again) == loops_of(plan)
    assert any("1 product and what follows computed again for later readers" in d.reason for d in plan.decisions)


def test_all_of_a_chain_between_two_ops_belongs_to_the_strips() -> None:
    """Ops from one value of the strips to another are found through all that lies between, however small it is."""
    module = hlo.parse("""func.func @main(%x: tensor<64x32xf32>, %w: tensor<32x256xf32>) -> tensor<64x256xf32> {
      %z = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
         : (tensor<64x32xf32>, tensor<32x256xf32>) -> tensor<64x256xf32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [1]
         : (tensor<64x256xf32>, tensor<f32>) -> tensor<64xf32>
      %a = stablehlo.negate %s : tensor<64xf32>
      %b = stablehlo.tanh %a : tensor<64xf32>
      %c = stablehlo.cosine %b : tensor<64xf32>
      %d = stablehlo.broadcast_in_dim %c, dims = [0] : (tensor<64xf32>) -> tensor<64x256xf32>
      %y = stablehlo.multiply %z, %d : tensor<64x256xf32>
      return %y : tensor<64x256xf32>
    }""")
    program = flatten(module, supports=supports)
    seed = next(op for op in program.ops if op.name == "stablehlo.dot_general").results[0]
    found = StripFinder(program).find(seed, 0, 4)
    assert isinstance(found, Strips)
    assert {"negate", "tanh", "cosine"} <= {op.definition.mnemonic for op in found.ops}
