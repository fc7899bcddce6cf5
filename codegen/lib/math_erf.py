"""erf and erfc for f32 and f64, branch-free.

- erf, f32: x + x P(x**2) below 1, above it 1 - exp(L(|x|)) with L fitted to log(erfc).
- erfc(x) = exp(-x**2) R(x) for x >= 0, x**2 with its rounding error.  In f32 R is P(x) / Q(x), whose coefficients are all
  positive, so nothing cancels.  In f64 it is G(t) / (1 + 2 x) with t = (x - c) / (x + c), which maps [0, inf) into [-1, 1)
  where a polynomial G converges fast.  erfc(-x) = 2 - erfc(x); near 0, f64 takes 1 - erf(x).
- erf, f64: x + x P(x**2) below 0.6, 1 - erfc(x) above.
"""

from __future__ import annotations

from codegen.lib import coefficients as C
from codegen.lib.emit import Value, copysign, fabs, horner, mul_add, select, two_product
from codegen.lib.math_exp import clamp, exp, format_of

SMALL = 0.6


def _erf_small(x: Value) -> Value:
    """x + x P(x**2): the leading 1 of 2 / sqrt(pi) = 1.128 stays apart, so that most of the product is exact."""
    return mul_add(x, horner(x * x, C.ERF_F32 if format_of(x).mantissa_bits == 23 else C.ERF_F64), x)


def _erfc_positive(a: Value) -> Value:
    """erfc(a) for a >= 0 (accurate from 0.45 on in f64)."""
    single = format_of(a).mantissa_bits == 23
    last = 10.25 if single else 27.25
    a = select(a > last, last, a)
    if single:
        scaled = horner(a, C.ERFC_F32_P) / horner(a, C.ERFC_F32_Q)
    else:
        scaled = horner((a - 3.5) / (a + 3.5), C.ERFC_F64) / (a + a + 1.0)
    square, error = two_product(a, a)
    return exp(-square, -error, scaled, low=-last * last, high=0.0)


def erfc(x: Value) -> Value:
    """1 - erf(x)."""
    a = fabs(x)
    positive = _erfc_positive(a)
    y = select(x.bits() < 0, 2.0 - positive, positive)  # of the sign's bit alone: one instruction selects by it
    return y if format_of(x).mantissa_bits == 23 else select(a < SMALL, 1.0 - _erf_small(x), y)


def erf(x: Value) -> Value:
    """2 / sqrt(pi) times the integral of exp(-t**2) over [0, x]."""
    a = fabs(x)
    if format_of(x).mantissa_bits == 23:
        large = 1.0 - exp(horner(select(a > 4.05, 4.05, a), C.LOG_ERFC_F32), low=-20.0, high=0.0)
        return select(a < 1.0, _erf_small(x), copysign(large, x))
    return select(a < SMALL, _erf_small(x), copysign(1.0 - _erfc_positive(a), x))


def fast_erf(x: Value) -> Value:
    """erf for f32 at two thirds of the cost and five times the error of ``erf``: x P(z) / Q(z), z = x**2, at most 1.

    f64 takes ``erf`` itself.
    """
    if format_of(x).mantissa_bits != 23:
        return erf(x)
    x = clamp(x, -3.93, 3.93)
    z = x * x
    return clamp(x * horner(z, C.FAST_ERF_F32_P) / horner(z, C.FAST_ERF_F32_Q), -1.0, 1.0)
