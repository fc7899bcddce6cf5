"""Garbage collections while a program is planned and compiled: few, for nearly all that is made is kept until that ends.

At Python's own threshold of 700 new objects a collection walks what was made since the last one, and now and then all that
there is, a program's ops and all imported modules included: a third of the time of planning, with next to nothing found. At a
threshold of 100,000 it was still a sixth. So the threshold grows with the program.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["few_collections"]

NEW_OBJECTS = 250_000  # some tens of megabytes
OBJECTS_OF_OP = 1000  # that planning makes for each op of a program, at most: half of it was seen


class _Entered:
    """How many plans are being made, and the threshold from before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.before = gc.get_threshold()

    def enter(self, ops: int) -> None:
        with self.lock:
            now = gc.get_threshold()
            if self.count == 0:
                self.before = now
            if now[0]:
                gc.set_threshold(max(now[0], NEW_OBJECTS + OBJECTS_OF_OP * ops), *now[1:])
            self.count += 1

    def leave(self) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0:
                gc.set_threshold(*self.before)


_ENTERED = _Entered()


@contextmanager
def few_collections(ops: int = 0) -> Iterator[None]:
    """In here the collector waits for 250,000 new objects and 1,000 for each of a program's ops, or for as many more as another
    who is in here asks for; a collector that is off stays off.

    >>> with few_collections():
    ...     gc.get_threshold()[0] >= NEW_OBJECTS
    True
    """
    entered = _ENTERED
    entered.enter(ops)
    try:
        yield
    finally:
        entered.leave()


def _after_fork() -> None:
    """Other threads' plans are not made in the child, and what holds the lock is not there."""
    global _ENTERED
    if _ENTERED.count:
        gc.set_threshold(*_ENTERED.before)
    _ENTERED = _Entered()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
