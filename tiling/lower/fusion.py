"""From a set of stages and tile sizes to a schedule: buffers and steps of members in their places (`tiling.lower.placing`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from hlo.errors import Declined
from hlo.module import Value
from hlo.registry import Fold, SumOfProducts
from hlo.types import ElementType, element_type
from indexing.expr import Expr, Var
from tiling.contract.lanes import lower_lanes
from tiling.contract.micro_kernels import lower_contraction
from tiling.contract.operands import is_narrow
from tiling.contract.residues import alike, holes_in, residues_of
from tiling.contract.roles import ContractionContext, LoweredContraction
from tiling.elements.build import ElementBuilder
from tiling.loops.buffers import make_buffer, shares_sets, with_planes_apart
from tiling.loops.domains.box import covers
from tiling.loops.element_ir import Load, Node, loads, node_variables
from tiling.loops.ir import Buffer, FoldStep, Nest, Phase, Schedule, Scope, Step, Store
from tiling.loops.names import Names
from tiling.loops.stage import Stage
from tiling.loops.staging import row_major
from tiling.lower.masks import Masks, find_limits, may_be_masked
from tiling.lower.member import Member
from tiling.lower.placing import FusionRequest, Placing
from tiling.lower.siblings import Parts, carried_fold, last_steps, shape_beside, start_steps
from tiling.lower.task_order import in_order
from tiling.machine import Machine
from tiling.passes.order_loops import order_loops
from tiling.passes.tighten_bounds import tighten
from tiling.passes.unrolling.unroll_choices import unroll_choices
from tiling.passing import runs
from tiling.pipeline import Surroundings, lowered
from tiling.routines.table import routine_of

__all__ = ["Lowering"]

LITTLE = 1 / 1024
"""Of all that a fusion computes: what two tasks may compute again, as a running sum over groups; more tasks do it more often."""


class Lowering(Placing):
    """The lowering of one fusion; `run` gives its schedule. Raises LookupError with the reason where it has none."""

    def __init__(self, request: FusionRequest, machine: Machine, names: Names) -> None:
        super().__init__(request, machine, names)
        self.parts: Parts | None = None
        self.buffers: dict[Value, Buffer] = {}
        self.extra_buffers: list[Buffer] = []
        self.prepass: list[Phase] = []
        self.contractions: dict[Member, tuple[LoweredContraction, ...]] = {}
        self.masks: Masks | None = None
        self.notes: list[str] = []

    def run(self) -> Schedule:
        others = self.place()
        if self.parts is not None and (sizes := self._sizes(self.parts)) != self.request.tile_sizes:
            return Lowering(replace(self.request, tile_sizes=sizes), self.machine, self.names).run()
        self._allocate()
        self.masks = None if others else self.find_masks()
        emitted: dict[Member, list[Step]] = {}
        for plan in reversed(self.plans):  # what a stage computes is what its readers still need
            emitted[plan] = [] if plan.late else self.emit(plan)
        steps = [x for plan in self.plans for x in emitted[plan]]
        self.collect_contractions()
        before = tuple(x for p in others for x in start_steps(self, p))
        group = self.parts.group if self.parts else 1
        tiles = tuple(self.tiles)
        if not others and group == 1 and not (self.masks is not None and self.masks.is_used):
            tiles = in_order(tiles, steps, self.machine.l2_bytes, self._buffer_of)
        main = Phase(tiles, tuple(steps), group=group, before=before)
        last = [x for p in others for x in last_steps(self, p)]
        if self.masks is not None and self.masks.is_used:
            main = self._flagged(main, self.masks)
        return self.schedule(main, [Phase((), tuple(last), rest=True)] if last else [])

    def schedule(self, main: Phase, rest: Sequence[Phase] = ()) -> Schedule:
        """The schedule of these phases and of those before them, after the passes that belong to lowering."""
        buffers = (*dict.fromkeys(self.buffers.values()), *self.extra_buffers)
        made = Schedule(
            (*self.prepass, main, *rest), buffers, self.request.tile_sizes, self.ranges, tuple(self.notes), kept=self.names.kept
        )
        return lowered(made, Surroundings(self.names, self._buffer_of, self.machine.lanes(4)))

    def collect_contractions(self) -> None:
        """Adds what the contractions of all members need: scratch, and what runs before the tasks; what masks ask for follows."""
        for part in (x for plan in self.plans for x in self.contractions.get(plan, ())):
            self.extra_buffers.extend(part.buffers)
            self.prepass.extend(part.prepass)

    def place(self) -> list[Member]:
        """Gives the members their boxes, loops and nodes; what the root is not computed from."""
        self.root.box = self._tile_root(self.root.stage.values[0])
        return self._place(self._closure())

    def _place(self, core: list[Member]) -> list[Member]:
        others = [p for p in self.plans if p not in core] if len(core) < len(self.plans) else []
        self.plans = [*core, *others]
        for plan in reversed(core):
            self.shape(plan)
        if others:
            self.parts = shape_beside(self, core, others)
        return others

    def repeats(self, most: float) -> bool | None:
        """Whether tasks compute members' elements more than `most` times, and that is more than LITTLE of all that they compute.

        None for routines, which have no boxes. Raises LookupError where the fusion has no schedule with these tiles for what can
        be told of boxes.
        """
        if any(routine_of(s.op) is not None for s in self.request.stages):
            return None
        self.root.box = self._tile_root(self.root.stage.values[0])
        core = self._closure()
        if len(core) < len(self.plans):
            self._place(core)
        else:  # maps alone tell
            for plan in reversed(core):
                self.spread(plan)
        if self.parts is not None and (sizes := self._sizes(self.parts)) != self.request.tile_sizes:
            return Lowering(replace(self.request, tile_sizes=sizes), self.machine, self.names).repeats(most)
        self._check_stored()
        group = self.parts.group if self.parts else 1
        tasks = -(-prod(n for _, n in self.tiles) // group) * group
        mine = [p for p in self.plans if not p.late and p.part is None]
        once = {p: p.stage.values[0].tensor.size_elems for p in mine}
        all_tasks = {p: prod(s.size for s in p.box or ()) * tasks for p in mine}
        again = sum((all_tasks[p] - once[p]) * _reads(p) for p in mine if all_tasks[p] > most * once[p])
        return again > LITTLE * sum(once[p] * _reads(p) for p in mine)

    def boxes(self) -> dict[Stage, tuple[int, ...]] | None:
        """The sizes of what a task computes of each stage, as maps alone tell.

        None for routines, and where not all stages are computed for the root. Raises LookupError for a stage that nothing reads.
        """
        if any(routine_of(s.op) is not None for s in self.request.stages):
            return None
        self.root.box = self._tile_root(self.root.stage.values[0])
        core = self._closure()
        if len(core) < len(self.plans):
            return None
        self.plans = core
        for plan in reversed(core):
            self.spread(plan)
        return {p.stage: tuple([s.size for s in p.box or ()]) for p in self.plans}

    def touched(self) -> list[Buffer]:
        """What the fusion reads from memory and writes there, as its schedule has it."""
        self.place()
        self._allocate()
        found = dict.fromkeys(self.buffers.values())
        return [b for scope in (Scope.ARGUMENT, Scope.RESULT) for b in found if b.scope is scope]

    def _sizes(self, parts: Parts) -> tuple[int, ...]:
        cut = [bool(s.lower.variables) for s in self.root.box or ()]
        return tuple(parts.size if c else n for c, n in zip(cut, self.request.tile_sizes, strict=True))

    def shape_all(self) -> None:
        """Gives every member its box, its loops and its nodes, where the root's tiles reach all of them."""
        self.root.box = self._tile_root(self.root.stage.values[0])
        for plan in reversed(self.plans):
            self.shape(plan)

    def find_masks(self) -> Masks | None:
        """What masks leave out in this fusion; None where nothing is, or where it is not asked for."""
        if not self.request.masks or not runs("bound_by_masks") or not may_be_masked(self.plans, self.names.facts):
            return None
        key = tuple(p.stage for p in self.plans)
        if key not in self.names.limits:
            self.names.limits[key] = find_limits(self.plans, self.ranges, self.names.sheets, facts=self.names.facts)
        limits = self.names.limits[key]
        if isinstance(limits, Declined):
            self.notes.append(f"no loops bounded by masks: {limits.reason}")
            return None
        if limits is None or all(x is None for x in limits.values()):
            return None  # the flag would have nothing to measure
        return Masks(self.plans, self.ranges, self.tiles, limits, self.request.stored, self.names)

    def _flagged(self, main: Phase, masks: Masks) -> Phase:
        """The main phase with the flag that its bounds depend on, computed by phases before it."""
        for v, limit in masks.limits.items():
            if limit is not None and v not in self.buffers:  # what a fact about an input holds for
                self.buffers[v] = self.names.global_buffer(v, Scope.ARGUMENT)
        if any(f.zero for f in masks.reading.facts.values()):
            self.notes.append("zeros in its inputs: masks of other kernels left them there, and they bound loops here")
        phase, flag, made = masks.measures(self.buffers, self.names.stage(self.request.root))
        if phase.steps:  # integers and booleans have limits that need not be measured
            self.prepass.append(phase)
        self.extra_buffers.extend(made)
        descending = tuple(v for v, _ in self.tiles if masks.grows_with(v))
        return replace(main, flags=(flag,), descending=descending)

    def routine(self) -> Schedule:
        """The schedule of an op that is a routine: it shares its kernel with no other stage."""
        if len(self.request.stages) > 1:
            (alone, *_) = (s.op for s in self.request.stages if routine_of(s.op) is not None)
            raise LookupError(f"{alone.name} runs in a kernel of its own")
        op = self.request.root.op
        found = routine_of(op)
        assert found is not None
        return found.lower(op, lambda ranges: ElementBuilder(ranges, self._is_in_memory, self.names.edges), self.names)

    def _buffer_of(self, load: Load) -> Buffer:
        return load.buffer or self.buffers[load.value]

    # ------------------------------------------------------------ buffers

    def _check_stored(self) -> None:
        """Raises LookupError for a stored value of which tasks would compute the same part."""
        for plan in self.plans:
            if plan is self.root or plan.late or plan.part is not None:
                continue
            assert plan.box is not None
            for v in plan.stage.values:
                if v in self.request.stored and not covers(plan.box, v.shape, self.tiles):
                    raise LookupError(f"%{self.names.of(v)} is stored, but several tasks would compute the same part of it")

    def _allocate(self) -> None:
        self._check_stored()
        for plan in self.plans:
            for v in plan.stage.values:
                if plan is self.root or v in self.request.stored:
                    self.buffers[v] = self.names.global_buffer(v, Scope.RESULT)
        for plan in reversed(self.plans):
            for v in plan.stage.values:
                if v not in self.buffers:
                    self.buffers[v] = self._in_place(plan, v) or self._scratch(plan, v)
        for plan in self.plans:
            for load in plan.reads:
                if load.value not in self.buffers:
                    self.buffers[load.value] = self.names.global_buffer(load.value, Scope.ARGUMENT)

    def _in_place(self, plan: Member, v: Value) -> Buffer | None:
        """A later value's buffer that `v` may live in: the only later reader of `v`'s elements overwrites each as it reads it."""
        assert plan.box is not None
        position = self.plans.index(plan)
        readers = [p for p in self.plans[position + 1 :] if any(load.value is v for load in p.reads)]
        if not readers:
            return None
        last = readers[-1]
        if last.reduction or isinstance(last.stage.op.definition.semantics, Fold) or len(last.stage.values) != 1:
            return None  # a fold begins with its initial value, also where it has one element
        w = last.stage.values[0]
        target = self.buffers.get(w)
        before = self.names.carried.get(w) if isinstance(plan.stage.op.definition.semantics, SumOfProducts) else None
        if before is not None and any(load.value is before for load in last.reads):
            return None  # a sum over iterations: `w` is written over what it adds to, so no product may lie there before
        mine = [load for load in last.reads if load.value is v]
        same = (
            target is not None
            and v.shape == w.shape
            and v.tensor.element == w.tensor.element
            and plan.box == last.box
            and all(load.index == last.index for load in mine)
        )
        if not same or target is None:
            return None
        # Nothing in between may write to the target, and no other result of the same op.
        between = self.plans[position : self.plans.index(last)]
        return None if any(self.buffers.get(x) is target for p in between for x in p.stage.values) else target

    def _scratch(self, plan: Member, v: Value) -> Buffer:
        assert plan.box is not None
        element = v.tensor.element
        assert isinstance(element, ElementType)
        shape = [s.size for s in plan.box]
        origin = tuple(s.lower for s in plan.box)
        layout = row_major(element, [(s.lower, s.size) for s in plan.box], origin)
        order = self._reading_order(plan, v)
        if order is None:
            padded = layout.with_rows_apart(self.machine.lanes(element.itemsize_bytes))
            made = replace(padded.buffer(self.names.scratch(v), Scope.THREAD), value=v)
            return with_planes_apart(made, self._planes(plan, v)) if shares_sets(made) else made
        made = make_buffer(self.names.scratch(v), Scope.THREAD, element, tuple(shape), tuple(shape[k] for k in order), origin, v)
        strides = dict(zip(order, made.strides, strict=True))
        return replace(made, strides=tuple(strides[k] for k in range(len(shape))))

    def _planes(self, plan: Member, v: Value) -> int:
        """How many of the first dimensions of `v` count products: planes that no product's rows run across."""
        memo: dict[Node, frozenset[Var]] = {}
        found = []
        for p in self.plans:
            if isinstance(p.stage.op.definition.semantics, SumOfProducts):
                counted = {x.variable for x in p.loops if all(x.variable in node_variables(n, memo) for n in p.nodes)}
                indices = [load.index for load in p.reads if load.value is v] + ([p.index] if p is plan else [])
                found += [_leading(index, v.shape, counted | {t for t, _ in self.tiles}) for index in indices]
        return min(found, default=0)

    def _reading_order(self, plan: Member, v: Value) -> list[int] | None:
        """The order of a product's dimensions, outermost first, in which its only reader walks through it; None for its own.

        For products that run along a dimension of both factors, which is the first one of a result and often the last one of
        its reader's: along memory in the factors too.
        """
        readers = [(p, load) for p in self.plans for load in p.reads if load.value is v]
        if not isinstance(plan.stage.op.definition.semantics, SumOfProducts) or len(readers) != 1 or len(plan.loops) < 2:
            return None
        reader, load = readers[0]
        memo: dict[Node, frozenset[Var]] = {}
        at = {x.variable: k for k, x in enumerate(reader.loops)}
        places = []
        assert plan.box is not None
        for e, span in zip(load.index, plan.box, strict=True):
            inside = [at[u] for u in e.variables if u in at]
            if len(inside) > 1 or any(u not in at and u not in {t for t, _ in self.tiles} for u in e.variables):
                return None
            if not inside and span.size > 1:
                return None
            places.append(inside[0] if inside else -1)
        order = sorted(range(len(places)), key=lambda k: places[k])
        last = plan.loops[order[-1]].variable
        in_both = all(last in node_variables(n, memo) for n in plan.nodes)
        shared = in_both or not plan.reduction
        return order if shared and order != sorted(order) else None

    # ------------------------------------------------------------ steps

    def emit(self, plan: Member) -> list[Step]:
        """The steps that compute a stage, once its buffers are known."""
        semantics = plan.stage.op.definition.semantics
        if isinstance(semantics, SumOfProducts):
            flag, ends = self._ends(plan)
            context = ContractionContext(
                plan.stage, plan.loops, plan.index, plan.reduction, plan.nodes, self.buffers, self.ranges,
                self.machine, self.names, lambda v: v in self.plan_of, flag, ends,
            )  # fmt: skip
            return self._by_residues(plan, context) or self._contracted(plan, context) or self._in_loops(plan, context)
        if isinstance(semantics, Fold):
            values = plan.stage.values
            if plan.part is not None:
                return [Nest((*plan.loops, *plan.reduction), folds=(carried_fold(self, plan),))]
            fold = FoldStep(values, tuple(self.buffers[v] for v in values), plan.index, plan.nodes, plan.inits, plan.stage.op)
            return [self._masked(plan, self._tightened(Nest((*plan.loops, *plan.reduction), folds=(fold,))))]
        (v,) = plan.stage.values
        nest = Nest(plan.loops, stores=(Store(v, self.buffers[v], plan.index, plan.nodes[0]),))
        if runs("unroll_choices"):
            nest = unroll_choices(nest, self._buffer_of, self.ranges)
        return [self._masked(plan, nest)]

    def _contracted(self, plan: Member, c: ContractionContext) -> list[Step]:
        """A sum of products over the micro-kernel, or lane by lane; nothing where plain loops do as well."""
        made = lower_contraction(c) or self._by_lanes(plan, c)
        if made is None:
            return []
        self.contractions[plan] = (*self.contractions.get(plan, ()), made)
        if made.note and made.note not in self.notes:
            self.notes.append(made.note)
        if self.masks is not None:
            self.masks.note(plan, made.bounded, (), loads(made.whole))
            self.masks.is_used |= bool(made.bounded)
        return list(made.steps)

    def _by_lanes(self, plan: Member, c: ContractionContext) -> LoweredContraction | None:
        """A window of products lane by lane."""
        target, after = self._sums(plan, c)
        made = lower_lanes(c, target)
        if made is None or not after:
            return made
        return replace(made, steps=(*made.steps, *after), buffers=(*made.buffers, target))

    def _sums(self, plan: Member, c: ContractionContext) -> tuple[Buffer, list[Step]]:
        """Where a sum of products grows, and what puts it into its place: those of 16 bits are kept in f32 and rounded once."""
        (v,), target = plan.stage.values, self.buffers[plan.stage.values[0]]
        if not is_narrow(v.tensor.element):
            return target, []
        shape = tuple(s.size for s in plan.box or ())
        name, origin = self.names.scratch(v, "sums" + c.suffix), tuple(s.lower for s in plan.box or ())
        sums = make_buffer(name, Scope.THREAD, element_type("f32"), shape, shape, origin)
        return sums, [Nest(c.loops, stores=(Store(v, target, c.index, Load(v, c.index, sums)),))]

    def _in_loops(self, plan: Member, c: ContractionContext) -> list[Step]:
        """A sum of products in plain loops; also one over nothing, an outer product."""
        target, after = self._sums(plan, c)
        if after:
            self.extra_buffers.append(target)
        fold = FoldStep(plan.stage.values, (target,), c.index, c.nodes, (), plan.stage.op)
        nest = self._tightened(Nest((*c.loops, *c.depth), folds=(fold,)))
        return [self._masked(plan, nest) if not c.suffix else nest, *after]

    def _by_residues(self, plan: Member, c: ContractionContext) -> list[Step]:
        """A sum of products with holes, residue by residue, in loops over everything while an input is not finite; or nothing."""
        holes = holes_in(c.nodes)
        element = plan.stage.values[0].tensor.element
        exact = isinstance(element, ElementType) and element.is_integer
        if not holes or not (exact or (self.masks is not None and self.masks.are_zero(plan, holes))):
            return []
        found = residues_of(c)
        if found is None:
            return []
        self.extra_buffers.extend(found.buffers)
        self.prepass.extend(found.ahead)
        steps: list[Step] = [*found.fill]
        for part in found.parts:
            steps += [part] if isinstance(part, Nest) else self._contracted(plan, part) or self._in_loops(plan, part)
        steps = alike(steps)
        if exact or self.masks is None:
            return steps
        return self.masks.either(steps, self._in_loops(plan, replace(c, suffix="_whole", ends={})), c.suffix)

    def _tightened(self, nest: Nest) -> Nest:
        return tighten(nest, self.ranges, self.names.monoids) if runs("tighten_bounds") else nest

    def _masked(self, plan: Member, nest: Nest) -> Nest:
        if self.masks is None:
            return nest
        innermost = order_loops(nest, self._buffer_of).loops[-1].variable if nest.loops else None
        return self.masks.nest(plan, nest, innermost)

    def _ends(self, plan: Member) -> tuple[Var | None, dict[Var, tuple[Expr, Expr]]]:
        """The flag, and the ends of a contraction's loops while it is 1."""
        if self.masks is None:
            return None, {}
        found = self.masks.needed(plan)
        for r in plan.reduction:
            ends = self.masks.ends(plan, r)
            if ends is not None:
                found[r.variable] = ends
        return self.masks.flag, found


def _reads(plan: Member) -> int:
    """How many elements of its largest operand a member reads for each element, where it reads each of them once."""
    size = max(1, plan.stage.values[0].tensor.size_elems)
    return max(1, max((v.tensor.size_elems for v in plan.stage.op.operands), default=1) // size)


def _leading(index: Sequence[Expr], shape: Sequence[int], counted: set[Var]) -> int:
    """How many dimensions there are before the first one of several elements whose index other variables decide."""
    others = (k for k, (e, n) in enumerate(zip(index, shape, strict=True)) if n > 1 and not counted.issuperset(e.variables))
    return next(others, 0)
