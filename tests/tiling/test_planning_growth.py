"""How the work of planning grows with a program: counted, not timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import hlo
import tiling
from tiling.lower.neutral import MOST_READ_CONDITIONS, Analysis
from tiling.machine import Machine


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
