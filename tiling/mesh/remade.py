"""Values that are made again where they are read, where what they are made of is less than they are.

A mask, a one-hot matrix or a sum of two broadcasts has more elements than what it says. Where such a value is wanted in another
sharding, its ops may run there once more, on operands that are brought there:

    seconds(v at s) = min(moving v,  work of v's op at s + sum over its operands x of seconds(x at what s wants of it))

It is tried only for values whose sources (`sources`) have fewer bytes in all, so that most of a program costs nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import Elementwise, Generate, Move
from hlo.types import TensorType
from tiling.mesh.regions import Held
from tiling.mesh.relations import Loops

__all__ = ["Sources"]

_MOST = 8  # values that one is made of


@dataclass
class Sources:
    """What the values of one block are made of: `held` are those that have a place, `lazy` those that cost nothing."""

    ops: frozenset[Op]
    held: Mapping[Value, Held]
    lazy: Mapping[Value, Op]
    _known: dict[Value, frozenset[Value]] = field(default_factory=dict)

    def of(self, v: Value) -> frozenset[Value]:
        """The values of fewer bytes in all that a value is made of by ops that only compute element by element or move."""
        if v in self.lazy:
            return frozenset()
        if v not in self._known:
            self._known[v] = self._found(v)
        return self._known[v]

    def _found(self, v: Value) -> frozenset[Value]:
        op = v.op
        if op is None or op not in self.ops or v not in self.held or self.held[v].is_manual or not _is_plain(op):
            return frozenset((v,))
        found = frozenset().union(*[self.of(x) for x in op.operands])
        if len(found) > _MOST or sum(x.tensor.size_bytes for x in found) >= v.tensor.size_bytes:
            return frozenset((v,))
        return found

    def is_made_of_less(self, v: Value) -> bool:
        """Whether there is a way to make a value of less."""
        return v not in self.of(v)


def _is_plain(op: Op) -> bool:
    if op.regions or len(op.results) != 1 or not op.definition.is_pure:
        return False
    values = (*op.operands, *op.results)
    if not all(isinstance(v.type, TensorType) and v.type.is_static for v in values):
        return False
    return isinstance(op.definition.semantics, (Elementwise, Move, Generate))


def reads_no_values(loops: Loops | Declined) -> bool:
    """Whether an op's maps say all that it reads."""
    return isinstance(loops, Loops) and not loops.edges.runtimes
