#!/usr/bin/env python3
"""Everything that is no contraction, against JAX on the CPU: element by element, reduced, moved, scanned, looked up, sorted.

    python benchmarks/streams.py                             all of `stream_cases.py`, some minutes
    python benchmarks/streams.py --only 'reductions,x + x.T'
    python benchmarks/streams.py --keep-memory --json > streams.json

Each case is lowered once by JAX; results are compared before anything is timed; then calls take turns. Printed are medians in
ms, JAX's over Tilewright's (above 1, Tilewright is faster), the rate at which arguments and results pass, and, worst first, the
cases that are behind. `docs/benchmarks.md` says what the numbers mean.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import pathlib
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.compare_jax import KEEP_MEMORY, interleave, limit_threads  # noqa: E402
from benchmarks.stream_cases import Array, Case, cases  # noqa: E402


@dataclass(frozen=True)
class Row:
    """One case's outcome; `problem` says why it was not timed."""

    group: str
    name: str
    problem: str | None = None
    ms: float = 0.0
    jax_ms: float = 0.0
    bytes_per_second: float = 0.0
    kernels: int = 0
    fallbacks: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        return self.jax_ms / self.ms


def random_argument(a: Array, seed: int) -> Any:
    """The argument's elements."""
    import ml_dtypes  # noqa: F401  (its names become NumPy types)
    import numpy as np

    generator = np.random.default_rng(seed)
    kind = np.dtype(a.dtype)
    if kind.kind in "iu":
        return generator.integers(a.low, a.high, a.shape, kind) if a.shape else kind.type(generator.integers(a.low, a.high))
    values = generator.random(a.shape, np.float32) if a.unit else generator.standard_normal(a.shape, np.float32)
    return values.astype(kind)


def measure(case: Case, turns: int, min_seconds: float) -> Row:
    """Lowers, compiles, compares and times one case."""
    import jax
    import numpy as np

    import codegen
    import hlo
    from tilewright.check import Tolerance, compare, tolerance

    arrays = [np.asarray(random_argument(a, 7 + k)) for k, a in enumerate(case.arguments)]
    lowered = jax.jit(case.function, keep_unused=True).lower(*arrays)
    executable = codegen.compile(hlo.parse(lowered.as_text()))
    compiled = lowered.compile()
    on_device = [jax.device_put(a) for a in arrays]
    expected = [np.asarray(x) for x in jax.tree.leaves(compiled(*on_device))]
    fallbacks = tuple(map(str, executable.fallbacks))
    results = executable(*arrays)
    for a, b in zip(results, expected, strict=True):
        allowed = tolerance(b.dtype)
        # XLA sums in another order, and not always in the better one.
        c = compare(np.asarray(a), b, Tolerance(10 * allowed.relative, 4 * allowed.ulps))
        if not c.passed:
            return Row(case.group, case.name, f"differs by {c.max_rel:.1e} at {c.worst_index}", fallbacks=fallbacks)
    moved = sum(x.nbytes for x in (*arrays, *expected))
    del expected, results

    def run_jax() -> object:
        return jax.block_until_ready(compiled(*on_device))  # type: ignore[no-untyped-call]

    ours, theirs = interleave(lambda: executable(*arrays), run_jax, turns, min_seconds)
    ms, jax_ms = ours.median * 1e3, theirs.median * 1e3
    return Row(case.group, case.name, None, ms, jax_ms, moved / ours.median, len(executable.kernels), fallbacks)


def show(rows: Sequence[Row]) -> None:
    """The table, the geometric means, and what is behind."""
    group = ""
    for r in rows:
        if r.group != group:
            group = r.group
            print(f"\n{group:36} {'ms':>9} {'JAX, ms':>9} {'JAX/tw':>7} {'GB/s':>6} kernels")
        note = f"  evaluator: {'; '.join(r.fallbacks)[:90]}" if r.fallbacks else ""
        if r.problem:
            print(f"  {r.name:34} {r.problem}{note}")
        else:
            print(
                f"  {r.name:34} {r.ms:9.3f} {r.jax_ms:9.3f} {r.ratio:7.2f} {r.bytes_per_second / 1e9:6.1f} {r.kernels}{note}"
            )
    timed = [r for r in rows if not r.problem]
    print("\ngeometric means of JAX/tw")
    for name in dict.fromkeys(r.group for r in timed):
        print(f"  {name:34} {_mean([r.ratio for r in timed if r.group == name]):.2f}")
    if timed:
        print(f"  {'all':34} {_mean([r.ratio for r in timed]):.2f}")
    behind = sorted((r for r in timed if r.ratio < 1), key=lambda r: r.ratio)
    print(f"\nbehind: {len(behind)} of {len(timed)}")
    for r in behind:
        print(f"  {r.ratio:5.2f}  {r.group}: {r.name}")


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description="Compare Tilewright with JAX on programs without contractions.")
    p.add_argument("--only", metavar="PATTERNS", help="groups or cases, separated by commas; * and ? match")
    p.add_argument("--turns", type=int, default=7, metavar="N", help="turns of each, at least (default: 7)")
    p.add_argument("--min-seconds", type=float, default=0.05, metavar="S", help="and until each ran this long (default: 0.05)")
    p.add_argument("--threads", type=int, default=2, metavar="N", help="threads for both (default: 2)")
    p.add_argument("--keep-memory", action="store_true", help="keep freed memory, huge pages (glibc): JAX at its strongest")
    p.add_argument("--json", action="store_true", help="print JSON")
    args = p.parse_args(argv)
    if args.turns < 2 or args.threads < 1:
        p.error("--turns must be at least 2 and --threads at least 1")
    if args.keep_memory and os.environ.get("GLIBC_TUNABLES") != KEEP_MEMORY:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "GLIBC_TUNABLES": KEEP_MEMORY})
    limit_threads(args.threads)
    import jax

    patterns = [x.strip() for x in args.only.split(",")] if args.only else ["*"]
    rows = []
    for case in cases():
        if any(fnmatch.fnmatchcase(x, p) for x in (case.group, case.name) for p in patterns):
            if sys.stderr.isatty():
                print(f"{case.group}: {case.name} …", file=sys.stderr)
            with jax.enable_x64(any(a.dtype.endswith("64") for a in case.arguments)):
                rows.append(measure(case, args.turns, args.min_seconds))
    if not rows:
        p.error(f"no case matches {args.only}")
    if args.json:
        found = [{**asdict(r), "ratio": None if r.problem else r.ratio} for r in rows]
        print(json.dumps({"schema": "tilewright.streams/1", "rows": found}, indent=2))
    else:
        show(rows)
    return 1 if any(r.problem for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
