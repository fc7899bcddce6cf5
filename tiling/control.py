"""Control flow as steps of a plan: each region is planned like a program, and a loop's values get memories of their own.

    while (a_0, …) cond, body     cond and body read the a_k where they are; what becomes of a_k is written over it, exchanged
                                  with it, or copied over it (`tiling.plan.Carry`)
    if, case                      every branch writes the results' memory
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hlo.module import DenseArray, Module, Op, Value
from hlo.registry import Literal
from tiling.expand import Supports
from tiling.flatten import Program, Region, flatten_region
from tiling.plan import Carry, ControlStep, Plan, RegionPlan, Reuse
from tiling.reuse import writes_of_step

__all__ = ["PlanRegion", "classify_carries", "plan_control", "with_takeovers"]

PlanRegion = Callable[[Op, int, Program, Mapping[Value, Value]], Plan]
"""Plans the program of an op's region of that number; the mapping says what a loop's arguments become."""

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
        passed: dict[Value, Value] = {}
        if op.name == "stablehlo.while" and k == 1:
            passed = dict(zip(region.arguments, region.program.results, strict=True))
        plan = plan_region(op, k, region.program, passed)
        regions.append(RegionPlan(Region(plan.program, region.captured), plan))
    if op.name != "stablehlo.while":
        return ControlStep(name, op, tuple(regions))
    # (What later ops read of these is what the loop was given: `tiling.flatten`.)
    unchanged = [r is a for a, r in zip(op.regions[1].arguments, op.regions[1].results, strict=True)]
    return ControlStep(name, op, tuple(regions), classify_carries(regions[1], unchanged), _trips(op, regions))


def classify_carries(body: RegionPlan, unchanged: Sequence[bool]) -> tuple[Carry, ...]:
    """How each of a loop's values is passed on."""
    program = body.plan.program
    over = {id(r.source): r.target for r in body.plan.reuses if r.shared}
    first = {id(r.target): r.source for r in body.plan.reuses if r.shared}
    results = [id(v) for v in program.results]
    made = {id(v) for s in body.plan.steps for v in writes_of_step(s)}
    carries = []
    for a, r, kept in zip(body.region.arguments, program.results, unchanged, strict=True):
        end: Value = a
        while id(end) in over:
            end = over[id(end)]
        start: Value = r
        while id(start) in first:
            start = first[id(start)]
        size = a.tensor.size_bytes
        if kept:
            how = "invariant"
        elif r is end:
            how = "in place"
        elif id(r) in made and results.count(id(r)) == 1 and id(start) in made and size >= EXCHANGED_BYTES:
            how = "exchanged"
        else:
            how = "copied"
        carries.append(Carry(a, r, how))
    return tuple(carries)


def with_takeovers(step: ControlStep, reuses: tuple[Reuse, ...]) -> ControlStep:
    """The step with what was found about its initial values' memory."""
    if not step.is_loop:
        return step
    shared = {(id(r.source), id(r.target)) for r in reuses if r.shared}
    carries = tuple(
        replace(c, takes_over=(id(v), id(r)) in shared)
        for c, v, r in zip(step.carries, step.op.operands, step.op.results, strict=True)
    )
    return replace(step, carries=carries)


# ------------------------------------------------------------ how often


def _trips(op: Op, regions: list[RegionPlan]) -> int | None:
    """How often a body runs, where a counter with constant start, step and limit decides it."""
    cond, body = (r.plan.program for r in regions)
    (goes_on,) = cond.results
    compare = goes_on.op
    if compare is None or compare.definition.mnemonic != "compare":
        return None
    counter, limit = compare.operands
    direction = compare.attr("comparison_direction")
    if counter not in cond.arguments or direction not in ("LT", "LE", "NE", "GT", "GE"):
        return None
    place = cond.arguments.index(counter)
    if place >= len(op.operands):
        return None
    step = body.results[place].op
    if step is None or step.definition.mnemonic not in ("add", "subtract") or body.arguments[place] not in step.operands:
        return None
    position = step.operands.index(body.arguments[place])
    if position == 1 and step.definition.mnemonic == "subtract":
        return None  # c = k - c goes to and fro
    numbers = [_constant(v) for v in (op.operands[place], limit, step.operands[1 - position])]
    if any(n is None for n in numbers):
        return None
    start, stop, by = (int(n) for n in numbers if n is not None)
    by = -by if step.definition.mnemonic == "subtract" else by
    if direction == "NE":
        trips = 0 if start == stop else (stop - start) // by if by and (stop - start) % by == 0 else -1
        return trips if trips >= 0 else None
    distance = {"LT": stop - start, "LE": stop - start + 1, "GT": start - stop, "GE": start - stop + 1}[direction]
    forward = by if direction in ("LT", "LE") else -by
    if distance <= 0:
        return 0
    trips = -(-distance // forward) if forward > 0 else -1
    last = np.iinfo(counter.tensor.dtype)
    return trips if trips > 0 and last.min <= start + trips * by <= last.max else None  # else it wraps around and goes on


def _constant(v: Value) -> int | None:
    if v.op is None or not isinstance(v.op.definition.semantics, Literal) or v.shape:
        return None
    dense: DenseArray = v.op.attr("value")
    return int(dense.array) if dense.array.dtype.kind in "iu" else None
