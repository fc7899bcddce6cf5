"""Kernels that stream through memory: reductions in any shape, extrema of awkward numbers, conversions at their edges."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

import codegen
import hlo
import interp
from tests.pairs import fast_cover

NAN, INF = float("nan"), float("inf")
AWKWARD = [INF, -INF, 0.0, -0.0, 1e-45, -1e-45, 1.5, -1.5, 3e38, -3e38]
KINDS = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
SMALLEST = {"f32": "0xFF800000", "f64": "0xFFF0000000000000", "f16": "0xFC00", "bf16": "0xFF80"}
LARGEST = {"f32": "0x7F800000", "f64": "0x7FF0000000000000", "f16": "0x7C00", "bf16": "0x7F80"}


def reduction(element: str, shape: tuple[int, ...], axes: tuple[int, ...], function: str, start: str) -> str:
    """A program that folds `shape` over `axes` from `start`."""
    kept = [str(n) for k, n in enumerate(shape) if k not in axes]
    source, result = "x".join([*map(str, shape), element]), "x".join([*kept, element])
    return f"""func.func @main(%x: tensor<{source}>) -> tensor<{result}> {{
      %c = stablehlo.constant dense<{start}> : tensor<{element}>
      %0 = stablehlo.reduce(%x init: %c) applies stablehlo.{function} across dimensions = {list(axes)}
        : (tensor<{source}>, tensor<{element}>) -> tensor<{result}>
      return %0 : tensor<{result}>
    }}"""


def same(text: str, *arrays: np.ndarray, rtol: float = 0.0) -> codegen.Executable:
    """Runs a program on one thread and on two: equal bits, the evaluator's values, and without `rtol` its signs of zeros."""
    module = hlo.parse(text)
    executable = codegen.compile(module)
    assert not executable.fallbacks
    alone = codegen.compile(module, threads=1)(*arrays)
    for found, other, wanted in zip(executable(*arrays), alone, interp.evaluate(module, *arrays), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        assert found.tobytes() == other.tobytes()
        if found.dtype.kind in "iub":
            np.testing.assert_array_equal(found, wanted)
            continue
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
        if not rtol:
            np.testing.assert_array_equal(np.signbit(a[~np.isnan(b)]), np.signbit(b[~np.isnan(b)]))
    return executable


@pytest.mark.parametrize(
    ("element", "function", "axis"), fast_cover(itertools.product(["f32", "f64", "f16", "bf16"], ["maximum", "minimum"], [0, 1]))
)
def test_extrema_of_nan_infinities_and_zeros(element: str, function: str, axis: int) -> None:
    with np.errstate(over="ignore"):
        x = np.random.default_rng(3).choice(np.array(AWKWARD), (40, 70)).astype(KINDS[element])
    x[3] = -0.0
    x[4] = np.where(np.arange(70) == 69, 0.0, -0.0)
    x[5, 11], x[6, 69], x[7, 0] = -NAN, NAN, -NAN
    start = (SMALLEST if function == "maximum" else LARGEST)[element]
    same(reduction(element, (40, 70), (axis,), function, start), x)


@pytest.mark.parametrize("start", [NAN, 2.0, -0.0])
def test_extrema_start_from_their_initial_value(start: float) -> None:
    text = reduction("f32", (9, 33), (1,), "maximum", repr(start) if start == start else "0x7FC00000")
    x = -np.abs(np.random.default_rng(1).standard_normal((9, 33), np.float32))
    x[4] = -0.0
    same(text, x)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((16, 9, 8, 8), (0, 2, 3)), ((128, 64, 33), (0, 1, 2)), ((7, 5, 3), (1, 2)), ((70, 64, 48), (0, 1)), ((8, 40000), (0, 1)),
     ((3000, 20), (1,)), ((40, 17, 130), (2,)), ((500, 300), (0, 1))],
)  # fmt: skip
def test_sums_and_maxima_over_several_axes(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).standard_normal(shape, np.float32)
    same(reduction("f32", shape, axes, "add", "0.0"), x, rtol=2e-4)
    same(reduction("f32", shape, axes, "maximum", SMALLEST["f32"]), x)


