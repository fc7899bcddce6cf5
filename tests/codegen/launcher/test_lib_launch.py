"""The launcher: results for any number of threads, concurrent callers, fork, exit, scratch, timing."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from codegen.launcher import memory, native_threads, words
from codegen.launcher.launch import Plan, Step
from codegen.launcher.native_threads import default_threads
from codegen.native.jit import CompiledKernel, compile_kernel
from codegen.native.signature import KernelSignature, Param, Scratch
from tests.threads import needs_fork

ROOT = Path(__file__).parents[3]
SQUARE = compile_kernel(
    "def kernel(begin, end, x, y):\n    for i in range(begin, end):\n        y[i] = x[i] * x[i]\n",
    KernelSignature((Param("x", "float64", 8), Param("y", "float64", 8))),
)
PREFIX = compile_kernel(
    "def kernel(begin, end, x, y):\n    s = float64(0)\n    for i in range(1000):\n        s += x[i]\n        y[i] = s\n",
    KernelSignature((Param("x", "float64", 8), Param("y", "float64", 8))),
)
THROUGH_SCRATCH = compile_kernel(
    "def kernel(begin, end, x, y, s, t):\n"
    "    for i in range(begin, end):\n"
    "        for j in range(64):\n"
    "            s[j] = x[i]\n"
    "            t[j] = float64(j)\n"
    "        r = float64(0)\n"
    "        for j in range(64):\n"
    "            r += s[j] * t[j]\n"
    "        y[i] = r\n",
    KernelSignature(
        (Param("x", "float64", 8), Param("y", "float64", 8)), (Scratch("s", "float64", 0), Scratch("t", "float64", 512))
    ),
)


LEAVE = compile_kernel(
    "def kernel(begin, end):\n    found = words(begin)\n"
    "    found[0] = current_cpu()\n    leave_cpu(found[0])\n    found[1] = current_cpu()\n",
    KernelSignature(()),
)


def enter(kernel: CompiledKernel, record: np.ndarray) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(kernel.entry)(
        record.ctypes.data, 0, None, None
    )


def _addresses(*arrays: np.ndarray) -> np.ndarray:
    return np.array([a.ctypes.data for a in arrays], np.int64)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_steps_run_in_order_and_every_task_once(threads: int, chunk: int) -> None:
    x, y, z = np.arange(1000.0), np.zeros(1000), np.zeros(1000)
    plan = Plan([Step(SQUARE, 1000, (0, 1), chunk), Step(PREFIX, 1, (1, 2)), Step(SQUARE, 1000, (2, 1), chunk)] * 3)
    times = np.zeros(9, np.int64)
    for _ in range(20):
        plan.run(_addresses(x, y, z), threads, times)
        np.testing.assert_array_equal(y, np.cumsum(x * x) ** 2)
    assert (times > 0).all()


COUNT = compile_kernel(
    "def kernel(begin, end, x, y):\n    for i in range(begin, end):\n        y[i] += x[0]\n",
    KernelSignature((Param("x", "float64", 8), Param("y", "float64", 8))),
)


@pytest.mark.parametrize("threads", [2, 3, 70])
@pytest.mark.parametrize("tasks", [2, 3, 71, 1000])
def test_every_task_runs_once_in_whoevers_zone_it_is(threads: int, tasks: int) -> None:
    """More threads than tasks, than zones, and than cores; pieces of a zone that others take."""
    one, counts = np.ones(1), np.zeros(tasks)
    plan = Plan([Step(COUNT, tasks, (0, 1), 1)])
    for run in range(1, 31):
        plan.run(_addresses(one, counts), threads)
        assert (counts == run).all(), (run, counts)


@pytest.mark.parametrize("size", [10, 100_000, 2_000_000])
def test_workers_wait_for_the_next_run_in_proportion_to_the_last(size: int) -> None:
    """Each call of a network of 3 ms woke the worker anew, which took some 300 microseconds of a guest's time."""
    x, y, times = np.arange(float(size)), np.zeros(size), np.zeros(20, np.int64)
    plan = Plan([Step(SQUARE, size, (0, 1), 1000)] * 20)
    pool = native_threads.get_pool()
    assert pool is not None
    least, most = int(pool.state[words.BETWEEN]), int(pool.state[words.WITHIN])
    pool.state[words.SPIN] = least  # a run in one thread leaves what an earlier test's run has left
    began = time.perf_counter_ns()
    plan.run(_addresses(x, y), 2, times)
    outside = time.perf_counter_ns() - began
    assert min(max(least, int(times.sum()) // 8), most) <= pool.state[words.SPIN] <= min(max(least, outside // 8), most)


@pytest.mark.parametrize("threads", [1, 3])
def test_each_thread_has_its_own_scratch(threads: int) -> None:
    x, y = np.arange(500.0), np.zeros(500)
    before = memory.pool.count("scratch").live_bytes
    plan = Plan([Step(THROUGH_SCRATCH, 500, (0, 1), 1, scratch_bytes=1024)])
    for _ in range(20):
        y[:] = 0
        plan.run(_addresses(x, y), threads)
        np.testing.assert_array_equal(y, x * 2016)
    assert memory.pool.count("scratch").live_bytes == before


def test_several_python_threads_at_once() -> None:
    plan = Plan([Step(THROUGH_SCRATCH, 300, (0, 1), 3, scratch_bytes=1024), Step(SQUARE, 300, (1, 2), 5)])
    failures = []

    def work(seed: int) -> None:
        x, y, z = np.full(300, float(seed)), np.zeros(300), np.zeros(300)
        for _ in range(200):
            z[:] = 0
            plan.run(_addresses(x, y, z), 3)
            if not (z == (seed * 2016.0) ** 2).all():
                failures.append(seed)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(60)
    assert failures == [] and not any(w.is_alive() for w in workers)


def test_an_empty_plan_and_empty_steps() -> None:
    Plan([]).run(np.zeros(0, np.int64))
    Plan([Step(SQUARE, 0, (0, 1))]).run(_addresses(np.zeros(1), np.zeros(1)), 2)


def test_wrong_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 2 buffers, found 1"):
        Plan([Step(SQUARE, 1, (0,))])
    with pytest.raises(ValueError, match="1 tasks in chunks of 0"):
        Plan([Step(SQUARE, 1, (0, 1), 0)])


def test_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "3")
    assert default_threads() == 3
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "many")
    with pytest.raises(ValueError, match="expected a positive number, found 'many'"):
        default_threads()
    monkeypatch.delenv("TILEWRIGHT_NUM_THREADS")
    assert default_threads() >= 1


