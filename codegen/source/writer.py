"""Lines of source under construction, and index expressions in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

from indexing.expr import Const, Expr, FloorDiv, Maximum, Minimum, Mod, Product, Var, as_expr

__all__ = ["NotCompilable", "Writer", "index_source"]


class NotCompilable(Exception):
    """Carries a `Declined` out of the emitter."""


@dataclass
class Writer:
    """Collects lines, each indented by `depth` blocks."""

    lines: list[str] = field(default_factory=list)
    depth: int = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def extend(self, lines: list[str]) -> None:
        self.lines.extend("    " * self.depth + x for x in lines)


def index_source(e: Expr, names: dict[Var, str]) -> str:
    """An index expression as Python source over int64 variables.

    >>> x, y = Var("x"), Var("y")
    >>> index_source(4096 * x + y - 1, {x: "i", y: "j"})
    '4096*i + j - 1'
    >>> from indexing.expr import minimum
    >>> index_source(minimum(x, y, 7), {x: "i", y: "j"})
    'min(min(i, j), 7)'
    """
    if isinstance(e, Var):
        return names[e]
    if isinstance(e, Const):
        return str(e.value)
    if isinstance(e, (FloorDiv, Mod)):
        return f"{_atom(e.numerator, names)} {'//' if isinstance(e, FloorDiv) else '%'} {_atom(as_expr(e.divisor), names)}"
    if isinstance(e, Product):
        return "*".join(_atom(f, names) for f in e.factors)
    if isinstance(e, (Minimum, Maximum)):
        word = "min" if isinstance(e, Minimum) else "max"
        # The library's min and max take two indices.
        return reduce(lambda a, b: f"{word}({a}, {b})", [index_source(a, names) for a in e.arguments])
    # Large strides first: the order in which a person writes an address.
    terms = [(k, _atom(atom, names)) for atom, k in sorted(e.terms, key=lambda t: -abs(t[1]))]
    parts = [(k, text if abs(k) == 1 else f"{abs(k)}*{text}") for k, text in terms]
    if e.constant:
        parts.append((e.constant, str(abs(e.constant))))
    joined = "".join([f" {'-' if k < 0 else '+'} {text}" for k, text in parts])
    return joined[3:] if joined.startswith(" + ") else "-" + joined[3:]


def _atom(e: Expr, names: dict[Var, str]) -> str:
    text = index_source(e, names)
    return text if isinstance(e, (Var, Minimum, Maximum)) or (isinstance(e, Const) and e.value >= 0) else f"({text})"
