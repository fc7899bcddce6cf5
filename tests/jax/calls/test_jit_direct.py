"""Warm calls of `tilewright.jit` without Python: JAX's native call has what it compiled (`tilewright.jax.calls.direct`)."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright

pytestmark = pytest.mark.jax

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out, and the header says so
    import jax
    import jax.numpy as jnp

    from tilewright.jax.calls import direct, front
    from tilewright.jax.calls.front import DIRECT_BYTES

X = np.linspace(-1, 1, 7, dtype=np.float32)


def _warm(f: Any, *args: Any, calls: int = 4) -> Any:
    for _ in range(calls):
        found = f(*args)
    return found


def _python_calls(f: Callable[..., Any], *args: Any) -> list[str]:
    """The functions of Python's that a call runs."""
    names: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        f(*args)
    finally:
        sys.setprofile(None)
    return names


def test_a_warm_call_of_a_short_program_runs_no_python() -> None:
    """It took a microsecond more than JAX's own call."""
    f = tilewright.jit(lambda tree: {"sum": tree["a"] + tree["b"][0]})
    tree = {"a": jnp.asarray(X), "b": [jnp.asarray(X)]}
    assert _python_calls(f, tree)
    np.testing.assert_array_equal(_warm(f, tree)["sum"], X + X)
    served = f._front.served
    assert _python_calls(f, tree) == []
    assert f._front.served == served + 1


def test_a_program_that_may_call_python_is_called_natively_and_raises_what_its_callback_did() -> None:
    """It took a microsecond and a half more than JAX's own call for what is almost never called."""

    class Refused(Exception):
        pass

    def refuse(x: Any) -> Any:
        raise Refused(float(x[0]))

    def checked(x: Any) -> Any:
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return 2 * jax.lax.cond(x[0] > 0, lambda x: jax.pure_callback(refuse, like, x), lambda x: x, x)

    f = tilewright.jit(checked)
    x = jnp.asarray(X)
    np.testing.assert_array_equal(_warm(f, x), X * 2)
    assert f._direct.is_on
    assert _python_calls(f, x) == ["call"]  # the one that waits for the arguments
    for _ in range(3):
        with pytest.raises(Refused, match=r"^1\.0$"):
            f(-x)
        np.testing.assert_array_equal(f(x), X * 2)
    np.testing.assert_array_equal(f(X), X * 2)  # NumPy's array is nothing to wait for
    np.testing.assert_array_equal(jax.jit(f)(x), X * 2)


def test_calls_that_are_counted_run_one_function_of_python_s() -> None:
    """Programs in several threads, or with much memory of their own: they went through four functions."""
    f = tilewright.jit(lambda x: jnp.sort(jnp.tanh(x), axis=0).sum(0))
    x = jnp.asarray(np.linspace(-1, 1, 1 << 18, dtype=np.float32).reshape(512, 512))
    np.testing.assert_allclose(_warm(f, x), np.tanh(np.asarray(x)).sum(0), atol=1e-3)
    front = f._front
    (program,) = front._programs.values()
    assert not front.has_packs and not f._direct.is_on
    assert program.threads > 1 or program.bytes > DIRECT_BYTES
    assert [name for name in _python_calls(f, x) if name != "have_workers"] == ["call"]
    jax.block_until_ready(f(x))
    served = front.served
    jax.block_until_ready(f(x))
    assert front.served == served + 1
    with jax.disable_jit():
        assert "<lambda>" in _python_calls(f, x)
    np.testing.assert_allclose(jax.jit(lambda x: f(x) * 2)(x), 2 * f(x), atol=1e-3)
    assert f(x[:8]).shape == (512,)  # another signature
    f.clear_cache()
    assert f._front is None and "thorough" in "".join(_python_calls(f, x))
    assert _warm(f, x).shape == (512,) and f._front is not front


def test_doubles_are_no_tokens() -> None:
    """NumPy's float64 is equal to None: programs of doubles took the thorough way, 20 microseconds a call, and were not saved."""
    with jax.enable_x64(True):
        f = tilewright.jit(lambda x: x * 2)
        x = jnp.asarray(X, np.float64)
        assert _warm(f, x).dtype == np.float64
        assert _python_calls(f, x) == []


def test_methods_and_static_arguments_are_told_apart() -> None:
    class Scaled:
        @tilewright.jit
        def twice(self: Any, x: Any = None) -> Any:
            return self * 2 if x is None else x * 2

        factor = tilewright.jit(lambda x, n, *, add: x * n + add, static_argnums=1, static_argnames="add")

    x = jnp.asarray(X)
    for n, add in ((2, 1), (3, 1), (2, 5)) * 4:
        np.testing.assert_array_equal(Scaled.factor(x, n, add=add), X * n + add)
    assert Scaled.factor._direct.is_on
    np.testing.assert_array_equal(_warm(Scaled.twice, x), X * 2)


