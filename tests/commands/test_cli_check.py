"""The rule by which results agree, in every type, at its edges."""

from __future__ import annotations

import json
import pathlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.commands.command_line import called
from tilewright.check import Tolerance, compare, first_difference, float_info, tolerance

FLOATS = [np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16)] + [
    np.dtype(getattr(ml_dtypes, n)) for n in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz")
]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_one_ulp_agrees_and_is_measured_as_one(dtype: np.dtype) -> None:
    b = np.ones(8, dtype)
    a = b.copy()
    a[3] = dtype.type(1.0 + 2.0 ** -int(float_info(dtype).nmant))
    c = compare(a, b)
    assert c.passed
    assert (c.max_ulp, c.worst_index, c.mismatched_elems) == (1.0, (3,), 0)
    assert c.max_abs == c.max_rel == 2.0 ** -int(float_info(dtype).nmant)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_just_beyond_the_tolerance_fails(dtype: np.dtype) -> None:
    t = tolerance(dtype)
    step = 2.0 ** -int(float_info(dtype).nmant)
    b = np.ones(4, dtype)
    a = b.copy()
    a[1] = dtype.type(1.0 + max(t.relative * 1.5, (t.ulps + 1) * step))
    c = compare(a, b)
    assert not c.passed
    assert (c.mismatched_elems, c.worst_index) == (1, (1,))


def test_the_scale_is_the_outputs_own() -> None:
    b = np.full(1000, 3.0, np.float32)
    b[7] = 1e-9  # left over from a cancellation
    a = b.copy()
    a[7] = 2e-6
    assert compare(a, b).passed
    a[7] = 4e-5
    assert not compare(a, b).passed
    assert not compare(np.float32([2e-6]), np.float32([1e-9])).passed


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_must_be_the_same(bad: float) -> None:
    good = np.linspace(-3, 3, 70_000, dtype=np.float32)
    both, one = good.copy(), good.copy()
    both[66_000] = one[66_000] = bad
    assert compare(both, both.copy()).passed
    for a, b in ((one, good), (good, one)):
        c = compare(a, b)
        assert not c.passed
        assert (c.mismatched_elems, c.max_rel, c.worst_index) == (1, np.inf, (66_000,))
    other = good.copy()
    other[66_000] = -np.inf if bad != -np.inf else np.nan
    assert not compare(other, both).passed


def test_an_infinity_does_not_widen_the_scale_of_the_rest() -> None:
    b = np.float32([np.inf, 1.0, 1.0])
    a = np.float32([np.inf, 1.0, 1.001])
    c = compare(a, b)
    assert not c.passed
    assert (c.worst_index, c.mismatched_elems) == ((2,), 1)


def test_numbers_whose_squares_are_infinite_are_judged_all_the_same() -> None:
    """An infinite scale made every error zero."""
    good = np.array([1e200, 2e199, -1e300])
    assert compare(good, good).passed
    found = compare(np.array([1e200, 3e199, -1e300]), good)
    assert not found.passed and found.mismatched_elems == 1 and found.worst_index == (1,)
    with pytest.raises(ValueError, match="no element differs"):
        first_difference(good, good)
    assert first_difference(np.array([1e200, 3e199, -1e300]), good) == (1,)


def test_subnormal_numbers_have_an_ulp_too() -> None:
    tiny = np.float32(1e-45)
    assert compare(np.float32([tiny]), np.float32([0.0])).max_ulp == 1.0
    assert compare(np.float32([4 * tiny]), np.float32([0.0])).passed
    assert not compare(np.float32([5 * tiny]), np.float32([0.0])).passed


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint64, np.int64, ml_dtypes.int4, ml_dtypes.float4_e2m1fn], ids=str)
def test_exact_types_must_be_equal(dtype: type) -> None:
    b = np.array([0, 1, 1, 0], dtype)
    a = b.copy()
    assert compare(a, b).passed
    a[2] = dtype(0)
    c = compare(a, b)
    assert not c.passed
    assert (c.mismatched_elems, c.worst_index, c.max_abs) == (1, (2,), 1.0)


