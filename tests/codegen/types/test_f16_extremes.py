"""Maxima and minima of halves: by their bits, as vectors, with NaN and the signs of zeros as the specification has them."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
from codegen.native.jit import kernel_assembly
from codegen.native.signature import KernelSignature, Param
from codegen.target import Target, host_target

COLUMNS = """func.func @main(%x: tensor<{rows}x24xf16>, %y: tensor<{rows}x24xf16>) -> (tensor<24xf16>, tensor<{rows}x24xf16>) {{
  %z = stablehlo.constant dense<{start}> : tensor<f16>
  %r = stablehlo.reduce(%x init: %z) applies stablehlo.{name} across dimensions = [0]
       : (tensor<{rows}x24xf16>, tensor<f16>) -> tensor<24xf16>
  %e = stablehlo.{name} %x, %y : tensor<{rows}x24xf16>
  return %r, %e : tensor<24xf16>, tensor<{rows}x24xf16>
}}"""


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("rows", [3, 40])
def test_extremes_of_halves_are_the_evaluators_bit_by_bit(name: str, rows: int) -> None:
    module = hlo.parse(COLUMNS.format(name=name, rows=rows, start="0xFC00" if name == "maximum" else "0x7C00"))
    special = np.array([0.0, -0.0, np.inf, -np.inf, 6e-8, -6e-8, 65504.0, -65504.0], np.float16)
    x, y = np.random.default_rng(rows).choice(special, (2, rows, 24))
    x[1, 3], y[0, 5] = np.array([0x7E01, 0xFE01], np.uint16).view(np.float16)  # NaN of either sign
    for found, expected in zip(codegen.compile(module)(x, y), interp.evaluate(module, x, y), strict=True):
        nan = np.isnan(expected)
        np.testing.assert_array_equal(np.isnan(found), nan)
        np.testing.assert_array_equal(found.view(np.uint16)[~nan], expected.view(np.uint16)[~nan])


@pytest.mark.skipif(not host_target().triple.startswith("x86_64"), reason="x86-64 targets")
@pytest.mark.parametrize(("target", "register"), [("avx2", "ymm"), ("avx512", "zmm")])
def test_extremes_of_several_halves_are_vector_code(target: str, register: str) -> None:
    """LLVM made them extremes of halves and those one by one: 60 times as slow, for columns and for windows."""
    source = (
        "def kernel(begin, end, x, y, r):\n    for i in range(1024):\n"
        "        r[i] = float16_maximum(r[i], float16_maximum(x[i], y[i]))\n"
    )
    text = kernel_assembly(source, KernelSignature(tuple(Param(p, "float16") for p in "xyr")), Target.named(target))
    assert [line for line in text.splitlines() if "vpmaxsw" in line and register in line]
    assert "vcvtph2ps" not in text
