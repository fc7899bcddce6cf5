#!/usr/bin/env python3
"""Measures Tilewright against the machine's limit and against JAX, and writes docs/performance.md.

    python benchmarks/performance.py --keep-memory --json results.json    measure every workload; nothing else may run
    python benchmarks/performance.py --only softmax,matmul_512            some, printed
    python benchmarks/performance.py --page results.json                  the page from a file of results

The results' form is `tilewright.performance/1`: `machine`, `limits`, and `rows`, each with `name`, `what`, `between`,
`limit_seconds`, `limit_kind` ("memory" or "arithmetic"), and `seconds`: medians by who ran it. More peers may be put
into `seconds` by hand or by another program; the page shows every one that it finds.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
SCHEMA = "tilewright.performance/1"
OWN = "Tilewright"

HEAD = """# Measured performance

Medians of warm runs, in milliseconds, all in turns in one process, on {cores} cores of {cpu} (jax {jax}, numba {numba},
NumPy {numpy}, Python {python}). To measure again, with nothing else running, and to make this page:

    python benchmarks/performance.py --keep-memory --json results.json
    python benchmarks/performance.py --page results.json

`--keep-memory` makes glibc keep what was freed and use huge pages: JAX makes its results anew on each call and is at its
strongest so; Tilewright keeps a pool of its own.

- **limit**: the larger of the least bytes over the bandwidth at that working set, and the least arithmetic over the peak of
  multiply-adds. Every argument is read once and every result written once. A time can lie under the limit where data stay in a
  cache from run to run.
- **of limit**: the limit over Tilewright's time.
- **best peer / own**: above 1, Tilewright is faster than every peer in the table.
- **between**: what keeps the time from the limit.

Results are compared with JAX's before anything is timed; a workload whose results differ is not timed. Compilation is not in
these times. On a shared machine medians move by some 20 %; ratios within one run are what holds. [How JAX and Tilewright are
compared at length](benchmarks.md) is a page of its own.

"""


# ---------------------------------------------------------------- limits


def _parallel(work: Callable[[int], object], threads: int) -> float:
    """Seconds until `threads` threads have each done work(k)."""
    barrier = threading.Barrier(threads + 1)

    def run(k: int) -> None:
        barrier.wait()
        work(k)

    pool = [threading.Thread(target=run, args=(k,)) for k in range(threads)]
    for t in pool:
        t.start()
    barrier.wait()
    start = time.perf_counter()
    for t in pool:
        t.join()
    return time.perf_counter() - start


def bandwidth(working_set_bytes: int, threads: int) -> float:
    """Bytes a second that are read and written when every thread copies its part of such a working set, the best of several."""
    import numpy as np

    elems = max(1024, working_set_bytes // 8 // threads)
    parts = [(np.ones(elems, np.float32), np.zeros(elems, np.float32)) for _ in range(threads)]
    repeats = max(1, (64 << 20) // (8 * elems))

    def work(k: int) -> None:
        a, b = parts[k]
        for _ in range(repeats):
            np.copyto(b, a)

    work(0)
    best = min(_parallel(work, threads) for _ in range(7))
    return 8.0 * elems * threads * repeats / best


def limits(threads: int) -> dict[str, Any]:
    """The machine's: bandwidth by working set, and the peak of multiply-adds that the machine description says."""
    from tiling import Machine

    sizes = [1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28]
    here = Machine.detect()
    return {
        "bytes_per_second": {str(size): bandwidth(size, threads) for size in sizes},
        "flops_per_second": here.peak_flops(4) * min(threads, here.cores),
    }


def limit_of(moved_bytes: float, flops: float, found: Mapping[str, Any]) -> tuple[float, str]:
    """(seconds, "memory" or "arithmetic"): the larger of the two limits.

    >>> limit_of(1e9, 1e9, {"bytes_per_second": {"1": 1e10, "1000000": 2e9}, "flops_per_second": 1e11})
    (0.5, 'memory')
    """
    by_size = sorted((int(size), rate) for size, rate in found["bytes_per_second"].items())
    rate = next((r for size, r in by_size if size >= moved_bytes), by_size[-1][1])
    memory, arithmetic = moved_bytes / rate, flops / found["flops_per_second"]
    return (memory, "memory") if memory >= arithmetic else (arithmetic, "arithmetic")


# ---------------------------------------------------------------- measuring


def _agrees(found: Sequence[Any], expected: Sequence[Any], tolerance: float) -> bool:
    """Whether every element is within the tolerance of its array's scale, or of itself."""
    import numpy as np

    for f, e in zip(found, expected, strict=True):
        a, b = np.asarray(f, np.float64), np.asarray(e, np.float64)
        scale = float(np.sqrt(np.mean(b**2))) if b.size else 0.0
        if a.shape != b.shape or not np.allclose(a, b, rtol=tolerance, atol=tolerance * scale):
            return False
    return True


def measure(workload: Any, found: Mapping[str, Any], turns: int, min_seconds: float) -> dict[str, Any]:
    """One row. `problem` is set, and nothing timed, where the results differ from JAX's."""
    import jax
    import numpy as np

    import codegen
    import tilewright

    arguments = workload.arguments(np.random.default_rng(0))
    executable = codegen.compile(tilewright.from_jax(workload.function, *arguments))
    results = executable(*arguments)
    on_device = [jax.device_put(a) for a in arguments]
    compiled = jax.jit(workload.function).lower(*on_device).compile()
    expected = [np.asarray(x) for x in jax.tree.leaves(compiled(*on_device))]
    seconds, kind = limit_of(workload.moved_bytes(arguments, results), workload.flops, found)
    row: dict[str, Any] = {"name": workload.name, "what": workload.what, "between": workload.between,
                           "limit_seconds": seconds, "limit_kind": kind, "fallbacks": list(executable.fallbacks)}  # fmt: skip
    if not _agrees(results, expected, workload.tolerance):
        return {**row, "problem": "the results differ from JAX's", "seconds": {}}
    del results, expected
    calls: dict[str, Callable[[], object]] = {
        OWN: lambda: executable(*arguments),
        "JAX": lambda: jax.block_until_ready(compiled(*on_device)),  # type: ignore[no-untyped-call]
    }
    return {**row, "problem": None, "seconds": in_turns(calls, turns, min_seconds)}


