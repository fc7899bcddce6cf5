"""Measures what the cost model must know of a machine: bandwidth at each cache level, contraction rate, launch cost.

calibrate() -> Machine with measured rates (about half a second), remembered for this machine's later plans
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

from codegen.call.executable import Executable
from codegen.launcher import memory
from codegen.launcher.launch import Plan, Step
from codegen.lib.micro_kernels.contract import micro_shape
from codegen.native.jit import compile_kernel
from codegen.native.signature import KernelSignature, Param
from codegen.remembered.machine import remember_machine
from codegen.supports import supports
from codegen.target import default_target
from hlo import parse
from tiling import plan
from tiling.machine import Machine
from tiling.passes.group_rows import LEAST_LONG_BYTES

__all__ = ["calibrate"]

AHEAD_BYTES = (2048, 8192)  # how far ahead inputs may be asked for: half a page, two pages
ROWS_AT_A_TIME = (1, 4)
PAUSE_SECONDS = 50e-6  # between two calls of a program: helpers have gone to sleep

# A task sums `part` elements at its place, `rounds` times.
_READ = """
def kernel(begin, end, x, out):
    for t in range(begin, end):
        a = float32(0)
        for turn in range({rounds}):
            for i in range({part}):
                a = reduce_add(a, x[t*{part} + i])
        out[16*t] = a
"""

# Greatest elements of rows of four pages, which come from memory.
_ROWS = """func.func @main(%x: tensor<{rows}x4096xf32>) -> tensor<{rows}xf32> {{
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<{rows}x4096xf32>, tensor<f32>) -> tensor<{rows}xf32>
  return %0 : tensor<{rows}xf32> }}"""

_PRODUCT = """
def kernel(begin, end, a, b, c):
    for t in range(begin, end):
        gemm_block({m}, {n}, {k}, a, 0, {k}, 1, b, 0, {kn}, {n}, c, {mn}*t, {n}, False, {n})
"""

_NOTHING = """
def kernel(begin, end, x):
    for t in range(begin, end):
        x[16*t] = float32(0)
"""


def calibrate(budget_seconds: float = 0.6) -> Machine:
    """This machine with the rates that kernels of this library reach on it; also remembered for `calibrated_machine`.

    `budget_seconds` bounds the measuring (compiling the probes, once, comes on top).
    """
    machine = Machine.detect()
    share = budget_seconds / 8
    from_memory = {n: _read_rate(machine.l3_bytes * 4, machine.cores, share, n) for n in AHEAD_BYTES}
    found = replace(
        machine,
        l1_bytes_per_second=_read_rate(machine.l1_bytes // 2, 1, share),
        l2_bytes_per_second=_read_rate(machine.l2_bytes // 2, 1, share),
        l3_bytes_per_second=_read_rate(machine.l3_bytes // (2 * machine.cores), 1, share),
        memory_bytes_per_second=max(from_memory.values()),
        ahead_bytes=max(from_memory, key=lambda distance: from_memory[distance]),
        hertz=_clock(machine, share),
        launch_seconds=_launch(machine, share),
        rows_at_a_time=_rows_at_a_time(machine, share),
    )
    remember_machine(found)
    return found


def _best(run: Callable[[], object], seconds: float) -> float:
    """The least time of a few runs within about `seconds`, after one that does not count."""
    run()
    least, end = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        run()
        now = time.perf_counter()
        least = min(least, now - start)
        if now > end:
            return least


def _array(elems: int) -> np.ndarray:
    made: np.ndarray = memory.pool.lease(4 * elems, "scratch").array((elems,), np.float32)
    made[...] = 1
    return made


def _read_rate(size_bytes: int, threads: int, seconds: float, ahead_bytes: int = 0) -> float:
    """Bytes a second that `threads` threads read together from `size_bytes` that they read again and again.

    With `ahead_bytes` they ask for what lies that far ahead.
    """
    part = max(1024, size_bytes // (4 * threads))
    rounds = max(1, (1 << 20) // part)
    params = Param("x", "float32", ahead=ahead_bytes), Param("out", "float32")
    kernel = compile_kernel(_READ.format(part=part, rounds=rounds), KernelSignature(params))
    x, out = _array(part * threads), _array(16 * threads)
    addresses = np.array([x.ctypes.data, out.ctypes.data], np.int64)
    plan = Plan([Step(kernel, threads, (0, 1))])
    return 4.0 * part * rounds * threads / _best(lambda: plan.run(addresses, threads), seconds)


def _rows_at_a_time(machine: Machine, seconds: float) -> int:
    """How many long rows side by side are read from memory in the least time; one, where more gain less than a thirtieth."""
    rows = max(4 * machine.l3_bytes, 2 * LEAST_LONG_BYTES) // (4 * 4096)
    module = parse(_ROWS.format(rows=rows))
    plans = {n: plan(module, machine=replace(machine, rows_at_a_time=n), supports=supports) for n in ROWS_AT_A_TIME}
    runs = {n: Executable(p, machine.cores) for n, p in plans.items()}
    x = _array(rows * 4096).reshape(rows, 4096)
    spent = {n: _best(partial(run, x), seconds / len(runs)) for n, run in runs.items()}
    best = min(spent, key=lambda n: spent[n])
    return best if spent[best] < spent[1] * 29 / 30 else 1


def _clock(machine: Machine, seconds: float) -> float:
    """The clock rate at which contractions behave as the model's peak says."""
    shape = micro_shape(default_target(), 4)
    m, n, k, tasks = 8 * shape.rows, shape.panel, 256, 64
    source = _PRODUCT.format(m=m, n=n, k=k, kn=k * n, mn=m * n)
    kernel = compile_kernel(source, KernelSignature(tuple(Param(x, "float32") for x in "abc")))
    arrays = [_array(m * k), _array(k * n), _array(m * n * tasks)]
    addresses = np.array([x.ctypes.data for x in arrays], np.int64)
    plan = Plan([Step(kernel, tasks, (0, 1, 2))])
    flops = 2.0 * m * n * k * tasks / _best(lambda: plan.run(addresses, 1), seconds)
    return flops / (2.0 * machine.lanes(4) * machine.fma_per_cycle)


def _launch(machine: Machine, seconds: float) -> float:
    """Seconds that running a step on all cores costs over running it on one, when some Python code ran in between."""
    kernel = compile_kernel(_NOTHING, KernelSignature((Param("x", "float32"),)))
    x = _array(16 * machine.cores)
    addresses = np.array([x.ctypes.data], np.int64)
    plan = Plan([Step(kernel, machine.cores, (0,))])
    spent: dict[int, list[float]] = {1: [], machine.cores: []}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not spent[1]:
        for threads, mine in spent.items():
            pause = time.perf_counter() + PAUSE_SECONDS
            while time.perf_counter() < pause:
                pass
            start = time.perf_counter()
            plan.run(addresses, threads)
            mine.append(time.perf_counter() - start)
    return max(median(spent[machine.cores]) - median(spent[1]), 1e-7)
