"""Index-set splitting: an innermost loop is cut where a condition on its variable changes, and tested nowhere.

for r in [0, n]: f(x[r] if i - r >= 0 else c)   ->   for r in [0, min(i, n)]: f(x[r])
                                                     for r in [max(i + 1, 0), n]: f(c)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hlo.access import Condition
from hlo.types import ELEMENT_TYPES
from indexing.expr import EVERYTHING, Expr, Interval, Var, interval, maximum, minimum, simplify
from tiling.loops.affine import linear
from tiling.loops.conditions import bounds_by
from tiling.loops.element_ir import Choose, Node, Scalar, Test, all_nodes, has_runtimes, rebuild
from tiling.loops.ir import LoopKind, Nest, Segment, Skip, Store

__all__ = ["cut_at_masks", "split_innermost"]

MOST_CONDITIONS = 2  # distinct conditions that a loop is cut for; each makes up to three pieces of a piece


Key = tuple[Expr, int, int]
Ends = tuple[Expr | None, Expr | None]  # where a condition begins and ends to hold


def cut_at_masks(nest: Nest, ranges: Mapping[Var, Interval]) -> Nest:
    """The nest with its innermost loop cut where its flag leaves out what a mask covers."""
    if nest.skip is None or has_runtimes(_roots(nest)):
        return nest
    return replace(nest, segments=tuple(_pieces(nest, _skipped(nest), ranges)))


def split_innermost(nest: Nest, ranges: Mapping[Var, Interval]) -> Nest:
    """The nest with its innermost loop cut where a mask begins and where a condition on its variable changes."""
    if not nest.loops or any(x.kind is LoopKind.SCAN for x in nest.loops) or has_runtimes(_roots(nest)):
        return nest
    whole = Segment(nest.loops[-1].lower, nest.loops[-1].upper, nest.stores, nest.folds)
    conditions = _conditions(whole, nest.loops[-1].variable)
    if not conditions:
        return nest
    found = {**_skipped(nest), **conditions}
    if len(found) <= MOST_CONDITIONS:
        return replace(nest, segments=tuple(_pieces(nest, found, ranges)))
    return nest if nest.skip is not None else replace(nest, segments=tuple(_inside(whole, found, ranges)))


def _roots(nest: Nest) -> list[Node]:
    return [s.node for s in nest.stores] + [n for f in nest.folds for n in f.nodes]


def _pieces(nest: Nest, found: Mapping[Key, Ends], ranges: Mapping[Var, Interval]) -> list[Segment]:
    """The innermost loop cut at each of some conditions."""
    skipped = _skipped(nest)
    pieces = [Segment(nest.loops[-1].lower, nest.loops[-1].upper, nest.stores, nest.folds)]
    for key, (start, stop) in found.items():
        pieces = [part for piece in pieces for part in _cut(piece, key, start, stop, ranges, key in skipped)]
    if nest.skip is None:
        return pieces
    return [part for piece in pieces for part in _left_out(piece, nest.skip, nest.loops[-1].extent, ranges)]


def _inside(
    piece: Segment, found: Mapping[Key, Ends], ranges: Mapping[Var, Interval]
) -> list[Segment]:
    """Three pieces where too many conditions change: the middle one, where all hold, is worth it if it is most of the loop."""
    lower = simplify(maximum(piece.lower, *(start for start, _ in found.values() if start is not None)), ranges)
    upper = simplify(minimum(piece.upper, *(stop for _, stop in found.values() if stop is not None)), ranges)
    whole = interval(simplify(piece.upper - piece.lower, ranges), ranges)
    if 2 * interval(simplify(upper - lower, ranges), ranges).lower < whole.upper:
        return [piece]
    middle = Segment(lower, upper, piece.stores, piece.folds)
    for key in found:
        middle = _resolve(middle, key, True, lower, upper, False)
    before = replace(piece, upper=simplify(lower - 1, ranges))
    after = replace(piece, lower=simplify(upper + 1, ranges))
    return [x for x in (before, middle, after) if interval(simplify(x.upper - x.lower, ranges), ranges).upper >= 0]


def _skipped(nest: Nest) -> dict[Key, Ends]:
    """The conditions that bound the loop while the nest's flag is 1."""
    found: dict[Key, Ends] = {}
    for c in nest.skip.conditions if nest.skip is not None else ():
        ends = bounds_by(c, nest.loops[-1].variable)
        assert ends is not None, "a nest leaves out only what bounds its innermost loop"
        found[c.expression, c.lower, c.upper] = ends
    return found


