"""Buffers: arrays that jaxlib holds. From host memory and back, views of foreign memory, copies, references, deletion.

A buffer's elements are a contiguous NumPy array in row-major order, one element of fewer than eight bits in a byte of its own (as
NumPy and JAX's CPU have them). Nothing here ever writes to an array that a buffer has had: not even to a donated one's.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tilewright.pjrt.client import check_device, client, int64s
from tilewright.pjrt.handles import Event, Problem, living, ready
from tilewright.pjrt.layout import ELEMENTS, MemoryLayout, element_number

__all__ = ["FUNCTIONS", "Buffer"]

_DURING_CALL, _UNTIL_TRANSFER, _ZERO_COPY, _MUTABLE_ZERO_COPY = range(4)
_TILED, _STRIDED = range(2)


class Buffer:
    """An array that jaxlib holds; `array` is None once it is deleted or donated."""

    __slots__ = ("_shown", "array", "dtype", "kept", "references", "shape")

    def __init__(self, array: np.ndarray) -> None:
        self.array: np.ndarray | None = array
        self.dtype, self.shape = array.dtype, array.shape
        self.references = 0
        self.kept: np.ndarray | None = None  # for who has counted a reference
        self._shown: tuple[np.ndarray, np.ndarray] | None = None

    def elements(self) -> np.ndarray:
        """The array. Raises Problem for a deleted buffer."""
        if self.array is None:
            raise Problem("INVALID_ARGUMENT", "the buffer has been deleted or donated")
        return self.array

    def delete(self) -> None:
        """Gives the array up; it stays for those who count on it."""
        if self.references:
            self.kept = self.array if self.kept is None else self.kept
        self.array = None

    def shown(self) -> tuple[np.ndarray, np.ndarray]:
        """(the sizes, the dimensions from the fastest), as C reads them while the buffer lives."""
        if self._shown is None:
            self._shown = int64s(self.shape), int64s(reversed(range(len(self.shape))))
        return self._shown

    @property
    def size_bytes(self) -> int:
        """Of all elements."""
        return prod(self.shape) * self.dtype.itemsize


class _Lent:
    """Foreign memory as NumPy takes it; `returned` is called when no array uses it any more."""

    def __init__(self, address: int, size_bytes: int, returned: Callable[[], None]) -> None:
        self.__array_interface__ = {"shape": (size_bytes,), "typestr": "|u1", "data": (address, True), "version": 3}
        weakref.finalize(self, returned).atexit = False


def _lent(address: int, dtype: np.dtype[Any], shape: tuple[int, ...], returned: Callable[[], None]) -> np.ndarray:
    return np.asarray(_Lent(address, prod(shape) * dtype.itemsize, returned)).view(dtype).reshape(shape)


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
    check_device(a.device, a.memory)
    dtype, shape = _dtype(a.element), _sizes(a.dims, a.rank)
    _check_layout(a.layout, shape, dtype.itemsize)
    strides = _sizes(a.strides, a.strides_count) or _row_major(shape, dtype.itemsize)
    address = a.data or 0
    is_lent = a.semantics in (_ZERO_COPY, _MUTABLE_ZERO_COPY) and 0 not in shape
    if is_lent and address % dtype.alignment == 0 and _same_strides(shape, strides, dtype.itemsize):
        done = Event()
        array = _lent(address, dtype, shape, done.set)
        a.done = living.new(done)
    else:
        array = np.array(_strided_view(address, dtype, shape, strides), order="C")
        a.done = ready()
    a.buffer = living.new(Buffer(array))


_ON_DELETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def _view(a: Any) -> None:
    check_device(a.device, a.memory)
    dtype, shape = _dtype(a.element), _sizes(a.dims, a.rank)
    _check_layout(a.layout, shape, dtype.itemsize)
    address, user = a.address or 0, a.on_delete_user
    on_delete = _ON_DELETE(a.on_delete) if a.on_delete else None

    def returned() -> None:
        if on_delete is not None:
            on_delete(address, user)

    if 0 in shape or address % dtype.alignment:
        array = np.array(_strided_view(address, dtype, shape, _row_major(shape, dtype.itemsize)), order="C")
        returned()
    else:
        array = _lent(address, dtype, shape, returned)
    a.buffer = living.new(Buffer(array))


def _to_host(a: Any) -> None:
    buffer: Buffer = living[a.buffer]
    if not a.target:
        a.size = buffer.size_bytes
        return
    array, itemsize = buffer.elements(), buffer.dtype.itemsize
    if a.size < buffer.size_bytes:
        raise Problem("INVALID_ARGUMENT", f"expected room for {buffer.size_bytes} bytes, found {a.size}")
    strides = _row_major(array.shape, itemsize)
    if a.layout:
        layout = MemoryLayout.from_address(a.layout)
        if layout.type == _STRIDED:
            strides = _sizes(layout.form.strided.strides, array.ndim)
        else:
            order = _order(layout, array.ndim)
            dense = _row_major(tuple(array.shape[k] for k in order), itemsize)
            strides = tuple(dense[order.index(k)] for k in range(array.ndim))
    if array.size:
        np.copyto(_strided_view(a.target, array.dtype, array.shape, strides), array)
    a.event = ready()


def _raw_to_host(a: Any) -> None:
    array = living[a.buffer].elements()
    if a.offset < 0 or a.size < 0 or a.offset + a.size > array.nbytes:
        raise Problem("OUT_OF_RANGE", f"bytes {a.offset} to {a.offset + a.size} of {array.nbytes}")
    if a.size:
        ctypes.memmove(a.target, array.ctypes.data + a.offset, a.size)
    a.event = ready()


def _copied(a: Any) -> None:
    check_device(getattr(a, "device", None), getattr(a, "memory", None))
    a.copy = living.new(Buffer(living[a.buffer].elements().copy()))


def _destroy(a: Any) -> None:
    living.drop(a.buffer)


def _element(a: Any) -> None:
    a.element = element_number(living[a.buffer].dtype)


def _dimensions(a: Any) -> None:
    buffer: Buffer = living[a.buffer]
    a.dims, a.rank = buffer.shown()[0].ctypes.data, len(buffer.shape)


def _no_dimensions(a: Any) -> None:
    a.dims, a.rank = living[a.buffer].shown()[0].ctypes.data, 0


def _layout(a: Any) -> None:
    buffer: Buffer = living[a.buffer]
    a.layout.struct_size, a.layout.type = ctypes.sizeof(MemoryLayout), _TILED
    tiled = a.layout.form.tiled
    tiled.struct_size = ctypes.sizeof(tiled)
    tiled.minor_to_major, tiled.rank, tiled.tiles = buffer.shown()[1].ctypes.data, len(buffer.shape), 0


def _size(a: Any) -> None:
    a.size = living[a.buffer].size_bytes


def _device(a: Any) -> None:
    a.device = client().device


def _memory(a: Any) -> None:
    a.memory = client().memory


def _delete(a: Any) -> None:
    living[a.buffer].delete()


def _is_deleted(a: Any) -> None:
    a.is_deleted = living[a.buffer].array is None


def _is_on_cpu(a: Any) -> None:
    a.is_on_cpu = True


def _ready_event(a: Any) -> None:
    living[a.buffer].elements()
    a.event = ready()


def _address(a: Any) -> None:
    buffer: Buffer = living[a.buffer]
    array = buffer.kept if buffer.array is None and buffer.kept is not None else buffer.elements()
    a.address = array.ctypes.data


def _refer(a: Any) -> None:
    buffer: Buffer = living[a.buffer]
    buffer.elements()
    buffer.references += 1


def _let_go(a: Any) -> None:
    buffer: Buffer = living[a.buffer]
    if buffer.references < 1:
        raise Problem("FAILED_PRECONDITION", "no reference was counted")
    buffer.references -= 1
    if not buffer.references:
        buffer.kept = None


FUNCTIONS: dict[str, Callable[[Any], None]] = {
    "Client_BufferFromHostBuffer": _from_host,
    "Client_CreateViewOfDeviceBuffer": _view,
    "Buffer_Destroy": _destroy,
    "Buffer_ElementType": _element,
    "Buffer_Dimensions": _dimensions,
    "Buffer_UnpaddedDimensions": _dimensions,
    "Buffer_DynamicDimensionIndices": _no_dimensions,
    "Buffer_GetMemoryLayout": _layout,
    "Buffer_OnDeviceSizeInBytes": _size,
    "Buffer_Device": _device,
    "Buffer_Memory": _memory,
    "Buffer_Delete": _delete,
    "Buffer_IsDeleted": _is_deleted,
    "Buffer_CopyToDevice": _copied,
    "Buffer_CopyToMemory": _copied,
    "Buffer_ToHostBuffer": _to_host,
    "Buffer_CopyRawToHost": _raw_to_host,
    "Buffer_IsOnCpu": _is_on_cpu,
    "Buffer_ReadyEvent": _ready_event,
    "Buffer_UnsafePointer": _address,
    "Buffer_OpaqueDeviceMemoryDataPointer": _address,
    "Buffer_IncreaseExternalReferenceCount": _refer,
    "Buffer_DecreaseExternalReferenceCount": _let_go,
}
