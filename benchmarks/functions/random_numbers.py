"""Every distribution of `jax.random` in every implementation against JAX: first results and warm calls, results checked first.

    python -m benchmarks.functions.random_numbers [--only gamma,poisson] [--implementations threefry2x32,rbg,unsafe_rbg]
                                        [--sizes small,large,1000] [--seconds 0.3]
    python -m benchmarks.functions.random_numbers --program 10        # one program with all of them

One row for each distribution, implementation and size, each measured in a process of its own with an empty cache. `first` is
the seconds from the function to its first result (tracing, planning, compiling, the call), `cpu` the processor seconds of that
with helpers. Warm calls are taken in turns, the least of each: `wall` and `cpu` in milliseconds, of the executable with arrays in
and out, and of what `jax.jit` made; `ratio` is ours over JAX's. Integers have to be equal, numbers agree within rounding (a few
in a hundred thousand may differ where a rounding error decides whether a sample is rejected).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

import tilewright

Make = Callable[[int], Callable[[Any], Any]]

SMALL, LARGE, SLOW = 10, 1_000_000, 100_000
IMPLEMENTATIONS = ("threefry2x32", "rbg", "unsafe_rbg")
DIFFERENT = 2e-5
"""The share of a distribution's numbers that may differ by more than rounding."""


def _side(n: int) -> int:
    """The edge of a matrix that costs about as much as n numbers."""
    return 4 if n == SMALL else 128


