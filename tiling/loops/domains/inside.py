"""Bounds of an index by its interval and the conditions that hold: True is a proof, False says nothing.

    e <= e + k (c - low)                          wherever low <= c holds, for k >= 0: that interval may be the smaller one
    R + k (n // c) <= u   <=   c R + k n <= c u + c - 1                   for k > 0: c (n // c) <= n
    0 <= R + n // c       <=>  0 <= c R + n,      0 <= R + min(a, b)   <=>  0 <= R + a and 0 <= R + b
    c n + k1 (n // d1) + k2 (n // d2) + ...       the digits of n >= 0 by d1 | d2 | ..., each with a coefficient of its own
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from hlo.access import Condition
from indexing.expr import EVERYTHING, Bounds, Const, Expr, FloorDiv, Interval, Maximum, Minimum, as_expr

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
    digits = None if lower <= span.lower and span.upper <= upper else _by_digits(bounds, held, e)
    if digits is not None and lower <= digits.lower and digits.upper <= upper:
        return True
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


def _by_digits(bounds: Bounds, held: Sequence[Condition], e: Expr) -> Interval | None:
    """An interval that `e` is in, where it is made of the digits of one number: windows of an image, cut and put together.

    >>> from indexing.expr import Var
    >>> n = Var("n")
    >>> turned = n + n // 7 * 49 - n // 49 * 385 + n // 392 * 336
    >>> b = Bounds({n: Interval(0, 3135)})
    >>> b(turned), _by_digits(b, (), turned)
    (Interval(lower=-24255, upper=27390), Interval(lower=0, upper=3135))
    """
    floors = [(x, k) for x, k in e.terms if isinstance(x, FloorDiv)]
    divisors = [x.divisor for x, _ in floors if isinstance(x.divisor, int) and x.divisor > 1]
    if not 2 <= len(floors) == len(divisors) or any(x.numerator is not floors[0][0].numerator for x, _ in floors):
        return None
    n, rest = floors[0][0].numerator, e
    factors = dict(sorted(zip(divisors, (k for _, k in floors), strict=True)))
    steps = [1, *factors]
    if len(steps) <= len(floors) or any(b % a for a, b in pairwise(steps)) or not n.terms:
        return None
    for x, k in floors:
        rest = rest - x * k
    atom, k = n.terms[0]
    whole, left = divmod(dict(rest.terms).get(atom, 0), k)
    rest = rest - n * whole
    if left or {x for x, _ in n.terms} & {x for x, _ in rest.terms}:
        return None
    span, around = _held(bounds, held, n), bounds(rest)
    if span.lower < 0:
        return None
    lower, upper = around.lower, around.upper
    for i, step in enumerate(steps):
        most = span.upper // step
        if i + 1 < len(steps):
            most = min(most, steps[i + 1] // step - 1)
        factor = whole * step + sum(k * (step // d) for d, k in factors.items() if d <= step)
        lower, upper = lower + min(0, factor * most), upper + max(0, factor * most)
    return Interval(lower, upper)


def _held(bounds: Bounds, held: Sequence[Condition], e: Expr) -> Interval:
    """The interval of an expression, with the conditions on it alone."""
    span = bounds(e)
    for c in held:
        inner = as_expr(c.expression)
        for sign in (1, -1):
            rest = inner - e * sign
            if isinstance(rest, Const):
                ends = sorted((sign * (c.lower - rest.constant), sign * (c.upper - rest.constant)))
                span = Interval(max(span.lower, ends[0]), min(span.upper, ends[1]))
    return span


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
