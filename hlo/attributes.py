"""Attribute values that are more than a number, a string or a tuple, and the names of attribute kinds.

An attribute that an op's definition knows is held as a plain Python value, in the form that its *kind* says (`KINDS`). What
no definition knows is held in the forms of the text: `TypedInteger`, `TypedFloat`, `TypedArray`, `Enumerated`, `Struct`,
`SymbolPath`, `UNIT`,
bool, str, tuple, dict, types, `DenseArray`, and `Foreign` for another dialect's text.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ENUMS",
    "KINDS",
    "UNIT",
    "ChannelHandle",
    "ConvDimensions",
    "DotAlgorithm",
    "DotDimensions",
    "Enumerated",
    "Foreign",
    "GatherDimensions",
    "OutputOperandAlias",
    "RaggedDotDimensions",
    "ReplicaGroupMesh",
    "ResultAccuracy",
    "ScatterDimensions",
    "Struct",
    "SymbolPath",
    "TypedArray",
    "TypedFloat",
    "TypedInteger",
    "Unit",
    "Word",
    "freeze_attributes",
]


def freeze_attributes(attributes: Mapping[str, object]) -> Hashable:
    """An op's attributes as something that can be a key."""
    return tuple(sorted(((k, _hashable(v)) for k, v in attributes.items()), key=lambda kv: kv[0]))


def _hashable(value: object) -> Hashable:
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(v) for v in value)
    return value if isinstance(value, Hashable) else repr(value)


@dataclass(frozen=True)
class DotDimensions:
    """dot_general's dimension numbers: batching dimensions pair up, contracting dimensions pair up."""

    lhs_batching: tuple[int, ...] = ()
    rhs_batching: tuple[int, ...] = ()
    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()

    def free(self, side: str, rank: int) -> tuple[int, ...]:
        """The dimensions of `side` ("lhs" or "rhs") that are neither batching nor contracting, in order."""
        taken = getattr(self, f"{side}_batching") + getattr(self, f"{side}_contracting")
        return tuple(i for i in range(rank) if i not in taken)


@dataclass(frozen=True)
class RaggedDotDimensions:
    """chlo.ragged_dot's dimension numbers: those of a dot, the ragged dimension of lhs, the group dimension of rhs."""

    dot: DotDimensions = field(default_factory=DotDimensions)
    lhs_ragged: tuple[int, ...] = ()
    rhs_group: tuple[int, ...] = ()


@dataclass(frozen=True)
class DotAlgorithm:
    """The arithmetic that dot_general is to use; the types are element type names (also "tf32")."""

    lhs_precision_type: str
    rhs_precision_type: str
    accumulation_type: str
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


@dataclass(frozen=True)
class GatherDimensions:
    """gather's dimension numbers (attribute `dimension_numbers`). Specification: gather."""

    offset_dims: tuple[int, ...] = ()
    collapsed_slice_dims: tuple[int, ...] = ()
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()
    start_index_map: tuple[int, ...] = ()
    index_vector_dim: int = 0


@dataclass(frozen=True)
class ScatterDimensions:
    """scatter's dimension numbers (attribute `scatter_dimension_numbers`). Specification: scatter."""

    update_window_dims: tuple[int, ...] = ()
    inserted_window_dims: tuple[int, ...] = ()
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()
    scatter_dims_to_operand_dims: tuple[int, ...] = ()
    index_vector_dim: int = 0


@dataclass(frozen=True)
class ConvDimensions:
    """convolution's dimension numbers (attribute `dimension_numbers`): which dimension is what in lhs, rhs and result."""

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]


@dataclass(frozen=True)
class ChannelHandle:
    """The channel of a collective or a transfer; `type` is 0, 1 (device to device), 2 (device to host) or 3 (host to device)."""

    handle: int
    type: int = 0


@dataclass(frozen=True)
class ReplicaGroupMesh:
    """replica_groups given by the axes of a mesh: the symbol of the mesh and the axes' text."""

    mesh: str
    axes: tuple[Any, ...]


@dataclass(frozen=True)
class ResultAccuracy:
    """How exact an elementwise function is to be: tolerances, or a mode (DEFAULT, HIGHEST, TOLERANCE)."""

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0
    mode: str = "DEFAULT"


