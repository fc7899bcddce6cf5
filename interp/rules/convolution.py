"""convolution and dynamic_conv."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from hlo import Op
from hlo.attributes import ConvDimensions
from hlo.blas import matmul
from interp.numbers import Array, convert, is_complex, is_float, narrow, widen
from interp.registry import rule
from interp.rules.contraction import product, result_dtype, working
from interp.rules.movement import padded, padded_lengths
from interp.rules.reduction import FEW_TERMS

__all__: list[str] = []


def window_count(size: int, window: int, stride: int) -> int:
    """How many windows of `window` elements, `stride` apart, lie within `size` elements."""
    return 0 if size == 0 or window > size else (size - window) // stride + 1


@rule("stablehlo.convolution", dequantizes=True)
def convolution(ctx: Any, op: Op, lhs: Array, rhs: Array) -> Array:
    return convolved(ctx, op, lhs, rhs, op.attr("padding"))


@rule("stablehlo.dynamic_conv", dequantizes=True)
def dynamic_conv(ctx: Any, op: Op, lhs: Array, rhs: Array, padding: Array) -> Array:
    return convolved(ctx, op, lhs, rhs, [tuple(int(n) for n in p) for p in padding])


def convolved(ctx: Any, op: Op, lhs: Array, rhs: Array, padding: Sequence[Sequence[int]]) -> Array:
    """out[n, y, o] = sum over k, c of lhs[n, y * stride + k * dilation, c] * rhs[k, c, o], lhs padded and spread.

    Groups of features, or of the batch, meet groups of output features. Summed over kernel positions, or made output
    position by output position, whichever are fewer.
    """
    d: ConvDimensions = op.attr("dimension_numbers")
    features, batches = op.attr("feature_group_count"), op.attr("batch_group_count")
    spatial = len(d.input_spatial)
    dtype = result_dtype(op)
    x = lhs.transpose((d.input_batch, *d.input_spatial, d.input_feature))
    kernel = rhs.transpose((*d.kernel_spatial, d.kernel_input_feature, d.kernel_output_feature))
    kernel = np.flip(kernel, tuple(k for k, r in enumerate(op.attr("window_reversal")) if r))
    sizes, strides, dilations = kernel.shape[:spatial], op.attr("window_strides"), op.attr("rhs_dilation")
    low, high = [p[0] for p in padding], [p[1] for p in padding]
    interior = [n - 1 for n in op.attr("lhs_dilation")]
    lengths = padded_lengths(x.shape[1:-1], low, high, interior)
    ctx.reserve(op, 16 * (prod(lengths) * x.shape[0] * x.shape[-1] + kernel.size))
    x = padded(x, np.zeros((), x.dtype), [0, *low, 0], [0, *high, 0], [0, *interior, 0])
    spans = [(n - 1) * k + 1 if n else 0 for n, k in zip(sizes, dilations, strict=True)]
    out_sizes = [window_count(n, m, s) for n, m, s in zip(x.shape[1:-1], spans, strides, strict=True)]
    groups = features * batches
    # [groups, batch, spatial…, features] and [groups, kernel spatial…, features, output features]
    if batches > 1:
        x = x.reshape(batches, x.shape[0] // batches, *x.shape[1:])
    else:
        x = np.moveaxis(x.reshape(*x.shape[:-1], features, x.shape[-1] // features), -2, 0)
    kernel = np.moveaxis(kernel.reshape(*kernel.shape[:-1], groups, kernel.shape[-1] // groups), -2, 0)
    terms = prod(sizes) * x.shape[-1]
    if terms <= FEW_TERMS and (is_float(dtype) or is_complex(dtype)):  # as in dot_general
        left, right = widen(convert(x, dtype)), widen(convert(kernel, dtype))
        out = narrow(_sums(ctx, op, left, right, out_sizes, strides, dilations, one_by_one=True), dtype)
    else:
        w = working(x, kernel, dtype, terms, ctx.wide)
        out = w.finish(_sums(ctx, op, w.left, w.right, out_sizes, strides, dilations))
    # [groups, batch, spatial…, output features / groups] -> [batch, spatial…, output features]
    out = np.moveaxis(out, 0, -2)
    out = out.reshape(*out.shape[:-2], out.shape[-2] * out.shape[-1])
    order = (d.output_batch, *d.output_spatial, d.output_feature)
    return out.transpose(np.argsort(order))


def _sums(
    ctx: Any,
    op: Op,
    x: Array,
    kernel: Array,
    out_sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    one_by_one: bool = False,
) -> Array:
    groups, batch = x.shape[:2]
    sizes, channels, features = kernel.shape[1:-2], kernel.shape[-2], kernel.shape[-1]
    out = np.zeros((groups, batch, *out_sizes, features), x.dtype)
    if not out.size or not kernel.size:
        return out
    everything = (slice(None), slice(None))
    if one_by_one or prod(sizes) <= prod(out_sizes):
        for k in np.ndindex(*sizes):
            ctx.step(op)
            part = x[
                (
                    *everything,
                    *(
                        slice(i * d, i * d + (n - 1) * s + 1, s)
                        for i, d, n, s in zip(k, dilations, out_sizes, strides, strict=True)
                    ),
                )
            ]
            rows, columns = part.reshape(groups, -1, channels), kernel[(slice(None), *k)]
            if one_by_one:
                flat = out.reshape(groups, -1, features)
                for c in range(channels):
                    flat += product(rows[..., c, None], columns[:, c, None, :])
            else:
                out += matmul(rows, columns).reshape(out.shape)
        return out
    flat = kernel.reshape(groups, -1, features)
    for y in np.ndindex(*out_sizes):
        ctx.step(op)
        window = x[
            (
                *everything,
                *(slice(i * s, i * s + (n - 1) * d + 1, d) for i, s, n, d in zip(y, strides, sizes, dilations, strict=True)),
            )
        ]
        out[(*everything, *y)] = matmul(window.reshape(groups, batch, -1), flat)
    return out
