"""Windows over the edge, channels last: an inside without tests and edges around it, against the evaluator."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tests.pairs import fast_cover
from tiling.loops.spec import faults

INF, NAN = np.float32(np.inf), np.float32(np.nan)


def depthwise(size: tuple[int, int], window: tuple[int, int], pads: list[list[int]], stride: int, dilation: int, n: int) -> str:
    """A convolution of each of n channels with a kernel of its own."""
    spans = [dilation * (w - 1) + 1 for w in window]
    out = [(s + lo + hi - span) // stride + 1 for s, (lo, hi), span in zip(size, pads, spans, strict=True)]
    x, k, y = f"2x{size[0]}x{size[1]}x{n}xf32", f"{window[0]}x{window[1]}x1x{n}xf32", f"2x{out[0]}x{out[1]}x{n}xf32"
    return f"""func.func @main(%x: tensor<{x}>, %k: tensor<{k}>) -> tensor<{y}> {{
      %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{stride = [{stride}, {stride}], pad = {pads}, rhs_dilate = [{dilation}, {dilation}]}}
        {{batch_group_count = 1 : i64, feature_group_count = {n} : i64}} : (tensor<{x}>, tensor<{k}>) -> tensor<{y}>
      return %0 : tensor<{y}>
    }}"""


def pool(size: tuple[int, int], window: tuple[int, int], pads: list[list[int]], stride: int, function: str, n: int) -> str:
    """Maxima or sums of windows of each channel."""
    out = [(s + lo + hi - w) // stride + 1 for s, (lo, hi), w in zip(size, pads, window, strict=True)]
    x, y = f"2x{size[0]}x{size[1]}x{n}xf32", f"2x{out[0]}x{out[1]}x{n}xf32"
    start = "0xFF800000" if function == "maximum" else "0.0"
    return f"""func.func @main(%x: tensor<{x}>) -> tensor<{y}> {{
      %c = stablehlo.constant dense<{start}> : tensor<f32>
      %0 = "stablehlo.reduce_window"(%x, %c) <{{padding = dense<{[[0, 0], *pads, [0, 0]]}> : tensor<4x2xi64>,
        window_dimensions = array<i64: 1, {window[0]}, {window[1]}, 1>,
        window_strides = array<i64: 1, {stride}, {stride}, 1>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %s = stablehlo.{function} %a, %b : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }}) : (tensor<{x}>, tensor<f32>) -> tensor<{y}>
      return %0 : tensor<{y}>
    }}"""


def agrees(text: str, *arrays: np.ndarray, exact: bool = False) -> str:
    """The kernel's source, once its results are the evaluator's."""
    module = hlo.parse(text)
    executable = codegen.compile(module)
    assert not executable.fallbacks
    (found,), (wanted,) = executable(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=0 if exact else 2e-6, atol=0 if exact else 2e-6)
    return executable.source


SIZES = [(9, 11), (4, 30), (2, 2), (1, 17)]
PADS = [[[1, 1], [1, 1]], [[0, 1], [2, 0]], [[0, 0], [1, 1]], [[2, 3], [0, 0]], [[-1, 1], [1, -1]]]


@pytest.mark.parametrize(
    ("size", "pads", "stride", "kind"), fast_cover(itertools.product(SIZES, PADS, (1, 2), ("depthwise", "maximum", "add")))
)
def test_windows_of_three(size: tuple[int, int], pads: list[list[int]], stride: int, kind: str) -> None:
    if any(s + lo + hi < 3 for s, (lo, hi) in zip(size, pads, strict=True)):
        size = (size[0] + 3, size[1] + 3)
    rng = np.random.default_rng(size[1] + stride)
    x = rng.standard_normal((2, *size, 40)).astype(np.float32)
    x[0, 0, 0, :3], x[1, -1, -1, 5:8] = (NAN, INF, -INF), (-0.0, NAN, INF)
    k = rng.standard_normal((3, 3, 1, 40)).astype(np.float32)
    k[0, 0, 0, 11], k[2, 2, 0, 12] = INF, NAN  # what padding is multiplied by is no number
    if kind == "depthwise":
        agrees(depthwise(size, (3, 3), pads, stride, 1, 40), x, k)
    else:
        agrees(pool(size, (3, 3), pads, stride, kind, 40), x, exact=kind == "maximum")


@pytest.mark.parametrize("stride", [1, 2])
def test_where_a_tile_alone_lies_over_the_edge_the_loops_keep_their_rules(stride: int) -> None:
    """The first axis has a tile a row: what asks for it depends on no loop, and becomes a loop of one iteration or none."""
    plan = tiling.plan(hlo.parse(depthwise((28, 28), (3, 3), [[1, 1], [1, 1]], stride, 1, 192)), machine=tiling.Machine(cores=2))
    (schedule,) = (tiling.pipeline.finished(f.schedule) for f in plan.fusions)
    assert "for whole in" in str(schedule)
    assert faults(schedule) == []


LARGER = [((5, 5), 1, 1), ((7, 7), 1, 2), ((3, 3), 2, 1), ((1, 9), 1, 1), ((2, 4), 3, 2)]


@pytest.mark.parametrize(("window", "dilation", "stride"), LARGER)
def test_larger_windows(window: tuple[int, int], dilation: int, stride: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 20, 23, 24)).astype(np.float32)
    k = rng.standard_normal((*window, 1, 24)).astype(np.float32)
    pads = [[(w - 1) * dilation // 2, (w - 1) * dilation - (w - 1) * dilation // 2] for w in window]
    agrees(depthwise((20, 23), window, pads, stride, dilation, 24), x, k)
    if dilation == 1:
        agrees(pool((20, 23), window, pads, stride, "maximum", 24), x, exact=True)


def test_the_inside_asks_nothing_and_sums_in_a_register() -> None:
    x, k = np.ones((2, 40, 40, 32), np.float32), np.ones((3, 3, 1, 32), np.float32)
    source = agrees(depthwise((40, 40), (3, 3), [[1, 1], [1, 1]], 1, 1, 32), x, k)
    inside = source[source.rindex("for i2 in") :]
    assert "if " not in inside.replace("reduce_fma", "") and inside.count("reduce_fma(a") == 18  # of two windows: 38 are inside
    source = agrees(pool((40, 40), (3, 3), [[1, 1], [1, 1]], 1, "maximum", 32), x, exact=True)
    inside = source[source.rindex("for i2 in") :]
    assert "if " not in inside and "reduce_maximum" not in inside and inside.count("maximum(") == 8


@pytest.mark.machine("avx512")
@pytest.mark.parametrize(("size", "pads"), [((28, 28), [[1, 1], [1, 1]]), ((28, 30), [[0, 2], [1, 0]])])
def test_branches_over_one_image_have_an_inside_together(size: tuple[int, int], pads: list[list[int]]) -> None:
    """Windows of the same image whose sums are one loop: a block with several branches, before it is made one for inference."""
    one = depthwise(size, (3, 3), pads, 1, 1, 128)
    head, tail = one[: one.index("%0 =")], one[one.index("stablehlo.convolution") : one.index("return")].strip()
    kernel = "2x" + one.split("-> tensor<2x")[1].split(">")[0]
    text = head.replace("%k:", "%k1: tensor<3x3x1x128xf32>, %k2: tensor<3x3x1x128xf32>, %k:") + f"""
      %a = {tail}
      %b = {tail.replace("%k)", "%k1)")}
      %c = {tail.replace("%k)", "%k2)")}
      %d = stablehlo.multiply %a, %b : tensor<{kernel}>
      %e = stablehlo.maximum %d, %c : tensor<{kernel}>
      return %e : tensor<{kernel}>
    }}"""
    rng = np.random.default_rng(11)
    x, kernels = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((2, *size, 128), (3, 3, 3, 1, 128)))
    source = agrees(text, x, *kernels, exact=True)
    assert source.count("reduce_fma") > 27, "nine products of each of three windows side by side"
    assert tiling.prove(tiling.plan(hlo.parse(text))).holds


@pytest.mark.machine("avx512")
@pytest.mark.parametrize("pads", [[[0, 1], [0, 1]], [[1, 1], [1, 1]]])
def test_rows_that_step_over_elements_read_none_under_a_condition(pads: list[list[int]]) -> None:
    """Channels first: an edge cuts the innermost loop, too; only where its reads step over elements other loops are cut."""
    stride, rng = 2, np.random.default_rng(2)
    text = depthwise((112, 110), (3, 3), pads, stride, 1, 32)
    text = text.replace("b, 0, 1, f", "b, f, 0, 1").replace("0, 1, i, o", "o, i, 0, 1")
    text = text.replace("2x112x110x32xf32", "2x32x112x110xf32").replace("3x3x1x32xf32", "32x1x3x3xf32")
    rows, columns = ((n + sum(p) - 3) // stride + 1 for n, p in zip((112, 110), pads, strict=True))
    text = text.replace(f"2x{rows}x{columns}x32xf32", f"2x32x{rows}x{columns}xf32")
    x, k = rng.standard_normal((2, 32, 112, 110)).astype(np.float32), rng.standard_normal((32, 1, 3, 3)).astype(np.float32)
    x[0, 0, 0, :3], x[1, -1, -1, 5:8], k[2, 0, 0, 0], k[3, 0, 2, 2] = (NAN, INF, -INF), (-0.0, NAN, INF), INF, NAN
    source = agrees(text, x, k)
    assert "if " not in source[source.rindex("for i2 in") :]


@pytest.mark.parametrize(("pads", "rows"), fast_cover(itertools.product(PADS, (5, 6, 7)), strength=1))
def test_parts_cover_each_element_once(pads: list[list[int]], rows: int) -> None:
    """Sums that go on from what is stored would tell: every result is written by one part alone, whatever the tiles."""
    x = np.arange(2 * rows * 9 * 16, dtype=np.float32).reshape(2, rows, 9, 16)
    agrees(pool((rows, 9), (3, 3), pads, 1, "add", 16), x)


def test_where_no_window_is_whole_nothing_is_cut() -> None:
    source = agrees(pool((2, 9), (5, 3), [[2, 2], [1, 1]], 1, "maximum", 16), np.ones((2, 2, 9, 16), np.float32), exact=True)
    assert source.count("reduce_maximum") == 1 and "= maximum(" not in source


CROSS = """func.func @main(%x: tensor<2x17x9x40xf32>) -> tensor<2x17x9x40xf32> {
  %z = stablehlo.constant dense<0.5> : tensor<f32>
  %n = stablehlo.negate %x : tensor<2x17x9x40xf32>
  %p = stablehlo.pad %n, %z, low = [0, 1, 2, 0], high = [0, 1, 1, 0], interior = [0, 0, 0, 0] :
      (tensor<2x17x9x40xf32>, tensor<f32>) -> tensor<2x19x12x40xf32>
  %a = stablehlo.slice %p [0:2, 0:17, 2:11, 0:40] : (tensor<2x19x12x40xf32>) -> tensor<2x17x9x40xf32>
  %b = stablehlo.slice %p [0:2, 2:19, 0:9, 0:40] : (tensor<2x19x12x40xf32>) -> tensor<2x17x9x40xf32>
  %c = stablehlo.slice %p [0:2, 1:18, 3:12, 0:40] : (tensor<2x19x12x40xf32>) -> tensor<2x17x9x40xf32>
  %s = stablehlo.add %a, %b : tensor<2x17x9x40xf32>
  %y = stablehlo.subtract %s, %c : tensor<2x17x9x40xf32>
  return %y : tensor<2x17x9x40xf32>
}"""


def test_stores_whose_rows_several_edges_surround_have_an_inside() -> None:
    """LLVM made masks of four conditions that a row does not change: heat in three dimensions took 3.0 ms, now 1.7."""
    x = np.random.default_rng(3).standard_normal((2, 17, 9, 40)).astype(np.float32)
    source = agrees(CROSS, x, exact=True)
    inside = source[source.rindex("for i1") :]
    assert "if " in source and "if " not in inside and "i1 in range(1, 16)" in inside
    (fusion,) = tiling.plan(hlo.parse(CROSS), supports=codegen.supports).fusions
    assert tiling.prove(fusion).holds and not faults(fusion.schedule)


def test_one_edge_is_the_compilers() -> None:
    text = CROSS.replace("low = [0, 1, 2, 0], high = [0, 1, 1, 0]", "low = [0, 1, 0, 0], high = [0, 1, 0, 0]")
    text = text.replace("12x40", "9x40").replace("2:11", "0:9").replace("3:12", "0:9")
    text = text.replace("%p [0:2, 2:19", "%p [0:2, 0:17").replace("%p [0:2, 1:18", "%p [0:2, 0:17")
    x = np.random.default_rng(3).standard_normal((2, 17, 9, 40)).astype(np.float32)
    assert agrees(text, x, exact=True).count("for i1") == 1


@pytest.mark.parametrize("channels", [16, 24])
def test_rows_side_by_side_are_cut_beside_places_known_at_run_time(channels: int) -> None:
    """An image that is made larger beside another one: each channel asked whose it is, and AVX2 computed them one by one."""
    x, y, g, r = (f"tensor<{n}x{k}xf32>" for n, k in ((8, channels), (16, 40), (16, channels), (16, channels + 40)))
    text = f"""func.func @main(%x: {x}, %i: tensor<16xi32>, %y: {y}) -> {r} {{
  %c = stablehlo.reshape %i : (tensor<16xi32>) -> tensor<16x1xi32>
  %g = "stablehlo.gather"(%x, %c) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, {channels}>}}> : ({x}, tensor<16x1xi32>) -> {g}
  %e = stablehlo.exponential %g : {g}
  %r = stablehlo.concatenate %e, %y, dim = 1 : ({g}, {y}) -> {r}
  return %r : {r}
}}"""
    rng = np.random.default_rng(channels)
    rows, others = (rng.standard_normal(n).astype(np.float32) for n in ((8, channels), (16, 40)))
    source = agrees(text, rows, rng.integers(-2, 10, 16).astype(np.int32), others)
    assert "if " not in source and source.count("for i1") == 2
    (fusion,) = tiling.plan(hlo.parse(text), supports=codegen.supports).fusions
    assert tiling.prove(fusion).holds


def test_edges_of_a_row_are_no_parts_beside_places_known_at_run_time() -> None:
    """States of a scan that read their neighbours: rows of 65 became 1, 1 and 63, without vectors."""
    row = "tensor<65xf32>"
    text = f"""func.func @main(%x: {row}, %w: tensor<8x65xf32>, %i: tensor<i32>) -> {row} {{
  %z = stablehlo.constant dense<-1.0> : tensor<f32>
  %o = stablehlo.constant dense<0> : tensor<i32>
  %p = stablehlo.pad %x, %z, low = [1], high = [-1], interior = [0] : ({row}, tensor<f32>) -> {row}
  %e = stablehlo.exponential %p : {row}
  %s = stablehlo.dynamic_slice %w, %i, %o, sizes = [1, 65] : (tensor<8x65xf32>, tensor<i32>, tensor<i32>) -> tensor<1x65xf32>
  %r = stablehlo.reshape %s : (tensor<1x65xf32>) -> {row}
  %y = stablehlo.multiply %e, %r : {row}
  return %y : {row}
}}"""
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal(65).astype(np.float32), rng.standard_normal((8, 65)).astype(np.float32)
    assert agrees(text, x, w, np.int32(9)).count("for i0") == 1


def image_filter(element: str, channels: int, groups: int, n: int, m: int) -> str:
    """A window of 3 x 3 over an image: several results of one channel, or each channel for itself."""
    given, own = (channels, 1) if groups > 1 else (1, 1)
    x, k, y = f"1x{n}x{m}x{given}x{element}", f"3x3x{own}x{channels}x{element}", f"1x{n}x{m}x{channels}x{element}"
    return f"""func.func @main(%x: tensor<{x}>, %k: tensor<{k}>) -> tensor<{y}> {{
      %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{stride = [1, 1], pad = [[1, 1], [1, 1]]}}
        {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} : (tensor<{x}>, tensor<{k}>) -> tensor<{y}>
      return %0 : tensor<{y}>
    }}"""


@pytest.mark.parametrize(("element", "channels", "groups"), [
    ("f32", 2, 1), ("f32", 3, 3), ("i32", 1, 1), ("i32", 3, 3), ("i32", 2, 1), ("f64", 3, 1),
])  # fmt: skip
def test_a_filter_of_few_channels_is_written_out_along_pixels(element: str, channels: int, groups: int) -> None:
    """Sobel's two directions, a blur of colours, and filters of whole numbers, whose windows had bounds for each pixel."""
    n, m = 12, 70
    rng = np.random.default_rng(channels)
    dtype = hlo.element_type(element).dtype
    x = rng.integers(-9, 9, (1, n, m, channels if groups > 1 else 1)).astype(dtype)
    k = rng.integers(-3, 3, (3, 3, 1, channels)).astype(dtype)
    source = agrees(image_filter(element, channels, groups, n, m), x, k, exact=True)
    assert not re.search(r"for r\d+ in", source), source  # nine products one after the other, no loop over them


