"""Expressions as text in XLA's (and MLIR's) notation."""

from __future__ import annotations

from hlo.display import as_text
from indexing.expressions.terms import Const, Expr, FloorDiv, Maximum, Minimum, Mod, Product, Var

__all__ = ["format_expr"]


def format_expr(e: Expr) -> str:
    """The text of an expression: `d0 * 8 + d1 floordiv 4`, `-d1 + 16`, `(d1 mod 2) * 4`.

    `*`, `floordiv` and `mod` bind alike and stronger than `+`; their operands stand in parentheses unless they are a
    variable or a number, so that nobody has to know which way they associate.

    >>> d0, d1 = Var("d0"), Var("d1")
    >>> format_expr(16 - d1), format_expr(d0 - 2 * (d1 % 2)), format_expr(-2 * d0 - 1)
    ('-d1 + 16', 'd0 - (d1 mod 2) * 2', 'd0 * -2 - 1')
    """
    if not e.terms:
        return str(e.constant)
    pieces: list[str] = []
    for atom, k in e.terms:
        if not pieces:
            pieces.append(_term(atom, k) if k != -1 else "-" + _operand(atom))
        elif k < 0:
            pieces.append(" - " + _term(atom, -k))
        else:
            pieces.append(" + " + _term(atom, k))
    if e.constant:
        pieces.append(f" + {e.constant}" if e.constant > 0 else f" - {-e.constant}")
    return "".join(pieces)


def _term(atom: Expr, k: int) -> str:
    return _atom(atom) if k == 1 else f"{_operand(atom)} * {k}"


def _operand(e: Expr | int) -> str:
    if isinstance(e, int):
        return str(e)
    if isinstance(e, Const):
        return str(e.value) if e.value >= 0 else f"({e.value})"
    if isinstance(e, (Var, Minimum, Maximum)):
        return _atom(e)
    return f"({format_expr(e)})"


def _atom(e: Expr) -> str:
    if isinstance(e, Var):
        return e.name
    if isinstance(e, FloorDiv):
        n, c = e.numerator, e.divisor
        if isinstance(c, int) and not n.constant and len(n.terms) == 1 and n.terms[0][1] == -1:
            return f"{_operand(n.terms[0][0])} floordiv -{c}"  # as it was written, most likely
        return f"{_operand(n)} floordiv {_operand(c)}"
    if isinstance(e, Mod):
        return f"{_operand(e.numerator)} mod {_operand(e.divisor)}"
    if isinstance(e, Product):
        return " * ".join(_operand(f) for f in e.factors)
    if isinstance(e, (Minimum, Maximum)):
        name = "min" if isinstance(e, Minimum) else "max"
        return f"{name}({', '.join(format_expr(a) for a in e.arguments)})"
    raise TypeError(f"no atom: {type(e).__name__}")


as_text.register(Expr, format_expr)
