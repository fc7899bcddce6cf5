"""No kernel runs that is refuted: every kernel of a plan is shown to touch its own memory only, before it is compiled.

    Plan  ->  Plan whose kernels are proved, and their sources        between planning and compilation, always

What is proved is the final loops (`tiling.pipeline.finished`), which the source is a print of. A proof is remembered by
what the source does and by the buffers' sizes, in this process and on disk: alike kernels and second processes pay nothing.
A kernel that is refuted is replaced (other tiles, plain loops, its ops apart, at last the evaluator) and reported.

Schedules that were put in the place of the planner's own (`tiling.with_schedule`, loops in a plan's file) are proved whole, since
no test of ours has compared what they compute: where one is refuted the planner's own runs.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace

from codegen.call.program.assembly import Assembly, fusion_source
from codegen.native import object_cache
from codegen.remembered.plans import planner_digest
from codegen.source.emit import PhaseSource
from codegen.supports import supports
from tiling import Decision, Fusion, Obligation, Plan, Schedule
from tiling.pipeline import finished
from tiling.planning.costs.estimate import estimate
from tiling.planning.replacement import apart, evaluated, other_schedules, with_paths, with_step
from tiling.proving.obligations import prove, prove_memory
from tiling.proving.proof import Verdict

__all__ = ["MemorySafetyWarning", "WrongScheduleWarning", "memory_fault", "safe_assembly"]

PROOF_SECONDS = 60.0  # for one schedule that was edited; what is undecided then runs, its accesses to memory shown as always
MOST_REPLACED = 32  # kernels of one plan; beyond, the evaluator runs the whole program

_proved: set[str] = set()  # without a lock: a fork or a signal's handler could come while it is held, and each step is one


class MemorySafetyWarning(UserWarning):
    """A planned kernel was refuted: it would have touched memory that is not its own. It does not run; another one does.

    This is a fault of Tilewright's: please report it with the program. Tests may make it an error:

    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", MemorySafetyWarning)
    """


class WrongScheduleWarning(UserWarning):
    """A schedule that was put in the place of the planner's own was refuted: it does not run, the planner's own does.

    `tiling.prove(plan)` has all that is refuted of it. Who edits schedules may want an error:

    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", WrongScheduleWarning)
    """


def safe_assembly(plan: Plan) -> tuple[Plan, Assembly | None, str]:
    """(the plan with nothing in it that is not proved, its assembly, ""); without an assembly the reason why no kernel runs."""
    plan, decisions, edits = _without_wrong_edits(plan)
    for _ in range(MOST_REPLACED):
        assembly = Assembly(plan)
        faults = ((f, memory_fault(f, sources) or edits.get(f)) for f, sources in assembly.sources)
        found = next(((f, fault) for f, fault in faults if fault is not None), None)
        if found is None:
            return (replace(plan, decisions=(*plan.decisions, *decisions)) if decisions else plan), assembly, ""
        fusion, fault = found
        made, how = _without(plan, fusion, fault)
        decisions.append(Decision(fusion.name, how, False, str(fault)))
        if fault.verdict is Verdict.REFUTED:
            warnings.warn(f"{fusion.name} is refuted and replaced by {how}: {fault}", MemorySafetyWarning, stacklevel=5)
        if made is None:
            break
        plan = made
    return replace(plan, decisions=(*plan.decisions, *decisions)), None, f"{fusion.name} has no kernel that is proved: {fault}"


def _without_wrong_edits(plan: Plan) -> tuple[Plan, list[Decision], dict[Fusion, Obligation]]:
    """(the plan with its planner's own loops in place of edited ones that are refuted, decisions, faults about memory left in).

    Loops that would touch memory which is not theirs are replaced and reported as the planner's own would be.
    """
    decisions: list[Decision] = []
    left: dict[Fusion, Obligation] = {}
    for f in [f for p in plan.nested() for f in p.fusions if f.planned is not None]:
        refuted = prove(f, seconds=PROOF_SECONDS).refuted
        if not refuted or f.planned is None:
            continue
        fault, how = refuted[0], "the planner's own loops"
        if fault.name != "formed" and prove_memory(f.schedule).refuted:
            left[f] = fault
            continue
        own = replace(f, schedule=f.planned, estimate=estimate(f.planned, plan.machine), planned=None)
        plan = with_step(plan, f, (own,))
        decisions.append(Decision(f.name, how, False, str(fault)))
        warnings.warn(f"{f.name} is refuted and replaced by {how}: {fault}", WrongScheduleWarning, stacklevel=6)
    return plan, decisions, left


def memory_fault(fusion: Fusion, sources: Sequence[PhaseSource]) -> Obligation | None:
    """The first obligation about memory that is refuted, or that could not be decided; None for a kernel that is proved."""
    loops = finished(fusion.schedule)
    key = _key(loops, sources)
    if key not in _proved and object_cache.read(key) is None:
        proof = prove_memory(loops)
        bad = next(iter((*proof.refuted, *proof.undecided)), None)
        if bad is not None:
            return bad
        object_cache.write(key, b"proved")
    _proved.add(key)
    return None


def _key(loops: Schedule, sources: Sequence[PhaseSource]) -> str:
    """sha256 over all that a kernel does to memory (its code without buffers' names, their sizes, the tasks), and the prover."""
    number = {b.name: f"#{k}" for k, b in enumerate(loops.buffers)}  # no name in the source looks so
    parts = [f"memory {planner_digest()}"]
    for b in loops.buffers:
        origin = [*map(str, b.origin)] if any(b.origin) else ""
        parts.append(f"{b.scope.value} {b.element.name} {b.shape} {b.strides} {origin} {b.size_elems}")
    for s in sources:
        head, _, rest = s.source.partition('"""')
        words = _WORD.split(head + rest.partition('"""')[2])  # each second piece is a word
        words[1::2] = map(number.get, words[1::2], words[1::2])
        names = [(number[b.name], b.name in head) for b in (*s.buffers, *s.scratch)]
        parts += [f"{s.tasks} {names} ", *words]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


_WORD = re.compile(r"([A-Za-z_]\w*)")


def _without(plan: Plan, fusion: Fusion, fault: Obligation) -> tuple[Plan | None, str]:
    """The plan with something else in place of a kernel, and what that is; None where only the whole program can be evaluated."""
    path, inside = next((at, p) for at, p in with_paths(plan) if any(f is fusion for f in p.fusions))
    for other in other_schedules(fusion, plan.machine, inside.names):
        if memory_fault(other, fusion_source(other, plan.machine.excess_precision)) is None:
            return with_step(plan, fusion, (other,)), f"tiles {list(other.tile_sizes)}"
    if len(fusion.stages) > 1:
        made = apart(plan, path, fusion, supports)
        if made is not None:
            return made, f"{len(fusion.stages)} kernels"
    steps = evaluated(fusion, inside, f"its kernel is not proved: {fault}")
    if steps is not None:
        return with_step(plan, fusion, steps), "the evaluator"
    return None, "the evaluator, for the whole program"
