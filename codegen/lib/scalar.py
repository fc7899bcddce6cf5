"""The scalar ops that generated source calls: arithmetic with StableHLO's edge rules, and the transcendental functions.

Each op is a plain function (so a kernel can be stepped through with NumPy scalars) registered with a lowering that
is branch-free and vectorises.  Operands of one op have one type and the result keeps it: ``add`` of two int8 wraps in
int8, unlike numba's ``+``.  No op carries a fast-math flag except the ``reduce_*`` family, which may be reassociated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from codegen.kernel import types
from codegen.lib import math_erf, math_exp, math_special, math_trig
from codegen.lib.complexes import COMPLEX
from codegen.lib.convert import magnitude
from codegen.lib.convert import round_bf16 as _round_bf16
from codegen.lib.convert import round_bf16_result as _round_bf16_result
from codegen.lib.convert import round_f16 as _round_f16
from codegen.lib.emit import Value, call, copysign, fabs, mul_add
from codegen.lib.emit import select as choose
from codegen.lib.register import define
from codegen.lib.representation import extreme


def _with_complex(name: str, emitters: dict[str, Callable[..., Value]]) -> dict[str, Callable[..., Value]]:
    """The emitters, and that of the op on complex numbers where it has one."""
    return {**emitters, "c": COMPLEX[name]} if name in COMPLEX else emitters


# ------------------------------------------------------------------ functions of one float or complex number


def _unary(name: str, emit: Callable[[Value], Value], python: Callable[[Any], Any], doc: str) -> Any:
    def function(x: Any) -> Any:
        with np.errstate(all="ignore"):
            return type(x)(python(x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    define(function, 1, _with_complex(name, {"f": lambda kind, v: emit(v)}))
    return function


def _cbrt(x: Any) -> Any:
    return np.cbrt(np.abs(x)) * np.exp(1j * np.angle(x) / 3) if np.iscomplexobj(x) else np.cbrt(x)


def _erf_inv(x: Any) -> float:
    y = 0.0
    for _ in range(60 if abs(x) < 1 else 0):  # Newton's iteration, which erf's concavity keeps on one side
        y -= (math.erf(y) - abs(x)) * math.exp(y * y) * math.sqrt(math.pi) / 2
    return math.copysign(y if abs(x) < 1 else math.inf if abs(x) == 1 else math.nan, x)


def _lgamma(x: Any) -> float:
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


def _digamma(number: Any) -> float:
    x = float(number)
    if x == -math.inf or (x <= 0 and x == math.floor(x)):
        return math.nan
    if x < 0:
        return _digamma(1 - x) - math.pi / math.tan(math.pi * x)
    total = 0.0
    while x < 20:
        total, x = total - 1 / x, x + 1
    v = 1 / (x * x)
    return total + math.log(x) - 0.5 / x - v * (1 / 12 - v * (1 / 120 - v * (1 / 252 - v / 240)))


def _i1e(x: Any) -> float:
    angles = (np.arange(400) + 0.5) * (np.pi / 400)
    return float(np.mean(np.exp(float(x) * np.cos(angles) - abs(float(x))) * np.cos(angles)))


exp = _unary("exp", math_exp.exp, np.exp, "e**x.")
expm1 = _unary("expm1", math_exp.expm1, np.expm1, "e**x - 1, accurate near 0.")
log = _unary("log", math_exp.log, np.log, "The natural logarithm; -inf at 0, NaN below.")
log1p = _unary("log1p", math_exp.log1p, np.log1p, "log(1 + x), accurate near 0.")
tanh = _unary("tanh", math_exp.tanh, np.tanh, "The hyperbolic tangent.")
fast_tanh = _unary("fast_tanh", math_exp.fast_tanh, np.tanh, "tanh, at half the cost and with an error of up to 6 ulp.")
logistic = _unary("logistic", math_exp.logistic, lambda x: 1 / (1 + np.exp(-x)), "1 / (1 + e**-x).")
sqrt = _unary("sqrt", math_exp.sqrt, np.sqrt, "The square root, correctly rounded.")
rsqrt = _unary("rsqrt", math_exp.rsqrt, lambda x: 1 / np.sqrt(x), "1 / sqrt(x).")
cbrt = _unary("cbrt", math_exp.cbrt, _cbrt, "The cube root; of a complex number the one whose argument is a third of its.")
erf = _unary("erf", math_erf.erf, math.erf, "The error function.")
fast_erf = _unary("fast_erf", math_erf.fast_erf, math.erf, "erf, at two thirds of the cost and with an error of up to 6 ulp.")
erfc = _unary("erfc", math_erf.erfc, math.erfc, "1 - erf(x), accurate in the tail.")
erf_inv = _unary("erf_inv", math_special.erf_inv, _erf_inv, "The inverse of the error function.")
lgamma = _unary("lgamma", math_special.lgamma, _lgamma, "log |Gamma(x)|.")
digamma = _unary("digamma", math_special.digamma, _digamma, "The derivative of lgamma.")
bessel_i1e = _unary("bessel_i1e", math_special.bessel_i1e, _i1e, "exp(-|x|) I1(x), the scaled Bessel function of order 1.")
sin = _unary("sin", math_trig.sin, np.sin, "The sine of x radians.")
cos = _unary("cos", math_trig.cos, np.cos, "The cosine of x radians.")
tan = _unary("tan", math_trig.tan, np.tan, "The tangent of x radians.")
atan = _unary("atan", math_trig.atan, np.arctan, "The arc tangent, in [-pi/2, pi/2].")
asin = _unary("asin", math_trig.asin, np.arcsin, "The arc sine.")
acos = _unary("acos", math_trig.acos, np.arccos, "The arc cosine.")
sinh = _unary("sinh", math_trig.sinh, np.sinh, "The hyperbolic sine.")
cosh = _unary("cosh", math_trig.cosh, np.cosh, "The hyperbolic cosine.")
asinh = _unary("asinh", math_trig.asinh, np.arcsinh, "The inverse hyperbolic sine.")
acosh = _unary("acosh", math_trig.acosh, np.arccosh, "The inverse hyperbolic cosine.")
atanh = _unary("atanh", math_trig.atanh, np.arctanh, "The inverse hyperbolic tangent.")
floor = _unary("floor", lambda v: call("floor", v), np.floor, "The largest integer <= x.")
ceil = _unary("ceil", lambda v: call("ceil", v), np.ceil, "The smallest integer >= x.")
round_nearest_even = _unary("round_nearest_even", lambda v: call("rint", v), np.rint, "Round, ties to even.")
round_nearest_afz = _unary(
    "round_nearest_afz",
    lambda v: call("round", v),
    lambda x: np.copysign(np.trunc(np.abs(x)) + (np.abs(x) - np.trunc(np.abs(x)) >= 0.5), x),
    "Round, ties away from zero.",
)


def _to_storage(name: str) -> Callable[[Any], Any]:
    def rounded(x: Any) -> Any:
        import ml_dtypes

        return np.float32(ml_dtypes.bfloat16(x) if name == "bfloat16" else np.float16(x))

    return rounded


def round_bf16(x: Any) -> Any:
    """x (f32) rounded to the nearest bfloat16, ties to even, still an f32."""
    return _to_storage("bfloat16")(x)


def round_bf16_result(x: Any) -> Any:
    """`round_bf16` of what an op computes of bfloat16 numbers."""
    return _to_storage("bfloat16")(x)


def round_f16(x: Any) -> Any:
    """x (f32) rounded to the nearest IEEE half, ties to even, still an f32."""
    return _to_storage("float16")(x)


define(round_bf16, 1, {"f": lambda kind, v: _round_bf16(v)})
define(round_bf16_result, 1, {"f": lambda kind, v: _round_bf16_result(v)})
define(round_f16, 1, {"f": lambda kind, v: _round_f16(v)})


def atan2(y: Any, x: Any) -> Any:
    """The angle of the point (x, y), in [-pi, pi], with C's edge cases."""
    return type(y)(np.arctan2(y, x))


