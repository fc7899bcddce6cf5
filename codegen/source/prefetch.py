"""Rows at places known only at run time are asked for two rows ahead of their turn.

    row r of x[index[r], :]  ->  the lines of row index[min(r + 2, last)] are prefetched while row r is copied

Hardware foresees the next lines of a row, never where the next row begins: each would start with misses of the page table
and of the caches.
"""

from __future__ import annotations

from codegen.source.nest_view import NestView
from indexing.expr import Expr, Var, substitute
from tiling.loops.affine import step_along
from tiling.loops.element_ir import Load, Node, Renamer, children, has_runtimes
from tiling.loops.ir import LoopKind

__all__ = ["prefetch_lines"]

ROWS_AHEAD = 2
LINE_BYTES = 64
LEAST_LINES, MOST_LINES = 4, 64  # shorter rows are a line or two; longer ones hide the first miss by themselves
LEAST_BYTES = 4 << 20  # what the cores' own caches hold has no misses to hide
MOST_NODES = 12


def prefetch_lines(emitter: NestView, load: Load) -> list[str]:
    """Lines for the loop around the innermost one, after the load's runtime variables; empty where nothing is gained."""
    nest, phase = emitter.nest, emitter.phase
    buffer = phase.buffer_of(load)
    if len(nest.loops) < 2 or nest.folds or buffer.size_bytes < LEAST_BYTES:
        return []
    rows, inner = nest.loops[-2], nest.loops[-1]
    if rows.kind is not LoopKind.PARALLEL or rows.extent < 4 or rows.variable in emitter.steps:
        return []
    level = len(nest.loops) - 1
    used = [r for r in load.runtimes if r.variable in _variables(load.index)]
    moving = [r for r in used if emitter.level(r.node) == level]
    # A place that is found by way of another place would have to be looked up twice.
    if not moving or any(emitter.level(r.node) > level for r in used) or has_runtimes([r.node for r in moving]):
        return []
    if sum(_size(r.node) for r in moving) > MOST_NODES or step_along(load.index, buffer.strides, inner.variable) != 1:
        return []
    item = buffer.element.itemsize_bytes
    lines = inner.extent * item // LINE_BYTES
    if not LEAST_LINES <= lines <= MOST_LINES:
        return []
    row = Var(f"{rows.variable.name}_ahead")
    phase.variables[row] = phase.fresh("ahead")
    emitter.level_of[row] = level
    emitter.lines[level].append(
        f"{phase.name(row)} = min({phase.name(rows.variable)} + {ROWS_AHEAD}, {phase.expr(rows.upper)})"
    )
    places: dict[Var, Expr] = {rows.variable: row, inner.variable: inner.lower}
    made = []
    for r in moving:
        place = Var(f"{r.variable.name}_ahead")
        places[r.variable], phase.variables[place] = place, phase.fresh("next")
        text = emitter.number(Renamer({rows.variable: row}, phase.schedule.ranges, {}).node(r.node), level)
        made.append(f"{phase.name(place)} = {emitter.place(r, text)}")
    index = [substitute(e, places) for e in load.index]
    counter = phase.fresh("line")
    return [
        *made,
        f"for {counter} in range({lines}):",
        f"    prefetch({buffer.name}, {phase.address(buffer, index)} + {LINE_BYTES // item}*{counter})",
    ]


def _variables(index: tuple[Expr, ...]) -> set[Var]:
    return {v for e in index for v in e.variables}


def _size(node: Node) -> int:
    """How many nodes a node is computed from, counted up to the limit."""
    todo, count = [node], 0
    while todo and count <= MOST_NODES:
        count += 1
        todo.extend(children(todo.pop()))
    return count


