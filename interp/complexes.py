"""Functions of complex numbers on complex128 arrays, on their principal branches."""

from __future__ import annotations

import numpy as np

from interp.numbers import Array

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "cos",
    "divide",
    "exp",
    "expm1",
    "log",
    "log1p",
    "logistic",
    "power",
    "rsqrt",
    "sign",
    "sin",
    "sqrt",
    "square",
    "tan",
    "tanh",
]


def of_parts(re: Array, im: Array) -> Array:
    """re + i im, without arithmetic that could turn an infinity into a NaN."""
    out = np.empty(np.broadcast_shapes(np.shape(re), np.shape(im)), np.complex128)
    out.real, out.imag = re, im
    return out


def _nought(y: Array) -> Array:
    """A zero with the sign of y, +0 for NaN: f(conj z) = conj f(z) where C leaves signs open and C libraries differ."""
    return np.asarray(np.copysign(0.0, np.where(np.isnan(y), 0.0, y)))


def _has_no_angle(z: Array) -> Array:
    """An infinite real part beside an imaginary part that is infinite or NaN: C's Annex G lists what follows."""
    return np.asarray(np.isinf(z.real) & ~np.isfinite(z.imag))


def exp(z: Array) -> Array:
    """e^x (cos y + i sin y); real where y is 0. At x = -inf it is 0, whatever y is (C's Annex G)."""
    found = np.exp(z)
    gone = _has_no_angle(z) & (z.real < 0)
    return of_parts(np.where(gone, 0.0, found.real), np.where(gone, _nought(z.imag), found.imag))


def expm1(z: Array) -> Array:
    """exp(z) - 1: (expm1(x) cos y - 2 sin(y/2)^2) + i e^x sin y, at infinities as exp."""
    x, y = z.real, z.imag
    half = np.sin(y / 2)
    em = np.expm1(x)
    edge = _has_no_angle(z)
    re = np.where(edge, em, np.where(np.isinf(em), em * np.cos(y), em * np.cos(y) - 2 * half * half))
    im = np.where(y == 0, y, np.where(edge & (x < 0), _nought(y), np.exp(x) * np.sin(y)))
    return of_parts(re, im)


def log(z: Array) -> Array:
    """log|z| + i arg z."""
    return np.log(z)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b as an unevaluated sum of two floats, exact without overflow (Veltkamp, Dekker)."""
    p = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _split(a: Array) -> tuple[Array, Array]:
    c = a * 134217729.0  # 2**27 + 1
    high = c - (c - a)
    return high, a - high


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b as an unevaluated, exact sum of two floats."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def log1p(z: Array) -> Array:
    """log(1 + z): 1/2 log1p(2x + x^2 + y^2) + i atan2(y, 1 + x), the sum kept to twice the precision."""
    x, y = z.real, z.imag
    xx, xe = _two_product(x, x)
    yy, ye = _two_product(y, y)
    s1, e1 = _two_sum(2 * x, np.maximum(xx, yy))
    s2, e2 = _two_sum(s1, np.minimum(xx, yy))
    careful = 0.5 * np.log1p(s2 + (e1 + e2 + xe + ye))
    modulus, shifted = np.hypot(x, y), np.hypot(1 + x, y)
    # Near -1 the sum loses all digits, but 1 + x is exact; far away squares overflow.
    plain = (shifted < 0.5) | (modulus > 1e3)
    re = np.where(plain, np.log(of_parts(1 + x, y)).real, np.where(modulus <= 1e-140, x + 0.5 * (y * y), careful))
    return of_parts(re, np.arctan2(y, 1 + x))


def logistic(z: Array) -> Array:
    """e^(z/2) / (2 cosh(z/2)); far out e^z on the left, 1 - e^-z on the right, where e^-z alone would overflow."""
    left = z.real < 0
    e = exp(of_parts(-np.abs(z.real), np.where(left, z.imag, -z.imag)))
    half = of_parts(z.real / 2, z.imag / 2)
    near = divide(np.exp(half), 2 * np.cosh(half))
    far = of_parts(np.where(left, e.real, 1 - e.real), np.where(left, e.imag, -e.imag))
    return np.where(np.abs(z.real) > 40, far, near)


def sqrt(z: Array) -> Array:
    return np.sqrt(z)


def rsqrt(z: Array) -> Array:
    """1 / sqrt(z), by modulus and argument."""
    root = np.sqrt(z)
    scale = 1 / np.abs(root)
    direct = of_parts(root.real * scale * scale, -root.imag * scale * scale)
    infinite = np.isinf(z.real) | np.isinf(z.imag)
    zero = of_parts(np.where(np.isnan(root.real), 0.0, np.copysign(0.0, root.real)), np.copysign(0.0, -root.imag))
    return np.where(infinite, zero, direct)


def cbrt(z: Array) -> Array:
    """The cube root whose argument is a third of z's."""
    top = _top(z)  # the modulus of denormal numbers is rounded to a few bits, that of the largest overflows
    cube = np.where(top > 2.0**1000, 2.0**300, np.where(top < 2.0**-900, 2.0**-300, 1.0))
    radius, angle = np.cbrt(np.abs(_times(z, 1.0 / cube))) * np.cbrt(cube), np.angle(z) / 3
    return of_parts(radius * np.cos(angle), radius * np.sin(angle))


