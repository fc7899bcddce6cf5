"""Calls of programs that are over sooner than their call is made: every table is prepared, results come from NumPy.

A program qualifies when one thread runs all its kernels anyway and all that it moves fits a small cache. Anything unusual about
an argument (another type, not contiguous, a list) is left to the thorough call.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from codegen.call.direct import DirectCall, is_available
from codegen.launcher import launch
from codegen.native import interrupts

__all__ = ["SMALL_BYTES", "QuickCall", "address_of"]

SMALL_BYTES = 1 << 16
"""The most that a short call moves. Results up to this size are aligned as NumPy aligns them, larger ones to cache lines."""

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_word_at = ctypes.c_int64.from_address
# An array object starts with its reference count and its type; then comes the address of its data.
_DATA_OFFSET = object.__basicsize__


def _finds_addresses() -> bool:
    """True where the data's address is read from the right place in an array object (CPython; other layouts differ)."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    arrays = [np.zeros(n) for n in (1, 5, 1000)]
    arrays.append(arrays[1][2:])
    return all(_word_at(id(a) + _DATA_OFFSET).value == a.ctypes.data for a in arrays)


_QUICK = _finds_addresses()


def address_of(a: np.ndarray) -> int:
    """The address of an array's first element.

    >>> a = np.arange(3)
    >>> address_of(a) == a.ctypes.data
    True
    """
    return _word_at(id(a) + _DATA_OFFSET).value if _QUICK else int(a.ctypes.data)


class _Frame:
    """The tables of one call in flight, made once and used again."""

    def __init__(self, call: QuickCall) -> None:
        self.memory = np.zeros(call.memory_bytes + 64, np.uint8)
        base = -(-self.memory.ctypes.data // 64) * 64
        known = {slot: base + offset for slot, offset in call.offsets.items()} | dict(call.fixed)
        places: dict[int, list[tuple[Any, int]]] = {}
        self.tables = []
        self.calls = []
        self.arguments: list[tuple[tuple[Any, int], ...]] = []
        self.loops: launch.SerialRun | None = None
        if not call.plan.is_straight:
            self.loops = launch.SerialRun(call.plan, known, base + call.scratch_offset)
            return
        for step, entry in zip(call.steps, call.entries, strict=True):
            table = (ctypes.c_int64 * max(1, len(step.buffers)))()
            for k, slot in enumerate(step.buffers):
                if slot in known:
                    table[k] = known[slot]
                else:
                    places.setdefault(slot, []).append((table, k))
            self.tables.append(table)
            self.calls.append((entry, step.tasks, ctypes.addressof(table), base + call.scratch_offset))
        self.arguments = [tuple(places.get(slot, ())) for slot in call.argument_slots]
        self.results = [tuple(places.get(slot, ())) for slot in call.result_slots]


class QuickCall:
    """`call(arrays)` gives the results, or None when an argument needs the thorough call."""

    def __init__(
        self,
        arguments: Sequence[tuple[int, tuple[int, ...], Any]],
        results: Sequence[tuple[int, tuple[int, ...], Any]],
        fixed: Mapping[int, int],
        offsets: Mapping[int, int],
        arena_bytes: int,
        plan: launch.Plan,
    ) -> None:
        self.argument_slots = [slot for slot, _, _ in arguments]
        self.result_slots = [slot for slot, _, _ in results]
        self.shapes = [shape for _, shape, _ in arguments]
        self.dtypes = [np.dtype(dtype) for _, _, dtype in arguments]
        self.made = [(shape, np.dtype(dtype)) for _, shape, dtype in results]
        self.fixed, self.offsets = fixed, offsets
        self.plan = plan
        self.nowhere: list[tuple[tuple[Any, int], ...]] = [()] * len(self.shapes)
        self.scratch_offset = -(-arena_bytes // 64) * 64
        self.memory_bytes = self.scratch_offset + plan.scratch_stride
        self.steps = [s for s in plan.steps if isinstance(s, launch.Step)]
        self.raised = interrupts.raised_word() if any(s.is_long for s in self.steps) else None
        self.entries = [_ENTRY(s.kernel.entry) for s in self.steps]
        # append and pop of a deque are atomic: two calls never share a frame
        self._frames: deque[_Frame] = deque()
        self.direct: DirectCall | None = None
        # It runs kernels alone, no loops and no branches, and holds the interpreter's lock meanwhile.
        if is_available() and len(self.steps) == len(plan.steps) and not any(s.is_long for s in self.steps):
            self._memory = np.zeros(self.memory_bytes + 64, np.uint8)
            base = -(-self._memory.ctypes.data // 64) * 64
            known = {slot: base + offset for slot, offset in offsets.items()} | dict(fixed)
            self.direct = DirectCall(arguments, results, known, self.steps, base + self.scratch_offset)

    @property
    def call(self) -> Callable[..., tuple[np.ndarray, ...] | None]:
        """`call(*arrays)`, the fastest there is here."""
        return self.direct.call if self.direct is not None else lambda *arrays: self(arrays)

    @staticmethod
    def takes(plan: launch.Plan, moved_bytes: int) -> bool:
        """True for a program that gains from it: one thread's, and small."""
        if not plan.steps or any(isinstance(s, launch.Host) for s in plan.steps):
            return False
        return _QUICK and not plan.parallel and moved_bytes <= SMALL_BYTES and plan.scratch_stride <= SMALL_BYTES

    def __call__(self, arrays: Sequence[Any]) -> tuple[np.ndarray, ...] | None:
        if len(arrays) != len(self.shapes):
            return None
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = _Frame(self)
        try:
            return self._framed(frame, arrays)
        finally:
            self._frames.append(frame)

    def _framed(self, frame: _Frame, arrays: Sequence[Any]) -> tuple[np.ndarray, ...] | None:
        for a, shape, dtype, places in zip(arrays, self.shapes, self.dtypes, frame.arguments or self.nowhere, strict=True):
            if type(a) is not np.ndarray or a.dtype != dtype or a.shape != shape:
                return None
            flags = a.flags
            if not (flags.c_contiguous and flags.aligned):
                return None
            address = _word_at(id(a) + _DATA_OFFSET).value
            for table, k in places:
                table[k] = address
        if frame.loops is not None:
            return self._through_loops(frame.loops, arrays)
        results = []
        for (shape, dtype), places in zip(self.made, frame.results, strict=True):
            r = np.empty(shape, dtype)
            results.append(r)
            address = _word_at(id(r) + _DATA_OFFSET).value
            for table, k in places:
                table[k] = address
        for entry, tasks, table, scratch in frame.calls:
            entry(0, tasks, table, scratch)
        if self.raised is not None and self.raised.value:
            interrupts.raise_pending()
        return tuple(results)

    def _through_loops(self, run: launch.SerialRun, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        run.reset()
        for slot, a in zip(self.argument_slots, arrays, strict=True):
            run.set_address(slot, _word_at(id(a) + _DATA_OFFSET).value)
        results = tuple([np.empty(shape, dtype) for shape, dtype in self.made])
        for slot, r in zip(self.result_slots, results, strict=True):
            run.set_address(slot, _word_at(id(r) + _DATA_OFFSET).value)
        run.run()
        return results
