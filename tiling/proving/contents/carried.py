"""Running results: does what goes on from block to block, or from tile to tile, start once and go on everywhere?

    starts      a result that goes on was begun: with the initial value, or by an earlier part of the same fold; no fold starts
                again where what an earlier one made was not read yet
    goes on     in each block of a sequential loop all of a running result is taken along, once, and nothing else; what goes on in
                a later step of a phase was not read before
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations

import islpy

from hlo.module import Value
from hlo.registry import Fold, SumOfProducts
from indexing.exact.isl import set_of_boxes
from tiling.elements.build import ElementBuilder
from tiling.loops.carry import added_to, is_changed, taken_on
from tiling.loops.domains.iterations import Access, Domain, Kind
from tiling.loops.element_ir import Node, Scalar, loads
from tiling.loops.ir import Buffer, Contract, Nest, Phase, Schedule, Scope, Sequential, Step
from tiling.proving.contents.computed import Question
from tiling.proving.contents.same_expression import same_expression
from tiling.proving.relations import IN, Questions, coordinates, points_of

__all__ = ["carried_questions"]


def carried_questions(schedule: Schedule, accesses: Sequence[Access], ask: Questions) -> Iterator[Question]:
    """(obligation, subject, question) for every result that goes on."""
    for number, phase in enumerate(schedule.phases):
        for v, b in _going_on(phase):
            yield "starts", f"phase {number} {b.name}", partial(_start, schedule, v, b)
        for b in _begun_with_zeros(phase):
            mine = [a for a in accesses if a.buffer is b]
            yield "goes on", f"phase {number} {b.name} summed", partial(ask.ask, partial(_summed, mine, b, ask))
        for k, step in enumerate((*phase.before, *phase.steps)):
            if isinstance(step, Sequential):
                mine = [a for a in accesses if a.order[0] == number]
                yield "goes on", f"phase {number} step {k}", partial(_protocol, step, (*phase.before, *phase.steps)[:k])
                for b in taken_on(step.steps):
                    yield "goes on", f"phase {number} step {k} {b.name}", partial(ask.ask, partial(_goes_on, mine, k, b, ask))
        for b, steps in _folded(phase).items():
            if len(steps) > 1:
                own = [a for a in accesses if a.order[0] == number and a.buffer is b]
                yield "starts", f"phase {number} {b.name} once", partial(ask.ask, partial(_again, own, ask))
                yield "goes on", f"phase {number} {b.name} before it is read", partial(ask.ask, partial(_early, own, ask))


def _going_on(phase: Phase) -> list[tuple[Value, Buffer]]:
    """The values, with their buffers, of folds that are carried and contractions that add to what is there."""
    return list(dict.fromkeys(x for step in (*phase.before, *phase.all_steps) for x in added_to(step)))


def _begun_with_zeros(phase: Phase) -> list[Buffer]:
    """The buffers of sums of products that a nest fills with their beginning."""
    nests = [x for x in (*phase.before, *phase.all_steps) if isinstance(x, Nest)]
    found = dict.fromkeys(s.buffer for x in nests for s in x.stores if s.value is None and isinstance(s.node, Scalar))
    ops = {b: b.value.op for b in found if b.value is not None}
    return [b for b, op in ops.items() if op is not None and isinstance(op.definition.semantics, SumOfProducts)]


def _summed(own: Sequence[Access], b: Buffer, ask: Questions) -> str | None:
    """An element that products are added to in two steps, or in none."""
    added = [a for a in own if a.kind is Kind.UPDATE]
    total: islpy.Set | None = None
    for a in added:
        reached = ask.relation(a, 0).range()
        if total is not None and not total.intersect(reached).is_empty():
            return "two steps add to the same element"
        total = reached if total is None else total.union(reached)
    if total is None:
        return "no products are added"
    every = set_of_boxes(len(b.shape), [[(0, n - 1, 1) for n in b.shape]])
    missing = every.subtract(total) if b.scope is Scope.RESULT else islpy.Set.empty(every.get_space())
    return None if missing.is_empty() else f"no products are added to {coordinates(missing.sample_point())}"


def _folded(phase: Phase) -> dict[Buffer, set[int]]:
    """The steps of a phase that fold into a buffer."""
    found: dict[Buffer, set[int]] = {}
    for k, step in enumerate((*phase.before, *phase.steps)):
        for x in step.steps if isinstance(step, Sequential) else (step,):
            for b in [b for f in x.folds for b in f.buffers] if isinstance(x, Nest) else []:
                found.setdefault(b, set()).add(k)
    return found


def _again(own: Sequence[Access], ask: Questions) -> str | None:
    """An element that a fold starts though what an earlier fold made of it was not read."""
    starts = [a for a in own if a.kind is Kind.WRITE and a.is_fold]
    for first, then in combinations(sorted(starts, key=lambda a: a.order[1]), 2):
        between = range(first.order[1] + 1, then.order[1] + 1)
        if first.order[1] < then.order[1] and not any(a.kind is Kind.READ and a.order[1] in between for a in own):
            both = _shared(first, then, ask)
            if both is not None:
                return f"an element is started again before it was read: {both}"
    return None


def _early(own: Sequence[Access], ask: Questions) -> str | None:
    """An element that is read though a later step goes on with it."""
    for u in (a for a in own if a.kind is Kind.UPDATE):
        for r in (a for a in own if a.kind is Kind.READ and a.order[1] < u.order[1]):
            later = range(r.order[1] + 1, u.order[1])
            if any(a.kind is Kind.WRITE and a.order[1] in later for a in own):
                continue  # another result, which begins in between
            both = _shared(r, u, ask)
            if both is not None:
                return f"an element is read before all of it is there: {both}"
    return None


def _shared(a: Access, b: Access, ask: Questions) -> str | None:
    """An element that both accesses touch in one task."""
    depth = a.domain.shared
    both = ask.relation(a, depth).intersect(ask.relation(b, depth))
    return None if both.is_empty() else str(coordinates(both.wrap().sample_point()))


def _start(schedule: Schedule, v: Value, b: Buffer) -> str | None:
    """What else is put where a result goes on from, or None."""
    begun = False
    for step in (s for p in schedule.phases for s in (*p.before, *p.all_steps)):
        if isinstance(step, Contract) and step.out.buffer is b and not step.accumulate:
            begun = True
            if step.value is not v:
                return f"%{step.value.name or '?'} is computed in its place"
        if not isinstance(step, Nest):
            continue
        for s in step.stores:
            if s.buffer is b and not is_changed(s):
                begun = True
                if not _is_initial(s.node, v):
                    return "it starts from something other than the initial value"
        for f in step.folds:
            if b in f.buffers and not f.carried:
                begun = True
                if v not in f.values:
                    return f"%{f.values[0].name or '?'} is folded in its place"
    return None if begun else "nothing is there to go on from"


def _is_initial(n: Node, v: Value) -> bool:
    op = v.op
    if op is None:
        return False
    if not isinstance(op.definition.semantics, Fold):
        return isinstance(n, Scalar) and not bool(n.value)
    wanted = ElementBuilder({}, lambda w: w.op is None).at(op.operands[len(op.operands) // 2 + v.index], ())
    return same_expression(n, wanted, {})


def _protocol(s: Sequential, before: Sequence[Step]) -> str | None:
    """What a block of an online form does not do: take each running number along, and rescale what it adds to."""
    begun = {x.buffer for step in before if isinstance(step, Nest) for x in step.stores if x.value is None}
    nests = [x for x in s.steps if isinstance(x, Nest)]
    read = {x.buffer for n in nests for x in loads(n.roots) if x.buffer is not None}
    written = {x.buffer for n in nests for x in n.stores} | {b for n in nests for f in n.folds for b in f.buffers}
    written |= {x.out.buffer for x in s.steps if isinstance(x, Contract)}
    rescales = any(is_changed(x) or (x.value is None and not isinstance(x.node, Scalar)) for n in nests for x in n.stores)
    for b in begun & read - written:
        return f"{b.name} is read in every block and changed in none"
    done: set[Buffer] = set()
    for step in s.steps:
        if isinstance(step, Contract) and step.accumulate and rescales and step.out.buffer not in done:
            return f"{step.out.buffer.name} is added to before it is rescaled"
        if isinstance(step, Nest):
            done |= {x.buffer for x in step.stores if is_changed(x)}
    return None


def _goes_on(accesses: Sequence[Access], step: int, b: Buffer, ask: Questions) -> str | None:
    """A part of a running result that a block leaves behind, or changes twice."""
    own = [a for a in accesses if a.buffer is b and a.kind is not Kind.READ]
    before = [a for a in own if a.order[1] < step]
    inside = [a for a in own if a.order[1] == step]
    if not before:
        return "it is not begun before the loop"
    depth = before[0].domain.shared
    filled = ask.relation(before[0], depth)
    for a in before[1:]:
        filled = filled.union(ask.relation(a, depth))
    rounds = [
        [a for a in inside if a.kind is Kind.UPDATE or a.is_fold],
        [a for a in inside if a.kind is Kind.WRITE and not a.is_fold],
    ]
    for group in rounds:
        total = None
        for a in group:
            r = ask.relation(a, depth + 1)
            if total is not None and not total.intersect(r).is_empty():
                return "two steps of a block change the same element"
            total = r if total is None else total.union(r)
        if total is None:
            continue
        wanted = filled.insert_dims(IN, depth, 1).intersect_domain(_blocks(group[0], depth + 1))
        for left, what in ((wanted.subtract(total), "is left behind"), (total.subtract(wanted), "was not begun")):
            if not left.is_empty():
                return f"an element {what}: {coordinates(left.wrap().sample_point())}"
    return None


def _blocks(a: Access, depth: int) -> islpy.Set:
    """The tasks and the blocks of a sequential loop that there are."""
    d = a.domain
    known = {v for v, _ in d.variables[:depth]}
    held = tuple(c for c in d.held if known.issuperset(c.expression.variables))
    return points_of(Domain(d.variables[:depth], held))
