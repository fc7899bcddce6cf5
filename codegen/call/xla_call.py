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
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from codegen.call.direct import native_function
from codegen.launcher import launch, native_threads, words
from codegen.native.jit import compile_kernel
from codegen.native.signature import KernelSignature
from codegen.target import default_target

__all__ = [
    "ARGUMENTS", "ATTRIBUTE", "BODY", "BYTES", "HOLD", "INTERRUPTED", "MESSAGE", "RESULTS", "TARGET", "Failures", "XlaCall",
    "expect_memory", "handler_address", "hold_type", "prepare",
]  # fmt: skip

TARGET, HOLD = "tilewright_call", "tilewright_call_hold"
ATTRIBUTE = "record"
_SYMBOL, _LET_GO, _TYPE = "tilewright_xla_call", "tilewright_xla_let_go", "tilewright_xla_type"
_LINE = 64

# words of a program's record
(
    BODY, BYTES, _SLOTS, _FIXED, _ARENA_COUNT, _ARENA, _ARENA_AT, _GIVEN_COUNT, _GIVEN, _MADE_COUNT, _MADE, _CELLS, _CELL_SLOTS,
    _STEP_WORDS, _STEPS, _RUN, _SCRATCH_AT, _STRIDE, _THREADS, _POOL_CELL, _HOST, _DONE, _ALLOCATE, _RELEASE, _KEPT, _HELD,
) = range(26)  # fmt: skip
_RECORD_WORDS = 26
# words of a row of results: its memory, the bytes that are copied from there after the run (0: the program writes the result
# itself), and the bits that its address must not have
_MADE_WORDS = 3
# words of XLA's structures: of a call frame the pointers to its arguments and results, of a buffer its data
ARGUMENTS, RESULTS, _DATA = 9, 14, 3
# what became of a call
_FINE, _REFUSED, _FAILED, INTERRUPTED = 0, 1, 2, 3

MESSAGE = "Tilewright: a step failed or was refused"

# XLA's threads take numbers below the normal ones for zero: (declarations, how it is switched off, how it is again as it was) by
# architecture. Bits 15 and 6 of MXCSR, 24 and 19 of FPCR.
_MODES = {
    "x86_64": (
        "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)",
        """  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  %was = load i32, ptr %mode
  %exact = and i32 %was, -32833
  store i32 %exact, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)""",
        "  store i32 %was, ptr %mode\n  call void @llvm.x86.sse.ldmxcsr(ptr %mode)",
    ),
    "aarch64": (
        "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)",
        """  %was = call i64 @llvm.aarch64.get.fpcr()
  %exact = and i64 %was, -17301505
  call void @llvm.aarch64.set.fpcr(i64 %exact)""",
        "  call void @llvm.aarch64.set.fpcr(i64 %was)",
    ),
}


def _handler(triple: str) -> str:
    """The handler's LLVM module; `{triple}` is left for who compiles it."""
    machine = triple.partition("-")[0].replace("arm64", "aarch64")
    declared, begin, end = _MODES.get(machine, ("", "", ""))
    return _IR.replace("; DECLARED", declared).replace("; BEGIN", begin).replace("; END", end)


