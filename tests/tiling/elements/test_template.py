"""A pattern of elements, used at a place, is what is built there op by op."""

from __future__ import annotations

import random

import pytest

import hlo
from hlo.module import Value
from indexing.deriving.edges import EdgeMaps
from indexing.expr import Const, Expr, Interval, Var
from tiling.elements.build import ElementBuilder
from tiling.elements.template import template_of
from tiling.loops.element_ir import Choose, Load, Node, all_nodes
from tiling.loops.text import show_node
from tiling.proving.contents.same_expression import same_expression

CONCATENATION = """
func.func @main(%a: tensor<3x8xf32>, %b: tensor<4x8xf32>, %c: tensor<5x8xf32>) -> tensor<12x8xf32> {
  %s = stablehlo.add %b, %b : tensor<4x8xf32>
  %y = stablehlo.concatenate %a, %s, %c, dim = 0 : (tensor<3x8xf32>, tensor<4x8xf32>, tensor<5x8xf32>) -> tensor<12x8xf32>
  %z = stablehlo.multiply %y, %y : tensor<12x8xf32>
  return %z : tensor<12x8xf32>
}"""

PADDING = """
func.func @main(%a: tensor<6x7xf32>) -> tensor<5x5xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.pad %a, %zero, low = [1, 2], high = [3, 1], interior = [0, 0]
     : (tensor<6x7xf32>, tensor<f32>) -> tensor<10x10xf32>
  %u = stablehlo.slice %p [0:10:2, 0:10:2] : (tensor<10x10xf32>) -> tensor<5x5xf32>
  %v = stablehlo.slice %p [1:10:2, 1:10:2] : (tensor<10x10xf32>) -> tensor<5x5xf32>
  %d = stablehlo.subtract %u, %v : tensor<5x5xf32>
  return %d : tensor<5x5xf32>
}"""

RESHAPES = """
func.func @main(%a: tensor<6x4xf32>) -> tensor<8x3xf32> {
  %r = stablehlo.reshape %a : (tensor<6x4xf32>) -> tensor<24xf32>
  %n = stablehlo.negate %r : tensor<24xf32>
  %w = stablehlo.reverse %n, dims = [0] : tensor<24xf32>
  %s = stablehlo.reshape %w : (tensor<24xf32>) -> tensor<8x3xf32>
  return %s : tensor<8x3xf32>
}"""

MASK = """
func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %i = stablehlo.iota dim = 0 : tensor<8x8xi32>
  %j = stablehlo.iota dim = 1 : tensor<8x8xi32>
  %m = stablehlo.compare GE, %i, %j : (tensor<8x8xi32>, tensor<8x8xi32>) -> tensor<8x8xi1>
  %low = stablehlo.constant dense<-1.0e9> : tensor<8x8xf32>
  %s = stablehlo.select %m, %a, %low : tensor<8x8xi1>, tensor<8x8xf32>
  return %s : tensor<8x8xf32>
}"""


def _root(text: str) -> Value:
    return hlo.parse(text).entry.body.ops[-1].operands[0]


def _in_memory(v: Value) -> bool:
    return v.op is None


