"""A program as a foreign function of XLA's: JAX's own call finds the arrays, makes the results and calls native code.

One native function does this for all programs; XLA hands it a call frame (``xla/ffi/api/c_api.h``), whose one attribute is the
address of the program's record. Every call has memory of its own from the allocator, in this order: the addresses of the
program's memories, the steps' tables, the steps, the run's record, the arena, the threads' scratch. So any number of calls, from
any threads and from within each other, may be on their way, and a fork leaves nothing behind that somebody holds. The
interpreter's lock is taken for the steps that Python runs alone.

XLA holds a program as long as a call of it may be on its way, or may begin. So it is told of a state when it has made code of a
call (`XLA_FFI_State_Set`), which it destroys with that code: a word counts how often the record is held so.

What cannot be run so is refused before the first step (no memory, a result that is not aligned as kernels were told): the caller
then takes the thorough way. What a step of Python's raises is kept for the thread that called.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from codegen.call import xla_handler as native
from codegen.call.kept_packs import leased
from codegen.launcher import launch, memory, native_threads, words
from codegen.native.jit import compile_kernel

__all__ = ["Failures", "XlaCall", "expect_memory"]

_HOST_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_LARGEST_KEPT_BYTES = (32 << 20) - (1 << 16)


def expect_memory(size_bytes: int) -> None:
    """Tells the allocator that blocks of this size in all come and go again and again.

    The GNU C library gives memory back to the system above limits that grow with the blocks that it has seen freed, up to 32 MB
    (mallopt(3), M_MMAP_THRESHOLD). Where it does so, every call waits for the system to clear its pages anew.
    """
    allocate, release = native.allocator()
    release(allocate(min(size_bytes, _LARGEST_KEPT_BYTES)))


class Failures:
    """What steps of Python's raised, by the thread that ran them, until it is taken."""

    def __init__(self) -> None:
        self._raised: dict[int, BaseException] = {}

    def keep(self, e: BaseException) -> None:
        self._raised[threading.get_ident()] = e

    def take(self) -> BaseException | None:
        """What was raised in this thread."""
        return self._raised.pop(threading.get_ident(), None)


def _is_long(step: launch.Instruction) -> bool:
    return isinstance(step, launch.Step | launch.Library) and step.is_long


