"""The gradient of pooling, select_and_scatter: each window of the operand chooses a place, to which its source element goes.

Windows that lie side by side are each in one tile, so that processes send nothing. Where windows overlap, process t has the
result [t b, + b) of a dimension by itself: of the windows that meet it,

    i in [ceil((t b + low - size + 1) / stride), floor((t b + b - 1 + low) / stride)]

it takes the source elements and what they cover of the operand, halos of both, and throws away what falls beside its tile. At
the ends there are fewer windows, and paddings: such processes run a branch of their own, the same op on what is there.

The operand may be padded before and the result cut after it (`Frame`), as JAX has the gradient of pooling: then tiles are those
of what is inside, and what the padding adds are elements like others, which windows may choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from hlo.clone import captured_values, clone_block
from hlo.module import Block, Op, Value
from hlo.registry import definition
from hlo.types import TensorType
from tiling.mesh.emit import Emitter, resized
from tiling.mesh.halo.windows import looked_up, window_seconds, with_window
from tiling.mesh.network import Network
from tiling.mesh.relations import Window
from tiling.mesh.shardings import Digit, Sharding
from tiling.mesh.special.common import Build, Special, in_order
from tiling.program.flatten import Program

__all__ = ["Frame", "frames_of", "pools"]

_REASON = "select_and_scatter reads the windows that meet its tile"


@dataclass(frozen=True)
class Frame:
    """A select_and_scatter of `base` with `low` and `high` elements of `fill` around it, which are cut off its result again."""

    scatter: Op
    base: Value
    fill: Value
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def operands(self) -> tuple[Value, ...]:
        """What is read."""
        return (self.base, *self.scatter.operands[1:], self.fill)


def frames_of(program: Program) -> dict[Op, Frame]:
    """The slices of a program that end such a frame, where nothing else reads the scatter's result."""
    readers: dict[Value, int] = {}
    for op in program.ops:
        for v in (*op.operands, *(v for b in op.regions for v in captured_values(b))):
            readers[v] = readers.get(v, 0) + 1
    found: dict[Op, Frame] = {}
    for op in program.ops:
        scatter = op.operands[0].op if op.name == "stablehlo.slice" else None
        pad = None if scatter is None or scatter.name != "stablehlo.select_and_scatter" else scatter.operands[0].op
        if scatter is None or pad is None or pad.name != "stablehlo.pad" or any(pad.attr("interior_padding")):
            continue
        low, high = tuple(pad.attr("edge_padding_low")), tuple(pad.attr("edge_padding_high"))
        base = pad.operands[0]
        made = scatter.results[0]
        ends = tuple([a + n for a, n in zip(low, base.shape, strict=True)])
        if (
            min((*low, *high), default=0) >= 0 and tuple(op.attr("start_indices")) == low and made not in program.results
            and tuple(op.attr("limit_indices")) == ends and set(op.attr("strides")) <= {1} and readers[made] == 1
        ):  # fmt: skip
            found[op] = Frame(scatter, base, pad.operands[1], low, high)
    return found


@dataclass(frozen=True)
class _Part:
    """What a tile takes of one dimension's halos: [begin, end) of the operand's and of the source's, paddings, its own place."""

    operand: tuple[int, int]
    source: tuple[int, int]
    padding: tuple[int, int]
    before: int  # of its tile, before what the op gives
    own: tuple[int, int]  # of what the op gives

    @property
    def is_empty(self) -> bool:
        """Whether no window meets the tile."""
        return self.source[0] >= self.source[1]


