"""Loops read back from their text (`tiling.files.loops`): a tree of calls, each part checked against the type of its field."""

from __future__ import annotations

import ast
import builtins
import enum
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_origin

import numpy as np

from hlo.errors import TilewrightError
from hlo.module import Block, Op
from hlo.registry import definition
from hlo.text import parse
from hlo.types import ElementType, element_type, named_element
from indexing.expr import Const, Expr, Var, maximum, minimum
from tiling.files.loops import CLASSES, MISSING, SCHEMA, SHARED, LoopsError, Table, defaults_of, hints_of, inner_types, members_of
from tiling.loops import element_ir, ir
from tiling.loops.buffers import Buffer, Scope
from tiling.loops.micro_kernels import MicroKernel
from tiling.loops.names import is_harmless
from tiling.loops.nest import LoopKind
from tiling.planning.model import Plan

__all__ = ["parse_loops", "schedule_of"]

_MOST_CHARACTERS = 1 << 24
_ENUMS: dict[str, type[enum.Enum]] = {"Scope": Scope, "LoopKind": LoopKind}


def parse_loops(text: str, plan: Plan) -> ir.Schedule:
    """The schedule of a text: `tiling.with_schedule` puts it into the plan, `tiling.prove` says what of it is right.

    Raises LoopsError for what is no text of loops, and for one of another program than the plan's.
    """
    return schedule_of(text, Table(plan))


def schedule_of(text: str, table: Table) -> ir.Schedule:
    """The same with the table of the plan's program."""
    plan = table.plan
    head, _, body = text.partition("\n")
    words = head.split(" ")
    if words[0] != SCHEMA or len(words) != 4:
        raise LoopsError(f"line 1: expected {SCHEMA}, a function, a fusion and a program's digest, found {head[:80]!r}")
    if len(text) > _MOST_CHARACTERS:
        raise LoopsError(f"a text of {len(text)} characters: expected at most {_MOST_CHARACTERS}")
    if words[1] != plan.program.name or words[3] != table.digest:
        raise LoopsError(f"line 1: expected @{plan.program.name} of the program {table.digest}, found @{words[1]} of {words[3]}")
    return _Reader(table).schedule(body)


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


