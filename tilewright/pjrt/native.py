"""The native functions of `native_source`, compiled and loaded, and what Python does with their records."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from codegen.launcher import native_threads
from codegen.launcher import words as launcher_words
from codegen.native import interrupts
from codegen.native.jit import CompiledKernel, compile_kernels
from codegen.native.signature import KernelSignature
from codegen.target import default_target
from codegen.waiting import wake_all
from tilewright.pjrt import native_source, records
from tilewright.pjrt.layout import ELEMENTS

__all__ = ["NativeFunctions", "State", "c_words", "functions", "state"]

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_NO_BUFFERS = KernelSignature(())
_FOREVER = 1 << 40


class State:
    """The words that native functions share, for the life of the process: memory that is never given back."""

    def __init__(self) -> None:
        room = (ctypes.c_char * (8 * records.STATE_WORDS + records.LINE))()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(room))
        self.address = -(-ctypes.addressof(room) // records.LINE) * records.LINE
        self.words = (ctypes.c_int64 * records.STATE_WORDS).from_address(self.address)
        process = ctypes.CDLL(None)
        addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (process.malloc, process.free)]
        self.words[records.MALLOC], self.words[records.FREE] = addresses
        self.words[records.READY + records.COUNT] = _FOREVER
        self.words[records.READY + records.ENDED] = records.FINE
        self.words[records.SPIN] = launcher_words.SPIN_NANOSECONDS if native_threads.default_threads() > 1 else 0
        items = np.zeros(1 + max(ELEMENTS), np.int64)
        for number, dtype in ELEMENTS.items():
            items[number] = dtype.itemsize
        self._items = items
        self.words[records.ITEM_BYTES] = items.ctypes.data
        self.ready = self.address + 8 * records.READY

    @property
    def living(self) -> int:
        """How many buffers, memories, events and tasks there are."""
        return sum(self.words[records.BUFFERS : records.TASKS + 1])


state = State()


class NativeFunctions:
    """The compiled functions. `entries` are (address, number) by the function of the interface."""

    def __init__(self) -> None:
        helpers = native_source.helpers()
        entries = native_source.entries(1 + max(ELEMENTS))
        sources = [*helpers.values(), *entries.values(), native_source.worker()]
        compiled = compile_kernels([(s, _NO_BUFFERS) for s in sources])
        self._code: list[CompiledKernel] = compiled
        self._helpers: dict[str, Callable[..., None]] = {}
        for name, kernel in zip(helpers, compiled, strict=False):
            state.words[getattr(records, name)] = kernel.entry
            self._helpers[name] = _ENTRY(kernel.entry)
        self.entries: dict[str, tuple[int, int]] = {}
        for names, kernel in zip(entries, compiled[len(helpers) :], strict=False):
            for number, name in enumerate(names):
                self.entries[name] = kernel.entry, number
        self._worker = compiled[-1]
        self._threads: list[Any] = []
        self._libc = ctypes.CDLL(None)
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    # ------------------------------------------------------------ calls

    def help(self, name: str, address: int) -> None:
        """Calls one of the helpers."""
        self._helpers[name](address, state.address, None, None)

    def enter(self, function: str, arguments: int, is_forced: bool = False) -> int:
        """What the native function of an entry answers."""
        entry, number = self.entries[function]
        own = (ctypes.c_int64 * 4)(arguments, records.ASK, state.address, is_forced)
        _ENTRY(entry)(ctypes.addressof(own), number, None, None)
        return own[records.OWN_ANSWER]

    # ------------------------------------------------------------ the thread for long calls

    def have_worker(self) -> None:
        """Starts the thread for long calls where there is none."""
        if state.words[records.WORKERS] or state.words[records.STOP]:
            return
        with self._lock:
            if state.words[records.WORKERS]:
                return
            record = np.array([state.address], np.int64)
            identifier = ctypes.c_ulong()
            entry, given = ctypes.c_void_p(self._worker.entry), ctypes.c_void_p(record.ctypes.data)
            if self._libc.pthread_create(ctypes.byref(identifier), None, entry, given):
                raise MemoryError("the system has no thread for long calls")
            self._threads.append((identifier, record))
            state.words[records.WORKERS] = 1

    def stop(self) -> None:
        """Has what has not begun fail, loops that run end, and waits for the rest: nothing is on its way afterwards."""
        with self._lock:
            if not self._threads:
                return
            state.words[records.STOP] = 1
            interrupts.end_loops(True)
            while state.words[records.TASKS]:
                self._wake()
                threading.Event().wait(1e-3)
            state.words[records.TURN] += 1
            for identifier, _ in self._threads:
                self._wake()
                self._libc.pthread_join(identifier, None)
            self._threads.clear()
            interrupts.end_loops(False)
            state.words[records.WORKERS] = state.words[records.STOP] = 0

    def _wake(self) -> None:
        state.words[records.SIGNAL] += 1
        wake_all(self._libc, default_target().triple, state.address + 8 * records.SIGNAL)

    def _after_fork(self) -> None:
        """The child has none of the threads: what was on its way there never ends."""
        self._threads.clear()
        self._lock = threading.Lock()
        for k in (records.LOCK, records.HEAD, records.PENDING, records.TASKS, records.WORKERS, records.SLEEPERS, records.STOP):
            state.words[k] = 0


def c_words(address: int, count: int) -> Any:
    """Words of C memory."""
    return (ctypes.c_int64 * count).from_address(address)


@functools.cache
def functions() -> NativeFunctions:
    """The native functions of this process: never freed, as a thread may still be in them when the interpreter is gone."""
    made = NativeFunctions()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made
