"""Expressions beside those that the ops' access functions give: symbol by symbol, then at points, last with numbers.

    `Compared`    what the checks of all kinds of statements share: the nests of a schedule, and the comparison
    `Place`       a statement's iterations;  `Taken`  what an op folds, and at which index of its range
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import islpy
import numpy as np

from hlo.access import Condition
from hlo.module import Op, Value
from hlo.registry import SumOfProducts
from hlo.types import ElementType
from indexing.deriving.edges import EdgeMaps
from indexing.expr import Const, Expr, Interval, Var, as_expr, interval, simplify, substitute
from tiling.elements.build import ElementBuilder
from tiling.elements.folds import combined_function
from tiling.elements.monoids import Known
from tiling.loops.domains.iterations import Domain
from tiling.loops.element_ir import (
    Choose,
    IndexNode,
    Load,
    Node,
    Renamer,
    Scalar,
    all_nodes,
    has_runtimes,
    loads,
)
from tiling.loops.ir import Contract, FoldStep, Loop, Nest, Schedule, Sequential, Store
from tiling.proving.contents.same_expression import (
    Comparison,
    Point,
    is_fold,
    is_made_elsewhere,
)
from tiling.proving.contents.statements import (
    conditions,
    is_copy,
    is_zero,
    reduced,
    reductions,
    sample,
    scans,
    shown,
    states,
    substituted,
)
from tiling.proving.contents.tables import tables_of
from tiling.proving.contents.trial import Trial, Untried, apply, close
from tiling.proving.nests import nests_of
from tiling.proving.relations import Questions, Undecided, points_of, points_where

__all__ = ["Assumed", "Compared", "Different", "Place", "Taken"]

SET = islpy.dim_type.set
MOST_POINTS = 96
MOST_OF_FEW = 48  # iterations, that are all compared
MOST_TOGETHER = 12  # conditions that are made to hold together
MOST_IN_A_ROW = 32  # iterations one after the other, where an iteration's number is computed with
MOST_TERMS = 256
TRIALS, MOST_TRIALS = 3, 24  # with numbers on both sides: where a select gives no number, elements are drawn again
TRIALS_OF_INTEGERS = 64  # which may be compared with places, and seldom are one beside the other


class Different(Exception):
    """Carries what a statement plainly does otherwise than its op."""


@dataclass(frozen=True)
class Taken:
    """The nodes that an op `wanted`, their `free` variables `solved` for; `made` of them are its range's. `at` is the result."""

    wanted: tuple[Node, ...]
    solved: Mapping[Var, Expr]
    free: tuple[Var, ...]
    ranges: dict[Var, Interval]
    at: tuple[Expr, ...]
    made: tuple[Var, ...]


class Assumed(Exception):
    """Carries what is taken for granted where a statement is not compared."""


@dataclass(frozen=True, eq=False)
class Place:
    """A statement's surroundings: its iterations, and its name."""

    domain: Domain
    label: str
    reduction: tuple[Loop, ...] = ()
    is_scan: bool = False
    beside: tuple[Store, ...] = ()  # the stores of the same nest
    reduced: tuple[Var, ...] = ()  # the variables of all reduction loops


