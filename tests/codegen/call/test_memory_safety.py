"""No kernel runs that is refuted: spoiled schedules are replaced before they are compiled, reported, and right all the same."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.call import memory_safety
from codegen.call.memory_safety import MemorySafetyWarning, memory_fault
from codegen.call.program.assembly import fusion_source
from codegen.supports import supports
from indexing.expr import Const
from tests.codegen.contract.test_transposed_convolutions import CASES, Transposed, arrays_for
from tiling import Buffer, Contract, Fusion, Loop, Machine, Nest, Plan, Schedule, Scope, with_schedule
from tiling.pipeline import finished
from tiling.planning.replacement import with_step
from tiling.proving.obligations import prove_memory
from tiling.proving.proof import Obligation, Verdict

MACHINE = Machine(vector_bytes=32, vector_registers=16, l2_bytes=512 << 10, cores=2)
EXAMPLES = Path(__file__).parents[3] / "examples"

ADD = """func.func @main(%x: tensor<64x48xf32>, %y: tensor<64x48xf32>) -> tensor<64x48xf32> {
  %0 = stablehlo.add %x, %y : tensor<64x48xf32>
  %1 = stablehlo.tanh %0 : tensor<64x48xf32>
  return %1 : tensor<64x48xf32>
}"""
TWO = """func.func @main(%x: tensor<96x40xf32>) -> (tensor<96xf32>, tensor<96x40xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<96x40xf32>, tensor<f32>) -> tensor<96xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<96xf32>) -> tensor<96x40xf32>
  %d = stablehlo.subtract %x, %b : tensor<96x40xf32>
  return %s, %d : tensor<96xf32>, tensor<96x40xf32>
}"""
LOOP = """func.func @main(%x: tensor<40x30xf32>, %n: tensor<i32>) -> tensor<40x30xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<40x30xf32>
    cond {
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %w = stablehlo.cosine %v : tensor<40x30xf32>
      stablehlo.return %j, %w : tensor<i32>, tensor<40x30xf32>
    }
  return %r#1 : tensor<40x30xf32>
}"""


def planned(text: str) -> Plan:
    return tiling.plan(hlo.parse(text), machine=MACHINE, supports=supports)


def inputs(made: Plan) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [np.asarray(rng.standard_normal(v.shape), np.float32) for v in made.program.arguments]


def spoiled_nest(schedule: Schedule, change: Callable[[Nest], Nest]) -> Schedule:
    """The schedule with one nest of its main phase changed: the last one that stores."""
    k, phase = next((k, p) for k, p in enumerate(schedule.phases) if p is schedule.main)
    at = max(j for j, s in enumerate(phase.steps) if isinstance(s, Nest) and s.stores)
    nest = phase.steps[at]
    assert isinstance(nest, Nest)
    steps = (*phase.steps[:at], change(nest), *phase.steps[at + 1 :])
    return replace(schedule, phases=(*schedule.phases[:k], replace(phase, steps=steps), *schedule.phases[k + 1 :]))


def one_more(loop: Loop) -> Loop:
    return replace(loop, upper=loop.upper + 1, extent=loop.extent + 1)


def too_long(s: Schedule) -> Schedule:
    return spoiled_nest(s, lambda n: replace(n, loops=(*n.loops[:-1], one_more(n.loops[-1]))))


def too_many_rows(s: Schedule) -> Schedule:
    return spoiled_nest(s, lambda n: replace(n, loops=(one_more(n.loops[0]), *n.loops[1:])))


def shifted(s: Schedule) -> Schedule:
    def change(n: Nest) -> Nest:
        return replace(n, stores=tuple(replace(x, index=(*x.index[:-1], x.index[-1] + 1)) for x in n.stores))

    return spoiled_nest(s, change)


def cut_short(s: Schedule) -> Schedule:
    def change(n: Nest) -> Nest:
        return replace(n, loops=(*n.loops[:-1], replace(n.loops[-1], upper=n.loops[-1].upper - 1)))

    return spoiled_nest(s, change)


def same_row(s: Schedule) -> Schedule:
    """Every task writes the first row."""
    return spoiled_nest(s, lambda n: replace(n, stores=tuple(replace(x, index=(Const(0), *x.index[1:])) for x in n.stores)))


def more_tasks(s: Schedule) -> Schedule:
    main = s.main
    assert main.tiles, "a schedule in tiles is wanted"
    tiles = ((main.tiles[0][0], main.tiles[0][1] + 1), *main.tiles[1:])
    return replace(s, phases=tuple(replace(p, tiles=tiles) if p is main else p for p in s.phases))


def small_memory(s: Schedule) -> Schedule:
    """The result's memory is one element short."""
    (old,) = (b for b in s.buffers_in(Scope.RESULT) if len(b.shape) == 2)
    return with_buffer(s, old, replace(old, size_elems=old.size_elems - 1))


