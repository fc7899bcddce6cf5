"""Rows that are gathered, or scattered to, by their numbers, where they are spread: each process sees to those that it holds.

    gather   result[b, …] = sum over processes of (table tile [index[b] - begin, …] where the index is in the tile, else 0)
    scatter  result tile = the tile after the updates whose index, less the tile's begin, is in it (others are ignored)

One process holds each row, so that sum is the row (of a negative zero: zero). What is sent is the result, not the table. Updates
that are spread are added up by each process for itself, and the sums combined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from hlo.attributes import GatherDimensions, ScatterDimensions
from hlo.clone import captured_values
from hlo.module import Op, Value
from hlo.types import ELEMENT_TYPES, ElementType, TensorType
from tiling.elements.folds import combined_function
from tiling.mesh.emit import INDEX, Emitter
from tiling.mesh.local_ops import combination
from tiling.mesh.network import Network
from tiling.mesh.shardings import Digit, Sharding

__all__ = ["Build", "Special", "gathers", "scatters"]

_I64 = ELEMENT_TYPES["i64"]


Build = Callable[[Emitter, Sequence[Value]], tuple[Value, ...]]
"""From operands in the shardings that they must have to the results: appends the ops."""


@dataclass(frozen=True)
class Special:
    """A way to compute an op that its maps on tiles do not say: what its operands must be, what comes out, what it takes."""

    operands: tuple[Sharding, ...]
    result: Sharding
    seconds: float
    build: Build

    def after(self, seconds: float) -> Special:
        """The same, with what comes before and behind it."""
        return replace(self, seconds=self.seconds + seconds)


def gathers(op: Op, held: Sequence[Sharding | None], network: Network) -> Iterator[Special]:
    """Rows of a table that is spread along them alone, taken whole by their numbers."""
    table = held[0]
    if op.name != "stablehlo.gather" or table is None:
        return
    g: GatherDimensions = op.attr("dimension_numbers")
    spread = [k for k, digits in enumerate(table.dims) if digits]
    if len(spread) != 1 or g.start_index_map != tuple(spread) or g.operand_batching_dims:
        return
    (k,) = spread
    takes_rows = k in g.collapsed_slice_dims and op.attr("slice_sizes")[k] == 1
    if not takes_rows or not isinstance(op.operands[1].tensor.element, ElementType):
        return
    n = prod(d.size for d in table.digits)
    seconds = network.seconds(2 * op.results[0].tensor.size_bytes * (n - 1) / n, n)
    whole = Sharding.whole(op.results[0].rank)

    def build(emit: Emitter, given: Sequence[Value]) -> tuple[Value, ...]:
        return (_gathered(emit, op, table, k, *given),)

    yield Special((table, Sharding.whole(op.operands[1].rank)), whole, seconds, build)


def _gathered(emit: Emitter, op: Op, table: Sharding, k: int, tile: Value, indices: Value) -> Value:
    g: GatherDimensions = op.attr("dimension_numbers")
    rows, held, shape = op.operands[0].shape[k], tile.shape[k], indices.shape
    own = _from_begin(emit, _numbers(emit, indices, 0, rows - 1), table.dims[k], held)
    (taken,) = emit.op("stablehlo.gather", (tile, own), dict(op.attributes), [op.results[0].type])
    here = emit.both(emit.compared(own, "GE", 0), emit.compared(own, "LT", held))
    batch = tuple([n for d, n in enumerate(shape) if d != g.index_vector_dim])
    (flat,) = emit.op("stablehlo.reshape", (here,), {}, [TensorType(batch, here.tensor.element)])
    result = op.results[0].tensor
    dims = tuple([d for d in range(result.rank) if d not in g.offset_dims])
    (everywhere,) = emit.op(
        "stablehlo.broadcast_in_dim", (flat,), {"broadcast_dimensions": dims}, [TensorType(result.shape, here.tensor.element)]
    )
    (mine,) = emit.op("stablehlo.select", (everywhere, taken, emit.splat(0, result)), {}, [result])
    return emit.reduced(mine, table.dims[k], combination(op), "each process gives the rows that it holds")


def _numbers(emit: Emitter, indices: Value, low: int, high: int) -> Value:
    """Indices of any integer type as i32, those below `low` as `low`, those above `high` as `high`."""
    t = indices.tensor
    kind = np.dtype(t.dtype)
    if kind.kind == "u" and kind.itemsize == 8:  # the only type with numbers that no i64 has
        (indices,) = emit.op("stablehlo.minimum", (indices, emit.splat(high, t)), {}, [t])
    wide, made = TensorType(t.shape, _I64), TensorType(t.shape, INDEX.element)
    (indices,) = emit.op("stablehlo.convert", (indices,), {}, [wide])
    scalar = TensorType((), _I64)
    (indices,) = emit.op("stablehlo.clamp", (emit.splat(low, scalar), indices, emit.splat(high, scalar)), {}, [wide])
    return emit.op("stablehlo.convert", (indices,), {}, [made])[0]


def _from_begin(emit: Emitter, numbers: Value, digits: tuple[Digit, ...], block: int) -> Value:
    begins = emit.spread(emit.tile_begin(digits, block), numbers.tensor)
    return emit.op("stablehlo.subtract", (numbers, begins), {}, [numbers.type])[0]


# ---------------------------------------------------------------- scatter


def scatters(op: Op, held: Sequence[Sharding | None], hint: Sharding | None, network: Network) -> Iterator[Special]:
    """A scatter with any of these: rows spread, the dimensions that its windows cover spread, updates spread and added up."""
    if op.name != "stablehlo.scatter" or not all(isinstance(v.type, TensorType) and v.tensor.is_static for v in op.operands):
        return
    s: ScatterDimensions = op.attr("scatter_dimension_numbers")
    if s.input_batching_dims or not isinstance(op.operands[len(op.results)].tensor.element, ElementType):
        return
    if any(captured_values(b) for b in op.regions):
        return
    count = len(op.results)
    shape, updates = op.results[0].shape, op.operands[count + 1]
    free = [k for k in range(len(shape)) if k not in s.inserted_window_dims]
    window = dict(zip(free, s.update_window_dims, strict=True))  # dimension of an input -> of the updates
    batch = [k for k in range(updates.rank) if k not in s.update_window_dims]
    for wanted in (held[0], hint, Sharding.whole(len(shape))):
        for given in (held[count + 1], Sharding.whole(updates.rank)):
            if wanted is None or given is None:
                continue
            dims = [
                digits if _may_be_spread(s, k, shape, updates.shape, window) else () for k, digits in enumerate(wanted.dims)
            ]  # fmt: skip
            used = {d for digits in dims for d in digits}
            rows = [
                given.dims[k] if _is_even(updates.shape[k], given.dims[k]) and not used & set(given.dims[k]) else ()
                for k in batch
            ]
            if any(rows) and not _is_sum(op):
                rows = [()] * len(batch)
            yield _scatter(op, s, Sharding(tuple(dims)), tuple(rows), window, network)


def _is_even(size: int, digits: tuple[Digit, ...]) -> bool:
    return size % prod(d.size for d in digits) == 0  # else what is over the end would be added


def _is_sum(op: Op) -> bool:
    """Whether sums of parts combine to the op's sum: its body adds, in the type of the result."""
    if len(op.results) != 1 or combined_function(op.regions[0]) != "add":
        return False
    return op.regions[0].arguments[0].tensor.element == op.results[0].tensor.element == op.operands[0].tensor.element


