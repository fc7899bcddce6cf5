"""Random programs that look up elements at places with edges: rolled, padded, masked indices, in long and in short rows.

What a place is computed from asks where its element is. Loops are cut there, and each part computes its own places.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.module import Module
from tilewright.check import compare
from tiling.loops.element_ir import Choose, all_nodes
from tiling.pipeline import finished

TABLE = 50
SHAPES = [(2, 300), (3, 1000), (70, 40), (300, 8), (9, 7)]  # the longest rows are cut where a condition changes


class Lines:
    """The ops of a program, one a line, on values of one shape."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.shape = self.choose.choice(SHAPES)
        self.lines: list[str] = []

    def type(self, element: str, shape: tuple[int, ...] | None = None) -> str:
        return f"tensor<{'x'.join(map(str, (*(self.shape if shape is None else shape), element)))}>"

    def op(self, text: str) -> str:
        self.lines.append(f"%v{len(self.lines)} = {text}")
        return f"%v{len(self.lines) - 1}"

    def rolled(self, x: str, element: str) -> str:
        axis, parts = self.choose.randint(0, 1), []
        by = self.choose.randint(1, self.shape[axis] - 1)
        for first, last in ((by, self.shape[axis]), (0, by)):
            ranges = [f"0:{n}" for n in self.shape]
            ranges[axis] = f"{first}:{last}"
            cut = list(self.shape)
            cut[axis] = last - first
            t = self.type(element, tuple(cut))
            parts.append((self.op(f"stablehlo.slice {x} [{', '.join(ranges)}] : ({self.type(element)}) -> {t}"), t))
        (a, s), (b, t) = parts
        return self.op(f"stablehlo.concatenate {a}, {b}, dim = {axis} : ({s}, {t}) -> {self.type(element)}")

    def padded(self, x: str, element: str) -> str:
        axis, by = self.choose.randint(0, 1), self.choose.randint(1, 3)
        low, high = ([0, 0] for _ in range(2))
        low[axis], high[axis] = (by, -by) if self.choose.random() < 0.5 else (-by, by)
        z = self.op(f"stablehlo.constant dense<{'3' if element == 'i32' else '0.25'}> : tensor<{element}>")
        types = f"({self.type(element)}, tensor<{element}>) -> {self.type(element)}"
        return self.op(f"stablehlo.pad {x}, {z}, low = {low}, high = {high}, interior = [0, 0] : {types}")

    def masked(self, x: str, element: str) -> str:
        axis = self.choose.randint(0, 1)
        i = self.op(f"stablehlo.iota dim = {axis} : {self.type('i32')}")
        c = self.op(f"stablehlo.constant dense<{self.choose.randint(1, self.shape[axis] - 1)}> : {self.type('i32')}")
        p = self.op(f"stablehlo.compare LT, {i}, {c}, SIGNED : ({self.type('i32')}, {self.type('i32')}) -> {self.type('i1')}")
        z = self.op(f"stablehlo.constant dense<{'1' if element == 'i32' else '-0.5'}> : {self.type(element)}")
        return self.op(f"stablehlo.select {p}, {x}, {z} : {self.type('i1')}, {self.type(element)}")

    def edges(self, x: str, element: str, most: int) -> str:
        for _ in range(self.choose.randint(0, most)):
            x = self.choose.choice([self.rolled, self.padded, self.masked])(x, element)
        return x


