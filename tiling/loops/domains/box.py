"""Boxes of elements that a task touches, and the image of a box under an index map.

image(e, [lower(t), lower(t) + size - 1]) = [start(t) + shift, start(t) + shift + span]     a cover of e, cut to the tensor
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from indexing.expr import Const, Expr, Interval, Var, as_expr, interval, maximum, minimum, simplify
from indexing.map import IndexingMap
from tiling.tiles.covers import Along, cover_of

__all__ = ["Box", "Span", "covers", "full_box", "hull", "image"]


@dataclass(frozen=True)
class Span:
    """Elements [lower, lower + size - 1] of a dimension of `extent` elements, cut at the dimension's end.

    `lower` is an expression in tile numbers; `size` is the same for every task but at the edge.
    """

    lower: Expr
    size: int
    extent: int

    def last_local(self, ranges: Mapping[Var, Interval]) -> Expr:
        """The last index counted from `lower`: size - 1, or less where the dimension ends before."""
        greatest = interval(self.lower, ranges).upper + self.size - 1
        if greatest <= self.extent - 1:
            return Const(self.size - 1)
        return minimum(self.size - 1, self.extent - 1 - self.lower)

    def __str__(self) -> str:
        return f"[{self.lower}, +{self.size}]"


Box = tuple[Span, ...]


def full_box(shape: Sequence[int]) -> Box:
    """The box of a whole tensor."""
    return tuple(Span(Const(0), n, n) for n in shape)


def image(
    m: IndexingMap, shape: Sequence[int], box: Sequence[Span], ranges: Mapping[Var, Interval],
    known: dict[Hashable, Span] | None = None,
) -> Box:  # fmt: skip
    """The box of elements that a map reads for a box of its dimensions and then of its ranges: the tile algebra's cover of each
    result (`tiling.tiles.covers`), cut at the tensor's ends.

    Exact where results are linear in the variables with coefficients 1, an outer bound otherwise (a stride's gaps are included).
    A dimension where a division is cut by the box's begin is taken whole. `ranges` are those of the box's tile numbers. What is
    `known` of a result of other maps is taken from there: reads beside each other differ in few of their results.
    """
    spans = dict(zip((v.var for v in (*m.dims, *m.ranges)), box, strict=True))
    found: list[Span] = []
    for e, n in zip(m.results, shape, strict=True):
        span = spans.get(e) if type(e) is Var else None
        if span is None:
            found.append(_covered(e, n, spans, m, ranges, {} if known is None else known))
        else:  # most are read along a dimension as it is
            found.append(Span(Const(0), n, n) if span.size >= n else span if span.extent == n else Span(span.lower, span.size, n))
    return tuple(found)


def _covered(
    e: Expr, extent: int, spans: Mapping[Var, Span], m: IndexingMap, ranges: Mapping[Var, Interval], known: dict[Hashable, Span]
) -> Span:
    if m.runtimes:  # their limits are the map's own
        return _cover(e, extent, spans, m, ranges)
    mine = [(v, spans[v]) for v in e.variables if v in spans]
    key = e, extent, tuple(mine), tuple([(x, ranges[x]) for _, s in mine for x in s.lower.variables])
    found = known.get(key)
    if found is None:
        found = known[key] = _cover(e, extent, spans, m, ranges)
    return found


def _cover(e: Expr, extent: int, spans: Mapping[Var, Span], m: IndexingMap, ranges: Mapping[Var, Interval]) -> Span:
    tile: dict[Var, Along] = {}
    fixed: dict[Var, Interval] = {v.var: v.interval for v in m.runtimes}
    everything: dict[Var, Interval] = {}
    for v in e.variables:
        span = spans.get(v)
        if span is None:
            continue
        if span.lower.terms:
            tile[v] = span.lower, Const(span.size - 1)
            everything |= {x: ranges[x] for x in span.lower.variables}
        else:
            fixed[v] = Interval(span.lower.constant, span.lower.constant + span.size - 1)
    everything |= fixed
    cover = cover_of(e, tile, fixed, everything)
    if not cover.separates:
        return Span(Const(0), extent, extent)
    start, size = cover.start + cover.shift, cover.span.constant + 1
    bounds = interval(start, everything)
    if bounds.lower < 0:
        # Reads below 0 are guarded by conditions: nothing is kept for them.
        if not start.terms:
            size += start.constant
            start = Const(0)
        else:
            start = maximum(start, 0)
    if size >= extent:
        return Span(Const(0), extent, extent)
    return Span(simplify(start, everything), size, extent)


def hull(a: Box, b: Box, ranges: Mapping[Var, Interval]) -> Box:
    """A box that holds both: equal spans stay, spans a constant apart grow, others take the whole dimension."""
    spans = []
    for x, y in zip(a, b, strict=True):
        if x == y:
            spans.append(x)
            continue
        shift = interval(simplify(y.lower - x.lower, ranges), ranges)
        size = max(x.size, y.size + shift.lower) - min(0, shift.lower)
        if shift.lower == shift.upper and size < x.extent:
            spans.append(Span(simplify(x.lower + min(0, shift.lower), ranges), size, x.extent))
        else:
            spans.append(Span(Const(0), x.extent, x.extent))
    return tuple(spans)


def covers(box: Box, shape: Sequence[int], tiles: Iterable[tuple[Var, int]]) -> bool:
    """True when the tasks' boxes are disjoint and make up the whole tensor: each tile number moves one dimension by its size.

    The tiles are those of another tensor, perhaps: they may reach less far than this one's dimension, or further.
    """
    used: set[Var] = set()
    counts = dict(tiles)
    for span, n in zip(box, shape, strict=True):
        vs = span.lower.variables
        if not vs:
            if span.size != n or as_expr(0) is not span.lower:
                return False
            continue
        if len(vs) != 1 or vs[0] in used or span.lower is not vs[0] * span.size:
            return False
        if span.extent != n or counts.get(vs[0]) != -(-n // span.size):
            return False
        used.add(vs[0])
    return all(v in used or count <= 1 for v, count in counts.items())
