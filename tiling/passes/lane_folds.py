"""Folds along memory of several results at once, in lanes: partial results side by side, folded last.

    for r in [0, R - 1]: out = out o x[r]                    each step waits for the one before

    for b in [0, R / L - 1], for l in [0, L - 1]: part[l] = part[l] o x[b L + l]          the inner loop becomes vectors
    for l in [0, L - 1]: out = out * part[l]

So is a fold across rows of less than a vector that lie side by side (the mean of each color of an image): a lane is an element of
one of some rows.

    for r in [0, R - 1], for c in [0, 2]: out[c] = out[c] o x[r, c]

    for b in [0, R / 16 - 1], for l in [0, 15], for c in [0, 2]: part[l, c] = part[l, c] o x[16 b + l, c]      rows of 48
    for l in [0, 15], for c in [0, 2]: out[c] = out[c] * part[l, c]

Right where the parts may be folded in any order (`tiling.elements.monoids` proves it from the body). Bodies that are one
associative function are left to the code generator, which keeps lanes in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from indexing.expr import Expr, Interval, Var, as_expr
from tiling.elements.folds import has_own_body
from tiling.loops.affine import steps_along
from tiling.loops.carry import going_on
from tiling.loops.element_ir import Choose, Load, Renamer, all_nodes, loads, moves_runtimes
from tiling.loops.ir import Buffer, FoldStep, Loop, LoopKind, Nest, Schedule, Scope
from tiling.loops.monoid import Monoid
from tiling.loops.names import Names
from tiling.loops.variables import counted
from tiling.passes.each_nest import each_nest
from tiling.passes.order_loops import order_loops
from tiling.passes.rfactor import Factored, monoids_of_parts, part_buffers, rfactor

__all__ = ["lane_folds"]

MOST_LANES = 128
LEAST_LANES, FEW_LANES = 32, 16  # the latter of rows that have not four steps for each lane else
LEAST_STEPS = 4  # in each lane
MOST_SCRATCH_BYTES = 1 << 16
SHORT_ROW = 16  # elements: a vector's
ROWS_IN_LANES = (16, 8)
LEAST_STEPS_OF_ROWS = 3
MOST_PARTS_BYTES = 1 << 15  # of the nearest caches: they are read again once all are made


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
    if ordered.loops and ordered.loops[-1].kind is LoopKind.PARALLEL:
        return _rows_in_lanes(nest, ordered, ranges, names, buffer_of, made)
    reductions = [x for x in ordered.loops if x.kind is not LoopKind.PARALLEL]
    if len(reductions) != 1 or ordered.loops[-1] is not reductions[0] or nest.skip is not None or nest.order_is_fixed:
        return [nest]
    (r,) = reductions
    most = r.extent // LEAST_STEPS
    lanes = min(MOST_LANES, most // LEAST_LANES * LEAST_LANES) or most // FEW_LANES * FEW_LANES
    if r.kind is not LoopKind.REDUCTION or not lanes or not r.is_whole:
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


def _rows_in_lanes(
    nest: Nest, ordered: Nest, ranges: dict[Var, Interval], names: Names, buffer_of: Callable[[Load], Buffer], made: list[Buffer]
) -> list[Nest]:
    """Folds across short rows that follow one another in memory; the nest itself where they are none."""
    if len(ordered.loops) < 2 or nest.skip is not None or nest.segments or nest.order_is_fixed:
        return [nest]
    *around, r, along = ordered.loops
    if r.kind is not LoopKind.REDUCTION or not r.is_whole or not along.is_whole or along.extent < 2:
        return [nest]
    if along.extent >= SHORT_ROW or any(x.kind is LoopKind.SCAN or not x.is_whole for x in around):
        return [nest]
    nodes = [n for f in nest.folds for n in f.nodes]
    variables = (r.variable, along.variable)
    steps = [steps_along(x.index, buffer_of(x).strides, variables) for x in loads(nodes)]
    if moves_runtimes(nodes, variables) or not any(s[1] == 1 for s in steps):
        return [nest]
    if any(s not in ((along.extent, 1), (0, 0)) for s in steps):
        return [nest]
    if any(isinstance(n, Choose) for n in all_nodes(nodes)):
        return [nest]
    monoids = monoids_of_parts(nest.folds, (r,), ranges, names.monoids)
    results = [x for x in around if x.kind is LoopKind.PARALLEL]
    each = prod(x.extent for x in results) * along.extent * sum(b.element.itemsize_bytes for f in nest.folds for b in f.buffers)
    most = min(MOST_LANES // along.extent, r.extent // LEAST_STEPS_OF_ROWS, MOST_PARTS_BYTES // each)
    rows = next((n for n in ROWS_IN_LANES if n <= most), None)
    if rows is None or monoids is None or any(f.carried or f.products != 1 for f in nest.folds):
        return [nest]
    return _laned(nest.folds, monoids, around, r, rows, (along,), ranges, names, made)


def _lane_nests(
    f: FoldStep, nest: Nest, r: Loop, lanes: int, ranges: dict[Var, Interval], names: Names, made: list[Buffer]
) -> list[Nest] | None:
    around = [x for x in nest.loops if x is not r]
    each = prod(x.extent for x in around) * sum(b.element.itemsize_bytes for b in f.buffers)
    step = LEAST_LANES if lanes >= LEAST_LANES else FEW_LANES
    lanes = min(lanes, MOST_SCRATCH_BYTES // each // step * step)
    monoids = monoids_of_parts([f], (r,), ranges, names.monoids) if has_own_body(f.op) and not f.carried else None
    return None if not lanes or monoids is None else _laned([f], monoids, around, r, lanes, (), ranges, names, made)


def _laned(
    folds: Sequence[FoldStep], monoids: Sequence[Monoid], around: Sequence[Loop], r: Loop, lanes: int, inner: tuple[Loop, ...],
    ranges: dict[Var, Interval], names: Names, made: list[Buffer],
) -> list[Nest]:  # fmt: skip
    """The nests of some folds over `r` in so many lanes, each of all iterations of the loops `inner`."""
    tag = r.variable.name
    results = [x for x in around if x.kind is LoopKind.PARALLEL]
    count, left = divmod(r.extent, lanes)
    over, lane = counted(f"b{tag}", count, ranges, LoopKind.REDUCTION), counted(f"l{tag}", lanes, ranges)
    shape = (*(x.extent for x in results), lanes, *(x.extent for x in inner))
    parts = [part_buffers(f, names, "lanes", Scope.THREAD, shape) for f in folds]
    made += [b for buffers in parts for b in buffers]

    def laned(place: Expr, number: Var) -> list[Factored]:
        at = tuple(as_expr(v) for v in (*(x.variable for x in results), number, *(x.variable for x in inner)))
        share = Renamer({r.variable: place}, ranges, {})
        return [rfactor(f, m, b, at, share) for f, m, b in zip(folds, monoids, parts, strict=True)]

    first = laned(over.variable * lanes + lane.variable, lane.variable)
    loops, steps = [(*around, over, lane, *inner)], [tuple(x.part for x in first)]
    if left:
        few, once = counted(f"e{tag}", left, ranges), counted(f"o{tag}", 1, ranges, LoopKind.REDUCTION)
        loops.append((*around, once, few, *inner))
        steps.append(tuple(going_on(x.part) for x in laned(few.variable + count * lanes, few.variable)))
    loops.append((*results, replace(lane, kind=LoopKind.REDUCTION), *inner))
    steps.append(tuple(x.whole for x in first))
    return [Nest(x, folds=f, order_is_fixed=not inner) for x, f in zip(loops, steps, strict=True)]
