"""Do statements compute what the program's ops do? Expressions side by side with those that the ops' access functions give.

    v[index] = node                 node is v's element at index, through what is computed where it is read
    v[index] = fold(node), init     node is the element that the op folds, at some index of its range; init its initial value
    v[index] += node * node'        the factors that the op multiplies
    copy[...] = node                a fill is the op's operand or initial value, a packed factor an element of an operand, or zero

Expressions are compared symbol by symbol; where loops were cut, and conditions went away with it, at points on both sides of
every condition's ends. Which elements are loaded through copies is the obligation `mapped`. What is rescaled while it runs
(online forms) has other arithmetic than the ops: that is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hlo.module import Op, Value
from hlo.registry import Fold, SumOfProducts
from indexing.expr import Interval, Var
from tiling.loops.element_ir import (
    Load,
    Node,
    Scalar,
    has_runtimes,
    loads,
    rebuild,
)
from tiling.loops.ir import Contract, FoldStep, Nest, Schedule, Scope, Store
from tiling.proving.contents.compared import Assumed, Place
from tiling.proving.contents.folds import Folds
from tiling.proving.contents.statements import (
    filled_from,
    is_plus_zero,
    solutions,
    unscaled,
)
from tiling.proving.contents.tables import read_through
from tiling.proving.relations import Questions, Undecided
from tiling.routines.table import routine_of

__all__ = ["Assumed", "Question", "computed_questions"]

Question = tuple[str, str, Callable[[], str | None]]


def computed_questions(schedule: Schedule, ask: Questions, lowered: Schedule | None = None) -> Iterator[Question]:
    """(obligation, subject, question) for every store and fold. A question raises Undecided, or Assumed where it is not asked.

    Of final loops, `lowered` are those that they were made of. A statement that cannot be compared with its op is compared with
    theirs: where each of its iterations is an iteration of a lowered statement as well, that writes the same element from the
    same expression (up to choices that the smaller domain settles), the lowered statement's answer is its own.
    """
    checker = _Checker(schedule, ask, None if lowered is None else _Checker(lowered, ask))
    down = all(schedule.ranges.get(f.variable) == Interval(0, 0) for p in schedule.phases for f in p.flags)
    for v in checker.folds if down else ():
        yield "folded once", f"%{v.name or '?'}", _bound(checker.once, v)
        if checker.has_order(v):
            yield "in order", f"%{v.name or '?'}", _bound(checker.in_order, v)
    for nest, place, op in checker.nests():
        for s in nest.stores:
            to = ", ".join(map(str, s.index))
            yield "computed", f"{place.label} {s.buffer.name}[{to}]", _bound(checker.store, s, place, op)
        for f in nest.folds:
            to = ", ".join(map(str, f.index))
            yield "computed", f"{place.label} {f.buffers[0].name}[{to}] {f.op.name}", _bound(checker.fold, f, nest, place)


def _bound(method: Callable[..., str | None], *arguments: object) -> Callable[[], str | None]:
    return lambda: method(*arguments)


class _Checker(Folds):
    """Checks of stores, copies and folds; of final loops with the help of the `lowered` ones."""

    lowered: _Checker | None

    def store(self, s: Store, place: Place, op: Op | None) -> str | None:
        if s.buffer in self.tables:
            return None  # what reads it is compared with what it holds
        (node,) = read_through((s.node,), self.tables, self._ranges(place))
        read = s if node is s.node else replace(s, node=node)
        return self._or_lowered(lambda: self._store(read, place, op), lambda: self._lowered_store(s, place))

    def fold(self, f: FoldStep, nest: Nest, place: Place) -> str | None:
        def asked() -> str | None:
            part = self._lowered_fold(f, place)
            if part is None or self.lowered is None:
                raise Undecided("none of the lowered folds is a whole of which it is a part")
            return self.lowered.fold(*part[:3])

        nodes = read_through(f.nodes, self.tables, self._ranges(place))
        read = f if all(a is b for a, b in zip(nodes, f.nodes, strict=True)) else replace(f, nodes=nodes)
        return self._or_lowered(lambda: self._fold(read, place), asked)

    def _or_lowered(self, question: Callable[[], str | None], of_lowered: Callable[[], str | None]) -> str | None:
        """The answer to a question, or that of the lowered statement of which a final one is a part."""
        try:
            fault = self.ask.ask(lambda: self._told(question))
        except Undecided:
            if self.lowered is not None:
                try:
                    return of_lowered()
                except Undecided:
                    pass
            raise
        if fault is not None and self.lowered is not None:
            try:
                return of_lowered()
            except Undecided:
                return fault
        return fault

    def _lowered_store(self, s: Store, place: Place) -> str | None:
        """What is known of the lowered store that a final one is a part of."""
        assert self.lowered is not None
        for nest, its, of in self.lowered.nests():
            for x in nest.stores:
                alike = x.value is s.value and x.buffer is s.buffer
                if alike and self._part(s.index, [s.node], place, x.index, [x.node], its) is not None:
                    return self.lowered.store(x, its, of)
        raise Undecided("none of the lowered stores is a whole of which it is a part")

    def _store(self, s: Store, place: Place, op: Op | None) -> str | None:
        v = s.value
        if v is None or v.op is None or len(s.index) != v.rank:
            return self._copy(s, place, op)
        if isinstance(s.node, Load) and s.node.value is v and s.node.buffer is not None:
            if s.node.buffer in self.states and self._is_unfinished(v):
                return "sums of what is not an operand of its op yet are stored as they are"
            return None  # put there from where it was made: that it is this element is the obligation `mapped`
        semantics = v.op.definition.semantics
        if isinstance(semantics, (Fold, SumOfProducts)):
            if any(x.buffer in self.states for x in loads([s.node])):
                raise Assumed("what was rescaled block by block is finished here: the arithmetic is the online form's")
            if isinstance(semantics, SumOfProducts) and v not in self.running and is_plus_zero(s.node):
                return None  # nothing is summed here: that no product counts is the obligation `complete`
            return self._written_out(s, v.op, place)
        wanted = self._element(v, s.index, place, {x.value for x in loads([s.node])} - {v}, itself=v)
        node = self._with_finished(s, place)
        if any(x.buffer in self.states for x in loads([node])):
            node = unscaled(node)  # by a number that the online form takes off in the end
        return self._compare([node], [wanted], place, {})

    def _is_unfinished(self, v: Value) -> bool:
        """Whether a running sum of products has a factor that is no operand of its op: the sum is divided at last."""
        steps = [s for p in self.schedule.phases for s in p.all_steps]
        for c in (s for s in steps if isinstance(s, Contract) and s.value is v):
            for block in (c.left, c.right):
                held = {x.value for s in steps if isinstance(s, Nest) for x in s.stores if x.buffer is block.buffer}
                if held and None not in held and not held.intersection(c.op.operands):
                    return True
        return False

    def _with_finished(self, s: Store, place: Place) -> Node:
        """A store's node where what another store of the nest takes for a finished running result is that result's element.

        Both are evaluated in the same iteration, from the same running results: what is assumed of the one holds of the other.
        """
        finished: dict[Node, Load] = {}
        for other in place.beside:
            v, read = other.value, loads([other.node])
            is_state = any(x.buffer in self.states for x in read) and not isinstance(other.node, Load)
            if v is None or v is s.value or v.op is None or not is_state or len(other.index) != v.rank:
                continue
            if isinstance(v.op.definition.semantics, (Fold, SumOfProducts)):
                finished[other.node] = Load(v, other.index)
        if not finished or has_runtimes([s.node]):
            return s.node
        return rebuild(s.node, lambda x: x, tuple, {}, lambda n: finished.get(n, n))

    def _written_out(self, s: Store, op: Op, place: Place) -> str | None:
        """A fold of few elements as one expression: the initial value and each element that is not neutral, in any order."""
        assert s.value is not None
        return self._compare([s.node], [Load(s.value, s.index)], place, {})

    def _copy(self, s: Store, place: Place, op: Op | None) -> str | None:
        target = s.buffer.value
        if target is not None and target.op is not None and s.buffer.scope is Scope.RESULT and routine_of(target.op) is not None:
            source = filled_from(target)
            if source is None:
                raise Undecided(f"what {target.op.name} is filled with is not known")
            index = s.index if source.rank else ()
            wanted = self._element(source, index, place, {x.value for x in loads([s.node])}, itself=None)
            return self._compare([s.node], [wanted], place, {})
        if s.buffer in self.states:
            raise Assumed("a running result of an online form: its arithmetic is the form's own")
        if isinstance(s.node, Load):
            return None  # a copy: which element it is is the obligation `mapped`
        if isinstance(s.node, Scalar):
            return None  # what starts from it says whether it may: the obligation `starts`
        return self._packed(s, place, [op] if op is not None else self._readers(s))

    def _readers(self, s: Store) -> list[Op]:
        """The contractions, and the sums in loops, that read a buffer of copies."""
        found: dict[Op, None] = {}
        for step in (x for p in self.schedule.phases for x in (*p.before, *p.all_steps)):
            if isinstance(step, Contract) and s.buffer in (step.left.buffer, step.right.buffer):
                found[step.op] = None
            elif isinstance(step, Nest):
                for f in step.folds:
                    if any(x.buffer is s.buffer for x in loads(f.nodes)):
                        found[f.op] = None
        return list(found)

    def _packed(self, s: Store, place: Place, ops: Sequence[Op]) -> str | None:
        """A factor in another layout: an element of one of the op's operands, or zero where it has none."""
        if not ops:
            raise Undecided(f"who reads {s.buffer.name} is not known")
        reasons: list[str | None] = []
        open_: str | None = None
        for op in ops:
            for operand in dict.fromkeys(op.operands[:2]):
                kept = {x.value for x in loads([s.node])}
                ranges = self._ranges(place)
                free = tuple(Var(f"a{k}_wanted") for k in range(operand.rank))
                ranges |= {v: Interval(0, max(n - 1, 0)) for v, n in zip(free, operand.shape, strict=True)}
                try:
                    wanted = self._building(ranges, kept).at(operand, free)
                except LookupError:
                    continue
                for solved in solutions([wanted], [s.node], free, ranges):
                    try:
                        reasons.append(self._compare([s.node], [wanted], place, solved, zeros=True))
                    except Undecided as reason:
                        open_ = str(reason)
                        continue
                    if reasons[-1] is None:
                        return None
        if open_ is not None:
            raise Undecided(open_)
        if not reasons:
            raise Undecided(f"no operand of {ops[0].name} says what {s.buffer.name} holds")
        return next(r for r in reasons if r is not None)
