"""Scalar rules: how generated source spells a scalar function of the op definitions. One row each.

A rule gets the op, the operands' source and their element types, and gives an expression. Floats use Python's operators; all
else goes through `codegen.lib`, whose functions keep the operands' type and StableHLO's edge cases. Types that no register
holds are computed in wider ones: what leaves the type's range or precision is brought back at once (`is_rounded`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.errors import Declined
from hlo.module import Op
from hlo.types import ELEMENT_TYPES, ElementType, default_storage_range
from indexing.expr import Interval

__all__ = [
    "REPEATS_OPERAND",
    "SCALAR_RULES",
    "ScalarRule",
    "constant_source",
    "convert_source",
    "index_number",
    "is_rounded",
    "number_type",
    "order_key_source",
    "rounded",
    "scalar_source",
]

ScalarRule = Callable[[Op, Sequence[str], Sequence[ElementType]], "str | Declined"]

NUMBERS = {
    "i1": "bool", "f16": "float32", "bf16": "float32", "i2": "int8", "i4": "int8", "ui2": "uint8", "ui4": "uint8",
}  # fmt: skip
"""Element types whose values are computed in another type than they are stored in; floats of a byte and less: float32."""


def number_type(element: ElementType) -> str | Declined:
    """The type that generated code computes an element in, by its NumPy name."""
    if element.is_float and element.bits <= 8:
        return "float32"
    return NUMBERS.get(element.name, element.dtype.name)


REPEATS_OPERAND = {"square"}
"""Rules that write their operand's source more than once: it must be a name."""

# ---------------------------------------------------------------- rounding

_KEEP_ALL = frozenset({"select", "maximum", "minimum", "clamp", "convert", "abs", "constant_like"})
_KEEP_HALF = _KEEP_ALL | {
    "bitcast_convert", "ceil", "conj", "floor", "imag", "negate", "real", "remainder", "round_nearest_afz", "round_nearest_even",
    "sign",
}  # fmt: skip
_KEEP_BITS = _KEEP_ALL - {"abs"} | {"and", "or", "xor"}


def is_rounded(function: str, element: ElementType, excess: bool = False) -> bool:
    """True where `function` may leave the type that it is stored in, and so is rounded (or wrapped) at once.

    With `excess` precision bf16 is not: it has the range of f32, so that the more precise value between two ops is never another
    one in kind.
    """
    if element.is_integer:
        return element.bits < 8 and function not in _KEEP_BITS
    if element.is_float and element.bits <= 8:
        return function not in _KEEP_ALL
    return (element.name == "f16" or (element.name == "bf16" and not excess)) and function not in _KEEP_HALF


def rounding(element: ElementType) -> str:
    """The name of the library's function that rounds to an element type."""
    if element.is_integer:
        return f"wrap_{element.dtype.name}"
    return f"round_{element.name if element.name in ('bf16', 'f16') else element.dtype.name}"


def rounded(value: str, function: str, element: ElementType, excess: bool = False) -> str:
    """The source of a function's value in the element type's own precision and range."""
    if not is_rounded(function, element, excess):
        return value
    # What is computed of numbers of 16 bits has no NaN whose lower half tells anything.
    return f"round_bf16_result({value})" if element.name == "bf16" else f"{rounding(element)}({value})"


# ---------------------------------------------------------------- rules


def _call(name: str) -> ScalarRule:
    return lambda op, args, types: f"{name}({', '.join(args)})"


