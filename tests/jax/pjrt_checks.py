"""What `tests/jax/test_pjrt.py` checks of the platform `tilewright`, in a process of its own.

`python -m tests.jax.pjrt_checks NAME...` prints a JSON object: each check's name, and null or what it raised. JAX finds the
platform by its entry point.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import importlib.util
import json
import os
import signal
import sys
import tempfile
import threading
import traceback
from typing import Any

import numpy as np
import pytest

from tests.jax.pjrt_more import CHECKS as MORE

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out
    import jax
    import jax.numpy as jnp
    from jax.experimental import io_callback, serialize_executable
    from jax.experimental.compilation_cache import compilation_cache

    import tilewright
    from tilewright.pjrt import threads
    from tilewright.pjrt.client import close
    from tilewright.pjrt.handles import living
    from tilewright.pjrt.native import state

SQUARE = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)


def same(f: Any, *args: Any, tolerance: float = 2e-5) -> None:
    """f gives the same on this platform as on JAX's CPU."""
    with jax.default_device(jax.devices("cpu")[0]):
        expected = jax.tree.map(np.asarray, jax.jit(f)(*args))
    found = jax.jit(f)(*args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.devices() == {jax.devices()[0]}
        assert a.dtype == b.dtype
        wide = np.complex128 if b.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(np.asarray(a).astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------- client and buffers


def check_client() -> None:
    (device,) = jax.devices()
    assert jax.default_backend() == device.platform == "tilewright"
    assert (device.id, device.process_index, device.default_memory().kind) == (0, 0, "device")
    assert "tilewright" in device.client.platform_version
    assert [d.platform for d in jax.devices("cpu")] == ["cpu"] * len(jax.devices("cpu"))


def check_element_types() -> None:
    names = (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 complex64 complex128 float8_e5m2"
        " float8_e4m3fn float8_e4m3b11fnuz float8_e5m2fnuz float8_e4m3fnuz int4 uint4 int2 uint2 float8_e4m3 float8_e3m4"
        " float8_e8m0fnu float4_e2m1fn"
    ).split()
    with jax.enable_x64(True):
        for name in names:
            a = (np.arange(6).reshape(2, 3) % 2).astype(jnp.dtype(name))
            x = jax.device_put(a)
            assert x.dtype == a.dtype == jnp.dtype(name)
            assert np.asarray(x).tobytes() == a.tobytes(), name


def check_host_arrays() -> None:
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in (a.T, a[::-1], a[:, ::2], a[:0], a[0, 0, 0], np.broadcast_to(a[0], (5, 3, 4))):
        np.testing.assert_array_equal(jax.device_put(view), view)
    kept = a.copy()
    x = jnp.array(kept)
    kept[:] = -1
    np.testing.assert_array_equal(x, a)
    copy = jnp.copy(x)
    assert copy.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    cpu = jax.device_put(x, jax.devices("cpu")[0])
    np.testing.assert_array_equal(jax.device_put(cpu, jax.devices()[0]), a)


def check_views_outlive_deletion() -> None:
    x = jnp.arange(1000.0)
    view = np.asarray(x)
    x.delete()
    del x
    gc.collect()
    jnp.full(1000, 7.0).block_until_ready()
    np.testing.assert_array_equal(view, np.arange(1000))


def check_deletion_and_donation() -> None:
    step = jax.jit(lambda a: a + 1, donate_argnums=0)
    x = jnp.zeros(3)
    y = step(x)
    assert x.is_deleted() and not y.is_deleted()
    np.testing.assert_array_equal(step(y), [2, 2, 2])
    for use in (lambda: np.asarray(x), lambda: step(x)):
        with pytest.raises((RuntimeError, ValueError), match="deleted"):
            use()


def check_nothing_is_left() -> None:
    def some() -> None:
        xs = [jnp.arange(4.0) + k for k in range(5)]
        jax.block_until_ready(xs)
        jax.debug.callback(lambda v: None, xs[0])
        jax.effects_barrier()

    some()
    gc.collect()
    before = len(living), state.living
    for _ in range(3):
        some()
    gc.collect()
    assert (len(living), state.living) == before


# ---------------------------------------------------------------- programs


def check_control_flow() -> None:
    x = SQUARE
    same(lambda x: jax.lax.scan(lambda c, r: (c + r, c * r), x[0], x), x)
    same(lambda x: jax.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x)), x)
    same(jax.vmap(jax.grad(lambda r: jnp.sum(jax.nn.softmax(r) ** 2))), x)