class XlaCall:
    """The record of one program, at `address`; it must live as long as a call may be on its way.

    `plan` runs over memories by number: `given` are those of the arguments (None: not read), `made` those of the results with the
    bytes to copy from there (0: written by the program) and the alignment of what is written there, `fixed` the addresses of
    constants, `offsets` what lies in an arena of `arena_bytes`. `host(number, addresses)` runs a step of Python's. `done` is the
    address of a word that is increased when a call has ended, as the last that it does with the record or this word; `held` that
    of the word that counts how often XLA holds the record. `keep` is what has to live as long as the record: memory of `fixed`.
    `over` are the arguments that are written over, with the result that lies there and its bytes: where a call's result is not in
    its argument's memory the argument is copied there first.

    A record that `is_plain` is for callers of its body, with the address of [where the addresses are (at word `ARGUMENTS` those
    of the arguments' elements, at word `RESULTS` the results'), the record, `bytes` of memory from a cache line's start, status].
    The status is 0 then, and after the call `INTERRUPTED` where a signal's handler has raised.
    """

    def __init__(
        self,
        plan: launch.Plan,
        given: Sequence[int | None],
        made: Sequence[tuple[int, int, int]],
        fixed: Mapping[int, int],
        offsets: Mapping[int, int],
        arena_bytes: int,
        threads: int,
        host: Callable[[int, Any], None],
        done: int,
        failures: Failures,
        is_plain: bool = False,
        keep: Sequence[Any] = (),
        held: int = 0,
        over: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        self._keep: list[Any] = [plan, *keep]
        self.written_over = tuple(over)
        self._room: tuple[memory.Lease, np.ndarray] | None = None
        self.plan, self.given = plan, tuple(given)
        self._rest = (given, made, fixed, offsets, arena_bytes, threads, host, done, failures, is_plain, keep, held)
        self.has_host = any(isinstance(s, launch.Host) for s in plan.steps)
        self.threads = threads if plan.parallel else 1
        # Its end is waited for in the caller's thread: signals are heard there alone, and there a callback's error is raised.
        self.is_waited_for = any(isinstance(s, launch.Host | launch.Unless) or _is_long(s) for s in plan.steps)
        numbers = [*(s for s in given if s is not None), *(s for s, _, _ in made), *fixed, *offsets, *plan.slots.tolist()]
        slots = 1 + max(numbers, default=0)
        template = plan.template.copy()
        template[:, words.TABLE] = 8 * plan.starts
        room_words = slots + len(plan.slots) + template.size + words.RUN_WORDS
        arena_at = -(-8 * room_words // native.LINE) * native.LINE
        scratch_at = arena_at + -(-arena_bytes // native.LINE) * native.LINE
        body = compile_kernel(native.PLAIN_SOURCE if is_plain else native.FRAME_SOURCE, native.NO_BUFFERS)
        sizes = {k: len(s.buffers) for k, s in enumerate(plan.steps) if isinstance(s, launch.Host)}
        called = self._host(host, sizes, failures) if sizes else None
        self._keep += [body, called]
        record = [0] * native.RECORD_WORDS
        record[native.BODY] = body.entry
        record[native.BYTES] = self.bytes = scratch_at + plan.scratch_stride * self.threads + 2 * native.LINE
        record[native.SLOTS], record[native.FIXED] = slots, self._words([fixed.get(k, 0) for k in range(slots)])
        record[native.ARENA_COUNT] = len(offsets)
        record[native.ARENA] = self._words([w for pair in offsets.items() for w in pair])
        record[native.ARENA_AT], record[native.SCRATCH_AT] = arena_at, scratch_at
        record[native.GIVEN_COUNT], record[native.GIVEN] = len(given), self._words([-1 if s is None else s for s in given])
        record[native.MADE_COUNT] = len(made)
        record[native.MADE] = self._words([w for slot, copied, align in made for w in (slot, copied, align - 1)])
        record[native.CELLS], record[native.CELL_SLOTS] = len(plan.slots), self._words(plan.slots.tolist())
        record[native.STEP_WORDS], record[native.STEPS] = template.size, self._words(template.ravel().tolist())
        record[native.RUN], record[native.STRIDE] = native_threads.runner_entry(), plan.scratch_stride
        record[native.THREADS] = self.threads
        record[native.POOL_CELL] = native_threads.pool_cell_address()
        record[native.HOST] = ctypes.cast(called, ctypes.c_void_p).value or 0 if called is not None else 0
        record[native.DONE] = done
        record[native.ALLOCATE], record[native.RELEASE] = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in native.allocator())
        record[native.HELD] = held
        record[native.OVER_COUNT], record[native.OVER] = len(over), self._words([w for row in over for w in row])
        self.words = np.array(record, np.int64)
        self.address = int(self.words.ctypes.data)

    def without(
        self, plan: launch.Plan, numbers: Sequence[int], places: Mapping[int, int], arguments: Mapping[int, int] | None = None
    ) -> XlaCall:
        """The record of the steps with these numbers alone, which `plan` has; memories that others made are at `places`.

        Calls of it have the arguments in their order but for those of `arguments`, whose elements are at these addresses.
        """
        given, made, fixed, offsets, arena_bytes, threads, host, done, failures, is_plain, keep, held = self._rest
        known = arguments or {}
        at = {**places, **{slot: known[n] for n, slot in enumerate(given) if slot is not None and n in known}}
        left = [n for n in range(len(given)) if n not in known]
        place = {n: k for k, n in enumerate(left)}
        call = XlaCall(
            plan, [given[n] for n in left], made, {**fixed, **at},
            {k: offset for k, offset in offsets.items() if k not in at}, arena_bytes, threads,
            lambda number, addresses: host(numbers[number], addresses), done, failures, is_plain, keep, held,
            [(place[argument], result, size_bytes) for argument, result, size_bytes in self.written_over],
        )  # fmt: skip
        if self._room is not None and call.bytes <= self._room[0].size_bytes:
            call._have_room(self._room)
        return call

    def keep_room(self) -> bool:
        """Whether calls have found memory of the program's own, one at a time; the others ask the allocator, which clears it."""
        lease = leased(self.bytes)
        if lease is None:
            return False
        self._have_room((lease, np.array([0, lease.address], np.int64)))
        return True

    def _have_room(self, room: tuple[memory.Lease, np.ndarray]) -> None:
        self._room = room
        self.words[native.ROOM] = room[1].ctypes.data

    def keep(self, kept: tuple[XlaCall, Sequence[tuple[int, int]]] | None) -> Any:
        """From now on a call whose arguments (number, address) these are runs the other record; None: no call does.

        What is returned, and the other record, must live until all calls have ended that began before the next `keep`.
        """
        if kept is None:
            self.words[native.KEPT] = 0  # without NumPy: arrays may end with the interpreter, when modules are gone
            return None
        other, places = kept
        table = np.array([other.address, len(places), *(w for pair in places for w in pair)], np.int64)
        self.words[native.KEPT] = table.ctypes.data
        return table

    def _words(self, words: Sequence[int]) -> int:
        made = np.array(words or [0], np.int64)
        self._keep.append(made)
        return int(made.ctypes.data)

    @staticmethod
    def _host(host: Callable[[int, Any], None], sizes: Mapping[int, int], failures: Failures) -> Any:
        """`host` as C calls it: (number of the step, address of the call's words, address of the step's table)."""

        def call(number: int, own: int, table: int, _: Any) -> None:
            try:
                size = sizes[number]
                host(number, np.array((ctypes.c_int64 * size).from_address(table) if size else (), np.int64))
            except BaseException as e:  # noqa: BLE001 (whatever it is, the thread that called raises it: C cannot)
                failures.keep(e)
                (ctypes.c_int64 * 4).from_address(own)[3] = native.FAILED

        return _HOST_TYPE(call)
