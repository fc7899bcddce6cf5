"""What random programs and situations have found, each as a small program by name."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp

CUT_AWAY = {
    "convolution": """func.func @main(%x: tensor<3x1x3x2xi32>, %k: tensor<5x4x2x8xi32>) -> tensor<3x0x0x8xi32> {
      %v = "stablehlo.convolution"(%x, %k) {window_strides = array<i64: 3, 3>, lhs_dilation = array<i64: 1, 1>,
        rhs_dilation = array<i64: 1, 2>, padding = dense<[[-1, -1], [0, 1]]> : tensor<2x2xi64>,
        dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64,
        batch_group_count = 1 : i64} : (tensor<3x1x3x2xi32>, tensor<5x4x2x8xi32>) -> tensor<3x0x0x8xi32>
      return %v : tensor<3x0x0x8xi32>
    }""",
    "reduce_window": """func.func @main(%x: tensor<1x3xi32>, %z: tensor<i32>) -> tensor<0x2xi32> {
      %v = "stablehlo.reduce_window"(%x, %z) ({ ^bb0(%p: tensor<i32>, %q: tensor<i32>):
        %s = stablehlo.add %p, %q : tensor<i32>
        stablehlo.return %s : tensor<i32>
      }) {window_dimensions = array<i64: 1, 2>, padding = dense<[[-1, -1], [0, 0]]> : tensor<2x2xi64>}
        : (tensor<1x3xi32>, tensor<i32>) -> tensor<0x2xi32>
      return %v : tensor<0x2xi32>
    }""",
}


@pytest.mark.parametrize("name", CUT_AWAY)
def test_windows_over_a_dimension_of_which_more_is_cut_off_than_there_is(name: str) -> None:
    """Padding of -1 on both sides of one element: there is no window. The evaluator raised "negative dimensions"."""
    module = hlo.parse(CUT_AWAY[name])
    hlo.verify(module)
    arrays = [np.ones(v.shape, np.int32) for v in module.entry.arguments]
    (wanted,) = interp.evaluate(module, *arrays)
    (found,) = codegen.compile(module)(*arrays)
    assert wanted.shape == found.shape == module.entry.result_types[0].shape  # type: ignore[union-attr]
