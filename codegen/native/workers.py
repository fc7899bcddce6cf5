"""Independent kernels compiled in parallel processes: numba and LLVM hold one lock each, so threads would not help.

The caller and its helpers take kernels from one list, the longest first, and the caller loads what they made. A helper is a
fresh Python process (`codegen.native.helper`) that talks over two pipes: nothing is forked, so threads and locks of this process
do not matter. Helpers live as long as one call. A helper takes no kernel before it has loaded what compiles, so that nobody waits
for its start. Whatever becomes of one (it cannot be started, it is killed), its kernel is compiled by the caller.

Where it is known before that kernels are going to be compiled, helpers are started early (`start_early`): they load numba while
this process still plans, and the next call takes them. One that nobody takes ends by itself (`IDLE_SECONDS`).
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, TypeAlias

from codegen.kernel.ir import Kernel
from codegen.native.signature import KernelSignature
from codegen.target import Target

__all__ = [
    "IDLE_SECONDS",
    "Errand",
    "Job",
    "Made",
    "Ping",
    "command",
    "compile_jobs",
    "end",
    "helpers_for",
    "is_prepared",
    "let_go",
    "may_help",
    "next_helper",
    "start_early",
]

_log = logging.getLogger("tilewright.codegen")

# What compiling takes, seconds, roughly: it only decides whether a helper's start pays.
_KERNEL_SECONDS, _LINE_SECONDS, _BLOCK_SECONDS = 0.008, 0.0005, 0.02
_START_SECONDS = 0.3
_LITTLE_SECONDS = 0.3  # of work that one process does alone: another one has to load what compiles first
_MOST_HELPERS = 7
IDLE_SECONDS = 30  # what a helper waits for its first kernel
_IMPORTED = ("numba", "llvmlite", "numpy", "ml_dtypes", "islpy", "sympy", "mpmath")  # by helpers, beside Tilewright itself


@dataclass(frozen=True)
class Job:
    """One kernel to compile: its key, its source with the path it is kept at, its signature and target, and its tree (if any)."""

    key: str
    source: str
    path: str
    signature: KernelSignature
    target: Target
    kernel: Kernel | None = None

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        lines = self.source.count("\n")
        return _KERNEL_SECONDS + _LINE_SECONDS * lines + _BLOCK_SECONDS * self.source.count("gemm_")


@dataclass(frozen=True)
class Errand:
    """Anything else that a helper is to do: call a function by its names, with a text. None is its answer, or what went wrong."""

    module: str
    function: str
    argument: str


@dataclass(frozen=True)
class Ping:
    """What a helper gives back at once, when it is ready."""


@dataclass(frozen=True)
class Made:
    """What a job gave: the library functions that it calls, its object code, and the functions' that were new."""

    functions: tuple[str, ...]
    code: bytes
    library: dict[str, bytes]


Results: TypeAlias = "queue.SimpleQueue[tuple[Job, Made] | threading.Thread]"
"""What helpers made, and threads that will hand over no more."""


def is_prepared() -> bool:
    """Whether this process has loaded what lowering a kernel needs."""
    return "codegen.native.front_walk" in sys.modules


def may_help() -> int:
    """How many processes may compile beside the caller: one less than the cores, or than TILEWRIGHT_COMPILE_PROCESSES says.

    Raises SettingError when that is no positive number.
    """
    if "python" not in os.path.basename(sys.executable or ""):
        return 0  # an application that has Python inside: its program is no interpreter
    from hlo.cpus import usable_cpus  # here: a helper process does without hlo
    from hlo.settings import positive_setting

    wanted = positive_setting("TILEWRIGHT_COMPILE_PROCESSES")
    return min(usable_cpus() - 1, _MOST_HELPERS) if wanted is None else wanted - 1


def helpers_for(jobs: Sequence[Job]) -> int:
    """How many processes are to compile ``jobs`` beside the caller: none where one core, or a little work, is all there is.

    Those that were started early cost nothing more. Raises SettingError when TILEWRIGHT_COMPILE_PROCESSES is no positive number.
    """
    most = min(may_help(), len(jobs) - 1)
    if not os.environ.get("TILEWRIGHT_COMPILE_PROCESSES", "").strip():
        seconds = sum(j.seconds for j in jobs)
        most = min(most, max(int(seconds / (2 * _START_SECONDS)), len(_spare) if seconds > _LITTLE_SECONDS else 0))
    return max(0, most)


_spare: dict[subprocess.Popen[bytes], object] = {}
"""Helpers that were started early and have no caller yet, with the surroundings that they were started in."""
_spare_lock = threading.RLock()


def start_early() -> None:
    """Starts a helper for the next call that compiles, where there may be one and none waits already."""
    if may_help() < 1:
        return
    with _spare_lock:
        _drop_stale()
        if not _spare:
            try:
                _spare[_start()] = _surroundings()
            except OSError as error:
                _log.warning("no process to compile in: %s", error)


