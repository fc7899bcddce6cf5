"""Loads that walk across the rows of memory: their tile is turned in registers first, and then read along its rows.

    out[i, j] = f(x[j, i])   ->   turned[i, j] = x[j, i] by blocks;   out[i, j] = f(turned[i, j])
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

from indexing.expr import Interval, Var
from tiling.loops.affine import address, linear
from tiling.loops.element_ir import Load, Node, moves_runtimes, rebuild, unconditional_loads
from tiling.loops.ir import Buffer, Loop, Nest, Schedule, Scope, Step, Store, Turn
from tiling.loops.names import Names
from tiling.loops.staging import Layout, row_major, stage_into, turn_of
from tiling.passes.order_loops import order_loops

__all__ = ["across", "layout_of_turned", "turned"]

LEAST_SIDE = 8  # shorter sides are not worth a block


def across(
    nest: Nest, buffer_of: Callable[[Load], Buffer], ranges: Mapping[Var, Interval], in_tile: bool = True
) -> list[tuple[Load, Loop, Loop]]:
    """(load, innermost loop, loop along whose variable the load is consecutive) for each load that walks across rows.

    A tile that is turned has no third side (`in_tile`); without that, what would be turned in smaller tiles.
    """
    roots = nest.each
    if len(nest.loops) < 2 or not all(x.extent for x in nest.loops):  # a loop of nothing reads nothing
        return []
    if moves_runtimes(roots, [x.variable for x in nest.loops]):
        return []
    inner = order_loops(nest, buffer_of).loops[-1]
    found = []
    for load in unconditional_loads(roots):
        buffer = buffer_of(load)
        at = linear(address(buffer, load.index, ranges), [x.variable for x in nest.loops])
        if at is None or buffer.scope is Scope.THREAD or load.runtimes:
            continue
        steps = dict(zip(nest.loops, at[1], strict=True))
        rows = [x for x in nest.loops if steps[x] == 1 and x is not inner]
        if abs(steps[inner]) < 2 or steps[inner] < 0 or not rows or min(inner.extent, rows[0].extent) < LEAST_SIDE:
            continue
        others = [x for x in nest.loops if x is not inner and x is not rows[0]]
        if not in_tile or all(steps[x] == 0 or x.extent == 1 for x in others):
            found.append((load, inner, rows[0]))
    return found


def turned(schedule: Schedule, buffer_of: Callable[[Load], Buffer], names: Names, lanes: int) -> Schedule:
    """The schedule with loads across rows of its main phase turned."""
    main, ranges = schedule.main, schedule.ranges
    done: list[Step] = []
    made: list[Buffer] = []

    def replaced(step: Nest) -> Turn | Nest:
        new: dict[Hashable, Load] = {}
        for load, inner, row in across(step, buffer_of, ranges):
            source = buffer_of(load)
            copies = len(step.stores) == 1 and not step.folds and step.stores[0].node is load
            whole = turn_of(step, inner, row, source, ranges) if copies and sum(x.extent > 1 for x in step.loops) == 2 else None
            if whole is not None:
                return whole
            layout = layout_of_turned(source, inner, row, lanes)
            buffer = layout.buffer(names.scratch(load.value, f"turned{len(made) or ''}"), Scope.THREAD)
            turn = turn_of(stage_into(buffer, layout, (row, inner), load), inner, row, source, ranges)
            assert turn is not None, "the load was found to walk across rows before"
            made.append(buffer)
            done.append(turn)
            new[load.place] = Load(load.value, layout.at, buffer)
        return _replaced(step, new) if new else step

    for step in main.steps:
        done.append(replaced(step) if isinstance(step, Nest) else step)
    if not any(isinstance(s, Turn) for s in done):
        return schedule
    phases = tuple(replace(p, steps=tuple(done)) if p is main else p for p in schedule.phases)
    return replace(schedule, phases=phases, buffers=(*schedule.buffers, *made))


def layout_of_turned(source: Buffer, inner: Loop, row: Loop, lanes: int) -> Layout:
    """The layout of a tile that is turned: along the loop that walks across the rows of its source."""
    return row_major(source.element, [(row.variable, row.extent), (inner.variable, inner.extent)]).with_rows_apart(lanes)


def _replaced(nest: Nest, new: Mapping[Hashable, Load]) -> Nest:
    memo: dict[Node, Node] = {}

    def node(n: Node) -> Node:
        return rebuild(n, lambda load: new.get(load.place, load), tuple, memo)

    stores = tuple(Store(s.value, s.buffer, s.index, node(s.node)) for s in nest.stores)
    folds = tuple(replace(f, nodes=tuple(map(node, f.nodes))) for f in nest.folds)
    return replace(nest, stores=stores, folds=folds)