def tanh(z: Array) -> Array:
    """At infinities 1 or -1, with an imaginary zero of y's sign where sin 2y is nothing."""
    found, edge = np.tanh(z), _has_no_angle(z)
    return of_parts(np.where(edge, np.copysign(1.0, z.real), found.real), np.where(edge, _nought(z.imag), found.imag))


def sin(z: Array) -> Array:
    """At imaginary infinities beside no real angle NaN, and an infinity of y's sign."""
    found, edge = np.sin(z), np.isinf(z.imag) & ~np.isfinite(z.real)
    return of_parts(found.real, np.where(edge, z.imag, found.imag))


def cos(z: Array) -> Array:
    return np.cos(z)


def sign(z: Array) -> Array:
    """z / |z|; 0 stays, NaN or an infinity in a part makes both NaN. Scaled, so that |z| neither overflows nor loses bits."""
    top = _top(z)
    scaled = _times(z, np.where(top > 2.0**500, 2.0**-600, np.where(top < 2.0**-500, 2.0**600, 1.0)))
    modulus = np.abs(scaled)
    size = np.where(modulus == 0, 1.0, modulus)
    defined = np.isfinite(z.real) & np.isfinite(z.imag)
    return of_parts(*(np.where(modulus == 0, 0.0, np.where(defined, part / size, np.nan)) for part in (scaled.real, scaled.imag)))


def _top(z: Array) -> Array:
    """The larger of the parts' magnitudes."""
    return np.asarray(np.maximum(np.abs(z.real), np.abs(z.imag)))


def _times(z: Array, factor: Array) -> Array:
    """z by a real factor, part by part."""
    return of_parts(z.real * factor, z.imag * factor)


def square(z: Array) -> Array:
    """(x - y)(x + y) + 2xy i."""
    x, y = z.real, z.imag
    re = np.where(np.isinf(x) & np.isinf(y), np.nan, (x - y) * (x + y))
    return of_parts(np.where(np.abs(x) == np.abs(y), np.where(np.isfinite(x), 0.0, re), re), 2 * (x * y))


def divide(a: Array, b: Array) -> Array:
    """a / b, parts of complex64 rounded once."""
    if a.dtype == np.complex64:
        return np.divide(a.astype(np.complex128), b.astype(np.complex128)).astype(np.complex64)
    top = _top(b)  # the reciprocal of what is denormal or nearly too large leaves the range, and so may sums of large parts
    below = np.where(np.isinf(top), 1.0, np.where(top > 2.0**1000, 2.0**-200, np.where(top < 2.0**-900, 2.0**200, 1.0)))
    above = np.where(_top(a) > 2.0**1000, 2.0**-100, 1.0)
    return _times(np.divide(_times(a, above), _times(b, below)), below / above)


def power(a: Array, b: Array) -> Array:
    """exp(b log a); 1 where b is 0, 0 where only a is."""
    general = np.exp(b * np.log(a))
    return np.where(b == 0, 1.0, np.where((a == 0) & (b.real > 0), 0.0, general))


def atan2(y: Array, x: Array) -> Array:
    """-i log((x + i y) / sqrt(x^2 + y^2))."""
    return np.asarray(-1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y)))


def acos(z: Array) -> Array:
    return np.arccos(z)


def acosh(z: Array) -> Array:
    return np.arccosh(z)


def asin(z: Array) -> Array:
    return np.arcsin(z)


def asinh(z: Array) -> Array:
    return np.arcsinh(z)


def atan(z: Array) -> Array:
    return np.arctan(z)


def atanh(z: Array) -> Array:
    return np.arctanh(z)


def tan(z: Array) -> Array:
    return np.tan(z)
