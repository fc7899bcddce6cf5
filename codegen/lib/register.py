"""How a Python function becomes an op that is lowered inline: ``register`` with its rules, ``define`` for scalar ones.

The Python body is what runs when a kernel is stepped through; the emitter writes the LLVM code straight into the calling
function. The rules stand in a table of their own (``RULES``); `codegen.native.front_numba` tells numba of them, where a kernel
needs numba at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from codegen.kernel import types
from codegen.kernel.types import Signature, Type, signature
from codegen.lib.emit import F32, F64, I1, I8, Value, constant, packed

__all__ = ["CONTEXT", "RULES", "Context", "Emitter", "PointerType", "Rule", "define", "kind_of", "register"]

# an emitter receives the type of the first operand and the operands
Emitter = Callable[..., Value]


class PointerType(Type, ABC):
    """A type whose values are pointers to `element_type`, LLVM's type of what is stored."""

    __slots__ = ()

    @property
    @abstractmethod
    def element_type(self) -> Any:
        """LLVM's type of what is stored."""


class Context:
    """What a lowering may ask: LLVM's types, and the value of what gives none."""

    def get_value_type(self, kind: Type) -> Any:
        """LLVM's type of a value. Raises TypeError for a type without values."""
        if isinstance(kind, types.Integer):
            return ir.IntType(kind.bitwidth)
        if isinstance(kind, types.Float):
            return F32 if kind.bitwidth == 32 else F64
        if isinstance(kind, types.Boolean):
            return I1
        if isinstance(kind, types.Complex):
            return ir.LiteralStructType([self.get_value_type(kind.underlying_float)] * 2)
        if isinstance(kind, PointerType):
            return kind.element_type.as_pointer()
        raise TypeError(f"{kind} has no values")

    def get_dummy_value(self) -> Any:
        """What a lowering gives that is called for its effect."""
        return ir.Constant(I8.as_pointer(), None)

    def cast(self, b: Any, value: Any, kind: Type, wanted: Type) -> Any:
        """A number as another type: integers wrap, floats are truncated toward zero. Raises TypeError for what is no number.

        A float beyond an integer's range gives any integer: what clamps is called by name (`to_int32`).
        """
        kind, wanted = types.unliteral(kind), types.unliteral(wanted)
        if kind == wanted:
            return value
        to = self.get_value_type(wanted)
        if isinstance(wanted, types.Boolean):
            if isinstance(kind, types.Integer):
                return b.icmp_unsigned("!=", value, ir.Constant(value.type, 0))
            if isinstance(kind, types.Float):
                return b.fcmp_unordered("!=", value, ir.Constant(value.type, 0.0))
        elif isinstance(kind, types.Boolean):
            if isinstance(wanted, types.Integer):
                return b.zext(value, to)
            if isinstance(wanted, types.Float):
                return b.uitofp(value, to)
        elif isinstance(kind, types.Integer):
            if isinstance(wanted, types.Integer):
                if kind.bitwidth >= wanted.bitwidth:
                    return value if kind.bitwidth == wanted.bitwidth else b.trunc(value, to)
                return (b.sext if kind.signed else b.zext)(value, to)
            if isinstance(wanted, types.Float):
                return (b.sitofp if kind.signed else b.uitofp)(value, to)
        elif isinstance(kind, types.Float):
            if isinstance(wanted, types.Float):
                if isinstance(value, ir.Constant):
                    return constant(to, value.constant)
                return (b.fpext if kind.bitwidth < wanted.bitwidth else b.fptrunc)(value, to)
            if isinstance(wanted, types.Integer):
                return (b.fptosi if wanted.signed else b.fptoui)(value, to)
        if isinstance(wanted, types.Complex):
            part = wanted.underlying_float
            if isinstance(kind, types.Complex):
                return packed(b, [self.cast(b, b.extract_value(value, k), kind.underlying_float, part) for k in range(2)])
            real = self.cast(b, value, kind, part)
            return packed(b, [real, ir.Constant(real.type, 0.0)])
        raise TypeError(f"{kind} as {wanted}")


CONTEXT = Context()


class Rule(NamedTuple):
    """``typer(*types)`` gives a signature or None; ``lower(context, builder, signature, values)`` writes the code."""

    typer: Callable[..., Signature | None]
    lower: Callable[..., Any]


RULES: dict[Any, Rule] = {}
"""By function: the library's. Python's operators on numbers have theirs in `codegen.lib.operators`."""


def kind_of(kind: Any) -> str:
    """``f`` float, ``i`` signed, ``u`` unsigned, ``b`` bool, ``c`` complex, ``?`` anything else."""
    if isinstance(kind, types.Float):
        return "f"
    if isinstance(kind, types.Boolean):
        return "b"
    if isinstance(kind, types.Integer):
        return "i" if kind.signed else "u"
    return "c" if isinstance(kind, types.Complex) else "?"


def register(function: Any, typer: Callable[..., Signature | None], lower: Callable[..., Any]) -> None:
    """Give ``function`` a typing rule ``typer(*types) -> signature | None`` and a lowering (context, builder, sig, args)."""
    RULES[function] = Rule(typer, lower)


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

    def typer(*args: Any) -> Signature | None:
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
