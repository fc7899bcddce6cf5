"""Ops that are not one element at a time: sorts and scatters, as steps of their own. One entry each in `ROUTINES`.

A routine's kernel computes its op alone; `in_memory` lists the operands that it reads from memory, all others are computed
where they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from hlo.attributes import ScatterDimensions
from hlo.errors import Declined
from hlo.module import Block, Op, Value
from hlo.registry import Elementwise, Literal
from hlo.types import ELEMENT_TYPES, ElementType
from indexing.expr import Const, Expr, Interval, Var, as_expr, minimum, simplify
from tiling.build import ElementBuilder
from tiling.element import Node, loads
from tiling.names import Names, make_buffer
from tiling.schedule import Buffer, Loop, Nest, Ordering, Phase, Scatter, Schedule, Scope, Start, Store
from tiling.windows import combined_function

__all__ = ["ROUTINES", "Builder", "Routine", "routine_of"]

Builder = Callable[[dict[Var, Interval]], ElementBuilder]
"""Makes the builder of element expressions over given ranges."""


@dataclass(frozen=True)
class Routine:
    """How an op becomes a schedule: `declines` says why it does not, `lower(op, builder, names)` makes it."""

    declines: Callable[[Op], Declined | None]
    in_memory: Callable[[Op], Sequence[Value]]
    lower: Callable[[Op, Builder, Names], Schedule]


def routine_of(op: Op) -> Routine | None:
    """The routine that computes an op, if there is one and it takes the op as it is."""
    found = ROUTINES.get(op.name)
    return found if found is not None and found.declines(op) is None else None


def _plain(op: Op) -> Declined | None:
    """Why an op's operands and results are nothing that kernels know, or None."""
    for v in (*op.operands, *op.results):
        if not v.tensor.is_static:
            return Declined(f"{v.type} has no fixed shape")
        if not isinstance(v.tensor.element, ElementType):
            return Declined(f"{v.type} is quantized")
        if 0 in v.shape:
            return Declined("it has no elements")
    return None


def _scalar_body(body: Block) -> Declined | None:
    for inner in body.ops[:-1]:
        if not isinstance(inner.definition.semantics, (Elementwise, Literal)):
            return Declined(f"its body contains {inner.name}, which is no scalar function")
    return None


# ------------------------------------------------------------ sorts


def _element(v: Value) -> ElementType:
    assert isinstance(v.tensor.element, ElementType)
    return v.tensor.element


