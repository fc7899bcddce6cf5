"""How the work of planning grows with a program: counted, not timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import hlo
import tiling
from tiling.lower import fusion, member, placing
from tiling.lower.fusion import Lowering
from tiling.lower.neutral import MOST_READ_CONDITIONS, Analysis
from tiling.machine import Machine
from tiling.planning import forms, weigh

ROOT = Path(__file__).parents[3]
FILES = {p.stem: p for folder in ("examples", "tests/programs") for p in sorted((ROOT / folder).glob("*.mlir"))}


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Iterator[list[int]]:
    """How often a function is called, as a list of one number."""
    calls = [0]
    whole = getattr(owner, name)

    def count(*args: Any, **keywords: Any) -> Any:
        calls[0] += 1
        return whole(*args, **keywords)

    with monkeypatch.context() as m:
        m.setattr(owner, name, count)
        yield calls


def running_products(levels: int) -> hlo.Module:
    """A scan by doubling over 2^levels rows, written out: x[i] * exp(x[i - 2^k]), 0 before the first row."""
    n = 1 << levels
    lines = ["%z = stablehlo.constant dense<0.0> : tensor<f32>"]
    x = "%x"
    for k in range(levels):
        m = n - (1 << k)
        lines += [
            f"%e{k} = stablehlo.exponential {x} : tensor<{n}x128xf32>",
            f"%s{k} = stablehlo.slice %e{k} [0:{m}, 0:128] : (tensor<{n}x128xf32>) -> tensor<{m}x128xf32>",
            f"%p{k} = stablehlo.pad %s{k}, %z, low = [{1 << k}, 0], high = [0, 0], interior = [0, 0]"
            f" : (tensor<{m}x128xf32>, tensor<f32>) -> tensor<{n}x128xf32>",
            f"%y{k} = stablehlo.multiply {x}, %p{k} : tensor<{n}x128xf32>",
        ]
        x = f"%y{k}"
    lines += [
        f"%sum = stablehlo.reduce({x} init: %z) applies stablehlo.add across dimensions = [0]"
        f" : (tensor<{n}x128xf32>, tensor<f32>) -> tensor<128xf32>",
        "return %sum : tensor<128xf32>",
    ]
    body = "\n  ".join(lines)
    return hlo.parse(f"func.func @main(%x: tensor<{n}x128xf32>) -> tensor<128xf32> {{\n  {body}\n}}")


def test_conditions_of_a_scan_are_looked_at_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of a scan that is written out doubles the conditions that its elements depend on: the search for masks ends."""
    with counted(monkeypatch, Analysis, "_evaluate") as few:
        tiling.plan(running_products(3), machine=Machine())
    with counted(monkeypatch, Analysis, "_evaluate") as many:
        plan = tiling.plan(running_products(7), machine=Machine())
    assert few[0] > 0
    assert many[0] < 20 * few[0]
    assert any(f"more than {MOST_READ_CONDITIONS} conditions" in note for f in plan.fusions for note in f.schedule.notes)


def blocks(layers: int) -> hlo.Module:
    """Layers x = tanh(rows(x) @ w + b) * g, each with weights and a normalisation of its own, and an update of each weight."""
    types = ", ".join(f"%w{k}: tensor<64x64xf32>, %b{k}: tensor<64xf32>, %m{k}: tensor<64x64xf32>" for k in range(layers))
    lines = ["%z = stablehlo.constant dense<0.0> : tensor<f32>", "%half = stablehlo.constant dense<0.5> : tensor<64x64xf32>"]
    matrix, vector, x = "tensor<64x64xf32>", "tensor<64xf32>", "%x"
    for k in range(layers):
        lines += [
            f"%q{k} = stablehlo.multiply {x}, {x} : {matrix}",
            f"%s{k} = stablehlo.reduce(%q{k} init: %z) applies stablehlo.add across dimensions = [1]"
            f" : ({matrix}, tensor<f32>) -> {vector}",
            f"%r{k} = stablehlo.rsqrt %s{k} : {vector}",
            f"%n{k} = stablehlo.broadcast_in_dim %r{k}, dims = [0] : ({vector}) -> {matrix}",
            f"%y{k} = stablehlo.multiply {x}, %n{k} : {matrix}",
            f"%d{k} = stablehlo.dot_general %y{k}, %w{k}, contracting_dims = [1] x [0] : ({matrix}, {matrix}) -> {matrix}",
            f"%c{k} = stablehlo.broadcast_in_dim %b{k}, dims = [1] : ({vector}) -> {matrix}",
            f"%a{k} = stablehlo.add %d{k}, %c{k} : {matrix}",
            f"%t{k} = stablehlo.tanh %a{k} : {matrix}",
            f"%h{k} = stablehlo.multiply %m{k}, %half : {matrix}",
            f"%g{k} = stablehlo.add %h{k}, %w{k} : {matrix}",
            f"%e{k} = stablehlo.exponential %g{k} : {matrix}",
            f"%u{k} = stablehlo.subtract %w{k}, %e{k} : {matrix}",
        ]
        x = f"%t{k}"
    results = [x, *(f"%{name}{k}" for k in range(layers) for name in ("g", "u"))]
    lines.append(f"return {', '.join(results)} : {', '.join([matrix] * len(results))}")
    body = "\n  ".join(lines)
    header = f"func.func @main(%x: {matrix}, {types}) -> ({', '.join([matrix] * len(results))})"
    return hlo.parse(f"{header} {{\n  {body}\n}}")


