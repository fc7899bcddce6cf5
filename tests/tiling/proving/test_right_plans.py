"""Right schedules that proofs once refuted, found by random programs: each is proved, and what it computes is still looked at."""

# ruff: noqa: E501  (programs are kept as they are printed)

from __future__ import annotations

import pytest

import codegen
import hlo
import tiling
from tiling import Machine

CLIPS = """%lo = stablehlo.constant dense<-5.0> : tensor<{0}xf32>
  %hi = stablehlo.constant dense<5.0> : tensor<{0}xf32>"""

PROGRAMS = {
    # All of a row is written at a place that is known, so the row that was there is read nowhere.
    "update at a known place": f"""func.func @main(%x: tensor<8x40xf32>, %v: tensor<1x40xf32>) -> tensor<8x40xf32> {{
  {CLIPS.format("8x40")}
  %c = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.dynamic_update_slice %x, %v, %c, %c : (tensor<8x40xf32>, tensor<1x40xf32>, tensor<i32>, tensor<i32>) -> tensor<8x40xf32>
  %1 = stablehlo.clamp %lo, %0, %hi : tensor<8x40xf32>
  return %1 : tensor<8x40xf32>
}}""",
    # The first component of each index is clamped to 0, so only the second one is loaded.
    "component of an index with one value": """func.func @main(%x: tensor<1x257xf32>, %i: tensor<257x2xi32>) -> tensor<257xf32> {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1>}> : (tensor<1x257xf32>, tensor<257x2xi32>) -> tensor<257xf32>
  return %0 : tensor<257xf32>
}""",
    # One factor is loaded as it was stored, the other one computed again: both from the argument.
    "factors loaded and computed": """func.func @main(%x: tensor<8x255xf32>) -> (tensor<255x8xf32>, tensor<255x255xf32>) {
  %lo = stablehlo.constant dense<-5.0> : tensor<255x8xf32>
  %hi = stablehlo.constant dense<5.0> : tensor<255x8xf32>
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<8x255xf32>) -> tensor<255x8xf32>
  %1 = stablehlo.clamp %lo, %0, %hi : tensor<255x8xf32>
  %2 = stablehlo.tanh %1 : tensor<255x8xf32>
  %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<255x8xf32>) -> tensor<8x255xf32>
  %4 = stablehlo.dot_general %2, %3, contracting_dims = [1] x [0] : (tensor<255x8xf32>, tensor<8x255xf32>) -> tensor<255x255xf32>
  return %1, %4 : tensor<255x8xf32>, tensor<255x255xf32>
}""",
    # Both halves of the stack are made of the same elements, so loads do not tell an even place from the odd one after it.
    "windows over an interleaved stack": """func.func @main(%x: tensor<300x64xf32>) -> tensor<19x2xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.sign %x : tensor<300x64xf32>
  %0 = stablehlo.reshape %s : (tensor<300x64xf32>) -> tensor<300x1x64xf32>
  %1 = stablehlo.reshape %x : (tensor<300x64xf32>) -> tensor<300x1x64xf32>
  %2 = stablehlo.concatenate %0, %1, dim = 1 : (tensor<300x1x64xf32>, tensor<300x1x64xf32>) -> tensor<300x2x64xf32>
  %3 = stablehlo.reshape %2 : (tensor<300x2x64xf32>) -> tensor<600x64xf32>
  %4 = "stablehlo.reduce_window"(%3, %z) <{window_dimensions = array<i64: 32, 32>, window_strides = array<i64: 32, 32>, padding = dense<[[4, 4], [0, 0]]> : tensor<2x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %5 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %5 : tensor<f32>
  }) : (tensor<600x64xf32>, tensor<f32>) -> tensor<19x2xf32>
  return %4 : tensor<19x2xf32>
}""",
    # Where the update is not, two clamps of the same numbers are one node, though their tensors have different shapes.
    "one function of tensors of two shapes": """func.func @main(%x: tensor<256xf32>, %y: tensor<256xf32>) -> (tensor<512xf32>, tensor<512xf32>) {
  %l0 = stablehlo.constant dense<-5.0> : tensor<256xf32>
  %h0 = stablehlo.constant dense<5.0> : tensor<256xf32>
  %l1 = stablehlo.constant dense<-5.0> : tensor<512xf32>
  %h1 = stablehlo.constant dense<5.0> : tensor<512xf32>
  %c = stablehlo.constant dense<242> : tensor<i32>
  %p = stablehlo.slice %x [242:249] : (tensor<256xf32>) -> tensor<7xf32>
  %q = stablehlo.add %p, %p : tensor<7xf32>
  %u = stablehlo.dynamic_update_slice %x, %q, %c : (tensor<256xf32>, tensor<7xf32>, tensor<i32>) -> tensor<256xf32>
  %d = stablehlo.clamp %l0, %u, %h0 : tensor<256xf32>
  %x1 = stablehlo.reshape %x : (tensor<256xf32>) -> tensor<256x1xf32>
  %y1 = stablehlo.reshape %y : (tensor<256xf32>) -> tensor<256x1xf32>
  %d1 = stablehlo.reshape %d : (tensor<256xf32>) -> tensor<256x1xf32>
  %s0 = stablehlo.concatenate %x1, %d1, dim = 1 : (tensor<256x1xf32>, tensor<256x1xf32>) -> tensor<256x2xf32>
  %s1 = stablehlo.concatenate %y1, %x1, dim = 1 : (tensor<256x1xf32>, tensor<256x1xf32>) -> tensor<256x2xf32>
  %r0 = stablehlo.reshape %s0 : (tensor<256x2xf32>) -> tensor<512xf32>
  %r1 = stablehlo.reshape %s1 : (tensor<256x2xf32>) -> tensor<512xf32>
  %a = stablehlo.clamp %l1, %r0, %h1 : tensor<512xf32>
  %b = stablehlo.clamp %l1, %r1, %h1 : tensor<512xf32>
  %e = stablehlo.subtract %b, %a : tensor<512xf32>
  return %a, %e : tensor<512xf32>, tensor<512xf32>
}""",
    # The place that is looked up has one value, so a scatter does not load the sum that it is computed from.
    "a routine whose number is not needed": """func.func @main(%x: tensor<17xf32>, %k: tensor<1x1xi32>, %v: tensor<1xf32>, %n: tensor<4xi32>) -> tensor<17xf32> {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %s = stablehlo.reduce(%n init: %z) applies stablehlo.add across dimensions = [0] : (tensor<4xi32>, tensor<i32>) -> tensor<i32>
  %i = stablehlo.reshape %s : (tensor<i32>) -> tensor<1x1xi32>
  %0 = "stablehlo.gather"(%v, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1>}> : (tensor<1xf32>, tensor<1x1xi32>) -> tensor<1xf32>
  %1 = "stablehlo.scatter"(%x, %k, %0) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %2 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<17xf32>, tensor<1x1xi32>, tensor<1xf32>) -> tensor<17xf32>
  return %1 : tensor<17xf32>
}""",
}
MACHINES = [
    Machine(cores=2, vector_bytes=32, vector_registers=16),
    Machine(cores=1, vector_bytes=16, vector_registers=16, l1_bytes=48 << 10, l2_bytes=256 << 10, l3_bytes=8 << 20),
]


