"""Intervals that cover an index expression on a tile, where it runs through no progression.

    e(origin + y) lies in [start + shift, start + shift + span]    for all y of the tile

`start` is in the tile's origin and runtime variables, `shift` and `span` in its sizes. A division may begin anywhere inside a
quotient: floor((a + s) / c) - floor(a / c) is floor(s / c) or one more. What is no sum of variables, divisions and remainders
is covered by all that it can be. Of range variables alone the interval is the same on every tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from indexing.bounds import Bounds
from indexing.expr import Const, Expr, FloorDiv, Interval, Var, from_terms

__all__ = ["Cover", "cover_of"]

NOTHING = Const(0)


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
    constant, low, length = e.constant, 0, 0
    start: dict[Expr, int] = {}
    shift: Expr = NOTHING
    span: Expr = NOTHING
    for atom, k in e.terms:
        if type(atom) is Var and atom not in dims and atom not in ranges:
            start[atom] = k
        elif all(v in ranges for v in atom.variables):  # the same numbers on every tile
            first, last = ranges[atom] if type(atom) is Var else Bounds(ranges)(atom)
            constant += first * k
            low += min(0, (last - first) * k)
            length += (last - first) * abs(k)
        else:
            one = _atom(atom, dims, ranges, everything)
            for a, c in one.start.terms:
                start[a] = start.get(a, 0) + c * k
            constant += one.start.constant * k
            shift = shift + (one.shift * k if k > 0 else (one.shift + one.span) * k)
            span = span + one.span * abs(k)
    return Cover(from_terms(constant, start), shift + low, span + length)


def _atom(
    atom: Expr, dims: Mapping[Var, Interval], ranges: Mapping[Var, Interval], everything: Mapping[Var, Interval]
) -> Cover:
    """The cover of an atom that is no range variable, nor made of such alone."""
    if type(atom) is Var:
        return Cover(atom, NOTHING, atom - 1)
    if not any(v in dims or v in ranges for v in atom.variables):
        return Cover(atom, NOTHING, NOTHING)
    if isinstance(atom, FloorDiv) and isinstance(atom.divisor, int):
        c = atom.divisor
        inner = cover_of(atom.numerator, dims, ranges, everything)
        low = inner.shift // c
        return Cover(inner.start // c, low, (inner.shift + inner.span) // c + 1 - low)
    whole = Bounds(everything)(atom)
    return Cover(Const(whole.lower), NOTHING, Const(whole.size - 1))
