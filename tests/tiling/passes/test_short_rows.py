"""Short rows: those of a softmax lie across vectors, and folds with a body of their own are written out; whatever the tiles."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tests.tiling.passes.test_lane_folds import program
from tiling.loops.ir import Nest, Turn
from tiling.passes import order_loops
from tiling.pipeline import finished


def softmax(shape: str, rank: int, t: str = "f32") -> str:
    """exp(x - max x) / sum of them over the last dimension, and the maxima."""
    lead, dims = shape.rsplit("x", 1)[0], ", ".join(map(str, range(rank - 1)))
    return f"""func.func @main(%x: tensor<{shape}x{t}>) -> (tensor<{shape}x{t}>, tensor<{lead}x{t}>) {{
  %low = stablehlo.constant dense<{"0xFF800000" if t == "f32" else "0xFFF0000000000000"}> : tensor<{t}>
  %zero = stablehlo.constant dense<0.0> : tensor<{t}>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [{rank - 1}]
       : (tensor<{shape}x{t}>, tensor<{t}>) -> tensor<{lead}x{t}>
  %mb = stablehlo.broadcast_in_dim %m, dims = [{dims}] : (tensor<{lead}x{t}>) -> tensor<{shape}x{t}>
  %d = stablehlo.subtract %x, %mb : tensor<{shape}x{t}>
  %e = stablehlo.exponential %d : tensor<{shape}x{t}>
  %z = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [{rank - 1}]
       : (tensor<{shape}x{t}>, tensor<{t}>) -> tensor<{lead}x{t}>
  %zb = stablehlo.broadcast_in_dim %z, dims = [{dims}] : (tensor<{lead}x{t}>) -> tensor<{shape}x{t}>
  %y = stablehlo.divide %e, %zb : tensor<{shape}x{t}>
  return %y, %m : tensor<{shape}x{t}>, tensor<{lead}x{t}>
}}"""


@pytest.mark.parametrize(("shape", "t", "turns"), [
    ((20011, 10), "f32", 2), ((9000, 15), "f64", 2), ((1, 7001, 9), "f32", 2),  # a last tile of fewer rows; a dimension of one
    ((40, 10), "f32", 0), ((3000, 16), "f32", 0), ((64, 90, 12), "f32", 0),  # few rows, whole vectors, tiles of two dimensions
])  # fmt: skip
def test_rows_lie_across_vectors(shape: tuple[int, ...], t: str, turns: int) -> None:
    module = hlo.parse(softmax("x".join(map(str, shape)), len(shape), t))
    plan = tiling.plan(module, machine=tiling.Machine(cores=2, vector_bytes=64, vector_registers=32))
    steps = [s for f in plan.fusions for s in finished(f.schedule).main.steps]
    if len(shape) == 2 or shape[0] == 1:
        assert len([s for s in steps if isinstance(s, Turn)]) == turns
    for f in plan.fusions:
        found = tiling.prove(f)
        assert not found.refuted and not found.undecided
    x = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32 if t == "f32" else np.float64)
    x[..., 5, 2], x[..., 7, :], x[..., 8, 1] = np.nan, -np.inf, np.inf
    for found, wanted in zip(codegen.compile(plan)(x), interp.evaluate(module, x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5 if t == "f32" else 1e-13)


@pytest.mark.parametrize(("shape", "t", "steps"), [
    ((300, 2), "f32", [2]), ((300, 7), "f32", [7]),  # rows as they lie
    ((300, 8), "f32", [8]), ((301, 16), "f32", [16]), ((300, 17), "f32", [8, 1]), ((300, 20), "f32", [8, 4]),  # a turned tile
    ((300, 24), "i32", [8]), ((300, 20), "f16", [1]), ((3, 20), "f32", [1]),
])  # fmt: skip
@pytest.mark.parametrize("across", [False, True])
def test_few_steps_of_a_fold_with_a_body_are_written_out(shape: tuple[int, int], t: str, steps: list[int], across: bool) -> None:
    """The place of a maximum of each row: the first of equal ones, a NaN before any. Longer rows by eight steps at a time, which
    also pays across them."""
    text = program(*shape, t)
    if across:
        start, _, rest = text.partition(" {\n")
        x, y = (f"tensor<{'x'.join(map(str, s))}x{t}>" for s in (shape, shape[::-1]))
        text = f"{start.replace(f'%v: {x}', f'%w: {y}')} {{\n%v = stablehlo.transpose %w, dims = [1, 0] : ({y}) -> {x}\n{rest}"
    module = hlo.parse(text)
    plan = tiling.plan(module, machine=tiling.Machine(cores=2, vector_bytes=64, vector_registers=32))
    nests = [s for s in finished(plan.fusions[0].schedule).main.steps if isinstance(s, Nest) and s.folds]
    assert [n.folds[0].products for n in nests] == steps
    assert all(x.extent == shape[1] // 8 for n in nests[: len(steps)] if n.folds[0].products == 8 for x in n.reductions)
    assert not tiling.prove(plan.fusions[0]).refuted and not tiling.prove(plan.fusions[0]).undecided
    x = np.random.default_rng(shape[1]).integers(-2, 3, shape).astype(hlo.element_type(t).dtype)
    if t != "i32":
        x[1, 1], x[2] = np.nan, -np.inf
    x = x.T.copy() if across else x
    for found, wanted in zip(codegen.compile(plan)(x), interp.evaluate(module, x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def _steps_of_affine_maps(shape: tuple[int, ...], order: list[int]) -> hlo.Module:
    """x -> a x + b, one after the other, over the first two dimensions of a transpose."""
    x, y = ("x".join(map(str, s)) for s in (shape, [shape[d] for d in order]))
    row = f"tensor<{shape[order[2]]}xi32>"
    return hlo.parse(f"""func.func @main(%x: tensor<{x}xi32>) -> ({row}, {row}) {{
  %one = stablehlo.constant dense<1> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %y = stablehlo.transpose %x, dims = {order} : (tensor<{x}xi32>) -> tensor<{y}xi32>
  %z = stablehlo.add %y, %y : tensor<{y}xi32>
  %r:2 = stablehlo.reduce(%y init: %one), (%z init: %zero) across dimensions = [0, 1]
    : (tensor<{y}xi32>, tensor<{y}xi32>, tensor<i32>, tensor<i32>) -> ({row}, {row})
    reducer(%a: tensor<i32>, %c: tensor<i32>) (%b: tensor<i32>, %d: tensor<i32>) {{
    %e = stablehlo.multiply %a, %c : tensor<i32>
    %f = stablehlo.multiply %b, %c : tensor<i32>
    %g = stablehlo.add %f, %d : tensor<i32>
    stablehlo.return %e, %g : tensor<i32>, tensor<i32>
  }}
  return %r#0, %r#1 : {row}, {row}
}}""")


@pytest.mark.parametrize("order", [[1, 0, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]])
@pytest.mark.parametrize("shape", [(4, 3, 2), (5, 6, 200), (33, 2, 25)])
def test_a_fold_whose_order_counts_runs_in_the_ops_order(shape: tuple[int, ...], order: list[int]) -> None:
    """Along memory the loops over two dimensions of a transpose came in another order."""
    module = _steps_of_affine_maps(shape, order)
    numbers = np.random.default_rng(0).integers(1, 4, shape).astype(np.int32)
    for found, wanted in zip(codegen.compile(module)(numbers), interp.evaluate(module, numbers), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_fold_in_another_order_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    module = _steps_of_affine_maps((4, 3, 2), [2, 0, 1])
    (right,) = tiling.plan(module, supports=codegen.supports).fusions
    proof = tiling.prove(right)
    assert proof, proof.refuted
    assert "in order" in {o.name for o in proof.obligations}
    monkeypatch.setattr(order_loops, "_folds_in_order", lambda nest: False)
    (wrong,) = tiling.plan(module, supports=codegen.supports).fusions
    found = [o for o in tiling.prove(wrong).refuted if o.name == "in order"]
    assert found
    assert "r is folded before r'" in found[0].witness
