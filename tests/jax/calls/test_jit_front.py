"""Warm calls through JAX's own call: the same results as the thorough call, as safe, and the thorough call for the rest."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.threads import exit_code_of, needs_fork
from tilewright.jax import inherited
from tilewright.jax.bridge import JaxError

pytestmark = pytest.mark.jax

if importlib.util.find_spec("jax") is not None:  # without it the marker leaves these tests out, and the header says so
    import jax
    import jax.numpy as jnp

    from codegen.call import xla_handler
    from tilewright.jax.calls import front

ROOT = Path(__file__).resolve().parents[3]


def _served(f: Any) -> int:
    return f._front.served if f._front is not None else 0


def _bits(tree: Any) -> list[tuple[Any, bytes]]:
    leaves = [jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in jax.tree.leaves(tree)]
    return [(jax.typeof(x), np.asarray(y).tobytes()) for x, y in zip(jax.tree.leaves(tree), leaves, strict=True)]


def _leaves(x: Any, key: Any) -> Any:
    """Results of every kind: arguments, constants, one value twice, weak types, keys, booleans, narrow and empty ones."""
    y = jnp.tanh(x) * 2
    return {
        "twice": (y, y), "argument": x, "constant": jnp.arange(3), "weak": jax.lax.full_like(1.0, 0.5), "scalar": 2.0 + x[0],
        "key": jax.random.fold_in(key, 3), "keys": jax.random.split(key), "mask": x > 0, "narrow": y.astype(jnp.bfloat16),
        "empty": x[:0], "parts": y + 1j * x,
    }  # fmt: skip


def _loop(x: Any) -> Any:
    """A loop whose end is not known and whose values change places."""
    return jax.lax.while_loop(lambda c: c[2] < 9, lambda c: (c[1] * 0.5, c[0] + c[1].sum(), c[2] + 1), (x, x + 1, 0))


def _matrix(x: Any) -> Any:
    """Steps of a library's."""
    return jnp.linalg.eigh(x @ x.T)


def _choice(x: Any) -> Any:
    """A callback that is rarely called."""

    def shout(x: Any) -> Any:
        return jax.pure_callback(lambda x: np.asarray(x) * 2, jax.typeof(x), x)

    return jax.lax.cond(x.sum() > 0, shout, lambda x: x - 1, x)


X = np.linspace(-1, 1, 12, dtype=np.float32)


@pytest.mark.parametrize(
    ("f", "arguments"),
    [
        (_leaves, lambda: (jnp.asarray(X), jax.random.key(1))),
        (_loop, lambda: (jnp.asarray(X),)),
        (_matrix, lambda: (jnp.asarray(X[:9].reshape(3, 3)),)),
        (_choice, lambda: (jnp.asarray(X) + 1,)),
        (_choice, lambda: (jnp.asarray(X) - 1,)),
        (lambda x, w: (jnp.sin(x @ w), w.sum()), lambda: (jnp.ones((300, 200)), jnp.full((200, 300), 0.01))),
        (lambda x, n: {"a": x * n, "b": None}, lambda: (1.5, 2)),
        (lambda: jnp.arange(4.0), lambda: ()),
    ],
    ids=["leaves", "loop", "library", "callback", "no-callback", "parallel", "numbers", "nothing"],
)
def test_warm_calls_give_what_the_first_gives(f: Any, arguments: Callable[[], Any]) -> None:
    own = tilewright.jit(f, threads=2)
    first = own(*arguments())
    for _ in range(3):
        again = own(*arguments())
        assert jax.tree.structure(again) == jax.tree.structure(first)
        assert _bits(again) == _bits(first)
    assert _served(own) == 3
    wanted = jax.jit(f)(*arguments())
    assert [jax.typeof(x) for x in jax.tree.leaves(wanted)] == [jax.typeof(x) for x in jax.tree.leaves(again)]


def test_signatures_statics_and_settings_are_told_apart() -> None:
    own = tilewright.jit(lambda x, mode, *, k: x * k if mode == "mul" else x + k, static_argnums=1, static_argnames="k")
    for _ in range(3):
        for x in (jnp.ones(3), np.ones(3, np.int32), 2.0, jnp.ones(4)):
            for mode, k in (("mul", 3), ("add", 3), ("add", 4)):
                np.testing.assert_array_equal(own(x, mode, k=k), x * k if mode == "mul" else x + k)
    assert (own.cache_size, _served(own)) == (12, 24)
    with jax.enable_x64(True):
        assert own(np.ones(3), "add", k=3).dtype == np.float64
    own.clear_cache()
    assert (own.cache_size, _served(own)) == (0, 0)
    assert own(jnp.ones(3), "add", k=3).tolist() == [4, 4, 4]


