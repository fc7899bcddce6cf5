"""One op in its generic form that verifies, and for each of its constraints a change that breaks it.

`CASES[op]` is (text, [(label, old, new), …]): `old` in the text becomes `new`, and the verifier must name the label. Operands are declared
from the signature, so a change of the signature changes them too.
"""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

Breaks = list[tuple[str, str, str]]
CASES: dict[str, tuple[str, Breaks]] = {}


def case(text: str, *breaks: tuple[str, str, str]) -> None:
    """Adds the case of the op that the text begins with."""
    name = text.split('"')[1]
    old = CASES.get(name)
    if old is None:
        CASES[name] = (text, list(breaks))
    else:  # a second text of the same op, for what the first cannot show
        CASES[f"{name}#{len([k for k in CASES if k.partition('#')[0] == name])}"] = (text, list(breaks))


def body(element: str = "f32", op: str = "stablehlo.add") -> str:
    """A region that folds two scalars."""
    t = f"tensor<{element}>"
    return f'({{ ^bb0(%x: {t}, %y: {t}): %s = "{op}"(%x, %y) : ({t}, {t}) -> {t} "stablehlo.return"(%s) : ({t}) -> () }})'


def narrow(op: str) -> tuple[str, str]:
    """The body of an op whose element type is narrower than the operand's."""
    return body(), body("bf16")


# ---------------------------------------------------------------- elementwise

F = "tensor<4xf32>"
I = "tensor<4xi32>"  # noqa: E741
P = "tensor<4xi1>"
FLOAT_UNARY = "cbrt ceil cosine exponential exponential_minus_one floor log log_plus_one logistic negate round_nearest_afz \
round_nearest_even rsqrt sign sine sqrt tan tanh".split()
for name in FLOAT_UNARY:
    case(f'"stablehlo.{name}"(%a) : ({F}) -> {F}', ("C1", f"-> {F}", "-> tensor<5xf32>"))
for name in "count_leading_zeros not popcnt".split():
    case(f'"stablehlo.{name}"(%a) : ({I}) -> {I}', ("C1", f"-> {I}", "-> tensor<4xi64>"))
for name in "atan2 divide maximum minimum multiply power remainder subtract".split():
    case(f'"stablehlo.{name}"(%a, %b) : ({F}, {F}) -> {F}', ("C1", f"{F}, {F}", f"{F}, tensor<4xf64>"))
for name in "and or shift_left shift_right_arithmetic shift_right_logical xor".split():
    case(f'"stablehlo.{name}"(%a, %b) : ({I}, {I}) -> {I}', ("C1", f"{I}, {I}", f"{I}, tensor<3xi32>"))
for name in "_asin_acos_kernel acos acosh asin asinh atan atanh bessel_i1e conj cosh digamma erf erf_inv erfc lgamma sinh square tan".split():
    case(f'"chlo.{name}"(%a) : ({F}) -> {F}', ("C1", f"-> {F}", "-> tensor<4xf64>"))
for name in "next_after polygamma zeta".split():
    case(f'"chlo.{name}"(%a, %b) : ({F}, {F}) -> {F}', ("C1", f"{F}, {F}", f"{F}, tensor<4xf64>"))
case(f'"chlo.mulhi"(%a, %b) : ({I}, {I}) -> {I}', ("C1", f"{I}, {I}", f"{I}, tensor<4xi8>"))
for name in "add atan2 divide maximum minimum multiply next_after polygamma power remainder subtract zeta".split():
    case(f'"chlo.broadcast_{name}"(%a, %b) : (tensor<3x4xf32>, {F}) -> tensor<3x4xf32>', ("C3", f", {F}", ", tensor<4xf64>"))
for name in "and or xor shift_left shift_right_arithmetic shift_right_logical".split():
    case(f'"chlo.broadcast_{name}"(%a, %b) : (tensor<3x4xi32>, {I}) -> tensor<3x4xi32>', ("C3", f", {I}", ", tensor<4xi64>"))
case(f'"chlo.broadcast_compare"(%a, %b) {{comparison_direction = #chlo<comparison_direction LT>}} : ({F}, {F}) -> {P}',
     ("C3", f"({F}, {F}", f"({F}, tensor<4xf64>"))  # fmt: skip
