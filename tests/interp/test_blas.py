"""Products: forks beside them (OpenBLAS alone would hang there for ever), their threads, the type of their sums."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlo
from hlo import blas
from interp import evaluate
from interp.rules import contraction, convolution
from tests.threads import needs_fork

BESIDE_A_FORK = """
import os, threading, time, warnings
import numpy as np
import hlo, interp

warnings.simplefilter("ignore")
program = hlo.parse("HloModule m\\nENTRY e { x = f32[300,300] parameter(0) ROOT r = f32[300,300] dot(x, x), "
                    "lhs_contracting_dims={1}, rhs_contracting_dims={0} }")
x = np.ones((300, 300), np.float32)
calls = 0

def work():
    global calls
    while True:
        interp.evaluate(program, x)
        calls += 1

threading.Thread(target=work, daemon=True).start()
while calls < 2:
    time.sleep(0.001)
for _ in range(10):
    child = os.fork()
    if child == 0:
        interp.evaluate(program, x)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
before = calls
while calls < before + 2:
    time.sleep(0.001)
print("done", flush=True)
os._exit(0)
"""


@needs_fork
def test_a_fork_waits_for_products_and_they_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", BESIDE_A_FORK], capture_output=True, text=True, timeout=60)
    assert done.stdout == "done\n", done.stderr


PRODUCT = hlo.parse(
    "HloModule m\nENTRY e { x = f32[40,40] parameter(0) ROOT r = f32[40,40] dot(x, x), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={0} }"
)
WINDOW = hlo.parse(
    "HloModule m\nENTRY e { x = f32[1,8,8,40] parameter(0) k = f32[3,3,40,4] parameter(1) "
    "ROOT r = f32[1,6,6,4] convolution(x, k), window={size=3x3}, dim_labels=b01f_01io->b01f }"
)


@pytest.fixture
def numbers() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((40, 40), dtype=np.float32)


def test_products_on_one_thread_leave_the_number_of_threads_as_it_was(
    numbers: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    monkeypatch.setattr(blas, "_thread_count", lambda: (lambda: 3, found.append))
    evaluate(PRODUCT, numbers)
    assert not found, "products are limited only where that is asked for"
    with blas.on_one_thread(), blas.on_one_thread():
        evaluate(PRODUCT, numbers)
        assert found == [1, 3]
        with pytest.raises(ValueError, match="matmul"):
            blas.matmul(numbers, numbers[:3])
    assert found == [1, 3, 1, 3], "also after an error"
    evaluate(PRODUCT, numbers)
    assert found == [1, 3, 1, 3]


def test_numpys_openblas_is_told_how_many_threads_to_take() -> None:
    config: Any = np.show_config(mode="dicts")
    if "openblas" not in config["Build Dependencies"]["blas"]["name"]:
        pytest.skip("NumPy has another BLAS here")
    limits = blas._thread_count()
    assert limits is not None
    count, set_count = limits
    before = count()
    try:
        set_count(1)
        assert count() == 1
    finally:
        set_count(before)
    assert count() == before >= 1


def _types_of(module: hlo.Module, arrays: list[Any], monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Any, set[str]]:
    found: set[str] = set()

    def spy(real: Callable[..., Any]) -> Callable[..., Any]:
        def product(a: Any, b: Any) -> Any:
            found.update((a.dtype.name, b.dtype.name))
            return real(a, b)

        return product

    with monkeypatch.context() as patch:
        for place in (contraction, convolution):
            patch.setattr(place, "matmul", spy(blas.matmul))
        (result,) = evaluate(module, *arrays, **options)
    return result, found


def test_sums_need_not_be_wide(numbers: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    image, kernel = numbers.ravel()[:8 * 8 * 5].repeat(8).reshape(1, 8, 8, 40), numbers.ravel()[:1440].reshape(3, 3, 40, 4)
    for module, arrays in ((PRODUCT, [numbers]), (WINDOW, [image, kernel])):
        exact, wide = _types_of(module, arrays, monkeypatch)
        quick, narrow = _types_of(module, arrays, monkeypatch, wide=False)
        assert (wide, narrow) == ({"float64"}, {"float32"})
        np.testing.assert_allclose(quick, exact, rtol=1e-4, atol=1e-4)
