"""Ops that stand for others are planned as those: kernels against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tiling.program.flatten import flatten

MAP = """func.func @main(%x: tensor<5x7xf32>, %y: tensor<5x7xf32>) -> tensor<5x7xi1> {
  %r = "stablehlo.map"(%x, %y) <{dimensions = array<i64: 0, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %h = stablehlo.constant dense<0.5> : tensor<f32>
    %c = stablehlo.multiply %a, %h : tensor<f32>
    %d = stablehlo.compare LT, %c, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %d : tensor<i1>
  }) : (tensor<5x7xf32>, tensor<5x7xf32>) -> tensor<5x7xi1>
  return %r : tensor<5x7xi1>
}"""
BARRIER = """func.func @main(%x: tensor<5xf32>, %y: tensor<5xf32>) -> (tensor<5xf32>, tensor<5xf32>) {
  %0 = stablehlo.exponential %x : tensor<5xf32>
  %r:2 = stablehlo.optimization_barrier %0, %y : tensor<5xf32>, tensor<5xf32>
  %1 = stablehlo.add %r#0, %r#1 : tensor<5xf32>
  return %1, %r#1 : tensor<5xf32>, tensor<5xf32>
}"""
COMPOSITE = """module {
func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {
  %0 = stablehlo.composite "my.op" %x {decomposition = @inner} : (tensor<5xf32>) -> tensor<5xf32>
  %1 = stablehlo.composite "my.op" %0 {decomposition = @inner} : (tensor<5xf32>) -> tensor<5xf32>
  return %1 : tensor<5xf32>
}
func.func private @inner(%x: tensor<5xf32>) -> tensor<5xf32> {
  %0 = stablehlo.add %x, %x : tensor<5xf32>
  return %0 : tensor<5xf32>
}
}"""
EINSUM = """func.func @main(%x: tensor<5x7x3xf32>) -> tensor<3x5xf32> {
  %r = "stablehlo.unary_einsum"(%x) <{einsum_config = "abc->ca"}> : (tensor<5x7x3xf32>) -> tensor<3x5xf32>
  return %r : tensor<3x5xf32>
}"""
TRAINING = """func.func @main(%x: tensor<6x4x5xf32>, %s: tensor<4xf32>, %o: tensor<4xf32>)
    -> (tensor<6x4x5xf32>, tensor<4xf32>, tensor<4xf32>) {
  %r:3 = "stablehlo.batch_norm_training"(%x, %s, %o) <{epsilon = 0.001 : f32, feature_index = 1 : i64}>
      : (tensor<6x4x5xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<6x4x5xf32>, tensor<4xf32>, tensor<4xf32>)
  return %r#0, %r#1, %r#2 : tensor<6x4x5xf32>, tensor<4xf32>, tensor<4xf32>
}"""
GRADIENT = """func.func @main(%x: tensor<6x4xf32>, %s: tensor<4xf32>, %m: tensor<4xf32>, %v: tensor<4xf32>, %g: tensor<6x4xf32>)
    -> (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %r:3 = "stablehlo.batch_norm_grad"(%x, %s, %m, %v, %g) <{epsilon = 0.001 : f32, feature_index = 1 : i64}>
      : (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<6x4xf32>)
      -> (tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>)
  return %r#0, %r#1, %r#2 : tensor<6x4xf32>, tensor<4xf32>, tensor<4xf32>
}"""


@pytest.mark.parametrize("text", [MAP, BARRIER, COMPOSITE, EINSUM, TRAINING, GRADIENT])
def test_runs_in_kernels_and_agrees(text: str) -> None:
    module = hlo.parse(text)
    hlo.verify(module)
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(0.5, 2, a.tensor.static_shape).astype(np.float32) for a in module.entry.arguments]
    executable = codegen.compile(module)
    assert executable.fallbacks == []
    for found, wanted in zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def _scan(shape: tuple[int, ...], dimension: int, reverse: bool) -> str:
    row = "x".join(str(n) for n in (*(n for k, n in enumerate(shape) if k != dimension), "f32"))
    whole = "x".join(map(str, shape)) + "xf32"
    return f"""func.func @main(%x: tensor<{whole}>, %c: tensor<{row}>) -> (tensor<{whole}>, tensor<{row}>) {{
      %t = stablehlo.tanh %x : tensor<{whole}>
      %o, %e = "chlo.scan"(%t, %c) ({{
      ^bb0(%v: tensor<{row}>, %a: tensor<{row}>):
        %s = stablehlo.add %v, %a : tensor<{row}>
        %m = stablehlo.multiply %s, %a : tensor<{row}>
        stablehlo.return %m, %s : tensor<{row}>, tensor<{row}>
      }}) {{dimension = {dimension} : i64, is_reverse = {str(reverse).lower()}, operandSegmentSizes = array<i32: 1, 1>,
          resultSegmentSizes = array<i32: 1, 1>}} : (tensor<{whole}>, tensor<{row}>) -> (tensor<{whole}>, tensor<{row}>)
      %y = stablehlo.negate %o : tensor<{whole}>
      return %y, %e : tensor<{whole}>, tensor<{row}>
    }}"""


@pytest.mark.parametrize(("shape", "dimension", "reverse"), [((5, 4), 0, False), ((3, 6, 2), 1, True), ((7,), 0, True)])
def test_scans_are_loops_of_kernels(shape: tuple[int, ...], dimension: int, reverse: bool) -> None:
    """Every call starts with the carry that it is given, and writes all rows of the outputs."""
    rng = np.random.default_rng(0)
    module = hlo.parse(_scan(shape, dimension, reverse))
    x = rng.normal(size=shape).astype(np.float32)
    c = rng.normal(size=[n for k, n in enumerate(shape) if k != dimension]).astype(np.float32)
    executable = codegen.compile(module)
    assert executable.fallbacks == []
    for _ in range(3):
        for found, expected in zip(executable(x, c), interp.evaluate(module, x, c), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


WHOLE_IMAGES = {
    "channels first": ((2, 6, 3, 5), (8, 6, 3, 5), (2, 8, 1, 1), "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"),
    "channels last": ((2, 3, 5, 6), (3, 5, 6, 8), (2, 1, 1, 8), "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"),
    "one and the other": ((2, 3, 5, 6), (8, 6, 3, 5), (1, 8, 2, 1), "[b, 0, 1, f]x[o, i, 0, 1]->[0, f, b, 1]"),
    "features in the middle": ((2, 6, 3, 5), (6, 8, 3, 5), (2, 8, 1, 1), "[b, f, 0, 1]x[i, o, 0, 1]->[b, f, 0, 1]"),
}


@pytest.mark.parametrize("name", WHOLE_IMAGES)
def test_a_window_as_large_as_its_image_is_a_product(name: str) -> None:
    image, kernel, result, dims = WHOLE_IMAGES[name]
    x, w, y = (f"tensor<{'x'.join(map(str, s))}xf32>" for s in (image, kernel, result))
    module = hlo.parse(f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
      %0 = stablehlo.convolution(%x, %w) dim_numbers = {dims}, window = {{}}
           {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {y}
      return %0 : {y} }}""")
    names = [op.name for op in flatten(module, "main", codegen.supports).ops]
    assert ("stablehlo.dot_general" in names) == (name != "features in the middle")
    assert ("stablehlo.convolution" in names) == (name == "features in the middle")
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, s).astype(np.float32) for s in (image, kernel)]
    (found,), (expected,) = codegen.compile(module)(*arrays), interp.evaluate(module, *arrays)
    assert found.shape == expected.shape and np.array_equal(found, expected)


