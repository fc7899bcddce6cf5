"""Sorts, selections, scatters, scans, turned tiles and split reductions: kernels against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
from tests.machines import narrower_targets

SPECIAL = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45], np.float32)


def check(text: str, *arrays: np.ndarray, exact: bool = True) -> codegen.Executable:
    """Compiles, runs on one and on two threads, and compares with the evaluator."""
    module = hlo.parse(text)
    wanted = interp.evaluate(module, *arrays)
    for threads in (1, 2):
        executable = codegen.compile(module, threads=threads)
        assert not executable.fallbacks
        for found, want in zip(executable(*arrays), wanted, strict=True):
            if exact:
                assert found.tobytes() == np.asarray(want).tobytes()
            else:
                np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-4)
    return executable


def rows(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.integers(-50, 50, shape).astype(np.float32)
    flat = x.reshape(-1)
    flat[rng.permutation(flat.size)[: SPECIAL.size]] = SPECIAL
    return x


SORT = """
func.func @main(%x: tensor<{s}x{t}>, %i: tensor<{s}xi32>) -> (tensor<{s}x{t}>, tensor<{s}xi32>) {{
  %a, %b = "stablehlo.sort"(%x, %i) <{{dimension = {d} : i64, is_stable = true}}> ({{
  ^bb0(%p: tensor<{t}>, %q: tensor<{t}>, %r: tensor<i32>, %u: tensor<i32>):
    %c = stablehlo.compare {direction}, {left}, {right}, {kind} : (tensor<{t}>, tensor<{t}>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }}) : (tensor<{s}x{t}>, tensor<{s}xi32>) -> (tensor<{s}x{t}>, tensor<{s}xi32>)
  return %a, %b : tensor<{s}x{t}>, tensor<{s}xi32>
}}"""


@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize(("direction", "swapped"), [("LT", False), ("GT", False), ("LT", True)])
@pytest.mark.parametrize(("kind", "n"), [("TOTALORDER", 300), ("TOTALORDER", 37), ("FLOAT", 37)])
def test_sort_is_stable_and_carries_its_operands(dimension: int, direction: str, swapped: bool, kind: str, n: int) -> None:
    """By merging, and by key: rows of 300 by radix, shorter ones by counting."""
    left, right = ("%q", "%p") if swapped else ("%p", "%q")
    shape = (n, 19) if dimension == 0 else (19, n)
    text = SORT.format(s="x".join(map(str, shape)), t="f32", d=dimension, direction=direction, left=left, right=right, kind=kind)
    x = rows(1, shape)
    if kind == "FLOAT":  # NaN has no place in this order
        x = np.nan_to_num(x, nan=3.0)
    check(text, x, np.arange(x.size, dtype=np.int32).reshape(shape))


@pytest.mark.parametrize("n", [1, 2, 3, 8, 17, 192, 193])
def test_sort_of_short_rows(n: int) -> None:
    text = SORT.format(s=f"23x{n}", t="f32", d=1, direction="LT", left="%p", right="%q", kind="TOTALORDER")
    check(text, rows(n, (23, n)), np.arange(23 * n, dtype=np.int32).reshape(23, n))


def test_an_array_is_sorted_together_with_itself() -> None:
    """Two buffers were made of an operand given twice, and the kernel named one of them."""
    text = SORT.format(s="5x9", t="f32", d=1, direction="GT", left="%p", right="%q", kind="TOTALORDER")
    text = text.replace("tensor<i32>", "tensor<f32>").replace("5x9xi32", "5x9xf32").replace("(%x, %i)", "(%x, %x)")
    x = rows(3, (5, 9))
    check(text, x, x)


@pytest.mark.parametrize("element", ["i32", "ui32", "i8", "i64"])
def test_sort_of_integers(element: str) -> None:
    kind = "UNSIGNED" if element.startswith("u") else "SIGNED"
    text = SORT.format(s="5x300", t=element, d=1, direction="LT", left="%p", right="%q", kind=kind)
    dtype = np.dtype(element.replace("ui", "uint") if element.startswith("u") else element.replace("i", "int"))
    info = np.iinfo(dtype)
    x = np.random.default_rng(2).integers(info.min, info.max, (5, 300), dtype, endpoint=True)
    check(text, x, np.arange(1500, dtype=np.int32).reshape(5, 300))


@pytest.mark.parametrize(("n", "k"), [(1000, 5), (64, 64), (130, 100), (300, 100), (26000, 100), (7, 7), (1, 1)])
def test_top_k_takes_the_first_of_equal_elements(n: int, k: int) -> None:
    text = f"""func.func @main(%x: tensor<9x{n}xf32>) -> (tensor<9x{k}xf32>, tensor<9x{k}xi32>) {{
      %v, %i = chlo.top_k(%x, k = {k}) : tensor<9x{n}xf32> -> (tensor<9x{k}xf32>, tensor<9x{k}xi32>)
      return %v, %i : tensor<9x{k}xf32>, tensor<9x{k}xi32>
    }}"""
    check(text, rows(3, (9, n)))


SCATTER = """
func.func @main(%x: tensor<{n}x6xf32>, %i: tensor<200x1xi32>, %u: tensor<200x6xf32>) -> tensor<{n}x6xf32> {{
  %r = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    {body}
  }}) : (tensor<{n}x6xf32>, tensor<200x1xi32>, tensor<200x6xf32>) -> tensor<{n}x6xf32>
  return %r : tensor<{n}x6xf32>
}}"""
ADDS = "%c = stablehlo.add %a, %b : tensor<f32>\n    stablehlo.return %c : tensor<f32>"


@pytest.mark.parametrize("body", [ADDS, "stablehlo.return %b : tensor<f32>"])
@pytest.mark.parametrize("n", [40, 200000])
def test_scatter_in_order_without_what_is_outside(body: str, n: int) -> None:
    rng = np.random.default_rng(4)
    x, u = rng.standard_normal((n, 6), np.float32), rng.standard_normal((200, 6), np.float32)
    check(SCATTER.format(n=n, body=body), x, rng.integers(-3, n + 3, (200, 1), np.int32), u)


WINDOW = """
func.func @main(%x: tensor<24x40xf32>) -> tensor<24x40xf32> {{
  %z = stablehlo.constant dense<{start}> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %z) <{{padding = dense<{padding}> : tensor<2x2xi64>,
      window_dimensions = array<i64: {window}>}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.{function} %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }}) : (tensor<24x40xf32>, tensor<f32>) -> tensor<24x40xf32>
  return %r : tensor<24x40xf32>
}}"""


@pytest.mark.parametrize(("padding", "window"), [
    ("[[0, 0], [39, 0]]", "1, 40"), ("[[0, 0], [0, 39]]", "1, 40"), ("[[23, 0], [0, 0]]", "24, 1"),
    ("[[0, 23], [0, 0]]", "24, 1"), ("[[1, 1], [2, 2]]", "3, 5"), ("[[2, 0], [0, 0]]", "3, 1"),
])  # fmt: skip
@pytest.mark.parametrize(("function", "start"), [("add", "0.0"), ("maximum", "0xFF800000")])
def test_windows_and_scans(padding: str, window: str, function: str, start: str) -> None:
    text = WINDOW.format(padding=padding, window=window, function=function, start=start)
    check(text, np.random.default_rng(5).standard_normal((24, 40), np.float32), exact=False)


def test_a_scan_is_not_quadratic() -> None:
    text = WINDOW.format(padding="[[0, 0], [39, 0]]", window="1, 40", function="add", start="0.0")
    executable = codegen.compile(hlo.parse(text))
    loops = [x for x in executable.source.splitlines() if x.lstrip().startswith("for ")]
    assert len(loops) == 3  # tasks, rows, columns


@pytest.mark.parametrize("shape", [(300, 170), (64, 257), (1000, 16)])
def test_turned_tiles(shape: tuple[int, int]) -> None:
    m, n = shape
    text = f"""func.func @main(%x: tensor<{m}x{n}xf32>, %y: tensor<{n}x{m}xf32>) -> (tensor<{n}x{m}xf32>, tensor<{n}x{m}xf32>) {{
      %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<{m}x{n}xf32>) -> tensor<{n}x{m}xf32>
      %r = stablehlo.add %t, %y : tensor<{n}x{m}xf32>
      return %r, %t : tensor<{n}x{m}xf32>, tensor<{n}x{m}xf32>
    }}"""
    rng = np.random.default_rng(6)
    check(text, rng.standard_normal((m, n), np.float32), rng.standard_normal((n, m), np.float32))


@pytest.mark.parametrize("dims", [[0], [0, 1]])
@pytest.mark.machine("avx512")
def test_reductions_in_pieces_have_the_same_bits_on_any_number_of_threads(dims: list[int]) -> None:
    result = "tensor<f32>" if len(dims) == 2 else "tensor<200xf32>"
    text = f"""func.func @main(%x: tensor<3000x200xf32>) -> {result} {{
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = {dims}
        : (tensor<3000x200xf32>, tensor<f32>) -> {result}
      return %r : {result}
    }}"""
    x = np.random.default_rng(7).random((3000, 200), np.float32)
    executable = check(text, x, exact=False)
    assert len(executable.kernels) == 2
    one, two = (codegen.compile(hlo.parse(text), threads=n)(x)[0] for n in (1, 2))
    assert one.tobytes() == two.tobytes()
    np.testing.assert_allclose(one, x.sum(tuple(dims), dtype=np.float64), rtol=2e-6)


@pytest.mark.parametrize(("m", "k", "n"), [(37, 64, 50), (5, 4, 16), (64, 260, 129), (3, 7, 33)])
def test_dots_of_bytes_are_exact(m: int, k: int, n: int) -> None:
    text = f"""func.func @main(%x: tensor<{m}x{k}xi8>, %y: tensor<{k}x{n}xi8>) -> tensor<{m}x{n}xi32> {{
      %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
        : (tensor<{m}x{k}xi8>, tensor<{k}x{n}xi8>) -> tensor<{m}x{n}xi32>
      return %r : tensor<{m}x{n}xi32>
    }}"""
    rng = np.random.default_rng(8)
    check(text, rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8))


@pytest.mark.parametrize("target", narrower_targets())
def test_dots_of_bytes_without_the_instruction(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from codegen.native.jit import forget_kernels

    monkeypatch.setenv("TILEWRIGHT_TARGET", target)
    forget_kernels()
    test_dots_of_bytes_are_exact(37, 64, 50)


def test_scatter_of_one_update_needs_no_loop() -> None:
    module = hlo.parse("""
    func.func @main(%x: tensor<1xf32>, %i: tensor<1xi32>, %u: tensor<f32>) -> tensor<1xf32> {
      %0 = "stablehlo.scatter"(%x, %i, %u) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %1 = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %1 : tensor<f32>
      }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>}
        : (tensor<1xf32>, tensor<1xi32>, tensor<f32>) -> tensor<1xf32>
      return %0 : tensor<1xf32>
    }""")
    x, i, u = np.ones(1, np.float32), np.zeros(1, np.int32), np.array(2.5, np.float32)
    assert codegen.compile(module)(x, i, u)[0] == [3.5]
