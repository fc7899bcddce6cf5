"""Products that are only read transposed: by the swapped factors, whole or so that rows are read as rows."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling

TEXT = """func.func @main(%w: tensor<6x{n}x8xf32>, %x: tensor<{b}x6x8xf32>) -> tensor<{result}xf32> {{
  %p = stablehlo.dot_general %w, %x, batching_dims = [0] x [1], contracting_dims = [2] x [2]
    : (tensor<6x{n}x8xf32>, tensor<{b}x6x8xf32>) -> tensor<6x{n}x{b}xf32>
  %t = stablehlo.transpose %p, dims = {order} : (tensor<6x{n}x{b}xf32>) -> tensor<{result}xf32>
  return %t : tensor<{result}xf32>
}}"""


def planned(n: int, b: int, order: tuple[int, ...]) -> list[hlo.Op]:
    """The program's ops; its kernels give what the evaluator gives."""
    sizes = (6, n, b)
    result = "x".join(str(sizes[k]) for k in order)
    module = hlo.parse(TEXT.format(n=n, b=b, order=list(order), result=result))
    rng = np.random.default_rng(2)
    given = [rng.standard_normal(v.shape, np.float32) for v in module.function().arguments]
    for a, c in zip(codegen.compile(module)(*given), interp.evaluate(module, *given), strict=True):
        np.testing.assert_allclose(a, c, rtol=1e-5, atol=1e-5)
    return [op for op in tiling.plan(module, supports=codegen.supports).program.ops if op.operands]


def test_swapped_dimensions_are_swapped_factors() -> None:
    (product,) = planned(24, 10, (0, 2, 1))
    assert product.name == "stablehlo.dot_general" and product.results[0].shape == (6, 10, 24)


def test_rows_of_the_left_factor_stay_rows() -> None:
    """Capsules' predictions lie batch last as a product and are read batch first: each element read was a line of memory."""
    product, turn = planned(24, 10, (2, 0, 1))
    assert product.results[0].shape == (6, 10, 24) and turn.attr("permutation") == (1, 0, 2)


@pytest.mark.parametrize(("n", "b", "order"), [(24, 10, (1, 0, 2)), (4, 10, (2, 0, 1)), (8, 40, (2, 0, 1))])
def test_others_stay_as_they_are(n: int, b: int, order: tuple[int, ...]) -> None:
    """Rows that are rows already, rows too short to be worth it, and a product that would have few columns."""
    assert planned(n, b, order)[0].results[0].shape == (6, n, b)