def fma(x: Any, y: Any, z: Any) -> Any:
    """x y + z; fused to one rounding where the target has the instruction."""
    return x * y + z


define(atan2, 2, _with_complex("atan2", {"f": lambda kind, y, x: math_trig.atan2(y, x)}))
define(fma, 3, {"f": lambda kind, x, y, z: mul_add(x, y, z)})

# ------------------------------------------------------------------ arithmetic


def _typed(x: Any, value: Any) -> Any:
    """``value`` as x's own type, wrapping integers."""
    return np.asarray(value).astype(np.asarray(x).dtype)[()]


def _wrapped(x: Any, value: int) -> Any:
    """A Python integer modulo 2**n as x's own type."""
    return np.array([value & (2**64 - 1)], np.uint64).astype(np.asarray(x).dtype)[0]


def add(x: Any, y: Any) -> Any:
    """x + y, wrapping; ``or`` of bools."""
    with np.errstate(all="ignore"):
        return _typed(x, x | y if isinstance(x, np.bool_ | bool) else x + y)


def subtract(x: Any, y: Any) -> Any:
    """x - y, wrapping."""
    with np.errstate(all="ignore"):
        return _typed(x, x - y)


def multiply(x: Any, y: Any) -> Any:
    """x y, wrapping; ``and`` of bools."""
    with np.errstate(all="ignore"):
        return _typed(x, x & y if isinstance(x, np.bool_ | bool) else x * y)


