"""Small programs whose schedules have, between them, every kind of step, with what they need to run: the mutants' parents."""

# ruff: noqa: E501  (programs are kept as they are printed)

from __future__ import annotations

from functools import cache

import hlo
import tests.mutations.more_programs as more
import tiling
from tests.tiling.lower.attention_programs import attention
from tests.tiling.lower.ragged_programs import ragged
from tiling.loops.ir import Schedule
from tiling.loops.names import Names
from tiling.lower.placing import FusionRequest
from tiling.pipeline import finished
from tiling.planning.forms import lower
from tiling.program.updates.in_place import is_update

MACHINE = tiling.Machine(cores=4, vector_bytes=64, vector_registers=32, l1_bytes=48 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)
TINY = tiling.Machine(cores=4, vector_bytes=64, vector_registers=32, l1_bytes=1 << 10, l2_bytes=1 << 12, l3_bytes=1 << 14)


def _sum(x: str, r: str, axes: str) -> str:
    return f"stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = {axes} : ({x}, tensor<f32>) -> {r}"


SOFTMAX = """func.func @main(%x: tensor<12x24xf32>) -> tensor<12x24xf32> {
  %i = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %i) applies stablehlo.maximum across dimensions = [1] : (tensor<12x24xf32>, tensor<f32>) -> tensor<12xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<12xf32>) -> tensor<12x24xf32>
  %d = stablehlo.subtract %x, %mb : tensor<12x24xf32>
  %e = stablehlo.exponential %d : tensor<12x24xf32>
  %s = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1] : (tensor<12x24xf32>, tensor<f32>) -> tensor<12xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<12xf32>) -> tensor<12x24xf32>
  %y = stablehlo.divide %e, %sb : tensor<12x24xf32>
  return %y : tensor<12x24xf32>
}"""

MATMUL = """func.func @main(%a: tensor<9x40xf32>, %b: tensor<40x36xf32>) -> tensor<9x36xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<9x40xf32>, tensor<40x36xf32>) -> tensor<9x36xf32>
  %1 = stablehlo.tanh %0 : tensor<9x36xf32>
  return %1 : tensor<9x36xf32> }"""

BATCHED = """func.func @main(%a: tensor<2x6x600xbf16>, %b: tensor<2x600x20xbf16>) -> tensor<2x6x20xf32> {
  %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<2x6x600xbf16>, tensor<2x600x20xbf16>) -> tensor<2x6x20xf32>
  return %0 : tensor<2x6x20xf32> }"""

DOTS = """func.func @main(%a: tensor<6x64xf32>, %b: tensor<10x64xf32>) -> tensor<6x10xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<6x64xf32>, tensor<10x64xf32>) -> tensor<6x10xf32>
  return %0 : tensor<6x10xf32> }"""

BYTES = """func.func @main(%a: tensor<6x20xi8>, %b: tensor<20x24xi8>) -> tensor<6x24xi32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<6x20xi8>, tensor<20x24xi8>) -> tensor<6x24xi32>
  return %0 : tensor<6x24xi32> }"""

CONVOLUTION = """func.func @main(%x: tensor<1x7x8x8xf32>, %w: tensor<3x3x8x16xf32>) -> tensor<1x7x8x16xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x7x8x8xf32>, tensor<3x3x8x16xf32>) -> tensor<1x7x8x16xf32>
  return %0 : tensor<1x7x8x16xf32> }"""

HOLES = """func.func @main(%x: tensor<1x5x5x32xf32>, %w: tensor<3x3x32x16xf32>) -> tensor<1x9x9x16xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x5x32xf32>, tensor<3x3x32x16xf32>) -> tensor<1x9x9x16xf32>
  return %0 : tensor<1x9x9x16xf32> }"""

CUMSUM = """func.func @main(%x: tensor<6x40xf32>) -> tensor<6x40xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %z) <{padding = dense<[[0, 0], [39, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 40>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<6x40xf32>, tensor<f32>) -> tensor<6x40xf32>
  return %0 : tensor<6x40xf32> }"""

SCATTER = """func.func @main(%x: tensor<10x6xf32>, %i: tensor<7x1xi32>, %u: tensor<7x6xf32>) -> tensor<10x6xf32> {
  %0 = "stablehlo.scatter"(%x, %i, %u) <{indices_are_sorted = false,
    scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>,
    unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<10x6xf32>, tensor<7x1xi32>, tensor<7x6xf32>) -> tensor<10x6xf32>
  return %0 : tensor<10x6xf32> }"""

