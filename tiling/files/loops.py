"""The loops of a fusion as text that is complete, and read back: another schedule of the same program, edited or not.

    loops_text(plan, "k0_divide_1")     ->  the text
    parse_loops(text, plan)             ->  an equal schedule of that plan's program

One line names the form, the function, the fusion and the program; then shared parts have a line each (buffers B0, …, nodes
N0, …, values that indices are made of R0, …, folds whose body a pass made O0, …), and the schedule is the last. It is written as
calls of the classes of `tiling.loops.ir`, with defaults left out. Nothing of a text is executed: it is read as a tree of such
calls, each part is checked against the type that its field has, and ops and values are those of the program.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import hashlib
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from hlo.access import Condition
from hlo.errors import TilewrightError
from hlo.module import Block, Function, Module, Op, Value
from hlo.registry import definition
from hlo.types import ElementType
from indexing.expr import Const, Expr, FloorDiv, Interval, Maximum, Minimum, Mod, Product, Var
from tiling.loops import element_ir, ir
from tiling.loops.buffers import Buffer
from tiling.loops.micro_kernels import MicroKernel
from tiling.loops.nest import Segment, Skip
from tiling.planning.model import Plan

__all__ = [
    "CLASSES", "MISSING", "SCHEMA", "SHARED", "LoopsError", "Table", "defaults_of", "hints_of", "inner_types", "loops_text",
    "members_of",
]  # fmt: skip

SCHEMA = "tilewright.loops/1"
_WIDTH = 110
_NODES = (element_ir.Load, element_ir.Apply, element_ir.Choose, element_ir.Test, element_ir.IndexNode, element_ir.Scalar)
SHARED: dict[type, str] = {Buffer: "B", element_ir.Runtime: "R", **dict.fromkeys(_NODES, "N")}
CLASSES: dict[str, type] = {
    c.__name__: c
    for c in (
        ir.Schedule, ir.Phase, ir.Nest, ir.Contract, ir.Turn, ir.Ordering, ir.Scatter, ir.Start, ir.Measure, ir.Selection,
        ir.Sequential, ir.Limit, ir.Transform, ir.MatrixStep, ir.Matrix, ir.Block2D, ir.Flag, ir.Loop, ir.Store, ir.FoldStep,
        Skip, Segment, MicroKernel, Condition, Interval, *SHARED,
    )
}  # fmt: skip
_WORDS = {
    *CLASSES, "Scope", "LoopKind", "Var", "Const", "min", "max", "op", "fold", "result", "argument", "set", "None", "True",
    "False",
}  # fmt: skip


class LoopsError(TilewrightError):
    """A text that is none of loops, or of another program's; the message says where, what is expected and what is found."""


def loops_text(plan: Plan, fusion: str) -> str:
    """The text of the loops of the plan's fusion of that name (those of a loop's body are the region's plan's: `plan.nested()`).

    Raises KeyError, naming what there is, for another name, and LoopsError for a schedule with parts that are not the program's.

    >>> import hlo, tiling
    >>> made = tiling.plan(hlo.parse('''func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    ...   %0 = stablehlo.tanh %x : tensor<4xf32>
    ...   return %0 : tensor<4xf32> }'''), machine=tiling.Machine())
    >>> text = loops_text(made, "k0_tanh_1")
    >>> print(text.splitlines()[-3].strip())
    (Phase((), (Nest((Loop(i0_tanh_1, 0, 3, 4),), stores=(Store(result(0, 0), B0, (i0_tanh_1,), N1),)),)),),
    """
    return Table(plan).text(fusion)


# ---------------------------------------------------------------- the program's parts


class Table:
    """The ops and the values of a plan's program, by number: `op(4)`, in its first region `op(4, 0, 2)`; `result(4, 0)`.

    One serves for all fusions of a plan: the digest is over the whole program's text.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.parts: dict[Op | Value, tuple[str, tuple[int, ...]]] = {}
        for k, v in enumerate(plan.program.arguments):
            self.parts[v] = "argument", (k,)
        self._add(plan.program.ops, ())
        self.by_place: dict[tuple[str, tuple[int, ...]], Op | Value] = {p: x for x, p in self.parts.items()}
        self.shown = {x: f"{kind}({', '.join(map(str, place))})" for x, (kind, place) in self.parts.items()}
        lines = [str(plan.module), plan.program.name]
        for x, (kind, place) in self.parts.items():
            lines.append(f"{kind} {place} {x.name if isinstance(x, Op) else x.type}")
        self.digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def text(self, fusion: str) -> str:
        """`loops_text` of a fusion of the plan."""
        found = {f.name: f.schedule for f in self.plan.fusions}
        if fusion not in found:
            raise KeyError(f"no fusion {fusion!r}; there is {', '.join(found)}")
        return f"{SCHEMA} {self.plan.program.name} {fusion} {self.digest}\n{_Printer(self).text(found[fusion])}"

    def _add(self, ops: Sequence[Op], path: tuple[int, ...]) -> None:
        for k, op in enumerate(ops):
            self.parts[op] = "op", (*path, k)
            for j, v in enumerate(op.results):
                self.parts[v] = "result", (*path, k, j)
            for r, region in enumerate(op.regions):
                for j, v in enumerate(region.arguments):
                    self.parts[v] = "argument", (*path, k, r, j)
                self._add(region.ops, (*path, k, r))


@functools.cache
def hints_of(kind: type) -> dict[str, Any]:
    """Field -> its type, for a class of `CLASSES`."""
    return {k: h for k, h in get_type_hints(kind).items() if k in defaults_of(kind)}


MISSING = object()


@functools.cache
def defaults_of(kind: type) -> dict[str, Any]:
    """Field -> its default, or `MISSING`."""
    if kind is Interval:
        return {"lower": MISSING, "upper": MISSING}
    return {
        f.name: f.default if f.default is not dataclasses.MISSING
        else f.default_factory() if f.default_factory is not dataclasses.MISSING else MISSING
        for f in dataclasses.fields(kind)
    }  # fmt: skip


def members_of(hint: Any) -> tuple[Any, ...]:
    """The types of a union; of another type itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


