"""What a fusion costs with given tiles, without its schedule: from the boxes that its members' index maps give.

    boxes of the members       the root's tile, moved along the index maps of all reads (`Lowering.place`)
    work of each member        its operations, loads, stores over its box (`tiling.planning.costs.work`), known for every fusion
                               and every tile that asks for the same box
    joined where loops agree   as the nests will be, but without copies of expressions
    cost                       the cost model that also takes schedules (`tiling.planning.costs.estimate`)

The figures are those of the schedule that the same tiles would get. Where they do not follow from maps (folds in parts or in
lanes, sums in another type) there is no sketch, and whoever asks lowers the fusion.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from hlo.module import Value
from hlo.registry import Fold, SumOfProducts
from indexing.expr import Const, Interval, Var, simplify
from tiling.contract.register_blocks import least_sums
from tiling.cost_model import Estimate
from tiling.elements.folds import has_own_body
from tiling.loops.affine import address, linear, steps_along
from tiling.loops.domains.box import Box
from tiling.loops.element_ir import Load
from tiling.loops.ir import Block2D, Buffer, Contract, Loop, LoopKind, Nest, Phase, Schedule, Scope, Turn
from tiling.loops.names import Names
from tiling.lower.fusion import Lowering
from tiling.lower.limited import Limited
from tiling.lower.masks import Note
from tiling.lower.member import Member
from tiling.lower.placing import FusionRequest
from tiling.lower.siblings import last_steps
from tiling.machine import Machine
from tiling.passes.split_fold import LEAST_ELEMS
from tiling.passes.tighten_bounds import sums_element
from tiling.passes.turn_tiles import LEAST_SIDE, layout_of_turned
from tiling.planning.costs.estimate import REACHED, estimate_phases, least_seconds
from tiling.planning.costs.work import Access, Part, Work, join_all, order_of, work_of
from tiling.routines.table import routine_of

__all__ = ["Sketch", "floor", "sketch"]

PEAK_TYPES = {np.dtype(np.float32), np.dtype(np.float64)}  # whose products no instruction sums in groups


@dataclass(frozen=True, eq=False)
class Sketch:
    """The figures of a fusion with given tiles.

    `contracts` are the main phase's contractions, `turned` the loops (inner, consecutive) of loads that walk across rows.
    """

    tile_sizes: tuple[int, ...]
    estimate: Estimate
    contracts: tuple[Contract, ...]
    turned: tuple[tuple[Loop, Loop], ...]
    notes: tuple[str, ...]
    streams: bool
    scratch_bytes: int
    longest: int  # iterations of a loop over a reduction
    is_bounded: bool  # whether loops are bounded by masks
    is_split: bool = False  # whether a last phase only puts the parts of reductions together
    form: str = "bounded"


@dataclass(frozen=True, eq=False)
class _Emitted:
    """The steps of one member, with what they need: kept for every fusion where it has the same box and buffers."""

    parts: tuple[Part, ...]
    buffers: tuple[Buffer, ...]
    prepass: tuple[Phase, ...]
    ranges: tuple[tuple[Var, Interval], ...]
    noted: tuple[Note, ...] = ()  # what it tells the fusion's masks
    bounds: bool = False  # and whether they bound a loop of it


def sketch(request: FusionRequest, machine: Machine, names: Names) -> Sketch | None:
    """The figures of the schedule that `request` would get; None where they do not follow from its maps alone.

    Raises LookupError with the reason where there is no schedule.
    """
    if any(routine_of(s.op) is not None for s in request.stages):
        return None
    return _Weighing(request, machine, names).sketch()


def floor(request: FusionRequest, machine: Machine, names: Names, whole: Sketch | None = None) -> float:
    """Seconds that no schedule of a request can beat: what its products take at the peak, in whole tasks.

    Found from the boxes that index maps alone give. 0 where masks may leave products out, or where maps do not tell. `whole` is
    the fusion in one task: rows and columns of its contractions are the same dimensions in any tiles, and what is left of a
    block of registers takes as long as the block.
    """
    try:
        return _Weighing(request, machine, names).floor(() if whole is None else whole.contracts)
    except LookupError:
        return 0.0


class _Weighing(Lowering):
    def floor(self, known: Sequence[Contract] = ()) -> float:
        """`floor` of this request, whose fusion has these contractions. Raises LookupError where nothing reads a member."""
        boxes = self.boxes()  # of the members, in their order
        limits = self.names.limits.get(tuple(p.stage for p in self.plans))
        if boxes is None or (isinstance(limits, dict) and any(x is not None for x in limits.values())):
            return 0.0
        if isinstance(self.names.limited.get(self.request.stages), Limited):
            return 0.0
        m, seconds = self.machine, 0.0
        products = [s for s in boxes if isinstance(s.op.definition.semantics, SumOfProducts)]
        each: Sequence[Contract | None] = known if len(known) == len(products) else [None] * len(products)
        for stage, whole in zip(products, each, strict=True):
            if not {v.tensor.dtype for v in (*stage.op.operands, *stage.values)} <= PEAK_TYPES:
                continue
            value, sizes = stage.values[0], boxes[stage]
            item, size = value.tensor.dtype.itemsize, prod(sizes)
            depth = prod(r.interval.size for _, found in self.maps(stage)[:1] for r in found.ranges)
            is_its = whole is not None and whole.depth == depth and whole.value.shape == value.shape
            sums = float(size)
            if is_its and whole is not None:
                box = next(p.box or () for p in self.plans if p.stage is stage)
                sums = least_sums(whole, sizes, partial(self._begins, whole, box), m)
            # By a micro-kernel, or in plain loops: a multiplication and an addition of whole vectors.
            seconds += depth * min(2.0 * sums / (m.peak_flops(item) * REACHED), size / (m.lanes(item) * m.hertz))
        return least_seconds(seconds, prod(n for _, n in self.tiles), m)

    def _begins(self, whole: Contract, box: Box, width: int) -> bool:
        """Whether a task's columns of a contraction begin with a panel of this width."""
        return all(simplify(box[k].lower % width, self.ranges) is Const(0) for k in whole.column_dimension)

    def sketch(self) -> Sketch | None:
        others = self.place()
        if self.parts is not None and (sizes := self._sizes(self.parts)) != self.request.tile_sizes:
            return _Weighing(replace(self.request, tile_sizes=sizes), self.machine, self.names).sketch()
        self._allocate()
        self._share_buffers()
        self.masks = None if others else self.find_masks()
        emitted = {p: self._emitted(p) for p in reversed(self.plans) if not p.late}
        steps: list[Part] = []
        buffers: list[Buffer] = [*dict.fromkeys(self.buffers.values())]
        prepass: list[Phase] = []
        for plan in self.plans:
            if plan.late:
                continue
            found = emitted[plan]
            steps += found.parts
            buffers += found.buffers
            prepass += found.prepass
        buffers += [p.part for p in others if p.part is not None]
        joined: list[Part] = join_all(steps, self.ranges, self._buffer_of)
        nests = [x for p in others for x in last_steps(self, p)]
        rest: list[Part] = [work_of(x) if isinstance(x, Nest) else x for x in nests]
        last: list[Part] = join_all(rest, self.ranges, self._buffer_of)
        works = [s for s in joined if isinstance(s, Work)]
        if not all(_is_plain(s) for s in (*works, *last) if isinstance(s, Work)) or self._splits(joined):
            return None
        crossing = [(w, self._across(w)) for w in works]
        turned: dict[Part, tuple[list[Part], list[Buffer]]] = {
            w: self._turned(w, found) for w, found in crossing if any(tile for _, _, _, tile in found)
        }
        final: list[Part] = []
        for s in joined:
            parts, scratch = turned.get(s, ([s], []))
            final += parts
            buffers += scratch
        main = Phase(tuple(self.tiles), (), group=self.parts.group if self.parts else 1)
        if self.masks is not None and self.masks.is_used:
            self.prepass, self.extra_buffers = [], []
            main = self._flagged(main, self.masks)
            prepass += self.prepass
            buffers += self.extra_buffers
        schedule = Schedule((*prepass, main), tuple(buffers), self.request.tile_sizes, self.ranges, kept=self.names.kept)
        phases: list[tuple[Phase, Sequence[Part]]] = [*((p, p.steps) for p in prepass), (main, final)]
        if last:
            phases.append((Phase((), (), rest=True), last))
        loops = [x for w in works for x in w.loops]
        loops += [x for p in prepass for n in p.all_steps if isinstance(n, Nest) for x in n.loops]
        return Sketch(
            self.request.tile_sizes, estimate_phases(phases, schedule, self.machine, self._by_value()),
            tuple(s for s in phases[-1][1] if isinstance(s, Contract)), _pairs([x for _, found in crossing for x in found]),
            tuple(self.notes), all(isinstance(s, (Work, Nest, Turn)) for _, p in phases for s in p),
            schedule.thread_scratch_bytes, max((x.extent for x in loops if x.kind is LoopKind.REDUCTION), default=0),
            bool(main.flags), bool(last) and main.tasks > 1 and _in_parts(joined),
        )  # fmt: skip

    # ------------------------------------------------------------ members

    def _by_value(self) -> dict[Value, Buffer]:
        """Where each value that a member makes or reads is kept."""
        values = [v for p in self.plans for v in (*p.stage.values, *(x.value for x in p.reads))]
        return {v: self.buffers[v] for v in values if v in self.buffers}

    def _share_buffers(self) -> None:
        """Takes the buffers of fusions before that keep the same of a value: what is known of members is told by them."""
        known = self.names.buffers
        same: dict[Buffer, Buffer] = {}
        for b in self.buffers.values():
            if b not in same:
                same[b] = known.setdefault((b.value, b.scope, b.element, b.shape, b.strides, b.origin), b)
        self.buffers = {k: same[b] for k, b in self.buffers.items()}

    def _emitted(self, plan: Member) -> _Emitted:
        key = self._key(plan)
        masks = self.masks
        known: _Emitted | None = None if key is None else self.names.emitted.get(key)
        if known is not None:
            self.ranges.update(known.ranges)
            if masks is not None:
                for note in known.noted:
                    masks.note(plan, *note)
                masks.is_used |= known.bounds
            return known
        before = set(self.ranges)
        extra, ahead = len(self.extra_buffers), len(self.prepass)
        noted, was_used = (0, False) if masks is None else (len(masks.noted), masks.is_used)
        if masks is not None:
            masks.is_used = False
        steps = self.emit(plan)
        lowered = self.contractions.get(plan, ())
        loops = {x.variable for s in steps if isinstance(s, (Nest, Contract)) for x in s.loops}
        made = _Emitted(
            tuple(work_of(s) if isinstance(s, Nest) else s for s in steps),
            (*self.extra_buffers[extra:], *(b for x in lowered for b in x.buffers)),
            (*self.prepass[ahead:], *(p for x in lowered for p in x.prepass)),
            tuple((v, r) for v, r in self.ranges.items() if v not in before or v in loops),
            () if masks is None else tuple(masks.noted[noted:]),
            masks is not None and masks.is_used,
        )
        if masks is not None:
            masks.is_used |= was_used
        if key is not None:
            self.names.emitted[key] = made
        return made

    def _key(self, plan: Member) -> Hashable:
        """What a member's steps follow from; None where that is more than its own: its readers' bounds."""
        if plan.shape is None:
            return None
        outs = tuple([self.buffers[v] for v in plan.stage.values])
        read = tuple([(self.buffers[x.value], x.value in self.plan_of) for x in plan.reads])
        semantics = plan.stage.op.definition.semantics
        if self.masks is not None:
            return (plan.shape, outs, read, self.masks.told(plan)) if isinstance(semantics, (Fold, SumOfProducts)) else None
        return (plan.shape, outs, read) if isinstance(semantics, SumOfProducts) else (plan.shape, outs)

    def _splits(self, steps: Sequence[Part]) -> bool:
        """Whether the one task starts with a reduction that may be shared out in pieces."""
        first = steps[0] if steps else None
        return isinstance(first, Work) and bool(first.folds) and not self.tiles and first.iterations >= LEAST_ELEMS

    # ------------------------------------------------------------ loads across rows

    def _across(self, work: Work) -> list[tuple[Access, Loop, Loop, bool]]:
        """(load, innermost loop, loop along which it is consecutive, whether it is a tile) as `turn_tiles.across` has them."""
        loops = work.loops
        if len(loops) < 2 or work.has_runtimes or not all(x.extent for x in loops):
            return []
        inner = -1
        found = []
        for a in work.loads:
            buffer = self._buffer_of(a.load)
            if not a.is_taken or not a.counts or buffer.scope is Scope.THREAD:
                continue
            steps = steps_along(a.load.index, buffer.strides, a.variables)
            if 1 not in steps:
                continue
            if inner < 0:
                inner = order_of(work, self._buffer_of)[-1]
            step = steps[inner]
            if step is None or step < 2:
                continue
            at = linear(address(buffer, a.load.index, self.ranges), a.variables)
            if at is None:
                continue
            rows = [k for k, n in enumerate(at[1]) if n == 1 and k != inner]
            if at[1][inner] < 2 or not rows or min(loops[inner].extent, loops[rows[0]].extent) < LEAST_SIDE:
                continue
            others = [k for k in range(len(loops)) if k not in (inner, rows[0])]
            in_tile = all(at[1][k] == 0 or loops[k].extent == 1 for k in others)
            found.append((a, loops[inner], loops[rows[0]], in_tile))
        return found

    def _turned(self, work: Work, found: Iterable[tuple[Access, Loop, Loop, bool]]) -> tuple[list[Part], list[Buffer]]:
        """The nest's work with such tiles turned first, as `turn_tiles.turned` has it."""
        done: list[Part] = []
        made: list[Buffer] = []
        new: dict[Access, Access] = {}
        lanes = self.machine.lanes(4)
        for a, inner, row, in_tile in found:
            if not in_tile:
                continue
            source = self._buffer_of(a.load)
            block = Block2D(source, Const(0), 1, 1)
            store = work.stores[0] if len(work.stores) == 1 and not work.folds and _copies(work) else None
            if store is not None and source.element == store.buffer.element:
                to = steps_along(store.index, store.buffer.strides, store.variables)
                if to[work.loops.index(inner)] == 1 and len([x for x in work.loops if x.extent > 1]) == 2:
                    return [Turn(a.load.value, inner, row, block, Block2D(store.buffer, Const(0), 1, 1))], []
            layout = layout_of_turned(source, inner, row, lanes)
            buffer = layout.buffer("turned", Scope.THREAD)
            made.append(buffer)
            done.append(Turn(a.load.value, inner, row, block, Block2D(buffer, Const(0), buffer.strides[0], 1)))
            bits = 1 << work.loops.index(inner) | 1 << work.loops.index(row)
            new[a] = Access(Load(a.load.value, layout.at, buffer), work.variables, bits, True)
        return [*done, replace(work, loads=tuple(new.get(a, a) for a in work.loads))], made


def _pairs(found: Sequence[tuple[Access, Loop, Loop, bool]]) -> tuple[tuple[Loop, Loop], ...]:
    """The loops of tiles that are turned; where none is, of those that would be in smaller tiles."""
    return tuple((inner, row) for _, inner, row, in_tile in found if in_tile or not any(x[3] for x in found))


def _in_parts(steps: Sequence[Part]) -> bool:
    """True for plain nests some of which fold into parts that all tasks share."""
    folds = [f.step for s in steps if isinstance(s, Work) for f in s.folds]
    return all(isinstance(s, Work) for s in steps) and any(f.buffers[0].scope is Scope.SHARED for f in folds)


def _copies(work: Work) -> bool:
    """True for a nest that stores what it loads and nothing else."""
    return not work.operations and len(work.loads) == 1 and not work.stores[0].operation.own


def _is_plain(work: Work) -> bool:
    """Whether a nest's folds are left as they are: no lanes, no sums in another type."""
    for f in work.folds:
        if has_own_body(f.step.op):
            return False
        if any(sums_element(f.step, b.element) is not b.element for b in f.step.buffers):
            return False
    return True
