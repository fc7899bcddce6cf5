"""The plain interpreter of schedules: what they mean agrees with the evaluator, and what none may do is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hlo
import interp
import tiling
from tests.interpreter.run import Misuse
from tests.mutations.judge import inputs, same
from tests.mutations.programs import MATMUL, SOFTMAX, TINY, TOP_K, parents
from tests.mutations.running import outputs, run_plan
from tests.random_programs import random_program
from tiling.loops.ir import Nest, Scope


def arrays_of(module: hlo.Module, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made = []
    for v in module.function(None).arguments:
        t = v.tensor.dtype
        made.append(rng.integers(0, 5, v.shape).astype(t) if t.kind in "iub" else rng.standard_normal(v.shape).astype(t))
    return made


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    module, _ = random_program(seed)
    agrees(module, seed)


@pytest.mark.parametrize("text", [SOFTMAX, MATMUL, TOP_K])
def test_programs(text: str) -> None:
    agrees(hlo.parse(text), 0)


def agrees(module: hlo.Module, seed: int) -> None:
    plan = tiling.plan(module, machine=TINY)
    arrays = arrays_of(module, seed)
    known = run_plan(plan, arrays)
    given = dict(zip(plan.program.arguments, arrays, strict=True))
    for v, expected in zip(plan.program.results, interp.evaluate(module, *arrays), strict=True):
        found = known.get(v, given.get(v))
        if found is not None:
            assert same(found, np.asarray(expected)), v


def test_memory_that_nothing_wrote_is_not_read() -> None:
    schedule = parents()["softmax"]
    main = schedule.phases[-1]
    wrong = replace(schedule, phases=(*schedule.phases[:-1], replace(main, steps=main.steps[1:])))
    with pytest.raises(Misuse, match="never written"):
        outputs(wrong, next(inputs(schedule)))


def test_positions_stay_inside() -> None:
    schedule = parents()["softmax"]
    main = schedule.phases[-1]
    *before, last = main.steps
    assert isinstance(last, Nest)
    stores = tuple(replace(s, index=(*s.index[:-1], s.index[-1] + 1)) for s in last.stores)
    wrong = replace(schedule, phases=(*schedule.phases[:-1], replace(main, steps=(*before, replace(last, stores=stores)))))
    with pytest.raises(Misuse, match="leaves"):
        outputs(wrong, next(inputs(schedule)))
    assert schedule.buffers_in(Scope.RESULT)
