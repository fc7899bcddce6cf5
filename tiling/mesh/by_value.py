"""Rows gathered by number from a table whose rows are spread: each process gives those that it holds, and zeros for the others.

    result[b, …] = sum over processes of (table tile [index[b] - begin, …] where the index is in the tile, else 0)

One process holds each row, so the sum is that row (of a negative zero: zero). What is sent is the result, not the table.
"""

from __future__ import annotations

from math import prod

import numpy as np

from hlo.attributes import GatherDimensions
from hlo.module import DenseArray, Op, Value
from hlo.types import ELEMENT_TYPES, ElementType, TensorType
from tiling.mesh.local_ops import combination
from tiling.mesh.moves import Emitter
from tiling.mesh.network import Network
from tiling.mesh.shardings import Sharding

__all__ = ["gather_by_value", "row_dimension", "seconds_by_value"]

_I32, _I1 = ELEMENT_TYPES["i32"], ELEMENT_TYPES["i1"]


def row_dimension(op: Op, table: Sharding) -> int | None:
    """The dimension of the table that an op's indices number, where it alone is spread and rows are taken whole; else None."""
    if op.name != "stablehlo.gather":
        return None
    g: GatherDimensions = op.attr("dimension_numbers")
    spread = [k for k, digits in enumerate(table.dims) if digits]
    if len(spread) != 1 or g.start_index_map != tuple(spread) or g.operand_batching_dims:
        return None
    (k,) = spread
    takes_rows = k in g.collapsed_slice_dims and op.attr("slice_sizes")[k] == 1
    return k if takes_rows and isinstance(op.operands[1].tensor.element, ElementType) else None


def seconds_by_value(op: Op, table: Sharding, network: Network) -> float:
    """What the sum of the results takes."""
    n = prod(d.size for d in table.digits)
    return network.seconds(2 * op.results[0].tensor.size_bytes * (n - 1) / n, n)


def gather_by_value(emit: Emitter, op: Op, table: Sharding, k: int, tile: Value, indices: Value) -> Value:
    """The op's whole result on every process, from each one's tile of the table and all indices."""
    g: GatherDimensions = op.attr("dimension_numbers")
    rows, held, shape = op.operands[0].shape[k], tile.shape[k], indices.tensor.static_shape
    numbers = TensorType(shape, _I32)

    def splat(number: int, t: TensorType) -> Value:
        array = np.broadcast_to(np.asarray(number, t.dtype), t.static_shape)
        return emit.op("stablehlo.constant", (), {"value": DenseArray(t, array)}, [t])[0]

    scalar = TensorType((), indices.tensor.element)
    (inside,) = emit.op("stablehlo.clamp", (splat(0, scalar), indices, splat(rows - 1, scalar)), {}, [indices.type])
    (wide,) = emit.op("stablehlo.convert", (inside,), {}, [numbers])
    (begin,) = emit.op("stablehlo.multiply", (emit.number(table.dims[k]), emit.index(held)), {}, [TensorType((), _I32)])
    (begins,) = emit.op("stablehlo.broadcast_in_dim", (begin,), {"broadcast_dimensions": ()}, [numbers])
    (own,) = emit.op("stablehlo.subtract", (wide, begins), {}, [numbers])
    (taken,) = emit.op("stablehlo.gather", (tile, own), dict(op.attributes), [op.results[0].type])
    mask = TensorType(shape, _I1)
    (low,) = emit.op("stablehlo.compare", (own, splat(0, numbers)), {"comparison_direction": "GE"}, [mask])
    (high,) = emit.op("stablehlo.compare", (own, splat(held, numbers)), {"comparison_direction": "LT"}, [mask])
    (here,) = emit.op("stablehlo.and", (low, high), {}, [mask])
    batch = tuple([n for d, n in enumerate(shape) if d != g.index_vector_dim])
    (flat,) = emit.op("stablehlo.reshape", (here,), {}, [TensorType(batch, _I1)])
    result = op.results[0].tensor
    dims = tuple([d for d in range(result.rank) if d not in g.offset_dims])
    (everywhere,) = emit.op(
        "stablehlo.broadcast_in_dim", (flat,), {"broadcast_dimensions": dims}, [TensorType(result.shape, _I1)]
    )
    (mine,) = emit.op("stablehlo.select", (everywhere, taken, splat(0, result)), {}, [result])
    return emit.reduced(mine, table.dims[k], combination(op), "each process gives the rows that it holds")
