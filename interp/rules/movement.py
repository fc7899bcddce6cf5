"""Ops that place elements: constants, iota, broadcasts, transposes, reshapes, slices, concatenation, padding.

Where a result is a NumPy view, it is left one; nothing writes into values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo import DenseArray, Op
from interp.numbers import Array, convert
from interp.quantization import expressed_dtype
from interp.registry import rule

__all__ = ["counted", "padded", "spread"]


@rule("stablehlo.constant", "chlo.constant", view=True)
def constant(ctx: Any, op: Op) -> Array:
    value: DenseArray = op.attr("value")
    return value.array


def counted(shape: Sequence[int], axis: int, dtype: np.dtype[Any]) -> Array:
    """out[i] = i[axis], converted to `dtype`."""
    along = np.arange(shape[axis], dtype=np.int64)
    column = convert(along, dtype).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.broadcast_to(column, shape)


@rule("stablehlo.iota", view=True, dequantizes=True)
def iota(ctx: Any, op: Op) -> Array:
    return counted(op.results[0].shape, op.attr("iota_dimension"), expressed_dtype(op.results[0].tensor))


def spread(x: Array, dimensions: Sequence[int], shape: Sequence[int]) -> Array:
    """out[i] = x[i[dimensions[0]], i[dimensions[1]], …], with 0 along x's dimensions of size 1."""
    order = sorted(range(x.ndim), key=lambda k: dimensions[k])
    lined_up = [1] * len(shape)
    for k in order:
        lined_up[dimensions[k]] = x.shape[k]
    return np.broadcast_to(x.transpose(order).reshape(lined_up), tuple(shape))


@rule("stablehlo.broadcast_in_dim", view=True)
def broadcast_in_dim(ctx: Any, op: Op, x: Array) -> Array:
    return spread(x, op.attr("broadcast_dimensions"), op.results[0].shape)


@rule("stablehlo.broadcast", view=True)
def broadcast(ctx: Any, op: Op, x: Array) -> Array:
    """New dimensions of `broadcast_sizes` in front."""
    return np.broadcast_to(x, (*op.attr("broadcast_sizes"), *x.shape))


@rule("stablehlo.transpose", view=True)
def transpose(ctx: Any, op: Op, x: Array) -> Array:
    return x.transpose(op.attr("permutation"))


@rule("stablehlo.reshape", view=True)
def reshape(ctx: Any, op: Op, x: Array) -> Array:
    shape = op.results[0].tensor.shape
    unknown = [k for k, n in enumerate(shape) if n is None]
    if len(unknown) > 1:
        raise ctx.error(op, f"cannot tell the dimensions of {op.results[0].type} from shape {list(x.shape)}")
    return reshaped(ctx, op, x, [-1 if n is None else n for n in shape])


def reshaped(ctx: Any, op: Op, x: Array, shape: Sequence[int]) -> Array:
    """`x` in row-major order under another shape. Raises ExecutionError when the sizes differ."""
    try:
        return x.reshape(shape)
    except ValueError:
        raise ctx.error(op, f"expected {x.size} elements, found the shape {list(shape)}") from None


@rule("stablehlo.slice", view=True)
def slice_(ctx: Any, op: Op, x: Array) -> Array:
    spans = zip(op.attr("start_indices"), op.attr("limit_indices"), op.attr("strides"), strict=True)
    return x[tuple(slice(lo, hi, step) for lo, hi, step in spans)]


@rule("stablehlo.reverse", view=True)
def reverse(ctx: Any, op: Op, x: Array) -> Array:
    return np.flip(x, op.attr("dimensions"))


@rule("stablehlo.concatenate")
def concatenate(ctx: Any, op: Op, *inputs: Array) -> Array:
    return np.concatenate(inputs, axis=op.attr("dimension"))


def padded(x: Array, value: Array, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Array:
    """x with `interior` copies of `value` between neighbours and `low`, `high` at the ends (negative: cut off)."""
    for axis, (lo, hi, inner) in enumerate(zip(low, high, interior, strict=True)):
        if lo == hi == inner == 0:
            continue
        n = x.shape[axis]
        length = lo + n + max(n - 1, 0) * inner + hi
        out = np.full((*x.shape[:axis], length, *x.shape[axis + 1 :]), value, dtype=x.dtype)
        places = lo + np.arange(n) * (inner + 1)
        kept = (places >= 0) & (places < length)
        if kept.any():
            first, count = int(np.argmax(kept)), int(kept.sum())
            before = (slice(None),) * axis
            start = int(places[first])
            target = slice(start, start + (count - 1) * (inner + 1) + 1, inner + 1)
            out[(*before, target)] = x[(*before, slice(first, first + count))]
        x = out
    return x


@rule("stablehlo.pad")
def pad(ctx: Any, op: Op, x: Array, value: Array) -> Array:
    return padded(x, value, op.attr("edge_padding_low"), op.attr("edge_padding_high"), op.attr("interior_padding"))
