"""The ops that one process runs to move values: slices by its number, collectives, and what lies over the ends of tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from hlo.attributes import ChannelHandle
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import definition
from hlo.types import ELEMENT_TYPES, TensorType
from tiling.mesh.moves import Move
from tiling.mesh.shardings import Digit, groups_along, shown

__all__ = ["INDEX", "Communication", "Emitter", "named", "resized"]

INDEX = TensorType((), ELEMENT_TYPES["i32"])
_BOOLEAN = ELEMENT_TYPES["i1"]


def named(v: Value) -> str:
    """A value's name, or its type where it has none."""
    return f"%{v.name}" if v.name else str(v.type)


def resized(t: TensorType, dim: int, size: int) -> TensorType:
    """A type with another size along a dimension."""
    return TensorType((*t.static_shape[:dim], size, *t.static_shape[dim + 1 :]), t.element)


@dataclass(frozen=True)
class Communication:
    """One collective of a partitioned program: its kind, digits, the bytes that each process sends, whose value, and why."""

    kind: str
    digits: tuple[Digit, ...]
    sent_bytes: int
    value: str
    reason: str
    alternative: str = ""  # what was dearer
    times: int = 1  # that it happens in a call, as far as is known

    def __str__(self) -> str:
        along = ", ".join(shown(self.digits))
        what = f"{self.kind} of {self.value} along {along}"
        dearer = f"\n    {self.alternative}" if self.alternative else ""
        often = f", {self.times} times" if self.times > 1 else ""
        return f"{what}: each process sends {self.sent_bytes} bytes{often}; {self.reason}{dearer}"


