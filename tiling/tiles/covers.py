"""Intervals that cover an index expression on a tile, where it runs through no progression, or where no more is asked for.

    e(begin + y) lies in [start + shift, start + shift + span]    for all y in [0, last]

`start` is in the expressions that say where the tile begins, in its runtime variables; `shift` and `span` in those of its sizes.
Sizes are symbols, or numbers. A division may begin anywhere inside a quotient: floor((a + s) / c) - floor(a / c) is floor(s / c)
or one more; where the tile begins at a known place in it, or stays inside of it, the cover is exact. What is no sum of variables,
divisions and remainders is covered by all that it can be. Of range variables alone the interval is the same on every tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from indexing.expr import Const, Expr, FloorDiv, Interval, Mod, Var, from_terms, simplify
from indexing.expressions.bounds import Bounds

__all__ = ["Along", "Cover", "cover_of"]

NOTHING = Const(0)

Along = tuple[Expr, Expr]
"""Where a tile begins along a dimension, and how far from there its last index is."""


@dataclass(frozen=True)
class Cover:
    """See the module's text. `separates`: `start` is where the tile's least element is, no division is cut at its begin."""

    start: Expr
    shift: Expr
    span: Expr
    separates: bool = True


def cover_of(e: Expr, tile: Mapping[Var, Along], ranges: Mapping[Var, Interval], everything: Mapping[Var, Interval]) -> Cover:
    """The cover of `e` on a tile. `everything` has the intervals of all variables, those that are constant on a tile included.

    >>> d0, s0 = Var("d0"), Var("s0")
    >>> inside = {d0: Interval(0, 12), s0: Interval(0, 2)}
    >>> c = cover_of((d0 - s0 + 1) // 2, {d0: (d0, d0 - 1)}, {s0: inside[s0]}, inside)
    >>> print(c.start, "|", c.shift, "|", c.span)
    (d0 + 1) floordiv 2 | -1 | (d0 - 1) floordiv 2 + 2
    """
    constant, low, length = e.constant, 0, 0
    still: dict[Expr, int] = {}
    start: Expr = NOTHING
    shift: Expr = NOTHING
    span: Expr = NOTHING
    separates = True
    for atom, k in e.terms:
        if type(atom) is Var and atom not in tile and atom not in ranges:
            still[atom] = k
        elif all(v in ranges for v in atom.variables):  # the same numbers on every tile
            first, last = ranges[atom] if type(atom) is Var else Bounds(ranges)(atom)
            constant += first * k
            low += min(0, (last - first) * k)
            length += (last - first) * abs(k)
        else:
            one = _atom(atom, tile, ranges, everything)
            start = start + one.start * k
            shift = shift + (one.shift * k if k > 0 else (one.shift + one.span) * k)
            span = span + one.span * abs(k)
            separates = separates and one.separates
    return Cover(from_terms(constant, still) + start, shift + low, span + length, separates)


def _atom(atom: Expr, tile: Mapping[Var, Along], ranges: Mapping[Var, Interval], everything: Mapping[Var, Interval]) -> Cover:
    """The cover of an atom that is not made of range variables alone."""
    if type(atom) is Var:
        begin, last = tile[atom]
        return Cover(begin, NOTHING, last)
    if not any(v in tile or v in ranges for v in atom.variables):
        return Cover(atom, NOTHING, NOTHING)
    if isinstance(atom, (FloorDiv, Mod)) and isinstance(atom.divisor, int):
        c, inner = atom.divisor, cover_of(atom.numerator, tile, ranges, everything)
        known = _inside_a_period(isinstance(atom, FloorDiv), c, inner, everything)
        if known is not None:
            return known
        if isinstance(atom, FloorDiv):
            low = inner.shift // c
            return Cover(inner.start // c, low, (inner.shift + inner.span) // c + 1 - low, False)
    whole = Bounds(everything)(atom)
    return Cover(Const(whole.lower), NOTHING, Const(whole.size - 1), False)


def _inside_a_period(divides: bool, c: int, inner: Cover, everything: Mapping[Var, Interval]) -> Cover | None:
    """The exact cover of a quotient or remainder of numbers [first, first + length], where it is known how they lie to c."""
    if not inner.separates or not isinstance(inner.shift, Const) or not isinstance(inner.span, Const):
        return None
    first, length = inner.start + inner.shift, inner.span.value
    rest = simplify(first % c, everything)
    most = Bounds(everything)(rest).upper
    if most + length < c:  # all of them in one period
        return Cover(simplify(first // c, everything) if divides else rest, NOTHING, NOTHING if divides else inner.span)
    if not isinstance(rest, Const):
        return None
    if divides:
        return Cover(simplify(first // c, everything), NOTHING, Const((rest.value + length) // c))
    return Cover(NOTHING, NOTHING, Const(c - 1))
