"""Loops and branches.

What goes round in a loop keeps its sharding. It has the one that its initial value has; but one that is made where it is read,
such as zeros, is made as the body gives it back, which a first way through the body finds out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hlo.module import Block, Op, Value
from hlo.registry import definition
from tiling.mesh.emit import Emitter
from tiling.mesh.shardings import Digit, Sharding
from tiling.mesh.written import Written
from tiling.program.flatten import Program, Region, flatten_region
from tiling.program.unroll_short_loops import trips

__all__ = ["Around", "Held", "control", "trips_of"]

_ROUNDS = 3  # of ways through a loop's body that find out how it gives values back


@dataclass(frozen=True)
class Held:
    """A value of the partitioned program and the sharding that it has; `is_manual`: a shard as the program itself cuts it."""

    value: Value
    sharding: Sharding
    is_manual: bool = False


class Around(Protocol):
    """The way through the block that an op with bodies is in (`tiling.mesh.walk`)."""

    whole: Written
    emit: Emitter
    held: dict[Value, Held]
    hints: dict[Value, Sharding]
    program: Program
    free: tuple[Digit, ...] | None

    def is_placed(self, v: Value) -> bool:
        """Whether a value is somewhere; else it is made where it is read."""
        ...

    def sharding(self, v: Value) -> Sharding:
        """How a value is spread."""
        ...

    def at(self, v: Value, s: Sharding, reason: str) -> Value:
        """A value in a sharding."""
        ...

    def ops(self, ops: Sequence[Op]) -> None:
        """Appends what a process computes of each op."""
        ...

    def inside(
        self, emit: Emitter, held: dict[Value, Held], program: Program, wanted: Sequence[Sharding | None],
        free: tuple[Digit, ...] | None = None,
    ) -> Around:  # fmt: skip
        """The way through a block inside of this one."""
        ...


def control(walk: Around, op: Op) -> None:
    """A loop or a branch: what goes round in a loop keeps its sharding; predicates are whole, so that processes agree."""
    is_loop = op.name == "stablehlo.while"
    names = [f"region{k}" for k in range(len(op.regions))]
    regions = [flatten_region(walk.whole.module, b, n) for b, n in zip(op.regions, names, strict=True)]
    carried = _carried(walk, op, regions[1]) if is_loop else []
    if is_loop:
        operands = [walk.at(v, s, "a loop begins with it so") for v, s in zip(op.operands, carried, strict=True)]
    else:
        operands = [walk.at(op.operands[0], Sharding.whole(0), "it decides which branch runs")]
    times = walk.emit.times * (trips_of(op, regions) if is_loop else 1)
    wanted = carried if is_loop else [walk.hints.get(r, Sharding.whole(r.rank)) for r in op.results]
    blocks = []
    for k, region in enumerate(regions):
        finals = [Sharding.whole(0)] if is_loop and k == 0 else wanted
        inner, block = _through(walk, region, carried, finals, times)
        rows = zip(region.program.results, finals, strict=True)
        results = [inner.at(v, s, "it leaves the region so") for v, s in rows]
        block.ops.append(Op(definition("stablehlo.return"), results))
        blocks.append(block)
    types = [s.local_type(r.tensor) for r, s in zip(op.results, wanted, strict=True)]
    made = Op(op.definition, operands, op.attributes, blocks, types, op.location, op.extra)
    walk.emit.block.ops.append(made)
    for r, v, s in zip(op.results, made.results, wanted, strict=True):
        walk.held[r] = Held(v, s)


def _through(
    walk: Around, region: Region, carried: Sequence[Sharding], wanted: Sequence[Sharding | None], times: int = 1
) -> tuple[Around, Block]:
    """The way through a region whose arguments are spread so and that runs so often, and the block that it has filled."""
    block = Block([s.local_type(a.tensor) for a, s in zip(region.arguments, carried, strict=True)])
    held = {a: Held(v, s) for a, v, s in zip(region.arguments, block.arguments, carried, strict=True)}
    for outside, inside in region.outside:
        s = walk.sharding(outside)
        held[inside] = Held(walk.at(outside, s, "a region reads it"), s)
    emit = Emitter(walk.emit.processes, block, walk.emit.told, walk.emit.channels, times=times, outer=walk.emit)
    inner = walk.inside(emit, held, region.program, wanted)
    inner.ops(region.program.ops)
    return inner, block


def _carried(walk: Around, op: Op, body: Region) -> list[Sharding]:
    """How the values of a loop are spread."""
    found = [walk.sharding(v) for v in op.operands]
    free = {k for k, v in enumerate(op.operands) if v not in walk.held and found[k].is_whole and v.rank}
    for k in free:
        found[k] = walk.hints.get(op.results[k], found[k])
    free = {k for k in free if found[k].is_whole}
    for _ in range(_ROUNDS if free else 0):
        told, kept, work = len(walk.whole.told), len(walk.whole.kept_whole), walk.whole.work_seconds
        inner, _ = _through(walk, body, found, [None if k in free else s for k, s in enumerate(found)])
        given_back = [inner.sharding(v) for v in body.program.results]
        del walk.whole.told[told:], walk.whole.kept_whole[kept:]
        walk.whole.work_seconds = work
        again = [s if k in free else found[k] for k, s in enumerate(given_back)]
        if again == found:
            break
        found = again
    return found


def trips_of(op: Op, regions: Sequence[Region]) -> int:
    """How often a loop's body runs; 1 where that is not known."""
    test, body = (r.program for r in regions)
    return trips(op.operands, (test.arguments, test.results[0]), (body.arguments, body.results)) or 1
