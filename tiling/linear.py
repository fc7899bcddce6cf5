"""Addresses, and expressions taken apart into a linear part and the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from indexing.expr import Const, Expr, Interval, Var, simplify
from tiling.schedule import Buffer

__all__ = ["address", "linear"]


def address(buffer: Buffer, index: Sequence[Expr], ranges: Mapping[Var, Interval]) -> Expr:
    """Where element `index` lies in the buffer: sum of (index_k - origin_k) * stride_k, simplified."""
    total: Expr = Const(0)
    for i, o, s in zip(index, buffer.origin, buffer.strides, strict=True):
        total = total + simplify(i - o, ranges) * s
    return simplify(total, ranges)


def linear(e: Expr, wanted: Sequence[Var]) -> tuple[Expr, tuple[int, ...]] | None:
    """(rest, coefficients) with e = rest + sum of coefficient * variable, or None when some variable occurs otherwise."""
    counts = dict.fromkeys(wanted, 0)
    rest: Expr = Const(e.constant)
    for atom, k in e.terms:
        if isinstance(atom, Var) and atom in counts:
            counts[atom] = k
        elif any(v in counts for v in atom.variables):
            return None
        else:
            rest = rest + atom * k
    return rest, tuple(counts.values())
