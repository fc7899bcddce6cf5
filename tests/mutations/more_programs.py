"""More programs for mutants: several results folded at once, places known at run time, small matrices, short floats, bits."""

# ruff: noqa: E501  (programs are kept as they are printed)

from __future__ import annotations

RUNNING_MAXIMUM = """func.func @main(%x: tensor<6x40xi32>) -> tensor<6x40xi32> {
  %z = stablehlo.constant dense<-2147483648> : tensor<i32>
  %0 = "stablehlo.reduce_window"(%x, %z) <{padding = dense<[[0, 0], [0, 39]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 40>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %1 = stablehlo.maximum %a, %b : tensor<i32>
    stablehlo.return %1 : tensor<i32>
  }) : (tensor<6x40xi32>, tensor<i32>) -> tensor<6x40xi32>
  return %0 : tensor<6x40xi32> }"""

POOLED = """func.func @main(%x: tensor<2x9x10x8xf32>) -> tensor<2x5x5x8xf32> {
  %z = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %z) <{padding = dense<[[0, 0], [1, 1], [0, 1], [0, 0]]> : tensor<4x2xi64>, window_dimensions = array<i64: 1, 3, 3, 1>,
    window_strides = array<i64: 1, 2, 2, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<2x9x10x8xf32>, tensor<f32>) -> tensor<2x5x5x8xf32>
  return %0 : tensor<2x5x5x8xf32> }"""

SHORT_ROWS = """func.func @main(%x: tensor<3x53x3xf32>) -> tensor<3x3xf32> {
  %z = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [1] : (tensor<3x53x3xf32>, tensor<f32>) -> tensor<3x3xf32>
  return %0 : tensor<3x3xf32> }"""

NEAREST = """func.func @main(%x: tensor<5x7x4xf32>) -> tensor<5x21x4xf32> {
  %c = stablehlo.iota dim = 0 : tensor<21xf32>
  %three = stablehlo.constant dense<3.0> : tensor<21xf32>
  %q = stablehlo.divide %c, %three : tensor<21xf32>
  %f = stablehlo.floor %q : tensor<21xf32>
  %n = stablehlo.convert %f : (tensor<21xf32>) -> tensor<21xi32>
  %i = stablehlo.reshape %n : (tensor<21xi32>) -> tensor<21x1xi32>
  %y = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 2], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>,
    slice_sizes = array<i64: 5, 1, 4>}> : (tensor<5x7x4xf32>, tensor<21x1xi32>) -> tensor<5x21x4xf32>
  return %y : tensor<5x21x4xf32> }"""

TWO_SCATTERED = """func.func @main(%x: tensor<10x3xf32>, %y: tensor<10x3xi32>, %i: tensor<7x1xi32>, %u: tensor<7x3xf32>, %v: tensor<7x3xi32>) -> (tensor<10x3xf32>, tensor<10x3xi32>) {
  %0:2 = "stablehlo.scatter"(%x, %y, %i, %u, %v) <{indices_are_sorted = false,
    scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>,
    unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<i32>):
    %1 = stablehlo.add %a, %c : tensor<f32>
    %2 = stablehlo.maximum %b, %d : tensor<i32>
    stablehlo.return %1, %2 : tensor<f32>, tensor<i32>
  }) : (tensor<10x3xf32>, tensor<10x3xi32>, tensor<7x1xi32>, tensor<7x3xf32>, tensor<7x3xi32>) -> (tensor<10x3xf32>, tensor<10x3xi32>)
  return %0#0, %0#1 : tensor<10x3xf32>, tensor<10x3xi32> }"""

