"""Sets of types: what an operand or a result may be, in words and as a predicate."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import isfinite
from typing import Any

import ml_dtypes

from hlo.types import ELEMENT_TYPES, ElementKind, ElementType, QuantizedType, TensorType, TokenType, TupleType, Type

__all__ = [
    "ANY",
    "ANY_TYPE",
    "DIMENSIONS",
    "TENSOR",
    "TENSOR_OR_TOKEN",
    "TOKEN",
    "TUPLE",
    "TYPE_SETS",
    "B",
    "C",
    "F",
    "S",
    "TypeSet",
    "U",
    "quantized_problem",
    "tensors",
]

B, S, U, F, C = (ElementKind.BOOLEAN, ElementKind.SIGNED, ElementKind.UNSIGNED, ElementKind.FLOAT, ElementKind.COMPLEX)
ANY = (B, S, U, F, C)


class TypeSet(str):
    """A description that can decide: `description.has(type)`."""

    has: Callable[[Type], bool]

    def __new__(cls, text: str, has: Callable[[Type], bool]) -> TypeSet:
        made = super().__new__(cls, text)
        made.has = has
        return made


@cache
def _finite_range(name: str) -> tuple[float, float]:
    """The largest and the smallest positive normal number of a floating-point type."""
    info: Any = ml_dtypes.finfo(ELEMENT_TYPES[name].dtype)  # type: ignore[no-untyped-call]
    return float(info.max), float(info.smallest_normal)


def quantized_problem(q: QuantizedType, shape: tuple[int | None, ...]) -> str | None:
    """What is wrong with a quantized element type in a tensor of that shape, with the constraint's label; None when nothing is.

    Specification: quantized element types, C3 to C13.
    """
    lo, hi = q.storage_min, q.storage_max
    if not q.storage.is_integer:
        return "the storage type must be an integer type [C1]"
    if q.storage.bits > 32:
        return f"the storage type must have at most 32 bits, found {q.storage} [C1]"
    if any(not isfinite(s) or s <= 0 for s in q.scales):
        return "scales must be positive and finite [C5]"
    largest, smallest = _finite_range(q.expressed.name)
    if any(not smallest <= s <= largest for s in q.scales):
        return f"scales must be numbers of {q.expressed} [C4]"
    if any(not lo <= z <= hi for z in q.zero_points):
        return f"zero points must lie within [{lo}, {hi}] [C7]"
    if q.grid is not None:
        return _blocks_problem(q, q.grid, shape)
    if q.axis is not None:
        if not 0 <= q.axis < len(shape):
            return f"quantization dimension {q.axis} must be a dimension of the tensor [C12]"
        n = shape[q.axis]
        if n is not None and n != len(q.scales):
            return f"expected {n} scales, one for each element of dimension {q.axis}, found {len(q.scales)} [C13]"
    return None


def _blocks_problem(q: QuantizedType, grid: tuple[int, ...], shape: tuple[int | None, ...]) -> str | None:
    """A dimension's size is that of its blocks times their number; a dimension without a block size is one block."""
    if len(grid) != len(shape):
        return f"expected scales nested {len(shape)} deep, one level for each dimension, found {len(grid)}"
    sizes = dict(q.blocks)
    for a in sizes:
        if a >= len(shape):
            return f"quantization dimension {a} must be a dimension of the tensor"
    for i, (n, count) in enumerate(zip(shape, grid, strict=True)):
        if i not in sizes and count != 1:
            return f"expected one scale along dimension {i}, which has no block size, found {count}"
        if i in sizes and n is not None and n != sizes[i] * count:
            return f"expected {count} blocks of {sizes[i]} in dimension {i}, found a size of {n}"
    return None


def _is_static_enough(t: TensorType) -> bool:
    unknown = [i for i, n in enumerate(t.shape) if n is None]
    if not unknown:
        return True
    return len(unknown) == 1 and t.bounds is not None and len(t.bounds) == len(t.shape) and t.bounds[unknown[0]] is not None


def tensors(
    *kinds: ElementKind, quantized: str = "", rank: int | None = None, index: bool = False, static: bool = False
) -> TypeSet:
    """Ranked tensors of these element kinds; `quantized` is "", "per-tensor", "any" (per tensor or along an axis) or "block-wise"
    (those and by blocks); `rank` fixes the rank. `static` asks for known dimensions, but for one that is bounded."""
    allowed = frozenset((*kinds, ElementKind.INDEX) if index else kinds)
    if set(kinds) == set(ANY):
        names = ["any kind"]
    elif {S, U} <= set(kinds):
        names = ["integer", *(k.value for k in kinds if k not in (S, U))]
    else:
        names = [k.value for k in kinds]
    what = (
        ("" if rank is None else f"{rank}-dimensional ")
        + "tensor"
        + (" of " + " or ".join(names) if names != ["any kind"] else "")
    )
    if quantized:
        more = {"any": "quantized", "block-wise": "quantized (also by blocks)"}
        what += " or " + more.get(quantized, "per-tensor quantized")

    def has(t: Type) -> bool:
        if not isinstance(t, TensorType) or (rank is not None and len(t.shape) != rank):
            return False
        if static and not _is_static_enough(t):
            return False
        e = t.element
        if isinstance(e, ElementType):
            return e.kind in allowed
        if not quantized or (quantized == "per-tensor" and e.axis is not None) or (quantized != "block-wise" and e.is_blockwise):
            return False
        return quantized_problem(e, t.shape) is None

    return TypeSet(what, has)


TENSOR = tensors(*ANY, quantized="any")
TOKEN = TypeSet("token", lambda t: isinstance(t, TokenType))
TUPLE = TypeSet("tuple", lambda t: isinstance(t, TupleType))
ANY_TYPE = TypeSet("any", lambda t: True)
TENSOR_OR_TOKEN = TypeSet("tensor or token", lambda t: isinstance(t, TokenType) or TENSOR.has(t))
DIMENSIONS = tensors(S, U, rank=1, index=True, static=True)

TYPE_SETS: dict[str, TypeSet] = {
    "any": ANY_TYPE,
    "tensor": TENSOR,
    "0-dimensional tensor": tensors(*ANY, quantized="per-tensor", rank=0),
    "tensor of boolean": tensors(B),
}
"""Sets by their plain description."""
