"""What random programs and situations have found, each as a small program by name."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.call.memory_safety import MemorySafetyWarning
from codegen.launcher import native_threads, run_source
from codegen.native import jit
from tests.threads import needs_fork
from tiling.machine import Machine
from tiling.planning.sizes import takes_turns

CUT_AWAY = {
    "convolution": """func.func @main(%x: tensor<3x1x3x2xi32>, %k: tensor<5x4x2x8xi32>) -> tensor<3x0x0x8xi32> {
      %v = "stablehlo.convolution"(%x, %k) {window_strides = array<i64: 3, 3>, lhs_dilation = array<i64: 1, 1>,
        rhs_dilation = array<i64: 1, 2>, padding = dense<[[-1, -1], [0, 1]]> : tensor<2x2xi64>,
        dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64,
        batch_group_count = 1 : i64} : (tensor<3x1x3x2xi32>, tensor<5x4x2x8xi32>) -> tensor<3x0x0x8xi32>
      return %v : tensor<3x0x0x8xi32>
    }""",
    "reduce_window": """func.func @main(%x: tensor<1x3xi32>, %z: tensor<i32>) -> tensor<0x2xi32> {
      %v = "stablehlo.reduce_window"(%x, %z) ({ ^bb0(%p: tensor<i32>, %q: tensor<i32>):
        %s = stablehlo.add %p, %q : tensor<i32>
        stablehlo.return %s : tensor<i32>
      }) {window_dimensions = array<i64: 1, 2>, padding = dense<[[-1, -1], [0, 0]]> : tensor<2x2xi64>}
        : (tensor<1x3xi32>, tensor<i32>) -> tensor<0x2xi32>
      return %v : tensor<0x2xi32>
    }""",
}


@pytest.mark.parametrize("name", CUT_AWAY)
def test_windows_over_a_dimension_of_which_more_is_cut_off_than_there_is(name: str) -> None:
    """Padding of -1 on both sides of one element: there is no window. The evaluator raised "negative dimensions"."""
    module = hlo.parse(CUT_AWAY[name])
    hlo.verify(module)
    arrays = [np.ones(v.shape, np.int32) for v in module.entry.arguments]
    (wanted,) = interp.evaluate(module, *arrays)
    (found,) = codegen.compile(module)(*arrays)
    assert wanted.shape == found.shape == module.entry.result_types[0].shape  # type: ignore[union-attr]


PLACE = """func.func @main(%x: tensor<3x262xELEMENT>) -> (tensor<3xELEMENT>, tensor<3xi32>) {
  %i = stablehlo.iota dim = 1 : tensor<3x262xi32>
  %l = stablehlo.constant dense<1> : tensor<ELEMENT>
  %m = stablehlo.constant dense<-1> : tensor<i32>
  %r:2 = "stablehlo.reduce"(%x, %i, %l, %m) ({ ^bb0(%a: tensor<ELEMENT>, %p: tensor<i32>, %b: tensor<ELEMENT>, %q: tensor<i32>):
    %0 = stablehlo.compare GT, %a, %b : (tensor<ELEMENT>, tensor<ELEMENT>) -> tensor<i1>
    %1 = stablehlo.compare EQ, %a, %b : (tensor<ELEMENT>, tensor<ELEMENT>) -> tensor<i1>
    %2 = stablehlo.compare LT, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %3 = stablehlo.and %1, %2 : tensor<i1>
    %4 = stablehlo.or %0, %3 : tensor<i1>
    %5 = stablehlo.select %0, %a, %b : tensor<i1>, tensor<ELEMENT>
    %6 = stablehlo.select %4, %p, %q : tensor<i1>, tensor<i32>
    stablehlo.return %5, %6 : tensor<ELEMENT>, tensor<i32>
  }) {dimensions = array<i64: 1>}
    : (tensor<3x262xELEMENT>, tensor<3x262xi32>, tensor<ELEMENT>, tensor<i32>) -> (tensor<3xELEMENT>, tensor<3xi32>)
  return %r#0, %r#1 : tensor<3xELEMENT>, tensor<3xi32>
}"""
COUNTED = """func.func @main(%x: tensor<60x60xf32>) -> (tensor<ELEMENT>, tensor<60x60xf32>) {
  %z = stablehlo.constant dense<0> : tensor<ELEMENT>
  %one = stablehlo.constant dense<1> : tensor<ELEMENT>
  %r:2 = stablehlo.while(%i = %z, %y = %x) : tensor<ELEMENT>, tensor<60x60xf32> cond {
    %t = stablehlo.compare LT, %i, %one : (tensor<ELEMENT>, tensor<ELEMENT>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %b = stablehlo.add %y, %y : tensor<60x60xf32>
    %j = stablehlo.add %i, %one : tensor<ELEMENT>
    stablehlo.return %j, %b : tensor<ELEMENT>, tensor<60x60xf32>
  }
  return %r#0, %r#1 : tensor<ELEMENT>, tensor<60x60xf32>
}"""


@pytest.mark.parametrize("element", ["i4", "ui4", "i2", "ui2"])
@pytest.mark.parametrize("text", [PLACE, COUNTED], ids=["first_greatest", "counter"])
def test_integers_of_less_than_a_byte_have_ends(text: str, element: str) -> None:
    """NumPy's `iinfo` knows none of them: planning ended in "Invalid integer data type 'V'"."""
    module = hlo.parse(text.replace("ELEMENT", element))
    hlo.verify(module)
    (v,) = module.entry.arguments
    x = np.random.default_rng(0).integers(0, 2, v.shape).astype(v.tensor.element.dtype)
    executable = codegen.compile(module)
    assert executable.fallbacks == []
    for found, wanted in zip(executable(x), interp.evaluate(module, x), strict=True):
        assert found.dtype == wanted.dtype and np.array_equal(found, wanted)


LARGE = """func.func @main(%x: tensor<400x400xf32>, %y: tensor<400x400xf32>) -> tensor<400x400xf32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
    : (tensor<400x400xf32>, tensor<400x400xf32>) -> tensor<400x400xf32>
  return %0 : tensor<400x400xf32>
}"""


def ends(work: Callable[[], None]) -> None:
    """Runs in a thread of its own, which may hang, and raises what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as e:
            raised.append(e)
            raise

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it hangs"
    assert not raised, raised[0]


def test_a_handler_calls_in_the_middle_of_the_first_call_that_makes_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's handler ran while the first parallel call held the lock of the workers that it was making."""
    exe = codegen.compile(hlo.parse(LARGE), threads=2)
    x = np.ones((400, 400), np.float32)
    inner: list[float] = []

    class Interrupted(native_threads.Pool):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)
            if len(made) == 1:
                inner.append(float(exe(x, x)[0][0, 0]))

    made: list[native_threads.Pool] = []
    monkeypatch.setattr(native_threads, "Pool", Interrupted)
    monkeypatch.setattr(native_threads, "_pool", None)
    outer: list[float] = []
    ends(lambda: outer.append(float(exe(x, x)[0][0, 0])))
    assert outer == inner == [400.0]
    assert native_threads.get_pool() is made[1]
    made[1].stop()


