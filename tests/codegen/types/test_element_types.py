"""Element types: every elementwise op on every type in kernels, against the evaluator; conversions against ml_dtypes, exhaustively."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import codegen
import hlo
import interp
from benchmarks.functions.element_types import ELEMENTS, survey_elementwise
from codegen.lib.narrow import NARROW_FLOATS, NARROW_INTEGERS, POWER_OF_TWO
from codegen.native.jit import kernel_assembly
from codegen.native.signature import KernelSignature, Param
from codegen.target import Target, host_target
from codegen.tune.probe import apply, elementwise_source
from hlo.types import ELEMENT_TYPES
from interp.numbers import convert
from tests.machines import narrower_targets

TARGETS = ["host", *narrower_targets()]
IS_X86 = host_target().triple.startswith("x86_64")
NARROW = [*NARROW_FLOATS, POWER_OF_TWO]
QUICK = ("i1", "i4")
# f8E8M0FNU has no zero: what f32 loses below its range is NaN there, where the evaluator's f64 gives the least number
BELOW_F32 = {"atan2", "power", "erfc"}
NO_KERNEL = {"chlo.broadcast_polygamma", "chlo.polygamma"}


def _dtype(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Equal in every bit, or both NaN."""
    bits = np.dtype(f"u{a.dtype.itemsize}")
    with np.errstate(all="ignore"):
        return (a.view(bits) == b.view(bits)) | ((a != a) & (b != b))


# ------------------------------------------------------------------ conversions


@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param(n, t, marks=() if t == "host" or n in ("float8_e5m2", POWER_OF_TWO) else pytest.mark.slow)
        for n in NARROW
        for t in TARGETS
    ],
)
def test_narrow_floats_become_f32_and_f32_becomes_them(name: str, target: str) -> None:
    bits = NARROW_FLOATS[name].bits if name in NARROW_FLOATS else 8
    codes = np.arange(1 << bits, dtype=np.uint8).view(_dtype(name))
    chosen = Target.named(target)
    assert _same(apply("x", codes, result=np.float32, target=chosen), codes.astype(np.float32)).all()
    rng = np.random.default_rng(0)
    patterns = np.arange(1 << 16, dtype=np.uint16)
    x = np.concatenate([
        patterns.view(np.float16).astype(np.float32), patterns.view(ml_dtypes.bfloat16).astype(np.float32),
        rng.integers(0, 1 << 32, 1 << 15, dtype=np.uint32).view(np.float32),
    ])  # fmt: skip
    with np.errstate(all="ignore"):
        # what lies just beside a tie, too
        x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
        expected = convert(x, _dtype(name))
    got = apply("x", x, result=_dtype(name), target=chosen)
    # A NaN is a NaN of the same sign; its payload is the format's, where it has several, and not the canonical one.
    wrong = (got.view(np.uint8) ^ expected.view(np.uint8)) & np.where(np.isnan(expected.astype(np.float32)), 0x80, 0xFF) != 0
    wrong |= np.isnan(got.astype(np.float32)) != np.isnan(expected.astype(np.float32))
    assert not wrong.any(), (x[wrong][:5], got[wrong][:5], expected[wrong][:5])


@pytest.mark.parametrize("element", ["f8E3M4", "f8E4M3", "f8E5M2"])
def test_bits_of_every_nan_of_a_byte_are_kept(element: str) -> None:
    """A NaN became the canonical one where it was loaded, so that its bits and its place in totalOrder were others."""
    text = f"""func.func @main(%x: tensor<256x{element}>, %y: tensor<256x{element}>, %b: tensor<256xui8>)
    -> (tensor<256xui8>, tensor<256x{element}>, tensor<256x256xi1>) {{
  %0 = stablehlo.bitcast_convert %x : (tensor<256x{element}>) -> tensor<256xui8>
  %1 = stablehlo.bitcast_convert %b : (tensor<256xui8>) -> tensor<256x{element}>
  %2 = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<256x{element}>) -> tensor<256x256x{element}>
  %3 = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<256x{element}>) -> tensor<256x256x{element}>
  %4 = stablehlo.compare LT, %2, %3, TOTALORDER : (tensor<256x256x{element}>, tensor<256x256x{element}>) -> tensor<256x256xi1>
  return %0, %1, %4 : tensor<256xui8>, tensor<256x{element}>, tensor<256x256xi1>
}}"""
    codes = np.arange(256, dtype=np.uint8)
    arrays = (codes.view(ELEMENT_TYPES[element].dtype), codes.view(ELEMENT_TYPES[element].dtype)[::-1].copy(), codes)
    module = hlo.parse(text)
    executable = codegen.compile(module)
    assert executable.fallbacks == []
    for found, expected in zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("name", sorted(NARROW_INTEGERS))
