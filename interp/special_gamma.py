"""Special functions on float64 arrays: gamma functions, the Bessel function I1, the inverse of erf.

Sums of series and asymptotic expansions, written out; the tests measure them against high-precision arithmetic.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from interp.numbers import Array
from interp.special import chebyshev, erf, erfc, exp_minus_square, polynomial

__all__ = ["bessel_i1e", "digamma", "erf_inv", "lgamma", "polygamma", "zeta"]

# exp(-x) I1(x) / x for x in [0, 8], in Chebyshev polynomials of x / 4 - 1
_I1E_SMALL = (
    0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499,
    0.024726449030626516, -0.010564084894626197, 0.004156422944312888, -0.0015135724506312532,
    0.0005122859561685758, -0.00016176081582589674, 4.781565107550054e-05, -1.3273163656039436e-05,
    3.4702513081376785e-06, -8.568720264695455e-07, 2.0032947535521353e-07, -4.445059128796328e-08,
    9.381537386495773e-09, -1.8872497517228294e-09, 3.625590281552117e-10, -6.663489723502027e-11,
    1.1736186298890901e-11, -1.9839743977649436e-12, 3.223793365945575e-13, -5.042185504727912e-14,
    7.600684294735408e-15, -1.1055969477353862e-15, 1.5536319577362005e-16, -2.111421214358166e-17,
    2.7779141127610464e-18,
)  # fmt: skip
# exp(-x) I1(x) sqrt(x) for x in [8, inf), in Chebyshev polynomials of 16 / x - 1
_I1E_LARGE = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09, -5.589743462196584e-10,
    -1.8974958123505413e-11, 3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12,
    -7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16,
    2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893586e-17, 4.414348323071708e-18,
    7.517296310842105e-18,
)  # fmt: skip


def _bernoulli(count: int) -> list[Fraction]:
    """B_2, B_4, …, B_(2 count)."""
    numbers = [Fraction(1)]
    for m in range(1, 2 * count + 1):
        numbers.append(-sum((math.comb(m + 1, k) * numbers[k] for k in range(m)), Fraction(0)) / (m + 1))
    return numbers[2::2]


_B = _bernoulli(14)
_STIRLING = tuple(float(b / (2 * k * (2 * k - 1))) for k, b in enumerate(_B, 1))
_DIGAMMA = tuple(float(b / (2 * k)) for k, b in enumerate(_B, 1))
_EULER = 0.5772156649015329


def _riemann(k: int) -> float:
    """zeta(k) for k >= 2: twelve terms, then the Euler-Maclaurin tail."""
    n = 12
    head = math.fsum(j**-k for j in range(1, n))
    tail = n ** (1 - k) / (k - 1) + 0.5 * n**-k
    term = k * n ** (-k - 1.0)
    for i, b in enumerate(_B[:8], 1):
        tail += float(b) / math.factorial(2 * i) * term
        term *= (k + 2 * i - 1) * (k + 2 * i) / (n * n)
    return float(head + tail)


# lgamma(1 + z) = -euler z + sum over k >= 2 of zeta(k) (-z)^k / k
_LGAMMA = (-_EULER, *((-1) ** k * _riemann(k) / k for k in range(2, 56)))


def _fraction_of_turn(x: Array) -> Array:
    """x - round(x): in [-1/2, 1/2], exact."""
    return np.asarray(x - np.rint(x))


def _lgamma_positive(x: Array) -> Array:
    """log Gamma(x) for x > 0."""
    factor, shifted = np.ones_like(x), x
    for _ in range(6):  # into [1.5, 2.5) from above
        step = (shifted >= 2.5) & (x < 8)
        shifted = np.where(step, shifted - 1, shifted)
        factor = np.where(step, factor * shifted, factor)
    below = shifted < 0.5
    inner = np.where(below, shifted + 1, shifted)
    upper = inner >= 1.5
    z = np.where(x < 8, np.where(upper, inner - 2, inner - 1), 0.0)
    near = z * polynomial(_LGAMMA, z) + np.where(upper, np.log1p(z), 0.0)
    near = near + np.log(factor) - np.where(below, np.log(np.where(below, shifted, 1.0)), 0.0)
    large = np.where(x < 8, 8.0, x)
    tail = polynomial(_STIRLING, 1 / (large * large)) / large
    far = (large - 0.5) * (np.log(large) - 1) + (0.5 * math.log(2 * math.pi) - 0.5) + tail
    return np.asarray(np.where(x < 8, near, np.where(np.isinf(x), np.inf, far)))


def lgamma(x: Array) -> Array:
    """log |Gamma(x)|; infinite at 0, -1, -2, …. Relative error below 1e-14 away from the zeros at negative x.

    >>> float(lgamma(np.array(5.0))) - math.log(24)
    0.0
    """
    reflected = x < 0.5
    positive = _lgamma_positive(np.where(reflected, 1 - x, np.maximum(x, 0.5)))
    sine = np.abs(np.sin(np.pi * _fraction_of_turn(x)))
    mirrored = np.log(np.pi) - np.log(np.where(sine == 0, 1.0, sine)) - positive  # where it is 0, a pole is put below
    direct = (x > 0) & reflected  # 1 - x loses digits of a small x
    small = _lgamma_positive(np.where(direct, x, 1.0))
    result = np.where(direct, small, np.where(reflected, mirrored, positive))
    return np.where(np.isnan(x), x, np.where(np.isinf(x) | ((x <= 0) & (x == np.floor(x))), np.inf, result))


_DIGAMMA_ROOT = (1.4616321449683622, 9.549995429965697e-17)  # its digits, then those that float64 cuts off


def digamma(x: Array) -> Array:
    """The derivative of log Gamma(x); NaN at 0, -1, -2, …."""
    reflected = x < 0.5
    y = np.where(reflected, 1 - x, x)
    shift = np.zeros_like(y)
    for _ in range(10):
        small = y < 10
        shift = shift - np.where(small, 1 / np.where(small, y, 1.0), 0.0)
        y = np.where(small, y + 1, y)
    square = 1 / (y * y)
    value = np.log(y) - 0.5 / y - square * polynomial(_DIGAMMA, square) + shift
    value = np.where(np.abs(x - 1.4616321449683622) < 0.2, _digamma_at_root(x), value)
    pole = (x <= 0) & (x == np.floor(x))
    turn = np.pi * _fraction_of_turn(x)
    value = np.where(reflected, value - np.pi / np.tan(np.where(pole | ~reflected, 1.0, turn)), value)
    return np.where(pole | (x == -np.inf), np.nan, value)


def _digamma_at_root(x: Array) -> Array:
    """digamma near its zero x0: the sum over k of (x - x0) / ((x + k) (x0 + k)), the tail by Euler-Maclaurin."""
    d = (x - _DIGAMMA_ROOT[0]) - _DIGAMMA_ROOT[1]
    near = np.where(np.abs(d) < 0.3, d, 0.0)
    return near * _divided_difference(_DIGAMMA_ROOT[0] + near)


def _divided_difference(x: Array) -> Array:
    x0, total, n = _DIGAMMA_ROOT[0], np.zeros_like(x), 20
    for k in range(n):
        total = total + 1 / ((x + k) * (x0 + k))
    # The sum from n on is (digamma(x + n) - digamma(x0 + n)) / (x - x0), with digamma's expansion term by term.
    a, b = x + n, x0 + n
    d = a - b
    logarithm = np.where(np.abs(d) < 1e-8, 1 / b, np.log1p(d / b) / np.where(d == 0, 1.0, d))
    total = total + logarithm + 0.5 / (a * b)
    p, q = 1 / (a * a), 1 / (b * b)
    mixed, power = np.zeros_like(x), np.ones_like(x)
    ratio = (a + b) * p * q  # (q - p) / (a - b)
    for c in _DIGAMMA:
        # (q^k - p^k) / (a - b) = ratio * (q^(k-1) + q^(k-2) p + … + p^(k-1))
        mixed = mixed * p + power
        total = total + c * ratio * mixed
        power = power * q
    return total


def zeta(x: Array, q: Array) -> Array:
    """The Hurwitz zeta function: the sum over k >= 0 of (q + k)^-x, for x > 1.

    x = 1: infinite; x < 1: NaN; q = 0, -1, …: infinite for an even x, else NaN; other q < 0: NaN where x is no integer.
    """
    x, q = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(q, np.float64))
    valid = (x > 1) & np.isfinite(q) & (q > -1e4) & ~((q <= 0) & (q == np.floor(q)))
    s, base = np.where(valid, x, 2.0), np.where(valid, q, 1.0)
    total = np.zeros_like(s)
    for _ in range(12 + int(max(0.0, -float(base.min(initial=0.0))))):
        total = total + np.power(base, -s)
        base = base + 1
    tail = np.power(base, 1 - s) / (s - 1) + 0.5 * np.power(base, -s)
    term = s * np.power(base, -s - 1)
    for i, b in enumerate(_B, 1):
        tail = tail + float(b) / math.factorial(2 * i) * term
        term = term * (s + 2 * i - 1) * (s + 2 * i) / (base * base)
    value = total + tail
    pole = (q <= 0) & (q == np.floor(q))
    value = np.where(pole, np.where((x % 2 == 0), np.inf, np.nan), value)
    value = np.where((q < 0) & (x != np.floor(x)) & ~pole, np.nan, value)
    value = np.where(q == np.inf, np.where(x > 1, 0.0, np.nan), value)
    return np.where(x == 1, np.inf, np.where((x < 1) | np.isnan(x) | np.isnan(q), np.nan, value))


def polygamma(n: Array, x: Array) -> Array:
    """The n-th derivative of digamma: (-1)^(n+1) n! zeta(n + 1, x); NaN unless n is 0, 1, 2, …."""
    sign = np.where(n % 2 == 0, -1.0, 1.0)
    higher = sign * np.exp(lgamma(n + 1)) * zeta(n + 1, x)
    value = np.where(n == 0, digamma(x), higher)
    return np.where((n < 0) | (n != np.floor(n)), np.nan, value)


def bessel_i1e(x: Array) -> Array:
    """exp(-|x|) I1(x), I1 the modified Bessel function of the first kind; relative error below 1e-15."""
    y = np.abs(x)
    small = np.minimum(y, 8.0)
    large = np.maximum(y, 8.0)
    near = small * chebyshev(_I1E_SMALL, small / 4 - 1)
    far = chebyshev(_I1E_LARGE, 16 / large - 1) / np.sqrt(large)
    return np.where(np.isnan(x), x, np.copysign(np.where(np.isinf(x), 0.0, np.where(y < 8, near, far)), x))


def erf_inv(x: Array) -> Array:
    """y with erf(y) = x; infinite at -1 and 1, NaN beyond. Newton's iteration with Halley's correction."""
    p = np.where(np.abs(x) < 1, np.abs(x), 0.0)
    rest = 1 - p
    log = np.log1p(-p * p)
    a = 0.147
    half = 2 / (math.pi * a) + log / 2
    y = np.sqrt(np.maximum(np.sqrt(half * half - log / a) - half, 0.0))
    for _ in range(4):
        miss = np.where(p < 0.5, erf(y) - p, rest - erfc(y))
        slope = 2 / math.sqrt(math.pi) * exp_minus_square(y)
        step = miss / slope
        y = y - step / (1 + y * step)
    y = np.where(p < 1e-8, p * (math.sqrt(math.pi) / 2), y)
    return np.where(np.abs(x) < 1, np.copysign(y, x), np.where(np.abs(x) == 1, np.copysign(np.inf, x), np.nan))
