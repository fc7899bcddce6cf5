#!/usr/bin/env python3
"""Whole forms of models and numerical codes against JAX on the CPU: attention, norms, blocks, losses, updates, solvers.

    python benchmarks/forms.py                             all of `form_cases.py`, some minutes
    python benchmarks/forms.py --only 'attention;LSTM*'
    python benchmarks/forms.py --keep-memory --json > forms.json

Each case is lowered once by JAX and compared with its result before anything is timed; then calls take turns. Printed are medians
in ms, JAX's over Tilewright's (above 1, Tilewright is faster), all scratch, the seconds to the first result from nothing, and
what runs in the evaluator; last what is behind, worst first. `docs/benchmarks.md` says what the numbers mean.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.compare_jax import KEEP_MEMORY, interleave, limit_threads  # noqa: E402
from benchmarks.form_cases import Case, Given, cases  # noqa: E402


@dataclass(frozen=True)
class Row:
    """One case's outcome; `problem` says why it was not timed."""

    group: str
    name: str
    problem: str | None = None
    ms: float = 0.0
    jax_ms: float = 0.0
    error: float = 0.0
    scratch_bytes: int = 0
    first_seconds: float = 0.0
    kernels: int = 0
    fallbacks: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        return self.jax_ms / self.ms


def random_argument(given: Given, seed: int) -> Any:
    """The argument's elements."""
    import ml_dtypes  # noqa: F401  (its names become NumPy types)
    import numpy as np

    generator = np.random.default_rng(seed)
    kind = np.dtype(given.dtype)
    if kind.kind in "iu":
        return np.asarray(generator.integers(given.low, given.high, given.shape, kind))
    values = generator.random(given.shape, np.float32) if given.unit else generator.standard_normal(given.shape, np.float32)
    return np.asarray(values * np.float32(given.scale)).astype(kind)


def difference(a: Any, b: Any) -> float:
    """The greatest |a - b| over the greatest |b|, where sums are in other orders; inf where only one is finite."""
    import numpy as np

    if b.dtype.kind in "biu":
        return float((a != b).mean())
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    finite = np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return math.inf
    if not finite.any():
        return 0.0
    found = float(np.abs(x[finite] - y[finite]).max()) / max(float(np.abs(y[finite]).max()), 1e-30)
    return math.inf if math.isnan(found) else found


LIMITS = {"float64": 1e-10, "float32": 2e-4, "bfloat16": 4e-2, "float16": 6e-3}


def measure(case: Case, turns: int, min_seconds: float, check_only: bool = False) -> Row:
    """Lowers, compiles, compares and times one case."""
    import jax
    import numpy as np

    import codegen
    import hlo

    arrays = [random_argument(g, 7 + k) for k, g in enumerate(case.arguments)]
    lowered = jax.jit(case.function, keep_unused=True).lower(*arrays)
    text = lowered.as_text()
    start = time.perf_counter()
    executable = codegen.compile(hlo.parse(text))
    results = executable(*arrays)
    first = time.perf_counter() - start
    compiled = lowered.compile()
    on_device = [jax.device_put(a) for a in arrays]
    expected = [np.asarray(x) for x in jax.tree.leaves(compiled(*on_device))]
    row = Row(
        case.group, case.name, None, 0.0, 0.0, 0.0, executable.stats.scratch_bytes, first, len(executable.kernels),
        tuple(map(str, executable.fallbacks)),
    )  # fmt: skip
    error = 0.0
    # Values of 16 bits are rounded on the way: results have the tolerance of the narrowest type that they came through.
    narrowest = max(LIMITS.get(str(a.dtype), 0.0) for a in (*arrays, *expected))
    for a, b in zip(results, expected, strict=True):
        found = difference(np.asarray(a), b)
        error = max(error, found)
        if not found <= (narrowest if b.dtype.kind not in "biu" else 1e-3):
            return Row(**{**asdict(row), "problem": f"differs by {found:.1e}", "error": found})
    row = Row(**{**asdict(row), "error": error})
    if check_only:
        return row
    del expected, results

    def run_jax() -> object:
        return jax.block_until_ready(compiled(*on_device))  # type: ignore[no-untyped-call]

    ours, theirs = interleave(lambda: executable(*arrays), run_jax, turns, min_seconds)
    return Row(**{**asdict(row), "ms": ours.median * 1e3, "jax_ms": theirs.median * 1e3})


