"""Where an update lands in its result, from the map of its edge: which element of the updates each element of the result reads.

    result[d] reads updates[…, s, …, d_k - start_k, …]   where every d_k - start_k lies in its window
    updates[u] lands at d_k = start_k + u_j               u_j walks along d_k; d_k = start_k where nothing does

A start is 0, a range variable of the map (another dimension of the updates), or a value that is known at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlo.errors import Declined
from hlo.module import Op
from hlo.registry import definition
from indexing.deriving.edges import edges_of
from indexing.expr import Expr, Var, substitute
from indexing.map import RuntimeVariable

__all__ = ["Axis", "Landing", "landing_of"]


@dataclass(frozen=True)
class Axis:
    """A dimension of the result: `start`, and the dimension of the updates that `walks` along it, if any does.

    Where only the running program knows the start, it is an element of `operand`: `runtime` says which, and its limits.
    """

    start: Expr
    walks: int | None
    runtime: RuntimeVariable | None = None
    operand: int = 0


@dataclass(frozen=True)
class Landing:
    """A result's dimensions, and the dimensions of the updates in which each of them has a window of its own."""

    axes: tuple[Axis, ...]
    spread: Mapping[int, Var]  # dimension of the updates -> the map's range variable

    def at(self, e: Expr, u: Mapping[int, Var]) -> Expr:
        """An expression of the map for the update at `u`."""
        return substitute(e, {v: u[k] for k, v in self.spread.items()})


def landing_of(op: Op, name: str, updates: int) -> Landing:
    """Where operand number `updates` of an op lands, which is the op called `name` or an update in place that was made of one."""
    edges = edges_of(op, 0, definition(name))
    if isinstance(edges, Declined):
        raise LookupError(edges.reason)
    (m,) = [e.map for e in edges.reads if e.operand == updates]
    walks = {e: k for k, e in enumerate(m.results)}
    ranges = {v.var for v in edges.ranges}
    runtimes = {v.var: (v, k) for v, k in zip(edges.runtimes, edges.runtime_operands, strict=True)}
    axes: list[Axis] = []
    for d, c in zip(edges.dims, m.constraints, strict=True):
        start = d.var - c.expression
        known = runtimes.get(start) if isinstance(start, Var) else None
        axes.append(Axis(start, walks.get(c.expression), *(known or ())))
    return Landing(tuple(axes), {k: e for k, e in enumerate(m.results) if isinstance(e, Var) and e in ranges})
