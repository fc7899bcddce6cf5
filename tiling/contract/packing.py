"""Factors of a sum of products in the layout that the micro-kernel reads: copied by the task, or once before all tasks.

    left[m, k], rows as they are read      right[n // columns, k, n mod columns], in panels (`tiling.loops.staging`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from hlo.access import Condition
from hlo.types import ElementType, element_type
from indexing.expr import Const, Expr, Interval, Var, as_expr, interval, maximum, minimum, simplify, substitute
from tiling.contract.digits import number_of, weights_of_digits
from tiling.contract.operands import Place, copied_element, expressions, is_narrow, moved
from tiling.contract.roles import Roles
from tiling.loops.affine import address, linear, when
from tiling.loops.element_ir import Choose, Load, Node, Renamer, Scalar, loads, node_variables
from tiling.loops.ir import Buffer, Loop, LoopKind, Nest, Phase, Scope, Store
from tiling.loops.staging import Along, Layout, blocks, panels, row_major, stage_into, turn_of
from tiling.loops.variables import counted

__all__ = ["Packing"]

FEW_ROWS = 8  # rows of the left operand that are read at once where a cache set holds a line of each
SHORT_RUN = 8  # steps of k that are no inner loop
FEW_PANELS = 8  # panels up to which threads also share the outermost depth loop of packing
LEAST_TURN = 8  # steps of k that are worth a transpose in registers
BAND_GROUPS = 16  # groups of steps of k that are packed for all columns before the next ones
LINE_BYTES = 64
LEAST_ROWS = 256  # for which a copy of what the program is given is made by its tasks: for fewer, one that is kept is worth more
FEW_BLOCKS = 40  # of rows: an operand of several times the second cache is packed for more uses than these
MUCH = 4
WIDENED_USES = {"bf16": 16, "f16": 128}  # blocks of rows that meet a panel from which on it is widened once
LEAN_PART = 8  # of the shared cache: a copy of less is no matter of memory
MOST_PACKED = 0.5  # of the second-level cache that a task's own copy takes at once


@dataclass(frozen=True, eq=False)
class _Panels:
    """Where a right operand lies that is put into panels of columns before all tasks."""

    tiles: tuple[tuple[Var, int], ...]  # the variables that number the panels, and how many values each has
    columns: Loop  # the columns of one panel
    index: Mapping[int, Expr]  # the result's dimension -> its index at a panel and a column of it
    around: tuple[Along, ...]  # there is a matrix for each of these
    panel: Along
    column: Along
    first: tuple[Expr, ...] | None  # the matrix and panel that a task begins with; None where it begins inside of a panel
    blocks: Mapping[Var, Expr]  # the numbers of blocks that a loop around all of it goes through, in the copy


class Packing(Roles):
    """The copies of a contraction's factors; register blocks have `mr` rows, panels `nr` columns."""

    mr: int
    nr: int

    @property
    def takes_narrow(self) -> bool:
        """Whether the micro-kernel reads pairs of 16 bits as they are; others widen them, also in copies."""
        return self.kernel.together > 1 and is_narrow(element_type(self.types[0]))

    @property
    def _cuts_groups(self) -> bool:
        """Whether a window's runs of k are no whole groups: only a copy that has all of k in one run can be read by groups."""
        deep = [x.extent for x in self.depth_loops if x.extent > 1]
        return len(deep) > 1 and deep[-1] % self.kernel.together != 0

    @property
    def _takes_rows_across(self) -> bool:
        """Whether the routine reads pairs of k from rows that lie side by side; tiles read runs of k alone."""
        return self.kernel.walks and self.c.machine.tile_products == 1

    def _is_kept_narrow(self) -> bool:
        """Whether what is read of both factors, where nothing is computed, is kept in 16 bits: excess precision keeps 32."""
        as_they_are = [x for x in (self.left, self.right) if isinstance(x, Load)]
        return not self.is_split and all(is_narrow(self._buffer(x).element) for x in as_they_are)

    def _while_flag(self, loop: Loop) -> tuple[Expr, Expr]:
        """A loop's ends, those that a mask bounds while the flag is 1."""
        ends = self.bounded.get(loop.variable)
        if ends is None or self.c.flag is None:
            return Const(0), loop.upper
        lower, upper = when(self.c.flag, ends, loop.extent)
        return lower, simplify(minimum(loop.upper, upper), self.c.ranges)

    def _staged(self, role: str, scope: Scope, layout: Layout, loops: Sequence[Loop], node: Node, fixed: bool = False) -> Nest:
        """The copy of a factor in a layout, in scratch of this contraction."""
        return stage_into(self._scratch(role, scope, layout), layout, loops, node, fixed)

    def _scratch(self, role: str, scope: Scope, layout: Layout) -> Buffer:
        self.new_buffers.append(layout.buffer(self.scratch(role), scope))
        return self.new_buffers[-1]

    def _kept_element(self, node: Node, side: int) -> ElementType:
        """The type of an operand's copy: of what is read where the copy only moves it, of the operand where it is computed."""
        element = copied_element(node, self.c.stage.op.operands[1 - side if self.swapped else side], self._buffer)
        widens = is_narrow(element) and not self.takes_narrow and moved(node) is None
        return self.sums if element is None or widens else element

    def _widens(self) -> bool:
        """Whether a right operand of 16 bits is widened as it is put into panels, so that not each block of rows does: that takes
        two instructions a vector for bf16, and one for f16."""
        if not isinstance(self.right, Load) or self.kernel.together > 1:
            return False
        is_large = 2 * self.n.extent * self.depth > MUCH * self.c.machine.l2_bytes
        uses = WIDENED_USES.get(self._buffer(self.right).element.name)
        return uses is not None and self._uses() > max(uses, FEW_BLOCKS if is_large else 0)

    def _uses(self) -> float:
        """How many blocks of rows a panel is read for."""
        return prod(self.value.shape) / (self.mr * self._columns_of_right)

    def _or_zero(self, node: Node, k: Expr) -> Node:
        """The node where k is inside of the depth, else zero."""
        k = simplify(k, self.c.ranges)
        bounds, element = interval(k, self.c.ranges), self._kept_element(node, 0)
        if bounds.upper < self.depth:
            return node
        zero = Scalar(element.dtype.type(0), element)
        return zero if bounds.lower >= self.depth else Choose((Condition(k, 0, self.depth - 1),), node, zero)

    # ------------------------------------------------------------ the left operand

    def _left_in_place(self) -> Place | None:
        place = self._in_place(self.left, [*(x.variable for x in self.row_loops), *self._depth_variables()])
        if place is not None and self.kernel.needs_runs:
            levels, (_, step, _) = self._levels(place.steps, self._row_major(1))
            across = self._takes_rows_across and place.steps[self.m.variable] == 1
            fits = (step == 1 or across) and (self.kernel.takes_levels or not levels) and self.depth == self.filled
            return place if fits else None
        if place is None or is_narrow(place.buffer.element):
            return None
        buffer = place.buffer
        row, item = place.steps[self.m.variable], buffer.element.itemsize_bytes
        last = [place.steps[x.variable] for x in self.depth_loops if x.extent > 1][-1]
        if last == 1:
            # Rows a power of two apart share their cache sets: a register block of few rows still fits its set's ways.
            keeps = self.mr <= FEW_ROWS or row * item % 2048 != 0 or buffer.scope is Scope.THREAD or self.depth * item <= 1024
        else:
            keeps = row == 1 and (buffer.scope is Scope.THREAD or self.m.extent <= 4 * self.mr)
        return place if keeps else None

    def _left_packed(self) -> tuple[Place, tuple[Nest, ...]]:
        c, m, in_groups = self.c, self.m.extent, self.kernel.together > 1
        element = self._kept_element(self.left, 0)
        element = self.sums if is_narrow(element) and not self.takes_narrow else element
        lanes = c.machine.lanes(element.itemsize_bytes)
        self.packs_left = self.blocks > 1  # then `left` holds one block
        row: Along = as_expr(self.m.variable), m
        loops, flat, node = self._flat_depth(self.left) if in_groups else self._block_of(self.left)
        across = self._walks_along_rows()
        if across:
            layout = row_major(element, [flat, row]).with_rows_of(-(-m // lanes) * lanes).with_rows_apart(lanes, 512)
        else:
            room = LINE_BYTES // element.itemsize_bytes if in_groups else lanes
            layout = row_major(element, [row, flat]).with_rows_of(-(-flat[1] // room) * room + room)
        nest = self._staged("left", Scope.THREAD, layout, (self.m, *loops), node)
        buffer = nest.stores[0].buffer
        unit, step = buffer.strides if across else buffer.strides[::-1]
        return Place(buffer, Const(0), {self.m.variable: step, **self._row_major(unit, self.k_block)}), (nest,)

    def _flat_depth(self, node: Node) -> tuple[tuple[Loop, ...], Along, Node]:
        """As `_block_of`, for all of k; where zeros fill up the last group of steps, with one loop and divisions by it."""
        c, filled = self.c, self.filled
        if filled == self.depth:
            loops = tuple(replace(x, kind=LoopKind.PARALLEL) for x in self.depth_loops if x.extent > 1)
            if self.k_loop.variable in self.bounded:
                lower, upper = self._while_flag(self.k_loop)
                loops = tuple(replace(x, lower=lower, upper=upper) if x.variable is self.k_loop.variable else x for x in loops)
            return loops, (self._flat(), filled), node
        loop = counted(f"kf_{self.tag}_left", filled, c.ranges)
        k = as_expr(loop.variable)
        return (loop,), (k, filled), self._or_zero(Renamer(self._depth_index(k), c.ranges, {}).node(node), k)

    def _block_of(self, node: Node) -> tuple[tuple[Loop, ...], Along, Node]:
        """(loops, place counted in rows of k, node) of an operand over one block of k."""
        c, end = self.c, self.k_loop.extent - 1
        lower, upper = self._while_flag(self.k_loop) if self.k_loop.variable in self.bounded else (Const(0), Const(end))
        first = simplify(maximum(0, lower - self.k_start), c.ranges)
        last = simplify(minimum(self.k_block - 1, end - self.k_start, upper - self.k_start), c.ranges)
        inner = Loop(self.k, first, last, self.k_block)
        loops = tuple(
            inner if x is self.k_loop else replace(x, kind=LoopKind.PARALLEL) for x in self.depth_loops if x.extent > 1
        )
        flat = substitute(self._flat(self.k_block), {self.k_loop.variable: self.k})
        depth = self.depth // self.k_loop.extent * self.k_block
        return loops, (flat, depth), Renamer({self.k_loop.variable: self.k_start + self.k}, c.ranges, {}).node(node)

    def _walks_along_rows(self) -> bool:
        """True when the left operand lies transposed: consecutive along m, and not along any depth loop."""
        read = next(iter(loads([self.left])), None)
        if read is None or (self.kernel.needs_runs and not self._takes_rows_across):
            return False
        found = linear(address(self._buffer(read), read.index, self.c.ranges), [self.m.variable, *self._depth_variables()])
        return found is not None and found[1][0] == 1 and 1 not in found[1][1:]

    # ------------------------------------------------------------ the right operand

    def _is_made_inside(self) -> bool:
        """True when the right operand is computed by the task itself."""
        return any(self.c.is_member(x.value) for x in loads([self.right]))

    def _expands(self) -> bool:
        """True when packing for all tasks would make a window's operand much larger than what it is read from."""
        depth = set(self._depth_variables())
        if not any(depth & {*e.variables} and {*e.variables} - depth for e in expressions(self.right)):
            return False
        read = sum(x.value.tensor.size_elems for x in loads([self.right]))
        return self._columns_of_right * self.depth > 2 * read

    def _is_packed_once(self) -> bool:
        """Whether tasks that copy what they read copy it once: each has all rows, so that no other one reads the same columns.

        Then a block of the copy stays in the task's own cache, beside the block of rows that meets it; rows that would be copied
        themselves would be so by each task. What is only moved, of what the program is given, may be kept from call to call
        (`codegen.call.kept_packs`): it is copied ahead, unless there are so many rows that the copy counts for little.
        """
        c, shape = self.c, self.value.shape
        if c.flag is not None or c.suffix or self.is_split or sum(x.extent > 1 for x in self.depth_loops) != 1:
            return False
        rows = [k for k, moves in enumerate(self._moves_right) if not moves]
        if any(c.loops[k].extent != shape[k] for k in rows) or self._left_in_place() is None:
            return False
        block_bytes = self.k_block * self._kept_element(self.right, 1).itemsize_bytes
        count = prod(shape[k] for k in rows)
        if block_bytes * self.n.extent > MOST_PACKED * c.machine.l2_bytes:
            return False
        read = loads([self.right])
        if read and moved(self.right) is None:
            return True
        is_given = all(x.value.op is None or x.value in c.names.kept for x in read)
        return block_bytes * count <= c.machine.l2_bytes and (not is_given or count >= LEAST_ROWS)

    @property
    def _is_lean(self) -> bool:
        """Whether memory counts more than packing once (`Names.is_lean`), of a copy that is large beside the shared cache."""
        size_bytes = self._columns_of_right * self.depth * self._kept_element(self.right, 1).itemsize_bytes
        return self.c.names.is_lean and size_bytes * LEAN_PART > self.c.machine.l3_bytes

    def _pack_in_task(self) -> Place | None:
        """The right operand's panels are made by each task; where loops around the product move it, for each block of k."""
        c = self.c
        deep = self.depth > 4 * self.row.window_block
        moved = any(x.variable in self.in_right for x in self.around) or (deep and self._is_lean)
        moved |= self.blocks > 1 and self._is_packed_once()
        if self.kernel.together > 1 or (not moved and deep):
            return None
        whole = tuple(replace(x, kind=LoopKind.PARALLEL) for x in self.depth_loops if x.extent > 1)
        loops, flat, node = self._block_of(self.right) if moved else (whole, (self._flat(), self.depth), self.right)
        columns = blocks(as_expr(self.n.variable), self.n.extent, self.nr)
        layout = panels(self._kept_element(self.right, 1), (), *columns, flat, c.ranges)
        # A window's short rows stay outside: the columns make vectors, also where the window moves by several elements.
        fixed = moved and bool(loops) and loops[-1].extent < SHORT_RUN
        nest = self._staged("right", Scope.THREAD, layout, (*loops, self.n), node, fixed)
        if not moved:
            return replace(self._in_panels(nest, Const(0), self._row_major(self.nr)), fill=(nest,))
        # The address of a block's first row counts from the block, not from the first k of all.
        base = simplify(self.k_start * (-self.nr), c.ranges)
        return replace(self._in_panels(nest, base, self._row_major(self.nr, self.k_block)), fill_block=(nest,))

    def _in_panels(self, nest: Nest, base: Expr, steps: Mapping[Var, int]) -> Place:
        """The right operand as a nest has put it into panels."""
        buffer = nest.stores[0].buffer
        panel = len(buffer.strides) - (3 if self.kernel.together == 1 else 4)
        return Place(buffer, base, steps, panel_stride=buffer.strides[panel])

    def _pack_ahead(self) -> Place | None:
        """The right operand comes from memory: it is put into panels once, before all tasks."""
        c, found = self.c, self._panels()
        bands, runs, steps = self._steps_ahead()
        nodes = [self._at(self.right, found.index, {**renaming, **found.blocks}) for _, renaming in steps]
        if None in nodes:
            return self._pack_in_task()
        if found.first is None:
            return None
        element = self.sums if self._widens() else self._kept_element(self.right, 1)
        tiles = (*bands, *found.tiles)
        layouts = [
            panels(element, found.around, found.panel, found.column, (flat, self.filled), c.ranges, self.kernel.together)
            for flat, _ in steps
        ]
        buffer = self._scratch("right", Scope.SHARED, layouts[0])
        stores = [
            Store(None, buffer, layout.at, self._or_zero(node, flat))
            for layout, node, (flat, _) in zip(layouts, nodes, steps, strict=True) if node is not None
        ]  # fmt: skip
        nest = Nest((*runs, found.columns), tuple(stores))
        self.prepass.append(self._turned(tiles, runs, nest) or self._copied(tiles, runs, nest))
        first = (*found.first, *(Const(0) for _ in buffer.shape[len(found.first) :]))
        return self._in_panels(nest, address(buffer, first, c.ranges), self._row_major(self.nr))

    def _steps_ahead(self) -> tuple[list[tuple[Var, int]], list[Loop], list[tuple[Expr, Mapping[Var, Expr]]]]:
        """How k is walked through for packing before all tasks: tiles, loops, the steps of k of one iteration.

        A step is its place, and the depth loops' values. Groups of narrow elements are packed band by band, in each of which all
        panels are, where memory runs along the columns: a panel's part of a row is half a line, and each row is in another page.
        """
        c, together = self.c, self.kernel.together
        if together > 1:
            groups = self.filled // together
            size = groups if self._runs_along_depth() else min(groups, BAND_GROUPS)
            inner = counted(f"q_{self.tag}", size, c.ranges)
            group, bands = as_expr(inner.variable), []
            if size < groups:
                band = counted(f"qb_{self.tag}", -(-groups // size), c.ranges)
                bands, group = [(band.variable, band.extent)], band.variable * size + inner.variable
                inner = replace(inner, upper=simplify(minimum(size - 1, groups - 1 - band.variable * size), c.ranges))
            places = [group * together + part for part in range(together)]
            return bands, [inner], [(e, self._depth_index(e)) for e in places]
        runs = [counted(f"kp{number}_{self.tag}", x.extent, c.ranges) for number, x in enumerate(self.depth_loops)]
        at = zip(self.depth_loops, runs, strict=True)
        renaming: dict[Var, Expr] = {x.variable: as_expr(y.variable) if x.extent > 1 else Const(0) for x, y in at}
        return [], [x for x in runs if x.extent > 1], [(substitute(self._flat(), renaming), renaming)]

    def _runs_along_depth(self) -> bool:
        """Whether the right operand is consecutive along k, and not along the columns."""
        place = self._in_place(self.right, [self.n.variable, *self._depth_variables()])
        return place is not None and place.steps[self.n.variable] != 1

    def _panels(self) -> _Panels:
        """The right operand in panels of `nr` columns, for each value of the other indices that move it."""
        c, shape = self.c, self.value.shape
        column = next(k for k, x in enumerate(c.loops) if x is self.n)
        # Dimensions whose index moves the right operand, through a tile number or a loop.
        moving = [k for k, moves in enumerate(self._moves_right) if k != column and moves and shape[k] > 1]
        count = -(-shape[column] // self.nr)
        p, j = Var(f"p_{self.tag}"), Var(f"j_{self.tag}")
        named = {v for e in c.index for v in e.variables}
        blocks = [(v, Var(f"bb{k}_{self.tag}"), n) for k, (v, n) in enumerate(c.blocks) if v in self.in_right and v not in named]
        tiles = (*((Var(f"b{k}_{self.tag}"), shape[k]) for k in moving), *((x, n) for _, x, n in blocks), (p, count))
        c.ranges.update({v: Interval(0, extent - 1) for v, extent in (*tiles, (j, self.nr))})
        index = {k: as_expr(v) for k, (v, _) in zip(moving, tiles, strict=False)}
        last = simplify(minimum(self.nr - 1, shape[column] - 1 - p * self.nr), c.ranges)
        begin = simplify(substitute(c.index[column], {self.n.variable: Const(0)}), c.ranges)
        starts = simplify(begin % self.nr, c.ranges) is Const(0)
        return _Panels(
            tiles, Loop(j, Const(0), last, self.nr, LoopKind.PARALLEL), {**index, column: p * self.nr + j},
            (*((e, shape[k]) for k, e in index.items()), *((as_expr(x), n) for _, x, n in blocks)),
            (as_expr(p), count), (as_expr(j), self.nr),
            (*(c.index[k] for k in moving), *(v for v, _, _ in blocks), simplify(begin // self.nr, c.ranges)) if starts else None,
            {v: as_expr(x) for v, x, _ in blocks},
        )  # fmt: skip

    def _at(self, node: Node, wanted: Mapping[int, Expr], renaming: Mapping[Var, Expr]) -> Node | None:
        """A node, which this task's loops and tile numbers move, where the result's index is `wanted` in these dimensions."""
        c = self.c
        loops: dict[Var, Expr] = dict(renaming)
        divided = dict(renaming)
        tiles: set[Var] = set()
        numbers = weights_of_digits(c.index, self.value.shape, c.ranges)
        for t, weights in numbers.items():
            loops[t] = divided[t] = number_of(weights, wanted)
        digits = {k for weights in numbers.values() for k in weights}
        for k, e in wanted.items():
            if k in digits:
                continue
            here, loop = c.index[k], c.loops[k].variable
            others = [v for v in here.variables if v is not loop]
            size = dict(here.terms).get(others[0]) if len(others) == 1 else None
            if isinstance(here, Var):
                loops[here] = divided[here] = e
            elif loop in here.variables and size is not None and here is others[0] * size + loop:
                loops[loop] = e - others[0] * size
                divided.update({others[0]: e // size, loop: e % size})
                tiles.add(others[0])
            else:
                return None
        moved = Renamer(loops, c.ranges, {}).node(node)
        # A tile number by itself: the index was divided by the tile's size.
        return Renamer(divided, c.ranges, {}).node(node) if tiles & node_variables(moved, {}) else moved

    def _turned(self, tiles: Sequence[tuple[Var, int]], runs: Sequence[Loop], nest: Nest) -> Phase | None:
        """A copy as transposes in registers, where memory is consecutive along k and not along the columns."""
        node, columns = nest.stores[0].node, nest.loops[-1]
        if not isinstance(node, Load):
            return None
        place, side = self._in_place(node, [columns.variable, *(x.variable for x in runs)]), len(nest.stores)
        run = None if place is None else next((x for x in runs if place.steps[x.variable] == side), None)
        if run is None or run.extent < LEAST_TURN:
            return None
        turn = turn_of(nest, columns, run, self._buffer(node), self.c.ranges)
        return None if turn is None else Phase((*tiles, *((x.variable, x.extent) for x in runs if x is not run)), (turn,))

    def _copied(self, tiles: Sequence[tuple[Var, int]], runs: Sequence[Loop], nest: Nest) -> Phase:
        """A copy row by row."""
        shared = runs[:1] if prod(n for _, n in tiles) < FEW_PANELS and len(runs) > 1 else ()
        loops = tuple(x for x in nest.loops if x not in shared)
        return Phase((*tiles, *((x.variable, x.extent) for x in shared)), (replace(nest, loops=loops),))
