"""The metadata section at the end of an MLIR file, and the constants that it holds.

    {-#
      dialect_resources: { builtin: { weights: "0x040000000000803F" } }
    #-}

A blob is a string of hexadecimal digits: four bytes of alignment (little-endian), then the elements. Constants name it before
it stands in the text (`dense_resource<weights> : tensor<1xf32>`), so the section is looked up when the first one asks.
"""

from __future__ import annotations

import re
from typing import Any

from hlo.module import DenseArray
from hlo.text import literals
from hlo.text.lexer import Lexer
from hlo.types import TensorType

__all__ = ["ELIDED", "SECTION_BEGIN", "Resources", "skip_section"]

SECTION_BEGIN = "{-#"
ELIDED = "__elided__"
"""The name that a dump gives to a value that it leaves out."""

_SECTIONS = re.compile(r'"(?:[^"\\\n]++|\\.)*+"|//[^\n]*+|\{-#')
_END = re.compile(r'(?>(?:"(?:[^"\\\n]++|\\.)*+"|//[^\n]*+|[^"/#]++|#(?!-\})|/)*)#-\}')
_ALIGNMENT_DIGITS = 8


def skip_section(lx: Lexer, position: int) -> int:
    """The position after the section that begins at `position`. Raises ParseError for one without an end."""
    m = _END.match(lx.text, position + len(SECTION_BEGIN))
    if m is None:
        raise lx.error("a resource section without its end '#-}'", position)
    return m.end()


class Resources:
    """The blobs of a text by name, with their places."""

    def __init__(self, lexer: Lexer) -> None:
        self.lexer = lexer
        self.blobs: dict[str, tuple[int, int]] = {}  # name -> the digits' place
        for m in _SECTIONS.finditer(lexer.text):
            if m.group() == SECTION_BEGIN:
                self._read(m.end(), skip_section(lexer, m.start()))

    def constant(self, name: str, at: int, t: TensorType) -> DenseArray:
        """The constant of that type whose elements the resource `name` holds; `at` is the place that asks.

        Raises ParseError for a name without a resource, and for a blob of another size.
        """
        if name == ELIDED:
            raise self.lexer.error("the dump left this constant's value out (dense_resource<__elided__>)", at)
        place = self.blobs.get(name)
        if place is None:
            known = ", ".join(list(self.blobs)[:8]) or "none"
            raise self.lexer.error(f"no resource {name!r} at the end of the text; there is {known}", at)
        begin, end = place
        digits = end - begin - _ALIGNMENT_DIGITS
        element = literals.storage_element(t)
        wanted = 2 * t.size_elems * element.itemsize_bytes
        packed = 2 * -(-t.size_elems // 8) if element.is_boolean else wanted
        if digits not in (wanted, packed):
            raise self.lexer.error(f"expected {wanted // 2} bytes for {t} in the resource {name!r}, found {digits // 2}", begin)
        return literals.from_hex(
            self.lexer.text, begin + _ALIGNMENT_DIGITS, end, t, lambda message: self.lexer.error(message, begin)
        )

    def _read(self, begin: int, end: int) -> None:
        """One section: groups of dialects' resources; what is no blob of the builtin dialect is of no use here."""
        lx = Lexer(self.lexer.source)
        lx.seek(begin)
        while lx.kind != "#-}" and lx.start < end - 3:
            group = self._key(lx)
            lx.expect("{")
            for _ in lx.listed("}"):
                self._key(lx)
                self._entries(lx, group == "dialect_resources")
            if not lx.accept(","):
                break
        if lx.start != end - 3:
            raise lx.expected("'#-}'")

    def _entries(self, lx: Lexer, is_blob: bool) -> None:
        lx.expect("{")
        for _ in lx.listed("}"):
            name, at = self._key(lx), lx.start
            if lx.kind == "string" and lx.text.startswith('"0x', at):
                if is_blob:
                    if name in self.blobs:
                        raise lx.error(f"the resource {name!r} is there twice", at)
                    self.blobs[name] = self._digits(lx, at)
                lx.advance()
            elif lx.kind == "string" or (lx.kind == "word" and lx.token in ("true", "false")):
                lx.advance()  # a string or a flag, which no constant is made of
            else:
                raise lx.expected('a blob such as "0x04000000"')

    def _digits(self, lx: Lexer, at: int) -> tuple[int, int]:
        begin, end = at + 3, lx.end - 1
        text = lx.text[begin : begin + _ALIGNMENT_DIGITS]
        if len(text) < _ALIGNMENT_DIGITS or end - begin < _ALIGNMENT_DIGITS or not re.fullmatch("[0-9A-Fa-f]+", text):
            raise lx.error("expected a blob that begins with four bytes of alignment", at)
        alignment = int.from_bytes(bytes.fromhex(text), "little")
        if alignment & (alignment - 1):
            raise lx.error(f"expected a power of two as the alignment, found {alignment}", at)
        return begin, end

    @staticmethod
    def _key(lx: Lexer) -> Any:
        name = lx.string() if lx.kind == "string" else lx.take("word", "a resource's name")
        lx.expect(":")
        return name
