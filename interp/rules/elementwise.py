"""Elementwise ops: out[d] = f(operand_0[d], …), rounded once.

Types of at most 32 bits are computed in a wider type (floats of 32 bits and transcendental functions in float64), so
that a result is the nearest value of its type, or its neighbour in the rarest of cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hlo import Op
from interp import complexes, special
from interp.numbers import (
    Array,
    bits_of,
    convert,
    is_complex,
    is_float,
    is_signed,
    narrow,
    reduce_bits,
    total_order_key,
    widen,
)
from interp.registry import rule

__all__: list[str] = []

Unary = Callable[[Array], Array]
Binary = Callable[[Array, Array], Array]

# ---------------------------------------------------------------- functions of one variable


def in_float64(x: Array, real: Unary, complex_: Unary | None = None) -> Array:
    """`real` in float64, or `complex_` in complex128, rounded to the type of `x`."""
    if is_complex(x.dtype):
        assert complex_ is not None
        return np.asarray(complex_(x.astype(np.complex128))).astype(x.dtype)
    return narrow(np.asarray(real(widen(x).astype(np.float64))), x.dtype)


def _transcendental(name: str, real: Unary, complex_: Unary | None = None) -> None:
    @rule(name, elementwise=True)
    def evaluate(ctx: Any, op: Op, x: Array) -> Array:
        return in_float64(x, real, complex_)


for _name, _real, _complex in (
    ("cbrt", np.cbrt, complexes.cbrt),
    ("cosine", np.cos, complexes.cos),
    ("exponential", np.exp, complexes.exp),
    ("exponential_minus_one", np.expm1, complexes.expm1),
    ("log", np.log, complexes.log),
    ("log_plus_one", np.log1p, complexes.log1p),
    ("logistic", special.logistic, complexes.logistic),
    ("rsqrt", lambda x: 1.0 / np.sqrt(x), complexes.rsqrt),
    ("sine", np.sin, complexes.sin),
    ("sqrt", np.sqrt, complexes.sqrt),
    ("tan", np.tan, np.tan),
    ("tanh", np.tanh, complexes.tanh),
):
    _transcendental(f"stablehlo.{_name}", _real, _complex)


@rule("chlo.square", elementwise=True)
def square(ctx: Any, op: Op, x: Array) -> Array:
    return in_float64(x, np.square, complexes.square) if is_complex(x.dtype) else narrow(widen(x) * widen(x), x.dtype)


@rule("stablehlo.abs", elementwise=True)
def abs_(ctx: Any, op: Op, x: Array) -> Array:
    if is_complex(x.dtype):
        return np.asarray(np.abs(x.astype(np.complex128)).astype(x.real.dtype))
    return narrow(np.abs(widen(x)), x.dtype)


@rule("stablehlo.negate", elementwise=True)
def negate(ctx: Any, op: Op, x: Array) -> Array:
    return narrow(np.negative(widen(x)), x.dtype)


@rule("stablehlo.sign", elementwise=True)
def sign(ctx: Any, op: Op, x: Array) -> Array:
    """x / |x|; zeros (with their sign) and NaN stay."""
    if is_complex(x.dtype):
        return complexes.sign(x.astype(np.complex128)).astype(x.dtype)
    y = widen(x)
    return narrow(np.where((y == 0) | (y != y), y, np.sign(y)).astype(y.dtype), x.dtype)


def _rounding(name: str, function: Unary) -> None:
    @rule(f"stablehlo.{name}", elementwise=True)
    def evaluate(ctx: Any, op: Op, x: Array) -> Array:
        return narrow(function(widen(x)), x.dtype)


def _half_away_from_zero(x: Array) -> Array:
    whole = np.trunc(x)
    return np.asarray(np.copysign(np.abs(whole) + (np.abs(x - whole) >= 0.5), x).astype(x.dtype))


_rounding("ceil", np.ceil)
_rounding("floor", np.floor)
_rounding("round_nearest_even", np.rint)
_rounding("round_nearest_afz", _half_away_from_zero)


@rule("stablehlo.is_finite", elementwise=True)
def is_finite(ctx: Any, op: Op, x: Array) -> Array:
    return np.isfinite(widen(x))


@rule("stablehlo.not", elementwise=True)
def not_(ctx: Any, op: Op, x: Array) -> Array:
    return narrow(np.invert(widen(x)), x.dtype)


def _unsigned(x: Array) -> Array:
    """The bits of integers, those of narrow types without their sign extension."""
    y = widen(x)
    bits = y.view(f"u{y.dtype.itemsize}")
    width = bits_of(x.dtype)
    return bits if width == 8 * y.dtype.itemsize else bits & bits.dtype.type((1 << width) - 1)


@rule("stablehlo.popcnt", elementwise=True)
def popcnt(ctx: Any, op: Op, x: Array) -> Array:
    return convert(np.bitwise_count(_unsigned(x)), x.dtype)


@rule("stablehlo.count_leading_zeros", elementwise=True)
def count_leading_zeros(ctx: Any, op: Op, x: Array) -> Array:
    bits = _unsigned(x)
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < 8 * bits.dtype.itemsize:
            bits = bits | (bits >> bits.dtype.type(shift))  # every bit below the highest set one
    return convert(bits_of(x.dtype) - np.bitwise_count(bits).astype(np.int64), x.dtype)


# ---------------------------------------------------------------- functions of two variables


def _arithmetic(name: str, on_numbers: Binary, on_booleans: Binary | None = None) -> None:
    @rule(f"stablehlo.{name}", elementwise=True)
    def evaluate(ctx: Any, op: Op, x: Array, y: Array) -> Array:
        if on_booleans is not None and x.dtype.kind == "b":
            return on_booleans(x, y)
        return narrow(on_numbers(widen(x), widen(y)), x.dtype)


def complex_multiply(x: Array, y: Array) -> Array:
    """(a + bi)(c + di) = (ac - bd) + (ad + bc)i, every product and sum rounded in the parts' type."""
    out = np.empty(np.broadcast_shapes(x.shape, y.shape), x.dtype)
    out.real = x.real * y.real - x.imag * y.imag
    out.imag = x.real * y.imag + x.imag * y.real
    return out


