"""Types and literals of HLO text: `f32[2,3]{1,0}`, tuples, tokens; `{ {1, 2}, {3, 4} }`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from hlo.errors import ParseError
from hlo.module import DenseArray
from hlo.text.lexer import Lexer
from hlo.text.literals import storage_element
from hlo.types import ELEMENT_TYPES, ElementType, Layout, OpaqueType, TensorType, TokenType, TupleType, Type

__all__ = ["HLO_ELEMENTS", "element_name", "literal_text", "parse_literal", "parse_type", "type_text"]

HLO_ELEMENTS: dict[str, ElementType] = {
    "pred": ELEMENT_TYPES["i1"],
    "c64": ELEMENT_TYPES["complex<f32>"],
    "c128": ELEMENT_TYPES["complex<f64>"],
}
for _t in ELEMENT_TYPES.values():
    if _t.is_float:
        HLO_ELEMENTS[_t.name.lower()] = _t
    elif _t.is_signed:
        HLO_ELEMENTS["s" + _t.name[1:]] = _t
    elif _t.is_unsigned:
        HLO_ELEMENTS["u" + _t.name[2:]] = _t
_NAMES = {t: n for n, t in HLO_ELEMENTS.items()}

_ARRAY = re.compile(r"\s*+([a-z]\w*+)\[([\d,<=?\s]*+)\]", re.ASCII)
_LAYOUT = re.compile(r"\{\s*+([\d,\s]*+)((?::[^{}]*+)?)\}", re.ASCII)
_SPACE = re.compile(r"(?:\s++|/\*.*?\*/|//[^\n]*+)*+", re.DOTALL)
MAX_DEPTH = 64


def skip(text: str, position: int) -> int:
    """The next position that is neither white space nor comment."""
    m = _SPACE.match(text, position)
    return m.end() if m else position


def parse_type(lx: Lexer, position: int, depth: int = 0) -> tuple[Type, int]:
    """The type at a position of the text, and the position after it. Raises ParseError."""
    text = lx.text
    position = skip(text, position)
    if text.startswith("(", position):
        if depth > MAX_DEPTH:
            raise lx.error("tuple types nested too deeply", position)
        elements: list[Type] = []
        position = skip(text, position + 1)
        while not text.startswith(")", position):
            t, position = parse_type(lx, position, depth + 1)
            elements.append(t)
            position = skip(text, position)
            if text.startswith(",", position):
                position = skip(text, position + 1)
            elif not text.startswith(")", position):
                raise lx.error("expected ',' or ')' in a tuple type", position)
        return TupleType(tuple(elements)), position + 1
    m = _ARRAY.match(text, position)
    if m is None:
        raise lx.error("expected a type such as f32[2,3]", position)
    name, dims = m.group(1), "".join(m.group(2).split())
    end = m.end()
    if name == "token":
        layout = _LAYOUT.match(text, end)
        return TokenType(), layout.end() if layout else end
    if name == "opaque":
        return OpaqueType("opaque[]"), end
    element = HLO_ELEMENTS.get(name)
    if element is None:
        raise lx.error(f"unknown element type {name!r}", m.start(1))
    shape: list[int | None] = []
    bounds: list[int | None] = []
    for d in dims.split(",") if dims else ():
        digits = d.removeprefix("<=").removeprefix("?")
        if d == "?":
            shape.append(None)
            bounds.append(None)
            continue
        if not digits.isdigit() or len(digits) > 18:
            raise lx.error(f"expected a dimension's size, found {d[:40]!r}", m.start(2))
        shape.append(None if d.startswith("<=") else int(digits))
        bounds.append(int(digits) if d.startswith("<=") else None)
    layout = _LAYOUT.match(text, end)
    physical: Layout | None = None
    if layout is not None:
        order = tuple(int(k) for k in re.findall(r"\d+", layout.group(1)) if len(k) < 9)
        if sorted(order) != list(range(len(shape))):
            raise lx.error(f"expected a permutation of {len(shape)} dimensions as the layout", layout.start())
        physical, end = Layout(order, layout.group(2)), layout.end()
    known = tuple(bounds) if any(b is not None for b in bounds) else None
    return TensorType(tuple(shape), element, known, None, physical), end


def element_name(e: ElementType) -> str:
    """The HLO name of an element type. Raises KeyError for one that HLO lacks (index)."""
    return _NAMES[e]


def type_text(t: Type) -> str:
    """A type in HLO's syntax. Raises KeyError or TypeError for one that HLO cannot say."""
    if isinstance(t, TupleType):
        return "(" + ", ".join(map(type_text, t.elements)) + ")"
    if isinstance(t, TokenType):
        return "token[]"
    if isinstance(t, OpaqueType) and t.text == "opaque[]":
        return "opaque[]"
    if not isinstance(t, TensorType) or not isinstance(t.element, ElementType):
        raise TypeError(f"HLO text has no type {t}")
    bounds = t.bounds or (None,) * t.rank
    dims = ",".join(
        "?" if n is None and b is None else f"<={b}" if n is None else str(n) for n, b in zip(t.shape, bounds, strict=True)
    )
    return f"{element_name(t.element)}[{dims}]" + (str(t.layout) if t.layout is not None else "")


