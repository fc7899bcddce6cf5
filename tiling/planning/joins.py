"""Whether two kernels become one: by what their estimates are, or without being weighed.

    together <= apart     ->   one kernel; a little dearer is near enough where it moves less memory (`weighed`)

Joins of a kernel whose elements its reader takes one by one go without saying (`joins_plainly`):

    y[i] = f(x[i]),  z[i] = g(y[i], w[i])     ->   one loop: z[i] = g(f(x[i]), w[i]), and y[i] is stored if others read it

Apart each takes max(arithmetic, traffic) and a launch. Together the arithmetic is the same, a load of y, and perhaps its store,
are left out, and so is a launch: as max(a + b, c + d) <= max(a, c) + max(b, d), no cost model of that form finds it dearer. A
reduction or contraction that only the reader takes joins it as its epilogue, for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo.module import Value
from hlo.registry import Elementwise, Fold, Move, SumOfProducts
from tiling.cost_model import Estimate
from tiling.planning.stages import Stage
from tiling.routines.table import ROUTINES, routine_of

__all__ = ["is_plain", "joins_plainly", "weighed"]

NEARLY = 0.01  # estimates as near as this are alike: then the plan that moves less memory is taken
SPARED = 0.2  # and of a product with a reader that is none: so much of the share of traffic that they spare may they be dearer
KEPT = 0.5  # of its time counts for a factor that comes from arguments alone: calls with the same ones find it made


def weighed(
    together: Estimate, kernel: Estimate, target: Estimate, of_product: bool, is_kept: bool
) -> tuple[bool, float, str]:
    """Whether a kernel becomes a part of its reader `target`, the seconds of both apart, and the reason in words.

    The kernel may be one `of_product`, whose reader has none, or make a factor that `is_kept`; neither counts by a model other
    than a CPU's seconds.

    >>> weighed(Estimate(3.1, 0.0, 0.0, 70), Estimate(2.0, 0.0, 0.0, 60), Estimate(1.0, 0.0, 0.0, 40), True, False)[0]
    True
    """
    is_kept, of_product = is_kept and not together.unit, of_product and not together.unit
    apart = kernel.seconds * (KEPT if is_kept else 1.0) + target.seconds
    bytes_apart = kernel.memory_bytes + target.memory_bytes
    reason = f"{together.figure(together.seconds)} together, {together.figure(apart)} apart"
    traffic = f"{together.memory_bytes} bytes together, {bytes_apart} bytes apart"
    reason += f"; {traffic}" if traffic != reason else ""  # (a model may count just these bytes)
    reason += "; apart, the factor is made once for calls with the same arguments, and counts half" if is_kept else ""
    spared = 1.0 - together.memory_bytes / max(bytes_apart, 1)
    nearly = NEARLY + (SPARED * spared if of_product else 0.0) if spared > 0 else 0.0
    return together.seconds <= apart * (1.0 + nearly), apart, reason


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
    if target[-1].values[0].tensor.size_elems != value.tensor.size_elems:
        return False  # each task may compute what its readers read of it
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
