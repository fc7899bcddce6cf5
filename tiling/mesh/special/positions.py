"""Parts that are taken or put at a place that is known at run time, along dimensions that are spread.

    slice    each process gives the elements of the part that it holds, else 0; the sum over processes is the part
    update   each process puts the elements of the update that fall into its tile where they belong, and sends nothing

At place `i` of a dimension of n elements, tile [begin, begin + b) and part of m: a process sees to w = min(m, b) elements of its
tile, from `j = clamp(0, i - begin, b - w)`; element r of them is element `j + begin + r - i` of the part, where that is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from hlo.attributes import ScatterDimensions
from hlo.module import DenseArray, Op, Value
from hlo.types import TensorType
from tiling.elements.folds import combined_function
from tiling.mesh.emit import INDEX, Emitter, resized
from tiling.mesh.halo.windows import window_seconds, with_window
from tiling.mesh.local_ops import combination
from tiling.mesh.network import Network
from tiling.mesh.relations import Window, block_size
from tiling.mesh.shardings import Digit, Sharding
from tiling.mesh.special.common import Build, Special, in_order, tile_index

__all__ = ["boxes", "slices", "updates"]

_MOST_NUMBERS = 64  # of a constant place


def _starts(emit: Emitter, given: Sequence[Value], shape: Sequence[int], part: Sequence[int]) -> list[Value]:
    """The places as i32, so that the part lies inside."""
    return [tile_index(emit, v, [0], [n - m], 0) for v, n, m in zip(given, shape, part, strict=True)]


def _places(emit: Emitter, start: Value, digits: tuple[Digit, ...], block: int, part: int) -> tuple[Value, Value]:
    """`j`, and `j + begin - i`, of a dimension."""
    width = min(block, part)
    (ahead,) = emit.op("stablehlo.subtract", (start, emit.tile_begin(digits, block)), {}, [INDEX])
    (low,) = emit.op("stablehlo.maximum", (ahead, emit.index(0)), {}, [INDEX])
    (at,) = emit.op("stablehlo.minimum", (low, emit.index(block - width)), {}, [INDEX])
    return at, emit.op("stablehlo.subtract", (at, ahead), {}, [INDEX])[0]


def _cut(emit: Emitter, v: Value, starts: Sequence[Value], sizes: Sequence[int]) -> Value:
    made = TensorType(tuple(sizes), v.tensor.element)
    return emit.op("stablehlo.dynamic_slice", (v, *starts), {"slice_sizes": made.static_shape}, [made])[0]


def _put(emit: Emitter, into: Value, part: Value, starts: Sequence[Value]) -> Value:
    return emit.op("stablehlo.dynamic_update_slice", (into, part, *starts), {}, [into.type])[0]


def _shifted(emit: Emitter, v: Value, dim: int, offset: Value, size: int) -> Value:
    """Element r + offset of a dimension at place r of `size`; zero where there is none."""
    length = v.shape[dim]
    at = [emit.index(0)] * v.rank
    at[dim] = emit.index(size)
    padded = _put(emit, emit.splat(0, resized(v.tensor, dim, length + 2 * size)), v, at)
    (begin,) = emit.op("stablehlo.add", (offset, emit.index(size)), {}, [INDEX])
    (begin,) = emit.op("stablehlo.maximum", (begin, emit.index(0)), {}, [INDEX])
    (at[dim],) = emit.op("stablehlo.minimum", (begin, emit.index(length + size)), {}, [INDEX])
    return _cut(emit, padded, at, resized(v.tensor, dim, size).static_shape)


# ---------------------------------------------------------------- slices


def slices(op: Op, held: Sequence[Sharding | None], hint: Sharding | None, network: Network) -> Iterator[Special]:
    """A part of what is spread, from each process what it holds of it."""
    table = held[0]
    if op.name != "stablehlo.dynamic_slice" or table is None:
        return
    shape, result = op.operands[0].shape, op.results[0].tensor
    by_place = tuple([k for k, d in enumerate(table.dims) if d and result.static_shape[k] != shape[k]])
    if not by_place:
        return
    partial = tuple([d for k in by_place for d in table.dims[k]])
    made = Sharding(tuple([() if k in by_place else d for k, d in enumerate(table.dims)]))
    scattered = next(
        (k for k in range(result.rank) if hint is not None and hint.dims[k] == (*made.dims[k], *partial)
         and result.static_shape[k] % (made.parts(k) * prod(d.size for d in partial)) == 0),
        None,
    )  # fmt: skip
    final = made
    if scattered is not None:
        final = Sharding(tuple([(*d, *partial) if k == scattered else d for k, d in enumerate(made.dims)]))
    n, local = prod(d.size for d in partial), made.local_type(result)
    seconds = network.seconds((2 if scattered is None else 1) * local.size_bytes * (n - 1) / n, n)
    seconds += local.size_elems / network.work_per_second

    def build(emit: Emitter, given: Sequence[Value]) -> tuple[Value, ...]:
        tile = given[0]
        starts = _starts(emit, given[1:], shape, result.static_shape)
        sizes, offsets = list(local.static_shape), {}
        for k in by_place:
            block = tile.shape[k]
            sizes[k] = min(block, result.static_shape[k])
            starts[k], offsets[k] = _places(emit, starts[k], table.dims[k], block, result.static_shape[k])
        v = _cut(emit, tile, starts, sizes)
        for k, offset in offsets.items():
            (back,) = emit.op("stablehlo.negate", (offset,), {}, [INDEX])
            v = _shifted(emit, v, k, back, result.static_shape[k])
        reason = "each process gives what it holds of the part"
        if scattered is not None:
            return (emit.scattered(v, partial, scattered, combination(op), reason),)
        return (emit.reduced(v, partial, combination(op), reason),)

    yield Special((table, *[Sharding.whole(0)] * result.rank), final, seconds, build)


# ---------------------------------------------------------------- updates


def updates(op: Op, held: Sequence[Sharding | None], hint: Sharding | None, network: Network) -> Iterator[Special]:
    """Each process puts what falls into its tile; where the place is known, it is brought from where it is held."""
    if op.name != "stablehlo.dynamic_update_slice":
        return
    shape, part = op.operands[0].shape, op.operands[1].shape
    for into in in_order([held[0], hint]):
        by_place = tuple([k for k, d in enumerate(into.dims) if d and part[k] != shape[k]])
        if not by_place:
            continue
        starts = [Sharding.whole(0)] * len(shape)
        given = Sharding(tuple([() if k in by_place else d for k, d in enumerate(into.dims)]))
        work = given.local_type(op.operands[1].tensor).size_elems / network.work_per_second
        yield Special((into, given, *starts), into, work, _put_by_place(op, into, by_place))
        numbers = [_numbers(v) for v in op.operands[2:]]
        known = [int(n.reshape(-1)[0]) for n in numbers if n is not None]
        if len(known) == len(shape):
            known = [min(max(at, 0), n - m) for at, n, m in zip(known, shape, part, strict=True)]
            yield _put_from_windows(op, op.operands[1], into, known, network, starts)


def boxes(op: Op, held: Sequence[Sharding | None], hint: Sharding | None, network: Network) -> Iterator[Special]:
    """A scatter of one window at a place that is known, as `x.at[1:-1].set(y)` is printed: an update like the others."""
    if op.name != "stablehlo.scatter" or len(op.results) != 1 or op.operands[0].type != op.results[0].type:
        return
    s: ScatterDimensions = op.attr("scatter_dimension_numbers")
    found, shape, part = _numbers(op.operands[1]), op.operands[0].shape, op.operands[2].shape
    if found is None or found.size != len(s.scatter_dims_to_operand_dims) or s.inserted_window_dims or s.input_batching_dims:
        return
    if len(part) != len(shape) or (op.regions[0].results[0] is not op.regions[0].arguments[1] and not _adds(op)):
        return
    starts = [0] * len(shape)
    for k, at in zip(s.scatter_dims_to_operand_dims, found.reshape(-1), strict=True):
        starts[k] = int(at)
    if any(at < 0 or at + m > n for at, m, n in zip(starts, part, shape, strict=True)):
        return
    for into in in_order([held[0], hint]):
        if not into.is_whole:
            yield _put_from_windows(op, op.operands[2], into, starts, network, None)


def _adds(op: Op) -> bool:
    return combined_function(op.regions[0]) is not None


def _numbers(v: Value) -> np.ndarray | None:
    """The elements of a value that is made of constants alone."""
    op = v.op
    if op is None or not isinstance(v.type, TensorType) or not v.type.is_static or v.type.size_elems > _MOST_NUMBERS:
        return None
    if op.name == "stablehlo.constant":
        dense: DenseArray = op.attr("value")
        return np.asarray(dense.array)
    parts = [_numbers(x) for x in op.operands]
    given = [p for p in parts if p is not None]
    if not given or len(given) != len(parts):
        return None
    if op.name == "stablehlo.concatenate":
        return np.concatenate(given, op.attr("dimension"))
    if op.name == "stablehlo.reshape" or (op.name == "stablehlo.broadcast_in_dim" and given[0].size == 1):
        return np.broadcast_to(given[0].reshape(v.shape if given[0].size > 1 else (1,) * v.rank), v.shape)
    return None


def _put_by_place(op: Op, into: Sharding, by_place: tuple[int, ...]) -> Build:
    def build(emit: Emitter, given: Sequence[Value]) -> tuple[Value, ...]:
        tile, new = given[:2]
        shape, part = op.operands[0].shape, op.operands[1].shape
        starts = _starts(emit, given[2:], shape, part)
        sizes, offsets = list(new.shape), {}
        for k in by_place:
            sizes[k] = min(tile.shape[k], part[k])
            starts[k], offsets[k] = _places(emit, starts[k], into.dims[k], tile.shape[k], part[k])
        for k, offset in offsets.items():
            new = _shifted(emit, new, k, offset, sizes[k])
        here: Value | None = None
        for k, offset in offsets.items():
            inside = emit.within(new.tensor, k, offset, 0, part[k])
            here = inside if here is None else emit.both(here, inside)
        assert here is not None
        old = _cut(emit, tile, starts, sizes)
        (mixed,) = emit.op("stablehlo.select", (here, new, old), {}, [old.type])
        return (_put(emit, tile, mixed, starts),)

    return build


def _put_from_windows(
    op: Op, new: Value, into: Sharding, starts: Sequence[int], network: Network, scalars: Sequence[Sharding] | None
) -> Special:
    """Each process takes the window of an update that lies over its tile; `scalars`: of the places, where they are operands."""
    shape, part = op.operands[0].shape, new.shape
    by_place = tuple([k for k, d in enumerate(into.dims) if d and (part[k] != shape[k])])
    t, seconds = into.local_type(new.tensor), 0.0
    windows = {}
    for k in by_place:
        block = block_size(shape[k], into.dims[k])
        windows[k] = Window(-starts[k], block, block)
        seconds += window_seconds(windows[k], resized(t, k, part[k]), k, into.dims[k], network)
        t = resized(t, k, block)
    seconds += into.local_type(op.results[0].tensor).size_elems / network.work_per_second

    def build(emit: Emitter, given: Sequence[Value]) -> tuple[Value, ...]:
        tile, v = given[0], given[1] if scalars is not None else given[2]
        for k, w in windows.items():
            v = with_window(emit, v, part[k], k, into.dims[k], w, None, False, "an update reads its tile's part")
        at = [emit.index(0 if k in windows else n) for k, n in enumerate(starts)]
        here: Value | None = None
        for k, w in windows.items():
            begin = emit.tile_begin(into.dims[k], w.step)
            inside = emit.within(v.tensor, k, begin, starts[k], part[k] + starts[k])
            here = inside if here is None else emit.both(here, inside)
        old = _cut(emit, tile, at, v.shape)
        if op.regions and _adds(op):
            body = op.regions[0].ops[0]
            (v,) = emit.op(body.name, (old, v), dict(body.attributes), [v.type])
        if here is not None:
            (v,) = emit.op("stablehlo.select", (here, v, old), {}, [old.type])
        return (_put(emit, tile, v, at),)

    operands = (into, into, *scalars) if scalars is not None else (into, Sharding.whole(op.operands[1].rank), into)
    return Special(operands, into, seconds, build)
