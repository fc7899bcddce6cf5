"""Plans of real programs: how many fusions there must be, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import hlo
import tiling
from tests import shipped_plans
from tests.shipped_plans import MACHINE as SMALL
from tiling import Scope

EXAMPLES = Path(__file__).parents[3] / "examples"


def planned(name: str) -> tiling.Plan:
    return shipped_plans.planned(EXAMPLES / name)


# name, fusions at most, the reason
EXPECTED = [
    ("softmax.mlir", 1, "both reductions read the row that the root's tile holds"),
    ("layer_norm.mlir", 1, "mean and variance are needed for the rows of a tile only"),
    (
        "causal_attention.mlir",
        1,
        "a row tile of the result needs a row tile of the scores, which never leaves scratch",
    ),
    (
        "gelu_mlp.mlir",
        2,
        "the activation is the first product's epilogue; the second product reads all of its columns",
    ),
    (
        "encoder_block.mlir",
        6,
        "norm, projection, attention with its projection, norm, and the two products of the MLP",
    ),
]


@pytest.mark.parametrize(("name", "most", "reason"), EXPECTED, ids=[e[0] for e in EXPECTED])
def test_fusions(name: str, most: int, reason: str) -> None:
    plan = planned(name)
    assert not plan.fallbacks
    assert 1 <= len(plan.fusions) <= most, reason


@pytest.mark.parametrize("name", ["softmax.mlir", "layer_norm.mlir"])
def test_inputs_are_read_once_and_the_result_written_once(name: str) -> None:
    (fusion,) = planned(name).fusions
    arguments = hlo.load(EXAMPLES / name).entry.arguments
    assert {v.type for v in fusion.inputs} == {a.type for a in arguments}
    assert fusion.bytes_fused == sum(a.tensor.size_bytes for a in arguments) + fusion.outputs[0].tensor.size_bytes
    assert fusion.scratch_bytes < 64 << 10


def test_softmax_keeps_the_exponential_in_the_result() -> None:
    """The worked example of the design: no scratch for the exponentials, they live where the result will be."""
    (fusion,) = planned("softmax.mlir").fusions
    rows = fusion.schedule.tile_sizes[0]
    assert [b.shape for b in fusion.schedule.buffers_in(Scope.THREAD)] == [(rows,), (rows,)]


def test_attention_scratch_grows_with_rows_not_with_the_score_matrix() -> None:
    (fusion,) = planned("causal_attention.mlir").fusions
    scores_bytes = 8 * 1024 * 1024 * 4
    assert fusion.scratch_bytes < scores_bytes // 8
    assert fusion.schedule.thread_scratch_bytes < SMALL.l2_bytes


def test_every_edge_between_stages_has_a_decision() -> None:
    plan = planned("encoder_block.mlir")
    roots = {f.name.split("_", 1)[1] for f in plan.fusions}
    joined = {d.producer for d in plan.decisions if d.fused}
    for fusion in plan.fusions:
        for stage in fusion.stages[:-1]:
            assert plan.names.stage(stage) in joined
    kept_apart = {d.producer for d in plan.decisions if not d.fused}
    read_by_others = {plan.names.of(v) for f in plan.fusions for v in f.inputs} & roots
    assert read_by_others <= kept_apart
    assert all(d.reason for d in plan.decisions)


def test_explanation_names_every_fusion_and_decision() -> None:
    plan = planned("gelu_mlp.mlir")
    text = plan.explain()
    for fusion in plan.fusions:
        assert fusion.name in text
    for decision in plan.decisions:
        assert decision.reason in text


def _module(body: str, arguments: str, results: str) -> hlo.Module:
    return hlo.parse(f"func.func @main({arguments}) -> {results} {{\n{body}\n}}")


def test_an_op_without_loops_is_left_to_the_evaluator_with_its_reason() -> None:
    module = _module(
        """
        %0 = stablehlo.exponential %x : tensor<4x4xf32>
        %1 = stablehlo.custom_call @foreign(%0) : (tensor<4x4xf32>) -> tensor<4x4xf32>
        return %1 : tensor<4x4xf32>""",
        "%x: tensor<4x4xf32>",
        "tensor<4x4xf32>",
    )
    plan = tiling.plan(module)
    assert [s.op.name for s in plan.fallbacks] == ["stablehlo.custom_call"]
    assert len(plan.fusions) == 1
    assert plan.fallbacks[0].reason


def _reads(fusion: tiling.Fusion) -> Sequence[str]:
    return [b.name for b in fusion.schedule.buffers_in(Scope.ARGUMENT)]


def test_a_value_that_two_kernels_need_is_stored_once() -> None:
    module = _module(
        """
        %0 = stablehlo.tanh %x : tensor<64x64xf32>
        %c = stablehlo.constant dense<0.0> : tensor<f32>
        %1 = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [0]
          : (tensor<64x64xf32>, tensor<f32>) -> tensor<64xf32>
        %2 = stablehlo.reduce(%0 init: %c) applies stablehlo.maximum across dimensions = [1]
          : (tensor<64x64xf32>, tensor<f32>) -> tensor<64xf32>
        return %1, %2 : tensor<64xf32>, tensor<64xf32>""",
        "%x: tensor<64x64xf32>",
        "(tensor<64xf32>, tensor<64xf32>)",
    )
    plan = tiling.plan(module)
    reading = [f for f in plan.fusions if any(n.startswith("tanh") for n in _reads(f))]
    storing = [f for f in plan.fusions if any(b.name.startswith("tanh") for b in f.schedule.buffers_in(Scope.RESULT))]
    assert len(storing) == 1 and len(reading) == len(plan.fusions) - 1
    assert any(d.producer.startswith("tanh") and d.reason for d in plan.decisions)


def test_equal_layers_are_lowered_once_while_fusions_are_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A known structure costs what it cost before: a layer is lowered for the plan, and once to look for shared values."""
    from tiling.planning import planner

    lowered: list[int] = []
    known = planner.Planner._with_tiles

    def counted(self: planner.Planner, stages: Any, *rest: Any) -> Any:
        lowered.append(len(stages))
        return known(self, stages, *rest)

    monkeypatch.setattr(planner.Planner, "_with_tiles", counted)
    t = "tensor<512x512xf32>"
    lines = [f"func.func @main(%x0: {t}) -> {t} {{"]
    for k in range(12):
        lines += [
            f"  %d{k} = stablehlo.dot_general %x{k}, %x{k}, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}",
            f"  %t{k} = stablehlo.tanh %d{k} : {t}",
            f"  %x{k + 1} = stablehlo.add %t{k}, %x{k} : {t}",
        ]
    made = tiling.plan(hlo.parse("\n".join([*lines, f"  return %x12 : {t}", "}"])), machine=SMALL)
    assert len(made.fusions) == 12 and len(lowered) <= 2 * 12
    assert len({f.estimate.seconds for f in made.fusions}) == 1


