"""The schedules that a fusion may have with given tile sizes, and which one of them the cost model prefers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from hlo.errors import Declined
from tiling.cost_model import model_of
from tiling.loops.ir import LoopKind, Nest, Schedule
from tiling.loops.names import Names
from tiling.lower.fusion import Lowering
from tiling.lower.limited import NOTHING_LIMITED, LimitedLowering, find_limited, may_be_limited
from tiling.lower.online import NO_MAXIMUM, OnlineLowering, find_online
from tiling.lower.placing import FusionRequest
from tiling.machine import Machine
from tiling.passes.group_rows import has_long_rows
from tiling.passing import runs, skipped
from tiling.planning.costs.estimate import estimate
from tiling.planning.weigh import Sketch, sketch
from tiling.routines.table import routine_of

__all__ = ["is_long", "lower", "masks_pay", "online_pays", "weigh", "with_rows_at_a_time"]


MUCH_SLOWER = 1.15
LEAST_ITEM_BYTES = 4
_BOUNDED = "loops bounded by masks"

T = TypeVar("T")


def lower(request: FusionRequest, machine: Machine, names: Names) -> Schedule | Declined:
    """The schedule of a fusion with given tile sizes, or why there is none.

    Declined when a member would have to be computed by several tasks and is also stored, or cannot be expressed.
    """
    if request.form:
        return _in_form(request, machine, names)
    made = _lowered(request, machine, names)
    if isinstance(made, Declined):
        return made
    if may_be_limited(request.stages, names):
        limited = _limited(request, machine, names)
        if isinstance(limited, Declined):
            why = () if limited.reason == NOTHING_LIMITED else (f"no loops bounded by numbers read: {limited.reason}",)
            made = replace(made, notes=(*made.notes, *why))
        else:
            other, known = _figures(limited, machine), _figures(made, machine)
            note = f"loops bounded by numbers read: {_compared(other, known)} in full"
            if other.estimate.seconds < known.estimate.seconds:
                return replace(limited, notes=(*limited.notes, note), form="limited")
            made = replace(made, notes=(*made.notes, f"{note}: not taken"))
    form = "bounded"
    notes: list[str] = []
    known = _figures(made, machine)
    if known.is_bounded:
        plain = _lowered(replace(request, masks=False), machine, names)
        if not isinstance(plain, Declined):
            other = _figures(plain, machine)
            pays = masks_pay(known, other)
            notes.append(f"{_BOUNDED}: {_compared(known, other)} in full{'' if pays else ': not taken'}")
            if not pays:
                made, known, form = plain, other, "plain"
    if not is_long(known, machine) or not runs("online_form"):
        return replace(made, notes=(*made.notes, *notes), form=form)
    online = _online(request, machine, names)
    if isinstance(online, Declined):
        notes += _without(online)
    else:
        other = _figures(online, machine)
        taken = online_pays(other, known, machine)
        notes.append(f"online form: {_compared(other, known)} by whole rows{'' if taken else ': not taken'}")
        made, form = (online, "online") if taken else (made, form)
    return replace(made, notes=(*made.notes, *notes), form=form)


def with_rows_at_a_time(schedule: Schedule, machine: Machine) -> Schedule:
    """The schedule whose long rows of memory, if it has any, are read as many at a time as the machine does best."""
    if machine.rows_at_a_time == schedule.rows_at_a_time or not has_long_rows(schedule):
        return schedule
    return replace(schedule, rows_at_a_time=machine.rows_at_a_time)


def weigh(request: FusionRequest, machine: Machine, names: Names) -> Sketch | Schedule | Declined:
    """The figures of the form that `lower` would choose; its schedule where they do not follow from maps, or it is online.

    They are those of the CPU's model, of loops after all passes: where one is skipped or another model weighs, it is lowered.
    """
    if skipped() or model_of(machine) is not None or may_be_limited(request.stages, names):
        return lower(request, machine, names)
    notes: list[str] = []
    try:
        made = sketch(request, machine, names)
        if made is None:
            return lower(request, machine, names)
        if made.is_bounded:
            plain = sketch(replace(request, masks=False), machine, names)
            if plain is None:
                return lower(request, machine, names)
            pays = masks_pay(made, plain)
            notes.append(f"{_BOUNDED}: {_compared(made, plain)} in full{'' if pays else ': not taken'}")
            made = made if pays else replace(plain, form="plain")
    except LookupError as reason:
        return Declined(str(reason))
    if is_long(made, machine):
        online = _online(request, machine, names)
        if isinstance(online, Declined):
            notes += _without(online)
        else:
            figures = _figures(online, machine)
            taken = online_pays(figures, made, machine)
            notes.append(f"online form: {_compared(figures, made)} by whole rows{'' if taken else ': not taken'}")
            if taken:
                return replace(online, notes=(*online.notes, *notes), form="online")
    return replace(made, notes=(*made.notes, *notes)) if notes else made


def _without(online: Declined) -> list[str]:
    """Why there is no online form, where that is worth a note."""
    return [] if online.reason == NO_MAXIMUM else [f"no online form: {online.reason}"]


def _in_form(request: FusionRequest, machine: Machine, names: Names) -> Schedule | Declined:
    """The schedule in the form that is asked for: bounded by masks where it has some, plain, or online."""
    if request.form == "online":
        found = _online(request, machine, names)
    elif request.form == "limited":
        found = _limited(request, machine, names)
    else:
        found = _lowered(request if request.form == "bounded" else replace(request, masks=False), machine, names)
    return found if isinstance(found, Declined) else replace(found, form=request.form)


def masks_pay(made: Sketch, plain: Sketch) -> bool:
    """Whether what is left out takes longer than to find out how large the inputs are."""
    return made.estimate.seconds < plain.estimate.seconds


def _compared(a: Sketch, b: Sketch) -> str:
    first, second = (f"{s.estimate.figure(s.estimate.seconds)} with {s.scratch_bytes} bytes of scratch a thread" for s in (a, b))
    return f"{first}, {second}"


def _figures(made: Schedule, machine: Machine) -> Sketch:
    """What is compared of a schedule."""
    longest = max((x.extent for p in made.phases for n in p.all_steps if isinstance(n, Nest) for x in n.loops
                   if x.kind is LoopKind.REDUCTION), default=0)  # fmt: skip
    bounded = any(p.flags for p in made.phases)
    return Sketch(
        made.tile_sizes, estimate(made, machine), (), (), made.notes, False, made.thread_scratch_bytes, longest, bounded
    )


def is_long(made: Sketch, machine: Machine) -> bool:
    """Whether a form over whole rows leaves a core's own cache: by its scratch, or by the length of what it reduces.

    Where it does not, whole rows were always the faster form.
    """
    return made.scratch_bytes > machine.l2_bytes // 2 or made.longest * LEAST_ITEM_BYTES > machine.l2_bytes


def online_pays(online: Sketch, made: Sketch, machine: Machine) -> bool:
    """Whether one pass that rescales its running results is better than passes over whole rows.

    It is when it is faster; and where rows do not fit a core's own cache when it is not much slower, for it needs little scratch.
    """
    longest = 1.0 if made.scratch_bytes <= machine.l2_bytes else MUCH_SLOWER
    return online.estimate.seconds < longest * made.estimate.seconds


def _lowered(request: FusionRequest, machine: Machine, names: Names) -> Schedule | Declined:
    try:
        lowering = Lowering(request, machine, names)
        if any(routine_of(s.op) is not None for s in request.stages):
            return lowering.routine()
        return lowering.run()
    except LookupError as reason:
        return Declined(str(reason))


def _limited(request: FusionRequest, machine: Machine, names: Names) -> Schedule | Declined:
    """The form with loops that are bounded by numbers read when the program runs, or why there is none."""
    return _found(find_limited, LimitedLowering, request, machine, names)


def _online(request: FusionRequest, machine: Machine, names: Names) -> Schedule | Declined:
    """The form with a sequential loop over blocks of a reduction's dimension, or why there is none."""
    return _found(find_online, OnlineLowering, request, machine, names)


def _found(
    find: Callable[[FusionRequest, Machine, Names], T | Declined],
    lowering: Callable[[FusionRequest, Machine, Names, T], Lowering],
    request: FusionRequest, machine: Machine, names: Names,
) -> Schedule | Declined:  # fmt: skip
    """The schedule by a lowering of what a search found of a fusion, or why there is none."""
    try:
        found = find(request, machine, names)
        return found if isinstance(found, Declined) else lowering(request, machine, names, found).run()
    except LookupError as reason:
        return Declined(str(reason))
