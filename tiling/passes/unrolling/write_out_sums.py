"""Sums of few products, and folds of few steps, are written out: no loop over them, and no accumulator in memory.

    for r in [0, 2]: out[i] += a[i, r] * b[r]   ->   out[i] = ((0 + a[i, 0] b[0]) + a[i, 1] b[1]) + a[i, 2] b[2]

Folds whose steps are a body of their own (the place of a row's maximum) are so where a row is short: each row is then read once,
and its results are written once. Where neighbouring results read neighbours, as in a turned tile or across rows, longer folds are
so eight steps at a time, and their running results are read and written once for these:

    for r in [0, 19], i: m[i], p[i] = f(m[i], p[i], a[r, i], r)   ->   for s in [0, 1], i: eight steps;  for i: the last four

Of a longer sum whose factors lie side by side, as many of its inner loops as make few
products: its accumulators are in memory, and are read and written once for all of these. A window over the edge of an operand,
of each channel for itself, is written out as a whole: a row is a few vectors long, and a loop over it for each of its products,
cut at both edges, took ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import prod

from hlo.registry import SumOfProducts
from indexing.expr import Const, Interval, Var
from tiling.elements.folds import has_own_body
from tiling.loops.affine import linear, rows_of_results, rows_past_channels, step_along
from tiling.loops.carry import going_on
from tiling.loops.domains.split_domain import Part, Rewriting, points_of
from tiling.loops.element_ir import Choose, Load, Node, all_nodes, has_runtimes, loads
from tiling.loops.ir import Buffer, Loop, LoopKind, Nest
from tiling.loops.variables import fresh_variable

__all__ = ["MOST_OF_WINDOW", "MOST_SIDE_BY_SIDE", "is_window_over_an_edge", "write_out_sums"]

MOST_PRODUCTS = 4
MOST_STEPS = 7  # of a fold: a longer row's tile is turned (`tiling.passes.turn_tiles`)
MOST_STEPS_BESIDE, STEPS_AT_A_TIME = 16, 8  # where neighbouring results read neighbours
MOST_OPS = 160  # of all steps' bodies in a turn
LEAST_ITEM_BYTES = 4  # of 16 bits, which are widened, a hundred rows took 1.3 times as long eight at a time
MOST_OF_LOOPS = 9  # products of whole vectors
MOST_SIDE_BY_SIDE = 49
MOST_OF_WINDOW = 25  # products, in each piece of a row, and of a window in several dimensions
LEAST_ROW = 8


def write_out_sums(nest: Nest, ranges: dict[Var, Interval], buffer_of: Callable[[Load], Buffer]) -> list[Nest]:
    """The nest with its sums of few products written out: folds of several products each; and one for what is left of a long fold
    by a body. The nest itself otherwise."""
    loops = nest.reductions
    if not loops or nest.skip is not None or nest.stores or nest.order_is_fixed:
        return [nest]
    is_body = all(has_own_body(f.op) for f in nest.folds)
    if not is_body and not all(isinstance(f.op.definition.semantics, SumOfProducts) for f in nest.folds):
        return [nest]
    if has_runtimes([n for f in nest.folds for n in (*f.nodes, *f.inits)]) or any(x.kind is LoopKind.SCAN for x in nest.loops):
        return [nest]
    rows = [x.variable for x in rows_past_channels(nest)]
    count = prod(x.extent for x in loops)
    if is_body and not rows:
        return [nest]
    if is_body and count > MOST_STEPS:
        return _some_steps_at_a_time(nest, ranges) if _has_room_for_steps(nest, buffer_of) else [nest]
    is_window = is_window_over_an_edge(rows, loops, [n for f in nest.folds for n in f.nodes])
    if count > MOST_PRODUCTS and not is_window and not is_body:
        whole = loops if len(loops) > 1 and count <= MOST_SIDE_BY_SIDE else _inner(loops)
        loops = whole if _lies_side_by_side(nest, buffer_of) else []
    count = prod(x.extent for x in loops)
    if not loops or not all(x.is_whole for x in loops) or count < 1:
        return [nest]
    return [_written_out(nest, loops, points_of(loops), ranges)]


def _written_out(nest: Nest, loops: Sequence[Loop], points: Sequence[Part], ranges: dict[Var, Interval]) -> Nest:
    """The nest whose folds do all these points of some loops, in order, in place of the loops."""
    on = [Rewriting(p, ranges) for p in points]
    folds = tuple(replace(f, nodes=tuple(x.node(n) for x in on for n in f.nodes), products=len(on)) for f in nest.folds)
    return replace(nest, loops=tuple(x for x in nest.loops if not any(x is y for y in loops)), folds=folds)


def _has_room_for_steps(nest: Nest, buffer_of: Callable[[Load], Buffer]) -> bool:
    """Whether it pays to do several steps of folds by bodies at once: these are short, and elements need not be widened."""
    steps = min(prod(x.extent for x in nest.reductions), MOST_STEPS_BESIDE)
    ops = sum(len(r.ops) for f in nest.folds for r in f.op.regions)
    read = [buffer_of(x) for f in nest.folds for x in loads(f.nodes)]
    are_wide = all(b.element.itemsize_bytes >= LEAST_ITEM_BYTES for b in (*read, *(b for f in nest.folds for b in f.buffers)))
    return are_wide and steps * ops <= MOST_OPS and _lies_side_by_side(nest, buffer_of)


def _some_steps_at_a_time(nest: Nest, ranges: dict[Var, Interval]) -> list[Nest]:
    """The nest as one whose turns do several steps of its folds, and one that does the last of them."""
    (loop, *others) = nest.reductions
    if others or not loop.is_whole:
        return [nest]
    turns = loop.extent // STEPS_AT_A_TIME if loop.extent > MOST_STEPS_BESIDE else 0
    made: list[Nest] = []
    if turns:
        v = fresh_variable(loop.variable.name, Interval(0, turns - 1), ranges)
        steps = [Part((), {}, {loop.variable: v * STEPS_AT_A_TIME + k}) for k in range(STEPS_AT_A_TIME)]
        turn = replace(loop, variable=v, upper=Const(turns - 1), extent=turns)
        first = _written_out(nest, [loop], steps, ranges)
        made.append(replace(first, loops=(*first.loops, turn)))
    rest = range(turns * STEPS_AT_A_TIME, loop.extent)
    if rest:
        last = _written_out(nest, [loop], [Part((), {}, {loop.variable: Const(k)}) for k in rest], ranges)
        made.append(replace(last, folds=tuple(map(going_on, last.folds))) if made else last)
    return made


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
