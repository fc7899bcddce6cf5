"""When two sets of stages compute the same: a key that is equal for fusions of equal structure, whatever their names.

A transformer's layers are planned once: the tile sizes found for one are the others', too.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from hlo.attributes import freeze_attributes
from hlo.module import Op, Value
from hlo.types import with_layout
from tiling.loops.stage import Stage
from tiling.program.flatten import region_key

__all__ = ["Structures"]


class Structures:
    """Numbers for what sets of stages compute; `stage_of` tells which stage makes a value.

    The same number stands for the same ops, the same computed in place for them, and the same results stored. Values that other
    kernels make, or that are arguments, count by their type and by where they occur again.
    """

    def __init__(self, stage_of: Mapping[Value, Stage]) -> None:
        self.stage_of = stage_of
        self._numbers: dict[Hashable, int] = {}  # of structures, kinds and types alike
        self._kinds: dict[Op, int] = {}
        self._inputs: dict[Value, int] = {}

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _kind(self, op: Op) -> int:
        """The same for ops that compute the same of operands of the same types."""
        known = self._kinds.get(op)
        if known is None:
            regions = tuple([region_key(b) for b in op.regions])
            types = tuple([with_layout(r.type) for r in op.results])
            known = self._kinds[op] = self._number((op.name, freeze_attributes(op.attributes), regions, types))
        return known

    def _input(self, v: Value) -> int:
        known = self._inputs.get(v)
        if known is None:
            known = self._inputs[v] = self._number(("input", with_layout(v.type)))
        return known

    def number(self, stages: Sequence[Stage], stored: frozenset[Value]) -> int:
        """The number of what these stages compute, with these results stored."""
        inside = {s.op for s in stages}
        number: dict[Value, int] = {}
        parts: list[Hashable] = []
        order: list[int] = []
        for s in stages:
            todo = [s.values[0]]
            while todo:
                v = todo[-1]
                if v in number:
                    todo.pop()
                    continue
                op = v.op
                producer = self.stage_of.get(v)
                if op is None or (producer is not None and producer.op not in inside):
                    number[v] = len(number)
                    parts.append(self._input(v))
                    todo.pop()
                    continue
                missing = [x for x in op.operands if x not in number]
                if missing:
                    todo.extend(reversed(missing))
                    continue
                todo.pop()
                for r in op.results:
                    number[r] = len(number)
                kept = tuple([k for k, r in enumerate(op.results) if r in stored])
                parts.append((self._kind(op), tuple([number[x] for x in op.operands]), kept))
            order.append(number[s.values[0]])
        return self._number((tuple(parts), tuple(order)))
