"""reduce: out[i] = the fold of `body` over the reduced dimensions, in index order.

A few elements are folded one after the other, beginning with the initial value. Many are folded as a balanced tree,
which gathers far fewer rounding errors; the specification allows any tree that keeps the order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np

from hlo import Block, Op
from interp.machine import Call, Lanes
from interp.numbers import Array
from interp.quantization import to_type
from interp.registry import rule

__all__ = ["FEW_TERMS", "combine", "fold_axis", "fold_few"]

FEW_TERMS = 32  # up to here, sums are made one by one (dot products and windows too)


def combine(body: Block, left: Sequence[Array], right: Sequence[Array]) -> Generator[Any, Any, list[Array]]:
    """The scalar region `body` applied to arrays of one shape, position by position."""
    shape = np.broadcast_shapes(*(a.shape for a in (*left, *right)))
    if not shape:
        outputs = yield Call(body, tuple(np.asarray(a) for a in (*left, *right)))
        return list(outputs)
    lanes = tuple(Lanes(np.broadcast_to(a, shape), len(shape)) for a in (*left, *right))
    outputs = yield Call(body, lanes)
    return [o.array if isinstance(o, Lanes) else np.broadcast_to(o, shape) for o in outputs]


def fold_few(body: Block, starts: Sequence[Array], rows: Iterable[Sequence[Array]]) -> Generator[Any, Any, list[Array]]:
    """body(… body(body(start, row 0), row 1) …, last row)."""
    total = list(starts)
    for row in rows:
        total = yield from combine(body, total, row)
    return total


def fold_axis(body: Block, arrays: Sequence[Array], axis: int) -> Generator[Any, Any, list[Array]]:
    """Neighbours along `axis` are combined until one is left, the order kept. The axis must not be empty."""
    current = [np.moveaxis(a, axis, 0) for a in arrays]
    n = current[0].shape[0]
    while n > 1:
        even = n - n % 2
        merged = yield from combine(body, [a[0:even:2] for a in current], [a[1:even:2] for a in current])
        if n % 2:
            merged = [np.concatenate([m, a[-1:]]) for m, a in zip(merged, current, strict=True)]
        current, n = merged, even // 2 + n % 2
    return [a[0] for a in current]


@rule("stablehlo.reduce")
def reduce(ctx: Any, op: Op, *operands: Array) -> Generator[Any, Any, tuple[Array, ...]]:
    n, body = len(operands) // 2, op.regions[0]
    dims = sorted(op.attr("dimensions"))
    types = [a.type for a in body.arguments]
    values = [
        to_type(x, v.type, t) for x, v, t in zip(operands, op.operands, types, strict=True)
    ]  # the body's types may be wider than the operands'
    inputs, inits = values[:n], values[n:]
    kept = [i for i in range(inputs[0].ndim) if i not in dims]
    shape = tuple(inputs[0].shape[i] for i in kept)
    starts = [np.broadcast_to(x, shape) for x in inits]
    size = 1
    for i in dims:
        size *= inputs[0].shape[i]
    if not size:
        return tuple(starts)
    ctx.reserve(op, 2 * sum(x.size * x.itemsize for x in inputs))
    # One axis of `size` elements in row-major order of the reduced dimensions, in front of the kept ones.
    flat = [x.transpose((*dims, *kept)).reshape((size, *shape)) for x in inputs]
    if size <= FEW_TERMS:
        return tuple((yield from fold_few(body, starts, zip(*flat, strict=True))))
    folded = yield from fold_axis(body, flat, 0)
    results = yield from combine(body, starts, folded)
    return tuple(results)
