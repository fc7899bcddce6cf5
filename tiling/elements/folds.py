"""What a fold's body is: an associative scalar function, and which initial values change nothing."""

from __future__ import annotations

import numpy as np

from hlo.module import Block
from hlo.registry import Elementwise
from hlo.types import ElementType, default_storage_range

__all__ = ["ASSOCIATIVE", "combined_function", "is_neutral"]

ASSOCIATIVE = frozenset({"add", "multiply", "maximum", "minimum", "and", "or"})


def combined_function(body: Block) -> str | None:
    """The scalar function of a body that is `return f(a, b)` with an associative f, on its own two arguments."""
    if len(body.ops) != 2 or len(body.arguments) != 2:
        return None
    op = body.ops[0]
    semantics = op.definition.semantics
    if not isinstance(semantics, Elementwise) or semantics.function not in ASSOCIATIVE:
        return None
    reads_both = set(op.operands) == set(body.arguments)
    return semantics.function if reads_both and body.results == op.results else None


def is_neutral(function: str, value: np.generic, element: ElementType) -> bool:
    """True when f(a, value) = a for every a that a fold from `value` reaches (so +0 is neutral for a sum from +0)."""
    if element.is_boolean:
        return function in ("and", "or") and bool(value) is (function == "and")
    if element.is_float:
        wanted = {"add": 0.0, "multiply": 1.0, "maximum": float("-inf"), "minimum": float("inf")}
        return function in wanted and float(value) == wanted[function]
    if not element.is_integer:
        return False
    low, high = default_storage_range(element)
    ones = -1 if low < 0 else high
    exact = {"add": 0, "multiply": 1, "maximum": low, "minimum": high, "and": ones, "or": 0}
    return int(value) == exact[function]
