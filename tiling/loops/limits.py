"""Loops whose bounds are read when the program runs: over everything, and over their even share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from indexing.expr import Expr, Interval, Var, as_expr, interval, simplify, substitute
from tiling.loops.ir import Contract, Limit, Loop, Nest, Phase, Schedule, Sequential

__all__ = ["evenly", "has_limits", "in_full"]


def has_limits(schedule: Schedule) -> bool:
    """Whether some loop is bounded by what is read when the program runs."""
    return any(isinstance(s, Sequential) and s.limits for p in schedule.phases for s in p.steps)


def in_full(schedule: Schedule) -> Schedule:
    """The schedule with every loop over all that it may have: the one that runs while its flags are 0."""

    def whole(phase: Phase) -> Phase:
        steps = [_in_full(s, schedule.ranges) if isinstance(s, Sequential) and s.limits else s for s in phase.steps]
        return replace(phase, steps=tuple(steps))

    return replace(schedule, phases=tuple(map(whole, schedule.phases))) if has_limits(schedule) else schedule


def _in_full(s: Sequential, ranges: Mapping[Var, Interval]) -> Sequential:
    at: dict[Var, Expr] = {}
    for x in s.limits:
        at[x.variable] = substitute(x.whole, at)
    return replace(s, steps=tuple(_bounded(x, at, ranges) for x in s.steps), limits=())


def _bounded(step: Nest | Contract, at: Mapping[Var, Expr], ranges: Mapping[Var, Interval]) -> Nest | Contract:
    """A step with other values of the limits in its bounds."""

    def new(e: Expr) -> Expr:
        return e if at.keys().isdisjoint(e.variables) else simplify(substitute(e, at), ranges)

    if isinstance(step, Nest):
        loops = tuple(replace(x, lower=new(x.lower), upper=new(x.upper)) for x in step.loops)
        parts = tuple(replace(x, lower=new(x.lower), upper=new(x.upper)) for x in step.segments)
        return replace(step, loops=loops, segments=parts)
    left, right, out = (replace(b, base=new(b.base)) for b in (step.left, step.right, step.out))
    return replace(
        step, left=left, right=right, out=out, rows_upper=new(step.rows_upper), columns_upper=new(step.columns_upper),
        columns_lower=new(step.columns_lower), depth_lower=new(step.depth_lower),
        depth_upper=None if step.depth_upper is None else new(step.depth_upper),
        pack=tuple(x for n in step.pack if isinstance(x := _bounded(n, at, ranges), Nest)),
    )  # fmt: skip


def evenly(s: Sequential, ranges: Mapping[Var, Interval]) -> tuple[Nest | Contract, ...]:
    """The steps of a block that has its even share of what all blocks have together: for the cost model.

    Where there are no limits these are the steps as they are.
    """
    if not s.limits:
        return s.steps
    at = {x.variable: as_expr(-(-_most(x, ranges) // s.loop.extent) if x.is_end else 0) for x in s.limits}
    return tuple(_shared(x, _bounded(x, at, ranges), ranges) for x in s.steps)


def _most(x: Limit, ranges: Mapping[Var, Interval]) -> int:
    return ranges[x.variable].upper


def _shared(before: Nest | Contract, step: Nest | Contract, ranges: Mapping[Var, Interval]) -> Nest | Contract:
    """A step with the extents that its bounds give, where the limits have changed them."""

    def count(lower: Expr, upper: Expr, most: int) -> int:
        return max(1, min(most, interval(simplify(upper - lower, ranges), ranges).upper + 1))

    def cut(old: Loop, new: Loop) -> Loop:
        same = old.lower is new.lower and old.upper is new.upper
        return new if same else replace(new, extent=count(new.lower, new.upper, new.extent))

    if isinstance(step, Nest) and isinstance(before, Nest):
        return replace(step, loops=tuple(map(cut, before.loops, step.loops)))
    assert isinstance(step, Contract) and isinstance(before, Contract)
    m = count(as_expr(0), step.rows_upper, step.m) if step.rows_upper is not before.rows_upper else step.m
    k = count(step.depth_lower, step.last_depth, step.k) if step.depth_upper is not before.depth_upper else step.k
    return replace(step, m=m, k=k)
