"""What a statement of a schedule is: a copy, a zero, a fold from its start; which elements of an op it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import islpy

from hlo.access import Condition
from hlo.module import Value
from indexing.expr import Const, Expr, FloorDiv, Interval, Mod, Var, as_expr, from_terms, interval, simplify, substitute
from tiling.elements.folds import is_neutral
from tiling.loops.affine import linear
from tiling.loops.domains.iterations import Domain
from tiling.loops.element_ir import (
    Apply,
    Choose,
    IndexNode,
    Load,
    Node,
    Scalar,
    Test,
    all_nodes,
    children,
    loads,
    own_expressions,
)
from tiling.loops.ir import Buffer, FoldStep, Loop, LoopKind, Nest, Schedule, Sequential
from tiling.proving.contents.same_expression import Point
from tiling.proving.relations import coordinates

__all__ = [
    "changes_nothing",
    "conditions",
    "filled_from",
    "is_copy",
    "is_one",
    "is_plus_zero",
    "is_zero",
    "matched",
    "pairs",
    "reduced",
    "reductions",
    "sample",
    "scans",
    "shown",
    "solutions",
    "solve_for",
    "starting",
    "states",
    "substituted",
    "unscaled",
]

SET = islpy.dim_type.set


def states(schedule: Schedule) -> dict[Buffer, Value]:
    """The buffers in which a sequential loop keeps running results that it rescales, with the values that those are of."""
    found: dict[Buffer, Value] = {}
    for step in (s for p in schedule.phases for s in p.steps if isinstance(s, Sequential)):
        for nest in (s for s in step.steps if isinstance(s, Nest)):
            found |= {x.buffer: x.value for x in loads(nest.roots) if x.buffer is not None}
    return found


def filled_from(result: Value) -> Value | None:
    """What a scatter's or a selection's result holds before anything is folded in."""
    op = result.op
    assert op is not None
    if op.name.endswith("select_and_scatter"):
        return op.operands[2]
    return op.operands[result.index] if op.name.endswith("scatter") else None


def is_zero(n: Node) -> bool:
    return isinstance(n, Scalar) and not n.value.astype(bool) if isinstance(n, Scalar) else False


def reduced(nest: Nest) -> tuple[Var, ...]:
    return tuple(x.variable for x in nest.loops if x.kind is LoopKind.REDUCTION)


def is_plus_zero(n: Node) -> bool:
    return isinstance(n, Scalar) and not any(n.value.tobytes())


def reductions(nest: Nest) -> tuple[Loop, ...]:
    return tuple(x for x in nest.loops if x.kind is LoopKind.REDUCTION and x.lower is Const(0))


def starting(f: FoldStep, nest: Nest, d: Domain) -> tuple[Domain, tuple[Expr, ...]]:
    """The iterations that start a fold's elements, and for each the task, the block and the element."""
    reduced = {x.variable for x in nest.loops if x.kind is LoopKind.REDUCTION}
    own = tuple((v, b) for v, b in d.variables if v not in reduced)
    known = {v for v, _ in own}
    held = tuple(c for c in d.held if known.issuperset(as_expr(c.expression).variables))
    around = tuple(v for v, _ in d.variables[: d.shared + d.blocks])
    return Domain(own, held), (*around, *f.index)


def scans(nest: Nest) -> bool:
    return any(x.kind is LoopKind.SCAN for x in nest.loops)


def is_copy(n: Node) -> bool:
    return isinstance(n, Load) and n.buffer is not None


def is_one(n: Node) -> bool:
    return isinstance(n, Scalar) and bool(n.value == 1)


def changes_nothing(n: Node, start: Node | None, function: str | None) -> bool:
    """Whether folding in a constant leaves a result as it is: it is the initial value, or neutral; in a product it is zero."""
    if not isinstance(n, Scalar):
        return False
    if isinstance(start, Scalar) and start.value.tobytes() == n.value.tobytes():
        return True
    return function is not None and is_neutral(function, n.value, n.element)


def unscaled(n: Node) -> Node:
    """What an online form folds, without the power of two by which it is kept small."""
    if isinstance(n, Apply) and n.function == "multiply" and isinstance(n.arguments[1], Scalar):
        return n.arguments[0]
    return n


def conditions(roots: Iterable[Node]) -> list[Condition]:
    return [c for n in all_nodes(list(roots)) if isinstance(n, (Choose, Test)) for c in n.conditions]


def substituted(c: Condition, at: Point) -> Condition:
    return Condition(substitute(as_expr(c.expression), at), c.lower, c.upper)


def solutions(
    wanted: Sequence[Node], found: Sequence[Node], free: Sequence[Var], ranges: Mapping[Var, Interval]
) -> Iterator[dict[Var, Expr]]:
    """Candidates for the free variables of the wanted expressions, in the variables of the found ones; at least one.

    By what is loaded, and by how the expressions are written: between holes loads do not tell one index from the next.
    """
    by_loads = solve_for(wanted, found, free, ranges)
    yield by_loads
    by_form = _Unifier(free, ranges).solved(wanted, found)
    if by_form != by_loads and by_form:
        yield {**by_loads, **by_form}


