"""The file of a compiled program: a header, a JSON document, and sections of bytes, each with its checksum.

    offset  bytes
    0       8      magic
    8       4      version of the format
    12      4      zero
    16      8      bytes of the document
    24      8      bytes of the file
    32      32     sha256 of the 32 bytes before and of the document
    64      …      the document, then the sections, each at a multiple of 64, zeros between them

What is read here is looked at before anything of it is executed; a checksum finds damage, it does not protect from anybody who
can write the file: whoever loads a file runs its code.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import secrets
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["VERSION", "Contents", "FileError", "interface_digest", "is_program_file", "parsed", "read", "write"]

MAGIC = b"\x93TILEWR\n"
VERSION = 1
_FIELDS = struct.Struct("<8sIIQQ")
_HEAD_BYTES = _FIELDS.size + 32
_LINE = 64
_MOST_DOCUMENT_BYTES = 1 << 28


class FileError(ValueError):
    """A file that is no program, damaged, of a newer format, or for another machine; the message says which."""


def is_program_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as files of programs do. Raises OSError where there is none."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def interface_digest(interface: Mapping[str, Any]) -> str:
    """`tw-interface:` and sha256 of an interface: what the code of a program holds, and its document says.

    >>> interface_digest({})[:21]
    'tw-interface:44136fa3'
    """
    text = json.dumps(interface, sort_keys=True, separators=(",", ":"))
    return f"tw-interface:{hashlib.sha256(text.encode()).hexdigest()}"


def write(path: str | os.PathLike[str], document: Mapping[str, Any], sections: Sequence[bytes | memoryview]) -> None:
    """Writes a file whole, or not at all: `document` gets the places of the sections as its `sections`.

    Raises OSError where it cannot be written, and FileExistsError for the path of a folder, a device or a pipe.
    """
    target = Path(path)
    if target.exists() and not target.is_file():  # (a rename would put the file in a device's place)
        raise FileExistsError(errno.EEXIST, "it exists and is no file", str(target))
    rows: list[dict[str, Any]] = [{"offset": 0, "bytes": len(s), "sha256": hashlib.sha256(s).hexdigest()} for s in sections]

    def text() -> bytes:
        return json.dumps({**document, "sections": rows}, separators=(",", ":")).encode()

    # Offsets are numbers in the document, whose length they change: laid out again until it is stable, padded then.
    room = len(text()) + 24 * len(rows)
    at = _HEAD_BYTES + room
    for row, s in zip(rows, sections, strict=True):
        at += -at % _LINE
        row["offset"] = at
        at += len(s)
    body = text().ljust(room)
    if len(body) != room:
        raise AssertionError("the places of sections take more room than was left for them")
    fields = _FIELDS.pack(MAGIC, VERSION, 0, len(body), at)
    temporary = target.with_name(f".new-{secrets.token_hex(8)}")
    # A new file, no link; its mode is what the umask leaves (`os.umask` would change that of all threads to ask for it).
    with open(temporary, "xb") as file:
        try:
            file.write(fields + hashlib.sha256(fields + body).digest() + body)
            for row, s in zip(rows, sections, strict=True):
                file.write(bytes(row["offset"] - file.tell()))
                file.write(s)
            file.close()
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise


class Contents:
    """A file that has been read: its document, and its sections, mapped."""

    def __init__(self, path: str, document: dict[str, Any], data: memoryview, first: int) -> None:
        """`first`: where sections may begin."""
        self.path, self.document = path, document
        self._data = data
        self._rows = _rows(document.get("sections"), first, len(data))

    def section(self, number: int) -> memoryview:
        """The bytes of a section. Raises FileError where they are not those that were written."""
        offset, size, _ = self._row(number)
        found = self._data[offset : offset + size]
        self._check(number, found)
        return found

    def copied(self, number: int) -> bytes:
        """The same bytes as a copy, which stays what it is when the file is written to. Raises FileError."""
        offset, size, _ = self._row(number)
        copy = bytes(self._data[offset : offset + size])
        self._check(number, copy)
        return copy

    def whole(self) -> bytes:
        """The file's bytes."""
        return bytes(self._data)

    def digest(self, number: int) -> str:
        """The checksum that the document says a section has."""
        return self._rows[number][2]

    def _row(self, number: int) -> tuple[int, int, str]:
        if not 0 <= number < len(self._rows):
            raise FileError(f"{self.path}: section {number}: the file has {len(self._rows)}")
        return self._rows[number]

    def _check(self, number: int, found: bytes | memoryview) -> None:
        offset, size, digest = self._rows[number]
        if hashlib.sha256(found).hexdigest() != digest:
            raise FileError(
                f"{self.path}: section {number} (bytes {offset} to {offset + size}) is damaged: its checksum differs"
            )


def _rows(rows: Any, end: int, file_bytes: int) -> list[tuple[int, int, str]]:
    if not isinstance(rows, list):
        raise ValueError("no list of sections")
    found = []
    for row in rows:
        offset, size, digest = natural(row["offset"]), natural(row["bytes"]), text(row["sha256"])
        if offset % _LINE or offset < end or offset + size > file_bytes:
            raise ValueError(f"a section at {offset} of {size} bytes")
        found.append((offset, size, digest))
        end = offset + size
    return found


def natural(value: Any) -> int:
    """A number from 0 on. Raises ValueError for anything else."""
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a whole number from 0 on, found {value!r}")
    return value


def text(value: Any) -> str:
    """A string. Raises ValueError for anything else."""
    if type(value) is not str:
        raise ValueError(f"expected text, found {value!r}")
    return value


def read(path: str | os.PathLike[str]) -> Contents:
    """The contents of a file. Raises FileError for what is none, and OSError where it cannot be read."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if size else memoryview(b"")
    return parsed(os.fsdecode(path), data)


def parsed(name: str, data: memoryview) -> Contents:
    """The contents of a file's bytes, which stay as they are, at a multiple of 64. Raises FileError."""
    size, head = len(data), bytes(data[:_HEAD_BYTES])
    if head[: len(MAGIC)] != MAGIC:
        raise FileError(f"{name}: not a file of a compiled program: it begins with {head[:8]!r}")
    if size < _HEAD_BYTES:
        raise FileError(f"{name}: cut: {size} bytes are less than a header")
    _, version, zero, document_bytes, file_bytes = _FIELDS.unpack_from(head)
    if version != VERSION:
        newer = "newer than" if version > VERSION else "not"
        raise FileError(f"{name}: format {version} is {newer} the one that is read here ({VERSION})")
    if file_bytes != size:
        raise FileError(f"{name}: cut or grown: written with {file_bytes} bytes, found {size}")
    if zero or document_bytes > min(size, _MOST_DOCUMENT_BYTES):
        raise FileError(f"{name}: damaged header")
    body = bytes(data[_HEAD_BYTES : _HEAD_BYTES + document_bytes])
    if len(body) != document_bytes or hashlib.sha256(head[: _FIELDS.size] + body).digest() != head[_FIELDS.size :]:
        raise FileError(f"{name}: damaged: the document's checksum differs")
    try:
        document = json.loads(body)
        if not isinstance(document, dict):
            raise ValueError(f"a document that is {type(document).__name__}")
        return Contents(name, document, data, _HEAD_BYTES + document_bytes)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileError(f"{name}: its document is not one of a program: {error}") from error