case(f'"chlo.broadcast_complex"(%a, %b) : ({F}, {F}) -> tensor<4xcomplex<f32>>', ("C3", f"({F}, {F}", f"({F}, tensor<4xf64>"))
case(f'"chlo.broadcast_select"(%p, %a, %b) : ({P}, {F}, {F}) -> {F}', ("C1", f"{F}, {F})", f"{F}, tensor<4xf64>)"))
case(f'"chlo.constant_like"(%a) {{value = 1.0 : f32}} : ({F}) -> {F}', ("C1", "1.0 : f32", "1.0 : f64"))
case('"chlo.top_k"(%a) {k = 2 : i64} : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi32>)', ("C3", "k = 2", "k = -1"))

Q = "!quant.uniform<i8:f32, 1.0>"
QA = "!quant.uniform<i8:f32:0, {1.0, 2.0}>"
QB = "!quant.uniform<i8:f32:1, {1.0, 2.0}>"
case(f'"stablehlo.add"(%a, %b) : ({F}, {F}) -> {F}', ("C1", f"-> {F}", "-> tensor<5xf32>"),
     ("C2", f"({F}, {F})", f"({F}, tensor<4x{Q}>)"))  # fmt: skip
case(f'"stablehlo.add"(%a, %b) : (tensor<4x{Q}>, tensor<4x{Q}>) -> tensor<4x{Q}>',
     ("C3", f"-> tensor<4x{Q}>", "-> tensor<4x!quant.uniform<i16:f32, 1.0>>"),
     ("C4", f"-> tensor<4x{Q}>", "-> tensor<4x!quant.uniform<i8:f64, 1.0>>"))  # fmt: skip
case(f'"stablehlo.add"(%a, %b) : (tensor<2x2x{QA}>, tensor<2x2x{Q}>) -> tensor<2x2x{QA}>',
     ("C5", f"-> tensor<2x2x{QA}>", f"-> tensor<2x2x{Q}>"), ("C6", f"-> tensor<2x2x{QA}>", f"-> tensor<2x2x{QB}>"))  # fmt: skip
case(f'"stablehlo.add"(%a, %b) : (tensor<2x2x{Q}>, tensor<2x2x{QA}>) -> tensor<2x2x{QA}>',
     ("C7", f"-> tensor<2x2x{QA}>", f"-> tensor<2x2x{QB}>"))  # fmt: skip

C = "tensor<4xcomplex<f32>>"
for name in ("abs", "real", "imag"):
    case(f'"stablehlo.{name}"(%a) : ({C}) -> {F}', ("C1", f"-> {F}", "-> tensor<5xf32>"), ("C2", f"-> {F}", "-> tensor<4xf64>"))
case(f'"stablehlo.is_finite"(%a) : ({F}) -> {P}', ("C1", f"-> {P}", "-> tensor<5xi1>"))
case(f'"stablehlo.complex"(%a, %b) : ({F}, {F}) -> {C}', ("C1", f"{F}, {F}", f"{F}, tensor<4xf64>"),
     ("C2", f"-> {C}", "-> tensor<5xcomplex<f32>>"), ("C3", f"-> {C}", "-> tensor<4xcomplex<f64>>"))  # fmt: skip
case(f'"stablehlo.compare"(%a, %b) {{comparison_direction = #stablehlo<comparison_direction LT>}} : ({F}, {F}) -> {P}',
     ("C1", f"{F}, {F}", f"{F}, tensor<4xf64>"), ("C2", f"-> {P}", "-> tensor<5xi1>"))  # fmt: skip
case(f'"stablehlo.select"(%p, %a, %b) : ({P}, {F}, {F}) -> {F}', ("C1", f"({P}", "(tensor<5xi1>"),
     ("C2", f"{F}, {F})", f"{F}, tensor<4xf64>)"))  # fmt: skip
case(f'"stablehlo.clamp"(%a, %b, %c) : (tensor<f32>, {F}, tensor<f32>) -> {F}', ("C1", "(tensor<f32>", "(tensor<3xf32>"),
     ("C2", "tensor<f32>)", "tensor<3xf32>)"), ("C3", "tensor<f32>)", "tensor<f64>)"),
     ("C4", f"-> {F}", "-> tensor<4xf64>"))  # fmt: skip
