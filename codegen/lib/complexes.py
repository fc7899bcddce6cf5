"""Complex numbers: arithmetic and the elementary functions on their principal branches, with C's special values.

Numbers are pairs of Values. complex64 adds, multiplies, and has its modulus and e**z in f32; all else could cancel, overflow
or lose digits on the way, is computed in f64 and rounded once. complex128 is scaled where squares would overflow.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from codegen.kernel import types
from codegen.lib import math_exp, math_trig
from codegen.lib.emit import F32, F64, Value, call, copysign, element_type, fabs, mul_add, packed, select, two_product, two_sum

__all__ = ["COMPLEX", "Complex", "emitter", "pack", "unpack"]

LN2 = math.log(2.0)
FAR = 700.0  # e**x is finite up to here, and up to twice as far as a product of two
FAR_F32 = 88.0  # the same of f32


@dataclass(frozen=True)
class Complex:
    """re + i im."""

    re: Value
    im: Value

    def __add__(self, o: Complex) -> Complex:
        return Complex(self.re + o.re, self.im + o.im)

    def __sub__(self, o: Complex) -> Complex:
        return Complex(self.re - o.re, self.im - o.im)

    def __mul__(self, o: Complex) -> Complex:
        return Complex(self.re * o.re - self.im * o.im, self.re * o.im + self.im * o.re)

    def __neg__(self) -> Complex:
        return Complex(-self.re, -self.im)

    def real(self, x: float) -> Complex:
        """A real constant."""
        return Complex(self.re.const(x), self.re.const(0.0))


def unpack(z: Value) -> Complex:
    """The parts of a value of a complex type."""
    return Complex(*(z.wrap(z.b.extract_value(z.v, k)) for k in range(2)))


def pack(z: Complex) -> Value:
    """The inverse of ``unpack``."""
    return z.re.wrap(packed(z.re.b, [z.re.v, z.im.v]))


def choose(condition: Value, a: Complex, b: Complex) -> Complex:
    return Complex(select(condition, a.re, b.re), select(condition, a.im, b.im))


def _is_inf(x: Value) -> Value:
    return fabs(x).eq(math.inf)


def _is_wild(x: Value) -> Value:
    """Infinite or NaN."""
    return ~(fabs(x) < math.inf)


def _nan(x: Value) -> Value:
    return x.const(math.nan)


# ------------------------------------------------------------------ the modulus


def _scaled(x: Value, y: Value) -> tuple[Value, Value, Value, Value]:
    """(a, b, s, e): a >= b >= 0 the parts' magnitudes times s = 2**e, so that squares neither overflow nor vanish."""
    p, q = fabs(x), fabs(y)
    swap = p < q
    a, b = select(swap, q, p), select(swap, p, q)
    large, small = a > 2.0**500, a < 2.0**-500
    s = select(large, a.const(2.0**-600), select(small, a.const(2.0**600), a.const(1.0)))
    e = select(large, a.const(-600.0), select(small, a.const(600.0), a.const(0.0)))
    return a * s, b * s, s, e


def modulus(z: Complex) -> Value:
    """|z|; infinite where a part is. In its own precision: the parts are divided by a power of two near the larger one."""
    p, q = fabs(z.re), fabs(z.im)
    top = select(p < q, q, p).bits()
    width = element_type(top.type).width
    digits = 23 if width == 32 else 52
    last = (1 << width - digits - 1) - 2  # the largest finite numbers' exponent; their reciprocals have none of their own
    least, most = top.const(1 << digits), top.const(last - 1 << digits)
    exponent = top & (last + 1 << digits)
    exponent = select(exponent < least, least, select(exponent > most, most, exponent))
    scale = (top.const(last << digits) - exponent).as_float()
    a, b = p * scale, q * scale
    return _infinite_modulus(z, call("sqrt", mul_add(a, a, b * b)) * exponent.as_float())


def _infinite_modulus(z: Complex, r: Value) -> Value:
    return select(_is_inf(z.re) | _is_inf(z.im), r.const(math.inf), r)


