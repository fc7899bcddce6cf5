"""ATen's ops over windows in JAX's terms: convolutions, pools, and their gradients.

Arguments are ATen's, after the module `jax`; arrays are (batch, channels, *spatial), pools also take them without a batch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["WINDOWS"]


def _spread(value: Any, n: int) -> tuple[int, ...]:
    """One number for each spatial dimension: ATen also takes a single one for all."""
    values = tuple(value) if isinstance(value, Sequence) else (value,)
    return values * n if len(values) == 1 else values


# ---------------------------------------------------------------- convolutions


def _convolution(
    jax: Any, x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int,
) -> Any:  # fmt: skip
    """A transposed convolution is the gradient of another one by its input: strides become holes between its elements."""
    n = w.ndim - 2
    stride, padding, dilation, output_padding = (_spread(v, n) for v in (stride, padding, dilation, output_padding))
    pads = [(p, p) for p in padding]
    holes = (1,) * n
    if transposed:
        reach = [d * (k - 1) for d, k in zip(dilation, w.shape[2:], strict=True)]
        pads = [(r - p, r - p + o) for r, p, o in zip(reach, padding, output_padding, strict=True)]
        into, out = w.shape[:2]
        w = jax.numpy.flip(w, range(2, w.ndim)).reshape(groups, into // groups, out, *w.shape[2:])
        w = w.swapaxes(1, 2).reshape(groups * out, into // groups, *w.shape[3:])
        stride, holes = holes, stride
    letters = "".join("XYZ"[:n])
    y = jax.lax.conv_general_dilated(
        x, w, stride, pads, lhs_dilation=holes, rhs_dilation=dilation, feature_group_count=groups,
        dimension_numbers=("NC" + letters, "OI" + letters, "NC" + letters),
    )  # fmt: skip
    return y if bias is None else y + bias.reshape(-1, *(1,) * n)


def _convolution_backward(
    jax: Any, grad: Any, x: Any, w: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, output_mask: Sequence[bool],
) -> tuple[Any, Any, Any]:  # fmt: skip
    def forward(x: Any, w: Any) -> Any:
        return _convolution(jax, x, w, None, stride, padding, dilation, transposed, output_padding, groups)

    by_x = jax.vjp(lambda x: forward(x, w), x)[1](grad)[0] if output_mask[0] else None
    by_w = jax.vjp(lambda w: forward(x, w), w)[1](grad)[0] if output_mask[1] else None
    by_bias = grad.sum((0, *range(2, grad.ndim))) if output_mask[2] else None
    return by_x, by_w, by_bias


# ---------------------------------------------------------------- pools


def _edges(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> tuple[int, int]:
    """(how many windows there are, how many elements the last one needs beyond the array).

    With `ceil_mode` a last window may be cut off, unless it would begin in the padding behind the array.

    >>> _edges(5, 2, 2, 0, 1, False), _edges(5, 2, 2, 0, 1, True), _edges(6, 3, 2, 1, 1, True)
    ((2, -1), (3, 1), (4, 2))
    """
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1
    return count, (count - 1) * stride + dilation * (kernel - 1) + 1 - size - padding


def _reduced(
    jax: Any, x: Any, neutral: Any, combine: Callable[..., Any], kernel: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool,
) -> Any:  # fmt: skip
    """`combine` over the windows; elements outside of the array are neutral."""
    n = len(kernel)
    shape = x.shape[x.ndim - n :]
    sizes = [_edges(*edge, ceil_mode) for edge in zip(shape, kernel, stride, padding, dilation, strict=True)]
    # A window beyond the last one is not there, so what lies behind it is taken away (a negative padding).
    pads = [(p, behind) for p, (_, behind) in zip(padding, sizes, strict=True)]
    lead = x.ndim - n
    return jax.lax.reduce_window(
        x, neutral, combine, (1,) * lead + tuple(kernel), (1,) * lead + tuple(stride), [(0, 0)] * lead + pads,
        window_dilation=(1,) * lead + tuple(dilation),
    )  # fmt: skip


def _max_of(jax: Any, x: Any, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    kernel = _spread(kernel, n)
    stride = _spread(stride, n) if stride else kernel
    least = -np.inf if jax.numpy.issubdtype(x.dtype, jax.numpy.floating) else np.iinfo(x.dtype).min
    return _reduced(
        jax, x, np.array(least, x.dtype), jax.lax.max, kernel, stride, _spread(padding, n), _spread(dilation, n), ceil_mode
    )


def _max_pool(n: int) -> Callable[..., Any]:
    def max_pool(
        jax: Any, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> tuple[Any, Any]:
        """The maxima, and where in its plane each stands: the first of several, and a NaN before all numbers."""
        values = _max_of(jax, x, n, kernel, stride, padding, dilation, ceil_mode)
        kernel = _spread(kernel, n)
        stride = _spread(stride, n) if stride else kernel
        padding, dilation = _spread(padding, n), _spread(dilation, n)
        shape, counts = x.shape[x.ndim - n :], values.shape[x.ndim - n :]
        ends = [(p, max(0, (c - 1) * s + (k - 1) * d + 1 - size - p))
                for p, c, s, k, d, size in zip(padding, counts, stride, kernel, dilation, shape, strict=True)]  # fmt: skip
        wide = jax.numpy.pad(x, [(0, 0)] * (x.ndim - n) + ends)
        best, where = jax.numpy.zeros((), x.dtype), jax.numpy.zeros((), np.int64)
        known = np.zeros(counts, bool)
        for offsets in itertools.product(*map(range, kernel)):
            # The element of each window at this offset, and whether it lies within the array.
            begins = [o * d for o, d in zip(offsets, dilation, strict=True)]
            cut = tuple(slice(b, b + (c - 1) * s + 1, s) for b, c, s in zip(begins, counts, stride, strict=True))
            value = wide[(..., *cut)]
            grid = np.indices(counts)
            index = [g * s + b - p for g, s, b, p in zip(grid, stride, begins, padding, strict=True)]
            inside = np.ones(counts, bool)
            place = np.zeros(counts, np.int64)
            for i, size in zip(index, shape, strict=True):
                inside &= (i >= 0) & (i < size)
                place = place * size + i
            takes = inside & (~known | (value > best) | ((value != value) & (best == best)))
            best, where = jax.numpy.where(takes, value, best), jax.numpy.where(takes, place, where)
            known = known | inside
        return values, where

    return max_pool


def _max_pool_backward(n: int) -> Callable[..., Any]:
    def max_pool_backward(
        jax: Any, grad: Any, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Any
    ) -> Any:
        """What is handed back goes to the elements that `indices` names, several times where windows overlap."""
        lead, plane = x.shape[: x.ndim - n], math.prod(x.shape[x.ndim - n :])
        rows = math.prod(lead)
        flat = jax.numpy.zeros((rows, plane), grad.dtype)
        row = np.arange(rows)[:, None]
        return flat.at[row, indices.reshape(rows, -1)].add(grad.reshape(rows, -1)).reshape(x.shape)

    return max_pool_backward


def _average_pool(n: int) -> Callable[..., Any]:
    def average_pool(
        jax: Any, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Any:  # fmt: skip
        """Sums of windows by how many elements they have: with the padding (not what a cut window lacks), or without it."""
        kernel = _spread(kernel, n)
        stride, padding = _spread(stride, n) if stride else kernel, _spread(padding, n)
        total = _reduced(jax, x, np.zeros((), x.dtype), jax.lax.add, kernel, stride, padding, (1,) * n, ceil_mode)
        if divisor_override:
            return total / np.array(divisor_override, x.dtype)
        counts = np.ones((1,) * n)
        edges = zip(x.shape[x.ndim - n :], total.shape[x.ndim - n :], kernel, stride, padding, strict=True)
        for k, (size, count, width, step, pad) in enumerate(edges):
            begin = np.arange(count) * step - pad
            end = np.minimum(begin + width, size + pad)
            if not count_include_pad:
                begin, end = np.maximum(begin, 0), np.minimum(end, size)
            counts = counts * (end - begin).reshape([-1 if k == j else 1 for j in range(n)])
        return total / counts.astype(x.dtype)

    return average_pool


# ---------------------------------------------------------------- what is linear along each dimension


def _along(jax: Any, x: Any, matrices: Sequence[np.ndarray]) -> Any:
    """Each of the last dimensions times a matrix (to, from)."""
    for k, matrix in enumerate(matrices):
        axis = x.ndim - len(matrices) + k
        product = jax.lax.dot_general(x, matrix.astype(x.dtype), (((axis,), (1,)), ((), ())), precision="highest")
        x = jax.numpy.moveaxis(product, -1, axis)
    return x


def averages(size: int, count: int) -> np.ndarray:
    """(count, size): the mean of each of `count` pieces of a dimension, which overlap where `size` is no multiple.

    >>> averages(3, 2).tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    """
    matrix = np.zeros((count, size))
    for k in range(count):
        begin, end = k * size // count, -(-(k + 1) * size // count)
        matrix[k, begin:end] = 1 / (end - begin)
    return matrix


def _adaptive_average_pool(n: int) -> Callable[..., Any]:
    def adaptive_average_pool(jax: Any, x: Any, output_size: Any) -> Any:
        sizes, counts = x.shape[x.ndim - n :], _spread(output_size, n)
        if all(s % c == 0 for s, c in zip(sizes, counts, strict=True)):
            parts = [part for s, c in zip(sizes, counts, strict=True) for part in (c, s // c)]
            lead = x.ndim - n
            return x.reshape(*x.shape[:lead], *parts).mean(tuple(lead + 1 + 2 * k for k in range(n)))
        return _along(jax, x, [averages(s, c) for s, c in zip(sizes, counts, strict=True)])

    return adaptive_average_pool


def interpolation(size: int, count: int, align_corners: bool, scale: float | None) -> np.ndarray:
    """(count, size): linear interpolation between a dimension's elements, as ATen places them.

    >>> interpolation(2, 4, False, None).tolist()
    [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]
    """
    step = (size - 1) / max(count - 1, 1) if align_corners else 1 / scale if scale else size / count
    at = np.arange(count) * step if align_corners else np.maximum((np.arange(count) + 0.5) * step - 0.5, 0)
    low = np.minimum(np.floor(at).astype(int), size - 1)
    matrix = np.zeros((count, size))
    rows = np.arange(count)
    matrix[rows, low] += 1 - (at - low)
    matrix[rows, np.minimum(low + 1, size - 1)] += at - low
    return matrix


def _bilinear(jax: Any, x: Any, output_size: Any, align_corners: bool, *scales: float | None) -> Any:
    counts = tuple(output_size)
    given = (*scales, None, None)[: len(counts)]
    sizes = x.shape[x.ndim - len(counts) :]
    return _along(jax, x, [interpolation(s, c, align_corners, f) for s, c, f in zip(sizes, counts, given, strict=True)])


def _by_input(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient by the input of an op that is linear in it, ATen's way: (grad, input, *the other arguments)."""

    def backward(jax: Any, grad: Any, x: Any, *others: Any) -> Any:
        return jax.vjp(lambda x: forward(jax, x, *others), x)[1](grad)[0]

    return backward


