"""What may be left out while a flag is 1: flags that say what they are taken for, and what a mask makes neutral under them.

    measured    a flag looks at the greatest magnitude of every piece of an input, found by an earlier phase
    left out    with inputs within the flag's limits, what a fold does not read there is neutral, and what is not stored but
                filled with zeros is zero

The limits are those that the schedule's flags test; what is neutral under them is derived again (`tiling.lower.neutral`), on the
whole shapes of the values and not on tiles, and of inputs that other kernels make from the ops that they follow from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

import islpy

from hlo.access import Condition
from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import Fold, SumOfProducts
from indexing.exact.isl import to_isl
from indexing.expr import Expr, Interval, Var
from indexing.map import Constraint, IndexingMap, Variable
from tiling.elements.build import ElementBuilder
from tiling.elements.factors import without_repeats
from tiling.elements.ranges import greatest_of
from tiling.loops.domains.box import full_box
from tiling.loops.domains.guards import guarded_loads
from tiling.loops.element_ir import has_runtimes, loads
from tiling.loops.ir import Contract, Loop, LoopKind, Measure, Nest, Schedule, Scope
from tiling.loops.stage import Stage
from tiling.loops.variables import counted
from tiling.lower.comparisons import Comparisons
from tiling.lower.member import Member
from tiling.lower.neutral import Analysis, Fact, Facts, Reading
from tiling.proving.relations import guard_set

__all__ = ["LeftOut", "measured_faults"]

MOST_ABOVE = 512  # ops that are looked at above a kernel's inputs


def measured_faults(schedule: Schedule) -> Iterator[tuple[str, str | None]]:
    """(subject, fault or None) for each limit of each flag."""
    for number, phase in enumerate(schedule.phases):
        for flag in phase.flags:
            for b, _ in flag.limits:
                yield f"phase {number} {flag.variable}: {b.name}", _unmeasured(schedule, number, b)


def _unmeasured(schedule: Schedule, before: int, target: object) -> str | None:
    writers = [
        (k, p, s) for k, p in enumerate(schedule.phases) for s in (*p.before, *p.steps)
        if isinstance(s, Measure) and s.target is target
    ]  # fmt: skip
    if len(writers) != 1:
        return f"{len(writers)} steps find out its elements' magnitudes"
    ((k, phase, m),) = writers
    if k >= before:
        return "its elements' magnitudes are not found out before"
    if m.source.scope is not Scope.ARGUMENT or m.source.value is None:
        return f"{m.source.name} is none of the inputs"
    pieces = dict(phase.tiles).get(m.piece, 0)
    if pieces * m.size < m.source.size_elems or pieces != m.target.size_elems or phase.group != 1:
        return f"{pieces} pieces of {m.size} elements, {m.source.name} has {m.source.size_elems}"
    return None


def limits_of(schedule: Schedule) -> dict[Value, float | None]:
    """The greatest magnitude of an input's elements while all flags are 1; None where they may be infinite."""
    sources = {s.target: s.source.value for p in schedule.phases for s in p.steps if isinstance(s, Measure)}
    found: dict[Value, float | None] = {}
    for flag in (f for p in schedule.phases for f in p.flags):
        for b, limit in flag.limits:
            v = sources.get(b)
            # A limit beyond the greatest number may be rounded to infinity, and infinities are within that.
            if v is not None and limit <= greatest_of(b.element):
                known = found.get(v)
                found[v] = limit if known is None else min(limit, known)
    return found


