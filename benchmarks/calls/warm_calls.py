"""Where a warm call of `tilewright.jit` spends its time, beside JAX's: `python -m benchmarks.calls.warm_calls`.

`where(f, *arguments)` measures any function of JAX's; the command, a few of the kinds that whole programs consist of.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tilewright
from tilewright.jax.signatures import array

HEAD = ("JAX", "own", "own / JAX", "the call alone", "kernels", "Python's steps", "thorough call", "leaves", "steps")


def quartile_us(f: Callable[[], Any], seconds: float = 0.4) -> float:
    """The lower quartile of as many calls as fit, in µs: what others do to the machine is not in it."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < 20 or (time.perf_counter() < end and len(taken) < 2000):
        began = time.perf_counter()
        f()
        taken.append(time.perf_counter() - began)
    return sorted(taken)[len(taken) // 4] * 1e6


def where(f: Any, *arguments: Any, turns: int = 3, **options: Any) -> dict[str, float]:
    """The parts of a warm call in µs, named as in `HEAD`; `options` are those of `jit`.

    `the call alone` is a program of JAX's that is donated as many arrays of one element as the function takes, and gives as many
    as it gives. `thorough call` goes through NumPy, as the first call does. Steps are timed in the executable, on NumPy's arrays.
    """
    ready: Any = jax.block_until_ready
    theirs, own = jax.jit(f, **options), tilewright.jit(f, **options)
    thorough = tilewright.jit(f, **options)
    thorough._has_front = False
    for g in (theirs, own, thorough):
        for _ in range(3):
            results = ready(g(*arguments))
    leaves, key = own._signature(arguments, {})
    made = own._compiled(leaves, key, arguments, {})
    arrays = [array(jax, x, t) for x, t in zip(leaves, made.dtypes, strict=True) if t is not None]
    count = len(jax.tree.leaves(results))
    numbers = [jnp.float32(k) for k in range(max(1, len(leaves)))]
    alone = jax.jit(lambda *x: [jnp.negative(x[k % len(x)]) for k in range(count)], keep_unused=True)
    rows = []
    for _ in range(turns):
        rows.append([quartile_us(_called(ready, g, arguments)) for g in (theirs, own, thorough)])
    jax_us, own_us, thorough_us = np.min(rows, 0).tolist()
    steps = [made.executable.timeline(*arrays)[1] for _ in range(30)]
    least = [min(step, key=lambda s: s.seconds) for step in zip(*steps, strict=True)]
    return {
        "JAX": jax_us, "own": own_us, "own / JAX": own_us / jax_us,
        "the call alone": quartile_us(_called(ready, alone, numbers)),
        "kernels": sum(s.seconds for s in least if s.kind in ("kernel", "copy")) * 1e6,
        "Python's steps": sum(s.seconds for s in least if s.kind in ("library", "evaluator")) * 1e6,
        "thorough call": thorough_us, "leaves": len(leaves) + count, "steps": len(least),
    }  # fmt: skip


def _called(ready: Any, g: Any, arguments: Sequence[Any]) -> Callable[[], Any]:
    return lambda: ready(g(*arguments))


def _training(layers: int) -> tuple[Any, tuple[Any, ...]]:
    """A step of Adam on a perceptron."""

    def loss(p: Any, x: Any, y: Any) -> Any:
        for w, b in p:
            x = jnp.tanh(x @ w + b)
        return jnp.mean((x - y) ** 2)

    def step(p: Any, m: Any, v: Any, x: Any, y: Any) -> Any:
        g = jax.grad(loss)(p, x, y)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        return jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), p, m, v), m, v

    rng = np.random.default_rng(0)
    p = [(jnp.asarray(rng.standard_normal((32, 32), np.float32) * 0.2), jnp.zeros(32)) for _ in range(layers)]
    zeros = jax.tree.map(jnp.zeros_like, p)
    return step, (p, zeros, zeros, jnp.ones((16, 32)), jnp.zeros((16, 32)))


def _newton(a: Any) -> Any:
    def step(c: tuple[Any, Any]) -> tuple[Any, Any]:
        x, k = c
        jacobian = jax.jacobian(lambda x: x**3 + jnp.tanh(x.sum()) - a)(x)
        return x - jnp.linalg.solve(jacobian, x**3 + jnp.tanh(x.sum()) - a), k + 1

    return jax.lax.while_loop(lambda c: c[1] < 6, step, (jnp.ones_like(a), 0))[0]


def _checked(x: Any) -> Any:
    """A callback in a branch that is not taken."""
    return jax.lax.cond(x.sum() > 1e9, lambda x: jax.pure_callback(lambda x: x, jax.typeof(x), x), lambda x: x, x) * 2


PROGRAMS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "one array to one": lambda: (lambda x: x * 2, (jnp.ones(5),)),
    "a callback that is not called": lambda: (_checked, (jnp.ones(5),)),
    "Newton's method, 6 equations": lambda: (_newton, (jnp.arange(1.0, 7),)),
    "a step of Adam, 2 layers": lambda: _training(2),
    "a step of Adam, 12 layers": lambda: _training(12),
    "eigenvalues of 16 x 16": lambda: (jnp.linalg.eigh, (jnp.eye(16) + 0.1,)),
}


def row(name: str, found: dict[str, float]) -> str:
    cells = [f"{found[k]:.2f}" if k == "own / JAX" else f"{found[k]:.0f}" if found[k] >= 20 else f"{found[k]:.3g}" for k in HEAD]
    return f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of a program's name")
    wanted = parser.parse_args().only
    print("| µs | " + " | ".join(HEAD) + " |\n|" + "---|" * (len(HEAD) + 1))
    for name, make in PROGRAMS.items():
        if wanted in name:
            f, arguments = make()
            print(row(name, where(f, *arguments)), flush=True)


if __name__ == "__main__":
    main()
