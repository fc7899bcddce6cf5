"""The process grid: processes take turns in one thread, each running until it ends or has to wait for others.

The order is fixed, so a run can be repeated; and when every process that has not ended waits, none can ever go on:
that is a deadlock, found exactly and at once. Specification: "Parallel execution".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from hlo import Module
from interp.errors import DeadlockError, at
from interp.machine import Machine, Wait

__all__ = ["Exchange", "Grid", "Meeting", "ProcessId", "Receive", "Send"]

ProcessId = tuple[int, int]


@dataclass(frozen=True)
class Meeting(Wait):
    """All `participants` come with the same `tag`; each is answered with every participant's payload, by process."""

    participants: tuple[ProcessId, ...]
    tag: Hashable
    payload: Any


@dataclass(frozen=True)
class Send(Wait):
    """Puts a payload into a channel; the answer is None and comes at once."""

    channel: Hashable
    payload: Any


@dataclass(frozen=True)
class Receive(Wait):
    """Takes the oldest payload out of a channel, waiting until there is one."""

    channel: Hashable


class Exchange:
    """What processes have sent and wait for, whoever runs them.

    `post` takes a request and gives those who go on, with their answers; `end` notes that a process has ended.
    """

    def __init__(self, processes: Iterable[ProcessId]) -> None:
        self._alive = set(processes)
        self._processes = frozenset(self._alive)
        self._waiting: dict[ProcessId, Wait] = {}
        self._channels: dict[Hashable, deque[Any]] = {}

    @property
    def is_stuck(self) -> bool:
        """Whether all that have not ended wait, and there are some: nobody will ever answer."""
        return bool(self._waiting) and len(self._waiting) == len(self._alive)

    def end(self, process: ProcessId) -> None:
        """A process has ended."""
        self._alive.discard(process)
        self._waiting.pop(process, None)

    def post(self, process: ProcessId, request: Wait) -> list[tuple[ProcessId, Any]]:
        """Takes what a process waits for."""
        if isinstance(request, Send):
            self._channels.setdefault(request.channel, deque()).append(request.payload)
            return [(process, None), *self._deliver(request.channel)]
        self._waiting[process] = request
        if isinstance(request, Receive):
            return self._deliver(request.channel)
        assert isinstance(request, Meeting)
        return self._gather(request)

    def _deliver(self, channel: Hashable) -> list[tuple[ProcessId, Any]]:
        messages = self._channels.get(channel)
        answered = []
        for process, request in list(self._waiting.items()):
            if messages and isinstance(request, Receive) and request.channel == channel:
                del self._waiting[process]
                answered.append((process, messages.popleft()))
        return answered

    def _gather(self, meeting: Meeting) -> list[tuple[ProcessId, Any]]:
        payloads = {}
        for process in meeting.participants:
            other = self._waiting.get(process)
            if not isinstance(other, Meeting) or (other.tag, other.participants) != (meeting.tag, meeting.participants):
                return []
            payloads[process] = other.payload
        for process in meeting.participants:
            del self._waiting[process]
        return [(process, payloads) for process in meeting.participants]

    def deadlock(self, module: Module | None = None) -> DeadlockError:
        """The error of those that wait: who they are, where, and for whom; in the words of the module's source."""
        lines = []
        for process, request in sorted(self._waiting.items()):
            where = f" ({request.op.location})" if request.op.location else ""
            lines.append(f"process {process} waits at {request.op.name}{where} for {self._missing(process, request)}")
        first = self._waiting[min(self._waiting)].op
        return DeadlockError("deadlock: " + "; ".join(lines), *at(first, module), op=first.name)

    def _missing(self, process: ProcessId, request: Wait) -> str:
        """Whom a process waits for, and what they are doing instead."""
        if isinstance(request, Receive):
            return f"a message that nobody sends in channel {request.channel}"
        assert isinstance(request, Meeting)
        missing = []
        for p in request.participants:
            other = self._waiting.get(p)
            if p not in self._processes:
                missing.append(f"process {p}, which is not in the grid")
            elif other is None:
                missing.append(f"process {p}, which has ended")
            elif not isinstance(other, Meeting) or (other.tag, other.participants) != (request.tag, request.participants):
                missing.append(f"process {p}, which waits at {other.op.name}")
        return ", ".join(missing)


class Grid:
    """Runs the machines of all processes to their ends, in turns."""

    def __init__(self, machines: dict[ProcessId, Machine]) -> None:
        self._machines = machines

    def run(self) -> None:
        """Runs until all have ended. Raises DeadlockError when some never can, and whatever a process raises."""
        exchange = Exchange(self._machines)
        ready: deque[tuple[ProcessId, Any]] = deque((p, None) for p in self._machines)
        while ready:
            process, answer = ready.popleft()
            request = self._machines[process].run(answer)
            if request is None:
                exchange.end(process)
            else:
                ready += exchange.post(process, request)
        if exchange.is_stuck:
            raise exchange.deadlock(next(iter(self._machines.values())).context.module)
