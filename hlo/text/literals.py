"""Constants: `dense<…>` bodies to NumPy arrays and back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from hlo.errors import ParseError
from hlo.module import DenseArray
from hlo.types import ElementType, QuantizedType, TensorType

__all__ = ["BULK_CHARS", "bulk_list", "dense_text", "float_of_bits", "from_hex", "from_list", "number_text"]

_PIECE = re.compile(r"\s*+(?:([\[\](),])|([^\s\[\](),]++)|\Z)")
HEX_FROM_ELEMS = 100
"""Constants of more elements than this are printed as hexadecimal blobs."""


def storage_element(t: TensorType) -> ElementType:
    """The element type that a constant's bytes have (a quantized type's storage type)."""
    return t.element.storage if isinstance(t.element, QuantizedType) else t.element


def float_of_bits(bits: int, element: ElementType, error: Callable[[str], ParseError]) -> float:
    """The number with that bit pattern. Raises ParseError when it has more bits than the type."""
    if bits < 0 or bits >= 1 << element.bits:
        raise error(f"{bits:#x} has more bits than {element}")
    n = element.itemsize_bytes
    return float(np.frombuffer(bits.to_bytes(n, "little"), element.dtype)[0])


def from_hex(text: str, start: int, stop: int, t: TensorType, error: Callable[[str], ParseError]) -> DenseArray:
    """The constant whose little-endian bytes are the hexadecimal digits text[start:stop]; one element is a splat."""
    element = storage_element(t)
    data = _hex_bytes(text, start, stop, error)
    count, width = t.size_elems, element.itemsize_bytes
    if len(data) == width and count != 0 and not (element.is_boolean and count <= 8 and count != 1):
        one = data.view(element.dtype if not element.is_boolean else np.uint8).astype(element.dtype)
        return DenseArray(t, np.broadcast_to(one.reshape(()), t.shape))  # type: ignore[arg-type]
    if element.is_boolean:
        if len(data) == count:
            return DenseArray(t, (data != 0).reshape(t.static_shape))
        if len(data) != -(-count // 8):
            raise error(f"expected {count} bytes for {t}, found {len(data)}")
        flags = np.unpackbits(data, bitorder="little")[:count]
        return DenseArray(t, flags.astype(np.bool_).reshape(t.static_shape))
    if len(data) != count * width:
        raise error(f"expected {count * width} bytes for {t}, found {len(data)}")
    return DenseArray(t, data.view(element.dtype).reshape(t.static_shape))


_CHUNK = 1 << 18  # characters; small enough for the temporary slices to stay in cache


def _hex_bytes(text: str, start: int, stop: int, error: Callable[[str], ParseError]) -> np.ndarray:
    """The bytes of text[start:stop]. In chunks: two copies of a large blob would cost more than decoding it."""
    out = np.empty((stop - start) // 2, np.uint8)
    try:
        if (stop - start) % 2:
            raise ValueError
        for a in range(start, stop, _CHUNK):
            b = min(stop, a + _CHUNK)
            piece = bytes.fromhex(text[a:b])
            if 2 * len(piece) != b - a:  # fromhex skips white space
                raise ValueError
            out[(a - start) // 2 : (b - start) // 2] = np.frombuffer(piece, np.uint8)
    except ValueError:
        raise error("expected an even number of hexadecimal digits") from None
    return out


def from_list(text: str, t: TensorType, error: Callable[[str, int], ParseError]) -> DenseArray:
    """The constant written as one element (a splat) or as nested lists in row-major order; nothing for a zero-sized type."""
    element = storage_element(t)
    rank, shape = len(t.shape), t.static_shape
    if len(text) >= BULK_CHARS:
        bulk = bulk_list(text, shape, element, b"[]", True)
        if bulk is not None:
            return DenseArray(t, bulk.reshape(shape))
    convert = _converter(element)
    values: list[Any] = []
    counts: list[int] = []  # of the open lists
    is_list = False
    parts: list[Any] | None = None  # the open complex number
    wants_value = True
    position, size = 0, len(text)
    while position < size:
        m = _PIECE.match(text, position)
        if m is None:
            raise error("unreadable constant", position)
        mark, word = m.group(1), m.group(2)
        at = m.start(1) if mark else m.start(2)
        position = m.end()
        if word is not None:
            if not wants_value or (values and not counts and parts is None):
                raise error(f"expected ',' or ']', found {word[:40]!r}", at)
            try:
                value = convert(word)
            except (ValueError, OverflowError) as e:
                raise error(f"expected an element of {element}, found {word[:40]!r}{_reason(e)}", at) from None
            if parts is not None:
                parts.append(value)
            else:
                if element.is_complex:
                    value = complex(value)
                values.append(value)
                if counts:
                    counts[-1] += 1
            wants_value = False
        elif mark == "[":
            if not wants_value or (values and not counts) or parts is not None:
                raise error("unexpected '['", at)
            is_list = True
            if len(counts) >= rank:
                raise error(f"lists nested deeper than the rank of {t}", at)
            counts.append(0)
        elif mark == "]":
            if not counts or parts is not None or (wants_value and counts[-1]):
                raise error("unexpected ']'", at)
            n = counts.pop()
            if n != shape[len(counts)]:
                raise error(f"expected {shape[len(counts)]} entries in dimension {len(counts)} of {t}, found {n}", at)
            if counts:
                counts[-1] += 1
            wants_value = False
        elif mark == "(":
            if not element.is_complex or not wants_value or parts is not None:
                raise error("unexpected '('", at)
            parts = []
        elif mark == ")":
            if parts is None or len(parts) != 2:
                raise error("expected a complex number (re, im)", at)
            values.append(complex(*parts))
            if counts:
                counts[-1] += 1
            parts, wants_value = None, False
        elif mark == ",":
            if wants_value or (parts is None and not counts):
                raise error("unexpected ','", at)
            wants_value = True
    if counts or parts is not None:
        raise error("a list that is not closed", size)
    total = t.size_elems
    if not values:
        if total or (is_list is False and text.strip()):
            raise error(f"expected {total} elements for {t}, found none", 0)
        return DenseArray(t, np.zeros(shape, element.dtype))
    array = _array(values, element)
    if not is_list:
        if not total:
            return DenseArray(t, np.zeros(shape, element.dtype))  # one element for all of none
        return DenseArray(t, np.broadcast_to(array.reshape(()), shape))
    if len(values) != total:
        raise error(f"expected {total} elements for {t}, found {len(values)}", 0)
    return DenseArray(t, array.reshape(shape))


# ---------------------------------------------------------------- long lists at once

BULK_CHARS = 256
"""Lists of at least this length are tried at once first; what does not fit is read element by element, for its error's place."""

