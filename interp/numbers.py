"""Element types as numbers: which NumPy type computes for each, and conversions that round once.

NumPy knows neither bfloat16 nor f8, f6, f4 nor 2- and 4-bit integers; `ml_dtypes` stores them. Here they are
*widened* to a type that holds them exactly, computed on, and *narrowed* again: one rounding (to nearest, ties to even)
for each op.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

__all__ = [
    "Array",
    "bits_of",
    "convert",
    "is_complex",
    "is_float",
    "is_integer",
    "is_signed",
    "narrow",
    "reduce_bits",
    "total_order_key",
    "widen",
]

Array = np.ndarray[Any, np.dtype[Any]]

_SMALL_FLOATS = {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in (
        "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3fn",
        "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "bfloat16",
    )
}  # fmt: skip
_SMALL_INTEGERS = {name: np.dtype(getattr(ml_dtypes, name)) for name in ("int2", "int4", "uint2", "uint4")}
_WIDE: dict[Any, np.dtype[Any]] = {d: np.dtype(np.float32) for d in _SMALL_FLOATS.values()}
_WIDE[np.dtype(np.float16)] = np.dtype(np.float32)
for _name, _dtype in _SMALL_INTEGERS.items():
    _WIDE[_dtype] = np.dtype(np.uint8 if _name.startswith("u") else np.int8)


def is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name in _SMALL_FLOATS


def is_complex(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "c"


def is_integer(dtype: np.dtype[Any]) -> bool:
    """True for signed and unsigned integers, not for booleans."""
    return dtype.kind in "iu" or dtype.name in _SMALL_INTEGERS


def is_signed(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "i" or dtype.name in ("int2", "int4")


def bits_of(dtype: np.dtype[Any]) -> int:
    """Width of an element in bits: 1 for booleans, 4 for int4 (which occupies a byte in NumPy).

    >>> bits_of(np.dtype(ml_dtypes.int4)), bits_of(np.dtype(np.float32)), bits_of(np.dtype(bool))
    (4, 32, 1)
    """
    if dtype.kind == "b":
        return 1
    if dtype.name in _SMALL_INTEGERS:
        return int(dtype.name[-1])
    if dtype.name.startswith(("float4_", "float6_")):
        return int(dtype.name[5])
    return 8 * dtype.itemsize


def integer_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    bits = bits_of(dtype)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed(dtype) else (0, (1 << bits) - 1)


def widen(x: Array) -> Array:
    """`x` in the type that computes for it: small floats and f16 as float32, 2- and 4-bit integers as 8-bit ones."""
    wide = _WIDE.get(x.dtype)
    return x if wide is None else x.astype(wide)


def narrow(x: Array, dtype: np.dtype[Any]) -> Array:
    """`x` as `dtype`: floats are rounded to nearest even, integers wrap around. The kinds must agree."""
    if x.dtype == dtype:
        return x
    if is_float(dtype):
        return _round(x, dtype)
    return x.astype(dtype)


def _to_odd(x: Array) -> Array:
    """float64 -> float32, inexact values rounded to the neighbour with an odd last bit.

    Rounding that again to any type of at most 22 significant bits gives what one rounding would have given.
    """
    y = np.atleast_1d(x).astype(np.float32)
    back = y.astype(np.float64)
    bits = y.view(np.uint32)
    bits -= (np.abs(back) > np.abs(x)).astype(np.uint32)
    bits |= ((back != x) & (x == x)).astype(np.uint32)
    return bits.view(np.float32).reshape(x.shape)


def _round(x: Array, dtype: np.dtype[Any]) -> Array:
    """A float array rounded once to the float type `dtype`."""
    x = np.asarray(x)
    if dtype.itemsize >= 4 or x.dtype == dtype:
        return x.astype(dtype, copy=False)
    if dtype.name == "float8_e8m0fnu":
        return _to_power_of_two(x)
    if x.dtype == np.float64:
        return _to_odd(x).astype(dtype)
    return x.astype(np.float32, copy=False).astype(dtype)


def _to_power_of_two(x: Array) -> Array:
    """The nearest of 2**-127 … 2**127, as float8_e8m0fnu; NaN for what is negative, zero, too large or NaN."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    code = np.where(np.isfinite(x) & (x > 0), exponent + 126, 255)
    up = (mantissa > 0.75) | ((mantissa == 0.75) & (code % 2 == 1))
    code = np.clip(code + (up & (code < 255)), 0, 255)
    return np.asarray(code.astype(np.uint8).view(_SMALL_FLOATS["float8_e8m0fnu"]).reshape(x.shape))


