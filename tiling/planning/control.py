"""Control flow as steps of a plan: each region is planned like a program, and a loop's values get memories of their own.

    while (a_0, …) cond, body     cond and body read the a_k where they are; what becomes of a_k is written over it, exchanged
                                  with it, or copied over it (`tiling.Carry`)
    if, case                      every branch writes the results' memory
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hlo.module import Module, Op, Value
from tiling.planning.model import Carry, ControlStep, Plan, RegionPlan, Reuse
from tiling.planning.reuse import writes_of_step
from tiling.program.expand import Supports
from tiling.program.flatten import Program, Region, flatten_region
from tiling.program.unroll_short_loops import trips

__all__ = ["PlanRegion", "classify_carries", "plan_control", "with_takeovers"]

PlanRegion = Callable[[Op, int, Program, Mapping[Value, int]], Plan]
"""Plans the program of an op's region of that number; the mapping says which result each of a loop's arguments becomes."""

EXCHANGED_BYTES = 1 << 12
"""Values from this size on change places instead of being copied."""


def plan_control(
    name: str, op: Op, module: Module, plan_region: PlanRegion, supports: Supports | None = None
) -> ControlStep:
    """The step of a control-flow op (one that `is_control`)."""
    regions = []
    names = {"stablehlo.while": ("cond", "body"), "stablehlo.if": ("true", "false")}.get(op.name)
    for k, block in enumerate(op.regions):
        region = flatten_region(module, block, f"{name}_{names[k] if names else k}", supports)
        passed: dict[Value, int] = {}
        if op.name == "stablehlo.while" and k == 1:
            passed = {a: number for number, a in enumerate(region.arguments)}
        plan = plan_region(op, k, region.program, passed)
        regions.append(RegionPlan(Region(plan.program, region.captured), plan))
    if op.name != "stablehlo.while":
        return ControlStep(name, op, tuple(regions))
    # (What later ops read of these is what the loop was given: `tiling.program.flatten`.)
    unchanged = [r is a for a, r in zip(op.regions[1].arguments, op.regions[1].results, strict=True)]
    return ControlStep(name, op, tuple(regions), classify_carries(regions[1], unchanged), _trips(op, regions))


def classify_carries(body: RegionPlan, unchanged: Sequence[bool]) -> tuple[Carry, ...]:
    """How each of a loop's values is passed on."""
    program = body.plan.program
    over = {r.source: r.target for r in body.plan.reuses if r.shared}
    first = {r.target: r.source for r in body.plan.reuses if r.shared}
    results = list(program.results)
    made = {v for s in body.plan.steps for v in writes_of_step(s)}
    carries = []
    for a, r, kept in zip(body.region.arguments, program.results, unchanged, strict=True):
        end: Value = a
        while end in over:
            end = over[end]
        start: Value = r
        while start in first:
            start = first[start]
        size = a.tensor.size_bytes
        if kept:
            how = "invariant"
        elif r is end:
            how = "in place"
        elif r in made and results.count(r) == 1 and start in made and size >= EXCHANGED_BYTES:
            how = "exchanged"
        else:
            how = "copied"
        carries.append(Carry(a, r, how))
    return tuple(carries)


def with_takeovers(step: ControlStep, reuses: tuple[Reuse, ...]) -> ControlStep:
    """The step with what was found about its initial values' memory."""
    if not step.is_loop:
        return step
    shared = {(r.source, r.target) for r in reuses if r.shared}
    carries = tuple(
        replace(c, takes_over=(v, r) in shared)
        for c, v, r in zip(step.carries, step.op.operands, step.op.results, strict=True)
    )
    return replace(step, carries=carries)


def _trips(op: Op, regions: list[RegionPlan]) -> int | None:
    """How often a loop's body runs, where that is known."""
    cond, body = (r.plan.program for r in regions)
    return trips(op.operands, (cond.arguments, cond.results[0]), (body.arguments, body.results))
