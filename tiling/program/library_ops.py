"""Ops that a well-kept library computes better than loops of our own would: which library, and when."""

from __future__ import annotations

from hlo.module import Op
from hlo.types import ElementType, TensorType

__all__ = ["LIBRARY", "library_of"]

LIBRARY = {
    "stablehlo.fft": "NumPy's FFT",
    "stablehlo.cholesky": "NumPy's LAPACK",
    "stablehlo.triangular_solve": "NumPy's BLAS, in blocks",
}


def library_of(op: Op) -> str:
    """The library that runs an op of the table on arrays of fixed shape; the empty text for all other ops."""
    for v in (*op.operands, *op.results):
        if not isinstance(v.type, TensorType) or not v.type.is_static or not isinstance(v.type.element, ElementType):
            return ""
    return LIBRARY.get(op.name, "")