_MARKS = b"[](){},"
_NO_MARKS = bytes(c for c in range(256) if c not in _MARKS)
_COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)
_WORD, _OPEN, _CLOSE, _COMMA, _BLANK = range(5)
_CLASSES = np.full(256, _WORD, np.uint8)
for _class, _bytes in ((_OPEN, b"[({"), (_CLOSE, b"])}"), (_COMMA, b","), (_BLANK, b" \t\n\r")):
    _CLASSES[list(_bytes)] = _class
_APART = np.zeros(16, np.bool_)  # first * 4 + second: what must have a comma between
_APART[[_WORD * 4 + _OPEN, _CLOSE * 4 + _WORD, _CLOSE * 4 + _OPEN]] = True


def _packed(data: bytes) -> bytes | None:
    """The bytes without blanks; None where two words, or a bracket and what it does not belong to, have no comma between."""
    raw = np.frombuffer(data, np.uint8)
    classes = _CLASSES[raw]
    keep = classes != _BLANK
    kept = classes[keep]
    if _words(classes) != _words(kept) or _APART[kept[:-1] * 4 + kept[1:]].any():
        return None
    packed: bytes = raw[keep].tobytes()
    return packed


def _words(classes: np.ndarray) -> int:
    """How many runs of word characters there are."""
    is_word = classes == _WORD
    return int(np.count_nonzero(is_word[1:] & ~is_word[:-1])) + int(is_word[:1].any())


