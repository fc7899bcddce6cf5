"""Pinned fusions, budgets, and plans made again from their own pins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tests.random_programs import random_program
from tests.shipped_plans import planned
from tiling import Machine, Pin

pytestmark = pytest.mark.machine("avx512")

EXAMPLES = Path(__file__).parents[3] / "examples"


def shape_of(plan: tiling.Plan) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    return [(tuple(op.name for op in f.ops), f.tile_sizes) for f in plan.fusions]


@pytest.mark.parametrize("name", [pytest.param("causal_attention", marks=pytest.mark.slow), "encoder_block", "gelu_mlp"])
def test_a_plan_is_made_again_from_its_pins(name: str) -> None:
    path = EXAMPLES / f"{name}.mlir"
    first = planned(path, Machine.detect())
    again = tiling.plan(hlo.load(path), pins=first.pins())
    assert shape_of(again) == shape_of(first)
    assert [str(f.schedule) for f in again.fusions] == [str(f.schedule) for f in first.fusions]


def test_a_pinned_tile_size_is_used_and_the_result_stays_right() -> None:
    module, arrays = random_program(7)
    first = tiling.plan(module)
    pins = list(first.pins())
    sizes = tuple(max(1, n // 2) for n in first.fusions[-1].stages[-1].values[0].shape)
    pins[-1] = replace(pins[-1], tile_sizes=sizes)
    second = tiling.plan(module, pins=pins)
    assert second.fusions[-1].tile_sizes == sizes
    for a, b in zip(codegen.compile(second)(*arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())


def test_stages_pinned_alone_stay_alone() -> None:
    module = hlo.load(EXAMPLES / "softmax.mlir")
    ops = [k for f in tiling.plan(module).pins() for k in f.ops]
    apart = tiling.plan(module, pins=[Pin((k,)) for k in ops])
    assert len(apart.fusions) == len(ops) > 1
    assert all(d.reason for d in apart.decisions) and not any(d.fused for d in apart.decisions)


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ([Pin((999,))], "expected numbers of ops"),
        ([Pin(())], "expected numbers of ops"),
        ([Pin((-1,), (1,))], "expected numbers of ops"),
    ],
)
def test_pins_that_name_no_stage(pins: list[Pin], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiling.plan(hlo.load(EXAMPLES / "softmax.mlir"), pins=pins)


def test_a_pin_with_the_wrong_number_of_tile_sizes() -> None:
    module = hlo.load(EXAMPLES / "softmax.mlir")
    (pin,) = tiling.plan(module).pins()
    with pytest.raises(ValueError, match="expected 2 positive tile sizes"):
        tiling.plan(module, pins=[replace(pin, tile_sizes=(4,))])


def test_a_fusion_must_not_wait_for_itself() -> None:
    module = hlo.parse("""
    func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
      %c = stablehlo.constant dense<0.0> : tensor<f32>
      %a = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [1]
        : (tensor<64x64xf32>, tensor<f32>) -> tensor<64xf32>
      %b = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [0]
        : (tensor<64xf32>, tensor<f32>) -> tensor<f32>
      %d = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<64xf32>) -> tensor<64x64xf32>
      %e = stablehlo.broadcast_in_dim %b, dims = [] : (tensor<f32>) -> tensor<64x64xf32>
      %f = stablehlo.add %d, %e : tensor<64x64xf32>
      return %f : tensor<64x64xf32>
    }""")
    plan = tiling.plan(module)
    names = [op.name for op in plan.program.ops]
    first, last = names.index("stablehlo.reduce"), names.index("stablehlo.add")
    with pytest.raises(ValueError, match="wait for its own results"):
        tiling.plan(module, pins=[Pin((first, last))])


def test_a_spent_budget_leaves_stages_apart_and_says_so() -> None:
    module = hlo.load(EXAMPLES / "encoder_block.mlir")
    plan = tiling.plan(module, budget_seconds=0.0)
    assert not any(d.fused for d in plan.decisions)
    assert any("time was over" in d.reason for d in plan.decisions)
    assert len(plan.fusions) > 6


def test_layers_of_equal_structure_get_equal_tiles() -> None:
    layer = """
      %m{0} = stablehlo.reduce(%x{0} init: %c) applies stablehlo.add across dimensions = [1]
        : (tensor<64x256xf32>, tensor<f32>) -> tensor<64xf32>
      %b{0} = stablehlo.broadcast_in_dim %m{0}, dims = [0] : (tensor<64xf32>) -> tensor<64x256xf32>
      %s{0} = stablehlo.subtract %x{0}, %b{0} : tensor<64x256xf32>
      %x{1} = stablehlo.dot_general %s{0}, %w, contracting_dims = [1] x [0]
        : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
    """
    body = "".join(layer.format(k, k + 1) for k in range(6))
    module = hlo.parse(f"""
    func.func @main(%x0: tensor<64x256xf32>, %w: tensor<256x256xf32>) -> tensor<64x256xf32> {{
      %c = stablehlo.constant dense<0.0> : tensor<f32>
      {body}
      return %x6 : tensor<64x256xf32>
    }}""")
    kinds = {(tuple(op.name for op in f.ops), f.tile_sizes) for f in tiling.plan(module).fusions[:-1]}
    assert len(kinds) <= 2


def test_plan_as_json() -> None:
    plan = tiling.plan(hlo.load(EXAMPLES / "gelu_mlp.mlir"))
    document = plan.to_json()
    assert [s["name"] for s in document["steps"]] == [f.name for f in plan.fusions]
    assert len(document["decisions"]) == len(plan.decisions)


def test_a_kernel_that_begins_before_a_join_may_still_wait_for_it() -> None:
    """%e comes before %t and %u, but its kernel also makes %l, which needs %t: so %t and %u, which needs %e, stay apart."""
    module = hlo.parse("""func.func @main(%x: tensor<128x64xf32>, %y: tensor<128x64xf32>) -> (tensor<128xf32>, tensor<128xf32>) {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %e = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
        : (tensor<128x64xf32>, tensor<f32>) -> tensor<128xf32>
      %t = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [1]
        : (tensor<128x64xf32>, tensor<f32>) -> tensor<128xf32>
      %et = stablehlo.multiply %e, %t : tensor<128xf32>
      %b = stablehlo.broadcast_in_dim %et, dims = [0] : (tensor<128xf32>) -> tensor<128x64xf32>
      %w = stablehlo.multiply %x, %b : tensor<128x64xf32>
      %l = stablehlo.reduce(%w init: %z) applies stablehlo.maximum across dimensions = [1]
        : (tensor<128x64xf32>, tensor<f32>) -> tensor<128xf32>
      %u0 = stablehlo.tanh %e : tensor<128xf32>
      %u = stablehlo.multiply %u0, %t : tensor<128xf32>
      return %l, %u : tensor<128xf32>, tensor<128xf32>
    }""")
    whole = tiling.plan(module)
    number = {whole.names.of(op.results[0]): k for k, op in enumerate(whole.program.ops)}
    made = tiling.plan(module, pins=[Pin((number["e"], number["l"]))])
    assert [[made.names.of(s.values[0]) for s in f.stages] for f in made.fusions] == [["t"], ["e", "l"], ["u"]]
