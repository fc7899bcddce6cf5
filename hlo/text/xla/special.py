"""HLO instructions that become no one op by a table: asynchronous pairs, transfers, exchanges and shapes given as scalars.

An asynchronous pair is its synchronous op at the place of the start: `-start` gives the tuple that HLO says (operands, result,
contexts), `-update` hands it on, `-done` takes the result out of it. What is in between may run at the same time on a device;
the values are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hlo.attributes import ChannelHandle
from hlo.errors import ParseError
from hlo.module import Block, DenseArray, Op, Value
from hlo.text.xla.fields import BadValue, boolean, integer, integers, rows_of, string
from hlo.types import ELEMENT_TYPES, TensorType, TokenType, TupleType, Type

__all__ = ["SPECIAL", "Build", "Instruction", "SpecialForms", "Tree", "Unread"]

Tree = Any  # a Value, an Unread, or a tuple of trees
Build = Generator[Any, Any, Any]


@dataclass
class Instruction:
    """One line: what it is called, its type, opcode, operand names or the text between the parentheses, raw attributes."""

    name: str
    type: Type
    opcode: str
    operands: list[tuple[str, int]]
    body: tuple[int, int]
    attributes: dict[str, str]
    at: int
    is_root: bool


@dataclass(frozen=True)
class Unread:
    """An element of an asynchronous op's tuple that says nothing about its values (a context): a zero where it is asked for."""

    type: Type


RESULT_AT = {"async": 1, "all-gather": 1, "collective-permute": 1, "copy": 0}
"""Where the result stands in the tuple that `<opcode>-start` gives; any other opcode's is that of `async-start`."""