@needs_fork
def test_a_forked_child_starts_its_own_workers() -> None:
    x, y = np.arange(1000.0), np.zeros(1000)
    plan = Plan([Step(SQUARE, 1000, (0, 1), 10)])
    plan.run(_addresses(x, y), 2)
    assert native_threads._pool is not None
    child = os.fork()
    if child == 0:
        y[:] = 0
        for _ in range(50):
            plan.run(_addresses(x, y), 2)
        os._exit(0 if native_threads._pool is not None and len(native_threads._pool.threads) == 1 and (y == x * x).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    plan.run(_addresses(x, y), 2)


SCRIPT = """
import os, sys, threading
import numpy as np
from codegen.native.jit import CompiledKernel, compile_kernel
from codegen.native.signature import KernelSignature, Param
from codegen.launcher.launch import Plan, Step
kernel = compile_kernel({source!r}, KernelSignature((Param("x", "float64", 8), Param("y", "float64", 8))))
x, y = np.arange(1000.0), np.zeros(1000)
plan = Plan([Step(kernel, 1000, (0, 1), 10)])
addresses = np.array([x.ctypes.data, y.ctypes.data])
def forever():
    while True:
        plan.run(addresses, 4)
plan.run(addresses, 4)
{more}
print("done", flush=True)
"""


@pytest.mark.parametrize("more", ["", "threading.Thread(target=forever, daemon=True).start()"])
def test_the_interpreter_exits_cleanly(more: str) -> None:
    script = SCRIPT.format(source=SQUARE.source, more=more)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(3 if more else 1):  # by chance only where a thread is at work
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="threads are moved on Linux alone")
def test_a_thread_leaves_a_cpu_and_may_come_back() -> None:
    """It goes on on another CPU where there is one that it may use, and may use the same ones as before."""
    found = np.zeros(2, np.int64)
    before = os.sched_getaffinity(0)
    moves = 0
    for _ in range(200):  # (the system may move it back before it looks)
        enter(LEAVE, found)
        assert set(found.tolist()) <= before
        moves += found[0] != found[1]
        assert os.sched_getaffinity(0) == before
    assert bool(moves) == (len(before) > 1)
    try:
        os.sched_setaffinity(0, {min(before)})
        enter(LEAVE, found)
        assert found.tolist() == [min(before)] * 2
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)
