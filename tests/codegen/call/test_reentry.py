"""Calls inside calls: finalizers that the collector runs, and other threads, in the middle of a call of the same program."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

import codegen
import hlo
from codegen.call import quick
from tests.threads import in_threads

SUM = """func.func @main(%x: tensor<{n}xf32>, %y: tensor<{n}xf32>) -> (tensor<{n}xf32>, tensor<{n}xf32>) {{
  %0 = stablehlo.add %x, %y : tensor<{n}xf32>
  %1 = stablehlo.subtract %x, %y : tensor<{n}xf32>
  return %0, %1 : tensor<{n}xf32>, tensor<{n}xf32>
}}"""
SMALL, LARGE = 4, 40_000


def made(n: int) -> codegen.Executable:
    return codegen.compile(hlo.parse(SUM.format(n=n)))


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """The collector runs at every few allocations."""
    before = gc.get_threshold()
    gc.set_threshold(5)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.collect()


@pytest.mark.parametrize("way", ["native", "prepared tables", "thorough"])
def test_a_finalizer_calls_the_same_program(way: str, monkeypatch: pytest.MonkeyPatch, eager_collector: None) -> None:
    if way == "prepared tables":
        monkeypatch.setattr(quick, "is_available", lambda: False)
    n = LARGE if way == "thorough" else SMALL
    exe = made(n)
    assert (exe._quick is None) == (way == "thorough")
    one, ten = np.ones(n, np.float32), np.full(n, 10, np.float32)
    inner: list[tuple[float, float]] = []

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            a, b = exe(ten, one)
            inner.append((float(a[0]), float(b[-1])))

    kept = []  # tuples that are kept empty Python's list of free ones: the next is allocated, and allocating collects
    for k in range(100 if n == LARGE else 1000):
        gc.set_threshold(2 + k % 7)  # each allocation of a call has its turn
        Cycle()
        kept.append(exe(one, one))
    gc.collect()
    assert {(float(a[0]), float(b[-1])) for a, b in kept} == {(2.0, 0.0)}
    assert set(inner) == {(11.0, 9.0)} and len(inner) == len(kept)


def test_two_threads_and_a_finalizer_that_sleeps(eager_collector: None) -> None:
    exe = made(SMALL)
    wrong: list[int] = []

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            time.sleep(1e-5)  # lets the other thread in

    def work(seed: int) -> None:
        x = np.full(SMALL, seed, np.float32)
        kept = []
        for k in range(1500):
            gc.set_threshold(2 + k % 7)
            Cycle()
            kept.append(exe(x, x))
        wrong.extend(seed for a, b in kept if a[0] != 2 * seed or b[0])

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        in_threads(work, 3)
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_an_argument_that_changes_while_results_are_made_is_seen(eager_collector: None) -> None:
    """What is checked before a finalizer runs is not what the kernels get: the check comes after it."""
    exe = made(SMALL)
    y = np.ones(SMALL, np.float32)
    assert exe._short is not None

    class Cycle:
        def __init__(self, held: np.ndarray) -> None:
            self.me, self.held = self, held

        def __del__(self) -> None:
            self.held.resize(2, refcheck=False)

    kept = []
    in_the_call: list[bool] = []
    for k in range(700):
        gc.set_threshold(2 + k % 7)
        x = np.ones(SMALL, np.float32)
        Cycle(x)
        whole = len(x) == SMALL
        results = exe._short(x, y)
        if whole and len(x) != SMALL:
            in_the_call.append(results is None)
        kept.append(results)
    assert in_the_call and all(in_the_call)
