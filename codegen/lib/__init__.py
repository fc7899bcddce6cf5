"""What generated kernel source may call: buffers, scalar ops, contraction micro-kernels.

Importing this package imports llvmlite; a kernel that is found in the disk cache needs neither.  ``NAMESPACE`` maps each
public name to its function, and is the global namespace that kernel source is executed in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from codegen.lib import buffer, narrow, random_words, representation, scalar, scalar_bits
from codegen.lib.micro_kernels import (
    contract,
    contract_ahead,
    contract_bytes,
    contract_dots,
    contract_mmla,
    contract_pairs,
    transpose,
)

_TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")


def _public(module: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and not isinstance(value, type)
        and getattr(value, "__module__", None) == module.__name__
    }  # fmt: skip


NAMESPACE: dict[str, Any] = {
    **_public(scalar),
    **_public(scalar_bits),
    **_public(random_words),
    **narrow.NAMESPACE,
    **representation.NAMESPACE,
    "at": buffer.at,
    "again": buffer.again,
    "prefetch": buffer.prefetch,
    "gemm_ahead": contract_ahead.gemm_ahead,
    "gemm_block": contract.gemm_block,
    "gemm_bytes": contract_bytes.gemm_bytes,
    "gemm_mmla": contract_mmla.gemm_mmla,
    "gemm_pairs": contract_pairs.gemm_pairs,
    "gemm_dots": contract_dots.gemm_dots,
    "transpose": transpose.transpose,
    "copy_rows": transpose.copy_rows,
    **{name: getattr(np, name) for name in _TYPES},
    "min": buffer.least,
    "max": buffer.greatest,
    "inf": float("inf"),
    "nan": float("nan"),
}
