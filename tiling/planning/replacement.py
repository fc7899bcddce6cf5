"""Other ways to compute what a fusion computes, for one whose schedule must not run.

    other tiles, plain loops     other_schedules(fusion)
    its stages apart             apart(plan, fusion): a plan with a kernel for each of them
    no kernel                    evaluated(plan, fusion): the ops of a kernel of one stage in the evaluator
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hlo.registry import Literal
from tiling.loops.names import Names
from tiling.lower.fusion import Lowering
from tiling.lower.placing import FusionRequest
from tiling.machine import Machine
from tiling.planning.costs.estimate import estimate
from tiling.planning.model import ControlStep, EvaluatorStep, Fusion, Pin, Plan
from tiling.planning.plan import plan
from tiling.planning.reuse import PlanStep
from tiling.program.expand import Supports
from tiling.program.updates.in_place import is_update
from tiling.routines.table import routine_of

__all__ = ["apart", "evaluated", "other_schedules", "with_paths", "with_step"]


def other_schedules(fusion: Fusion, machine: Machine, names: Names) -> Iterator[Fusion]:
    """The fusion with other schedules, the likest first: without what masks leave out, then with more dimensions whole."""
    if any(routine_of(s.op) is not None for s in fusion.stages):
        return  # a routine has one form
    shape = fusion.stages[-1].values[0].shape
    stored = frozenset(fusion.outputs)
    tried: dict[tuple[tuple[int, ...], bool], None] = {(fusion.tile_sizes, False): None}
    sizes = fusion.tile_sizes
    for k in reversed(range(len(sizes))):
        sizes = (*sizes[:k], shape[k], *sizes[k + 1 :])
        tried.update({(sizes, True): None, (sizes, False): None})
    for wanted, masks in tried:
        try:
            made = Lowering(FusionRequest(fusion.stages, stored, wanted, masks), machine, names).run()
        except LookupError:
            continue
        yield replace(fusion, schedule=made, estimate=estimate(made, machine), planned=None)


def apart(made: Plan, path: tuple[int, ...], fusion: Fusion, supports: Supports) -> Plan | None:
    """The plan of the whole program with a kernel for each stage of a fusion in the region at `path`; None where that is none."""
    inside = next(p for at, p in with_paths(made) if at == path)
    number = {op: k for k, op in enumerate(inside.program.ops)}
    mine = Pin(tuple(number[s.op] for s in fusion.stages), fusion.tile_sizes, path)
    single = tuple(Pin((k,), None, path) for k in mine.ops)
    others = tuple(p for p in made.pins() if (p.ops, p.region) != (mine.ops, mine.region))
    try:
        return plan(made.module, made.program.name, made.machine, supports, (*others, *single), donate=made.donate)
    except ValueError:
        return None  # a stage that has a schedule beside the others only


def evaluated(fusion: Fusion, inside: Plan, reason: str) -> tuple[EvaluatorStep, ...] | None:
    """The ops of a fusion of one stage as steps of the evaluator; None for an op that only a routine knows."""
    if len(fusion.stages) != 1 or any(is_update(op) for op in fusion.ops):
        return None
    ops = [op for op in fusion.ops if not isinstance(op.definition.semantics, Literal)]
    return tuple(EvaluatorStep(inside.names.of(op.results[0]), op, reason) for op in ops)


def with_step(made: Plan, old: Fusion, new: tuple[PlanStep, ...]) -> Plan:
    """The plan with other steps in place of a fusion, wherever in its regions that is."""
    steps: list[PlanStep] = []
    for s in made.steps:
        if s is old:
            steps += new
        elif isinstance(s, ControlStep):
            steps.append(replace(s, regions=tuple(replace(r, plan=with_step(r.plan, old, new)) for r in s.regions)))
        else:
            steps.append(s)
    return replace(made, steps=tuple(steps))


def with_paths(made: Plan) -> Iterator[tuple[tuple[int, ...], Plan]]:
    """A plan and those of its regions, each with where it is, as pins say it."""
    todo: list[tuple[tuple[int, ...], Plan]] = [((), made)]
    while todo:
        path, p = todo.pop()
        yield path, p
        number = {op: k for k, op in enumerate(p.program.ops)}
        todo += [((*path, number[c.op], k), r.plan) for c in p.controls for k, r in enumerate(c.regions)]