def _ordering(op: Op, axis: int, kept: int, places: Value | None, values: Sequence[Value], names: Names) -> Schedule:
    shape = op.operands[0].shape
    count, step = shape[axis], prod(shape[axis + 1 :])
    rows = prod(shape) // count
    row = Var("t0")
    ranges: dict[Var, Interval] = {row: Interval(0, rows - 1)}

    def start(length: int) -> Expr:
        return simplify((row // step) * (step * length) + row % step if step > 1 else row * length, ranges)

    sources = tuple(names.global_buffer(v, Scope.ARGUMENT) for v in op.operands)
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
    return _plain(op) or _scalar_body(op.regions[0])


def _lower_sort(op: Op, builder: Builder, names: Names) -> Schedule:
    axis = op.attr("dimension") % op.operands[0].rank
    return _ordering(op, axis, op.operands[0].shape[axis], None, op.results, names)


def _top_k_declines(op: Op) -> Declined | None:
    found = _plain(op)
    if found is None and _element(op.operands[0]).itemsize_bytes > 4:
        return Declined("keys of 64 bits")
    return found


def _lower_top_k(op: Op, builder: Builder, names: Names) -> Schedule:
    return _ordering(op, op.operands[0].rank - 1, op.attr("k"), op.results[1], op.results[:1], names)


# ------------------------------------------------------------ scatter

ROWS_PER_TASK_BYTES = 1 << 20
MOST_TASKS = 32  # each task looks at every index


def _scatter_declines(op: Op) -> Declined | None:
    d: ScatterDimensions = op.attr("scatter_dimension_numbers")
    if len(op.operands) != 3:
        return Declined("a scatter into several inputs")
    found = _plain(op)
    if found is not None:
        return found
    if _element(op.operands[0]) != _element(op.results[0]):
        return Declined("its body widens the elements")
    if any(k not in d.inserted_window_dims for k in d.scatter_dims_to_operand_dims):
        return Declined("its windows start at the indices")
    body = op.regions[0]
    replaces = len(body.ops) == 1 and body.results == (body.arguments[1],)
    if not replaces and combined_function(body) is None:
        return Declined("its body is not one scalar function")
    return None


def _lower_scatter(op: Op, builder: Builder, names: Names) -> Schedule:
    """Each task owns rows of the result: it fills them, then folds in the updates that land there, in their order."""
    d: ScatterDimensions = op.attr("scatter_dimension_numbers")
    operand, indices, updates = op.operands
    result, shape = op.results[0], op.results[0].shape
    ranges: dict[Var, Interval] = {}
    owned = bool(shape) and (0 in d.inserted_window_dims or 0 in d.input_batching_dims)
    tiles: tuple[tuple[Var, int], ...] = ()
    first, last, rows = as_expr(0), as_expr(shape[0] - 1 if shape else 0), shape[0] if shape else 1
    if owned:
        wanted = min(MOST_TASKS, max(1, result.tensor.size_bytes // ROWS_PER_TASK_BYTES), shape[0])
        rows = -(-shape[0] // wanted)
        count = -(-shape[0] // rows)
        if count > 1:
            tile = Var("t0")
            ranges[tile] = Interval(0, count - 1)
            tiles = ((tile, count),)
            first = tile * rows
            last = simplify(minimum(first + (rows - 1), shape[0] - 1), ranges)
    target = names.global_buffer(result, Scope.RESULT)
    # The operand's elements, as they are.
    loops, at = [], []
    for k, n in enumerate(shape):
        v = Var(f"i{k}_fill")
        extent = rows if k == 0 else n
        ranges[v] = Interval(0, extent - 1)
        upper = simplify(last - first, ranges) if k == 0 else Const(n - 1)
        loops.append(Loop(v, Const(0), upper, extent))
        at.append(simplify(first + v if k == 0 else as_expr(v), ranges))
    elements = builder(ranges)
    fill = Nest(tuple(loops), stores=(Store(None, target, tuple(at), elements.at(operand, tuple(at))),))
    # The updates.
    scatter_dims = [k for k in range(updates.rank) if k not in d.update_window_dims]
    order = (*scatter_dims, *d.update_window_dims)
    u = {k: Var(f"u{k}_scatter") for k in order}
    for k in order:
        ranges[u[k]] = Interval(0, updates.shape[k] - 1)
    index_at = [as_expr(u[k]) for k in scatter_dims]
    place: list[Expr] = []
    starts: list[Start] = []
    window = iter(d.update_window_dims)
    for axis, n in enumerate(shape):
        if axis in d.scatter_dims_to_operand_dims:
            part = d.scatter_dims_to_operand_dims.index(axis)
            where = list(index_at)
            if d.index_vector_dim < indices.rank:
                where.insert(d.index_vector_dim, as_expr(part))
            v = Var(f"p{axis}_scatter")
            ranges[v] = Interval(0, n - 1)
            bounds = (first, last) if axis == 0 else (as_expr(0), as_expr(n - 1))
            starts.append(Start(v, elements.at(indices, tuple(where)), *bounds))
            place.append(v)
        elif axis in d.input_batching_dims:
            batch = d.scatter_indices_batching_dims[d.input_batching_dims.index(axis)]
            k = scatter_dims[batch - (1 if batch > d.index_vector_dim else 0)]
            place.append(u[k])
            if axis == 0 and tiles:
                starts.append(Start(None, as_expr(u[k]), first, last))
        elif axis in d.inserted_window_dims:
            place.append(Const(0))
        else:
            place.append(as_expr(u[next(window)]))
    node = elements.at(updates, tuple(as_expr(u[k]) for k in range(updates.rank)))
    around = tuple(Loop(u[k], Const(0), Const(updates.shape[k] - 1), updates.shape[k]) for k in order)
    step = Scatter(op, around, len(scatter_dims), tuple(starts), target, tuple(place), node)
    roots: list[Node] = [fill.stores[0].node, node, *(s.node for s in starts if not isinstance(s.node, Expr))]
    read = dict.fromkeys(x.value for x in loads(roots))
    buffers: list[Buffer] = [target, *(names.global_buffer(v, Scope.ARGUMENT) for v in read)]
    return Schedule((Phase(tiles, (fill, step)),), tuple(buffers), (rows, *shape[1:]) if shape else (), ranges)


# ------------------------------------------------------------ updates in place

UPDATED_PER_TASK_ELEMS = 1 << 15


def _lower_update(op: Op, builder: Builder, names: Names) -> Schedule:
    """result[start + u] = update[u]: the rest of the result is there already, in the operand's memory."""
    update, given = op.operands[1], op.operands[2:]
    shape, ranges = update.shape, dict[Var, Interval]()
    elements = builder(ranges)
    loops: list[Loop] = []
    at: list[Expr] = []
    tiles: tuple[tuple[Var, int], ...] = ()
    for k, n in enumerate(shape):
        v = Var(f"u{k}_update")
        wanted = min(MOST_TASKS, max(1, update.tensor.size_elems // UPDATED_PER_TASK_ELEMS)) if not tiles else 1
        if n > 1 and wanted > 1:
            extent = -(-n // min(wanted, n))
            t = Var("t0")
            ranges[t] = Interval(0, -(-n // extent) - 1)
            ranges[v] = Interval(0, extent - 1)
            tiles = ((t, -(-n // extent)),)
            upper = simplify(minimum(as_expr(extent - 1), n - 1 - t * extent), ranges)
            loops.append(Loop(v, Const(0), upper, extent))
            at.append(simplify(t * extent + v, ranges))
            continue
        ranges[v] = Interval(0, n - 1)
        loops.append(Loop(v, Const(0), Const(n - 1), n))
        at.append(as_expr(v))
    target = names.global_buffer(op.results[0], Scope.RESULT)
    starts, place = [], []
    for k, (whole, part) in enumerate(zip(op.results[0].shape, shape, strict=True)):
        if whole == part:
            place.append(at[k])
            continue
        p = Var(f"p{k}_update")
        ranges[p] = Interval(0, whole - part)
        starts.append(Start(p, elements.at(given[k], ()), as_expr(0), as_expr(whole - part), clamps=True))
        place.append(simplify(p + at[k], ranges))
    node = elements.at(update, tuple(at))
    step = Scatter(op, tuple(loops), 0, tuple(starts), target, tuple(place), node)
    roots: list[Node] = [node, *(s.node for s in starts if not isinstance(s.node, Expr))]
    read = dict.fromkeys(x.value for x in loads(roots))
    buffers = [target, *(names.global_buffer(v, Scope.ARGUMENT) for v in read)]
    return Schedule((Phase(tiles, (step,)),), tuple(buffers), op.results[0].shape, ranges)


ROUTINES: dict[str, Routine] = {
    "stablehlo.sort": Routine(_sort_declines, lambda op: op.operands, _lower_sort),
    "chlo.top_k": Routine(_top_k_declines, lambda op: op.operands, _lower_top_k),
    "in_place.dynamic_update_slice": Routine(_plain, lambda op: op.operands[:1], _lower_update),
    "stablehlo.scatter": Routine(_scatter_declines, lambda op: (), _lower_scatter),
}
