"""Rates of the contraction micro-kernels: blocks that stay in cache, and whole products with packing on all threads.

Usage: ``python -m benchmarks.microkernel [--target host|avx2|baseline]``.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np

from codegen.launcher import memory
from codegen.launcher.launch import Plan, Step
from codegen.launcher.native_threads import default_threads
from codegen.lib.micro_kernels.contract import micro_shape
from codegen.native.jit import compile_kernel
from codegen.native.signature import KernelSignature, Param, Scratch
from codegen.target import Target
from codegen.tune.probe import ENTRY

Array = Any


def aligned(count: int, dtype: str, seed: int | None = None) -> Array:
    """An array over pool memory, of normal random numbers if a seed is given."""
    out = memory.pool.lease(count * np.dtype(dtype).itemsize, "benchmark").array((count,), dtype)
    out[:] = 0 if seed is None else np.random.default_rng(seed).standard_normal(count)
    return out


def block_rate(m: int, n: int, k: int, dtype: str, target: Target) -> float:
    """GFLOP/s of one thread on a block with B packed."""
    panel = micro_shape(target, np.dtype(dtype).itemsize, n).panel
    lda = k + 16
    source = (
        "def kernel(begin, end, a, b, c):\n"
        "    for t in range(begin, end):\n"
        f"        gemm_block({m}, {n}, {k}, a, 0, {lda}, 1, b, 0, {k * panel}, {panel}, c, 0, {n}, True, {panel})\n"
    )
    kernel = compile_kernel(source, KernelSignature(tuple(Param(p, dtype) for p in "abc")), target)
    columns = -(-n // panel) * panel
    arrays = aligned(m * lda, dtype), aligned(k * columns, dtype), aligned(m * n, dtype)
    table = np.array([x.ctypes.data for x in arrays], np.uint64)
    entry, flops = ENTRY(kernel.entry), 2 * m * n * k
    repeat = max(1, int(2e8 / flops))
    best = math.inf
    for _ in range(12):
        start = time.perf_counter()
        entry(0, repeat, table.ctypes.data, None)
        best = min(best, time.perf_counter() - start)
    return flops * repeat / best / 1e9


def product_plan(m: int, n: int, k: int, dtype: str, target: Target) -> tuple[Plan, int]:
    """C = A B in two steps: pack B, then blocks of rows; buffers a, b, c, packed.  Returns also the packed elements."""
    item = np.dtype(dtype).itemsize
    shape = micro_shape(target, item, n)
    panel, rows = shape.panel, shape.rows
    kc = next(d for d in range(min(k, 256), 0, -1) if k % d == 0)
    tall = max(rows, 96 // rows * rows)
    panels, blocks = -(-n // panel), k // kc
    packed = blocks * panels * kc * panel
    pack = (
        "def kernel(begin, end, b, packed):\n"
        "    # packed[kb][panel][k][column]\n"
        "    for t in range(begin, end):\n"
        f"        kb = t // {panels}\n"
        f"        p = t % {panels}\n"
        f"        for i in range({kc}):\n"
        f"            for j in range(min({panel}, {n} - p * {panel})):\n"
        f"                packed[t * {kc * panel} + i * {panel} + j] = b[kb * {kc * n} + p * {panel} + i * {n} + j]\n"
    )
    lda = kc + 16
    last = m % tall or tall
    body = (
        "            copy_rows({h}, {kc}, a, t * {ta} + kb * {kc}, {k}, rows, 0, {lda})\n"
        "            gemm_block({h}, {n}, {kc}, rows, 0, {lda}, 1, packed, kb * {pb}, {ps}, {panel},"
        " c, t * {tc}, {n}, kb > 0, {panel})\n"
    )
    values = {
        "kc": kc, "k": k, "n": n, "lda": lda, "ta": tall * k, "tc": tall * n, "panel": panel,
        "pb": panels * kc * panel, "ps": kc * panel,
    }  # fmt: skip
    whole = m // tall
    multiply = (
        "def kernel(begin, end, a, packed, c, rows):\n"
        f"    for t in range(begin, min(end, {whole})):\n"
        f"        for kb in range({blocks}):\n" + body.format(h=tall, **values)
    )
    if last != tall:
        multiply += f"    for t in range(max(begin, {whole}), end):\n        for kb in range({blocks}):\n"
        multiply += body.format(h=last, **values)
    packing = compile_kernel(pack, KernelSignature((Param("b", dtype), Param("packed", dtype))), target)
    signature = KernelSignature((Param("a", dtype), Param("packed", dtype), Param("c", dtype)), (Scratch("rows", dtype, 0),))
    product = compile_kernel(multiply, signature, target)
    steps = (
        Step(packing, blocks * panels, (1, 3), chunk=4),
        Step(product, -(-m // tall), (0, 3, 2), scratch_bytes=tall * lda * item),
    )
    return Plan(steps), packed


def product_rate(m: int, n: int, k: int, dtype: str, target: Target, threads: int) -> tuple[float, float, float]:
    """(GFLOP/s of the best and of the median run, largest relative error)."""
    plan, packed = product_plan(m, n, k, dtype, target)
    a, b, c, p = aligned(m * k, dtype, 1), aligned(k * n, dtype, 2), aligned(m * n, dtype), aligned(packed, dtype)
    addresses = np.array([x.ctypes.data for x in (a, b, c, p)], np.int64)
    times = []
    for _ in range(30):
        start = time.perf_counter()
        plan.run(addresses, threads)
        times.append(time.perf_counter() - start)
    exact = a.reshape(m, k)[:64].astype(float) @ b.reshape(k, n).astype(float)
    error = float(np.abs(c.reshape(m, n)[:64] - exact).max() / np.abs(exact).max())
    flops = 2 * m * n * k
    return flops / min(times) / 1e9, flops / float(np.median(times)) / 1e9, error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="host")
    target = Target.named(parser.parse_args().target)
    for dtype in ("float32", "float64"):
        for m, n, k in ((96, 64, 64), (96, 64, 256), (192, 512, 256), (96, 16, 256), (97, 250, 256)):
            print(f"block {dtype} {m} x {n} x {k}: {block_rate(m, n, k, dtype, target):.0f} GFLOP/s", flush=True)
    for size in (512, 1000, 1024, 2048):
        for threads in sorted({1, default_threads()}):
            best, median, error = product_rate(size, size, size, "float32", target, threads)
            print(
                f"product {size}^3 float32, {threads} threads: best {best:.0f}, median {median:.0f} GFLOP/s, error {error:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
