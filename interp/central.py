"""The grid of processes where each is a process of the machine: one of them keeps the grid's order for all.

A channel without pairs gives its oldest message to the process that asks first. Which one that is follows from the order in
which the grid takes requests (`interp.grid.Grid`). So one process, the first, takes them in that order: the others give theirs to
it and wait for its answers. Between two requests they compute at the same time. The results are those of the grid in one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hlo import Module, Op
from hlo.calls import callees
from hlo.module import walk
from interp.grid import Exchange, Meeting, ProcessId, Receive, Send
from interp.machine import Wait

__all__ = ["CentralTransport", "needs_order"]


def needs_order(module: Module, entry: str) -> bool:
    """Whether a function, or one that it calls, has a channel without `source_target_pairs`."""
    todo, seen = [entry], set()
    while todo:
        name = todo.pop()
        if name in seen or name not in module.functions or module.functions[name].is_declaration:
            continue
        seen.add(name)
        for op in walk(module.functions[name].body):
            if op.name in ("stablehlo.send", "stablehlo.recv") and not op.attr("source_target_pairs"):
                return True
            todo += callees(op)
    return False


@dataclass(frozen=True)
class _Asked:
    """A request in a form that travels: its op by its number in the module."""

    kind: str
    op: int
    parts: tuple[Any, ...]


class CentralTransport:
    """What one process asks of the grid, and, in the first process, the grid.

    `give` hands a value to a process, `take` waits for the next one of a process (an op waits for it). `finish` is called at the
    end of the program. Raises DeadlockError, in the first process, where processes wait that nobody will answer.
    """

    def __init__(
        self, module: Module, process: ProcessId, grid: tuple[int, int], give: Callable[[ProcessId, Any], None],
        take: Callable[[ProcessId, Op | None], Any],
    ) -> None:  # fmt: skip
        self._module, self._me, self._give, self._take = module, process, give, take
        self._ops = [op for f in module.functions.values() if not f.is_declaration for op in walk(f.body)]
        self._numbers = {op: k for k, op in enumerate(self._ops)}
        everyone = [(r, p) for r in range(grid[0]) for p in range(grid[1])]
        self._first = everyone[0]
        self._exchange = Exchange(everyone)
        self._ready: deque[tuple[ProcessId, Any]] = deque((p, None) for p in everyone[1:])  # the first one runs

    # ------------------------------------------------------------ of one process

    def meet(self, op: Op, participants: Sequence[ProcessId], tag: Any, payload: Any) -> Mapping[ProcessId, Any]:
        """Every participant's payload, by process."""
        found: Mapping[ProcessId, Any] = self._ask(Meeting(op, tuple(participants), tag, payload))
        return found

    def send(self, op: Op, channel: Any, payload: Any) -> None:
        """Puts a payload into a channel."""
        self._ask(Send(op, channel, payload))

    def receive(self, op: Op, channel: Any) -> Any:
        """The oldest payload of a channel."""
        return self._ask(Receive(op, channel))

    def finish(self) -> None:
        """This process has ended; the first one goes on until all have."""
        if self._me != self._first:
            self._give(self._first, None)
            return
        self._exchange.end(self._me)
        self._serve()

    def _ask(self, request: Meeting | Send | Receive) -> Any:
        if self._me == self._first:
            self._answered(self._exchange.post(self._me, request))
            return self._serve()
        self._give(self._first, self._asked(request))
        return self._take(self._first, request.op)

    def _asked(self, request: Meeting | Send | Receive) -> _Asked:
        number = self._numbers.get(request.op, -1)
        if isinstance(request, Meeting):
            return _Asked("meeting", number, (request.participants, request.tag, request.payload))
        if isinstance(request, Send):
            return _Asked("send", number, (request.channel, request.payload))
        return _Asked("receive", number, (request.channel,))

    # ------------------------------------------------------------ of the grid

    def _answered(self, answers: Iterable[tuple[ProcessId, Any]]) -> None:
        """Those who go on, in this order; others than this process at once."""
        for process, answer in answers:
            if process != self._me:
                self._give(process, answer)
            self._ready.append((process, answer))

    def _serve(self) -> Any:
        """Takes requests in the grid's order until it is this process's turn, or all have ended."""
        while self._ready:
            process, answer = self._ready.popleft()
            if process == self._me:
                return answer
            asked: _Asked | None = self._take(process, None)
            if asked is None:
                self._exchange.end(process)
            else:
                self._answered(self._exchange.post(process, self._request(asked)))
        if self._exchange.is_stuck:
            raise self._exchange.deadlock(self._module)
        return None

    def _request(self, asked: _Asked) -> Wait:
        kinds: Mapping[str, Callable[..., Wait]] = {"meeting": Meeting, "send": Send, "receive": Receive}
        return kinds[asked.kind](self._ops[asked.op], *asked.parts)