@pytest.mark.parametrize(("given", "made"), [("i8", "i32"), ("bf16", "f32"), ("f16", "f16")])
def test_a_window_as_large_as_its_image_keeps_its_result_type(given: str, made: str) -> None:
    x, w, y = f"tensor<2x3x5x6x{given}>", f"tensor<3x5x6x8x{given}>", f"tensor<2x1x1x8x{made}>"
    module = hlo.parse(f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {{}}
           {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {y}
      return %0 : {y} }}""")
    assert "stablehlo.dot_general" in [op.name for op in flatten(module, "main", codegen.supports).ops]
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, v.shape).astype(v.tensor.dtype) for v in module.entry.arguments]
    (found,), (expected,) = codegen.compile(module)(*arrays), interp.evaluate(module, *arrays)
    assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_a_turned_row_is_copied_before_it_meets_a_large_matrix() -> None:
    """The head of a VGG network: 411 MB of weights were turned to meet a row of 100 KB, or read far from each other."""
    x, w = "tensor<1x3x3x64xf32>", "tensor<512x64x3x3xf32>"
    module = hlo.parse(f"""func.func @main(%x: {x}, %w: {w}) -> tensor<1x1x1x512xf32> {{
      %a = stablehlo.tanh %x : {x}
      %0 = stablehlo.convolution(%a, %w) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f], window = {{}}
           {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> tensor<1x1x1x512xf32>
      return %0 : tensor<1x1x1x512xf32> }}""")
    plan = tiling.plan(module, supports=codegen.supports)
    assert next(s.op.name for f in plan.fusions for s in f.stages) == "stablehlo.reshape"
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((1, 3, 3, 64), (512, 64, 3, 3))]
    np.testing.assert_allclose(codegen.compile(plan)(*arrays)[0], interp.evaluate(module, *arrays)[0], rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("whole", [True, False])
def test_a_slice_of_all_is_the_value(whole: bool) -> None:
    """`jax.lax.map` over a batch of one slices all of it, and updates all of it."""
    size = 4 if whole else 3
    module = hlo.parse(f"""func.func @main(%x: tensor<1x4xf32>, %i: tensor<i32>) -> tensor<1x4xf32> {{
      %s = stablehlo.dynamic_slice %x, %i, %i, sizes = [1, {size}]
           : (tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x{size}xf32>
      %t = stablehlo.negate %s : tensor<1x{size}xf32>
      %u = stablehlo.dynamic_update_slice %x, %t, %i, %i
           : (tensor<1x4xf32>, tensor<1x{size}xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
      return %u : tensor<1x4xf32> }}""")
    names = {op.name.split(".")[1] for op in flatten(module, "main", codegen.supports).ops}
    assert (names == {"negate"}) == whole
    for start in (-3, 0, 7):
        arrays = [np.arange(4, dtype=np.float32).reshape(1, 4), np.array(start, np.int32)]
        np.testing.assert_array_equal(codegen.compile(module)(*arrays)[0], interp.evaluate(module, *arrays)[0])


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_loop_that_runs_once_is_its_body(times: int) -> None:
    t = "tensor<8xf32>"
    module = hlo.parse(f"""func.func @main(%x: {t}) -> ({t}, tensor<i32>) {{
      %z = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%a = %x, %k = %z) : {t}, tensor<i32>
        cond {{
          %n = stablehlo.constant dense<{times}> : tensor<i32>
          %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        }} do {{
          %o = stablehlo.constant dense<1> : tensor<i32>
          %l = stablehlo.add %k, %o : tensor<i32>
          %s = stablehlo.reverse %a, dims = [0] : {t}
          stablehlo.return %s, %l : {t}, tensor<i32>
        }}
      return %r#0, %r#1 : {t}, tensor<i32> }}""")
    names = {op.name for op in flatten(module, "main", codegen.supports).ops}
    assert ("stablehlo.while" in names) == (times != 1)
    x = np.arange(8, dtype=np.float32)
    for found, expected in zip(codegen.compile(module)(x), interp.evaluate(module, x), strict=True):
        np.testing.assert_array_equal(found, expected)


SORTED = [((6, 1), 1, True), ((6, 1), 0, False), ((1, 5), 0, True), ((6, 1), -1, True)]


@pytest.mark.parametrize(("shape", "dimension", "is_sorted"), SORTED)
def test_rows_of_one_element_are_sorted(shape: tuple[int, int], dimension: int, is_sorted: bool) -> None:
    t, p = (f"tensor<{'x'.join(map(str, shape))}x{e}>" for e in ("f32", "i32"))
    text = f"""func.func @main(%x: {t}) -> ({t}, {p}) {{
  %i = stablehlo.iota dim = 0 : {p}
  %r:2 = "stablehlo.sort"(%x, %i) <{{dimension = {dimension} : i64, is_stable = true}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %l = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }}) : ({t}, {p}) -> ({t}, {p})
  return %r#0, %r#1 : {t}, {p}
}}"""
    module = hlo.parse(text)
    assert any(op.name == "stablehlo.sort" for op in flatten(module, supports=codegen.supports).ops) != is_sorted
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for found, wanted in zip(codegen.compile(module)(x), interp.evaluate(module, x), strict=True):
        np.testing.assert_array_equal(found, wanted)
