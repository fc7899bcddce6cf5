"""The pretty syntax of every op that has one: a line for each in `FORMATS`, and the irregular pieces in `CUSTOM`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlo.attributes import DotDimensions
from hlo.module import Op
from hlo.registry import lookup
from hlo.text import literals
from hlo.text.assembly import Custom, Format, Names, OpParts, compile_format, function_text, remaining_attributes
from hlo.text.attribute_text import symbol_text
from hlo.types import QuantizedType, TensorType

if TYPE_CHECKING:
    from hlo.text.mlir_parser import MlirParser

__all__ = ["CUSTOM", "FORMATS", "format_of"]

_UNARY = """abs cbrt ceil convert cosine count_leading_zeros exponential exponential_minus_one floor imag is_finite
    log log_plus_one logistic negate not popcnt real round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh
    uniform_dequantize uniform_quantize bitcast_convert reshape""".split()
_BINARY = """add and atan2 divide maximum minimum multiply or power remainder shift_left shift_right_arithmetic
    shift_right_logical subtract xor""".split()
_FUNCTIONAL = {"is_finite", "bitcast_convert", "reshape"}
_CHLO_UNARY = """acos acosh asin asinh asin_acos_kernel atan atanh bessel_i1e conj cosh digamma erf erf_inv erfc is_inf is_neg_inf
    is_pos_inf lgamma sinh square tan""".split()

FORMATS: dict[str, str] = {
    **{f"stablehlo.{n}": "$operand{} " + (":functional" if n in _FUNCTIONAL else ":same") for n in _UNARY},
    **{f"stablehlo.{n}": "$lhs, $rhs{} :same" for n in _BINARY},
    **{f"chlo.{n}": "$operand{} :chlo" for n in _CHLO_UNARY},
    "stablehlo.constant": "@constant",
    "stablehlo.compare": "$comparison_direction, $lhs, $rhs[[, $compare_type]]{} :functional",
    "stablehlo.select": "$pred, $on_true, $on_false{} :select",
    "stablehlo.iota": "dim = $iota_dimension{} :results",
    "stablehlo.broadcast_in_dim": "$operand, dims = $broadcast_dimensions{} :functional",
    "stablehlo.transpose": "$operand, dims = $permutation{} :functional",
    "stablehlo.reverse": "$operand, dims = $dimensions{} :same",
    "stablehlo.slice": "$operand @slice_ranges{} :functional",
    "stablehlo.concatenate": "$inputs, dim = $dimension{} :functional",
    "stablehlo.pad": "$operand, $padding_value, low = $edge_padding_low, high = $edge_padding_high, "
    "interior = $interior_padding{} :functional",
    "stablehlo.dot_general": "$lhs, $rhs[[, @batching_dims]], contracting_dims = @contracting_dims"
    "[[, precision = $precision_config]][[, algorithm = $algorithm]]{} :functional",
    "func.call": "$callee($inputs){} :functional",
    "func.return": "{}[[ $operands :inputs]]",
    "stablehlo.return": "{}[[ $operands :inputs]]",
}
"""op -> its format."""


def format_of(name: str) -> Format | None:
    """The compiled format of an op, or None when it has only the generic form (or one of `hlo.text.region_formats`)."""
    text = FORMATS.get(name)
    d = lookup(name)
    return compile_format(text, d) if text is not None and d is not None else None


# ---------------------------------------------------------------- pieces


def _parse_constant(p: MlirParser, parts: OpParts) -> None:
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
    if not lx.at_word("dense"):
        raise lx.expected("dense<…>")
    value = p.values.dense()
    parts.attributes["value"] = value
    parts.result_types = (value.type,)


def _print_constant(op: Op, names: Names) -> str:
    value, t = op.attr("value"), op.results[0].type
    extra = remaining_attributes(op, frozenset(("value",)))
    if isinstance(t, TensorType) and isinstance(t.element, QuantizedType):
        return f"() <{{value = {literals.dense_text(value)}}}>{' ' + extra if extra else ''} : {function_text([], [t])}"
    return (extra + " " if extra else "") + literals.dense_text(value)


def _parse_ranges(p: MlirParser, parts: OpParts) -> None:
    lx = p.lexer
    rows: list[tuple[int, int, int]] = []
    lx.expect("[")
    while lx.kind != "]":
        start = lx.integer()
        lx.expect(":")
        limit = lx.integer()
        rows.append((start, limit, lx.integer() if lx.accept(":") else 1))
        if not lx.accept(","):
            break
    lx.expect("]")
    for i, name in enumerate(("start_indices", "limit_indices", "strides")):
        parts.attributes[name] = tuple(r[i] for r in rows)


def _print_ranges(op: Op, names: Names) -> str:
    rows = zip(op.attr("start_indices"), op.attr("limit_indices"), op.attr("strides"), strict=True)
    return "[" + ", ".join(f"{a}:{b}" if s == 1 else f"{a}:{b}:{s}" for a, b, s in rows) + "]"


def _pair(p: MlirParser) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`[0, 1] x [2, 3]`."""
    left = p.integer_list()
    p.lexer.expect_word("x")
    return left, p.integer_list()


def _parse_batching(p: MlirParser, parts: OpParts) -> None:
    p.lexer.expect_word("batching_dims")
    p.lexer.expect("=")
    left, right = _pair(p)
    parts.attributes["dot_dimension_numbers"] = DotDimensions(left, right)


def _parse_contracting(p: MlirParser, parts: OpParts) -> None:
    left, right = _pair(p)
    old: DotDimensions = parts.attributes.get("dot_dimension_numbers", DotDimensions())
    parts.attributes["dot_dimension_numbers"] = DotDimensions(old.lhs_batching, old.rhs_batching, left, right)


def _dims(op: Op) -> DotDimensions:
    dims: DotDimensions = op.attr("dot_dimension_numbers")
    return dims


CUSTOM: dict[str, Custom] = {
    "constant": Custom(_parse_constant, _print_constant, ("value",)),
    "slice_ranges": Custom(_parse_ranges, _print_ranges, ("start_indices", "limit_indices", "strides")),
    "batching_dims": Custom(
        _parse_batching,
        lambda op, names: f"batching_dims = {list(_dims(op).lhs_batching)} x {list(_dims(op).rhs_batching)}",
        ("dot_dimension_numbers",),
        lambda op: bool(_dims(op).lhs_batching or _dims(op).rhs_batching),
        lambda p: p.lexer.at_word("batching_dims"),
    ),
    "contracting_dims": Custom(
        _parse_contracting,
        lambda op, names: f"{list(_dims(op).lhs_contracting)} x {list(_dims(op).rhs_contracting)}",
        ("dot_dimension_numbers",),
    ),
}

_ = (re, symbol_text)
