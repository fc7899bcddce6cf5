"""Complex functions at the ends of their types and at infinities, in the evaluator and in kernels: mpmath and C's Annex G."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from math import inf, nan
from typing import Any

import mpmath
import numpy as np
import pytest

import codegen
import hlo
import interp

TYPES = {"complex<f32>": np.float32, "complex<f64>": np.float64}
PRECISION = {"complex<f32>": 400, "complex<f64>": 2300}  # bits: enough for the angle of the largest number
MOST_ULPS = 8  # of the larger part


def _both(op: str, element: str, *operands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The evaluator's and the kernels' results."""
    t = f"tensor<{operands[0].size}x{element}>"
    result = f"tensor<{operands[0].size}x{element[8:-1]}>" if op == "abs" else t
    names = ", ".join(f"%x{k}" for k in range(len(operands)))
    arguments = ", ".join(f"%x{k}: {t}" for k in range(len(operands)))
    types = ", ".join([t] * len(operands))
    module = hlo.parse(f"""func.func @main({arguments}) -> {result} {{
      %0 = "stablehlo.{op}"({names}) : ({types}) -> {result}
      return %0 : {result}
    }}""")
    executable = codegen.compile(module)
    assert not executable.fallbacks
    with np.errstate(all="ignore"):
        return interp.evaluate(module, *operands)[0], executable(*operands)[0]


@functools.cache
def _sizes(element: str) -> tuple[float, ...]:
    info = np.finfo(TYPES[element])
    least, tiny, most = float(info.smallest_subnormal), float(info.tiny), float(info.max)
    found = [0.0, least, 5 * least, tiny, 8 * tiny, 1e-8, 0.5, 1.0, 3.0, 50.0, 90.0, 1e10, most / 3, most]
    return tuple(s * m for m in found for s in (1, -1))


def _grid(element: str) -> np.ndarray:
    values = _sizes(element)
    dtype = np.complex64 if element == "complex<f32>" else np.complex128
    return np.array([complex(a, b) for a, b in itertools.product(values, values)]).astype(dtype)


def _on_cut(z: complex, w: Any, begins: float) -> Any:
    """mpmath has no -0: below a branch cut along the real axis, its value above, conjugated."""
    return mpmath.conj(w) if z.imag == 0 and np.signbit(z.imag) and z.real < begins else w


def _tanh(w: Any) -> Any:
    if abs(w.real) < 1500:
        return mpmath.tanh(w)
    return mpmath.mpc(mpmath.sign(w.real), 4 * mpmath.exp(-2 * abs(w.real)) * mpmath.sin(w.imag) * mpmath.cos(w.imag))


EXACT: dict[str, Callable[[complex, Any], Any]] = {
    "abs": lambda z, w: abs(w),
    "sign": lambda z, w: w / abs(w) if w else w,
    "sqrt": lambda z, w: _on_cut(z, mpmath.sqrt(w), 0),
    "rsqrt": lambda z, w: _on_cut(z, 1 / mpmath.sqrt(w), 0),
    "exponential": lambda z, w: mpmath.exp(w),
    "exponential_minus_one": lambda z, w: mpmath.exp(w) - 1,
    "log": lambda z, w: _on_cut(z, mpmath.log(w), 0),
    "log_plus_one": lambda z, w: _on_cut(z, mpmath.log(1 + w), -1),
    "tanh": lambda z, w: _tanh(w),
    "logistic": lambda z, w: 1 / (1 + mpmath.exp(-w)),
    "cbrt": lambda z, w: _on_cut(z, mpmath.exp(mpmath.log(w) / 3), 0) if w else w,
    "sine": lambda z, w: mpmath.sin(w),
    "cosine": lambda z, w: mpmath.cos(w),
    "tan": lambda z, w: mpmath.tan(w),
}


def _rounded(x: Any, real: Any) -> float:
    """The nearest number of a type; what is beyond it, infinite."""
    if abs(x) > mpmath.mpf(2) ** 1100:
        return float(mpmath.sign(x)) * inf
    with np.errstate(all="ignore"):
        return 0.0 if abs(x) < mpmath.mpf(2) ** -1200 else float(real(float(x)))


def _agrees(found: Any, exact: Any, real: Any) -> bool:
    """Each part within some ulps of the larger one; infinite and NaN where that is."""
    parts = (found,) if not np.iscomplexobj(found) else (found.real, found.imag)
    wanted = (exact,) if len(parts) == 1 else (mpmath.re(exact), mpmath.im(exact))
    rounded = [_rounded(x, real) for x in wanted]
    larger = max(abs(x) for x in rounded)
    if larger == inf:
        return all(p == w for p, w in zip(parts, rounded, strict=True) if abs(w) == inf)
    ulp = float(larger - np.nextafter(real(larger), real(0))) if larger else float(np.finfo(real).smallest_subnormal)
    return all(abs(float(p) - w) <= MOST_ULPS * ulp for p, w in zip(parts, rounded, strict=True))


