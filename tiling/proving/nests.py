"""The nests of a schedule with their iterations: those of steps, of sequential loops and of packed factors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from hlo.access import Condition
from hlo.module import Op
from indexing.expr import Interval
from tiling.loops.accesses import Reader
from tiling.loops.domains.iterations import Domain
from tiling.loops.ir import Contract, Loop, Nest, Schedule, Sequential

__all__ = ["Located", "nests_of"]


@dataclass(frozen=True, eq=False)
class Located:
    """A nest, its name, the op whose factors it packs (None for others), and `domain(loops, conditions)`: the iterations of loops
    in its place."""

    nest: Nest
    label: str
    packs_for: Op | None
    domain: Callable[[Sequence[Loop], Sequence[Condition]], Domain]


def nests_of(schedule: Schedule) -> Iterator[Located]:
    """Every nest of a schedule, in order."""
    for number, phase in enumerate(schedule.phases):
        for k, step in enumerate((*phase.before, *phase.steps)):
            reader = Reader(schedule, {}, phase, (number, k), "")
            label = f"phase {number} step {k}"
            if isinstance(step, Sequential):
                reader.inside = replace(reader.domain((step.loop,)), blocks=1)
            for s in step.steps if isinstance(step, Sequential) else (step,):
                if isinstance(s, Nest):
                    yield Located(s, label, None, _within(reader, None))
                elif isinstance(s, Contract):
                    base = reader.domain(s.loops)
                    last = (-(-s.k // s.k_block) - 1) * s.k_block
                    around = Domain((*base.variables, (s.k_start, Interval(0, last))), base.held, (), base.shared)
                    for pack in s.pack:
                        yield Located(pack, f"{label} pack", s.op, _within(reader, around))


def _within(reader: Reader, around: Domain | None) -> Callable[[Sequence[Loop], Sequence[Condition]], Domain]:
    return lambda loops, conditions: reader.domain(loops, around, conditions)
