#!/usr/bin/env python3
"""Everything that is no contraction, against JAX on the CPU: element by element, reduced, moved, scanned, looked up, sorted.

    python benchmarks/streams.py                             all of `cases/streams.py`, some minutes
    python benchmarks/streams.py --only 'reductions,x + x.T'
    python benchmarks/streams.py --keep-memory --json > streams.json

Each case is lowered once by JAX; results are compared before anything is timed; then calls take turns. Printed are medians in
ms, JAX's over Tilewright's (above 1, Tilewright is faster), the rate at which arguments and results pass, and, worst first, the
cases that are behind. `docs/benchmarks.md` says what the numbers mean.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.cases.streams import cases  # noqa: E402
from benchmarks.compare_jax import interleave  # noqa: E402
from benchmarks.tables import Case, Outcome, chosen, finish, options, show_ratios, started  # noqa: E402


@dataclass(frozen=True)
class Row(Outcome):
    """One case's outcome."""

    bytes_per_second: float = 0.0


def measure(case: Case, turns: int, min_seconds: float) -> Row:
    """Lowers, compiles, compares and times one case."""
    import jax
    import numpy as np

    import codegen
    import hlo
    from tilewright.check import Tolerance, compare, tolerance

    arrays = [a.make(7 + k) for k, a in enumerate(case.arguments)]
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
    return Row(case.group, case.name, None, ms, jax_ms, len(executable.kernels), fallbacks, moved / ours.median)


def show(rows: Sequence[Row]) -> None:
    """The table, the geometric means, and what is behind."""
    group = ""
    for r in rows:
        if r.group != group:
            group = r.group
            print(f"\n{group:36} {'ms':>9} {'JAX, ms':>9} {'JAX/tw':>7} {'GB/s':>6} kernels")
        if r.problem:
            print(f"  {r.name:34} {r.problem}{r.note}")
        else:
            print(
                f"  {r.name:34} {r.ms:9.3f} {r.jax_ms:9.3f} {r.ratio:7.2f} {r.bytes_per_second / 1e9:6.1f} {r.kernels}{r.note}"
            )
    show_ratios(rows, 34)


def main(argv: Sequence[str] | None = None) -> int:
    p = options("Compare Tilewright with JAX on programs without contractions.", ",", 0.05)
    args = started(p, argv)
    import jax

    rows = []
    for case in chosen(p, cases(), args.only, ","):
        with jax.enable_x64(any(a.dtype.endswith("64") for a in case.arguments)):
            rows.append(measure(case, args.turns, args.min_seconds))
    return finish(rows, "tilewright.streams/1", None if args.json else lambda: show(rows))


if __name__ == "__main__":
    sys.exit(main())
