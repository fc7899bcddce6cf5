"""Edited plans: what a person changes is what is compiled, and stays right."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling

pytestmark = pytest.mark.machine("avx512")

COLUMN_SUM = """
func.func @main(%x: tensor<48x40x32xf32>) -> tensor<40x32xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [0] : (tensor<48x40x32xf32>, tensor<f32>) -> tensor<40x32xf32>
  return %0 : tensor<40x32xf32>
}"""  # noqa: E501


def loop_lines(source: str) -> list[str]:
    return [x.split()[1] for x in source.splitlines() if x.strip().startswith("for ") and " range(begin" not in x]


@pytest.mark.parametrize("order", list(itertools.permutations(("i0", "i1", "r0"))))
def test_every_order_is_kept_and_right(order: tuple[str, ...]) -> None:
    module = hlo.parse(COLUMN_SUM)
    number = [op.name for op in tiling.plan(module).program.ops].index("stablehlo.reduce")
    plan = tiling.plan(module, pins=[tiling.Pin((number,), (40, 32))])
    edited = tiling.with_loop_order(plan, "reduce_1", order)
    executable = codegen.compile(edited)
    (kernel,) = executable.kernels
    # A reduction outside of a parallel loop sets the results to their initial values first, in loops before the nest's own.
    last = list(dict.fromkeys(reversed(loop_lines(kernel.source))))[::-1]
    assert last[-3:] == list(order)
    x = np.random.default_rng(0).standard_normal((48, 40, 32)).astype(np.float32)
    np.testing.assert_allclose(executable(x)[0], interp.evaluate(module, x)[0], rtol=1e-5, atol=1e-5)


def test_orders_that_are_none() -> None:
    plan = tiling.plan(hlo.parse(COLUMN_SUM))
    with pytest.raises(ValueError, match="expected an order of the loops"):
        tiling.with_loop_order(plan, "reduce_1", ("i0",))
    with pytest.raises(KeyError, match="no nest computes"):
        tiling.with_loop_order(plan, "nothing", ("i0",))
    with pytest.raises(KeyError, match="no fusion"):
        tiling.with_schedule(plan, "nothing", plan.fusions[0].schedule)
