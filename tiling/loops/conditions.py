"""Conditions of reads: in other variables, and which of them leave holes."""

from __future__ import annotations

from collections.abc import Mapping

from hlo.access import Condition
from indexing.expr import EVERYTHING, Expr, Interval, Mod, Var, simplify, substitute
from tiling.loops.affine import linear

__all__ = ["bounds_by", "is_hole", "translated"]


def bounds_by(c: Condition, variable: Var) -> tuple[Expr | None, Expr | None] | None:
    """The first and the last value of a variable where a condition holds (None: no such end); None where that is not a range."""
    parts = linear(c.expression, (variable,))
    if parts is None or parts[1][0] not in (1, -1):
        return None
    rest, (sign,) = parts
    low = None if c.lower <= EVERYTHING.lower else c.lower
    high = None if c.upper >= EVERYTHING.upper else c.upper
    if sign > 0:
        return (None if low is None else low - rest), (None if high is None else high - rest)
    return (None if high is None else rest - high), (None if low is None else rest - low)


def is_hole(c: Condition) -> bool:
    """True for a condition that holds at every D-th place: e mod D = 0."""
    return isinstance(c.expression, Mod) and isinstance(c.expression.divisor, int) and c.lower == c.upper == 0


def translated(
    c: Condition, at: Mapping[Var, Expr], ranges: Mapping[Var, Interval], parts: dict[Expr, Expr] | None = None
) -> Condition:
    """A condition with variables replaced; `parts` may be shared by conditions in which the same ones are."""
    return Condition(simplify(substitute(c.expression, at, parts), ranges), c.lower, c.upper)
