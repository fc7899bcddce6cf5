"""How a thread sleeps until a word of memory changes, by system; nothing here needs a compiler."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["FUTEX_WAIT", "FUTEX_WAKE", "ULOCK_WAIT", "ULOCK_WAKE_ALL", "sleep_call", "wake_all"]

FUTEX_WAIT, FUTEX_WAKE = 128, 129  # the process-private forms
# of macOS's __ulock_wait and __ulock_wake, by which its own C++ library waits on an address: 32 bits compared, all woken
ULOCK_WAIT, ULOCK_WAKE_ALL = 1, 1 | 0x100


def sleep_call(triple: str) -> int | str:
    """How a thread waits for a word to change: by Linux's system call of this number, by `ulock`, or (`poll`) by looking again.

    >>> sleep_call("x86_64-unknown-linux-gnu"), sleep_call("arm64-apple-darwin24.1.0"), sleep_call("riscv64-unknown-linux-gnu")
    (202, 'ulock', 'poll')
    """
    if "apple" in triple:
        return "ulock"
    known = {"x86_64": 202, "aarch64": 98} if "linux" in triple else {}
    return known.get(triple.partition("-")[0], "poll")


def wake_all(library: Any, triple: str, address: int) -> None:
    """Wakes every thread that waits for the word at an address, from Python: `library` is the process's own, by ctypes."""
    number = sleep_call(triple)
    if number == "ulock":
        getattr(library, "__ulock_wake")(ULOCK_WAKE_ALL, ctypes.c_void_p(address), ctypes.c_uint64(0))
    elif number != "poll":
        library.syscall(number, ctypes.c_void_p(address), FUTEX_WAKE, 1 << 30, None, None, 0)
