"""Products bounded by numbers read when the program runs: the evaluator's numbers, its NaNs and infinities, and proofs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.c.source import c_source
from codegen.source.emit import PhaseSource, emit_phase
from hlo.types import element_type
from indexing.expr import Const
from tests.mutations.programs import in_form
from tests.tiling.files.test_loops_text import check
from tests.tiling.lower.ragged_programs import KINDS, gated, gathered, operands, ragged, two_products
from tests.tiling.proving.test_mutations import with_step
from tiling import prove
from tiling.files.plan_file import plan_from_text, plan_text
from tiling.loops.ir import Nest, Schedule, Scope, Sequential
from tiling.loops.limits import has_limits, in_full
from tiling.passing import without
from tiling.pipeline import finished
from tiling.program.flatten import flatten

MACHINE = tiling.Machine(cores=2, vector_bytes=32, vector_registers=16)
ROWS, DEPTH, COLUMNS, GROUPS = 96, 40, 33, 5

SIZES = {
    "uneven": [10, 50, 3, 20, 13], "none": [0, 0, 0, 0, 0], "one has all": [0, 0, 96, 0, 0], "the last has all": [0, 0, 0, 0, 96],
    "some rows in none": [5, 0, 20, 1, 10], "too many": [90, 90, 90, 90, 90], "below zero": [106, -5, -5, 30, -50],
    "overflowing": [2**31 - 1, 2**31 - 1, 5, -7, 9],
}  # fmt: skip


def planned(kind: str, element: str = "f32") -> tuple[hlo.Module, tiling.Plan]:
    module = hlo.parse(ragged(kind, ROWS, DEPTH, COLUMNS, GROUPS, element))
    return module, tiling.plan(module, machine=MACHINE, supports=codegen.supports)


def arrays(kind: str, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(np.float32) for s in operands(kind, ROWS, DEPTH, COLUMNS, GROUPS)]


def agree(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    assert np.array_equal(np.isfinite(found), np.isfinite(expected))
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    ok = np.isfinite(expected)
    np.testing.assert_allclose(found[ok], expected[ok], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_evaluators_numbers(kind: str) -> None:
    module, plan = planned(kind)
    assert plan.fusions[-1].schedule.form == "limited"
    exe = codegen.compile(plan)
    for name, sizes in SIZES.items():
        given = [*arrays(kind), np.array(sizes, np.int64).astype(np.int32)]
        (found,), (expected,) = exe(*given), interp.evaluate(module, *given)
        agree(found, expected)
        if name == "none":
            assert not found.any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38], ids=str)
def test_what_is_left_out_may_be_no_number(kind: str, value: float) -> None:
    """Zero times an infinity is no number: where weights are not finite, in all rows, also in those of other groups."""
    module, plan = planned(kind)
    exe = codegen.compile(plan)
    for which in range(2):
        given = arrays(kind)
        given[which].reshape(-1)[given[which].size // 3] = value
        given.append(np.array(SIZES["some rows in none"], np.int32))
        (found,), (expected,) = exe(*given), interp.evaluate(module, *given)
        agree(found, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("element", ["bf16", "f16", "f64"])
def test_other_types(kind: str, element: str) -> None:
    """Sums of 16 bits are sums of f32 that grow from group to group, and are rounded once."""
    module, plan = planned(kind, element)
    assert any(has_limits(f.schedule) for f in plan.fusions)
    dtype = element_type(element).dtype
    given = [*(x.astype(dtype) for x in arrays(kind)), np.array(SIZES["uneven"], np.int32)]
    (found,), (expected,) = codegen.compile(plan)(*given), interp.evaluate(module, *given)
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=2e-2, atol=2e-2)


def test_two_products_of_one_choice_have_one_each() -> None:
    """Stored for both, the choice would be as large as all rows for each group, and no product would be bounded."""
    module = hlo.parse(gated(ROWS, DEPTH, COLUMNS, GROUPS))
    plan = tiling.plan(module, machine=MACHINE, supports=codegen.supports)
    groups = [s for f in plan.fusions for p in f.schedule.phases for s in p.steps if isinstance(s, Sequential)]
    assert len(groups) == 2 and all(g.limits for g in groups)
    rng = np.random.default_rng(4)
    weights = (GROUPS, DEPTH, COLUMNS)
    v, x, w = (rng.standard_normal(s).astype(np.float32) for s in (weights, (ROWS, DEPTH), weights))
    for sizes in SIZES.values():
        given = [v, x, w, np.array(sizes, np.int64).astype(np.int32)]
        agree(codegen.compile(plan)(*given)[0], interp.evaluate(module, *given)[0])


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_a_choice_that_something_reads_after_its_product_is_made_twice(element: str) -> None:
    xs, sums = f"tensor<{GROUPS}x{ROWS}x{DEPTH}x{element}>", f"tensor<{ROWS}x{DEPTH}x{element}>"
    text = ragged("product", ROWS, DEPTH, COLUMNS, GROUPS, element)
    y = f"tensor<{ROWS}x{COLUMNS}x{element}>"
    text = text.replace(f"-> {y} {{", f"-> ({y}, {sums}) {{", 1).replace(
        f"return %0 : {y}",
        f"""%n = stablehlo.constant dense<0.0> : tensor<{element}>
  %s = stablehlo.reduce(%xm init: %n) applies stablehlo.add across dimensions = [0] : ({xs}, tensor<{element}>) -> {sums}
  return %0, %s : {y}, {sums}""",
    )
    choices = [op for op in flatten(hlo.parse(text), supports=codegen.supports).ops if op.name == "stablehlo.select"]
    assert len(choices) == 2


def test_gathered_rows_are_stored_and_multiplied_in_one_kernel_that_is_proved() -> None:
    """Which rows are gathered is known at run time only, and no mask leaves any of them out."""
    module = hlo.parse(gathered(ROWS, DEPTH, COLUMNS, GROUPS))
    plan = tiling.plan(module, machine=MACHINE, supports=codegen.supports)
    (fusion,) = (f for f in plan.fusions if has_limits(f.schedule))
    assert len(fusion.schedule.buffers_in(Scope.RESULT)) == 2
    assert prove(fusion).holds
    rng = np.random.default_rng(4)
    x, at = rng.standard_normal((ROWS, DEPTH)).astype(np.float32), rng.integers(0, ROWS, (ROWS, 1)).astype(np.int32)
    w = rng.standard_normal((GROUPS, DEPTH, COLUMNS)).astype(np.float32)
    given = [x, at, w, np.array(SIZES["uneven"], np.int32)]
    for found, expected in zip(codegen.compile(plan)(*given), interp.evaluate(module, *given), strict=True):
        agree(found, expected)


def test_random_groups() -> None:
    module, plan = planned("product")
    exe = codegen.compile(plan)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sizes = rng.multinomial(rng.integers(0, ROWS + 1), rng.dirichlet([0.4] * GROUPS)).astype(np.int32)
        given = [*arrays("product", seed), sizes]
        agree(exe(*given)[0], interp.evaluate(module, *given)[0])


@pytest.mark.parametrize(("kind", "flags"), [("product", 1), ("by rows", 1), ("by weights", 0)])
def test_the_plan_shows_the_bounds(kind: str, flags: int) -> None:
    """Inputs are looked at only where zeros meet what may be infinite: in the gradient by the weights both factors are zero."""
    _, plan = planned(kind)
    schedule = plan.fusions[-1].schedule
    text = str(schedule)
    assert ("for g in [0, 4]" if flags else "for g in [t0") in text and ", one after the other" in text
    assert ("end1 = ends_1_tile[g] less t0" if kind == "product" else "end1 = ends_1_tile[g], kept in [first0, ") in text
    assert ("k in [first0, end1 - 1]" if kind == "by weights" else "rows [first0, end1 - 1]") in text
    assert sum(len(p.flags) for p in schedule.phases) == flags
    assert ("while tame is 0" in text) is bool(flags)
    assert "loops bounded by numbers read" in plan.explain()


@pytest.mark.parametrize("kind", KINDS)
def test_proved(kind: str) -> None:
    _, plan = planned(kind)
    proof = prove(plan)
    assert proof.holds, proof
    names = {o.name for o in proof.obligations}
    assert {"left out", "bounds"} <= names


@pytest.mark.parametrize("kind", KINDS)
def test_plans_and_loops_go_to_a_file_and_back(kind: str) -> None:
    _, plan = planned(kind)
    assert check(plan) == len(plan.fusions)
    read = plan_from_text(plan_text(plan))
    assert str(read.fusions[-1].schedule) == str(plan.fusions[-1].schedule)


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_in_c(kind: str) -> None:
    schedule = finished(planned(kind)[1].fusions[-1].schedule)
    for phase in schedule.phases:
        made = emit_phase(schedule, phase, "kernel")
        assert isinstance(made, PhaseSource)
        text = c_source(made.kernel)
        assert isinstance(text, str), text


def test_two_products_with_what_lies_between_are_one_kernel() -> None:
    module = hlo.parse(two_products(512, 256, 128, GROUPS))
    plan = tiling.plan(module, machine=replace(MACHINE, cores=1), supports=codegen.supports)
    (schedule,) = (f.schedule for f in plan.fusions)
    assert str(schedule).count("one after the other") == 2
    proof = prove(plan)
    assert proof.holds, proof
    rng = np.random.default_rng(3)
    v, x, w = ((rng.standard_normal(s) * 0.1).astype(np.float32) for s in ((GROUPS, 128, 256), (512, 256), (GROUPS, 256, 128)))
    for sizes in ([100, 0, 200, 12, 200], [0, 500, 0, 0, 0]):
        given = [v, x, w, np.array(sizes, np.int32)]
        agree(codegen.compile(plan)(*given)[0], interp.evaluate(module, *given)[0])


def test_tiles_of_rows_count_limits_from_their_own_first_row() -> None:
    (schedule,) = in_form(ragged("product", 13, 6, 16, 3), (4, 16), "limited")
    assert "less t0 * 4, kept in [0, " in str(schedule)
    assert prove(schedule).holds


TILES = {"product": (12, 16), "by rows": (12, 16), "by weights": (3, 16, 16)}


def limits_changed(schedule: Schedule, number: int, **changes: Any) -> Schedule:
    def changed(s: Sequential) -> Sequential:
        new = replace(s.limits[number], **changes)
        return replace(s, limits=(*s.limits[:number], new, *s.limits[number + 1 :]))

    return with_step(schedule, Sequential, changed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bound_moved_by_one_is_refuted(kind: str) -> None:
    (schedule,) = in_form(ragged(kind, 12, 16, 16, 3), TILES[kind], "limited")
    assert prove(schedule).holds
    for wrong in (limits_changed(schedule, 0, origin=Const(-1)), limits_changed(schedule, 1, origin=Const(1))):
        assert {o.name for o in prove(wrong).refuted} == {"left out"}
    # Fewer zeros than may be left out are right.
    assert prove(limits_changed(schedule, 0, origin=Const(1))).holds


def test_zeros_that_meet_infinities_are_not_left_out_without_a_flag() -> None:
    (schedule,) = in_form(ragged("product", 12, 6, 16, 3), (12, 16), "limited")
    wrong = limits_changed(limits_changed(schedule, 0, flag=None), 1, flag=None)
    assert {o.name for o in prove(wrong).refuted} == {"left out"}


def test_a_row_that_is_read_was_stored_in_its_block() -> None:
    """Rows of a factor's tile that are stored for one group less than they are read for."""
    (schedule,) = in_form(ragged("product", 12, 6, 16, 3), (12, 16), "limited")

    def shorter(n: Nest) -> Nest:
        return replace(n, loops=tuple(replace(x, upper=x.upper - 1) if len(x.upper.variables) else x for x in n.loops))

    which = next(k for k, s in enumerate(nests(schedule)) if any(x.upper.variables for x in s.loops))
    assert any(o.name == "produced" for o in prove(with_step(schedule, Nest, shorter, which)).refuted)