def negate(x: Any) -> Any:
    """-x, wrapping."""
    with np.errstate(all="ignore"):
        return _typed(x, -x)


def _divide_int(kind: Any, x: Value, y: Value) -> Value:
    """Truncating division; x / 0 = -1 (all ones), INT_MIN / -1 = INT_MIN."""
    zero = y.eq(0)
    if not kind.signed:
        return choose(zero, x.const(-1), x.wrap(x.b.udiv(x.v, choose(zero, y.const(1), y).v)))
    minus = y.eq(-1)
    quotient = x.wrap(x.b.sdiv(x.v, choose(zero | minus, y.const(1), y).v))
    return choose(zero, x.const(-1), choose(minus, -x, quotient))


def _remainder_int(kind: Any, x: Value, y: Value) -> Value:
    """The remainder with the dividend's sign; x % 0 = x, INT_MIN % -1 = 0."""
    zero = y.eq(0)
    if not kind.signed:
        return choose(zero, x, x.wrap(x.b.urem(x.v, choose(zero, y.const(1), y).v)))
    odd = zero | y.eq(-1)
    rest = x.wrap(x.b.srem(x.v, choose(odd, y.const(1), y).v))
    return choose(zero, x, choose(odd, x.const(0), rest))


def divide(x: Any, y: Any) -> Any:
    """x / y; integers truncate, x / 0 is -1 (all ones) and INT_MIN / -1 is INT_MIN.

    >>> divide(np.int32(-7), np.int32(2)).item(), divide(np.int32(7), np.int32(0)).item()
    (-3, -1)
    """
    with np.errstate(all="ignore"):
        if not isinstance(x, np.integer | int):
            return _typed(x, np.divide(x, y))
        if int(y) == 0:
            return _typed(x, np.int64(-1))
        quotient = abs(int(x)) // abs(int(y))
        return _wrapped(x, quotient if (x < 0) == (y < 0) else -quotient)


def remainder(x: Any, y: Any) -> Any:
    """x - y trunc(x / y), the sign of x; x for an integer y = 0."""
    with np.errstate(all="ignore"):
        if not isinstance(x, np.integer | int):
            return _typed(x, np.fmod(x, y))
        if int(y) == 0:
            return x
        rest = abs(int(x)) % abs(int(y))
        return np.asarray(x).dtype.type(rest if x >= 0 else -rest)


def _int_power(kind: Any, x: Value, y: Value) -> Value:
    """Square and multiply over every bit of the exponent; a negative exponent gives 1/x truncated, 0 for x = 0."""
    width = x.type.width
    result, base = x.const(1), x
    steps = width if not kind.signed else width - 1
    for bit in range(steps):
        result = choose((y.lshr(bit) & 1).ne(0), result * base, result)
        base = base * base
    if not kind.signed:
        return result
    even = (y & 1).eq(0)
    inverse = choose(x.eq(1) | (x.eq(-1) & even), x.const(1), choose(x.eq(-1), x.const(-1), x.const(0)))
    return choose(y < 0, inverse, result)


