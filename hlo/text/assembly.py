"""Assembly formats: the pretty syntax of an op as one line of data, read by the parser and the printer alike.

    "$lhs, $rhs{} :same"          "$operand, dims = $broadcast_dimensions{} :functional"

`$name` is an operand (a variadic one is a comma-separated list) or an attribute in its short form; `{}` is the dictionary of all
attributes that stand nowhere else; `:style` are the types; `[[ … ]]` is there when the first `$name` or `@custom` inside is;
`@custom` is a pair of functions of `hlo.text.formats`; everything else is literal, with the spaces that the printer puts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hlo.module import Op, Value
from hlo.registry import Attribute, OpDefinition
from hlo.text.attribute_text import dictionary_text
from hlo.text.kinds import FORMS
from hlo.text.op_parts import OpParser, OpParts
from hlo.types import ElementType, FunctionType, OpaqueType, TensorType, TupleType, Type

__all__ = ["Custom", "Directive", "Format", "Names", "OpParts", "compile_format", "function_text", "types_text"]


class Names(Protocol):
    """What prints values: `%0`, `%0#1`."""

    def use(self, value: Value) -> str:
        """The text of a use of the value."""
        ...


class Directive(Protocol):
    """One piece of a format."""

    def parse(self, p: OpParser, parts: OpParts) -> None:
        """Reads the piece at the cursor into `parts`."""
        ...

    def print(self, op: Op, names: Names) -> str:
        """The piece's text for an op."""
        ...

    def begins(self, p: OpParser) -> bool:
        """Could the piece start at the cursor?"""
        ...

    def is_present(self, op: Op) -> bool:
        """Does the op have what the piece shows?"""
        ...


@dataclass(frozen=True)
class Custom:
    """A piece with a syntax of its own; `attributes` are the attributes that it shows."""

    parse: Callable[[OpParser, OpParts], None]
    print: Callable[[Op, Names], str]
    attributes: tuple[str, ...] = ()
    is_present: Callable[[Op], bool] = lambda op: True
    begins: Callable[[OpParser], bool] = lambda p: True


@dataclass(frozen=True)
class _Literal:
    """Words and marks; spaces matter to the printer only."""

    text: str
    tokens: tuple[str, ...]

    def parse(self, p: OpParser, parts: OpParts) -> None:
        lx = p.lexer
        for t in self.tokens:
            if t[0].isalpha():
                lx.expect_word(t)
            else:
                lx.expect(t)

    def print(self, op: Op, names: Names) -> str:
        return self.text

    def begins(self, p: OpParser) -> bool:
        return not self.tokens or p.lexer.kind == self.tokens[0] or p.lexer.at_word(self.tokens[0])

    def is_present(self, op: Op) -> bool:
        return True


@dataclass(frozen=True)
class _Operand:
    name: str
    variadic: bool
    optional: bool

    def parse(self, p: OpParser, parts: OpParts) -> None:
        lx = p.lexer
        values = parts.operands.setdefault(self.name, [])
        if not self.variadic and not (self.optional and lx.kind != "value"):
            values.append(p.use())
        elif lx.kind == "value":
            values.append(p.use())
            while self.variadic and lx.kind == "," and p.value_follows():
                lx.advance()
                values.append(p.use())

    def print(self, op: Op, names: Names) -> str:
        return ", ".join(names.use(v) for v in op.segment(self.name))

    def begins(self, p: OpParser) -> bool:
        return p.lexer.kind == "value"

    def is_present(self, op: Op) -> bool:
        return bool(op.segment(self.name))


@dataclass(frozen=True)
class _Attribute:
    attribute: Attribute

    def parse(self, p: OpParser, parts: OpParts) -> None:
        form = FORMS[self.attribute.kind]
        assert form.bare is not None
        parts.attributes[self.attribute.name] = form.bare(p.values, self.attribute)

    def print(self, op: Op, names: Names) -> str:
        form = FORMS[self.attribute.kind]
        assert form.plain is not None
        return form.plain(op.attr(self.attribute.name))

    def begins(self, p: OpParser) -> bool:
        return True

    def is_present(self, op: Op) -> bool:
        return op.attributes.get(self.attribute.name) is not None


@dataclass(frozen=True)
class _Dictionary:
    shown: frozenset[str]

    def parse(self, p: OpParser, parts: OpParts) -> None:
        if p.lexer.kind == "{":
            p.attribute_dictionary(parts)

    def print(self, op: Op, names: Names) -> str:
        text = remaining_attributes(op, self.shown)
        return f" {text}" if text else ""

    def begins(self, p: OpParser) -> bool:
        return True

    def is_present(self, op: Op) -> bool:
        return True


