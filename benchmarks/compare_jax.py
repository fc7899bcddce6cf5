#!/usr/bin/env python3
"""Compares Tilewright with JAX on the CPU: the same programs, the same inputs, in one run, taking turns.

    python3 dev.py bench                                      everything (or: python benchmarks/compare_jax.py)
    python3 dev.py bench --only softmax,causal_attention_2048
    python3 dev.py bench --json > results.json

Every workload is lowered once by JAX; Tilewright gets that text, JAX the function. Results are compared before anything is
timed, and a workload whose results differ is reported as wrong and not timed. Then the turns go A B A B; docs/benchmarks.md says
what the numbers mean.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Workload:
    """An example at given sizes."""

    name: str
    example: str
    sizes: Mapping[str, int] = field(default_factory=dict)


WORKLOADS = (
    Workload("softmax", "softmax"),
    Workload("layer_norm", "layer_norm"),
    Workload("gelu_mlp", "gelu_mlp"),
    Workload("causal_attention", "causal_attention"),
    Workload("causal_attention_2048", "causal_attention", {"seq": 2048}),
    Workload("causal_attention_4096", "causal_attention", {"seq": 4096}),
    Workload("encoder_block", "encoder_block"),
)


KEEP_MEMORY = ":".join(
    f"glibc.malloc.{name}={value}"
    for name, value in {"hugetlb": 1, "mmap_max": 0, "trim_threshold": 1 << 35, "top_pad": 1 << 26}.items()
)


@dataclass(frozen=True)
class Timing:
    """Seconds: the median of the runs and the quartiles around it."""

    median: float
    lower_quartile: float
    upper_quartile: float
    runs: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        lower, middle, upper = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(middle, lower, upper, len(seconds))


@dataclass(frozen=True)
class Result:
    """One workload: how both did, or why it was not timed."""

    name: str
    problem: str | None
    max_rel: float | None = None
    max_ulp: float | None = None
    tilewright: Timing | None = None
    jax: Timing | None = None
    ratio: float | None = None  # JAX's median over Tilewright's: above 1, Tilewright is faster
    first_result_seconds: float | None = None
    scratch_bytes: int | None = None
    first_rss_growth_bytes: int | None = None
    warm_rss_growth_bytes: int | None = None
    fusions: int | None = None
    fallbacks: tuple[str, ...] = ()


def interleave(a: Callable[[], object], b: Callable[[], object], turns: int, min_seconds: float) -> tuple[Timing, Timing]:
    """Times both in turns, `turns` times or more, until each has run for `min_seconds`; each turn's first call is not counted.

    The uncounted call puts both in the state that they are in when they are called in a loop: their own data in the caches, their
    own threads awake.
    """
    times: tuple[list[float], list[float]] = ([], [])
    while len(times[0]) < turns or min(sum(t) for t in times) < min_seconds:
        for f, kept in zip((a, b), times, strict=True):
            f()
            start = time.perf_counter()
            f()
            kept.append(time.perf_counter() - start)
        if len(times[0]) >= 50 * turns:
            break
    return Timing.of(times[0]), Timing.of(times[1])


def peak_rss_growth_bytes(call: Callable[[], object]) -> int | None:
    """By how much a call raises the process's peak resident memory over what was resident before.

    The kernel is asked to forget the peak so far. A first call's growth holds its results and all scratch that it touches; a warm
    call finds pooled memory resident, so its growth is what it takes beyond that. None where the call was not measured, because
    this is no Linux or its /proc is closed; the call was made all the same.
    """
    status = pathlib.Path("/proc/self/status")
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        before = _status_bytes(status.read_text(), "VmRSS")
    except OSError:
        call()
        return None
    call()
    return max(0, _status_bytes(status.read_text(), "VmHWM") - before)


def _status_bytes(text: str, name: str) -> int:
    (line,) = (row for row in text.splitlines() if row.startswith(name + ":"))
    return int(line.split()[1]) * 1024


def measure(workload: Workload, turns: int, min_seconds: float, seed: int) -> Result:
    """Lowers, compiles, compares and times one workload."""
    import jax
    import numpy as np

    import codegen
    import hlo
    from tilewright.check import compare
    from tilewright.inputs import random_arrays

    sys.path.insert(0, str(ROOT / "examples"))
    make_examples = importlib.import_module("make_examples")

    function, _ = make_examples.resolve(workload.example, workload.sizes)
    module = hlo.parse(make_examples.lower(workload.example, **workload.sizes))
    arrays = random_arrays(module.entry, seed)

    start = time.perf_counter()
    executable = codegen.compile(module)
    results: tuple[np.ndarray, ...] = ()

    def call() -> None:
        nonlocal results
        results = executable(*arrays)

    first_growth = peak_rss_growth_bytes(call)
    first = time.perf_counter() - start

    on_device = [jax.device_put(a) for a in arrays]
    compiled = jax.jit(function).lower(*on_device).compile()
    expected = [np.asarray(x) for x in jax.tree.leaves(compiled(*on_device))]
    comparisons = [compare(np.asarray(a), b) for a, b in zip(results, expected, strict=True)]
    rel, ulp = max(c.max_rel for c in comparisons), max(c.max_ulp for c in comparisons)
    fallbacks = tuple(str(f) for f in executable.fallbacks)
    if not all(c.passed for c in comparisons):
        return Result(workload.name, "the results differ", rel, ulp, fallbacks=fallbacks)
    del expected

    call()
    warm_growth = peak_rss_growth_bytes(call)

    def run_jax() -> object:
        return jax.block_until_ready(compiled(*on_device))  # type: ignore[no-untyped-call]

    ours, theirs = interleave(lambda: executable(*arrays), run_jax, turns, min_seconds)
    return Result(
        workload.name,
        None,
        rel,
        ulp,
        ours,
        theirs,
        theirs.median / ours.median,
        first,
        executable.stats.scratch_bytes,
        first_growth,
        warm_growth,
        len(executable.plan.fusions),
        fallbacks,
    )


def show(results: Sequence[Result]) -> None:
    """The table for people: medians with half the interquartile range, and the ratio."""
    from tilewright.commands.report import bytes_text

    def text(t: Timing | None) -> str:
        return "-" if t is None else f"{t.median * 1e3:9.3f} ±{(t.upper_quartile - t.lower_quartile) / 2e-3:.3f}"

    row = "{:24} {:>20} {:>20} {:>7} {:>10} {:>21} {:>10}"
    print(row.format("workload", "tilewright, ms", "JAX, ms", "JAX/tw", "scratch", "RSS growth first/warm", "rel error"))
    for r in results:
        if r.problem:
            print(f"{r.name:24} {r.problem}" + ("" if r.max_rel is None else f" (rel {r.max_rel:.2g})"))
            continue
        scratch = bytes_text(r.scratch_bytes or 0)
        growths = (r.first_rss_growth_bytes, r.warm_rss_growth_bytes)
        growth = " / ".join("-" if g is None else bytes_text(g) for g in growths)
        print(row.format(r.name, text(r.tilewright), text(r.jax), f"{r.ratio:.2f}", scratch, growth, f"{r.max_rel:.1e}"))
        for f in r.fallbacks:
            print(f"{'':24} not compiled: {f}")


def machine() -> dict[str, object]:
    """What the numbers were taken on."""
    import jax
    import numba
    import numpy as np

    import tilewright

    cpu = platform.processor()
    info = pathlib.Path("/proc/cpuinfo")
    if info.exists():
        cpu = next((row.partition(":")[2].strip() for row in info.read_text().splitlines() if row.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "tilewright": tilewright.__version__,
        "jax": jax.__version__,
        "numba": numba.__version__,
        "numpy": np.__version__,
    }


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description="Compare Tilewright with JAX on the CPU, interleaved in one run.")
    p.add_argument("--only", metavar="NAMES", help="some workloads, separated by commas: " + ", ".join(w.name for w in WORKLOADS))
    p.add_argument("--turns", type=int, default=15, metavar="N", help="turns of each, at least (default: 15)")
    p.add_argument("--min-seconds", type=float, default=0.5, metavar="S", help="and until each ran this long (default: 0.5)")
    p.add_argument("--threads", type=int, default=2, metavar="N", help="threads for both (default: 2)")
    p.add_argument("--keep-memory", action="store_true",
                   help="keep freed memory and use huge pages (glibc): JAX at its strongest on large outputs")  # fmt: skip
    p.add_argument("--seed", type=int, default=0, metavar="N")
    p.add_argument("--json", action="store_true", help="print JSON")
    args = p.parse_args(argv)
    names = args.only.split(",") if args.only else [w.name for w in WORKLOADS]
    unknown = sorted(set(names) - {w.name for w in WORKLOADS})
    if unknown:
        p.error(f"no workload {', '.join(unknown)}")
    if args.turns < 2 or args.threads < 1:
        p.error("--turns must be at least 2 and --threads at least 1")

    if args.keep_memory and os.environ.get("GLIBC_TUNABLES") != KEEP_MEMORY:
        # glibc reads this when a process starts.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "GLIBC_TUNABLES": KEEP_MEMORY})
    limit_threads(args.threads)
    sys.path.insert(0, str(ROOT))
    results = []
    for w in WORKLOADS:
        if w.name in names:
            if sys.stderr.isatty():
                print(f"{w.name} …", file=sys.stderr)
            results.append(measure(w, args.turns, args.min_seconds, args.seed))
    if args.json:
        print(json.dumps({"schema": "tilewright.compare_jax/1", "machine": machine(), "threads": args.threads,
                          "results": [asdict(r) for r in results]}, indent=2))  # fmt: skip
    else:
        print(", ".join(f"{k} {v}" for k, v in machine().items()), f"; {args.threads} threads each\n")
        show(results)
    return 1 if any(r.problem for r in results) else 0


def limit_threads(count: int) -> None:
    """Gives both the same number of threads: XLA's pool follows the cores the process may use, the rest read variables."""
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(count)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > count:
            os.sched_setaffinity(0, set(cores[:count]))


if __name__ == "__main__":
    sys.exit(main())
