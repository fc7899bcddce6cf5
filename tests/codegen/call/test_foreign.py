"""Functions of the caller's inside a program: what they get is theirs to keep and to write, and what they return stays theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
from hlo.foreign import borrows

TEXT = """func.func @main(%x: tensor<{n}xf32>) -> (tensor<{n}xf32>, tensor<{n}xf32>) {{
  %0 = stablehlo.add %x, %x : tensor<{n}xf32>
  %1 = stablehlo.custom_call @foo(%x, %0) : (tensor<{n}xf32>, tensor<{n}xf32>) -> tensor<{n}xf32>
  %2 = stablehlo.multiply %1, %0 : tensor<{n}xf32>
  return %1, %2 : tensor<{n}xf32>, tensor<{n}xf32>
}}"""
# A shape that is known only at run time: the evaluator runs the whole program.
DYNAMIC = """func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %1 = stablehlo.custom_call @foo(%x, %x) : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %2 = stablehlo.add %1, %x : tensor<?xf32>
  return %1, %2 : tensor<?xf32>, tensor<?xf32>
}"""
Run = Callable[..., tuple[Any, ...]]


def by_evaluator(text: str, foo: Any) -> Run:
    module = hlo.parse(text)
    return lambda *arrays: interp.evaluate(module, *arrays, custom_calls={"foo": foo})


def by_processes(text: str, foo: Any) -> Run:
    module = hlo.parse(text)
    return lambda *arrays: interp.run_parallel(module, [["main"]], *arrays, custom_calls={"foo": foo})


def compiled(text: str, foo: Any) -> Run:
    return codegen.compile(hlo.parse(text), custom_calls={"foo": foo})


WAYS = {"evaluator": by_evaluator, "processes": by_processes, "compiled": compiled}
PROGRAMS = {"static": TEXT.format(n=4), "dynamic": DYNAMIC}
ways = pytest.mark.parametrize("way", WAYS)
programs = pytest.mark.parametrize("program", PROGRAMS)


@ways
@programs
def test_a_function_that_writes_changes_nothing(way: str, program: str) -> None:
    def foo(op: hlo.Op, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found = x + 1
        x[...], y[...] = -1, -1
        return found

    x = np.arange(4, dtype=np.float32)
    first, second = WAYS[way](PROGRAMS[program], foo)(x)
    assert x.tolist() == [0, 1, 2, 3] and first.tolist() == [1, 2, 3, 4]
    assert second.tolist() == ((x + 1) * 2 * x if program == "static" else 2 * x + 1).tolist()


@ways
@programs
def test_read_only_arguments_stay_so(way: str, program: str) -> None:
    def foo(op: hlo.Op, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x.flags.writeable = True
        x[...] = -1
        return x

    x = np.frombuffer(np.arange(4, dtype=np.float32).tobytes(), np.float32)
    first, _ = WAYS[way](PROGRAMS[program], foo)(x)
    assert x.tolist() == [0, 1, 2, 3] and first.tolist() == [-1] * 4


@ways
@programs
def test_what_is_kept_stays(way: str, program: str) -> None:
    kept: list[np.ndarray] = []

    def foo(op: hlo.Op, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        kept.extend((x, y))
        return x

    run = WAYS[way](PROGRAMS[program], foo)
    for k in range(3):
        x = np.full(4, k, np.float32)
        results = run(x)
        x[...] = -1  # the caller goes on with its own arrays
        for r in results:
            r[...] = -2
    factor = 2 if program == "static" else 1
    assert [a.tolist() for a in kept] == [[value] * 4 for k in range(3) for value in (k, factor * k)]


@ways
@programs
def test_a_result_that_the_function_keeps_is_not_the_callers(way: str, program: str) -> None:
    state = np.zeros(4, np.float32)

    def foo(op: hlo.Op, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        state[...] += 1
        return state

    run = WAYS[way](PROGRAMS[program], foo)
    first, _ = run(np.ones(4, np.float32))
    second, _ = run(np.ones(4, np.float32))
    assert first.tolist() == [1] * 4 and second.tolist() == [2] * 4
    second[...] = 9
    assert state.tolist() == [2] * 4


@ways
@programs
def test_a_function_that_borrows_gets_views_that_it_cannot_write(way: str, program: str) -> None:
    @borrows
    def foo(op: hlo.Op, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with pytest.raises(ValueError, match="read-only"):
            x[...] = -1
        return x + y

    x = np.ones(4, np.float32)
    assert WAYS[way](PROGRAMS[program], foo)(x)[0].tolist() == [3 if program == "static" else 2] * 4


def test_a_loop_calls_a_function_that_keeps() -> None:
    text = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %n = stablehlo.constant dense<0> : tensor<i32>
      %end = stablehlo.constant dense<4> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = stablehlo.while(%i = %n, %v = %x) : tensor<i32>, tensor<3xf32>
      cond {
        %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %j = stablehlo.add %i, %one : tensor<i32>
        stablehlo.custom_call @keep(%v) {has_side_effect = true} : (tensor<3xf32>) -> ()
        %w = stablehlo.add %v, %v : tensor<3xf32>
        stablehlo.return %j, %w : tensor<i32>, tensor<3xf32>
      }
      return %r#1 : tensor<3xf32>
    }"""
    kept: list[np.ndarray] = []
    exe = codegen.compile(hlo.parse(text), custom_calls={"keep": lambda op, v: kept.append(v)})
    assert exe(np.ones(3, np.float32))[0].tolist() == [16] * 3
    assert [a.tolist() for a in kept] == [[1] * 3, [2] * 3, [4] * 3, [8] * 3]  # once each: no results are none, too


def test_a_function_whose_results_do_not_fit_is_called_once() -> None:
    calls: list[int] = []

    def foo(op: hlo.Op, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        calls.append(1)
        return x[:2]

    with pytest.raises(interp.ExecutionError, match=r"expected a result of type tensor<4xf32>, found shape \[2\]"):
        compiled(TEXT.format(n=4), foo)(np.ones(4, np.float32))
    assert calls == [1]


def test_a_trace_may_keep_its_arrays_and_cannot_write_them() -> None:
    events: list[interp.TraceEvent] = []

    def trace(event: interp.TraceEvent) -> None:
        events.append(event)
        for a in (*event.inputs, *event.outputs):
            with pytest.raises(ValueError, match="read-only"):
                a[...] = -1

    x = np.ones(4, np.float32)
    first, _ = interp.evaluate(hlo.parse(TEXT.format(n=4)), x, custom_calls={"foo": lambda op, x, y: x}, trace=trace)
    x[...] = -1
    first[...] = -2
    assert [a.tolist() for e in events[:2] for a in e.inputs] == [[1] * 4, [1] * 4, [1] * 4, [2] * 4]
    assert events[1].outputs[0].tolist() == [1] * 4