@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize("element", TYPES)
def test_functions_at_extremes(element: str, op: str) -> None:
    zs, real = _grid(element), TYPES[element]
    evaluated, computed = _both(op, element, zs)
    some = slice(len(op), None, 13)  # others for each function
    with mpmath.workprec(PRECISION[element]):
        for z, e, k in zip(zs[some], evaluated[some], computed[some], strict=True):
            w = mpmath.mpc(float(z.real), float(z.imag))
            if not w and op in ("log", "rsqrt"):
                continue
            exact = EXACT[op](z, w)
            assert _agrees(e, exact, real), ("evaluator", z, e, exact)
            assert _agrees(k, exact, real), ("kernel", z, k, exact)


@pytest.mark.parametrize("element", TYPES)
def test_quotients_at_extremes(element: str) -> None:
    info = np.finfo(TYPES[element])
    values = [0.0, 3 * float(info.smallest_subnormal), float(info.tiny), -1e-20, 1.0, -3.0, 1e20, float(info.max) / 3, -float(info.max)]
    dtype = np.complex64 if element == "complex<f32>" else np.complex128
    grid = np.array([complex(a, b) for a, b in itertools.product(values, values)]).astype(dtype)
    x, y = np.repeat(grid, grid.size), np.tile(grid, grid.size)
    keep = y != 0
    x, y = x[keep][::23], y[keep][::23]
    evaluated, computed = _both("divide", element, x, y)
    with mpmath.workprec(PRECISION[element]):
        for a, b, e, k in zip(x, y, evaluated, computed, strict=True):
            exact = mpmath.mpc(float(a.real), float(a.imag)) / mpmath.mpc(float(b.real), float(b.imag))
            assert _agrees(e, exact, TYPES[element]), ("evaluator", a, b, e, exact)
            assert _agrees(k, exact, TYPES[element]), ("kernel", a, b, k, exact)


# C11, Annex G.6: f(z) for an infinite or NaN part. Where it leaves a sign open, the one that keeps f(conj z) = conj f(z).
ANNEX_G = {
    "exponential": [
        (-inf, inf, 0.0, 0.0), (-inf, -inf, 0.0, -0.0), (-inf, nan, 0.0, 0.0), (-inf, 1.0, 0.0, 0.0), (inf, inf, inf, nan),
        (inf, nan, inf, nan), (inf, 0.0, inf, 0.0), (1.0, inf, nan, nan), (1.0, nan, nan, nan), (nan, 0.0, nan, 0.0),
        (nan, 1.0, nan, nan), (nan, nan, nan, nan), (0.0, -inf, nan, nan), (inf, 1.0, inf, inf),
    ],
    "exponential_minus_one": [
        (-inf, inf, -1.0, 0.0), (-inf, -inf, -1.0, -0.0), (-inf, nan, -1.0, 0.0), (inf, inf, inf, nan), (inf, nan, inf, nan),
        (1.0, inf, nan, nan), (nan, 0.0, nan, 0.0),
    ],
    "logistic": [
        (-inf, inf, 0.0, 0.0), (-inf, nan, 0.0, 0.0), (inf, inf, 1.0, 0.0), (inf, nan, 1.0, 0.0), (1.0, inf, nan, nan),
        (inf, 1.0, 1.0, 0.0), (-1e10, 1e-45, 0.0, 0.0), (1e10, 1.0, 1.0, 0.0),
    ],
    "log": [
        (-inf, inf, inf, 3 * np.pi / 4), (inf, inf, inf, np.pi / 4), (-inf, 1.0, inf, np.pi), (inf, 1.0, inf, 0.0),
        (inf, nan, inf, nan), (nan, inf, inf, nan), (1.0, nan, nan, nan), (-0.0, 0.0, -inf, np.pi), (0.0, 0.0, -inf, 0.0),
    ],
    "sqrt": [
        (1.0, inf, inf, inf), (nan, inf, inf, inf), (nan, -inf, inf, -inf), (-inf, 1.0, 0.0, inf), (inf, 1.0, inf, 0.0),
        (inf, nan, inf, nan), (1.0, nan, nan, nan), (nan, nan, nan, nan), (-0.0, 0.0, 0.0, 0.0),
    ],
    "tanh": [
        (inf, 1.0, 1.0, 0.0), (inf, inf, 1.0, 0.0), (inf, -inf, 1.0, -0.0), (-inf, inf, -1.0, 0.0), (inf, nan, 1.0, 0.0),
        (1.0, inf, nan, nan), (nan, 0.0, nan, 0.0), (nan, 1.0, nan, nan),
    ],
    "sign": [(inf, 1.0, nan, nan), (1.0, nan, nan, nan), (0.0, 0.0, 0.0, 0.0), (-0.0, 0.0, 0.0, 0.0), (3e38, 0.0, 1.0, 0.0)],
    "sine": [(inf, inf, nan, inf), (inf, -inf, nan, -inf), (nan, -inf, nan, -inf)],
}  # fmt: skip


