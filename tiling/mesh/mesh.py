"""Meshes: processes in rows and columns with names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

__all__ = ["Mesh"]


@dataclass(frozen=True, init=False)
class Mesh:
    """Named axes and their sizes; process p has, of the axes from the last to the first, the digits of p in these bases.

    Raises ValueError for an axis without processes.

    >>> mesh = Mesh({"x": 2, "y": 4})
    >>> mesh.size, mesh.place(6)
    (8, {'x': 1, 'y': 2})
    """

    axes: tuple[tuple[str, int], ...]

    def __init__(self, axes: Mapping[str, int]) -> None:
        made = tuple([(str(name), int(size)) for name, size in axes.items()])
        wrong = next((f"{name!r} = {size}" for name, size in made if size < 1), None)
        if wrong is not None:
            raise ValueError(f"mesh: expected sizes from 1 on, found {wrong}")
        object.__setattr__(self, "axes", made)

    @property
    def size(self) -> int:
        """The number of processes."""
        return prod(n for _, n in self.axes)

    def stride(self, axis: str) -> int:
        """How far apart the numbers of two neighbours along an axis are. Raises KeyError for an axis that there is not."""
        names = [name for name, _ in self.axes]
        if axis not in names:
            raise KeyError(f"no axis {axis!r}; there is {', '.join(map(repr, names)) or 'none'}")
        return prod(n for _, n in self.axes[names.index(axis) + 1 :])

    def place(self, process: int) -> dict[str, int]:
        """Where a process stands on each axis."""
        return {name: process // self.stride(name) % n for name, n in self.axes}

    def __str__(self) -> str:
        return ",".join(f"{name}={n}" for name, n in self.axes) or "one process"