def program(seed: int) -> Module:
    """t[i], where i is a table of places with edges, or the sum of two; then edges, a fold or a running sum of what was found."""
    p = Lines(seed)
    places = p.edges("%i", "i32", 2)
    if p.choose.random() < 0.5:
        places = p.op(f"stablehlo.add {places}, {p.edges('%i', 'i32', 2)} : {p.type('i32')}")
    wide = p.op(f"stablehlo.reshape {places} : ({p.type('i32')}) -> {p.type('i32', (*p.shape, 1))}")
    found = p.op(f'''"stablehlo.gather"(%t, {wide}) {{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1>}}
      : (tensor<{TABLE}xf32>, {p.type("i32", (*p.shape, 1))}) -> {p.type("f32")}''')
    found = p.edges(found, "f32", 2)
    kind = p.choose.choice(["kept", "kept", "folded", "running"])
    result = p.type("f32")
    if kind == "kept":
        found = p.op(f"stablehlo.multiply {found}, {found} : {result}")
    elif kind == "folded":
        axis = p.choose.randint(0, 1)
        z = p.op("stablehlo.constant dense<0.0> : tensor<f32>")
        before, result = result, p.type("f32", (p.shape[1 - axis],))
        types = f"({before}, tensor<f32>) -> {result}"
        found = p.op(f"stablehlo.reduce({found} init: {z}) applies stablehlo.add across dimensions = [{axis}] : {types}")
    else:
        z = p.op("stablehlo.constant dense<0.0> : tensor<f32>")
        n = p.shape[1]
        found = p.op(f'''"stablehlo.reduce_window"({found}, {z}) ({{ ^bb0(%p: tensor<f32>, %q: tensor<f32>):
          %s = stablehlo.add %p, %q : tensor<f32>
          stablehlo.return %s : tensor<f32>
        }}) {{window_dimensions = array<i64: 1, {n}>, padding = dense<[[0, 0], [{n - 1}, 0]]> : tensor<2x2xi64>}}
        : ({result}, tensor<f32>) -> {result}''')
    lines = "\n".join((*p.lines, f"return {found} : {result}"))
    return hlo.parse(f"func.func @main(%t: tensor<{TABLE}xf32>, %i: {p.type('i32')}) -> {result} {{\n{lines}\n}}")


@pytest.mark.parametrize("seed", range(40))
def test_places_with_edges(seed: int) -> None:
    module = program(seed)
    _, i = module.function().arguments
    source = np.random.default_rng(seed)
    arrays = source.standard_normal(TABLE).astype(np.float32), source.integers(0, TABLE, i.shape).astype(np.int32)
    executable = codegen.compile(module)
    assert executable.fallbacks == []
    for found, want in zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True):
        assert compare(np.asarray(found), np.asarray(want)).passed


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_places_with_edges_are_proved(seed: int) -> None:
    for fusion in tiling.plan(program(seed), supports=codegen.supports).fusions:
        proof = tiling.prove(fusion)
        assert not proof.refuted, str(proof)


def test_a_long_row_is_cut_where_its_places_have_edges() -> None:
    """The next state of a cellular automaton: the inside of the row asks nothing, and each part looks up its own places.

    The parts once shared the name of the first one's place: rows of 256 and more were wrong.
    """
    n, t = 1000, "tensor<1000xi32>"
    module = hlo.parse(
        f"""func.func @main(%t: tensor<8xi32>, %x: {t}) -> {t} {{
  %a = stablehlo.slice %x [999:1000] : ({t}) -> tensor<1xi32>
  %b = stablehlo.slice %x [0:999] : ({t}) -> tensor<999xi32>
  %l = stablehlo.concatenate %a, %b, dim = 0 : (tensor<1xi32>, tensor<999xi32>) -> {t}
  %c = stablehlo.slice %x [1:1000] : ({t}) -> tensor<999xi32>
  %d = stablehlo.slice %x [0:1] : ({t}) -> tensor<1xi32>
  %r = stablehlo.concatenate %c, %d, dim = 0 : (tensor<999xi32>, tensor<1xi32>) -> {t}
  %four = stablehlo.constant dense<4> : {t}
  %two = stablehlo.constant dense<2> : {t}
  %4 = stablehlo.multiply %l, %four : {t}
  %2 = stablehlo.multiply %x, %two : {t}
  %s = stablehlo.add %4, %2 : {t}
  %k = stablehlo.add %s, %r : {t}
  %w = stablehlo.reshape %k : ({t}) -> tensor<1000x1xi32>
  %y = "stablehlo.gather"(%t, %w) {{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
    index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1>}} : (tensor<8xi32>, tensor<1000x1xi32>) -> {t}
  return %y : {t} }}"""
    )
    table, x = np.array([0, 1, 1, 1, 0, 1, 1, 0], np.int32), np.random.default_rng(0).integers(0, 2, n).astype(np.int32)
    (found,) = codegen.compile(module)(table, x)
    np.testing.assert_array_equal(found, table[4 * np.roll(x, 1) + 2 * x + np.roll(x, -1)])
    (fusion,) = tiling.plan(module, supports=codegen.supports).fusions
    (nest,) = finished(fusion.schedule).main.steps
    assert [str(s.lower) for s in nest.parts] == ["0", "1", "999"]
    assert not [n for part in nest.parts for s in part.stores for n in all_nodes([s.node]) if isinstance(n, Choose)]
    assert tiling.prove(fusion).holds
