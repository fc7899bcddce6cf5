"""The pretty syntax of every op that has one: a line for each in `FORMATS`, and the irregular pieces in `CUSTOM`."""

from __future__ import annotations

import re
from collections.abc import Callable

from hlo.attributes import DotDimensions, Foreign
from hlo.module import DenseArray, Op
from hlo.registry import lookup
from hlo.text import literals
from hlo.text.assembly import Custom, Format, Names, compile_format, function_text, remaining_attributes
from hlo.text.attribute_text import attribute_text, symbol_text
from hlo.text.dimension_numbers import conv_text
from hlo.text.kinds import FORMS
from hlo.text.op_parts import OpParser, OpParts
from hlo.types import OpaqueType, QuantizedType, TensorType

__all__ = ["CUSTOM", "FITS", "FORMATS", "format_of"]

_UNARY = """abs cbrt ceil convert cosine count_leading_zeros exponential exponential_minus_one floor imag
    log log_plus_one logistic negate not popcnt real round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh
    uniform_dequantize uniform_quantize bitcast_convert reshape""".split()
_BINARY = """add and atan2 divide maximum minimum multiply or power remainder shift_left shift_right_arithmetic
    shift_right_logical subtract xor""".split()
_FUNCTIONAL = {"bitcast_convert", "reshape"}
_CHLO_UNARY = """acos acosh asin asinh asin_acos_kernel atan atanh bessel_i1e conj cosh digamma erf erf_inv erfc is_inf is_neg_inf
    is_pos_inf lgamma sinh square tan""".split()

_CHLO_BROADCAST = """add and atan2 compare complex divide maximum minimum multiply next_after or polygamma power remainder
    shift_left shift_right_arithmetic shift_right_logical subtract xor zeta""".split()

