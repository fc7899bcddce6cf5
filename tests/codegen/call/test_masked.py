"""Masked arrays are refused: nothing computes with their masks."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
from codegen.call.executable import ArgumentError

TEXT = """func.func @main(%a: tensor<{n}xf32>, %x: tensor<{n}xf32>) -> tensor<{n}xf32> {{
  %0 = stablehlo.add %a, %x : tensor<{n}xf32>
  return %0 : tensor<{n}xf32>
}}"""


@pytest.mark.parametrize("n", [3, 40_000])
@pytest.mark.parametrize("masked", [True, False])
def test_a_masked_argument_is_named(n: int, masked: bool) -> None:
    module = hlo.parse(TEXT.format(n=n))
    x = np.ma.masked_array(np.ones(n, np.float32), np.full(n, masked))
    with pytest.raises(ArgumentError, match=r"argument 1 \(%x\): expected an array, found a masked one, whose mask would"):
        codegen.compile(module)(np.ones(n, np.float32), x)
    with pytest.raises(interp.InputError, match=r"argument 1 \(%x\) of @main: expected an array, found a masked one"):
        interp.evaluate(module, np.ones(n, np.float32), x)
    assert codegen.compile(module)(np.ones(n, np.float32), x.filled(0))[0][0] == (1 if masked else 2)
