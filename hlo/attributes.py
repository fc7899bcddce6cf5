"""Attribute values that are more than a number, a string or a tuple, and the names of attribute kinds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KINDS", "DotDimensions", "Foreign"]


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
class Foreign:
    """An attribute of a form or dialect that the model has no type for, kept as its text."""

    text: str

    def __str__(self) -> str:
        return self.text


KINDS: dict[str, str] = {
    "i64": "an integer",
    "bool": "true or false",
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
