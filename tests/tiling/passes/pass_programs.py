"""For each pass a small program that it changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hlo
from tests.random_programs import random_program
from tests.tiling.lower.attention_programs import attention
from tests.tiling.lower.ragged_programs import ragged
from tests.tiling.passes.test_lane_folds import program as rows_with_places

__all__ = ["EXAMPLES", "FILES"]

ROOT = Path(__file__).resolve().parents[3]
FILES = {f.stem: f for folder in ("examples", "tests/programs") for f in sorted((ROOT / folder).glob("*.mlir"))}


def text(arguments: str, result: str, body: str) -> Callable[[], hlo.Module]:
    return lambda: hlo.parse(f"func.func @main({arguments}) -> {result} {{\n{body}\n}}")


def file(name: str) -> Callable[[], hlo.Module]:
    return lambda: hlo.load(str(FILES[name]))


def _loop(shape: str, times: int, body: str, after: str = "") -> str:
    """A counted loop over one tensor, and what comes after it, which ends with %r."""
    return f"""
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %most = stablehlo.constant dense<{times}> : tensor<i32>
  %k, %w = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, {shape}
  cond {{
    %go = stablehlo.compare LT, %i, %most : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    {body}
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %b : tensor<i32>, {shape}
  }}
  {after or f"%r = stablehlo.negate %w : {shape}"}
  return %r : {shape}"""


TUPLES = """HloModule tuples