def _places(root: Value, seed: int) -> list[tuple[tuple[Expr, ...], dict[Var, Interval]]]:
    """Whole, at one element, and in boxes of tiles: some are cut by the end of the value."""
    pick = random.Random(seed)
    found = []
    for _ in range(12):
        index: list[Expr] = []
        ranges: dict[Var, Interval] = {}
        for k, n in enumerate(root.shape):
            kind = pick.choice(["whole", "element", "tile"])
            if kind == "element":
                index.append(Const(pick.randrange(n)))
                continue
            size = n if kind == "whole" else pick.randint(1, n)
            i, t = Var(f"i{k}"), Var(f"t{k}")
            ranges[i] = Interval(0, size - 1)
            if size < n:
                ranges[t] = Interval(0, (n - 1) // size)
                index.append(t * size + i)
            else:
                index.append(i)
        found.append((tuple(index), ranges))
    return found


@pytest.mark.parametrize("text", [CONCATENATION, PADDING, RESHAPES, MASK], ids=["concatenation", "padding", "reshapes", "mask"])
def test_a_pattern_is_what_is_built_at_its_place(text: str) -> None:
    root = _root(text)
    dims = tuple([Var(f"d{k}") for k in range(root.rank)])
    template = template_of(root, dims, _in_memory, EdgeMaps())
    assert template is not None
    for index, ranges in _places(root, 7):
        expected = ElementBuilder(dict(ranges), _in_memory).at(root, index)
        found = template.at(index, ranges)
        assert same_expression(found, expected, ranges), f"{show_node(found, 20)} is not {show_node(expected, 20)}"
        assert _counts(found) == _counts(expected), "what is read several times is one node in both"


def _counts(root: Node) -> dict[str, int]:
    found: dict[str, int] = {}
    for n in all_nodes([root]):
        found[type(n).__name__] = found.get(type(n).__name__, 0) + 1
    return found


def test_parts_that_a_box_does_not_reach_are_not_in_its_element() -> None:
    root = _root(CONCATENATION)
    dims = (Var("d0"), Var("d1"))
    template = template_of(root, dims, _in_memory, EdgeMaps())
    assert template is not None
    i, j = Var("i0"), Var("i1")
    inside = template.at((i + 3, j), {i: Interval(0, 3), j: Interval(0, 7)})
    assert {n.value.name for n in all_nodes([inside]) if isinstance(n, Load)} == {"b"}
    assert not any(isinstance(n, Choose) for n in all_nodes([inside]))
    across = template.at((i + 3, j), {i: Interval(0, 4), j: Interval(0, 7)})
    assert {n.value.name for n in all_nodes([across]) if isinstance(n, Load)} == {"b", "c"}


def test_what_is_known_at_run_time_has_no_pattern() -> None:
    root = _root("""
    func.func @main(%a: tensor<8xf32>, %k: tensor<i32>) -> tensor<4xf32> {
      %s = stablehlo.dynamic_slice %a, %k, sizes = [4] : (tensor<8xf32>, tensor<i32>) -> tensor<4xf32>
      return %s : tensor<4xf32>
    }""")
    assert template_of(root, (Var("d0"),), _in_memory, EdgeMaps()) is None


def test_a_part_of_one_element_is_read_at_one_place() -> None:
    """Transforms of windows: sixteen parts share what they compute where none of them names its number."""
    root = _root("""
    func.func @main(%a: tensor<1x8xf32>, %b: tensor<1x8xf32>) -> tensor<2x8xf32> {
      %p = stablehlo.add %a, %b : tensor<1x8xf32>
      %q = stablehlo.subtract %a, %b : tensor<1x8xf32>
      %y = stablehlo.concatenate %p, %q, dim = 0 : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<2x8xf32>
      return %y : tensor<2x8xf32>
    }""")
    template = template_of(root, (Var("d0"), Var("d1")), _in_memory, EdgeMaps())
    assert template is not None
    i, j = Var("i0"), Var("i1")
    found = [n for n in all_nodes([template.at((i, j), {i: Interval(0, 1), j: Interval(0, 7)})]) if isinstance(n, Load)]
    assert [(n.value.name, n.index) for n in found] == [("a", (Const(0), j)), ("b", (Const(0), j))]


def test_a_part_of_one_element_beside_a_longer_one_keeps_its_address() -> None:
    """Rolled rows: the loop chose between a fixed address and a moving one, by a jump (a Laplacian took twice as long)."""
    root = _root("""
    func.func @main(%a: tensor<8x4xf32>) -> tensor<8x4xf32> {
      %p = stablehlo.slice %a [7:8, 0:4] : (tensor<8x4xf32>) -> tensor<1x4xf32>
      %q = stablehlo.slice %a [0:7, 0:4] : (tensor<8x4xf32>) -> tensor<7x4xf32>
      %y = stablehlo.concatenate %p, %q, dim = 0 : (tensor<1x4xf32>, tensor<7x4xf32>) -> tensor<8x4xf32>
      return %y : tensor<8x4xf32>
    }""")
    template = template_of(root, (Var("d0"), Var("d1")), _in_memory, EdgeMaps())
    assert template is not None
    i, j = Var("i0"), Var("i1")
    found = [n for n in all_nodes([template.at((i, j), {i: Interval(0, 7), j: Interval(0, 3)})]) if isinstance(n, Load)]
    assert [n.index for n in found] == [(i + 7, j), (i - 1, j)]
