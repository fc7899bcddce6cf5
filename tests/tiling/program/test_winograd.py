"""Convolutions by Winograd's products: which ones, that they mean the same, how they are planned, and what is kept of weights."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.call.kept_packs import KIND
from codegen.launcher import memory
from codegen.supports import supports
from tests.goldens.prints import MACHINES
from tiling.passing import without
from tiling.program.as_module import as_module
from tiling.program.flatten import Program, flatten

NHWC = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"


def convolution(
    image: tuple[int, ...], kernel: tuple[int, ...], result: tuple[int, ...], *, pad: str = "[[1, 1], [1, 1]]", window: str = "",
    dims: str = NHWC, element: str = "f32", precision: str = "DEFAULT", groups: int = 1, after: str = "",
) -> hlo.Module:  # fmt: skip
    x, w, y = (f"tensor<{'x'.join(map(str, s))}x{element}>" for s in (image, kernel, result))
    return hlo.parse(f"""
func.func @main(%x: {x}, %w: {w}) -> {y} {{
  %0 = stablehlo.convolution(%x, %w) dim_numbers = {dims}, window = {{pad = {pad}{window}}}
       {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64,
        precision_config = [#stablehlo<precision {precision}>, #stablehlo<precision DEFAULT>]}} : ({x}, {w}) -> {y}
  {after}
  return %{1 if after else 0} : {y}
}}""")


def same(side: int, channels: int, features: int, **more: str) -> hlo.Module:
    """A window of 3 x 3 over a square image, whose result is as large."""
    return convolution((1, side, side, channels), (3, 3, channels, features), (1, side, side, features), **more)  # type: ignore[arg-type]


def program(module: hlo.Module) -> Program:
    return flatten(module, "main", supports)


def is_winograds(module: hlo.Module) -> bool:
    names = [op.name for op in program(module).ops]
    assert ("stablehlo.convolution" in names) != ("stablehlo.dot_general" in names)
    return "stablehlo.dot_general" in names


def integers(module: hlo.Module, seed: int = 0) -> list[np.ndarray]:
    """Arrays of small integers: sums, and quarters of weights, are exact in any order."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, v.shape).astype(np.float32) for v in module.entry.arguments]


WHICH = {
    "64 channels": (same(20, 64, 64), True),
    "more features": (same(20, 64, 128), True),
    "few channels": (same(20, 8, 64), False),
    "few features, no two vectors of them": (same(20, 40, 40), False),
    "weights that are more than the image": (same(7, 512, 512), False),
    "the highest precision": (same(20, 64, 64, precision="HIGHEST"), False),
    "a stride": (
        convolution((1, 20, 20, 64), (3, 3, 64, 64), (1, 10, 10, 64), window=", stride = [2, 2]", pad="[[0, 1], [0, 1]]"), False
    ),
    "holes": (same(20, 64, 64, window=", rhs_dilate = [2, 2]", pad="[[2, 2], [2, 2]]"), False),
    "groups": (convolution((1, 20, 20, 64), (3, 3, 32, 64), (1, 20, 20, 64), groups=2), False),
    "a window that runs backwards": (same(20, 64, 64, window=", reverse = [1, 1]"), False),
    "five columns": (convolution((1, 20, 20, 64), (3, 5, 64, 64), (1, 20, 20, 64), pad="[[1, 1], [2, 2]]"), False),
    "double precision": (same(20, 64, 64, element="f64"), False),
    "half precision": (same(20, 64, 64, element="bf16"), False),
    "an image cut at its edges": (
        convolution((1, 24, 24, 64), (3, 3, 64, 64), (1, 20, 20, 64), pad="[[-1, -1], [-1, -1]]"), False
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WHICH)
def test_which_convolutions_take_fewer_products(name: str) -> None:
    module, expected = WHICH[name]
    assert is_winograds(module) == expected


SHAPES = {
    "even": same(16, 64, 64),
    "odd": same(15, 64, 96),
    "no edges": convolution((1, 18, 17, 64), (3, 3, 64, 64), (1, 16, 15, 64), pad="[[0, 0], [0, 0]]"),
    "wide edges": convolution((1, 12, 13, 64), (3, 3, 64, 64), (1, 15, 14, 64), pad="[[3, 2], [0, 3]]"),
    "two images": convolution((2, 9, 16, 64), (3, 3, 64, 64), (2, 9, 16, 64)),
    "one row": convolution((1, 2, 60, 64), (3, 3, 64, 64), (1, 2, 60, 64)),
    "features first": convolution(
        (1, 16, 16, 64), (96, 64, 3, 3), (1, 16, 16, 96), dims="[b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f]"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_the_products_mean_the_window(name: str) -> None:
    """To the bit, where nothing is rounded."""
    module = SHAPES[name]
    assert is_winograds(module)
    made = as_module(program(module), module)
    hlo.verify(made)
    for seed in range(2):
        arrays = integers(module, seed)
        (expected,), (found,) = interp.evaluate(module, *arrays), interp.evaluate(made, *arrays)
        assert np.array_equal(expected, found)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["even", "odd", "two images", "wide edges"])
def test_kernels_are_right_and_proved(name: str, machine: str) -> None:
    module = SHAPES[name]
    plan = tiling.plan(module, machine=MACHINES[machine], supports=supports)
    arrays = integers(module)
    (expected,), (found,) = interp.evaluate(module, *arrays), codegen.compile(plan)(*arrays)
    assert np.array_equal(expected, found)
    proof = tiling.prove(plan)
    assert proof.holds, str(proof)


RELU = """%z = stablehlo.constant dense<0.0> : tensor<1x56x56x64xf32>
  %1 = stablehlo.maximum %0, %z : tensor<1x56x56x64xf32>"""


def test_transforms_and_products_are_one_kernel_where_tiles_fit() -> None:
    """Rows of tiles: what is transformed, the products and the results of a few rows stay in a core's cache."""
    machine = tiling.Machine(cores=2, vector_bytes=64, vector_registers=32)
    plan = tiling.plan(same(56, 64, 64, after=RELU), machine=machine)
    weights, whole = plan.fusions
    assert [s.op.name for s in weights.stages] == ["stablehlo.concatenate"]
    assert [s.op.name.split(".")[1] for s in whole.stages] == ["concatenate", "dot_general", "maximum"]
    assert whole.tile_sizes[1] < 56 and whole.tile_sizes[1] % 2 == 0


def test_rounding_is_that_of_the_window() -> None:
    """In proportion to the largest result, against f64; the plain sum's own error is the measure."""
    rng = np.random.default_rng(3)
    module = same(24, 96, 64)
    arrays = [rng.standard_normal(v.shape).astype(np.float32) for v in module.entry.arguments]
    (exact,) = interp.evaluate(same(24, 96, 64, element="f64"), *(a.astype(np.float64) for a in arrays))
    (found,) = codegen.compile(module)(*arrays)
    with without("winograd_convolutions"):
        (plain,) = codegen.compile(tiling.plan(module))(*arrays)
    errors = [np.abs(a - exact).max() / np.abs(exact).max() for a in (found, plain)]
    assert errors[0] <= max(2 * errors[1], 2e-6), errors


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_within_its_tiles(value: float) -> None:
    """Everywhere where the window sees it, and nowhere but in results that share a tile of 2 x 2 with these."""
    module = same(16, 64, 64)
    x, w = integers(module)
    spoilt = x.copy()
    spoilt[0, 6, 9, 5] = value
    (clean,), (found,) = codegen.compile(module)(x, w), codegen.compile(module)(spoilt, w)
    touched = np.zeros((16, 16), bool)
    touched[4:8, 8:12] = True  # the tiles of rows 5 to 7 and columns 8 to 10
    assert not np.isfinite(found[0, 5:8, 8:11][:, :, (w[:, :, 5] != 0).all((0, 1))]).any()
    assert np.array_equal(found[0][~touched], clean[0][~touched])
    with without("winograd_convolutions"):
        (plain,) = codegen.compile(tiling.plan(module))(spoilt, w)
    assert np.array_equal(np.isfinite(plain).all(-1)[0], ~np.pad(np.ones((3, 3), bool), ((5, 8), (8, 5))))


class Owner:
    """An object that owns an array's elements."""


def test_transformed_weights_are_kept_for_calls_with_the_same_ones() -> None:
    module = same(14, 128, 128)
    executable = codegen.compile(tiling.plan(module, machine=MACHINES["avx2"], supports=supports), threads=2)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(v.shape).astype(np.float32) for v in module.entry.arguments)
    (expected,) = executable(x, w)
    owners = [None, Owner()]
    assert executable._packs.packs, "the weights' transform is no step that is kept"
    for _ in range(3):
        (found,) = executable.call_owned((x, w), owners.__getitem__)
        assert np.array_equal(found, expected)
    assert memory.pool.count(KIND).live_bytes >= 16 * 128 * 128 * 4
    (other,) = executable.call_owned((x, 2 * w), [None, Owner()].__getitem__)
    assert np.array_equal(other, 2 * expected)


def test_an_image_is_transformed_at_each_call() -> None:
    """What is kept is a product's right factor: an argument that is convolved is not."""
    module = same(14, 128, 128)
    executable = codegen.compile(tiling.plan(module, machine=MACHINES["avx2"], supports=supports), threads=2)
    assert all(p.arguments == (1,) for p in executable._packs.packs)


def test_the_pass_may_be_left_out() -> None:
    with without("winograd_convolutions"):
        assert not is_winograds(same(20, 64, 64))


def test_the_next_convolution_reads_what_the_first_has_written() -> None:
    """A result of which windows read each element several times is kept, and not computed by each of them."""
    t = "tensor<1x24x24x64xf32>"
    module = hlo.parse(f"""
func.func @main(%x: {t}, %w: tensor<3x3x64x64xf32>, %v: tensor<3x3x64x64xf32>) -> {t} {{
  %z = stablehlo.constant dense<0.0> : {t}
  %a = stablehlo.convolution(%x, %w) dim_numbers = {NHWC}, window = {{pad = [[1, 1], [1, 1]]}}
       {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({t}, tensor<3x3x64x64xf32>) -> {t}
  %b = stablehlo.maximum %a, %z : {t}
  %c = stablehlo.convolution(%b, %v) dim_numbers = {NHWC}, window = {{pad = [[1, 1], [1, 1]]}}
       {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({t}, tensor<3x3x64x64xf32>) -> {t}
  return %c : {t}
}}""")
    plan = tiling.plan(module, machine=MACHINES["avx2"], supports=supports)
    stages = [s.op.name.split(".")[1] for f in plan.fusions for s in f.stages]
    assert stages.count("maximum") == 1 and stages.count("dot_general") == 2 and len(stages) <= 8, stages
    arrays = integers(module)
    (expected,), (found,) = interp.evaluate(module, *arrays), codegen.compile(plan)(*arrays)
    assert np.array_equal(expected, found)


def test_images_side_by_side_are_put_into_memory_before_windows_read_them() -> None:
    """Each of the 16 reads of a tile asked whose element it reads: a U-Net's way up took 1.5 of the plain sum's time on AVX2."""
    t, u = "tensor<1x20x20x32xf32>", "tensor<1x20x20x64xf32>"
    module = hlo.parse(f"""
func.func @main(%x: {t}, %y: {t}, %w: tensor<3x3x64x64xf32>) -> {u} {{
  %a = stablehlo.concatenate %x, %y, dim = 3 : ({t}, {t}) -> {u}
  %0 = stablehlo.convolution(%a, %w) dim_numbers = {NHWC}, window = {{pad = [[1, 1], [1, 1]]}}
       {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({u}, tensor<3x3x64x64xf32>) -> {u}
  return %0 : {u}
}}""")
    plan = tiling.plan(module, machine=MACHINES["avx2"], supports=supports)
    assert next(s.values[0].shape for f in plan.fusions for s in f.stages) == (1, 20, 20, 64)
    arrays = integers(module)
    (expected,), (found,) = interp.evaluate(module, *arrays), codegen.compile(plan)(*arrays)
    assert np.array_equal(expected, found)