def check_random_bits() -> None:
    same(lambda: (jax.random.normal(jax.random.key(1), (4,)), jax.random.split(jax.random.key(2))[0].dtype.itemsize))


def check_linear_algebra() -> None:
    x = SQUARE @ SQUARE.T + 5 * np.eye(5, dtype=np.float32)
    same(lambda x: (jnp.linalg.cholesky(x), jnp.linalg.eigvalsh(x), jnp.linalg.svd(x, compute_uv=False)), x, tolerance=1e-4)
    same(lambda x: (jnp.linalg.solve(x, x[0]), jnp.sort(jnp.linalg.eigvals(x).real)), x, tolerance=1e-4)


def check_branches_by_platform() -> None:
    own = lambda x: x + 2  # noqa: E731
    as_cpu = jax.jit(lambda x: jax.lax.platform_dependent(x, cpu=lambda x: x + 1, tpu=lambda x: x))
    as_own = jax.jit(lambda x: jax.lax.platform_dependent(x, cpu=lambda x: x + 1, tilewright=own, default=lambda x: x))
    assert as_cpu(1.0) == 2 and as_own(1.0) == 3


def check_training() -> None:
    def loss(weights: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ weights["a"] + weights["b"]) - y) ** 2)

    def trained(seed: Any) -> Any:
        keys = jax.random.split(jax.random.key(seed), 3)
        x, y = jax.random.normal(keys[0], (16, 5)), jax.random.normal(keys[1], (16, 3))
        weights = {"a": jax.random.normal(keys[2], (5, 3)), "b": jnp.zeros(3)}

        def step(weights: Any, _: Any) -> Any:
            value, slopes = jax.value_and_grad(loss)(weights, x, y)
            return jax.tree.map(lambda w, g: w - 0.1 * g, weights, slopes), value

        return jax.lax.scan(step, weights, None, length=20)

    same(trained, 0)


# ---------------------------------------------------------------- calls that are not over when they return

LARGE = np.full((600, 600), 1e-3, np.float32)


def held() -> tuple[Any, threading.Event]:
    """(a number that is not there, what lets it come): more memory is moved than native calls take, by a thread that waits."""
    released = threading.Event()
    threads.submit(lambda: released.wait(60))
    return jax.jit(lambda x: x[-1])(jax.jit(lambda v: jnp.full(1 << 24, v) + 1)(jnp.float32(2))), released


def check_calls_return_before_they_are_over() -> None:
    """What depends on a call that goes on is begun as well: kernels, callbacks, copies; deleted and donated arguments stay."""
    x, released = held()
    add = jax.jit(lambda x: x + 1)
    chain = add(add(x))
    first = add(x)
    donated = jax.jit(lambda x: x * 2, donate_argnums=0)(first)
    copy = jnp.copy(x)
    asked = jax.jit(lambda x: jax.pure_callback(lambda v: np.float32(v) + 1, x, x))(x)
    was = add(x)
    product = jax.jit(lambda x, a: jnp.sum(a @ a) * x)(was, jnp.asarray(LARGE))
    was.delete()
    for y in (x, chain, donated, copy, asked, product):
        assert not y.is_ready()
    assert first.is_deleted() and was.is_deleted()
    released.set()
    expected = [3, 5, 8, 3, 4, 4 * np.sum(LARGE @ LARGE)]
    np.testing.assert_allclose([float(v) for v in (x, chain, donated, copy, asked, product)], expected, rtol=1e-4)


def check_errors_of_calls_that_go_on() -> None:
    """They come where results are waited for, for all that depends on them, and are over then."""

    def fails(v: Any) -> Any:
        raise ValueError("after the call")

    number, released = held()
    x = jax.jit(lambda x: jax.pure_callback(fails, x, x))(number)
    add = jax.jit(lambda x: x + 1)
    dependent = add(add(x))
    asked = jax.jit(lambda x: jax.pure_callback(lambda v: np.float32(v) + 1, x, x))(dependent)
    released.set()
    for y in (x, dependent, asked):
        for wait in (jax.block_until_ready, np.asarray, lambda y: add(y).block_until_ready()):
            with pytest.raises(jax.errors.JaxRuntimeError, match="after the call"):
                wait(y)
    assert add(jnp.float32(1)) == 2