SHIFTED = """func.func @main(%x: tensor<6x9xf32>, %k: tensor<i32>) -> (tensor<6x7xf32>, tensor<6x7xi32>) {
  %o = stablehlo.constant dense<1.5> : tensor<f32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.pad %x, %o, low = [0, 1], high = [0, 2], interior = [0, 0] : (tensor<6x9xf32>, tensor<f32>) -> tensor<6x12xf32>
  %1 = stablehlo.dynamic_slice %0, %z, %k, sizes = [6, 7] : (tensor<6x12xf32>, tensor<i32>, tensor<i32>) -> tensor<6x7xf32>
  %2 = stablehlo.iota dim = 1 : tensor<6x12xi32>
  %3 = stablehlo.dynamic_slice %2, %z, %k, sizes = [6, 7] : (tensor<6x12xi32>, tensor<i32>, tensor<i32>) -> tensor<6x7xi32>
  return %1, %3 : tensor<6x7xf32>, tensor<6x7xi32> }"""

TESTED = """func.func @main(%x: tensor<7x9xf32>) -> (tensor<7x9xf32>, tensor<7x9xi1>) {
  %i = stablehlo.iota dim = 0 : tensor<7x9xi32>
  %j = stablehlo.iota dim = 1 : tensor<7x9xi32>
  %k = stablehlo.compare GE, %i, %j, SIGNED : (tensor<7x9xi32>, tensor<7x9xi32>) -> tensor<7x9xi1>
  %f = stablehlo.convert %k : (tensor<7x9xi1>) -> tensor<7x9xf32>
  %r = stablehlo.multiply %f, %x : tensor<7x9xf32>
  return %r, %k : tensor<7x9xf32>, tensor<7x9xi1> }"""

SOLVED = """func.func @main(%a: tensor<2x5x5xf32>, %b: tensor<2x5x3xf32>) -> tensor<2x5x3xf32> {
  %0 = "stablehlo.triangular_solve"(%a, %b) {left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}
    : (tensor<2x5x5xf32>, tensor<2x5x3xf32>) -> tensor<2x5x3xf32>
  return %0 : tensor<2x5x3xf32> }"""

SHORT_FLOATS = """func.func @main(%x: tensor<8x48xbf16>, %y: tensor<48xbf16>) -> (tensor<8xbf16>, tensor<8x48xbf16>) {
  %z = stablehlo.constant dense<0.0> : tensor<bf16>
  %0 = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<48xbf16>) -> tensor<8x48xbf16>
  %1 = stablehlo.multiply %x, %0 : tensor<8x48xbf16>
  %2 = stablehlo.tanh %1 : tensor<8x48xbf16>
  %3 = stablehlo.subtract %2, %x : tensor<8x48xbf16>
  %4 = stablehlo.reduce(%3 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<8x48xbf16>, tensor<bf16>) -> tensor<8xbf16>
  return %4, %3 : tensor<8xbf16>, tensor<8x48xbf16> }"""

RANDOM = """func.func @main(%x: tensor<2xui64>) -> (tensor<2xui64>, tensor<8xui32>) {
  %a, %b = stablehlo.rng_bit_generator %x, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<8xui32>)
  return %a, %b : tensor<2xui64>, tensor<8xui32> }"""

DESCENDING = """func.func @main(%x: tensor<4x9xf32>) -> (tensor<4x9xf32>, tensor<4x9xi32>) {
  %i = stablehlo.iota dim = 1 : tensor<4x9xi32>
  %0:2 = "stablehlo.sort"(%x, %i) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %1 = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) {dimension = 1 : i64, is_stable = true} : (tensor<4x9xf32>, tensor<4x9xi32>) -> (tensor<4x9xf32>, tensor<4x9xi32>)
  return %0#0, %0#1 : tensor<4x9xf32>, tensor<4x9xi32> }"""

ROWS_TAKEN = """func.func @main(%x: tensor<12x5xf32>, %i: tensor<6x2xi32>) -> tensor<6x4x2xf32> {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], start_index_map = [0, 1], index_vector_dim = 1>,
    slice_sizes = array<i64: 4, 2>, indices_are_sorted = false}> : (tensor<12x5xf32>, tensor<6x2xi32>) -> tensor<6x4x2xf32>
  return %0 : tensor<6x4x2xf32> }"""

