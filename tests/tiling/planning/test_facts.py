"""Facts about values that other kernels make: what masks left in them bounds the loops of kernels that read them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.module import Value
from indexing.expr import Const
from tests.pairs import fast_cover
from tests.tiling.lower.attention_programs import inputs, with_gradients
from tiling.loops.ir import Contract, Measure, Nest, Schedule
from tiling.lower.fusion import Lowering
from tiling.lower.neutral import Fact, Reading, inputs_of
from tiling.lower.placing import FusionRequest
from tiling.passing import without
from tiling.planning import forms
from tiling.planning.facts import settle_facts
from tiling.planning.model import Fusion
from tiling.planning.same_structure import Structures
from tiling.planning.search import Candidate, Kernel, Weighed

MACHINE = tiling.Machine(vector_bytes=64, vector_registers=32)
N = 128


@pytest.fixture(autouse=True)
def small_programs_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the cost model finds too small to gain from masks is bounded here all the same."""
    monkeypatch.setattr(forms, "masks_pay", lambda made, plain: True)


CASES = [
    ("causal", "select", "-1.0e30"), ("causal", "additive", "-1.0e9"), ("window", "select", "0xFF800000"),
    ("anti", "select", "-3.40282347E+38"), ("window", "additive", "-1.0e9"), ("padding", "select", "-1.0e9"),
]  # fmt: skip


def planned(kind: str, form: str, fill: str, n: int = N) -> tiling.Plan:
    return tiling.plan(hlo.parse(with_gradients(kind, form, fill, n)), machine=MACHINE, supports=codegen.supports)


def arrays(n: int = N) -> list[np.ndarray]:
    return [*inputs(n, n), np.random.default_rng(n).standard_normal((2, n, 16)).astype(np.float32)]


def product(plan: tiling.Plan, name: str) -> tuple[Fusion, Contract]:
    """The kernel that makes a value by a product, and the product."""
    for f in plan.fusions:
        for s in f.schedule.main.steps:
            if isinstance(s, Contract) and s.value.name == name:
                return f, s
    raise LookupError(name)


def value(plan: tiling.Plan, name: str) -> Value:
    return next(v for op in plan.program.ops for v in op.results if v.name == name)


@pytest.mark.parametrize(("kind", "form", "fill"), fast_cover(CASES, 1, lambda c: (c[0], c[1])))
def test_gradients_of_masked_attention_leave_out_what_the_mask_covers(kind: str, form: str, fill: str) -> None:
    plan = planned(kind, form, fill)
    for name in ("dv", "dk", "dq"):  # of probabilities and of what another kernel made of them
        f, c = product(plan, name)
        assert (c.depth_lower, c.depth_upper) != (None, None) or c.columns_upper is not None, f.schedule
    proof = tiling.prove(plan)
    assert proof.holds, proof
    exe = codegen.compile(plan)
    for found, expected in zip(exe(*arrays()), interp.evaluate(plan.module, *arrays()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "form", "fill"), fast_cover(CASES, 1, lambda c: (c[0], c[1])))
def test_a_kernel_asks_for_itself_whether_a_fact_holds(kind: str, form: str, fill: str) -> None:
    """What is NaN, infinite or huge in any input gives NaN and infinities where the evaluator has them."""
    plan = planned(kind, form, fill)
    exe = codegen.compile(plan)
    with without("bound_by_masks"):
        full = codegen.compile(planned(kind, form, fill))
    for spoiled in (np.nan, np.inf, -np.inf, 1e30):
        for which in range(4):
            given = arrays()
            given[which][1, N // 2, 3] = spoiled
            with np.errstate(all="ignore"):
                results = zip(exe(*given), full(*given), interp.evaluate(plan.module, *given), strict=True)
                for k, (found, plain, expected) in enumerate(results):
                    what = f"{spoiled} in input {which}, result {k}"
                    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected), err_msg=what)
                    np.testing.assert_array_equal(np.isinf(found), np.isinf(plain), err_msg=what)


def test_a_fact_is_refuted_without_its_limits() -> None:
    """The prover derives it again from the ops above, within what the kernel's flag says of its inputs."""
    plan = planned("causal", "additive", "-1.0e9", 192)
    f, _ = product(plan, "dv")
    measured = {s.source.value for p in f.schedule.phases for s in p.steps if isinstance(s, Measure)}
    assert {v.name for v in measured if v is not None} == {"q", "k", "g"}, f.schedule
    assert tiling.prove(f).holds
    wrong = tiling.prove(_with_limit(f.schedule, "q", 3e38))
    assert [o for o in wrong.refuted if o.name == "complete"], wrong


def test_zeros_beside_a_fold_are_proved_and_printed_as_what_they_are() -> None:
    """A gradient's kernel stores exponentials, with zeros under the mask, in the loop that sums them; a fold alone has none."""
    (f, *_) = (x for x in planned("causal", "select", "-1.0e30").fusions if any(v.name == "p" for v in x.outputs))
    beside = [s for s in f.schedule.main.steps if isinstance(s, Nest) and s.skip is not None and s.skip.fill is not None]
    assert beside
    assert tiling.prove(f).holds
    lines = str(tiling.pipeline.finished(f.schedule)).splitlines()
    zeros = [k for k, line in enumerate(lines) if line.endswith("] = 0.0")]
    assert zeros and all("while the flag is 1" in lines[k - 1] for k in zeros), f.schedule
    masked = [(k, s) for k, s in enumerate(f.schedule.main.steps) if isinstance(s, Nest) and s.skip is not None]
    number, nest = next((k, s) for k, s in masked if s.folds and not s.stores)
    assert nest.skip is not None
    wrong = replace(nest, skip=replace(nest.skip, fill=(Const(0), Const(N - 1))))
    steps = tuple(wrong if k == number else s for k, s in enumerate(f.schedule.main.steps))
    broken = replace(f.schedule, phases=(*f.schedule.phases[:-1], replace(f.schedule.main, steps=steps)))
    assert [o for o in tiling.prove(broken).refuted if o.name == "formed" and "in place of a fold" in o.witness]