class SpecialForms(ABC):
    """The forms, as methods of the builder that gives them what every instruction needs."""

    @abstractmethod
    def error(self, message: str, at: int) -> ParseError:
        """The error at a position of the text."""

    @abstractmethod
    def _instruction(self, block: Block, i: Instruction, operands: list[Tree]) -> Build:
        """The tree of an instruction of any form."""

    @abstractmethod
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
        """Adds an op to the block."""

    @abstractmethod
    def _value(self, block: Block, tree: Tree, at: int) -> Value:
        """The tree as one value."""

    @abstractmethod
    def _extra(self, i: Instruction, used: Sequence[str]) -> dict[str, Any]:
        """The attributes that nothing reads."""

    # ------------------------------------------------------------ trees

    def _type(self, tree: Tree) -> Type:
        return TupleType(tuple(self._type(t) for t in tree)) if isinstance(tree, tuple) else tree.type

    def _element(self, block: Block, tree: Tree, index: int, i: Instruction) -> Tree:
        """Element `index` of a tuple, whether it was made in sight or came as a value."""
        t = self._type(tree)
        if not isinstance(t, TupleType) or not 0 <= index < len(t.elements):
            raise self.error(f"expected a tuple with an element {index} as the operand of {i.opcode}, found {t}", i.at)
        if isinstance(tree, tuple):
            return tree[index]
        element = t.elements[index]
        name = "stablehlo.get_tuple_element"
        return self._emit(block, name, (tree,), {"index": index}, (), (element,), i.at, (i.name,)).result

    def _stated(self, tree: Tree, i: Instruction) -> Tree:
        """The tree, whose type must be the one that the instruction says."""
        found = self._type(tree)
        if found != i.type:
            raise self.error(f"expected the type {found} of {i.opcode}, found {i.type}", i.at)
        return tree

    def _constant(self, block: Block, values: np.ndarray, i: Instruction, element: str = "i64") -> Value:
        t = TensorType(values.shape, ELEMENT_TYPES[element])
        return self._emit(block, "stablehlo.constant", (), {"value": DenseArray(t, values)}, (), (t,), i.at).result

    def _unread(self, block: Block, t: Type, at: int) -> Value:
        if isinstance(t, TokenType):
            return self._emit(block, "stablehlo.after_all", (), {}, (), (t,), at).result
        if not isinstance(t, TensorType) or not t.is_static or t.size_elems > 1 << 16:
            raise self.error(f"a context of the type {t} cannot be used as a value", at)
        zero = DenseArray(t, np.zeros(t.static_shape, t.dtype))
        return self._emit(block, "stablehlo.constant", (), {"value": zero}, (), (t,), at).result

    # ------------------------------------------------------------ asynchronous pairs

    def start(self, block: Block, i: Instruction, operands: list[Tree]) -> Build:
        """`<opcode>-start(…)`: the synchronous op, and the tuple around its result."""
        opcode = i.opcode.removesuffix("-start")
        sync = replace(i, opcode=opcode)
        if opcode == "async":
            if "calls" not in i.attributes:
                raise self.error("async-start needs calls=", i.at)
            attributes = {k: v for k, v in i.attributes.items() if k != "calls"}
            sync = replace(sync, opcode="call", attributes={"to_apply": i.attributes["calls"], **attributes})
        if opcode == "all-reduce":  # the one whose start has the type of the result itself
            return (yield self._instruction(block, sync, operands))
        at = RESULT_AT.get(opcode, 1)
        is_bare = opcode in RESULT_AT and opcode != "async" and len(operands) == 1
        taken: Tree = operands[0] if is_bare else tuple(operands)
        t, given = i.type, self._type(taken)
        if not isinstance(t, TupleType) or len(t.elements) < 2 or t.elements[1 - at] != given:
            form = "(result, operand, …)" if at == 0 else "(operands, result, …)"
            raise self.error(f"expected {form} with operands of type {given} as the type of {i.opcode}, found {t}", i.at)
        result = yield self._instruction(block, replace(sync, type=t.elements[at]), operands)
        if self._type(result) != t.elements[at]:
            raise self.error(f"expected the result {self._type(result)} in the type of {i.opcode}, found {t}", i.at)
        first = (taken, result) if at == 1 else (result, taken)
        return (*first, *(Unread(x) for x in t.elements[2:]))

    def update(self, block: Block, i: Instruction, operands: list[Tree]) -> Tree:
        """`<opcode>-update(…)`: nothing has changed."""
        return self._stated(self._only(i, operands), i)

    def done(self, block: Block, i: Instruction, operands: list[Tree]) -> Tree:
        """`<opcode>-done(…)`: the result out of the tuple."""
        opcode, tree = i.opcode.removesuffix("-done"), self._only(i, operands)
        if opcode == "all-reduce":
            return self._stated(tree, i)
        if opcode == "send":
            return self._stated(self._element(block, tree, 2, i), i)
        if opcode == "recv":
            return self._stated((self._element(block, tree, 0, i), self._element(block, tree, 2, i)), i)
        return self._stated(self._element(block, tree, RESULT_AT.get(opcode, 1), i), i)

    def _only(self, i: Instruction, operands: list[Tree]) -> Tree:
        if len(operands) != 1:
            raise self.error(f"expected one operand of {i.opcode}, found {len(operands)}", i.at)
        return operands[0]

    # ------------------------------------------------------------ transfers and exchanges

    def _channel(self, i: Instruction, host: int) -> dict[str, Any]:
        try:
            is_host = boolean(i.attributes.get("is_host_transfer", "false"))
            number = integer(i.attributes.get("channel_id", "0"))
        except BadValue as e:
            raise self.error(f"{i.opcode}: {e}", i.at) from None
        return {"channel_handle": ChannelHandle(number, host if is_host else 1), "is_host_transfer": is_host}

    def send(self, block: Block, i: Instruction, operands: list[Tree]) -> Tree:
        """`(data, u32[], token[]) send(data, token), channel_id=1`."""
        t = i.type
        is_triple = isinstance(t, TupleType) and len(t.elements) == 3
        if len(operands) != 2 or not isinstance(t, TupleType) or not is_triple or t.elements[0] != self._type(operands[0]):
            raise self.error(f"expected (data, context, token) from send of data and a token, found {t}", i.at)
        parts = operands[0] if isinstance(operands[0], tuple) else (operands[0],)
        values = [self._value(block, x, i.at) for x in (*parts, operands[1])]
        extra = self._extra(i, ("channel_id", "is_host_transfer"))
        op = self._emit(block, "stablehlo.send", values, self._channel(i, 2), (), (TokenType(),), i.at, (i.name,), extra)
        return (operands[0], Unread(t.elements[1]), op.result)

    def recv(self, block: Block, i: Instruction, operands: list[Tree]) -> Tree:
        """`(data, u32[], token[]) recv(token), channel_id=1`."""
        t = i.type
        if len(operands) != 1 or not isinstance(t, TupleType) or len(t.elements) != 3:
            raise self.error(f"expected (data, context, token) from recv of a token, found {t}", i.at)
        data = t.elements[0]
        types = data.elements if isinstance(data, TupleType) else (data,)
        names = [f"{i.name}#{k}" for k in range(len(types) + 1)]
        extra = self._extra(i, ("channel_id", "is_host_transfer"))
        values = [self._value(block, operands[0], i.at)]
        op = self._emit(
            block, "stablehlo.recv", values, self._channel(i, 3), (), (*types, TokenType()), i.at, names, extra
        )
        head: Tree = op.results[:-1] if isinstance(data, TupleType) else op.results[0]
        return (head, Unread(t.elements[1]), op.results[-1])

    def all_to_all(self, block: Block, i: Instruction, operands: list[Tree]) -> Tree:
        """`all-to-all(x), replica_groups={{0,1}}, dimensions={0}`, or one operand for each process and a tuple of what came."""
        try:
            groups = rows_of(i.attributes.get("replica_groups", "{}"))
            dims = integers(i.attributes["dimensions"]) if "dimensions" in i.attributes else ()
        except BadValue as e:
            raise self.error(f"all-to-all: {e}", i.at) from None
        values = [self._value(block, t, i.at) for t in operands]
        extra = self._extra(i, ("replica_groups", "dimensions", "channel_id"))
        channel = {"channel_handle": self._channel(i, 1)["channel_handle"]} if "channel_id" in i.attributes else {}
        if isinstance(i.type, TupleType) and not dims:
            return self._pieces_to_all(block, i, values, groups, channel, extra)
        if len(dims) != 1 or not groups:
            raise self.error("all-to-all needs one dimension and replica groups", i.at)
        attributes = {**_all_to_all(dims[0], len(groups[0]), groups), **channel}
        return self._emit(block, "stablehlo.all_to_all", values, attributes, (), (i.type,), i.at, (i.name,), extra).result

    def _pieces_to_all(
        self, block: Block, i: Instruction, values: list[Value], groups: Any, channel: dict[str, Any], extra: dict[str, Any]
    ) -> Tree:
        """Operand k goes to process k of the group: rows of one tensor, exchanged along a dimension of their own."""
        n, t = len(values), values[0].type if values else None
        if not isinstance(t, TensorType) or any(v.type != t for v in values) or i.type != TupleType((t,) * n):
            raise self.error("expected operands and results of one tensor type, one for each process of a group", i.at)
        row, rows = TensorType((1, *t.shape), t.element), TensorType((n, *t.shape), t.element)
        parts = [self._emit(block, "stablehlo.reshape", (v,), {}, (), (row,), i.at).result for v in values]
        whole = self._emit(block, "stablehlo.concatenate", parts, {"dimension": 0}, (), (rows,), i.at).result
        name = "stablehlo.all_to_all"
        exchange = {**_all_to_all(0, n, groups), **channel}
        moved = self._emit(block, name, (whole,), exchange, (), (rows,), i.at, (i.name,), extra).result
        found = []
        for k in range(n):
            limits = (k + 1, *t.static_shape)
            spans = {"start_indices": (k, *(0,) * t.rank), "limit_indices": limits, "strides": (1,) * (t.rank + 1)}
            piece = self._emit(block, "stablehlo.slice", (moved,), spans, (), (row,), i.at).result
            found.append(self._emit(block, "stablehlo.reshape", (piece,), {}, (), (t,), i.at, (f"{i.name}#{k}",)).result)
        return tuple(found)

    # ------------------------------------------------------------ random numbers, infeed, shapes as scalars

    def rng(self, block: Block, i: Instruction, operands: list[Tree]) -> Tree:
        """`rng(a, b), distribution=rng_uniform`: the shape is the result's, as a constant."""
        kind = {"rng_uniform": "UNIFORM", "rng_normal": "NORMAL"}.get(i.attributes.get("distribution", ""))
        if kind is None or not isinstance(i.type, TensorType) or len(operands) != 2 or not i.type.is_static:
            raise self.error("rng needs two operands, an array type and distribution=rng_uniform or rng_normal", i.at)
        size = self._constant(block, np.array(i.type.static_shape, np.int64), i)
        values = [*(self._value(block, x, i.at) for x in operands), size]
        extra = self._extra(i, ("distribution",))
        return self._emit(
            block, "stablehlo.rng", values, {"rng_distribution": kind}, (), (i.type,), i.at, (i.name,), extra
        ).result

    def infeed(self, block: Block, i: Instruction, operands: list[Tree]) -> Tree:
        """`((data…), token) infeed(token)`."""
        t = i.type
        if not isinstance(t, TupleType) or len(t.elements) != 2 or not isinstance(t.elements[1], TokenType):
            raise self.error(f"expected ((data), token) from infeed, found {t}", i.at)
        data = t.elements[0]
        types = data.elements if isinstance(data, TupleType) else (data,)
        attributes = {"infeed_config": string(i.attributes["infeed_config"])} if "infeed_config" in i.attributes else {}
        values = [self._value(block, x, i.at) for x in operands]
        names = [f"{i.name}#{k}" for k in range(len(types) + 1)]
        extra = self._extra(i, ("infeed_config",))
        op = self._emit(block, "stablehlo.infeed", values, attributes, (), (*types, t.elements[1]), i.at, names, extra)
        head: Tree = op.results[:-1] if isinstance(data, TupleType) else op.results[0]
        return (head, op.results[-1])

    def dynamic_reshape(self, block: Block, i: Instruction, operands: list[Tree]) -> Tree:
        """`dynamic-reshape(x, n0, n1)`: the sizes are scalars, which become the shape operand."""
        values = [self._value(block, x, i.at) for x in operands]
        sizes = [v.type for v in values[1:]]
        if not isinstance(i.type, TensorType) or len(sizes) != i.type.rank:
            found = f"found {len(values)} operands"
            raise self.error(f"expected an operand and one size for each dimension of {i.type}, {found}", i.at)
        bad = next((t for t in sizes if not isinstance(t, TensorType) or t.shape or t != sizes[0]), None)
        if bad is not None:
            raise self.error(f"expected scalars of one integer type as sizes, found {bad}", i.at)
        if not sizes:
            shape = self._constant(block, np.zeros(0, np.int64), i)
        else:
            element = sizes[0].element  # type: ignore[union-attr]
            one, whole = TensorType((1,), element), TensorType((len(sizes),), element)
            parts = [self._emit(block, "stablehlo.reshape", (v,), {}, (), (one,), i.at).result for v in values[1:]]
            shape = self._emit(block, "stablehlo.concatenate", parts, {"dimension": 0}, (), (whole,), i.at).result
        extra = self._extra(i, ())
        name = "stablehlo.dynamic_reshape"
        return self._emit(block, name, (values[0], shape), {}, (), (i.type,), i.at, (i.name,), extra).result


def _all_to_all(dimension: int, count: int, groups: Any) -> dict[str, Any]:
    return {"split_dimension": dimension, "concat_dimension": dimension, "split_count": count, "replica_groups": groups}


SPECIAL: dict[str, Callable[..., Any]] = {
    "all-to-all": SpecialForms.all_to_all,
    "rng": SpecialForms.rng,
    "send": SpecialForms.send,
    "recv": SpecialForms.recv,
    "infeed": SpecialForms.infeed,
    "dynamic-reshape": SpecialForms.dynamic_reshape,
}
