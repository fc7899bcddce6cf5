"""Conversions round once, to nearest even, for every element type."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from interp.numbers import bits_of, convert, is_float, is_integer, total_order_key

SMALL = ["bfloat16", "float16", "float8_e3m4", "float8_e4m3", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz",
         "float8_e5m2", "float8_e5m2fnuz", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "float8_e8m0fnu"]  # fmt: skip


def dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def finite_values(d: np.dtype) -> np.ndarray:
    """Every finite value of a small float type, in ascending order, as float64."""
    bits = np.arange(1 << bits_of(d), dtype=np.uint16 if d.itemsize == 2 else np.uint8)
    with np.errstate(all="ignore"):
        values = bits.view(d).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


@pytest.mark.parametrize("name", SMALL)
def test_float64_is_rounded_once(name: str) -> None:
    d = dtype(name)
    values = finite_values(d)
    rng = np.random.default_rng(3)
    low, high = values[:-1], values[1:]
    middle = low + (high - low) / 2
    tiny = np.abs(middle) * 2.0**-45 + 1e-300
    # Just beside a tie: only one rounding tells the sides apart.
    for x, expected in ((middle - tiny, low), (middle + tiny, high)):
        np.testing.assert_array_equal(convert(x, d).astype(np.float64), expected)
    pick = rng.uniform(low, high)
    nearest = np.where(pick - low < high - pick, low, high)
    np.testing.assert_array_equal(convert(pick, d).astype(np.float64), nearest)


@pytest.mark.parametrize("name", [n for n in SMALL if n != "float8_e8m0fnu"])
def test_ties_go_to_the_even_neighbour(name: str) -> None:
    d = dtype(name)
    values = finite_values(d)
    middle = values[:-1] + np.diff(values) / 2
    found = convert(middle, d)
    assert np.all(found.view(np.uint16 if d.itemsize == 2 else np.uint8) % 2 == 0)


def test_wide_integers_are_rounded_once() -> None:
    rng = np.random.default_rng(5)
    base = rng.integers(2**61, 2**62, 4000)
    for d in (np.dtype(np.float32), dtype("bfloat16")):
        step = 2 ** (61 - (23 if d.itemsize == 4 else 7))
        tie = base // step * step + step // 2
        for x, exact in ((tie + 1, tie // step * step + step), (tie - 1, tie // step * step)):
            if d.itemsize == 4:
                expected = exact.astype(np.float32)
                keep = expected.astype(np.float64) == exact
                np.testing.assert_array_equal(convert(x, d)[keep], expected[keep])
            else:
                np.testing.assert_array_equal(convert(x, d).astype(np.float64), exact.astype(np.float64))
                np.testing.assert_array_equal(convert(-x, d).astype(np.float64), -exact.astype(np.float64))


@pytest.mark.parametrize(
    "name", ["int2", "int4", "uint2", "uint4", "int8", "uint8", "int16", "uint32", "int32", "int64", "uint64"]
)
def test_floats_are_cut_to_the_range(name: str) -> None:
    d = dtype(name)
    bits, signed = bits_of(d), not name.startswith("u")
    lo, hi = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 1.99, -0.99, -0.0, lo, lo - 1.0])
    expected = [0, hi, lo, hi, lo, 1, 0, 0, lo, lo]
    assert [int(v) for v in convert(x, d)] == expected


def test_integers_wrap_around() -> None:
    x = np.array([-129, 255, 300, -1, 7, 8], np.int64)
    for name in ("int2", "uint2", "int4", "uint4", "int8", "uint8", "uint16"):
        bits, signed = bits_of(dtype(name)), not name.startswith("u")
        expected = [(v + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) if signed else v % (1 << bits) for v in x.tolist()]
        assert [int(v) for v in convert(x, dtype(name))] == expected


def test_booleans_and_complex_numbers() -> None:
    z = np.array([0 + 2j, 1.5 + 0j, np.nan + 1j], np.complex64)
    assert convert(z, np.dtype(bool)).tolist() == [False, True, True]
    assert convert(z, np.dtype(np.int8)).tolist() == [0, 1, 0]
    assert convert(np.array([True, False]), np.dtype(np.complex128)).tolist() == [1, 0]
    assert convert(np.array([True, False]), dtype("bfloat16")).astype(float).tolist() == [1, 0]
    assert convert(np.array([2, 0], np.int8).astype(ml_dtypes.int4), np.dtype(bool)).tolist() == [True, False]


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3", "float8_e4m3fn", "float4_e2m1fn", "float32", "float64"])
def test_total_order(name: str) -> None:
    d = dtype(name)
    x = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5]).astype(d)
    found = [str(v) for v in x[np.argsort(total_order_key(x))]]
    assert found == [str(v) for v in np.array([-2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0]).astype(d)]
    if name in ("float32", "float64"):
        y = np.array([np.nan, np.inf, -np.inf, -np.nan, 0], d)
        assert np.signbit(y[np.argsort(total_order_key(y))]).tolist() == [True, True, False, False, False]
        assert np.isnan(y[np.argsort(total_order_key(y))]).tolist() == [True, False, False, False, True]


def test_kinds() -> None:
    assert is_float(dtype("float8_e5m2")) and not is_integer(dtype("float8_e5m2"))
    assert is_integer(dtype("uint2")) and not is_float(dtype("uint2"))
    assert Fraction(float(convert(np.array(0.1), np.dtype(np.float32)))) == Fraction(float(np.float32(0.1)))
