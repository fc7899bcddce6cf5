"""Rows of a scan that go side by side: as many as leave each other's lines in the nearest cache."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import tiling
from tiling.loops.ir import Nest
from tiling.pipeline import finished

SCAN = """func.func @main(%x: tensor<16x{n}x{t}>) -> tensor<16x{n}x{t}> {{
  %z = stablehlo.constant dense<{z}> : tensor<{t}>
  %r = "stablehlo.reduce_window"(%x, %z) <{{padding = dense<[[0, 0], [{last}, 0]]> : tensor<2x2xi64>,
      window_dimensions = array<i64: 1, {n}>, window_strides = array<i64: 1, 1>}}> ({{
  ^bb0(%p: tensor<{t}>, %q: tensor<{t}>):
    %s = stablehlo.{f} %p, %q : tensor<{t}>
    stablehlo.return %s : tensor<{t}>
  }}) : (tensor<16x{n}x{t}>, tensor<{t}>) -> tensor<16x{n}x{t}>
  return %r : tensor<16x{n}x{t}>
}}"""


@pytest.mark.parametrize(("n", "element", "together"), [
    (1000, "f32", 8), (1024, "f32", 4), (512, "f32", 8), (512, "f64", 4), (4096, "f32", 4), (4096 + 16, "f32", 8),
])  # fmt: skip
def test_rows_whole_pages_apart_share_a_set_of_the_nearest_cache(n: int, element: str, together: int) -> None:
    """Of eight rows read and eight written, 4 KiB apart, no line stays in a cache of eight ways."""
    assert _rows(n, element, "add") == together


@pytest.mark.parametrize(
    ("function", "element", "together"), [("maximum", "f32", 8), ("maximum", "i32", 4), ("multiply", "f32", 4)]
)
def test_steps_that_take_long_by_themselves_go_eight_side_by_side(function: str, element: str, together: int) -> None:
    """The maximum of floats waits 20 cycles for the one before: eight rows hide it though they share a set of the cache."""
    assert _rows(2048, element, function) == together


def _rows(n: int, element: str, function: str) -> int:
    """How many rows of a scan along n elements go side by side."""
    start = {"add": "0.0", "multiply": "1.0", "maximum": "0xFF800000" if element == "f32" else "-2147483648"}[function]
    module = hlo.parse(SCAN.format(n=n, last=n - 1, t=element, f=function, z=start))
    (fusion,) = tiling.plan(module, machine=tiling.Machine(cores=1)).fusions
    nests = [s for p in finished(fusion.schedule).phases for s in p.steps if isinstance(s, Nest)]
    (nest,) = nests
    return nest.loops[-2].together


@pytest.mark.parametrize(("columns", "together"), [(2, 2), (3, 3), (5, 5), (7, 7), (8, 1), (12, 1)])
def test_few_columns_are_scanned_in_registers(columns: int, together: int) -> None:
    """Running sums of coordinates: in memory each row of three waited 7 ns for the one before. Eight and more fill vectors."""
    t = f"tensor<50x{columns}xf32>"
    module = hlo.parse(f"""func.func @main(%x: {t}) -> {t} {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %z) <{{padding = dense<[[49, 0], [0, 0]]> : tensor<2x2xi64>,
      window_dimensions = array<i64: 50, 1>, window_strides = array<i64: 1, 1>}}> ({{
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }}) : ({t}, tensor<f32>) -> {t}
  return %r : {t}
}}""")
    plan = tiling.plan(module, machine=tiling.Machine(cores=1), supports=codegen.supports)
    nests = [s for p in finished(plan.fusions[0].schedule).phases for s in p.steps if isinstance(s, Nest)]
    (nest,) = nests
    assert nest.loops[-2].together == together
    assert (nest.loops[-1].extent == 50) == (together > 1)
    x = np.random.default_rng(0).integers(-9, 9, (50, columns)).astype(np.float32)
    np.testing.assert_array_equal(codegen.compile(plan)(x)[0], np.cumsum(x, 0))
