# ruff: noqa: E501  (programs are written as they are printed)
"""What is made of less than it is, is made again where it is read; and what parts for one process do is counted."""

from __future__ import annotations

import numpy as np

import hlo
import interp
from tests.mesh.global_programs import module_text
from tests.mesh.test_partition import BYTES_ALONE, on_a_grid
from tilewright.inputs import random_arrays
from tiling.mesh.network import Network
from tiling.mesh.partition import Partitioned, partition

MASK = """  %i = stablehlo.iota dim = 1 : tensor<16x32xi32>
  %b = stablehlo.broadcast_in_dim %a0, dims = [0] : (tensor<16xi32>) -> tensor<16x32xi32>
  %c = stablehlo.compare EQ, %b, %i : (tensor<16x32xi32>, tensor<16x32xi32>) -> tensor<16x32xi1>
  %o = stablehlo.convert %c : (tensor<16x32xi1>) -> tensor<16x32xf32>
  %t = stablehlo.tanh %o : tensor<16x32xf32>
  %r = stablehlo.dot_general %t, %a1, contracting_dims = [1] x [0] : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
  return %t, %r : tensor<16x32xf32>, tensor<16x64xf32>"""


def checked(program: str, network: Network = BYTES_ALONE) -> Partitioned:
    module = hlo.parse(program)
    hlo.verify(module)
    made = partition(module, network=network)
    arrays = random_arrays(module.entry, 3, module)
    for found, whole in zip(on_a_grid(made, arrays), interp.evaluate(module, *arrays), strict=True):
        assert found.tobytes() == whole.tobytes()
    return made


def test_a_one_hot_matrix_is_made_again_of_its_numbers() -> None:
    """Rows of it are there; the product wants all of it for its columns: 16 numbers move, not 16 x 32."""
    spread = [("16xi32", '[{"x"}]'), ("32x64xf32", '[{}, {"x"}]')]
    program = module_text('"x"=4', spread, MASK, [("16x32xf32", '[{"x"}, {}]'), ("16x64xf32", '[{}, {"x"}]')])
    made = checked(program)
    assert [(c.kind, c.sent_bytes) for c in made.communications] == [("all_gather", 4 * 4 * 3)], made.explain()


def test_work_that_is_dearer_than_moving_is_not_done_again() -> None:
    spread = [("16xi32", '[{"x"}]'), ("32x64xf32", '[{}, {"x"}]')]
    program = module_text('"x"=4', spread, MASK, [("16x32xf32", '[{"x"}, {}]'), ("16x64xf32", '[{}, {"x"}]')])
    slow = Network(latency_seconds=0, bytes_per_second=1e12, work_per_second=1e3)
    kinds = {(c.kind, c.sent_bytes) for c in checked(program, slow).communications}
    assert ("all_gather", 4 * 4 * 3) not in kinds


RING = """module {{ sdy.mesh @m = <["x"=2, "y"=2]>
  func.func @main(%a: tensor<8x4xf32>) -> tensor<8x4xf32> {{
    %0 = sdy.manual_computation(%a) in_shardings=[<@m, [{{"y"}}, {{}}]>] out_shardings=[<@m, [{{"y"}}, {{}}]>] manual_axes={{"x", "y"}}
      (%b: tensor<4x4xf32>) {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %end = stablehlo.constant dense<5> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %s = %b) : tensor<i32>, tensor<4x4xf32>
        cond {{ %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1> }}
        do {{ %j = stablehlo.add %i, %one : tensor<i32>
          %p = func.call @next(%s) : (tensor<4x4xf32>) -> tensor<4x4xf32>
          stablehlo.return %j, %p : tensor<i32>, tensor<4x4xf32> }}
      sdy.return %r#1 : tensor<4x4xf32>
    }} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %0 : tensor<8x4xf32> }}
  func.func private @next(%s: tensor<4x4xf32>) -> tensor<4x4xf32> {{
    %p = "stablehlo.collective_permute"(%s) {{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
      source_target_pairs = dense<{pairs}> : tensor<4x2xi64>}} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %p : tensor<4x4xf32> }} }}"""


def test_collectives_of_a_body_for_one_process_are_counted() -> None:
    """`plan --mesh` said of a ring that is written by hand that nothing is sent."""
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    made = partition(hlo.parse(RING.format(pairs="[[0, 1], [1, 0], [2, 3], [3, 2]]")))
    assert np.array_equal(on_a_grid(made, (x,))[0], np.concatenate([x[4:], x[:4]]))
    (found,) = made.communications
    assert (found.kind, found.sent_bytes, found.times, [str(d) for d in found.digits]) == ("collective_permute", 64, 5, ["y"])
    assert "along y: each process sends 64 bytes, 5 times; the program itself says so" in made.explain()
    assert made.work_seconds > 0 and made.seconds > made.work_seconds
    made = partition(hlo.parse(RING.format(pairs="[[0, 0], [1, 1], [2, 2], [3, 3]]")))
    assert made.communications == () and np.array_equal(on_a_grid(made, (x,))[0], x)