def test_transformations_trace_through_a_warm_function() -> None:
    f = tilewright.jit(lambda x: jnp.sum(x**2))
    x = jnp.arange(3.0)
    for _ in range(3):
        assert f(x) == 5
        assert jax.grad(f)(x).tolist() == [0, 2, 4]
        assert jax.vmap(f)(x[:, None]).tolist() == [0, 1, 4]
        assert jax.jit(lambda y: f(y) + f(x))(x) == 10  # x is no tracer
    assert _served(f) == 2


def test_what_jax_does_not_take_goes_the_thorough_way() -> None:
    large, small = np.ones(1 << 17, np.float32), np.ones(8, np.float32)

    class Foreign:
        __dlpack__, __dlpack_device__ = small.__dlpack__, small.__dlpack_device__

    f, g, h = (tilewright.jit(lambda x: x + 1) for _ in range(3))
    d = tilewright.jit(lambda x: x + 1, donate_argnums=0)
    n = tilewright.jit(lambda x: x + 1, output="numpy")
    for _ in range(3):
        assert f(large)[7] == 2  # which JAX would copy
        assert g(jnp.asarray(small))[7] == 2
        assert h(Foreign())[7] == 2
        gone = jnp.asarray(small)
        assert d(gone)[7] == 2
        assert gone.is_deleted()
        assert type(n(small)) is np.ndarray
    assert g(Foreign())[7] == 2  # by now the front is there, and JAX does not take it
    with pytest.raises(TypeError, match="not a valid JAX type"):
        g("text")
    assert [_served(k) for k in (f, h, d, n)] == [0, 0, 2, 0]


def test_large_arguments_are_no_reason_for_the_thorough_way() -> None:
    """A ResNet-18 has 47 MB of weights and needs 9: each call of it found out its signature twice in Python."""
    weights = jnp.ones((3, 1000, 4000), jnp.float32)  # 48 MB
    f = tilewright.jit(lambda w, k: w[k, 0] + 1)
    for k in range(4):
        np.testing.assert_array_equal(f(weights, k), np.full(4000, 2, np.float32))
    assert _served(f) == 3


