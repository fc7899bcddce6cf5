"""How far a long compile is, on a terminal's standard error; nothing at all elsewhere, or where it is over in two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

__all__ = ["Progress"]

PATIENCE_SECONDS = 2.0


class Progress:
    """`done()` counts a kernel of `total`; `end()` clears the line. Several threads may count."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._clock, self._count = total, clock, 0
        self._began, self._is_shown = clock(), False
        self._lock = threading.Lock()

    def done(self) -> None:
        """One more is there."""
        with self._lock:
            self._count += 1
            if self._clock() - self._began >= PATIENCE_SECONDS and sys.stderr is not None and sys.stderr.isatty():
                filled = 24 * self._count // max(1, self._total)
                bar = "#" * filled + "-" * (24 - filled)
                sys.stderr.write(f"\r[{bar}] {self._count} of {self._total} kernels")
                sys.stderr.flush()
                self._is_shown = True

    def end(self) -> None:
        """No more is to be shown."""
        with self._lock:
            if self._is_shown:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
                self._is_shown = False
