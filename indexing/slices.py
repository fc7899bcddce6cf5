"""Slicing programs: what a part of the results depends on, and what a part of the inputs influences.

    dependencies(v) = union over uses of v, over maps p of the use:  p(dependencies(result))
    influence(v)    = union over operands u of v's op, over maps p:  p^-1(influence(u))

Regions of indices travel instead of maps, so the cost is linear in the program. Calls are entered; of `if` and `case` every
branch counts; what no map describes counts as reading everything, and is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hlo import Block, Declined, Module, Op, TensorType, Value
from hlo.registry import Structure
from indexing.deriving.blocks import blocks_of, topological
from indexing.deriving.derive import output_to_input
from indexing.errors import BudgetSpent
from indexing.exact.images import image
from indexing.exact.inverse import input_to_output
from indexing.map import IndexingMap
from indexing.regions import Region

__all__ = ["Slice", "dependencies", "influence"]


@dataclass(frozen=True)
class Slice:
    """regions: for each value the part that takes part; unknown: (op, reason) where everything was taken for want of a map."""

    regions: Mapping[Value, Region]
    unknown: tuple[tuple[Op, str], ...]

    @property
    def is_exact(self) -> bool:
        return not self.unknown

    def of(self, value: Value) -> Region:
        """The part of `value` that takes part, possibly empty."""
        found = self.regions.get(value)
        return Region.empty(value.rank) if found is None else found


def _full(value: Value) -> Region | None:
    t = value.type
    return Region.full(t.static_shape) if isinstance(t, TensorType) and t.is_static else None


def _image(m: IndexingMap, region: Region) -> Region | Declined:
    """The image, or why there is none: no map describes the reads, or isl does not decide in its budget."""
    if m.unknown is not None:
        return m.unknown
    try:
        return image(m, region)
    except BudgetSpent as spent:
        return Declined(spent.message)


class _Backward:
    def __init__(self, module: Module | None, until: Iterable[Value]) -> None:
        self.module = module
        self.stop = set(until)
        self.unknown: dict[Op, str] = {}

    def run(self, roots: Mapping[Value, Region]) -> dict[Value, Region]:
        """Regions of everything the roots depend on, every use before its definition."""
        table: dict[Value, Region] = {}
        for v, r in roots.items():
            _extend(table, v, r)
        for op in reversed(topological(roots, self.stop)):
            for number, result in enumerate(op.results):
                if result in table and not table[result].is_empty and (result not in self.stop or result in roots):
                    for v, r in self.reads(op, number, table[result]):
                        reason = _extend(table, v, r)
                        if reason is not None:
                            self.unknown.setdefault(op, reason)
        return table

    def reads(self, op: Op, output: int, region: Region) -> Iterator[tuple[Value, Region]]:
        if op.definition.structure is Structure.CALL:
            blocks = blocks_of(op, self.module)
            for block in blocks:
                inner = self.run({block.results[output]: region})
                for argument, operand in zip(block.arguments, op.operands, strict=True):
                    if argument in inner:
                        yield operand, inner[argument]
            if blocks:
                return
        if op.definition.structure is Structure.BRANCH:
            for block in blocks_of(op, self.module):
                inner = self.run({block.results[output]: region})
                yield from inner.items()
            yield op.operands[0], Region.full(op.operands[0].shape)
            return
        for operand, maps in zip(op.operands, output_to_input(op, output), strict=True):
            for m in maps:
                yield from _reached(m, region, operand, op, self.unknown)


def _reached(
    m: IndexingMap, region: Region, value: Value, op: Op, unknown: dict[Op, str]
) -> Iterator[tuple[Value, Region]]:
    """(value, its part that a map takes a region to); all of it, and the reason in `unknown`, where that is not found."""
    image = _image(m, region)
    if not isinstance(image, Region):
        unknown.setdefault(op, image.reason)
    found = image if isinstance(image, Region) else _full(value)
    if found is not None:
        yield value, found


def _extend(table: dict[Value, Region], v: Value, r: Region) -> str | None:
    """Adds a part of `v`. Where isl does not find the union in its budget, all of `v` is taken; returns the reason then."""
    known = table.get(v)
    if known is None:
        table[v] = r
    elif known is not r:
        try:
            table[v] = known | r
        except BudgetSpent as spent:
            table[v] = Region.full(v.shape)
            return spent.message
    return None


def dependencies(roots: Mapping[Value, Region], module: Module | None = None, until: Iterable[Value] = ()) -> Slice:
    """For every value that a part of the roots depends on: the elements that it depends on, over all runtime values.

    `module` resolves calls; without it, and for ops without maps, whole operands are taken and listed in `unknown`. The
    walk ends at function arguments and at `until`.
    """
    walk = _Backward(module, until)
    return Slice(walk.run(roots), tuple(walk.unknown.items()))


class _Forward:
    def __init__(self, module: Module | None) -> None:
        self.module = module
        self.unknown: dict[Op, str] = {}

    def run(self, block: Block, table: dict[Value, Region]) -> dict[Value, Region]:
        """Adds to `table` what the values in it influence among the block's ops, in program order."""
        for op in block.ops:
            for number in range(len(op.results)):
                for result, region in self.writes(op, number, table):
                    reason = None if region.is_empty else _extend(table, result, region)
                    if reason is not None:
                        self.unknown.setdefault(op, reason)
        return table

    def writes(self, op: Op, output: int, table: dict[Value, Region]) -> Iterator[tuple[Value, Region]]:
        result = op.results[output]
        if op.definition.structure in (Structure.CALL, Structure.BRANCH):
            calls = op.definition.structure is Structure.CALL
            blocks = blocks_of(op, self.module)
            for block in blocks:
                outer = {v: r for v, r in table.items() if not calls}
                for argument, operand in zip(block.arguments, op.operands if calls else (), strict=True):
                    if operand in table:
                        outer[argument] = table[operand]
                inner = self.run(block, outer)
                if block.results[output] in inner:
                    yield result, inner[block.results[output]]
            full = _full(result)
            if not calls and op.operands[0] in table and full is not None:
                yield result, full
            if blocks:
                return
        for k, operand in enumerate(op.operands):
            if operand not in table:
                continue
            for m in input_to_output(op, k)[output]:
                yield from _reached(m, table[operand], result, op, self.unknown)


def influence(sources: Mapping[Value, Region], block: Block, module: Module | None = None) -> Slice:
    """For every value of a block: the elements that some element of the sources' regions influences.

    `block` is the function's body in which the sources live.
    """
    walk = _Forward(module)
    table = walk.run(block, {v: r for v, r in sources.items() if not r.is_empty})
    return Slice(table, tuple(walk.unknown.items()))
