"""From one sharding of a value to another: which moves, what they cost, and the ops that make them.

    slice       a process keeps a part of its tile           nothing is sent
    all_to_all  a digit goes from one dimension to another    a tile, but the part that stays
    all_gather  digits go                                     the larger tile, but the part that is there
    permute     tiles of the same size change places          a tile
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from hlo.attributes import ChannelHandle
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import definition
from hlo.types import ELEMENT_TYPES, TensorType
from tiling.mesh.network import Network
from tiling.mesh.shardings import Digit, Sharding, groups_along

__all__ = ["Communication", "Emitter", "Move", "moves_between", "moves_cost"]

_INDEX = TensorType((), ELEMENT_TYPES["i32"])


@dataclass(frozen=True)
class Move:
    """One move: of `digits` along `dim`, for an all_to_all onto `onto`; `before` and `after` are the shardings."""

    kind: str
    digits: tuple[Digit, ...]
    before: Sharding
    after: Sharding
    dim: int = -1
    onto: int = -1

    @property
    def members(self) -> int:
        """How many processes exchange."""
        return prod(d.size for d in self.digits)

    def sent_bytes(self, t: TensorType) -> int:
        """The bytes that a process sends for a value of type `t`."""
        n = self.members
        if self.kind == "slice":
            return 0
        held = self.before.local_type(t).size_bytes
        if self.kind == "permute":
            return held
        return held * (n - 1) // n if self.kind == "all_to_all" else held * (n - 1)


def _with(s: Sharding, k: int, digits: Sequence[Digit]) -> Sharding:
    return Sharding((*s.dims[:k], tuple(digits), *s.dims[k + 1 :]))


def moves_between(source: Sharding, target: Sharding) -> list[Move]:
    """The moves from one sharding to another: slices where they can be made, then exchanges, then what must be gathered.

    >>> x, y = Digit(2, 2, "x"), Digit(1, 2, "y")
    >>> [m.kind for m in moves_between(Sharding(((x, y), ())), Sharding(((x,), (y,))))]
    ['all_to_all']
    >>> [m.kind for m in moves_between(Sharding(((x,), ())), Sharding(((), (y,))))]
    ['slice', 'all_gather']
    """
    now, made = source, []

    def go(kind: str, digits: Sequence[Digit], after: Sharding, dim: int = -1, onto: int = -1) -> None:
        nonlocal now
        made.append(Move(kind, tuple(digits), now, after, dim, onto))
        now = after

    def is_begun(k: int) -> bool:
        return now.dims[k] == target.dims[k][: len(now.dims[k])]

    if set(source.digits) == set(target.digits) and source != target:
        parts = [source.parts(k) == target.parts(k) for k in range(len(source.dims))]
        if all(parts):
            return [Move("permute", source.digits, source, target)]
    while now != target:
        free = [
            (k, target.dims[k][len(now.dims[k]) :]) for k in range(len(now.dims))
            if is_begun(k) and len(target.dims[k]) > len(now.dims[k])
        ]  # fmt: skip
        sliced = next(((k, d[:1]) for k, d in free if d[0] not in now.digits), None)
        if sliced is not None:
            k, digits = sliced
            go("slice", digits, _with(now, k, (*now.dims[k], *digits)), k)
            continue
        moved = max(
            ((m, i, k) for k, d in free for i in range(len(now.dims)) if i != k and not is_begun(i)
             for m in range(1, len(d) + 1) if now.dims[i][-m:] == d[:m]),
            default=None,
        )  # fmt: skip
        if moved is not None:
            m, i, k = moved
            digits = now.dims[i][-m:]
            go("all_to_all", digits, _with(_with(now, i, now.dims[i][:-m]), k, (*now.dims[k], *digits)), i, k)
            continue
        k = next(k for k in range(len(now.dims)) if not is_begun(k))
        kept = 0
        while kept < len(target.dims[k]) and now.dims[k][kept] == target.dims[k][kept]:
            kept += 1
        go("all_gather", now.dims[k][kept:], _with(now, k, now.dims[k][:kept]), k)
    return made


def moves_cost(moves: Sequence[Move], t: TensorType, network: Network) -> float:
    """Seconds for some moves of a value of type `t`."""
    return sum(network.seconds(m.sent_bytes(t), m.members) for m in moves if m.kind != "slice")


@dataclass(frozen=True)
class Communication:
    """One collective of a partitioned program: its kind, digits, the bytes that each process sends, whose value, and why."""

    kind: str
    digits: tuple[Digit, ...]
    sent_bytes: int
    value: str
    reason: str

    def __str__(self) -> str:
        along = ", ".join(map(str, self.digits))
        return f"{self.kind} of {self.value} along {along}: each process sends {self.sent_bytes} bytes; {self.reason}"


@dataclass
class Emitter:
    """Appends ops to a block of the partitioned program."""

    processes: int
    block: Block
    told: list[Communication]
    channels: Callable[[], int]
    _numbers: dict[tuple[Digit, ...], Value] = field(default_factory=dict)

    def op(
        self,
        name: str,
        operands: Sequence[Value],
        attributes: dict[str, Any],
        types: Sequence[Any],
        regions: Sequence[Block] = (),
    ) -> tuple[Value, ...]:
        """Appends an op."""
        made = Op(definition(name), operands, attributes, regions, types)
        self.block.ops.append(made)
        return made.results

    def index(self, number: int) -> Value:
        """A constant index."""
        value = DenseArray(_INDEX, np.array(number, np.int32))
        return self.op("stablehlo.constant", (), {"value": value}, [_INDEX])[0]

    def number(self, digits: tuple[Digit, ...]) -> Value:
        """The number that digits of this process form."""
        if digits not in self._numbers:
            if not digits:
                self._numbers[digits] = self.index(0)
                return self._numbers[digits]
            if len(digits) > 1:
                high, low = self.number(digits[:-1]), self.number(digits[-1:])
                (wide,) = self.op("stablehlo.multiply", (high, self.index(digits[-1].size)), {}, [_INDEX])
                (self._numbers[digits],) = self.op("stablehlo.add", (wide, low), {}, [_INDEX])
                return self._numbers[digits]
            (own,) = self.op("stablehlo.partition_id", (), {}, [TensorType((), ELEMENT_TYPES["ui32"])])
            (value,) = self.op("stablehlo.convert", (own,), {}, [_INDEX])
            (d,) = digits
            if d.stride > 1:
                (value,) = self.op("stablehlo.divide", (value, self.index(d.stride)), {}, [_INDEX])
            if d.stride * d.size < self.processes:
                (value,) = self.op("stablehlo.remainder", (value, self.index(d.size)), {}, [_INDEX])
            self._numbers[digits] = value
        return self._numbers[digits]

    def channel(self) -> ChannelHandle:
        """A channel of its own."""
        return ChannelHandle(self.channels(), 1)

    def told_of(self, kind: str, digits: tuple[Digit, ...], sent_bytes: int, value: Value, reason: str) -> None:
        """Notes a collective."""
        name = f"%{value.name}" if value.name else str(value.type)
        self.told.append(Communication(kind, digits, sent_bytes, name, reason))

    # ------------------------------------------------------------ moves

    def moved(self, v: Value, t: TensorType, moves: Sequence[Move], reason: str) -> Value:
        """A value of whole type `t` after some moves."""
        emits = {"slice": self._slice, "all_gather": self._gather, "all_to_all": self._exchange, "permute": self._permute}
        for m in moves:
            after = m.after.local_type(t)
            if m.kind != "slice":
                self.told_of(m.kind, m.digits, m.sent_bytes(t), v, reason)
            v = emits[m.kind](v, t, m, after)
        return v

    def _slice(self, v: Value, t: TensorType, m: Move, after: TensorType) -> Value:
        starts = [self.index(0)] * after.rank
        (at,) = self.op("stablehlo.multiply", (self.number(m.digits), self.index(after.static_shape[m.dim])), {}, [_INDEX])
        starts[m.dim] = at
        return self.op("stablehlo.dynamic_slice", (v, *starts), {"slice_sizes": after.static_shape}, [after])[0]

    def _gather(self, v: Value, t: TensorType, m: Move, after: TensorType) -> Value:
        attributes = {
            "all_gather_dim": m.dim, "replica_groups": groups_along(m.digits, self.processes), "channel_handle": self.channel(),
            "use_global_device_ids": True,
        }  # fmt: skip
        return self.op("stablehlo.all_gather", (v,), attributes, [after])[0]

    def _exchange(self, v: Value, t: TensorType, m: Move, after: TensorType) -> Value:
        attributes = {
            "split_dimension": m.onto, "concat_dimension": m.dim, "split_count": m.members,
            "replica_groups": groups_along(m.digits, self.processes), "channel_handle": self.channel(),
        }  # fmt: skip
        return self.op("stablehlo.all_to_all", (v,), attributes, [after])[0]

    def _permute(self, v: Value, t: TensorType, m: Move, after: TensorType) -> Value:
        shape = t.static_shape
        holders: dict[tuple[tuple[int, ...], int], int] = {}
        rest = [p - sum(d.of(p) * d.stride for d in m.digits) for p in range(self.processes)]
        for p in range(self.processes):
            holders[m.before.start(shape, p), rest[p]] = p
        pairs = tuple([(holders[m.after.start(shape, p), rest[p]], p) for p in range(self.processes)])
        return self.op(
            "stablehlo.collective_permute", (v,), {"source_target_pairs": pairs, "channel_handle": self.channel()}, [after]
        )[0]

    # ------------------------------------------------------------ halos

    def with_halo(
        self, v: Value, digits: tuple[Digit, ...], dim: int, reach: tuple[int, int], fill: Value | None, reason: str
    ) -> Value:
        """A tile with the elements of its neighbours that lie next to it along a dimension; `fill`, or zeros, at the ends."""
        parts = [v]
        if reach[0] < 0:
            parts.insert(0, self._from_neighbour(v, digits, dim, -reach[0], 1, fill, reason))
        if reach[1] > 0:
            parts.append(self._from_neighbour(v, digits, dim, reach[1], -1, fill, reason))
        if len(parts) == 1:
            return v
        shape = list(v.tensor.static_shape)
        shape[dim] = sum(p.tensor.static_shape[dim] for p in parts)
        made = TensorType(tuple(shape), v.tensor.element)
        return self.op("stablehlo.concatenate", parts, {"dimension": dim}, [made])[0]

    def _from_neighbour(
        self, v: Value, digits: tuple[Digit, ...], dim: int, count: int, step: int, fill: Value | None, reason: str
    ) -> Value:
        """The `count` last elements of the tile before (step 1), or the first ones of the tile after (step -1)."""
        shape = v.tensor.static_shape
        starts, limits = [0] * len(shape), list(shape)
        if step > 0:
            starts[dim] = shape[dim] - count
        else:
            limits[dim] = count
        cut = TensorType(tuple([b - a for a, b in zip(starts, limits, strict=True)]), v.tensor.element)
        bounds = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": (1,) * len(shape)}
        (mine,) = self.op("stablehlo.slice", (v,), bounds, [cut])
        pairs = [(a, b) for row in groups_along(digits, self.processes) for a, b in pairwise(row[::step])]
        self.told_of("halo", digits, cut.size_bytes, v, reason)
        attributes = {"source_target_pairs": tuple(pairs), "channel_handle": self.channel()}
        (theirs,) = self.op("stablehlo.collective_permute", (mine,), attributes, [cut])
        if fill is None:
            return theirs
        boolean = TensorType((), ELEMENT_TYPES["i1"])
        end = 0 if step > 0 else prod(d.size for d in digits) - 1
        (is_end,) = self.op(
            "stablehlo.compare", (self.number(digits), self.index(end)), {"comparison_direction": "EQ"}, [boolean]
        )
        (wide,) = self.op("stablehlo.broadcast_in_dim", (fill,), {"broadcast_dimensions": ()}, [cut])
        return self.op("stablehlo.select", (is_end, wide, theirs), {}, [cut])[0]

    # ------------------------------------------------------------ partial results

    def reduced(self, v: Value, digits: tuple[Digit, ...], body: Block, reason: str) -> Value:
        """The combination of the processes' partial results, on all of them."""
        n = prod(d.size for d in digits)
        self.told_of("all_reduce", digits, 2 * v.tensor.size_bytes * (n - 1) // n, v, reason)
        attributes = {
            "replica_groups": groups_along(digits, self.processes), "channel_handle": self.channel(),
            "use_global_device_ids": True,
        }  # fmt: skip
        return self.op("stablehlo.all_reduce", (v,), attributes, [v.type], [body])[0]

    def scattered(self, v: Value, digits: tuple[Digit, ...], dim: int, body: Block, reason: str) -> Value:
        """The combination of the processes' partial results, a part of it on each."""
        n = prod(d.size for d in digits)
        self.told_of("reduce_scatter", digits, v.tensor.size_bytes * (n - 1) // n, v, reason)
        shape = list(v.tensor.static_shape)
        shape[dim] //= n
        attributes = {
            "scatter_dimension": dim, "replica_groups": groups_along(digits, self.processes), "channel_handle": self.channel(),
            "use_global_device_ids": True,
        }  # fmt: skip
        made = TensorType(tuple(shape), v.tensor.element)
        return self.op("stablehlo.reduce_scatter", (v,), attributes, [made], [body])[0]
