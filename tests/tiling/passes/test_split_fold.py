"""Folds in pieces: parts are little beside what is read, and a result that is large enough is cut in their place."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tiling.loops.ir import Schedule, Scope

MACHINE = tiling.Machine(cores=2, vector_bytes=64, vector_registers=32)


def reduction(shape: tuple[int, ...], axes: tuple[int, ...], word: str = "add") -> hlo.Module:
    given = "x".join(map(str, shape))
    kept = "".join(f"{n}x" for k, n in enumerate(shape) if k not in axes)
    start = {"add": "0.0", "maximum": "0xFF800000"}[word]
    return hlo.parse(f"""func.func @main(%x: tensor<{given}xf32>) -> tensor<{kept}f32> {{
  %z = stablehlo.constant dense<{start}> : tensor<f32>
  %r = stablehlo.reduce(%x init: %z) applies stablehlo.{word} across dimensions = {list(axes)}
       : (tensor<{given}xf32>, tensor<f32>) -> tensor<{kept}f32>
  return %r : tensor<{kept}f32> }}""")


def scheduled(module: hlo.Module) -> Schedule:
    (kernel,) = tiling.plan(module, machine=MACHINE).fusions
    assert isinstance(kernel.schedule, Schedule)
    return kernel.schedule


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((37, 63, 129), (1,)), ((37, 63, 129), (0,)), ((64, 8192), (0,)), ((256, 4096), (0,)), ((100, 100, 100), (1,))],
)
def test_a_result_of_short_folds_is_cut_in_place_of_the_folds(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    found = scheduled(reduction(shape, axes))
    assert len(found.phases) == 1
    assert found.main.tasks >= MACHINE.cores
    assert not any(b.scope is Scope.SHARED for b in found.buffers)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((8192, 128), (0,)), ((131072, 5), (0,)), ((16, 28, 28, 64), (0, 1, 2)), ((96, 2000), (0,)), ((2000, 300), (0,))],
)
def test_parts_are_little_beside_what_is_folded(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    found = scheduled(reduction(shape, axes))
    (parts,) = [b for b in found.buffers if b.scope is Scope.SHARED]
    assert len(found.phases) == 2
    assert 16 * prod(parts.shape) <= prod(shape)


@pytest.mark.parametrize(("shape", "axes"), [((37, 63, 129), (1,)), ((96, 2000), (0,)), ((45, 7, 700), (0, 1))])
@pytest.mark.parametrize("word", ["add", "maximum"])
def test_both_agree_with_the_evaluator(shape: tuple[int, ...], axes: tuple[int, ...], word: str) -> None:
    module = reduction(shape, axes, word)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (found,) = codegen.compile(tiling.plan(module, machine=MACHINE))(x)
    (expected,) = interp.evaluate(module, x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("at_runtime", [False, True])
def test_rows_of_what_is_made_are_shared_among_threads(at_runtime: bool) -> None:
    """Sampling made each element of a row from a key alone: that was taken for a walk across rows, and folded in pieces."""
    n, m = 2048, 1000
    key = "%one = stablehlo.dynamic_slice %k, %i, sizes = [1] : (tensor<5xf32>, tensor<i32>) -> tensor<1xf32>"
    known = "%one = stablehlo.slice %k [2:3] : (tensor<5xf32>) -> tensor<1xf32>"
    module = hlo.parse(f"""func.func @main(%k: tensor<5xf32>, %i: tensor<i32>) -> tensor<{n}xf32> {{
  {key if at_runtime else known}
  %scalar = stablehlo.reshape %one : (tensor<1xf32>) -> tensor<f32>
  %all = stablehlo.broadcast_in_dim %scalar, dims = [] : (tensor<f32>) -> tensor<{n}x{m}xf32>
  %p = stablehlo.iota dim = 0 : tensor<{n}x{m}xf32>
  %q = stablehlo.iota dim = 1 : tensor<{n}x{m}xf32>
  %a = stablehlo.multiply %p, %q : tensor<{n}x{m}xf32>
  %b = stablehlo.multiply %a, %all : tensor<{n}x{m}xf32>
  %x = stablehlo.sine %b : tensor<{n}x{m}xf32>
  %z = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %r = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [1]
       : (tensor<{n}x{m}xf32>, tensor<f32>) -> tensor<{n}xf32>
  return %r : tensor<{n}xf32> }}""")
    found = scheduled(module)
    assert len(found.phases) == 1 and found.main.tasks >= MACHINE.cores
    given = np.linspace(0.01, 0.05, 5, dtype=np.float32), np.int32(3)
    (made,) = codegen.compile(tiling.plan(module, machine=MACHINE, supports=codegen.supports))(*given)
    np.testing.assert_allclose(made, interp.evaluate(module, *given)[0], atol=1e-5)
