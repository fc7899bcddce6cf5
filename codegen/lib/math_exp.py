"""exp, expm1, log, log1p, tanh, logistic, pow and their kin for f32 and f64, branch-free so that loops vectorise.

Method, with n an integer and s = 2**n:

- exp(x) = s exp(r) with r = x - n ln 2, |r| <= ln 2 / 2, ln 2 split in two so that r is exact to well below an ulp; the
  scaling is one instruction, or done in two steps: results down to the smallest denormal are rounded once.
- expm1(x) = s expm1(r) + (s - 1).
- log(x) = n ln 2 + log(m), sqrt(1/2) <= m < sqrt(2): a polynomial in m - 1 for f32, the atanh series for f64.
- pow(x, y) = exp(y log x), the logarithm in f64 for f32 and in double-double for f64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from llvmlite import ir

from codegen.lib import coefficients as C
from codegen.lib.emit import (
    F32,
    F64,
    I32,
    Value,
    call,
    copysign,
    element_type,
    fabs,
    horner,
    intrinsic_function,
    like,
    mul_add,
    quick_two_sum,
    select,
    suffix,
    two_product,
    two_sum,
)
from codegen.target import current_target


@dataclass(frozen=True)
class Format:
    """The constants of a binary float format that the reductions need."""

    mantissa_bits: int
    bias: int
    magic: float  # 1.5 * 2**mantissa_bits: adding it rounds to an integer that stands in the low bits
    ln2_hi: float
    ln2_lo: float
    exp_min: float  # below it exp is 0
    exp_max: float  # above it exp is inf
    normal_min: float  # from it to normal_max 2**n is normal and finite
    normal_max: float
    expm1_min: float
    tanh_max: float
    sqrt_half_bits: int
    tiny: float  # the smallest normal number
    exp: tuple[float, ...]
    expm1: tuple[float, ...]


FORMAT32 = Format(
    23, 127, 1.5 * 2**23, 0.693359375, -2.121944400546905827679e-4, -104.0, 89.0, -87.0, 87.0, -18.0, 10.0,
    0x3F3504F3, 2.0**-126, C.EXP_F32, C.EXPM1_F32,
)  # fmt: skip
FORMAT64 = Format(
    52, 1023, 1.5 * 2**52, float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33"),
    -746.0, 710.0, -708.0, 708.0, -40.0, 22.0, 0x3FE6A09E667F3BCD, 2.0**-1022, C.EXP_F64, C.EXPM1_F64,
)  # fmt: skip


def format_of(x: Value) -> Format:
    """The format of x's elements, f32 or f64."""
    return FORMAT32 if str(element_type(x.type)) == "float" else FORMAT64


def clamp(x: Value, low: float, high: float) -> Value:
    """x limited to [low, high]; a NaN stays a NaN."""
    x = select(x < low, low, x)
    return select(x > high, high, x)


def _reduce(x: Value, tail: Value | None) -> tuple[Value, Value]:
    """(n, r): n the integer nearest to x / ln 2 (as an integer), r = x + tail - n ln 2."""
    f = format_of(x)
    shifted = mul_add(x, 1.0 / math.log(2.0), f.magic)
    n = shifted - f.magic
    r = mul_add(n, -f.ln2_hi, x)
    r = mul_add(n, -f.ln2_lo, r)
    if tail is not None:
        r = r + tail
    return shifted.bits() - shifted.const(f.magic).bits(), r


def power_of_two(n: Value, f: Format) -> Value:
    """2**n as a float, for n within the range of normal exponents."""
    return ((n + f.bias) << f.mantissa_bits).as_float()


def scaled(p: Value, n: Value) -> Value:
    """2**n p rounded once, for |n| up to twice the greatest exponent: in one instruction where the target has it for vectors."""
    f = format_of(p)
    if not current_target().has_scaling:
        half = n >> 1
        return p * power_of_two(half, f) * power_of_two(n - half, f)
    exponent = n.v if f.mantissa_bits == 23 else n.b.trunc(n.v, like(p.type, I32))
    name = f"llvm.ldexp.{suffix(p.type)}.{suffix(exponent.type)}"
    return p.wrap(p.b.call(intrinsic_function(p.b.module, name, p.type, [p.type, exponent.type]), [p.v, exponent]))


