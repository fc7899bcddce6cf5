"""Joins that need no weighing: a kernel whose elements its reader takes one by one.

    y[i] = f(x[i]),  z[i] = g(y[i], w[i])     ->   one loop: z[i] = g(f(x[i]), w[i]), and y[i] is stored if others read it

Apart each takes max(arithmetic, traffic) and a launch. Together the arithmetic is the same, a load of y, and perhaps its store,
are left out, and so is a launch: as max(a + b, c + d) <= max(a, c) + max(b, d), no cost model of that form finds it dearer. A
reduction or contraction that only the reader takes joins it as its epilogue, for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo.module import Value
from hlo.registry import Elementwise, Fold, Move, SumOfProducts
from tiling.planning.stages import Stage
from tiling.routines.table import ROUTINES, routine_of

__all__ = ["is_plain", "joins_plainly"]


def is_plain(stage: Stage) -> bool:
    """True for a stage of one value that loops compute: no routine, no fold of several values."""
    if stage.declined is not None or len(stage.values) != 1 or stage.op.name in ROUTINES or routine_of(stage.op) is not None:
        return False
    return isinstance(stage.op.definition.semantics, (Elementwise, Move, Fold, SumOfProducts))


def _is_elementwise(stage: Stage) -> bool:
    return is_plain(stage) and isinstance(stage.op.definition.semantics, (Elementwise, Move))


def joins_plainly(
    stages: Sequence[Stage], target: Sequence[Stage], readers: Sequence[Stage], stage_of: Mapping[Value, Stage], stays: bool
) -> bool:
    """Whether the kernel of `stages`, the last of which is its root, joins that of `target` without being weighed.

    `readers` are the stages of the target that read the root's value; `stays` says that it is stored as well.
    """
    root = stages[-1]
    if not all(map(_is_elementwise, target)) or not all(map(is_plain, stages)):
        return False
    if not all(map(_is_elementwise, stages)) and (stays or len(stages) > 1):
        return False
    (value,) = root.values
    return all(r.values[0].shape == value.shape and _takes_one_by_one(r, value, stage_of) for r in readers)


def _takes_one_by_one(reader: Stage, value: Value, stage_of: Mapping[Value, Stage]) -> bool:
    """Whether nothing between a stage and a value that it reads moves elements."""
    todo, seen = [(reader.op, False)], set()
    while todo:
        op, moved = todo.pop()
        moved = moved or not isinstance(op.definition.semantics, Elementwise)
        for v in op.operands:
            if v is value:
                if moved:
                    return False
            elif v.op is not None and v not in stage_of and (v.op, moved) not in seen:
                seen.add((v.op, moved))
                todo.append((v.op, moved))
    return True
