"""reduce_window and select_and_scatter."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hlo import Block, Op
from interp.numbers import Array
from interp.quantization import to_type
from interp.registry import rule
from interp.rules.movement import padded, padded_lengths
from interp.rules.reduction import FEW_TERMS, combine, fold_few
from interp.rules.scattering import fold_into

__all__ = ["Windows", "reduce_windows", "slide", "windowed"]


def _taken(x: Array, start: int, count: int, stride: int) -> Array:
    """x[start], x[start + stride], …: `count` positions of the first dimension."""
    return x[start : start + max(count - 1, 0) * stride + 1 : stride] if count else x[:0]


def slide(body: Block, arrays: Sequence[Array], size: int, stride: int, dilation: int) -> Generator[Any, Any, list[Array]]:
    """out[i] = fold of x[i * stride], x[i * stride + dilation], … (`size` elements) along the first dimension, in order.

    Few windows of few elements are folded neighbour by neighbour. Many large ones that overlap are put together from
    folds of 1, 2, 4, 8, … elements, as the binary digits of `size` say.
    """
    n = arrays[0].shape[0]
    span = (size - 1) * dilation + 1
    count = (n - span) // stride + 1 if n and span <= n else 0
    if count == 0:
        return [x[:0] for x in arrays]
    if (size - 1) * count <= n * (size - 1).bit_length():
        rows = [[_taken(x, k * dilation, count, stride) for k in range(size)] for x in arrays]
        while len(rows[0]) > 1:
            merged: list[list[Array]] = [[] for _ in rows]
            for k in range(0, len(rows[0]) - 1, 2):
                both = yield from combine(body, [r[k] for r in rows], [r[k + 1] for r in rows])
                for row, value in zip(merged, both, strict=True):
                    row.append(value)
            if len(rows[0]) % 2:
                for row, old in zip(merged, rows, strict=True):
                    row.append(old[-1])
            rows = merged
        return [r[0] for r in rows]
    done: list[Array] | None = None
    width, covered = 1, 0
    powers = list(arrays)  # powers[i] folds `width` elements from i on
    while True:
        if size & width:
            part = [_taken(x, covered * dilation, count, stride) for x in powers]
            done = part if done is None else (yield from combine(body, done, part))
            covered += width
        if covered == size:
            return done or []
        shift = width * dilation
        powers = yield from combine(body, [x[:-shift] for x in powers], [x[shift:] for x in powers])
        width *= 2


def reduce_windows(
    body: Block,
    inputs: Sequence[Array],
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Generator[Any, Any, list[Array]]:
    """The fold of every window over all its dimensions, in row-major order of the window: the last dimension first."""
    values = list(inputs)
    for axis in range(len(sizes) - 1, -1, -1):
        if sizes[axis] == strides[axis] == 1:
            continue
        moved = [np.moveaxis(x, axis, 0) for x in values]
        slid = yield from slide(body, moved, sizes[axis], strides[axis], dilations[axis])
        values = [np.moveaxis(x, 0, axis) for x in slid]
    return values


@rule("stablehlo.reduce_window")
def reduce_window(ctx: Any, op: Op, *operands: Array) -> Generator[Any, Any, tuple[Array, ...]]:
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations", "padding")
    return (yield from windowed(ctx, op, op.regions[0], operands, Windows(*(op.attr(n) for n in names))))


@dataclass(frozen=True)
class Windows:
    """Where the windows lie: one entry for each dimension."""

    sizes: Sequence[int]
    strides: Sequence[int]
    base_dilations: Sequence[int]
    dilations: Sequence[int]
    padding: Sequence[Sequence[int]]


def windowed(ctx: Any, op: Op, body: Block, operands: Sequence[Array], w: Windows) -> Generator[Any, Any, tuple[Array, ...]]:
    """Initial values are put around and between the elements, each window is folded, then once with its initial value."""
    n = len(operands) // 2
    types = [a.type for a in body.arguments]
    values = [to_type(x, v.type, t) for x, v, t in zip(operands, op.operands, types, strict=False)]
    inputs, inits = values[:n], values[n : 2 * n]
    low, high = [p[0] for p in w.padding], [p[1] for p in w.padding]
    interior = [d - 1 for d in w.base_dilations]
    lengths = padded_lengths(inputs[0].shape, low, high, interior)
    ctx.reserve(op, 3 * prod(lengths) * sum(x.itemsize for x in inputs))
    grown = [padded(x, i, low, high, interior) for x, i in zip(inputs, inits, strict=True)]
    if prod(w.sizes) <= FEW_TERMS:
        return tuple((yield from _few(body, grown, inits, w)))
    folded = yield from reduce_windows(body, grown, w.sizes, w.strides, w.dilations)
    starts = [np.broadcast_to(i, f.shape) for i, f in zip(inits, folded, strict=True)]
    return tuple((yield from combine(body, starts, folded)))


def _few(body: Block, grown: Sequence[Array], inits: Sequence[Array], w: Windows) -> Generator[Any, Any, list[Array]]:
    """Windows of few elements, folded one element after the other in row-major order."""
    spans = [(n - 1) * d + 1 for n, d in zip(w.sizes, w.dilations, strict=True)]
    counts = [(n - m) // s + 1 if n and m <= n else 0 for n, m, s in zip(grown[0].shape, spans, w.strides, strict=True)]
    starts = [np.broadcast_to(i, tuple(counts)) for i in inits]
    if 0 in counts:
        return starts

    def at(offset: tuple[int, ...]) -> list[Array]:
        firsts = [k * d for k, d in zip(offset, w.dilations, strict=True)]
        cut = tuple(slice(f, f + (c - 1) * s + 1, s) for f, c, s in zip(firsts, counts, w.strides, strict=True))
        return [x[cut] for x in grown]

    return (yield from fold_few(body, starts, map(at, np.ndindex(*w.sizes))))


@rule("stablehlo.select_and_scatter")
def select_and_scatter(ctx: Any, op: Op, operand: Array, source: Array, init: Array) -> Generator[Any, Any, Array]:
    """Each window of `operand` selects one element; `source` is scattered to the places selected.

    Padding never takes part in a selection.
    """
    select, scatter = op.regions
    sizes, strides = op.attr("window_dimensions"), op.attr("window_strides")
    low = [p[0] for p in op.attr("padding")]
    t = scatter.arguments[0].type
    fold_source, fold_init = to_type(source, op.operands[1].type, t), to_type(init, op.operands[2].type, t)
    base = [
        (np.arange(n) * s - lo).reshape([-1 if k == i else 1 for k in range(source.ndim)])
        for i, (n, s, lo) in enumerate(zip(source.shape, strides, low, strict=True))
    ]
    chosen = np.full(source.shape, -1, np.int64)  # row-major position in operand; -1: nothing yet
    value = np.broadcast_to(np.zeros((), operand.dtype), source.shape)
    ctx.reserve(op, 40 * source.size + 2 * operand.nbytes)
    flat = np.ascontiguousarray(operand).reshape(-1)
    for offset in np.ndindex(*sizes):
        inside = np.ones(source.shape, bool)
        place = np.zeros(source.shape, np.int64)
        for b, k, n in zip(base, offset, operand.shape, strict=True):
            at = b + k
            inside &= (at >= 0) & (at < n)
            place = place * n + np.clip(at, 0, max(n - 1, 0))
        candidate = flat[place] if flat.size else value
        (keeps,) = yield from combine(select, [value], [candidate])
        taken = inside & ((chosen < 0) | ~keeps)
        chosen, value = np.where(taken, place, chosen), np.where(taken, candidate, value)
    start = np.broadcast_to(fold_init, (operand.size,)).copy()
    (result,) = yield from fold_into(ctx, op, scatter, [start], chosen.reshape(-1), [fold_source.reshape(-1)])
    return result.reshape(operand.shape)
