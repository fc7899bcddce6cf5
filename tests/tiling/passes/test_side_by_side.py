"""Loops over operands side by side are cut where each begins."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.supports import supports
from tests.goldens.prints import MACHINES
from tiling.loops.element_ir import Choose, all_nodes
from tiling.loops.ir import Nest
from tiling.pipeline import finished
from tiling.proving.obligations import prove

ROWS = 24


def normed(widths: list[int], dimension: int = 1) -> hlo.Module:
    """Operands side by side, those of the first half beforehand, each column scaled; then all of a row is summed."""

    def shape(n: int) -> str:
        return f"tensor<{ROWS}x{n}xf32>" if dimension else f"tensor<{n}x{ROWS}xf32>"

    half = len(widths) // 2
    given = ", ".join(f"%x{k}: {shape(n)}" for k, n in enumerate(widths))
    whole, first = shape(sum(widths)), shape(sum(widths[:half]))
    left = ", ".join(f"%x{k}" for k in range(half))
    right = ", ".join(f"%x{k}" for k in range(half, len(widths)))
    types = [", ".join(shape(n) for n in part) for part in (widths[:half], widths[half:])]
    return hlo.parse(f"""func.func @main({given}, %s: {whole}) -> {whole} {{
      %a = stablehlo.concatenate {left}, dim = {dimension} : ({types[0]}) -> {first}
      %b = stablehlo.concatenate %a, {right}, dim = {dimension} : ({first}, {types[1]}) -> {whole}
      %c = stablehlo.multiply %b, %s : {whole}
      %d = stablehlo.maximum %c, %s : {whole}
      return %d : {whole} }}""")


def pieces(module: hlo.Module) -> tuple[int, int]:
    """(parts of the innermost loop, choices that are left in them)."""
    (fusion,) = tiling.plan(module, machine=MACHINES["avx2"], supports=supports).fusions
    (nest,) = [s for s in finished(fusion.schedule).main.steps if isinstance(s, Nest)]
    nodes = [n for part in nest.parts for n in all_nodes([s.node for s in part.stores])]
    return len(nest.parts), sum(isinstance(n, Choose) for n in nodes)


@pytest.mark.parametrize("widths", [[32, 64, 8, 16, 32, 24], [9] * 20], ids=str)
def test_each_operand_has_a_loop_of_its_own(widths: list[int]) -> None:
    module, rng = normed(widths), np.random.default_rng(0)
    assert pieces(module) == (len(widths), 0)
    plan = tiling.plan(module, machine=MACHINES["avx2"], supports=supports)
    arrays = [rng.standard_normal(v.shape).astype(np.float32) for v in module.entry.arguments]
    (found,), (expected,) = codegen.compile(plan)(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_array_equal(found, expected)
    proof = prove(plan)
    assert proof.holds, str(proof)


def test_columns_of_few_elements_are_asked_for() -> None:
    assert pieces(normed([3] * 20))[1] > 0
