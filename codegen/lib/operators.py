"""Python's operators on the numbers of kernels, and the names of number types as conversions.

Integers are computed in 64 bits, signed where one operand is; division rounds down, by zero it gives 0, as it does with NumPy.
Operands of two types get the wider one; where that is not plain (a signed and an unsigned number compared, a float32 beside an
int64) there is no rule here: `codegen.native.front_numba` may have one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from codegen.kernel import types
from codegen.kernel.types import Signature, Type, signature
from codegen.lib.emit import I1
from codegen.lib.register import CONTEXT, RULES, Rule

__all__ = ["CONVERSIONS", "OPERATORS", "rule_of", "signature_of"]

OPERATORS: dict[Any, Rule] = {}
"""Of numbers; of buffers (`operator.getitem`) the library has them."""


def rule_of(function: Any) -> Rule | None:
    """The rule of what a kernel calls: an operator, a type's name, a function of the library."""
    return RULES.get(function) or OPERATORS.get(function)


def signature_of(function: Any, kinds: tuple[Type, ...]) -> Signature | None:
    """What a function takes and gives where it is called with operands of these types; None where there is no rule.

    >>> signature_of(operator.add, (types.int32, types.literal(3))), signature_of(operator.lt, (types.float32, types.float64))
    (Signature(return_type=int64, args=(int64, int64)), Signature(return_type=bool, args=(float64, float64)))
    """
    rule = rule_of(function)
    return None if rule is None else rule.typer(*kinds)


# ---------------------------------------------------------------- types


def _wide(kind: types.Integer) -> types.Integer:
    return types.int64 if kind.signed else types.uint64


def _common_float(a: Type, b: Type) -> types.Float | None:
    """The type in which two numbers of which one is a float are computed."""
    if isinstance(a, types.Float) and isinstance(b, types.Float):
        return a if a.bitwidth >= b.bitwidth else b
    if isinstance(a, types.Integer) and b == types.float64:
        return types.float64
    return types.float64 if isinstance(b, types.Integer) and a == types.float64 else None


def _of_integers(a: Type, b: Type) -> Signature | None:
    if not isinstance(a, types.Integer) or not isinstance(b, types.Integer):
        return None
    return signature(types.int64 if a.signed or b.signed else types.uint64, _wide(a), _wide(b))


def _of_numbers(a: Type, b: Type) -> Signature | None:
    kind = _common_float(a, b)
    return _of_integers(a, b) if kind is None else signature(kind, kind, kind)


def _quotient(a: Type, b: Type) -> Signature | None:
    integers = _of_integers(a, b)
    if integers is not None:
        return signature(types.float64, *integers.args)
    kind = _common_float(a, b)
    return None if kind is None else signature(kind, kind, kind)


def _of_bits(a: Type, b: Type) -> Signature | None:
    if isinstance(a, types.Boolean) and isinstance(b, types.Boolean):
        return signature(types.boolean, types.boolean, types.boolean)
    return _of_integers(a, b)


def _shift(a: Type, b: Type) -> Signature | None:
    if not isinstance(a, types.Integer) or not isinstance(b, types.Integer):
        return None
    return signature(_wide(a), _wide(a), _wide(b))


def _comparison(a: Type, b: Type) -> Signature | None:
    kind: Type | None = _common_float(a, b)
    if isinstance(a, types.Boolean) and isinstance(b, types.Boolean):
        kind = types.boolean
    elif isinstance(a, types.Integer) and isinstance(b, types.Integer) and a.signed == b.signed:
        kind = types.unliteral(a if a.bitwidth >= b.bitwidth else b)
    return None if kind is None else signature(types.boolean, kind, kind)


def _of_one_number(a: Type) -> Signature | None:
    a = types.unliteral(a)
    return signature(a, a) if isinstance(a, types.Float) or a in (types.int64, types.uint64) else None


def _of_one_pattern(a: Type) -> Signature | None:
    a = types.unliteral(a)
    return signature(a, a) if a in (types.boolean, types.int64, types.uint64) else None


def _of_one_bool(a: Type) -> Signature | None:
    return signature(types.boolean, types.boolean) if isinstance(a, types.Boolean) else None


# ---------------------------------------------------------------- code


def _operands(b: Any, sig: Signature, values: Any) -> list[Any]:
    """The operands as the result's type."""
    return [CONTEXT.cast(b, v, kind, sig.return_type) for v, kind in zip(values, sig.args, strict=True)]


def _wraps(sig: Signature) -> dict[str, Any]:
    """An index does not overflow: with that said, `i + 1` is known to be above `i`."""
    return {"flags": ["nsw"]} if isinstance(sig.return_type, types.Integer) and sig.return_type.signed else {}


def _arithmetic(name: str) -> Callable[..., Any]:
    def lower(context: Any, b: Any, sig: Signature, values: Any) -> Any:
        x, y = _operands(b, sig, values)
        if isinstance(sig.return_type, types.Float):
            return getattr(b, f"f{name}")(x, y)
        return getattr(b, name)(x, y, **_wraps(sig))

    return lower


def _bits(name: str) -> Callable[..., Any]:
    return lambda context, b, sig, values: getattr(b, name)(*_operands(b, sig, values))


def _shifted_right(context: Any, b: Any, sig: Signature, values: Any) -> Any:
    assert isinstance(sig.return_type, types.Integer)
    return (b.ashr if sig.return_type.signed else b.lshr)(*_operands(b, sig, values))


