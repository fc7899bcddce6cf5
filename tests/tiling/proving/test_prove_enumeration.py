"""The prover against enumeration: on small schedules, right ones and ones changed at random, both say the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

import tiling
from indexing.expr import Expr, as_expr, evaluate
from tests.random_programs import random_program
from tiling import Loop, Machine, Nest, Phase, Schedule, Scope, prove
from tiling.loops.accesses import accesses_of
from tiling.loops.domains.iterations import Access, Kind

MACHINE = Machine(cores=4, vector_bytes=64, vector_registers=32, l1_bytes=1 << 10, l2_bytes=1 << 12, l3_bytes=1 << 14)
MOST_POINTS = 400_000


class TooLarge(Exception):
    """Carries that a schedule is not for enumeration."""


def rows(a: Access) -> tuple[np.ndarray, np.ndarray]:
    """(tile numbers, positions) of every iteration of an access, one a row, by evaluating its expressions everywhere."""
    spans = a.domain.variables
    if prod(b.size for _, b in spans) > MOST_POINTS:
        raise TooLarge(str(a))
    grids = np.meshgrid(*[np.arange(b.lower, b.upper + 1) for _, b in spans], indexing="ij") if spans else []
    values = {v: g.reshape(-1) for (v, _), g in zip(spans, grids, strict=True)}
    count = len(grids[0].reshape(-1)) if spans else 1

    def column(e: Expr) -> np.ndarray:
        return np.broadcast_to(evaluate(e, values), (count,))

    def all_hold(conditions: Any) -> np.ndarray:
        held = np.ones(count, bool)
        for c in conditions:
            x = column(as_expr(c.expression))
            held &= (c.lower <= x) & (x <= c.upper)
        return held

    kept = all_hold(a.domain.held)
    for group in a.domain.failed:
        kept &= ~all_hold(group)
    tasks = [column(v)[kept] for v, _ in spans[: a.domain.shared]]
    at = [column(e)[kept] for e in a.at]
    n = int(kept.sum())
    return (np.stack(tasks, 1) if tasks else np.zeros((n, 0), int)), (np.stack(at, 1) if at else np.zeros((n, 0), int))


def as_set(*columns: np.ndarray) -> set[tuple[int, ...]]:
    return set(map(tuple, np.concatenate(columns, 1).tolist()))


class Enumeration:
    """What the obligations say, counted out."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        found = list(accesses_of(schedule))
        self.accesses = [a for a in found if isinstance(a, Access)]
        assert len(found) == len(self.accesses)
        self.rows = {id(a): rows(a) for a in self.accesses}

    def faults(self) -> Iterator[tuple[str, str]]:
        """(obligation, subject) of everything that is wrong."""
        for a in self.accesses:
            if not self.inside(a):
                yield "in bounds", str(a)
            if a.kind is not Kind.WRITE and a.buffer.scope is not Scope.ARGUMENT and not self.produced(a):
                yield "produced", str(a)
        for b in self.schedule.buffers:
            if b.scope is Scope.RESULT and not self.once(b):
                yield "written once", b.name
        for number, phase in enumerate(self.schedule.phases):
            for b in self.schedule.buffers:
                if b.scope in (Scope.RESULT, Scope.SHARED) and phase.tasks > 1 and not self.apart(number, b):
                    yield "tasks apart", f"phase {number} {b.name}"

    def inside(self, a: Access) -> bool:
        _, at = self.rows[id(a)]
        limits = np.array(a.buffer.shape, int)
        return bool(((at >= 0) & (at < limits)).all())

    def once(self, b: tiling.Buffer) -> bool:
        if 0 in b.shape:
            return True
        mine = [w for w in self.accesses if w.buffer is b and w.kind is Kind.WRITE and (w.value is None or w.value is b.value)]
        counts = Counter(tuple(p) for w in mine for p in self.rows[id(w)][1].tolist())
        inside = set(np.ndindex(*b.shape))
        return all(n == 1 for n in counts.values()) and inside <= counts.keys()

    def produced(self, a: Access) -> bool:
        """Packs of a contraction are looked at for a whole task: the random programs have one block of the depth."""
        task, at = self.rows[id(a)]
        missing = as_set(task, at)
        n = a.domain.shared
        for w in self.accesses:
            same = a.value is None or w.value is a.value or (w.value is None and w.buffer.value is a.value)
            if w.buffer is not a.buffer or w.kind is not Kind.WRITE or not same:
                continue
            if w.order[0] == a.order[0] and w.order[:3] < a.order[:3]:
                missing -= as_set(*self.rows[id(w)])
            elif w.order[0] < a.order[0] and a.buffer.scope is not Scope.THREAD:
                there = as_set(self.rows[id(w)][1])
                missing = {m for m in missing if m[n:] not in there}
        return not missing

    def apart(self, number: int, b: tiling.Buffer) -> bool:
        inside = [a for a in self.accesses if a.buffer is b and a.order[0] == number]
        writers: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        for a in inside:
            if a.kind is not Kind.READ:
                for t, p in zip(*map(np.ndarray.tolist, self.rows[id(a)]), strict=True):
                    writers.setdefault(tuple(p), set()).add(tuple(t))
        if any(len(w) > 1 for w in writers.values()):
            return False
        for a in inside:
            for t, p in zip(*map(np.ndarray.tolist, self.rows[id(a)]), strict=True):
                if not writers.get(tuple(p), {tuple(t)}) <= {tuple(t)}:
                    return False
        return True


