"""The cases of ops with windows, regions, processes and run-time shapes; see `constraint_cases`."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

from tests.hlo.constraint_cases import QA, QB, Q, body, case, narrow

# ---------------------------------------------------------------- dots

_dot = ('"stablehlo.dot_general"(%a, %b) {{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], '
        "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>{0}}} : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>")  # fmt: skip
LB, RB = "lhs_batching_dimensions = [0]", "rhs_batching_dimensions = [0]"
LC, RC = "lhs_contracting_dimensions = [2]", "rhs_contracting_dimensions = [1]"
case(
    _dot.format(", precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]"),
    ("C1", LB, LB.replace("[0]", "[]")),
    ("C2", LC, LC.replace("[2]", "[]")),
    ("C3", LC, LC.replace("[2]", "[0]")),
    ("C4", RC, RC.replace("[1]", "[0]")),
    ("C5", LB, LB.replace("[0]", "[3]")),
    ("C6", LC, LC.replace("[2]", "[3]")),
    ("C7", RB, RB.replace("[0]", "[3]")),
    ("C8", RC, RC.replace("[1]", "[3]")),
    ("C9", "2x4x5xf32", "3x4x5xf32"),
    ("C10", "2x4x5xf32", "2x3x5xf32"),
    ("C11", "<precision DEFAULT>]", "<precision DEFAULT>, #stablehlo<precision DEFAULT>]"),
    ("C12", "-> tensor<2x3x5xf32>", "-> tensor<2x3x6xf32>"),
)
_algorithm = (", algorithm = #stablehlo.dot_algorithm<lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, "
              "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, allow_imprecise_accumulation = false>, "
              "precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]")  # fmt: skip
case(
    _dot.format(_algorithm),
    ("C21", "<precision DEFAULT>]", "<precision HIGH>]"),
    ("C22", "lhs_component_count = 1", "lhs_component_count = 0"),
    ("C23", "rhs_component_count = 1", "rhs_component_count = 0"),
    ("C24", "num_primitive_operations = 3", "num_primitive_operations = 0"),
    ("algorithm", "num_primitive_operations = 3", "num_primitive_operations = 2"),
    ("I8", "lhs_precision_type = bf16", "lhs_precision_type = i32"),
)


def quantized_dot(lhs: str, rhs: str, result: str) -> str:
    """A quantized matrix product."""
    numbers = "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]"
    return (f'"stablehlo.dot_general"(%a, %b) {{dot_dimension_numbers = #stablehlo.dot<{numbers}>}} '
            f": (tensor<2x2x{lhs}>, tensor<2x2x{rhs}>) -> tensor<2x2x{result}>")  # fmt: skip


case(
    quantized_dot(Q, Q, Q),
    ("C14", f"-> tensor<2x2x{Q}>", "-> tensor<2x2xf32>"),
    ("C15", f", tensor<2x2x{Q}>", ", tensor<2x2x!quant.uniform<i8:f32, 1.0:3>>"),
    ("C17", f", tensor<2x2x{Q}>", ", tensor<2x2x!quant.uniform<i16:f32, 1.0>>"),
    ("C18", f"-> tensor<2x2x{Q}>", "-> tensor<2x2x!quant.uniform<i8:f64, 1.0>>"),
    ("C19", f"-> tensor<2x2x{Q}>", f"-> tensor<2x2x{QB}>"),
)
case(quantized_dot(Q, QB, Q), ("C16", QB, QA))
case(quantized_dot("f32", Q, "f32"), ("C20", f", tensor<2x2x{Q}>", ", tensor<2x2x!quant.uniform<i8:f64, 1.0>>"))
case('"stablehlo.dot"(%a, %b) {precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} '
     ": (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>", ("C1", "3x4xf32", "4x4xf32"), ("C2", "2x4xf32", "2x5xf32"),
     ("C3", "<precision DEFAULT>]", "<precision DEFAULT>, #stablehlo<precision DEFAULT>]"))  # fmt: skip
case(
    '"stablehlo.einsum"(%a, %b) {einsum_config = "ab,bc->ac"} : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>',
    ("C1", "ab,", "bb,"),
)
case('"stablehlo.unary_einsum"(%a) {einsum_config = "ab->a"} : (tensor<2x3xf32>) -> tensor<2xf32>', ("C1", "->a", "->b"))
_ragged = ('"chlo.ragged_dot"(%a, %b, %g) {ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], '
           "rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>} "
           ": (tensor<11x5xf32>, tensor<3x5x7xf32>, tensor<3xi64>) -> tensor<11x7xf32>")  # fmt: skip
case(_ragged, ("C1", "tensor<3xi64>", "tensor<4xi64>"), ("C2", "11x7xf32", "11x8xf32"))

# ---------------------------------------------------------------- windows

CONV = "#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>"
RAW = ("#stablehlo.conv<raw input_batch_dimension = 0, input_feature_dimension = 3, input_spatial_dimensions = [1, 2], "
       "kernel_input_feature_dimension = 2, kernel_output_feature_dimension = 3, kernel_spatial_dimensions = [0, 1], "
       "output_batch_dimension = 0, output_feature_dimension = 3, output_spatial_dimensions = [1, 2]>")  # fmt: skip


def conv_cases(name: str) -> None:
    """The rules that convolution and dynamic_conv share."""
    dynamic = name == "dynamic_conv"
    value, type_ = (", %p", ", tensor<2x2xi32>") if dynamic else ("", "")
    padding = "" if dynamic else "padding = dense<1> : tensor<2x2xi64>, "
    text = (f'"stablehlo.{name}"(%a, %b{value}) {{window_strides = array<i64: 1, 1>, {padding}lhs_dilation = array<i64: 1, 1>, '
            "rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: false, false>, "
            f"dimension_numbers = {RAW}, feature_group_count = 1 : i64, batch_group_count = 1 : i64, "
            "precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} "
            f": (tensor<2x8x8x4xf32>, tensor<3x3x4x6xf32>{type_}) -> tensor<2x8x8x6xf32>")  # fmt: skip
    case(
        text,
        ("C1", "(tensor<2x8x8x4xf32>", "(tensor<2x8x4xf32>"),
        ("C2", "window_strides = array<i64: 1, 1>", "window_strides = array<i64: 1>"),
        ("C3", "window_strides = array<i64: 1, 1>", "window_strides = array<i64: 1, 0>"),
        ("C4", *(("tensor<2x2xi32>", "tensor<2x3xi32>") if dynamic else ("tensor<2x2xi64>", "tensor<1x2xi64>"))),
        ("C5", "lhs_dilation = array<i64: 1, 1>", "lhs_dilation = array<i64: 1>"),
        ("C6", "lhs_dilation = array<i64: 1, 1>", "lhs_dilation = array<i64: 1, 0>"),
        ("C7", "rhs_dilation = array<i64: 1, 1>", "rhs_dilation = array<i64: 1>"),
        ("C8", "rhs_dilation = array<i64: 1, 1>", "rhs_dilation = array<i64: 1, 0>"),
        ("C9", "array<i1: false, false>", "array<i1: false>"),
        ("C12", "input_spatial_dimensions = [1, 2]", "input_spatial_dimensions = [1]"),
        ("C13", "input_spatial_dimensions = [1, 2]", "input_spatial_dimensions = [1, 1]"),
        ("C17", "kernel_spatial_dimensions = [0, 1]", "kernel_spatial_dimensions = [0]"),
        ("C18", "kernel_spatial_dimensions = [0, 1]", "kernel_spatial_dimensions = [0, 4]"),
        ("C19", "output_spatial_dimensions = [1, 2]", "output_spatial_dimensions = [1]"),
        ("C20", "output_spatial_dimensions = [1, 2]", "output_spatial_dimensions = [1, 3]"),
        ("window", "tensor<3x3x4x6xf32>", "tensor<0x3x4x6xf32>"),
        ("C21", "feature_group_count = 1", "feature_group_count = 0"),
        ("C22", "batch_group_count = 1", "batch_group_count = 0"),
        ("C23", "feature_group_count = 1 : i64, batch_group_count = 1", "feature_group_count = 2 : i64, batch_group_count = 2"),
        ("C10", "batch_group_count = 1", "batch_group_count = 3"),
        ("C11", "feature_group_count = 1", "feature_group_count = 3"),
        ("C14", "tensor<3x3x4x6xf32>", "tensor<3x3x3x6xf32>"),
        ("C24", "<precision DEFAULT>]", "<precision DEFAULT>, #stablehlo<precision DEFAULT>]"),
        ("C26", "-> tensor<2x8x8x6xf32>", "-> tensor<2x8x6xf32>"),
        ("C25", "-> tensor<2x8x8x6xf32>", "-> tensor<2x8x8x7xf32>"),
        ("C27", "tensor<3x3x4x6xf32>", "tensor<3x3x4x6xf64>"),
    )
    grouped = text.replace("(tensor<2x8x8x4xf32>", "(tensor<4x8x8x4xf32>")
    case(grouped.replace("batch_group_count = 1", "batch_group_count = 2"), ("C15", "tensor<3x3x4x6xf32>", "tensor<3x3x4x5xf32>"))
    case(text.replace("feature_group_count = 1", "feature_group_count = 2").replace("3x3x4x6", "3x3x2x6"),
         ("C16", "tensor<3x3x2x6xf32>", "tensor<3x3x2x5xf32>"))  # fmt: skip
    q = text.replace("f32>", f"{Q}>")
    case(
        q,
        ("C28", f"-> tensor<2x8x8x6x{Q}>", "-> tensor<2x8x8x6xf32>"),
        ("C31", f"tensor<3x3x4x6x{Q}>", "tensor<3x3x4x6x!quant.uniform<i16:f32, 1.0>>"),
        ("C32", f"-> tensor<2x8x8x6x{Q}>", "-> tensor<2x8x8x6x!quant.uniform<i8:f64, 1.0>>"),
        ("C33", f"-> tensor<2x8x8x6x{Q}>", "-> tensor<2x8x8x6x!quant.uniform<i8:f32:3, {1.0, 1.0, 1.0, 1.0, 1.0, 1.0}>>"),
        ("C29", f"tensor<3x3x4x6x{Q}>", "tensor<3x3x4x6x!quant.uniform<i8:f32:2, {1.0, 1.0, 1.0, 1.0}>>"),
    )
    axis = "!quant.uniform<i8:f32:3, {1.0, 1.0, 1.0, 1.0, 1.0, 1.0}>"
    case(q.replace(f"3x3x4x6x{Q}", f"3x3x4x6x{axis}").replace(f"-> tensor<2x8x8x6x{Q}>", f"-> tensor<2x8x8x6x{axis}>"),
         ("C30", f"-> tensor<2x8x8x6x{axis}>", "-> tensor<2x8x8x6x!quant.uniform<i8:f32:0, {1.0, 1.0}>>"))  # fmt: skip
    case(text.replace("3x3x4x6xf32", f"3x3x4x6x{Q}"), ("C34", f"3x3x4x6x{Q}", "3x3x4x6x!quant.uniform<i8:f64, 1.0>"))


conv_cases("convolution")
conv_cases("dynamic_conv")

case(
    '"stablehlo.reduce_window"(%a, %z) <{window_dimensions = array<i64: 2, 1>, window_strides = array<i64: 2, 1>, '
    "base_dilations = array<i64: 1, 1>, window_dilations = array<i64: 1, 1>, padding = dense<0> : tensor<2x2xi64>}> "
    f"{body()} : (tensor<4x3xf32>, tensor<f32>) -> tensor<2x3xf32>",
    ("C3", ", tensor<f32>", ", tensor<f64>"),
    ("C4", "window_dimensions = array<i64: 2, 1>", "window_dimensions = array<i64: 2>"),
    ("C5", "window_dimensions = array<i64: 2, 1>", "window_dimensions = array<i64: 2, 0>"),
    ("C6", "window_strides = array<i64: 2, 1>", "window_strides = array<i64: 2>"),
    ("C7", "window_strides = array<i64: 2, 1>", "window_strides = array<i64: 2, 0>"),
    ("C8", "base_dilations = array<i64: 1, 1>", "base_dilations = array<i64: 1>"),
    ("C9", "base_dilations = array<i64: 1, 1>", "base_dilations = array<i64: 1, 0>"),
    ("C10", "window_dilations = array<i64: 1, 1>", "window_dilations = array<i64: 1>"),
    ("C11", "window_dilations = array<i64: 1, 1>", "window_dilations = array<i64: 1, 0>"),
    ("C12", "tensor<2x2xi64>", "tensor<1x2xi64>"),
    ("C13", *narrow("reduce_window")),
    ("C15", "-> tensor<2x3xf32>", "-> tensor<3x3xf32>"),
    ("C16", "-> tensor<2x3xf32>", "-> tensor<2x3xf64>"),
)
PAIR = ("({ ^bb0(%x: tensor<f32>, %y: tensor<f32>, %z: tensor<f32>, %w: tensor<f32>): "
        '"stablehlo.return"(%x, %y) : (tensor<f32>, tensor<f32>) -> () })')  # fmt: skip
case(f'"stablehlo.reduce_window"(%a, %b, %i, %j) <{{window_dimensions = array<i64: 2>}}> {PAIR} '
     ": (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<f32>) -> (tensor<3xf32>, tensor<3xf32>)",
     ("C2", "tensor<4xf32>, tensor<f32>", "tensor<5xf32>, tensor<f32>"), ("C14", "tensor<3xf32>)", "tensor<4xf32>)"))  # fmt: skip
case(f'"stablehlo.reduce"(%a, %b, %i, %j) <{{dimensions = array<i64: 0>}}> {PAIR} '
     ": (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)",
     ("C1", "tensor<4xf32>, tensor<f32>", "tensor<5xf32>, tensor<f32>"))  # fmt: skip
case(
    f'"stablehlo.reduce"(%a, %z) <{{dimensions = array<i64: 0>}}> {body()} : (tensor<4x3xf32>, tensor<f32>) -> tensor<3xf32>',
    ("C2", ", tensor<f32>", ", tensor<f64>"),
    ("C4", "array<i64: 0>", "array<i64: 2>"),
    ("C5", "array<i64: 0>", "array<i64: 0, 0>"),
    ("C6", *narrow("reduce")),
    ("C7", "-> tensor<3xf32>", "-> tensor<4xf32>"),
    ("C8", "-> tensor<3xf32>", "-> tensor<3xf64>"),
)
GE = ('({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %s = "stablehlo.compare"(%x, %y) {comparison_direction = #stablehlo<comparison_direction GE>} '
      ': (tensor<f32>, tensor<f32>) -> tensor<i1> "stablehlo.return"(%s) : (tensor<i1>) -> () }')  # fmt: skip
case(
    '"stablehlo.select_and_scatter"(%a, %u, %v) <{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>, '
    f"padding = dense<0> : tensor<1x2xi64>}}> {GE}, {body()[1:]} : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32>",
    ("C1", "tensor<2xf32>", "tensor<2xf64>"),
    ("C2", "tensor<2xf32>", "tensor<3xf32>"),
    ("C3", ", tensor<f32>)", ", tensor<f64>)"),
    ("C4", "window_dimensions = array<i64: 2>", "window_dimensions = array<i64: 2, 1>"),
    ("C5", "window_dimensions = array<i64: 2>", "window_dimensions = array<i64: 0>"),
    ("C6", "window_strides = array<i64: 2>", "window_strides = array<i64: 2, 1>"),
    ("C7", "window_strides = array<i64: 2>", "window_strides = array<i64: 0>"),
    ("C8", "tensor<1x2xi64>", "tensor<2x2xi64>"),
    ("C9", '"stablehlo.return"(%s) : (tensor<i1>)', '"stablehlo.return"(%x) : (tensor<f32>)'),
    ("C10", body()[1:], body("bf16")[1:]),
    ("C11", "-> tensor<4xf32>", "-> tensor<5xf32>"),
    ("C12", "-> tensor<4xf32>", "-> tensor<4xf64>"),
)

# ---------------------------------------------------------------- control

case(
    '"stablehlo.while"(%p, %a) ({ ^bb0(%x: tensor<i1>, %y: tensor<f32>): "stablehlo.return"(%x) : (tensor<i1>) -> () }, '
    '{ ^bb0(%u: tensor<i1>, %v: tensor<f32>): "stablehlo.return"(%u, %v) : (tensor<i1>, tensor<f32>) -> () }) '
    ": (tensor<i1>, tensor<f32>) -> (tensor<i1>, tensor<f32>)",
    ("C1", '"stablehlo.return"(%x) : (tensor<i1>)', '"stablehlo.return"(%y) : (tensor<f32>)'),
    ("C2", '"stablehlo.return"(%u, %v) : (tensor<i1>, tensor<f32>)', '"stablehlo.return"(%v, %v) : (tensor<f32>, tensor<f32>)'),
    ("C3", "-> (tensor<i1>, tensor<f32>)", "-> (tensor<i1>, tensor<f64>)"),
)
BRANCH = '{ %c{0} = "stablehlo.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32> "stablehlo.return"(%c{0}) : (tensor<f32>) -> () }'


def branch(k: int) -> str:
    """A branch that returns a scalar."""
    return BRANCH.replace("{0}", str(k))


ARG = '{ ^bb0(%q: tensor<f32>): "stablehlo.return"(%q) : (tensor<f32>) -> () }'
NONE = '{ "stablehlo.return"() : () -> () }'
case(f'"stablehlo.if"(%p) ({branch(0)}, {branch(1)}) : (tensor<i1>) -> tensor<f32>', ("C1", branch(1), ARG), ("C2", branch(1), NONE),
     ("C3", "-> tensor<f32>", "-> tensor<f64>"))  # fmt: skip
case(f'"stablehlo.case"(%i) ({branch(0)}, {branch(1)}) : (tensor<i32>) -> tensor<f32>', ("C2", branch(1), ARG), ("C3", branch(1), NONE),
     ("C4", "-> tensor<f32>", "-> tensor<f64>"), ("C1", f"({branch(0)}, {branch(1)}) ", ""))  # fmt: skip
case('"stablehlo.optimization_barrier"(%a) : (tensor<f32>) -> tensor<f32>', ("C1", "-> tensor<f32>", "-> tensor<f64>"))
case('"stablehlo.tuple"(%a) : (tensor<f32>) -> tuple<tensor<f32>>', ("C1", "tuple<tensor<f32>>", "tuple<tensor<f64>>"))
case('"stablehlo.get_tuple_element"(%a) {index = 0 : i32} : (tuple<tensor<f32>>) -> tensor<f32>', ("C1", "= 0", "= 1"),
     ("C2", "-> tensor<f32>", "-> tensor<f64>"))  # fmt: skip
LESS = GE.replace("GE", "LT") + ")"
case(
    f'"stablehlo.sort"(%a) <{{dimension = 0 : i64}}> {LESS} : (tensor<4xf32>) -> tensor<4xf32>',
    ("C2", "-> tensor<4xf32>", "-> tensor<5xf32>"),
    ("C4", "= 0", "= 1"),
    ("C5", '"stablehlo.return"(%s) : (tensor<i1>)', '"stablehlo.return"(%x) : (tensor<f32>)'),
    (
        "C1",
        "(%a) <{dimension = 0 : i64}> " + LESS + " : (tensor<4xf32>) -> tensor<4xf32>",
        "() <{dimension = 0 : i64}> " + LESS + " : () -> ()",
    ),
)
case('"stablehlo.sort"(%a, %b) <{dimension = 0 : i64}> ' + LESS.replace("%y: tensor<f32>)", "%y: tensor<f32>, %z: tensor<f32>, %w: tensor<f32>)")
     + " : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)", ("C3", "(tensor<4xf32>, tensor<4xf32>) ->", "(tensor<4xf32>, tensor<5xf32>) ->"))  # fmt: skip
case(
    f'"stablehlo.map"(%a, %b) <{{dimensions = array<i64: 0>}}> {body()} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>',
    ("C1", ", tensor<4xf32>)", ", tensor<5xf32>)"),
    ("C2", "(%a, %b) <{dimensions = array<i64: 0>}> " + body() + " : (tensor<4xf32>, tensor<4xf32>)",
     "() <{dimensions = array<i64: 0>}> " + body() + " : ()"),
    ("C3", "array<i64: 0>", "array<i64: 1>"),
    ("C4", *narrow("map")),
)  # fmt: skip
case('"stablehlo.composite"(%a) {name = "a.b", decomposition = @called} : (tensor<f32>) -> tensor<f32>', ("C1", '"a.b"', '"ab"'),
     ("C2", "@called", "@missing"))  # fmt: skip
case('"func.call"(%a) {callee = @called} : (tensor<f32>) -> tensor<f32>', ("callee", "@called", "@missing"))
case(
    '"stablehlo.custom_call"(%a) {call_target_name = "f", api_version = 2 : i32, backend_config = "", '
    "operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>], "
    "output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>]} "
    ": (tensor<2x3xf32>) -> tensor<2x3xf32>",
    ("backend_config", 'backend_config = ""', "backend_config = {}"),
    ("layouts", "dense<[1, 0]>", "dense<[1, 1]>"),
    ("output_operand_aliases", "operand_index = 0", "operand_index = 1"),
)
case(
    '"stablehlo.custom_call"() {call_target_name = "CreateBuffer"} : () -> memref<2xf32>',
    ("buffers", '"CreateBuffer"', '"Other"'),
)
case(
    '"chlo.scan"(%a, %c) <{dimension = 0 : i64, operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>}> '
    '({ ^bb0(%x: tensor<3xf32>, %y: tensor<3xf32>): "stablehlo.return"(%x, %y) : (tensor<3xf32>, tensor<3xf32>) -> () }) '
    ": (tensor<2x3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>)",
    ("C1", "dimension = 0", "dimension = 2"),
    ("C2", "(tensor<2x3xf32>, tensor<3xf32>) ->", "(tensor<2x3xf32>, tensor<4xf32>) ->"),
)
case('"sdy.manual_computation"(%a) ({ ^bb0(%x: tensor<2xf32>): "sdy.return"(%x) : (tensor<2xf32>) -> () }) : (tensor<4xf32>) -> tensor<4xf32>',
     ("C1", '"sdy.return"(%x) : (tensor<2xf32>)', '"sdy.return"() : ()'))  # fmt: skip

# ---------------------------------------------------------------- collectives

GROUPS = "replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"
MESH = "replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @missing, axes = []>"
GLOBAL = ", use_global_device_ids, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>"
ZERO = ", use_global_device_ids, channel_handle = #stablehlo.channel_handle<handle = 0, type = 0>"
TWICE = ("dense<[[0, 1], [2, 3]]>", "dense<[[0, 1], [2, 1]]>")
GAP = ("dense<[[0, 1], [2, 3]]>", "dense<[[0, 1], [2, 4]]>")
UNEVEN = ("dense<[[0, 1], [2, 3]]>", "dense<[[0, 1], [2, -1]]>")
case(
    f'"stablehlo.all_gather"(%a) {{all_gather_dim = 0 : i64, {GROUPS}{GLOBAL}}} : (tensor<4xf32>) -> tensor<8xf32>',
    ("C1", "all_gather_dim = 0", "all_gather_dim = 1"),
    ("C2", *TWICE),
    ("C3", *UNEVEN),
    ("C4", *GAP),
    ("C5", GLOBAL, ZERO),
    ("C6", "8xf32", "12xf32"),
    ("mesh", GROUPS, MESH),
)
case(
    f'"stablehlo.all_reduce"(%a) <{{{GROUPS}{GLOBAL}}}> {body()} : (tensor<4xf32>) -> tensor<4xf32>',
    ("C1", *TWICE),
    ("C3", *GAP),
    ("C4", GLOBAL, ZERO),
    ("C5", *narrow("all_reduce")),
    ("C6", "-> tensor<4xf32>", "-> tensor<5xf32>"),
    ("C7", "-> tensor<4xf32>", "-> tensor<4xf64>"),
    ("mesh", GROUPS, MESH),
)
case(
    f'"stablehlo.collective_reduce"(%a) <{{{GROUPS}{GLOBAL}}}> {body()} : (tensor<4xf32>) -> tensor<4xf32>',
    ("C1", *TWICE),
    ("C3", *GAP),
    ("C4", GLOBAL, ZERO),
    ("C5", GLOBAL, GLOBAL + ", has_dynamic_root"),
    ("C6", *narrow("collective_reduce")),
    ("C7", "-> tensor<4xf32>", "-> tensor<5xf32>"),
    ("mesh", GROUPS, MESH),
)
case(
    f'"stablehlo.reduce_scatter"(%a) <{{scatter_dimension = 0 : i64, {GROUPS}{GLOBAL}}}> {body()} : (tensor<4xf32>) -> tensor<2xf32>',
    ("C1", "(tensor<4xf32>)", "(tensor<5xf32>)"),
    ("C2", "scatter_dimension = 0", "scatter_dimension = 1"),
    ("C3", *TWICE),
    ("C4", *UNEVEN),
    ("C5", *GAP),
    ("C6", GLOBAL, ZERO),
    ("C7", *narrow("reduce_scatter")),
    ("C8", "-> tensor<2xf32>", "-> tensor<4xf32>"),
    ("C9", "-> tensor<2xf32>", "-> tensor<2xf64>"),
    ("mesh", GROUPS, MESH),
)
case(
    f'"stablehlo.all_to_all"(%a) {{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 2 : i64, {GROUPS}}} '
    ": (tensor<4x2xf32>) -> tensor<2x4xf32>",
    ("C1", "split_dimension = 0", "split_dimension = 2"),
    ("C2", "(tensor<4x2xf32>)", "(tensor<5x2xf32>)"),
    ("C3", "concat_dimension = 1", "concat_dimension = 2"),
    ("C4", "split_count = 2", "split_count = 0"),
    ("C5", *TWICE),
    ("C6", *UNEVEN),
    ("C7", *GAP),
    ("C8", "split_count = 2", "split_count = 1"),
    ("C9", "-> tensor<2x4xf32>", "-> tensor<2x5xf32>"),
    ("mesh", GROUPS, MESH),
)
case(
    f'"stablehlo.collective_broadcast"(%a) {{{GROUPS}}} : (tensor<4xf32>) -> tensor<4xf32>',
    ("operands", "(%a) {" + GROUPS + "} : (tensor<4xf32>) -> tensor<4xf32>", "() {" + GROUPS + "} : () -> ()"),
    ("C1", *TWICE),
    ("C2", "dense<[[0, 1], [2, 3]]>", "dense<[[0, 1], [2, -2]]>"),
    ("root", GROUPS, GROUPS + ", has_dynamic_root"),
    ("C3", "-> tensor<4xf32>", "-> tensor<5xf32>"),
    ("mesh", GROUPS, MESH),
)
PAIRS = "dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>"
case(
    f'"stablehlo.collective_permute"(%a) {{source_target_pairs = {PAIRS}}} : (tensor<4xf32>) -> tensor<4xf32>',
    ("C1", PAIRS, "dense<[[0, 1, 2]]> : tensor<1x3xi64>"),
    ("C2", PAIRS, "dense<[[0, 1], [0, 0]]> : tensor<2x2xi64>"),
    ("C3", PAIRS, "dense<[[0, 1], [1, 1]]> : tensor<2x2xi64>"),
    ("C4", PAIRS, "dense<[[0, 1], [1, -2]]> : tensor<2x2xi64>"),
    ("C5", "-> tensor<4xf32>", "-> tensor<5xf32>"),
)
case(f'"stablehlo.cross-replica-sum"(%a) {{{GROUPS}}} : (tensor<4xf32>) -> tensor<4xf32>', ("C1", *TWICE), ("C3", *GAP))
ASYNC = ('({ ^bb0(%x: tensor<4xf32>): %y = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} '
         ': (tensor<4xf32>) -> tensor<4xf32> "stablehlo.return"(%y) : (tensor<4xf32>) -> () })')  # fmt: skip
case(f'"stablehlo.async_start"(%a) {ASYNC} : (tensor<4xf32>) -> !stablehlo.future<tensor<4xf32>>',
     ("C1", '"stablehlo.return"(%y)', '"stablehlo.return"(%x)'), ("C2", "(tensor<4xf32>) -> !", "(tensor<5xf32>) -> !"))  # fmt: skip
case(
    '"stablehlo.async_done"(%a) : (!stablehlo.future<tensor<4xf32>>) -> tensor<4xf32>',
    ("C1", "-> tensor<4xf32>", "-> tensor<5xf32>"),
)

# ---------------------------------------------------------------- run-time shapes

case(
    '"stablehlo.dynamic_broadcast_in_dim"(%a, %s) {broadcast_dimensions = array<i64: 0, 2>, known_expanding_dimensions = array<i64: 0>, '
    "known_nonexpanding_dimensions = array<i64: 1>} : (tensor<1x3xf32>, tensor<3xi64>) -> tensor<4x5x3xf32>",
    ("C1", "4x5x3xf32", "4x5x3xf64"),
    ("C2", "array<i64: 0, 2>", "array<i64: 0>"),
    ("C3", "array<i64: 0, 2>", "array<i64: 0, 3>"),
    ("C4", "array<i64: 0, 2>", "array<i64: 2, 2>"),
    ("C5", "4x5x3xf32", "4x5x4xf32"),
    ("C7", "tensor<3xi64>", "tensor<2xi64>"),
    ("C8", "known_expanding_dimensions = array<i64: 0>", "known_expanding_dimensions = array<i64: 1>"),
    ("C9", "known_expanding_dimensions = array<i64: 0>", "known_expanding_dimensions = array<i64: 2>"),
    ("C10", "known_nonexpanding_dimensions = array<i64: 1>", "known_nonexpanding_dimensions = array<i64: 2>"),
)
case(f'"stablehlo.dynamic_broadcast_in_dim"(%a, %s) {{broadcast_dimensions = array<i64: 1>}} : (tensor<2x{QA}>, tensor<2xi64>) -> tensor<5x2x{QB}>',
     ("C6", f"5x2x{QB}", "5x2x!quant.uniform<i8:f32:1, {1.0, 3.0}>"))  # fmt: skip
case('"stablehlo.dynamic_reshape"(%a, %s) : (tensor<2x6xf32>, tensor<2xi64>) -> tensor<3x4xf32>', ("C1", "3x4xf32", "3x4xf64"),
     ("C2", "3x4xf32", "3x5xf32"), ("C4", "tensor<2xi64>", "tensor<3xi64>"))  # fmt: skip
case(f'"stablehlo.dynamic_reshape"(%a, %s) : (tensor<2x2x{QA}>, tensor<3xi64>) -> tensor<2x2x1x{QA}>',
     ("C3", f"2x2x1x{QA}", "1x1x4x!quant.uniform<i8:f32:2, {1.0, 2.0, 1.0, 2.0}>"))  # fmt: skip
case('"stablehlo.dynamic_iota"(%s) {iota_dimension = 0 : i64} : (tensor<2xi64>) -> tensor<3x4xi32>', ("C1", "= 0", "= 2"),
     ("C2", "tensor<2xi64>", "tensor<3xi64>"))  # fmt: skip
case(
    '"stablehlo.dynamic_pad"(%a, %z, %l, %h, %i) : (tensor<4xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<6xf32>',
    ("C1", "tensor<f32>", "tensor<f64>"),
    ("C2", "tensor<1xi64>)", "tensor<2xi64>)"),
    ("C4", "-> tensor<6xf32>", "-> tensor<6x1xf32>"),
)
case('"stablehlo.real_dynamic_slice"(%a, %b, %c, %d) : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<2xf32>',
     ("C1", "tensor<1xi64>)", "tensor<1xi32>)"), ("C2", "tensor<1xi64>)", "tensor<2xi64>)"), ("C3", "2xf32", "2xf64"))  # fmt: skip
case('"stablehlo.get_dimension_size"(%a) {dimension = 0 : i64} : (tensor<4xf32>) -> tensor<i32>', ("C1", "= 0", "= 1"))
case(
    '"stablehlo.set_dimension_size"(%a, %s) {dimension = 0 : i64} : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32>',
    ("C1", "= 0", "= 1"),
)

# ---------------------------------------------------------------- linear algebra, normalisation, effects

case('"stablehlo.cholesky"(%a) : (tensor<3x3xf32>) -> tensor<3x3xf32>', ("C1", "-> tensor<3x3xf32>", "-> tensor<3x3xf64>"),
     ("C2", "(tensor<3x3xf32>)", "(tensor<3xf32>)"), ("C3", "(tensor<3x3xf32>)", "(tensor<3x4xf32>)"))  # fmt: skip
case(
    '"stablehlo.triangular_solve"(%a, %b) {left_side = true, lower = true, unit_diagonal = false, '
    "transpose_a = #stablehlo<transpose NO_TRANSPOSE>} : (tensor<3x3xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>",
    ("C1", "tensor<3x2xf32>)", "tensor<3x2xf64>)"),
    ("C2", "tensor<3x2xf32>)", "tensor<3xf32>)"),
    ("C3", "tensor<3x2xf32>)", "tensor<4x2xf32>)"),
    ("C4", "-> tensor<3x2xf32>", "-> tensor<3x3xf32>"),
    ("transpose_a", "NO_TRANSPOSE", "TRANSPOSE_INVALID"),
)
case(
    '"stablehlo.fft"(%a) {fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 4>} : (tensor<4xf32>) -> tensor<3xcomplex<f32>>',
    ("C1", "array<i64: 4>", "array<i64: 4, 4>"),
    ("C2", "RFFT", "FFT"),
    ("C3", "array<i64: 4>", "array<i64>"),
    ("C4", "array<i64: 4>", "array<i64: 5>"),
    ("C5", "-> tensor<3xcomplex", "-> tensor<4xcomplex"),
)
NORM = "{epsilon = 0.001 : f32, feature_index = 1 : i64}"
V2 = "tensor<2xf32>"
case(
    f'"stablehlo.batch_norm_inference"(%a, %s, %o, %m, %v) {NORM} : (tensor<3x2xf32>, {V2}, {V2}, {V2}, {V2}) -> tensor<3x2xf32>',
    ("C1", "feature_index = 1", "feature_index = 2"),
    ("C2", f"{V2})", "tensor<2xf64>)"),
    ("C3", f"(tensor<3x2xf32>, {V2}", "(tensor<3x2xf32>, tensor<3xf32>"),
    ("C4", f"(tensor<3x2xf32>, {V2}, {V2}", f"(tensor<3x2xf32>, {V2}, tensor<3xf32>"),
    ("C5", f"{V2}, {V2})", f"tensor<3xf32>, {V2})"),
    ("C6", f"{V2})", "tensor<3xf32>)"),
)
case(
    f'"stablehlo.batch_norm_training"(%a, %s, %o) {NORM} : (tensor<3x2xf32>, {V2}, {V2}) -> (tensor<3x2xf32>, {V2}, {V2})',
    ("C1", "feature_index = 1", "feature_index = 2"),
    ("C2", f"{V2}) ->", "tensor<2xf64>) ->"),
    ("C3", f"{V2}, {V2}) ->", f"tensor<3xf32>, {V2}) ->"),
    ("C4", f"{V2}) ->", "tensor<3xf32>) ->"),
)
case(
    f'"stablehlo.batch_norm_grad"(%a, %s, %m, %v, %g) {NORM} : (tensor<3x2xf32>, {V2}, {V2}, {V2}, tensor<3x2xf32>) -> (tensor<3x2xf32>, {V2}, {V2})',
    ("C1", "feature_index = 1", "feature_index = 2"),
    ("C2", f"{V2}, tensor<3x2xf32>) ->", "tensor<2xf64>, tensor<3x2xf32>) ->"),
    ("C3", "tensor<3x2xf32>) ->", "tensor<4x2xf32>) ->"),
    ("C4", f"{V2}, tensor<3x2xf32>) ->", "tensor<3xf32>, tensor<3x2xf32>) ->"),
    ("C5", "(tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<3x2xf32>)",
     "(tensor<3x4xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<3x4xf32>)"),
)  # fmt: skip
case(
    '"stablehlo.broadcast"(%a) {broadcast_sizes = array<i64: 2>} : (tensor<3xf32>) -> tensor<2x3xf32>',
    ("C1", "array<i64: 2>", "array<i64: -2>"),
)
case(
    '"stablehlo.infeed"(%t) {layout = [[0]]} : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)',
    ("C1", "-> (tensor<4xf32>, !stablehlo.token)", "-> ()"),
    ("C2", "-> (tensor<4xf32>, ", "-> (!stablehlo.token, "),
    ("C3", "-> (tensor<4xf32>, !stablehlo.token)", "-> (tensor<4xf32>, tensor<f32>)"),
    ("layout", "[[0]]", "[[0], [0]]"),
)
case(
    '"stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 3>, is_host_transfer = true} '
    ": (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)",
    ("C1", "type = 3", "type = 1"),
    ("C2", "-> (tensor<4xf32>, !stablehlo.token)", "-> ()"),
    ("C3", "-> (tensor<4xf32>, ", "-> (!stablehlo.token, "),
    ("C4", "-> (tensor<4xf32>, !stablehlo.token)", "-> (tensor<4xf32>, tensor<f32>)"),
)
case('"stablehlo.send"(%a, %t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true} '
     ": (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token", ("C1", "type = 2", "type = 1"))  # fmt: skip
case(
    '"stablehlo.rng"(%a, %b, %s) {rng_distribution = #stablehlo<rng_distribution UNIFORM>} : (tensor<i32>, tensor<i32>, tensor<1xi64>) -> tensor<3xi32>',
    ("C1", "-> tensor<3xi32>", "-> tensor<3xi64>"),
    ("C2", "UNIFORM", "NORMAL"),
    ("C3", "tensor<1xi64>", "tensor<2xi64>"),
)
case('"stablehlo.rng_bit_generator"(%a) {rng_algorithm = #stablehlo<rng_algorithm PHILOX>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)',
     ("C1", "-> (tensor<2xui64>", "-> (tensor<3xui64>"), ("C2", "(tensor<2xui64>) -> (tensor<2xui64>", "(tensor<4xui64>) -> (tensor<4xui64>"))  # fmt: skip
case('"tensor.cast"(%a) : (tensor<?xf32>) -> tensor<4xf32>', ("C1", "-> tensor<4xf32>", "-> tensor<4x1xf32>"))
case('"xla.bitcast"(%a) : (tensor<4xf32>) -> tensor<2x2xf32>', ("size", "2x2xf32", "2x3xf32"))
case('"xla.copy"(%a) : (tensor<4xf32>) -> tensor<4xf32>', ("type", "-> tensor<4xf32>", "-> tensor<5xf32>"))
case('"xla.fusion"(%a) ({ ^bb0(%x: tensor<4xf32>): "stablehlo.return"(%x) : (tensor<4xf32>) -> () }) : (tensor<4xf32>) -> tensor<4xf32>',
     ("computation", "-> tensor<4xf32>", "-> tensor<5xf32>"))  # fmt: skip
case('"xla.stochastic_convert"(%a, %b) : (tensor<4xf32>, tensor<4xui32>) -> tensor<4xi8>', ("random", "4xui32", "4xui16"))
case('"xla.rng_get_and_update_state"() {delta = 4 : i64} : () -> tensor<2xui64>', ("state", "tensor<2xui64>", "tensor<3xui64>"))
_scaled = ('"xla.scaled_dot"(%a, %b, %c, %d) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], '
           "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} "
           ": (tensor<2x3x4xbf16>, tensor<2x4x5xbf16>, tensor<2x1x2xbf16>, tensor<1x2x5xbf16>) -> tensor<2x3x5xf32>")  # fmt: skip
case(
    _scaled,
    ("C1", LB, LB.replace("[0]", "[]")),
    ("C2", LC, LC.replace("[2]", "[]")),
    ("C3", LC, LC.replace("[2]", "[0]")),
    ("C4", RC, RC.replace("[1]", "[0]")),
    ("C5", LB, LB.replace("[0]", "[3]")),
    ("C6", LC, LC.replace("[2]", "[3]")),
    ("C7", RB, RB.replace("[0]", "[3]")),
    ("C8", RC, RC.replace("[1]", "[3]")),
    ("C9", "2x4x5xbf16", "3x4x5xbf16"),
    ("C10", "2x4x5xbf16", "2x3x5xbf16"),
    ("C11", "<precision DEFAULT>]", "<precision DEFAULT>, #stablehlo<precision DEFAULT>]"),
    ("scales", "2x1x2xbf16", "2x1x3xbf16"),
    ("shape", "-> tensor<2x3x5xf32>", "-> tensor<2x3x6xf32>"),
)
case(
    '"xla.ragged_all_to_all"(%a, %b, %c, %d, %e, %f) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4x3xf32>, tensor<6x3xf32>, '
    "tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<6x3xf32>",
    ("types", "tensor<4x3xf32>", "tensor<4x2xf32>"),
)
