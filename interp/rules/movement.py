"""Ops that place elements: constants, iota, broadcasts, transposes, reshapes, slices, concatenation, padding.

Where a result is a NumPy view, it is left one; nothing writes into values.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
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
    shape, axis = op.results[0].shape, op.attr("iota_dimension")
    ctx.reserve(op, 16 * shape[axis])
    return counted(shape, axis, expressed_dtype(op.results[0].tensor))


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
    if not x.flags.c_contiguous and x.size > 1:
        if not any(x.strides):  # one element everywhere
            x = np.broadcast_to(x[(0,) * x.ndim], (x.size,))
            if -1 not in shape and prod(shape) == x.size:
                return np.broadcast_to(x[0], tuple(shape))
        ctx.reserve(op, x.nbytes)
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


def padded_lengths(shape: Sequence[int], low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> list[int]:
    """The sizes of what `padded` gives: 0 where more is cut off than there is, as around windows (then there are none)."""
    return [max(0, lo + n + max(n - 1, 0) * i + hi) for n, lo, hi, i in zip(shape, low, high, interior, strict=True)]


def padded(x: Array, value: Array, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Array:
    """x with `interior` copies of `value` between neighbours and `low`, `high` at the ends (negative: cut off)."""
    lengths = padded_lengths(x.shape, low, high, interior)
    # Dimensions that shrink come first, so that nothing on the way is larger than the result or the operand.
    for axis in sorted(range(x.ndim), key=lambda k: lengths[k] / max(x.shape[k], 1)):
        lo, hi, inner, n, length = low[axis], high[axis], interior[axis], x.shape[axis], lengths[axis]
        if lo == hi == inner == 0:
            continue
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
