"""Ops on the bits that numbers are stored as: representations of the floats that no register holds, and cut precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from llvmlite import ir

from codegen.kernel import types
from codegen.kernel.types import signature
from codegen.lib import convert, narrow
from codegen.lib.emit import F32, I16, I32, Value, bounds_of, call, code_of, constant, element_type, like, select, with_bounds
from codegen.lib.register import define, kind_of, register
from codegen.target import current_target

__all__ = ["NAMESPACE", "extreme"]


def _halves(narrowing: Callable[[Value], Value], widening: Callable[[Value], Value]) -> Any:
    return narrowing, widening, types.uint16


def _codes(name: str) -> Any:
    return lambda x: narrow.narrow_code(name, x), lambda v: narrow.widen_code(name, v), types.uint8


# type name: (f32 -> representation, representation -> f32, the representation's type)
STORED: dict[str, tuple[Callable[[Value], Value], Callable[[Value], Value], Any]] = {
    "bfloat16": _halves(convert.narrow_bf16, convert.widen_bf16),
    "float16": _halves(convert.narrow_f16, convert.widen_f16),
    **{name: _codes(name) for name in (*narrow.NARROW_FLOATS, narrow.POWER_OF_TWO)},
}


def _dtype(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _named(function: Any, name: str, doc: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _bits_of(name: str) -> Any:
    to_bits, _, number = STORED[name]

    def function(x: Any) -> Any:
        return np.float32(x).astype(_dtype(name)).view(f"u{_dtype(name).itemsize}")

    _named(
        function, f"bits_of_{name}", f"The representation of the {name} nearest to x (f32), as an unsigned integer."
    )
    define(function, 1, {"f": lambda kind, x: to_bits(x)}, result=lambda kind: number)
    return function


def _of_bits(name: str) -> Any:
    _, to_number, _ = STORED[name]

    def function(bits: Any) -> Any:
        return np.float32(np.asarray(bits).view(_dtype(name)))

    _named(function, f"{name}_of_bits", f"The number (f32) that an unsigned integer represents as a {name}.")
    define(function, 1, {"u": lambda kind, v: to_number(v)}, result=lambda kind: types.float32)
    return function


def _order_key(name: str) -> Any:
    bits = narrow.NARROW_FLOATS[name].bits if name != narrow.POWER_OF_TWO else 0

    def function(x: Any) -> Any:
        code = int(np.float32(x).astype(_dtype(name)).view(np.uint8))
        return np.int32(-(code ^ (1 << (bits - 1))) - 1 if bits and code >> (bits - 1) else code)

    def emit(kind: Any, x: Value) -> Value:
        code = narrow.narrow_code(name, x).cast("zext", I32)
        return select(code < (1 << (bits - 1)), code, ~(code ^ (1 << (bits - 1)))) if bits else code

    _named(
        function, f"total_order_key_{name}", f"The {name} nearest to x as an integer that orders as totalOrder does."
    )
    define(function, 1, {"f": emit}, result=lambda kind: types.int32)
    return function


# ------------------------------------------------------------------ reduce_precision


def _reduced(bits: Value, exponent: int, mantissa: int, have_exponent: int, have_mantissa: int) -> Value:
    """A float's representation cut to fewer exponent and mantissa bits, ties to even, still in its own layout; no NaN."""
    width = have_exponent + have_mantissa + 1
    magnitude = bits & ((1 << (width - 1)) - 1)
    sign = bits ^ magnitude
    if mantissa < have_mantissa:
        cut = have_mantissa - mantissa
        half = (1 << (cut - 1)) - 1
        magnitude = (magnitude + half + (magnitude.lshr(cut) & 1)).lshr(cut) << cut
    if exponent < have_exponent:
        bias, own = (1 << (exponent - 1)) - 1, (1 << (have_exponent - 1)) - 1
        power = magnitude.lshr(have_mantissa)
        magnitude = select(power > own + bias, power.const(((1 << have_exponent) - 1) << have_mantissa), magnitude)
        magnitude = select(power > own - bias, magnitude, power.const(0))
    return magnitude | sign


