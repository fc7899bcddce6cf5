"""Memory for outputs and scratch: aligned blocks that are kept between calls, and the count of what is in use.

A block belongs to a ``Lease``; arrays made over it hold the lease, and when the last of them is collected the block goes
back to the pool.  Blocks of 2 MB and more are aligned to 2 MB and advised to huge pages: writing a fresh 64 MB array costs
2 ms that way and 18 ms in small pages.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ALIGNMENT_BYTES = 64
HUGE_BYTES = 2 * 1024 * 1024


@dataclass
class MemoryCount:
    """Bytes leased now and at most so far, for one kind of use."""

    live_bytes: int = 0
    peak_bytes: int = 0

    def add(self, count_bytes: int) -> None:
        """Count ``count_bytes`` more (or, negative, fewer) in use."""
        self.live_bytes += count_bytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def reset_peak(self) -> None:
        """Start a new peak from what is live."""
        self.peak_bytes = self.live_bytes


def rounded_bytes(count_bytes: int) -> int:
    """The size of the block that a request gets: the next of eight steps to each power of two, at least 64.

    >>> rounded_bytes(1), rounded_bytes(1000), rounded_bytes(1025)
    (64, 1024, 1152)
    """
    if count_bytes <= ALIGNMENT_BYTES:
        return ALIGNMENT_BYTES
    step = max(ALIGNMENT_BYTES, 1 << max(0, (count_bytes - 1).bit_length() - 4))
    return -(-count_bytes // step) * step


class _Block:
    """Raw aligned memory; ``keep`` is the object that owns it."""

    __slots__ = ("address", "keep", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        if size_bytes >= HUGE_BYTES:
            area = mmap.mmap(-1, size_bytes + HUGE_BYTES)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                area.madvise(mmap.MADV_HUGEPAGE)
            raw = np.frombuffer(area, np.uint8)
            self.address = -(-raw.ctypes.data // HUGE_BYTES) * HUGE_BYTES
        else:
            raw = np.empty(size_bytes + ALIGNMENT_BYTES, np.uint8)
            self.address = -(-raw.ctypes.data // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.keep = raw


class Lease:
    """``size_bytes`` bytes at ``address`` (aligned to 64), until this object is collected or released."""

    __slots__ = ("__array_interface__", "__weakref__", "_block", "_kind", "_pool", "address", "size_bytes")

    def __init__(self, pool: MemoryPool, block: _Block, kind: str, size_bytes: int) -> None:
        self._pool = pool
        self._block: _Block | None = block
        self._kind = kind
        self.address = block.address
        self.size_bytes = size_bytes

    def array(self, shape: Sequence[int], dtype: Any) -> Any:
        """A C-contiguous array over the start of the block; it keeps the lease alive."""
        kind, shape = np.dtype(dtype), tuple(shape)
        size_bytes = math.prod(shape) * kind.itemsize
        if size_bytes > self.size_bytes:
            raise ValueError(f"an array of {kind}{list(shape)}: {size_bytes} bytes in a lease of {self.size_bytes}")
        known = kind.isbuiltin == 1  # other types have no name that the protocol knows
        self.__array_interface__ = {
            "data": (self.address, False), "version": 3,
            "shape": shape if known else (size_bytes,), "typestr": kind.str if known else "|u1",
        }  # fmt: skip
        array = np.asarray(self)
        return array if known else array.view(kind).reshape(shape)

    def release(self) -> None:
        """Give the block back now; arrays over it must not be used any more."""
        block, self._block = self._block, None
        if block is not None:
            # a deque's append is atomic, and safe when the collector runs in the middle of the pool's own code
            self._pool.returned.append((block, self._kind, self.size_bytes))

    def __del__(self) -> None:
        self.release()


def in_lines(array: Any) -> Any:
    """A C-contiguous copy of an array that starts with a cache line.

    >>> in_lines(np.arange(100)).ctypes.data % ALIGNMENT_BYTES
    0
    """
    raw = np.empty(array.nbytes + ALIGNMENT_BYTES, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT_BYTES
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@dataclass
class MemoryPool:
    """Free blocks by size, at most ``limit_bytes`` of them, and the counts of what is leased.

    >>> pool = MemoryPool()
    >>> a = pool.lease(1000, "output").array((10, 25), np.float32)
    >>> a.ctypes.data % 64, pool.count("output").live_bytes
    (0, 1000)
    >>> del a
    >>> pool.count("output").live_bytes, pool.count("output").peak_bytes
    (0, 1000)
    """

    limit_bytes: int = 1 << 30
    returned: deque[tuple[_Block, str, int]] = field(default_factory=deque)
    _free: dict[int, list[_Block]] = field(default_factory=dict)
    _free_bytes: int = 0
    _counts: dict[str, MemoryCount] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lease(self, size_bytes: int, kind: str) -> Lease:
        """At least ``size_bytes`` bytes, uninitialised, counted under ``kind`` (``output``, ``scratch``, …)."""
        rounded = rounded_bytes(size_bytes)
        with self._lock:
            self._drain()
            self._counts.setdefault(kind, MemoryCount()).add(size_bytes)
            stack = self._free.get(rounded)
            block = stack.pop() if stack else None
            if block is not None:
                self._free_bytes -= rounded
        return Lease(self, block or _Block(rounded), kind, size_bytes)

    def count(self, kind: str) -> MemoryCount:
        """The bytes in use and the peak for ``kind``."""
        with self._lock:
            self._drain()
            return self._counts.setdefault(kind, MemoryCount())

    @property
    def free_bytes(self) -> int:
        """Bytes kept for later leases."""
        with self._lock:
            self._drain()
            return self._free_bytes

    def clear(self) -> None:
        """Give all free blocks back to the system."""
        with self._lock:
            self._drain()
            self._free.clear()
            self._free_bytes = 0

    def _drain(self) -> None:
        while self.returned:
            block, kind, size_bytes = self.returned.popleft()
            self._counts[kind].add(-size_bytes)
            if self._free_bytes + block.size_bytes <= self.limit_bytes:
                self._free.setdefault(block.size_bytes, []).append(block)
                self._free_bytes += block.size_bytes

    def _after_fork(self) -> None:
        self._lock = threading.Lock()


pool = MemoryPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool._after_fork)
