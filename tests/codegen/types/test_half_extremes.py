"""Maxima and minima of f16 and bf16: by their bits, as vectors, with NaN and the signs of zeros as the specification has them."""

from __future__ import annotations

import itertools
import re

import ml_dtypes
import numpy as np
import pytest

import codegen
import hlo
import interp
from codegen.native.jit import kernel_assembly
from codegen.native.signature import KernelSignature, Param
from codegen.target import Target, host_target
from tests.pairs import fast_cover

KINDS = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
INFINITY = {"f16": 0x7C00, "bf16": 0x7F80}

COLUMNS = """func.func @main(%x: tensor<{rows}x24x{t}>, %y: tensor<{rows}x24x{t}>)
    -> (tensor<24x{t}>, tensor<{rows}x24x{t}>, tensor<24x{t}>, tensor<{rows}x24x{t}>) {{
  %z = stablehlo.constant dense<{start}> : tensor<{t}>
  %c = stablehlo.constant dense<-0.0> : tensor<{rows}x24x{t}>
  %r = stablehlo.reduce(%x init: %z) applies stablehlo.{name} across dimensions = [0]
       : (tensor<{rows}x24x{t}>, tensor<{t}>) -> tensor<24x{t}>
  %e = stablehlo.{name} %x, %y : tensor<{rows}x24x{t}>
  %a = stablehlo.abs %y : tensor<{rows}x24x{t}>
  %s = stablehlo.reduce(%a init: %z) applies stablehlo.{name} across dimensions = [0]
       : (tensor<{rows}x24x{t}>, tensor<{t}>) -> tensor<24x{t}>
  %f = stablehlo.{name} %x, %c : tensor<{rows}x24x{t}>
  return %r, %e, %s, %f : tensor<24x{t}>, tensor<{rows}x24x{t}>, tensor<24x{t}>, tensor<{rows}x24x{t}>
}}"""
ROWS = """func.func @main(%x: tensor<9x{n}x{t}>) -> tensor<9x{t}> {{
  %z = stablehlo.constant dense<{start}> : tensor<{t}>
  %r = stablehlo.reduce(%x init: %z) applies stablehlo.{name} across dimensions = [1]
       : (tensor<9x{n}x{t}>, tensor<{t}>) -> tensor<9x{t}>
  return %r : tensor<9x{t}>
}}"""


def special(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of both signs, infinities, the least and the greatest numbers."""
    infinity = INFINITY[kind]
    magnitudes = [0, 1, 0x0123, infinity - 1, infinity]
    bits = np.array([m | sign for m in magnitudes for sign in (0, 0x8000)], np.uint16)
    return np.random.default_rng(shape[-2]).choice(bits, shape).view(KINDS[kind])


def agree(module: hlo.Module, *arrays: np.ndarray) -> codegen.Executable:
    """The evaluator's results, bit by bit but for what a NaN holds."""
    executable = codegen.compile(module)
    for found, expected in zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True):
        with np.errstate(invalid="ignore"):
            nan, found_nan = np.isnan(expected), np.isnan(found)
        np.testing.assert_array_equal(found_nan, nan)
        bits = np.uint32 if found.dtype == np.float32 else np.uint16
        np.testing.assert_array_equal(found.view(bits)[~nan], expected.view(bits)[~nan])
    return executable


def start(kind: str, name: str) -> str:
    return hex(INFINITY[kind] | (0x8000 if name == "maximum" else 0)).upper().replace("X", "x")


@pytest.mark.parametrize(
    ("kind", "name", "rows"), fast_cover(itertools.product(KINDS, ["maximum", "minimum"], [3, 11, 40]), strength=2)
)
def test_columns_and_elements_are_the_evaluators_bit_by_bit(kind: str, name: str, rows: int) -> None:
    x, y = special(kind, (2, rows, 24))
    x[1, 3], y[0, 5] = np.array([INFINITY[kind] + 1, INFINITY[kind] | 0x8001], np.uint16).view(KINDS[kind])  # NaN of either sign
    x[:, 7], x[:, 8] = -np.abs(x[:, 7]), np.abs(x[:, 8])
    agree(hlo.parse(COLUMNS.format(name=name, rows=rows, t=kind, start=start(kind, name))), x, y)