# type name, "" for the number's own: exponent bits, mantissa bits
LAYOUTS = {"float32": (8, 23), "float64": (11, 52), "float16": (5, 10), "bfloat16": (8, 7)}


def _reducing(name: str) -> Any:
    def function(x: Any, exponent: Any, mantissa: Any) -> Any:
        kept = _dtype(name or np.asarray(x).dtype.name)
        bits = np.asarray(x).astype(kept).view(f"i{kept.itemsize}")
        have_exponent, have_mantissa = LAYOUTS[kept.name]
        sign, magnitude = int(bits) < 0, int(bits) & ((1 << (8 * kept.itemsize - 1)) - 1)
        if x != x:
            return x if mantissa > 0 else np.asarray(x).dtype.type(np.inf)
        cut = have_mantissa - mantissa
        if cut > 0:
            magnitude = (magnitude + (1 << (cut - 1)) - 1 + ((magnitude >> cut) & 1)) >> cut << cut
        if exponent < have_exponent:
            bias, own = (1 << (exponent - 1)) - 1, (1 << (have_exponent - 1)) - 1
            power = magnitude >> have_mantissa
            magnitude = ((1 << have_exponent) - 1) << have_mantissa if power > own + bias else magnitude
            magnitude = 0 if power <= own - bias else magnitude
        found = np.array(magnitude, f"u{kept.itemsize}").view(kept).astype(np.asarray(x).dtype)[()]
        return -found if sign else found

    _named(
        function,
        f"reduce_precision_{name}" if name else "reduce_precision",
        "x rounded to so many exponent and mantissa bits (constants), ties to even; beyond the range infinity or zero.",
    )

    def typer(*args: Any) -> Any:
        if len(args) != 3 or kind_of(types.unliteral(args[0])) != "f":
            return None
        if not all(isinstance(a, types.IntegerLiteral) for a in args[1:]):
            return None
        number = types.unliteral(args[0])
        return signature(number, number, *args[1:])

    def lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x = Value(b, args[0])
        exponent, mantissa = (a.literal_value for a in sig.args[1:])
        if not name:
            layout = LAYOUTS["float64" if str(element_type(x.type)) == "double" else "float32"]
            cut = _reduced(x.bits(), exponent, mantissa, *layout).as_float()
        else:
            to_bits, to_number, _ = STORED[name]
            bits = to_bits(x).cast("zext", I32)
            cut = to_number(
                _reduced(bits, exponent, mantissa, *LAYOUTS[name]).cast("trunc", element_type(to_bits(x).type))
            )
        # Without a bit to tell it from infinity no number is infinity.
        return select(x.is_nan(), x if mantissa > 0 else x.const(float("inf")), cut).v

    register(function, typer, lower)
    return function


# type name: the bits of infinity, beyond which those of NaN lie
INFINITY_BITS = {"float16": 0x7C00, "bfloat16": 0x7F80}
SIGN_BIT = 0x8000


def _bounds_of(x: Value, name: str, extreme: str, is_wide: bool = False) -> tuple[Value, ...] | None:
    """The bounds of a number's bits that `_extreme_of_halves` combines: those that made it, or three times its own bits.

    Bounds are those of all numbers that an extreme was taken of, so a minimum goes on with a minimum's alone: the bounds that
    a maximum was made of tell of numbers that it left out. None for a bfloat16 that was computed: to round it takes longer
    than an extreme of f32; and for an f32 (`is_wide`) that is not known to be one of 16 bits.
    """
    bounds = bounds_of(x, _made_of(name, extreme))
    if bounds is not None:
        return bounds
    to_bits, _, _ = STORED[name]
    known = code_of(x, name)
    if known is None and isinstance(x.v, ir.Constant):
        known = Value(x.b, constant(like(x.type, I16), int(np.float32(x.v.constant).astype(_dtype(name)).view(np.int16))))
    if known is None and not is_wide and name == "float16" and current_target().has_f16:
        known = to_bits(x)
    return None if known is None else (known,) * 3


def _made_of(type_name: str, extreme: str) -> str:
    """What the bounds that an extreme was made of are known by."""
    return f"{type_name}_{extreme}"


