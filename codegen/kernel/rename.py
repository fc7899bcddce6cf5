"""Other names and values for the names of a kernel: substitution in its tree.

    substituted(body, {"t": Name("k1_t"), "end": Number(8)})    every t is k1_t, every read of end is 8
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from itertools import count
from types import MappingProxyType
from typing import Any, get_args

from codegen.kernel.ir import Assign, Augment, Expression, For, If, Kernel, Load, Name, Number, Statement, Store, While

__all__ = ["assigned", "assigned_by", "blocks", "in_one_memory", "inside", "substituted", "variables"]

Values = Mapping[str, Expression]


def blocks(s: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The statements inside a statement, block by block."""
    return (s.body,) if isinstance(s, For | While) else (s.then, s.otherwise) if isinstance(s, If) else ()


def inside(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Every statement, in the order of the text, with those in it."""
    for s in statements:
        yield s
        for block in blocks(s):
            yield from inside(block)


def assigned_by(s: Statement) -> str | None:
    """The name that a statement itself assigns."""
    target = s.target if isinstance(s, Augment) else s
    return target.name if isinstance(target, Assign | Name) else s.variable if isinstance(s, For) else None


def assigned(statements: Iterable[Statement]) -> tuple[str, ...]:
    """The names that statements assign, each once, in the order of the text."""
    names = dict.fromkeys(map(assigned_by, inside(statements)))
    return tuple([n for n in names if n is not None])


def variables(kernel: Kernel) -> tuple[str, ...]:
    """All names that are a kernel's own: its bounds, its buffers, then what it assigns."""
    return tuple(dict.fromkeys([*kernel.bounds, *(p.name for p in kernel.arguments), *assigned(kernel.body)]))


def in_one_memory(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """The kernel with each buffer in `names` another value in the memory of the one that it is mapped to.

    Parameters keep their order; the ones joined are no arguments of their own. What is read of a joined one where that element
    was stored already is read before the store. (Other elements are those of other iterations, written out.)
    """
    joined = tuple(replace(p, name=names[p.name], also=True) if p.name in names else p for p in kernel.parameters)
    body = kernel.body
    taken = set(variables(kernel))
    for old, new in names.items():
        body = _read_first(body, old, new, taken)
    return replace(kernel, parameters=joined, body=substituted(body, {old: Name(new) for old, new in names.items()}))


def _read_first(block: tuple[Statement, ...], old: str, new: str, taken: set[str]) -> tuple[Statement, ...]:
    """A block in which old[i] is read before new[i] is stored."""
    made: list[Statement] = []
    rest = list(block)
    while rest:
        s = rest.pop(0)
        if isinstance(s, For | While):
            s = replace(s, body=_read_first(s.body, old, new, taken))
        elif isinstance(s, If):
            s = replace(s, then=_read_first(s.then, old, new, taken), otherwise=_read_first(s.otherwise, old, new, taken))
        elif isinstance(s, Store) and s.buffer == new:
            read = Load(old, s.index)
            if any(load == read for x in rest for load in _loads(x)):
                name = next(n for k in count() if (n := f"w{k}") not in taken)
                taken.add(name)
                made.append(Assign(name, read))
                rest = [_of(x, {}, {read: Name(name)}) for x in rest]
        made.append(s)
    return tuple(made)


def _loads(x: Any) -> Iterator[Load]:
    """The loads in a part of the tree."""
    if isinstance(x, tuple):
        for part in x:
            yield from _loads(part)
    elif type(x) in _PARTS:
        if isinstance(x, Load):
            yield x
        for f in _PARTS[type(x)]:
            yield from _loads(getattr(x, f))


def substituted(statements: Iterable[Statement], values: Values) -> tuple[Statement, ...]:
    """Statements in which each name has become its value; a name that is assigned, or names a buffer, may become a name only.

    Raises ValueError where an assigned name or a buffer would become anything else.

    >>> from codegen.kernel.ir import Binary, Store
    >>> substituted([Store("y", Name("t"), Binary("+", Name("t"), Name("a")))], {"t": Number(2), "y": Name("z")})[0]
    Store(buffer='z', index=Number(value=2), value=Binary(operator='+', left=Number(value=2), right=Name(name='a'), tight=False))
    """
    return tuple([_of(s, values) for s in statements])


_NAMED = {Assign: "name", For: "variable", Load: "buffer", Store: "buffer"}
"""Fields that hold a name: other strings are operators and functions."""

_PARTS = {kind: tuple(f.name for f in fields(kind)) for kind in (*get_args(Expression), *get_args(Statement))}


def _of(x: Any, values: Values, loaded: Mapping[Load, Expression] = MappingProxyType({})) -> Any:
    """A part of the tree: a statement, an expression, several of them, or what is neither; `loaded` are known elements."""
    if isinstance(x, tuple):
        return tuple([_of(part, values, loaded) for part in x])
    kind = type(x)
    if loaded and kind is Load and x in loaded:
        return loaded[x]
    if kind is Name:
        return values.get(x.name, x)
    if kind is Number or kind not in _PARTS:
        return x
    made = {f: _of(getattr(x, f), values, loaded) for f in _PARTS[kind]}
    named = _NAMED.get(kind)
    if named is not None and isinstance(made[named], str):
        made[named] = _name(made[named], values)
    if kind is Augment and isinstance(x.target, Name):
        made["target"] = Name(_name(x.target.name, values))
    return kind(**made)


def _name(name: str, values: Values) -> str:
    value = values.get(name, Name(name))
    if not isinstance(value, Name):
        raise ValueError(f"{name!r} is assigned or is a buffer: expected a name for it, found {value}")
    return value.name
