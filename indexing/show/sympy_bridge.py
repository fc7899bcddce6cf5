"""To sympy and back: for a person's algebra in a notebook, and for symbolic tile sizes. sympy is loaded by this module only."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import sympy
from sympy.core.function import Function
from sympy.functions.elementary.integers import floor
from sympy.functions.elementary.miscellaneous import Max, Min

from indexing.expr import fold
from indexing.expressions.extrema import maximum, minimum
from indexing.expressions.terms import Const, Expr, FloorDiv, Mod, Var

__all__ = ["FloorQuotient", "Remainder", "from_sympy", "to_sympy"]


class FloorQuotient(Function):  # type: ignore[misc]  # sympy has no types
    """floor(n / c) as one function: sympy's own `floor` would take the fraction apart and lose the integers."""

    nargs = 2
    is_integer = True

    @classmethod
    def eval(cls, n: Any, c: Any) -> Any:
        if n.is_Integer and c.is_Integer:
            return n // c
        return n if c == 1 else None

    def _latex(self, printer: Any) -> str:
        n, c = (printer.doprint(a) for a in self.args)
        return rf"\left\lfloor \frac{{{n}}}{{{c}}} \right\rfloor"

    def _sympystr(self, printer: Any) -> str:
        n, c = (printer.parenthesize(a, 1000, strict=True) for a in self.args)
        return f"{n} floordiv {c}"


class Remainder(Function):  # type: ignore[misc]
    """n - c * floor(n / c) as one function, which sympy leaves alone."""

    nargs = 2
    is_integer = True

    @classmethod
    def eval(cls, n: Any, c: Any) -> Any:
        if n.is_Integer and c.is_Integer:
            return n % c
        return sympy.S.Zero if c == 1 else None

    def _latex(self, printer: Any) -> str:
        n, c = (printer.doprint(a) for a in self.args)
        return rf"\left({n}\right) \bmod {c}"

    def _sympystr(self, printer: Any) -> str:
        n, c = (printer.parenthesize(a, 1000, strict=True) for a in self.args)
        return f"{n} mod {c}"


def to_sympy(e: Expr) -> Any:
    """The sympy expression, with integer symbols of the variables' names.

    >>> e = to_sympy(Var("d0") * 4 + Var("d1") // 8)
    >>> e, e.subs(sympy.Symbol("d1", integer=True), 17)
    (4*d0 + d1 floordiv 8, 4*d0 + 2)
    """

    def atom(a: Expr) -> Any:
        if isinstance(a, Var):
            return sympy.Symbol(a.name, integer=True)
        if isinstance(a, (FloorDiv, Mod)):
            c = to_sympy(a.divisor) if isinstance(a.divisor, Expr) else sympy.Integer(a.divisor)
            return (FloorQuotient if isinstance(a, FloorDiv) else Remainder)(to_sympy(a.numerator), c)
        return fold(a, lambda v: sympy.Symbol(v.name, integer=True), sympy.Integer, Min, Max)

    total = sympy.Integer(e.constant)
    for a, k in e.terms:
        total = total + k * atom(a)
    return total


def from_sympy(e: Any) -> Expr:
    """The expression of a sympy one built of integers, symbols, sums, products, Min, Max, floor, Mod and the functions above.

    Raises ValueError, naming the part, for anything else.

    >>> x = sympy.Symbol("d0", integer=True)
    >>> str(from_sympy(sympy.floor(x / 4) + sympy.Mod(x, 3) * 2))
    'd0 floordiv 4 + (d0 mod 3) * 2'
    """
    e = sympy.sympify(e)
    if isinstance(e, sympy.Integer):
        return Const(int(e))
    if isinstance(e, sympy.Symbol):
        return Var(e.name)
    if isinstance(e, floor):
        n, c = sympy.together(e.args[0]).as_numer_denom()
        return from_sympy(sympy.expand(n)) // from_sympy(c)
    for kind, make in _FUNCTIONS.items():
        if isinstance(e, kind):
            return reduce(make, [from_sympy(a) for a in e.args])
    if isinstance(e, sympy.Pow) and isinstance(e.exp, sympy.Integer) and e.exp > 0:
        return reduce(lambda a, b: a * b, [from_sympy(e.base)] * int(e.exp))
    raise ValueError(f"no index expression: {e} ({type(e).__name__})")


_FUNCTIONS: dict[Any, Callable[[Expr, Expr], Expr]] = {
    sympy.Add: lambda a, b: a + b,
    sympy.Mul: lambda a, b: a * b,
    Min: minimum,
    Max: maximum,
    FloorQuotient: lambda a, b: a // b,
    Remainder: lambda a, b: a % b,
    sympy.Mod: lambda a, b: a % b,
}
