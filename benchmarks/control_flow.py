"""Loops and branches against JAX: results are checked first, then both are timed in turns.

    python -m benchmarks.control_flow [--only lstm,newton] [--repeat 30]

For each program: the median of the calls' microseconds, ours and jax.jit's, and what our plan says runs in the evaluator.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tilewright

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def _normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def lstm(batch: int, hidden: int, steps: int) -> Case:
    """An LSTM over a sequence: the inputs' part of the gates for all steps at once, the rest step by step."""

    def run(x: Any, w: Any, u: Any, b: Any) -> Any:
        z = x @ w + b

        def step(carry: Any, z: Any) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(z + h @ u, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[1], u.shape[0]), x.dtype)
        return jax.lax.scan(step, (zero, zero), z)

    scale = np.float32(hidden**-0.5)
    given = (_normal(1, steps, batch, 64), _normal(2, 64, 4 * hidden) * scale, _normal(3, hidden, 4 * hidden) * scale)
    return run, (*given, _normal(4, 4 * hidden))


def newton() -> Case:
    """Square roots by Newton's method, one number, until nothing changes by more than a part in 10^7."""

    def run(x: Any) -> Any:
        def goes_on(state: Any) -> Any:
            y, before, k = state
            return (jnp.abs(y - before) > 1e-7 * y) & (k < 100)

        return jax.lax.while_loop(goes_on, lambda s: (0.5 * (s[0] + x / s[0]), s[0], s[2] + 1), (x, jnp.float32(0), 0))

    return run, (np.float32(1e30),)


def collatz() -> Case:
    """The steps of one number to 1: a loop over integers that a branch decides."""

    def run(n: Any) -> Any:
        def body(s: Any) -> Any:
            n, k = s
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), k + 1

        return jax.lax.while_loop(lambda s: s[0] != 1, body, (n, 0))

    return run, (np.int32(837799 // 8),)


def cumulative() -> Case:
    """A running sum of rows, each stored into one array."""

    def run(x: Any) -> Any:
        def body(i: Any, s: Any) -> Any:
            total, out = s
            total = total + jax.lax.dynamic_index_in_dim(x, i, keepdims=False)
            return total, jax.lax.dynamic_update_index_in_dim(out, total, i, 0)

        return jax.lax.fori_loop(0, x.shape[0], body, (jnp.zeros(x.shape[1:]), jnp.zeros_like(x)))[1]

    return run, (_normal(5, 1000, 512),)


def branch() -> Case:
    """One of two branches over a megabyte."""

    def run(x: Any) -> Any:
        return jax.lax.cond(x[0, 0] > 0, lambda v: jnp.tanh(v) @ v, lambda v: v - 1, x)

    return run, (_normal(6, 512, 512),)


def ode(n: int) -> Case:
    """Five hundred steps of Runge-Kutta for n coupled oscillators."""

    def run(y: Any) -> Any:
        def f(y: Any) -> Any:
            p, v = y
            return v, jnp.roll(p, 1) - 2 * p + jnp.roll(p, -1)

        def plus(y: Any, k: Any, h: float) -> Any:
            return jax.tree.map(lambda a, b: a + h * b, y, k)

        def step(y: Any, _: Any) -> Any:
            h = 0.01
            k1 = f(y)
            k2 = f(plus(y, k1, h / 2))
            k3 = f(plus(y, k2, h / 2))
            k4 = f(plus(y, k3, h))
            return jax.tree.map(lambda a, b, c, d, e: a + h / 6 * (b + 2 * c + 2 * d + e), y, k1, k2, k3, k4), None

        return jax.lax.scan(step, y, None, length=500)[0]

    return run, ((_normal(7, n), _normal(8, n)),)


def gradient() -> Case:
    """The gradient of a recurrent network's loss through 64 steps: stacks of what the way back needs."""

    def loss(w: Any, x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(x + h @ w)
            return h, jnp.sum(h * h)

        return jnp.sum(jax.lax.scan(step, jnp.zeros(x.shape[1:]), x)[1])

    return jax.grad(loss), (_normal(9, 128, 128) * np.float32(0.08), _normal(10, 64, 8, 128))


def threefry() -> Case:
    """A million random numbers."""
    return (lambda key: jax.random.uniform(key, (1 << 20,))), (jax.random.key_data(jax.random.key(3)),)


CASES: dict[str, Callable[[], Case]] = {
    "lstm_256": lambda: lstm(1, 256, 128),
    "lstm_256_b16": lambda: lstm(16, 256, 128),
    "rnn_small": lambda: lstm(1, 16, 256),
    "newton": newton,
    "collatz": collatz,
    "cumulative": cumulative,
    "cond": branch,
    "ode_64": lambda: ode(64),
    "ode_100k": lambda: ode(100_000),
    "gradient": gradient,
}


def _agrees(found: Any, wanted: Any) -> bool:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    return all(np.allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-4) for a, b in pairs)


def measure(name: str, repeat: int) -> None:
    """Prints one row."""
    function, arguments = CASES[name]()
    jitted = jax.jit(function)
    started = time.perf_counter()
    ours = tilewright.jit(function)
    executable = ours.executable(*arguments)
    flat = [np.asarray(a) for a in jax.tree.leaves(arguments)]
    first = ours(*arguments)
    seconds = time.perf_counter() - started
    given = jax.tree.map(jnp.asarray, arguments)
    wanted = jax.block_until_ready(jitted(*given))  # type: ignore[no-untyped-call]
    if not _agrees(first, wanted):
        print(f"{name:14} WRONG")
        return
    mine, theirs = [], []
    for _ in range(repeat):
        begin = time.perf_counter()
        executable(*flat)
        mine.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        jax.block_until_ready(jitted(*given))  # type: ignore[no-untyped-call]
        theirs.append(time.perf_counter() - begin)
    a, b = (statistics.median(t) * 1e6 for t in (mine, theirs))
    print(f"{name:14} {a:10.1f} {b:10.1f} {b / a:7.2f} {seconds:8.1f}  {len(executable.fallbacks)} in the evaluator", flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args()
    print(f"{'':14} {'ours us':>10} {'jax us':>10} {'ratio':>7} {'first s':>8}")
    for name in options.only.split(",") if options.only else CASES:
        measure(name, options.repeat)


if __name__ == "__main__":
    main()
