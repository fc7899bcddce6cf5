"""Other names and values for the names of a kernel: substitution in its tree.

    substituted(body, {"t": Name("k1_t"), "end": Number(8)})    every t is k1_t, every read of end is 8
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
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
)

__all__ = ["assigned", "in_one_memory", "inside", "renamed", "substituted", "variables"]

Values = Mapping[str, Expression]


def inside(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Every statement, in the order of the text, with those in it."""
    for s in statements:
        yield s
        if isinstance(s, For | While):
            yield from inside(s.body)
        elif isinstance(s, If):
            yield from inside(s.then)
            yield from inside(s.otherwise)


def assigned(statements: Iterable[Statement]) -> tuple[str, ...]:
    """The names that statements assign, each once, in the order of the text."""
    found: dict[str, None] = {}
    for s in inside(statements):
        if isinstance(s, Assign):
            found[s.name] = None
        elif isinstance(s, For):
            found[s.variable] = None
        elif isinstance(s, Augment) and isinstance(s.target, Name):
            found[s.target.name] = None
    return tuple(found)


def variables(kernel: Kernel) -> tuple[str, ...]:
    """All names that are a kernel's own: its bounds, its buffers, then what it assigns."""
    return tuple(dict.fromkeys([*kernel.bounds, *(p.name for p in kernel.arguments), *assigned(kernel.body)]))


def renamed(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """The kernel with other names for variables and buffers; what has none in `names` keeps its own.

    >>> from codegen.kernel.parse import parse
    >>> from codegen.kernel.print_numba import print_numba
    >>> kernel = parse("def kernel(begin, end, y):\\n    for t in range(begin, end):\\n        y[t] = t\\n")
    >>> print(print_numba(renamed(kernel, {"t": "k1_t", "y": "z"})))
    def kernel(begin, end, z):
        for k1_t in range(begin, end):
            z[k1_t] = k1_t
    <BLANKLINE>
    """
    parameters = tuple(_parameter(p, names) for p in kernel.parameters)
    bounds = tuple(names.get(b, b) for b in kernel.bounds)
    body = substituted(kernel.body, {old: Name(new) for old, new in names.items()})
    return replace(kernel, parameters=parameters, bounds=bounds, body=body)


def in_one_memory(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """The kernel with each buffer in `names` another value in the memory of the one that it is mapped to.

    Parameters keep their order; the ones joined are no arguments of their own.
    """
    joined = tuple(replace(p, name=names[p.name], also=True) if p.name in names else p for p in kernel.parameters)
    return replace(kernel, parameters=joined, body=substituted(kernel.body, {old: Name(new) for old, new in names.items()}))


def _parameter(p: Parameter, names: Mapping[str, str]) -> Parameter:
    return replace(p, name=names.get(p.name, p.name), of=names.get(p.of, p.of))


def substituted(statements: Iterable[Statement], values: Values) -> tuple[Statement, ...]:
    """Statements in which each name has become its value; a name that is assigned, or names a buffer, may become a name only.

    Raises ValueError where an assigned name or a buffer would become anything else.
    """
    return tuple([_STATEMENTS[type(s)](s, values) for s in statements])


def _name(name: str, values: Values) -> str:
    value = values.get(name)
    if value is None:
        return name
    if not isinstance(value, Name):
        raise ValueError(f"{name!r} is assigned or is a buffer: expected a name for it, found {value}")
    return value.name


def _buffer(buffer: str | Call, values: Values) -> str | Call:
    if isinstance(buffer, str):
        return _name(buffer, values)
    made = _of(buffer, values)
    assert isinstance(made, Call)
    return made


def _of(e: Expression, values: Values) -> Expression:
    made: Expression = _EXPRESSIONS[type(e)](e, values)
    return made


def _compare(e: Compare, values: Values) -> Compare:
    return Compare(_of(e.first, values), tuple([(op, _of(x, values)) for op, x in e.links]))


def _optional(e: Expression | None, values: Values) -> Expression | None:
    return None if e is None else _of(e, values)


_EXPRESSIONS: dict[type, Callable[[Any, Values], Any]] = {
    Name: lambda e, values: values.get(e.name, e),
    Number: lambda e, values: e,
    Unary: lambda e, values: Unary(e.operator, _of(e.operand, values)),
    Binary: lambda e, values: Binary(e.operator, _of(e.left, values), _of(e.right, values), e.tight),
    Compare: _compare,
    Logical: lambda e, values: Logical(e.operator, tuple([_of(x, values) for x in e.operands])),
    Call: lambda e, values: Call(e.function, tuple([_of(a, values) for a in e.arguments])),
    Load: lambda e, values: Load(_buffer(e.buffer, values), _of(e.index, values)),
    Enclosed: lambda e, values: Enclosed(_of(e.value, values)),
}


def _for(s: For, values: Values) -> For:
    start, step = _optional(s.start, values), _optional(s.step, values)
    return For(_name(s.variable, values), start, _of(s.stop, values), step, substituted(s.body, values))


def _augment(s: Augment, values: Values) -> Augment:
    target = Name(_name(s.target.name, values)) if isinstance(s.target, Name) else _of(s.target, values)
    assert isinstance(target, Name | Load)
    return Augment(target, s.operator, _of(s.value, values))


_STATEMENTS: dict[type, Callable[[Any, Values], Any]] = {
    Assign: lambda s, values: Assign(_name(s.name, values), _of(s.value, values)),
    Store: lambda s, values: Store(_buffer(s.buffer, values), _of(s.index, values), _of(s.value, values)),
    Augment: _augment,
    Do: lambda s, values: Do(_of(s.call, values)),  # type: ignore[arg-type]
    For: _for,
    While: lambda s, values: While(_of(s.test, values), substituted(s.body, values)),
    If: lambda s, values: If(_of(s.test, values), substituted(s.then, values), substituted(s.otherwise, values)),
    Pass: lambda s, values: s,
    Break: lambda s, values: s,
    Continue: lambda s, values: s,
    Return: lambda s, values: s,
}