def test_layers_that_are_alike_are_weighed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With twelve layers every kernel of the layers after the first few costs the one lowering of its own schedule."""
    with counted(monkeypatch, Lowering, "run") as runs:
        plan = tiling.plan(blocks(12), machine=Machine())
    with counted(monkeypatch, Lowering, "run") as twice:
        longer = tiling.plan(blocks(24), machine=Machine())
    kernels, more = len(plan.fusions), len(longer.fusions)
    assert runs[0] <= 2 * kernels, f"{runs[0]} lowerings for {kernels} kernels"
    assert twice[0] - runs[0] == more - kernels


LOWERED = (
    "cross_entropy", "depthwise_separable", "encoder_block", "gelu_mlp", "lstm_body", "mlp_gradient", "resnet_block",
    "rms_norm_residual", "rotary", "swiglu",
)  # fmt: skip
MOST_LOWERINGS = 3  # for a kernel, on average


def test_what_is_planned_is_lowered_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fusions and tiles are weighed by what their maps say; what wins is lowered, and what the maps do not tell."""
    kernels = 0
    with counted(monkeypatch, Lowering, "run") as runs:
        for name in LOWERED:
            plan = tiling.plan(hlo.load(FILES[name]), machine=Machine())
            kernels += sum(len(p.fusions) for p in plan.nested())
    assert kernels >= 20
    assert runs[0] <= MOST_LOWERINGS * kernels, f"{runs[0]} lowerings for {kernels} kernels"


def test_the_work_of_weighing_grows_with_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members whose work is found, fusions that are weighed, searches for masks: layers after the first few add none or few."""
    found = []
    for layers in (6, 12):
        with (
            counted(monkeypatch, weigh, "work_of") as works,
            counted(monkeypatch, forms, "sketch") as sketches,
            counted(monkeypatch, fusion, "find_limits") as searches,
        ):
            tiling.plan(blocks(layers), machine=Machine())
        found.append((works[0], sketches[0], searches[0]))
    assert found[0][0] > 0 and found[0][1] > 0
    assert all(more <= 2 * few for few, more in zip(*found, strict=True)), found


def test_simplifications_grow_with_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many layers ask for at most twice as many simplifications."""
    asked = []
    for layers in (6, 12):
        with counted(monkeypatch, placing, "simplify") as calls, counted(monkeypatch, member, "simplify") as others:
            tiling.plan(blocks(layers), machine=Machine())
        asked.append(calls[0] + others[0])
    assert asked[1] <= 2 * asked[0]


def test_joins_element_by_element_are_not_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of stored elementwise results becomes one kernel, and only that kernel is lowered."""
    n, one = 12, "tensor<1000xf32>"
    lines = [f"%v{k + 1} = stablehlo.tanh %v{k} : {one}" for k in range(n)]
    results = ", ".join(f"%v{k + 1}" for k in range(n))
    body = "\n  ".join([*lines, f"return {results} : {', '.join([one] * n)}"])
    module = hlo.parse(f"func.func @main(%v0: {one}) -> ({', '.join([one] * n)}) {{\n  {body}\n}}")
    with counted(monkeypatch, Lowering, "run") as runs:
        plan = tiling.plan(module, machine=Machine())
    assert len(plan.fusions) == 1
    assert all(d.fused and "element by element" in d.reason for d in plan.decisions)
    assert runs[0] <= plan.fusions[0].candidates + 1


EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("softmax", 7), ("layer_norm", 6), ("gelu_mlp", 2), ("encoder_block", 19),
        pytest.param("causal_attention", 8, marks=pytest.mark.slow),  # the encoder block has an attention, too
    ],
)
def test_lowerings_of_the_examples(monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    """Programs whose kernels are all different: what the search for their tiles takes does not grow unnoticed."""
    with counted(monkeypatch, Lowering, "run") as runs:
        plan = tiling.plan(hlo.parse((EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8")), machine=Machine())
    assert runs[0] <= most, f"{runs[0]} lowerings for {len(plan.fusions)} kernels"


@pytest.mark.slow
def test_steps_under_masks_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member under a mask is weighed with and without those around it: with the same bounds it has the same steps."""
    emitted: list[object] = []
    emit = Lowering.emit

    def noted(lowering: Lowering, plan: member.Member) -> Any:
        if lowering.masks is not None and isinstance(lowering, weigh._Weighing) and plan.reduction:
            emitted.append((plan.shape, tuple(lowering.buffers[r.value] for r in plan.reads)))
        return emit(lowering, plan)

    monkeypatch.setattr(Lowering, "emit", noted)
    tiling.plan(hlo.parse((EXAMPLES / "causal_attention.mlir").read_text(encoding="utf-8")), machine=Machine())
    assert len(emitted) <= 1.15 * len(set(emitted)), f"{len(emitted)} times the steps of {len(set(emitted))} members"
