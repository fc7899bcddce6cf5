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
from hlo.module import Op, Value
from hlo.registry import Elementwise, Move, SumOfProducts
from indexing.expr import Const, Interval, Var, as_expr, minimum, simplify
from tiling.contract.micro_kernels import lower_contraction
from tiling.contract.roles import ContractionContext
from tiling.loops.carry import Carry, going_on
from tiling.loops.domains.box import Box, Span
from tiling.loops.domains.conditions import bounds_by
from tiling.loops.element_ir import constant
from tiling.loops.ir import Block2D, Contract, Limit, Loop, LoopKind, Nest, Phase, Schedule, Sequential, Step
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

__all__ = ["Limited", "LimitedLowering", "find_limited", "may_be_limited"]

MOST_LOOKED_AT = 64
"""Ops above a factor among which a choice by a comparison is looked for: a mask stands right above its product."""

NOTHING_LIMITED = "no product is bounded by numbers known at run time"


def may_be_limited(stages: Sequence[Stage], names: Names) -> bool:
    """Whether some product of these stages reads what a comparison with a number known at run time chooses, as ops alone tell."""
    if not runs("bound_by_numbers"):
        return False
    products = [s.op for s in stages if isinstance(s.op.definition.semantics, SumOfProducts)]
    for op in products:
        if op not in names.is_limited:
            names.is_limited[op] = any(_reads_choice(v) for v in op.operands)
    return any(names.is_limited[op] for op in products)


def _reads_choice(factor: Value) -> bool:
    return any(
        op.definition.mnemonic == "select" and any(map(_is_comparison, _above(op.operands[0]))) for op in _above(factor)
    )


def _is_comparison(op: Op) -> bool:
    """Whether an op compares numbers, of which an index is one and the other one is no constant."""
    if op.definition.mnemonic != "compare" or not getattr(op.operands[0].tensor.element, "is_integer", False):
        return False
    sides = [list(_above(v)) for v in op.operands]
    counted = [any(x.definition.mnemonic == "iota" for x in side) and len(side) < MOST_LOOKED_AT for side in sides]
    made = [any(y.op is None or not _is_in_place(y.op) for x in side for y in x.operands) or not side for side in sides]
    return (counted[0] and made[1]) or (counted[1] and made[0])


def _is_in_place(op: Op) -> bool:
    return isinstance(op.definition.semantics, (Elementwise, Move)) or not op.operands


def _above(v: Value) -> list[Op]:
    """The ops that a value is computed from in place, the nearest ones first; no more than MOST_LOOKED_AT."""
    found: dict[Op, None] = {}
    todo = [v]
    while todo and len(found) < MOST_LOOKED_AT:
        op = todo.pop(0).op
        if op is not None and op not in found and _is_in_place(op):
            found[op] = None
            todo.extend(op.operands)
    return list(found)


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
class Limited:
    """Which product is bounded along which axis, once for each index along `groups`; and the limits of inputs that this takes."""

    product: Stage
    groups: _Axis
    along: _Axis
    bounds: tuple[_Bound, ...]
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
    found = [
        x for p in whole.plans if isinstance(p.stage.op.definition.semantics, SumOfProducts)
        if (x := _of_product(p, [c for c in analysis.of(p).neutral if numbers.is_among(c)], numbers, limits)) is not None
    ]  # fmt: skip
    if len(found) != 1:
        return Declined(f"{len(found)} products are bounded by numbers known at run time" if found else NOTHING_LIMITED)
    return found[0]


def _of_product(
    p: Member, conditions: Sequence[Condition], numbers: Comparisons, limits: Mapping[Value, float | None]
) -> Limited | None:
    """The bounds along one axis whose numbers have one argument, another axis."""
    axes = [*(( x, _Axis(False, k)) for k, x in enumerate(p.loops)), *((x, _Axis(True, k)) for k, x in enumerate(p.reduction))]
    found: dict[tuple[Var, Var], list[_Bound]] = {}
    axis_of = {x.variable: axis for x, axis in axes}
    for c in conditions:
        v = numbers.of(c)
        assert v is not None
        number = numbers.numbers[v]
        if len(number.arguments) != 1 or number.arguments[0] not in axis_of:
            continue
        for x in (x for x, _ in axes if x.variable in c.expression.variables):
            ends = bounds_by(c, x.variable)
            rests = [None if e is None else simplify(e - v, numbers.ranges) for e in ends or ()]
            for rest, is_end in zip(rests, (False, True), strict=False):
                if isinstance(rest, Const):
                    pair = (number.arguments[0], x.variable)
                    found.setdefault(pair, []).append(_Bound(number, rest.constant + is_end, is_end))
    if not found:
        return None
    (groups, along), bounds = max(found.items(), key=lambda f: len(f[1]))
    in_order = tuple(sorted(bounds, key=lambda b: b.is_end))
    return Limited(p.stage, axis_of[groups], axis_of[along], in_order, limits)


