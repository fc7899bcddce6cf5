"""Places at multiples: the same element wherever the condition holds, and one load for both ways of a choice."""

from __future__ import annotations

import random

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.access import Condition
from hlo.types import element_type
from indexing.expr import Var, substitute
from tiling.elements.multiples import at_multiples
from tiling.loops.element_ir import IndexNode

ROW, COLUMN = Var("i"), Var("j")


@pytest.mark.parametrize("seed", range(200))
def test_places_are_the_same_where_the_condition_holds(seed: int) -> None:
    """Every i of [-20, 20] beside a j, for quotients and remainders of expressions some elements apart."""
    pick = random.Random(seed).randint
    divisor, other, left = pick(2, 5), pick(2, 5), pick(0, 4)
    whole = ROW * pick(1, 2) + COLUMN * pick(0, 1) + pick(-7, 7)
    over = whole + pick(-9, 9) if pick(0, 3) else ROW * 2 + pick(-9, 9)
    place = (over // divisor) * (divisor * pick(1, 2)) + COLUMN * 3 + (whole // other) * pick(1, 6)
    condition = Condition(whole % divisor, left % divisor, left % divisor)
    node = IndexNode(place, element_type("i32"))
    made = at_multiples(node, [condition])
    assert isinstance(made, IndexNode)
    for i in range(-20, 21):
        at = {ROW: i, COLUMN: pick(-5, 5)}
        if substitute(condition.expression, at).constant == condition.lower:
            assert substitute(made.expression, at).constant == substitute(place, at).constant


def test_quotients_of_what_the_condition_is_about_are_gone() -> None:
    node = IndexNode(((ROW + 5) // 3) * 6 + COLUMN, element_type("i32"))
    made = at_multiples(node, [Condition((ROW + 1) % 3, 2, 2)])
    assert isinstance(made, IndexNode)
    assert str(made.expression) == str(ROW * 2 + 10 + COLUMN)


def test_conditions_on_ranges_change_nothing() -> None:
    node = IndexNode((ROW // 3) * 3, element_type("i32"))
    for lower, upper in ((0, 1), (1, 2)):
        assert at_multiples(node, [Condition(ROW % 3, lower, upper)]) is node
    assert at_multiples(node, [Condition(ROW, 3, 3)]) is node


UPDATED = """func.func @main(%x: tensor<2x999xf16>, %i: tensor<2x999xi32>) -> tensor<2x999xf16> {
  %g = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0],
    start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>}>
    : (tensor<2x999xf16>, tensor<2x999xi32>) -> tensor<2x999xf16>
  %s = stablehlo.slice %g [0:2, 0:999:3] : (tensor<2x999xf16>) -> tensor<2x333xf16>
  %c = stablehlo.constant dense<3.0> : tensor<2x333xf16>
  %u = stablehlo.add %s, %c : tensor<2x333xf16>
  %z = stablehlo.constant dense<0.0> : tensor<f16>
  %p = stablehlo.pad %u, %z, low = [0, 0], high = [0, 2], interior = [0, 2]
    : (tensor<2x333xf16>, tensor<f16>) -> tensor<2x999xf16>
  %t = stablehlo.constant dense<true> : tensor<2x333xi1>
  %f = stablehlo.constant dense<false> : tensor<i1>
  %m = stablehlo.pad %t, %f, low = [0, 0], high = [0, 2], interior = [0, 2]
    : (tensor<2x333xi1>, tensor<i1>) -> tensor<2x999xi1>
  %r = stablehlo.select %m, %p, %g : tensor<2x999xi1>, tensor<2x999xf16>
  return %r : tensor<2x999xf16> }"""


def test_an_update_of_every_third_element_looks_up_one() -> None:
    """x[i].at[::3].add(3): the updated element was looked up once more, at 3 * (i // 3). That took thirteen times as long."""
    module = hlo.parse(UPDATED)
    executable = codegen.compile(module)
    assert "//" not in executable.source
    rng = np.random.default_rng(0)
    x, i = rng.normal(size=(2, 999)).astype(np.float16), rng.integers(-9, 1009, (2, 999)).astype(np.int32)
    np.testing.assert_array_equal(executable(x, i)[0], interp.evaluate(module, x, i)[0])
    assert tiling.prove(executable.plan).refuted == ()
