"""Memory for outputs and scratch: aligned blocks that are kept between calls, and the count of what is in use.

A block belongs to a ``Lease``; arrays made over it hold the lease, and when the last of them is collected the block goes
back to the pool.  Blocks of 2 MB and more are aligned to 2 MB and advised to huge pages: writing a fresh 64 MB array costs
2 ms that way and 18 ms in small pages.
"""

from __future__ import annotations

import _thread
import math
import mmap
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo.settings import size_setting

ALIGNMENT_BYTES = 64
HUGE_BYTES = 2 * 1024 * 1024
LIMIT_BYTES = 1 << 30
FLOOR_BYTES = 1 << 25
"""So much may be kept free whatever the calls need."""
SMALL_NEED_BYTES = 1 << 20  # calls that need less are not counted: the floor has room for dozens of them
SPAN_SECONDS = 0.5


@dataclass
class MemoryCount:
    """Bytes leased now and at most so far, for one kind of use."""

    live_bytes: int = 0
    peak_bytes: int = 0

    def add(self, count_bytes: int) -> None:
        """Count ``count_bytes`` more (or, negative, fewer) in use."""
        self.live_bytes += count_bytes
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes = self.live_bytes

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


def own_pages(size_bytes: int) -> mmap.mmap:
    """Fresh pages of this process alone.

    Python's default are pages that a child of `fork` shares: what one of the two computes would change the other's arrays. And
    they count as a file's, which the system gives no huge pages.
    """
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size_bytes)


