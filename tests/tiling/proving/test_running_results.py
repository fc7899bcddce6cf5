"""Results that go on from step to step: none is started again or read before all of it is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import codegen
import hlo
import tiling
from tests.tiling.elements.test_monoids import BOTH, MACHINE, reduction
from tests.tiling.passes.test_rows_in_lanes import program
from tiling.loops.ir import Nest, Schedule, Step

LANES = {
    "long rows": lambda: reduction(BOTH, "i32", (3, 300), (1,), "0"),
    "rows of five": lambda: hlo.parse(program((203, 5), (0,), "add", "i32")),
    "rows of three": lambda: hlo.parse(program((3, 53, 3), (1,))),
}


def _with_rest(name: str) -> tuple[tiling.Fusion, int, int]:
    """A kernel that folds in lanes, and the phase and the step that fold what is left over in them."""
    (fusion,) = tiling.plan(LANES[name](), machine=MACHINE, supports=codegen.supports).fusions
    fusion = replace(fusion, schedule=tiling.pipeline.finished(fusion.schedule))
    phases = fusion.schedule.phases
    (found,) = [
        (number, k) for number, phase in enumerate(phases) for k, n in enumerate(phase.steps)
        if isinstance(n, Nest) and any(f.carried for f in n.folds)
    ]  # fmt: skip
    return fusion, *found


def _changed(schedule: Schedule, number: int, change: Callable[[list[Step]], None]) -> Schedule:
    phases = list(schedule.phases)
    steps = list(phases[number].steps)
    change(steps)
    phases[number] = replace(phases[number], steps=tuple(steps))
    return replace(schedule, phases=tuple(phases))


@pytest.mark.parametrize("name", LANES)
def test_what_is_left_over_goes_on_in_the_lanes(name: str) -> None:
    """A rest that started again, which loses all that the lanes held, was accepted."""
    fusion, phase, rest = _with_rest(name)
    assert tiling.prove(fusion).holds

    def start_again(steps: list[Step]) -> None:
        nest = steps[rest]
        assert isinstance(nest, Nest)
        steps[rest] = replace(nest, folds=tuple(replace(f, carried=False) for f in nest.folds))

    found = tiling.prove(replace(fusion, schedule=_changed(fusion.schedule, phase, start_again))).refuted
    assert found and any("started again before it was read" in (x.witness or "") for x in found)


@pytest.mark.parametrize("name", LANES)
def test_lanes_are_put_together_once_all_is_in_them(name: str) -> None:
    """Lanes that were read before the rest was folded into them were accepted."""
    fusion, phase, rest = _with_rest(name)

    def swap(steps: list[Step]) -> None:
        steps[rest], steps[rest + 1] = steps[rest + 1], steps[rest]

    found = tiling.prove(replace(fusion, schedule=_changed(fusion.schedule, phase, swap))).refuted
    assert found and any("read before all of it is there" in (x.witness or "") for x in found)
