"""Integer rules, minimum and maximum, rounding, conversions and the 16-bit floats, exhaustively where that is cheap."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest

from codegen.lib import NAMESPACE
from codegen.target import Target
from codegen.tune.probe import apply
from tests.machines import narrower_targets
from tests.pairs import fast_cover

TARGETS = ["host", *narrower_targets()]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def _pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    info = np.iinfo(dtype)
    values = sorted({info.min, info.min + 1, -7, -2, -1, 0, 1, 2, 3, 7, 8, 31, 63, 64, 100, info.max - 1, info.max})
    chosen = np.array([v for v in values if info.min <= v <= info.max], dtype)
    if info.bits == 8:
        chosen = np.arange(info.min, info.max + 1, dtype=dtype)
    x, y = np.meshgrid(chosen, chosen)
    return x.ravel(), y.ravel()


def _wrap(value: int, dtype: str) -> int:
    info = np.iinfo(dtype)
    value &= (1 << info.bits) - 1
    return value - (1 << info.bits) if value > info.max else value


def _divide(x: int, y: int, dtype: str) -> int:
    if y == 0:
        return -1
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def _remainder(x: int, y: int, dtype: str) -> int:
    return x if y == 0 else int(math.fmod(x, y)) if abs(x) < 2**53 else (abs(x) % abs(y)) * (-1 if x < 0 else 1)


def _amount(y: int, dtype: str) -> int:
    return y & ((1 << np.iinfo(dtype).bits) - 1)


def _left(x: int, y: int, dtype: str) -> int:
    n = _amount(y, dtype)
    return 0 if n >= np.iinfo(dtype).bits else x << n


def _logical(x: int, y: int, dtype: str) -> int:
    n, bits = _amount(y, dtype), np.iinfo(dtype).bits
    return 0 if n >= bits else (x & ((1 << bits) - 1)) >> n


def _arithmetic(x: int, y: int, dtype: str) -> int:
    bits = np.iinfo(dtype).bits
    signed = x - (1 << bits) if x >> (bits - 1) == 1 else x
    return signed >> min(_amount(y, dtype), bits - 1)


RULES = {
    "divide": _divide,
    "remainder": _remainder,
    "shift_left": _left,
    "shift_right_logical": _logical,
    "shift_right_arithmetic": _arithmetic,
    "add": lambda x, y, d: x + y,
    "subtract": lambda x, y, d: x - y,
    "multiply": lambda x, y, d: x * y,
    "maximum": lambda x, y, d: max(x, y),
    "minimum": lambda x, y, d: min(x, y),
    "bit_and": lambda x, y, d: x & y,
    "bit_or": lambda x, y, d: x | y,
    "bit_xor": lambda x, y, d: x ^ y,
}


@pytest.mark.parametrize(
    ("name", "sign", "bits"), fast_cover(itertools.product(sorted(RULES), ("int", "uint"), ("8", "16", "32", "64")))
)
def test_integer_ops(name: str, sign: str, bits: str) -> None:
    dtype = sign + bits
    x, y = _pairs(dtype)
    got = apply(f"{name}(x, y)", x, y)
    expected = [_wrap(RULES[name](int(a), int(b), dtype), dtype) for a, b in zip(x, y, strict=True)]
    np.testing.assert_array_equal(got, np.array(expected, dtype))
    # the Python bodies, for stepping through
    step = max(1, len(x) // 300)
    bodies = [NAMESPACE[name](a, b) for a, b in zip(x[::step], y[::step], strict=True)]
    np.testing.assert_array_equal(np.array(bodies, dtype), got[::step])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_integer_power(dtype: str) -> None:
    x, y = _pairs(dtype)
    got = apply("power(x, y)", x, y)
    for a, b, g in zip(x.tolist(), y.tolist(), got.tolist(), strict=True):
        if b >= 0:
            expected = _wrap(pow(a, b, 1 << 64), dtype)
        else:
            expected = {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)
        assert g == expected, (a, b)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_unary_integer_ops(dtype: str) -> None:
    x = np.unique(_pairs(dtype)[0])
    bits = np.iinfo(dtype).bits
    rules = {
        "negate": lambda v: -v,
        "bit_not": lambda v: ~v,
        "absolute": abs,
        "sign": lambda v: (v > 0) - (v < 0),
        "popcnt": lambda v: (v & ((1 << bits) - 1)).bit_count(),
        "count_leading_zeros": lambda v: bits - (v & ((1 << bits) - 1)).bit_length(),
    }
    for name, rule in rules.items():
        expected = np.array([_wrap(rule(int(v)), dtype) for v in x], dtype)
        np.testing.assert_array_equal(apply(f"{name}(x)", x), expected, err_msg=name)


def test_bool_ops() -> None:
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    for name, expected in (
        ("bit_and", x & y), ("multiply", x & y), ("minimum", x & y), ("bit_or", x | y), ("add", x | y),
        ("maximum", x | y), ("bit_xor", x ^ y), ("eq", x == y), ("lt", ~x & y), ("reduce_add", x | y),
    ):  # fmt: skip
        np.testing.assert_array_equal(apply(f"{name}(x, y)", x, y), expected, err_msg=name)
    np.testing.assert_array_equal(apply("bit_not(x)", x), ~x)


FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 3e38, -3e38, math.inf, -math.inf, math.nan, 1e-40]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_minimum_and_maximum_propagate_nan_and_order_zeros(dtype: str, target: str) -> None:
    x, y = (v.ravel() for v in np.meshgrid(np.array(FLOATS, dtype), np.array(FLOATS, dtype)))
    for name, better in (("maximum", lambda a, b: (a > b, not np.signbit(a))), ("minimum", lambda a, b: (a < b, np.signbit(a)))):
        for op in (name, f"reduce_{name}"):
            got = apply(f"{op}(x, y)", x, y, target=Target.named(target))
            for a, b, g in zip(x, y, got, strict=True):
                if np.isnan(a) or np.isnan(b):
                    assert np.isnan(g)
                elif a == b:
                    expected = a if better(a, b)[1] else b
                    assert g == expected and np.signbit(g) == np.signbit(expected), (a, b)
                else:
                    assert g == (a if better(a, b)[0] else b), (a, b)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_and_sign(dtype: str, target: str) -> None:
    x = np.array([*FLOATS, 8388609.0, 4503599627370497.5, -0.3, 0.7], dtype)
    with np.errstate(all="ignore"):
        away = np.where(np.abs(x - np.trunc(x)) >= 0.5, np.trunc(x) + np.copysign(1, x), np.trunc(x))
    away = np.where(np.isfinite(x), np.copysign(away, x), x)
    for name, expected in (
        ("floor", np.floor(x)),
        ("ceil", np.ceil(x)),
        ("round_nearest_even", np.rint(x)),
        ("round_nearest_afz", away),
        ("sign", np.where(x == 0, x, np.sign(x))),
        ("absolute", np.abs(x)),
        ("negate", -x),
    ):
        got = apply(f"{name}(x)", x, target=Target.named(target))
        np.testing.assert_array_equal(got, expected, err_msg=name)
        keep = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[keep]), np.signbit(expected[keep]), err_msg=name)
    np.testing.assert_array_equal(apply("is_finite(x)", x, result=bool), np.isfinite(x))


def test_float_remainder_is_fmod() -> None:
    x, y = (v.ravel() for v in np.meshgrid(np.array(FLOATS), np.array(FLOATS)))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(apply("remainder(x, y)", x, y), np.fmod(x, y))


def test_comparisons_and_total_order() -> None:
    x, y = (v.ravel() for v in np.meshgrid(np.array(FLOATS, np.float32), np.array(FLOATS, np.float32)))
    for name, expected in (
        ("eq", x == y), ("ne", x != y), ("lt", x < y), ("le", x <= y), ("gt", x > y), ("ge", x >= y),
    ):  # fmt: skip
        np.testing.assert_array_equal(apply(f"{name}(x, y)", x, y, result=bool), expected, err_msg=name)
    rising = np.array([-math.nan, -math.inf, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, math.inf, math.nan], np.float32)
    rising[0] = np.copysign(rising[0], -1)
    keys = apply("total_order_key(x)", rising, result="int32")
    assert (np.diff(keys.astype(np.int64)) > 0).all()
    u, v = np.array([1, 2**63], np.uint64), np.array([2**63, 1], np.uint64)
    assert apply("lt(x, y)", u, v, result=bool).tolist() == [True, False]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_float_to_integer_truncates_and_clamps(dtype: str, target: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([0.0, -0.0, 1.9, -1.9, 126.7, 1e3, -1e3, 3e9, 1e19, 1e30, -1e30, math.inf, -math.inf, math.nan], np.float64)
    expected = [0 if math.isnan(v) else int(min(max(v, info.min), info.max)) if math.isinf(v) else
                min(max(int(v), info.min), info.max) for v in x.tolist()]  # fmt: skip
    for source in ("float64", "float32"):
        if source == "float32" and info.bits >= 32:
            continue  # the expectations above are those of the f64 values
        got = apply(f"to_{dtype}(x)", x.astype(source), result=dtype, target=Target.named(target))
        assert got.tolist() == expected


def test_other_conversions() -> None:
    x = np.array([-129, -1, 0, 1, 255, 300], np.int32)
    for dtype in [*INTEGERS, "float32", "float64", "bool", "complex64"]:
        np.testing.assert_array_equal(apply(f"to_{dtype}(x)", x, result=dtype), x.astype(dtype), err_msg=dtype)
    z = np.array([1 + 2j, -3.5 - 1j], np.complex64)
    np.testing.assert_array_equal(apply("to_float32(x)", z, result=np.float32), z.real)
    np.testing.assert_array_equal(apply("imag(x)", z, result=np.float32), z.imag)
    np.testing.assert_array_equal(apply("to_complex128(x)", z, result=np.complex128), z.astype(np.complex128))
    np.testing.assert_array_equal(apply("make_complex(x, y)", z.real.copy(), z.imag.copy(), result=np.complex64), z)
    u = np.array([0, 2**64 - 1, 2**63], np.uint64)
    np.testing.assert_array_equal(apply("to_float64(x)", u, result=np.float64), u.astype(np.float64))
    b = np.array([True, False])
    np.testing.assert_array_equal(apply("to_float32(x)", b, result=np.float32), b.astype(np.float32))
    np.testing.assert_array_equal(apply("to_int8(x)", b, result=np.int8), b.astype(np.int8))
    f = np.array([1.5, -0.0], np.float32)
    np.testing.assert_array_equal(apply("bits_to_int32(x)", f, result=np.int32), f.view(np.int32))


def test_select_and_clamp() -> None:
    c, x, y = np.array([True, False]), np.array([1.0, 2.0]), np.array([3.0, math.nan])
    np.testing.assert_array_equal(apply("select(x, y, z)", c, x, y, result=np.float64), [1.0, math.nan])
    low, v, high = np.array([0.0, 0.0, 0.0]), np.array([-1.0, 2.0, math.nan]), np.array([1.0, 1.0, 1.0])
    np.testing.assert_array_equal(apply("clamp(x, y, z)", low, v, high), [0.0, 1.0, math.nan])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16])
def test_sixteen_bit_floats(kind: type, target: str) -> None:
    every = np.arange(65536, dtype=np.uint16).view(kind)
    wide = apply("x", every, result=np.float32, target=Target.named(target))
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(wide), np.signbit(every.astype(np.float32)))
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    # every value halfway between two neighbours, and its own neighbours: the ties
    with np.errstate(all="ignore"):
        exact = np.abs(every.astype(np.float32))
        ties = (exact[:-1] + exact[1:]) / 2
        x = np.concatenate([bits, ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(np.inf))])
        x = np.concatenate([x, [np.float32(v) for v in FLOATS]]).astype(np.float32)
        expected = x.astype(kind)
    got = apply("x", x, result=kind, target=Target.named(target))
    nan = np.isnan(x)
    assert np.isnan(got[nan].astype(np.float32)).all()
    np.testing.assert_array_equal(got[~nan].view(np.uint16), expected[~nan].view(np.uint16))
    name = "round_bf16" if kind is ml_dtypes.bfloat16 else "round_f16"
    rounded = apply(f"{name}(x)", x, target=Target.named(target))
    np.testing.assert_array_equal(rounded[~nan], expected[~nan].astype(np.float32))
