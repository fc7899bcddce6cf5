"""The functions that jaxlib calls: native ones, each of which calls its Python function and lets no exception through.

jaxlib gets the address of a small native function for each entry of the interface. What is called again and again has a
native function of its own (`native_source`), which is asked first. The rest takes the interpreter's lock, puts an exception aside
that is on its way (jaxlib destroys things then, too), calls Python with the address of the arguments, and returns the number that
Python returned: 0, or the handle of an error. Where Python raised instead, as a signal's handler may at any place, it returns an
error (`INTERRUPTED`), and has the exception raised again in the main thread as soon as jaxlib is back in Python. jaxlib ends the
process when certain quick functions fail (sizes, names): those are called again first, and beyond the limit of recursion where
that was reached. What merely lets go of something never fails.

Once the interpreter takes itself down (after its functions of `atexit`, of which JAX's drop the client), Python is not called any
more: letting go does nothing, all else fails.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from codegen.call.direct import native_function
from tilewright.pjrt.handles import INTERRUPTED, INTERRUPTED_TEXT, Problem, new_error
from tilewright.pjrt.layout import API_SIZE, ARGUMENTS, CODES, FUNCTIONS, VERSION, check_size
from tilewright.pjrt.native import functions as native_functions
from tilewright.pjrt.native import state
from tilewright.pjrt.native_source import INNER
from tilewright.pjrt.records import ASK, PYTHON

__all__ = ["Entries"]

_ATTEMPTS = 4
_DEPTH = 200  # frames that quick functions have beyond the limit of recursion
_ROW_WORDS = 6
# words before the rows: functions of Python's, two of its exceptions, the main thread, an exception that is to be raised again
# (three words), how many calls have more depth of recursion and what the limit was, the text of `INTERRUPTED` and its size
_PYTHONS = (
    "PyGILState_Ensure PyGILState_Release PyLong_FromVoidPtr PyObject_CallOneArg PyLong_AsVoidPtr Py_DecRef PyErr_Fetch"
    " PyErr_Restore PyErr_Clear PyErr_ExceptionMatches PyErr_WriteUnraisable Py_AddPendingCall PyThread_get_thread_ident"
    " Py_GetRecursionLimit Py_SetRecursionLimit"
).split()
_ENDS = len(_PYTHONS)
(
    _RECURSION, _MEMORY, _MAIN, _TYPE, _VALUE, _TRACE, _DEEP, _LIMIT, _TEXT, _TEXT_SIZE, _STATE, _ROWS,
) = range(_ENDS + 1, _ENDS + 13)  # fmt: skip
# words of a row: Python's function, what is returned when it raised, what once Python is gone, how often it is called, the native
# function that is asked first, and what it gets to know which one is meant
_CALL, _RAISED, _GONE, _TIMES, _NATIVE, _WHICH = range(6)
_ALL = (*FUNCTIONS, *INNER)
_WORDS = _ROWS + _ROW_WORDS * len(_ALL)

_LET_GO = ("Buffer_Delete", "LoadedExecutable_Delete", "Buffer_DecreaseExternalReferenceCount")
_HARMLESS = frozenset(n for n in FUNCTIONS if n.endswith("_Destroy") or n in _LET_GO)
"""What returns success when it was not done: memory stays, nothing else happens."""

_ONCE = frozenset(
    "Client_Create Client_Compile Compile Executable_DeserializeAndLoad LoadedExecutable_Execute Client_BufferFromHostBuffer"
    " Event_Await Buffer_ToHostBuffer Buffer_CopyToDevice Buffer_CopyToMemory Buffer_CopyRawToHost Event_Set"
    " Client_CreateViewOfDeviceBuffer Buffer_DecreaseExternalReferenceCount".split()
)
"""What is not called a second time: it has effects, or takes long. Its errors are statuses to jaxlib, or it is harmless."""



def _load(name: str, word: int) -> str:
    """LLVM's text that loads a pointer from a word of the cell."""
    return f"""  %{name}_word = getelementptr i64, ptr @cell, i64 {word}
  %{name} = load ptr, ptr %{name}_word
"""


def _python(*names: str) -> str:
    return "".join(_load(name, _PYTHONS.index(name)) for name in names)


