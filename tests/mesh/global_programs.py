# ruff: noqa: E501  (programs are written as they are printed)
"""Programs in the global view: text with shardings, and what their communication has to be, by the literature.

`sent` is what each process sends, in bytes of the algorithms that move least: an all-reduce of b bytes over n processes 2 b
(n - 1) / n, an all-gather to b bytes and a reduce-scatter of b bytes b (n - 1) / n each.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PROGRAMS", "GlobalProgram", "module_text"]


@dataclass(frozen=True)
class GlobalProgram:
    """`kinds` are the collectives in order; `sent` their bytes together."""

    name: str
    text: str
    kinds: tuple[str, ...]
    sent: int


def module_text(mesh: str, arguments: list[tuple[str, str]], body: str, results: list[tuple[str, str]]) -> str:
    """A module over a mesh; arguments %0, %1, … and results have types and shardings ('' for none)."""

    def typed(t: str, s: str) -> str:
        return f"tensor<{t}>" + (f" {{sdy.sharding = #sdy.sharding<@m, {s}>}}" if s else "")

    given = ", ".join(f"%a{k}: {typed(t, s)}" for k, (t, s) in enumerate(arguments))
    made = ", ".join(typed(t, s) for t, s in results)
    return f"module {{ sdy.mesh @m = <[{mesh}]>\n func.func @main({given}) -> ({made}) {{\n{body}\n}} }}"


def _dot(result: str, a: str, b: str, ta: str, tb: str, tr: str, contract: str = "[1] x [0]") -> str:
    types = f"(tensor<{ta}>, tensor<{tb}>) -> tensor<{tr}>"
    return f"  {result} = stablehlo.dot_general {a}, {b}, contracting_dims = {contract} : {types}"


def _product(name: str, left: str, right: str, result: str, kinds: tuple[str, ...], sent: int) -> GlobalProgram:
    body = _dot("%r", "%a0", "%a1", "8x16xf32", "16x4xf32", "8x4xf32") + "\n  return %r : tensor<8x4xf32>"
    mesh = '"x"=2, "y"=2'
    text = module_text(mesh, [("8x16xf32", left), ("16x4xf32", right)], body, [("8x4xf32", result)])
    return GlobalProgram(f"product {name}", text, kinds, sent)


_TANH = """  %h = stablehlo.tanh %p : tensor<8x32xf32>"""
_MLP = "\n".join([
    _dot("%p", "%a0", "%a1", "8x16xf32", "16x32xf32", "8x32xf32"), _TANH,
    _dot("%r", "%h", "%a2", "8x32xf32", "32x16xf32", "8x16xf32"), "  return %r : tensor<8x16xf32>",
])  # fmt: skip
_STEP = "\n".join([
    _dot("%p", "%a0", "%a1", "8x16xf32", "16x4xf32", "8x4xf32"),
    "  %e = stablehlo.subtract %p, %a2 : tensor<8x4xf32>",
    _dot("%g", "%a0", "%e", "8x16xf32", "8x4xf32", "16x4xf32", "[0] x [0]"),
    "  %w = stablehlo.subtract %a1, %g : tensor<16x4xf32>", "  return %w : tensor<16x4xf32>",
])  # fmt: skip
_SOFTMAX = """  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%a0 init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<8x16xf32>, tensor<f32>) -> tensor<8xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<8xf32>) -> tensor<8x16xf32>
  %d = stablehlo.subtract %a0, %mb : tensor<8x16xf32>
  %e = stablehlo.exponential %d : tensor<8x16xf32>
  %z = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x16xf32>, tensor<f32>) -> tensor<8xf32>
  %zb = stablehlo.broadcast_in_dim %z, dims = [0] : (tensor<8xf32>) -> tensor<8x16xf32>
  %y = stablehlo.divide %e, %zb : tensor<8x16xf32>
  return %y : tensor<8x16xf32>"""
_LOOP = """  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<3> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %x = %a0) : tensor<i32>, tensor<8x16xf32>
    cond { %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1> }
    do { %j = stablehlo.add %i, %one : tensor<i32>
      %p = stablehlo.dot_general %x, %a1, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
      %t = stablehlo.tanh %p : tensor<8x16xf32>
      stablehlo.return %j, %t : tensor<i32>, tensor<8x16xf32> }
  return %r#1 : tensor<8x16xf32>"""
