"""Which values of a plan are written over others, and the order of steps that this asks for.

A step may write `target` over `source` when it is the last to read `source`, and reads no element of it after that element was
written. Steps that only read `source` then have to come first; where they cannot, the memory is not shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeVar

from hlo.clone import captured_values
from hlo.module import Value
from indexing.expr import Expr
from tiling.loops.element_ir import Load, Node, loads
from tiling.loops.ir import Buffer, Contract, Nest, Ordering, Phase, Scatter, Scope, Selection, Turn
from tiling.planning.model import ControlStep, EvaluatorStep, Fusion, Reuse
from tiling.program.flatten import Program
from tiling.program.updates.in_place import is_update

__all__ = ["PlanStep", "ordered", "resolve_reuses", "stores_to", "taken_by_results", "writes_of_step"]

PlanStep = Fusion | EvaluatorStep | ControlStep
T = TypeVar("T")


def reads_of_step(step: PlanStep) -> tuple[Value, ...]:
    """The values that a step reads from memory."""
    if isinstance(step, Fusion):
        op = step.stages[-1].op
        return (*step.inputs, op.operands[0]) if is_update(op) else step.inputs
    if isinstance(step, ControlStep):
        return step.reads
    return (*step.op.operands, *(v for b in step.op.regions for v in captured_values(b)))


def writes_of_step(step: PlanStep) -> tuple[Value, ...]:
    """The values that a step makes."""
    return step.outputs if isinstance(step, Fusion) else step.op.results


@dataclass(frozen=True, eq=False)
class _Candidate:
    step: int
    source: Value
    target: Value
    forced: bool  # the step writes nothing but the new elements: without shared memory it needs a copy


def resolve_reuses(
    program: Program, steps: Sequence[PlanStep], passed_on: Mapping[Value, Value]
) -> tuple[tuple[PlanStep, ...], tuple[Reuse, ...]]:
    """The steps in an order that lets results be written over what they are made from, and which are.

    `passed_on` are a loop body's arguments with what they become, or those that the caller gives away with the results that may
    take their memory; other arguments are never written.
    """
    made_by = {v: k for k, s in enumerate(steps) for v in writes_of_step(s)}
    readers: dict[Value, set[int]] = {}
    for k, s in enumerate(steps):
        for v in reads_of_step(s):
            readers.setdefault(v, set()).add(k)
    before: list[set[int]] = [{made_by[v] for v in reads_of_step(s) if v in made_by} - {k} for k, s in enumerate(steps)]
    returned = set(program.results)
    owned = set(passed_on) | set(made_by)
    taken: set[Value] = set()
    given: set[Value] = set()
    reuses: list[Reuse] = []
    for c in (c for k, s in enumerate(steps) for c in _candidates(k, s, passed_on)):
        if c.source in taken or c.target in given:
            continue
        reason = ""
        if c.source not in owned:
            reason = "its memory belongs to the caller"
        elif c.source in returned:
            reason = "it is a result, too"
        elif c.forced and _reads_itself(steps[c.step], c.source):
            reason = "its own kernel reads it elsewhere"
        else:
            others = readers.get(c.source, set()) - {c.step}
            if any(_reaches(before, c.step, other) for other in others):
                reason = "it is still read later"
            else:
                before[c.step] |= others
        if not reason:
            taken.add(c.source)
        if not reason or c.forced:
            given.add(c.target)
            reuses.append(Reuse(c.source, c.target, not reason, reason))
    return tuple(ordered(steps, before)), tuple(reuses)


def taken_by_results(reuses: Sequence[Reuse], given: Mapping[Value, Value]) -> tuple[Reuse, ...]:
    """The reuses without those of arguments that the caller gave away for another result than the one that would lie there.

    The caller looks for this result in the argument's memory, and for nothing else.
    """
    over = {r.source: r.target for r in reuses if r.shared}
    kept: list[Reuse] = []
    for r in reuses:
        end = r.target
        while end in over:
            end = over[end]
        if not r.shared or r.source not in given or end is given[r.source]:
            kept.append(r)
        elif r.target.op is not None and is_update(r.target.op):
            kept.append(replace(r, shared=False, reason="the result that may take its memory is another one"))
    return tuple(kept)


def _reads_itself(step: PlanStep, source: Value) -> bool:
    """True when an update's kernel loads elements of what it is written over."""
    return isinstance(step, Fusion) and any(v is source for v in step.inputs)


def _reaches(before: Sequence[set[int]], start: int, end: int) -> bool:
    """True when `end` has to wait for `start`."""
    todo, seen = [end], set()
    while todo:
        k = todo.pop()
        if k == start:
            return True
        if k not in seen:
            seen.add(k)
            todo.extend(before[k])
    return False


