"""Every field of every kind of step, changed: dropped, doubled, swapped, one more, one less, flipped.

Fields are found by looking at the dataclasses, so that one that is added tomorrow is changed as well. `UNCHANGED` says which
fields are left alone, and why; a test compares with the classes themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from hlo.access import Condition
from hlo.module import Block, Op, Value
from hlo.registry import definition as registered
from hlo.types import ElementType, element_type
from indexing.expr import Const, Expr, Var, as_expr
from tiling.loops.buffers import Buffer, Scope
from tiling.loops.element_ir import Apply, Choose, IndexNode, Load, Node, Scalar, element_name
from tiling.loops.ir import Block2D, Loop, Matrix, Schedule

UNCHANGED = {
    ("Schedule", "tile_sizes"): "for people and for the cost model",
    ("Schedule", "notes"): "for people",
    ("Schedule", "form"): "for people and for the choice among forms",
    ("Sequential", "reason"): "for people",
    ("Buffer", "name"): "for people; sources number what is called alike",
    ("Phase", "rest"): "for the cost model: results do not depend on it",
    ("Nest", "ahead"): "what is prefetched: no element is read or written by it",
    ("Scatter", "ahead"): "what is prefetched",
    ("Selection", "ahead"): "what is prefetched",
    ("MicroKernel", "routine"): "the name of code: that it does what is declared is for tests of that code",
    ("MicroKernel", "asking"): "the same: what it computes is what `routine` does",
    ("MicroKernel", "arguments"): "the same: a test compares them with the routine's own",
}
"""Fields that are not changed, each with the reason."""


FIXED = {("Skip", "fill"), ("Buffer", "shape"), ("Buffer", "strides"), ("Buffer", "origin")}
"""Tuples whose places have a meaning of their own."""


@dataclass(frozen=True)
class Mutant:
    """A schedule with one field of one `step` changed: `change` says how, `path` where."""

    schedule: Schedule
    step: str
    field: str
    change: str
    path: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.step, self.field, self.change

    def __str__(self) -> str:
        return f"{self.path}: {self.change}"


PARTS = (Block2D, Loop, Matrix)
OPTIONS = ("lower", "left", "transposed", "unit")
ELEMENTS = {"f32": ("bf16", "f64"), "f64": ("f32",), "bf16": ("f32",), "i32": ("i64", "f32"), "i64": ("i32",), "i8": ("i32",),
            "ui32": ("i32",), "ui64": ("i64",), "i1": ("i8",), "complex<f32>": ("f32",)}  # fmt: skip
FUNCTIONS = {"add": "subtract", "subtract": "add", "multiply": "add", "maximum": "minimum", "minimum": "maximum",
             "divide": "multiply", "exponential": "negate", "negate": "abs", "and": "or", "or": "and", "tanh": "logistic",
             "log": "exponential", "sign": "abs", "xor": "or"}  # fmt: skip
COMPARED = {"LT": "LE", "LE": "LT", "GT": "GE", "GE": "GT", "EQ": "NE", "NE": "EQ"}
TURNED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


def other_nodes(n: object) -> Iterator[tuple[str, Node]]:
    """What may stand in the place of an expression."""
    if isinstance(n, Choose):
        yield "always", n.then
        yield "never", n.otherwise
        yield "negated", Choose(n.conditions, n.otherwise, n.then, n.runtimes)
    if isinstance(n, Apply):
        same = [a for a in n.arguments if element_name(a) == element_name(n)]
        yield from (("its operand", a) for a in same[:1])
        yield from (("its last operand", a) for a in same[1:][-1:])
    element = getattr(n, "element", None)
    if isinstance(n, Load) and isinstance(n.value.tensor.element, ElementType):
        element = n.value.tensor.element
    if isinstance(n, (Load, IndexNode)) and isinstance(element, ElementType):
        yield "zero", Scalar(element.dtype.type(0), element)


def other_ops(op: Op) -> Iterator[tuple[str, Op]]:
    """Ops that compute something else from the same operands: other comparisons, types and bodies."""
    types = [v.type for v in op.results]

    def made(attributes: dict[str, object], regions: Sequence[Block], operands: Sequence[Value] = op.operands) -> Op:
        return Op(op.definition, operands, attributes, regions, types, op.location, op.extra)

    held = dict(op.attributes)
    for table, change in ((COMPARED, "the other end"), (TURNED, "turned")):
        direction = held.get("comparison_direction")
        if direction in table:
            yield change, made({**held, "comparison_direction": table[str(direction)]}, op.regions)
        bodies = [_other_body(b, table) for b in op.regions]
        if any(b is not None for b in bodies):
            yield f"a body {change}", made(held, [b or a for a, b in zip(op.regions, bodies, strict=True)])
    for name, value in held.items():
        if isinstance(value, bool):
            yield f"{name} flipped", made({**held, name: not value}, op.regions)
    if held.get("fft_type") in ("FFT", "IFFT"):
        yield "the other way", made({**held, "fft_type": "IFFT" if held["fft_type"] == "FFT" else "FFT"}, op.regions)
    if len(op.operands) > 1 and op.operands[0].type == op.operands[1].type and op.operands[0] is not op.operands[1]:
        yield "operands swapped", made(held, op.regions, [op.operands[1], op.operands[0], *op.operands[2:]])


def _other_body(old: Block, table: Mapping[str, str]) -> Block | None:
    """The block with its first function or comparison another one; None where it has none."""
    new = Block([v.type for v in old.arguments])
    known: dict[Value, Value] = dict(zip(old.arguments, new.arguments, strict=True))
    changed = False
    for op in old.ops:
        definition, attributes = op.definition, dict(op.attributes)
        other = FUNCTIONS.get(definition.mnemonic)
        if not changed and other is not None and table is COMPARED:
            definition, changed = registered(f"stablehlo.{other}"), True
        elif not changed and attributes.get("comparison_direction") in table:
            attributes["comparison_direction"], changed = table[str(attributes["comparison_direction"])], True
        made = Op(definition, [known[v] for v in op.operands], attributes, op.regions, [v.type for v in op.results])
        new.ops.append(made)
        known.update(zip(op.results, made.results, strict=True))
    return new if changed else None


Change = tuple[str, str, str, str, Any]
"""(step, field, change, path, what takes the object's place)"""


def mutants(schedule: Schedule, reached: set[tuple[str, str]] | None = None) -> Iterator[Mutant]:
    """Each schedule that differs from this one in one field of one part; the fields are added to those that are `reached`."""
    mutator = _Mutator(schedule)
    if reached is not None:
        mutator.reached = reached
    for step, name, change, path, new in mutator.object(schedule, ""):
        yield Mutant(new, step, name, change, path)
    for b in schedule.buffers:
        for step, name, change, path, new in mutator.fields(b, f"buffer {b.name}"):
            yield Mutant(_with_buffer(schedule, b, new), step, name, change, path)


class _Mutator:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.seen: set[int] = set()
        self.reached: set[tuple[str, str]] = set()  # the fields that something was changed of or in
        self.values = [b.value for b in schedule.buffers if b.value is not None]

    def object(self, x: Any, path: str) -> Iterator[Change]:
        """The changes of an object of the loops' classes, once for each object."""
        if id(x) in self.seen:
            return
        self.seen.add(id(x))
        yield from self.fields(x, path)

    def fields(self, x: Any, path: str) -> Iterator[Change]:
        kind = type(x).__name__
        for f in fields(x):
            if (kind, f.name) in UNCHANGED:
                continue
            old = getattr(x, f.name)
            alike = [getattr(x, g.name) for g in fields(x) if g.name != f.name and type(getattr(x, g.name)) is type(old)]
            beside = [(kind, f.name, "another one of the step", f"{path}.{f.name}", y) for y in alike if isinstance(y, PARTS)]
            for step, name, change, where, new in (*beside, *self.anything(old, kind, f.name, f"{path}.{f.name}")):
                self.reached.add((kind, f.name))
                try:
                    yield step, name, change, where, replace(x, **{f.name: new})
                except (ValueError, TypeError, AssertionError):
                    continue  # no such object can be made

    def anything(self, old: Any, kind: str, name: str, path: str) -> Iterator[Change]:
        """What may stand in the place of the old value of a field."""

        def made(change: str, new: Any) -> Change:
            return kind, name, change, path, new

        if isinstance(old, bool):
            yield made("flipped", not old)
        elif isinstance(old, int):
            yield from (made(c, n) for c, n in (("+ 1", old + 1), ("- 1", old - 1), ("* 2", old * 2)) if n != old)
        elif isinstance(old, float):
            yield from (made(c, n) for c, n in (("* 1024", old * 1024), ("/ 1024", old / 1024)) if n != old)
        elif isinstance(old, enum.Enum):
            yield from (made(f"-> {x.value}", x) for x in type(old) if x is not old and old is not Scope.RESULT)
        elif isinstance(old, np.generic):
            if old.dtype.kind == "b":
                yield made("flipped", np.bool_(not old))
            elif np.isfinite(old) if old.dtype.kind in "fcV" else True:
                yield made("+ 1", type(old)(old + 1))
            else:
                yield made("-> 0", type(old)(0))
        elif isinstance(old, str):
            yield from self.words(old, kind, name, made)
        elif isinstance(old, Buffer):
            yield from (made("another buffer", b) for b in self.others(old))
        elif isinstance(old, Expr):
            yield from self.expression(old, made)
        elif isinstance(old, tuple):
            yield from self.several(old, kind, name, path, (kind, name) in FIXED)
        elif isinstance(old, dict):
            for v, span in list(old.items())[:4]:
                yield made("narrower range", {**old, v: type(span)(span.lower, span.upper - 1)})
        elif isinstance(old, frozenset):
            yield from (made(f"without {x}", old - {x}) for x in sorted(old))
            yield from (made(f"with {x}", old | {x}) for x in OPTIONS if x not in old)
        elif isinstance(old, ElementType):
            yield from (made(f"-> {x}", element_type(x)) for x in ELEMENTS.get(old.name, ()))
        elif isinstance(old, Op):
            yield from (made(change, op) for change, op in other_ops(old))
        elif isinstance(old, Value):
            yield from (made("another value", v) for v in self.values if v is not old and v.shape == old.shape)
        elif is_dataclass(old) and not isinstance(old, (Op, Block, ElementType)):
            if name in ("skip", "roots", "column"):
                yield made("dropped", None)
            yield from (made(change, n) for change, n in other_nodes(old))
            yield from self.object(old, path)
        elif old is None and name == "places":
            yield from (made("a buffer", b) for b in self.schedule.buffers[:1])

    def others(self, old: Buffer) -> Iterator[Buffer]:
        same = [b for b in self.schedule.buffers if b is not old and b.element == old.element and len(b.shape) == len(old.shape)]
        yield from same[:2]

    def expression(self, old: Expr, made: Callable[[str, Any], Change]) -> Iterator[Change]:
        if isinstance(old, Var):
            others = [v for v in self.schedule.ranges if v is not old]
            yield from (made("another variable", v) for v in others[:1])
        yield made("+ 1", as_expr(old + 1))
        yield made("- 1", as_expr(old - 1))
        if not isinstance(old, Const):
            yield made("-> 0", Const(0))
            yield made("negated", as_expr(-1 * old))

    def words(self, old: str, kind: str, name: str, made: Callable[[str, Any], Change]) -> Iterator[Change]:
        if name == "form":
            yield from (made(f"-> {x}", x) for x in ("complex", "to half", "from half") if x != old)
        if name == "kind":
            yield from (made(f"-> {x}", x) for x in ("lu", "cholesky", "triangular") if x != old)
        if name == "function":
            yield from (made(f"-> {x}", x) for x in [FUNCTIONS.get(old)] if x is not None)

    def several(self, old: tuple[Any, ...], kind: str, name: str, path: str, is_fixed: bool = False) -> Iterator[Change]:
        """Changes of a tuple: of its length and order, unless each place has a meaning of its own, and of what is in it."""
        if old and not is_fixed:
            yield kind, name, "first dropped", path, old[1:]
            if len(old) > 1:
                yield kind, name, "last dropped", path, old[:-1]
            yield kind, name, "last doubled", path, (*old, old[-1])
            for k in range(len(old) - 1):
                if old[k] != old[k + 1]:
                    yield kind, name, "swapped", path, (*old[:k], old[k + 1], old[k], *old[k + 2 :])
        if not old and name == "descending" and self.schedule.phases[-1].tiles:
            yield kind, name, "added", path, (self.schedule.phases[-1].tiles[0][0],)
        for k, x in enumerate(old):
            at = f"{path}[{k}]"
            inner = self.several(x, kind, name, at, True) if isinstance(x, tuple) else self.anything(x, kind, name, at)
            for step, field, change, where, new in inner:
                yield step, field, change, where, (*old[:k], new, *old[k + 1 :])


def _with_buffer(schedule: Schedule, old: Buffer, new: Buffer) -> Schedule:
    """The schedule with one buffer in another's place, wherever it occurs."""
    memo: dict[int, Any] = {}
    keep: list[Any] = []

    def put(x: Any) -> Any:
        if x is old:
            return new
        if isinstance(x, tuple):
            made = tuple(map(put, x))
            return made if any(a is not b for a, b in zip(made, x, strict=True)) else x
        if not is_dataclass(x) or isinstance(x, (Op, Block, Value, Expr, Buffer, ElementType, Condition, type)):
            return x
        if id(x) not in memo:
            keep.append(x)
            changed = {f.name: y for f in fields(x) if (y := put(getattr(x, f.name))) is not getattr(x, f.name)}
            memo[id(x)] = replace(x, **changed) if changed else x
        return memo[id(x)]

    made: Schedule = put(schedule)
    return made


__all__ = ["UNCHANGED", "Mutant", "mutants"]
