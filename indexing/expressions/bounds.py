"""Intervals and the range of an expression over the ranges of its variables."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import NamedTuple

from indexing.expressions.terms import Expr, FloorDiv, Maximum, Minimum, Mod, Product, Var

__all__ = ["EVERYTHING", "Bounds", "Interval", "interval", "within"]


class Interval(NamedTuple):
    """The integers from `lower` to `upper`, both included; empty when lower > upper.

    >>> 3 in Interval(0, 3), len(Interval(0, 3)), str(Interval(0, 3))
    (True, 4, '[0, 3]')
    """

    lower: int
    upper: int

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.lower <= value <= self.upper

    def __len__(self) -> int:
        return max(0, self.upper - self.lower + 1)

    def __str__(self) -> str:
        return f"[{self.lower}, {self.upper}]"

    @property
    def size(self) -> int:
        """How many integers there are (`len` cannot say more than a machine word)."""
        return max(0, self.upper - self.lower + 1)

    @property
    def is_empty(self) -> bool:
        return self.lower > self.upper

    @property
    def is_point(self) -> bool:
        return self.lower == self.upper

    def covers(self, other: Interval) -> bool:
        """True when every integer of `other` is in this interval."""
        return other.lower > other.upper or (self.lower <= other.lower and other.upper <= self.upper)

    def intersect(self, other: Interval) -> Interval:
        return Interval(max(self.lower, other.lower), min(self.upper, other.upper))

    def hull(self, other: Interval) -> Interval:
        """The least interval that covers both."""
        return Interval(min(self.lower, other.lower), max(self.upper, other.upper))


EVERYTHING = Interval(-(2**62), 2**62)
"""The range of a variable of which nothing is known: wider than any index."""


def within(what: str, lower: int, upper: int) -> str:
    """That something lies in an interval, in words: an end that is beyond every index is left out.

    >>> within("i", 0, 3), within("i", 1, EVERYTHING.upper), within("i", EVERYTHING.lower, 2)
    ('i in [0, 3]', 'i >= 1', 'i <= 2')
    """
    if upper >= EVERYTHING.upper:
        return f"{what} is any" if lower <= EVERYTHING.lower else f"{what} >= {lower}"
    return f"{what} <= {upper}" if lower <= EVERYTHING.lower else f"{what} in [{lower}, {upper}]"


class Bounds:
    """Ranges of expressions over fixed ranges of variables, remembered by expression.

    The result always covers the true range. It is exact for a linear form of independent variables and for a division or
    modulo of one; where a variable occurs twice it may be wider.
    """

    __slots__ = ("_known", "ranges")

    def __init__(self, ranges: Mapping[Var, Interval]) -> None:
        self.ranges = ranges
        self._known: dict[Expr, Interval] = {}

    def __call__(self, e: Expr) -> Interval:
        terms = e.terms
        if not terms:
            return Interval(e.constant, e.constant)
        if len(terms) == 1 and terms[0][0] is e:
            return self._atom(e)
        known = self._known.get(e)
        if known is None:
            lower = upper = e.constant
            for atom, k in terms:
                lo, hi = self._atom(atom)
                if k > 0:
                    lower += k * lo
                    upper += k * hi
                else:
                    lower += k * hi
                    upper += k * lo
            known = self._known[e] = Interval(lower, upper)
        return known

    def _atom(self, e: Expr) -> Interval:
        if type(e) is Var:
            return self.ranges.get(e, EVERYTHING)
        known = self._known.get(e)
        if known is None:
            known = self._known[e] = self._compound(e)
        return known

    def _compound(self, e: Expr) -> Interval:
        if isinstance(e, FloorDiv):
            return self._quotient(self(e.numerator), e.divisor)
        if isinstance(e, Mod):
            return self._remainder(e)
        if isinstance(e, Product):
            total = Interval(1, 1)
            for f in e.factors:
                b = self(f)
                corners = [x * y for x in total for y in b]
                total = Interval(min(corners), max(corners))
            return total
        if isinstance(e, (Minimum, Maximum)):
            pick = min if isinstance(e, Minimum) else max
            parts = [self(a) for a in e.arguments]
            return Interval(pick(p.lower for p in parts), pick(p.upper for p in parts))
        raise TypeError(f"no atom: {type(e).__name__}")

    def _quotient(self, n: Interval, divisor: int | Expr) -> Interval:
        if isinstance(divisor, int):
            return Interval(n.lower // divisor, n.upper // divisor)
        c = self(divisor)
        if c.lower <= 0 <= c.upper:
            # A program divides by no zero, so |divisor| >= 1.
            worst = max(abs(n.lower), abs(n.upper)) + 1
            return Interval(-worst, worst)
        corners = [x // y for x in n for y in c]
        return Interval(min(corners), max(corners))

    def _remainder(self, e: Mod) -> Interval:
        n = self(e.numerator)
        if isinstance(e.divisor, int):
            c = e.divisor
            if n.lower // c == n.upper // c:
                return Interval(n.lower % c, n.upper % c)
            step = c
            for _, k in e.numerator.terms:
                step = gcd(step, k)
            first = e.numerator.constant % step
            return Interval(first, c - step + first)
        d = self(e.divisor)
        if d.lower > 0:
            return Interval(0, min(d.upper - 1, n.upper) if n.lower >= 0 else d.upper - 1)
        return Interval(min(d.lower + 1, 0), max(d.upper - 1, 0))


def interval(e: Expr | int, ranges: Mapping[Var, Interval]) -> Interval:
    """An interval that covers every value of `e` while each variable stays in its range.

    A variable without a range counts as any index.

    >>> d0, d1 = Var("d0"), Var("d1")
    >>> str(interval(d0 * 8 - d1 // 2, {d0: Interval(0, 3), d1: Interval(0, 7)}))
    '[-3, 24]'
    """
    return Interval(e, e) if isinstance(e, int) else Bounds(ranges)(e)