# ---------------------------------------------------------------- print

_Doc = str | tuple[str, list[tuple[str, "_Doc"]], str]


class _Printer:
    def __init__(self, table: Table) -> None:
        self.table = table
        self.names: dict[object, str] = {}
        self.counts: dict[str, int] = {}
        self.lines: list[str] = []

    def text(self, schedule: ir.Schedule) -> str:
        for b in schedule.buffers:
            self.shared(b)
        last = self.made(schedule)
        return "\n".join([*self.lines, _laid_out("", last, 0), ""])

    def shared(self, x: Any) -> str:
        """The name of a shared part, which gets its line when it is first met, after what it is made of."""
        if x not in self.names:
            stack = [x]
            while stack:  # (an expression of elements may be thousands of nodes deep)
                top = stack[-1]
                waiting = [y for y in _parts(top) if y not in self.names]
                if waiting:
                    stack.extend(reversed(waiting))
                    continue
                stack.pop()
                if top in self.names:
                    continue
                doc = self.made(top)
                letter = SHARED[type(top)]
                number = self.counts[letter] = self.counts.get(letter, -1) + 1
                self.lines.append(_laid_out(f"{letter}{number} = ", doc, 0))
                self.names[top] = f"{letter}{number}"
        return self.names[x]

    def fold(self, x: Op | Value) -> str:
        """The name of an op of the program's that a pass gave another body, which puts the results of parts together."""
        if x not in self.names:
            if not isinstance(x, Op) or len(x.regions) != 1:
                raise LoopsError(f"the loops have {x.name!r}, which is no part of the program")
            whole = [y for y in self.table.parts if isinstance(y, Op) and y.definition is x.definition]
            own = [y for y in whole if y.operands == x.operands and y.attributes == x.attributes]
            if len(own) < 1:
                raise LoopsError(f"the loops have another {x.name!r} than the program's")
            number = self.counts["O"] = self.counts.get("O", -1) + 1
            self.names[x] = f"O{number}"
            self.lines.append(f"O{number} = fold({self.table.shown[own[0]]}, {_quoted(_body_text(x.regions[0]))})")
        return self.names[x]

    def made(self, x: Any) -> _Doc:
        """A call of the class of a part."""
        if isinstance(x, element_ir.Scalar):
            return f'Scalar({_scalar(x)}, "{x.element}")'
        kind: type = type(x)
        items = []
        hints, defaults = hints_of(kind), defaults_of(kind)
        by_name = sum(d is MISSING for d in defaults.values()) > 5
        for k, (name, default) in enumerate(defaults.items()):
            value = getattr(x, name)
            if default is not MISSING and (value is default or (type(value) is type(default) and value == default)):
                continue
            is_named = default is not MISSING or (by_name and k > 2)
            items.append((f"{name}=" if is_named else "", self.shown(value, hints[name])))
        return f"{kind.__name__}(", items, ")"

    def shown(self, x: Any, hint: Any) -> _Doc:
        if isinstance(x, Op | Value):
            return self.table.shown.get(x) or self.fold(x)
        if isinstance(x, Expr):
            return f"Const({x.constant})" if isinstance(x, Const) and int in members_of(hint) else _expression(x)
        if type(x) in SHARED:
            return self.shared(x)
        if isinstance(x, enum.Enum):
            return f"{type(x).__name__}.{x.name}"
        if isinstance(x, ElementType):
            return f'"{x}"'
        if type(x).__name__ in CLASSES:
            return self.made(x)
        if x is None or isinstance(x, bool | int | float):
            return repr(x) if not isinstance(x, float) or np.isfinite(x) else f'float("{x}")'
        if isinstance(x, str):
            return _quoted(x)
        inner = inner_types(hint, x)
        if isinstance(x, tuple):
            docs = [("", self.shown(y, h)) for y, h in zip(x, inner, strict=True)]
            return "(", docs, ",)" if len(docs) == 1 else ")"
        if isinstance(x, frozenset):
            return f"{{{', '.join(map(_quoted, sorted(x)))}}}" if x else "set()"
        if isinstance(x, Mapping):
            return "{", [(f"{_expression(k)}: ", self.shown(v, inner[1])) for k, v in x.items()], "}"
        raise LoopsError(f"the loops have a part of type {type(x).__name__}, of which there is no text")


