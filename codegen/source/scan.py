"""Scans as loops: out[i] = f(out[i - 1], g(i)), i ascending.

Where i is the innermost loop the running result stays in a variable, and several rows go side by side, since each step waits
for the one before. Otherwise the step before is read back from the result.
"""

from __future__ import annotations

from codegen.source.fold import FoldSource
from codegen.source.rows import rows_of
from codegen.source.values import ValueWriter
from tiling.loops.element_ir import Renamer
from tiling.loops.ir import LoopKind

__all__ = ["scan_body"]


def scan_body(emitter: ValueWriter, source: FoldSource) -> list[str]:
    """The innermost loop's lines; what comes before that loop is put where it belongs."""
    nest, depth = emitter.nest, emitter.depth
    (fold,) = nest.folds
    innermost = nest.loops[-1].kind is LoopKind.SCAN
    body: list[str] = []
    emitter.lines[depth] = body
    for f in rows_of(nest, fold, emitter.phase.schedule.ranges) if innermost and len(nest.loops) > 1 else [fold]:
        name = emitter.phase.fresh("a")
        emitter.use((*f.nodes, *f.inits))
        start = emitter.number(f.inits[0], depth - 1)
        at = emitter.places(f)
        if innermost:
            emitter.lines[depth - 1].append(f"{name} = {start}")
        else:
            scan = next(x.variable for x in nest.loops if x.kind is LoopKind.SCAN)
            rename = Renamer({scan: scan - 1}, emitter.phase.schedule.ranges, {})
            before = emitter.phase.address(f.buffers[0], rename.index(f.index))
            body += [f"{name} = {start}", f"if {emitter.phase.name(scan)} > 0:", f"    {name} = {f.buffers[0].name}[{before}]"]
        values = [emitter.number(n, depth) for n in f.nodes]
        body += source.combine([name], values, emitter.phase.fresh)
        body.append(f"{at[0]} = {name}")
    return body
