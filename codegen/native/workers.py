"""Independent kernels compiled in parallel processes: numba and LLVM hold one lock each, so threads would not help.

The caller and its helpers take kernels from one list, the longest first, and the caller loads what they made. A helper is a
fresh Python process (`codegen.native.helper`) that talks over two pipes: nothing is forked, so threads and locks of this process
do not matter. Helpers live as long as one call. Whatever becomes of one (it cannot be started, it is killed), its kernel is
compiled by the caller.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from codegen.kernel.ir import Kernel
from codegen.native.signature import KernelSignature
from codegen.target import Target

__all__ = ["Job", "Made", "command", "compile_jobs", "helpers_for"]

_log = logging.getLogger("tilewright.codegen")

# What compiling takes, seconds, roughly: it only decides whether a helper's start pays.
_KERNEL_SECONDS, _LINE_SECONDS, _BLOCK_SECONDS = 0.016, 0.001, 0.1
_START_SECONDS = 0.4
_MOST_HELPERS = 7
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
class Made:
    """What a job gave: the library functions that it calls, its object code, and the functions' that were new."""

    functions: tuple[str, ...]
    code: bytes
    library: dict[str, bytes]


def helpers_for(jobs: Sequence[Job]) -> int:
    """How many processes to start for ``jobs``: none where one core, or a little work, is all there is.

    TILEWRIGHT_COMPILE_PROCESSES sets the number of processes that compile, the caller's included. Raises SettingError when it is
    no positive number.
    """
    if "python" not in os.path.basename(sys.executable or ""):
        return 0  # an application that has Python inside: its program is no interpreter
    from hlo.cpus import usable_cpus  # here: a helper process does without hlo
    from hlo.settings import positive_setting

    wanted = positive_setting("TILEWRIGHT_COMPILE_PROCESSES")
    if wanted is not None:
        return max(0, min(wanted - 1, len(jobs) - 1))
    cores = usable_cpus()
    work = sum(j.seconds for j in jobs)
    return max(0, min(cores - 1, len(jobs) - 1, _MOST_HELPERS, int(work / (2 * _START_SECONDS))))


def compile_jobs(jobs: Sequence[Job], helpers: int, arrived: Callable[[Job, Made], None], own: Callable[[Job], None]) -> None:
    """Run every job once: ``own`` here, or in one of ``helpers`` processes, whose results go to ``arrived`` (in a thread).

    A job that a helper could not do is done here, so that its error is raised here.
    """
    waiting = deque(sorted(jobs, key=lambda j: -j.seconds))
    left: deque[Job] = deque()
    processes: list[subprocess.Popen[bytes]] = []
    threads: list[threading.Thread] = []
    try:
        for _ in range(helpers):
            try:
                process = _start()
            except OSError as error:
                _log.warning("no process to compile in: %s", error)
                break
            processes.append(process)
            threads.append(threading.Thread(target=_feed, args=(process, waiting, left, arrived), daemon=True))
            threads[-1].start()
        while (job := _take(waiting)) is not None:
            own(job)
        for thread in threads:
            thread.join()
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
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    _close(pipe)


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
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        start_new_session=True,  # an interrupt at the terminal is the caller's to handle
    )


def _feed(
    process: subprocess.Popen[bytes], waiting: deque[Job], left: deque[Job], arrived: Callable[[Job, Made], None]
) -> None:
    """Hand jobs to one process until there are none, or it fails."""
    assert process.stdin is not None and process.stdout is not None
    while (job := _take(waiting)) is not None:
        try:
            pickle.dump(job, process.stdin)
            process.stdin.flush()
            made = pickle.load(process.stdout)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
            _log.debug("a helper is gone: %s", error)
            made = None
        if not isinstance(made, Made):
            left.append(job)
            if made is None:
                return
            continue
        arrived(job, made)
