"""Progress on a terminal's standard error; nothing at all in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Clock"]


class Clock:
    """Times the named steps of a command, and shows the one that is running.

    >>> clock = Clock()
    >>> with clock.step("adding", "sum"):
    ...     total = 1 + 1
    >>> list(clock.seconds), clock.seconds["sum"] >= 0
    (['sum'], True)
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, text: str, key: str) -> Iterator[None]:
        """Runs the block as the step `key`, shown as `text`; its seconds add up under `key`."""
        start = time.perf_counter()
        try:
            if sys.stderr.isatty():
                from rich.console import Console

                with Console(stderr=True).status(text + " …"):
                    yield
            else:
                yield
        finally:
            self.seconds[key] = self.seconds.get(key, 0.0) + time.perf_counter() - start
