"""The source of maxima and minima that are taken from two bounds, and a third one that takes a second look at the row."""

from __future__ import annotations

from codegen.source.fold import FoldSource
from codegen.source.values import ValueWriter
from codegen.source.writer import Writer
from tiling.loops.element_ir import Load, Node
from tiling.loops.ir import FoldStep

__all__ = ["read_again", "second_look"]


def read_again(emitter: ValueWriter, node: Node) -> str:
    """The element that `node` loads, through another name of its buffer."""
    assert isinstance(node, Load)
    buffer = emitter.phase.buffer_of(node)
    return f"{emitter.phase.view(buffer)}[{emitter.phase.address(buffer, node.index)}]"


def second_look(
    emitter: ValueWriter, fold: FoldStep, source: FoldSource, accumulators: list[str], first_reduction: int
) -> list[str]:
    """The lines after the loops over a row: the loops once more, for the bound that was left out."""
    assert source.unsure is not None and source.look_again is not None
    out = Writer()
    out.line(f"if {source.unsure(accumulators)}:")
    out.depth += 1
    for loop in emitter.nest.loops[first_reduction:]:
        emitter.open(out, loop, loop.lower, loop.upper)
    out.extend(source.look_again(accumulators, read_again(emitter, fold.nodes[0])))
    return out.lines