@pytest.mark.parametrize(("rows", "steps"), [(30, 3), (9, 2), (4, 4)])
def test_rows_that_come_in_from_the_other_end_have_loops_of_their_own(rows: int, steps: int) -> None:
    """x + roll(x, 1, 0), again and again: which rows come from the end was asked in the innermost loop, several times."""
    t, lines, last = f"tensor<{rows}x40xf32>", list[str](), "%x"
    for k in range(steps):
        lines += [
            f"%a{k} = stablehlo.slice {last} [{rows - 1}:{rows}, 0:40] : ({t}) -> tensor<1x40xf32>",
            f"%b{k} = stablehlo.slice {last} [0:{rows - 1}, 0:40] : ({t}) -> tensor<{rows - 1}x40xf32>",
            f"%r{k} = stablehlo.concatenate %a{k}, %b{k}, dim = 0 : (tensor<1x40xf32>, tensor<{rows - 1}x40xf32>) -> {t}",
            f"%s{k} = stablehlo.add {last}, %r{k} : {t}",
            f"%m{k} = stablehlo.abs %s{k} : {t}",
        ]
        last = f"%m{k}"
    body = "\n  ".join(lines)
    x = np.random.default_rng(0).integers(-9, 9, (rows, 40)).astype(np.float32)
    source = agrees(f"func.func @main(%x: {t}) -> {t} {{\n  {body}\n  return {last} : {t} }}", x, exact=True)
    assert rows < 9 or "if " not in source, source


def test_a_window_as_wide_as_its_row_leaves_out_the_padding() -> None:
    """Sums of 99 on either side of 100 pixels of three colours: half of all products are padding, which bounds leave out."""
    x, k = "1x100x3xf32", "199x1x3xf32"
    module = hlo.parse(f"""func.func @main(%x: tensor<{x}>) -> tensor<{x}> {{
      %k = stablehlo.constant dense<1.0> : tensor<{k}>
      %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
        window = {{stride = [1], pad = [[99, 99]]}}
        {{batch_group_count = 1 : i64, feature_group_count = 3 : i64}} : (tensor<{x}>, tensor<{k}>) -> tensor<{x}>
      return %0 : tensor<{x}>
    }}""")
    machine = tiling.Machine(cores=1, vector_bytes=64, vector_registers=32)
    executable = codegen.compile(tiling.plan(module, machine=machine, supports=codegen.supports))
    given = np.random.default_rng(0).integers(-9, 9, (1, 100, 3)).astype(np.float32)
    np.testing.assert_array_equal(executable(given)[0], interp.evaluate(module, given)[0])
    assert re.search(r"for r\d+ in range\(-i\d+ \+ 99, -i\d+ \+ 199\)", executable.source), executable.source