@pytest.mark.parametrize("op", ANNEX_G)
@pytest.mark.parametrize("element", TYPES)
def test_infinities_and_nan(element: str, op: str) -> None:
    rows = ANNEX_G[op]
    dtype = np.complex64 if element == "complex<f32>" else np.complex128
    zs = np.zeros(len(rows), dtype)
    zs.real, zs.imag = [r[0] for r in rows], [r[1] for r in rows]
    for found in _both(op, element, zs):
        for (x, y, re, im), f in zip(rows, found, strict=True):
            for part, wanted in ((f.real, re), (f.imag, im)):
                same = np.isnan(part) if np.isnan(wanted) else abs(part) == inf if abs(wanted) == inf else np.isclose(part, wanted)
                assert same, (op, x, y, f)
                if not np.isnan([y, wanted]).any() and not (op == "exponential" and abs(wanted) == inf):
                    assert np.signbit(part) == np.signbit(TYPES[element](wanted)), (op, x, y, f)


def test_signs_of_the_tiniest_and_of_the_largest() -> None:
    zs = np.array([1e-39j, 3e38 + 3e38j, -1e-45, 1e-45 - 1e-45j]).astype(np.complex64)
    for found in _both("sign", "complex<f32>", zs):
        np.testing.assert_allclose(found, [1j, np.sqrt(0.5) * (1 + 1j), -1, np.sqrt(0.5) * (1 - 1j)], rtol=1e-6)


def test_sums_of_no_more_than_zeros_are_positive_zeros() -> None:
    """0 + -0 is +0: a sum of products starts from +0, in convolutions and products alike, on both sides.

    (A product too small for its type may vanish as +0 or as -0: kernels fuse it with the sum and round once, and the evaluator
    rounds long sums once, from float64. Nothing in the specification says when it is rounded.)
    """
    for channels, features, window, size in ((1, 1, 1, 4), (3, 4, 3, 8), (16, 16, 3, 8), (64, 16, 1, 8), (8, 40, 5, 5)):
        out = size - window + 1
        text = f"""func.func @main(%a: tensor<1x{size}x{size}x{channels}xf32>, %b: tensor<{window}x{window}x{channels}x{features}xf32>)
            -> tensor<1x{out}x{out}x{features}xf32> {{
          %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {{}}
            {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
            : (tensor<1x{size}x{size}x{channels}xf32>, tensor<{window}x{window}x{channels}x{features}xf32>)
            -> tensor<1x{out}x{out}x{features}xf32>
          return %0 : tensor<1x{out}x{out}x{features}xf32>
        }}"""
        module = hlo.parse(text)
        rng = np.random.default_rng(0)
        a = np.full((1, size, size, channels), -0.0, np.float32)
        b = rng.choice([0.0, -0.0, 1.0, -1.0, 2.5], (window, window, channels, features)).astype(np.float32)
        for found in (interp.evaluate(module, a, b)[0], codegen.compile(module)(a, b)[0]):
            assert not found.any()
            assert not np.signbit(found).any()


def test_exponentials_in_f32_reach_beyond_where_their_real_part_overflows() -> None:
    """e**92 is no f32, but e**92 cos(1.57) is. Within 4.1 units in the last place; half of the exponent is rounded twice there."""
    source = np.random.default_rng(0)
    x = np.concatenate([source.uniform(-80, 88, 4000), source.uniform(88, 95, 4000)])
    y = np.concatenate([source.uniform(-30, 30, 4000), source.uniform(1.569, 1.5725, 4000)])
    z = (x + 1j * y).astype(np.complex64)
    with np.errstate(all="ignore"):
        exact = np.exp(z.astype(np.complex128))
    _, found = _both("exponential", "complex<f32>", z)
    beyond = 0
    for part in (np.real, np.imag):
        want, got = part(exact), part(found).astype(np.float64)
        inside = (np.abs(want) < 3.4e38) & (np.abs(want) > 1e-37)
        assert np.isfinite(got[inside]).all()
        assert (np.abs(got - want)[inside] / np.spacing(np.abs(want[inside]).astype(np.float32))).max() <= 4.1
        beyond += np.count_nonzero(inside & (z.real > 88.73))
    assert beyond > 1000
