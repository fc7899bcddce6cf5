"""Sums of all elements before, along a dimension that is spread: each process scans its tile, and adds the totals before it.

    result tile = fold(totals of the tiles before), combined with the scan of the own tile

The totals, one element of each process, are all that is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.clone import clone_block
from hlo.module import Op, Value
from hlo.registry import Fold
from hlo.types import TensorType
from tiling.elements.folds import combined_function
from tiling.mesh.emit import INDEX, Emitter, resized
from tiling.mesh.local_ops import folds_in_parts
from tiling.mesh.network import Network
from tiling.mesh.shardings import Sharding
from tiling.mesh.special.common import Special, in_order

__all__ = ["scans"]


def _axis(op: Op) -> tuple[int, bool] | None:
    """The dimension along which a fold of windows is a scan, and whether from its end; None for other folds."""
    if op.name != "stablehlo.reduce_window" or len(op.results) != 1 or op.results[0].shape != op.operands[0].shape:
        return None
    shape, windows = op.operands[0].shape, op.attr("window_dimensions")
    ones = ("window_strides", "base_dilations", "window_dilations")
    wide = [k for k, n in enumerate(windows) if n != 1]
    if len(wide) != 1 or windows[wide[0]] != shape[wide[0]] or any(set(op.attr(name) or (1,)) != {1} for name in ones):
        return None
    (k,) = wide
    ends = tuple(op.attr("padding")[k])
    return None if ends not in ((shape[k] - 1, 0), (0, shape[k] - 1)) else (k, ends[0] == 0)


def scans(op: Op, held: Sequence[Sharding | None], hint: Sharding | None, network: Network) -> Iterator[Special]:
    """A scan whose operand is spread along it, and wherever else."""
    found, semantics = _axis(op), op.definition.semantics
    if found is None or not isinstance(semantics, Fold) or combined_function(op.regions[0]) is None:
        return
    if not folds_in_parts(op, semantics):
        return
    k, from_end = found
    for s in in_order([held[0], hint]):
        if s.dims[k]:
            yield _scan(op, s, k, from_end, network)


def _scan(op: Op, s: Sharding, k: int, from_end: bool, network: Network) -> Special:
    digits, parts, size = s.dims[k], s.parts(k), op.operands[0].shape[k]
    tile = s.local_type(op.operands[0].tensor)
    last = resized(tile, k, 1)
    seconds = network.seconds(last.size_bytes * (parts - 1), parts) + 2 * tile.size_elems / network.work_per_second

    def build(emit: Emitter, given: Sequence[Value]) -> tuple[Value, ...]:
        v, start = given
        block = v.shape[k]
        if size % parts:
            v = emit.masked(v, k, emit.tile_begin(digits, block), 0, size, start)
        ends = [(0, 0)] * v.rank
        ends[k] = (0, block - 1) if from_end else (block - 1, 0)
        windows = tuple([block if d == k else 1 for d in range(v.rank)])
        attributes = dict(op.attributes) | {"window_dimensions": windows, "padding": tuple(ends)}
        (own,) = emit.op(op.name, (v, start), attributes, [tile], [op.regions[0]])
        total = emit.sliced(own, k, 0, 1) if from_end else emit.sliced(own, k, block - 1, block)
        totals = emit.gathered(total, digits, k, "the totals of all tiles")
        number = emit.number(digits)
        if from_end:
            (number,) = emit.op("stablehlo.negate", (number,), {}, [INDEX])
            (number,) = emit.op("stablehlo.subtract", (number, emit.index(1)), {}, [INDEX])
            before = emit.masked(totals, k, number, 0, parts, start)  # tiles behind the own one
        else:
            (number,) = emit.op("stablehlo.subtract", (emit.index(parts), number), {}, [INDEX])
            before = emit.masked(totals, k, number, 0, parts, start)  # tiles before the own one
        others = [n for d, n in enumerate(tile.static_shape) if d != k]
        row = TensorType(tuple(others), tile.element)
        body = clone_block(op.regions[0], {})
        (sum_before,) = emit.op("stablehlo.reduce", (before, start), {"dimensions": (k,)}, [row], [body])
        dims = tuple([d for d in range(v.rank) if d != k])
        (everywhere,) = emit.op("stablehlo.broadcast_in_dim", (sum_before,), {"broadcast_dimensions": dims}, [tile])
        both = body.ops[0]
        return emit.op(both.name, (everywhere, own), dict(both.attributes), [tile])

    return Special((s, Sharding.whole(0)), s, seconds, build)