def next_helper() -> subprocess.Popen[bytes]:
    """A helper that was started early, or a new one; it is the caller's to `end`. Raises OSError where none can be started."""
    with _spare_lock:
        _drop_stale()
        return _spare.popitem()[0] if _spare else _start()


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a helper."""
    process.kill()
    process.wait()
    _close_pipes(process)


def let_go(process: subprocess.Popen[bytes]) -> None:
    """What the child of a fork does with a helper of its parent's: it closes its ends of the pipes, or no end would be seen."""
    process.returncode = 0  # not the child's to wait for
    _close_pipes(process)


def _surroundings() -> object:
    """What a helper takes over from this process when it is started, as far as it counts."""
    own = {k: v for k, v in os.environ.items() if k.startswith("TILEWRIGHT_") or k in ("XDG_CACHE_HOME", "HOME")}
    return own, os.getcwd()


def _drop_stale() -> None:
    """Ends the spare helpers that others' settings were given, and those that have ended."""
    now = _surroundings()
    for process in [p for p, around in _spare.items() if p.poll() is not None or around != now]:
        del _spare[process]
        end(process)


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            _close(pipe)


def _stop() -> None:
    with _spare_lock:
        while _spare:
            end(_spare.popitem()[0])


def _after_fork() -> None:
    global _spare_lock
    _spare_lock = threading.RLock()
    while _spare:
        let_go(_spare.popitem()[0])


atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def compile_jobs(jobs: Sequence[Job], helpers: int, arrived: Callable[[Job, Made], None], own: Callable[[Job], None]) -> None:
    """Run every job once: ``own`` here, or in one of ``helpers`` processes, whose results go to ``arrived`` between jobs of here.

    (A thread that hands jobs to a helper would wait for LLVM's lock with each result, and the helper for its next job.)
    A job that a helper could not do is done here, so that its error is raised here. Helpers that are not ready when all jobs are
    taken are not waited for.
    """
    waiting = deque(sorted(jobs, key=lambda j: -j.seconds))
    results: Results = queue.SimpleQueue()
    left: deque[Job] = deque()
    processes: list[subprocess.Popen[bytes]] = []
    threads: list[threading.Thread] = []
    ready: list[threading.Thread] = []
    ended: set[threading.Thread | None] = set()
    try:
        for _ in range(helpers):
            try:
                process = next_helper()
            except OSError as error:
                _log.warning("no process to compile in: %s", error)
                break
            processes.append(process)
            threads.append(threading.Thread(target=_feed, args=(process, waiting, left, ready, results), daemon=True))
            threads[-1].start()
        while (job := _take(waiting)) is not None:
            own(job)
            while not results.empty():
                ended.add(_deliver(results, arrived))
        helping = {*ready}  # who says so from now on finds no job
        while not helping <= ended:
            ended.add(_deliver(results, arrived))
        while (job := _take(left)) is not None:
            own(job)
    finally:
        waiting.clear()
        for process in processes:
            process.kill()
            process.wait()
        for thread in threads:
            thread.join()
        for process in processes:
            end(process)


def _deliver(results: Results, arrived: Callable[[Job, Made], None]) -> threading.Thread | None:
    """Hands on the next result, or gives back the thread that will have no more."""
    found = results.get()
    if isinstance(found, threading.Thread):
        return found
    arrived(*found)
    return None


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except OSError as error:  # what was still buffered for a process that is gone
        _log.debug("a helper's pipe: %s", error)


def _take(jobs: deque[Job]) -> Job | None:
    try:
        return jobs.popleft()
    except IndexError:
        return None


def _home_of(name: str) -> str | None:
    """The folder that a package of this process was, or would be, imported from."""
    spec = importlib.util.find_spec(name)
    return os.path.dirname(os.path.dirname(os.path.abspath(spec.origin))) if spec and spec.origin else None


def command() -> list[str]:
    """What starts a helper: a script by its path, and the folders of what it imports.

    `python -c` and `python -m` look in the working folder first, and a PYTHONPATH with an empty entry does so, too: a helper is
    told where this process found each package, and looks nowhere else.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    folders = dict.fromkeys([os.path.dirname(os.path.dirname(here)), *filter(None, map(_home_of, _IMPORTED))])
    return [sys.executable, "-P", "-s", "-B", os.path.join(here, "helper.py"), *folders]


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # NumPy's BLAS would start a thread for each core, which takes as long as the rest of NumPy, for no product at all
        env={**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,  # an interrupt at the terminal is the caller's to handle
    )


def _feed(
    process: subprocess.Popen[bytes], waiting: deque[Job], left: deque[Job], ready: list[threading.Thread], results: Results
) -> None:
    """Hand jobs to one process, once it is ready, until there are none, or it fails."""
    if not isinstance(_asked(process, Ping()), Ping):
        return
    ready.append(threading.current_thread())
    try:
        while (job := _take(waiting)) is not None:
            made = _asked(process, job)
            if isinstance(made, Made):
                results.put((job, made))
                continue
            left.append(job)
            if made is None:
                return
    finally:
        results.put(threading.current_thread())


def _asked(process: subprocess.Popen[bytes], job: Job | Ping) -> object:
    """What a helper answers; None where it is gone."""
    assert process.stdin is not None and process.stdout is not None
    try:
        pickle.dump(job, process.stdin)
        process.stdin.flush()
        return pickle.load(process.stdout)
    except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
        _log.debug("a helper is gone: %s", error)
        return None
