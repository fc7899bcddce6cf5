"""The functions that jaxlib calls: native ones, each of which calls its Python function and never lets an exception through.

jaxlib gets the address of a small native function for each entry of the interface. It notes what is to be returned if nothing
else comes of the call, calls Python (ctypes takes the interpreter's lock, whether the caller has it or not), and returns what
Python noted. So an exception that Python raises before the first line of its function, as a signal's handler may, returns an
error and not rubbish. jaxlib ends the process when certain functions fail (sizes, names, destroying): those are called again
after such an exception. A KeyboardInterrupt is raised again as soon as jaxlib has returned to Python.

Once the interpreter takes itself down (after its functions of `atexit`, of which JAX's drop the client), Python is not called any
more: destroying does nothing, all else fails.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from codegen.call.direct import native_function
from tilewright.pjrt.handles import INTERRUPTED, INTERRUPTED_TEXT, Problem, new_error
from tilewright.pjrt.layout import API_SIZE, ARGUMENTS, CODES, FUNCTIONS, VERSION, check_size

__all__ = ["Entries"]

_ATTEMPTS = 4
_ROW_WORDS = 4
# words before the rows: the function that tells whether Python ends, whether to interrupt again, the function that does so, the
# text of `INTERRUPTED` and its size
_ENDS, _AGAIN, _INTERRUPT, _TEXT, _TEXT_SIZE, _ROWS = range(6)
# words of a row: Python's function, what is returned when it raised, what once Python is gone, how often it is called
_CALL, _RAISED, _GONE, _TIMES = range(4)
_WORDS = _ROWS + _ROW_WORDS * len(FUNCTIONS)

_LET_GO = ("Buffer_Delete", "LoadedExecutable_Delete", "Buffer_DecreaseExternalReferenceCount")
_HARMLESS = frozenset(n for n in FUNCTIONS if n.endswith("_Destroy") or n in _LET_GO)
"""What returns success when it was not done: memory stays, nothing else happens."""

_ONCE = frozenset(
    "Client_Create Client_Compile Compile Executable_DeserializeAndLoad LoadedExecutable_Execute Client_BufferFromHostBuffer"
    " Event_Await Buffer_ToHostBuffer Buffer_CopyToDevice Buffer_CopyToMemory Buffer_CopyRawToHost Event_OnReady Event_Set"
    " Client_CreateViewOfDeviceBuffer Buffer_DecreaseExternalReferenceCount".split()
)
"""What is not called a second time: it has effects, or takes long. Its errors are statuses to jaxlib, or it is harmless."""

_COMMON = f"""
target triple = "{{triple}}"
@cell = internal global [{_WORDS} x i64] zeroinitializer, align 64

define ptr @tilewright_pjrt_cell() {{{{
  ret ptr @cell
}}}}

