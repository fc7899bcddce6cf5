#!/usr/bin/env python3
"""Programs that are given their state to write over: replay buffers, caches, training steps, through JAX and through here.

    python -m benchmarks.calls.donated
    python -m benchmarks.calls.donated --only insert,cache

Each call's state is the last one's result. Printed are medians in ms, of calls in turns: `jax.jit` and `tilewright.jit` with the
state donated, and `tilewright.jit` without; the results of four calls are compared first.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tilewright

COMPARED = 4  # calls


def some(*shape: int, scale: float = 1.0, seed: int = 0) -> Any:
    """An array of JAX's, in f32."""
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape) * scale, jnp.float32)


def adam(state: Any, x: Any, y: Any) -> Any:
    """A step of Adam for a perceptron."""
    weights, m, v, step = state

    def loss(ws: Any) -> Any:
        h = x
        for w, b in ws:
            h = jnp.tanh(h @ w + b)
        return jnp.mean((h - y) ** 2)

    g = jax.grad(loss)(weights)
    step = step + 1
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)

    def moved(p: Any, a: Any, b: Any) -> Any:
        return p - 1e-3 * (a / (1 - 0.9**step)) / (jnp.sqrt(b / (1 - 0.999**step)) + 1e-6)

    return jax.tree.map(moved, weights, m, v), m, v, step


def adam_state(width: int) -> Any:
    weights = [(some(width, width, scale=width**-0.5, seed=k), jnp.zeros(width)) for k in range(3)]
    return weights, *(jax.tree.map(jnp.zeros_like, weights) for _ in range(2)), jnp.float32(0)


def decode(cache: Any, q: Any, k: Any, v: Any) -> Any:
    """One token of 16 heads against a cache of 4096."""
    keys = jax.lax.dynamic_update_slice(cache["k"], k, (0, cache["at"], 0))
    values = jax.lax.dynamic_update_slice(cache["v"], v, (0, cache["at"], 0))
    scores = jnp.where(jnp.arange(keys.shape[1]) <= cache["at"], jnp.einsum("hqd,hkd->hqk", q, keys) / 8, -1e9)
    out = jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), values)
    return {"k": keys, "v": values, "at": (cache["at"] + 1) % 4096}, out


def ring(state: Any, rows: Any) -> Any:
    """A ring buffer of 100,000 rows, into which 64 go."""
    rows_there = jax.lax.dynamic_update_slice(state["rows"], rows, (state["next"], 0))
    return {"rows": rows_there, "next": (state["next"] + 64) % 99_968}


CASES: dict[str, tuple[Callable[..., Any], Callable[[], Any], Callable[[], tuple[Any, ...]]]] = {
    "insert a row into 100,000 x 128": (
        lambda b, i, x: b.at[i].set(x), lambda: some(100_000, 128), lambda: (jnp.int32(77), some(128)),
    ),
    "scatter 64 rows into it": (
        lambda b, i, x: b.at[i].set(x), lambda: some(100_000, 128), lambda: (jnp.arange(64) * 17, some(64, 128)),
    ),
    "ring buffer": (ring, lambda: {"rows": some(100_000, 128), "next": jnp.int32(0)}, lambda: (some(64, 128),)),
    "token against a cache, 16 x 4096 x 64": (
        decode, lambda: {"k": some(16, 4096, 64), "v": some(16, 4096, 64, seed=1), "at": jnp.int32(500)},
        lambda: tuple(some(16, 1, 64, seed=k) for k in range(3)),
    ),
    "Adam, 3 x 256": (adam, lambda: adam_state(256), lambda: (some(64, 256), some(64, 256, seed=1))),
    "Adam, 3 x 2048": (adam, lambda: adam_state(2048), lambda: (some(32, 2048), some(32, 2048, seed=1))),
    "p - 0.1 g of 4096 x 4096": (lambda p, g: p - 0.1 * g, lambda: some(4096, 4096), lambda: (some(4096, 4096),)),
    "loop of 8 updates of 50,000 x 128": (
        lambda s, x: jax.lax.fori_loop(0, 8, lambda i, s: s.at[i].add(x), s), lambda: some(50_000, 128), lambda: (some(128),),
    ),
}  # fmt: skip


def state_of(result: Any, state: Any) -> Any:
    """The part of a result that is the next call's state."""
    return result if str(jax.tree.structure(result)) == str(jax.tree.structure(state)) else result[0]


def measured(name: str, turns: int, calls: int) -> list[float] | str:
    """Medians in ms, or what differs."""
    f, make_state, make_rest = CASES[name]
    rest = make_rest()
    ways: list[Any] = [jax.jit(f, donate_argnums=0), tilewright.jit(f, donate_argnums=0), tilewright.jit(f)]
    ready: Any = jax.block_until_ready
    states = [make_state() for _ in ways]
    for _ in range(COMPARED):
        states = [state_of(way(state, *rest), state) for way, state in zip(ways, states, strict=True)]
    for other in states[1:]:
        for a, b in zip(jax.tree.leaves(states[0]), jax.tree.leaves(other), strict=True):
            if not np.allclose(a, b, rtol=1e-3, atol=1e-3):
                return f"differs by {float(jnp.abs(a - b).max()):.1e}"
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(turns):
        for k, way in enumerate(ways):
            states[k] = state_of(ready(way(states[k], *rest)), states[k])
            for _ in range(calls):
                began = time.perf_counter()
                result = ready(way(states[k], *rest))
                times[k].append(time.perf_counter() - began)
                states[k] = state_of(result, states[k])
                del result
    return [statistics.median(t) * 1e3 for t in times]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="parts of names, with commas")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20, help="in each turn")
    given = parser.parse_args()
    wanted = [part for part in given.only.split(",") if part]
    print(f"{'ms a call':40} {'JAX':>9} {'donated':>9} {'not':>9}  JAX / donated")
    is_fine = True
    for name in CASES:
        if wanted and not any(part in name for part in wanted):
            continue
        found = measured(name, given.turns, given.calls)
        if isinstance(found, str):
            is_fine = False
            print(f"{name:40} {found}", flush=True)
            continue
        theirs, own, plain = found
        print(f"{name:40} {theirs:9.4f} {own:9.4f} {plain:9.4f}  {theirs / own:.2f}", flush=True)
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