class _Reader:
    def __init__(self, table: Table) -> None:
        self.table = table
        self.known: dict[str, Any] = {}

    def schedule(self, body: str) -> ir.Schedule:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)
                tree = ast.parse(body)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            raise LoopsError(f"{f'line {line + 1}: ' if line else ''}no text of loops: {error}") from error
        if not tree.body:
            raise LoopsError("line 2: expected a Schedule, found the end")
        *lines, last = tree.body
        for s in lines:
            if not (isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name)):
                raise self.error(s, "a name = a part")
            name = s.targets[0].id
            made = self.guarded(s.value)
            letter = "O" if isinstance(made, Op) else SHARED.get(type(made), "")
            if not letter or not re.fullmatch(rf"{letter}\d+", name) or name in self.known:
                raise self.error(s, "a new buffer B0, node N0, value R0 or fold O0")
            self.known[name] = made
        found = self.guarded(last.value) if isinstance(last, ast.Expr) else None
        if not isinstance(found, ir.Schedule):
            raise self.error(last, "a Schedule")
        return found

    def guarded(self, node: ast.expr) -> Any:
        try:
            return self.read(node)
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise self.error(node, f"what fits together ({error})") from error

    def error(self, node: ast.AST, expected: str) -> LoopsError:
        line, column = getattr(node, "lineno", 0) + 1, getattr(node, "col_offset", 0) + 1
        return LoopsError(f"line {line}, column {column}: expected {expected}, found {ast.unparse(node)[:80]}")

    def read(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.number(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            a, b = self.number(node.left), self.number(node.right)
            return _OPERATORS[type(node.op)](a, b)
        if isinstance(node, ast.Name):
            if re.fullmatch(r"[BNOR]\d+", node.id):
                if node.id not in self.known:
                    raise self.error(node, "a part of a line before")
                return self.known[node.id]
            return self.variable(node, node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _ENUMS:
            members = _ENUMS[node.value.id].__members__
            if node.attr not in members:
                raise self.error(node, f"one of {', '.join(members)}")
            return members[node.attr]
        if isinstance(node, ast.Tuple):
            return tuple([self.read(x) for x in node.elts])
        if isinstance(node, ast.Set):
            return frozenset(self.read(x) for x in node.elts)
        if isinstance(node, ast.Dict) and None not in node.keys:
            return {self.read(k): self.read(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self.call(node, node.func.id)
        raise self.error(node, "a part of a schedule")

    def variable(self, node: ast.expr, name: str) -> Var:
        if not is_harmless(name):
            raise self.error(node, "a variable's name of letters, digits and _")
        return Var(name)

    def number(self, node: ast.expr) -> Any:
        found = self.read(node)
        if not isinstance(found, Expr) and type(found) not in (int, float):
            raise self.error(node, "a number or an index")
        return found

    def call(self, node: ast.Call, name: str) -> Any:
        given = [self.read(x) for x in node.args]
        named = {k.arg: self.read(k.value) for k in node.keywords if k.arg is not None}
        if len(named) != len(node.keywords):
            raise self.error(node, "fields by their names")
        if name in CLASSES:
            return self.made(node, CLASSES[name], given, named)
        if named:
            raise self.error(node, "no names")
        if name in ("op", "result", "argument"):
            place = name, tuple(given)
            if place not in self.table.by_place:
                raise self.error(node, f"the place of an {name} of the program" if name[0] in "oa" else "the place of a result")
            return self.table.by_place[place]
        if name == "fold" and len(given) == 2 and isinstance(given[0], Op) and type(given[1]) is str:
            return self.fold(node, given[0], given[1])
        if name in ("min", "max") and len(given) > 1 and all(isinstance(x, Expr) or type(x) is int for x in given):
            return minimum(*given) if name == "min" else maximum(*given)
        if name == "Var" and len(given) == 1 and type(given[0]) is str:
            return self.variable(node, given[0])
        if name == "Const" and len(given) == 1 and type(given[0]) is int:
            return Const(given[0])
        if name == "float" and len(given) == 1 and given[0] in ("inf", "-inf", "nan"):
            return float(given[0])
        if name == "set" and not given:
            return frozenset()
        raise self.error(node, "a class of loops")

    def fold(self, node: ast.Call, op: Op, text: str) -> Op:
        """An op with another body, the text of a function of the same types."""
        try:
            read = parse(text, "<body>").entry.body
        except (TilewrightError, LookupError) as error:
            raise self.error(node, f"a fold with a body ({error})") from error
        types = [[v.type for v in b.arguments] for b in (read, *op.regions)]
        returns = [[v.type for v in b.results] for b in (read, *op.regions)]
        if len(types) != 2 or types[0] != types[1] or returns[0] != returns[1]:
            raise self.error(node, "a body of the fold's types")
        body = Block()
        body.arguments, body.ops = read.arguments, [*read.ops[:-1], Op(definition("stablehlo.return"), read.results)]
        return Op(op.definition, op.operands, op.attributes, (body,), [v.type for v in op.results], op.location, op.extra)

    def made(self, node: ast.Call, kind: type, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        if kind is element_ir.Scalar:
            return self.scalar(node, given, named)
        hints, defaults = hints_of(kind), defaults_of(kind)
        fields = list(defaults)
        if len(given) > len(fields) or set(named) - set(fields[len(given) :]):
            raise self.error(node, f"{kind.__name__} of {', '.join(fields)}")
        values = {**dict(zip(fields, given, strict=False)), **named}
        missing = [f for f in fields if f not in values and defaults[f] is MISSING]
        if missing:
            raise self.error(node, f"{kind.__name__} with {', '.join(missing)}")
        made = {f: self.fitted(node, f"{kind.__name__}.{f}", v, hints[f]) for f, v in values.items()}
        # Names go into the source of kernels as they are.
        names = [made["name"]] if kind is Buffer else [made["routine"]] if kind is MicroKernel else []
        if not all(is_harmless(n) and not hasattr(builtins, n) for n in names):
            raise self.error(node, f"{kind.__name__} with a name of letters, digits and _ that is no function of Python's")
        return kind(**made)

    def scalar(self, node: ast.Call, given: Sequence[Any], named: Mapping[str, Any]) -> element_ir.Scalar:
        if len(given) != 2 or named or type(given[1]) is not str:
            raise self.error(node, "Scalar of a number and a type")
        element = self.fitted(node, "Scalar.element", given[1], ElementType)
        value, dtype = given[0], element.dtype
        if type(value) is str:
            data = bytes.fromhex(value.removeprefix("0x"))
            if len(data) != dtype.itemsize:
                raise self.error(node, f"{dtype.itemsize} bytes")
            return element_ir.Scalar(np.frombuffer(data, dtype)[0], element)
        if type(value) not in (bool, int, float):
            raise self.error(node, "a number")
        return element_ir.Scalar(np.asarray([value]).astype(dtype)[0], element)

    def fitted(self, node: ast.Call, where: str, value: Any, hint: Any) -> Any:
        """A value of a field's type: numbers are indices, words element types where the field wants them."""
        members = members_of(hint)
        if hint is Any:
            return value
        if type(value) is int and int not in members and Expr in members:
            return Const(value)
        if type(value) is int and float in members and int not in members:
            return float(value)
        if type(value) is str and ElementType in members and str not in members:
            if named_element(value) is None:
                raise self.error(node, f"{where} that is an element type")
            return element_type(value)
        for m in members:
            origin = get_origin(m)
            if origin is None and isinstance(m, type):
                if type(value) is m or (m not in (int, float) and isinstance(value, m)):
                    return value
            elif origin is not None and isinstance(origin, type) and isinstance(value, origin):
                try:
                    inner = inner_types(m, value)
                except LoopsError:
                    continue
                if isinstance(value, tuple):
                    return tuple([self.fitted(node, where, v, h) for v, h in zip(value, inner, strict=True)])
                if isinstance(value, frozenset):
                    return frozenset(self.fitted(node, where, v, inner[0]) for v in value)
                if isinstance(value, dict):
                    keys = [self.fitted(node, where, k, inner[0]) for k in value]
                    return dict(zip(keys, [self.fitted(node, where, v, inner[1]) for v in value.values()], strict=True))
        raise self.error(node, f"{where} of type {hint if len(members) > 1 else getattr(hint, '__name__', hint)}")
