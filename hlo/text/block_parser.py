"""Blocks of StableHLO (MLIR) text: their ops, regions and values.

Regions may nest as deep as they like: what holds a region is parsed by a generator that yields the parser of its region, and one
loop (`run`) drives the stack of generators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlo.attributes import TypedArray
from hlo.module import Block, Op, Source, Value
from hlo.registry import OpDefinition, definitions, lookup, similar
from hlo.text.bytecode import vhlo_problem
from hlo.text.formats import format_of
from hlo.text.kinds import from_text
from hlo.text.lexer import Lexer
from hlo.text.op_parts import OpParts, Steps
from hlo.text.region_formats import REGION_FORMATS
from hlo.text.values import ValueParser
from hlo.types import Type

__all__ = ["BlockParser", "ValueScope", "run"]

_SEGMENT_SIZES = ("operandSegmentSizes", "operand_segment_sizes", "resultSegmentSizes", "result_segment_sizes")


def run(first: Steps) -> Any:
    """The result of a generator whose nested generators are kept on an explicit stack."""
    stack = [first]
    value: Any = None
    while stack:
        try:
            child = stack[-1].send(value)
        except StopIteration as stop:
            stack.pop()
            value = stop.value
        else:
            stack.append(child)
            value = None
    return value


def _unknown(name: str) -> str:
    dialect, dot, _ = name.partition(".")
    if not dot or any(d.name.startswith(f"{dialect}.") for d in definitions()):
        return f"unknown op {name!r}{similar(name)}"
    before = "a module that registers some has to be imported first (--import on the command line)"
    return f"unknown op {name!r}: none of {dialect} is defined; {before}"


class ValueScope:
    """Names of values that can be seen, with what to undo at the end of each region."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.added: list[list[str]] = [[]]

    def push(self) -> None:
        self.added.append([])

    def pop(self) -> None:
        for name in self.added.pop():
            del self.values[name]


