"""Images and preimages of maps: exact, as boxes where that is seen quickly, else by isl."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from indexing.caches import Memo
from indexing.exact.inverse import invert
from indexing.expressions.bounds import Bounds, Interval
from indexing.expressions.simplifier import simplify
from indexing.expressions.terms import Const, Expr, Mod, Var
from indexing.map import IndexingMap
from indexing.regions import BOXES_LIMIT, Region
from indexing.spans import Box, Span, connected, digits, progression

if TYPE_CHECKING:
    import islpy

__all__ = ["image", "preimage"]


def image(m: IndexingMap, region: Region | None = None) -> Region:
    """{m(d, s, rt) : d in region}, over all values of ranges and runtime variables; by default of the whole domain.

    Exact. A runtime variable counts with every value that it can have. Raises ValueError for an unknown map and
    `indexing.errors.BudgetSpent` where isl would have to decide and does not in its budget.

    >>> from indexing import parse_map
    >>> m = parse_map("(d0) -> (d0 floordiv 8, d0 mod 8), domain: d0 in [0, 31]")
    >>> print(image(m, Region.box([Interval(8, 23)])))
    {([1, 2], [0, 7])}
    """
    if m.unknown is not None:
        raise ValueError(f"an unknown map has no image: {m.unknown.reason}")
    if region is not None and region.rank != len(m.dims):
        raise ValueError(f"expected a region of the map's {len(m.dims)} dimensions, found one of {region.rank}")
    if m.is_known_empty:
        return Region.empty(len(m.results))
    pieces = region.boxes if region is not None else (tuple([Span.of(*v.interval) for v in m.dims]),)
    if pieces is not None:
        total = Region.empty(len(m.results))
        for box in pieces:
            boxes = _image_of_box(m, box)
            if boxes is None:
                break
            for b in boxes:
                total = total | Region(len(m.results), (b,))
        else:
            return total
    from indexing.exact.isl import full_relation

    def reached() -> islpy.Set:
        r = full_relation(m)
        return (r if region is None else r.intersect_domain(region.to_isl())).range()

    return Region._of_question(reached)


def preimage(m: IndexingMap, region: Region) -> Region:
    """{d : m(d, s, rt) in region for some s, rt}. Exact. Raises ValueError for an unknown map."""
    return image(invert(m), region)


_IMAGES: Memo[Any, list[Box] | None] = Memo(1 << 15)


def _image_of_box(m: IndexingMap, box: Box) -> list[Box] | None:
    """The image of a box as disjoint boxes, or None when it is none that is seen quickly."""
    key = (m.spelling, box)
    return _IMAGES[key] if key in _IMAGES else _IMAGES.keep(key, _compute_image(m, box))


def _compute_image(m: IndexingMap, box: Box) -> list[Box] | None:
    dims = [v._replace(interval=v.interval.intersect(s.interval)) for v, s in zip(m.dims, box, strict=True)]
    if any(v.interval.is_empty for v in dims):
        return []
    m = replace(m, dims=tuple(dims)).simplify()
    if m.is_known_empty:
        return []
    spans = {v: Span.of(*b) for v, b in m.variable_ranges.items()}
    for v, s in zip(m.dims, box, strict=True):
        spans[v.var] = spans[v.var].intersect(s)
    for e, b in m.constraints:
        narrowed = _narrowed_by_modulo(e, b, spans)
        if narrowed is None:
            return None
        spans.update(narrowed)
    if any(s.size == 0 for s in spans.values()):
        return []
    groups = connected(m.results)
    per_group = [(g, _image_of_group([m.results[k] for k in g], spans)) for g in groups]
    if any(boxes is None for _, boxes in per_group):
        return None
    out: list[Box] = []
    for combination in product(*[boxes or [] for _, boxes in per_group]):
        sides: list[Span] = [Span(0, 0)] * len(m.results)
        for (g, _), part in zip(per_group, combination, strict=True):
            for k, s in zip(g, part, strict=True):
                sides[k] = s
        out.append(tuple(sides))
    return out if len(out) <= BOXES_LIMIT else None


def _narrowed_by_modulo(e: Expr, b: Interval, spans: dict[Var, Span]) -> dict[Var, Span] | None:
    """The span of the one variable x of (k x + l) mod c = p; None for any other constraint."""
    if not isinstance(e, Mod) or not isinstance(e.divisor, int) or not b.is_point or len(e.numerator.terms) != 1:
        return None
    (x, k), c = e.numerator.terms[0], e.divisor
    if not isinstance(x, Var) or k not in (1, -1):
        return None
    residue = (k * (b.lower - e.numerator.constant)) % c
    s = spans[x]
    return {x: s.intersect(Span.of(s.lower + (residue - s.lower) % c, s.upper, c))}


def _image_of_group(results: list[Expr], spans: dict[Var, Span]) -> list[Box] | None:
    if len(results) == 1:
        s = progression(results[0], spans)
        return None if s is None else [(s,)]
    # Digits of one position: each result in [0, n_k - 1], and the row-major sum is a progression without gaps.
    ranges = {v: s.interval for v, s in spans.items()}
    if any(s.step != 1 for e in results for v in e.variables for s in (spans[v],)):
        return None
    bounds = Bounds(ranges)
    sides = [bounds(e) for e in results]
    if any(b.lower < 0 for b in sides):
        return None
    sizes = [b.upper + 1 for b in sides]
    position: Expr = Const(0)
    for e, n in zip(results, sizes, strict=True):
        position = position * n + e
    s = progression(simplify(position, ranges), spans)
    if s is None or s.step != 1 or s.upper >= prod(sizes):
        return None
    return digits(s.lower, s.upper, sizes)
