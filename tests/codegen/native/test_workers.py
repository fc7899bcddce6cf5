"""Kernels compiled in several processes: the same results, nothing left behind, and no harm when a process fails."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

import numpy as np
import pytest

from codegen.forks import compiling
from codegen.native import jit, library_objects, workers
from codegen.native.jit import compile_kernels
from codegen.native.signature import KernelSignature, Param
from codegen.target import default_target
from codegen.tune.probe import run

ROOT = Path(__file__).resolve().parents[3]
SLEEPING = "import time; time.sleep(60)"
SIGNATURE = KernelSignature((Param("x", "float32"), Param("y", "float32")))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, nothing in memory, and three processes to compile in."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "3")
    monkeypatch.setattr(jit, "_kernels", {})
    monkeypatch.setattr(library_objects, "_loaded", {})
    jit.stats.reset()
    return tmp_path


def source(k: int) -> str:
    """y = x @ (x's own memory) at another size for each k, and exp of one element."""
    n = 16 + 8 * k
    return (
        "def kernel(begin, end, x, y):\n    for i in range(begin, end):\n"
        f"        gemm_block({n}, 64, {n}, x, 0, {n}, 1, x, 0, 64, 64, y, 0, 64, False, 64)\n"
        f"        y[0] = exp(float32({k}))\n"
    )


def check(count: int) -> None:
    kernels = compile_kernels([(source(k), SIGNATURE) for k in range(count)])
    for k, kernel in enumerate(kernels):
        n = 16 + 8 * k
        x = np.random.default_rng(k).standard_normal(64 * 64).astype(np.float32)
        y = np.zeros(n * 64, np.float32)
        run(kernel, 0, 1, x, y)
        want = (x[: n * n].reshape(n, n) @ x[: n * 64].reshape(n, 64)).reshape(-1)
        want[0] = np.exp(np.float32(k))
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


def children() -> set[str]:
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_several_processes_compile_each_kernel_once_and_are_gone_afterwards(cache: Path) -> None:
    before = children() if Path("/proc/self/task").is_dir() else set()
    check(5)
    assert jit.stats.compiled == 5
    assert jit.stats.memory_hits == 0
    assert not list(cache.rglob(".new-*"))
    if Path("/proc/self/task").is_dir():
        assert children() <= before


def test_what_they_made_is_in_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(4)
    jit.forget_kernels()
    monkeypatch.setattr(library_objects, "_loaded", {})
    check(4)
    assert (jit.stats.compiled, jit.stats.disk_hits) == (4, 4)


def test_without_a_cache_results_come_through_the_pipes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_NO_CACHE", "1")
    check(4)
    assert jit.stats.compiled == 4
    assert not [p for p in cache.rglob("*") if p.is_file()]


@pytest.mark.parametrize("program", ["pass", "import sys; sys.stdin.read(1); sys.exit(1)", "print('no pickle', flush=True)"])
def test_a_process_that_fails_costs_only_its_help(cache: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(workers, "_start", start)
    check(4)
    assert jit.stats.compiled == 4


def test_a_process_that_is_not_ready_is_not_waited_for(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen([sys.executable, "-c", SLEEPING], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return made[-1]

    monkeypatch.setattr(workers, "_start", start)
    check(2)
    assert jit.stats.compiled == 2
    assert made and all(p.returncode not in (None, 0) for p in made), "it was waited for until it ended by itself"


def test_a_helper_imports_what_compiles_kernels_alone() -> None:
    command = workers.command()
    found = subprocess.run(
        [command[0], "-X", "importtime", *command[1:]], input=b"", capture_output=True, check=True, timeout=120
    )
    names = {line.rpartition("|")[2].strip().partition(".")[0] for line in found.stderr.decode().splitlines()}
    assert {"codegen", "llvmlite"} <= names
    assert not names & {"hlo", "indexing", "tiling", "tilewright", "islpy", "sympy"}


def test_a_process_that_cannot_be_started(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> subprocess.Popen[bytes]:
        raise OSError("no more processes")

    monkeypatch.setattr(workers, "_start", start)
    check(3)
    assert jit.stats.compiled == 3


def test_an_error_in_a_kernel_is_raised_here(cache: Path) -> None:
    from numba.core.errors import TypingError

    bad = "def kernel(begin, end, x, y):\n    y[0] = exp(begin)\n"
    with pytest.raises(TypingError, match="line 2"):
        compile_kernels([(source(0), SIGNATURE), (bad, SIGNATURE), (source(1), SIGNATURE)])


def test_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [workers.Job(str(k), source(k) * 40, "", SIGNATURE, jit.default_target()) for k in range(6)]
    monkeypatch.delenv("TILEWRIGHT_COMPILE_PROCESSES", raising=False)
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert workers.helpers_for(jobs) == 0
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda pid: set(range(4)), raising=False)
    assert workers.helpers_for(jobs) == 3
    few = [workers.Job(str(k), source(k), "", SIGNATURE, jit.default_target()) for k in range(6)]
    assert workers.helpers_for(few) == 0, "another process's start takes as long"
    assert workers.helpers_for(jobs[:1]) == 0
    assert workers.helpers_for([]) == 0
    monkeypatch.setattr(workers.Job, "seconds", 0.25)
    assert [workers.helpers_for(jobs[:n]) for n in (2, 3, 5)] == [0, 1, 2], "one for two starts' time of work"
    monkeypatch.setattr(workers.sys, "executable", "/opt/painter/painter")
    assert workers.helpers_for(jobs) == 0


def test_a_helper_goes_on_while_the_caller_compiles(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller holds LLVM's lock for seconds: results wait for it, helpers do not."""
    all_taken = threading.Event()
    take = workers._take

    def watched(jobs: deque[workers.Job]) -> workers.Job | None:
        job = take(jobs)
        if job is None:
            all_taken.set()
        return job

    monkeypatch.setattr(workers, "_take", watched)
    jobs = [jit._job(source(k), SIGNATURE, default_target()) for k in range(6)]
    own, arrived = [], []

    def compiled(job: workers.Job) -> None:
        with compiling:
            assert all_taken.wait(60), "the helper waits for this job"
        own.append(job)

    def loaded(job: workers.Job, made: workers.Made) -> None:
        assert threading.current_thread() is threading.main_thread()
        arrived.append(job)

    workers.compile_jobs(jobs, 1, loaded, compiled)
    assert len(own) == 1 and {*own, *arrived} == {*jobs}