class LimitedLowering(Lowering):
    """The lowering of a fusion whose product is bounded by numbers known at run time: group by group."""

    shares_shapes = False  # the loops of what runs group by group are cut

    def __init__(self, request: FusionRequest, machine: Machine, names: Names, limited: Limited) -> None:
        super().__init__(request, machine, names)
        self.limited = limited
        self.group = Var("g")
        self.product = self.plan_of[limited.product.values[0]]
        self.in_sum = limited.groups.is_reduction
        self.first_group, self.last_group = as_expr(0), as_expr(0)

    # ------------------------------------------------------------ places

    def _tile_root(self, value: Value) -> Box:
        box = super()._tile_root(value)
        if self.in_sum:
            return box
        if self.product is not self.root:
            raise LookupError("what is bounded for each group is read in the fusion")
        k = self.limited.groups.number
        span = box[k]
        self._count_groups(span)
        return (*box[:k], Span(self.group, 1, span.extent), *box[k + 1 :])

    def reduction_span(self, plan: Member, number: int, size: int) -> Span:
        if plan is not self.product or not self.in_sum or number != self.limited.groups.number:
            return super().reduction_span(plan, number, size)
        self._count_groups(Span(Const(0), size, size))
        return Span(self.group, 1, size)

    def _count_groups(self, span: Span) -> None:
        self.ranges[self.group] = Interval(0, span.extent - 1)
        self.groups = span.extent
        self.first_group = span.lower
        self.last_group = simplify(minimum(span.lower + span.size - 1, span.extent - 1), self.ranges)

    def _is_along(self, plan: Member) -> bool:
        return plan is not self.product and any(self.group in s.lower.variables for s in plan.box or ())

    # ------------------------------------------------------------ steps

    def run(self) -> Schedule:
        self.shape_all()
        self._allocate()
        p = self.product
        after = self._after()
        steps: dict[str, list[Step]] = {"before": [], "inside": [], "after": []}
        limits = self._limits()
        begun = Carry(p.value, self.buffers[p.value], p.index, constant(0.0, p.value)).begun(p.loops)
        if self.in_sum:
            steps["before"].append(begun)
        for plan in self.plans:
            if plan is p:
                steps["inside"] += [] if self.in_sum else [begun]
                steps["inside"] += self._bounded_product(limits)
            elif self._is_along(plan):
                steps["inside"] += [self._bounded_rows(plan, s, limits) for s in self.emit(plan)]
            else:
                steps["after" if plan.stage in after else "before"] += self.emit(plan)
        self.collect_contractions()
        inside = [s for s in steps["inside"] if isinstance(s, (Nest, Contract))]
        kind = LoopKind.REDUCTION if self.in_sum else LoopKind.PARALLEL
        loop = Loop(self.group, self.first_group, self.last_group, self.groups, kind)
        reason = "what other groups have is left out"
        groups = Sequential(loop, tuple(inside), reason, limits)
        main = Phase(tuple(self.tiles), (*steps["before"], groups, *steps["after"]))
        return self.schedule(self._measured(main, limits))

    def _measured(self, main: Phase, limits: Sequence[Limit]) -> Phase:
        """The phase with the flag that its limits ask for."""
        flags = [x.flag for x in limits if x.flag is not None]
        if not flags:
            return main
        tag = self.names.stage(self.request.root)
        phase, flag, made = measures(self.plans, self.limited.limits, flags[0], self.ranges, self.names, self.buffers, tag)
        self.prepass.append(phase)
        self.extra_buffers.extend(made)
        return replace(main, flags=(flag,))

    def _after(self) -> set[Stage]:
        """The stages that read the product."""
        late, found = {self.product.value}, set[Stage]()
        for plan in self.plans:
            if plan is not self.product and any(load.value in late for load in plan.reads):
                found.add(plan.stage)
                late.update(plan.stage.values)
        if any(self._is_along(p) and (p.stage in found or not self.stored_nowhere(p)) for p in self.plans):
            raise LookupError("what runs group by group is read afterwards")
        return found

    def stored_nowhere(self, plan: Member) -> bool:
        """Whether only what runs group by group reads a stage that does."""
        readers = [p for p in self.plans if any(load.value in plan.stage.values for load in p.reads)]
        inside = all(p is self.product or self._is_along(p) for p in readers)
        return inside and not any(v in self.request.stored for v in plan.stage.values)

    def _axis(self) -> tuple[Loop, Span]:
        """The bounded loop, and what its task has of the axis."""
        p, along = self.product, self.limited.along
        if along.is_reduction:
            loop = p.reduction[along.number]
            return loop, Span(Const(0), loop.extent, loop.extent)
        assert p.box is not None
        return p.loops[along.number], p.box[along.number]

    def _limits(self) -> tuple[Limit, ...]:
        """What is read for each group, in the task's own count of the axis."""
        loop, span = self._axis()
        flag = Var("tame") if any(x is not None for x in self.limited.limits.values()) else None
        if flag is not None:
            self.ranges[flag] = Interval(0, 1)
        first, end = as_expr(0), simplify(loop.upper + 1, self.ranges)
        found: list[Limit] = []
        for k, b in enumerate(self.limited.bounds):
            v = Var(f"{'end' if b.is_end else 'first'}{k}")
            self.ranges[v] = Interval(0, loop.extent)
            node = b.number.at((self.group,), self.ranges)
            origin = simplify(span.lower - b.more, self.ranges)
            found.append(Limit(v, node, origin, first, end, b.is_end, flag))
            if b.is_end:
                end = v
            else:
                first = v
        self.first, self.end = first, end
        return tuple(found)

    def _bounded_rows(self, plan: Member, step: Step, limits: Sequence[Limit]) -> Step:
        """A step that computes a factor: where the product reads it along its axis, and nothing else does."""
        readers = [q for q in self.plans if any(load.value is plan.value for load in q.reads)]
        if readers != [self.product] or not isinstance(step, Nest) or step.folds or step.segments or plan.box is None:
            return step
        loop, span = self._axis()
        mine = [load for load in self.product.reads if load.value is plan.value]
        wanted = simplify(span.lower + loop.variable, self.ranges)
        places = [k for k in range(len(plan.box)) if all(load.index[k] is wanted for load in mine)]
        if len(places) != 1 or plan.box[places[0]].lower is not span.lower or plan.box[places[0]].size != span.size:
            return step
        bounded = plan.loops[places[0]].variable
        new = [replace(x, lower=self.first, upper=self.end - 1) if x.variable is bounded else x for x in step.loops]
        return replace(step, loops=tuple(new))

    def _bounded_product(self, limits: Sequence[Limit]) -> list[Step]:
        p = self.product
        lowered = lower_contraction(
            ContractionContext(
                p.stage, p.loops, p.index, p.reduction, p.nodes, self.buffers, self.ranges, self.machine, self.names,
                lambda v: v in self.plan_of, goes_on=True, blocks=((self.group, self.groups),),
            )
        )  # fmt: skip
        c = lowered.steps[-1] if lowered is not None and lowered.steps else None
        if lowered is None or not isinstance(c, Contract) or c.out.buffer is not self.buffers[p.value]:
            raise LookupError("a product does not run group by group over the micro-kernel")
        if not all(isinstance(s, Nest) for s in lowered.steps[:-1]):
            raise LookupError("a product's factor is turned first")
        self.contractions[p] = (lowered,)
        return [*lowered.steps[:-1], going_on(self._bounded(c))]

    def _bounded(self, c: Contract) -> Contract:
        loop, _ = self._axis()
        if self.limited.along.is_reduction:
            if c.levels or c.k != loop.extent or c.pack or not c.kernel.adds:
                raise LookupError("the depth of a product is bounded where it is one loop, of factors that lie in memory")
            return replace(c, depth_lower=self.first, depth_upper=simplify(self.end - 1, self.ranges))
        if c.row_dimensions != (self.limited.along.number,) or c.m != loop.extent or c.pack:
            raise LookupError("the rows of a product are bounded where they are one loop, of factors that lie in memory")

        def moved(b: Block2D) -> Block2D:
            return replace(b, base=simplify(b.base + self.first * b.row_stride, self.ranges))

        return replace(c, left=moved(c.left), out=moved(c.out), rows_upper=simplify(self.end - 1 - self.first, self.ranges))
