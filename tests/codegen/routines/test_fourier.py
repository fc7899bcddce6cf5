"""Fourier transforms in lines side by side: all forms, lengths of small primes, batches of any size, against the evaluator."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest

import codegen
import hlo
import interp
from tests.pairs import fast_cover
from tilewright.bisect import Values, check_kernels
from tiling.routines.fourier import butterflies

KINDS = ["FFT", "IFFT", "RFFT", "IRFFT"]


def program(kind: str, shape: tuple[int, ...], axes: int, element: str = "f32") -> tuple[str, np.ndarray]:
    """The transform of the last `axes` dimensions of real numbers of this shape, or complex ones, and an argument for it."""
    half = (*shape[:-1], shape[-1] // 2 + 1)
    given, made = (half if kind == "IRFFT" else shape), (half if kind == "RFFT" else shape)
    number = {True: element, False: f"complex<{element}>"}
    x = f"tensor<{'x'.join(map(str, given))}x{number[kind == 'RFFT']}>"
    y = f"tensor<{'x'.join(map(str, made))}x{number[kind == 'IRFFT']}>"
    lengths = ", ".join(map(str, shape[len(shape) - axes :]))
    text = f"""func.func @main(%x: {x}) -> {y} {{
  %r = stablehlo.fft %x, type = {kind}, length = [{lengths}] : ({x}) -> {y}
  return %r : {y}
}}"""
    rng = np.random.default_rng(sum(shape))
    real = rng.standard_normal(given).astype(np.float32 if element == "f32" else np.float64)
    return text, real if kind == "RFFT" else real + np.array(1j, np.result_type(real, np.complex64)) * real[..., ::-1]


def compare(text: str, x: np.ndarray, bound: float) -> codegen.Executable:
    module = hlo.parse(text)
    (wanted,) = interp.evaluate(module, x)
    one, two = (codegen.compile(module, threads=n) for n in (1, 2))
    (found,), (again,) = one(x), two(x)
    assert found.tobytes() == again.tobytes()
    assert found.dtype == wanted.dtype
    assert np.abs(found - wanted).max() <= bound * np.abs(wanted).max()
    return one


# An inverse is the transform with another sign, half a transform its other half: each length forwards, two of three of the
# halves one way, some as an inverse.
FAST = {"FFT": range(14), "RFFT": range(0, 14, 3), "IRFFT": range(1, 14, 3), "IFFT": range(2, 14, 5)}
SHAPES = [((3, 1), 1), ((5, 2), 1), ((20, 4), 1), ((33, 6), 1), ((9, 15), 1), ((40, 13), 1), ((17, 7 * 11), 1), ((2, 3, 64), 1),
          ((128,), 1), ((40, 1000), 1), ((4, 10), 2), ((2, 18, 20), 2), ((3, 4, 5, 6), 3), ((3, 1, 7), 2)]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "shape", "axes"),
    [
        pytest.param(kind, *case, marks=() if k in FAST[kind] else pytest.mark.slow)
        for kind in KINDS
        for k, case in enumerate(SHAPES)
    ],
)
def test_transforms(kind: str, shape: tuple[int, ...], axes: int, caplog: pytest.LogCaptureFixture) -> None:
    text, x = program(kind, shape, axes)
    with caplog.at_level(logging.DEBUG, "tilewright.codegen"):
        executable = compare(text, x, 1e-6)
    assert executable.kernels and not executable.library and not executable.fallbacks
    assert "numba's passes are needed" not in caplog.text  # which take twice as long as all the rest


@pytest.mark.parametrize("kind", KINDS)
def test_transforms_of_doubles(kind: str) -> None:
    text, x = program(kind, (2, 11, 36), 2, "f64")
    assert not compare(text, x, 1e-14).library


@pytest.mark.parametrize(
    ("kind", "shape"), fast_cover(itertools.product(["FFT", "IFFT"], [(256,), (3, 600), (2, 8192)]), strength=1)
)
@pytest.mark.machine("avx512")
def test_long_lines_are_cut_in_two(kind: str, shape: tuple[int, ...]) -> None:
    text, x = program(kind, shape, 1)
    assert len(compare(text, x, 1e-6).kernels) == 2


@pytest.mark.parametrize(
    ("kind", "shape"), fast_cover(itertools.product(["RFFT", "IRFFT"], [(16384,), (2, 3, 10000)]), strength=1)
)
def test_long_real_lines_are_halved(kind: str, shape: tuple[int, ...]) -> None:
    text, x = program(kind, shape, 1)
    executable = compare(text, x, 1e-6)
    assert executable.kernels and not executable.library and not executable.fallbacks


def test_ends_of_long_real_lines() -> None:
    """The first and the last number of a real line's transform are real, made so and read so."""
    text, x = program("RFFT", (16384,), 1)
    (found,) = codegen.compile(hlo.parse(text))(x)
    assert not found[..., [0, -1]].imag.any()
    text, x = program("IRFFT", (16384,), 1)
    y = x.copy()
    y.imag[..., [0, -1]] = np.nan
    run = codegen.compile(hlo.parse(text))
    assert run(x)[0].tobytes() == run(y)[0].tobytes()