def nests(schedule: Schedule) -> list[Nest]:
    return [s for p in schedule.phases for s in p.all_steps if isinstance(s, Nest)]


def test_in_full_is_what_runs_while_the_flag_is_down() -> None:
    (schedule,) = in_form(ragged("product", 12, 6, 16, 3), (4, 16), "limited")
    whole = in_full(schedule)
    assert has_limits(schedule) and not has_limits(whole) and in_full(whole) is whole
    assert prove(whole).holds


def test_without_the_pass_all_rows_meet_all_groups() -> None:
    module = hlo.parse(ragged("product", ROWS, DEPTH, COLUMNS, GROUPS))
    with without("bound_by_numbers"):
        plan = tiling.plan(module, machine=MACHINE, supports=codegen.supports)
    assert not any(has_limits(f.schedule) for f in plan.fusions)


def test_work_grows_with_rows_and_not_with_groups() -> None:
    """By the cost model's figures: 16 groups take hardly longer than 4, where each row is multiplied once."""

    def seconds(groups: int) -> float:
        plan = tiling.plan(hlo.parse(ragged("product", 1024, 256, 256, groups)), machine=MACHINE, supports=codegen.supports)
        return sum(f.estimate.arithmetic_seconds for f in plan.fusions)

    assert seconds(16) < 1.5 * seconds(4)
