"""Attributes made of dimension numbers: dot, gather, scatter, convolution, and the other structures of StableHLO.

Each has a reader (parsed attribute -> the dataclass of `hlo.attributes`) and a writer (back to a `Struct` or text).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from hlo.attributes import (
    ChannelHandle,
    ConvDimensions,
    DotAlgorithm,
    DotDimensions,
    Foreign,
    GatherDimensions,
    OutputOperandAlias,
    RaggedDotDimensions,
    ReplicaGroupMesh,
    ResultAccuracy,
    ScatterDimensions,
    Struct,
    SymbolPath,
    Word,
)
from hlo.display import as_text
from hlo.text.attribute_text import attribute_text

__all__ = ["WrongForm", "read_struct", "show", "write_struct"]

T = TypeVar("T")


class WrongForm(Exception):
    """The attribute's form is not the one that its kind asks for; the message says what was expected."""


def show(value: Any) -> str:
    """A short text of an attribute, for messages."""
    try:
        return attribute_text(value)[:80]
    except TypeError:
        return type(value).__name__


_DOT_FIELDS = ("lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions")
_CONV_FIELDS = (
    "input_batch_dimension",
    "input_feature_dimension",
    "input_spatial_dimensions",
    "kernel_input_feature_dimension",
    "kernel_output_feature_dimension",
    "kernel_spatial_dimensions",
    "output_batch_dimension",
    "output_feature_dimension",
    "output_spatial_dimensions",
)


