"""HLO opcodes as rows: which op each becomes, and how its attributes are written.

A `Row` serves both directions. Rows whose attributes do not map one to one have a pair of functions beside their fields: `read`
gives attributes from the raw texts, `write` the texts from the op.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from hlo.attributes import ChannelHandle, ConvDimensions, DotDimensions, GatherDimensions, ScatterDimensions
from hlo.module import Op
from hlo.text.attribute_text import quoted
from hlo.text.xla.fields import (
    BadValue,
    Field,
    Row,
    Texts,
    boolean,
    flag,
    integer,
    integers,
    ints,
    one,
    only,
    plain_bool,
    plain_list,
    plain_rows,
    rows_of,
    string,
    words,
)
from hlo.types import TensorType

__all__ = ["OPCODES", "ROWS", "names_of_opcode"]


# ---------------------------------------------------------------- rows with their own forms

_RANGE = re.compile(r"\[\s*(-?\d{1,18})\s*:\s*(-?\d{1,18})\s*(?::\s*(-?\d{1,18})\s*)?\]", re.ASCII)


def _read_slice(texts: Texts, types: list[TensorType]) -> dict[str, Any]:
    found = [(integer(a), integer(b), integer(c) if c else 1) for a, b, c in _RANGE.findall(texts.get("slice", ""))]
    names = ("start_indices", "limit_indices", "strides")
    return {n: tuple(f[i] for f in found) for i, n in enumerate(names)}


def _write_slice(op: Op) -> dict[str, str]:
    rows = zip(op.attr("start_indices"), op.attr("limit_indices"), op.attr("strides"), strict=True)
    return {"slice": "{" + ", ".join(f"[{a}:{b}]" if s == 1 else f"[{a}:{b}:{s}]" for a, b, s in rows) + "}"}


def _read_pad(texts: Texts, types: list[TensorType]) -> dict[str, Any]:
    text = texts.get("padding", "")
    rows = [[integer(n) for n in part.split("_")] for part in text.split("x")] if text else []
    if any(len(r) not in (2, 3) for r in rows):
        raise BadValue(f"expected padding such as 1_2x0_0_1, found {text[:40]!r}")
    return {
        "edge_padding_low": tuple(r[0] for r in rows),
        "edge_padding_high": tuple(r[1] for r in rows),
        "interior_padding": tuple(r[2] if len(r) == 3 else 0 for r in rows),
    }


def _write_pad(op: Op) -> dict[str, str]:
    rows = zip(op.attr("edge_padding_low"), op.attr("edge_padding_high"), op.attr("interior_padding"), strict=True)
    text = "x".join(f"{a}_{b}" + (f"_{c}" if c else "") for a, b, c in rows)
    return {"padding": text} if text else {}


def _read_window(texts: Texts, rank: int) -> dict[str, tuple[Any, ...]]:
    """`{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=… rhs_dilate=… rhs_reversal=…}` with defaults for what is missing."""
    body = texts.get("window", "{}").strip()[1:-1]
    found: dict[str, list[str]] = {}
    for part in body.split():
        key, eq, value = part.partition("=")
        if not eq or key not in ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal"):
            raise BadValue(f"unexpected {part[:40]!r} in a window")
        found[key] = value.split("x")
    n = len(found["size"]) if "size" in found else rank
    rows: dict[str, tuple[Any, ...]] = {}
    for key, default in (("size", "1"), ("stride", "1"), ("lhs_dilate", "1"), ("rhs_dilate", "1"), ("rhs_reversal", "0")):
        rows[key] = tuple(integer(v) for v in found.get(key, [default] * n))
    pads = [[integer(v) for v in p.split("_")] for p in found.get("pad", ["0_0"] * n)]
    if any(len(p) != 2 for p in pads):
        raise BadValue("expected pad=low_high for each dimension of a window")
    rows["pad"] = tuple((p[0], p[1]) for p in pads)
    if any(len(v) != n for v in rows.values()):
        raise BadValue(f"expected {n} entries in each part of a window")
    return rows


def _write_window(size: Any, stride: Any, pad: Any, lhs: Any, rhs: Any, reverse: Any = ()) -> dict[str, str]:
    parts = ["size=" + "x".join(map(str, size))]
    if any(s != 1 for s in stride):
        parts.append("stride=" + "x".join(map(str, stride)))
    if any(p != (0, 0) for p in pad):
        parts.append("pad=" + "x".join(f"{a}_{b}" for a, b in pad))
    for name, values in (("lhs_dilate", lhs), ("rhs_dilate", rhs)):
        if any(v != 1 for v in values):
            parts.append(f"{name}=" + "x".join(map(str, values)))
    if any(reverse):
        parts.append("rhs_reversal=" + "x".join(str(int(v)) for v in reverse))
    return {"window": "{" + " ".join(parts) + "}"} if len(size) else {}


_LABELS = re.compile(r"([0-9bf?]+)_([0-9io?]+)->([0-9bf?]+)\Z", re.ASCII)


def _slots(text: str, letters: str) -> tuple[int, int, tuple[int, ...]]:
    at = {c: i for i, c in enumerate(text)}
    spatial = tuple(at[str(i)] for i in range(len(text) - 2) if str(i) in at)
    if len(at) != len(text) or any(c not in at for c in letters) or len(spatial) != len(text) - 2:
        raise BadValue(f"expected {' and '.join(letters)} and digits from 0 on, each once, found {text!r}")
    return at[letters[0]], at[letters[1]], spatial


def _read_conv(texts: Texts, types: list[TensorType]) -> dict[str, Any]:
    m = _LABELS.match(texts.get("dim_labels", ""))
    if m is None:
        raise BadValue(f"expected dim_labels such as b01f_01io->b01f, found {texts.get('dim_labels', '')[:40]!r}")
    lhs, rhs, out = _slots(m.group(1), "bf"), _slots(m.group(2), "io"), _slots(m.group(3), "bf")
    rows = _read_window(texts, len(lhs[2]))
    return {
        "dimension_numbers": ConvDimensions(*lhs, *rhs, *out),
        "window_strides": rows["stride"],
        "padding": rows["pad"],
        "lhs_dilation": rows["lhs_dilate"],
        "rhs_dilation": rows["rhs_dilate"],
        "window_reversal": tuple(bool(v) for v in rows["rhs_reversal"]),
        "feature_group_count": integer(texts.get("feature_group_count", "1")),
        "batch_group_count": integer(texts.get("batch_group_count", "1")),
    }


def _labels(d: ConvDimensions) -> str:
    parts = []
    for spatial, a, b, names in (
        (d.input_spatial, d.input_batch, d.input_feature, "bf"),
        (d.kernel_spatial, d.kernel_input_feature, d.kernel_output_feature, "io"),
        (d.output_spatial, d.output_batch, d.output_feature, "bf"),
    ):
        slots = {a: names[0], b: names[1], **{k: str(i) for i, k in enumerate(spatial)}}
        parts.append("".join(slots.get(i, "?") for i in range(len(spatial) + 2)))
    return f"{parts[0]}_{parts[1]}->{parts[2]}"


def _write_conv(op: Op) -> dict[str, str]:
    d: ConvDimensions = op.attr("dimension_numbers")
    size = [op.operands[1].tensor.static_shape[k] for k in d.kernel_spatial]
    texts = _write_window(
        size,
        op.attr("window_strides"),
        op.attr("padding"),
        op.attr("lhs_dilation"),
        op.attr("rhs_dilation"),
        op.attr("window_reversal"),
    )
    texts["dim_labels"] = _labels(d)
    for name in ("feature_group_count", "batch_group_count"):
        if op.attr(name) != 1:
            texts[name] = str(op.attr(name))
    return texts


def _read_reduce_window(texts: Texts, types: list[TensorType]) -> dict[str, Any]:
    rows = _read_window(texts, types[0].rank)
    return {
        "window_dimensions": rows["size"],
        "window_strides": rows["stride"],
        "padding": rows["pad"],
        "base_dilations": rows["lhs_dilate"],
        "window_dilations": rows["rhs_dilate"],
    }


def _write_reduce_window(op: Op) -> dict[str, str]:
    names = ("window_dimensions", "window_strides", "padding", "base_dilations", "window_dilations")
    return _write_window(*(op.attr(n) for n in names))


def _read_select_window(texts: Texts, types: list[TensorType]) -> dict[str, Any]:
    rows = _read_window(texts, types[0].rank)
    return {"window_dimensions": rows["size"], "window_strides": rows["stride"], "padding": rows["pad"]}


def _write_select_window(op: Op) -> dict[str, str]:
    ones = (1,) * len(op.attr("window_dimensions"))
    return _write_window(op.attr("window_dimensions"), op.attr("window_strides"), op.attr("padding"), ones, ones)


def _precision(texts: Texts) -> tuple[str, ...]:
    text = texts.get("operand_precision")
    if text is None:
        return ()
    return tuple(w.strip().upper() for w in text.strip("{}").split(",") if w.strip())


_DOT = (
    ("lhs_batch_dims", "lhs_batching"),
    ("rhs_batch_dims", "rhs_batching"),
    ("lhs_contracting_dims", "lhs_contracting"),
    ("rhs_contracting_dims", "rhs_contracting"),
)


def _read_dot(texts: Texts, types: list[TensorType]) -> dict[str, Any]:
    lists = {name: integers(texts[hlo]) if hlo in texts else () for hlo, name in _DOT}
    found: dict[str, Any] = {"dot_dimension_numbers": DotDimensions(**lists)}
    precision = _precision(texts)
    if precision:
        found["precision_config"] = precision
    return found


def _write_dot(op: Op) -> dict[str, str]:
    d: DotDimensions = op.attr("dot_dimension_numbers")
    texts = {hlo: plain_list(getattr(d, name)) for hlo, name in _DOT if getattr(d, name)}
    precision = op.attr("precision_config") or ()
    if any(p != "DEFAULT" for p in precision):
        texts["operand_precision"] = "{" + ",".join(p.lower() for p in precision) + "}"
    return texts


def _indexed(
    attribute: str, kind: type, lists: tuple[str, ...], flags: tuple[str, ...]
) -> tuple[Callable[[Texts, list[TensorType]], dict[str, Any]], Callable[[Op], dict[str, str]], tuple[str, ...]]:
    """What reads and writes the dimension numbers of a gather or a scatter and what stands beside them, and all their names."""
    names = [f.name for f in fields(kind) if f.name != "index_vector_dim"]

    def read(texts: Texts, types: list[TensorType]) -> dict[str, Any]:
        numbers = {n: integers(texts[n]) if n in texts else () for n in names}
        found = {attribute: kind(**numbers, index_vector_dim=integer(texts.get("index_vector_dim", "0")))}
        found |= {n: integers(texts.get(n, "{}")) for n in lists}
        return found | {n: boolean(texts.get(n, "false")) for n in flags}

    def write(op: Op) -> dict[str, str]:
        d = op.attr(attribute)
        texts = {n: plain_list(getattr(d, n)) for n in names if getattr(d, n) or not n.endswith("batching_dims")}
        texts["index_vector_dim"] = str(d.index_vector_dim)
        texts |= {n: plain_list(op.attr(n)) for n in lists}
        return texts | {n: "true" for n in flags if op.attr(n)}

    return read, write, (*names, "index_vector_dim", *lists, *flags)


_SORTED = ("indices_are_sorted",)


def _stated_flag(name: str) -> Field:
    """A flag that is printed where the op has it, false or true."""
    return Field(name, name, boolean, plain_bool)


def _read_scan(texts: Texts, types: list[TensorType]) -> dict[str, Any]:
    """Inputs, then the carries' first values; `num_carries` says how many those are."""
    carries = integer(texts.get("num_carries", ""))
    if not 0 <= carries <= len(types):
        raise BadValue(f"expected num_carries of at most {len(types)} operands, found {carries}")
    return {"operandSegmentSizes": (len(types) - carries, carries)}


