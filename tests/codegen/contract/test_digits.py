"""Indices that a reshape takes from one tile number: by enumeration, and what attention with grouped keys makes of it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import codegen
import hlo
import interp
from indexing.expr import Const, Expr, Interval, Var, as_expr, evaluate
from tests.codegen.contract.test_contractions import arrays_for
from tiling.contract.digits import number_of, weights_of_digits
from tiling.loops.ir import Scope

T = Var("t")


@pytest.mark.parametrize(
    ("index", "shape", "extent", "is_whole"),
    [
        ([T // 4, T % 4], [3, 4], 12, True),
        ([T % 4, T // 4], [4, 3], 12, True),
        ([T // 20, (T // 4) % 5, T % 4], [3, 5, 4], 60, True),
        ([T // 20, (T % 20) // 4, T % 4], [3, 5, 4], 60, True),
        ([T // 4, Const(0), T % 4], [3, 1, 4], 12, True),
        ([T // 20, T % 4], [3, 4], 60, False),  # a digit in between is nobody's
        ([T // 4, (T // 2) % 2], [3, 2], 12, False),  # the lowest one is
        ([T // 4, T % 4], [3, 4], 11, False),  # the last number is no choice of digits
        ([T // 4, T % 3], [3, 3], 12, False),
        ([(T % 6) // 4, T % 4], [2, 4], 8, False),  # 6 has the digits of 0
        ([as_expr(T)], [12], 12, False),
    ],
)
def test_a_number_is_one_choice_of_its_digits(index: list[Expr], shape: list[int], extent: int, is_whole: bool) -> None:
    weights = weights_of_digits(index, shape, {T: Interval(0, extent - 1)})
    assert (T in weights) == is_whole
    if is_whole:
        for place in product(*map(range, shape)):
            number = evaluate(number_of(weights[T], {k: Const(x) for k, x in enumerate(place)}), {})
            assert tuple(evaluate(as_expr(e), {T: number}) for e in index) == place


GROUPED = """
func.func @main(%q: tensor<1x8x96x64xf32>, %k: tensor<1x2x96x64xf32>, %v: tensor<1x2x96x64xf32>) -> tensor<1x8x96x64xf32> {
  %0 = stablehlo.reshape %q : (tensor<1x8x96x64xf32>) -> tensor<1x2x4x96x64xf32>
  %1 = stablehlo.dot_general %0, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [4] x [3]
    : (tensor<1x2x4x96x64xf32>, tensor<1x2x96x64xf32>) -> tensor<1x2x4x96x96xf32>
  %2 = stablehlo.tanh %1 : tensor<1x2x4x96x96xf32>
  %3 = stablehlo.dot_general %2, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [4] x [2]
    : (tensor<1x2x4x96x96xf32>, tensor<1x2x96x64xf32>) -> tensor<1x2x4x96x64xf32>
  %4 = stablehlo.reshape %3 : (tensor<1x2x4x96x64xf32>) -> tensor<1x8x96x64xf32>
  return %4 : tensor<1x8x96x64xf32>
}
"""


@pytest.mark.machine("avx512")
def test_heads_that_share_keys_read_one_copy_of_them() -> None:
    """The keys of four heads were packed by each task again, or the scores stored: a head's group was no index of a copy."""
    module = hlo.parse(GROUPED)
    executable = codegen.compile(module)
    (fusion,) = executable.plan.fusions
    shared = [b.shape for b in fusion.schedule.buffers if b.scope is Scope.SHARED]
    assert [shape[0] for shape in shared] == [2], "of two groups, not of eight heads"
    arrays = arrays_for(module, 3)
    (own,), (wanted,) = executable(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_allclose(own, wanted, rtol=2e-5, atol=2e-5)
