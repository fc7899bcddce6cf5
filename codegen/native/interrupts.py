"""Signals in the middle of native loops: a loop asks now and then whether a handler has raised, and returns when one has.

CPython's handlers run in the main thread, between two instructions of Python; compiled code that never returns would never be
interrupted. `tilewright_interrupted`, a native function that compiled loops call every so many turns, has the pending handlers
run (at most every `PERIOD_NANOSECONDS`, with the interpreter's lock), keeps what they raised, and answers 1 from then on. Whoever
called the compiled code then calls `raise_pending`. In other threads the answer is 0, and costs a comparison, unless all loops
there are to end (`end_loops`): nobody wants their results any more.

Kernels ask where they hold a loop without a known end; a long kernel of any other kind is finished first.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from codegen.target import clock_number

__all__ = [
    "CELL", "PYTHONS", "SYMBOL", "are_loops_ended", "end_loops", "install", "is_installed", "raise_pending", "raised_word",
    "source",
]  # fmt: skip

SYMBOL = "tilewright_interrupted"
CELL = "tilewright_interrupts_cell"
PERIOD_NANOSECONDS = 50_000_000
# words of the cell: the main thread, when it last asked, what was raised (type, value, traceback), whether other threads'
# loops are to end
_MAIN, _LAST, _RAISED, _ENDING = 0, 1, 2, 5
_WORDS = 6

_IR = f"""
target triple = "{{triple}}"
declare i64 @PyThread_get_thread_ident()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare i32 @clock_gettime(i32, ptr)
@cell = internal global [{_WORDS} x i64] zeroinitializer, align 64

define ptr @{CELL}() {{{{
  ret ptr @cell
}}}}

define i32 @{SYMBOL}() {{{{
entry:
  %time = alloca [2 x i64]
  %here = call i64 @PyThread_get_thread_ident()
  %main = load i64, ptr @cell
  %is_main = icmp eq i64 %here, %main
  br i1 %is_main, label %pending, label %other
other:
  %ending_at = getelementptr i64, ptr @cell, i64 {_ENDING}
  %ending = load atomic i64, ptr %ending_at seq_cst, align 8
  %ends = icmp ne i64 %ending, 0
  br i1 %ends, label %yes, label %no
pending:
  %type_at = getelementptr i64, ptr @cell, i64 {_RAISED}
  %value_at = getelementptr i64, ptr @cell, i64 {_RAISED + 1}
  %trace_at = getelementptr i64, ptr @cell, i64 {_RAISED + 2}
  %type = load i64, ptr %type_at
  %has = icmp ne i64 %type, 0
  br i1 %has, label %yes, label %when
when:
  %failed = call i32 @clock_gettime(i32 {{clock}}, ptr %time)
  %seconds = load i64, ptr %time
  %rest_at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_at
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  %last_at = getelementptr i64, ptr @cell, i64 {_LAST}
  %last = load i64, ptr %last_at
  %gone = sub i64 %now, %last
  %late = icmp sgt i64 %gone, {PERIOD_NANOSECONDS}
  br i1 %late, label %ask, label %no
ask:
  store i64 %now, ptr %last_at
  %state = call i32 @PyGILState_Ensure()
  %found = call i32 @PyErr_CheckSignals()
  %raised = icmp ne i32 %found, 0
  br i1 %raised, label %keep, label %go_on
keep:
  call void @PyErr_Fetch(ptr %type_at, ptr %value_at, ptr %trace_at)
  call void @PyGILState_Release(i32 %state)
  br label %yes
go_on:
  call void @PyGILState_Release(i32 %state)
  br label %no
yes:
  ret i32 1
no:
  ret i32 0
}}}}
"""
_SILENT_IR = f"""
target triple = "{{triple}}"
define ptr @{CELL}() {{{{
  ret ptr null
}}}}
define i32 @{SYMBOL}() {{{{
  ret i32 0
}}}}
"""
PYTHONS = ("PyThread_get_thread_ident", "PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch")


_cell: Any = (ctypes.c_int64 * _WORDS)()  # until there is native code that asks, nothing can be raised in it
_installed: list[object] = []


def source(asks: bool, triple: str) -> str:
    """The LLVM text of the native function; one that always answers 0 where Python cannot be asked."""
    return (_IR if asks else _SILENT_IR).format(triple=triple, clock=clock_number(triple))


def install(place: int, code: object) -> None:
    """Takes the cell of the native function that was loaded; `code` lives as long as the process."""
    global _cell
    if place:
        _cell = (ctypes.c_int64 * _WORDS).from_address(place)
    _cell[_MAIN] = threading.main_thread().ident or 0
    _installed.append(code)


def end_loops(ending: bool) -> None:
    """Has loops in all threads but the main one return in the middle, or no longer."""
    _cell[_ENDING] = int(ending)


def are_loops_ended() -> bool:
    """Whether loops in the caller's thread are to return in the middle: for loops of which each turn is a call of its own."""
    return bool(_cell[_ENDING]) and threading.get_ident() != _cell[_MAIN]


def is_installed() -> bool:
    return bool(_installed)


def raised_word() -> ctypes.c_int64:
    """What is zero as long as `raise_pending` has nothing to do; asked for when the code that asks is loaded."""
    return ctypes.c_int64.from_address(ctypes.addressof(_cell) + 8 * _RAISED)


def raise_pending() -> None:
    """Raises what a signal's handler raised while compiled code ran in this thread; does nothing where nothing was."""
    cell = _cell
    if not cell[_RAISED] or cell[_MAIN] != threading.get_ident():
        return
    raised = [ctypes.c_void_p(cell[k]) for k in range(_RAISED, _RAISED + 3)]
    cell[_RAISED : _RAISED + 3] = [0, 0, 0]
    restore = ctypes.pythonapi.PyErr_Restore
    restore.restype, restore.argtypes = None, (ctypes.c_void_p,) * 3
    restore(*raised)  # which ctypes raises, as it does for every function of Python's


def _after_fork() -> None:
    """The thread that forked is the child's main thread."""
    if _installed:
        _cell[_MAIN] = threading.get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
