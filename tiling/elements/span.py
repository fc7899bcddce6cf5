"""A closed interval that holds every element of a value."""

from __future__ import annotations

from dataclasses import dataclass

from indexing.expr import Var

__all__ = ["Span"]


@dataclass(frozen=True)
class Span:
    """All elements lie in [low, high], which may reach to the infinities, and none is NaN.

    `attains`, where it is known: among the elements along the loop `along` some have just this value.
    """

    low: float
    high: float
    attains: float | None = None
    along: Var | None = None

    @property
    def is_zero(self) -> bool:
        return self.low == 0.0 == self.high

    @property
    def magnitude(self) -> float:
        return max(abs(self.low), abs(self.high))
