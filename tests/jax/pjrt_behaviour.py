"""What a program of JAX's sees of threads, forks, signals, errors, memory and the end, on whatever platform JAX_PLATFORMS names.

`python -m tests.jax.pjrt_behaviour` prints a JSON object: each situation's name, and what was observed. `tests/jax/test_pjrt.py`
compares JAX's CPU with the platform `tilewright`.
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
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out
    import jax
    import jax.extend
    import jax.numpy as jnp
    from jax.experimental import io_callback

SQUARE = np.full((400, 400), 1e-2, np.float32)


def named(f: Callable[[], Any]) -> Any:
    """What f gives, or the kind of what it raises, with the code that JAX's runtime has put before it."""
    try:
        return f()
    except BaseException as e:  # noqa: BLE001 (which one it is is the observation)
        return f"{type(e).__name__} {str(e).partition(':')[0] if isinstance(e, jax.errors.JaxRuntimeError) else ''}".strip()


def threads() -> Any:
    """Calls, donations, errors, compilations and callbacks of eight threads at once."""
    step = jax.jit(lambda x: jnp.tanh(x @ x * 0.8), donate_argnums=0)
    told: list[int] = []

    def fails(v: Any) -> Any:
        raise ValueError("mine")

    def work(k: int) -> Any:
        x = jnp.asarray(SQUARE)
        for _ in range(5):
            x = step(x)
        own = jax.jit(lambda x: x[:k] + k)
        jax.jit(lambda v: io_callback(told.append, None, v, ordered=False))(np.int32(k))
        wrong = jax.jit(lambda v: jax.pure_callback(fails, v, v))
        return [round(float(x[0, 0]), 4), own(x).shape, named(lambda: wrong(np.float32(k)).block_until_ready())]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    jax.effects_barrier()
    return [found, sorted(map(int, told))]


def arrays_across_threads() -> Any:
    """One thread makes arrays, others wait for them, use them and delete them."""
    f = jax.jit(lambda x: x @ x)
    x = f(jnp.asarray(SQUARE))

    def work(k: int) -> Any:
        made = float(f(x)[0, 0]) > 0
        if k == 3:
            x.delete()
        return made

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        made = list(pool.map(work, range(4)))
    return [made, named(lambda: f(x)), x.is_deleted()]


def child_of_a_fork() -> Any:
    """A small program that was compiled and called before the fork, called in the child and after it in the parent."""
    f = jax.jit(lambda x: jnp.sin(x) + 1)
    x = jnp.arange(4.0)
    expected = np.asarray(f(x)).tolist()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pid = os.fork()
    if pid == 0:
        os._exit(0 if np.asarray(f(x)).tolist() == expected else 1)
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return [status, any("fork" in str(w.message) for w in caught), np.asarray(f(x)).tolist() == expected]
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "the child hangs"


def interrupts() -> Any:
    """A signal while the main thread waits, computes in a callback, and calls: it is raised, and all goes on."""
    raised: list[str] = []

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    def sends(v: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return v

    was = signal.signal(signal.SIGUSR1, interrupt)
    waits = jax.jit(lambda x: jax.lax.fori_loop(0, 60, lambda k, x: jnp.tanh(x @ x), x))
    asks = jax.jit(lambda v: jax.pure_callback(sends, v, v))
    x = jnp.asarray(SQUARE)
    waits(x).block_until_ready()

    def attempt(f: Callable[[], Any]) -> None:
        try:
            f()
            for _ in range(10_000):  # what was raised elsewhere is raised here
                pass
            raised.append("nothing")
        except KeyboardInterrupt:
            raised.append("KeyboardInterrupt")
        except jax.errors.JaxRuntimeError:
            raised.append("JaxRuntimeError")

    def waited() -> None:
        threading.Timer(0.02, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1)).start()
        waits(x).block_until_ready()
        time.sleep(1)  # in case that it was over before

    attempt(waited)
    attempt(lambda: asks(np.float32(1)).block_until_ready())
    with contextlib.suppress(KeyboardInterrupt):
        jax.effects_barrier()
    signal.signal(signal.SIGUSR1, was)
    return [raised[0], raised[1] != "nothing", float(jax.jit(lambda x: x + 1)(1.0))]


def errors_in_callbacks() -> Any:
    """Where they come out, of what kinds, and that whatever follows runs."""

    class OwnError(Exception):
        pass

    def fails(kind: Any) -> Callable[[Any], Any]:
        def call(v: Any) -> Any:
            raise kind("mine")

        return call

    def wrong(v: Any) -> Any:
        return np.zeros((2, 2), np.float32)

    x = np.float32(1)
    found = [
        named(lambda kind=kind: float(jax.jit(lambda v: jax.pure_callback(fails(kind), v, v))(x)))
        for kind in (ValueError, OwnError, SystemExit, MemoryError)
    ]
    found.append(named(lambda: float(jax.jit(lambda v: jax.pure_callback(wrong, v, v))(x))))

    def of_a_scan() -> Any:
        turn = lambda c, r: (c + jax.pure_callback(lambda v: np.float32(1) / (3 - int(v)), r, r), r)  # noqa: E731
        return float(jax.jit(lambda v: jax.lax.scan(turn, v, jnp.arange(5.0)))(x)[0])

    found.append(named(of_a_scan))
    debug = jax.jit(lambda v: (jax.debug.callback(fails(ValueError), v, ordered=True), v + 1)[1])
    found.append(named(lambda: [float(debug(x)), jax.effects_barrier()][0]))
    found.append(named(lambda: float(jax.jit(lambda x: x + 1)(x))))
    return found


def out_of_memory() -> Any:
    """Results, and memory within, for which there is no room; then what has room."""
    found = [
        named(lambda: jax.jit(lambda v: jnp.full((1 << 27, 1 << 20), v))(1.0).block_until_ready().shape),
        named(lambda: jax.jit(lambda v: jnp.sum(jnp.sort(jnp.full((1 << 45,), v) + jnp.arange(1 << 45))))(1.0).item()),
    ]
    gc.collect()
    return [*found, float(jnp.ones(3).sum())]


def client_closed() -> Any:
    """JAX's backends are let go of while a call is on its way: its results come, and new calls find new backends."""
    f = jax.jit(lambda x: jax.lax.fori_loop(0, 30, lambda k, x: jnp.tanh(x @ x), x).sum())
    y = f(jnp.asarray(SQUARE))
    jax.extend.backend.clear_backends()
    gc.collect()
    return [named(lambda: round(float(y), 3)), float(jax.jit(lambda x: x + 1)(1.0))]


SITUATIONS = {f.__name__: f for f in (
    threads, arrays_across_threads, interrupts, errors_in_callbacks, out_of_memory, child_of_a_fork, client_closed)}  # fmt: skip


def main(names: list[str]) -> None:
    """Prints what is observed."""
    print(json.dumps({name: SITUATIONS[name]() for name in names or SITUATIONS}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