@dataclass(frozen=True)
class OutputOperandAlias:
    """custom_call: a part of the result that shares memory with a part of an operand."""

    output_tuple_indices: tuple[int, ...] = ()
    operand_index: int = 0
    operand_tuple_indices: tuple[int, ...] = ()


# ---------------------------------------------------------------- attributes as the text has them


@dataclass(frozen=True)
class Foreign:
    """An attribute of a form or dialect that the model has no type for, kept as its text."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class TypedInteger:
    """`1 : i32`: an integer and the name of its type."""

    value: int
    type: str = "i64"


@dataclass(frozen=True)
class TypedFloat:
    """`1.0 : f32`: a number and the name of its type. `bits` keeps the pattern where it was written as one."""

    value: float
    type: str = "f64"
    bits: int | None = None


@dataclass(frozen=True)
class TypedArray:
    """`array<i64: 1, 2>`: plain Python numbers or booleans, and the name of their type."""

    element: str
    values: tuple[int | float | bool, ...]


@dataclass(frozen=True)
class Enumerated:
    """`#stablehlo<precision HIGHEST>`: a word of the set called `set`, in `dialect`."""

    set: str
    word: str
    dialect: str = "stablehlo"


@dataclass(frozen=True)
class Struct:
    """`#stablehlo.dot<lhs_batching_dimensions = [0], …>`: named fields."""

    name: str
    fields: tuple[tuple[str, Any], ...]

    def get(self, name: str, default: Any = None) -> Any:
        """The field `name`, or the default."""
        return dict(self.fields).get(name, default)


@dataclass(frozen=True)
class SymbolPath:
    """`@module::@function`: a reference to a symbol, outermost first."""

    path: tuple[str, ...]


class Word(str):
    """A bare word in a struct's field (`f32`), as against a string in quotes."""

    __slots__ = ()


@dataclass(frozen=True)
class Unit:
    """An attribute that says all by being there."""


UNIT = Unit()


ENUMS: dict[str, tuple[str, ...]] = {
    "comparison_direction": ("EQ", "NE", "GE", "GT", "LE", "LT"),
    "comparison_type": ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
    "precision": ("DEFAULT", "HIGH", "HIGHEST", "PACKED_NIBBLE"),
    "fft_type": ("FFT", "IFFT", "RFFT", "IRFFT"),
    "transpose": ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    "rng_distribution": ("UNIFORM", "NORMAL"),
    "rng_algorithm": ("DEFAULT", "THREE_FRY", "PHILOX"),
    "result_accuracy_mode": ("DEFAULT", "HIGHEST", "TOLERANCE"),
}
"""The fixed sets of words; an attribute of kind "enum" or "enums" names its set in `Attribute.domain` (default: its own name)."""


KINDS: dict[str, str] = {
    "i64": "an integer, written with type i64",
    "i32": "an integer, written with type i32",
    "f32": "a number, written with type f32",
    "bool": "true or false",
    "unit": "true when the attribute is there",
    "i64s": "a list of integers",
    "bools": "a list of booleans",
    "string": "a string",
    "symbol": "the name of a function",
    "dense": "a constant (DenseArray)",
    "type": "a type",
    "enum": "a word of a fixed set, kept as a string",
    "enums": "a list of such words",
    "pairs": "a list of pairs of integers: padding (low, high), source and target",
    "groups": "a list of lists of integers (-1 fills short ones up), or ReplicaGroupMesh",
    "accuracy": "ResultAccuracy",
    "channel": "ChannelHandle",
    "dot": "DotDimensions",
    "ragged_dot": "RaggedDotDimensions",
    "algorithm": "DotAlgorithm",
    "gather": "GatherDimensions",
    "scatter": "ScatterDimensions",
    "conv": "ConvDimensions",
    "aliases": "a list of OutputOperandAlias",
    "symbols": "a list of the names of functions",
    "dictionary": "a dictionary, name to attribute",
    "any": "anything, kept as it is",
}
"""What an attribute's `kind` means for the value that an op holds."""
