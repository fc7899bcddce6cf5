"""The program model: values, ops, blocks, functions, modules.

SSA form. An `Op` is one instance of a definition in the registry (`hlo.registry`); `Value`s are its results or a
block's arguments. Ops know their operands; nothing knows its uses (`uses` computes them), so that a program of n ops
is built in O(n) and copied piecewise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from hlo.display import as_text, facts_as_html
from hlo.errors import Location
from hlo.registry import OpDefinition
from hlo.types import FunctionType, TensorType, Type

__all__ = ["Block", "DenseArray", "Function", "Module", "Op", "Value", "as_module", "uses", "walk"]


@dataclass(frozen=True, eq=False)
class DenseArray:
    """A constant's value: its type and a read-only NumPy array (a splat is a broadcast view of one element)."""

    type: TensorType
    array: np.ndarray

    def __post_init__(self) -> None:
        self.array.flags.writeable = False

    @property
    def is_splat(self) -> bool:
        """True when every element is the same stored element (stride 0 everywhere, or one element)."""
        return bool(self.array.size == 1 or (self.array.size > 0 and not any(self.array.strides)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DenseArray) or self.type != other.type:
            return NotImplemented if not isinstance(other, DenseArray) else False
        if self.is_splat and other.is_splat and self.array.size:
            return bool(self.array.flat[0].tobytes() == other.array.flat[0].tobytes())
        return self.array.tobytes() == other.array.tobytes()

    def __hash__(self) -> int:
        return hash((self.type, self.array.flat[0].tobytes() if self.array.size else b""))


class Value:
    """One SSA value: `owner` is the op (result number `index`) or the block (argument number `index`) it comes from."""

    __slots__ = ("index", "name", "owner", "type")

    def __init__(self, type: Type, owner: Op | Block, index: int, name: str | None = None) -> None:
        self.type = type
        self.owner = owner
        self.index = index
        self.name = name

    @property
    def op(self) -> Op | None:
        """The op that produces this value; None for a block argument."""
        return self.owner if isinstance(self.owner, Op) else None

    @property
    def tensor(self) -> TensorType:
        """The type, known to be a tensor type. Raises TypeError otherwise."""
        if not isinstance(self.type, TensorType):
            raise TypeError(f"{self!r} is no tensor")
        return self.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.static_shape

    @property
    def rank(self) -> int:
        return len(self.tensor.shape)

    def __repr__(self) -> str:
        return f"<%{self.name or '?'}: {self.type}>"

    def _repr_html_(self) -> str:
        """Its type, and where it comes from."""
        op = self.op
        source = f"result {self.index} of {op!r}" if op is not None else f"argument {self.index} of a block"
        return facts_as_html(f"%{self.name or '?'}", [("type", self.type), ("comes from", source)])


class Block:
    """A list of ops with arguments; the last op is the terminator (`return`)."""

    __slots__ = ("arguments", "ops")

    def __init__(self, argument_types: Sequence[Type] = (), names: Sequence[str | None] = ()) -> None:
        padded = list(names) + [None] * (len(argument_types) - len(names))
        self.arguments = [Value(t, self, i, n) for i, (t, n) in enumerate(zip(argument_types, padded, strict=True))]
        self.ops: list[Op] = []

    @property
    def terminator(self) -> Op:
        """The last op. Raises IndexError for an empty block."""
        return self.ops[-1]

    @property
    def results(self) -> tuple[Value, ...]:
        """What the block returns: its terminator's operands."""
        return self.terminator.operands

    def __repr__(self) -> str:
        return f"<Block ({', '.join(str(a.type) for a in self.arguments)}): {_op_count(self)}>"

    def _repr_html_(self) -> str:
        """Its arguments, and its ops line by line up to a number."""
        return facts_as_html(repr(self)[1:-1], _lines(self))


class Op:
    """One operation: a definition applied to operands, attributes and regions.

    `attributes` holds plain Python values under the definition's attribute names (ints, strings, tuples, the dataclasses of
    `hlo.attributes`, `DenseArray`); `extra` holds what the definition does not know (frontend and foreign attributes), by name.
    `location` is the op's place in the text, `debug` the text's own `loc(…)`.
    A region is a `Block` (single-block regions are all that the language has).
    """

    __slots__ = ("attributes", "debug", "definition", "extra", "location", "name", "operands", "regions", "results")

    def __init__(
        self,
        definition: OpDefinition,
        operands: Sequence[Value] = (),
        attributes: Mapping[str, Any] | None = None,
        regions: Sequence[Block] = (),
        result_types: Sequence[Type] = (),
        location: Location | None = None,
        extra: Mapping[str, Any] | None = None,
        names: Sequence[str | None] = (),
    ) -> None:
        self.definition = definition
        self.name: str = definition.name
        self.operands = tuple(operands)
        self.attributes: dict[str, Any] = dict(attributes or {})
        self.regions = tuple(regions)
        self.location = location
        self.debug: str | None = None
        self.extra: dict[str, Any] = dict(extra) if extra else {}
        padded = list(names) + [None] * (len(result_types) - len(names))
        self.results = tuple(Value(t, self, i, n) for i, (t, n) in enumerate(zip(result_types, padded, strict=True)))

    @property
    def result(self) -> Value:
        """The only result. Raises ValueError when there is not exactly one."""
        (only,) = self.results
        return only

    def attr(self, name: str) -> Any:
        """The attribute `name`, or its default from the definition. Raises KeyError for a name that the op does not have."""
        if name in self.attributes:
            return self.attributes[name]
        return self.definition.attribute(name).default_for(self)

    def segment(self, name: str) -> tuple[Value, ...]:
        """The operands that belong to the definition's operand `name` (several for a variadic one)."""
        start, stop = self.definition.segment(name, len(self.operands), self)
        return self.operands[start:stop]

    def __repr__(self) -> str:
        outs = ", ".join(f"%{r.name or '?'}" for r in self.results)
        ins = ", ".join(f"%{v.name or '?'}" for v in self.operands)
        return f"<{outs}{' = ' if outs else ''}{self.name}({ins})>"

    def _repr_html_(self) -> str:
        """Its operands and results with their types, attributes, regions, and its place in the text."""
        facts: list[tuple[str, object]] = [(f"operand {k}", f"%{v.name or '?'}: {v.type}") for k, v in enumerate(self.operands)]
        facts += [(name, value) for name, value in self.attributes.items()]
        facts += [(f"region {k}", _block_words(b)) for k, b in enumerate(self.regions)]
        facts += [(f"result {k}", f"%{v.name or '?'}: {v.type}") for k, v in enumerate(self.results)]
        return facts_as_html(self.name, [*facts, ("place", self.location or "made by a builder")])


@dataclass(eq=False)
class Function:
    """A named block. `argument_attributes`/`result_attributes` keep foreign attributes (`jax.result_info`, sharding)."""

    name: str
    body: Block
    visibility: str | None = None
    argument_attributes: tuple[Mapping[str, Any], ...] = ()
    result_attributes: tuple[Mapping[str, Any], ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    location: Location | None = None
    result_types: tuple[Type, ...] = ()
    is_declaration: bool = False

    @property
    def arguments(self) -> list[Value]:
        return self.body.arguments

    @property
    def type(self) -> FunctionType:
        return FunctionType(tuple(a.type for a in self.arguments), self.result_types)

    @property
    def donations(self) -> dict[int, int]:
        """Argument k -> the result whose elements may take its memory, as `tf.aliasing_output` says: one of the same type.

        >>> import hlo
        >>> t = "tensor<2xf32>"
        >>> text = f"func.func @main(%x: {t}, %y: {t} {{tf.aliasing_output = 0 : i32}}) -> {t} {{ return %x : {t} }}"
        >>> hlo.parse(text).function().donations
        {1: 0}
        """
        found: dict[int, int] = {}
        for k, attributes in enumerate(self.argument_attributes):
            written = attributes.get("tf.aliasing_output")
            number = getattr(written, "value", written)
            if not isinstance(number, int) or not 0 <= number < len(self.result_types) or number in found.values():
                continue
            if self.arguments[k].type == self.result_types[number]:
                found[k] = number
        return found

    def __repr__(self) -> str:
        return f"<Function @{self.name}: {self.type}, {_op_count(self.body)}>"

    def _repr_html_(self) -> str:
        """Its arguments, its results, and its ops line by line up to a number."""
        facts = _lines(self.body)
        facts += [(f"result {k}", t) for k, t in enumerate(self.result_types)]
        return facts_as_html(f"@{self.name}", facts)


@dataclass(eq=False)
class Module:
    """A program: functions by name, in the order of the text. `entry` names the one that runs by default.

    `nested` holds modules inside this one. `source` is the text it was parsed from, for carets in later errors. `foreign` keeps
    other dialects' declarations (`sdy.mesh`) and `aliases` the `#loc…` definitions, as text.
    """

    functions: dict[str, Function] = field(default_factory=dict)
    name: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    entry_name: str = "main"
    nested: list[Module] = field(default_factory=list)
    source: Source | None = None
    location: Location | None = None
    foreign: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)

    def __copy__(self) -> Module:
        """A module of the same functions. (Pickles and deep copies go through its text: `hlo.text`.)"""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def function(self, name: str | None = None) -> Function:
        """The function called `name` (default: the entry; a module with a single function has that one as its entry).

        Raises KeyError, naming what there is, when there is none of that name.
        """
        wanted = self.entry_name if name is None else name
        if wanted in self.functions:
            return self.functions[wanted]
        if name is None or name == "main":
            public = [f for f in self.functions.values() if f.visibility != "private"] or list(self.functions.values())
            if len(public) == 1:
                return public[0]
        if not self.functions:
            raise KeyError(f"no function @{wanted}: the program has no function")
        raise KeyError(f"no function @{wanted}; there is {', '.join('@' + n for n in self.functions)}")

    @property
    def entry(self) -> Function:
        return self.function()

    @property
    def root(self) -> Op:
        """The op that produces the entry's (first) result; an empty function's is its terminator."""
        terminator = self.entry.body.terminator
        producer = terminator.operands[0].op if terminator.operands else None
        return producer if producer is not None else terminator

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        functions = "; ".join(f"@{f.name}: {f.type}, {_op_count(f.body)}" for f in self.functions.values())
        return f"<Module {functions or 'without functions'}>"

    def _repr_html_(self) -> str:
        """The text; of a long one the beginning."""
        lines = str(self).splitlines()
        more = f"\n… {len(lines) - 400} more lines, all of them in str(module)" if len(lines) > 400 else ""
        style = "font-family:monospace;white-space:pre;overflow-x:auto"
        return f'<pre style="{style}">{escape(chr(10).join(lines[:400]) + more)}</pre>'


def as_module(given: object) -> Module:
    """The module that was given. Raises TypeError for anything else, such as a program's text."""
    if isinstance(given, Module):
        return given
    hint = ": hlo.parse makes one of a text, hlo.load of a file" if isinstance(given, str | bytes | os.PathLike) else ""
    raise TypeError(f"expected a module, found {type(given).__name__}{hint}")


_SHOWN_OPS = 100


def _block_words(block: Block) -> str:
    arguments = ", ".join(f"%{v.name}: {v.type}" if v.name else str(v.type) for v in block.arguments)
    return f"({arguments}), {_op_count(block)}"


def _lines(block: Block) -> list[tuple[str, object]]:
    """A block's arguments and ops, each with its name for a table."""
    facts: list[tuple[str, object]] = [(f"argument {k}", f"%{v.name or '?'}: {v.type}") for k, v in enumerate(block.arguments)]
    facts += [(f"op {k}", repr(op)) for k, op in enumerate(block.ops[:_SHOWN_OPS])]
    if len(block.ops) > _SHOWN_OPS:
        facts.append(("…", f"{len(block.ops) - _SHOWN_OPS} more ops"))
    return facts


def _op_count(block: Block) -> str:
    n = sum(1 for _ in walk(block))
    return "1 op" if n == 1 else f"{n} ops"


@dataclass(frozen=True)
class Source:
    """A program's text and the name it goes by in messages."""

    text: str
    name: str = "<text>"

    def line(self, number: int) -> str | None:
        """Line `number`, counted from 1, or None."""
        if number < 1:
            return None
        lines = self.text.split("\n", number)
        return lines[number - 1] if number <= len(lines) else None


def walk(block: Block) -> Iterator[Op]:
    """Every op of a block and of the regions inside it, outer before inner, without recursion."""
    stack: list[Iterator[Op]] = [iter(block.ops)]
    while stack:
        op = next(stack[-1], None)
        if op is None:
            stack.pop()
            continue
        yield op
        for region in reversed(op.regions):
            stack.append(iter(region.ops))


def uses(block: Block) -> dict[Value, list[tuple[Op, int]]]:
    """value -> the (op, operand number) pairs that read it, regions included, in program order."""
    table: dict[Value, list[tuple[Op, int]]] = {}
    for op in walk(block):
        for i, v in enumerate(op.operands):
            table.setdefault(v, []).append((op, i))
    return table
