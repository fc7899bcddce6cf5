"""Predicted traffic against caches that replay a schedule's accesses."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hlo
import tiling
from benchmarks.compiling.traffic import simulate
from codegen.supports import supports
from tiling.loops.ir import Nest, Turn
from tiling.machine import Machine
from tiling.planning.costs.borders import BORDER_SECONDS, Borders
from tiling.planning.costs.estimate import estimate

ROW_SUM = """
%0 = stablehlo.constant dense<0.0> : tensor<f32>
%1 = stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [1]
  : (tensor<256x512xf32>, tensor<f32>) -> tensor<256xf32>
return %1 : tensor<256xf32>
"""
SHIFTED = """
%0 = stablehlo.slice %x [0:256, 0:256] : (tensor<256x512xf32>) -> tensor<256x256xf32>
%1 = stablehlo.slice %x [0:256, 256:512] : (tensor<256x512xf32>) -> tensor<256x256xf32>
%2 = stablehlo.add %0, %1 : tensor<256x256xf32>
return %2 : tensor<256x256xf32>
"""
EVERY_SECOND = """
%0 = stablehlo.slice %x [0:256, 0:512:2] : (tensor<256x512xf32>) -> tensor<256x256xf32>
return %0 : tensor<256x256xf32>
"""


@pytest.mark.parametrize(
    ("body", "result", "expected_bytes"),
    [
        (ROW_SUM, "tensor<256xf32>", 4 * (256 * 512 + 256)),
        (SHIFTED, "tensor<256x256xf32>", 4 * (256 * 512 + 256 * 256)),
        (EVERY_SECOND, "tensor<256x256xf32>", 4 * (256 * 512 + 256 * 256)),
    ],
)
def test_predicted_bytes_are_those_that_the_caches_fetch(body: str, result: str, expected_bytes: int) -> None:
    module = hlo.parse(f"func.func @main(%x: tensor<256x512xf32>) -> {result} {{ {body} }}")
    machine = Machine()
    (fusion,) = tiling.plan(module, machine=machine, supports=supports).fusions
    seen = simulate(fusion.schedule, machine)
    assert not isinstance(seen, str)
    assert seen.memory_bytes == pytest.approx(expected_bytes, rel=0.01)
    assert estimate(fusion.schedule, machine).memory_bytes == pytest.approx(expected_bytes, rel=0.01)


def test_a_small_cache_fetches_again_what_it_had_to_give_up() -> None:
    module = hlo.parse("""func.func @main(%x: tensor<64x4096xf32>) -> tensor<64x4096xf32> {
      %0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [1]
        : (tensor<64x4096xf32>, tensor<f32>) -> tensor<64xf32>
      %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<64xf32>) -> tensor<64x4096xf32>
      %3 = stablehlo.subtract %x, %2 : tensor<64x4096xf32>
      return %3 : tensor<64x4096xf32>
    }""")
    (fusion,) = tiling.plan(module, machine=Machine(), supports=supports).fusions
    row_bytes, whole_bytes = 4 * 4096, 4 * 64 * 4096
    large, small = (simulate(fusion.schedule, Machine(l2_bytes=n, l3_bytes=n)) for n in (8 * row_bytes, row_bytes // 4))
    assert not isinstance(large, str) and not isinstance(small, str)
    assert large.memory_bytes == pytest.approx(2 * whole_bytes, rel=0.05)
    assert small.memory_bytes == pytest.approx(3 * whole_bytes, rel=0.05)  # each row of x a second time


def test_rows_cut_between_two_threads_have_a_border_each() -> None:
    """Where each of two threads has one tile of channels they meet in each row; not with rows of their own, or more tiles."""
    module = hlo.parse("""func.func @main(%x: tensor<196x480xf32>) -> tensor<196x480xf32> {
      %0 = stablehlo.exponential %x : tensor<196x480xf32>
      return %0 : tensor<196x480xf32>
    }""")
    machine = Machine(cores=2)

    def borders(sizes: tuple[int, ...], m: Machine = machine) -> float:
        pins = [tiling.Pin((0,), sizes)]
        (fusion,) = tiling.plan(module, machine=machine, supports=supports, pins=pins).fusions
        (main,) = fusion.schedule.phases
        found = Borders(main, m.cores)
        for nest in main.all_steps:
            assert isinstance(nest, Nest)
            for s in nest.stores:
                found.note(s.buffer, s.index, s.buffer.strides)
        return found.count

    assert borders((196, 240)) == 195 and borders((98, 480)) == 0
    assert borders((196, 120)) == 0 and borders((196, 120), Machine(cores=4)) == 195
    assert borders((98, 240)) == 0, "one thread has both halves of a row"
    (by_channels,), (by_rows,) = (
        tiling.plan(module, machine=machine, supports=supports, pins=[tiling.Pin((0,), sizes)]).fusions
        for sizes in ((196, 240), (98, 480))
    )
    waited = estimate(by_channels.schedule, machine).seconds - estimate(by_rows.schedule, machine).seconds
    assert waited >= 195 * BORDER_SECONDS


def test_loops_without_iterations_cost_next_to_nothing() -> None:
    module = hlo.parse("""func.func @main(%x: tensor<0x3xf32>, %y: tensor<3x0xf32>) -> (tensor<0x3xf32>, tensor<3x0xf32>) {
      %0 = stablehlo.tanh %x : tensor<0x3xf32>
      %1 = stablehlo.tanh %y : tensor<3x0xf32>
      return %0, %1 : tensor<0x3xf32>, tensor<3x0xf32>
    }""")
    plan = tiling.plan(module, machine=Machine(), supports=supports)
    assert all(f.estimate.memory_bytes <= 64 and f.estimate.seconds < 1e-4 for f in plan.fusions)


TURNED_PRODUCTS = """func.func @main(%a: tensor<8x512x512xf32>, %b: tensor<8x512x64xf32>) -> tensor<8x512x64xf32> {
  %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [1] x [1]
    : (tensor<8x512x512xf32>, tensor<8x512x64xf32>) -> tensor<8x512x64xf32>
  return %0 : tensor<8x512x64xf32>
}"""


def test_running_results_far_apart_are_read_and_written_one_by_one() -> None:
    """A fold whose results lie in memory at a step takes two accesses for each element, unless another fills what is between."""
    module = hlo.parse("""func.func @main(%x: tensor<64x256xf32>) -> tensor<256xf32> {
      %0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [0]
        : (tensor<64x256xf32>, tensor<f32>) -> tensor<256xf32>
      return %1 : tensor<256xf32>
    }""")
    machine = Machine(cores=1)
    (fusion,) = tiling.plan(module, machine=machine, supports=supports).fusions
    (nest,) = (s for s in fusion.schedule.main.steps if isinstance(s, Nest))
    (fold,) = nest.folds
    (buffer,) = fold.buffers

    def seconds(step: int, folds: int) -> float:
        apart = replace(buffer, strides=(step,), size_elems=step * 256)
        made = replace(nest, folds=(replace(fold, buffers=(apart,)),) * folds)
        buffers = tuple(apart if b is buffer else b for b in fusion.schedule.buffers)
        main = replace(fusion.schedule.main, steps=(made,))
        return estimate(replace(fusion.schedule, phases=(main,), buffers=buffers), machine).arithmetic_seconds

    assert seconds(2, 1) - seconds(1, 1) == pytest.approx(2 * 64 * 256 / machine.hertz, rel=0.01)
    assert seconds(2, 2) == pytest.approx(seconds(1, 2))
    assert seconds(3, 2) > 1.5 * seconds(1, 2)


def test_products_inside_a_task_each_read_their_own_operands() -> None:
    """A task of twelve rows of each of eight products reads eight blocks of the left factors: all tasks together all of them."""
    module, machine = hlo.parse(TURNED_PRODUCTS), Machine(vector_bytes=64, vector_registers=32)
    operands_bytes = 4 * (8 * 512 * 512 + 2 * 8 * 512 * 64)
    found = []
    for sizes in ((8, 12, 64), (1, 12, 64), (1, 64, 64)):
        (fusion,) = tiling.plan(module, machine=machine, supports=supports, pins=[tiling.Pin((0,), sizes)]).fusions
        found.append(fusion.estimate)
    assert all(e.memory_bytes >= operands_bytes for e in found), "also where the left one is copied, a block of k at a time"
    assert found[2].seconds < min(e.seconds for e in found[:2]), "twelve rows are a part of a line: neighbours fetch it again"


@pytest.mark.parametrize("order", [(1, 3, 0, 2), (0, 1, 3, 2), (1, 0, 3, 2)])
def test_tiles_of_permutations_in_four_dimensions_are_turned(order: tuple[int, ...]) -> None:
    """Each element from a line of its own took two to five times as long as tiles turned in registers."""
    shape = (16, 64, 48, 32)
    x, y = (f"tensor<{'x'.join(map(str, s))}xf32>" for s in (shape, [shape[k] for k in order]))
    module = hlo.parse(f"""func.func @main(%x: {x}) -> {y} {{
  %r = stablehlo.transpose %x, dims = {list(order)} : ({x}) -> {y}
  return %r : {y}
}}""")
    machine = tiling.Machine(cores=1, vector_bytes=64, vector_registers=32, l1_bytes=48 << 10, l2_bytes=1 << 20)
    (fusion,) = tiling.plan(module, machine=machine).fusions
    assert any(isinstance(s, Turn) for s in fusion.schedule.main.steps)


WIDE = Machine(cores=2, vector_bytes=64, vector_registers=32, l2_bytes=1 << 20)


def _depthwise(rows: int, channels: int) -> str:
    x, w = f"tensor<1x{rows}x{rows}x{channels}xf32>", f"tensor<3x3x1x{channels}xf32>"
    return (
        f"func.func @main(%x: {x}, %w: {w}) -> {x} {{\n  %0 = stablehlo.convolution(%x, %w) dim_numbers = "
        "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, "
        f"feature_group_count = {channels} : i64}} : ({x}, {w}) -> {x}\n  return %0 : {x} }}"
    )


@pytest.mark.parametrize("channels", [8, 12, 24])
def test_channels_that_fill_no_vector_are_computed_side_by_side(channels: int) -> None:
    """What is left of vectors was thought to be computed one by one: tasks had one channel each, of strided pixels."""
    (fusion,) = tiling.plan(hlo.parse(_depthwise(56, channels)), machine=WIDE).fusions
    assert fusion.tile_sizes[-1] == channels


def test_a_windows_rows_fit_where_each_element_counts_once() -> None:
    """Three rows of 144 channels are 97 KiB, which are read nine times over: only halves of rows were thought to fit."""
    (fusion,) = tiling.plan(hlo.parse(_depthwise(56, 144)), machine=WIDE).fusions
    assert fusion.tile_sizes[-2:] == (56, 144)


@pytest.mark.parametrize("vector_bytes", [32, 64])
def test_a_loop_over_the_elements_of_rows_is_weighed_as_the_rows_that_it_becomes(vector_bytes: int) -> None:
    """Space to depth: a loop over 128 channels, rows of 32 of which lie apart, counted as one that jumps with each element. Tasks
    were columns of 32 channels, whose runs of 128 bytes two threads wrote side by side: 1.45 ms in place of .8."""
    image, apart = "tensor<8x112x112x32xf32>", "tensor<8x56x2x56x2x32xf32>"
    turned, made = "tensor<8x56x56x2x2x32xf32>", "tensor<8x56x56x128xf32>"
    module = hlo.parse(f"""func.func @main(%x: {image}) -> {made} {{
      %0 = stablehlo.reshape %x : ({image}) -> {apart}
      %1 = stablehlo.transpose %0, dims = [0, 1, 3, 2, 4, 5] : ({apart}) -> {turned}
      %2 = stablehlo.reshape %1 : ({turned}) -> {made}
      return %2 : {made} }}""")
    (fusion,) = tiling.plan(module, machine=Machine(vector_bytes=vector_bytes), supports=supports).fusions
    assert fusion.schedule.tile_sizes[-2:] == (56, 128), "whole rows of the result"
    assert fusion.estimate.seconds < 2 * 2 * 4 * 8 * 56 * 56 * 128 / Machine().memory_bytes_per_second


def test_rows_are_not_cut_inside_where_loops_over_them_stay_one() -> None:
    """Rows of 50,000 by tiles of 6,256: each element's place is then divided out, 1.5 ms in place of .13."""
    image, apart = "tensor<1x4x4x50000xf32>", "tensor<1x2x2x2x2x50000xf32>"
    module = hlo.parse(f"""func.func @main(%x: {image}) -> tensor<1x2x2x200000xf32> {{
      %0 = stablehlo.reshape %x : ({image}) -> {apart}
      %1 = stablehlo.transpose %0, dims = [0, 1, 3, 2, 4, 5] : ({apart}) -> {apart}
      %2 = stablehlo.reshape %1 : ({apart}) -> tensor<1x2x2x200000xf32>
      return %2 : tensor<1x2x2x200000xf32> }}""")
    (fusion,) = tiling.plan(module, machine=Machine(), supports=supports).fusions
    columns = fusion.schedule.tile_sizes[-1]
    assert columns % 50000 == 0 or 50000 % columns == 0