_FROM_ZEROS = """  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<3> : tensor<i32>
  %z = stablehlo.constant dense<0.0> : tensor<8x16xf32>
  %zs = stablehlo.constant dense<0.0> : tensor<3x8x16xf32>
  %r:3 = stablehlo.while(%i = %zero, %x = %z, %kept = %zs) : tensor<i32>, tensor<8x16xf32>, tensor<3x8x16xf32>
    cond { %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1> }
    do { %j = stablehlo.add %i, %one : tensor<i32>
      %p = stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
      %s = stablehlo.add %x, %p : tensor<8x16xf32>
      %one_more = stablehlo.reshape %s : (tensor<8x16xf32>) -> tensor<1x8x16xf32>
      %k = stablehlo.dynamic_update_slice %kept, %one_more, %i, %zero, %zero : (tensor<3x8x16xf32>, tensor<1x8x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x16xf32>
      stablehlo.return %j, %s, %k : tensor<i32>, tensor<8x16xf32>, tensor<3x8x16xf32> }
  return %r#1, %r#2 : tensor<8x16xf32>, tensor<3x8x16xf32>"""
_MOVES = """  %t = stablehlo.transpose %a0, dims = [1, 0] : (tensor<8x16xf32>) -> tensor<16x8xf32>
  %s = stablehlo.reshape %t : (tensor<16x8xf32>) -> tensor<4x4x2x4xf32>
  %b = stablehlo.slice %s [0:4, 0:4, 0:2, 1:3] : (tensor<4x4x2x4xf32>) -> tensor<4x4x2x2xf32>
  %r = stablehlo.reshape %b : (tensor<4x4x2x2xf32>) -> tensor<16x4xf32>
  return %r : tensor<16x4xf32>"""
_IOTA = """  %i = stablehlo.iota dim = 0 : tensor<8x16xi32>
  %j = stablehlo.iota dim = 1 : tensor<8x16xi32>
  %c = stablehlo.compare LE, %j, %i : (tensor<8x16xi32>, tensor<8x16xi32>) -> tensor<8x16xi1>
  %z = stablehlo.constant dense<0.0> : tensor<8x16xf32>
  %k = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>
  %b = stablehlo.broadcast_in_dim %k, dims = [0] : (tensor<8xf32>) -> tensor<8x16xf32>
  %m = stablehlo.multiply %a0, %b : tensor<8x16xf32>
  %r = stablehlo.select %c, %m, %z : tensor<8x16xi1>, tensor<8x16xf32>
  return %r : tensor<8x16xf32>"""
_EMBEDDING = """  %g = "stablehlo.gather"(%a0, %a1) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>} : (tensor<16x8xf32>, tensor<4x1xi32>) -> tensor<4x8xf32>
  return %g : tensor<4x8xf32>"""
_STENCIL = """  %w = stablehlo.constant dense<[[[[0.1]]], [[[0.8]]], [[[0.1]]]]> : tensor<3x1x1x1xf32>
  %r = stablehlo.convolution(%a0, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [0, 0]]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x4x1xf32>, tensor<3x1x1x1xf32>) -> tensor<1x8x4x1xf32>
  return %r : tensor<1x8x4x1xf32>"""
_POOL = """  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %r = "stablehlo.reduce_window"(%a0, %low) ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.maximum %p, %q : tensor<f32>
    stablehlo.return %s : tensor<f32> }) {window_dimensions = array<i64: 4, 1>, window_strides = array<i64: 2, 1>,
    padding = dense<[[2, 0], [0, 0]]> : tensor<2x2xi64>} : (tensor<16x4xf32>, tensor<f32>) -> tensor<8x4xf32>
  return %r : tensor<8x4xf32>"""
_SORT = """  %r = "stablehlo.sort"(%a0) ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %s : tensor<i1> }) {dimension = 1 : i64, is_stable = true} : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %r : tensor<8x16xf32>"""
_XY, _X4 = '"x"=2, "y"=2', '"x"=4'
_REDUCE_ALL = ("all_reduce",)

