"""What a schedule has to be made of before anything else can be asked of it: parts that fit, micro-kernels that there are."""

from __future__ import annotations

from tiling.contract.table import MICRO_KERNELS
from tiling.loops.ir import Contract, Schedule
from tiling.loops.spec import malformed

__all__ = ["unfounded"]


def unfounded(schedule: Schedule) -> list[tuple[str, str]]:
    """(subject, what is wrong with it). All that is proved of a schedule takes for granted that nothing is."""
    found = malformed(schedule)
    for number, phase in enumerate(schedule.phases):
        for step in (*phase.before, *phase.all_steps):
            if isinstance(step, Contract) and all(step.kernel != row.kernel for row in MICRO_KERNELS):
                found.append((f"phase {number}", f"no micro-kernel is declared as {step.kernel}"))
    return found
