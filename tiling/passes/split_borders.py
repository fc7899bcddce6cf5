"""Windows over the edge of an operand: an inside whose windows are whole, and the edges around it.

    for i in [0, n]: for r in [max(0, 1 - i), min(2, n + 1 - i)]: …
        ->   for i in [0, 0]: …;  for i in [1, n - 1]: for r in [0, 2]: …;  for i in [n, n]: …

Only where the innermost loop walks along memory and no edge cuts it: in images whose channels come last, say. Inside there is
nothing left to ask, so the window can be written out and its sum stays in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from hlo.access import Condition
from indexing.expr import (
    EVERYTHING,
    Const,
    Expr,
    Interval,
    Maximum,
    Minimum,
    Var,
    interval,
    maximum,
    minimum,
    simplify,
)
from tiling.loops.affine import linear, step_along
from tiling.loops.element_ir import Choose, Node, Renamer, all_nodes, has_runtimes, rebuild
from tiling.loops.ir import Loop, LoopKind, Nest
from tiling.passes.tighten_bounds import reduced, written_out

__all__ = ["inside_and_edges"]

MOST_TAPS = 64  # of a window
LEAST_ROW = 8  # elements of the innermost loop


@dataclass(frozen=True)
class _Cut:
    """Where along one loop every window is whole: [lower, upper], which may be empty."""

    loop: Loop
    lower: Expr
    upper: Expr


def inside_and_edges(nest: Nest, ranges: dict[Var, Interval]) -> list[Nest]:
    """Nests that do the same as one, over parts of its domain: itself where nothing is gained."""
    if len(nest.folds) != 1 or nest.stores or nest.skip is not None or nest.order_is_fixed or has_runtimes(nest.folds[0].nodes):
        return [nest]
    conditions = _conditions(nest)
    if not conditions or not _walks_along_rows(nest, conditions):
        return [nest]
    cuts = _cuts(nest, conditions, ranges)
    if cuts is None or any(interval(simplify(c.upper - c.lower, ranges), ranges).upper < 0 for c in cuts):
        return [nest]  # also where no window is whole
    loops = (*(c.loop for c in cuts if all(c.loop is not x for x in nest.loops)), *nest.loops)
    found: list[Nest] = []
    for cut in cuts:
        for lower, upper in (
            (cut.loop.lower, minimum(cut.loop.upper, cut.lower - 1)),
            (maximum(cut.lower, cut.upper + 1), cut.loop.upper),
        ):
            found += _part(replace(nest, loops=loops), cut, lower, upper, ranges)
        loops = tuple(replace(x, lower=cut.lower, upper=cut.upper) if x is cut.loop else x for x in loops)
    (fold,) = nest.folds
    whole = tuple(
        replace(x, lower=Const(0), upper=Const(x.extent - 1)) if x.kind is LoopKind.REDUCTION else x for x in loops
    )
    inside = Nest(whole, folds=(replace(fold, nodes=tuple(_without(n, conditions) for n in fold.nodes)),))
    return [*found, written_out(inside, ranges) or inside]


def _conditions(nest: Nest) -> list[Condition]:
    """What holds for each tap of a whole window, as conditions on all loops' variables."""
    window = [x for x in nest.loops if x.kind is LoopKind.REDUCTION]
    if not 1 < prod(x.extent for x in window) <= MOST_TAPS:
        return []
    found: list[Condition] = []
    for x in window:
        uppers: Sequence[Expr] = x.upper.arguments if isinstance(x.upper, Minimum) else (x.upper,)
        lowers: Sequence[Expr] = x.lower.arguments if isinstance(x.lower, Maximum) else (x.lower,)
        found += [Condition(e, x.extent - 1, EVERYTHING.upper) for e in uppers if e is not Const(x.extent - 1)]
        found += [Condition(e, EVERYTHING.lower, 0) for e in lowers if e is not Const(0)]
    inner = {x.variable for x in window}
    for n in all_nodes(nest.folds[0].nodes):
        if isinstance(n, Choose):
            found += [c for c in n.conditions if inner.intersection(c.expression.variables)]
    return list(dict.fromkeys(found))