def bulk_list(text: str, shape: tuple[int, ...], element: ElementType, brackets: bytes, needs_point: bool) -> np.ndarray | None:
    """The elements of nested lists of that shape, flat, all at once; None where anything is not as plain as it can be.

    None says nothing about the text: a list may still be right (in a rarer form) or wrong, which the slower reader finds out.
    `needs_point`: every float has digits before a decimal point, and no plus sign.
    """
    if not shape or not 0 < math.prod(shape) <= len(text) or not text.isascii():
        return None
    data = text.encode("ascii")
    if b"/" in data:
        data = _COMMENT.sub(b" ", data)
    packed = _packed(data)
    if packed is None or packed[:1] != brackets[:1] or packed[-1:] != brackets[1:]:
        return None
    if packed.translate(None, _NO_MARKS) != _nested(shape, brackets, b"(,)" if element.is_complex else b""):
        return None
    inner = packed.translate(None, b"[](){}")
    try:
        if element.is_boolean:
            words = inner.split(b",")
            return np.array([w == b"true" for w in words], np.bool_) if set(words) <= {b"true", b"false"} else None
        return _bulk_integers(inner, element) if element.is_integer else _bulk_floats(inner, element, needs_point)
    except ValueError:  # a word that is no number
        return None


def _nested(shape: tuple[int, ...], brackets: bytes, one: bytes) -> bytes:
    """The brackets and commas of nested lists of that shape."""
    for n in reversed(shape):
        one = brackets[:1] + b",".join([one] * n) + brackets[1:]
    return one


def _bulk_integers(inner: bytes, element: ElementType) -> np.ndarray | None:
    if inner.translate(None, b"0123456789-,"):
        return None
    values = list(map(int, inner.split(b",")))
    least, most = (0, (1 << element.bits) - 1) if element.is_unsigned else (-(1 << element.bits - 1), (1 << element.bits - 1) - 1)
    if min(values) < least or max(values) > most:
        return None
    return np.array(values, element.dtype if element.dtype.kind in "iu" else np.int64).astype(element.dtype)


