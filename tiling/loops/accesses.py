"""What a schedule reads and writes: every access with its iterations, its guards and its place in a buffer.

    access = {(tile numbers, loops) -> position in the buffer : loop bounds and conditions hold}, at a step of a phase

Positions count from a buffer's first element along each of its dimensions, so that values that share a buffer can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

from hlo.access import Condition
from hlo.module import Op, Value
from indexing.expr import (
    Const,
    Expr,
    Interval,
    Var,
    as_expr,
    interval,
    minimum,
    simplify,
    substitute,
)
from tiling.loops.domains.guards import guarded_loads
from tiling.loops.domains.inside import linear_parts
from tiling.loops.domains.iterations import Access, Domain, Kind, Unmodelled
from tiling.loops.domains.positions import positions
from tiling.loops.element_ir import Node, node_variables
from tiling.loops.ir import (
    Block2D,
    Buffer,
    Contract,
    FoldStep,
    Loop,
    LoopKind,
    MatrixStep,
    Measure,
    Nest,
    Ordering,
    Phase,
    Scatter,
    Schedule,
    Selection,
    Sequential,
    Skip,
    Step,
    Transform,
    Turn,
)

__all__ = ["AlikeSteps", "Reader", "accesses_of", "buffers_by_value", "flag_values"]

AlikeSteps = dict[tuple[int, int], "list[Access | tuple[str, str]]"]
"""What was found of a step, by its phase's number and its own."""


def flag_values(schedule: Schedule) -> list[Schedule]:
    """The schedule once for each value of its flags, which are then in no doubt: their ranges are points."""
    flags = [f.variable for p in schedule.phases for f in p.flags]
    if not flags:
        return [schedule]
    values = product(*((0, 1) for _ in flags))
    return [
        replace(schedule, ranges={**schedule.ranges, **{v: Interval(x, x) for v, x in zip(flags, at, strict=True)}})
        for at in values
    ]


def accesses_of(schedule: Schedule, alike: AlikeSteps | None = None) -> Iterator[Access | tuple[str, str]]:
    """Every access of a schedule; (step, reason) for a step that is not modelled.

    Of `flag_values` of one schedule, given one dictionary `alike`, a step that has nothing to do with flags is read once: its
    accesses are the same objects.
    """
    by_value = buffers_by_value(schedule)
    flags = {f.variable for p in schedule.phases for f in p.flags}
    for number, phase in enumerate(schedule.phases):
        if phase.flags:
            yield from Reader(schedule, by_value, phase, (number, -1), f"phase {number} flag").limits()
        for k, step in enumerate((*phase.before, *phase.steps)):
            if alike is not None and (number, k) in alike:
                yield from alike[number, k]
                continue
            label = f"phase {number} step {k}"
            reader = Reader(schedule, by_value, phase, (number, k), label)
            found: list[Access | tuple[str, str]]
            try:
                made = list(reader.step(step))
                found = [_of_first_tile(phase, a) for a in made] if k < len(phase.before) else [*made]
            except Unmodelled as reason:
                found, made = [(label, str(reason))], []
                reader.asks_flags = True
            if alike is not None and not reader.asks_flags and not any(v in flags for a in made for v, _ in a.domain.variables):
                alike[number, k] = found
            yield from found


