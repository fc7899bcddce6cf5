"""The order of a nest's loops: the innermost one should step through memory one element at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from hlo.registry import Fold
from indexing.expr import Var
from tiling.elements.folds import has_own_body
from tiling.elements.monoids import monoid_of
from tiling.loops.affine import rows_of_results, steps_along
from tiling.loops.element_ir import Load, Node, children, has_runtimes, loads, loads_among, node_variables, runtimes_of
from tiling.loops.ir import Buffer, Loop, LoopKind, Nest
from tiling.passing import runs

__all__ = ["LONG_FOLD", "innermost", "loads_that_count", "order_loops", "steps_looked_up"]

LONG_FOLD = 128  # from here on a row is folded in lanes (tiling.passes.lane_folds)
LEAST_BESIDE = 16
LEAST_SCANNED = 8  # columns that are scanned side by side in memory: three took 7 ns a row, in registers 2
STEP_WORTH: dict[int | None, float] = {1: 1.0, 0: 0.5, -1: 0.5}  # other steps reach memory of their own for each element
SHORT_ROW = 64  # elements: a shorter row is all beginning and end
MOST_ROW_BYTES = 2048  # half a page, as `tiling.passes.group_rows` has it: results of a row stay in the nearest cache

Access = tuple[Sequence[int | None], float]
"""The steps of a load or store along each loop, None for those not known, and what it counts."""


def order_loops(nest: Nest, buffer_of: Callable[[Load], Buffer]) -> Nest:
    """The same nest with the loop innermost along which most accesses have stride 1.

    for i, for r: out[i] += in[r, i]   ->   for r, for i: out[i] += in[r, i]

    Other loops keep their order, parallel ones before reductions; so do all reductions where a fold is not shown to be the same
    in any order. Whoever foresees this order asks here, too: all of them see that the pass is skipped.
    """
    if len(nest.loops) < 2 or nest.order_is_fixed or not runs("order_loops"):
        return nest
    variables = tuple([x.variable for x in nest.loops])
    accesses: list[Access] = [(steps_along(s.index, s.buffer.strides, variables), 1.1) for s in nest.stores]
    memo: dict[Node, frozenset[Var]] = {}
    for x in loads_that_count(nest):
        steps = steps_along(x.index, buffer_of(x).strides, variables)
        if x.runtimes:
            steps = steps_looked_up(steps, [v in node_variables(x, memo) for v in variables])
        accesses.append((steps, 1.0))
    stays = nest.reductions[:-1] if _folds_in_order(nest) else []
    best, movable = innermost(nest.loops, accesses, stays)
    if best.kind is LoopKind.REDUCTION and best.extent < LONG_FOLD:
        best = _beside(nest, movable) or best
    along = [*_going_on(nest, best, movable, accesses, buffer_of), best]
    scan = next((x for x in nest.loops if x.kind is LoopKind.SCAN), None)
    if scan is not None and scan in movable and prod(x.extent for x in along) < LEAST_SCANNED:
        along = [scan]  # its running results stay in registers, one for each of few columns
    others = sorted((x for x in nest.loops if x not in along), key=lambda x: x.kind is not LoopKind.PARALLEL)
    return replace(nest, loops=(*others, *along))


def _folds_in_order(nest: Nest) -> bool:
    """Whether a nest folds by a body for which the order of several reductions may count."""
    over = nest.reductions
    bodies = [f for f in nest.folds if has_own_body(f.op)] if len(over) > 1 else []
    return not all(monoid_of(f, over, {}, {}) for f in bodies)


def _going_on(
    nest: Nest, best: Loop, movable: Sequence[Loop], accesses: Sequence[Access], buffer_of: Callable[[Load], Buffer]
) -> list[Loop]:
    """The loops around a short innermost one that walk on through memory where it ends, in a fold or a scan across rows.

        for i, for j < 5: for r, for k < 15: out[i, j, k] += in[i, r, j, k]   ->   for i, for r: for j, for k: …

    Inside of the reductions they become one loop with it (`tiling.passes.collapse_loops`), over rows of 75.
    """
    if best.kind is not LoopKind.PARALLEL or best.extent >= SHORT_ROW or nest.stores or nest.skip is not None or nest.segments:
        return []
    if not nest.folds or any(not isinstance(f.op.definition.semantics, Fold) or has_own_body(f.op) for f in nest.folds):
        return []
    variables = tuple([x.variable for x in nest.loops])
    results = [(f.index, b) for f in nest.folds for b in f.buffers]
    places = [*(steps for steps, _ in accesses), *(steps_along(index, b.strides, variables) for index, b in results)]
    size = max(b.element.itemsize_bytes for b in (*(b for _, b in results), *map(buffer_of, loads(nest.each))))
    own = nest.loops.index(best)
    # A fold reads and writes its results once for each row. A scan reads the row before, once, which may lie in a farther cache.
    scans = any(x.kind is LoopKind.SCAN for x in nest.loops)
    found: list[Loop] = []
    run = best.extent
    for k in reversed(range(len(nest.loops))):
        x = nest.loops[k]
        if x is best or x.kind is not LoopKind.PARALLEL:
            continue
        goes_on = all((p[own], p[k]) in ((0, 0), (1, run)) for p in places)
        run *= x.extent
        if x not in movable or not (x.is_whole and goes_on) or (run * size > MOST_ROW_BYTES and not scans):
            break
        found.insert(0, x)
    return found


def steps_looked_up(steps: Sequence[int | None], depends: Sequence[bool]) -> tuple[int | None, ...]:
    """The steps of a load at a place known only at run time: None along loops that it depends on and its index does not name.

    >>> steps_looked_up((0, 0, 1), (True, False, True))  # x[index[i], k] in loops i, j, k
    (None, 0, 1)
    """
    return tuple([None if d and step == 0 else step for step, d in zip(steps, depends, strict=True)])


def loads_that_count(nest: Nest) -> list[Load]:
    """The loads of all iterations that say which loop should be innermost: not those of places that stay the same along a loop.

        for i, for j, for k < 2: out[i, j, k] = x[i, f(a[i], b[i]) + j, k]

    `a` and `b` have stride 1 along i, but are read once for each i where i is not innermost, and f is computed as seldom.
    """
    if not has_runtimes(nest.each):
        return loads(nest.each)
    turning = {x.variable for x in nest.loops if x.extent > 1}
    memo: dict[Node, frozenset[Var]] = {}
    seen: set[Node] = set()
    stack = list(reversed(nest.each))
    found: list[Node] = []
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        found.append(n)
        once = {r.node for r in runtimes_of(n) if not turning <= node_variables(r.node, memo)}
        stack.extend(c for c in reversed(children(n)) if c not in once)
    return loads_among(found)


def innermost(loops: Sequence[Loop], accesses: Sequence[Access], stays: Sequence[Loop] = ()) -> tuple[Loop, list[Loop]]:
    """The loop that should be innermost by the accesses' steps, and those that may be: none that `stays` outside."""

    def score(k: int, extent: int) -> float:
        if extent <= 1:
            return -1.0
        # A short innermost loop is worth less than its strides promise.
        return sum(weight * STEP_WORTH.get(steps[k], 0.0) for steps, weight in accesses) * min(1.0, extent / 16)

    # A loop whose variable bounds another one stays outside of it.
    bounding = {v for y in loops for e in (y.lower, y.upper) for v in e.variables}
    movable = [k for k, x in enumerate(loops) if x.variable not in bounding and x not in stays]
    best = max(reversed(movable), key=lambda k: score(k, loops[k].extent))
    return loops[best], [loops[k] for k in movable]


def _beside(nest: Nest, movable: Sequence[Loop]) -> Loop | None:
    """The loop along which the results of folds lie side by side, where those are what no vector instruction folds.

    The place of a maximum waits for the one before it; beside each other sixteen rows are compared at a time.
    """
    if nest.stores or not nest.folds or not all(has_own_body(f.op) for f in nest.folds):
        return None
    return next((x for x in rows_of_results(nest, LEAST_BESIDE) if x in movable), None)
