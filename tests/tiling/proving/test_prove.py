"""Proofs: every plan's schedules hold, and schedules that were made wrong are refuted with a witness."""

# ruff: noqa: E501  (programs are kept as they are printed)

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hlo
import tiling
from indexing.expr import Const, Expr, Var, as_expr, minimum, substitute
from tests import shipped_plans
from tests.random_programs import random_program
from tiling import Buffer, Contract, Loop, Machine, Nest, Phase, Schedule, Scope, Store, prove
from tiling.proving.contents.trial import Trial
from tiling.proving.proof import Obligation, Proof, Verdict

EXAMPLES = Path(__file__).parents[3] / "examples"
MACHINE = Machine(cores=4, vector_bytes=64, vector_registers=32, l1_bytes=48 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)


def planned(text: str) -> tiling.Plan:
    return tiling.plan(hlo.parse(text), machine=MACHINE)


def told(proof: Proof) -> str:
    return "\n".join(map(str, (*proof.refuted, *proof.undecided)))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.mlir")), ids=lambda p: p.stem)
def test_examples(path: Path) -> None:
    proof = prove(shipped_plans.planned(path))
    assert proof.holds, told(proof)
    names = {o.name for o in proof.obligations}
    assert {"written once", "in bounds", "produced", "not overwritten", "storage", "ranges", "inputs"} <= names


@pytest.mark.parametrize("path", sorted((EXAMPLES.parent / "tests" / "programs").glob("*.mlir")), ids=lambda p: p.stem)
def test_models_and_parts_of_them(path: Path) -> None:
    """Norms, attention, convolutions, pooling, scatters, top-k, cumulative sums, forward and backward passes."""
    proof = prove(shipped_plans.planned(path, kernels=True))
    assert proof.holds, told(proof)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    module, _ = random_program(seed)
    proof = prove(tiling.plan(module, machine=MACHINE))
    assert proof.holds, told(proof)


SOFTMAX = """func.func @main(%x: tensor<96x40xf32>) -> tensor<96x40xf32> {
  %i = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %i) applies stablehlo.maximum across dimensions = [1] : (tensor<96x40xf32>, tensor<f32>) -> tensor<96xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<96xf32>) -> tensor<96x40xf32>
  %d = stablehlo.subtract %x, %mb : tensor<96x40xf32>
  %e = stablehlo.exponential %d : tensor<96x40xf32>
  %s = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1] : (tensor<96x40xf32>, tensor<f32>) -> tensor<96xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<96xf32>) -> tensor<96x40xf32>
  %y = stablehlo.divide %e, %sb : tensor<96x40xf32>
  return %y : tensor<96x40xf32>
}"""


