"""Run a plan's kernels: one call, all steps, the GIL released, tasks shared by a small pool of native threads.

Each thread, the caller's and the pool's workers, has a zone of the tasks, the same at every call and for every step of as many
tasks: what it reads and writes is then in its own core's caches.  It takes half of what is left of its zone at a time, at least
the step's chunk, from an atomic counter; a thread that is done takes pieces of the other zones, so that uneven tasks even out and
a worker that is late is not waited for.  Which thread runs a task never changes its result.  The threads are
in `native_threads.py`, what they run in `run_source.py`, the words of the records in `words.py`.

One step, as the caller runs it: write the step's descriptor, make ``PHASE`` odd (open), wake sleepers, take chunks until
none are left, make ``PHASE`` even (closed), wait until ``ACTIVE`` is 0.  A worker that sees a new odd phase adds itself to
``ACTIVE`` and looks again: if the phase is still the same the step cannot end without it.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from codegen.launcher import memory, native_threads, words
from codegen.native import interrupts
from codegen.native.jit import CompiledKernel
from hlo.errors import TilewrightError


class EndedError(TilewrightError):
    """A call whose loops were ended in the middle (`interrupts.end_loops`)."""


_ENDED = "its loops were ended: closed before this was computed"


@dataclass(frozen=True)
class Step:
    """Run ``kernel`` over the tasks [0, tasks), ``chunk`` at a time.

    ``buffers`` are indices into the addresses that ``Plan.run`` is given, in the order of the kernel's parameters;
    ``scratch_bytes`` is what one thread needs; a step that ``is_long`` may take any time.
    """

    kernel: CompiledKernel
    tasks: int
    buffers: tuple[int, ...]
    chunk: int = 1
    scratch_bytes: int = 0
    is_long: bool = False


@dataclass(frozen=True)
class Copy:
    """Copy ``size_bytes`` from the first buffer to the second; nothing where both are one.

    ``buffers`` are indices as in ``Step``; those of this step that ``settled`` names are not exchanged.
    """

    buffers: tuple[int, int]
    size_bytes: int
    settled: tuple[int, ...] = ()


@dataclass(frozen=True)
class Exchange:
    """From here on each of the two buffers is where the other was."""

    buffers: tuple[int, int]


@dataclass(frozen=True)
class Jump:
    """Go on at step ``target``."""

    target: int
    buffers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Unless:
    """Go on at step ``target`` when the byte in the buffer is zero."""

    buffers: tuple[int]
    target: int


@dataclass(frozen=True)
class Select:
    """Go on at one of the next ``count`` steps: at that whose number is the int32 in the buffer, at the last if there is none."""

    buffers: tuple[int]
    count: int


@dataclass(frozen=True)
class Host:
    """Return to the caller, who does something with the buffers."""

    buffers: tuple[int, ...]


@dataclass(frozen=True)
class Library:
    """Call a library's function in native code: at ``entry`` as a kernel is, ``chunk`` tasks at a time; ``code`` keeps it.

    While one that ``has_threads`` runs, the launcher's own sleep.
    """

    buffers: tuple[int, ...]
    entry: int
    code: Any
    scratch_bytes: int = 0
    is_long: bool = False
    tasks: int = 1
    chunk: int = 1
    has_threads: bool = False


class Watch(Protocol):
    """Somebody who looks at the memory between steps: the run then makes one step at a time."""

    def before(self, number: int, threads: int) -> tuple[int, int]:
        """Step `number` comes next: the address of the first thread's scratch, and the distance to the next one's."""

    def after(self, number: int) -> None:
        """Step `number` is done."""


HostCall = Callable[[int, np.ndarray], None]
Instruction = Step | Copy | Exchange | Jump | Unless | Select | Host | Library
_KINDS: dict[type, int] = {
    Step: words.KERNEL, Copy: words.COPY, Exchange: words.EXCHANGE, Jump: words.JUMP, Unless: words.UNLESS, Select: words.SELECT,
    Host: words.HOST, Library: words.KERNEL,
}  # fmt: skip


class _Frame:
    """The arrays of one run in flight, made once and used again."""

    def __init__(self, plan: Plan) -> None:
        self.table = np.zeros(max(1, len(plan.slots)), np.int64)
        self.steps = plan.template.copy()
        self.steps[:, words.TABLE] = self.table.ctypes.data + 8 * plan.starts
        self.record = np.zeros(words.RUN_WORDS, np.int64)
        self.record[words.STEPS] = self.steps.ctypes.data
        self.record[words.COUNT] = len(self.steps)
        self.record[words.ROOM] = plan.scratch_stride
        self.record[words.CELLS] = self.table.ctypes.data
        self.address = ctypes.c_int64(self.record.ctypes.data)


class Plan:
    """A sequence of steps, ready to be run any number of times, by several threads at once if need be."""

    def __init__(self, steps: Sequence[Instruction]) -> None:
        self.steps = tuple(steps)
        slots: list[int] = []
        starts = []
        for step in self.steps:
            if isinstance(step, Step):
                self._check(step)
            starts.append(len(slots))
            slots += step.buffers
        self.slots = np.array(slots, np.int64)
        self.starts = np.array(starts, np.int64)
        self.kernels = tuple(k for k, s in enumerate(self.steps) if isinstance(s, Step))
        self._lists: dict[int, np.ndarray] = {}
        self.template = np.array([self._row(s) for s in self.steps], np.int64).reshape(len(self.steps), words.STEP_WORDS)
        # a line more than asked for keeps two threads' scratch out of one cache line
        most = max((s.scratch_bytes for s in self.steps if isinstance(s, (Step, Library))), default=0)
        self.scratch_stride = -(-most // 64) * 64 + 64 if most else 0
        self.parallel = any(s.tasks > s.chunk for s in self.steps if isinstance(s, (Step, Library)))
        # Here, not in the first run: that may be a signal's handler's, in the middle of an import of what compiles.
        native_threads.prepare(with_workers=self.parallel)
        # append and pop of a deque are atomic: two runs never share a frame
        self._frames: deque[_Frame] = deque()

    @staticmethod
    def _check(step: Step) -> None:
        if len(step.buffers) != len(step.kernel.signature.params):
            raise ValueError(
                f"step of {step.kernel.key[:8]}: expected {len(step.kernel.signature.params)} buffers, found {len(step.buffers)}"
            )
        if step.tasks < 0 or step.chunk < 1:
            raise ValueError(f"step of {step.kernel.key[:8]}: {step.tasks} tasks in chunks of {step.chunk}")

    def _row(self, step: Instruction) -> list[int]:
        """A step's words; its table's address is the frame's to fill in."""
        row = [0] * words.STEP_WORDS
        row[words.KIND] = _KINDS[type(step)]
        if isinstance(step, Step):
            row[words.ENTRY], row[words.TASKS], row[words.CHUNK] = step.kernel.entry, step.tasks, step.chunk
            row[words.LONG] = int(step.is_long)
        elif isinstance(step, Library):
            row[words.ENTRY], row[words.TASKS], row[words.CHUNK] = step.entry, step.tasks, step.chunk
            row[words.FIRST] = int(step.has_threads)
            row[words.LONG] = int(step.is_long)
        elif isinstance(step, Copy):
            row[words.FIRST] = step.size_bytes
        elif isinstance(step, (Jump, Unless)):
            row[words.FIRST] = step.target
        elif isinstance(step, Select):
            row[words.FIRST] = step.count
        elif isinstance(step, Exchange):
            row[words.FIRST], row[words.SECOND] = (self._cells(slot).ctypes.data for slot in step.buffers)
        return row

    def _cells(self, slot: int) -> np.ndarray:
        """[how many, where]: the cells of the tables that hold a buffer's address and follow it when it moves."""
        if slot not in self._lists:
            cells: list[int] = []
            for step, start in zip(self.steps, self.starts.tolist(), strict=True):
                settled = step.settled if isinstance(step, Copy) else ()
                cells += [start + k for k, s in enumerate(step.buffers) if s == slot and k not in settled]
            self._lists[slot] = np.array([len(cells), *cells], np.int64)
        return self._lists[slot]

    def run(
        self,
        addresses: Any,
        threads: int | None = None,
        times_ns: Any = None,
        host: HostCall | None = None,
        watch: Watch | None = None,
        events: Any = None,
    ) -> None:
        """Run every step in order.

        ``addresses`` holds the address of each buffer (an int64 array, indexed by ``Step.buffers``), aligned as the kernels'
        signatures say.  ``threads`` limits the threads (1: the caller's alone).  ``times_ns``, an int64 array of one element
        a step, is increased by the nanoseconds that each step took.  ``host(number, addresses)`` does what ``Host`` step
        ``number`` stands for; ``watch`` sees the memory between any two steps.  ``events``, an int64 array whose second word
        says for how many it has room, gets an event for each piece of a step that a thread runs (`words`).  Raises ValueError for
        fewer than one thread.
        """
        threads = native_threads.default_threads() if threads is None else threads
        if threads < 1:
            raise ValueError(f"threads: expected a positive number, found {threads}")
        if not self.steps:
            return
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = _Frame(self)
        frame.table[: len(self.slots)] = np.asarray(addresses, np.int64)[self.slots]
        record = frame.record
        record[words.TIMES] = times_ns.ctypes.data if times_ns is not None else 0
        record[words.EVENTS] = events.ctypes.data if events is not None else 0
        record[words.POSITION] = 0
        record[words.SINGLE], record[words.ROOM] = watch is not None, self.scratch_stride
        lease: memory.Lease | None = None
        while True:
            pool = native_threads.get_pool() if threads > 1 and self.parallel else None
            held = pool is not None and pool.run_lock.acquire(blocking=False)
            try:
                usable = pool.grow(threads) if pool is not None and held else 1
                record[words.THREADS] = usable
                record[words.POOL] = pool.address if pool is not None else 0
                current = int(record[words.POSITION])
                if watch is not None:
                    record[words.BASE], record[words.ROOM] = watch.before(current, usable)
                elif lease is None and self.scratch_stride:
                    lease = memory.pool.lease(self.scratch_stride * (threads if self.parallel else 1), "scratch")
                    record[words.BASE] = lease.address
                native_threads.get_runner()(frame.address, 0, None, None)
            finally:
                if held and pool is not None:
                    pool.run_lock.release()
            position = int(record[words.POSITION])
            if position < 0:
                interrupts.raise_pending()
                raise EndedError(_ENDED)
            if watch is not None and not isinstance(self.steps[current], Host):
                watch.after(current)
                if position < len(self.steps):
                    if interrupts.are_loops_ended():
                        raise EndedError(_ENDED)
                    continue
            if position >= len(self.steps):
                break
            assert host is not None, "a plan with host steps runs with a host"
            start = self.starts[position]
            began = time.perf_counter_ns() if times_ns is not None else 0
            host(position, frame.table[start : start + len(self.steps[position].buffers)])
            if times_ns is not None:
                times_ns[position] += time.perf_counter_ns() - began
            if watch is not None:
                watch.after(position)
            record[words.POSITION] = position + 1
            if position + 1 == len(self.steps):
                break
        self._frames.append(frame)
        if lease is not None:
            lease.release()


