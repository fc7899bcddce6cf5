"""Sums of products to a small result that walk across the rows of a large factor: in pieces of the sum, which are then added.

    out[n] = sum over k in [0, K - 1] of x[k] * w[k, n]

    part[c, n] = sum over k in [c S, c S + S - 1] of x[k] * w[k, n]      one task for each c: whole rows of w, as memory goes on
    out[n]     = sum over c of part[c, n]

The pieces follow from the shapes alone: the result has the same bits on any number of threads.
"""

from __future__ import annotations

from math import prod

from hlo.module import Value
from hlo.registry import SumOfProducts
from hlo.types import ElementType
from indexing.expr import Const, Interval, Var, as_expr, minimum, simplify
from tiling.loops.affine import address, linear
from tiling.loops.buffers import make_buffer
from tiling.loops.element_ir import Load, Renamer, Scalar, has_runtimes, loads
from tiling.loops.ir import Buffer, FoldStep, Loop, LoopKind, Nest, Phase, Schedule, Scope
from tiling.loops.names import Names
from tiling.passes.order_loops import order_loops

__all__ = ["split_product"]

PIECES = 32
MOST_RESULT_BYTES = 1 << 16  # a larger result's parts would be as much to move as the factor
LEAST_PRODUCTS = 1 << 20  # fewer are not worth a second phase
LEAST_ROWS = 16  # rows of the large factor in a piece
MOST_REST_ELEMS = 1 << 16  # what may follow in the one task that adds the pieces


def split_product(schedule: Schedule, names: Names) -> Schedule | None:
    """The schedule in two phases, or None where its one task does not start with such a sum."""
    if len(schedule.phases) != 1 or schedule.phases[0].tasks != 1 or not schedule.phases[0].steps or schedule.phases[0].flags:
        return None
    first, *rest = schedule.phases[0].steps
    if not isinstance(first, Nest) or len(first.folds) != 1 or first.stores or first.skip is not None:
        return None
    if any(not isinstance(s, Nest) or prod(x.extent for x in s.loops) > MOST_REST_ELEMS for s in rest):
        return None
    (f,), ranges = first.folds, schedule.ranges
    if len(f.values) != 1:
        return None  # a fold of several values is no sum
    reductions = [x for x in first.loops if x.kind is LoopKind.REDUCTION]
    if not isinstance(f.op.definition.semantics, SumOfProducts) or len(reductions) != 1 or has_runtimes(f.nodes):
        return None
    (value,), (result,), (r,) = f.values, f.buffers, reductions
    element = value.tensor.element
    if not isinstance(element, ElementType) or any(v.tensor.element != element for v in f.op.operands):
        return None  # what is summed in another type is rounded where the last piece is added
    by_value = {b.value: b for b in schedule.buffers if b.value is not None}
    if not _applies(first, f, r, by_value, schedule):
        return None
    size = -(-r.extent // PIECES)
    count = -(-r.extent // size)
    ranges = dict(ranges)
    c, inner = Var(f"c{r.variable.name}"), Var(f"{r.variable.name}_in_piece")
    ranges[c], ranges[inner] = Interval(0, count - 1), Interval(0, size - 1)
    rename = Renamer({r.variable: c * size + inner}, ranges, {})
    piece = Loop(inner, Const(0), simplify(minimum(size - 1, r.extent - 1 - c * size), ranges), size, LoopKind.REDUCTION)
    over = Loop(c, Const(0), Const(count - 1), count, LoopKind.REDUCTION)
    shape = (count, *result.shape)
    part = make_buffer(names.scratch(value, "part"), Scope.SHARED, result.element, shape, shape, (0, *result.origin))
    at = (as_expr(c), *f.index)
    parts = FoldStep(f.values, (part,), at, tuple(map(rename.node, f.nodes)), f.inits, f.op)
    one = Scalar(element.dtype.type(1), element)
    whole = FoldStep(f.values, f.buffers, f.index, (Load(value, at, part), one), f.inits, f.op)
    parallel = [x for x in first.loops if x.kind is LoopKind.PARALLEL]
    return Schedule(
        (
            Phase(((c, count),), (Nest(tuple(piece if x is r else x for x in first.loops), folds=(parts,)),)),
            Phase((), (Nest((*parallel, over), folds=(whole,)), *rest)),
        ),
        (*schedule.buffers, part),
        schedule.tile_sizes,
        ranges,
        schedule.notes,
    )


def _applies(nest: Nest, f: FoldStep, r: Loop, by_value: dict[Value, Buffer], schedule: Schedule) -> bool:
    """True where the result is small, the sum long, and the large factor's rows lie across the sum."""
    results = prod(x.extent for x in nest.loops if x is not r)
    if results * f.buffers[0].element.itemsize_bytes > MOST_RESULT_BYTES or results * r.extent < LEAST_PRODUCTS:
        return False
    if r.extent < PIECES * LEAST_ROWS or r.lower is not Const(0) or r.upper is not Const(r.extent - 1):
        return False
    inner = order_loops(nest, lambda x: x.buffer or by_value[x.value]).loops[-1]
    found = [x for x in loads(f.nodes) if (x.buffer or by_value[x.value]).scope is not Scope.THREAD]
    if inner is r or not found:
        return False
    large = max(found, key=lambda x: x.value.tensor.size_elems)
    buffer = large.buffer or by_value[large.value]
    steps = linear(address(buffer, large.index, schedule.ranges), (inner.variable, r.variable))
    whole = large.value.tensor.size_elems >= results * r.extent
    return whole and steps is not None and steps[1][0] == 1 and steps[1][1] == inner.extent
