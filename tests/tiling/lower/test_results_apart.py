"""Results of one fold that an op puts together: each has a place of its own while it grows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
import tiling
from tiling.loops.ir import Nest
from tiling.proving.obligations import prove

# sums of elements and of their squares, as one reduction whose results are as alike as can be
TWO = """func.func @main(%x: tensor<{rows}x{n}xf32>) -> tensor<{kept}xf32> {{
  %s = stablehlo.multiply %x, %x : tensor<{rows}x{n}xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r:2 = stablehlo.reduce(%x init: %z), (%s init: %z) across dimensions = [{axis}]
    : (tensor<{rows}x{n}xf32>, tensor<{rows}x{n}xf32>, tensor<f32>, tensor<f32>) -> (tensor<{kept}xf32>, tensor<{kept}xf32>)
    reducer(%a: tensor<f32>, %c: tensor<f32>) (%b: tensor<f32>, %d: tensor<f32>) {{
      %e = stablehlo.add %a, %c : tensor<f32>
      %f = stablehlo.add %b, %d : tensor<f32>
      stablehlo.return %e, %f : tensor<f32>, tensor<f32>
    }}
  %y = stablehlo.subtract %r#1, %r#0 : tensor<{kept}xf32>
  return %y : tensor<{kept}xf32>
}}"""


def module_of(rows: int, n: int, axis: int) -> hlo.Module:
    return hlo.parse(TWO.format(rows=rows, n=n, axis=axis, kept=(n, rows)[axis]))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("rows", "n"), [(2, 4), (2, 128), (40, 300), (300, 5), (3, 1000)])
def test_two_results_that_are_put_together(rows: int, n: int, axis: int) -> None:
    """Both lay in the memory of what is made of them, where that has their shape, and one was lost."""
    module = module_of(rows, n, axis)
    x = np.random.default_rng(0).integers(-9, 9, (rows, n)).astype(np.float32)
    executable = codegen.compile(module)
    assert not executable.fallbacks
    np.testing.assert_array_equal(executable(x)[0], (x * x).sum(axis) - x.sum(axis))


def test_two_results_in_one_place_are_refuted() -> None:
    (fusion,) = tiling.plan(module_of(40, 300, 0), supports=codegen.supports).fusions
    assert prove(fusion).holds

    def in_one_place(step: object) -> object:
        if not isinstance(step, Nest) or not step.folds:
            return step
        return replace(step, folds=tuple(replace(f, buffers=(f.buffers[0],) * len(f.buffers)) for f in step.folds))

    schedule = fusion.schedule
    phases = tuple(replace(p, steps=tuple(map(in_one_place, p.steps))) for p in schedule.phases)  # type: ignore[arg-type]
    proof = prove(replace(schedule, phases=phases))
    assert any("two results are folded in one place" in str(o) for o in proof.refuted), str(proof)
