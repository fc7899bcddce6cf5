"""erf_inv, lgamma, digamma and bessel_i1e for f32 and f64, branch-free.

- erf_inv(x) = x + x P(w) with w = -log(1 - x**2), a polynomial in w below 5 and in sqrt(w) above; f64 takes one step of Halley's
  iteration from there, on erf below 1/2 and on erfc above.
- lgamma(x) is brought to 1.5 <= y < 2.5 by x Gamma(x) = Gamma(x + 1) and is (y - 2) P(y - 2) there; Stirling's series from 8
  on; log(pi / |sin pi x|) - lgamma(1 - x) below 0. f32 is computed in f64.
- digamma(x) is brought to 8 or more by its recurrence, then Stirling's series; (x - x0) P(x) around its zero x0 = 1.46; reflected
  below 0.
- bessel_i1e(x) = x P(|x| / 4 - 1) / (|x| + 4)**1.5 up to 8, where P varies little, P(16 / |x| - 1) / sqrt(|x|) beyond.
"""

from __future__ import annotations

import math

from codegen.lib import coefficients as C
from codegen.lib.emit import F32, F64, Value, call, copysign, fabs, horner, mul_add, rounded_once, select
from codegen.lib.math_erf import erf, erfc
from codegen.lib.math_exp import exp, format_of, log

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
ROOT, ROOT_REST = 1.4616321449683622, 9.549995429965697e-17  # digamma's zero: its digits, then those that f64 cuts off
POLE = 8.0  # from here on Stirling's series


def _is_single(x: Value) -> bool:
    return format_of(x).mantissa_bits == 23


# ------------------------------------------------------------------ the inverse of erf


def erf_inv(x: Value) -> Value:
    """y with erf(y) = x; infinite at -1 and 1, NaN beyond."""
    a = fabs(x)
    single = _is_single(x)
    inside = select(a < 1.0, a, a.const(0.0))
    w = -log((1.0 - inside) * (inside + 1.0))
    w = select(w < 0.0, w.const(0.0), w)
    root = call("sqrt", w)
    near = horner(w - 2.5, C.ERF_INV_CENTRE, precise=1)
    far = horner(root - 3.0, C.ERF_INV_TAIL_F32) if single else horner(root - 4.0, C.ERF_INV_TAIL_F64)
    y = rounded_once(inside, select(w < 5.0, near, far), inside)
    if not single:
        y = _halley(inside, y)
    y = select(a < 1.0, y, select(a.eq(1.0), y.const(math.inf), y.const(math.nan)))
    return copysign(y, x)


def _halley(p: Value, y: Value) -> Value:
    """A better y with erf(y) = p, 0 <= p < 1, from one that is good to 7 digits."""
    miss = select(p < 0.5, erf(y) - p, (1.0 - p) - erfc(y))
    step = miss * exp(y * y) * (math.sqrt(math.pi) / 2)
    better = y - step / mul_add(y, step, 1.0)
    return select(p < 1e-8, p * (math.sqrt(math.pi) / 2), better)


# ------------------------------------------------------------------ the logarithm of Gamma


def lgamma(x: Value) -> Value:
    """log |Gamma(x)|; infinite at 0, -1, -2, … and at both infinities."""
    return _lgamma64(x.cast("fpext", F64)).cast("fptrunc", F32) if _is_single(x) else _lgamma64(x)


def _lgamma64(x: Value) -> Value:
    negative = x < 0.0
    a = select(negative, 1.0 - x, x)
    positive = _lgamma_positive(a)
    # the sine of pi x by what x is off the nearest integer
    r = fabs(x - call("rint", x))
    sine = r * horner(r * r, C.SIN_PI_F64)
    mirrored = log(math.pi / sine) - positive
    result = select(negative, mirrored, positive)
    pole = (negative & r.eq(0.0)) | x.eq(0.0) | fabs(x).eq(math.inf)
    return select(pole, x.const(math.inf), result)


def _lgamma_positive(x: Value) -> Value:
    """x > 0, one polynomial, one logarithm, Stirling's series where it holds."""
    large = ~(x < POLE)
    y, factor = x, x.const(1.0)
    for _ in range(6):  # from above into [1.5, 2.5)
        above = ~(y < 2.5)
        y = select(above, y - 1.0, y)
        factor = select(above, factor * y, factor)
    tiny, low = x < 0.5, x < 1.5
    z = select(tiny, x, select(low, x - 1.0, y - 2.0))
    z = select(large, z.const(0.0), z)
    near = z * horner(z, C.LGAMMA_F64)
    # Gamma(x) = Gamma(x + 2) / (x (x + 1)) = Gamma(x + 1) / x
    argument = select(tiny, x * (x + 1.0), select(low, x, factor))
    logarithm = log(select(large, x, argument))
    below = near + select(low, -logarithm, logarithm)
    inverse = 1.0 / x
    series = horner(inverse * inverse, C.STIRLING_F64) * inverse
    far = mul_add(x - 0.5, logarithm - 1.0, series + (HALF_LOG_2PI - 0.5))
    return select(large, far, below)


# ------------------------------------------------------------------ digamma


def digamma(x: Value) -> Value:
    """The derivative of log Gamma(x); NaN at 0, -1, -2, … and at -infinity."""
    return _digamma64(x.cast("fpext", F64)).cast("fptrunc", F32) if _is_single(x) else _digamma64(x)


def _digamma64(x: Value) -> Value:
    negative = x < 0.0
    a = select(negative, 1.0 - x, x)
    y, top, bottom = a, a.const(0.0), a.const(1.0)
    for _ in range(8):  # digamma(y) = digamma(y + 1) - 1 / y, the fractions summed over one denominator
        small = y < POLE
        top = select(small, mul_add(top, y, bottom), top)
        bottom = select(small, bottom * y, bottom)
        y = select(small, y + 1.0, y)
    inverse = 1.0 / y
    square = inverse * inverse
    far = log(y) - (inverse * 0.5 + square * horner(square, C.DIGAMMA_TAIL_F64)) - top / bottom
    d = (a - ROOT) - ROOT_REST
    near = d * horner(d - 0.3, C.DIGAMMA_ROOT_F64)
    positive = select(fabs(d - 0.3) < 1.05, near, far)
    # pi / tan(pi x) by what x is off the nearest integer, and what that is off 1/2
    r = x - call("rint", x)
    h = 0.5 - fabs(r)
    cotangent = copysign((h * horner(h * h, C.SIN_PI_F64)) / (fabs(r) * horner(r * r, C.SIN_PI_F64)) * math.pi, r)
    result = select(negative, positive - cotangent, positive)
    pole = (negative & r.eq(0.0)) | x.eq(0.0) | x.eq(-math.inf)
    return select(pole, x.const(math.nan), select(x.eq(math.inf), x, result))


# ------------------------------------------------------------------ Bessel


def bessel_i1e(x: Value) -> Value:
    """exp(-|x|) I1(x), the modified Bessel function of the first kind and order 1, scaled."""
    single = _is_single(x)
    a = fabs(x)
    small = a < 8.0
    low, high = select(small, a, a.const(8.0)), select(small, a.const(8.0), a)
    near = low * horner(low * 0.25 - 1.0, C.I1E_SMALL_F32 if single else C.I1E_SMALL_F64)
    far = horner(16.0 / high - 1.0, C.I1E_LARGE_F32 if single else C.I1E_LARGE_F64)
    shifted = low + 4.0
    root = call("sqrt", select(small, shifted, high))
    y = select(small, near, far) / select(small, shifted * root, root)
    y = select(a.eq(math.inf), a.const(0.0), y)
    return select(x.is_nan(), x, copysign(y, x))
