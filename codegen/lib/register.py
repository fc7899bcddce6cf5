"""How a Python function becomes a scalar op that numba lowers inline: ``define``.

The Python body is what runs when a kernel is stepped through; the emitter writes the LLVM code straight into the calling
function, so that no op costs a numba compile of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

from codegen.lib.emit import Value

# an emitter receives the numba type of the first operand and the operands
Emitter = Callable[..., Value]


def kind_of(numba_type: Any) -> str:
    """``f`` float, ``i`` signed, ``u`` unsigned, ``b`` bool, ``c`` complex, ``?`` anything else."""
    if isinstance(numba_type, types.Float):
        return "f"
    if isinstance(numba_type, types.Boolean):
        return "b"
    if isinstance(numba_type, types.Integer):
        return "i" if numba_type.signed else "u"
    return "c" if isinstance(numba_type, types.Complex) else "?"


def register(function: Any, typer: Callable[..., Any], lower: Callable[..., Any]) -> None:
    """Give ``function`` a typing rule ``typer(*types) -> signature | None`` and a lowering (context, builder, sig, args)."""

    def generic(self: Any, args: Any, kws: Any) -> Any:
        return None if kws else typer(*args)

    body = {"key": function, "generic": generic, "prefer_literal": True}
    template = type(f"{function.__name__}_template", (AbstractTemplate,), body)
    infer_global(function, types.Function(template))
    lower_builtin(function, types.VarArg(types.Any))(lower)


def define(
    function: Any,
    arity: int,
    emitters: dict[str, Emitter],
    result: Callable[[Any], Any] | None = None,
    free: tuple[int, ...] = (),
) -> None:
    """Register an op whose operands all have one type.

    ``emitters`` maps the letters of ``kind_of`` (several in a key share an emitter) to ``emitter(type, *values)``.
    ``result`` maps the operand type to the result's (the same one by default).  Operands listed in ``free`` are bools.
    An integer literal takes the type of the other operands.
    """
    table = {letter: emitter for letters, emitter in emitters.items() for letter in letters}

    def typer(*args: Any) -> Any:
        if len(args) != arity:
            return None
        main = {types.unliteral(t) for k, t in enumerate(args) if k not in free and not isinstance(t, types.IntegerLiteral)}
        if not main:
            main = {types.unliteral(t) for k, t in enumerate(args) if k not in free}
        if len(main) != 1:
            return None
        kind = main.pop()
        if kind_of(kind) not in table:
            return None
        if any(not isinstance(types.unliteral(args[k]), types.Boolean) for k in free):
            return None
        operands = [types.boolean if k in free else kind for k in range(arity)]
        return signature(result(kind) if result else kind, *operands)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = next(t for k, t in enumerate(sig.args) if k not in free)
        return table[kind_of(kind)](kind, *[Value(builder, a) for a in args]).v

    register(function, typer, lower)