WINDOWS = """func.func @main(%x: tensor<9x6xf32>, %i: tensor<3x1xi32>, %u: tensor<3x2x6xf32>) -> tensor<9x6xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<9x6xf32>
  %0 = "stablehlo.scatter"(%z, %i, %u) <{indices_are_sorted = false,
    scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>,
    unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<9x6xf32>, tensor<3x1xi32>, tensor<3x2x6xf32>) -> tensor<9x6xf32>
  %1 = stablehlo.add %0, %x : tensor<9x6xf32>
  return %1 : tensor<9x6xf32> }"""

SELECTION = """func.func @main(%x: tensor<2x6x8xf32>, %s: tensor<2x3x4xf32>) -> tensor<2x6x8xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x, %s, %z) <{window_dimensions = array<i64: 1, 3, 3>, window_strides = array<i64: 1, 2, 2>,
    padding = dense<[[0, 0], [0, 1], [1, 0]]> : tensor<3x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<2x6x8xf32>, tensor<2x3x4xf32>, tensor<f32>) -> tensor<2x6x8xf32>
  return %0 : tensor<2x6x8xf32> }"""

SORT = """func.func @main(%x: tensor<9x4xf32>, %k: tensor<9x4xi32>) -> (tensor<9x4xf32>, tensor<9x4xi32>) {
  %0:2 = "stablehlo.sort"(%x, %k) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %1 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) {dimension = 0 : i64, is_stable = true} : (tensor<9x4xf32>, tensor<9x4xi32>) -> (tensor<9x4xf32>, tensor<9x4xi32>)
  return %0#0, %0#1 : tensor<9x4xf32>, tensor<9x4xi32> }"""

TOP_K = """func.func @main(%x: tensor<5x20xf32>) -> (tensor<5x4xf32>, tensor<5x4xi32>) {
  %0:2 = chlo.top_k(%x, k = 4) : tensor<5x20xf32> -> (tensor<5x4xf32>, tensor<5x4xi32>)
  return %0#0, %0#1 : tensor<5x4xf32>, tensor<5x4xi32> }"""

FOURIER = """func.func @main(%x: tensor<4x12xf32>) -> tensor<4x7xcomplex<f32>> {
  %0 = stablehlo.fft %x, type = RFFT, length = [12] : (tensor<4x12xf32>) -> tensor<4x7xcomplex<f32>>
  return %0 : tensor<4x7xcomplex<f32>> }"""

FOURIER_BACK = """func.func @main(%x: tensor<3x8x7xcomplex<f32>>) -> tensor<3x8x12xf32> {
  %0 = stablehlo.fft %x, type = IRFFT, length = [8, 12] : (tensor<3x8x7xcomplex<f32>>) -> tensor<3x8x12xf32>
  return %0 : tensor<3x8x12xf32> }"""

FOURIER_CUT = """func.func @main(%x: tensor<1x400xcomplex<f32>>) -> tensor<1x400xcomplex<f32>> {
  %0 = stablehlo.fft %x, type = FFT, length = [400] : (tensor<1x400xcomplex<f32>>) -> tensor<1x400xcomplex<f32>>
  return %0 : tensor<1x400xcomplex<f32>> }"""

TURNED = """func.func @main(%x: tensor<24x16xf32>, %y: tensor<16x24xf32>) -> tensor<16x24xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<24x16xf32>) -> tensor<16x24xf32>
  %1 = stablehlo.subtract %0, %y : tensor<16x24xf32>
  return %1 : tensor<16x24xf32> }"""

GATHERED = """func.func @main(%x: tensor<10x6xf32>, %i: tensor<7x1xi32>) -> tensor<7x6xf32> {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 6>, indices_are_sorted = false}> : (tensor<10x6xf32>, tensor<7x1xi32>) -> tensor<7x6xf32>
  %1 = stablehlo.exponential %0 : tensor<7x6xf32>
  return %1 : tensor<7x6xf32> }"""

MASKED_SUM = """func.func @main(%x: tensor<20x20xf32>) -> tensor<20xf32> {
  %i = stablehlo.iota dim = 0 : tensor<20x20xi32>
  %j = stablehlo.iota dim = 1 : tensor<20x20xi32>
  %k = stablehlo.compare GE, %i, %j, SIGNED : (tensor<20x20xi32>, tensor<20x20xi32>) -> tensor<20x20xi1>
  %n = stablehlo.constant dense<0.0> : tensor<20x20xf32>
  %s = stablehlo.select %k, %x, %n : tensor<20x20xi1>, tensor<20x20xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [1] : (tensor<20x20xf32>, tensor<f32>) -> tensor<20xf32>
  return %r : tensor<20xf32> }"""

