"""Scatters and updates in place as schedules: places that values name, and what is folded into them in order."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hlo.errors import Declined
from hlo.module import Block, Op, Value
from hlo.registry import Elementwise, Literal, Move
from hlo.types import ElementType
from indexing.expr import Const, Expr, Interval, Var, as_expr, minimum, simplify
from tiling.elements.build import Builder
from tiling.loops.element_ir import Node, loads
from tiling.loops.ir import Buffer, Loop, Nest, Phase, Scatter, Schedule, Scope, Start, Step, Store
from tiling.loops.names import Names
from tiling.routines.landings import Landing, landing_of

__all__ = [
    "Builder",
    "element_of",
    "lower_scatter",
    "lower_scatter_in_place",
    "lower_update",
    "plain",
    "scalar_body",
    "scatter_declines",
    "updated_in_memory",
]

def plain(op: Op) -> Declined | None:
    """Why an op's operands and results are nothing that kernels know, or None."""
    for v in (*op.operands, *op.results):
        if not v.tensor.is_static:
            return Declined(f"{v.type} has no fixed shape")
        if not isinstance(v.tensor.element, ElementType):
            return Declined(f"{v.type} is quantized")
        if 0 in v.shape:
            return Declined("it has no elements")
    return None


def scalar_body(body: Block) -> Declined | None:
    """Why a body is no chain of scalar functions, or None."""
    for inner in body.ops[:-1]:
        if not isinstance(inner.definition.semantics, (Elementwise, Literal)):
            return Declined(f"its body contains {inner.name}, which is no scalar function")
    return None


def element_of(v: Value) -> ElementType:
    """The element type of a value that is not quantized."""
    assert isinstance(v.tensor.element, ElementType)
    return v.tensor.element


ROWS_PER_TASK_BYTES = 1 << 20
UPDATED_PER_TASK_ELEMS = 1 << 15
MOST_TASKS = 32
NEAR_BYTES = 1 << 14  # that the nearest cache keeps, in whatever order they are walked through
ELEMS_OF_A_LOOK = 12  # elements that are updated in the time that it takes to see that an update belongs to another task


def scatter_declines(op: Op) -> Declined | None:
    """Why a scatter is left to the evaluator, or None."""
    found = plain(op)
    if found is not None:
        return found
    n = len(op.operands) // 2
    if any(element_of(v) != element_of(r) for v, r in zip(op.operands[:n], op.results, strict=True)):
        return Declined("its body widens the elements")
    return scalar_body(op.regions[0])


def updated_in_memory(op: Op) -> list[Value]:
    """What an update in place finds in memory: the operand, and all else that is computed from it (it changes meanwhile)."""
    return [op.operands[0], *(v for v in op.operands[1:] if _is_made_of(v, op.operands[0]))]


def _is_made_of(v: Value, source: Value) -> bool:
    """True when `source` is read where `v` is computed in place."""
    todo, seen = [v], set[Value]()
    while todo:
        w = todo.pop()
        if w is source:
            return True
        if w not in seen and w.op is not None and isinstance(w.op.definition.semantics, (Elementwise, Move)):
            todo.extend(w.op.operands)
        seen.add(w)
    return False


def lower_scatter_in_place(op: Op, builder: Builder, names: Names) -> Schedule:
    """A scatter whose result is in its operand's memory already."""
    return lower_scatter(op, builder, names, fills=False)


