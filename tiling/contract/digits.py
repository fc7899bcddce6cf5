"""Several of a result's indices taken from one tile number, as a reshape outside of them does: its digits.

    t = sum over dimensions k of weight_k * index_k        index_k = (t floordiv weight_k) mod extent_k

What an operand reads at such indices follows from the number with the wanted digits in it; whether a dimension moves an operand,
from whether its digit is left in what the operand reads.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from indexing.expr import Const, Expr, FloorDiv, Interval, Mod, Var, as_expr, simplify, substitute
from tiling.loops.element_ir import Node, Renamer, node_variables

__all__ = ["dimensions_that_move", "number_of", "weights_of_digits"]


def _digit(e: Expr) -> tuple[Var, int] | None:
    """(t, weight) of t, t floordiv w, t mod m, (t floordiv w) mod m and (t mod m) floordiv w."""
    weight = 1
    while isinstance(e, (FloorDiv, Mod)):
        if not isinstance(e.divisor, int):
            return None
        if isinstance(e, FloorDiv):
            weight *= e.divisor
        e = e.numerator
    return (e, weight) if isinstance(e, Var) else None


def weights_of_digits(
    index: Sequence[Expr], shape: Sequence[int], ranges: Mapping[Var, Interval]
) -> Mapping[Var, Mapping[int, int]]:
    """{t: {dimension: weight}} of the numbers of which each value is one choice of their digits, and that have two at least.

    `shape` has the extents of the dimensions. Left out are numbers with a part that no dimension has.
    """
    found: dict[Var, dict[int, int]] = {}
    for k, e in enumerate(index):
        digit = _digit(e)
        if digit is not None and shape[k] > 1:
            found.setdefault(digit[0], {})[k] = digit[1]
    whole: dict[Var, Mapping[int, int]] = {}
    for t, weights in found.items():
        reached = 1
        for k in sorted(weights, key=weights.__getitem__):
            reached = reached * shape[k] if weights[k] == reached else 0
        if len(weights) > 1 and t in ranges and ranges[t] == Interval(0, reached - 1):
            parts, known = _parts(t, weights, shape, ranges)
            place = {t: number_of(weights, parts)}
            if all(simplify(substitute(index[k], place), known) is part for k, part in parts.items()):
                whole[t] = weights
    return whole


def _parts(
    t: Var, weights: Mapping[int, int], shape: Sequence[int], ranges: Mapping[Var, Interval]
) -> tuple[dict[int, Var], dict[Var, Interval]]:
    """A variable for each digit, and the ranges with theirs."""
    parts = {k: Var(f"{t.name}_digit{k}") for k in weights}
    return parts, {**ranges, **{v: Interval(0, shape[k] - 1) for k, v in parts.items()}}


def number_of(weights: Mapping[int, int], wanted: Mapping[int, Expr]) -> Expr:
    """The number whose digits are `wanted`, 0 for the others."""
    total: Expr = Const(0)
    for k, weight in weights.items():
        total = total + as_expr(wanted.get(k, Const(0))) * weight
    return total


def dimensions_that_move(
    node: Node, used: Container[Var], index: Sequence[Expr], shape: Sequence[int], ranges: Mapping[Var, Interval]
) -> tuple[bool, ...]:
    """For each dimension of a result at `index` whether the value of a node, which `used` move, depends on its index."""
    moves = [any(v in used for v in e.variables) for e in index]
    for t, weights in weights_of_digits(index, shape, ranges).items():
        if t in used:
            parts, known = _parts(t, weights, shape, ranges)
            left = node_variables(Renamer({t: number_of(weights, parts)}, known, {}).node(node), {})
            for k, part in parts.items():
                moves[k] = part in left
    return tuple(moves)
