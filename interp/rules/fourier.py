"""fft: discrete Fourier transforms of the last dimensions, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo import Op
from interp.numbers import Array
from interp.registry import rule

__all__: list[str] = []


@rule("stablehlo.fft")
def fft(ctx: Any, op: Op, x: Array) -> Array:
    """FFT, IFFT: complex to complex. RFFT: real to the non-redundant half. IRFFT: that half to real."""
    lengths = list(op.attr("fft_length"))
    axes = list(range(x.ndim - len(lengths), x.ndim))
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    goal = op.results[0].tensor.dtype
    if x.size == 0 or 0 in lengths:
        return np.zeros(op.results[0].shape, goal)
    kind = op.attr("fft_type")
    transforms: dict[str, Any] = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}
    return np.asarray(transforms[kind](wide, lengths, axes)).astype(goal)
