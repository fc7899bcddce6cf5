"""A plain interpreter of schedules: what the loops compute, statement by statement, in NumPy.

It shares nothing with the code generator: neither its rewrites of loops nor its micro-kernels. So it says what a schedule means
where schedules are checked (a right one agrees with the evaluator) or changed on purpose. Memory that nothing has written is not
read, and no access leaves its buffer: both raise `Misuse`. Tasks run one after the other; a nest's iterations read before they
write. It is for small shapes: loops of a few thousand iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cmp_to_key
from itertools import product
from typing import Any

import numpy as np

from hlo.access import Condition
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import Literal, SumOfProducts
from indexing.expr import Expr, Var, as_expr, evaluate
from tiling.elements.folds import combined_function
from tiling.loops.accesses import buffers_by_value
from tiling.loops.element_ir import Apply, IndexNode, Load, Node, Runtime, Scalar, Test, runtimes_of
from tiling.loops.ir import (
    Block2D,
    Buffer,
    Contract,
    FoldStep,
    Loop,
    LoopKind,
    Matrix,
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

__all__ = ["Misuse", "run"]

Array = np.ndarray[Any, Any]
Scalars = Callable[[Op, str, Sequence[Array]], Array]
MOST_POINTS = 1 << 24


class Misuse(Exception):
    """Carries what a schedule does that no schedule may: leave a buffer, read what was never written, store twice at once."""


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
    memory = _Memory(schedule, given)
    with np.errstate(all="ignore"):
        for phase in schedule.phases:
            _Phase(schedule, phase, memory, scalars).run()
    return {b.value: memory.result(b) for b in schedule.buffers_in(Scope.RESULT) if b.value is not None}


class _Memory:
    """The buffers' elements, and which of them were written."""

    def __init__(self, schedule: Schedule, given: Mapping[Value, Array]) -> None:
        self.data: dict[Buffer, Array] = {}
        self.written: dict[Buffer, Array] = {}
        for b in schedule.buffers:
            self.data[b] = np.zeros(b.size_elems, b.element.dtype)
            self.written[b] = np.zeros(b.size_elems, bool)
            if b.value is not None and b.value in given and b.scope in (Scope.ARGUMENT, Scope.RESULT):
                at = self.addresses(b)
                self.data[b][at] = given[b.value].reshape(-1)
                self.written[b][at] = True

    @staticmethod
    def addresses(b: Buffer) -> Array:
        """The address of each element of a buffer's shape, row by row."""
        total = np.zeros(b.shape, np.int64)
        for k, (n, s) in enumerate(zip(b.shape, b.strides, strict=True)):
            total = total + (np.arange(n) * s).reshape([n if j == k else 1 for j in range(len(b.shape))])
        return total.reshape(-1)

    def forget(self, scope: Scope) -> None:
        """A thread's scratch holds anything when a task starts."""
        for b, known in self.written.items():
            if b.scope is scope:
                known[:] = False

    def check(self, b: Buffer, at: Array) -> None:
        if b not in self.data:
            raise Misuse(f"{b.name} is none of the schedule's buffers")
        if at.size and (at.min() < 0 or at.max() >= b.size_elems):
            raise Misuse(f"{b.name} has {b.size_elems} elements, number {at.min()} to {at.max()} are asked for")

    def load(self, b: Buffer, at: Array) -> Array:
        self.check(b, at)
        if not self.written[b][at].all():
            raise Misuse(f"{b.name}: what is read was never written")
        found: Array = self.data[b][at]
        return found

    def store(self, b: Buffer, at: Array, value: Array) -> None:
        self.check(b, at)
        if b.scope is Scope.ARGUMENT:
            raise Misuse(f"{b.name} is an argument")
        self.data[b][at] = value.astype(b.element.dtype) if value.dtype != b.element.dtype else value
        self.written[b][at] = True

    def result(self, b: Buffer) -> Array:
        at = self.addresses(b)
        if not self.written[b][at].all():
            raise Misuse(f"{b.name}: elements of it were never written")
        return self.data[b][at].reshape(b.shape)