define internal ptr @call(ptr %arguments, i64 %row) {{{{
entry:
  %out = alloca i64
  %ends_word = load i64, ptr @cell
  %ends = inttoptr i64 %ends_word to ptr
  %ending = call i32 %ends()
  %is_closed = icmp ne i32 %ending, 0
  %row_at = getelementptr i64, ptr @cell, i64 %row
  br i1 %is_closed, label %gone, label %open
gone:
  %gone_at = getelementptr i64, ptr %row_at, i64 {_GONE}
  %gone_value = load i64, ptr %gone_at
  %gone_result = inttoptr i64 %gone_value to ptr
  ret ptr %gone_result
open:
  %call_word = load i64, ptr %row_at
  %function = inttoptr i64 %call_word to ptr
  %raised_at = getelementptr i64, ptr %row_at, i64 {_RAISED}
  %raised = load i64, ptr %raised_at
  %times_at = getelementptr i64, ptr %row_at, i64 {_TIMES}
  %times = load i64, ptr %times_at
  br label %attempt
attempt:
  %k = phi i64 [0, %open], [%next, %again]
  store i64 -1, ptr %out
  call void %function(ptr %arguments, ptr %out)
  %found = load i64, ptr %out
  %failed = icmp eq i64 %found, -1
  br i1 %failed, label %again, label %fine
again:
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %attempt, label %fine
fine:
  %last = phi i64 [%found, %attempt], [%raised, %again]
  %again_at = getelementptr i64, ptr @cell, i64 {_AGAIN}
  %flag = load volatile i64, ptr %again_at
  %is_interrupted = icmp ne i64 %flag, 0
  br i1 %is_interrupted, label %interrupt, label %done
interrupt:
  store volatile i64 0, ptr %again_at
  %interrupt_at = getelementptr i64, ptr @cell, i64 {_INTERRUPT}
  %interrupt_word = load i64, ptr %interrupt_at
  %set = inttoptr i64 %interrupt_word to ptr
  call void %set()
  br label %done
done:
  %result = inttoptr i64 %last to ptr
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

_FUNCTION = """
define ptr @tilewright_pjrt_{name}(ptr %arguments) {{{{{before}
  %result = call ptr @call(ptr %arguments, i64 {row})
  ret ptr %result
}}}}
"""

_PYTHON = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_CAPSULE = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def _source() -> str:
    rows = {name: _ROWS + _ROW_WORDS * k for k, name in enumerate(FUNCTIONS)}
    return _COMMON + "".join(
        _FUNCTION.format(name=name, before=_BEFORE.get(name, ""), row=row) for name, row in rows.items()
    )


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


class Entries:
    """The interface's table, for the life of the process; `functions` do what its entries say, each with its arguments.

    A function raises `Problem` for what it refuses; any other exception becomes an error that names it.
    """

    def __init__(self, functions: Mapping[str, Callable[[Any], None]]) -> None:
        unknown = functions.keys() - set(FUNCTIONS)
        assert not unknown, f"no functions of the interface: {sorted(unknown)}"
        # jaxlib calls also when the interpreter has dropped its modules: what it calls is never freed
        api = ctypes.pythonapi
        api.Py_IncRef(ctypes.py_object(self))
        place, self._code = native_function(_source(), "tilewright_pjrt_cell")
        self._cell = (ctypes.c_int64 * _WORDS).from_address(ctypes.CFUNCTYPE(ctypes.c_void_p)(place)())
        self._called = [_PYTHON(self._entry(name, functions.get(name))) for name in FUNCTIONS]
        self._text = ctypes.create_string_buffer(INTERRUPTED_TEXT)
        self._cell[_ENDS] = _address(api.Py_IsFinalizing if hasattr(api, "Py_IsFinalizing") else api._Py_IsFinalizing)
        self._cell[_INTERRUPT] = _address(api.PyErr_SetInterrupt)
        self._cell[_TEXT], self._cell[_TEXT_SIZE] = ctypes.addressof(self._text), len(INTERRUPTED_TEXT)
        for k, (name, call) in enumerate(zip(FUNCTIONS, self._called, strict=True)):
            at = _ROWS + _ROW_WORDS * k
            is_quiet = name in _HARMLESS or name.startswith("Error_")
            self._cell[at + _CALL] = _address(call)
            self._cell[at + _RAISED] = self._cell[at + _GONE] = 0 if is_quiet else INTERRUPTED
            self._cell[at + _TIMES] = 1 if name in _ONCE else _ATTEMPTS
        addresses = [self._code.address(f"tilewright_pjrt_{name}") for name in FUNCTIONS]
        header = (API_SIZE, 0, 3 * 8, 0, VERSION[0] | VERSION[1] << 32)
        self._table = (ctypes.c_uint64 * (API_SIZE // 8))(*header, *addresses)

    def capsule(self) -> Any:
        """The table as jaxlib takes it."""
        new = _CAPSULE(("PyCapsule_New", ctypes.pythonapi))
        return new(ctypes.addressof(self._table), b"pjrt_c_api", None)

    def _entry(self, name: str, function: Callable[[Any], None] | None) -> Callable[[int, int], None]:
        arguments, cell = ARGUMENTS[name], self._cell
        read, note = arguments.from_address, ctypes.c_int64.from_address
        sizes_seen: set[int] = set()

        def call(at: int, out: int) -> None:
            try:
                given = read(at)
                if given.struct_size not in sizes_seen:
                    wrong = check_size(name, given.struct_size)
                    if wrong is not None:
                        raise Problem("FAILED_PRECONDITION", wrong)
                    sizes_seen.add(given.struct_size)
                if function is None:
                    raise Problem("UNIMPLEMENTED", f"PJRT_{name} is not implemented by Tilewright")
                function(given)
                note(out).value = 0
            except KeyboardInterrupt:
                cell[_AGAIN] = 1  # and what was noted says that it was raised
            except BaseException as e:  # noqa: BLE001 (none may pass through C; each becomes an error that says what it was)
                note(out).value = new_error(e)

        return call
