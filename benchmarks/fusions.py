#!/usr/bin/env python3
"""Fusions that people write by hand, as the planner derives them: memory between kernels and CPU time against JAX and PyTorch.

    python benchmarks/fusions.py                      Tilewright and JAX, in turns
    python benchmarks/fusions.py --only 'attention*'
    python benchmarks/fusions.py --torch              PyTorch (with its fused attention) and its compiler, if torch is installed

Results are compared with JAX's before anything is timed. Times are those of the processor, all threads together, medians of
calls in turns: on a shared machine they move less than the clock's. Memory is what lies between kernels: all scratch here, XLA's
own figure for its temporaries there, and for PyTorch by how much a first call raises the process's peak beyond its results.
"""

from __future__ import annotations

import argparse
import fnmatch
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from benchmarks.cases.fused import jax_cases, torch_cases  # noqa: E402
from benchmarks.compare_jax import peak_rss_growth_bytes  # noqa: E402

LIMIT = 2e-4


def cpu_ms(calls: Sequence[Callable[[], object]], turns: int) -> list[float]:
    """Milliseconds of the processor that each call takes, medians over turns; a first call of each does not count."""
    spent: list[list[float]] = [[] for _ in calls]
    for turn in range(turns + 1):
        for call, mine in zip(calls, spent, strict=True):
            start = time.process_time()
            call()
            if turn:
                mine.append((time.process_time() - start) * 1e3)
    return [statistics.median(x) for x in spent]


def against_jax(only: str, turns: int) -> int:
    import jax

    import codegen
    import hlo

    print(f"{'':38}{'kernels':>8}{'MB':>8}{'JAX':>8}{'CPU ms':>10}{'JAX':>10}{'JAX / own':>10}  error    strips")
    failed = 0
    for name, function, make in jax_cases():
        if not fnmatch.fnmatch(name, only):
            continue
        given = make()
        lowered = jax.jit(function, keep_unused=True).lower(*given)
        compiled = lowered.compile()
        executable = codegen.compile(hlo.parse(lowered.as_text()))
        on_device = [jax.device_put(a) for a in given]
        expected = [np.asarray(x) for x in jax.tree.leaves(compiled(*on_device))]
        found = [np.asarray(x) for x in executable(*given)]
        error = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in zip(found, expected, strict=True))
        if not error <= LIMIT:
            print(f"{name:38} differs by {error:.1e}")
            failed += 1
            continue
        ours, theirs = cpu_ms(
            [lambda: executable(*given), lambda: jax.block_until_ready(compiled(*on_device))], turns,  # type: ignore[no-untyped-call]  # noqa: B023
        )  # fmt: skip
        memory = compiled.memory_analysis()
        temporaries = float("nan") if memory is None else memory.temp_size_in_bytes / 1e6
        strips = ", ".join(f"{p.strips[2]} of dimension {p.strips[1]}" for p in executable.plan.strips) or "none"
        scratch = executable.stats.scratch_bytes / 1e6
        times = f"{ours:10.4g}{theirs:10.4g}{theirs / ours:10.2f}"
        kernels = sum(len(p.fusions) for p in executable.plan.nested())
        print(f"{name:38}{kernels:8}{scratch:8.2f}{temporaries:8.2f}{times}  {error:.0e}  {strips}", flush=True)
    return 1 if failed else 0


def torch_alone(only: str, turns: int, threads: int) -> int:
    import torch

    torch.set_num_threads(threads)
    print(f"{'':38}{'MB':>10}{'eager':>10}{'inductor':>10}  CPU ms")
    for name, function, make in torch_cases():
        if not fnmatch.fnmatch(name, only):
            continue
        given = [torch.from_numpy(a) for a in make()]
        kept: list[Any] = []  # a first call's growth: later ones find memory that PyTorch kept
        peak = peak_rss_growth_bytes(lambda: kept.append(function(*given)))  # noqa: B023
        results = sum(t.numel() * t.element_size() for t in (kept[0] if isinstance(kept[0], tuple) else (kept[0],)))
        kept.clear()
        compiled = torch.compile(function)
        eager, inductor = cpu_ms([lambda: function(*given), lambda: compiled(*given)], turns)  # noqa: B023
        taken = "-" if peak is None else format(max(0.0, (peak - results) / 1e6), ".1f")
        print(f"{name:38}{taken:>10}{eager:10.4g}{inductor:10.4g}", flush=True)
    return 0


def main() -> int:
    p = argparse.ArgumentParser(description="Fusions that people write by hand: memory and CPU time.")
    p.add_argument("--only", default="*", help="a pattern of names")
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--torch", action="store_true", help="PyTorch by itself, in an interpreter that has it")
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    return torch_alone(args.only, args.turns, args.threads) if args.torch else against_jax(args.only, args.turns)


if __name__ == "__main__":
    sys.exit(main())
