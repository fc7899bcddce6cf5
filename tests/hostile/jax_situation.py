"""Callbacks of JAX's that misbehave; a module of its own, for whoever has no JAX."""

from __future__ import annotations

import gc
import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

import tilewright


def jax_callbacks(choose: random.Random) -> None:
    """Pure, io and debug callbacks keep, write and call the same function again, in a scan and outside of it."""
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    depth = [0]

    def host(v: Any) -> np.ndarray:
        kept.append((v, np.array(v)))
        made = np.asarray(v) * 2
        if choose.random() < 0.2 and depth[0] == 0:
            depth[0] = 1
            other(np.ones(3, np.float32))
            depth[0] = 0
        if choose.random() < 0.2:
            gc.collect()
        if isinstance(v, np.ndarray) and v.flags.writeable and choose.random() < 0.3:
            kept.pop()
            v[...] = -1
        return made

    kind = choose.choice(("pure", "io", "debug"))

    def body(c: Any, _: Any) -> Any:
        if kind == "debug":
            jax.debug.callback(host, c, ordered=choose.random() < 0.5)
            return c * 2, c
        call = jax.pure_callback if kind == "pure" else io_callback
        return call(host, shape, c), c

    inner = tilewright.jit(lambda x: x * 3 + 1)

    def other(x: np.ndarray) -> None:
        assert np.array_equal(inner(x), x * 3 + 1)

    run = tilewright.jit(lambda x: jax.lax.scan(body, x, None, length=4) if looped else body(x, None))
    looped = choose.random() < 0.6
    for k in range(12):
        x = jnp.full(3, float(k))
        last, trace = run(x)
        assert np.array_equal(last, np.full(3, k * (16.0 if looped else 2.0))), (kind, k, last)
        assert np.array_equal(np.asarray(trace)[0], np.full(3, k) if looped else k), (kind, k, trace)
        assert np.array_equal(x, np.full(3, k)), "an array of JAX changed"
    jax.effects_barrier()
    assert kept or depth
    for a, copy in kept:
        assert np.array_equal(a, copy), "what a callback kept has changed"