# ---------------------------------------------------------------- literals

_PIECE = re.compile(r"(?:\s++|/\*.*?\*/)*+(?:([{}(),])|([^\s{}(),]++(?:\(0x[0-9a-fA-F]+\))?))", re.DOTALL)


def parse_literal(body: str, t: TensorType, error: Callable[[str], ParseError]) -> DenseArray | None:
    """The constant between the parentheses of `constant(…)`; None for `{...}`, whose value the dump left out."""
    element = storage_element(t)
    if "..." in body:
        return None
    values: list[Any] = []
    parts: list[float] | None = None
    depth, position, size = 0, 0, len(body.rstrip())
    prefix = _ARRAY.match(body)
    if prefix is not None:  # an older form repeats the type
        layout = _LAYOUT.match(body, prefix.end())
        position = layout.end() if layout else prefix.end()
    while position < size:
        m = _PIECE.match(body, position)
        if m is None:
            break
        position = m.end()
        mark, word = m.groups()
        if word is not None:
            value = _element(word, element, error)
            if parts is not None:
                parts.append(value)
            else:
                values.append(value)
        elif mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
        elif mark == "(":
            parts = []
        elif mark == ")":
            if parts is None or len(parts) != 2 or not element.is_complex:
                raise error("expected a complex number (re, im)")
            values.append(complex(*parts))
            parts = None
        if depth < 0 or depth > t.rank:
            raise error(f"braces that do not fit {t}")
    if depth or parts is not None:
        raise error("a literal that is not closed")
    if not t.is_static or t.rank > 32:
        raise error(f"a constant needs a static shape, found {t}")
    if len(values) == 1 and not t.rank:
        pass
    elif len(values) != t.size_elems:
        raise error(f"expected {t.size_elems} elements for {t}, found {len(values)}")
    if not values:
        return DenseArray(t, np.zeros(t.static_shape, element.dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.array(values, np.int64 if element.dtype.kind not in "iufcb" and element.is_integer else None)
        return DenseArray(t, array.astype(element.dtype).reshape(t.static_shape))


def _element(word: str, element: ElementType, error: Callable[[str], ParseError]) -> Any:
    try:
        if element.is_boolean:
            return {"true": True, "false": False, "1": True, "0": False}[word]
        if element.is_float or element.is_complex:
            return float(word.partition("(")[0])
        value = int(word) if len(word) < 40 else None
        if value is None or not -(1 << (element.bits - 1)) <= value < 1 << element.bits or (element.is_unsigned and value < 0):
            raise ValueError(word)
    except (KeyError, ValueError):
        raise error(f"expected an element of {element}, found {word[:40]!r}") from None
    if element.is_signed and value >= 1 << (element.bits - 1):
        value -= 1 << element.bits
    return value


def _number(x: Any, e: ElementType) -> str:
    if e.is_boolean:
        return "true" if x else "false"
    if e.is_complex:
        return f"({_number(x.real, e.real)}, {_number(x.imag, e.real)})"
    if not e.is_float:
        return str(int(x))
    wide = float(x)
    if wide != wide or wide in (float("inf"), float("-inf")):
        return {"nan": "nan", "inf": "inf", "-inf": "-inf"}[str(wide).lower()]
    if e.bits == 64:
        return repr(wide)
    return (
        np.format_float_positional(np.float32(wide), unique=True, trim="-")
        if 1e-4 < abs(wide) < 1e9 or not wide
        else str(np.float32(wide))
    )


def literal_text(value: DenseArray) -> str:
    """What stands between the parentheses of `constant(…)`."""
    array, element = value.array, storage_element(value.type)
    texts = [_number(x, element) for x in array.reshape(-1)]
    if not array.ndim:
        return texts[0]
    if not array.size:
        return "{" + "}" if array.ndim == 1 else "{}"
    for n in reversed(array.shape):
        texts = ["{" + ", ".join(texts[i : i + n]) + "}" for i in range(0, len(texts), n)]
    return texts[0]
