"""Tables: scratch that one statement computes, and others read in place of computing it again. What reads them is compared as if
it computed it itself; that they hold it when they are read is what `produced` and `not overwritten` say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass

from indexing.expr import Const, Expr, Interval, Var, simplify
from tiling.loops.element_ir import Apply, Choose, IndexNode, Load, Node, Renamer, Reread, Scalar, Test, has_runtimes, loads
from tiling.loops.ir import Buffer, Loop, Nest, Schedule, Scope, Store

__all__ = ["Table", "read_through", "tables_of"]

NODES = (Load, Apply, Choose, Test, IndexNode, Scalar)


@dataclass(frozen=True, eq=False)
class Table:
    """Scratch whose element at (variable - lower for each of `loops`) is `node`."""

    loops: tuple[Loop, ...]
    node: Node

    def at(self, index: tuple[Expr, ...], ranges: Mapping[Var, Interval]) -> Node:
        """What is computed into an element."""
        places = {x.variable: simplify(e + x.lower, ranges) for x, e in zip(self.loops, index, strict=True)}
        return Renamer(places, ranges, {}).node(self.node)


def tables_of(schedule: Schedule) -> dict[Buffer, Table]:
    """The tables of a schedule: scratch that nothing but one store writes, once for each place, and that nests alone read.

    What another step reads (a packed factor) is compared where it is made.
    """
    found: dict[Buffer, list[Table | None]] = {}
    for step in (x for p in schedule.phases for x in (*p.before, *p.all_steps)):
        if isinstance(step, Nest):
            for s in step.stores:
                found.setdefault(s.buffer, []).append(_table(step, s))
        elsewhere = tuple((f.buffers, f.inits) for f in step.folds) if isinstance(step, Nest) else step
        for b in _named(elsewhere):
            found.setdefault(b, []).append(None)
    return {
        b: rows[0] for b, rows in found.items()
        if len(rows) == 1 and rows[0] is not None and b.scope is Scope.THREAD and b.value is None
    }  # fmt: skip


def _named(x: object) -> Iterator[Buffer]:
    """The buffers that a part of a schedule names, in whatever it consists of."""
    if isinstance(x, Buffer):
        yield x
    elif isinstance(x, tuple):
        for y in x:
            yield from _named(y)
    elif isinstance(x, NODES):
        yield from (load.buffer for load in loads((x,)) if load.buffer is not None)
    elif is_dataclass(x) and type(x).__module__.startswith("tiling.loops."):
        yield from _named(tuple(vars(x).values()))


def _table(nest: Nest, s: Store) -> Table | None:
    if s.value is not None or isinstance(s.node, Scalar) or nest.skip is not None or has_runtimes((s.node,)):
        return None
    if len(s.index) != len(nest.loops) or not all(isinstance(x.lower, Const) for x in nest.loops):
        return None
    is_plain = all(e is x.variable - x.lower for e, x in zip(s.index, nest.loops, strict=True))
    return Table(nest.loops, s.node) if is_plain and all(o == 0 for o in s.buffer.origin) else None


def read_through(nodes: tuple[Node, ...], tables: Mapping[Buffer, Table], ranges: Mapping[Var, Interval]) -> tuple[Node, ...]:
    """Nodes with what tables hold in place of their elements."""
    if not tables:
        return nodes

    def leaf(x: Load) -> Node:
        table = None if x.buffer is None else tables.get(x.buffer)
        return x if table is None else table.at(x.index, ranges)

    return tuple(map(Reread({}, leaf).node, nodes))
