"""What a fold's body is: an associative scalar function, and which initial values change nothing."""

from __future__ import annotations

import numpy as np

from hlo.module import Block, Op
from hlo.registry import Elementwise, Fold
from hlo.types import ElementType
from tiling.elements.scalar_functions import Neutral, scalar_function

__all__ = ["combined_function", "combined_function_of", "has_own_body", "is_idempotent", "is_neutral"]


def combined_function(body: Block) -> str | None:
    """The scalar function of a body that is `return f(a, b)` with an associative f, on its own two arguments."""
    return combined_function_of(body, 0) if len(body.arguments) == 2 and len(body.ops) == 2 else None


def combined_function_of(body: Block, result: int) -> str | None:
    """The associative scalar function f by which a body folds one of its results: f(a, b) of the result's own two arguments."""
    count = len(body.results)
    op = body.results[result].op
    semantics = None if op is None else op.definition.semantics
    if op is None or not isinstance(semantics, Elementwise) or not scalar_function(semantics.function).is_associative:
        return None
    reads_both = len(op.operands) == 2 and set(op.operands) == {body.arguments[result], body.arguments[count + result]}
    return semantics.function if reads_both and len(op.results) == 1 else None


def has_own_body(op: Op) -> bool:
    """Whether an op folds by a body that is no associative scalar function: no vector instruction folds by it."""
    return isinstance(op.definition.semantics, Fold) and combined_function(op.regions[0]) is None


def is_neutral(function: str, value: np.generic, element: ElementType) -> bool:
    """True when f(a, value) = a for every a that a fold from `value` reaches (so +0 is neutral for a sum from +0)."""
    neutral = scalar_function(function).neutral
    wanted = neutral.of(element) if isinstance(neutral, Neutral) else None
    return wanted is not None and value.item() == wanted


def is_idempotent(function: str) -> bool:
    """True when f(a, a) = a: each part of a fold by f may start from any initial value."""
    neutral = scalar_function(function).neutral
    return isinstance(neutral, Neutral) and neutral.is_idempotent