class BlockParser:
    """Parses the blocks of one text. `lexer` is the cursor, `values` parses types and attributes at it."""

    def __init__(self, source: Source) -> None:
        self.lexer: Lexer = Lexer(source)
        self.values: ValueParser = ValueParser(self.lexer)
        self.scope = ValueScope()

    # ------------------------------------------------------------ regions and blocks

    def region(self) -> Steps:
        """`{ ops }` with no arguments of its own, or with a label `^bb0(…)`; returns the block."""
        lx = self.lexer
        lx.expect("{")
        self.scope.push()
        block = Block()
        if lx.kind == "caret":
            lx.advance()
            if lx.accept("("):
                block = self.block_arguments(")")
            lx.expect(":")
        yield self._block(block)
        self.scope.pop()
        lx.expect("}")
        return block

    def block_arguments(self, closing: str) -> Block:
        """`%a: t, %b: t` up to the closing mark: a block with these arguments, which are in scope from here on."""
        lx = self.lexer
        names: list[str] = []
        places: list[int] = []
        types: list[Type] = []
        for _ in lx.listed(closing):
            places.append(lx.start)
            names.append(lx.take("value", "an argument such as %arg0")[1:])
            lx.expect(":")
            types.append(self.values.type())
            self._trailing_location()
        block = Block(types, names)
        for place, argument in zip(places, block.arguments, strict=True):
            self.define(argument.name or "", argument, place)
        return block

    def body(self, block: Block) -> Steps:
        """`{ ops }` into a block whose arguments are in scope; the caller pushes and pops the scope."""
        self.lexer.expect("{")
        yield self._block(block)
        self.lexer.expect("}")

    def _block(self, block: Block) -> Steps:
        """The ops up to the closing brace of the region."""
        lx = self.lexer
        ops = block.ops
        while lx.kind != "}":
            if lx.kind == "end":
                raise lx.expected("an op or '}'")
            if lx.kind == "caret":
                raise lx.error("a region has one block; branches between blocks are not part of the language")
            steps = self._op(ops)
            if steps is not None:
                yield steps

    # ------------------------------------------------------------ ops

    def _op(self, ops: list[Op]) -> Steps | None:
        """Parses one op into the list; an op with regions returns the generator that does the rest."""
        lx = self.lexer
        results: list[tuple[str, int, int]] = []
        while lx.kind == "value":
            at = lx.start
            name = lx.token[1:]
            lx.advance()
            count = 1
            if lx.accept(":"):
                count = lx.integer()
                if not 0 < count <= 100_000:
                    raise lx.error(f"expected 1 to 100000 results, found {count}", at)
            results.append((name, count, at))
            if not lx.accept(","):
                break
        if results:
            lx.expect("=")
        at = lx.start
        if lx.kind == "string":
            name = lx.string()
            d = self._definition(name, at)
            return self._generic(ops, results, d, at)
        if lx.kind != "word":
            raise lx.expected("an op")
        name = lx.token
        d = self._definition(name, at)
        lx.advance()
        whole = REGION_FORMATS.get(d.name)
        parts = OpParts(d, at, sum(n for _, n, _ in results))
        if whole is not None:
            return self._with_regions(ops, results, parts, whole.parse(self, parts))
        fmt = format_of(d.name)
        if fmt is None:
            raise lx.error(f'{d.name} has no pretty form; write it as "{d.name}"(…)', at)
        fmt.parse(self, parts)
        self._finish(ops, results, parts, ())
        return None

    def _definition(self, name: str, at: int) -> OpDefinition:
        d = lookup(name)
        if d is None and "." not in name:
            d = lookup(f"func.{name}")
        if d is None:
            raise self.lexer.error(vhlo_problem(name) or _unknown(name[:80]), at)
        return d

    def _with_regions(self, ops: list[Op], results: list[tuple[str, int, int]], parts: OpParts, steps: Steps) -> Steps:
        regions = yield steps
        self._finish(ops, results, parts, regions)

    def _generic(self, ops: list[Op], results: list[tuple[str, int, int]], d: OpDefinition, at: int) -> Steps | None:
        """`"name"(%a, %b) <{…}> ({…}, {…}) {…} : (types) -> types` after the name."""
        lx = self.lexer
        parts = OpParts(d, at, sum(n for _, n, _ in results))
        operands: list[Value] = []
        lx.expect("(")
        for _ in lx.listed(")"):
            operands.append(self.use())
        if lx.kind == "[":
            raise lx.error("successor blocks are not part of the language")
        self.properties(parts)
        if lx.kind == "(":
            return self._generic_regions(ops, results, parts, operands)
        self._generic_rest(ops, results, parts, operands, ())
        return None

    def _generic_regions(
        self, ops: list[Op], results: list[tuple[str, int, int]], parts: OpParts, operands: list[Value]
    ) -> Steps:
        lx = self.lexer
        lx.expect("(")
        regions: list[Block] = []
        while True:
            regions.append((yield self.region()))
            if not lx.accept(","):
                break
        lx.expect(")")
        self._generic_rest(ops, results, parts, operands, regions)

    def _generic_rest(
        self, ops: list[Op], results: list[tuple[str, int, int]], parts: OpParts, operands: list[Value], regions: Sequence[Block]
    ) -> None:
        lx = self.lexer
        if lx.kind == "{":
            self.attribute_dictionary(parts)
        lx.expect(":")
        at = lx.start
        t = self.values.function_type()
        self.check_types(operands, t.inputs, at)
        parts.result_types = t.results
        self._finish(ops, results, parts, regions, operands)

    def properties(self, parts: OpParts) -> None:
        """`<{…}>` where it stands."""
        lx = self.lexer
        if lx.kind == "<":
            lx.advance()
            self.attribute_dictionary(parts)
            lx.expect(">")

    def attribute_dictionary(self, parts: OpParts) -> None:
        """`{…}`: attributes that the definition knows become canonical values, the others are kept."""
        at = self.lexer.start
        known = parts.definition.known_attributes
        for name, value in self.values.dictionary().items():
            attribute = known.get(name)
            if name in _SEGMENT_SIZES:
                self._segment_sizes(parts, name, value, at)
            elif attribute is None:
                parts.extra[name] = value
            elif name in parts.attributes:
                raise self.lexer.error(f"attribute {name!r} is there twice", at)
            else:
                parts.attributes[name] = from_text(attribute, value, self.values, at)

    def _segment_sizes(self, parts: OpParts, name: str, value: Any, at: int) -> None:
        """How many values each variadic operand has, kept where the definition needs it."""
        if not isinstance(value, TypedArray) or not all(type(n) is int for n in value.values):
            raise self.lexer.error(f"expected array<i32: …> for {name}", at)
        if parts.definition.sized_segments:
            parts.attributes["operandSegmentSizes" if name.startswith("operand") else "resultSegmentSizes"] = value.values

    def _finish(
        self,
        ops: list[Op],
        results: list[tuple[str, int, int]],
        parts: OpParts,
        regions: Sequence[Block],
        operands: list[Value] | None = None,
    ) -> None:
        """Builds the op and defines its results."""
        types = parts.result_types
        total = sum(n for _, n, _ in results)
        if results and total != len(types):
            raise self.lexer.error(f"{parts.definition.name} has {len(types)} results, but {total} names", parts.at)
        names: list[str | None] = []
        for name, count, _ in results:
            names.extend([name] if count == 1 else [f"{name}#{i}" for i in range(count)])
        op = Op(
            parts.definition,
            parts.flat() if operands is None else operands,
            parts.attributes,
            regions,
            types,
            self.lexer.location(parts.at),
            parts.extra,
            names,
        )
        ops.append(op)
        i = 0
        for name, count, at in results:
            self.define(name, op.results[i], at)
            if count > 1:
                for k in range(count):
                    self.define(f"{name}#{k}", op.results[i + k], at)
            i += count
        self._trailing_location(op)

    # ------------------------------------------------------------ values

    def use(self) -> Value:
        """The value named at the cursor."""
        lx = self.lexer
        if lx.kind != "value":
            raise lx.expected("a value such as %0")
        name = lx.text[lx.start + 1 : lx.end]
        value = self.scope.values.get(name)
        if value is None:
            base, _, number = name.partition("#")
            if number.isdigit() and int(number[:9]) == 0 and base in self.scope.values:
                value = self.scope.values[base]
            else:
                raise lx.error(f"undefined value %{name[:80]}")
        lx.advance()
        return value

    def value_follows(self) -> bool:
        """Is the token after the current one a value?"""
        lx = self.lexer
        return lx.text.startswith("%", lx.skip_space(lx.end))

    def define(self, name: str, value: Value, at: int) -> None:
        """Makes a name known from here to the end of the region."""
        if name in self.scope.values:
            raise self.lexer.error(f"value %{name[:80]} is defined twice", at)
        if "#" in name and value.name != name:
            raise self.lexer.error(f"%{name[:80]} is no name for a result", at)
        self.scope.values[name] = value
        self.scope.added[-1].append(name)

    def check_types(self, operands: Sequence[Value], types: Sequence[Type], at: int) -> None:
        """Raises ParseError unless the stated types are the operands' own."""
        if len(operands) != len(types):
            raise self.lexer.error(f"expected {len(operands)} operand types, found {len(types)}", at)
        for i, (v, t) in enumerate(zip(operands, types, strict=True)):
            if v.type is not t and v.type != t:
                raise self.lexer.error(f"operand {i} (%{v.name}) has type {v.type}, but the op says {t}", at)

    def integer_list(self) -> tuple[int, ...]:
        """`[0, 1]`."""
        lx = self.lexer
        values: list[int] = []
        lx.expect("[")
        for _ in lx.listed("]"):
            values.append(lx.integer(64))
        return tuple(values)

    def _trailing_location(self, op: Op | None = None) -> None:
        """`loc(…)` after an op or an argument."""
        if self.lexer.at_word("loc"):
            text = self.values.location_text()
            if op is not None:
                op.debug = text
