"""Ops by which the devices of one call talk to each other: custom calls of this process, in which the devices' threads meet.

    %1 = "stablehlo.all_reduce"(%0) …    ->    %1 = custom_call @tilewright_process(%0) {backend_config = "0"}

Kernels compute the rest. What such an op means is the evaluator's word (`interp.rules.collectives`): each thread runs the op as a
process of the grid (`interp.run_process`), and what that waits for is exchanged here (`Run`). So deadlocks are told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from hlo.clone import clone_block
from hlo.module import Block, Function, Module, Op, walk
from hlo.registry import definition
from interp.grid import Exchange, Meeting, ProcessId, Receive, Send
from interp.machine import Wait
from interp.run import run_process
from tilewright.pjrt.handles import Problem

__all__ = ["TARGET", "Run", "function", "own_place", "take_out"]

TARGET = "tilewright_process"

_TALKING = frozenset(
    f"stablehlo.{name}"
    for name in "all_gather all_reduce all_to_all collective_broadcast collective_permute reduce_scatter partition_id replica_id"
    " cross-replica-sum".split()
)


# ---------------------------------------------------------------- programs


def take_out(module: Module) -> list[Module]:
    """Puts a custom call in the place of each op that concerns other devices; gives the ops, each as a module of its own."""
    parts: list[Module] = []
    for op in [op for f in module.functions.values() for op in walk(f.body)]:
        if op.name in _TALKING:
            parts.append(_alone(module, op))
            op.definition = definition("stablehlo.custom_call")
            op.name = op.definition.name
            op.attributes = {"call_target_name": TARGET, "has_side_effect": True, "backend_config": str(len(parts) - 1)}
            op.regions = ()
    return parts


def _alone(module: Module, op: Op) -> Module:
    """The module of one op."""
    body = Block([v.type for v in op.operands], [f"arg{k}" for k in range(len(op.operands))])
    copy = Op(
        op.definition, body.arguments, op.attributes, [clone_block(b, {}) for b in op.regions], [r.type for r in op.results],
        op.location, op.extra,
    )  # fmt: skip
    body.ops += [copy, Op(definition("func.return"), copy.results)]
    return Module({"main": Function("main", body, result_types=tuple(r.type for r in op.results))}, module.name)


# ---------------------------------------------------------------- calls


class Run:
    """One call of a program by all its devices: who waits is answered, or told that the call has failed."""

    def __init__(self, replicas: int, partitions: int) -> None:
        self.grid = (replicas, partitions)
        self.processes: list[ProcessId] = list(product(range(replicas), range(partitions)))
        self._exchange = Exchange(self.processes)
        self._answers: dict[ProcessId, Any] = {}
        self._changed = threading.Condition()
        self._failure: BaseException | None = None

    def work(self, process: ProcessId, work: Callable[[], Any]) -> Any:
        """Does a process's part in this thread. What it raises, everybody who waits for it raises."""
        _own.run, _own.process = self, process
        try:
            return work()
        except BaseException as e:
            self.fail(e)
            raise
        finally:
            _own.run = None
            with self._changed:
                self._exchange.end(process)
                self._changed.notify_all()

    def fail(self, failure: BaseException) -> None:
        """Nobody waits any more."""
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def answer(self, process: ProcessId, request: Any) -> Any:
        """What a process waits for. Raises what another one has raised, and DeadlockError where nobody will answer."""
        with self._changed:
            self._answers.update(self._exchange.post(process, request))
            self._changed.notify_all()
            while process not in self._answers:
                if self._failure is None and self._exchange.is_stuck:
                    self._failure = self._exchange.deadlock()
                    self._changed.notify_all()
                if self._failure is not None:
                    raise self._failure
                self._changed.wait()
            return self._answers.pop(process)


class _Between:
    """What carries values between the devices of a call (`interp.Transport`)."""

    def __init__(self, run: Run, process: ProcessId) -> None:
        self._run, self._process = run, process

    def _ask(self, request: Wait) -> Any:
        return self._run.answer(self._process, request)

    def meet(self, op: Op, participants: Sequence[ProcessId], tag: Any, payload: Any) -> Mapping[ProcessId, Any]:
        found: Mapping[ProcessId, Any] = self._ask(Meeting(op, tuple(participants), tag, payload))
        return found

    def send(self, op: Op, channel: Any, payload: Any) -> None:
        self._ask(Send(op, channel, payload))

    def receive(self, op: Op, channel: Any) -> Any:
        return self._ask(Receive(op, channel))


class _Own(threading.local):
    run: Run | None = None
    process: ProcessId = (0, 0)


_own = _Own()


def own_place() -> int:
    """Which one of its call's devices this thread is: 0 where there is only one."""
    return 0 if _own.run is None else _own.run.processes.index(_own.process)


def function(parts: Sequence[Module]) -> Callable[..., Any]:
    """The custom call that runs the ops which `take_out` has taken out."""

    def call(op: Op, *operands: Any) -> Any:
        run, process = _own.run, _own.process
        if run is None:
            raise Problem("INTERNAL", f"{op.location}: devices meet in calls of all of them")
        part = parts[int(op.attr("backend_config"))]
        return run_process(part, *operands, process=process, grid=run.grid, transport=_Between(run, process))

    return call
