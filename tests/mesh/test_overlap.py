# ruff: noqa: E501  (programs are written as they are printed)
"""Exchanges that go on beside kernels: the inside of a tile first where that is worth it, and the same results."""

from __future__ import annotations

import pytest

import hlo
from tests.mesh.global_programs import module_text
from tests.mesh.test_views import checked
from tiling.mesh.network import Network

SLOW = Network(1e-3, 1e9, 4e9, hidden=1.0)  # so slow that hiding pays for any borders


def convolution(rows: int, taps: int, stride: int, low: int, high: int, out: int) -> hlo.Module:
    body = f"""  %r = stablehlo.convolution(%a0, %a1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {{stride = [{stride}], pad = [[{low}, {high}]]}}
    {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : (tensor<2x{rows}x3xf32>, tensor<{taps}x3x4xf32>) -> tensor<2x{out}x4xf32>
  return %r : tensor<2x{out}x4xf32>"""
    cut = '[{}, {"x"}, {}]'
    return hlo.parse(module_text('"x"=4', [(f"2x{rows}x3xf32", cut), (f"{taps}x3x4xf32", "")], body, [(f"2x{out}x4xf32", cut)]))


def pooling(rows: int) -> hlo.Module:
    body = f"""  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %r = "stablehlo.reduce_window"(%a0, %low) ({{ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.maximum %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32> }}) {{window_dimensions = array<i64: 4, 2>, window_strides = array<i64: 1, 1>,
    padding = dense<[[2, 1], [0, 1]]> : tensor<2x2xi64>}} : (tensor<{rows}x4xf32>, tensor<f32>) -> tensor<{rows}x4xf32>
  return %r : tensor<{rows}x4xf32>"""
    return hlo.parse(module_text('"x"=4', [(f"{rows}x4xf32", '[{"x"}, {}]')], body, [(f"{rows}x4xf32", '[{"x"}, {}]')]))


@pytest.mark.parametrize(
    "module",
    [
        convolution(32, 3, 1, 1, 1, 32), convolution(30, 3, 1, 1, 1, 30), convolution(96, 5, 1, 4, 0, 96), convolution(96, 4, 2, 1, 1, 48),
        convolution(32, 3, 2, 1, 0, 16), pooling(32), pooling(30),
    ],
    ids=["tiles", "uneven tiles", "from before alone", "steps of two", "halo on one side", "pooling", "pooling of uneven tiles"],
)  # fmt: skip
def test_the_inside_is_computed_while_the_halo_comes(module: hlo.Module) -> None:
    """By the same program on a grid; what is sent is the same as without."""
    beside, after = checked(module, SLOW), checked(module, Network(1e-3, 1e9, 4e9))
    assert beside.sent_bytes == after.sent_bytes
    assert all("whose inside is computed meanwhile" in c.reason for c in beside.communications)
    assert not any("meanwhile" in c.reason for c in after.communications)
    names = [op.name for op in beside.module.entry.body.ops]
    inside = names.index(next(n for n in names if n in ("stablehlo.convolution", "stablehlo.reduce_window")))
    assert inside < names.index("stablehlo.collective_permute")


def test_what_nobody_hides_is_not_computed_twice() -> None:
    fast = Network(1e-9, 1e15, 4e9, hidden=1.0)
    made = checked(convolution(32, 3, 1, 1, 1, 32), fast)
    assert not any("meanwhile" in c.reason for c in made.communications)


def product(n: int) -> hlo.Module:
    body = f"""  %r = stablehlo.dot_general %a0, %a1, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<2x{n}x64xf32>, tensor<2x64x6xf32>) -> tensor<2x{n}x6xf32>
  return %r : tensor<2x{n}x6xf32>"""
    given = [(f"2x{n}x64xf32", '[{}, {}, {"x"}]'), ("2x64x6xf32", '[{}, {"x"}, {}]')]
    return hlo.parse(module_text('"x"=4', given, body, [(f"2x{n}x6xf32", "[{}, {}, {}]")]))


def test_a_large_sum_is_cut_where_its_pieces_are_hidden() -> None:
    network = Network(1e-9, 1e3, 3e3, hidden=0.5)  # as long for the work as for the bytes
    cut, whole = checked(product(16), network), checked(product(16), Network(1e-9, 1e3, 3e3))
    assert len(cut.communications) == 2 and "piece 2 of 2" in cut.communications[1].reason
    assert len(whole.communications) == 1 and cut.sent_bytes == whole.sent_bytes


def test_a_sum_of_short_pieces_is_not_cut() -> None:
    assert len(checked(product(16), Network(10.0, 1e3, 1e2, hidden=1.0)).communications) == 1
