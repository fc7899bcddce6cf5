"""`tilewright.jit` and callbacks: what they get is what JAX's get, however long they keep it, and no `jax.Array` changes."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import tilewright

pytestmark = pytest.mark.jax

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out, and the header says so
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.experimental import io_callback


def test_a_loop_of_steps_whose_callback_keeps() -> None:
    """The same log as JAX's, whatever the memory is used for between the calls."""

    def logs(jit: Any) -> list[tuple[float, float]]:
        log: list[tuple[Any, Any]] = []

        def step(w: Any, x: Any) -> Any:
            loss = jnp.sum((w * x) ** 2)
            jax.debug.callback(lambda a, v: log.append((a, v)), loss, w)
            return w * 0.5

        run = jit(step)
        w = jnp.float32(4)
        for _ in range(4):
            w = run(w, jnp.ones(4))
        jax.effects_barrier()
        return [(float(a), float(b)) for a, b in log]

    assert logs(tilewright.jit) == logs(jax.jit) == [(64, 4), (16, 2), (4, 1), (1, 0.5)]


@pytest.mark.parametrize("kind", ["debug", "io", "pure"])
def test_callbacks_in_a_scan_that_keep(kind: str) -> None:
    def kept(jit: Any) -> list[list[float]]:
        log: list[Any] = []

        def note(v: Any) -> Any:
            log.append(v)
            return np.asarray(v) + 1

        def body(carry: Any, _: Any) -> Any:
            if kind == "debug":
                jax.debug.callback(note, carry, ordered=True)
                told = carry + 1
            elif kind == "io":
                told = io_callback(note, jax.ShapeDtypeStruct((3,), jnp.float32), carry, ordered=True)
            else:
                told = jax.pure_callback(note, jax.ShapeDtypeStruct((3,), jnp.float32), carry)
            return told * 2, carry.sum()

        jax.block_until_ready(jit(lambda x: lax.scan(body, x, None, length=4))(jnp.ones(3)))
        jax.effects_barrier()
        return [np.asarray(v).tolist() for v in log]

    assert kept(tilewright.jit) == kept(jax.jit) == [[v] * 3 for v in (1, 4, 10, 22)]


@pytest.mark.parametrize("kind", ["io", "pure", "foreign"])
def test_no_array_of_jax_ever_changes(kind: str) -> None:
    def write(x: Any) -> Any:
        found = np.array(x) + 1
        own = np.asarray(x)
        try:
            own.flags.writeable = True
        except ValueError:  # what it got cannot be written at all
            return found
        own[...] = -1
        return found

    def f(x: Any) -> Any:
        shape = jax.ShapeDtypeStruct((4,), jnp.float32)
        if kind == "foreign":
            return jax.ffi.ffi_call("foo", shape)(x) * 2
        return (io_callback if kind == "io" else jax.pure_callback)(write, shape, x) * 2

    x = jnp.arange(4.0)
    run = tilewright.jit(f, custom_calls={"foo": lambda op, x: write(x)})
    assert run(x).tolist() == [2, 4, 6, 8]
    assert x.tolist() == [0, 1, 2, 3]
