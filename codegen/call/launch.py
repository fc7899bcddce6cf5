"""Run a plan's kernels: one call, all steps, the GIL released, tasks shared by a small pool of native threads.

Each thread, the caller's and the pool's workers, has a zone of the tasks, the same at every call and for every step of as many
tasks: what it reads and writes is then in its own core's caches.  It takes half of what is left of its zone at a time, at least
the step's chunk, from an atomic counter; a thread that is done takes pieces of the other zones, so that uneven tasks even out and
a worker that is late is not waited for.  Which thread runs a task never changes its result.  Workers are plain pthreads that run
compiled code only: between steps they spin for some fifty microseconds, then sleep on a futex.  A call that finds the pool busy
(another Python thread, or a kernel started from within a run) runs on its own thread alone.  After a fork the child starts a new
pool; at exit the workers are told to stop and are joined.

One step, as the caller runs it: write the step's descriptor, make ``PHASE`` odd (open), wake sleepers, take chunks until
none are left, make ``PHASE`` even (closed), wait until ``ACTIVE`` is 0.  A worker that sees a new odd phase adds itself to
``ACTIVE`` and looks again: if the phase is still the same the step cannot end without it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from codegen.call import memory
from codegen.native import interrupts
from codegen.native.jit import CompiledKernel, compile_kernel
from codegen.native.jit import is_kept as is_kernel_kept
from codegen.native.signature import KernelSignature
from codegen.target import default_target
from codegen.waiting import wake_all
from hlo.cpus import usable_cpus
from hlo.settings import positive_setting

# words of the pool's shared state; each hot one has a cache line of its own
_PHASE, _ACTIVE, _SLEEPERS, _STOP, _STEP, _SCRATCH, _STRIDE, _LIMIT = 0, 16, 32, 64, 65, 66, 67, 68
_SPIN, _WORKERS, _OWNER = 69, 70, 71
SPIN_NANOSECONDS = 50_000  # waking a sleeper takes some 20 microseconds
_SHARE = 2  # what is left of a thread's zone is taken in that many pieces
_FIRST_LOOK, _MOST_TURNS, _LOOK_NANOSECONDS = 32, 1024, 5_000_000  # how often a run looks for signals: after so many steps
_NEXT = 80  # of the zones: the number of tasks that are taken, each in a line of its own
_LINE_WORDS = 8
_MOST_ZONES = 64  # more threads share them
_STATE_WORDS = _NEXT + _LINE_WORDS * _MOST_ZONES
# words of a step's descriptor
_ENTRY, _TASKS, _CHUNK, _TABLE, _KIND, _FIRST, _SECOND, _LONG, STEP_WORDS = 0, 1, 2, 3, 4, 5, 6, 7, 8
# kinds of steps; a step's first and second word are its target, its size in bytes, its lists of cells
_KERNEL, _COPY, _EXCHANGE, _JUMP, _UNLESS, _SELECT, _HOST = 0, 1, 2, 3, 4, 5, 6
# words of a run's record
_POOL, _STEPS, _COUNT, _BASE, _ROOM, _THREADS, _TIMES, _POSITION, _CELLS, _SINGLE, RUN_WORDS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16

_TAKE = f"""
zone = {{thread}} % {_MOST_ZONES}
zones = min(pool[{_LIMIT}], {_MOST_ZONES})
share = int64({_SHARE})
for turn in range(zones):
    lower = tasks * zone // zones
    upper = tasks * (zone + 1) // zones
    counter = {_NEXT} + {_LINE_WORDS} * zone
    first = lower + atomic_load(pool, counter)
    while first < upper:
        size = max(chunk, (upper - first) // share)
        first = lower + atomic_add(pool, counter, size)
        if first < upper:
            call_entry(step[{_ENTRY}], first, min(first + size, upper), step[{_TABLE}], scratch)
            first += size
    # another thread's zone: what is left of it is for all who are done
    share = {_SHARE} * zones
    zone += 1
    if zone == zones:
        zone = int64(0)
"""
"""How a thread takes part in a step of `tasks` tasks. More threads than zones start in others' zones."""


def _taking_part(thread: str, indent: int) -> str:
    return textwrap.indent(_TAKE.format(thread=thread).strip("\n"), " " * indent)


_WORKER_SOURCE = f"""
def kernel(begin, end):
    # begin is the address of [pool state, thread number]
    own = words(begin)
    pool = words(own[0])
    number = own[1]
    last = int64(0)
    spins = int64(0)
    since = clock_ns()
    while atomic_load(pool, {_STOP}) == 0:
        phase = atomic_load(pool, {_PHASE})
        if phase == last or (phase & 1) == 0:
            spins += 1
            if spins & 63 == 0 and clock_ns() - since > pool[{_SPIN}]:
                atomic_add(pool, {_SLEEPERS}, 1)
                futex_wait(pool, {_PHASE}, phase)
                atomic_add(pool, {_SLEEPERS}, -1)
                since = clock_ns()
            else:
                pause()
        else:
            atomic_add(pool, {_ACTIVE}, 1)
            if atomic_load(pool, {_PHASE}) == phase and number < pool[{_LIMIT}]:
                step = words(pool[{_STEP}])
                tasks = step[{_TASKS}]
                chunk = step[{_CHUNK}]
                scratch = pool[{_SCRATCH}] + number * pool[{_STRIDE}]
{_taking_part("number", 16)}
            atomic_add(pool, {_ACTIVE}, -1)
            last = phase
            since = clock_ns()
"""

_RUN_SOURCE = f"""
def kernel(begin, end):
    # begin is the address of the run's record
    run = words(begin)
    threads = run[{_THREADS}]
    times = run[{_TIMES}]
    scratch = run[{_BASE}]
    number = run[{_POSITION}]
    count = run[{_COUNT}]
    turns = int64(0)
    room = int64({_FIRST_LOOK})
    since = int64(0)
    stopped = count
    owns = False
    if threads > 1:
        # one run at a time has the workers; several may ask at once, and each takes back what it added
        owns = atomic_add(words(run[{_POOL}]), {_OWNER}, 1) == 0
        if not owns:
            atomic_add(words(run[{_POOL}]), {_OWNER}, -1)
            threads = int64(1)
    while number < count:
        turns += 1
        if turns >= room:
            # often enough to be heard at once, seldom enough to cost nothing, however long the steps are
            turns = int64(0)
            now = clock_ns()
            if now - since < {_LOOK_NANOSECONDS}:
                room = min(2 * room, int64({_MOST_TURNS}))
            else:
                room = int64(1)
                since = now
                if interrupted():
                    stopped = int64(-1)
                    break
        address = run[{_STEPS}] + number * {8 * STEP_WORDS}
        step = words(address)
        kind = step[{_KIND}]
        if kind == {_KERNEL}:
            tasks = step[{_TASKS}]
            chunk = step[{_CHUNK}]
            started = int64(0)
            if times != 0:
                started = clock_ns()
            if threads == 1 or tasks <= chunk:
                call_entry(step[{_ENTRY}], 0, tasks, step[{_TABLE}], scratch)
            else:
                pool = words(run[{_POOL}])
                pool[{_STEP}] = address
                pool[{_SCRATCH}] = scratch
                pool[{_STRIDE}] = run[{_ROOM}]
                pool[{_LIMIT}] = threads
                for z in range(min(threads, {_MOST_ZONES})):
                    atomic_store(pool, {_NEXT} + {_LINE_WORDS} * z, 0)
                atomic_add(pool, {_PHASE}, 1)
                if atomic_load(pool, {_SLEEPERS}) > 0:
                    futex_wake(pool, {_PHASE})
{_taking_part("int64(0)", 16)}
                atomic_add(pool, {_PHASE}, 1)
                waits = int64(0)
                while atomic_load(pool, {_ACTIVE}) > 0:
                    waits += 1
                    if waits > 2000:
                        yield_thread()
                    else:
                        pause()
            if times != 0:
                words(times)[number] += clock_ns() - started
            if step[{_LONG}] != 0 and interrupted():
                stopped = int64(-1)
                break
            number += 1
        elif kind == {_COPY}:
            table = words(step[{_TABLE}])
            if table[0] != table[1]:
                copy_bytes(table[1], table[0], step[{_FIRST}])
            number += 1
        elif kind == {_UNLESS}:
            number += 1
            if byte_at(words(step[{_TABLE}])[0]) == 0:
                number = step[{_FIRST}]
        elif kind == {_JUMP}:
            number = step[{_FIRST}]
        elif kind == {_EXCHANGE}:
            cells = words(run[{_CELLS}])
            mine = words(step[{_FIRST}])
            other = words(step[{_SECOND}])
            a = cells[mine[1]]
            b = cells[other[1]]
            for k in range(mine[0]):
                cells[mine[k + 1]] = b
            for k in range(other[0]):
                cells[other[k + 1]] = a
            number += 1
        elif kind == {_SELECT}:
            branch = int_at(words(step[{_TABLE}])[0])
            if branch < 0 or branch >= step[{_FIRST}]:
                branch = step[{_FIRST}] - 1
            number += 1 + branch
        else:
            stopped = number
            break
        if run[{_SINGLE}] != 0:
            stopped = number
            break
    if owns:
        atomic_add(words(run[{_POOL}]), {_OWNER}, -1)
    run[{_POSITION}] = stopped
"""

_OWN_SOURCE = f"""
def kernel(begin, end):
    # begin is the address of [pool state, whether the pool was free]: from then on it never is
    own = words(begin)
    own[1] = 0
    if atomic_add(words(own[0]), {_OWNER}, 1) == 0:
        own[1] = 1
    else:
        atomic_add(words(own[0]), {_OWNER}, -1)
"""

_NO_BUFFERS = KernelSignature(())
_ENTRY_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


def default_threads() -> int:
    """The threads of a run that names none: TILEWRIGHT_NUM_THREADS, else the CPUs that affinity and quota leave to the process.

    Raises SettingError when the variable is not a positive number.
    """
    wanted = positive_setting("TILEWRIGHT_NUM_THREADS")
    if wanted is not None:
        return wanted
    return usable_cpus()


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
    """Call a library's function in native code: at ``entry`` as a kernel is, of one task; ``code`` keeps it."""

    buffers: tuple[int, ...]
    entry: int
    code: Any
    scratch_bytes: int = 0
    is_long: bool = False


class Watch(Protocol):
    """Somebody who looks at the memory between steps: the run then makes one step at a time."""

    def before(self, number: int, threads: int) -> tuple[int, int]:
        """Step `number` comes next: the address of the first thread's scratch, and the distance to the next one's."""

    def after(self, number: int) -> None:
        """Step `number` is done."""


HostCall = Callable[[int, np.ndarray], None]
Instruction = Step | Copy | Exchange | Jump | Unless | Select | Host | Library
_KINDS: dict[type, int] = {
    Step: _KERNEL, Copy: _COPY, Exchange: _EXCHANGE, Jump: _JUMP, Unless: _UNLESS, Select: _SELECT, Host: _HOST,
    Library: _KERNEL,
}  # fmt: skip


class _Pool:
    """The worker threads of this process and their shared state."""

    def __init__(self) -> None:
        self.run_lock = threading.Lock()
        raw = np.zeros(_STATE_WORDS + 8, np.int64)
        self.state = raw[(-raw.ctypes.data % 64) // 8 :][:_STATE_WORDS]
        self.address = self.state.ctypes.data
        # spinning would only keep the other thread from its core when there is one core
        self.state[_SPIN] = SPIN_NANOSECONDS if default_threads() > 1 else 0
        self.records: list[Any] = []
        self.threads: list[Any] = []
        self._libc = ctypes.CDLL(None)
        self._worker = _get_worker()
        self._own = _get_owner()

    def grow(self, threads: int) -> int:
        """Have at least ``threads`` - 1 workers; returns the threads there are (fewer if the system refuses), at most that."""
        while len(self.threads) < threads - 1:
            record = np.array([self.state.ctypes.data, len(self.threads) + 1], np.int64)
            identifier = ctypes.c_ulong()
            failed = self._libc.pthread_create(
                ctypes.byref(identifier), None, ctypes.c_void_p(self._worker.entry), ctypes.c_void_p(record.ctypes.data)
            )
            if failed:
                return len(self.threads) + 1
            self.records.append(record)
            self.threads.append(identifier)
            self.state[_WORKERS] = len(self.threads)
        return threads

    def stop(self) -> None:
        """Tell the workers to return and wait until they have."""
        with self.run_lock:
            self._wait_until_free()
            self.state[_STOP] = 1
            # an even phase: nobody takes it for an open step
            self.state[_PHASE] += 2
            wake_all(self._libc, default_target().triple, self.state.ctypes.data)
            for identifier in self.threads:
                self._libc.pthread_join(identifier, None)
            self.threads.clear()

    def _wait_until_free(self) -> None:
        """Returns when no run without the interpreter (`codegen.call.xla_call`) has the workers; none gets them again."""
        asked = np.array([self.address, 0], np.int64)
        ask = _ENTRY_TYPE(self._own.entry)
        while not asked[1]:
            ask(asked.ctypes.data, 0, None, None)
            if not asked[1]:
                time.sleep(1e-3)


_pool: _Pool | None = None
_pool_lock = threading.RLock()  # reentrant: a signal's handler or a finalizer may call in the middle of the first call
_runner: Any = None
_worker: CompiledKernel | None = None
_owner: CompiledKernel | None = None


def _get_pool() -> _Pool:
    global _pool
    with _pool_lock:
        if _pool is None:
            made = _Pool()
            if _pool is None:  # no call in the middle has made one
                _pool = made
                _pool_cell.value = made.address
                atexit.register(made.stop)
        return _pool


_pool_cell = ctypes.c_int64(0)  # the address of the pool's state for runs that begin without the interpreter; 0: there is none


def pool_cell_address() -> int:
    """The address of a word that holds the address of this process' pool, or 0."""
    return ctypes.addressof(_pool_cell)


def have_workers(threads: int) -> None:
    """Starts the workers for runs of so many threads that will not ask for them; once in a process, and in its child."""
    if _pool_cell.value and _get_pool().state[_WORKERS] >= threads - 1:
        return
    pool = _get_pool()
    if pool.run_lock.acquire(blocking=False):  # who has it has workers
        try:
            pool.grow(threads)
        finally:
            pool.run_lock.release()


def _after_fork() -> None:
    """The child has none of the workers: forget the pool, whatever state its locks were in."""
    global _pool, _pool_lock
    if _pool is not None:
        atexit.unregister(_pool.stop)
    _pool = None
    _pool_cell.value = 0
    _pool_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _get_owner() -> CompiledKernel:
    global _owner
    if _owner is None:
        _owner = compile_kernel(_OWN_SOURCE, _NO_BUFFERS)
    return _owner


def _get_worker() -> CompiledKernel:
    global _worker
    if _worker is None:
        _worker = compile_kernel(_WORKER_SOURCE, _NO_BUFFERS)
    return _worker


def runner_entry() -> int:
    """The address of the run's compiled function, which takes the address of a run's record."""
    _get_runner()
    return int(_runner[1].entry)


def _get_runner() -> Any:
    global _runner
    if _runner is None:
        kernel = compile_kernel(_RUN_SOURCE, _NO_BUFFERS)
        # the kernel beside the function keeps the machine code
        _runner = (_ENTRY_TYPE(kernel.entry), kernel)
    return _runner[0]


def is_kept() -> bool:
    """Whether the launcher's own machine code is there: where it is not, nothing was ever compiled into this cache."""
    return _runner is not None or is_kernel_kept(_RUN_SOURCE, _NO_BUFFERS)


def prepare() -> None:
    """Has the launcher's machine code loaded, compiled where it must be: no program runs without it."""
    _get_runner()
    if default_threads() > 1:
        _get_worker()
        _get_owner()


class _Frame:
    """The arrays of one run in flight, made once and used again."""

    def __init__(self, plan: Plan) -> None:
        self.table = np.zeros(max(1, len(plan.slots)), np.int64)
        self.steps = plan.template.copy()
        self.steps[:, _TABLE] = self.table.ctypes.data + 8 * plan.starts
        self.record = np.zeros(RUN_WORDS, np.int64)
        self.record[_STEPS] = self.steps.ctypes.data
        self.record[_COUNT] = len(self.steps)
        self.record[_ROOM] = plan.scratch_stride
        self.record[_CELLS] = self.table.ctypes.data
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
        self.template = np.array([self._row(s) for s in self.steps], np.int64).reshape(len(self.steps), STEP_WORDS)
        # a line more than asked for keeps two threads' scratch out of one cache line
        most = max((s.scratch_bytes for s in self.steps if isinstance(s, (Step, Library))), default=0)
        self.scratch_stride = -(-most // 64) * 64 + 64 if most else 0
        self.parallel = any(s.tasks > s.chunk for s in self.steps if isinstance(s, Step))
        self.is_straight = len(self.kernels) == len(self.steps)
        # Here, not in the first run: that may be a signal's handler's, in the middle of an import of what compiles.
        _get_runner()
        if self.parallel and default_threads() > 1:
            _get_worker()
            _get_owner()
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
        row = [0] * STEP_WORDS
        row[_KIND] = _KINDS[type(step)]
        if isinstance(step, Step):
            row[_ENTRY], row[_TASKS], row[_CHUNK], row[_LONG] = step.kernel.entry, step.tasks, step.chunk, int(step.is_long)
        elif isinstance(step, Library):
            row[_ENTRY], row[_TASKS], row[_CHUNK], row[_LONG] = step.entry, 1, 1, int(step.is_long)
        elif isinstance(step, Copy):
            row[_FIRST] = step.size_bytes
        elif isinstance(step, (Jump, Unless)):
            row[_FIRST] = step.target
        elif isinstance(step, Select):
            row[_FIRST] = step.count
        elif isinstance(step, Exchange):
            row[_FIRST], row[_SECOND] = (self._cells(slot).ctypes.data for slot in step.buffers)
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
    ) -> None:
        """Run every step in order.

        ``addresses`` holds the address of each buffer (an int64 array, indexed by ``Step.buffers``), aligned as the kernels'
        signatures say.  ``threads`` limits the threads (1: the caller's alone).  ``times_ns``, an int64 array of one element
        a step, is increased by the nanoseconds that each step took.  ``host(number, addresses)`` does what ``Host`` step
        ``number`` stands for; ``watch`` sees the memory between any two steps.  Raises ValueError for fewer than one thread.
        """
        threads = default_threads() if threads is None else threads
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
        record[_TIMES] = times_ns.ctypes.data if times_ns is not None else 0
        record[_POSITION] = 0
        record[_SINGLE], record[_ROOM] = watch is not None, self.scratch_stride
        lease: memory.Lease | None = None
        while True:
            pool = _get_pool() if threads > 1 and self.parallel else None
            held = pool is not None and pool.run_lock.acquire(blocking=False)
            try:
                usable = pool.grow(threads) if pool is not None and held else 1
                record[_THREADS] = usable
                record[_POOL] = pool.address if pool is not None else 0
                current = int(record[_POSITION])
                if watch is not None:
                    record[_BASE], record[_ROOM] = watch.before(current, usable)
                elif lease is None and self.scratch_stride:
                    lease = memory.pool.lease(self.scratch_stride * (threads if self.parallel else 1), "scratch")
                    record[_BASE] = lease.address
                _get_runner()(frame.address, 0, None, None)
            finally:
                if held and pool is not None:
                    pool.run_lock.release()
            position = int(record[_POSITION])
            if position < 0:
                interrupts.raise_pending()
            if watch is not None and not isinstance(self.steps[current], Host):
                watch.after(current)
                if position < len(self.steps):
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
            record[_POSITION] = position + 1
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
        record[_THREADS], record[_BASE] = 1, scratch_address
        self._position = ctypes.c_int64.from_address(record.ctypes.data + 8 * _POSITION)
        self._entry = _get_runner()

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
