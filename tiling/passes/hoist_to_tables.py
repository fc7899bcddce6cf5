"""Expensive factors that depend on some of a nest's loops alone: computed once for each of their values, into a table.

    for i: for j: y[i, j] = x[i, j] * exp(w[j])   ->   for j: table[j] = exp(w[j])
                                                       for i: for j: y[i, j] = x[i, j] * table[j]

The cost model counts an operation once for the loops that it depends on. A compiler moves it out of the loops inside of those;
out of a loop around them it needs memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod

from hlo.module import Value
from hlo.types import ElementType
from indexing.expr import Const, Var
from tiling.elements.scalar_functions import scalar_function
from tiling.loops.accesses import buffers_by_value
from tiling.loops.element_ir import (
    Apply,
    Choose,
    Load,
    Node,
    Reread,
    all_nodes,
    children,
    loads,
    node_variables,
    operands_first,
    runtimes_of,
)
from tiling.loops.ir import Buffer, Loop, LoopKind, Nest, Schedule, Scope, Step
from tiling.loops.staging import Layout, row_major, stage_into

__all__ = ["hoist_to_tables"]

LEAST_COST = 4.0  # in additions: a division's, where reading the table costs one
LEAST_TIMES = 4  # how often each element of a table is read that costs no more than that
MOST_TABLE_BYTES = 1 << 13  # of the first cache, which has other things to keep
LEAST_SAVED = 24.0  # additions for each element of a table that is larger, or is read less often
MOST_BYTES = 1 << 16  # of the second cache


def hoist_to_tables(schedule: Schedule) -> Schedule:
    """The schedule with tables for such factors; its loops are in order."""
    made: list[Buffer] = []
    taken = {b.name for b in schedule.buffers}
    by_value = buffers_by_value(schedule)

    def table(layout: Layout) -> Buffer:
        name = next(n for k in range(len(taken) + 1) if (n := f"table{k}") not in taken)
        taken.add(name)
        made.append(layout.buffer(name, Scope.THREAD))
        return made[-1]

    phases = []
    for p in schedule.phases:
        steps: list[Step] = []
        for s in p.steps:
            steps += _with_tables(s, table, by_value) if isinstance(s, Nest) and len(s.loops) > 1 else [s]
        phases.append(replace(p, steps=tuple(steps)))
    return replace(schedule, phases=tuple(phases), buffers=(*schedule.buffers, *made)) if made else schedule


def _with_tables(
    nest: Nest, table: Callable[[Layout], Buffer], by_value: Mapping[Value, Buffer]
) -> list[Nest]:
    roots = nest.each
    if nest.skip is not None or nest.segments or nest.ahead or not any(_cost(n) >= LEAST_COST for n in all_nodes(roots)):
        return [nest]
    written = {s.buffer for s in nest.stores} | {b for f in nest.folds for b in f.buffers}
    memo: dict[Node, Node] = {}
    fills: dict[tuple[Loop, ...], Nest] = {}
    for node, loops, saved in _factors(nest.loops, roots):
        if any((x.buffer or by_value[x.value]) in written for x in loads((node,))):
            continue
        value = node.op.results[0]
        element = value.tensor.element
        shape = tuple(x.extent for x in loops)
        if not isinstance(element, ElementType) or element.bits < 8:
            continue
        if prod(shape) * element.itemsize_bytes > (MOST_BYTES if saved >= LEAST_SAVED else MOST_TABLE_BYTES):
            continue
        layout = row_major(element, [(x.variable - x.lower, x.extent) for x in loops])
        kept = table(layout)
        memo[node] = Load(value, layout.at, kept)
        fill = stage_into(kept, layout, [replace(x, kind=LoopKind.PARALLEL) for x in loops], node, order_is_fixed=True)
        known = fills.get(loops)
        fills[loops] = fill if known is None else replace(known, stores=(*known.stores, *fill.stores))
    if not memo:
        return [nest]
    on = Reread(memo)
    stores = tuple(replace(s, node=on.node(s.node)) for s in nest.stores)
    folds = tuple(replace(f, nodes=tuple(map(on.node, f.nodes))) for f in nest.folds)
    return [*fills.values(), replace(nest, stores=stores, folds=folds)]


def _factors(loops: tuple[Loop, ...], roots: tuple[Node, ...]) -> Iterator[tuple[Apply, tuple[Loop, ...], float]]:
    """The largest factors worth a table that every iteration computes, each with the loops that it depends on, and what is saved
    for each element of its table, in additions.
    """
    variables: dict[Node, frozenset[Var]] = {}
    worth = _worth(roots)
    seen: set[Node] = set()
    stack = list(reversed(roots))
    while stack:
        n = stack.pop()
        if n in seen or isinstance(n, Choose):
            continue
        seen.add(n)
        own = _loops(loops, node_variables(n, variables)) if isinstance(n, Apply) else ()
        times = _times(loops, own) if own else 0
        saved = (times - 1) * worth.get(n, 0.0)
        if isinstance(n, Apply) and (saved >= LEAST_SAVED or (times >= LEAST_TIMES and n in worth)):
            yield n, own, saved
        else:
            stack.extend(reversed(children(n)))


def _worth(roots: tuple[Node, ...]) -> dict[Node, float]:
    """The nodes that, with all that they are computed from, cost enough and depend on nothing found out at run time: what they
    cost at least, in additions.

    One walk: of each node the costly ones below it are kept, up to those that are enough.
    """
    below: dict[Node, frozenset[Node] | None] = {}  # None below what depends on values at run time
    found: dict[Node, float] = {}
    for root in roots:
        for n in operands_first(root, below):
            parts = [below[c] for c in children(n)]
            if runtimes_of(n) or None in parts:
                below[n] = None
                continue
            costly = frozenset((n,) if _cost(n) else ()).union(*(p for p in parts if p is not None))
            cost = max([found.get(c, 0.0) for c in children(n)], default=0.0) + sum(map(_cost, costly))
            if cost >= LEAST_COST:
                found[n] = cost
                costly = frozenset()
            below[n] = costly
    return found


def _loops(loops: tuple[Loop, ...], variables: frozenset[Var]) -> tuple[Loop, ...]:
    """The loops of a factor, where a table may have them."""
    own = tuple(x for x in loops if x.variable in variables)
    if not own:
        return ()
    names = {x.variable for x in loops}
    others = {v for x in own for e in (x.lower, x.upper) for v in e.variables} & names
    fits = not others and all(isinstance(x.lower, Const) and x.kind is not LoopKind.SCAN and x.together == 1 for x in own)
    return own if fits else ()


def _times(loops: tuple[Loop, ...], own: tuple[Loop, ...]) -> int:
    """How often each element of a table over these loops is read: by the loops around them that it does not depend on."""
    depth = 1 + max(k for k, x in enumerate(loops) if x in own)
    return prod(x.extent for x in loops[:depth] if x not in own)


def _cost(n: Node) -> float:
    return scalar_function(n.function).cost if isinstance(n, Apply) else 0.0
