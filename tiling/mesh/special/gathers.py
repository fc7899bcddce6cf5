"""Elements that are gathered by their numbers from a table that is spread: each process gives those that it holds.

    result[b, …] = sum over processes of (table tile [index[b] - begin, …] where the index is in the tile, else 0)

One process holds each element, so that sum is the element (of a negative zero: zero). What is sent is the result, not the table.
Dimensions of the table that are batches, or are taken whole, are spread in the result, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from hlo.attributes import GatherDimensions
from hlo.module import Op, Value
from hlo.types import ElementType, TensorType
from tiling.mesh.emit import Emitter
from tiling.mesh.local_ops import combination
from tiling.mesh.network import Network
from tiling.mesh.shardings import Digit, Sharding
from tiling.mesh.special.common import Build, Special, counted_from_begin, in_order, tile_index

__all__ = ["gathers"]

Digits = tuple[Digit, ...]


def gathers(op: Op, held: Sequence[Sharding | None], hint: Sharding | None, network: Network) -> Iterator[Special]:
    """The ways that leave a table where it is."""
    table = held[0]
    if op.name != "stablehlo.gather" or table is None or table.is_whole:
        return
    if not isinstance(op.operands[1].tensor.element, ElementType):
        return
    for indices in in_order([held[1], Sharding.whole(op.operands[1].rank)]):
        found = _gather(op, table, indices, hint, network)
        if found is not None:
            yield found


def _gather(op: Op, table: Sharding, indices: Sharding, hint: Sharding | None, network: Network) -> Special | None:
    g: GatherDimensions = op.attr("dimension_numbers")
    shape, taken = op.operands[0].shape, op.attr("slice_sizes")
    result = op.results[0].tensor
    batch = [d for d in range(result.rank) if d not in g.offset_dims]
    of_batch = [d for d in range(op.operands[1].rank) if d != g.index_vector_dim]  # dimension of the indices, in batch's order
    kept = [d for d in range(len(shape)) if d not in (*g.collapsed_slice_dims, *g.operand_batching_dims)]
    of_table: list[Digits] = [()] * len(shape)
    of_indices: list[Digits] = [()] * op.operands[1].rank
    of_result: list[Digits] = [()] * result.rank
    by_number: list[int] = []  # dimensions of the table in which each process gives what it holds
    for k, digits in enumerate(table.dims):
        if not digits:
            continue
        if k in g.operand_batching_dims:
            d = g.start_indices_batching_dims[g.operand_batching_dims.index(k)]
            of_indices[d] = of_result[batch[of_batch.index(d)]] = digits
        elif k in kept and taken[k] == shape[k]:
            of_result[g.offset_dims[kept.index(k)]] = digits
        elif k in g.collapsed_slice_dims and k in g.start_index_map:
            by_number.append(k)
        else:
            continue
        of_table[k] = digits
    used = {d for digits in of_table for d in digits}
    for d, digits in enumerate(indices.dims):
        if d in of_batch and digits and not used & set(digits) and not of_indices[d]:
            of_indices[d] = of_result[batch[of_batch.index(d)]] = digits
            if d in g.start_indices_batching_dims:  # both are counted together there
                of_table[g.operand_batching_dims[g.start_indices_batching_dims.index(d)]] = digits
    if not used:
        return None
    partial = tuple([d for k in by_number for d in of_table[k]])
    made = Sharding(tuple(of_result))
    n, size_bytes = prod(d.size for d in partial), made.local_type(result).size_bytes
    scattered = next(
        (k for k in range(result.rank) if partial and hint is not None and hint.dims[k] == (*made.dims[k], *partial)
         and result.static_shape[k] % (made.parts(k) * n) == 0),
        None,
    )  # fmt: skip
    final = made
    if scattered is not None:
        final = Sharding(tuple([(*d, *partial) if k == scattered else d for k, d in enumerate(made.dims)]))
    seconds = 0.0
    if partial:
        seconds = network.seconds((2 if scattered is None else 1) * size_bytes * (n - 1) / n, n)
    operands = Sharding(tuple(of_table)), Sharding(tuple(of_indices))
    return Special(operands, final, seconds, _built(op, operands[0], made, tuple(by_number), partial, scattered))


def _built(op: Op, table: Sharding, made: Sharding, by_number: tuple[int, ...], partial: Digits, scattered: int | None) -> Build:
    g: GatherDimensions = op.attr("dimension_numbers")

    def build(emit: Emitter, given: Sequence[Value]) -> tuple[Value, ...]:
        tile, indices = given
        shape, result = op.operands[0].shape, made.local_type(op.results[0].tensor)
        taken = tuple(
            [n if size == whole else size for size, whole, n in zip(op.attr("slice_sizes"), shape, tile.shape, strict=True)]
        )
        attributes = dict(op.attributes) | {"slice_sizes": taken}
        own = indices
        if by_number:
            lasts = [shape[k] - op.attr("slice_sizes")[k] for k in g.start_index_map]
            own = tile_index(emit, indices, [0] * len(lasts), lasts, g.index_vector_dim)
            tiles = {g.start_index_map.index(k): (table.dims[k], tile.shape[k]) for k in by_number}
            own = counted_from_begin(emit, own, tiles, g.index_vector_dim)
        (found,) = emit.op("stablehlo.gather", (tile, own), attributes, [result])
        if not by_number:
            return (found,)
        here = _here(emit, own, [(g.start_index_map.index(k), tile.shape[k]) for k in by_number], g.index_vector_dim)
        dims = tuple([d for d in range(result.rank) if d not in g.offset_dims])
        everywhere = TensorType(result.shape, here.tensor.element)
        (mask,) = emit.op("stablehlo.broadcast_in_dim", (here,), {"broadcast_dimensions": dims}, [everywhere])
        (mine,) = emit.op("stablehlo.select", (mask, found, emit.splat(0, result)), {}, [result])
        reason = "each process gives the rows that it holds"
        if scattered is not None:
            return (emit.scattered(mine, partial, scattered, combination(op), reason),)
        return (emit.reduced(mine, partial, combination(op), reason),)

    return build


def _here(emit: Emitter, own: Value, tiles: Sequence[tuple[int, int]], axis: int) -> Value:
    """Whether this process holds what each index vector points to; the dimension of the vectors is gone."""
    found: Value | None = None
    for j, size in tiles:
        part = own if axis == own.rank else emit.sliced(own, axis, j, j + 1)
        inside = emit.both(emit.compared(part, "GE", 0), emit.compared(part, "LT", size))
        found = inside if found is None else emit.both(found, inside)
    assert found is not None
    batch = tuple([n for d, n in enumerate(own.shape) if d != axis])
    return emit.op("stablehlo.reshape", (found,), {}, [TensorType(batch, found.tensor.element)])[0]
