"""TILEWRIGHT_DEBUG=guard: every array of a call between pages that nobody may touch, canaries in the rest of its own pages.

A block ends where a page ends (with `guard-before` it starts where one starts), as closely as its alignment allows: the next
element is in a page without access, and to read or write it is a segmentation fault in the middle of the kernel. What the page
has on the other side, and the few bytes of alignment, hold a pattern: a step that has changed it is named by the error, with the
array. Arguments and constants are copies in pages that may be read only.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.launcher.memory import own_pages
from hlo.errors import TilewrightError

__all__ = ["SCRATCH_GAP_BYTES", "Block", "GuardError", "Guards", "ScratchUse", "StepUse"]

SCRATCH_GAP_BYTES = 64
"""Between two scratch buffers of one kernel."""
_PATTERN = 0xA5
_NO_ACCESS, _READ, _READ_WRITE = 0, mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE


class GuardError(TilewrightError):
    """A step that has written where no array of its own is."""


@functools.cache
def _protect_function() -> Any:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


def _protect(address: int, size_bytes: int, access: int) -> None:
    if _protect_function()(address, size_bytes, access):
        number = ctypes.get_errno()
        raise OSError(number, f"mprotect of {size_bytes} bytes: {os.strerror(number)}")


def _pages(size_bytes: int) -> int:
    """The bytes of the pages that hold so many, at least one page."""
    return max(1, -(-size_bytes // mmap.PAGESIZE)) * mmap.PAGESIZE


class Block:
    """`size_bytes` at `address`, aligned, in pages of their own between two without access; filled with the pattern.

    >>> block = Block("x", 100, 4)
    >>> (block.address + 100) % mmap.PAGESIZE, block.damage()
    (0, None)
    >>> ctypes.memset(block.address - 1, 0, 1) and block.damage()
    '1 byte before x (100 bytes), at -1'
    """

    def __init__(self, name: str, size_bytes: int, align: int, before: bool = False) -> None:
        self.name, self.size_bytes = name, size_bytes
        inner = _pages(size_bytes)
        area = own_pages(inner + 2 * mmap.PAGESIZE)
        whole = np.frombuffer(area, np.uint8)
        self._bytes = whole[mmap.PAGESIZE : mmap.PAGESIZE + inner]
        self._bytes[:] = _PATTERN
        self._start, self._inner = self._bytes.ctypes.data, inner
        offset = 0 if before else (inner - size_bytes) // align * align
        self._slack = [(0, offset), (offset + size_bytes, inner)]
        self.address, self._offset = self._start + offset, offset
        _protect(self._start - mmap.PAGESIZE, mmap.PAGESIZE, _NO_ACCESS)
        _protect(self._start + inner, mmap.PAGESIZE, _NO_ACCESS)

    def array(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """A C-contiguous array of all its bytes; it keeps the pages."""
        own = self._bytes[self._offset : self._offset + self.size_bytes]
        made: np.ndarray = own.view(dtype).reshape(tuple(shape))
        return made

    def close_for_writing(self) -> None:
        """From now on a write is a segmentation fault."""
        _protect(self._start, self._inner, _READ)

    def damage(self) -> str | None:
        """What is wrong with the pattern around the block, or None."""
        for begin, end in self._slack:
            changed = np.flatnonzero(self._bytes[begin:end] != _PATTERN)
            if changed.size:
                where = int(changed[0]) + begin - self._offset
                return _damage(self.name, self.size_bytes, where, changed.size)
        return None


def _damage(name: str, size_bytes: int, where: int, count: int) -> str:
    side = "before" if where < 0 else "behind"
    return f"{count} byte{'s' * (count != 1)} {side} {name} ({size_bytes} bytes), at {where}"


@dataclass(frozen=True)
class ScratchUse:
    """A scratch buffer of a kernel: its bytes from `offset` on are in use, those up to the next one's offset are not."""

    name: str
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class StepUse:
    """A step that runs: its name, the scratch of each thread, and the buffers in it."""

    name: str
    scratch_bytes: int = 0
    scratch: tuple[ScratchUse, ...] = ()


class Guards:
    """The blocks of one call, and the look at them between its steps (`launch.Watch`)."""

    def __init__(self, steps: Mapping[int, StepUse], told: Mapping[int, tuple[str, int]], before: bool) -> None:
        """`told` has the name and the alignment that kernels give a memory, by its number."""
        self._steps, self._told, self._is_before = steps, told, before
        self._blocks: dict[int, Block] = {}
        self._area_bytes = np.empty(0, np.uint8)  # the scratch of the step that runs
        self._room = self._first = self._inner = self._threads = 0

    def place(self, slot: int, what: str, size_bytes: int) -> int:
        """The address of memory `slot`, which is made where it is not there yet."""
        if slot not in self._blocks:
            name, align = self._told.get(slot, ("", SCRATCH_GAP_BYTES))
            self._blocks[slot] = Block(f"{what} {name}".rstrip(), size_bytes, align, self._is_before)
        return self._blocks[slot].address

    def place_copy(self, slot: int, what: str, array: np.ndarray) -> int:
        """The address of a copy of an array that nobody may write to."""
        if slot not in self._blocks:
            self.place(slot, what, array.nbytes)
            self.array(slot, array.shape, array.dtype)[...] = array
            self._blocks[slot].close_for_writing()
        return self._blocks[slot].address

    def array(self, slot: int, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """The elements of memory `slot`."""
        return self._blocks[slot].array(shape, dtype)

    def before(self, number: int, threads: int) -> tuple[int, int]:
        """Fresh scratch for a step: where the first thread's starts, and how far apart two threads' are."""
        use = self._steps.get(number)
        if use is None or not use.scratch_bytes:
            return 0, 0
        inner = _pages(use.scratch_bytes)
        room = inner + mmap.PAGESIZE
        bytes_ = self._area_bytes = np.frombuffer(own_pages(threads * room + mmap.PAGESIZE), np.uint8)
        start = bytes_.ctypes.data
        self._first = mmap.PAGESIZE + (0 if self._is_before else inner - use.scratch_bytes)
        self._room, self._threads, self._inner = room, threads, inner
        for k in range(threads + 1):
            if k < threads:
                bytes_[k * room + mmap.PAGESIZE : (k + 1) * room] = _PATTERN
            _protect(start + k * room, mmap.PAGESIZE, _NO_ACCESS)
        return start + self._first, room

    def after(self, number: int) -> None:
        """Raises GuardError where the step has changed what is no array's."""
        use = self._steps.get(number)
        name = f"step {number}" if use is None else f"{use.name} (step {number})"
        for b in self._blocks.values():
            found = b.damage()
            if found is not None:
                raise GuardError(f"{name} has written {found}")
        if use is None or not use.scratch_bytes:
            return
        for thread in range(self._threads):
            found = self._scratch_damage(use, thread)
            if found is not None:
                raise GuardError(f"{name} has written {found}, in the scratch of thread {thread}")
        self._area_bytes = np.empty(0, np.uint8)

    def _scratch_damage(self, use: StepUse, thread: int) -> str | None:
        base = thread * self._room + self._first
        starts = [u.offset for u in use.scratch]
        begins = [thread * self._room + mmap.PAGESIZE - base, *(u.offset + u.size_bytes for u in use.scratch)]
        ends = [*starts, thread * self._room + mmap.PAGESIZE + self._inner - base]
        for k, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            changed = np.flatnonzero(self._area_bytes[base + begin : base + end] != _PATTERN)
            if changed.size:
                u = use.scratch[max(0, k - 1)]
                return _damage(u.name, u.size_bytes, int(changed[0]) + begin - u.offset, changed.size)
        return None
