"""The parts that a program has written for one process itself: `sdy.manual_computation`, and XLA's calls into a shard's shape.

Their ops stay as they are. Where such a body leaves axes of the mesh to the partitioner (`manual_axes` names some of them), its
ops are those of a program in the global view over the axes that are left: a value of it is a shard by the body's own axes, of
which a process holds a tile by the others. A collective of the body moves such tiles, for its partners hold the same ones of
their shards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from hlo.clone import captured_values, clone_block
from hlo.errors import Declined
from hlo.module import Block, Op, Value
from hlo.types import TensorType
from tiling.mesh.annotations import AnnotationError, split
from tiling.mesh.by_hand.counted import note
from tiling.mesh.groups import groups_of, pairs_of
from tiling.mesh.local_ops import cloned
from tiling.mesh.regions import Around, Held
from tiling.mesh.shardings import Digit, Sharding
from tiling.mesh.written import TO_SHARD, TO_WHOLE, target_of
from tiling.program.flatten import Program, flatten_region, live_ops

__all__ = ["collective", "is_own", "manual", "own"]

_REASON = "the body of sdy.manual_computation takes it so"
_TOUCHED = {
    "all_gather": ("all_gather_dim",), "reduce_scatter": ("scatter_dimension",),
    "all_to_all": ("split_dimension", "concat_dimension"),
}  # fmt: skip
"""Collective -> the attributes that name the dimensions along which it cuts or joins; along the others it moves all alike."""


def manual(walk: Around, op: Op) -> None:
    """A body that the program itself has written for one process: its operands are brought to where it wants them."""
    whole, body = walk.whole, op.regions[0]
    free = _free_digits(walk, op)
    ins, outs = (whole.per_value(op, name) for name in ("in_shardings", "out_shardings"))
    read = {v for o in walk.program.ops for v in (*o.operands, *(v for b in o.regions for v in captured_values(b)))}
    read |= set(walk.program.results)
    rows = [row for row in zip(op.results, body.ops[-1].operands, outs, strict=True) if row[0] in read]
    shards = [_as_in_body(whole.atomic(s, r), r, v) for r, v, s in rows]
    given: dict[Value, Held] = {}
    for v, a, s in zip(op.operands, body.arguments, ins, strict=True):
        shard = _as_in_body(whole.atomic(s, v), v, a)
        tiles = _left_over(walk.sharding(v), shard, free, a) if walk.is_placed(v) else Sharding.whole(a.rank)
        given[a] = Held(walk.at(v, _joined(shard, tiles), _REASON), tiles)
    if free:
        hints = [walk.hints.get(r) for r, _, _ in rows]
        wanted = [
            None if hint is None else _left_over(hint, shard, free, v)
            for hint, (_, v, _), shard in zip(hints, rows, shards, strict=True)
        ]
        made = _over_free_axes(walk, body, given, free, [v for _, v, _ in rows], wanted, shards)
    else:
        made = [Held(v, Sharding.whole(v.rank)) for v in _as_it_is(walk, body, given, [v for _, v, _ in rows])]
    for (r, _, _), held, shard in zip(rows, made, shards, strict=True):
        walk.held[r] = Held(held.value, _joined(shard, held.sharding))


def _as_it_is(walk: Around, body: Block, given: dict[Value, Held], results: Sequence[Value]) -> list[Value]:
    """The results of a body of which nothing is left to the partitioner."""
    inner = {a: held.value for a, held in given.items()}
    for captured in captured_values(body):
        inner[captured] = walk.at(captured, Sharding.whole(captured.rank), "a body reads all of it")
    for part in live_ops(body.ops[:-1], results):
        made = cloned(part, inner)
        walk.emit.block.ops.append(made)
        note(walk.whole, walk.emit, part)
        inner.update(zip(part.results, made.results, strict=True))
    return [inner[v] for v in results]


def _over_free_axes(
    walk: Around, body: Block, given: dict[Value, Held], free: tuple[Digit, ...], results: Sequence[Value],
    wanted: Sequence[Sharding | None], shards: Sequence[Sharding],
) -> list[Held]:  # fmt: skip
    """The results of a body whose ops are partitioned over the axes that it leaves, as they are `wanted` if that is known."""
    region = flatten_region(walk.whole.module, body, "body")
    held = {a: given[b] for a, b in zip(region.arguments, body.arguments, strict=True)}
    for outside, inside in region.outside:
        tiles = Sharding(tuple([tuple([d for d in dim if d in free]) for dim in walk.sharding(outside).dims]))
        held[inside] = Held(walk.at(outside, tiles, "a body reads it"), tiles)
    places = {v: k for k, v in enumerate(body.ops[-1].operands)}
    found = tuple([region.program.results[places[v]] for v in results])
    program = Program("body", region.program.arguments, live_ops(region.program.ops, found), found)
    inner = walk.inside(walk.emit, held, program, wanted, free)
    inner.ops(program.ops)
    made = []
    for v, s, shard in zip(found, wanted, shards, strict=True):
        tiles = _left_over(inner.sharding(v) if s is None else s, shard, free, v)
        made.append(Held(inner.at(v, tiles, "it leaves the body so"), tiles))
    return made


def _free_digits(walk: Around, op: Op) -> tuple[Digit, ...]:
    """The digits of the axes that a body leaves to the partitioner."""
    mesh, text = walk.whole.mesh, op.attributes.get("manual_axes")
    axes = {name for name, _ in mesh.axes} if text is None else set(re.findall(r'"([^"]+)"', str(text)))
    left = [Digit(mesh.stride(name), n, name) for name, n in mesh.axes if n > 1 and name not in axes]
    found = [d for axis in left for d in split((axis,), walk.whole.atoms)]
    return tuple([d for d in found if walk.free is None or d in walk.free])


def _left_over(s: Sharding, shard: Sharding, free: Sequence[Digit], v: Value) -> Sharding:
    """The free digits of a sharding, as tiles of a body's shard `v`: those that cut it evenly where the body's own do, too."""
    dims = []
    for digits, own_digits, size in zip(s.dims, shard.dims, v.shape, strict=True):
        kept = tuple([d for d in digits if d in free])
        dims.append(kept if not own_digits or size % prod(d.size for d in kept) == 0 else ())
    return Sharding(tuple(dims))


def _joined(shard: Sharding, tiles: Sharding) -> Sharding:
    """A tile of a shard, as a tile of the whole value."""
    return Sharding(tuple([(*a, *b) for a, b in zip(shard.dims, tiles.dims, strict=True)]))


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


def collective(walk: Around, op: Op) -> None:
    """A collective in a body that leaves axes to the partitioner: of tiles, where its partners hold the same ones."""
    free, grid = walk.free or (), (1, walk.whole.mesh.size)
    groups = pairs_of(op, grid) if op.name == "stablehlo.collective_permute" else groups_of(op, grid)
    crosses = isinstance(groups, Declined) or any(len({d.of(p) for p in g}) > 1 for g in groups for d in free)
    touched = {op.attr(name) for name in _TOUCHED.get(op.definition.mnemonic, ())}
    spread = [walk.sharding(v) for v in op.operands]
    if crosses or any(captured_values(b) for b in op.regions) or len(op.operands) != len(op.results):
        spread = [Sharding.whole(v.rank) for v in op.operands]
    spread = [Sharding(tuple([() if k in touched else d for k, d in enumerate(s.dims)])) for s in spread]
    operands = [walk.at(v, s, f"{op.name} reads it so") for v, s in zip(op.operands, spread, strict=True)]
    shardings = spread if len(op.operands) == len(op.results) else [Sharding.whole(r.rank) for r in op.results]
    types = [s.local_type(r.tensor) for r, s in zip(op.results, shardings, strict=True)]
    regions, names = [clone_block(b, {}) for b in op.regions], [r.name for r in op.results]
    made = Op(op.definition, operands, op.attributes, regions, types, op.location, op.extra, names)
    walk.emit.block.ops.append(made)
    note(walk.whole, walk.emit, made)
    for r, v, s in zip(op.results, made.results, shardings, strict=True):
        walk.held[r] = Held(v, s)


def is_own(walk: Around, op: Op) -> bool:
    """Whether an op is of a part between XLA's calls into a shard's shape and out of it."""
    return target_of(op) == TO_SHARD or any(v in walk.held and walk.held[v].is_manual for v in op.operands)


def own(walk: Around, op: Op) -> None:
    """An op of such a part as it is; or the way into the part or out of it."""
    if target_of(op) == TO_SHARD:
        v = op.operands[0]
        held = Held(walk.at(v, walk.sharding(v), ""), Sharding.whole(op.results[0].rank), True)
        if held.value.type != op.results[0].type:
            raise AnnotationError(f"{TO_SHARD}: expected a shard {held.value.type} of {v.type}, found {op.results[0].type}")
        walk.held[op.results[0]] = held
        return
    if target_of(op) == "Sharding":
        walk.held[op.results[0]] = walk.held[op.operands[0]]
        return
    if target_of(op) == TO_WHOLE:
        written = walk.whole.of_dictionary(op.extra)
        s = Sharding.whole(op.results[0].rank) if written is None else walk.whole.atomic(written, op.results[0])
        walk.held[op.results[0]] = Held(walk.held[op.operands[0]].value, s)
        return
    outside = [*op.operands, *(v for b in op.regions for v in captured_values(b))]
    made = cloned(op, {v: walk.at(v, Sharding.whole(v.rank), "a part for one process reads it") for v in outside})
    walk.emit.block.ops.append(made)
    note(walk.whole, walk.emit, op)
    for r, v in zip(op.results, made.results, strict=True):
        walk.held[r] = Held(v, Sharding.whole(r.rank if isinstance(r.type, TensorType) else 0), True)
