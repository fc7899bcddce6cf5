"""Tokens of MLIR text: one compiled pattern, one token of lookahead, places computed only when they are asked for."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from hlo.errors import Location, ParseError
from hlo.module import Source

__all__ = ["Lexer"]

_KINDS = ("value", "word", "symbol", "float", "int", "string", "hash", "bang", "caret", "mark", "end", "bad")
_TOKEN = re.compile(
    r"""(?:[ \t\r\n]++|//[^\n]*+)*+(?:
      (%[\w$.\-]++(?:\#\d++)?)
    | ([A-Za-z_][\w$.]*+)
    | (@(?:[A-Za-z_\-][\w$.\-]*+|"(?:[^"\\\n]++|\\.)*+"))
    | (\d++\.\d*+(?:[eE][+\-]?\d++)?)
    | (0x[0-9A-Fa-f]++|\d++)
    | ("(?:[^"\\\n]++|\\.)*+")
    | (\#[\w$.\-]++)
    | (![A-Za-z_][\w$.]*+)
    | (\^[\w$.\-]++)
    | (->|::|[()\[\]{}<>,:=*+?|/\-;])
    | (\Z)
    | ([\s\S])
    )""",
    re.VERBOSE | re.ASCII,
)
_SPACE = re.compile(r"(?:[ \t\r\n]++|//[^\n]*+)*+")


class Lexer:
    """A cursor over the text. `kind`, `start` and `end` describe the current token; a mark's kind is the mark itself.

    Kinds: value (`%0`, `%0#1`), word, symbol (`@f`), float, int, string, hash (`#name`), bang (`!name`), caret (`^bb0`),
    end, bad.
    """

    __slots__ = ("_lines", "_match", "end", "kind", "source", "start", "text")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self._match = _TOKEN.match
        self._lines: list[int] | None = None
        self.kind = ""
        self.start = self.end = 0
        self.advance()

    def advance(self) -> None:
        """Moves on to the next token."""
        m = self._match(self.text, self.end)
        if m is None:  # the pattern ends in "any character", so this is unreachable text
            raise self.error("unreadable text", self.end)
        index: int = m.lastindex or 1
        self.start, self.end = m.span(index)
        self.kind = _KINDS[index - 1] if index != 10 else m.group(10)

    @property
    def token(self) -> str:
        """The current token's text."""
        return self.text[self.start : self.end]

    def seek(self, position: int) -> None:
        """Makes the token that begins at or after `position` the current one."""
        self.end = position
        self.advance()

    def skip_space(self, position: int) -> int:
        """The first position at or after `position` that is neither white space nor comment."""
        m = _SPACE.match(self.text, position)
        return m.end() if m else position

    # ------------------------------------------------------------ places and errors

    def location(self, position: int | None = None) -> Location:
        """Line and column (from 1) of a position; default: of the current token. O(log lines) after one pass."""
        at = self.start if position is None else position
        if self._lines is None:
            self._lines = [0]
            find, i = self.text.find, 0
            while (i := find("\n", i) + 1) > 0:
                self._lines.append(i)
        line = bisect_right(self._lines, at)
        return Location(self.source.name, line, at - self._lines[line - 1] + 1)

    def error(self, message: str, position: int | None = None) -> ParseError:
        """The error to raise at a position (default: the current token)."""
        place = self.location(position)
        return ParseError(message, place, self.source.line(place.line))

    def expected(self, what: str) -> ParseError:
        """The error "expected …, found …" at the current token."""
        found = "the end of the text" if self.kind == "end" else repr(self.token[:40])
        return self.error(f"expected {what}, found {found}")

    # ------------------------------------------------------------ small steps

    def at_word(self, word: str) -> bool:
        """True when the current token is that word."""
        return self.kind == "word" and self.text.startswith(word, self.start) and self.end - self.start == len(word)

    def accept(self, mark: str) -> bool:
        """Skips the mark when it is the current token."""
        if self.kind == mark:
            self.advance()
            return True
        return False

    def accept_word(self, word: str) -> bool:
        """Skips the word when it is the current token."""
        if self.at_word(word):
            self.advance()
            return True
        return False

    def expect(self, mark: str) -> None:
        """Skips the mark. Raises ParseError when the current token is another."""
        if self.kind != mark:
            raise self.expected(f"{mark!r}")
        self.advance()

    def expect_word(self, word: str) -> None:
        """Skips the word. Raises ParseError when the current token is another."""
        if not self.accept_word(word):
            raise self.expected(f"{word!r}")

    def listed(self, closing: str) -> Iterator[None]:
        """Once for each item of a list, up to and past the mark `closing`; the loop's body reads one, and no break leaves it.

        >>> lexer = Lexer(Source("2, 3]", "<text>"))
        >>> [lexer.integer() for _ in lexer.listed("]")]
        [2, 3]
        """
        while self.kind != closing:
            yield
            if not self.accept(","):
                break
        self.expect(closing)

    def take(self, kind: str, what: str) -> str:
        """The current token's text, which must be of `kind`; moves on."""
        if self.kind != kind:
            raise self.expected(what)
        text = self.text[self.start : self.end]
        self.advance()
        return text

    def integer(self, bits: int | None = None) -> int:
        """A decimal or hexadecimal integer with an optional minus sign, within a signed type of `bits` bits."""
        begin = self.start
        negative = self.accept("-")
        at = self.start
        digits = self.take("int", "an integer")
        if len(digits) > 4000:
            raise self.error("an integer of more than 4000 digits", at)
        value = int(digits, 16) if digits.startswith("0x") else int(digits)
        value = -value if negative else value
        if bits is not None and not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise self.error(f"{value} does not fit into {bits} bits", begin)
        return value

    def string(self) -> str:
        """A quoted string, unescaped."""
        at = self.start
        return self.unescape(self.take("string", "a string")[1:-1], at)

    def unescape(self, body: str, at: int) -> str:
        r"""The text of a string literal's body: `\n`, `\t`, `\\`, `\"` and two hexadecimal digits for a byte."""
        if "\\" not in body:
            return body
        out = bytearray()
        last = 0
        for m in re.finditer(r'\\([nt\\"]|[0-9A-Fa-f]{2})?', body):
            code = m.group(1)
            if code is None:
                raise self.error("expected an escape of two hexadecimal digits, n, t, a quote or a backslash", at + 1 + m.start())
            out += body[last : m.start()].encode("utf-8", "surrogateescape")
            plain = {"n": 10, "t": 9, "\\": 92, '"': 34}.get(code)
            out.append(int(code, 16) if plain is None else plain)
            last = m.end()
        out += body[last:].encode("utf-8", "surrogateescape")
        return out.decode("utf-8", "surrogateescape")

    def symbol(self) -> str:
        """A symbol name without its `@`, unquoted."""
        at = self.start
        name = self.take("symbol", "a symbol name such as @main")[1:]
        return self.unescape(name[1:-1], at + 1) if name.startswith('"') else name

    def balanced(self) -> int:
        """With an opening bracket as the current token: the position after the one that closes it."""
        closers = {"<": ">", "(": ")", "[": "]", "{": "}"}
        stack = [closers[self.kind]]
        begin = self.start
        position = self.end
        for m in _BRACKETS.finditer(self.text, position):
            s = m.group()
            if s in closers:
                stack.append(closers[s])
            elif s == stack[-1]:
                stack.pop()
                if not stack:
                    return m.end()
            elif s in ">)]}":
                raise self.error(f"expected {stack[-1]!r}, found {s!r}", m.start())
        raise self.error("an opening bracket without its closing one", begin)


_BRACKETS = re.compile(r'"(?:[^"\\\n]++|\\.)*+"|->|>=|<=|//[^\n]*|[<>()\[\]{}]')