LONG_SUM = """func.func @main(%x: tensor<70000xf32>) -> tensor<f32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<70000xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32> }"""

PADDED = """func.func @main(%x: tensor<6x9xf32>, %y: tensor<3x9xf32>) -> tensor<9x20xf32> {
  %z = stablehlo.constant dense<1.5> : tensor<f32>
  %0 = stablehlo.concatenate %x, %y, dim = 0 : (tensor<6x9xf32>, tensor<3x9xf32>) -> tensor<9x9xf32>
  %1 = stablehlo.pad %0, %z, low = [0, 1], high = [0, 2], interior = [0, 1] : (tensor<9x9xf32>, tensor<f32>) -> tensor<9x20xf32>
  return %1 : tensor<9x20xf32> }"""

SIBLINGS = """func.func @main(%x: tensor<1024x64xf32>) -> (tensor<64xf32>, tensor<1024xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %i = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<1024x64xf32>, tensor<f32>) -> tensor<64xf32>
  %1 = stablehlo.reduce(%x init: %i) applies stablehlo.maximum across dimensions = [1] : (tensor<1024x64xf32>, tensor<f32>) -> tensor<1024xf32>
  return %0, %1 : tensor<64xf32>, tensor<1024xf32> }"""

IN_PLACE = """func.func @main(%x: tensor<12x4xf32>, %n: tensor<i32>) -> tensor<12x4xf32> {
  %c = stablehlo.constant dense<1> : tensor<i32>
  %0:2 = stablehlo.while(%a = %x, %k = %n) : tensor<12x4xf32>, tensor<i32>
  cond {
    %t = stablehlo.constant dense<5> : tensor<i32>
    %p = stablehlo.compare LT, %k, %t : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %z = stablehlo.constant dense<0> : tensor<i32>
    %r = stablehlo.dynamic_slice %a, %k, %z, sizes = [1, 4] : (tensor<12x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %e = stablehlo.exponential %r : tensor<1x4xf32>
    %u = stablehlo.dynamic_update_slice %a, %e, %k, %z : (tensor<12x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<12x4xf32>
    %m = stablehlo.add %k, %c : tensor<i32>
    stablehlo.return %u, %m : tensor<12x4xf32>, tensor<i32>
  }
  return %0#0 : tensor<12x4xf32> }"""

PRODUCTS = """func.func @main(%x: tensor<4x5x3xf32>, %y: tensor<4x3x5xf32>) -> tensor<4x5xf32> {
  %0 = stablehlo.dot_general %x, %y, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1] : (tensor<4x5x3xf32>, tensor<4x3x5xf32>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32> }"""

ARGMAX = """func.func @main(%x: tensor<6x10xf32>) -> tensor<6xi32> {
  %i = stablehlo.iota dim = 1 : tensor<6x10xi32>
  %l = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.reduce(%x init: %l), (%i init: %z) across dimensions = [1] : (tensor<6x10xf32>, tensor<6x10xi32>, tensor<f32>, tensor<i32>) -> (tensor<6xf32>, tensor<6xi32>)
   reducer(%a: tensor<f32>, %c: tensor<f32>) (%b: tensor<i32>, %d: tensor<i32>) {
    %1 = stablehlo.compare GT, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %2 = stablehlo.select %1, %a, %c : tensor<i1>, tensor<f32>
    %3 = stablehlo.select %1, %b, %d : tensor<i1>, tensor<i32>
    stablehlo.return %2, %3 : tensor<f32>, tensor<i32>
  }
  return %0#1 : tensor<6xi32> }"""


def in_form(text: str, sizes: tuple[int, ...], form: str = "", machine: tiling.Machine = MACHINE) -> list[Schedule]:
    """All of a program's stages as one fusion, with tiles and a form that the cost model would not choose for so small a one."""
    plan = tiling.plan(hlo.parse(text), machine=machine)
    stages = tuple(dict.fromkeys(s for f in plan.fusions for s in f.stages))
    stored = frozenset(plan.program.results)
    names = Names([*plan.program.arguments, *(v for s in stages for v in s.values)])
    made = lower(FusionRequest(stages, stored, sizes, form=form), machine, names)
    assert isinstance(made, Schedule), made
    return [made]


