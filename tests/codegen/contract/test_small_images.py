"""Convolutions of small images and of groups: which tasks and register blocks, and that the next weights are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
import tiling
from codegen.supports import supports
from tests.machines import MACHINES
from tiling.loops.ir import Contract, Nest, Scope
from tiling.passing import without


def _text(size: int, channels: int, features: int, groups: int) -> str:
    """3 x 3, channels last."""
    image, kernel, out = (
        f"tensor<{'x'.join(map(str, s))}xf32>"
        for s in ((1, size, size, channels), (features, channels // groups, 3, 3), (1, size, size, features))
    )
    return (
        f"func.func @main(%x: {image}, %w: {kernel}) -> {out} {{\n"
        "  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], "
        f"window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} "
        f": ({image}, {kernel}) -> {out}\n  return %y : {out}\n}}"
    )


@pytest.fixture(autouse=True)
def windows_as_they_stand() -> Iterator[None]:
    """These are about sums over windows, not about the fewer products that some of them could have."""
    with without("winograd_convolutions"):
        yield


def _expected(x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    _, h, width, channels = x.shape
    padded = np.pad(x[0], ((1, 1), (1, 1), (0, 0))).astype(np.float64)
    taps = np.stack([padded[i : i + h, j : j + width] for i in range(3) for j in range(3)], -1)
    parts = taps.reshape(h, width, groups, channels // groups, 9)
    kernels = w.reshape(groups, -1, channels // groups, 9).astype(np.float64)
    return np.einsum("yxgct,goct->yxgo", parts, kernels, optimize=True).reshape(1, h, width, -1)


def _contraction(made: tiling.Plan) -> tuple[Contract, tuple[int, ...]]:
    (fusion,) = made.fusions
    (step,) = [s for s in fusion.schedule.main.steps if isinstance(s, Contract)]
    return step, fusion.schedule.tile_sizes


@pytest.mark.parametrize("machine", ["avx512", "avx2"])
@pytest.mark.parametrize(("channels", "groups"), [(320, 20), (96, 3)])
def test_tasks_hold_whole_groups_and_few(channels: int, groups: int, machine: str) -> None:
    """320 channels in 20 groups were cut into tasks of 64 columns and one row of pixels: a fifth of the speed."""
    made = tiling.plan(hlo.parse(_text(14, channels, channels, groups)), machine=MACHINES[machine], supports=supports)
    step, sizes = _contraction(made)
    assert step.column_dimension == (3,) and step.n == sizes[3] == channels // groups
    rng = np.random.default_rng(1)
    x, w = (rng.integers(-3, 4, s).astype(np.float32) for s in ((1, 14, 14, channels), (channels, channels // groups, 3, 3)))
    np.testing.assert_array_equal(codegen.compile(made)(x, w)[0], _expected(x, w, groups))


@pytest.mark.parametrize(("size", "block"), [(7, (7, 32)), (14, (14, 32)), (28, (6, 64))])
def test_the_rows_of_a_small_image_are_one_register_block(size: int, block: tuple[int, int]) -> None:
    """Two blocks of few rows, 4 and 3 of 7, take the weights twice from the second cache: its rate was the limit."""
    made = tiling.plan(hlo.parse(_text(size, 64, 128, 1)), machine=MACHINES["avx512"], supports=supports)
    step, _ = _contraction(made)
    assert (step.rows, step.columns) == block and tiling.prove(made.fusions[0]).holds


@pytest.mark.parametrize(("channels", "features", "asks"), [(192, 128, True), (128, 256, True), (96, 32, False)])
def test_weights_from_beyond_the_caches_are_asked_for(channels: int, features: int, asks: bool) -> None:
    """A block of weights comes while the one before is multiplied, be it all of k or not."""
    made = tiling.plan(hlo.parse(_text(7, channels, features, 1)), machine=MACHINES["avx512"], supports=supports)
    assert _contraction(made)[0].asks_ahead == asks
    executable = codegen.compile(made)
    assert ("gemm_ahead(" in executable.source) == asks
    rng = np.random.default_rng(2)
    x, w = (rng.integers(-3, 4, s).astype(np.float32) for s in ((1, 7, 7, channels), (features, channels, 3, 3)))
    np.testing.assert_array_equal(executable(x, w)[0], _expected(x, w, 1))


def test_tasks_that_share_their_weights_do_not_ask() -> None:
    """Tasks of 24 rows, whose sums run over two dimensions, asked for panels that no task reads next, or that are not there at
    all; what has no page takes longest to be looked for (0.29 ms became 0.78)."""
    x, w, out = "tensor<64x32x48xf32>", "tensor<48x32x128xf32>", "tensor<64x128xf32>"
    made = tiling.plan(hlo.parse(
        f"func.func @main(%x: {x}, %w: {w}) -> {out} {{\n"
        f"  %y = stablehlo.dot_general %x, %w, contracting_dims = [1, 2] x [1, 0] : ({x}, {w}) -> {out}\n  return %y : {out}\n}}"
    ), machine=replace(MACHINES["avx512"], l2_bytes=1 << 20), supports=supports)  # fmt: skip
    step, _ = _contraction(made)
    far = step.right.buffer.scope is Scope.SHARED and step.right.buffer.size_bytes > 1 << 19
    assert far and step.m < 64 and step.k == step.k_block and not step.asks_ahead


def test_nothing_is_asked_for_behind_the_last_weights() -> None:
    """What is asked for lies in the buffer, as all numbers of a kernel's own arithmetic say."""
    made = tiling.plan(hlo.parse(_text(7, 192, 128, 1)), machine=MACHINES["avx512"], supports=supports)
    step, _ = _contraction(made)
    panels = step.panel_stride * -(-(step.column_block or step.n) // step.columns)
    rest = np.prod(step.right.buffer.shape) - panels
    (line,) = [x for x in codegen.compile(made).source.splitlines() if f"min({panels}, {rest} - (" in x]
    assert "ahead" in line


@pytest.mark.parametrize(("rows", "asks"), [(49, True), (32, False), (512, False)])
def test_products_of_few_rows_ask_for_the_next_weights(rows: int, asks: bool) -> None:
    """Layers of BERT and 1 x 1 convolutions of 7 x 7 waited for the first rows of each panel: up to a quarter of their time."""
    x, w, out = (f"tensor<{a}x{b}xf32>" for a, b in ((rows, 160), (960, 160), (rows, 960)))
    module = hlo.parse(
        f"func.func @main(%x: {x}, %w: {w}) -> {out} {{\n"
        f"  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : ({x}, {w}) -> {out}\n  return %y : {out}\n}}"
    )
    made = tiling.plan(module, machine=replace(MACHINES["avx512"], cores=1), supports=supports)
    step, _ = _contraction(made)
    holds_all_rows = step.m == rows
    assert step.asks_ahead == asks and (holds_all_rows or not asks) and tiling.prove(made.fusions[0]).holds
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-3, 4, s).astype(np.float32) for s in ((rows, 160), (960, 160)))
    np.testing.assert_array_equal(codegen.compile(made)(a, b)[0], a @ b.T)