@dataclass
class Emitter:
    """Appends ops to a block of the partitioned program."""

    processes: int
    block: Block
    told: list[Communication]
    channels: Callable[[], int]
    alternative: str = ""
    times: int = 1  # that the block runs in a call, as far as is known
    outer: Emitter | None = None  # of the block that this one is a region in
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
        value = DenseArray(INDEX, np.array(number, np.int32))
        return self.op("stablehlo.constant", (), {"value": value}, [INDEX])[0]

    def number(self, digits: tuple[Digit, ...]) -> Value:
        """The number that digits of this process form; of a loop's body, found out before the loop."""
        if self.outer is not None:
            return self.outer.number(digits)
        if digits not in self._numbers:
            if not digits:
                self._numbers[digits] = self.index(0)
                return self._numbers[digits]
            if len(digits) > 1:
                high, low = self.number(digits[:-1]), self.number(digits[-1:])
                (wide,) = self.op("stablehlo.multiply", (high, self.index(digits[-1].size)), {}, [INDEX])
                (self._numbers[digits],) = self.op("stablehlo.add", (wide, low), {}, [INDEX])
                return self._numbers[digits]
            (own,) = self.op("stablehlo.partition_id", (), {}, [TensorType((), ELEMENT_TYPES["ui32"])])
            (value,) = self.op("stablehlo.convert", (own,), {}, [INDEX])
            (d,) = digits
            if d.stride > 1:
                (value,) = self.op("stablehlo.divide", (value, self.index(d.stride)), {}, [INDEX])
            if d.stride * d.size < self.processes:
                (value,) = self.op("stablehlo.remainder", (value, self.index(d.size)), {}, [INDEX])
            self._numbers[digits] = value
        return self._numbers[digits]

    def channel(self) -> ChannelHandle:
        """A channel of its own."""
        return ChannelHandle(self.channels(), 1)

    def told_of(self, kind: str, digits: tuple[Digit, ...], sent_bytes: int, value: Value, reason: str) -> None:
        """Notes a collective."""
        name = named(value)
        self.told.append(Communication(kind, digits, sent_bytes, name, reason, self.alternative, self.times))

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

    def sliced(self, v: Value, dim: int, start: int, stop: int) -> Value:
        """The elements [start, stop) along a dimension."""
        t = v.tensor
        if (start, stop) == (0, t.static_shape[dim]):
            return v
        starts, stops = [0] * t.rank, list(t.static_shape)
        starts[dim], stops[dim] = start, stop
        bounds = {"start_indices": tuple(starts), "limit_indices": tuple(stops), "strides": (1,) * t.rank}
        return self.op("stablehlo.slice", (v,), bounds, [resized(t, dim, stop - start)])[0]

    def lengthened(self, v: Value, dim: int, size: int) -> Value:
        """A value with zeros behind its end, up to a size."""
        more = size - v.tensor.static_shape[dim]
        if not more:
            return v
        zeros = (0,) * v.rank
        edges = {"edge_padding_low": zeros, "edge_padding_high": tuple([more if k == dim else 0 for k in range(v.rank)])}
        zero = self.splat(0, TensorType((), v.tensor.element))
        return self.op("stablehlo.pad", (v, zero), edges | {"interior_padding": zeros}, [resized(v.tensor, dim, size)])[0]

    def splat(self, number: float, t: TensorType) -> Value:
        """A constant of one number."""
        array = np.broadcast_to(np.asarray(number).astype(t.dtype), t.static_shape)
        return self.op("stablehlo.constant", (), {"value": DenseArray(t, array)}, [t])[0]

    def spread(self, scalar: Value, t: TensorType) -> Value:
        """A scalar in all elements of a type's shape."""
        made = TensorType(t.shape, scalar.tensor.element)
        return self.op("stablehlo.broadcast_in_dim", (scalar,), {"broadcast_dimensions": ()}, [made])[0]

    def within(self, t: TensorType, dim: int, first: Value, low: int, high: int) -> Value:
        """Where `first + i`, i the index along a dimension, is in [low, high)."""
        numbers = TensorType(t.shape, INDEX.element)
        (i,) = self.op("stablehlo.iota", (), {"iota_dimension": dim}, [numbers])
        (at,) = self.op("stablehlo.add", (i, self.spread(first, t)), {}, [numbers])
        return self.both(self.compared(at, "GE", low), self.compared(at, "LT", high))

    def compared(self, v: Value, direction: str, number: int) -> Value:
        """Where a value is so in comparison with a number."""
        truth = TensorType(v.tensor.shape, _BOOLEAN)
        return self.op("stablehlo.compare", (v, self.splat(number, v.tensor)), {"comparison_direction": direction}, [truth])[0]

    def both(self, a: Value, b: Value) -> Value:
        """Where both hold."""
        return self.op("stablehlo.and", (a, b), {}, [a.type])[0]

    def masked(self, v: Value, dim: int, first: Value, low: int, high: int, fill: Value | None) -> Value:
        """`v` where `first + i`, i the index along a dimension, is in [low, high), else `fill` (None: zero)."""
        t = v.tensor
        outside = self.splat(0, t) if fill is None else self.spread(fill, t)
        return self.op("stablehlo.select", (self.within(t, dim, first, low, high), v, outside), {}, [t])[0]

    def tile_begin(self, digits: tuple[Digit, ...], block: int) -> Value:
        """The first index of this process's tile of `block` elements."""
        return self.op("stablehlo.multiply", (self.number(digits), self.index(block)), {}, [INDEX])[0]

    def _slice(self, v: Value, t: TensorType, m: Move, after: TensorType) -> Value:
        v = self.lengthened(v, m.dim, after.static_shape[m.dim] * m.members)
        starts = [self.index(0)] * after.rank
        (at,) = self.op("stablehlo.multiply", (self.number(m.digits), self.index(after.static_shape[m.dim])), {}, [INDEX])
        starts[m.dim] = at
        return self.op("stablehlo.dynamic_slice", (v, *starts), {"slice_sizes": after.static_shape}, [after])[0]

    def _gather(self, v: Value, t: TensorType, m: Move, after: TensorType) -> Value:
        attributes = {
            "all_gather_dim": m.dim, "replica_groups": groups_along(m.digits, self.processes), "channel_handle": self.channel(),
            "use_global_device_ids": True,
        }  # fmt: skip
        (made,) = self.op("stablehlo.all_gather", (v,), attributes, [resized(after, m.dim, v.shape[m.dim] * m.members)])
        return self.sliced(made, m.dim, 0, after.static_shape[m.dim])

    def _exchange(self, v: Value, t: TensorType, m: Move, after: TensorType) -> Value:
        v = self.lengthened(v, m.onto, after.static_shape[m.onto] * m.members)
        attributes = {
            "split_dimension": m.onto, "concat_dimension": m.dim, "split_count": m.members,
            "replica_groups": groups_along(m.digits, self.processes), "channel_handle": self.channel(),
        }  # fmt: skip
        (made,) = self.op("stablehlo.all_to_all", (v,), attributes, [resized(after, m.dim, v.shape[m.dim] * m.members)])
        return self.sliced(made, m.dim, 0, after.static_shape[m.dim])

    def _permute(self, v: Value, t: TensorType, m: Move, after: TensorType) -> Value:
        shape = t.static_shape
        holders: dict[tuple[tuple[int, ...], int], list[int]] = {}
        rest = [p - sum(d.of(p) * d.stride for d in m.digits) for p in range(self.processes)]
        had, wanted = ([(s.start(shape, p), rest[p]) for p in range(self.processes)] for s in (m.before, m.after))
        for p in range(self.processes):  # of copies each sends to one process, and those that have their tile keep it
            if had[p] != wanted[p]:
                holders.setdefault(had[p], []).append(p)
        pairs = tuple([(p if had[p] == wanted[p] else holders[wanted[p]].pop(0), p) for p in range(self.processes)])
        return self.op(
            "stablehlo.collective_permute", (v,), {"source_target_pairs": pairs, "channel_handle": self.channel()}, [after]
        )[0]

    def gathered(self, v: Value, digits: tuple[Digit, ...], dim: int, reason: str) -> Value:
        """The values of the processes that differ in some digits, side by side along a dimension, on all of them."""
        n = prod(d.size for d in digits)
        self.told_of("all_gather", digits, v.tensor.size_bytes * (n - 1), v, reason)
        attributes = {
            "all_gather_dim": dim, "replica_groups": groups_along(digits, self.processes), "channel_handle": self.channel(),
            "use_global_device_ids": True,
        }  # fmt: skip
        made = resized(v.tensor, dim, v.shape[dim] * n)
        return self.op("stablehlo.all_gather", (v,), attributes, [made])[0]

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
