"""Calls for which JAX is given a few arguments, the others being those of the calls before: the same results as with all."""

from __future__ import annotations

import gc
import importlib.util
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright
from codegen.call.xla_packs import MANY
from tests.threads import in_threads

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out, and the header says so
    import jax
    import jax.numpy as jnp

pytestmark = pytest.mark.jax

LAYERS = MANY // 2 + 2  # of two arrays each
WIDTH = 96  # matrices that are packed, and calls whose memory is more than what is called without Python


def network(weights: Any, x: Any) -> Any:
    for w, b in weights:
        x = jnp.tanh(x @ w + b)
    return x


def weights_of(seed: int, shift: float = 0.0) -> Any:
    rng = np.random.default_rng(seed)
    made = [(rng.standard_normal((WIDTH, WIDTH)) / 10 + shift, rng.standard_normal(WIDTH)) for _ in range(LAYERS)]
    return [(jnp.asarray(w, jnp.float32), jnp.asarray(b, jnp.float32)) for w, b in made]


def rows(seed: int, count: int = 64) -> Any:
    return jnp.asarray(np.random.default_rng(seed).standard_normal((count, WIDTH)), jnp.float32)


def check(f: Any, weights: Any, x: Any) -> None:
    np.testing.assert_allclose(f(weights, x), jax.jit(network)(weights, x), rtol=2e-4, atol=2e-5)


def others(f: Any) -> list[tuple[int, ...]]:
    """The numbers of the arguments that JAX is given, of each program that is called without the others."""
    return [known.others for call in f._front._known.values() if (known := call.known()) is not None]


def made_known() -> tuple[Any, Any]:
    """A function that was called with the same weights, and these."""
    f, weights = tilewright.jit(network, threads=1), weights_of(0)
    for k in range(3):
        check(f, weights, rows(k))
    assert others(f) == [(2 * LAYERS,)]
    return f, weights


@pytest.fixture
def known() -> tuple[Any, Any]:
    return made_known()


def count_of(f: Any) -> Callable[[], int]:
    """How many calls JAX was given all arguments of since now."""
    front, calls, plain = f._front, [0], f._front._jit

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return plain(*args, **kwargs)

    front._jit = counted
    return lambda: calls[0]


def test_jax_is_given_what_changes(known: tuple[Any, Any]) -> None:
    f, weights = known
    whole_calls = count_of(f)
    for k in range(3, 40):
        check(f, weights, rows(k))
    check(f, jax.tree.map(lambda a: a, weights), rows(0))  # another tree of the same arrays
    assert whole_calls() == 0


def of_names(weights: dict[str, Any], x: Any, rest: Any) -> Any:
    """A network whose result tells which array has which name."""
    for k in range(LAYERS):
        x = jnp.tanh(x @ weights[f"w{k}"] + (k + 1) * weights[f"b{k}"])
    return x if rest is None else x + rest[0]


class Pair(NamedTuple):
    w: Any
    b: Any


def named(seed: int) -> dict[str, Any]:
    return {f"{n}{k}": a for k, pair in enumerate(weights_of(seed)) for n, a in zip("wb", pair, strict=True)}


def test_arrays_are_known_by_their_places_in_containers() -> None:
    """The same objects under other names, in another order, in one container more or less."""
    f, g, weights, x = tilewright.jit(of_names, threads=1), jax.jit(of_names), named(0), rows(0)

    def same(*args: Any) -> None:
        np.testing.assert_allclose(f(*args), g(*args), rtol=2e-4, atol=2e-5)

    for k in range(3):
        same(weights, rows(k), None)
    (call,) = f._front._known.values()
    assert call.others_of(((weights, x, None), {})) == [x]
    assert call.others_of(((dict(weights), x, None), {})) == [x], "another dict of the same"
    swapped = weights | {"b0": weights["b1"], "b1": weights["b0"]}
    renamed = {{"w0": "w1", "w1": "w0"}.get(n, n): a for n, a in weights.items()}  # each array in its place
    backwards = dict(reversed(weights.items()))
    for other in (swapped, renamed, backwards, weights | {"w0": weights["w1"]}):
        assert call.others_of(((other, x, None), {})) is None
        same(other, x, None)
    more = weights | {"more": x}
    for args in ((weights, x, (x,)), (weights, x, [x]), (more, x, None), ({**weights, "w0": np.asarray(weights["w0"])}, x, None)):
        assert call.others_of((args, {})) is None
        same(*args)
    assert call.others_of(((weights, [x], None), {})) is None
    assert call.others_of(((weights, x), {"rest": None})) is None
    np.testing.assert_allclose(f(weights, x, rest=None), g(weights, x, rest=None), rtol=2e-4, atol=2e-5)
    same(weights, x, None)