def _logits(n: int) -> Any:
    return jnp.linspace(-2.0, 2.0, 10)[None] * jnp.ones((max(n // 10, 1), 1))


FAST: dict[str, Make] = {
    "bits": lambda n: lambda k: random.bits(k, (n,)),
    "bits of 8": lambda n: lambda k: random.bits(k, (n,), jnp.uint8),
    "uniform": lambda n: lambda k: random.uniform(k, (n,)),
    "uniform bf16": lambda n: lambda k: random.uniform(k, (n,), jnp.bfloat16),
    "normal": lambda n: lambda k: random.normal(k, (n,)),
    "bernoulli": lambda n: lambda k: random.bernoulli(k, 0.3, (n,)),
    "randint": lambda n: lambda k: random.randint(k, (n,), 0, 1000),
    "truncated_normal": lambda n: lambda k: random.truncated_normal(k, -1.0, 2.0, (n,)),
    "gumbel": lambda n: lambda k: random.gumbel(k, (n,)),
    "categorical": lambda n: lambda k: random.categorical(k, _logits(n)),
    "exponential": lambda n: lambda k: random.exponential(k, (n,)),
    "laplace": lambda n: lambda k: random.laplace(k, (n,)),
    "logistic": lambda n: lambda k: random.logistic(k, (n,)),
    "cauchy": lambda n: lambda k: random.cauchy(k, (n,)),
    "rademacher": lambda n: lambda k: random.rademacher(k, (n,)),
    "maxwell": lambda n: lambda k: random.maxwell(k, (n,)),
    "double_sided_maxwell": lambda n: lambda k: random.double_sided_maxwell(k, 0.5, 1.5, (n,)),
    "weibull_min": lambda n: lambda k: random.weibull_min(k, 2.0, 1.5, (n,)),
    "pareto": lambda n: lambda k: random.pareto(k, 2.0, (n,)),
    "geometric": lambda n: lambda k: random.geometric(k, 0.3, (n,)),
    "triangular": lambda n: lambda k: random.triangular(k, 0.0, 0.3, 1.0, (n,)),
    "lognormal": lambda n: lambda k: random.lognormal(k, 0.5, (n,)),
    "wald": lambda n: lambda k: random.wald(k, 2.0, (n,)),
    "rayleigh": lambda n: lambda k: random.rayleigh(k, 2.0, (n,)),
    "ball": lambda n: lambda k: random.ball(k, 3, shape=(max(n // 3, 1),)),
    "choice": lambda n: lambda k: random.choice(k, 1000, (n,)),
    "choice by weight": lambda n: lambda k: random.choice(k, 10, (n,), p=jnp.arange(1.0, 11.0) / 55),
    "split": lambda n: lambda k: random.key_data(random.split(k, n)),
    "fold_in": lambda n: lambda k: random.key_data(jax.vmap(lambda i: random.fold_in(k, i))(jnp.arange(n))),
    "wrap_key_data": lambda n: lambda k: random.uniform(_wrapped(k), (n,)),
    "vmap over keys": lambda n: lambda k: jax.vmap(lambda q: random.normal(q, (10,)))(random.split(k, max(n // 10, 1))),
    "scan of keys": lambda n: lambda k: _scanned(k, n),
}

HEAVY: dict[str, Make] = {
    "permutation": lambda n: lambda k: random.permutation(k, n),
    "shuffle of rows": lambda n: lambda k: random.permutation(k, jnp.arange(2.0 * n).reshape(n, 2)),
    "choice without replacement": lambda n: lambda k: random.choice(k, n, (max(n // 10, 1),), replace=False),
    "beta": lambda n: lambda k: random.beta(k, 2.0, 3.0, (n,)),
    "gamma": lambda n: lambda k: random.gamma(k, 2.0, (n,)),
    "gamma of many": lambda n: lambda k: random.gamma(k, jnp.linspace(0.1, 5.0, n)),
    "loggamma": lambda n: lambda k: random.loggamma(k, 0.5, (n,)),
    "dirichlet": lambda n: lambda k: random.dirichlet(k, jnp.arange(1.0, 6.0), (max(n // 5, 1),)),
    "poisson": lambda n: lambda k: random.poisson(k, 3.0, (n,)),
    "poisson of many": lambda n: lambda k: random.poisson(k, jnp.linspace(0.5, 60.0, n)),
    "binomial": lambda n: lambda k: random.binomial(k, 10, 0.3, (n,)),
    "binomial of many": lambda n: lambda k: random.binomial(k, 100, jnp.linspace(0.1, 0.9, n)),
    "t": lambda n: lambda k: random.t(k, 3.0, (n,)),
    "chisquare": lambda n: lambda k: random.chisquare(k, 3.0, shape=(n,)),
    "f": lambda n: lambda k: random.f(k, 3.0, 4.0, (n,)),
    "generalized_normal": lambda n: lambda k: random.generalized_normal(k, 1.5, (n,)),
    "multinomial": lambda n: lambda k: random.multinomial(k, 10, jnp.ones((max(n // 100, 1), 4)) / 4),
    "multivariate_normal": lambda n: lambda k: random.multivariate_normal(k, jnp.zeros(4), jnp.eye(4) + 0.2, (max(n // 4, 1),)),
    "orthogonal": lambda n: lambda k: jnp.abs(random.orthogonal(k, _side(n))),
}


def _wrapped(key: Any) -> Any:
    return random.wrap_key_data(random.key_data(key), impl=str(random.key_impl(key)))


def _scanned(key: Any, n: int) -> Any:
    def step(k: Any, _: Any) -> Any:
        k, now = random.split(k)
        return k, random.normal(now, (10,))

    return jax.lax.scan(step, key, None, length=max(n // 1000, 2))[1]


CASES = {**{name: (make, LARGE) for name, make in FAST.items()}, **{name: (make, SLOW) for name, make in HEAVY.items()}}


def declined(name: str, implementation: str) -> bool:
    """Whether JAX itself has no such numbers of such keys."""
    return name.startswith("poisson") and implementation != "threefry2x32"


def all_of(n: int) -> Callable[[Any], Any]:
    """One program with every distribution that JAX has in the key's implementation, each of a key of its own."""

    def run(key: Any) -> Any:
        keys = random.split(key, len(CASES))
        rows = zip(keys, CASES.items(), strict=True)
        return {name: make(n)(k) for k, (name, (make, _)) in rows if not declined(name, str(random.key_impl(key)))}

    return run


# ---------------------------------------------------------------- measuring


@dataclass
class Row:
    """What one case took: seconds for the first result, milliseconds of warm calls."""

    name: str
    implementation: str
    elems: int
    first: float
    first_jax: float
    first_cpu: float
    first_cpu_jax: float
    kernels: int
    fallbacks: int
    wrong: str
    wall: float = math.inf
    wall_jax: float = math.inf
    cpu: float = math.inf
    cpu_jax: float = math.inf


def _processor_seconds() -> float:
    """Of this process and of the helpers that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _timed(f: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, cpu = time.perf_counter(), _processor_seconds()
    result = f()
    return result, time.perf_counter() - wall, _processor_seconds() - cpu


def differs(found: Any, wanted: Any) -> str:
    """What is wrong with ours beside JAX's, or nothing."""
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        x, y = np.asarray(a), np.asarray(b)
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            return f"{x.dtype}{x.shape} for {y.dtype}{y.shape}"
        if x.dtype.kind in "biu":
            bad = x != y
        else:
            wide = np.float64 if x.dtype.kind != "c" else np.complex128
            tolerance = 1e-9 if x.dtype.itemsize == 8 else 3e-4 if x.dtype == np.float32 else 2e-2
            bad = ~np.isclose(x.astype(wide), y.astype(wide), rtol=tolerance, atol=tolerance, equal_nan=True)
        if bad.sum() > DIFFERENT * bad.size:
            return f"{int(bad.sum())} of {bad.size} differ"
    return ""


def _least(call: Callable[[], Any], calls: int) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        call()
    return (time.perf_counter() - wall) / calls, (time.process_time() - cpu) / calls


def measured(name: str, f: Callable[[Any], Any], implementation: str, elems: int, seconds: float, warm: bool) -> Row:
    """One row, in this process."""
    key = random.key(42, impl=implementation)
    data = np.asarray(random.key_data(key))
    ours = tilewright.jit(lambda d: f(random.wrap_key_data(d, impl=implementation)))
    theirs = jax.jit(lambda d: f(random.wrap_key_data(d, impl=implementation)))
    given = jnp.asarray(data)
    jax.block_until_ready(jax.jit(jnp.tanh)(jnp.ones(3)))  # type: ignore[no-untyped-call]
    tilewright.jit(jnp.tanh)(np.ones(3, np.float32))
    jax.clear_caches()  # type: ignore[no-untyped-call]
    wanted, first_jax, first_cpu_jax = _timed(lambda: jax.block_until_ready(theirs(given)))  # type: ignore[no-untyped-call]
    jax.clear_caches()  # type: ignore[no-untyped-call]
    found, first, first_cpu = _timed(lambda: ours(data))
    executable = ours.executable(data)
    row = Row(name, implementation, elems, first, first_jax, first_cpu, first_cpu_jax,
              len(executable.kernels), len(executable.fallbacks), differs(found, wanted))  # fmt: skip
    if row.wrong or not warm:
        return row
    theirs(given)

    def jax_call() -> Any:
        return jax.block_until_ready(theirs(given))  # type: ignore[no-untyped-call]

    def own_call() -> Any:
        return executable(data)

    counts = [max(1, min(1000, int(0.005 / max(_least(call, 2)[0], 1e-7)))) for call in (own_call, jax_call)]
    until = time.perf_counter() + seconds
    turns = 0
    while time.perf_counter() < until or turns < 3:
        for k, call in enumerate((own_call, jax_call)):
            wall, cpu = (1e3 * x for x in _least(call, counts[k]))
            if k == 0:
                row.wall, row.cpu = min(row.wall, wall), min(row.cpu, cpu)
            else:
                row.wall_jax, row.cpu_jax = min(row.wall_jax, wall), min(row.cpu_jax, cpu)
        turns += 1
    return row


def apart(work: Callable[[], Row]) -> Row | str:
    """`work` in a forked process with an empty cache; what went wrong, as text."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TILEWRIGHT_CACHE"] = folder
            try:
                told = json.dumps(asdict(work()))
            except Exception:  # noqa: BLE001 - told to the parent, which prints it
                told = json.dumps(traceback.format_exc())
            with os.fdopen(into, "w") as pipe:
                pipe.write(told)
        sys.stdout.flush()
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    told = json.loads(text) if text else "the process died"
    return told if isinstance(told, str) else Row(**told)


HEAD = (
    f"{'distribution':34} {'key':13} {'first s':>8} {'JAX':>6} {'cpu s':>6} {'JAX':>6}"
    f" {'wall ms':>9} {'JAX':>9} {'ratio':>6} {'cpu ms':>9} {'JAX':>9} {'ratio':>6} kernels"
)


def shown(r: Row) -> str:
    """A row of the table."""
    text = f"{r.name:34} {r.implementation:13} {r.first:8.2f} {r.first_jax:6.2f} {r.first_cpu:6.2f} {r.first_cpu_jax:6.2f}"
    if r.wrong:
        return f"{text} WRONG: {r.wrong}"
    if r.wall < math.inf:
        text += f" {r.wall:9.4f} {r.wall_jax:9.4f} {r.wall / r.wall_jax:6.2f}"
        text += f" {r.cpu:9.4f} {r.cpu_jax:9.4f} {r.cpu / r.cpu_jax:6.2f}"
    return f"{text} {r.kernels:4}" + (f", {r.fallbacks} in the evaluator" if r.fallbacks else "")


def summary(rows: Sequence[Row]) -> str:
    """Geometric means of ours over JAX's."""
    right = [r for r in rows if not r.wrong]
    pairs: dict[str, list[float]] = {
        "first": [r.first / r.first_jax for r in right],
        "first cpu": [r.first_cpu / r.first_cpu_jax for r in right],
        "wall": [r.wall / r.wall_jax for r in right if r.wall < math.inf],
        "cpu": [r.cpu / r.cpu_jax for r in right if r.wall < math.inf],
    }
    means = [f"{name} {math.exp(sum(map(math.log, x)) / len(x)):.2f}" for name, x in pairs.items() if x]
    behind = sum(r.wall > r.wall_jax for r in right if r.wall < math.inf)
    return f"geometric means of ours over JAX's: {', '.join(means)}; warm behind in {behind} of {len(right)}"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="distributions, separated by commas")
    parser.add_argument("--implementations", default=",".join(IMPLEMENTATIONS))
    parser.add_argument("--sizes", default="small,large", help="small (10), large (100,000 or a million), or numbers")
    parser.add_argument("--seconds", type=float, default=0.3, help="of warm calls for each row")
    parser.add_argument("--program", type=int, help="one program with all distributions, each of about so many numbers")
    options = parser.parse_args()
    print(HEAD)
    rows = []

    def add(name: str, f: Callable[[Any], Any], implementation: str, elems: int) -> None:
        row = apart(lambda: measured(name, f, implementation, elems, options.seconds, options.seconds > 0))
        if isinstance(row, str):
            print(f"{name:34} {implementation:13} {row}", flush=True)
            return
        rows.append(row)
        print(shown(row), flush=True)

    names = options.only.split(",") if options.only else list(CASES)
    for implementation in options.implementations.split(","):
        if options.program:
            add("all in one program", all_of(options.program), implementation, options.program)
            continue
        for size in options.sizes.split(","):
            for name in (x for x in names if not declined(x, implementation)):
                make, large = CASES[name]
                n = SMALL if size == "small" else large if size == "large" else int(size)
                add(f"{name}, {n}", make(n), implementation, n)
    print(summary(rows))


if __name__ == "__main__":
    main()
