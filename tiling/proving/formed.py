"""What a schedule has to be made of before anything else can be asked of it: parts that fit, micro-kernels that there are."""

from __future__ import annotations

from collections.abc import Iterator

from hlo.registry import Fold
from tiling.contract.table import MICRO_KERNELS
from tiling.elements.folds import combined_function
from tiling.elements.monoids import is_rounded_each_step
from tiling.loops.ir import Contract, LoopKind, Nest, Schedule
from tiling.loops.spec import malformed

__all__ = ["unfounded"]


def unfounded(schedule: Schedule) -> list[tuple[str, str]]:
    """(subject, what is wrong with it). All that is proved of a schedule takes for granted that nothing is."""
    found = malformed(schedule)
    for number, phase in enumerate(schedule.phases):
        for step in (*phase.before, *phase.all_steps):
            if isinstance(step, Contract) and all(step.kernel != row.kernel for row in MICRO_KERNELS):
                found.append((f"phase {number}", f"no micro-kernel is declared as {step.kernel}"))
            if isinstance(step, Nest):
                found += [(f"phase {number}", fault) for fault in _rows_apart(step)]
    return found


def _rows_apart(nest: Nest) -> Iterator[str]:
    """What is wrong with folds across rows that are written as one: a function has to put rows together, in any order."""
    if len(nest.loops) < 2 or nest.loops[-2].together == 1 or nest.loops[-2].kind is LoopKind.PARALLEL:
        return
    for f in nest.folds:
        function = combined_function(f.op.regions[0]) if isinstance(f.op.definition.semantics, Fold) else None
        if function is None or is_rounded_each_step(function, f.op.regions[0].arguments[0].tensor.element):
            yield f"{nest.loops[-2].together} rows are written as one, and no function puts them together for {f.op.name}"
