"""Sorts, scatters, selections, transforms and matrices: is each called once, as the table of routines derives it from its op?

A routine's step is data that says what it reads, writes and counts; all of it follows from the op. So it is derived again here
and compared field by field. That the table derives it rightly, and that the routine does what its step says, is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from hlo.module import Op
from hlo.types import ElementType
from indexing.expr import Expr, Interval, Var
from tiling.elements.build import ElementBuilder
from tiling.loops.element_ir import Apply, Choose, IndexNode, Load, Scalar, Test
from tiling.loops.ir import Buffer, MatrixStep, Ordering, Phase, Scatter, Schedule, Scope, Selection, Step, Transform
from tiling.loops.names import Names
from tiling.proving.contents.same_expression import is_made_elsewhere, same_expression
from tiling.routines.table import routine_of

__all__ = ["ROUTINE_STEPS", "routine_faults", "routine_ops"]

ROUTINE_STEPS = (Ordering, Scatter, Selection, Transform, MatrixStep)
NODES = (Load, Apply, Choose, Test, IndexNode, Scalar)


def routine_ops(schedule: Schedule) -> list[Op]:
    """The ops of a schedule's results, and of its routines' steps, that are computed by a routine."""
    made = [b.value.op for b in schedule.buffers_in(Scope.RESULT) if b.value is not None and b.value.op is not None]
    called = [s.op for p in schedule.phases for s in p.all_steps if isinstance(s, ROUTINE_STEPS)]
    return [op for op in dict.fromkeys((*made, *called)) if routine_of(op) is not None]


def routine_faults(schedule: Schedule) -> Iterator[tuple[str, str | None]]:
    """(subject, what is wrong or None) for each routine that a schedule calls or ought to call."""
    found = _called(schedule)
    ops = routine_ops(schedule)
    for op in ops:
        wanted = _called(_derived(op, schedule))
        mine = [(p, s) for p, s in found if s.op is op] if len(ops) > 1 else found
        if [type(s) for _, s in mine] != [type(s) for _, s in wanted]:
            names = [", ".join(type(s).__name__ for _, s in x) or "none" for x in (wanted, mine)]
            yield str(op.name), f"its routine takes the steps {names[0]}, there are {names[1]}"
            continue
        for k, ((phase, step), (its_phase, its_step)) in enumerate(zip(mine, wanted, strict=True)):
            subject = f"{op.name} step {k} of {len(mine)}"
            fault = _difference(step, its_step, type(step).__name__, schedule.ranges)
            if fault is None and (phase.tiles, phase.group, bool(phase.before)) != (its_phase.tiles, its_phase.group, False):
                fault = f"tasks over {_tiles(phase)}, expected {_tiles(its_phase)}"
            yield subject, fault
    if not ops and found:
        yield "routines", f"{found[0][1].op.name} is called, which is no routine"


def _tiles(p: Phase) -> str:
    return f"{[(str(v), n) for v, n in p.tiles]} in groups of {p.group}"


def _called(schedule: Schedule) -> list[tuple[Phase, Any]]:
    steps: list[tuple[Phase, Step]] = [(p, s) for p in schedule.phases for s in (*p.before, *p.all_steps)]
    return [(p, s) for p, s in steps if isinstance(s, ROUTINE_STEPS)]


def _derived(op: Op, schedule: Schedule) -> Schedule:
    """What the table makes of an op when the same values are in memory.

    What is not computed where it is read is in memory, too, though a schedule need not load it: as an index with one value.
    """
    routine = routine_of(op)
    assert routine is not None
    kept = {b.value for b in schedule.buffers if b.value is not None}
    values = [*op.operands, *op.results]
    return routine.lower(op, lambda ranges: ElementBuilder(ranges, lambda v: v in kept or is_made_elsewhere(v)), Names(values))


def _difference(found: Any, wanted: Any, path: str, ranges: Mapping[Var, Interval]) -> str | None:
    """Where two objects of the loops differ, or None. Buffers are the same that hold the same value, or are alike."""
    if found is wanted:
        return None
    if isinstance(found, NODES) and isinstance(wanted, NODES):
        if same_expression(found, wanted, ranges):
            return None
        return f"{path}: another expression than the routine's"
    if isinstance(found, tuple) and isinstance(wanted, tuple):
        if len(found) != len(wanted):
            return f"{path} has {len(found)} parts, expected {len(wanted)}"
        parts = (_difference(a, b, f"{path}[{k}]", ranges) for k, (a, b) in enumerate(zip(found, wanted, strict=True)))
        return next((p for p in parts if p is not None), None)
    if isinstance(found, Buffer) and isinstance(wanted, Buffer):
        same = found.value is wanted.value and (found.scope, found.element) == (wanted.scope, wanted.element)
        alike = (found.shape, found.strides, found.size_elems) == (wanted.shape, wanted.strides, wanted.size_elems)
        return None if same and alike else f"{path} is {found}, expected {wanted}"
    if type(found) is not type(wanted):
        return f"{path} = {found}, expected {wanted}"
    if is_dataclass(found) and not isinstance(found, (Op, Expr, ElementType)):
        parts = (_difference(getattr(found, f.name), getattr(wanted, f.name), f"{path}.{f.name}", ranges) for f in fields(found))
        return next((p for p in parts if p is not None), None)
    if isinstance(found, np.generic):
        return None if found.tobytes() == wanted.tobytes() else f"{path} = {found}, expected {wanted}"
    return None if found == wanted else f"{path} = {found}, expected {wanted}"
