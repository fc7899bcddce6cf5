"""Tile sizes by measurement: each fusion's most promising schedules are compiled, run and timed, and the best is remembered.

autotune(module, *arrays)  ->  Plan whose tile sizes were the fastest; codegen.compile(module) finds it again
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import Any

from codegen.call.executable import Executable
from codegen.remembered.plans import remember, remembered_plan
from codegen.supports import supports
from hlo.errors import Declined
from hlo.module import Module
from tiling import Pin, Plan, plan
from tiling.planning.search import ranked_tiles

__all__ = ["Trial", "autotune", "measured_tiles"]


@dataclass(frozen=True)
class Trial:
    """One schedule that was measured: what the model predicted and what it took."""

    fusion: str
    tile_sizes: tuple[int, ...]
    predicted_seconds: float
    measured_seconds: float


def autotune(
    module: Module, *arrays: Any, entry: str = "main", candidates: int = 6, repeat: int = 5, seconds: float = 60.0
) -> tuple[Plan, list[Trial]]:
    """The plan with, for each fusion, the fastest of its `candidates` most promising tile sizes, and all trials.

    Only sizes change, never which stages form a fusion. Stops when `seconds` are over and keeps the best so far. The plan is
    remembered: later `codegen.compile` calls on this machine use it. Raises what a call with these arrays would raise.
    """
    best = remembered_plan(module, entry)
    deadline = time.monotonic() + seconds
    trials: list[Trial] = []
    for number in range(len(best.fusions)):
        fusion = best.fusions[number]  # of the plan as it is now: its stages are the ones that its names know
        ranked = ranked_tiles(fusion.stages, frozenset(fusion.outputs), best.machine, best.names)
        if isinstance(ranked, Declined):
            continue
        sizes = dict.fromkeys([fusion.tile_sizes, *(c.schedule.tile_sizes for c in ranked[:candidates])])
        predicted = {c.schedule.tile_sizes: c.estimate.seconds for c in ranked}
        timed = measured_tiles(best, number, list(sizes), arrays, repeat, deadline, entry)
        for tried, measured in timed.items():
            trials.append(Trial(fusion.name, tried, predicted.get(tried, fusion.estimate.seconds), measured))
        fastest = min(timed, key=lambda t: timed[t])
        if fastest != fusion.tile_sizes:
            pins = _with_sizes(best.pins(), number, fastest)
            best = replace(plan(module, entry, best.machine, supports, pins), decisions=best.decisions)
    remember(module, entry, best)
    return best, trials


def _with_sizes(pins: Sequence[Pin], number: int, sizes: tuple[int, ...]) -> list[Pin]:
    return [replace(p, tile_sizes=sizes) if k == number else p for k, p in enumerate(pins)]


def measured_tiles(
    base: Plan,
    number: int,
    sizes: Sequence[tuple[int, ...]],
    arrays: Sequence[Any],
    repeat: int,
    deadline: float = inf,
    entry: str = "main",
) -> dict[tuple[int, ...], float]:
    """Tile sizes of fusion `number` -> the median seconds of its kernels over `repeat` profiled calls, the sizes taking turns.

    In turns, so that what else the machine does meets all alike; a call before each does not count. Sizes that
    `deadline` (of time.monotonic) leaves no time for are missing, but never the first.
    """
    made: dict[tuple[int, ...], Executable] = {}
    for tried in sizes:
        if time.monotonic() > deadline and made:
            break
        pins = _with_sizes(base.pins(), number, tried)
        made[tried] = Executable(plan(base.module, entry, base.machine, supports, pins, donate=base.donate))
    spent: dict[tuple[int, ...], list[float]] = {tried: [] for tried in made}
    for turn in range(repeat):
        for tried, executable in made.items():
            name = executable.plan.fusions[number].name
            mine = [k for k, kernel in enumerate(executable.kernels) if kernel.fusion.name == name]
            executable(*arrays)  # its own buffers are the last ones touched
            seconds = executable.profile(*arrays)[1]
            spent[tried].append(sum(seconds[k] for k in mine))
        if time.monotonic() > deadline and turn:
            break
    return {tried: median(measured) for tried, measured in spent.items()}
