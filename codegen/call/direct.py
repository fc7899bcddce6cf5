"""A small program as a C function of Python's: its arguments are checked, its results made and its kernels called in native code.

One function does this for all programs; what it needs of one lies in a record of words, which is the ``self`` of the callable:

    0 arguments   1 numpy.ndarray   2 None   3 results   4 PyArray_Empty   5 the arguments' rows   6 the results' rows
    7 steps       8 the steps' rows
    a row of an argument or a result: dtype, rank, address of its shape, address of the cells to fill, how many cells
    a row of a step: entry, tasks, address of its table, scratch

The arrays' fields are read where the C header of NumPy puts them, which is compared with real arrays before anything is called.
An argument that is not exactly what the record says makes the result None: the thorough call then decides.

The record's tables are shared by all calls of a program. Making an object may start the collector, whose finalizers may call the
same program, or let another thread in: so all results are made before the first address is written, and from there to the return
nothing is called that could run Python code.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from codegen.launcher import launch
from codegen.native import object_cache
from codegen.target import default_target

__all__ = ["DirectCall", "is_available", "native_function", "prepare"]

_HEAD = object.__basicsize__  # the reference count and the type; then come an array's fields
_DATA, _RANK, _SHAPE, _DTYPE, _FLAGS = _HEAD, _HEAD + 8, _HEAD + 16, _HEAD + 40, _HEAD + 48
_GOOD_FLAGS = 0x101  # C-contiguous and aligned
_EMPTY = 184  # PyArray_Empty's place in NumPy's table of C functions
_METH_FASTCALL = 0x80
_SYMBOL = "tilewright_direct_call"

_IR = f"""
target triple = "{{triple}}"
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)

define internal i64 @word(ptr %base, i64 %k) alwaysinline {{{{
  %p = getelementptr i64, ptr %base, i64 %k
  %v = load i64, ptr %p
  ret i64 %v
}}}}

define internal ptr @place(ptr %base, i64 %k) alwaysinline {{{{
  %p = getelementptr ptr, ptr %base, i64 %k
  %v = load ptr, ptr %p
  ret ptr %v
}}}}

define internal void @fill(ptr %row, i64 %address) alwaysinline {{{{
entry:
  %table = call ptr @place(ptr %row, i64 3)
  %count = call i64 @word(ptr %row, i64 4)
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %done
body:
  %at = call ptr @place(ptr %table, i64 %k)
  store i64 %address, ptr %at
  %next = add i64 %k, 1
  br label %head
done:
  ret void
}}}}

