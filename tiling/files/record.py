"""What makes the planner give a plan again: its pins, and what its search found out.

    record_of(plan)             ->  plain data for JSON
    parsed_record(data)         ->  a Record: `all_pins()` go to `tiling.plan`, `applied_to(plan)` adds decisions and counts
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from hlo.module import Op
from tiling.cost_model import Estimate
from tiling.loops.stage import Stage
from tiling.planning.model import ControlStep, Decision, EvaluatorStep, Fusion, Pin, Plan

__all__ = ["Record", "parsed_record", "record_of"]


Number = tuple[int, ...]


@dataclass(frozen=True)
class Record:
    """What is kept of a plan, and of those of its regions: one list for each op of control flow."""

    pins: tuple[Pin, ...]
    decisions: tuple[Decision, ...]
    looked_at: tuple[int, ...]
    stages: tuple[tuple[Number, ...], ...]  # of each fusion, in the order in which they came together
    estimates: tuple[Estimate, ...]
    regions: tuple[tuple[Record, ...], ...]

    def all_pins(self) -> tuple[Pin, ...]:
        return (*self.pins, *(p for row in self.regions for r in row for p in r.all_pins()))

    def applied_to(self, made: Plan) -> Plan:
        """The plan with its decisions, counts, orders and estimates. Raises ValueError where it is another program's."""
        if len(made.fusions) != len(self.looked_at) or [len(c.regions) for c in made.controls] != [len(r) for r in self.regions]:
            raise ValueError("the record has other steps")
        found = zip(made.fusions, self.looked_at, self.stages, self.estimates, strict=True)
        number = {op: k for k, op in enumerate(made.program.ops)}
        own = {f: replace(f, candidates=n, stages=_ordered(f, numbers, number), estimate=e) for f, n, numbers, e in found}
        below = dict(zip(made.controls, self.regions, strict=True))
        steps: list[Fusion | EvaluatorStep | ControlStep] = []
        for s in made.steps:
            if isinstance(s, Fusion):
                steps.append(own[s])
            elif isinstance(s, ControlStep):
                rows = zip(s.regions, below[s], strict=True)
                steps.append(replace(s, regions=tuple(replace(r, plan=record.applied_to(r.plan)) for r, record in rows)))
            else:
                steps.append(s)
        return replace(made, steps=tuple(steps), decisions=self.decisions)


def record_of(made: Plan, path: tuple[int, ...] = ()) -> dict[str, object]:
    """The record of a plan, or of the region that `path` leads to, as data."""
    number = {op: k for k, op in enumerate(made.program.ops)}
    return {
        "pins": [[list(p.ops), list(p.tile_sizes or ()), list(path), list(p.strips)] for p in made.pins() if not p.region],
        "decisions": [asdict(d) for d in made.decisions],
        "looked_at": [f.candidates for f in made.fusions],
        "stages": [[_number(s, number) for s in f.stages] for f in made.fusions],
        "estimates": [asdict(f.estimate) for f in made.fusions],
        "regions": [
            [record_of(r.plan, (*path, number[c.op], k)) for k, r in enumerate(c.regions)] for c in made.controls
        ],
    }


def _number(stage: Stage, number: Mapping[Op, int]) -> Number:
    """A stage by the number of its op and those of its results: programs that are alike may have other names."""
    return (number[stage.op], *(stage.op.results.index(v) for v in stage.values))


def _ordered(fusion: Fusion, numbers: tuple[Number, ...], number: Mapping[Op, int]) -> tuple[Stage, ...]:
    """The stages of a fusion in this order: pins say what is in a kernel, not how it came together, which its loops tell."""
    found = {_number(s, number): s for s in fusion.stages}
    if sorted(found) != sorted(numbers):
        raise ValueError(f"{fusion.name}: the record has other stages, {numbers}; there is {tuple(found)}")
    return tuple([found[n] for n in numbers])


def parsed_record(document: dict[str, Any]) -> Record:
    """The record of `record_of`'s data. Raises ValueError, KeyError or TypeError for what is none."""
    pins = tuple(Pin(*(tuple(map(int, part)) for part in row)) for row in document["pins"])
    decisions = tuple(Decision(**d) for d in document["decisions"])
    looked_at = tuple(int(n) for n in document["looked_at"])
    if len(looked_at) != sum(not p.strips for p in pins):
        raise ValueError("as many counts as fusions")
    stages = tuple(tuple(tuple(map(int, n)) for n in row) for row in document["stages"])
    estimates = tuple(Estimate(**row) for row in document["estimates"])
    return Record(pins, decisions, looked_at, stages, estimates, tuple(tuple(map(parsed_record, r)) for r in document["regions"]))
