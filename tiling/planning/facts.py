"""What kernels know of the values that other kernels make: where a mask left zeros in them, and between which ends they lie.

    p = exp(where(i >= j, s, -1e30) - max) / sum        made by one kernel
    dv[j] = sum over i of p[i, j] do[i]                 of another one, which may begin at i = j: p is zero before

A fact follows from what a value is computed from, whatever kernels do that, down to factors of products; so it is looked for
once, before stages are joined. It holds while those factors are within limits (`tiling.lower.neutral`), which the kernel that
relies on it finds out for itself: they have to be in memory.

While stages are joined the first reader of a value knows no fact that has limits: what the value follows from comes to it, as
forward attention becomes one kernel of scores, their softmax and a product, and on the way there each part would cost as little
apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from hlo.access import Condition
from hlo.module import Value
from hlo.registry import Fold, SumOfProducts
from indexing.expr import Var
from indexing.map import usual
from tiling.elements.ranges import Span
from tiling.loops.domains.conditions import translated
from tiling.loops.names import Names
from tiling.loops.stage import Stage
from tiling.lower.fusion import Lowering
from tiling.lower.masks import least_limits, widest
from tiling.lower.neutral import Analysis, Fact, Reading
from tiling.lower.placing import FusionRequest
from tiling.machine import Machine
from tiling.passing import runs
from tiling.planning.same_structure import Structures
from tiling.planning.search import Candidate, Kernel
from tiling.planning.stages import ops_of
from tiling.routines.table import routine_of

__all__ = ["find_facts", "settle_facts"]

MOST_STAGES = 24  # that a fact follows from: the gradient of attention takes seven
MOST_PATTERNS = 64  # that are looked for in a program: a layer of attention has six
_CHOOSING = {"stablehlo.select", "stablehlo.compare"}


@dataclass(frozen=True, eq=False)
class _Pattern:
    """A fact about all values of one structure: limits are of the structure's inputs, by their places."""

    index: tuple[Var, ...]
    zero: tuple[Condition, ...]
    span: Span | None
    limits: Mapping[int, float]

    def fact(self, inputs: Sequence[Value], reader: Stage) -> Fact:
        limits = {inputs[k]: limit for k, limit in self.limits.items()}
        return Fact(self.index, self.zero, self.span, limits, reader.op if limits else None)


def find_facts(
    stages: Sequence[Stage], needs: Mapping[Stage, Sequence[Stage]], readers: Mapping[Stage, Sequence[Stage]],
    machine: Machine, names: Names, structures: Structures,
) -> dict[Value, Fact]:  # fmt: skip
    """The facts about values that folds and products read of other stages, and about scores: products under masks. Layers of
    equal structure have equal ones."""
    if not runs("bound_by_masks"):
        return {}
    order = {s: k for k, s in enumerate(stages)}
    counts = {s: _counts(s, structures.stage_of) for s in stages}
    known: dict[int, _Pattern | None] = {}
    found: dict[Value, Fact] = {}
    above: dict[Stage, list[Fact]] = {}  # which facts follow from a stage, among others
    for s in stages:
        if not _is_plain(s) or isinstance(s.op.definition.semantics, SumOfProducts) or not any(map(_runs_over, readers[s])):
            continue
        behind = _behind(s, needs)
        if len(behind) > MOST_STAGES or not any(counts[p] for p in behind):
            continue
        together = tuple(sorted(behind, key=lambda p: order[p]))
        number = structures.number(together, frozenset(s.values))
        if number not in known and len(known) == MOST_PATTERNS:
            break
        if number not in known:
            known[number] = _pattern(together, machine, names, structures)
        pattern = known[number]
        if pattern is not None:
            fact = found[s.values[0]] = pattern.fact(structures.inputs(together), readers[s][0])
            for p in behind if fact.zero else ():
                above.setdefault(p, []).append(fact)
    for s in stages:
        if s in above and isinstance(s.op.definition.semantics, SumOfProducts) and any(counts[r] for r in readers[s]):
            fact_of_scores = _of_scores(s, readers[s][0], above[s], machine, names, structures)
            found.update({} if fact_of_scores is None else {s.values[0]: fact_of_scores})
    return found


