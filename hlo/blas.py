"""Products by NumPy's BLAS, and forks: a fork waits until no product is under way, and no product begins meanwhile.

OpenBLAS ends its threads before a fork, also those that another Python thread's product waits for: then neither the product
nor the fork ever ends.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

__all__ = ["matmul", "using_blas"]

Array = np.ndarray[Any, Any]

using_blas = threading.RLock()
"""Held around whatever calls BLAS or LAPACK."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=using_blas.acquire, after_in_parent=using_blas.release, after_in_child=using_blas.release)


def matmul(a: Array, b: Array) -> Array:
    """a @ b.

    >>> matmul(np.eye(2), np.ones((2, 1))).tolist()
    [[1.0], [1.0]]
    """
    with using_blas:
        return np.asarray(np.matmul(a, b))