def _with_limit(schedule: Schedule, name: str, limit: float) -> Schedule:
    """The schedule with another greatest magnitude of an input."""
    targets = {
        s.target for p in schedule.phases for s in p.steps
        if isinstance(s, Measure) and s.source.value is not None and s.source.value.name == name
    }  # fmt: skip
    phases = []
    for p in schedule.phases:
        flags = tuple(replace(x, limits=tuple((b, limit if b in targets else y) for b, y in x.limits)) for x in p.flags)
        phases.append(replace(p, flags=flags))
    return replace(schedule, phases=tuple(phases))


def test_a_fact_says_where_a_value_is_zero_and_what_that_takes() -> None:
    plan = planned("causal", "select", "-1.0e30")
    facts = plan.names.facts
    assert {v.name for v in facts} >= {"p", "ds", "e", "scores"}
    p, ds, e, scores = (facts[value(plan, name)] for name in ("p", "ds", "e", "scores"))
    assert {v.name for v in p.limits} == {"q", "k"}
    assert ds.limits == {}  # it is chosen to be zero there, whatever the inputs are
    assert [str(c.expression) for c in p.zero] == ["d1 - d2"]
    assert p.zero == ds.zero
    assert e.span is not None and e.span.attains == 1.0  # the greatest of each row
    assert str(e.span.along) == "d2"
    assert scores.span is not None and scores.span.high > 2.0 ** 90  # 16 products of 2^48 times 2^48
    assert not scores.zero


def test_limits_are_of_what_is_there_before_the_kernel_runs() -> None:
    """A kernel that makes what a fact asks about has no use for the fact; nor has one that cannot read it."""
    plan = planned("causal", "select", "-1.0e30")
    f, _ = product(plan, "dv")
    p, g = value(plan, "p"), next(v for v in f.inputs if v.name == "g")
    lowering = Lowering(FusionRequest(f.stages, frozenset(f.outputs), f.schedule.tile_sizes), MACHINE, plan.names)
    lowering.place()
    (made,) = f.stages[-1].values
    reader = f.stages[-1].op  # while stages are joined, the first one does not know
    for limits, first, known in (({g: 1.0}, None, True), ({g: 1.0}, reader, False), ({made: 1.0}, None, False)):
        facts = {p: Fact((), (), None, limits, first)}
        reading = Reading(lowering.plans, lowering.ranges, None, None, facts)
        assert bool(reading.facts) is known
        assert made not in inputs_of(lowering.plans, facts)


def test_a_value_with_zeros_joins_the_reader_for_which_that_pays_most() -> None:
    """Rows of the gradient of scores leave out what columns of it do not: it joins %dq's kernel, not %dk's, though that comes
    first where the program has it first."""
    text = with_gradients("causal", "select", "-1.0e30", 512, 64, 8)
    dk = next(line for line in text.splitlines(True) if "%dk = " in line)
    swapped = text.replace(dk, "").replace("    %dq = ", f"{dk}    %dq = ")
    plan = tiling.plan(hlo.parse(swapped), machine=MACHINE, supports=codegen.supports)
    joins = {(d.producer, d.consumer) for p in plan.nested() for d in p.decisions if d.fused}
    assert any(producer.startswith("ds") and consumer.startswith("dq") for producer, consumer in joins), joins


def test_facts_that_cannot_be_asked_for_are_forgotten() -> None:
    """What was lowered with a limit of a value that no kernel stores is lowered again."""
    plan = planned("causal", "select", "-1.0e30")
    (dv, _), (dk, _) = product(plan, "dv"), product(plan, "dk")
    (first, *_) = (x for x in plan.fusions if any(v.name == "p" for v in x.outputs))
    p, ds = value(plan, "p"), value(plan, "ds")
    plan.names.facts[ds] = Fact((), (), None, {p: 1.0})
    reads, reads_not, makes = (Kernel(list(f.stages), Candidate(f.schedule, f.estimate)) for f in (dv, dk, first))
    stored = {reads: {*dv.outputs}, reads_not: {*dk.outputs}, makes: {*first.outputs} - {p}}
    settle_facts(plan.names, Structures({v: s for f in plan.fusions for s in f.stages for v in s.values}), stored)
    assert ds not in plan.names.facts
    assert p in plan.names.facts
    assert isinstance(reads.candidate, Weighed)
    assert isinstance(reads_not.candidate, Candidate)


def test_layers_of_equal_structure_have_equal_facts() -> None:
    one = with_gradients("causal", "select", "-1.0e30", 32)
    body = one[one.index("{\n") + 2 : one.index("    return")]
    second = re.sub("%([a-z_]+)", lambda m: {"q": "%out", "k": "%k", "v": "%v", "g": "%g"}.get(m[1], f"%b_{m[1]}"), body)
    plan = tiling.plan(
        hlo.parse(one.replace("    return %out, %dq, %dk, %dv", second + "    return %out, %b_dv, %dk, %dv")),
        machine=MACHINE, supports=codegen.supports,
    )  # fmt: skip
    first, again = (plan.names.facts[value(plan, name)] for name in ("p", "b_p"))
    assert first.zero == again.zero
    assert {v.name for v in first.limits} == {"q", "k"}
    assert {v.name for v in again.limits} == {"out", "k"}
