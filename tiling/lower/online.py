"""The lowering with a sequential loop over blocks of a reduction's dimension: running results, rescaled when the maximum grows.

    m, s, o = -inf, 0, 0
    for each block of j:                        x: the block's part of the scores, and whatever else runs along j
        m' = max(m, max of x);  a = g(m, m')
        s = s a + sum of f(x, m')
        o = o a + sum of f(x, m') v[j]
        m = m'
    then o / s, and what else reads the results

While every x so far is -infinity, m' is one, too: f is then taken at 0, where it vanishes, and a is 1. A row that ends so gets
its NaN from g(m, m) at the end. What is divided by the sum is divided after the loop; so that it cannot overflow before, f is
scaled by a power of two that is at most the reciprocal of the number of terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, log2

from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import Fold, SumOfProducts, definition
from hlo.types import ElementType, TensorType, element_type
from indexing.expr import Const, Expr, Interval, Var, as_expr, maximum, minimum, simplify
from tiling.contract.micro_kernels import lower_contraction
from tiling.contract.roles import ContractionContext
from tiling.elements.folds import combined_function, is_neutral
from tiling.loops.affine import when
from tiling.loops.buffers import make_buffer
from tiling.loops.carry import Carry, going_on
from tiling.loops.domains.box import Span
from tiling.loops.element_ir import Apply, Load, Node, Renamer, Scalar, all_nodes, constant, loads, rebuild
from tiling.loops.ir import Buffer, Contract, FoldStep, Loop, LoopKind, Nest, Phase, Schedule, Scope, Sequential, Step, Store
from tiling.loops.names import Names
from tiling.loops.same_node import same_node
from tiling.loops.stage import Stage
from tiling.lower.fusion import Lowering
from tiling.lower.masks import Masks
from tiling.lower.member import Member
from tiling.lower.placing import FusionRequest
from tiling.lower.rescaling import Rescaling, apply, rescaling_of
from tiling.machine import Machine

__all__ = ["Online", "OnlineLowering", "find_online"]

MOST_BLOCK_ELEMS = {True: 256, False: 4096}  # of the reduction's dimension: with a contraction inside, and without
LEAST_BLOCK_ELEMS = 64
NO_MAXIMUM = "an online form has one maximum that the other reductions read"


@dataclass(frozen=True, eq=False)
class Online:
    """Which stages run along the dimension: the maximum, the sums with their rescaling, the contractions that are divided."""

    request: FusionRequest  # without the stages that are computed where they are read
    maximum: Stage
    sums: Mapping[Stage, Rescaling]  # by id of the stage
    divided: Mapping[Stage, Value | None]  # by id of a contraction's stage: the sum that it is divided by after the loop
    extent: int
    block: int
    scale: float
    masks: Masks | None
    ends: tuple[Expr, Expr] | None  # the blocks that a mask leaves, while its flag is 1
    reason: str


def find_online(request: FusionRequest, machine: Machine, names: Names) -> Online | Declined:
    """The online form of a fusion, or why there is none."""
    stages = request.stages
    maxima = [s for s in stages if _is_fold(s, "maximum")]
    if len(maxima) != 1 or any(len(s.values) != 1 for s in stages):
        return Declined(NO_MAXIMUM)
    whole = Lowering(request, machine, names)
    whole.shape_all()
    return _Finder(request, whole, maxima[0]).run()


def _is_fold(s: Stage, function: str) -> bool:
    return isinstance(s.op.definition.semantics, Fold) and combined_function(s.op.regions[0]) == function


class _Finder:
    def __init__(self, request: FusionRequest, whole: Lowering, maximum: Stage) -> None:
        self.request, self.whole, self.stage = request, whole, maximum
        self.member = whole.plan_of[maximum.values[0]]
        self.value = maximum.values[0]
        self.along: dict[Value, Var] = {}  # a value -> its loop along the maximum's dimension
        self.sums: dict[Stage, Rescaling] = {}
        self.divided: dict[Stage, Value | None] = {}
        self.inlined: set[Stage] = set()  # what is computed where it is read, but for what a contraction reads in memory
        self.kept: set[Stage] = set()

    def run(self) -> Online | Declined:
        m = self.member
        reductions = [r for r in m.reduction if r.extent > 1]
        start = m.inits[0] if m.inits else None
        if len(reductions) != 1 or not isinstance(start, Scalar) or not is_neutral("maximum", start.value, start.element):
            return Declined("the maximum runs over several dimensions, or does not start from -infinity")
        if not start.element.is_float or start.element.name not in ("f32", "f64"):
            return Declined(f"running results are kept in f32 and f64, not in {start.element}")
        self.r = reductions[0]
        for p in self.whole.plans:
            fault = self._classify(p) if p is not m and self._depends(p) else None
            if fault is not None:
                return fault
        if not self.sums:
            return Declined(NO_MAXIMUM)
        dropped = self.inlined - self.kept
        if any(v in self.request.stored for s in dropped for v in s.values):
            return Declined("what is computed where it is read is a result of the fusion, too")
        contracted = any(isinstance(p.stage.op.definition.semantics, SumOfProducts) for p in self.whole.plans)
        block = _block(self.r.extent, MOST_BLOCK_ELEMS[contracted])
        if block is None:
            return Declined(f"{self.r.extent} has no divisor that makes a block")
        scale = 2.0 ** -ceil(log2(self.r.extent)) if any(v is not None for v in self.divided.values()) else 1.0
        request = replace(
            self.request, stages=tuple(s for s in self.request.stages if s not in dropped),
            inlined=frozenset(v for s in dropped for v in s.values),
        )  # fmt: skip
        masks = self.whole.find_masks()
        formulas = ", ".join(dict.fromkeys(r.formula for r in self.sums.values()))
        return Online(
            request, self.stage, self.sums, self.divided, self.r.extent, block, scale, masks, self._ends(masks, block),
            f"running results over {self.r.extent} are rescaled by {formulas} when the maximum m grows to m'",
        )  # fmt: skip

    def _depends(self, p: Member) -> bool:
        """Whether a member reads the maximum, or what was made of it along its dimension."""
        return any(load.value is self.value or load.value in self.along for load in p.reads)

    def _classify(self, p: Member) -> Declined | None:
        """Files a member that reads the maximum under what becomes of it, or says why there is no online form."""
        semantics = p.stage.op.definition.semantics
        nodes = [self._expanded(n) for n in p.nodes]
        if isinstance(semantics, Fold):
            return self._sum(p, nodes)
        if isinstance(semantics, SumOfProducts):
            return self._contraction(p, nodes)
        found = self._folded_in(nodes[0], p)
        if found is not None and p is not self.whole.plans[-1]:  # else it comes after, and reads results alone
            self.along[p.stage.values[0]] = found[1]
            self.inlined.add(p.stage)
        return None

    def _sum(self, p: Member, nodes: Sequence[Node]) -> Declined | None:
        start = p.inits[0] if p.inits else None
        found = self._folded_in(nodes[0], p)
        if found is None:
            return None  # it comes after
        if not _is_fold(p.stage, "add") or not isinstance(start, Scalar) or float(start.value) != 0.0:
            return Declined(f"{p.stage.op.name} beside the maximum is no sum from zero")
        if not any(r.variable is found[1] for r in p.reduction) or sum(r.extent > 1 for r in p.reduction) != 1:
            return Declined("a sum runs over other dimensions than the maximum")
        form = rescaling_of(nodes[0], self.value, found[0])
        if isinstance(form, Declined):
            return form
        self.sums[p.stage] = form
        return None

    def _contraction(self, p: Member, nodes: Sequence[Node]) -> Declined | None:
        found = self._folded_in(nodes[0], p)
        if found is None or not any(r.variable is found[1] for r in p.reduction):
            return Declined("a contraction reads the maximum otherwise than as its left operand along the maximum's dimension")
        if self._folded_in(nodes[1], p) is not None or sum(r.extent > 1 for r in p.reduction) != 1:
            return Declined("both operands of a contraction read the maximum")
        (node, below), divisor = _undivided(nodes[0]), None
        if below is not None:
            if not isinstance(below, Load) or below.value not in {s.values[0] for s in self.sums}:
                return Declined("a contraction's operand is divided by something other than a running sum")
            divisor = below.value
        form = rescaling_of(node, self.value, found[0])
        if isinstance(form, Declined):
            return form
        if divisor is not None and not (form.peak_is_one and all(f.peak_is_one for f in self.sums.values())):
            return Declined("the sum that a contraction is divided by is not known to be 1 at least")
        made = [load.value for load in self._operand(p) if load.value in self.along]
        self.kept.update(s for s in self.request.stages for v in made if s.values[0] is v)
        self.divided[p.stage] = divisor
        return None

    def _operand(self, p: Member) -> list[Load]:
        """What the left operand of a contraction loads below its division: a stage that stays one."""
        node, below = _undivided(p.nodes[0])
        if below is None and isinstance(node, Load) and node.value in self.along:
            inner, below = _undivided(self.whole.plan_of[node.value].nodes[0])
            node = node if below is None else inner
        return loads([node])

    def _expanded(self, node: Node) -> Node:
        """The node with what is computed along the dimension in place of its loads."""

        def leaf(load: Load) -> Node:
            if load.value not in self.along:
                return load
            made = self.whole.plan_of[load.value]
            inner = Renamer(made.at(load.index, self.whole.ranges), self.whole.ranges, {}).node(made.nodes[0])
            return self._expanded(inner)

        return rebuild(node, leaf, tuple, {})

    def _folded_in(self, node: Node, p: Member) -> tuple[Node, Var] | None:
        """(the node that the maximum runs over, p's loop along its dimension), where `node` reads both."""
        ranges = self.whole.ranges
        for top in (n for n in all_nodes([node]) if isinstance(n, Load) and n.value is self.value):
            at: dict[Var, Expr] = {
                **self.member.at(top.index, ranges),
                **{q.variable: Const(0) for q in self.member.reduction if q is not self.r},
            }
            for x in (*p.loops, *p.reduction):
                if x.extent != self.r.extent or any(x.variable in e.variables for e in top.index):
                    continue
                wanted = Renamer({**at, self.r.variable: x.variable}, ranges, {}).node(self.member.nodes[0])
                for n in all_nodes([node]):
                    if same_node(n, wanted):
                        return n, x.variable
        return None

    def _ends(self, masks: Masks | None, block: int) -> tuple[Expr, Expr] | None:
        """The first and last block that some reduction needs while the flag is 1."""
        if masks is None:
            return None
        running = [p for p in self.whole.plans if p is self.member or p.stage in self.sums or p.stage in self.divided]
        found = [masks.ends(p, next(x for x in p.reduction if x.extent > 1)) for p in running]
        ends, ranges = [e for e in found if e is not None], self.whole.ranges
        if len(ends) < len(found):
            return None
        lower, upper = minimum(*(e for e, _ in ends)), maximum(*(e for _, e in ends))
        return simplify(lower // block, ranges), simplify(upper // block, ranges)


def _block(extent: int, most: int) -> int | None:
    """The largest divisor of an extent, a multiple of LEAST_BLOCK_ELEMS, that leaves at least two blocks."""
    sizes = [b for b in range(LEAST_BLOCK_ELEMS, min(most, extent // 2) + 1, LEAST_BLOCK_ELEMS) if extent % b == 0]
    return max(sizes, default=None)


class OnlineLowering(Lowering):
    """The lowering of a fusion in its online form."""

    shares_shapes = False  # the loops of what runs block by block are cut

    def __init__(self, request: FusionRequest, machine: Machine, names: Names, online: Online) -> None:
        super().__init__(online.request, machine, names)
        self.online = online
        self.count = online.extent // online.block
        self.block = Var("b")
        self.ranges[self.block] = Interval(0, self.count - 1)
        self.running = {online.maximum, *online.sums, *online.divided}
        self.like = online.maximum.values[0]

    def reduction_span(self, plan: Member, number: int, size: int) -> Span:
        if plan.stage not in self.running or size == 1:
            return super().reduction_span(plan, number, size)
        return Span(self.block * self.online.block, self.online.block, size)

    def run(self) -> Schedule:
        self.shape_all()
        self._allocate()
        top = self.plan_of[self.like]
        self.state = {name: self._rows(top, name) for name in ("running", "next", "reference", "scale")}
        self.carries = {p.stage.values[0]: self._carry(p) for p in self.plans if p.stage in self.running}
        before: list[Step] = [c.begun(self.plan_of[v].loops) for v, c in self.carries.items()]
        inside: list[Step] = []
        after: list[Step] = [self._stored(top, self.carries[self.like].now())]
        later = self._later()
        for plan in self.plans:
            if plan is top:
                inside += self._maximum(top)
            elif plan.stage in self.online.sums:
                inside.append(self._sum(plan))
                after.append(self._final_sum(plan))
            elif plan.stage in self.online.divided:
                inside += self._product(plan)
                after.append(self._final_product(plan))
            elif self._is_along(plan):
                if plan.stage.values[0] in self.request.stored:
                    raise LookupError("what runs along the online dimension is stored")
                inside += self._scaled(plan)
            else:
                (after if plan.stage in later else before).extend(self.emit(plan))
        self.collect_contractions()
        main = Phase(tuple(self.tiles), (*before, self._loop(inside), *after))
        if self.online.ends is not None and self.online.masks is not None:
            main = self._flagged(main, self.online.masks)
        return self.schedule(main)

    def _loop(self, steps: Sequence[Step]) -> Sequential:
        lower, upper = as_expr(0), as_expr(self.count - 1)
        masks = self.online.masks
        if self.online.ends is not None and masks is not None:
            self.ranges[masks.flag] = Interval(0, 1)
            lower, upper = (simplify(e, self.ranges) for e in when(masks.flag, self.online.ends, self.count))
        loop = Loop(self.block, lower, upper, self.count, LoopKind.REDUCTION)
        return Sequential(loop, tuple(s for s in steps if isinstance(s, (Nest, Contract))), self.online.reason)

    # ------------------------------------------------------------ who runs where

    def _is_along(self, plan: Member) -> bool:
        return any(self.block in s.lower.variables for s in plan.box or ())

    def _later(self) -> set[Stage]:
        """The stages that read results of the loop."""
        late = {v for p in self.plans if p.stage in self.running for v in p.stage.values}
        found: set[Stage] = set()
        for p in self.plans:
            reads = any(load.value in late for load in p.reads)
            if reads and p.stage not in self.running and not self._is_along(p):
                found.add(p.stage)
                late.update(p.stage.values)
        return found

    def _rows(self, plan: Member, role: str) -> Buffer:
        """Scratch for one number for each element that a member computes."""
        assert plan.box is not None
        element = plan.value.tensor.element
        assert isinstance(element, ElementType)
        sizes, name = tuple(s.size for s in plan.box), self.names.scratch(plan.value, role)
        self.extra_buffers.append(make_buffer(name, Scope.THREAD, element, sizes, sizes, tuple(s.lower for s in plan.box)))
        return self.extra_buffers[-1]

    # ------------------------------------------------------------ steps

    def _carry(self, plan: Member) -> Carry:
        buffer, start = (self.state["running"], float("-inf")) if plan.value is self.like else (self._rows(plan, "running"), 0.0)
        return Carry(plan.value, buffer, plan.index, constant(start, plan.value))

    def _maximum(self, top: Member) -> list[Step]:
        old, new = (Load(self.like, top.index, self.state[k]) for k in ("running", "next"))
        fold = FoldStep(top.stage.values, (self.state["next"],), top.index, top.nodes, (old,), top.stage.op)
        rescaling = next(iter(self.online.sums.values()))
        if not all(r.is_like(rescaling) for r in self.online.sums.values()):
            raise LookupError("the running sums are rescaled differently")
        one, least = constant(1.0, self.like), constant(float("-inf"), self.like)
        steady = _choice(_compared("EQ", self.like, old, new), one, rescaling.make(old, new, self.like))
        steady = _choice(_compared("EQ", self.like, old, least), one, steady)  # nothing is there to be rescaled
        none = _compared("EQ", self.like, new, least)
        stores = (
            Store(None, self.state["scale"], top.index, steady),
            Store(None, self.state["reference"], top.index, _choice(none, constant(0.0, self.like), new)),
            Store(None, self.state["running"], top.index, new),
        )
        return [Nest((*top.loops, *top.reduction), folds=(fold,)), Nest(top.loops, stores=stores)]

    def _reads_maximum(self, plan: Member) -> bool:
        return any(load.value is self.like for load in plan.reads)

    def _at_reference(self, plan: Member) -> Node:
        """A member's node with the maximum so far in place of the maximum; -infinity stands as 0 there.

        What is made of the maximum is scaled down: then no product overflows.
        """

        def leaf(load: Load) -> Node:
            return Load(load.value, load.index, self.state["reference"]) if load.value is self.like else load

        scale = self.online.scale if self._reads_maximum(plan) else 1.0
        return _times(plan.stage.values[0], rebuild(plan.nodes[0], leaf, tuple, {}), scale)

    def _stored(self, plan: Member, node: Node) -> Nest:
        """A member's value, for all of its box."""
        return Nest(plan.loops, stores=(Store(plan.value, self.buffers[plan.value], plan.index, node),))

    def _scale_at(self, plan: Member) -> Load:
        """How much a member's running result shrinks: at the row of the maximum that it reads."""
        tops = [load for load in (*plan.reads, *loads(self._made_along(plan))) if load.value is self.like]
        if not tops:
            raise LookupError("a running result does not say which maximum it reads")
        return Load(self.like, tops[0].index, self.state["scale"])

    def _made_along(self, plan: Member) -> list[Node]:
        """The nodes of the stages along the dimension that a member loads, at the places where it does."""
        found = []
        for load in plan.reads:
            made = self.plan_of.get(load.value)
            if made is not None and self._is_along(made):
                found.append(Renamer(made.at(load.index, self.ranges), self.ranges, {}).node(made.nodes[0]))
        return found

    def _scaled(self, plan: Member) -> list[Step]:
        """A stage along the dimension, a block of it."""
        return [self._stored(plan, self._at_reference(plan))] if self._reads_maximum(plan) else self.emit(plan)

    def _sum(self, plan: Member) -> Nest:
        running = self.carries[plan.value]
        start = apply("multiply", plan.value, self._scale_at(plan), running.now())
        fold = FoldStep((plan.value,), (running.buffer,), plan.index, (self._at_reference(plan),), (start,), plan.stage.op)
        return Nest((*plan.loops, *plan.reduction), folds=(fold,))

    def _product(self, plan: Member) -> list[Step]:
        running = self.carries[plan.value]
        node, _ = _undivided(plan.nodes[0])
        if not isinstance(node, Load):
            raise LookupError("a contraction's operand is not in memory")
        scaled = apply("multiply", plan.value, self._scale_at(plan), running.now())
        shrunk = Nest(plan.loops, stores=(Store(None, running.buffer, plan.index, scaled),))
        lowered = lower_contraction(
            ContractionContext(
                plan.stage, plan.loops, plan.index, plan.reduction, (node, plan.nodes[1]),
                {**self.buffers, plan.value: running.buffer}, self.ranges, self.machine, self.names,
                lambda x: x in self.plan_of, goes_on=True,
            )
        )  # fmt: skip
        last = lowered.steps[-1] if lowered is not None and lowered.steps else None
        if lowered is None or lowered.prepass or not isinstance(last, Contract) or last.out.buffer is not running.buffer:
            raise LookupError("a contraction does not run block by block over the micro-kernel")
        if not all(isinstance(s, Nest) for s in lowered.steps[:-1]):
            raise LookupError("a contraction's operand is turned first")
        self.contractions[plan] = (lowered,)
        return [shrunk, *lowered.steps[:-1], going_on(last)]

    def _final_sum(self, plan: Member) -> Nest:
        node = _times(plan.value, self.carries[plan.value].now(), 1.0 / self.online.scale)
        return self._stored(plan, self._settled(plan, node))

    def _settled(self, plan: Member, node: Node) -> Node:
        """A result times g(m, m): 1, or NaN where the maximum is no number."""
        last = self.carries[self.like].now(self._scale_at(plan).index)
        form = self.online.sums.get(plan.stage, next(iter(self.online.sums.values())))
        return apply("multiply", plan.value, node, form.make(last, last, plan.value))

    def _final_product(self, plan: Member) -> Nest:
        node: Node = self.carries[plan.value].now()
        divisor = self.online.divided[plan.stage]
        if divisor is None:
            node = self._settled(plan, node)
        else:
            below = next(load for load in plan.reads if load.value is divisor)
            node = apply("divide", plan.value, node, self.carries[divisor].now(below.index))
        return self._stored(plan, node)


def _undivided(node: Node) -> tuple[Node, Node | None]:
    """What is divided, and by what: None where a node is no quotient."""
    return (node.arguments[0], node.arguments[1]) if isinstance(node, Apply) and node.function == "divide" else (node, None)


def _times(v: Value, node: Node, factor: float) -> Node:
    return node if factor == 1.0 else apply("multiply", v, node, constant(factor, v))


def _compared(direction: str, like: Value, a: Node, b: Node) -> Apply:
    kind = TensorType(like.tensor.shape, element_type("i1"))
    op = Op(definition("stablehlo.compare"), [like, like], {"comparison_direction": direction}, result_types=[kind])
    return Apply(op, "compare", (a, b))


def _choice(predicate: Node, a: Node, b: Node) -> Apply:
    assert isinstance(predicate, Apply)
    like = predicate.op.operands[0]
    op = Op(definition("stablehlo.select"), [predicate.op.results[0], like, like], result_types=[like.type])
    return Apply(op, "select", (predicate, a, b))
