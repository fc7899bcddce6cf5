"""Buffers: arrays that jaxlib holds. From host memory and back, views of foreign memory, copies, elements that come later.

A buffer's elements are dense and in row-major order, one element of fewer than eight bits in a byte of its own (as NumPy and
JAX's CPU have them). Nothing here ever writes to elements that a buffer has had: not even to a donated one's. Native functions
keep the records and take what is simple (`native_source`); what they do not take, and what needs NumPy, is here.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright.pjrt import records, threads
from tilewright.pjrt.client import Memory, int64s, memory_of
from tilewright.pjrt.handles import (
    READY,
    Problem,
    count_event,
    drop_event,
    end_event,
    event_failure,
    has_ended,
    living,
    new_error,
    new_event,
    wait_for,
)
from tilewright.pjrt.layout import ARGUMENTS, ELEMENTS, MemoryLayout, element_number
from tilewright.pjrt.native import c_words, functions
from tilewright.pjrt.threads import outcome

__all__ = ["FUNCTIONS", "Buffer", "Coming", "Taken", "buffer_of", "destroy", "later"]

_DURING_CALL, _UNTIL_TRANSFER, _ZERO_COPY, _MUTABLE_ZERO_COPY = range(4)
_TILED, _STRIDED = range(2)


class Buffer:
    """A buffer's record as Python sees it, for the time of a call."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._words = c_words(handle, records.DIMS)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return ELEMENTS[self._words[records.ELEMENT]]

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return tuple(c_words(self.handle + 8 * records.DIMS, self._words[records.RANK]))

    @property
    def size_bytes(self) -> int:
        """Of all elements."""
        return int(self._words[records.SIZE])

    @property
    def is_deleted(self) -> bool:
        """Whether it has given its elements up."""
        return not self._words[records.MEMORY]

    @property
    def has_references(self) -> bool:
        """Whether jaxlib counts on its memory."""
        return bool(self._words[records.REFERENCES])

    def delete(self) -> None:
        """Gives its elements up; they stay for who counts on them."""
        arguments = ARGUMENTS["Buffer_Delete"](0, None, self.handle)
        functions().enter("Buffer_Delete", ctypes.addressof(arguments))

    def taken(self) -> Taken:
        """Its elements, for as long as what is returned. Raises Problem for a deleted buffer."""
        words = (ctypes.c_int64 * 3)(self.handle, 0, 0)
        functions().help("TAKE", ctypes.addressof(words))
        if not words[1]:
            raise Problem("INVALID_ARGUMENT", "the buffer has been deleted or donated")
        return Taken(self, words[1], words[2])


class Taken:
    """The elements of a buffer, which stay whatever becomes of that; perhaps they are not there yet."""

    def __init__(self, buffer: Buffer, memory: int, event: int) -> None:
        self.dtype, self.shape, self.size_bytes = buffer.dtype, buffer.shape, buffer.size_bytes
        self.event = event
        self.memory = memory
        weakref.finalize(self, _let_go_of, memory, event).atexit = False

    @property
    def is_there(self) -> bool:
        """Whether `array` returns at once."""
        return not self.event or has_ended(self.event)

    def array(self) -> np.ndarray:
        """The elements, when they are there. Raises what computing them has failed with."""
        if self.event:
            wait_for(self.event)
            failure = event_failure(self.event)
            if failure is not None:
                raise failure
        if not self.size_bytes:
            return np.empty(self.shape, self.dtype)
        lent = _Lent(c_words(self.memory, records.MEMORY_WORDS)[records.DATA], self.size_bytes, self)
        return np.asarray(lent).view(self.dtype).reshape(self.shape)


def _let_go_of(memory: int, event: int) -> None:
    functions().help("DROP_MEMORY", memory)
    if event:
        drop_event(event)


