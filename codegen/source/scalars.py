"""How generated source spells the scalar functions of the op definitions: one row each.

A rule gets the op, the operands' source and their element types, and gives an expression. Floats use Python's operators; all
else goes through `codegen.lib`, whose functions keep the operands' type and StableHLO's edge cases. Types that no register
holds are computed in wider ones: what leaves the type's range or precision is brought back at once (`is_rounded`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlo.errors import Declined, DefinitionError, TilewrightError
from hlo.module import Op
from hlo.registry import operands_fault
from hlo.types import ELEMENT_TYPES, ElementType, default_storage_range
from indexing.expr import Interval

__all__ = [
    "SCALAR_CODE",
    "WITHOUT_CODE",
    "ScalarCode",
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

_NUMBER_TYPES = {
    **{e.name: "float32" if e.is_float and e.bits <= 16 else e.dtype.name for e in ELEMENT_TYPES.values()},
    "i1": "bool", "i2": "int8", "i4": "int8", "ui2": "uint8", "ui4": "uint8",
}  # fmt: skip


def number_type(element: ElementType) -> str:
    """The type that generated code computes an element in, by its NumPy name."""
    return _NUMBER_TYPES[element.name]


# ---------------------------------------------------------------- rounding

INTEGER, BYTE, HALF = "integers of less than a byte", "floats of a byte and less", "f16 and bf16"
NARROW = frozenset({INTEGER, BYTE, HALF})
"""The kinds of types that are computed in wider ones."""
_KINDS_OF_NARROW = {
    e.name: INTEGER if e.is_integer else BYTE if e.bits <= 8 else HALF
    for e in ELEMENT_TYPES.values() if (e.is_integer and e.bits < 8) or (e.is_float and e.bits <= 16)
}  # fmt: skip


@dataclass(frozen=True)
class ScalarCode:
    """How generated source computes a scalar function: numba's source, of which C is made, too.

    source           an expression from the op, the operands' source and their element types
    stays_in         the kinds of narrow types whose numbers it only gives such numbers of: others are rounded at once
    repeats_operand  the source has an operand's more than once: that must be a name
    of_complex       whether the library has it of complex numbers, too
    fold             the library's function that folds by it, where it has one
    order_key        of floats it folds these integers, which order as they do: one instruction a step, where NaN and the signs
                     of zeros take six
    """

    source: ScalarRule
    stays_in: frozenset[str] = frozenset()
    repeats_operand: bool = False
    of_complex: bool = True
    fold: str = ""
    order_key: str = ""


def is_rounded(function: str, element: ElementType, excess: bool = False) -> bool:
    """True where `function` may leave the type that it is stored in, and so is rounded (or wrapped) at once.

    With `excess` precision bf16 is not: it has the range of f32, so that the more precise value between two ops is never another
    one in kind.
    """
    kind = _KINDS_OF_NARROW.get(element.name)
    return kind is not None and kind not in SCALAR_CODE[function].stays_in and not (excess and element.name == "bf16")


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


def _form(form: str, **others: str) -> ScalarRule:
    """An expression with the operands at {0}, {1}; another one for operands of a kind in `_KINDS` that has its own."""

    def rule(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
        return next((x for kind, x in others.items() if _KINDS[kind](types[0])), form).format(*args)

    return rule


def _extreme(name: str) -> ScalarRule:
    """A maximum or minimum; numbers of 16 bits have one of their own, by their bits."""
    own = {kind: f"{dtype}_{name}({{0}}, {{1}})" for kind, dtype in (("of_f16", "float16"), ("of_bf16", "bfloat16"))}
    return _form(f"{name}({{0}}, {{1}})", **own)


_KINDS: dict[str, Callable[[ElementType], bool]] = {
    "of_floats": lambda e: e.is_float,
    "of_f16": lambda e: e.name == "f16",
    "of_bf16": lambda e: e.name == "bf16",
    "of_narrow": lambda e: e.is_float and e.bits <= 16,
    "of_complex": lambda e: e.is_complex,
}

def _compare(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str:
    if op.attr("compare_type") == "TOTALORDER" and types[0].is_float:
        args = [order_key_source(a, types[0]) for a in args]
    return f"{op.attr('comparison_direction').lower()}({args[0]}, {args[1]})"


def order_key_source(value: str, element: ElementType) -> str:
    """A float as a signed integer that orders as IEEE's totalOrder does."""
    return f"total_order_key_{element.dtype.name}({value})" if element.bits <= 8 else f"total_order_key({value})"


def _result(op: Op) -> ElementType:
    element = op.results[0].tensor.element
    assert isinstance(element, ElementType)
    return element


_SHORT = frozenset({"i1", "i2", "i4", "i8", "i16", "ui2", "ui4", "ui8", "ui16"})


def convert_source(value: str, source: ElementType, target: ElementType) -> str:
    """`value` of one element type as another one: rounded once, wrapped or clamped, as `convert` says."""
    if source == target:
        return value
    if source.is_complex and not target.is_complex:
        return convert_source(f"real({value})", source.real, target)
    b = number_type(target)
    if target.is_float and target.bits <= 16:
        wide = f"to_float32({value})" if source.name in _SHORT else f"to_float32_odd({value})"
        return f"{rounding(target)}({value if source.is_float and source.bits <= 32 else wide})"
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


def _bitcast(op: Op, args: Sequence[str], types: Sequence[ElementType]) -> str | Declined:
    target = _result(op)
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