@pytest.mark.parametrize(("batch", "groups", "rows"), [(8, 32, 8), (1, 4, 16), (2, 3, 5)])
def test_grouped_channels_that_come_first_are_cut_between_groups(batch: int, groups: int, rows: int) -> None:
    """Tiles of one channel were offered, of which no product is filled: all of a batch was one task."""
    channels = groups * rows
    image = f"tensor<{batch}x{channels}x28x28xf32>"
    module = hlo.parse(f"""
func.func @main(%x: {image}, %w: tensor<{channels}x{rows}x3x3xf32>) -> {image} {{
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
    window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}
    : ({image}, tensor<{channels}x{rows}x3x3xf32>) -> {image}
  return %0 : {image}
}}""")
    (fusion,) = tiling.plan(module, machine=tiling.Machine(cores=2)).fusions
    assert fusion.tile_sizes[1] == rows
    assert fusion.schedule.main.tasks >= 2


CONVOLUTION = """
func.func @main(%x: tensor<{image}xf32>, %w: tensor<{window}xf32>, %g: tensor<256xf32>) -> tensor<{result}xf32> {{
  {weights}
  %r = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x{order}->[b, 0, 1, f],
    window = {{stride = [1, 1], pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : (tensor<{image}xf32>, tensor<{window}xf32>) -> tensor<{result}xf32>
  return %r : tensor<{result}xf32>
}}
"""
OF_ARGUMENTS = "%v = stablehlo.negate %w : tensor<{window}xf32>"
OF_A_SUM = """%z = stablehlo.constant dense<0.0> : tensor<f32>
  %h = stablehlo.reduce(%g init: %z) applies stablehlo.add across dimensions = [0] : (tensor<256xf32>, tensor<f32>) -> tensor<f32>
  %b = stablehlo.broadcast_in_dim %h, dims = [] : (tensor<f32>) -> tensor<{window}xf32>
  %v = stablehlo.multiply %w, %b : tensor<{window}xf32>"""


def _of_convolution(weights: str, image: str, window: str, result: str, order: str) -> tiling.Plan:
    weights = weights.format(window=window)
    text = CONVOLUTION.format(image=image, window=window, result=result, order=order, weights=weights)
    return tiling.plan(hlo.parse(text), machine=tiling.Machine(cores=2, vector_bytes=32, vector_registers=16))


@pytest.mark.parametrize(("weights", "is_apart"), [(OF_ARGUMENTS, True), (OF_A_SUM, False)], ids=["arguments", "a sum"])
def test_a_factor_that_comes_from_arguments_alone_counts_half(weights: str, is_apart: bool) -> None:
    """Calls with the same weights find it made: as a part of the product's kernel it would be made at each call."""
    plan = _of_convolution(weights, "1x14x14x256", "256x256x3x3", "1x14x14x256", "[o, i, 0, 1]")
    (decision,) = [d for d in plan.decisions if (d.producer, d.consumer) == ("concatenate_2", "dot_general_1")]
    assert decision.fused is not is_apart
    assert ("counts half" in decision.reason) is is_apart


