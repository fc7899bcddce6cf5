"""Formulas of CHLO's elementwise functions.

Inverse and special functions are computed in f64 (complex ones in complex<f64>) and rounded once; what CHLO defines step by step
(cosh, sinh) keeps its steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes

from hlo.decompositions import special
from hlo.decompositions.expressions import Expression, copysign, of_parts, where
from hlo.decompositions.registry import NoFormulaError, function
from hlo.types import ELEMENT_TYPES

__all__: list[str] = []

X = Expression
_LOG2 = math.log(2)
_LARGE = 1e150  # squares of what is larger leave f64


def in_f64(real: Callable[..., X], complex_: Callable[[X], X] | None = None) -> Callable[..., X]:
    """`real` on operands widened to f64, rounded once at the end; `complex_` on complex<f64>."""

    def formula(*operands: X) -> X:
        x = operands[0]
        if x.element.is_complex:
            if complex_ is None:
                raise NoFormulaError(f"it has no definition for {x.element}")
            return complex_(x.to("complex<f64>")).to(x.element)
        return real(*(o.to("f64") for o in operands)).to(x.element)

    return formula


# ---------------------------------------------------------------- inverse functions of reals


def _acos(x: X) -> X:
    return where(x.eq(-1.0), math.pi, 2 * ((1 - x) * (1 + x)).unary("sqrt").apply("stablehlo.atan2", 1 + x))


def _asin(x: X) -> X:
    return 2 * x.apply("stablehlo.atan2", 1 + ((1 - x) * (1 + x)).unary("sqrt"))


def _atan(x: X) -> X:
    return x.apply("stablehlo.atan2", 1.0)


def _acosh(x: X) -> X:
    t = x - 1
    near = (t + (t * (t + 2)).unary("sqrt")).unary("log_plus_one")
    return where(x < 1, math.nan, where(x > _LARGE, x.unary("log") + _LOG2, near))


def _asinh(x: X) -> X:
    a = abs(x)
    square = a * a
    near = (a + square / (1 + (square + 1).unary("sqrt"))).unary("log_plus_one")
    return copysign(where(a > _LARGE, a.unary("log") + _LOG2, near), x)


def _atanh(x: X) -> X:
    a = abs(x)
    return where(a > 1, math.nan, copysign(0.5 * (2 * a / (1 - a)).unary("log_plus_one"), x))


# ---------------------------------------------------------------- and of complex numbers, by their parts (Kahan's formulas)


def _roots(z: X) -> tuple[X, X, X, X]:
    """sqrt(1 - z) and sqrt(1 + z), in parts. The signs of zeros are kept: they choose the side of a cut."""
    x, y = z.parts()
    minus, plus = of_parts(1 - x, -y).unary("sqrt"), of_parts(1 + x, y).unary("sqrt")
    return (*minus.parts(), *plus.parts())


def _acos_complex(z: X) -> X:
    a, b, c, d = _roots(z)
    return of_parts(2 * a.apply("stablehlo.atan2", c), _asinh(c * b - d * a))


def _asin_complex(z: X) -> X:
    a, b, c, d = _roots(z)
    x, _ = z.parts()
    return of_parts(x.apply("stablehlo.atan2", a * c - b * d), _asinh(a * d - b * c))


def _acosh_complex(z: X) -> X:
    x, y = z.parts()
    a, b = of_parts(x - 1, y).unary("sqrt").parts()
    c, d = of_parts(x + 1, y).unary("sqrt").parts()
    return of_parts(_asinh(a * c + b * d), 2 * b.apply("stablehlo.atan2", c))


def _atanh_complex(z: X) -> X:
    x, y = z.parts()
    a = abs(x)  # for x near -1 the quotient is near -1 too, and log1p of it loses digits
    re = copysign(0.25 * (4 * a / ((1 - a) * (1 - a) + y * y)).unary("log_plus_one"), x)
    im = 0.5 * (2 * y).apply("stablehlo.atan2", (1 - x) * (1 + x) - y * y)
    return of_parts(re, im)


def _turned(inner: Callable[[X], X]) -> Callable[[X], X]:
    """-i f(i z): asinh from asin, atan from atanh."""

    def formula(z: X) -> X:
        x, y = z.parts()
        re, im = inner(of_parts(-y, x)).parts()
        return of_parts(im, -re)

    return formula


function("chlo.acos", in_f64(_acos, _acos_complex))
function("chlo.asin", in_f64(_asin, _asin_complex))
function("chlo.atan", in_f64(_atan, _turned(_atanh_complex)))
function("chlo.acosh", in_f64(_acosh, _acosh_complex))
function("chlo.asinh", in_f64(_asinh, _turned(_asin_complex)))
function("chlo.atanh", in_f64(_atanh, _atanh_complex))

# ---------------------------------------------------------------- hyperbolic functions, tangent, square


def _working(x: X) -> X:
    """Types of less than 32 bits as f32."""
    return x.to("f32") if x.element.is_float and x.element.bits < 32 else x


def _halved_exponentials(x: X) -> tuple[X, X]:
    """exp(x) / 2 and exp(-x) / 2, the half inside of the exponent so that it does not overflow early."""
    return (x - _LOG2).unary("exponential"), (-x - _LOG2).unary("exponential")


def _cosh(x: X) -> X:
    plus, minus = _halved_exponentials(_working(x))
    return (plus + minus).to(x.element)


def _sinh(x: X) -> X:
    y = _working(x)
    plus, minus = _halved_exponentials(y)
    if x.element.is_complex:
        return plus - minus
    e = y.to("f64").unary("exponential_minus_one")
    near = copysign((e + e / (e + 1)) / 2, y.to("f64")).to(y.element)
    return where(abs(y) < 1, near, plus - minus).to(x.element)


def _square(x: X) -> X:
    re, im = x.parts()
    return of_parts((re - im) * (re + im), 2 * (re * im))


function("chlo.cosh", _cosh)
function("chlo.sinh", _sinh)
function("chlo.tan", lambda x: x.unary("tan"))
function("chlo.square", lambda x: _square(x.to("complex<f64>")).to(x.element) if x.element.is_complex else x * x)
function("chlo.conj", lambda x: of_parts(x.parts()[0], -x.parts()[1]) if x.element.is_complex else x)

# ---------------------------------------------------------------- special functions

for _name in ("bessel_i1e", "digamma", "erf", "erf_inv", "erfc", "lgamma", "polygamma", "zeta"):
    function(f"chlo.{_name}", in_f64(getattr(special, _name)))

# ---------------------------------------------------------------- predicates and bits

function("chlo.is_inf", lambda x: abs(x).eq(math.inf))
function("chlo.is_pos_inf", lambda x: x.eq(math.inf))
function("chlo.is_neg_inf", lambda x: x.eq(-math.inf))


def _next_after(x: X, y: X) -> X:
    """One step on the bits, which are ordered as the magnitudes are."""
    width = x.element.bits
    if f"ui{width}" not in ELEMENT_TYPES:
        return _next_of_few(x, y)
    bits = x.bits(f"ui{width}")
    sign = 1 << (width - 1)
    outwards = (x < y).apply("stablehlo.xor", (bits & sign).compare("NE", 0))
    stepped = where(outwards, bits + 1, bits - 1)
    least = where(y < 0, bits.lift(sign | 1), 1)
    moved = where(x.eq(0.0), least, stepped).bits(x.element.name)
    moved = where(x.eq(y), y, moved)
    return where(x.is_nan(), x, where(y.is_nan(), y, moved))


def _next_of_few(x: X, y: X) -> X:
    """One step on f32's numbers, for types of a width that no integer has: away from zero by a unit, towards it from a power of
    two by half of one. Neither infinities nor NaNs are among them."""
    info = ml_dtypes.finfo(x.element.dtype)  # type: ignore[no-untyped-call]
    least, lowest = float(info.smallest_subnormal), int(info.minexp) + 127
    a, b = x.to("f32"), y.to("f32")
    size = abs(a)
    bits = size.bits("ui32")
    exponent = (bits >> 23).apply("stablehlo.maximum", lowest)
    unit = (exponent - int(info.nmant)).apply("stablehlo.shift_left", 23).bits("f32")
    is_power = (bits & 0x7FFFFF).compare("EQ", 0).apply("stablehlo.and", exponent.compare("GT", lowest))
    outwards = (a < b).apply("stablehlo.xor", a < 0)
    stepped = size + where(outwards, unit, where(is_power, unit * -0.5, -unit))
    moved = where(a.eq(0.0), where(b < 0, a.lift(-least), least), where(a < 0, -stepped, stepped))
    return where(a.eq(b), b, moved).to(x.element)


def _mulhi(x: X, y: X) -> X:
    """The upper half of the product of twice the width."""
    width, signed = x.element.bits, x.element.is_signed
    if width < 64:
        wide = "i64" if signed else "ui64"
        return ((x.to(wide) * y.to(wide)) >> width).to(x.element)
    a, b = (v.bits("ui64") if signed else v for v in (x, y))
    mask = 0xFFFFFFFF
    a0, a1, b0, b1 = a & mask, a >> 32, b & mask, b >> 32
    middle = a1 * b0 + ((a0 * b0) >> 32)
    upper = a1 * b1 + (middle >> 32) + (((middle & mask) + a0 * b1) >> 32)
    if not signed:
        return upper
    # A negative factor stands for itself minus 2**64.
    return (upper - where(x < 0, b, 0) - where(y < 0, a, 0)).bits("i64")


function("chlo.next_after", _next_after)
function("chlo.mulhi", _mulhi)