def _infix(symbol: str, function: str) -> ScalarRule:
    def rule(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
        return f"({args[0]} {symbol} {args[1]})" if types[0].is_float else f"{function}({args[0]}, {args[1]})"

    return rule


_DIRECTIONS = {"EQ": "eq", "NE": "ne", "GE": "ge", "GT": "gt", "LE": "le", "LT": "lt"}


def _compare(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
    word = _DIRECTIONS[op.attr("comparison_direction")]
    if op.attr("compare_type") == "TOTALORDER" and types[0].is_float:
        args = [order_key_source(a, types[0]) for a in args]
    return f"{word}({args[0]}, {args[1]})"


def order_key_source(value: str, element: ElementType) -> str:
    """A float as a signed integer that orders as IEEE's totalOrder does."""
    return f"total_order_key_{element.dtype.name}({value})" if element.bits <= 8 else f"total_order_key({value})"


def _convert(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
    target = op.results[0].tensor.element
    assert isinstance(target, ElementType)
    return convert_source(args[0], types[0], target)


_SHORT = frozenset({"i1", "i2", "i4", "i8", "i16", "ui2", "ui4", "ui8", "ui16"})


def convert_source(value: str, source: ElementType, target: ElementType) -> str:
    """`value` of one element type as another one: rounded once, wrapped or clamped, as `convert` says."""
    if source == target:
        return value
    if source.is_complex and not target.is_complex:
        value, source = f"real({value})", source.real
        if source == target:
            return value
    b = number_type(target)
    if target.is_float and target.bits <= 16:
        wide = value
        if not (source.is_float and source.bits <= 32):
            wide = f"to_float32({value})" if source.name in _SHORT else f"to_float32_odd({value})"
        return f"{rounding(target)}({wide})"
    if target.is_integer and target.bits < 8:
        if source.is_float:
            low, high = default_storage_range(target)
            return f"clamp({b}({low}), to_{b}({value}), {b}({high}))"
        return f"{rounding(target)}(to_{b}({value}))"
    return value if number_type(source) == b else f"to_{b}({value})"


EXACT_COUNTS = {"bf16": 1 << 8, "f16": 1 << 11, "i2": 1, "i4": 7, "ui2": 3, "ui4": 15}
"""Up to here integers are numbers of a type; types that are not named need no rounding, or always get it."""


def index_number(index: str, bounds: Interval, element: ElementType) -> str:
    """An index expression's source as a number: rounded or wrapped where its range asks for it."""
    if max(abs(bounds.lower), abs(bounds.upper)) <= EXACT_COUNTS.get(element.name, 0):
        return f"to_{number_type(element)}({index})"
    return convert_source(index, ELEMENT_TYPES["i64"], element)


def place_source(number: str, element: str | None) -> str:
    """An integer as a place, an int64: what no int64 holds is beyond the end of everything, and not below its start."""
    return f"to_int64(minimum({number}, uint64(9223372036854775807)))" if element == "ui64" else f"to_int64({number})"


def _negate(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
    return f"(-{args[0]})" if types[0].is_float else f"negate({args[0]})"


def _square(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
    return f"({args[0]} * {args[0]})" if types[0].is_float else f"square({args[0]})"


def _fast_where_narrow(name: str) -> ScalarRule:
    """A result that is rounded to 11 bits or fewer does not show what the cheaper formula is off by."""
    return lambda op, args, types: f"{'fast_' if types[0].is_float and types[0].bits <= 16 else ''}{name}({args[0]})"


def _on_bits(name: str, correction: bool = False) -> ScalarRule:
    """A function of the bits of an integer; those of 2 and 4 bits are taken without their sign extension."""

    def rule(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
        bits = types[0].bits
        if bits >= 8:
            return f"{name}({args[0]})"
        counted = f"{name}(bit_and({args[0]}, {(1 << bits) - 1}))"
        return f"subtract({counted}, {8 - bits})" if correction else counted

    return rule


def _shift(name: str) -> ScalarRule:
    def rule(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
        bits, (x, y) = types[0].bits, args
        if bits < 8:
            mask = (1 << bits) - 1
            y = f"bit_and({y}, {mask})"
            if name == "shift_right_logical":
                x = f"bit_and({x}, {mask})"
            elif name == "shift_right_arithmetic" and types[0].is_unsigned:
                x = f"shift_right_arithmetic(shift_left({x}, {8 - bits}), {8 - bits})"
        return f"{name}({x}, {y})"

    return rule


def _reduce_precision(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
    kind = f"_{types[0].dtype.name}" if types[0].name in ("f16", "bf16") else ""
    return f"reduce_precision{kind}({args[0]}, {op.attr('exponent_bits')}, {op.attr('mantissa_bits')})"


def _conj(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
    return f"conj({args[0]})" if types[0].is_complex else args[0]


def _bitcast(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str | Declined:
    target = op.results[0].tensor.element
    assert isinstance(target, ElementType)
    if types[0].bits != target.bits:
        return Declined("bitcast_convert between elements of different widths")
    if types[0].is_complex:
        return args[0]
    return bits_value(bits_source(args[0], types[0]), target)


def bits_source(value: str, element: ElementType) -> str:
    """A number's representation as an unsigned integer of the storage's width."""
    if element.is_boolean or element.name in ("ui2", "ui4", "ui8", "ui16", "ui32", "ui64"):
        return f"to_uint8({value})" if element.is_boolean else value
    if element.is_integer and element.bits < 8:
        return f"bit_and(to_uint8({value}), {(1 << element.bits) - 1})"
    if element.is_float and element.bits <= 16:
        return f"bits_of_{element.dtype.name}({value})"
    return f"bits_to_uint{element.bits}({value})"


def bits_value(bits: str, element: ElementType) -> str:
    """The number whose representation is an unsigned integer of the storage's width."""
    if element.is_boolean:
        return f"to_bool({bits})"
    if element.is_integer:
        if element.bits < 8:
            return f"{rounding(element)}(to_{number_type(element)}({bits}))"
        return bits if element.is_unsigned else f"bits_to_int{element.bits}({bits})"
    if element.bits <= 16:
        return f"{element.dtype.name}_of_bits({bits})"
    return f"bits_to_float{element.bits}({bits})"


SCALAR_RULES: dict[str, ScalarRule] = {
    "add": _infix("+", "add"), "subtract": _infix("-", "subtract"), "multiply": _infix("*", "multiply"),
    "divide": _infix("/", "divide"), "negate": _negate, "square": _square, "compare": _compare, "convert": _convert,
    "select": _call("select"), "tanh": _fast_where_narrow("tanh"),
    "erf": _fast_where_narrow("erf"),
    "exponential": _call("exp"), "exponential_minus_one": _call("expm1"), "log": _call("log"),
    "log_plus_one": _call("log1p"), "sine": _call("sin"), "cosine": _call("cos"), "and": _call("bit_and"), "or": _call("bit_or"),
    "xor": _call("bit_xor"), "not": _call("bit_not"), "abs": _call("absolute"), "complex": _call("make_complex"),
    "popcnt": _on_bits("popcnt"), "count_leading_zeros": _on_bits("count_leading_zeros", correction=True),
    "reduce_precision": _reduce_precision, "bitcast_convert": _bitcast, "is_inf": _call("is_inf"), "conj": _conj,
    "is_pos_inf": lambda op, args, types: f"eq({args[0]}, float{max(32, types[0].bits)}(inf))",
    "is_neg_inf": lambda op, args, types: f"eq({args[0]}, float{max(32, types[0].bits)}(-inf))",
    **{name: _shift(name) for name in ("shift_left", "shift_right_arithmetic", "shift_right_logical")},
    **{
        name: _call(name)
        for name in (
            "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i1e", "cbrt", "ceil", "clamp", "cosh", "digamma",
            "erf_inv", "erfc", "fast_erf", "fast_tanh", "floor", "imag", "is_finite", "lgamma", "logistic", "maximum", "minimum",
            "power", "real", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt", "sign", "sinh", "sqrt", "tan",
        )
    },
}  # fmt: skip

WITHOUT_COMPLEX = frozenset(
    {
        "bessel_i1e", "ceil", "cosh", "digamma", "erf", "erf_inv", "erfc", "floor", "is_finite", "lgamma", "remainder",
        "round_nearest_afz", "round_nearest_even", "sinh",
    }
)  # fmt: skip
"""Functions of real numbers alone; those that CHLO has of complex numbers, too, are made of others there."""


def scalar_source(
    op: Op, function: str, args: Sequence[str], types: Sequence[ElementType], excess: bool = False, is_stored: bool = False
) -> str | Declined:
    """The source of `function` applied to operands, or why there is none.

    `excess`: numbers of bf16 may keep the precision of f32 (`is_rounded`). `is_stored`: the value goes into memory of its own
    type and nowhere else, and is rounded there.
    """
    rule = SCALAR_RULES.get(function)
    if rule is None:
        return Declined(f"codegen.source.scalars has no rule for {function!r} ({op.name})")
    for t in types:
        number = number_type(t)
        if isinstance(number, Declined):
            return number
    if types and types[0].is_complex and function in WITHOUT_COMPLEX:
        return Declined(f"codegen.lib has no {function!r} of complex numbers")
    text = rule(op, args, types)
    element = op.results[0].tensor.element
    if not isinstance(text, str) or not isinstance(element, ElementType):
        return text
    if is_stored:
        conversion = f"{rounding(element)}("
        return text[len(conversion) : -1] if function == "convert" and text.startswith(conversion) else text
    return rounded(text, function, element, excess)


def constant_source(value: object, element: ElementType) -> str:
    """A literal of an element type: the exact value, never text from the program."""
    if element.is_boolean:
        return "True" if value else "False"
    if element.is_complex:
        z = complex(value)  # type: ignore[call-overload]
        return f"make_complex({constant_source(z.real, element.real)}, {constant_source(z.imag, element.real)})"
    if element.is_integer:
        return f"{number_type(element)}({int(value)})"  # type: ignore[call-overload]
    number = float(value)  # type: ignore[arg-type]
    kind = "float64" if element.name == "f64" else "float32"
    return f"{kind}({number!r})"