def new_buffer(
    memory: Memory, dtype: np.dtype[Any], shape: Sequence[int], address: int = 0, owner: Any = None, event: int = 0
) -> int:
    """The handle of a new buffer: of the elements at an address, which are the owner's; else of memory of its own.

    Elements that come when an event ends have no address and `owner` LATER: who has the event gives them (`give_elements`).
    Raises MemoryError where there is no room.
    """
    sizes = int64s(shape)
    size_bytes = prod(shape) * dtype.itemsize
    held = owner if isinstance(owner, int) else 0 if owner is None else living.new(owner)
    words = (element_number(dtype), sizes.size, sizes.ctypes.data, size_bytes, address, held, event, memory.handle, 0)
    made = int64s(words)
    functions().help("NEW", made.ctypes.data)
    if not made[records.NEW_BUFFER]:
        living.drop(held)
        raise MemoryError(f"no room for {size_bytes} bytes")
    return int(made[records.NEW_BUFFER])


def buffer_of(memory: Memory, array: np.ndarray) -> int:
    """The handle of a new buffer in a device's memory, of an array, to which nobody writes any more."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    return new_buffer(memory, array.dtype, array.shape, array.ctypes.data, array)


def give_elements(taken: Taken, array: np.ndarray) -> None:
    """The elements of a buffer that was made for later; its event ends thereafter."""
    memory = c_words(taken.memory, records.MEMORY_WORDS)
    array = np.ascontiguousarray(array).reshape(array.shape)
    memory[records.OWNER], memory[records.DATA] = living.new(array), array.ctypes.data


def destroy(handle: int) -> None:
    """Drops a buffer that was not given to jaxlib."""
    arguments = ARGUMENTS["Buffer_Destroy"](0, None, handle)
    functions().enter("Buffer_Destroy", ctypes.addressof(arguments))


class _Lent:
    """Foreign memory as NumPy takes it, which is there as long as its owner."""

    def __init__(self, address: int, size_bytes: int, owner: Any) -> None:
        self.__array_interface__ = {"shape": (size_bytes,), "typestr": "|u1", "data": (address, True), "version": 3}
        self._owner = owner


class _Loan:
    """What calls `returned` when nobody has it any more."""

    def __init__(self, returned: Callable[[], None]) -> None:
        weakref.finalize(self, returned).atexit = False


def _sizes(address: int | None, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_int64 * count).from_address(address)) if count and address else ()


def _row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * prod(shape[k + 1 :]) for k in range(len(shape)))


def _same_strides(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether strides are those of a dense row-major array, where they matter."""
    dense = _row_major(shape, itemsize)
    return 0 in shape or all(n == 1 or a == b for n, a, b in zip(shape, strides, dense, strict=True))


def _dtype(number: int) -> np.dtype[Any]:
    try:
        return ELEMENTS[number]
    except KeyError:
        raise Problem("UNIMPLEMENTED", f"no arrays of element type number {number} of the interface") from None


def _order(layout: Any, rank: int) -> tuple[int, ...]:
    """The dimensions of a layout from the slowest to the fastest."""
    tiled = layout.form.tiled
    if tiled.tiles:
        raise Problem("UNIMPLEMENTED", "arrays in tiles")
    return tuple(reversed(_sizes(tiled.minor_to_major, rank)))


def _check_layout(address: int | None, shape: tuple[int, ...], itemsize: int) -> None:
    """Raises Problem for any other layout of a buffer than the one that all have."""
    if not address:
        return
    layout, rank = MemoryLayout.from_address(address), len(shape)
    if layout.type == _STRIDED:
        is_fine = _same_strides(shape, _sizes(layout.form.strided.strides, rank), itemsize)
    else:
        is_fine = _order(layout, rank) == tuple(range(rank))
    if not is_fine:
        raise Problem("UNIMPLEMENTED", "buffers are dense and row-major: no other layout")


