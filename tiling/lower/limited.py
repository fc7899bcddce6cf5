"""The lowering with loops that are bounded by numbers read when the program runs: a product's rows of each group, say.

    out[m, n] = sum over g, k of (x[m, k] if starts[g] <= m < ends[g] else 0) w[g, k, n]

    out = 0
    for g in order:                          what the bounds depend on is the loop outside
        first, end = starts[g], ends[g]
        for m in [first, end - 1]: tile[m, k] = x[m, k] if ... else 0
        out[m, n] += sum over k of tile[m, k] w[g, k, n] for m in [first, end - 1]

A comparison of an index with a number that does not depend on it is a condition as others are (`tiling.lower.comparisons`), and
where it makes a product zero is derived from the intervals of its factors (`tiling.lower.neutral`), with the limits of the inputs
that this takes. The index is one of the result (rows) or of the sum (depth), the number's argument another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hlo.access import Condition
from hlo.errors import Declined
from hlo.module import Value
from hlo.registry import SumOfProducts
from indexing.expr import Const, Expr, Interval, Var, as_expr, minimum, simplify
from tiling.contract.micro_kernels import lower_contraction
from tiling.contract.operands import is_narrow
from tiling.contract.roles import ContractionContext
from tiling.loops.carry import Carry, going_on
from tiling.loops.domains.box import Box, Span
from tiling.loops.domains.conditions import bounds_by
from tiling.loops.element_ir import constant, loads
from tiling.loops.ir import Block2D, Buffer, Contract, Limit, Loop, LoopKind, Nest, Phase, Schedule, Sequential, Step
from tiling.loops.names import Names
from tiling.loops.stage import Stage
from tiling.lower.comparisons import Comparisons, Number
from tiling.lower.fusion import Lowering
from tiling.lower.masks import find_limits, measures
from tiling.lower.member import Member
from tiling.lower.neutral import Analysis, Reading
from tiling.lower.placing import FusionRequest
from tiling.machine import Machine
from tiling.passing import runs
from tiling.program.promotion import reads_choice

__all__ = ["NOTHING_LIMITED", "Limited", "LimitedLowering", "find_limited", "may_be_limited"]

NOTHING_LIMITED = "no product is bounded by numbers known at run time"


def may_be_limited(stages: Sequence[Stage], names: Names) -> bool:
    """Whether some product of these stages reads what a comparison with a number known at run time chooses, as ops alone tell."""
    if not runs("bound_by_numbers"):
        return False
    products = [s.op for s in stages if isinstance(s.op.definition.semantics, SumOfProducts)]
    for op in products:
        if op not in names.is_limited:
            names.is_limited[op] = any(map(reads_choice, op.operands))
    return any(names.is_limited[op] for op in products)


@dataclass(frozen=True, eq=False)
class _Axis:
    """A loop of the product: of its result's dimension, or of its sum's, with this number."""

    is_reduction: bool
    number: int


@dataclass(frozen=True, eq=False)
class _Bound:
    """The axis begins at, or ends before, `number` + `more`."""

    number: Number
    more: int
    is_end: bool


@dataclass(frozen=True, eq=False)
class _Product:
    """A product that is bounded along one axis, once for each index along `groups`."""

    stage: Stage
    groups: _Axis
    along: _Axis
    bounds: tuple[_Bound, ...]


@dataclass(frozen=True, eq=False)
class Limited:
    """The products of a fusion that are bounded, and the limits of inputs that this takes."""

    products: tuple[_Product, ...]
    limits: Mapping[Value, float | None]


def find_limited(request: FusionRequest, machine: Machine, names: Names) -> Limited | Declined:
    """What numbers known at run time bound in a fusion, whatever its tiles; or why nothing is."""
    key = request.stages
    if key not in names.limited:
        names.limited[key] = _find(request, machine, names)
    found: Limited | Declined = names.limited[key]
    return found


def _find(request: FusionRequest, machine: Machine, names: Names) -> Limited | Declined:
    if any(len(s.values) != 1 for s in request.stages):
        return Declined(NOTHING_LIMITED)
    whole = Lowering(replace(request, tile_sizes=request.root.values[0].shape, masks=False), machine, names)
    whole.shape_all()
    numbers = Comparisons(whole.ranges)
    limits = find_limits(whole.plans, whole.ranges, None, numbers)
    if limits is None or isinstance(limits, Declined):
        return limits or Declined(NOTHING_LIMITED)
    analysis = Analysis.whole(Reading(whole.plans, whole.ranges, None, numbers), limits)
    products = [p for p in whole.plans if isinstance(p.stage.op.definition.semantics, SumOfProducts)]
    found = [_of_product(p, [c for c in analysis.of(p).neutral if numbers.is_among(c)], numbers) for p in products]
    bounded = tuple(x for x in found if x is not None)
    return Limited(bounded, limits) if bounded else Declined(NOTHING_LIMITED)


def _of_product(p: Member, conditions: Sequence[Condition], numbers: Comparisons) -> _Product | None:
    """The bounds along one axis whose numbers have one argument, another axis."""
    axes = [(x, _Axis(False, k)) for k, x in enumerate(p.loops)] + [(x, _Axis(True, k)) for k, x in enumerate(p.reduction)]
    found: dict[tuple[Var, Var], list[_Bound]] = {}
    axis_of: dict[Expr, _Axis] = {x.variable: axis for x, axis in axes}
    for c in conditions:
        v = numbers.of(c)
        assert v is not None
        number = numbers.numbers[v]
        (argument,) = number.arguments if len(number.arguments) == 1 else (None,)
        if not isinstance(argument, Var) or argument not in axis_of:
            continue
        for x in (x for x, _ in axes if x.variable in c.expression.variables):
            ends = bounds_by(c, x.variable)
            rests = [None if e is None else simplify(e - v, numbers.ranges) for e in ends or ()]
            for rest, is_end in zip(rests, (False, True), strict=False):
                if isinstance(rest, Const):
                    found.setdefault((argument, x.variable), []).append(_Bound(number, rest.constant + is_end, is_end))
    if not found:
        return None
    (groups, along), bounds = max(found.items(), key=lambda f: len(f[1]))
    return _Product(p.stage, axis_of[groups], axis_of[along], tuple(sorted(bounds, key=lambda b: b.is_end)))


class _Groups:
    """A product while it is lowered: the number of its group, the groups of a task, the steps of one group."""

    def __init__(self, product: _Product, member: Member, tag: str) -> None:
        self.product, self.member, self.tag = product, member, tag
        self.variable = Var(f"g_{tag}")
        self.span = Span(Const(0), 0, 0)
        self.box: Box | None = None  # of all groups, where they lie side by side
        self.steps: list[Step] = []
        self.limits: tuple[Limit, ...] = ()
        self.first, self.end = as_expr(0), as_expr(0)

    def reaches(self, plan: Member) -> bool:
        """Whether a member is computed group by group, for the product."""
        return plan is not self.member and any(self.variable in s.lower.variables for s in plan.box or ())

    def axis(self) -> tuple[Loop, Span]:
        """The bounded loop, and what its task has of the axis."""
        p, along = self.member, self.product.along
        if along.is_reduction:
            loop = p.reduction[along.number]
            return loop, Span(Const(0), loop.extent, loop.extent)
        assert p.box is not None
        return p.loops[along.number], p.box[along.number]


class LimitedLowering(Lowering):
    """The lowering of a fusion with products that are bounded by numbers known at run time: group by group."""

    shares_shapes = False  # the loops of what runs group by group are cut

    def __init__(self, request: FusionRequest, machine: Machine, names: Names, limited: Limited) -> None:
        super().__init__(request, machine, names)
        self.limits = limited.limits
        found = ((x, self.plan_of[x.stage.values[0]]) for x in limited.products)
        self.groups = {p: _Groups(x, p, names.stage(p.stage)) for x, p in found}

    # ------------------------------------------------------------ places

    def _tile_root(self, value: Value) -> Box:
        box = super()._tile_root(value)
        for p, g in self.groups.items():
            if p is self.root and not g.product.groups.is_reduction:
                box = self._one_group(g, box)
        return box

    def _one_group(self, g: _Groups, box: Box) -> Box:
        """What of a product's box, whose groups lie side by side, is computed in one iteration of the loop over the groups."""
        k = g.product.groups.number
        g.span, g.box, self.ranges[g.variable] = box[k], box, Interval(0, box[k].extent - 1)
        return (*box[:k], Span(g.variable, 1, box[k].extent), *box[k + 1 :])

    def shape(self, plan: Member) -> None:
        g = self.groups.get(plan)
        if g is not None and plan is not self.root and not g.product.groups.is_reduction and plan.box is not None:
            plan.box = self._one_group(g, plan.box)
        super().shape(plan)

    def reduction_span(self, plan: Member, number: int, size: int) -> Span:
        g = self.groups.get(plan)
        if g is None or not g.product.groups.is_reduction or number != g.product.groups.number:
            return super().reduction_span(plan, number, size)
        g.span, self.ranges[g.variable] = Span(Const(0), size, size), Interval(0, size - 1)
        return Span(g.variable, 1, size)

    def _in_place(self, plan: Member, v: Value) -> Buffer | None:
        return None if plan in self.groups else super()._in_place(plan, v)  # sums grow from group to group in memory of their own

    def _scratch(self, plan: Member, v: Value) -> Buffer:
        g = self.groups.get(plan)
        return super()._scratch(plan if g is None or g.box is None else replace(plan, box=g.box), v)  # of all groups

    # ------------------------------------------------------------ steps

    def run(self) -> Schedule:
        self.shape_all()
        self._allocate()
        flag = Var("tame") if any(x is not None for x in self.limits.values()) else None
        if flag is not None:
            self.ranges[flag] = Interval(0, 1)
        for g in self.groups.values():
            self._check_readers(g)
            self._read_limits(g, flag)
        steps: list[Step] = []
        for plan in self.plans:
            group = next((g for g in self.groups.values() if g.reaches(plan)), None)
            if plan in self.groups:
                steps += self._product(self.groups[plan])
            elif group is not None:
                group.steps += [self._bounded_rows(group, plan, s) for s in self.emit(plan)]
            else:
                steps += self.emit(plan)
        self.collect_contractions()
        main = Phase(tuple(self.tiles), tuple(steps))
        return self.schedule(main if flag is None else self._measured(main, flag))

    def _measured(self, main: Phase, flag: Var) -> Phase:
        """The phase with the flag that its limits ask for."""
        tag = self.names.stage(self.request.root)
        phase, found, made = measures(self.limits, flag, self.ranges, self.names, self.buffers, tag)
        self.prepass.append(phase)
        self.extra_buffers.extend(made)
        return replace(main, flags=(found,))

    def _check_readers(self, g: _Groups) -> None:
        """Raises LookupError where something else reads what runs group by group."""
        for plan in (p for p in self.plans if g.reaches(p)):
            readers = [p for p in self.plans if any(load.value in plan.stage.values for load in p.reads)]
            if any(p is not g.member and not g.reaches(p) for p in readers) or self.request.stored & {*plan.stage.values}:
                raise LookupError("what runs group by group is read by others")

    def _read_limits(self, g: _Groups, flag: Var | None) -> None:
        """What is read for each group, in the task's own count of the axis."""
        loop, span = g.axis()
        g.first, g.end = as_expr(0), simplify(loop.upper + 1, self.ranges)
        for k, b in enumerate(g.product.bounds):
            v = Var(f"{'end' if b.is_end else 'first'}{k}_{g.tag}")
            self.ranges[v] = Interval(0, loop.extent)
            node = b.number.at((g.variable,), self.ranges)
            origin = simplify(span.lower - b.more, self.ranges)
            g.limits = (*g.limits, Limit(v, node, origin, g.first, g.end, b.is_end, flag))
            if b.is_end:
                g.end = v
            else:
                g.first = v

    def _product(self, g: _Groups) -> list[Step]:
        """The loop over the groups, and before it what sums begin with: in each group, where a group has sums of its own."""
        p, in_sum = g.member, g.product.groups.is_reduction
        if is_narrow(p.value.tensor.element):
            raise LookupError("a sum of 16 bits is rounded once, of factors that are widened first")
        begun = Carry(p.value, self.buffers[p.value], p.index, constant(0.0, p.value)).begun(p.loops)
        inside = [*g.steps, *([] if in_sum else [begun]), *self._summed(g)]
        last = simplify(minimum(g.span.lower + g.span.size - 1, g.span.extent - 1), self.ranges)
        kind = LoopKind.REDUCTION if in_sum else LoopKind.PARALLEL
        loop = Loop(g.variable, g.span.lower, last, g.span.extent, kind)
        steps = tuple(s for s in inside if isinstance(s, (Nest, Contract)))
        groups = Sequential(loop, steps, "what other groups have is left out", g.limits)
        return [begun, groups] if in_sum else [groups]

    def _bounded_rows(self, g: _Groups, plan: Member, step: Step) -> Step:
        """A step that computes a factor: where the product reads it along its axis, and nothing else does."""
        readers = [q for q in self.plans if any(load.value is plan.value for load in q.reads)]
        if readers != [g.member] or not isinstance(step, Nest) or step.folds or step.segments or plan.box is None:
            return step
        loop, span = g.axis()
        mine = [load for load in g.member.reads if load.value is plan.value]
        wanted = simplify(span.lower + loop.variable, self.ranges)
        places = [k for k in range(len(plan.box)) if all(load.index[k] is wanted for load in mine)]
        if len(places) != 1 or plan.box[places[0]].lower is not span.lower or plan.box[places[0]].size != span.size:
            return step
        bounded = plan.loops[places[0]].variable
        new = [replace(x, lower=g.first, upper=g.end - 1) if x.variable is bounded else x for x in step.loops]
        return replace(step, loops=tuple(new))

    def _summed(self, g: _Groups) -> list[Step]:
        p = g.member
        lowered = lower_contraction(
            ContractionContext(
                p.stage, p.loops, p.index, p.reduction, p.nodes, self.buffers, self.ranges, self.machine, self.names,
                lambda v: v in self.plan_of, goes_on=True, blocks=((g.variable, g.span.extent),),
            )
        )  # fmt: skip
        c = lowered.steps[-1] if lowered is not None and lowered.steps else None
        if lowered is None or not isinstance(c, Contract) or c.out.buffer is not self.buffers[p.value]:
            raise LookupError("a product does not run group by group over the micro-kernel")
        copied = [x.value for s in lowered.steps[:-1] for x in loads(s.roots if isinstance(s, Nest) else ())]
        is_copied = any(g.reaches(self.plan_of[v]) for v in copied if v in self.plan_of)
        if is_copied or not all(isinstance(s, Nest) for s in lowered.steps[:-1]):
            raise LookupError("a product's factor of one group is turned or copied first")
        self.contractions[p] = (lowered,)
        return [*lowered.steps[:-1], going_on(self._bounded(c, g))]

    def _bounded(self, c: Contract, g: _Groups) -> Contract:
        loop, _ = g.axis()
        if g.product.along.is_reduction:
            if c.levels or c.k != loop.extent or c.pack or not c.kernel.adds:
                raise LookupError("the depth of a product is bounded where it is one loop, of factors that lie in memory")
            return replace(c, depth_lower=g.first, depth_upper=simplify(g.end - 1, self.ranges))
        if c.row_dimensions != (g.product.along.number,) or c.m != loop.extent or c.pack:
            raise LookupError("the rows of a product are bounded where they are one loop, of factors that lie in memory")

        def moved(b: Block2D) -> Block2D:
            return replace(b, base=simplify(b.base + g.first * b.row_stride, self.ranges))

        return replace(c, left=moved(c.left), out=moved(c.out), rows_upper=simplify(g.end - 1 - g.first, self.ranges))