# Factors of 17 to 31 have butterflies; lines with larger ones are cyclic convolutions, whole, halved, or one of two parts.
LARGE = [((5, 34), 1), ((3, 31), 1), ((18, 37), 1), ((3, 74), 1), ((2, 41, 6), 2), ((2, 47 * 512), 1), ((3, 1009), 1)]


@pytest.mark.parametrize(
    ("kind", "shape", "axes"),
    [pytest.param(kind, *case, marks=() if (i + k) % 4 == 0 else pytest.mark.slow)
     for i, kind in enumerate(KINDS) for k, case in enumerate(LARGE)],
)  # fmt: skip
def test_large_prime_factors(kind: str, shape: tuple[int, ...], axes: int) -> None:
    text, x = program(kind, shape, axes)
    assert not compare(text, x, 2e-6).library
    text, x = program(kind, shape, axes, "f64")
    assert not compare(text, x, 1e-14).library


@pytest.mark.parametrize("kind", KINDS)
def test_primes_beyond_the_caches_are_the_librarys(kind: str) -> None:
    text, x = program(kind, (5, 4099), 1)
    assert "NumPy" in compare(text, x, 1e-6).library[0]


@pytest.mark.parametrize("kind", ["FFT", "RFFT", "IRFFT"])
def test_what_is_infinite_stays_in_its_line(kind: str) -> None:
    text, x = program(kind, (37, 40), 1)
    x[5, 3], x[20, 7] = np.inf, np.nan
    (found,) = codegen.compile(hlo.parse(text))(x)
    assert sorted(set(np.nonzero(~np.isfinite(found))[0].tolist())) == [5, 20]


@pytest.mark.parametrize("n", [12, 15])
def test_imaginary_parts_that_a_real_line_cannot_have_are_not_read(n: int) -> None:
    text, x = program("IRFFT", (4, n), 1)
    y = x.copy()
    y.imag[:, 0] = np.nan
    if n % 2 == 0:
        y.imag[:, -1] = np.inf
    run = codegen.compile(hlo.parse(text))
    assert run(x)[0].tobytes() == run(y)[0].tobytes()
    assert np.isfinite(run(y)[0]).all()


def test_a_transform_in_a_loop() -> None:
    text = """func.func @main(%x: tensor<20x16xcomplex<f32>>) -> tensor<20x16xcomplex<f32>> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %four = stablehlo.constant dense<4> : tensor<i32>
  %r:2 = stablehlo.while(%k = %zero, %y = %x) : tensor<i32>, tensor<20x16xcomplex<f32>>
  cond {
    %more = stablehlo.compare LT, %k, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %f = stablehlo.fft %y, type = FFT, length = [16] : (tensor<20x16xcomplex<f32>>) -> tensor<20x16xcomplex<f32>>
    %next = stablehlo.add %k, %one : tensor<i32>
    stablehlo.return %next, %f : tensor<i32>, tensor<20x16xcomplex<f32>>
  }
  return %r#1 : tensor<20x16xcomplex<f32>>
}"""
    _, x = program("FFT", (20, 16), 1)
    executable = compare(text, x, 1e-6)
    (found,) = executable(x)
    np.testing.assert_allclose(found, x * 256, rtol=1e-5, atol=1e-3)  # four transforms give n^2 times what was there


@pytest.mark.parametrize("n", range(1, 200))
def test_butterflies_multiply_to_the_length(n: int) -> None:
    found = butterflies(n)
    small = all(n % p for p in range(37, n + 1) if all(p % q for q in range(2, p)))
    assert (found is not None) == small
    if found is not None:
        assert np.prod(found) == n


def test_a_transform_is_checked_by_itself() -> None:
    """The evaluator knows the program's op, not the planner's form of it."""
    text, x = program("FFT", (20, 24), 1)
    plan = codegen.compile(hlo.parse(text)).plan
    assert [k.passed for k in check_kernels(plan, Values.of(plan, [x]))] == [True]