@dataclass(frozen=True)
class _Optional:
    pieces: tuple[Directive, ...]
    anchor: Directive

    def parse(self, p: OpParser, parts: OpParts) -> None:
        lx = p.lexer
        # The group begins with a literal (", precision = "): it is there when all of that literal is.
        first = self.pieces[0]
        if isinstance(first, _Literal):
            start = lx.start
            for t in first.tokens:
                if lx.kind != t and not lx.at_word(t):
                    lx.seek(start)
                    return
                lx.advance()
            rest: Sequence[Directive] = self.pieces[1:]
            if rest and not rest[0].begins(p):
                lx.seek(start)
                return
        else:
            if not first.begins(p):
                return
            rest = self.pieces
        for piece in rest:
            piece.parse(p, parts)

    def print(self, op: Op, names: Names) -> str:
        if not self.anchor.is_present(op):
            return ""
        return "".join(piece.print(op, names) for piece in self.pieces)

    def begins(self, p: OpParser) -> bool:
        return True

    def is_present(self, op: Op) -> bool:
        return self.anchor.is_present(op)


@dataclass(frozen=True)
class _Types:
    style: str

    def parse(self, p: OpParser, parts: OpParts) -> None:
        lx = p.lexer
        lx.expect(":")
        at = lx.start
        if lx.kind == "(":
            f = p.values.function_type()
            p.check_types(parts.flat(), f.inputs, at)
            parts.result_types = f.results
            return
        listed = [p.values.type()]
        while lx.accept(","):
            listed.append(p.values.type())
        if lx.accept("->") or (self.style == "to" and lx.accept_word("to")):
            p.check_types(parts.flat(), listed, at)
            parts.result_types = p.values.result_types()
            return
        operands = parts.flat()
        stated = STYLES[self.style].expand(listed, operands, parts)
        if stated is None:
            raise lx.error(f"these types do not fit {parts.definition.name} with {len(operands)} operands", at)
        p.check_types(operands, stated[0], at)
        parts.result_types = tuple(stated[1])

    def print(self, op: Op, names: Names) -> str:
        return ": " + types_text(self.style, [v.type for v in op.operands], [r.type for r in op.results])

    def begins(self, p: OpParser) -> bool:
        return p.lexer.kind == ":"

    def is_present(self, op: Op) -> bool:
        return True


Expansion = tuple[Sequence[Type], Sequence[Type]] | None


@dataclass(frozen=True)
class Style:
    """A short way to state types: `expand` gives operand and result types from the list, `shorten` the list where it says all."""

    expand: Callable[[list[Type], list[Value], OpParts], Expansion]
    shorten: Callable[[list[Type], list[Type]], list[Type] | None]


def types_text(style: str, inputs: list[Type], outputs: list[Type]) -> str:
    """The types in the style, or as a function type where the style cannot say them."""
    if style == "to":
        return f"{inputs[0]} to {outputs[0]}"
    if style == "chlo":
        return (
            ", ".join(map(str, inputs)) + " -> " + (str(outputs[0]) if len(outputs) == 1 else f"({', '.join(map(str, outputs))})")
        )
    short = STYLES[style].shorten(inputs, outputs)
    return function_text(inputs, outputs) if short is None else ", ".join(map(str, short))


def function_text(inputs: Sequence[Type], outputs: Sequence[Type]) -> str:
    """`(a, b) -> c`."""
    return str(FunctionType(tuple(inputs), tuple(outputs)))


def _same_expand(listed: list[Type], operands: list[Value], parts: OpParts) -> Expansion:
    if len(listed) != 1:
        return None
    return listed * len(operands), listed * max(1, parts.result_count)


def _same_shorten(inputs: list[Type], outputs: list[Type]) -> list[Type] | None:
    return outputs[:1] if outputs and all(t == outputs[0] for t in (*inputs, *outputs[1:])) else None


def _results_expand(listed: list[Type], operands: list[Value], parts: OpParts) -> Expansion:
    return [v.type for v in operands], listed


def _select_expand(listed: list[Type], operands: list[Value], parts: OpParts) -> Expansion:
    return ([listed[0], listed[1], listed[1]], [listed[1]]) if len(listed) == 2 else None


def _select_shorten(inputs: list[Type], outputs: list[Type]) -> list[Type] | None:
    ok = len(inputs) == 3 and len(outputs) == 1 and inputs[1] == inputs[2] == outputs[0]
    return inputs[:2] if ok else None


def _real_of(t: Type) -> Type | None:
    if isinstance(t, TensorType) and isinstance(t.element, ElementType) and t.element.is_complex:
        return TensorType(t.shape, t.element.real, t.bounds, t.encoding)
    return None


def _complex_expand(listed: list[Type], operands: list[Value], parts: OpParts) -> Expansion:
    part = _real_of(listed[0]) if len(listed) == 1 else None
    return None if part is None else ([part] * len(operands), listed)


def _complex_shorten(inputs: list[Type], outputs: list[Type]) -> list[Type] | None:
    part = _real_of(outputs[0]) if len(outputs) == 1 else None
    return outputs if part is not None and all(t == part for t in inputs) else None