def with_buffer(s: Schedule, old: Buffer, new: Buffer) -> Schedule:
    def change(n: Nest) -> Nest:
        return replace(n, stores=tuple(replace(x, buffer=new) if x.buffer is old else x for x in n.stores))

    made = spoiled_nest(s, change)
    return replace(made, buffers=tuple(new if b is old else b for b in s.buffers))


MUTATIONS = {f.__name__: f for f in (too_long, too_many_rows, shifted, cut_short, same_row, small_memory)}


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("text", [ADD, TWO], ids=["add", "two"])
def test_a_spoiled_schedule_is_replaced_and_reported(text: str, mutation: str) -> None:
    made = planned(text)
    fusion = made.fusions[-1]
    bad = with_schedule(made, fusion.name, MUTATIONS[mutation](fusion.schedule))
    with pytest.warns(MemorySafetyWarning, match=rf"{fusion.name} is refuted and replaced by"):
        executable = codegen.compile(bad)
    arrays = inputs(made)
    assert not executable.fallbacks  # another kernel does it
    for found, expected in zip(executable(*arrays), interp.evaluate(made.module, *arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    (decision,) = [d for d in executable.plan.decisions if d.producer == fusion.name and not d.fused and "refuted" in d.reason]
    assert decision.reason in executable.plan.explain()
    assert all(f.schedule is not bad.fusions[-1].schedule for f in executable.plan.fusions)


def test_a_task_too_many_is_refuted() -> None:
    made = planned(ADD)
    (pin,) = made.pins()
    made = tiling.plan(made.module, machine=MACHINE, supports=supports, pins=[replace(pin, tile_sizes=(16, 48))])
    bad = with_schedule(made, made.fusions[0].name, more_tasks(made.fusions[0].schedule))
    with pytest.warns(MemorySafetyWarning, match="leaves"):
        executable = codegen.compile(bad)
    arrays = inputs(made)
    np.testing.assert_allclose(executable(*arrays)[0], interp.evaluate(made.module, *arrays)[0], rtol=2e-5)


def test_a_spoiled_kernel_in_a_region_is_replaced() -> None:
    made = planned(LOOP)
    (control,) = made.controls
    body = control.regions[1].plan
    fusion = next(f for f in body.fusions if f.outputs[0].rank == 2)
    inside = with_schedule(body, fusion.name, too_long(fusion.schedule))
    regions = (control.regions[0], replace(control.regions[1], plan=inside))
    bad = replace(made, steps=tuple(replace(s, regions=regions) if s is control else s for s in made.steps))
    with pytest.warns(MemorySafetyWarning, match="in bounds"):
        executable = codegen.compile(bad)
    x, n = np.linspace(0, 1, 1200, dtype=np.float32).reshape(40, 30), np.int32(3)
    np.testing.assert_allclose(executable(x, n)[0], np.cos(np.cos(np.cos(x))), rtol=1e-5)


ROWS_IN_A_LOOP = """func.func @main(%x: tensor<40x30xf32>, %n: tensor<i32>) -> tensor<40x30xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<40x30xf32>
    cond {
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %s = stablehlo.reduce(%v init: %z) applies stablehlo.maximum across dimensions = [1]
        : (tensor<40x30xf32>, tensor<f32>) -> tensor<40xf32>
      %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<40xf32>) -> tensor<40x30xf32>
      %w = stablehlo.subtract %b, %v : tensor<40x30xf32>
      stablehlo.return %j, %w : tensor<i32>, tensor<40x30xf32>
    }
  return %r#1 : tensor<40x30xf32>
}"""


@pytest.mark.parametrize("form", ["apart", "evaluator"])
def test_kernels_of_a_region_are_taken_apart_or_evaluated(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's value is written over the old one: what takes the kernel's place may not write it too soon."""
    made = planned(ROWS_IN_A_LOOP)
    fusion = next(f for p in made.nested() for f in p.fusions if len(f.stages) > 1)
    bad = with_step(made, fusion, (replace(fusion, schedule=too_long(fusion.schedule)),))
    monkeypatch.setattr(memory_safety, "other_schedules", lambda *_: ())
    if form == "evaluator":  # and no kernel of a part is proved either
        subtracts = "stablehlo.subtract"
        real = memory_safety.memory_fault
        refuted = Obligation("in bounds", "all of it", Verdict.REFUTED, "for the sake of this test")
        monkeypatch.setattr(
            memory_safety, "memory_fault", lambda f, s: refuted if f.stages[-1].op.name == subtracts else real(f, s)
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        executable = codegen.compile(bad)
    told = [str(w.message) for w in caught if w.category is MemorySafetyWarning]
    assert "replaced by 2 kernels" in told[0]
    assert bool(executable.fallbacks) is (form == "evaluator") is (len(told) == 2)
    rng = np.random.default_rng(1)
    x = np.asarray(rng.standard_normal((40, 30)), np.float32)
    for n in (0, 1, 5):
        (found,), (expected,) = executable(x, np.int32(n)), interp.evaluate(made.module, x, np.int32(n))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_products_without_the_loop_around_them_are_refuted() -> None:
    """The fault that wrote past a transposed convolution's result: products of rows that a cut tile has not."""
    made = tiling.plan(hlo.parse(CASES["three"].text), machine=MACHINE, supports=supports)
    fusion = made.fusions[0]

    def unguarded(s: Any) -> Any:
        if not isinstance(s, Contract):
            return s
        return replace(s, loops=tuple(x for x in s.loops if x.extent > 1 or "once" in x.variable.name))

    main = fusion.schedule.main
    spoiled = replace(main, steps=tuple(map(unguarded, main.steps)))
    schedule = replace(fusion.schedule, phases=tuple(spoiled if p is main else p for p in fusion.schedule.phases))
    with pytest.warns(MemorySafetyWarning, match="position 0 of r leaves"):
        executable = codegen.compile(with_schedule(made, fusion.name, schedule))
    module, arrays = arrays_for(CASES["three"])
    (found,), (expected,) = executable(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.filterwarnings("ignore::codegen.call.memory_safety.MemorySafetyWarning")
def test_what_no_schedule_computes_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """When every other schedule is refuted as well the evaluator runs the ops, and says why."""
    made = planned(TWO)
    monkeypatch.setattr(memory_safety, "prove_memory", lambda s: prove_memory(too_long(s) if has_store(s) else s))
    monkeypatch.setattr(memory_safety, "_proved", set())
    monkeypatch.setenv("TILEWRIGHT_NO_CACHE", "1")
    with pytest.warns(MemorySafetyWarning, match="replaced by the evaluator"):
        executable = codegen.compile(made)
    assert any("its kernel is not proved: " in x and "refuted" in x for x in executable.fallbacks)
    arrays = inputs(made)
    for found, expected in zip(executable(*arrays), interp.evaluate(made.module, *arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def has_store(s: Schedule) -> bool:
    return any(isinstance(x, Nest) and x.stores for x in s.main.steps)


def test_what_is_undecided_does_not_run_and_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_safety, "prove_memory", lambda s: prove_memory(s, seconds=-1.0))
    monkeypatch.setattr(importlib.import_module("tiling.proving.obligations"), "writes_once", lambda *_: False)  # isl is asked
    monkeypatch.setattr(memory_safety, "_proved", set())
    monkeypatch.setenv("TILEWRIGHT_NO_CACHE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executable = codegen.compile(planned(CASES["three"].text))
    assert "undecided: no time is left" in executable.fallbacks[0]


def test_right_plans_warn_of_nothing_and_are_left_as_they_are() -> None:
    for path in sorted(EXAMPLES.glob("*.mlir"))[-3:]:
        made = tiling.plan(hlo.load(path), machine=MACHINE, supports=supports)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert codegen.compile(made).plan is made


def test_a_proof_is_remembered_in_the_process_and_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Alike kernels are proved once, whatever their values are called, and a second process asks nothing."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_NO_CACHE", raising=False)
    monkeypatch.setattr(memory_safety, "_proved", set())
    asked: list[Schedule] = []

    def counted(s: Schedule) -> Any:
        asked.append(s)
        return prove_memory(s)

    monkeypatch.setattr(memory_safety, "prove_memory", counted)
    for text in (ADD, ADD, ADD.replace("%x", "%other").replace("%1", "%last")):
        for fusion in planned(text).fusions:
            assert memory_fault(fusion, fusion_source(fusion)) is None
    assert len(asked) == 1
    monkeypatch.setattr(memory_safety, "_proved", set())  # as in another process
    (fusion,) = planned(ADD).fusions
    assert memory_fault(fusion, fusion_source(fusion)) is None
    assert len(asked) == 1


def test_what_is_refuted_is_never_remembered_as_proved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(memory_safety, "_proved", set())
    (fusion,) = planned(ADD).fusions
    bad = replace(fusion, schedule=too_long(fusion.schedule))
    for _ in range(2):
        assert memory_fault(bad, fusion_source(bad)) is not None
    assert memory_fault(fusion, fusion_source(fusion)) is None
    smaller = replace(fusion, schedule=small_memory(fusion.schedule))  # the same source, other memory
    assert memory_fault(smaller, fusion_source(smaller)) is not None


def test_the_final_loops_are_proved() -> None:
    """Cut windows, joined loops and turns are what is asked about, not the schedule before them."""
    text = """func.func @main(%x: tensor<2x14x14x32xf32>) -> tensor<2x14x14x32xf32> {
      %i = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %0 = "stablehlo.reduce_window"(%x, %i) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %m = stablehlo.maximum %a, %b : tensor<f32>
          stablehlo.return %m : tensor<f32>
      }) {window_dimensions = array<i64: 1, 5, 5, 1>, padding = dense<[[0, 0], [2, 2], [2, 2], [0, 0]]> : tensor<4x2xi64>}
        : (tensor<2x14x14x32xf32>, tensor<f32>) -> tensor<2x14x14x32xf32>
      return %0 : tensor<2x14x14x32xf32> }"""
    (fusion,) = planned(text).fusions
    written = finished(fusion.schedule)
    before, after = ([s for s in x.main.steps if isinstance(s, Nest)] for x in (fusion.schedule, written))
    assert len(after) > len(before) == 1
    assert prove_memory(written).holds
    longest = max(range(len(after)), key=lambda k: len(after[k].loops))
    spoiled = replace(after[longest], loops=tuple(one_more(x) if k == 1 else x for k, x in enumerate(after[longest].loops)))
    main = replace(written.main, steps=tuple(spoiled if s is after[longest] else s for s in written.main.steps))
    assert prove_memory(replace(written, phases=(*written.phases[:-1], main))).refuted


def test_quads_are_read_inside_of_their_panels() -> None:
    case = Transposed(types=("i8", "i8", "i32"))
    made = tiling.plan(hlo.parse(case.text), machine=Machine(vector_bytes=64, vector_registers=32), supports=supports)
    (fusion,) = made.fusions
    quads = [s for s in fusion.schedule.main.all_steps if isinstance(s, Contract) and s.kernel.together == 4]
    assert quads and memory_fault(fusion, fusion_source(fusion)) is None
    wide = [replace(s, panel_stride=s.panel_stride, k=s.k + 4, k_block=s.k + 4) for s in quads]
    main = fusion.schedule.main
    steps = tuple(wide[quads.index(s)] if s in quads else s for s in main.steps)
    phases = tuple(replace(main, steps=steps) if p is main else p for p in fusion.schedule.phases)
    assert prove_memory(replace(fusion.schedule, phases=phases)).refuted


def test_each_kernel_of_a_plan_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Fusion] = []

    def fault(f: Fusion, sources: Any) -> Any:
        asked.append(f)
        return memory_fault(f, sources)

    monkeypatch.setattr(memory_safety, "memory_fault", fault)
    made = planned(LOOP)
    codegen.compile(made)
    assert {*asked} == {f for p in made.nested() for f in p.fusions}
