"""What holds of every kernel, as data: `faults(kernel)` names what does not.

Each invariant has a name and a sentence; a rewrite of kernels that breaks one is told which and where. That a name has one type
wherever it is assigned is found by the typed walk (`codegen.kernel.typed`), which knows the library's types.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, get_args

from codegen.kernel.ir import (
    Assign,
    Break,
    Call,
    Continue,
    Expression,
    For,
    If,
    Kernel,
    Load,
    Name,
    Return,
    Statement,
    Store,
    While,
)
from codegen.kernel.print_numba import expression_source, statement_lines
from codegen.kernel.rename import assigned, assigned_by, blocks, inside

__all__ = ["INVARIANTS", "Invariant", "below", "expressions", "faults", "unassigned_reads"]

CONSTANTS = frozenset({"inf", "nan"})


@dataclass(frozen=True)
class Invariant:
    """`check(kernel, functions)` yields what breaks it; `functions` are the names that the library defines."""

    name: str
    meaning: str
    check: Callable[[Kernel, Collection[str]], Iterable[str]]


def faults(kernel: Kernel, functions: Collection[str] = ()) -> list[str]:
    """What is wrong with a kernel, `invariant: place`; empty for a sound one. Without `functions` any name may be called.

    >>> from codegen.kernel.parse import parse
    >>> faults(parse("def kernel(begin, end, y):\\n    if begin < 3:\\n        a = 1\\n    y[0] = a\\n    break\\n"))
    ['assigned before read: y[0] = a', 'jumps are inside loops: break']
    """
    return [f"{i.name}: {place}" for i in INVARIANTS for place in i.check(kernel, functions)]


_EXPRESSIONS = get_args(Expression)


_parts: Callable[[Any], tuple[str, ...]] = cache(lambda kind: tuple(f.name for f in fields(kind)))
"""The names of a class' fields."""


def unassigned_reads(kernel: Kernel) -> list[str]:
    """The statements that read a name which not every path to them assigns: a number of another loop, or none at all.

    >>> from codegen.kernel.parse import parse
    >>> unassigned_reads(parse("def kernel(begin, end, y):\\n    for i in range(3):\\n        a = i\\n    y[0] = a\\n"))
    ['y[0] = a']
    """
    return list(_read_before_assigned(kernel, ()))


def expressions(s: Statement) -> Iterator[Expression]:
    """Every expression of a statement itself, with those in it; not of the statements inside it."""
    for name in _parts(type(s)):
        part = getattr(s, name)
        if isinstance(part, _EXPRESSIONS):
            yield from below(part)
    if isinstance(s, Store):
        yield from below(Load(s.buffer, s.index))


def below(e: Any) -> Iterator[Expression]:
    """An expression and all that are in it."""
    found = [e]
    for e in found:
        yield e
        for name in _parts(type(e)):
            part = getattr(e, name)
            for x in part if isinstance(part, tuple) else (part,):
                # (A link of a comparison is a pair.)
                x = x[1] if isinstance(x, tuple) else x
                if isinstance(x, _EXPRESSIONS):
                    found.append(x)


def _read(e: Expression) -> str | None:
    """The name that an expression itself reads."""
    if isinstance(e, Name):
        return e.name
    return e.buffer if isinstance(e, Load) and isinstance(e.buffer, str) else None


def _text(s: Statement) -> str:
    return statement_lines([s])[0]


def _arguments_once(kernel: Kernel, functions: Collection[str]) -> Iterator[str]:
    names = [*kernel.bounds, *(p.name for p in kernel.arguments)]
    yield from sorted({n for n in names if names.count(n) > 1})
    known = {p.name: p for p in kernel.arguments}
    yield from (p.name for p in kernel.parameters if (p.also and p.name not in known) or (p.of and p.of not in known))


def _buffers_stay(kernel: Kernel, functions: Collection[str]) -> Iterator[str]:
    buffers = {p.name for p in kernel.arguments}
    yield from (n for n in assigned(kernel.body) if n in buffers or n in kernel.bounds)


def _read_before_assigned(kernel: Kernel, functions: Collection[str]) -> Iterator[str]:
    given = {*kernel.bounds, *(p.name for p in kernel.arguments), *CONSTANTS}
    yield from _unassigned(kernel.body, given)


def _unassigned(statements: Iterable[Statement], known: set[str] | None) -> Iterator[str]:
    """Statements that read a name that no path to them assigns for certain; `known` grows by what the statements assign."""
    for s in statements:
        assert known is not None
        reads = {_read(e) for e in expressions(s)} - {None}
        if not reads <= known:
            yield _text(s)
        if isinstance(s, Assign):
            known.add(s.name)
        elif isinstance(s, For):
            # No iteration may run: what it assigns is known inside alone.
            yield from _unassigned(s.body, {*known, s.variable})
        elif isinstance(s, While):
            yield from _unassigned(s.body, set(known))
        elif isinstance(s, If):
            branches = [(s.then, set(known)), (s.otherwise, set(known))]
            for body, after in branches:
                yield from _unassigned(body, after)
            # A branch that leaves does not come back to what follows.
            back = [after for body, after in branches if not (body and isinstance(body[-1], Break | Continue | Return))]
            if back:
                known |= set.intersection(*back)


def _jumps(kernel: Kernel, functions: Collection[str]) -> Iterator[str]:
    def outside(statements: Iterable[Statement]) -> Iterator[str]:
        for s in statements:
            if isinstance(s, Break | Continue):
                yield _text(s)
            elif isinstance(s, If):
                yield from outside((*s.then, *s.otherwise))

    yield from outside(kernel.body)


def _no_empty_blocks(kernel: Kernel, functions: Collection[str]) -> Iterator[str]:
    for s in inside(kernel.body):
        if not all(blocks(s)[:1]):
            yield _text(s)


def _library_not_hidden(kernel: Kernel, functions: Collection[str]) -> Iterator[str]:
    own = (*kernel.bounds, *(p.name for p in kernel.arguments), *assigned(kernel.body))
    yield from (n for n in own if n in functions or n in CONSTANTS or n == "range")


def _known_functions(kernel: Kernel, functions: Collection[str]) -> Iterator[str]:
    for s in inside(kernel.body):
        for e in expressions(s):
            if isinstance(e, Call) and functions and e.function not in functions:
                yield expression_source(e)


def _counters_own(kernel: Kernel, functions: Collection[str]) -> Iterator[str]:
    """Loops whose body assigns their variable, or another loop's around them, as a loop inside of them may."""

    def within(statements: Iterable[Statement], counting: frozenset[str]) -> Iterator[str]:
        for s in statements:
            if assigned_by(s) in counting:
                yield _text(s)
            for block in blocks(s):
                yield from within(block, counting | {s.variable} if isinstance(s, For) else counting)

    yield from within(kernel.body, frozenset())


INVARIANTS = (
    Invariant("arguments once", "each memory is one argument; copies and shared values name one", _arguments_once),
    Invariant("buffers stay", "no buffer and no bound is assigned", _buffers_stay),
    Invariant("assigned before read", "a name is assigned on every path to where it is read", _read_before_assigned),
    Invariant("counters are loops' own", "nothing inside a loop assigns what it counts with", _counters_own),
    Invariant("jumps are inside loops", "break and continue stand in a loop", _jumps),
    Invariant("blocks hold something", "no loop's body and no branch is empty", _no_empty_blocks),
    Invariant("library not hidden", "no name of the kernel is one of the library's", _library_not_hidden),
    Invariant("functions are known", "what is called is in the library", _known_functions),
)
