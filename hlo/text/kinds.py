"""Attribute kinds: how the text's form of an attribute becomes the canonical value that an op holds, and back.

One `Form` for each kind of `hlo.attributes.KINDS`. `read` takes the parsed attribute, `write` gives it back; `bare` and
`plain` are the
short form of the pretty syntax (`[0, 1]` for `array<i64: 0, 1>`), parsed at the cursor and printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo.attributes import (
    ENUMS,
    UNIT,
    Enumerated,
    ReplicaGroupMesh,
    Struct,
    SymbolPath,
    TypedArray,
    TypedFloat,
    TypedInteger,
    Unit,
)
from hlo.module import DenseArray
from hlo.registry import Attribute
from hlo.text.attribute_text import attribute_text, quoted, symbol_text
from hlo.text.dimension_numbers import WrongForm, read_mesh, read_struct, show, write_mesh, write_struct
from hlo.text.values import ValueParser
from hlo.types import ELEMENT_TYPES, TensorType, Type

__all__ = ["FORMS", "Form", "from_text"]


@dataclass(frozen=True)
class Form:
    """How one attribute kind stands in the text."""

    read: Callable[[Any, Attribute], Any]
    write: Callable[[Any, Attribute], Any]
    bare: Callable[[ValueParser, Attribute], Any] | None = None
    plain: Callable[[Any], str] | None = None


def from_text(attribute: Attribute, value: Any, parser: ValueParser, at: int) -> Any:
    """The canonical value of an attribute from its parsed form. Raises ParseError at the position when the form is wrong."""
    try:
        return FORMS[attribute.kind].read(value, attribute)
    except WrongForm as e:
        raise parser.lexer.error(f"attribute {attribute.name!r}: {e}", at) from None


# ---------------------------------------------------------------- reading


def _one(kind: Any, expected: str, take: Callable[[Any], Any] = lambda v: v, of: str = "") -> Callable[[Any, Attribute], Any]:
    """What `take` makes of a value of a class; of a number of the type `of` where that is named."""

    def read(value: Any, attribute: Attribute) -> Any:
        if not isinstance(value, kind) or (of and getattr(value, "type", of) != of):
            raise WrongForm(f"expected {expected}, found {show(value)}")
        return take(value)

    return read


def _number(kind: type, of: str, word: str) -> Callable[[Any, Attribute], Any]:
    return _one(kind, f"{word} of type {of}", lambda v: v.value, of)


def _numbers(element: str) -> Callable[[Any, Attribute], tuple[Any, ...]]:
    def read(value: Any, attribute: Attribute) -> tuple[Any, ...]:
        if isinstance(value, TypedArray) and value.element == element:
            return value.values
        # The older form of the same attribute, a one-dimensional constant.
        if (
            isinstance(value, DenseArray)
            and value.type.rank == 1
            and str(value.type.element) == element
            and value.array.size < 4096
        ):
            return tuple(value.array.tolist())
        raise WrongForm(f"expected array<{element}: …>, found {show(value)}")

    return read


def _symbol_bare(parser: ValueParser, attribute: Attribute) -> str:
    path = [parser.lexer.symbol()]
    while parser.lexer.accept("::"):
        path.append(parser.lexer.symbol())
    return "::".join(path)


def _symbol_plain(value: str) -> str:
    return "::".join(map(symbol_text, value.split("::"))) if value else symbol_text(value)


def words_of(attribute: Attribute) -> tuple[str, ...]:
    """The words that an enum attribute may be."""
    return ENUMS[attribute.words]


def _word(value: Any, attribute: Attribute) -> str:
    name = attribute.words
    if not isinstance(value, Enumerated) or value.set != name or value.word not in words_of(attribute):
        raise WrongForm(f"expected #stablehlo<{name} …> with one of {', '.join(words_of(attribute))}, found {show(value)}")
    return value.word


def _word_bare(parser: ValueParser, attribute: Attribute) -> str:
    lx = parser.lexer
    word = lx.token
    if lx.kind != "word" or word not in words_of(attribute):
        raise lx.expected(f"one of {', '.join(words_of(attribute))}")
    lx.advance()
    return word


def _words(value: Any, attribute: Attribute) -> tuple[str, ...]:
    if not isinstance(value, tuple):
        raise WrongForm(f"expected a list, found {show(value)}")
    return tuple(_word(v, attribute) for v in value)


def _list_of(item: Callable[[ValueParser, Attribute], Any]) -> Callable[[ValueParser, Attribute], tuple[Any, ...]]:
    """A parser of `[a, b, …]`."""

    def bare(parser: ValueParser, attribute: Attribute) -> tuple[Any, ...]:
        lx = parser.lexer
        lx.expect("[")
        values: list[Any] = []
        if not lx.accept("]"):
            values.append(item(parser, attribute))
            while lx.accept(","):
                values.append(item(parser, attribute))
            lx.expect("]")
        return tuple(values)

    return bare


def _integer_bare(parser: ValueParser, attribute: Attribute) -> int:
    return parser.lexer.integer(64)


def _bool_bare(parser: ValueParser, attribute: Attribute) -> bool:
    lx = parser.lexer
    if not (lx.at_word("true") or lx.at_word("false")):
        raise lx.expected("true or false")
    word = lx.token
    lx.advance()
    return word == "true"


def _plain_list(values: tuple[Any, ...]) -> str:
    return "[" + ", ".join(_plain_item(v) for v in values) + "]"


def _plain_item(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _grid(value: Any) -> tuple[tuple[int, ...], ...]:
    """A two-dimensional constant of integers as rows."""
    if not isinstance(value, DenseArray) or not str(value.type.element) == "i64":
        raise WrongForm(f"expected dense<…> of i64, found {show(value)}")
    if value.type.rank != 2:
        raise WrongForm(f"expected a constant of rank 2, found {value.type}")
    if value.type.size_elems > MAX_ROWS:
        raise WrongForm(f"expected at most {MAX_ROWS} numbers, found {value.type}")
    return tuple(tuple(row) for row in value.array.tolist())


MAX_ROWS = 1 << 22


def grid_constant(rows: tuple[tuple[int, ...], ...], width: int = 2) -> DenseArray:
    """The constant of these rows."""
    array = np.array(rows, np.int64).reshape(len(rows), len(rows[0]) if rows else width)
    return DenseArray(TensorType(tuple(array.shape), ELEMENT_TYPES["i64"]), array)


def _pairs(value: Any, attribute: Attribute) -> tuple[tuple[int, ...], ...]:
    if isinstance(value, DenseArray) and value.type.size_elems == 0:
        return ()
    return _grid(value)


def _groups(value: Any, attribute: Attribute) -> Any:
    if isinstance(value, Struct) and value.name.endswith("replica_group_mesh_axes"):
        return read_mesh(value)
    if isinstance(value, DenseArray) and value.type.size_elems == 0 and value.type.rank == 2:
        return ()
    return _grid(value)


def _groups_write(value: Any, attribute: Attribute) -> Any:
    return write_mesh(value) if isinstance(value, ReplicaGroupMesh) else grid_constant(value, 0)


def _aliases(value: Any, attribute: Attribute) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise WrongForm(f"expected a list, found {show(value)}")
    return tuple(read_struct["alias"](v) for v in value)


def _symbols(value: Any, attribute: Attribute) -> tuple[str, ...]:
    if not isinstance(value, tuple) or not all(isinstance(v, SymbolPath) for v in value):
        raise WrongForm(f"expected a list of symbols, found {show(value)}")
    return tuple("::".join(v.path) for v in value)


def _struct_form(kind: str) -> Form:
    read, write = read_struct[kind], write_struct[kind]
    return Form(
        lambda v, a: read(v), lambda v, a: write(v), lambda p, a: _struct_bare(p, a, read), lambda v: _struct_plain(write(v))
    )


def _struct_bare(parser: ValueParser, attribute: Attribute, read: Callable[[Any], Any]) -> Any:
    """`<a = 1, …>` without the name, as the pretty form of dot_general's algorithm has it."""
    lx = parser.lexer
    at = lx.start
    value = parser.field_value() if lx.kind == "<" else parser.attribute()
    try:
        return read(value)
    except WrongForm as e:
        raise lx.error(f"attribute {attribute.name!r}: {e}", at) from None


