"""Small calls in native code: right results, fresh arrays, nothing leaked, and anything unusual left to the thorough call."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
from codegen.call import direct, executable
from codegen.call.executable import ArgumentError
from tests.threads import in_threads

PROGRAM = hlo.parse("""func.func @main(%x: tensor<4x16xf32>, %s: tensor<f32>) -> (tensor<4x16xf32>, tensor<16xf32>) {
  %b = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<4x16xf32>
  %0 = stablehlo.multiply %x, %b : tensor<4x16xf32>
  %1 = stablehlo.abs %0 : tensor<4x16xf32>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.reduce(%1 init: %c) applies stablehlo.add across dimensions = [0]
    : (tensor<4x16xf32>, tensor<f32>) -> tensor<16xf32>
  return %1, %2 : tensor<4x16xf32>, tensor<16xf32>
}""")

pytestmark = pytest.mark.skipif(not direct.is_available(), reason="this interpreter or NumPy is laid out in another way")


@pytest.fixture(scope="module")
def exe() -> codegen.Executable:
    made = codegen.compile(PROGRAM)
    assert made._quick is not None and made._quick.direct is not None
    return made


def arrays(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((4, 16), np.float32), np.array(rng.standard_normal(), np.float32)


def agrees(results: tuple[np.ndarray, ...], given: tuple[Any, ...]) -> None:
    for a, b in zip(results, interp.evaluate(PROGRAM, *given), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_results_are_right_and_fresh(exe: codegen.Executable) -> None:
    first = exe(*arrays(1))
    kept = [a.copy() for a in first]
    second = exe(*arrays(2))
    agrees(second, arrays(2))
    for a, b, c in zip(first, kept, second, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.flags.owndata and a.flags.writeable and not np.shares_memory(a, c)


def test_the_native_call_takes_what_it_knows(exe: codegen.Executable) -> None:
    assert exe._short is not None
    results = exe._short(*arrays())
    assert results is not None
    agrees(results, arrays())


class Sub(np.ndarray):
    pass


X, S = arrays()
UNUSUAL = {
    "a list": (X.tolist(), S),
    "another type": (X.astype(np.float64), S),
    "another byte order": (X.astype(">f4"), S),
    "another shape": (X.reshape(16, 4), S),
    "another rank": (X.reshape(-1), S),
    "too few": (X,),
    "too many": (X, S, S),
    "nothing": (),
    "a number": (X, 2.0),
    "None": (None, S),
    "columns first": (np.asfortranarray(X), S),
    "every second": (np.repeat(X, 2, axis=1)[:, ::2], S),
    "misaligned": (np.frombuffer(b"x" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 16), S),
    "a subclass": (X.view(Sub), S),
    "read only": (np.frombuffer(X.tobytes(), np.float32).reshape(4, 16), S),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_is_taken_or_refused_by_the_thorough_call(exe: codegen.Executable, name: str) -> None:
    given = UNUSUAL[name]
    try:
        results = exe(*given)
    except ArgumentError:
        return
    agrees(results, tuple(np.asarray(a, np.float32) for a in given))


@pytest.mark.parametrize(
    "name", ["a list", "another type", "another shape", "another rank", "columns first", "misaligned", "None"]
)
def test_the_native_call_leaves_it_alone(exe: codegen.Executable, name: str) -> None:
    assert exe._short is not None
    assert exe._short(*UNUSUAL[name]) is None


def test_nothing_is_leaked(exe: codegen.Executable) -> None:
    x, s = arrays()
    counted = [x, s, None, x.dtype, np.ndarray]

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(o) for o in counted]

    exe(x, s)
    before = counts()
    for _ in range(2000):
        results = exe(x, s)
        held = sys.getrefcount(results[0])  # by the tuple, and by the call
        assert held == 2
        del results
        assert exe._short is not None and exe._short(x) is None
    after = counts()
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True)), (before, after)


def test_it_outlives_what_it_was_made_from() -> None:
    call = codegen.compile(PROGRAM)
    for _ in range(3):
        gc.collect()
        agrees(call(*arrays()), arrays())


def test_several_threads_at_once(exe: codegen.Executable) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        given = arrays(seed)
        want = exe(*given)
        for _ in range(300):
            if any(not np.array_equal(a, b) for a, b in zip(exe(*given), want, strict=True)):
                wrong.append(seed)

    in_threads(work, 6)
    assert not wrong
    agrees(exe(*arrays(5)), arrays(5))


def test_without_it_the_prepared_tables_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from codegen.call import quick

    monkeypatch.setattr(quick, "is_available", lambda: False)
    made = codegen.compile(PROGRAM)
    assert made._quick is not None and made._quick.direct is None
    agrees(made(*arrays()), arrays())
    with pytest.raises(ArgumentError):
        made(arrays()[0])


def test_prepared_tables_stay_after_an_unusual_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    from codegen.call import quick

    monkeypatch.setattr(quick, "is_available", lambda: False)
    made = codegen.compile(PROGRAM)
    assert made._quick is not None
    agrees(made(*arrays()), arrays())
    ((_, kept),) = made._quick._runs
    x, s = arrays()
    agrees(made(np.asfortranarray(x), s), (x, s))
    assert [run for _, run in made._quick._runs] == [kept]


DISTANCES = hlo.parse("""func.func @main(%x: tensor<64x8xf32>) -> tensor<64x64xf32> {
  %a = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<64x8xf32>) -> tensor<64x64x8xf32>
  %b = stablehlo.broadcast_in_dim %x, dims = [1, 2] : (tensor<64x8xf32>) -> tensor<64x64x8xf32>
  %c = stablehlo.subtract %a, %b : tensor<64x64x8xf32>
  %d = stablehlo.abs %c : tensor<64x64x8xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%d init: %z) applies stablehlo.add across dimensions = [2]
    : (tensor<64x64x8xf32>, tensor<f32>) -> tensor<64x64xf32>
  return %s : tensor<64x64xf32>
}""")


@pytest.mark.machine("avx512")
@pytest.mark.parametrize(("seconds", "threads", "is_quick"), [
    (1.5e-5, 1, True), (1.5e-5, 2, True), (1.5e-5, 64, False), (9e-5, 1, True), (9e-5, 2, False), (2e-4, 1, False),
])  # fmt: skip
def test_tasks_that_threads_might_share(seconds: float, threads: int, is_quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All took the thorough call, which costs 10 µs, also where a call may use one thread alone or others save less than that."""
    monkeypatch.setattr(executable, "seconds_of", lambda fusion: seconds)
    made = codegen.compile(DISTANCES, threads=threads)
    assert made._launch.parallel and (made._quick is not None) == is_quick
    if threads <= 2:
        x = np.random.default_rng(3).standard_normal((64, 8), np.float32)
        np.testing.assert_allclose(made(x)[0], interp.evaluate(DISTANCES, x)[0], rtol=1e-5)
