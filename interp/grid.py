"""The process grid: processes take turns in one thread, each running until it ends or has to wait for others.

The order is fixed, so a run can be repeated; and when every process that has not ended waits, none can ever go on:
that is a deadlock, found exactly and at once. Specification: "Parallel execution".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from interp.errors import DeadlockError, at
from interp.machine import Machine, Wait

__all__ = ["Grid", "Meeting", "ProcessId", "Receive", "Send"]

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


class Grid:
    """Runs the machines of all processes to their ends."""

    def __init__(self, machines: dict[ProcessId, Machine]) -> None:
        self._machines = machines
        self._ready: deque[tuple[ProcessId, Any]] = deque((p, None) for p in machines)
        self._waiting: dict[ProcessId, Wait] = {}
        self._channels: dict[Hashable, deque[Any]] = {}

    def run(self) -> None:
        """Runs until all have ended. Raises DeadlockError when some never can, and whatever a process raises."""
        while self._ready:
            process, answer = self._ready.popleft()
            request = self._machines[process].run(answer)
            if isinstance(request, Send):
                self._channels.setdefault(request.channel, deque()).append(request.payload)
                self._ready.append((process, None))
                self._deliver(request.channel)
            elif isinstance(request, Receive):
                self._waiting[process] = request
                self._deliver(request.channel)
            elif isinstance(request, Meeting):
                self._waiting[process] = request
                self._gather(request)
        if self._waiting:
            raise self._deadlock()

    def _deliver(self, channel: Hashable) -> None:
        messages = self._channels.get(channel)
        for process, request in list(self._waiting.items()):
            if messages and isinstance(request, Receive) and request.channel == channel:
                del self._waiting[process]
                self._ready.append((process, messages.popleft()))

    def _gather(self, meeting: Meeting) -> None:
        payloads = {}
        for process in meeting.participants:
            other = self._waiting.get(process)
            if not isinstance(other, Meeting) or (other.tag, other.participants) != (meeting.tag, meeting.participants):
                return
            payloads[process] = other.payload
        for process in meeting.participants:
            del self._waiting[process]
            self._ready.append((process, payloads))

    def _deadlock(self) -> DeadlockError:
        lines = []
        for process, request in sorted(self._waiting.items()):
            where = f" ({request.op.location})" if request.op.location else ""
            lines.append(f"process {process} waits at {request.op.name}{where} for {self._missing(process, request)}")
        first = self._waiting[min(self._waiting)].op
        module = next(iter(self._machines.values())).context.module
        return DeadlockError("deadlock: " + "; ".join(lines), *at(first, module), op=first.name)

    def _missing(self, process: ProcessId, request: Wait) -> str:
        """Whom a process waits for, and what they are doing instead."""
        if isinstance(request, Receive):
            return f"a message that nobody sends in channel {request.channel}"
        assert isinstance(request, Meeting)
        missing = []
        for p in request.participants:
            other = self._waiting.get(p)
            if p not in self._machines:
                missing.append(f"process {p}, which is not in the grid")
            elif other is None:
                missing.append(f"process {p}, which has ended")
            elif not isinstance(other, Meeting) or (other.tag, other.participants) != (request.tag, request.participants):
                missing.append(f"process {p}, which waits at {other.op.name}")
        return ", ".join(missing)
