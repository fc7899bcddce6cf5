"""Iterations that take turns: interleaving, repetition, interior padding and thin transposes, whole turns and what is left."""

from __future__ import annotations

import re

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling

INTERLEAVE = """func.func @main(%x: tensor<{m}x{n}xf32>, %y: tensor<{m}x{n}xf32>) -> tensor<{m}x{w}xf32> {{
  %a = stablehlo.reshape %x : (tensor<{m}x{n}xf32>) -> tensor<{m}x{n}x1xf32>
  %b = stablehlo.reshape %y : (tensor<{m}x{n}xf32>) -> tensor<{m}x{n}x1xf32>
  %c = stablehlo.concatenate %a, %b, dim = 2 : (tensor<{m}x{n}x1xf32>, tensor<{m}x{n}x1xf32>) -> tensor<{m}x{n}x2xf32>
  %r = stablehlo.reshape %c : (tensor<{m}x{n}x2xf32>) -> tensor<{m}x{w}xf32>
  return %r : tensor<{m}x{w}xf32>
}}"""
PAD = """func.func @main(%x: tensor<{m}x{n}xf32>) -> tensor<{a}x{b}xf32> {{
  %z = stablehlo.constant dense<-1.5> : tensor<f32>
  %r = stablehlo.pad %x, %z, low = [{l}, {k}], high = [0, {h}], interior = [{i}, {j}]
    : (tensor<{m}x{n}xf32>, tensor<f32>) -> tensor<{a}x{b}xf32>
  return %r : tensor<{a}x{b}xf32>
}}"""
REPEAT = """func.func @main(%x: tensor<{m}x{n}xf32>) -> tensor<{m}x{w}xf32> {{
  %b = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<{m}x{n}xf32>) -> tensor<{m}x{n}x{k}xf32>
  %r = stablehlo.reshape %b : (tensor<{m}x{n}x{k}xf32>) -> tensor<{m}x{w}xf32>
  return %r : tensor<{m}x{w}xf32>
}}"""
TURN = """func.func @main(%x: tensor<{m}x{n}xf32>) -> tensor<{n}x{m}xf32> {{
  %r = stablehlo.transpose %x, dims = [1, 0] : (tensor<{m}x{n}xf32>) -> tensor<{n}x{m}xf32>
  return %r : tensor<{n}x{m}xf32>
}}"""


def check(text: str, *shapes: tuple[int, ...]) -> str:
    """The source, once its results are the evaluator's and its schedules are proved."""
    module = hlo.parse(text)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, np.float32) for s in shapes]
    executable = codegen.compile(module)
    assert not executable.fallbacks
    np.testing.assert_array_equal(executable(*arrays)[0], interp.evaluate(module, *arrays)[0])
    assert tiling.prove(executable.plan).refuted == ()
    return executable.source


@pytest.mark.parametrize(("m", "n"), [(5, 7), (64, 33), (3, 500)])
def test_interleaving_asks_nothing(m: int, n: int) -> None:
    source = check(INTERLEAVE.format(m=m, n=n, w=2 * n), (m, n), (m, n))
    assert "if " not in source and "% 2" not in source and "// 2" not in source


@pytest.mark.parametrize(("low", "high", "across", "along"),
    [(0, 0, 0, 1), (1, 3, 0, 1), (0, -2, 2, 2), (3, 1, 1, 3), (-1, 0, 0, 5)])
def test_interior_padding(low: int, high: int, across: int, along: int) -> None:
    m, n = 9, 41
    a, b = m + (m - 1) * across, n + (n - 1) * along + low + high
    check(PAD.format(m=m, n=n, a=a, b=b, l=0, k=low, h=high, i=across, j=along), (m, n))


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_repetition(k: int) -> None:
    check(REPEAT.format(m=6, n=35, k=k, w=35 * k), (6, 35))


@pytest.mark.parametrize(("m", "n"), [(3000, 2), (2, 3001), (3000, 4), (3, 3001), (5, 3000), (3001, 7)])
def test_thin_transposes(m: int, n: int) -> None:
    check(TURN.format(m=m, n=n), (m, n))


SPLIT = """func.func @main(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64x2xf32> {
  %0 = stablehlo.sqrt %x : tensor<64xf32>
  %1 = stablehlo.multiply %0, %y : tensor<64xf32>
  %2 = stablehlo.reshape %0 : (tensor<64xf32>) -> tensor<64x1xf32>
  %3 = stablehlo.reshape %1 : (tensor<64xf32>) -> tensor<64x1xf32>
  %4 = stablehlo.concatenate %2, %3, dim = 1 : (tensor<64x1xf32>, tensor<64x1xf32>) -> tensor<64x2xf32>
  return %4 : tensor<64x2xf32>
}"""


def test_what_turns_compute_alike_is_computed_once() -> None:
    assert check(SPLIT, (64,), (64,)).count("sqrt(") == 1