def in_turns(calls: Mapping[str, Callable[[], object]], turns: int, min_seconds: float) -> dict[str, float]:
    """Medians; in each turn each is called once untimed and then several times timed."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    while min(len(s) for s in spent.values()) < turns or min(sum(s) for s in spent.values()) < min_seconds:
        for name, call in calls.items():
            call()
            for _ in range(3):
                start = time.perf_counter()
                call()
                spent[name].append(time.perf_counter() - start)
        if min(len(s) for s in spent.values()) > 100 * turns:
            break
    return {name: statistics.median(s) for name, s in spent.items()}


# ---------------------------------------------------------------- the page


def _ms(seconds: float) -> str:
    """Three digits.

    >>> _ms(0.0123456), _ms(5.4e-6)
    ('12.3', '0.0054')
    """
    ms = seconds * 1e3
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def page(results: Mapping[str, Any]) -> str:
    """docs/performance.md from a file of results. Raises ValueError for another form."""
    if results.get("schema") != SCHEMA:
        raise ValueError(f"expected results of the form {SCHEMA}, found {results.get('schema')!r}")
    rows = results["rows"]
    peers = list(dict.fromkeys(name for r in rows for name in r["seconds"] if name != OWN))
    head = ["workload", "what", "limit", OWN, "of limit", *peers, "best peer / own", "between"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in rows:
        own, others = r["seconds"].get(OWN), [r["seconds"].get(p) for p in peers]
        if r.get("problem") or own is None:
            cells = [r["problem"] or "not measured", "-", *["-" for _ in peers], "-", r["between"]]
        else:
            best = min((s for s in others if s is not None), default=None)
            ratio = "-" if best is None else f"{best / own:.2f}"
            between = r["between"] or ("in the evaluator: " + r["fallbacks"][0] if r.get("fallbacks") else "")
            cells = [_ms(own), f"{r['limit_seconds'] / own:.0%}", *("-" if s is None else _ms(s) for s in others), ratio, between]
        limit = f"{_ms(r['limit_seconds'])} {r['limit_kind']}"
        text = [f"`{r['name']}`", r["what"], limit, *cells]
        lines.append("| " + " | ".join(t.replace("|", "\\|").replace("<", "&lt;") for t in text) + " |")
    rates = ", ".join(
        f"{int(size) >> 10} KiB: {rate / 1e9:.0f}" for size, rate in results["limits"]["bytes_per_second"].items()
    )
    tail = f"\nBandwidth by working set, GB/s: {rates}. Peak: {results['limits']['flops_per_second'] / 1e9:.0f} GFLOP/s in f32.\n"
    return HEAD.format(**results["machine"]) + "\n".join(lines) + "\n" + tail


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", metavar="NAMES", help="some workloads, separated by commas")
    p.add_argument("--turns", type=int, default=10, metavar="N", help="turns of each, at least (default: 10)")
    p.add_argument("--min-seconds", type=float, default=0.5, metavar="S", help="and until each ran this long (default: 0.5)")
    p.add_argument("--threads", type=int, default=2, metavar="N", help="threads for all (default: 2)")
    p.add_argument("--keep-memory", action="store_true",
                   help="keep freed memory and use huge pages (glibc): JAX at its strongest on large outputs")  # fmt: skip
    p.add_argument("--json", metavar="FILE", type=pathlib.Path, help="write the results there")
    p.add_argument("--page", metavar="FILE", type=pathlib.Path, help=f"measure nothing: write {PAGE.name} from these results")
    args = p.parse_args(argv)
    if args.page:
        PAGE.write_text(page(json.loads(args.page.read_text("utf-8"))), "utf-8")
        return 0
    sys.path.insert(0, str(ROOT))
    from benchmarks.cases.workloads import WORKLOADS
    from benchmarks.compare_jax import KEEP_MEMORY, limit_threads, machine

    names = args.only.split(",") if args.only else [w.name for w in WORKLOADS]
    unknown = sorted(set(names) - {w.name for w in WORKLOADS})
    if unknown:
        p.error(f"no workload {', '.join(unknown)}; there is {', '.join(w.name for w in WORKLOADS)}")
    if args.keep_memory and os.environ.get("GLIBC_TUNABLES") != KEEP_MEMORY:
        # glibc reads this when a process starts.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "GLIBC_TUNABLES": KEEP_MEMORY})
    limit_threads(args.threads)
    found = limits(args.threads)
    rows = []
    for w in WORKLOADS:
        if w.name in names:
            rows.append(measure(w, found, args.turns, args.min_seconds))
            r = rows[-1]
            times = ", ".join(f"{name} {_ms(s)} ms" for name, s in r["seconds"].items())
            print(f"{w.name:18} {r['problem'] or times}; limit {_ms(r['limit_seconds'])} ms ({r['limit_kind']})", flush=True)
    results = {"schema": SCHEMA, "machine": machine(), "limits": found, "rows": rows}
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    return 1 if any(r["problem"] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