def _multiply(x: Array, y: Array) -> Array:
    return complex_multiply(x, y) if is_complex(x.dtype) else np.multiply(x, y)


_arithmetic("add", np.add, np.logical_or)
_arithmetic("subtract", np.subtract)
_arithmetic("multiply", _multiply, np.logical_and)
_arithmetic("and", np.bitwise_and)
_arithmetic("or", np.bitwise_or)
_arithmetic("xor", np.bitwise_xor)


def lexicographic_less(x: Array, y: Array) -> Array:
    """Complex x before y: by real part, then by imaginary part."""
    return np.asarray((x.real < y.real) | ((x.real == y.real) & (x.imag < y.imag)))


def _maximum(x: Array, y: Array) -> Array:
    """The larger; NaN if either is; +0 above -0."""
    if is_complex(x.dtype):
        return np.where(lexicographic_less(x, y), y, x)
    larger = np.maximum(x, y)
    return np.where((x == 0) & (y == 0), x + y, larger) if x.dtype.kind == "f" else larger


def _minimum(x: Array, y: Array) -> Array:
    """The smaller; NaN if either is; -0 below +0."""
    if is_complex(x.dtype):
        return np.where(lexicographic_less(y, x), y, x)
    smaller = np.minimum(x, y)
    return np.where((x == 0) & (y == 0), -((-x) + (-y)), smaller) if x.dtype.kind == "f" else smaller


_arithmetic("maximum", _maximum)
_arithmetic("minimum", _minimum)


@rule("stablehlo.clamp", elementwise=True)
def clamp(ctx: Any, op: Op, low: Array, x: Array, high: Array) -> Array:
    return narrow(_minimum(_maximum(widen(x), widen(low)), widen(high)), x.dtype)


