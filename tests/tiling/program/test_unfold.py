"""Ops that stand for others are planned as those: kernels against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp

MAP = """func.func @main(%x: tensor<5x7xf32>, %y: tensor<5x7xf32>) -> tensor<5x7xi1> {
  %r = "stablehlo.map"(%x, %y) <{dimensions = array<i64: 0, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %h = stablehlo.constant dense<0.5> : tensor<f32>
    %c = stablehlo.multiply %a, %h : tensor<f32>
    %d = stablehlo.compare LT, %c, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %d : tensor<i1>
  }) : (tensor<5x7xf32>, tensor<5x7xf32>) -> tensor<5x7xi1>
  return %r : tensor<5x7xi1>
}"""
BARRIER = """func.func @main(%x: tensor<5xf32>, %y: tensor<5xf32>) -> (tensor<5xf32>, tensor<5xf32>) {
  %0 = stablehlo.exponential %x : tensor<5xf32>
  %r:2 = stablehlo.optimization_barrier %0, %y : tensor<5xf32>, tensor<5xf32>
  %1 = stablehlo.add %r#0, %r#1 : tensor<5xf32>
  return %1, %r#1 : tensor<5xf32>, tensor<5xf32>
}"""
COMPOSITE = """module {
func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {
  %0 = stablehlo.composite "my.op" %x {decomposition = @inner} : (tensor<5xf32>) -> tensor<5xf32>
  %1 = stablehlo.composite "my.op" %0 {decomposition = @inner} : (tensor<5xf32>) -> tensor<5xf32>
  return %1 : tensor<5xf32>
}
func.func private @inner(%x: tensor<5xf32>) -> tensor<5xf32> {
  %0 = stablehlo.add %x, %x : tensor<5xf32>
  return %0 : tensor<5xf32>
}
}"""
EINSUM = """func.func @main(%x: tensor<5x7x3xf32>) -> tensor<3x5xf32> {
  %r = "stablehlo.unary_einsum"(%x) <{einsum_config = "abc->ca"}> : (tensor<5x7x3xf32>) -> tensor<3x5xf32>
  return %r : tensor<3x5xf32>
}"""
TRAINING = """func.func @main(%x: tensor<6x4x5xf32>, %s: tensor<4xf32>, %o: tensor<4xf32>)
    -> (tensor<6x4x5xf32>, tensor<4xf32>, tensor<4xf32>) {
  %r:3 = "stablehlo.batch_norm_training"(%x, %s, %o) <{epsilon = 0.001 : f32, feature_index = 1 : i64}>
      : (tensor<6x4x5xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<6x4x5xf32>, tensor<4xf32>, tensor<4xf32>)
  return %r#0, %r#1, %r#2 : tensor<6x4x5xf32>, tensor<4xf32>, tensor<4xf32>
}"""
GRADIENT = """func.func @main(%x: tensor<6x4xf32>, %s: tensor<4xf32>, %m: tensor<4xf32>, %v: tensor<4xf32>, %g: tensor<6x4xf32>)
    -> (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %r:3 = "stablehlo.batch_norm_grad"(%x, %s, %m, %v, %g) <{epsilon = 0.001 : f32, feature_index = 1 : i64}>
      : (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<6x4xf32>)
      -> (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>)
  return %r#0, %r#1, %r#2 : tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>
}"""


@pytest.mark.parametrize("text", [MAP, BARRIER, COMPOSITE, EINSUM, TRAINING, GRADIENT])
def test_runs_in_kernels_and_agrees(text: str) -> None:
    module = hlo.parse(text)
    hlo.verify(module)
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(0.5, 2, a.tensor.static_shape).astype(np.float32) for a in module.entry.arguments]
    executable = codegen.compile(module)
    assert executable.fallbacks == []
    for found, wanted in zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def _scan(shape: tuple[int, ...], dimension: int, reverse: bool) -> str:
    row = "x".join(str(n) for n in (*(n for k, n in enumerate(shape) if k != dimension), "f32"))
    whole = "x".join(map(str, shape)) + "xf32"
    return f"""func.func @main(%x: tensor<{whole}>, %c: tensor<{row}>) -> (tensor<{whole}>, tensor<{row}>) {{
      %t = stablehlo.tanh %x : tensor<{whole}>
      %o, %e = "chlo.scan"(%t, %c) ({{
      ^bb0(%v: tensor<{row}>, %a: tensor<{row}>):
        %s = stablehlo.add %v, %a : tensor<{row}>
        %m = stablehlo.multiply %s, %a : tensor<{row}>
        stablehlo.return %m, %s : tensor<{row}>, tensor<{row}>
      }}) {{dimension = {dimension} : i64, is_reverse = {str(reverse).lower()}, operandSegmentSizes = array<i32: 1, 1>,
          resultSegmentSizes = array<i32: 1, 1>}} : (tensor<{whole}>, tensor<{row}>) -> (tensor<{whole}>, tensor<{row}>)
      %y = stablehlo.negate %o : tensor<{whole}>
      return %y, %e : tensor<{whole}>, tensor<{row}>
    }}"""


@pytest.mark.parametrize(("shape", "dimension", "reverse"), [((5, 4), 0, False), ((3, 6, 2), 1, True), ((7,), 0, True)])
def test_scans_are_loops_of_kernels(shape: tuple[int, ...], dimension: int, reverse: bool) -> None:
    """Every call starts with the carry that it is given, and writes all rows of the outputs."""
    rng = np.random.default_rng(0)
    module = hlo.parse(_scan(shape, dimension, reverse))
    x = rng.normal(size=shape).astype(np.float32)
    c = rng.normal(size=[n for k, n in enumerate(shape) if k != dimension]).astype(np.float32)
    executable = codegen.compile(module)
    assert executable.fallbacks == []
    for _ in range(3):
        for found, expected in zip(executable(x, c), interp.evaluate(module, x, c), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