_SIMPLE: Mapping[str, np.ufunc] = {
    "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or,
}  # fmt: skip

Points = dict[Var, Array]
"""Iterations: an array of its values for each variable, all as long."""


class _Phase:
    def __init__(self, schedule: Schedule, phase: Phase, memory: _Memory, scalars: Scalars) -> None:
        self.schedule, self.phase, self.memory, self.scalars = schedule, phase, memory, scalars
        self.by_value = buffers_by_value(schedule)
        self.task: dict[Var, int] = {}

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
        models: dict[type, Callable[[Any, Points], None]] = {
            Nest: self.nest, Contract: self.contract, Turn: self.turn, Ordering: self.ordering, Scatter: self.scatter,
            Measure: self.measure, Sequential: self.sequential, Transform: self.transform, Selection: self.selection,
            MatrixStep: self.matrices,
        }  # fmt: skip
        models[type(step)](step, at)

    # ------------------------------------------------------------ iterations and elements

    def over(self, loops: Sequence[Loop], points: Points) -> Points:
        """The points once for each iteration of some loops, in their order."""
        for x in loops:
            n = _count(points)
            lower, upper = (np.broadcast_to(evaluate(e, points), (n,)) for e in (x.lower, x.upper))
            counts = np.maximum(upper - lower + 1, 0)
            total = int(counts.sum())
            if total > MOST_POINTS:
                raise LookupError(f"{x.variable} has {total} iterations")
            each = np.repeat(np.arange(n), counts)
            inner = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
            points = {v: a[each] for v, a in points.items()}
            points[x.variable] = lower[each] + inner
        return points

    def where(self, conditions: Sequence[Condition], points: Points) -> Array:
        held = np.ones(_count(points), bool)
        for c in conditions:
            e = evaluate(as_expr(c.expression), points)
            held &= (c.lower <= e) & (e <= c.upper)
        return held

    def address(self, b: Buffer, index: Sequence[Expr], points: Points) -> Array:
        """Where elements lie; each position has to be inside of the buffer's shape."""
        n = _count(points)
        total = np.zeros(n, np.int64)
        for i, o, s, size in zip(index, b.origin, b.strides, b.shape, strict=True):
            at = np.broadcast_to(evaluate(as_expr(i - o), points), (n,))
            if n and (at.min() < 0 or at.max() >= size):
                raise Misuse(f"a position of {b.name} leaves [0, {size - 1}]")
            total = total + at * s
        return total

    def values(self, roots: Sequence[Node], points: Points) -> list[Array]:
        memo: dict[Node, Array] = {}
        return [self.value(n, points, memo) for n in roots]

    def value(self, n: Node, points: Points, memo: dict[Node, Array]) -> Array:
        if n not in memo:
            for r in runtimes_of(n):
                if r.variable not in points:
                    points[r.variable] = self.runtime(r, points, memo)
            memo[n] = self._value(n, points, memo)
        return memo[n]

    def runtime(self, r: Runtime, points: Points, memo: dict[Node, Array]) -> Array:
        return np.clip(_as_place(self.value(r.node, points, memo)), r.lower, r.upper)

    def _value(self, n: Node, points: Points, memo: dict[Node, Array]) -> Array:
        count = _count(points)
        if isinstance(n, Load):
            b = n.buffer or self.by_value[n.value]
            return self.memory.load(b, self.address(b, n.index, points))
        if isinstance(n, Scalar):
            return np.full(count, n.value, n.element.dtype)
        if isinstance(n, IndexNode):
            return np.broadcast_to(evaluate(n.expression, points), (count,)).astype(n.element.dtype)
        if isinstance(n, Test):
            return self.where(n.conditions, points)
        if isinstance(n, Apply):
            return np.broadcast_to(self.scalars(n.op, n.function, [self.value(a, points, memo) for a in n.arguments]), (count,))
        held = self.where(n.conditions, points)
        if held.all():
            return self.value(n.then, points, memo)
        if not held.any():
            return self.value(n.otherwise, points, memo)
        then, otherwise = (self.value(x, _subset(points, kept), {}) for x, kept in ((n.then, held), (n.otherwise, ~held)))
        found = np.empty(count, np.result_type(then, otherwise) if then.dtype != otherwise.dtype else then.dtype)
        found[held], found[~held] = then, otherwise
        return found

    # ------------------------------------------------------------ nests

    def nest(self, nest: Nest, around: Points) -> None:
        if nest.segments:
            self.segments(nest, around)
            return
        points = self.over(nest.loops, around)
        skip = nest.skip
        zeros: list[tuple[Buffer, Array]] = []
        if skip is not None and self.task[skip.flag] == 1:
            held = self.where(skip.conditions, points)
            if skip.fill is not None:
                left = _subset(points, ~held)
                first, last = (evaluate(e, left) for e in skip.fill)
                left = _subset(left, (first <= left[skip.variable]) & (left[skip.variable] <= last))
                zeros = [(s.buffer, self.address(s.buffer, s.index, left)) for s in nest.stores]
            points = _subset(points, held)
        stored = [(s.buffer, self.address(s.buffer, s.index, points)) for s in nest.stores]
        values = self.values([s.node for s in nest.stores], points)
        taken = self.values([n for f in nest.folds for n in f.nodes], points)
        outer = self.over([x for x in nest.loops if x.kind is not LoopKind.REDUCTION], around) if nest.folds else {}
        for (b, at), x in zip(stored, values, strict=True):
            self.memory.store(b, at, x)
        for b, at in zeros:
            self.memory.store(b, at, np.zeros(at.size, b.element.dtype))
        self.folds(nest, taken, points, outer)

    def folds(self, nest: Nest, taken: list[Array], points: Points, outer: Points) -> None:
        for f in nest.folds:
            mine, taken = taken[: len(f.nodes)], taken[len(f.nodes) :]
            if any(x.kind is LoopKind.SCAN for x in nest.loops):
                self.scan(nest, f, mine, points)
            else:
                self.fold(f, mine, points, outer)

    def segments(self, nest: Nest, around: Points) -> None:
        """Each segment of the innermost loop stores for itself, together they fold. Their ends say what a flag leaves out."""
        inner = nest.loops[-1]
        parts: list[tuple[Points, list[Array]]] = []
        stored = []
        for x in nest.segments:
            points = self.over((*nest.loops[:-1], replace(inner, lower=x.lower, upper=x.upper)), around)
            values = self.values([s.node for s in x.stores], points)
            stored += [(s.buffer, self.address(s.buffer, s.index, points), y) for s, y in zip(x.stores, values, strict=True)]
            if [f.buffers for f in x.folds] != [f.buffers for f in nest.folds]:
                if _count(points):
                    raise Misuse("a segment without a part of the nest's folds")
                continue
            parts.append((points, self.values([n for f in x.folds for n in f.nodes], points)))
        for b, at, y in stored:
            self.memory.store(b, at, y)
        if nest.folds and parts:
            outer = self.over([x for x in nest.loops if x.kind is not LoopKind.REDUCTION], around)
            every = {v: np.concatenate([points[v] for points, _ in parts]) for v in parts[0][0]}
            taken = [np.concatenate(same) for same in zip(*(values for _, values in parts), strict=True)]
            self.folds(nest, taken, every, outer)

    def fold(self, f: FoldStep, nodes: list[Array], points: Points, outer: Points) -> None:
        """Each element starts from its initial value, or goes on, and takes the iterations in order."""
        targets = [self.address(b, f.index, outer) for b in f.buffers]
        at = self.address(f.buffers[0], f.index, points)
        is_product = isinstance(f.op.definition.semantics, SumOfProducts)
        if f.carried:
            start = [self.memory.load(b, x) for b, x in zip(f.buffers, targets, strict=True)]
        elif f.inits:
            start = self.values(f.inits, outer)
        else:
            start = [np.zeros(targets[0].size, f.buffers[0].element.dtype)]
        places, number = np.unique(targets[0], return_inverse=True)
        if places.size < targets[0].size and not f.carried:
            # Two iterations that start the same element: the later one starts anew.
            raise Misuse(f"{f.buffers[0].name}: a fold starts twice at one element")
        totals = [np.empty(places.size, s.dtype) for s in start]
        for total, s in zip(totals, start, strict=True):
            total[number] = s
        where = np.searchsorted(places, at)
        if at.size and not np.array_equal(places[np.minimum(where, places.size - 1)], at):
            raise Misuse(f"{f.buffers[0].name}: a fold goes on where it did not start")
        if is_product:
            terms = nodes[0].astype(totals[0].dtype)
            for x in nodes[1:]:
                terms = terms * x.astype(totals[0].dtype)
            np.add.at(totals[0], where, terms)
        else:
            simple = _SIMPLE.get(combined_function(f.op.regions[0]) or "")
            if simple is not None:
                simple.at(totals[0], where, nodes[0].astype(totals[0].dtype))
            for chosen in _in_order(where) if simple is None else ():
                folded = self.block(f.op.regions[0], [*(t[where[chosen]] for t in totals), *(x[chosen] for x in nodes)])
                for t, x in zip(totals, folded, strict=True):
                    t[where[chosen]] = x
        for b, t, addresses in zip(f.buffers, totals, targets, strict=True):
            self.memory.store(b, addresses, t[number])

    def scan(self, nest: Nest, f: FoldStep, nodes: list[Array], points: Points) -> None:
        """Along the scan's loop each iteration's result starts from the one before; along a reduction's it does not."""
        (scan,) = [x.variable for x in nest.loops if x.kind is LoopKind.SCAN]
        if any(x.kind is LoopKind.REDUCTION for x in nest.loops) or len(f.nodes) != 1 or f.carried or len(f.inits) != 1:
            raise Misuse("a scan folds one value from its start, in no other reduction")
        lanes = [points[x.variable] for x in nest.loops if x.variable is not scan]
        where = _numbered(lanes, _count(points))
        starts = self.values(f.inits, points)[0]
        at = self.address(f.buffers[0], f.index, points)
        totals = np.empty(int(where.max(initial=-1)) + 1, starts.dtype)
        for step in np.unique(points[scan]):
            chosen = np.flatnonzero(points[scan] == step)
            if step == points[scan].min():
                totals[where[chosen]] = starts[chosen]
            (folded,) = self.block(f.op.regions[0], [totals[where[chosen]], nodes[0][chosen]])
            totals[where[chosen]] = folded
            self.memory.store(f.buffers[0], at[chosen], folded)

    def block(self, body: Block, arguments: Sequence[Array]) -> list[Array]:
        """A body of scalar functions on flat arrays."""
        known: dict[Value, Array] = {}
        for v, x in zip(body.arguments, arguments, strict=True):
            known[v] = x
        count = max((x.size for x in arguments), default=1)
        for op in body.ops[:-1] if body.ops and body.ops[-1].definition.is_terminator else body.ops:
            if isinstance(op.definition.semantics, Literal):
                dense: DenseArray = op.attr("value")
                known[op.results[0]] = np.full(count, dense.array.reshape(-1)[0], op.results[0].tensor.dtype)
                continue
            known[op.results[0]] = self.scalars(op, op.definition.mnemonic, [known[v] for v in op.operands])
        return [known[v] for v in body.results]

    def sequential(self, s: Sequential, around: Points) -> None:
        for k in range(_count(blocks := self.over((s.loop,), around))):
            for step in s.steps:
                self.step(step, {v: a[k : k + 1] for v, a in blocks.items()})

    # ------------------------------------------------------------ contractions

    def contract(self, c: Contract, around: Points) -> None:
        for point in _each(self.over(c.loops, around)):
            self._contract(c, point)

    def _contract(self, c: Contract, at: Points) -> None:
        def one(e: Expr) -> int:
            return int(np.reshape(evaluate(e, at), -1)[0])

        low, high = one(c.depth_lower), one(c.last_depth)
        start = low // c.k_block * c.k_block if c.k > c.k_block else 0
        rows, columns = np.arange(one(c.rows_upper) + 1), np.arange(one(c.columns_lower), one(c.columns_upper) + 1)
        if c.in_quads and (c.levels or c.accumulate or c.k > c.k_block or (low, high) != (0, c.k - 1) or c.k % 4):
            raise Misuse("four steps of k side by side are summed in one go")
        if c.along_depth and c.columns != 1:
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
        left, right = (k - k0), k
        if not c.along_depth:
            left, right = left * c.left.column_stride, right * c.right.row_stride
        if c.in_quads:
            right = k // 4 * (4 * c.columns) + k % 4
        for count, one_left, one_right in reversed(c.levels):
            t = np.arange(count)[:, None]
            left, right = (t * one_left + left).reshape(-1), (t * one_right + right).reshape(-1)
        inside = (columns % c.columns) * (4 if c.in_quads else 1)
        panel = columns // c.columns * c.panel_stride + inside
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

    def measure(self, m: Measure, around: Points) -> None:
        for point in _each(around):
            (piece,) = point[m.piece]
            at = np.arange(piece * m.size, min(piece * m.size + m.size, m.source.size_elems))
            x = np.abs(self.memory.load(m.source, at))
            self.memory.store(m.target, np.array([piece]), np.max(x, initial=0).reshape(1).astype(m.target.element.dtype))

    def ordering(self, o: Ordering, around: Points) -> None:
        for point in _each(around):
            start, target = (int(np.reshape(evaluate(e, point), -1)[0]) for e in (o.start, o.target_start))
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
            return np.argsort(-_total_order(rows[0]), kind="stable")
        body = o.op.regions[0]
        i: Array = np.repeat(np.arange(o.count), o.count)
        j: Array = np.tile(np.arange(o.count), o.count)
        before: Array = self.block(body, [x for row in rows for x in (row[i], row[j])])[0].reshape(o.count, o.count)

        def compare(a: int, b: int) -> int:
            return int(before[b, a]) - int(before[a, b])

        return np.array(sorted(range(o.count), key=cmp_to_key(compare)), np.int64)

    def scatter(self, s: Scatter, around: Points) -> None:
        points = self.over(s.loops, around)
        held = np.ones(_count(points), bool)
        for x in s.starts:
            lower, upper = (evaluate(e, points) for e in (x.lower, x.upper))
            if isinstance(x.node, Expr):
                place = evaluate(x.node, points)
            else:
                place = _as_place(self.values([x.node], points)[0])
                if x.clamps:
                    place = np.clip(place, lower, upper)
                assert x.variable is not None
                points[x.variable] = place
            held &= (lower <= place) & (place <= upper)
        points = _subset(points, held)
        held = np.ones(_count(points), bool)
        for x in s.tests:
            assert isinstance(x.node, Expr)
            place = evaluate(x.node, points)
            held &= (evaluate(x.lower, points) <= place) & (place <= evaluate(x.upper, points))
        points = _subset(points, held)
        at = [self.address(b, s.index, points) for b in s.targets]
        nodes = self.values(s.nodes, points)
        for chosen in _in_order(at[0]):
            new = [value[chosen] for value in nodes]
            if s.op.regions:
                old = [self.memory.load(b, to[chosen]) for b, to in zip(s.targets, at, strict=True)]
                new = self.block(s.op.regions[0], [*old, *new])
            for b, where, value in zip(s.targets, at, new, strict=True):
                self.memory.store(b, where[chosen], value)

    def selection(self, s: Selection, around: Points) -> None:
        select, scatter = s.op.regions
        outer = self.over(s.loops, around)
        n = _count(outer)
        best, place = np.zeros(n, s.operand.element.dtype), np.full(n, -1)
        values = self.values([s.node], outer)[0]
        for window in _each(self.over(s.window, {})):
            points = {**outer, **{v: np.repeat(x, n) for v, x in window.items()}}
            held = np.flatnonzero(self.where(s.tests, points))
            at = self.address(s.operand, s.index, _subset(points, held))
            x = self.memory.load(s.operand, at)
            keep = self.block(select, [best[held], x])[0].astype(bool) & (place[held] >= 0)
            best[held], place[held] = np.where(keep, best[held], x), np.where(keep, place[held], at)
        found = np.flatnonzero(place >= 0)
        for chosen in _in_order(place[found]):
            k = found[chosen]
            old = self.memory.load(s.target, place[k])
            self.memory.store(s.target, place[k], self.block(scatter, [old, values[k]])[0])

    def transform(self, t: Transform, around: Points) -> None:
        for point in _each(self.over((t.lanes,), around)):
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
                column = int(np.reshape(evaluate(t.column, point), -1)[0]) + lane
                y = y * np.exp(t.sign * 2j * np.pi * column * np.arange(stored) / (t.columns * t.size))
            y = y * t.scale
            self.memory.store(t.target.buffer, self._line(t.target, np.array(lane), np.arange(stored), point), y)

    def matrices(self, s: MatrixStep, around: Points) -> None:
        """A triangular system, or a factor of a positive matrix; the other factorisations have no model here."""
        for point in _each(around):
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