_COMMON = f"""
target triple = "{{triple}}"
@cell = internal global [{_WORDS} x i64] zeroinitializer, align 64

define ptr @tilewright_pjrt_cell() {{{{
  ret ptr @cell
}}}}

define internal i32 @raise_again(ptr %unused) {{{{
{_python("PyErr_Restore")}{_load("type", _TYPE)}{_load("value", _VALUE)}{_load("trace", _TRACE)}
  %is_none = icmp eq ptr %type, null
  br i1 %is_none, label %none, label %some
none:
  ret i32 0
some:
  store ptr null, ptr %type_word
  call void %PyErr_Restore(ptr %type, ptr %value, ptr %trace)
  ret i32 -1
}}}}

define internal ptr @call(ptr %arguments, i64 %row) {{{{
entry:
  %set_type = alloca ptr
  %set_value = alloca ptr
  %set_trace = alloca ptr
  %row_at = getelementptr i64, ptr @cell, i64 %row
{_load("ends", _ENDS)}
  %ending = call i32 %ends()
  %is_ending = icmp ne i32 %ending, 0
  br i1 %is_ending, label %gone, label %open
gone:
  %gone_at = getelementptr i64, ptr %row_at, i64 {_GONE}
  %gone_value = load ptr, ptr %gone_at
  ret ptr %gone_value
open:
{_python(*_PYTHONS)}
  %function = load ptr, ptr %row_at
  %raised_at = getelementptr i64, ptr %row_at, i64 {_RAISED}
  %raised = load ptr, ptr %raised_at
  %times_at = getelementptr i64, ptr %row_at, i64 {_TIMES}
  %times = load i64, ptr %times_at
  %state = call i32 %PyGILState_Ensure()
  call void %PyErr_Fetch(ptr %set_type, ptr %set_value, ptr %set_trace)
  br label %attempt
attempt:
  %k = phi i64 [0, %open], [%next, %again], [%k, %lifted]
  %is_lifted = phi i1 [false, %open], [%is_lifted, %again], [true, %lifted]
  %number = call ptr %PyLong_FromVoidPtr(ptr %arguments)
  %no_number = icmp eq ptr %number, null
  br i1 %no_number, label %failed, label %ask
ask:
  %answer = call ptr %PyObject_CallOneArg(ptr %function, ptr %number)
  call void %Py_DecRef(ptr %number)
  %no_answer = icmp eq ptr %answer, null
  br i1 %no_answer, label %failed, label %answered
answered:
  %found = call ptr %PyLong_AsVoidPtr(ptr %answer)
  call void %Py_DecRef(ptr %answer)
  br label %fine
failed:
{_load("recursion", _RECURSION)}{_load("memory", _MEMORY)}{_load("main", _MAIN)}{_load("kept", _TYPE)}
  %here = call ptr %PyThread_get_thread_ident()
  %is_main = icmp eq ptr %here, %main
  %is_free = icmp eq ptr %kept, null
  %is_deep = call i32 %PyErr_ExceptionMatches(ptr %recursion)
  %is_large = call i32 %PyErr_ExceptionMatches(ptr %memory)
  %is_recursion = icmp ne i32 %is_deep, 0
  %is_tried = icmp sgt i64 %times, 1
  %is_quiet = icmp eq ptr %raised, null
  %is_quick = or i1 %is_tried, %is_quiet
  %is_low = xor i1 %is_lifted, true
  %may_lift = and i1 %is_quick, %is_low
  %lifts = and i1 %is_recursion, %may_lift
  br i1 %lifts, label %lift, label %no_lift
lift:
  call void %PyErr_Clear()
  %deep_word = getelementptr i64, ptr @cell, i64 {_DEEP}
  %limit_word = getelementptr i64, ptr @cell, i64 {_LIMIT}
  %deep = load i64, ptr %deep_word
  %more_deep = add i64 %deep, 1
  store i64 %more_deep, ptr %deep_word
  %is_first = icmp eq i64 %deep, 0
  br i1 %is_first, label %raise_limit, label %lifted
raise_limit:
  %limit = call i32 %Py_GetRecursionLimit()
  %limit_wide = sext i32 %limit to i64
  store i64 %limit_wide, ptr %limit_word
  %limit_new = add i32 %limit, {_DEPTH}
  call void %Py_SetRecursionLimit(i32 %limit_new)
  br label %lifted
lifted:
  br label %attempt
no_lift:
  %is_foreign = icmp eq i32 %is_large, 0
  %takes_one = and i1 %is_main, %is_free
  %takes = and i1 %takes_one, %is_foreign
  br i1 %takes, label %keep, label %tell
keep:
  %value_word = getelementptr i64, ptr @cell, i64 {_VALUE}
  %trace_word = getelementptr i64, ptr @cell, i64 {_TRACE}
  call void %PyErr_Fetch(ptr %kept_word, ptr %value_word, ptr %trace_word)
  br label %again
tell:
  call void %PyErr_WriteUnraisable(ptr %function)
  br label %again
again:
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %attempt, label %fine
fine:
  %result = phi ptr [%found, %answered], [%raised, %again]
  %tries = phi i64 [%k, %answered], [%next, %again]
  br i1 %is_lifted, label %lower, label %lowered
lower:
  %down_word = getelementptr i64, ptr @cell, i64 {_DEEP}
  %down = load i64, ptr %down_word
  %less_deep = sub i64 %down, 1
  store i64 %less_deep, ptr %down_word
  %is_last = icmp eq i64 %less_deep, 0
  br i1 %is_last, label %lower_limit, label %lowered
lower_limit:
  %was_word = getelementptr i64, ptr @cell, i64 {_LIMIT}
  %was = load i64, ptr %was_word
  %was_narrow = trunc i64 %was to i32
  call void %Py_SetRecursionLimit(i32 %was_narrow)
  br label %lowered
lowered:
  %has_failed = icmp sgt i64 %tries, 0
  br i1 %has_failed, label %see, label %done
see:
{_load("held", _TYPE)}
  %is_held = icmp ne ptr %held, null
  br i1 %is_held, label %pend, label %done
pend:
  %unused = call i32 %Py_AddPendingCall(ptr @raise_again, ptr null)
  br label %done
done:
  %type_set = load ptr, ptr %set_type
  %value_set = load ptr, ptr %set_value
  %trace_set = load ptr, ptr %set_trace
  call void %PyErr_Restore(ptr %type_set, ptr %value_set, ptr %trace_set)
  call void %PyGILState_Release(i32 %state)
  ret ptr %result
}}}}
"""

