"""Another cost model: what the planner decides follows it, what the program computes does not."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import tiling
from tests.goldens.prints import MACHINES
from tiling import CostModel, Estimate, Machine, Schedule, Scope
from tiling.loops.ir import Contract, Nest

TEXT = """func.func @main(%x: tensor<96x512xf32>, %y: tensor<96x512xf32>) -> (tensor<96x512xf32>, tensor<96x512xf32>) {
  %0 = stablehlo.tanh %x : tensor<96x512xf32>
  %1 = stablehlo.add %0, %y : tensor<96x512xf32>
  %2 = stablehlo.multiply %0, %y : tensor<96x512xf32>
  return %1, %2 : tensor<96x512xf32>, tensor<96x512xf32>
}"""


@dataclass(frozen=True)
class Bytes:
    """The bytes of all buffers that tasks share; no time at all."""

    calls: list[Schedule] = field(default_factory=list, hash=False, compare=False)

    def estimate(self, schedule: Schedule, machine: Machine) -> Estimate:
        self.calls.append(schedule)
        moved = sum(b.size_bytes for scope in (Scope.ARGUMENT, Scope.RESULT, Scope.SHARED) for b in schedule.buffers_in(scope))
        return Estimate(float(moved), 0.0, 0.0, moved, unit="bytes")


class Tasks:
    """The more tasks the better, whatever each of them costs."""

    def estimate(self, schedule: Schedule, machine: Machine) -> Estimate:
        return Estimate(1.0 / sum(p.tasks for p in schedule.phases), 0.0, 0.0, 0)


def planned(model: CostModel | None) -> tiling.Plan:
    return tiling.plan(hlo.parse(TEXT), machine=MACHINES["avx2"], supports=codegen.supports, cost_model=model)


def test_a_model_that_counts_bytes_alone_is_asked_and_its_figures_are_kept() -> None:
    model = Bytes()
    plan = planned(model)
    assert model.calls
    for f in plan.fusions:
        moved = sum(b.size_bytes for b in f.schedule.buffers if b.scope is not Scope.THREAD)
        assert f.estimate.seconds == f.estimate.memory_bytes == moved
    # Two arguments in, two results out: one kernel moves the fewest bytes.
    assert len(plan.fusions) == 1 and plan.fusions[0].estimate.memory_bytes == 4 * 96 * 512 * 4


def test_the_plan_follows_the_model_and_the_results_do_not() -> None:
    plans = [planned(m) for m in (None, Bytes(), Tasks())]
    tasks = [sum(p.tasks for f in plan.fusions for p in f.schedule.phases) for plan in plans]
    assert tasks[2] > max(tasks[:2])
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((96, 512), np.float32) for _ in range(2)]
    expected, *others = [codegen.compile(p)(*arrays) for p in plans]
    for found in others:
        for a, b in zip(found, expected, strict=True):
            assert a.tobytes() == b.tobytes()


def test_what_is_counted_is_named() -> None:
    """Bytes were explained as millions of microseconds."""
    softmax = hlo.load("examples/softmax.mlir")
    plan = tiling.plan(softmax, machine=MACHINES["avx2"], supports=codegen.supports, cost_model=Bytes())
    text, page = plan.explain(), plan.explain("html")
    assert "predicted 134217728 bytes (134217728 bytes of memory)" in text and "134217728 bytes together" in text
    assert not any(d.reason.count("together") > 1 for d in plan.decisions), "the same bytes twice"
    assert plan.decisions and not any(" us " in d.reason for d in plan.decisions) and " us " not in text
    assert "134217728 bytes" in page and '"predicted_unit": "bytes"' in str(plan.explain("json"))


class Number:
    def estimate(self, schedule: Schedule, machine: Machine) -> float:
        return 3.0


class Unknown:
    def estimate(self, schedule: Schedule, machine: Machine) -> Estimate:
        return Estimate(float("nan"), 0.0, 0.0, 0)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Bytes, "expected an object with estimate(schedule, machine), found the class Bytes, no object of it"),
        (3, "expected an object with estimate(schedule, machine), found 3"),
        (Number(), "expected Number.estimate to give a tiling.Estimate whose seconds are a number, found 3.0"),
        (Unknown(), "expected Unknown.estimate to give a tiling.Estimate whose seconds are a number, found Estimate(seconds=nan"),
    ],
)
def test_what_is_no_model_is_said_in_words(model: Any, said: str) -> None:
    """These ended in an AttributeError somewhere in the search, and NaN in whatever candidate came first."""
    with pytest.raises(TypeError, match=re.escape(f"cost_model: {said}")):
        planned(model)


def test_without_a_model_a_plan_is_weighed_in_seconds_of_the_machine() -> None:
    assert planned(None).machine == MACHINES["avx2"]
    assert planned(None).fusions[0].estimate.seconds < 1


class Apart:
    """A kernel that does two things costs far more than two kernels."""

    def estimate(self, schedule: Schedule, machine: Machine) -> Estimate:
        values = {s.value for p in schedule.phases for step in p.all_steps if isinstance(step, Nest) for s in step.stores}
        return Estimate(1.0 if len(values) < 2 else 100.0 * len(values), 0.0, 0.0, 0)


def test_joins_that_go_without_saying_on_a_cpu_are_asked_of_another_model() -> None:
    """Element by element, and the value is a result, too: they were made without asking."""
    text = """func.func @main(%x: tensor<96x512xf32>) -> (tensor<96x512xf32>, tensor<96x512xf32>) {
      %0 = stablehlo.tanh %x : tensor<96x512xf32>
      %1 = stablehlo.negate %0 : tensor<96x512xf32>
      return %0, %1 : tensor<96x512xf32>, tensor<96x512xf32>
    }"""
    cpu, apart = (
        tiling.plan(hlo.parse(text), machine=MACHINES["avx2"], supports=codegen.supports, cost_model=m) for m in (None, Apart())
    )
    assert any(d.fused and d.together is None for d in cpu.decisions)
    assert apart.decisions and all(d.together is not None and not d.fused for d in apart.decisions)
    assert len(apart.fusions) > len(cpu.fusions)


@dataclass(frozen=True)
class Together:
    """A kernel that stores both results: its time and its bytes for each byte of two kernels of one result each."""

    seconds: float
    bytes: float

    def estimate(self, schedule: Schedule, machine: Machine) -> Estimate:
        both = sum(b.size_bytes for b in schedule.buffers_in(Scope.RESULT)) > 96 * 512 * 4
        return Estimate(2 * self.seconds if both else 1.0, 0.0, 0.0, round(200 * self.bytes) if both else 100)


@pytest.mark.parametrize(("seconds", "moved", "kernels"), [(1.005, 0.9, 1), (1.005, 1, 2), (1.02, 0.5, 2), (1, 1, 1)])
def test_of_plans_that_take_nearly_as_long_the_one_that_moves_less_is_taken(seconds: float, moved: float, kernels: int) -> None:
    text = """func.func @main(%x: tensor<96x512xf32>) -> (tensor<96x512xf32>, tensor<96x512xf32>) {
      %0 = stablehlo.tanh %x : tensor<96x512xf32>
      %1 = stablehlo.negate %0 : tensor<96x512xf32>
      return %0, %1 : tensor<96x512xf32>, tensor<96x512xf32>
    }"""
    model = Together(seconds, moved)
    plan = tiling.plan(hlo.parse(text), machine=MACHINES["avx2"], supports=codegen.supports, cost_model=model)
    assert len(plan.fusions) == kernels


def test_products_of_one_vector_of_columns_take_longer_than_half_of_those_of_two() -> None:
    """Each product loads its row's element for itself; columns side by side share it."""

    def arithmetic(columns: int) -> float:
        x, y, z = (f"tensor<{a}x{b}xf32>" for a, b in ((512, 384), (512, columns), (384, columns)))
        text = f"""func.func @main(%x: {x}, %y: {y}) -> {z} {{
          %z = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0] : ({x}, {y}) -> {z}
          return %z : {z}
        }}"""
        (fusion,) = tiling.plan(hlo.parse(text), machine=MACHINES["avx2"], supports=codegen.supports).fusions
        (contract,) = (s for p in fusion.schedule.phases for s in p.steps if isinstance(s, Contract))
        assert contract.n == columns and not contract.kernel.along
        return fusion.estimate.arithmetic_seconds

    assert 2 * arithmetic(8) > 1.2 * arithmetic(16)
