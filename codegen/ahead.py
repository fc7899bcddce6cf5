"""Rows at places known only at run time are asked for two rows ahead of their turn.

    row r of x[index[r], :]  ->  the lines of row index[min(r + 2, last)] are prefetched while row r is copied

Hardware foresees the next lines of a row, never where the next row begins: each would start with misses of the page table
and of the caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexing.expr import Expr, Var, substitute
from tiling.element import Load, Node, Renamer, Runtime, children
from tiling.linear import step_along
from tiling.schedule import LoopKind

if TYPE_CHECKING:
    from codegen.emit import NestEmitter

__all__ = ["prefetch_lines"]

ROWS_AHEAD = 2
LINE_BYTES = 64
LEAST_LINES, MOST_LINES = 4, 64  # shorter rows are a line or two; longer ones hide the first miss by themselves
LEAST_BYTES = 4 << 20  # what the cores' own caches hold has no misses to hide
MOST_NODES = 12


def prefetch_lines(emitter: NestEmitter, load: Load, runtime: Runtime) -> list[str]:
    """Lines for the loop around the innermost one, after the runtime variable; empty where nothing is gained."""
    nest, phase = emitter.nest, emitter.phase
    buffer = phase.buffer_of(load)
    if len(nest.loops) < 2 or nest.folds or buffer.size_bytes < LEAST_BYTES or runtime.variable not in _variables(load.index):
        return []
    rows, inner = nest.loops[-2], nest.loops[-1]
    if rows.kind is not LoopKind.PARALLEL or rows.extent < 4 or emitter.level(runtime.node) != len(nest.loops) - 1:
        return []
    if rows.variable in emitter.steps or step_along(load.index, buffer.strides, inner.variable) != 1:
        return []
    if _size(runtime.node) > MOST_NODES:
        return []
    item = buffer.element.itemsize_bytes
    lines = inner.extent * item // LINE_BYTES
    if not LEAST_LINES <= lines <= MOST_LINES:
        return []
    level = len(nest.loops) - 1
    row, place = Var(f"{rows.variable.name}_ahead"), Var(f"{runtime.variable.name}_ahead")
    phase.variables[row], phase.variables[place] = phase.fresh("ahead"), phase.fresh("next")
    emitter.level_of[row] = level
    emitter.lines[level].append(
        f"{phase.name(row)} = min({phase.name(rows.variable)} + {ROWS_AHEAD}, {phase.expr(rows.upper)})"
    )
    text = emitter.number(Renamer({rows.variable: row}, phase.schedule.ranges, {}).node(runtime.node), level)
    index = [substitute(e, {runtime.variable: place, rows.variable: row, inner.variable: inner.lower}) for e in load.index]
    counter = phase.fresh("line")
    return [
        f"{phase.name(place)} = min(max(to_int64({text}), {runtime.lower}), {runtime.upper})",
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


