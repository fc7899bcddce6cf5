"""What a call is given: an array for each argument, of its shape and type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from codegen.call.program.layout import LINE_BYTES
from codegen.call.quick import address_of
from hlo.errors import TilewrightError
from hlo.module import Value
from hlo.types import TensorType
from tiling import Plan

__all__ = ["ArgumentError", "taken", "without_arrays", "writeable"]


class ArgumentError(TilewrightError):
    """An array that does not fit the program's argument."""


def taken(wanted: Sequence[Value], arrays: Sequence[Any]) -> list[Any]:
    """The arrays as kernels read them, C-contiguous and aligned; what is no tensor stays as it is, for the evaluator.

    Raises ArgumentError for another number of arrays, a masked array, and one of another shape or type.
    """
    if len(arrays) != len(wanted):
        raise ArgumentError(f"expected {len(wanted)} array{'s' * (len(wanted) != 1)}, found {len(arrays)}")
    given = []
    for k, (v, a) in enumerate(zip(wanted, arrays, strict=True)):
        t, label = v.type, f"argument {k}{f' (%{v.name})' if v.name else ''}"
        if not isinstance(t, TensorType):
            given.append(a)  # a token or a tuple: the evaluator runs such a program whole, and checks it
            continue
        if isinstance(a, np.ma.MaskedArray):
            raise ArgumentError(
                f"{label}: expected an array, found a masked one, whose mask would be lost; give its `filled()` values, or"
                " the mask as an argument of its own"
            )
        a = np.asarray(a)
        same = len(t.shape) == a.ndim and all(n is None or n == m for n, m in zip(t.shape, a.shape, strict=True))
        if not same or a.dtype != t.dtype:
            raise ArgumentError(f"{label}: expected {t}, found an array of shape {list(a.shape)}, {a.dtype}")
        given.append(np.require(a, requirements=["C", "A"]))
    return given


def writeable(given: Sequence[np.ndarray], wanted: Iterable[int]) -> set[int]:
    """Which of the arguments `wanted` a call may write over: at the start of a cache line, as kernels were told, and apart."""
    places = sorted((address_of(a), a.nbytes, k) for k, a in enumerate(given))
    shared: set[int] = set()
    end, last = -1, -1  # of what lies furthest so far
    for at, size_bytes, k in places:
        if at < end:
            shared |= {k, last}
        if at + size_bytes > end:
            end, last = at + size_bytes, k
    return {k for k in wanted if k not in shared and given[k].flags.writeable and address_of(given[k]) % LINE_BYTES == 0}


def without_arrays(made: Plan) -> str | None:
    """Why the evaluator must run the whole program, or None: values that are no arrays of a fixed shape pass between its ops."""
    for op in made.program.ops:
        for v in (*op.operands, *op.results):
            if not isinstance(v.type, TensorType):
                return f"{op.name} has a value of type {v.type}"
            if not v.type.is_static:
                return f"{op.name} has a value whose shape is known only at run time, {v.type}"
    for v in made.program.arguments:
        if not isinstance(v.type, TensorType) or not v.type.is_static:
            return f"an argument of type {v.type}"
    return None
