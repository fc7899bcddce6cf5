# ruff: noqa: E501  (programs are written as they are printed)
"""Programs that read or write by numbers and places, and others whose communication had once been more than is needed."""

from __future__ import annotations

from tests.mesh.global_programs import GlobalProgram, module_text

__all__ = ["PLACE_PROGRAMS"]

_X4, _XY = '"x"=4', '"x"=2, "y"=2'
_ALONG = """  %g = "stablehlo.gather"(%a0, %a1) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0],
      start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>}
      : (tensor<8x12xf32>, tensor<8x3x1xi32>) -> tensor<8x3xf32>
  return %g : tensor<8x3xf32>"""
_PAIRS = """  %g = "stablehlo.gather"(%a0, %a1) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0, 1],
      start_index_map = [1, 0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1, 3>} : (tensor<16x8x3xf32>, tensor<6x2xi32>) -> tensor<6x3xf32>
  return %g : tensor<6x3xf32>"""
_COUNTS = """  %one = stablehlo.constant dense<1> : tensor<32xi32>
  %zero = stablehlo.constant dense<0> : tensor<8xi32>
  %r = "stablehlo.scatter"(%zero, %a0, %one) ({ ^bb0(%p: tensor<i32>, %q: tensor<i32>): %s = stablehlo.add %p, %q : tensor<i32>
    stablehlo.return %s : tensor<i32> }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (tensor<8xi32>, tensor<32x1xi32>, tensor<32xi32>) -> tensor<8xi32>
  return %r : tensor<8xi32>"""
_ALONG_BACK = """  %r = "stablehlo.scatter"(%a0, %a1, %a2) ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32> }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0],
    scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>}
    : (tensor<8x12xf32>, tensor<8x3x1xi32>, tensor<8x3xf32>) -> tensor<8x12xf32>
  return %r : tensor<8x12xf32>"""
_PART = """  %c = stablehlo.constant dense<0> : tensor<i32>
  %r = stablehlo.dynamic_slice %a0, %a1, %c, sizes = [3, 8] : (tensor<16x8xf32>, tensor<i32>, tensor<i32>) -> tensor<3x8xf32>
  return %r : tensor<3x8xf32>"""
_BOX = """  %r = stablehlo.dynamic_slice %a0, %a1, %a2, sizes = [6, 2] : (tensor<18x9xf32>, tensor<i64>, tensor<i64>) -> tensor<6x2xf32>
  return %r : tensor<6x2xf32>"""
_PUT = """  %c = stablehlo.constant dense<0> : tensor<i32>
  %r = stablehlo.dynamic_update_slice %a0, %a1, %a2, %c : (tensor<16x8xf32>, tensor<ROWSx8xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
  return %r : tensor<16x8xf32>"""
_PUT_BOX = """  %r = stablehlo.dynamic_update_slice %a0, %a1, %a2, %a3 : (tensor<18x9xui8>, tensor<7x2xui8>, tensor<ui64>, tensor<ui64>) -> tensor<18x9xui8>
  return %r : tensor<18x9xui8>"""
_PUT_INSIDE = """  %c = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.negate %a1 : tensor<14x6xf32>
  %r = stablehlo.dynamic_update_slice %a0, %n, %c, %c : (tensor<16x8xf32>, tensor<14x6xf32>, tensor<i32>, tensor<i32>) -> tensor<16x8xf32>
  return %r : tensor<16x8xf32>"""
_BOX_PUT = """  %i = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
  %n = stablehlo.negate %a1 : tensor<14x5xf32>
  %r = "stablehlo.scatter"(%a0, %i, %n) ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): BODY })
    {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 0>,
    indices_are_sorted = true, unique_indices = true} : (tensor<16x8xf32>, tensor<2xi32>, tensor<14x5xf32>) -> tensor<16x8xf32>
  return %r : tensor<16x8xf32>"""
_DEPTHWISE = """  %r = stablehlo.convolution(%a0, %a1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[2, 0]]}
    {batch_group_count = 1 : i64, feature_group_count = 4 : i64} : (tensor<2x16x8xf32>, tensor<3x2x4xf32>) -> tensor<2x16x4xf32>
  return %r : tensor<2x16x4xf32>"""
_BARRIER = """  %b:2 = stablehlo.optimization_barrier %a0, %a1 : tensor<8x16xf32>, tensor<4xf32>
  %n = stablehlo.negate %b#0 : tensor<8x16xf32>
  return %n, %b#1 : tensor<8x16xf32>, tensor<4xf32>"""
_TRANSPOSED = """  %r = stablehlo.convolution(%a0, %a1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[PAD]], lhs_dilate = [2]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x16x3xf32>, tensor<3x3x2xf32>) -> tensor<1xOUTx2xf32>
  return %r : tensor<1xOUTx2xf32>"""