def _left_out(piece: Segment, skip: Skip, extent: int, ranges: Mapping[Var, Interval]) -> list[Segment]:
    """A piece where the nest is neutral: it runs while the flag is 0; while it is 1 zeros are stored, where they are wanted."""
    if not piece.is_left_out:
        return [piece]
    lower = simplify(maximum(piece.lower, skip.flag * extent), ranges)
    parts = [Segment(lower, piece.upper, piece.stores, piece.folds, True)]
    if skip.fill is not None and piece.stores:
        first = simplify(maximum(piece.lower, skip.fill[0]), ranges)
        last = simplify(minimum(piece.upper, skip.fill[1], skip.flag * extent - 1), ranges)
        if interval(simplify(last - first, ranges), ranges).upper >= 0:
            zeros = tuple(Store(s.value, s.buffer, s.index, _zero(s)) for s in piece.stores)
            parts.append(Segment(first, last, zeros, (), True))
    return parts


def _zero(s: Store) -> Scalar:
    return Scalar(s.buffer.element.dtype.type(0), s.buffer.element)


def _conditions(segment: Segment, variable: Var) -> dict[Key, Ends]:
    """Each condition that can be cut for: key -> the first and the last value of the variable where it holds."""
    found: dict[Key, Ends] = {}
    roots: list[Node] = [s.node for s in segment.stores] + [n for f in segment.folds for n in f.nodes]
    for n in all_nodes(roots):
        for c in n.conditions if isinstance(n, (Choose, Test)) else ():
            ends = bounds_by(c, variable) or _ends_by_steps(c, variable)
            if ends is not None:
                found[c.expression, c.lower, c.upper] = ends
    return found


def _ends_by_steps(c: Condition, variable: Var) -> tuple[Expr | None, Expr | None] | None:
    """The first and the last value of a variable that a condition counts in steps of several: low <= k v + rest <= high."""
    parts = linear(c.expression, (variable,))
    if parts is None or parts[1][0] < 2:
        return None
    rest, (step,) = parts
    start = None if c.lower <= EVERYTHING.lower else (c.lower - rest + (step - 1)) // step
    stop = None if c.upper >= EVERYTHING.upper else (c.upper - rest) // step
    return start, stop


def _cut(
    piece: Segment, key: Key, start: Expr | None, stop: Expr | None, ranges: Mapping[Var, Interval], skipped: bool
) -> list[Segment]:
    """[lower, start - 1], [start, stop] and [stop + 1, upper] of a piece, without those that are always empty."""
    middle, last = piece.lower, piece.upper
    parts: list[tuple[bool, Expr, Expr]] = []
    if start is not None:
        parts.append((False, piece.lower, simplify(minimum(piece.upper, start - 1), ranges)))
        middle = simplify(maximum(piece.lower, start), ranges)
    if stop is not None:
        last = simplify(minimum(piece.upper, stop), ranges)
    parts.append((True, middle, last))
    if stop is not None:
        parts.append((False, simplify(maximum(piece.lower, stop + 1), ranges), piece.upper))
    return [
        _resolve(piece, key, truth, lower, upper, skipped and not truth)
        for truth, lower, upper in parts
        if interval(simplify(upper - lower, ranges), ranges).upper >= 0
    ]


def _resolve(piece: Segment, key: Key, holds: bool, lower: Expr, upper: Expr, left_out: bool) -> Segment:
    resolver = _Resolver(key, holds)
    stores = tuple(Store(s.value, s.buffer, s.index, resolver.node(s.node)) for s in piece.stores)
    folds = tuple(
        replace(f, nodes=tuple(map(resolver.node, f.nodes))) for f in piece.folds
    )
    return Segment(lower, upper, stores, folds, piece.is_left_out or left_out)


class _Resolver:
    """Copies nodes with one condition known to hold, or known not to."""

    def __init__(self, key: Key, holds: bool) -> None:
        self.key, self.holds = key, holds
        self.memo: dict[Node, Node] = {}

    def node(self, root: Node) -> Node:
        return rebuild(root, lambda load: load, tuple, self.memo, self._settle)

    def _settle(self, n: Node) -> Node:
        if not isinstance(n, (Choose, Test)):
            return n
        left = tuple(c for c in n.conditions if (c.expression, c.lower, c.upper) != self.key)
        if len(left) == len(n.conditions):
            return n
        if isinstance(n, Test):
            if left and self.holds:
                return Test(left)
            return Scalar(np.bool_(self.holds), ELEMENT_TYPES["i1"])
        if not self.holds:
            return n.otherwise
        return Choose(left, n.then, n.otherwise) if left else n.then
