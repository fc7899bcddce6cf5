"""Random JAX programs on large arrays by `tilewright.jit` and `jax.jit`, in turns in one process: where is Tilewright behind?

    python -m benchmarks.calls.random_jax                       seeds from 0 on, for two minutes
    python -m benchmarks.calls.random_jax 5000 --seconds 600    seeds from 5000 on, for ten minutes

A program is what `tests/jax/test_random_programs.py` makes of a seed, of one to four steps on 20,000 to 1,000,000 elements.
Results are compared first, to the last bit, as their numbers are whole. Printed is each program that differs, that takes more
than `--behind` times JAX's time (the lower quartile of warm calls), or whose first result takes more than three times JAX's, and
.3 s; at the end the geometric mean of the times' ratios. A seed is a program by itself, which `SEED --count 1` runs.
"""

from __future__ import annotations

import argparse
import importlib
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright

SIZES = [2, 3, 4, 8, 16, 20, 33, 64, 100, 128, 256, 300, 512, 1000, 1024, 2048, 4096, 20000, 100000]
LEAST_ELEMS, MOST_ELEMS, MOST_MADE_ELEMS = 20_000, 1_000_000, 4_000_000
BRIEF_SECONDS = 4e-5  # what takes less is the call itself
SLOW_FIRST_SECONDS = 0.3


def maker(seed: int) -> Any:
    """The tests' maker of programs, with large arrays, few steps and one result."""
    random_programs: Any = importlib.import_module("tests.jax.test_random_programs")

    class Large(random_programs.Maker):  # type: ignore[misc]
        names: list[str]  # of its steps

        def shape(self) -> tuple[int, ...]:
            while True:
                found = tuple(self.choose.choice(SIZES) for _ in range(self.choose.choice([1, 2, 2, 3, 3])))
                if LEAST_ELEMS <= math.prod(found) <= MOST_ELEMS:
                    return found

        def program(self, *arguments: Any) -> tuple[Any, ...]:
            jnp = random_programs.jnp
            self.values = list(arguments)
            for _ in range(self.choose.randint(1, 4)):
                step = self.choose.choice(self.steps)
                made = jnp.clip(step(self.one()), -50, 50)
                if 0 < made.size <= MOST_MADE_ELEMS:
                    self.names.append(f"{step.__name__} -> {made.dtype}{list(made.shape)}")
                    self.values.append(made)
            return (self.values[-1],)

    random_programs.MOST_MADE_ELEMS = MOST_MADE_ELEMS
    made = Large(seed)
    made.names = []
    return made


def timed(functions: list[Callable[..., Any]], arguments: list[Any], ready: Callable[[Any], Any], seconds: float) -> list[float]:
    """The lower quartile of each one's calls, in turns."""
    found: list[list[float]] = [[] for _ in functions]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found[0]) < 5:
        for f, own in zip(functions, found, strict=True):
            start = time.perf_counter()
            ready(f(*arguments))
            own.append(time.perf_counter() - start)
    return [sorted(own)[len(own) // 4] for own in found]


def compare(seed: int) -> tuple[str, float, float]:
    """(a line about a program, our time over JAX's, that of first results); 0 for what is brief."""
    jax: Any = importlib.import_module("jax")
    names: list[str] = []

    def program(*arguments: Any) -> Any:
        made = maker(seed + 1)
        results = made.program(*arguments)
        names[:] = made.names
        return results

    arguments = [jax.numpy.asarray(a) for a in maker(seed).arrays()]
    functions: list[Callable[..., Any]] = [jax.jit(program), tilewright.jit(program)]
    firsts, results = list[float](), list[Any]()
    for f in functions:
        start = time.perf_counter()
        results.append(jax.block_until_ready(f(*arguments)))
        firsts.append(time.perf_counter() - start)
    steps = "; ".join(names)
    for x, y in zip(*results, strict=True):
        if not np.array_equal(np.asarray(x, np.float64), np.asarray(y, np.float64), equal_nan=True):
            return f"{seed} DIFFERS: {steps}", 0.0, 0.0
    jax_seconds, own_seconds = timed(functions, arguments, jax.block_until_ready, 0.25)
    warm, first = own_seconds / jax_seconds, firsts[1] / firsts[0]
    line = f"{seed} {warm:.2f} ({own_seconds * 1e3:.3f} ms), first {first:.1f} ({firsts[1]:.2f} s): {steps}"
    return line, warm if own_seconds > BRIEF_SECONDS else 0.0, first if firsts[1] > SLOW_FIRST_SECONDS else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("first", type=int, nargs="?", default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1_000_000, help="no more programs than these")
    parser.add_argument("--seconds", type=float, default=120, help="no longer than this")
    parser.add_argument("--behind", type=float, default=1.25, help="ratio from which on a program is printed")
    options = parser.parse_args()
    end, ratios = time.perf_counter() + options.seconds, list[float]()
    for seed in range(options.first, options.first + 2 * options.count, 2):
        if time.perf_counter() > end:
            break
        line, warm, first = compare(seed)
        if warm > options.behind or first > 3 or "DIFFERS" in line or options.count == 1:
            print(line, flush=True)
        ratios += [warm] if warm else []
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{len(ratios)} programs of {BRIEF_SECONDS * 1e6:.0f} us or more: {mean:.2f} of JAX's time in the geometric mean")


if __name__ == "__main__":
    main()
