"""Products of bytes that a program converts to i32 first, as JAX lowers those of two types of bytes."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.native.jit import forget_kernels
from tests.machines import x86_targets

CONVERTED = """func.func @main(%a: tensor<70x130x{left}>, %b: tensor<130x66x{right}>) -> tensor<70x66x{out}> {{
  %x = stablehlo.convert %a : (tensor<70x130x{left}>) -> tensor<70x130x{out}>
  %y = stablehlo.convert %b : (tensor<130x66x{right}>) -> tensor<130x66x{out}>
  %c = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
      : (tensor<70x130x{out}>, tensor<130x66x{out}>) -> tensor<70x66x{out}>
  return %c : tensor<70x66x{out}>
}}"""


@pytest.mark.parametrize("target", [*x86_targets(), "host"])
@pytest.mark.parametrize(("left", "right", "out", "by_bytes"), [
    ("ui8", "i8", "i32", True), ("i8", "ui8", "i32", True), ("i8", "i8", "i32", True), ("ui8", "ui8", "i32", True),
    ("i8", "i8", "i64", False), ("i16", "i8", "i32", False),
])  # fmt: skip
def test_bytes_that_are_converted_first_are_multiplied_as_bytes(
    left: str, right: str, out: str, by_bytes: bool, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_TARGET", target)
    monkeypatch.delenv("TILEWRIGHT_MACHINE", raising=False)
    forget_kernels()
    module = hlo.parse(CONVERTED.format(left=left, right=right, out=out))
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(np.iinfo(v.tensor.dtype).min, np.iinfo(v.tensor.dtype).max, v.shape, endpoint=True).astype(v.tensor.dtype)
        for v in module.entry.arguments
    )
    plan = tiling.plan(module)
    assert ("convert" not in str(plan.fusions[-1].schedule)) is by_bytes
    (found,) = codegen.compile(plan)(a, b)
    np.testing.assert_array_equal(found, interp.evaluate(module, a, b)[0])
