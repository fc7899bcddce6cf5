"""Forms of a program that are no StableHLO text, told apart and named: MLIR bytecode, portable artifacts, VHLO.

Bytecode and portable artifacts (bytecode of VHLO, StableHLO's versioned form) are read through jaxlib where it is installed,
and otherwise declined in words; so is VHLO written out as text.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from hlo.errors import Location, ParseError

__all__ = ["MAGIC", "bytecode_kind", "refuse_bytecode", "text_of", "vhlo_problem"]

MAGIC = b"ML\xefR"


_AS_TEXT = ("ML\xefR", "ML\ufffdR", "ML\udcefR")
"""How the magic number looks in a string that was decoded as Latin-1, with replacements, or with escaped surrogates."""

_PRODUCER = re.compile(rb"ML\xefR[\x00-\xff]([ -~]{1,60})\x00")


def bytecode_kind(data: bytes) -> str:
    """What the bytes are, as their header says it: "StableHLO portable artifact (StableHLO_v1.9.0)" or "MLIR bytecode (…)".

    >>> bytecode_kind(b"ML\\xefR\\rMLIR20.0.0git\\x00")
    'MLIR bytecode (MLIR20.0.0git)'
    """
    m = _PRODUCER.match(data)
    producer = m.group(1).decode("ascii") if m else ""
    kind = "StableHLO portable artifact" if producer.startswith("StableHLO_v") else "MLIR bytecode"
    return f"{kind} ({producer})" if producer else kind


def _named(data: bytes) -> str:
    kind = bytecode_kind(data)
    return kind if kind.startswith("MLIR") else f"a {kind}"


def refuse_bytecode(text: str, name: str) -> None:
    """Raises ParseError for bytecode that was read as if it were text, which loses bytes."""
    if text.startswith(_AS_TEXT):
        raise ParseError(
            "this is MLIR bytecode that was decoded as text; give its bytes to hlo.parse, or its path to hlo.load",
            Location(name, 1, 1),
        )


def vhlo_problem(name: str) -> str | None:
    """What to say of an op, type or attribute of VHLO, whose names resemble StableHLO's; None for any other name."""
    if not name.lstrip("!#").startswith("vhlo."):
        return None
    return (
        f"{name[:80]} is VHLO, the versioned form in which StableHLO is stored; read the artifact's bytecode itself "
        "(hlo.load, with jaxlib installed), or turn it into StableHLO first (stablehlo-translate --deserialize)"
    )


def text_of(data: bytes, name: str) -> str:
    """The StableHLO text of a module in bytecode. Raises ParseError when it is none, or when jaxlib is not there to read it."""
    try:
        ir: Any = importlib.import_module("jaxlib.mlir.ir")
        dialects: list[Any] = [importlib.import_module(f"jaxlib.mlir.dialects.{d}") for d in ("stablehlo", "chlo", "sdy")]
        extension: Any = importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext")
    except ImportError:
        raise ParseError(
            f"this is {_named(data)}, which is read through jaxlib, and jaxlib is not installed", Location(name)
        ) from None
    stablehlo = dialects[0]
    registry = ir.DialectRegistry()
    extension.register_dialects(registry)
    with ir.Context() as context:
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        for dialect in dialects:
            dialect.register_dialect(context)
        reasons: list[str] = []
        # A portable artifact is bytecode too, of a versioned dialect: its own reader turns it back into StableHLO.
        for read in (lambda d: stablehlo.deserialize_portable_artifact(context, d), ir.Module.parse):
            try:
                return str(read(data).operation.get_asm())
            except (ValueError, RuntimeError, TypeError, ir.MLIRError) as e:
                reasons.append(str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__)
    kind = bytecode_kind(data)
    what = f"no {kind} that jaxlib reads" if kind == "MLIR bytecode" else f"{_named(data)}, which this jaxlib does not read"
    raise ParseError(f"this is {what}: {'; '.join(reasons)}", Location(name))
