"""Windows of products lane by lane: depthwise convolutions with channels last and weights that lie across them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
import interp
from codegen.supports import supports
from tests.goldens.prints import MACHINES
from tiling.loops.ir import LoopKind, Nest, Schedule, Scope
from tiling.pipeline import finished
from tiling.planning.model import Pin
from tiling.planning.plan import plan
from tiling.proving.obligations import prove


def depthwise(side: int, channels: int, window: int, stride: int, last: bool = False, multiple: int = 1) -> hlo.Module:
    """Padding as in SAME; the kernel has its channels first, or last."""
    n = (side - 1) // stride + 1
    out = channels * multiple
    x, r = f"tensor<1x{side}x{side}x{channels}xf32>", f"tensor<1x{n}x{n}x{out}xf32>"
    w, lies = (f"{window}x{window}x1x{out}", "[0, 1, i, o]") if last else (f"{out}x1x{window}x{window}", "[o, i, 0, 1]")
    p = window // 2
    return hlo.parse(f"""func.func @main(%x: {x}, %w: tensor<{w}xf32>) -> {r} {{
      %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x{lies}->[b, 0, 1, f],
        window = {{stride = [{stride}, {stride}], pad = [[{p}, {p}], [{p}, {p}]]}}
        {{batch_group_count = 1 : i64, feature_group_count = {channels} : i64}} : ({x}, tensor<{w}xf32>) -> {r}
      return %r : {r} }}""")


def schedule_of(module: hlo.Module, machine: str = "avx2") -> Schedule:
    (found,) = plan(module, machine=MACHINES[machine], supports=supports).fusions
    return found.schedule


CASES = [(7, 24, 7, 1), (7, 24, 5, 1), (9, 20, 3, 2), (14, 40, 3, 1), (30, 8, 3, 1), (28, 12, 5, 2)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["across", "beside"])
def test_agreement_and_proof(case: tuple[int, int, int, int], last: bool) -> None:
    module, rng = depthwise(*case, last=last), np.random.default_rng(0)
    made = plan(module, machine=MACHINES["avx2"], supports=supports)
    arrays = [rng.integers(-8, 9, v.shape).astype(np.float32) for v in module.entry.arguments]
    (found,), (expected,) = codegen.compile(made)(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_array_equal(found, expected)
    proof = prove(made)
    assert proof.holds, str(proof)


def test_padding_times_infinity_is_no_number_as_elsewhere() -> None:
    module = depthwise(7, 16, 3, 1)
    x, w = np.ones((1, 7, 7, 16), np.float32), np.ones((16, 1, 3, 3), np.float32)
    w[3, 0, 0, 0] = np.inf
    (found,), (expected,) = codegen.compile(module)(x, w), interp.evaluate(module, x, w)
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(found[0, 0, :, 3]).all() and np.isinf(found[0, 3, 3, 3])


def test_the_kernel_lies_beside_itself_once_for_all_tasks() -> None:
    schedule = schedule_of(depthwise(14, 40, 3, 1))
    *ahead, main = schedule.phases
    (phase,) = ahead
    (nest,) = (s for s in phase.steps if isinstance(s, Nest))
    (store,) = nest.stores
    assert store.buffer.scope is Scope.SHARED and store.buffer.shape == (3, 3, 40) and store.buffer.strides[-1] == 1
    assert not any(s.folds and s is nest for s in main.steps)
    assert len(schedule_of(depthwise(14, 40, 3, 1, last=True)).phases) == 1


@pytest.mark.parametrize(("side", "copies"), [(7, True), (64, False)])
def test_only_a_small_image_gets_a_tile_with_zeros(side: int, copies: bool) -> None:
    schedule = schedule_of(depthwise(side, 32, 3, 1))
    assert any(b.scope is Scope.THREAD for b in schedule.buffers) == copies


@pytest.mark.parametrize("window", [3, 5, 7])
def test_the_products_of_an_element_are_written_out(window: int) -> None:
    nests = [s for s in finished(schedule_of(depthwise(7, 32, window, 1))).main.steps if isinstance(s, Nest) and s.folds]
    assert {f.products for n in nests for f in n.folds} == {window * window}
    assert not any(x.kind is LoopKind.REDUCTION and x.extent > 1 for n in nests for x in n.loops)


def test_channels_that_share_an_image_are_no_lanes() -> None:
    """Two results of a channel: the image's index is divided, and neighbours read the same element."""
    module, rng = depthwise(7, 16, 3, 1, multiple=2), np.random.default_rng(0)
    arrays = [rng.integers(-8, 9, v.shape).astype(np.float32) for v in module.entry.arguments]
    (found,), (expected,) = codegen.compile(module)(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("rows", [1, 2, 14])
def test_a_task_of_few_rows_of_a_padded_image_goes_lane_by_lane(rows: int) -> None:
    """Padding ends the window's loop at the image's border, which is no mask: a task of one row fell back to plain loops."""
    pin = Pin((0,), (1, rows, 14, 40))
    (found,) = plan(depthwise(14, 40, 5, 1), machine=MACHINES["avx2"], supports=supports, pins=[pin]).fusions
    assert any(b.value is None or "kernel" in b.name for b in found.schedule.buffers if b.scope is Scope.SHARED)
    assert len(found.schedule.phases) == 2 and not found.schedule.main.flags


def test_groups_of_several_channels_are_tasks_of_rows() -> None:
    """32 groups of 8 channels on 28 x 28: a task has a row of all groups, side by side; a group each took 1.3 times as long."""
    image = "tensor<1x28x28x256xf32>"
    text = f"""func.func @main(%a: {image}, %b: tensor<3x3x8x256xf32>) -> {image} {{
  %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {{pad = [[1, 1], [1, 1]]}}
    {{batch_group_count = 1 : i64, feature_group_count = 32 : i64}} : ({image}, tensor<3x3x8x256xf32>) -> {image}
  return %0 : {image}
}}"""
    (fusion,) = plan(hlo.parse(text), machine=replace(MACHINES["avx512"], cores=1), supports=supports).fusions
    assert [count for _, count in fusion.schedule.main.tiles] == [28]
