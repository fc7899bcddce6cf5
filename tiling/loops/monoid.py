"""What is known of a fold that may be taken in parts and in any order, and how it was shown."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from hlo.module import Block

__all__ = ["Monoid", "Shown"]


class Shown(enum.Enum):
    """How it was shown that a fold's body is associative and commutative."""

    TABLE = "the table of scalar functions"
    CASES = "all cases of a body that compares and chooses"
    ALGEBRA = "an identity of exact arithmetic"


@dataclass(frozen=True)
class Monoid:
    """An associative and commutative fold with its initial value; floats are summed and multiplied as if exact.

    `body` puts results of parts together (None for a sum of products); `function` is the scalar function that it is of its two
    arguments, where it is one. `starts_parts`: each part may start from the initial value. `is_neutral`: folding the initial
    value in changes nothing, so elements that equal it may be left out. `for_nan`: all of it holds for NaN, too.
    """

    body: Block | None
    function: str | None
    shown: Shown
    starts_parts: bool
    is_neutral: bool
    for_nan: bool = True
