"""Ops whose shapes are known at run time only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo import Op
from interp.numbers import Array
from interp.quantization import expressed_dtype
from interp.registry import rule
from interp.rules.movement import counted, padded, reshaped, spread

__all__: list[str] = []


def sizes_of(ctx: Any, op: Op, shape: Array) -> list[int]:
    """A shape operand as integers. Raises ExecutionError for a negative size."""
    sizes = [int(n) for n in np.asarray(shape).reshape(-1)]
    if any(n < 0 for n in sizes):
        raise ctx.error(op, f"expected sizes of 0 or more, found {sizes}")
    return sizes


def claim(ctx: Any, op: Op, sizes: Sequence[int], itemsize: int) -> None:
    """Asks for a result of these sizes before it is made."""
    total = itemsize
    for n in sizes:
        total *= n
    ctx.reserve(op, total)


@rule("stablehlo.dynamic_iota", view=True, dequantizes=True)
def dynamic_iota(ctx: Any, op: Op, shape: Array) -> Array:
    sizes, axis = sizes_of(ctx, op, shape), op.attr("iota_dimension")
    ctx.reserve(op, 16 * sizes[axis])
    return counted(sizes, axis, expressed_dtype(op.results[0].tensor))


@rule("stablehlo.dynamic_broadcast_in_dim", view=True)
def dynamic_broadcast_in_dim(ctx: Any, op: Op, x: Array, shape: Array) -> Array:
    sizes, dims = sizes_of(ctx, op, shape), op.attr("broadcast_dimensions")
    for k, n in zip(dims, x.shape, strict=True):
        if n not in (1, sizes[k]):
            raise ctx.error(op, f"expected dimensions of 1 or of {sizes} at {list(dims)}, found {list(x.shape)}")
    return spread(x, dims, sizes)


@rule("stablehlo.dynamic_reshape", view=True)
def dynamic_reshape(ctx: Any, op: Op, x: Array, shape: Array) -> Array:
    return reshaped(ctx, op, x, sizes_of(ctx, op, shape))


@rule("stablehlo.dynamic_pad")
def dynamic_pad(ctx: Any, op: Op, x: Array, value: Array, low: Array, high: Array, interior: Array) -> Array:
    spans = [[int(n) for n in a] for a in (low, high, interior)]
    lengths = [lo + n + max(n - 1, 0) * i + hi for n, lo, hi, i in zip(x.shape, *spans, strict=True)]
    if any(n < 0 for n in (*lengths, *spans[2])):
        raise ctx.error(op, f"expected sizes and interior padding of 0 or more, found {lengths} and {spans[2]}")
    claim(ctx, op, lengths, x.itemsize)
    return padded(x, value, *spans)


@rule("stablehlo.real_dynamic_slice", view=True)
def real_dynamic_slice(ctx: Any, op: Op, x: Array, start: Array, limit: Array, strides: Array) -> Array:
    spans = [(int(a), int(b), int(s)) for a, b, s in zip(start, limit, strides, strict=True)]
    for (lo, hi, step), n in zip(spans, x.shape, strict=True):
        if not 0 <= lo <= hi <= n or step <= 0:
            raise ctx.error(op, f"expected 0 <= start <= limit <= {n} and a positive stride, found [{lo}:{hi}:{step}]")
    return x[tuple(slice(*span) for span in spans)]


@rule("stablehlo.get_dimension_size")
def get_dimension_size(ctx: Any, op: Op, x: Array) -> Array:
    return np.array(x.shape[op.attr("dimension")], np.int32)


@rule("stablehlo.set_dimension_size", view=True)
def set_dimension_size(ctx: Any, op: Op, x: Array, size: Array) -> Array:
    """The first `size` elements along `dimension`."""
    axis, n = op.attr("dimension"), int(size)
    if not 0 <= n <= x.shape[axis]:
        raise ctx.error(op, f"expected a size of 0 to {x.shape[axis]}, found {n}")
    return np.asarray(x[(slice(None),) * axis + (slice(0, n),)])