@pytest.mark.parametrize(
    ("kind", "name", "length"), fast_cover(itertools.product(KINDS, ["maximum", "minimum"], [70, 1030]), strength=2)
)
def test_rows_are_the_evaluators_bit_by_bit(kind: str, name: str, length: int) -> None:
    x = special(kind, (9, length))
    x[1, 3], x[2, 5] = np.array([INFINITY[kind] + 1, INFINITY[kind] | 0x8001], np.uint16).view(KINDS[kind])
    x[3:6], x[6:] = -np.abs(x[3:6]), np.abs(x[6:])
    x[4], x[7] = np.where(np.isnan(x[4]) | (x[4] == 0), x[5, 0], x[4]), 1.5
    executable = agree(hlo.parse(ROWS.format(name=name, n=length, t=kind, start=start(kind, name))), x)
    by_own_bits = f"{KINDS[kind].name}_{name}_of_bounds" in executable.kernels[0].source
    assert by_own_bits == (length > 512)


@pytest.mark.parametrize(("kind", "inner"), itertools.product(KINDS, ["maximum", "minimum"]))
def test_a_minimum_of_a_maximum_leaves_out_what_the_maximum_left_out(kind: str, inner: str) -> None:
    """`clip`: the bounds that a maximum is made of were taken for those of a minimum, which gave the least of all three."""
    outer, t = {"maximum": "minimum", "minimum": "maximum"}[inner], f"tensor<2x24x{kind}>"
    text = (
        f"func.func @main(%x: {t}, %y: {t}, %z: {t}) -> ({t}, {t}) {{\n"
        f"  %c = stablehlo.constant dense<2.0> : {t}\n  %d = stablehlo.constant dense<-2.0> : {t}\n"
        f"  %i = stablehlo.{inner} %x, %y : {t}\n  %o = stablehlo.{outer} %i, %z : {t}\n"
        f"  %l = stablehlo.{inner} %x, %{'d' if inner == 'maximum' else 'c'} : {t}\n"
        f"  %h = stablehlo.{outer} %l, %{'c' if inner == 'maximum' else 'd'} : {t}\n  return %o, %h : {t}, {t}\n}}"
    )
    agree(hlo.parse(text), *special(kind, (3, 2, 24)))


def assembly(kind: str, lines: list[str], target: str) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    source = f"def kernel(begin, end, x, y, z, r):\n    for i in range(1024):\n{body}"
    return kernel_assembly(source, KernelSignature(tuple(Param(p, KINDS[kind].name) for p in "xyzr")), Target.named(target))


@pytest.mark.skipif(not host_target().triple.startswith("x86_64"), reason="x86-64 targets")
@pytest.mark.parametrize(("target", "register"), [("avx2", "ymm"), ("avx512", "zmm")])
@pytest.mark.parametrize("kind", KINDS)
def test_extremes_of_several_numbers_are_bounds_of_bits(kind: str, target: str, register: str) -> None:
    """Each takes three instructions on as many numbers as a vector holds, however it is named, and only the last one ends it.

    Of widened f16 LLVM made extremes of halves and those one by one: 60 times as slow, for columns and for windows.
    """
    word = f"{KINDS[kind].name}_maximum"
    text = assembly(kind, [f"v1 = {word}(x[i], y[i])", f"v2 = {word}(z[i], r[i])", f"r[i] = {word}(v1, v2)"], target)
    stored = len(re.findall(rf"vmov\w+\s+%{register}\d+, .*\(", text))
    for instruction in ("vpmaxsw", "vpminuw"):
        assert len(re.findall(rf"{instruction}\s.*{register}", text)) == 3 * stored > 0
    assert len(re.findall(r"vpblendvb|vpmovw2m|vpcmp\w+uw\s", text)) == 2 * stored, "what ends an extreme"
    others = assembly(kind, [f"r[i] = {word}({word}(x[i], absolute(y[i])), float32(-0.5))"], target)
    assert "vpmaxsw" in others and not re.findall("vcvtph2ps|vpmovzxwd|vmaxps", text + others)


