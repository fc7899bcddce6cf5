"""Quantized tensors in kernels: as stored integers, equal to the evaluator's dequantize, compute, quantize."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import itertools

import numpy as np
import pytest

import codegen
import codegen.target
import hlo
import interp
from hlo.decompositions.quantized import quantized_form
from tests.pairs import fast_cover

A = "!quant.uniform<i8:f32, 0.1:3>"
HALF, QUARTER = "!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i8:f32, 0.25:-2>"
AXIS = "!quant.uniform<i8:f32:1, {" + ", ".join(f"{0.01 * (k + 1)!r}:{k % 5}" for k in range(16)) + "}>"
N = 48


def check(text: str, *arrays: np.ndarray) -> codegen.Executable:
    module = hlo.parse(text)
    hlo.verify(module)
    exe = codegen.compile(module)
    assert not exe.fallbacks
    for got, expected in zip(exe(*arrays), interp.evaluate(module, *arrays), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    return exe


def binary(op: str, q: str) -> str:
    t = f"tensor<{N}x16x{q}>"
    return f'"stablehlo.{op}"(%a, %b) : ({t}, {t}) -> {t}'


def arrays(dtype: str = "int8") -> tuple[np.ndarray, np.ndarray]:
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    return tuple(rng.integers(info.min, info.max, (N, 16), dtype, endpoint=True) for _ in range(2))  # type: ignore[return-value]


KINDS = {
    "per tensor": (A, "int8"),
    "bf16 expressed": ("!quant.uniform<i8:bf16, 0.1:3>", "int8"),
    "f16 expressed, bounded": ("!quant.uniform<i8<-100:100>:f16, 0.1:3>", "int8"),
    "f64 expressed": ("!quant.uniform<i8:f64, 0.1:3>", "int8"),
    "unsigned": ("!quant.uniform<ui8:f32, 0.05:128>", "uint8"),
    "16 bits": ("!quant.uniform<i16:f32, 0.01:7>", "int16"),
    "32 bits": ("!quant.uniform<i32:f32, 0.1:3>", "int32"),
}


PARTS = 3  # of the ops: each part with some types, each type with one part in the fast tests


@pytest.mark.parametrize(("kind", "part"), fast_cover(itertools.product(sorted(KINDS), range(PARTS)), strength=1))
def test_elementwise_ops_are_equal(kind: str, part: int) -> None:
    q, dtype = KINDS[kind]
    t = f"tensor<{N}x16x{q}>"
    ops = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder", "power", "atan2")[part::PARTS]
    unary = ("abs", "negate", "exponential", "tanh", "sqrt", "ceil", "sign", "cosine", "logistic", "cbrt")[part::PARTS]
    lines = [f"%{k} = {binary(op, q)}" for k, op in enumerate(ops)]
    lines += [f'%{len(ops) + k} = "stablehlo.{op}"(%a) : ({t}) -> {t}' for k, op in enumerate(unary)]
    n = len(lines)
    names, types = ", ".join(f"%{k}" for k in range(n)), ", ".join([t] * n)
    body = "\n  ".join(lines)
    check(f"func.func @main(%a: {t}, %b: {t}) -> ({types}) {{\n  {body}\n  return {names} : {types}\n}}", *arrays(dtype))


def test_quantize_dequantize_and_per_axis() -> None:
    x = np.concatenate([np.random.default_rng(0).normal(0, 5, (N - 2, 16)), np.full((1, 16), np.nan), np.full((1, 16), -np.inf)])
    q, f = f"tensor<{N}x16x{AXIS}>", f"tensor<{N}x16xf32>"
    check(f"func.func @main(%x: {f}) -> {q} {{ %0 = stablehlo.uniform_quantize %x : ({f}) -> {q} return %0 : {q} }}", x.astype(np.float32))
    check(f"func.func @main(%x: {q}) -> {f} {{ %0 = stablehlo.uniform_dequantize %x : ({q}) -> {f} return %0 : {f} }}", arrays()[0])
    check(f"func.func @main(%a: {q}, %b: {q}) -> {q} {{ %0 = {binary('add', AXIS)} return %0 : {q} }}", *arrays())
    other = f"tensor<{N}x16x{A}>"
    check(f"func.func @main(%x: {other}) -> {q} {{ %0 = stablehlo.uniform_quantize %x : ({other}) -> {q} return %0 : {q} }}", arrays()[0])


def dot(left: str, right: str, out: str) -> str:
    a, b, c = f"tensor<{N}x64x{left}>", f"tensor<64x32x{right}>", f"tensor<{N}x32x{out}>"
    return f"func.func @main(%a: {a}, %b: {b}) -> {c} {{ %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({a}, {b}) -> {c} return %0 : {c} }}"


@pytest.mark.parametrize(
    ("left", "right", "out", "how"),
    [
        (HALF, HALF, "!quant.uniform<i8:f32, 8.0>", "gemm_bytes"),
        (QUARTER, HALF, "!quant.uniform<i8:f32, 4.5:3>", "gemm_bytes"),
        (QUARTER, HALF, "!quant.uniform<i32:f32, 0.125>", "gemm_bytes"),
        (A, "!quant.uniform<i8:f32, 0.1>", "!quant.uniform<i8:f32, 3.0>", "gemm_block"),
        (A, "!quant.uniform<i8:f32:1, {" + ", ".join(f"{0.01 * (k + 1)!r}" for k in range(32)) + "}>", "!quant.uniform<i8:f32, 3.0>", "gemm_block"),
    ],
)
@pytest.mark.machine("avx512")
def test_contractions_are_equal_and_of_integers_where_that_is_exact(left: str, right: str, out: str, how: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-127, 128, s, np.int8) for s in ((N, 64), (64, 32)))
    source = check(dot(left, right, out), a, b).source
    assert how in source


def test_floats_times_quantized_weights() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(N, 64)).astype(np.float32), rng.integers(-127, 128, (64, 32), np.int8)
    module = hlo.parse(dot("f32", HALF, "f32"))
    hlo.verify(module)
    exe = codegen.compile(module)
    assert not exe.fallbacks
    np.testing.assert_allclose(exe(a, b)[0], interp.evaluate(module, a, b)[0], rtol=1e-5, atol=1e-3)


def test_batched_contraction_of_bytes_with_a_zero_point() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-127, 128, s, np.int8) for s in ((3, 8, 20), (20, 3, 6)))
    ta, tb, tc = f"tensor<3x8x20x{QUARTER}>", f"tensor<20x3x6x{HALF}>", "tensor<3x8x6x!quant.uniform<i32:f32, 0.125>>"
    check(f"func.func @main(%a: {ta}, %b: {tb}) -> {tc} {{ %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [1], contracting_dims = [2] x [0] : ({ta}, {tb}) -> {tc} return %0 : {tc} }}", a, b)


@pytest.mark.parametrize(("left", "right"), [(QUARTER, HALF), (A, "!quant.uniform<i8:f32, 0.07>")])
def test_convolutions_pad_with_the_zero_point(left: str, right: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-127, 128, s, np.int8) for s in ((1, 9, 9, 3), (3, 3, 3, 4)))
    ta, tb, tc = f"tensor<1x9x9x3x{left}>", f"tensor<3x3x3x4x{right}>", "tensor<1x9x9x4x!quant.uniform<i8:f32, 6.5:2>>"
    check(f"""func.func @main(%a: {ta}, %b: {tb}) -> {tc} {{
  %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {{pad = [[1, 1], [1, 1]]}}
    {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({ta}, {tb}) -> {tc}
  return %0 : {tc}
}}""", a, b)  # fmt: skip


def test_moves_keep_what_is_stored() -> None:
    t, u = f"tensor<{N}x16x{A}>", f"tensor<16x{N}x{A}>"
    check(f"func.func @main(%a: {t}, %b: {t}) -> ({u}, {t}) {{ %0 = stablehlo.transpose %a, dims = [1, 0] : ({t}) -> {u} %1 = stablehlo.reverse %b, dims = [0] : {t} return %0, %1 : {u}, {t} }}", *arrays())


def test_what_is_rounded_at_every_step_is_left_to_the_evaluator_in_words() -> None:
    t, r, s = f"tensor<{N}x16x{HALF}>", f"tensor<{N}x{HALF}>", f"tensor<{HALF}>"
    text = f"""func.func @main(%a: {t}, %z: {s}) -> {r} {{
  %0 = stablehlo.add %a, %a : {t}
  %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [1] : ({t}, {s}) -> {r}
  return %1 : {r}
}}"""
    module = hlo.parse(text)
    exe = codegen.compile(module)
    assert exe.fallbacks
    a = arrays()[0] // 16
    z = np.zeros((), np.int8)
    np.testing.assert_array_equal(exe(a, z)[0], interp.evaluate(module, a, z)[0])
    reduce = module.entry.body.ops[1]
    assert "rounded at every step" in str(quantized_form(reduce))
