"""Maxima and minima of long rows in memory: two bounds of every element's bits, the third where those two do not tell.

    max = the largest signed integer where one is >= 0   |  else the least unsigned one, which a second look at the row finds
    min = the largest unsigned integer where it has a sign |  else the least unsigned one, likewise

Memory is what such a loop waits for, and the fewer instructions an element takes the more loads are under way. So each bound
reads the row through a name of its own (``again``): a load with one user is a part of that instruction. The second look finds
the row in the caches, and most rows need none.
"""

from __future__ import annotations

from math import prod

from codegen.source.fold import FoldSource
from codegen.source.nest_view import NestView
from codegen.source.prefetch import LEAST_BYTES
from codegen.source.writer import Writer
from tiling.loops.element_ir import Load, Node, has_runtimes
from tiling.loops.ir import FoldStep, LoopKind

__all__ = ["read_again", "second_look", "takes_two_looks"]

MOST_ROW_BYTES = 1 << 18  # a core's own cache holds the row until it is looked at again
NATIVE = frozenset({"float32", "float64"})  # other elements are converted, by instructions with one more user


def takes_two_looks(emitter: NestView, fold: FoldStep) -> bool:
    """Whether a fold takes its elements straight from rows of a large buffer, and nothing else happens in its loops."""
    nest = emitter.nest
    if len(nest.folds) != 1 or nest.stores or nest.skip is not None or emitter.rows > 1 or len(fold.nodes) != 1:
        return False
    load = fold.nodes[0]
    if not isinstance(load, Load) or has_runtimes([load]):
        return False
    buffer = emitter.phase.buffer_of(load)
    if buffer.element.dtype.name not in NATIVE or buffer.size_bytes < LEAST_BYTES:
        return False
    row_bytes = prod(x.extent for x in nest.loops if x.kind is LoopKind.REDUCTION) * buffer.element.itemsize_bytes
    return row_bytes <= MOST_ROW_BYTES and emitter.walks(buffer, load.index)


def read_again(emitter: NestView, node: Node) -> str:
    """The element that `node` loads, through another name of its buffer."""
    assert isinstance(node, Load)
    buffer = emitter.phase.buffer_of(node)
    return f"{emitter.phase.view(buffer)}[{emitter.phase.address(buffer, node.index)}]"


def second_look(
    emitter: NestView, fold: FoldStep, source: FoldSource, accumulators: list[str], first_reduction: int
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
