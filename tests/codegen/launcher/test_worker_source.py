"""What a worker does between steps, by its source run in Python on a clock of its own: nothing here depends on the machine."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from codegen.launcher import words
from codegen.launcher.run_source import WORKER_SOURCE

SPIN = 50_000


class Clock:
    """A worker and its pool: events at their nanoseconds, and when the worker sleeps."""

    def __init__(self, events: list[tuple[int, int, int]]) -> None:
        self.now, self.events, self.sleeps = 0, sorted(events), list[int]()
        self.pool: defaultdict[int, int] = defaultdict(int, {words.SPIN: SPIN, words.CPU: 0, words.LIMIT: 2})

    def pause(self) -> None:
        self.now += 100
        while self.events and self.events[0][0] <= self.now:
            _, word, value = self.events.pop(0)
            self.pool[word] = value

    def futex_wait(self, pool: Any, word: int, value: int) -> None:
        self.sleeps.append(self.now)
        while self.pool[word] == value and not self.pool[words.STOP]:
            self.pause()

    def run(self) -> list[int]:
        """When a worker sleeps that has no task in any step."""
        step: defaultdict[int, int] = defaultdict(int)

        def add(pool: Any, word: int, value: int) -> int:
            pool[word] += value
            return int(pool[word] - value)

        names: dict[str, Any] = {
            "words": lambda at: {0: [7, 1], 7: self.pool}.get(at, step),
            "atomic_load": lambda pool, word: pool[word],
            "atomic_add": add,
            "clock_ns": lambda: self.now,
            "current_cpu": lambda: 1,
            "pause": self.pause,
            "futex_wait": self.futex_wait,
            "int64": int,
        }
        exec(WORKER_SOURCE, names)  # noqa: S102 (the launcher's own source)
        step[words.CHUNK] = 1
        self.pool[words.STEP] = 99
        names["kernel"](0, 1)
        return self.sleeps


@pytest.mark.parametrize(
    ("pause", "sleeps"), [(SPIN // 2, 0), (2 * SPIN, 1)], ids=["the next step comes soon", "the next step comes late"]
)
def test_the_wait_for_a_step_begins_where_the_last_one_ended(pause: int, sleeps: int) -> None:
    """A worker that had done its part long before the caller slept at once when the call ended, and had to be woken in each."""
    begun, ended = 1_000, 1_000 + 10 * SPIN
    events = [
        (begun, words.SPIN, 100 * SPIN),  # a run has begun
        (begun, words.PHASE, 1),
        (ended, words.PHASE, 2),
        (ended, words.SPIN, SPIN),  # and ended
        (ended + pause, words.PHASE, 3),
        (ended + pause + 1_000, words.STOP, 1),
    ]
    found = Clock(events).run()
    assert len(found) == sleeps
    assert all(ended + SPIN <= at <= ended + pause for at in found)