def _of_first_tile(phase: Phase, a: Access) -> Access:
    """An access of a step that stands before a task's tiles: on the number of the first one, whichever looks back at it."""
    if phase.group == 1:
        return a
    ((tile, _),) = phase.tiles
    first = {tile: tile // phase.group * phase.group}
    ranges = a.domain.ranges

    def new(e: object) -> Expr:
        return simplify(substitute(as_expr(e), first), ranges)  # type: ignore[arg-type]

    held = tuple(replace(c, expression=new(c.expression)) for c in a.domain.held)
    failed = tuple(tuple(replace(c, expression=new(c.expression)) for c in g) for g in a.domain.failed)
    index = None if a.index is None else tuple(map(new, a.index))
    return replace(a, at=tuple(map(new, a.at)), index=index, domain=replace(a.domain, held=held, failed=failed))


def buffers_by_value(schedule: Schedule) -> dict[Value, Buffer]:
    """Where each value is kept, as the code generator sees it: a buffer used in place belongs to several values."""
    found = {b.value: b for b in schedule.buffers if b.value is not None}
    for step in (s for p in schedule.phases for s in (*p.before, *p.all_steps)):
        if isinstance(step, Contract):
            found.setdefault(step.value, step.out.buffer)
        elif isinstance(step, Nest):
            found.update({s.value: s.buffer for s in step.stores if s.value is not None})
            found.update({v: b for f in step.folds for v, b in zip(f.values, f.buffers, strict=True)})
    return found


def bounds_of(loops: Sequence[Loop], known: Mapping[Var, Interval]) -> list[tuple[Var, Interval]]:
    """Each loop's variable with an interval that covers its iterations, from the bounds' own ranges."""
    ranges = dict(known)
    found: list[tuple[Var, Interval]] = []
    for x in loops:
        first = x.lower.constant if x.lower.is_constant else interval(x.lower, ranges).lower
        span = Interval(first, x.upper.constant if x.upper.is_constant else interval(x.upper, ranges).upper)
        ranges[x.variable] = span
        found.append((x.variable, span))
    return found


def _loop_conditions(loops: Sequence[Loop], ranges: Mapping[Var, Interval]) -> list[Condition]:
    """lower <= variable <= upper, where the intervals do not say it already; minima and divisions taken apart."""
    found: list[Condition] = []
    for x in loops:
        ends = ([] if isinstance(x.lower, Const) else [x.variable - x.lower]) + (
            [] if isinstance(x.upper, Const) else [x.upper - x.variable]
        )
        for e in (p for end in ends for p in linear_parts(end)):
            span = interval(e, ranges)
            if span.lower < 0:
                found.append(Condition(e, 0, max(span.upper, 0)))
    return found


class Reader:
    """Collects the accesses of one step."""

    def __init__(
        self, schedule: Schedule, by_value: Mapping[Value, Buffer], phase: Phase, at: tuple[int, int], label: str
    ) -> None:
        self.schedule, self.by_value, self.at, self.label = schedule, by_value, at, label
        self.inside: Domain | None = None  # the sequential loop that the steps are in
        self.first_part = 0
        self.tiles = [(v, Interval(0, n - 1)) for v, n in phase.tiles]
        self.phase_flags = phase.flags
        # Flags are one value at a time: whoever asks gives each its own range (`flag_values`).
        spans = [(f.variable, schedule.ranges[f.variable]) for f in phase.flags]
        self.flags: dict[Var, Expr] = {v: Const(b.lower) for v, b in spans}
        self.asks_flags = False  # whether what was found depends on the flags' values

    def limits(self) -> Iterator[Access]:
        """What the phase's flags are found out from: all of each buffer, before the first task."""
        for b in (b for f in self.phase_flags for b, _ in f.limits):
            i = Var("limited")
            every = self.domain((Loop(i, Const(0), Const(b.size_elems - 1), b.size_elems),))
            yield from self._block(Kind.READ, Block2D(b, Const(0), 0, 1), as_expr(i), every, 0, 0)

    def step(self, step: Step) -> Iterator[Access]:
        if self._is_left_out(step):
            return
        method = _MODELS.get(type(step))
        if method is None:
            raise Unmodelled(f"there is no model of {type(step).__name__} steps")
        yield from method(self, step)

    def _is_left_out(self, step: Step) -> bool:
        """Whether a flag's value leaves a loop around all of a step without an iteration: the other values have what it does."""
        if not self.flags or not isinstance(step, (Nest, Contract)):
            return False
        around = step.loops if isinstance(step, Contract) else [x for x in step.loops if x.kind is not LoopKind.REDUCTION]
        for x in around:
            if any(v in self.flags for e in (x.lower, x.upper) for v in e.variables):
                self.asks_flags = True
                size = self._settled(x.upper - x.lower)
                if isinstance(size, Const) and size.constant < 0:
                    return True
        return False

    def domain(self, loops: Sequence[Loop], context: Domain | None = None, also: Sequence[Condition] = ()) -> Domain:
        """The iterations of loops, inside the context's or a task's."""
        base = context or self.inside or Domain(tuple(self.tiles), (), (), len(self.tiles))
        if self.flags:
            loops = [self._with_ends(x, self._settled(x.lower), self._settled(x.upper)) for x in loops]
        variables = (*base.variables, *bounds_of(loops, base.ranges))
        new = (*_loop_conditions(loops, dict(variables)), *also)
        made = Domain(variables, (*base.held, *new), (), base.shared, base.blocks)
        return self._known(made, [v for c in new for v in c.expression.variables]) if new else made

    def _known(self, domain: Domain, needed: Sequence[Var]) -> Domain:
        """The domain with these variables in it; a flag that no phase sets, say, may have any value."""
        have = domain.ranges
        if have.keys() >= set(needed):
            return domain
        new = [v for v in dict.fromkeys(needed) if v not in have]
        missing = next((v for v in new if v not in self.schedule.ranges), None)
        if missing is not None:
            raise Unmodelled(f"the variable {missing} has no range")
        return domain.with_variables(new, self.schedule.ranges) if new else domain

    def _settled(self, e: Expr) -> Expr:
        """An expression with the flags' values in it."""
        if not self.flags or not e.terms or self.flags.keys().isdisjoint(e.variables):
            return e
        self.asks_flags = True
        return simplify(substitute(e, self.flags), self.schedule.ranges)

    @staticmethod
    def _with_ends(x: Loop, lower: Expr, upper: Expr) -> Loop:
        return x if lower is x.lower and upper is x.upper else replace(x, lower=lower, upper=upper)

    def access(
        self, kind: Kind, buffer: Buffer, index: Sequence[Expr], domain: Domain, value: Value | None, part: int = 0,
        place: int = 0, around: int = 0, is_fold: bool = False,
    ) -> Access:  # fmt: skip
        if len(index) != len(buffer.origin):
            raise Unmodelled(f"{buffer.name} has {len(buffer.origin)} dimensions, an access has {len(index)}")
        used = [v for e in (*index, *buffer.origin) if isinstance(e, Expr) for v in e.variables]
        domain = self._known(domain, used)
        ranges = domain.ranges
        at = tuple([
            i if isinstance(i, Var) and o == 0 else simplify(as_expr(i - o), ranges)
            for i, o in zip(index, buffer.origin, strict=True)
        ])  # fmt: skip
        order = (*self.at, self.first_part + part, place)
        around += self._around
        return Access(kind, buffer, at, domain, order, value, tuple(index), self.label, around, is_fold)

    # ------------------------------------------------------------ nests

    def nest(self, nest: Nest, part: int = 0, context: Domain | None = None) -> Iterator[Access]:
        if nest.segments:
            yield from self._segments(nest, part, context)
            return
        skip = nest.skip if nest.skip is not None and self.flags.get(nest.skip.flag) is Const(1) else None
        self.asks_flags |= nest.skip is not None
        whole = self.domain(nest.loops, context, skip.conditions if skip is not None else ())
        outer_loops = [x for x in nest.loops if x.kind is not LoopKind.REDUCTION]
        outer = whole if skip is None and len(outer_loops) == len(nest.loops) else self.domain(outer_loops, context)
        n = len(context.variables) - context.shared - self._around if context is not None else 0
        yield from self.reads([s.node for s in nest.stores], whole, part, n)
        for f in nest.folds:
            yield from self.reads(f.nodes, whole, part, n)
            yield from self.reads(f.inits, outer, part, n)
        for k, s in enumerate(nest.stores):
            yield self.access(Kind.WRITE, s.buffer, s.index, whole, s.value, part, 1 + k, n)
            if skip is not None and skip.fill is not None:
                zeros = self._filled(nest, skip, context)
                yield self.access(Kind.WRITE, s.buffer, s.index, zeros, s.value, part, 1 + k, n)
        for k, f in enumerate(nest.folds):
            yield from self._folded(f, outer, part, 1 + len(nest.stores) + k, n)

    def _segments(self, nest: Nest, part: int, context: Domain | None) -> Iterator[Access]:
        """What the segments of the innermost loop do: each reads and stores for itself, together they fold."""
        outer = self.domain([x for x in nest.loops if x.kind is not LoopKind.REDUCTION], context)
        n = len(context.variables) - context.shared - self._around if context is not None else 0
        for x in nest.segments:
            inner = replace(nest.loops[-1], lower=x.lower, upper=x.upper)
            domain = self.domain((*nest.loops[:-1], inner), context)
            yield from self.reads([*(s.node for s in x.stores), *(m for f in x.folds for m in f.nodes)], domain, part, n)
            for k, s in enumerate(x.stores):
                yield self.access(Kind.WRITE, s.buffer, s.index, domain, s.value, part, 1 + k, n)
        for k, f in enumerate(nest.folds):
            yield from self.reads(f.inits, outer, part, n)
            yield from self._folded(f, outer, part, 1 + len(nest.stores) + k, n)

    def _filled(self, nest: Nest, skip: Skip, context: Domain | None) -> Domain:
        """Where a nest stores zeros in place of what it leaves out."""
        return self.domain(skip.filled(nest.loops), context).with_guard((), [skip.conditions])

    def _folded(self, f: FoldStep, outer: Domain, part: int, place: int, around: int) -> Iterator[Access]:
        for v, b in zip(f.values, f.buffers, strict=True):
            kind = Kind.UPDATE if f.carried else Kind.WRITE
            yield self.access(kind, b, f.index, outer, v, part, place, around, is_fold=True)

    def reads(self, roots: Sequence[Node], domain: Domain, part: int = 0, around: int = 0) -> Iterator[Access]:
        """The loads below some nodes, each under what must hold for it to be made."""
        for guarded in guarded_loads(roots):
            load = guarded.load
            buffer = load.buffer or self.by_value.get(load.value)
            if buffer is None:
                raise Unmodelled(f"%{load.value.name or '?'} is in no buffer")
            for held, failed in guarded.ways:
                needed = [v for c in (*held, *(c for g in failed for c in g)) for v in c.expression.variables]
                inside = domain.with_variables(needed, self.schedule.ranges) if needed else domain
                where = inside.with_guard(held, failed) if guarded.exact else replace(inside, widened=True)
                value = load.value if load.buffer is None else None
                yield self.access(Kind.READ, buffer, load.index, where, value, part, 0, around)

    # ------------------------------------------------------------ steps of other kinds

    def contract(self, c: Contract) -> Iterator[Access]:
        """Blocks of k one after the other: packs, then the products; `k_start` is a loop around all of it."""
        if self.flags:
            c = replace(
                c, columns_lower=self._settled(c.columns_lower), columns_upper=self._settled(c.columns_upper),
                depth_lower=self._settled(c.depth_lower), depth_upper=self._settled(c.last_depth),
            )  # fmt: skip
        depth = -(-c.k // c.k_block)
        base = self.domain(c.loops)
        multiple = [Condition(c.k_start % c.k_block, 0, 0)] if depth > 1 else []
        spans = (*base.variables, (c.k_start, Interval(0, (depth - 1) * c.k_block)))
        context = Domain(spans, (*base.held, *multiple), (), base.shared, base.blocks)
        around = len(c.loops) + 1
        for part, nest in enumerate(c.pack):
            yield from self.nest(nest, part, context)
        i, j, k = (Var(f"{c.k_start.name}_{n}") for n in ("row", "column", "depth"))
        row = Loop(i, Const(0), c.rows_upper, c.m)
        column = Loop(j, c.columns_lower, c.columns_upper, c.n)
        inner = Loop(k, Const(0), Const(min(c.k, c.k_block) - 1), c.k_block)
        tail = [Condition(c.k - 1 - c.k_start - k, 0, c.k)] if depth > 1 and c.k % c.k_block else []
        if c.depth_lower is not Const(0) or c.last_depth is not Const(c.k - 1):
            tail += [Condition(c.k_start + k - c.depth_lower, 0, c.k), Condition(c.last_depth - c.k_start - k, 0, c.k)]
        part = len(c.pack)
        levels = [Loop(Var(f"{k.name}{n}"), Const(0), Const(x[0] - 1), x[0]) for n, x in enumerate(c.levels)]
        steps = list(zip(levels, c.levels, strict=True))
        place = c.left.base + i * c.left.row_stride + k * c.left.column_stride
        for x, (_, step, _) in steps:
            place = place + x.variable * step
        numbers = (1, 0) if c.is_swapped else (0, 1)
        left, right = (self._operand(c.op, n, b.buffer) for n, b in zip(numbers, (c.left, c.right), strict=True))
        yield from self._block(Kind.READ, c.left, place, self.domain((row, *levels, inner), context, tail), part, around, left)
        step_of_all = c.k_start + k if c.kernel.adds else k
        place = c.right.base + c.kernel.place(step_of_all, j, c.columns, c.panel_stride, c.right.row_stride)
        for x, (_, _, step) in steps:
            place = place + x.variable * step
        domain = self.domain((column, *levels, inner), context, tail)
        yield from self._block(Kind.READ, c.right, place, domain, part, around, right)
        outer = self.domain((row, column), base)
        place = c.out.base + i * c.out.row_stride + j * c.out.column_stride
        kind = Kind.UPDATE if c.accumulate else Kind.WRITE
        for a in self._block(kind, c.out, place, outer, part, len(c.loops), c.value):
            at = dict(zip(c.places, a.at, strict=True)) if c.element else {}
            yield replace(a, index=tuple(substitute(e, at) for e in c.element)) if c.element else a

    def _operand(self, op: Op, number: int, buffer: Buffer) -> Value | None:
        """The value in a buffer that an operand is made of; None for a buffer of copies."""
        todo = [op.operands[number]] if number < len(op.operands) else []
        seen: set[Value] = set()
        while todo:
            v = todo.pop()
            kept = self.by_value.get(v)
            if kept is buffer:
                return v
            if v not in seen and kept is None and v.op is not None:
                todo.extend(v.op.operands)
            seen.add(v)
        return None

    def sequential(self, s: Sequential) -> Iterator[Access]:
        """Each step is a part of one step, inside the loop over blocks."""
        with self.within(s):
            for limit in s.limits:
                yield from self.reads([limit.node], self.domain(()))
            self.first_part = 1 if s.limits else 0
            for step in s.steps:
                made = list(self.step(step))
                yield from made
                self.first_part = 1 + max((a.order[2] for a in made), default=self.first_part)

    @contextmanager
    def within(self, s: Sequential) -> Iterator[None]:
        """Steps that are read meanwhile are inside the loop over blocks."""
        block = self.domain((s.loop,))
        limits = [(x.variable, self.schedule.ranges[x.variable]) for x in s.limits]
        ends = [e for x in s.limits for e in (x.variable - x.lower, x.upper - x.variable)]
        held = [Condition(e, 0, max(0, interval(e, self.schedule.ranges).upper)) for e in ends]
        inside = replace(block, variables=(*block.variables, *limits), held=(*block.held, *held), blocks=1 + len(limits))
        self.inside, self.first_part = inside, 0
        try:
            yield
        finally:
            self.inside, self.first_part = None, 0

    def measure(self, m: Measure) -> Iterator[Access]:
        i = Var(f"{m.piece.name}_element")
        n = m.source.size_elems
        loop = Loop(i, Const(0), minimum(m.size - 1, n - 1 - m.piece * m.size), m.size)
        place = m.piece * m.size + i
        yield from self._block(Kind.READ, Block2D(m.source, place, 0, 1), place, self.domain((loop,)), 0, 0, m.source.value)
        yield self.access(Kind.WRITE, m.target, (m.piece,), self.domain(()), None, 0, 1)

    def turn(self, t: Turn) -> Iterator[Access]:
        from_, to = t.places
        domain = self.domain(t.loops)
        read = t.value if self.by_value.get(t.value) is t.source.buffer else None
        yield from self._block(Kind.READ, t.source, from_, domain, 0, 0, read)
        # A turned tile in scratch is no value of its own; one that goes to memory is that buffer's value.
        yield from self._block(Kind.WRITE, t.target, to, domain, 0, 0, t.target.buffer.value)

    def ordering(self, o: Ordering) -> Iterator[Access]:
        i = Var("ordered")
        read = self.domain((Loop(i, Const(0), Const(o.count - 1), o.count),))
        kept = self.domain((Loop(i, Const(0), Const(o.kept - 1), o.kept),))
        for b in o.sources:
            yield from self._block(Kind.READ, Block2D(b, o.start, 0, o.step), o.start + i * o.step, read, 0, 0)
        for b in (*o.targets, *([o.places] if o.places is not None else [])):
            place = o.target_start + i * o.step
            yield from self._block(Kind.WRITE, Block2D(b, o.target_start, 0, o.step), place, kept, 0, 0, b.value)

    def transform(self, t: Transform) -> Iterator[Access]:
        for kind, block, n in zip((Kind.READ, Kind.WRITE), (t.source, t.target), t.sizes, strict=True):
            domain = self.domain((t.lanes, Loop(t.element, Const(0), Const(n - 1), n)))
            place = block.base + t.lanes.variable * block.row_stride + t.element * block.column_stride
            # A later axis is transformed where the earlier ones were stored.
            again = kind is Kind.WRITE and block.buffer is t.source.buffer
            value = block.buffer.value if kind is Kind.WRITE else None
            yield from self._block(Kind.UPDATE if again else kind, block, place, domain, 0, 0, value)
        if t.roots is not None:
            k = Var("root")
            every = self.domain((Loop(k, Const(0), Const(t.roots.size_elems - 1), t.roots.size_elems),))
            yield from self._block(Kind.READ, Block2D(t.roots, Const(0), 0, 1), as_expr(k), every, 0, 0)

    def matrices(self, s: MatrixStep) -> Iterator[Access]:
        for kind, found in ((Kind.READ, s.sources), (Kind.WRITE, s.targets)):
            for m in found:
                rows, columns = ((m.row, m.rows), (m.column, m.columns))
                domain = self.domain(tuple(Loop(v, Const(0), Const(n - 1), n) for v, n in (rows, columns)))
                place = m.block.base + m.row * m.block.row_stride + m.column * m.block.column_stride
                yield from self._block(kind, m.block, place, domain, 0, 0, m.block.buffer.value if kind is Kind.WRITE else None)

    def scatter(self, s: Scatter) -> Iterator[Access]:
        outer = self.domain(s.loops[: s.outer])
        whole = self.domain(s.loops)
        tests: list[Condition] = []
        for start in (*s.starts, *s.tests):
            subject = start.node if isinstance(start.node, Expr) else start.variable
            if subject is None:
                raise Unmodelled("a scatter tests a place that has no name")
            for e in (subject - start.lower, start.upper - subject):
                ranges = {**self.schedule.ranges, **whole.ranges}
                tests.append(Condition(e, 0, max(0, interval(e, ranges).upper)))
            if not isinstance(start.node, Expr):
                yield from self.reads([start.node], outer)
        needed = [v for c in tests for v in c.expression.variables]
        taken = whole.with_variables(needed, self.schedule.ranges).with_guard(tests, ())
        inside = set(whole.ranges)
        alike = [x.variable for x in s.starts if not isinstance(x.node, Expr) and inside.isdisjoint(node_variables(x.node, {}))]
        taken = replace(taken, alike=tuple([v for v in alike if v is not None and v in taken.ranges]))
        yield from self.reads(s.nodes, taken)
        for target in s.targets:
            yield self.access(Kind.UPDATE, target, s.index, taken, None, 0, 1)

    def selection(self, s: Selection) -> Iterator[Access]:
        """Every place of a window may be the chosen one; a place of the operand is the same address in the target."""
        whole = self.domain((*s.loops, *s.window), also=s.tests)
        yield self.access(Kind.READ, s.operand, s.index, whole, s.operand.value)
        yield from self.reads([s.node], self.domain(s.loops))
        yield self.access(Kind.UPDATE, s.target, s.index, whole, None, 0, 1)

    @property
    def _around(self) -> int:
        """How many variables of a sequential loop are around a step."""
        return 0 if self.inside is None else self.inside.blocks

    def _block(
        self, kind: Kind, block: Block2D, place: Expr, domain: Domain, part: int, around: int, value: Value | None = None
    ) -> Iterator[Access]:
        """An access by address: its position along each dimension of the buffer is recovered from the strides."""
        used = domain.with_variables(place.variables, self.schedule.ranges)
        at = positions(block.buffer, place, used.variables, used.held)
        order = (*self.at, self.first_part + part, 0 if kind is Kind.READ else 1)
        yield Access(kind, block.buffer, at, used, order, value, None, self.label, around + self._around)


_MODELS: dict[type, Callable[..., Iterator[Access]]] = {
    Nest: Reader.nest, Contract: Reader.contract, Turn: Reader.turn, Ordering: Reader.ordering, Scatter: Reader.scatter,
    Measure: Reader.measure, Sequential: Reader.sequential, Transform: Reader.transform, Selection: Reader.selection,
    MatrixStep: Reader.matrices,
}  # fmt: skip