# What is there already when Python's function raises before it has begun: an error's text and code
_BEFORE = {
    "Error_Message": f"""
  %text_from = getelementptr i64, ptr @cell, i64 {_TEXT}
  %text = load i64, ptr %text_from
  %text_at = getelementptr i64, ptr %arguments, i64 3
  store i64 %text, ptr %text_at
  %size_from = getelementptr i64, ptr @cell, i64 {_TEXT_SIZE}
  %size = load i64, ptr %size_from
  %size_at = getelementptr i64, ptr %arguments, i64 4
  store i64 %size, ptr %size_at""",
    "Error_GetCode": f"""
  %code_at = getelementptr i64, ptr %arguments, i64 3
  store i32 {CODES["CANCELLED"]}, ptr %code_at""",
}

# What follows Python's answer. An event that has ended is told here, exactly once, whatever is raised in Python: the answer says
# so in its last bit, and the rest of it is the error.
_AFTER = {
    "Event_OnReady": """
  %word = ptrtoint ptr %result to i64
  %bit = and i64 %word, 1
  %has_ended = icmp ne i64 %bit, 0
  br i1 %has_ended, label %tell, label %wait
tell:
  %error_word = xor i64 %word, 1
  %error = inttoptr i64 %error_word to ptr
  %callback_at = getelementptr i64, ptr %arguments, i64 3
  %callback = load ptr, ptr %callback_at
  %user_at = getelementptr i64, ptr %arguments, i64 4
  %user = load ptr, ptr %user_at
  call void %callback(ptr %error, ptr %user)
  ret ptr null
wait:""",
}

_PYTHON = """
define ptr @tilewright_pjrt_python(ptr %arguments, i64 %number, i64 %unused) {{
  %place = mul i64 %number, ROW_WORDS
  %row = add i64 %place, FIRST_ROW
  %result = call ptr @call(ptr %arguments, i64 %row)
  ret ptr %result
}}
""".replace("ROW_WORDS", str(_ROW_WORDS)).replace("FIRST_ROW", str(_ROWS + _ROW_WORDS * len(FUNCTIONS)))

_FUNCTION = f"""
define ptr @tilewright_pjrt_{{name}}(ptr %arguments) {{{{{{{{
entry:
  %own = alloca [4 x i64]
  %native_at = getelementptr i64, ptr @cell, i64 {{native}}
  %native = load ptr, ptr %native_at
  %has_none = icmp eq ptr %native, null
  br i1 %has_none, label %python, label %quick
quick:
  %which_at = getelementptr i64, ptr @cell, i64 {{which}}
  %which = load i64, ptr %which_at
  %state_at = getelementptr i64, ptr @cell, i64 {_STATE}
  %state = load i64, ptr %state_at
  %given = ptrtoint ptr %arguments to i64
  %own_1 = getelementptr i64, ptr %own, i64 1
  %own_2 = getelementptr i64, ptr %own, i64 2
  %own_3 = getelementptr i64, ptr %own, i64 3
  store i64 %given, ptr %own
  store i64 {ASK}, ptr %own_1
  store i64 %state, ptr %own_2
  store i64 0, ptr %own_3
  %own_number = ptrtoint ptr %own to i64
  call void %native(i64 %own_number, i64 %which, ptr null, ptr null)
  %found = load i64, ptr %own_1
  %is_open = icmp eq i64 %found, {ASK}
  br i1 %is_open, label %python, label %answered
answered:
  %answer = inttoptr i64 %found to ptr
  ret ptr %answer
python:{{before}}
  %result = call ptr @call(ptr %arguments, i64 {{row}}){{after}}
  ret ptr %result
}}}}}}}}
"""