def test_large_integers_that_are_one_float64_differ() -> None:
    assert not compare(np.int64([2**60 + 1]), np.int64([2**60])).passed


def test_complex_numbers_are_judged_part_by_part() -> None:
    b = np.complex64([1 + 1j, 2 - 1j])
    assert compare((b * np.complex64(1 + 1e-7)).astype(np.complex64), b).passed
    a = b.copy()
    a[1] += np.complex64(1e-3j)
    c = compare(a, b)
    assert not c.passed
    assert c.worst_index == (1,)


def test_shapes_and_types_must_be_the_same() -> None:
    x = np.zeros((2, 3), np.float32)
    for other in (x.T, x.reshape(6), x.astype(np.float64)):
        c = compare(other, x)
        assert not c.passed
        assert c.max_abs == np.inf


def test_nothing_agrees_with_nothing() -> None:
    assert compare(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)).passed
    assert compare(np.float32(2.0), np.float32(2.0)).passed
    assert not compare(np.float32(2.0), np.float32(3.0)).passed


@given(
    arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)),
    arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)),
)
def test_agrees_with_the_rule_written_plainly(x: np.ndarray, y: np.ndarray) -> None:
    n = min(x.size, y.size)
    a, b = x[:n], y[:n].copy()
    with np.errstate(over="ignore"):
        b[::2] = a[::2] * np.float32(1 + 2e-6)  # half of them close, so that both sides of the rule are met
    c = compare(a, b)
    finite = b[np.isfinite(b)].astype(np.float64)
    rms = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
    t = tolerance(b.dtype)
    expected = 0
    for p, q in zip(a.astype(np.float64), b.astype(np.float64), strict=True):
        if p == q or (np.isnan(p) and np.isnan(q)):
            continue
        if not (np.isfinite(p) and np.isfinite(q)):
            expected += 1
            continue
        scale = max(abs(q), rms)
        ulp = 2.0 ** (np.frexp(max(scale, 2.0**-126))[1] - 1 - 23)
        near = (abs(p - q) / scale) / t.relative if scale else np.inf
        if 0.999 < near < 1.001:
            return  # on the very edge the order of roundings decides
        expected += near > 1 and abs(p - q) / ulp > t.ulps
    assert c.mismatched_elems == expected
    assert c.passed == (expected == 0)


def test_another_tolerance_can_be_asked_for() -> None:
    a, b = np.float32([1.0, 2.0]), np.float32([1.0, 2.1])
    assert not compare(a, b).passed
    assert compare(a, b, Tolerance(0.1, 0.0)).passed


BF16 = """func.func @main(%x: tensor<40xbf16>) -> tensor<40xbf16> {
  %0 = stablehlo.multiply %x, %x : tensor<40xbf16>
  %1 = stablehlo.add %0, %x : tensor<40xbf16>
  return %1 : tensor<40xbf16>
}"""


@pytest.mark.parametrize("command", [("check",), ("run", "--repeat=1")], ids=lambda c: c[0])
@pytest.mark.parametrize("allowed", [True, False])
def test_excess_precision_is_named_where_results_are_compared(
    command: tuple[str, ...], allowed: bool, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "bf16.mlir"
    path.write_text(BF16)
    setting = "allow" if allowed else "forbid"
    text = called(*command, str(path), TILEWRIGHT_EXCESS_PRECISION=setting)
    assert text.returncode == 0, text.stderr
    line = "precision is allowed (TILEWRIGHT_EXCESS_PRECISION): bf16 stays f32 between ops"
    lines = text.stdout.splitlines()
    assert sum(line in x for x in lines) == allowed
    if allowed:  # before what is compared
        assert next(k for k, x in enumerate(lines) if line in x) < next(k for k, x in enumerate(lines) if ": ok, " in x)
    document = json.loads(called(*command, str(path), "--json", TILEWRIGHT_EXCESS_PRECISION=setting).stdout)
    assert document["excess_precision"] is allowed
