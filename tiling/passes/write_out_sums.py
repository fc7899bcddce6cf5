"""Sums of few products are written out: no loop over them, and no accumulator in memory.

    for r in [0, 2]: out[i] += a[i, r] * b[r]   ->   out[i] = ((0 + a[i, 0] b[0]) + a[i, 1] b[1]) + a[i, 2] b[2]

Of a longer sum whose factors lie side by side, as many of its inner loops as make few products: its accumulators are in memory,
and are read and written once for all of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from math import prod

from hlo.registry import SumOfProducts
from indexing.expr import Const, Expr, Interval, Var
from tiling.loops.affine import step_along
from tiling.loops.element_ir import Choose, Load, Node, all_nodes, has_runtimes
from tiling.loops.ir import Buffer, Loop, LoopKind, Nest
from tiling.loops.split_domain import Part, Rewriting

__all__ = ["write_out_sums"]

MOST_PRODUCTS = 4
MOST_SIDE_BY_SIDE = 9  # products of whole vectors
LEAST_ROW = 8


def write_out_sums(nest: Nest, ranges: Mapping[Var, Interval], buffer_of: Callable[[Load], Buffer]) -> Nest:
    """The nest with its sums of few products written out: folds of several products each; the nest itself otherwise."""
    loops = [x for x in nest.loops if x.kind is LoopKind.REDUCTION]
    if not loops or nest.skip is not None or nest.stores or nest.order_is_fixed:
        return nest
    if not all(isinstance(f.op.definition.semantics, SumOfProducts) for f in nest.folds):
        return nest
    if has_runtimes([n for f in nest.folds for n in (*f.nodes, *f.inits)]) or any(x.kind is LoopKind.SCAN for x in nest.loops):
        return nest
    if prod(x.extent for x in loops) > MOST_PRODUCTS:
        loops = _inner(loops) if _lies_side_by_side(nest, buffer_of) else []
    count = prod(x.extent for x in loops)
    if not loops or not all(x.lower is Const(0) and x.upper is Const(x.extent - 1) for x in loops) or count < 1:
        return nest
    points = list(product(*(range(x.extent) for x in loops)))
    folds = []
    for f in nest.folds:
        nodes: list[Node] = []
        for point in points:
            at: dict[Var, Expr] = {x.variable: Const(k) for x, k in zip(loops, point, strict=True)}
            nodes += map(Rewriting(Part((), {}, at), ranges).node, f.nodes)
        folds.append(replace(f, nodes=tuple(nodes), products=count))
    rest = tuple(x for x in nest.loops if not any(x is y for y in loops))
    return replace(nest, loops=rest, folds=tuple(folds))


def _inner(loops: list[Loop]) -> list[Loop]:
    """The innermost of these loops that together make no more products than are written out."""
    taken: list[Loop] = []
    for x in reversed(loops):
        if prod(y.extent for y in taken) * x.extent > MOST_SIDE_BY_SIDE:
            break
        taken.insert(0, x)
    return taken


def _lies_side_by_side(nest: Nest, buffer_of: Callable[[Load], Buffer]) -> bool:
    """Whether neighbouring results read neighbours, or the same, everywhere and without a test."""
    nodes = [n for f in nest.folds for n in f.nodes]
    if any(isinstance(n, Choose) for n in all_nodes(nodes)):
        return False
    accesses = [(f.buffers[0], f.index) for f in nest.folds]
    reads = [(buffer_of(n), n.index) for n in all_nodes(nodes) if isinstance(n, Load)]

    def steps(found: list[tuple[Buffer, tuple[Expr, ...]]], x: Loop) -> set[int | None]:
        return {step_along(index, b.strides, x.variable) for b, index in found}

    rows = [x for x in nest.loops if x.kind is LoopKind.PARALLEL and x.extent >= LEAST_ROW and steps(accesses, x) == {1}]
    return bool(rows) and steps(reads, rows[0]) <= {0, 1}