@pytest.mark.machine("avx512")
def test_loops_that_walk_on_through_memory_are_one() -> None:
    text = reduction("f32", (6, 10, 12, 14), (2, 3), "add", "0.0")
    source = same(text, np.random.default_rng(5).standard_normal((6, 10, 12, 14), np.float32), rtol=1e-5).source
    assert "range(168)" in source
    text = "func.func @main(%x: tensor<6x5x4x3xf32>) -> tensor<6x5x4x3xf32> {\n  %0 = stablehlo.tanh %x : tensor<6x5x4x3xf32>\n"
    source = same(text + "  return %0 : tensor<6x5x4x3xf32>\n}", np.ones((6, 5, 4, 3), np.float32), rtol=1e-6).source
    assert "range(360)" in source


def test_loops_stay_apart_where_a_value_depends_on_one_of_them() -> None:
    text = """func.func @main(%x: tensor<6x5x8xf32>, %b: tensor<5xf32>) -> tensor<6x5x8xf32> {
      %0 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<5xf32>) -> tensor<6x5x8xf32>
      %1 = stablehlo.iota dim = 2 : tensor<6x5x8xf32>
      %2 = stablehlo.add %x, %0 : tensor<6x5x8xf32>
      %3 = stablehlo.multiply %2, %1 : tensor<6x5x8xf32>
      return %3 : tensor<6x5x8xf32>
    }"""
    generator = np.random.default_rng(6)
    same(text, generator.standard_normal((6, 5, 8), np.float32), generator.standard_normal(5, np.float32), rtol=1e-6)


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("target", ["i8", "i16", "ui8", "ui16"])
def test_conversions_to_narrow_integers_clamp_and_truncate(source: str, target: str) -> None:
    text = f"""func.func @main(%x: tensor<64x{source}>) -> tensor<64x{target}> {{
      %0 = stablehlo.convert %x : (tensor<64x{source}>) -> tensor<64x{target}>
      return %0 : tensor<64x{target}>
    }}"""
    edges = [s * (2.0**p + d) for s in (-1, 1) for p in (7, 8, 15, 16) for d in (-1.5, -1, -0.5, 0)]
    x = np.zeros(64, KINDS[source])
    values = np.array([*edges, NAN, -NAN, INF, -INF, 0.99, -0.99, 1e30, -1e30, 127.99], KINDS[source])
    x[: values.size] = values
    found = codegen.compile(hlo.parse(text))(x)[0]
    info = np.iinfo(found.dtype)
    np.testing.assert_array_equal(found, np.where(np.isnan(x), 0, np.clip(np.trunc(x), info.min, info.max)).astype(found.dtype))


@pytest.mark.parametrize("rows", [16, 60, 250])
def test_results_of_small_calls_need_no_more_alignment_than_they_get(rows: int) -> None:
    text = f"""func.func @main(%x: tensor<{rows}x64xf32>) -> tensor<{rows}x64xf32> {{
      %0 = stablehlo.multiply %x, %x : tensor<{rows}x64xf32>
      return %0 : tensor<{rows}x64xf32>
    }}"""
    x = np.random.default_rng(8).standard_normal((rows, 64), np.float32)
    executable = codegen.compile(hlo.parse(text))
    kept = [executable(x)[0] for _ in range(20)]
    assert all(np.array_equal(r, x * x) for r in kept)


MOVES = [((64, 48, 80), (2, 1, 0)), ((6, 70, 90), (0, 2, 1)), ((16, 32, 8, 40), (3, 2, 1, 0)), ((3, 64, 20, 17), (0, 2, 3, 1)),
         ((40, 3, 50), (1, 2, 0)), ((33, 17, 5), (2, 0, 1))]  # fmt: skip