@pytest.mark.parametrize(("size", "features", "columns"), [(7, 512, 32), (7, 200, 32), (14, 256, 32), (7, 64, 0)])
def test_what_is_asked_for_and_what_is_multiplied_fit_the_second_cache(size: int, features: int, columns: int) -> None:
    """Blocks of all 512 columns, 1.2 MB, drove the next one out of a cache of 2 MB: 120 GFLOP/s of a possible 190."""
    channels = 512 if features == 64 else 256
    machine = MACHINES["avx512"] if features != 64 else replace(MACHINES["avx512"], l2_bytes=2 << 20)
    made = tiling.plan(hlo.parse(_text(size, channels, features, 1)), machine=machine, supports=supports)
    step, _ = _contraction(made)
    assert step.column_block == columns and tiling.prove(made.fusions[0]).holds
    executable = codegen.compile(made)
    assert ("for p0 in range(0, " in executable.source) == bool(columns)
    rng = np.random.default_rng(4)
    x, w = (rng.integers(-3, 4, s).astype(np.float32) for s in ((1, size, size, channels), (features, channels, 3, 3)))
    np.testing.assert_array_equal(executable(x, w)[0], _expected(x, w, 1))


@pytest.mark.parametrize(("channels", "features", "groups"), [(32, 32, 8), (16, 32, 16)])
def test_groups_too_narrow_for_a_register_block_go_lane_by_lane(channels: int, features: int, groups: int) -> None:
    """Found in ResNeXt: 56 x 56 x 128 in groups of 4 ran in plain loops, at 5 GFLOP/s; an infinite element stays in its group."""
    made = tiling.plan(hlo.parse(_text(9, channels, features, groups)), machine=MACHINES["avx512"], supports=supports)
    (fusion,) = made.fusions
    nests = [s for s in fusion.schedule.main.steps if isinstance(s, Nest)]
    assert len(nests) == len(fusion.schedule.main.steps) and nests[-1].folds[0].op is fusion.stages[0].op
    assert tiling.prove(fusion).holds
    rng = np.random.default_rng(3)
    x, w = (rng.integers(1, 4, s).astype(np.float32) for s in ((1, 9, 9, channels), (features, channels // groups, 3, 3)))
    executable = codegen.compile(made)
    np.testing.assert_array_equal(executable(x, w)[0], _expected(x, w, groups))
    x[0, 4, 4, 0] = np.inf
    found = executable(x, w)[0]
    assert np.isinf(found[0, 3:6, 3:6, : features // groups]).all() and np.isfinite(found[..., features // groups :]).all()


def _of_experts(rows: int, depth: int, columns: int) -> str:
    """out[m, n] = sum over g, k of (x[m, k] where last[g - 1] <= m < last[g] else 0) * w[g, k, n], as JAX writes `ragged_dot`.

    last[g] is the sum of the sizes of the groups up to g.
    """
    x, w, out, masked = f"{rows}x{depth}", f"8x{depth}x{columns}", f"{rows}x{columns}", f"8x{rows}x{depth}"
    types = f"(tensor<{masked}xi32>, tensor<{masked}xi32>) -> tensor<{masked}xi1>"
    return (
        f"func.func @main(%x: tensor<{x}xf32>, %w: tensor<{w}xf32>, %sizes: tensor<8xi32>) -> tensor<{out}xf32> {{\n"
        "  %none = stablehlo.constant dense<0> : tensor<i32>\n"
        '  %b = "stablehlo.reduce_window"(%sizes, %none) <{base_dilations = array<i64: 1>, padding = dense<[[7, 0]]> : '
        "tensor<1x2xi64>, window_dilations = array<i64: 1>, window_dimensions = array<i64: 8>, "
        "window_strides = array<i64: 1>}> ({\n"
        "  ^bb0(%p: tensor<i32>, %q: tensor<i32>):\n    %s = stablehlo.add %p, %q : tensor<i32>\n"
        "    stablehlo.return %s : tensor<i32>\n  }) : (tensor<8xi32>, tensor<i32>) -> tensor<8xi32>\n"
        "  %one = stablehlo.constant dense<0> : tensor<1xi32>\n"
        "  %but_last = stablehlo.slice %b [0:7] : (tensor<8xi32>) -> tensor<7xi32>\n"
        "  %a = stablehlo.concatenate %one, %but_last, dim = 0 : (tensor<1xi32>, tensor<7xi32>) -> tensor<8xi32>\n"
        f"  %all = stablehlo.broadcast_in_dim %x, dims = [1, 2] : (tensor<{x}xf32>) -> tensor<{masked}xf32>\n"
        f"  %first = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<8xi32>) -> tensor<{masked}xi32>\n"
        f"  %last = stablehlo.broadcast_in_dim %b, dims = [0] : (tensor<8xi32>) -> tensor<{masked}xi32>\n"
        f"  %row = stablehlo.iota dim = 1 : tensor<{masked}xi32>\n"
        f"  %from = stablehlo.compare LE, %first, %row : {types}\n"
        f"  %below = stablehlo.compare LT, %row, %last : {types}\n"
        f"  %is = stablehlo.and %from, %below : tensor<{masked}xi1>\n"
        f"  %zero = stablehlo.constant dense<0.0> : tensor<{masked}xf32>\n"
        f"  %of = stablehlo.select %is, %all, %zero : tensor<{masked}xi1>, tensor<{masked}xf32>\n"
        "  %y = stablehlo.dot_general %of, %w, contracting_dims = [2, 0] x [1, 0] : "
        f"(tensor<{masked}xf32>, tensor<{w}xf32>) -> tensor<{out}xf32>\n  return %y : tensor<{out}xf32>\n}}"
    )


def test_nothing_is_asked_for_where_copied_rows_do_not_stay_in_the_second_cache() -> None:
    """Experts over groups of rows, whose masked copy takes 2.3 MiB a task: asking for weights made them 2.4 times slower."""
    machine = replace(MACHINES["avx512"], l2_bytes=2 << 20, l3_bytes=128 << 20)
    with without("bound_by_numbers"):  # which would leave out the rows of other groups
        made = tiling.plan(hlo.parse(_of_experts(4096, 1024, 512)), machine=machine, supports=supports)
    steps = [s for f in made.fusions for s in f.schedule.main.steps if isinstance(s, Contract)]
    assert steps and all(s.left.buffer.size_bytes > machine.l2_bytes and not s.asks_ahead for s in steps)