class SerialRun:
    """A plan's run on the caller's thread alone, with every table prepared: for small programs, again and again.

    ``known`` has the addresses that stay; ``set_address`` gives the others before each call. One thread at a time may use it.
    """

    def __init__(self, plan: Plan, known: Mapping[int, int], scratch_address: int) -> None:
        if any(isinstance(s, Host) for s in plan.steps):
            raise ValueError("a run without its host")
        self._frame = _Frame(plan)
        self._cells: list[ctypes.c_int64 | int] = [known.get(int(s), 0) for s in plan.slots]
        self.places: dict[int, list[int]] = {}
        for cell, slot in enumerate(plan.slots.tolist()):
            if slot not in known:
                self.places.setdefault(slot, []).append(cell)
        self._moves = any(isinstance(s, Exchange) for s in plan.steps)
        self._table = (ctypes.c_int64 * max(1, len(self._cells))).from_address(self._frame.table.ctypes.data)
        self._table[: len(self._cells)] = self._cells
        record = self._frame.record
        record[words.THREADS], record[words.BASE] = 1, scratch_address
        self._position = ctypes.c_int64.from_address(record.ctypes.data + 8 * words.POSITION)
        self._entry = native_threads.get_runner()

    def reset(self) -> None:
        """Forget the exchanges of the run before."""
        if self._moves:
            self._table[: len(self._cells)] = self._cells

    def set_address(self, slot: int, address: int) -> None:
        """Where a memory is in the next run."""
        for cell in self.places.get(slot, ()):
            self._table[cell] = address

    def run(self) -> None:
        """Every step in order."""
        self._position.value = 0
        self._entry(self._frame.address, 0, None, None)
        if self._position.value < 0:
            interrupts.raise_pending()
