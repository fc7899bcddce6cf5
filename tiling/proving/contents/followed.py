"""Final loops in a form that proofs about contents follow.

    segments of stores                    ->  nests of their own
    those of folds, packs and tables      ->  the innermost loop as a whole
    sums written out, rows put together   ->  not yet so
    short rows across vectors             ->  as they lie in memory

What memory is touched is proved of the final loops as they are.
"""

from __future__ import annotations

import operator
from dataclasses import replace

from tiling.loops.ir import Contract, Nest, Schedule, Sequential, Step
from tiling.pipeline import finished

__all__ = ["followed", "in_whole_nests"]

NOT_FOLLOWED = ("turn_short_rows", "write_out_sums", "group_rows", "windows_together")
"""Passes after which one sum stands in several places of a nest, or in several nests, or a result waits in a tile."""


def followed(schedule: Schedule) -> Schedule:
    """The final loops of a schedule, as far as proofs about contents follow them."""
    return in_whole_nests(finished(schedule, NOT_FOLLOWED))


def in_whole_nests(schedule: Schedule) -> Schedule:
    """The schedule without segments; itself where there are none."""
    phases = []
    for p in schedule.phases:
        steps = tuple(x for s in p.steps for x in _step(s))
        phases.append(p if len(steps) == len(p.steps) and all(map(operator.is_, steps, p.steps)) else replace(p, steps=steps))
    return schedule if all(map(operator.is_, phases, schedule.phases)) else replace(schedule, phases=tuple(phases))


def _step(step: Step) -> list[Step]:
    is_table = isinstance(step, Nest) and bool(step.stores) and all(s.value is None for s in step.stores)
    if isinstance(step, Nest) and step.segments and not step.folds and step.skip is None and not is_table:
        inner = step.loops[-1]
        return [
            Nest((*step.loops[:-1], replace(inner, lower=x.lower, upper=x.upper)), x.stores, order_is_fixed=True)
            for x in step.segments
        ]
    if isinstance(step, Contract) and any(n.segments for n in step.pack):
        return [replace(step, pack=tuple(_whole(n) for n in step.pack))]
    if isinstance(step, Sequential) and any(isinstance(x, Nest) and x.segments for x in step.steps):
        return [replace(step, steps=tuple(_whole(x) if isinstance(x, Nest) else x for x in step.steps))]
    return [_whole(step)] if isinstance(step, Nest) else [step]


def _whole(nest: Nest) -> Nest:
    return replace(nest, segments=()) if nest.segments else nest