def _write_scan(op: Op) -> dict[str, str]:
    return {"num_carries": str(op.attributes["operandSegmentSizes"][1])}


def _channel(text: str) -> ChannelHandle:
    return ChannelHandle(integer(text), 0)


_CHANNEL = Field("channel_id", "channel_handle", _channel, lambda v: str(v.handle))
_GROUPS = Field("replica_groups", "replica_groups", rows_of, plain_rows, ())
_GLOBAL = flag("use_global_device_ids")
_PAIRS = Field("source_target_pairs", "source_target_pairs", rows_of, plain_rows)

_COMPARE = (
    Field("direction", "comparison_direction", words("EQ", "NE", "GE", "GT", "LE", "LT"), str),
    Field("type", "compare_type", words("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"), str),
)
_NORM = (Field("epsilon", "epsilon", float, lambda v: f"{v:g}"), one("feature_index"))


def _rng_algorithm(text: str) -> str:
    names = {"rng_default": "DEFAULT", "rng_three_fry": "THREE_FRY", "rng_philox": "PHILOX"}
    if text not in names:
        raise BadValue(f"expected one of {', '.join(names)}, found {text[:40]!r}")
    return names[text]


_SAME = """abs add and atan2 cbrt ceil clamp complex convert cosine divide exponential floor imag is-finite logistic log maximum
    minimum multiply negate not or popcnt power real remainder round-nearest-afz round-nearest-even rsqrt select shift-left
    shift-right-arithmetic shift-right-logical sign sine sqrt subtract tan tanh xor bitcast-convert reshape after-all
    partition-id replica-id
    count-leading-zeros dynamic-update-slice""".split()

