"""Folds over processes: which bodies MPI combines itself, and a kernel for all others.

MPI combines where every order gives the same bits: integers and booleans. All else is folded in the order of the group,
neighbours first, as the evaluator pairs them: by a kernel made of the body, or, for plain sums, by NumPy's addition. So every
process has the evaluator's bits, and processes that branch by a sum of floats take the same branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from hlo.errors import Declined
from hlo.module import Block, Function, Module, Op
from hlo.registry import definition
from hlo.types import ElementType, TensorType
from tiling.elements.folds import combined_function

__all__ = ["Compile", "fold_module", "folded", "is_plain_sum", "mpi_operator"]

Compile = Callable[[Module], Callable[..., Any]]
"""From a module to a function of arrays."""

_OF_INTEGERS = {
    "add": MPI.SUM, "multiply": MPI.PROD, "maximum": MPI.MAX, "minimum": MPI.MIN,
    "and": MPI.BAND, "or": MPI.BOR, "xor": MPI.BXOR,
}  # fmt: skip
_OF_BOOLEANS = {"add": MPI.LOR, "maximum": MPI.LOR, "or": MPI.LOR, "multiply": MPI.LAND, "minimum": MPI.LAND, "and": MPI.LAND,
                "xor": MPI.LXOR}  # fmt: skip
_WIDE_FLOATS = frozenset({"f32", "f64", "complex<f32>", "complex<f64>"})


def mpi_operator(body: Block, element: ElementType) -> MPI.Op | None:
    """MPI's operator that combines elements as a body does; None where a kernel has to."""
    function = combined_function(body)
    inner = body.arguments[0].tensor.element
    if function is None or inner != element or not isinstance(inner, ElementType):
        return None
    if np.dtype(element.dtype).kind == "b":
        return _OF_BOOLEANS.get(function)
    if np.dtype(element.dtype).kind in "iu" and np.dtype(element.dtype).isbuiltin == 1:
        return _OF_INTEGERS.get(function)
    return None


def is_plain_sum(body: Block, element: ElementType) -> bool:
    """Whether a body adds floats as NumPy does."""
    same = body.arguments[0].tensor.element == element
    return same and combined_function(body) == "add" and str(element) in _WIDE_FLOATS


def fold_module(op: Op, size: int) -> Module | Declined:
    """A module (left, right) -> the op's body of both, for `size` elements of the body's type.

    Declined for a body on values that are no plain numbers.
    """
    body = op.regions[0]
    inner, given = body.arguments[0].type, op.operands[0].type
    if not isinstance(inner, TensorType) or not isinstance(given, TensorType):
        return Declined(f"{op.name} of {given}")
    if not isinstance(inner.element, ElementType) or not isinstance(given.element, ElementType):
        return Declined(f"{op.name} of quantized elements")
    whole = TensorType((size,), inner.element)
    block = Block([whole, whole], ["left", "right"])
    combine = Op(definition("stablehlo.map"), block.arguments, {"dimensions": (0,)}, [body], [whole])
    block.ops += [combine, Op(definition("func.return"), combine.results)]
    return Module({"main": Function("main", block, result_types=(whole,))})


def folded(parts: Sequence[np.ndarray], combine: Callable[..., Any], dtype: np.dtype[Any]) -> np.ndarray:
    """parts[0], parts[1], … combined: neighbours, then neighbours of what came out, until one is left.

    Of one part it is the part itself; `combine` may write into its first argument where `parts` have the type `dtype`.

    >>> [int(folded([np.array([k]) for k in (1, 2, 4)], lambda a, b: (a - b,), np.dtype(int))[0])]
    [-5]
    """
    rows = [p.astype(dtype, copy=False) for p in parts]
    while len(rows) > 1:
        pairs = [combine(a, b)[0] for a, b in zip(rows[0::2], rows[1::2], strict=False)]
        rows = pairs + rows[len(rows) - len(rows) % 2 :]
    return rows[0]
