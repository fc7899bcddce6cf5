"""Loops that end at numbers read when the program runs: what they leave out, beside loops over everything, counts for nothing.

    bounds      rows that a bounded nest does not store are scratch of one block, and read nowhere else
    left out    a product that is not summed has a factor that is zero, with inputs within the limits that the flag tests

That the rest is right is shown of the loops over everything (`tiling.loops.limits.in_full`); and of the bounded ones, for any
numbers in their ranges, that what they read is inside and was stored in the same block.

A number is known by what it is computed from: limits that read the same stand for it, and isl has as many unknown integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import islpy

from hlo.access import Condition
from indexing.expr import EVERYTHING, Expr, Var, as_expr, simplify, substitute
from tiling.loops.accesses import Reader, buffers_by_value
from tiling.loops.domains.iterations import Access, Domain
from tiling.loops.element_ir import Load
from tiling.loops.ir import ZERO, Buffer, Contract, Limit, Nest, Schedule, Scope, Sequential, Step
from tiling.loops.limits import in_full
from tiling.proving.contents.computed import Question
from tiling.proving.contents.left_out import LeftOut, limits_of
from tiling.proving.contents.same_expression import same_expression
from tiling.proving.contents.written_and_read import index_of
from tiling.proving.relations import Questions, named, points_where, relation_of

__all__ = ["limit_questions"]

SET = islpy.dim_type.set
_NUMBER = "number_of_limit"


def limit_questions(schedule: Schedule, ask: Questions) -> Iterator[Question]:
    """(obligation, subject, question) for each step that is bounded by a number read."""
    full = in_full(schedule)
    for number, (phase, whole) in enumerate(zip(schedule.phases, full.phases, strict=True)):
        for k, (s, f) in enumerate(zip(phase.steps, whole.steps, strict=True), len(phase.before)):
            if not isinstance(s, Sequential) or not isinstance(f, Sequential) or not s.limits:
                continue
            label = f"phase {number} step {k}"
            block = _Block(schedule, s, (number, k), ask)
            for part, (x, y) in enumerate(zip(s.steps, f.steps, strict=True)):
                if isinstance(x, Nest):
                    yield "bounds", f"{label} part {part}", partial(_stored, schedule, s, x)
                elif isinstance(y, Contract):
                    yield "left out", f"{label} part {part}", partial(ask.ask, partial(block.product, x, y))


def _named(s: Sequential, x: Nest) -> bool:
    """Whether a limit bounds a nest."""
    names = {y.variable for y in s.limits}
    ends = [e for y in x.loops for e in (y.lower, y.upper)] + [e for y in x.segments for e in (y.lower, y.upper)]
    return any(v in names for e in ends for v in e.variables)


def _stored(schedule: Schedule, s: Sequential, x: Nest) -> str | None:
    if not _named(s, x):
        return None
    if x.folds:
        return "a fold ends at a number read"
    targets = {y.buffer for y in x.stores}
    for b in targets:
        if b.scope is not Scope.THREAD:
            return f"{b.name} is not all stored, and others read it"
        if any(b in _touched(schedule, y) for p in schedule.phases for y in (*p.before, *p.steps) if y is not s):
            return f"{b.name} is not all stored, and is read after the block"
    return None


def _touched(schedule: Schedule, step: Step) -> set[Buffer]:
    found: set[Buffer] = set()
    by_value = buffers_by_value(schedule)
    for phase in schedule.phases:
        if any(step is y for y in (*phase.before, *phase.steps)):
            found |= {a.buffer for a in Reader(schedule, by_value, phase, (0, 0), "").step(step)}
    return found


@dataclass(frozen=True, eq=False)
class _Known:
    """An element's coordinates: the op's loops that they are, in names of their own."""

    access: Access
    names: tuple[Var, ...]
    loops: Mapping[Var, Var]  # a loop of the op -> the coordinate that it is


class _Block:
    """The products of a sequential loop, over everything and as they are bounded."""

    def __init__(self, schedule: Schedule, s: Sequential, at: tuple[int, int], ask: Questions) -> None:
        self.schedule, self.s, self.ask = schedule, s, ask
        self.reader = Reader(schedule, buffers_by_value(schedule), schedule.phases[at[0]], at, "")
        flags = {x.flag for x in s.limits}
        self.inputs = {} if None in flags else limits_of(schedule)

    def product(self, bounded: Contract, full: Contract) -> str | None:
        """A product that is left out although it counts."""
        ranges = self.schedule.ranges
        left, out, right = (
            simplify(x.base - y.base, ranges)
            for x, y in ((bounded.left, full.left), (bounded.out, full.out), (bounded.right, full.right))
        )
        if right is not ZERO or simplify(left * bounded.out.row_stride - out * bounded.left.row_stride, ranges) is not ZERO:
            return "a factor begins at another row than the result"
        with self.reader.within(self.s):
            assert self.reader.inside is not None
            prefix = self.reader.inside
            pairs = list(zip(self.reader.contract(bounded), self.reader.contract(full), strict=True))
        left_out = LeftOut(self.schedule, self.inputs, numbers=True)
        conditions = self._conditions(left_out, bounded, [a for _, a in pairs])
        for a, whole in pairs:
            known = self._coordinates(left_out, bounded, whole)
            around = tuple(v for v, _ in prefix.variables)
            every, made = (
                relation_of(x.domain, (*around, *(index_of(x) if known.loops else x.at))).range() for x in (whole, a)
            )
            missing = every.subtract(made)
            if missing.is_empty():
                continue
            mine = [x for x in (_in(c, known) for c in conditions) if x is not None]
            counts = self._counting(missing, prefix, known, mine)
            if not counts.is_empty():
                names = [*(v.name for v in (*around, *known.names)), *(f"number {k}" for k in range(len(self.s.limits)))]
                return f"an element of {a.buffer.name} that counts is left out: {named(counts, names)}"
        return None

    def _coordinates(self, left_out: LeftOut, c: Contract, a: Access) -> _Known:
        """What the coordinates of an accessed element are in the loops of the op."""
        m = left_out.members.get(c.value)
        index: Sequence[Expr] = ()
        if m is not None and a.value is c.value:
            index = m.index
        elif m is not None:
            found = [n for n in m.nodes if isinstance(n, Load) and n.value is a.value]
            index = found[0].index if len(found) == 1 else ()
        loops = {e: Var(f"x{k}") for k, e in enumerate(index) if isinstance(e, Var)}
        return _Known(a, tuple(Var(f"x{k}") for k in range(len(index or a.at))), loops)

    def _conditions(self, left_out: LeftOut, c: Contract, accesses: Sequence[Access]) -> list[Condition]:
        """Where one of them fails a product is zero: in the op's loops, and in the numbers that limits read."""
        numbers = left_out.numbers
        assert numbers is not None
        ranges = self.schedule.ranges
        at: dict[Var, Expr] = {}  # loops of the op that are the block's number, or the task's
        for a in accesses:
            known = self._coordinates(left_out, c, a)
            for loop, name in known.loops.items():
                e = simplify(index_of(a)[known.names.index(name)], ranges)
                if {*e.variables} <= {self.s.loop.variable, *(t for t, _ in self.reader.tiles)}:
                    at[loop] = e
        found = []
        for x in left_out.neutral(c.value):
            v = numbers.of(x)
            if v is None or not {w for e in numbers.numbers[v].arguments for w in e.variables} <= at.keys():
                continue
            node = numbers.numbers[v].at(tuple(substitute(e, at) for e in numbers.numbers[v].arguments), ranges)
            for k, limit in enumerate(self.s.limits):
                if same_expression(limit.node, node, {**ranges, **numbers.ranges}):
                    found.append(Condition(substitute(x.expression, {v: _number(k)}), x.lower, x.upper))
        return found

    def _counting(
        self, missing: islpy.Set, prefix: Domain, known: _Known, conditions: Sequence[Condition]
    ) -> islpy.Set:
        """Of these elements those where all conditions hold, for the numbers that give the limits."""
        limits = self.s.limits
        numbers = tuple((_number(k), EVERYTHING) for k in range(len(limits)))
        spans = tuple((v, EVERYTHING) for v in known.names)
        d = Domain((*prefix.variables, *spans, *numbers), ())
        found = missing.add_dims(SET, len(limits)).intersect(points_where(d, conditions))
        for k, x in enumerate(limits):
            found = found.intersect(_clamped(d, x, _number(k)))
        return found


def _in(c: Condition, known: _Known) -> Condition | None:
    """A condition in an element's coordinates; None where they do not tell."""
    own = {v for v in c.expression.variables if not v.name.startswith(_NUMBER)}
    return Condition(substitute(as_expr(c.expression), known.loops), c.lower, c.upper) if own <= known.loops.keys() else None


def _number(k: int) -> Var:
    return Var(f"{_NUMBER}{k}")


def _clamped(d: Domain, x: Limit, number: Var) -> islpy.Set:
    """The points where a limit is the number less its origin, moved into its range."""
    least, most = EVERYTHING.lower, EVERYTHING.upper
    shift = number - x.origin
    ways = (
        [Condition(x.variable - shift, 0, 0)],
        [Condition(x.variable - x.lower, 0, 0), Condition(shift - x.lower, least, -1)],
        [Condition(x.variable - x.upper, 0, 0), Condition(shift - x.upper, 1, most)],
    )
    found: islpy.Set | None = None
    for way in ways:
        part = points_where(d, way)
        found = part if found is None else found.union(part)
    assert found is not None
    return found