def softmax(sizes: tuple[int, ...] = (16, 40)) -> Schedule:
    """Softmax over several tasks, each with scratch of its own and the exponentials in the result's memory."""
    from tiling.loops.names import Names
    from tiling.lower.placing import FusionRequest
    from tiling.planning.forms import lower

    plan = planned(SOFTMAX)
    (fusion,) = plan.fusions
    stored = frozenset(fusion.outputs)
    names = Names([*plan.program.arguments, *(v for s in fusion.stages for v in s.values)])
    made = lower(FusionRequest(fusion.stages, stored, sizes), MACHINE, names)
    assert isinstance(made, Schedule) and made.phases[-1].tasks == -(-96 // sizes[0])
    return made


MATMUL = """func.func @main(%a: tensor<200x300xf32>, %b: tensor<300x700xf32>) -> tensor<200x700xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<200x300xf32>, tensor<300x700xf32>) -> tensor<200x700xf32>
  %1 = stablehlo.tanh %0 : tensor<200x700xf32>
  return %1 : tensor<200x700xf32>
}"""


def matmul() -> Schedule:
    (fusion,) = planned(MATMUL).fusions
    assert any(isinstance(s, Contract) for p in fusion.schedule.phases for s in p.steps)
    return fusion.schedule


# ---------------------------------------------------------------- making schedules wrong


def with_steps(schedule: Schedule, change: Callable[[Any], Any], phase: int = -1) -> Schedule:
    phases = list(schedule.phases)
    phases[phase] = Phase(phases[phase].tiles, tuple(change(s) for s in phases[phase].steps))
    return replace(schedule, phases=tuple(phases))


def with_store(schedule: Schedule, change: Callable[[Store], Store], phase: int = -1) -> Schedule:
    def step(s: Any) -> Any:
        return replace(s, stores=tuple(map(change, s.stores))) if isinstance(s, Nest) else s

    return with_steps(schedule, step, phase)


def with_buffer(schedule: Schedule, old: Buffer, new: Buffer) -> Schedule:
    """The schedule with one buffer in place of another, wherever it is stored to."""

    def step(s: Any) -> Any:
        if isinstance(s, Contract):
            blocks = {n: replace(b, buffer=new) for n in ("left", "right", "out") if (b := getattr(s, n)).buffer is old}
            return replace(s, pack=tuple(map(step, s.pack)), **blocks)
        if not isinstance(s, Nest):
            return s
        stores = tuple(replace(x, buffer=new) if x.buffer is old else x for x in s.stores)
        folds = tuple(replace(f, buffers=tuple(new if b is old else b for b in f.buffers)) for f in s.folds)
        return replace(s, stores=stores, folds=folds)

    phases = tuple(Phase(p.tiles, tuple(map(step, p.steps))) for p in schedule.phases)
    buffers = dict.fromkeys(new if b is old else b for b in schedule.buffers)
    return replace(schedule, phases=phases, buffers=tuple(buffers))


def refuted(schedule: Schedule, name: str) -> Sequence[Obligation]:
    found = [o for o in prove(schedule).refuted if o.name == name]
    assert found, f"not refuted: {name}\n{prove(schedule)}"
    assert all(o.witness for o in found)
    return found


def test_the_schedules_that_are_made_wrong_were_right() -> None:
    for schedule in (softmax(), softmax((10, 40)), matmul()):
        assert prove(schedule).holds, told(prove(schedule))


def test_a_shifted_store_leaves_the_buffer_and_a_gap() -> None:
    wrong = with_store(softmax(), lambda s: replace(s, index=(*s.index[:-1], s.index[-1] + 1)))
    assert "i1_" in refuted(wrong, "in bounds")[0].witness
    assert "never written" in refuted(wrong, "written once")[0].witness


def test_a_store_that_stays_put_is_written_twice() -> None:
    wrong = with_store(softmax(), lambda s: replace(s, index=(*s.index[:-1], Const(0))))
    assert "two iterations" in refuted(wrong, "written once")[0].witness


def test_overlapping_tiles_are_written_by_two_tasks() -> None:
    schedule = softmax()
    (tile, _) = schedule.phases[-1].tiles[0]
    wrong = with_store(
        schedule,
        lambda s: replace(s, index=tuple(substitute(e, {tile: 0}) + tile * 15 if tile in e.variables else e for e in s.index)),
    )
    assert any("two iterations" in o.witness for o in refuted(wrong, "written once"))
    assert "two tasks meet" in refuted(wrong, "tasks apart")[0].witness


def test_a_missing_task_leaves_elements_unwritten() -> None:
    schedule = softmax()
    phase = schedule.phases[-1]
    ((tile, n),) = phase.tiles
    wrong = replace(schedule, phases=(*schedule.phases[:-1], Phase(((tile, n - 1),), phase.steps)))
    assert "never written" in refuted(wrong, "written once")[0].witness


def test_shrunk_memory_does_not_hold_the_last_element() -> None:
    schedule = softmax()
    scratch = schedule.buffers_in(Scope.THREAD)[0]
    wrong = with_buffer(schedule, scratch, replace(scratch, size_elems=scratch.size_elems - 1))
    assert "its memory has" in refuted(wrong, "storage")[0].witness
    (n,) = scratch.shape
    wrong = with_buffer(schedule, scratch, replace(scratch, shape=(n - 1,), size_elems=n - 1))
    refuted(wrong, "in bounds")


def test_strides_that_fold_rows_onto_each_other() -> None:
    schedule = softmax()
    (result,) = schedule.buffers_in(Scope.RESULT)
    wrong = with_buffer(schedule, result, replace(result, strides=(result.strides[0] - 1, 1)))
    refuted(wrong, "storage")


@pytest.mark.parametrize("first", range(2))
def test_swapped_steps_read_what_is_not_there_yet(first: int) -> None:
    schedule = softmax()
    phase = schedule.phases[-1]
    steps = list(phase.steps)
    assert len(steps) > first + 1
    steps[first], steps[first + 1] = steps[first + 1], steps[first]
    wrong = replace(schedule, phases=(*schedule.phases[:-1], Phase(phase.tiles, tuple(steps))))
    assert "not written" in refuted(wrong, "produced")[0].witness


def test_a_step_left_out_is_missed() -> None:
    schedule = softmax()
    phase = schedule.phases[-1]
    refuted(replace(schedule, phases=(*schedule.phases[:-1], Phase(phase.tiles, phase.steps[1:]))), "produced")


def test_scratch_of_another_phase_does_not_count() -> None:
    schedule = softmax()
    phase = schedule.phases[-1]
    apart = (Phase(phase.tiles, phase.steps[:1]), Phase(phase.tiles, phase.steps[1:]))
    refuted(replace(schedule, phases=(*schedule.phases[:-1], *apart)), "produced")


def test_half_a_tile_is_not_the_tile() -> None:
    def shorter(s: Any) -> Any:
        if not isinstance(s, Nest) or not s.folds:
            return s
        first = s.loops[0]
        return replace(s, loops=(Loop(first.variable, Const(1), first.upper, first.extent, first.kind), *s.loops[1:]))

    refuted(with_steps(softmax(), shorter), "produced")


REVERSED = """func.func @main(%x: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<64x32xf32>
  %s = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1] : (tensor<64x32xf32>, tensor<f32>) -> tensor<64xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<64xf32>) -> tensor<64x32xf32>
  %r = stablehlo.reverse %e, dims = [1] : tensor<64x32xf32>
  %y = stablehlo.divide %r, %sb : tensor<64x32xf32>
  return %y : tensor<64x32xf32>
}"""


def test_in_place_where_an_element_is_read_after_it_is_overwritten() -> None:
    """y[i, j] = e[i, 31 - j] / s[i]: e must not live in y's memory."""
    (fusion,) = planned(REVERSED).fusions
    schedule = fusion.schedule
    assert prove(schedule).holds
    (result,) = schedule.buffers_in(Scope.RESULT)
    (kept,) = [b for b in schedule.buffers_in(Scope.THREAD) if len(b.shape) == 2]
    wrong = with_buffer(schedule, kept, result)
    (o,) = refuted(wrong, "not overwritten")
    assert "of the write" in o.witness


def test_in_place_over_a_value_that_is_still_read() -> None:
    """The row maxima and the row sums may not share memory: the maxima are read after the first sums are stored."""
    schedule = softmax()
    first, second, *_ = schedule.buffers_in(Scope.THREAD)
    proof = prove(with_buffer(schedule, second, first))
    assert proof.refuted, "two values in one scratch buffer, both alive"


def test_a_later_iteration_that_undoes_an_earlier_one() -> None:
    """A store beside that of the exponentials, into the same rows from the other end: it comes first, but not for all."""
    schedule = softmax()
    step = next(s for s in schedule.phases[-1].steps if isinstance(s, Nest) and s.stores and s.folds)
    (kept,) = step.stores
    assert kept.value is not None and kept.value.op is not None
    other = kept.value.op.operands[0]  # computed where it is read, in no buffer of its own

    def beside(index: tuple[Expr, ...]) -> Schedule:
        extra = replace(kept, value=other, index=index)
        return with_steps(schedule, lambda s: replace(s, stores=(extra, kept)) if s is step else s)

    row, column = kept.index
    assert not [o for o in prove(beside((row, column))).refuted if o.name == "not overwritten"]
    assert "of the write" in refuted(beside((row, 39 - column)), "not overwritten")[0].witness


# ---------------------------------------------------------------- contractions


def _contract(schedule: Schedule, **changes: Any) -> Schedule:
    return with_steps(schedule, lambda s: replace(s, **changes) if isinstance(s, Contract) else s)


def contraction(schedule: Schedule) -> Contract:
    return next(s for p in schedule.phases for s in p.steps if isinstance(s, Contract))


def test_contraction_with_a_row_too_many() -> None:
    schedule = matmul()
    refuted(_contract(schedule, rows_upper=contraction(schedule).rows_upper + 1), "in bounds")


def test_contraction_that_leaves_columns_out() -> None:
    schedule = matmul()
    c = contraction(schedule)
    wrong = _contract(schedule, columns_upper=minimum(c.columns_upper, 3))
    assert [o for o in prove(wrong).refuted if o.name in ("written once", "produced")]


def test_contraction_over_a_depth_too_long() -> None:
    schedule = matmul()
    c = contraction(schedule)
    wrong = _contract(schedule, k=c.k + 8, k_block=c.k_block + 8)
    assert [o for o in prove(wrong).refuted if o.name in ("in bounds", "produced")]


def test_packing_that_is_left_out_or_short() -> None:
    schedule = matmul()
    if len(schedule.phases) == 1 and not contraction(schedule).pack:
        pytest.fail("the example is meant to pack an operand")
    if len(schedule.phases) > 1:
        refuted(replace(schedule, phases=schedule.phases[1:]), "produced")
        ahead = schedule.phases[0]
        short = Phase(tuple((v, max(1, n - 1)) for v, n in ahead.tiles), ahead.steps)
        refuted(replace(schedule, phases=(short, *schedule.phases[1:])), "produced")
    else:
        refuted(_contract(schedule, pack=()), "produced")


def test_batched_contraction_with_packed_rows() -> None:
    """Rows in bf16, the last block of the depth shorter: rows are widened and packed for each block."""
    text = """func.func @main(%a: tensor<3x64x1024xbf16>, %b: tensor<3x1024x96xbf16>) -> tensor<3x64x96xf32> {
      %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1]
        : (tensor<3x64x1024xbf16>, tensor<3x1024x96xbf16>) -> tensor<3x64x96xf32>
      return %0 : tensor<3x64x96xf32> }"""
    (fusion,) = planned(text).fusions
    c = contraction(fusion.schedule)
    assert c.pack and c.k > c.k_block
    assert prove(fusion).holds, told(prove(fusion))
    (pack,) = c.pack
    k = pack.loops[-1]
    short = replace(pack, loops=(*pack.loops[:-1], replace(k, upper=k.upper - 1)))
    refuted(_contract(fusion.schedule, pack=(short,)), "produced")


# ---------------------------------------------------------------- other parts


PROGRAMS = {
    "concatenate and pad": """func.func @main(%a: tensor<5x7xf32>, %b: tensor<5x4xf32>) -> tensor<9x13xf32> {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.concatenate %a, %b, dim = 1 : (tensor<5x7xf32>, tensor<5x4xf32>) -> tensor<5x11xf32>
      %1 = stablehlo.pad %0, %z, low = [1, 1], high = [3, 1], interior = [0, 0] : (tensor<5x11xf32>, tensor<f32>) -> tensor<9x13xf32>
      return %1 : tensor<9x13xf32> }""",
    "dynamic slice": """func.func @main(%a: tensor<50x70xf32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<20x30xf32> {
      %0 = stablehlo.dynamic_slice %a, %i, %j, sizes = [20, 30] : (tensor<50x70xf32>, tensor<i32>, tensor<i32>) -> tensor<20x30xf32>
      %1 = stablehlo.tanh %0 : tensor<20x30xf32>
      return %1 : tensor<20x30xf32> }""",
    "gather of rows": """func.func @main(%t: tensor<1000x16xf32>, %i: tensor<40x1xi32>) -> tensor<40x16xf32> {
      %0 = "stablehlo.gather"(%t, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 16>, indices_are_sorted = false}
        : (tensor<1000x16xf32>, tensor<40x1xi32>) -> tensor<40x16xf32>
      return %0 : tensor<40x16xf32> }""",
    "padded convolution": """func.func @main(%x: tensor<2x9x9x3xf32>, %w: tensor<3x3x3x8xf32>) -> tensor<2x9x9x8xf32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<2x9x9x3xf32>, tensor<3x3x3x8xf32>) -> tensor<2x9x9x8xf32>
      return %0 : tensor<2x9x9x8xf32> }""",
    "padded convolution of integers": """func.func @main(%x: tensor<1x5x5x2xi32>, %w: tensor<3x3x2x4xi32>) -> tensor<1x5x5x4xi32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x5x5x2xi32>, tensor<3x3x2x4xi32>) -> tensor<1x5x5x4xi32>
      return %0 : tensor<1x5x5x4xi32> }""",
    "a sum of no products": """func.func @main(%x: tensor<3x0xf32>, %y: tensor<0x4xf32>) -> tensor<3x4xf32> {
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<3x0xf32>, tensor<0x4xf32>) -> tensor<3x4xf32>
      return %0 : tensor<3x4xf32> }""",
    "a reshape between": """func.func @main(%x: tensor<6x10xf32>) -> tensor<15x4xf32> {
      %0 = stablehlo.tanh %x : tensor<6x10xf32>
      %1 = stablehlo.reshape %0 : (tensor<6x10xf32>) -> tensor<15x4xf32>
      return %1 : tensor<15x4xf32> }""",
    "transposes": """func.func @main(%x: tensor<640x512xf32>) -> tensor<512x640xf32> {
      %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<640x512xf32>) -> tensor<512x640xf32>
      %1 = stablehlo.tanh %0 : tensor<512x640xf32>
      return %1 : tensor<512x640xf32> }""",
    "a long reduction": """func.func @main(%x: tensor<300000xf32>) -> tensor<f32> {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<300000xf32>, tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32> }""",
    "sort of columns": """func.func @main(%x: tensor<30x20xf32>) -> tensor<30x20xf32> {
      %0 = "stablehlo.sort"(%x) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
      }) {dimension = 0 : i64, is_stable = true} : (tensor<30x20xf32>) -> tensor<30x20xf32>
      return %0 : tensor<30x20xf32> }""",
    "nothing": """func.func @main(%x: tensor<0x4xf32>) -> tensor<0x4xf32> {
      %0 = stablehlo.tanh %x : tensor<0x4xf32>
      return %0 : tensor<0x4xf32> }""",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs(name: str) -> None:
    proof = prove(planned(PROGRAMS[name]))
    assert proof.holds, told(proof)


def test_a_guard_that_is_gone_lets_reads_out_of_bounds() -> None:
    from tiling.loops.element_ir import Choose

    (fusion,) = planned(PROGRAMS["concatenate and pad"]).fusions

    def bare(s: Store) -> Store:
        return replace(s, node=s.node.then) if isinstance(s.node, Choose) else s

    wrong = with_store(fusion.schedule, bare)
    assert wrong.phases[-1].steps[0].stores[0].node is not fusion.schedule.phases[-1].steps[0].stores[0].node  # type: ignore[union-attr]
    refuted(wrong, "in bounds")


def test_what_takes_too_long_is_undecided_and_never_proved() -> None:
    proof = prove(softmax(), operations=1)
    assert proof.undecided and not proof.holds
    assert all(o.witness for o in proof.undecided)
    late = prove(softmax(), seconds=0.0)
    assert late.undecided and not late.refuted


def test_the_table_counts_every_obligation() -> None:
    proof = prove(softmax())
    assert sum(r["proved"] for r in proof.table()) == len(proof.obligations)
    lines = str(proof).splitlines()
    assert lines[0].split() == ["obligation", *(v.value for v in Verdict)]
    wrong = prove(with_store(softmax(), lambda s: replace(s, index=(*s.index[:-1], as_expr(0)))))
    assert any("written once" in line and "refuted" in line for line in str(wrong).splitlines()[1:])


def test_a_variable_outside_of_its_claimed_range() -> None:
    schedule = softmax()
    v: Var = schedule.phases[-1].tiles[0][0]
    claimed: dict[Var, Any] = {**schedule.ranges, v: type(schedule.ranges[v])(0, 0)}
    assert isinstance(v, Expr)
    (o,) = refuted(replace(schedule, ranges=claimed), "ranges")
    assert "its range is [0, 0]" in o.witness


def test_a_nest_does_not_join_one_that_overwrites_what_it_reads_further_on() -> None:
    """r reads the product back to front; y is computed in the product's place: one loop for both would read what y wrote."""
    text = """func.func @main(%a: tensor<6x9xf32>, %b: tensor<9x32xf32>) -> (tensor<6x32xf32>, tensor<6x32xf32>) {
      %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<6x9xf32>, tensor<9x32xf32>) -> tensor<6x32xf32>
      %r = stablehlo.reverse %p, dims = [1] : tensor<6x32xf32>
      %n = stablehlo.negate %r : tensor<6x32xf32>
      %y = stablehlo.add %n, %p : tensor<6x32xf32>
      return %n, %y : tensor<6x32xf32>, tensor<6x32xf32> }"""
    proof = prove(planned(text))
    assert proof.holds, told(proof)


@pytest.mark.parametrize("seed", [76, 77, 79, 102, 146, 262, 120, 641])
def test_folds_of_padded_values(seed: int) -> None:
    """Between the holes of a padded value two indices load the same element: the loops, or their conditions, tell them apart."""
    module, _ = random_program(seed)
    proof = prove(tiling.plan(module, machine=MACHINE))
    assert proof.holds, told(proof)


@pytest.mark.parametrize("seed", [64, 416, 926, 1092])
def test_parts_of_loops_that_were_proved(seed: int) -> None:
    """Cut and joined final loops have lost conditions, or run in another order: they are compared with the lowered ones."""
    module, _ = random_program(seed)
    proof = prove(tiling.plan(module, machine=MACHINE))
    assert proof.holds, told(proof)
    assert any("final loops" in o.subject and o.name == "computed" for o in proof.obligations)


@pytest.mark.parametrize("seed", [666, 1116, 1532])
def test_sums_and_factors_in_an_order_of_their_own(seed: int) -> None:
    """666: a fold reads sums where the contraction left them; 1116: an index is told by its digits; 1532: copies of copies."""
    module, _ = random_program(seed)
    proof = prove(tiling.plan(module, machine=MACHINE))
    assert proof.holds, told(proof)


@pytest.mark.parametrize("seed", [429])
def test_random_programs_that_were_wrong(seed: int) -> None:
    """429: a reverse and a select over one product were merged while the select's result lay in the product's place."""
    module, _ = random_program(seed)
    proof = prove(tiling.plan(module, machine=MACHINE))
    assert proof.holds, told(proof)


def test_elements_are_drawn_alike_wherever_a_program_lies_in_memory() -> None:
    """They were drawn by the values' addresses: what a proof of unlike expressions saw differed from run to run."""
    text = "func.func @main(%x: tensor<4xf32>, %y: tensor<4xi8>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
    given = [hlo.parse(text).entry.arguments for _ in range(2)]
    drawn = []
    for arguments in given:
        places: dict[hlo.Value, int] = {}
        trials = [Trial({}, {}, seed, lambda load, trial: 0.0, places) for seed in range(3)]
        drawn.append([t.drawn(v, (3,)) for t in trials for v in arguments])
    assert drawn[0] == drawn[1] and len(set(drawn[0])) == 6