def _tuple_expand(listed: list[Type], operands: list[Value], parts: OpParts) -> Expansion:
    if len(listed) != 1 or not isinstance(listed[0], TupleType):
        return None
    return listed[0].elements, listed


def _tuple_shorten(inputs: list[Type], outputs: list[Type]) -> list[Type] | None:
    ok = len(outputs) == 1 and isinstance(outputs[0], TupleType) and list(outputs[0].elements) == inputs
    return outputs if ok else None


def _each_expand(listed: list[Type], operands: list[Value], parts: OpParts) -> Expansion:
    return listed, listed


def _each_shorten(inputs: list[Type], outputs: list[Type]) -> list[Type] | None:
    return inputs if inputs == outputs and inputs else None


def _first_expand(listed: list[Type], operands: list[Value], parts: OpParts) -> Expansion:
    """tensor.dim: the type of the first operand; the rest is index."""
    return ([listed[0], *(v.type for v in operands[1:])], [OpaqueType("index")]) if len(listed) == 1 and operands else None


def _inputs_expand(listed: list[Type], operands: list[Value], parts: OpParts) -> Expansion:
    return listed, ()


STYLES: dict[str, Style] = {
    "same": Style(_same_expand, _same_shorten),
    "functional": Style(_same_expand, lambda i, o: None),
    "chlo": Style(_same_expand, lambda i, o: None),
    "results": Style(_results_expand, lambda i, o: o),
    "select": Style(_select_expand, _select_shorten),
    "complex": Style(_complex_expand, _complex_shorten),
    "tuple": Style(_tuple_expand, _tuple_shorten),
    "each": Style(_each_expand, _each_shorten),
    "to": Style(_same_expand, lambda i, o: None),
    "first": Style(_first_expand, lambda i, o: i[:1]),
    "inputs": Style(_inputs_expand, lambda i, o: i),
}


def remaining_attributes(op: Op, shown: frozenset[str]) -> str:
    """The dictionary of the attributes that are not in `shown`, then the foreign ones; "" when there are none."""
    values: dict[str, Any] = {}
    for a in op.definition.attributes:
        value = op.attributes.get(a.name)
        if value is not None and a.name not in shown and not (a.kind == "unit" and value is False):
            values[a.name] = FORMS[a.kind].write(value, a)
    values.update(op.extra)
    return dictionary_text(values) if values else ""


@dataclass(frozen=True)
class Format:
    """A compiled format."""

    pieces: tuple[Directive, ...]

    def parse(self, p: OpParser, parts: OpParts) -> None:
        """Reads an op's body at the cursor."""
        for piece in self.pieces:
            piece.parse(p, parts)

    def print(self, op: Op, names: Names) -> str:
        """The op's body, beginning with a space where one belongs."""
        text = "".join(piece.print(op, names) for piece in self.pieces)
        return text if text[:1] in ("(", "") else " " + text.lstrip()


_PIECE = re.compile(r"(\$\w+)|(\{\})|:(\w+)|(\[\[)|(\]\])|@(\w+)|((?:(?!\$\w|\{\}|:\w|\[\[|\]\]|@\w).)+)")
_TOKEN = re.compile(r"[A-Za-z_]\w*|->|\S")


def _compiled(text: str, d: OpDefinition, customs: Mapping[str, Custom]) -> Format:
    operands = {o.name: o for o in d.operands}
    names = {a.name for a in d.attributes}
    shown = frozenset(n[1:] for n in re.findall(r"\$\w+", text) if n[1:] in names) | frozenset(
        a for c in re.findall(r"@(\w+)", text) for a in customs[c].attributes
    )
    stack: list[list[Directive]] = [[]]
    for m in _PIECE.finditer(text):
        dollar, braces, style, opening, closing, custom, literal = m.groups()
        if dollar:
            name = dollar[1:]
            o = operands.get(name)
            stack[-1].append(_Operand(name, o.variadic, o.optional) if o else _Attribute(d.attribute(name)))
        elif braces:
            stack[-1].append(_Dictionary(shown))
        elif style:
            stack[-1].append(_Types(style))
        elif opening:
            stack.append([])
        elif closing:
            pieces = tuple(stack.pop())
            anchor = next(x for x in pieces if not isinstance(x, _Literal))
            stack[-1].append(_Optional(pieces, anchor))
        elif custom:
            stack[-1].append(customs[custom])
        else:
            stack[-1].append(_Literal(literal, tuple(_TOKEN.findall(literal))))
    return Format(tuple(stack[0]))


_FORMATS: dict[tuple[str, str], Format] = {}


def compile_format(text: str, d: OpDefinition, customs: Mapping[str, Custom]) -> Format:
    """The compiled form of a format for an op (kept); `customs` are its irregular pieces, by name."""
    key = (d.name, text)
    found = _FORMATS.get(key)
    if found is None:
        found = _FORMATS[key] = _compiled(text, d, customs)
    return found
