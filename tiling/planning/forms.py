"""The schedules that a fusion may have with given tile sizes, and which one of them the cost model prefers."""

from __future__ import annotations

from dataclasses import replace

from hlo.errors import Declined
from tiling.loops.ir import LoopKind, Nest, Schedule
from tiling.loops.names import Names
from tiling.lower.fusion import FusionRequest, Lowering
from tiling.lower.online import NO_MAXIMUM, OnlineLowering, find_online
from tiling.machine import Machine
from tiling.passing import runs
from tiling.planning.cost import estimate
from tiling.routines.table import routine_of

__all__ = ["is_long", "lower", "masks_pay", "online_pays"]


MUCH_SLOWER = 1.15
LEAST_ITEM_BYTES = 4


def lower(request: FusionRequest, machine: Machine, names: Names) -> Schedule | Declined:
    """The schedule of a fusion with given tile sizes, or why there is none.

    Declined when a member would have to be computed by several tasks and is also stored, or cannot be expressed.
    """
    if request.form:
        return _in_form(request, machine, names)
    made = _lowered(request, machine, names)
    if isinstance(made, Declined):
        return made
    form = "bounded"
    notes: list[str] = []
    if any(p.flags for p in made.phases):
        plain = _lowered(replace(request, masks=False), machine, names)
        if not isinstance(plain, Declined):
            bounded = masks_pay(made, plain, machine)
            notes.append(f"loops bounded by masks: {_compared(made, plain, machine)} in full{'' if bounded else ': not taken'}")
            made, form = (made, form) if bounded else (plain, "plain")
    if not is_long(made, machine) or not runs("online_form"):
        return replace(made, notes=(*made.notes, *notes), form=form)
    online = _online(request, machine, names)
    if isinstance(online, Declined):
        notes += [] if online.reason == NO_MAXIMUM else [f"no online form: {online.reason}"]
    else:
        taken = online_pays(online, made, machine)
        notes.append(f"online form: {_compared(online, made, machine)} by whole rows{'' if taken else ': not taken'}")
        made, form = (online, "online") if taken else (made, form)
    return replace(made, notes=(*made.notes, *notes), form=form)


def _in_form(request: FusionRequest, machine: Machine, names: Names) -> Schedule | Declined:
    """The schedule in the form that is asked for: bounded by masks where it has some, plain, or online."""
    if request.form == "online":
        found = _online(request, machine, names)
    else:
        found = _lowered(request if request.form == "bounded" else replace(request, masks=False), machine, names)
    return found if isinstance(found, Declined) else replace(found, form=request.form)


def _compared(a: Schedule, b: Schedule, machine: Machine) -> str:
    first, second = (
        f"{estimate(s, machine).seconds * 1e6:.1f} us with {s.thread_scratch_bytes} bytes of scratch a thread" for s in (a, b)
    )
    return f"{first}, {second}"


def masks_pay(made: Schedule, plain: Schedule, machine: Machine) -> bool:
    """Whether what is left out takes longer than to find out how large the inputs are."""
    return estimate(made, machine).seconds < estimate(plain, machine).seconds


def is_long(made: Schedule, machine: Machine) -> bool:
    """Whether a schedule over whole rows leaves a core's own cache: by its scratch, or by the length of what it reduces.

    Where it does not, whole rows were always the faster form.
    """
    longest = max((x.extent for p in made.phases for n in p.all_steps if isinstance(n, Nest) for x in n.loops
                   if x.kind is LoopKind.REDUCTION), default=0)  # fmt: skip
    return made.thread_scratch_bytes > machine.l2_bytes // 2 or longest * LEAST_ITEM_BYTES > machine.l2_bytes


def online_pays(online: Schedule, made: Schedule, machine: Machine) -> bool:
    """Whether one pass that rescales its running results is better than passes over whole rows.

    It is when it is faster; and where rows do not fit a core's own cache when it is not much slower, for it needs little scratch.
    """
    longest = 1.0 if made.thread_scratch_bytes <= machine.l2_bytes else MUCH_SLOWER
    return estimate(online, machine).seconds < longest * estimate(made, machine).seconds


def _lowered(request: FusionRequest, machine: Machine, names: Names) -> Schedule | Declined:
    try:
        lowering = Lowering(request, machine, names)
        if any(routine_of(s.op) is not None for s in request.stages):
            return lowering.routine()
        return lowering.run()
    except LookupError as reason:
        return Declined(str(reason))


def _online(request: FusionRequest, machine: Machine, names: Names) -> Schedule | Declined:
    """The form with a sequential loop over blocks of a reduction's dimension, or why there is none."""
    try:
        found = find_online(request, machine, names)
        return found if isinstance(found, Declined) else OnlineLowering(request, machine, names, found).run()
    except LookupError as reason:
        return Declined(str(reason))
