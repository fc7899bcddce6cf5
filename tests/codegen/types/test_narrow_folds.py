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
