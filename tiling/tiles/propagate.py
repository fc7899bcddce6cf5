"""One op at a time: what tiles it reads for a tile of a result, and what tiles of results a tile of an operand reaches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.types import TensorType
from indexing.exact.inverse import input_to_output
from indexing.map import IndexingMap
from tiling.tiles.reads_of_fusion import Walk
from tiling.tiles.space import DimensionKind, Runtimes, SpaceDimension, Tile, tile_in_space
from tiling.tiles.symbolic import symbolic_tile

__all__ = ["operand_tiles", "result_tiles"]

Tiles = tuple[tuple[Tile | Declined, ...], ...]


def operand_tiles(op: Op, output: int = 0) -> Tiles:
    """For a tile of result `output`, the tiles of each operand: one for each map that reads it.

    Dimensions of the space are those of the result, then what the op sums or folds over. Raises IndexError for a result that the
    op does not have and ValueError for one that is no tensor of known shape.

    >>> import hlo
    >>> text = '''HloModule m ENTRY e { p = f32[4,8] parameter(0) q = f32[8,16] parameter(1)
    ...   ROOT d = f32[4,16] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0} }'''
    >>> left, right = operand_tiles(hlo.parse(text).root)
    >>> print(right[0])
    (tid_0, tid_1, tid_2)[ts_0, ts_1, ts_2] ->
      offsets [tid_2 * ts_2, tid_1 * ts_1]
      sizes [ts_2, ts_1]
      strides [1, 1]
      upper bounds [min(ts_2 + tid_2 * ts_2 - 1, 7), min(ts_1 + tid_1 * ts_1 - 1, 15)]
    """
    value = _tensor(op.results, output)
    walk = Walk(None, sequential=True, producers=False)
    walk.until = set(op.operands)
    root = walk.start((value, None), IndexingMap.identity(value.shape))
    runtimes = Runtimes()
    return tuple(tuple(_tile(n.map, n.dimensions, runtimes) for n in maps) for maps in root.operands)


def result_tiles(op: Op, operand: int = 0) -> Tiles:
    """For a tile of an operand, the tiles of each result that depend on it: one for each map.

    Dimensions of the space are those of the operand. What the operand's index does not determine (a broadcast's new dimensions,
    the columns of a product) is reached whole. Raises as `operand_tiles`.

    >>> import hlo
    >>> text = "HloModule m ENTRY e { p = f32[20] parameter(0) ROOT b = f32[10,20] broadcast(p), dimensions={1} }"
    >>> print(result_tiles(hlo.parse(text).root)[0][0])
    (tid_0)[ts_0] ->
      offsets [0, tid_0 * ts_0]
      sizes [10, ts_0]
      strides [1, 1]
      upper bounds [9, min(ts_0 + tid_0 * ts_0 - 1, 19)]
    """
    value = _tensor(op.operands, operand)
    dimensions = [SpaceDimension(k, DimensionKind.PARALLEL, n, value, k) for k, n in enumerate(value.shape)]
    runtimes = Runtimes()
    found: list[tuple[Tile | Declined, ...]] = []
    for maps in input_to_output(op, operand):
        found.append(_all(maps, dimensions, runtimes))
    return tuple(found)


def _all(
    maps: Iterable[IndexingMap], dimensions: Sequence[SpaceDimension], runtimes: Runtimes
) -> tuple[Tile | Declined, ...]:
    return tuple(_tile(m, dimensions, runtimes) for m in maps if not m.is_known_empty)


def _tile(m: IndexingMap, dimensions: Sequence[SpaceDimension], runtimes: Runtimes) -> Tile | Declined:
    tile = symbolic_tile(m, cover=True)
    return tile if isinstance(tile, Declined) else tile_in_space(tile, dimensions, runtimes)


def _tensor(values: Sequence[Value], number: int) -> Value:
    if not 0 <= number < len(values):
        raise IndexError(f"there are {len(values)} values, none with number {number}")
    value = values[number]
    if not isinstance(value.type, TensorType) or not value.type.is_static:
        raise ValueError(f"%{value.name or '?'} is no tensor of known shape")
    return value
