"""Types and attributes from text.

Nesting is bounded (`MAX_DEPTH`) and so is the size that aliases can expand to (`MAX_NODES`), so that no text, however
small, costs
more than its length times a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hlo.attributes import (
    UNIT,
    ConvDimensions,
    Enumerated,
    Foreign,
    Struct,
    SymbolPath,
    TypedArray,
    TypedFloat,
    TypedInteger,
    Word,
)
from hlo.module import DenseArray
from hlo.text import literals
from hlo.text.bytecode import vhlo_problem
from hlo.text.resources import Resources
from hlo.text.type_parser import MAX_DEPTH, SCALAR, Alias, TypeParser
from hlo.types import (
    ELEMENT_TYPES,
    OpaqueType,
    TensorType,
    named_element,
)

__all__ = ["MAX_DEPTH", "Alias", "ValueParser"]

_HEX_STRING = '"0x'


@dataclass
class ValueParser(TypeParser):
    """Parses types and attributes at a lexer's cursor."""

    _scalar_cache: dict[tuple[str, TensorType], DenseArray] = field(default_factory=dict)
    _resources: Resources | None = None

    # ------------------------------------------------------------ attributes

    def attribute(self) -> Any:
        """One attribute value in its canonical form (`hlo.attributes`)."""
        lx = self.lexer
        self._enter()
        self._nodes += 1
        try:
            reader = _ATTRIBUTES.get(lx.kind)
            if reader is None:
                raise lx.expected("an attribute")
            return reader(self)
        finally:
            self._depth -= 1

    def _string(self) -> Any:
        text = self.lexer.string()
        if self.lexer.accept(":"):
            self.type()
        return text

    def _symbol(self) -> SymbolPath:
        path = [self.lexer.symbol()]
        while self.lexer.accept("::"):
            path.append(self.lexer.symbol())
        return SymbolPath(tuple(path))

    def _number(self) -> Any:
        """An integer or a floating-point number with its optional type."""
        lx = self.lexer
        at = lx.start
        negative = lx.accept("-")
        if lx.kind == "float":
            text = lx.token
            lx.advance()
            value = -float(text) if negative else float(text)
            kind = self._scalar_type("f64")
            if kind not in ELEMENT_TYPES or not ELEMENT_TYPES[kind].is_float:
                raise lx.error(f"expected a floating-point type, found {kind}", at)
            return TypedFloat(value, kind)
        begin = lx.start
        integer = lx.integer()
        is_hex = lx.text.startswith("0x", begin)
        kind = self._scalar_type("i64")
        element = ELEMENT_TYPES.get(kind)
        if element is not None and element.is_float:
            if not is_hex or negative:
                raise lx.error("expected a floating-point number, found an integer", at)
            return TypedFloat(literals.float_of_bits(integer, element, lambda m: lx.error(m, at)), kind, integer)
        if element is None or not (element.is_integer or element.is_boolean or kind == "index"):
            raise lx.error(f"expected an integer type, found {kind}", at)
        value_ = -integer if negative else integer
        if not -(1 << (element.bits - 1)) <= value_ < 1 << element.bits:
            raise lx.error(f"{value_} does not fit into {kind}", at)
        if element.is_signed and value_ >= 1 << (element.bits - 1):
            value_ -= 1 << element.bits  # a pattern of bits, as the reference reads it
        return TypedInteger(value_, kind)

    def _scalar_type(self, default: str) -> str:
        lx = self.lexer
        if not lx.accept(":"):
            return default
        at = lx.start
        t = self.type()
        if not isinstance(t, OpaqueType) or not SCALAR.match(t.text):
            raise lx.error(f"expected a scalar type, found {t}", at)
        return t.text

    def _list(self) -> tuple[Any, ...]:
        lx = self.lexer
        lx.expect("[")
        values: list[Any] = []
        if not lx.accept("]"):
            values.append(self.attribute())
            while lx.accept(","):
                values.append(self.attribute())
            lx.expect("]")
        return tuple(values)

    def dictionary(self) -> dict[str, Any]:
        """`{a = 1, "b.c", d = [..]}`; a name alone is a unit attribute."""
        lx = self.lexer
        lx.expect("{")
        values: dict[str, Any] = {}
        if lx.accept("}"):
            return values
        while True:
            at = lx.start
            name = lx.string() if lx.kind == "string" else lx.take("word", "an attribute's name")
            if name in values:
                raise lx.error(f"attribute {name!r} is there twice", at)
            values[name] = self.attribute() if lx.accept("=") else UNIT
            if not lx.accept(","):
                break
        lx.expect("}")
        return values

    def _word(self) -> Any:
        lx = self.lexer
        reader = _WORDS.get(lx.token)
        if reader is not None:
            return reader(self)
        return self.type()

    def _true(self) -> bool:
        self.lexer.advance()
        return True

    def _false(self) -> bool:
        self.lexer.advance()
        return False

    def _unit(self) -> Any:
        self.lexer.advance()
        return UNIT

    def _array(self) -> Any:
        """`array<i64: 1, 2>`."""
        lx = self.lexer
        lx.advance()
        lx.expect("<")
        at = lx.start
        kind = lx.take("word", "an element type")
        element = named_element(kind)
        if element is None or not (element.is_integer or element.is_boolean or element.is_float):
            raise lx.error(f"unknown array element type {kind!r}", at)
        kind = element.name
        values: list[int | float | bool] = []
        if lx.kind == ":":
            end = lx.text.find(">", lx.end)
            count = lx.text.count(",", lx.end, end) + 1
            if end - lx.end >= literals.BULK_CHARS and not element.is_float:
                bulk = literals.bulk_list(f"[{lx.text[lx.end:end]}]", (count,), element, b"[]", True)
                if bulk is not None:
                    lx.seek(end + 1)
                    return TypedArray(kind, tuple(bulk.tolist()))
            lx.advance()
            while True:
                if element.is_boolean and lx.kind == "word":
                    if lx.token not in ("true", "false"):
                        raise lx.expected("true or false")
                    values.append(lx.token == "true")
                    lx.advance()
                elif element.is_float:
                    values.append(self.number())
                else:
                    n, place = 0, lx.start
                    n = lx.integer()
                    if not -(1 << (element.bits - 1)) <= n < 1 << element.bits:
                        raise lx.error(f"{n} does not fit into {kind}", place)
                    if element.is_signed and n >= 1 << (element.bits - 1):
                        n -= 1 << element.bits  # a pattern of bits, as the reference reads it
                    values.append(bool(n) if element.is_boolean else n)
                if not lx.accept(","):
                    break
        lx.expect(">")
        return TypedArray(kind, tuple(values))

    def _raw(self) -> Foreign:
        """A builtin attribute kept as text: `affine_map<…>`, `sparse<…>`, …"""
        lx = self.lexer
        begin = lx.start
        lx.advance()
        if lx.kind not in ("<", "(", "["):
            raise lx.expected("'<'")
        end = lx.balanced()
        lx.seek(end)
        while lx.kind == "<":
            end = lx.balanced()
            lx.seek(end)
        return Foreign(lx.text[begin:end])

    def dense(self) -> DenseArray:
        """`dense<…> : tensor<…>`. A hexadecimal blob is sliced out of the text, never tokenised."""
        lx = self.lexer
        begin = lx.start
        lx.advance()
        if lx.kind != "<":
            raise lx.expected("'<'")
        body = lx.skip_space(lx.end)
        if lx.text.startswith(_HEX_STRING, body):
            close = lx.text.find('"', body + 3)
            if close < 0:
                raise lx.error("a string without its closing quote", body)
            after = lx.skip_space(close + 1)
            if not lx.text.startswith(">", after):
                raise lx.error("expected '>'", after)
            lx.seek(after + 1)
            t = self._dense_type()
            return literals.from_hex(lx.text, body + 3, close, t, lambda m: lx.error(m, body))
        lx.advance()
        at = lx.start
        if lx.kind == ">":
            end = lx.start
        elif lx.kind in ("string", "word"):
            end = lx.skip_space(lx.end)
        else:
            end = lx.text.find(">", at)
        if end < 0 or not lx.text.startswith(">", end):
            raise lx.error("expected '>' at the end of a constant", at if end < 0 else end)
        lx.seek(end + 1)
        t = self._dense_type()
        text = lx.text[at:end]
        key = (text, t)
        found = self._scalar_cache.get(key) if len(text) < 40 else None
        if found is None:
            found = literals.from_list(text, t, lambda m, offset: lx.error(m, at + offset))
            if len(text) < 40:
                self._scalar_cache[key] = found
        _ = begin
        return found

    def resource(self) -> DenseArray:
        """`dense_resource<name> : tensor<…>`, whose elements stand in the section at the end of the text."""
        lx = self.lexer
        lx.advance()
        lx.expect("<")
        at = lx.start
        name = lx.string() if lx.kind == "string" else lx.take("word", "a resource's name")
        lx.expect(">")
        t = self._dense_type()
        if self._resources is None:
            self._resources = Resources(lx)
        return self._resources.constant(name, at, t)

    def _dense_type(self) -> TensorType:
        lx = self.lexer
        lx.expect(":")
        at = lx.start
        t = self.type()
        if not isinstance(t, TensorType):
            raise lx.error(f"expected a tensor type, found {t}", at)
        if not t.is_static:
            raise lx.error(f"a constant needs a static shape, found {t}", at)
        if len(t.shape) > 60 or math.prod(n for n in t.shape if n) >= 1 << 56:
            raise lx.error(f"a constant of an absurd shape: {t}"[:200], at)
        return t

    def _hash(self) -> Any:
        """`#alias`, `#stablehlo<…>`, `#stablehlo.dot<…>`, or another dialect's attribute kept as text."""
        lx = self.lexer
        name, at = lx.token[1:], lx.start
        alias = self.attribute_aliases.get(name)
        if alias is not None:
            lx.advance()
            return self._use(alias, at)
        dialect, _, rest = name.partition(".")
        lx.advance()
        if lx.kind != "<":
            if "." in name:
                return Foreign("#" + name)
            if name.startswith("loc"):
                return Foreign("#" + name)
            raise lx.error(f"undefined attribute alias #{name}", at)
        if dialect == "vhlo":
            raise lx.error(vhlo_problem("#" + name) or "", at)
        if dialect in ("stablehlo", "chlo", "mhlo"):
            return self._stablehlo(dialect, rest, at)
        end = lx.balanced()
        lx.seek(end)
        return Foreign(lx.text[at:end])

    def _stablehlo(self, dialect: str, rest: str, at: int) -> Any:
        lx = self.lexer
        if not rest:
            lx.expect("<")
            name = lx.take("word", "an attribute's name")
            if lx.kind == "word":
                word = lx.token
                lx.advance()
                lx.expect(">")
                return Enumerated(name, word, dialect)
            rest = name
            if lx.kind != "<":
                raise lx.expected("'<'")
            value = self._stablehlo(dialect, rest, at)
            lx.expect(">")
            return value
        reader = _STRUCTS.get(rest)
        if reader is not None:
            return reader(self, dialect, at)
        lx.expect("<")
        if lx.kind == "word" and rest.endswith("_mode"):
            word = lx.take("word", "a word")
            lx.expect(">")
            return Enumerated(rest, word, dialect)
        value = Struct(f"{dialect}.{rest}", self.fields(">"))
        problem = _STRUCT_PROBLEMS.get(rest, _no_problem)(value)
        if problem:
            raise lx.error(problem, at)
        return value

    def _bounds_attribute(self, dialect: str, at: int) -> Struct:
        """`<3, ?>`, or the older `<bounds = [3, ?]>`."""
        lx = self.lexer
        lx.expect("<")
        closing = ">"
        if lx.accept_word("bounds"):
            lx.expect("=")
            lx.expect("[")
            closing = "]"
        values: list[Any] = []
        for _ in lx.listed(closing):
            values.append("?" if lx.accept("?") else lx.integer())
        if closing == "]":
            lx.expect(">")
        return Struct("stablehlo.bounds", (("bounds", tuple(values)),))

    def _conv_attribute(self, dialect: str, at: int) -> Any:
        """`<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>`, or `<raw input_batch_dimension = 0, …>`."""
        lx = self.lexer
        lx.expect("<")
        if lx.accept_word("raw"):
            return Struct("stablehlo.conv", self.fields(">"))
        value = self.conv_dimensions()
        lx.expect(">")
        return value

    def conv_dimensions(self) -> ConvDimensions:
        """`[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`. Every letter once, spatial dimensions from 0 on."""
        lx = self.lexer
        at = lx.start
        lists: list[dict[str, int]] = []
        for which, (letters, name) in enumerate((("bf", "input"), ("io", "kernel"), ("bf", "output"))):
            if which == 1:
                lx.expect_word("x")
            elif which == 2:
                lx.expect("->")
            lx.expect("[")
            slots: dict[str, int] = {}
            for _ in lx.listed("]"):
                here = lx.start
                key = "?" if lx.kind == "?" else lx.token
                if key in slots and key != "?":
                    raise lx.error(f"dimension {key!r} is there twice", here)
                if (lx.kind == "word" and key not in letters) or lx.kind not in ("word", "int"):
                    raise lx.error(f"unexpected {key!r} in the {name} dimensions", here)
                slots[str(int(key)) if lx.kind == "int" and len(key) < 10 and "x" not in key else key] = len(slots)
                lx.advance()
            wanted = [*letters, *(str(i) for i in range(len(slots) - 2))]
            missing = [k for k in wanted if k not in slots]
            if missing or len(slots) < 2:
                raise lx.error(f"expected the dimensions {', '.join(wanted)} of the {name}, found {', '.join(slots)}", at)
            lists.append(slots)
        i, k, o = lists
        spatial = [tuple(s[str(n)] for n in range(len(s) - 2)) for s in lists]
        return ConvDimensions(i["b"], i["f"], spatial[0], k["i"], k["o"], spatial[1], o["b"], o["f"], spatial[2])

    def fields(self, closing: str) -> tuple[tuple[str, Any], ...]:
        """`name = value, …` up to the closing mark, which is skipped."""
        lx = self.lexer
        out: dict[str, Any] = {}
        for _ in lx.listed(closing):
            at = lx.start
            name = lx.take("word", "a field's name")
            if name in out:
                raise lx.error(f"field {name!r} is there twice", at)
            lx.expect("=")
            out[name] = self.field_value()
        return tuple(out.items())

    def field_value(self) -> Any:
        """A field's value: like an attribute, but integers stand without a type, words are kept, and `<…>` holds fields."""
        lx = self.lexer
        self._enter()
        try:
            if lx.kind == "[":
                lx.advance()
                values: list[Any] = []
                for _ in lx.listed("]"):
                    values.append(self.field_value())
                return tuple(values)
            if lx.kind == "<":
                lx.advance()
                return Struct("", self.fields(">"))
            if lx.kind == "int" or (lx.kind == "-" and lx.text[lx.end : lx.end + 1].isdigit()):
                negative = lx.accept("-")
                if lx.kind == "float":
                    return -self.number() if negative else self.number()
                n = lx.integer()
                return -n if negative else n
            if lx.kind == "float":
                return self.number()
            if lx.kind == "word" and lx.token not in ("true", "false", "dense", "array", "tensor"):
                word = Word(lx.token)
                lx.advance()
                return word
            return self.attribute()
        finally:
            self._depth -= 1

    # ------------------------------------------------------------ locations

    def location_text(self) -> str:
        """`loc(…)` at the cursor, kept as its text."""
        lx = self.lexer
        begin = lx.start
        lx.expect_word("loc")
        if lx.kind != "(":
            raise lx.expected("'('")
        end = lx.balanced()
        lx.seek(end)
        return lx.text[begin:end]

    def _location_attribute(self) -> Foreign:
        return Foreign(self.location_text())


