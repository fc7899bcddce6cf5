"""Several threads at once, and children of forks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest


def _checks_hang_forks() -> bool:
    """Whether glibc's checking allocator is loaded: its locks, which other threads may hold at a fork, stay held in the child."""
    try:
        with open("/proc/self/maps") as f:
            return "libc_malloc_debug" in f.read()
    except OSError:
        return False


needs_fork = pytest.mark.skipif(not hasattr(os, "fork") or _checks_hang_forks(), reason="no fork here, or none that is safe")


def in_threads(work: Callable[[int], None], count: int) -> None:
    """work(0), …, work(count - 1), each in a thread of its own; raises what one of them raises."""
    with ThreadPoolExecutor(count) as pool:
        for _ in pool.map(work, range(count)):
            pass


def exit_code_of(child: int, seconds: float) -> int:
    """The exit code of a child of this process; one that has none after so many seconds hangs, and the test fails."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")
