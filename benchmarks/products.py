"""Products beside NumPy's BLAS, in turns in one process, on one thread by its own processor time: other work counts little.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.products
    TILEWRIGHT_TARGET=avx2 OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=1 python -m benchmarks.products 512 512x768x3072:f64

Planned for several cores (`--cores`), whose tasks one thread runs: what blocks of a task lose shows, what threads lose does not.
A shape is `n` or `rows x depth x columns`, with `:f64` for doubles. The least time of each counts.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import codegen
import hlo
import tiling
from codegen.remembered.machine import calibrated_machine

Array = Any
SHAPES = ("384", "512", "768", "1024", "2048", "512x768x3072", "512x3072x768", "512:f64", "1024:f64")
TURN_SECONDS = 0.05


def product(m: int, k: int, n: int, element: str) -> hlo.Module:
    """The program of one product."""
    left, right, out = (f"tensor<{a}x{b}x{element}>" for a, b in ((m, k), (k, n), (m, n)))
    return hlo.parse(
        f"func.func @main(%a: {left}, %b: {right}) -> {out} {{\n"
        f"  %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({left}, {right}) -> {out}\n"
        f"  return %c : {out}\n}}"
    )


def least_seconds(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least processor time of a call of each, the calls taking turns; what is timed follows one that is not."""
    least: dict[str, float] = {}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            end = time.perf_counter() + TURN_SECONDS
            while True:
                start = time.thread_time()
                call()
                spent = time.thread_time() - start
                least[name] = min(least.get(name, spent), spent)
                if time.perf_counter() > end:
                    break
    return least


def measured(text: str, cores: int, rounds: int) -> str:
    """A row of the table. Raises SystemExit where the results differ."""
    sizes, _, element = text.partition(":")
    numbers = [int(x) for x in sizes.split("x")]
    m, k, n = numbers if len(numbers) == 3 else numbers * 3
    dtype = np.float64 if element == "f64" else np.float32
    rng = np.random.default_rng(0)
    a: Array = rng.standard_normal((m, k)).astype(dtype)
    b: Array = rng.standard_normal((k, n)).astype(dtype)
    machine = replace(calibrated_machine(), cores=cores)
    executable = codegen.compile(tiling.plan(product(m, k, n, element or "f32"), machine=machine))
    (found,) = executable(a, b)
    if not np.allclose(found, a @ b, rtol=1e-3, atol=1e-3):
        raise SystemExit(f"{text}: differs from NumPy")
    spent = least_seconds({"own": lambda: executable(a, b), "NumPy": lambda: a @ b}, rounds)
    rate = {name: 2e-9 * m * k * n / s for name, s in spent.items()}
    return f"| {text} | {rate['own']:.1f} | {rate['NumPy']:.1f} | {spent['NumPy'] / spent['own']:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", default=SHAPES)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args()
    os.environ["TILEWRIGHT_NUM_THREADS"] = "1"
    print("| product | GFLOP/s | NumPy | NumPy's time / own |\n|---|---|---|---|")
    for text in given.shapes:
        print(measured(text, given.cores, given.rounds), flush=True)


if __name__ == "__main__":
    main()