# ---------------------------------------------------------------- arrays


def _count(points: Points) -> int:
    return len(next(iter(points.values()))) if points else 1


def _subset(points: Points, kept: Array) -> Points:
    return {v: a[kept] for v, a in points.items()}


def _each(points: Points) -> Iterator[Points]:
    for k in range(_count(points)):
        yield {v: a[k : k + 1] for v, a in points.items()}


def _numbered(columns: Sequence[Array], count: int) -> Array:
    """A number for each row of some columns, the same for equal rows."""
    if not columns:
        return np.zeros(count, np.int64)
    return np.unique(np.stack(columns, 1), axis=0, return_inverse=True)[1].reshape(-1)


def _in_order(where: Array) -> Iterator[Array]:
    """Rounds that take the points in order, each round at most one for each place."""
    order = np.argsort(where, kind="stable")
    ordered = where[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]] if ordered.size else np.zeros(0, bool)
    starts = np.maximum.accumulate(np.where(first, np.arange(ordered.size), 0)) if ordered.size else ordered
    rank = np.empty(where.size, np.int64)
    rank[order] = np.arange(ordered.size) - starts
    by_rank = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[by_rank], np.arange(int(rank.max(initial=-1)) + 2))
    for k in range(len(bounds) - 1):
        yield by_rank[bounds[k] : bounds[k + 1]]


def _as_place(x: Array) -> Array:
    """A value as an index: unsigned numbers too large for one are as far as can be."""
    if x.dtype.kind == "u":
        x = np.minimum(x, np.iinfo(np.int64).max)
    return x.astype(np.int64)


def _total_order(x: Array) -> Array:
    """Integers that order as the numbers do, NaN beyond the infinities."""
    if x.dtype.kind in "iub":
        return x.astype(np.int64)
    bits = x.view(f"i{x.dtype.itemsize}").astype(np.int64)
    most = (1 << (8 * x.dtype.itemsize - 1)) - 1
    return np.where(bits < 0, bits ^ most, bits)
