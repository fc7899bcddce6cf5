"""Where the members of a fusion are computed: their boxes in a task, their loops, and what their elements are made of.

A fusion's tasks tile the output of its root stage. Every other member is computed inside the task, on the box of elements that
the task's later stages read from it: the image of their loops under their index maps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from hlo.module import Value
from hlo.registry import Fold, SumOfProducts
from indexing.expr import Const, Expr, Interval, Var, simplify
from indexing.map import IndexingMap, RuntimeVariable, Variable, usual
from tiling.elements.build import ElementBuilder
from tiling.elements.factors import without_repeats
from tiling.elements.template import Template, template_of
from tiling.loops.domains.box import Box, Span, full_box, hull, image
from tiling.loops.element_ir import Load, Node, loads
from tiling.loops.ir import Loop, LoopKind
from tiling.loops.names import Names, StageMaps
from tiling.loops.shape import Shape
from tiling.loops.stage import Stage, is_inlinable
from tiling.loops.variables import counted
from tiling.lower.member import Member
from tiling.machine import Machine

__all__ = ["FusionRequest", "Placing"]


@dataclass(frozen=True, eq=False)
class FusionRequest:
    """What to lower: stages in dependency order, the last one the root, and which values others need in memory."""

    stages: tuple[Stage, ...]
    stored: frozenset[Value]  # values that are results of the fusion
    tile_sizes: tuple[int, ...]  # one for each dimension of the root's (first) value
    masks: bool = True  # whether what a mask makes neutral is left out
    form: str = ""  # which form is wanted (`tiling.planning.forms`), "" for the best one
    inlined: frozenset[Value] = frozenset()  # values that are computed where they are read, though they have a stage

    @property
    def root(self) -> Stage:
        return self.stages[-1]


class Placing:
    """The members of one fusion with their places. Raises LookupError with the reason where they have none."""

    shares_shapes = True  # whether a stage's loops over a box are the same in all fusions

    def __init__(self, request: FusionRequest, machine: Machine, names: Names) -> None:
        self.request = request
        self.machine = machine
        self.names = names
        self.ranges: dict[Var, Interval] = {}
        self.plans = [Member(s) for s in request.stages]
        self.root = self.plans[-1]
        self.plan_of = {v: p for p in self.plans for v in p.stage.values}
        known = names.inlined.get((request.stages, request.inlined))
        if known is None:
            known = names.inlined[request.stages, request.inlined] = frozenset(self._inlined_values())
        self.inlined: Set[Value] = known
        self.tiles: list[tuple[Var, int]] = []

    def inside(self, plan: Member) -> list[Member]:
        """The members that a member reads, through what is computed in place."""
        found: dict[Member, None] = {}
        seen: set[Value] = set()
        todo = list(plan.stage.op.operands)
        while todo:
            v = todo.pop()
            if v in seen:
                continue
            seen.add(v)
            producer = self.plan_of.get(v)
            if producer is not None:
                found[producer] = None
            elif v in self.inlined and v.op is not None:
                todo.extend(v.op.operands)
        return list(found)

    def _closure(self) -> list[Member]:
        """The root and what it is computed from, in order."""
        key = self.request.stages, self.request.inlined
        known = self.names.closures.get(key)
        if known is None:
            kept = {self.root.stage}
            for p in reversed(self.plans):
                if p.stage in kept:
                    kept.update(x.stage for x in self.inside(p))
            known = self.names.closures[key] = frozenset(kept)
        return [p for p in self.plans if p.stage in known]

    def _tile_root(self, value: Value) -> Box:
        spans = []
        for k, (n, t) in enumerate(zip(value.shape, self.request.tile_sizes, strict=True)):
            count = -(-n // t) if n else 0
            if count <= 1:
                spans.append(Span(Const(0), n, n))
            if count != 1:
                v = Var(f"t{k}")
                self.ranges[v] = Interval(0, max(count - 1, 0))
                self.tiles.append((v, count))
            if count > 1:
                spans.append(Span(v * t, t, n))
        return tuple(spans)

    def shape(self, plan: Member) -> None:
        """Gives a stage its loops and nodes, and its producers the box that those read."""
        self._build(plan)
        if any(load.value in self.plan_of for load in plan.reads):
            self.spread(plan)

    def spread(self, plan: Member) -> None:
        """Moves a stage's tile along its maps: its producers' boxes hold what is read of them."""
        if plan.box is None:
            raise LookupError(f"nothing in the fusion reads {plan.stage.op.name}")
        for k, (value, _) in enumerate(self.maps(plan.stage)):
            producer = self.plan_of.get(value)
            if producer is not None:
                box = self.image(plan, k)
                producer.box = box if producer.box is None else hull(producer.box, box, self.ranges)

    def image(self, plan: Member, number: int) -> Box:
        """The box that a stage reads along one of its maps, for the stage's own box."""
        known = plan.images.get(number)
        if known is None:
            assert plan.box is not None
            value, m = self.maps(plan.stage)[number]
            over = [self.reduction_span(plan, k, v.interval.size) for k, v in enumerate(m.ranges)]
            known = plan.images[number] = image(m, value.shape, (*plan.box, *over), self.ranges, self.names.covers)
        return known

    def maps(self, stage: Stage) -> StageMaps:
        """What a stage reads in memory, with maps from its result's index: its edges' maps, composed along what is in between."""
        key = stage, self.request.inlined
        known = self.names.maps.get(key)
        if known is None:
            known = self.names.maps[key] = self._maps(stage)
        return known

    def _maps(self, stage: Stage) -> StageMaps:
        dims = tuple([Variable(usual("d", k), Interval(0, n - 1)) for k, n in enumerate(stage.values[0].shape)])
        over: list[Variable] = []
        ranges = {v.var: v.interval for v in dims}

        def provide(size: int) -> Expr:
            over.append(Variable(usual("s", len(over)), Interval(0, size - 1)))
            ranges[over[-1].var] = over[-1].interval
            return over[-1].var

        builder = ElementBuilder(ranges, self._is_in_memory, self.names.edges)
        return _as_maps(loads(self._elements(stage, tuple([v.var for v in dims]), provide, builder)), dims, over)

    def trial(self, plan: Member) -> Member:
        """The stage with loops over all of its result, to see what they read."""
        found = Member(plan.stage, full_box(plan.stage.values[0].shape))
        self._build(found)
        return found

    def _build(self, plan: Member) -> None:
        if plan.box is None:
            raise LookupError(f"nothing in the fusion reads {plan.stage.op.name}")
        around = tuple((v, self.ranges[v]) for s in plan.box for v in s.lower.variables)
        key = (plan.stage, plan.box, around) if self.shares_shapes and not plan.spans and not self.request.inlined else None
        known = None if key is None else self.names.shapes.get(key)
        if known is not None:
            self.ranges.update(known.ranges)
            plan.take(known)
            return
        builder = ElementBuilder(self.ranges, self._is_in_memory, self.names.edges)
        self._build_anew(plan, plan.box, builder)
        own = tuple((x.variable, self.ranges[x.variable]) for x in (*plan.loops, *plan.reduction))
        if key is not None and all(s.size == s.extent for s in plan.box):  # loops over all of it: what they read are its maps
            dims, over = [[Variable(x.variable, Interval(0, x.extent - 1)) for x in y] for y in (plan.loops, plan.reduction)]
            self.names.maps.setdefault((plan.stage, self.request.inlined), _as_maps(plan.reads, dims, over))
        if key is not None and not builder.table.variables:  # variables known at run time have numbers of this fusion
            plan.shape = self.names.shapes[key] = Shape(
                plan.index, plan.loops, plan.reduction, plan.nodes, plan.inits, tuple(plan.reads), own, plan.images
            )

    def _build_anew(self, plan: Member, box: Box, builder: ElementBuilder) -> None:
        tag = self.names.stage(plan.stage)
        loops, index = [], []
        for k, span in enumerate(box):
            loops.append(counted(f"i{k}_{tag}", span.size, self.ranges, last=span.last_local(self.ranges)))
            index.append(simplify(span.lower + loops[-1].variable, self.ranges))
        plan.loops, plan.index = tuple(loops), tuple(index)
        reduction: list[Loop] = []

        def provide(size: int) -> Expr:
            span, name = self.reduction_span(plan, len(reduction), size), f"r{len(reduction)}_{tag}"
            reduction.append(counted(name, span.size, self.ranges, LoopKind.REDUCTION, span.last_local(self.ranges)))
            return span.lower + reduction[-1].variable

        nodes = self._elements(plan.stage, plan.index, provide, builder)
        plan.reduction = tuple(reduction)
        op = plan.stage.op
        count = len(op.operands) // 2 if isinstance(op.definition.semantics, Fold) else len(nodes)
        plan.nodes, plan.inits = nodes[:count], nodes[count:]
        plan.reads = loads(nodes)

    def reduction_span(self, plan: Member, number: int, size: int) -> Span:
        """What a task runs through of a reduction's dimension."""
        return (plan.spans[number] if plan.spans else None) or Span(Const(0), size, size)

    def _elements(
        self, stage: Stage, index: tuple[Expr, ...], provide: Callable[[int], Expr], builder: ElementBuilder
    ) -> tuple[Node, ...]:
        """What a stage computes for its element at `index`: of a reduction or contraction what it reads."""
        if isinstance(stage.op.definition.semantics, (Fold, SumOfProducts)):
            return tuple(self._reads(stage, index, provide, builder))
        first = stage.values[0]
        template = self._template(stage)
        if template is not None:
            return (template.at(index, builder.ranges),)
        # The stage itself counts as not in memory here.
        builder.is_in_memory = lambda v: v is not first and self._is_in_memory(v)
        return (builder.at(first, index),)

    def _template(self, stage: Stage) -> Template | None:
        """The pattern of the elements that a stage computes, where they have one: built once for all boxes."""
        key = stage, self.request.inlined
        if key not in self.names.templates:
            first = stage.values[0]
            dims = tuple([usual("d", k) for k in range(first.rank)])
            self.names.templates[key] = template_of(
                first, dims, lambda v: v is not first and self._is_in_memory(v), self.names.edges
            )  # fmt: skip
        found: Template | None = self.names.templates[key]
        return found

    def _reads(
        self, stage: Stage, index: tuple[Expr, ...], provide: Callable[[int], Expr], builder: ElementBuilder
    ) -> list[Node]:
        """What a reduction or contraction reads; outside of its input it reads the initial value, or zero in a product."""
        nodes = builder.reads(stage.op, stage.values[0].index, index, provide)
        if isinstance(stage.op.definition.semantics, Fold):
            return nodes
        return without_repeats(nodes, builder.ranges, dict(zip(index, stage.values[0].shape, strict=True)))

    def _is_in_memory(self, v: Value) -> bool:
        return v not in self.inlined

    def _inlined_values(self) -> set[Value]:
        """Values that are computed where they are read: all between the stages and what is in memory."""
        inlined: set[Value] = set()
        todo = [v for p in self.request.stages for v in p.op.operands]
        while todo:
            v = todo.pop()
            kept = v in self.plan_of or (v in self.names.in_memory and v not in self.request.inlined)
            if v in inlined or v.op is None or kept:
                continue
            if is_inlinable(v.op) is not None:
                raise LookupError(f"{v.op.name} is computed by another fusion")
            if self.names.is_stored_constant(v):
                continue
            inlined.add(v)
            todo.extend(v.op.operands)
        return inlined


def _as_maps(found: Sequence[Load], dims: Sequence[Variable], over: Sequence[Variable]) -> StageMaps:
    """The maps of loads whose indices are in these variables."""
    known = [tuple([RuntimeVariable(r.variable, Interval(r.lower, r.upper)) for r in x.runtimes]) for x in found]
    return tuple([(x.value, IndexingMap(tuple(dims), x.index, tuple(over), k)) for x, k in zip(found, known, strict=True)])