def _bulk_floats(inner: bytes, element: ElementType, needs_point: bool) -> np.ndarray | None:
    words = inner.split(b",")
    bits: list[tuple[int, int]] = []
    if needs_point and b"0x" in inner and element.is_float:
        bits = [(i, int(w, 16)) for i, w in enumerate(words) if w.startswith(b"0x") and len(w) <= 20]
        if any(b >= 1 << element.bits for _, b in bits):
            return None
        for i, _ in bits:
            words[i] = b"0.0"
        inner = b",".join(words)
    if inner.translate(None, b"0123456789.eE+-,"):
        return None
    if needs_point and (inner.count(b".") != len(words) or any(p in b"," + inner for p in (b",.", b"-.", b"+.", b",+"))):
        return None
    wide = np.array(list(map(float, words)), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if element.is_complex:
            return wide.view(np.complex128).astype(element.dtype)
        array = wide.astype(element.dtype)
    raw = array.view(f"u{element.itemsize_bytes}")
    for i, b in bits:
        raw[i] = b
    return array


def _reason(e: Exception) -> str:
    return f" ({e})" if isinstance(e, OverflowError) else ""


def _array(values: list[Any], element: ElementType) -> np.ndarray:
    if element.is_integer and element.dtype.kind not in "iu":
        return np.array(values, np.int64).astype(element.dtype)
    if element.is_integer:
        return np.array(values, element.dtype)  # not by way of float64, which NumPy picks for numbers beyond int64
    with np.errstate(over="ignore", invalid="ignore"):
        if element.is_float and element.bits < 32:
            bits = [v.bits if isinstance(v, _Bits) else None for v in values]
            plain = np.array([0.0 if isinstance(v, _Bits) else v for v in values], np.float64).astype(element.dtype)
            return _with_bits(plain, bits, element)
        if element.is_float and any(isinstance(v, _Bits) for v in values):
            bits = [v.bits if isinstance(v, _Bits) else None for v in values]
            return _with_bits(np.array([0.0 if isinstance(v, _Bits) else v for v in values]).astype(element.dtype), bits, element)
        return np.array(values).astype(element.dtype)


def _with_bits(array: np.ndarray, bits: list[int | None], element: ElementType) -> np.ndarray:
    raw = array.view(f"u{element.itemsize_bytes}")
    for i, b in enumerate(bits):
        if b is not None:
            raw[i] = b
    return array


class _Bits:
    """A floating-point element written as its bit pattern, which is kept exactly (NaN payloads included)."""

    def __init__(self, bits: int) -> None:
        self.bits = bits


def _converter(element: ElementType) -> Callable[[str], Any]:
    if element.is_boolean:
        return _boolean
    if element.is_complex:
        part = element.real
        return lambda word: _plain(_floating(word, part), part)
    if element.is_float:
        return lambda word: _floating(word, element)
    return lambda word: _integer(word, element)


def _plain(value: Any, element: ElementType) -> float:
    if not isinstance(value, _Bits):
        return float(value)
    return float(np.frombuffer(value.bits.to_bytes(element.itemsize_bytes, "little"), element.dtype)[0])


def _boolean(word: str) -> bool:
    if word in ("true", "false"):
        return word == "true"
    if word in ("0", "1", "-1"):
        return word != "0"
    raise ValueError(word)


_INTEGER = re.compile(r"-?(?:0x[0-9A-Fa-f]+|\d+)\Z", re.ASCII)
_FLOAT = re.compile(r"-?\d+\.\d*(?:[eE][+-]?\d+)?\Z", re.ASCII)
_HEX = re.compile(r"0x[0-9A-Fa-f]+\Z", re.ASCII)


def _integer(word: str, element: ElementType) -> int:
    if not _INTEGER.match(word) or len(word) > 40:
        raise ValueError(word)
    value = int(word, 16) if "x" in word else int(word)
    if element.is_unsigned and value < 0:
        raise OverflowError("negative")
    if not -(1 << (element.bits - 1)) <= value < 1 << element.bits:
        raise OverflowError("out of range")
    if element.is_signed and value >= 1 << (element.bits - 1):
        value -= 1 << element.bits
    return value


def _floating(word: str, element: ElementType) -> Any:
    if _FLOAT.match(word):
        return float(word)
    if _HEX.match(word) and len(word) <= 20:
        bits = int(word, 16)
        if bits >= 1 << element.bits:
            raise OverflowError("too many bits")
        return _Bits(bits)
    raise ValueError(word)


# ---------------------------------------------------------------- printing


def number_text(value: Any, element: ElementType) -> str:
    """One element as text that parses back to the same bits."""
    if element.is_boolean:
        return "true" if value else "false"
    if element.is_complex:
        part = element.real
        return f"({number_text(value.real, part)}, {number_text(value.imag, part)})"
    if not element.is_float:
        return str(int(value))
    wide = float(value)
    if wide != wide or wide in (float("inf"), float("-inf")):
        return f"0x{int.from_bytes(np.asarray(value, element.dtype).tobytes(), 'little'):0{max(2, -(-element.bits // 4))}X}"
    short = f"{wide:.6e}"
    if element.bits == 64:
        return short if float(short) == wide else _point(repr(wide))
    with np.errstate(over="ignore"):
        if np.float64(short).astype(element.dtype) == value:
            return short
    # Every type of fewer bits is a subset of f32, whose shortest digits tell its values apart.
    return _point(np.format_float_scientific(np.float32(wide), unique=True, trim="0"))


def _point(text: str) -> str:
    """A Python number's text with the decimal point that the syntax asks for."""
    head, e, tail = text.partition("e")
    return (head if "." in head else head + ".0") + (e + tail if e else "")


def dense_text(value: DenseArray) -> str:
    """`dense<…> : tensor<…>`: a splat as one element, few elements as lists, many as a hexadecimal blob."""
    return f"dense<{dense_body(value)}> : {value.type}"


def dense_body(value: DenseArray) -> str:
    """What stands between `dense<` and `>`."""
    array, element = value.array, storage_element(value.type)
    if array.size == 0:
        return ""
    if value.is_splat:
        return number_text(array.flat[0], element)
    if array.size > HEX_FROM_ELEMS and not element.is_boolean:
        return f'"0x{np.ascontiguousarray(array).tobytes().hex().upper()}"'
    return _lists(array, element)


def _lists(array: np.ndarray, element: ElementType) -> str:
    texts = [number_text(x, element) for x in array.reshape(-1)]
    for n in reversed(array.shape):
        texts = ["[" + ", ".join(texts[i : i + n]) + "]" for i in range(0, len(texts), n)]
    return texts[0]