def check_callbacks_that_call_programs() -> None:
    """Nobody waits behind the call that it is made for: a product, more memory, a callback within one that went on."""
    number, released = held()
    inner = jax.jit(lambda x: jnp.sum(x @ x))
    large = jax.jit(lambda v: jnp.full(1 << 24, v) + 1)
    asks = jax.jit(lambda x: jax.pure_callback(lambda v: np.float32(v) + 1, x, x))

    def call(v: Any) -> Any:
        return np.float32(inner(jnp.asarray(LARGE))) + np.asarray(asks(large(v)[-1]))

    x = jax.jit(lambda x: jax.pure_callback(call, x, x))(number)
    released.set()
    np.testing.assert_allclose(float(x), np.sum(LARGE @ LARGE) + 5, rtol=1e-4)


def check_more_calls_than_may_wait() -> None:
    step = jax.jit(lambda x: x @ x * 1e-2)
    x = jnp.asarray(LARGE)
    expected = LARGE
    for _ in range(3):
        expected = expected @ expected * np.float32(1e-2)
    y = step(step(step(x)))
    many = [step(x) for _ in range(100)]
    jax.block_until_ready(many)
    np.testing.assert_allclose(y, expected, rtol=1e-4)


def check_interrupted_waits() -> None:
    """Who waits for a loop without an end hears of a signal; the loop ends with the process at the latest."""
    forever = jax.jit(lambda x: jax.lax.while_loop(lambda s: s >= 0, lambda s: s * 0 + 1, x))
    x = forever(jnp.float32(1))

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    was = signal.signal(signal.SIGALRM, interrupt)

    def wait() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        x.block_until_ready()

    with pytest.raises(KeyboardInterrupt):
        wait()
    signal.signal(signal.SIGALRM, was)
    waiting = jax.jit(lambda x: x + 1)(x)
    assert not x.is_ready() and not waiting.is_ready()
    close()
    for y in (x, waiting):
        with pytest.raises(jax.errors.JaxRuntimeError, match="closed"):
            y.block_until_ready()
    assert jax.jit(lambda x: x + 1)(1.0) == 2


# ---------------------------------------------------------------- callbacks and errors


def check_callbacks() -> None:
    log: list[Any] = []
    shape = jax.ShapeDtypeStruct((5,), np.float32)

    @jax.jit
    def f(x: Any) -> Any:
        jax.debug.callback(lambda v: log.append(float(v)), x[0], ordered=True)
        y = jax.pure_callback(np.sin, shape, x)
        z = io_callback(lambda v: np.float32(v) * 2, shape, y, ordered=True)
        jax.debug.callback(lambda v: log.append(float(v)), x[1], ordered=True)
        return z

    x = np.arange(5, dtype=np.float32)
    for _ in range(2):
        np.testing.assert_allclose(f(x), 2 * np.sin(x), rtol=1e-6)
    jax.effects_barrier()
    assert log == [0, 1, 0, 1]


def check_errors() -> None:
    def fails(v: Any) -> Any:
        raise ValueError("in the callback")

    shape = jax.ShapeDtypeStruct((), np.float32)
    cases = {
        "in the callback": lambda: jax.jit(lambda x: jax.pure_callback(fails, shape, x))(1.0).block_until_ready(),
        "no_such_target": lambda: jax.jit(lambda x: jax.ffi.ffi_call("no_such_target", shape)(x))(1.0),
    }
    for words, call in cases.items():
        with pytest.raises(jax.errors.JaxRuntimeError, match=words):
            call()
    assert jax.jit(lambda x: x + 1)(1.0) == 2


def check_the_limit_of_recursion() -> None:
    """What jaxlib cannot stand failing does not, however little of the stack is left; all else raises."""
    x = jnp.ones(3)
    add = jax.jit(lambda x: x + 1)
    add(x)

    def at(depth: int, use: Any) -> None:
        if depth:
            at(depth - 1, use)
        else:
            use()

    uses = (lambda: add(x), lambda: x.is_deleted(), lambda: np.asarray(x)[0], lambda: jnp.array([1.0]), x.block_until_ready)
    tried = raised_later = 0
    for depth in range(sys.getrecursionlimit() - 40, sys.getrecursionlimit(), 2):
        for use in uses:
            tried += 1
            try:
                with contextlib.suppress(RecursionError, ValueError, jax.errors.JaxRuntimeError):
                    at(depth, use)
            except RecursionError:  # follows jaxlib's own error
                raised_later += 1
    assert tried == 100 >= raised_later
    assert add(x)[0] == 2


