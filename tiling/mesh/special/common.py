"""What the ways have in common: how one is described, and positions counted from the begin of a process's tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hlo.module import DenseArray, Value
from hlo.types import ELEMENT_TYPES, TensorType
from tiling.mesh.emit import INDEX, Emitter
from tiling.mesh.shardings import Digit, Sharding

__all__ = ["Build", "Special", "counted_from_begin", "in_order", "tile_index"]

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


def tile_index(emit: Emitter, numbers: Value, low: Sequence[int], high: Sequence[int], axis: int) -> Value:
    """Indices of any integer type as i32, cut to [low[j], high[j]]; component j lies at place j of dimension `axis`.

    An `axis` behind the last dimension says that there is one component.
    """
    t = numbers.tensor
    kind = np.dtype(t.dtype)
    if kind.kind == "u" and kind.itemsize == 8:  # the only type with numbers that no i64 has
        (numbers,) = emit.op("stablehlo.minimum", (numbers, _components(emit, high, t, axis)), {}, [t])
    wide, made = TensorType(t.shape, _I64), TensorType(t.shape, INDEX.element)
    (numbers,) = emit.op("stablehlo.convert", (numbers,), {}, [wide])
    (numbers,) = emit.op("stablehlo.maximum", (numbers, _components(emit, low, wide, axis)), {}, [wide])
    (numbers,) = emit.op("stablehlo.minimum", (numbers, _components(emit, high, wide, axis)), {}, [wide])
    return emit.op("stablehlo.convert", (numbers,), {}, [made])[0]


def counted_from_begin(emit: Emitter, numbers: Value, tiles: Mapping[int, tuple[tuple[Digit, ...], int]], axis: int) -> Value:
    """Indices less the begin of this process's tile: `tiles` has the digits and the size of the tile of each such component."""
    t = numbers.tensor
    for j, (digits, block) in tiles.items():
        begins = emit.spread(emit.tile_begin(digits, block), t)
        if axis < t.rank and t.static_shape[axis] > 1:
            ones = [int(k == j) for k in range(t.static_shape[axis])]
            (begins,) = emit.op("stablehlo.multiply", (begins, _components(emit, ones, t, axis)), {}, [t])
        (numbers,) = emit.op("stablehlo.subtract", (numbers, begins), {}, [t])
    return numbers


def _components(emit: Emitter, values: Sequence[int], t: TensorType, axis: int) -> Value:
    """values[j] at place j of dimension `axis`, everywhere."""
    if len(set(values)) == 1:
        return emit.splat(values[0], t)
    row = TensorType((len(values),), t.element)
    (made,) = emit.op("stablehlo.constant", (), {"value": DenseArray(row, np.array(values, t.dtype))}, [row])
    return emit.op("stablehlo.broadcast_in_dim", (made,), {"broadcast_dimensions": (axis,)}, [t])[0]


def in_order(wanted: Sequence[Sharding | None]) -> list[Sharding]:
    """The shardings that there are, each once."""
    return list(dict.fromkeys(s for s in wanted if s is not None))
