"""Special functions on f64 expressions: series, asymptotic expansions and recurrences, as sequences of StableHLO ops."""

from __future__ import annotations

import math

from hlo.decompositions.coefficients import BERNOULLI, DIGAMMA, ERF, ERFC, I1E_LARGE, I1E_SMALL, LGAMMA, STIRLING
from hlo.decompositions.expressions import Expression, copysign, maximum, minimum, power, where

__all__ = ["bessel_i1e", "digamma", "erf", "erf_inv", "erfc", "lgamma", "polygamma", "zeta"]

X = Expression
_ROOT, _ROOT_REST = 1.4616321449683622, 9.549995429965697e-17  # digamma's zero: its digits, then those that f64 cuts off


def _exp_minus_square(x: X) -> X:
    """exp(-x^2): x is cut in two so that the square of the upper part is exact."""
    high = where(abs(x) < 1e4, x.to("f32").to("f64"), 1e4)
    return (-high * high).unary("exponential") * (-(x - high) * (x + high)).unary("exponential")


def _erfc_positive(x: X) -> X:
    x = minimum(x, 40.0)
    t = (x - 3.75) / (x + 3.75)
    return _exp_minus_square(x) * t.chebyshev(ERFC) / (1 + 2 * x)


def erf(x: X) -> X:
    """2 / sqrt(pi) * integral from 0 to x of exp(-t^2) dt."""
    small = maximum(minimum(x, 1.0), -1.0)
    inner = small * (small * small).polynomial(ERF)
    outer = copysign(1.0 - _erfc_positive(maximum(abs(x), 1.0)), x)
    return where(x.is_nan(), x, where(abs(x) < 1.0, inner, outer))


def erfc(x: X) -> X:
    """1 - erf(x), without cancellation for large x."""
    large = _erfc_positive(maximum(x, 0.5))
    return where(x.is_nan(), x, where(x < 0.5, 1.0 - erf(minimum(x, 0.5)), large))


def erf_inv(x: X) -> X:
    """y with erf(y) = x, by Halley's iteration."""
    p = where(abs(x) < 1, abs(x), 0.0)
    rest = 1 - p
    log = (-p * p).unary("log_plus_one")
    a = 0.147
    half = 2 / (math.pi * a) + log / 2
    y = maximum((half * half - log / a).unary("sqrt") - half, 0.0).unary("sqrt")
    for _ in range(4):
        miss = where(p < 0.5, erf(y) - p, rest - erfc(y))
        step = miss / (2 / math.sqrt(math.pi) * _exp_minus_square(y))
        y = y - step / (1 + y * step)
    y = where(p < 1e-8, p * (math.sqrt(math.pi) / 2), y)
    beyond = where(abs(x).eq(1.0), copysign(x.lift(math.inf), x), math.nan)
    return where(abs(x) < 1, copysign(y, x), beyond)


def _fraction_of_turn(x: X) -> X:
    return x - x.unary("round_nearest_even")


def _is_pole(x: X) -> X:
    return (x <= 0) & x.eq(x.unary("floor"))


def _lgamma_positive(x: X) -> X:
    factor, shifted = x.lift(1.0), x
    for _ in range(6):  # into [1.5, 2.5) from above
        step = (shifted >= 2.5) & (x < 8)
        shifted = where(step, shifted - 1, shifted)
        factor = where(step, factor * shifted, factor)
    below = shifted < 0.5
    inner = where(below, shifted + 1, shifted)
    upper = inner >= 1.5
    z = where(x < 8, where(upper, inner - 2, inner - 1), 0.0)
    near = z * z.polynomial(LGAMMA) + where(upper, z.unary("log_plus_one"), 0.0)
    near = near + factor.unary("log") - where(below, where(below, shifted, 1.0).unary("log"), 0.0)
    large = where(x < 8, 8.0, x)
    tail = (1 / (large * large)).polynomial(STIRLING) / large
    far = (large - 0.5) * (large.unary("log") - 1) + (0.5 * math.log(2 * math.pi) - 0.5) + tail
    return where(x < 8, near, where(x.eq(math.inf), math.inf, far))


def lgamma(x: X) -> X:
    """log |Gamma(x)|, reflected for x < 1/2."""
    reflected = x < 0.5
    positive = _lgamma_positive(where(reflected, 1 - x, maximum(x, 0.5)))
    sine = abs((math.pi * _fraction_of_turn(x)).unary("sine"))
    mirrored = math.log(math.pi) - where(sine.eq(0.0), 1.0, sine).unary("log") - positive
    direct = (x > 0) & reflected  # 1 - x loses digits of a small x
    small = _lgamma_positive(where(direct, x, 1.0))
    result = where(direct, small, where(reflected, mirrored, positive))
    return where(x.is_nan(), x, where(abs(x).eq(math.inf) | _is_pole(x), math.inf, result))


