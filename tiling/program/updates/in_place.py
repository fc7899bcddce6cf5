"""Updates in place: an op that changes a part of a value writes that part over the value, where nobody reads the value later.

    r = dynamic_update_slice(a, u, start)      ->   r lives in a's memory, only u's elements are stored
    r = scatter(a, indices, updates)           ->   likewise

A scatter to places that are known, of a value that nobody gives away, is written out instead (`known_places`).

A program's ops are marked before planning (`mark_updates`): they get a definition of their own, whose routine stores the update
alone. Whether the memory can be shared is decided on the kernels (`tiling.planning.reuse`); where not, a copy is made first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hlo.clone import captured_values, clone_block
from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import OpDefinition, SumOfProducts, definition
from tiling.passing import runs
from tiling.program.expand import Supports
from tiling.program.flatten import Program
from tiling.program.updates.known_places import Places, are_amid, known_places, written_out
from tiling.program.updates.scatter_onto import is_small_update

__all__ = ["UPDATES", "is_update", "mark_updates", "update_known_places", "updates_taken"]

_IN_PLACE = Declined("written over the operand")
_PREFIX = "in_place."


def _marked(name: str) -> OpDefinition:
    plain = definition(name)
    return replace(plain, name=_PREFIX + plain.mnemonic, access=_IN_PLACE, semantics=_IN_PLACE)


MOST_WRITTEN_OUT = 8
"""So many updates at known places are written out one after the other: each is a test in the expression of every element. A
matrix whose elements are set one by one is stored after them, and the others are stored over it."""

UPDATES = frozenset({"stablehlo.dynamic_update_slice", "stablehlo.scatter"})
"""Ops whose marked form has a routine."""


def is_update(op: Op) -> bool:
    """True for an op that `mark_updates` made."""
    return op.name.startswith(_PREFIX)


def updates_taken(supports: Supports) -> Callable[[Op], bool]:
    """Tells which updates may be marked: they have no rule but their routine, and are not marked where that is not to be had."""
    is_on = runs("mark_in_place")
    return lambda op: is_on and op.name in UPDATES and supports(op) is None


class _Owners:
    """Which values an update may be written over, op by op in the program's order.

    Owned are the values given, what control flow gives, and what other updates give; and of scatters and products what one op
    alone reads.
    """

    def __init__(self, program: Program, owned: Iterable[Value], takes: Callable[[Op], bool]) -> None:
        self.mine = set(owned)
        self.takes = takes
        self.readers = Counter(program.results)
        for op in program.ops:
            self.readers.update(op.operands)
            self.readers.update(v for b in op.regions for v in captured_values(b))

    def marks(self, op: Op, operands: Sequence[Value]) -> bool:
        if op.name not in UPDATES or operands[0] in operands[1:] or not self.takes(op) or not is_small_update(op):
            return False
        return operands[0] in self.mine or self._is_spot(op, operands[0])

    def _is_spot(self, op: Op, over: Value) -> bool:
        """Whether an op updates a small part amid a value that is there for it alone. (Constants stay what they are.)"""
        if over.op is None or not over.op.operands or self.readers[op.operands[0]] != 1:
            return False
        places = known_places(op)
        return places is not None and are_amid(over.shape, places)

    def gives(self, op: Op, results: Sequence[Value], marked: bool) -> None:
        """Notes who owns what an op gives; `results` stand for its own from here on."""
        if marked or op.definition.is_control:
            self.mine.update(results)
        elif op.name == "stablehlo.scatter" or isinstance(op.definition.semantics, SumOfProducts):
            self.mine.update(made for made, r in zip(results, op.results, strict=True) if self.readers[r] == 1)


def mark_updates(program: Program, owned: Iterable[Value], takes: Callable[[Op], bool]) -> Program:
    """The program with its small updates of owned values marked, those that `takes` agrees to."""
    owners = _Owners(program, owned, takes)
    done: dict[Value, Value] = {}
    ops: list[Op] = []
    changed = False
    for op in program.ops:
        operands = [done.get(v, v) for v in op.operands]
        new = op
        marks = owners.marks(op, operands)
        if marks or operands != list(op.operands) or any(op.regions):
            regions = op.regions
            if done and regions:
                regions = tuple(clone_block(b, done) for b in regions)
            made = _marked(op.name) if marks else op.definition
            if marks or operands != list(op.operands) or regions is not op.regions:
                new = Op(made, operands, op.attributes, regions, [r.type for r in op.results], op.location, op.extra,
                         [r.name for r in op.results])  # fmt: skip
                done.update(zip(op.results, new.results, strict=True))
                changed = True
        owners.gives(op, new.results, marks)
        ops.append(new)
    if not changed:
        return program
    return Program(program.name, program.arguments, tuple(ops), tuple(done.get(v, v) for v in program.results))


def update_known_places(program: Program, owned: Iterable[Value], takes: Callable[[Op], bool]) -> Program:
    """The program without the scatters to known places that `mark_updates` would not mark: they are written out."""
    if not any(op.name == "stablehlo.scatter" for op in program.ops):
        return program
    owners = _Owners(program, owned, takes)
    deep: dict[Value, int] = {}  # how many updates that are written out a value comes from
    found: dict[Op, Sequence[Places]] = {}
    for op in program.ops:
        marks = owners.marks(op, op.operands)
        depth = 0 if marks or op.name != "stablehlo.scatter" else deep.get(op.operands[0], 0) + 1
        places = known_places(op) if 0 < depth <= MOST_WRITTEN_OUT else None
        if places is None or are_amid(op.operands[0].shape, places):
            owners.gives(op, op.results, marks)
        else:
            found[op] = places
            deep.update(dict.fromkeys(op.results, depth))
    if not found:
        return program
    ops, results = written_out(program.ops, program.results, found)
    return Program(program.name, program.arguments, tuple(ops), tuple(results))