@pytest.mark.parametrize("machine", MACHINES, ids=["two cores", "one core"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_right_plans_are_proved(name: str, machine: Machine) -> None:
    for fusion in tiling.plan(hlo.parse(PROGRAMS[name]), supports=codegen.supports, machine=machine).fusions:
        proof = tiling.prove(fusion)
        assert proof.holds, [(o.name, o.verdict, o.witness) for o in proof.obligations]


def test_a_fold_of_one_element_lies_apart_from_what_it_folds() -> None:
    """It begins with its initial value, which was written over the element in the same place: only registers made it right."""
    text = """func.func @main(%x: tensor<12x1xf32>) -> tensor<1x1xf32> {
  %m = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0] : (tensor<12x1xf32>, tensor<12x1xf32>) -> tensor<1x1xf32>
  %1 = stablehlo.tanh %0 : tensor<1x1xf32>
  %2 = "stablehlo.reduce_window"(%1, %m) <{window_dimensions = array<i64: 1, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %3 = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %3 : tensor<f32>
  }) : (tensor<1x1xf32>, tensor<f32>) -> tensor<1x1xf32>
  return %2 : tensor<1x1xf32>
}"""
    (fusion,) = tiling.plan(hlo.parse(text), supports=codegen.supports, machine=MACHINES[0]).fusions
    proof = tiling.prove(fusion)
    assert proof.holds, [(o.name, o.witness) for o in proof.refuted]
    assert len({f.buffers[0] for p in fusion.schedule.phases for s in p.steps for f in getattr(s, "folds", ())}) == 2
