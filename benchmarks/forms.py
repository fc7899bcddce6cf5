#!/usr/bin/env python3
"""Whole forms of models and numerical codes against JAX on the CPU: attention, norms, blocks, losses, updates, solvers.

    python benchmarks/forms.py                             all of `cases/forms.py`, some minutes
    python benchmarks/forms.py --only 'attention;LSTM*'
    python benchmarks/forms.py --keep-memory --json > forms.json

Each case is lowered once by JAX and compared with its result before anything is timed; then calls take turns. Printed are medians
in ms, JAX's over Tilewright's (above 1, Tilewright is faster), all scratch, the seconds to the first result from nothing, and
what runs in the evaluator; last what is behind, worst first. `docs/benchmarks.md` says what the numbers mean.
"""

from __future__ import annotations

import math
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.cases.forms import cases  # noqa: E402
from benchmarks.compare_jax import interleave  # noqa: E402
from benchmarks.tables import Case, Outcome, chosen, finish, options, show_ratios, started  # noqa: E402


@dataclass(frozen=True)
class Row(Outcome):
    """One case's outcome."""

    error: float = 0.0
    scratch_bytes: int = 0
    first_seconds: float = 0.0


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

    arrays = [g.make(7 + k) for k, g in enumerate(case.arguments)]
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
        case.group, case.name, kernels=len(executable.kernels), fallbacks=tuple(map(str, executable.fallbacks)),
        scratch_bytes=executable.stats.scratch_bytes, first_seconds=first,
    )  # fmt: skip
    error = 0.0
    # Values of 16 bits are rounded on the way: results have the tolerance of the narrowest type that they came through.
    narrowest = max(LIMITS.get(str(a.dtype), 0.0) for a in (*arrays, *expected))
    for a, b in zip(results, expected, strict=True):
        found = difference(np.asarray(a), b)
        error = max(error, found)
        if not found <= (narrowest if b.dtype.kind not in "biu" else 1e-3):
            return replace(row, problem=f"differs by {found:.1e}", error=found)
    row = replace(row, error=error)
    if check_only:
        return row
    del expected, results

    def run_jax() -> object:
        return jax.block_until_ready(compiled(*on_device))  # type: ignore[no-untyped-call]

    ours, theirs = interleave(lambda: executable(*arrays), run_jax, turns, min_seconds)
    return replace(row, ms=ours.median * 1e3, jax_ms=theirs.median * 1e3)


def show(rows: Sequence[Row]) -> None:
    """The table, the geometric means, and what is behind."""
    group = ""
    for r in rows:
        if r.group != group:
            group = r.group
            print(f"\n{group:34} {'ms':>9} {'JAX, ms':>9} {'JAX/tw':>7} {'error':>8} {'scratch':>9} {'first, s':>8} kernels")
        middle = f"{'-':>9} {'-':>9} {'-':>7}" if not r.ms else f"{r.ms:9.3f} {r.jax_ms:9.3f} {r.ratio:7.2f}"
        tail = f"{r.error:8.1e} {r.scratch_bytes / 1e6:8.2f}M {r.first_seconds:8.1f} {r.kernels}"
        print(f"  {r.name:32} {middle} {tail}{'  ' + r.problem if r.problem else ''}{r.note}")
    show_ratios(rows, 32)


def main(argv: Sequence[str] | None = None) -> int:
    p = options("Compare Tilewright with JAX on forms of models and numerical codes.", ";", 0.1)
    p.add_argument("--check-only", action="store_true", help="compare the results, time nothing")
    p.add_argument("--warm", action="store_true", help="keep to the user's cache of kernels instead of an empty one")
    args = started(p, argv)
    with tempfile.TemporaryDirectory() as folder:
        if not args.warm:
            os.environ["TILEWRIGHT_CACHE"] = folder
        found = chosen(p, cases(), args.only, ";")
        rows = [measure(case, args.turns, args.min_seconds, args.check_only) for case in found]
    return finish(rows, "tilewright.forms/1", None if args.json else lambda: show(rows))


if __name__ == "__main__":
    sys.exit(main())
