"""Donated arrays: results lie in their memory, with the numbers that JAX has; an update stores its new elements alone."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from codegen.call.runs import by_xla
from codegen.call.xla_packs import MANY

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out, and the header says so
    import jax
    import jax.numpy as jnp

pytestmark = pytest.mark.jax

CALLS = 4  # the first one is evaluated or thorough, the second makes JAX's own call


def some(*shape: int, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def leaves(x: Any) -> list[Any]:
    return list(jax.tree.leaves(x))


def adam(state: Any, x: Any, y: Any) -> Any:
    weights, m, v, step = state

    def loss(ws: Any) -> Any:
        h = x
        for w, b in ws:
            h = jnp.tanh(h @ w + b)
        return jnp.mean((h - y) ** 2)

    value, g = jax.value_and_grad(loss)(weights)
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b * b, v, g)
    moved = jax.tree.map(lambda p, a, b: p - 1e-2 * a / (jnp.sqrt(b) + 1e-3), weights, m, v)
    return (moved, m, v, step + 1), value


def adam_state() -> Any:
    weights = [(some(40, 40, seed=k) / 7, some(40, seed=k + 9)) for k in range(3)]
    return weights, *(jax.tree.map(jnp.zeros_like, weights) for _ in range(2)), jnp.int32(0)


def attention(cache: Any, q: Any, k: Any, v: Any) -> Any:
    keys, values, at = cache["k"], cache["v"], cache["at"]
    keys = jax.lax.dynamic_update_slice(keys, k, (0, at, 0))
    values = jax.lax.dynamic_update_slice(values, v, (0, at, 0))
    scores = jnp.where(jnp.arange(keys.shape[1]) <= at, jnp.einsum("hqd,hkd->hqk", q, keys), -1e9)
    out = jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), values)
    return {"k": keys, "v": values, "at": at + 1}, out


def walk(state: Any, x: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda i, s: s.at[2 * i].add(x), state)


CASES: dict[str, tuple[Callable[..., Any], Callable[[], Any], Callable[[], tuple[Any, ...]]]] = {
    "insert": (lambda b, i, x: b.at[i].set(x), lambda: some(500, 32), lambda: (jnp.int32(77), some(32))),
    "scatter": (lambda b, x: b.at[jnp.arange(9) * 7].add(x), lambda: some(500, 32), lambda: (some(9, 32),)),
    "ring": (
        lambda s, x: ({"b": jax.lax.dynamic_update_slice(s["b"], x, (s["i"], 0)), "i": (s["i"] + 8) % 64}, s["i"]),
        lambda: {"b": some(100, 16), "i": jnp.int32(0)}, lambda: (some(8, 16),),
    ),
    "adam": (adam, adam_state, lambda: (some(16, 40), some(16, 40, seed=1))),
    "cache": (
        attention, lambda: {"k": some(4, 64, 16), "v": some(4, 64, 16, seed=1), "at": jnp.int32(3)},
        lambda: tuple(some(4, 1, 16, seed=k) for k in range(3)),
    ),
    "axpy": (lambda p, g: p - 0.1 * g, lambda: some(300, 70), lambda: (some(300, 70),)),
    "swap": (lambda s, x: (s[1] + x, s[0] * 2), lambda: (some(50, 60), some(50, 60, seed=1)), lambda: (some(50, 60, seed=2),)),
    "turned": (lambda s, x: (s.T + x, s.sum()), lambda: some(64, 64), lambda: (some(64, 64),)),
    "loop": (walk, lambda: some(50, 33), lambda: (some(33),)),
    "bf16": (lambda s, x: s * jnp.bfloat16(0.5) + x, lambda: some(40, 40).astype(jnp.bfloat16), lambda: (jnp.bfloat16(1.0),)),
    "key": (
        lambda s, x: ((jax.random.split(s[0])[0], s[1] + jax.random.normal(s[0], s[1].shape)), x),
        lambda: (jax.random.key(0), some(64)), lambda: (some(3),),
    ),
    "scalar": (lambda s, x: s + x, lambda: jnp.float32(1.0), lambda: (2.0,)),
}  # fmt: skip


def state_of(result: Any, state: Any) -> Any:
    """The part of a result that is the next call's state: the first one where there are several."""
    same = jax.tree.structure(result) == jax.tree.structure(state)
    return result if same else result[0]


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_jax_over_several_calls(name: str) -> None:
    f, make_state, make_rest = CASES[name]
    own, theirs = tilewright.jit(f, donate_argnums=0), jax.jit(f)
    state, expected, rest = make_state(), make_state(), make_rest()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that some donations are of no use
        for call in range(CALLS):
            given = leaves(state)
            found, wanted = own(state, *rest), theirs(expected, *rest)
            for a, b in zip(leaves(found), leaves(wanted), strict=True):
                if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
                    a, b = jax.random.key_data(a), jax.random.key_data(b)
                np.testing.assert_allclose(a.astype("float32"), b.astype("float32"), rtol=2e-4, atol=2e-5, err_msg=f"call {call}")
            state, expected = state_of(found, state), state_of(wanted, expected)
            is_used = name != "scalar"  # (an array of one element may still be donated, JAX decides)
            assert not is_used or any(x.is_deleted() for x in given), f"call {call}: nothing was taken"