def convert(x: Array, dtype: np.dtype[Any]) -> Array:
    """Element by element to another type.

    to boolean        x != 0 (a NaN is true; a complex number's imaginary part is ignored)
    integer, integer  wraps around
    float -> integer  truncates; beyond the range: the nearest end of it; NaN: 0
    anything -> float rounded once to nearest even
    complex -> real   the real part

    Specification: convert.

    >>> convert(np.array([1.9, -300.0, np.nan]), np.dtype(np.int8))
    array([   1, -128,    0], dtype=int8)
    """
    if x.dtype == dtype:
        return x
    if is_complex(x.dtype):
        return x.astype(dtype) if is_complex(dtype) else convert(x.real, dtype)
    x = widen(x.astype(np.uint8) if x.dtype.kind == "b" else x)
    if dtype.kind == "b":
        return np.asarray(x != 0)
    if is_complex(dtype):
        parts = np.zeros(x.shape, dtype)
        parts.real = convert(x, np.dtype(np.float32 if dtype.itemsize == 8 else np.float64))
        return parts
    if is_float(dtype):
        if x.dtype.kind == "f":
            return _round(x, dtype)
        return x.astype(dtype) if dtype.itemsize >= 4 else _round(_sticky_float64(x), dtype)
    if x.dtype.kind == "f":
        return _truncate(x, dtype)
    return _wrap(x, dtype)


def _wrap(x: Array, dtype: np.dtype[Any]) -> Array:
    """An integer array modulo 2**bits."""
    if dtype.kind in "iu":
        return x.astype(dtype)
    return x.astype(np.uint8).view(np.int8 if is_signed(dtype) else np.uint8).astype(dtype)


def _sticky_float64(x: Array) -> Array:
    """Integers as float64. Where 53 bits do not suffice, the lost bits leave a mark that a later rounding respects."""
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)
    low = x.dtype.type(0xFFF)
    marked = (x & ~low) | (((x & low) != 0).astype(x.dtype) << x.dtype.type(11))
    direct = x.astype(np.float64)
    return np.asarray(np.where(np.abs(direct) >= 2.0**53, marked.astype(np.float64), direct))


def _truncate(x: Array, dtype: np.dtype[Any]) -> Array:
    """A float array towards zero into an integer type; ends of the range absorb what lies beyond, NaN becomes 0."""
    lo, hi = integer_range(dtype)
    x = np.trunc(x.astype(np.float64))
    storage = _WIDE.get(dtype, dtype)
    inside = np.where((x > lo) & (x < float(hi)), x, 0.0).astype(storage)
    ends = np.where(x >= float(hi), storage.type(hi), np.where(x <= lo, storage.type(lo), inside))
    return np.asarray(ends).astype(dtype)


def total_order_key(x: Array) -> Array:
    """Signed integers that are ordered as IEEE totalOrder orders `x`: -NaN < -inf < … < -0 < +0 < … < +inf < +NaN."""
    width = x.dtype.itemsize
    if x.dtype.name == "float8_e8m0fnu":  # has no sign bit
        return np.ascontiguousarray(x).view(np.uint8).astype(np.int16)
    signed = np.ascontiguousarray(x).view(f"i{width}")
    if bits_of(x.dtype) < 8 * width:  # f4 and f6 leave the upper bits of their byte clear
        shift = 8 * width - bits_of(x.dtype)
        signed = signed << np.int8(shift)
    negative = signed < 0
    return np.asarray(np.where(negative, ~signed ^ np.iinfo(signed.dtype).min, signed)).reshape(x.shape)


def reduce_bits(x: Array, e: int, m: int, have_e: int, have_m: int) -> Array:
    """`x` of `have_e` exponent and `have_m` mantissa bits, cut to `e` and `m`, on its bits."""
    bits = np.ascontiguousarray(x).reshape(x.shape).view(f"u{x.dtype.itemsize}")
    of = bits.dtype.type
    sign = bits & of(1 << (have_e + have_m))
    magnitude = bits ^ sign
    if m < have_m:
        last = of(have_m - m)
        half = of((1 << (have_m - m - 1)) - 1)
        magnitude = ((magnitude + half + ((magnitude >> last) & of(1))) >> last) << last
    if e < have_e:
        bias, own_bias = (1 << (e - 1)) - 1, (1 << (have_e - 1)) - 1
        exponent = magnitude >> of(have_m)
        infinity = of(((1 << have_e) - 1) << have_m)
        magnitude = np.where(exponent > own_bias + bias, infinity, magnitude)
        magnitude = np.where(exponent <= own_bias - bias, of(0), magnitude)
    nan = x if m > 0 else np.asarray(np.inf, x.dtype)  # without a bit to tell it from infinity it is that, as in the reference
    return np.where(np.isnan(x), nan, np.asarray(magnitude | sign).view(x.dtype))