def test_narrow_integers_are_read_without_the_upper_bits_and_wrapped_when_stored(name: str) -> None:
    every = np.arange(256, dtype=np.uint8)
    number = np.int8 if NARROW_INTEGERS[name][1] else np.uint8
    np.testing.assert_array_equal(apply("x", every.view(_dtype(name)), result=number), every.view(_dtype(name)).astype(number))
    stored = apply("x", every.view(number), result=_dtype(name))
    np.testing.assert_array_equal(stored.astype(number), every.view(number).astype(_dtype(name)).astype(number))
    assert stored.view(np.uint8).max() < 1 << NARROW_INTEGERS[name][0]


def _conversion(x: np.ndarray, source: str, goal: str) -> np.ndarray:
    text = f"""func.func @main(%x: tensor<{x.size}x{source}>) -> tensor<{x.size}x{goal}> {{
  %0 = stablehlo.convert %x : (tensor<{x.size}x{source}>) -> tensor<{x.size}x{goal}>
  return %0 : tensor<{x.size}x{goal}>
}}"""
    exe = codegen.compile(hlo.parse(text))
    assert not exe.fallbacks
    return exe(x)[0]


@pytest.mark.parametrize("goal", ["bf16", "f16", "f8E5M2", "f8E8M0FNU"])
def test_wide_numbers_are_rounded_once(goal: str) -> None:
    """A double or a long integer just beside a tie must not be rounded to f32 first, onto the tie."""
    dtype = ELEMENT_TYPES[goal].dtype
    with np.errstate(all="ignore"):
        exponents = np.exp2(np.arange(-30, 17, dtype=np.float64))
        ties = np.concatenate([s * exponents * (1 + k * 2.0**-12) for s in (1, -1) for k in range(0, 4096, 7)])
        x = np.concatenate([ties, ties * (1 + 2.0**-50), ties * (1 - 2.0**-50), [np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-300]])
        assert _same(_conversion(x, "f64", goal), convert(x, dtype)).all()
        whole = np.array([(1 << 62) + (1 << 53) + d for d in range(-3, 4)] + [(1 << 40) + (1 << 31) + d for d in range(-3, 4)]
                         + [-(2**63), 2**63 - 1, (1 << 24) + 1, 65520, 65519, 2049, 2051])  # fmt: skip
        assert _same(_conversion(whole, "i64", goal), convert(whole, dtype)).all()
        unsigned = whole.view(np.uint64)
        assert _same(_conversion(unsigned, "ui64", goal), convert(unsigned, dtype)).all()


# ------------------------------------------------------------------ elementwise ops


@pytest.mark.parametrize(
    "name", [pytest.param(t.name, marks=() if t.name in QUICK else pytest.mark.slow) for t in ELEMENTS]
)
def test_every_elementwise_op_is_a_kernel_and_right(name: str) -> None:
    found = survey_elementwise(ELEMENT_TYPES[name])
    assert len(found) > 40
    undefined = NO_KERNEL if ELEMENT_TYPES[name].is_complex else set()
    assert not [(o.op, o.fallback) for o in found if not o.is_native and o.op not in undefined]
    # overflow inside atan2's quotient: infinite parts of either kind
    exempt = {"atan2"} if ELEMENT_TYPES[name].is_complex else BELOW_F32 if name == "f8E8M0FNU" else set()
    wrong = [o for o in found if not o.comparison.passed and not any(x in o.op for x in exempt)]
    assert not wrong, [(o.op, o.comparison) for o in wrong]


COMPLEX_FUNCTIONS = (
    "exponential exponential_minus_one log log_plus_one logistic sqrt rsqrt cbrt sine cosine tan tanh abs sign negate".split()
)


