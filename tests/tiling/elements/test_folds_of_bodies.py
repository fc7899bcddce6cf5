"""By which function a body folds: all of it, or one of its results."""

from __future__ import annotations

import hlo
from hlo.module import Block
from tiling.elements.folds import combined_function, combined_function_of, has_own_body

SUM_AND_PRODUCT = """func.func @main(%x: tensor<5xf32>, %y: tensor<5xf32>) -> (tensor<f32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %r:2 = stablehlo.reduce(%x init: %zero), (%y init: %one) across dimensions = [0]
    : (tensor<5xf32>, tensor<5xf32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    reducer(%a: tensor<f32>, %c: tensor<f32>) (%b: tensor<f32>, %d: tensor<f32>) {
      %0 = stablehlo.add %a, %c : tensor<f32>
      %1 = stablehlo.multiply %b, %d : tensor<f32>
      stablehlo.return %0, %1 : tensor<f32>, tensor<f32>
    }
  return %r#0, %r#1 : tensor<f32>, tensor<f32> }"""


def test_a_body_of_several_results_has_no_one_function() -> None:
    """Kernels folded both results by the first one's function, when asking for each result answered for all."""
    op = hlo.parse(SUM_AND_PRODUCT).root
    body: Block = op.regions[0]
    assert combined_function(body) is None
    assert has_own_body(op)
    assert [combined_function_of(body, k) for k in range(2)] == ["add", "multiply"]