NARROW_SUMS = """func.func @main(%a: tensor<40x12xf32>, %b: tensor<2x40xf32>, %c: tensor<12x2xf32>) -> tensor<12x2xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [0] x [1] : (tensor<40x12xf32>, tensor<2x40xf32>) -> tensor<12x2xf32>
  %1 = stablehlo.tanh %0 : tensor<12x2xf32>
  %2 = stablehlo.subtract %1, %c : tensor<12x2xf32>
  return %2 : tensor<12x2xf32> }"""

GROUPED = """func.func @main(%x: tensor<6x5x9xf32>, %y: tensor<9x7xf32>) -> tensor<7x6x5xf32> {
  %0 = stablehlo.dot_general %y, %x, contracting_dims = [0] x [2] : (tensor<9x7xf32>, tensor<6x5x9xf32>) -> tensor<7x6x5xf32>
  %1 = stablehlo.exponential %0 : tensor<7x6x5xf32>
  return %1 : tensor<7x6x5xf32> }"""

CHANNELS_FIRST = """func.func @main(%x: tensor<1x8x7x8xf32>, %w: tensor<16x8x3x3xf32>) -> tensor<1x16x7x8xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
    window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x7x8xf32>, tensor<16x8x3x3xf32>) -> tensor<1x16x7x8xf32>
  return %0 : tensor<1x16x7x8xf32> }"""

HOLES_CHANNELS_FIRST = """func.func @main(%x: tensor<1x32x5x5xf32>, %w: tensor<16x32x3x3xf32>) -> tensor<1x16x9x9xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
    window = {pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x32x5x5xf32>, tensor<16x32x3x3xf32>) -> tensor<1x16x9x9xf32>
  return %0 : tensor<1x16x9x9xf32> }"""

TABLES = """func.func @main(%x: tensor<24x20xf32>, %w: tensor<20xf32>) -> tensor<24x20xf32> {
  %0 = stablehlo.exponential %w : tensor<20xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<20xf32>) -> tensor<24x20xf32>
  %2 = stablehlo.multiply %x, %1 : tensor<24x20xf32>
  return %2 : tensor<24x20xf32> }"""

LANES = """func.func @main(%x: tensor<3x512xf32>) -> (tensor<3xf32>, tensor<3xi32>) {
  %i = stablehlo.iota dim = 1 : tensor<3x512xi32>
  %l = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.reduce(%x init: %l), (%i init: %z) across dimensions = [1] : (tensor<3x512xf32>, tensor<3x512xi32>, tensor<f32>, tensor<i32>) -> (tensor<3xf32>, tensor<3xi32>)
   reducer(%a: tensor<f32>, %c: tensor<f32>) (%b: tensor<i32>, %d: tensor<i32>) {
    %1 = stablehlo.compare GT, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %2 = stablehlo.compare EQ, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %3 = stablehlo.compare NE, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %4 = stablehlo.or %1, %3 : tensor<i1>
    %5 = stablehlo.compare LT, %b, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %6 = stablehlo.and %2, %5 : tensor<i1>
    %7 = stablehlo.or %4, %6 : tensor<i1>
    %8 = stablehlo.select %4, %a, %c : tensor<i1>, tensor<f32>
    %9 = stablehlo.select %7, %b, %d : tensor<i1>, tensor<i32>
    stablehlo.return %8, %9 : tensor<f32>, tensor<i32>
  }
  return %0#0, %0#1 : tensor<3xf32>, tensor<3xi32> }"""

WIDE_SUMS = """func.func @main(%x: tensor<24x16xbf16>) -> tensor<16xbf16> {
  %z = stablehlo.constant dense<0.0> : tensor<bf16>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<24x16xbf16>, tensor<bf16>) -> tensor<16xbf16>
  return %0 : tensor<16xbf16> }"""
