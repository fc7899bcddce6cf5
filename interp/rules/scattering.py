"""scatter, and the fold of updates into places that select_and_scatter shares with it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from hlo import Block, Op
from hlo.attributes import ScatterDimensions
from interp.numbers import Array, is_complex
from interp.quantization import to_type
from interp.registry import rule
from interp.rules.reduction import combine

__all__ = ["fold_into", "takes_turns"]

# One op on two scalars that NumPy folds into repeated places, in order, with the same roundings.
_IN_PLACE: dict[str, np.ufunc] = {
    "stablehlo.add": np.add, "stablehlo.multiply": np.multiply, "stablehlo.maximum": np.maximum,
    "stablehlo.minimum": np.minimum, "stablehlo.and": np.bitwise_and, "stablehlo.or": np.bitwise_or,
    "stablehlo.xor": np.bitwise_xor,
}  # fmt: skip


_ROUNDED = ("stablehlo.add", "stablehlo.multiply")


def _one_op(body: Block) -> str:
    """The name of the one op of `_IN_PLACE` that `body` applies to its arguments; "" where it does anything else."""
    op = body.ops[0]
    is_it = len(body.ops) == 2 and len(body.arguments) == 2 and op.name in _IN_PLACE
    return op.name if is_it and op.operands == tuple(body.arguments) and body.results == (op.result,) else ""


def _in_place(name: str, dtype: np.dtype[Any]) -> np.ufunc | None:
    """The NumPy function that folds as an op does, where there is one."""
    rounded = dtype.kind == "f" or dtype.name == "bfloat16" or (dtype.kind == "c" and name == "stablehlo.add")
    return _IN_PLACE[name] if dtype.kind in "iu" or (name in _ROUNDED and rounded) else None


def _in_any_order(name: str, dtype: np.dtype[Any]) -> bool:
    """Whether a fold by an op of `_IN_PLACE` is the same in any order."""
    return name not in _ROUNDED and not is_complex(dtype)


def takes_turns(op: Op) -> bool:
    """Whether the updates of one place are folded one after the other, by as many calls of the op's region as it has."""
    body = op.regions[-1]
    name = _one_op(body)
    dtype = body.arguments[0].tensor.dtype
    return not (_replaces(body) or (name and (_in_place(name, dtype) is not None or _in_any_order(name, dtype))))


def _in_pairs(
    ctx: Any, op: Op, body: Block, index: Array, updates: Array
) -> Generator[Any, Any, tuple[Array, Array]]:
    """(the places of `index`, each once, the fold of each one's updates), neighbours first: for what no order makes another."""
    order = np.argsort(index, kind="stable")
    places, values = index[order], updates[order]
    while True:
        ctx.step(op)
        starts = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))
        within = np.arange(places.size) - np.repeat(starts, np.diff(np.append(starts, places.size)))
        kept = within % 2 == 0
        left = np.flatnonzero(~kept) - 1
        if not left.size:
            return places, values
        (merged,) = yield from combine(body, [values[left]], [values[left + 1]])
        values = values.copy()
        values[left] = merged
        places, values = places[kept], values[kept]


def _replaces(body: Block) -> bool:
    """True when `body` returns the updates, whatever was there."""
    n = len(body.arguments) // 2
    return body.results == tuple(body.arguments[n:])


def fold_into(
    ctx: Any, op: Op, body: Block, places: Sequence[Array], index: Array, updates: Sequence[Array]
) -> Generator[Any, Any, list[Array]]:
    """places[index[u]] = body(places[index[u]], updates[u]) for u = 0, 1, …; an index of -1 has no effect.

    All one-dimensional; `places` are written to. Updates of different places are done at the same time: first the first
    update of every place, then the second, …; of what gives the same in any order pairs are.
    """
    keep = index >= 0
    if not keep.all():
        index, updates = index[keep], [u[keep] for u in updates]
    if not index.size:
        return list(places)
    name = _one_op(body)
    if name:
        (whole,), (news,) = places, updates
        function = _in_place(name, whole.dtype)
        if function is not None:
            function.at(whole, index, news)
            return [whole]
        if _in_any_order(name, whole.dtype):
            targets, folded = yield from _in_pairs(ctx, op, body, index, news)
            (whole[targets],) = yield from combine(body, [whole[targets]], [folded])
            return [whole]
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    length = np.diff(np.append(first, ordered.size))
    if _replaces(body):  # the last update of a place stands
        last = order[first + length - 1]
        for p, u in zip(places, updates, strict=True):
            p[index[last]] = u[last]
        return list(places)
    by_length = np.argsort(-length, kind="stable")
    first, length = first[by_length], length[by_length]
    for turn in range(int(length[0])):
        ctx.step(op)
        active = order[first[: int(np.searchsorted(-length, -turn))] + turn]
        target = index[active]
        merged = yield from combine(body, [p[target] for p in places], [u[active] for u in updates])
        for p, m in zip(places, merged, strict=True):
            p[target] = m
    return list(places)


