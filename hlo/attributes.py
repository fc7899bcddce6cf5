"""Attribute values that are more than a number, a string or a tuple, and the names of attribute kinds.

An attribute that an op's definition knows is held as a plain Python value, in the form that its *kind* says (`KINDS`). What
no definition knows is held in the forms of the text: `TypedInteger`, `TypedFloat`, `TypedArray`, `Enumerated`, `Struct`, `SymbolPath`, `UNIT`,
bool, str, tuple, dict, types, `DenseArray`, and `Foreign` for another dialect's text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "ENUMS",
    "KINDS",
    "UNIT",
    "DotDimensions",
    "Enumerated",
    "Foreign",
    "Struct",
    "SymbolPath",
    "TypedArray",
    "TypedFloat",
    "TypedInteger",
    "Unit",
]


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
    "dot": "DotDimensions",
    "any": "anything, kept as it is",
}
"""What an attribute's `kind` means for the value that an op holds."""
