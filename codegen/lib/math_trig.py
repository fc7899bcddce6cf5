"""sin, cos, tan, the inverse and the hyperbolic functions for f32 and f64, branch-free.

sin and cos need x modulo pi/2.  With x = M 2**E, M an integer of the format's precision, only (2**E 2/pi) mod 4 matters;
a table holds it for every E in pieces short enough that their products with M are exact.  f32 reduces in f64 by that
table alone; f64 uses it above 2**20 and a three-part pi/2 below.  The table is a constant array in the kernel, read by
gathers.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from llvmlite import ir

from codegen.lib import coefficients as C
from codegen.lib.emit import (
    F32,
    F64,
    I64,
    Value,
    call,
    copysign,
    fabs,
    horner,
    mul_add,
    quick_two_sum,
    rounded_once,
    select,
    two_product,
    two_sum,
)
from codegen.lib.math_exp import exp, expm1, format_of, log, log1p, power_of_two

# 2/pi to 1280 bits, from Machin's formula in integers: pi = 16 atan(1/5) - 4 atan(1/239)
_BITS = 1280


@functools.cache
def _two_over_pi() -> int:
    """floor(2**_BITS * 2 / pi)."""
    guard = _BITS + 64

    def inverse_atan(n: int) -> int:
        total, term, k = 0, (1 << guard) // n, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term //= n * n
            k += 2
        return total

    pi = 16 * inverse_atan(5) - 4 * inverse_atan(239)
    return (2 << (guard + _BITS)) // pi


@functools.cache
def _pieces(exponent: int, widths: tuple[int, ...]) -> tuple[float, ...]:
    """(2**exponent 2/pi) mod 4 cut into pieces of the given numbers of bits, the first from bit 2**1 down."""
    value = _two_over_pi() << exponent if exponent >= 0 else _two_over_pi() >> -exponent
    value &= (4 << _BITS) - 1
    out = []
    top = _BITS + 2
    for width in widths:
        low = top - width
        piece = value >> low
        out.append(math.ldexp(float(piece), low - _BITS))
        value -= piece << low
        top = low
    return tuple(out)


_WIDTHS32 = (29, 53)
_WIDTHS64 = (26, 26, 26, 26, 53)
_FIRST64, _LAST64 = 20 - 52, 1023 - 52


def _table(module: Any, name: str, columns: list[tuple[float, ...]]) -> list[Any]:
    """Constant arrays of f64, one for each column, created once for each module."""
    arrays = []
    for k, column in enumerate(columns):
        symbol = f"tilewright.{name}.{k}"
        found = module.globals.get(symbol)
        if found is None:
            kind = ir.ArrayType(F64, len(column))
            found = ir.GlobalVariable(module, kind, symbol)
            found.global_constant = True
            found.linkage = "internal"
            found.initializer = ir.Constant(kind, [ir.Constant(F64, v) for v in column])
        arrays.append(found)
    return arrays


def _gather(array: Any, index: Value) -> Value:
    pointer = index.b.gep(array, [ir.Constant(I64, 0), index.v], inbounds=True)
    return index.wrap(index.b.load(pointer))


_MAGIC = 1.5 * 2.0**52


def _reduce32(x: Value) -> tuple[Value, Value]:
    """(k, r): x = (k + 4 j) pi/2 + r, |r| <= pi/4, r as f32; k as i32 (its low two bits count)."""
    exponent = (x.bits().lshr(23) & 0xFF) - (127 + 24)
    exponent = select(exponent > 0, exponent, exponent.const(0))
    exponent = select(exponent > 103, exponent.const(103), exponent)
    arrays = _table(x.b.module, "twoOverPi32", list(zip(*[_pieces(e, _WIDTHS32) for e in range(104)], strict=True)))
    index = exponent.cast("zext", I64)
    wide = x.cast("fpext", F64) * ((1023 - index) << 52).as_float()
    q = wide * _gather(arrays[0], index)
    low = wide * _gather(arrays[1], index)
    shifted = (q + low) + _MAGIC
    fraction = (q - (shifted - _MAGIC)) + low
    r = (fraction * (math.pi / 2)).cast("fptrunc", F32)
    return shifted.bits().cast("trunc", ir.IntType(32)), r


_P1 = float.fromhex("0x1.921fb54400000p+0")
_P2 = float.fromhex("0x1.0b4611a600000p-34")
_P3 = float.fromhex("0x1.3198a2e037073p-69")


def _modulo4(p: Value) -> Value:
    """p - 4 round(p / 4), exact."""
    magic = _MAGIC * 4
    return p - ((p + magic) - magic)


def _reduce64(x: Value) -> tuple[Value, Value, Value]:
    """(k, r, rl): x = (k + 4 j) pi/2 + r + rl with |r| <= pi/4; k as i64."""
    big = fabs(x) > 2.0**20
    near = select(big, x.const(0.0), x)
    shifted = mul_add(near, 2 / math.pi, _MAGIC)
    n = shifted - _MAGIC
    r1 = near - n * _P1
    r2, e2 = two_sum(r1, -(n * _P2))
    r, rl = quick_two_sum(r2, e2 - n * _P3)

    exponent = (x.bits().lshr(52) & 0x7FF) - (1023 + 52)
    exponent = select(exponent > _FIRST64, exponent, exponent.const(_FIRST64))
    exponent = select(exponent > _LAST64, exponent.const(_LAST64), exponent)
    rows = [_pieces(e, _WIDTHS64) for e in range(_FIRST64, _LAST64 + 1)]
    arrays = _table(x.b.module, "twoOverPi64", list(zip(*rows, strict=True)))
    index = exponent - _FIRST64
    half = exponent >> 1
    m = select(big, x, x.const(0.0)) * power_of_two(-half, format_of(x)) * power_of_two(half - exponent, format_of(x))
    head = (m.bits() & ~0x7FFFFFF).as_float()
    low = m - head
    total, error = m.const(0.0), m.const(0.0)
    for array in arrays[:4]:
        t = _gather(array, index)
        for part in (head, low):
            total, e = two_sum(total, _modulo4(part * t))
            error = error + e
    last = m * _gather(arrays[4], index)
    total, e = two_sum(total, last)
    total, error = quick_two_sum(total, error + e)
    shifted_far = total + _MAGIC
    fraction, tail = quick_two_sum(total - (shifted_far - _MAGIC), error)
    far, far_low = two_product(fraction, fraction.const(_P1 + _P2))
    far_low = far_low + mul_add(tail, math.pi / 2, fraction * 6.123233995736766e-17)
    far, far_low = quick_two_sum(far, far_low)
    k = select(big, shifted_far.bits(), shifted.bits())
    return k, select(big, far, r), select(big, far_low, rl)


def _sin_cos(x: Value, precise: bool = False) -> tuple[Value, Value, Value]:
    """(k, sin r, cos r) for the reduced argument r of x; ``precise``: the sine's last step in f32 is rounded once everywhere."""
    if format_of(x).mantissa_bits == 23:
        k, r = _reduce32(x)
        z = r * r
        sine = (rounded_once if precise else mul_add)(r * z, horner(z, C.SIN_F32), r)
        cosine = mul_add(z * z, horner(z, C.COS_F32), mul_add(z, -0.5, 1.0))
    else:
        k, r, rl = _reduce64(x)
        z = r * r
        sine = r + (mul_add(r * z, horner(z, C.SIN_F64), rl * mul_add(z, -0.5, 1.0)))
        half = z * 0.5
        w = 1.0 - half
        cosine = w + (((1.0 - w) - half) + (z * z * horner(z, C.COS_F64) - r * rl))
    return k, sine, cosine


