"""Sums of few products, and folds of few steps, are written out: no loop over them, and no accumulator in memory.

    for r in [0, 2]: out[i] += a[i, r] * b[r]   ->   out[i] = ((0 + a[i, 0] b[0]) + a[i, 1] b[1]) + a[i, 2] b[2]

Folds whose steps are a body of their own (the place of a row's maximum) are so where a row is short: each row is then read once,
and its results are written once. Of a longer sum whose factors lie side by side, as many of its inner loops as make few
products: its accumulators are in memory, and are read and written once for all of these. A window over the edge of an operand,
of each channel for itself, is written out as a whole: a row is a few vectors long, and a loop over it for each of its products,
cut at both edges, took ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import prod

from hlo.registry import SumOfProducts
from indexing.expr import Interval, Var
from tiling.elements.folds import has_own_body
from tiling.loops.affine import linear, rows_of_results, rows_past_channels, step_along
from tiling.loops.domains.split_domain import Rewriting, points_of
from tiling.loops.element_ir import Choose, Load, Node, all_nodes, has_runtimes, loads
from tiling.loops.ir import Buffer, Loop, LoopKind, Nest

__all__ = ["MOST_OF_WINDOW", "MOST_SIDE_BY_SIDE", "is_window_over_an_edge", "write_out_sums"]

MOST_PRODUCTS = 4
MOST_STEPS = 7  # of a fold: a longer row's tile is turned (`tiling.passes.turn_tiles`)
MOST_OF_LOOPS = 9  # products of whole vectors
MOST_SIDE_BY_SIDE = 49
MOST_OF_WINDOW = 25  # products, in each piece of a row, and of a window in several dimensions
LEAST_ROW = 8


def write_out_sums(nest: Nest, ranges: dict[Var, Interval], buffer_of: Callable[[Load], Buffer]) -> Nest:
    """The nest with its sums of few products written out: folds of several products each; the nest itself otherwise."""
    loops = nest.reductions
    if not loops or nest.skip is not None or nest.stores or nest.order_is_fixed:
        return nest
    is_body = all(has_own_body(f.op) for f in nest.folds)
    if not is_body and not all(isinstance(f.op.definition.semantics, SumOfProducts) for f in nest.folds):
        return nest
    if has_runtimes([n for f in nest.folds for n in (*f.nodes, *f.inits)]) or any(x.kind is LoopKind.SCAN for x in nest.loops):
        return nest
    rows = [x.variable for x in rows_past_channels(nest)]
    count = prod(x.extent for x in loops)
    if is_body and (count > MOST_STEPS or not rows):
        return nest
    is_window = is_window_over_an_edge(rows, loops, [n for f in nest.folds for n in f.nodes])
    if count > MOST_PRODUCTS and not is_window and not is_body:
        whole = loops if len(loops) > 1 and count <= MOST_SIDE_BY_SIDE else _inner(loops)
        loops = whole if _lies_side_by_side(nest, buffer_of) else []
    count = prod(x.extent for x in loops)
    if not loops or not all(x.is_whole for x in loops) or count < 1:
        return nest
    on = [Rewriting(p, ranges) for p in points_of(loops)]
    folds = tuple(replace(f, nodes=tuple(x.node(n) for x in on for n in f.nodes), products=count) for f in nest.folds)
    return replace(nest, loops=tuple(x for x in nest.loops if not any(x is y for y in loops)), folds=folds)


def _inner(loops: list[Loop]) -> list[Loop]:
    """The innermost of these loops that together make no more products than are written out."""
    return next(loops[k:] for k in range(len(loops) + 1) if prod(x.extent for x in loops[k:]) <= MOST_OF_LOOPS)


def is_window_over_an_edge(along: Collection[Var], reduction: Sequence[Loop], factors: Sequence[Node]) -> bool:
    """Whether few products, some of them padding, are summed up for each element of a row of results, which `along` walk.

    Padding between elements is no edge: it is left out by residues (`tiling.contract.residues`) or as a mask.
    """
    if prod(x.extent for x in reduction) > MOST_OF_WINDOW:
        return False
    window, row = {x.variable for x in reduction}, set(along)
    tests = [c.expression for n in all_nodes(factors) if isinstance(n, Choose) for c in n.conditions]
    if any(linear(e, tuple(window)) is None for e in tests):
        return False
    return any(window.intersection(e.variables) and row.intersection(e.variables) for e in tests)


def _lies_side_by_side(nest: Nest, buffer_of: Callable[[Load], Buffer]) -> bool:
    """Whether neighbouring results read neighbours, or the same, everywhere and without a test."""
    nodes = [n for f in nest.folds for n in f.nodes]
    if any(isinstance(n, Choose) for n in all_nodes(nodes)):
        return False
    rows = rows_of_results(nest, LEAST_ROW)
    return bool(rows) and all(step_along(x.index, buffer_of(x).strides, rows[0].variable) in (0, 1) for x in loads(nodes))