def digamma(x: X) -> X:
    """The derivative of log Gamma(x); NaN at 0, -1, -2, …."""
    reflected = x < 0.5
    y = where(reflected, 1 - x, x)
    shift = y.lift(0.0)
    for _ in range(10):
        small = y < 10
        shift = shift - where(small, 1 / where(small, y, 1.0), 0.0)
        y = where(small, y + 1, y)
    square = 1 / (y * y)
    value = y.unary("log") - 0.5 / y - square * square.polynomial(DIGAMMA) + shift
    value = where(abs(x - _ROOT) < 0.2, _digamma_at_root(x), value)
    pole = _is_pole(x)
    turn = where(pole | ~reflected, 1.0, math.pi * _fraction_of_turn(x))
    value = where(reflected, value - math.pi / (turn.unary("sine") / turn.unary("cosine")), value)
    return where(pole | x.eq(-math.inf), math.nan, value)


def _digamma_at_root(x: X) -> X:
    """Near the zero x0: the sum over k of (x - x0) / ((x + k) (x0 + k)), the tail by Euler-Maclaurin."""
    d0 = (x - _ROOT) - _ROOT_REST
    near = where(abs(d0) < 0.3, d0, 0.0)
    at, total, n = _ROOT + near, x.lift(0.0), 20
    for k in range(n):
        total = total + 1 / ((at + k) * (_ROOT + k))
    a, b = at + n, _ROOT + n
    d = a - b
    logarithm = where(abs(d) < 1e-8, 1 / b, (d / b).unary("log_plus_one") / where(d.eq(0.0), 1.0, d))
    total = total + logarithm + 0.5 / (a * b)
    p, q = 1 / (a * a), 1 / (b * b)
    mixed, rising = x.lift(0.0), 1.0
    ratio = (a + b) * p * q
    for c in DIGAMMA:
        mixed = mixed * p + rising
        total = total + c * ratio * mixed
        rising *= q
    return near * total


def zeta(x: X, q: X) -> X:
    """The Hurwitz zeta function: the sum over k >= 0 of (q + k)^-x, by Euler-Maclaurin from where q + k is large enough."""
    b = x.builder
    pole = _is_pole(q)
    valid = (x > 1) & (abs(q) < math.inf) & (q > -1e4) & ~pole
    s, base = where(valid, x, 2.0), where(valid, q, 1.0)
    # The least element says how many terms all of them take before the tail begins.
    scalar = base.value if base.type.rank == 0 else b.reduce_all(base.value, b.constant(0.0, "f64"), b.minimum)
    assert not isinstance(scalar, tuple)
    terms = (12 - minimum(X(b, scalar), 0.0)).to("i64").value
    _, total, base = _direct_terms(s, base, terms)
    tail = power(base, 1 - s) / (s - 1) + 0.5 * power(base, -s)
    term = s * power(base, -s - 1)
    for i, number in enumerate(BERNOULLI, 1):
        tail = tail + number / math.factorial(2 * i) * term
        term = term * (s + (2 * i - 1)) * (s + 2 * i) / (base * base)
    value = total + tail
    even = x.apply("stablehlo.remainder", 2.0).eq(0.0)
    value = where(pole, where(even, x.lift(math.inf), math.nan), value)
    value = where((q < 0) & ~x.eq(x.unary("floor")) & ~pole, math.nan, value)
    value = where(q.eq(math.inf), where(x > 1, x.lift(0.0), math.nan), value)
    undefined = (x < 1) | x.is_nan() | q.is_nan()
    return where(x.eq(1.0), math.inf, where(undefined, math.nan, value))


def _direct_terms(s: X, base: X, terms: object) -> tuple[X, X, X]:
    b = s.builder
    made = b.while_(
        lambda i, total, at: b.lt(i, terms),
        lambda i, total, at: (b.add(i, b.constant(1, "i64")), (X(b, total) + power(X(b, at), -s)).value, (X(b, at) + 1).value),
        (b.constant(0, "i64"), s.lift(0.0).value, base.value),
    )
    assert isinstance(made, tuple)
    i, total, last = (X(b, v) for v in made)
    return i, total, last


def polygamma(n: X, x: X) -> X:
    """The n-th derivative of digamma: (-1)^(n+1) n! zeta(n + 1, x); NaN unless n is 0, 1, 2, …."""
    even = n.apply("stablehlo.remainder", 2.0).eq(0.0)
    higher = where(even, n.lift(-1.0), 1.0) * lgamma(n + 1).unary("exponential") * zeta(n + 1, x)
    value = where(n.eq(0.0), digamma(x), higher)
    return where((n < 0) | ~n.eq(n.unary("floor")), math.nan, value)


def bessel_i1e(x: X) -> X:
    """exp(-|x|) I1(x)."""
    y = abs(x)
    small, large = minimum(y, 8.0), maximum(y, 8.0)
    near = small * (small / 4 - 1).chebyshev(I1E_SMALL)
    far = (16 / large - 1).chebyshev(I1E_LARGE) / large.unary("sqrt")
    value = where(y.eq(math.inf), 0.0, where(y < 8, near, far))
    return where(x.is_nan(), x, copysign(value, x))