SCALAR_CODE: dict[str, ScalarCode] = {
    "add": ScalarCode(_form("add({0}, {1})", of_floats="({0} + {1})"), fold="reduce_add"),
    "subtract": ScalarCode(_form("subtract({0}, {1})", of_floats="({0} - {1})")),
    "multiply": ScalarCode(_form("multiply({0}, {1})", of_floats="({0} * {1})"), fold="reduce_multiply"),
    "divide": ScalarCode(_form("divide({0}, {1})", of_floats="({0} / {1})")),
    "remainder": ScalarCode(_call("remainder"), frozenset({HALF}), of_complex=False),
    "maximum": ScalarCode(_extreme("maximum"), NARROW, fold="reduce_maximum", order_key="max_key"),
    "minimum": ScalarCode(_extreme("minimum"), NARROW, fold="reduce_minimum", order_key="min_key"),
    "clamp": ScalarCode(_call("clamp"), NARROW),
    "negate": ScalarCode(_form("negate({0})", of_floats="(-{0})"), frozenset({HALF})),
    "abs": ScalarCode(_call("absolute"), frozenset({BYTE, HALF})),
    "square": ScalarCode(_form("square({0})", of_floats="({0} * {0})"), repeats_operand=True),
    "sign": ScalarCode(_call("sign"), frozenset({HALF})),
    **{
        name: ScalarCode(_call(name), frozenset({HALF}), of_complex=False)
        for name in ("ceil", "floor", "round_nearest_afz", "round_nearest_even")
    },
    "compare": ScalarCode(_compare),
    "select": ScalarCode(_call("select"), NARROW),
    "convert": ScalarCode(lambda op, args, types: convert_source(args[0], types[0], _result(op)), NARROW),
    "bitcast_convert": ScalarCode(_bitcast, frozenset({HALF})),
    "reduce_precision": ScalarCode(_reduce_precision),
    "exponential": ScalarCode(_call("exp")),
    "exponential_minus_one": ScalarCode(_call("expm1")),
    "log": ScalarCode(_call("log")),
    "log_plus_one": ScalarCode(_call("log1p")),
    "sine": ScalarCode(_call("sin")),
    "cosine": ScalarCode(_call("cos")),
    # A result that is rounded to 11 bits or fewer does not show what the cheaper formula is off by.
    "tanh": ScalarCode(_form("tanh({0})", of_narrow="fast_tanh({0})")),
    "erf": ScalarCode(_form("erf({0})", of_narrow="fast_erf({0})"), of_complex=False),
    **{
        name: ScalarCode(_call(name))
        for name in (
            "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "fast_erf", "fast_tanh", "logistic", "power",
            "rsqrt", "sqrt", "tan",
        )
    },
    # CHLO has some of these of complex numbers, too: they are made of others there.
    **{
        name: ScalarCode(_call(name), of_complex=False)
        for name in ("bessel_i1e", "cosh", "digamma", "erf_inv", "erfc", "is_finite", "lgamma", "sinh")
    },
    "complex": ScalarCode(_call("make_complex")),
    "real": ScalarCode(_call("real"), frozenset({HALF})),
    "imag": ScalarCode(_call("imag"), frozenset({HALF})),
    "conj": ScalarCode(_form("{0}", of_complex="conj({0})"), frozenset({HALF})),
    "is_inf": ScalarCode(_call("is_inf")),
    "is_pos_inf": ScalarCode(lambda op, args, types: f"eq({args[0]}, float{max(32, types[0].bits)}(inf))"),
    "is_neg_inf": ScalarCode(lambda op, args, types: f"eq({args[0]}, float{max(32, types[0].bits)}(-inf))"),
    "and": ScalarCode(_call("bit_and"), frozenset({INTEGER}), fold="bit_and"),
    "or": ScalarCode(_call("bit_or"), frozenset({INTEGER}), fold="bit_or"),
    "xor": ScalarCode(_call("bit_xor"), frozenset({INTEGER})),
    "not": ScalarCode(_call("bit_not")),
    "popcnt": ScalarCode(_on_bits("popcnt")),
    "count_leading_zeros": ScalarCode(_on_bits("count_leading_zeros", correction=True)),
    "threefry2x32": ScalarCode(_call("threefry2x32")),
    **{name: ScalarCode(_shift(name)) for name in ("shift_left", "shift_right_arithmetic", "shift_right_logical")},
}  # fmt: skip

WITHOUT_CODE = dict.fromkeys(
    ("mulhi", "next_after", "polygamma", "uniform_dequantize", "uniform_quantize", "zeta"),
    Declined("what its op is made of is computed in its place (hlo.decompositions)"),
)
"""The scalar functions without code, and why."""


def scalar_source(
    op: Op, function: str, args: Sequence[str], types: Sequence[ElementType], excess: bool = False, is_stored: bool = False
) -> str | Declined:
    """The source of `function` applied to operands, or why there is none.

    `excess`: numbers of bf16 may keep the precision of f32 (`is_rounded`). `is_stored`: the value goes into memory of its own
    type and nowhere else, and is rounded there.
    """
    code = SCALAR_CODE.get(function)
    if code is None:
        return Declined(f"codegen.source.scalars has no rule for {function!r} ({op.name})")
    if types and types[0].is_complex and not code.of_complex:
        return Declined(f"codegen.lib has no {function!r} of complex numbers")
    try:
        text = code.source(op, args, types)
    except TilewrightError:
        raise
    except Exception as e:
        row = f"its row of SCALAR_CODE for {function!r}, of {len(args)} operands: {type(e).__name__}: {e}"
        raise DefinitionError(f"{op.name}: {operands_fault(function, len(args)) or row}", op.location) from e
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
    number = int(value) if element.is_integer else float(value)  # type: ignore[call-overload, arg-type]
    return f"{number_type(element)}({number!r})"