LONG = """func.func @main(%k: tensor<2xui64>) -> {result} {{
  %a, %b = stablehlo.rng_bit_generator %k, algorithm = PHILOX : (tensor<2xui64>) -> (tensor<2xui64>, tensor<12288xui32>)
  %c = stablehlo.constant dense<9> : tensor<12288xui32>
  %z = stablehlo.constant dense<0> : tensor<ui32>
  %s = stablehlo.shift_right_logical %b, %c : tensor<12288xui32>
{body}
}}"""
FOLDED = """
  %m = stablehlo.reshape %s : (tensor<12288xui32>) -> tensor<4096x3xui32>
  %r = stablehlo.reduce(%m init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<4096x3xui32>, tensor<ui32>) -> tensor<4096xui32>
  return %r : tensor<4096xui32>"""


def _computed_from(ops: int) -> str:
    lines = ["  %v0 = stablehlo.xor %s, %c : tensor<12288xui32>"]
    lines += [f"  %v{k + 1} = stablehlo.{('multiply', 'add')[k % 2]} %v{k}, %s : tensor<12288xui32>" for k in range(ops)]
    return "\n".join([*lines, f"  return %v{ops} : tensor<12288xui32>"])


@pytest.mark.parametrize(
    ("result", "body"), [("tensor<12288xui32>", _computed_from(5)), ("tensor<12288xui32>", _computed_from(40)),
                         ("tensor<4096xui32>", FOLDED)], ids=["a little", "much", "a fold"],
)  # fmt: skip
def test_what_is_computed_from_turns_asks_nothing(result: str, body: str) -> None:
    module = hlo.parse(LONG.format(result=result, body=body))
    key = np.array([7, 9], np.uint64)
    executable = codegen.compile(module)
    np.testing.assert_array_equal(executable(key)[0], interp.evaluate(module, key)[0])
    assert tiling.prove(executable.plan).refuted == ()
    assert "% 4" not in executable.source


def test_turns_that_follow_one_another_are_one_loop() -> None:
    """Two numbers of each row, each between two others: a loop of two turns around them was left."""
    source = check(PAD.format(m=100, n=2, a=100, b=6, l=0, k=1, h=1, i=0, j=2), (100, 2))
    assert re.findall(r"for i\d+ in range\((\d+)\)", source) == ["200"], source


LOOKED_UP = """func.func @main(%t: tensor<50x{n}xf32>, %i: tensor<{m}x{n}xi32>, %j: tensor<{m}x{n}xi32>) -> tensor<{m}x{w}xf32> {{
  %o = stablehlo.iota dim = 1 : tensor<{m}x{n}xi32>
  %i0 = stablehlo.reshape %i : (tensor<{m}x{n}xi32>) -> tensor<{m}x{n}x1xi32>
  %j0 = stablehlo.reshape %j : (tensor<{m}x{n}xi32>) -> tensor<{m}x{n}x1xi32>
  %o0 = stablehlo.reshape %o : (tensor<{m}x{n}xi32>) -> tensor<{m}x{n}x1xi32>
  %p = stablehlo.concatenate %i0, %o0, dim = 2 : (tensor<{m}x{n}x1xi32>, tensor<{m}x{n}x1xi32>) -> tensor<{m}x{n}x2xi32>
  %q = stablehlo.concatenate %j0, %o0, dim = 2 : (tensor<{m}x{n}x1xi32>, tensor<{m}x{n}x1xi32>) -> tensor<{m}x{n}x2xi32>
  %x = "stablehlo.gather"(%t, %p) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1],
    start_index_map = [0, 1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>}}>
    : (tensor<50x{n}xf32>, tensor<{m}x{n}x2xi32>) -> tensor<{m}x{n}xf32>
  %y = "stablehlo.gather"(%t, %q) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1],
    start_index_map = [0, 1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>}}>
    : (tensor<50x{n}xf32>, tensor<{m}x{n}x2xi32>) -> tensor<{m}x{n}xf32>
  %d = stablehlo.subtract %x, %y : tensor<{m}x{n}xf32>
  %a = stablehlo.reshape %d : (tensor<{m}x{n}xf32>) -> tensor<{m}x{n}x1xf32>
  %b = stablehlo.reshape %x : (tensor<{m}x{n}xf32>) -> tensor<{m}x{n}x1xf32>
  %c = stablehlo.concatenate %a, %b, dim = 2 : (tensor<{m}x{n}x1xf32>, tensor<{m}x{n}x1xf32>) -> tensor<{m}x{n}x2xf32>
  %r = stablehlo.reshape %c : (tensor<{m}x{n}x2xf32>) -> tensor<{m}x{w}xf32>
  return %r : tensor<{m}x{w}xf32>
}}"""


@pytest.mark.parametrize(("m", "n"), [(5, 7), (16, 130), (3, 501)])
def test_what_is_looked_up_takes_turns(m: int, n: int) -> None:
    """Each copy has places of its own, and equal ones are one: an interleaved table took 1.8 ms, now .28."""
    module = hlo.parse(LOOKED_UP.format(m=m, n=n, w=2 * n))
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal((50, n), np.float32), *(rng.integers(-3, 60, (m, n)).astype(np.int32) for _ in range(2))]
    executable = codegen.compile(module)
    np.testing.assert_array_equal(executable(*arrays)[0], interp.evaluate(module, *arrays)[0])
    assert tiling.prove(executable.plan).refuted == ()
    assert "% 2" not in executable.source and "// 2" not in executable.source
    assert len(re.findall(r"^ *rt\d+ = ", executable.source, re.M)) == 2