class _Block:
    """Raw aligned memory; ``keep`` is the object that owns it."""

    __slots__ = ("address", "keep", "returned", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.returned = 0  # the number of its return
        if size_bytes >= HUGE_BYTES:
            area = own_pages(size_bytes + HUGE_BYTES)
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
            self._pool._tell((_RETURNED, self.size_bytes, self._kind, block))

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():  # the pool's modules may be gone by then
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


# What happens to a pool: (what, its bytes, kind, block). Events are told in order and applied by one thread at a time.
_LEASED, _RETURNED, _NEEDED, _LOOKED, _CLEARED = range(5)
_Event = tuple[int, int, str, "_Block | None"]
_MOST_EVENTS = 64  # that wait for the next return


class MemoryPool:
    """Free blocks by size, kept for the next calls, and the counts of what is leased.

    No more is kept free than the calls of the last second needed at once, or one call of each program (or `FLOOR_BYTES`, if that
    is more), and never more than `limit_bytes`: in a loop of calls each finds the memory of the one before, a second later it is
    the system's again. (Programs are told apart by what they need: forward and backward take turns, in blocks of other sizes.)
    Safe from several threads and from finalizers in the middle of its own code: nothing in it waits for a lock.

    >>> pool = MemoryPool()
    >>> a = pool.lease(1000, "output").array((10, 25), np.float32)
    >>> a.ctypes.data % 64, pool.count("output").live_bytes
    (0, 1000)
    >>> del a
    >>> pool.count("output").live_bytes, pool.count("output").peak_bytes, pool.free_bytes
    (0, 1000, 1024)
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._limit: int | None = None
        self._unwatched_bytes = FLOOR_BYTES  # so much may be free without a look at the bound
        self._free: dict[int, list[_Block]] = {}  # a list's append and pop are atomic
        self._free_bytes = 0
        self._counts: dict[str, MemoryCount] = {}
        self._needed_bytes = 0  # by the calls in flight
        self._peaks = [0, 0]  # of what was needed at once, in this span of time and in the one before
        self._needs: list[frozenset[int]] = [frozenset(), frozenset()]  # of single calls, likewise
        self._span_began = 0.0
        self._returns = 0
        self._watch: object | None = None
        self._after_fork()
        if limit_bytes is not None:
            self.limit_bytes = limit_bytes

    def _after_fork(self) -> None:
        """The child has one thread, and none of the calls that were in flight; memory that they held is theirs for ever."""
        self._lock = threading.Lock()
        self._events: deque[_Event] = deque()
        self._needed_bytes = 0
        self._watch = None

    @property
    def limit_bytes(self) -> int:
        """The most that is kept free; TILEWRIGHT_POOL_LIMIT at first (`512M`, `2G`, `0`), else 1 GiB. May be set."""
        if self._limit is None:
            found = size_setting("TILEWRIGHT_POOL_LIMIT")
            self.limit_bytes = LIMIT_BYTES if found is None else found
        assert self._limit is not None
        return self._limit

    @limit_bytes.setter
    def limit_bytes(self, size_bytes: int) -> None:
        if size_bytes < 0:
            raise ValueError(f"limit_bytes: expected 0 or more, found {size_bytes}")
        self._limit, self._unwatched_bytes = size_bytes, min(size_bytes, FLOOR_BYTES)
        self._tell((_LOOKED, 0, "", None))

    def lease(self, size_bytes: int, kind: str) -> Lease:
        """At least ``size_bytes`` bytes, uninitialised, counted under ``kind`` (``output``, ``scratch``, …).

        Raises SettingError where TILEWRIGHT_POOL_LIMIT is no size.
        """
        if self._limit is None:
            _ = self.limit_bytes  # here, not in a finalizer
        rounded = rounded_bytes(size_bytes)
        stack = self._free.get(rounded)
        try:
            taken = stack.pop() if stack else None
        except IndexError:  # another thread was faster
            taken = None
        block = taken or _Block(rounded)
        self._events.append((_LEASED, size_bytes, kind, taken))
        if len(self._events) > _MOST_EVENTS:
            self._settle()
        return Lease(self, block, kind, size_bytes)

    def begin(self, size_bytes: int) -> None:
        """A call begins that leases `size_bytes` in all; `end` when it is over: so much is then kept for the next."""
        if size_bytes > SMALL_NEED_BYTES:
            self._tell((_NEEDED, size_bytes, "", None))

    def end(self, size_bytes: int) -> None:
        """A call that `begin` was told of is over."""
        if size_bytes > SMALL_NEED_BYTES:
            self._tell((_NEEDED, -size_bytes, "", None))

    def count(self, kind: str) -> MemoryCount:
        """The bytes in use and the peak for ``kind``."""
        self._settle()
        return self._count_of(kind)

    @property
    def free_bytes(self) -> int:
        """Bytes kept for later leases."""
        self._settle()
        return self._free_bytes

    def clear(self) -> None:
        """Give all free blocks back to the system."""
        self._tell((_CLEARED, 0, "", None))

    # ------------------------------------------------------------ events

    def _tell(self, event: _Event) -> None:
        self._events.append(event)
        self._settle()

    def _settle(self) -> None:
        """Applies the events, unless that is being done: then whoever does it goes on with what has come."""
        while self._events and self._lock.acquire(blocking=False):
            try:
                self._apply(self._events)
                if self._free_bytes > self._unwatched_bytes:
                    self._trim()
            finally:
                self._lock.release()

    def _apply(self, events: deque[_Event]) -> None:
        """Every event, in order, those too that come meanwhile; the pool's lock is held."""
        while events:
            what, size_bytes, kind, block = events.popleft()
            if what == _LEASED:
                self._count_of(kind).add(size_bytes)
                if block is not None:  # one that was free
                    self._free_bytes -= block.size_bytes
            elif what == _RETURNED and block is not None:
                self._count_of(kind).add(-size_bytes)
                self._returns += 1
                block.returned = self._returns
                stack = self._free.get(block.size_bytes)
                if stack is None:
                    stack = self._free.setdefault(block.size_bytes, [])
                stack.append(block)
                self._free_bytes += block.size_bytes
            elif what == _NEEDED:
                self._needed_bytes = max(0, self._needed_bytes + size_bytes)
                self._pass_time()
                self._peaks[0] = max(self._peaks[0], self._needed_bytes)
                if size_bytes > 0 and size_bytes not in self._needs[0]:
                    self._needs[0] |= {size_bytes}
            elif what == _CLEARED:
                self._drop_to(0)

    def _count_of(self, kind: str) -> MemoryCount:
        found = self._counts.get(kind)
        return self._counts.setdefault(kind, MemoryCount()) if found is None else found

    def _pass_time(self) -> None:
        now = time.monotonic()
        spans = (now - self._span_began) // SPAN_SECONDS
        if spans >= 1:
            self._peaks = [self._needed_bytes, self._peaks[0] if spans < 2 else 0]
            self._needs = [frozenset(), self._needs[0] if spans < 2 else frozenset()]
            self._span_began = now

    def _trim(self) -> None:
        """Drops what is above the bound; what may be too much soon is looked at again."""
        self._pass_time()
        self._drop_to(min(self.limit_bytes, max(FLOOR_BYTES, sum(self._needs[0] | self._needs[1]), *self._peaks)))
        if self._free_bytes > FLOOR_BYTES and self._watch is None:
            self._watch = object()
            try:
                # Not threading.Thread: its start takes locks, and this may run in a finalizer in the middle of one.
                _thread.start_new_thread(self._look_again, (self._watch,))
            except RuntimeError:  # the process ends, or has no room for a thread
                self._watch = None
                self._drop_to(FLOOR_BYTES)

    def _look_again(self, watch: object) -> None:
        """Looks at the bound while time passes, until little is kept."""
        while self._watch is watch:
            time.sleep(SPAN_SECONDS)
            if self._free_bytes <= FLOOR_BYTES and self._watch is watch:
                self._watch = None
            self._tell((_LOOKED, 0, "", None))

    def _drop_to(self, most_bytes: int) -> None:
        """Drops the blocks that came back first, until at most so many bytes are left."""
        while self._free_bytes > most_bytes:
            stacks = [s for s in self._free.values() if s]
            try:
                stack = min(stacks, key=lambda s: s[0].returned)
                self._free_bytes -= stack.pop(0).size_bytes
            except (ValueError, IndexError):  # another thread has taken the last, and says so in an event to come
                return


pool = MemoryPool()
"""The memory of all programs of this process; `tilewright.memory_pool`."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool._after_fork)
