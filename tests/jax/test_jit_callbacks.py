"""`tilewright.jit` and callbacks: what they get is what JAX's get, however long they keep it, and no `jax.Array` changes."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import tilewright
from tilewright.jax.tokens import NO_ELEMENTS, is_token, tokens_as_arrays

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


def test_tokens_order_steps_and_the_rest_runs_as_kernels() -> None:
    """Effects in the program's order, in loops and branches too; no op but them runs outside of kernels."""
    log: list[Any] = []

    def note(name: str) -> Any:
        return lambda v: log.append((name, float(v)))

    def f(x: Any, y: Any) -> Any:
        jax.debug.callback(note("first"), x[0], ordered=True)

        def body(c: Any, r: Any) -> Any:
            jax.debug.callback(note("turn"), c[0], ordered=True)
            return c + r, jnp.tanh(c @ c)

        c, s = lax.scan(body, x, y)
        lax.cond(x[0] > 0, lambda: jax.debug.callback(note("yes"), c[0], ordered=True), lambda: None)
        jax.debug.callback(note("last"), s[0], ordered=True)
        return c, s

    x, y = jnp.ones(3), jnp.ones((2, 3))
    run = tilewright.jit(f)
    for k in range(2):
        found = run(x, y + k)
        expected = jax.jit(lambda x, y: lax.scan(lambda c, r: (c + r, jnp.tanh(c @ c)), x, y))(x, y + k)
        assert all(np.allclose(a, b) for a, b in zip(found, expected, strict=True))
        assert [name for name, _ in log] == ["first", "turn", "turn", "yes", "last"]
        assert [v for _, v in log][1:3] == [1.0, 2.0 + k]
        log.clear()
    executable = run.executable(x, y)
    assert executable.whole is None and executable.fallbacks == []
    assert len(executable.library) == 4


def test_tokens_that_are_made_and_joined() -> None:
    """Their arrays keep the order of what they join, and verify; a program that sends keeps its tokens."""
    text = """func.func @main(%t: !stablehlo.token, %x: tensor<f32>) -> (!stablehlo.token, tensor<f32>) {
      %0 = stablehlo.create_token : !stablehlo.token
      %1 = stablehlo.custom_call @f(%0, %x) : (!stablehlo.token, tensor<f32>) -> !stablehlo.token
      %2 = stablehlo.after_all %1, %t : !stablehlo.token
      %3:2 = stablehlo.custom_call @f(%2, %x) : (!stablehlo.token, tensor<f32>) -> (!stablehlo.token, tensor<f32>)
      return %3#0, %3#1 : !stablehlo.token, tensor<f32>
    }"""
    module = hlo.parse(text)
    assert is_token(module.function(), 0) and not is_token(module.function(), 1)
    tokens_as_arrays(module)
    hlo.verify(module)
    assert [str(t) for t in module.function().result_types] == ["tensor<0xi1>", "tensor<f32>"]
    run = codegen.compile(module, custom_calls={"f": lambda op, t, x: (NO_ELEMENTS, x + 1)[: len(op.results)]})
    found = run(NO_ELEMENTS, np.float32(1))
    assert found[0].shape == (0,) and found[1] == 2
    sends = hlo.parse(
        "func.func @main(%t: !stablehlo.token) -> !stablehlo.token {\n"
        '  %0 = "stablehlo.outfeed"(%t) : (!stablehlo.token) -> !stablehlo.token\n  return %0 : !stablehlo.token\n}'
    )
    tokens_as_arrays(sends)
    assert is_token(sends.function(), 0)
