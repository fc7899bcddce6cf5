"""sort and top_k.

Any comparator is possible. Where the sort could be NumPy's (by the first operands, rising or falling), NumPy's order is
*tried*, and the comparator itself judges it: no neighbour may be less than the one before it, and equal ones must stand
as they stood. If it refuses, the comparator sorts: a merge sort that merges all pairs of runs at the same time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np

from hlo import Block, Op
from interp.machine import Call, Lanes
from interp.numbers import Array, is_complex, is_float, total_order_key, widen
from interp.registry import rule

__all__ = ["largest"]

Less = Generator[Any, Any, Array]


def _less(body: Block, left: Sequence[Array], right: Sequence[Array]) -> Less:
    """comparator(left, right), position by position: its arguments alternate between the two."""
    pairs = [a for both in zip(left, right, strict=True) for a in both]
    shape = pairs[0].shape
    (answer,) = yield Call(body, tuple(Lanes(a, len(shape)) for a in pairs))
    return np.asarray(answer.array if isinstance(answer, Lanes) else np.broadcast_to(answer, shape))


def _keys(x: Array, total: bool, falling: bool) -> Array:
    """An array that NumPy sorts upwards as `x` is to be sorted."""
    if x.dtype.kind == "b":
        x = x.astype(np.int8)
    if is_float(x.dtype) and not total:
        y = widen(x)
        return -y if falling else y
    if is_complex(x.dtype):
        return -x if falling else x
    key = total_order_key(x) if is_float(x.dtype) else widen(x)
    return ~key if falling else key


def _guesses(operands: Sequence[Array]) -> Iterator[tuple[int, bool, bool]]:
    """What a comparator may well mean: how many operands are keys, is it totalOrder, does it sort downwards?"""
    for depth in range(1, len(operands) + 1):
        for total in (False, True):
            if total and not any(is_float(x.dtype) for x in operands[:depth]):
                continue
            yield depth, total, False
            yield depth, total, True


def _numpy_order(operands: Sequence[Array], depth: int, total: bool, falling: bool) -> Array:
    keys = [_keys(x, total, falling) for x in operands[:depth]]
    if depth == 1:
        return np.argsort(keys[0], axis=-1, kind="stable")
    return np.lexsort(tuple(reversed(keys)), axis=-1)


def _is_sorted(body: Block, rows: Sequence[Array], order: Array) -> Generator[Any, Any, bool]:
    """Does the comparator agree that `order` sorts the rows, equal elements kept in place?"""
    after = [np.take_along_axis(x, order, -1) for x in rows]
    left, right = [x[:, :-1] for x in after], [x[:, 1:] for x in after]
    if (yield from _less(body, right, left)).any():
        return False
    rises = yield from _less(body, left, right)
    return bool((rises | (order[:, :-1] < order[:, 1:])).all())


def _order(ctx: Any, op: Op, body: Block, rows: Sequence[Array]) -> Generator[Any, Any, Array]:
    """For each row, the old places of its elements in their new order."""
    count, n = rows[0].shape
    small = [x[:16, :64] for x in rows]  # a guess that fails here is not tried on everything
    for guess in _guesses(rows):
        if not (yield from _is_sorted(body, small, _numpy_order(small, *guess))):
            continue
        order = _numpy_order(rows, *guess)
        if (yield from _is_sorted(body, rows, order)):
            return order
    order = np.broadcast_to(np.arange(n), (count, n)).copy()
    width = 1
    while width < n:
        order = yield from _merge(ctx, op, body, rows, order, width)
        width *= 2
    return order


def _merge(ctx: Any, op: Op, body: Block, rows: Sequence[Array], order: Array, width: int) -> Generator[Any, Any, Array]:
    """Merges neighbouring sorted runs of `width` elements; an element moves by as many as come before it from the other run.

    How many those are, a binary search tells, for all elements at once.
    """
    count, n = order.shape
    place = np.broadcast_to(np.arange(n), (count, n))
    is_left = (place // width) % 2 == 0
    other = np.where(is_left, (place // width + 1) * width, (place // width - 1) * width)
    low = np.minimum(other, n)
    high = np.minimum(other + width, n)
    start = low.copy()
    own = [np.take_along_axis(x, order, -1) for x in rows]
    while (low < high).any():
        ctx.step(op)
        middle = (low + high) // 2
        there = [np.take_along_axis(x, np.minimum(middle, n - 1), -1) for x in own]
        goes_before = yield from _less(body, there, own)  # for an element of the left run
        stays_behind = yield from _less(body, own, there)  # for one of the right run
        before = np.where(is_left, goes_before, ~stays_behind) & (low < high)
        low, high = np.where(before, middle + 1, low), np.where(before | (low >= high), high, middle)
    run = place // (2 * width) * (2 * width)
    target = run + (place % width) + (low - start)
    merged = np.full_like(order, -1)
    np.put_along_axis(merged, target, order, -1)
    if (merged < 0).any():
        return (yield from _merge_in_step(ctx, op, body, rows, order, width))
    return merged


def _merge_in_step(ctx: Any, op: Op, body: Block, rows: Sequence[Array], order: Array, width: int) -> Generator[Any, Any, Array]:
    """The merge for comparators that contradict themselves (NaN compared as a number): one element after the other."""
    count, n = order.shape
    out = np.empty_like(order)
    lines = np.arange(count)
    for base in range(0, n, 2 * width):
        middle, end = min(base + width, n), min(base + 2 * width, n)
        i, j = np.full(count, base), np.full(count, middle)
        for k in range(base, end):
            ctx.step(op)
            left = order[lines, np.minimum(i, middle - 1)]
            right = order[lines, np.minimum(j, end - 1)]
            right_first = yield from _less(body, [x[lines, right] for x in rows], [x[lines, left] for x in rows])
            take = (j < end) & ((i >= middle) | right_first)
            out[:, k] = np.where(take, right, left)
            i, j = i + ~take, j + take
    return out


@rule("stablehlo.sort")
def sort(ctx: Any, op: Op, *inputs: Array) -> Generator[Any, Any, tuple[Array, ...]]:
    """Always stable."""
    axis, rank = op.attr("dimension"), inputs[0].ndim
    if rank:
        axis %= rank
    if not rank or inputs[0].size == 0 or inputs[0].shape[axis] == 1:
        return tuple(inputs)
    ctx.reserve(op, 24 * inputs[0].size)
    moved = [np.moveaxis(x, axis, -1) for x in inputs]
    shape = moved[0].shape
    rows = [np.ascontiguousarray(x).reshape(-1, shape[-1]) for x in moved]
    order = yield from _order(ctx, op, op.regions[0], rows)
    results = [np.take_along_axis(x, order, -1).reshape(shape) for x in rows]
    return tuple(np.moveaxis(x, -1, axis) for x in results)


@rule("chlo.top_k")
def top_k(ctx: Any, op: Op, x: Array) -> tuple[Array, Array]:
    return largest(x, op.attr("k"))


def largest(x: Array, k: int) -> tuple[Array, Array]:
    """The k largest of each row in falling order and their places as int32; of equal ones the first. NaN is the largest."""
    order = np.argsort(_keys(x, True, True), axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, -1), order.astype(np.int32)