case(f'"stablehlo.convert"(%a) : ({F}) -> {I}', ("C1", f"-> {I}", "-> tensor<5xi32>"))
case(f'"stablehlo.reduce_precision"(%a) {{exponent_bits = 5 : i32, mantissa_bits = 10 : i32}} : ({F}) -> {F}',
     ("C1", f"-> {F}", "-> tensor<5xf32>"), ("C2", "exponent_bits = 5", "exponent_bits = 0"),
     ("C3", "mantissa_bits = 10", "mantissa_bits = -1"))  # fmt: skip
case(f'"stablehlo.uniform_dequantize"(%a) : (tensor<4x{Q}>) -> {F}', ("C1", f"-> {F}", "-> tensor<5xf32>"),
     ("C2", f"-> {F}", "-> tensor<4xf64>"))  # fmt: skip
case(f'"stablehlo.uniform_quantize"(%a) : ({F}) -> tensor<4x{Q}>', ("C1", f"({F})", "(tensor<5xf32>)"),
     ("C2", f"({F})", "(tensor<4xf64>)"))  # fmt: skip
case('"stablehlo.bitcast_convert"(%a) : (tensor<4xf32>) -> tensor<4x4xi8>', ("C1", "-> tensor<4x4xi8>", "-> tensor<4x3xi8>"),
     ("C1", "4x4xi8", "5x4xi8"))  # fmt: skip
case(
    '"stablehlo.bitcast_convert"(%a) : (tensor<4xf64>) -> tensor<4xi64>', ("C2", "-> tensor<4xi64>", "-> tensor<4xcomplex<f32>>")
)

# ---------------------------------------------------------------- movement

case(
    '"stablehlo.constant"() {value = dense<1> : tensor<2xi32>} : () -> tensor<2xi32>',
    ("C1", "-> tensor<2xi32>", "-> tensor<3xi32>"),
)
case('"stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<4xi32>', ("C1", "= 0", "= 1"))
case('"stablehlo.broadcast_in_dim"(%a) {broadcast_dimensions = array<i64: 0, 2>} : (tensor<1x3xf32>) -> tensor<4x5x3xf32>',
     ("C1", "-> tensor<4x5x3xf32>", "-> tensor<4x5x3xf64>"), ("C2", "0, 2", "0"), ("C3", "0, 2", "0, 3"), ("C4", "0, 2", "2, 2"),
     ("C5", "5x3xf32", "5x4xf32"))  # fmt: skip
case(f'"stablehlo.broadcast_in_dim"(%a) {{broadcast_dimensions = array<i64: 1>}} : (tensor<2x{QA}>) -> tensor<5x2x{QB}>',
     ("C6", f"5x2x{QB}", "5x2x!quant.uniform<i8:f32:1, {1.0, 3.0}>"))  # fmt: skip
case('"stablehlo.transpose"(%a) {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>',
     ("C1", "3x2xf32", "3x2xf64"), ("C2", "1, 0", "1, 1"), ("C3", "3x2xf32", "3x3xf32"))  # fmt: skip
case(f'"stablehlo.transpose"(%a) {{permutation = array<i64: 1, 0>}} : (tensor<2x2x{QA}>) -> tensor<2x2x{QB}>',
     ("C4", f"-> tensor<2x2x{QB}>", f"-> tensor<2x2x{QA}>"))  # fmt: skip
case('"stablehlo.reshape"(%a) : (tensor<2x6xf32>) -> tensor<3x4xf32>', ("C1", "3x4xf32", "3x4xf64"), ("C2", "3x4xf32", "3x5xf32"))
case(
    f'"stablehlo.reshape"(%a) : (tensor<2x2x{QA}>) -> tensor<2x2x1x{QA}>',
    ("C3", f"2x2x1x{QA}", "1x4x!quant.uniform<i8:f32:1, {1.0, 2.0, 1.0, 2.0}>"),
)
case('"stablehlo.slice"(%a) {start_indices = array<i64: 1>, limit_indices = array<i64: 7>, strides = array<i64: 2>} : (tensor<8xf32>) -> tensor<3xf32>',
     ("C1", "3xf32", "3xf64"), ("C2", "strides = array<i64: 2>", "strides = array<i64: 2, 1>"), ("C3", "i64: 7", "i64: 9"),
     ("C4", "strides = array<i64: 2>", "strides = array<i64: 0>"), ("C5", "3xf32", "4xf32"))  # fmt: skip