def _walks_along_rows(nest: Nest, conditions: Sequence[Condition]) -> bool:
    """Whether results lie side by side along a loop of some length that no condition cuts."""
    (fold,) = nest.folds
    strides = fold.buffers[0].strides
    rows = [
        x for x in nest.loops
        if x.kind is LoopKind.PARALLEL and x.extent >= LEAST_ROW and step_along(fold.index, strides, x.variable) == 1
    ]  # fmt: skip
    return any(not any(x.variable in c.expression.variables for c in conditions) for x in rows)


def _cuts(nest: Nest, conditions: Sequence[Condition], ranges: Mapping[Var, Interval]) -> list[_Cut] | None:
    """The loops that conditions cut, outermost first; a loop of one iteration for conditions on none. None where two are tied."""
    window = [x for x in nest.loops if x.kind is LoopKind.REDUCTION]
    around = [x for x in nest.loops if x.kind is LoopKind.PARALLEL]
    ends: dict[Var | None, tuple[list[Expr], list[Expr]]] = {}
    for c in conditions:
        parts = linear(c.expression, [x.variable for x in window])
        if parts is None:
            return None
        rest, steps = parts
        least = sum(min(0, k * (x.extent - 1)) for x, k in zip(window, steps, strict=True))
        most = sum(max(0, k * (x.extent - 1)) for x, k in zip(window, steps, strict=True))
        lower = EVERYTHING.lower if c.lower <= EVERYTHING.lower else c.lower - least
        upper = EVERYTHING.upper if c.upper >= EVERYTHING.upper else c.upper - most
        c = reduced(Condition(rest, lower, upper))
        parts = linear(c.expression, [x.variable for x in around])
        if parts is None:
            return None
        rest, steps = parts
        moving = [(x.variable, k) for x, k in zip(around, steps, strict=True) if k]
        if len(moving) > 1 or any(abs(k) != 1 for _, k in moving):
            return None
        lowers, uppers = ends.setdefault(moving[0][0] if moving else None, ([], []))
        sign = moving[0][1] if moving else 1
        if c.lower > EVERYTHING.lower:
            (lowers if sign > 0 else uppers).append(sign * (c.lower - rest))
        if c.upper < EVERYTHING.upper:
            (uppers if sign > 0 else lowers).append(sign * (c.upper - rest))
    cuts = []
    if None in ends:
        # All of the loop is inside where neither end's distance is beyond 0, else none of it.
        lowers, uppers = ends.pop(None)
        once = Loop(Var("whole"), Const(0), Const(0), 1)
        cuts.append(_Cut(once, simplify(maximum(0, *lowers, *(-1 * e for e in uppers)), ranges), Const(0)))
    for x in around:
        if x.variable in ends:
            lowers, uppers = ends[x.variable]
            cuts.append(_Cut(x, simplify(maximum(x.lower, *lowers), ranges), simplify(minimum(x.upper, *uppers), ranges)))
    return cuts


def _part(nest: Nest, cut: _Cut, lower: Expr, upper: Expr, ranges: dict[Var, Interval]) -> list[Nest]:
    """The nest over [lower, upper] of a loop: none where that is empty, no loop where it is one iteration that is known."""
    lower, upper = simplify(lower, ranges), simplify(upper, ranges)
    most = interval(simplify(upper - lower, ranges), ranges).upper + 1
    if most < 1:
        return []
    v = cut.loop.variable
    if not (isinstance(lower, Const) and lower is upper):
        part = replace(cut.loop, lower=lower, upper=upper, extent=min(cut.loop.extent, most))
        return [replace(nest, loops=tuple(part if x is cut.loop else x for x in nest.loops))]
    rename = Renamer({v: lower}, ranges, {})
    rest = [x for x in nest.loops if x is not cut.loop]
    ends = [rename.index((x.lower, x.upper)) for x in rest]
    loops = tuple(replace(x, lower=a, upper=b) for x, (a, b) in zip(rest, ends, strict=True))
    (fold,) = nest.folds
    nodes = tuple(map(rename.node, fold.nodes))
    return [replace(nest, loops=loops, folds=(replace(fold, index=rename.index(fold.index), nodes=nodes),))]


def _without(root: Node, conditions: Sequence[Condition]) -> Node:
    """A node where these conditions hold."""
    known = set(conditions)

    def settle(n: Node) -> Node:
        if not isinstance(n, Choose):
            return n
        left = tuple(c for c in n.conditions if c not in known)
        return n if len(left) == len(n.conditions) else Choose(left, n.then, n.otherwise) if left else n.then

    return rebuild(root, lambda load: load, tuple, {}, settle)