@dataclass(frozen=True)
class _Overlap:
    """A dimension of `size` elements in tiles of `block`; `count` windows of `width` are `stride` apart, the first `low` before.

    `around` is how many elements a frame adds before and behind.
    """

    size: int
    count: int
    width: int
    stride: int
    low: int
    block: int
    parts: int
    around: tuple[int, int]

    @property
    def source(self) -> Window:
        """The windows that meet a tile, by number."""
        first = -((self.width - 1 - self.low) // self.stride)
        last = (self.block - 1 + self.low) // self.stride
        return Window(first, self.block // self.stride, last - first + 1)

    @property
    def operand(self) -> Window:
        """What they cover, and the tile."""
        s = self.source
        begin = s.first * self.stride - self.low
        end = (s.first + s.length - 1) * self.stride - self.low + self.width
        return Window(min(begin, 0), self.block, max(end, self.block) - min(begin, 0))

    def part(self, tile: int) -> _Part:
        """What is there for a tile: windows and elements that there are."""
        s, o = self.source, self.operand
        first = max(s.first + tile * s.step, 0)
        stop = min(s.first + tile * s.step + s.length, self.count)
        at, held = tile * self.block, o.first + tile * self.block  # where the tile, and where its halo, begins
        begin, end = first * self.stride - self.low, (stop - 1) * self.stride - self.low + self.width
        low, high = max(begin, -self.around[0]), min(end, self.size + self.around[1])
        own = max(low, at), max(min(high, at + self.block), max(low, at))
        return _Part(
            (low - held, high - held), (first - s.first - tile * s.step, stop - s.first - tile * s.step),
            (low - begin, end - high), own[0] - at, (own[0] - low, own[1] - low),
        )  # fmt: skip


def pools(
    op: Op, held: Sequence[Sharding | None], hint: Sharding | None, network: Network, frame: Frame | None = None
) -> Iterator[Special]:
    """A select_and_scatter on tiles of its operand, of its source, or as its result is wanted; of a `frame`, what is inside."""
    if op.name != "stablehlo.select_and_scatter":
        return
    read = frame.operands if frame is not None else op.operands
    shape, source = read[0].shape, op.operands[1].shape
    rank = len(shape)
    windows, strides = (op.attr(name) or (1,) * rank for name in ("window_dimensions", "window_strides"))
    padding = op.attr("padding") or ((0, 0),) * rank
    around = [*zip(frame.low, frame.high, strict=True)] if frame is not None else [(0, 0)] * rank

    def lies_beside(k: int, parts: int) -> bool:
        beside = windows[k] == strides[k] and tuple(padding[k]) == around[k] == (0, 0)
        return beside and shape[k] == source[k] * strides[k] and source[k] % parts == 0

    def overlap(k: int, parts: int) -> _Overlap | None:
        block = shape[k] // parts
        if shape[k] % parts or block % strides[k] or source[k] < parts or min(padding[k]) < 0:
            return None
        return _Overlap(shape[k], source[k], windows[k], strides[k], padding[k][0] + around[k][0], block, parts, around[k])

    for wanted in in_order([held[0], held[1], hint]):
        dims: list[tuple[Digit, ...]] = []
        overlaps: dict[int, _Overlap] = {}
        for k, digits in enumerate(wanted.dims):
            found = overlap(k, wanted.parts(k)) if digits and not lies_beside(k, wanted.parts(k)) else None
            if found is not None:
                overlaps[k] = found
            dims.append(digits if found is not None or lies_beside(k, wanted.parts(k)) else ())
        s = Sharding(tuple(dims))
        if s.is_whole:
            continue
        seconds = s.local_type(read[0].tensor).size_elems / network.work_per_second
        for v, name in zip(read[:2], ("operand", "source"), strict=True):
            t = s.local_type(v.tensor)
            for k, o in overlaps.items():
                window: Window = getattr(o, name)
                seconds += window_seconds(window, resized(t, k, v.shape[k]), k, s.dims[k], network)
                t = resized(t, k, window.length)
        yield Special((s, s, *[Sharding.whole(0)] * (len(read) - 2)), s, seconds, _built(op, s, overlaps, frame))


def _built(op: Op, s: Sharding, overlaps: dict[int, _Overlap], frame: Frame | None) -> Build:
    def build(emit: Emitter, given: Sequence[Value]) -> tuple[Value, ...]:
        made = s.local_type(frame.base.tensor if frame is not None else op.results[0].tensor)
        if not overlaps and frame is None:
            return emit.op(op.name, given, dict(op.attributes), [made], list(op.regions))
        operand, source, init = given[:3]
        fill = given[3] if frame is not None else None
        for k, o in overlaps.items():
            digits, is_filled = s.dims[k], any(o.around)
            operand = with_window(emit, operand, o.size, k, digits, o.operand, fill, is_filled, _REASON)
            source = with_window(emit, source, o.count, k, digits, o.source, None, False, _REASON)
        if fill is not None and frame is not None:
            operand = _padded(emit, operand, fill, *_beside(frame, overlaps))
        tiles = [*product(*(range(o.parts) for o in overlaps.values()))]
        parts = [tuple([o.part(t) for o, t in zip(overlaps.values(), tile, strict=True)]) for tile in tiles]
        ways = list(dict.fromkeys(parts))

        def one(emit: Emitter, way: tuple[_Part, ...]) -> Value:
            return _on_parts(emit, op, operand, source, init, made, dict(zip(overlaps, way, strict=True)), frame)

        if len(ways) == 1:
            return (one(emit, ways[0]),)
        number = looked_up(emit, tuple([d for k in overlaps for d in s.dims[k]]), [ways.index(p) for p in parts])
        blocks = []
        for way in ways:
            block = Block([])
            inner = Emitter(emit.processes, block, emit.told, emit.channels, times=emit.times, outer=emit)
            block.ops.append(Op(definition("stablehlo.return"), [one(inner, way)]))
            blocks.append(block)
        return emit.op("stablehlo.case", (number,), {}, [made], blocks)

    return build


def _beside(frame: Frame, overlaps: dict[int, _Overlap]) -> tuple[list[int], list[int]]:
    """What a frame adds along dimensions that no halo is for."""
    low, high = ([0 if k in overlaps else n for k, n in enumerate(ends)] for ends in (frame.low, frame.high))
    return low, high


def _padded(emit: Emitter, v: Value, fill: Value, low: Sequence[int], high: Sequence[int]) -> Value:
    if not any((*low, *high)):
        return v
    edges = {"edge_padding_low": tuple(low), "edge_padding_high": tuple(high), "interior_padding": (0,) * v.rank}
    shape = tuple([a + n + b for a, n, b in zip(low, v.shape, high, strict=True)])
    return emit.op("stablehlo.pad", (v, fill), edges, [TensorType(shape, v.tensor.element)])[0]


def _on_parts(
    emit: Emitter, op: Op, operand: Value, source: Value, init: Value, made: TensorType, parts: dict[int, _Part],
    frame: Frame | None,
) -> Value:  # fmt: skip
    """The op on what is there for a tile, cut to the tile; elsewhere nothing is scattered, so that the initial value is there."""
    if any(p.is_empty for p in parts.values()):
        return emit.spread(init, made)
    padding = [tuple(row) for row in op.attr("padding") or ((0, 0),) * made.rank]
    for k, p in parts.items():
        operand, source = emit.sliced(operand, k, *p.operand), emit.sliced(source, k, *p.source)
        padding[k] = p.padding
    attributes = dict(op.attributes) | {"padding": tuple(padding)}
    regions = [clone_block(b, {}) for b in op.regions]
    (v,) = emit.op(op.name, (operand, source, init), attributes, [TensorType(operand.shape, made.element)], regions)
    low, high = [0] * made.rank, [0] * made.rank
    for k, p in parts.items():
        v = emit.sliced(v, k, *p.own)
        low[k], high[k] = p.before, made.static_shape[k] - p.before - v.shape[k]
    for k, n in enumerate(frame.low if frame is not None else ()):
        if k not in parts:
            v = emit.sliced(v, k, n, n + made.static_shape[k])
    return _padded(emit, v, init, low, high)
