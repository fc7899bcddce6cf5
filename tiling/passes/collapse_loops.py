"""Loops that walk on through memory as one become one, so that short rows do not end the innermost loop.

    for a in [0, m]: for b in [0, n - 1]: f(x[n a + b])   ->   for c in [0, n (m + 1) - 1]: f(x[c])

A condition on `a` alone becomes one on c where rows are short, multiplied by n: l <= a + e <= u is n l <= c + n e <= n u + n - 1.
The one loop is then cut where the condition begins and ends to hold (`tiling.passes.split_innermost`), as at the edges of an
image of three channels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from hlo.access import Condition
from indexing.expr import EVERYTHING, Const, Expr, Interval, Var, as_expr, interval, simplify
from tiling.loops.affine import address, expressions_below, expressions_of, linear
from tiling.loops.element_ir import (
    Choose,
    Load,
    Node,
    Renamer,
    Runtime,
    Test,
    all_nodes,
    has_runtimes,
    node_variables,
    operands_first,
    rebuild,
)
from tiling.loops.ir import Buffer, Loop, LoopKind, Nest, Scatter, Start
from tiling.loops.variables import new_variable

__all__ = ["collapse_loops", "collapse_windows"]

SHORT_ROW = 16  # elements of an inner loop that conditions on the outer one are not worth being kept apart for
MOST_ASKED = 4  # conditions that one loop is cut at


def collapse_loops(nest: Nest, buffer_of: Callable[[Load], Buffer], ranges: dict[Var, Interval]) -> Nest:
    """The nest with neighbouring loops of one kind made one wherever every address and every condition is linear in both
    and steps on from the end of the inner one to the next iteration of the outer one. A nest of fixed order stays as it is."""
    if len(nest.loops) < 2 or nest.order_is_fixed:
        return nest
    if has_runtimes(nest.each) and (nest.segments or nest.skip is not None):
        return nest
    for k in reversed(range(len(nest.loops) - 1)):
        outer, inner = nest.loops[k : k + 2]
        if not _may(nest.loops, outer, inner):
            continue
        conditions = {c.expression for n in all_nodes(nest.each) if isinstance(n, (Choose, Test)) for c in n.conditions}
        apart = {e for e in conditions if not _steps_on(e, outer, inner)}
        places = expressions_of(nest, buffer_of, ranges, conditions=False)
        if all(_steps_on(e, outer, inner) for e in places) and _may_be_asked(apart, nest, outer, inner):
            nest = _joined(nest, k, ranges)
    return nest


def collapse_windows(step: Scatter, buffer_of: Callable[[Load], Buffer], ranges: dict[Var, Interval]) -> Scatter:
    """The same of the loops over an update's window: rows of (128, 3) are added as rows of 384."""
    if step.ahead:
        return step
    of_places = [x for s in (*step.starts, *step.tests) for x in _variables_of(s)]
    for k in reversed(range(step.outer, len(step.loops) - 1)):
        outer, inner = step.loops[k : k + 2]
        if not _may(step.loops, outer, inner) or outer.variable in of_places or inner.variable in of_places:
            continue
        targets = [address(b, step.index, ranges) for b in step.targets]
        if all(_steps_on(e, outer, inner) for e in (*targets, *expressions_below(step.nodes, buffer_of, ranges))):
            loop, by = _one_loop(outer, inner, ranges)
            step = replace(
                step, loops=(*step.loops[:k], loop, *step.loops[k + 2 :]), index=by.index(step.index), node=by.node(step.node),
                more=tuple([(b, by.node(n)) for b, n in step.more]),
            )  # fmt: skip
    return step


def _variables_of(start: Start) -> Iterable[Var]:
    node = as_expr(start.node).variables if isinstance(start.node, (Expr, Var)) else node_variables(start.node, {})
    return (*node, *start.lower.variables, *start.upper.variables)


def _may_be_asked(conditions: Collection[Expr], nest: Nest, outer: Loop, inner: Loop) -> bool:
    """Whether conditions are on the outer loop alone, and so few, with rows so short, that the one loop may be cut at them."""
    if not conditions:
        return True
    fits = inner.extent < SHORT_ROW and nest.skip is None and len(conditions) <= MOST_ASKED
    return fits and all(_of_outer(e, outer, inner) for e in conditions)


