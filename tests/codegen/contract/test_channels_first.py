"""Convolutions with channels first: what is packed where, and loops that count their windows in steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
import interp
from hlo.types import element_type
from tests.goldens.prints import MACHINES
from tiling.loops.ir import Contract, LoopKind, Nest, Schedule
from tiling.loops.names import Names
from tiling.lower.placing import FusionRequest
from tiling.machine import Machine
from tiling.pipeline import finished
from tiling.planning.forms import lower
from tiling.planning.model import Fusion
from tiling.planning.plan import plan
from tiling.proving.obligations import prove


def convolution(channels: tuple[int, int], side: int, stride: int = 1, spread: int = 1, element: str = "f32",
                window: int = 3) -> str:  # fmt: skip
    """A 3 x 3 window, or one of one element, with padding such that stride 1 keeps the size."""
    pad = spread if window == 3 else 0
    n = (side + 2 * pad - ((window - 1) * spread + 1)) // stride + 1
    x, w = f"tensor<2x{channels[0]}x{side}x{side}x{element}>", f"tensor<{channels[1]}x{channels[0]}x{window}x{window}x{element}>"
    r = f"tensor<2x{channels[1]}x{n}x{n}x{element}>"
    return f"""func.func @main(%a: {x}, %b: {w}) -> {r} {{
      %r = "stablehlo.convolution"(%a, %b) {{
        window_strides = array<i64: {stride}, {stride}>, padding = dense<{pad}> : tensor<2x2xi64>,
        lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: {spread}, {spread}>,
        window_reversal = array<i1: false, false>, dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>,
        feature_group_count = 1 : i64, batch_group_count = 1 : i64
      }} : ({x}, {w}) -> {r}
      return %r : {r} }}"""


def fusion_of(module: hlo.Module) -> Fusion:
    (found,) = (s for s in plan(module).steps if isinstance(s, Fusion))
    return found


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("sizes", [(16, 40, 14, 1, 1), (24, 30, 15, 2, 1), (16, 50, 13, 1, 3), (8, 32, 17, 2, 2)])
def test_agreement(sizes: tuple[int, int, int, int, int], element: str) -> None:
    inputs, outputs, side, stride, spread = sizes
    module, rng = hlo.parse(convolution((inputs, outputs), side, stride, spread, element)), np.random.default_rng(0)
    arrays = [rng.standard_normal(v.shape).astype(element_type(element).dtype) for v in module.entry.arguments]
    (found,), (expected,) = codegen.compile(module)(*arrays), interp.evaluate(module, *arrays)
    wide = expected.astype(np.float64)
    limit = (2e-5 if element == "f32" else 1e-2) * np.abs(wide).max()
    np.testing.assert_allclose(found.astype(np.float64), wide, rtol=0, atol=limit)


@pytest.mark.machine("avx512")
def test_weights_that_are_widened_are_packed_once_in_a_task() -> None:
    """Found by a survey of layers: each row of the image widened all weights of a bfloat16 convolution again."""
    steps = fusion_of(hlo.parse(convolution((64, 64), 28, element="bf16"))).schedule.main.steps
    (product,) = (s for s in steps if isinstance(s, Contract))
    assert prod_of(product) > 1 and not product.pack
    assert any(isinstance(s, Nest) and s.stores[0].buffer is product.left.buffer for s in steps)


def prod_of(product: Contract) -> int:
    """How often a task calls the micro-kernel."""
    return int(np.prod([x.extent for x in product.loops]))


@pytest.mark.machine("avx512")
def test_a_tile_of_channels_that_is_cut_is_a_product() -> None:
    """Found by a survey of layers: weights were tested for padding where the last tile had fewer channels, in plain loops."""
    module = hlo.parse(convolution((64, 256), 33, spread=12))
    stages = fusion_of(module).stages
    names = Names([*module.entry.arguments, *(v for s in stages for v in s.values)])
    found = lower(FusionRequest(stages, frozenset(stages[-1].values), (1, 24, 1, 33)), Machine.detect(), names)
    assert isinstance(found, Schedule)
    assert any(isinstance(s, Contract) for s in found.main.steps)


def test_a_window_that_moves_by_two_is_not_tested_for_each_element() -> None:
    source = codegen.compile(hlo.parse(convolution((64, 64), 28, stride=2))).source
    assert "<= 2*i3" not in source and "2*i3 + k <=" not in source and "2*i3 + k - 1 <=" not in source


@pytest.mark.parametrize("element", ["f32", "bf16", "i32"])
@pytest.mark.parametrize("side", [5, 7, 14, 20])
def test_small_images(side: int, element: str) -> None:
    """A window of one element: the rows of an image lie one after the other, in the result too."""
    module, rng = hlo.parse(convolution((40, 72), side, element=element, window=1)), np.random.default_rng(0)
    arrays = [(9 * rng.standard_normal(v.shape)).astype(element_type(element).dtype) for v in module.entry.arguments]
    (found,), (expected,) = codegen.compile(module)(*arrays), interp.evaluate(module, *arrays)
    wide = expected.astype(np.float64)
    limit = {"f32": 2e-5, "bf16": 1e-2, "i32": 0}[element] * np.abs(wide).max()
    np.testing.assert_allclose(found.astype(np.float64), wide, rtol=0, atol=limit)


@pytest.mark.machine("avx512")
@pytest.mark.parametrize("side", [5, 7, 14])
def test_small_images_are_one_row_of_columns(side: int) -> None:
    """Where tasks have whole images."""
    module = hlo.parse(convolution((40, 72), side, window=1))
    (product,) = (s for s in fusion_of(module).schedule.main.steps if isinstance(s, Contract))
    assert product.n > side and prove(plan(module)).holds


def depthwise(channels: int, side: int, stride: int, window: int) -> str:
    pad = window // 2
    n = (side + 2 * pad - window) // stride + 1
    shapes = (1, channels, side, side), (channels, 1, window, window), (1, channels, n, n)
    x, w, r = (f"tensor<{'x'.join(map(str, s))}xf32>" for s in shapes)
    return f"""func.func @main(%a: {x}, %b: {w}) -> {r} {{
      %r = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
        window = {{stride = [{stride}, {stride}], pad = [[{pad}, {pad}], [{pad}, {pad}]]}}
        {{batch_group_count = 1 : i64, feature_group_count = {channels} : i64}} : ({x}, {w}) -> {r}
      return %r : {r} }}"""


@pytest.mark.parametrize(("channels", "side", "stride", "window"), [(40, 7, 1, 5), (24, 14, 1, 3), (24, 30, 2, 5)])
def test_a_channels_window_over_an_edge_has_no_loop_and_no_mask(channels: int, side: int, stride: int, window: int) -> None:
    """Its few products are one expression in each piece of a row; padding by an infinite weight is NaN there, too."""
    module, rng = hlo.parse(depthwise(channels, side, stride, window)), np.random.default_rng(3)
    made = plan(module, machine=Machine(cores=2, vector_bytes=32, vector_registers=16))
    (fusion,) = (s for s in made.steps if isinstance(s, Fusion))
    final = finished(fusion.schedule)
    assert len(final.phases) == 1 and not final.main.flags
    nests = [s for s in final.main.steps if isinstance(s, Nest)]
    assert {f.products for n in nests for f in n.folds} == {window * window}
    assert all(x.kind is LoopKind.PARALLEL for n in nests for x in n.loops)
    assert prove(made).holds
    x, w = (rng.standard_normal(v.shape).astype(np.float32) for v in module.entry.arguments)
    w[1, 0, 0, 0] = np.inf
    found, expected = (f(x, w)[0] for f in (codegen.Executable(made), lambda *a: interp.evaluate(module, *a)))
    assert np.isnan(expected[0, 1]).any()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_rows_that_read_the_same_weights_run_inside_of_each_block_of_k() -> None:
    """Found in ResNet-18: each row of a small image went through a megabyte of weights; and the last block of k was short."""
    text = convolution((512, 64), 7).replace("[b, f, 0, 1]x", "[b, 0, 1, f]x").replace("->[b, f, 0, 1]>", "->[b, 0, 1, f]>")
    text = text.replace("2x512x7x7", "1x7x7x512").replace("2x64x7x7", "1x7x7x64")
    module = hlo.parse(text)
    machine = replace(MACHINES["avx2"], cores=1)
    (pin,) = plan(module, machine=machine).pins()
    executable = codegen.compile(plan(module, machine=machine, pins=[replace(pin, tile_sizes=(1, 7, 7, 64))]))
    lines = [x.strip() for x in executable.kernels[-1].source.splitlines()]
    (block,) = (k for k, x in enumerate(lines) if x.startswith("for k0 in"))
    assert lines[block - 1 : block + 1] == ["for p0 in range(0, 64, 32):", "for k0 in range(0, 512, 64):"]
    # The next block's weights: of these columns, and of the next ones, where there are any.
    asked = ["if k0 < 448:", "ahead = 1024", "else:", "ahead = min(147456, 147456 - (p0 // 16*73728)) - 7168"]
    assert lines[block + 1 : block + 5] == asked
    assert lines[block + 5].startswith("for i") and lines[block + 6].startswith("gemm_ahead(")
    arrays = [np.random.default_rng(0).integers(-3, 4, v.shape).astype(np.float32) for v in module.entry.arguments]
    np.testing.assert_array_equal(executable(*arrays)[0], interp.evaluate(module, *arrays)[0])
