"""cholesky and triangular_solve, on batches of matrices, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo import Op
from hlo.blas import matmul
from interp.numbers import Array, is_complex, narrow
from interp.registry import rule

__all__: list[str] = []


def _wide(x: Array) -> Array:
    return x.astype(np.complex128 if is_complex(x.dtype) else np.float64)


def _back(x: Array, dtype: np.dtype[Any]) -> Array:
    return x.astype(dtype) if is_complex(dtype) else narrow(x, dtype)


def _adjoint(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


@rule("stablehlo.cholesky", dequantizes=True)
def cholesky(ctx: Any, op: Op, a: Array) -> Array:
    """The lower L with L L* = a (from a's lower triangle), or the upper U with U* U = a (from its upper one).

    Column by column. A matrix that is not positive definite gives NaN; the other triangle is 0.
    """
    lower = op.attr("lower")
    m = _wide(a) if lower else _adjoint(_wide(a))
    n = m.shape[-1]
    out = np.zeros_like(m)
    failed = np.zeros(m.shape[:-2], bool)
    for j in range(n):
        ctx.step(op)
        known = out[..., j:, :j]
        column = m[..., j:, j] - matmul(known, np.conj(known[..., :1, :]).swapaxes(-1, -2))[..., 0]
        pivot = column[..., 0].real
        failed |= ~(pivot > 0)
        root = np.sqrt(np.where(pivot > 0, pivot, np.nan))
        out[..., j:, j] = column / root[..., None]
        out[..., j, j] = root
    below = np.tril(np.ones((n, n), bool))
    out = np.where(failed[..., None, None] & below, np.nan, out)
    return _back(out if lower else _adjoint(out), a.dtype)


@rule("stablehlo.triangular_solve", dequantizes=True)
def triangular_solve(ctx: Any, op: Op, a: Array, b: Array) -> Array:
    """x with op(a) x = b, or x op(a) = b; reads the triangle that `lower` names. Substitution, row by row."""
    lower, transpose = op.attr("lower"), op.attr("transpose_a")
    m = np.tril(_wide(a)) if lower else np.triu(_wide(a))
    if transpose == "TRANSPOSE":
        m, lower = np.swapaxes(m, -1, -2), not lower
    elif transpose == "ADJOINT":
        m, lower = _adjoint(m), not lower
    rest = _wide(b)
    if not op.attr("left_side"):  # x m = b is the same as m^T x^T = b^T
        m, lower, rest = np.swapaxes(m, -1, -2), not lower, np.swapaxes(rest, -1, -2)
    n = m.shape[-1]
    x = np.zeros_like(rest)
    for i in range(n) if lower else reversed(range(n)):
        ctx.step(op)
        done = slice(0, i) if lower else slice(i + 1, n)
        row = rest[..., i, :] - matmul(m[..., i : i + 1, done], x[..., done, :])[..., 0, :]
        x[..., i, :] = row if op.attr("unit_diagonal") else row / m[..., i, i][..., None]
    return _back(x if op.attr("left_side") else np.swapaxes(x, -1, -2), b.dtype)