def exp(
    x: Value, tail: Value | None = None, factor: Value | None = None, low: float = -math.inf, high: float = math.inf
) -> Value:
    """factor exp(x + tail), |tail| being small beside 1 and factor at most 1 (1 by default), the product rounded once.

    What is below every denormal is 0 before it is scaled: a scaling that underflows takes some processors a hundred cycles and
    more, and masked scores (-inf, -1e9) are such numbers. x is known to be in [low, high] (or a NaN): what that makes needless is
    left out, and the value is the same. Where it makes results normal, one product scales them.
    """
    f = format_of(x)
    inside = x
    if low < 1.5 * f.exp_min:
        inside = select(inside < f.exp_min, f.exp_min, inside)
    if high > f.exp_max:
        inside = select(inside > f.exp_max, f.exp_max, inside)
    n, r = _reduce(inside, tail)
    w = mul_add(r * r, horner(r, f.exp), r)
    p = w + 1.0 if factor is None else mul_add(w, factor, factor)
    if f.normal_min < low and high < f.normal_max and factor is None:
        return p * power_of_two(n, f)
    return scaled(select(x < f.exp_min, p.const(0.0), p), n)


def expm1(x: Value) -> Value:
    """exp(x) - 1."""
    f = format_of(x)
    n, r = _reduce(clamp(x, f.expm1_min, f.exp_max), None)
    p = mul_add(r * r, horner(r, f.expm1), r)
    # half the scale, so that 2**(n - 1) is finite up to the overflow of the result
    s = power_of_two(n - 1, f)
    y = mul_add(s, p, s - 0.5) * 2.0
    # r**2 loses the sign of -0 and the last bit of denormals
    return select(fabs(x) < f.tiny, x, y)


def tanh(x: Value) -> Value:
    """tanh(x) = e / (e + 2), e = expm1(2 |x|), with the sign of x; f32 takes an odd polynomial below 0.6."""
    f = format_of(x)
    a = fabs(x)
    a = select(a > f.tanh_max, f.tanh_max, a)
    n, r = _reduce(a + a, None)
    p = mul_add(r * r, horner(r, f.expm1), r)
    s = power_of_two(n, f)
    e = mul_add(s, p, s - 1.0)
    y = e / (e + 2.0)
    if f.mantissa_bits == 23:
        z = a * a
        y = select(a < 0.6, mul_add(a * z, horner(z, C.TANH_F32), a), y)
    return copysign(y, x)


def fast_tanh(x: Value) -> Value:
    """tanh for f32 at half the cost and five times the error of ``tanh``: (x + x z P(z)) / Q(z), z = x**2, at most 1.

    f64 takes ``tanh`` itself.
    """
    if format_of(x).mantissa_bits != 23:
        return tanh(x)
    z = x * x
    z = select(z > 9.02**2, 9.02**2, z)  # beyond, the quotient of the polynomials stays and x grows: the last line makes it 1
    y = mul_add(x * z, horner(z, C.FAST_TANH_F32_P[1:]), x) / horner(z, C.FAST_TANH_F32_Q)
    return clamp(y, -1.0, 1.0)


def logistic(x: Value) -> Value:
    """1 / (1 + exp(-x)), written with exp(-|x|) so that neither end overflows."""
    e = exp(-fabs(x), high=0.0)
    return select(x >= 0.0, e.const(1.0), e) / (e + 1.0)


def _split_exponent(x: Value) -> tuple[Value, Value]:
    """(n, m): x = 2**n m with sqrt(1/2) <= m < sqrt(2), for normal x > 0; n as an integer."""
    f = format_of(x)
    i = x.bits() - f.sqrt_half_bits
    n = i >> f.mantissa_bits
    m = ((i & ((1 << f.mantissa_bits) - 1)) + f.sqrt_half_bits).as_float()
    return n, m