def _planned(text: str, machine: tiling.Machine = MACHINE) -> list[Schedule]:
    plan = tiling.plan(hlo.parse(text), machine=machine)
    return [f.schedule for p in plan.nested() for f in p.fusions]


def _updates(text: str) -> list[Schedule]:
    found = [s for s in _planned(text) if any(b.value is not None and b.value.op is not None and is_update(b.value.op)
             for b in s.buffers_in(tiling.Scope.RESULT))]  # fmt: skip
    assert found, "the example is meant to update in place"
    return found


@cache
def parents() -> dict[str, Schedule]:
    """The schedules that are changed, by name."""
    made = {
        "softmax": in_form(SOFTMAX, (4, 24)),
        "softmax in place": _planned(SOFTMAX, TINY),
        "causal attention": in_form(attention("causal", "additive", "-1.0e9", 32, 32, heads=1), (1, 8, 16), "bounded"),
        "window attention": in_form(attention("window", "select", "0xFF800000", 32, 32, heads=1), (1, 8, 16), "bounded"),
        "online attention": in_form(attention("causal", "additive", "-1.0e9", 16, 128, heads=1), (1, 8, 16), "online"),
        "capped attention": in_form(attention("causal", "additive", "-1.0e9", 32, 32, heads=1, capped=True), (1, 8, 16), "bounded"),
        "masked sum": in_form(MASKED_SUM, (5,), "bounded"),
        "matmul": in_form(MATMUL, (4, 36)),
        "batched matmul": _planned(BATCHED),
        "dots": _planned(DOTS),
        "bytes": _planned(BYTES),
        "products": _planned(PRODUCTS),
        "convolution": _planned(CONVOLUTION),
        "convolution with holes": _planned(HOLES),
        "cumulative sum": _planned(CUMSUM),
        "long sum": _planned(LONG_SUM),
        "siblings": _planned(SIBLINGS),
        "argmax": _planned(ARGMAX),
        "scatter": _planned(SCATTER),
        "scatter of windows": _planned(WINDOWS)[:1],
        "selection": _planned(SELECTION),
        "sort": _planned(SORT),
        "top k": _planned(TOP_K),
        "fourier": _planned(FOURIER),
        "fourier back": _planned(FOURIER_BACK),
        "fourier in two": _planned(FOURIER_CUT),
        "turned": in_form(TURNED, (16, 24)),
        "gathered": _planned(GATHERED),
        "padded": _planned(PADDED),
        "update in place": _updates(IN_PLACE),
        "running maximum": _planned(more.RUNNING_MAXIMUM),
        "pooled": _planned(more.POOLED),
        "short rows": _planned(more.SHORT_ROWS),
        "two scattered": _planned(more.TWO_SCATTERED),
        "shifted": _planned(more.SHIFTED),
        "nearest": _planned(more.NEAREST),
        "tested": _planned(more.TESTED),
        "solved": _planned(more.SOLVED),
        "short floats": _planned(more.SHORT_FLOATS),
        "random": _planned(more.RANDOM),
        "descending": _planned(more.DESCENDING),
        "ragged product": in_form(ragged("product", 12, 6, 16, 3), (4, 16), "limited"),
        "ragged gradient": in_form(ragged("by weights", 12, 8, 16, 3), (3, 8, 16), "limited"),
        "rows taken": _planned(more.ROWS_TAKEN),
        "narrow sums": _planned(more.NARROW_SUMS),
        "grouped": _planned(more.GROUPED),
        "channels first": _planned(more.CHANNELS_FIRST),
        "holes, channels first": _planned(more.HOLES_CHANNELS_FIRST),
    }
    for name in ("padded", "tested", "causal attention", "window attention", "online attention", "cumulative sum", "siblings",
                 "pooled", "narrow sums", "turned", "random", "channels first"):  # fmt: skip
        made[f"{name}, final"] = [finished(s) for s in made[name]]
    for name, program in (("tables", more.TABLES), ("folds in lanes", more.LANES), ("wide sums", more.WIDE_SUMS)):
        made[f"{name}, final"] = [finished(s) for s in _planned(program)]
    return {(name if len(all_) == 1 else f"{name} {k}"): s for name, all_ in made.items() for k, s in enumerate(all_)}