def show(rows: Sequence[Row]) -> None:
    """The table, the geometric means, and what is behind."""
    group = ""
    for r in rows:
        if r.group != group:
            group = r.group
            print(f"\n{group:34} {'ms':>9} {'JAX, ms':>9} {'JAX/tw':>7} {'error':>8} {'scratch':>9} {'first, s':>8} kernels")
        note = f"  evaluator: {'; '.join(r.fallbacks)[:90]}" if r.fallbacks else ""
        middle = f"{'-':>9} {'-':>9} {'-':>7}" if not r.ms else f"{r.ms:9.3f} {r.jax_ms:9.3f} {r.ratio:7.2f}"
        tail = f"{r.error:8.1e} {r.scratch_bytes / 1e6:8.2f}M {r.first_seconds:8.1f} {r.kernels}"
        print(f"  {r.name:32} {middle} {tail}{'  ' + r.problem if r.problem else ''}{note}")
    timed = [r for r in rows if r.ms]
    if timed:
        print("\ngeometric means of JAX/tw")
        for name in dict.fromkeys(r.group for r in timed):
            print(f"  {name:32} {_mean([r.ratio for r in timed if r.group == name]):.2f}")
        print(f"  {'all':32} {_mean([r.ratio for r in timed]):.2f}")
    behind = sorted((r for r in timed if r.ratio < 1), key=lambda r: r.ratio)
    print(f"\nbehind: {len(behind)} of {len(timed)}")
    for r in behind:
        print(f"  {r.ratio:5.2f}  {r.group}: {r.name}")


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description="Compare Tilewright with JAX on forms of models and numerical codes.")
    p.add_argument("--only", metavar="PATTERNS", help="groups or cases, separated by semicolons; * and ? match")
    p.add_argument("--turns", type=int, default=7, metavar="N", help="turns of each, at least (default: 7)")
    p.add_argument("--min-seconds", type=float, default=0.1, metavar="S", help="and until each ran this long (default: 0.1)")
    p.add_argument("--threads", type=int, default=2, metavar="N", help="threads for both (default: 2)")
    p.add_argument("--keep-memory", action="store_true", help="keep freed memory, huge pages (glibc): JAX at its strongest")
    p.add_argument("--check-only", action="store_true", help="compare the results, time nothing")
    p.add_argument("--warm", action="store_true", help="keep to the user's cache of kernels instead of an empty one")
    p.add_argument("--json", action="store_true", help="print JSON")
    args = p.parse_args(argv)
    if args.turns < 2 or args.threads < 1:
        p.error("--turns must be at least 2 and --threads at least 1")
    if args.keep_memory and os.environ.get("GLIBC_TUNABLES") != KEEP_MEMORY:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "GLIBC_TUNABLES": KEEP_MEMORY})
    limit_threads(args.threads)
    patterns = [x.strip() for x in args.only.split(";")] if args.only else ["*"]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        if not args.warm:
            os.environ["TILEWRIGHT_CACHE"] = folder
        for case in cases():
            if any(fnmatch.fnmatchcase(x, p) for x in (case.group, case.name) for p in patterns):
                if sys.stderr.isatty():
                    print(f"{case.group}: {case.name} …", file=sys.stderr)
                rows.append(measure(case, args.turns, args.min_seconds, args.check_only))
    if not rows:
        p.error(f"no case matches {args.only}")
    if args.json:
        found = [{**asdict(r), "ratio": r.ratio if r.ms else None} for r in rows]
        print(json.dumps({"schema": "tilewright.forms/1", "rows": found}, indent=2))
    else:
        show(rows)
    return 1 if any(r.problem for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
