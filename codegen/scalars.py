"""Scalar rules: how generated source spells a scalar function of the op definitions. One row each.

A rule gets the op, the operands' source and their element types, and gives an expression. Floats use Python's operators; all
else goes through `codegen.lib`, whose functions keep the operands' type and StableHLO's edge cases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.errors import Declined
from hlo.module import Op
from hlo.types import ElementType

__all__ = [
    "REPEATS_OPERAND",
    "SCALAR_RULES",
    "ScalarRule",
    "constant_source",
    "convert_source",
    "number_type",
    "scalar_source",
]

ScalarRule = Callable[[Op, Sequence[str], Sequence[ElementType]], str]

STORAGE_NUMBER = {"f16": "float32", "bf16": "float32", "i1": "bool"}
"""Element types whose values are computed in another type than they are stored in."""

NATIVE = {
    "i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "bf16", "f16", "f32", "f64",
}  # fmt: skip


def number_type(element: ElementType) -> str | Declined:
    """The type that generated code computes an element in, by its NumPy name."""
    if element.name not in NATIVE:
        return Declined(f"no kernel computes {element} yet")
    return STORAGE_NUMBER.get(element.name, element.dtype.name)


REPEATS_OPERAND = frozenset({"square"})
"""Rules that write their operand's source more than once: it must be a name."""


def _call(name: str) -> ScalarRule:
    return lambda op, args, types: f"{name}({', '.join(args)})"


def _infix(symbol: str, function: str) -> ScalarRule:
    def rule(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
        return f"({args[0]} {symbol} {args[1]})" if types[0].is_float else f"{function}({args[0]}, {args[1]})"

    return rule


_DIRECTIONS = {"EQ": "eq", "NE": "ne", "GE": "ge", "GT": "gt", "LE": "le", "LT": "lt"}


def _compare(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
    word = _DIRECTIONS[op.attr("comparison_direction")]
    if op.attr("compare_type") == "TOTALORDER":
        args = [f"total_order_key({a})" for a in args]
    return f"{word}({args[0]}, {args[1]})"


def _convert(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
    target = op.results[0].tensor.element
    assert isinstance(target, ElementType)
    return convert_source(args[0], types[0], target)


def convert_source(value: str, source: ElementType, target: ElementType) -> str:
    """`value` of one element type as another one; rounds to the narrow float types."""
    if source == target:
        return value
    if target.name in ("bf16", "f16"):
        wide = value if source.name in ("f32", "bf16", "f16") else f"to_float32({value})"
        return f"round_{target.name}({wide})"
    a, b = number_type(source), number_type(target)
    return value if a == b else f"to_{b}({value})"


def _negate(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
    return f"(-{args[0]})" if types[0].is_float else f"negate({args[0]})"


def _square(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
    return f"({args[0]} * {args[0]})"


def _tanh(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
    # A result that is rounded to 11 bits or fewer does not show what the cheaper formula is off by.
    return f"{'fast_tanh' if types[0].name in ('bf16', 'f16') else 'tanh'}({args[0]})"


SCALAR_RULES: dict[str, ScalarRule] = {
    "add": _infix("+", "add"), "subtract": _infix("-", "subtract"), "multiply": _infix("*", "multiply"),
    "divide": _infix("/", "divide"), "negate": _negate, "square": _square, "compare": _compare, "convert": _convert,
    "select": _call("select"), "tanh": _tanh,
    "exponential": _call("exp"), "exponential_minus_one": _call("expm1"), "log": _call("log"),
    "log_plus_one": _call("log1p"), "sine": _call("sin"), "cosine": _call("cos"), "and": _call("bit_and"), "or": _call("bit_or"),
    "xor": _call("bit_xor"), "not": _call("bit_not"), "abs": _call("absolute"),
    **{
        name: _call(name)
        for name in (
            "atan2", "cbrt", "ceil", "clamp", "count_leading_zeros", "erf", "erfc", "floor", "is_finite", "logistic", "maximum",
            "minimum", "popcnt", "power", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt", "shift_left",
            "shift_right_arithmetic", "shift_right_logical", "sign", "sqrt", "tan", "fast_tanh",
        )
    },
}  # fmt: skip


def scalar_source(op: Op, function: str, args: Sequence[str], types: Sequence[ElementType]) -> str | Declined:
    """The source of `function` applied to operands, or why there is none."""
    rule = SCALAR_RULES.get(function)
    if rule is None:
        return Declined(f"codegen.scalars has no rule for {function!r} ({op.name})")
    for t in types:
        number = number_type(t)
        if isinstance(number, Declined):
            return number
    return rule(op, args, types)


def constant_source(value: object, element: ElementType) -> str:
    """A literal of an element type: the exact value, never text from the program."""
    if element.is_boolean:
        return "True" if value else "False"
    if element.is_integer:
        return f"{element.dtype.name}({int(value)})"  # type: ignore[call-overload]
    number = float(value)  # type: ignore[arg-type]
    kind = "float64" if element.name == "f64" else "float32"
    return f"{kind}({number!r})"