def _divide(x: Array, y: Array) -> Array:
    """Integers: towards zero; by zero: all bits set; the least value by -1: itself."""
    if is_complex(x.dtype):
        return complexes.divide(x, y)
    if x.dtype.kind == "f":
        return np.divide(x, y)
    zero = y == 0
    if not is_signed(x.dtype):
        return np.where(zero, x.dtype.type(np.iinfo(x.dtype).max), x // np.where(zero, x.dtype.type(1), y))
    minus = y == -1  # the one divisor that can overflow
    safe = np.where(zero | minus, x.dtype.type(1), y)
    quotient = x // safe
    quotient = quotient + ((x - quotient * safe != 0) & ((x < 0) != (safe < 0))).astype(x.dtype)
    return np.where(zero, x.dtype.type(-1), np.where(minus, np.negative(x), quotient))


def _remainder(x: Array, y: Array) -> Array:
    """x - y * trunc(x / y), with the sign of x; integers: x where y is 0."""
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    trivial = (y == 0) | (y == -1) if is_signed(x.dtype) else y == 0
    rest = np.fmod(x, np.where(trivial, x.dtype.type(1), y))
    return np.where(trivial, np.where(y == 0, x, x.dtype.type(0)), rest)


_arithmetic("divide", _divide)


@rule("stablehlo.remainder", elementwise=True)
def remainder(ctx: Any, op: Op, x: Array, y: Array) -> Array:
    if is_complex(x.dtype):
        raise ctx.error(op, "declined: the specification leaves the remainder of complex numbers open")
    return narrow(_remainder(widen(x), widen(y)), x.dtype)



@rule("stablehlo.power", elementwise=True)
def power(ctx: Any, op: Op, x: Array, y: Array) -> Array:
    if is_float(x.dtype):
        if x.dtype.itemsize < 8 and y.size and not any(y.strides) and y.flat[0] == 2:  # the square is exact in float64
            wide = widen(x).astype(np.float64)
            return narrow(wide * wide, x.dtype)
        return narrow(np.power(widen(x).astype(np.float64), widen(y).astype(np.float64)), x.dtype)
    if is_complex(x.dtype):
        return complexes.power(x.astype(np.complex128), y.astype(np.complex128)).astype(x.dtype)
    base, exponent = widen(x), widen(y)
    result, square_, rest = np.ones_like(base + exponent), base, exponent
    for _ in range(bits_of(x.dtype)):  # a product of the squares x**1, x**2, x**4, … modulo 2**bits
        result = np.where(rest & rest.dtype.type(1), result * square_, result)
        square_, rest = square_ * square_, rest >> rest.dtype.type(1)
    if is_signed(x.dtype):
        odd = (exponent & 1) != 0
        inverse = np.where(base == 1, 1, np.where(base == -1, np.where(odd, -1, 1), 0)).astype(base.dtype)
        result = np.where(exponent < 0, inverse, result)
    return narrow(result, x.dtype)


@rule("stablehlo.atan2", elementwise=True)
def atan2(ctx: Any, op: Op, y: Array, x: Array) -> Array:
    if is_complex(x.dtype):
        return complexes.atan2(y.astype(np.complex128), x.astype(np.complex128)).astype(x.dtype)
    return narrow(np.arctan2(widen(y).astype(np.float64), widen(x).astype(np.float64)), x.dtype)


def _shift(name: str, arithmetic: bool, left: bool) -> None:
    @rule(f"stablehlo.{name}", elementwise=True)
    def evaluate(ctx: Any, op: Op, x: Array, amount: Array) -> Array:
        width = bits_of(x.dtype)
        n, count = _unsigned(x), _unsigned(amount)
        over = count >= width
        count = np.where(over, count.dtype.type(width - 1 if arithmetic else 0), count)
        if arithmetic and is_signed(x.dtype):
            return narrow(widen(x) >> count.astype(widen(x).dtype), x.dtype)
        moved = n << count if left else n >> count
        if not arithmetic:
            moved = np.where(over, moved.dtype.type(0), moved)
        elif not is_signed(x.dtype):
            moved = _sign_filled(n, count, width)
        return convert(np.asarray(moved), x.dtype)


def _sign_filled(n: Array, count: Array, width: int) -> Array:
    """An arithmetic shift to the right of unsigned bits, the highest of `width` taken as the sign."""
    top = ((n >> n.dtype.type(width - 1)) & n.dtype.type(1)).astype(bool)
    ones = n.dtype.type((1 << width) - 1)
    return np.where(top, ~((~n & ones) >> count) & ones, n >> count)


_shift("shift_left", arithmetic=False, left=True)
_shift("shift_right_logical", arithmetic=False, left=False)
_shift("shift_right_arithmetic", arithmetic=True, left=False)

# ---------------------------------------------------------------- those whose result type differs

_DIRECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal, "LT": np.less,
}  # fmt: skip


def _compare_complex(direction: str, x: Array, y: Array) -> Array:
    """By real part, then by imaginary part."""
    if direction in ("GT", "GE"):
        return _compare_complex("LT" if direction == "GT" else "LE", y, x)
    less = lexicographic_less(x, y)
    return less if direction == "LT" else np.asarray(less | (x == y))


@rule("stablehlo.compare", elementwise=True)
def compare(ctx: Any, op: Op, x: Array, y: Array) -> Array:
    direction = op.attr("comparison_direction")
    if is_complex(x.dtype) and direction not in ("EQ", "NE"):
        return _compare_complex(direction, x, y)
    if op.attr("compare_type") == "TOTALORDER" and is_float(x.dtype):
        x, y = total_order_key(x), total_order_key(y)
    return np.asarray(_DIRECTIONS[direction](widen(x), widen(y)))


@rule("stablehlo.select", elementwise=True)
def select(ctx: Any, op: Op, pred: Array, on_true: Array, on_false: Array) -> Array:
    return np.where(pred, on_true, on_false)


@rule("stablehlo.convert", elementwise=True)
def convert_(ctx: Any, op: Op, x: Array) -> Array:
    return convert(x, op.results[0].tensor.dtype)


@rule("stablehlo.real", elementwise=True)
def real(ctx: Any, op: Op, x: Array) -> Array:
    return np.ascontiguousarray(x.real).reshape(x.shape)


@rule("stablehlo.imag", elementwise=True)
def imag(ctx: Any, op: Op, x: Array) -> Array:
    if is_complex(x.dtype):
        return np.ascontiguousarray(x.imag).reshape(x.shape)
    return narrow(np.zeros_like(widen(x)), x.dtype)  # NaN in the type that has no zero


@rule("stablehlo.complex", elementwise=True)
def complex_(ctx: Any, op: Op, re: Array, im: Array) -> Array:
    out = np.empty(np.broadcast_shapes(re.shape, im.shape), op.results[0].tensor.dtype)
    out.real, out.imag = re, im
    return out


@rule("stablehlo.reduce_precision", elementwise=True)
def reduce_precision(ctx: Any, op: Op, x: Array) -> Array:
    """Rounded to `mantissa_bits`, ties to even; beyond the range of `exponent_bits`: infinity or zero. NaN stays."""
    e, m = op.attr("exponent_bits"), op.attr("mantissa_bits")
    if x.dtype.itemsize == 1:
        return narrow(reduce_bits(widen(x), e, m, 8, 23), x.dtype)
    have_e, have_m = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}[x.dtype.name]
    return reduce_bits(x, e, m, have_e, have_m)
