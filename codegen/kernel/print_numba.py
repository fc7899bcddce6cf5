"""A kernel as numba source: Python that a person can read and step through.

    print_numba(parse(source)) == source        for every source that the emitter writes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from codegen.kernel.ir import (
    Assign,
    Augment,
    Binary,
    Break,
    Call,
    Compare,
    Continue,
    Do,
    Enclosed,
    Expression,
    For,
    If,
    Kernel,
    Load,
    Logical,
    Name,
    Number,
    Parameter,
    Pass,
    Return,
    Statement,
    Store,
    Unary,
    While,
    printed,
)

__all__ = ["expression_source", "print_numba", "statement_lines"]

Renaming = Mapping[str, str]


class _Same(dict[str, str]):
    """Every name as it is."""

    def __missing__(self, name: str) -> str:
        return name


_SAME: Renaming = _Same()


def print_numba(kernel: Kernel) -> str:
    """The source of a kernel, with a comment that names each buffer's scope, element type and shape.

    >>> from codegen.kernel.ir import For, Load, Name, Parameter, Store
    >>> body = (For("t", Name("begin"), Name("end"), None, (Store("y", Name("t"), Load("x", Name("t"))),)),)
    >>> print(print_numba(Kernel("a copy", tuple(Parameter(n, "f32", (8,), "thread") for n in "yx"), body)))
    def kernel(begin, end, y, x):
        \"\"\"a copy
    <BLANKLINE>
        y: thread f32[8]
        x: thread f32[8]
        \"\"\"
        for t in range(begin, end):
            y[t] = x[t]
    <BLANKLINE>
    """
    lines = [f"def {kernel.name}({', '.join([*kernel.bounds, *(p.name for p in kernel.arguments)])}):"]
    if kernel.words is None:
        lines += [f'    """{kernel.title}', "", *(f"    {described(p)}" for p in kernel.parameters), '    """']
    elif kernel.words:
        lines.append(f'    """{kernel.words}"""')
    lines += statement_lines(kernel.body, 1)
    return "\n".join([*lines, ""])


printed.register(Kernel, print_numba)


def described(p: Parameter) -> str:
    """A parameter's line in the comment.

    >>> described(Parameter("x", "f32", (2, 3), "argument")), described(Parameter("x0", "f32", (1,), "local", "m0"))
    ('x: argument f32[2, 3]', 'x0: m0 inside the loop')
    """
    return f"{p.name}: {p.of} inside the loop" if p.of else f"{p.name}: {p.scope} {p.element}[{', '.join(map(str, p.shape))}]"


def statement_lines(statements: Sequence[Statement], depth: int = 0, names: Renaming = _SAME) -> list[str]:
    """The lines of statements, `depth` blocks deep, with variables and buffers called by other names."""
    lines: list[str] = []
    _write(statements, "    " * depth, names, lines)
    return lines


def expression_source(e: Expression, names: Renaming = _SAME) -> str:
    """The source of an expression.

    >>> expression_source(Binary("+", Binary("*", Number(4), Name("t"), tight=True), Number(1)))
    '4*t + 1'
    """
    return _EXPRESSIONS[type(e)](e, names)


def _write(statements: Sequence[Statement], indent: str, names: Renaming, lines: list[str]) -> None:
    for s in statements:
        _STATEMENTS[type(s)](s, indent, names, lines)


# ---------------------------------------------------------------- expressions


def _unary(e: Unary, names: Renaming) -> str:
    return f"{e.operator}{' ' if e.operator == 'not' else ''}{expression_source(e.operand, names)}"


def _binary(e: Binary, names: Renaming) -> str:
    between = e.operator if e.tight else f" {e.operator} "
    return f"{expression_source(e.left, names)}{between}{expression_source(e.right, names)}"


def _compare(e: Compare, names: Renaming) -> str:
    return " ".join([expression_source(e.first, names), *(f"{op} {expression_source(x, names)}" for op, x in e.links)])


def _call(e: Call, names: Renaming) -> str:
    return f"{e.function}({', '.join([expression_source(a, names) for a in e.arguments])})"


def _element(e: Load | Store, names: Renaming) -> str:
    buffer = names[e.buffer] if isinstance(e.buffer, str) else _call(e.buffer, names)
    return f"{buffer}[{expression_source(e.index, names)}]"


_EXPRESSIONS: dict[type, Callable[[Any, Renaming], str]] = {
    Name: lambda e, names: names[e.name],
    Number: lambda e, names: repr(e.value),
    Unary: _unary,
    Binary: _binary,
    Compare: _compare,
    Logical: lambda e, names: f" {e.operator} ".join([expression_source(x, names) for x in e.operands]),
    Call: _call,
    Load: lambda e, names: _element(e, names),
    Enclosed: lambda e, names: f"({expression_source(e.value, names)})",
}

# ---------------------------------------------------------------- statements


def _for(s: For, indent: str, names: Renaming, lines: list[str]) -> None:
    bounds = [expression_source(x, names) for x in (s.start, s.stop, s.step) if x is not None]
    lines.append(f"{indent}for {names[s.variable]} in range({', '.join(bounds)}):")
    _write(s.body, indent + "    ", names, lines)


def _while(s: While, indent: str, names: Renaming, lines: list[str]) -> None:
    lines.append(f"{indent}while {expression_source(s.test, names)}:")
    _write(s.body, indent + "    ", names, lines)


def _if(s: If, indent: str, names: Renaming, lines: list[str], word: str = "if") -> None:
    lines.append(f"{indent}{word} {expression_source(s.test, names)}:")
    _write(s.then, indent + "    ", names, lines)
    if len(s.otherwise) == 1 and isinstance(s.otherwise[0], If):
        _if(s.otherwise[0], indent, names, lines, "elif")
    elif s.otherwise:
        lines.append(f"{indent}else:")
        _write(s.otherwise, indent + "    ", names, lines)


def _store(s: Store, indent: str, names: Renaming, lines: list[str]) -> None:
    lines.append(f"{indent}{_element(s, names)} = {expression_source(s.value, names)}")


def _augment(s: Augment, indent: str, names: Renaming, lines: list[str]) -> None:
    lines.append(f"{indent}{expression_source(s.target, names)} {s.operator}= {expression_source(s.value, names)}")


_STATEMENTS: dict[type, Callable[[Any, str, Renaming, list[str]], None]] = {
    Assign: lambda s, indent, names, lines: lines.append(f"{indent}{names[s.name]} = {expression_source(s.value, names)}"),
    Store: _store,
    Augment: _augment,
    Do: lambda s, indent, names, lines: lines.append(indent + expression_source(s.call, names)),
    For: _for,
    While: _while,
    If: _if,
    Pass: lambda s, indent, names, lines: lines.append(f"{indent}pass"),
    Break: lambda s, indent, names, lines: lines.append(f"{indent}break"),
    Continue: lambda s, indent, names, lines: lines.append(f"{indent}continue"),
    Return: lambda s, indent, names, lines: lines.append(f"{indent}return"),
}
