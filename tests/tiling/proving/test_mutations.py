"""Schedules with one field changed: what computes something else is refuted, and what is right is not."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import islice
from typing import Any, get_args, get_type_hints

import pytest

import hlo
import tiling
from tests.mutations.judge import Judge
from tests.mutations.more_programs import NEAREST
from tests.mutations.mutants import UNCHANGED, mutants
from tests.mutations.programs import parents
from tests.mutations.table import Outcome, outcomes, table
from tiling import prove
from tiling.loops.ir import Contract, Loop, LoopKind, Measure, Nest, Ordering, Scatter, Schedule, Sequential

QUICK = ("softmax", "causal attention", "matmul", "convolution", "cumulative sum", "scatter", "sort", "turned", "masked sum")


def accepted(found: Sequence[Outcome]) -> list[str]:
    return [f"{o.parent}: {o.mutant}: {o.fault}" for o in found if o.verdict == "accepted"]


@pytest.mark.parametrize("name", sorted(parents()))
def test_parents_are_right(name: str) -> None:
    proof = prove(parents()[name])
    assert proof.holds, proof


def test_a_slice_of_the_mutants() -> None:
    found = list(outcomes(QUICK, most=1, seed=1, share=0.12))
    assert {o.verdict for o in found} >= {"refuted", "equal"}, table(found)
    assert not accepted(found)


@pytest.mark.slow
def test_all_fields_of_all_steps() -> None:
    found = list(outcomes(most=2))
    print(table(found))
    assert not accepted(found)


@pytest.mark.parametrize(
    ("step", "field", "least"),
    [("Apply", "arguments", 5), ("IndexNode", "expression", 2)],
    ids=["places", "numbers of iterations"],
)
def test_what_is_computed_by_a_floor(step: str, field: str, least: int) -> None:
    """Of an iota divided by three. Trials took a floor for any number below 1, so that all places were 0, and said nothing;
    a shift of the iota by one shows at every third iteration alone, and none of these had been tried."""
    plan = tiling.plan(hlo.parse(NEAREST), machine=tiling.Machine(cores=1))
    (fusion,) = plan.fusions
    judge = Judge(fusion.schedule)
    found = [m for m in mutants(fusion.schedule) if m.step == step and m.field == field]
    wrong = [m for m in found if judge.why_other(m.schedule) is not None]
    assert len(wrong) >= least
    for m in wrong:
        assert prove(m.schedule).refuted, m


def with_step(schedule: Schedule, kind: type, change: Any, which: int = 0) -> Schedule:
    """The schedule with one of its steps of a kind changed; dropped where the change gives None, several where it gives them."""
    count = 0

    def steps(old: Sequence[Any]) -> tuple[Any, ...]:
        nonlocal count
        made: list[Any] = []
        for s in old:
            if isinstance(s, kind):
                count += 1
                new = change(s) if count == which + 1 else s
                made += new if isinstance(new, tuple) else [] if new is None else [new]
            elif isinstance(s, Sequential):
                made.append(replace(s, steps=steps(s.steps)))
            else:
                made.append(s)
        return tuple(made)

    phases = tuple(replace(p, steps=steps(p.steps)) for p in schedule.phases)
    assert count > which, f"no {kind.__name__}"
    return replace(schedule, phases=phases)


def is_refuted(name: str, wrong: Schedule) -> None:
    assert Judge(parents()[name]).why_other(wrong) is not None, "the change changes nothing"
    assert prove(wrong).refuted


@pytest.mark.parametrize("name", ["causal attention", "window attention", "capped attention", "online attention"])
def test_a_mask_shifted_by_one(name: str) -> None:
    """By one query more or less than the program's mask, in what is computed and in what is left out."""
    judge = Judge(parents()[name])
    fields = ("expression", "lower", "upper")
    found = [m for m in mutants(parents()[name]) if m.step == "Condition" and m.field in fields and "1" in m.change]
    wrong = (m for m in found if judge.why_other(m.schedule) is not None)
    first = list(islice(wrong, 3))
    assert len(first) == 3
    for m in first:
        assert prove(m.schedule).refuted, m