condition {
  s = (s32[], f32[5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}

body {
  s = (s32[], f32[5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[5] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[5] sine(x)
  ROOT made = (s32[], f32[5]) tuple(next, y)
}

ENTRY main {
  x = f32[5] parameter(0)
  zero = s32[] constant(0)
  begin = (s32[], f32[5]) tuple(zero, x)
  end = (s32[], f32[5]) while(begin), condition=condition, body=body
  ROOT y = f32[5] get-tuple-element(end), index=1
}
"""

Q = "tensor<8x!quant.uniform<i8:f32, 5.0e-1:3>>"
WIDER = """
  %z = stablehlo.constant dense<0> : tensor<i8>
  %0 = "stablehlo.reduce"(%x, %z) ({ ^bb0(%p: tensor<i32>, %q: tensor<i32>):
    %s = stablehlo.add %p, %q : tensor<i32> stablehlo.return %s : tensor<i32>
  }) {dimensions = array<i64: 0>} : (tensor<2x64xi8>, tensor<i8>) -> tensor<64xi32>
  return %0 : tensor<64xi32>"""
NORM = """
  %0 = "stablehlo.batch_norm_inference"(%x, %s, %s, %s, %s) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64}
    : (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>"""
TWICE = """
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<8xf32>
  return %2 : tensor<8xf32>"""
TURNED = """
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<16x24xf32>, tensor<24x8xf32>) -> tensor<16x8xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<16x8xf32>) -> tensor<8x16xf32>
  return %1 : tensor<8x16xf32>"""
STRIPS = """
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<512x96xf32>, tensor<96x8192xf32>) -> tensor<512x8192xf32>
  %1 = stablehlo.tanh %0 : tensor<512x8192xf32>
  %2 = stablehlo.dot_general %1, %w, contracting_dims = [1] x [1]
    : (tensor<512x8192xf32>, tensor<96x8192xf32>) -> tensor<512x96xf32>
  %3 = stablehlo.dot_general %x, %1, contracting_dims = [0] x [0]
    : (tensor<512x96xf32>, tensor<512x8192xf32>) -> tensor<96x8192xf32>
  return %2, %3 : tensor<512x96xf32>, tensor<96x8192xf32>"""
UPDATED = """
    %b = stablehlo.sine %a : tensor<64xf32>"""
UPDATE = """%u = stablehlo.constant dense<7.0> : tensor<4xf32>
  %r = stablehlo.dynamic_update_slice %w, %u, %zero : (tensor<64xf32>, tensor<4xf32>, tensor<i32>) -> tensor<64xf32>"""
KNOWN_PLACES = """
  %0 = stablehlo.slice %x [1:7, 1:7] : (tensor<8x8xf32>) -> tensor<6x6xf32>
  %1 = stablehlo.sine %0 : tensor<6x6xf32>
  %one = stablehlo.constant dense<1> : tensor<2xi32>
  %r = "stablehlo.scatter"(%x, %one, %1) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1],
      scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 0>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<8x8xf32>, tensor<2xi32>, tensor<6x6xf32>) -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>"""
ACROSS = """
  %0 = stablehlo.transpose %y, dims = [1, 0] : (tensor<64x96xf32>) -> tensor<96x64xf32>
  %1 = stablehlo.add %x, %0 : tensor<96x64xf32>
  return %1 : tensor<96x64xf32>"""
LONG_SUM = """
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<512x512xf32>, tensor<f32>) -> tensor<f32>
  %1 = stablehlo.dot_general %v, %w, contracting_dims = [0] x [0] : (tensor<2048xf32>, tensor<2048x512xf32>) -> tensor<512xf32>
  return %0, %1 : tensor<f32>, tensor<512xf32>"""
NARROW_SUM = """
  %z = stablehlo.constant dense<0.0> : tensor<bf16>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
    : (tensor<96x64xbf16>, tensor<bf16>) -> tensor<64xbf16>
  return %0 : tensor<64xbf16>"""
COLUMNS = NARROW_SUM.replace("bf16", "f32")
MIDDLE = """
  %z = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [1]
    : (tensor<640x24x5xf32>, tensor<f32>) -> tensor<640x5xf32>
  return %0 : tensor<640x5xf32>"""
LONG_ROWS = """
  %z = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [1]
    : (tensor<8192x1024xf32>, tensor<f32>) -> tensor<8192xf32>
  return %0 : tensor<8192xf32>"""
LOOKED_UP = """
  %0 = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 128>}
    : (tensor<20000x128xf32>, tensor<512x1xi32>) -> tensor<512x128xf32>
  return %0 : tensor<512x128xf32>"""
INTERLEAVED = """
  %0 = stablehlo.concatenate %x, %y, dim = 2 : (tensor<8x20x1xf32>, tensor<8x20x1xf32>) -> tensor<8x20x2xf32>
  %1 = stablehlo.reshape %0 : (tensor<8x20x2xf32>) -> tensor<8x40xf32>
  return %1 : tensor<8x40xf32>"""
EDGES = """
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.pad %x, %z, low = [2], high = [3], interior = [0] : (tensor<64xf32>, tensor<f32>) -> tensor<69xf32>
  return %0 : tensor<69xf32>"""
BITS = """
  %0 = stablehlo.bitcast_convert %x : (tensor<8xf32>) -> tensor<8x4xui8>
  return %0 : tensor<8x4xui8>"""
RANDOM = """
  %a, %b = stablehlo.rng_bit_generator %x, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<8xui32>)
  return %b : tensor<8xui32>"""
FOURIER = """
  %0 = stablehlo.fft %x, type = RFFT, length = [16] : (tensor<4x16xf32>) -> tensor<4x9xcomplex<f32>>
  return %0 : tensor<4x9xcomplex<f32>>"""
SOFTMAX = """
  %lo = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %lo) applies stablehlo.maximum across dimensions = [1]
    : (tensor<64x128xf32>, tensor<f32>) -> tensor<64xf32>
  %a = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<64xf32>) -> tensor<64x128xf32>
  %d = stablehlo.subtract %x, %a : tensor<64x128xf32>
  %e = stablehlo.exponential %d : tensor<64x128xf32>
  %s = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<64x128xf32>, tensor<f32>) -> tensor<64xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<64xf32>) -> tensor<64x128xf32>
  %y = stablehlo.divide %e, %b : tensor<64x128xf32>
  return %y : tensor<64x128xf32>"""
FORMULA = """
  %0 = "chlo.next_after"(%x, %y) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>"""


GIVEN_ALIKE = """
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %c = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<4096xf32>
  %rate = stablehlo.sqrt %c : tensor<4096xf32>
  %y, %same = stablehlo.while(%a = %x, %b = %rate) : tensor<4096xf32>, tensor<4096xf32>
  cond {
    %most = stablehlo.reduce(%a init: %zero) applies stablehlo.maximum across dimensions = [0]
      : (tensor<4096xf32>, tensor<f32>) -> tensor<f32>
    %go = stablehlo.compare GT, %most, %s : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %e = stablehlo.exponential %b : tensor<4096xf32>
    %l = stablehlo.add %e, %e : tensor<4096xf32>
    %d = stablehlo.divide %a, %l : tensor<4096xf32>
    stablehlo.return %d, %b : tensor<4096xf32>, tensor<4096xf32>
  }
  %r = stablehlo.add %y, %same : tensor<4096xf32>
  return %r : tensor<4096xf32>"""


CONV = "dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {pad = [[1, 1], [1, 1]]}"
CONVOLUTIONS = f"""
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.convolution(%x, %v) {CONV} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : (tensor<1x3x9x9xf32>, tensor<16x3x3x3xf32>) -> tensor<1x16x9x9xf32>
  %t = stablehlo.tanh %a : tensor<1x16x9x9xf32>
  %b = stablehlo.convolution(%t, %w) {CONV} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : (tensor<1x16x9x9xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x9x9xf32>
  %s = stablehlo.reduce(%b init: %zero) applies stablehlo.add across dimensions = [2, 3]
    : (tensor<1x16x9x9xf32>, tensor<f32>) -> tensor<1x16xf32>
  return %s : tensor<1x16xf32>"""


WINDOW = """
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x24x24x64xf32>, tensor<3x3x64x64xf32>) -> tensor<1x24x24x64xf32>
  return %0 : tensor<1x24x24x64xf32>"""

PART = "(tensor<64x64xf32>) -> tensor<1x64x64xf32>"

FOUR_PARTS = f"""
  %s = stablehlo.add %x, %y : tensor<64x64xf32>
  %d = stablehlo.subtract %x, %y : tensor<64x64xf32>
  %p = stablehlo.multiply %s, %d : tensor<64x64xf32>
  %q = stablehlo.multiply %p, %s : tensor<64x64xf32>
  %0 = stablehlo.broadcast_in_dim %s, dims = [1, 2] : {PART}
  %1 = stablehlo.broadcast_in_dim %d, dims = [1, 2] : {PART}
  %2 = stablehlo.broadcast_in_dim %p, dims = [1, 2] : {PART}
  %3 = stablehlo.broadcast_in_dim %q, dims = [1, 2] : {PART}
  %c = stablehlo.concatenate %0, %1, %2, %3, dim = 0 : (tensor<1x64x64xf32>, tensor<1x64x64xf32>, tensor<1x64x64xf32>,
       tensor<1x64x64xf32>) -> tensor<4x64x64xf32>
  return %c : tensor<4x64x64xf32>"""


def masked() -> hlo.Module:
    return hlo.parse(attention("causal", "select", "0xFF800000", 256, 256, d=64, heads=1))


LONG_FUNCTION = """
  %0 = stablehlo.logistic %x : tensor<64x1024xf8E4M3FN>
  %1 = stablehlo.multiply %x, %0 : tensor<64x1024xf8E4M3FN>
  return %1 : tensor<64x1024xf8E4M3FN>"""

ONTO = """  %z = stablehlo.constant dense<0.0> : tensor<64x8xf32>
  %s = "stablehlo.scatter"(%z, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }) : (tensor<64x8xf32>, tensor<5x1xi32>, tensor<5x8xf32>) -> tensor<64x8xf32>
  %x = stablehlo.negate %v : tensor<64x8xf32>
  %r = stablehlo.add %x, %s : tensor<64x8xf32>
  return %r : tensor<64x8xf32>"""

EXAMPLES: dict[str, Callable[[], hlo.Module]] = {
    "inline": file("softmax"),
    "untuple": lambda: hlo.parse(TUPLES),
    "unroll_short_loops": text(
        "%x: tensor<16384xf32>", "tensor<16384xf32>", _loop("tensor<16384xf32>", 3, "%b = stablehlo.sine %a : tensor<16384xf32>")
    ),
    "spread_inside": text("%x: tensor<4096xf32>, %s: tensor<f32>", "tensor<4096xf32>", GIVEN_ALIKE),
    "merge_equal_ops": text("%x: tensor<8x8xf32>", "tensor<8xf32>", TWICE),
    "quantized": text(f"%x: {Q}", Q, f"  %0 = stablehlo.add %x, %x : {Q}\n  return %0 : {Q}"),
    "promote_bodies": text("%x: tensor<2x64xi8>", "tensor<64xi32>", WIDER),
    "unfold": text("%x: tensor<4x8xf32>, %s: tensor<8xf32>", "tensor<4x8xf32>", NORM),
    "bitcasts": text("%x: tensor<8xf32>", "tensor<8x4xui8>", BITS),
    "random_bits": text("%x: tensor<2xui64>", "tensor<8xui32>", RANDOM),
    "fourier_halves": text("%x: tensor<4x16xf32>", "tensor<4x9xcomplex<f32>>", FOURIER),
    "decompose": text("%x: tensor<8xf32>, %y: tensor<8xf32>", "tensor<8xf32>", FORMULA),
    "swap_products": text("%x: tensor<16x24xf32>, %w: tensor<24x8xf32>", "tensor<8x16xf32>", TURNED),
    "scatter_onto": text("%v: tensor<64x8xf32>, %i: tensor<5x1xi32>, %u: tensor<5x8xf32>", "tensor<64x8xf32>", ONTO),
    "channels_last": text(
        "%x: tensor<1x3x9x9xf32>, %v: tensor<16x3x3x3xf32>, %w: tensor<16x16x3x3xf32>", "tensor<1x16xf32>", CONVOLUTIONS
    ),
    "winograd_convolutions": text(
        "%x: tensor<1x24x24x64xf32>, %w: tensor<3x3x64x64xf32>", "tensor<1x24x24x64xf32>", WINDOW
    ),
    "look_up_functions": text("%x: tensor<64x1024xf8E4M3FN>", "tensor<64x1024xf8E4M3FN>", LONG_FUNCTION),
    "update_known_places": text("%x: tensor<8x8xf32>", "tensor<8x8xf32>", KNOWN_PLACES),
    "run_in_strips": text(
        "%x: tensor<512x96xf32>, %w: tensor<96x8192xf32>", "(tensor<512x96xf32>, tensor<96x8192xf32>)", STRIPS
    ),
    "mark_in_place": text("%x: tensor<64xf32>", "tensor<64xf32>", _loop("tensor<64xf32>", 9, UPDATED, UPDATE)),
    "group": file("softmax"),
    "join_siblings": file("group_norm"),
    "lower": file("softmax"),
    "bound_by_masks": masked,
    "bound_by_numbers": lambda: hlo.parse(ragged("product", 96, 40, 33, 5)),
    "tighten_bounds": file("cumulative_sum"),
    "unroll_choices": text("%x: tensor<64x64xf32>, %y: tensor<64x64xf32>", "tensor<4x64x64xf32>", FOUR_PARTS),
    "online_form": lambda: hlo.parse(attention("none", "additive", "-1.0e9", 16, 65536, heads=1)),
    "merge_nests": text("%x: tensor<64x128xf32>", "tensor<64x128xf32>", SOFTMAX),
    "turn_tiles": text("%x: tensor<96x64xf32>, %y: tensor<64x96xf32>", "tensor<96x64xf32>", ACROSS),
    "split_fold": text(
        "%x: tensor<512x512xf32>, %v: tensor<2048xf32>, %w: tensor<2048x512xf32>", "(tensor<f32>, tensor<512xf32>)", LONG_SUM
    ),
    "lane_folds": lambda: hlo.parse(rows_with_places(4, 512)),
    "wide_sums": text("%x: tensor<96x64xbf16>", "tensor<64xbf16>", NARROW_SUM),
    "hoist_to_tables": text(
        "%x: tensor<24x20xf32>, %w: tensor<20xf32>", "tensor<24x20xf32>", """
  %0 = stablehlo.exponential %w : tensor<20xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<20xf32>) -> tensor<24x20xf32>
  %2 = stablehlo.multiply %x, %1 : tensor<24x20xf32>
  return %2 : tensor<24x20xf32>""",
    ),
    "split_borders": file("max_pooling"),
    "turn_short_rows": text(
        "%x: tensor<2000x10xf32>", "tensor<2000x10xf32>", SOFTMAX.replace("64x128", "2000x10").replace("<64x", "<2000x")
    ),
    "write_out_sums": file("depthwise_separable"),
    "order_loops": text("%x: tensor<96x64xf32>", "tensor<64xf32>", COLUMNS),
    "unflatten_loops": text(
        "%x: tensor<5x40xf32>, %y: tensor<5xf32>", "tensor<200xf32>",
        """  %l = stablehlo.log %y : tensor<5xf32>
  %b = stablehlo.broadcast_in_dim %l, dims = [0] : (tensor<5xf32>) -> tensor<5x40xf32>
  %s = stablehlo.add %x, %b : tensor<5x40xf32>
  %r = stablehlo.reshape %s : (tensor<5x40xf32>) -> tensor<200xf32>
  return %r : tensor<200xf32>""",
    ),
    "collapse_loops": file("group_norm"),
    "take_turns": text("%x: tensor<8x20x1xf32>, %y: tensor<8x20x1xf32>", "tensor<8x40xf32>", INTERLEAVED),
    "results_together": text("%x: tensor<640x24x5xf32>", "tensor<640x5xf32>", MIDDLE),
    "group_rows": text("%x: tensor<96x64xf32>", "tensor<64xf32>", COLUMNS),
    "scan_rows_together": file("cumulative_sum"),
    "windows_together": file("depthwise_separable"),
    "read_rows_again": file("softmax"),
    "long_rows_together": text("%x: tensor<8192x1024xf32>", "tensor<8192xf32>", LONG_ROWS),
    "prefetch_rows": text("%x: tensor<20000x128xf32>, %i: tensor<512x1xi32>", "tensor<512x128xf32>", LOOKED_UP),
    "cut_at_masks": masked,
    "split_innermost": text("%x: tensor<64xf32>", "tensor<69xf32>", EDGES),
}
"""Pass -> a program that it changes."""


def random(seed: int) -> hlo.Module:
    return random_program(seed)[0]
