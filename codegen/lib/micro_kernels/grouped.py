"""Products whose right factor has several steps of k side by side: what they compute, and the operands that they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from codegen.kernel import types
from codegen.kernel.types import Signature, signature
from codegen.lib.buffer import Buf

__all__ = ["grouped_product", "grouped_typer"]


def grouped_product(
    together: int, sums: Any, m: int, n: int, k: int, a: Any, a_off: int, a_rs: int, b: Any, b_off: int, b_panel_stride: int,
    c: Any, c_off: int, ldc: int, panel: int,
) -> None:  # fmt: skip
    """C[i, j] = sum over k of A[i, k] B[k, j], 0 <= i < m, 0 <= j < n, in the type `sums`; k a multiple of g = `together`.

    A[i, k] is a[a_off + i a_rs + k]; B[k, j] is b[b_off + (j // panel) b_panel_stride + (k // g) g panel + g (j % panel) + k % g]
    and
    C[i, j] is c[c_off + i ldc + j].

    >>> c = np.zeros(1, np.int32)
    >>> grouped_product(2, np.int32, 1, 1, 4, np.arange(4), 0, 4, np.array([1, 2, 0, 0, 3, 4, 0, 0]), 0, 8, c, 0, 1, 2)
    >>> c
    array([20], dtype=int32)
    """
    steps, j = np.arange(k), np.arange(n)
    at_a = a[a_off + np.arange(m)[:, None] * a_rs + steps].astype(sums)
    rows = (steps // together * (together * panel) + steps % together)[:, None]
    at_b = b[b_off + (j // panel) * b_panel_stride + rows + together * (j % panel)].astype(sums)
    c[c_off + np.arange(m)[:, None] * ldc + j] = at_a @ at_b


def grouped_typer(
    takes: Callable[[Buf, Buf, Buf], bool], steps: bool = False, after: int = 0, levels: bool = False
) -> Callable[..., Signature | None]:  # fmt: skip
    """The typing rule of such a product whose buffers are those that `takes` says.

    With `steps` A's step along k, a known integer, follows that between its rows. So many known integers come after the panel's
    width, and then `levels` by threes where there may be some.
    """

    def typer(*args: Any) -> Signature | None:
        size, at = (14, (3, 7, 10)) if steps else (13, (3, 6, 9))
        more = len(args) - size - after
        buffers = [args[k] for k in at] if more == 0 or (levels and more > 0 and more % 3 == 0) else []
        if not buffers or not all(isinstance(x, Buf) for x in buffers):
            return None
        known = (*args[size - 1 :], *((args[6],) if steps else ()))
        if not all(isinstance(x, types.IntegerLiteral) for x in known):
            return None
        if not takes(*buffers):
            return None
        return signature(types.none, *[t if isinstance(t, types.Literal | Buf) else types.int64 for t in args])

    return typer
