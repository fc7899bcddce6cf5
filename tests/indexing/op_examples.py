"""Small instances of every kind of op: one function each, whose root is the op."""
# ruff: noqa: E501  (programs are kept as they are printed)

from __future__ import annotations

ADD = """({{
 ^bb0(%x: tensor<{0}>, %y: tensor<{0}>):
  %t = stablehlo.add %x, %y : tensor<{0}>
  stablehlo.return %t : tensor<{0}>
 }})"""
GREATER = """({
 ^bb0(%x: tensor<f32>, %y: tensor<f32>):
  %t = stablehlo.compare GT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
  stablehlo.return %t : tensor<i1>
 })"""
SUM = ADD.format("f32")


def conv(attributes: str, lhs: str, rhs: str, out: str) -> tuple[str, str]:
    """A convolution with NHWC-like numbers of one or two spatial dimensions."""
    spatial = "0, 1" if lhs.count("x") == 4 else "0"
    numbers = f"[b, {spatial}, f]x[{spatial}, i, o]->[b, {spatial}, f]"
    return (
        f"%r = stablehlo.convolution(%a, %b) dim_numbers = {numbers}, {attributes} : (tensor<{lhs}>, tensor<{rhs}>) -> tensor<{out}>",
        f"%a: tensor<{lhs}>, %b: tensor<{rhs}>",
    )


def window(attributes: str, a: str, out: str) -> tuple[str, str]:
    return (
        f'%r = "stablehlo.reduce_window"(%a, %z) {SUM} {{{attributes}}} : (tensor<{a}>, tensor<f32>) -> tensor<{out}>',
        f"%a: tensor<{a}>, %z: tensor<f32>",
    )


