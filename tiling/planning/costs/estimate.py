"""The cost model of a CPU: seconds that a schedule takes on a machine, from its loops, loads and stores.

    seconds = sum over phases of max(arithmetic, traffic) / parallel efficiency + launches

Rough by intent: it must rank fusions and tile sizes, and every figure in it can be printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from math import gcd, log2, prod

from hlo.module import Value
from indexing.caches import Memo
from indexing.expr import Expr, Var
from tiling.contract.register_blocks import fill, sums_in_blocks
from tiling.cost_model import Estimate, model_of
from tiling.elements.folds import has_own_body
from tiling.loops.accesses import buffers_by_value
from tiling.loops.affine import steps_along
from tiling.loops.element_ir import Load, loads
from tiling.loops.ir import (
    Block2D,
    Buffer,
    Contract,
    FoldStep,
    LoopKind,
    MatrixStep,
    Measure,
    Nest,
    Ordering,
    Phase,
    Scatter,
    Schedule,
    Scope,
    Selection,
    Sequential,
    Step,
    Transform,
    Turn,
)
from tiling.loops.limits import evenly
from tiling.machine import Machine
from tiling.passes.order_loops import order_loops
from tiling.passes.unflatten_loops import step_in_row
from tiling.passes.unrolling.write_out_sums import MOST_SIDE_BY_SIDE
from tiling.planning.costs.averages import Averages
from tiling.planning.costs.borders import Borders
from tiling.planning.costs.work import Work, lanes_used, order_of, work_of

__all__ = ["LINE_BYTES", "REACHED", "estimate", "estimate_phases", "least_seconds"]

SCALAR_SECONDS = 1e-9  # an element that is moved by itself
BUTTERFLY_SECONDS = 2e-9  # an element of sixteen lines side by side, for each doubling of their length
TASK_SECONDS = 1e-7  # taking one more task from the shared counter
CALL_SECONDS = 1e-6  # a step that one thread runs by itself
NEST_SECONDS = 10e-9
LONG_RUN_BYTES = 2048  # and from here on they are long
ONE_CORE_SLOWER = 1.6
NARROW = 1.3  # times as long as others take products of one vector of columns
REACHED = 0.92  # of the peak, by blocks that fill the registers
SEAMS = 1.1  # what blocks lose where one ends and the next begins
IMBALANCE = 0.25  # of a task's time is waited for at the end of a phase
SHORT_RUN_BYTES = 192  # runs of this many bytes take twice as long as long ones
NEAR_ELEMS = 8  # of elements this far apart every line is fetched
RUN_ELEMS = 4  # an index that stays the same for so many elements costs no load for each
PAGE_BYTES = 4096
OTHER_LINE_CYCLES = 2.0  # an access to another line than the one before
OTHER_PAGE_SECONDS = 0.6e-9  # an access to another page than the one before
SAME_SET_SECONDS = 3e-9  # and one that falls into the same set of the nearest cache
NOTHING: Mapping[Var, int] = {}
LINE_BYTES, WAYS = 64, 16  # of the larger of a core's own caches
LOOP_ITERATION_SECONDS = 2e-9  # entering an inner loop once
IN_ORDER_CYCLES = 8  # a step of a fold that is no one function, from the one before


def estimate(schedule: Schedule, machine: Machine) -> Estimate:
    """The predicted cost of a schedule: by the machine's model, else by that of a CPU.

    Raises TypeError where the model gives no Estimate, or one whose seconds no two can be compared by.
    """
    model = model_of(machine)
    if model is not None:
        found = model.estimate(schedule, machine)
        if not isinstance(found, Estimate) or found.seconds != found.seconds:
            wanted = f"expected {type(model).__name__}.estimate to give a tiling.Estimate whose seconds are a number"
            raise TypeError(f"cost_model: {wanted}, found {found!r}")
        return found
    phases = [(p, p.steps) for p in schedule.phases]
    return estimate_phases(phases, schedule, machine, buffers_by_value(schedule))


def estimate_phases(
    phases: Sequence[tuple[Phase, Sequence[Step | Work]]], schedule: Schedule, machine: Machine, by_value: Mapping[Value, Buffer]
) -> Estimate:
    """The same for phases whose steps may be given by what they do; `by_value` is where each value is kept."""
    total = arithmetic = traffic = 0.0
    moved = beyond = 0
    for phase, steps in phases:
        e = _Phase(phase, steps, schedule, machine, by_value).estimate()
        if schedule.kept and _packs_kept(phase, schedule.kept):
            continue
        total += e.seconds
        arithmetic += e.arithmetic_seconds
        traffic += e.traffic_seconds
        moved += e.memory_bytes
        beyond += e.cache_bytes
    return Estimate(total, arithmetic, traffic, moved, beyond)


def _packs_kept(phase: Phase, kept: Set[Value]) -> bool:
    """Whether a phase reads nothing but what calls with the same arguments find made: then they find it packed as well."""
    read: set[Value | None] = set()
    for s in phase.steps:
        if not isinstance(s, Nest | Turn) or (isinstance(s, Nest) and s.folds):
            return False
        read.update([s.source.buffer.value] if isinstance(s, Turn) else [x.value for x in loads([y.node for y in s.stores])])
    return bool(read) and read <= kept


def least_seconds(arithmetic: float, tasks: int, machine: Machine) -> float:
    """What a phase of so many tasks takes at least (`_Phase.estimate`), where one does `arithmetic` seconds of work or more.

    >>> machine = Machine(cores=2)
    >>> least_seconds(1e-3, 2, machine) < least_seconds(1e-3, 3, machine)
    True
    """
    threads = max(min(machine.cores, tasks), 1)
    waves = -(-tasks // threads)
    seconds = (arithmetic + TASK_SECONDS) * waves + (machine.launch_seconds if threads > 1 else CALL_SECONDS)
    return seconds * (1.0 + IMBALANCE / waves) if threads > 1 else seconds


def _one_by_one(step: Ordering | Scatter | Selection) -> float:
    """Seconds of what no vector instruction speeds up."""
    around = (*step.loops, *step.window) if isinstance(step, Selection) else () if isinstance(step, Ordering) else step.loops
    elements = step.count * 4 if isinstance(step, Ordering) else prod(x.extent for x in around)
    return elements * SCALAR_SECONDS


_ORDERED: Memo[tuple[Nest, tuple[tuple[tuple[int, ...], int], ...]], tuple[Nest, Work]] = Memo(1 << 12)


def _steps_of(f: FoldStep) -> int:
    """Operations of one step of a fold."""
    return max(len(f.nodes), len(f.op.regions[0].ops) - 1 if f.op.regions else 1)


class _Phase:
    def __init__(
        self, phase: Phase, steps: Sequence[Step | Work], schedule: Schedule, machine: Machine, by_value: Mapping[Value, Buffer]
    ) -> None:
        self.phase, self.steps, self.schedule, self.machine, self.by_value = phase, steps, schedule, machine, by_value
        self.tiles = {v for v, n in phase.tiles if n > 1}
        self.counts = dict(phase.tiles)
        self.averages = Averages(phase, schedule.ranges)
        self.first_of: dict[Value, Buffer] = {}
        for b in schedule.buffers:
            if b.value is not None:
                self.first_of.setdefault(b.value, b)
        self.scratch_bytes = schedule.thread_scratch_bytes
        self.task_bytes: dict[Buffer, int] = {}  # how much of a buffer one task touches
        self.boxes: dict[Buffer, tuple[list[tuple[int, int]], int]] = {}  # where that lies, and what its parts add up to
        self.around: dict[Buffer, int] = {}  # how large that is, in bytes, each element once
        self.streamed: set[Buffer] = set()
        self.runs: dict[Buffer, int] = {}  # how many consecutive bytes of it, at least, each access comes to
        self.borders = Borders(phase, machine.cores)

    def estimate(self) -> Estimate:
        m = self.machine
        tasks = max(self.phase.tasks * self.phase.group, 1)
        arithmetic = cached = 0.0
        for step in self.steps:
            a, c = self._step(step)
            arithmetic += a
            cached += c
        memory_bytes, cache_bytes, memory = self._memory(tasks)
        threads = min(m.cores, tasks)
        if threads < m.cores:
            memory *= ONE_CORE_SLOWER  # one core does not use all of the bandwidth
        waves = -(-tasks // threads)
        compute = arithmetic * waves
        local = cached * waves
        # Arithmetic overlaps with loads; traffic beyond the cores' own caches is shared by all of them.
        seconds = (
            max(compute, local * 0.5 + memory)
            + 0.3 * min(compute, memory)
            + waves * TASK_SECONDS
            + (m.launch_seconds if threads > 1 else CALL_SECONDS)
            + self.borders.seconds(threads)
        )
        # Threads do not run equally fast: the fewer tasks each takes, the longer the others wait at the end.
        if threads > 1:
            seconds *= 1.0 + IMBALANCE / waves
        return Estimate(seconds, compute, local + memory, memory_bytes, cache_bytes)

    # ------------------------------------------------------------ one task

    def _step(self, step: Step | Work) -> tuple[float, float]:
        """(arithmetic, cache traffic) seconds of one execution of a step."""
        if isinstance(step, Work):
            if self.phase.flags and self.averages.never_runs(step.loops):
                return 0.0, 0.0
            order = order_of(step, lambda load: load.buffer or self.by_value[load.value])
            return self._work(replace(step, loops=self.averages.loops(step)) if self.phase.flags else step, order)
        if isinstance(step, Sequential):
            loop = step.loop
            blocks = replace(loop, extent=self.averages.count(loop.lower, loop.upper, loop.extent))
            steps = evenly(step, self.schedule.ranges)
            found = [self._step(replace(s, loops=(blocks, *s.loops))) for s in steps]
            return SEAMS * sum(a for a, _ in found), sum(c for _, c in found)
        if isinstance(step, (Nest, Contract)) and self.phase.flags and self.averages.never_runs(step.loops):
            return 0.0, 0.0
        if isinstance(step, Contract):
            return self._contract(step)
        if isinstance(step, Turn):
            return self._turn(step)
        if isinstance(step, Nest):
            return self._nest(step)
        if isinstance(step, Measure):
            return self._measure(step)
        if isinstance(step, Transform):
            return self._transform(step)
        if isinstance(step, MatrixStep):
            matrices = (*step.sources, *step.targets)
            return step.products * SCALAR_SECONDS, sum(self._touch(m.block.buffer, m.rows * m.columns) for m in matrices)
        return _one_by_one(step), self._touch_all(step)

    def _transform(self, t: Transform) -> tuple[float, float]:
        """A vector instruction takes a step of all lines; each pass over them goes through the caches once."""
        passes = max(1.0, log2(t.size))
        arithmetic = BUTTERFLY_SECONDS * t.size * passes
        sides = zip((t.source, t.target), t.sizes, strict=True)
        return arithmetic, sum(self._touch(b.buffer, n * t.lanes.extent) for b, n in sides)

    def _touch_all(self, step: Ordering | Scatter | Selection) -> float:
        """Seconds of cache traffic of a step that walks its buffers by places, not by loops."""
        if isinstance(step, Ordering):
            reads = sum(self._touch(b, step.count) for b in step.sources)
            return reads + sum(self._touch(b, step.kept) for b in step.targets)
        updates = prod(x.extent for x in step.loops)
        if isinstance(step, Selection):
            return sum(self._touch(b, updates) for b in (step.operand, step.target))
        sources = {b: b for load in loads([step.node]) if (b := load.buffer or self.first_of.get(load.value)) is not None}
        return sum(self._touch(b, updates) for b in (step.target, *sources.values()))

    def _nest(self, nest: Nest, outside: Mapping[Var, int] = NOTHING) -> tuple[float, float]:
        """(arithmetic, cache traffic) seconds of one execution; `outside` are a task's loops around it, with their extents."""
        nest, work = self._ordered(nest)
        if self.phase.flags:
            work = work_of(replace(nest, loops=self.averages.loops(nest)))
        return self._work(work, range(len(nest.loops)), outside)

    def _ordered(self, nest: Nest) -> tuple[Nest, Work]:
        """A nest in the order that it runs in, and its work: the same for all tiles that pack a factor by this nest."""

        def buffer_of(load: Load) -> Buffer:
            return load.buffer or self.by_value[load.value]

        read = [buffer_of(x) for x in loads(nest.each)]
        key = nest, tuple([(b.strides, b.element.itemsize_bytes) for b in read])
        known = _ORDERED.get(key)
        if known is None:
            ordered = order_loops(nest, buffer_of)
            known = _ORDERED.keep(key, (ordered, work_of(ordered)))
        return known

    def _work(self, work: Work, order: Sequence[int], outside: Mapping[Var, int] = NOTHING) -> tuple[float, float]:
        """The same for what a nest does, its loops in this order, outermost first."""
        m = self.machine
        extents = [x.extent for x in work.loops]
        iterations = work.iterations
        inner = order[-1] if order else None
        every: dict[int, int] = {}  # loops that something depends on -> how often it is computed, how many it has
        upto: list[tuple[int, int]] = []
        product = 1
        for k in order:
            product *= extents[k]
            upto.append((1 << k, product))

        def times(depends: int) -> int:
            found = every.get(depends)
            if found is None:
                found = next((n for bit, n in reversed(upto) if depends & bit), 1)
                every[depends] = found
            return found

        def count(depends: int) -> int:
            return prod([n for k, n in enumerate(extents) if depends >> k & 1])

        operations = 0.0
        for cost, depends in work.operations:
            operations += cost * times(depends)
        operations += iterations * (sum(_steps_of(f.step) for f in work.folds) + len(work.stores))
        itemsize = min([s.buffer.element.itemsize_bytes for s in work.stores], default=4)
        lanes = m.lanes(max(itemsize, 4))
        strided = 0.0
        traffic = 0.0
        for a in work.loads:
            load = a.load
            buffer = load.buffer or self.first_of.get(load.value)
            if buffer is None:
                continue
            steps = self._steps(buffer, load.index, a.variables)
            if inner is not None and steps[inner] < 0 and work.is_unflattened:
                in_row = step_in_row(load.index, buffer.strides, a.variables[inner], extents[inner], RUN_ELEMS)
                steps[inner] = steps[inner] if in_row is None else in_row
            each = 0.0 if inner is None else self._stride_seconds(buffer, steps[inner])
            evicted = each and self._is_evicted(buffer, load.index, a.variables, extents, order)
            strided += times(a.depends) * (SAME_SET_SECONDS if evicted else each)
            self._note_run(buffer, steps, extents, order)
            moved = prod([outside[v] for v in {v for e in load.index for v in e.variables} if v in outside]) if outside else 1
            box = self._box_elems(buffer, load.index, work.extents, count(a.depends))
            traffic += self._touch(buffer, box, moved)
        stored = [(s.buffer, self._steps(s.buffer, s.index, s.variables)) for s in work.stores]
        # Running results in memory are read and written at each step; those of few steps are not, as these are written out.
        summed = prod([x.extent for x in work.loops if x.kind is LoopKind.REDUCTION])
        in_memory = inner is not None and work.loops[inner].kind is not LoopKind.REDUCTION and summed > MOST_SIDE_BY_SIDE
        kept = [(b, self._steps(b, f.step.index, f.variables)) for f in work.folds if in_memory for b in f.step.buffers]
        if inner is not None:
            beside = Counter((buffer, steps[inner]) for buffer, steps in (*stored, *kept))
            for buffer, steps in (*stored, *kept):
                # What several stores fill between them is written in whole vectors, the elements shuffled in registers.
                if 1 < steps[inner] <= beside[buffer, steps[inner]]:
                    steps[inner] = 1
            for accesses, found in ((iterations, stored), (2 * iterations, kept)):
                for buffer, steps in found:
                    strided += accesses * self._stride_seconds(buffer, steps[inner])
        for w, (buffer, steps) in zip(work.stores, stored, strict=True):
            self._note_run(buffer, steps, extents, order)
            self.borders.note(buffer, w.index, buffer.strides)
            traffic += self._touch(buffer, iterations)
        for f in work.folds:
            named = [v for e in f.step.index for v in e.variables]
            for b in f.step.buffers:
                self.borders.note(b, f.step.index, b.strides)
                traffic += self._touch(b, prod([n for v, n in zip(f.variables, extents, strict=True) if v in named]))
        inner_extent = 1 if inner is None else max(extents[inner], 1)
        rows = iterations // inner_extent
        seconds = operations / lanes_used(inner_extent, lanes) / (2.0 * m.hertz) + strided
        in_order = inner is not None and work.loops[inner].kind is LoopKind.REDUCTION
        if in_order and any(has_own_body(f.step.op) for f in work.folds):
            seconds += iterations * IN_ORDER_CYCLES / m.hertz
        return seconds + rows * LOOP_ITERATION_SECONDS + NEST_SECONDS, traffic

    def _steps(self, buffer: Buffer, index: tuple[Expr, ...], variables: tuple[Var, ...]) -> list[int]:
        """The step in elements from one iteration of each loop to the next; -1 where it is not constant."""
        # By division: the same for so many elements that the vectors are put together from few loads.
        return [-1 if x is None else x for x in steps_along(index, buffer.strides, variables, RUN_ELEMS)]

    def _stride_seconds(self, buffer: Buffer, stride: int) -> float:
        """Seconds for one access of a loop that steps by `stride` elements: each in a line, a page or even a set of its own."""
        size = stride * buffer.element.itemsize_bytes
        if stride in (0, 1):
            return 0.0
        if size < LINE_BYTES or buffer.size_bytes <= self.machine.l1_bytes // 2:
            return 1.0 / self.machine.hertz
        if size < PAGE_BYTES:
            return OTHER_LINE_CYCLES / self.machine.hertz
        return SAME_SET_SECONDS if size % PAGE_BYTES == 0 else OTHER_PAGE_SECONDS

    def _is_evicted(
        self, buffer: Buffer, index: tuple[Expr, ...], variables: tuple[Var, ...], extents: Sequence[int], order: Sequence[int]
    ) -> bool:
        """Whether a line is gone from the core's own caches before the next of its elements is read.

        Between the two lie all lines of the loops inside the one that steps from element to element. Where they lie a multiple of
        many lines apart they share few of the cache's sets.
        """
        item = buffer.element.itemsize_bytes
        known = steps_along(index, buffer.strides, variables)
        steps, counts = [known[k] for k in order], [extents[k] for k in order]
        along = max((k for k, s in enumerate(steps) if s == 1 and counts[k] > 1), default=len(counts))
        inside = [(s * item, n) for s, n in zip(steps[along + 1 :], counts[along + 1 :], strict=True) if s]
        way = self.machine.l2_bytes // WAYS
        # A loop reaches as many sets as its step has multiples within a way, if it has as many iterations.
        reached = prod(min(n, way // gcd(size, way)) for size, n in inside)
        sets = min(reached, way // max(gcd(way, *(size for size, _ in inside)), LINE_BYTES))
        return prod(n for _, n in inside) > WAYS * sets

    def _box_elems(self, buffer: Buffer, index: Sequence[Expr], extents: Mapping[Var, int], elements: int) -> int:
        """How many elements a task touches of a buffer with this access and the ones before: the box around all of them.

        A window's accesses overlap, and lines hold what lies between steps of a few elements. Never more than all boxes' sum.
        """
        item = buffer.element.itemsize_bytes
        box: list[tuple[int, int]] = []
        size = 1
        for e in index:
            low, high, step = e.constant, e.constant, 1
            for atom, k in e.terms:
                if type(atom) is not Var:
                    self.around[buffer] = max(self.around.get(buffer, 0), elements * item)
                    return elements
                n = extents.get(atom, 1)
                if n > 1:
                    if k < 0:
                        low += k * (n - 1)
                    else:
                        high += k * (n - 1)
                    if k != 1:
                        step = max(step, min(abs(k), NEAR_ELEMS))
            high += step - 1
            size *= high - low + 1
            box.append((low, high))
        known = self.boxes.get(buffer)
        if known is not None:
            size += known[1]
            box = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(known[0], box, strict=True)]
        self.boxes[buffer] = box, size
        around = prod([min(b - a + 1, n) for (a, b), n in zip(box, buffer.shape, strict=True)])
        inside = min(around, size)
        self.around[buffer] = max(self.around.get(buffer, 0), inside * item)
        return max(elements, inside)

    def _contract(self, c: Contract) -> tuple[float, float]:
        m = self.machine
        if self.phase.flags:
            n = self.averages.count(c.columns_lower, c.columns_upper, c.n)
            c = replace(c, n=n, k=self.averages.count(c.depth_lower, c.last_depth, c.k))
        around = prod(x.extent for x in c.loops)
        item = c.out.buffer.element.itemsize_bytes
        # Of more blocks one more row is little, and a task of fewer rows than one block leaves its operands used too little.
        # Where there are more rows than a task's, blocks count as whole ones: small tasks would seem to waste less.
        beside = prod(x.extent for x in c.loops if x.variable not in c.right.base.variables)  # rows that are no run of these
        whole = c.m * beside == prod(c.value.shape[d] for d in c.row_dimensions)
        if not whole or not c.rows < c.m <= 2 * c.rows or c.kernel.along or c.kernel.together > 1:
            sums = float(-(-c.m // c.rows) * c.rows * -(-c.n // c.columns) * c.columns)
        else:
            sums = sums_in_blocks(c.m, c.n, c.rows, c.columns, m.lanes(item))
        # A short row block loads and stores its accumulators often; a small one cannot hide latencies.
        block_depth = min(c.depth, c.k_block * (c.depth // c.k))
        seconds = 2.0 * sums * c.depth / (m.peak_flops(item) * REACHED * fill(c.rows, block_depth) * self._products(c))
        if c.n <= m.lanes(item) and not c.kernel.along:
            seconds *= NARROW  # each product loads its row's element: columns side by side would share it
        traffic = self._touch(c.left.buffer, self._left_elems(c), self._moved(c, c.left))
        traffic += self._touch(c.right.buffer, c.n * c.depth, self._moved(c, c.right))
        self.streamed.add(c.right.buffer)  # the next task has other columns
        traffic += self._touch(c.out.buffer, c.m * c.n, self._moved(c, c.out))
        self.borders.note(c.out.buffer, (c.out.base,), (1,))
        blocks = -(-c.k // c.k_block)
        traffic += 2.0 * blocks * c.m * c.n * item / m.l2_bytes_per_second
        outside = {c.k_start: blocks, **{x.variable: x.extent for x in c.loops}}
        for nest in c.pack:
            a, t = self._nest(nest, outside)
            seconds += a * blocks
            traffic += t * blocks
        return seconds * around, traffic * around

    def _products(self, c: Contract) -> float:
        """How many products are summed in the time of one for each lane."""
        factors = {c.left.buffer.element.name, c.right.buffer.element.name}
        if c.kernel.together == 2:
            return self.machine.pairs_per_lane
        sums_bytes = factors <= {"i8", "ui8"} and c.out.buffer.element.itemsize_bytes == 4 and c.kernel.needs_runs
        if not sums_bytes:
            return 1
        return min(4, self.machine.byte_products) if c.kernel.along else self.machine.products_per_lane(1)

    def _moved(self, c: Contract, block: Block2D) -> int:
        """How many different blocks the loops around a contraction go through."""
        return prod(x.extent for x in c.loops if x.variable in block.base.variables)

    def _left_elems(self, c: Contract) -> int:
        """The elements in the lines of the left operand that are read: read across, each step of k has lines of its own."""
        item = c.left.buffer.element.itemsize_bytes
        if c.left.buffer.scope is Scope.THREAD or c.left.row_stride != 1 or c.left.column_stride == 1:
            return c.m * c.depth
        size = c.m * item
        aligned = size % LINE_BYTES == 0 and c.left.column_stride * item % LINE_BYTES == 0
        return c.depth * (size if aligned else size + LINE_BYTES - item) // item

    def _measure(self, s: Measure) -> tuple[float, float]:
        self.runs[s.source] = s.size * s.source.element.itemsize_bytes
        traffic = self._touch(s.source, s.size)
        return s.size / (self.machine.lanes(s.source.element.itemsize_bytes) * self.machine.hertz), traffic

    def _turn(self, t: Turn) -> tuple[float, float]:
        m, item = self.machine, t.target.buffer.element.itemsize_bytes * t.together
        elements = t.rows.extent * t.columns.extent
        for buffer, run in ((t.source.buffer, t.columns.extent * item), (t.target.buffer, t.rows.extent * item)):
            self.runs[buffer] = min(self.runs.get(buffer, run), run)
        lanes = min(m.lanes(item), 16)
        in_blocks = (t.rows.extent // lanes) * (t.columns.extent // lanes) * lanes * lanes
        traffic = sum(self._touch(x.buffer, elements * t.together) for x in (t.source, t.target))
        # log2(lanes) shuffles for each vector, a load and a store.
        seconds = (in_blocks * 6.0 / lanes + (elements - in_blocks) * 2.0) / m.hertz
        return seconds + NEST_SECONDS, traffic

    def _note_run(self, buffer: Buffer, steps: Sequence[int], extents: Sequence[int], order: Sequence[int]) -> None:
        """Records over how many consecutive bytes the loops walk: short runs far apart are slow to fetch."""
        run, grown = 1, True
        while grown:
            grown = False
            for k in order:
                if steps[k] == run and extents[k] > 1:
                    run, grown = run * extents[k], True
        size = run * buffer.element.itemsize_bytes
        self.runs[buffer] = min(self.runs.get(buffer, size), size)

    def _touch(self, buffer: Buffer, elements: int, blocks: int = 1) -> float:
        """Records that a task touches `elements` in each of some blocks; seconds from the core's own caches for one."""
        m = self.machine
        size = elements * buffer.element.itemsize_bytes
        if buffer.scope is Scope.THREAD:
            rate = (
                m.l1_bytes_per_second
                if self.scratch_bytes <= m.l1_bytes // 2
                else m.l2_bytes_per_second
                if self.scratch_bytes <= m.l2_bytes * 3 // 4
                else m.memory_bytes_per_second / (2 * m.cores)  # it drives everything else out of the shared cache
            )
            return size / rate
        known = self.task_bytes.get(buffer, 0)
        self.task_bytes[buffer] = max(known, min(size * blocks, buffer.size_bytes))
        if not known:
            return 0.0
        # Read a second time by the same task: from where it fits.
        rate = m.l1_bytes_per_second if size <= m.l1_bytes // 2 else (
            m.l2_bytes_per_second if size <= m.l2_bytes // 2 else m.l3_bytes_per_second
        )  # fmt: skip
        return size / rate

    def _memory(self, tasks: int) -> tuple[int, int, float]:
        """Bytes from memory, bytes from beyond the cores' own caches, and the seconds that both take."""
        m = self.machine
        moved, beyond, seconds = 0, 0, 0.0
        shared = m.l3_bytes_per_second * min(m.cores, tasks)
        for buffer, task_bytes in self.task_bytes.items():
            whole = min(buffer.size_bytes, task_bytes * tasks)
            again = task_bytes * tasks - whole
            factor = 1.5 if buffer.scope is Scope.RESULT else 1.0  # a store reads the line first
            if whole > m.l2_bytes and buffer in self.runs:
                factor *= 1.0 + SHORT_RUN_BYTES * max(0.0, 1.0 / self.runs[buffer] - 1.0 / LONG_RUN_BYTES)
            outside = whole > m.l3_bytes // 4
            seconds += (
                factor
                * whole
                / (m.memory_bytes_per_second if outside else min(shared, 2 * m.memory_bytes_per_second))
            )
            if again:
                # A window's accesses overlap: what has to fit is what lies around them.
                around = min(task_bytes, self.around.get(buffer, task_bytes))
                kept = buffer not in self.streamed and around <= m.l2_bytes // 4
                seconds += again / (shared * (4 if kept else 1))
                beyond += task_bytes * (min(m.cores, tasks) - 1) if kept else again
            moved += whole
        return moved, moved + beyond, seconds
