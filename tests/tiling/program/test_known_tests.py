"""Tests on indices that the program itself answers: they are gone from plans, and what they hid is known."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.module import Op
from indexing.deriving.derive import reads_of
from indexing.deriving.runtime import known_element
from indexing.expr import Interval, Var

WRAPPED = """func.func @main(%x: tensor<24xf32>) -> tensor<20xf32> {{
  %i = stablehlo.iota dim = 0 : tensor<20x{type}>
  %o = stablehlo.constant dense<{offset}> : tensor<20x{type}>
  %j = stablehlo.add %i, %o : tensor<20x{type}>
  %z = stablehlo.constant dense<0> : tensor<20x{type}>
  %n = stablehlo.constant dense<24> : tensor<20x{type}>
  %p = stablehlo.compare LT, %j, %z : (tensor<20x{type}>, tensor<20x{type}>) -> tensor<20xi1>
  %w = stablehlo.add %j, %n : tensor<20x{type}>
  %s = stablehlo.select %p, %w, %j : tensor<20xi1>, tensor<20x{type}>
  %c = stablehlo.reshape %s : (tensor<20x{type}>) -> tensor<20x1x{type}>
  %g = "stablehlo.gather"(%x, %c) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
      index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1>}}>
      : (tensor<24xf32>, tensor<20x1x{type}>) -> tensor<20xf32>
  return %g : tensor<20xf32>
}}"""


def names(module: hlo.Module) -> set[str]:
    return {op.name.removeprefix("stablehlo.") for op in tiling.plan(module).program.ops}


@pytest.mark.parametrize(("type", "offset", "known"), [
    ("i32", 0, True), ("i64", 4, True), ("i32", -1, False), ("i32", -20, True), ("i8", 100, True), ("i8", 120, False),
    ("ui8", 0, True), ("ui8", 250, False),
])  # fmt: skip
def test_an_index_that_cannot_be_negative_is_not_wrapped(type: str, offset: int, known: bool) -> None:
    module = hlo.parse(WRAPPED.format(type=type, offset=offset))
    assert ("select" not in names(module)) is known
    x = np.arange(24, dtype=np.float32)
    (found,), (expected,) = codegen.compile(module)(x), interp.evaluate(module, x)
    np.testing.assert_array_equal(found, expected)


# Positions by (batch, row) as arrays of indices, and a mask of documents that starts from consecutive positions: what
# transformers' masks are once they are lowered.
MASK = """func.func @main(%x: tensor<12x12xf32>) -> tensor<12x12xf32> {
  %i = stablehlo.iota dim = 1 : tensor<1x12xi32>
  %f = stablehlo.slice %i [0:1, 0:1] : (tensor<1x12xi32>) -> tensor<1x1xi32>
  %one = stablehlo.constant dense<1> : tensor<1x1xi32>
  %b = stablehlo.subtract %f, %one : tensor<1x1xi32>
  %c = stablehlo.concatenate %b, %i, dim = 1 : (tensor<1x1xi32>, tensor<1x12xi32>) -> tensor<1x13xi32>
  %l = stablehlo.slice %c [0:1, 0:12] : (tensor<1x13xi32>) -> tensor<1x12xi32>
  %h = stablehlo.slice %c [0:1, 1:13] : (tensor<1x13xi32>) -> tensor<1x12xi32>
  %d = stablehlo.subtract %h, %l : tensor<1x12xi32>
  %ones = stablehlo.constant dense<1> : tensor<1x12xi32>
  %new = stablehlo.compare NE, %d, %ones : (tensor<1x12xi32>, tensor<1x12xi32>) -> tensor<1x12xi1>
  %ni = stablehlo.convert %new : (tensor<1x12xi1>) -> tensor<1x12xi32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %doc = "stablehlo.reduce_window"(%ni, %zero) <{window_dimensions = array<i64: 1, 12>,
      padding = dense<[[0, 0], [11, 0]]> : tensor<2x2xi64>}> ({
    ^bb0(%p: tensor<i32>, %q: tensor<i32>):
      %s = stablehlo.add %p, %q : tensor<i32>
      stablehlo.return %s : tensor<i32>
    }) : (tensor<1x12xi32>, tensor<i32>) -> tensor<1x12xi32>
  %row = stablehlo.iota dim = 0 : tensor<12x12xi32>
  %column = stablehlo.iota dim = 1 : tensor<12x12xi32>
  %low = stablehlo.constant dense<0> : tensor<12x12xi32>
  %r1 = stablehlo.reshape %row : (tensor<12x12xi32>) -> tensor<12x12x1xi32>
  %c1 = stablehlo.reshape %column : (tensor<12x12xi32>) -> tensor<12x12x1xi32>
  %z1 = stablehlo.reshape %low : (tensor<12x12xi32>) -> tensor<12x12x1xi32>
  %ri = stablehlo.concatenate %z1, %r1, dim = 2 : (tensor<12x12x1xi32>, tensor<12x12x1xi32>) -> tensor<12x12x2xi32>
  %ci = stablehlo.concatenate %z1, %c1, dim = 2 : (tensor<12x12x1xi32>, tensor<12x12x1xi32>) -> tensor<12x12x2xi32>
  %dr = "stablehlo.gather"(%doc, %ri) AT_PAIRS
      : (tensor<1x12xi32>, tensor<12x12x2xi32>) -> tensor<12x12xi32>
  %dc = "stablehlo.gather"(%doc, %ci) AT_PAIRS
      : (tensor<1x12xi32>, tensor<12x12x2xi32>) -> tensor<12x12xi32>
  %same = stablehlo.compare EQ, %dr, %dc : (tensor<12x12xi32>, tensor<12x12xi32>) -> tensor<12x12xi1>
  %pr = "stablehlo.gather"(%i, %ri) AT_PAIRS
      : (tensor<1x12xi32>, tensor<12x12x2xi32>) -> tensor<12x12xi32>
  %pc = "stablehlo.gather"(%i, %ci) AT_PAIRS
      : (tensor<1x12xi32>, tensor<12x12x2xi32>) -> tensor<12x12xi32>
  %causal = stablehlo.compare LE, %pc, %pr : (tensor<12x12xi32>, tensor<12x12xi32>) -> tensor<12x12xi1>
  %m = stablehlo.and %same, %causal : tensor<12x12xi1>
  %no = stablehlo.constant dense<-1.0> : tensor<12x12xf32>
  %y = stablehlo.select %m, %x, %no : tensor<12x12xi1>, tensor<12x12xf32>
  return %y : tensor<12x12xf32>
}""".replace("AT_PAIRS", """<{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1],
      index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1>}>""")


def test_a_mask_over_documents_of_consecutive_positions_is_a_condition_on_indices() -> None:
    module = hlo.parse(MASK)
    plan = tiling.plan(module)
    assert {op.name for op in plan.program.ops}.isdisjoint({"stablehlo.reduce_window", "stablehlo.and"})
    (fusion,) = plan.fusions
    text = str(fusion.schedule)
    assert "rt" not in text  # nothing is read at a place that only the running program knows
    assert tiling.prove(fusion).holds
    x = np.random.default_rng(0).standard_normal((12, 12)).astype(np.float32)
    (found,), (expected,) = codegen.compile(plan)(x), interp.evaluate(module, x)
    np.testing.assert_array_equal(found, expected)


JOINED = """func.func @main() -> tensor<9xi32> {{
  %i = stablehlo.iota dim = 0 : tensor<8xi32>
  %c = stablehlo.constant dense<{first}> : tensor<1xi32>
  %r = stablehlo.concatenate {order}, dim = 0 : (tensor<{a}xi32>, tensor<{b}xi32>) -> tensor<9xi32>
  return %r : tensor<9xi32>
}}"""


def joined(first: int, order: str, a: int, b: int) -> Op:
    return hlo.parse(JOINED.format(first=first, order=order, a=a, b=b)).entry.body.ops[-2]


@pytest.mark.parametrize(("first", "order", "expected"), [
    (-1, "%c, %i", "d - 1"), (0, "%c, %i", "None"), (8, "%i, %c", "d"), (7, "%i, %c", "None"),
])  # fmt: skip
def test_parts_that_go_on_from_each_other_are_one_expression(first: int, order: str, expected: str) -> None:
    op = joined(first, order, *((1, 8) if order.startswith("%c") else (8, 1)))
    d = Var("d")
    assert str(known_element(op.results[0], (d,), {d: Interval(0, 8)}, reads_of)) == expected


def test_the_part_that_is_read_alone_counts() -> None:
    op, d = joined(5, "%c, %i", 1, 8), Var("d")
    assert str(known_element(op.results[0], (d + 1,), {d: Interval(0, 7)}, reads_of)) == "d"


SUMS = """func.func @main(%x: tensor<6xi32>) -> tensor<6xi32> {{
  %z = stablehlo.constant dense<{term}> : tensor<6x4xi32>
  %i = stablehlo.constant dense<{init}> : tensor<i32>
  %s = stablehlo.reduce(%z init: %i) applies stablehlo.{body} across dimensions = [1]
      : (tensor<6x4xi32>, tensor<i32>) -> tensor<6xi32>
  %y = stablehlo.add %x, %s : tensor<6xi32>
  return %y : tensor<6xi32>
}}"""


@pytest.mark.parametrize(("term", "init", "body", "gone"), [
    (0, 0, "add", True), (0, 1, "add", False), (1, 0, "add", False), (3, 3, "maximum", True), (3, 1, "maximum", False),
    (3, 3, "and", True), (1, 1, "multiply", False),
])  # fmt: skip
def test_folds_over_what_they_begin_with_are_known(term: int, init: int, body: str, gone: bool) -> None:
    module = hlo.parse(SUMS.format(term=term, init=init, body=body))
    assert ("reduce" not in names(module)) is gone
    x = np.arange(6, dtype=np.int32)
    (found,), (expected,) = codegen.compile(module)(x), interp.evaluate(module, x)
    np.testing.assert_array_equal(found, expected)


LOGIC = """func.func @main(%p: tensor<5xi1>) -> tensor<5xi1> {{
  %t = stablehlo.constant dense<{known}> : tensor<5xi1>
  %r = stablehlo.{op} {order} : tensor<5xi1>
  return %r : tensor<5xi1>
}}"""


@pytest.mark.parametrize("known", ["true", "false"])
@pytest.mark.parametrize("op", ["and", "or", "xor"])
@pytest.mark.parametrize("order", ["%p, %t", "%t, %p", "%t, %t"])
def test_logic_with_what_is_known(known: str, op: str, order: str) -> None:
    module = hlo.parse(LOGIC.format(known=known, op=op, order=order))
    p = np.array([True, False, True, True, False])
    (found,), (expected,) = codegen.compile(module)(p), interp.evaluate(module, p)
    np.testing.assert_array_equal(found, expected)


CHOSEN = """func.func @main(%p: tensor<5xi1>, %x: tensor<5xi32>, %y: tensor<5xi32>) -> tensor<5xi32> {{
  %f = stablehlo.constant dense<{known}> : tensor<5xi1>
  %q = stablehlo.compare {direction}, {order} : (tensor<5xi1>, tensor<5xi1>) -> tensor<5xi1>
  %a = stablehlo.negate %x : tensor<5xi32>
  %b = stablehlo.negate {other} : tensor<5xi32>
  %s = stablehlo.select %q, %a, %b : tensor<5xi1>, tensor<5xi32>
  return %s : tensor<5xi32>
}}"""


def chosen(direction: str = "NE", known: str = "false", order: str = "%p, %f", other: str = "%y") -> set[str]:
    module = hlo.parse(CHOSEN.format(direction=direction, known=known, order=order, other=other))
    given = np.array([True, False, True, True, False]), np.arange(5, dtype=np.int32), np.arange(5, dtype=np.int32) + 7
    (found,), (expected,) = codegen.compile(module)(*given), interp.evaluate(module, *given)
    np.testing.assert_array_equal(found, expected)
    return names(module)


def test_a_choice_between_equal_values_is_none() -> None:
    """The branches of a `cond` under `vmap` often agree, in part: a fold was computed of a choice, its test and a copy."""
    assert chosen(other="%x") == {"negate"}
    assert "select" in chosen(other="%y")


@pytest.mark.parametrize("order", ["%p, %f", "%f, %p"])
@pytest.mark.parametrize(("direction", "known"), [("NE", "false"), ("EQ", "true"), ("NE", "true"), ("EQ", "false")])
def test_a_boolean_is_not_asked_for_again(direction: str, known: str, order: str) -> None:
    """`jnp.remainder` compares the signs of its operands, of which one is known as a rule."""
    assert ("compare" not in chosen(direction, known, order)) is ((direction == "NE") is (known == "false"))
