"""Errors and refusals: what a reader of a message needs to find the place and mend it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Declined", "DefinitionError", "Location", "ParseError", "TilewrightError", "VerificationError"]


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a program's text: file name, line and column, both counted from 1 (0: unknown).

    >>> str(Location("mlp.mlir", 3, 7))
    'mlp.mlir:3:7'
    """

    file: str = "<text>"
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True)
class Declined:
    """A value that says "not supported, because …". It is returned, never raised, and is false.

    >>> bool(Declined("fft reads its whole input along the transformed dimensions"))
    False
    """

    reason: str
    witness: object = None

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"declined: {self.reason}"


class TilewrightError(Exception):
    """Base of all errors that a program or an input causes; never a bug of the toolkit.

    `str(error)` is the message with its place; `error.location` and `error.source_line` give the
    parts, so that a tool can print its own caret.
    """

    def __init__(self, message: str, location: Location | None = None, source_line: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.source_line = source_line

    def __str__(self) -> str:
        return f"{self.location}: {self.message}" if self.location else self.message

    def render(self) -> str:
        """The message, then the offending line with a caret under the column where both are known."""
        head = f"{self.location}: error: {self.message}" if self.location else f"error: {self.message}"
        if self.source_line is None or not self.location or self.location.column < 1:
            return head
        # A long line (a constant's blob) is cut to a window around the column.
        start = max(0, self.location.column - 1 - 60)
        window = self.source_line[start : start + 120]
        pad = "".join("\t" if c == "\t" else " " for c in window[: self.location.column - 1 - start])
        return f"{head}\n  {window}\n  {pad}^"


class ParseError(TilewrightError):
    """The text is not a program: broken syntax, an unknown op or type, an undefined value."""


class DefinitionError(TilewrightError, ValueError):
    """An op's definition is no definition, or contradicts itself; the message names the op, what was expected and what was found.

    It is the definition's author who can mend it: the program is not at fault.
    """


class SettingError(TilewrightError, ValueError):
    """An environment variable has a value that means nothing; the message names both."""


class VerificationError(TilewrightError):
    """A program breaks a constraint of the specification.

    `op` is the op's name, `constraint` the specification's label (`C1`, …) where there is one.
    """

    def __init__(
        self,
        message: str,
        location: Location | None = None,
        source_line: str | None = None,
        *,
        op: str | None = None,
        constraint: str | None = None,
    ) -> None:
        head = f"{op}: " if op else ""
        tail = f" [{constraint}]" if constraint else ""
        super().__init__(f"{head}{message}{tail}", location, source_line)
        self.op = op
        self.constraint = constraint