@pytest.mark.parametrize("element", ["complex<f32>", "complex<f64>"])
def test_complex_functions_are_accurate_element_by_element(element: str) -> None:
    rng = np.random.default_rng(1)
    n = 3000
    size = np.exp2(rng.uniform(-12, 4, n))
    z = (size * np.exp(2j * np.pi * rng.uniform(0, 1, n))).astype(ELEMENT_TYPES[element].dtype)
    z[:200] = np.exp(2j * np.pi * rng.uniform(0, 1, 200)) * (1 + rng.normal(0, 1e-5, 200))  # |z| near 1: log cancels
    t = f"tensor<{n}x{element}>"
    real = f"tensor<{n}x{ELEMENT_TYPES[element].real}>"
    inverse = ("acos", "acosh", "asin", "asinh", "atan", "atanh")
    goals = [real if f == "abs" else t for f in COMPLEX_FUNCTIONS] + [t] * len(inverse)
    lines = [f'%{k} = "stablehlo.{f}"(%z) : ({t}) -> {goals[k]}' for k, f in enumerate(COMPLEX_FUNCTIONS)]
    lines += [f"%{len(COMPLEX_FUNCTIONS) + k} = chlo.{f} %z : {t} -> {t}" for k, f in enumerate(inverse)]
    names = ", ".join(f"%{k}" for k in range(len(goals)))
    body = "\n  ".join(lines)
    text = f"func.func @main(%z: {t}) -> ({', '.join(goals)}) {{\n  {body}\n  return {names} : {', '.join(goals)}\n}}"
    module = hlo.parse(text)
    exe = codegen.compile(module)
    assert not exe.fallbacks
    eps = np.finfo(ELEMENT_TYPES[element].real.dtype).eps
    for f, a, b in zip((*COMPLEX_FUNCTIONS, *inverse), exe(z), interp.evaluate(module, z), strict=True):
        error = np.abs(a.astype(np.complex128) - b) / np.maximum(np.abs(b), 1e-30)
        assert error.max() <= (2 if element == "complex<f32>" else 16) * eps, (f, error.max() / eps, z[error.argmax()])


@pytest.mark.parametrize("function", ["atan", "atanh"])
def test_the_arc_tangent_of_the_largest_numbers_is_subnormal_not_zero(function: str) -> None:
    """Where |z| is beyond the largest number, 1 / |z| is still a number."""
    text = f"""func.func @main(%z: tensor<6xcomplex<f64>>) -> tensor<6xcomplex<f64>> {{
      %r = chlo.{function} %z : tensor<6xcomplex<f64>> -> tensor<6xcomplex<f64>>
      return %r : tensor<6xcomplex<f64>>
    }}"""
    most = np.finfo(np.float64).max
    z = np.array([complex(*p) for p in ((most, most), (-most, most), (most, 1.0), (1e160, most), (1e200, -1e180), (np.inf, 1.0))])
    module = hlo.parse(text)
    (found,), (want,) = codegen.compile(module)(z), interp.evaluate(module, z)
    assert want.imag[0] != 0 and want.real[0] != 0
    for a, b in ((found.real, want.real), (found.imag, want.imag)):
        np.testing.assert_array_max_ulp(a, b, 2)