def _of_bounds(name: str, largest: bool, top: Value, last: Value, first: Value) -> Value:
    """The extreme of numbers by bounds of all their bits: see `codegen.lib.scalar_bits.maximum_of_bounds`."""
    _, to_number, _ = STORED[name]
    infinity = INFINITY_BITS[name]
    if largest:
        found = select(last.ugt(SIGN_BIT | infinity), last, select(top < 0, first, top))
    else:
        found = select(top > infinity, top, select(last < 0, last, first))
    return to_number(found)


def _by_bounds(type_name: str, name: str, x: Value, y: Value, is_wide: bool = False) -> Value | None:
    """The extreme of two numbers of 16 bits by bounds of their bits; None where these are not known."""
    one, other = (_bounds_of(v, type_name, name, is_wide) for v in (x, y))
    if one is None or other is None:
        return None
    bounds = [call(word, a, b) for word, a, b in zip(("smax", "umax", "umin"), one, other, strict=True)]
    return with_bounds(_of_bounds(type_name, name == "maximum", *bounds), _made_of(type_name, name), bounds)


def extreme(name: str, x: Value, y: Value) -> Value:
    """The maximum or minimum of two floats; of two f32 that are f16, widened, by the bounds of their bits.

    LLVM makes an extreme of f16 of those, and has no vector code for that: rows of eight took nine times as long. One with a
    constant it leaves as it is.
    """
    is_of_halves = element_type(x.type) == F32 and not any(isinstance(v.v, ir.Constant) for v in (x, y))
    found = _by_bounds("float16", name, x, y, is_wide=True) if is_of_halves and current_target().has_f16 else None
    return call(name, x, y) if found is None else found


def _extreme_of_halves(type_name: str, name: str) -> Any:
    """The maximum or minimum of two numbers of 16 bits, by bounds of their bits, which the next extreme goes on with.

    Of n numbers that takes 3 (n - 1) instructions and four in the end, each on twice as many numbers as a vector has f32. Of two
    widened f16 numbers LLVM would make an extreme of f16, which it has no vector code for: four nanoseconds an element.
    """

    def function(x: Any, y: Any) -> Any:
        return (np.maximum if name == "maximum" else np.minimum)(np.float32(x), np.float32(y))

    def emit(kind: Any, x: Value, y: Value) -> Value:
        found = _by_bounds(type_name, name, x, y)
        return call(name, x, y) if found is None else found

    doc = f"{name}(x, y) of two {type_name} numbers, which are f32 here."
    define(_named(function, f"{type_name}_{name}", doc), 2, {"f": emit})
    return function


def _extreme_of_bounds(type_name: str, name: str) -> Any:
    """`maximum_of_bounds` or `minimum_of_bounds` of the bits of numbers of 16 bits."""

    def function(top: Any, last: Any, first: Any) -> Any:
        bits = (top if top >= 0 else first) if name == "maximum" else (first if last < SIGN_BIT else last)
        numbers = [np.float32(np.asarray(v).astype(np.uint16).view(_dtype(type_name))) for v in (last, top, bits)]
        return next((x for x in numbers if x != x), numbers[-1])

    def typer(*args: Any) -> Any:
        kinds = (types.int16, types.uint16, types.uint16)
        return signature(types.float32, *kinds) if args == kinds else None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _of_bounds(type_name, name == "maximum", *[Value(builder, a) for a in args]).v

    _named(function, f"{type_name}_{name}_of_bounds", f"The {name} of {type_name} numbers by bounds of their bits.")
    register(function, typer, lower)
    return function


NAMESPACE: dict[str, Any] = {
    f.__name__: f
    for f in (
        *(make(t, e) for make in (_extreme_of_halves, _extreme_of_bounds) for t in INFINITY_BITS for e in ("maximum", "minimum")),
        *map(_bits_of, STORED),
        *map(_of_bits, STORED),
        *map(_order_key, (*narrow.NARROW_FLOATS, narrow.POWER_OF_TWO)),
        *map(_reducing, ("", "float16", "bfloat16")),
    )
}
"""bits_of_<type>, <type>_of_bits, <type>_<extreme>, <type>_<extreme>_of_bounds, total_order_key_<narrow float>, reduce_precision
(also for 16 bits)."""
