"""Products by NumPy's BLAS, and forks: a fork waits until no product is under way, and no product begins meanwhile.

OpenBLAS ends its threads before a fork, also those that another Python thread's product waits for: then neither the product
nor the fork ever ends.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["matmul", "on_one_thread", "thread_functions", "using_blas"]

Array = np.ndarray[Any, Any]

using_blas = threading.RLock()
"""Held around whatever calls BLAS or LAPACK."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=using_blas.acquire, after_in_parent=using_blas.release, after_in_child=using_blas.release)

_wanted = threading.local()
_NAMES = tuple(f"{before}openblas_{{}}_num_threads{after}" for after in ("64_", "") for before in ("scipy_", ""))


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Inside, this thread's products run on one core where NumPy has OpenBLAS: for work beside a process that needs the others.

    OpenBLAS's own threads turn in circles for some hundredths of a second after each product, in case that another one follows:
    between small products the other cores are as busy as this one, for nothing.

    >>> with on_one_thread():
    ...     matmul(np.eye(2), np.ones((2, 1))).tolist()
    [[1.0], [1.0]]
    """
    before = getattr(_wanted, "one", False)
    _wanted.one = True
    try:
        yield
    finally:
        _wanted.one = before


def matmul(a: Array, b: Array) -> Array:
    """a @ b.

    >>> matmul(np.eye(2), np.ones((2, 1))).tolist()
    [[1.0], [1.0]]
    """
    with using_blas:
        limits = _thread_count() if getattr(_wanted, "one", False) else None
        if limits is None:
            return np.asarray(np.matmul(a, b))
        count, set_count = limits
        before = count()
        set_count(1)
        try:
            return np.asarray(np.matmul(a, b))
        finally:
            set_count(before)


def _thread_count() -> tuple[Any, Any] | None:
    """The functions of NumPy's OpenBLAS; None where NumPy has another BLAS."""
    return thread_functions("numpy.linalg._umath_linalg")


@functools.cache
def thread_functions(module: str) -> tuple[Any, Any] | None:
    """OpenBLAS's functions that tell and set how many threads its routines take; None where the module has another BLAS.

    Both are found in what the file of a module is linked with: another copy of OpenBLAS (SciPy's, NumPy's) has its own threads.

    >>> thread_functions("hlo.blas") is None
    True
    """
    try:
        library = ctypes.PyDLL(importlib.import_module(module).__file__)
    except (ImportError, OSError):
        return None
    for name in _NAMES:
        count, set_count = (getattr(library, name.format(what), None) for what in ("get", "set"))
        if count is not None and set_count is not None:
            count.restype, count.argtypes = ctypes.c_int, ()
            set_count.restype, set_count.argtypes = None, (ctypes.c_int,)
            return count, set_count
    return None
