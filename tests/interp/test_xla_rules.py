"""Evaluator rules of ops that only XLA's HLO has."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import codegen
import hlo
import interp


def module_of(lines: str) -> hlo.Module:
    module = hlo.parse(f"HloModule m\nENTRY e {{\n{lines}\n}}")
    hlo.verify(module)
    return module


def converted(x: list[float], random: list[int], kind: str = "s8", source: str = "f32") -> list[int]:
    n = len(x)
    bits = {"f32": 32, "f16": 16, "f64": 64}[source]
    module = module_of(
        f"p = {source}[{n}] parameter(0)\nq = u{bits}[{n}] parameter(1)\nROOT r = {kind}[{n}] stochastic-convert(p, q)"
    )
    dtype = {"f32": np.float32, "f16": np.float16, "f64": np.float64}[source]
    found: list[int] = interp.evaluate(module, np.array(x, dtype), np.array(random, f"u{bits // 8}"))[0].tolist()
    return found


def test_a_fraction_is_rounded_up_as_often_as_it_says() -> None:
    half = 1 << 31
    assert converted([1.5] * 4, [0, half - 1, half, 2**32 - 1]) == [2, 2, 1, 1]
    assert converted([-1.5] * 4, [0, half - 1, half, 2**32 - 1]) == [-2, -2, -1, -1]
    assert converted([1.25] * 2, [(1 << 30) - 1, 1 << 30], "s32") == [2, 1]
    rng = np.random.default_rng(1)
    share = np.mean(converted([0.25] * 20_000, rng.integers(0, 2**32, 20_000).tolist()))
    assert abs(share - 0.25) < 0.02


@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
def test_what_has_no_fraction_or_does_not_fit(source: str) -> None:
    x = [3.0, -3.0, 0.0, np.inf, -np.inf, np.nan, 127.5, -128.5, 1000.0, -128.0]
    assert converted(x, [0] * 10, "s8", source) == [3, -3, 0, 127, -128, 0, 127, -128, 127, -128]
    assert converted([126.5], [0], "s8", source) == [127]


def test_the_ends_of_64_bits() -> None:
    assert converted([2.0**63, -(2.0**63), 2.0**62], [0] * 3, "s64", "f64") == [2**63 - 1, -(2**63), 2**62]


def test_rounding_to_floats_is_declined() -> None:
    module = module_of("p = f32[1] parameter(0)\nq = u32[1] parameter(1)\nROOT r = bf16[1] stochastic-convert(p, q)")
    with pytest.raises(hlo.TilewrightError, match="XLA defines stochastic-convert to integers, not to bf16"):
        interp.evaluate(module, np.ones(1, np.float32), np.ones(1, np.uint32))


def test_scaled_dot_scales_by_blocks() -> None:
    module = module_of(
        "a = f8e4m3fn[2,3,8] parameter(0)\nb = f8e4m3fn[2,8,5] parameter(1)\nc = f8e8m0fnu[2,3,2] parameter(2)\n"
        "d = bf16[1,8,1] parameter(3)\nROOT r = f32[2,3,5] scaled-dot(a, b, c, d), lhs_batch_dims={0}, rhs_batch_dims={0}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    )
    rng = np.random.default_rng(2)
    a, b = (rng.normal(size=s).astype(ml_dtypes.float8_e4m3fn) for s in ((2, 3, 8), (2, 8, 5)))
    c = (2.0 ** rng.integers(-3, 4, (2, 3, 2))).astype(ml_dtypes.float8_e8m0fnu)
    d = rng.normal(size=(1, 8, 1)).astype(ml_dtypes.bfloat16)
    left = a.astype(np.float64) * np.repeat(c.astype(np.float64), 4, 2)
    right = b.astype(np.float64) * d.astype(np.float64)
    expected = np.einsum("bik,bkj->bij", left, right)
    np.testing.assert_allclose(interp.evaluate(module, a, b, c, d)[0], expected, rtol=1e-6)
    executable = codegen.compile(module)
    np.testing.assert_allclose(executable(a, b, c, d)[0], expected, rtol=1e-5, atol=1e-6)
    assert not executable.fallbacks


RAGGED = module_of(
    "a = f32[4] parameter(0)\no = f32[6] parameter(1)\nb = s32[2] parameter(2)\ns = s32[2] parameter(3)\n"
    "p = s32[2] parameter(4)\nw = s32[2] parameter(5)\n"
    "ROOT r = f32[6] ragged-all-to-all(a, o, b, s, p, w), replica_groups={{0,1}}"
)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_ragged_rows_go_where_their_sender_says() -> None:
    rows, others = np.array([1, 2, 3, 4], np.float32), np.array([5, 6, 7, 8], np.float32)
    rest = np.full(6, -1, np.float32)
    # Process 0 keeps 1 row and sends 3; process 1 sends 2 and keeps 1.
    first = (rows, rest, ints(0, 1), ints(1, 3), ints(0, 2), ints(1, 2))
    second = (others, rest, ints(0, 3), ints(2, 1), ints(4, 5), ints(3, 1))
    found = interp.run_parallel(RAGGED, [["e"], ["e"]], *first, *second)
    assert [x.tolist() for x in found] == [[1, -1, -1, -1, 5, 6], [-1, -1, 2, 3, 4, 8]]


@pytest.mark.parametrize(("sizes", "places"), [((1, 4), (0, 0)), ((1, 3), (0, 4)), ((1, 2), (0, 0))])
def test_ragged_rows_stay_inside(sizes: tuple[int, int], places: tuple[int, int]) -> None:
    rest = np.zeros(6, np.float32)
    first = (np.ones(4, np.float32), rest, ints(0, 1), ints(*sizes), ints(*places), ints(1, 1))
    second = (np.ones(4, np.float32), rest, ints(0, 1), ints(1, 1), ints(1, 0), ints(3, 1))
    with pytest.raises(hlo.TilewrightError, match=r"sends . rows from"):
        interp.run_parallel(RAGGED, [["e"], ["e"]], *first, *second)
