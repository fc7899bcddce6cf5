"""Calls of programs that are over sooner than their call is made: every table is prepared, results come from NumPy.

A program qualifies when all that it moves fits a small cache and one thread runs all its kernels: where no task is worth sharing,
a call may use no other thread, or what others would save is less than what the thorough call costs. Anything unusual about an
argument (another type, not contiguous, a list) is left to the thorough call.
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

__all__ = ["SMALL_BYTES", "QuickCall", "address_of"]

SMALL_BYTES = 1 << 16
"""The most that a short call moves. Results up to this size are aligned as NumPy aligns them, larger ones to cache lines."""
CALL_SECONDS = 1e-5  # what the thorough call takes for itself
SMALL_SECONDS = 1e-4  # what a short call may take, as it may hold the interpreter's lock meanwhile

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
        self.scratch_offset = -(-arena_bytes // 64) * 64
        # append and pop of a deque are atomic: two calls never share a run's memory
        self._runs: deque[tuple[np.ndarray, launch.SerialRun]] = deque()
        self.direct: DirectCall | None = None
        # It runs kernels alone, no loops and no branches, and holds the interpreter's lock meanwhile.
        steps = [s for s in plan.steps if isinstance(s, launch.Step) and not s.is_long]
        if is_available() and len(steps) == len(plan.steps):
            self._memory, known, scratch = self._placed()
            self.direct = DirectCall(arguments, results, known, steps, scratch)

    def _placed(self) -> tuple[np.ndarray, dict[int, int], int]:
        """(memory of a run's own, the addresses that stay in it and elsewhere, that of its scratch)."""
        memory = np.zeros(self.scratch_offset + self.plan.scratch_stride + 64, np.uint8)
        base = -(-memory.ctypes.data // 64) * 64
        known = {slot: base + offset for slot, offset in self.offsets.items()} | dict(self.fixed)
        return memory, known, base + self.scratch_offset

    @property
    def call(self) -> Callable[..., tuple[np.ndarray, ...] | None]:
        """`call(*arrays)`, the fastest there is here."""
        return self.direct.call if self.direct is not None else lambda *arrays: self(arrays)

    @staticmethod
    def takes(plan: launch.Plan, moved_bytes: int, seconds: float, threads: int) -> bool:
        """True for a program that gains from it: one that is small, and that `threads` would not end sooner.

        `seconds` is what one thread takes for all kernels, each run once.
        """
        if not plan.steps or any(isinstance(s, launch.Host) for s in plan.steps):
            return False
        saved = seconds * (1 - 1 / threads)
        is_brief = saved <= CALL_SECONDS and seconds <= SMALL_SECONDS and all(isinstance(s, launch.Step) for s in plan.steps)
        return _QUICK and (is_brief or not plan.parallel) and moved_bytes <= SMALL_BYTES and plan.scratch_stride <= SMALL_BYTES

    def __call__(self, arrays: Sequence[Any]) -> tuple[np.ndarray, ...] | None:
        if len(arrays) != len(self.shapes):
            return None
        for a, shape, dtype in zip(arrays, self.shapes, self.dtypes, strict=True):
            if type(a) is not np.ndarray or a.dtype != dtype or a.shape != shape:
                return None
            if not (a.flags.c_contiguous and a.flags.aligned):
                return None
        try:
            memory, run = self._runs.pop()
        except IndexError:
            memory, known, scratch = self._placed()
            run = launch.SerialRun(self.plan, known, scratch)
        try:
            return self._through(run, arrays)
        finally:
            self._runs.append((memory, run))

    def _through(self, run: launch.SerialRun, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        run.reset()
        for slot, a in zip(self.argument_slots, arrays, strict=True):
            run.set_address(slot, _word_at(id(a) + _DATA_OFFSET).value)
        results = tuple([np.empty(shape, dtype) for shape, dtype in self.made])
        for slot, r in zip(self.result_slots, results, strict=True):
            run.set_address(slot, _word_at(id(r) + _DATA_OFFSET).value)
        run.run()
        return results
