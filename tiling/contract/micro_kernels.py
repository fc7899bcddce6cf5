"""The micro-kernels for contractions, in the order in which they are tried."""

from __future__ import annotations

from tiling.contract.bytes import ByteContraction
from tiling.contract.dots import DotContraction
from tiling.contract.panels import Contraction
from tiling.contract.roles import ContractionContext, LoweredContraction

__all__ = ["lower_contraction"]


def lower_contraction(c: ContractionContext) -> LoweredContraction | None:
    """The contraction's steps over the micro-kernel, or None when plain loops do as well (no rows, no columns, other types)."""
    return DotContraction(c).run() or ByteContraction(c).run() or Contraction(c).run()
