"""Elementwise ops: edges of every kind of number, and rounding once."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from hlo import parse
from interp import evaluate
from tests.interp.building import apply, tensor, type_of

INTEGERS = [
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
    ml_dtypes.int4,
    ml_dtypes.uint4,
    ml_dtypes.int2,
    ml_dtypes.uint2,
]


def span(d: type) -> tuple[int, int, int]:
    info = ml_dtypes.iinfo(d)
    return int(info.min), int(info.max), int(info.bits)


def wrap(v: int, d: type) -> int:
    low, _, bits = span(d)
    return (v - low) % (1 << bits) + low


def pairs(d: type) -> tuple[list[int], list[int]]:
    low, high, _ = span(d)
    edge = sorted({v for v in (low, low + 1, -3, -2, -1, 0, 1, 2, 3, 7, 100, high - 1, high) if low <= v <= high})
    return [a for a in edge for _ in edge], edge * len(edge)


def integers(values: list[int], d: type) -> np.ndarray:
    wide = np.array(values, np.uint64 if np.dtype(d) == np.uint64 else np.int64)
    return wide.astype(np.int8).astype(d) if np.dtype(d).kind == "V" else wide.astype(d)


def shift(a: int, n: int, d: type, kind: str) -> int:
    _low, _, bits = span(d)
    n %= 1 << bits
    if kind == "shift_left":
        return wrap(a << n, d) if n < bits else 0
    if kind == "shift_right_logical":
        return wrap((a % (1 << bits)) >> n, d) if n < bits else 0
    signed = (a % (1 << bits) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    return wrap(signed >> min(n, bits - 1), d)


def quotient(a: int, b: int, d: type) -> int:
    if b == 0:
        return wrap(-1, d)
    return wrap(int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b)), d)


MODELS = {
    "add": lambda a, b, d: wrap(a + b, d),
    "subtract": lambda a, b, d: wrap(a - b, d),
    "multiply": lambda a, b, d: wrap(a * b, d),
    "maximum": lambda a, b, d: max(a, b),
    "minimum": lambda a, b, d: min(a, b),
    "and": lambda a, b, d: wrap(a & b, d),
    "or": lambda a, b, d: wrap(a | b, d),
    "xor": lambda a, b, d: wrap(a ^ b, d),
    "divide": quotient,
    "remainder": lambda a, b, d: a if b == 0 else int(math.copysign(1, a)) * (abs(a) % abs(b)),
    "power": lambda a, b, d: wrap(pow(a, b, 1 << span(d)[2]), d) if b >= 0 else {1: 1, -1: -1 if b % 2 else 1}.get(a, 0),
    "shift_left": lambda a, b, d: shift(a, b, d, "shift_left"),
    "shift_right_logical": lambda a, b, d: shift(a, b, d, "shift_right_logical"),
    "shift_right_arithmetic": lambda a, b, d: shift(a, b, d, "shift_right_arithmetic"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("d", INTEGERS, ids=lambda d: np.dtype(d).name)
def test_integers(name: str, d: type) -> None:
    left, right = pairs(d)
    found = apply(f"stablehlo.{name}", [integers(left, d), integers(right, d)])
    assert found.dtype == d
    assert [int(v) for v in found] == [MODELS[name](a, b, d) for a, b in zip(left, right, strict=True)]


@pytest.mark.parametrize("d", INTEGERS, ids=lambda d: np.dtype(d).name)
def test_integers_of_one_operand(d: type) -> None:
    low, _high, bits = span(d)
    values = pairs(d)[1]
    x = integers(values, d)
    pattern = [v % (1 << bits) for v in values]
    assert [int(v) for v in apply("stablehlo.negate", [x])] == [wrap(-v, d) for v in values]
    assert [int(v) for v in apply("stablehlo.not", [x])] == [wrap(~v, d) for v in values]
    assert [int(v) for v in apply("stablehlo.popcnt", [x])] == [wrap(v.bit_count(), d) for v in pattern]
    assert [int(v) for v in apply("stablehlo.count_leading_zeros", [x])] == [wrap(bits - v.bit_length(), d) for v in pattern]
    if low < 0:
        assert [int(v) for v in apply("stablehlo.sign", [x])] == [(v > 0) - (v < 0) for v in values]


@pytest.mark.parametrize("d", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_extremes_respect_nan_and_signed_zero(d: type) -> None:
    a = np.array([0.0, -0.0, np.nan, 1.0, np.inf, -np.inf]).astype(d)
    b = np.array([-0.0, 0.0, 1.0, np.nan, -np.inf, 2.0]).astype(d)
    big, small = (apply(f"stablehlo.{n}", [a, b]).astype(np.float64) for n in ("maximum", "minimum"))
    np.testing.assert_array_equal(big, [0, 0, np.nan, np.nan, np.inf, 2])
    np.testing.assert_array_equal(small, [0, 0, np.nan, np.nan, -np.inf, -np.inf])
    assert not np.signbit(big[:2]).any() and np.signbit(small[:2]).all()


def test_comparisons() -> None:
    x = np.array([np.nan, 0.0, -0.0, 1.0, -np.nan], np.float32)
    y = np.array([np.nan, -0.0, 0.0, 2.0, np.nan], np.float32)
    flags = tensor((5,), "i1")

    def compare(direction: str, kind: str) -> list[bool]:
        return apply("stablehlo.compare", [x, y], flags, comparison_direction=direction, compare_type=kind).tolist()

    assert compare("EQ", "FLOAT") == [False, True, True, False, False]
    assert compare("NE", "FLOAT") == [True, False, False, True, True]
    assert compare("LT", "FLOAT") == [False, False, False, True, False]
    assert compare("LT", "TOTALORDER") == [False, False, True, True, True]
    assert compare("EQ", "TOTALORDER") == [True, False, False, False, False]
    assert compare("GE", "TOTALORDER") == [True, True, False, False, False]


def test_complex_numbers_are_ordered_by_real_then_imaginary_part() -> None:
    x = np.array([1 + 2j, 1 + 2j, 3 + 0j], np.complex64)
    y = np.array([1 + 3j, 1 + 2j, 2 + 9j], np.complex64)
    flags = tensor((3,), "i1")
    found = {
        d: apply("stablehlo.compare", [x, y], flags, comparison_direction=d, compare_type="FLOAT").tolist()
        for d in ("LT", "LE", "GT", "GE", "EQ", "NE")
    }
    assert found == {
        "LT": [True, False, False], "LE": [True, True, False], "GT": [False, False, True], "GE": [False, True, True],
        "EQ": [False, True, False], "NE": [True, False, True],
    }  # fmt: skip


def test_rounding_ops() -> None:
    x = np.array([0.49999997, 0.5, 1.5, 2.5, -0.5, -2.5, -0.2, 8388609.0], np.float32)
    assert apply("stablehlo.round_nearest_afz", [x]).tolist() == [0, 1, 2, 3, -1, -3, 0, 8388609.0]
    assert apply("stablehlo.round_nearest_even", [x]).tolist() == [0, 0, 2, 2, 0, -2, 0, 8388609.0]
    assert np.signbit(apply("stablehlo.round_nearest_afz", [x])[6])
    assert np.signbit(apply("stablehlo.ceil", [x])[4])


UNARY = {
    "exponential": np.exp, "log": np.log, "log_plus_one": np.log1p, "exponential_minus_one": np.expm1, "tanh": np.tanh,
    "sine": np.sin, "cosine": np.cos, "tan": np.tan, "sqrt": np.sqrt, "cbrt": np.cbrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("d", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_transcendental_functions_are_within_half_an_ulp(name: str, d: type) -> None:
    x = np.abs(np.random.default_rng(7).normal(size=2000) * 3).astype(d)
    with np.errstate(all="ignore"):
        exact = UNARY[name](x.astype(np.longdouble))
    found = apply(f"stablehlo.{name}", [x])
    assert found.dtype == d
    expected = exact.astype(np.float64).astype(np.float32)
    if d is np.float32:
        assert np.abs(found.astype(np.float64) - expected)[np.isfinite(expected)].max() <= np.spacing(
            np.abs(expected)
        ).max() * 0.01 or (np.mean(found == expected) > 0.999)
    else:
        step = (
            np.abs(exact.astype(np.float64)) * float(ml_dtypes.finfo(d).eps) / 2
            + float(ml_dtypes.finfo(d).smallest_subnormal) / 2
        )
        keep = np.isfinite(found.astype(np.float64)) & np.isfinite(exact.astype(np.float64))
        assert np.all(np.abs(found.astype(np.float64) - exact.astype(np.float64))[keep] <= step[keep] * 1.0000001)


def test_booleans() -> None:
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert apply("stablehlo.add", [x, y]).tolist() == [True, True, True, False]
    assert apply("stablehlo.multiply", [x, y]).tolist() == [True, False, False, False]
    assert apply("stablehlo.maximum", [x, y]).tolist() == [True, True, True, False]
    assert apply("stablehlo.xor", [x, y]).tolist() == [False, True, True, False]
    assert apply("stablehlo.not", [x]).tolist() == [False, False, True, True]


def test_select_takes_a_scalar_predicate() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    found = apply("stablehlo.select", [np.array(False), x, -x], type_of(x))
    np.testing.assert_array_equal(found, -x)


def test_no_warning_leaks(recwarn: pytest.WarningsRecorder) -> None:
    x = np.array([0.0, -1.0, np.inf, np.nan, 1e38], np.float32)
    for name in ("log", "sqrt", "rsqrt", "exponential", "tan"):
        apply(f"stablehlo.{name}", [x])
    for name in ("divide", "multiply", "power", "remainder"):
        apply(f"stablehlo.{name}", [x, x[::-1].copy()])
    apply("stablehlo.convert", [x], tensor((5,), "i8"))
    assert not recwarn.list


SQUARED = parse(
    "HloModule m\nENTRY e { x = f32[4096] parameter(0) c = f32[] parameter(1) b = f32[4096] broadcast(c), dimensions={} "
    "ROOT r = f32[4096] power(x, b) }"
)
POWER = parse("HloModule m\nENTRY e { x = f32[4096] parameter(0) y = f32[4096] parameter(1) ROOT r = f32[4096] power(x, y) }")


def test_squares_are_what_power_gives() -> None:
    """An exponent that is 2 everywhere is a product, to the last bit, at the edges of f32 too."""
    sizes = np.exp2(np.arange(-2048, 2048).clip(-149, 127)).astype(np.float32)
    x = np.random.default_rng(0).uniform(-1, 1, 4096).astype(np.float32) * sizes
    x[:6] = [np.inf, -np.inf, np.nan, -0.0, 3.4e38, 1e-45]
    (quick,), (plain,) = evaluate(SQUARED, x, np.float32(2)), evaluate(POWER, x, np.full(4096, 2, np.float32))
    np.testing.assert_array_equal(quick, plain)
    (cubes,) = evaluate(SQUARED, x, np.float32(3))
    assert not np.array_equal(cubes, quick)