_CAPSULE = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def _source() -> str:
    functions = [
        _FUNCTION.format(
            name=name, row=_row(name), native=_row(name) + _NATIVE, which=_row(name) + _WHICH, before=_BEFORE.get(name, ""),
            after=_AFTER.get(name, ""),
        )
        for name in FUNCTIONS
    ]  # fmt: skip
    return _COMMON + _PYTHON + "".join(functions)


def _row(name: str) -> int:
    """The first word of a function's row."""
    return _ROWS + _ROW_WORDS * _ALL.index(name)


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


class Entries:
    """The interface's table, for the life of the process; `functions` do what its entries say, each with its arguments.

    A function returns what jaxlib gets (None for 0), and raises `Problem` for what it refuses. What else it raises becomes an
    error that names it where the function is in `_ONCE`, and `INTERRUPTED` where not. `inner` is what native functions call.
    """

    def __init__(
        self, functions: Mapping[str, Callable[[Any], int | None]], inner: Mapping[str, Callable[[int], int]]
    ) -> None:
        unknown = functions.keys() - set(FUNCTIONS)
        assert not unknown, f"no functions of the interface: {sorted(unknown)}"
        # jaxlib calls also when the interpreter has dropped its modules: what it calls is never freed
        api = ctypes.pythonapi
        api.Py_IncRef(ctypes.py_object(self))
        place, self._code = native_function(_source(), "tilewright_pjrt_cell")
        self._cell = (ctypes.c_int64 * _WORDS).from_address(ctypes.CFUNCTYPE(ctypes.c_void_p)(place)())
        self._called = [*(self._entry(name, functions.get(name)) for name in FUNCTIONS), *(inner[name] for name in INNER)]
        self._text = ctypes.create_string_buffer(INTERRUPTED_TEXT)
        for k, name in enumerate(_PYTHONS):
            self._cell[k] = _address(getattr(api, name))
        self._cell[_ENDS] = _address(api.Py_IsFinalizing if hasattr(api, "Py_IsFinalizing") else api._Py_IsFinalizing)
        self._cell[_RECURSION], self._cell[_MEMORY] = id(RecursionError), id(MemoryError)
        self._note_main_thread()
        os.register_at_fork(after_in_child=self._note_main_thread)
        self._cell[_TEXT], self._cell[_TEXT_SIZE] = ctypes.addressof(self._text), len(INTERRUPTED_TEXT)
        self._cell[_STATE] = state.address
        state.words[PYTHON] = self._code.address("tilewright_pjrt_python")
        native = native_functions()
        for name, call in zip(_ALL, self._called, strict=True):
            at = _row(name)
            is_quiet = name in _HARMLESS or name.startswith("Error_") or name in INNER
            self._cell[at + _CALL] = id(call)
            self._cell[at + _RAISED] = self._cell[at + _GONE] = 0 if is_quiet else INTERRUPTED
            self._cell[at + _TIMES] = 1 if name in _ONCE else _ATTEMPTS
            self._cell[at + _NATIVE], self._cell[at + _WHICH] = native.entries.get(name, (0, 0))
        addresses = [self._code.address(f"tilewright_pjrt_{name}") for name in FUNCTIONS]
        header = (API_SIZE, 0, 3 * 8, 0, VERSION[0] | VERSION[1] << 32)
        self._table = (ctypes.c_uint64 * (API_SIZE // 8))(*header, *addresses)

    def capsule(self) -> Any:
        """The table as jaxlib takes it."""
        new = _CAPSULE(("PyCapsule_New", ctypes.pythonapi))
        return new(ctypes.addressof(self._table), b"pjrt_c_api", None)

    def _note_main_thread(self) -> None:
        """The thread in which signals' handlers run: after a fork, the one that forked."""
        self._cell[_MAIN] = threading.main_thread().ident or 0

    def _entry(self, name: str, function: Callable[[Any], int | None] | None) -> Callable[[int], int]:
        arguments = ARGUMENTS[name]
        read = arguments.from_address
        sizes_seen: set[int] = set()
        # What is asked again must tell an error of its own from what a signal's handler raised; what is not need not.
        told: type[Exception] = Exception if name in _ONCE else Problem

        def call(at: int) -> int:
            try:
                given = read(at)
                if given.struct_size not in sizes_seen:
                    wrong = check_size(name, given.struct_size)
                    if wrong is not None:
                        raise Problem("FAILED_PRECONDITION", wrong)
                    sizes_seen.add(given.struct_size)
                if function is None:
                    raise Problem("UNIMPLEMENTED", f"PJRT_{name} is not implemented by Tilewright")
                return function(given) or 0
            except told as e:
                return new_error(e)

        return call