_IR = f"""
target triple = "{{triple}}"
; DECLARED
@message = internal constant [{len(MESSAGE) + 1} x i8] c"{MESSAGE}\\00"
@type = internal global i64 0, align 8

define ptr @{_TYPE}() {{{{
  ret ptr @type
}}}}

define void @{_LET_GO}(ptr %held) {{{{
  %count = atomicrmw sub ptr %held, i64 1 seq_cst
  ret void
}}}}

define ptr @{_SYMBOL}(ptr %call) {{{{
entry:
  %own = alloca [4 x i64]
  %mode = alloca i32
  %error = alloca [4 x i64]
  %set = alloca [6 x i64]
  %extension_at = getelementptr ptr, ptr %call, i64 1
  %extension = load ptr, ptr %extension_at
  %has_none = icmp eq ptr %extension, null
  br i1 %has_none, label %execute, label %asked
asked:
  %kind_at = getelementptr i64, ptr %extension, i64 1
  %kind = load i32, ptr %kind_at
  %is_version = icmp eq i32 %kind, 1
  br i1 %is_version, label %version, label %execute
version:
  %metadata_at = getelementptr ptr, ptr %extension, i64 3
  %metadata = load ptr, ptr %metadata_at
  %major = getelementptr i32, ptr %metadata, i64 6
  store i32 0, ptr %major
  %minor = getelementptr i32, ptr %metadata, i64 7
  store i32 3, ptr %minor
  %metadata_bytes = load i64, ptr %metadata
  %is_long = icmp ugt i64 %metadata_bytes, 40
  br i1 %is_long, label %typed, label %done
typed:
  %type_at = getelementptr i64, ptr %metadata, i64 5
  %type = load i64, ptr @type
  store i64 %type, ptr %type_at
  ret ptr null
execute:
  %stage_at = getelementptr i64, ptr %call, i64 4
  %stage = load i32, ptr %stage_at
  %attributes_at = getelementptr ptr, ptr %call, i64 20
  %attributes = load ptr, ptr %attributes_at
  %scalar = load ptr, ptr %attributes
  %value_at = getelementptr ptr, ptr %scalar, i64 1
  %value = load ptr, ptr %value_at
  %number = load i64, ptr %value
  %record = inttoptr i64 %number to ptr
  %is_made = icmp eq i32 %stage, 0
  br i1 %is_made, label %hold, label %run
hold:
  %held_at = getelementptr ptr, ptr %record, i64 {_HELD}
  %held = load ptr, ptr %held_at
  %count_held = atomicrmw add ptr %held, i64 1 seq_cst
  %context_at = getelementptr ptr, ptr %call, i64 3
  %context = load ptr, ptr %context_at
  %set_1 = getelementptr ptr, ptr %set, i64 1
  %set_2 = getelementptr ptr, ptr %set, i64 2
  %set_3 = getelementptr ptr, ptr %set, i64 3
  %set_4 = getelementptr ptr, ptr %set, i64 4
  %set_5 = getelementptr ptr, ptr %set, i64 5
  store i64 48, ptr %set
  store ptr null, ptr %set_1
  store ptr %context, ptr %set_2
  store i64 0, ptr %set_3
  store ptr @type, ptr %set_4
  store ptr %held, ptr %set_5
  %set_api_at = getelementptr ptr, ptr %call, i64 2
  %set_api = load ptr, ptr %set_api_at
  %set_state_at = getelementptr ptr, ptr %set_api, i64 13
  %set_state = load ptr, ptr %set_state_at
  %set_error = call ptr %set_state(ptr %set)
  %is_set = icmp eq ptr %set_error, null
  br i1 %is_set, label %done, label %not_held
not_held:
  %count_not = atomicrmw sub ptr %held, i64 1 seq_cst
  ret ptr %set_error
run:
  %bytes_at = getelementptr i64, ptr %record, i64 {BYTES}
  %bytes = load i64, ptr %bytes_at
  %allocate_at = getelementptr ptr, ptr %record, i64 {_ALLOCATE}
  %allocate = load ptr, ptr %allocate_at
  %room = call ptr %allocate(i64 %bytes)
  %has_room = icmp ne ptr %room, null
  %release_at = getelementptr ptr, ptr %record, i64 {_RELEASE}
  %release = load ptr, ptr %release_at
  %done_at = getelementptr ptr, ptr %record, i64 {_DONE}
  %ended = load ptr, ptr %done_at
  br i1 %has_room, label %go, label %none
none:
  %count_none = atomicrmw add ptr %ended, i64 1 seq_cst
  br label %fail
go:
  %room_number = ptrtoint ptr %room to i64
  %room_end = add i64 %room_number, {_LINE - 1}
  %memory_number = and i64 %room_end, {-_LINE}
  %call_number = ptrtoint ptr %call to i64
  %own_1 = getelementptr i64, ptr %own, i64 1
  %own_2 = getelementptr i64, ptr %own, i64 2
  %own_3 = getelementptr i64, ptr %own, i64 3
  store i64 %call_number, ptr %own
  store i64 %number, ptr %own_1
  store i64 %memory_number, ptr %own_2
  store i64 {_FINE}, ptr %own_3
  %own_number = ptrtoint ptr %own to i64
  %body = load ptr, ptr %record
; BEGIN
  call void %body(i64 %own_number, i64 0, ptr null, ptr null)
; END
  call void %release(ptr %room)
  ; Whoever waits for the end of the last call may now free the record, the program and this word.
  %count = atomicrmw add ptr %ended, i64 1 seq_cst
  %status = load i64, ptr %own_3
  ; Where it was interrupted, the results are nobody's: the caller raises what the signal's handler raised.
  %is_over = icmp eq i64 %status, {_FINE}
  %is_interrupted = icmp eq i64 %status, {INTERRUPTED}
  %is_fine = or i1 %is_over, %is_interrupted
  br i1 %is_fine, label %done, label %fail
done:
  ret ptr null
fail:
  %api_at = getelementptr ptr, ptr %call, i64 2
  %api = load ptr, ptr %api_at
  %create_at = getelementptr ptr, ptr %api, i64 6
  %create = load ptr, ptr %create_at
  %message_at = getelementptr ptr, ptr %error, i64 2
  %code_at = getelementptr i64, ptr %error, i64 3
  %none_at = getelementptr ptr, ptr %error, i64 1
  store i64 32, ptr %error
  store ptr null, ptr %none_at
  store ptr @message, ptr %message_at
  store i64 10, ptr %code_at
  %made = call ptr %create(ptr %error)
  ret ptr %made
}}}}
"""
_BODY_SOURCE = f"""
def kernel(begin, end):
    # begin is the address of [call frame, record, memory, status]
    own = words(begin)
    call = words(own[0])
    record = words(own[1])
    memory = own[2]
    buffers = words(call[{ARGUMENTS}])
    kept_at = record[{_KEPT}]
    if kept_at != 0:
        kept = words(kept_at)
        is_kept = True
        for n in range(kept[1]):
            k = kept[2 * n + 2]
            if __GIVEN__ != kept[2 * n + 3]:
                is_kept = False
        if is_kept:
            record = words(kept[0])
    addresses = words(memory)
    slots = record[{_SLOTS}]
    fixed = words(record[{_FIXED}])
    for k in range(slots):
        addresses[k] = fixed[k]
    base = memory + record[{_ARENA_AT}]
    arena = words(record[{_ARENA}])
    for k in range(record[{_ARENA_COUNT}]):
        addresses[arena[2 * k]] = base + arena[2 * k + 1]
    given = words(record[{_GIVEN}])
    for k in range(record[{_GIVEN_COUNT}]):
        if given[k] >= 0:
            addresses[given[k]] = __GIVEN__
    made = words(record[{_MADE}])
    results = record[{_MADE_COUNT}]
    targets = words(call[{RESULTS}])
    for k in range(results):
        row = k * {_MADE_WORDS}
        address = __MADE__
        if address & made[row + 2] != 0:
            own[3] = {_REFUSED}
        if made[row + 1] == 0:
            addresses[made[row]] = address
    if own[3] == 0:
        cells = record[{_CELLS}]
        table_at = memory + 8 * slots
        table = words(table_at)
        cell_slots = words(record[{_CELL_SLOTS}])
        for k in range(cells):
            table[k] = addresses[cell_slots[k]]
        steps_at = table_at + 8 * cells
        count = record[{_STEP_WORDS}] // {words.STEP_WORDS}
        copy_bytes(steps_at, record[{_STEPS}], 8 * record[{_STEP_WORDS}])
        steps = words(steps_at)
        for k in range(count):
            steps[{words.STEP_WORDS} * k + {words.TABLE}] += table_at
        run_at = steps_at + 8 * record[{_STEP_WORDS}]
        run = words(run_at)
        for k in range({words.RUN_WORDS}):
            run[k] = 0
        run[{words.STEPS}] = steps_at
        run[{words.COUNT}] = count
        run[{words.BASE}] = memory + record[{_SCRATCH_AT}]
        run[{words.ROOM}] = record[{_STRIDE}]
        run[{words.CELLS}] = table_at
        goes_on = True
        while goes_on:
            pool_at = words(record[{_POOL_CELL}])[0]
            threads = int64(1)
            if pool_at != 0 and record[{_THREADS}] > 1:
                pool = words(pool_at)
                threads = min(record[{_THREADS}], atomic_load(pool, {words.WORKERS}) + 1)
            run[{words.THREADS}] = threads
            run[{words.POOL}] = pool_at
            call_entry(record[{_RUN}], run_at, 0, 0, 0)
            position = run[{words.POSITION}]
            if position < 0:
                own[3] = {INTERRUPTED}
                goes_on = False
            elif position >= count:
                goes_on = False
            else:
                # Python's: it finds the buffers' addresses in the step's table, and tells in the status whether it raised
                call_entry(record[{_HOST}], position, begin, steps[{words.STEP_WORDS} * position + {words.TABLE}], 0)
                run[{words.POSITION}] = position + 1
                goes_on = own[3] == 0
    if own[3] == 0:
        for k in range(results):
            row = k * {_MADE_WORDS}
            if made[row + 1] != 0:
                copy_bytes(__MADE__, addresses[made[row]], made[row + 1])
"""


