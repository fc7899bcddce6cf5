"""Folds of 16-bit floats whose loops have several parts."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("word", ["maximum", "minimum"])
def test_parts_of_a_loop_fold_into_the_same_bits(word: str, element: str) -> None:
    """Under a causal mask one part of a row is computed, the rest is one element of an argument that is read: its own 16 bits
    were folded into bits of f32, and the kernel did not compile (the gradient of causal attention in f16)."""
    x, s, v = f"tensor<64x2048x{element}>", f"tensor<{element}>", f"tensor<64x{element}>"
    mask, ints = "tensor<64x2048xi1>", "tensor<64x2048xi32>"
    module = hlo.parse(f"""func.func @main(%x: {x}, %low: {s}) -> {v} {{
      %i = stablehlo.iota dim = 0 : {ints}
      %j = stablehlo.iota dim = 1 : {ints}
      %m = stablehlo.compare GE, %i, %j : ({ints}, {ints}) -> {mask}
      %d = stablehlo.add %x, %x : {x}
      %l = stablehlo.broadcast_in_dim %low, dims = [] : ({s}) -> {x}
      %y = stablehlo.select %m, %d, %l : {mask}, {x}
      %none = stablehlo.constant dense<{"-" if word == "maximum" else ""}6.0e4> : {s}
      %r = stablehlo.reduce(%y init: %none) applies stablehlo.{word} across dimensions = [1] : ({x}, {s}) -> {v}
      return %r : {v} }}""")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(a.shape).astype(a.tensor.dtype) for a in module.entry.arguments]
    executable = codegen.compile(module)
    assert not executable.fallbacks
    (found,), (expected,) = executable(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_array_equal(found, expected)


def test_what_is_looked_up_under_a_mask_is_looked_up_once_and_where_it_is_needed() -> None:
    """A soft cap: two loops looked each element up, behind a test of the mask; eight heads of 1024 took 16 ms, then 11."""
    x, s, v = "tensor<8x512x512xbf16>", "tensor<bf16>", "tensor<8x512xbf16>"
    mask, ints = x.replace("bf16", "i1"), x.replace("bf16", "i32")
    module = hlo.parse(f"""func.func @main(%x: {x}) -> {x} {{
      %c = stablehlo.constant dense<3.0e+01> : {x}
      %q = stablehlo.divide %x, %c : {x}
      %t = stablehlo.tanh %q : {x}
      %y = stablehlo.multiply %t, %c : {x}
      %i = stablehlo.iota dim = 1 : {ints}
      %j = stablehlo.iota dim = 2 : {ints}
      %m = stablehlo.compare GE, %i, %j : ({ints}, {ints}) -> {mask}
      %low = stablehlo.constant dense<-3.0e+38> : {x}
      %z = stablehlo.select %m, %y, %low : {mask}, {x}
      %none = stablehlo.constant dense<0xFF80> : {s}
      %r = stablehlo.reduce(%z init: %none) applies stablehlo.maximum across dimensions = [2] : ({x}, {s}) -> {v}
      %b = stablehlo.broadcast_in_dim %r, dims = [0, 1] : ({v}) -> {x}
      %d = stablehlo.subtract %z, %b : {x}
      %e = stablehlo.exponential %d : {x}
      return %e : {x} }}""")
    executable = codegen.compile(module)
    array = np.random.default_rng(0).standard_normal((8, 512, 512)).astype("bfloat16") * 40
    (found,), (expected,) = executable(array), interp.evaluate(module, array)
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))
    lines = [line.strip() for k in executable.kernels for line in k.source.splitlines()]
    assert sum("bits_of_bfloat16(" in line and line.startswith("rt") for line in lines) == 1
    assert not any(line.startswith("if ") and "<= 0" in line for line in lines)
