"""Sums of few products are written out: no loop over them, and no accumulator in memory.

    for r in [0, 2]: out[i] += a[i, r] * b[r]   ->   out[i] = ((0 + a[i, 0] b[0]) + a[i, 1] b[1]) + a[i, 2] b[2]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import prod

from hlo.registry import SumOfProducts
from indexing.expr import Const, Expr, Interval, Var
from tiling.element import Renamer, has_runtimes
from tiling.schedule import LoopKind, Nest

__all__ = ["without_short_sums"]

MOST_PRODUCTS = 4


def without_short_sums(nest: Nest, ranges: Mapping[Var, Interval]) -> tuple[Nest, int]:
    """The nest with its sums of products written out, and how many products each has; the nest itself and 1 otherwise.

    The first of that many equal parts of the new nest's folds are the folds' first products, and so on.
    """
    loops = [x for x in nest.loops if x.kind is LoopKind.REDUCTION]
    count = prod(x.extent for x in loops)
    whole = all(x.lower is Const(0) and x.upper is Const(x.extent - 1) for x in loops)
    if not loops or not whole or not 1 <= count <= MOST_PRODUCTS or nest.skip is not None or nest.stores or nest.order_is_fixed:
        return nest, 1
    if not all(isinstance(f.op.definition.semantics, SumOfProducts) for f in nest.folds):
        return nest, 1
    if has_runtimes([n for f in nest.folds for n in (*f.nodes, *f.inits)]) or any(x.kind is LoopKind.SCAN for x in nest.loops):
        return nest, 1
    folds = []
    for point in product(*(range(x.extent) for x in loops)):
        renaming: dict[Var, Expr] = {x.variable: Const(at) for x, at in zip(loops, point, strict=True)}
        rename = Renamer(renaming, ranges, {})
        folds += [replace(f, nodes=tuple(map(rename.node, f.nodes))) for f in nest.folds]
    rest = tuple(x for x in nest.loops if x.kind is not LoopKind.REDUCTION)
    return replace(nest, loops=rest, folds=tuple(folds)), count