def _may_be_spread(s: ScatterDimensions, k: int, shape: Sequence[int], updates: Sequence[int], window: dict[int, int]) -> bool:
    if k in window:
        return k not in s.scatter_dims_to_operand_dims and updates[window[k]] == shape[k]
    return s.scatter_dims_to_operand_dims == (k,)


def _scatter(
    op: Op, s: ScatterDimensions, result: Sharding, rows: tuple[tuple[Digit, ...], ...], window: dict[int, int], network: Network
) -> Special:
    count = len(op.results)
    indices, updates = op.operands[count], op.operands[count + 1]
    batch = iter(rows)
    of_updates = [next(batch) if k not in s.update_window_dims else () for k in range(updates.rank)]
    for k, d in window.items():
        of_updates[d] = result.dims[k]
    batch = iter(rows)
    of_indices = [() if k == s.index_vector_dim else next(batch) for k in range(indices.rank)]
    partial = tuple([d for digits in rows for d in digits])
    n = prod(d.size for d in partial)
    size_bytes = result.local_type(op.results[0].tensor).size_bytes
    seconds = network.seconds(2 * size_bytes * (n - 1) // n, n) if partial else 0.0
    seconds += sum(result.local_type(r.tensor).size_elems for r in op.results) / network.work_per_second
    seconds += sum(u.tensor.size_elems for u in op.operands[count + 1 :]) / n / network.work_per_second

    def build(emit: Emitter, given: Sequence[Value]) -> tuple[Value, ...]:
        inputs, numbers, new = list(given[:count]), given[count], given[count + 1 :]
        for k, digits in enumerate(result.dims):
            if digits and k not in window:
                numbers = _numbers(emit, numbers, -1, op.results[0].shape[k])
                numbers = _from_begin(emit, numbers, digits, inputs[0].shape[k])
        if partial:  # one process adds its updates to what was there
            t = inputs[0].tensor
            first = emit.spread(emit.compared(emit.number(partial), "EQ", 0), t)
            inputs = [emit.op("stablehlo.select", (first, inputs[0], emit.splat(0, t)), {}, [t])[0]]
        types = [result.local_type(r.tensor) for r in op.results]
        made = emit.op("stablehlo.scatter", (*inputs, numbers, *new), dict(op.attributes), types, list(op.regions))
        if not partial:
            return made
        return (emit.reduced(made[0], partial, op.regions[0], "each process adds up its own updates"),)

    operands = (*[result] * count, Sharding(tuple(of_indices)), *[Sharding(tuple(of_updates))] * count)
    return Special(operands, result, seconds, build)
