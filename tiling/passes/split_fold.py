"""Reductions with too little around them to share among threads: folded in pieces, then the pieces' results.

    out[i] = fold over r in [0, R - 1] of x[r, i]

    part[c, i] = fold over r in [c S, c S + S - 1] of x[r, i]      one task for each c
    out[i]     = fold over c of part[c, i]

The pieces follow from the shapes alone: the result has the same bits on any number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from hlo.registry import Fold
from indexing.expr import Const, Interval, Var, as_expr, minimum, simplify
from tiling.elements.folds import combined_function, is_neutral
from tiling.elements.monoids import Monoid, monoid_of
from tiling.loops.buffers import make_buffer
from tiling.loops.element_ir import Load, Renamer, Scalar, has_runtimes, loads
from tiling.loops.ir import FoldStep, Loop, LoopKind, Nest, Phase, Schedule, Scope
from tiling.loops.names import Names
from tiling.passes.tighten_bounds import sums_element

__all__ = ["split_fold"]

PIECES = 32
MOST_RESULT_BYTES = 1 << 16  # a larger result is cut among threads itself
LEAST_ELEMS = 1 << 17  # fewer elements are not worth a second phase
MOST_REST_ELEMS = 1 << 16  # what may follow the reduction in its one task


def split_fold(schedule: Schedule, names: Names) -> Schedule | None:
    """The schedule in two phases, or None where its one task does not start with a large reduction to a small result."""
    if len(schedule.phases) != 1 or schedule.phases[0].tasks != 1 or not schedule.phases[0].steps:
        return None
    first, *rest = schedule.phases[0].steps
    if not isinstance(first, Nest) or not first.folds or first.stores:
        return None
    if any(not isinstance(s, Nest) or prod(x.extent for x in s.loops) > MOST_REST_ELEMS for s in rest):
        return None
    monoids = [_applies(first, f, schedule.ranges, names) for f in first.folds]
    if None in monoids:
        return None
    parallel = [x for x in first.loops if x.kind is LoopKind.PARALLEL]
    reductions = [x for x in first.loops if x.kind is LoopKind.REDUCTION]
    r = max(reductions, key=lambda x: (min(x.extent, PIECES), _stride(first.folds[0], x), x.extent))
    size = -(-r.extent // PIECES)
    count = -(-r.extent // size)
    if count < 2 or r.lower is not Const(0) or r.upper is not Const(r.extent - 1):
        return None
    ranges = dict(schedule.ranges)
    tag = r.variable.name
    c, inner = Var(f"c{tag}"), Var(f"{tag}_in_piece")
    ranges[c], ranges[inner] = Interval(0, count - 1), Interval(0, size - 1)
    rename = Renamer({r.variable: c * size + inner}, ranges, {})
    piece = Loop(inner, Const(0), simplify(minimum(size - 1, r.extent - 1 - c * size), ranges), size, LoopKind.REDUCTION)
    loops = tuple(piece if x is r else x for x in first.loops)
    over = Loop(c, Const(0), Const(count - 1), count, LoopKind.REDUCTION)
    parts, pieces, wholes = [], [], []
    for f, monoid in zip(first.folds, monoids, strict=True):
        mine, loaded = [], []
        at = (as_expr(c), *f.index)
        for value, result in zip(f.values, f.buffers, strict=True):
            shape = (count, *result.shape)
            kept = sums_element(f, result.element)
            part = make_buffer(names.scratch(value, "part"), Scope.SHARED, kept, shape, shape, (0, *result.origin))
            mine.append(part)
            loaded.append(Load(value, at, part))
        parts += mine
        assert monoid is not None
        op = monoid.folds_parts_of(f)
        pieces.append(FoldStep(f.values, tuple(mine), at, tuple(map(rename.node, f.nodes)), f.inits, f.op))
        wholes.append(FoldStep(f.values, f.buffers, f.index, tuple(loaded), f.inits, op))
    return Schedule(
        (
            Phase(((c, count),), (Nest(loops, folds=tuple(pieces)),)),
            Phase((), (Nest((*parallel, over), folds=tuple(wholes)), *rest)),
        ),
        (*schedule.buffers, *parts),
        schedule.tile_sizes,
        ranges,
        schedule.notes,
    )


def _applies(nest: Nest, f: FoldStep, ranges: Mapping[Var, Interval], names: Names) -> Monoid | None:
    """How the pieces of a fold are put together, where pieces are worth it and right."""
    results = prod(x.extent for x in nest.loops if x.kind is LoopKind.PARALLEL)
    elements = prod(x.extent for x in nest.loops)
    if results * sum(b.element.itemsize_bytes for b in f.buffers) > MOST_RESULT_BYTES or elements < LEAST_ELEMS:
        return None
    if any(x.kind is LoopKind.SCAN for x in nest.loops) or has_runtimes((*f.nodes, *f.inits)):
        return None
    if not isinstance(f.op.definition.semantics, Fold):
        return None
    # Rows enough to share, each reduced along memory: nothing to gain.
    if results >= PIECES and nest.loops[-1].kind is LoopKind.REDUCTION and not _strided(nest, f):
        return None
    function = combined_function(f.op.regions[0])
    if function is not None and len(f.inits) == 1:
        start = f.inits[0]
        neutral = isinstance(start, Scalar) and is_neutral(function, start.value, start.element)
        return Monoid(f.op.regions[0]) if neutral else None
    reductions = [x for x in nest.loops if x.kind is LoopKind.REDUCTION]
    return monoid_of(f, reductions[0], ranges, names.monoids) if len(reductions) == 1 else None


def _stride(f: FoldStep, loop: Loop) -> int:
    """How far apart the elements are that two iterations read: pieces of memory in one go are the best pieces."""
    found = 0
    for load in loads(f.nodes):
        shape = load.value.shape
        for k, e in enumerate(load.index):
            found = max([found, *(abs(c) * prod(shape[k + 1 :]) for atom, c in e.terms if atom is loop.variable)])
    return found


def _strided(nest: Nest, f: FoldStep) -> bool:
    """True when the reduction walks across rows of what it reads: the last index is a parallel loop's."""
    reduction = {x.variable for x in nest.loops if x.kind is LoopKind.REDUCTION}
    found = [x for x in loads(f.nodes) if x.index]
    return bool(found) and all(not any(v in reduction for v in x.index[-1].variables) for x in found)
