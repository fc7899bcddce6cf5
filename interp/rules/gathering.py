"""gather and the slices whose place is known at run time only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo import Op
from hlo.attributes import GatherDimensions
from interp.numbers import Array
from interp.registry import rule

__all__ = ["clamped_starts", "gathered"]


def clamped(start: Array, most: int) -> Array:
    """Start indices as int64 in [0, most]."""
    if start.dtype == np.uint64:
        start = np.minimum(start, np.uint64(2**62))
    return np.clip(start.astype(np.int64), 0, most)


def gathered(x: Array, indices: Array, d: GatherDimensions, sizes: Sequence[int]) -> Array:
    """Slices of `x` of `sizes`, one for each index vector, which is moved to where the slice fits into `x`."""
    has_vectors = d.index_vector_dim < indices.ndim
    vectors = np.moveaxis(indices, d.index_vector_dim, -1) if has_vectors else indices[..., None]
    batch_shape = vectors.shape[:-1]
    offsets = [k for k in range(x.ndim) if k not in d.collapsed_slice_dims and k not in d.operand_batching_dims]
    rank = len(batch_shape) + len(offsets)
    batch_axes = [k for k in range(rank) if k not in d.offset_dims]

    def placed(values: Array, axes: Sequence[int]) -> Array:
        shape = [1] * rank
        for k, n in zip(axes, values.shape, strict=True):
            shape[k] = n
        return values.reshape(shape)

    parts: list[Array] = []
    for axis, n in enumerate(x.shape):
        at: Array = np.zeros((1,) * rank, np.int64)
        if axis in d.start_index_map:
            start = clamped(vectors[..., d.start_index_map.index(axis)], n - sizes[axis])
            at = at + placed(start, batch_axes)
        if axis in d.operand_batching_dims:
            batch = d.start_indices_batching_dims[d.operand_batching_dims.index(axis)]
            k = batch_axes[batch - (1 if batch > d.index_vector_dim else 0)]
            at = at + placed(np.arange(batch_shape[batch_axes.index(k)]), [k])
        elif axis in offsets:
            at = at + placed(np.arange(sizes[axis]), [d.offset_dims[offsets.index(axis)]])
        parts.append(at)
    shape = [0] * rank
    for k, m in zip(batch_axes, batch_shape, strict=True):
        shape[k] = m
    for k, axis in zip(d.offset_dims, offsets, strict=True):
        shape[k] = sizes[axis]
    if 0 in shape:
        return np.zeros(shape, x.dtype)
    return np.asarray(np.broadcast_to(x[tuple(parts)] if parts else x, tuple(shape)))


@rule("stablehlo.gather")
def gather(ctx: Any, op: Op, x: Array, indices: Array) -> Array:
    return gathered(x, indices, op.attr("dimension_numbers"), op.attr("slice_sizes"))


@rule("stablehlo.dynamic_gather")
def dynamic_gather(ctx: Any, op: Op, x: Array, indices: Array, sizes: Array) -> Array:
    return gathered(x, indices, op.attr("dimension_numbers"), [int(n) for n in sizes])


def clamped_starts(starts: Sequence[Array], shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The start indices moved to where a slice of `sizes` lies within `shape`."""
    return [int(clamped(s, n - m)) for s, n, m in zip(starts, shape, sizes, strict=True)]


@rule("stablehlo.dynamic_slice")
def dynamic_slice(ctx: Any, op: Op, x: Array, *starts: Array) -> Array:
    sizes = op.attr("slice_sizes")
    first = clamped_starts(starts, x.shape, sizes)
    return x[tuple(slice(s, s + n) for s, n in zip(first, sizes, strict=True))]


@rule("stablehlo.dynamic_update_slice")
def dynamic_update_slice(ctx: Any, op: Op, x: Array, update: Array, *starts: Array) -> Array:
    first = clamped_starts(starts, x.shape, update.shape)
    out = np.array(x)
    out[tuple(slice(s, s + n) for s, n in zip(first, update.shape, strict=True))] = update
    return out


@rule("stablehlo.torch_index_select")
def torch_index_select(ctx: Any, op: Op, x: Array, index: Array) -> Array:
    """x taken at `index` along `dim`, separately for each of the first `batch_dims` dimensions."""
    dim, batch = op.attr("dim"), op.attr("batch_dims")
    at = clamped(index, x.shape[dim] - 1)
    if not batch:
        return np.take(x, at.reshape(-1), axis=dim).reshape((*x.shape[:dim], *at.shape, *x.shape[dim + 1 :]))
    rows = [np.take(x[b], at[b].reshape(-1), axis=dim - batch) for b in np.ndindex(*x.shape[:batch])]
    shape = (*x.shape[:dim], *at.shape[batch:], *x.shape[dim + 1 :])
    return np.stack(rows).reshape(shape) if rows else np.zeros(shape, x.dtype)
