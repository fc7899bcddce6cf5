"""Where the parts of a result that two threads write at the same time meet.

    t3 in [0, 1], for w in [0, 195]: out[w, t3 * 240 + i]        each of 196 rows is cut between two threads: 195 borders more
    t1 in [0, 1], for w in [0, 97]:  out[t1 * 98 + w, i]         than the one that any two parts have

Around a border both threads want the same lines of the cache, or a pair of lines that is fetched as one, and one waits for what
the other has changed. Two threads go along such borders side by side where each begins with a tile next to the other's.
"""

from __future__ import annotations

from indexing.expr import Expr
from tiling.loops.affine import steps_along
from tiling.loops.ir import Buffer, Phase, Scope

__all__ = ["BORDER_SECONDS", "Borders"]

BORDER_SECONDS = 3e-8
"""A core's wait for a line that another one has changed, where both have a cache in common. Where they have none it is ten times
as much: 14 x 14 images of 480 channels took 131 us cut in two by channels, 26 by rows."""


class Borders:
    """The borders of a phase's stores, counted as they are noted."""

    def __init__(self, phase: Phase, cores: int) -> None:
        # Threads begin in different parts of the grid's first dimension: next to each other where each has one tile of it.
        first = next((t for t in phase.tiles if t[1] > 1), None)
        self._cut = first if first is not None and first[1] < 2 * cores else None
        self._cores = cores
        self.count = 0

    def note(self, buffer: Buffer, index: tuple[Expr, ...], strides: tuple[int, ...]) -> None:
        """A store at `index` of a buffer with these `strides`."""
        if self._cut is None or buffer.scope in (Scope.THREAD, Scope.ARGUMENT):
            return
        v, tiles = self._cut
        (step,) = steps_along(index, strides, (v,))
        if step is not None and step > 0:
            self.count += max(buffer.size_elems // (step * tiles) - 1, 0)

    def seconds(self, threads: int) -> float:
        """What they take of the whole: a thread has at most two neighbours."""
        return self.count * BORDER_SECONDS * min(threads - 1, 2)
