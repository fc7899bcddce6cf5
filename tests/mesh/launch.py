"""Starts processes for the tests."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_STARTS = "TESTS_START_PROCESSES"
SECONDS = 300  # before a test gives up: far more than any of them takes


def launch(processes: int, *command: str, **environment: str) -> subprocess.Popen[str]:
    """`mpiexec -n PROCESSES python COMMAND`, on this machine alone and without a network."""
    mpiexec = pathlib.Path(sys.executable).parent / "mpiexec"
    assert mpiexec.exists(), f"{mpiexec} is missing: pip install -e '.[mpi]' installs it"
    return subprocess.Popen(
        [mpiexec, "-launcher", "fork", "-localhost", "127.0.0.1", "-n", str(processes), sys.executable, *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TILEWRIGHT_COMPILE_PROCESSES": "1", **environment},
    )  # fmt: skip


def starts_processes() -> bool:
    """Whether mpiexec starts processes that meet, here: a container may forbid it. Asked once for all tests' processes."""
    if _STARTS not in os.environ:
        try:
            started = launch(2, "-c", "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(1))")
            told = started.communicate(timeout=SECONDS)[0]
            found = "".join(told.split()) == "22"  # the launcher may pass on one's line in the middle of the other's
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            found = False
        os.environ[_STARTS] = str(int(found))
    return os.environ[_STARTS] == "1"


def run(processes: int, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same, until it has ended. Fails where it does not."""
    started = launch(processes, *command, **environment)
    try:
        out, err = started.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        started.kill()
        raise AssertionError(f"{command} on {processes} processes does not end") from None
    return subprocess.CompletedProcess(list(command), started.returncode, out, err)