case('"stablehlo.reverse"(%a) {dimensions = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>',
     ("C1", "-> tensor<2x3xf32>", "-> tensor<2x3xf64>"), ("C2", "0, 1", "1, 1"), ("C3", "0, 1", "0, 2"))  # fmt: skip
case('"stablehlo.concatenate"(%a, %b) {dimension = 0 : i64} : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<3x3xf32>',
     ("C1", "1x3xf32", "1x3xf64"), ("C2", "1x3xf32", "1x4xf32"), ("C4", "= 0", "= 2"), ("C5", "3x3xf32", "3x3xf64"),
     ("C6", "3x3xf32", "4x3xf32"), ("C3", "(%a, %b) {dimension = 0 : i64} : (tensor<2x3xf32>, tensor<1x3xf32>)", "() {dimension = 0 : i64} : ()"))  # fmt: skip
case('"stablehlo.pad"(%a, %z) {edge_padding_low = array<i64: 1>, edge_padding_high = array<i64: 1>, interior_padding = array<i64: 0>} '
     ": (tensor<4xf32>, tensor<f32>) -> tensor<6xf32>",
     ("C1", "tensor<f32>", "tensor<f64>"), ("C2", "low = array<i64: 1>", "low = array<i64: 1, 1>"),
     ("C3", "interior_padding = array<i64: 0>", "interior_padding = array<i64: -1>"), ("C4", "6xf32", "7xf32"))  # fmt: skip
case('"stablehlo.dynamic_slice"(%a, %i, %j) {slice_sizes = array<i64: 1, 2>} : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>',
     ("C1", "1x2xf32", "1x2xf64"), ("C2", "1, 2", "1"), ("C3", "tensor<i32>)", "tensor<i64>)"), ("C4", "1, 2", "1, 5"),
     ("C5", "1x2xf32", "1x3xf32"))  # fmt: skip
case('"stablehlo.dynamic_update_slice"(%a, %u, %i, %j) : (tensor<3x4xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>',
     ("C1", "-> tensor<3x4xf32>", "-> tensor<3x4xf64>"), ("C2", "1x2xf32", "1x2xf64"), ("C3", "1x2xf32", "2xf32"),
     ("C4", "(%a, %u, %i, %j) : (tensor<3x4xf32>, tensor<1x2xf32>, tensor<i32>,", "(%a, %u, %i) : (tensor<3x4xf32>, tensor<1x2xf32>,"),
     ("C5", "tensor<i32>)", "tensor<i64>)"), ("C6", "1x2xf32", "1x5xf32"))  # fmt: skip
case('"stablehlo.torch_index_select"(%a, %i) {dim = 0 : i64, batch_dims = 0 : i64} : (tensor<5x2xf32>, tensor<3xi32>) -> tensor<3x2xf32>',
     ("C1", "dim = 0", "dim = 2"), ("C2", "batch_dims = 0", "batch_dims = 1"))  # fmt: skip
case('"stablehlo.torch_index_select"(%a, %i) {dim = 1 : i64, batch_dims = 1 : i64} : (tensor<5x2xf32>, tensor<5x3xi32>) -> tensor<5x3xf32>',
     ("C3", "5x3xi32", "4x3xi32"))  # fmt: skip

# ---------------------------------------------------------------- gather and scatter

NUMBERS = ("offset_dims = [2, 3], collapsed_slice_dims = [0], operand_batching_dims = [1], start_indices_batching_dims = [0], "
           "start_index_map = [0, 2], index_vector_dim = 2")  # fmt: skip


