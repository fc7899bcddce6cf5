"""Bodies of several ops that fold like one associative function.

    is_monoid(f, e):   f(e, x) = x = f(x, e),   f(a, b) = f(b, a),   f(f(a, b), c) = f(a, f(b, c)) up to rounding

The specification of reduce and reduce_window leaves the order of folding open, and so asks body and initial value to form a
monoid. A body that breaks these laws on a few dozen numbers of every size is folded in the order in which it is written.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hlo.errors import Declined
from hlo.module import Block, DenseArray, Value
from hlo.registry import Elementwise, Literal
from hlo.types import ElementType
from tiling.elements.scalar_functions import on_arrays

__all__ = ["is_monoid"]

TOLERANCE = 1e-9


def is_monoid(body: Block, start: float) -> bool:
    """Whether a body of two floats folds in any order from `start`, as far as samples tell; False for other types."""
    kinds = [v.tensor.element for v in (*body.arguments, *body.results)]
    if len(body.arguments) != 2 or any(not isinstance(e, ElementType) or e.name not in ("f32", "f64") for e in kinds):
        return False
    x, y, z = _samples()
    with np.errstate(all="ignore"):
        pair, later = _value(body, x, y), _value(body, y, z)
        if pair is None or later is None:
            return False
        e = np.float64(start)
        neutral = [_value(body, e, x), _value(body, x, e), x]
        left, right = _value(body, pair, z), _value(body, x, later)
        same = np.array_equal(neutral[0], x) and np.array_equal(neutral[1], x) and np.array_equal(_value(body, e, e), e)
        turned = np.allclose(pair, _value(body, y, x), TOLERANCE, 0)
        return bool(same and turned and np.allclose(left, right, TOLERANCE, TOLERANCE))


@cache
def _samples() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of every size and both signs, in three orders."""
    rng = np.random.default_rng(0)
    sizes = np.concatenate([rng.normal(size=40), rng.normal(size=40) * 10.0 ** rng.integers(-3, 3, 40), [0.0, 1.0, -1.0]])
    return sizes, rng.permutation(sizes), rng.permutation(sizes)


def _value(body: Block, a: Any, b: Any) -> Any:
    """body(a, b) in double precision, or None where it has another op."""
    known: dict[Value, Any] = dict(zip(body.arguments, (a, b), strict=True))
    for op in body.ops[:-1]:
        semantics = op.definition.semantics
        if isinstance(semantics, Literal):
            dense: DenseArray = op.attr("value")
            known[op.results[0]] = dense.array.reshape(())[()]
            continue
        if not isinstance(semantics, Elementwise) or any(v not in known for v in op.operands):
            return None
        function = on_arrays(op, semantics.function)
        if isinstance(function, Declined):
            return None
        known[op.results[0]] = function(*(known[v] for v in op.operands))
    return known.get(body.results[0])
