"""Plans as data: the kernels of a program in the order in which they run, and the reason for every decision."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

from hlo.display import as_document, as_html, as_text
from hlo.lazy import cached_property
from hlo.module import Module, Op, Value
from hlo.types import TensorType
from indexing.deriving.derive import output_to_input
from indexing.map import IndexingMap
from tiling.cost_model import Estimate
from tiling.loops.ir import Schedule, Scope
from tiling.loops.names import Names
from tiling.loops.stage import Stage
from tiling.machine import Machine
from tiling.program.expand import Supports
from tiling.program.flatten import Program, Region
from tiling.words import count, op_summary

__all__ = ["Carry", "ControlStep", "Decision", "Edge", "EvaluatorStep", "Fusion", "Pin", "Plan", "Read", "RegionPlan", "Reuse"]


@dataclass(frozen=True, eq=False)
class Read:
    """An edge of the fusion graph: an element of `consumer` is computed from those of `producer` where `map` leads."""

    consumer: Value
    producer: Value
    map: IndexingMap

    def __str__(self) -> str:
        return f"%{self.consumer.name or '?'} reads %{self.producer.name or '?'} at {self.map}"


@dataclass(frozen=True, eq=False)
class Fusion:
    """Ops that become one kernel.

    `ops` are all ops computed in it (those computed where they are read included), `stages` those with loops of their own.
    `bytes_unfused` is what the ops would move one by one, `bytes_fused` what the kernel reads and writes once each.
    `planned` is the planner's own schedule where another one was put in its place (`tiling.with_schedule`).
    """

    name: str
    stages: tuple[Stage, ...]
    ops: tuple[Op, ...]
    schedule: Schedule
    estimate: Estimate
    threads: int
    candidates: int
    planned: Schedule | None = None

    def __repr__(self) -> str:
        return f"<Fusion {self.name}: {op_summary(self.ops)}; tiles {list(self.tile_sizes)}>"

    def _repr_html_(self) -> str:
        return as_html(self)

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(b.value for b in self.schedule.buffers_in(Scope.ARGUMENT) if b.value is not None)

    @property
    def outputs(self) -> tuple[Value, ...]:
        return tuple(b.value for b in self.schedule.buffers_in(Scope.RESULT) if b.value is not None)

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The edges inside of the kernel and into it, with the index maps that its elements were built from."""
        return tuple([
            Read(r, v, m)
            for op in self.ops for r in op.results
            for v, maps in zip(op.operands, output_to_input(op, r.index), strict=True) for m in maps
        ])  # fmt: skip

    @property
    def tile_sizes(self) -> tuple[int, ...]:
        return self.schedule.tile_sizes

    @property
    def scratch_bytes(self) -> int:
        return self.schedule.scratch_bytes(min(self.threads, max(p.tasks for p in self.schedule.phases)))

    @cached_property
    def bytes_unfused(self) -> int:
        return sum(_bytes(v) for op in self.ops for v in (*op.operands, *op.results))

    @property
    def bytes_fused(self) -> int:
        return sum(_bytes(v) for v in (*self.inputs, *self.outputs))


@dataclass(frozen=True, eq=False)
class EvaluatorStep:
    """An op that no kernel covers: the evaluator runs it, or a `library` where one is named. `reason` says why."""

    name: str
    op: Op
    reason: str
    library: str = ""


@dataclass(frozen=True, eq=False)
class Reuse:
    """`target` is written over `source`, whose last reader makes it; where it is not `shared`, over a copy, for `reason`."""

    source: Value
    target: Value
    shared: bool
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Carry:
    """How a loop passes a value on: `argument` is the body's, `result` what it becomes.

    how     invariant  it never changes: the loop reads what it was given
            in place   the body writes the new value over the old one
            exchanged  two memories take turns
            copied     the new value is copied over the old one
    `takes_over` says that the loop works in its initial value's own memory, which nobody reads later.
    """

    argument: Value
    result: Value
    how: str
    takes_over: bool = False


@dataclass(frozen=True, eq=False)
class RegionPlan:
    """A region of a control-flow op and the plan of its body."""

    region: Region
    plan: Plan


