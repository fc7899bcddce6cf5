"""Predicted against simulated traffic: what a kernel's own accesses fetch from beyond each core's caches, and from memory.

    python -m benchmarks.compiling.traffic [--only NAMES]

Hardware counters are not to be had everywhere, so each schedule's accesses (the ones that the proofs are about) are replayed
line by line through caches of the machine's sizes: one of its own for each core, and a shared one behind them, least recently
used of sixteen ways, empty at the start. A long kernel is sampled: its first tasks are replayed, the last ones of them counted
and scaled. Printed for each kernel: bytes from memory and bytes from beyond the cores' own caches, predicted and simulated.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log, prod
from pathlib import Path
from typing import Any

import numba
import numpy as np

import hlo
import tiling
from codegen.supports import supports
from indexing.expr import Expr, Var, fold
from tiling.loops.accesses import accesses_of
from tiling.loops.affine import step_along
from tiling.loops.domains.iterations import Access
from tiling.loops.element_ir import Node, all_nodes, runtimes_of
from tiling.loops.ir import Contract, Nest, Phase, Scatter, Schedule, Scope
from tiling.machine import Machine
from tiling.planning.costs.estimate import estimate

ROOT = Path(__file__).parents[2]
LINE_BYTES = 64
WAYS = 16
TOUCHES = 30_000_000  # lines replayed for a phase, at most


@dataclass
class Traffic:
    """Bytes of the lines that were fetched (or stored without being there)."""

    beyond_core_bytes: float = 0.0
    memory_bytes: float = 0.0


@numba.njit(cache=False)  # type: ignore[untyped-decorator]
def _touch(lines: Any, tags: Any, ages: Any, shared_tags: Any, shared_ages: Any, clock: int, missed: Any) -> int:
    """Looks lines up in a core's cache and, where they miss, in the shared one; counts both kinds of misses."""
    for line in lines:
        clock += 1
        for level in range(2):
            t, a = (tags, ages) if level == 0 else (shared_tags, shared_ages)
            s = line % t.shape[0]
            oldest = 0
            found = -1
            for w in range(t.shape[1]):
                if t[s, w] == line:
                    found = w
                    break
                if a[s, w] < a[s, oldest]:
                    oldest = w
            if found >= 0:
                a[s, found] = clock
                break
            t[s, oldest] = line
            a[s, oldest] = clock
            missed[level] += 1
    return clock