def _body(given: str, made: str) -> str:
    return _BODY_SOURCE.replace("__GIVEN__", given).replace("__MADE__", made)


_FRAME_SOURCE = _body(f"words(buffers[k])[{_DATA}]", f"words(targets[k])[{_DATA}]")
# For callers who have the addresses: of the arguments' elements, of the results'
_PLAIN_SOURCE = _body("buffers[k]", "targets[k]")

_HOST_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_NO_BUFFERS = KernelSignature(())


def prepare() -> None:
    """Has the code that every call from XLA runs loaded."""
    handler_address()
    compile_kernel(_FRAME_SOURCE, _NO_BUFFERS)


@functools.cache
def _loaded() -> Any:
    return native_function(_handler(default_target().triple), _SYMBOL)[1]


def handler_address() -> int:
    """The address of the function that XLA calls; it stays for the life of the process."""
    return int(_loaded().address(_SYMBOL))


@functools.cache
def hold_type() -> tuple[int, int]:
    """The addresses of XLA's number for states of this handler, and of what says how one is destroyed (`XLA_FFI_TypeInfo`).

    Both stay for the life of the process. Whoever has XLA know the handler has it know this type first, by the name `HOLD`.
    """
    loaded = _loaded()
    description = np.array([24, 0, loaded.address(_LET_GO)], np.int64)
    _kept.append(description)
    return int(ctypes.CFUNCTYPE(ctypes.c_void_p)(loaded.address(_TYPE))()), int(description.ctypes.data)


