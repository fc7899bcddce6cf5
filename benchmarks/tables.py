"""Tables of JAX functions against Tilewright: their cases, their options, and what is said at the end of one."""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.compare_jax import KEEP_MEMORY, limit_threads

__all__ = ["Case", "Given", "Outcome", "cases_of", "chosen", "finish", "geometric_mean", "options", "show_ratios", "started"]


@dataclass(frozen=True)
class Given:
    """A random argument: floats are normal times `scale` (or in [0, 1) with `unit`), integers in [low, high)."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    scale: float = 1.0
    low: int = 0
    high: int = 0
    unit: bool = False

    def make(self, seed: int) -> Any:
        """The argument's elements."""
        import ml_dtypes  # noqa: F401  (its names become NumPy types)
        import numpy as np

        generator = np.random.default_rng(seed)
        kind = np.dtype(self.dtype)
        if kind.kind in "iu":
            return np.asarray(generator.integers(self.low, self.high, self.shape, kind))
        values = generator.random(self.shape, np.float32) if self.unit else generator.standard_normal(self.shape, np.float32)
        return np.asarray(values * np.float32(self.scale)).astype(kind)


@dataclass(frozen=True)
class Case:
    """A program and its arguments; `group` is what it has in common with others."""

    group: str
    name: str
    function: Callable[..., Any]
    arguments: tuple[Given, ...]


@dataclass(frozen=True)
class Outcome:
    """One case's outcome; `problem` says why it was not timed."""

    group: str
    name: str
    problem: str | None = None
    ms: float = 0.0
    jax_ms: float = 0.0
    kernels: int = 0
    fallbacks: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        return self.jax_ms / self.ms

    @property
    def note(self) -> str:
        """What runs in the evaluator, for the end of a line."""
        return f"  evaluator: {'; '.join(self.fallbacks)[:90]}" if self.fallbacks else ""


def cases_of(groups: Mapping[str, Callable[[], Mapping[str, tuple[Any, ...]]]]) -> Iterator[Case]:
    """Every case, group by group; a group is made when it is asked for: name -> (function, arguments)."""
    for group, make in groups.items():
        for name, (function, *arguments) in make().items():
            yield Case(group, name, function, tuple(arguments))


# ---------------------------------------------------------------- the command


def options(description: str, separator: str, min_seconds: float) -> argparse.ArgumentParser:
    """The options that all tables have."""
    p = argparse.ArgumentParser(description=description)
    between = {",": "commas", ";": "semicolons"}[separator]
    p.add_argument("--only", metavar="PATTERNS", help=f"groups or cases, separated by {between}; * and ? match")
    p.add_argument("--turns", type=int, default=7, metavar="N", help="turns of each, at least (default: 7)")
    until = f"and until each ran this long (default: {min_seconds})"
    p.add_argument("--min-seconds", type=float, default=min_seconds, metavar="S", help=until)
    p.add_argument("--threads", type=int, default=2, metavar="N", help="threads for both (default: 2)")
    p.add_argument("--keep-memory", action="store_true", help="keep freed memory, huge pages (glibc): JAX at its strongest")
    p.add_argument("--json", action="store_true", help="print JSON")
    return p


def started(p: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The options, once they make sense; with --keep-memory the process starts anew under that setting."""
    args = p.parse_args(argv)
    if args.turns < 2 or args.threads < 1:
        p.error("--turns must be at least 2 and --threads at least 1")
    if args.keep_memory and os.environ.get("GLIBC_TUNABLES") != KEEP_MEMORY:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "GLIBC_TUNABLES": KEEP_MEMORY})
    limit_threads(args.threads)
    return args


def chosen(p: argparse.ArgumentParser, cases: Iterable[Case], only: str | None, separator: str) -> Iterator[Case]:
    """The cases that were asked for, each said on a terminal; ends the command where there are none."""
    patterns = [x.strip() for x in only.split(separator)] if only else ["*"]
    found = False
    for case in cases:
        if any(fnmatch.fnmatchcase(x, pattern) for x in (case.group, case.name) for pattern in patterns):
            found = True
            if sys.stderr.isatty():
                print(f"{case.group}: {case.name} …", file=sys.stderr)
            yield case
    if not found:
        p.error(f"no case matches {only}")


def finish(rows: Sequence[Outcome], schema: str, show: Callable[[], None] | None) -> int:
    """Prints the table by `show`, or JSON without one; the exit code, 1 where a case has a problem."""
    if show is None:
        found = [{**asdict(r), "ratio": r.ratio if r.ms else None} for r in rows]
        print(json.dumps({"schema": schema, "rows": found}, indent=2))
    else:
        show()
    return 1 if any(r.problem for r in rows) else 0


def show_ratios(rows: Sequence[Outcome], width: int) -> None:
    """The geometric means, and what is behind, worst first."""
    timed = [r for r in rows if r.ms]
    if timed:
        print("\ngeometric means of JAX/tw")
        for name in dict.fromkeys(r.group for r in timed):
            print(f"  {name:{width}} {geometric_mean([r.ratio for r in timed if r.group == name]):.2f}")
        print(f"  {'all':{width}} {geometric_mean([r.ratio for r in timed]):.2f}")
    behind = sorted((r for r in timed if r.ratio < 1), key=lambda r: r.ratio)
    print(f"\nbehind: {len(behind)} of {len(timed)}")
    for r in behind:
        print(f"  {r.ratio:5.2f}  {r.group}: {r.name}")


def geometric_mean(ratios: Sequence[float]) -> float:
    """exp of the mean logarithm.

    >>> geometric_mean([0.5, 2.0])
    1.0
    """
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