define ptr @{_SYMBOL}(ptr %self, ptr %given, i64 %count) {{{{
entry:
  %field = getelementptr i8, ptr %self, i64 {_DATA}
  %record = load ptr, ptr %field
  %wanted = call i64 @word(ptr %record, i64 0)
  %right_count = icmp eq i64 %count, %wanted
  br i1 %right_count, label %make, label %no
make:
  %results = call i64 @word(ptr %record, i64 3)
  %empty = call ptr @place(ptr %record, i64 4)
  %made_rows = call ptr @place(ptr %record, i64 6)
  %tuple = call ptr @PyTuple_New(i64 %results)
  %no_tuple = icmp eq ptr %tuple, null
  br i1 %no_tuple, label %fail, label %make_all
make_all:
  %r = phi i64 [ 0, %make ], [ %r_next, %made ]
  %more_results = icmp slt i64 %r, %results
  br i1 %more_results, label %make_one, label %start
make_one:
  %made_index = mul i64 %r, 5
  %made_row = getelementptr i64, ptr %made_rows, i64 %made_index
  %made_dtype = call ptr @place(ptr %made_row, i64 0)
  %made_rank = call i64 @word(ptr %made_row, i64 1)
  %made_rank_small = trunc i64 %made_rank to i32
  %made_shape = call ptr @place(ptr %made_row, i64 2)
  call void @Py_IncRef(ptr %made_dtype)
  %result = call ptr %empty(i32 %made_rank_small, ptr %made_shape, ptr %made_dtype, i32 0)
  %no_result = icmp eq ptr %result, null
  br i1 %no_result, label %drop, label %set_one
set_one:
  %set = call i32 @PyTuple_SetItem(ptr %tuple, i64 %r, ptr %result)
  %is_set = icmp eq i32 %set, 0
  br i1 %is_set, label %made, label %drop
made:
  %r_next = add i64 %r, 1
  br label %make_all
start:
  %ndarray = call i64 @word(ptr %record, i64 1)
  %rows = call ptr @place(ptr %record, i64 5)
  br label %arguments
arguments:
  %i = phi i64 [ 0, %start ], [ %i_next, %argument_done ]
  %more_arguments = icmp slt i64 %i, %count
  br i1 %more_arguments, label %argument, label %found_all
argument:
  %object = call ptr @place(ptr %given, i64 %i)
  %row_index = mul i64 %i, 5
  %row = getelementptr i64, ptr %rows, i64 %row_index
  %type = call i64 @word(ptr %object, i64 {_HEAD // 8 - 1})
  %right_type = icmp eq i64 %type, %ndarray
  br i1 %right_type, label %array, label %unusual
array:
  %dtype = call i64 @word(ptr %object, i64 {_DTYPE // 8})
  %dtype_wanted = call i64 @word(ptr %row, i64 0)
  %right_dtype = icmp eq i64 %dtype, %dtype_wanted
  %rank_field = getelementptr i8, ptr %object, i64 {_RANK}
  %rank_small = load i32, ptr %rank_field
  %rank = sext i32 %rank_small to i64
  %rank_wanted = call i64 @word(ptr %row, i64 1)
  %right_rank = icmp eq i64 %rank, %rank_wanted
  %flags_field = getelementptr i8, ptr %object, i64 {_FLAGS}
  %flags = load i32, ptr %flags_field
  %good = and i32 %flags, {_GOOD_FLAGS}
  %right_flags = icmp eq i32 %good, {_GOOD_FLAGS}
  %right_1 = and i1 %right_dtype, %right_rank
  %right_2 = and i1 %right_1, %right_flags
  %shape = call ptr @place(ptr %object, i64 {_SHAPE // 8})
  %shape_wanted = call ptr @place(ptr %row, i64 2)
  br i1 %right_2, label %extents, label %unusual
extents:
  %d = phi i64 [ 0, %array ], [ %d_next, %extent ]
  %more_extents = icmp slt i64 %d, %rank
  br i1 %more_extents, label %extent, label %argument_done
extent:
  %n = call i64 @word(ptr %shape, i64 %d)
  %n_wanted = call i64 @word(ptr %shape_wanted, i64 %d)
  %d_next = add i64 %d, 1
  %right_extent = icmp eq i64 %n, %n_wanted
  br i1 %right_extent, label %extents, label %unusual
argument_done:
  %data = call i64 @word(ptr %object, i64 {_DATA // 8})
  call void @fill(ptr %row, i64 %data)
  %i_next = add i64 %i, 1
  br label %arguments
found_all:
  %q = phi i64 [ 0, %arguments ], [ %q_next, %find_one ]
  %more_found = icmp slt i64 %q, %results
  br i1 %more_found, label %find_one, label %run
find_one:
  %found_index = mul i64 %q, 5
  %found_row = getelementptr i64, ptr %made_rows, i64 %found_index
  %found = call ptr @PyTuple_GetItem(ptr %tuple, i64 %q)
  %found_data = call i64 @word(ptr %found, i64 {_DATA // 8})
  call void @fill(ptr %found_row, i64 %found_data)
  %q_next = add i64 %q, 1
  br label %found_all
run:
  %steps = call i64 @word(ptr %record, i64 7)
  %step_rows = call ptr @place(ptr %record, i64 8)
  br label %run_all
run_all:
  %s = phi i64 [ 0, %run ], [ %s_next, %run_one ]
  %more_steps = icmp slt i64 %s, %steps
  br i1 %more_steps, label %run_one, label %done
run_one:
  %step_index = mul i64 %s, 4
  %step = getelementptr i64, ptr %step_rows, i64 %step_index
  %kernel = call ptr @place(ptr %step, i64 0)
  %tasks = call i64 @word(ptr %step, i64 1)
  %table = call ptr @place(ptr %step, i64 2)
  %scratch = call ptr @place(ptr %step, i64 3)
  call void %kernel(i64 0, i64 %tasks, ptr %table, ptr %scratch)
  %s_next = add i64 %s, 1
  br label %run_all
done:
  ret ptr %tuple
drop:
  call void @Py_DecRef(ptr %tuple)
  br label %fail
fail:
  ret ptr null
unusual:
  call void @Py_DecRef(ptr %tuple)
  br label %no
no:
  %none = call ptr @place(ptr %record, i64 2)
  call void @Py_IncRef(ptr %none)
  ret ptr %none
}}}}
"""


class _MethodDef(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def _word(address: int) -> int:
    return int(ctypes.c_int64.from_address(address).value)


@functools.cache
def is_available() -> bool:
    """Whether this interpreter and this NumPy are laid out as the native function takes them to be."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8 or _empty_function() is None:
        return False
    if sysconfig.get_config_var("Py_GIL_DISABLED"):  # several calls could meet in one record
        return False
    whole = np.arange(24.0).reshape(2, 3, 4)
    return all(map(_is_laid_out, (whole, whole[:, 1:2], whole[0], np.zeros((), np.int8), whole.T, np.zeros((5, 0), np.float32))))


def _is_laid_out(a: np.ndarray) -> bool:
    at = id(a)
    shape = tuple(_word(_word(at + _SHAPE) + 8 * k) for k in range(a.ndim))
    rank, flags = (ctypes.c_int32.from_address(at + place).value for place in (_RANK, _FLAGS))
    said = (_word(at + _HEAD - 8), _word(at + _DATA), rank, shape, _word(at + _DTYPE), flags & _GOOD_FLAGS)
    return said == (id(np.ndarray), a.ctypes.data, a.ndim, a.shape, id(a.dtype), a.flags.num & _GOOD_FLAGS)


@functools.cache
def _empty_function() -> int | None:
    """The address of PyArray_Empty, or None."""
    try:
        capsule = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    except (ImportError, AttributeError):
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = pointer(capsule, None)
    return _word(table + 8 * _EMPTY) if table else None


@functools.cache
def native_function(pattern: str, symbol: str) -> tuple[int, Any]:
    """(address of a function of an LLVM module, what keeps it); the module's text says `{triple}` for this machine's."""
    from codegen.native.lower import LoadedObject, plain_object, target_machine

    target = default_target()
    text = pattern.format(triple=target.triple)
    key = hashlib.sha256(f"{text} {target.key} {target_machine(target).target_data}".encode()).hexdigest()
    payload = object_cache.read(key)
    if payload is None:
        payload = plain_object(text, target)
        object_cache.write(key, payload)
    loaded = LoadedObject(payload, target)
    return loaded.address(symbol), loaded


def prepare() -> None:
    """Has the native function loaded where there can be one."""
    if is_available():
        native_function(_IR, _SYMBOL)


class DirectCall:
    """`call(*arrays)`: the results of a program of one thread, or None when an argument needs the thorough call.

    `arguments` and `results` are (slot, shape, dtype); `known` are the addresses of all other slots.
    """

    def __init__(
        self,
        arguments: Sequence[tuple[int, tuple[int, ...], Any]],
        results: Sequence[tuple[int, tuple[int, ...], Any]],
        known: Mapping[int, int],
        steps: Sequence[launch.Step],
        scratch: int,
    ) -> None:
        self._keep: list[Any] = []
        tables = [self._words([known.get(slot, 0) for slot in step.buffers] or [0]) for step in steps]
        cells: dict[int, list[int]] = {}
        for table, step in zip(tables, steps, strict=True):
            for k, slot in enumerate(step.buffers):
                cells.setdefault(slot, []).append(table.ctypes.data + 8 * k)
        step_rows = [
            word
            for table, step in zip(tables, steps, strict=True)
            for word in (step.kernel.entry, step.tasks, table.ctypes.data, scratch)
        ]
        empty = _empty_function()
        assert empty is not None, "asked for where it is not available"
        record = self._words(
            [
                len(arguments), id(np.ndarray), id(None), len(results), empty, self._rows(arguments, cells),
                self._rows(results, cells), len(steps), self._words(step_rows).ctypes.data,
            ]
        )  # fmt: skip
        address, code = native_function(_IR, _SYMBOL)
        method = _MethodDef(b"call", address, _METH_FASTCALL, None)
        self._keep += [code, method, list(steps)]
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self.call = make(ctypes.addressof(method), record, None)

    def _words(self, words: Sequence[int]) -> np.ndarray:
        made = np.array(words, np.int64)
        self._keep.append(made)
        return made

    def _rows(self, values: Sequence[tuple[int, tuple[int, ...], Any]], cells: Mapping[int, list[int]]) -> int:
        rows: list[int] = []
        for slot, shape, dtype in values:
            kind = np.dtype(dtype)
            self._keep.append(kind)
            mine = cells.get(slot, [])
            extents, places = self._words(shape or (0,)), self._words(mine or [0])
            rows += [id(kind), len(shape), extents.ctypes.data, places.ctypes.data, len(mine)]
        return int(self._words(rows or [0]).ctypes.data)