@pytest.mark.parametrize(("move", "element"), fast_cover(itertools.product(MOVES, ["f32", "f64", "bf16"]), strength=1))
def test_moves_of_more_than_two_dimensions(move: tuple[tuple[int, ...], tuple[int, ...]], element: str) -> None:
    shape, order = move
    source = "x".join([*map(str, shape), element])
    result = "x".join([*(str(shape[k]) for k in order), element])
    text = f"""func.func @main(%x: tensor<{source}>) -> (tensor<{result}>, tensor<{result}>) {{
      %0 = stablehlo.transpose %x, dims = {list(order)} : (tensor<{source}>) -> tensor<{result}>
      %1 = stablehlo.negate %0 : tensor<{result}>
      return %0, %1 : tensor<{result}>, tensor<{result}>
    }}"""
    same(text, np.random.default_rng(9).standard_normal(shape).astype(KINDS[element]))


@pytest.mark.machine("avx512")
def test_a_reversed_cube_is_turned_in_registers() -> None:
    cube = "tensor<128x64x128xf32>"
    text = f"""func.func @main(%x: {cube}) -> {cube} {{
      %0 = stablehlo.transpose %x, dims = [2, 1, 0] : ({cube}) -> {cube}
      return %0 : {cube}
    }}"""
    executable = same(text, np.random.default_rng(10).standard_normal((128, 64, 128), np.float32))
    assert "transpose(" in executable.source


@pytest.mark.parametrize(
    ("element", "function", "width"),
    fast_cover(itertools.product(["f32", "f64", "f16", "bf16"], ["maximum", "minimum"], [600, 1027])),
)
@pytest.mark.machine("avx512")
def test_long_extrema_by_bounds_of_bits(element: str, function: str, width: int) -> None:
    """Rows long enough for three integer bounds: one sign only, zeros of both signs, NaN with and without a sign."""
    x = np.random.default_rng(4).standard_normal((14, width)).astype(KINDS[element])
    x[1], x[2] = -np.abs(x[1]), np.abs(x[2])
    x[3, 0], x[4, -1] = NAN, -NAN
    x[5], x[6] = -0.0, 0.0
    x[5, 77], x[6, -1] = 0.0, -0.0
    x[7], x[8] = -INF, INF
    x[9] = -np.abs(x[9]) - KINDS[element](1)
    x[9, 3], x[9, 5], x[10, 2], x[11] = -INF, -NAN, INF, NAN
    x[12] = -np.abs(x[12])
    x[12, -1] = -0.0
    start = (SMALLEST if function == "maximum" else LARGEST)[element]
    executable = same(reduction(element, x.shape, (1,), function, start), x)
    assert f"{function}_of_bounds" in executable.kernels[0].source


@pytest.mark.parametrize(
    ("element", "function"), fast_cover(itertools.product(["f32", "f64", "bf16"], ["maximum", "minimum"]), strength=1)
)
@pytest.mark.machine("avx512")
def test_extrema_of_rows_in_memory_by_two_looks(element: str, function: str) -> None:
    """Rows of one sign alone take the second look; a NaN of either sign is found at the first."""
    x = np.random.default_rng(6).standard_normal((2200, 1000)).astype(KINDS[element])
    x[100:300], x[300:500] = -np.abs(x[100:300]), np.abs(x[300:500])
    x[100, 3], x[101, 999], x[102, 0], x[103, 17] = -NAN, NAN, -INF, INF
    x[300, 3], x[301, 999], x[302, 0], x[303, 17] = -NAN, NAN, -INF, INF
    x[0, 5], x[1, 6] = NAN, -NAN
    x[500:502], x[502], x[503], x[504] = 0.0, -0.0, -INF, INF
    x[500, 77], x[501, 0] = -0.0, -0.0
    start = (SMALLEST if function == "maximum" else LARGEST)[element]
    executable = same(reduction(element, x.shape, (1,), function, start), x)
    # A float of 16 bits is widened first: nothing is gained where an instruction cannot read it from memory.
    assert ("again(x)" in executable.kernels[0].source) == (element != "bf16")


