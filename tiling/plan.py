"""The planner: which stages are computed together, with what tiles, and why.

Each stage starts as a kernel of its own. A kernel joins the one that reads its result when all readers are there, the tiles
agree, and the cost model finds the two together cheaper than apart. Every decision is kept with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hlo.errors import Declined
from hlo.module import Module, Op, Value
from hlo.registry import Literal, SumOfProducts
from hlo.types import TensorType
from tiling.cost import Estimate
from tiling.flatten import Program, flatten
from tiling.machine import Machine
from tiling.names import Names
from tiling.schedule import Schedule, Scope
from tiling.stages import Stage, find_stages
from tiling.tiles import Candidate, best_tiles

__all__ = ["Decision", "EvaluatorStep", "Fusion", "Plan", "plan"]


@dataclass(frozen=True, eq=False)
class Fusion:
    """Ops that become one kernel.

    `ops` are all ops computed in it (those computed where they are read included), `stages` those with loops of their own.
    `bytes_unfused` is what the ops would move one by one, `bytes_fused` what the kernel reads and writes once each.
    """

    name: str
    stages: tuple[Stage, ...]
    ops: tuple[Op, ...]
    schedule: Schedule
    estimate: Estimate
    threads: int
    candidates: int

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(b.value for b in self.schedule.buffers_in(Scope.ARGUMENT) if b.value is not None)

    @property
    def outputs(self) -> tuple[Value, ...]:
        return tuple(b.value for b in self.schedule.buffers_in(Scope.RESULT) if b.value is not None)

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
    """An op that no kernel covers: the evaluator runs it. `reason` says why."""

    name: str
    op: Op
    reason: str


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


@dataclass(frozen=True, eq=False)
class Plan:
    """The kernels of a program, in the order in which they run, and the reasons for them."""

    program: Program
    machine: Machine
    steps: tuple[Fusion | EvaluatorStep, ...]
    decisions: tuple[Decision, ...]
    names: Names
    module: Module

    @property
    def fusions(self) -> tuple[Fusion, ...]:
        return tuple(s for s in self.steps if isinstance(s, Fusion))

    @property
    def fallbacks(self) -> tuple[EvaluatorStep, ...]:
        return tuple(s for s in self.steps if isinstance(s, EvaluatorStep))

    def explain(self) -> str:
        """The plan as text: each kernel with its loops, tiles, scratch and traffic, and each edge with its reason."""
        from tiling.show import show_plan

        return show_plan(self)

    def __str__(self) -> str:
        return self.explain()


Supports = Callable[[Op], Declined | None]
"""Whether code can be generated for an op: None, or why not."""


def plan(
    module: Module, entry: str = "main", machine: Machine | None = None, supports: Supports = lambda op: None
) -> Plan:
    """Plans the fusions and tiles of a module's entry function.

    `supports` tells which ops the code generator has rules for (`codegen.supports`); without it all that has maps is planned.

    Never fails on a verified module: what cannot be compiled becomes an `EvaluatorStep` with its reason.
    Raises KeyError when the module has no function `entry`.
    """
    program = flatten(module, entry)
    machine = machine or Machine.detect()
    refused = {id(op): reason for op in program.ops if (reason := supports(op)) is not None}
    while True:
        planner = _Planner(program, machine, module, refused)
        made = planner.run()
        if not planner.newly_refused:
            return made
        # What turned out to have no loops is left to the evaluator, which needs its operands in memory: plan again.
        refused.update(planner.newly_refused)


@dataclass(eq=False)
class _Kernel:
    stages: list[Stage]
    candidate: Candidate


@dataclass(eq=False)
class _Planner:
    program: Program
    machine: Machine
    module: Module
    refused: Mapping[int, Declined]
    decisions: list[Decision] = field(default_factory=list)
    newly_refused: dict[int, Declined] = field(default_factory=dict)

    def run(self) -> Plan:
        self.stages = find_stages(self.program, self.refused)
        self.order = {id(s): i for i, s in enumerate(self.stages)}
        self.stage_of = {id(v): s for s in self.stages for v in s.values}
        self.names = Names([*self.program.arguments, *(v for s in self.stages for v in s.values)])
        self.needs = {id(s): self._needs(s) for s in self.stages}
        self.readers: dict[int, list[Stage]] = {id(s): [] for s in self.stages}
        for s in self.stages:
            for producer in self.needs[id(s)]:
                self.readers[id(producer)].append(s)
        self.results = {id(v) for v in self.program.results}
        self.kernel_of: dict[int, _Kernel | EvaluatorStep] = {}
        for s in self.stages:
            self.kernel_of[id(s)] = self._alone(s)
        self._join_epilogues()
        for s in reversed(self.stages):
            self._try_join(s)
        return Plan(self.program, self.machine, self._steps(), tuple(self.decisions), self.names, self.module)

    def _needs(self, stage: Stage) -> list[Stage]:
        """The stages whose values a stage loads, through what is computed in place."""
        found: dict[int, Stage] = {}
        seen: set[int] = set()
        todo = list(stage.op.operands)
        if stage.op.regions:
            from tiling.flatten import captured_values

            todo += [v for b in stage.op.regions for v in captured_values(b)]
        while todo:
            v = todo.pop()
            if id(v) in seen or v.op is None:
                continue
            seen.add(id(v))
            producer = self.stage_of.get(id(v))
            if producer is not None:
                found[id(producer)] = producer
            else:
                todo.extend(v.op.operands)
        return sorted(found.values(), key=lambda s: self.order[id(s)])

    def _stored(self, stages: Sequence[Stage]) -> frozenset[int]:
        """The values of a set of stages that are read outside of it, or are results of the program."""
        inside = {id(s) for s in stages}
        stored: set[int] = set()
        for s in stages:
            outside = any(id(r) not in inside for r in self.readers[id(s)])
            stored.update(id(v) for v in s.values if outside or id(v) in self.results)
        return frozenset(stored)

    def _alone(self, stage: Stage) -> _Kernel | EvaluatorStep:
        if stage.declined is not None:
            return EvaluatorStep(self.names.stage(stage), stage.op, stage.declined.reason)
        found = best_tiles([stage], frozenset(id(v) for v in stage.values), self.machine, self.names)
        if isinstance(found, Declined):
            self.newly_refused[id(stage.op)] = found
            return EvaluatorStep(self.names.stage(stage), stage.op, found.reason)
        return _Kernel([stage], found)

    # ------------------------------------------------------------ joining

    def _join_epilogues(self) -> None:
        """A contraction whose only reader is elementwise joins it first: the reader is its epilogue."""
        for s in self.stages:
            readers = self.readers[id(s)]
            if isinstance(s.op.definition.semantics, SumOfProducts) and len(readers) == 1:
                reader = readers[0]
                if (
                    not isinstance(reader.op.definition.semantics, SumOfProducts)
                    and reader.values[0].shape == s.values[0].shape
                ):
                    self._try_join(s)

    def _try_join(self, stage: Stage) -> None:
        kernel = self.kernel_of[id(stage)]
        readers = self.readers[id(stage)]
        if not readers or isinstance(kernel, EvaluatorStep) or kernel.stages[-1] is not stage:
            return
        me = self.names.stage(stage)
        targets = list({id(self.kernel_of[id(r)]): self.kernel_of[id(r)] for r in readers}.values())
        if len(targets) > 1:
            who = ", ".join(self._kernel_name(t) for t in targets)
            self.decisions.append(
                Decision(me, who, False, f"{len(targets)} kernels read %{me}: it is stored once for all of them")
            )
            return
        target = targets[0]
        if target is kernel:
            return
        if isinstance(target, EvaluatorStep):
            self.decisions.append(
                Decision(me, target.name, False, f"its reader runs in the evaluator: {target.reason}")
            )
            return
        name = self._kernel_name(target)
        together = sorted([*kernel.stages, *target.stages], key=lambda s: self.order[id(s)])
        if together[-1] is not target.stages[-1]:
            together.remove(target.stages[-1])
            together.append(target.stages[-1])
        found = best_tiles(together, self._stored(together), self.machine, self.names)
        if isinstance(found, Declined):
            self.decisions.append(Decision(me, name, False, found.reason))
            return
        apart = kernel.candidate.estimate.seconds + target.candidate.estimate.seconds
        cost = found.estimate.seconds
        fused = cost <= apart
        reason = (
            f"{cost * 1e6:.1f} us together, {apart * 1e6:.1f} us apart; "
            f"{found.estimate.memory_bytes} bytes together, "
            f"{kernel.candidate.estimate.memory_bytes + target.candidate.estimate.memory_bytes} bytes apart"
        )
        self.decisions.append(Decision(me, name, fused, reason, cost, apart))
        if fused:
            joined = _Kernel(together, found)
            for s in together:
                self.kernel_of[id(s)] = joined

    def _kernel_name(self, kernel: _Kernel | EvaluatorStep) -> str:
        return kernel.name if isinstance(kernel, EvaluatorStep) else self.names.stage(kernel.stages[-1])

    # ------------------------------------------------------------ the result

    def _steps(self) -> tuple[Fusion | EvaluatorStep, ...]:
        kernels = list({id(k): k for k in self.kernel_of.values()}.values())
        done: list[Fusion | EvaluatorStep] = []
        for position, kernel in enumerate(_in_order(kernels, self)):
            if isinstance(kernel, EvaluatorStep):
                done.append(kernel)
                continue
            name = f"k{position}_{self.names.stage(kernel.stages[-1])}"
            final = best_tiles(kernel.stages, self._stored(kernel.stages), self.machine, self.names, thorough=True)
            assert isinstance(final, Candidate), "a fusion that could be scheduled still can"
            done.append(
                Fusion(name, tuple(kernel.stages), self._ops(kernel.stages), final.schedule, final.estimate,
                       self.machine.cores, final.looked_at)
            )  # fmt: skip
        return tuple(done)

    def _ops(self, stages: Sequence[Stage]) -> tuple[Op, ...]:
        inside = {id(s.op) for s in stages}
        todo = [v for s in stages for v in s.op.operands]
        seen: set[int] = set()
        while todo:
            v = todo.pop()
            if id(v) in seen or v.op is None or id(v) in self.stage_of:
                continue
            seen.add(id(v))
            if not isinstance(v.op.definition.semantics, Literal):
                inside.add(id(v.op))
            todo.extend(v.op.operands)
        return tuple(op for op in self.program.ops if id(op) in inside)


def _in_order(kernels: Sequence[_Kernel | EvaluatorStep], planner: _Planner) -> list[_Kernel | EvaluatorStep]:
    """Kernels so that each comes after those whose results it reads."""
    members: dict[int, list[Stage]] = {id(k): [] for k in kernels}
    for s in planner.stages:
        members[id(planner.kernel_of[id(s)])].append(s)
    waits: Mapping[int, set[int]] = {
        id(k): {id(planner.kernel_of[id(p)]) for s in members[id(k)] for p in planner.needs[id(s)]} - {id(k)}
        for k in kernels
    }
    order: list[_Kernel | EvaluatorStep] = []
    placed: set[int] = set()
    waiting = sorted(kernels, key=lambda k: planner.order[id(members[id(k)][0])])
    while waiting:
        rest = []
        for k in waiting:
            if waits[id(k)] <= placed:
                placed.add(id(k))
                order.append(k)
            else:
                rest.append(k)
        if len(rest) == len(waiting):
            raise RuntimeError("kernels wait for each other: the planner joined what it must not")
        waiting = rest
    return order


def _bytes(v: Value) -> int:
    return v.type.size_bytes if isinstance(v.type, TensorType) and v.type.is_static else 0
