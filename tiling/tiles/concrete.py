"""Tiles for concrete tile sizes: numbers for sizes and strides, a map from a tile's number for the offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo.errors import Declined
from indexing.expr import Const, Expr, Interval, Var, substitute
from indexing.map import IndexingMap, Variable, compose, usual
from tiling.tiles.space import DimensionKind, SpaceDimension
from tiling.tiles.symbolic import SymbolicTile

__all__ = ["ConcreteTile", "concrete_tile"]

PROGRAM = Var("pid_0")
"""The number of a tile of the parallel dimensions, row by row."""


@dataclass(frozen=True)
class ConcreteTile:
    """A tile for concrete tile sizes: `offsets` leads from the tile's number to the least index of each dimension.

    A sequential dimension of several tiles is a range variable of `offsets`: the number of the tile along it.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offsets: IndexingMap


def concrete_tile(
    tile: SymbolicTile | Declined,
    dimensions: Sequence[SpaceDimension],
    space: Sequence[SpaceDimension],
    tile_sizes: Sequence[int],
) -> ConcreteTile | Declined:
    """The tile over some of the space's dimensions, for sizes of all of them; or why there is none."""
    if isinstance(tile, Declined):
        return tile
    mine = [tile_sizes[d.number] for d in dimensions]
    if any(t < 1 for t in mine):
        return Declined(f"the tile sizes {mine} are not all positive")
    # A size may be larger than its dimension: tiles are padded to powers of two. The tile is padded, too; how far apart its
    # elements lie is what the symbolic tile says of the whole dimension, since beyond it there is nothing.
    inside = [min(t, v.interval.upper) for t, v in zip(mine, tile.sizes, strict=True)]
    for chosen in (mine, inside):
        if not tile.constraints.holds({v.var: t for v, t in zip(tile.sizes, chosen, strict=True)}):
            return Declined(f"the tile sizes {chosen} do not meet {tile.constraints}")
    counts = {d.number: -(-d.extent // tile_sizes[d.number]) for d in space}
    origin: dict[int, Expr] = {}
    step = 1
    outer = [d.number for d in space if d.kind is DimensionKind.PARALLEL]
    for k in reversed(outer):
        number = PROGRAM // step
        origin[k] = Const(0)
        if counts[k] > 1:
            is_first = all(counts[j] == 1 for j in outer if j < k)
            origin[k] = (number if is_first else number % counts[k]) * tile_sizes[k]
        step *= counts[k]
    ranges: list[Variable] = []
    for d in dimensions:
        if d.kind is DimensionKind.SEQUENTIAL:
            origin[d.number] = Const(0)
            if counts[d.number] > 1:
                ranges.append(Variable(usual("s", len(ranges)), Interval(0, counts[d.number] - 1)))
                origin[d.number] = ranges[-1].var * tile_sizes[d.number]
    sizes = {v.var: Const(t) for v, t in zip(tile.sizes, mine, strict=True)}
    to_space = IndexingMap(
        (Variable(PROGRAM, Interval(0, step - 1)),), tuple(origin[d.number] for d in dimensions), tuple(ranges)
    )
    starts = IndexingMap(
        tuple([Variable(v.var, Interval(0, d.extent - 1)) for v, d in zip(tile.sizes, dimensions, strict=True)]),
        tuple([a + substitute(b, sizes) for a, b in zip(tile.starts, tile.shifts, strict=True)]),
        runtimes=tile.runtimes,
    )
    offsets = compose(to_space, starts)
    # Tiles at an edge begin inside, their ends are cut: no condition is left on where they begin.
    offsets = IndexingMap(offsets.dims, offsets.results, offsets.ranges, offsets.runtimes).simplify().remove_unused()
    if offsets.dims[0].var is not PROGRAM:
        offsets = offsets.renamed({offsets.dims[0].var: PROGRAM})
    numbers = [0] * len(tile.runtimes)
    padded, whole = tile.size_map.evaluate(mine, numbers), tile.size_map.evaluate(inside, numbers)
    return ConcreteTile(tuple(map(max, padded, whole)), tile.stride_map.evaluate(inside, numbers), offsets)