PROGRAMS = (
    # Factors and result of a product, cut along rows (x), columns (y) and the sum.
    _product("of rows", '[{"x"}, {}]', "[{}, {}]", '[{"x"}, {}]', (), 0),
    _product("of columns", "[{}, {}]", '[{}, {"y"}]', '[{}, {"y"}]', (), 0),
    _product("of rows and columns", '[{"x"}, {}]', '[{}, {"y"}]', '[{"x"}, {"y"}]', (), 0),
    _product("of sums", '[{}, {"x"}]', '[{"x"}, {}]', "[{}, {}]", _REDUCE_ALL, 128),
    _product("of sums, the result in parts", '[{}, {"x"}]', '[{"x"}, {}]', '[{"x"}, {}]', ("reduce_scatter",), 64),
    _product("of rows and sums", '[{"x"}, {"y"}]', '[{"y"}, {}]', '[{"x"}, {}]', _REDUCE_ALL, 64),
    _product("of rows and sums, the result in parts", '[{"x"}, {"y"}]', '[{"y"}, {}]', '[{"x"}, {"y"}]', ("reduce_scatter",), 32),
    # Layers.
    GlobalProgram("MLP, tensor parallel", module_text(
        _X4, [("8x16xf32", "[{}, {}]"), ("16x32xf32", '[{}, {"x"}]'), ("32x16xf32", '[{"x"}, {}]')], _MLP, [("8x16xf32", "[{}, {}]")]
    ), _REDUCE_ALL, 2 * 512 * 3 // 4),
    GlobalProgram("MLP, data and tensor parallel", module_text(
        _XY, [("8x16xf32", '[{"x"}, {}]'), ("16x32xf32", '[{}, {"y"}]'), ("32x16xf32", '[{"y"}, {}]')], _MLP, [("8x16xf32", '[{"x"}, {}]')]
    ), _REDUCE_ALL, 256),
    GlobalProgram("MLP, sequence parallel", module_text(
        _X4, [("8x16xf32", '[{"x"}, {}]'), ("16x32xf32", '[{}, {"x"}]'), ("32x16xf32", '[{"x"}, {}]')], _MLP, [("8x16xf32", '[{"x"}, {}]')]
    ), ("all_gather", "reduce_scatter"), 2 * 512 * 3 // 4),
    GlobalProgram("training step, data parallel", module_text(
        _X4, [("8x16xf32", '[{"x"}, {}]'), ("16x4xf32", "[{}, {}]"), ("8x4xf32", '[{"x"}, {}]')], _STEP, [("16x4xf32", "[{}, {}]")]
    ), _REDUCE_ALL, 2 * 256 * 3 // 4),
    GlobalProgram("training step, parameters in parts", module_text(
        _X4, [("8x16xf32", '[{"x"}, {}]'), ("16x4xf32", '[{"x"}, {}]'), ("8x4xf32", '[{"x"}, {}]')], _STEP, [("16x4xf32", '[{"x"}, {}]')]
    ), ("all_gather", "reduce_scatter"), 2 * 256 * 3 // 4),
    GlobalProgram("softmax of rows", module_text(_X4, [("8x16xf32", '[{"x"}, {}]')], _SOFTMAX, [("8x16xf32", '[{"x"}, {}]')]), (), 0),
    GlobalProgram("softmax across processes", module_text(
        _X4, [("8x16xf32", '[{}, {"x"}]')], _SOFTMAX, [("8x16xf32", '[{}, {"x"}]')]
    ), ("all_reduce", "all_reduce"), 2 * (2 * 32 * 3 // 4)),
    GlobalProgram("layers in a loop", module_text(
        _X4, [("8x16xf32", '[{"x"}, {}]'), ("16x16xf32", "[{}, {}]")], _LOOP, [("8x16xf32", '[{"x"}, {}]')]
    ), (), 0),
    GlobalProgram("a loop that begins with zeros", module_text(
        _X4, [("8x16xf32", '[{"x"}, {}]'), ("16x16xf32", "[{}, {}]")], _FROM_ZEROS, [("8x16xf32", '[{"x"}, {}]'), ("3x8x16xf32", '[{}, {"x"}, {}]')]
    ), (), 0),
    # Windows, sorts.
    GlobalProgram("a stencil", module_text(_X4, [("1x8x4x1xf32", '[{}, {"x"}, {}, {}]')], _STENCIL, [("1x8x4x1xf32", '[{}, {"x"}, {}, {}]')]),
                  ("halo", "halo"), 2 * 4 * 4),
    GlobalProgram("windows over the begin, with another filling", module_text(_X4, [("16x4xf32", '[{"x"}, {}]')], _POOL, [("8x4xf32", '[{"x"}, {}]')]),
                  ("halo",), 2 * 4 * 4),
    GlobalProgram("a sort of rows", module_text(_X4, [("8x16xf32", '[{"x"}, {}]')], _SORT, [("8x16xf32", '[{"x"}, {}]')]), (), 0),
    GlobalProgram("a sort across processes", module_text(_X4, [("8x16xf32", '[{}, {"x"}]')], _SORT, [("8x16xf32", '[{}, {"x"}]')]),
                  ("all_to_all", "all_to_all"), 2 * 128 * 3 // 4),
    # Moves.
    GlobalProgram("transposes, reshapes and slices", module_text(
        _XY, [("8x16xf32", '[{"y"}, {"x"}]')], _MOVES, [("16x4xf32", '[{"x"}, {}]')]
    ), ("all_gather",), 64),
    GlobalProgram("holes between rows and behind the last", module_text(
        _X4, [("8x4xf32", '[{"x"}, {}]')],
        "  %z = stablehlo.constant dense<0.0> : tensor<f32>\n"
        "  %r = stablehlo.pad %a0, %z, low = [0, 0], high = [1, 0], interior = [1, 0] : (tensor<8x4xf32>, tensor<f32>) -> tensor<16x4xf32>\n"
        "  return %r : tensor<16x4xf32>", [("16x4xf32", '[{"x"}, {}]')]
    ), (), 0),
    GlobalProgram("a mask and a constant", module_text(_XY, [("8x16xf32", '[{"x"}, {"y"}]')], _IOTA, [("8x16xf32", '[{"x"}, {"y"}]')]), (), 0),
    GlobalProgram("embedding, columns in parts", module_text(
        _X4, [("16x8xf32", '[{}, {"x"}]'), ("4x1xi32", "[{}, {}]")], _EMBEDDING, [("4x8xf32", '[{}, {"x"}]')]
    ), (), 0),
    GlobalProgram("embedding, rows in parts", module_text(
        _X4, [("16x8xf32", '[{"x"}, {}]'), ("4x1xi32", "[{}, {}]")], _EMBEDDING, [("4x8xf32", "[{}, {}]")]
    ), _REDUCE_ALL, 2 * 128 * 3 // 4),
    GlobalProgram("embedding of a batch in parts", module_text(
        _X4, [("16x8xf32", "[{}, {}]"), ("4x1xi32", '[{"x"}, {}]')], _EMBEDDING, [("4x8xf32", '[{"x"}, {}]')]
    ), (), 0),
    GlobalProgram("from rows to columns", module_text(
        _X4, [("8x16xf32", '[{"x"}, {}]')], "  %r = stablehlo.negate %a0 : tensor<8x16xf32>\n  return %r : tensor<8x16xf32>",
        [("8x16xf32", '[{}, {"x"}]')]
    ), ("all_to_all",), 128 * 3 // 4),
    GlobalProgram("axes that are called replica and partition", module_text(
        '"replica"=2, "partition"=2', [("8x16xf32", '[{"replica"}, {"partition"}]')],
        "  %r = stablehlo.negate %a0 : tensor<8x16xf32>\n  return %r : tensor<8x16xf32>", [("8x16xf32", '[{"replica"}, {}]')]
    ), ("all_gather",), 128),
    GlobalProgram("the other order of axes", module_text(
        _XY, [("8x16xf32", '[{"x", "y"}, {}]')], "  %r = stablehlo.negate %a0 : tensor<8x16xf32>\n  return %r : tensor<8x16xf32>",
        [("8x16xf32", '[{"y", "x"}, {}]')]
    ), ("permute",), 128),
)  # fmt: skip
