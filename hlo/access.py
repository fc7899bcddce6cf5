"""The access function of an op: which elements of its operands one output element reads.

    out[d] depends on operand_k[index(d, r, rt)]   for every range value r, where the conditions hold

An access function is called with the op, the output index `d` (a tuple) and an `AccessBuilder`. It uses nothing but
`+ - * // %` on `d` and on what the builder hands out, so the same lines run on Python ints (to enumerate), on symbolic
expressions (to derive maps) and on loop variables (to emit addresses). Division and modulo floor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

__all__ = ["AccessBuilder", "AccessFunction", "AnyOp", "Condition", "Index"]

AnyOp = Any  # an `hlo.module.Op`: an op knows its definition, a definition is of no op
Index = Any  # an int, a symbolic expression, an address expression: whatever has + - * // %
T = TypeVar("T")


@dataclass(frozen=True)
class Condition:
    """lower <= expression <= upper: the read takes place where it holds."""

    expression: Index
    lower: int
    upper: int


class AccessBuilder(Protocol):
    """What an access function talks to."""

    def range(self, size: int, name: str = "") -> Index:
        """A new range variable in [0, size - 1]: a reduction's or a contraction's index."""
        ...

    def runtime(self, operand: int, index: Sequence[Index], lower: int, upper: int) -> Index:
        """A new runtime variable: the value of `operand[index]`, clamped to [lower, upper]."""
        ...

    def read(self, operand: int, index: Sequence[Index], where: Sequence[Condition] = ()) -> None:
        """The op reads `operand[index]` where all conditions hold."""
        ...


AccessFunction = Callable[[AnyOp, int, tuple[Index, ...], AccessBuilder], None]
"""(op, number of the result, output index, builder) -> None"""
