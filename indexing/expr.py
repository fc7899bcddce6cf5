"""Index expressions: what tiling and code generation need of them, in one place.

build       Var, Const, + - * // %, minimum, maximum
look at     e.constant, e.terms, e.variables, coefficients(e); the classes of the atoms
use         substitute, evaluate, interval, simplify
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from indexing.expressions.bounds import EVERYTHING, Bounds, Interval, interval, within
from indexing.expressions.extrema import maximum, minimum
from indexing.expressions.simplifier import Simplifier, simplify
from indexing.expressions.terms import (
    Const,
    Expr,
    ExprLike,
    FloorDiv,
    Maximum,
    Minimum,
    Mod,
    Product,
    Sum,
    Var,
    as_expr,
    floordiv,
    from_terms,
    mod,
)

__all__ = [
    "EVERYTHING",
    "Bounds",
    "Const",
    "Expr",
    "ExprLike",
    "FloorDiv",
    "Interval",
    "Maximum",
    "Minimum",
    "Mod",
    "Product",
    "Simplifier",
    "Sum",
    "Var",
    "as_expr",
    "coefficients",
    "evaluate",
    "floordiv",
    "fold",
    "from_terms",
    "interval",
    "maximum",
    "minimum",
    "mod",
    "simplify",
    "substitute",
    "variables",
    "within",
]


def variables(e: Expr) -> tuple[Var, ...]:
    """The variables that occur in `e`, each once: d0, d1, … before s0, …, before rt0, …, before all others."""
    return e.variables


def coefficients(e: Expr) -> tuple[int, dict[Expr, int]]:
    """(constant, {atom: coefficient}): e = constant + sum of coefficient * atom.

    >>> constant, terms = coefficients(Var("d0") * 4 + Var("d1") // 2 - 3)
    >>> constant, [(str(a), k) for a, k in terms.items()]
    (-3, [('d0', 4), ('d1 floordiv 2', 1)])
    """
    return e.constant, dict(e.terms)


def _apply(e: Expr, args: list[Any], smallest: Callable[[Any, Any], Any], greatest: Callable[[Any, Any], Any]) -> Any:
    if isinstance(e, FloorDiv):
        return args[0] // (args[1] if len(args) > 1 else e.divisor)
    if isinstance(e, Mod):
        return args[0] % (args[1] if len(args) > 1 else e.divisor)
    if isinstance(e, Product):
        return reduce(lambda a, b: a * b, args)
    if isinstance(e, (Minimum, Maximum)):
        return reduce(smallest if isinstance(e, Minimum) else greatest, args)
    raise TypeError(f"no atom: {type(e).__name__}")


def parts(e: Expr) -> tuple[Expr, ...]:
    """What an atom is made of: numerator and divisor, factors or arguments; nothing of a variable.

    >>> d0 = Var("d0")
    >>> [str(p) for p in parts((d0 + 1) // 4)]
    ['d0 + 1']
    """
    if isinstance(e, (FloorDiv, Mod)):
        return (e.numerator, e.divisor) if isinstance(e.divisor, Expr) else (e.numerator,)
    if isinstance(e, Product):
        return e.factors
    if isinstance(e, (Minimum, Maximum)):
        return e.arguments
    return ()


def fold(
    e: Expr,
    leaf: Callable[[Var], Any],
    constant: Callable[[int], Any] = int,
    smallest: Callable[[Any, Any], Any] = min,
    greatest: Callable[[Any, Any], Any] = max,
    known: dict[Expr, Any] | None = None,
) -> Any:
    """`e` computed with the caller's numbers: leaf(v) for a variable, constant(i) for an integer, `+ - * // %` between them.

    `known` remembers results by atom, so that a shared part is computed once.
    """
    memo: dict[Expr, Any] = {} if known is None else known

    def value(x: Expr) -> Any:
        total: Any = None
        for atom, k in x.terms:
            v = memo.get(atom)
            if v is None:
                if isinstance(atom, Var):
                    v = leaf(atom)
                else:
                    v = _apply(atom, [value(p) for p in parts(atom)], smallest, greatest)
                memo[atom] = v
            part = v if k == 1 else v * k
            total = part if total is None else total + part
        if total is None:
            return constant(x.constant)
        return total + x.constant if x.constant else total

    return value(e)


def substitute(e: Expr, replacements: Mapping[Var, ExprLike], known: dict[Expr, Any] | None = None) -> Expr:
    """`e` with each variable in `replacements` replaced, all at once.

    `known` may be shared between calls with the same replacements.

    >>> d0, d1 = Var("d0"), Var("d1")
    >>> str(substitute((d0 + d1) // 4, {d0: d1, d1: 4 * d0}))
    'd0 + d1 floordiv 4'
    """
    if all(v not in replacements for v in e.variables):
        return e
    if all(type(atom) is Var for atom, _ in e.terms):  # a sum of variables: their sums, without those in between
        constant, total = e.constant, dict[Expr, int]()
        for atom, k in e.terms:
            new = as_expr(replacements.get(atom, atom))  # type: ignore[call-overload]
            constant += k * new.constant
            for part, times in new.terms:
                total[part] = total.get(part, 0) + k * times
        return from_terms(constant, total)
    result: Expr = fold(e, lambda v: as_expr(replacements.get(v, v)), Const, minimum, maximum, known)
    return result


def evaluate(e: Expr, values: Mapping[Var, Any]) -> Any:
    """The value of `e` for ints or, elementwise, for integer arrays that broadcast together.

    Raises KeyError for a variable without a value.

    >>> d0 = Var("d0")
    >>> evaluate(d0 // 2 + 1, {d0: 5})
    3
    >>> evaluate(d0 % 3, {d0: np.arange(5)})
    array([0, 1, 2, 0, 1])
    """
    return fold(e, values.__getitem__, int, np.minimum, np.maximum)