def _strided_view(address: int, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """An array over foreign memory for the time of a call."""
    if 0 in shape:
        return np.empty(shape, dtype)
    least = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    most = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True)) + dtype.itemsize
    memory: Any = (ctypes.c_char * (most - least)).from_address(address + least)
    return np.ndarray(shape, dtype, memory, -least, strides)


def _from_host(a: Any) -> None:
    memory = memory_of(a.device, a.memory)
    dtype, shape = _dtype(a.element), _sizes(a.dims, a.rank)
    _check_layout(a.layout, shape, dtype.itemsize)
    strides = _sizes(a.strides, a.strides_count) or _row_major(shape, dtype.itemsize)
    address = a.data or 0
    is_lent = a.semantics in (_ZERO_COPY, _MUTABLE_ZERO_COPY) and 0 not in shape
    if is_lent and address % dtype.alignment == 0 and _same_strides(shape, strides, dtype.itemsize):
        done = new_event(2)  # jaxlib's, and the loan's
        a.buffer = new_buffer(memory, dtype, shape, address, _Loan(lambda: _return(done)))
        a.done = done
    else:
        a.buffer = buffer_of(memory, np.array(_strided_view(address, dtype, shape, strides), order="C"))
        a.done = READY


def _return(event: int) -> None:
    end_event(event)
    drop_event(event)


_ON_DELETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def _view(a: Any) -> None:
    memory = memory_of(a.device, a.memory)
    dtype, shape = _dtype(a.element), _sizes(a.dims, a.rank)
    _check_layout(a.layout, shape, dtype.itemsize)
    address, user = a.address or 0, a.on_delete_user
    on_delete = _ON_DELETE(a.on_delete) if a.on_delete else None

    def returned() -> None:
        if on_delete is not None:
            on_delete(address, user)

    if 0 in shape or address % dtype.alignment:
        a.buffer = buffer_of(memory, np.array(_strided_view(address, dtype, shape, _row_major(shape, dtype.itemsize)), order="C"))
        returned()
    else:
        a.buffer = new_buffer(memory, dtype, shape, address, _Loan(returned))


def _to_host(a: Any) -> None:
    buffer = Buffer(a.buffer)
    if not a.target:
        a.size = buffer.size_bytes
        return
    taken, itemsize, rank, target = buffer.taken(), buffer.dtype.itemsize, len(buffer.shape), a.target
    if a.size < buffer.size_bytes:
        raise Problem("INVALID_ARGUMENT", f"expected room for {buffer.size_bytes} bytes, found {a.size}")
    strides = _row_major(taken.shape, itemsize)
    if a.layout:
        layout = MemoryLayout.from_address(a.layout)
        if layout.type == _STRIDED:
            strides = _sizes(layout.form.strided.strides, rank)
        else:
            order = _order(layout, rank)
            dense = _row_major(tuple(taken.shape[k] for k in order), itemsize)
            strides = tuple(dense[order.index(k)] for k in range(rank))

    def copy() -> None:
        array = taken.array()
        if array.size:
            np.copyto(_strided_view(target, array.dtype, array.shape, strides), array)

    a.event = now_or_later([taken], copy)


def _raw_to_host(a: Any) -> None:
    taken, target, offset, size = Buffer(a.buffer).taken(), a.target, a.offset, a.size
    if offset < 0 or size < 0 or offset + size > taken.size_bytes:
        raise Problem("OUT_OF_RANGE", f"bytes {offset} to {offset + size} of {taken.size_bytes}")

    def copy() -> None:
        array = taken.array()
        if size:
            ctypes.memmove(target, array.ctypes.data + offset, size)

    a.event = now_or_later([taken], copy)


def now_or_later(needed: Sequence[Taken], work: Callable[[], None]) -> int:
    """The event of some work: done now where what it needs is there, else by another thread. Raises what it raises now."""
    if all(x.is_there for x in needed):
        work()
        return READY
    event = new_event(2)

    def run() -> None:
        failure = outcome(work)
        end_event(event, failure)
        drop_event(event)

    threads.submit(run)
    return event


