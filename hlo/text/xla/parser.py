"""HLO text (as XLA dumps it) to the same module that StableHLO text becomes.

Computations are read into `Computation` records first. Then the entry and what `call` names become functions, and each
computation that
an op applies becomes a region of that op. HLO's tuples of several results become several results; a tuple value is made
only where
one is used as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import Any

from hlo.attributes import TypedInteger
from hlo.errors import ParseError
from hlo.module import Block, Function, Module, Op, Source, Value
from hlo.registry import OpDefinition, lookup
from hlo.text.block_parser import run
from hlo.text.xla.fields import BadValue, Row, integer
from hlo.text.xla.reader import Computation, Reader
from hlo.text.xla.special import SPECIAL, Build, Instruction, SpecialForms, Tree, Unread
from hlo.text.xla.table import OPCODES
from hlo.text.xla.types import parse_literal
from hlo.types import TensorType, TupleType, Type

__all__ = ["looks_like_hlo", "parse_hlo"]

_ALIAS = re.compile(r"\{\s*(\d{0,9})\s*\}:\s*\((\d{1,9}),\s*\{\s*\}")
"""A result and the parameter that it may be written over, whole: `{1}: (0, {}, may-alias)`; `{}` where the result is no tuple."""

_FIRST_WORD = re.compile(r"(?>(?:\s++|/\*.*?\*/|//[^\n]*+)*)(%?[\w.\-]+)?\s*(.)?", re.DOTALL)


def looks_like_hlo(text: str) -> bool:
    """HLO text begins with HloModule, ENTRY or a computation; StableHLO text with module, func, an alias or a quoted name."""
    m = _FIRST_WORD.match(text)
    if m is None or m.group(1) is None:
        return False
    word, after = m.group(1), m.group(2)
    if word in ("HloModule", "ENTRY"):
        return True
    return word not in ("module", "builtin.module", "func", "func.func", "sdy.mesh") and after in ("{", "(")


def parse_hlo(source: Source) -> Module:
    """The module of an HLO text. Raises ParseError."""
    reader = Reader(source)
    reader.read()
    module: Module = run(_Builder(reader).module())
    module.source = source
    return module


class _Builder(SpecialForms):
    """Computations to functions and regions."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.made = 0
        # Each use of a computation is a copy of it; a small text must not become a huge module.
        self.limit = 100_000 + 20 * sum(len(c.instructions) for c in reader.computations.values())
        self.open: list[str] = []
        self.result = Module()

    def error(self, message: str, at: int) -> ParseError:
        return self.reader.error(message, at)

    def module(self) -> Build:
        """The module: a function for the entry and for each computation that `call` names."""
        computations = self.reader.computations
        entry = next((c for c in computations.values() if c.is_entry), list(computations.values())[-1])
        self.result.name = self.reader.name
        self.result.entry_name = entry.name
        self.result.attributes = {f"xla.{k}": v for k, v in self.reader.attributes.items()}
        yield self._function(entry, "public")
        return self.result

    def _function(self, c: Computation, visibility: str) -> Build:
        if c.name in self.open:
            raise self.error(f"computation {c.name} calls itself", c.at)
        self.open.append(c.name)
        parameters = self._parameters(c)
        block = Block([p.type for p in parameters], [p.name for p in parameters])
        tree = yield self._body(c, block, list(block.arguments))
        results = self._flat(block, tree, c.root.at)
        self._emit(block, "func.return", results, {}, (), (), c.root.at)
        types = tuple(v.type for v in results)
        # Callees come first in the text, the entry last; here the order is that of the calls.
        given = self._given_away(len(parameters)) if c.is_entry else ()
        f = Function(c.name, block, visibility, given, location=self.reader.lexer.location(c.at), result_types=types)
        self.result.functions[c.name] = f
        self.open.pop()

    def _given_away(self, parameters: int) -> tuple[dict[str, TypedInteger], ...]:
        """Attributes of parameters whose memory results may take, as JAX writes them: `input_output_alias` of the module."""
        found: list[dict[str, TypedInteger]] = [{} for _ in range(parameters)]
        for m in _ALIAS.finditer(self.reader.attributes.get("input_output_alias", "")):
            number = int(m.group(2))
            if number < parameters:
                found[number] = {"tf.aliasing_output": TypedInteger(int(m.group(1) or 0), "i32")}
        return tuple(found) if any(found) else ()

    def _parameters(self, c: Computation) -> list[Instruction]:
        found: dict[int, Instruction] = {}
        for i in c.instructions:
            if i.opcode == "parameter":
                text = self.reader.text[slice(*i.body)].strip()
                if not text.isdigit() or len(text) > 9 or int(text) in found:
                    raise self.error(f"expected the number of a parameter, each once, found {text[:40]!r}", i.at)
                found[int(text)] = i
        if sorted(found) != list(range(len(found))):
            raise self.error(f"expected parameters 0 to {len(found) - 1} of {c.name}, found {sorted(found)[:20]}", c.at)
        return [found[k] for k in range(len(found))]

    def _region(self, name: str, at: int, flatten: bool, arguments: Sequence[Tree] | None = None) -> Build:
        """A computation as a block that ends in a return. `arguments` are values from outside; None: arguments of its own."""
        c = self.reader.computations.get(name)
        if c is None:
            raise self.error(f"no computation {name[:80]!r}", at)
        if name in self.open:
            raise self.error(f"computation {name} applies itself", at)
        self.open.append(name)
        parameters = self._parameters(c)
        if arguments is None:
            block = Block([p.type for p in parameters], [p.name for p in parameters])
            arguments = list(block.arguments)
        else:
            block = Block()
            if len(arguments) != len(parameters):
                raise self.error(f"{name} takes {len(parameters)} parameters, not {len(arguments)}", at)
        tree = yield self._body(c, block, list(arguments))
        results = self._flat(block, tree, c.root.at) if flatten else [self._value(block, tree, c.root.at)]
        self._emit(block, "stablehlo.return", results, {}, (), (), c.root.at)
        self.open.pop()
        return block

    def _body(self, c: Computation, block: Block, arguments: list[Tree]) -> Build:
        """Adds the instructions to the block; returns the root's tree."""
        trees: dict[str, Tree] = {}
        for p, argument in zip(self._parameters(c), arguments, strict=True):
            trees[p.name] = argument
        for i in c.instructions:
            if i.opcode == "parameter":
                continue
            self.made += 1
            if self.made > self.limit:
                raise self.error(f"computations that expand to more than {self.limit} instructions", i.at)
            operands: list[Tree] = []
            for name, at in i.operands:
                if name not in trees:
                    raise self.error(f"undefined operand {name[:80]!r}", at)
                operands.append(trees[name])
            trees[i.name] = yield self._instruction(block, i, operands)
        return trees[c.root.name]

    def _instruction(self, block: Block, i: Instruction, operands: list[Tree]) -> Build:
        made = self._form(i.opcode)(self, block, i, operands)
        return (yield made) if isinstance(made, Generator) else made

    def _form(self, opcode: str) -> Callable[..., Any]:
        """What reads an opcode: a form of its own, a half of an asynchronous pair, or the table."""
        special = _SPECIAL.get(opcode)
        if special is not None:
            return special
        if opcode not in OPCODES:
            for suffix, form in _HALVES.items():
                base = opcode.removesuffix(suffix)
                if base != opcode and (base == "async" or base in OPCODES or base in _SPECIAL):
                    return form
        return _Builder._plain

    # ------------------------------------------------------------ values

    def _emit(
        self,
        block: Block,
        name: str,
        operands: Sequence[Value],
        attributes: dict[str, Any],
        regions: Sequence[Block],
        types: Sequence[Type],
        at: int,
        names: Sequence[str | None] = (),
        extra: dict[str, Any] | None = None,
    ) -> Op:
        d = lookup(name)
        if d is None:
            raise self.error(f"no definition of {name}", at)
        op = Op(d, operands, attributes, regions, types, self.reader.lexer.location(at), extra, names)
        block.ops.append(op)
        return op

    def _value(self, block: Block, tree: Tree, at: int) -> Value:
        """The tree as one value: tuples are made as needed."""
        if isinstance(tree, Value):
            return tree
        if isinstance(tree, Unread):
            return self._unread(block, tree.type, at)
        parts = [self._value(block, t, at) for t in tree]
        return self._emit(block, "stablehlo.tuple", parts, {}, (), (TupleType(tuple(p.type for p in parts)),), at).result

    def _flat(self, block: Block, tree: Tree, at: int) -> list[Value]:
        """The values of a tuple at the top; nested tuples stay values."""
        if isinstance(tree, Value) and isinstance(tree.type, TupleType):
            name = "stablehlo.get_tuple_element"
            return [self._emit(block, name, (tree,), {"index": k}, (), (t,), at).result for k, t in enumerate(tree.type.elements)]
        return [self._value(block, t, at) for t in tree] if isinstance(tree, tuple) else [self._value(block, tree, at)]

    def _tensors(self, i: Instruction, operands: list[Tree]) -> list[TensorType]:
        types = [v.type for v in operands if isinstance(v, Value) and isinstance(v.type, TensorType)]
        if not types and operands:
            raise self.error(f"expected tensor operands of {i.opcode}", i.at)
        return types

    def _results(self, i: Instruction, op_name: str, flatten: bool) -> tuple[tuple[Type, ...], list[str | None]]:
        if flatten and isinstance(i.type, TupleType):
            n = len(i.type.elements)
            return i.type.elements, [i.name] if n == 1 else [f"{i.name}#{k}" for k in range(n)]
        return (i.type,), [i.name]

    def _extra(self, i: Instruction, used: Sequence[str]) -> dict[str, Any]:
        return {f"xla.{k}": v for k, v in i.attributes.items() if k not in used}

    # ------------------------------------------------------------ instructions

    def _plain(self, block: Block, i: Instruction, operands: list[Tree]) -> Build:
        row = OPCODES.get(i.opcode)
        if row is None:
            raise self.error(f"unknown opcode {i.opcode[:80]!r}", i.at)
        d = lookup(row.op)
        assert d is not None
        attributes = self._read(row, d, i, operands)
        flatten = row.op not in ("stablehlo.while", "stablehlo.optimization_barrier")
        regions: list[Block] = []
        for key in row.regions:
            name = i.attributes.get(key)
            if name is None:
                raise self.error(f"{i.opcode} needs {key}=", i.at)
            regions.append((yield self._region(name.lstrip("%"), i.at, flatten)))
        called = [
            n.strip().lstrip("%") for n in i.attributes.get("called_computations", "{}").strip("{}").split(",") if n.strip()
        ]
        for name in called:
            c = self.reader.computations.get(name)
            if c is None:
                raise self.error(f"no computation {name[:80]!r}", i.at)
            if name not in self.result.functions:
                yield self._function(c, "private")
        if "called_computations" in d.known_attributes and called:
            attributes["called_computations"] = tuple(called)
        values = [self._value(block, t, i.at) for t in operands]
        types, names = self._results(i, row.op, flatten)
        used = (*(f.hlo for f in row.fields), *row.regions, *row.consumes, "called_computations")
        extra = self._extra(i, used)
        for key in row.regions:
            extra[f"xla.{key}"] = i.attributes[key].lstrip("%")
        op = self._emit(block, row.op, values, attributes, regions, types, i.at, names, extra)
        return op.results if flatten and isinstance(i.type, TupleType) else op.result

    def _read(self, row: Row, d: OpDefinition, i: Instruction, operands: list[Tree]) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        try:
            for f in row.fields:
                if f.hlo in i.attributes:
                    attributes[f.name] = f.read(i.attributes[f.hlo])
                elif f.default is not None:
                    attributes[f.name] = f.default
            if row.read is not None:
                attributes.update(row.read(i.attributes, self._tensors(i, operands)))
        except (BadValue, ValueError) as e:
            raise self.error(f"{i.opcode}: {e}", i.at) from None
        return attributes

    def constant(self, block: Block, i: Instruction, operands: list[Tree]) -> Tree:
        """`constant({…})`."""
        if not isinstance(i.type, TensorType):
            raise self.error(f"expected an array type for a constant, found {i.type}", i.at)
        text = self.reader.text[slice(*i.body)]
        value = parse_literal(text, i.type, lambda m, offset: self.error(m, i.body[0] + offset))
        extra = self._extra(i, ())
        if value is None:
            return self._emit(block, "xla.elided_constant", (), {}, (), (i.type,), i.at, (i.name,), extra).result
        return self._emit(block, "stablehlo.constant", (), {"value": value}, (), (i.type,), i.at, (i.name,), extra).result

    def tuple(self, block: Block, i: Instruction, operands: list[Tree]) -> Tree:
        """`tuple(a, b)`: no op until it is used as a whole."""
        return tuple(operands)

    def get_tuple_element(self, block: Block, i: Instruction, operands: list[Tree]) -> Tree:
        """`get-tuple-element(t), index=0`."""
        index = self._integer(i, "index")
        if len(operands) != 1:
            raise self.error("expected one operand of get-tuple-element", i.at)
        return self._stated(self._element(block, operands[0], index, i), i)

    def _integer(self, i: Instruction, key: str) -> int:
        try:
            return integer(i.attributes[key])
        except (KeyError, BadValue):
            raise self.error(f"{i.opcode} needs an integer {key}=", i.at) from None

    def call(self, block: Block, i: Instruction, operands: list[Tree]) -> Build:
        """`call(…), to_apply=f`: a function of its own, made once."""
        name = i.attributes.get("to_apply", "").lstrip("%")
        c = self.reader.computations.get(name)
        if c is None:
            raise self.error(f"no computation {name[:80]!r}", i.at)
        if name not in self.result.functions:
            yield self._function(c, "private")
        values = [self._value(block, t, i.at) for t in operands]
        types = self.result.functions[name].result_types
        names: list[str | None] = [i.name] if len(types) == 1 else [f"{i.name}#{k}" for k in range(len(types))]
        op = self._emit(block, "func.call", values, {"callee": name}, (), types, i.at, names, self._extra(i, ("to_apply",)))
        return op.results if isinstance(i.type, TupleType) else op.result

    def conditional(self, block: Block, i: Instruction, operands: list[Tree]) -> Build:
        """`conditional(index, a, b), branch_computations={f, g}`: branches use the values that they are given."""
        texts = i.attributes
        if "branch_computations" in texts:
            names = [n.strip().lstrip("%") for n in texts["branch_computations"].strip("{}").split(",")]
        else:
            names = [texts.get(k, "").lstrip("%") for k in ("true_computation", "false_computation")]
        if len(operands) != len(names) + 1 or not isinstance(operands[0], Value):
            raise self.error(f"expected an index and {len(names)} operands of conditional, found {len(operands)}", i.at)
        regions: list[Block] = []
        for name, argument in zip(names, operands[1:], strict=True):
            value = self._value(block, argument, i.at)
            regions.append((yield self._region(name, i.at, False, [value])))
        index = operands[0].type
        by_predicate = isinstance(index, TensorType) and str(index.element) == "i1"
        op = "stablehlo.if" if by_predicate else "stablehlo.case"
        extra = self._extra(i, ("branch_computations", "true_computation", "false_computation"))
        extra["xla.branch_computations"] = ", ".join(names)
        return self._emit(block, op, (operands[0],), {}, regions, (i.type,), i.at, (i.name,), extra).result


_SPECIAL: dict[str, Callable[..., Any]] = {
    **SPECIAL,
    "constant": _Builder.constant,
    "tuple": _Builder.tuple,
    "get-tuple-element": _Builder.get_tuple_element,
    "call": _Builder.call,
    "conditional": _Builder.conditional,
}
_HALVES: dict[str, Callable[..., Any]] = {
    "-start": SpecialForms.start,
    "-update": SpecialForms.update,
    "-done": SpecialForms.done,
}
