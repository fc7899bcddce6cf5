"""erf and erfc for f32 and f64, branch-free.

- erf, f32: x + x P(x**2) below 1, above it 1 - exp(L(|x|)) with L fitted to log(erfc).
- erfc(x) = exp(-x**2) G(t) / (1 + 2 x) for x >= 0 with t = (x - c) / (x + c), which maps [0, inf) into [-1, 1) where a
  polynomial G converges fast; x**2 is split into an exact head and a tail.  erfc(-x) = 2 - erfc(x).  Near 0 its rounding errors
  count most: 1 - erf(x) there, which in f32 is as far as three terms of a polynomial reach.
- erf, f64: x + x P(x**2) below 0.6, 1 - erfc(x) above.
"""

from __future__ import annotations

from codegen.lib import coefficients as C
from codegen.lib.emit import Value, copysign, fabs, horner, mul_add, select
from codegen.lib.math_exp import clamp, exp, format_of

SMALL = 0.6
NEAR_0 = 0.25


def _erf_small(x: Value) -> Value:
    """x + x P(x**2): the leading 1 of 2 / sqrt(pi) = 1.128 stays apart, so that most of the product is exact."""
    return mul_add(x, horner(x * x, C.ERF_F32 if format_of(x).mantissa_bits == 23 else C.ERF_F64), x)


def _erfc_positive(a: Value) -> Value:
    """erfc(a) for a >= 0 (accurate from 0.45 on in f64, from 0.1 on in f32)."""
    single = format_of(a).mantissa_bits == 23
    centre, last, table = (2.0, 10.25, C.ERFC_F32) if single else (3.5, 27.25, C.ERFC_F64)
    a = select(a > last, last, a)
    g = horner((a - centre) / (a + centre), table)
    head = (a.bits() & (~0xFFF if single else ~0x7FFFFFF)).as_float()
    tail = (head - a) * (a + head)
    return exp(-(head * head), tail, g / (a + a + 1.0), low=-last * last, high=0.0)


def erfc(x: Value) -> Value:
    """1 - erf(x)."""
    a = fabs(x)
    positive = _erfc_positive(a)
    y = select(x.bits() < 0, 2.0 - positive, positive)  # of the sign's bit alone: one instruction selects by it
    if format_of(x).mantissa_bits == 23:
        return select(a < NEAR_0, 1.0 - mul_add(x, horner(x * x, C.ERF_NEAR_0_F32), x), y)
    return select(a < SMALL, 1.0 - _erf_small(x), y)


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