def power(x: Any, y: Any) -> Any:
    """x**y; floats with IEEE's edge cases, integers wrapping (a negative exponent gives 1/x truncated)."""
    with np.errstate(all="ignore"):
        if isinstance(x, np.integer) and y < 0:
            return _typed(x, np.int64(0) if abs(int(x)) != 1 else np.int64(1 if x == 1 or int(y) % 2 == 0 else -1))
        if isinstance(x, np.integer):
            return _wrapped(x, pow(int(x), int(y), 1 << 64))
        return _typed(x, np.power(x, y))


def absolute(x: Any) -> Any:
    """|x|; INT_MIN stays."""
    with np.errstate(all="ignore"):
        return np.abs(x)


def sign(x: Any) -> Any:
    """-1, 0 or 1; a float keeps NaN and the sign of zero."""
    return _typed(x, x if isinstance(x, np.floating) and (x == 0 or x != x) else np.sign(x))


def _sign_float(kind: Any, x: Value) -> Value:
    return choose(x.eq(0.0) | x.is_nan(), x, copysign(x.const(1.0), x))


def _sign_int(kind: Any, x: Value) -> Value:
    return choose(x > 0, x.const(1), choose(x < 0, x.const(-1), x.const(0)))


_fadd = {"f": lambda k, x, y: x + y, "iu": lambda k, x, y: x + y, "b": lambda k, x, y: x | y}
define(add, 2, _with_complex("add", _fadd))
define(subtract, 2, _with_complex("subtract", {"fiu": lambda k, x, y: x - y}))
define(multiply, 2, _with_complex("multiply", {"fiu": lambda k, x, y: x * y, "b": lambda k, x, y: x & y}))
define(negate, 1, _with_complex("negate", {"fiu": lambda k, x: -x}))
define(divide, 2, _with_complex("divide", {"f": lambda k, x, y: x / y, "iu": _divide_int}))
define(remainder, 2, {"f": lambda k, x, y: x.wrap(x.b.frem(x.v, y.v)), "iu": _remainder_int})
define(power, 2, _with_complex("power", {"f": lambda k, x, y: math_exp.power(x, y), "iu": _int_power}))
define(
    absolute,
    1,
    _with_complex("absolute", {"f": lambda k, x: magnitude(x), "i": lambda k, x: choose(x < 0, -x, x), "u": lambda k, x: x}),
    result=lambda kind: getattr(kind, "underlying_float", kind),
)
define(sign, 1, _with_complex("sign", {"f": _sign_float, "i": _sign_int, "u": lambda k, x: choose(x.eq(0), x, x.const(1))}))


def maximum(x: Any, y: Any) -> Any:
    """The larger; NaN if either is NaN, and -0 < +0."""
    if isinstance(x, np.floating) and x == 0 and y == 0:
        return x if not np.signbit(x) else y
    return np.maximum(x, y)


def minimum(x: Any, y: Any) -> Any:
    """The smaller; NaN if either is NaN, and -0 < +0."""
    if isinstance(x, np.floating) and x == 0 and y == 0:
        return x if np.signbit(x) else y
    return np.minimum(x, y)


def maximum_by_selects(x: Any, y: Any) -> Any:
    """`maximum` of f32 or f64 without a branch: LLVM's of two numbers, no vectors, asks for the sign of one of them.

    >>> maximum_by_selects(np.float32(-0.0), np.float32(0.0)), maximum_by_selects(np.float64(1), np.float64("nan"))
    (np.float32(0.0), np.float64(nan))
    """
    return maximum(x, y)


def minimum_by_selects(x: Any, y: Any) -> Any:
    """`minimum` of f32 or f64 without a branch."""
    return minimum(x, y)


