"""Rows of a scan that go side by side: as many as leave each other's lines in the nearest cache."""

from __future__ import annotations

import pytest

import hlo
import tiling
from tiling.loops.ir import Nest
from tiling.pipeline import finished

SCAN = """func.func @main(%x: tensor<16x{n}x{t}>) -> tensor<16x{n}x{t}> {{
  %z = stablehlo.constant dense<0.0> : tensor<{t}>
  %r = "stablehlo.reduce_window"(%x, %z) <{{padding = dense<[[0, 0], [{last}, 0]]> : tensor<2x2xi64>,
      window_dimensions = array<i64: 1, {n}>, window_strides = array<i64: 1, 1>}}> ({{
  ^bb0(%p: tensor<{t}>, %q: tensor<{t}>):
    %s = stablehlo.add %p, %q : tensor<{t}>
    stablehlo.return %s : tensor<{t}>
  }}) : (tensor<16x{n}x{t}>, tensor<{t}>) -> tensor<16x{n}x{t}>
  return %r : tensor<16x{n}x{t}>
}}"""


@pytest.mark.parametrize(("n", "element", "together"), [
    (1000, "f32", 4), (1024, "f32", 2), (512, "f32", 4), (512, "f64", 2), (4096, "f32", 2), (4096 + 16, "f32", 4),
])  # fmt: skip
def test_rows_whole_pages_apart_share_a_set_of_the_nearest_cache(n: int, element: str, together: int) -> None:
    """Of eight rows read and eight written, 4 KiB apart, no line stayed in a cache of eight ways: 6 times as slow."""
    module = hlo.parse(SCAN.format(n=n, last=n - 1, t=element))
    (fusion,) = tiling.plan(module, machine=tiling.Machine(cores=1)).fusions
    nests = [s for p in finished(fusion.schedule).phases for s in p.steps if isinstance(s, Nest)]
    assert [nest.loops[-2].together for nest in nests] == [together]
