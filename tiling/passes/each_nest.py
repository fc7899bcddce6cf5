"""A rewrite of nests, applied to every nest of a schedule: in tasks, in sequential loops, and in packs of contractions.

Where it says so it also sees updates, whose loops are written as a nest's are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from indexing.expr import Interval, Var
from tiling.loops.accesses import buffers_by_value
from tiling.loops.element_ir import Load
from tiling.loops.ir import Buffer, Contract, Nest, Phase, Scatter, Schedule, Selection, Sequential, Step

__all__ = ["Around", "each_nest"]


@dataclass(frozen=True, eq=False)
class Around:
    """What a rewrite of a nest knows besides: its phase, the variables' ranges (to which it may add), where values are kept."""

    phase: Phase
    ranges: dict[Var, Interval]
    buffer_of: Callable[[Load], Buffer]


def each_nest(
    schedule: Schedule, rewrite: Callable[[Nest, Around], list[Nest]],
    updates: Callable[[Scatter | Selection, Around], Scatter | Selection] = lambda step, around: step,
) -> Schedule:  # fmt: skip
    """The schedule with `rewrite(nest, around)` in place of each nest; the schedule itself where no nest changes."""
    by_value = buffers_by_value(schedule)
    ranges = dict(schedule.ranges)
    changed = False

    def rewritten(step: Step, around: Around) -> list[Step]:
        nonlocal changed
        if isinstance(step, Nest):
            made = rewrite(step, around)
            changed |= len(made) != 1 or made[0] is not step
            return [*made]
        if isinstance(step, (Scatter, Selection)):
            update = updates(step, around)
            changed |= update is not step
            return [update]
        if isinstance(step, Contract) and step.pack:
            return [replace(step, pack=tuple(x for n in step.pack for x in rewritten(n, around) if isinstance(x, Nest)))]
        if isinstance(step, Sequential):
            inside = (x for s in step.steps for x in rewritten(s, around))
            return [replace(step, steps=tuple(x for x in inside if isinstance(x, (Nest, Contract))))]
        return [step]

    phases = []
    for phase in schedule.phases:
        around = Around(phase, ranges, lambda load: load.buffer or by_value[load.value])
        before = tuple(x for s in phase.before for x in rewritten(s, around))
        phases.append(replace(phase, before=before, steps=tuple(x for s in phase.steps for x in rewritten(s, around))))
    return replace(schedule, phases=tuple(phases), ranges=ranges) if changed else schedule
