"""The order of a nest's loops: the innermost one should step through memory one element at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from indexing.expr import Var
from tiling.elements.folds import has_own_body
from tiling.loops.affine import step_along, steps_along
from tiling.loops.element_ir import Load, Node, loads, node_variables
from tiling.loops.ir import Buffer, Loop, LoopKind, Nest
from tiling.passing import runs

__all__ = ["LONG_FOLD", "LookedUp", "innermost", "order_loops"]

LONG_FOLD = 128  # from here on a row is folded in lanes (tiling.passes.lane_folds)
LEAST_BESIDE = 16


def order_loops(nest: Nest, buffer_of: Callable[[Load], Buffer]) -> Nest:
    """The same nest with the loop innermost along which most accesses have stride 1.

    for i, for r: out[i] += in[r, i]   ->   for r, for i: out[i] += in[r, i]

    Other loops keep their order, parallel ones before reductions. Whoever foresees this order asks here, too: all of them see
    that the pass is skipped.
    """
    if len(nest.loops) < 2 or nest.order_is_fixed or not runs("order_loops"):
        return nest
    variables = tuple([x.variable for x in nest.loops])
    accesses = [(steps_along(s.index, s.buffer.strides, variables), 1.1) for s in nest.stores]
    roots = nest.each
    found = loads(roots)
    accesses += [(steps_along(x.index, buffer_of(x).strides, variables), 1.0) for x in found if not x.runtimes]
    memo: dict[Node, frozenset[Var]] = {}
    looked_up = [
        LookedUp(
            steps_along(x.index, buffer_of(x).strides, variables),
            [any(v in e.variables for e in x.index) for v in variables],
            [v in node_variables(x, memo) for v in variables],
        )
        for x in found
        if x.runtimes
    ]
    best, movable = innermost(nest.loops, accesses, looked_up)
    if best.kind is LoopKind.REDUCTION and best.extent < LONG_FOLD:
        best = _beside(nest, movable) or best
    parallel = [x for x in nest.loops if x.kind is LoopKind.PARALLEL and x is not best]
    reduction = [x for x in nest.loops if x.kind is not LoopKind.PARALLEL and x is not best]
    return replace(nest, loops=(*parallel, *reduction, best))


@dataclass(frozen=True)
class LookedUp:
    """A load at a place known at run time: its steps along the loops, which of them its index names, and on which it depends."""

    steps: Sequence[int | None]
    named: Sequence[bool]
    depends: Sequence[bool]


def innermost(
    loops: Sequence[Loop], accesses: Sequence[tuple[Sequence[int | None], float]], looked_up: Sequence[LookedUp] = ()
) -> tuple[Loop, list[Loop]]:
    """The loop that should be innermost by the steps of (weighted) accesses along the loops, and those that may be."""

    def score(k: int, extent: int) -> float:
        if extent <= 1:
            return -1.0
        total = 0.0
        for steps, weight in accesses:
            step = steps[k]
            total += weight if step == 1 else weight * 0.5 if step in (0, -1) else 0.0
        for x in looked_up:
            if x.named[k] or not x.depends[k]:
                total += 1.0 if x.steps[k] == 1 else 0.5 if not x.named[k] else 0.0
        # A short innermost loop is worth less than its strides promise.
        return total * min(1.0, extent / 16)

    # A loop whose variable bounds another one stays outside of it.
    bounding = {v for y in loops for e in (y.lower, y.upper) for v in e.variables}
    movable = [k for k, x in enumerate(loops) if x.variable not in bounding]
    best = max(reversed(movable), key=lambda k: score(k, loops[k].extent))
    return loops[best], [loops[k] for k in movable]


def _beside(nest: Nest, movable: Sequence[Loop]) -> Loop | None:
    """The loop along which the results of folds lie side by side, where those are what no vector instruction folds.

    The place of a maximum waits for the one before it; beside each other sixteen rows are compared at a time.
    """
    if nest.stores or not nest.folds:
        return None
    if not all(has_own_body(f.op) for f in nest.folds):
        return None
    for x in movable:
        if x.kind is LoopKind.PARALLEL and x.extent >= LEAST_BESIDE and all(
            step_along(f.index, b.strides, x.variable) == 1 for f in nest.folds for b in f.buffers
        ):
            return x
    return None
