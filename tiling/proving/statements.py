"""What a statement of a schedule is: a copy, a zero, a fold from its start; which elements of an op it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import islpy

from hlo.access import Condition
from hlo.module import Value
from indexing.expr import Const, Expr, FloorDiv, Interval, Mod, Var, as_expr, from_terms, simplify, substitute
from tiling.elements.folds import is_neutral
from tiling.loops.accesses import Domain
from tiling.loops.affine import linear
from tiling.loops.element_ir import (
    Apply,
    Choose,
    IndexNode,
    Load,
    Node,
    Scalar,
    Test,
    all_nodes,
    loads,
)
from tiling.loops.ir import FoldStep, Loop, LoopKind, Nest, Schedule, Sequential
from tiling.proving.relations import coordinates
from tiling.proving.same_expression import Point

__all__ = [
    "changes_nothing",
    "conditions",
    "filled_from",
    "is_copy",
    "is_one",
    "is_plus_zero",
    "is_zero",
    "pairs",
    "reduced",
    "reductions",
    "sample",
    "scans",
    "shown",
    "solve_for",
    "starting",
    "states",
    "substituted",
    "unscaled",
]

SET = islpy.dim_type.set


def states(schedule: Schedule) -> set[object]:
    """The buffers in which a sequential loop keeps running results that it rescales."""
    found: set[object] = set()
    for step in (s for p in schedule.phases for s in p.steps if isinstance(s, Sequential)):
        for nest in (s for s in step.steps if isinstance(s, Nest)):
            roots = [s.node for s in nest.stores] + [n for f in nest.folds for n in (*f.nodes, *f.inits)]
            found |= {x.buffer for x in loads(roots) if x.buffer is not None}
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
    for _ in range(3):
        for x, y in list(equations):
            e = simplify(substitute(x, solved), ranges)
            inside = [v for v in e.variables if v in free]
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
