"""The worker threads of this process, and the launcher's own machine code.

Workers are plain pthreads that run compiled code only: they spin for a millisecond between steps, between runs for an eighth of
what the last one took (fifty microseconds at least), then sleep on a futex. A call that finds the pool busy (another Python
thread, or a kernel started from within a run) runs on its own alone.
After a fork the child starts a new pool; at exit the workers are told to stop and are joined.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from typing import Any

import numpy as np

from codegen.launcher import run_source, words
from codegen.native.jit import CompiledKernel, compile_kernel
from codegen.native.signature import KernelSignature
from codegen.target import default_target
from codegen.waiting import wake_all
from hlo.cpus import usable_cpus
from hlo.settings import positive_setting

NO_BUFFERS = KernelSignature(())
_ENTRY_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_runner: Any = None
_worker: CompiledKernel | None = None
_owner: CompiledKernel | None = None


def default_threads() -> int:
    """The threads of a run that names none: TILEWRIGHT_NUM_THREADS, else the CPUs that affinity and quota leave to the process.

    Raises SettingError when the variable is not a positive number.
    """
    wanted = positive_setting("TILEWRIGHT_NUM_THREADS")
    if wanted is not None:
        return wanted
    return usable_cpus()


def runner_entry() -> int:
    """The address of the run's compiled function, which takes the address of a run's record."""
    get_runner()
    return int(_runner[1].entry)


def get_runner() -> Any:
    """The run's compiled function."""
    global _runner
    if _runner is None:
        kernel = compile_kernel(run_source.RUN_SOURCE, NO_BUFFERS)
        # the kernel beside the function keeps the machine code
        _runner = (_ENTRY_TYPE(kernel.entry), kernel)
    return _runner[0]


def _get_owner() -> CompiledKernel:
    global _owner
    if _owner is None:
        _owner = compile_kernel(run_source.OWN_SOURCE, NO_BUFFERS)
    return _owner


def _get_worker() -> CompiledKernel:
    global _worker
    if _worker is None:
        _worker = compile_kernel(run_source.WORKER_SOURCE, NO_BUFFERS)
    return _worker


def prepare(with_workers: bool = True) -> None:
    """Has the launcher's machine code loaded, compiled where it must be: no program runs without it."""
    get_runner()
    if with_workers and default_threads() > 1:
        _get_worker()
        _get_owner()


class Pool:
    """The worker threads of this process and their shared state."""

    def __init__(self) -> None:
        self.run_lock = threading.Lock()
        raw = np.zeros(words.STATE_WORDS + 8, np.int64)
        self.state = raw[(-raw.ctypes.data % 64) // 8 :][:words.STATE_WORDS]
        self.address = self.state.ctypes.data
        # spinning would only keep the other thread from its core when there is one core
        if default_threads() > 1:
            self.state[[words.SPIN, words.BETWEEN]] = words.SPIN_NANOSECONDS
            self.state[words.WITHIN] = words.SPIN_WITHIN_NANOSECONDS
        self.records: list[Any] = []
        self.threads: list[Any] = []
        self._libc = ctypes.CDLL(None)
        self._worker = _get_worker()
        self._own = _get_owner()

    def grow(self, threads: int) -> int:
        """Have at least ``threads`` - 1 workers; returns the threads there are (fewer if the system refuses), at most that."""
        while len(self.threads) < threads - 1:
            record = np.array([self.state.ctypes.data, len(self.threads) + 1], np.int64)
            identifier = ctypes.c_ulong()
            failed = self._libc.pthread_create(
                ctypes.byref(identifier), None, ctypes.c_void_p(self._worker.entry), ctypes.c_void_p(record.ctypes.data)
            )
            if failed:
                return len(self.threads) + 1
            self.records.append(record)
            self.threads.append(identifier)
            self.state[words.WORKERS] = len(self.threads)
        return threads

    def stop(self) -> None:
        """Tell the workers to return and wait until they have."""
        with self.run_lock:
            self._wait_until_free()
            self.state[words.STOP] = 1
            # an even phase: nobody takes it for an open step
            self.state[words.PHASE] += 2
            wake_all(self._libc, default_target().triple, self.state.ctypes.data)
            for identifier in self.threads:
                self._libc.pthread_join(identifier, None)
            self.threads.clear()

    def _wait_until_free(self) -> None:
        """Returns when no run without the interpreter (`codegen.call.xla_call`) has the workers; none gets them again."""
        asked = np.array([self.address, 0], np.int64)
        ask = _ENTRY_TYPE(self._own.entry)
        while not asked[1]:
            ask(asked.ctypes.data, 0, None, None)
            if not asked[1]:
                time.sleep(1e-3)


_pool: Pool | None = None
_pool_lock = threading.RLock()  # reentrant: a signal's handler or a finalizer may call in the middle of the first call


def get_pool() -> Pool:
    """The threads of this process, made by the first that asks."""
    global _pool
    with _pool_lock:
        if _pool is None:
            made = Pool()
            if _pool is None:  # no call in the middle has made one
                _pool = made
                _pool_cell.value = made.address
                atexit.register(made.stop)
        return _pool


_pool_cell = ctypes.c_int64(0)  # the address of the pool's state for runs that begin without the interpreter; 0: there is none


def pool_cell_address() -> int:
    """The address of a word that holds the address of this process' pool, or 0."""
    return ctypes.addressof(_pool_cell)


def have_workers(threads: int) -> None:
    """Starts the workers for runs of so many threads that will not ask for them; once in a process, and in its child."""
    pool = _pool
    if pool is not None and _pool_cell.value and pool.state[words.WORKERS] >= threads - 1:
        return
    pool = get_pool()
    if pool.run_lock.acquire(blocking=False):  # who has it has workers
        try:
            pool.grow(threads)
        finally:
            pool.run_lock.release()


def _after_fork() -> None:
    """The child has none of the workers: forget the pool, whatever state its locks were in."""
    global _pool, _pool_lock
    if _pool is not None:
        atexit.unregister(_pool.stop)
    _pool = None
    _pool_cell.value = 0
    _pool_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
