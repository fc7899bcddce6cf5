"""A plain interpreter of schedules: what the loops compute, statement by statement, in NumPy.

It shares nothing with the code generator: neither its rewrites of loops nor its micro-kernels. So it says what a schedule means
where schedules are checked (a right one agrees with the evaluator) or changed on purpose. Memory that nothing has written is not
read, and no access leaves its buffer: both raise `Misuse`. Tasks run one after the other; a nest's iterations read before they
write. It is for small shapes: loops of a few thousand iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cmp_to_key
from itertools import product
from typing import Any

import numpy as np

from hlo.module import Value
from indexing.expr import Expr, evaluate
from tests.interpreter.memory import (
    Array,
    Memory,
    Misuse,
    Points,
    Scalars,
    as_place,
    count_of,
    each_point,
    in_order,
    subset,
    total_order,
)
from tests.interpreter.nests import Nests
from tiling.loops.ir import (
    Block2D,
    Buffer,
    Contract,
    Limit,
    Matrix,
    MatrixStep,
    Measure,
    Nest,
    Ordering,
    Scatter,
    Schedule,
    Scope,
    Selection,
    Sequential,
    Step,
    Transform,
    Turn,
)

__all__ = ["Misuse", "run"]


def run(schedule: Schedule, given: Mapping[Value, Array], scalars: Scalars) -> dict[Value, Array]:
    """The values that a schedule stores for others.

    `given` has an array of its shape for each value in an argument's buffer and, where results are changed in place, for what was
    in their memory before. `scalars(op, function, arguments)` computes a scalar function of an op on flat arrays.

    Raises Misuse for a schedule that touches memory it may not, LookupError for one too large.

    >>> import hlo, tiling
    >>> text = '''func.func @main(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
    ...   %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    ...   return %0 : tensor<3x2xf32> }'''
    >>> (fusion,) = tiling.plan(hlo.parse(text)).fusions
    >>> (x,), (y,) = fusion.inputs, fusion.outputs
    >>> run(fusion.schedule, {x: np.arange(6, dtype=np.float32).reshape(2, 3)}, lambda op, name, arrays: arrays[0])[y].tolist()
    [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    """
    memory = Memory(schedule, given)
    with np.errstate(all="ignore"):
        for phase in schedule.phases:
            _Phase(schedule, phase, memory, scalars).run()
    return {b.value: memory.result(b) for b in schedule.buffers_in(Scope.RESULT) if b.value is not None}


def _number(e: Expr, point: Points) -> int:
    """An expression at one point."""
    return int(np.reshape(evaluate(e, point), -1)[0])


class _Phase(Nests):
    """Runs the tasks of a phase, and steps of every kind."""

    def run(self) -> None:
        for flag in self.phase.flags:
            held = all((self.memory.load(b, np.arange(b.size_elems)) <= limit).all() for b, limit in flag.limits)
            self.task[flag.variable] = int(held)
        names = [v for v, _ in self.phase.tiles]
        numbers = list(product(*(range(n) for _, n in self.phase.tiles)))
        for first in range(0, len(numbers), self.phase.group):
            self.memory.forget(Scope.THREAD)
            for k, tile in enumerate(numbers[first : first + self.phase.group]):
                self.task.update(zip(names, tile, strict=True))
                for step in (*self.phase.before, *self.phase.steps) if k == 0 else self.phase.steps:
                    self.step(step, self.start())

    def start(self) -> Points:
        return {v: np.array([x]) for v, x in self.task.items()}

    def step(self, step: Step, at: Points) -> None:
        together: dict[type, Callable[[Any, Points], None]] = {
            Nest: self.nest, Turn: self.turn, Scatter: self.scatter, Sequential: self.sequential, Selection: self.selection,
        }  # fmt: skip
        one_by_one: dict[type, Callable[[Any, Points], None]] = {
            Contract: self.contract, Ordering: self.ordering, Measure: self.measure, Transform: self.transform,
            MatrixStep: self.matrices,
        }  # fmt: skip
        if type(step) in together:
            together[type(step)](step, at)
            return
        loops = step.loops if isinstance(step, Contract) else (step.lanes,) if isinstance(step, Transform) else ()
        for point in each_point(self.over(loops, at)):
            one_by_one[type(step)](step, point)

    def sequential(self, s: Sequential, around: Points) -> None:
        for k in range(count_of(blocks := self.over((s.loop,), around))):
            point = {v: a[k : k + 1] for v, a in blocks.items()}
            for x in s.limits:
                point[x.variable] = self._limit(x, point)
            for step in s.steps:
                self.step(step, dict(point))

    def _limit(self, x: Limit, point: Points) -> Array:
        if x.flag is not None and not _number(x.flag, point):
            return np.array([_number(x.whole, point)])
        origin, lower, upper = (_number(e, point) for e in (x.origin, x.lower, x.upper))
        (found,) = np.reshape(self.value(x.node, dict(point), {}), -1)
        return np.array([min(max(int(found) - origin, lower), upper)])

    # ------------------------------------------------------------ contractions

    def contract(self, c: Contract, at: Points) -> None:
        def one(e: Expr) -> int:
            return _number(e, at)

        low, high = one(c.depth_lower), one(c.last_depth)
        start = low // c.k_block * c.k_block if c.k > c.k_block else 0
        rows, columns = np.arange(one(c.rows_upper) + 1), np.arange(one(c.columns_lower), one(c.columns_upper) + 1)
        cut = c.levels or c.accumulate or c.k > c.k_block or (low, high) != (0, c.k - 1)
        if c.k % c.kernel.together or (cut and not c.kernel.adds):
            raise Misuse(f"{c.kernel.routine} sums whole groups of steps of k, in one go")
        if c.kernel.along and c.columns != 1:
            raise Misuse("along the depth each column is a panel")
        fresh = not c.accumulate
        for k0 in range(start, high + 1, c.k_block) if c.k > c.k_block else (0,):
            at[c.k_start] = np.array([k0])
            for pack in c.pack:
                self.nest(pack, dict(at))
            k = np.arange(max(k0, low), min(k0 + c.k_block, c.k, high + 1))
            self._products(c, one, rows, columns, k, k0, fresh)
            fresh = False

    def _products(
        self, c: Contract, one: Callable[[Expr], int], rows: Array, columns: Array, k: Array, k0: int, fresh: bool
    ) -> None:
        kernel = c.kernel
        left = (k - k0) * (1 if kernel.needs_runs else c.left.column_stride)
        right = kernel.place(k, 0, c.columns, c.panel_stride, 1 if kernel.along else c.right.row_stride)
        for count, one_left, one_right in reversed(c.levels):
            t = np.arange(count)[:, None]
            left, right = (t * one_left + left).reshape(-1), (t * one_right + right).reshape(-1)
        panel = kernel.place(0, columns, c.columns, c.panel_stride, 0)
        a = self._matrix(c.left.buffer, one(c.left.base) + rows[:, None] * c.left.row_stride + left)
        b = self._matrix(c.right.buffer, one(c.right.base) + panel[:, None] + right)
        where = one(c.out.base) + rows[:, None] * c.out.row_stride + columns * c.out.column_stride
        wide = np.result_type(a, b, c.out.buffer.element.dtype)
        total = a.astype(wide) @ b.astype(wide).T
        if not fresh:
            total = total + self._matrix(c.out.buffer, where)
        self.memory.store(c.out.buffer, where.reshape(-1), total.reshape(-1))

    def _matrix(self, b: Buffer, at: Array) -> Array:
        return self.memory.load(b, at.reshape(-1)).reshape(at.shape)

    # ------------------------------------------------------------ routines

    def _line(self, block: Block2D, rows: Array, columns: Array, at: Points) -> Array:
        found: Array = np.reshape(evaluate(block.base, at), -1)[0] + rows * block.row_stride + columns * block.column_stride
        return found

    def turn(self, t: Turn, around: Points) -> None:
        points = self.over((t.rows, t.columns), around)
        r, c = points[t.rows.variable], points[t.columns.variable]
        source = evaluate(t.source.base, points) + r * t.source.row_stride + c
        target = evaluate(t.target.base, points) + c * t.target.row_stride + r
        self.memory.store(t.target.buffer, target, self.memory.load(t.source.buffer, source))

    def measure(self, m: Measure, point: Points) -> None:
        (piece,) = point[m.piece]
        at = np.arange(piece * m.size, min(piece * m.size + m.size, m.source.size_elems))
        x = np.abs(self.memory.load(m.source, at))
        self.memory.store(m.target, np.array([piece]), np.max(x, initial=0).reshape(1).astype(m.target.element.dtype))

    def ordering(self, o: Ordering, point: Points) -> None:
        start, target = (_number(e, point) for e in (o.start, o.target_start))
        at = start + np.arange(o.count) * o.step
        rows = [self.memory.load(b, at) for b in o.sources]
        order = self._sorted(o, rows)[: o.kept]
        to = target + np.arange(len(order)) * o.step
        for b, row in zip(o.targets, rows, strict=True):
            self.memory.store(b, to, row[order])
        if o.places is not None:
            self.memory.store(o.places, to, order)

    def _sorted(self, o: Ordering, rows: Sequence[Array]) -> Array:
        if not o.op.regions:
            return np.argsort(-total_order(rows[0]), kind="stable")
        body = o.op.regions[0]
        i: Array = np.repeat(np.arange(o.count), o.count)
        j: Array = np.tile(np.arange(o.count), o.count)
        before: Array = self.block(body, [x for row in rows for x in (row[i], row[j])])[0].reshape(o.count, o.count)

        def compare(a: int, b: int) -> int:
            return int(before[b, a]) - int(before[a, b])

        return np.array(sorted(range(o.count), key=cmp_to_key(compare)), np.int64)

    def scatter(self, s: Scatter, around: Points) -> None:
        points = self.over(s.loops, around)
        held = np.ones(count_of(points), bool)
        for x in s.starts:
            lower, upper = (evaluate(e, points) for e in (x.lower, x.upper))
            if isinstance(x.node, Expr):
                place = evaluate(x.node, points)
            else:
                place = as_place(self.values([x.node], points)[0])
                if x.clamps:
                    place = np.clip(place, lower, upper)
                assert x.variable is not None
                points[x.variable] = place
            held &= (lower <= place) & (place <= upper)
        points = subset(points, held)
        held = np.ones(count_of(points), bool)
        for x in s.tests:
            assert isinstance(x.node, Expr)
            place = evaluate(x.node, points)
            held &= (evaluate(x.lower, points) <= place) & (place <= evaluate(x.upper, points))
        points = subset(points, held)
        at = [self.address(b, s.index, points) for b in s.targets]
        nodes = self.values(s.nodes, points)
        for chosen in in_order(at[0]):
            new = [value[chosen] for value in nodes]
            if s.op.regions:
                old = [self.memory.load(b, to[chosen]) for b, to in zip(s.targets, at, strict=True)]
                new = self.block(s.op.regions[0], [*old, *new])
            for b, where, value in zip(s.targets, at, new, strict=True):
                self.memory.store(b, where[chosen], value)

    def selection(self, s: Selection, around: Points) -> None:
        select, scatter = s.op.regions
        outer = self.over(s.loops, around)
        n = count_of(outer)
        best, place = np.zeros(n, s.operand.element.dtype), np.full(n, -1)
        values = self.values([s.node], outer)[0]
        for window in each_point(self.over(s.window, {})):
            points = {**outer, **{v: np.repeat(x, n) for v, x in window.items()}}
            held = np.flatnonzero(self.where(s.tests, points))
            at = self.address(s.operand, s.index, subset(points, held))
            x = self.memory.load(s.operand, at)
            keep = self.block(select, [best[held], x])[0].astype(bool) & (place[held] >= 0)
            best[held], place[held] = np.where(keep, best[held], x), np.where(keep, place[held], at)
        found = np.flatnonzero(place >= 0)
        for chosen in in_order(place[found]):
            k = found[chosen]
            old = self.memory.load(s.target, place[k])
            self.memory.store(s.target, place[k], self.block(scatter, [old, values[k]])[0])

    def transform(self, t: Transform, point: Points) -> None:
        lane = int(point[t.lanes.variable][0])
        taken, stored = t.sizes
        x = self.memory.load(t.source.buffer, self._line(t.source, np.array(lane), np.arange(taken), point))
        if t.form == "to half":
            y: Array = np.fft.rfft(x)
        elif t.form == "from half":
            y = np.fft.irfft(x, t.size) * t.size
        else:
            y = np.fft.fft(x) if t.sign < 0 else np.fft.ifft(x) * t.size
        if t.column is not None:
            column = _number(t.column, point) + lane
            y = y * np.exp(t.sign * 2j * np.pi * column * np.arange(stored) / (t.columns * t.size))
        y = y * t.scale
        self.memory.store(t.target.buffer, self._line(t.target, np.array(lane), np.arange(stored), point), y)

    def matrices(self, s: MatrixStep, point: Points) -> None:
        """A triangular system, or a factor of a positive matrix; the other factorisations have no model here."""
        a, *rest = (self.memory.load(m.block.buffer, self._places(m, point)) for m in s.sources)
        lower = "lower" in s.options
        if s.kind == "triangular" and len(rest) == 1 and a.shape[0] == a.shape[1]:
            a = np.tril(a) if lower else np.triu(a)
            if "unit" in s.options:
                np.fill_diagonal(a, 1)
            a = a.T if "transposed" in s.options else a
            (b,) = rest
            if np.diag(a).all():
                x = np.linalg.solve(a, b) if "left" in s.options else np.linalg.solve(a.T, b.T).T
            else:
                x = np.full(b.shape, np.nan, b.dtype)
        elif s.kind == "cholesky" and not rest:
            half = np.tril(a) if lower else np.triu(a).T
            x = np.linalg.cholesky(half + np.tril(half, -1).T)
            x = x if lower else x.T
        else:
            raise LookupError(f"{s.kind} of {len(s.sources)} matrices has no model")
        (target,) = s.targets
        self.memory.store(target.block.buffer, self._places(target, point).reshape(-1), x.reshape(-1))

    def _places(self, m: Matrix, point: Points) -> Array:
        return self._line(m.block, np.arange(m.rows)[:, None], np.arange(m.columns), point)
