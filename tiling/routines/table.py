"""Ops that are not one element at a time: sorts, scatters, Fourier transforms, small matrices. An entry each in `ROUTINES`.

A routine's kernel computes its op alone; `in_memory` lists the operands that it reads from memory, all others are computed
where they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import OpDefinition, definition
from hlo.types import ELEMENT_TYPES
from indexing.expr import Expr, Interval, Var, simplify
from tiling.loops.buffers import make_buffer
from tiling.loops.ir import Ordering, Phase, Schedule, Scope
from tiling.loops.names import Names
from tiling.routines.fourier import lower_fft
from tiling.routines.matrices import lower_matrices, matrices_decline, matrix_kind
from tiling.routines.scatter import (
    Builder,
    element_of,
    lower_scatter,
    lower_scatter_in_place,
    lower_update,
    plain,
    scalar_body,
    scatter_declines,
    updated_in_memory,
)
from tiling.routines.select_and_scatter import lower_selection, selection_declines

__all__ = ["ROUTINES", "Builder", "Routine", "plain_form", "routine_of"]

@dataclass(frozen=True)
class Routine:
    """How an op becomes a schedule: `declines` says why it does not, `lower(op, builder, names)` makes it.

    One that `is_one_by_one` computes the elements of its operands so, each where it is read.
    """

    declines: Callable[[Op], Declined | None]
    in_memory: Callable[[Op], Sequence[Value]]
    lower: Callable[[Op, Builder, Names], Schedule]
    is_one_by_one: bool = False


def routine_of(op: Op) -> Routine | None:
    """The routine that computes an op, if there is one and it takes the op as it is."""
    found = ROUTINES.get(op.name)
    if found is None and op.name == "stablehlo.custom_call" and matrix_kind(op):
        found = _MATRICES
    return found if found is not None and found.declines(op) is None else None


def plain_form(op: Op) -> tuple[OpDefinition, Sequence[Value]]:
    """The definition and the operands of an op in the program's own words: those of a planner's form of one are brought back."""
    form, _, mnemonic = op.name.partition(".")
    if form == "in_lines":
        return definition(f"stablehlo.{mnemonic}"), op.operands[:1]
    return (definition(f"stablehlo.{mnemonic}") if form == "in_place" else op.definition), op.operands


# ------------------------------------------------------------ sorts


def _ordering(op: Op, axis: int, kept: int, places: Value | None, values: Sequence[Value], names: Names) -> Schedule:
    shape = op.operands[0].shape
    count, step = shape[axis], prod(shape[axis + 1 :])
    rows = prod(shape) // count if count else 0
    row = Var("t0")
    ranges: dict[Var, Interval] = {row: Interval(0, rows - 1)}

    def start(length: int) -> Expr:
        return simplify((row // step) * (step * length) + row % step if step > 1 else row * length, ranges)

    read = {v: names.global_buffer(v, Scope.ARGUMENT) for v in dict.fromkeys(op.operands)}
    sources = tuple(read[v] for v in op.operands)
    targets = tuple(names.global_buffer(v, Scope.RESULT) for v in values)
    index = names.global_buffer(places, Scope.RESULT) if places is not None else None
    wide, narrow = ELEMENT_TYPES["i64"], ELEMENT_TYPES["i32"]
    tag = op.results[0]
    scratch = (
        make_buffer(names.scratch(tag, "keys"), Scope.THREAD, wide, (count,), (count,), (0,)),
        make_buffer(names.scratch(tag, "spare"), Scope.THREAD, wide, (count,), (count,), (0,)),
        make_buffer(names.scratch(tag, "counts"), Scope.THREAD, narrow, (5120,), (5120,), (0,)),
    )
    ordering = Ordering(op, row, start(count), start(kept), count, step, kept, sources, targets, index, scratch)
    buffers = (*dict.fromkeys((*sources, *targets, *((index,) if index else ()), *scratch)),)
    return Schedule((Phase(((row, rows),), (ordering,)),), buffers, op.results[0].shape, ranges)


def _sort_declines(op: Op) -> Declined | None:
    if not op.operands[0].tensor.is_static or not op.operands[0].rank:
        return Declined("a sort of no fixed shape")
    found = plain(op)
    return found if found is not None else scalar_body(op.regions[0])


def _lower_sort(op: Op, builder: Builder, names: Names) -> Schedule:
    axis = op.attr("dimension") % op.operands[0].rank
    return _ordering(op, axis, op.operands[0].shape[axis], None, op.results, names)


def _top_k_declines(op: Op) -> Declined | None:
    found = plain(op)
    if found is None and element_of(op.operands[0]).itemsize_bytes > 4:
        return Declined("keys of 64 bits")
    return found


def _lower_top_k(op: Op, builder: Builder, names: Names) -> Schedule:
    return _ordering(op, op.operands[0].rank - 1, op.attr("k"), op.results[1], op.results[:1], names)


_MATRICES = Routine(matrices_decline, lambda op: op.operands, lower_matrices)

ROUTINES: dict[str, Routine] = {
    "stablehlo.cholesky": _MATRICES,
    "stablehlo.triangular_solve": _MATRICES,
    "stablehlo.sort": Routine(_sort_declines, lambda op: op.operands, _lower_sort),
    "chlo.top_k": Routine(_top_k_declines, lambda op: op.operands, _lower_top_k),
    "stablehlo.scatter": Routine(scatter_declines, lambda op: (), lower_scatter, True),
    "stablehlo.select_and_scatter": Routine(selection_declines, lambda op: op.operands[:1], lower_selection, True),
    "in_lines.fft": Routine(lambda op: None, lambda op: op.operands, lower_fft),
    "in_place.scatter": Routine(scatter_declines, updated_in_memory, lower_scatter_in_place, True),
    "in_place.dynamic_update_slice": Routine(plain, updated_in_memory, lower_update),
}