def test_a_product_joins_its_reader_for_less_memory_though_it_seems_a_little_dearer() -> None:
    """Then what it reads joins it, too: one kernel of transforms, products and results, beside the one of the weights."""
    plan = _of_convolution(OF_ARGUMENTS, "1x64x64x192", "3x3x192x64", "1x64x64x64", "[0, 1, i, o]")
    (decision,) = [d for d in plan.decisions if d.producer == "dot_general_1"]
    assert decision.fused and decision.apart < decision.together < decision.apart * 1.08
    assert len(plan.fusions) == 2


def test_what_a_loop_makes_of_what_it_carries_is_not_kept() -> None:
    """A loop's body makes its factor in every iteration, and a program with a loop keeps nothing between calls."""
    once = CONVOLUTION.format(
        image="1x14x14x256", window="256x256x3x3", result="1x14x14x256", order="[o, i, 0, 1]",
        weights=OF_ARGUMENTS.format(window="256x256x3x3"),
    )
    inside = once[once.index("%v =") : once.index("return")].replace("%x", "%y")
    text = f"""
    func.func @main(%x: tensor<1x14x14x256xf32>, %w: tensor<256x256x3x3xf32>, %n: tensor<i32>) -> tensor<1x14x14x256xf32> {{
      %c = stablehlo.constant dense<1> : tensor<i32>
      %z = stablehlo.constant dense<0> : tensor<i32>
      %o:2 = stablehlo.while(%i = %z, %y = %x) : tensor<i32>, tensor<1x14x14x256xf32>
      cond {{
        %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        {inside}
        %j = stablehlo.add %i, %c : tensor<i32>
        stablehlo.return %j, %r : tensor<i32>, tensor<1x14x14x256xf32>
      }}
      return %o#1 : tensor<1x14x14x256xf32>
    }}
    """
    plan = tiling.plan(hlo.parse(text), machine=tiling.Machine(cores=2, vector_bytes=32, vector_registers=16))
    inner = [r.plan for s in plan.steps if isinstance(s, tiling.ControlStep) for r in s.regions]
    found = [d for p in (plan, *inner) for d in p.decisions if d.consumer.startswith("dot_general")]
    assert any(d.producer.startswith("concatenate") for d in found)
    assert not any("counts half" in d.reason for d in found)


def test_a_product_joins_another_one_only_where_that_is_cheaper() -> None:
    """Its blocks would be those of the other: a bilinear form took an eighth longer as one kernel."""
    text = """
    func.func @main(%a: tensor<128x64xf32>, %w: tensor<32x64x64xf32>, %b: tensor<128x64xf32>) -> tensor<128x32xf32> {
      %t = stablehlo.dot_general %w, %a, contracting_dims = [1] x [1]
        : (tensor<32x64x64xf32>, tensor<128x64xf32>) -> tensor<32x64x128xf32>
      %p = stablehlo.dot_general %b, %t, batching_dims = [0] x [2], contracting_dims = [1] x [1]
        : (tensor<128x64xf32>, tensor<32x64x128xf32>) -> tensor<128x32xf32>
      return %p : tensor<128x32xf32>
    }
    """
    plan = tiling.plan(hlo.parse(text), machine=tiling.Machine(cores=2, vector_bytes=64, vector_registers=32))
    (decision,) = plan.decisions
    assert decision.apart < decision.together < decision.apart * 1.16 and not decision.fused


LOOP = """
func.func @main(%x: tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32> {{
  %z = stablehlo.constant dense<0> : tensor<i32>
  %c = stablehlo.constant dense<1> : tensor<i32>
  %e = stablehlo.constant dense<9> : tensor<i32>
  %o:2 = stablehlo.while(%i = %z, %a = %x) : tensor<i32>, tensor<{n}x{n}xf32>
  cond {{
    %p = stablehlo.compare LT, %i, %e : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %b = stablehlo.sine %a : tensor<{n}x{n}xf32>
    %j = stablehlo.add %i, %c : tensor<i32>
    stablehlo.return %j, %b : tensor<i32>, tensor<{n}x{n}xf32>
  }}
  return %o#1 : tensor<{n}x{n}xf32>
}}
"""


@pytest.mark.parametrize(("n", "is_near"), [(150, True), (1024, False)])
def test_a_loop_finds_small_data_in_a_cores_own_cache(n: int, is_near: bool) -> None:
    """A leapfrog step of 150 x 150 was shared by two threads, as if its fields came from memory in each turn: it took twice as
    long as on one."""
    machine = tiling.Machine(cores=2, vector_bytes=64, vector_registers=32, l2_bytes=1 << 20)
    plan = tiling.plan(hlo.parse(LOOP.format(n=n)), machine=machine)
    (loop,) = [s for s in plan.steps if isinstance(s, tiling.ControlStep)]
    (body,) = [r.plan for r in loop.regions if r.plan.fusions and r.plan.fusions[0].outputs[0].rank]
    assert (body.machine == machine.near) is is_near
