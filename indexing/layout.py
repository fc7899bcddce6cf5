"""Physical layouts: from a logical index to the position in memory and back.

A layout lists the logical dimensions from the fastest varying to the slowest (XLA's `{1,0}`); row-major is the default.
Positions count elements from the start of the buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo import TensorType
from indexing.expressions.terms import Const, Expr
from indexing.map import IndexingMap, compose, usual

__all__ = ["bitcast_map", "from_position", "physical_map", "to_position"]


def _minor_to_major(t: TensorType | Sequence[int], layout: Sequence[int] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(t, TensorType):
        shape = t.static_shape
        if layout is None and t.layout is not None:
            layout = t.layout.minor_to_major
    else:
        shape = tuple(t)
    order = tuple(layout) if layout is not None else tuple(reversed(range(len(shape))))
    if sorted(order) != list(range(len(shape))):
        raise ValueError(f"expected a permutation of {len(shape)} dimensions as layout, found {list(order)}")
    return shape, order


def to_position(t: TensorType | Sequence[int], layout: Sequence[int] | None = None) -> IndexingMap:
    """(d0, …) -> (position): sum of d_k times the sizes of all dimensions that vary faster.

    Raises ValueError for an unknown dimension and for a layout that is no permutation.

    >>> str(to_position([4, 8])), str(to_position([4, 8], layout=[0, 1]).results[0])
    ('(d0, d1) -> (d0 * 8 + d1), domain: d0 in [0, 3], d1 in [0, 7]', 'd0 + d1 * 4')
    """
    shape, order = _minor_to_major(t, layout)
    position: Expr = Const(0)
    stride = 1
    for k in order:
        position = position + stride * usual("d", k)
        stride *= shape[k]
    made = IndexingMap.over(shape, [position])
    return made.simplify() if 0 in shape else made


def from_position(t: TensorType | Sequence[int], layout: Sequence[int] | None = None) -> IndexingMap:
    """(position) -> (d0, …): the inverse of `to_position`.

    >>> str(from_position([4, 8]))
    '(d0) -> (d0 floordiv 8, d0 mod 8), domain: d0 in [0, 31]'
    """
    shape, order = _minor_to_major(t, layout)
    index: list[Expr] = [Const(0)] * len(shape)
    if 0 in shape:
        return IndexingMap.over([0], index).simplify()  # no position, so no index
    size = 1
    for k in order:
        index[k] = (usual("d", 0) // size) % shape[k]
        size *= shape[k]
    return IndexingMap.over([size], index).simplify()


def bitcast_map(source: TensorType, target: TensorType) -> IndexingMap:
    """From an index of `target` to the index of `source` at the same position in memory (element sizes being equal).

    It is the composition of target's `to_position` with source's `from_position`: a transpose, reshape, transpose.
    Raises ValueError when the element counts differ.
    """
    if source.size_elems != target.size_elems:
        raise ValueError(f"expected as many elements as in {source}, found {target}")
    return compose(to_position(target), from_position(source)).simplify()


def physical_map(m: IndexingMap, t: TensorType | Sequence[int], layout: Sequence[int] | None = None) -> IndexingMap:
    """The map to positions in memory for a map to the logical indices of a tensor of type `t`.

    >>> from indexing import parse_map
    >>> m = parse_map("(d0, d1) -> (d1, d0), domain: d0 in [0, 7], d1 in [0, 3]")
    >>> str(physical_map(m, [4, 8]))
    '(d0, d1) -> (d0 + d1 * 8), domain: d0 in [0, 7], d1 in [0, 3]'
    """
    return compose(m, to_position(t, layout)).simplify()