_HOLES = """  %z = stablehlo.constant dense<5.0> : tensor<f32>
  %r = stablehlo.pad %a0, %z, low = [1, 0], high = [2, 0], interior = [2, 0] : (tensor<16x3xf32>, tensor<f32>) -> tensor<49x3xf32>
  %s = stablehlo.slice %r [0:48, 0:3] : (tensor<49x3xf32>) -> tensor<48x3xf32>
  return %s : tensor<48x3xf32>"""
_POOL_BACK = """  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.select_and_scatter"(%a0, %a1, %z) ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = stablehlo.compare GE, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %s : tensor<i1> }, { ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32> }) {window_dimensions = array<i64: 2, 3>, window_strides = array<i64: 2, 1>,
    padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>} : (tensor<16x6xf32>, tensor<8x6xf32>, tensor<f32>) -> tensor<16x6xf32>
  return %r : tensor<16x6xf32>"""
_SCAN = """  %z = stablehlo.constant dense<START> : tensor<f32>
  %r = "stablehlo.reduce_window"(%a0, %z) ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.FOLD %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32> }) {window_dimensions = array<i64: N, 1>, padding = dense<[[ENDS], [0, 0]]> : tensor<2x2xi64>}
    : (tensor<Nx3xf32>, tensor<f32>) -> tensor<Nx3xf32>
  return %r : tensor<Nx3xf32>"""


def _scan(n: int, fold: str, start: str, from_end: bool = False) -> GlobalProgram:
    ends = f"0, {n - 1}" if from_end else f"{n - 1}, 0"
    body = _SCAN.replace("ENDS", ends).replace("N", str(n)).replace("FOLD", fold).replace("START", start)
    text = module_text(_X4, [(f"{n}x3xf32", '[{"x"}, {}]')], body, [(f"{n}x3xf32", '[{"x"}, {}]')])
    return GlobalProgram(f"{fold} of {n} rows before{' from the end' * from_end}", text, ("all_gather",), 3 * 12)


def _put(rows: int) -> GlobalProgram:
    given = [("16x8xf32", '[{"x"}, {}]'), (f"{rows}x8xf32", "[{}, {}]"), ("i32", "[]")]
    text = module_text(_X4, given, _PUT.replace("ROWS", str(rows)), [("16x8xf32", '[{"x"}, {}]')])
    return GlobalProgram(f"{rows} rows put at a place", text, (), 0)


