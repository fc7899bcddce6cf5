"""Windows over the edge of an operand: an inside whose windows are whole, and the edges around it.

    for i in [0, n]: for r in [max(0, 1 - i), min(2, n + 1 - i)]: …
        ->   for i in [0, 0]: …;  for i in [1, n - 1]: for r in [0, 2]: …;  for i in [n, n]: …

Only where the innermost loop walks along memory and no edge cuts it: in images whose channels come last, say. Inside there is
nothing left to ask, so the window can be written out and its sum stays in registers. Where an edge cuts that loop, too, and reads
step over elements along it, the other loops are cut: a vector of elements some way apart is not read under a condition. Stores
without a window are cut where several choices ask for edges around their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from hlo.access import Condition
from indexing.expr import EVERYTHING, Const, Expr, Interval, Maximum, Minimum, Var
from tiling.elements.code_size import code_size
from tiling.loops.affine import rows_of_results, step_along
from tiling.loops.domains.conditions import for_all
from tiling.loops.domains.split_domain import Rewriting, pinned, split_domain
from tiling.loops.element_ir import Choose, all_nodes, has_runtimes, loads
from tiling.loops.ir import Loop, LoopKind, Nest
from tiling.passes.tighten_bounds import MOST_WRITTEN_OUT, written_out

__all__ = ["inside_and_edges"]

MOST_TAPS = 64  # of a window
LEAST_ROW = 8  # elements of the innermost loop
MUCH_CODE = 40  # nodes of a nest's stores
LEAST_CUT = 32  # iterations of a loop that much code is cut along
MOST_APART = 8  # conditions of which each has a part of its own
MOST_CODE_APART = 2000  # nodes of all these parts
LEAST_EDGES = 2  # choices of different conditions around rows of stores


def inside_and_edges(nest: Nest, ranges: dict[Var, Interval]) -> list[Nest]:
    """Nests that do the same as one, over parts of its domain: itself where nothing is gained."""
    if nest.stores:
        return _around_rows(nest, ranges)
    if nest.skip is not None or nest.order_is_fixed or has_runtimes([n for f in nest.folds for n in f.nodes]):
        return [nest]
    window = nest.reductions
    around = [x for x in nest.loops if x.kind is LoopKind.PARALLEL]
    conditions = _conditions(nest, window)
    rows = rows_of_results(nest, LEAST_ROW)
    is_cut = all(_asks(conditions, x) for x in rows)
    if is_cut and (len(rows) != 1 or not _steps_over(nest, rows[0]) or prod(x.extent for x in window) > MOST_WRITTEN_OUT):
        return [nest]
    conditions = [c for c in conditions if not (is_cut and _asks([c], rows[0]))]
    if not conditions:
        return [nest]
    whole = [for_all(c, window) for c in conditions]
    found = split_domain(around, [[c for c in whole if c is not None]], ranges) if None not in whole else None
    parts = [pinned(p, around) for p in found or ()]
    inside = [p for p in parts if p.is_inside]
    if not inside:
        return [nest]  # also where no window is whole
    edges = [Rewriting(p, ranges).nest(nest) for p in parts if not p.is_inside]
    made = Rewriting(replace(inside[0], truth=dict.fromkeys(conditions, True)), ranges).nest(nest)
    # Extents stay the nest's: reads walk on through memory over what the edges leave out.
    extents = {x.variable: x.extent for x in around}
    whole_window = {x: replace(x, lower=Const(0), upper=Const(x.extent - 1)) for x in made.reductions}
    loops = tuple(whole_window.get(x) or replace(x, extent=extents.get(x.variable, 1)) for x in made.loops)
    made = replace(made, loops=loops)
    return [*edges, (written_out(made, ranges) if len(made.folds) == 1 else None) or made]


def _around_rows(nest: Nest, ranges: dict[Var, Interval]) -> list[Nest]:
    """The same for stores alone, where several edges lie around rows of results and none cuts them: a stencil's, a transform's.

    A compiler takes one choice out of a loop that does not change it. Of several it makes masks, one for each load.
    """
    if nest.folds or nest.skip is not None or nest.order_is_fixed or any(x.kind is not LoopKind.PARALLEL for x in nest.loops):
        return [nest]
    places = [(s.index, s.buffer.strides) for s in nest.stores]
    rows = [x for x in nest.loops if x.extent >= LEAST_ROW and all(step_along(i, n, x.variable) == 1 for i, n in places)]
    roots = [s.node for s in nest.stores]
    if len(rows) != 1 or has_runtimes(roots):
        return [nest]
    nodes = list(all_nodes(roots))
    # Each part is the nest's code once more: of much code only loops are cut whose edges are a small part.
    least = LEAST_CUT if code_size(nodes) > MUCH_CODE else 1
    around = [x for x in nest.loops if x is not rows[0] and x.extent >= least]
    edges = dict.fromkeys(e for n in nodes if isinstance(n, Choose) and (e := _edges(n, rows[0], around)))
    if len(edges) < LEAST_EDGES:
        return [nest]
    conditions = list(dict.fromkeys(c for e in edges for c in e))
    parts = split_domain(around, [conditions], ranges) or []
    if not any(p.is_inside for p in parts):
        # They never hold together, as those of the first row, the second row and so on: each has a part of its own.
        fits = len(conditions) <= MOST_APART and code_size(nodes) * (len(conditions) + 1) <= MOST_CODE_APART
        apart = split_domain(around, [[c] for c in conditions], ranges) if fits else None
        parts = apart if apart is not None and len(apart) <= MOST_APART + 1 else []
    return [Rewriting(pinned(p, around), ranges).nest(nest) for p in parts] or [nest]


def _edges(node: Choose, row: Loop, around: Sequence[Loop]) -> tuple[Condition, ...]:
    """What a choice asks of the loops around a row, and not of the place along it."""
    return tuple(c for c in node.conditions if not _asks([c], row) and any(_asks([c], x) for x in around))


def _conditions(nest: Nest, window: Sequence[Loop]) -> list[Condition]:
    """What holds for each tap of a whole window, as conditions on all loops' variables."""
    if not 1 < prod(x.extent for x in window) <= MOST_TAPS:
        return []
    found: list[Condition] = []
    for x in window:
        uppers: Sequence[Expr] = x.upper.arguments if isinstance(x.upper, Minimum) else (x.upper,)
        lowers: Sequence[Expr] = x.lower.arguments if isinstance(x.lower, Maximum) else (x.lower,)
        found += [Condition(e, x.extent - 1, EVERYTHING.upper) for e in uppers if e is not Const(x.extent - 1)]
        found += [Condition(e, EVERYTHING.lower, 0) for e in lowers if e is not Const(0)]
    inner = {x.variable for x in window}
    tests = (c for n in all_nodes([n for f in nest.folds for n in f.nodes]) if isinstance(n, Choose) for c in n.conditions)
    return list(dict.fromkeys((*found, *(c for c in tests if inner.intersection(c.expression.variables)))))


def _asks(conditions: Sequence[Condition], x: Loop) -> bool:
    return any(x.variable in c.expression.variables for c in conditions)


def _steps_over(nest: Nest, row: Loop) -> bool:
    """Whether something that a condition guards is read at every second element along a row, or more rarely."""
    guarded = [n for n in all_nodes([n for f in nest.folds for n in f.nodes]) if isinstance(n, Choose)]
    return any(dict(n.index[-1].terms).get(row.variable, 1) > 1 for n in loads(guarded) if n.index)