def _edges(x: Value, y: Value) -> Value:
    """NaN for infinite and NaN x, x itself where |x| is so small that the result rounds to it."""
    return select(fabs(x) < math.inf, y, x.const(math.nan))


def sin(x: Value) -> Value:
    """The sine of x radians."""
    k, sine, cosine = _sin_cos(x)
    y = select((k & 1).ne(0), cosine, sine)
    y = select((k & 2).ne(0), -y, y)
    return _edges(x, select(fabs(x) < format_of(x).tiny, x, y))


def cos(x: Value) -> Value:
    """The cosine of x radians."""
    k, sine, cosine = _sin_cos(x)
    y = select((k & 1).ne(0), sine, cosine)
    return _edges(x, select(((k + 1) & 2).ne(0), -y, y))


def tan(x: Value) -> Value:
    """The tangent of x radians."""
    k, sine, cosine = _sin_cos(x, precise=True)
    odd = (k & 1).ne(0)
    y = select(odd, -cosine, sine) / select(odd, sine, cosine)
    return _edges(x, select(fabs(x) < format_of(x).tiny, x, y))


def _atan_quotient(ay: Value, ax: Value) -> Value:
    """atan(ay / ax) in [0, pi/2] for ay, ax >= 0, not both zero or infinite."""
    f = format_of(ay)
    low, high = ay <= ax * 0.41421356237, ay >= ax * 2.414213562373
    numerator = select(low, ay, select(high, -ax, ay - ax))
    denominator = select(low, ax, select(high, ay, ay + ax))
    z = numerator / denominator
    zero = z.const(0.0)
    base = select(low, zero, select(high, z.const(math.pi / 2), z.const(math.pi / 4)))
    if f.mantissa_bits == 23:
        high_low, quarter_low = -4.371139e-8, -2.1855695e-8
    else:
        high_low, quarter_low = 6.123233995736766e-17, 3.061616997868383e-17
    rest = select(low, zero, select(high, z.const(high_low), z.const(quarter_low)))
    table: tuple[float, ...] = C.ATAN_F32 if f.mantissa_bits == 23 else C.ATAN_F64
    square = z * z
    return base + (z + mul_add(z * square, horner(square, table), rest))


