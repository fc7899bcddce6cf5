"""How fast the evaluator is on one large op of each kind: `python benchmarks/interp_speed.py`.

Each op is run once to warm up and then `--repeat` times; the median is printed beside the time that the op is meant
to stay below.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import hlo
import interp

Array = np.ndarray[Any, Any]

ADD = """({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
  })"""


@dataclass(frozen=True)
class Case:
    """A program of one op, its inputs, and the time in seconds that it should stay below."""

    name: str
    text: str
    inputs: Callable[[np.random.Generator], list[Array]]
    goal_seconds: float


def _f32(*shape: int) -> Callable[[np.random.Generator], list[Array]]:
    return lambda rng: [rng.normal(size=shape).astype(np.float32)]


CASES = (
    Case(
        "dot_general 512x512x512",
        """func.func @main(%a: tensor<512x512xf32>, %b: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  return %r : tensor<512x512xf32>
}""",
        lambda rng: [rng.normal(size=(512, 512)).astype(np.float32) for _ in range(2)],
        0.1,
    ),
    Case(
        "convolution 1x56x56x64 -> 64, 3x3",
        """func.func @main(%a: tensor<1x56x56x64xf32>, %b: tensor<3x3x64x64xf32>) -> tensor<1x56x56x64xf32> {
  %r = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x56x56x64xf32>, tensor<3x3x64x64xf32>) -> tensor<1x56x56x64xf32>
  return %r : tensor<1x56x56x64xf32>
}""",
        lambda rng: [rng.normal(size=s).astype(np.float32) for s in ((1, 56, 56, 64), (3, 3, 64, 64))],
        0.5,
    ),
    Case(
        "reduce_window 3x3 over 1000x1000",
        f"""func.func @main(%a: tensor<1000x1000xf32>, %i: tensor<f32>) -> tensor<1000x1000xf32> {{
  %r = "stablehlo.reduce_window"(%a, %i) {ADD} {{window_dimensions = array<i64: 3, 3>,
    padding = dense<1> : tensor<2x2xi64>}} : (tensor<1000x1000xf32>, tensor<f32>) -> tensor<1000x1000xf32>
  return %r : tensor<1000x1000xf32>
}}""",
        lambda rng: [*_f32(1000, 1000)(rng), np.zeros((), np.float32)],
        1.0,
    ),
    Case(
        "reduce_window, running sum of 1000000",
        f"""func.func @main(%a: tensor<1000000xf32>, %i: tensor<f32>) -> tensor<1000000xf32> {{
  %r = "stablehlo.reduce_window"(%a, %i) {ADD} {{window_dimensions = array<i64: 1000000>,
    padding = dense<[[999999, 0]]> : tensor<1x2xi64>}} : (tensor<1000000xf32>, tensor<f32>) -> tensor<1000000xf32>
  return %r : tensor<1000000xf32>
}}""",
        lambda rng: [*_f32(1_000_000)(rng), np.zeros((), np.float32)],
        1.0,
    ),
    Case(
        "gather of 1000000 elements",
        """func.func @main(%a: tensor<1000000xf32>, %i: tensor<1000000x1xi32>) -> tensor<1000000xf32> {
  %r = "stablehlo.gather"(%a, %i) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}
    : (tensor<1000000xf32>, tensor<1000000x1xi32>) -> tensor<1000000xf32>
  return %r : tensor<1000000xf32>
}""",
        lambda rng: [*_f32(1_000_000)(rng), rng.integers(0, 1_000_000, (1_000_000, 1)).astype(np.int32)],
        1.0,
    ),
    Case(
        "scatter-add of 1000000 updates",
        f"""func.func @main(%a: tensor<1000000xf32>, %i: tensor<1000000x1xi32>, %u: tensor<1000000xf32>) -> tensor<1000000xf32> {{
  %r = "stablehlo.scatter"(%a, %i, %u) {ADD} {{scatter_dimension_numbers = #stablehlo.scatter<
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}
    : (tensor<1000000xf32>, tensor<1000000x1xi32>, tensor<1000000xf32>) -> tensor<1000000xf32>
  return %r : tensor<1000000xf32>
}}""",
        lambda rng: [
            *_f32(1_000_000)(rng),
            rng.integers(0, 1_000_000, (1_000_000, 1)).astype(np.int32),
            *_f32(1_000_000)(rng),
        ],
        1.0,
    ),
    Case(
        "sort of 1000000 elements",
        """func.func @main(%a: tensor<1000000xf32>) -> tensor<1000000xf32> {
  %r = "stablehlo.sort"(%a) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %c = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }) {dimension = 0 : i64, is_stable = true} : (tensor<1000000xf32>) -> tensor<1000000xf32>
  return %r : tensor<1000000xf32>
}""",
        _f32(1_000_000),
        1.0,
    ),
    Case(
        "reduce of 1000000 elements",
        f"""func.func @main(%a: tensor<1000000xf32>, %i: tensor<f32>) -> tensor<f32> {{
  %r = "stablehlo.reduce"(%a, %i) {ADD} {{dimensions = array<i64: 0>}} : (tensor<1000000xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}}""",
        lambda rng: [*_f32(1_000_000)(rng), np.zeros((), np.float32)],
        1.0,
    ),
    Case(
        "erf of 1000000 elements",
        """func.func @main(%a: tensor<1000000xf32>) -> tensor<1000000xf32> {
  %r = chlo.erf %a : tensor<1000000xf32> -> tensor<1000000xf32>
  return %r : tensor<1000000xf32>
}""",
        _f32(1_000_000),
        1.0,
    ),
)


def median_seconds(case: Case, repeat: int) -> float:
    """The median time of `repeat` runs after one to warm up."""
    module = hlo.parse(case.text)
    inputs = case.inputs(np.random.default_rng(0))
    interp.evaluate(module, *inputs)
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        interp.evaluate(module, *inputs)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    slow = 0
    for case in CASES:
        seconds = median_seconds(case, repeat)
        slow += seconds > case.goal_seconds
        print(f"{case.name:40} {1e3 * seconds:9.1f} ms   (below {1e3 * case.goal_seconds:.0f} ms)")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
