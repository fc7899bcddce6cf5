"""Tile sizes for contractions: rows in multiples of the register block, columns in multiples of a panel, a few of the others.

    rows x columns x how many of another dimension        a grid of tiles, looked at along one axis after another
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tiling.loops.ir import Contract
from tiling.loops.stage import Stage
from tiling.machine import Machine

__all__ = ["Grid", "descend", "grid_of", "same_shape"]

SMALL_IMAGE = 256  # rows by columns that one task may take whole
ROW_BLOCKS = (2, 4, 5, 8, 12, 16, 20, 32)  # register blocks in a task's rows
PANELS = (1, 2, 4, 8, 16)  # and panels in its columns
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Grid:
    """Tiles of a result: what its rows, its columns and one more dimension are cut into.

    `axes` are the numbers of rows, of columns, and of elements of the last of the `others`, each in ascending order; the rest of
    these is taken one by one, or `group` elements at a time.
    """

    shape: Sizes
    axes: tuple[Sizes, Sizes, Sizes]
    rows: tuple[int, ...]  # dimensions
    column: int | None
    others: tuple[int, ...]
    group: Sizes

    @property
    def places(self) -> Iterator[tuple[int, int, int]]:
        """All of the grid: a number of rows, of columns, of others."""
        yield from product(*self.axes)

    @property
    def middle(self) -> tuple[int, int, int]:
        """Where tiles are good more often than elsewhere."""
        rows, columns, counts = self.axes
        return rows[min(2, len(rows) - 1)], columns[min(2, len(columns) - 1)], counts[0]

    def sizes(self, place: tuple[int, int, int]) -> Sizes:
        """The tile sizes for so many rows, columns and others."""
        room, columns, count = place
        sizes = list(self.shape)
        for k, n in zip(self.others, self.group, strict=True):
            sizes[k] = n
        if self.others and count > 1:
            last = self.others[-1]
            sizes[last] = _divisor(self.shape[last], max(count, self.group[-1]))
        for k in reversed(self.rows):
            n = self.shape[k]
            sizes[k] = min(n, max(1, room)) if len(self.rows) == 1 else _divisor(n, max(1, room))
            room //= n
        if self.column is not None:
            sizes[self.column] = columns
        return tuple(sizes)


def descend(grid: Grid, seconds: Callable[[Sizes], float], start: tuple[int, int, int]) -> float:
    """What the cheapest tile takes that is found from a good one, along one axis after another until none has a cheaper one.

    The seconds along an axis rise and fall with how whole blocks, tasks and caches come out, so that all of an axis is weighed;
    along several axes at a time they seldom do what they do not along one.
    """
    best, least = start, seconds(grid.sizes(start))
    while True:
        before = best
        for k in (1, 0, 2):  # columns first: they decide what is packed, and how often
            for n in grid.axes[k]:
                place = (n, best[1], best[2]) if k == 0 else (best[0], n, best[2]) if k == 1 else (best[0], best[1], n)
                if (found := seconds(grid.sizes(place))) < least:
                    best, least = place, found
        if best == before:
            return least


def same_shape(steps: Sequence[Contract], shape: Sequence[int]) -> Contract | None:
    """The last contraction whose result is cut as the fusion's is."""
    return next((s for s in reversed(steps) if s.value.shape == tuple(shape) and s.column_dimension), None)


def grid_of(
    same: Contract | None, last: Stage, shape: Sequence[int], free: Sequence[int], machine: Machine, thorough: bool, is_lean: bool
) -> Grid:
    """The tiles worth trying of a fusion with contractions, the `last` of them given; `same` as `same_shape` finds it."""
    large = [k for k in free if shape[k] > 1]
    column = same.column_dimension[0] if same is not None else len(shape) - 1
    rows = [k for k in large if k != column and (same is None or k in same.row_dimensions)]
    if same is None:
        rows = rows[-1:]
    others = [k for k in large if k != column and k not in rows]
    item = max(last.values[0].tensor.dtype.itemsize, 1)
    mr, nr = machine.micro_tile(item if item > 2 else 4, shape[column] if shape else 1)
    in_groups = same is not None and same.n < shape[column] and shape[column] % same.n == 0
    columns: list[int] = []
    if column in large:
        n, times = shape[column], PANELS if thorough else (4,)
        if in_groups and same is not None:
            # Groups, whose products have nothing in common: a task of one reads the least.
            nr, times = same.n, times if thorough else (1,)
        columns = sorted({min(n, nr * c) for c in times} | {n})
    row_sizes = [mr * c for c in (ROW_BLOCKS if thorough else (4, 12))]
    every = max(prod(shape[k] for k in rows), 1)
    beside = same is not None and same.k > same.k_block and every * same.k_block * item <= machine.l2_bytes
    if is_lean or (same is not None and every > row_sizes[-1] and (others or beside or in_groups)):
        row_sizes.append(every)  # then no two tasks pack the same, and a window of the other factor is filled once
    few = (1, 2, 4, 8) if thorough else (1, 4)
    group = {k: _rows_of_group(same, k) for k in others}
    small = bool(others) and (shape[others[-1]] * shape[column] <= SMALL_IMAGE or any(n > 1 for n in group.values()))
    if small and few[-1] < shape[others[-1]]:
        few = (*few, shape[others[-1]])
    axes = (tuple(row_sizes) if rows else (1,), tuple(columns) or (0,), few if same is not None and others else (1,))
    return Grid(tuple(shape), axes, tuple(rows), column if columns else None, tuple(others), tuple(group.values()))


def _rows_of_group(same: Contract | None, k: int) -> int:
    """How many elements of the result's dimension k are rows of one product: all of a group's, where it runs through groups."""
    if same is None or k in same.row_dimensions or same.m >= same.value.shape[k] or same.value.shape[k] % same.m:
        return 1
    strides = same.out.buffer.strides  # of fewer dimensions where the product is made in scratch of its own
    return same.m if len(strides) == len(same.value.shape) and same.out.row_stride == strides[k] else 1


def _divisor(n: int, most: int) -> int:
    """The greatest divisor of n up to `most`, so that no tile is cut; `most` itself where that is less than half of it."""
    found = next(d for d in range(min(n, most), 0, -1) if n % d == 0)
    return found if 2 * found >= min(n, most) else min(n, most)
