"""Compiled programs whose arguments have sizes that only a call tells: one op of each kind, against the evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

import codegen
import hlo
import interp

ADDED = """({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %t = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %t : tensor<f32>
  })"""
GATHERED = """"stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
  index_vector_dim = 1>, slice_sizes = array<i64: 1>} : (tensor<?xf32>, tensor<3x1xi32>) -> tensor<3xf32>"""


@dataclass(frozen=True)
class Case:
    """A function of ``%x`` and more arguments: their types, its result's, its ops, and the other arguments."""

    more: str
    result: str
    body: str
    given: Sequence[np.ndarray]


PLACES = np.array([[0], [4], [2]], np.int32)
ONES = np.ones(3, np.float32)
CASES = {
    "gather": Case(", %i: tensor<3x1xi32>", "3", f"%r = {GATHERED}", [PLACES]),
    "running sum of a gather": Case(
        ", %i: tensor<3x1xi32>", "3",
        f"""%g = {GATHERED}
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce_window"(%g, %c) <{{window_dimensions = array<i64: 3>, padding = dense<[[2, 0]]> : tensor<1x2xi64>}}>
    {ADDED} : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>""",
        [PLACES],
    ),
    "dynamic_slice": Case(
        ", %i: tensor<i32>", "3",
        "%r = stablehlo.dynamic_slice %x, %i, sizes = [3] : (tensor<?xf32>, tensor<i32>) -> tensor<3xf32>",
        [np.array(1, np.int32)],
    ),
    "slice": Case("", "2", "%r = stablehlo.slice %x [1:3] : (tensor<?xf32>) -> tensor<2xf32>", []),
    "scatter": Case(
        ", %i: tensor<3x1xi32>, %u: tensor<3xf32>", "?",
        f"""%r = "stablehlo.scatter"(%x, %i, %u) {ADDED} {{scatter_dimension_numbers =
    #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}
    : (tensor<?xf32>, tensor<3x1xi32>, tensor<3xf32>) -> tensor<?xf32>""",
        [PLACES, ONES],
    ),
    "reduce": Case(
        "", "",
        """%c = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [0]
    : (tensor<?xf32>, tensor<f32>) -> tensor<f32>""",
        [],
    ),
    "dot_general of a known size": Case(
        ", %y: tensor<?x2xf32>", "2",
        "%r = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0] : (tensor<?xf32>, tensor<?x2xf32>) -> tensor<2xf32>",
        [np.arange(10, dtype=np.float32).reshape(5, 2)],
    ),
    "concatenate": Case(
        "", "?", "%r = stablehlo.concatenate %x, %x, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>", []
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_sizes_come_with_the_call(case: Case) -> None:
    result = f"tensor<{case.result}xf32>" if case.result else "tensor<f32>"
    module = hlo.parse(f"func.func @main(%x: tensor<?xf32>{case.more}) -> {result} {{\n  {case.body}\n  return %r : {result}\n}}")
    given = (np.arange(5, dtype=np.float32), *case.given)
    (found,), (wanted,) = codegen.compile(module)(*given), interp.evaluate(module, *given)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape and found.tolist() == wanted.tolist()
