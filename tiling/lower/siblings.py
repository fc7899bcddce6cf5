"""Several roots in one pass over what they share: results of the same tiles beside each other, and folds across tiles in parts.

    y[i] = max over j of x[i, j]       z[j] = sum over i of x[i, j]           tasks tile i

    each task, for its tiles t of rows:    y[i] = max over j of x[i, j]       i in tile t
                                           part[c, j] += x[i, j]              c the task
    then                                   z[j] = sum over c of part[c, j]

Which rows make up a part, and in which tiles they come, follows from the shapes alone: the same bits on any number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hlo.errors import Declined
from hlo.module import Value
from hlo.registry import Fold, SumOfProducts
from indexing.expr import Expr, Interval, Var, as_expr
from tiling.elements.monoids import monoid_of
from tiling.loops.carry import Carry, going_on
from tiling.loops.domains.box import Box, Span, full_box, hull
from tiling.loops.element_ir import Load
from tiling.loops.ir import Buffer, FoldStep, Loop, LoopKind, Nest, Scope, Step
from tiling.loops.monoid import Monoid
from tiling.loops.names import Names, StageMaps
from tiling.loops.stage import Stage
from tiling.loops.variables import counted
from tiling.lower.member import Member
from tiling.passes.rfactor import Factored, part_buffers, rfactor

__all__ = ["Parts", "last_steps", "parts_of", "shape_beside", "spans_beside", "start_steps"]

PIECES = 32
PART_BYTES = 1 << 21  # what the parts of one fold may take together
TILE_BYTES = 1 << 17  # of what is shared: a tile that a core's own cache keeps until all have read it


@dataclass(frozen=True)
class Parts:
    """A dimension of `extent` in tiles of `size`, `group` of them one after the other in each of `pieces` tasks."""

    extent: int
    size: int
    group: int

    @property
    def pieces(self) -> int:
        return -(-self.extent // (self.size * self.group))


def parts_of(extent: int, bytes_each: int) -> Parts:
    """The parts of a dimension, each of whose steps takes `bytes_each` bytes of what is shared.

    >>> parts_of(8192, 16384)
    Parts(extent=8192, size=8, group=32)
    """
    rows = -(-extent // PIECES)
    most = max(1, TILE_BYTES // max(bytes_each, 1))
    size = max(d for d in range(1, min(most, rows) + 1) if rows % d == 0)
    return Parts(extent, size, rows // size)


class Lowering(Protocol):
    """What is used of the lowering of a fusion (`tiling.lower.fusion`)."""

    names: Names
    ranges: dict[Var, Interval]
    root: Member
    parts: Parts | None
    plan_of: dict[Value, Member]
    buffers: dict[Value, Buffer]
    tiles: list[tuple[Var, int]]
    extra_buffers: list[Buffer]

    def inside(self, plan: Member) -> list[Member]: ...
    def shape(self, plan: Member) -> None: ...
    def trial(self, plan: Member) -> Member: ...
    def maps(self, stage: Stage) -> StageMaps: ...
    def image(self, plan: Member, number: int) -> Box: ...
    def emit(self, plan: Member) -> list[Step]: ...


def spans_beside(
    found: Sequence[Load], boxes: Mapping[Value, Box], tiles: Sequence[tuple[Var, int]]
) -> dict[Var, Span] | None:
    """Which part of each loop goes with the task's tile: what the loops then read of shared values is what the tile has of them.

    None where the loads do not say so, or say different things: no shared value is read, or not by plain loop variables, or
    the tiles do not reach all of what is shared, or a tile number is left over, so that several tasks would compute the same.
    """
    spans: dict[Var, Span] = {}
    for load in found:
        for e, span in zip(load.index, boxes.get(load.value, ()), strict=False):
            if not span.lower.variables:
                if span.size != span.extent:
                    return None
                continue
            if not isinstance(e, Var) or spans.setdefault(e, span) != span:
                return None
    used = [v for s in spans.values() for v in s.lower.variables]
    counts = dict(tiles)
    exact = all(
        len(s.lower.variables) == 1
        and s.lower is s.lower.variables[0] * s.size
        and counts.get(s.lower.variables[0]) == -(-s.extent // s.size)
        for s in spans.values()
    )
    return spans if exact and sorted(map(str, used)) == sorted(str(v) for v, _ in tiles) else None


# ---------------------------------------------------------------- shaping


def shape_beside(lowering: Lowering, core: Sequence[Member], others: Sequence[Member]) -> Parts | None:
    """Gives the members that the root does not read their boxes and loops; the parts where folds run across the tiles.

    Raises LookupError where they do not go with the root's tiles.
    """
    boxes = _boxes(lowering, core)
    kinds: dict[Member, str] = {}
    shared: list[Load] = []
    for m in others:
        kinds[m] = _place(lowering, m, boxes, kinds, shared)
    fixed = [(m, m.box) for m in core]
    for m in reversed(others):
        if kinds[m] == "late":
            m.late, m.box = True, full_box(m.stage.values[0].shape)
        elif m.box is None:
            m.box = _box_by_extents(lowering, m)
        lowering.shape(m)
    for m, box in fixed:
        if m.box != box:
            raise LookupError(f"{m.stage.op.name} is read beside its tile")
    for m in others:
        early = [lowering.plan_of[x.value] for x in m.reads if x.value in lowering.plan_of]
        if not m.late and any(kinds.get(p) in ("part", "late") for p in early):
            raise LookupError(f"{m.stage.op.name} needs a result of all tasks")
        if m.late and any(kinds.get(p) not in ("part", "late") for p in early):
            raise LookupError(f"{m.stage.op.name} reads what only its task has")
    folds = [m for m in others if kinds[m] == "part"]
    if not folds:
        return None
    return _parts(lowering, folds, shared)


def _boxes(lowering: Lowering, core: Sequence[Member]) -> dict[Value, Box]:
    """What a task has of each value that the core reads or computes."""
    boxes: dict[Value, Box] = {v: m.box for m in core for v in m.stage.values if m.box is not None}
    for m in core:
        for k, (value, to) in enumerate(lowering.maps(m.stage)):
            if value not in lowering.plan_of and not to.runtimes:
                box = lowering.image(m, k)
                known = boxes.get(value)
                boxes[value] = box if known is None else hull(known, box, lowering.ranges)
    return boxes


def _place(
    lowering: Lowering, m: Member, boxes: dict[Value, Box], kinds: Mapping[Member, str], shared: list[Load]
) -> str:
    """What becomes of a member: "tile": each task has its own; "part": a fold across tiles; "late": it waits for such folds."""
    trial = lowering.trial(m)
    ranges = [x.variable for x in trial.reduction]
    found = [x for x in trial.reads if x.value in boxes]
    spans = spans_beside(found, boxes, lowering.tiles)
    inside = [p for p in lowering.inside(m) if p in kinds]
    if spans is None:
        runs = isinstance(m.stage.op.definition.semantics, (Fold, SumOfProducts))
        waits = inside and all(kinds[p] in ("part", "late") for p in inside)
        return "late" if waits and not runs else "tile"
    shape = m.stage.values[0].shape
    m.box = tuple((spans.get(v) if isinstance(v, Var) else None) or whole
                  for v, whole in zip(trial.index, full_box(shape), strict=True))  # fmt: skip
    if not any(r in spans for r in ranges):
        boxes.update(dict.fromkeys(m.stage.values, m.box))
        return "tile"
    m.monoid = _monoid(lowering, _fold(trial), trial.reduction)
    if any(s.lower.variables for s in m.box):
        raise LookupError(f"{m.stage.op.name} does not split into parts")
    m.spans = tuple(spans.get(r) for r in ranges)
    shared.extend(found)
    return "part"


def _box_by_extents(lowering: Lowering, m: Member) -> Box:
    """The root's tile on a result of other reads: each dimension that is cut is one of the same extent."""
    box = list(full_box(m.stage.values[0].shape))
    root = lowering.root.box or ()
    for k, span in enumerate(root):
        if not span.lower.variables:
            continue
        free = [i for i, s in enumerate(box) if s.extent == span.extent and not s.lower.variables]
        if not free:
            raise LookupError(f"{m.stage.op.name} has no dimension for a tile of the root")
        box[k if k in free else free[0]] = span
    return tuple(box)


