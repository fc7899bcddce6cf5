"""The workloads that the planner is judged by: how many kernels each should become, written down with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import codegen
import hlo
import interp
from tests.shipped_plans import MACHINE, planned

PROGRAMS = Path(__file__).parents[2] / "programs"

EXPECTED: dict[str, tuple[int, int, str]] = {
    # name: (kernels at most, evaluator steps at most, reason)
    "rms_norm_residual": (1, 0, "the sum is a second result of the tile whose mean square the norm needs"),
    "swiglu": (2, 0, "both gates read one row tile of x; the last product needs every column of the gated values"),
    "rotary": (2, 0, "powers that all positions share, then one pass: the two halves are read at shifted indices"),
    "grouped_query_attention": (1, 0, "as attention; repeated heads are a read at head // 4"),
    "cross_entropy": (2, 0, "maximum and sum share one pass over the row's tile; the mean over rows reads their small results"),
    "batch_norm_training": (3, 0, "mean and variance run over all rows: every element of the next stage waits for all of them"),
    "group_norm": (2, 0, "a group spans the image: statistics first, then one pass that normalises"),
    "resnet_block": (4, 0, "both weights are transformed first; the second convolution reads neighbours of the first's output"),
    "depthwise_separable": (2, 0, "the pointwise product needs all channels of a pixel, a tile of the depthwise result"),
    "lstm_body": (2, 0, "the four gates come from one product; the cell update reads slices of it"),
    "max_pooling": (1, 0, "one window reduction"),
    "average_pooling": (1, 0, "the division is the window sum's epilogue"),
    "embedding_gradient": (2, 1, "lookup and product in one kernel, then the scatter-add of rows"),
    "mlp_gradient": (8, 0, "two forward products, one backward, two weight gradients, with their epilogues; sums of rows"),
    "top_k": (1, 1, "one selection per row"),
    "cumulative_sum": (1, 0, "one scan"),
}


def test_every_program_has_an_expectation() -> None:
    assert {p.stem for p in PROGRAMS.glob("*.mlir")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_kernels(name: str) -> None:
    plan = planned(PROGRAMS / f"{name}.mlir", kernels=True)
    kernels, evaluated, reason = EXPECTED[name]
    assert len(plan.fallbacks) <= evaluated, [s.reason for s in plan.fallbacks]
    assert len(plan.fusions) <= kernels, f"{reason}\n{plan.explain()}"
    for fusion in plan.fusions:
        assert fusion.bytes_fused <= fusion.bytes_unfused
        assert fusion.schedule.thread_scratch_bytes <= 2 * MACHINE.l2_bytes


@pytest.mark.parametrize("name", EXPECTED)
def test_results(name: str) -> None:
    module = hlo.load(PROGRAMS / f"{name}.mlir")
    rng = np.random.default_rng(1)
    arrays = []
    for v in module.entry.arguments:
        t = v.tensor
        if t.dtype.kind == "i":
            arrays.append(rng.integers(0, 2000, t.static_shape).astype(t.dtype))
        else:
            fan_in = t.static_shape[-2] if t.rank == 2 and t.static_shape[0] != 512 else 1
            arrays.append((rng.standard_normal(t.static_shape) / np.sqrt(fan_in)).astype(t.dtype))
    for found, expected in zip(codegen.compile(module)(*arrays), interp.evaluate(module, *arrays), strict=True):
        if expected.dtype.kind == "i":
            np.testing.assert_array_equal(found, expected)
        else:
            scale = float(np.sqrt(np.mean(np.square(expected, dtype=np.float64))))
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * scale)
