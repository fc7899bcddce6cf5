"""Intervals that cover an index expression on a tile, where it runs through no progression.

    e(origin + y) lies in [start + shift, start + shift + span]    for all y of the tile

`start` is in the tile's origin and runtime variables, `shift` and `span` in its sizes. A division may begin anywhere inside a
quotient: floor((a + s) / c) - floor(a / c) is floor(s / c) or one more. What is no sum of variables, divisions and remainders
is covered by all that it can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from indexing.bounds import Bounds
from indexing.expr import Const, Expr, FloorDiv, Interval, Var

__all__ = ["Cover", "cover_of"]


@dataclass(frozen=True)
class Cover:
    """See the module's text."""

    start: Expr
    shift: Expr
    span: Expr


def cover_of(
    e: Expr, dims: Mapping[Var, Interval], ranges: Mapping[Var, Interval], everything: Mapping[Var, Interval]
) -> Cover:
    """The cover of `e`. `everything` has the intervals of all variables, those that are constant on a tile included.

    >>> d0, s0 = Var("d0"), Var("s0")
    >>> inside = {d0: Interval(0, 12), s0: Interval(0, 2)}
    >>> c = cover_of((d0 - s0 + 1) // 2, {d0: inside[d0]}, {s0: inside[s0]}, inside)
    >>> print(c.start, "|", c.shift, "|", c.span)
    (d0 + 1) floordiv 2 | -1 | (d0 - 1) floordiv 2 + 2
    """
    total = Cover(Const(e.constant), Const(0), Const(0))
    for atom, k in e.terms:
        one = _atom(atom, dims, ranges, everything)
        low = one.shift * k if k > 0 else (one.shift + one.span) * k
        total = Cover(total.start + one.start * k, total.shift + low, total.span + one.span * abs(k))
    return total


def _atom(
    atom: Expr, dims: Mapping[Var, Interval], ranges: Mapping[Var, Interval], everything: Mapping[Var, Interval]
) -> Cover:
    if isinstance(atom, Var):
        if atom in dims:
            return Cover(atom, Const(0), atom - 1)
        if atom in ranges:
            return Cover(Const(ranges[atom].lower), Const(0), Const(ranges[atom].size - 1))
        return Cover(atom, Const(0), Const(0))
    if not any(v in dims or v in ranges for v in atom.variables):
        return Cover(atom, Const(0), Const(0))
    if isinstance(atom, FloorDiv) and isinstance(atom.divisor, int):
        c = atom.divisor
        inner = cover_of(atom.numerator, dims, ranges, everything)
        low = inner.shift // c
        return Cover(inner.start // c, low, (inner.shift + inner.span) // c + 1 - low)
    whole = Bounds(dict(everything))(atom)
    return Cover(Const(whole.lower), Const(0), Const(whole.size - 1))
