"""Bounds of an index by its interval and the conditions that hold: True is a proof, False says nothing.

    e <= e + k (c - low)                          wherever low <= c holds, for k >= 0: that interval may be the smaller one
    R + k (n // c) <= u   <=   c R + k n <= c u + c - 1                   for k > 0: c (n // c) <= n
    0 <= R + n // c       <=>  0 <= c R + n,      0 <= R + min(a, b)   <=>  0 <= R + a and 0 <= R + b
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.access import Condition
from indexing.expr import EVERYTHING, Bounds, Expr, FloorDiv, Maximum, Minimum, as_expr

__all__ = ["is_at_most", "linear_parts", "stays_inside"]

DEPTH = 2  # divisions, minima and maxima of one expression that are looked into, one inside of the other
MOST_PARTS = 8


def stays_inside(bounds: Bounds, held: Sequence[Condition], e: Expr, lower: int, upper: int) -> bool:
    """Whether `e` is in [lower, upper] wherever the conditions hold, each condition taken by itself.

    >>> from indexing.expr import Interval, Var
    >>> i, t = Var("i"), Var("t")
    >>> cut = Condition(20 - 3 * i - 6 * t, 0, 20)
    >>> stays_inside(Bounds({i: Interval(0, 1), t: Interval(0, 3)}), [cut], 3 * i + 6 * t + 1, 0, 21)
    True
    """
    span = bounds(e)
    if span.upper > upper and not _is_at_most(bounds, held, e, upper, DEPTH):
        return False
    return span.lower >= lower or _is_at_most(bounds, held, -e, -lower, DEPTH)


def is_at_most(bounds: Bounds, e: Expr, upper: int) -> bool:
    """Whether `e` is at most `upper` wherever the variables are in their ranges.

    >>> from indexing.expr import Interval, Var
    >>> n = Var("n")
    >>> is_at_most(Bounds({n: Interval(0, 9)}), n // 4 * 4 - n, 0)
    True
    """
    return _is_at_most(bounds, (), e, upper, DEPTH)


def _is_at_most(bounds: Bounds, held: Sequence[Condition], e: Expr, upper: int, depth: int) -> bool:
    """Whether e <= upper."""
    if bounds(e).upper <= upper:
        return True
    for c in held:
        inner = as_expr(c.expression)
        for k in _factors(e, inner):
            end = c.upper if k > 0 else c.lower  # of e = rest + k c
            if EVERYTHING.lower < end < EVERYTHING.upper and bounds(e - inner * k).upper + k * end <= upper:
                return True
    if depth == 0:
        return False
    for atom, k in e.terms:
        rest = e - atom * k
        if isinstance(atom, FloorDiv) and isinstance(atom.divisor, int):
            n = atom.divisor
            room = n * upper + n - 1 - (0 if k > 0 else -k * (n - 1))
            if _is_at_most(bounds, held, rest * n + atom.numerator * k, room, depth - 1):
                return True
        elif isinstance(atom, (Minimum, Maximum)):
            least = isinstance(atom, Minimum) is (k > 0)  # of the arguments, one that is small enough will do
            found = (_is_at_most(bounds, held, rest + a * k, upper, depth - 1) for a in atom.arguments)
            if any(found) if least else all(found):
                return True
    return False


def _factors(e: Expr, c: Expr) -> Iterator[int]:
    """The k for which e - k c has an atom less than e."""
    steps = dict(c.terms)
    found = {k // steps[atom] for atom, k in e.terms if atom in steps and k % steps[atom] == 0}
    return iter(sorted(found))


def linear_parts(e: Expr) -> list[Expr]:
    """Expressions that are all at least 0 exactly where `e` is: without divisions and minima where these can be taken apart.

    >>> from indexing.expr import Var, minimum
    >>> i, t = Var("i"), Var("t")
    >>> sorted(str(x) for x in linear_parts((minimum(5, 21 - 6 * t) - 1) // 3 - i))
    ['i * -3 + 4', 'i * -3 - t * 6 + 20']
    """
    parts, todo = [], [e]
    while todo:
        x = todo.pop()
        made = _taken_apart(x)
        if made is None:
            parts.append(x)
        elif len(parts) + len(todo) + len(made) > MOST_PARTS:
            return [e]
        else:
            todo.extend(made)
    return parts


def _taken_apart(e: Expr) -> Sequence[Expr] | None:
    """0 <= e without one of its divisions or minima; None where it has none."""
    for atom, k in e.terms:
        if isinstance(atom, FloorDiv) and isinstance(atom.divisor, int) and k in (1, -1):
            c, rest = atom.divisor, e - atom * k
            return [rest * c + atom.numerator] if k == 1 else [rest * c + (c - 1) - atom.numerator]
        if isinstance(atom, (Minimum, Maximum)) and isinstance(atom, Minimum) is (k > 0):
            rest = e - atom * k
            return [rest + a * k for a in atom.arguments]
    return None
