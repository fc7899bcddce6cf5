"""Conditions of reads: in other variables, and which of them leave holes."""

from __future__ import annotations

from collections.abc import Mapping

from hlo.access import Condition
from indexing.expr import Expr, Interval, Mod, Var, simplify, substitute

__all__ = ["is_hole", "translated"]


def is_hole(c: Condition) -> bool:
    """True for a condition that holds at every D-th place: e mod D = 0."""
    return isinstance(c.expression, Mod) and isinstance(c.expression.divisor, int) and c.lower == c.upper == 0


def translated(
    c: Condition, at: Mapping[Var, Expr], ranges: Mapping[Var, Interval], parts: dict[Expr, Expr] | None = None
) -> Condition:
    """A condition with variables replaced; `parts` may be shared by conditions in which the same ones are."""
    return Condition(simplify(substitute(c.expression, at, parts), ranges), c.lower, c.upper)
