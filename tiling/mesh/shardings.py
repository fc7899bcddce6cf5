"""Shardings: which tile of a value a process holds.

A process's number has digits, `(p // stride) % size`; an axis of a mesh is one of them, a sub-axis too. A sharding gives each
dimension of a value some digits, most significant first, which together number the tile that the process holds:

    dimension k of n elements, digits t1, t2 of sizes s1, s2: tile t1 * s2 + t2 of b = ceil(n / (s1 s2)): [tile * b, + b)

Processes that differ in no digit of a value hold the same tile: they are copies. Where a mesh does not divide a dimension, the
last tiles reach over its end. What they hold there is nobody's: nothing reads it, and folds put their initial value in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hlo.types import TensorType

__all__ = ["Digit", "Sharding", "groups_along", "shown"]


@dataclass(frozen=True, order=True)
class Digit:
    """The digit `(process // stride) % size` of a process's number; `name` is its axis's."""

    stride: int
    size: int
    name: str = ""

    def of(self, process: int) -> int:
        """A process's digit."""
        return process // self.stride % self.size

    def __str__(self) -> str:
        return self.name or f"{self.stride}:{self.size}"


@dataclass(frozen=True)
class Sharding:
    """The digits of each dimension, most significant first.

    >>> x, y = Digit(2, 2, "x"), Digit(1, 2, "y")
    >>> s = Sharding(((x,), (y,)))
    >>> str(s), s.local_shape((4, 6)), [s.start((4, 6), p) for p in range(4)]
    ('[{x}, {y}]', (2, 3), [(0, 0), (0, 3), (2, 0), (2, 3)])
    """

    dims: tuple[tuple[Digit, ...], ...]

    @staticmethod
    def whole(rank: int) -> Sharding:
        """Every process holds everything."""
        return Sharding(((),) * rank)

    @property
    def digits(self) -> tuple[Digit, ...]:
        """All digits, dimension by dimension."""
        return tuple([d for dim in self.dims for d in dim])

    @property
    def is_whole(self) -> bool:
        """Whether every process holds everything."""
        return not self.digits

    @property
    def places(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The same without names, in digits of prime sizes: alike where two shardings give each process the same tiles.

        >>> Sharding(((Digit(1, 4, "x"),),)).places, Sharding(((Digit(2, 2), Digit(1, 2)),)).places
        ((((2, 2), (1, 2)),), (((2, 2), (1, 2)),))
        """
        return tuple([tuple([part for d in dim for part in _prime_digits(d)]) for dim in self.dims])

    def parts(self, k: int) -> int:
        """How many tiles dimension k has."""
        return prod(d.size for d in self.dims[k])

    @property
    def is_sound(self) -> bool:
        """Whether no digit is used twice."""
        return len(set(self.digits)) == len(self.digits)

    def uneven_dims(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The dimensions whose last tiles reach over their ends."""
        return tuple([k for k, n in enumerate(shape) if n % self.parts(k)])

    def local_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a tile."""
        return tuple([-(-n // self.parts(k)) for k, n in enumerate(shape)])

    def local_type(self, t: TensorType) -> TensorType:
        """The type of a tile."""
        return TensorType(self.local_shape(t.static_shape), t.element)

    def tile(self, k: int, process: int) -> int:
        """The number of a process's tile along dimension k."""
        number = 0
        for d in self.dims[k]:
            number = number * d.size + d.of(process)
        return number

    def start(self, shape: Sequence[int], process: int) -> tuple[int, ...]:
        """The first index of a process's tile."""
        local = self.local_shape(shape)
        return tuple([self.tile(k, process) * n for k, n in enumerate(local)])

    def slices(self, shape: Sequence[int], process: int) -> tuple[slice, ...]:
        """The elements that a process holds, those over an end left out.

        >>> Sharding(((Digit(1, 4, "x"),),)).slices((6,), 2), Sharding(((Digit(1, 4, "x"),),)).slices((6,), 3)
        ((slice(4, 6, None),), (slice(6, 6, None),))
        """
        rows = zip(self.start(shape, process), self.local_shape(shape), shape, strict=True)
        return tuple([slice(min(a, n), min(a + b, n)) for a, b, n in rows])

    def shard(self, array: np.ndarray, process: int) -> np.ndarray:
        """A process's tile of an array: a view of it, or, where it reaches over an end, a copy with zeros there."""
        return self.filled(array[self.slices(array.shape, process)], array.shape)

    def filled(self, part: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """A tile of which the part over the ends may be missing, with zeros there."""
        local = self.local_shape(shape)
        if part.shape == local:
            return part
        made = np.zeros(local, part.dtype)
        made[tuple([slice(0, n) for n in part.shape])] = part
        return made

    def joined(self, tiles: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
        """The array of which process p holds tiles[p], with or without what is over the ends."""
        made = np.empty(tuple(shape), tiles[0].dtype)
        for p, tile in enumerate(tiles):
            at = self.slices(made.shape, p)
            made[at] = tile[tuple([slice(0, s.stop - s.start) for s in at])]
        return made

    def __str__(self) -> str:
        return "[" + ", ".join("{" + ", ".join(shown(dim)) + "}" for dim in self.dims) + "]"


def _prime_digits(d: Digit) -> list[tuple[int, int]]:
    made, size, factor = [], d.size, 2
    while size > 1:
        while size % factor == 0:
            size //= factor
            made.append((d.stride * size, factor))
        factor += 1
    return made


def shown(digits: Sequence[Digit]) -> list[str]:
    """Digits by name, neighbours that are an axis, or a part of one, together.

    >>> shown([Digit(2, 2, "x:(1)2"), Digit(1, 2, "x:(2)2"), Digit(4, 2, "y:(2)2")])
    ['x', 'y:(2)2']
    """
    made: list[Digit] = []
    for d in digits:
        last = made[-1] if made else None
        axis, before, size = _part(d.name)
        if last is not None and axis and last.stride == d.stride * d.size and _part(last.name)[0] == axis and before > 1:
            first = _part(last.name)
            made[-1] = Digit(d.stride, last.size * d.size, f"{axis}:({first[1]}){first[2] * size}")
        else:
            made.append(d)
    return [_whole_axis(d, digits) for d in made]


def _part(name: str) -> tuple[str, int, int]:
    """An axis's name, and which part of it a sub-axis is."""
    axis, _, rest = name.partition(":(")
    before, _, size = rest.partition(")")
    return (axis, int(before), int(size)) if before and size else ("", 1, 1)


def _whole_axis(d: Digit, digits: Sequence[Digit]) -> str:
    """An axis's own name where all of its parts are together."""
    axis, before, _ = _part(d.name)
    parts = [x for x in digits if _part(x.name)[0] == axis]
    last = max((_part(x.name)[1] * _part(x.name)[2] for x in parts), default=0)
    return axis if axis and before == 1 and d.size == last and d not in digits else str(d)


def groups_along(digits: Sequence[Digit], processes: int) -> tuple[tuple[int, ...], ...]:
    """The groups of processes that differ in these digits alone, each in the digits' order.

    >>> groups_along([Digit(2, 2)], 4), groups_along([Digit(1, 2), Digit(2, 2)], 4)
    (((0, 2), (1, 3)), ((0, 2, 1, 3),))
    """

    def number(p: int, chosen: Iterable[Digit]) -> int:
        found = 0
        for d in chosen:
            found = found * d.size + d.of(p)
        return found

    rows: dict[int, list[int]] = {}
    for p in range(processes):
        rows.setdefault(p - sum(d.of(p) * d.stride for d in digits), []).append(p)
    return tuple([tuple(sorted(row, key=lambda p: number(p, digits))) for row in rows.values()])
