"""Arithmetic progressions and boxes of them: the sets for which every question has a closed answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import gcd, prod
from typing import NamedTuple

from indexing.expressions.bounds import Interval
from indexing.expressions.terms import Expr, FloorDiv, Mod, Var

__all__ = ["Box", "Span", "box_count", "box_difference", "box_intersection", "connected", "digits", "progression"]


class Span(NamedTuple):
    """lower, lower + step, …, upper: upper - lower is a multiple of step, and step is 1 for a single integer.

    >>> str(Span(3, 9, 3)), Span(3, 9, 3).size, Span.of(3, 10, 3) == Span(3, 9, 3)
    ('[3, 9] step 3', 3, True)
    """

    lower: int
    upper: int
    step: int = 1

    @staticmethod
    def of(lower: int, upper: int, step: int = 1) -> Span:
        """The span with these bounds, the upper one lowered to a member; Span(0, -1) when there is none."""
        if lower > upper:
            return Span(0, -1)
        upper -= (upper - lower) % step
        return Span(lower, upper, step if lower != upper else 1)

    @property
    def size(self) -> int:
        """How many integers there are."""
        return (self.upper - self.lower) // self.step + 1 if self.lower <= self.upper else 0

    @property
    def interval(self) -> Interval:
        return Interval(self.lower, self.upper)

    def has(self, value: int) -> bool:
        return self.lower <= value <= self.upper and (value - self.lower) % self.step == 0

    def covers(self, other: Span) -> bool:
        if other.size == 0:
            return True
        inside = self.has(other.lower) and self.has(other.upper)
        return inside and (other.size == 1 or other.step % self.step == 0)

    def intersect(self, other: Span) -> Span:
        """Common members: again a progression, its step the least common multiple."""
        if self.size == 0 or other.size == 0:
            return Span(0, -1)
        g = gcd(self.step, other.step)
        if (other.lower - self.lower) % g:
            return Span(0, -1)
        step = self.step // g * other.step
        lower = max(self.lower, other.lower)
        # The least member of both from `lower` on: a residue modulo `step`.
        turns = (other.lower - self.lower) // g * pow(self.step // g, -1, other.step // g) if other.step != g else 0
        residue = self.lower + self.step * turns
        first = lower + (residue - lower) % step
        return Span.of(first, min(self.upper, other.upper), step)

    def __str__(self) -> str:
        if self.size == 1:
            return str(self.lower)
        return f"[{self.lower}, {self.upper}]" + (f" step {self.step}" if self.step != 1 else "")


Box = tuple[Span, ...]


def box_count(box: Box) -> int:
    return prod(s.size for s in box)


def box_intersection(a: Box, b: Box) -> Box | None:
    """The common part, a box as well; None when there is none."""
    out = tuple([x.intersect(y) for x, y in zip(a, b, strict=True)])
    return None if any(s.size == 0 for s in out) else out


def box_difference(a: Box, b: Box) -> list[Box] | None:
    """a without b as disjoint boxes; None when strides would make it something else."""
    common = box_intersection(a, b)
    if common is None:
        return [a]
    out: list[Box] = []
    rest = list(a)
    for i, (whole, part) in enumerate(zip(a, common, strict=True)):
        if part.size > 1 and part.step != whole.step:
            return None
        below = Span.of(whole.lower, part.lower - whole.step, whole.step)
        above = Span.of(part.upper + whole.step, whole.upper, whole.step)
        for piece in (below, above):
            if piece.size:
                out.append((*rest[:i], piece, *rest[i + 1 :]))
        rest[i] = part
    return out


def progression(e: Expr, spans: Mapping[Var, Span]) -> Span | None:
    """The exact set of e's values while each variable runs through its span, when that is a progression.

    Atoms must not share variables; None when they do, or when the values have gaps of different sizes.
    """
    if len(e.variables) != sum(len(a.variables) for a, _ in e.terms):
        return None
    parts: list[Span] = []
    for atom, k in e.terms:
        s = _atom(atom, spans)
        if s is None or s.size == 0:
            return s
        first, last = sorted((k * s.lower, k * s.upper))
        parts.append(Span.of(first, last, abs(k) * s.step))
    total = Span(e.constant, e.constant)
    for s in sorted(parts, key=lambda s: s.step if s.size > 1 else 0):
        if s.size == 1 or total.size == 1:
            step = s.step if s.size > 1 else total.step
        else:
            # The wider steps must be filled by what the finer ones reach.
            step = total.step
            if s.step % step or s.step > total.upper - total.lower + step:
                return None
        total = Span.of(total.lower + s.lower, total.upper + s.upper, step)
    return total


def _atom(atom: Expr, spans: Mapping[Var, Span]) -> Span | None:
    if isinstance(atom, Var):
        return spans[atom]
    if not isinstance(atom, (FloorDiv, Mod)) or not isinstance(atom.divisor, int):
        return None
    c, n = atom.divisor, progression(atom.numerator, spans)
    if n is None or n.size == 0:
        return n
    low, high = n.lower // c, n.upper // c
    if isinstance(atom, FloorDiv):
        if low == high or n.step <= c:
            return Span.of(low, high)
        return Span.of(low, high, n.step // c) if n.step % c == 0 else None
    if low == high:
        return Span(n.lower - low * c, n.upper - low * c, n.step)
    g = gcd(n.step, c)
    # The residues of a progression form one with step g once it has gone round.
    return Span.of(n.lower % g, c - g + n.lower % g, g) if n.size >= c // g else None


def connected(expressions: Sequence[Expr], among: Collection[Var] | None = None) -> list[list[int]]:
    """The expressions' numbers in groups: two expressions with a common variable (of `among`, where given) are in one group.

    >>> a, b, c = Var("a"), Var("b"), Var("c")
    >>> connected([a, c, b, a + b]), connected([a, b, a + b], among={b})
    ([[1], [0, 2, 3]], [[0], [1, 2]])
    """
    groups: list[tuple[set[Var], list[int]]] = []
    for k, e in enumerate(expressions):
        mine, members = {v for v in e.variables if among is None or v in among}, [k]
        apart = []
        for variables, others in groups:
            if variables & mine:
                mine, members = mine | variables, others + members
            else:
                apart.append((variables, others))
        groups = [*apart, (mine, members)]
    return [sorted(members) for _, members in groups]


def digits(first: int, last: int, sizes: Sequence[int]) -> list[Box]:
    """The row-major indices of positions first … last in a box of `sizes`, as at most 2 * rank - 1 disjoint boxes.

    >>> [[str(s) for s in box] for box in digits(3, 9, (3, 4))]
    [['0', '3'], ['1', '[0, 3]'], ['2', '[0, 1]']]
    """
    if not sizes:
        return [()]
    inner = prod(sizes[1:])
    low, a = divmod(first, inner)
    high, b = divmod(last, inner)
    full = [Span.of(0, n - 1) for n in sizes[1:]]
    if low == high:
        return [(Span(low, low), *rest) for rest in digits(a, b, sizes[1:])]
    out: list[Box] = []
    if a:
        out += [(Span(low, low), *rest) for rest in digits(a, inner - 1, sizes[1:])]
        low += 1
    tail: list[Box] = []
    if b < inner - 1:
        tail = [(Span(high, high), *rest) for rest in digits(0, b, sizes[1:])]
        high -= 1
    if low <= high:
        out.append((Span.of(low, high), *full))
    return out + tail
