"""The machine code of a program in this process: loaded from memory, called by ctypes, stopped by signals."""

from __future__ import annotations

import _ctypes
import ctypes
import itertools
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

__all__ = ["Call", "Library", "Stops"]

_log = logging.getLogger("tilewright.runtime")
_loads = itertools.count(1)
PREFIX = "tilewright_program"
DONE, STOPPED = 0, 4


class Call(ctypes.Structure):
    """The record of a call, as the header that is exported with C libraries has it."""

    _fields_ = (
        ("arguments", ctypes.c_void_p), ("results", ctypes.c_void_p), ("constants", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t), ("threads", ctypes.c_void_p),
        ("stop", ctypes.c_void_p),
        ("stop_context", ctypes.c_void_p), ("step_nanoseconds", ctypes.c_void_p),
    )  # fmt: skip


class Library:
    """A program's shared library. Raises OSError where the system does not load it."""

    def __init__(self, code: bytes) -> None:
        self._library = _loaded(code)
        self.run = self._function("run_call", ctypes.c_int, ctypes.c_void_p)
        self.workspace_bytes = self._function("workspace_bytes", ctypes.c_size_t, ctypes.c_int)
        self.message = self._function("message", ctypes.c_char_p, ctypes.c_int)
        self.threads_start = self._function("threads_start", ctypes.c_void_p, ctypes.c_int)
        self.threads_count = self._function("threads_count", ctypes.c_int, ctypes.c_void_p)
        self.threads_stop = self._function("threads_stop", None, ctypes.c_void_p)
        self.interface = self._function("interface", ctypes.c_char_p)
        self.stop_address = ctypes.cast(getattr(self._library, f"{PREFIX}_stop_for_python"), ctypes.c_void_p).value

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        found = getattr(self._library, f"{PREFIX}_{name}")
        found.restype, found.argtypes = result, arguments
        return found

    def unload(self) -> None:
        """Gives the code's memory back, when no call is in it or comes to it any more."""
        if sys.platform != "win32":
            _ctypes.dlclose(self._library._handle)


def _loaded(code: bytes) -> ctypes.CDLL:
    """The library from memory, or (where the system does not have, or does not run, what lies there) from a file of this user's
    that is gone once it is loaded."""
    if hasattr(os, "memfd_create"):
        try:
            return _from_memory(code)
        except OSError as error:
            _log.info("code is loaded from a file: %s", error)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = os.path.join(folder, "program.so")
        with open(path, "wb") as file:
            file.write(code)
        return ctypes.CDLL(path)


def _from_memory(code: bytes) -> ctypes.CDLL:
    handle = os.memfd_create("tilewright", os.MFD_CLOEXEC)
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(code)
        # The loader takes a path that it has seen before for the library of then: numbers of files are used again, so each load
        # has its own way to write one, by single and double slashes.
        way = f"{next(_loads):b}".replace("0", "/").replace("1", "./")
        return ctypes.CDLL(f"/proc/self/fd/{way}{handle}")
    finally:
        os.close(handle)


class Stops(ctypes.Structure):
    """What the library's `stop_for_python` asks with: four functions of Python's, and what a signal's handler has raised."""

    _fields_ = (
        ("ensure", ctypes.c_void_p), ("check", ctypes.c_void_p), ("fetch", ctypes.c_void_p), ("release", ctypes.c_void_p),
        ("raised", ctypes.c_void_p * 3),
    )  # fmt: skip

    def raise_pending(self) -> None:
        """Raises what the handler raised."""
        restore = ctypes.pythonapi.PyErr_Restore
        restore.restype, restore.argtypes = None, (ctypes.c_void_p,) * 3
        own: Any = self
        raised = list(own.raised)
        own.raised = (ctypes.c_void_p * 3)()
        restore(*raised)


_NAMES: Sequence[str] = ("PyGILState_Ensure", "PyErr_CheckSignals", "PyErr_Fetch", "PyGILState_Release")


def stops() -> Stops | None:
    """What a call of this thread stops by; None in other threads than the main one, where no handler runs."""
    if threading.current_thread() is not threading.main_thread():
        return None
    made = Stops()
    for (field, _), name in zip(Stops._fields_, _NAMES, strict=False):
        setattr(made, field, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
    return made
