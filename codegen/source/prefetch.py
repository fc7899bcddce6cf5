"""The source of rows that are asked for ahead: the place two rows on is looked up, and its lines are prefetched."""

from __future__ import annotations

from codegen.source.nest_view import NestView
from indexing.expr import Expr, Var, substitute
from tiling.loops.element_ir import Load, Renamer
from tiling.passes.prefetch_rows import LINE_BYTES, ROWS_AHEAD, lines_of_row, moving_places

__all__ = ["prefetch_lines"]


def prefetch_lines(emitter: NestView, load: Load) -> list[str]:
    """Lines for the loop around the innermost one, after the load's runtime variables."""
    nest, phase = emitter.nest, emitter.phase
    buffer = phase.buffer_of(load)
    rows, inner = nest.loops[-2], nest.loops[-1]
    level = len(nest.loops) - 1
    row = Var(f"{rows.variable.name}_ahead")
    phase.variables[row] = phase.fresh("ahead")
    emitter.level_of[row] = level
    emitter.lines[level].append(
        f"{phase.name(row)} = min({phase.name(rows.variable)} + {ROWS_AHEAD}, {phase.expr(rows.upper)})"
    )
    places: dict[Var, Expr] = {rows.variable: row, inner.variable: inner.lower}
    made = []
    for r in moving_places(nest, load):
        place = Var(f"{r.variable.name}_ahead")
        places[r.variable], phase.variables[place] = place, phase.fresh("next")
        text = emitter.number(Renamer({rows.variable: row}, phase.schedule.ranges, {}).node(r.node), level)
        made.append(f"{phase.name(place)} = {emitter.place(r, text)}")
    index = [substitute(e, places) for e in load.index]
    counter = phase.fresh("line")
    return [
        *made,
        f"for {counter} in range({lines_of_row(nest, buffer)}):",
        f"    prefetch({buffer.name}, {phase.address(buffer, index)} + {LINE_BYTES // buffer.element.itemsize_bytes}*{counter})",
    ]
