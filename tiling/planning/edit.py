"""Edits of plans by hand: a schedule is data, so a person changes it and gives the plan back to `codegen.compile`.

with_loop_order(plan, "reduce_1", ("r0", "i0"))   ->   the same plan with that nest's loops in that order
with_schedule(plan, "k0_add_1", schedule)         ->   the same plan with another schedule for one fusion
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tiling.loops.ir import Contract, LoopKind, Nest, Schedule
from tiling.planning.costs.estimate import estimate
from tiling.planning.model import ControlStep, EvaluatorStep, Fusion, Plan

__all__ = ["with_loop_order", "with_schedule", "with_schedules"]


def with_schedule(plan: Plan, fusion: str, schedule: Schedule) -> Plan:
    """The plan with another schedule, weighed, for the fusion of that name. Raises KeyError, with what there is, for others."""
    if fusion not in {f.name for f in plan.fusions}:
        raise KeyError(f"no fusion {fusion!r}; there is {', '.join(f.name for f in plan.fusions)}")
    return with_schedules(plan, {(plan, fusion): schedule})


def with_schedules(plan: Plan, schedules: Mapping[tuple[Plan, str], Schedule]) -> Plan:
    """The plan with other schedules for fusions of it and of its regions, by their plan and their name.

    Nobody has shown what these compute: `codegen.compile` proves them whole, and runs the planner's own where one is refuted.
    """
    steps: list[Fusion | EvaluatorStep | ControlStep] = []
    for s in plan.steps:
        if isinstance(s, Fusion) and (plan, s.name) in schedules:
            schedule = schedules[plan, s.name]
            own = s.planned or s.schedule
            planned = own if schedule is not own else None
            steps.append(replace(s, schedule=schedule, estimate=estimate(schedule, plan.machine), planned=planned))
        elif isinstance(s, ControlStep):
            steps.append(replace(s, regions=tuple([replace(r, plan=with_schedules(r.plan, schedules)) for r in s.regions])))
        else:
            steps.append(s)
    return replace(plan, steps=tuple(steps))


def with_loop_order(plan: Plan, value: str, order: Sequence[str]) -> Plan:
    """The plan with the loops around `value` (its name in the schedule) in another order, outermost first.

    `order` names the loop variables as the source shows them: `i0`, `r0`, …. Loops over a reduction may go anywhere; the
    result is the same but for rounding. Raises KeyError when no nest computes `value`, ValueError when `order` is not a
    permutation of its loops or puts a loop outside of one that its bounds depend on.
    """
    for fusion in plan.fusions:
        for k, phase in enumerate(fusion.schedule.phases):
            for j, step in enumerate(phase.steps):
                if isinstance(step, Nest) and any(plan.names.of(v) == value for v in step.values):
                    steps = (*phase.steps[:j], _ordered(step, order), *phase.steps[j + 1 :])
                    phases = (
                        *fusion.schedule.phases[:k],
                        replace(phase, steps=steps),
                        *fusion.schedule.phases[k + 1 :],
                    )
                    return with_schedule(plan, fusion.name, replace(fusion.schedule, phases=phases))
                if isinstance(step, Contract) and plan.names.of(step.value) == value:
                    raise ValueError(f"{value} is computed by the micro-kernel, whose loops have no order to choose")
    raise KeyError(f"no nest computes {value!r}")


def _ordered(nest: Nest, order: Sequence[str]) -> Nest:
    by_name = {x.variable.name.partition("_")[0]: x for x in nest.loops}
    if sorted(order) != sorted(by_name):
        raise ValueError(f"expected an order of the loops {', '.join(by_name)}, found {', '.join(order)}")
    loops = tuple(by_name[name] for name in order)
    for k, loop in enumerate(loops):
        later = {x.variable for x in loops[k:]}
        if any(v in later for e in (loop.lower, loop.upper) for v in e.variables):
            raise ValueError(f"the bounds of {order[k]} depend on a loop that would be inside of it")
    if any(x.kind not in (LoopKind.PARALLEL, LoopKind.REDUCTION) for x in loops):
        raise ValueError("the loops of a scan have no other order")
    return replace(nest, loops=loops, order_is_fixed=True)