PLACE_PROGRAMS = (
    GlobalProgram("elements along rows, in batches", module_text(
        _X4, [("8x12xf32", '[{"x"}, {}]'), ("8x3x1xi32", '[{"x"}, {}, {}]')], _ALONG, [("8x3xf32", '[{"x"}, {}]')]
    ), (), 0),
    GlobalProgram("elements along rows, batches and rows in parts", module_text(
        _XY, [("8x12xf32", '[{"x"}, {"y"}]'), ("8x3x1xi32", '[{"x"}, {}, {}]')], _ALONG, [("8x3xf32", '[{"x"}, {}]')]
    ), ("all_reduce",), 4 * 3 * 4),
    GlobalProgram("elements by pairs, both in parts", module_text(
        _XY, [("16x8x3xf32", '[{"x"}, {"y"}, {}]'), ("6x2xi32", "[{}, {}]")], _PAIRS, [("6x3xf32", "[{}, {}]")]
    ), ("all_reduce",), 2 * 72 * 3 // 4),
    GlobalProgram("elements by pairs, the result in parts", module_text(
        '"x"=2', [("16x8x3xf32", '[{}, {"x"}, {}]'), ("6x2xi32", "[{}, {}]")], _PAIRS, [("6x3xf32", '[{"x"}, {}]')]
    ), ("reduce_scatter",), 72 // 2),
    GlobalProgram("how often each number is there", module_text(
        _X4, [("32x1xi32", '[{"x"}, {}]')], _COUNTS, [("8xi32", "[{}]")]
    ), ("all_reduce",), 2 * 32 * 3 // 4),
    GlobalProgram("elements added along rows, in batches", module_text(
        _XY, [("8x12xf32", '[{"x"}, {"y"}]'), ("8x3x1xi32", '[{"x"}, {}, {}]'), ("8x3xf32", '[{"x"}, {}]')], _ALONG_BACK,
        [("8x12xf32", '[{"x"}, {"y"}]')]
    ), (), 0),
    GlobalProgram("a part at a place", module_text(
        _X4, [("16x8xf32", '[{"x"}, {}]'), ("i32", "[]")], _PART, [("3x8xf32", "[{}, {}]")]
    ), ("all_reduce",), 2 * 96 * 3 // 4),
    GlobalProgram("a part at a place, columns in parts", module_text(
        _X4, [("16x8xf32", '[{}, {"x"}]'), ("i32", "[]")], _PART, [("3x8xf32", '[{}, {"x"}]')]
    ), (), 0),
    GlobalProgram("a box at a place, of sizes that no mesh divides", module_text(
        '"x"=4, "y"=2', [("18x9xf32", '[{"x"}, {"y"}]'), ("i64", "[]"), ("i64", "[]")], _BOX, [("6x2xf32", "[{}, {}]")]
    ), ("all_reduce",), 2 * 48 * 7 // 8),
    _put(1), _put(3), _put(9),
    GlobalProgram("a box put at a place, of sizes that no mesh divides", module_text(
        '"x"=4, "y"=2', [("18x9xui8", '[{"x"}, {"y"}]'), ("7x2xui8", "[{}, {}]"), ("ui64", "[]"), ("ui64", "[]")], _PUT_BOX,
        [("18x9xui8", '[{"x"}, {"y"}]')]
    ), (), 0),
    GlobalProgram("the inside put into a border", module_text(
        _X4, [("16x8xf32", '[{"x"}, {}]'), ("14x6xf32", '[{"x"}, {}]')], _PUT_INSIDE, [("16x8xf32", '[{"x"}, {}]')]
    ), ("halo",), 24),
    _scan(16, "add", "0.0"), _scan(18, "add", "0.0"), _scan(18, "add", "0.0", True), _scan(18, "maximum", "0.25", True),
    _scan(16, "multiply", "1.0"), _scan(18, "minimum", "0.25"),
    *[GlobalProgram(f"a transposed convolution, {ends}", module_text(
        _X4, [("1x16x3xf32", '[{}, {"x"}, {}]'), ("3x3x2xf32", "[{}, {}, {}]")], _TRANSPOSED.replace("PAD", ends).replace("OUT", "32"),
        [("1x32x2xf32", '[{}, {"x"}, {}]')]
    ), kinds, sent) for ends, kinds, sent in (("2, 1", ("halo",), 12), ("1, 2", ("halo", "halo"), 24), ("3, 0", ("halo",), 24))],
    GlobalProgram("holes between rows", module_text(
        _X4, [("16x3xf32", '[{"x"}, {}]')], _HOLES, [("48x3xf32", '[{"x"}, {}]')]
    ), ("all_gather",), 3 * 48),
    GlobalProgram("the gradient of pooling", module_text(
        _X4, [("16x6xf32", '[{"x"}, {}]'), ("8x6xf32", '[{"x"}, {}]')], _POOL_BACK, [("16x6xf32", '[{"x"}, {}]')]
    ), (), 0),
    GlobalProgram("the gradient of pooling, windows over each other", module_text(
        _X4, [("16x6xf32", '[{}, {"x"}]'), ("8x6xf32", '[{}, {"x"}]')], _POOL_BACK, [("16x6xf32", '[{"x"}, {}]')]
    ), ("all_to_all", "all_to_all"), 96 + 48),
    *[GlobalProgram(f"a box {name} at a known place, by a scatter", module_text(
        _X4, [("16x8xf32", '[{"x"}, {}]'), ("14x5xf32", '[{"x"}, {}]')], _BOX_PUT.replace("BODY", body), [("16x8xf32", '[{"x"}, {}]')]
    ), ("halo",), 5 * 4) for name, body in (
        ("put", "stablehlo.return %q : tensor<f32>"),
        ("added", "%s = stablehlo.add %p, %q : tensor<f32>\n stablehlo.return %s : tensor<f32>"))],
    GlobalProgram("a box put at a known place, both dimensions in parts", module_text(
        _XY, [("16x8xf32", '[{"x"}, {"y"}]'), ("14x5xf32", '[{"x"}, {"y"}]')],
        _BOX_PUT.replace("BODY", "stablehlo.return %q : tensor<f32>"), [("16x8xf32", '[{"x"}, {"y"}]')]
    ), ("halo",), 8 * 4),
    GlobalProgram("features in groups", module_text(
        '"x"=2', [("2x16x8xf32", '[{}, {}, {"x"}]'), ("3x2x4xf32", '[{}, {}, {"x"}]')], _DEPTHWISE, [("2x16x4xf32", '[{}, {}, {"x"}]')]
    ), (), 0),
    GlobalProgram("a barrier", module_text(
        _X4, [("8x16xf32", '[{"x"}, {}]'), ("4xf32", '[{"x"}]')], _BARRIER, [("8x16xf32", '[{"x"}, {}]'), ("4xf32", '[{"x"}]')]
    ), (), 0),
)  # fmt: skip