def _struct(value: Any, name: str, known: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a struct attribute of that name. Raises WrongForm for another attribute or an unknown field."""
    if not isinstance(value, Struct) or value.name.partition(".")[2] not in (name, ""):
        raise WrongForm(f"expected #stablehlo.{name}<…>, found {show(value)}")
    found = dict(value.fields)
    for k in found:
        if k not in known:
            raise WrongForm(f"{name} has no field {k!r}")
    return found


def integers(value: Any, field: str) -> tuple[int, ...]:
    """A list of plain integers."""
    if not isinstance(value, tuple) or not all(type(x) is int for x in value):
        raise WrongForm(f"expected a list of integers in {field}, found {show(value)}")
    return value


def integer(value: Any, field: str) -> int:
    """A plain integer."""
    if type(value) is not int:
        raise WrongForm(f"expected an integer in {field}, found {show(value)}")
    return value


def _dot(value: Any, name: str = "dot", more: tuple[str, ...] = ()) -> tuple[DotDimensions, dict[str, Any]]:
    found = _struct(value, name, (*_DOT_FIELDS, *more))
    return DotDimensions(*(integers(found.get(f, ()), f) for f in _DOT_FIELDS)), found


def _read_dot(value: Any) -> DotDimensions:
    return _dot(value)[0]


def _write_dot(d: DotDimensions) -> Struct:
    rows = zip(_DOT_FIELDS, (d.lhs_batching, d.rhs_batching, d.lhs_contracting, d.rhs_contracting), strict=True)
    return Struct("stablehlo.dot", tuple((n, v) for n, v in rows if v))


def _read_ragged(value: Any) -> RaggedDotDimensions:
    more = ("lhs_ragged_dimensions", "rhs_group_dimensions")
    dot, found = _dot(value, "ragged_dot", more)
    return RaggedDotDimensions(dot, *(integers(found.get(f, ()), f) for f in more))


def _write_ragged(d: RaggedDotDimensions) -> Struct:
    lists = (d.dot.lhs_batching, d.dot.rhs_batching, d.dot.lhs_contracting, d.dot.rhs_contracting)
    rows = [*zip(_DOT_FIELDS, lists, strict=True), ("lhs_ragged_dimensions", d.lhs_ragged), ("rhs_group_dimensions", d.rhs_group)]
    return Struct("chlo.ragged_dot", tuple(rows))


def _same_names(cls: type[T], name: str) -> Any:
    """A reader for a dataclass whose fields are lists of integers, and integers, under the text's own names."""
    names = tuple(f.name for f in fields(cls))  # type: ignore[arg-type]
    defaults = {f.name: f.default for f in fields(cls)}  # type: ignore[arg-type]

    def read(value: Any) -> T:
        found = _struct(value, name, names)
        made = {n: (integers if isinstance(defaults[n], tuple) else integer)(v, n) for n, v in found.items()}
        return cls(**made)

    return read


def _writer(name: str) -> Any:
    def write(d: Any) -> Struct:
        rows = [(f.name, getattr(d, f.name)) for f in fields(d)]
        # index_vector_dim 0 and empty lists are what a missing field means.
        return Struct(f"stablehlo.{name}", tuple((n, v) for n, v in rows if v != () and not (n == "index_vector_dim" and v == 0)))

    return write


_ALGORITHM = tuple(f.name for f in fields(DotAlgorithm))


def _read_algorithm(value: Any) -> DotAlgorithm:
    found = _struct(value, "dot_algorithm", _ALGORITHM)
    missing = [n for n in _ALGORITHM if n not in found]
    if missing:
        raise WrongForm(f"dot_algorithm needs the field {missing[0]!r}")
    for n in _ALGORITHM[:3]:
        found[n] = str(found[n])
    for n in _ALGORITHM[3:6]:
        integer(found[n], n)
    if not isinstance(found["allow_imprecise_accumulation"], bool):
        raise WrongForm("expected true or false in allow_imprecise_accumulation")
    return DotAlgorithm(**found)


def _write_algorithm(d: DotAlgorithm) -> Struct:
    return Struct(
        "stablehlo.dot_algorithm", tuple((n, Word(v) if isinstance(v := getattr(d, n), str) else v) for n in _ALGORITHM)
    )


def _read_channel(value: Any) -> ChannelHandle:
    found = _struct(value, "channel_handle", ("handle", "type"))
    return ChannelHandle(integer(found.get("handle", 0), "handle"), integer(found.get("type", 0), "type"))


def _write_channel(d: ChannelHandle) -> Struct:
    return Struct("stablehlo.channel_handle", (("handle", d.handle), ("type", d.type)))


def _read_accuracy(value: Any) -> ResultAccuracy:
    found = _struct(value, "result_accuracy", ("atol", "rtol", "ulps", "mode"))
    mode = getattr(found.get("mode"), "word", "DEFAULT")
    numbers = [found.get(n, 0.0) for n in ("atol", "rtol")]
    if not all(isinstance(n, float | int) for n in numbers):
        raise WrongForm("expected numbers in atol and rtol")
    return ResultAccuracy(float(numbers[0]), float(numbers[1]), integer(found.get("ulps", 0), "ulps"), str(mode))


def _write_accuracy(d: ResultAccuracy) -> Struct:
    rows: list[tuple[str, Any]] = [(n, v) for n, v in (("atol", d.atol), ("rtol", d.rtol), ("ulps", d.ulps)) if v]
    return Struct("stablehlo.result_accuracy", (*rows, ("mode", Foreign(f"#stablehlo.result_accuracy_mode<{d.mode}>"))))


def _read_alias(value: Any) -> OutputOperandAlias:
    names = tuple(f.name for f in fields(OutputOperandAlias))
    found = _struct(value, "output_operand_alias", names)
    return OutputOperandAlias(
        integers(found.get(names[0], ()), names[0]),
        integer(found.get(names[1], 0), names[1]),
        integers(found.get(names[2], ()), names[2]),
    )


def _write_alias(d: OutputOperandAlias) -> Struct:
    return Struct("stablehlo.output_operand_alias", tuple((f.name, getattr(d, f.name)) for f in fields(d)))


def read_mesh(value: Struct) -> ReplicaGroupMesh:
    """`#stablehlo.replica_group_mesh_axes<mesh = @m, axes = […]>`."""
    found = _struct(value, "replica_group_mesh_axes", ("mesh", "axes"))
    mesh, axes = found.get("mesh"), found.get("axes", ())
    if not isinstance(mesh, SymbolPath) or not isinstance(axes, tuple):
        raise WrongForm("expected a mesh symbol and a list of axes")
    return ReplicaGroupMesh("::".join(mesh.path), axes)


def write_mesh(d: ReplicaGroupMesh) -> Struct:
    """The attribute of a mesh's replica groups."""
    return Struct("stablehlo.replica_group_mesh_axes", (("mesh", SymbolPath(tuple(d.mesh.split("::")))), ("axes", d.axes)))


def _read_conv(value: Any) -> ConvDimensions:
    if isinstance(value, ConvDimensions):
        return value
    found = _struct(value, "conv", _CONV_FIELDS)
    values = [found.get(n, () if n.endswith("dimensions") else 0) for n in _CONV_FIELDS]
    made = [(integers if n.endswith("dimensions") else integer)(v, n) for n, v in zip(_CONV_FIELDS, values, strict=True)]
    return ConvDimensions(*made)  # type: ignore[arg-type]


def conv_text(d: ConvDimensions) -> str | None:
    """`[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`; None when the numbers do not describe such lists."""
    parts = []
    for spatial, first, second, names in (
        (d.input_spatial, d.input_batch, d.input_feature, "bf"),
        (d.kernel_spatial, d.kernel_input_feature, d.kernel_output_feature, "io"),
        (d.output_spatial, d.output_batch, d.output_feature, "bf"),
    ):
        slots: dict[int, str] = {first: names[0], second: names[1], **{k: str(i) for i, k in enumerate(spatial)}}
        n = len(spatial) + 2
        if sorted(slots) != list(range(n)):
            return None
        parts.append("[" + ", ".join(slots[i] for i in range(n)) + "]")
    return f"{parts[0]}x{parts[1]}->{parts[2]}"


def _write_conv(d: ConvDimensions) -> Any:
    text = conv_text(d)
    if text is not None:
        return Foreign(f"#stablehlo.conv<{text}>")
    values = (getattr(d, f.name) for f in fields(d))
    rows = ", ".join(f"{n} = {list(v) if isinstance(v, tuple) else v}" for n, v in zip(_CONV_FIELDS, values, strict=True))
    return Foreign(f"#stablehlo.conv<raw {rows}>")


read_struct = {
    "dot": _read_dot,
    "ragged_dot": _read_ragged,
    "gather": _same_names(GatherDimensions, "gather"),
    "scatter": _same_names(ScatterDimensions, "scatter"),
    "conv": _read_conv,
    "algorithm": _read_algorithm,
    "channel": _read_channel,
    "accuracy": _read_accuracy,
    "alias": _read_alias,
}
"""kind -> reader of the parsed attribute."""

write_struct = {
    "dot": _write_dot,
    "ragged_dot": _write_ragged,
    "gather": _writer("gather"),
    "scatter": _writer("scatter"),
    "conv": _write_conv,
    "algorithm": _write_algorithm,
    "channel": _write_channel,
    "accuracy": _write_accuracy,
    "alias": _write_alias,
}
"""kind -> writer back to an attribute."""


def _conv_attribute_text(value: ConvDimensions) -> str:
    return attribute_text(write_struct["conv"](value))


as_text.register(ConvDimensions, _conv_attribute_text)