class _Caches:
    def __init__(self, machine: Machine) -> None:
        own = max(1, machine.l2_bytes // (LINE_BYTES * WAYS))
        shared = max(1, machine.l3_bytes // (LINE_BYTES * WAYS))
        self.own = [(np.full((own, WAYS), -1), np.zeros((own, WAYS), np.int64)) for _ in range(machine.cores)]
        self.shared = np.full((shared, WAYS), -1), np.zeros((shared, WAYS), np.int64)
        self.clock, self.missed = 0, np.zeros(2, np.int64)

    def touch(self, core: int, lines: np.ndarray) -> None:
        self.clock = _touch(lines, *self.own[core], *self.shared, self.clock, self.missed)


def simulate(schedule: Schedule, machine: Machine) -> Traffic | str:
    """The traffic of a schedule whose tasks take turns on the machine's cores, or why it cannot be replayed."""
    found: list[Access] = []
    for a in accesses_of(schedule):
        if not isinstance(a, Access):
            return f"{a[0]}: {a[1]}"
        found.append(a)
    caches, total = _Caches(machine), Traffic()
    places, values = _places(schedule, machine.cores), _read_at_run_time(schedule)
    for number, phase in enumerate(schedule.phases):
        mine = [a for a in found if a.order[0] == number]
        touches = sum(max(1, _size(a, values) // 8) for a in mine)
        tasks = phase.tasks
        replayed = max(2 * machine.cores, min(tasks, TOUCHES // max(touches, 1)))
        warm = 0 if replayed >= tasks else replayed // 2
        for task in range(min(replayed, tasks)):
            if task == warm:
                before = caches.missed.copy()
            core = task % machine.cores
            for lines in _lines(phase, mine, task, core, places, values):
                caches.touch(core, lines)
        counted = caches.missed - before
        scale = tasks / (replayed - warm) if replayed < tasks else 1.0
        total.beyond_core_bytes += float(counted[0]) * LINE_BYTES * scale
        total.memory_bytes += float(counted[1]) * LINE_BYTES * scale
    return total


def _read_at_run_time(schedule: Schedule) -> frozenset[Var]:
    """The variables that stand for values: the starts of slices, rows of a gather, places of a scatter."""
    found: set[Var] = set()
    stack: list[Node] = []
    for step in (s for p in schedule.phases for s in p.all_steps):
        for nest in (step, *step.pack) if isinstance(step, Contract) else (step,):
            if isinstance(nest, Nest):
                stack += [s.node for s in nest.stores] + [n for f in nest.folds for n in (*f.nodes, *f.inits)]
            elif isinstance(nest, Scatter):
                found |= {s.variable for s in nest.starts if s.variable is not None}
                stack.append(nest.node)
    return frozenset(found.union(r.variable for node in all_nodes(stack) for r in runtimes_of(node)))


def _size(a: Access, values: frozenset[Var]) -> int:
    return prod(s.upper - s.lower + 1 for v, s in a.domain.variables[a.domain.shared :] if v not in values)


def _places(schedule: Schedule, cores: int) -> dict[tuple[int, int], int]:
    """(buffer, core) -> its first byte; scratch of a thread has a place for each core."""
    places: dict[tuple[int, int], int] = {}
    at = 0
    for b in schedule.buffers:
        for core in range(cores):
            if core and b.scope is not Scope.THREAD:
                places[id(b), core] = places[id(b), 0]
                continue
            places[id(b), core] = at
            at += -(-b.size_bytes // 4096) * 4096
    return places


def _lines(
    phase: Phase, accesses: list[Access], task: int, core: int, places: dict[tuple[int, int], int], values: frozenset[Var]
) -> Iterator[np.ndarray]:
    """The lines that a task touches, step by step; the accesses of one part of a step go on side by side."""
    pinned: dict[Var, int] = {}
    for v, n in reversed(phase.tiles):
        pinned[v], task = task % n, task // n
    for key in sorted({a.order[1:3] for a in accesses}):
        parts, progress = [], []
        for a in (a for a in accesses if a.order[1:3] == key):
            lines = _lines_of(a, pinned, places[id(a.buffer), core], values)
            parts.append(lines)
            progress.append(np.arange(len(lines)) / max(len(lines), 1))
        if parts:
            yield np.concatenate(parts)[np.argsort(np.concatenate(progress), kind="stable")]


def _lines_of(a: Access, pinned: dict[Var, int], place: int, values: frozenset[Var]) -> np.ndarray:
    """The lines of one access over a task's iterations, repetitions one after the other left out."""
    free = [(v, s) for v, s in a.domain.variables if v not in pinned and v not in values]
    step = step_along(a.at, a.buffer.strides, free[-1][0]) if free else 0
    item = a.buffer.element.itemsize_bytes
    grid: dict[Var, Any] = {v: np.int64(n) for v, n in pinned.items()}
    for k, (v, s) in enumerate(free):
        # Along consecutive elements one look at each half line is enough.
        by = max(1, LINE_BYTES // (2 * item)) if k == len(free) - 1 and step in (0, 1) else 1
        grid[v] = np.arange(s.lower, s.upper + 1, by, dtype=np.int64).reshape([-1 if i == k else 1 for i in range(len(free))])
    shape = tuple(len(grid[v].ravel()) for v, _ in free)
    for v, s in a.domain.variables:
        if v in values:  # one draw for each index of the outermost loop: whole rows are read from one place
            drawn = shape[:1] + (1,) * (len(shape) - 1)
            grid[v] = np.random.default_rng(0).integers(s.lower, s.upper + 1, drawn)

    def value(e: Expr) -> Any:
        return fold(e, grid.__getitem__, np.int64, np.minimum, np.maximum)

    offset = sum((value(e) * s for e, s in zip(a.at, a.buffer.strides, strict=True)), np.int64(0))
    lines = np.broadcast_to((place + offset * item) // LINE_BYTES, shape).ravel()
    taken = np.ones(shape, np.bool_)
    for c in a.domain.held:
        taken &= _holds(value(c.expression), c)
    for group in a.domain.failed:
        every = np.ones(shape, np.bool_)
        for c in group:
            every &= _holds(value(c.expression), c)
        taken &= ~every
    lines = lines[taken.ravel()]
    return lines[np.flatnonzero(np.diff(lines, prepend=-1))]


def _holds(values: Any, condition: Any) -> Any:
    return (values >= condition.lower) & (values <= condition.upper)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="workloads, separated by commas")
    wanted = set(filter(None, parser.parse_args().only.split(",")))
    machine = Machine.detect()
    print(f"{'':48s}{'memory, MB':>22s}{'beyond own caches, MB':>26s}")
    ratios: list[tuple[float, float]] = []
    for path in sorted([*(ROOT / "examples").glob("*.mlir"), *(ROOT / "tests" / "programs").glob("*.mlir")]):
        if wanted and path.stem not in wanted:
            continue
        for fusion in tiling.plan(hlo.load(path), machine=machine, supports=supports).fusions:
            seen = simulate(fusion.schedule, machine)
            name = f"{path.stem:24s} {fusion.name:22s}"
            if isinstance(seen, str):
                print(f"{name} not replayed: {seen}")
                continue
            e = estimate(fusion.schedule, machine)
            ratios.append((e.memory_bytes / max(seen.memory_bytes, 1.0), e.cache_bytes / max(seen.beyond_core_bytes, 1.0)))
            print(
                f"{name} {e.memory_bytes / 1e6:9.2f} {seen.memory_bytes / 1e6:9.2f}  ({ratios[-1][0]:4.2f})"
                f" {e.cache_bytes / 1e6:9.2f} {seen.beyond_core_bytes / 1e6:9.2f}  ({ratios[-1][1]:4.2f})",
                flush=True,
            )
    for k, what in enumerate(("memory", "beyond own caches")):
        mean = exp(sum(log(max(r[k], 0.01)) for r in ratios) / max(len(ratios), 1))
        near = sum(0.8 <= r[k] <= 1.25 for r in ratios) / max(len(ratios), 1)
        print(f"{what}: predicted / simulated {mean:.2f} (geometric mean), {near:.0%} within 25 %")


if __name__ == "__main__":
    main()