def _adaptive_average_pool_backward(n: int) -> Callable[..., Any]:
    backward = _by_input(_adaptive_average_pool(n))
    return lambda jax, grad, x: backward(jax, grad, x, grad.shape[grad.ndim - n :])


def _bilinear_backward(jax: Any, grad: Any, output_size: Any, input_size: Any, *others: Any) -> Any:
    x = jax.numpy.zeros(tuple(input_size), grad.dtype)
    return _by_input(_bilinear)(jax, grad, x, output_size, *others)


WINDOWS: dict[str, Callable[..., Any]] = {
    "aten.convolution": _convolution,
    "aten.convolution_backward": _convolution_backward,
    "aten.upsample_bilinear2d": _bilinear,
    "aten.upsample_bilinear2d_backward": _bilinear_backward,
    **{f"aten.max_pool{n}d_with_indices": _max_pool(n) for n in (2, 3)},
    **{f"aten.max_pool{n}d_with_indices_backward": _max_pool_backward(n) for n in (2, 3)},
    **{f"aten.avg_pool{n}d": _average_pool(n) for n in (1, 2, 3)},
    **{f"aten.avg_pool{n}d_backward": _by_input(_average_pool(n)) for n in (2, 3)},
    **{f"aten._adaptive_avg_pool{n}d": _adaptive_average_pool(n) for n in (2, 3)},
    **{f"aten._adaptive_avg_pool{n}d_backward": _adaptive_average_pool_backward(n) for n in (2, 3)},
}
"""ATen's op (or one overload of it) by name -> a function of `jax` and the op's arguments."""
