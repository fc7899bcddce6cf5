# ruff: noqa: E501  (programs are written as they are printed)
"""Whole programs: control flow, custom calls, quantization, sizes known at run time, dot algorithms, hostile programs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlo
import interp
from hlo.registry import definitions
from interp.registry import rule_for


def run(text: str, *inputs: Any, **more: Any) -> tuple[Any, ...]:
    module = hlo.parse(text)
    hlo.verify(module)
    return interp.evaluate(module, *inputs, **more)


def test_every_op_has_a_rule_or_says_why_not() -> None:
    for d in definitions():
        if d.is_terminator:
            continue
        found = rule_for(d.name)
        assert found is not None, d.name
        assert found.declined is None or len(found.declined.reason) > 20


def test_an_op_that_is_declined_says_so() -> None:
    text = """func.func @main(%a: tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>> {
      %r = "chlo._asin_acos_kernel"(%a) : (tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>
      return %r : tensor<2xcomplex<f32>>
    }"""
    with pytest.raises(interp.ExecutionError, match="declined: "):
        run(text, np.zeros(2, np.complex64))


# ---------------------------------------------------------------- control flow


def test_two_thousand_nested_branches() -> None:
    depth = 2000
    lines = ["func.func @main(%p: tensor<i1>, %x: tensor<i32>) -> tensor<i32> {"]
    t = hlo.TensorType((), hlo.element_type("i32"))
    flag = hlo.TensorType((), hlo.element_type("i1"))
    from tests.interp.building import close, make

    block = hlo.Block([flag, t])
    p, x = block.arguments
    inner = hlo.Block()
    op = make("stablehlo.negate", [x], [t])
    inner.ops.append(op)
    close(inner, op.results, "stablehlo.return")
    for _ in range(depth):
        other = close(hlo.Block(), [x], "stablehlo.return")
        outer = hlo.Block()
        branch = make("stablehlo.if", [p], [t], [inner, other])
        outer.ops.append(branch)
        inner = close(outer, branch.results, "stablehlo.return")
    last = inner.ops[0]
    block.ops.append(last)
    close(block, last.results)
    module = hlo.Module({"main": hlo.Function("main", block, result_types=(t,))})
    assert lines and int(interp.evaluate(module, np.array(True), np.array(5, np.int32))[0]) == -5
    assert int(interp.evaluate(module, np.array(False), np.array(5, np.int32))[0]) == 5


def test_a_loop_that_reads_values_from_outside() -> None:
    text = """func.func @main(%n: tensor<i32>, %step: tensor<3xf32>) -> tensor<3xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %start = stablehlo.constant dense<0.0> : tensor<3xf32>
      %r:2 = stablehlo.while(%i = %zero, %s = %start) : tensor<i32>, tensor<3xf32>
      cond {
        %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %j = stablehlo.add %i, %one : tensor<i32>
        %t = stablehlo.add %s, %step : tensor<3xf32>
        stablehlo.return %j, %t : tensor<i32>, tensor<3xf32>
      }
      return %r#1 : tensor<3xf32>
    }"""
    (found,) = run(text, np.array(5, np.int32), np.array([1, 2, 3], np.float32))
    assert found.tolist() == [5, 10, 15]


def test_branches_and_loops_inside_a_reduction() -> None:
    """The region counts 64-bit steps with a loop of its own: every lane has its own number of rounds."""
    text = """func.func @main(%x: tensor<4x3xi32>, %i: tensor<i32>) -> tensor<4xi32> {
      %ten = stablehlo.constant dense<10> : tensor<i32>
      %r = "stablehlo.reduce"(%x, %i) ({
        ^bb0(%a: tensor<i32>, %b: tensor<i32>):
          %sum = stablehlo.add %a, %b : tensor<i32>
          %w = stablehlo.while(%v = %sum) : tensor<i32>
          cond {
            %p = stablehlo.compare GE, %v, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %p : tensor<i1>
          } do {
            %u = stablehlo.subtract %v, %ten : tensor<i32>
            stablehlo.return %u : tensor<i32>
          }
          %even = stablehlo.compare LT, %w, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
          %z = "stablehlo.if"(%even) ({
            stablehlo.return %w : tensor<i32>
          }, {
            stablehlo.return %ten : tensor<i32>
          }) : (tensor<i1>) -> tensor<i32>
          stablehlo.return %z : tensor<i32>
      }) {dimensions = array<i64: 1>} : (tensor<4x3xi32>, tensor<i32>) -> tensor<4xi32>
      return %r : tensor<4xi32>
    }"""
    x = np.array([[1, 2, 3], [9, 9, 9], [10, 20, 33], [0, 0, 0]], np.int32)
    (found,) = run(text, x, np.array(0, np.int32))
    assert found.tolist() == (x.sum(1) % 10).tolist()


def test_composite_is_its_decomposition() -> None:
    text = """func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
      %r = stablehlo.composite "my.twice" %a {decomposition = @twice, version = 1 : i32} : (tensor<2xf32>) -> tensor<2xf32>
      return %r : tensor<2xf32>
    }
    func.func private @twice(%a: tensor<2xf32>) -> tensor<2xf32> {
      %r = stablehlo.add %a, %a : tensor<2xf32>
      return %r : tensor<2xf32>
    }"""
    assert run(text, np.array([1, 2], np.float32))[0].tolist() == [2, 4]


CUSTOM = """func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
      %r = stablehlo.custom_call @scaled(%a) {backend_config = "3"} : (tensor<2xf32>) -> tensor<2xf32>
      return %r : tensor<2xf32>
    }"""


def test_custom_calls_are_the_callers_functions() -> None:
    x = np.array([1, 2], np.float32)

    def scaled(op: hlo.Op, a: np.ndarray) -> np.ndarray:
        return a * np.float32(op.attr("backend_config"))

    assert run(CUSTOM, x, custom_calls={"scaled": scaled})[0].tolist() == [3, 6]
    with pytest.raises(
        interp.ExecutionError, match=r"<text>:2:12: stablehlo.custom_call: unknown target 'scaled'.*given by the caller: other"
    ):
        run(CUSTOM, x, custom_calls={"other": scaled})
    with pytest.raises(interp.ExecutionError, match="expected a result of element type float32, found float64"):
        run(CUSTOM, x, custom_calls={"scaled": lambda op, a: a.astype(np.float64)})

    def fails(op: hlo.Op, a: np.ndarray) -> np.ndarray:
        raise ValueError("the caller's own")

    with pytest.raises(ValueError, match="the caller's own"):
        run(CUSTOM, x, custom_calls={"scaled": fails})


def test_shape_assertions() -> None:
    text = """func.func @main(%n: tensor<i64>) {
      %four = stablehlo.constant dense<4> : tensor<i64>
      %ok = stablehlo.compare GE, %n, %four : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.custom_call @shape_assertion(%ok, %n) {error_message = "expected at least 4, found {0}", has_side_effect = true} : (tensor<i1>, tensor<i64>) -> ()
      return
    }"""
    assert run(text, np.array(4)) == ()
    with pytest.raises(interp.ExecutionError, match="expected at least 4, found 3"):
        run(text, np.array(3))


# ---------------------------------------------------------------- sizes known at run time


def test_shapes_come_from_the_arguments() -> None:
    text = """func.func @main(%x: tensor<?x3xf32>) -> (tensor<?x3xf32>, tensor<?xf32>, tensor<i32>) {
      %y = stablehlo.add %x, %x : tensor<?x3xf32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<?x3xf32>, tensor<f32>) -> tensor<?xf32>
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
      return %y, %s, %n : tensor<?x3xf32>, tensor<?xf32>, tensor<i32>
    }"""
    for n in (0, 1, 5):
        y, s, size = run(text, np.ones((n, 3), np.float32))
        assert y.shape == (n, 3) and s.tolist() == [6] * n and int(size) == n


def test_sizes_that_do_not_fit_are_errors() -> None:
    text = """func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
      %r = stablehlo.add %x, %y : tensor<?xf32>
      return %r : tensor<?xf32>
    }"""
    with pytest.raises(interp.ExecutionError, match=r"2:12: stablehlo.add: expected operands of one shape, found \[1\], \[3\]"):
        run(text, np.ones(1, np.float32), np.ones(3, np.float32))
    dot = """func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<f32> {
      %r = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0] : (tensor<?xf32>, tensor<?xf32>) -> tensor<f32>
      return %r : tensor<f32>
    }"""
    with pytest.raises(interp.ExecutionError, match=r"dot_general.*\[2\], \[3\] do not fit"):
        run(dot, np.ones(2, np.float32), np.ones(3, np.float32))
    stated = """func.func @main(%x: tensor<?xf32>) -> tensor<2xf32> {
      %r = stablehlo.abs %x : (tensor<?xf32>) -> tensor<2xf32>
      return %r : tensor<2xf32>
    }"""
    with pytest.raises(interp.ExecutionError, match=r"expected a result of type tensor<2xf32>, found shape \[3\]"):
        run(stated, np.ones(3, np.float32))


def test_bounded_dimensions() -> None:
    t = "tensor<?xf32, #stablehlo.bounds<4>>"
    text = f"""func.func @main(%x: {t}, %n: tensor<i32>) -> (tensor<i32>, tensor<f32>) {{
      %y = "stablehlo.set_dimension_size"(%x, %n) {{dimension = 0 : i64}} : ({t}, tensor<i32>) -> {t}
      %m = "stablehlo.get_dimension_size"(%y) {{dimension = 0 : i64}} : ({t}) -> tensor<i32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0] : ({t}, tensor<f32>) -> tensor<f32>
      return %m, %s : tensor<i32>, tensor<f32>
    }}"""
    m, s = run(text, np.array([1, 2, 4], np.float32), np.array(2, np.int32))
    assert int(m) == 2 and float(s) == 3
    with pytest.raises(interp.InputError, match="at most 4 in dimension 0"):
        run(text, np.ones(5, np.float32), np.array(2, np.int32))


# ---------------------------------------------------------------- quantization

Q = "!quant.uniform<i8:f32, 0.5:-3>"
R = "!quant.uniform<i8:f32, 0.25:7>"


def quantized(real: np.ndarray, scale: float, zero: int) -> np.ndarray:
    return np.clip(np.rint(real / scale + zero), -128, 127).astype(np.int8)


A, B = np.array([[-100, 3], [55, 127]], np.int8), np.array([[1, -2], [30, -128]], np.int8)
REAL_A, REAL_B = (A.astype(float) + 3) * 0.5, (B.astype(float) - 7) * 0.25


@pytest.mark.parametrize(
    ("op", "model"),
    [("add", lambda a, b: a + b), ("multiply", lambda a, b: a * b), ("maximum", np.maximum), ("subtract", lambda a, b: a - b)],
)
def test_quantized_elementwise_ops_compute_on_what_is_expressed(op: str, model: Any) -> None:
    t, u = f"tensor<2x2x{Q}>", f"tensor<2x2x{R}>"
    text = f"""func.func @main(%a: {t}, %b: {u}) -> {t} {{
      %r = "stablehlo.{op}"(%a, %b) : ({t}, {u}) -> {t}
      return %r : {t}
    }}"""
    np.testing.assert_array_equal(run(text, A, B)[0], quantized(model(REAL_A, REAL_B), 0.5, -3))


def test_quantized_compare_and_select() -> None:
    t, u = f"tensor<2x2x{Q}>", f"tensor<2x2x{R}>"
    text = f"""func.func @main(%a: {t}, %b: {u}) -> (tensor<2x2xi1>, {u}) {{
      %p = stablehlo.compare LT, %a, %b : ({t}, {u}) -> tensor<2x2xi1>
      %r = "stablehlo.select"(%p, %b, %b) : (tensor<2x2xi1>, {u}, {u}) -> {u}
      return %p, %r : tensor<2x2xi1>, {u}
    }}"""
    p, r = run(text, A, B)
    np.testing.assert_array_equal(p, REAL_A < REAL_B)
    np.testing.assert_array_equal(r, B)


def test_quantized_and_hybrid_dot() -> None:
    per_axis = "!quant.uniform<i8:f32:1, {0.5:0, 0.25:0}>"
    t, w = f"tensor<2x2x{Q}>", f"tensor<2x2x{per_axis}>"
    real_w = B * np.array([0.5, 0.25])
    text = f"""func.func @main(%a: {t}, %f: tensor<2x2xf32>, %w: {w}) -> ({t}, tensor<2x2xf32>) {{
      %r = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0] : ({t}, {w}) -> {t}
      %h = stablehlo.dot_general %f, %w, contracting_dims = [1] x [0] : (tensor<2x2xf32>, {w}) -> tensor<2x2xf32>
      return %r, %h : {t}, tensor<2x2xf32>
    }}"""
    r, h = run(text, A, REAL_A.astype(np.float32), B)
    np.testing.assert_array_equal(r, quantized(REAL_A @ real_w, 0.5, -3))
    np.testing.assert_allclose(h, REAL_A @ real_w)


def test_quantized_reduction_promotes_its_storage() -> None:
    wide = "!quant.uniform<i32:f32, 0.5:-3>"
    text = f"""func.func @main(%a: tensor<2x2x{Q}>, %i: tensor<{Q}>) -> tensor<2x{wide}> {{
      %r = "stablehlo.reduce"(%a, %i) ({{
        ^bb0(%x: tensor<{wide}>, %y: tensor<{wide}>):
          %s = "stablehlo.add"(%x, %y) : (tensor<{wide}>, tensor<{wide}>) -> tensor<{wide}>
          "stablehlo.return"(%s) : (tensor<{wide}>) -> ()
      }}) {{dimensions = array<i64: 1>}} : (tensor<2x2x{Q}>, tensor<{Q}>) -> tensor<2x{wide}>
      return %r : tensor<2x{wide}>
    }}"""
    (found,) = run(text, A, np.array(-3, np.int8))  # an initial value of 0
    np.testing.assert_array_equal(found, np.rint(REAL_A.sum(1) / 0.5 - 3))


def test_quantized_convolution_and_data_movement() -> None:
    t = f"tensor<1x2x2x1x{Q}>"
    text = f"""func.func @main(%a: {t}, %k: tensor<1x1x1x1x{R}>) -> ({t}, tensor<2x2x{Q}>) {{
      %r = "stablehlo.convolution"(%a, %k) {{dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>,
        batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({t}, tensor<1x1x1x1x{R}>) -> {t}
      %s = stablehlo.reshape %a : ({t}) -> tensor<2x2x{Q}>
      %v = stablehlo.transpose %s, dims = [1, 0] : (tensor<2x2x{Q}>) -> tensor<2x2x{Q}>
      return %r, %v : {t}, tensor<2x2x{Q}>
    }}"""
    r, v = run(text, A.reshape(1, 2, 2, 1), np.full((1, 1, 1, 1), 11, np.int8))  # the kernel is 1.0
    np.testing.assert_array_equal(r.reshape(2, 2), A)
    np.testing.assert_array_equal(v, A.T)


# ---------------------------------------------------------------- dot algorithms, bits, CHLO


def dot(algorithm: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    text = f"""func.func @main(%a: tensor<8x64xf32>, %b: tensor<64x8xf32>) -> tensor<8x8xf32> {{
      %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], algorithm = <{algorithm}> : (tensor<8x64xf32>, tensor<64x8xf32>) -> tensor<8x8xf32>
      return %r : tensor<8x8xf32>
    }}"""
    return run(text, a, b)[0].astype(np.float64)


def test_dot_algorithms_differ_by_what_they_round() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(8, 64)).astype(np.float32), rng.normal(size=(64, 8)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    form = ("lhs_precision_type = {0}, rhs_precision_type = {0}, accumulation_type = f32, lhs_component_count = {1}, "
            "rhs_component_count = {1}, num_primitive_operations = {2}, allow_imprecise_accumulation = false")  # fmt: skip
    errors = {
        k: np.abs(dot(form.format(*k), a, b) - exact).max()
        for k in (("bf16", 1, 1), ("tf32", 1, 1), ("bf16", 1, 3), ("bf16", 1, 6), ("f32", 1, 1))
    }
    ordered = list(errors.values())
    assert ordered == sorted(ordered, reverse=True)
    rounded = a.astype(ml_dtypes.bfloat16).astype(np.float64) @ b.astype(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_array_equal(dot(form.format("bf16", 1, 1), a, b), rounded.astype(np.float32))
    assert errors["bf16", 1, 6] < 1e-5 < errors["tf32", 1, 1]


def test_bits_of_narrow_types() -> None:
    text = """func.func @main(%a: tensor<2xi8>) -> (tensor<2x2xi4>, tensor<2x4xui2>, tensor<2xi8>) {
      %r = stablehlo.bitcast_convert %a : (tensor<2xi8>) -> tensor<2x2xi4>
      %s = stablehlo.bitcast_convert %a : (tensor<2xi8>) -> tensor<2x4xui2>
      %t = stablehlo.bitcast_convert %r : (tensor<2x2xi4>) -> tensor<2xi8>
      return %r, %s, %t : tensor<2x2xi4>, tensor<2x4xui2>, tensor<2xi8>
    }"""
    x = np.array([0x7A, -0x7F], np.int8)  # 0111 1010, 1000 0001
    r, s, t = run(text, x)
    assert r.astype(int).tolist() == [[-6, 7], [1, -8]]
    assert s.astype(int).tolist() == [[2, 2, 3, 1], [1, 0, 0, 2]]
    assert t.tolist() == x.tolist()


def test_implicit_broadcasting() -> None:
    text = """func.func @main(%a: tensor<2x3xi32>, %b: tensor<3xi32>, %c: tensor<2xi32>) -> (tensor<2x3xi32>, tensor<2x3xi32>) {
      %r = chlo.broadcast_add %a, %b : (tensor<2x3xi32>, tensor<3xi32>) -> tensor<2x3xi32>
      %s = chlo.broadcast_multiply %a, %c {broadcast_dimensions = array<i64: 0>} : (tensor<2x3xi32>, tensor<2xi32>) -> tensor<2x3xi32>
      return %r, %s : tensor<2x3xi32>, tensor<2x3xi32>
    }"""
    a, b, c = np.arange(6, dtype=np.int32).reshape(2, 3), np.array([10, 20, 30], np.int32), np.array([2, 3], np.int32)
    r, s = run(text, a, b, c)
    np.testing.assert_array_equal(r, a + b)
    np.testing.assert_array_equal(s, a * c[:, None])


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse: bool) -> None:
    text = f"""func.func @main(%x: tensor<4x2xf32>, %i: tensor<2xf32>) -> (tensor<4x2xf32>, tensor<2xf32>) {{
      %0, %1 = chlo.scan (%x) inits (%i) dimension = 0 attributes {{is_reverse = {str(reverse).lower()}}} {{
      ^bb0(%v: tensor<2xf32>, %c: tensor<2xf32>):
        %s = stablehlo.add %v, %c : tensor<2xf32>
        stablehlo.return %s, %s : tensor<2xf32>, tensor<2xf32>
      }} : (tensor<4x2xf32>, tensor<2xf32>) -> (tensor<4x2xf32>, tensor<2xf32>)
      return %0, %1 : tensor<4x2xf32>, tensor<2xf32>
    }}"""
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    outputs, carry = run(text, x, np.zeros(2, np.float32))
    expected = np.cumsum(x[::-1], 0)[::-1] if reverse else np.cumsum(x, 0)
    np.testing.assert_array_equal(outputs, expected)
    np.testing.assert_array_equal(carry, x.sum(0))


def test_upper_halves_of_products() -> None:
    rng = np.random.default_rng(0)
    for d in (np.int64, np.uint64, np.int32, np.uint8):
        info = np.iinfo(d)
        a, b = (rng.integers(info.min, info.max, 50, d, endpoint=True) for _ in range(2))
        e = ("i" if info.min < 0 else "ui") + str(info.bits)
        text = f"""func.func @main(%a: tensor<50x{e}>, %b: tensor<50x{e}>) -> tensor<50x{e}> {{
          %r = "chlo.mulhi"(%a, %b) : (tensor<50x{e}>, tensor<50x{e}>) -> tensor<50x{e}>
          return %r : tensor<50x{e}>
        }}"""
        assert run(text, a, b)[0].tolist() == [int(x) * int(y) >> info.bits for x, y in zip(a, b, strict=True)]


# ---------------------------------------------------------------- hostile programs

HOSTILE = {
    "a constant that grows": """func.func @main() -> tensor<1000000x1000000xf32> {
      %c = stablehlo.constant dense<1.0> : tensor<1000000x1000000xf32>
      %r = stablehlo.add %c, %c : tensor<1000000x1000000xf32>
      return %r : tensor<1000000x1000000xf32>
    }""",
    "a constant that is returned": """func.func @main() -> tensor<1000000x1000000xf32> {
      %c = stablehlo.constant dense<1.0> : tensor<1000000x1000000xf32>
      return %c : tensor<1000000x1000000xf32>
    }""",
    "a long iota": """func.func @main() -> tensor<1xf32> {
      %c = stablehlo.iota dim = 0 : tensor<1000000000000xf32>
      %r = stablehlo.slice %c [0:1] : (tensor<1000000000000xf32>) -> tensor<1xf32>
      return %r : tensor<1xf32>
    }""",
    "a reshape that copies": """func.func @main() -> tensor<1xf32> {
      %c = stablehlo.iota dim = 0 : tensor<100000x10000000xf32>
      %b = stablehlo.reshape %c : (tensor<100000x10000000xf32>) -> tensor<1000000000000xf32>
      %r = stablehlo.slice %b [0:1] : (tensor<1000000000000xf32>) -> tensor<1xf32>
      return %r : tensor<1xf32>
    }""",
    "a reduction of nothing but size": """func.func @main() -> tensor<f32> {
      %c = stablehlo.constant dense<1.0> : tensor<1000000x1000000xf32>
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %r = stablehlo.reduce(%c init: %z) applies stablehlo.add across dimensions = [0, 1] : (tensor<1000000x1000000xf32>, tensor<f32>) -> tensor<f32>
      return %r : tensor<f32>
    }""",
    "padding that is cut off again": """func.func @main(%z: tensor<f32>) -> tensor<1x1xf32> {
      %c = stablehlo.constant dense<1.0> : tensor<1x1xf32>
      %b = stablehlo.pad %c, %z, low = [1000000000000, 0], high = [0, 0], interior = [0, 0] : (tensor<1x1xf32>, tensor<f32>) -> tensor<1000000000001x1xf32>
      %r = stablehlo.slice %b [0:1, 0:1] : (tensor<1000000000001x1xf32>) -> tensor<1x1xf32>
      return %r : tensor<1x1xf32>
    }""",
    "a shape made at run time": """func.func @main() -> tensor<?xf32> {
      %n = stablehlo.constant dense<1000000000000> : tensor<1xi64>
      %r = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi64>) -> tensor<?xf32>
      return %r : tensor<?xf32>
    }""",
    "an endless loop": """func.func @main(%z: tensor<f32>) -> tensor<f32> {
      %r = stablehlo.while(%v = %z) : tensor<f32>
      cond {
        %p = stablehlo.constant dense<true> : tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        stablehlo.return %v : tensor<f32>
      }
      return %r : tensor<f32>
    }""",
    "a huge window": """func.func @main(%z: tensor<f32>) -> tensor<1xf32> {
      %c = stablehlo.constant dense<1.0> : tensor<1xf32>
      %r = "stablehlo.reduce_window"(%c, %z) ({
        ^bb0(%x: tensor<f32>, %y: tensor<f32>):
          %s = stablehlo.add %x, %y : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }) {window_dimensions = array<i64: 1000000000000>, padding = dense<[[999999999999, 0]]> : tensor<1x2xi64>} : (tensor<1xf32>, tensor<f32>) -> tensor<1xf32>
      return %r : tensor<1xf32>
    }""",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_limits_stop_a_hostile_program(name: str) -> None:
    module = hlo.parse(HOSTILE[name])
    inputs = [np.zeros((), np.float32) for _ in module.entry.arguments]
    with pytest.raises(interp.LimitError):
        interp.evaluate(module, *inputs, limits=interp.Limits(steps=20_000, memory_bytes=50_000_000))


def test_limits_leave_a_modest_program_alone() -> None:
    text = """func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {
      %big = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<1000xf32>) -> tensor<1000x100000xf32>
      %row = stablehlo.slice %big [0:1000, 5:6] : (tensor<1000x100000xf32>) -> tensor<1000x1xf32>
      %r = stablehlo.reshape %row : (tensor<1000x1xf32>) -> tensor<1000xf32>
      %s = stablehlo.add %r, %x : tensor<1000xf32>
      return %s : tensor<1000xf32>
    }"""
    x = np.ones(1000, np.float32)
    assert run(text, x, limits=interp.Limits(steps=4, memory_bytes=50_000))[0].tolist() == [2.0] * 1000


# ---------------------------------------------------------------- the targets that exported programs use


def test_dynamic_targets() -> None:
    text = """func.func @main(%x: tensor<?xf32>, %k: tensor<i32>, %w: tensor<1xi64>, %p: tensor<1x2xi64>, %s: tensor<2xui64>, %n: tensor<1xi32>) -> (tensor<?xf32>, tensor<?xi32>, tensor<?xf32>, tensor<?xui32>) {
      %one = stablehlo.constant dense<1> : tensor<1xi64>
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %v:2 = stablehlo.custom_call @stablehlo.dynamic_top_k(%x, %k) : (tensor<?xf32>, tensor<i32>) -> (tensor<?xf32>, tensor<?xi32>)
      %r = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %z, %w, %one, %one, %one, %p) {called_computations = [@sum]} : (tensor<?xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1x2xi64>) -> tensor<?xf32>
      %b:2 = stablehlo.custom_call @stablehlo.dynamic_rng_bit_generator(%s, %n) {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>} : (tensor<2xui64>, tensor<1xi32>) -> (tensor<2xui64>, tensor<?xui32>)
      return %v#0, %v#1, %r, %b#1 : tensor<?xf32>, tensor<?xi32>, tensor<?xf32>, tensor<?xui32>
    }
    func.func private @sum(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
      %c = stablehlo.add %a, %b : tensor<f32>
      return %c : tensor<f32>
    }"""
    x = np.array([3, 1, 4, 1, 5], np.float32)
    found = run(
        text, x, np.array(2, np.int32), np.array([3]), np.array([[2, 0]]), np.array([1, 2], np.uint64), np.array([6], np.int32)
    )
    assert found[0].tolist() == [5, 4] and found[1].tolist() == [4, 2]
    assert found[2].tolist() == [3, 4, 8, 6, 10]
    static = """func.func @main(%s: tensor<2xui64>) -> (tensor<2xui64>, tensor<6xui32>) {
      %a, %b = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<6xui32>)
      return %a, %b : tensor<2xui64>, tensor<6xui32>
    }"""
    assert found[3].tolist() == run(static, np.array([1, 2], np.uint64))[1].tolist()


# ---------------------------------------------------------------- XLA's HLO


def test_hlo_with_a_fusion_and_layouts() -> None:
    text = """HloModule m

fused {
  a = f32[2,3]{1,0} parameter(0)
  b = f32[2,3]{1,0} add(a, a)
  ROOT c = f32[3,2]{1,0} transpose(b), dimensions={1,0}
}

ENTRY e {
  p = f32[2,3]{1,0} parameter(0)
  f = f32[3,2]{1,0} fusion(p), kind=kLoop, calls=fused
  g = f32[3,2]{0,1} copy(f)
  ROOT r = f32[6]{0} bitcast(g)
}
"""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = interp.evaluate(hlo.parse(text), x)
    assert found.tolist() == (2 * x).reshape(-1).tolist()  # the layout {0,1} of the transposed array is the array's own memory