@pytest.mark.skipif(not host_target().triple.startswith("x86_64"), reason="x86-64 targets")
def test_a_bfloat16_that_is_computed_is_compared_as_f32() -> None:
    """To round it for its bits takes longer than a maximum of f32."""
    text = assembly("bf16", ["r[i] = bfloat16_maximum(round_bf16_result(x[i] * y[i]), z[i])"], "avx512")
    assert "vpmaxsw" not in text


def test_rows_of_columns_are_taken_eight_at_a_time() -> None:
    """A step ends with as much work as several rows take."""
    for kind, rows, steps in (("bf16", 40, 8), ("f16", 40, 8), ("f32", 40, 4)):
        text = (
            f"func.func @main(%x: tensor<{rows}x256x{kind}>) -> tensor<256x{kind}> {{\n"
            f"  %z = stablehlo.constant dense<1.0> : tensor<{kind}>\n"
            "  %r = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [0]\n"
            f"       : (tensor<{rows}x256x{kind}>, tensor<{kind}>) -> tensor<256x{kind}>\n"
            f"  return %r : tensor<256x{kind}>\n}}"
        )
        source = codegen.compile(hlo.parse(text)).kernels[0].source
        assert re.search(rf"in range\(0, \d+, {steps}\):", source), source


@pytest.mark.parametrize(("inner", "columns"), itertools.product(["maximum", "minimum"], [4, 8, 24]))
def test_extremes_of_widened_halves_are_the_evaluators_bit_by_bit(inner: str, columns: int) -> None:
    """Rows and columns of f16 as f32, two of them, an extreme of an extreme, and one with a number that is no f16."""
    outer, n = {"maximum": "minimum", "minimum": "maximum"}[inner], columns
    h, t, row, column = f"tensor<40x{n}xf16>", f"tensor<40x{n}xf32>", "tensor<40xf32>", f"tensor<{n}xf32>"
    text = (
        f"func.func @main(%a: {h}, %b: {h}, %c: {h}) -> ({t}, {t}, {row}, {column}) {{\n"
        f"  %s = stablehlo.constant dense<{'0xFF800000' if inner == 'maximum' else '0x7F800000'}> : tensor<f32>\n"
        f"  %k = stablehlo.constant dense<0.3> : {t}\n"
        + "".join(f"  %{v} = stablehlo.convert %{w} : ({h}) -> {t}\n" for v, w in zip("xyz", "abc", strict=True))
        + f"  %i = stablehlo.{inner} %x, %y : {t}\n  %o = stablehlo.{outer} %i, %z : {t}\n  %l = stablehlo.{inner} %o, %k : {t}\n"
        f"  %r = stablehlo.reduce(%x init: %s) applies stablehlo.{inner} across dimensions = [1] : ({t}, tensor<f32>) -> {row}\n"
        f"  %q = stablehlo.reduce(%i init: %s) applies stablehlo.{inner} across dimensions = [0]\n"
        f"       : ({t}, tensor<f32>) -> {column}\n"
        f"  return %o, %l, %r, %q : {t}, {t}, {row}, {column}\n}}"
    )
    arrays = special("f16", (3, 40, n))
    arrays[0, 3, 1], arrays[1, 5, 2] = np.nan, -np.nan
    agree(hlo.parse(text), *arrays)


@pytest.mark.skipif(not host_target().triple.startswith("x86_64"), reason="x86-64 targets")
@pytest.mark.parametrize(("target", "register"), [("avx2", "ymm"), ("avx512", "zmm")])
def test_extremes_of_widened_halves_are_bounds_of_bits(target: str, register: str) -> None:
    """LLVM made extremes of halves of them, too: a least of rows of eight took nine times as long."""
    text = assembly("f16", ["v1 = maximum(maximum(x[i], y[i]), z[i])", "r[i] = v1"], target)
    assert len(re.findall(rf"vpm(?:ax|in)[su]w\s.*%{register}", text)) >= 6
    assert not re.search(r"vcvtph2ps\s+%xmm\d+, %xmm\d+\n\s+vm(?:ax|in)ss", text)