class LeftOut:
    """What a schedule's values need while all flags are 1, on the whole shapes of the values."""

    def __init__(
        self, schedule: Schedule, limits: Mapping[Value, float | None] | None = None, numbers: bool = False
    ) -> None:
        """`limits` are the flags', where no others are given. With `numbers`, comparisons with those are conditions, too."""
        self.ranges: dict[Var, Interval] = {}
        self.members: dict[Value, Member] = {}
        self.limits = limits_of(schedule) if limits is None else limits
        self.numbers = Comparisons(self.ranges) if numbers else None
        given = [b.value for b in schedule.buffers_in(Scope.ARGUMENT) if b.value is not None]
        made = _made(schedule)
        facts = {} if numbers else self._facts(given)
        self.members = {}
        for op in made:
            self._add(op, {*given, *(v for x in made for v in x.results)})
        self.analysis = self._analysis(facts)

    def _analysis(self, facts: Facts) -> Analysis | None:
        """The analysis of all members."""
        members = [m for v, m in self.members.items() if v is m.stage.values[0]]
        known: dict[Value, float | None] = dict.fromkeys(
            x.value for m in members for x in loads((*m.nodes, *m.inits)) if x.value not in self.members
        )
        reading = Reading(members, self.ranges, None, self.numbers, facts)
        return None if reading.is_cut else Analysis.whole(reading, {**known, **self.limits})

    def _facts(self, values: Sequence[Value]) -> dict[Value, Fact]:
        """What holds for values within these limits, as it follows from all ops above them, whichever kernels run those."""
        above = _above(values)
        kept = {*values, *(v for x in above for v in x.results)}
        for op in above:
            self._add(op, kept)
        analysis = self._analysis({})
        if analysis is None:
            return {}
        known = {v: (self.members[v], analysis.of(self.members[v])) for v in values if v in self.members}
        return {v: Fact(tuple(x.variable for x in m.loops), k.zero, k.span, {}) for v, (m, k) in known.items()}

    def _add(self, op: Op, kept: Set[Value]) -> None:
        """A member for an op, over the whole of its result."""
        v = op.results[0]
        m = Member(Stage(op, tuple(op.results)), full_box(v.shape))
        name = f"{len(self.members)}_whole"
        loops = []
        for k, n in enumerate(v.shape):
            loops.append(counted(f"i{k}_{name}", n, self.ranges))
        m.loops, m.index = tuple(loops), tuple(x.variable for x in loops)
        reduction: list[Loop] = []

        def provide(size: int) -> Expr:
            reduction.append(counted(f"r{len(reduction)}_{name}", size, self.ranges, LoopKind.REDUCTION))
            return reduction[-1].variable

        semantics = op.definition.semantics
        is_fold = isinstance(semantics, Fold)
        try:
            if is_fold or isinstance(semantics, SumOfProducts):
                builder = ElementBuilder(self.ranges, lambda w: w in kept or w.op is None)
                nodes = tuple(builder.reads(op, 0, m.index, provide))
                if not is_fold:
                    nodes = tuple(without_repeats(nodes, self.ranges, dict(zip(m.index, v.shape, strict=True))))
                count = len(op.operands) // 2 if is_fold else len(nodes)
                m.nodes, m.inits, m.reduction = nodes[:count], nodes[count:], tuple(reduction)
            else:
                builder = ElementBuilder(self.ranges, lambda w: w is not v and (w in kept or w.op is None))
                m.nodes = (builder.at(v, m.index),)
        except LookupError:
            return  # nothing is known of it, so nothing may be left out
        m.reads = loads((*m.nodes, *m.inits))
        self.members.update(dict.fromkeys(op.results, m))

    def neutral(self, v: Value) -> tuple[Condition, ...]:
        """The conditions of which one fails where an element need not be folded in."""
        m = self.members.get(v)
        return () if m is None or self.analysis is None else self.analysis.of(m).neutral

    def zero(self, v: Value) -> tuple[Condition, ...]:
        """The conditions of which one fails where an element is zero."""
        m = self.members.get(v)
        return () if m is None or self.analysis is None else self.analysis.of(m).zero

    def needs(self, v: Value) -> dict[Value, islpy.Map] | Declined:
        """For each value that an element of `v` is computed from, from the element of v to those elements that count."""
        m = self.members.get(v)
        if m is None or has_runtimes((*m.nodes, *m.inits)):
            return Declined(f"what %{v.name or '?'} reads is known at run time only")
        spans = [(x.variable, self.ranges[x.variable]) for x in (*m.loops, *m.reduction)]
        found: dict[Value, islpy.Map] = {}
        for guarded in guarded_loads((*m.nodes,)):
            if not guarded.exact:
                return Declined(f"an element of %{guarded.load.value.name or '?'} is read in more ways than are kept apart")
            load = guarded.load
            for held, failed in guarded.ways:
                conditions = _joined((*held, *self.neutral(v)))
                made = IndexingMap(tuple(Variable(x, b) for x, b in spans), load.index, constraints=conditions)
                full = to_isl(made)
                for group in failed:
                    full = full.subtract_domain(guard_set(spans, group))
                r = full.project_out(islpy.dim_type.in_, len(m.loops), len(m.reduction))
                for k in range(len(m.loops)):
                    r = r.set_dim_name(islpy.dim_type.in_, k, f"i{k}")
                w = load.value
                found[w] = found[w].union(r) if w in found else r
        return found

    def not_zero(self, v: Value) -> islpy.Set:
        """The elements of a value that may be other than zero."""
        m = self.members.get(v)
        rank = v.rank
        spans = [(x.variable, self.ranges[x.variable]) for x in m.loops] if m is not None else []
        if m is None:
            spans = [(Var(f"i{k}"), Interval(0, max(n - 1, 0))) for k, n in enumerate(v.shape)]
        own = {x for x, _ in spans}
        zero = [c for c in self.zero(v) if own.issuperset(c.expression.variables)]
        made = IndexingMap(
            tuple(Variable(x, b) for x, b in spans), tuple(x for x, _ in spans), constraints=_joined(zero) if zero else ()
        )
        assert len(spans) == rank
        return to_isl(made).range()