def _along(n: int, axis: int, rank: int) -> Array:
    return np.arange(n).reshape([-1 if k == axis else 1 for k in range(rank)])


def target_positions(shape: Sequence[int], indices: Array, updates_shape: Sequence[int], d: ScatterDimensions) -> Array:
    """For every element of the updates, its row-major position in an input of `shape`; -1 where it lies outside."""
    rank = len(updates_shape)
    scatter_dims = [k for k in range(rank) if k not in d.update_window_dims]
    vector_last = indices if d.index_vector_dim == indices.ndim else np.moveaxis(indices, d.index_vector_dim, -1)
    if d.index_vector_dim == indices.ndim:
        vector_last = vector_last[..., None]
    window_axes = iter(d.update_window_dims)
    position: Array = np.zeros((1,) * rank, np.int64)
    inside: Array = np.ones((1,) * rank, bool)
    for axis, size in enumerate(shape):
        at: Array = np.zeros((1,) * rank, np.int64)
        if axis in d.scatter_dims_to_operand_dims:
            start = vector_last[..., d.scatter_dims_to_operand_dims.index(axis)]
            spread = [1] * rank
            for k, n in zip(scatter_dims, start.shape, strict=True):
                spread[k] = n
            at = at + _as_int64(start, size).reshape(spread)
        if axis in d.input_batching_dims:
            batch = d.scatter_indices_batching_dims[d.input_batching_dims.index(axis)]
            k = scatter_dims[batch - (1 if batch > d.index_vector_dim else 0)]
            at = at + _along(updates_shape[k], k, rank)
        elif axis not in d.inserted_window_dims:
            k = next(window_axes)
            at = at + _along(updates_shape[k], k, rank)
        inside = inside & (at >= 0) & (at < size)
        position = position * size + at
    return np.broadcast_to(np.where(inside, position, -1), tuple(updates_shape))


def _as_int64(start: Array, size: int) -> Array:
    """Indices as int64; unsigned ones beyond its range are outside of any dimension, and stay so."""
    if start.dtype == np.uint64:
        start = np.minimum(start, np.uint64(2**62))
    return start.astype(np.int64)


@rule("stablehlo.scatter")
def scatter(ctx: Any, op: Op, *operands: Array) -> Generator[Any, Any, tuple[Array, ...]]:
    """Updates are folded into copies of the inputs, in row-major order of the updates."""
    n, body = len(operands) // 2, op.regions[0]
    dims: ScatterDimensions = op.attr("scatter_dimension_numbers")
    inputs, indices, updates = operands[:n], operands[n], operands[n + 1 :]
    types = [a.type for a in body.arguments]
    kinds = [v.type for v in op.operands]
    places = [np.array(to_type(x, k, t)).reshape(-1) for x, k, t in zip(inputs, kinds[:n], types[:n], strict=True)]
    news = [to_type(u, k, t) for u, k, t in zip(updates, kinds[n + 1 :], types[n:], strict=True)]
    ctx.reserve(op, 24 * news[0].size)
    index = target_positions(inputs[0].shape, indices, news[0].shape, dims).reshape(-1)
    results = yield from fold_into(ctx, op, body, places, index, [u.reshape(-1) for u in news])
    return tuple(r.reshape(x.shape) for r, x in zip(results, inputs, strict=True))
