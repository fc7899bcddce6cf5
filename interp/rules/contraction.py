"""dot_general and its relatives.

Floats of at most 32 bits are multiplied and summed in float64 and rounded once; integers are exact modulo 2**bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo import Op
from hlo.attributes import DotDimensions
from interp.numbers import Array, convert, is_complex, is_float, is_signed, narrow, widen
from interp.registry import rule

__all__ = ["contract", "matrix_product"]


def matrix_product(a: Array, b: Array, dtype: np.dtype[Any]) -> Array:
    """a @ b over the last two dimensions, batches broadcast, as `dtype`."""
    if dtype.kind == "b":
        return np.asarray(np.matmul(convert(a, dtype), convert(b, dtype)))
    if is_complex(dtype):
        return np.asarray(np.matmul(a.astype(np.complex128), b.astype(np.complex128)).astype(dtype))
    if is_float(dtype):
        return narrow(np.matmul(convert(a, np.dtype(np.float64)), convert(b, np.dtype(np.float64))), dtype)
    return _integer_product(convert(widen(a), dtype), convert(widen(b), dtype), dtype)


def _largest(x: Array) -> int:
    return max(abs(int(x.min())), abs(int(x.max()))) if x.size else 0


def _integer_product(a: Array, b: Array, dtype: np.dtype[Any]) -> Array:
    """Exact modulo 2**bits: in float64 where no sum can reach 2**53, else in 64-bit integers, which wrap around."""
    a, b = widen(a), widen(b)
    if _largest(a) * _largest(b) * a.shape[-1] < 2**53:
        exact = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
    else:
        wide = np.int64 if is_signed(dtype) else np.uint64
        exact = np.matmul(a.astype(wide), b.astype(wide))
    return convert(exact, dtype)


def contract(lhs: Array, rhs: Array, dims: DotDimensions, dtype: np.dtype[Any]) -> Array:
    """out[batch, free lhs, free rhs] = sum over contracting dimensions of lhs * rhs."""
    left_free, right_free = dims.free("lhs", lhs.ndim), dims.free("rhs", rhs.ndim)
    a = _as_matrices(lhs, dims.lhs_batching, left_free, dims.lhs_contracting)
    b = _as_matrices(rhs, dims.rhs_batching, dims.rhs_contracting, right_free)
    shape = [lhs.shape[i] for i in (*dims.lhs_batching, *left_free)] + [rhs.shape[j] for j in right_free]
    return matrix_product(a, b, dtype).reshape(shape)


def _as_matrices(x: Array, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> Array:
    """`x` as [batch, rows, columns]."""
    sizes = [int(np.prod([x.shape[i] for i in group], dtype=np.int64)) for group in (batch, rows, columns)]
    return x.transpose((*batch, *rows, *columns)).reshape(sizes)


@rule("stablehlo.dot_general", dequantizes=True)
def dot_general(ctx: Any, op: Op, lhs: Array, rhs: Array) -> Array:
    return contract(lhs, rhs, op.attr("dot_dimension_numbers"), result_dtype(op))


def result_dtype(op: Op) -> np.dtype[Any]:
    """The type an op computes in: its result's, or what a quantized result expresses."""
    element = op.results[0].tensor.element
    return getattr(element, "expressed", element).dtype
