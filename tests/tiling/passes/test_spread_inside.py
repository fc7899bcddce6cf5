"""Loops that are given one element everywhere are given that element; results are those of the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.registry import Structure
from tiling.machine import Machine

MACHINE = Machine(cores=2, vector_bytes=32, vector_registers=16)


def loop(given: str, before: str = "", step: str = "%c = stablehlo.add %a, %b : tensor<6x5xf32>", last: str = "%b") -> str:
    """Three turns of `step`, from %a and %b to %c; %b starts as `given` and becomes `last`."""
    return f"""func.func @main(%x: tensor<6x5xf32>, %s: tensor<f32>, %v: tensor<5xf32>) -> (tensor<6x5xf32>, tensor<6x5xf32>) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %most = stablehlo.constant dense<3> : tensor<i32>
  {before}
  %n, %i, %y, %z = stablehlo.while(%m = %most, %k = %zero, %a = %x, %b = {given})
    : tensor<i32>, tensor<i32>, tensor<6x5xf32>, tensor<6x5xf32>
  cond {{
    %go = stablehlo.compare LT, %k, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    {step}
    %next = stablehlo.add %k, %one : tensor<i32>
    stablehlo.return %m, %next, %c, {last} : tensor<i32>, tensor<i32>, tensor<6x5xf32>, tensor<6x5xf32>
  }}
  return %y, %z : tensor<6x5xf32>, tensor<6x5xf32>
}}"""


SPREAD = "%w = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<6x5xf32>"
COMPUTED = """%w0 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<5x6xf32>
  %w1 = stablehlo.constant dense<2.0> : tensor<5x6xf32>
  %w2 = stablehlo.multiply %w0, %w1 : tensor<5x6xf32>
  %w3 = stablehlo.compare LT, %w2, %w1 : (tensor<5x6xf32>, tensor<5x6xf32>) -> tensor<5x6xi1>
  %w4 = stablehlo.select %w3, %w2, %w0 : tensor<5x6xi1>, tensor<5x6xf32>
  %w = stablehlo.transpose %w4, dims = [1, 0] : (tensor<5x6xf32>) -> tensor<6x5xf32>"""
ROWS = "%w = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<5xf32>) -> tensor<6x5xf32>"
EXCHANGED = "%c = stablehlo.subtract %b, %a : tensor<6x5xf32>"
INNER = """%j, %c = stablehlo.while(%p = %zero, %q = %a) : tensor<i32>, tensor<6x5xf32>
    cond {
      %on = stablehlo.compare LT, %p, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %on : tensor<i1>
    } do {
      %r = stablehlo.multiply %q, %b : tensor<6x5xf32>
      %up = stablehlo.add %p, %one : tensor<i32>
      stablehlo.return %up, %r : tensor<i32>, tensor<6x5xf32>
    }"""
CASES = {
    "spread": (loop("%w", SPREAD), True),
    "computed of spread": (loop("%w", COMPUTED), True),
    "a constant": (loop("%w", "%w = stablehlo.constant dense<0.5> : tensor<6x5xf32>"), True),
    "read in a loop inside": (loop("%w", SPREAD, INNER), True),
    "rows differ": (loop("%w", ROWS), False),
    "an argument": (loop("%x"), False),
    "it changes": (loop("%w", SPREAD, EXCHANGED, "%c"), False),
    "it becomes another": (loop("%w", SPREAD, EXCHANGED, "%a"), False),
}


@pytest.mark.parametrize("name", CASES)
def test_the_element_is_given(name: str) -> None:
    text, is_scalar = CASES[name]
    module = hlo.parse(text)
    hlo.verify(module)
    plan = tiling.plan(module, machine=MACHINE, supports=codegen.supports)
    (op,) = [op for op in plan.program.ops if op.definition.structure is Structure.LOOP]
    assert (op.operands[3].rank == 0) is is_scalar
    assert [a.type for r in op.regions for a in r.arguments] == [v.type for _ in op.regions for v in op.operands]
    given = inputs()
    for found, wanted in zip(codegen.compile(plan)(*given), interp.evaluate(module, *given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def inputs() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.standard_normal(shape).astype(np.float32) for shape in ((6, 5), (), (5,))]


def test_a_loop_whose_limit_is_given_as_a_constant_is_counted() -> None:
    """Constants are made again inside: the limit, which the loop hands on, is known there."""
    plan = tiling.plan(hlo.parse(CASES["rows differ"][0]), machine=MACHINE, supports=codegen.supports)
    assert [s.trips for s in plan.steps if isinstance(s, tiling.ControlStep)] == [3]
