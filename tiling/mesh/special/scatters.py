"""Updates that are scattered by their numbers to what is spread: each process takes those that it holds.

    result tile = the tile after the updates whose index, less the tile's begin, is in it (others are ignored)

Updates that are spread are put together by each process for itself (summed, or the greatest kept), and these results combined;
where the mesh does not divide them, what changes nothing stands for those beyond the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from hlo.attributes import ScatterDimensions
from hlo.clone import captured_values
from hlo.module import Op, Value
from hlo.types import ElementType, TensorType
from tiling.elements.folds import combined_function
from tiling.elements.scalar_functions import Neutral, scalar_function
from tiling.mesh.emit import Emitter
from tiling.mesh.network import Network
from tiling.mesh.relations import block_size
from tiling.mesh.shardings import Digit, Sharding
from tiling.mesh.special.common import Special, counted_from_begin, in_order, tile_index

__all__ = ["scatters"]

Digits = tuple[Digit, ...]


def scatters(op: Op, held: Sequence[Sharding | None], hint: Sharding | None, network: Network) -> Iterator[Special]:
    """A scatter with any of these: rows, batches and whole dimensions spread; updates spread and added up."""
    if op.name != "stablehlo.scatter" or not all(isinstance(v.type, TensorType) and v.tensor.is_static for v in op.operands):
        return
    s: ScatterDimensions = op.attr("scatter_dimension_numbers")
    count = len(op.results)
    if not isinstance(op.operands[count].tensor.element, ElementType) or any(captured_values(b) for b in op.regions):
        return
    shape, updates = op.results[0].shape, op.operands[count + 1]
    for wanted in in_order([held[0], hint, Sharding.whole(len(shape))]):
        for rows in _rows(op, s, held[count], held[count + 1]):
            dims = [d if _may_be_spread(s, k, shape, updates.shape) else () for k, d in enumerate(wanted.dims)]
            used = {d for digits in dims for d in digits}
            kept = [() if used & set(digits) else digits for digits in rows]
            if any(kept) and _neutral(op) is None:
                kept = [()] * len(rows)
            yield _scatter(op, s, Sharding(tuple(dims)), tuple(kept), network)


def _rows(op: Op, s: ScatterDimensions, indices: Sharding | None, updates: Sharding | None) -> list[list[Digits]]:
    """How the updates' batch dimensions may be spread: as they are, as the indices are, not at all."""
    number, given = op.operands[len(op.results)], op.operands[len(op.results) + 1]
    batch = [k for k in range(given.rank) if k not in s.update_window_dims]
    places = [d for d in range(number.rank) if d != s.index_vector_dim]
    found: list[list[Digits]] = []
    if updates is not None:
        found.append([updates.dims[k] for k in batch])
    if indices is not None:
        found.append([indices.dims[d] for d in places])
    found.append([()] * len(batch))
    return [row for k, row in enumerate(found) if row not in found[:k]]


def _neutral(op: Op) -> float | None:
    """What changes nothing, where results of parts of the updates combine to the op's: its body is an associative function."""
    function = combined_function(op.regions[0]) if len(op.results) == 1 else None
    element = op.results[0].tensor.element
    if function is None or not op.regions[0].arguments[0].tensor.element == element == op.operands[0].tensor.element:
        return None
    if isinstance(element, ElementType) and element.is_complex and function != "add":
        return None  # 1 changes an infinity: (inf + 0i) (1 + 0i) has a NaN
    neutral = scalar_function(function).neutral
    return neutral.of(element) if isinstance(neutral, Neutral) and isinstance(element, ElementType) else None


def _windows(s: ScatterDimensions, rank: int) -> dict[int, int]:
    """Dimension of an input that windows cover -> dimension of the updates."""
    free = [k for k in range(rank) if k not in (*s.inserted_window_dims, *s.input_batching_dims)]
    return dict(zip(free, s.update_window_dims, strict=True))


def _may_be_spread(s: ScatterDimensions, k: int, shape: Sequence[int], updates: Sequence[int]) -> bool:
    window = _windows(s, len(shape))
    if k in window:
        return k not in s.scatter_dims_to_operand_dims and updates[window[k]] == shape[k]
    return k in s.input_batching_dims or k in s.scatter_dims_to_operand_dims


def _scatter(op: Op, s: ScatterDimensions, result: Sharding, rows: tuple[Digits, ...], network: Network) -> Special:
    count, rank = len(op.results), op.results[0].rank
    indices, updates = op.operands[count], op.operands[count + 1]
    places = [d for d in range(indices.rank) if d != s.index_vector_dim]
    batch = [k for k in range(updates.rank) if k not in s.update_window_dims]
    summed = list(rows)
    of_batch = list(rows)
    for k, d in zip(s.input_batching_dims, s.scatter_indices_batching_dims, strict=True):
        of_batch[places.index(d)], summed[places.index(d)] = result.dims[k], ()
    of_updates: list[Digits] = [()] * updates.rank
    of_indices: list[Digits] = [()] * indices.rank
    for digits, k, d in zip(of_batch, batch, places, strict=True):
        of_updates[k] = of_indices[d] = digits
    window = _windows(s, rank)
    for k, d in window.items():
        of_updates[d] = result.dims[k]
    partial = tuple([d for digits in summed for d in digits])
    n = prod(d.size for d in partial)
    size_bytes = result.local_type(op.results[0].tensor).size_bytes
    seconds = network.seconds(2 * size_bytes * (n - 1) // n, n) if partial else 0.0
    seconds += sum(result.local_type(r.tensor).size_elems for r in op.results) / network.work_per_second
    seconds += sum(u.tensor.size_elems for u in op.operands[count + 1 :]) / n / network.work_per_second
    by_number = [k for k in s.scatter_dims_to_operand_dims if result.dims[k] and k not in window]

    def build(emit: Emitter, given: Sequence[Value]) -> tuple[Value, ...]:
        inputs, numbers, new = list(given[:count]), given[count], list(given[count + 1 :])
        if by_number:
            sizes = [op.results[0].shape[k] for k in s.scatter_dims_to_operand_dims]
            numbers = tile_index(emit, numbers, [-1] * len(sizes), sizes, s.index_vector_dim)
            tiles = {s.scatter_dims_to_operand_dims.index(k): (result.dims[k], inputs[0].shape[k]) for k in by_number}
            numbers = counted_from_begin(emit, numbers, tiles, s.index_vector_dim)
        for digits, k in zip(summed, batch, strict=True):  # what reaches over an end adds nothing
            size, block = updates.shape[k], block_size(updates.shape[k], digits)
            if block * prod(d.size for d in digits) > size:
                fills = [emit.splat(_neutral(op) or 0, TensorType((), u.tensor.element)) for u in new]
                new = [emit.masked(u, k, emit.tile_begin(digits, block), 0, size, f) for u, f in zip(new, fills, strict=True)]
        if partial:  # one process puts its updates to what was there
            t = inputs[0].tensor
            first = emit.spread(emit.compared(emit.number(partial), "EQ", 0), t)
            inputs = [emit.op("stablehlo.select", (first, inputs[0], emit.splat(_neutral(op) or 0, t)), {}, [t])[0]]
        types = [result.local_type(r.tensor) for r in op.results]
        made = emit.op("stablehlo.scatter", (*inputs, numbers, *new), dict(op.attributes), types, list(op.regions))
        if not partial:
            return made
        return (emit.reduced(made[0], partial, op.regions[0], "each process puts its own updates together"),)

    operands = (*[result] * count, Sharding(tuple(of_indices)), *[Sharding(tuple(of_updates))] * count)
    return Special(operands, result, seconds, build)