def _by_selects(kind: Any, x: Value, y: Value, ordered: Value, equal: Value) -> Value:
    """Of two numbers the one that is chosen, of equal ones (which only zeros tell apart) what their bits make, or a NaN."""
    found = choose(x.eq(y), equal.as_float(), ordered)
    return choose(x.is_nan() | y.is_nan(), x + y, found)


define(maximum_by_selects, 2, {"f": lambda k, x, y: _by_selects(k, x, y, choose(x > y, x, y), x.bits() & y.bits())})
define(minimum_by_selects, 2, {"f": lambda k, x, y: _by_selects(k, x, y, choose(x < y, x, y), x.bits() | y.bits())})

_MAX: dict[str, Callable[..., Value]] = {
    "f": lambda k, x, y: extreme("maximum", x, y),
    "i": lambda k, x, y: call("smax", x, y),
    "u": lambda k, x, y: call("umax", x, y),
    "b": lambda k, x, y: x | y,
}
_MIN: dict[str, Callable[..., Value]] = {
    "f": lambda k, x, y: extreme("minimum", x, y),
    "i": lambda k, x, y: call("smin", x, y),
    "u": lambda k, x, y: call("umin", x, y),
    "b": lambda k, x, y: x & y,
}
define(maximum, 2, _with_complex("maximum", _MAX))
define(minimum, 2, _with_complex("minimum", _MIN))


def clamp(low: Any, x: Any, high: Any) -> Any:
    """minimum(maximum(x, low), high)."""
    return minimum(maximum(x, low), high)


def _clamp(letter: str, kind: Any, low: Value, x: Value, high: Value) -> Value:
    return _MIN[letter](kind, _MAX[letter](kind, x, low), high)


define(
    clamp,
    3,
    _with_complex("clamp", {letter: functools.partial(_clamp, letter) for letter in "fiub"}),
)


def is_finite(x: Any) -> Any:
    """Whether x is neither infinite nor NaN."""
    return np.isfinite(x)


define(is_finite, 1, {"f": lambda k, x: fabs(x) < math.inf}, result=lambda kind: types.boolean)

# ------------------------------------------------------------------ reductions: the only ops that may be reassociated


def reduce_add(total: Any, x: Any) -> Any:
    """total + x, where a loop may add in any order; bools: or."""
    return add(total, x)


def reduce_multiply(total: Any, x: Any) -> Any:
    """total x, where a loop may multiply in any order; bools: and."""
    return multiply(total, x)


def reduce_fma(total: Any, x: Any, y: Any) -> Any:
    """total + x y, where a loop may add in any order and fuse the product; bools: total or (x and y)."""
    return add(total, multiply(x, y))


def reduce_maximum(total: Any, x: Any) -> Any:
    """maximum(total, x)."""
    return maximum(total, x)


def reduce_minimum(total: Any, x: Any) -> Any:
    """minimum(total, x)."""
    return minimum(total, x)


def _reassociated(op: str) -> Callable[..., Value]:
    def emit(kind: Any, total: Value, x: Value) -> Value:
        return total.wrap(getattr(total.b, op)(total.v, x.v, flags=("reassoc", "contract")))

    return emit


def _reduce_fma(kind: Any, total: Value, x: Value, y: Value) -> Value:
    b = total.b
    product = b.fmul(x.v, y.v, flags=("contract",))
    return total.wrap(b.fadd(total.v, product, flags=("reassoc", "contract")))


define(reduce_add, 2, _with_complex("reduce_add", {**_fadd, "f": _reassociated("fadd")}))
define(
    reduce_multiply,
    2,
    _with_complex("reduce_multiply", {"f": _reassociated("fmul"), "iu": lambda k, x, y: x * y, "b": lambda k, x, y: x & y}),
)
define(
    reduce_fma,
    3,
    _with_complex(
        "reduce_fma",
        {"f": _reduce_fma, "iu": lambda k, t, x, y: t + x * y, "b": lambda k, t, x, y: t | (x & y)},
    ),
)
define(reduce_maximum, 2, _with_complex("reduce_maximum", _MAX))
define(reduce_minimum, 2, _with_complex("reduce_minimum", _MIN))