def _body_text(body: Block) -> str:
    """A fold's body as the text of a function."""
    whole = Block()
    whole.arguments = body.arguments
    whole.ops = [*body.ops[:-1], Op(definition("func.return"), body.results)]
    types = tuple([v.type for v in body.results])
    return str(Module({"body": Function("body", whole, result_types=types)}, entry_name="body"))


def _parts(x: Any) -> Iterator[Any]:
    """The shared parts that a shared part is made of."""
    kind: type = type(x)
    for name in defaults_of(kind):
        value = getattr(x, name)
        for y in value if isinstance(value, tuple) else (value,):
            if type(y) in SHARED:
                yield y


def inner_types(hint: Any, x: Any) -> tuple[Any, ...]:
    """The types of the elements of a tuple, of a set, or of the keys and values of a mapping."""
    wanted = tuple if isinstance(x, tuple) else frozenset if isinstance(x, frozenset) else Mapping
    for member in members_of(hint):
        origin, arguments = get_origin(member), get_args(member)
        if isinstance(origin, type) and issubclass(origin, wanted):
            if origin is tuple:
                if arguments[-1:] == (...,):
                    return arguments[:1] * len(x)
                if len(arguments) == len(x):
                    return arguments
                continue
            return arguments
    raise LoopsError(f"expected {hint}, found {type(x).__name__} of {len(x)}")


def _quoted(text: str) -> str:
    return '"' + "".join(c if c.isalnum() or c in " _.,:;()[]<>+-*/%=!?#@'" else f"\\U{ord(c):08x}" for c in text) + '"'


def _scalar(x: element_ir.Scalar) -> str:
    """A number that reads back bit by bit, else its bytes."""
    value = np.asarray(x.value)
    if value.dtype != x.element.dtype:
        raise LoopsError(f"a constant of {x.element} that is kept as {value.dtype}")
    if not x.element.is_complex:
        number = value.item()
        if isinstance(number, bool | int | float) and np.asarray(number).astype(value.dtype).tobytes() == value.tobytes():
            return f'float("{number}")' if isinstance(number, float) and not np.isfinite(number) else repr(number)
    return f'"0x{value.tobytes().hex()}"'


def _expression(e: Expr) -> str:
    """An index expression as Python has it."""
    parts = []
    for atom, k in e.terms:
        inner = _atom(atom)
        parts.append(inner if k == 1 else f"{inner} * {k}")
    if e.constant or not parts:
        parts.append(str(e.constant))
    return " + ".join(parts).replace("+ -", "- ")


def _atom(a: Expr) -> str:
    def inside(e: Expr | int) -> str:
        shown = str(e) if isinstance(e, int) else _expression(e)
        return shown if re.fullmatch(r"\w+", shown) else f"({shown})"

    if isinstance(a, Var):
        plain = a.name.isidentifier() and a.name.isascii() and not re.fullmatch(r"[BNOR]\d+", a.name) and a.name not in _WORDS
        return a.name if plain and not _is_keyword(a.name) else f"Var({_quoted(a.name)})"
    if isinstance(a, FloorDiv | Mod):
        return f"({inside(a.numerator)} {'//' if isinstance(a, FloorDiv) else '%'} {inside(a.divisor)})"
    if isinstance(a, Product):
        return f"({' * '.join(map(inside, a.factors))})"
    if isinstance(a, Minimum | Maximum):
        return f"{'min' if isinstance(a, Minimum) else 'max'}({', '.join(map(_expression, a.arguments))})"
    raise LoopsError(f"an index with a {type(a).__name__}, of which there is no text")


def _is_keyword(name: str) -> bool:
    try:
        return not isinstance(ast.parse(name, mode="eval").body, ast.Name)
    except SyntaxError:
        return True


def _flat(doc: _Doc) -> str:
    if isinstance(doc, str):
        return doc
    head, items, tail = doc
    return head + ", ".join(prefix + _flat(d) for prefix, d in items) + tail


def _laid_out(prefix: str, doc: _Doc, depth: int, after: str = "") -> str:
    """A part on one line where there is room, else its own parts on lines of their own, short ones side by side."""
    pad = "  " * depth
    whole = f"{pad}{prefix}{_flat(doc)}{after}"
    if isinstance(doc, str) or len(whole) <= _WIDTH or not doc[1]:
        return whole
    head, items, tail = doc
    lines: list[str] = []
    is_open = False  # the last line takes more
    for p, d in items:
        short = f"{p}{_flat(d)},"
        if isinstance(d, str) or "\n" not in (text := _laid_out(p, d, depth + 1, ",")):
            if is_open and len(lines[-1]) + 1 + len(short) <= _WIDTH:
                lines[-1] += f" {short}"
            else:
                lines.append(f"{pad}  {short}")
            is_open = True
        else:
            lines.append(text)
            is_open = False
    return "\n".join([f"{pad}{prefix}{head}", *lines, f"{pad}{tail.removeprefix(',')}{after}"])