def test_complex_reductions_contractions_and_moves() -> None:
    rng = np.random.default_rng(2)
    a = (rng.normal(size=(6, 40)) + 1j * rng.normal(size=(6, 40))).astype(np.complex64)
    b = (rng.normal(size=(40, 5)) + 1j * rng.normal(size=(40, 5))).astype(np.complex64)
    text = """func.func @main(%a: tensor<6x40xcomplex<f32>>, %b: tensor<40x5xcomplex<f32>>)
    -> (tensor<6x5xcomplex<f32>>, tensor<6xcomplex<f32>>, tensor<40xcomplex<f32>>, tensor<40x6xcomplex<f32>>, tensor<1x3x2xcomplex<f32>>) {
  %zero = stablehlo.constant dense<(0.0,0.0)> : tensor<complex<f32>>
  %one = stablehlo.constant dense<(1.0,0.0)> : tensor<complex<f32>>
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<6x40xcomplex<f32>>, tensor<40x5xcomplex<f32>>) -> tensor<6x5xcomplex<f32>>
  %s = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<6x40xcomplex<f32>>, tensor<complex<f32>>) -> tensor<6xcomplex<f32>>
  %p = stablehlo.reduce(%a init: %one) applies stablehlo.multiply across dimensions = [0] : (tensor<6x40xcomplex<f32>>, tensor<complex<f32>>) -> tensor<40xcomplex<f32>>
  %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<6x40xcomplex<f32>>) -> tensor<40x6xcomplex<f32>>
  %i = stablehlo.slice %a [0:1, 0:5] : (tensor<6x40xcomplex<f32>>) -> tensor<1x5xcomplex<f32>>
  %x = stablehlo.reshape %i : (tensor<1x5xcomplex<f32>>) -> tensor<1x5x1xcomplex<f32>>
  %j = stablehlo.slice %b [0:3, 0:2] : (tensor<40x5xcomplex<f32>>) -> tensor<3x2xcomplex<f32>>
  %k = stablehlo.reshape %j : (tensor<3x2xcomplex<f32>>) -> tensor<3x1x2xcomplex<f32>>
  %c = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x5x1xcomplex<f32>>, tensor<3x1x2xcomplex<f32>>) -> tensor<1x3x2xcomplex<f32>>
  return %d, %s, %p, %t, %c : tensor<6x5xcomplex<f32>>, tensor<6xcomplex<f32>>, tensor<40xcomplex<f32>>, tensor<40x6xcomplex<f32>>, tensor<1x3x2xcomplex<f32>>
}"""
    module = hlo.parse(text)
    exe = codegen.compile(module)
    assert not exe.fallbacks
    for got, expected in zip(exe(a, b), interp.evaluate(module, a, b), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ what programs do with narrow types


@pytest.mark.parametrize("element", ["f8E4M3FN", "f8E5M2", "f4E2M1FN", "f16", "bf16", "i4", "ui2", "i8"])
def test_reductions_contractions_and_indices(element: str) -> None:
    t = ELEMENT_TYPES[element]
    rng = np.random.default_rng(3)
    a, b = (convert(rng.normal(0, 2, s), t.dtype) for s in ((6, 24), (24, 5)))
    acc = "i32" if t.is_integer else "f32"
    text = f"""func.func @main(%a: tensor<6x24x{element}>, %b: tensor<24x5x{element}>)
    -> (tensor<6x5x{acc}>, tensor<6x{element}>, tensor<24x{element}>, tensor<300x{element}>, tensor<24x6x{element}>, tensor<6x24x{element}>) {{
  %zero = stablehlo.constant dense<0{'' if t.is_integer else '.0'}> : tensor<{element}>
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<6x24x{element}>, tensor<24x5x{element}>) -> tensor<6x5x{acc}>
  %s = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<6x24x{element}>, tensor<{element}>) -> tensor<6x{element}>
  %m = stablehlo.reduce(%a init: %zero) applies stablehlo.maximum across dimensions = [0] : (tensor<6x24x{element}>, tensor<{element}>) -> tensor<24x{element}>
  %n = stablehlo.iota dim = 0 : tensor<300x{element}>
  %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<6x24x{element}>) -> tensor<24x6x{element}>
  %o = "stablehlo.sort"(%a) ({{
  ^bb0(%x: tensor<{element}>, %y: tensor<{element}>):
    %c = stablehlo.compare LT, %x, %y : (tensor<{element}>, tensor<{element}>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }}) {{dimension = 1 : i64, is_stable = true}} : (tensor<6x24x{element}>) -> tensor<6x24x{element}>
  return %d, %s, %m, %n, %t, %o : tensor<6x5x{acc}>, tensor<6x{element}>, tensor<24x{element}>, tensor<300x{element}>, tensor<24x6x{element}>, tensor<6x24x{element}>
}}"""
    module = hlo.parse(text)
    exe = codegen.compile(module)
    assert not exe.fallbacks
    results = list(zip(exe(a, b), interp.evaluate(module, a, b), strict=True))
    np.testing.assert_allclose(*results[0], rtol=1e-6, atol=1e-5)
    sums = [x.astype(np.float64) for x in results[1]]
    np.testing.assert_allclose(*sums, atol=0.1 if element == "bf16" else 0.02 if element == "f16" else 0)
    for got, expected in results[2:]:
        np.testing.assert_array_equal(got.view(f"u{t.itemsize_bytes}"), expected.view(f"u{t.itemsize_bytes}"))


def test_long_sums_of_narrow_floats_are_declined_in_words() -> None:
    text = """func.func @main(%a: tensor<64xf8E5M2>) -> tensor<f8E5M2> {
  %z = stablehlo.constant dense<0.0> : tensor<f8E5M2>
  %s = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0] : (tensor<64xf8E5M2>, tensor<f8E5M2>) -> tensor<f8E5M2>
  return %s : tensor<f8E5M2>
}"""
    (reason,) = codegen.compile(hlo.parse(text)).fallbacks
    assert "64 elements of f8E5M2 is rounded at every step" in reason


@pytest.mark.skipif(not IS_X86, reason="register names are those of x86")
@pytest.mark.parametrize("name", [*NARROW, *NARROW_INTEGERS, "float16", "bfloat16"])
def test_loops_over_narrow_types_become_vector_code_without_calls(name: str) -> None:
    expression = "add(x, x)" if name in NARROW_INTEGERS else "x + x"
    for target, register in (("avx512", "%zmm"), ("avx2", "%ymm")):
        text = _assembly(expression, name, target)
        assert register in text, target
        assert "callq" not in text, target


@pytest.mark.skipif(not IS_X86, reason="register names are those of x86")
@pytest.mark.parametrize("expression", ["multiply(x, x)", "divide(x, x)", "exp(x)", "log(x)", "sqrt(x)", "tanh(x)", "absolute(x)"])
def test_loops_over_complex_numbers_become_vector_code_without_calls(expression: str) -> None:
    for name in ("complex64", "complex128"):
        for target in ("avx512", "avx2"):
            text = _assembly(expression, name, target, "float" + str(int(name[7:]) // 2) if "absolute" in expression else name)
            assert "%ymm" in text or "%zmm" in text, target
            assert "callq" not in text, target


def _assembly(expression: str, name: str, target: str, result: str | None = None) -> str:
    signature = KernelSignature((Param("in_x", name), Param("out", result or name)))
    return kernel_assembly(elementwise_source(expression, 1), signature, Target.named(target))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS[1:])
def test_every_elementwise_op_is_right_on_other_targets(target: str) -> None:
    names = ["i4", "ui16", "f8E4M3FN", "f16", "bf16", "f32", "f64", "complex<f32>"]
    environment = {**os.environ, "TILEWRIGHT_TARGET": target, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.functions.element_types", *names]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert sum(line.endswith("native and right") for line in printed.splitlines()) == len(names)
    assert not [x for x in printed.splitlines() if " differ" in x and "atan2" not in x], printed


TYPED_PROGRAM = """func.func @main(%x: tensor<512x700x{0}>) -> (tensor<512x700x{0}>, tensor<512x{0}>) {{
  %0 = "stablehlo.{1}"(%x) : (tensor<512x700x{0}>) -> tensor<512x700x{0}>
  %z = stablehlo.constant dense<{2}> : tensor<{0}>
  %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<512x700x{0}>, tensor<{0}>) -> tensor<512x{0}>
  return %0, %1 : tensor<512x700x{0}>, tensor<512x{0}>
}}"""


@pytest.mark.parametrize(
    ("element", "op", "zero"),
    [("f16", "exponential", "0.0"), ("bf16", "tanh", "0.0"), ("i4", "negate", "0"), ("complex<f32>", "log", "(0.0,0.0)")],
)
def test_the_same_bits_from_run_to_run_and_for_every_number_of_threads(element: str, op: str, zero: str) -> None:
    t = ELEMENT_TYPES[element]
    module = hlo.parse(TYPED_PROGRAM.format(element, op, zero))
    x = convert(np.random.default_rng(0).normal(0, 2, (512, 700)), t.dtype)
    seen = {
        tuple(a.tobytes() for a in codegen.compile(module, threads=threads)(x)) for threads in (1, 2, 3, 7) for _ in range(2)
    }
    assert len(seen) == 1


def test_f16_is_rounded_at_every_op() -> None:
    """300 * 300 is infinite in f16, also where nothing stores it."""
    text = """func.func @main(%x: tensor<4xf16>) -> tensor<4xf16> {
  %c = stablehlo.constant dense<1.0e-3> : tensor<4xf16>
  %0 = stablehlo.multiply %x, %x : tensor<4xf16>
  %1 = stablehlo.multiply %0, %c : tensor<4xf16>
  return %1 : tensor<4xf16>
}"""
    module, x = hlo.parse(text), np.array([300, 1, -300, 200], np.float16)
    (got,), (expected,) = codegen.compile(module)(x), interp.evaluate(module, x)
    np.testing.assert_array_equal(got, expected)
    assert np.isinf(got[0])


def test_a_padded_convolution_of_converted_bytes_needs_no_measured_limits() -> None:
    """Its inputs' limits are known from their type: the phase that measures them would have nothing to do."""
    text = """func.func @main(%a: tensor<1x9x9x3xi8>, %b: tensor<3x3x3x4xi8>) -> tensor<1x9x9x4xf32> {
  %x = stablehlo.convert %a : (tensor<1x9x9x3xi8>) -> tensor<1x9x9x3xf32>
  %y = stablehlo.convert %b : (tensor<3x3x3x4xi8>) -> tensor<3x3x3x4xf32>
  %0 = stablehlo.convolution(%x, %y) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x9x9x3xf32>, tensor<3x3x3x4xf32>) -> tensor<1x9x9x4xf32>
  return %0 : tensor<1x9x9x4xf32>
}"""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-127, 128, s, np.int8) for s in ((1, 9, 9, 3), (3, 3, 3, 4)))
    module = hlo.parse(text)
    np.testing.assert_array_equal(codegen.compile(module)(a, b)[0], interp.evaluate(module, a, b)[0])


def test_boolean_contractions_are_or_of_and() -> None:
    text = """func.func @main(%a: tensor<5x9xi1>, %b: tensor<9x7xi1>) -> tensor<5x7xi1> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<5x9xi1>, tensor<9x7xi1>) -> tensor<5x7xi1>
  return %0 : tensor<5x7xi1>
}"""
    a, b = (np.random.default_rng(0).random(s) < 0.3 for s in ((5, 9), (9, 7)))
    np.testing.assert_array_equal(codegen.compile(hlo.parse(text))(a, b)[0], (a.astype(int) @ b.astype(int)) > 0)


@pytest.mark.parametrize("name", ["f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "f8E4M3FN"])
def test_next_after_of_all_pairs_of_codes(name: str) -> None:
    """A 6-bit float has no integer of its width: compiling failed."""
    t = ELEMENT_TYPES[name]
    codes = np.arange(1 << t.bits, dtype=np.uint8).view(t.dtype)
    x, y = (g.ravel() for g in np.meshgrid(codes, codes))
    type_ = f"tensor<{x.size}x{name}>"
    module = hlo.parse(f"""func.func @main(%x: {type_}, %y: {type_}) -> {type_} {{
      %r = chlo.next_after %x, %y : {type_}, {type_} -> {type_}
      return %r : {type_}
    }}""")
    executable = codegen.compile(module)
    assert not executable.fallbacks
    (found,), (want,) = executable(x, y), interp.evaluate(module, x, y)
    assert _same(found, want).all()


@pytest.mark.parametrize(("element", "n"), [("i8", 130), ("ui8", 300), ("i4", 20), ("i16", 40_000)])
@pytest.mark.parametrize("to", ["ui32", "i64", "f32"])
def test_an_iota_beyond_its_type_wraps_before_it_is_converted(element: str, n: int, to: str) -> None:
    module = hlo.parse(
        f"func.func @main(%x: tensor<{n}xf32>) -> (tensor<{n}x{to}>, tensor<{n}xf32>) {{\n"
        f"  %0 = stablehlo.iota dim = 0 : tensor<{n}x{element}>\n"
        f"  %1 = stablehlo.convert %0 : (tensor<{n}x{element}>) -> tensor<{n}x{to}>\n"
        f"  %2 = stablehlo.constant dense<3> : tensor<{n}x{element}>\n"
        f"  %3 = stablehlo.compare GE, %0, %2 : (tensor<{n}x{element}>, tensor<{n}x{element}>) -> tensor<{n}xi1>\n"
        f"  %4 = stablehlo.negate %x : tensor<{n}xf32>\n"
        f"  %5 = stablehlo.select %3, %x, %4 : tensor<{n}xi1>, tensor<{n}xf32>\n"
        f"  return %1, %5 : tensor<{n}x{to}>, tensor<{n}xf32>\n}}"
    )
    x = np.arange(1, n + 1, dtype=np.float32)
    for found, wanted in zip(codegen.compile(module)(x), interp.evaluate(module, x), strict=True):
        np.testing.assert_array_equal(found, wanted)
