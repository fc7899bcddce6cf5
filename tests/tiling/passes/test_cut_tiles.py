"""Tiles that are cut at the end of a dimension: what a residue's loop has no iteration of is not computed, on every machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from codegen.supports import supports
from indexing.expr import Const, Var, minimum
from tests.codegen.contract.test_transposed_convolutions import CASES, Transposed, arrays_for
from tests.pairs import fast_cover
from tiling import Contract, Loop, Machine, Plan

SSE = Machine(vector_bytes=16, vector_registers=16, l2_bytes=256 << 10, l3_bytes=4 << 20, cores=4)
AVX2 = Machine(vector_bytes=32, vector_registers=16, l2_bytes=512 << 10, l3_bytes=16 << 20, cores=2)
NEON = Machine(vector_bytes=16, vector_registers=32, cores=8)
AVX512 = Machine(vector_bytes=64, vector_registers=32, cores=2)
MACHINES = {"sse": SSE, "avx2": AVX2, "neon": NEON, "avx512": AVX512}


def planned(case: Transposed, machine: Machine, rows: int | None = None) -> Plan:
    """The plan of a transposed convolution; with tiles of that many rows."""
    module = hlo.parse(case.text)
    found = tiling.plan(module, machine=machine, supports=supports)
    if rows is None:
        return found
    (pin,) = found.pins()
    sizes = (1, rows, *case.result[1:], case.channels[1])
    return tiling.plan(module, machine=machine, supports=supports, pins=[replace(pin, tile_sizes=sizes)])


def check(case: Transposed, made: Plan) -> None:
    """The plan is proved, and its results are the evaluator's."""
    proof = tiling.prove(made)
    assert proof.holds, "\n".join(map(str, (*proof.refuted, *proof.undecided)))
    if made.machine.vector_bytes < 32:
        return  # panels narrower than this machine's vectors: such a plan is only proved here
    module, arrays = arrays_for(case)
    executable = codegen.compile(made)
    assert not executable.fallbacks
    assert [f.schedule for f in executable.plan.fusions] == [f.schedule for f in made.fusions]  # nothing had to be replaced
    (found,), (expected,) = executable(*arrays), interp.evaluate(module, *arrays)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("machine", MACHINES)
def test_three_rows_of_22_on_every_machine(machine: str) -> None:
    """lhs_dilate 3, result 2 x 22 x 39 x 32: 22 is no multiple of 3, the last tile has one row and two residues have none."""
    case = CASES["three"]
    assert case.result == (22, 39)
    made = planned(case, MACHINES[machine], rows=3)
    assert made.fusions[0].tile_sizes == (1, 3, 39, 32)
    check(case, made)


def test_the_avx2_plan_of_three_is_right() -> None:
    check(CASES["three"], planned(CASES["three"], AVX2))


CUT = [(2, 3, 2), (2, 5, 2), (3, 3, 3), (3, 4, 3), (3, 5, 6), (4, 5, 4)]


@pytest.mark.parametrize(("holes", "window", "rows"), fast_cover(CUT, strength=1))
def test_the_last_tile_has_fewer_rows_than_there_are_residues(holes: int, window: int, rows: int) -> None:
    cases = (
        Transposed(size=(6, 6), window=(window, 3), channels=(16, 32), holes=(holes, 2), pads=((1, high), (1, 2)))
        for high in (window - 1, window)
    )
    case = next(c for c in cases if c.result[0] % rows == 1 or c.result[0] % rows == rows - 1)
    check(case, planned(case, AVX2, rows))


def test_integers_need_no_flag_and_are_cut_as_well() -> None:
    case = replace(CASES["three"], types=("i32",) * 3)
    module, arrays = arrays_for(case)
    made = planned(case, AVX2, rows=3)
    assert tiling.prove(made).holds
    np.testing.assert_array_equal(codegen.compile(made)(*arrays)[0], interp.evaluate(module, *arrays)[0])


def test_an_extent_of_one_is_not_one_iteration() -> None:
    v, t = Var("i"), Var("t")
    assert Loop(v, Const(0), Const(0), 1).runs_once
    assert not Loop(v, Const(0), Const(1), 2).runs_once
    assert not Loop(v, Const(0), minimum(0, 3 - t * 2), 1).runs_once


def test_residues_that_may_have_no_rows_keep_their_loop() -> None:
    """One row of three is always there; the other two have a loop around their products that may be empty."""
    made = planned(CASES["three"], AVX2, rows=3)
    products = [s for s in made.fusions[0].schedule.main.all_steps if isinstance(s, Contract)]
    cut = [s for s in products if any(not x.runs_once and x.extent == 1 and "once" not in x.variable.name for x in s.loops)]
    assert (len(products), len(cut)) == (9, 6)