_kept: list[np.ndarray] = []


@functools.cache
def _allocator() -> tuple[Any, Any]:
    """malloc and free as this process has them: of one allocator, also where another was loaded before libc.

    (Such a one need not have posix_memalign.)
    """
    process = ctypes.CDLL(None)
    process.malloc.restype, process.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    process.free.restype, process.free.argtypes = None, [ctypes.c_void_p]
    return process.malloc, process.free


_LARGEST_KEPT_BYTES = (32 << 20) - (1 << 16)


def expect_memory(size_bytes: int) -> None:
    """Tells the allocator that blocks of this size in all come and go again and again.

    The GNU C library gives memory back to the system above limits that grow with the blocks that it has seen freed, up to 32 MB
    (mallopt(3), M_MMAP_THRESHOLD). Where it does so, every call waits for the system to clear its pages anew.
    """
    allocate, release = _allocator()
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
    ) -> None:
        self._keep: list[Any] = [plan, *keep]
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
        arena_at = -(-8 * room_words // _LINE) * _LINE
        scratch_at = arena_at + -(-arena_bytes // _LINE) * _LINE
        body = compile_kernel(_PLAIN_SOURCE if is_plain else _FRAME_SOURCE, _NO_BUFFERS)
        sizes = {k: len(s.buffers) for k, s in enumerate(plan.steps) if isinstance(s, launch.Host)}
        called = self._host(host, sizes, failures) if sizes else None
        self._keep += [body, called]
        record = [0] * _RECORD_WORDS
        record[BODY] = body.entry
        record[BYTES] = self.bytes = scratch_at + plan.scratch_stride * self.threads + 2 * _LINE
        record[_SLOTS], record[_FIXED] = slots, self._words([fixed.get(k, 0) for k in range(slots)])
        record[_ARENA_COUNT], record[_ARENA] = len(offsets), self._words([w for pair in offsets.items() for w in pair])
        record[_ARENA_AT], record[_SCRATCH_AT] = arena_at, scratch_at
        record[_GIVEN_COUNT], record[_GIVEN] = len(given), self._words([-1 if s is None else s for s in given])
        record[_MADE_COUNT] = len(made)
        record[_MADE] = self._words([w for slot, copied, align in made for w in (slot, copied, align - 1)])
        record[_CELLS], record[_CELL_SLOTS] = len(plan.slots), self._words(plan.slots.tolist())
        record[_STEP_WORDS], record[_STEPS] = template.size, self._words(template.ravel().tolist())
        record[_RUN], record[_STRIDE] = native_threads.runner_entry(), plan.scratch_stride
        record[_THREADS] = self.threads
        record[_POOL_CELL] = native_threads.pool_cell_address()
        record[_HOST] = ctypes.cast(called, ctypes.c_void_p).value or 0 if called is not None else 0
        record[_DONE] = done
        record[_ALLOCATE], record[_RELEASE] = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in _allocator())
        record[_HELD] = held
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
        return XlaCall(
            plan, [slot for n, slot in enumerate(given) if n not in known], made, {**fixed, **at},
            {k: offset for k, offset in offsets.items() if k not in at}, arena_bytes, threads,
            lambda number, addresses: host(numbers[number], addresses), done, failures, is_plain, keep, held,
        )  # fmt: skip

    def keep(self, kept: tuple[XlaCall, Sequence[tuple[int, int]]] | None) -> Any:
        """From now on a call whose arguments (number, address) these are runs the other record; None: no call does.

        What is returned, and the other record, must live until all calls have ended that began before the next `keep`.
        """
        if kept is None:
            self.words[_KEPT] = 0  # without NumPy: arrays may end with the interpreter, when modules are gone
            return None
        other, places = kept
        table = np.array([other.address, len(places), *(w for pair in places for w in pair)], np.int64)
        self.words[_KEPT] = table.ctypes.data
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
                (ctypes.c_int64 * 4).from_address(own)[3] = _FAILED

        return _HOST_TYPE(call)
