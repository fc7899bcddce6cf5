"""Steps that a library runs: one function (op, *arrays) -> array for each op of `tiling.program.library_ops.LIBRARY`.

All of them compute in the operands' own precision (half precision in single).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hlo.blas import matmul, using_blas
from hlo.foreign import borrows
from hlo.module import Op

__all__ = ["LIBRARY_STEPS"]

Array = np.ndarray[Any, Any]
BLOCK = 64


@borrows
def _fft(op: Op, x: Array) -> Array:
    """Discrete Fourier transforms of the last dimensions."""
    goal = op.results[0].tensor
    lengths = [int(n) for n in op.attr("fft_length")]
    if x.size == 0 or 0 in lengths:
        return np.zeros(goal.static_shape, goal.dtype)
    axes = list(range(x.ndim - len(lengths), x.ndim))
    kinds: dict[str, Any] = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}
    return np.asarray(kinds[op.attr("fft_type")](x, lengths, axes))


def _wide(x: Array) -> Array:
    return x if x.dtype.name in ("float32", "float64", "complex64", "complex128") else x.astype(np.float32)


def _adjoint(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


@borrows
def _cholesky(op: Op, a: Array) -> Array:
    """The lower L with L L* = a, or the upper U with U* U = a; NaN for a matrix that is not positive definite."""
    lower = op.attr("lower")
    m = _wide(a) if lower else _adjoint(_wide(a))
    try:
        with using_blas:
            factor = np.linalg.cholesky(m)
    except np.linalg.LinAlgError:
        factor = np.zeros_like(m)
        below = np.tril(np.ones(m.shape[-2:], bool))
        for k in np.ndindex(m.shape[:-2]):
            try:
                with using_blas:
                    factor[k] = np.linalg.cholesky(m[k])
            except np.linalg.LinAlgError:
                factor[k][below] = np.nan
    return factor if lower else _adjoint(factor)


@borrows
def _triangular_solve(op: Op, a: Array, b: Array) -> Array:
    """x with op(a) x = b, or x op(a) = b: products for all but the diagonal blocks, substitution in these."""
    lower, transpose = op.attr("lower"), op.attr("transpose_a")
    m, rest = _wide(a), np.array(_wide(b))
    if transpose != "NO_TRANSPOSE":
        m, lower = (_adjoint(m) if transpose == "ADJOINT" else np.swapaxes(m, -1, -2)), not lower
    left = op.attr("left_side")
    if not left:  # x m = b is the same as m^T x^T = b^T
        m, lower, rest = np.swapaxes(m, -1, -2), not lower, np.ascontiguousarray(np.swapaxes(rest, -1, -2))
    n = m.shape[-1]
    starts = list(range(0, n, BLOCK))
    for begin in starts if lower else reversed(starts):
        end = min(begin + BLOCK, n)
        done = slice(0, begin) if lower else slice(end, n)
        rest[..., begin:end, :] -= matmul(m[..., begin:end, done], rest[..., done, :])
        for i in range(begin, end) if lower else reversed(range(begin, end)):
            known = slice(begin, i) if lower else slice(i + 1, end)
            rest[..., i : i + 1, :] -= matmul(m[..., i : i + 1, known], rest[..., known, :])
            if not op.attr("unit_diagonal"):
                rest[..., i, :] /= m[..., i, i][..., None]
    return rest if left else np.swapaxes(rest, -1, -2)


LIBRARY_STEPS: dict[str, Callable[..., Array]] = {
    "stablehlo.fft": _fft,
    "stablehlo.cholesky": _cholesky,
    "stablehlo.triangular_solve": _triangular_solve,
}
