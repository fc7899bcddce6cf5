"""Ops with bodies: loops, branches, and bodies that the program itself has written for one process.

What goes round in a loop keeps its sharding. It has the one that its initial value has; but one that is made where it is read,
such as zeros, is made as the body gives it back, which a first way through the body finds out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from hlo.clone import captured_values
from hlo.module import Block, Op, Value
from hlo.registry import definition
from tiling.mesh.annotations import AnnotationError
from tiling.mesh.by_hand import note, trips_of
from tiling.mesh.emit import Emitter
from tiling.mesh.local_ops import cloned
from tiling.mesh.shardings import Sharding
from tiling.mesh.written import Written
from tiling.program.flatten import Program, Region, flatten_region

__all__ = ["Held", "control", "manual"]

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

    def sharding(self, v: Value) -> Sharding:
        """How a value is spread."""
        ...

    def at(self, v: Value, s: Sharding, reason: str) -> Value:
        """A value in a sharding."""
        ...

    def ops(self, ops: Sequence[Op]) -> None:
        """Appends what a process computes of each op."""
        ...

    def inside(self, emit: Emitter, held: dict[Value, Held], program: Program, wanted: Sequence[Sharding | None]) -> Around:
        """The way through a block inside of this one."""
        ...


def manual(walk: Around, op: Op) -> None:
    """A body that the program itself has written for one process: its operands are brought to where it wants them."""
    body = op.regions[0]
    inner: dict[Value, Value] = {}
    for v, a, s in zip(op.operands, body.arguments, walk.whole.per_value(op, "in_shardings"), strict=True):
        wanted = _as_in_body(walk.whole.atomic(s, v), v, a)
        inner[a] = walk.at(v, wanted, "the body of sdy.manual_computation takes it so")
    for captured in captured_values(body):
        if captured not in inner:
            inner[captured] = walk.at(captured, Sharding.whole(captured.rank), "a body reads all of it")
    for part in body.ops[:-1]:
        made = cloned(part, inner)
        walk.emit.block.ops.append(made)
        note(walk.whole, walk.emit, part)
        inner.update(zip(part.results, made.results, strict=True))
    for r, v, s in zip(op.results, body.ops[-1].operands, walk.whole.per_value(op, "out_shardings"), strict=True):
        walk.held[r] = Held(inner[v], _as_in_body(walk.whole.atomic(s, r), r, v))


def _as_in_body(s: Sharding, v: Value, inside: Value) -> Sharding:
    """A sharding without the digits that are not the body's own to see: its shards are larger by these."""
    if s.local_shape(v.tensor.static_shape) == inside.shape:
        return s
    dims = []
    for k, digits in enumerate(s.dims):
        kept = digits
        while kept and v.shape[k] // prod(d.size for d in kept) != inside.shape[k]:
            kept = kept[:-1]
        dims.append(kept)
    made = Sharding(tuple(dims))
    if made.local_shape(v.tensor.static_shape) != inside.shape:
        raise AnnotationError(f"sdy.manual_computation: the sharding {s} of {v.type} gives no shard {inside.type}")
    return made


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