def _square_sum_minus_one(a: Value, b: Value) -> Value:
    """a a + b b - 1 for a >= b >= 0, with a relative error of an ulp even where the terms cancel."""
    aa, ae = two_product(a, a)
    bb, be = two_product(b, b)
    s, e = two_sum(aa, aa.const(-1.0))
    t, f = two_sum(s, bb)
    return t + (e + f + ae + be)


# ------------------------------------------------------------------ arithmetic


def _top(z: Complex) -> Value:
    """The larger of the parts' magnitudes."""
    p, q = fabs(z.re), fabs(z.im)
    return select(p < q, q, p)


def _times(z: Complex, factor: Value) -> Complex:
    return Complex(z.re * factor, z.im * factor)


def divide(p: Complex, q: Complex) -> Complex:
    """p / q by Smith's method, which scales by the larger part of q; both are scaled where a reciprocal or a sum of parts would
    leave the range."""
    top = _top(q)
    small, large = top < 2.0**-900, (top > 2.0**1000) & (top < math.inf)
    below = select(large, top.const(2.0**-200), select(small, top.const(2.0**200), top.const(1.0)))
    huge = _top(p) > 2.0**1000
    above, back = select(huge, top.const(2.0**-100), top.const(1.0)), select(huge, top.const(2.0**100), top.const(1.0))
    return _times(_divide(_times(p, above), _times(q, below)), below * back)


def _divide(p: Complex, q: Complex) -> Complex:
    wide = ~(fabs(q.re) < fabs(q.im))
    large, small = select(wide, q.re, q.im), select(wide, q.im, q.re)
    rat = small / large
    scale = 1.0 / (large + small * rat)
    re = select(wide, p.re + p.im * rat, p.re * rat + p.im) * scale
    im = select(wide, p.im - p.re * rat, p.im * rat - p.re) * scale
    zero = q.re.eq(0.0) & q.im.eq(0.0)
    magnitude = fabs(q.re)
    return choose(zero, Complex(p.re / magnitude, p.im / magnitude), Complex(re, im))


def sign(z: Complex) -> Complex:
    """z / |z|; 0 stays, NaN or an infinity in a part makes both NaN. Scaled, so that |z| neither overflows nor loses bits."""
    _, _, s, _ = _scaled(z.re, z.im)
    scaled = _times(z, s)
    r = modulus(scaled)
    unit = Complex(scaled.re / r, scaled.im / r)
    found = choose(_is_wild(z.re) | _is_wild(z.im), Complex(_nan(r), _nan(r)), unit)
    return choose(r.eq(0.0), z.real(0.0), found)


def square(z: Complex) -> Complex:
    """(x - y)(x + y) + 2 x y i."""
    x, y = z.re, z.im
    re = select(_is_inf(x) & _is_inf(y), _nan(x), (x - y) * (x + y))
    even = fabs(x).eq(fabs(y)) & (fabs(x) < math.inf)
    return Complex(select(even, x.const(0.0), re), (x * y) * 2.0)


# ------------------------------------------------------------------ exponential and logarithm


def _halves(x: Value) -> tuple[Value, Value]:
    """(a, b) with a b = e**x, finite for x up to twice as far as e**x is."""
    far = x > (FAR if element_type(x.type) is F64 else FAR_F32)
    half = math_exp.exp(select(far, x * 0.5, x))
    return half, select(far, half, half.const(1.0))


def exp(z: Complex) -> Complex:
    """e**x (cos y + i sin y)."""
    x, y = z.re, z.im
    a, b = _halves(x)
    c, s = math_trig.cos(y), math_trig.sin(y)
    edge = _is_inf(x) & _is_wild(y)
    c = select(edge, c.const(1.0), c)
    s = select(edge & (x < 0.0), _nought(y), s)
    return Complex(a * c * b, select(y.eq(0.0), y, a * s * b))


def _nought(y: Value) -> Value:
    """A zero with the sign of y, +0 for NaN."""
    return select(y.is_nan(), y.const(0.0), copysign(y.const(0.0), y))


