"""Results on machines that are not there: plans for other caches, cores and vectors, run by whatever there is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.target import Target, default_target, host_target
from hlo.errors import SettingError
from tests.codegen.contract.test_contractions import convolution, dot
from tests.codegen.contract.test_transposed_convolutions import CASES
from tests.machines import MACHINES
from tests.random_programs import random_program
from tilewright.check import compare
from tilewright.inputs import random_arrays
from tiling import Machine

ODD = {
    **MACHINES,
    "one small core": Machine(cores=1, vector_bytes=16, vector_registers=16, l1_bytes=8 << 10, l2_bytes=64 << 10),
    "64 cores": Machine(cores=64, vector_bytes=64, vector_registers=32, l1_bytes=64 << 10, l2_bytes=2 << 20, l3_bytes=256 << 20),
    "128-bit, 32 registers": Machine(cores=8, vector_bytes=16, vector_registers=32, l1_bytes=128 << 10, l2_bytes=16 << 20),
}

SOFTMAX = """func.func @main(%x: tensor<77x130xf32>) -> tensor<77x130xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<77x130xf32>, tensor<f32>) -> tensor<77xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<77xf32>) -> tensor<77x130xf32>
  %s = stablehlo.subtract %x, %mb : tensor<77x130xf32>
  %e = stablehlo.exponential %s : tensor<77x130xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %z = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<77x130xf32>, tensor<f32>) -> tensor<77xf32>
  %zb = stablehlo.broadcast_in_dim %z, dims = [0] : (tensor<77xf32>) -> tensor<77x130xf32>
  %y = stablehlo.divide %e, %zb : tensor<77x130xf32>
  return %y : tensor<77x130xf32>
}"""  # noqa: E501

TURN = """func.func @main(%x: tensor<75x131xcomplex<f32>>) -> tensor<131x75xcomplex<f32>> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<75x131xcomplex<f32>>) -> tensor<131x75xcomplex<f32>>
  return %0 : tensor<131x75xcomplex<f32>>
}"""

PROGRAMS = {
    "softmax": SOFTMAX,
    "turn": TURN,
    "product": dot(50, 70, 90),
    "turned product": dot(37, 41, 130, left="km", right="nk"),
    "bytes": dot(30, 40, 51, types=("i8", "i8", "i32")),
    "bf16": dot(30, 40, 51, types=("bf16",) * 3),
    "convolution": convolution(3),
    "transposed convolution": CASES["line"].text,
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("machine_name", ODD)
def test_agreement(machine_name: str, program: str) -> None:
    module = hlo.parse(PROGRAMS[program])
    agree(module, random_arrays(module.entry, 0), machine_name)


@pytest.mark.parametrize("seed", [2, 5])
@pytest.mark.parametrize("machine_name", ODD)
def test_random_programs(machine_name: str, seed: int) -> None:
    agree(*random_program(seed), machine_name)


def agree(module: hlo.Module, arrays: Sequence[np.ndarray], machine_name: str) -> None:
    executable = codegen.compile(tiling.plan(module, machine=ODD[machine_name], supports=codegen.supports), threads=3)
    for found, expected in zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True):
        made = compare(np.asarray(found), np.asarray(expected))
        assert made.passed, made


def test_a_target_that_the_cpu_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels ended the process with an illegal instruction."""
    here = host_target()
    if not here.triple.startswith("x86_64"):
        pytest.skip("the named targets are x86")
    old = Target.from_features(here.triple, "sandybridge", "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,-avx2")
    monkeypatch.setattr("codegen.target.host_target", lambda: old)
    monkeypatch.setenv("TILEWRIGHT_TARGET", "avx2")
    with pytest.raises(SettingError, match=r"TILEWRIGHT_TARGET: avx2: this CPU \(sandybridge\) lacks avx2, bmi, "):
        default_target()
    monkeypatch.setenv("TILEWRIGHT_TARGET", "baseline")
    assert default_target().vector_bytes == 16
