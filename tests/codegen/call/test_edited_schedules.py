"""Schedules that a person changed: what computes something else does not run, and what runs computes what it did."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
import tests.mutations.programs as programs
import tiling
from codegen.call.memory_safety import MemorySafetyWarning, WrongScheduleWarning
from codegen.supports import supports
from indexing.expr import Const
from tests.mutations.judge import Judge, same
from tests.mutations.mutants import mutants
from tests.mutations.table import chosen
from tiling import Contract, Nest, Plan
from tiling.loops.spec import faults
from tiling.passes.each_nest import each_nest
from tiling.pipeline import finished

MACHINE = tiling.Machine(vector_bytes=32, vector_registers=16, l2_bytes=512 << 10, cores=1)


def reduction(function: str, rows: int, columns: int, dimension: int, start: str = "0.0") -> str:
    kept = rows if dimension else columns
    return f"""func.func @main(%x: tensor<{rows}x{columns}xf32>) -> tensor<{kept}xf32> {{
  %z = stablehlo.constant dense<{start}> : tensor<f32>
  %1 = stablehlo.reduce(%x init: %z) applies stablehlo.{function} across dimensions = [{dimension}]
    : (tensor<{rows}x{columns}xf32>, tensor<f32>) -> tensor<{kept}xf32>
  return %1 : tensor<{kept}xf32> }}"""


ROWS, COLUMNS = reduction("add", 64, 48, 1), reduction("add", 60, 48, 0)
LARGEST = reduction("maximum", 8, 600, 1, "0xFF800000")
TANH = """func.func @main(%x: tensor<64x48xf32>) -> tensor<64x48xf32> {
  %0 = stablehlo.tanh %x : tensor<64x48xf32>
  return %0 : tensor<64x48xf32> }"""


def planned(text: str) -> Plan:
    return tiling.plan(hlo.parse(text), machine=MACHINE, supports=supports)


def edited(made: Plan, change: Callable[[Nest], Nest]) -> Plan:
    (f,) = made.fusions
    return tiling.with_schedule(made, f.name, each_nest(f.schedule, lambda n, _: [change(n)]))


def together(count: int, k: int = 0) -> Callable[[Nest], Nest]:
    """So many iterations of loop number k are written as one."""
    return lambda n: replace(n, loops=(*n.loops[:k], replace(n.loops[k], together=count), *n.loops[k + 1 :]))


def across(count: int) -> Callable[[Nest], Nest]:
    """A fold across rows, so many of which are written as one."""

    def change(n: Nest) -> Nest:
        along, rows = n.loops
        return replace(n, loops=(replace(rows, together=count), along), order_is_fixed=True)

    return change


def folds(**fields: Any) -> Callable[[Nest], Nest]:
    def change(n: Nest) -> Nest:
        return replace(n, folds=tuple(replace(f, **fields) for f in n.folds))

    return change


def is_right(made: Plan) -> None:
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.standard_normal(v.shape), v.tensor.dtype) for v in made.program.arguments]
    executable = codegen.compile(made)
    assert not executable.fallbacks
    for found, expected in zip(executable(*arrays), interp.evaluate(made.module, *arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


looking = folds(looks_twice=True)

REFUSED: dict[str, tuple[str, Callable[[Nest], Nest]]] = {
    "no whole groups of rows apart": (ROWS, together(5)),
    "the innermost loop": (ROWS, together(4, 1)),
    "elements": (TANH, together(4)),
    "no whole groups": (COLUMNS, across(7)),
    "groups of none": (COLUMNS, across(0)),
    "two products of one factor": (ROWS, folds(products=2)),
    "no products": (ROWS, folds(products=0)),
    "a sum that looks twice": (ROWS, folds(looks_twice=True)),
    "a maximum across rows that looks twice": (reduction("maximum", 60, 48, 0, "0xFF800000"), lambda n: looking(across(1)(n))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mark_that_no_kernel_has_is_refused_by_name(name: str) -> None:
    text, change = REFUSED[name]
    made = planned(text)
    bad = edited(made, change)
    (f,) = bad.fusions
    assert any(x.startswith(("marks hold", "products are whole")) for x in faults(f.schedule))
    assert {o.name for o in tiling.prove(bad).refuted} == {"formed"}
    with pytest.warns(WrongScheduleWarning, match="replaced by the planner's own loops: formed"):
        is_right(bad)


@pytest.mark.parametrize("together", [0, 2])
def test_marks_stand_on_loops_of_nests_alone(together: int) -> None:
    """A loop around a product was marked, and nothing asked: its blocks would have been left out."""
    made = planned("""func.func @main(%a: tensor<6x32x48xf32>, %b: tensor<6x48x64xf32>) -> tensor<6x32x64xf32> {
      %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1]
        : (tensor<6x32x48xf32>, tensor<6x48x64xf32>) -> tensor<6x32x64xf32>
      return %0 : tensor<6x32x64xf32> }""")
    (f,) = made.fusions
    marked = 0

    def change(s: Any) -> Any:
        nonlocal marked
        if not isinstance(s, Contract) or not s.loops:
            return s
        marked += 1
        return replace(s, loops=(replace(s.loops[0], together=together), *s.loops[1:]))

    phases = tuple([replace(p, steps=tuple(map(change, p.steps))) for p in f.schedule.phases])
    bad = replace(f.schedule, phases=phases)
    assert marked and any(x.startswith("marks hold") for x in faults(bad))
    assert {o.name for o in tiling.prove(tiling.with_schedule(made, f.name, bad)).refuted} == {"formed"}


@pytest.mark.parametrize(("text", "change"), [
    (COLUMNS, across(2)), (COLUMNS, across(3)), (COLUMNS, across(5)), (ROWS, together(4)), (LARGEST, looking),
], ids=["two rows", "three rows", "five rows", "rows apart", "two looks"])  # fmt: skip
def test_a_mark_that_a_kernel_has_changes_no_result(text: str, change: Callable[[Nest], Nest]) -> None:
    """Passes leave it as it is: the kernel does what the mark says."""
    made = edited(planned(text), change)
    (f,) = made.fusions
    assert tiling.prove(made).holds
    (old,), (new,) = ([s for p in x.phases for s in p.steps if isinstance(s, Nest)] for x in (f.schedule, finished(f.schedule)))
    assert [x.together for x in new.loops] == [x.together for x in old.loops]
    assert [f.looks_twice for f in new.folds] == [f.looks_twice for f in old.folds]
    with warnings.catch_warnings():
        warnings.simplefilter("error", WrongScheduleWarning)
        is_right(made)


def test_a_row_without_its_last_element_does_not_run() -> None:
    def short(n: Nest) -> Nest:
        return replace(n, loops=(n.loops[0], replace(n.loops[1], upper=Const(46))))

    made = planned(ROWS)
    with pytest.warns(WrongScheduleWarning, match="complete: .*%x is needed but not read"):
        is_right(edited(made, short))
    (decision,) = [d for d in codegen_plan(edited(made, short)).decisions if "refuted" in d.reason]
    assert decision.consumer == "the planner's own loops"


def codegen_plan(made: Plan) -> Plan:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WrongScheduleWarning)
        return codegen.compile(made).plan


def test_panels_that_overlap_do_not_run() -> None:
    made = planned(programs.MATMUL)
    (f,) = made.fusions
    phases = tuple(
        replace(p, steps=tuple(replace(s, panel_stride=s.panel_stride // 2) if isinstance(s, Contract) else s for s in p.steps))
        for p in f.schedule.phases
    )
    wrong = tiling.with_schedule(made, f.name, replace(f.schedule, phases=phases))
    assert tiling.prove(wrong).refuted
    with pytest.warns((WrongScheduleWarning, MemorySafetyWarning), match="is refuted and replaced by"):
        is_right(wrong)


@pytest.mark.parametrize(
    "fields",
    [{"columns": 33}, {"asks_ahead": True}, {"column_block": 8}],
    ids=["part of a vector", "what is asked for ahead", "blocks of columns"],
)
def test_what_a_micro_kernel_does_not_do_is_refused_by_name(fields: dict[str, Any]) -> None:
    """Both ended in errors of the code's own: a ValueError of the micro-kernel's, a kernel that cannot be written."""
    made = planned(programs.BYTES)
    (f,) = made.fusions
    phases = tuple(
        replace(p, steps=tuple(replace(s, **fields) if isinstance(s, Contract) else s for s in p.steps))
        for p in f.schedule.phases
    )
    wrong = tiling.with_schedule(made, f.name, replace(f.schedule, phases=phases))
    assert {o.name for o in tiling.prove(wrong).refuted} == {"formed"}
    with pytest.warns(WrongScheduleWarning, match="formed"):
        assert kernel_faults_told(wrong) == []


def test_a_result_without_a_value_is_refused_by_name() -> None:
    (f,) = planned(ROWS).fusions
    (result,) = f.schedule.buffers_in(tiling.Scope.RESULT)
    buffers = tuple(replace(b, value=None) if b is result else b for b in f.schedule.buffers)
    assert any("it is the memory of a value, and names none" in x for x in faults(replace(f.schedule, buffers=buffers)))


def test_the_planners_own_loops_put_back_are_no_edit() -> None:
    made = planned(ROWS)
    (f,) = made.fusions
    there = edited(made, together(4))
    assert there.fusions[0].planned is f.schedule
    assert tiling.with_schedule(there, f.name, f.schedule).fusions[0].planned is None


# ---------------------------------------------------------------- mutants, with the real emitter as judge

SMALL = {
    "softmax": programs.SOFTMAX, "matmul": programs.MATMUL, "cumulative sum": programs.CUMSUM, "scatter": programs.SCATTER,
    "rows": ROWS, "columns": COLUMNS, "tanh": TANH, "bytes": programs.BYTES, "convolution": programs.CONVOLUTION,
}  # fmt: skip
DEFINED = ("together", "looks_twice", "products", "group", "extent", "kind", "ahead", "order_is_fixed", "descending")


def wrong_kernels(name: str, most: int, share: float, fields: tuple[str, ...] = ()) -> list[str]:
    """The mutants of a program's schedules that the interpreter calls equal and whose kernels compute something else."""
    rng, found = random.Random(name), []
    made = planned(SMALL[name])
    for f in made.fusions:
        judge = Judge(f.schedule)
        for m in chosen(list(mutants(f.schedule)), most, rng):
            if (fields and m.field not in fields) or rng.random() >= share or judge.why_other(m.schedule) is not None:
                continue
            changed = tiling.with_schedule(made, f.name, m.schedule)
            found += [f"{name}: {m}: {fault}" for fault in kernel_faults(changed)]
    return found


def kernel_faults(made: Plan) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # replaced kernels are right ones
        return kernel_faults_told(made)


def kernel_faults_told(made: Plan) -> list[str]:
    rng = np.random.default_rng(3)
    arrays = [
        np.asarray(rng.integers(0, 4, v.shape) if v.tensor.dtype.kind in "iu" else rng.standard_normal(v.shape), v.tensor.dtype)
        for v in made.program.arguments
    ]
    found = codegen.compile(made)(*arrays)
    expected = interp.evaluate(made.module, *arrays)
    return [f"result {k}" for k, (a, b) in enumerate(zip(found, expected, strict=True)) if not same(np.asarray(a), np.asarray(b))]


@pytest.mark.parametrize("name", ["rows", "columns", "tanh"])
def test_kernels_of_equal_mutants_compute_the_same(name: str) -> None:
    assert wrong_kernels(name, 1, 1.0, DEFINED) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_kernels_of_all_equal_mutants_compute_the_same(name: str) -> None:
    assert wrong_kernels(name, 1, 1.0) == []
