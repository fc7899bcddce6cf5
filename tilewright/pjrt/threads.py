"""The threads that run what needs Python: callbacks, the evaluator's ops, programs too large for native calls, copies to hosts.

Work is done in the order in which it came, by one thread. What that thread itself asks for (a callback that calls a program)
would wait for its own end: it gets a thread of its own, which stays for more of this kind.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["is_own", "outcome", "submit", "unfinished"]


def outcome(work: Callable[[], object]) -> BaseException | None:
    """What some work raises."""
    try:
        work()
    except BaseException as e:  # noqa: BLE001 (whoever waits for the work raises it)
        return e
    return None


class _Level:
    """One thread and its queue; its own work goes to the next level's."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.condition = threading.Condition()
        self.queue: deque[Callable[[], None]] = deque()
        self.unfinished = 0
        self.thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None]) -> None:
        with self.condition:
            self.queue.append(work)
            self.unfinished += 1
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name=f"tilewright-host-{self.number}", daemon=True)
                self.thread.start()
            self.condition.notify()

    def _run(self) -> None:
        _own.level = self.number
        while True:
            with self.condition:
                while not self.queue:
                    self.condition.wait()
                work = self.queue.popleft()
            work()
            del work  # not kept until the next one comes
            with self.condition:
                self.unfinished -= 1


_own = threading.local()
_levels: list[_Level] = []
_lock = threading.Lock()


def is_own() -> bool:
    """Whether the caller is one of these threads: what it waits for, nobody else may wait behind."""
    return hasattr(_own, "level")


def submit(work: Callable[[], None]) -> None:
    """Has some work done soon; it must not raise."""
    number = getattr(_own, "level", -1) + 1
    with _lock:
        while len(_levels) <= number:
            _levels.append(_Level(len(_levels)))
    _levels[number].submit(work)


def unfinished() -> int:
    """How much work is on its way."""
    return sum(level.unfinished for level in _levels)


def _after_fork() -> None:
    """The child has none of the threads."""
    global _lock
    _levels.clear()
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