class Compared:
    """The statements of a schedule, and comparisons of their expressions with the ops' own."""

    def __init__(self, schedule: Schedule, ask: Questions, lowered: Compared | None = None) -> None:
        self.schedule, self.ask, self.lowered = schedule, ask, lowered
        self.edges = EdgeMaps()
        self.states = states(schedule)
        self.monoids: Known = {}
        self.tables = tables_of(schedule)
        steps = [s for p in schedule.phases for s in (*p.before, *p.all_steps)]
        self.running = {
            v for s in steps if isinstance(s, Sequential) for x in s.steps if isinstance(x, (Nest, Contract)) for v in x.values
        }  # fmt: skip
        self.contracted = {s.value for s in steps if isinstance(s, Contract)}
        self.products = {
            f.values[0] for s in steps if isinstance(s, Nest) for f in s.folds
            if isinstance(f.op.definition.semantics, SumOfProducts)
        }  # fmt: skip
        self.folds: dict[Value, list[tuple[FoldStep, Nest, Place, bool]]] = {}
        for nest, place, _ in self.nests():
            for f in nest.folds:
                self.folds.setdefault(f.values[0], []).append((f, nest, place, place.domain.blocks > 0))

    def nests(self) -> Iterator[tuple[Nest, Place, Op | None]]:
        """Every nest with its iterations; the op whose factors it packs, if it does."""
        for x in nests_of(self.schedule):
            n, is_pack = x.nest, x.packs_for is not None
            shape = ((), False, (), ()) if is_pack else (reductions(n), scans(n), n.stores, reduced(n))
            yield n, Place(x.domain(n.loops, ()), x.label, *shape), x.packs_for

    @staticmethod
    def _told(question: Callable[[], str | None]) -> str | None:
        try:
            return question()
        except Different as reason:
            return str(reason)

    @staticmethod
    def _are_same(found: Sequence[Node], wanted: Sequence[Node], ranges: Mapping[Var, Interval], solved: Point) -> bool:
        """Whether expressions are the same everywhere, symbol by symbol."""
        symbols = Comparison(ranges, solved)
        return len(found) == len(wanted) and all(symbols.same(a, b) for a, b in zip(found, wanted, strict=True))

    def _folded(self, load: Load, compare: Comparison, place: Place, kept: set[Value]) -> list[Node]:
        """The initial value and all elements that an op folds for one of its results, at a point."""
        op = load.value.op
        assert op is not None
        builder, ranges = self._builder(place, kept)
        index = tuple(simplify(substitute(compare.index(e), compare.names), ranges) for e in load.index)
        made: list[tuple[Var, int]] = []

        def provide(size: int) -> Expr:
            made.append((Var(f"q{len(made)}_wanted"), size))
            ranges[made[-1][0]] = Interval(0, max(size - 1, 0))
            return made[-1][0]

        start = builder.at(op.operands[1], ())
        (node, *_) = builder.reads(op, 0, index, provide)
        if prod(n for _, n in made) > MOST_TERMS or has_runtimes([node]):
            raise Undecided(f"{op.name} folds more elements than are written out")
        points: list[dict[Var, Expr]] = [{}]
        for v, n in made:
            points = [{**p, v: Const(k)} for p in points for k in range(n)]
        return [start, *(Renamer(p, ranges, {}).node(node) for p in points)]

    def _ranges(self, place: Place) -> dict[Var, Interval]:
        return {**self.schedule.ranges, **place.domain.ranges}

    def _building(self, ranges: dict[Var, Interval], kept: set[Value], itself: Value | None = None) -> ElementBuilder:
        """Elements over some ranges, down to what is kept; but for `itself`, which is built though it is kept."""
        return ElementBuilder(ranges, lambda v: v is not itself and (v in kept or is_made_elsewhere(v)), self.edges)

    def _builder(self, place: Place, kept: set[Value]) -> tuple[ElementBuilder, dict[Var, Interval]]:
        ranges = self._ranges(place)
        return self._building(ranges, kept), ranges

    def _element(
        self, v: Value, index: tuple[Expr, ...], place: Place, kept: set[Value], itself: Value | None
    ) -> Node:
        ranges = self._ranges(place)
        builder = self._building(ranges, kept, itself)
        try:
            return builder.at(v, index)
        except LookupError as reason:
            raise Undecided(str(reason)) from None

    def _compare(
        self, found: Sequence[Node], wanted: Sequence[Node], place: Place, solved: Point, zeros: bool = False,
        is_product: bool = False,
    ) -> str | None:  # fmt: skip
        """Where expressions differ, or None. `solved` are the wanted ones' variables in the found ones'."""
        ranges, kept = self._ranges(place), {x.value for x in loads(list(found))}
        symbols, open_ = Comparison(ranges, solved), None
        if all(symbols.same(a, b) for a, b in zip(found, wanted, strict=True)):
            return None
        for at in self._points(place, found, [substituted(c, solved) for n in wanted for c in conditions([n])]):
            fixed = {**{v: substitute(e, at) for v, e in solved.items()}, **at}
            compare = Comparison(ranges, fixed, lambda load, c: self._folded(load, c, place, kept))
            if all(compare.same(a, b) or compare.is_padding(a, b) for a, b in zip(found, wanted, strict=True)):
                continue
            nothing = any(is_zero(compare.settled(n)) for n in wanted)
            if is_product and nothing and any(is_zero(compare.settled(n)) or is_copy(n) for n in found):
                continue
            if zeros and all(is_zero(compare.settled(n)) for n in found) and not self._is_inside(found[0], solved, at, ranges):
                continue
            is_constant = any(isinstance(compare.settled(n), Scalar) and not is_zero(compare.settled(n)) for n in found)
            if zeros and is_constant and isinstance(compare.settled(wanted[0]), Load):
                return f"a constant that is no zero stands for an element at {shown(at)}"
            try:
                if self._differ(found, wanted, place, ranges, fixed, kept, is_product):
                    return f"the op computes something else at {shown(at)}"
            except Undecided as reason:
                open_ = open_ or str(reason)  # another point may tell
        if open_ is not None:
            raise Undecided(open_)
        return None

    def _differ(
        self, found: Sequence[Node], wanted: Sequence[Node], place: Place, ranges: dict[Var, Interval], at: Point,
        kept: set[Value], is_product: bool,
    ) -> bool:  # fmt: skip
        """Whether two expressions that are written differently have different values for some elements, drawn by lot."""

        def folded(load: Load, trial: Trial) -> float:
            if load.value in kept or not is_fold(load.value):
                return trial.lot(load)
            op = load.value.op
            assert op is not None
            function = combined_function(op.regions[0])
            if function is None:
                raise Untried("a fold of its own kind")
            compare = Comparison(ranges, trial.at)
            terms = [trial.number(n) for n in self._folded(load, compare, place, kept)]
            total = terms[0]
            for x in terms[1:]:
                total = apply(op.regions[0].ops[0], function, (total, x))
            return total

        # What is read through copies and running results: a number for each value, where both read the same values.
        running = {x.value for x in loads(list(found)) if x.buffer is not None}
        compare = Comparison(ranges, at)
        if running and compare.values(found) != compare.values(wanted):
            raise Undecided("it is not written as the op's, and reads other values through copies")
        told = 0
        wanted_trials = TRIALS_OF_INTEGERS if any(_is_whole(x.value) for x in loads(list(found))) else TRIALS
        places: dict[Value, int] = {}
        try:
            for seed in range(max(MOST_TRIALS, wanted_trials)):
                mine, other = (
                    [Trial(ranges, at, seed, folded, places, running).number(n) for n in nodes] for nodes in (found, wanted)
                )
                if is_product:
                    mine, other = [float(np.prod(mine))], [float(np.prod(other))]
                if not all(map(close, mine, other)):
                    return True
                told += not any(x != x for x in mine)
                if told == wanted_trials:
                    break
        except Untried as reason:
            raise Undecided(f"it is not written as the op's, and {reason}") from None
        if not told:
            raise Undecided("it is not written as the op's, and no number tells them apart")
        if running:
            raise Undecided("it is not written as the op's, and takes copies for one number each")
        return False

    def _is_inside(self, node: Node, solved: Point, at: Point, ranges: Mapping[Var, Interval]) -> bool:
        """Whether the operand's element that a packed factor stands for is there at a point."""
        for n in all_nodes([node]):
            if isinstance(n, Choose):
                for load in loads([n.then]):
                    for e, size in zip(load.index, load.value.shape, strict=True):
                        b = interval(simplify(substitute(e, at), ranges), ranges)
                        if b.lower < 0 or b.upper >= size:
                            return False
        return not any("mod" in str(c.expression) for c in conditions([node]))

    def _points(self, place: Place, found: Sequence[Node], more: Sequence[Condition]) -> list[dict[Var, Expr]]:
        """Iterations of a statement: all of few; else corners, of the part where each condition holds or fails as well, and both
        sides of each condition's ends, with as many of the other conditions as can hold there. Of a loop whose number is computed
        with, also some in a row: where it is divided and rounded down, most neighbours give the same, and every d-th does not.
        """
        d = place.domain
        every = points_of(d)
        chosen: dict[tuple[int, ...], None] = {}

        def take(s: islpy.Set) -> None:
            p = sample(s) if len(chosen) < MOST_POINTS else None
            if p is not None:
                chosen[p] = None

        if prod(b.size for _, b in d.variables) <= MOST_OF_FEW:
            every.foreach_point(lambda p: take(islpy.Set.from_point(p)))
            return [{v: Const(x) for (v, _), x in zip(d.variables, p, strict=True)} for p in chosen]
        take(every)
        for v, b in d.variables:
            for x in dict.fromkeys((b.lower, b.upper, (b.lower + b.upper) // 2)):
                take(every.intersect(points_where(d, [Condition(v, x, x)])))
        known = set(d.ranges)
        asked = [c for c in dict.fromkeys((*conditions(found), *more)) if known.issuperset(as_expr(c.expression).variables)]
        held = {c: points_where(d, [c]) for c in asked}
        for c in asked:
            for part in (every.intersect(held[c]), every.subtract(held[c])):
                if not part.is_empty():
                    take(part.lexmin())
                    take(part.lexmax())
        for c in asked:
            e = as_expr(c.expression)
            b = interval(e, d.ranges)
            for x in dict.fromkeys((c.lower - 1, c.lower, c.upper, c.upper + 1)):
                if b.lower <= x <= b.upper and len(chosen) < MOST_POINTS:
                    at = every.intersect(points_where(d, [Condition(e, x, x)]))
                    take(at)
                    for other in asked[:MOST_TOGETHER]:
                        both = at.intersect(held[other])
                        at = at if other is c or both.is_empty() else both
                    take(at)
        numbers = {v for n in all_nodes(list(found)) if isinstance(n, IndexNode) for v in n.expression.variables}
        for v, b in d.variables:
            first = max(b.lower, (b.lower + b.upper - MOST_IN_A_ROW) // 2)
            for x in range(first, min(b.upper + 1, first + MOST_IN_A_ROW)) if v in numbers else ():
                take(every.intersect(points_where(d, [Condition(v, x, x)])))
        return [{v: Const(x) for (v, _), x in zip(d.variables, p, strict=True)} for p in chosen]


def _is_whole(v: Value) -> bool:
    return isinstance(v.tensor.element, ElementType) and v.tensor.element.is_integer