@pytest.mark.parametrize("start", ["0.5", "-0.5"])
@pytest.mark.parametrize("function", ["maximum", "minimum"])
def test_the_start_of_a_fold_counts_in_both_looks(function: str, start: str) -> None:
    x = np.random.default_rng(7).uniform(0.1, 1.0, (1100, 1000)).astype(np.float32)
    x[::2] *= -1
    same(reduction("f32", x.shape, (1,), function, start), x)


@pytest.mark.machine("avx512")
def test_long_runs_are_asked_for_ahead() -> None:
    """An input that no cache holds is prefetched where a task walks along it, not where it jumps from row to row."""
    columns = 1 << 12
    shared_cache = codegen.compile(hlo.parse(reduction("f32", (8, 8), (1,), "add", "0.0"))).plan.machine.l3_bytes
    rows = -(-shared_cache // (2 * 4 * columns))
    along, across = (
        codegen.compile(hlo.parse(reduction("f32", (rows, columns), (axis,), "maximum", SMALLEST["f32"]))) for axis in (1, 0)
    )
    x = np.random.default_rng(5).standard_normal((rows, columns)).astype(np.float32)
    (kernel,) = along.kernels
    assert [p.name for p in kernel.compiled.signature.params if p.ahead] == ["x"]
    np.testing.assert_array_equal(along(x)[0], x.max(1))
    np.testing.assert_array_equal(across(x)[0], x.max(0))
    small = codegen.compile(hlo.parse(reduction("f32", (100, 1000), (1,), "add", "0.0")))
    assert not any(p.ahead for k in small.kernels for p in k.compiled.signature.params)


def windows(
    shape: tuple[int, ...], size: tuple[int, ...], strides: tuple[int, ...], pads: Sequence[Sequence[int]], function: str
) -> str:
    """A program that folds windows; the result's extents are floor((n + pads - size) / stride) + 1."""
    out = [(n + lo + hi - w) // s + 1 for n, (lo, hi), w, s in zip(shape, pads, size, strides, strict=True)]
    source, result = ("x".join([*map(str, x), "f32"]) for x in (shape, out))
    start = "0.0" if function == "add" else SMALLEST["f32"]
    return f"""func.func @main(%x: tensor<{source}>) -> tensor<{result}> {{
      %c = stablehlo.constant dense<{start}> : tensor<f32>
      %0 = "stablehlo.reduce_window"(%x, %c) <{{padding = dense<{list(map(list, pads))}> : tensor<{len(shape)}x2xi64>,
        window_dimensions = array<i64: {", ".join(map(str, size))}>,
        window_strides = array<i64: {", ".join(map(str, strides))}>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %s = stablehlo.{function} %a, %b : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }}) : (tensor<{source}>, tensor<f32>) -> tensor<{result}>
      return %0 : tensor<{result}>
    }}"""


@pytest.mark.parametrize("function", ["add", "maximum"])
@pytest.mark.parametrize(
    ("shape", "size", "strides", "pads"),
    [
        ((5, 67), (1, 3), (1, 2), ((0, 0), (0, 1))),
        ((5, 67), (1, 3), (1, 1), ((0, 0), (1, 1))),
        ((3, 200), (1, 7), (1, 3), ((0, 0), (3, 3))),
        ((3, 200), (1, 16), (1, 1), ((0, 0), (8, 7))),
        ((2, 6, 31, 33), (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (0, 1), (1, 1))),
        ((2, 6, 31, 33), (1, 1, 3, 3), (1, 1, 1, 1), ((0, 0), (0, 0), (1, 1), (1, 1))),
        ((1, 2, 9, 40), (1, 1, 2, 5), (1, 1, 2, 3), ((0, 0), (0, 0), (1, 0), (4, 4))),
        ((4, 20), (1, 12), (1, 1), ((0, 0), (11, 11))),
    ],
)
def test_windows_that_end_outside_along_rows(
    shape: tuple[int, ...], size: tuple[int, ...], strides: tuple[int, ...], pads: Sequence[Sequence[int]], function: str
) -> None:
    """The inside of a row has no tests, its ends have their own: windows over the edge, over both edges, strides that miss it."""
    x = np.random.default_rng(6).standard_normal(shape).astype(np.float32)
    flat = x.reshape(-1)
    flat[1], flat[-1], flat[3] = -0.0, -0.0, 0.0
    if function == "maximum":
        flat[len(flat) // 2], flat[0] = NAN, -INF
    same(windows(shape, size, strides, pads, function), x, rtol=1e-6 if function == "add" else 0.0)


@pytest.mark.machine("avx512")
def test_inside_of_padded_rows_is_without_conditions() -> None:
    text = windows((8, 64, 64), (1, 3, 3), (1, 1, 1), ((0, 0), (1, 1), (1, 1)), "add")
    source = codegen.compile(hlo.parse(text)).kernels[0].source
    assert "for i2 in range(1, 63):" in source and "for r" not in source and not re.search(r"if .*i2", source)


@pytest.mark.parametrize("function", ["add", "maximum", "minimum"])
@pytest.mark.parametrize("width", [2, 8, 9, 12, 15, 16, 17])
@pytest.mark.machine("avx512")
def test_thin_rows(function: str, width: int) -> None:
    x = np.random.default_rng(7).standard_normal((333, width)).astype(np.float32)
    if function != "add":
        x[5, -1], x[6, 0], x[7], x[8] = NAN, -NAN, -0.0, [0.0] + [-0.0] * (width - 1)
    start = {"add": "0.0", "maximum": SMALLEST["f32"], "minimum": LARGEST["f32"]}[function]
    executable = same(reduction("f32", x.shape, (1,), function, start), x, rtol=1e-5 if function == "add" else 0.0)
    # Rows of more than a few elements are folded along memory: results side by side would be gathered one by one.
    assert ("for r0 in" in executable.kernels[0].source) == (width > 8)


@pytest.mark.parametrize(("rows", "columns"), [(300, 200), (129, 1031), (64, 64)])
@pytest.mark.machine("avx512")
def test_complex_numbers_are_turned_as_integers_of_their_size(rows: int, columns: int) -> None:
    for kind, element in (("complex64", "f32"), ("complex128", "f64")):
        a, b = f"{rows}x{columns}xcomplex<{element}>", f"{columns}x{rows}xcomplex<{element}>"
        text = f"""func.func @main(%x: tensor<{a}>) -> tensor<{b}> {{
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<{a}>) -> tensor<{b}>
  return %0 : tensor<{b}>
}}"""
        rng = np.random.default_rng(3)
        x = (rng.standard_normal((rows, columns)) + 1j * rng.standard_normal((rows, columns))).astype(kind)
        x[0, :3] = [complex(np.nan, -0.0), complex(-0.0, np.inf), complex(1, np.nan)]
        module = hlo.parse(text)
        executable = codegen.compile(module)
        assert not executable.fallbacks and ("transpose(" in executable.source) >= (kind == "complex64")
        assert executable(x)[0].tobytes() == np.ascontiguousarray(x.T).tobytes()


@pytest.mark.machine("avx512")
def test_lines_that_are_gone_before_their_next_element_is_read_are_turned() -> None:
    """Steps of 160 lines reach two sets of the nearest cache and 32 of the next: a tile in registers reads each line once."""
    text = """func.func @main(%x: tensor<32x48x40x64xf32>) -> tensor<64x40x32x48xf32> {
  %0 = stablehlo.transpose %x, dims = [3, 2, 0, 1] : (tensor<32x48x40x64xf32>) -> tensor<64x40x32x48xf32>
  return %0 : tensor<64x40x32x48xf32>
}"""
    x = np.random.default_rng(4).standard_normal((32, 48, 40, 64), np.float32)
    executable = codegen.compile(hlo.parse(text))
    assert "transpose(" in executable.source
    np.testing.assert_array_equal(executable(x)[0], x.transpose(3, 2, 0, 1))


@pytest.mark.parametrize(
    ("element", "function", "shape"),
    fast_cover(itertools.product(["f32", "bf16", "i8"], ["add", "maximum", "minimum"], [(11, 5, 64), (11, 23, 37), (1003, 160)])),
)
@pytest.mark.machine("avx512")
def test_folds_across_rows_take_several_at_a_time(element: str, function: str, shape: tuple[int, ...]) -> None:
    """Whole groups of rows, and the rest one by one: any number of rows, also where a part ends within a group."""
    axis = len(shape) - 2
    if element == "i8":
        x = np.random.default_rng(8).integers(-100, 100, shape, np.int8)
        start = {"add": "0", "maximum": "-128", "minimum": "127"}[function]
    else:
        x = np.random.default_rng(8).standard_normal(shape).astype(KINDS[element])
        start = {"add": "0.0", "maximum": SMALLEST[element], "minimum": LARGEST[element]}[function]
        if function != "add":
            x[..., 2, 3], x[..., -1, 1], x[..., 0] = NAN, -NAN, -0.0
            x[..., -2, 0] = 0.0
        elif element == "bf16":
            x = np.sign(x)  # whose sums are exact
    rtol = 1e-4 if (element, function) == ("f32", "add") else 0.0
    executable = same(reduction(element, shape, (axis,), function, start), x, rtol=rtol)
    is_bounded = element == "bf16" and function != "add"  # a step of these ends with more work
    rows = 8 if is_bounded and shape[axis] >= 16 else 4
    grouped = re.search(rf"in range\(0, .*, {rows}\):", executable.kernels[0].source)
    assert bool(grouped) == (shape[axis] >= 8)


@pytest.mark.machine("avx512")
def test_folds_of_costly_values_go_row_by_row() -> None:
    text = """func.func @main(%x: tensor<64x64xf32>) -> tensor<64xf32> {
      %c = stablehlo.constant dense<0.0> : tensor<f32>
      %e = stablehlo.exponential %x : tensor<64x64xf32>
      %0 = stablehlo.reduce(%e init: %c) applies stablehlo.add across dimensions = [0]
        : (tensor<64x64xf32>, tensor<f32>) -> tensor<64xf32>
      return %0 : tensor<64xf32>
    }"""
    x = np.random.default_rng(9).standard_normal((64, 64)).astype(np.float32)
    assert ", 4):" not in same(text, x, rtol=1e-5).kernels[0].source


@pytest.mark.machine("avx512")
def test_long_rows_and_rows_with_gaps_go_one_by_one() -> None:
    x = np.random.default_rng(10).standard_normal((64, 1000)).astype(np.float32)
    assert ", 4):" not in same(reduction("f32", x.shape, (0,), "add", "0.0"), x, rtol=1e-4).kernels[0].source
    columns = """func.func @main(%x: tensor<64x1000xf32>) -> tensor<40xf32> {
      %c = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.slice %x [0:64, 100:140] : (tensor<64x1000xf32>) -> tensor<64x40xf32>
      %0 = stablehlo.reduce(%s init: %c) applies stablehlo.add across dimensions = [0]
        : (tensor<64x40xf32>, tensor<f32>) -> tensor<40xf32>
      return %0 : tensor<40xf32>
    }"""
    assert ", 4):" not in same(columns, x, rtol=1e-4).kernels[0].source
