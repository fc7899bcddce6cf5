"""Rows that are no whole vector lie across it: a phase over short rows reads and writes a tile of them turned in registers.

    for i, for j < 10: e[i, j] = exp(x[i, j] - m[i]); s[i] += e[i, j]        a vector and a rest of each row

    tx[j, i] = x[i, j] by blocks;  for j, for i: te[j, i] = exp(tx[j, i] - m[i]); s[i] += te[j, i];  e[i, j] = te[j, i] by blocks

Worth it where rows are folded (else a phase's rows are one run) and something costly is computed for each element: a row of ten
otherwise takes the time of three vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from indexing.expr import Const, Expr, as_expr, simplify, substitute
from tiling.elements.scalar_functions import scalar_function
from tiling.loops.accesses import buffers_by_value
from tiling.loops.affine import address, linear
from tiling.loops.element_ir import Apply, Load, Node, all_nodes, has_runtimes, loads, rebuild
from tiling.loops.ir import Block2D, Buffer, Loop, LoopKind, Nest, Schedule, Scope, Step, Turn

__all__ = ["turn_short_rows"]

SHORT = range(9, 16)  # elements of a row: one vector of eight and a rest, or most of one of sixteen
LEAST_ROWS = 64
LEAST_COST = 4.0  # additions for an element: a turn there and one back cost some
LANES = 16


def turn_short_rows(schedule: Schedule) -> Schedule:
    """The schedule with the rows of its main phase turned; the schedule itself where they are none, or it is not worth it."""
    main = schedule.main
    nests = [s for s in main.steps if isinstance(s, Nest)]
    if len(nests) < len(main.steps) or not _is_worth_it(nests):
        return schedule
    made = _Turned(schedule, nests)
    steps = made.run()
    if steps is None:
        return schedule
    phases = tuple(replace(p, steps=steps) if p is main else p for p in schedule.phases)
    return replace(schedule, phases=phases, buffers=(*schedule.buffers, *made.tiles.values()))


def _is_worth_it(nests: Sequence[Nest]) -> bool:
    """Whether rows are folded, and something costly is computed for their elements."""
    folded = any(x.kind is LoopKind.REDUCTION and x.extent in SHORT for n in nests for x in n.loops)
    nodes = [n for nest in nests if any(x.extent in SHORT for x in nest.loops) for n in all_nodes(nest.each)]
    return folded and any(isinstance(n, Apply) and scalar_function(n.function).cost >= LEAST_COST for n in nodes)


class _Turned:
    """The steps of a phase with its rows turned; `tiles` are the turned ones, by what is in memory."""

    def __init__(self, schedule: Schedule, nests: Sequence[Nest]) -> None:
        self.schedule, self.nests = schedule, nests
        self.by_value = buffers_by_value(schedule)
        self.tiles: dict[Buffer, Buffer] = {}
        self.places: dict[Buffer, Expr] = {}  # where a task's rows begin
        self.sides: list[tuple[Loop, Loop]] = []  # of each nest its rows and the loop along one; a nest over rows alone has none

    def run(self) -> tuple[Step, ...] | None:
        """The steps; None where the phase is not of this form."""
        for nest in self.nests:
            if not self._look(nest):
                return None
        if not self.tiles:
            return None
        steps: list[Step] = []
        written: dict[Buffer, tuple[Loop, Loop]] = {}
        there: set[Buffer] = set()
        for nest, (rows, along) in zip(self.nests, self.sides, strict=True):
            for b in dict.fromkeys(self._buffer(x) for x in loads(nest.each)):
                if b in self.tiles and b not in there:
                    there.add(b)
                    steps.append(self._turn(b, rows, along, into=True))
            for s in nest.stores:
                if s.buffer in self.tiles:
                    there.add(s.buffer)
                    written[s.buffer] = rows, along
            steps.append(self._rewritten(nest))
        steps += [self._turn(b, rows, along, into=False) for b, (rows, along) in written.items()]
        return tuple(steps)

    def _buffer(self, load: Load) -> Buffer:
        return load.buffer or self.by_value[load.value]

    def _accesses(self, nest: Nest) -> Iterator[tuple[Buffer, tuple[Expr, ...], bool]]:
        """(buffer, index, whether it may be turned) of all that a nest reads and writes."""
        yield from ((self._buffer(x), x.index, True) for x in loads(nest.each))
        yield from ((s.buffer, s.index, True) for s in nest.stores)
        yield from ((b, f.index, False) for f in nest.folds for b in f.buffers)

    def _look(self, nest: Nest) -> bool:
        """Finds a nest's rows, and what of them is in memory row by row; False where the nest is of another form."""
        plain = nest.skip is None and not nest.segments and not nest.ahead and not nest.order_is_fixed
        moving = [x for x in nest.loops if x.extent > 1]
        if not plain or has_runtimes(nest.each) or any(x.kind is LoopKind.SCAN or x.lower is not Const(0) for x in moving):
            return False
        rows = [x for x in moving if x.kind is LoopKind.PARALLEL and x.extent >= LEAST_ROWS]
        along = [x for x in moving if x.extent in SHORT and x.upper is Const(x.extent - 1)]
        if len(rows) != 1 or len(moving) != len(rows) + len(along) or len(along) > 1:
            return False
        if self.sides and rows[0].extent != self.sides[0][0].extent:
            return False
        beside = along[0] if along else rows[0]
        self.sides.append((rows[0], beside))
        for buffer, index, may_turn in self._accesses(nest):
            found = linear(address(buffer, index, self.schedule.ranges), (rows[0].variable, beside.variable))
            if found is None:
                return False
            is_row = bool(along) and may_turn and tuple(found[1]) == (along[0].extent, 1) and buffer.scope is not Scope.THREAD
            if is_row != (buffer in self.tiles) and (is_row is False or buffer in self.places):
                return False  # read in two ways
            if self.places.setdefault(buffer, found[0]) is not found[0] and is_row:
                return False
            if is_row and buffer not in self.tiles:
                tile = self._tile(buffer, index, rows[0], along[0])
                if tile is None:
                    return False
                self.tiles[buffer] = tile
        return True

    def _tile(self, buffer: Buffer, index: Sequence[Expr], rows: Loop, along: Loop) -> Buffer | None:
        """Room for a task's rows, consecutive from row to row; None where a dimension is neither the rows' nor theirs."""
        first = {rows.variable: Const(0), along.variable: Const(0)}
        origin = tuple([simplify(substitute(e, first), self.schedule.ranges) for e in index])
        moved = [simplify(e - o, self.schedule.ranges) for e, o in zip(index, origin, strict=True)]
        room = -(-rows.extent // LANES) * LANES
        sizes = {as_expr(rows.variable): (rows.extent, 1), as_expr(along.variable): (along.extent, room), Const(0): (1, 0)}
        if len(moved) < 2 or not all(e in sizes for e in moved) or len([e for e in moved if e is not Const(0)]) != 2:
            return None
        shape, strides = zip(*(sizes[e] for e in moved), strict=True)
        name = f"across{len(self.tiles)}"
        return Buffer(name, Scope.THREAD, buffer.element, shape, strides, origin, room * along.extent)

    def _turn(self, b: Buffer, rows: Loop, along: Loop, into: bool) -> Turn:
        """The turn of what is in memory into its tile, or back."""
        tile, value = self.tiles[b], b.value
        assert value is not None, "what is in memory holds a value"
        row, column = replace(rows, kind=LoopKind.PARALLEL), replace(along, kind=LoopKind.PARALLEL)
        memory = Block2D(b, self.places[b], along.extent, 1)
        turned = Block2D(tile, Const(0), tile.size_elems // along.extent, 1)
        return Turn(value, row, column, memory, turned) if into else Turn(value, column, row, turned, memory)

    def _rewritten(self, nest: Nest) -> Nest:
        """The nest with turned tiles in place of what is in memory."""
        memo: dict[Node, Node] = {}

        def leaf(load: Load) -> Node:
            tile = self.tiles.get(self._buffer(load))
            return load if tile is None else replace(load, buffer=tile)

        def node(n: Node) -> Node:
            return rebuild(n, leaf, tuple, memo)

        stores = tuple(replace(s, buffer=self.tiles.get(s.buffer, s.buffer), node=node(s.node)) for s in nest.stores)
        folds = tuple(replace(f, nodes=tuple(map(node, f.nodes)), inits=tuple(map(node, f.inits))) for f in nest.folds)
        return replace(nest, stores=stores, folds=folds)
