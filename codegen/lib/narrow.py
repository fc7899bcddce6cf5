"""Element types of a byte and less: how f32 and int8 values become their codes and codes become values again.

A narrow float is stored in a byte and computed in f32, a 2- or 4-bit integer in a byte and computed in (u)int8. Everything
is branch-free integer arithmetic, which vectorises; rounding is to nearest even, overflow is each format's own.

    value = (-1)**sign * 2**(exponent - bias) * (1 + mantissa / 2**m)      exponent > 0
            (-1)**sign * 2**(1 - bias) * mantissa / 2**m                   exponent = 0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.lib.emit import F32, I8, I32, Value, code_of, select, with_code
from codegen.lib.register import define

__all__ = ["NARROW_FLOATS", "NARROW_INTEGERS", "NarrowFloat", "narrow_code", "widen_code", "wrap_bits"]


@dataclass(frozen=True)
class NarrowFloat:
    """A float format of at most 8 bits with a sign, by the codes of its magnitudes.

    `greatest` is the largest finite magnitude's code, `overflow` what lies beyond becomes, `nan` what NaN becomes (both
    without the sign). `has_negative_zero` is false for the formats whose code of -0 is their one NaN. `has_nan` is false for
    those that have neither NaN nor infinity: there NaN becomes a zero of the other sign.
    """

    bits: int
    mantissa: int
    bias: int
    greatest: int
    overflow: int
    nan: int
    has_negative_zero: bool = True
    has_nan: bool = True

    @property
    def has_infinity(self) -> bool:
        """True when infinity and several NaNs lie beyond the greatest number; else one NaN does, or nothing."""
        return self.has_nan and self.overflow < self.nan


# name (as ml_dtypes has it): format; float8_e8m0fnu, which has neither sign nor mantissa, is apart
NARROW_FLOATS: dict[str, NarrowFloat] = {
    "float4_e2m1fn": NarrowFloat(4, 1, 1, 0x07, 0x07, 0x08, has_nan=False),
    "float6_e2m3fn": NarrowFloat(6, 3, 1, 0x1F, 0x1F, 0x20, has_nan=False),
    "float6_e3m2fn": NarrowFloat(6, 2, 3, 0x1F, 0x1F, 0x20, has_nan=False),
    "float8_e3m4": NarrowFloat(8, 4, 3, 0x6F, 0x70, 0x78),
    "float8_e4m3": NarrowFloat(8, 3, 7, 0x77, 0x78, 0x7C),
    "float8_e4m3fn": NarrowFloat(8, 3, 7, 0x7E, 0x7F, 0x7F),
    "float8_e4m3fnuz": NarrowFloat(8, 3, 8, 0x7F, 0x80, 0x80, has_negative_zero=False),
    "float8_e4m3b11fnuz": NarrowFloat(8, 3, 11, 0x7F, 0x80, 0x80, has_negative_zero=False),
    "float8_e5m2": NarrowFloat(8, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": NarrowFloat(8, 2, 16, 0x7F, 0x80, 0x80, has_negative_zero=False),
}
POWER_OF_TWO = "float8_e8m0fnu"
NARROW_INTEGERS: dict[str, tuple[int, bool]] = {
    "int2": (2, True),
    "int4": (4, True),
    "uint2": (2, False),
    "uint4": (4, False),
}
"""Name: bits, signed."""


def widen_code(name: str, code: Value) -> Value:
    """The f32 that a narrow float's byte stands for, exact."""
    return with_code(_widened(name, code), name, code)


def _widened(name: str, code: Value) -> Value:
    wide = code.cast("zext", I32)
    if name == POWER_OF_TWO:
        value = select(wide.eq(0), wide.const(0x00400000), wide << 23)
        return select(wide.eq(0xFF), wide.const(0x7FC00000), value).as_float()
    f = NARROW_FLOATS[name]
    sign_bit = 1 << (f.bits - 1)
    sign = (wide & sign_bit) << (32 - f.bits)
    magnitude = wide & (sign_bit - 1)
    normal = (magnitude << (23 - f.mantissa)) + ((127 - f.bias) << 23)
    denormal = (magnitude.cast("sitofp", F32) * 2.0 ** (1 - f.bias - f.mantissa)).bits()
    value = select(magnitude < (1 << f.mantissa), denormal, normal)
    if not f.has_negative_zero:
        return select(wide.eq(0x80), wide.const(0x7FC00000), value | sign).as_float()
    if f.has_infinity:  # beyond all numbers: an infinity, or a NaN with the code's payload
        value = select(magnitude < f.overflow, value, (magnitude << (23 - f.mantissa)) | 0x7F800000)
    elif f.has_nan:
        value = select(magnitude > f.greatest, value.const(0x7FC00000), value)
    return (value | sign).as_float()