def test_containers_of_which_jax_alone_knows_the_leaves() -> None:
    f, weights = tilewright.jit(network, threads=1), [Pair(*pair) for pair in weights_of(0)]
    for k in range(3):
        check(f, weights, rows(k))
    (call,) = f._front._known.values()
    assert call.others_of(((weights, rows(0)), {})) is None
    whole_calls = count_of(f)
    for k in range(3):
        check(f, weights, rows(k))
    assert whole_calls() == 0, "their leaves are compared, as JAX finds them"


def test_a_container_is_not_made_of_anything_but_arrays() -> None:
    """What the arguments' places are is found without a class of the caller's, whose objects may refuse what is no array."""

    @jax.tree_util.register_pytree_node_class
    class Strict:
        def __init__(self, pair: Any) -> None:
            assert all(hasattr(a, "shape") for a in pair), "arrays alone"
            self.pair = tuple(pair)

        def __iter__(self) -> Any:
            return iter(self.pair)

        def tree_flatten(self) -> tuple[Any, None]:
            return self.pair, None

        @classmethod
        def tree_unflatten(cls, _: None, leaves: Any) -> Any:
            return cls(leaves)

    f, weights = tilewright.jit(network, threads=1), [Strict(pair) for pair in weights_of(0)]
    for k in range(5):
        check(f, weights, rows(k))
    assert others(f) == [(2 * LAYERS,)]


def test_other_weights_are_read(known: tuple[Any, Any]) -> None:
    f, weights = known
    second = weights_of(1)
    for k in range(4):
        check(f, second if k % 2 else weights, rows(k))
    one = [(weights[0][0], weights[0][1] + 3), *weights[1:]]  # one array of many
    check(f, one, rows(5))
    check(f, weights, rows(6))
    assert all(2 in n or 1 in n for n in others(f)), "it is one of those that change now"


def test_what_was_the_same_by_chance_is_taken_from_each_call() -> None:
    f, weights, x = tilewright.jit(network, threads=1), weights_of(0), rows(0)
    for _ in range(3):
        check(f, weights, x)
    assert others(f) == [()]
    for k in range(6):
        check(f, weights, rows(k))
    assert others(f) == [(2 * LAYERS,)]


@pytest.mark.parametrize("kind", ["numpy", "shape", "type", "weak", "traced", "named", "x64"])
def test_calls_of_another_kind_with_the_same_weights(known: tuple[Any, Any], kind: str) -> None:
    f, weights = known
    g, x = jax.jit(network), rows(7)
    for _ in range(3):
        if kind == "numpy":
            check(f, weights, np.asarray(x))
        elif kind == "shape":
            check(f, weights, rows(7, 33))
        elif kind == "type":
            assert f(weights, x.astype(jnp.bfloat16)).dtype == g(weights, x.astype(jnp.bfloat16)).dtype
        elif kind == "weak":
            half = jnp.full((64, WIDTH), 0.5)
            assert half.weak_type
            check(f, weights, half)
        elif kind == "traced":
            np.testing.assert_allclose(*[jax.jit(lambda a, h=h: h(weights, a) * 2)(x) for h in (f, g)], rtol=2e-4, atol=2e-5)
        elif kind == "named":
            np.testing.assert_allclose(f(weights=weights, x=x), g(weights=weights, x=x), rtol=2e-4, atol=2e-5)
        else:
            with jax.enable_x64(True):
                wide = np.asarray(x, np.float64)
                assert f(weights, wide).dtype == g(weights, wide).dtype == np.float64
        check(f, weights, x)


def test_another_setting_is_another_program(known: tuple[Any, Any]) -> None:
    f, weights = known
    before = f.cache_size
    with jax.default_matmul_precision("highest"):
        check(f, weights, rows(7))
    assert f.cache_size == before + 1
    check(f, weights, rows(8))


def test_what_was_let_go_is_not_called_though_calls_on_their_way_hold_it(known: tuple[Any, Any]) -> None:
    """An array that is gone may have left its number to another one."""
    f, weights = known
    (packs,) = f._front._packs.values()
    held, whole_calls = packs.known, count_of(f)
    packs.drop()
    check(f, weights, rows(7))
    assert whole_calls() == 1 and packs.known is not held