def _joined(conditions: Sequence[Condition]) -> tuple[Constraint, ...]:
    found: dict[Expr, Interval] = {}
    for c in conditions:
        e, b = c.expression, Interval(c.lower, c.upper)
        found[e] = found[e].intersect(b) if e in found else b
    return tuple(Constraint(e, b) for e, b in found.items())


def _above(values: Sequence[Value]) -> list[Op]:
    """The ops that make these values, with the folds and products that they follow from, down to factors of products."""
    found: dict[Op, None] = {}
    seen: set[Op] = set()
    todo = [v.op for v in values if v.op is not None and not isinstance(v.op.definition.semantics, SumOfProducts)]
    found.update(dict.fromkeys(todo))
    while todo:
        op = todo.pop()
        if op in seen or len(seen) > MOST_ABOVE:
            continue
        seen.add(op)
        if isinstance(op.definition.semantics, (Fold, SumOfProducts)):
            found[op] = None
        if not isinstance(op.definition.semantics, SumOfProducts):
            todo.extend(v.op for v in op.operands if v.op is not None)
    return _in_order([op for op in found if len(op.results) == 1 and not op.definition.is_control])


def _made(schedule: Schedule) -> list[Op]:
    """The ops whose results a schedule computes in loops, in the order of its steps."""
    found: dict[Op, None] = {}
    for step in (s for p in schedule.phases for s in (*p.before, *p.all_steps)):
        values = step.values if isinstance(step, (Nest, Contract)) else ()
        found.update(dict.fromkeys(v.op for v in values if v.op is not None))
    return _in_order(list(found))


def _in_order(ops: Sequence[Op]) -> list[Op]:
    """Ops after those that they are computed from."""
    done: dict[Op, None] = {}
    wanted = set(ops)
    seen: set[Op] = set()
    stack: list[tuple[Op, bool]] = [(op, False) for op in reversed(ops)]
    while stack:
        op, ready = stack.pop()
        if ready:
            if op in wanted:
                done[op] = None
            continue
        if op in seen:
            continue
        seen.add(op)
        stack.append((op, True))
        stack.extend((v.op, False) for v in op.operands if v.op is not None and v.op not in seen)
    return list(done)
