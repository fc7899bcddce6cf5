"""The inside of a tile first, its borders when the halo is there: so an exchange goes on while a process computes.

    whole = op(own tile, filled at its ends)       needs nothing of others; wrong near the ends
    low, high = op(own ends with their halos)      a few elements each
    result = whole with low and high put in        in place

That is worth it where so much of the exchange is hidden (`Network.hidden`, measured) that it pays for computing borders twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlo.module import Op, Value
from hlo.types import TensorType
from tiling.mesh.emit import Emitter, resized
from tiling.mesh.halo.windows import with_window
from tiling.mesh.relations import Window
from tiling.mesh.shardings import Digit

__all__ = ["Inside", "inside_first", "inside_of", "saved_seconds"]


@dataclass(frozen=True)
class Inside:
    """An op on tiles that reads a window along `dim` of its first operand, for `size` elements along `out` of its result.

    The first `low` and the last `high` of these read halos.
    """

    row: int  # of the attributes that say where windows lie
    dim: int
    out: int
    window: Window
    block: int
    stride: int
    reach: int
    size: int
    low: int
    high: int

    @property
    def border_share(self) -> float:
        """What is computed twice, of all."""
        return (self.low + self.high) / self.size


def inside_of(local: Op, dim: int, row: int, window: Window, block: int) -> Inside | None:
    """Where the inside of an op on tiles is; None where there is none, or windows are no neighbors of their tile's elements.

    `block` is the size of the own tile along `dim`.
    """
    if local.name == "stablehlo.convolution":
        numbers = local.attr("dimension_numbers")
        out, size = numbers.output_spatial[row], local.operands[1].shape[numbers.kernel_spatial[row]]
        holes, base = local.attr("rhs_dilation"), local.attr("lhs_dilation")
    elif local.name == "stablehlo.reduce_window":
        out, size = dim, local.attr("window_dimensions")[row]
        holes, base = local.attr("window_dilations"), local.attr("base_dilations")
    else:
        return None
    stride = (local.attr("window_strides") or (1,) * (row + 1))[row]
    reach = (size - 1) * (holes[row] if holes else 1) + 1
    before, behind = -window.first, window.length + window.first - block
    if window.step != block or before < 0 or behind < 0 or (base and base[row] != 1):
        return None
    made = local.results[0].shape[out]
    low, high = -(-before // stride), made - ((block + before - reach) // stride + 1)
    if min(low, high) < 0 or low + high == 0 or low + high >= made:
        return None
    return Inside(row, dim, out, window, block, stride, reach, made, low, high)


def inside_first(
    emit: Emitter, op: Op, local: Op, given: Sequence[Value], inside: Inside, digits: tuple[Digit, ...], fill: Value | None,
    reason: str,
) -> Value:  # fmt: skip
    """The result of an op on tiles, of which `given[0]` is the own tile without its halo."""
    tile, size = given[0], op.operands[0].shape[inside.dim]
    t = local.results[0].tensor

    def computed(v: Value, ends: tuple[int, int], length: int) -> Value:
        padding = list(local.attr("padding") or [(0, 0)] * len(local.results[0].shape))
        padding[inside.row] = ends
        attributes = dict(local.attributes) | {"padding": tuple(padding)}
        types = [resized(t, inside.out, length)]
        made = Op(local.definition, [v, *given[1:]], attributes, local.regions, types, op.location, op.extra)
        emit.block.ops.append(made)
        return made.results[0]

    def border(first: int, length: int) -> Value:
        """Elements [first, first + length) of the result's tile."""
        reads = Window(inside.window.first + first * inside.stride, inside.block, (length - 1) * inside.stride + inside.reach)
        v = with_window(emit, tile, size, inside.dim, digits, reads, fill, True, reason)
        return computed(v, (0, 0), length)

    before = -inside.window.first
    whole = computed(tile, (before, inside.window.length - before - inside.block), inside.size)
    for first, length in ((0, inside.low), (inside.size - inside.high, inside.high)):
        if length:
            at = [emit.index(first if k == inside.out else 0) for k in range(t.rank)]
            (whole,) = emit.op("stablehlo.dynamic_update_slice", (whole, border(first, length), *at), {}, [t])
    return whole


def saved_seconds(inside: Inside, exchange: float, work: float, hidden: float, t: TensorType, work_per_second: float) -> float:
    """What computing the inside first saves, by the model: what is hidden, less what is done twice and what is put in."""
    rows = prod(n for k, n in enumerate(t.static_shape) if k != inside.out) * (inside.low + inside.high)
    inner = work * (1 - inside.border_share)
    return hidden * min(exchange, inner) - inside.border_share * work - rows / work_per_second