@pytest.mark.parametrize("other", ["declined", "refused", "missed"])
def test_a_signature_that_jax_does_not_take_leaves_the_others_their_warm_calls(
    other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole front was given up for one signature: what it declines, what JAX refuses, what tracing does not find again."""

    class Foreign:
        def __init__(self, a: Any) -> None:
            self.a = a

        def __dlpack__(self, **options: Any) -> Any:
            return self.a.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.a.__dlpack_device__()

    f = tilewright.jit(lambda x: jnp.sin(x) + 1)
    small = np.ones(7, np.float32)
    unusual: Any = {"declined": np.ones(1 << 17, np.float32), "refused": Foreign(small), "missed": jnp.asarray(small)}[other]
    if other == "missed":
        right = front.Front.bound

        def bound(own: front.Front, made: Any, leaves: Any) -> Any:
            if leaves[0].shape == (7,):
                raise front.NotReadyError
            return right(own, made, leaves)

        monkeypatch.setattr(front.Front, "bound", bound)
    wanted = [np.asarray(f(X)), np.asarray(f(unusual))]
    for k in range(4):
        np.testing.assert_array_equal(np.asarray(f(unusual)), wanted[1])
        np.testing.assert_array_equal(np.asarray(f(X)), wanted[0])
        assert _served(f) == k + 1
    g = tilewright.jit(lambda x, n: x, static_argnums=1)
    assert [g(unusual, 1).shape for _ in range(3)] == [unusual.a.shape if other == "refused" else unusual.shape] * 3
    with pytest.raises(ValueError, match="hashable"):
        g(unusual, [1])


def test_errors_of_callbacks_come_as_they_are() -> None:
    class OwnError(Exception):
        pass

    def fails(x: Any) -> Any:
        if x.sum() > 3:
            raise OwnError(float(x.sum()))
        return np.asarray(x)

    f = tilewright.jit(lambda x: jax.pure_callback(fails, jax.typeof(x), x) * 2)
    for _ in range(3):
        assert f(jnp.ones(3)).tolist() == [2, 2, 2]
        with pytest.raises(OwnError, match=r"4\.0"):
            f(jnp.asarray([1.0, 1, 2]))
    assert _served(f) == 5  # all but the first


def test_a_callback_that_raises_is_called_once() -> None:
    """JAX's quick call, which the third one with a signature is, raises another error than the call before: it ran twice."""
    calls = []

    def fails_at_last(x: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 4:
            raise ZeroDivisionError
        return np.asarray(x)

    f = tilewright.jit(lambda x: jax.pure_callback(fails_at_last, jax.typeof(x), x) * 2)
    for _ in range(3):
        f(jnp.ones(3))
    with pytest.raises(ZeroDivisionError):
        f(jnp.ones(3))
    assert len(calls) == 4
    f(jnp.ones(3))
    assert _served(f) == 4


def test_callbacks_may_call_the_same_program() -> None:
    """Every call has memory of its own: the inner calls run in the middle of the outer one."""
    found = []

    def down(x: Any) -> Any:
        n = int(x)
        found.append(n)
        return np.float32(f(jnp.float32(n - 1)) if n > 0 else 0)

    f = tilewright.jit(lambda x: x + jax.pure_callback(down, jax.ShapeDtypeStruct((), np.float32), x) * 1)
    for _ in range(3):
        assert f(jnp.float32(6)) == 21
    assert found == [6, 5, 4, 3, 2, 1, 0] * 3


def test_several_threads_in_one_program() -> None:
    f = tilewright.jit(lambda x, w: jnp.tanh(x @ w).sum(0) + x[0, :300], threads=2)
    w = jnp.eye(300) * 0.1
    arguments = [jnp.full((300, 300), k / 4) for k in range(4)]
    wanted = [np.asarray(f(x, w)) for x in arguments]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(20):
            if np.asarray(f(arguments[k], w)).tobytes() != wanted[k].tobytes():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert _served(f) >= 80


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:os.fork:RuntimeWarning")
def test_a_forked_process_runs_what_was_compiled_and_asks_nothing_of_jax() -> None:
    """The launcher starts threads of its own there. JAX's stay in the parent: a call that needs one hangs now and then."""
    f = tilewright.jit(lambda x, w: jnp.tanh(x @ w), threads=2)
    x, w = jnp.ones((200, 300)), jnp.full((300, 200), 0.01)
    wanted = [np.asarray(f(x, w)).tobytes() for _ in range(3)]
    executable, arrays = f.executable(x, w), (np.asarray(x), np.asarray(w))

    def refused(call: Callable[[], Any]) -> bool:
        with pytest.raises(JaxError, match=rf"child of process {os.getppid()} by a fork.*spawn.*Executable .* on NumPy arrays"):
            call()
        return True

    child = os.fork()
    if not child:
        code = 1
        try:
            found = [executable(*arrays)[0].tobytes() for _ in range(3)]
            asked = [lambda: f(x, w), lambda: tilewright.jit(jnp.sin)(arrays[0]), lambda: tilewright.from_jax(jnp.sin, arrays[0])]
            code = 0 if found == wanted and all(map(refused, asked)) else 2
        finally:
            os._exit(code)
    assert exit_code_of(child, 120) == 0
    assert np.asarray(f(x, w)).tobytes() == wanted[0]


@pytest.mark.parametrize(("backends", "locked", "told"), [({}, False, False), ({"cpu": object()}, False, True), ({}, True, True)])
def test_a_child_may_use_a_jax_that_had_not_started(
    backends: dict[str, object], locked: bool, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was imported alone has no threads; what another thread was starting never gets ready in the child."""
    lock = threading.Lock()
    if locked:
        lock.acquire()
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", SimpleNamespace(_backends=backends, _backend_lock=lock))
    monkeypatch.setattr(inherited, "started_in", [])
    inherited._after_in_child()
    assert bool(inherited.started_in) is told


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers")
def test_a_loop_without_an_end_is_interrupted() -> None:
    class Enough(Exception):
        pass

    def handler(*_: Any) -> None:
        raise Enough

    f = tilewright.jit(lambda x, n: jax.lax.while_loop(lambda c: c[0] != n, lambda c: (c[0] + 2, jnp.sin(c[1]) + x), (1, x)))
    for _ in range(2):
        assert f(jnp.ones(3), 9)[0] == 9
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(Enough):
            f(jnp.ones(3), 8)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert f(jnp.ones(3), 9)[0] == 9
    assert _served(f) == 3


def test_what_xla_still_computes_outlives_its_function() -> None:
    """An argument that JAX has not computed yet: XLA calls the program later, when nobody else knows of it any more."""
    f = tilewright.jit(lambda x: (jnp.tanh(x) * 3).sum(1))
    x = jnp.ones((700, 700))
    others = set(front._on_their_way)
    wanted = np.asarray(f(x / 700)), np.asarray(f(x / 700))
    late = jax.jit(lambda x: jax.lax.fori_loop(0, 4, lambda k, y: y @ x / 700, x))(x) / 700
    found = f(late)
    del f
    gc.collect()
    np.testing.assert_array_equal(np.asarray(found), wanted[1])
    jax.clear_caches()  # what XLA made of it may be held there
    gc.collect()
    front.Front(jax, lambda: None, (), ())  # which lets go of what has ended
    assert set(front._on_their_way) <= others


def test_long_calls_return_before_they_are_over() -> None:
    """Those with many elements and those with many operations; short ones are made in the caller's thread.

    So are those that are over in less time than JAX needs for their many arrays: they waited for another thread to begin.
    """
    go_on, threads = threading.Event(), []
    allocate, _ = xla_handler.allocator()

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
    def held(size: int) -> Any:
        threads.append(threading.get_ident())
        assert go_on.wait(60)
        return allocate(size)

    for f, x, is_long in (
        (lambda x: jnp.sin(jnp.cos(jnp.sin(x))), jnp.ones(1 << 20), True), (lambda x: x @ x, jnp.ones((700, 700)), True),
        (lambda x: x + 1, jnp.ones(64), False), (lambda t: t[0] + t[-1], [jnp.ones((32, 32))] * 300, False),
    ):  # fmt: skip
        go_on.clear() if is_long else go_on.set()
        g = tilewright.jit(f)
        _, _, wanted = (np.asarray(g(x)) for _ in range(3))
        (call,) = g._front._programs.values()
        call.words[xla_handler.ALLOCATE] = ctypes.cast(held, ctypes.c_void_p).value
        found = g(x)
        assert found.is_ready() is not is_long
        go_on.set()
        np.testing.assert_array_equal(np.asarray(found), wanted)
        assert (threads.pop() != threading.get_ident()) is is_long


def test_transfers_are_guarded_from_the_first_call_on() -> None:
    """What JAX's guard says holds for every call: arrays of JAX's go in, nothing else does."""
    f, x = tilewright.jit(lambda x: x + 1), jnp.ones(3)
    for _ in range(4):
        with jax.transfer_guard("disallow"):
            assert f(x).shape == (3,)
            for value in (np.ones(3, np.float32), 1.0):
                with pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed host-to-device transfer"):
                    f(value)
        assert f(1.0) == 2 and f(np.ones(3, np.float32))[0] == 2


def test_a_quick_program_of_many_operations_is_no_long_one() -> None:
    """By their count it went to a thread of XLA's and back, which took three times what the program does."""
    f = tilewright.jit(lambda a, b: a @ b)
    for n, is_long in ((40, False), (600, True)):
        x = jnp.full((n, n), 0.5)
        for _ in range(3):
            assert f(x, x)[0, 0] == n / 4
        made = next(m for m in f._front._programs if m.lowered.out_avals[0].shape == (n, n))
        assert (f._front._programs[made] in f._front._long) is is_long


WITHOUT_MEMORY = """
import gc, logging, time
import jax.numpy as jnp
import numpy as np
import tilewright
from codegen.call import xla_handler
from tilewright.jax.calls import front

logging.basicConfig(level=logging.INFO)
front.DIRECT_BYTES = 0  # as of one that takes more
f = tilewright.jit(lambda x: jnp.tanh(x) * 3)
x = jnp.ones(5)
deadline = time.monotonic() + 120
wanted = [np.asarray(f(x)) for _ in range(3)]
while f._front is None and time.monotonic() < deadline:  # a busy machine
    time.sleep(0.01)
    f(x)
taken = f._front
assert taken is not None, "no front: see the log"
served = taken.served
(call,) = taken._programs.values()
call.words[xla_handler.BYTES] = 1 << 60
np.testing.assert_array_equal(np.asarray(f(x)), wanted[0])  # the thorough call
assert taken.served > served
del f, taken, call
gc.collect()
deadline = time.monotonic() + 30
while front._on_their_way and time.monotonic() < deadline:  # a call ends a moment after its results are there
    time.sleep(0.01)
    front._let_go()
assert not front._on_their_way
"""


def test_a_call_without_memory_has_ended_too() -> None:
    """Its program was kept for ever, as if XLA still computed. In a process of its own: what others' programs do is not asked."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_numbers_below_the_normal_ones_are_kept_in_warm_calls() -> None:
    """XLA's threads take them for zero: later calls gave other bits than the first, and on narrow CPUs small halves were lost."""
    f = tilewright.jit(lambda x, h: (x * 0.5, (h != 0).astype(jnp.int32), x.sum()))
    x, h = jnp.full(64, 1e-40, jnp.float32), jnp.full(64, 6e-8, jnp.float16)
    results = [f(x, h) for _ in range(4)]
    assert _served(f) >= 2
    assert all(_bits(r) == _bits(results[0]) for r in results)
    assert np.asarray(results[-1][0])[0] > 0 and np.asarray(results[-1][1]).all()
