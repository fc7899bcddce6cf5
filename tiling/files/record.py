"""What makes the planner give a plan again: its pins, and what its search found out.

    record_of(plan)             ->  plain data for JSON
    parsed_record(data)         ->  a Record: `all_pins()` go to `tiling.plan`, `applied_to(plan)` adds decisions and counts
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from tiling.planning.model import ControlStep, Decision, EvaluatorStep, Fusion, Pin, Plan

__all__ = ["Record", "parsed_record", "record_of"]


@dataclass(frozen=True)
class Record:
    """What is kept of a plan, and of those of its regions: one list for each op of control flow."""

    pins: tuple[Pin, ...]
    decisions: tuple[Decision, ...]
    looked_at: tuple[int, ...]
    regions: tuple[tuple[Record, ...], ...]

    def all_pins(self) -> tuple[Pin, ...]:
        return (*self.pins, *(p for row in self.regions for r in row for p in r.all_pins()))

    def applied_to(self, made: Plan) -> Plan:
        """The plan with its decisions and counts. Raises ValueError where it is another program's."""
        if len(made.fusions) != len(self.looked_at) or [len(c.regions) for c in made.controls] != [len(r) for r in self.regions]:
            raise ValueError("the record has other steps")
        counts = dict(zip(made.fusions, self.looked_at, strict=True))
        below = dict(zip(made.controls, self.regions, strict=True))
        steps: list[Fusion | EvaluatorStep | ControlStep] = []
        for s in made.steps:
            if isinstance(s, Fusion):
                steps.append(replace(s, candidates=counts[s]))
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
        "regions": [
            [record_of(r.plan, (*path, number[c.op], k)) for k, r in enumerate(c.regions)] for c in made.controls
        ],
    }


def parsed_record(document: dict[str, Any]) -> Record:
    """The record of `record_of`'s data. Raises ValueError, KeyError or TypeError for what is none."""
    pins = tuple(Pin(*(tuple(map(int, part)) for part in row)) for row in document["pins"])
    decisions = tuple(Decision(**d) for d in document["decisions"])
    looked_at = tuple(int(n) for n in document["looked_at"])
    if len(looked_at) != sum(not p.strips for p in pins):
        raise ValueError("as many counts as fusions")
    return Record(pins, decisions, looked_at, tuple(tuple(map(parsed_record, row)) for row in document["regions"]))