def check_interrupts() -> None:
    """A handler raises at any place, again and again: it is raised where Python goes on, nothing crashes, results stay right."""
    x = jnp.ones(64)
    f = jax.jit(lambda x: jnp.sin(x) * 2 + 1)
    expected = np.asarray(f(x))
    is_armed, arrived = False, 0

    def interrupt(*_: Any) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise KeyboardInterrupt

    def some() -> None:
        nonlocal is_armed
        is_armed = True
        while is_armed:
            y = f(x)
            y.block_until_ready()
            np.asarray(jnp.asarray([1.0, 2.0]))

    was = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    for _ in range(500):
        try:
            # jaxlib may raise an error of its own for the call that was interrupted: the interrupt follows at once
            with contextlib.suppress(ValueError, RuntimeError):
                some()
            for _ in range(3):
                pass
        except KeyboardInterrupt:
            arrived += 1
        is_armed = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, was)
    assert arrived > 0  # Python itself drops what is raised in weak references' callbacks, of which JAX has many
    np.testing.assert_array_equal(f(x), expected)


def check_threads() -> None:
    f = jax.jit(lambda x: x * 2 + 1)

    def work(k: int) -> bool:
        return all(float(f(jnp.full(3, float(k)))[0]) == 2 * k + 1 for _ in range(50))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def check_too_large() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        jax.jit(lambda x: jnp.broadcast_to(x, (1 << 28, 1 << 20)) + 1)(1.0)
    assert jnp.ones(3)[0] == 1


def check_tilewright_jit() -> None:
    """On this platform it is JAX's own call: asynchronous, with JAX's arrays of this device."""
    f = tilewright.jit(lambda x: x @ x, donate_argnums=0)
    x = jnp.ones((3, 3))
    y = f(x)
    assert x.is_deleted() and y.devices() == {jax.devices()[0]} and y[0, 0] == 3
    numbers = tilewright.jit(lambda x: x + 1, output="numpy")(np.ones(3, np.float32))
    assert type(numbers) is np.ndarray and numbers.tolist() == [2, 2, 2]


def check_compiled() -> None:
    compiled = jax.jit(lambda x: jnp.sin(x) @ x).lower(SQUARE).compile()
    assert compiled.memory_analysis().argument_size_in_bytes == 100
    assert "sine" in compiled.as_text()
    again = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
    np.testing.assert_array_equal(again(SQUARE), compiled(SQUARE))


def check_persistent_cache() -> None:
    """A second compilation of what is in JAX's cache on disk is none; programs of this process's functions are not written."""
    seen: list[str] = []
    jax.monitoring.register_event_listener(lambda event, **_: seen.append(event))
    with tempfile.TemporaryDirectory() as folder:
        options = {"jax_compilation_cache_dir": folder, "jax_persistent_cache_min_compile_time_secs": 0}
        was = {name: getattr(jax.config, name) for name in options}
        for name, value in options.items():
            jax.config.update(name, value)
        try:
            for _ in range(2):
                assert np.asarray(jax.jit(lambda x: x * 7 + 5)(np.ones(7, np.float32)))[0] == 12
                jax.clear_caches()
            written = sorted(n for n in os.listdir(folder) if n.endswith("-cache"))
            assert len(written) == 1, written
            with pytest.warns(UserWarning, match="calls Python functions"):
                jax.jit(lambda x: jax.pure_callback(np.sin, x, x))(np.float32(1)).block_until_ready()
            assert sorted(n for n in os.listdir(folder) if n.endswith("-cache")) == written
        finally:
            compilation_cache.reset_cache()
            for name, value in was.items():
                jax.config.update(name, value)
    assert [e.rpartition("/")[2] for e in seen if e.endswith(("cache_hits", "cache_misses"))] == ["cache_misses", "cache_hits"]


def check_loops_of_pythons_thread_end() -> None:
    """A program of more memory than native calls take, in a loop without an end, when the client is closed."""

    def forever(v: Any) -> Any:
        return jax.lax.while_loop(lambda s: s[0] >= 0, lambda s: (s[0] * 0 + 1, s[1] * v), (v, jnp.full(1 << 24, v)))

    x, _ = jax.jit(forever)(jnp.float32(1))
    assert not x.is_ready()
    close()
    with pytest.raises(jax.errors.JaxRuntimeError, match="closed"):
        x.block_until_ready()
    assert jax.jit(lambda x: x + 1)(1.0) == 2


SLOW = ("training", "random_bits", "linear_algebra", "interrupts")
CHECKS = {name.removeprefix("check_"): f for name, f in list(globals().items()) if name.startswith("check_")} | MORE


def report(checks: dict[str, Any], names: list[str]) -> None:
    """Runs checks and prints what came of each."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            checks[name]()
            found[name] = None
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 (reported under the check's name)
            found[name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    report(CHECKS, sys.argv[1:])
