"""The gradient of pooling: windows that lie side by side are each in one tile, so that processes send nothing for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.module import Op, Value
from tiling.mesh.emit import Emitter
from tiling.mesh.network import Network
from tiling.mesh.shardings import Sharding
from tiling.mesh.special.common import Special, in_order

__all__ = ["pools"]


def pools(op: Op, held: Sequence[Sharding | None], hint: Sharding | None, network: Network) -> Iterator[Special]:
    """A select_and_scatter, along dimensions whose windows are as long as their steps and are divided like the tiles."""
    if op.name != "stablehlo.select_and_scatter":
        return
    shape, source = op.operands[0].shape, op.operands[1].shape
    rank = len(shape)
    windows, strides = (op.attr(name) or (1,) * rank for name in ("window_dimensions", "window_strides"))
    padding = op.attr("padding") or ((0, 0),) * rank

    def may_be_spread(k: int, parts: int) -> bool:
        beside = windows[k] == strides[k] and tuple(padding[k]) == (0, 0)
        return beside and shape[k] == source[k] * strides[k] and source[k] % parts == 0

    for wanted in in_order([held[0], held[1], hint]):
        s = Sharding(tuple([d if may_be_spread(k, wanted.parts(k)) else () for k, d in enumerate(wanted.dims)]))
        if s.is_whole:
            continue
        t = s.local_type(op.results[0].tensor)

        def build(emit: Emitter, given: Sequence[Value], s: Sharding = s) -> tuple[Value, ...]:
            return emit.op(op.name, given, dict(op.attributes), [s.local_type(op.results[0].tensor)], list(op.regions))

        yield Special((s, s, Sharding.whole(0)), s, t.size_elems / network.work_per_second, build)