def spoiled(schedule: Schedule, generator: random.Random) -> Schedule:
    """The schedule with one small change somewhere: an index, a bound, a number of tasks or the order of two steps."""
    phases = list(schedule.phases)
    k = generator.randrange(len(phases))
    phase = phases[k]
    steps = list(phase.steps)
    nests = [i for i, s in enumerate(steps) if isinstance(s, Nest) and s.loops]
    what = generator.choice(["index", "bound", "tasks", "order"])
    if what == "tasks" and phase.tiles:
        j = generator.randrange(len(phase.tiles))
        tiles = tuple((v, max(1, n - 1) if i == j else n) for i, (v, n) in enumerate(phase.tiles))
        phases[k] = Phase(tiles, phase.steps)
        return replace(schedule, phases=tuple(phases))
    if what == "order" and len(steps) > 1:
        i = generator.randrange(len(steps) - 1)
        steps[i], steps[i + 1] = steps[i + 1], steps[i]
    elif nests:
        i = generator.choice(nests)
        nest = steps[i]
        assert isinstance(nest, Nest)
        steps[i] = _other_index(nest, generator) if what == "index" else _other_bound(nest, generator)
    phases[k] = Phase(phase.tiles, tuple(steps))
    return replace(schedule, phases=tuple(phases))


def _shifted(index: tuple[Expr, ...], generator: random.Random) -> tuple[Expr, ...]:
    if not index:
        return index
    j = generator.randrange(len(index))
    other: list[Expr] = [index[j] + 1, index[j] - 1, index[j] * 2]
    return (*index[:j], generator.choice(other), *index[j + 1 :])


def _other_index(nest: Nest, generator: random.Random) -> Nest:
    stores = tuple(replace(s, index=_shifted(s.index, generator)) for s in nest.stores)
    folds = tuple(replace(f, index=_shifted(f.index, generator)) for f in nest.folds)
    return replace(nest, stores=stores, folds=folds)


def _other_bound(nest: Nest, generator: random.Random) -> Nest:
    j = generator.randrange(len(nest.loops))
    x = nest.loops[j]
    lower, upper = generator.choice([(x.lower + 1, x.upper), (x.lower, x.upper - 1), (x.lower, x.upper + 1)])
    changed = Loop(x.variable, lower, upper, x.extent + 1, x.kind)
    return replace(nest, loops=(*nest.loops[:j], changed, *nest.loops[j + 1 :]))


def compared(schedule: Schedule) -> set[str] | None:
    """The kinds of faults that both found, None for a schedule too large to enumerate; fails where they differ."""
    try:
        expected = Counter(Enumeration(schedule).faults())
    except TooLarge:
        return None
    kinds = {"in bounds", "produced", "written once", "tasks apart"}
    proof = prove(schedule)
    assert not [o for o in proof.undecided if o.name in kinds], proof
    found = Counter((o.name, o.subject) for o in proof.refuted if o.name in kinds)
    assert found.keys() == expected.keys(), f"{schedule}\nproof: {found}\nenumeration: {expected}"
    return {name for name, _ in found}


def schedules(seed: int) -> Iterator[Schedule]:
    module, _ = random_program(seed)
    for fusion in tiling.plan(module, machine=MACHINE).fusions:
        yield fusion.schedule


@pytest.mark.parametrize("seed", range(12))
def test_right_schedules(seed: int) -> None:
    for schedule in schedules(seed):
        assert not compared(schedule)


def test_spoiled_schedules() -> None:
    generator = random.Random(7)
    seen: Counter[str] = Counter()
    total = 0
    for seed in range(40):
        for schedule in schedules(seed):
            for _ in range(5):
                kinds = compared(spoiled(schedule, generator))
                if kinds is not None:
                    seen.update(kinds)
                    total += 1
    assert total > 150
    assert min(seen[k] for k in ("in bounds", "produced", "written once", "tasks apart")) > 0, seen
