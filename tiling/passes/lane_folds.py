"""Folds along memory of several results at once, in lanes: partial results side by side, folded last.

    for r in [0, R - 1]: out = out o x[r]                    each step waits for the one before

    for b in [0, R / L - 1], for l in [0, L - 1]: part[l] = part[l] o x[b L + l]          the inner loop becomes vectors
    for l in [0, L - 1]: out = out * part[l]

Right where the parts may be folded in any order (`tiling.elements.monoids` proves it from the body). Bodies that are one
associative function are left to the code generator, which keeps lanes in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from indexing.expr import Expr, Interval, Var, as_expr
from tiling.elements.folds import has_own_body
from tiling.elements.monoids import monoid_of
from tiling.loops.carry import going_on
from tiling.loops.element_ir import Load, Renamer
from tiling.loops.ir import Buffer, FoldStep, Loop, LoopKind, Nest, Schedule, Scope
from tiling.loops.monoid import Monoid
from tiling.loops.names import Names
from tiling.loops.variables import counted
from tiling.passes.each_nest import each_nest
from tiling.passes.order_loops import order_loops
from tiling.passes.rfactor import Factored, part_buffers, rfactor

__all__ = ["lane_folds"]

MOST_LANES = 128
LEAST_LANES = 32
LEAST_STEPS = 4  # in each lane
MOST_SCRATCH_BYTES = 1 << 16


def lane_folds(schedule: Schedule, names: Names, buffer_of: Callable[[Load], Buffer]) -> Schedule:
    """The schedule with such folds in lanes."""
    made: list[Buffer] = []
    laned = each_nest(schedule, lambda n, a: _in_lanes(n, a.ranges, names, buffer_of, made))
    return replace(laned, buffers=(*laned.buffers, *made)) if made else schedule


def _in_lanes(
    nest: Nest, ranges: dict[Var, Interval], names: Names, buffer_of: Callable[[Load], Buffer], made: list[Buffer]
) -> list[Nest]:
    if not nest.folds or nest.stores:
        return [nest]
    ordered = order_loops(nest, buffer_of)
    reductions = [x for x in ordered.loops if x.kind is not LoopKind.PARALLEL]
    if len(reductions) != 1 or ordered.loops[-1] is not reductions[0] or nest.skip is not None or nest.order_is_fixed:
        return [nest]
    (r,) = reductions
    lanes = min(MOST_LANES, r.extent // LEAST_STEPS // LEAST_LANES * LEAST_LANES)
    if r.kind is not LoopKind.REDUCTION or lanes < LEAST_LANES or not r.is_whole:
        return [nest]
    rest: list[FoldStep] = []
    steps: list[Nest] = []
    for f in nest.folds:
        laned = _lane_nests(f, ordered, r, lanes, ranges, names, made)
        if laned is None:
            rest.append(f)
        else:
            steps += laned
    return [*([replace(nest, folds=tuple(rest))] if rest else []), *steps]


def _lane_nests(
    f: FoldStep, nest: Nest, r: Loop, lanes: int, ranges: dict[Var, Interval], names: Names, made: list[Buffer]
) -> list[Nest] | None:
    monoid = monoid_of(f, (r,), ranges, names.monoids) if has_own_body(f.op) and not f.carried else None
    tag = r.variable.name
    around = [x for x in nest.loops if x is not r]
    each = prod(x.extent for x in around) * sum(b.element.itemsize_bytes for b in f.buffers)
    lanes = min(lanes, MOST_SCRATCH_BYTES // each // LEAST_LANES * LEAST_LANES)
    if lanes < LEAST_LANES or not isinstance(monoid, Monoid) or not (monoid.starts_parts and monoid.for_nan):
        return None
    shape = (*(x.extent for x in around), lanes)
    count, left = divmod(r.extent, lanes)
    over, along = counted(f"b{tag}", count, ranges, LoopKind.REDUCTION), counted(f"l{tag}", lanes, ranges)
    parts = part_buffers(f, names, "lanes", Scope.THREAD, shape)
    made += parts

    def laned(place: Expr, number: Var) -> Factored:
        at = tuple(as_expr(v) for v in (*(x.variable for x in around), number))
        return rfactor(f, monoid, parts, at, Renamer({r.variable: place}, ranges, {}))

    first = laned(over.variable * lanes + along.variable, along.variable)
    steps = [Nest((*around, over, along), folds=(first.part,), order_is_fixed=True)]
    if left:
        few, once = counted(f"e{tag}", left, ranges), counted(f"o{tag}", 1, ranges, LoopKind.REDUCTION)
        rest = laned(few.variable + count * lanes, few.variable)
        steps.append(Nest((*around, once, few), folds=(going_on(rest.part),), order_is_fixed=True))
    return [*steps, Nest((*around, replace(along, kind=LoopKind.REDUCTION)), folds=(first.whole,), order_is_fixed=True)]
