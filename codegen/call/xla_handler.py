"""The native function that XLA calls for every program (`codegen.call.xla_call`), and what a program's record holds for it.

    handler_address()    the function itself: XLA's call frame in, an error or nothing out
    FRAME_SOURCE         what it runs: finds the memories of a call, then runs the program's steps over them
    the words of a record, in their order, and those of XLA's structures that are read
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from codegen.call.direct import native_function
from codegen.launcher import words
from codegen.native.jit import compile_kernel
from codegen.native.signature import KernelSignature
from codegen.target import default_target

__all__ = ["ATTRIBUTE", "HOLD", "MESSAGE", "TARGET", "allocator", "handler_address", "hold_type", "prepare"]

TARGET, HOLD = "tilewright_call", "tilewright_call_hold"
ATTRIBUTE = "record"
_SYMBOL, _LET_GO, _TYPE = "tilewright_xla_call", "tilewright_xla_let_go", "tilewright_xla_type"
LINE = 64

# words of a program's record
(
    BODY, BYTES, SLOTS, FIXED, ARENA_COUNT, ARENA, ARENA_AT, GIVEN_COUNT, GIVEN, MADE_COUNT, MADE, CELLS, CELL_SLOTS,
    STEP_WORDS, STEPS, RUN, SCRATCH_AT, STRIDE, THREADS, POOL_CELL, HOST, DONE, ALLOCATE, RELEASE, KEPT, HELD,
    OVER_COUNT, OVER, ROOM,
) = range(29)  # fmt: skip
RECORD_WORDS = 29
# words of a row of results: its memory, the bytes that are copied from there after the run (0: the program writes the result
# itself), and the bits that its address must not have
MADE_WORDS = 3
# words of a row of arguments that are written over: its number, the result's that lies there, its bytes
OVER_WORDS = 3
# words of XLA's structures: of a call frame the pointers to its arguments and results, of a buffer its data
ARGUMENTS, RESULTS, DATA = 9, 14, 3
# what became of a call
FINE, REFUSED, FAILED, INTERRUPTED = 0, 1, 2, 3

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
  %held_at = getelementptr ptr, ptr %record, i64 {HELD}
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
  %allocate_at = getelementptr ptr, ptr %record, i64 {ALLOCATE}
  %allocate = load ptr, ptr %allocate_at
  %own_room_at = getelementptr ptr, ptr %record, i64 {ROOM}
  %own_room = load ptr, ptr %own_room_at
  %has_own = icmp ne ptr %own_room, null
  br i1 %has_own, label %try_own, label %ask
try_own:
  %exchanged = cmpxchg ptr %own_room, i64 0, i64 1 seq_cst seq_cst
  %is_free = extractvalue {{{{i64, i1}}}} %exchanged, 1
  br i1 %is_free, label %take_own, label %ask
take_own:
  %own_memory_at = getelementptr ptr, ptr %own_room, i64 1
  %own_memory = load ptr, ptr %own_memory_at
  br label %found
ask:
  %asked_memory = call ptr %allocate(i64 %bytes)
  br label %found
found:
  %room = phi ptr [%own_memory, %take_own], [%asked_memory, %ask]
  %is_own = phi i1 [true, %take_own], [false, %ask]
  %has_room = icmp ne ptr %room, null
  %release_at = getelementptr ptr, ptr %record, i64 {RELEASE}
  %release = load ptr, ptr %release_at
  %done_at = getelementptr ptr, ptr %record, i64 {DONE}
  %ended = load ptr, ptr %done_at
  br i1 %has_room, label %go, label %none
none:
  %count_none = atomicrmw add ptr %ended, i64 1 seq_cst
  br label %fail
go:
  %room_number = ptrtoint ptr %room to i64
  %room_end = add i64 %room_number, {LINE - 1}
  %memory_number = and i64 %room_end, {-LINE}
  %call_number = ptrtoint ptr %call to i64
  %own_1 = getelementptr i64, ptr %own, i64 1
  %own_2 = getelementptr i64, ptr %own, i64 2
  %own_3 = getelementptr i64, ptr %own, i64 3
  store i64 %call_number, ptr %own
  store i64 %number, ptr %own_1
  store i64 %memory_number, ptr %own_2
  store i64 {FINE}, ptr %own_3
  %own_number = ptrtoint ptr %own to i64
  %body = load ptr, ptr %record
; BEGIN
  call void %body(i64 %own_number, i64 0, ptr null, ptr null)
; END
  br i1 %is_own, label %give_back, label %free
give_back:
  store atomic i64 0, ptr %own_room seq_cst, align 8
  br label %ending
free:
  call void %release(ptr %room)
  br label %ending
ending:
  ; Whoever waits for the end of the last call may now free the record, the program and this word.
  %count = atomicrmw add ptr %ended, i64 1 seq_cst
  %status = load i64, ptr %own_3
  ; Where it was interrupted, the results are nobody's: the caller raises what the signal's handler raised.
  %is_over = icmp eq i64 %status, {FINE}
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
    kept_at = record[{KEPT}]
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
    slots = record[{SLOTS}]
    fixed = words(record[{FIXED}])
    for k in range(slots):
        addresses[k] = fixed[k]
    base = memory + record[{ARENA_AT}]
    arena = words(record[{ARENA}])
    for k in range(record[{ARENA_COUNT}]):
        addresses[arena[2 * k]] = base + arena[2 * k + 1]
    given = words(record[{GIVEN}])
    for k in range(record[{GIVEN_COUNT}]):
        if given[k] >= 0:
            addresses[given[k]] = __GIVEN__
    made = words(record[{MADE}])
    results = record[{MADE_COUNT}]
    targets = words(call[{RESULTS}])
    for k in range(results):
        row = k * {MADE_WORDS}
        address = __MADE__
        if address & made[row + 2] != 0:
            own[3] = {REFUSED}
        if made[row + 1] == 0:
            addresses[made[row]] = address
    if own[3] == 0:
        # In the caller's memory only where the caller gave it away: then a result's is the argument's
        over = words(record[{OVER}])
        for k in range(record[{OVER_COUNT}]):
            row = k * {OVER_WORDS}
            source = __OVER_GIVEN__
            target = __OVER_MADE__
            if source != target:
                copy_bytes(target, source, over[row + 2])
        cells = record[{CELLS}]
        table_at = memory + 8 * slots
        table = words(table_at)
        cell_slots = words(record[{CELL_SLOTS}])
        for k in range(cells):
            table[k] = addresses[cell_slots[k]]
        steps_at = table_at + 8 * cells
        count = record[{STEP_WORDS}] // {words.STEP_WORDS}
        copy_bytes(steps_at, record[{STEPS}], 8 * record[{STEP_WORDS}])
        steps = words(steps_at)
        for k in range(count):
            steps[{words.STEP_WORDS} * k + {words.TABLE}] += table_at
        run_at = steps_at + 8 * record[{STEP_WORDS}]
        run = words(run_at)
        for k in range({words.RUN_WORDS}):
            run[k] = 0
        run[{words.STEPS}] = steps_at
        run[{words.COUNT}] = count
        run[{words.BASE}] = memory + record[{SCRATCH_AT}]
        run[{words.ROOM}] = record[{STRIDE}]
        run[{words.CELLS}] = table_at
        goes_on = True
        while goes_on:
            pool_at = words(record[{POOL_CELL}])[0]
            threads = int64(1)
            if pool_at != 0 and record[{THREADS}] > 1:
                pool = words(pool_at)
                threads = min(record[{THREADS}], atomic_load(pool, {words.WORKERS}) + 1)
            run[{words.THREADS}] = threads
            run[{words.POOL}] = pool_at
            call_entry(record[{RUN}], run_at, 0, 0, 0)
            position = run[{words.POSITION}]
            if position < 0:
                own[3] = {INTERRUPTED}
                goes_on = False
            elif position >= count:
                goes_on = False
            else:
                # Python's: it finds the buffers' addresses in the step's table, and tells in the status whether it raised
                call_entry(record[{HOST}], position, begin, steps[{words.STEP_WORDS} * position + {words.TABLE}], 0)
                run[{words.POSITION}] = position + 1
                goes_on = own[3] == 0
    if own[3] == 0:
        for k in range(results):
            row = k * {MADE_WORDS}
            if made[row + 1] != 0:
                copy_bytes(__MADE__, addresses[made[row]], made[row + 1])
"""


def _body(address: str) -> str:
    def at(table: str, number: str) -> str:
        return address.format(f"{table}[{number}]")

    source = _BODY_SOURCE.replace("__GIVEN__", at("buffers", "k")).replace("__MADE__", at("targets", "k"))
    return source.replace("__OVER_GIVEN__", at("buffers", "over[row]")).replace("__OVER_MADE__", at("targets", "over[row + 1]"))


FRAME_SOURCE = _body(f"words({{}})[{DATA}]")
# For callers who have the addresses: of the arguments' elements, of the results'
PLAIN_SOURCE = _body("{}")

NO_BUFFERS = KernelSignature(())


def prepare() -> None:
    """Has the code that every call from XLA runs loaded."""
    handler_address()
    compile_kernel(FRAME_SOURCE, NO_BUFFERS)


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
def allocator() -> tuple[Any, Any]:
    """malloc and free as this process has them: of one allocator, also where another was loaded before libc.

    (Such a one need not have posix_memalign.)
    """
    process = ctypes.CDLL(None)
    process.malloc.restype, process.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    process.free.restype, process.free.argtypes = None, [ctypes.c_void_p]
    return process.malloc, process.free