def _int_to_float(n: Value, f: Format) -> Value:
    """n as a float of the same width, for |n| < 2**22; no conversion instruction (AVX2 lacks the 64-bit one)."""
    magic_bits = (0x4B400000) if f.mantissa_bits == 23 else 0x4338000000000000
    return (n + magic_bits).as_float() - f.magic


def _log_core(nf: Value, d: Value) -> Value:
    """nf ln 2 + log(1 + d), for sqrt(1/2) - 1 <= d < sqrt(2) - 1."""
    f = format_of(d)
    half_square = d * d * 0.5
    if f.mantissa_bits == 23:
        cube = d * d * d
        tail = mul_add(cube, horner(d, C.LOG_F32), nf * f.ln2_lo)
        return mul_add(nf, f.ln2_hi, d - (half_square - tail))
    s = d / (d + 2.0)
    z = s * s
    series = z * horner(z, C.LOG_F64)
    inner = half_square - mul_add(s, half_square + series, nf * f.ln2_lo)
    return mul_add(nf, f.ln2_hi, d - inner)


def _log_edges(x: Value, y: Value) -> Value:
    """log's values at 0, inf, NaN and below 0, where y is the value for positive finite x."""
    y = select(x < math.inf, y, x)
    return select(x > 0.0, y, select(x.eq(0.0), x.const(-math.inf), x.const(math.nan)))


def log(x: Value) -> Value:
    """The natural logarithm."""
    f = format_of(x)
    small = x < f.tiny
    lift = f.mantissa_bits + 2
    n, m = _split_exponent(select(small, x * 2.0**lift, x))
    nf = _int_to_float(n, f) - select(small, x.const(float(lift)), x.const(0.0))
    return _log_edges(x, _log_core(nf, m - 1.0))


def log1p(x: Value) -> Value:
    """log(1 + x): what rounding u = 1 + x lost is added to the reduced argument."""
    f = format_of(x)
    u = x + 1.0
    big = x > 1.0
    lost = select(big, x.const(1.0), x) - (u - select(big, x, x.const(1.0)))
    n, m = _split_exponent(u)
    n = select(u < math.inf, n, n ^ n)
    # beyond 2**64 what was lost no longer counts, and 2**-n would leave the normal range
    d = (m - 1.0) + lost * power_of_two(-select(n > 64, n.const(64), n), f)
    y = _log_edges(u, _log_core(_int_to_float(n, f), d))
    return select(fabs(x) < f.tiny, x, y)


def _log_pair(x: Value) -> tuple[Value, Value]:
    """log(x) as an unevaluated sum high + low with about 2**-67 relative error, for positive finite f64 x."""
    f = FORMAT64
    small = x < f.tiny
    n, m = _split_exponent(select(small, x * 2.0**54, x))
    nf = _int_to_float(n, f) - select(small, x.const(54.0), x.const(0.0))
    d = m - 1.0
    # s = d / (2 + d) = q + r
    t, tl = two_sum(d.const(2.0), d)
    q = d / t
    p, pl = two_product(q, t)
    r = ((d - p) - pl - q * tl) / t
    # u = log(m) / s - 2 = z (2/3 + z tail(z)), z = s**2
    z, zl = two_product(q, q)
    zl = mul_add(q + q, r, zl)
    third = 2.0 / 3.0
    third_low = float.fromhex("0x1.5555555555555p-55")
    w, wl = two_product(z, z.const(third))
    wl = wl + mul_add(z, third_low, zl * third)
    uh, ul = two_sum(w, z * z * horner(z, C.LOG2_TAIL_F64))
    ul = ul + wl
    ph, pe = two_product(q, uh)
    pe = pe + mul_add(q, ul, r * uh)
    high, low = quick_two_sum(q + q, ph)
    low = low + (r + r) + pe
    high, e = quick_two_sum(nf * f.ln2_hi, high)
    low = mul_add(nf, f.ln2_lo, low + e)
    return quick_two_sum(high, low)


