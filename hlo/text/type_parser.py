"""Types from text.

Nesting is bounded (`MAX_DEPTH`) and so is the size that aliases can expand to (`MAX_NODES`), so that no text, however small,
costs more than its length times a constant.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hlo.attributes import (
    Foreign,
    Struct,
    TypedInteger,
)
from hlo.text.attribute_text import attribute_text
from hlo.text.bytecode import vhlo_problem
from hlo.text.lexer import Lexer
from hlo.types import (
    ELEMENT_TYPES,
    BufferType,
    ElementType,
    FunctionType,
    OpaqueType,
    QuantizedType,
    TensorType,
    TokenType,
    TupleType,
    Type,
    default_storage_range,
    named_element,
)

__all__ = ["MAX_DEPTH", "Alias", "TypeParser"]

MAX_DEPTH = 120
MAX_NODES = 200_000

_SIMPLE_TENSOR = re.compile(r"tensor<((?:(?:\d{1,18}|\?)x)*+)([a-zA-Z][\w]*+|complex<f\d\d>)>", re.ASCII)
_DIMENSION = re.compile(r"\s*+(\d++|\?)\s*+x", re.ASCII)
_NAMES = "|".join(n for n in ELEMENT_TYPES if n.isalnum())
SCALAR = re.compile(rf"(?:[su]?i\d{{1,8}}|f80|f128|tf32|none|{_NAMES})\Z", re.ASCII)
_HEX_STRING = '"0x'


@dataclass
class Alias:
    """What `#name = …` or `!name = …` stands for, with the depth and number of nodes that it adds where it is used."""

    value: Any
    depth: int
    nodes: int


@dataclass
class TypeParser(ABC):
    """Parses types at a lexer's cursor; what an encoding is, the parser of attributes knows."""

    lexer: Lexer
    attribute_aliases: dict[str, Alias] = field(default_factory=dict)
    type_aliases: dict[str, Alias] = field(default_factory=dict)
    _depth: int = 0
    _deepest: int = 0
    _nodes: int = 0
    _tensor_cache: dict[str, TensorType] = field(default_factory=dict)

    @abstractmethod
    def attribute(self) -> Any:
        """One attribute value."""

    # ------------------------------------------------------------ bounds

    def _enter(self) -> None:
        self._depth += 1
        self._deepest = max(self._deepest, self._depth)
        if self._depth > MAX_DEPTH:
            raise self.lexer.error(f"types or attributes nested more than {MAX_DEPTH} deep")

    def measured(self, parse: Callable[[], Any]) -> Alias:
        """What `parse` returns, with its depth and size, for use as an alias."""
        self._deepest, self._nodes = self._depth, 0
        value = parse()
        return Alias(value, self._deepest - self._depth, self._nodes)

    def _use(self, alias: Alias, at: int) -> Any:
        self._nodes += alias.nodes
        self._deepest = max(self._deepest, self._depth + alias.depth)
        if self._depth + alias.depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise self.lexer.error("aliases that expand to too large a value", at)
        return alias.value

    # ------------------------------------------------------------ types

    def type(self) -> Type:
        """One type that is no function type, or a function type in parentheses."""
        lx = self.lexer
        if lx.kind == "word" and lx.text.startswith("tensor", lx.start):
            m = _SIMPLE_TENSOR.match(lx.text, lx.start)
            if m is not None:
                t = self._tensor_cache.get(m.group())
                if t is None:
                    t = self._simple_tensor(m)
                if t is not None:
                    lx.seek(m.end())
                    return t
        return self._other_type()

    def _simple_tensor(self, m: re.Match[str]) -> TensorType | None:
        element = named_element(m.group(2))
        if element is None:
            return None
        shape = tuple(None if d == "?" else int(d) for d in m.group(1).split("x")[:-1])
        t = self._tensor_cache[m.group()] = TensorType(shape, element)
        return t

    def _other_type(self) -> Type:
        lx = self.lexer
        self._enter()
        self._nodes += 1
        try:
            if lx.kind == "bang":
                found: Type = self._dialect_type()
                return found
            if lx.kind == "(":
                return self.function_type()
            if lx.kind != "word":
                raise lx.expected("a type")
            word = lx.token
            if word == "tensor":
                return self._ranked(word)
            if word == "memref":
                return self._ranked(word)
            if word == "tuple":
                lx.advance()
                lx.expect("<")
                elements = self.type_list(">")
                return TupleType(elements)
            if word in ("vector", "complex"):
                begin = lx.start
                lx.advance()
                if lx.kind != "<":
                    raise lx.expected("'<'")
                end = lx.balanced()
                lx.seek(end)
                return OpaqueType(lx.text[begin:end])
            if SCALAR.match(word):
                lx.advance()
                signed = named_element(word)
                return OpaqueType(signed.name if signed is not None else word)
            raise lx.expected("a type")
        finally:
            self._depth -= 1

    def type_list(self, closing: str) -> tuple[Type, ...]:
        """Types separated by commas up to the closing mark, which is skipped."""
        lx = self.lexer
        types: list[Type] = []
        if not lx.accept(closing):
            types.append(self.type())
            while lx.accept(","):
                types.append(self.type())
            lx.expect(closing)
        return tuple(types)

    def function_type(self) -> FunctionType:
        """`(a, b) -> c` or `(a, b) -> (c, d)`."""
        lx = self.lexer
        self._enter()
        try:
            lx.expect("(")
            inputs = self.type_list(")")
            lx.expect("->")
            return FunctionType(inputs, self.result_types())
        finally:
            self._depth -= 1

    def result_types(self) -> tuple[Type, ...]:
        """`c`, `(c, d)` or `()` after an arrow."""
        lx = self.lexer
        if lx.accept("("):
            return self.type_list(")")
        return (self.type(),)

    def _ranked(self, word: str) -> Type:
        """A tensor or memref with any element type, bounds and encoding, read from the raw text since `2x3xf32` is no run of
        tokens."""
        lx = self.lexer
        begin = lx.start
        lx.advance()
        if lx.kind != "<":
            raise lx.expected("'<'")
        position = lx.skip_space(lx.end)
        if lx.text.startswith("*", position):
            return self._unranked(position)
        shape: list[int | None] = []
        while m := _DIMENSION.match(lx.text, position):
            digits = m.group(1)
            if digits == "?":
                shape.append(None)
            elif len(digits) > 18 or int(digits) >= 1 << 63:
                raise lx.error("a dimension that does not fit into 64 bits", position)
            else:
                shape.append(int(digits))
            position = m.end()
        lx.seek(position)
        element = self.element_type(word)
        if word == "memref":
            if lx.kind == ">":
                lx.advance()
                return BufferType(tuple(shape), element)
            while lx.kind not in (">", "end"):
                lx.seek(lx.balanced()) if lx.kind in "<([{" else lx.advance()
            lx.expect(">")
            return OpaqueType(lx.text[begin : lx.start].rstrip())
        bounds: tuple[int | None, ...] | None = None
        encoding: str | None = None
        if lx.accept(","):
            at = lx.start
            value = self.attribute()
            if isinstance(value, Struct) and value.name == "stablehlo.bounds":
                bounds = self._bounds(value.get("bounds"), len(shape), at)
            elif isinstance(value, Foreign):
                encoding = value.text
            else:
                encoding = attribute_text(value)
        lx.expect(">")
        return TensorType(tuple(shape), element, bounds, encoding)

    def _unranked(self, star: int) -> Type:
        """`tensor<*xf32>`: read, so that the verifier can name it; CHLO's ops take it, StableHLO has ranked tensors only."""
        lx = self.lexer
        after = lx.skip_space(star + 1)
        if not lx.text.startswith("x", after):
            raise lx.error("expected 'x'", after)
        lx.seek(after + 1)
        element = self.element_type("tensor")
        lx.expect(">")
        return OpaqueType(f"tensor<*x{element}>")

    def _bounds(self, values: object, rank: int, at: int) -> tuple[int | None, ...]:
        lx = self.lexer
        if not isinstance(values, tuple):
            raise lx.error("expected a list of bounds", at)
        bounds = tuple(None if v == "?" else v.value if isinstance(v, TypedInteger) else v for v in values)
        if any(b is not None and (not isinstance(b, int) or b < 0) for b in bounds):
            raise lx.error("expected bounds of 0 or more", at)
        return bounds

    def element_type(self, word: str = "tensor") -> ElementType | QuantizedType:
        """An element type at the cursor."""
        lx = self.lexer
        if lx.kind == "bang":
            t = self.type()
            if isinstance(t, QuantizedType):
                return t
            named = named_element(t.text) if isinstance(t, OpaqueType) else None
            if named is not None:
                return named
            raise lx.error(f"expected an element type of a {word}, found {t}")
        if lx.kind != "word":
            raise lx.expected("an element type")
        name, at = lx.token, lx.start
        lx.advance()
        if name == "complex":
            lx.expect("<")
            name = f"complex<{lx.take('word', 'f32 or f64')}>"
            lx.expect(">")
        found = named_element(name)
        if found is None:
            raise lx.error(f"unknown element type {name!r}", at)
        return found

    def _dialect_type(self) -> Any:
        """`!stablehlo.token`, `!quant.uniform<…>`, a type alias, or another dialect's type kept as text."""
        lx = self.lexer
        name, at = lx.token, lx.start
        if "." not in name:
            alias = self.type_aliases.get(name)
            if alias is None:
                raise lx.error(f"undefined type alias {name}", at)
            lx.advance()
            return self._use(alias, at)
        reader = _DIALECT_TYPES.get(name)
        if reader is not None:
            lx.advance()
            return reader(self, at)
        if name == "!stablehlo.future":
            lx.advance()
            lx.expect("<")
            return OpaqueType(f"{name}<{', '.join(map(str, self.type_list('>')))}>")
        if name.startswith("!vhlo."):
            raise lx.error(vhlo_problem(name) or "", at)
        if name.startswith(("!stablehlo.", "!chlo.")):
            raise lx.error(f"unknown type {name}", at)
        lx.advance()
        if lx.kind == "<" and not lx.text[at : lx.start].endswith((" ", "\n", "\t")):
            end = lx.balanced()
            lx.seek(end)
            return OpaqueType(lx.text[at:end])
        return OpaqueType(name)

    def _quantized(self, at: int) -> QuantizedType | OpaqueType:
        """`<i8<-128:127>:f32:1, {0.1:-30, 0.5}>` after `!quant.uniform`."""
        lx = self.lexer
        if lx.kind != "<":
            raise lx.expected("'<'")
        lx.balanced()
        lx.advance()
        word_at, word = lx.start, lx.take("word", "a storage type such as i8")
        storage = ELEMENT_TYPES.get("ui" + word[1:] if word.startswith("u") and not word.startswith("ui") else word)
        if storage is None or not (storage.is_integer or storage.is_float):
            raise lx.error(f"unknown storage type {word!r}", word_at)
        least, greatest = default_storage_range(storage)
        low, high = least, greatest
        if lx.accept("<"):
            low = lx.integer()
            lx.expect(":")
            high = lx.integer()
            lx.expect(">")
        if storage.is_integer and not least <= low < high <= greatest:
            raise lx.error(f"expected a storage range within [{least}, {greatest}], found [{low}, {high}]", word_at)
        lx.expect(":")
        at_expressed = lx.start
        expressed = ELEMENT_TYPES.get(lx.take("word", "an expressed type such as f32"))
        if expressed is None or not expressed.is_float:
            raise lx.error("expected a floating-point expressed type", at_expressed)
        axis: int | None = None
        blocks: tuple[tuple[int, int], ...] | None = None
        if lx.accept(":"):
            if lx.kind == "{":
                blocks = self._block_sizes()
            else:
                axis = lx.integer()
        lx.expect(",")
        pairs: list[tuple[float, int]] = []
        grid: tuple[int, ...] | None = None
        if blocks is not None:
            grid = self._scale_grid(pairs)
        elif axis is None:
            pairs.append(self._scale())
        else:
            lx.expect("{")
            pairs.append(self._scale())
            while lx.accept(","):
                pairs.append(self._scale())
            lx.expect("}")
        if lx.kind != ">":
            raise lx.expected("'>'")
        lx.advance()
        scales, zeros = tuple(s for s, _ in pairs), tuple(z for _, z in pairs)
        return QuantizedType(storage, expressed, scales, zeros, low, high, axis, blocks or (), grid)

    def _block_sizes(self) -> tuple[tuple[int, int], ...]:
        """`{0:2, 1:4}`: a dimension and the size of its blocks, each dimension once."""
        lx = self.lexer
        lx.expect("{")
        found: dict[int, int] = {}
        for _ in lx.listed("}"):
            at, dimension = lx.start, lx.integer()
            lx.expect(":")
            size_at, size = lx.start, lx.integer()
            if dimension < 0 or dimension in found:
                raise lx.error(f"expected dimensions of 0 or more, each once, found {dimension}", at)
            if size <= 0:
                raise lx.error(f"expected a block of 1 or more, found {size}", size_at)
            found[dimension] = size
        return tuple(found.items())

    def _scale_grid(self, pairs: list[tuple[float, int]]) -> tuple[int, ...]:
        """`{{2.0:10, 3.0}, {4.0, 5.0}}`: adds the pairs in row-major order; returns how many there are in each dimension."""
        lx = self.lexer
        if lx.kind != "{":
            raise lx.expected("'{'")
        shape: list[int] = []  # of the first list at each depth
        counts: list[int] = []  # of the open lists
        while True:
            if lx.accept("{"):
                if len(counts) >= MAX_DEPTH:
                    raise lx.error(f"scales nested more than {MAX_DEPTH} deep")
                counts.append(0)
                continue
            at = lx.start
            if not counts[-1] and lx.kind == "}":
                raise lx.expected("a scale")
            if shape and len(counts) != len(shape):
                raise lx.error(f"expected scales nested {len(shape)} deep", at)
            shape = shape or [0] * len(counts)
            pairs.append(self._scale())
            counts[-1] += 1
            while lx.kind == "}" and counts:
                at, depth, n = lx.start, len(counts) - 1, counts.pop()
                if shape[depth] and shape[depth] != n:
                    raise lx.error(f"expected {shape[depth]} entries, found {n}", at)
                shape[depth] = n
                lx.advance()
                if not counts:
                    return tuple(shape)
                counts[-1] += 1
            lx.expect(",")

    def _scale(self) -> tuple[float, int]:
        scale = self.number()
        zero = self.lexer.integer() if self.lexer.accept(":") else 0
        return scale, zero

    def number(self) -> float:
        """A decimal number with an optional minus sign."""
        lx = self.lexer
        negative = lx.accept("-")
        if lx.kind not in ("float", "int"):
            raise lx.expected("a number")
        text = lx.token
        if len(text) > 4000:
            raise lx.error("a number of more than 4000 digits")
        lx.advance()
        value = float(int(text, 16)) if text.startswith("0x") else float(text)
        return -value if negative else value


def _token_type(parser: TypeParser, at: int) -> Type:
    return TokenType()


_DIALECT_TYPES: dict[str, Callable[[TypeParser, int], Any]] = {
    "!stablehlo.token": _token_type,
    "!mhlo.token": _token_type,
    "!quant.uniform": TypeParser._quantized,
}
