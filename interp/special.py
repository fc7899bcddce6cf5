"""Special functions on float64 arrays, written out: error functions, gamma functions, …

Each states its relative error, which the tests measure against high-precision arithmetic.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from interp.numbers import Array

__all__ = ["chebyshev", "erf", "erfc", "in_parts", "logistic"]

PART_ELEMS = 1 << 13  # some arrays of as many float64 fit a core's own cache

# (1 + 2x) exp(x^2) erfc(x) in Chebyshev polynomials of t = (x - 3.75) / (x + 3.75), for x in [0, inf)
_ERFC = (
    1.1775789345674017, -0.004590054580646478, -0.08424913336651792, 0.05920993999819189,
    -0.026658668435305753, 0.009074997670705265, -0.002413163540417608, 0.0004907758365258086,
    -6.916973302501207e-05, 4.13902798607301e-06, 7.74038306619849e-07, -2.1886401049234397e-07,
    1.076499946567091e-08, 4.521959811218287e-09, -7.754400208831351e-10, -6.318088340886684e-11,
    2.86879501093067e-11, 1.9455868545777347e-13, -9.65469674843344e-13, 3.25254814814874e-14,
    3.3478119482868056e-14, -1.864562880419313e-15, -1.2507950530688648e-15, 7.418235256624044e-17,
    5.068148904796111e-17, -2.2370566594359995e-18,
)  # fmt: skip
# erf(x) / x in powers of x^2: 2 / sqrt(pi) * (-1)^n / (n! (2n + 1))
_ERF = tuple(2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(24))


def polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """sum of coefficients[n] * x**n, by Horner's scheme."""
    total = np.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        np.multiply(total, x, out=total)
        np.add(total, c, out=total)
    return total


def chebyshev(coefficients: tuple[float, ...], t: Array) -> Array:
    """sum of coefficients[n] * T_n(t) for t in [-1, 1], by Clenshaw's recurrence."""
    twice = np.asarray(2 * t)
    last, before, next_ = np.zeros_like(twice), np.zeros_like(twice), np.empty_like(twice)
    for c in reversed(coefficients[1:]):
        np.multiply(twice, last, out=next_)
        np.subtract(next_, before, out=next_)
        np.add(next_, c, out=next_)
        last, before, next_ = next_, last, before
    return np.asarray(t * last - before + coefficients[0])


def in_parts(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The function of one array whose elements do not depend on each other, some at a time: what it makes on the way stays in
    the core's own caches."""

    @functools.wraps(f)
    def apply(x: Array) -> Array:
        if x.size <= PART_ELEMS or x.dtype != np.float64:
            return f(x)
        flat = x.reshape(-1)
        out = np.empty_like(flat)
        for first in range(0, x.size, PART_ELEMS):
            out[first : first + PART_ELEMS] = f(flat[first : first + PART_ELEMS])
        return out.reshape(x.shape)

    return apply


def exp_minus_square(x: Array) -> Array:
    """exp(-x^2) without the error that rounding x^2 would bring: x is cut in two, the upper part's square is exact."""
    high = x.astype(np.float32).astype(np.float64)
    high = np.where(np.abs(x) < 1e4, high, 1e4)
    return np.asarray(np.exp(-high * high) * np.exp(-(x - high) * (x + high)))


def _erfc_positive(x: Array) -> Array:
    x = np.minimum(x, 40.0)
    t = (x - 3.75) / (x + 3.75)
    return np.asarray(exp_minus_square(x) * chebyshev(_ERFC, t) / (1 + 2 * x))


@in_parts
def erf(x: Array) -> Array:
    """2 / sqrt(pi) * integral from 0 to x of exp(-t^2) dt; relative error below 1e-15.

    >>> float(erf(np.array(0.5)))
    0.5204998778130465
    """
    inner = _erf_inner(x)
    outer = np.copysign(1.0 - _erfc_positive(np.maximum(np.abs(x), 1.0)), x)
    return np.where(np.isnan(x), x, np.where(np.abs(x) < 1.0, inner, outer))


def _erf_inner(x: Array) -> Array:
    """erf between -1 and 1."""
    small = np.clip(x, -1.0, 1.0)
    return np.asarray(small * polynomial(_ERF, small * small))


@in_parts
def erfc(x: Array) -> Array:
    """1 - erf(x), without cancellation for large x; relative error below 1e-15 where the result is a normal number."""
    outer = _erfc_positive(np.maximum(np.abs(x), 0.5))
    large = np.where(x < 0.0, 1.0 + (1.0 - outer), outer)
    return np.where(np.isnan(x), x, np.where((x > -1.0) & (x < 0.5), 1.0 - _erf_inner(x), large))


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)), in the form whose exponential does not overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)
