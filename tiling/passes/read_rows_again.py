"""Maxima and minima of long rows in memory: two bounds of every element's bits, the third where those two do not tell.

    max = the largest signed integer where one is >= 0   |  else the least unsigned one, which a second look at the row finds
    min = the largest unsigned integer where it has a sign |  else the least unsigned one, likewise

Memory is what such a loop waits for, and the fewer instructions an element takes the more loads are under way. So each bound
reads the row through a name of its own (``again``): a load with one user is a part of that instruction. The second look finds
the row in the caches, and most rows need none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from indexing.expr import Interval, Var
from tiling.loops.affine import reads_long_runs
from tiling.loops.element_ir import Load, loads
from tiling.loops.ir import Buffer, LoopKind, Nest, Phase
from tiling.loops.marks import looking_fault

__all__ = ["read_rows_again"]

LEAST_BYTES = 4 << 20  # what the cores' own caches hold is not waited for
MOST_ROW_BYTES = 1 << 18  # a core's own cache holds the row until it is looked at again
LEAST_FOLD = 513  # elements: after fewer what follows the loop counts


def read_rows_again(
    nest: Nest, ranges: Mapping[Var, Interval], buffer_of: Callable[[Load], Buffer], phase: Phase
) -> Nest:
    """The nest with its fold taken from two bounds first, where it takes elements straight from rows of a large buffer."""
    if len(nest.folds) != 1:
        return nest
    made = replace(nest, folds=(replace(nest.folds[0], looks_twice=True),))
    return made if looking_fault(made, made.folds[0]) is None and _is_worth_it(nest, ranges, buffer_of, phase) else nest


def _is_worth_it(nest: Nest, ranges: Mapping[Var, Interval], buffer_of: Callable[[Load], Buffer], phase: Phase) -> bool:
    (load,) = loads(nest.folds[0].nodes)
    buffer = buffer_of(load)
    row = prod(x.extent for x in nest.loops if x.kind is LoopKind.REDUCTION)
    if buffer.size_bytes < LEAST_BYTES or not LEAST_FOLD <= row <= MOST_ROW_BYTES // buffer.element.itemsize_bytes:
        return False
    return reads_long_runs(buffer, load.index, dict(phase.tiles) | {x.variable: x.extent for x in nest.loops}, ranges)
