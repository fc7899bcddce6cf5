"""Loops that walk on through memory as one become one, so that short rows do not end the innermost loop.

    for a in [0, m]: for b in [0, n - 1]: f(x[n a + b])   ->   for c in [0, n (m + 1) - 1]: f(x[c])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from indexing.expr import Const, Expr, Interval, Var, interval, simplify
from tiling.loops.affine import expressions_of, linear
from tiling.loops.element_ir import Load, Renamer, has_runtimes
from tiling.loops.ir import Buffer, Loop, LoopKind, Nest
from tiling.loops.variables import new_variable

__all__ = ["collapse_loops"]


def collapse_loops(nest: Nest, buffer_of: Callable[[Load], Buffer], ranges: dict[Var, Interval]) -> Nest:
    """The nest with neighbouring loops of one kind made one wherever every address and every condition is linear in both
    and steps on from the end of the inner one to the next iteration of the outer one. A nest of fixed order stays as it is."""
    if len(nest.loops) < 2 or nest.order_is_fixed or has_runtimes(nest.each):
        return nest
    for k in reversed(range(len(nest.loops) - 1)):
        outer, inner = nest.loops[k : k + 2]
        if _may(nest, outer, inner) and all(_steps_on(e, outer, inner) for e in expressions_of(nest, buffer_of, ranges)):
            nest = _joined(nest, k, ranges)
    return nest


def _may(nest: Nest, outer: Loop, inner: Loop) -> bool:
    if outer.kind is not inner.kind or outer.kind is LoopKind.SCAN or min(outer.extent, inner.extent) < 2:
        return False
    bounds = [e for x in nest.loops for e in (x.lower, x.upper)]
    used = any(v in e.variables for e in bounds for v in (outer.variable, inner.variable))
    return inner.is_whole and outer.lower is Const(0) and not used


def _steps_on(e: Expr, outer: Loop, inner: Loop) -> bool:
    parts = linear(e, (outer.variable, inner.variable))
    return parts is not None and parts[1][0] == parts[1][1] * inner.extent


def _joined(nest: Nest, k: int, ranges: dict[Var, Interval]) -> Nest:
    outer, inner = nest.loops[k : k + 2]
    n = inner.extent
    c = new_variable(f"{inner.variable.name}_on", Interval(0, outer.extent * n - 1), ranges)
    upper = simplify(outer.upper * n + (n - 1), ranges)
    loop = replace(outer, variable=c, upper=upper, extent=interval(upper, ranges).upper + 1)
    rename = Renamer({outer.variable: c // n, inner.variable: c % n}, ranges, {})
    return nest.rewritten(rename, (*nest.loops[:k], loop, *nest.loops[k + 2 :]))