def gather_case(name: str, sizes: str, extra: str, values: str) -> None:
    """The rules that gather and dynamic_gather share, on one program."""
    text = (f'"stablehlo.{name}"(%a, %i{values}) {{dimension_numbers = #stablehlo.gather<{NUMBERS}>{sizes}}} '
            f": (tensor<3x4x2x7xf32>, tensor<4x3x2xi32>{extra}) -> tensor<4x3x2x2xf32>")  # fmt: skip
    static = name == "gather"
    breaks: Breaks = [
        ("C1", "collapsed_slice_dims = [0]", "collapsed_slice_dims = []"),
        ("C2", "index_vector_dim = 2", "index_vector_dim = 4"),
        ("C3", "start_index_map = [0, 2]", "start_index_map = [0]"),
        ("C4", "offset_dims = [2, 3]", "offset_dims = [3, 2]"),
        ("C5", "offset_dims = [2, 3]", "offset_dims = [2, 4]"),
        ("C6", "collapsed_slice_dims = [0]", "collapsed_slice_dims = [1]"),
        ("C8", "collapsed_slice_dims = [0]", "collapsed_slice_dims = [4]"),
        ("C11", "operand_batching_dims = [1]", "operand_batching_dims = [4]"),
        ("C14", "start_indices_batching_dims = [0]", "start_indices_batching_dims = [3]"),
        ("C15", "start_indices_batching_dims = [0]", "start_indices_batching_dims = [2]"),
        ("C16", "start_indices_batching_dims = [0]", "start_indices_batching_dims = []"),
        ("C17", "start_indices_batching_dims = [0]", "start_indices_batching_dims = [1]"),
        ("C18", "start_index_map = [0, 2]", "start_index_map = [0, 1]"),
        ("C19", "start_index_map = [0, 2]", "start_index_map = [0, 4]"),
        ("C22", "-> tensor<4x3x2x2xf32>", "-> tensor<4x3x2xf32>"),
        ("C23", "-> tensor<4x3x2x2xf32>", "-> tensor<4x3x2x2xf64>"),
    ]
    if static:
        breaks += [
            ("C9", "array<i64: 1, 1, 2, 2>", "array<i64: 2, 1, 2, 2>"),
            ("C12", "array<i64: 1, 1, 2, 2>", "array<i64: 1, 2, 2, 2>"),
            ("C20", "array<i64: 1, 1, 2, 2>", "array<i64: 1, 1, 2>"),
            ("C21", "array<i64: 1, 1, 2, 2>", "array<i64: 1, 1, 2, 8>"),
        ]
    else:
        breaks += [("C20", "tensor<4xi32>", "tensor<3xi32>")]
    case(text, *breaks)
    two = NUMBERS.replace("offset_dims = [2, 3], collapsed_slice_dims = [0]", "offset_dims = [2], collapsed_slice_dims = [0, 2]")
    case(text.replace(NUMBERS, two).replace("1, 1, 2, 2", "1, 1, 1, 2").replace("-> tensor<4x3x2x2xf32>", "-> tensor<4x3x2xf32>"),
         ("C7", "collapsed_slice_dims = [0, 2]", "collapsed_slice_dims = [2, 0]"))  # fmt: skip
    batch = ("offset_dims = [2], operand_batching_dims = [0, 1], start_indices_batching_dims = [1, 0], start_index_map = [3, 2], "
             "index_vector_dim = 2, collapsed_slice_dims = [2]")  # fmt: skip
    case(text.replace(NUMBERS, batch).replace("1, 1, 2, 2", "1, 1, 1, 2").replace("-> tensor<4x3x2x2xf32>", "-> tensor<4x3x2xf32>"),
         ("C10", "operand_batching_dims = [0, 1], start_indices_batching_dims = [1, 0]",
          "operand_batching_dims = [1, 0], start_indices_batching_dims = [0, 1]"),
         ("C13", "start_indices_batching_dims = [1, 0]", "start_indices_batching_dims = [1, 1]"))  # fmt: skip


gather_case("gather", ", slice_sizes = array<i64: 1, 1, 2, 2>", "", "")
gather_case("dynamic_gather", "", ", tensor<4xi32>", ", %s")

