"""Timelines of calls, by thread and step, as Perfetto and Chrome's tracing read them.

    trace = Trace(names)            room for what one call does; `names` are its steps'
    trace.write(path)               the file: JSON in the trace event format
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from codegen.launcher import words

__all__ = ["Trace"]

MOST_EVENTS = 1 << 20


class Trace:
    """What one call does: pieces of steps that threads ran, and what the caller's thread did between kernels."""

    def __init__(self, names: Sequence[tuple[str, str]], most: int = MOST_EVENTS) -> None:
        """`names` are (name, kind) of every step by its number."""
        self._names = tuple(names)
        self.events = np.zeros(words.EVENT_HEAD_WORDS + words.EVENT_WORDS * most, np.int64)
        self.events[1] = most
        self._others: list[tuple[str, str, int, int]] = []
        self._began = self._ended = 0

    def watched(self, run: Callable[[], Any]) -> Any:
        """What `run()` gives; the whole of it is an event, too."""
        self._began = _now()
        try:
            return run()
        finally:
            self._ended = _now()

    def hosted(self, run: Callable[[int, np.ndarray], None]) -> Callable[[int, np.ndarray], None]:
        """`run`, which runs a step of the evaluator's or of a library's, with an event for each."""

        def watched(number: int, places: np.ndarray) -> None:
            began = _now()
            run(number, places)
            name, kind = self._names[number]
            self._others.append((name, kind, began, _now()))

        return watched

    @property
    def lost(self) -> int:
        """How many events there was no room for."""
        return max(0, int(self.events[0]) - int(self.events[1]))

    def document(self, title: str) -> dict[str, Any]:
        """The events as data, in microseconds from the call's begin."""
        count = min(int(self.events[0]), int(self.events[1]))
        rows = self.events[words.EVENT_HEAD_WORDS :][: count * words.EVENT_WORDS].reshape(count, words.EVENT_WORDS).tolist()
        process = os.getpid()

        def event(name: str, kind: str, thread: int, began: int, ended: int, **more: object) -> dict[str, Any]:
            at, length = (began - self._began) / 1e3, max(0, ended - began) / 1e3
            return {"name": name, "cat": kind, "ph": "X", "ts": at, "dur": length, "pid": process, "tid": thread, "args": more}

        found = [event(title, "call", 0, self._began, self._ended)]
        for number, thread, first, last, began, ended in sorted(rows, key=lambda r: r[4]):
            name, kind = self._names[number]
            found.append(event(name, kind, thread, began, ended, step=number, tasks=[first, last - 1]))
        found += [event(name, kind, 0, began, ended) for name, kind, began, ended in self._others]
        threads = sorted({0, *(r[1] for r in rows)})
        named = {"name": f"tilewright {title}"}
        head: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": process, "args": named}]
        head += [
            {"name": "thread_name", "ph": "M", "pid": process, "tid": k, "args": {"name": f"worker {k}" if k else "caller"}}
            for k in threads
        ]
        return {"displayTimeUnit": "ns", "traceEvents": [*head, *found], "otherData": {"lost_events": self.lost}}

    def write(self, path: str | os.PathLike[str], title: str) -> None:
        """Writes the file."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.document(title), file)


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)  # the launcher's own clock