def lower_scatter(op: Op, builder: Builder, names: Names, fills: bool = True) -> Schedule:
    """Each task owns rows of the results: it fills them, then folds in the updates that land there, in their order.

    Rows that a loop over the updates walks along (a window's, a batch's) are the task's own part of that loop; of a window's it
    has so few that they stay near while it goes through all places. Rows found at the indices make each task look at every index:
    with updates of a few elements that costs more than the updates themselves. Then, and where windows start anywhere, one task
    takes all updates, after others have filled the results.
    """
    count = len(op.operands) // 2
    landing = landing_of(op, "stablehlo.scatter", count + 1)
    inputs, updates = op.operands[:count], op.operands[count + 1 :]
    news, result, shape = updates[0], op.results[0], op.results[0].shape
    ranges: dict[Var, Interval] = {}
    scatter_dims = list(landing.spread)
    windows = [k for k in range(news.rank) if k not in landing.spread]
    walked = _walked_rows(landing, shape, news.shape)
    wanted = min(MOST_TASKS, max(1, result.tensor.size_bytes // ROWS_PER_TASK_BYTES)) if fills and shape else 1
    in_window = walked is not None and walked not in landing.spread
    if in_window:  # rows that stay near, with their updates, while all of these are made
        wanted = -(-(result.tensor.size_bytes + news.tensor.size_bytes) // NEAR_BYTES)
    elif walked is not None and fills:
        wanted = max(wanted, min(MOST_TASKS, news.tensor.size_elems // UPDATED_PER_TASK_ELEMS))
    looked_up = bool(shape) and landing.axes[0].walks is None and walked is None
    most = max(1, prod(news.shape[k] for k in windows) // ELEMS_OF_A_LOOK)
    owned = _owned_rows(shape, "t0", wanted if walked is not None else min(wanted, most) if looked_up else 1, ranges)
    elements = builder(ranges)
    targets = [names.global_buffer(r, Scope.RESULT) for r in op.results]
    phases: list[Phase] = []
    steps: list[Step] = []
    roots: list[Node] = []
    if fills:
        # The operands' elements, as they are.
        filled = owned if owned.tiles else _owned_rows(shape, "f0", wanted, ranges)
        loops, at = [], []
        for k, n in enumerate(shape):
            v = Var(f"i{k}_fill")
            extent = filled.count if k == 0 else n
            ranges[v] = Interval(0, extent - 1)
            upper = filled.less_one if k == 0 else Const(n - 1)
            loops.append(Loop(v, Const(0), upper, extent))
            at.append(simplify(filled.first + v if k == 0 else as_expr(v), ranges))
        given = [elements.at(v, tuple(at)) for v in inputs]
        stores = tuple(Store(None, t, tuple(at), node) for t, node in zip(targets, given, strict=True))
        fill = Nest(tuple(loops), stores=stores)
        if filled is owned or not filled.tiles:
            steps.append(fill)
        else:
            phases.append(Phase(filled.tiles, (fill,)))
        roots += given
    first, last, tiles = owned.first, owned.last, owned.tiles
    # The updates.
    moves = any(x.runtime is not None and x.walks is not None for x in landing.axes)
    order = (*scatter_dims, *windows)
    outer = len(scatter_dims)
    if moves and order != tuple(range(news.rank)):  # windows overlap: the updates' own order decides
        order, outer = tuple(range(news.rank)), news.rank
    elif tiles and walked in scatter_dims:  # updates of different rows never meet: these go outermost
        order = (walked, *(k for k in order if k != walked))
    u = {k: Var(f"u{k}_scatter") for k in order}
    for k in order:
        ranges[u[k]] = Interval(0, news.shape[k] - 1)
    bounds = {walked: (first, last)} if tiles and walked is not None else {}
    place: list[Expr] = []
    starts: list[Start] = []
    tests: list[Start] = []
    for axis, (x, n) in enumerate(zip(landing.axes, shape, strict=True)):
        inside = (first, last) if axis == 0 else (as_expr(0), as_expr(n - 1))
        if x.runtime is None:
            start = landing.at(x.start, u)
            place.append(start if x.walks is None else start + u[x.walks])
            continue
        v = Var(f"p{axis}_scatter")
        node = elements.at(op.operands[x.operand], tuple([landing.at(e, u) for e in x.runtime.element]))
        roots.append(node)
        if x.walks is None:
            ranges[v] = Interval(0, n - 1)
            starts.append(Start(v, node, *inside))
            place.append(v)
            continue
        size = news.shape[x.walks]
        # Farther out than the window is wide, no element of it lands inside.
        ranges[v] = Interval(-size, n)
        starts.append(Start(v, node, as_expr(-size), as_expr(n), clamps=True))
        place.append(v + u[x.walks])
        tests.append(Start(None, simplify(v + u[x.walks], ranges), *inside))
    nodes = [elements.at(v, tuple(as_expr(u[k]) for k in range(v.rank))) for v in updates]
    around = tuple(
        Loop(u[k], *bounds.get(k, (as_expr(0), as_expr(news.shape[k] - 1))), owned.count if k in bounds else news.shape[k])
        for k in order
    )
    more = tuple(zip(targets[1:], nodes[1:], strict=True))
    steps.append(Scatter(op, around, outer, tuple(starts), targets[0], tuple(place), nodes[0], more, tuple(tests)))
    read = dict.fromkeys(x.value for x in loads([*roots, *nodes]))
    buffers: list[Buffer] = [*targets, *(names.global_buffer(v, Scope.ARGUMENT) for v in read)]
    phases.append(Phase(tiles, tuple(steps)))
    return Schedule(tuple(phases), tuple(buffers), (owned.count, *shape[1:]) if shape else (), ranges)


@dataclass(frozen=True)
class _Rows:
    """The rows [first, last] of a task, `less_one` + 1 of them: `count`, or fewer in the last task."""

    first: Expr
    last: Expr
    less_one: Expr
    count: int
    tiles: tuple[tuple[Var, int], ...] = ()


def _owned_rows(shape: tuple[int, ...], name: str, wanted: int, ranges: dict[Var, Interval]) -> _Rows:
    """The first dimension's rows in at most `wanted` tasks; without tiles where that is one."""
    n = shape[0] if shape else 1
    rows = -(-n // min(wanted, n))
    tasks = -(-n // rows)
    if tasks == 1:
        return _Rows(as_expr(0), as_expr(n - 1), as_expr(n - 1), n)
    tile = Var(name)
    ranges[tile] = Interval(0, tasks - 1)
    first, last = tile * rows, n - 1
    less_one = simplify(minimum(as_expr(rows - 1), last - first), ranges)
    return _Rows(first, simplify(minimum(first + (rows - 1), last), ranges), less_one, rows, ((tile, tasks),))


def _walked_rows(landing: Landing, shape: tuple[int, ...], updates: tuple[int, ...]) -> int | None:
    """The dimension of the updates that walks along all rows of the result, or None where indices choose among the rows."""
    if not shape or landing.axes[0].runtime is not None:
        return None
    rows = landing.axes[0]
    if rows.walks is None:
        return next((k for k, v in landing.spread.items() if v is rows.start), None)
    return rows.walks if updates[rows.walks] == shape[0] else None


# ------------------------------------------------------------ updates in place


def lower_update(op: Op, builder: Builder, names: Names) -> Schedule:
    """result[start + u] = update[u]: the rest of the result is there already, in the operand's memory."""
    update, landing = op.operands[1], landing_of(op, "stablehlo.dynamic_update_slice", 1)
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
    for k, x in enumerate(landing.axes):
        assert x.runtime is not None and x.walks is not None
        here, limits = at[x.walks], x.runtime.interval
        if limits.is_point:
            place.append(here + limits.lower)
            continue
        p = Var(f"p{k}_update")
        ranges[p] = limits
        start = elements.at(op.operands[x.operand], x.runtime.element)
        starts.append(Start(p, start, as_expr(limits.lower), as_expr(limits.upper), clamps=True))
        place.append(simplify(p + here, ranges))
    node = elements.at(update, tuple(at))
    step = Scatter(op, tuple(loops), 0, tuple(starts), target, tuple(place), node)
    roots: list[Node] = [node, *(s.node for s in starts if not isinstance(s.node, Expr))]
    read = dict.fromkeys(x.value for x in loads(roots))
    buffers = [target, *(names.global_buffer(v, Scope.ARGUMENT) for v in read)]
    return Schedule((Phase(tiles, (step,)),), tuple(buffers), op.results[0].shape, ranges)