def _parity(y: Value) -> tuple[Value, Value]:
    """(is an integer, is an odd integer) for |y|, an infinity counting as an even integer."""
    f = format_of(y)
    unit = 2.0**f.mantissa_bits
    a = fabs(y)
    a = select(a > 2 * unit, 2 * unit, a)
    shifted = a + unit
    large = a >= unit
    whole = large | (shifted - unit).eq(a)
    bit = select(large, a.bits(), shifted.bits()) & 1
    return whole, whole & bit.ne(0)


def power(x: Value, y: Value) -> Value:
    """x**y with the edge cases of IEEE 754's pow: pow(1, y) = pow(x, 0) = 1, negative x needs an integer y.

    A constant exponent of 1/2 or -1/2 is a square root, which of -inf is inf here.
    """
    if isinstance(y.v, ir.Constant) and y.v.constant in (0.5, -0.5):
        root = select(x.eq(-math.inf), math.inf, sqrt(x + 0.0))
        return root if y.v.constant > 0 else root.const(1.0) / root
    a = fabs(x)
    if str(element_type(x.type)) == "float":
        wide = a.cast("fpext", F64)
        r = exp(y.cast("fpext", F64) * log(wide)).cast("fptrunc", F32)
    else:
        finite = select(a < math.inf, a, a.const(1.0))
        high, low = _log_pair(select(a > 0.0, finite, a.const(1.0)))
        ph, pl = two_product(y, high)
        pl = mul_add(y, low, pl)
        edge = _log_edges(a, high)
        ph = select(high.eq(edge), ph, y * edge)
        pl = select(fabs(ph) < 800.0, pl, pl.const(0.0))
        r = exp(ph, pl)
    whole, odd = _parity(y)
    r = select(a.eq(1.0), select(y.is_nan(), y, r.const(1.0)), r)
    special = a.eq(0.0) | a.eq(math.inf)
    negative = x < 0.0
    r = select(negative & ~(whole | special), r.const(math.nan), r)
    r = select(odd, copysign(r, x), r)
    r = select(x.eq(1.0) | y.eq(0.0), r.const(1.0), r)
    return select(x.is_nan() & y.ne(0.0), x, r)


def sqrt(x: Value) -> Value:
    """The square root, correctly rounded."""
    return call("sqrt", x)


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x)."""
    return 1.0 / call("sqrt", x)


def cbrt(x: Value) -> Value:
    """The cube root: a cubic's first guess on [1, 8), then Newton steps, the last with a residual free of rounding."""
    f = format_of(x)
    a = fabs(x)
    small = a < f.tiny
    scaled = select(small, a * 2.0 ** (3 * ((f.mantissa_bits + 3) // 3)), a)
    bits = scaled.bits()
    e = bits.lshr(f.mantissa_bits) - f.bias
    # floor((e + 3 k) / 3) by a multiplication: e + 1536 lies in [0, 4096)
    third = ((e + 1536) * 43691).lshr(17) - 512
    m = ((bits & ((1 << f.mantissa_bits) - 1)) | (f.bias << f.mantissa_bits)).as_float()
    m = m * power_of_two(e - third * 3, f)
    g = horner(m, C.CBRT_F32)
    for _ in range(2 if f.mantissa_bits == 23 else 3):
        g = g - (g - m / (g * g)) * (1.0 / 3.0)
    s, sl = two_product(g, g)
    c, cl = two_product(s, g)
    residual = (c - m) + (cl + sl * g)
    g = g - residual / (s * 3.0)
    y = g * power_of_two(third, f)
    y = select(small, y * 2.0 ** -((f.mantissa_bits + 3) // 3), y)
    y = select(a.eq(0.0), a, select(a < math.inf, y, a))
    return copysign(y, x)
