"""Arrays that processes hold in tiles: each knows its mesh, how it is spread, and its own tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo.errors import TilewrightError
from tiling.mesh.mesh import Mesh
from tiling.mesh.shardings import Digit, Sharding

__all__ = ["Exchange", "ShardedArray", "ShardingError", "sharding_along"]

Exchange = Callable[[np.ndarray], list[np.ndarray]]
"""From this process's array to all processes' arrays, by their numbers; all of them call it."""


class ShardingError(TilewrightError):
    """An array that is spread otherwise than it has to be, or that this process does not hold."""


@dataclass(frozen=True, eq=False)
class ShardedArray:
    """An array of `shape` whose `sharding` over a mesh says which elements a process holds: `tile`, as NumPy has them.

    `exchange` is the way to the other processes. Everything here is this process's own but `gather`, which all call.

    >>> alone = ShardedArray(np.arange(3), (3,), Sharding.whole(1), Mesh({"x": 1}), 0, lambda a: [a])
    >>> alone, alone.slices, alone.gather().tolist()
    (<array int64[3] as [{}] over x=1, of which process 0 holds [0:3]>, (slice(0, 3, None),), [0, 1, 2])
    """

    tile: np.ndarray
    shape: tuple[int, ...]
    sharding: Sharding
    mesh: Mesh
    process: int
    exchange: Exchange

    @staticmethod
    def made(
        shape: Sequence[int], sharding: Sharding, mesh: Mesh, process: int, exchange: Exchange, make: Callable[..., Any]
    ) -> ShardedArray:
        """The array whose elements at some slices are `make(slices)`, which is asked for this process's alone.

        Raises ShardingError where it makes another shape.
        """
        slices = sharding.slices(shape, process)
        tile = np.asarray(make(slices))
        wanted = tuple([s.stop - s.start for s in slices])
        if tile.shape != wanted:
            raise ShardingError(f"expected a tile of shape {list(wanted)} for {_shown(slices)}, found {list(tile.shape)}")
        return ShardedArray(tile, tuple(shape), sharding, mesh, process, exchange)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.tile.dtype

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where the tile is in the whole."""
        return self.sharding.slices(self.shape, self.process)

    @property
    def is_owner(self) -> bool:
        """Whether this process is the first of those that hold its tile: each element has one owner."""
        return self.owner(self.process) == self.process

    def owner(self, process: int) -> int:
        """The first process that holds the same tile as another."""
        start = self.sharding.start(self.shape, process)
        return next(p for p in range(self.mesh.size) if self.sharding.start(self.shape, p) == start)

    def gather(self) -> np.ndarray:
        """The whole array, on every process; all of them call it. Each tile is sent by one of those that hold it."""
        found = self.exchange(self.tile if self.is_owner else np.empty(0, self.dtype))
        tiles = [found[self.owner(p)].reshape(_sizes(self.sharding.slices(self.shape, p))) for p in range(self.mesh.size)]
        return self.sharding.joined(tiles, self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if not self.sharding.is_whole:
            raise ShardingError(f"{self!r}: its tile is `.tile`; `.gather()`, called by all processes, gives all of it")
        return np.array(self.tile, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        what = f"{self.dtype}[{', '.join(map(str, self.shape))}] as {self.sharding} over {self.mesh}"
        return f"<array {what}, of which process {self.process} holds {_shown(self.slices)}>"


def _shown(slices: Sequence[slice]) -> str:
    return "[" + ", ".join(f"{s.start}:{s.stop}" for s in slices) + "]"


def _sizes(slices: Sequence[slice]) -> tuple[int, ...]:
    return tuple([s.stop - s.start for s in slices])


def sharding_along(mesh: Mesh, spec: Sequence[str | Sequence[str] | None], rank: int) -> Sharding:
    """The sharding that names, for each dimension, the axis or the axes that it is spread along, or None; the rest is whole.

    Raises ShardingError for too many dimensions or an axis that is named twice, KeyError for one that there is not.

    >>> print(sharding_along(Mesh({"x": 2, "y": 4}), [None, ("x", "y")], 3))
    [{}, {x, y}, {}]
    """
    if len(spec) > rank:
        raise ShardingError(f"expected at most {rank} dimensions, found {len(spec)}: {tuple(spec)}")
    sizes = dict(mesh.axes)
    dims: list[tuple[Digit, ...]] = []
    for one in (*spec, *[None] * (rank - len(spec))):
        names = () if one is None else (one,) if isinstance(one, str) else tuple(one)
        digits = [Digit(mesh.stride(name), sizes[name], name) for name in names]
        dims.append(tuple([d for d in digits if d.size > 1]))
    made = Sharding(tuple(dims))
    if not made.is_sound:
        raise ShardingError(f"expected each axis once, found {tuple(spec)}")
    return made
