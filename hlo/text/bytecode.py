"""MLIR bytecode and StableHLO portable artifacts: read through jaxlib where it is installed, and otherwise declined in words."""

from __future__ import annotations

import importlib
from typing import Any

from hlo.errors import Location, ParseError

__all__ = ["MAGIC", "text_of"]

MAGIC = b"ML\xefR"


def text_of(data: bytes, name: str) -> str:
    """The StableHLO text of a module in bytecode. Raises ParseError when it is none, or when jaxlib is not there to read it."""
    try:
        ir: Any = importlib.import_module("jaxlib.mlir.ir")
        dialects: list[Any] = [importlib.import_module(f"jaxlib.mlir.dialects.{d}") for d in ("stablehlo", "chlo")]
        extension: Any = importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext")
    except ImportError:
        raise ParseError(
            "this is MLIR bytecode, which is read through jaxlib, and jaxlib is not installed", Location(name)
        ) from None
    stablehlo, chlo = dialects
    registry = ir.DialectRegistry()
    extension.register_dialects(registry)
    with ir.Context() as context:
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        stablehlo.register_dialect(context)
        chlo.register_dialect(context)
        reasons: list[str] = []
        # A portable artifact is bytecode too, of a versioned dialect: its own reader turns it back into StableHLO.
        for read in (lambda d: stablehlo.deserialize_portable_artifact(context, d), ir.Module.parse):
            try:
                return str(read(data).operation.get_asm())
            except (ValueError, RuntimeError, TypeError, ir.MLIRError) as e:
                reasons.append(str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__)
    raise ParseError(f"this is no MLIR bytecode that jaxlib reads: {'; '.join(reasons)}", Location(name))
