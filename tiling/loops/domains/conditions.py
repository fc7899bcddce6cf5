"""Conditions on indices: where along a loop one holds, what it says for all of a loop, and choices whose conditions are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd

import numpy as np

from hlo.access import Condition
from hlo.types import ELEMENT_TYPES
from indexing.expr import EVERYTHING, Const, Expr, Interval, Mod, Var, interval, simplify, substitute
from tiling.loops.affine import linear
from tiling.loops.element_ir import Choose, Node, Scalar, Test
from tiling.loops.ir import Loop

__all__ = ["Ends", "bounds_by", "for_all", "is_hole", "range_of", "reduced", "settled", "translated", "within"]

Ends = tuple[Expr | None, Expr | None]
"""The first and the last value of a variable where a condition holds; None for no such end."""


def range_of(c: Condition, variable: Var) -> Ends | None:
    """Where a condition holds along a variable that it counts in steps of any length; None where that is not a range.

    >>> i, t = Var("i"), Var("t")
    >>> [str(e) for e in range_of(Condition(t - 2 * i, 0, 5), i)]
    ['t floordiv 2 - 2', 't floordiv 2']
    """
    parts = linear(c.expression, (variable,))
    return None if parts is None or parts[1][0] == 0 else _ends(c, parts[0], parts[1][0])


def bounds_by(c: Condition, variable: Var) -> Ends | None:
    """`range_of` a condition that counts a variable one by one: its ends are linear where the condition is."""
    parts = linear(c.expression, (variable,))
    return None if parts is None or parts[1][0] not in (1, -1) else _ends(c, parts[0], parts[1][0])


def _ends(c: Condition, rest: Expr, step: int) -> Ends:
    """Where c.lower <= step v + rest <= c.upper."""
    low = None if c.lower <= EVERYTHING.lower else c.lower - rest
    high = None if c.upper >= EVERYTHING.upper else c.upper - rest
    if step < 0:
        low, high = None if high is None else -high, None if low is None else -low
    n = abs(step)
    if n == 1:
        return low, high
    return None if low is None else (low + (n - 1)) // n, None if high is None else high // n


def for_all(c: Condition, loops: Sequence[Loop]) -> Condition | None:
    """The condition that one holds for all iterations, over loops from 0 on; None where it is not linear in these.

    >>> r = Loop(Var("r"), Const(0), Const(2), 3)
    >>> c = for_all(Condition(2 * Var("i") + Var("r"), 0, 9), [r])
    >>> print(c.expression, c.lower, c.upper)
    i 0 3
    """
    parts = linear(c.expression, [x.variable for x in loops])
    if parts is None:
        return None
    rest, steps = parts
    spans = [k * (x.extent - 1) for x, k in zip(loops, steps, strict=True)]
    lower = EVERYTHING.lower if c.lower <= EVERYTHING.lower else c.lower - sum(min(0, s) for s in spans)
    upper = EVERYTHING.upper if c.upper >= EVERYTHING.upper else c.upper - sum(max(0, s) for s in spans)
    return reduced(Condition(rest, lower, upper))


def reduced(c: Condition) -> Condition:
    """2 i + 3 <= 8 as i <= 2: without what all coefficients have in common."""
    common, constant = gcd(*(k for _, k in c.expression.terms)), c.expression.constant
    if common < 2:
        return c
    e: Expr = Const(0)
    for atom, k in c.expression.terms:
        e = e + atom * (k // common)
    lower = c.lower if c.lower <= EVERYTHING.lower else -((constant - c.lower) // common)
    upper = c.upper if c.upper >= EVERYTHING.upper else (c.upper - constant) // common
    return Condition(e, lower, upper)


def within(c: Condition, ranges: Mapping[Var, Interval]) -> Condition | bool:
    """What is left of a condition in these ranges: whether it holds, or the sides of it that may not.

    >>> i = Var("i")
    >>> [within(Condition(i, 0, n), {i: Interval(0, 9)}) == x for n, x in ((9, True), (5, Condition(i, EVERYTHING.lower, 5)))]
    [True, True]
    """
    found = interval(simplify(c.expression, ranges), ranges)
    if found.upper < c.lower or c.upper < found.lower:
        return False
    if c.lower == c.upper and found.size > 1:
        return c  # both sides of it are one
    lower = EVERYTHING.lower if c.lower <= found.lower else c.lower
    upper = EVERYTHING.upper if found.upper <= c.upper else c.upper
    return (lower, upper) == (EVERYTHING.lower, EVERYTHING.upper) or reduced(Condition(c.expression, lower, upper))


def settled(n: Node, decide: Callable[[Condition], Condition | bool]) -> Node:
    """A choice or test (not what is below it) with what is known of its conditions: the alternative, or the truth, where that is
    enough. A choice by values known at run time stays as it is."""
    if not isinstance(n, (Choose, Test)) or (isinstance(n, Choose) and n.runtimes):
        return n
    known = [decide(c) for c in n.conditions]
    if False in known:
        return n.otherwise if isinstance(n, Choose) else _truth(False)
    left = tuple([c for c in known if not isinstance(c, bool)])
    if left == n.conditions:
        return n
    if isinstance(n, Test):
        return Test(left) if left else _truth(True)
    return Choose(left, n.then, n.otherwise) if left else n.then


def _truth(holds: bool) -> Scalar:
    return Scalar(np.bool_(holds), ELEMENT_TYPES["i1"])


def is_hole(c: Condition) -> bool:
    """True for a condition that holds at every D-th place: e mod D = 0."""
    return isinstance(c.expression, Mod) and isinstance(c.expression.divisor, int) and c.lower == c.upper == 0


def translated(
    c: Condition, at: Mapping[Var, Expr], ranges: Mapping[Var, Interval], parts: dict[Expr, Expr] | None = None
) -> Condition:
    """A condition with variables replaced; `parts` may be shared by conditions in which the same ones are."""
    return Condition(simplify(substitute(c.expression, at, parts), ranges), c.lower, c.upper)
