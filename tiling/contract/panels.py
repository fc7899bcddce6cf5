"""Sums of products over a register-blocked micro-kernel: which index is a row, a column, a depth, and what must be packed.

    out[b, m, n] = sum over k of left[b, m, k] * right[b, k, n]

Each factor is read where it lies if it lies well, from a window's tile, or from a packed copy. `tiling.contract.roles`
chooses m, n, k, `tiling.contract.packing` copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, inf, prod

from hlo.types import element_type
from indexing.expr import Const, Expr, Var, as_expr, minimum, simplify, substitute
from tiling.contract.operands import Apart, Place, is_narrow, window_tile
from tiling.contract.packing import FEW_BLOCKS, MUCH, Packing
from tiling.contract.roles import DIRECT_ROW_BYTES, LoweredContraction, goes_on
from tiling.contract.table import Problem
from tiling.loops.affine import address, linear
from tiling.loops.element_ir import Load, Node, loads, node_variables
from tiling.loops.ir import Block2D, Buffer, Contract, Loop, Nest, Scope, Store

__all__ = ["Contraction"]

SHALLOW = 16  # rows of a right operand that are so few that each can be a stream of its own, however far apart
LINE_BYTES, PAGE_BYTES = 64, 4096
MOST_PAGES = 96  # whose addresses the first-level translation buffer keeps: 64 to 96 on current CPUs
PANEL_SHARE = 0.5  # of the sets' ways that a panel may fill: the left operand and the result need some
NARROW_SHARE = 0.75  # the same of 16-bit elements, whose widening takes longer than the second cache
ASKED_SHARE = 0.125  # of the second cache, for a block that is asked for, as measured
FAR_SHARE = 0.5  # of the second cache: weights that take less of it may still be there, from where they were packed
LEAST_ASKING_ALONE = 40  # below, without a window, all time goes into fetching, and the processor asks for what lies in one piece
MOST_COPIED = 0.25  # of the second cache: a task's own copy of its rows that takes more comes from beyond it with each block of k
LEAST_ASKING, MOST_ASKING = 16, 256  # rows that meet a panel which is asked for while the one before is multiplied


class Contraction(Packing):
    """A contraction over one row of the table: `cost` finds the roles, `lower` makes the steps."""

    def cost(self) -> float:
        """What the micro-kernel costs here (`tiling.contract.table.Row`); infinite where it does not fit."""
        if not self.choose() or (self.kernel.together == 1 and self.merge_columns() and not self._chosen()):
            return inf
        lanes = self.c.machine.lanes(self.sums.itemsize_bytes)
        deep = [x.extent for x in self.depth_loops if x.extent > 1]
        problem = Problem(
            self.types, prod(self.value.shape) // self._columns_of_right, self.n.extent, self.depth, 0, lanes, 0,
            per_lane=self.c.machine.pairs_per_lane, one_loop=len(deep) < 2, byte_products=self.c.machine.byte_products,
            in_pairs=not self._cuts_groups or self._walks_along_rows(),
        )  # fmt: skip
        return self.row.cost(problem)

    def lower(self) -> LoweredContraction | None:
        """The steps; None where the factors do not lie as the micro-kernel needs them."""
        c, kernel = self.c, self.kernel
        if self.takes_narrow and not self._is_kept_narrow():
            return None
        self.mr, self.nr = self._block()
        self._cut_depth()
        out = self._out()
        found = self._placed() if out is not None else None
        if found is None or out is None:
            return None
        left, right = found
        columns_lower, columns_upper = self._while_flag(self.n)
        first_depth, last_depth = self._while_flag(self.k_loop)
        rows, row_step = self._rows(left, out)
        levels, (k, left_step, right_step) = self._levels(left.steps, right.steps)
        if kernel.needs_runs and left_step != 1 and not (self._takes_rows_across and row_step == 1):
            return None
        k = k if kernel.together == 1 or levels else self.filled
        if k % kernel.together or (levels and not kernel.takes_levels):
            return None
        k_block = self.k_block if self.blocks > 1 else k
        start, m, upper = self._rows_of_task(left, left_step, rows)
        apart = None
        rounds = (self.blocks > 1 or self.takes_narrow) and self.sums != self.value.tensor.element
        if rounds or (out.column_stride != 1 and not kernel.along):
            apart = self._apart(rows, m)
            out = apart.out
        around = tuple(x for x in self.around if x not in rows)
        out = self._from_first_row(out, rows)
        asks = self._asks_ahead(left, right, right_step, m, around)
        # Where rows are heads that share their keys, panels are counted by heads: one head's are every row's.
        beside = simplify(substitute(right.base, {x.variable: Const(0) for x in rows}), c.ranges)
        step = Contract(
            c.stage.op, self.value, kernel, around, upper, columns_upper, m, self.n.extent, k, k_block,
            Block2D(left.buffer, simplify(start, c.ranges), row_step, left_step),
            Block2D(right.buffer, beside, right_step * kernel.together, 1), right.panel_stride, out, self.mr, self.nr,
            self.k_start, (*left.fill_block, *right.fill_block), columns_lower, first_depth,
            last_depth if self.k_loop.variable in self.bounded else None,
            levels=levels, is_swapped=self.swapped,
            row_dimensions=self._dimensions(*self.row_loops), column_dimension=self.column_dimensions or self._dimensions(self.n),
            places=apart.places if apart else (), element=apart.element if apart else (),
            asks_ahead=asks, column_block=self._column_block() if asks else 0,
        )  # fmt: skip
        whole = (self.given.nodes[0 if self.swapped else 1],) if right.fill or right.fill_block else ()
        steps = (*right.fill, *left.fill, step, *((apart.store,) if apart else ()))
        return LoweredContraction(steps, tuple(self.new_buffers), tuple(self.prepass), self.bounded, whole)

    def _block(self) -> tuple[int, int]:
        """Rows and columns in registers: panels so narrow that a task begins with one, where some are as wide as a vector."""
        c, item_bytes = self.c, self.sums.itemsize_bytes
        rows, columns = self.row.block(c.machine, item_bytes, self.n.extent)
        first = {self.n.variable: Const(0)}
        begins = [simplify(substitute(e, first), c.ranges) for e in c.index if self.n.variable in e.variables]
        narrower = columns
        while narrower >= c.machine.lanes(item_bytes):
            if all(simplify(e % narrower, c.ranges) is Const(0) for e in begins):
                rows, columns = self.row.block(c.machine, item_bytes, narrower) if narrower < columns else (rows, columns)
                break
            narrower //= 2
        return self._for_few_rows(rows, columns)

    def _for_few_rows(self, rows: int, columns: int) -> tuple[int, int]:
        """The block, narrowed so that all rows of a window's run fit in it where few more do not: the rows of a small image.

        The panels, which come from the second cache or from beyond it, then pass once for a run and not twice.
        """
        run, narrower = self.m.extent, columns // 2
        in_window = self.kernel.adds and not self.kernel.along and sum(x.extent > 1 for x in self.depth_loops) > 1
        if not in_window or run != self._whole_extent(self.m) or not self._packs_weights():
            return rows, columns
        if narrower < 2 * self.c.machine.lanes(self.sums.itemsize_bytes) or not rows < run:
            return rows, columns
        most, _ = self.row.block(self.c.machine, self.sums.itemsize_bytes, narrower)
        if min(x.tensor.dtype.itemsize for x in (*self.c.stage.op.operands, self.value)) >= 4:  # none to be widened on the way
            vectors = narrower // self.c.machine.lanes(self.sums.itemsize_bytes)
            most = max(most, (self.c.machine.vector_registers - vectors - 2) // vectors)
        return (run, narrower) if run <= most else (rows, columns)

    def _packs_weights(self) -> bool:
        """Whether the right operand is put into panels before all tasks: it lies otherwise, and does not grow by that."""
        if not isinstance(self.right, Load) or self._is_made_inside() or self.is_split or self._is_lean or self._expands():
            return False
        return self._runs_along_depth()

    def _rows_of_task(self, left: Place, step: int, rows: Sequence[Loop]) -> tuple[Expr, int, Expr]:
        """(where the left operand of a task begins, how many rows are one run of it, the last of them)."""
        start = left.base + (self.k_start * step if self.blocks > 1 and not self.packs_left else 0)
        for x in self.row_loops:
            if x not in rows and left.steps.get(x.variable):
                start = start + x.variable * left.steps[x.variable]
        m = prod(x.extent for x in rows)
        return start, m, rows[0].upper if len(rows) == 1 else Const(m - 1)

    def _from_first_row(self, out: Block2D, rows: Sequence[Loop]) -> Block2D:
        """The result's block from the first of the rows that are one run on."""
        merged = {x.variable: Const(0) for x in rows if x is not self.m}
        return replace(out, base=simplify(substitute(out.base, merged), self.c.ranges)) if merged else out

    def _asks_ahead(self, left: Place, right: Place, row: int, m: int, around: Sequence[Loop]) -> bool:
        """Whether the next block of packed panels is asked for while one is multiplied by its rows.

        That is where it takes most of the second cache, so that not all of it is still there, and so few rows meet it that to
        wait for it takes a good part of the time. Outside of a window a task has to hold all rows: the next task would multiply
        the same block by other ones. Rows that were copied must stay in the second cache: if they come from beyond it too, there
        is no time left over in which anything more can come.
        """
        c = self.c
        if left.buffer.scope is Scope.THREAD and left.buffer.size_bytes > MOST_COPIED * c.machine.l2_bytes:
            return False
        rows = m * prod(x.extent for x in around if x.variable not in right.base.variables)
        far = right.buffer.scope is Scope.SHARED and right.buffer.size_bytes > FAR_SHARE * c.machine.l2_bytes
        in_window = sum(x.extent > 1 for x in self.depth_loops) > 1
        in_blocks = self.blocks > 1 or bool(self._column_block())  # else the next one is another task's, if there is one
        has_all_rows = all(x.extent == self._whole_extent(x) for x in self.row_loops)
        is_next = (has_all_rows and (in_blocks or bool(right.base.variables))) or (in_window and in_blocks)
        asks = bool(self.kernel.asking) and is_next and not c.suffix
        least = LEAST_ASKING if in_window else LEAST_ASKING_ALONE
        return asks and far and row == self.nr and least <= rows <= MOST_ASKING

    def _column_block(self) -> int:
        """How many columns meet all blocks of k before the next ones do, so that the block that is multiplied and the one that is
        asked for take a part of the second cache; 0 for all columns.

        Of two blocks that fill the cache each line is driven out by another one before its turn comes.
        """
        item_bytes = self._kept_element(self.right, 1).itemsize_bytes
        panel_bytes = self.k_block * (self.depth // self.k_loop.extent) * self.nr * item_bytes
        panels = -(-self.n.extent // self.nr)
        most = max(1, int(ASKED_SHARE * self.c.machine.l2_bytes) // panel_bytes)
        return 0 if most >= panels else self.nr * next(n for n in range(most, 0, -1) if panels % n == 0)

    # ------------------------------------------------------------ bounds

    def _find_bounds(self, right: Place) -> None:
        """Which of the columns' and the depth's ends are taken: whole panels of columns, and a depth of one loop."""
        c = self.c
        together = self.kernel.together
        if not self.kernel.takes_levels or (together > 1 and c.machine.tile_products > 1):
            return
        if self.n.variable in c.ends and not right.fill and not right.fill_block:
            lower, upper = c.ends[self.n.variable]
            last = minimum(upper // self.nr * self.nr + (self.nr - 1), self.n.extent - 1)
            self.bounded[self.n.variable] = simplify(lower // self.nr * self.nr, c.ranges), simplify(last, c.ranges)
        if len(c.depth) == 1 and c.depth[0].variable in c.ends and self.depth == self.filled:
            lower, upper = c.ends[c.depth[0].variable]
            if together > 1:  # whole groups of steps
                lower, upper = lower // together * together, upper // together * together + (together - 1)
            self.bounded[c.depth[0].variable] = simplify(lower, c.ranges), simplify(upper, c.ranges)

    # ------------------------------------------------------------ the result

    def _out(self) -> Block2D | None:
        c = self.c
        buffer = c.buffers[self.value]
        found = linear(address(buffer, c.index, c.ranges), (self.m.variable, self.n.variable))
        return None if found is None else Block2D(buffer, found[0], *found[1])

    def _apart(self, rows: Sequence[Loop], m: int) -> Apart:
        """Sums that are not made in their place: several blocks for a result of 16 bits, which are kept in f32 and rounded once,
        and those of columns along which the result is not consecutive."""
        c, width = self.c, self.n.extent + self.c.machine.lanes(4)
        around = [x for x in self.around if x not in rows]
        strides: dict[Var, int] = {self.n.variable: 1}
        step = width
        for x in reversed((*around, *rows)):
            strides[x.variable] = step
            step *= x.extent
        if self.is_split or c.suffix:  # places of their own: a residue's elements are not neighbours
            inside = (*around, *rows, self.n)
            index = tuple(as_expr(x.variable) if any(x is y for y in self.loops) else Const(0) for x in inside)
            origin: tuple[Expr | int, ...] = (0,) * len(inside)
        else:  # an element's place in the tile: the same index as in the result
            inside, index = self.loops, tuple(c.index)
            origin = tuple(simplify(e - x.variable, c.ranges) for e, x in zip(index, inside, strict=True))
        # Dimensions of one element lie outside of all others.
        buffer = Buffer(
            self.scratch("sums"), Scope.THREAD, self.sums, tuple(x.extent for x in inside),
            tuple(strides.get(x.variable, step) for x in inside), origin, step,
        )  # fmt: skip
        self.new_buffers.append(buffer)
        store = Store(self.value, c.buffers[self.value], c.index, Load(self.value, index, buffer))
        base = sum((x.variable * strides[x.variable] for x in around), as_expr(0))
        lower, upper = self._while_flag(self.n)  # others are not computed
        columns = replace(self.n, lower=lower, upper=upper) if self.n.variable in self.bounded else self.n
        loops = [x for x in (*around, *rows, self.n) if any(x is y for y in self.loops)]
        nest = Nest(tuple(columns if x is self.n else x for x in loops), (store,))
        of_its_own = len(index) != len(c.index) or any(a is not b for a, b in zip(index, c.index, strict=True))
        places = tuple(x.variable for x in inside) if of_its_own else ()
        return Apart(Block2D(buffer, base, width, 1), nest, places, tuple(c.index) if of_its_own else ())

    def _rows(self, left: Place, out: Block2D) -> tuple[list[Loop], int]:
        """The loops that make up the rows, outermost first, and the step between rows: neighbours are merged into one."""
        rows, step = [self.m], left.steps.get(self.m.variable, 0)
        walks, count = [(left.steps, step), (self.out_steps, out.row_stride)], self.m.extent
        others = [x for x in self.row_loops if x is not self.m] if self.m.is_whole else []
        while (x := next((x for x in others if goes_on(x, count, walks)), None)) is not None:
            others.remove(x)
            rows.insert(0, x)
            count *= x.extent
        return rows, step

    # ------------------------------------------------------------ operands

    def _placed(self) -> tuple[Place, Place] | None:
        """(left, right)."""
        right = self._right()
        if right is None:
            return None
        self._find_bounds(right)
        left = None if self._cuts_groups else self._left_in_place()
        in_groups = self.kernel.walks and not self._cuts_groups and self.depth == self.filled
        is_read_in_steps = not self.kernel.needs_runs or in_groups
        if left is None and is_read_in_steps and self.k_loop.variable not in self.bounded:
            left = self._tile(self.left, "left", self.m.variable)
        if left is not None:
            return left, right
        left, packs = self._left_packed()
        moved = {x.variable for x in self.around} & node_variables(self.left, {})
        once = self.blocks == 1 and not moved
        return (replace(left, fill=packs) if once else replace(left, fill_block=packs)), right

    def _tile(self, node: Node, role: str, other: Var) -> Place | None:
        """The operand as a window's tile, whose innermost dimension a right operand's columns must run along."""
        c = self.c
        inside = node_variables(node, {})
        local = [x for x in (*self.loops, *self.depth_loops) if x.variable in inside]
        if not all(x.is_whole and x.variable in c.ranges for x in local) or not loads([node]):
            return None
        element = self._kept_element(node, 0 if role == "left" else 1)
        stored = element_type("f32") if is_narrow(element) and not self.takes_narrow else element
        lanes = c.machine.lanes(stored.itemsize_bytes)
        place = window_tile(
            self.scratch(role), f"{role}_{self.tag}", stored, node, local, c.buffers, c.ranges, lanes,
            c.machine.l2_bytes // 2,
        )  # fmt: skip
        if place is None or (role == "right" and place.steps.get(other) != 1):
            return None
        steps = {**{x.variable: 0 for x in (*self.row_loops, *self.depth_loops)}, **place.steps}
        moved = [x.variable for x in self.around if x not in self.row_loops]
        base = sum((v * place.steps.get(v, 0) for v in moved), place.base)
        self.new_buffers.append(place.buffer)
        return replace(place, base=base, steps=steps)

    # ------------------------------------------------------------ the right operand

    def _right(self) -> Place | None:
        c = self.c
        place = self._in_place(self.right, [self.n.variable, *self._depth_variables()])
        if place is not None and self.kernel.along and place.steps[self.k_loop.variable] == 1:
            return replace(place, panel_stride=place.steps[self.n.variable])
        if place is not None and not self.kernel.needs_runs and place.steps[self.n.variable] == 1:
            item = place.buffer.element.itemsize_bytes
            row_bytes = abs([place.steps[x.variable] for x in self.depth_loops if x.extent > 1][-1]) * item
            near = row_bytes <= DIRECT_ROW_BYTES and self._stays_cached(row_bytes, item)
            made = place.buffer.scope in (Scope.THREAD, Scope.SHARED)  # a tile, or a copy for all residues
            if made or (near and not self._widens()) or self.depth <= SHALLOW or self._is_read_once():
                return replace(place, panel_stride=self.nr)
        tile = None if self.kernel.needs_runs else self._tile(self.right, "right", self.n.variable)
        if tile is not None:
            return replace(tile, panel_stride=self.nr)
        if self._is_made_inside() or self.is_split or self._expands() or not any(x is self.n for x in c.loops):
            return self._pack_in_task()
        in_task = self._pack_in_task() if self._is_lean or self._is_packed_once() else None
        return in_task or self._pack_ahead()

    def _stays_cached(self, row_bytes: int, item_bytes: int) -> bool:
        """Whether a panel that is read in place stays in the second-level cache while all rows meet it, if any does.

        Its lines reach a part of the cache's sets: rows half a page apart two in sixty-four, whatever pages lie where. A packed
        panel reaches all of them. Rows that follow each other are what a packed panel is.
        """
        width = -(-self.nr * item_bytes // LINE_BYTES) * LINE_BYTES
        part = min(1.0, width / gcd(PAGE_BYTES, row_bytes))
        rows = self.k_block * (self.depth // self.k_loop.extent)
        cache = self.c.machine.l2_bytes
        if row_bytes <= width:
            return True
        if rows * row_bytes > MOST_PAGES * PAGE_BYTES and self._uses() > FEW_BLOCKS:
            return False  # each block of rows would meet more pages than their addresses are kept for
        kept = (PANEL_SHARE if item_bytes > 2 else NARROW_SHARE) * cache
        few = self._uses() <= FEW_BLOCKS and self.n.extent * self.depth * item_bytes > MUCH * cache
        return few or not part * kept < rows * width <= kept

    def _is_read_once(self) -> bool:
        """True when there are so few rows that the right operand would be packed for one use, or few uses of what lies well."""
        lies_well = isinstance(self.right, Load) and not any(
            s > 1 and s * self._buffer(self.right).element.itemsize_bytes % 4096 == 0 for s in self._buffer(self.right).strides
        )
        return self._uses() <= (4 if lies_well else 2)
