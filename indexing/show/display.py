"""Maps and expressions for notebooks: LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from hlo.display import as_html, as_latex
from indexing.expressions.terms import Expr, FloorDiv, Maximum, Minimum, Mod, Product, Var
from indexing.map import IndexingMap

__all__ = ["expr_to_latex", "html_table", "map_to_html", "map_to_latex"]


def expr_to_latex(e: Expr) -> str:
    r"""LaTeX of an expression.

    >>> print(expr_to_latex(4 * Var("d0") - (Var("d1") + 1) // 8))
    4 d_{0} - \left\lfloor \frac{d_{1} + 1}{8} \right\rfloor
    """
    if not e.terms:
        return str(e.constant)
    text = ""
    for atom, k in e.terms:
        sign = "-" if k < 0 else "+"
        text += f" {sign} " if text else ("-" if k < 0 else "")
        text += ("" if abs(k) == 1 else f"{abs(k)} ") + _atom(atom, alone=len(e.terms) == 1 and not e.constant and k == 1)
    if e.constant:
        text += f" {'-' if e.constant < 0 else '+'} {abs(e.constant)}"
    return text


def _atom(e: Expr, alone: bool) -> str:
    if isinstance(e, Var):
        prefix = e.name.rstrip("0123456789")
        number = e.name[len(prefix) :]
        name = prefix if len(prefix) == 1 else rf"\mathit{{{prefix}}}"
        name = name.replace("_", r"\_")
        return f"{name}_{{{number}}}" if number else name
    if isinstance(e, FloorDiv):
        divisor = expr_to_latex(e.divisor) if isinstance(e.divisor, Expr) else str(e.divisor)
        return rf"\left\lfloor \frac{{{expr_to_latex(e.numerator)}}}{{{divisor}}} \right\rfloor"
    if isinstance(e, Mod):
        divisor = expr_to_latex(e.divisor) if isinstance(e.divisor, Expr) else str(e.divisor)
        n = expr_to_latex(e.numerator)
        body = rf"{n} \bmod {divisor}" if isinstance(e.numerator, Var) else rf"\left({n}\right) \bmod {divisor}"
        return body if alone else rf"\left({body}\right)"
    if isinstance(e, Product):
        return r" \cdot ".join(_atom(f, False) if len(f.terms) == 1 else rf"\left({expr_to_latex(f)}\right)" for f in e.factors)
    if isinstance(e, (Minimum, Maximum)):
        name = "min" if isinstance(e, Minimum) else "max"
        return rf"\{name}\left({', '.join(map(expr_to_latex, e.arguments))}\right)"
    raise TypeError(f"no atom: {type(e).__name__}")


def map_to_latex(m: IndexingMap) -> str:
    r"""LaTeX of a map: the function, then one line for each variable and constraint."""
    if m.unknown is not None:
        return r"\text{unknown}"
    if m.is_known_empty:
        return r"\emptyset"
    names = ", ".join(_atom(v.var, True) for v in m.dims)
    symbols = ", ".join(_atom(v, True) for v in m.symbols)
    head = f"({names})" + (f"[{symbols}]" if symbols else "")
    lines = [rf"{head} &\mapsto ({', '.join(map(expr_to_latex, m.results))})"]
    for v, b in m.variable_ranges.items():
        lines.append(rf"{_atom(v, True)} &\in [{b.lower}, {b.upper}]")
    for e, b in m.constraints:
        lines.append(rf"{expr_to_latex(e)} &\in [{b.lower}, {b.upper}]")
    return r"\begin{aligned}" + r" \\ ".join(lines) + r"\end{aligned}"


_ONE_LINE = 26  # characters of a cell that is not broken


def html_table(rows: Iterable[Sequence[str]], head: Sequence[str] = (), title: str = "") -> str:
    """A table of texts under a title, all of them escaped.

    Styles stand with the cells, because the style sheets of notebooks put text at the right edge and break short cells.

    >>> html_table([["a < b"]])
    '<table><tr><td style="text-align:left;vertical-align:top;white-space:nowrap">a &lt; b</td></tr></table>'
    """

    def cell(text: str, kind: str) -> str:
        whole = ";white-space:nowrap" if len(text) <= _ONE_LINE else ""
        return f'<{kind} style="text-align:left;vertical-align:top{whole}">{escape(text)}</{kind}>'

    lines = [*([(head, "th")] if head else []), *((r, "td") for r in rows)]
    body = "".join(f"<tr>{''.join(cell(c, kind) for c in cells)}</tr>" for cells, kind in lines)
    return (f"<div><code>{escape(title)}</code></div>" if title else "") + f"<table>{body}</table>"


def map_to_html(m: IndexingMap) -> str:
    """An HTML table of a map: the function above it, a row for each variable and constraint."""
    if m.unknown is not None:
        return f"<em>unknown: {escape(m.unknown.reason)}</em>"
    if m.is_known_empty:
        return "<em>KNOWN EMPTY</em>"
    kinds = [("dimension", m.dims), ("range", m.ranges)]
    rows = [(kind, str(v), f"in {b}") for kind, group in kinds for v, b in group]
    rows += [
        ("runtime " + (v.label or (repr(v.producer) if v.producer else "")), str(v.var), f"in {v.interval}") for v in m.runtimes
    ]
    rows += [("constraint", str(e), f"in {b}") for e, b in m.constraints]
    return html_table(rows, title=str(m).partition(", domain:")[0])


as_latex.register(Expr, expr_to_latex)
as_latex.register(IndexingMap, map_to_latex)
as_html.register(IndexingMap, map_to_html)
