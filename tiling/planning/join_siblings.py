"""Kernels that read the same values become one, where that is cheaper than to read them twice.

    z = sum over rows of x,  y = max over columns of x     ->   one kernel, x is read once

Unlike a producer and its reader they need not depend on each other. `tiling.lower.siblings` says how they share the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from hlo.errors import Declined
from hlo.module import Value
from hlo.types import TensorType
from tiling.loops.buffers import Buffer
from tiling.loops.names import Names
from tiling.loops.stage import Stage
from tiling.planning.model import Decision
from tiling.planning.search import Candidate, Kernel, Weighed

__all__ = ["join_siblings"]

LEAST_BYTES = 1 << 16  # a smaller value is read a second time from a cache, for less than a fusion costs to try
MOST_STAGES = 24
NEAREST = 3  # of the kernels before that use the value


class Planner(Protocol):
    """What is used of the planner (`tiling.planning.planner`)."""

    names: Names
    decisions: list[Decision]

    def values(self) -> Iterator[Value]: ...
    def kernels(self) -> list[Kernel]: ...
    def kernel_name(self, kernel: Kernel) -> str: ...
    def weigh(self, kernel: Kernel) -> Candidate | Weighed: ...
    def touched(self, kernel: Kernel) -> list[Buffer]: ...
    def stored(self, stages: Sequence[Stage]) -> frozenset[Value]: ...
    def best(self, stages: Sequence[Stage], stored: frozenset[Value]) -> Candidate | Weighed | Declined: ...
    def refusal(self, kernel: Kernel, target: Kernel) -> str | None: ...
    def in_one(self, kernel: Kernel, target: Kernel) -> list[Stage]: ...
    def replace(self, together: list[Stage], found: Candidate | Weighed) -> None: ...


def join_siblings(planner: Planner) -> None:
    """Joins kernels that share a large value, pair by pair, while the cost model finds them cheaper together."""
    tried: set[tuple[Kernel, Kernel]] = set()
    uses: dict[Kernel, tuple[Value, ...]] = {}
    joined = True
    while joined:
        joined = False
        for value, first, second in _pairs(planner, uses):
            if (first, second) in tried:
                continue
            tried.add((first, second))
            if _join(planner, value, first, second):
                joined = True
                break


def _pairs(planner: Planner, uses: dict[Kernel, tuple[Value, ...]]) -> Iterator[tuple[Value, Kernel, Kernel]]:
    """(the value, two kernels that read it, or of which one makes it), largest values first; `uses` remembers `_large`."""
    sizes = (v.type.size_bytes for v in planner.values() if isinstance(v.type, TensorType) and v.type.is_static)
    if not any(n >= LEAST_BYTES for n in sizes):
        return
    users: dict[Value, list[Kernel]] = {}
    for kernel in planner.kernels():
        if kernel not in uses:
            uses[kernel] = _large(planner, kernel)
        for v in uses[kernel]:
            users.setdefault(v, []).append(kernel)
    for value, kernels in sorted(users.items(), key=lambda x: -x[0].tensor.size_bytes):
        for k, second in enumerate(kernels[1:], 1):
            for first in kernels[max(0, k - NEAREST) : k]:
                yield value, first, second


def _large(planner: Planner, kernel: Kernel) -> tuple[Value, ...]:
    """The large values that a kernel of plain loops reads and writes; none for one that joins no other."""
    if kernel.pinned or len(kernel.stages) > MOST_STAGES or not planner.weigh(kernel).streams:
        return ()
    return tuple(b.value for b in planner.touched(kernel) if b.value is not None and b.size_bytes >= LEAST_BYTES)


def _join(planner: Planner, value: Value, first: Kernel, second: Kernel) -> bool:
    """Decides whether two kernels become one, with either's root as the root, and keeps the reason."""
    name, other = (planner.kernel_name(k) for k in (second, first))
    what = f"both use %{planner.names.of(value)}"
    refusal = planner.refusal(second, first)
    if refusal is not None:
        planner.decisions.append(Decision(name, other, False, f"{what}; {refusal}"))
        return False
    apart = planner.weigh(first).estimate.seconds + planner.weigh(second).estimate.seconds
    best, reason = None, ""
    for stages in (planner.in_one(second, first), planner.in_one(first, second)):
        found = planner.best(stages, planner.stored(stages))
        if isinstance(found, Declined):
            reason = reason or found.reason
        elif best is None or found.estimate.seconds < best[1].estimate.seconds:
            best = stages, found
    if best is None:
        planner.decisions.append(Decision(name, other, False, f"{what}; {reason}"))
        return False
    together = best[1].estimate.seconds
    figure = best[1].estimate.figure
    text = f"{what}; {figure(together)} together, {figure(apart)} apart"
    planner.decisions.append(Decision(name, other, together < apart, text, together, apart))
    if together >= apart:
        return False
    planner.replace(best[0], best[1])
    return True