def test_a_deleted_array_is_refused_as_by_jax(known: tuple[Any, Any]) -> None:
    f, weights = known
    weights[3][0].delete()
    with pytest.raises(RuntimeError, match="deleted"):
        f(weights, rows(0))
    check(f, weights_of(0), rows(0))


@pytest.mark.parametrize("how", ["donated", "deleted"])
def test_what_goes_elsewhere_is_not_written_to_while_a_call_reads_it(how: str) -> None:
    many, weights = rows(1, 4096), weights_of(0)  # calls that are not over before the next one begins
    wanted = np.asarray(jax.jit(network)(weights, many))
    update = jax.jit(lambda w: jax.tree.map(lambda a: a * 0 - 7, w), donate_argnums=0)
    for _ in range(3):
        f, mine = made_known()
        for _ in range(3):
            f(mine, many + 0)
        assert others(f) == [(2 * LAYERS,)] * 2
        whole_calls = count_of(f)
        found = f(mine, many)
        assert whole_calls() == 0
        if how == "donated":
            later = update(mine)
        else:
            for a in jax.tree.leaves(mine):
                a.delete()
            later = jax.tree.map(lambda a: jnp.full(a.shape, -7.0), weights)
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
        check(f, later, many)


def test_weights_are_given_back_when_nobody_has_them() -> None:
    f, weights = made_known()
    gone = weakref.ref(weights[0][0])
    holds = weakref.ref(f._front._packs[next(iter(f._front._known))].known)
    for _ in range(3):
        last = f(weights, rows(3))
    del weights
    gc.collect()
    assert gone() is None
    end = time.monotonic() + 60
    while holds() is not None and time.monotonic() < end:
        time.sleep(0.01)
    assert holds() is None, "also where no call follows"
    assert np.all(np.isfinite(last))


def test_few_arguments_are_jaxs() -> None:
    f, weights = tilewright.jit(network, threads=1), weights_of(0)[:2]
    for k in range(4):
        check(f, weights, rows(k))
    assert not others(f)


def test_static_arguments_keep_to_calls_with_all(known: tuple[Any, Any]) -> None:
    _, weights = known
    f = tilewright.jit(lambda w, x, n: network(w, x) * n, static_argnums=2, threads=1)
    for k in range(4):
        for n in (2, 3):
            np.testing.assert_allclose(f(weights, rows(k), n), n * jax.jit(network)(weights, rows(k)), rtol=2e-4, atol=2e-4)
    assert not others(f)


def test_a_result_is_committed_where_jaxs_is() -> None:
    device = jax.devices("cpu")[0]
    f, weights = tilewright.jit(network, threads=1), jax.device_put(weights_of(0), device)
    f(weights, rows(0))
    for k in range(4):
        assert f(weights, rows(k)).committed and jax.jit(network)(weights, rows(k)).committed
    assert others(f) == [(0, 2 * LAYERS)]


def test_arrays_that_are_still_computed_are_not_packed() -> None:
    """Their memory is there, and what lies in it comes later."""
    f, weights = tilewright.jit(network, threads=1), weights_of(0)

    @jax.jit
    def made_of(a: Any) -> Any:
        last = jnp.linalg.matrix_power(a @ a.T, 9)[0, 0]
        return jax.tree.map(lambda w: w * (1 + 0 * last), weights)

    a = jnp.asarray(np.random.default_rng(0).standard_normal((1000, 1000)) / 40, jnp.float32)
    for k in range(3):
        check(f, made_of(a), rows(k))
    x = rows(3)
    for n in range(20):  # a busy machine may be too late to look
        mine = made_of(a + n)
        for _ in range(2):
            f._look(f._front, (mine, x), {})
        if not mine[0][0].is_ready():
            break
    assert n < 19 and not others(f)
    for k in range(3):
        check(f, mine, rows(k))


def test_threads_with_weights_of_their_own(known: tuple[Any, Any]) -> None:
    f, _ = known
    sets = [weights_of(k) for k in range(3)]
    inputs = [rows(k) for k in range(4)]
    wanted = [[np.asarray(jax.jit(network)(w, x)) for x in inputs] for w in sets]
    wrong: list[int] = []

    def call(k: int) -> None:
        for n in range(80):
            mine = sets[k] if n % 9 else jax.tree.map(jnp.copy, sets[k])
            if not np.allclose(f(mine, inputs[n % 4]), wanted[k][n % 4], rtol=2e-4, atol=2e-5):
                wrong.append(k)

    in_threads(call, len(sets))
    assert not wrong