_ATTRIBUTES: dict[str, Callable[[ValueParser], Any]] = {
    "string": ValueParser._string,
    "symbol": ValueParser._symbol,
    "int": ValueParser._number,
    "float": ValueParser._number,
    "-": ValueParser._number,
    "[": ValueParser._list,
    "{": ValueParser.dictionary,
    "hash": ValueParser._hash,
    "bang": ValueParser.type,
    "(": ValueParser.type,
    "word": ValueParser._word,
}

_WORDS: dict[str, Callable[[ValueParser], Any]] = {
    "true": ValueParser._true,
    "false": ValueParser._false,
    "unit": ValueParser._unit,
    "array": ValueParser._array,
    "dense": ValueParser.dense,
    "dense_resource": ValueParser.resource,
    "loc": ValueParser._location_attribute,
    **dict.fromkeys(("affine_map", "affine_set", "sparse", "strided", "distinct", "opaque"), ValueParser._raw),
}


def _no_problem(value: Struct) -> str | None:
    return None


def _accuracy_problem(value: Struct) -> str | None:
    """Tolerances are not negative, and are there in mode TOLERANCE only."""
    tolerances = [value.get(n, 0) for n in ("atol", "rtol", "ulps")]
    if not all(isinstance(t, int | float) for t in tolerances):
        return "expected numbers in atol, rtol and ulps"
    if any(t < 0 for t in tolerances):
        return "expected tolerances of 0 or more"
    if getattr(value.get("mode"), "word", "DEFAULT") != "TOLERANCE" and any(tolerances):
        return "expected no tolerances but in mode TOLERANCE"
    return None


_STRUCT_PROBLEMS: dict[str, Callable[[Struct], str | None]] = {"result_accuracy": _accuracy_problem}

_STRUCTS: dict[str, Callable[[ValueParser, str, int], Any]] = {
    "bounds": ValueParser._bounds_attribute,
    "type_extensions": ValueParser._bounds_attribute,
    "conv": ValueParser._conv_attribute,
}
