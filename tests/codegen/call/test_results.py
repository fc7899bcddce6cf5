"""Results are the caller's: they share no memory with arguments, with each other, or with what a later call writes."""

from __future__ import annotations

import gc
import itertools
import os

import numpy as np
import pytest

import codegen
import hlo
import interp
from tests.threads import exit_code_of, needs_fork

LOOP = """%zero = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %b = %x) : tensor<i32>, V, V cond {
    %c = stablehlo.compare LT, %i, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    stablehlo.return %i, %b, %a : tensor<i32>, V, V
  }
  return %r#1, %r#2 : V, V"""
CASES = {
    "the argument": "return %x, %x : V, V",
    "a value twice": "%e = stablehlo.tanh %x : V\n return %e, %e : V, V",
    "a value reshaped": "%e = stablehlo.tanh %x : V\n %r = stablehlo.reshape %e : (V) -> V\n return %e, %r : V, V",
    "a constant": "%c = stablehlo.constant dense<2.0> : V\n return %c, %c : V, V",
    "a barrier": "%a, %b = stablehlo.optimization_barrier %x, %x : V, V\n return %a, %b : V, V",
    "a loop that is not entered": LOOP,
}


@pytest.mark.parametrize("count", [5, 100_000])
@pytest.mark.parametrize("name", CASES)
def test_results_share_no_memory(name: str, count: int) -> None:
    text = f"func.func @main(%x: V) -> (V, V) {{\n {CASES[name]}\n}}".replace("V", f"tensor<{count}xf32>")
    executable = codegen.compile(hlo.parse(text), threads=2)
    x = np.linspace(-2, 2, count, dtype=np.float32)
    kept = x.copy()
    first, second = executable(x), executable(x)
    want = [a.copy() for a in first]
    for a, b in itertools.combinations([x, *first, *second], 2):
        assert not np.shares_memory(a, b)
    for a in (*first, *second):
        a[...] = 7
    np.testing.assert_array_equal(x, kept)
    third = executable(x)
    for a, b in zip(third, want, strict=True):
        np.testing.assert_array_equal(a, b)
    view, part = third[0][1:3], want[0][1:3]
    del third, first, second
    gc.collect()
    for _ in range(4):
        executable(x + 1)
    np.testing.assert_array_equal(view, part)


PRODUCT = """func.func @main(%x: tensor<200x300xf32>, %w: tensor<300x100xf32>) -> tensor<200x100xf32> {
  %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<200x300xf32>, tensor<300x100xf32>) -> tensor<200x100xf32>
  %t = stablehlo.tanh %p : tensor<200x100xf32>
  return %t : tensor<200x100xf32>
}"""


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_computes_on_its_own_threads() -> None:
    """The child has none of the parent's threads: it starts its own, for the parent's program and for one of its own."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, np.float32) for s in ((200, 300), (300, 100))]
    executable = codegen.compile(hlo.parse(PRODUCT), threads=2)
    (want,) = executable(*arrays)
    child = os.fork()
    if not child:
        code = 1
        try:
            (found,) = executable(*arrays)
            module = hlo.parse(PRODUCT.replace("tanh", "sine"))
            (other,) = codegen.compile(module, threads=2)(*arrays)
            (right,) = interp.evaluate(module, *arrays)
            code = 0 if found.tobytes() == want.tobytes() and np.allclose(other, right, atol=1e-3) else 2
        finally:
            os._exit(code)
    assert exit_code_of(child, 120) == 0
    (found,) = executable(*arrays)
    assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize("shift", [0, 4, 16, 60])
def test_small_arguments_that_are_read_again_may_start_anywhere(shift: int) -> None:
    """A row that is added to a thousand others is copied to where lines begin; the caller's stays as it is."""
    text = """func.func @main(%x: tensor<1000x260xf32>, %b: tensor<260xf32>) -> (tensor<1000x260xf32>, tensor<260xf32>) {
      %0 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<260xf32>) -> tensor<1000x260xf32>
      %1 = stablehlo.add %x, %0 : tensor<1000x260xf32>
      return %1, %b : tensor<1000x260xf32>, tensor<260xf32>
    }"""
    executable = codegen.compile(hlo.parse(text))
    assert [size for _, _, size in executable._layout.copies] == [1040]
    rng = np.random.default_rng(shift)
    x, raw = rng.standard_normal((1000, 260)).astype(np.float32), np.zeros(260 * 4 + 128, np.uint8)
    start = -raw.ctypes.data % 64 + shift
    b = raw[start : start + 1040].view(np.float32)
    b[:] = rng.standard_normal(260)
    for _ in range(3):
        b += 1
        found, same = executable(x, b)
        np.testing.assert_array_equal(found, x + b)
        np.testing.assert_array_equal(same, b)
        assert not np.shares_memory(same, b)