@pytest.mark.parametrize("name", ["insert", "scatter", "adam", "cache", "axpy", "loop"])
def test_results_lie_where_the_arguments_did(name: str) -> None:
    f, make_state, make_rest = CASES[name]
    own, state, rest = tilewright.jit(f, donate_argnums=0), make_state(), make_rest()
    for _ in range(CALLS - 1):
        state = state_of(own(state, *rest), state)
    assert len(own._front._programs) == 1
    (call,) = own._front._programs.values()
    before = {x.shape: x.unsafe_buffer_pointer() for x in leaves(state) if x.ndim}
    places = {x.unsafe_buffer_pointer() for x in leaves(state)}
    assert call.written_over
    state = state_of(own(state, *rest), state)
    after = [x for x in leaves(state) if x.ndim]
    large = [x for x in after if x.size == max(y.size for y in after)]
    assert before and all(x.unsafe_buffer_pointer() in places for x in large)


def test_arrays_that_are_not_donated_keep_their_elements() -> None:
    """JAX copies what it may not give away; NumPy's arrays are never written to."""
    own = tilewright.jit(CASES["insert"][0], donate_argnums=0)
    rest = CASES["insert"][2]()
    for _ in range(CALLS):
        mine = np.zeros((500, 32), np.float32)
        own(mine, *rest)
        assert not mine.any()
    lent = np.zeros((500, 32), np.float32)
    array = jnp.asarray(lent)  # JAX may use NumPy's memory in place
    own(array, *rest)
    assert not lent.any()
    array = jnp.zeros((500, 32), jnp.float32)
    seen = np.asarray(array)  # somebody looks at the elements
    own(array, *rest)
    assert not seen.any()


def test_a_program_of_much_memory_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_xla, "XLA_MOST_BYTES", 1 << 14)

    def step(state: Any, x: Any) -> Any:
        return state - 1e-3 * (x.T @ jnp.tanh(x @ state)), x.sum()

    own, theirs = tilewright.jit(step, donate_argnums=0), jax.jit(step)
    state, x = some(96, 96) / 10, some(200, 96, seed=1)
    expected = jnp.copy(state)
    for _ in range(CALLS):
        state, expected = own(state, x)[0], theirs(expected, x)[0]
        np.testing.assert_allclose(state, expected, rtol=2e-4, atol=2e-5)
    (call,) = own._front._programs.values()
    assert call.bytes > 1 << 14 and call._room is not None
    room = call._room[1]
    assert room[0] == 0  # the last call has given it back
    room[0] = 1  # a call is on its way in it: another one asks the allocator
    np.testing.assert_allclose(own(state, x)[0], theirs(expected, x)[0], rtol=2e-4, atol=2e-5)
    assert room[0] == 1


def test_what_is_donated_beside_many_weights_that_stay() -> None:
    width = 96

    def step(weights: Any, cache: Any, x: Any) -> Any:
        for w, b in weights:
            x = jnp.tanh(x @ w + b)
        return cache.at[3:67].set(x), x.sum()

    weights = [(some(width, width, seed=k) / 10, some(width, seed=k)) for k in range(MANY // 2 + 2)]
    own, theirs = tilewright.jit(step, donate_argnums=1, threads=1), jax.jit(step)
    cache = expected = None
    cache, expected, x = some(400, width), some(400, width), some(64, width, seed=5)
    for _ in range(CALLS):
        cache, expected = own(weights, cache, x)[0], theirs(weights, expected, x)[0]
        np.testing.assert_allclose(cache, expected, rtol=2e-4, atol=2e-5)
    assert own._front._known, "JAX is given the cache and the rows alone"
    before, place = cache, cache.unsafe_buffer_pointer()
    cache, _ = own(weights, cache, x)
    assert before.is_deleted() and cache.unsafe_buffer_pointer() == place
    np.testing.assert_allclose(cache, theirs(weights, expected, x)[0], rtol=2e-4, atol=2e-5)


def test_two_names_for_one_array_are_an_error_as_with_jax() -> None:
    own = tilewright.jit(lambda a, b: (a + 1, b.sum()), donate_argnums=0)
    for _ in range(2):
        own(some(8, 8), some(8, 8))
    both = some(8, 8)
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="donated in the same call"):
        own(both, both)
    a, b = some(8, 8), some(8, 8, seed=1)
    np.testing.assert_array_equal(own(a, b)[0], some(8, 8) + 1)  # in the same way as before
    assert a.is_deleted() and not own._thorough
