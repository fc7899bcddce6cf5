"""Run one expression of the kernel library over arrays: what tests, benchmarks and curious people need.

``apply("exp(x) + y", x, y)`` compiles a kernel whose loop body stores the expression, and runs it on one thread.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from codegen.native.jit import CompiledKernel, compile_kernel
from codegen.native.signature import KernelSignature, Param
from codegen.target import Target

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


def elementwise_source(expression: str, arity: int) -> str:
    """A kernel that stores ``expression`` of x, y, z at every i in [begin, end)."""
    names = "xyz"[:arity]
    reads = "; ".join(f"{n} = in_{n}[i]" for n in names)
    arguments = ", ".join(f"in_{n}" for n in names)
    return (
        f"def kernel(begin, end, {arguments}, out):\n"
        f"    for i in range(begin, end):\n"
        f"        {reads}\n"
        f"        out[i] = {expression}\n"
    )


def elementwise_kernel(expression: str, dtypes: tuple[str, ...], result: str, target: Target | None = None) -> CompiledKernel:
    """The compiled form of ``elementwise_source`` for operands of ``dtypes``."""
    params = [Param(f"in_{n}", d, 1) for n, d in zip("xyz", dtypes, strict=False)]
    signature = KernelSignature((*params, Param("out", result, 1)))
    return compile_kernel(elementwise_source(expression, len(dtypes)), signature, target)


def run(kernel: CompiledKernel, begin: int, end: int, *arrays: Any, scratch: Any = None) -> None:
    """Call a kernel on the calling thread, the arrays standing for its buffers."""
    table = np.array([a.ctypes.data for a in arrays], np.uint64)
    ENTRY(kernel.entry)(begin, end, table.ctypes.data, scratch.ctypes.data if scratch is not None else None)


def apply(expression: str, *arrays: Any, result: Any = None, target: Target | None = None) -> Any:
    """``expression`` of the elements x, y, z of up to three arrays of one shape; ``result`` is the output's dtype.

    >>> apply("maximum(x, y)", np.array([1.0, 5.0]), np.array([2.0, 3.0])).tolist()
    [2.0, 5.0]
    """
    arrays = tuple(np.ascontiguousarray(a) for a in arrays)
    out = np.empty(arrays[0].shape, result or arrays[0].dtype)
    kernel = elementwise_kernel(expression, tuple(a.dtype.name for a in arrays), out.dtype.name, target)
    run(kernel, 0, out.size, *arrays, out)
    return out