EXAMPLES: dict[str, tuple[str, str]] = {
    "add": ("%r = stablehlo.add %a, %b : tensor<3x4xf32>", "%a: tensor<3x4xf32>, %b: tensor<3x4xf32>"),
    "negate a scalar": ("%r = stablehlo.negate %a : tensor<f32>", "%a: tensor<f32>"),
    "select": (
        "%r = stablehlo.select %p, %a, %b : tensor<i1>, tensor<3x4xf32>",
        "%p: tensor<i1>, %a: tensor<3x4xf32>, %b: tensor<3x4xf32>",
    ),
    "clamp": (
        "%r = stablehlo.clamp %l, %a, %h : (tensor<f32>, tensor<5xf32>, tensor<f32>) -> tensor<5xf32>",
        "%l: tensor<f32>, %a: tensor<5xf32>, %h: tensor<f32>",
    ),
    "broadcast": (
        "%r = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<4xf32>) -> tensor<3x4x2xf32>",
        "%a: tensor<4xf32>",
    ),
    "broadcast of a size-1 dimension": (
        "%r = stablehlo.broadcast_in_dim %a, dims = [2, 0] : (tensor<1x3xf32>) -> tensor<3x4x2xf32>",
        "%a: tensor<1x3xf32>",
    ),
    "transpose": (
        "%r = stablehlo.transpose %a, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>",
        "%a: tensor<2x3x4xf32>",
    ),
    "reverse": ("%r = stablehlo.reverse %a, dims = [0, 2] : tensor<2x3x4xf32>", "%a: tensor<2x3x4xf32>"),
    "slice": ("%r = stablehlo.slice %a [1:4, 0:7:3] : (tensor<5x8xf32>) -> tensor<3x3xf32>", "%a: tensor<5x8xf32>"),
    "reshape, collapse": ("%r = stablehlo.reshape %a : (tensor<4x6xf32>) -> tensor<24xf32>", "%a: tensor<4x6xf32>"),
    "reshape, expand": ("%r = stablehlo.reshape %a : (tensor<24xf32>) -> tensor<4x1x6xf32>", "%a: tensor<24xf32>"),
    "reshape, generic": ("%r = stablehlo.reshape %a : (tensor<4x8xf32>) -> tensor<2x4x4xf32>", "%a: tensor<4x8xf32>"),
    "reshape, awkward": ("%r = stablehlo.reshape %a : (tensor<3x5x7x2xf32>) -> tensor<7x3x2x5xf32>", "%a: tensor<3x5x7x2xf32>"),
    "concatenate": (
        "%r = stablehlo.concatenate %a, %b, %c, dim = 1 : (tensor<2x3xf32>, tensor<2x1xf32>, tensor<2x4xf32>) -> tensor<2x8xf32>",
        "%a: tensor<2x3xf32>, %b: tensor<2x1xf32>, %c: tensor<2x4xf32>",
    ),
    "pad": (
        "%r = stablehlo.pad %a, %z, low = [1, 2], high = [0, 1], interior = [1, 0] : (tensor<4x3xf32>, tensor<f32>) -> tensor<8x6xf32>",
        "%a: tensor<4x3xf32>, %z: tensor<f32>",
    ),
    "pad, negative": (
        "%r = stablehlo.pad %a, %z, low = [-1, -2], high = [2, -3], interior = [2, 1] : (tensor<4x5xf32>, tensor<f32>) -> tensor<11x4xf32>",
        "%a: tensor<4x5xf32>, %z: tensor<f32>",
    ),
    "reduce": (
        "%r = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0, 2] : (tensor<2x3x4xf32>, tensor<f32>) -> tensor<3xf32>",
        "%a: tensor<2x3x4xf32>, %z: tensor<f32>",
    ),
    "dot": (
        "%r = stablehlo.dot_general %a, %b, batching_dims = [0] x [1], contracting_dims = [2] x [0]"
        " : (tensor<2x3x4xf32>, tensor<4x2x5xf32>) -> tensor<2x3x5xf32>",
        "%a: tensor<2x3x4xf32>, %b: tensor<4x2x5xf32>",
    ),
    "scaled_dot": (
        '%r = "xla.scaled_dot"(%a, %b, %c, %d) {dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], '
        "rhs_contracting_dimensions = [0]>} : (tensor<3x4xf32>, tensor<4x2xf32>, tensor<1x2xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>",
        "%a: tensor<3x4xf32>, %b: tensor<4x2xf32>, %c: tensor<1x2xf32>, %d: tensor<4x2xf32>",
    ),
    "dynamic_slice": (
        "%r = stablehlo.dynamic_slice %a, %i, %j, sizes = [2, 3] : (tensor<4x6xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>",
        "%a: tensor<4x6xf32>, %i: tensor<i32>, %j: tensor<i32>",
    ),
    "dynamic_update_slice": (
        "%r = stablehlo.dynamic_update_slice %a, %u, %i, %j"
        " : (tensor<4x6xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>",
        "%a: tensor<4x6xf32>, %u: tensor<2x3xf32>, %i: tensor<i32>, %j: tensor<i32>",
    ),
    "gather": (
        '%r = "stablehlo.gather"(%a, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0],'
        " start_index_map = [0, 2], index_vector_dim = 1>, slice_sizes = array<i64: 1, 3, 2>}"
        " : (tensor<4x3x5xf32>, tensor<3x2xi32>) -> tensor<3x3x2xf32>",
        "%a: tensor<4x3x5xf32>, %i: tensor<3x2xi32>",
    ),
    "gather, batched": (
        '%r = "stablehlo.gather"(%a, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [1],'
        " operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>,"
        " slice_sizes = array<i64: 1, 1, 3>} : (tensor<2x4x3xf32>, tensor<2x3x1xi32>) -> tensor<2x3x3xf32>",
        "%a: tensor<2x4x3xf32>, %i: tensor<2x3x1xi32>",
    ),
    "torch_index_select": (
        '%r = "stablehlo.torch_index_select"(%a, %i) {dim = 1 : i64, batch_dims = 0 : i64}'
        " : (tensor<2x5xf32>, tensor<3xi32>) -> tensor<2x3xf32>",
        "%a: tensor<2x5xf32>, %i: tensor<3xi32>",
    ),
    "convolution": conv(
        "window = {stride = [2], pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}",
        "2x7x3xf32",
        "3x3x2xf32",
        "2x4x2xf32",
    ),
    "convolution, dilated": conv(
        "window = {pad = [[2, 1], [0, 0]], lhs_dilate = [2, 1], rhs_dilate = [2, 1], reverse = [true, false]}"
        " {batch_group_count = 1 : i64, feature_group_count = 1 : i64}",
        "1x4x3x2xf32",
        "2x2x2x2xf32",
        "1x8x2x2xf32",
    ),
    "convolution, feature groups": conv(
        "window = {} {batch_group_count = 1 : i64, feature_group_count = 2 : i64}", "1x4x4xf32", "2x2x6xf32", "1x3x6xf32"
    ),
    "convolution, batch groups": conv(
        "window = {} {batch_group_count = 2 : i64, feature_group_count = 1 : i64}", "4x4x3xf32", "2x3x4xf32", "2x3x4xf32"
    ),
    "reduce_window": window(
        "window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 2>, padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>",
        "2x6xf32",
        "2x3xf32",
    ),
    "reduce_window, dilated": window(
        "window_dimensions = array<i64: 2, 2>, window_dilations = array<i64: 1, 2>, base_dilations = array<i64: 2, 1>,"
        " padding = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>",
        "3x4xf32",
        "5x3xf32",
    ),
    "cumulative sum": window("window_dimensions = array<i64: 5>, padding = dense<[[4, 0]]> : tensor<1x2xi64>", "5xf32", "5xf32"),
    "sort": (
        f'%r = "stablehlo.sort"(%a) {GREATER} {{dimension = 1 : i64, is_stable = true}} : (tensor<3x4xf32>) -> tensor<3x4xf32>',
        "%a: tensor<3x4xf32>",
    ),
    "top_k": ("%r:2 = chlo.top_k(%a, k = 2) : tensor<3x4xf32> -> (tensor<3x2xf32>, tensor<3x2xi32>)", "%a: tensor<3x4xf32>"),
    "fft": (
        "%r = stablehlo.fft %a, type = FFT, length = [4] : (tensor<3x4xcomplex<f32>>) -> tensor<3x4xcomplex<f32>>",
        "%a: tensor<3x4xcomplex<f32>>",
    ),
    "rfft": (
        "%r = stablehlo.fft %a, type = RFFT, length = [4] : (tensor<3x4xf32>) -> tensor<3x3xcomplex<f32>>",
        "%a: tensor<3x4xf32>",
    ),
    "triangular_solve": (
        '%r = "stablehlo.triangular_solve"(%a, %b) {left_side = true, lower = true, unit_diagonal = false,'
        " transpose_a = #stablehlo<transpose NO_TRANSPOSE>} : (tensor<3x3xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>",
        "%a: tensor<3x3xf32>, %b: tensor<3x2xf32>",
    ),
    "batch_norm_inference": (
        '%r = "stablehlo.batch_norm_inference"(%a, %s, %o, %m, %v) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64}'
        " : (tensor<2x3x2xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x3x2xf32>",
        "%a: tensor<2x3x2xf32>, %s: tensor<3xf32>, %o: tensor<3xf32>, %m: tensor<3xf32>, %v: tensor<3xf32>",
    ),
    "bitcast_convert, wider": (
        "%r = stablehlo.bitcast_convert %a : (tensor<3x2xi16>) -> tensor<3xi32>",
        "%a: tensor<3x2xi16>",
    ),
    "bitcast_convert, narrower": (
        "%r = stablehlo.bitcast_convert %a : (tensor<3xi32>) -> tensor<3x4xi8>",
        "%a: tensor<3xi32>",
    ),
    "scatter": (
        f'%r = "stablehlo.scatter"(%a, %i, %u) {SUM} {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],'
        " inserted_window_dims = [1], scatter_dims_to_operand_dims = [1, 0], index_vector_dim = 1>}"
        " : (tensor<5x4xf32>, tensor<3x2xi32>, tensor<3x2xf32>) -> tensor<5x4xf32>",
        "%a: tensor<5x4xf32>, %i: tensor<3x2xi32>, %u: tensor<3x2xf32>",
    ),
    "select_and_scatter": (
        f'%r = "stablehlo.select_and_scatter"(%a, %s, %z) ({GREATER[1:-1].strip()}, {SUM[1:-1].strip()})'
        " {window_dimensions = array<i64: 3>, window_strides = array<i64: 2>, padding = dense<[[1, 0]]> : tensor<1x2xi64>}"
        " : (tensor<6xf32>, tensor<3xf32>, tensor<f32>) -> tensor<6xf32>",
        "%a: tensor<6xf32>, %s: tensor<3xf32>, %z: tensor<f32>",
    ),
    "broadcast_add": (
        "%r = chlo.broadcast_add %a, %b : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>",
        "%a: tensor<2x3xf32>, %b: tensor<1x3xf32>",
    ),
    "broadcast_select": (
        "%r = chlo.broadcast_select %p, %a, %b : (tensor<i1>, tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>",
        "%p: tensor<i1>, %a: tensor<2x3xf32>, %b: tensor<3xf32>",
    ),
    "map": (
        f'%r = "stablehlo.map"(%a, %b) {SUM} {{dimensions = array<i64: 0, 1>}}'
        " : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
        "%a: tensor<2x3xf32>, %b: tensor<2x3xf32>",
    ),
    "optimization_barrier": (
        "%r:2 = stablehlo.optimization_barrier %a, %b : tensor<2x3xf32>, tensor<4xf32>",
        "%a: tensor<2x3xf32>, %b: tensor<4xf32>",
    ),
    "cholesky": ("%r = stablehlo.cholesky %a, lower = true : tensor<2x3x3xf32>", "%a: tensor<2x3x3xf32>"),
    "dot without numbers": (
        "%r = stablehlo.dot %a, %b : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>",
        "%a: tensor<2x3xf32>, %b: tensor<3x4xf32>",
    ),
    "einsum": (
        '%r = stablehlo.einsum %a, %b, config = "ij,kj->ki" : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<4x2xf32>',
        "%a: tensor<2x3xf32>, %b: tensor<4x3xf32>",
    ),
    "unary_einsum": (
        '%r = "stablehlo.unary_einsum"(%a) {einsum_config = "ijk->ki"} : (tensor<2x3x4xf32>) -> tensor<4x2xf32>',
        "%a: tensor<2x3x4xf32>",
    ),
    "broadcast in front": (
        "%r = stablehlo.broadcast %a, sizes = [2, 4] : (tensor<3xf32>) -> tensor<2x4x3xf32>",
        "%a: tensor<3xf32>",
    ),
    "get_dimension_size": (
        "%r = stablehlo.get_dimension_size %a, dim = 1 : (tensor<2x3xf32>) -> tensor<i32>",
        "%a: tensor<2x3xf32>",
    ),
    "batch_norm_training": (
        '%r:3 = "stablehlo.batch_norm_training"(%a, %s, %o) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64}'
        " : (tensor<4x2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<4x2x2xf32>, tensor<2xf32>, tensor<2xf32>)",
        "%a: tensor<4x2x2xf32>, %s: tensor<2xf32>, %o: tensor<2xf32>",
    ),
    "batch_norm_grad": (
        '%r:3 = "stablehlo.batch_norm_grad"(%a, %s, %m, %v, %g) {epsilon = 1.0e-3 : f32, feature_index = 0 : i64}'
        " : (tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2x3xf32>)"
        " -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>)",
        "%a: tensor<2x3xf32>, %s: tensor<2xf32>, %m: tensor<2xf32>, %v: tensor<2xf32>, %g: tensor<2x3xf32>",
    ),
    "constant_like": (
        '%r = "chlo.constant_like"(%a) {value = 2.0 : f32} : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "%a: tensor<2x3xf32>",
    ),
    "ragged_dot": (
        '%r = "chlo.ragged_dot"(%a, %b, %g) {ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [],'
        " rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1],"
        " lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}"
        " : (tensor<4x3xf32>, tensor<2x3x2xf32>, tensor<2xi32>) -> tensor<4x2xf32>",
        "%a: tensor<4x3xf32>, %b: tensor<2x3x2xf32>, %g: tensor<2xi32>",
    ),
    "scan": (
        """%r:2 = "chlo.scan"(%a, %z) ({
 ^bb0(%x: tensor<2xf32>, %c: tensor<2xf32>):
  %t = stablehlo.add %x, %c : tensor<2xf32>
  stablehlo.return %t, %t : tensor<2xf32>, tensor<2xf32>
 }) {dimension = 1 : i64, operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>}
 : (tensor<2x4xf32>, tensor<2xf32>) -> (tensor<2x4xf32>, tensor<2xf32>)""",
        "%a: tensor<2x4xf32>, %z: tensor<2xf32>",
    ),
}