def expm1(z: Complex) -> Complex:
    """(expm1(x) cos y - 2 sin(y/2)**2) + i e**x sin y."""
    x, y = z.re, z.im
    half = math_trig.sin(y * 0.5)
    em = math_exp.expm1(x)
    c = math_trig.cos(y)
    direct = em * c
    re = select(_is_inf(em), direct, direct - (half * 2.0) * half)
    edge = _is_inf(x) & _is_wild(y)
    im = select(edge & (x < 0.0), _nought(y), math_exp.exp(x) * math_trig.sin(y))
    return Complex(select(edge, em, re), select(y.eq(0.0), y, im))


def log(z: Complex) -> Complex:
    """log|z| + i arg z."""
    x, y = z.re, z.im
    a, b, _, e = _scaled(x, y)
    far = math_exp.log(mul_add(a, a, b * b)) * 0.5 - e * LN2
    p, q = fabs(x), fabs(y)
    close = math_exp.log1p(_square_sum_minus_one(select(p < q, q, p), select(p < q, p, q))) * 0.5
    r = a * a + b * b
    near = e.eq(0.0) & (r > 0.5) & (r < 3.0)
    return Complex(_infinite_modulus(z, select(near, close, far)), math_trig.atan2(y, x))


def log1p(z: Complex) -> Complex:
    """log(1 + z): 1/2 log1p(2x + x**2 + y**2) + i atan2(y, 1 + x), the sum kept to twice the precision."""
    x, y = z.re, z.im
    xx, xe = two_product(x, x)
    yy, ye = two_product(y, y)
    larger = xx < yy
    s1, e1 = two_sum(x * 2.0, select(larger, yy, xx))
    s2, e2 = two_sum(s1, select(larger, xx, yy))
    careful = math_exp.log1p(s2 + (e1 + e2 + xe + ye)) * 0.5
    shifted = Complex(x + 1.0, y)
    plain = (modulus(shifted) < 0.5) | (modulus(z) > 1e3)
    tiny = ~(modulus(z) > 1e-140)
    direct = log(shifted)
    near = select(tiny, x + (y * y) * 0.5, careful)
    wild = z.re.is_nan() | z.im.is_nan()
    return Complex(select(plain | wild, direct.re, near), direct.im)


def logistic(z: Complex) -> Complex:
    """e**(z/2) / (2 cosh(z/2)); far out e**z on the left, 1 - e**-z on the right, where e**-z alone would overflow."""
    x, y = z.re, z.im
    far, left = fabs(x) > 40.0, x < 0.0
    e = exp(choose(far, Complex(-fabs(x), select(left, y, -y)), Complex(x * 0.5, y * 0.5)))
    c = cosh(Complex(select(far, x.const(0.0), x * 0.5), y * 0.5))
    outside = choose(left, e, Complex(1.0 - e.re, -e.im))
    return choose(far, outside, _divide(e, Complex(c.re * 2.0, c.im * 2.0)))


def power(a: Complex, b: Complex) -> Complex:
    """exp(b log a); 1 where b is 0, 0 where only a is."""
    general = exp(b * log(a))
    zero = a.re.eq(0.0) & a.im.eq(0.0) & (b.re > 0.0)
    return choose(b.re.eq(0.0) & b.im.eq(0.0), a.real(1.0), choose(zero, a.real(0.0), general))


# ------------------------------------------------------------------ roots


def sqrt(z: Complex) -> Complex:
    """The root with a real part of 0 or more."""
    x, y = z.re, z.im
    p, q = fabs(x), fabs(y)
    top = select(p < q, q, p)
    large, small = top > 2.0**1000, top < 2.0**-900
    s = select(large, top.const(2.0**-100), select(small, top.const(2.0**200), top.const(1.0)))
    back = select(large, top.const(2.0**50), select(small, top.const(2.0**-100), top.const(1.0)))
    x1, y1 = x * s, y * s
    h = modulus(Complex(x1, y1))
    t = call("sqrt", (fabs(x1) + h) * 0.5)
    other = fabs(y1) / (t * 2.0)
    right = ~(x < 0.0)
    re = select(right, t, other) * back
    im = select(right, copysign(other, y), copysign(t, y)) * back
    zero = x.eq(0.0) & y.eq(0.0)
    re, im = select(zero, x.const(0.0), re), select(zero, y, im)
    im = select(x.eq(math.inf) & (fabs(y) < math.inf), copysign(x.const(0.0), y), im)
    im = select(y.is_nan() & (fabs(x) < math.inf), _nan(x), im)
    re = select(y.is_nan() & ~x.eq(math.inf), _nan(x), re)
    re, im = (select(x.is_nan(), _nan(x), v) for v in (re, im))
    return Complex(select(_is_inf(y), x.const(math.inf), re), select(_is_inf(y), y, im))


