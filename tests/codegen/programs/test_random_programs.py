"""Random programs, planned, compiled and run, agree with the evaluator."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tests.random_programs import random_program
from tiling import Pin

FAST, ALL = 24, 400


def check(seed: int) -> None:
    module, arrays = random_program(seed)
    hlo.verify(module)
    executable = codegen.compile(module)
    assert not executable.fallbacks
    for k, (found, expected) in enumerate(zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True)):
        assert found.shape == expected.shape and found.dtype == expected.dtype
        scale = np.max(np.abs(expected), initial=1e-30, where=np.isfinite(expected))
        np.testing.assert_allclose(
            found, expected, rtol=1e-4, atol=2e-5 * scale, err_msg=f"seed {seed}, result {k}\n{module}"
        )


@pytest.mark.parametrize("seed", range(FAST))
@pytest.mark.every_target
def test_random_program(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FAST, ALL))
def test_more_random_programs(seed: int) -> None:
    check(seed)


def edited(plan: tiling.Plan, choice: random.Random) -> tiling.Plan:
    """The plan with other tile sizes and with some fusions taken apart; the plan itself where the choice cannot be."""
    pins: list[Pin] = []
    for p in plan.pins():
        if len(p.ops) > 1 and choice.random() < 0.15:
            pins += [Pin((k,)) for k in p.ops]
        elif choice.random() < 0.75:
            sizes = tuple(choice.choice((1, 2, 3, 5, 8, 16, 37, n, max(1, n // 2), 2 * n)) for n in p.tile_sizes)
            pins.append(replace(p, tile_sizes=sizes))
        else:
            pins.append(p)
    try:
        return tiling.plan(plan.module, pins=pins)
    except ValueError:
        return plan


# 1000063: the tiles of a product in place of a padded operand, with three bounds on one loop.
@pytest.mark.parametrize("seed", [1000063, *range(900, 912)])
def test_edited_plans_of_random_programs(seed: int) -> None:
    module, arrays = random_program(seed)
    plan = edited(codegen.compile(module).plan, random.Random(seed))
    executable = codegen.compile(plan, threads=1)
    want = interp.evaluate(module, *arrays)
    first = executable(*arrays)
    for found, expected in zip(first, want, strict=True):
        scale = np.max(np.abs(expected), initial=1e-30, where=np.isfinite(expected))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5 * scale, err_msg=f"{module}")
    for threads in (2, 3, 5):
        executable.threads = threads
        assert [a.tobytes() for a in executable(*arrays)] == [a.tobytes() for a in first]
