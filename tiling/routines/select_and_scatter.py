"""select_and_scatter as a schedule: each window of the operand chooses an element, at its place a source element is folded in."""

from __future__ import annotations

from hlo.access import Condition
from hlo.errors import Declined
from hlo.module import Op
from indexing.deriving.edges import edges_of
from indexing.expr import Const, Expr, Interval, Var, as_expr, interval, simplify, substitute
from tiling.loops.element_ir import Node, loads
from tiling.loops.ir import Buffer, Loop, Nest, Phase, Schedule, Scope, Selection, Store
from tiling.loops.names import Names
from tiling.routines.scatter import Builder, element_of, plain, scalar_body

__all__ = ["lower_selection", "selection_declines"]


def selection_declines(op: Op) -> Declined | None:
    """Why a select_and_scatter is left to the evaluator, or None."""
    found = plain(op)
    if found is not None:
        return found
    if element_of(op.operands[1]) != element_of(op.results[0]):
        return Declined("its body widens the elements")
    return next((found for b in op.regions if (found := scalar_body(b)) is not None), None)


def lower_selection(op: Op, builder: Builder, names: Names) -> Schedule:
    """Tasks over the leading dimensions that have no windows: they fill their part of the result and fold into it, in order."""
    operand, source, init = op.operands
    edges = edges_of(op)
    assert not isinstance(edges, Declined), "the values decide which element is chosen, the windows are known"
    (chooses,), (adds,), _ = edges.by_operand  # where windows have their elements, and which window it is
    shape, counts = operand.shape, source.shape
    sizes, strides, padding = op.attr("window_dimensions"), op.attr("window_strides"), op.attr("padding")
    whole = [w == 1 and s == 1 and tuple(p) == (0, 0) for w, s, p in zip(sizes, strides, padding, strict=True)]
    shared = next((k for k, free in enumerate(whole) if not free), len(shape))
    ranges: dict[Var, Interval] = {}
    tiles: list[tuple[Var, int]] = []
    fill: list[Loop] = []
    around: list[Loop] = []
    window: list[Loop] = []
    filled: list[Expr] = []
    at: list[Expr] = []
    place: list[Expr] = []
    tests: list[Condition] = []
    for k, (n, count) in enumerate(zip(shape, counts, strict=True)):
        if k < shared:
            t = Var(f"t{k}")
            ranges[t] = Interval(0, n - 1)
            tiles.append((t, n))
            for index in (filled, at, place):
                index.append(as_expr(t))
            continue
        i, s, w = Var(f"i{k}_fill"), Var(f"s{k}_source"), Var(f"w{k}_window")
        ranges[i], ranges[s], ranges[w] = Interval(0, n - 1), Interval(0, count - 1), Interval(0, sizes[k] - 1)
        fill.append(Loop(i, Const(0), Const(n - 1), n))
        around.append(Loop(s, Const(0), Const(count - 1), count))
        filled.append(as_expr(i))
        at.append(as_expr(s))
        if sizes[k] > 1:
            window.append(Loop(w, Const(0), Const(sizes[k] - 1), sizes[k]))
        reached = chooses.results[k]
        inside = simplify(substitute(reached, {v: s if v is adds.results[k] else w for v in reached.variables}), ranges)
        place.append(inside)
        bounds = interval(inside, ranges)
        if bounds.lower < 0 or bounds.upper >= n:
            tests.append(Condition(inside, 0, n - 1))
    target = names.global_buffer(op.results[0], Scope.RESULT)
    chosen = names.global_buffer(operand, Scope.ARGUMENT)
    elements = builder(ranges)
    first, node = elements.at(init, ()), elements.at(source, tuple(at))
    start = Nest(tuple(fill), stores=(Store(None, target, tuple(filled), first),))
    step = Selection(op, tuple(around), tuple(window), tuple(tests), chosen, tuple(place), target, node)
    roots: list[Node] = [first, node]
    read = dict.fromkeys(x.value for x in loads(roots))
    others = [names.global_buffer(v, Scope.ARGUMENT) for v in read if v is not operand]
    buffers: list[Buffer] = [target, chosen, *others]
    return Schedule((Phase(tuple(tiles), (start, step)),), tuple(buffers), shape, ranges)