def test_each_signature_and_setting_has_its_own_program() -> None:
    f = tilewright.jit(lambda x: x * 2 + 1)
    for _ in range(4):
        for size in (3, 4):
            for dtype in (np.float32, np.int32):
                found = f(jnp.ones(size, dtype))
                assert found.shape == (size,) and found.dtype == dtype
    assert _python_calls(f, jnp.ones(3)) == []
    with jax.enable_x64(True):
        for _ in range(3):
            assert f(jnp.ones(3, np.float64)).dtype == np.float64
    assert f(1.0).weak_type and f(1.0).dtype == np.float32
    f.clear_cache()
    assert not f._direct.is_on
    assert _warm(f, jnp.ones(3))[0] == 3 and f._direct.is_on


def test_transformations_and_debugging_flags_hold() -> None:
    f = tilewright.jit(lambda x: jnp.log(x) * 3)
    x = jnp.asarray(X) + 2
    _warm(f, x)
    assert f._direct.is_on
    np.testing.assert_allclose(jax.vmap(jax.grad(f))(x), 3 / (X + 2), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda x: f(x) + f(jnp.ones(7)))(x), f(x), rtol=1e-6)
    with jax.disable_jit():
        assert "<lambda>" in _python_calls(f, x)
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        f(x - 10)
    assert np.isnan(f(x - 10)).all()
    with jax.checking_leaks():
        np.testing.assert_array_equal(f(x), _warm(f, x))


def test_a_callback_may_call_the_signature_that_is_new() -> None:
    """JAX refuses a call from within the first one with its signature: such calls take Python's way."""

    def f(x: Any, depth: int) -> Any:
        if x.ndim == 1:
            return x + 1
        return jax.pure_callback(lambda v: v if depth == 0 else g(jnp.asarray(v), depth - 1), x, x) + 1

    g = tilewright.jit(f, static_argnums=1)
    _warm(g, jnp.zeros(3), 0)
    assert g._direct.is_on
    assert float(_warm(g, jnp.zeros((1, 1)), 2)[0, 0]) == 3
    assert g(jnp.zeros(3), 0)[0] == 1 and g._direct.is_on


def test_kept_packs_end_native_calls() -> None:
    """Which calls are on their way is not known of native ones, and packs are let go of when none is."""
    f = tilewright.jit(lambda x, w: x @ w)
    small, large = jnp.ones((2, 2)), jnp.ones((256, 256))
    assert _warm(f, small, small)[0, 0] == 2
    was_on = f._direct.is_on
    first = f._front
    assert _warm(f, large, large)[0, 0] == 256
    if f._front.has_packs:
        assert not f._direct.is_on and (f._front is not first or not was_on)
    assert _warm(f, small, small)[0, 0] == 2


def test_a_program_outlives_its_function_while_xla_computes() -> None:
    """Nothing counts native calls: XLA itself says when it has let go of a program."""
    f = tilewright.jit(lambda x: x * 3)
    x = jnp.ones((8, 8))
    _warm(f, x)
    assert f._direct.is_on and f._front._held.value == 1
    held = f._front._held
    late = jax.jit(lambda x: jax.lax.fori_loop(0, 40, lambda k, y: y @ x / 700, x))(jnp.ones((700, 700)))
    found = f(late[:8, :8])
    del f
    gc.collect()
    np.testing.assert_allclose(found, np.full((8, 8), 3.0), rtol=1e-3)
    jax.clear_caches()
    gc.collect()
    front._let_go()
    assert held.value == 0 and not any(word is held for word in front._held.values())


def test_another_version_of_jax_without_the_native_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_native_call", lambda *_: None)
    f = tilewright.jit(lambda x: x + 1)
    np.testing.assert_array_equal(_warm(f, jnp.asarray(X)), X + 1)
    assert not f._direct.is_on and f._front.served >= 2


def test_called_holds_what_it_is_called_by() -> None:
    called = direct.Called()
    called.set_call(lambda *a, **k: (a, k))
    assert called(1, b=2) == ((1,), {"b": 2})
    called.set_call(len)
    assert called("four") == 4


def test_a_function_of_doubles_is_saved(tmp_path: Any) -> None:
    """It was said to pass tokens."""
    with jax.enable_x64(True):
        x = jnp.asarray(X, np.float64)
        tilewright.jit(lambda x: x * 2).save(tmp_path / "doubled", x)
    np.testing.assert_array_equal(tilewright.load(tmp_path / "doubled")(np.asarray(x)), X.astype(np.float64) * 2)