def rsqrt(z: Complex) -> Complex:
    """1 / sqrt(z), by modulus and argument."""
    root = sqrt(z)
    scale = 1.0 / modulus(root)
    direct = Complex(root.re * scale * scale, -root.im * scale * scale)
    nought = scale.const(0.0)
    vanished = Complex(select(root.re.is_nan(), nought, copysign(nought, root.re)), copysign(nought, -root.im))
    return choose(_is_inf(z.re) | _is_inf(z.im), vanished, direct)


def cbrt(z: Complex) -> Complex:
    """The cube root whose argument is a third of z's."""
    top = _top(z)
    large, small = top > 2.0**1000, top < 2.0**-900  # the modulus overflows there, and is rounded to a few bits here
    scaled = _times(z, select(large, top.const(2.0**-300), select(small, top.const(2.0**300), top.const(1.0))))
    back = select(large, top.const(2.0**100), select(small, top.const(2.0**-100), top.const(1.0)))
    radius = math_exp.cbrt(modulus(scaled)) * back
    angle = math_trig.atan2(z.im, z.re) * (1.0 / 3.0)
    return Complex(radius * math_trig.cos(angle), radius * math_trig.sin(angle))


# ------------------------------------------------------------------ circular and hyperbolic


def sinh(z: Complex) -> Complex:
    """sinh x cos y + i cosh x sin y."""
    x, y = z.re, z.im
    c, s, sh, ch, again = _hyperbolic_parts(x, y)
    return Complex(select(x.eq(0.0), x, sh * c * again), select(y.eq(0.0), y, ch * s * again))


def cosh(z: Complex) -> Complex:
    """cosh x cos y + i sinh x sin y."""
    x, y = z.re, z.im
    c, s, sh, ch, again = _hyperbolic_parts(x, y)
    im = sh * s * again
    nought = copysign(x.const(1.0), x) * copysign(x.const(0.0), y)
    return Complex(ch * c * again, select(x.eq(0.0) | y.eq(0.0), nought, im))


def _hyperbolic_parts(x: Value, y: Value) -> tuple[Value, Value, Value, Value, Value]:
    """(cos y, sin y, sinh x, cosh x, a factor): beyond FAR the hyperbolic functions are e**|x|/2 in two factors."""
    far = fabs(x) > FAR
    near_x = select(far, x.const(0.0), x)
    half = math_exp.exp(select(far, fabs(x) * 0.5, x.const(0.0)))
    sh = select(far, copysign(half * 0.5, x), math_trig.sinh(near_x))
    ch = select(far, half * 0.5, math_trig.cosh(near_x))
    # at an infinite x the real part is infinite, whatever y is
    c = select(_is_inf(x) & _is_wild(y), x.const(1.0), math_trig.cos(y))
    return c, math_trig.sin(y), sh, ch, select(far, half, half.const(1.0))


