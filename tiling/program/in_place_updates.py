"""Updates in place: an op that changes a part of a value writes that part over the value, where nobody reads the value later.

    r = dynamic_update_slice(a, u, start)      ->   r lives in a's memory, only u's elements are stored
    r = scatter(a, indices, updates)           ->   likewise

A program's ops are marked before planning (`mark_updates`): they get a definition of their own, whose routine stores the update
alone. Whether the memory can be shared is decided on the kernels (`tiling.planning.reuse`); where not, a copy is made first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from hlo.clone import captured_values, clone_block
from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import OpDefinition, SumOfProducts, definition
from tiling.program.flatten import Program
from tiling.program.scatter_onto import is_small_update

__all__ = ["UPDATES", "is_update", "mark_updates"]

_IN_PLACE = Declined("written over the operand")
_PREFIX = "in_place."


def _marked(name: str) -> OpDefinition:
    plain = definition(name)
    return replace(plain, name=_PREFIX + plain.mnemonic, access=_IN_PLACE, semantics=_IN_PLACE)


UPDATES = frozenset({"stablehlo.dynamic_update_slice", "stablehlo.scatter"})
"""Ops whose marked form has a routine."""


def is_update(op: Op) -> bool:
    """True for an op that `mark_updates` made."""
    return op.name.startswith(_PREFIX)


def mark_updates(program: Program, owned: Iterable[Value], takes: Callable[[Op], bool]) -> Program:
    """The program with its small updates of owned values marked, those that `takes` agrees to.

    Owned are the values given, what control flow gives, and what other updates give; and of scatters and products what one op
    alone reads.
    """
    mine = set(owned)
    readers = Counter(v for op in program.ops for v in (*op.operands, *(v for b in op.regions for v in captured_values(b))))
    readers.update(program.results)
    done: dict[Value, Value] = {}
    ops: list[Op] = []
    changed = False
    for op in program.ops:
        operands = [done.get(v, v) for v in op.operands]
        new = op
        marks = bool(operands) and operands[0] in mine and takes(op) and is_small_update(op) and operands[0] not in operands[1:]
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
        if marks or op.definition.is_control:
            mine.update(new.results)
        elif op.name == "stablehlo.scatter" or isinstance(op.definition.semantics, SumOfProducts):
            mine.update(made for made, r in zip(new.results, op.results, strict=True) if readers[r] == 1)
        ops.append(new)
    if not changed:
        return program
    return Program(program.name, program.arguments, tuple(ops), tuple(done.get(v, v) for v in program.results))
