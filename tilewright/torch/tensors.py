"""Torch's tensors as NumPy's arrays and back, on the same memory.

NumPy's and torch's types agree but for bfloat16 and the floats of eight bits, which go as integers of their size. A tensor whose
dimensions lie in memory in another order than they are numbered (`channels_last`, a transposed matrix) is taken in the order of
its memory, with the order beside it: programs are compiled for it, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.torch.packages import TorchError, packages

__all__ = ["array_maker", "as_array", "as_tensor", "is_shared", "memory_order", "numpy_dtype", "tensor_maker"]

_ALIKE = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
_AS_INTEGERS = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_INTEGERS = {1: ("uint8", np.uint8), 2: ("int16", np.int16)}


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """NumPy's type for torch's. Raises TorchError for types that the two do not share (quantised ones).

    >>> numpy_dtype("torch.bfloat16"), numpy_dtype("torch.int64")
    (dtype(bfloat16), dtype('int64'))
    """
    name = str(dtype).removeprefix("torch.")
    if name in _ALIKE:
        return np.dtype(name)
    if name in _AS_INTEGERS:
        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
    raise TorchError(f"tensors of {dtype}: expected one of {', '.join((*_ALIKE, *_AS_INTEGERS))}")


def is_shared(dtype: Any) -> bool:
    """Whether NumPy (with ml_dtypes) has torch's type, as far as this package uses it."""
    return str(dtype).removeprefix("torch.") in (*_ALIKE, *_AS_INTEGERS)


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The dimensions from the slowest to the fastest in memory; None where elements do not lie one behind the other.

    >>> memory_order((2, 3, 4), (12, 4, 1)), memory_order((2, 3, 4), (12, 1, 3)), memory_order((2, 3), (0, 1))
    ((0, 1, 2), (0, 2, 1), None)
    """
    # Dimensions of one element may have any stride: they stay where they are among the others.
    order = tuple(sorted(range(len(shape)), key=lambda k: (-_effective(k, shape, strides), k)))
    expected = 1
    for k in reversed(order):
        if shape[k] != 1 and strides[k] != expected:
            return None
        expected *= shape[k]
    return order


def _effective(k: int, shape: Sequence[int], strides: Sequence[int]) -> int:
    """A dimension's stride, or for one of a single element that of the nearest dimension before it."""
    while k > 0 and shape[k] == 1:
        k -= 1
    return strides[k] if shape[k] != 1 else 1 << 62


def as_array(tensor: Any, order: Sequence[int]) -> np.ndarray:
    """The tensor's elements with its dimensions in this order: its own memory where it lies so."""
    plain = tensor.detach()
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    if tuple(order) != tuple(range(plain.ndim)):
        plain = plain.permute(order)
    name = str(plain.dtype).removeprefix("torch.")
    if name in _AS_INTEGERS:
        stored, _ = _INTEGERS[plain.dtype.itemsize]
        viewed: np.ndarray = plain.view(getattr(packages().torch, stored)).numpy().view(getattr(ml_dtypes, name))
        return viewed
    array: np.ndarray = plain.numpy()
    return array


def array_maker(dtype: Any, order: Sequence[int]) -> Callable[[Any], np.ndarray]:
    """`as_array` for tensors of one type and order: a call may have hundreds of them."""
    if str(dtype).removeprefix("torch.") in _AS_INTEGERS or tuple(order) != tuple(range(len(order))):
        return lambda tensor: as_array(tensor, order)

    def make(tensor: Any) -> np.ndarray:
        try:
            array: np.ndarray = tensor.detach().numpy() if tensor.requires_grad else tensor.numpy()
        except RuntimeError:  # a conjugate or a negative that torch has not computed yet
            array = as_array(tensor, order)
        return array

    return make


def tensor_maker(dtype: Any, order: Sequence[int]) -> Callable[[np.ndarray], Any]:
    """`as_tensor` for arrays of one type and order."""
    if str(dtype).removeprefix("torch.") in _AS_INTEGERS or tuple(order) != tuple(range(len(order))):
        return lambda array: as_tensor(array, dtype, order)
    from_numpy = packages().torch.from_numpy

    def make(array: np.ndarray) -> Any:
        return from_numpy(array) if array.size else as_tensor(array, dtype, order)

    return make


def as_tensor(array: np.ndarray, dtype: Any, order: Sequence[int]) -> Any:
    """A tensor on the array's memory, whose dimensions were in this order.

    One without elements has torch's own memory: `resize_` and `out=` make it larger.
    """
    torch = packages().torch
    if not array.size:
        made = torch.empty(array.shape, dtype=dtype)
        return made if tuple(order) == tuple(range(array.ndim)) else made.permute(_back(order))
    name = str(dtype).removeprefix("torch.")
    if name in _AS_INTEGERS:
        tensor = torch.from_numpy(array.view(_INTEGERS[array.dtype.itemsize][1])).view(dtype)
    else:
        tensor = torch.from_numpy(array)
    if tuple(order) == tuple(range(array.ndim)):
        return tensor
    return tensor.permute(_back(order))


def _back(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=lambda k: order[k])