def test_a_contraction_that_adds_to_what_is_there() -> None:
    is_refuted("matmul", with_step(parents()["matmul"], Contract, lambda c: replace(c, accumulate=True)))


def test_a_block_that_forgets_the_ones_before() -> None:
    schedule = parents()["online attention"]
    count = sum(isinstance(s, Contract) for p in schedule.phases for s in p.all_steps)
    is_refuted("online attention", with_step(schedule, Contract, lambda c: replace(c, accumulate=False), count - 1))


@pytest.mark.parametrize("name", ["softmax", "cumulative sum", "siblings"])
def test_folds_that_go_on_and_ought_to_start(name: str) -> None:
    def carried(n: Nest) -> Nest:
        return replace(n, folds=tuple(replace(f, carried=not f.carried) for f in n.folds))

    which = next(k for k, n in enumerate(s for p in parents()[name].phases for s in p.steps if isinstance(s, Nest)) if n.folds)
    is_refuted(name, with_step(parents()[name], Nest, carried, which))


def test_a_flag_that_nobody_measures() -> None:
    schedule = parents()["causal attention"]
    phases = tuple(p for p in schedule.phases if not any(isinstance(s, Measure) for s in p.steps))
    assert len(phases) < len(schedule.phases)
    is_refuted("causal attention", replace(schedule, phases=phases))


LET_PASS = [
    ("masked sum", "Loop", "upper", "negated", "steps[0].loops[1]", "of some rows nothing is folded"),
    ("online attention", "Loop", "upper", "negated", "steps[2].loop.upper", "no block has an iteration"),
    ("online attention", "Store", "node", "its operand", "phases[2].steps[4]", "what is summed is not divided"),
    ("convolution with holes", "Contract", "levels", "* 2", "steps[1].levels[0][0]", "products are summed twice"),
    ("siblings", "FoldStep", "op", "a body the other end", "phases[1]", "parts of a sum are subtracted"),
    ("siblings", "Phase", "steps", "last dropped", "phases[0]", "parts are never folded"),
    ("narrow sums", "Load", "buffer", "another buffer", "steps[1]", "sums are taken from where others lie"),
    ("narrow sums", "Store", "value", "another value", "steps[1]", "a result takes an argument's place"),
    ("turned", "Buffer", "element", "-> bf16", "x_turned", "a tile is rounded"),
    ("softmax in place", "Buffer", "element", "-> bf16", "m_tile", "a maximum is rounded"),
    ("random 0", "IndexNode", "expression", "-> 0", "", "a number that differs at every other place of a long row"),
    ("tested, final", "Segment", "stores", "last dropped", "", "a part of a loop stores less"),
    ("tested, final", "Segment", "upper", "- 1", "", "a part of a loop leaves its last iteration out"),
    ("gathered", "Runtime", "lower", "- 1", "", "a place is clamped to what is not there"),
    ("tables, final", "Load", "buffer", "another buffer", "steps[1]", "a factor is taken from its own operand"),
    ("wide sums, final", "Load", "index", "-> 0", "steps[1].stores[0]", "one sum is every result"),
    ("folds in lanes, final", "Load", "index", "-> 0", "steps[1].folds[0].nodes[0]", "values of one lane, places of all"),
    ("folds in lanes, final", "Load", "index", "another variable", "steps[1].folds[0].nodes[1]", "places of other lanes"),
]
"""Mutants that were accepted once, or not decided: (program, step, field, change, where, what is wrong)."""


@pytest.mark.parametrize(("name", "step", "field", "change", "at", "fault"), LET_PASS, ids=[x[-1] for x in LET_PASS])
def test_what_was_let_pass(name: str, step: str, field: str, change: str, at: str, fault: str) -> None:
    judge = Judge(parents()[name])
    found = (m for m in mutants(parents()[name]) if m.key == (step, field, change) and at in m.path)
    wrong = next((m for m in found if judge.why_other(m.schedule) is not None), None)
    assert wrong is not None, fault
    assert prove(wrong.schedule).refuted, wrong