def _struct_plain(value: Any) -> str:
    text = attribute_text(value)
    return text[text.index("<") :]


def _same(value: Any, attribute: Attribute) -> Any:
    return value


def _enum_write(value: str, attribute: Attribute) -> Enumerated:
    return Enumerated(attribute.words, value, attribute.domain.partition(".")[0] if "." in attribute.domain else "stablehlo")


FORMS: dict[str, Form] = {
    "i64": Form(_number(TypedInteger, "i64", "an integer"), lambda v, a: TypedInteger(v, "i64"), _integer_bare, str),
    "i32": Form(_number(TypedInteger, "i32", "an integer"), lambda v, a: TypedInteger(v, "i32"), _integer_bare, str),
    "f32": Form(_number(TypedFloat, "f32", "a number"), lambda v, a: TypedFloat(v, "f32")),
    "bool": Form(_one(bool, "true or false"), _same, _bool_bare, _plain_item),
    "unit": Form(_one(Unit, "no value", lambda v: True), lambda v, a: UNIT),
    "i64s": Form(_numbers("i64"), lambda v, a: TypedArray("i64", v), _list_of(_integer_bare), _plain_list),
    "bools": Form(_numbers("i1"), lambda v, a: TypedArray("i1", v), _list_of(_bool_bare), _plain_list),
    "string": Form(_one(str, "a string"), _same, lambda p, a: p.lexer.string(), quoted),
    "symbol": Form(
        _one(SymbolPath, "a symbol such as @f", lambda v: "::".join(v.path)),
        lambda v, a: SymbolPath(tuple(v.split("::"))),
        _symbol_bare,
        _symbol_plain,
    ),
    "dense": Form(_one(DenseArray, "dense<…>"), _same, lambda p, a: p.attribute(), attribute_text),
    "type": Form(_one(Type, "a type"), _same, lambda p, a: p.type(), str),
    "enum": Form(_word, _enum_write, _word_bare, str),
    "enums": Form(_words, lambda v, a: tuple(_enum_write(w, a) for w in v), _list_of(_word_bare), _plain_list),
    "pairs": Form(_pairs, lambda v, a: grid_constant(v), _list_of(_list_of(_integer_bare)), lambda v: str([list(r) for r in v])),
    "groups": Form(_groups, _groups_write),
    "aliases": Form(_aliases, lambda v, a: tuple(write_struct["alias"](x) for x in v)),
    "symbols": Form(_symbols, lambda v, a: tuple(SymbolPath(tuple(x.split("::"))) for x in v)),
    "dictionary": Form(_one(dict, "a dictionary"), _same),
    **{k: _struct_form(k) for k in read_struct if k != "alias"},
    "any": Form(_same, _same, lambda p, a: p.attribute(), attribute_text),
}
"""kind -> its form."""
