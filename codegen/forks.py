"""The lock of everything that compiles, and what a fork does with it.

A child of a fork has one thread and a copy of every lock as it was: one that another thread held is never released there, and
what that thread was changing stays half changed. Numba, LLVM and the import system are such things. Whoever compiles, loads code
or imports what compiles therefore holds `compiling`, and a fork waits until nobody does, also not with numba's or llvmlite's own
lock (a program may use both on its own account). Parent and child then let go of them.
"""

from __future__ import annotations

import logging  # noqa: F401 (its handlers of forks come first, see below)
import os
import sys
import threading
from typing import Any

__all__ = ["before_fork", "compiling"]

class _CompileLock:
    """A reentrant lock that a fork gets before the threads that ask for it later: those who compile one kernel after another
    would never let it in."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._door = threading.Lock()
        self._owner = 0
        self._depth = 0

    def __enter__(self) -> None:
        if self._owner != threading.get_ident():
            with self._door:
                """Whoever waits for a fork has it."""
        self._take()

    def __exit__(self, *error: object) -> None:
        self._leave()

    def _take(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()
        self._depth += 1

    def _leave(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = 0
        self._lock.release()

    def is_mine(self) -> bool:
        """True in the thread that has the lock."""
        return self._owner == threading.get_ident()

    def hold(self) -> Any:
        """Takes the lock for a fork; returns what gives it back."""
        within = self.is_mine()  # a fork in the middle of a compile of this very thread
        if not within:
            self._door.acquire()
        self._take()

        def release() -> None:
            self._leave()
            if not within:
                self._door.release()

        return release


compiling = _CompileLock()
_held: list[Any] = []


def _foreign() -> list[Any]:
    """The locks of numba and llvmlite, in the order in which numba takes them."""
    numba, llvmlite = sys.modules.get("numba.core.compiler_lock"), sys.modules.get("llvmlite.binding.ffi")
    found = (getattr(numba, "global_compiler_lock", None), getattr(getattr(llvmlite, "lib", None), "_lock", None))
    # what is inside them: their own methods tell listeners, which have no business in a fork
    return [getattr(lock, "_lock", None) for lock in found if lock is not None]


def before_fork() -> None:
    """Takes every lock that whoever compiles holds, once for a fork; the front door asks, too, when it waited for an import."""
    if _held and compiling.is_mine():
        return
    release = compiling.hold()
    _held.append(release)
    for lock in _foreign():
        if lock is not None:
            lock.acquire()
            _held.append(lock.release)


def _after() -> None:
    while _held:
        _held.pop()()


# What is registered last is asked first. `logging` takes its lock before a fork, too, and registered that when it was imported
# above: so a fork waits for a compile, which may log, without that lock in its hands.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=before_fork, after_in_parent=_after, after_in_child=_after)