def _copied(a: Any) -> None:
    memory = memory_of(getattr(a, "device", None), getattr(a, "memory", None))
    taken = Buffer(a.buffer).taken()
    if taken.is_there:
        a.copy = buffer_of(memory, taken.array().copy())
        return
    (a.copy,), _ = later([memory], lambda: [taken.array().copy()], [(taken.dtype, taken.shape)])


Types = Sequence[tuple[np.dtype[Any], Sequence[int]]]
"""Element types and shapes, of arrays."""


def later(
    memories: Sequence[Memory], work: Callable[[], Sequence[np.ndarray]], types: Types, more: int = 0
) -> tuple[list[int], int]:
    """(handles of new buffers whose elements another thread makes, their event, which `more` others have, too)."""
    coming = Coming(memories, types, more)
    threads.submit(lambda: coming.make(work))
    return coming.handles, coming.event


class Coming:
    """New buffers whose elements come later: `handles` and their event, which `more` others have, too.

    `make` gives the elements, once, and ends the event.
    """

    def __init__(self, memories: Sequence[Memory], types: Types, more: int) -> None:
        self.event = new_event(1 + more)
        self.handles: list[int] = []
        try:
            for memory, (dtype, shape) in zip(memories, types, strict=True):
                self.handles.append(new_buffer(memory, dtype, shape, 0, records.LATER, self.event))
                count_event(self.event)
            self._targets = [Buffer(handle).taken() for handle in self.handles]
        except BaseException:
            for handle in self.handles:
                destroy(handle)
            raise

    def make(self, work: Callable[[], Sequence[np.ndarray]]) -> None:
        """The elements are what `work` returns; what it raises is the event's failure."""
        arrays: list[np.ndarray] = []
        failure = outcome(lambda: arrays.extend(work()))
        for target, array in zip(self._targets, arrays, strict=False):
            give_elements(target, array)
        self._targets.clear()
        end_event(self.event, failure)
        drop_event(self.event)


def _layout(a: Any) -> None:
    buffer = Buffer(a.buffer)
    rank = len(buffer.shape)
    a.layout.struct_size, a.layout.type = ctypes.sizeof(MemoryLayout), _TILED
    tiled = a.layout.form.tiled
    tiled.struct_size = ctypes.sizeof(tiled)
    tiled.minor_to_major, tiled.rank, tiled.tiles = buffer.handle + 8 * (records.DIMS + rank), rank, 0


def _deleted(a: Any) -> None:
    if Buffer(a.buffer).is_deleted:
        raise Problem("INVALID_ARGUMENT", "the buffer has been deleted or donated")


def _address(a: Any) -> int:
    taken = Buffer(a.buffer).taken()
    found: list[np.ndarray] = []
    failure = outcome(lambda: found.append(taken.array()))
    if failure is not None:
        return new_error(failure)
    a.address = found[0].ctypes.data
    return 0


def _uncounted(a: Any) -> None:
    raise Problem("FAILED_PRECONDITION", "no reference was counted")


FUNCTIONS: dict[str, Callable[[Any], int | None]] = {
    "Client_BufferFromHostBuffer": _from_host,
    "Client_CreateViewOfDeviceBuffer": _view,
    "Buffer_GetMemoryLayout": _layout,
    "Buffer_CopyToDevice": _copied,
    "Buffer_CopyToMemory": _copied,
    "Buffer_ToHostBuffer": _to_host,
    "Buffer_CopyRawToHost": _raw_to_host,
    "Buffer_ReadyEvent": _deleted,
    "Buffer_UnsafePointer": _address,
    "Buffer_OpaqueDeviceMemoryDataPointer": _address,
    "Buffer_IncreaseExternalReferenceCount": _deleted,
    "Buffer_DecreaseExternalReferenceCount": _uncounted,
}
"""What native functions (`native_source`) leave to Python; they are asked first."""