FORMATS: dict[str, str] = {
    **{f"stablehlo.{n}": "$operand{} " + (":functional" if n in _FUNCTIONAL else ":same") for n in _UNARY},
    **{f"stablehlo.{n}": "$lhs, $rhs{} :same" for n in _BINARY},
    **{f"chlo.{n}": "$operand{} :chlo" for n in _CHLO_UNARY},
    **{f"chlo.broadcast_{n}": "$lhs, $rhs{} :functional" for n in _CHLO_BROADCAST},
    "chlo.broadcast_select": "$pred, $on_true, $on_false{} :functional",
    "chlo.mulhi": "$lhs, $rhs{} :chlo",
    "chlo.next_after": "$x, $y{} :chlo",
    "chlo.polygamma": "$n, $x{} :chlo",
    "chlo.top_k": "($operand, k = $k){} :chlo",
    "chlo.zeta": "$x, $q{} :chlo",
    "stablehlo.after_all": "$inputs{} :same",
    "stablehlo.broadcast": "$operand, sizes = $broadcast_sizes{} :functional",
    "stablehlo.broadcast_in_dim": "$operand, dims = $broadcast_dimensions{} :functional",
    "stablehlo.cholesky": "$a[[, lower = $lower]]{} :same",
    "stablehlo.clamp": "$min, $operand, $max{} :same",
    "stablehlo.compare": "$comparison_direction, $lhs, $rhs[[, $compare_type]]{} :functional",
    "stablehlo.complex": "$lhs, $rhs{} :complex",
    "stablehlo.composite": "$name $inputs{} :functional",
    "stablehlo.concatenate": "$inputs, dim = $dimension{} :functional",
    "stablehlo.constant": "@constant",
    "stablehlo.convolution": "($lhs, $rhs) dim_numbers = @conv_dimensions, window = @window{} :functional",
    "stablehlo.create_token": "{} :results",
    "stablehlo.custom_call": "@target($inputs){} :functional",
    "stablehlo.dot": "$lhs, $rhs[[, precision = $precision_config]]{} :functional",
    "stablehlo.dot_general": "$lhs, $rhs[[, @batching_dims]], contracting_dims = @contracting_dims"
    "[[, precision = $precision_config]][[, algorithm = $algorithm]]{} :functional",
    "stablehlo.dynamic_broadcast_in_dim": "$operand, $output_dimensions, dims = $broadcast_dimensions{} :functional",
    "stablehlo.dynamic_iota": "$output_shape, dim = $iota_dimension{} :functional",
    "stablehlo.dynamic_pad": "$operand, $padding_value, $edge_padding_low, $edge_padding_high, $interior_padding{} :functional",
    "stablehlo.dynamic_reshape": "$operand, $output_shape{} :functional",
    "stablehlo.dynamic_slice": "$operand, $start_indices, sizes = $slice_sizes{} :functional",
    "stablehlo.dynamic_update_slice": "$operand, $update, $start_indices{} :functional",
    "stablehlo.einsum": "$lhs, $rhs, config = $einsum_config{} :functional",
    "stablehlo.fft": "$operand, type = $fft_type, length = $fft_length{} :functional",
    "stablehlo.get_dimension_size": "$operand, dim = $dimension{} :functional",
    "stablehlo.get_tuple_element": "$operand[$index]{} :functional",
    "stablehlo.iota": "dim = $iota_dimension{} :results",
    "stablehlo.is_finite": "$x{} :functional",
    "stablehlo.optimization_barrier": "@barrier",
    "stablehlo.pad": "$operand, $padding_value, low = $edge_padding_low, high = $edge_padding_high, "
    "interior = $interior_padding{} :functional",
    "stablehlo.partition_id": "{} :results",
    "stablehlo.real_dynamic_slice": "$operand, $start_indices, $limit_indices, $strides{} :functional",
    "stablehlo.reduce_precision": "$operand, format = @precision{} :same",
    "stablehlo.replica_id": "{} :results",
    "stablehlo.reverse": "$operand, dims = $dimensions{} :same",
    "stablehlo.rng": "$a, $b, $shape, distribution = $rng_distribution{} :functional",
    "stablehlo.rng_bit_generator": "$initial_state, algorithm = $rng_algorithm{} :functional",
    "stablehlo.select": "$pred, $on_true, $on_false{} :select",
    "stablehlo.set_dimension_size": "$operand, $size, dim = $dimension{} :functional",
    "stablehlo.slice": "$operand @slice_ranges{} :functional",
    "stablehlo.transpose": "$operand, dims = $permutation{} :functional",
    "stablehlo.tuple": "$val{} :tuple",
    "stablehlo.unary_einsum": "$operand, config = $einsum_config{} :functional",
    "stablehlo.return": "{}[[ $operands :inputs]]",
    "arith.constant": "@arith_constant",
    "shape.shape_of": "$operand{} :chlo",
    "tensor.cast": "$operand{} :to",
    "tensor.dim": "$operand, $index{} :first",
    "sdy.sharding_constraint": "$input @sharding{} :same",
    "sdy.reshard": "$input @sharding{} :same",
    "sdy.return": "{}[[ $results :inputs]]",
    "func.call": "$callee($inputs){} :functional",
    "func.return": "{}[[ $operands :inputs]]",
}
"""op -> its format."""


def format_of(name: str) -> Format | None:
    """The compiled format of an op, or None when it has only the generic form (or one of `hlo.text.region_formats`)."""
    text = FORMATS.get(name)
    d = lookup(name)
    return compile_format(text, d, CUSTOM) if text is not None and d is not None else None


# ---------------------------------------------------------------- pieces


def _parse_constant(p: OpParser, parts: OpParts) -> None:
    lx = p.lexer
    if lx.accept("("):  # stablehlo.constant() <{value = …}> : () -> type
        lx.expect(")")
        p.properties(parts)
        if lx.kind == "{":
            p.attribute_dictionary(parts)
        lx.expect(":")
        parts.result_types = p.values.function_type().results
        return
    if lx.kind == "{":
        p.attribute_dictionary(parts)
    if not (lx.at_word("dense") or lx.at_word("dense_resource")):
        raise lx.expected("dense<…>")
    value = p.values.dense() if lx.at_word("dense") else p.values.resource()
    parts.attributes["value"] = value
    parts.result_types = (value.type,)


def _print_constant(op: Op, names: Names) -> str:
    value, t = op.attr("value"), op.results[0].type
    extra = remaining_attributes(op, frozenset(("value",)))
    if isinstance(t, TensorType) and isinstance(t.element, QuantizedType):
        return f"() <{{value = {literals.dense_text(value)}}}>{' ' + extra if extra else ''} : {function_text([], [t])}"
    return (extra + " " if extra else "") + literals.dense_text(value)


