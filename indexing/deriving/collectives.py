"""Collectives: which process's operand an element comes from, and from where in it.

A process has a position p in its group (its row of replica_groups). The maps here go from (d0, …, own position) to
(position of the process that is read, index in its operand). The maps of `output_to_input` are their index parts: there the
own position, where it matters, is a runtime variable without a producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from hlo import Declined, Op, TensorType
from indexing.expr import ExprLike
from indexing.expressions.bounds import Interval
from indexing.expressions.terms import Expr, Var, as_expr
from indexing.map import IndexingMap, RuntimeVariable, Variable, build, usual
from indexing.map_simplifier import tidy_map
from indexing.mapset import MapSet

__all__ = ["EXCHANGES", "Exchange", "exchange_maps", "index_maps"]


class Exchange(NamedTuple):
    """One read: operand number, process that is read, where in its operand; `own` limits the positions that read it."""

    operand: int
    source: ExprLike
    at: Sequence[ExprLike]
    own: Interval | None = None


Reads = Callable[[Op, int, tuple[Var, ...], Var, int], Iterator[Exchange]]
"""(op, output, output index, own position, group size) -> reads. A source of -1 stands for every process of the group."""

EVERY = -1


def _gather(op: Op, output: int, d: tuple[Var, ...], p: Var, size: int) -> Iterator[Exchange]:
    axis = op.attr("all_gather_dim")
    n = op.operands[output].shape[axis]
    yield Exchange(output, d[axis] // n, [x % n if i == axis else x for i, x in enumerate(d)])


def _reduce(op: Op, output: int, d: tuple[Var, ...], p: Var, size: int) -> Iterator[Exchange]:
    yield Exchange(output, EVERY, d)


def _reduce_scatter(op: Op, output: int, d: tuple[Var, ...], p: Var, size: int) -> Iterator[Exchange]:
    axis = op.attr("scatter_dimension")
    n = op.results[0].shape[axis]
    yield Exchange(0, EVERY, [x + p * n if i == axis else x for i, x in enumerate(d)])


def _all_to_all(op: Op, output: int, d: tuple[Var, ...], p: Var, size: int) -> Iterator[Exchange]:
    split, concat = op.attr("split_dimension"), op.attr("concat_dimension")
    shape = op.operands[output].shape
    part, whole = shape[split] // op.attr("split_count"), shape[concat]
    if split == concat:
        # Blocks of one dimension change places: block j comes from process j, which holds it as its block p.
        index = [x % part + p * part if i == split else x for i, x in enumerate(d)]
        yield Exchange(output, d[split] // part, index)
        return
    index = [x % whole if i == concat else (x + p * part if i == split else x) for i, x in enumerate(d)]
    yield Exchange(output, d[concat] // whole, index)


def _permute(op: Op, output: int, d: tuple[Var, ...], p: Var, size: int) -> Iterator[Exchange]:
    # A process that is nobody's target gets zeros and reads nothing.
    for source, target in op.attr("source_target_pairs"):
        yield Exchange(0, source, d, Interval(target, target))


def _broadcast(op: Op, output: int, d: tuple[Var, ...], p: Var, size: int) -> Iterator[Exchange]:
    yield Exchange(0, 0, d)


EXCHANGES: dict[str, Reads] = {
    "stablehlo.all_gather": _gather,
    "stablehlo.all_reduce": _reduce,
    "stablehlo.cross-replica-sum": _reduce,
    "stablehlo.reduce_scatter": _reduce_scatter,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_permute": _permute,
    "stablehlo.collective_broadcast": _broadcast,
}
"""op name -> what it reads of which process."""


def _group_size(op: Op) -> int | Declined:
    if op.name == "stablehlo.collective_permute":
        pairs = op.attr("source_target_pairs")
        return 1 + max((max(pair) for pair in pairs), default=0)
    rows = op.attr("replica_groups")
    try:
        sizes = {len([m for m in row if m >= 0]) for row in rows}
    except TypeError:
        return Declined(f"{op.name}: the groups are given by a mesh, whose sizes the module knows")
    if len(sizes) != 1:
        return Declined(f"{op.name}: the groups have different sizes, or there is none")
    return sizes.pop()


def _exchanges(op: Op, output: int) -> tuple[int, list[Exchange], TensorType] | Declined:
    if op.name not in EXCHANGES:
        return Declined(f"{op.name} is no collective that is described here")
    size = _group_size(op)
    if isinstance(size, Declined):
        return size
    t = op.results[output].type
    if not isinstance(t, TensorType) or not t.is_static:
        return Declined(f"{op.name}: a result of type {t} has no index")
    d = tuple([usual("d", i) for i in range(t.rank)])
    return size, list(EXCHANGES[op.name](op, output, d, usual("rt", 0), size)), t


def exchange_maps(op: Op, output: int = 0) -> tuple[MapSet, ...] | Declined:
    """For each operand, the maps (d0, …, own position) -> (position read, index there).

    Positions count within the group; for collective_permute they are the process ids. Groups of different sizes and
    groups of a mesh are declined.
    """
    found = _exchanges(op, output)
    if isinstance(found, Declined):
        return found
    size, exchanges, t = found
    dims = [Variable(usual("d", i), Interval(0, n - 1)) for i, n in enumerate(t.static_shape)]
    own = Variable(usual("rt", 0), Interval(0, size - 1))
    sets: list[list[IndexingMap]] = [[] for _ in op.operands]
    for e in exchanges:
        every = isinstance(e.source, int) and e.source == EVERY
        source: Expr = usual("s", 0) if every else as_expr(e.source)
        ranges = [Variable(usual("s", 0), Interval(0, size - 1))] if every else []
        place = own._replace(interval=e.own) if e.own is not None else own
        m = build([*dims, place], [source, *map(as_expr, e.at)], ranges, (), ())
        sets[e.operand].append(tidy_map(m).renumbered())
    return tuple([MapSet(s) for s in sets])


def index_maps(op: Op, output: int = 0) -> list[list[IndexingMap]] | Declined:
    """For each operand, the index parts of the exchange maps, over all processes that are read."""
    found = _exchanges(op, output)
    if isinstance(found, Declined):
        return found
    size, exchanges, t = found
    dims = [Variable(usual("d", i), Interval(0, n - 1)) for i, n in enumerate(t.static_shape)]
    own = RuntimeVariable(usual("rt", 0), Interval(0, size - 1), None, (), "own position in the replica group")
    sets: list[list[IndexingMap]] = [[] for _ in op.operands]
    for e in exchanges:
        sets[e.operand].append(build(dims, [as_expr(x) for x in e.at], (), [own], ()))
    return sets
