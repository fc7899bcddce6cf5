"""When two sets of stages compute the same: a key that is equal for fusions of equal structure, whatever their names.

A transformer's layers are planned once: the tile sizes found for one are the others', too.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from hlo.attributes import freeze_attributes
from hlo.module import Value
from hlo.types import with_layout
from tiling.loops.stage import Stage
from tiling.program.flatten import region_key

__all__ = ["structure_key"]


def structure_key(stages: Sequence[Stage], stored: frozenset[Value], stage_of: Mapping[Value, Stage]) -> Hashable:
    """A key of what the stages compute: their ops, what is computed in place for them, and which results are stored.

    Values that other kernels make, or that are arguments, count by their type and by where they occur again.
    """
    inside = {s.op for s in stages}
    number: dict[Value, int] = {}
    parts: list[Hashable] = []

    def visit(root: Value) -> int:
        todo = [root]
        while todo:
            v = todo[-1]
            if v in number:
                todo.pop()
                continue
            op = v.op
            producer = stage_of.get(v)
            if op is None or (producer is not None and producer.op not in inside):
                number[v] = len(number)
                parts.append(("input", with_layout(v.type)))
                todo.pop()
                continue
            missing = [x for x in op.operands if x not in number]
            if missing:
                todo.extend(reversed(missing))
                continue
            todo.pop()
            for r in op.results:
                number[r] = len(number)
            parts.append(
                (
                    op.name,
                    tuple(number[x] for x in op.operands),
                    freeze_attributes(op.attributes),
                    tuple(region_key(b) for b in op.regions),
                    tuple((with_layout(r.type), r in stored) for r in op.results),
                )
            )
        return number[root]

    order = tuple(visit(s.values[0]) for s in stages)
    return tuple(parts), order