def solve_for(
    wanted: Sequence[Node], found: Sequence[Node], free: Sequence[Var], ranges: Mapping[Var, Interval]
) -> dict[Var, Expr]:
    """The free variables of the wanted expressions in those of the found ones, from loads of the same value in the same order."""
    solved: dict[Var, Expr] = {}
    left = [x for x in loads(list(wanted)) if x.buffer is None]
    right = [x for x in loads(list(found)) if x.buffer is None]
    equations = [(x, y) for a, b in pairs(left, right) for x, y in zip(a.index, b.index, strict=True)]
    numbers = [[n.expression for n in all_nodes(list(x)) if isinstance(n, IndexNode)] for x in (wanted, found)]
    if len(numbers[0]) == len(numbers[1]):
        equations += zip(*numbers, strict=True)
    parts: dict[tuple[Expr, int, type], Expr] = {}
    for c in conditions(wanted):  # between holes: at every k-th place
        e = as_expr(c.expression)
        if isinstance(e, Mod) and isinstance(e.divisor, int) and c.lower == c.upper:
            parts[e.numerator, e.divisor, Mod] = Const(c.lower)
    for _ in range(4):
        for x, y in list(equations):
            e = simplify(substitute(x, solved), ranges)
            inside = [v for v in e.variables if v in free]
            if len(inside) > 1:
                equations += [q for q in _digits(e, y, ranges) if q not in equations]
            if len(inside) != 1:
                continue
            (v,) = inside
            known = linear(e, inside)
            if known is not None and known[1][0]:
                rest, (step,) = simplify(y - known[0], ranges), known[1]
                if rest.constant % step == 0 and all(k % step == 0 for _, k in rest.terms):
                    solved[v] = simplify(from_terms(rest.constant // step, {x: k // step for x, k in rest.terms}), ranges)
                continue
            # A number's digits: n // k and n % k, both known, are n.
            for atom, k in e.terms:
                if isinstance(atom, (FloorDiv, Mod)) and isinstance(atom.divisor, int) and v in atom.variables and k == 1:
                    rest = e - atom
                    parts[atom.numerator, atom.divisor, type(atom)] = y - rest if v not in rest.variables else y
        for (numerator, n, kind), y in list(parts.items()):
            low = parts.get((numerator, n, Mod))
            if kind is FloorDiv and low is not None:
                equations.append((numerator, simplify(y * n + low, ranges)))
    for v in free:
        if v not in solved and ranges[v].size <= 1:
            solved[v] = Const(0)
    return solved


def _digits(e: Expr, y: Expr, ranges: Mapping[Var, Interval]) -> list[tuple[Expr, Expr]]:
    """k * high + low = y, where low is in [0, k - 1], as two equations."""
    terms = sorted(e.terms, key=lambda t: t[1])
    if not terms or terms[-1][1] < 2:
        return []
    high, k = terms[-1]
    low = simplify(e - high * k, ranges)
    if not Interval(0, k - 1).covers(interval(low, ranges)):
        return []
    return [(high, simplify(y // k, ranges)), (low, simplify(y % k, ranges))]


def matched(
    wanted: Sequence[Expr], found: Sequence[Expr], free: Sequence[Var], ranges: Mapping[Var, Interval]
) -> dict[Var, Expr]:
    """The free variables for which the wanted expressions are the found ones, as far as their form tells."""
    made = _Unifier(free, ranges)
    for e, y in zip(wanted, found, strict=True):
        made.expressions(e, y)
    return made.known


class _Unifier:
    """Solves for variables where two expressions are written alike: the same functions of loads under like conditions."""

    def __init__(self, free: Sequence[Var], ranges: Mapping[Var, Interval]) -> None:
        self.free, self.ranges = set(free), ranges
        self.known: dict[Var, Expr] = {}
        self.seen: set[tuple[Node, Node]] = set()

    def solved(self, wanted: Sequence[Node], found: Sequence[Node]) -> dict[Var, Expr]:
        if len(wanted) == len(found):
            for a, b in zip(wanted, found, strict=True):
                self._nodes(a, b)
        return self.known

    def _nodes(self, a: Node, b: Node) -> None:
        stack = [(a, b)]
        while stack:
            x, y = stack.pop()
            if (x, y) in self.seen or type(x) is not type(y):
                continue
            self.seen.add((x, y))
            mine, other = own_expressions(x), own_expressions(y)
            for e, f in zip(mine, other, strict=False) if len(mine) == len(other) else ():
                self.expressions(e, f)
            if len(children(x)) == len(children(y)):
                stack.extend(reversed(list(zip(children(x), children(y), strict=True))))

    def expressions(self, e: Expr, y: Expr) -> None:
        e = simplify(substitute(e, self.known), self.ranges)
        inside = [(t, k) for t, k in e.terms if self.free.intersection(t.variables)] if not isinstance(e, Var) else [(e, 1)]
        if len(inside) > 1:
            # Term by term, where each factor stands once on both sides.
            of = {k: t for t, k in y.terms} if not isinstance(y, Var) else {1: y}
            factors = [k for _, k in e.terms]
            if len(of) == len(y.terms) == len(set(factors)) == len(factors) and set(of) == set(factors):
                for t, k in inside:
                    self.expressions(t, of[k])
            return
        if not inside or inside[0][1] not in (1, -1):
            return
        ((term, sign),) = inside
        rest = simplify((y - (e - term * sign)) * sign, self.ranges)
        if isinstance(term, Var):
            if term in self.free:
                self.known[term] = rest
        elif isinstance(term, (FloorDiv, Mod)) and type(rest) is type(term) and rest.divisor == term.divisor:
            self.expressions(term.numerator, rest.numerator)


def pairs(left: Sequence[Load], right: Sequence[Load]) -> Iterator[tuple[Load, Load]]:
    """Loads that correspond: of the same value, one after the other."""
    rest = list(right)
    for a in left:
        b = next((x for x in rest if x.value is a.value), None)
        if b is not None and len(a.index) == len(b.index):
            rest.remove(b)
            yield a, b


def sample(s: object) -> tuple[int, ...] | None:
    if s.is_empty():  # type: ignore[attr-defined]
        return None
    p = s.sample_point()  # type: ignore[attr-defined]
    return tuple(coordinates(p))


def shown(at: Point) -> str:
    return ", ".join(f"{v} = {e}" for v, e in at.items()) or "the only point"
