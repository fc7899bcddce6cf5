"""When two sets of stages compute the same: a key that is equal for fusions of equal structure, whatever their names.

A transformer's layers are planned once: the tile sizes found for one are the others', too.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from hlo.attributes import freeze_attributes
from hlo.module import Op, Value
from hlo.types import with_layout
from tiling.loops.names import Names
from tiling.loops.stage import Stage
from tiling.lower.neutral import Fact, Facts
from tiling.program.flatten import region_key

__all__ = ["Structures"]


class Structures:
    """Numbers for what sets of stages compute; `stage_of` tells which stage makes a value.

    The same number stands for the same ops, the same computed in place for them, and the same results stored. Values that other
    kernels make, or that are arguments, count by their type, by `facts` about them, and by where they occur again; so does what
    `names` knows of values that a loop passes on, or that calls find made. With the same `numbers` they stand for the same in
    several programs: those that a plan is made of, one after the other, differ in a few ops.
    """

    def __init__(
        self, stage_of: Mapping[Value, Stage], numbers: dict[Hashable, int] | None = None, names: Names | None = None
    ) -> None:
        self.stage_of = stage_of
        self.facts: Facts = {}
        self._numbers: dict[Hashable, int] = {} if numbers is None else numbers  # of structures, kinds and types alike
        self._carried: Mapping[Value, Value] = {} if names is None else names.carried
        self._kept = frozenset[Value]() if names is None else names.kept
        self._is_lean = names is not None and names.is_lean
        self._kinds: dict[Op, int] = {}
        self._inputs: dict[tuple[Value, Fact | None], int] = {}
        self._stages: dict[Stage, tuple[int, tuple[Value, ...]]] = {}

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

    def _input(self, v: Value, stages: Sequence[Stage]) -> int:
        fact = self.facts.get(v)
        if fact is not None and any(s.op is fact.reader for s in stages):
            fact = None  # these do not know it
        known = self._inputs.get((v, fact))
        if known is None:
            about = None if fact is None else (fact.zero, fact.span, tuple(fact.limits.values()))
            known = self._inputs[v, fact] = self._number(("input", with_layout(v.type), about, v in self._kept))
        return known

    def _own(self, stage: Stage) -> tuple[int, tuple[Value, ...]]:
        """A number for a stage's op with what is computed in place for it, and the values of others that these read."""
        known = self._stages.get(stage)
        if known is not None:
            return known
        place: dict[Value, int] = {}
        others: dict[Value, None] = {}
        parts: list[Hashable] = []
        todo = [stage.values[0]]
        while todo:
            v = todo[-1]
            producer = self.stage_of.get(v)
            op = v.op
            if v in place:
                todo.pop()
            elif op is None or (producer is not None and producer is not stage):
                place[v] = len(place)
                others[v] = None
                todo.pop()
            elif missing := [x for x in op.operands if x not in place]:
                todo.extend(reversed(missing))
            else:
                todo.pop()
                parts.append((self._kind(op), tuple([place[x] for x in op.operands]), len(place)))
                for r in op.results:
                    place[r] = len(place)
        found = self._stages[stage] = self._number(("stage", *parts)), tuple(others)
        return found

    def inputs(self, stages: Sequence[Stage]) -> list[Value]:
        """What these stages read of others, in an order that is the same for equal structures."""
        made = {v for s in stages for v in s.values}
        return list(dict.fromkeys(v for s in stages for v in self._own(s)[1] if v not in made))

    def number(self, stages: Sequence[Stage], stored: frozenset[Value]) -> int:
        """The number of what these stages compute, in this order, with these results stored."""
        place: dict[Value, int] = {}
        parts: list[Hashable] = []
        for s in stages:
            for v in s.values:
                place[v] = len(place)
        for s in stages:
            own, others = self._own(s)
            for v in others:
                if v not in place:
                    place[v] = len(place)
                    parts.append(self._input(v, stages))
            parts.append((own, tuple([place[v] for v in others]), tuple([v in stored for v in s.values])))
        carried = [(place[v], place.get(self._carried[v])) for s in stages for v in s.values if v in self._carried]
        return self._number((tuple(parts), tuple(carried), self._is_lean))
