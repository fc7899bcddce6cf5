"""Loops around stores and folds, as the interpreter of schedules runs them: all iterations at once, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hlo.access import Condition
from hlo.module import Block, DenseArray, Value
from hlo.registry import Literal, SumOfProducts
from indexing.expr import Expr, Var, as_expr, evaluate
from tests.interpreter.memory import (
    Array,
    Memory,
    Misuse,
    Points,
    Scalars,
    as_place,
    count_of,
    in_order,
    numbered,
    subset,
)
from tiling.elements.folds import combined_function
from tiling.loops.accesses import buffers_by_value
from tiling.loops.element_ir import Apply, IndexNode, Load, Node, Runtime, Scalar, Test, runtimes_of
from tiling.loops.ir import (
    Buffer,
    FoldStep,
    Loop,
    LoopKind,
    Nest,
    Phase,
    Schedule,
)

__all__ = ["Nests"]

MOST_POINTS = 1 << 24
_SIMPLE: Mapping[str, np.ufunc] = {
    "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or,
}  # fmt: skip


class Nests:
    """Runs nests in the memory of one schedule: `task` has the values of the phase's tile numbers and flags."""

    def __init__(self, schedule: Schedule, phase: Phase, memory: Memory, scalars: Scalars) -> None:
        self.schedule, self.phase, self.memory, self.scalars = schedule, phase, memory, scalars
        self.by_value = buffers_by_value(schedule)
        self.task: dict[Var, int] = {}

    # ------------------------------------------------------------ iterations and elements

    def over(self, loops: Sequence[Loop], points: Points) -> Points:
        """The points once for each iteration of some loops, in their order."""
        for x in loops:
            n = count_of(points)
            lower, upper = (np.broadcast_to(evaluate(e, points), (n,)) for e in (x.lower, x.upper))
            counts = -(-np.maximum(upper - lower + 1, 0) // x.together) * x.together  # whole groups, as they are written
            total = int(counts.sum())
            if total > MOST_POINTS:
                raise LookupError(f"{x.variable} has {total} iterations")
            each = np.repeat(np.arange(n), counts)
            inner = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
            points = {v: a[each] for v, a in points.items()}
            points[x.variable] = lower[each] + inner
        return points

    def where(self, conditions: Sequence[Condition], points: Points) -> Array:
        held = np.ones(count_of(points), bool)
        for c in conditions:
            e = evaluate(as_expr(c.expression), points)
            held &= (c.lower <= e) & (e <= c.upper)
        return held

    def address(self, b: Buffer, index: Sequence[Expr], points: Points) -> Array:
        """Where elements lie; each position has to be inside of the buffer's shape."""
        n = count_of(points)
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
        return np.clip(as_place(self.value(r.node, points, memo)), r.lower, r.upper)

    def _value(self, n: Node, points: Points, memo: dict[Node, Array]) -> Array:
        count = count_of(points)
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
        then, otherwise = (self.value(x, subset(points, kept), {}) for x, kept in ((n.then, held), (n.otherwise, ~held)))
        found = np.empty(count, np.result_type(then, otherwise) if then.dtype != otherwise.dtype else then.dtype)
        found[held], found[~held] = then, otherwise
        return found

    # ------------------------------------------------------------ nests

    def nest(self, nest: Nest, around: Points) -> None:
        self._takes_groups(nest)
        if nest.segments:
            self.segments(nest, around)
            return
        points = self.over(nest.loops, around)
        skip = nest.skip
        zeros: list[tuple[Buffer, Array]] = []
        if skip is not None and self.task[skip.flag] == 1:
            held = self.where(skip.conditions, points)
            if skip.fill is not None:
                left = subset(points, ~held)
                first, last = (evaluate(e, left) for e in skip.fill)
                left = subset(left, (first <= left[skip.variable]) & (left[skip.variable] <= last))
                zeros = [(s.buffer, self.address(s.buffer, s.index, left)) for s in nest.stores]
            points = subset(points, held)
        stored = [(s.buffer, self.address(s.buffer, s.index, points)) for s in nest.stores]
        values = self.values([s.node for s in nest.stores], points)
        taken = self.values([n for f in nest.folds for n in f.nodes], points)
        outer = self.over([x for x in nest.loops if x.kind is not LoopKind.REDUCTION], around) if nest.folds else {}
        for (b, at), x in zip(stored, values, strict=True):
            self.memory.store(b, at, x)
        for b, at in zeros:
            self.memory.store(b, at, np.zeros(at.size, b.element.dtype))
        self.folds(nest, taken, points, outer)

    @staticmethod
    def _takes_groups(nest: Nest) -> None:
        """Several iterations are written as one where a fold takes them across rows, or where scans along rows, results in
        registers, or sums that are written out, go side by side."""
        for k, x in enumerate(nest.loops):
            around = (x.kind, nest.loops[-1].kind)
            is_scan = around == (LoopKind.PARALLEL, LoopKind.SCAN)
            is_fold = around == (LoopKind.REDUCTION, LoopKind.PARALLEL) and all(len(f.nodes) == 1 for f in nest.folds)
            is_sums = all(y.kind is LoopKind.PARALLEL for y in nest.loops) and all(f.products > 1 for f in nest.folds)
            is_beside = around == (LoopKind.PARALLEL, LoopKind.REDUCTION) and all(f.products == 1 for f in nest.folds)
            is_beside = is_beside and all(y.kind is LoopKind.PARALLEL for y in nest.loops[:-1])
            is_whole = not nest.segments and x.extent % max(x.together, 1) == 0
            is_step = is_scan or is_fold or ((is_sums or is_beside) and is_whole)
            if x.together != 1 and not (x.together > 1 and k == len(nest.loops) - 2 and not nest.stores and is_step):
                raise Misuse(f"{x.together} iterations of {x.variable} are no step of a kernel")

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
                if count_of(points):
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
        count = len(f.op.operands) if is_product else len(f.values)
        if f.products < 1 or count * f.products != len(nodes):
            raise Misuse(f"{len(nodes)} nodes are not what {f.products} steps of {f.op.name} take")
        if is_product:
            for k in range(f.products):
                left, right = (x.astype(totals[0].dtype) for x in nodes[k * count : (k + 1) * count])
                np.add.at(totals[0], where, left * right)
        else:
            simple = _SIMPLE.get(combined_function(f.op.regions[0]) or "")
            for chosen in in_order(where) if simple is None or f.products > 1 else ():
                for k in range(f.products):
                    step = nodes[k * count : (k + 1) * count]
                    folded = self.block(f.op.regions[0], [*(t[where[chosen]] for t in totals), *(x[chosen] for x in step)])
                    for t, x in zip(totals, folded, strict=True):
                        t[where[chosen]] = x
            if simple is not None and f.products == 1:
                simple.at(totals[0], where, nodes[0].astype(totals[0].dtype))
        for b, t, addresses in zip(f.buffers, totals, targets, strict=True):
            self.memory.store(b, addresses, t[number])

    def scan(self, nest: Nest, f: FoldStep, nodes: list[Array], points: Points) -> None:
        """Along the scan's loop each iteration's result starts from the one before; along a reduction's it does not."""
        (scan,) = [x.variable for x in nest.loops if x.kind is LoopKind.SCAN]
        alone = not any(x.kind is LoopKind.REDUCTION for x in nest.loops) and not f.carried
        if not alone or (len(f.nodes), len(f.inits), f.products) != (1, 1, 1):
            raise Misuse("a scan folds one value from its start, in no other reduction")
        lanes = [points[x.variable] for x in nest.loops if x.variable is not scan]
        where = numbered(lanes, count_of(points))
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
