# ruff: noqa: E501  (programs are written as they are printed)
"""The examples of the specification: one test for each op that has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import codegen
import hlo
import interp

DTYPES = {name: t.dtype for name, t in hlo.ELEMENT_TYPES.items()}


def dtype_of(type_: str) -> np.dtype:
    """The NumPy type of `tensor<2x3xf32>` or of a quantized tensor (its storage type)."""
    inner = type_.removeprefix("tensor<").removesuffix(">")
    if "!quant.uniform<" in inner:
        return DTYPES[inner.split("!quant.uniform<")[1].split(":")[0].split("<")[0]]
    while inner[0].isdigit() or inner[0] == "?":
        inner = inner.partition("x")[2]
    return DTYPES[inner]


def run(text: str, inputs: Sequence[tuple[str, Any]], results: Sequence[str]) -> tuple[Any, ...]:
    """Runs ops that name their inputs %0, %1, … and their results %a, %b, …."""
    arguments = ", ".join(f"%{i}: {t}" for i, (t, _) in enumerate(inputs))
    names = ", ".join("%" + "abcdef"[k] for k in range(len(results)))
    module = hlo.parse(
        f"func.func @main({arguments}) -> ({', '.join(results)}) {{\n{text}\nfunc.return {names} : {', '.join(results)}\n}}"
    )
    hlo.verify(module)
    arrays = [None if t.endswith("token") else np.array(v, dtype_of(t)) for t, v in inputs]
    return interp.evaluate(module, *arrays)


def check(text: str, inputs: Sequence[tuple[str, Any]], *expected: tuple[str, Any]) -> None:
    found = run(text, inputs, [t for t, _ in expected])
    for f, (t, e) in zip(found, expected, strict=True):
        want = np.array(e, dtype_of(t))
        assert f.dtype == want.dtype and f.shape == want.shape
        if want.dtype.kind in "fc":
            np.testing.assert_allclose(f, want, rtol=5e-6, atol=1e-6)
            if want.dtype.kind == "f":
                zero = want == 0
                np.testing.assert_array_equal(np.signbit(f[zero & (f == 0)]), np.signbit(want[zero & (f == 0)]))
        else:
            np.testing.assert_array_equal(f, want)


def elementwise(name: str, operands: int, operand: str, result: str | None = None, attributes: str = "") -> str:
    inputs = ", ".join(f"%{i}" for i in range(operands))
    types = ", ".join([operand] * operands)
    return f'%a = "{name}"({inputs}) {attributes} : ({types}) -> {result or operand}'


INF, NAN = float("inf"), float("nan")
PI = 3.14159265
SIMPLE = [
    ("abs", "3xi32", [[-2, 0, 2]], "3xi32", [2, 0, 2]),
    ("add", "2x2xi32", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "2x2xi32", [[6, 8], [10, 12]]),
    ("and", "2x2xi32", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "2x2xi32", [[1, 2], [3, 0]]),
    ("atan2", "3xf64", [[0, 1, -1], [0, 0, 0]], "3xf64", [0, 1.57079637, -1.57079637]),
    ("cbrt", "4xf64", [[0, 1, 8, 27]], "4xf64", [0, 1, 2, 3]),
    ("ceil", "5xf32", [[-0.8166, -0.2530, 0.2530, 0.8166, 2.0]], "5xf32", [-0.0, -0.0, 1, 1, 2]),
    ("complex", "2xf64", [[1, 3], [2, 4]], "2xcomplex<f64>", [1 + 2j, 3 + 4j]),
    ("convert", "3xi64", [[-1, 0, 1]], "3xcomplex<f64>", [-1, 0, 1]),
    ("cosine", "2x2xf32", [[[0, PI / 2], [PI, 3 * PI / 2]]], "2x2xf32", [[1, 0], [-1, 0]]),
    ("count_leading_zeros", "2x2xi64", [[[0, 1], [128, -1]]], "2x2xi64", [[64, 63], [56, 0]]),
    ("divide", "4xf32", [[17.1, -17.1, 17.1, -17.1], [3, 3, -3, -3]], "4xf32", [5.7, -5.7, -5.7, 5.7]),
    ("exponential", "2x2xf64", [[[0, 1], [2, 3]]], "2x2xf64", [[1, 2.718281828459045], [7.38905609893065, 20.085536923187668]]),
    ("exponential_minus_one", "2xf64", [[0, 1]], "2xf64", [0, 1.71828187]),
    ("floor", "5xf32", [[-0.8166, -0.2530, 0.2530, 0.8166, 2.0]], "5xf32", [-1, -1, 0, 0, 2]),
    ("imag", "2xcomplex<f32>", [[1 + 2j, 3 + 4j]], "2xf32", [2, 4]),
    ("is_finite", "7xf64", [[-INF, INF, NAN, -10, -0.0, 0, 10]], "7xi1", [False] * 3 + [True] * 4),
    ("log", "2x2xf64", [[[1, 2], [3, 4]]], "2x2xf64", [[0, 0.6931471805599453], [1.0986122886681098, 1.3862943611198906]]),
    ("log_plus_one", "5xf64", [[0, -0.999, 7, 6.38905621, 15]], "5xf64", [0, -6.90775528, 2.07944155, 2.0000000149, 2.77258873]),
    ("logistic", "2x2xf64", [[[0, 1], [2, 3]]], "2x2xf64", [[0.5, 0.73105858], [0.88079708, 0.95257413]]),
    ("maximum", "2x2xi32", [[[1, 2], [7, 8]], [[5, 6], [3, 4]]], "2x2xi32", [[5, 6], [7, 8]]),
    ("minimum", "2x2xi32", [[[1, 2], [7, 8]], [[5, 6], [3, 4]]], "2x2xi32", [[1, 2], [3, 4]]),
    ("multiply", "2x2xi32", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "2x2xi32", [[5, 12], [21, 32]]),
    ("negate", "2xi32", [[0, -2]], "2xi32", [0, 2]),
    ("negate", "1xcomplex<f32>", [[2.5]], "1xcomplex<f32>", [-2.5]),
    ("not", "2x2xi32", [[[1, 2], [3, 4]]], "2x2xi32", [[-2, -3], [-4, -5]]),
    ("not", "2xi1", [[True, False]], "2xi1", [False, True]),
    ("or", "2x2xi32", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "2x2xi32", [[5, 6], [7, 12]]),
    ("or", "2x2xi1", [[[False, False], [True, True]], [[False, True], [False, True]]], "2x2xi1", [[False, True], [True, True]]),
    ("popcnt", "4xi64", [[0, 1, 2, 127]], "4xi64", [0, 1, 1, 7]),
    ("power", "6xf64", [[-2, -0.0, -36, 5, 3, 10000], [2, 2, 1.1, 2, -1, 10]], "6xf64", [4, 0, NAN, 25, 1 / 3, 1e40]),
    ("real", "2xcomplex<f32>", [[1 + 2j, 3 + 4j]], "2xf32", [1, 3]),
    ("remainder", "4xi64", [[17, -17, 17, -17], [3, 3, -3, -3]], "4xi64", [2, -2, 2, -2]),
    ("reshape", "2x3xi32", [[[1, 2, 3], [4, 5, 6]]], "3x2xi32", [[1, 2], [3, 4], [5, 6]]),
    ("round_nearest_afz", "5xf64", [[-2.5, 0.4, 0.5, 0.6, 2.5]], "5xf64", [-3, 0, 1, 1, 3]),
    ("round_nearest_even", "5xf64", [[-2.5, 0.4, 0.5, 0.6, 2.5]], "5xf64", [-2, 0, 0, 1, 2]),
    ("rsqrt", "2x2xf32", [[[1, 4], [9, 25]]], "2x2xf32", [[1, 0.5], [0.33333343, 0.2]]),
    ("shift_left", "3xi64", [[-1, 0, 1], [1, 2, 3]], "3xi64", [-2, 0, 8]),
    ("shift_right_arithmetic", "3xi64", [[-1, 0, 8], [1, 2, 3]], "3xi64", [-1, 0, 1]),
    ("shift_right_logical", "3xi64", [[-1, 0, 8], [1, 2, 3]], "3xi64", [9223372036854775807, 0, 1]),
    ("sign", "5xf64", [[NAN, -1, -0.0, 0, 1]], "5xf64", [NAN, -1, -0.0, 0, 1]),
    ("sine", "2x2xf32", [[[0, PI / 2], [PI, 3 * PI / 2]]], "2x2xf32", [[0, 1], [0, -1]]),
    ("sqrt", "2x2xf32", [[[0, 1], [4, 9]]], "2x2xf32", [[0, 1], [2, 3]]),
    ("subtract", "2x2xf32", [[[6, 8], [10, 12]], [[5, 6], [7, 8]]], "2x2xf32", [[1, 2], [3, 4]]),
    ("tanh", "3xf32", [[-1, 0, 1]], "3xf32", [-0.76159416, 0, 0.76159416]),
    ("xor", "2x2xi32", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "2x2xi32", [[4, 4], [4, 12]]),
    ("xor", "2x2xi1", [[[False, False], [True, True]], [[False, True], [False, True]]], "2x2xi1", [[False, True], [True, False]]),
    ("clamp", "3xi32", [[5, 10, 15], [3, 13, 23], [10, 15, 20]], "3xi32", [5, 13, 20]),
]


@pytest.mark.parametrize(("name", "operand", "inputs", "result", "expected"), SIMPLE, ids=[c[0] + "-" + c[1] for c in SIMPLE])
def test_elementwise(name: str, operand: str, inputs: list[Any], result: str, expected: list[Any]) -> None:
    text = elementwise(f"stablehlo.{name}", len(inputs), f"tensor<{operand}>", f"tensor<{result}>")
    check(text, [(f"tensor<{operand}>", v) for v in inputs], (f"tensor<{result}>", expected))


def test_tan() -> None:
    (found,) = run(elementwise("stablehlo.tan", 1, "tensor<2x2xf64>"), [("tensor<2x2xf64>", [[0, np.pi / 2], [np.pi, 3 * np.pi / 2]])],
                   ["tensor<2x2xf64>"])  # fmt: skip
    np.testing.assert_allclose(found, [[0, 1.63312e16], [0, 5.44375e15]], rtol=1e-5, atol=1e-15)


def test_compare() -> None:
    text = ('%a = "stablehlo.compare"(%0, %1) {comparison_direction = #stablehlo<comparison_direction LT>, '
            "compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>")  # fmt: skip
    check(text, [("tensor<2xf32>", [1.0, 3.0]), ("tensor<2xf32>", [1.1, 2.9])], ("tensor<2xi1>", [True, False]))


def test_select() -> None:
    text = '%a = "stablehlo.select"(%0, %1, %2) : (tensor<2x2xi1>, tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>'
    inputs = [
        ("tensor<2x2xi1>", [[False, True], [True, False]]),
        ("tensor<2x2xi32>", [[1, 2], [3, 4]]),
        ("tensor<2x2xi32>", [[5, 6], [7, 8]]),
    ]
    check(text, inputs, ("tensor<2x2xi32>", [[5, 2], [3, 8]]))


@pytest.mark.parametrize("element", ["f16", "f32", "f64"])
def test_reduce_precision_to_no_mantissa_bits(element: str) -> None:
    """Nothing tells a NaN from infinity then: it becomes that, as in the reference. XLA keeps it on CPUs."""
    text = f"""func.func @main(%x: tensor<4x{element}>) -> tensor<4x{element}> {{
      %0 = "stablehlo.reduce_precision"(%x) {{exponent_bits = 5 : i32, mantissa_bits = 0 : i32}}
        : (tensor<4x{element}>) -> tensor<4x{element}>
      return %0 : tensor<4x{element}> }}"""
    module = hlo.parse(text)
    x = np.array([np.nan, -np.inf, 1.75, 1.25], module.function().arguments[0].tensor.dtype)
    for found in (interp.evaluate(module, x)[0], codegen.compile(module)(x)[0]):
        assert found.tolist() == [np.inf, -np.inf, 2.0, 1.0]


def test_reduce_precision() -> None:
    denormal = 5e-324
    text = '%a = "stablehlo.reduce_precision"(%0) {exponent_bits = 5 : i32, mantissa_bits = 10 : i32} : (tensor<6xf64>) -> tensor<6xf64>'
    check(text, [("tensor<6xf64>", [INF, NAN, denormal, 0, 65519, 65520])], ("tensor<6xf64>", [INF, NAN, 0, 0, 65504, INF]))


def test_bitcast_convert() -> None:
    (found,) = run(
        '%a = "stablehlo.bitcast_convert"(%0) : (tensor<f64>) -> tensor<4xf16>',
        [("tensor<f64>", np.array(0x0123456789ABCDEF, np.uint64).view(np.float64))],
        ["tensor<4xf16>"],
    )
    assert [hex(v) for v in found.view(np.uint16)] == ["0xcdef", "0x89ab", "0x4567", "0x123"]


MOVES = [
    ('"stablehlo.broadcast_in_dim"(%0) {broadcast_dimensions = array<i64: 2, 1>} : (tensor<1x3xi32>) -> tensor<2x3x2xi32>',
     ["1x3xi32"], [[[1, 2, 3]]], "2x3x2xi32", [[[1, 1], [2, 2], [3, 3]]] * 2),
    ('"stablehlo.concatenate"(%0, %1) {dimension = 0 : i64} : (tensor<3x2xi64>, tensor<1x2xi64>) -> tensor<4x2xi64>',
     ["3x2xi64", "1x2xi64"], [[[1, 2], [3, 4], [5, 6]], [[7, 8]]], "4x2xi64", [[1, 2], [3, 4], [5, 6], [7, 8]]),
    ('"stablehlo.constant"() {value = dense<[[0.0, 1.0], [2.0, 3.0]]> : tensor<2x2xf32>} : () -> tensor<2x2xf32>',
     [], [], "2x2xf32", [[0, 1], [2, 3]]),
    ('"stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<4x5xi32>', [], [], "4x5xi32", [[i] * 5 for i in range(4)]),
    ('"stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<4x5xi32>', [], [], "4x5xi32", [list(range(5))] * 4),
    ('"stablehlo.pad"(%0, %1) {edge_padding_low = array<i64: 0, 1>, edge_padding_high = array<i64: 2, 1>, interior_padding = '
     "array<i64: 1, 2>} : (tensor<2x3xi32>, tensor<i32>) -> tensor<5x9xi32>", ["2x3xi32", "i32"], [[[1, 2, 3], [4, 5, 6]], 0], "5x9xi32",
     [[0, 1, 0, 0, 2, 0, 0, 3, 0], [0] * 9, [0, 4, 0, 0, 5, 0, 0, 6, 0], [0] * 9, [0] * 9]),
    ('"stablehlo.reverse"(%0) {dimensions = array<i64: 1>} : (tensor<3x2xi32>) -> tensor<3x2xi32>', ["3x2xi32"],
     [[[1, 2], [3, 4], [5, 6]]], "3x2xi32", [[2, 1], [4, 3], [6, 5]]),
    ('"stablehlo.slice"(%0) {start_indices = array<i64: 1, 2>, limit_indices = array<i64: 3, 4>, strides = array<i64: 1, 1>} : '
     "(tensor<3x4xi64>) -> tensor<2x2xi64>", ["3x4xi64"], [[[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]], "2x2xi64", [[1, 1], [1, 1]]),
    ('"stablehlo.transpose"(%0) {permutation = array<i64: 2, 1, 0>} : (tensor<2x3x2xi32>) -> tensor<2x3x2xi32>', ["2x3x2xi32"],
     [[[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 10], [11, 12]]]], "2x3x2xi32", [[[1, 7], [3, 9], [5, 11]], [[2, 8], [4, 10], [6, 12]]]),
    ('"stablehlo.dynamic_broadcast_in_dim"(%0, %1) {broadcast_dimensions = array<i64: 2, 1>, known_expanding_dimensions = array<i64: 0>, '
     "known_nonexpanding_dimensions = array<i64: 1>} : (tensor<1x3xi64>, tensor<3xi64>) -> tensor<2x3x2xi64>",
     ["1x3xi64", "3xi64"], [[[1, 2, 3]], [2, 3, 2]], "2x3x2xi64", [[[1, 1], [2, 2], [3, 3]]] * 2),
    ('"stablehlo.dynamic_iota"(%0) {iota_dimension = 0 : i64} : (tensor<2xi64>) -> tensor<4x5xi64>', ["2xi64"], [[4, 5]], "4x5xi64",
     [[i] * 5 for i in range(4)]),
    ('"stablehlo.dynamic_pad"(%0, %1, %2, %3, %4) : (tensor<2x3xi64>, tensor<i64>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<5x9xi64>',
     ["2x3xi64", "i64", "2xi64", "2xi64", "2xi64"], [[[1, 2, 3], [4, 5, 6]], 0, [0, 1], [2, 1], [1, 2]], "5x9xi64",
     [[0, 1, 0, 0, 2, 0, 0, 3, 0], [0] * 9, [0, 4, 0, 0, 5, 0, 0, 6, 0], [0] * 9, [0] * 9]),
    ('"stablehlo.dynamic_reshape"(%0, %1) : (tensor<2x3xi64>, tensor<2xi64>) -> tensor<3x2xi64>', ["2x3xi64", "2xi64"],
     [[[1, 2, 3], [4, 5, 6]], [3, 2]], "3x2xi64", [[1, 2], [3, 4], [5, 6]]),
    ('"stablehlo.dynamic_slice"(%0, %1, %2) {slice_sizes = array<i64: 2, 2>} : (tensor<4x4xi32>, tensor<i64>, tensor<i64>) -> tensor<2x2xi32>',
     ["4x4xi32", "i64", "i64"], [[[0, 0, 1, 1], [0, 0, 1, 1], [0] * 4, [0] * 4], -1, 3], "2x2xi32", [[1, 1], [1, 1]]),
    ('"stablehlo.dynamic_update_slice"(%0, %1, %2, %3) : (tensor<4x4xi32>, tensor<2x2xi32>, tensor<i64>, tensor<i64>) -> tensor<4x4xi32>',
     ["4x4xi32", "2x2xi32", "i64", "i64"], [[[1, 1, 0, 0], [1, 1, 0, 0], [1] * 4, [1] * 4], [[1, 1], [1, 1]], -1, 3], "4x4xi32", [[1] * 4] * 4),
    ('"stablehlo.get_dimension_size"(%0) {dimension = 1 : i64} : (tensor<2x3xi64>) -> tensor<i32>', ["2x3xi64"], [[[1, 2, 3], [4, 5, 6]]], "i32", 3),
    ('"stablehlo.cholesky"(%0) {lower = true} : (tensor<3x3xf32>) -> tensor<3x3xf32>', ["3x3xf32"],
     [[[1, 2, 3], [2, 20, 26], [3, 26, 70]]], "3x3xf32", [[1, 0, 0], [2, 4, 0], [3, 5, 6]]),
    ('"stablehlo.triangular_solve"(%0, %1) {left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose '
     "NO_TRANSPOSE>} : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>", ["3x3xf32", "3x3xf32"],
     [[[1, 0, 0], [2, 4, 0], [3, 5, 6]], [[2, 0, 0], [4, 8, 0], [6, 10, 12]]], "3x3xf32", [[2, 0, 0], [0, 2, 0], [0, 0, 2]]),
    ('"stablehlo.fft"(%0) {fft_type = #stablehlo<fft_type FFT>, fft_length = array<i64: 4>} : (tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>',
     ["4xcomplex<f32>"], [[1, 0, 0, 0]], "4xcomplex<f32>", [1, 1, 1, 1]),
    ('"stablehlo.dot_general"(%0, %1) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], '
     "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>} : (tensor<2x2x2xi64>, tensor<2x2x2xi64>) -> tensor<2x2x2xi64>",
     ["2x2x2xi64"] * 2, [[[[1, 2], [3, 4]], [[5, 6], [7, 8]]], [[[1, 0], [0, 1]]] * 2], "2x2x2xi64", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "types", "inputs", "result", "expected"), MOVES, ids=[m[0].split('"')[1] for m in MOVES])
def test_one_op(text: str, types: list[str], inputs: list[Any], result: str, expected: Any) -> None:
    check("%a = " + text, [(f"tensor<{t}>", v) for t, v in zip(types, inputs, strict=True)], (f"tensor<{result}>", expected))


OPERAND = np.arange(1, 25).reshape(3, 4, 2).tolist()
BATCHED = np.arange(1, 49).reshape(2, 3, 4, 2).tolist()
STARTS = [[[[0, 0], [1, 0], [2, 1]], [[0, 1], [1, 1], [0, 9]]], [[[0, 0], [2, 1], [2, 2]], [[1, 2], [0, 1], [1, 0]]]]


def test_gather() -> None:
    text = """%a = "stablehlo.gather"(%0, %1) {dimension_numbers = #stablehlo.gather<offset_dims = [3, 4], collapsed_slice_dims = [1],
      operand_batching_dims = [0], start_indices_batching_dims = [1], start_index_map = [2, 1], index_vector_dim = 3>,
      slice_sizes = array<i64: 1, 1, 2, 2>, indices_are_sorted = false} : (tensor<2x3x4x2xi32>, tensor<2x2x3x2xi64>) -> tensor<2x2x3x2x2xi32>"""
    first = [
        [[[1, 2], [3, 4]], [[3, 4], [5, 6]], [[13, 14], [15, 16]]],
        [[[33, 34], [35, 36]], [[35, 36], [37, 38]], [[41, 42], [43, 44]]],
    ]
    last = [
        [[[1, 2], [3, 4]], [[13, 14], [15, 16]], [[21, 22], [23, 24]]],
        [[[43, 44], [45, 46]], [[33, 34], [35, 36]], [[27, 28], [29, 30]]],
    ]
    check(text, [("tensor<2x3x4x2xi32>", BATCHED), ("tensor<2x2x3x2xi64>", STARTS)], ("tensor<2x2x3x2x2xi32>", [first, last]))


def test_dynamic_gather() -> None:
    text = """%a = "stablehlo.dynamic_gather"(%0, %1, %2) {dimension_numbers = #stablehlo.gather<offset_dims = [2, 3],
      collapsed_slice_dims = [0], start_index_map = [1, 0], index_vector_dim = 2>, indices_are_sorted = false}
      : (tensor<3x4x2xi64>, tensor<2x3x2xi64>, tensor<3xi64>) -> tensor<2x3x2x2xi64>"""
    starts = [[[0, 0], [1, 0], [2, 1]], [[0, 1], [1, 1], [0, 2]]]
    expected = [
        [[[1, 2], [3, 4]], [[3, 4], [5, 6]], [[13, 14], [15, 16]]],
        [[[9, 10], [11, 12]], [[11, 12], [13, 14]], [[17, 18], [19, 20]]],
    ]
    check(
        text,
        [("tensor<3x4x2xi64>", OPERAND), ("tensor<2x3x2xi64>", starts), ("tensor<3xi64>", [1, 2, 2])],
        ("tensor<2x3x2x2xi64>", expected),
    )


def region(op: str, element: str = "i64") -> str:
    return f"""({{
      ^bb0(%x: tensor<{element}>, %y: tensor<{element}>):
        %s = {op} : tensor<{element}>
        stablehlo.return %s : tensor<{element}>
    }})"""


ADD = region("stablehlo.add %x, %y")
COMPARE = """({{
      ^bb0({arguments}):
        %s = stablehlo.compare {direction}, %x, %y : (tensor<i64>, tensor<i64>) -> tensor<i1>
        stablehlo.return %s : tensor<i1>
    }}"""


def test_scatter() -> None:
    text = f"""%a = "stablehlo.scatter"(%0, %1, %2) {ADD} {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [3, 4],
      inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [1], scatter_dims_to_operand_dims = [2, 1],
      index_vector_dim = 3>, indices_are_sorted = false, unique_indices = false}}
      : (tensor<2x3x4x2xi64>, tensor<2x2x3x2xi64>, tensor<2x2x3x2x2xi64>) -> tensor<2x3x4x2xi64>"""
    expected = [
        [[[3, 4], [6, 7], [6, 7], [7, 8]], [[9, 10], [11, 12], [15, 16], [17, 18]], [[17, 18], [19, 20], [22, 23], [24, 25]]],
        [
            [[25, 26], [28, 29], [30, 31], [31, 32]],
            [[35, 36], [38, 39], [38, 39], [39, 40]],
            [[41, 42], [44, 45], [46, 47], [47, 48]],
        ],
    ]
    inputs = [
        ("tensor<2x3x4x2xi64>", BATCHED),
        ("tensor<2x2x3x2xi64>", STARTS),
        ("tensor<2x2x3x2x2xi64>", np.ones((2, 2, 3, 2, 2))),
    ]
    check(text, inputs, ("tensor<2x3x4x2xi64>", expected))


def test_reduce() -> None:
    text = (
        f'%a = "stablehlo.reduce"(%0, %1) {ADD} {{dimensions = array<i64: 1>}} : (tensor<1x6xi64>, tensor<i64>) -> tensor<1xi64>'
    )
    check(text, [("tensor<1x6xi64>", [[0, 1, 2, 3, 4, 5]]), ("tensor<i64>", 0)], ("tensor<1xi64>", [15]))


def test_map() -> None:
    body = region("stablehlo.multiply %x, %y")
    text = f'%a = "stablehlo.map"(%0, %1) {body} {{dimensions = array<i64: 0, 1>}} : (tensor<2x2xi64>, tensor<2x2xi64>) -> tensor<2x2xi64>'
    check(
        text,
        [("tensor<2x2xi64>", [[0, 1], [2, 3]]), ("tensor<2x2xi64>", [[4, 5], [6, 7]])],
        ("tensor<2x2xi64>", [[0, 5], [12, 21]]),
    )


def test_reduce_window() -> None:
    text = f"""%a = "stablehlo.reduce_window"(%0, %1) {ADD} {{window_dimensions = array<i64: 2, 1>, window_strides = array<i64: 4, 1>,
      base_dilations = array<i64: 2, 1>, window_dilations = array<i64: 3, 1>, padding = dense<[[2, 1], [0, 0]]> : tensor<2x2xi64>}}
      : (tensor<3x2xi64>, tensor<i64>) -> tensor<2x2xi64>"""
    check(text, [("tensor<3x2xi64>", [[1, 2], [3, 4], [5, 6]]), ("tensor<i64>", 0)], ("tensor<2x2xi64>", [[0, 0], [3, 4]]))


def test_select_and_scatter() -> None:
    ge = COMPARE.format(arguments="%x: tensor<i64>, %y: tensor<i64>", direction="GE")
    text = f"""%a = "stablehlo.select_and_scatter"(%0, %1, %2) {ge}, {ADD[1:]} {{window_dimensions = array<i64: 3, 1>,
      window_strides = array<i64: 2, 1>, padding = dense<[[0, 1], [0, 0]]> : tensor<2x2xi64>}}
      : (tensor<4x2xi64>, tensor<2x2xi64>, tensor<i64>) -> tensor<4x2xi64>"""
    inputs = [("tensor<4x2xi64>", [[1, 5], [2, 5], [3, 6], [4, 4]]), ("tensor<2x2xi64>", [[5, 6], [7, 8]]), ("tensor<i64>", 0)]
    check(text, inputs, ("tensor<4x2xi64>", [[0, 0], [0, 0], [5, 14], [7, 0]]))


def test_sort() -> None:
    gt = COMPARE.format(arguments="%x: tensor<i64>, %y: tensor<i64>, %z: tensor<i64>, %w: tensor<i64>", direction="GT")
    text = f"""%a, %b = "stablehlo.sort"(%0, %1) {gt}) {{dimension = 0 : i64, is_stable = true}}
      : (tensor<2x3xi64>, tensor<2x3xi64>) -> (tensor<2x3xi64>, tensor<2x3xi64>)"""
    t = "tensor<2x3xi64>"
    check(
        text, [(t, [[1, 2, 3], [3, 2, 1]]), (t, [[3, 2, 1], [1, 2, 3]])], (t, [[3, 2, 3], [1, 2, 1]]), (t, [[1, 2, 1], [3, 2, 3]])
    )


IMAGE = [[[[1], [2], [5], [6]], [[3], [4], [7], [8]], [[10], [11], [14], [15]], [[12], [13], [16], [17]]]]
CONV = """{window_strides = array<i64: 4, 4>, PADDING lhs_dilation = array<i64: 2, 2>, rhs_dilation = array<i64: 1, 1>,
      window_reversal = array<i1: false, false>, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>,
      batch_group_count = 1 : i64, feature_group_count = 1 : i64}"""


def test_convolution() -> None:
    attributes = CONV.replace("PADDING", "padding = dense<0> : tensor<2x2xi64>,")
    text = (
        f'%a = "stablehlo.convolution"(%0, %1) {attributes} : (tensor<1x4x4x1xi64>, tensor<3x3x1x1xi64>) -> tensor<1x2x2x1xi64>'
    )
    inputs = [("tensor<1x4x4x1xi64>", IMAGE), ("tensor<3x3x1x1xi64>", np.ones((3, 3, 1, 1)))]
    check(text, inputs, ("tensor<1x2x2x1xi64>", [[[[10], [26]], [[46], [62]]]]))


def test_dynamic_conv() -> None:
    types = "(tensor<1x4x4x1xi64>, tensor<3x3x1x1xi64>, tensor<2x2xi64>) -> tensor<1x2x2x1xi64>"
    text = f'%a = "stablehlo.dynamic_conv"(%0, %1, %2) {CONV.replace("PADDING", "")} : {types}'
    inputs = [
        ("tensor<1x4x4x1xi64>", IMAGE),
        ("tensor<3x3x1x1xi64>", np.ones((3, 3, 1, 1))),
        ("tensor<2x2xi64>", [[1, 1], [1, 1]]),
    ]
    check(text, inputs, ("tensor<1x2x2x1xi64>", [[[[1], [5]], [[10], [14]]]]))


def test_batch_norm() -> None:
    x = [[[1, 2], [3, 4]], [[3, 4], [1, 2]]]
    t, v = "tensor<2x2x2xf64>", "tensor<2xf64>"
    common = "{epsilon = 0.0 : f32, feature_index = 2 : i64}"
    values = [(t, x), (v, [1, 1])]
    grad = f'%a, %b, %c = "stablehlo.batch_norm_grad"(%0, %1, %2, %3, %4) {common} : ({t}, {v}, {v}, {v}, {t}) -> ({t}, {v}, {v})'
    check(
        grad,
        [*values, (v, [2, 3]), (v, [1, 1]), (t, np.full((2, 2, 2), 0.1))],
        (t, np.zeros((2, 2, 2))),
        (v, [0, 0]),
        (v, [0.4, 0.4]),
    )
    inference = f'%a = "stablehlo.batch_norm_inference"(%0, %1, %2, %3, %4) {common} : ({t}, {v}, {v}, {v}, {v}) -> {t}'
    normal = [[[0, 0], [2, 2]], [[2, 2], [0, 0]]]
    check(inference, [*values, (v, [1, 1]), (v, [2, 3]), (v, [1, 1])], (t, normal))
    training = f'%a, %b, %c = "stablehlo.batch_norm_training"(%0, %1, %2) {common} : ({t}, {v}, {v}) -> ({t}, {v}, {v})'
    check(training, [*values, (v, [1, 1])], (t, normal), (v, [2, 3]), (v, [1, 1]))


def test_quantization() -> None:
    q = "tensor<2x!quant.uniform<i8:f32:0, {0.1:-30,0.5:-20}>>"
    other = "tensor<2x!quant.uniform<i8:f32:0, {0.1:-20,0.2:-30}>>"
    check(f"%a = stablehlo.uniform_dequantize %0 : ({q}) -> tensor<2xf32>", [(q, [10, 10])], ("tensor<2xf32>", [4.0, 15.0]))
    check(f"%a = stablehlo.uniform_quantize %0 : (tensor<2xf32>) -> {q}", [("tensor<2xf32>", [4.0, 15.0])], (q, [10, 10]))
    check(f"%a = stablehlo.uniform_quantize %0 : ({q}) -> {other}", [(q, [10, 10])], (other, [20, 45]))


def test_rng_bit_generator() -> None:
    text = """%a, %b = "stablehlo.rng_bit_generator"(%0) {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>}
      : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2x2xui64>)"""
    bits = [[9236835810183407956, 16087790271692313299], [18212823393184779219, 2658481902456610144]]
    check(text, [("tensor<2xui64>", [1, 2])], ("tensor<2xui64>", [1, 6]), ("tensor<2x2xui64>", bits))


def test_rng() -> None:
    text = """%a = "stablehlo.rng"(%0, %1, %2) {rng_distribution = #stablehlo<rng_distribution UNIFORM>}
      : (tensor<i32>, tensor<i32>, tensor<2xi64>) -> tensor<3x3xi32>"""
    inputs = [("tensor<i32>", 0), ("tensor<i32>", 2), ("tensor<2xi64>", [3, 3])]
    (found,) = run(text, inputs, ["tensor<3x3xi32>"])
    assert set(found.ravel().tolist()) == {0, 1}


def test_control_flow() -> None:
    t = "tensor<i64>"
    text = """%c10 = stablehlo.constant dense<10> : tensor<i64>
    %one = stablehlo.constant dense<1> : tensor<i64>
    %a, %b = "stablehlo.while"(%0, %1) ({
      ^bb0(%i: tensor<i64>, %s: tensor<i64>):
        %p = stablehlo.compare LT, %i, %c10 : (tensor<i64>, tensor<i64>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
    }, {
      ^bb0(%i: tensor<i64>, %s: tensor<i64>):
        %t = stablehlo.add %s, %one : tensor<i64>
        %n = stablehlo.add %i, %one : tensor<i64>
        stablehlo.return %n, %t : tensor<i64>, tensor<i64>
    }) : (tensor<i64>, tensor<i64>) -> (tensor<i64>, tensor<i64>)"""
    check(text, [(t, 0), (t, 0)], (t, 10), (t, 10))
    case = """%a, %b = "stablehlo.case"(%0) ({
      stablehlo.return %1, %1 : tensor<2xi64>, tensor<2xi64>
    }, {
      stablehlo.return %2, %2 : tensor<2xi64>, tensor<2xi64>
    }) : (tensor<i32>) -> (tensor<2xi64>, tensor<2xi64>)"""
    pair = "tensor<2xi64>"
    check(case, [("tensor<i32>", -1), (pair, [0, 0]), (pair, [1, 1])], (pair, [1, 1]), (pair, [1, 1]))
    branch = """%a = "stablehlo.if"(%0) ({
      stablehlo.return %1 : tensor<i32>
    }, {
      stablehlo.return %2 : tensor<i32>
    }) : (tensor<i1>) -> tensor<i32>"""
    check(branch, [("tensor<i1>", True), ("tensor<i32>", 10), ("tensor<i32>", 11)], ("tensor<i32>", 10))


def test_values_that_are_no_tensors() -> None:
    text = """%t = "stablehlo.tuple"(%1) : (tensor<i32>) -> tuple<tensor<i32>>
    %u = "stablehlo.tuple"(%0, %t) : (tensor<2xf32>, tuple<tensor<i32>>) -> tuple<tensor<2xf32>, tuple<tensor<i32>>>
    %v = "stablehlo.get_tuple_element"(%u) {index = 0 : i32} : (tuple<tensor<2xf32>, tuple<tensor<i32>>>) -> tensor<2xf32>
    %w = "stablehlo.get_tuple_element"(%u) {index = 1 : i32} : (tuple<tensor<2xf32>, tuple<tensor<i32>>>) -> tuple<tensor<i32>>
    %x = "stablehlo.get_tuple_element"(%w) {index = 0 : i32} : (tuple<tensor<i32>>) -> tensor<i32>
    %k = "stablehlo.after_all"(%2, %2) : (!stablehlo.token, !stablehlo.token) -> !stablehlo.token
    %a, %b = "stablehlo.optimization_barrier"(%v, %x) : (tensor<2xf32>, tensor<i32>) -> (tensor<2xf32>, tensor<i32>)"""
    inputs = [("tensor<2xf32>", [1, 2]), ("tensor<i32>", 3), ("!stablehlo.token", None)]
    check(text, inputs, ("tensor<2xf32>", [1, 2]), ("tensor<i32>", 3))


def test_quantized_elements_of_small_types() -> None:
    assert dtype_of("tensor<2x!quant.uniform<i4:f32, 1.0>>") == ml_dtypes.int4
