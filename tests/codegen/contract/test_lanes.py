"""Windows lane by lane, as depthwise convolutions have them, and groups: factors of 16 bits, what is computed, proofs."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.supports import supports
from tests.codegen.contract.test_contractions import convolution, tensor
from tests.machines import MACHINES

TOLERANCE = {"f32": 1e-6, "bf16": 8e-3, "f16": 1e-3}


def depthwise(
    element: str, before: str, kernel: str, size: int, channels: int, taps: int, layout: str, prepared: str = ""
) -> str:  # fmt: skip
    """A depthwise convolution, channels last, of an image in type `before`; `prepared` computes %y of %x in type `element`."""
    x, w, out = (4, size, size, channels), (channels, 1, taps, taps), (4, size, size, channels)
    w = w if layout == "oihw" else (taps, taps, 1, channels)
    given, wide, weights, kept = tensor(x, before), tensor(x, element), tensor(w, kernel), tensor(w, element)
    lines = prepared.format(x=given, y=wide)
    lines += "" if kernel == element else f"%c = stablehlo.convert %w : ({weights}) -> {kept}\n"
    names = ("y" if prepared else "x"), ("w" if kernel == element else "c")
    dims = "o, i, 0, 1" if layout == "oihw" else "0, 1, i, o"
    pad = taps // 2
    return f"""func.func @main(%x: {given}, %w: {weights}) -> {tensor(out, element)} {{
      {lines}
      %r = stablehlo.convolution(%{names[0]}, %{names[1]}) dim_numbers = [b, 0, 1, f]x[{dims}]->[b, 0, 1, f],
        window = {{stride = [1, 1], pad = [[{pad}, {pad}], [{pad}, {pad}]]}}
        {{batch_group_count = 1 : i64, feature_group_count = {channels} : i64}} : ({wide}, {kept}) -> {tensor(out, element)}
      return %r : {tensor(out, element)} }}"""


def _check(text: str, element: str) -> codegen.Executable:
    module = hlo.parse(text)
    made = tiling.plan(module, machine=MACHINES["avx512"], supports=supports)
    assert all(tiling.prove(f).holds for f in made.fusions)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.shape).astype(v.tensor.dtype) for v in module.entry.arguments]
    executable = codegen.compile(made)
    (found,), (expected,) = executable(*arrays), interp.evaluate(module, *arrays)
    wide = expected.astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), wide, rtol=0, atol=TOLERANCE[element] * np.abs(wide).max())
    return executable


@pytest.mark.parametrize("layout", ["oihw", "hwio"])
@pytest.mark.parametrize(("size", "taps"), [(10, 7), (40, 3)])
@pytest.mark.parametrize(
    ("element", "kernel"), [("bf16", "bf16"), ("bf16", "f32"), ("f16", "f16"), ("f32", "f32"), ("f32", "bf16")]
)
def test_factors_of_16_bits_are_widened_once(element: str, kernel: str, size: int, taps: int, layout: str) -> None:
    """Each product of a 7 x 7 window gathered its weight and rounded it: 2.1 ms for 4 x 40 x 40 x 40, in f32 0.22."""
    executable = _check(depthwise(element, element, kernel, size, 24, taps, layout), element)
    inner = next(k.source for k in executable.kernels if "reduce_fma(" in k.source)
    products = [line for line in inner.splitlines() if "reduce_fma(" in line]
    assert not any("round_" in line for line in products)
    assert sum(line.strip().startswith("a") for line in products) > len(products) // 2, "sums are in registers"


@pytest.mark.parametrize("before", ["bf16", "f16"])
def test_an_image_that_is_computed_is_kept_as_precise_as_it_is(before: str) -> None:
    """Its copy had the type of what it was made of: an error of 2e-3 in f32."""
    prepared = """%f = stablehlo.convert %x : ({x}) -> {y}
      %k = stablehlo.constant dense<1.2345> : {y}
      %y = stablehlo.multiply %f, %k : {y}
      """
    for size in (12, 20):
        _check(depthwise("f32", before, "f32", size, 40, 3, "oihw", prepared), "f32")


@pytest.mark.parametrize("seed", [129, 138, 173, 195, 213, 248, 251, 254])
def test_sums_of_groups_that_are_kept_apart_are_proved(seed: int) -> None:
    """Groups' columns whose store became one loop have an index by its digits, which was taken for another element; a row without
    a loop of its own had a variable that stands for nothing. Right schedules were refuted."""
    made = tiling.plan(hlo.parse(convolution(seed)), machine=MACHINES["avx512"], supports=supports)
    assert all(tiling.prove(f).holds for f in made.fusions)