def settle_facts(names: Names, structures: Structures, stored: Mapping[Kernel, Set[Value]]) -> None:
    """Now that stages are joined: all kernels know facts, but for those whose limits are of values that are in no memory (of what
    kernels make, the values in `stored` are there). What was lowered with one of these is lowered again."""
    before = names.facts
    if not before:
        return
    there = {v: v in kept for k, kept in stored.items() for s in k.stages for v in s.values}
    absent = {v for f in before.values() for v in f.limits if not there.get(v, True)}
    names.facts = structures.facts = {
        v: f if f.reader is None else replace(f, reader=None) for v, f in before.items() if absent.isdisjoint(f.limits)
    }  # fmt: skip
    for key in list(names.limits):
        read = [v for v in structures.inputs(key) if v in before]
        if any(v not in names.facts or any(s.op is before[v].reader for s in key) for v in read):
            del names.limits[key]  # they know more, or less, than they did
    for k in stored if absent else ():
        if isinstance(k.candidate, Candidate) and not absent.isdisjoint(b.value for b in k.candidate.schedule.buffers):
            k.candidate = k.candidate.without_schedule


def _is_plain(s: Stage) -> bool:
    return s.declined is None and len(s.values) == 1 and routine_of(s.op) is None


def _runs_over(s: Stage) -> bool:
    """Whether a stage has a loop that a fact may bound."""
    return isinstance(s.op.definition.semantics, (Fold, SumOfProducts))


def _counts(stage: Stage, stage_of: Mapping[Value, Stage]) -> bool:
    """Whether something may be chosen by where it is: a cheap test before the analysis."""
    names = {op.name for op in ops_of((stage,), stage_of)}
    return "stablehlo.iota" in names and not names.isdisjoint(_CHOOSING)


def _behind(stage: Stage, needs: Mapping[Stage, Sequence[Stage]]) -> set[Stage]:
    """The stages that one is computed from, itself among them, down to products."""
    found = {stage}
    todo = [stage]
    while todo and len(found) <= MOST_STAGES:
        s = todo.pop()
        if not isinstance(s.op.definition.semantics, SumOfProducts):
            new = [p for p in needs[s] if p not in found and _is_plain(p)]
            found.update(new)
            todo.extend(new)
    return found


def _of_scores(
    stage: Stage, reader: Stage, facts: Sequence[Fact], machine: Machine, names: Names, structures: Structures
) -> Fact | None:
    """The span of a product that a mask covers, within the limits of what follows from that; None where it has none."""
    limits = {v: min([f.limits[v] for f in facts if v in f.limits], default=None) for v in structures.inputs((stage,))}
    reading = _reading((stage,), machine, names)
    if reading is None:
        return None
    (value,) = stage.values
    span = Analysis.whole(reading, limits).known[value].span
    index = tuple([usual("d", k) for k in range(value.rank)])
    given = {v: limit for v, limit in limits.items() if limit is not None}
    return None if span is None else Fact(index, (), span, given, reader.op)


def _reading(stages: tuple[Stage, ...], machine: Machine, names: Names) -> Reading | None:
    """What some stages read when all of the last one's value is computed; None where something without maps is among them."""
    value = stages[-1].values[0]
    try:
        whole = Lowering(FusionRequest(stages, frozenset({value}), value.shape, masks=False), machine, names)
        whole.shape_all()
    except LookupError:
        return None
    reading = Reading(whole.plans, whole.ranges, names.sheets)
    return None if reading.is_cut else reading


def _pattern(stages: tuple[Stage, ...], machine: Machine, names: Names, structures: Structures) -> _Pattern | None:
    """What holds for the last one's value; None where that is nothing of use."""
    (value,) = stages[-1].values
    reading = _reading(stages, machine, names)
    if reading is None or not any(sheet.conditions for sheet in reading.sheets.values()):
        return None
    loops = reading.member_of[value].loops
    best = Analysis.whole(reading, least_limits(reading))
    wanted = best.known[value]
    is_above = wanted.span is not None and wanted.span.low > 0.0
    if not wanted.zero and not is_above:
        return None

    def tells_as_much(made: Analysis) -> bool:
        for _ in made.signature():
            pass
        found = made.known[value]
        return found.zero == wanted.zero and (not is_above or (found.span is not None and found.span.low > 0.0))

    best = widest(best, tells_as_much)
    found = best.known[value]
    place = {v: k for k, v in enumerate(structures.inputs(stages))}
    limits = {place[v]: limit for v, limit in best.limits.items() if limit is not None}
    index = tuple([usual("d", k) for k in range(value.rank)])
    at = dict(zip((x.variable for x in loops), index, strict=True))
    ranges = {v: reading.ranges[x.variable] for v, x in zip(index, loops, strict=True)}
    span = found.span
    if span is not None:
        along = at.get(span.along) if span.along is not None else None
        span = Span(span.low, span.high, None if along is None else span.attains, along)
    return _Pattern(index, tuple([translated(c, at, ranges) for c in found.zero]), span, limits)