SCATTER = ("update_window_dims = [2, 3], inserted_window_dims = [0], input_batching_dims = [1], scatter_indices_batching_dims = [0], "
           "scatter_dims_to_operand_dims = [0, 2], index_vector_dim = 2")  # fmt: skip
_scatter = (f'"stablehlo.scatter"(%a, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<{SCATTER}>}}> {body()} '
            ": (tensor<3x4x2x7xf32>, tensor<4x3x2xi32>, tensor<4x3x2x2xf32>) -> tensor<3x4x2x7xf32>")  # fmt: skip
case(
    _scatter,
    ("C2", "inserted_window_dims = [0]", "inserted_window_dims = []"),
    ("C4", "4x3x2x2xf32", "4x3x2x8xf32"),
    ("C4", "4x3x2x2xf32", "4x4x2x2xf32"),
    ("C6", "4x3x2x2xf32", "4x3x2x2xf64"),
    ("C7", "update_window_dims = [2, 3]", "update_window_dims = [3, 2]"),
    ("C8", "update_window_dims = [2, 3]", "update_window_dims = [2, 4]"),
    ("C9", "inserted_window_dims = [0]", "inserted_window_dims = [1]"),
    ("C11", "inserted_window_dims = [0]", "inserted_window_dims = [4]"),
    ("C13", "input_batching_dims = [1]", "input_batching_dims = [4]"),
    ("C15", "scatter_indices_batching_dims = [0]", "scatter_indices_batching_dims = [3]"),
    ("C16", "scatter_indices_batching_dims = [0]", "scatter_indices_batching_dims = [2]"),
    ("C17", "scatter_indices_batching_dims = [0]", "scatter_indices_batching_dims = []"),
    ("C18", "scatter_indices_batching_dims = [0]", "scatter_indices_batching_dims = [1]"),
    ("C19", "operand_dims = [0, 2]", "operand_dims = [0]"),
    ("C20", "operand_dims = [0, 2]", "operand_dims = [0, 1]"),
    ("C21", "operand_dims = [0, 2]", "operand_dims = [0, 4]"),
    ("C22", "index_vector_dim = 2", "index_vector_dim = 4"),
    ("C23", *narrow("scatter")),
    ("C24", "-> tensor<3x4x2x7xf32>", "-> tensor<3x4x2x6xf32>"),
    ("C25", "-> tensor<3x4x2x7xf32>", "-> tensor<3x4x2x7xf64>"),
)
case(_scatter.replace("update_window_dims = [2, 3], inserted_window_dims = [0]", "update_window_dims = [2], inserted_window_dims = [0, 2]").replace(
     "4x3x2x2xf32", "4x3x2xf32"), ("C10", "inserted_window_dims = [0, 2]", "inserted_window_dims = [2, 0]"))  # fmt: skip
case(_scatter.replace(SCATTER, "update_window_dims = [2], inserted_window_dims = [2], input_batching_dims = [0, 1], "
     "scatter_indices_batching_dims = [1, 0], scatter_dims_to_operand_dims = [3, 2], index_vector_dim = 2").replace("4x3x2x2xf32", "4x3x2xf32"),
     ("C12", "input_batching_dims = [0, 1], scatter_indices_batching_dims = [1, 0]",
      "input_batching_dims = [1, 0], scatter_indices_batching_dims = [0, 1]"),
     ("C14", "scatter_indices_batching_dims = [1, 0]", "scatter_indices_batching_dims = [1, 1]"))  # fmt: skip
TWO = ("({ ^bb0(%x: tensor<f32>, %y: tensor<f32>, %z: tensor<f32>, %w: tensor<f32>): "
       '"stablehlo.return"(%x, %y) : (tensor<f32>, tensor<f32>) -> () })')  # fmt: skip
case('"stablehlo.scatter"(%a, %b, %i, %u, %v) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], '
     f"scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> {TWO} "
     ": (tensor<4xf32>, tensor<4xf32>, tensor<2x1xi32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>)",
     ("C1", "(tensor<4xf32>, tensor<4xf32>, ", "(tensor<4xf32>, tensor<5xf32>, "), ("C3", "tensor<2xf32>)", "tensor<3xf32>)"))  # fmt: skip
