"""Boxes of elements that a task touches, and the image of loops under an index map.

image(e(t, i), i in [0, size - 1]) = [start(t) + shift, start(t) + shift + span]     the cover of e on a tile, cut to the tensor
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from indexing.expr import Const, Expr, Interval, Var, as_expr, interval, maximum, minimum, simplify
from tiling.tiles.covers import cover_of

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


def image(index: Sequence[Expr], shape: Sequence[int], ranges: Mapping[Var, Interval], tiles: Set[Var]) -> Box:
    """The box of elements that loops over every variable but `tiles` read at `index`: its tile, cut at the tensor's ends.

    An index is the maps of the edges on the way, composed with the loops: a map of tile numbers whose ranges are the loops. The
    box is what the tile algebra says that it covers (`tiling.tiles.covers`). Exact for expressions that are linear in the loops'
    variables with coefficients 1, an outer bound otherwise (a stride's gaps are included). A dimension whose expression does not
    separate into tile numbers and loops is taken whole.
    """
    loops = {v: ranges[v] for e in index for v in e.variables if v not in tiles}
    return tuple([_span(e, n, ranges, loops) for e, n in zip(index, shape, strict=True)])


def _span(e: Expr, extent: int, ranges: Mapping[Var, Interval], loops: Mapping[Var, Interval]) -> Span:
    for atom, _ in e.terms:
        if type(atom) is not Var and len({v in loops for v in atom.variables}) > 1:
            return Span(Const(0), extent, extent)
    cover = cover_of(e, {}, loops, ranges)
    start, size = cover.start + cover.shift, cover.span.constant + 1
    bounds = interval(start, ranges)
    if bounds.lower < 0:
        # Reads below 0 are guarded by conditions: nothing is kept for them.
        if not start.terms:
            size += start.constant
            start = Const(0)
        else:
            start = maximum(start, 0)
    if size >= extent:
        return Span(Const(0), extent, extent)
    return Span(simplify(start, ranges), size, extent)


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
