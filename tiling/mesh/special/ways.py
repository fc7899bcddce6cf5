"""The ways to compute an op that its maps on tiles do not say: by numbers, by places, and concatenations along what is spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.module import Op, Value
from hlo.types import TensorType
from tiling.mesh.emit import Emitter
from tiling.mesh.halo.windows import window_seconds, with_window
from tiling.mesh.network import Network
from tiling.mesh.relations import Window, block_size
from tiling.mesh.shardings import Sharding
from tiling.mesh.special.common import Build, Special
from tiling.mesh.special.gathers import gathers
from tiling.mesh.special.pools import pools
from tiling.mesh.special.positions import boxes, slices, updates
from tiling.mesh.special.scans import scans
from tiling.mesh.special.scatters import scatters
from tiling.mesh.special.sorts import sorts

__all__ = ["Special", "specials_of"]


def specials_of(op: Op, held: Sequence[Sharding | None], hint: Sharding | None, network: Network) -> Iterator[Special]:
    """The special ways for an op whose operands are held so (None: made where they are read) and whose result is wanted so."""
    if held:
        yield from gathers(op, held, hint, network)
        yield from scatters(op, held, hint, network)
        yield from slices(op, held, hint, network)
        yield from updates(op, held, hint, network)
        yield from boxes(op, held, hint, network)
        yield from scans(op, held, hint, network)
        yield from pools(op, held, hint, network)
        yield from sorts(op, held, hint, network)
        yield from _concatenations(op, held, hint, network)


def _concatenations(op: Op, held: Sequence[Sharding | None], hint: Sharding | None, network: Network) -> Iterator[Special]:
    """Each process takes of every operand the window at its tile of the result, and of these what is in the operand."""
    if op.name != "stablehlo.concatenate" or not all(v.tensor.is_static for v in op.operands):
        return
    axis, result = op.attr("dimension"), op.results[0].tensor
    seen = set()
    for s in (*held, hint):
        if s is None or s in seen or not s.dims[axis]:
            continue
        seen.add(s)
        size = result.static_shape[axis]
        step = block_size(size, s.dims[axis])
        offsets, windows = 0, []
        for v in op.operands:
            windows.append(Window(-offsets, step, step))
            offsets += v.shape[axis]
        seconds = result.size_elems / s.parts(axis) / network.work_per_second
        for v, w in zip(op.operands, windows, strict=True):
            tile = s.local_shape(v.shape)
            along = TensorType(tuple([v.shape[k] if k == axis else n for k, n in enumerate(tile)]), v.tensor.element)
            seconds += window_seconds(w, along, axis, s.dims[axis], network)
        yield Special((s,) * len(op.operands), s, seconds, _joining(op, s, axis, tuple(windows)))


def _joining(op: Op, s: Sharding, axis: int, windows: tuple[Window, ...]) -> Build:
    def build(emit: Emitter, given: Sequence[Value]) -> tuple[Value, ...]:
        digits = s.dims[axis]
        made: Value | None = None
        for v, whole, w in reversed([*zip(given, op.operands, windows, strict=True)]):
            size = whole.shape[axis]
            part = with_window(emit, v, size, axis, digits, w, None, False, "a concatenation reads its tile's part")
            if made is None:
                made = part
                continue
            begin = emit.tile_begin(digits, w.length)
            here = emit.within(part.tensor, axis, begin, 0, size - w.first)
            (made,) = emit.op("stablehlo.select", (here, part, made), {}, [part.type])
        assert made is not None
        return (made,)

    return build
