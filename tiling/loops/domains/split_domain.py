"""Index-set splitting: a domain is cut where conditions begin and end to hold, into disjoint parts that cover it.

    split_domain     lower <= v <= upper   ->   v < first;  first <= v <= last;  last < v       first <= v <= last: the condition
    residue_class    v mod d = r           ->   v = d w + r for w in [0, (upper - r) // d]
    pinned           lower = v = upper     ->   no loop
    points_of        v in [0, n - 1]       ->   v = 0;  v = 1;  …  v = n - 1

Which condition is worth a cut, each pass says for itself. A `Part` says what is known there, and a `Rewriting` is what a nest
does on it: without the conditions that are known, in the part's own variables.

Disjoint and covering, whatever the ends are: with s for `first`, t for `last`, the parts are
[lower, min(upper, s - 1)], [max(lower, s), min(upper, t)] and [max(lower, s, t + 1), upper]. An iteration v < s is in the first
alone; one with s <= v <= t in the second alone; every other has v >= s and v > t, and is in the third alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from hlo.access import Condition
from indexing.expr import (
    EVERYTHING,
    Bounds,
    Const,
    Expr,
    Interval,
    Maximum,
    Minimum,
    Var,
    as_expr,
    interval,
    maximum,
    minimum,
    simplify,
    substitute,
)  # fmt: skip
from tiling.loops.domains.conditions import range_of, settled, translated, within
from tiling.loops.domains.inside import is_at_most
from tiling.loops.element_ir import Load, Node, Reread, Runtime, rebuild
from tiling.loops.ir import Loop, Nest
from tiling.loops.variables import fresh_variable

__all__ = ["Part", "Rewriting", "pinned", "points_of", "residue_class", "split_domain", "split_whole_groups", "where_all_hold"]

ONCE = Var("whole")
"""Of a loop around a domain that a condition on none of its loops cuts."""

Conjunction = Sequence[Condition]
LoopEnds = tuple[list[Expr], list[Expr]]
"""Where several conditions begin, and where they end to hold along a loop."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some iterations of a domain: its loops over these, conditions that hold there (or do not), what variables without a loop
    are, and whether all conditions hold that the domain was cut at."""

    loops: tuple[Loop, ...]
    truth: Mapping[Condition, bool] = field(default_factory=dict)
    at: Mapping[Var, Expr] = field(default_factory=dict)
    is_inside: bool = True


# ---------------------------------------------------------------- cuts


def split_domain(loops: Sequence[Loop], cuts: Sequence[Conjunction], ranges: dict[Var, Interval]) -> list[Part] | None:
    """The parts of a domain, cut at each conjunction of conditions; None where one of its conditions bounds two loops at once.

    Where a conjunction holds is one part. A single condition is known to fail on the others; of several nothing is known there.
    Parts that one loop was cut into are in ascending order; else those come first where a conjunction does not hold. A condition
    on none of the loops becomes a loop around them, of one iteration or none; its variable's range is added to `ranges`. Parts
    that are always empty are left out.

    >>> i = Var("i")
    >>> parts = split_domain([Loop(i, Const(0), Const(9), 10)], [[Condition(i - Var("t"), 0, 4)]], {Var("t"): Interval(0, 9)})
    >>> for p in parts or ():
    ...     print(p.loops[0], *p.truth.values())
    for i in [0, t - 1] False
    for i in [t, min(t + 4, 9)] True
    for i in [t + 5, 9] False
    """
    parts = [Part(tuple(loops))]
    for conjunction in cuts:
        made: list[Part] = []
        for p in parts:
            found = _cut(p, conjunction, ranges)
            if found is None:
                return None
            made += found
        parts = made
    if any(x.variable is ONCE for p in parts for x in p.loops):
        ranges[ONCE] = Interval(0, 0)
    return parts


def split_whole_groups(loop: Loop, size: int, ranges: dict[Var, Interval]) -> tuple[Part | None, Part | None]:
    """A loop from 0 on, cut behind its last whole group of `size` iterations: the groups and the rest, where there are any.

    >>> [str(p.loops[0]) for p in split_whole_groups(Loop(Var("i"), Const(0), Const(9), 10), 4, {}) if p is not None]
    ['for i in [0, 7]', 'for i in [8, 9]']
    """
    whole = Condition(loop.variable - simplify((loop.upper + 1) // size * size, ranges), EVERYTHING.lower, -1)
    found = {p.is_inside: p for p in split_domain([loop], [[whole]], ranges) or ()}
    rest = found.get(False)
    if rest is not None:
        (few,) = rest.loops
        rest = replace(rest, loops=(replace(few, extent=min(few.extent, size - 1)),))
    return found.get(True), rest


def residue_class(loop: Loop, step: int, residue: int, variable: Var, ranges: Mapping[Var, Interval]) -> Part:
    """The iterations `residue`, `residue + step`, … of a loop from 0 on, of which there is at least one: `variable` counts them.

    >>> part = residue_class(Loop(Var("i"), Const(0), Const(9), 10), 4, 1, Var("j"), {})
    >>> print(part.loops[0], part.at[Var("i")])
    for j in [0, 2] j * 4 + 1
    """
    count = (loop.extent - 1 - residue) // step + 1
    made = replace(loop, variable=variable, upper=simplify((loop.upper - residue) // step, ranges), extent=count)
    return Part((made,), {}, {loop.variable: (as_expr(variable) if count > 1 else Const(0)) * step + residue})


def pinned(part: Part, loops: Sequence[Loop]) -> Part:
    """A part without those of its loops that run once and are not among `loops`, the domain's: their variables are known.

    Nothing is written for a loop over [0, 0]: the schedule's ranges say that its variable is 0. They do not for one that was cut
    down to that, which may not stay a loop of a nest.
    """
    once = [x for x in part.loops if x.runs_once and not any(x is y for y in loops)]
    at = {x.variable: x.lower for x in once}
    rest = (x for x in part.loops if x.variable not in at)
    bounded = tuple(replace(x, lower=substitute(x.lower, at), upper=substitute(x.upper, at)) for x in rest)
    return replace(part, loops=bounded, at={**part.at, **at})


def points_of(loops: Sequence[Loop]) -> list[Part]:
    """The iterations of whole loops one by one, in order: parts without a loop.

    >>> [str(e) for p in points_of([Loop(Var("i"), Const(0), Const(2), 3)]) for e in p.at.values()]
    ['0', '1', '2']
    """
    points = product(*(map(Const, range(x.extent)) for x in loops))
    return [Part((), {}, {x.variable: e for x, e in zip(loops, at, strict=True)}) for at in points]


def where_all_hold(loops: Sequence[Loop], conditions: Conjunction, ranges: Mapping[Var, Interval]) -> Part:
    """The one part of a domain in which all conditions hold, each of which bounds at most one loop; it may be empty.

    >>> i, t = Var("i"), Var("t")
    >>> print(*where_all_hold([Loop(i, Const(0), Const(9), 10)], [Condition(i - t, 0, 4)], {t: Interval(0, 9)}).loops)
    for i in [t, min(t + 4, 9)]
    """
    ends = _ends_along(loops, conditions)
    if ends is None:
        raise ValueError("expected conditions on one loop each; found one on two, or one that is no range")
    narrowed = tuple(loops)
    for x, along in ends.items():
        narrowed = _with(narrowed, x, _inside(x, along, ranges))
    return Part(narrowed, dict.fromkeys(conditions, True))


def _cut(part: Part, conjunction: Conjunction, ranges: Mapping[Var, Interval]) -> list[Part] | None:
    ends = _ends_along(part.loops, conjunction)
    if ends is None:
        return None
    outside = {**part.truth, conjunction[0]: False} if len(conjunction) == 1 else part.truth
    loops, found, behind = part.loops, list[Part](), 0
    for x, along in ends.items():
        before, after = _outside(x, along, ranges)
        found += [Part(_with(loops, x, y), outside, part.at, False) for y in (before, after) if y is not None]
        loops = _with(loops, x, _inside(x, along, ranges))
        behind = int(before is not None) if len(ends) == 1 else len(found)
    found.insert(behind, replace(part, loops=loops, truth={**part.truth, **dict.fromkeys(conjunction, True)}))
    return [p for p in found if all(x.extent for x in p.loops)]


def _inside(loop: Loop, ends: LoopEnds, ranges: Mapping[Var, Interval]) -> Loop:
    firsts, lasts = ends
    return _over(loop, _least((loop.lower, *firsts), ranges, -1), _least((loop.upper, *lasts), ranges), ranges)


def _outside(loop: Loop, ends: LoopEnds, ranges: Mapping[Var, Interval]) -> tuple[Loop | None, Loop | None]:
    """A loop before and after these ends; None where there is no such end."""
    firsts, lasts = ends
    before = after = None
    if firsts:
        before = _over(loop, loop.lower, _least((loop.upper, maximum(*firsts) - 1), ranges), ranges)
    if lasts:
        last = minimum(*lasts)
        apart = [e for e in firsts if not is_at_most(Bounds(ranges), e - last, 1)]  # nothing between `before` and here
        after = _over(loop, _least((loop.lower, last + 1, *apart), ranges, -1), loop.upper, ranges)
    return before, after


def _with(loops: tuple[Loop, ...], x: Loop, made: Loop) -> tuple[Loop, ...]:
    """Loops with one of them made another; a new one goes around them."""
    return tuple(made if y is x else y for y in loops) if x in loops else (made, *loops)


def _ends_along(loops: Sequence[Loop], conjunction: Conjunction) -> dict[Loop, LoopEnds] | None:
    """Where a conjunction begins and ends to hold along each loop, outermost first; None where two loops are tied."""
    once = next((x for x in loops if x.variable is ONCE), Loop(ONCE, Const(0), Const(0), 1))
    found: dict[Loop, LoopEnds] = {x: ([], []) for x in (once, *loops)}
    for c in conjunction:
        mine = [x for x in loops if x.variable in c.expression.variables]
        if len(mine) > 1:
            return None
        # A condition on no loop holds in [0, 0] of one that runs once: 0 is at least what is missing on either side.
        ends = range_of(c, mine[0].variable) if mine else None
        if mine and ends is None:
            return None
        firsts, lasts = found[mine[0] if mine else once]
        if ends is None:
            firsts += [c.lower - c.expression] if c.lower > EVERYTHING.lower else []
            firsts += [c.expression - c.upper] if c.upper < EVERYTHING.upper else []
        else:
            firsts += [ends[0]] if ends[0] is not None else []
            lasts += [ends[1]] if ends[1] is not None else []
    return {x: ends for x, ends in found.items() if ends != ([], [])}


def _over(loop: Loop, lower: Expr, upper: Expr, ranges: Mapping[Var, Interval]) -> Loop:
    """The loop over [lower, upper]; of extent 0 where that is always empty."""
    most = interval(simplify(upper - lower, ranges), ranges).upper + 1
    return replace(loop, lower=lower, upper=upper, extent=max(0, min(loop.extent, most)))


def _least(of: Sequence[Expr], ranges: Mapping[Var, Interval], sign: int = 1) -> Expr:
    """The least of some expressions, without those that are known to be no less than another; for the sign -1 the greatest."""
    pick = minimum if sign > 0 else maximum
    least = simplify(pick(*of), ranges)
    if not isinstance(least, (Minimum, Maximum)):
        return least
    bounds, kept = Bounds(ranges), list(dict.fromkeys(of))
    for e in tuple(kept):
        if any(is_at_most(bounds, (x - e) * sign, 0) for x in kept if x is not e):
            kept.remove(e)
    return simplify(pick(*kept), ranges)


# ---------------------------------------------------------------- what is done on a part


class Rewriting:
    """What stores, folds and nodes are on a part of their domain. Nodes that several of them share stay shared.

    Where the part's variables are others than the loops', what is known at run time has variables of its own in `ranges`.
    """

    def __init__(self, part: Part, ranges: dict[Var, Interval]) -> None:
        self.part, self.ranges = part, ranges
        self.at: dict[Var, Expr] = dict(part.at)
        self.copies: dict[Hashable, Runtime] = {}
        self.truth = {translated(c, part.at, ranges): t for c, t in part.truth.items()} if part.at else part.truth
        self.inside = {**ranges, **{x.variable: b for x in part.loops if not (b := _reach(x, ranges)).is_empty}}
        self.memo: dict[Node, Node] = {}
        self.reread = Reread(self.memo)

    def index(self, index: Sequence[Expr]) -> tuple[Expr, ...]:
        if not self.part.at:
            return tuple(index)
        return tuple(simplify(substitute(e, self.at), self.ranges) for e in index)

    def node(self, node: Node) -> Node:
        return rebuild(node, self._load, self.index, self.memo, self._settled, self._known if self.part.at else tuple)

    def _known(self, runtimes: Sequence[Runtime]) -> tuple[Runtime, ...]:
        """Variables that stand for what is known at run time on the part: one for each, however often it is written down."""
        made: list[Runtime] = []
        for r in runtimes:
            key, node = (r.variable, r.node, r.lower, r.upper), self.memo[r.node]
            if key not in self.copies:
                self.copies[key] = r if node is r.node else replace(r, variable=self._another(r), node=node)
            made.append(self.copies[key])
            self.at[r.variable] = made[-1].variable
        return tuple(made)

    def _another(self, r: Runtime) -> Var:
        return fresh_variable(r.variable.name, Interval(r.lower, r.upper), self.ranges)

    def nest(self, nest: Nest) -> Nest:
        """The nest over the part."""
        return nest.rewritten(self, self.over(nest.loops))

    def over(self, loops: Sequence[Loop]) -> tuple[Loop, ...]:
        """Loops, some of which were cut, with the part's in their place; a new one that replaces none goes around them."""
        new, made = {x.variable: x for x in self.part.loops}, list[Loop]()
        for x in loops:
            if x.variable in self.part.at:
                made += [new.pop(v) for v in self.part.at[x.variable].variables if v in new]
            else:
                made.append(new.pop(x.variable) if x.variable in new else self._loop(x))
        return (*new.values(), *made)

    def _loop(self, x: Loop) -> Loop:
        lower, upper = self.index((x.lower, x.upper))
        return replace(x, lower=lower, upper=upper)

    def _load(self, load: Load) -> Node:
        return Load(load.value, self.index(load.index), load.buffer, load.runtimes) if self.part.at else load

    def _settled(self, n: Node) -> Node:
        """The node where its conditions are known. Where the part keeps the loops' own variables, what places are computed from
        is settled, too."""
        made = settled(n, self.decide)
        return made if self.part.at else self.reread.own(made)

    def decide(self, c: Condition) -> Condition | bool:
        """What is known of a condition in the part's own variables."""
        known = self.truth.get(c)
        return known if known is not None else within(c, self.inside)


def _reach(x: Loop, ranges: Mapping[Var, Interval]) -> Interval:
    """All that a loop's variable can be, as its ends and the variable's own range say."""
    first, last = interval(x.lower, ranges).lower, interval(x.upper, ranges).upper
    own = ranges.get(x.variable, EVERYTHING)
    return Interval(max(first, own.lower), min(last, own.upper))
