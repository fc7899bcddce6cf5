"""Text in and out: StableHLO (MLIR) text and HLO text become the same module."""

from __future__ import annotations

import copyreg
import gc
import os
from pathlib import Path

from hlo.errors import Location, ParseError
from hlo.module import Module, Source
from hlo.text.bytecode import MAGIC, refuse_bytecode, text_of
from hlo.text.mlir_parser import parse_mlir
from hlo.text.xla.parser import looks_like_hlo, parse_hlo

__all__ = ["load", "parse"]


def parse(text: str | bytes, name: str = "<text>") -> Module:
    """The module of a StableHLO text (pretty, generic or mixed) or of an HLO text; `name` stands in the places of errors.

    Values must be defined before they are used, and types stated for operands must be the operands' own. What an op's constraints
    demand is judged by `hlo.verify`. Cost is linear in the text.
    Raises ParseError, and nothing else, whatever the text.

    >>> m = parse("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
    >>> str(m.functions["main"].type)
    '(tensor<2xf32>) -> tensor<2xf32>'
    """
    if isinstance(text, bytes | bytearray | memoryview):
        data = bytes(text)
        text = text_of(data, name) if data.startswith(MAGIC) else _decode(data, name)
    text = text.removeprefix("\ufeff")  # the mark with which some editors begin a file
    refuse_bytecode(text, name)
    source = Source(text, name)
    # Building many small objects makes the cycle collector run again and again over all of them, which is not linear.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return parse_hlo(source) if looks_like_hlo(text) else parse_mlir(source)
    except (RecursionError, MemoryError) as e:
        raise ParseError(f"the text is too large or nested too deeply to read ({type(e).__name__})", Location(name)) from None
    finally:
        if was_enabled:
            gc.enable()


# Pickles and deep copies of a module go through its text: what text does not say (objects' places in memory) is nobody's, but for
# the name of the entry, which HLO text says and StableHLO text does not.
copyreg.pickle(Module, lambda module: (parse, (str(module),), {"entry_name": module.entry_name}))


def load(path: str | os.PathLike[str]) -> Module:
    """The module in a file: StableHLO text, HLO text, or MLIR bytecode where jaxlib is installed. Errors name the path.

    Raises ParseError when the file cannot be read or is no program.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as e:
        raise ParseError(f"cannot read the file: {e.strerror or e}", Location(os.fspath(path))) from None
    return parse(data, os.fspath(path))


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        column = e.start - data.rfind(b"\n", 0, e.start)
        raise ParseError(f"byte {data[e.start]:#04x} is no UTF-8 text", Location(name, line, column)) from None
