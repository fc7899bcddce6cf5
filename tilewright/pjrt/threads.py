"""The threads that run what needs Python: callbacks, the evaluator's ops, programs too large for native calls, copies to hosts.

Work is done in the order in which it came, by one thread; parts of a call of several devices by one thread for each of them.
What such a thread itself asks for (a callback that calls a program) would wait for its own end: it gets a thread of its own,
which stays for more of this kind.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

__all__ = ["call_that_calls_back", "calling_back", "is_own", "outcome", "submit", "submit_together", "unfinished"]


def outcome(work: Callable[[], object]) -> BaseException | None:
    """What some work raises."""
    try:
        work()
    except BaseException as e:  # noqa: BLE001 (whoever waits for the work raises it)
        return e
    return None


class _Level:
    """One thread and its queue; its own work goes to the next level's."""

    def __init__(self, number: int, lane: int) -> None:
        self.number, self.lane = number, lane
        self.condition = threading.Condition()
        self.queue: deque[Callable[[], None]] = deque()
        self.unfinished = 0
        self.thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None]) -> None:
        with self.condition:
            self.queue.append(work)
            self.unfinished += 1
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name=f"tilewright-host-{self.number}-{self.lane}", daemon=True)
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
_levels: dict[tuple[int, int], _Level] = {}
_lock, _together = threading.Lock(), threading.Lock()


def is_own() -> bool:
    """Whether the caller is one of these threads: what it waits for, nobody else may wait behind."""
    return hasattr(_own, "level")


def submit(work: Callable[[], None]) -> None:
    """Has some work done soon; it must not raise."""
    _submit(work, 0)


def submit_together(works: Sequence[Callable[[], None]]) -> None:
    """Has works done at the same time, each by a thread of its own. Two calls' works meet in the same order everywhere."""
    with _together:
        for lane, work in enumerate(works):
            _submit(work, 1 + lane)


def _submit(work: Callable[[], None], lane: int) -> None:
    number = getattr(_own, "level", -1) + 1
    with _lock:
        level = _levels.get((number, lane)) or _levels.setdefault((number, lane), _Level(number, lane))
    level.submit(work)


def unfinished() -> int:
    """How much work is on its way."""
    return sum(level.unfinished for level in list(_levels.values()))


_calling_back: set[object] = set()


@contextlib.contextmanager
def call_that_calls_back() -> Iterator[None]:
    """Around a program that runs and calls functions of Python's: the end of the process waits for it."""
    token = object()
    _calling_back.add(token)
    try:
        yield
    finally:
        _calling_back.discard(token)


def calling_back() -> bool:
    """Whether such a program runs."""
    return bool(_calling_back)


def _after_fork() -> None:
    """The child has none of the threads."""
    global _lock, _together
    _levels.clear()
    _calling_back.clear()
    _lock, _together = threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