@dataclass(frozen=True, eq=False)
class ControlStep:
    """A while, if or case whose regions are planned like programs.

    A while's regions are its condition and its body; `carries` tells how each of its values is passed on, `trips` how often the
    body runs where that can be read off the program.
    """

    name: str
    op: Op
    regions: tuple[RegionPlan, ...]
    carries: tuple[Carry, ...] = ()
    trips: int | None = None

    @property
    def is_loop(self) -> bool:
        return self.op.name == "stablehlo.while"

    @property
    def reads(self) -> tuple[Value, ...]:
        """What it reads: its operands, and what its regions read from outside."""
        return tuple(dict.fromkeys([*self.op.operands, *(v for r in self.regions for v in r.region.captured)]))


@dataclass(frozen=True)
class Decision:
    """Whether a producer was computed inside its reader's kernel, and why.

    `together` and `apart` are the cost model's seconds where it decided.
    """

    producer: str
    consumer: str
    fused: bool
    reason: str
    together: float | None = None
    apart: float | None = None


@dataclass(frozen=True)
class Edge:
    """`consumer` reads `values`, which `producer` stored: names of steps and of values, and why they are not one kernel.

    `kind` is one of: evaluator (one of them is no kernel), control (one of them is a loop or branch), rule (what forbids it),
    order (something runs between them), estimate (it would take longer), untried. `together` and `apart` are the cost model's
    seconds where there are any.
    """

    producer: str
    consumer: str
    values: tuple[str, ...]
    size_bytes: int
    kind: str
    reason: str
    witness: str = ""
    together: float | None = None
    apart: float | None = None

    def __str__(self) -> str:
        what = (
            f"{self.producer} -> {self.consumer} ({', '.join(self.values)}; {self.size_bytes} bytes): {self.reason}"
        )
        return what + (f" [{self.witness}]" if self.witness else "")


@singledispatch
def edges(plan: object) -> tuple[Edge, ...]:
    """Every edge between two steps of a plan, with its reason: found by `tiling.planning.reasons`."""
    raise TypeError(f"{type(plan).__name__} is no plan")


@singledispatch
def save_plan(plan: object, path: str | os.PathLike[str]) -> None:
    """Writes a plan's file: `tiling.files.plan_file` does."""
    raise TypeError(f"{type(plan).__name__} is no plan")


