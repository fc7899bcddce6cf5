"""Equality of maps as relations."""

from __future__ import annotations

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
    x, y = (m.rescale_ranges() for m in (a, b))
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
    """True when some index surely has different images: a cheap refutation, for maps whose variables are independent.

    A linear result's interval over the ranges is attained, so two images with different intervals differ.
    """
    if a.constraints or b.constraints or a.dims != b.dims:
        return False
    if any(type(t) is not Var for m in (a, b) for e in m.results for t, _ in e.terms):
        return False
    box = [v.interval for v in a.dims]
    weights = range(1, len(box) + 1)
    for share in (0, 2, 3, 5):
        point = [
            b.lower if share == 0 else b.lower + (b.upper - b.lower) * w // (share * w + 1)
            for b, w in zip(box, weights, strict=True)
        ]
        images = []
        for m in (a, b):
            ranges = dict(m.variable_ranges)
            ranges.update({v.var: Interval(x, x) for v, x in zip(m.dims, point, strict=True)})
            images.append([Bounds(ranges)(e) for e in m.results])
        if images[0] != images[1]:
            return True
    return False


def _is_empty(m: IndexingMap) -> bool:
    if m.is_known_empty:
        return True
    from indexing.exact.isl import is_empty

    return is_empty(m) is True
