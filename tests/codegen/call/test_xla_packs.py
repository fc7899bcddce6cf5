"""Operands that are packed once for calls through XLA: what is kept is used for the same elements alone, and given back."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright
from codegen.call.kept_packs import KIND, Pack
from codegen.call.xla_packs import _with_their_readers
from codegen.launcher import memory
from tests.threads import in_threads

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out, and the header says so
    import jax
    import jax.numpy as jnp

pytestmark = pytest.mark.jax

CALLS = 2  # the first is compiled; the second gives XLA the program, finds the same arrays and packs them: no later call does


def layers(x: Any, w: Any, v: Any) -> Any:
    return jnp.tanh(x @ w.T) @ v.T


@pytest.fixture
def given() -> list[Any]:
    rng = np.random.default_rng(3)
    return [jnp.asarray(rng.standard_normal(s).astype(np.float32) / 8) for s in ((64, 512), (512, 512), (256, 512))]


@pytest.fixture
def own(given: list[Any]) -> Iterator[Any]:
    """The function, called until what it packs of the weights is kept."""
    f = tilewright.jit(layers, threads=1)
    for _ in range(CALLS):
        check(f, given)
    assert packs_of(f)._kept is not None
    yield f
    f.clear_cache()


def packs_of(f: Any) -> Any:
    (packs,) = f._front._packs.values()
    return packs


def check(f: Any, given: list[Any]) -> None:
    np.testing.assert_allclose(f(*given), jax.jit(layers)(*given), rtol=2e-4, atol=2e-5)


def test_a_call_of_the_same_weights_leaves_out_their_packs(own: Any, given: list[Any]) -> None:
    packs = packs_of(own)
    kept = packs._kept
    assert kept.packs == packs.packs and len(kept.packs) == 2
    # The panels are what is read: with others in their place the result is another one.
    lease = kept.lease
    panels = np.frombuffer((np.ctypeslib.ctypes.c_char * lease.size_bytes).from_address(lease.address), np.float32)
    panels *= 0
    assert not np.any(np.asarray(own(*given)))
    # Another image, the same weights; then other weights, whose addresses are not those that are kept.
    assert not np.any(np.asarray(own(given[0] + 1, *given[1:])))
    check(own, [given[0], given[1] * 2, given[2]])
    check(own, [given[0], given[1], given[2] - 1])


def test_normed_weights_are_made_once(given: list[Any]) -> None:
    """Weights of norm 1 are packed from memory that goes again: what is kept are the panels."""

    def normed(x: Any, w: Any) -> Any:
        w = w * jax.lax.rsqrt((w * w).sum((1, 2, 3), keepdims=True))
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "OIHW", "NHWC"))

    x, w = given[0].reshape(2, 16, 16, 64), given[1].reshape(4096, 64, 1, 1)[:96]
    f, wanted = tilewright.jit(normed, threads=1), jax.jit(normed)
    for k in range(CALLS + 2):
        np.testing.assert_allclose(f(x + k, w), wanted(x + k, w), rtol=2e-4, atol=2e-5)
    kept = packs_of(f)._kept
    norms, panels = kept.packs
    assert norms.readers == (panels.step,) and kept.lease.size_bytes < norms.slots[0][1] + panels.slots[0][1]
    np.testing.assert_allclose(f(x, w + 1), wanted(x, w + 1), rtol=2e-4, atol=2e-5)
    f.clear_cache()


def test_what_is_made_for_packs_that_are_not_kept_is_made_at_each_call() -> None:
    """Of a chain 0 -> 1 -> 2, whose last step has another argument, and of 3 -> 4."""
    chain = [Pack(0, (7,), ((10, 64),), (1,)), Pack(1, (7,), ((11, 64),), (2,)), Pack(2, (7, 8), ((12, 64),))]
    other = [Pack(3, (9,), ((13, 64),), (4,)), Pack(4, (9,), ((14, 64),))]
    assert _with_their_readers([*chain, *other]) == (*chain, *other)
    assert _with_their_readers([*chain[:2], *other]) == tuple(other)


@pytest.mark.parametrize("few_bytes", [1 << 12, 40 << 10])
def test_without_memory_for_what_is_between_packs_nothing_is_kept(few_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The norms' 24 KiB do not fit beside the panels, or neither does."""
    rng = np.random.default_rng(5)
    x, w = (jnp.asarray(rng.standard_normal(s).astype(np.float32)) for s in ((2, 16, 16, 64), (96, 64, 1, 1)))

    def normed(x: Any, w: Any) -> Any:
        w = w * jax.lax.rsqrt((w * w).sum((1, 2, 3), keepdims=True))
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "OIHW", "NHWC"))

    f, wanted = tilewright.jit(normed, threads=1), jax.jit(normed)(x, w)
    before = memory.pool.count(KIND).live_bytes
    monkeypatch.setattr(memory.pool, "_limit", before + few_bytes)
    for _ in range(CALLS + 2):
        np.testing.assert_allclose(f(x, w), wanted, rtol=2e-4, atol=2e-5)
    assert packs_of(f)._kept is None and memory.pool.count(KIND).live_bytes == before
    f.clear_cache()


def test_memory_that_another_array_has_now_is_not_taken_for_what_was_there(own: Any, given: list[Any]) -> None:
    x, w, v = given
    given.clear()
    place = w.unsafe_buffer_pointer()
    other = jax.jit(lambda a: a * -3, donate_argnums=0)(w)
    assert other.unsafe_buffer_pointer() == place and w.is_deleted()
    check(own, [x, other, v])
    assert packs_of(own)._kept is None


def test_what_is_kept_goes_with_the_arrays_and_with_the_function(given: list[Any]) -> None:
    def kept_bytes() -> int:
        gc.collect()
        return memory.pool.count(KIND).live_bytes

    before = kept_bytes()
    f = tilewright.jit(layers, threads=1)
    for _ in range(CALLS):
        jax.block_until_ready(f(*given))
    assert kept_bytes() - before == (512 + 256) * 512 * 4
    x, v = given[0], given[2]
    given.clear()
    assert kept_bytes() == before, "one of the weights is gone"
    rng = np.random.default_rng(4)
    given = [x, jnp.asarray(rng.standard_normal((512, 512)).astype(np.float32)), v]
    for _ in range(200):
        jax.block_until_ready(f(*given))
    assert kept_bytes() > before, "looked at again"
    del f
    assert kept_bytes() == before


def test_weights_that_change_at_each_call_are_looked_at_ever_more_rarely(given: list[Any]) -> None:
    f = tilewright.jit(layers, threads=1)
    x, w, v = given
    for _ in range(40):
        w, v = w + 1e-3, v * 0.99
        f(x, w, v)
    check(f, [x, w, v])
    assert packs_of(f)._kept is None and f._front._looks_each >= 16


def test_threads_that_call_at_once_with_weights_of_their_own_get_their_results(given: list[Any]) -> None:
    f, g = tilewright.jit(layers, threads=1), jax.jit(layers)
    x, w, v = given
    sets = [[x, w * k, v] for k in (1, 2, 3)]
    wanted = [np.asarray(g(*s)) for s in sets]
    wrong: list[int] = []

    def call(k: int) -> None:
        for _ in range(60):
            if not np.allclose(f(*sets[k]), wanted[k], rtol=2e-4, atol=2e-5):
                wrong.append(k)

    in_threads(call, len(sets))
    assert not wrong
