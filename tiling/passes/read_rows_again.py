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

from hlo.registry import Fold
from hlo.types import ElementType
from indexing.expr import Interval, Var
from tiling.elements.folds import combined_function
from tiling.loops.affine import reads_long_runs
from tiling.loops.element_ir import Load, has_runtimes
from tiling.loops.ir import Buffer, FoldStep, LoopKind, Nest, Phase

__all__ = ["read_rows_again"]

LEAST_BYTES = 4 << 20  # what the cores' own caches hold is not waited for
MOST_ROW_BYTES = 1 << 18  # a core's own cache holds the row until it is looked at again
LEAST_FOLD = 513  # elements: after fewer what follows the loop counts
NATIVE = frozenset({"float32", "float64"})  # other elements are converted, by instructions with one more user


def read_rows_again(
    nest: Nest, ranges: Mapping[Var, Interval], buffer_of: Callable[[Load], Buffer], phase: Phase
) -> Nest:
    """The nest with its fold taken from two bounds first, where it takes elements straight from rows of a large buffer."""
    if len(nest.folds) != 1 or not _takes_two_looks(nest, nest.folds[0], ranges, buffer_of, phase):
        return nest
    return replace(nest, folds=(replace(nest.folds[0], looks_twice=True),))


def _takes_two_looks(
    nest: Nest, fold: FoldStep, ranges: Mapping[Var, Interval], buffer_of: Callable[[Load], Buffer], phase: Phase
) -> bool:
    if nest.stores or nest.skip is not None or any(x.together > 1 for x in nest.loops) or len(fold.nodes) != 1:
        return False
    load = fold.nodes[0]
    if not isinstance(load, Load) or has_runtimes([load]) or not _is_extremum_in_registers(nest, fold):
        return False
    buffer = buffer_of(load)
    if buffer.element.dtype.name not in NATIVE or buffer.size_bytes < LEAST_BYTES:
        return False
    row = prod(x.extent for x in nest.loops if x.kind is LoopKind.REDUCTION)
    if row < LEAST_FOLD or row * buffer.element.itemsize_bytes > MOST_ROW_BYTES:
        return False
    return reads_long_runs(buffer, load.index, dict(phase.tiles) | {x.variable: x.extent for x in nest.loops}, ranges)


def _is_extremum_in_registers(nest: Nest, fold: FoldStep) -> bool:
    """Whether a fold is a maximum or a minimum of floats whose running result is a variable from the first to the last."""
    kinds = [x.kind for x in nest.loops]
    if not isinstance(fold.op.definition.semantics, Fold) or LoopKind.REDUCTION not in kinds:
        return False
    if any(k is not LoopKind.REDUCTION for k in kinds[kinds.index(LoopKind.REDUCTION) :]):
        return False
    body = fold.op.regions[0]
    element = body.arguments[0].tensor.element
    is_float = isinstance(element, ElementType) and element.is_float and element.bits > 8
    return is_float and combined_function(body) in ("maximum", "minimum")