def _divided(context: Any, b: Any, sig: Signature, values: Any) -> Any:
    return b.fdiv(*_operands(b, sig, values))


def _floor_division(wants_quotient: bool) -> Callable[..., Any]:
    """A known divisor above 0, as indices have, needs no questions; others that are known are LLVM's to fold."""

    def lower(context: Any, b: Any, sig: Signature, values: Any) -> Any:
        x, y = _operands(b, sig, values)
        assert isinstance(sig.return_type, types.Integer)
        if sig.return_type.signed and isinstance(y, ir.Constant) and y.constant > 0:
            rest = b.srem(x, y)
            is_below = b.icmp_signed("<", rest, ir.Constant(x.type, 0))
            if wants_quotient:
                return b.add(b.sdiv(x, y), b.sext(is_below, x.type))
            return b.add(rest, b.select(is_below, y, ir.Constant(x.type, 0)))
        zero, one = ir.Constant(x.type, 0), ir.Constant(x.type, 1)
        is_zero = b.icmp_unsigned("==", y, zero)
        if not sig.return_type.signed:
            made = (b.udiv if wants_quotient else b.urem)(x, b.select(is_zero, one, y))
            return b.select(is_zero, zero, made)
        # (The least number by -1 has no quotient, and a processor stops at it.)
        is_minus_one = b.icmp_signed("==", y, ir.Constant(x.type, -1))
        divisor = b.select(b.or_(is_zero, is_minus_one), one, y)
        rest = b.srem(x, divisor)
        is_below = b.and_(b.icmp_signed("!=", rest, zero), b.icmp_signed("<", b.xor(rest, divisor), zero))
        if wants_quotient:
            made = b.add(b.sdiv(x, divisor), b.sext(is_below, x.type))
            made = b.select(is_minus_one, b.neg(x), made)
        else:
            made = b.add(rest, b.select(is_below, divisor, zero))
        return b.select(is_zero, zero, made)

    return lower


def _compared(name: str) -> Callable[..., Any]:
    def lower(context: Any, b: Any, sig: Signature, values: Any) -> Any:
        kind = sig.args[0]
        if isinstance(kind, types.Float):
            return (b.fcmp_unordered if name == "!=" else b.fcmp_ordered)(name, *values)
        is_signed = isinstance(kind, types.Integer) and kind.signed
        return (b.icmp_signed if is_signed else b.icmp_unsigned)(name, *values)

    return lower


def _negated(context: Any, b: Any, sig: Signature, values: Any) -> Any:
    return (b.fneg if isinstance(sig.return_type, types.Float) else b.neg)(*values)


def _inverted(context: Any, b: Any, sig: Signature, values: Any) -> Any:
    (x,) = values
    return b.xor(x, ir.Constant(x.type, 1 if x.type == I1 else -1))


def _same(context: Any, b: Any, sig: Signature, values: Any) -> Any:
    return values[0]


def _two(rule: Callable[[Type, Type], Signature | None]) -> Callable[..., Signature | None]:
    return lambda *kinds: rule(*kinds) if len(kinds) == 2 else None


def _one(rule: Callable[[Type], Signature | None]) -> Callable[..., Signature | None]:
    return lambda *kinds: rule(*kinds) if len(kinds) == 1 else None


OPERATORS |= {getattr(operator, name): Rule(_two(_of_numbers), _arithmetic(name)) for name in ("add", "sub", "mul")}
OPERATORS[operator.truediv] = Rule(_two(_quotient), _divided)
OPERATORS[operator.floordiv] = Rule(_two(_of_integers), _floor_division(wants_quotient=True))
OPERATORS[operator.mod] = Rule(_two(_of_integers), _floor_division(wants_quotient=False))
OPERATORS |= {getattr(operator, name): Rule(_two(_of_bits), _bits(name)) for name in ("and_", "or_", "xor")}
OPERATORS[operator.lshift] = Rule(_two(_shift), _bits("shl"))
OPERATORS[operator.rshift] = Rule(_two(_shift), _shifted_right)
OPERATORS |= {
    getattr(operator, word): Rule(_two(_comparison), _compared(name))
    for word, name in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!="))
}
OPERATORS[operator.neg] = Rule(_one(_of_one_number), _negated)
OPERATORS[operator.pos] = Rule(_one(_of_one_number), _same)
OPERATORS[operator.invert] = Rule(_one(_of_one_pattern), _inverted)
OPERATORS[operator.not_] = Rule(_one(_of_one_bool), _inverted)

# ---------------------------------------------------------------- conversions

CONVERSIONS: dict[Any, Type] = {
    getattr(np, kind.name): kind
    for kind in (
        types.int8, types.int16, types.int32, types.int64, types.uint8, types.uint16, types.uint32, types.uint64,
        types.float32, types.float64,
    )
}  # fmt: skip
"""What the names of types convert to: `float32(x)`."""


def _conversion(kind: Type) -> Rule:
    def typer(*kinds: Type) -> Signature | None:
        if len(kinds) != 1 or not isinstance(kinds[0], types.Boolean | types.Integer | types.Float):
            return None
        return signature(kind, types.unliteral(kinds[0]))

    return Rule(typer, lambda context, b, sig, values: context.cast(b, values[0], sig.args[0], sig.return_type))


OPERATORS |= {function: _conversion(kind) for function, kind in CONVERSIONS.items()}