def tanh(z: Complex) -> Complex:
    """(sinh x cosh x + i sin y cos y) / (sinh(x)**2 + cos(y)**2)."""
    x, y = z.re, z.im
    far = fabs(x) > 22.0
    near_x = select(far, x.const(0.0), x)
    t = math_trig.tan(y)
    beta = t * t + 1.0
    sh = math_trig.sinh(near_x)
    rho = call("sqrt", sh * sh + 1.0)
    denominator = beta * sh * sh + 1.0
    near = Complex(beta * rho * sh / denominator, t / denominator)
    decay = math_exp.exp(fabs(x) * -2.0)
    quarter = select(_is_wild(y) & _is_inf(x), _nought(y), math_trig.sin(y) * math_trig.cos(y))
    one = select(_is_wild(y) & ~_is_inf(x), _nan(x), copysign(x.const(1.0), x))
    outside = Complex(one, quarter * decay * 4.0)
    found = choose(far, outside, near)
    found = Complex(select(x.eq(0.0), x, found.re), select(y.eq(0.0), y, found.im))
    return choose(x.is_nan(), Complex(x, select(y.eq(0.0), y, x)), found)


def _turned(f: Callable[[Complex], Complex]) -> Callable[[Complex], Complex]:
    """-i f(i z)."""

    def function(z: Complex) -> Complex:
        w = f(Complex(-z.im, z.re))
        return Complex(w.im, -w.re)

    return function


sin = _turned(sinh)
tan = _turned(tanh)


def cos(z: Complex) -> Complex:
    """cosh(i z)."""
    return cosh(Complex(-z.im, z.re))


def atan2(y: Complex, x: Complex) -> Complex:
    """-i log((x + i y) / sqrt(x**2 + y**2))."""
    i = Complex(x.re.const(0.0), x.re.const(1.0))
    return -i * log(divide(x + i * y, sqrt(x * x + y * y)))


# ------------------------------------------------------------------ inverse functions (Kahan's formulas)

LARGE = 1e150  # squares of what is larger leave f64; there only |z| and arg z matter


def _roots(z: Complex) -> tuple[Complex, Complex]:
    """sqrt(1 - z) and sqrt(1 + z). The signs of zeros are kept: they choose the side of a cut."""
    return sqrt(Complex(1.0 - z.re, -z.im)), sqrt(Complex(z.re + 1.0, z.im))


def _is_large(z: Complex) -> Value:
    return (fabs(z.re) > LARGE) | (fabs(z.im) > LARGE)


def _log_of_double(z: Complex) -> Value:
    return log(z).re + LN2


def asin(z: Complex) -> Complex:
    """The arc sine, its real part within [-pi/2, pi/2]."""
    x, y = z.re, z.im
    m, p = _roots(z)
    re = math_trig.atan2(x, m.re * p.re - m.im * p.im)
    near = Complex(select(x.eq(0.0), x, re), math_trig.asinh(m.re * p.im - m.im * p.re))
    far = Complex(copysign(math_trig.atan2(fabs(x), fabs(y)), x), copysign(_log_of_double(z), y))
    return choose(_is_large(z), far, near)


def acos(z: Complex) -> Complex:
    """The arc cosine, its real part within [0, pi]."""
    x, y = z.re, z.im
    m, p = _roots(z)
    re = math_trig.atan2(m.re, p.re) * 2.0
    near = Complex(select(x.eq(0.0) & y.is_nan(), x.const(math.pi / 2), re), math_trig.asinh(p.re * m.im - p.im * m.re))
    far = Complex(math_trig.atan2(fabs(y), x), -copysign(_log_of_double(z), y))
    return choose(_is_large(z), far, near)


def acosh(z: Complex) -> Complex:
    """The inverse of cosh with a real part of 0 or more."""
    x, y = z.re, z.im
    m, p = sqrt(Complex(x - 1.0, y)), sqrt(Complex(x + 1.0, y))
    im = select(x.eq(0.0) & y.is_nan(), x.const(math.pi / 2), math_trig.atan2(m.im, p.re) * 2.0)
    near = Complex(math_trig.asinh(m.re * p.re + m.im * p.im), im)
    return choose(_is_large(z), Complex(_log_of_double(z), math_trig.atan2(y, x)), near)


