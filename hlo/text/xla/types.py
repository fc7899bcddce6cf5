"""Types and literals of HLO text: `f32[2,3]{1,0}`, tuples, tokens; `{ {1, 2}, {3, 4} }`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from hlo.errors import ParseError
from hlo.module import DenseArray
from hlo.text.lexer import Lexer
from hlo.text.literals import BULK_CHARS, bulk_list, storage_element
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

_ARRAY = re.compile(r"\s*+([a-z]\w*+)\s*+\[([\d,<=?\s]*+)\]", re.ASCII)
_LAYOUT = re.compile(r"\{\s*+([\d,\s]*+)((?::[^{}]*+)?)\}", re.ASCII)
_SPACE = re.compile(r"(?>(?:\s++|/\*.*?\*/|//[^\n]*+)*)", re.DOTALL)
MAX_DEPTH = 64


# Apart from its type, a brace begins a layout only where a number or a colon follows: a computation's body begins with one, too.
_LATER_LAYOUT = re.compile(r"(?>(?:\s++|/\*.*?\*/)+)(?=\{\s*+[\d:])", re.DOTALL | re.ASCII)


def _layout(text: str, position: int) -> re.Match[str] | None:
    """The layout at a position, or after white space there."""
    gap = _LATER_LAYOUT.match(text, position)
    return _LAYOUT.match(text, gap.end() if gap else position)


def _layout_end(text: str, position: int) -> int:
    layout = _layout(text, position)
    return layout.end() if layout else position


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
        return TokenType(), _layout_end(text, end)
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
    layout = _layout(text, end)
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

_PIECE = re.compile(r"(?>(?:\s++|/\*.*?\*/)*)(?:([{}(),])|([^\s{}(),]++(?:\(0x[0-9a-fA-F]+\))?))", re.DOTALL)
_DECIMAL = r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?"
_FLOAT = re.compile(rf"{_DECIMAL}\Z|[+-]?inf\Z", re.ASCII)
_HEX_FLOAT = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)(?:[pP][+-]?\d{1,5})?\Z", re.ASCII)
_NAN = re.compile(r"([+-]?)nan(?:\(0x([0-9a-fA-F]{1,16})\))?\Z", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,39}\Z", re.ASCII)
LiteralError = Callable[[str, int], ParseError]


def parse_literal(body: str, t: TensorType, error: LiteralError) -> DenseArray | None:
    """The constant between the parentheses of `constant(…)`; None for `{...}`, whose value the dump left out.

    One element without braces stands for all. `error` takes what is wrong and where in the body.
    """
    element = storage_element(t)
    if "..." in body:
        return None
    if not t.is_static or t.rank > 32:
        raise error(f"a constant needs a static shape, found {t}", 0)
    position, size = 0, len(body.rstrip())
    prefix = _ARRAY.match(body)
    if prefix is not None:  # an older form repeats the type
        layout = _LAYOUT.match(body, prefix.end())  # a brace after a space begins the list
        position = layout.end() if layout else prefix.end()
    if size - position >= BULK_CHARS:
        bulk = bulk_list(body[position:size], t.static_shape, element, b"{}", False)
        if bulk is not None:
            return DenseArray(t, bulk.reshape(t.static_shape))
    values: list[Any] = []
    parts: list[float] | None = None
    depth, has_braces = 0, False
    while position < size:
        m = _PIECE.match(body, position)
        if m is None:
            break
        mark, word = m.groups()
        at = m.start(1) if mark else m.start(2)
        position = m.end()
        if word is not None:
            value = _element(word, element, lambda message, at=at: error(message, at))  # type: ignore[misc]
            if parts is not None:
                parts.append(value)
            else:
                values.append(value)
        elif mark == "{":
            depth, has_braces = depth + 1, True
        elif mark == "}":
            depth -= 1
        elif mark == "(":
            parts = []
        elif mark == ")":
            if parts is None or len(parts) != 2 or not element.is_complex:
                raise error("expected a complex number (re, im)", at)
            values.append(complex(*parts))
            parts = None
        if depth < 0 or depth > t.rank:
            raise error(f"braces that do not fit {t}", at)
    if depth or parts is not None:
        raise error("a literal that is not closed", size)
    is_splat = len(values) == 1 and not has_braces
    if not is_splat and len(values) != t.size_elems:
        raise error(f"expected {t.size_elems} elements for {t}, found {len(values)}", 0)
    if not t.size_elems:
        return DenseArray(t, np.zeros(t.static_shape, element.dtype))
    array = _array(values, element)
    return DenseArray(t, np.broadcast_to(array.reshape(()), t.static_shape) if is_splat else array.reshape(t.static_shape))


def _array(values: list[Any], element: ElementType) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        if element.is_integer:
            return np.array(values, element.dtype if element.dtype.kind in "iu" else np.int64).astype(element.dtype)
        if not any(isinstance(v, _Payload) for v in values):
            return np.array(values).astype(element.dtype)
        array = np.array([0.0 if isinstance(v, _Payload) else v for v in values]).astype(element.dtype)
    raw = array.view(f"u{element.itemsize_bytes}")
    for i, v in enumerate(values):
        if isinstance(v, _Payload):
            raw[i] = v.bits
    return array


class _Payload:
    """A NaN whose sign and payload the literal states, as its bit pattern."""

    def __init__(self, bits: int) -> None:
        self.bits = bits


def _float(word: str, element: ElementType) -> Any:
    """A decimal or hexadecimal number, an infinity, or a NaN with its payload. Raises ValueError for other words."""
    if _FLOAT.match(word):
        return float(word)
    if _HEX_FLOAT.match(word):
        try:
            return float.fromhex(word)
        except OverflowError:
            return -np.inf if word.startswith("-") else np.inf
    m = _NAN.match(word)
    if m is None:
        raise ValueError(word)
    if m.group(2) is None or element.is_complex or element.itemsize_bytes < 2:
        return -np.nan if m.group(1) == "-" else np.nan
    quiet = int(np.array(np.inf, element.dtype).view(f"u{element.itemsize_bytes}"))
    payload, mantissa = int(m.group(2), 16), quiet & -quiet
    if not 0 < payload < mantissa:
        raise ValueError(word)
    return _Payload(quiet | payload | (1 << element.bits - 1 if m.group(1) == "-" else 0))


def _element(word: str, element: ElementType, error: Callable[[str], ParseError]) -> Any:
    try:
        if element.is_boolean:
            return {"true": True, "false": False, "1": True, "0": False}[word]
        if element.is_float or element.is_complex:
            return _float(word, element)
        value = int(word) if _INTEGER.match(word) else None
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