def test_calls_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first parallel call compiled the workers' code: in a signal's handler, while numba was being imported, it failed."""
    for name in ("_pool", "_runner", "_worker", "_owner"):
        monkeypatch.setattr(native_threads, name, None)
    monkeypatch.setattr(native_threads, "default_threads", lambda: 2)
    exe = codegen.compile(hlo.parse(LARGE), threads=2)

    def refused(*given: Any) -> Any:
        raise AssertionError("a call compiles")

    monkeypatch.setattr(native_threads, "compile_kernel", refused)
    x = np.ones((400, 400), np.float32)
    assert exe(x, x)[0][0, 0] == 400
    native_threads.get_pool().stop()


def test_a_handler_compiles_what_is_being_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    signature = native_threads.NO_BUFFERS
    obtain = jit._obtain
    inner: list[int] = []

    def interrupted(*given: Any) -> Any:
        if not inner:
            inner.append(0)
            inner[0] = jit.compile_kernel(run_source.WORKER_SOURCE, signature).entry
        return obtain(*given)

    monkeypatch.setattr(jit, "_obtain", interrupted)
    monkeypatch.setattr(jit, "_kernels", {})
    ends(lambda: inner.append(jit.compile_kernel(run_source.WORKER_SOURCE, signature).entry))
    assert len(inner) == 2 and all(inner)


HANDED_ON = """func.func @main(%x: tensor<1612xi8>) -> tensor<1612xi8> {
  %start = stablehlo.add %x, %x : tensor<1612xi8>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %start, %b = %start) : tensor<i32>, tensor<1612xi8>, tensor<1612xi8> cond {
    %t = stablehlo.compare LT, %i, %two, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %part = stablehlo.constant dense<1> : tensor<17xi8>
    %0 = stablehlo.dynamic_update_slice %b, %part, %one : (tensor<1612xi8>, tensor<17xi8>, tensor<i32>) -> tensor<1612xi8>
    %1 = stablehlo.negate %0 : tensor<1612xi8>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %0, %1 : tensor<i32>, tensor<1612xi8>, tensor<1612xi8>
  }
  return %r#1 : tensor<1612xi8>
}"""


def test_a_result_that_a_loop_only_copies_to_need_not_be_aligned() -> None:
    """Copies that no kernel makes were declared as scratch, 64 bytes aligned; results are not: a segmentation fault."""
    module = hlo.parse(HANDED_ON)
    exe = codegen.compile(module, threads=1)
    (loop,) = [p for k in exe.kernels for p in [k.compiled.signature.params] if len(p) == 5]
    assert max(p.align for p in loop) <= 4
    x = np.arange(1612).astype(np.int8)
    (wanted,) = interp.evaluate(module, x)
    for found in [exe(x)[0] for _ in range(20)]:
        assert np.array_equal(found, wanted)


PRODUCT = """func.func @main(%x: tensor<1x6x28x1xui16>, %y: tensor<3x17x6xui16>) -> tensor<1x28x1x3x17xui16> {
  %0 = "stablehlo.dot_general"(%x, %y) {dot_dimension_numbers =
    #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [2]>}
    : (tensor<1x6x28x1xui16>, tensor<3x17x6xui16>) -> tensor<1x28x1x3x17xui16>
  return %0 : tensor<1x28x1x3x17xui16>
}"""
BACKWARDS = """func.func @main(%x: tensor<33x40x3xbf16>) -> tensor<33x40x3xbf16> {
  %z = stablehlo.constant dense<0.0> : tensor<bf16>
  %0 = "stablehlo.reduce_window"(%x, %z) ({ ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
    %s = stablehlo.add %a, %b : tensor<bf16>
    stablehlo.return %s : tensor<bf16>
  }) {window_dimensions = array<i64: 1, 40, 1>, padding = dense<[[0, 0], [0, 39], [0, 0]]> : tensor<3x2xi64>}
    : (tensor<33x40x3xbf16>, tensor<bf16>) -> tensor<33x40x3xbf16>
  return %0 : tensor<33x40x3xbf16>
}"""
NOTHING = """func.func @main(%x: tensor<0x4x8x50xi8>, %y: tensor<16x8x50x0xi8>) -> tensor<4x16xi16> {
  %0 = "stablehlo.dot_general"(%x, %y) {dot_dimension_numbers =
    #stablehlo.dot<lhs_contracting_dimensions = [0, 2, 3], rhs_contracting_dimensions = [3, 1, 2]>}
    : (tensor<0x4x8x50xi8>, tensor<16x8x50x0xi8>) -> tensor<4x16xi16>
  return %0 : tensor<4x16xi16>
}"""
EMPTY = """func.func @main(%x: tensor<31x13x0xui16>, %y: tensor<13x31x0xui16>) -> tensor<13xui32> {
  %0 = "stablehlo.dot_general"(%x, %y) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [1],
    rhs_batching_dimensions = [0], lhs_contracting_dimensions = [0, 2], rhs_contracting_dimensions = [1, 2]>}
    : (tensor<31x13x0xui16>, tensor<13x31x0xui16>) -> tensor<13xui32>
  return %0 : tensor<13xui32>
}"""
PLANS = {
    # Rows of two dimensions in scratch whose rows are padded and whose columns come first: the address was not told apart.
    "product_of_two_row_dimensions": PRODUCT,
    # The f32 scratch of a sum that runs backwards began where the sum does, and had one element: 39 were written before it.
    "bf16_sum_that_runs_backwards": BACKWARDS,
    # Depths of 0, 8 and 50: a division by zero while the product was planned.
    "product_over_nothing": NOTHING,
    # An empty operand was turned in registers: 806 bytes were read of an array that has none.
    "empty_operand_across_its_rows": EMPTY,
}


@pytest.mark.parametrize("name", PLANS)
def test_no_plan_is_refuted(name: str) -> None:
    module = hlo.parse(PLANS[name])
    hlo.verify(module)
    machine = Machine(cores=8, vector_bytes=64, vector_registers=32, l1_bytes=5 << 10, l2_bytes=37 << 10, l3_bytes=999 << 10)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 3, v.shape).astype(v.tensor.element.dtype) for v in module.entry.arguments]
    with warnings.catch_warnings():
        warnings.simplefilter("error", MemorySafetyWarning)
        executable = codegen.compile(tiling.plan(module, "main", machine, codegen.supports), threads=2)
    assert executable.fallbacks == []
    for found, wanted in zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True):
        assert found.dtype == wanted.dtype and np.array_equal(found, wanted)


FORK_BESIDE_A_COMPILE = """
import os, threading, time
from codegen.forks import compiling
import logging

begun = threading.Event()

def work():
    with compiling:
        begun.set()
        time.sleep(0.3)
        logging.getLogger("numba asks for its logger while it is imported")

thread = threading.Thread(target=work, daemon=True)
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
thread.join(10)
print("ended" if not thread.is_alive() else "hangs")
"""


@needs_fork
def test_a_fork_beside_a_compile_that_logs() -> None:
    """The fork held logging's lock, waited for the compile, and the compile, which imported numba, waited for logging's lock."""
    command = [sys.executable, "-W", "ignore", "-c", FORK_BESIDE_A_COMPILE]
    done = subprocess.run(command, timeout=30, capture_output=True, text=True, check=True)
    assert done.stdout == "ended\n"


GATHERS = {
    "an element of one": """func.func @main(%x: tensor<1xi32>) -> tensor<i32> {
      %v = "stablehlo.gather"(%x, %x) {dimension_numbers = #stablehlo.gather<offset_dims = [], collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 0>, slice_sizes = array<i64: 1>, indices_are_sorted = false}
        : (tensor<1xi32>, tensor<1xi32>) -> tensor<i32>
      return %v : tensor<i32>
    }""",
    "pairs of rows": """func.func @main(%x: tensor<5000x1xi32>) -> tensor<5000x2xi32> {
      %v = "stablehlo.gather"(%x, %x) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [1],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 2, 1>, indices_are_sorted = false}
        : (tensor<5000x1xi32>, tensor<5000x1xi32>) -> tensor<5000x2xi32>
      return %v : tensor<5000x2xi32>
    }""",
}


@pytest.mark.parametrize("name", GATHERS)
def test_operand_and_places_of_one_type_are_no_columns_side_by_side(name: str) -> None:
    """Two operands of one type and a result of their rows: a gather looks like a concatenation of columns."""
    module = hlo.parse(GATHERS[name])
    assert not any(takes_turns(op) for op in module.function().body.ops)
    shape = module.function().body.arguments[0].tensor.shape
    x = np.arange(-3, np.prod(shape) - 3, dtype=np.int32).reshape(shape)
    np.testing.assert_array_equal(codegen.compile(module)(x)[0], interp.evaluate(module, x)[0])
