"""How much code a fusion becomes, counted in the operations that its element expressions hold, and where it is cut.

A value that is computed in place is written out at every index at which it is read: `x + shift(x)`, applied twenty times, is a
million additions of one element. Loops are cut before that, and kernels stay of bounded size, so that the time that compiling
takes is linear in the program's ops.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice

from hlo.attributes import freeze_attributes
from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import Elementwise, Fold, Generate, Literal, Move, SumOfProducts
from hlo.types import TensorType
from indexing.deriving.derive import reads_of
from tiling.program.flatten import Program

__all__ = ["CONTRACTION_NODES", "MOST_KERNEL_NODES", "MOST_NODES", "InPlace", "below_moves", "weight_nodes"]

MOST_NODES = 160
"""Operations in one element's expression: a value that would have more is computed from values kept in memory."""

MOST_READ_AGAIN = 8
"""Operations of an element that windows compute again each time that they read it."""

MOST_KERNEL_NODES = 240
"""Operations in one kernel, over all its stages."""

CONTRACTION_NODES = 16
"""A contraction compiles about as long as this many operations of an element."""


MOST_TURNS = 4  # of what `tiling.passes.unrolling.split_residues` writes out
MOST_ABOVE_TURNS = 16
"""Functions of an element that are written out once for each turn; more of them read the turns' results from memory."""
LEAST_TURNS_ELEMS = 1 << 12


def weight_nodes(op: Op, inlined: int) -> int:
    """What a stage adds to its kernel's size: itself, and the `inlined` ops that it computes in place."""
    return inlined + (CONTRACTION_NODES if isinstance(op.definition.semantics, SumOfProducts) else 1)


def takes_turns(op: Op) -> bool:
    """True for columns put side by side, element by element: neighbours are computed from different operands."""
    if not isinstance(op.definition.semantics, Move) or not 2 <= len(op.operands) <= MOST_TURNS:
        return False
    column, whole = op.operands[0].type, op.results[0].type
    if not isinstance(column, TensorType) or not isinstance(whole, TensorType) or not whole.is_static:
        return False
    return (
        column.rank == whole.rank > 0
        and all(v.type == column for v in op.operands)
        and column.shape == (*whole.shape[:-1], 1)
        and whole.shape[-1] == len(op.operands)
        and whole.size_elems >= LEAST_TURNS_ELEMS
        and not _is_read_at_places(op)
    )


def _is_read_at_places(op: Op) -> bool:
    """Whether elements are taken from places that are known at run time only."""
    reads = reads_of(op)
    return isinstance(reads, Declined) or any(m.runtimes for maps in reads for m in maps)


def _is_move(op: Op) -> bool:
    return isinstance(op.definition.semantics, Move)


def below_moves(v: Value) -> Value:
    """The value that a chain of single-operand moves starts from."""
    while v.op is not None and isinstance(v.op.definition.semantics, Move) and len(v.op.operands) == 1:
        v = v.op.operands[0]
    return v


@dataclass
class InPlace:
    """For each value the operations of one element when all but `anchors` is computed in place; `cut` are the ops to keep.

    An operation at another index is another operation: what a move reads is counted once for each different way of moving.
    `windowed` are values whose elements are read several times, at places of their own: they are kept from a few operations on,
    and where each read would ask which of several operands it is of.
    """

    program: Program
    anchors: Set[Op]
    windowed: Set[Value] = frozenset()
    cut: set[Op] = field(default_factory=set)
    _turns: dict[Value, tuple[frozenset[Op], frozenset[Op]]] = field(default_factory=dict)
    _nodes: dict[Value, frozenset[int]] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for v in self.program.arguments:
            self._nodes[v] = self._load(v)
        for op in self.program.ops:
            for r in op.results:
                if op in self.anchors:
                    self._nodes[r] = self._load(r)
                else:
                    self._nodes[r] = frozenset() if isinstance(op.definition.semantics, Literal) else self._of(op)
                if r in self.windowed and (len(self._nodes[r]) >= MOST_READ_AGAIN or (len(op.operands) > 1 and _is_move(op))):
                    self.cut.add(op)
                    self._nodes[r] = self._load(r)
            self._count_above_turns(op)

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _load(self, v: Value) -> frozenset[int]:
        return frozenset((self._number(("load", v)),))

    def _of(self, op: Op) -> frozenset[int]:
        parts = [self._nodes.get(v, frozenset()) for v in op.operands]
        nodes = frozenset().union(*parts)
        if len(nodes) >= MOST_NODES:
            nodes = self._shortened(op.operands, parts)
        if isinstance(op.definition.semantics, Move):
            way = (op.name, freeze_attributes(op.attributes), op.results[0].type)
            return frozenset(self._number((way, n)) for n in nodes)
        return nodes | {self._number(op)}

    def _count_above_turns(self, op: Op) -> None:
        """Keeps values whose elements take turns where a fold reads them, or where much is computed from them.

        A loop over them is written once for each turn; where that is too much, or is not possible, each element asks whose turn
        it is, and nothing is vectorised.
        """
        known = [self._turns[v] for v in op.operands if v in self._turns]
        turns = frozenset[Op]().union(*(t for t, _ in known))
        above = frozenset(islice(dict.fromkeys(x for _, a in known for x in a), MOST_ABOVE_TURNS + 1))
        if takes_turns(op):
            turns, above = frozenset((op,)), frozenset()
        elif isinstance(op.definition.semantics, Elementwise) and known:
            above |= {op}
        if len(above) > MOST_ABOVE_TURNS or isinstance(op.definition.semantics, (Fold, SumOfProducts)):
            self.cut |= turns
            turns = frozenset()
        if (turns or above) and op not in self.anchors and op not in self.cut:
            self._turns[op.results[0]] = turns, above

    def _shortened(self, operands: Sequence[Value], parts: list[frozenset[int]]) -> frozenset[int]:
        """The nodes of the operands once the largest of them are kept in memory."""
        for k in sorted(range(len(parts)), key=lambda k: -len(parts[k])):
            below = below_moves(operands[k])
            if below.op is None or len(parts[k]) <= 1 or not _can_be_kept(below.op):
                continue
            self.cut.add(below.op)
            parts[k] = self._nodes[below] = self._load(below)
            nodes = frozenset().union(*parts)
            if len(nodes) < MOST_NODES // 2:
                break
        return frozenset().union(*parts)


def _can_be_kept(op: Op) -> bool:
    semantics = op.definition.semantics
    return isinstance(semantics, (Elementwise, Move)) and not isinstance(semantics, (Literal, Generate, Declined))
