"""A fusion's figures from its maps are those of the schedule that it gets."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path

import pytest

import codegen
import hlo
import tiling
from hlo.errors import Declined
from tests.random_programs import random_program
from tests.threads import needs_fork
from tiling.loops.ir import Contract, Nest, Schedule, Turn
from tiling.lower.placing import FusionRequest
from tiling.machine import Machine
from tiling.planning import search
from tiling.planning.costs.estimate import estimate
from tiling.planning.forms import lower, weigh
from tiling.planning.garbage import NEW_OBJECTS, OBJECTS_OF_OP, few_collections
from tiling.planning.weigh import Sketch, floor

ROOT = Path(__file__).parents[3]
FILES = {p.stem: p for folder in ("examples", "tests/programs") for p in sorted((ROOT / folder).glob("*.mlir"))}
MACHINE = Machine(vector_bytes=32)
SEEDS = 12
SAME = 1e-9  # of seconds: sums in another order. All other figures are equal.
LEAST_TOLD = 0.75  # of all requests are told by maps alone


def requests(plan: tiling.Plan) -> list[FusionRequest]:
    """Each fusion of a plan, and each of its stages alone, whole, in the plan's tiles, and cut along each dimension."""
    found = []
    for f in plan.fusions:
        alone = [((s,), frozenset(map(id, s.values)), ()) for s in f.stages] if len(f.stages) > 1 else []
        for stages, stored, taken in [(tuple(f.stages), frozenset(map(id, f.outputs)), f.schedule.tile_sizes), *alone]:
            shape = stages[-1].values[0].shape
            sizes = {shape: None, tuple(taken) or shape: None}
            for k, n in enumerate(shape):
                if n > 1:
                    sizes[tuple(-(-n // 3) if i == k else m for i, m in enumerate(shape))] = None
            if len(shape) > 1:
                sizes[tuple(min(n, 8 if k else 3) for k, n in enumerate(shape))] = None
            found += [FusionRequest(stages, stored, s) for s in sizes]
    return found


def compare(plan: tiling.Plan) -> tuple[int, int]:
    """Compares both ways for a plan's fusions; how many requests the maps told of, and how many there were."""
    told, asked = 0, requests(plan)
    wholes: dict[object, Sketch] = {}
    for request in asked:
        weighed, made = (f(request, MACHINE, plan.names) for f in (weigh, lower))
        what = f"{[s.op.name for s in request.stages]} in tiles {request.tile_sizes}"
        if isinstance(made, Declined) or isinstance(weighed, Declined):
            assert isinstance(made, Declined) and isinstance(weighed, Declined), what
            assert made.reason == weighed.reason, what
            told += 1
            continue
        if isinstance(weighed, Schedule):
            continue
        told += 1
        assert isinstance(weighed, Sketch)
        there = estimate(made, MACHINE)
        if request.tile_sizes == request.root.values[0].shape:
            wholes[request.stages, request.stored] = weighed
        floors = [floor(request, MACHINE, plan.names, w) for w in (None, wholes.get((request.stages, request.stored)))]
        assert floors[0] <= floors[1] <= there.seconds * (1 + SAME), f"the floors of {what}"
        for name in ("seconds", "arithmetic_seconds", "traffic_seconds"):
            figure = getattr(there, name)
            assert getattr(weighed.estimate, name) == pytest.approx(figure, rel=SAME, abs=1e-18), f"{name} of {what}"
        assert weighed.estimate.memory_bytes == there.memory_bytes, what
        assert weighed.estimate.cache_bytes == there.cache_bytes, what
        assert weighed.scratch_bytes == made.thread_scratch_bytes, what
        assert weighed.tile_sizes == made.tile_sizes, what
        assert (weighed.form, weighed.notes) == (made.form, made.notes), what
        assert weighed.is_bounded == any(p.flags for p in made.phases), what
        contracts = [s for s in made.phases[-1].steps if isinstance(s, Contract)]
        roles = [(c.value, c.m, c.n, c.k, c.row_dimensions, c.column_dimension) for c in contracts]
        assert [(c.value, c.m, c.n, c.k, c.row_dimensions, c.column_dimension) for c in weighed.contracts] == roles, what
        assert weighed.streams == all(isinstance(s, (Nest, Turn)) for p in made.phases for s in p.steps), what
    return told, len(asked)


@pytest.mark.parametrize("name", sorted(FILES))
def test_figures_are_those_of_the_schedule(name: str) -> None:
    compare(tiling.plan(hlo.load(FILES[name]), machine=MACHINE, supports=codegen.supports))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_figures_of_random_programs(seed: int) -> None:
    compare(tiling.plan(random_program(seed)[0], machine=MACHINE, supports=codegen.supports))


def test_most_fusions_are_told_by_maps() -> None:
    told = asked = 0
    for name in ("encoder_block", "gelu_mlp", "layer_norm", "softmax", "mlp_gradient", "swiglu"):
        some, count = compare(tiling.plan(hlo.load(FILES[name]), machine=MACHINE, supports=codegen.supports))
        told, asked = told + some, asked + count
    assert told >= LEAST_TOLD * asked, f"{told} of {asked}"


def test_collections_are_few_while_planning_and_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with few_collections():
        assert gc.get_threshold()[0] >= NEW_OBJECTS
        with few_collections():
            assert gc.get_threshold()[0] >= NEW_OBJECTS
        assert gc.get_threshold()[0] >= NEW_OBJECTS
        with few_collections(20_000):
            assert gc.get_threshold()[0] >= 20_000 * OBJECTS_OF_OP
    assert gc.get_threshold() == before
    with pytest.raises(ZeroDivisionError), few_collections():
        raise ZeroDivisionError
    assert gc.get_threshold() == before


def test_circles_that_are_made_meanwhile_go_with_the_next_young_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts as old at once stays until all that there is is walked: .1 MB of LLVM's modules for each program."""

    class Circle:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)  # as in a user's process: these tests freeze what modules keep
    with few_collections():
        seen = weakref.ref(Circle())
    gc.collect(1)
    assert seen() is None


def test_a_collector_that_is_off_stays_off() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0, *before[1:])
    try:
        with few_collections():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


@needs_fork
def test_a_child_has_the_threshold_from_before() -> None:
    before = gc.get_threshold()
    with few_collections():
        child = os.fork()
        if not child:
            os._exit(0 if gc.get_threshold() == before else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_sizes_that_cannot_win_are_not_weighed_and_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiling's products at the peak, in whole tasks, take longer than another tiling does: it is passed over, but counted."""
    text = FILES["encoder_block"].read_text("utf-8")
    judged: list[FusionRequest] = []
    whole = search.weigh

    def counting(request: FusionRequest, machine: Machine, names: object) -> object:
        judged.append(request)
        return whole(request, machine, names)  # type: ignore[arg-type]

    def planned() -> tuple[list[str], list[tuple[tuple[int, ...], int]], int]:
        judged.clear()
        plan = tiling.plan(hlo.parse(text), machine=MACHINE, supports=codegen.supports)
        return [str(d) for d in plan.decisions], [(f.tile_sizes, f.candidates) for f in plan.fusions], len(judged)

    monkeypatch.setattr(search, "weigh", counting)
    *found, fewer = planned()
    monkeypatch.setattr(search._Each, "floor", lambda self, sizes: 0.0)
    *expected, every = planned()
    assert found == expected
    assert fewer < every


def test_what_is_left_of_a_block_of_registers_counts_in_floors() -> None:
    """Blocks of six rows: a task of seven takes the time of twelve, so it cannot be better than one of twelve."""
    text = """func.func @main(%a: tensor<504x256xf32>, %b: tensor<256x512xf32>) -> tensor<504x512xf32> {
      %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
           : (tensor<504x256xf32>, tensor<256x512xf32>) -> tensor<504x512xf32>
      return %c : tensor<504x512xf32>
    }"""
    machine = tiling.Machine(cores=2, vector_bytes=32, vector_registers=16)
    plan = tiling.plan(hlo.parse(text), machine=machine, supports=codegen.supports)
    (stage,) = plan.fusions[0].stages
    stored = frozenset(stage.values)
    whole = weigh(FusionRequest((stage,), stored, (504, 512)), machine, plan.names)
    assert isinstance(whole, Sketch)
    asked = {rows: FusionRequest((stage,), stored, (rows, 64)) for rows in (7, 12)}
    floors = {rows: floor(request, machine, plan.names, whole) for rows, request in asked.items()}
    assert floors[7] > 1.5 * floors[12]
    for rows, request in asked.items():
        weighed = weigh(request, machine, plan.names)
        assert isinstance(weighed, Sketch) and floors[rows] <= weighed.estimate.seconds


def test_a_convolution_whose_sums_lie_in_scratch_has_no_rows_of_groups() -> None:
    """Its buffer has fewer dimensions than its result: the search looked for strides that are not there."""
    text = """func.func @main(%x: tensor<1x2x5x4xf32>, %w: tensor<4x2x3x3xf32>) -> tensor<1x4x10x12xf32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
        window = {stride = [1, 1], pad = [[1, 2], [2, 2]], lhs_dilate = [2, 3], rhs_dilate = [1, 1]}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x2x5x4xf32>, tensor<4x2x3x3xf32>) -> tensor<1x4x10x12xf32>
      return %0 : tensor<1x4x10x12xf32> }"""
    for vector_bytes, registers in ((16, 16), (32, 16), (64, 32)):
        (kernel,) = tiling.plan(hlo.parse(text), machine=Machine(vector_bytes=vector_bytes, vector_registers=registers)).fusions
        assert kernel.schedule.tile_sizes
