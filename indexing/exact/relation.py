"""Equality of maps as relations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from indexing.expressions.bounds import Bounds, Interval
from indexing.expressions.terms import Var
from indexing.map import IndexingMap

__all__ = ["OPERATIONS", "same_relation"]

OPERATIONS = 500_000
"""isl's budget for one comparison: sets of maps compare every pair."""


def same_relation(a: IndexingMap, b: IndexingMap) -> bool:
    """Whether two maps relate the same dimensions and runtime values to the same results.

    Runtime variables correspond by order and must come from the same element of the same producer. Spellings are compared
    first, then points, and isl decides the rest. What isl cannot decide in its budget counts as different.
    """
    if a.unknown is not None or b.unknown is not None:
        return a.unknown == b.unknown
    if len(a.dims) != len(b.dims) or len(a.results) != len(b.results):
        return False
    x, y = a.rescaled, b.rescaled
    if x.is_known_empty or y.is_known_empty:
        return _is_empty(x) and _is_empty(y)
    if [(v.producer, v.element, v.label) for v in x.runtimes] != [(v.producer, v.element, v.label) for v in y.runtimes]:
        return False
    if x.spelling == y.spelling:
        return True
    if not (x.ranges or y.ranges or x.constraints or y.constraints) and x.dims != y.dims:
        return False  # two different boxes
    if _differ_at_a_sample(x, y):
        return False
    from indexing.exact.isl import is_equal

    return is_equal(x, y, OPERATIONS) is True


def _differ_at_a_sample(a: IndexingMap, b: IndexingMap) -> bool:
    """True when some index surely has different images: a cheap refutation, for maps whose domain is decided by the dimensions.

    With the dimensions at a point, each result is linear in what is left: its interval over the ranges is attained. So two maps
    differ where one of them has the point in its domain and the other has not, or where intervals differ.
    """
    if not (_is_sampled(a) and _is_sampled(b)):
        return False
    for point in _points(a, b):
        images = [_image(m, point) for m in (a, b)]
        if images[0] != images[1]:
            return True
    return False


def _is_sampled(m: IndexingMap) -> bool:
    free = m.variable_ranges.keys() - {v.var for v in m.dims}
    if any(m.variable_ranges[v].is_empty for v in free) or any(free.intersection(c.variables) for c, _ in m.constraints):
        return False
    return all(type(t) is Var or not free.intersection(t.variables) for e in m.results for t, _ in e.terms)


def _points(a: IndexingMap, b: IndexingMap) -> Iterator[list[int]]:
    """Some indices of both boxes: their corners, what lies next to those, and some further inside."""
    boxes = [[v.interval for v in m.dims] for m in ((a, b) if a.dims != b.dims else (a,))]
    for box in boxes:
        weights = range(1, len(box) + 1)
        for share in (0, 2, 3, 5):
            yield [
                i.lower if share == 0 else i.lower + (i.upper - i.lower) * w // (share * w + 1)
                for i, w in zip(box, weights, strict=True)
            ]
        for step in (1, 2, 3):
            yield [min(i.lower + step, i.upper) for i in box]


def _image(m: IndexingMap, point: Sequence[int]) -> list[Interval] | None:
    """The interval of each result at an index; None outside of the domain."""
    if any(not v.interval.lower <= x <= v.interval.upper for v, x in zip(m.dims, point, strict=True)):
        return None
    ranges = dict(m.variable_ranges)
    ranges.update({v.var: Interval(x, x) for v, x in zip(m.dims, point, strict=True)})
    bounds = Bounds(ranges)
    for e, held in m.constraints:
        at = bounds(e)
        if at.upper < held.lower or held.upper < at.lower:
            return None
    return [bounds(e) for e in m.results]


def _is_empty(m: IndexingMap) -> bool:
    if m.is_known_empty:
        return True
    from indexing.exact.isl import is_empty

    return is_empty(m) is True
