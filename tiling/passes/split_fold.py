"""Folds with too little around them to share among threads: folded in pieces, then the pieces' results.

    out[i] = fold over r in [0, R - 1] of x[r, i]

    part[c, i] = fold over r in [c S, c S + S - 1] of x[r, i]      one task for each c
    out[i]     = fold over c of part[c, i]

Worth it for a reduction whose rows do not lie side by side in tasks' own memory, and for a sum of products to a small result that
walks across the rows of a large factor: each piece then takes whole rows, as memory goes on.

The pieces follow from the shapes alone: the result has the same bits on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hlo.registry import SumOfProducts
from indexing.expr import as_expr, minimum, simplify
from tiling.loops.affine import address, linear, step_along
from tiling.loops.element_ir import Load, Renamer, loads
from tiling.loops.ir import Buffer, FoldStep, Loop, LoopKind, Nest, Phase, Schedule, Scope
from tiling.loops.names import Names
from tiling.loops.variables import counted
from tiling.passes.order_loops import order_loops
from tiling.passes.rfactor import monoids_of_parts, part_buffers, rfactor

__all__ = ["split_fold"]

PIECES = 32
SOME_PIECES = 8
MOST_RESULT_BYTES = 1 << 16  # a larger result is cut among threads itself, or its parts would be as much to move as a factor
LEAST_ELEMS = 1 << 17  # fewer elements are not worth a second phase
LEAST_PRODUCTS = 1 << 20  # nor fewer products
MOST_SHORT_BYTES = 1 << 13  # a larger result of short folds is cut among threads itself: a task has whole pages of each row
LEAST_ROWS = 16  # rows of the large factor in a piece; elements that a piece folds to one: parts are little beside what is read
MOST_REST_ELEMS = 1 << 16  # what may follow in the one task that folds the pieces


def split_fold(schedule: Schedule, names: Names, buffer_of: Callable[[Load], Buffer]) -> Schedule:
    """The schedule in two phases; as it is where its one task does not start with a large fold to a small result."""
    if len(schedule.phases) != 1 or schedule.phases[0].tasks != 1 or not schedule.phases[0].steps or schedule.phases[0].flags:
        return schedule
    first, *rest = schedule.phases[0].steps
    if not isinstance(first, Nest) or not first.folds or first.stores or first.skip is not None:
        return schedule
    if any(not isinstance(s, Nest) or prod(x.extent for x in s.loops) > MOST_REST_ELEMS for s in rest):
        return schedule
    reductions = [x for x in first.loops if x.kind is LoopKind.REDUCTION]
    r = _across_rows(first, reductions, buffer_of, schedule) or _along(first, reductions, buffer_of)
    if r is None or not r.is_whole:
        return schedule
    folded = prod(x.extent for x in reductions)
    size = -(-r.extent // max(1, min(PIECES, folded // LEAST_ROWS)))
    count = -(-r.extent // size)
    monoids = monoids_of_parts(first.folds, reductions, schedule.ranges, names.monoids)
    if count < 2 or monoids is None:
        return schedule
    ranges = dict(schedule.ranges)
    over = counted(f"c{r.variable.name}", count, ranges, LoopKind.REDUCTION)
    c, begin = over.variable, over.variable * size
    last = simplify(minimum(size - 1, r.extent - 1 - begin), ranges)
    piece = counted(f"{r.variable.name}_in_piece", size, ranges, LoopKind.REDUCTION, last)
    share = Renamer({r.variable: begin + piece.variable}, ranges, {})
    made = []
    for f, monoid in zip(first.folds, monoids, strict=True):
        result = f.buffers[0]
        parts = part_buffers(f, names, "part", Scope.SHARED, (count, *result.shape), (0, *result.origin))
        made.append(rfactor(f, monoid, parts, (as_expr(c), *f.index), share))
    parallel = [x for x in first.loops if x.kind is LoopKind.PARALLEL]
    pieces = Nest(tuple(piece if x is r else x for x in first.loops), folds=tuple(x.part for x in made))
    wholes = Nest((*parallel, over), folds=tuple(x.whole for x in made))
    return Schedule(
        (Phase(((c, count),), (pieces,)), Phase((), (wholes, *rest))),
        (*schedule.buffers, *(b for x in made for b in x.buffers)), schedule.tile_sizes, ranges, schedule.notes,
    )  # fmt: skip


# ---------------------------------------------------------------- when it is worth it


def _along(nest: Nest, reductions: list[Loop], buffer_of: Callable[[Load], Buffer]) -> Loop | None:
    """The loop that a reduction is cut along."""
    results = prod(x.extent for x in nest.loops if x.kind is LoopKind.PARALLEL)
    elements = prod(x.extent for x in nest.loops)
    for f in nest.folds:
        if isinstance(f.op.definition.semantics, SumOfProducts):
            return None
        result_bytes = results * sum(b.element.itemsize_bytes for b in f.buffers)
        most = MOST_RESULT_BYTES if elements >= PIECES * LEAST_ROWS * results else MOST_SHORT_BYTES
        if result_bytes > most or elements < LEAST_ELEMS:
            return None
        # Rows enough to share, each reduced along memory: nothing to gain.
        if results >= PIECES and nest.loops[-1].kind is LoopKind.REDUCTION and not _strided(nest, reductions, f):
            return None
    if not reductions or any(x.kind is LoopKind.SCAN for x in nest.loops):
        return None
    read = [(x.index, buffer_of(x).strides) for x in loads(nest.folds[0].nodes)]

    def apart(x: Loop) -> int:
        """How far apart the elements are that two iterations read: pieces of memory in one go are the best pieces."""
        return max((abs(step_along(index, strides, x.variable) or 0) for index, strides in read), default=0)

    # Some pieces more are worth less than what a piece has in one go: rows that follow one another are folded several at a time.
    return max(reductions, key=lambda x: (min(x.extent, PIECES) // SOME_PIECES, apart(x), x.extent))


def _across_rows(nest: Nest, reductions: list[Loop], buffer_of: Callable[[Load], Buffer], schedule: Schedule) -> Loop | None:
    """The loop of a long sum of products to a small result, where the large factor's rows lie across the sum."""
    f = nest.folds[0]
    if len(nest.folds) != 1 or not isinstance(f.op.definition.semantics, SumOfProducts) or len(reductions) != 1:
        return None
    (r,) = reductions
    results = prod(x.extent for x in nest.loops if x is not r)
    is_long = r.extent >= PIECES * LEAST_ROWS and results * r.extent >= LEAST_PRODUCTS
    if not is_long or results * f.buffers[0].element.itemsize_bytes > MOST_RESULT_BYTES:
        return None
    inner = order_loops(nest, buffer_of).loops[-1]
    found = [x for x in loads(f.nodes) if buffer_of(x).scope is not Scope.THREAD]
    if inner is r or not found:
        return None
    large = max(found, key=lambda x: x.value.tensor.size_elems)
    steps = linear(address(buffer_of(large), large.index, schedule.ranges), (inner.variable, r.variable))
    whole = large.value.tensor.size_elems >= results * r.extent
    return r if whole and steps is not None and steps[1][0] == 1 and steps[1][1] == inner.extent else None


def _strided(nest: Nest, reductions: list[Loop], f: FoldStep) -> bool:
    """True when the reduction walks across rows of what it reads: the last index is a parallel loop's."""
    reduction, moving = {x.variable for x in reductions}, {x.variable for x in nest.loops}
    found = [x for x in loads(f.nodes) if any(not moving.isdisjoint(e.variables) for e in x.index)]  # others read one place
    return bool(found) and all(not any(v in reduction for v in x.index[-1].variables) for x in found)
