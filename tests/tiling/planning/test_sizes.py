"""Kernels of bounded size: long chains are cut, and a value read at many indices is not written out at each of them."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tiling.planning.sizes import MOST_KERNEL_NODES, MOST_NODES

pytestmark = pytest.mark.machine("avx512")


def program(lines: list[str], arguments: str, result: str) -> hlo.Module:
    body = "\n  ".join(lines)
    module = hlo.parse(f"func.func @main({arguments}) -> {result} {{\n  {body}\n}}")
    hlo.verify(module)
    return module


def chain(length: int, shape: str = "4x8") -> hlo.Module:
    """x -> |x - 0.5 y|, again and again."""
    t = f"tensor<{shape}xf32>"
    lines, x = [], "%x"
    for k in range(0, length, 2):
        lines += [f"%v{k} = stablehlo.subtract {x}, %y : {t}", f"%v{k + 1} = stablehlo.abs %v{k} : {t}"]
        x = f"%v{k + 1}"
    return program([*lines, f"return {x} : {t}"], f"%x: {t}, %y: {t}", t)


def shifted_sums(times: int) -> hlo.Module:
    """x -> x + (x turned by three places), again and again: 2 ** times reads of one element, were nothing kept."""
    t = "tensor<4x16xf32>"
    lines, x = [], "%x"
    for k in range(times):
        lines += [
            f"%a{k} = stablehlo.slice {x} [0:4, 3:16] : ({t}) -> tensor<4x13xf32>",
            f"%b{k} = stablehlo.slice {x} [0:4, 0:3] : ({t}) -> tensor<4x3xf32>",
            f"%c{k} = stablehlo.concatenate %a{k}, %b{k}, dim = 1 : (tensor<4x13xf32>, tensor<4x3xf32>) -> {t}",
            f"%d{k} = stablehlo.add {x}, %c{k} : {t}",
        ]
        x = f"%d{k}"
    return program([*lines, f"return {x} : {t}"], f"%x: {t}", t)


@pytest.mark.parametrize("length", [100, 1000, 4000])
def test_a_long_chain_becomes_kernels_of_bounded_size(length: int) -> None:
    plan = tiling.plan(chain(length), supports=codegen.supports)
    assert not plan.fallbacks
    assert sum(len(f.ops) for f in plan.fusions) == length
    assert max(len(f.ops) for f in plan.fusions) <= MOST_KERNEL_NODES
    assert len(plan.fusions) <= -(-length // (MOST_NODES // 2))


def test_a_cut_chain_gives_the_evaluators_numbers() -> None:
    module = chain(500)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((4, 8), np.float32) for _ in range(2)]
    exe = codegen.compile(module)
    assert len(exe.kernels) > 1
    np.testing.assert_array_equal(exe(*arrays)[0], interp.evaluate(module, *arrays)[0])


def test_sums_of_shifted_selves_are_kept_before_they_explode() -> None:
    module = shifted_sums(12)
    x = np.random.default_rng(1).standard_normal((4, 16), np.float32)
    exe = codegen.compile(module)
    assert not exe.fallbacks
    assert sum(len(k.source) for k in exe.kernels) < 400_000
    np.testing.assert_array_equal(exe(x)[0], interp.evaluate(module, x)[0])


def test_what_is_not_joined_for_its_size_says_so() -> None:
    plan = tiling.plan(chain(1000), supports=codegen.supports)
    assert any("the most that compile soon" in d.reason for d in plan.decisions if not d.fused)