def _of_outer(e: Expr, outer: Loop, inner: Loop) -> bool:
    parts = linear(e, (outer.variable, inner.variable))
    return parts is not None and parts[1] in ((1, 0), (-1, 0))


def _may(loops: Sequence[Loop], outer: Loop, inner: Loop) -> bool:
    if outer.kind is not inner.kind or outer.kind is LoopKind.SCAN or min(outer.extent, inner.extent) < 2:
        return False
    bounds = [e for x in loops for e in (x.lower, x.upper)]
    used = any(v in e.variables for e in bounds for v in (outer.variable, inner.variable))
    return inner.is_whole and outer.lower is Const(0) and not used


def _steps_on(e: Expr, outer: Loop, inner: Loop) -> bool:
    parts = linear(e, (outer.variable, inner.variable))
    return parts is not None and parts[1][0] == parts[1][1] * inner.extent


def _joined(nest: Nest, k: int, ranges: dict[Var, Interval]) -> Nest:
    loop, by = _one_loop(nest.loops[k], nest.loops[k + 1], ranges)
    return nest.rewritten(by, (*nest.loops[:k], loop, *nest.loops[k + 2 :]))


def _one_loop(outer: Loop, inner: Loop, ranges: dict[Var, Interval]) -> tuple[Loop, _OnOneLoop]:
    """The loop over all iterations of two, and what nodes and indices are in it."""
    n = inner.extent
    c = new_variable(f"{inner.variable.name}_on", Interval(0, outer.extent * n - 1), ranges)
    upper = simplify(outer.upper * n + (n - 1), ranges)
    return replace(outer, variable=c, upper=upper, extent=interval(upper, ranges).upper + 1), _OnOneLoop(outer, inner, c, ranges)


class _OnOneLoop(Renamer):
    """Copies nodes with two loops' variables replaced by one's, and what is asked of the outer one asked of that."""

    def __init__(self, outer: Loop, inner: Loop, c: Var, ranges: dict[Var, Interval]) -> None:
        super().__init__({outer.variable: c // inner.extent, inner.variable: c % inner.extent}, ranges, {})
        self.outer, self.inner, self.c = outer, inner, c
        self._runtimes: dict[Runtime, Runtime] = {}

    def node(self, node: Node) -> Node:
        for n in operands_first(node, self._memo):
            if isinstance(n, Choose):
                then, otherwise = self._memo[n.then], self._memo[n.otherwise]
                self._memo[n] = Choose(self._asked(n), then, otherwise, self._computed(n.runtimes))
            elif isinstance(n, Test):
                self._memo[n] = Test(self._asked(n))
            else:
                rebuild(n, self._leaf, self.index, self._memo, runtimes=self._computed)
        return self._memo[node]

    def _computed(self, runtimes: Sequence[Runtime]) -> tuple[Runtime, ...]:
        """Runtime variables in the one loop. Their names stay: the old nest is replaced, and nothing else uses them."""
        for r in runtimes:
            if r not in self._runtimes:
                self._runtimes[r] = replace(r, node=self._memo[r.node])
        return tuple([self._runtimes[r] for r in runtimes])

    def _asked(self, n: Choose | Test) -> tuple[Condition, ...]:
        return tuple([self._condition(c) for c in n.conditions])

    def _condition(self, c: Condition) -> Condition:
        if not _of_outer(c.expression, self.outer, self.inner):
            (expression,) = self.index((c.expression,))
            return replace(c, expression=expression)
        parts = linear(c.expression, (self.outer.variable, self.inner.variable))
        assert parts is not None
        (rest, (step, _)), n = parts, self.inner.extent
        lower, upper = (c.lower, c.upper) if step == 1 else (-c.upper, -c.lower)
        expression = simplify(self.c + rest * (step * n), self.ranges)
        return Condition(expression, max(lower * n, EVERYTHING.lower), min(upper * n + n - 1, EVERYTHING.upper))
