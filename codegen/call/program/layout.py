"""The memories of a call, by number: what is given, what is made, constants, and what lies between, in one arena."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codegen.call.program.assembly import Assembly
from codegen.call.program.lifetimes import Lifetime, place
from codegen.call.program.nodes import Compute
from codegen.call.quick import SMALL_BYTES, QuickCall, address_of
from codegen.launcher import launch, memory
from hlo.module import DenseArray, Value
from hlo.registry import Literal
from tiling import Plan

__all__ = ["LINE_BYTES", "Layout", "in_lines", "laid_out", "literal"]

LINE_BYTES = 64
READ_AGAIN = 8  # times the size of an argument that a kernel which reads it goes through


@dataclass(frozen=True, eq=False)
class Layout:
    """Where a call finds its `count` memories.

    `given` and `made` are the arguments and results, each with its memory's number: None for one that no step touches. `fixed`
    are the constants. `offsets` are places in an arena of `arena_bytes`; so are those of the `copies` of small arguments:
    (memory, place, bytes). `pooled` are the results that come from the pool, in whole lines of the cache; NumPy makes the rest.
    `written_over` are the arguments whose memory is a result's, as (argument, result): a call copies what it may not change.
    """

    count: int
    given: tuple[tuple[int | None, Value], ...]
    made: tuple[tuple[int | None, Value], ...]
    fixed: tuple[tuple[int, np.ndarray], ...]
    offsets: Mapping[int, int]
    copies: tuple[tuple[int, int, int], ...]
    arena_bytes: int
    pooled: frozenset[int]
    written_over: tuple[tuple[int, int], ...] = ()

    @property
    def fixed_addresses(self) -> dict[int, int]:
        """The constants' addresses, by the number of their memory."""
        return {slot: address_of(a) for slot, a in self.fixed}

    @property
    def kept_slots(self) -> set[int]:
        """The memories of arguments and constants, which a result that is one of them is copied from."""
        mine = {slot for slot, _ in self.given if slot is not None} | {slot for slot, _ in self.fixed}
        return mine - self.shared_slots

    @property
    def shared_slots(self) -> frozenset[int | None]:
        """The memories of the arguments that are written over."""
        return frozenset(self.given[k][0] for k, _ in self.written_over)

    @property
    def made_bytes(self) -> int:
        """The bytes of results that a call has to find memory for, which is not an argument's."""
        taken = {result for _, result in self.written_over}
        return sum(memory.rounded_bytes(v.tensor.size_bytes) for k, (_, v) in enumerate(self.made) if k not in taken)

    def quick_call(self, steps: launch.Plan, seconds: float, threads: int) -> QuickCall | None:
        """The short way to call a small program, or None. `seconds` and `threads` are as in `QuickCall.takes`."""
        moved = self.arena_bytes + sum(v.tensor.size_bytes for _, v in (*self.given, *self.made))
        if not QuickCall.takes(steps, moved, seconds, threads):
            return None
        slots = [slot for slot, _ in self.made]
        fixed = self.fixed_addresses
        if None in slots or len(set(slots)) != len(slots) or set(slots) & {*(slot for slot, _ in self.given), *fixed}:
            return None
        rows = [(slot, v.shape, v.tensor.dtype) for slot, v in (*self.given, *self.made) if slot is not None]
        arguments = len(self.given)
        return QuickCall(rows[:arguments], rows[arguments:], fixed, self.offsets, self.arena_bytes, steps)


def laid_out(made: Plan, assembly: Assembly, lives: Mapping[int, Sequence[int]], computes: Sequence[Compute]) -> Layout:
    """The layout of a plan's memories, each of which is in use from the first to the last of its `lives`."""
    slot = assembly.known_slot
    given, results = (tuple((slot(v), v) for v in vs) for vs in (made.program.arguments, made.program.results))
    fixed = _constants(made, slot)
    elsewhere = {s for s, _ in (*given, *results, *fixed)}
    inner = [s for s in lives if s not in elsewhere]
    offsets, inner_bytes = place([Lifetime(assembly.sizes[s], lives[s][0], lives[s][1]) for s in inner])
    largest = _largest(computes)
    over = tuple(sorted(made.written_over.items()))
    copies, arena_bytes = _copies([(s, v) for k, (s, v) in enumerate(given) if k not in dict(over)], largest, inner_bytes)
    # NumPy makes a small result in a tenth of the time, and a kernel that goes through much more memory writes to it for longer.
    pooled = frozenset(
        slot for slot, v in results if slot is not None
        and (v.tensor.size_bytes > SMALL_BYTES or largest.get(slot, 0) >= READ_AGAIN * max(v.tensor.size_bytes, SMALL_BYTES))
    )  # fmt: skip
    offsets_of = dict(zip(inner, offsets, strict=True))
    return Layout(assembly.count, given, results, fixed, offsets_of, copies, arena_bytes, pooled, over)


def literal(v: Value) -> np.ndarray:
    """An array of its own with the elements of a constant."""
    assert v.op is not None
    dense: DenseArray = v.op.attr("value")
    return np.array(dense.array)


def _constants(made: Plan, slot_of: Callable[[Value], int | None]) -> tuple[tuple[int, np.ndarray], ...]:
    """Memories of constants that kernels or results read."""
    found: dict[int, np.ndarray] = {}
    for op in (op for p in made.nested() for op in p.program.ops):
        slot = slot_of(op.results[0]) if isinstance(op.definition.semantics, Literal) else None
        if slot is not None and slot not in found:
            dense: DenseArray = op.attr("value")
            found[slot] = memory.in_lines(dense.array)
    return tuple(found.items())


def _largest(computes: Sequence[Compute]) -> dict[int, int]:
    """Memory -> the bytes of the largest buffer of the kernels that read or write it."""
    largest: dict[int, int] = {}
    for n in computes:
        most = max(b.size_bytes for b in n.source.buffers)
        largest |= {slot: max(largest.get(slot, 0), most) for slot in n.slots}
    return largest


def _copies(
    given: Sequence[tuple[int | None, Value]], largest: Mapping[int, int], total: int
) -> tuple[tuple[tuple[int, int, int], ...], int]:
    """Room in the arena, `total` bytes so far, for copies of small arguments that kernels read again and again.

    NumPy aligns to 16 bytes: half of the vectors of such a row would be read from two cache lines each.
    """
    copies: list[tuple[int, int, int]] = []
    for slot, v in given:
        size = v.tensor.size_bytes
        if slot is not None and LINE_BYTES < size <= SMALL_BYTES and largest.get(slot, 0) >= READ_AGAIN * size:
            copies.append((slot, total, size))
            total += in_lines(size)
    return tuple(copies), total


def in_lines(size_bytes: int) -> int:
    """The bytes of the cache lines that hold so many.

    >>> in_lines(1), in_lines(64), in_lines(65)
    (64, 64, 128)
    """
    return -(-size_bytes // LINE_BYTES) * LINE_BYTES
