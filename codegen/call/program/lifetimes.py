"""Where intermediate values lie: one block of memory for a whole call, each value at an offset while it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Lifetime", "place"]

LINE_BYTES = 64


@dataclass(frozen=True)
class Lifetime:
    """`size_bytes` that are in use from step `first` to step `last`, both included."""

    size_bytes: int
    first: int
    last: int


def place(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """(offset of each, bytes in all): two that are alive at the same time do not overlap. Largest first, lowest place that fits.

    >>> place([Lifetime(64, 0, 1), Lifetime(64, 1, 2), Lifetime(64, 2, 3)])
    ([0, 64, 0], 128)
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    total = 0
    for i in sorted(range(len(lifetimes)), key=lambda k: (-lifetimes[k].size_bytes, lifetimes[k].first)):
        me = lifetimes[i]
        size = -(-me.size_bytes // LINE_BYTES) * LINE_BYTES
        at = 0
        busy = sorted(
            (offsets[j], -(-lifetimes[j].size_bytes // LINE_BYTES) * LINE_BYTES)
            for j in placed
            if lifetimes[j].first <= me.last and me.first <= lifetimes[j].last
        )
        for start, width in busy:
            if at + size <= start:
                break
            at = max(at, start + width)
        offsets[i] = at
        placed.append(i)
        total = max(total, at + size)
    return offsets, total