@dataclass(frozen=True, eq=False)
class Plan:
    """The kernels of a program, in the order in which they run, and the reasons for them."""

    program: Program
    machine: Machine
    steps: tuple[Fusion | EvaluatorStep | ControlStep, ...]
    decisions: tuple[Decision, ...]
    names: Names
    module: Module
    reuses: tuple[Reuse, ...] = ()
    strips: tuple[Pin, ...] = ()  # the loops over strips that the program was given, in this order
    supports: Supports | None = None  # which ops were planned; None for a region's plan
    donate: bool = False  # whether results may be written over arguments that the function gives away

    @property
    def fusions(self) -> tuple[Fusion, ...]:
        return tuple(s for s in self.steps if isinstance(s, Fusion))

    @property
    def fallbacks(self) -> tuple[EvaluatorStep, ...]:
        """What the evaluator runs, in the program and in the regions of its control flow."""
        return tuple(s for p in self.nested() for s in p.steps if isinstance(s, EvaluatorStep) and not s.library)

    @property
    def library(self) -> tuple[EvaluatorStep, ...]:
        """What a library runs, there and in regions."""
        return tuple(s for p in self.nested() for s in p.steps if isinstance(s, EvaluatorStep) and s.library)

    @property
    def written_over(self) -> dict[int, int]:
        """The program's argument k -> the result that is written over it, where the plan may do so (`donate`)."""
        over = {r.source: r.target for r in self.reuses if r.shared}
        number = {v: k for k, v in reversed(list(enumerate(self.program.results)))}
        found: dict[int, int] = {}
        for k, argument in enumerate(self.program.arguments) if self.donate else ():
            end = argument
            while end in over:
                end = over[end]
            if end is not argument:
                found[k] = number[end]
        return found

    @property
    def controls(self) -> tuple[ControlStep, ...]:
        return tuple(s for s in self.steps if isinstance(s, ControlStep))

    def nested(self) -> Iterator[Plan]:
        """This plan and those of all regions below it, outer before inner."""
        todo = [self]
        while todo:
            plan = todo.pop()
            yield plan
            todo.extend(r.plan for c in reversed(plan.controls) for r in reversed(c.regions))

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every value that goes from one step to another through memory, with the reason why they are not one kernel."""
        return edges(self)

    def explain(self, format: str = "text") -> str:
        """The plan for people: each kernel with its members, loops, tiles, scratch, traffic and time, each edge with its reason.

        `format` is "text", "json" (the document of `to_json`) or "html". Raises ValueError for any other.
        """
        if format == "json":
            return json.dumps(as_document(self), indent=2)
        made = {"text": as_text, "html": as_html}.get(format)
        if made is None:
            raise ValueError(f"expected the format text, json or html, found {format!r}")
        return made(self)

    def pins(self) -> tuple[Pin, ...]:
        """What makes `tiling.plan` give this plan again without searching; edit them to change it."""
        pins: list[Pin] = []
        strips: list[Pin] = []
        todo: list[tuple[Plan, tuple[int, ...]]] = [(self, ())]
        while todo:
            plan, path = todo.pop()
            number = {op: k for k, op in enumerate(plan.program.ops)}
            pins += [Pin(tuple(number[s.op] for s in f.stages), f.tile_sizes, path) for f in plan.fusions]
            strips += [replace(p, region=path) for p in plan.strips]
            todo += [
                (r.plan, (*path, number[c.op], k))
                for c in reversed(plan.controls)
                for k, r in reversed(list(enumerate(c.regions)))
            ]
        return (*pins, *strips)

    def to_json(self) -> dict[str, Any]:
        """The plan for programs, as plain lists and dictionaries: the document tilewright.plan/1 of docs/cli.md."""
        return as_document(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan as a file, from which `tiling.load_plan` makes an equal one (`tiling.files.plan_file`).

        Raises `PlanFileError` for a plan with what is not data: schedules that were edited in other ways than by the order of
        loops, rules of somebody's own.
        """
        save_plan(self, path)

    def __deepcopy__(self, memo: dict[int, Any]) -> Plan:
        """The plan itself: nothing of it changes. (A pickled one travels as its file.)"""
        return self

    def _repr_html_(self) -> str:
        return as_html(self)

    def __repr__(self) -> str:
        return f"<Plan of @{self.program.name}: {summary(self)}>"

    def __str__(self) -> str:
        return self.explain()


@dataclass(frozen=True)
class Pin:
    """A fusion that a person (or an earlier plan) wants: the rest is planned around it.

    `ops` are the numbers, in the flattened program (`plan.program.ops`), of the ops with loops of their own that belong together;
    `tile_sizes` are for the dimensions of the last one's result, None to have them searched. In a region, `region` leads there:
    the number of the op and of its region, then those inside.

    With `strips` (which result of the one op, its dimension, how many) it is no fusion but a loop over strips of that value: the
    program is rewritten so before anything else (`tiling.program.run_in_strips`), and other pins name ops of what that makes.
    With the result's number alone, what later readers read of it is computed again (`tiling.program.compute_again`).
    """

    ops: tuple[int, ...]
    tile_sizes: tuple[int, ...] | None = None
    region: tuple[int, ...] = ()
    strips: tuple[int, ...] = ()

    @property
    def inside(self) -> Pin:
        """The pin as the region's own plan sees it."""
        return replace(self, region=self.region[2:])


def summary(plan: Plan) -> str:
    """How many kernels there are, and how many ops run elsewhere."""
    kernels = sum(len(p.fusions) for p in plan.nested())
    library = f", {len(plan.library)} in libraries" if plan.library else ""
    return f"{count(kernels, 'kernel')}, {count(len(plan.fallbacks), 'op')} in the evaluator{library}"


def _bytes(v: Value) -> int:
    return v.type.size_bytes if isinstance(v.type, TensorType) and v.type.is_static else 0