def narrow_code(name: str, x: Value) -> Value:
    """The byte of the number of a narrow float type that is nearest to the f32 x, ties to even."""
    known = code_of(x, name)
    if known is not None:
        return known
    bits = x.bits()
    if name == POWER_OF_TWO:
        normal = (bits + 0x3FFFFF + (bits.lshr(23) & 1)).lshr(23)
        code = select(bits < 0x00800000, select(bits > 0x00600000, bits.const(1), bits.const(0)), normal)
        # what is negative, zero, too large or NaN
        return select((bits > 0) & (bits < 0x7F800000), code, bits.const(0xFF)).cast("trunc", I8)
    f = NARROW_FLOATS[name]
    magnitude = bits & 0x7FFFFFFF
    shift = 23 - f.mantissa
    normal = (magnitude + ((1 << (shift - 1)) - 1) + (magnitude.lshr(shift) & 1)).lshr(shift) - (
        (127 - f.bias) << f.mantissa
    )
    # adding a number whose last bit is the format's smallest one makes the FPU round at that place
    aligner = 2.0 ** (1 - f.bias - f.mantissa + 23)
    tiny = (magnitude.as_float() + aligner).bits() - int(np.float32(aligner).view(np.int32))
    code = select(magnitude < ((128 - f.bias) << 23), tiny, normal)
    code = select(code > f.greatest, code.const(f.overflow), code)
    sign = bits.lshr(31) << (f.bits - 1)
    nan = x.is_nan()
    if not f.has_negative_zero:
        code = select(code.eq(0), code, code | sign)
        return select(nan, code.const(f.nan), code).cast("trunc", I8)
    if not f.has_nan:
        return select(nan, sign ^ f.nan, code | sign).cast("trunc", I8)
    quiet = code.const(f.nan)
    if f.has_infinity:
        payload = magnitude.lshr(shift) & ((1 << f.mantissa) - 1)
        quiet = select(payload.eq(0), quiet, payload | f.overflow)
    return (select(nan, quiet, code) | sign).cast("trunc", I8)


def wrap_bits(name: str, x: Value) -> Value:
    """An (u)int8 modulo 2**bits, as the narrow integer type `name` reads it."""
    bits, signed = NARROW_INTEGERS[name]
    return (x << (8 - bits)) >> (8 - bits) if signed else x & ((1 << bits) - 1)


def _rounding(name: str) -> Any:
    def function(x: Any) -> Any:
        import ml_dtypes

        return np.float32(np.float32(x).astype(getattr(ml_dtypes, name)))

    function.__name__ = function.__qualname__ = f"round_{name}"
    function.__doc__ = f"x (f32) rounded to the nearest {name}, ties to even, still an f32."
    define(function, 1, {"f": lambda kind, x: widen_code(name, narrow_code(name, x))})
    return function


def _wrapping(name: str) -> Any:
    bits, signed = NARROW_INTEGERS[name]

    def function(x: Any) -> Any:
        low = int(x) & ((1 << bits) - 1)
        return np.asarray(x).dtype.type(low - (1 << bits) if signed and low >> (bits - 1) else low)

    function.__name__ = function.__qualname__ = f"wrap_{name}"
    function.__doc__ = f"An {'' if signed else 'u'}int8 modulo 2**{bits}, in the range of {name}."
    define(function, 1, {"iu": lambda kind, x: wrap_bits(name, x)})
    return function


NAMESPACE: dict[str, Any] = {f.__name__: f for f in (*map(_rounding, (*NARROW_FLOATS, POWER_OF_TWO)),
                                                     *map(_wrapping, NARROW_INTEGERS))}  # fmt: skip
"""round_<narrow float> and wrap_<narrow integer>."""
