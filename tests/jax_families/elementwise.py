"""Functions of one, two and three elements, for every element type that they take, special values among them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax_families.common import (
    COMPLEX,
    FLOATS,
    INTEGERS,
    Table,
    cast,
    each,
    of_types,
    pairs,
    special_floats,
    values,
    whole_range,
)

PROGRAMS = Table()

# name -> (types, low, high)
_ALL = ("bool", *INTEGERS, *FLOATS, *COMPLEX)
_REAL = ("bool", *INTEGERS, *FLOATS)
_UNARY = {
    "sin exp2 cos expm1 tanh arctan arcsinh sinh cosh exp sinc": ((*FLOATS, "int32", *COMPLEX), -4, 4),
    "tan": ((*FLOATS, "int8", *COMPLEX), -1.4, 1.4),
    "sqrt log log2 log10 log1p cbrt i0": ((*FLOATS, "uint8"), 0.25, 9),
    "arcsin arccos arctanh": (FLOATS, -0.95, 0.95),
    "arccosh": (FLOATS, 1.1, 9),
    "abs positive negative square conjugate real imag angle iscomplex isreal isnan isinf isfinite reciprocal": (
        (*INTEGERS[:3], *FLOATS, *COMPLEX),
        -4,
        4,
    ),
    "sign": (("int8", "uint8", "int64", *FLOATS, *COMPLEX), -4, 4),
    "signbit floor ceil trunc rint fabs isposinf isneginf deg2rad rad2deg spacing": (("int32", *FLOATS), -4, 4),
    "logical_not round nan_to_num": (_ALL, -4, 4),
    "invert bitwise_not bitwise_count": (INTEGERS, -99, 99),
    "frexp modf": (FLOATS, -9, 9),
}
for _names, (_types, _low, _high) in _UNARY.items():
    for _name in _names.split():
        _types_here = _types
        if _name in ("arcsinh", "sinc"):  # sin(pi x) of halves depends on where pi x is rounded
            _left_out = (*COMPLEX, "bfloat16", "float16") if _name == "sinc" else COMPLEX
            _types_here = tuple(t for t in _types if t not in _left_out)
        if _name == "reciprocal":
            _types_here = (*FLOATS, *COMPLEX)
        if _name == "round":
            _types_here = (*INTEGERS, *FLOATS, *COMPLEX)
        if _name in ("frexp", "modf", "spacing"):
            _types_here = tuple(t for t in _types_here if t != "int32")
        PROGRAMS.add(f"jnp.{_name}", each(getattr(jnp, _name)), *of_types(_types_here, 3, 5, low=_low, high=_high), x64=True)

_SPECIAL = (
    "sin cos tan exp exp2 expm1 log log1p log2 log10 sqrt cbrt tanh sinh cosh arcsin arccos arctan arcsinh arccosh arctanh "
    "abs sign floor ceil rint trunc signbit isnan isinf nan_to_num reciprocal square"
).split()
for _name in _SPECIAL:
    PROGRAMS.add(
        f"special {_name}",
        each(getattr(jnp, _name)),
        *map(special_floats, ("float32", "float64", "bfloat16", "float16")),
        x64=True,
    )

_BINARY = {
    "add subtract multiply equal not_equal power": ((*INTEGERS[:3], "uint8", *FLOATS, *COMPLEX), 0.5, 4),
    "maximum minimum less less_equal greater greater_equal logaddexp": (("int32", "uint8", *FLOATS), -4, 4),
    "true_divide": (("int32", "uint8", *FLOATS, *COMPLEX), 1, 4),
    "arctan2 hypot copysign logaddexp2 heaviside fmax fmin fmod nextafter float_power isclose": (("float32", "float64"), -4, 4),
    "floor_divide remainder divmod mod": ((*INTEGERS, *FLOATS), 1, 9),
    "bitwise_and bitwise_or bitwise_xor": (("bool", *INTEGERS), 0, 99),
    "left_shift right_shift": (INTEGERS, 0, 6),
    "logical_and logical_or logical_xor": (("bool", "int32", "float32"), -1, 1),
    "gcd lcm": (("int32", "uint8", "int64"), 0, 12),
}
for _names, (_types, _low, _high) in _BINARY.items():
    for _name in _names.split():
        _args = [values(t, *s, low=_low, high=_high, seed=_name + str(s)) for t in _types for s in ((3, 1, 5), (4, 1))]
        PROGRAMS.add(f"jnp.{_name}", pairs(getattr(jnp, _name)), *_args, x64=True, slow=_name in ("float_power", "lcm"))

PROGRAMS.add(
    "integers wrap around",
    lambda *xs: [(x + x, x * x, -x, jnp.abs(x), x - 1, x**3, jnp.sign(x)) for x in xs],
    *(whole_range(t, 7) for t in INTEGERS),
    x64=True,
)
PROGRAMS.add(
    "integer quotients by anything",
    lambda *xs: [(x // y, x % y, lax.div(x, y), lax.rem(x, y)) for x, y in zip(xs[::2], xs[1::2], strict=True)],
    *(
        np.repeat(whole_range(t, 5), 5) if k == 0 else np.tile(np.array([0, 1, -1, 3, -7]).astype(t), 5)
        for t in INTEGERS
        for k in (0, 1)
    ),
    x64=True,
)
PROGRAMS.add(
    "shifts by anything",
    lambda *xs: [
        (lax.shift_left(x, y), lax.shift_right_logical(x, y), lax.shift_right_arithmetic(x, y), x << y, x >> y)
        for x, y in zip(xs[::2], xs[1::2], strict=True)
    ],
    *(
        np.repeat(whole_range(t, 5), 6) if k == 0 else np.tile(np.array([0, 1, 7, 8, 31, 200]).astype(t), 5)
        for t in INTEGERS
        for k in (0, 1)
    ),
    x64=True,
)
PROGRAMS.add(
    "bits", lambda *xs: [(lax.population_count(x), lax.clz(x), ~x) for x in xs], *(whole_range(t, 9) for t in INTEGERS), x64=True
)
PROGRAMS.add(
    "high halves of products", lambda *xs: [lax.mulhi(x, x[::-1]) for x in xs], *(whole_range(t, 9) for t in INTEGERS), x64=True
)

_CONVERTED = {
    "floats": np.array([1.9, -1.9, 0.5, 2.5, -0.0, 300.0, -3e10, 3e10, 1e30, np.inf, -np.inf, np.nan]),
    "halves": np.array([1 + 2**-8, 1 + 3 * 2**-8, 65504, 65519, 65520, 2**-24, 2**-25, 3 * 2**-25, 6e-8, 3.3895e38, 1e39]),
}
_TARGETS = ("bool", *INTEGERS, *FLOATS)
for _what, _source in _CONVERTED.items():
    for _t in FLOATS:
        PROGRAMS.add(f"convert {_what} from {_t}", lambda x: [x.astype(t) for t in _TARGETS], cast(_source, _t), x64=True)
PROGRAMS.add(
    "convert integers",
    lambda *xs: [[x.astype(t) for t in (*_TARGETS, *COMPLEX)] for x in xs],
    *(whole_range(t, 8) for t in INTEGERS),
    x64=True,
    slow=True,
)
PROGRAMS.add("convert booleans", lambda x: [x.astype(t) for t in (*_TARGETS, *COMPLEX)], values("bool", 5), x64=True)
PROGRAMS.add(
    "convert complex numbers",
    lambda *xs: [[x.astype(t) for t in COMPLEX] + [x.real.astype("float16")] for x in xs],
    *of_types(COMPLEX, 5),
    x64=True,
)

PROGRAMS.add(
    "complex parts",
    lambda *xs: [(x.real, x.imag, x.conj(), jnp.abs(x), jnp.angle(x), lax.complex(x.imag, x.real)) for x in xs],
    *of_types(COMPLEX, 4, 4),
    x64=True,
)
PROGRAMS.add(
    "complex arithmetic",
    lambda x, y: (x + y, x - y, x * y, x / y, x**2, x**-1, x**y, jnp.reciprocal(x), jnp.sqrt(x), x == y),
    *of_types(("complex64",), 6, seed="a"),
    *of_types(("complex64",), 6, seed="b"),
)


def inverse_functions(x: Any) -> Any:
    functions = (jnp.log, jnp.log1p, jnp.arcsin, jnp.arccos, jnp.arctan, jnp.arcsinh, jnp.arccosh, jnp.arctanh)
    return tuple(f(x) for f in functions)


PROGRAMS.add(
    "complex inverse functions",
    inverse_functions,
    values("complex64", 9),
)
PROGRAMS.add(
    "complex inverse functions, wide",
    inverse_functions,
    values("complex128", 9),
    x64=True,
)

PROGRAMS.add(
    "powers",
    lambda x: (x**2, x**3, x**-2, x**0.5, x**0, 2.0**x, lax.integer_pow(x, 7), lax.integer_pow(x, -3), lax.rsqrt(x)),
    values("float32", 9, low=0.2, high=3),
)
_BASE = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, np.inf, -np.inf, np.nan], np.float32)
PROGRAMS.add("powers of special numbers", lambda x: x[:, None] ** jnp.concatenate([x, jnp.array([0.5, 3.0, -3.0, 1.5])]), _BASE)
PROGRAMS.add(
    "powers of integers",
    lambda *xs: [(x**y, x**0, x**5) for x, y in zip(xs[::2], xs[1::2], strict=True)],
    *(a for t in INTEGERS for a in (values(t, 8, low=-7, high=7), values(t, 8, low=0, high=9))),
    x64=True,
)
PROGRAMS.add(
    "integer base, whole exponents", lambda x, n: (lax.pow(x, n), jnp.power(x, n)), values("float32", 9), values("int32", 9)
)

PROGRAMS.add(
    "extrema of special numbers",
    lambda *xs: [
        (
            jnp.maximum(x[:, None], x),
            jnp.minimum(x[:, None], x),
            jnp.fmax(x[:, None], x),
            jnp.fmin(x[:, None], x),
            x[:, None] < x,
            x[:, None] == x,
            x[:, None] != x,
            x[:, None] >= x,
        )
        for x in xs
    ],
    *map(special_floats, FLOATS),
    x64=True,
)
PROGRAMS.add(
    "quotients of special numbers",
    lambda *xs: [(x[:, None] / x, x[:, None] % x, x[:, None] // x, lax.rem(x, x[::-1])) for x in xs],
    *(special_floats(t)[:9] for t in FLOATS),
    x64=True,
)
PROGRAMS.add(
    "angles of special numbers",
    lambda *xs: [
        (
            jnp.arctan2(x[:, None], x),
            jnp.hypot(x[:, None], x),
            jnp.copysign(x[:, None], x),
            lax.nextafter(*jnp.broadcast_arrays(x[:, None], x)),
        )
        for x in xs
    ],
    *(special_floats(t)[:9] for t in ("float32", "float64")),
    x64=True,
)
PROGRAMS.add(
    "clamps",
    lambda x, lo, hi: (
        jnp.clip(x, lo, hi),
        lax.clamp(lo, x, hi),
        jnp.clip(x, None, 1.0),
        jnp.clip(x, -1.0),
        lax.clamp(jnp.float32(-1), x, jnp.float32(1)),
    ),
    special_floats("float32"),
    np.full(12, -2, np.float32),
    np.full(12, 2, np.float32),
)
PROGRAMS.add(
    "selections",
    lambda c, x, y: (
        jnp.where(c, x, y),
        jnp.where(c, x, 0),
        lax.select_n(c.astype(jnp.int32), x, y, x + y),
        jnp.select([c, x > 0], [x, y], 7),
        jnp.choose(c.astype(int), [x, y], mode="clip"),
        jnp.piecewise(x, [c, y > 0], [1.0, jnp.sin, 2.0]),
    ),
    values("bool", 4, 3),
    values("float32", 4, 3),
    values("float32", 4, 3, seed="y"),
)
PROGRAMS.add(
    "reduced precision",
    lambda x: [lax.reduce_precision(x, e, m) for e, m in ((8, 7), (5, 10), (5, 2), (4, 3), (8, 1), (11, 52), (2, 1))],
    np.concatenate([special_floats("float32"), values("float32", 9, seed="rp")]),
)
PROGRAMS.add(
    "reduced precision, wide",
    lambda x: [lax.reduce_precision(x, e, m) for e, m in ((8, 23), (5, 10), (8, 7), (11, 30))],
    np.concatenate([special_floats("float64"), values("float64", 9, seed="rp")]),
    x64=True,
)
PROGRAMS.add(
    "bits of the same width",
    lambda a, b, c, d: (
        lax.bitcast_convert_type(a, jnp.int32),
        lax.bitcast_convert_type(b, jnp.float32),
        lax.bitcast_convert_type(c, jnp.uint16),
        d.view(jnp.int8),
        a.view(jnp.uint32),
    ),
    values("float32", 5),
    whole_range("int32", 5),
    values("bfloat16", 5),
    whole_range("uint8", 5),
)
PROGRAMS.add(
    "bits of other widths",
    lambda a, b, c: (
        lax.bitcast_convert_type(a, jnp.uint8),
        lax.bitcast_convert_type(b, jnp.int32),
        lax.bitcast_convert_type(a, jnp.bfloat16),
        c.view(jnp.int16),
    ),
    values("float32", 5),
    whole_range("uint16", 3, 2),
    whole_range("int8", 3, 4),
)
PROGRAMS.add(
    "bits of 64-bit types",
    lambda a, b: (
        lax.bitcast_convert_type(a, jnp.uint32),
        lax.bitcast_convert_type(a, jnp.int64),
        lax.bitcast_convert_type(b, jnp.float64),
        a.view(jnp.uint8),
    ),
    values("float64", 5),
    whole_range("uint32", 3, 2),
    x64=True,
)
PROGRAMS.add(
    "bf16 rounds after each op",
    lambda x, y: (x * y + x, (x + y) - x, x / y, jnp.exp(x) * y, jnp.sum(x), jnp.mean(x * y), x @ y),
    values("bfloat16", 40),
    values("bfloat16", 40, seed="y"),
)
PROGRAMS.add(
    "f16 overflows and underflows",
    lambda x: (x * x, x * x * jnp.float16(1e-3), x / 3e4, jnp.exp(x), x.sum(), x.mean()),
    np.array([300, -300, 1, 1e-4, 6e-5, 60000, 10, 11, 12], np.float16),
)
PROGRAMS.add(
    "small numbers",
    lambda x: (x * 2, x + x, x > 0, x == 0, jnp.abs(x), jnp.where(x > 0, x, 0), -x),
    np.array([2.0**-126, -(2.0**-126), 2.0**-125, 2.0**-120, 0.0], np.float32),
)
PROGRAMS.add(
    "promotion",
    lambda a, b, c, d: (a + b, b + c, a * d, b * d, c * 1.5, b + 1, d + 2.5, a + 1j, jnp.add(b, True), b / 2, b // 2),
    values("bool", 5),
    values("int8", 5),
    values("uint8", 5),
    values("bfloat16", 5),
)
PROGRAMS.add(
    "promotion, wide",
    lambda a, b, c, d: (a + b, b + c, a * d, b * d, c * 1.5, b + 1, d + 2.5, a + 1j, b / c, jnp.sqrt(b)),
    values("uint32", 5),
    values("int64", 5),
    values("uint64", 5, low=1),
    values("float16", 5),
    x64=True,
)
PROGRAMS.add(
    "0-d",
    lambda x, n, c: (x + n, x * c, jnp.where(n > 0, x, c), n << 3, -x, x.astype(int), jnp.sin(c), n % 5, x == n),
    np.float32(1.5),
    np.int32(7),
    np.float32(2.5),
)
PROGRAMS.add(
    "empty",
    lambda x, n: (x + 1, x * n, jnp.sin(x), x > 0, x.astype(jnp.int8), jnp.where(x > 0, x, 0), -n, x[None] + jnp.ones((3, 1, 1))),
    values("float32", 0, 4),
    values("int32", 0, 4),
)

_LAX_UNARY = {
    "erf erfc bessel_i0e bessel_i1e sin cos tan logistic tanh exp2 expm1 cbrt": (FLOATS, -3, 3),
    "erf_inv": (FLOATS, -0.95, 0.95),
    "lgamma digamma rsqrt log1p sqrt": (FLOATS, 0.2, 9),
    "asinh sinh cosh atan": (FLOATS, -3, 3),
    "is_finite ceil floor neg sign abs square": (FLOATS, -3, 3),
}
for _names, (_types, _low, _high) in _LAX_UNARY.items():
    for _name in _names.split():
        PROGRAMS.add(
            f"lax.{_name}",
            each(getattr(lax, _name)),
            *of_types(_types, 11, low=_low, high=_high),
            x64=True,
            bound=1e-4 if _name in ("lgamma", "digamma") else None,
        )
PROGRAMS.add(
    "lax.round",
    lambda *xs: [(lax.round(x), lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)) for x in xs],
    *(cast(np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.4999, 1e8, -0.2]), t) for t in FLOATS),
    x64=True,
)
for _name in ("igamma", "igammac", "zeta", "random_gamma_grad", "igamma_grad_a", "polygamma"):
    PROGRAMS.add(
        f"lax.{_name}",
        pairs(getattr(lax, _name)),
        *(
            (
                np.array([1.0, 2, 3, 1, 4, 2, 3]).astype(t)
                if _name == "polygamma"
                else values(t, 7, low=1.2, high=6, seed=_name + k)
            )
            if k == "a"
            else values(t, 7, low=0.3, high=6, seed=_name + k)
            for t in ("float32", "float64")
            for k in "ab"
        ),
        x64=True,
        bound=1e-4,
        slow=True,
    )
PROGRAMS.add(
    "lax.betainc",
    lambda a, b, x: lax.betainc(a, b, x),
    values("float32", 7, low=0.3, high=5),
    values("float32", 7, low=0.3, high=5, seed="b"),
    values("float32", 7, low=0.01, high=0.99),
    bound=1e-4,
    slow=True,
)
PROGRAMS.add(
    "gradients of elementwise functions",
    lambda x: [
        jax.grad(lambda x, f=f: f(x).sum())(x)
        for f in (
            jnp.sin,
            jnp.tanh,
            jnp.exp,
            jnp.log1p,
            jnp.sqrt,
            jnp.arctan,
            jnp.sinh,
            lax.erf,
            lax.logistic,
            lax.rsqrt,
            jnp.cbrt,
            jnp.abs,
            jnp.square,
        )
    ],
    values("float32", 5, low=0.3, high=2),
)
PROGRAMS.add(
    "gradients of binary functions",
    lambda x, y: [
        jax.grad(lambda x, y, f=f: f(x, y).sum(), argnums=(0, 1))(x, y)
        for f in (jnp.power, jnp.arctan2, jnp.hypot, jnp.maximum, jnp.logaddexp, jnp.true_divide, jnp.remainder)
    ],
    values("float32", 5, low=0.3, high=2),
    values("float32", 5, low=0.3, high=2, seed="y"),
)