def _parts(lowering: Lowering, folds: Sequence[Member], shared: Sequence[Load]) -> Parts:
    if len(lowering.tiles) != 1:
        raise LookupError("a fold across tiles of several dimensions")
    extent = next(s.extent for s in lowering.root.box or () if s.lower.variables)
    parts = parts_of(extent, max(x.value.tensor.size_bytes for x in shared) // extent)
    for m in folds:
        (m.part,) = part_buffers(_fold(m), lowering.names, "part", Scope.SHARED, (parts.pieces, *m.stage.values[0].shape))
        if m.part.size_bytes > PART_BYTES:
            raise LookupError(f"the parts of {m.stage.op.name} take more than {PART_BYTES} bytes")
        lowering.extra_buffers.append(m.part)
    return parts


def _monoid(lowering: Lowering, f: FoldStep, over: Sequence[Loop]) -> Monoid:
    """How the parts of a member's fold are put together."""
    found = monoid_of(f, over, lowering.ranges, lowering.names.monoids)
    if isinstance(found, Declined):
        raise LookupError(f"{f.op.name} does not split into parts: {found.reason}")
    if not isinstance(f.op.definition.semantics, Fold) or len(f.values) != 1 or not (found.starts_parts and found.for_nan):
        raise LookupError(f"{f.op.name} does not split into parts")
    return found


# ---------------------------------------------------------------- steps


def _fold(m: Member, into: tuple[Buffer, ...] = ()) -> FoldStep:
    return FoldStep(m.stage.values, into, m.index, m.nodes, m.inits, m.stage.op)


def _factored(m: Member, number: Expr, into: tuple[Buffer, ...]) -> Factored:
    """A member's fold in the part of that number, and the fold of all parts."""
    assert m.part is not None and m.monoid is not None
    return rfactor(_fold(m, into), m.monoid, (m.part,), (number, *m.index))


def start_steps(lowering: Lowering, m: Member) -> list[Step]:
    """part[c, …] = the initial value."""
    if m.part is None:
        return []
    return [Carry(m.stage.values[0], m.part, (_piece(lowering), *m.index), m.inits[0]).begun(m.loops)]


def carried_fold(lowering: Lowering, m: Member) -> FoldStep:
    """part[c, …] folded with what the tile has."""
    return going_on(_factored(m, _piece(lowering), ()).part)


def last_steps(lowering: Lowering, m: Member) -> list[Step]:
    """What is computed when all tasks are done: a fold of the parts, and what reads such folds."""
    if m.late:
        return lowering.emit(m)
    if m.part is None or lowering.parts is None:
        return []
    over = counted(f"c_{lowering.names.stage(m.stage)}", lowering.parts.pieces, lowering.ranges, LoopKind.REDUCTION)
    whole = _factored(m, as_expr(over.variable), (lowering.buffers[m.stage.values[0]],)).whole
    return [Nest((*m.loops, over), folds=(whole,))]


def _piece(lowering: Lowering) -> Expr:
    """The number of the task that the tile belongs to."""
    assert lowering.parts is not None
    ((tile, _),) = lowering.tiles
    return tile // lowering.parts.group