ROWS: tuple[Row, ...] = (
    *(Row(n, "stablehlo." + n.replace("-", "_")) for n in _SAME),
    Row("clz", "stablehlo.count_leading_zeros", prints=False),
    Row("exponential-minus-one", "stablehlo.exponential_minus_one"),
    Row("log-plus-one", "stablehlo.log_plus_one"),
    Row("erf", "chlo.erf"),
    *(Row(n, f"chlo.{n.replace('-', '_')}") for n in ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh")),
    Row("opt-barrier", "stablehlo.optimization_barrier"),
    Row("broadcast", "stablehlo.broadcast_in_dim", (ints("dimensions", "broadcast_dimensions", ()),)),
    Row("transpose", "stablehlo.transpose", (ints("dimensions", "permutation"),)),
    Row("reverse", "stablehlo.reverse", (ints("dimensions"),)),
    Row("concatenate", "stablehlo.concatenate", (only("dimensions", "dimension"),)),
    Row("iota", "stablehlo.iota", (one("iota_dimension"),)),
    Row("compare", "stablehlo.compare", _COMPARE),
    Row("reduce-precision", "stablehlo.reduce_precision", (one("exponent_bits"), one("mantissa_bits"))),
    Row("slice", "stablehlo.slice", read=_read_slice, write=_write_slice, consumes=("slice",)),
    Row("pad", "stablehlo.pad", read=_read_pad, write=_write_pad, consumes=("padding",)),
    Row("dynamic-slice", "stablehlo.dynamic_slice", (ints("dynamic_slice_sizes", "slice_sizes"),)),
    Row("dot", "stablehlo.dot_general", read=_read_dot, write=_write_dot, consumes=(*(h for h, _ in _DOT), "operand_precision")),
    Row("reduce", "stablehlo.reduce", (ints("dimensions"),), ("to_apply",)),
    Row("reduce-window", "stablehlo.reduce_window", (), ("to_apply",), _read_reduce_window, _write_reduce_window, ("window",)),
    Row(
        "select-and-scatter",
        "stablehlo.select_and_scatter",
        (),
        ("select", "scatter"),
        _read_select_window,
        _write_select_window,
        ("window",),
    ),
    Row(
        "convolution",
        "stablehlo.convolution",
        (),
        (),
        _read_conv,
        _write_conv,
        ("window", "dim_labels", "feature_group_count", "batch_group_count"),
    ),
    Row("gather", "stablehlo.gather", (), (), *_indexed("dimension_numbers", GatherDimensions, ("slice_sizes",), _SORTED)),
    Row(
        "scatter",
        "stablehlo.scatter",
        (),
        ("to_apply",),
        *_indexed("scatter_dimension_numbers", ScatterDimensions, (), (*_SORTED, "unique_indices")),
    ),
    Row("sort", "stablehlo.sort", (only("dimensions", "dimension"), flag("is_stable")), ("to_apply",)),
    Row("map", "stablehlo.map", (ints("dimensions"),), ("to_apply",)),
    Row("topk", "chlo.top_k", (one("k"),)),
    Row("cholesky", "stablehlo.cholesky", (flag("lower"),)),
    Row(
        "triangular-solve",
        "stablehlo.triangular_solve",
        (
            flag("left_side", default=False),
            flag("lower", default=False),
            flag("unit_diagonal", default=False),
            Field("transpose_a", "transpose_a", words("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), str, "NO_TRANSPOSE"),
        ),
    ),
    Row("fft", "stablehlo.fft", (Field("fft_type", "fft_type", words("FFT", "IFFT", "RFFT", "IRFFT"), str), ints("fft_length"))),
    Row("batch-norm-inference", "stablehlo.batch_norm_inference", _NORM),
    Row("batch-norm-training", "stablehlo.batch_norm_training", _NORM),
    Row("batch-norm-grad", "stablehlo.batch_norm_grad", _NORM),
    Row("get-dimension-size", "stablehlo.get_dimension_size", (only("dimensions", "dimension"),)),
    Row("set-dimension-size", "stablehlo.set_dimension_size", (only("dimensions", "dimension"),)),
    Row(
        "rng-bit-generator",
        "stablehlo.rng_bit_generator",
        (Field("algorithm", "rng_algorithm", _rng_algorithm, lambda v: f"rng_{v.lower()}"),),
    ),
    Row("while", "stablehlo.while", (), ("condition", "body")),
    Row("all-gather", "stablehlo.all_gather", (only("dimensions", "all_gather_dim"), _GROUPS, _CHANNEL, _GLOBAL)),
    Row("all-reduce", "stablehlo.all_reduce", (_GROUPS, _CHANNEL, _GLOBAL), ("to_apply",)),
    Row(
        "reduce-scatter",
        "stablehlo.reduce_scatter",
        (only("dimensions", "scatter_dimension"), _GROUPS, _CHANNEL, _GLOBAL),
        ("to_apply",),
    ),
    Row("collective-permute", "stablehlo.collective_permute", (_PAIRS, _CHANNEL)),
    Row("collective-broadcast", "stablehlo.collective_broadcast", (_GROUPS, _CHANNEL)),
    Row(
        "custom-call",
        "stablehlo.custom_call",
        (
            Field("custom_call_target", "call_target_name", string, quoted),
            flag("custom_call_has_side_effect", "has_side_effect"),
            Field("backend_config", "backend_config", string, lambda v: quoted(str(v))),
        ),
    ),
    Row("outfeed", "stablehlo.outfeed", (Field("outfeed_config", "outfeed_config", string, quoted),)),
    Row("fusion", "xla.fusion", (Field("kind", "kind", str, str, "kLoop"),), ("calls",)),
    Row("bitcast", "xla.bitcast"),
    Row("copy", "xla.copy"),
    Row("add-dependency", "xla.add_dependency"),
    Row("domain", "xla.domain", (Field("domain", "domain", str, str),)),
    Row("stochastic-convert", "xla.stochastic_convert"),
    Row("rng-get-and-update-state", "xla.rng_get_and_update_state", (one("delta"),)),
    Row("ragged-all-to-all", "xla.ragged_all_to_all", (_GROUPS, _CHANNEL)),
    Row("scaled-dot", "xla.scaled_dot", read=_read_dot, write=_write_dot, consumes=(*(h for h, _ in _DOT), "operand_precision")),
    Row(
        "scan",
        "chlo.scan",
        (only("dimensions", "dimension"), _stated_flag("is_reverse"), _stated_flag("is_associative")),
        ("to_apply",),
        _read_scan,
        _write_scan,
        ("num_carries",),
    ),
)
"""Every opcode that becomes one op by a table; `parameter`, `constant`, `tuple`, `get-tuple-element`, `call`, `conditional` and
others have code of their own (`hlo.text.xla.special`), the halves of asynchronous pairs too."""

OPCODES: dict[str, Row] = {r.opcode: r for r in ROWS}
_OTHERS: dict[str, tuple[str, ...]] = {
    "conditional": ("stablehlo.if", "stablehlo.case"),
    "call": ("func.call",),
    "get-tuple-element": ("stablehlo.get_tuple_element",),
    **{n: ("stablehlo." + n,) for n in ("infeed", "recv", "rng", "send", "tuple")},
    "all-to-all": ("stablehlo.all_to_all",),
    "dynamic-reshape": ("stablehlo.dynamic_reshape",),
    "async-start": ("func.call",),
}
_HALVES = ("-start", "-update", "-done")


def names_of_opcode(opcode: str) -> tuple[str, ...]:
    """The ops that an HLO opcode becomes; none for a word that is no opcode, or whose op has the same name.

    >>> names_of_opcode("dot"), names_of_opcode("conditional"), names_of_opcode("dots")
    (('stablehlo.dot_general',), ('stablehlo.if', 'stablehlo.case'), ())
    """
    row = OPCODES.get(opcode)
    if row is not None or opcode in _OTHERS:
        return (row.op,) if row is not None else _OTHERS[opcode]
    whole = next((opcode.removesuffix(h) for h in _HALVES if opcode.endswith(h)), None)
    return names_of_opcode("async-start" if whole == "async" else whole) if whole is not None else ()
