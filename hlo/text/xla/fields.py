"""How HLO's attributes are written: a `Field` for each with its reader and writer, and a `Row` for each opcode (`table`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo.module import Op
from hlo.text.xla.groups import mesh_rows
from hlo.types import TensorType

__all__ = [
    "BadValue",
    "Field",
    "Row",
    "Texts",
    "boolean",
    "flag",
    "integer",
    "integers",
    "ints",
    "one",
    "only",
    "plain_bool",
    "plain_list",
    "plain_rows",
    "rows_of",
    "string",
    "words",
]


class BadValue(Exception):
    """An attribute's text is not what its reader expects."""


Texts = Mapping[str, str]


@dataclass(frozen=True)
class Field:
    """HLO's attribute `hlo` is the op's attribute `name`."""

    hlo: str
    name: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    default: Any = None


@dataclass(frozen=True)
class Row:
    """One opcode. `regions` are the attributes that name computations which become the op's regions, in order."""

    opcode: str
    op: str
    fields: tuple[Field, ...] = ()
    regions: tuple[str, ...] = ()
    read: Callable[[Texts, list[TensorType]], dict[str, Any]] | None = None
    write: Callable[[Op], dict[str, str]] | None = None
    consumes: tuple[str, ...] = ()
    prints: bool = True


_INTS = re.compile(r"\s*\{([^{}]*)\}\s*\Z")


def integer(text: str) -> int:
    """One integer of at most 18 digits."""
    if not re.fullmatch(r"-?\d{1,18}", text.strip(), re.ASCII):
        raise BadValue(f"expected an integer, found {text[:40]!r}")
    return int(text)


def integers(text: str) -> tuple[int, ...]:
    """`{0,1}`."""
    m = _INTS.match(text)
    if m is None:
        raise BadValue(f"expected a list such as {{0,1}}, found {text[:40]!r}")
    return tuple(integer(p) for p in m.group(1).split(",") if p.strip())


def boolean(text: str) -> bool:
    """`true` or `false`."""
    if text not in ("true", "false"):
        raise BadValue(f"expected true or false, found {text[:40]!r}")
    return text == "true"


def plain_list(values: Any) -> str:
    """`{0,1}`."""
    return "{" + ",".join(map(str, values)) + "}"


def plain_bool(value: Any) -> str:
    """`true` or `false`."""
    return "true" if value else "false"


def rows_of(text: str) -> tuple[tuple[int, ...], ...]:
    """`{{0,1},{2,3}}`, `[2,2]<=[4]` and its transposed forms, or axes of a mesh."""
    body = text.strip()
    if body.startswith("["):
        return iota_rows(body)
    if body.startswith("mesh["):
        rows = mesh_rows(body)
        if rows is None:
            raise BadValue(f"expected groups such as mesh['x'=2,'y'=2] {{'x'}}, found {text[:60]!r}")
        return rows
    if not body.startswith("{"):
        raise BadValue(f"expected {{{{…}}}}, found {text[:40]!r}")
    inner = re.findall(r"\{([^{}]*)\}", body)
    rows = tuple(tuple(integer(p) for p in r.split(",") if p.strip()) for r in inner)
    return tuple(r for r in rows if r)


_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?\Z", re.ASCII)


def iota_rows(text: str) -> tuple[tuple[int, ...], ...]:
    """`[2,2]<=[4]`: the numbers from 0 on, reshaped, transposed and cut into rows."""
    m = _IOTA.match(text)
    if m is None:
        raise BadValue(f"expected groups such as [2,2]<=[4], found {text[:40]!r}")
    to, source, order = (tuple(integer(p) for p in g.split(",")) if g else None for g in m.groups())
    assert to is not None and source is not None
    count = 1
    for n in source:
        count *= n
    size = 1
    for n in to:
        size *= n
    if count != size or count > 1 << 20 or (order is not None and sorted(order) != list(range(len(source)))):
        raise BadValue(f"expected groups of one size, found {text[:40]!r}")
    grid = np.arange(count).reshape(source)
    if order is not None:
        grid = grid.transpose(order)
    return tuple(tuple(int(x) for x in row) for row in grid.reshape(to[0], -1))


def plain_rows(rows: Any) -> str:
    """`{{0,1},{2,3}}`."""
    return "{" + ",".join(plain_list(x for x in r if x != -1) for r in rows) + "}"


def string(text: str) -> str:
    """A quoted or a bare word."""
    return text[1:-1].replace('\\"', '"').replace("\\\\", "\\") if text.startswith('"') else text


def words(*allowed: str) -> Callable[[str], str]:
    """A reader of one of these words."""

    def read(text: str) -> str:
        if text.upper() not in allowed:
            raise BadValue(f"expected one of {', '.join(allowed)}, found {text[:40]!r}")
        return text.upper()

    return read


def ints(hlo: str, name: str = "", default: Any = None) -> Field:
    """A list of integers."""
    return Field(hlo, name or hlo, integers, plain_list, default)


def one(hlo: str, name: str = "", default: Any = None) -> Field:
    """An integer."""
    return Field(hlo, name or hlo, integer, str, default)


def flag(hlo: str, name: str = "", default: Any = None) -> Field:
    """A boolean."""
    return Field(hlo, name or hlo, boolean, plain_bool, default)


def only(hlo: str, name: str) -> Field:
    """One integer in braces: `dimensions={1}`."""

    def read(text: str) -> int:
        values = integers(text)
        if len(values) != 1:
            raise BadValue(f"expected one integer, found {text[:40]!r}")
        return values[0]

    return Field(hlo, name, read, lambda v: f"{{{v}}}")