def _parse_ranges(p: OpParser, parts: OpParts) -> None:
    lx = p.lexer
    rows: list[tuple[int, int, int]] = []
    lx.expect("[")
    for _ in lx.listed("]"):
        start = lx.integer(64)
        lx.expect(":")
        limit = lx.integer(64)
        rows.append((start, limit, lx.integer(64) if lx.accept(":") else 1))
    for i, name in enumerate(("start_indices", "limit_indices", "strides")):
        parts.attributes[name] = tuple(r[i] for r in rows)


def _print_ranges(op: Op, names: Names) -> str:
    rows = zip(op.attr("start_indices"), op.attr("limit_indices"), op.attr("strides"), strict=True)
    return "[" + ", ".join(f"{a}:{b}" if s == 1 else f"{a}:{b}:{s}" for a, b, s in rows) + "]"


def _pair(p: OpParser) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`[0, 1] x [2, 3]`."""
    left = p.integer_list()
    p.lexer.expect_word("x")
    return left, p.integer_list()


def _parse_batching(p: OpParser, parts: OpParts) -> None:
    p.lexer.expect_word("batching_dims")
    p.lexer.expect("=")
    left, right = _pair(p)
    parts.attributes["dot_dimension_numbers"] = DotDimensions(left, right)


def _parse_contracting(p: OpParser, parts: OpParts) -> None:
    left, right = _pair(p)
    old: DotDimensions = parts.attributes.get("dot_dimension_numbers", DotDimensions())
    parts.attributes["dot_dimension_numbers"] = DotDimensions(old.lhs_batching, old.rhs_batching, left, right)


def _dims(op: Op) -> DotDimensions:
    dims: DotDimensions = op.attr("dot_dimension_numbers")
    return dims


_PRECISION_WORD = re.compile(r"e(\d+)m(\d+)\Z", re.ASCII)


def _parse_precision(p: OpParser, parts: OpParts) -> None:
    lx = p.lexer
    at = lx.start
    m = _PRECISION_WORD.match(lx.take("word", "a format such as e8m10"))
    if m is None or max(len(g) for g in m.groups()) > 9:
        raise lx.error("expected a format e<exponent bits>m<mantissa bits>", at)
    parts.attributes["exponent_bits"], parts.attributes["mantissa_bits"] = int(m.group(1)), int(m.group(2))


def _parse_target(p: OpParser, parts: OpParts) -> None:
    parts.attributes["call_target_name"] = p.lexer.symbol()


def _parse_barrier(p: OpParser, parts: OpParts) -> None:
    lx = p.lexer
    if lx.accept("("):
        lx.expect(")")
    else:
        values = parts.operands["operand"] = [p.use()]
        while lx.accept(","):
            values.append(p.use())
    if lx.kind == "{":
        p.attribute_dictionary(parts)
    if parts.operands:
        lx.expect(":")
        at = lx.start
        types = [p.values.type()]
        while lx.accept(","):
            types.append(p.values.type())
        p.check_types(parts.flat(), types, at)
        parts.result_types = tuple(types)


def _print_barrier(op: Op, names: Names) -> str:
    extra = remaining_attributes(op, frozenset())
    tail = f" {extra}" if extra else ""
    if not op.operands:
        return "()" + tail
    return ", ".join(map(names.use, op.operands)) + tail + " : " + ", ".join(str(r.type) for r in op.results)


def _barrier_fits(op: Op) -> bool:
    return [v.type for v in op.operands] == [r.type for r in op.results]


def _parse_conv(p: OpParser, parts: OpParts) -> None:
    parts.attributes["dimension_numbers"] = p.values.conv_dimensions()


_WINDOW = {
    "stride": "window_strides",
    "pad": "padding",
    "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation",
    "reverse": "window_reversal",
}


def _parse_window(p: OpParser, parts: OpParts) -> None:
    """`{stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = …, rhs_dilate = …, reverse = [false, false]}`."""
    lx = p.lexer
    lx.expect("{")
    for _ in lx.listed("}"):
        at = lx.start
        word = lx.take("word", "a window attribute")
        name = _WINDOW.get(word)
        if name is None or name in parts.attributes:
            raise lx.error(f"unexpected window attribute {word!r}; there is {', '.join(_WINDOW)}, each once", at)
        lx.expect("=")
        attribute = parts.definition.attribute(name)
        if name == "window_reversal" and lx.kind == "[":
            parts.attributes[name] = _reversal(p)
        else:
            bare = FORMS[attribute.kind].bare
            assert bare is not None
            parts.attributes[name] = bare(p.values, attribute)


def _reversal(p: OpParser) -> tuple[bool, ...]:
    """`[false, true]` or `[0, 1]`."""
    lx = p.lexer
    lx.expect("[")
    flags: list[bool] = []
    for _ in lx.listed("]"):
        if lx.kind == "int":
            flags.append(lx.integer() != 0)
        elif lx.at_word("true") or lx.at_word("false"):
            flags.append(lx.token == "true")
            lx.advance()
        else:
            raise lx.expected("true or false")
    return tuple(flags)


def _print_window(op: Op, names: Names) -> str:
    rows = []
    for word, name in _WINDOW.items():
        value = op.attributes.get(name)
        plain = FORMS[op.definition.attribute(name).kind].plain
        if value is not None and plain is not None:
            rows.append(f"{word} = {plain(value)}")
    return "{" + ", ".join(rows) + "}"


def _parse_arith(p: OpParser, parts: OpParts) -> None:
    if p.lexer.kind == "{":
        p.attribute_dictionary(parts)
    value = p.values.attribute()
    parts.attributes["value"] = value
    kind = (
        value.type
        if isinstance(value, DenseArray)
        else OpaqueType("i1" if isinstance(value, bool) else str(getattr(value, "type", "?")))
    )
    parts.result_types = (kind,)


def _print_arith(op: Op, names: Names) -> str:
    extra = remaining_attributes(op, frozenset(("value",)))
    return (extra + " " if extra else "") + attribute_text(op.attr("value"))


_SHARDING = "#sdy.sharding"


def _parse_sharding(p: OpParser, parts: OpParts) -> None:
    lx = p.lexer
    if lx.kind != "<":
        raise lx.expected("'<'")
    begin, end = lx.start, lx.balanced()
    lx.seek(end)
    parts.attributes["sharding"] = Foreign(_SHARDING + lx.text[begin:end])


def _at_batching(p: OpParser) -> bool:
    return p.lexer.at_word("batching_dims")


CUSTOM: dict[str, Custom] = {
    "sharding": Custom(_parse_sharding, lambda op, names: str(op.attr("sharding"))[len(_SHARDING) :], ("sharding",)),
    "arith_constant": Custom(_parse_arith, _print_arith, ("value",)),
    "precision": Custom(
        _parse_precision,
        lambda op, names: f"e{op.attr('exponent_bits')}m{op.attr('mantissa_bits')}",
        ("exponent_bits", "mantissa_bits"),
    ),
    "target": Custom(_parse_target, lambda op, names: symbol_text(op.attr("call_target_name")), ("call_target_name",)),
    "barrier": Custom(_parse_barrier, _print_barrier),
    "conv_dimensions": Custom(
        _parse_conv, lambda op, names: conv_text(op.attr("dimension_numbers")) or "", ("dimension_numbers",)
    ),
    "window": Custom(_parse_window, _print_window, tuple(_WINDOW.values())),
    "constant": Custom(_parse_constant, _print_constant, ("value",)),
    "slice_ranges": Custom(_parse_ranges, _print_ranges, ("start_indices", "limit_indices", "strides")),
    "batching_dims": Custom(
        _parse_batching,
        lambda op, names: f"batching_dims = {list(_dims(op).lhs_batching)} x {list(_dims(op).rhs_batching)}",
        ("dot_dimension_numbers",),
        lambda op: bool(_dims(op).lhs_batching or _dims(op).rhs_batching),
        _at_batching,
    ),
    "contracting_dims": Custom(
        _parse_contracting,
        lambda op, names: f"{list(_dims(op).lhs_contracting)} x {list(_dims(op).rhs_contracting)}",
        ("dot_dimension_numbers",),
    ),
}

FITS: dict[str, Callable[[Op], bool]] = {
    "stablehlo.convolution": lambda op: conv_text(op.attr("dimension_numbers")) is not None,
    "stablehlo.optimization_barrier": _barrier_fits,
    "stablehlo.reduce_precision": lambda op: min(op.attr("exponent_bits"), op.attr("mantissa_bits")) >= 0,
    "sdy.sharding_constraint": lambda op: str(op.attr("sharding")).startswith(_SHARDING + "<"),
    "sdy.reshard": lambda op: str(op.attr("sharding")).startswith(_SHARDING + "<"),
    "stablehlo.custom_call": lambda op: bool(op.attr("call_target_name")),
}
"""Ops whose pretty form cannot say everything, and when it can."""