def atanh(z: Complex) -> Complex:
    """1/2 log((1 + z) / (1 - z))."""
    x, y = z.re, z.im
    a = fabs(x)
    # for x near -1 the quotient would be near -1 too, and its log1p lose digits
    re = copysign(math_exp.log1p(a * 4.0 / ((1.0 - a) * (1.0 - a) + y * y)) * 0.25, x)
    im = math_trig.atan2(y * 2.0, (1.0 - x) * (x + 1.0) - y * y) * 0.5
    near = Complex(select(x.eq(0.0), x, re), im)
    h = modulus(Complex(x * 0.5, y * 0.5))  # |z| itself may be beyond the largest number
    tiny = a * 0.25 / h * 0.5 / h
    far = Complex(copysign(select(_is_inf(h), h.const(0.0), tiny * 2.0), x), copysign(x.const(math.pi / 2), y))
    far = Complex(far.re, select(y.is_nan(), y, far.im))
    return choose(_is_large(z), far, near)


asinh = _turned(asin)
atan = _turned(atanh)


# ------------------------------------------------------------------ as scalar ops


def _parts(kind: Any, z: Value, wide: bool) -> Complex:
    c = unpack(z)
    return Complex(c.re.cast("fpext", F64), c.im.cast("fpext", F64)) if wide and kind is types.complex64 else c


def emitter(function: Callable[..., Any], wide: bool = True) -> Callable[..., Value]:
    """A function of Complex as an emitter of ``register.define``; ``wide`` ones are computed in f64."""

    def emit(kind: Any, *arguments: Value) -> Value:
        found = function(*(_parts(kind, a, wide) for a in arguments))
        narrow = wide and kind is types.complex64
        if isinstance(found, Value):
            return found.cast("fptrunc", F32) if narrow else found
        return pack(Complex(found.re.cast("fptrunc", F32), found.im.cast("fptrunc", F32)) if narrow else found)

    return emit


def less(p: Complex, q: Complex) -> Value:
    """By real part, then by imaginary part."""
    return (p.re < q.re) | (p.re.eq(q.re) & (p.im < q.im))


def equal(p: Complex, q: Complex) -> Value:
    return p.re.eq(q.re) & p.im.eq(q.im)


def maximum(p: Complex, q: Complex) -> Complex:
    return choose(less(p, q), q, p)


def minimum(p: Complex, q: Complex) -> Complex:
    return choose(less(q, p), q, p)


def clamp(low: Complex, z: Complex, high: Complex) -> Complex:
    return minimum(maximum(z, low), high)


_exact = functools.partial(emitter, wide=False)
COMPLEX: dict[str, Callable[..., Value]] = {
    "add": _exact(Complex.__add__), "subtract": _exact(Complex.__sub__), "multiply": _exact(Complex.__mul__),
    "negate": _exact(Complex.__neg__), "maximum": _exact(maximum), "minimum": _exact(minimum), "clamp": _exact(clamp),
    "eq": _exact(equal), "ne": _exact(lambda p, q: ~equal(p, q)), "lt": _exact(less), "gt": _exact(lambda p, q: less(q, p)),
    "le": _exact(lambda p, q: less(p, q) | equal(p, q)), "ge": _exact(lambda p, q: less(q, p) | equal(p, q)),
    "reduce_add": _exact(Complex.__add__), "reduce_multiply": _exact(Complex.__mul__),
    "reduce_fma": _exact(lambda t, p, q: t + p * q), "reduce_maximum": _exact(maximum), "reduce_minimum": _exact(minimum),
    "divide": emitter(divide), "absolute": _exact(modulus), "sign": emitter(sign), "square": emitter(square),
    "exp": _exact(exp), "expm1": emitter(expm1), "log": emitter(log), "log1p": emitter(log1p),
    "logistic": emitter(logistic), "power": emitter(power), "sqrt": emitter(sqrt), "rsqrt": emitter(rsqrt),
    "cbrt": emitter(cbrt), "asin": emitter(asin), "acos": emitter(acos), "atan": emitter(atan), "asinh": emitter(asinh),
    "acosh": emitter(acosh), "atanh": emitter(atanh),
    "sin": emitter(sin), "cos": emitter(cos), "tan": emitter(tan), "tanh": emitter(tanh),
    "sinh": emitter(sinh), "cosh": emitter(cosh), "atan2": emitter(atan2),
}  # fmt: skip
"""Scalar op of ``codegen.lib`` -> what it does on complex numbers."""
