"""Every field of every kind of step, changed: dropped, doubled, swapped, one more, one less, flipped.

Fields are found by looking at the dataclasses, so that one that is added tomorrow is changed as well. What only a person reads
(names, reasons, notes) is left alone; `UNREAD` says which fields those are.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from hlo.access import Condition
from hlo.module import Block, Op, Value
from hlo.types import ElementType
from indexing.expr import Const, Expr, Var, as_expr
from tiling.loops.buffers import Buffer, Scope
from tiling.loops.element_ir import Load
from tiling.loops.ir import Schedule

UNREAD = {
    ("Schedule", "tile_sizes"), ("Schedule", "notes"), ("Schedule", "form"), ("Sequential", "reason"), ("Buffer", "name"),
    ("Phase", "rest"),
}  # fmt: skip
"""Fields that say why a schedule is as it is, for people and for the cost model."""


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


Change = tuple[str, str, str, str, Any]
"""(step, field, change, path, what takes the object's place)"""


def mutants(schedule: Schedule) -> Iterator[Mutant]:
    """Each schedule that differs from this one in one field of one part."""
    mutator = _Mutator(schedule)
    for step, name, change, path, new in mutator.object(schedule, ""):
        yield Mutant(new, step, name, change, path)
    for b in schedule.buffers:
        for step, name, change, path, new in mutator.fields(b, f"buffer {b.name}"):
            yield Mutant(_with_buffer(schedule, b, new), step, name, change, path)


class _Mutator:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.seen: set[int] = set()
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
            if (kind, f.name) in UNREAD:
                continue
            old = getattr(x, f.name)
            for step, name, change, where, new in self.anything(old, kind, f.name, f"{path}.{f.name}"):
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
            yield from (made(f"-> {x.value}", x) for x in type(old) if x is not old and not isinstance(old, Scope))
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
        elif isinstance(old, Value):
            yield from (made("another value", v) for v in self.values if v is not old and v.shape == old.shape)
        elif is_dataclass(old) and not isinstance(old, (Op, Block, ElementType)):
            if old is not None and name in ("skip", "roots"):
                yield made("dropped", None)
            yield from self.object(old, path)

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

    def words(self, old: str, kind: str, name: str, made: Callable[[str, Any], Change]) -> Iterator[Change]:
        if name == "form":
            yield from (made(f"-> {x}", x) for x in ("complex", "to half", "from half") if x != old)
        if name == "function":
            other = {"add": "subtract", "subtract": "add", "multiply": "add", "maximum": "minimum", "divide": "multiply",
                     "exponential": "negate", "negate": "abs"}  # fmt: skip
            yield from (made(f"-> {x}", x) for x in [other.get(old)] if x is not None)

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


__all__ = ["Load", "Mutant", "mutants"]
