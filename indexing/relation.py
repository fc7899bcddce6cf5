"""Equality of maps as relations."""

from __future__ import annotations

from indexing.map import IndexingMap

__all__ = ["same_relation"]


def same_relation(a: IndexingMap, b: IndexingMap) -> bool:
    """Whether two maps relate the same dimensions and runtime values to the same results.

    Runtime variables correspond by order and must come from the same element of the same producer. Spellings are compared
    first, then points, and isl decides the rest. What isl cannot decide in its budget counts as different.
    """
    if a.unknown is not None or b.unknown is not None:
        return a.unknown == b.unknown
    if len(a.dims) != len(b.dims) or len(a.results) != len(b.results):
        return False
    x, y = (m.simplify().remove_unused().renumbered() for m in (a, b))
    if x.is_known_empty or y.is_known_empty:
        return _is_empty(x) and _is_empty(y)
    if [(v.producer, v.element, v.label) for v in x.runtimes] != [(v.producer, v.element, v.label) for v in y.runtimes]:
        return False
    if x.spelling == y.spelling:
        return True
    if not (x.ranges or y.ranges or x.constraints or y.constraints) and x.dims != y.dims:
        return False  # two different boxes
    from indexing.isl import is_equal

    return is_equal(x, y) is True


def _is_empty(m: IndexingMap) -> bool:
    if m.is_known_empty:
        return True
    from indexing.isl import is_empty

    return is_empty(m) is True
