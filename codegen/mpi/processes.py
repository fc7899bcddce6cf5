"""One process of a grid over MPI: runs a program's collectives, and agrees with the others before the first of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from codegen.launcher.native_threads import default_threads
from codegen.mpi.channel import Channel, the_channel
from codegen.mpi.collectives import BY_MPI, begin, own_group, run
from codegen.mpi.errors import MeshError
from codegen.mpi.folding import Compile
from hlo.errors import Declined
from hlo.foreign import borrows
from hlo.module import Module, Op, walk
from hlo.types import ElementType, TensorType
from tiling import ControlStep, EvaluatorStep, Plan
from tiling.mesh.groups import channel_of, groups_of, pairs_of

__all__ = ["MpiProcesses"]

T = TypeVar("T")
_MEETING_TAG = 1
_GRID_TAG = 2
_FIRST_CHANNEL_TAG = 16


class MpiProcesses:
    """See `codegen.call.processes.Processes`. Ranks count partitions of a replica first: `replica * partitions + partition`.

    Raises MeshError where MPI runs another number of processes than the grid has.
    """

    def __init__(self, grid: tuple[int, int], compile: Compile, names: Mapping[str, str], infeed: Sequence[str] = ()) -> None:
        self.channel: Channel = the_channel()
        self.grid, self.compile = grid, compile
        self.infeed: Sequence[str] = tuple(infeed)
        if grid[0] * grid[1] != self.channel.size:
            raise MeshError(
                f"the grid has {grid[0]} x {grid[1]} = {grid[0] * grid[1]} processes, MPI runs {self.channel.size}: "
                f"start it with `mpiexec -n {grid[0] * grid[1]}`"
            )
        self.threads = max(1, default_threads() // self.channel.neighbours)
        self.process = (self.channel.rank // grid[1], self.channel.rank % grid[1])
        self._names = dict(names)
        self._known: dict[tuple[Op, Hashable], Any] = {}
        self._tags: dict[int, int] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """Replicas and partitions."""
        return self.grid

    def known(self, op: Op, what: Hashable, make: Callable[[], T]) -> T:
        """What follows from an op alone, made once."""
        if (op, what) not in self._known:
            self._known[op, what] = make()
        found: T = self._known[op, what]
        return found

    # ------------------------------------------------------------ the start

    def start(self, plan: Plan) -> None:
        """Raises MeshError, the same on all processes, where they do not run one program; makes the groups' communicators."""
        ops = list(_exchanging(plan))
        told = dict(self._names)
        told["order of the collectives"] = _digest("\n".join(f"{op.name} {op.attributes}" for op in ops))
        self._agree(told)
        self._tags = _channel_tags(plan.module)
        for number, op in enumerate(ops):
            if op.name not in BY_MPI or self.step(op) is None:
                continue
            permutes = op.name == "stablehlo.collective_permute"
            members = pairs_of(op, self.grid) if permutes else groups_of(op, self.grid)
            assert not isinstance(members, Declined)
            absent = next((r for m in members for r in m if r >= self.channel.size), None)
            if absent is not None:
                raise MeshError(
                    f"{op.name}: process {absent} takes part, and the grid has {self.grid[0]} x {self.grid[1]}", op.location
                )
            group = None if permutes else own_group(self, op)
            if group is not None:
                self.channel.make_group(group, number)

    def agree(self, what: str, text: str) -> None:
        """Raises MeshError, the same on all processes, where they do not say the same; all of them call it."""
        self._agree({what: _digest(text)})

    def _agree(self, told: Mapping[str, str]) -> None:
        everyone = self.channel.gather(dict(told))
        for what in told:
            other = next((r for r, t in enumerate(everyone) if t.get(what) != everyone[0].get(what)), None)
            if other is not None:
                mine, theirs = everyone[0].get(what), everyone[other].get(what)
                raise MeshError(f"the processes disagree on the {what}: process 0 has {mine}, process {other} has {theirs}")

    # ------------------------------------------------------------ running

    def step(self, op: Op) -> Callable[..., Any] | None:
        """The function that runs a collective by MPI; None for what goes by the evaluator's rule."""
        if op.name == "stablehlo.replica_id":
            return lambda op: np.array(self.process[0], np.uint32)
        if op.name == "stablehlo.partition_id":
            return lambda op: np.array(self.process[1], np.uint32)
        if not self._is_by_mpi(op):
            return None

        @borrows
        def exchange(op: Op, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
            return run(self, op, operands)

        return exchange

    def begin(self, op: Op) -> Callable[..., Callable[[], tuple[np.ndarray, ...]]] | None:
        """The function (op, *arrays) that begins a collective, and returns what waits for its results; None for other ops."""
        return (lambda op, *operands: begin(self, op, operands)) if self._is_by_mpi(op) else None

    def _is_by_mpi(self, op: Op) -> bool:
        plain = all(
            isinstance(v.type, TensorType) and v.type.is_static and isinstance(v.type.element, ElementType)
            for v in (*op.operands, *op.results, *(a for b in op.regions for a in b.arguments))
        )
        if op.name not in BY_MPI or not plain:
            return False
        return "replica_groups" not in op.definition.known_attributes or not isinstance(groups_of(op, self.grid), Declined)

    def failed(self, error: BaseException) -> None:
        """Tells the others, once, that this process goes no further."""
        self.channel.failed(error)

    def everyones(self, array: np.ndarray) -> list[np.ndarray]:
        """The arrays of all processes, by rank; all of them call it."""
        return list(self.channel.gather(array))

    def give(self, process: tuple[int, int], value: Any) -> None:
        """Hands a value to a process and goes on."""
        self.channel.post(value, process[0] * self.grid[1] + process[1], _GRID_TAG)

    def take(self, process: tuple[int, int], op: Op | None) -> Any:
        """The next value that a process hands to this one; waits for it."""
        return self.channel.take(process[0] * self.grid[1] + process[1], op, _GRID_TAG)

    def meet(self, op: Op, participants: Sequence[tuple[int, int]], tag: Any, payload: Any) -> Mapping[tuple[int, int], Any]:
        """Every participant's payload, by process. Raises MeshError where one of them waits at another op."""
        mine = self.channel.rank
        ranks = {p: p[0] * self.grid[1] + p[1] for p in participants}
        for r in ranks.values():
            if r != mine:
                self.channel.post((tag, tuple(participants), payload), r, _MEETING_TAG)
        found = {}
        for p, r in ranks.items():
            if r == mine:
                found[p] = payload
                continue
            theirs, who, value = self.channel.take(r, op, _MEETING_TAG)
            if (theirs, who) != (tag, tuple(participants)):
                raise MeshError(f"process {mine} waits at {op.name} for process {r}, which waits at {theirs[0]}", op.location)
            found[p] = value
        return found

    def begin_program(self) -> None:
        """A whole program begins, on all processes: channels are empty."""
        self.channel.calls += 1

    def send(self, op: Op, channel: Any, payload: Any) -> None:
        """Puts a payload into a channel (number, source, target). Raises MeshError for one without partners."""
        _, target = self._ends(op, channel)
        self.channel.post((self.channel.calls, payload), target, self._tags[_number(channel)])

    def receive(self, op: Op, channel: Any) -> Any:
        """The oldest payload of a channel (number, source, target); waits for one."""
        source, _ = self._ends(op, channel)
        while True:
            call, payload = self.channel.take(source, op, self._tags[_number(channel)])
            if call == self.channel.calls:
                return payload

    def _ends(self, op: Op, channel: Any) -> tuple[int, int]:
        """The ranks of a channel's source and target: processes of one row or column of the grid."""
        if not isinstance(channel, tuple):
            if self.channel.size == 1:
                return 0, 0
            raise MeshError(f"{op.name}: channel {channel} has no source_target_pairs, so nobody knows who receives")
        _, source, target = channel
        if self.grid[1] > 1:
            base = self.process[0] * self.grid[1]
            return base + source, base + target
        return source, target


def _number(channel: Any) -> int:
    return int(channel[0] if isinstance(channel, tuple) else channel)


def _channel_tags(module: Module) -> dict[int, int]:
    """A tag for each channel of a module, of any number."""
    numbers = {channel_of(op) for f in module.functions.values() for op in walk(f.body)}
    return {number: _FIRST_CHANNEL_TAG + k for k, number in enumerate(sorted(numbers))}


def _exchanging(plan: Plan) -> Sequence[Op]:
    """The ops of a plan that no kernel runs, in the order in which they run."""
    found: list[Op] = []
    for step in plan.steps:
        if isinstance(step, EvaluatorStep):
            found.append(step.op)
        elif isinstance(step, ControlStep):
            for r in step.regions:
                found += _exchanging(r.plan)
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