def test_initial_values_that_are_swapped() -> None:
    """One of them an infinity for integers: the prover ended in an OverflowError."""
    schedule = parents()["folds in lanes, final"]

    def swapped(n: Nest) -> Nest:
        return replace(n, folds=tuple(replace(f, inits=f.inits[::-1]) for f in n.folds))

    found = [m for m in range(len(schedule.phases[0].steps)) if getattr(schedule.phases[0].steps[m], "folds", ())]
    assert len(found) > 1
    for k in range(len(found)):
        assert prove(with_step(schedule, Nest, swapped, k)).refuted


def test_a_limit_that_is_too_wide() -> None:
    schedule = parents()["causal attention"]
    main = schedule.phases[-1]
    (flag,) = main.flags
    wide = replace(flag, limits=tuple((b, 3e38) for b, _ in flag.limits))
    assert prove(replace(schedule, phases=(*schedule.phases[:-1], replace(main, flags=(wide,))))).refuted


@pytest.mark.parametrize(("field", "change"), [("limits", "first dropped"), ("limits", "* 1024"), ("conditions", "last dropped")])
def test_zeros_in_the_holes_of_a_convolution(field: str, change: str) -> None:
    """They are multiplied, too: only a flag that says that all weights are finite allows to leave them out."""
    parent = parents()["convolution with holes"]
    step = {"limits": "Flag", "conditions": "Choose"}[field]
    (m,) = [m for m in mutants(parent) if m.key == (step, field, change)]
    is_refuted("convolution with holes", m.schedule)


@pytest.mark.parametrize("change", [lambda s: None, lambda s: (s, s)], ids=["dropped", "doubled"])
@pytest.mark.parametrize("kind", [Nest, Scatter])
def test_a_scatter_without_its_fill_or_its_updates(kind: type, change: Any) -> None:
    wrong = with_step(parents()["scatter"], kind, change)
    assert prove(wrong).refuted


def test_a_scatter_cut_short() -> None:
    def shorter(s: Scatter) -> Scatter:
        x = s.loops[0]
        return replace(s, loops=(replace(x, upper=x.upper - 1), *s.loops[1:]))

    is_refuted("scatter", with_step(parents()["scatter"], Scatter, shorter))


def test_an_ordering_of_one_element_fewer() -> None:
    is_refuted("sort", with_step(parents()["sort"], Ordering, lambda o: replace(o, count=o.count - 1)))


@pytest.mark.parametrize("kind", [LoopKind.SCAN, LoopKind.PARALLEL])
def test_a_reduction_in_another_order(kind: LoopKind) -> None:
    def other(n: Nest) -> Nest:
        return replace(n, loops=tuple(_of(x, kind) if x.kind is LoopKind.REDUCTION else x for x in n.loops))

    assert prove(with_step(parents()["softmax"], Nest, other)).refuted


def _of(x: Loop, kind: LoopKind) -> Loop:
    return replace(x, kind=kind)


def test_a_kernel_along_the_depth_of_panels() -> None:
    is_refuted("matmul", with_step(parents()["matmul"], Contract, lambda c: replace(c, kernel=replace(c.kernel, along=True))))


def kinds(root: type) -> list[type]:
    """The dataclasses that a schedule is made of: those that the annotations of its fields lead to."""
    found: dict[type, None] = {}
    todo: list[Any] = [root]
    while todo:
        t = todo.pop()
        todo += get_args(t)
        if isinstance(t, type) and is_dataclass(t) and t.__module__.startswith(("tiling.loops", "hlo.access")) and t not in found:
            found[t] = None
            todo += get_type_hints(t, vars(importlib.import_module(t.__module__))).values()
    return list(found)


def test_every_field_of_every_kind_of_step_is_changed() -> None:
    """Or stands in the table of those that are not, with its reason; a field that is added is changed as well."""
    reached: set[tuple[str, str]] = set()
    for name, parent in parents().items():
        if "attention" not in name or name in ("window attention", "online attention, final"):  # the others are large, and alike
            for _ in mutants(parent, reached):
                pass
    every = {(t.__name__, f.name) for t in kinds(Schedule) for f in fields(t)}
    assert {("Matrix", "block"), ("Runtime", "node"), ("Segment", "lower"), ("Condition", "upper")} <= every
    assert every - reached == set(UNCHANGED)
    assert all(UNCHANGED.values())