def atan(x: Value) -> Value:
    """The arc tangent."""
    a = fabs(x)
    y = _atan_quotient(a, a.const(1.0))
    return copysign(select(a < format_of(x).tiny, a, y), x)


def atan2(y: Value, x: Value) -> Value:
    """The angle of (x, y)."""
    f = format_of(x)
    ay, ax = fabs(y), fabs(x)
    both = (ay.eq(math.inf) & ax.eq(math.inf)) | (ay.eq(0.0) & ax.eq(0.0))
    zero = ay.eq(0.0) & ax.eq(0.0)
    huge = (ay > 2.0 ** (f.bias - 1)) | (ax > 2.0 ** (f.bias - 1))
    small = (ay < f.tiny * 2.0**30) & (ax < f.tiny * 2.0**30)
    scale = select(huge, x.const(0.25), select(small, x.const(2.0**60), x.const(1.0)))
    ay = select(both, select(zero, x.const(0.0), x.const(1.0)), ay * scale)
    ax = select(both, x.const(1.0), ax * scale)
    r = _atan_quotient(ay, ax)
    negative = x.bits() < 0
    pi_low = -8.7422777e-8 if f.mantissa_bits == 23 else 1.2246467991473532e-16
    r = select(negative, math.pi - (r - pi_low), r)
    r = select(x.is_nan() | y.is_nan(), x.const(math.nan), r)
    return copysign(r, y)


def _asin_pair(x: Value) -> tuple[Value, Value, Value]:
    """(|x| >= 1/2, s, p): asin(s) = s + p, where s = |x| below 1/2 and sqrt((1 - |x|) / 2) above."""
    a = fabs(x)
    large = a >= 0.5
    z = select(large, (1.0 - a) * 0.5, a * a)
    s = select(large, call("sqrt", z), a)
    return large, s, s * z * horner(z, C.ASIN_F32 if format_of(x).mantissa_bits == 23 else C.ASIN_F64)


def asin(x: Value) -> Value:
    """The arc sine; NaN outside [-1, 1]."""
    large, s, p = _asin_pair(x)
    low = -4.371139e-8 if format_of(x).mantissa_bits == 23 else 6.123233995736766e-17
    y = select(large, math.pi / 2 - (s * 2.0 + (p * 2.0 - low)), s + p)
    return copysign(select(fabs(x) < format_of(x).tiny, s, y), x)


def acos(x: Value) -> Value:
    """The arc cosine; NaN outside [-1, 1]."""
    large, s, p = _asin_pair(x)
    single = format_of(x).mantissa_bits == 23
    low, pi_low = (-4.371139e-8, -8.7422777e-8) if single else (6.123233995736766e-17, 1.2246467991473532e-16)
    signed, signed_p = copysign(s, x), copysign(p, x)
    middle = math.pi / 2 - (signed - (low - signed_p))
    outer = select(x < 0.0, math.pi - (s * 2.0 + (p * 2.0 - pi_low)), (s + p) * 2.0)
    return select(large, outer, middle)


def _half_exp(a: Value) -> Value:
    """exp(a) / 2 without an intermediate overflow."""
    f = format_of(a)
    # inf - inf in the sum's error would be NaN; one above exp's limit still overflows
    a = select(a > f.exp_max + 1.0, f.exp_max + 1.0, a)
    s, e = two_sum(a, a.const(-f.ln2_hi))
    return exp(s, e - f.ln2_lo)


def sinh(x: Value) -> Value:
    """The hyperbolic sine."""
    a = fabs(x)
    e = expm1(select(a < 1.0, a, a.const(1.0)))
    small = (e + e / (e + 1.0)) * 0.5
    half = _half_exp(a)
    return copysign(select(a < 1.0, small, half - 0.25 / half), x)


def cosh(x: Value) -> Value:
    """The hyperbolic cosine."""
    half = _half_exp(fabs(x))
    return half + 0.25 / half


def asinh(x: Value) -> Value:
    """The inverse hyperbolic sine."""
    a = fabs(x)
    large = a > 2.0**28
    b = select(large, a.const(1.0), a)
    square = b * b
    small = log1p(b + square / (call("sqrt", square + 1.0) + 1.0))
    return copysign(select(large, log(a) + math.log(2.0), small), x)


def acosh(x: Value) -> Value:
    """The inverse hyperbolic cosine; NaN below 1."""
    large = x > 2.0**28
    t = select(large, x.const(1.0), x) - 1.0
    small = log1p(t + call("sqrt", t * (t + 2.0)))
    y = select(large, log(x) + math.log(2.0), small)
    return select(x < 1.0, x.const(math.nan), y)


def atanh(x: Value) -> Value:
    """The inverse hyperbolic tangent; infinite at -1 and 1, NaN outside."""
    a = fabs(x)
    return copysign(log1p(a * 2.0 / (1.0 - a)) * 0.5, x)