def ordered(steps: Sequence[T], before: Sequence[Set[int]]) -> list[T]:
    """Steps so that each comes after those that it waits for, given by their places, and otherwise as they are."""
    order: list[int] = []
    placed: set[int] = set()
    waiting = list(range(len(steps)))
    while waiting:
        rest = []
        for k in waiting:
            if before[k] <= placed:
                placed.add(k)
                order.append(k)
            else:
                rest.append(k)
        if len(rest) == len(waiting):
            raise RuntimeError("steps wait for each other: the planner joined what it must not")
        waiting = rest
    return [steps[k] for k in order]


def _candidates(number: int, step: PlanStep, passed_on: Mapping[Value, Value]) -> Iterator[_Candidate]:
    if isinstance(step, ControlStep):
        if step.carries:
            counts: dict[Value, int] = {}
            for v in (*step.op.operands, *(x for r in step.regions for x in r.region.captured)):
                counts[v] = counts.get(v, 0) + 1
            for v, r, c in zip(step.op.operands, step.op.results, step.carries, strict=True):
                if c.how != "invariant" and counts[v] == 1:
                    yield _Candidate(number, v, r, False)
        return
    if not isinstance(step, Fusion):
        return
    op = step.stages[-1].op
    if is_update(op):
        yield _Candidate(number, op.operands[0], op.results[0], True)
        return
    for source, target in passed_on.items():
        if source.type == target.type and any(v is target for v in step.outputs) and _may_overwrite(step, source, target):
            yield _Candidate(number, source, target, False)


def _may_overwrite(fusion: Fusion, source: Value, target: Value) -> bool:
    """True when a kernel may write `target` into `source`'s memory: each element is read, last, where it is overwritten."""
    buffers = {b.value: b for b in fusion.schedule.buffers if b.value is not None and b.scope is not Scope.THREAD}
    written, read = buffers.get(target), buffers.get(source)
    if written is None or written.scope is not Scope.RESULT:
        return False
    phases = fusion.schedule.phases
    if not all(map(_is_plain, phases)):
        return False
    first = next((k for k, p in enumerate(phases) if stores_to(p, written)), None)
    if first is None or any(_loads_from(p, source, read) for p in phases[first + 1 :]):
        return False
    phase = phases[first]
    (here,) = [s for s in phase.steps if stores_to(Phase((), (s,)), written)][:1]
    if not isinstance(here, Nest) or any(b is written for f in here.folds for b in f.buffers):
        return False
    mine = [s for s in here.stores if s.buffer is written]
    others = Phase((), tuple(s for s in phase.steps if s is not here))
    if len(mine) != 1 or stores_to(others, written) or _loads_from(others, source, read):
        return False
    if any(_is_of(x, source, read) for x in loads([n for f in here.folds for n in (*f.nodes, *f.inits)])):
        return False
    # (What other stores of the nest read of it is read before: `codegen.kernel.rename.in_one_memory`.)
    roots = [s.node for s in here.stores]
    return all(x.index == mine[0].index and not x.runtimes for x in loads(roots) if _is_of(x, source, read))


def _is_of(load: Load, source: Value, buffer: Buffer | None) -> bool:
    return load.buffer is buffer and buffer is not None if load.buffer is not None else load.value is source


_KNOWN = (Nest, Contract, Turn, Ordering, Scatter, Selection)


def _is_plain(phase: Phase) -> bool:
    """True for a phase whose steps are all looked at here; of others nothing is known."""
    return not phase.before and phase.group == 1 and all(isinstance(s, _KNOWN) for s in phase.steps)


def _nests(phase: Phase) -> Iterator[Nest]:
    for s in phase.all_steps:
        if isinstance(s, Nest):
            yield s
        yield from getattr(s, "pack", ())


def stores_to(phase: Phase, buffer: Buffer) -> bool:
    """True when a phase may write to a buffer."""
    if not _is_plain(phase):
        return buffer.scope is not Scope.ARGUMENT
    if any(x.buffer is buffer for n in _nests(phase) for x in n.stores):
        return True
    if any(b is buffer for n in _nests(phase) for f in n.folds for b in f.buffers):
        return True
    return any(_has(s, buffer, ("out", "target"), ("targets",)) or getattr(s, "places", None) is buffer for s in phase.all_steps)


def _has(step: object, buffer: Buffer, names: Sequence[str], lists: Sequence[str]) -> bool:
    """True when a step of another kind names a buffer (or a part of it) so."""
    for name in names:
        found = getattr(step, name, None)
        if found is buffer or getattr(found, "buffer", None) is buffer:
            return True
    return any(b is buffer for name in lists for b in getattr(step, name, ()))


def _loads_from(phase: Phase, source: Value, buffer: Buffer | None) -> bool:
    roots: list[Node] = []
    for n in _nests(phase):
        roots += n.roots
    for s in phase.all_steps:
        if isinstance(s, Scatter):
            roots += [*s.nodes, *(x.node for x in s.starts if not isinstance(x.node, Expr))]
    if any(_is_of(x, source, buffer) for x in loads(roots)):
        return True
    if buffer is None:
        return False
    return any(_has(s, buffer, ("left", "right", "source", "target"), ("sources", "targets")) for s in phase.all_steps)
