"""Attributes to text, in the form that the MLIR parser reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hlo.attributes import (
    ConvDimensions,
    Enumerated,
    Foreign,
    Struct,
    SymbolPath,
    TypedArray,
    TypedFloat,
    TypedInteger,
    Unit,
    Word,
)
from hlo.display import as_text
from hlo.module import DenseArray
from hlo.text import literals
from hlo.types import ELEMENT_TYPES, Type

__all__ = ["attribute_text", "dictionary_text", "quoted", "symbol_text"]

_BARE = re.compile(r"[A-Za-z_][\w$.]*\Z", re.ASCII)
_PLAIN = re.compile(r'[^"\\\x00-\x1f\x7f-\uffff\U00010000-\U0010ffff]*\Z')


def quoted(text: str) -> str:
    r"""A string literal: printable ASCII as it is, every other byte as `\XX`."""
    if _PLAIN.match(text):
        return f'"{text}"'
    out = []
    for byte in text.encode("utf-8", "surrogateescape"):
        if byte == 0x5C:
            out.append("\\\\")
        elif 0x20 <= byte < 0x7F and byte != 0x22:
            out.append(chr(byte))
        else:
            out.append(f"\\{byte:02X}")
    return '"' + "".join(out) + '"'


def symbol_text(name: str) -> str:
    """`@name`, quoted where the name is no plain identifier."""
    return f"@{name}" if _BARE.match(name) else f"@{quoted(name)}"


def dictionary_text(values: Mapping[str, Any]) -> str:
    """`{a = 1 : i32, b}`."""
    parts = []
    for name, value in values.items():
        key = name if _BARE.match(name) else quoted(name)
        parts.append(key if isinstance(value, Unit) else f"{key} = {attribute_text(value)}")
    return "{" + ", ".join(parts) + "}"


def attribute_text(value: Any) -> str:
    """An attribute value of `hlo.attributes` as text.

    >>> attribute_text((TypedInteger(1, "i32"), "a", True))
    '[1 : i32, "a", true]'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, TypedInteger):
        return ("true" if value.value else "false") if value.type == "i1" else f"{value.value} : {value.type}"
    if isinstance(value, TypedFloat):
        return _float(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(attribute_text, value)) + "]"
    if isinstance(value, Mapping):
        return dictionary_text(value)
    if isinstance(value, DenseArray):
        return literals.dense_text(value)
    if isinstance(value, TypedArray):
        if not value.values:
            return f"array<{value.element}>"
        return f"array<{value.element}: " + ", ".join(_plain(v, value.element) for v in value.values) + ">"
    if isinstance(value, Enumerated):
        if value.set.endswith("_mode"):  # the one set that stands as an attribute of its own
            return f"#{value.dialect}.{value.set}<{value.word}>"
        return f"#{value.dialect}<{value.set} {value.word}>"
    if isinstance(value, Struct):
        if value.name == "stablehlo.bounds":
            return "#stablehlo.bounds<" + ", ".join(map(str, value.get("bounds"))) + ">"
        return f"#{value.name}<{_fields(value)}>"
    if isinstance(value, SymbolPath):
        return "::".join(map(symbol_text, value.path))
    if isinstance(value, Unit):
        return "unit"
    if isinstance(value, Foreign):
        return value.text
    if isinstance(value, Type):
        return str(value)
    if isinstance(value, ConvDimensions):
        return as_text(value)
    raise TypeError(f"no text for an attribute of {type(value).__name__}")


def _float(value: TypedFloat) -> str:
    element = ELEMENT_TYPES[value.type]
    if value.bits is not None:
        return f"0x{value.bits:X} : {value.type}"
    return f"{literals.number_text(element.dtype.type(value.value), element)} : {value.type}"


def _plain(value: Any, element: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return literals.number_text(ELEMENT_TYPES[element].dtype.type(value), ELEMENT_TYPES[element])
    return str(value)


def _fields(value: Struct) -> str:
    return ", ".join(f"{name} = {_field(v)}" for name, v in value.fields)


def _field(value: Any) -> str:
    """A field of a struct: integers without their type, words without quotes."""
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_field, value)) + "]"
    if isinstance(value, Struct) and not value.name:
        return f"<{_fields(value)}>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str(value) if isinstance(value, Word) else quoted(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return literals.number_text(value, ELEMENT_TYPES["f64"])
    return attribute_text(value)
