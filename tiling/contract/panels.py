"""Sums of products over a register-blocked micro-kernel: which index is a row, a column, a depth, and what must be packed.

    out[b, m, n] = sum over k of left[b, m, k] * right[b, k, n]

Each factor is read where it lies if it lies well, from a window's tile, or from a packed copy. `tiling.contract.roles`
chooses m, n, k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from hlo.types import ElementType, element_type
from indexing.expr import Const, Expr, Interval, Var, as_expr, maximum, minimum, simplify, substitute
from tiling.contract.operands import Apart, Place, expressions, in_place, window_tile
from tiling.contract.roles import DIRECT_ROW_BYTES, MOST_WINDOW_DEPTH, ContractionContext, LoweredContraction, Roles
from tiling.loops.affine import address, linear, when
from tiling.loops.buffers import make_buffer
from tiling.loops.element_ir import Apply, Load, Node, Renamer, all_nodes, has_runtimes, loads, node_variables
from tiling.loops.ir import Block2D, Buffer, Contract, Loop, LoopKind, Nest, Phase, Scope, Step, Store, Turn

__all__ = ["Contraction", "ContractionContext", "LoweredContraction", "Place", "Right", "accumulates"]

FEW_ROWS = 8  # rows of the left operand that are read at once where a cache set holds a line of each
SHORT_RUN = 8  # steps of k that are no inner loop
SHALLOW = 16  # unless it has so few of them that each can be a stream of its own
LINE_BYTES, PAGE_BYTES = 64, 4096
PANEL_SHARE = 0.75  # of the sets' ways that a panel may fill: the left operand and the result need some
FEW_PANELS = 8  # panels up to which threads also share the outermost depth loop of packing

FLOATS = ("bf16", "f16", "f32", "f64")
INTEGERS = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")
COMPLEX = ("complex<f32>", "complex<f64>")


def accumulates(left: str, right: str, out: str) -> bool:
    """True for element types whose products the micro-kernel sums up in `out`, or in f32 for a result of 16 bits."""
    if out in FLOATS:
        narrow = all(x in FLOATS and element_type(x).bits < element_type(out).bits for x in {left, right} - {out})
        return left in FLOATS and right in FLOATS and narrow
    if out in INTEGERS:
        return all(x in INTEGERS and element_type(x).bits <= element_type(out).bits for x in (left, right))
    return out in COMPLEX and left == right == out


def _computes(node: Node) -> bool:
    """True when a node is more than one element moved."""
    return any(isinstance(n, Apply) for n in all_nodes([node]))


@dataclass(frozen=True, eq=False)
class Right:
    """A right operand in panels: what must run in the task before all products, and before each block of k."""

    block: Block2D  # without its row stride
    panel_stride: int
    steps: Mapping[Var, int]  # a depth loop's step in memory
    before: tuple[Step, ...] = ()
    inside: tuple[Nest, ...] = ()


@dataclass(frozen=True, eq=False)
class _Panels:
    """Where a right operand lies that is put into panels of columns before all tasks."""

    tiles: tuple[tuple[Var, int], ...]  # the variables that number the panels, and how many values each has
    columns: Loop  # the columns of one panel
    index: Mapping[int, Expr]  # the result's dimension -> its index at a panel and a column of it
    at: tuple[Expr, ...]  # a panel's own index
    first: tuple[Expr, ...] | None  # the panel that a task begins with; None where its columns begin inside of one

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent for _, extent in self.tiles)


class Contraction(Roles):
    def run(self) -> LoweredContraction | None:
        c = self.c
        names = [getattr(v.tensor.element, "name", "") for v in (*c.stage.op.operands, self.value)]
        if len(names) != 3 or not accumulates(*names) or not c.depth or has_runtimes(c.nodes):
            return None
        if not all(x.extent for x in c.depth):
            return None  # sums of nothing
        element = self.value.tensor.element
        assert isinstance(element, ElementType)
        self.sums = element_type("f32") if element.name in ("bf16", "f16") else element
        if not self.choose() or (self.merge_columns() and not self._chosen()):
            return None
        if self.n.extent < c.machine.lanes(self.sums.itemsize_bytes) // 2 or self.depth < 2:
            return None
        self.mr, self.nr = c.machine.micro_tile(self.sums.itemsize_bytes, self.n.extent)
        self._cut_depth()
        out = self._out()
        if out is None:
            return None
        found = self._placed()
        if found is None:
            return None
        left, before, inside, right = found
        columns_lower, columns_upper = self._while_flag(self.n)
        first_depth, last_depth = self._while_flag(self.k_loop)
        rows, row_step = self._rows(left, out)
        levels, (k, left_step, right_step) = self._levels(left.steps, right.steps)
        k_block = self.k_block if self.blocks > 1 else k
        start, m, upper = self._rows_of_task(left, left_step, rows)
        apart = None
        if (self.blocks > 1 and self.sums is not element) or out.column_stride != 1:
            apart = self._apart(rows, m)
            out = apart.out
        around = tuple(x for x in self.around if x not in rows)
        out = self._from_first_row(out, rows)
        # Where rows are heads that share their keys, panels are counted by heads: one head's are every row's.
        beside = simplify(substitute(right.block.base, {x.variable: Const(0) for x in rows}), c.ranges)
        step = Contract(
            c.stage.op, self.value, around, upper, columns_upper, m, self.n.extent, k, k_block,
            Block2D(left.buffer, simplify(start, c.ranges), row_step, left_step),
            replace(right.block, base=beside, row_stride=right_step), right.panel_stride, out, self.mr, self.nr, self.k_start,
            inside, columns_lower, first_depth, last_depth if self.k_loop.variable in self.bounded else None,
            levels=levels, is_swapped=self.swapped,
            row_dimensions=self._dimensions(*self.row_loops), column_dimension=self.column_dimensions or self._dimensions(self.n),
            places=apart.places if apart else (), element=apart.element if apart else (),
        )  # fmt: skip
        after = (apart.store,) if apart else ()
        whole = (self.given.nodes[0 if self.swapped else 1],) if right.before or right.inside else ()
        return LoweredContraction(
            (*before, step, *after), tuple(self.new_buffers), tuple(self.prepass), self.bounded, whole
        )

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

    # ------------------------------------------------------------ bounds

    def _find_bounds(self, right: Right) -> None:
        """Which of the columns' and the depth's ends are taken: whole panels of columns, and a depth of one loop."""
        c = self.c
        if self.n.variable in c.ends and not right.before and not right.inside:
            lower, upper = c.ends[self.n.variable]
            last = minimum(upper // self.nr * self.nr + (self.nr - 1), self.n.extent - 1)
            self.bounded[self.n.variable] = simplify(lower // self.nr * self.nr, c.ranges), simplify(last, c.ranges)
        if len(c.depth) == 1 and c.depth[0].variable in c.ends:
            self.bounded[c.depth[0].variable] = c.ends[c.depth[0].variable]

    def _while_flag(self, loop: Loop) -> tuple[Expr, Expr]:
        """A loop's ends, those that a mask bounds while the flag is 1."""
        ends = self.bounded.get(loop.variable)
        if ends is None or self.c.flag is None:
            return Const(0), loop.upper
        lower, upper = when(self.c.flag, ends, loop.extent)
        return lower, simplify(minimum(loop.upper, upper), self.c.ranges)

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
        name = self.scratch("sums")
        if self.is_split or c.suffix:  # places of their own: a residue's elements are not neighbours
            inside = (*around, *rows, self.n)
            index = tuple(as_expr(x.variable) for x in inside)
            origin: tuple[Expr | int, ...] = (0,) * len(inside)
        else:  # an element's place in the tile: the same index as in the result
            inside, index = self.loops, tuple(c.index)
            origin = tuple(simplify(e - x.variable, c.ranges) for e, x in zip(index, inside, strict=True))
        # Dimensions of one element lie outside of all others.
        buffer = Buffer(
            name, Scope.THREAD, self.sums, tuple(x.extent for x in inside),
            tuple(strides.get(x.variable, step) for x in inside), origin, step,
        )  # fmt: skip
        self.new_buffers.append(buffer)
        store = Store(self.value, c.buffers[self.value], c.index, Load(self.value, index, buffer))
        base: Expr = Const(0)
        for x in around:
            base = base + x.variable * strides[x.variable]
        nest = Nest(tuple(x for x in (*around, *rows, self.n) if any(x is y for y in self.loops)), (store,))
        of_its_own = len(index) != len(c.index) or any(a is not b for a, b in zip(index, c.index, strict=True))
        places = tuple(x.variable for x in inside) if of_its_own else ()
        return Apart(Block2D(buffer, base, width, 1), nest, places, tuple(c.index) if of_its_own else ())

    def _rows(self, left: Place, out: Block2D) -> tuple[list[Loop], int]:
        """The loops that make up the rows, outermost first, and the step between rows: neighbours are merged into one."""
        rows, step, out_step = [self.m], left.steps.get(self.m.variable, 0), out.row_stride
        if self.m.upper is not Const(self.m.extent - 1):
            return rows, step
        grown = True
        while grown:
            grown = False
            m = prod(x.extent for x in rows)
            for x in self.row_loops:
                if x in rows or x.upper is not Const(x.extent - 1) or x.variable not in left.steps:
                    continue
                here, there = left.steps[x.variable], self.out_steps[x.variable]
                if here == step * m and there == out_step * m:
                    rows, grown = [x, *rows], True
                    break
        return rows, step

    # ------------------------------------------------------------ operands

    def _placed(self) -> tuple[Place, tuple[Step, ...], tuple[Nest, ...], Right] | None:
        """(left, steps before, packs before each block of k, right)."""
        right = self._right()
        if right is None:
            return None
        self._find_bounds(right)
        left = self._left_in_place()
        if left is None and self.k_loop.variable not in self.bounded:
            left = self._tile(self.left, "left", self.m.variable)
        if left is not None:
            return left, (*right.before, *left.fill), right.inside, right
        left, packs = self._left_packed()
        around = {x.variable for x in self.around}
        if self.blocks == 1 and not around & node_variables(self.left, {}):
            return left, (*right.before, *packs), right.inside, right
        return left, right.before, (*packs, *right.inside), right

    def _depth_variables(self) -> list[Var]:
        return [x.variable for x in self.depth_loops]

    def _is_narrow(self, element: ElementType) -> bool:
        return element.name in ("bf16", "f16")

    def _left_in_place(self) -> Place | None:
        c, node = self.c, self.left
        if not isinstance(node, Load):
            return None
        buffer = self._buffer(node)
        place = in_place(node, buffer, [*(x.variable for x in self.row_loops), *self._depth_variables()], c.ranges)
        if place is None or self._is_narrow(buffer.element):
            return None
        row, item = place.steps[self.m.variable], buffer.element.itemsize_bytes
        last = [place.steps[x.variable] for x in self.depth_loops if x.extent > 1][-1]
        if last == 1:
            # Rows a power of two apart share their cache sets: a register block of few rows still fits its set's ways.
            keeps = self.mr <= FEW_ROWS or row * item % 2048 != 0 or buffer.scope is Scope.THREAD or self.depth * item <= 1024
        else:
            keeps = row == 1 and (buffer.scope is Scope.THREAD or self.m.extent <= 4 * self.mr)
        if not keeps:
            return None
        return place

    def _tile(self, node: Node, role: str, other: Var) -> Place | None:
        """The operand as a window's tile, whose innermost dimension a right operand's columns must run along."""
        c = self.c
        memo: dict[Node, frozenset[Var]] = {}
        inside = node_variables(node, memo)
        local = [x for x in (*self.loops, *self.depth_loops) if x.variable in inside]
        if any(x.lower is not Const(0) or x.upper is not Const(x.extent - 1) for x in local):
            return None
        read = next(iter(loads([node])), None)
        if read is None or any(x.variable not in c.ranges for x in local):
            return None
        element = self._kept_element(node, 0 if role == "left" else 1)
        stored = element_type("f32") if self._is_narrow(element) else element
        lanes = c.machine.lanes(stored.itemsize_bytes)
        place = window_tile(
            self.scratch(role), f"{role}_{self.tag}", stored, node, local, c.buffers, c.ranges, lanes,
            c.machine.l2_bytes // 2,
        )  # fmt: skip
        if place is None:
            return None
        wanted = [x.variable for x in (*self.row_loops, *self.depth_loops)]
        steps = {**dict.fromkeys(wanted, 0), **place.steps}
        base = place.base
        for x in self.around:
            if x not in self.row_loops:
                base = base + x.variable * place.steps.get(x.variable, 0)
        if role == "right" and place.steps.get(other) != 1:
            return None
        self.new_buffers.extend(place.made)
        return Place(place.buffer, base, steps, place.fill, place.made)

    def _left_packed(self) -> tuple[Place, tuple[Nest, ...]]:
        c = self.c
        element = self._kept_element(self.left, 0)
        element = self.sums if self._is_narrow(element) else element
        pad = c.machine.lanes(element.itemsize_bytes)
        self.packs_left = self.blocks > 1  # then `left` holds one block
        depth = self.depth // self.k_loop.extent * self.k_block
        loops, flat, node = self._block_of(self.left)
        m = as_expr(self.m.variable)
        if self._walks_along_rows():
            width = -(-self.m.extent // pad) * pad + (pad if self.m.extent * element.itemsize_bytes % 512 == 0 else 0)
            shape, index, row, unit = (depth, self.m.extent), (flat, m), 1, width
        else:
            width = -(-depth // pad) * pad + pad
            shape, index, row, unit = (self.m.extent, depth), (m, flat), width, 1
        buffer = make_buffer(self.scratch("left"), Scope.THREAD, element, shape, (shape[0], width), (0, 0))
        self.new_buffers.append(buffer)
        steps = {self.m.variable: row, **self._row_major(unit, self.k_block)}
        return Place(buffer, Const(0), steps, (), (buffer,)), (Nest((self.m, *loops), (Store(None, buffer, index, node),)),)

    def _block_of(self, node: Node) -> tuple[tuple[Loop, ...], Expr, Node]:
        """(loops, place counted in rows of k, node) of an operand over one block of k."""
        c = self.c
        last: Expr = Const(self.k_block - 1)
        renaming: dict[Var, Expr] = {self.k_loop.variable: as_expr(self.k)}
        if self.blocks > 1:
            last = simplify(minimum(last, self.k_loop.extent - 1 - self.k_start), c.ranges)
            renaming = {self.k_loop.variable: self.k_start + self.k}
        first: Expr = Const(0)
        if self.k_loop.variable in self.bounded:
            lower, upper = self._while_flag(self.k_loop)
            first = simplify(maximum(0, lower - self.k_start), c.ranges)
            last = simplify(minimum(last, upper - self.k_start), c.ranges)
        inner = Loop(self.k, first, last, self.k_block)
        loops = tuple(
            inner if x is self.k_loop else replace(x, kind=LoopKind.PARALLEL) for x in self.depth_loops if x.extent > 1
        )
        flat = substitute(self._flat(self.k_block), {self.k_loop.variable: self.k})
        return loops, flat, Renamer(renaming, c.ranges, {}).node(node)

    def _walks_along_rows(self) -> bool:
        """True when the left operand lies transposed: consecutive along m, and not along any depth loop."""
        read = next(iter(loads([self.left])), None)
        if read is None:
            return False
        variables = [self.m.variable, *self._depth_variables()]
        found = linear(address(self._buffer(read), read.index, self.c.ranges), variables)
        return found is not None and found[1][0] == 1 and 1 not in found[1][1:]

    # ------------------------------------------------------------ the right operand

    def _right(self) -> Right | None:
        c, node = self.c, self.right
        wanted = [self.n.variable, *self._depth_variables()]
        if isinstance(node, Load):
            buffer = self._buffer(node)
            place = in_place(node, buffer, wanted, c.ranges)
            if place is not None and place.steps[self.n.variable] == 1:
                steps = [place.steps[x.variable] for x in self.depth_loops if x.extent > 1]
                item = buffer.element.itemsize_bytes
                near = abs(steps[-1]) * item <= DIRECT_ROW_BYTES and self._stays_cached(abs(steps[-1]) * item, item)
                made = buffer.scope in (Scope.THREAD, Scope.SHARED)  # a tile, or a copy for all residues
                if made or near or self.depth <= SHALLOW or self._is_read_once():
                    return Right(Block2D(buffer, place.base, 0, 1), self.nr, place.steps)
        tile = self._tile(node, "right", self.n.variable)
        if tile is not None:
            return Right(Block2D(tile.buffer, tile.base, 0, 1), self.nr, tile.steps, tile.fill)
        if self._is_made_inside() or self.is_split or self._expands():
            return self._pack_in_task()
        return self._pack_ahead()

    def _stays_cached(self, row_bytes: int, item_bytes: int) -> bool:
        """Whether a panel that is read in place stays in the second-level cache while all rows are multiplied with it.

        Its lines reach a part of the cache's sets: rows half a page apart two in sixty-four, whatever pages lie where.
        """
        width = -(-self.nr * item_bytes // LINE_BYTES) * LINE_BYTES
        part = min(1.0, width / gcd(PAGE_BYTES, row_bytes))
        rows = self.k_block * (self.depth // self.k_loop.extent)
        return rows * width <= PANEL_SHARE * part * self.c.machine.l2_bytes

    def _is_made_inside(self) -> bool:
        """True when the right operand is computed by the task itself."""
        return any(self.c.is_member(x.value) for x in loads([self.right]))

    def _is_read_once(self) -> bool:
        """True when there are so few rows that the right operand would be packed for one use, or few uses of what lies well."""
        shape = self.value.shape
        lies_well = isinstance(self.right, Load) and not any(
            s > 1 and s * self._buffer(self.right).element.itemsize_bytes % 4096 == 0 for s in self._buffer(self.right).strides
        )
        return prod(shape) <= (4 if lies_well else 2) * self.mr * prod(n for n, e in zip(shape, self.c.index, strict=True)
                                                 if any(v in self.in_right for v in e.variables))  # fmt: skip

    def _expands(self) -> bool:
        """True when packing for all tasks would make a window's operand much larger than what it is read from."""
        c = self.c
        depth = set(self._depth_variables())
        if not any(depth & {*e.variables} and {*e.variables} - depth for e in expressions(self.right)):
            return False
        read = sum(x.value.tensor.size_elems for x in loads([self.right]))
        shape = self.value.shape
        moved = prod(shape[k] for k, e in enumerate(c.index) if any(v in self.in_right for v in e.variables))
        return moved * self.depth > 2 * read

    def _pack_in_task(self) -> Right | None:
        """The right operand's panels are made by each task; where loops around the product move it, for each block of k."""
        c = self.c
        moved = any(x.variable in self.in_right for x in self.around)
        if not moved and self.depth > 4 * MOST_WINDOW_DEPTH:
            return None
        element = self._kept_element(self.right, 1)
        panels = -(-self.n.extent // self.nr)
        depth = self.depth // self.k_loop.extent * self.k_block if moved else self.depth
        shape = (panels, depth, self.nr)
        buffer = make_buffer(self.scratch("right"), Scope.THREAD, element, shape, shape, (0, 0, 0))
        self.new_buffers.append(buffer)
        n = as_expr(self.n.variable)
        if not moved:
            loops = tuple(replace(x, kind=LoopKind.PARALLEL) for x in self.depth_loops if x.extent > 1)
            nest = Nest((*loops, self.n), (Store(None, buffer, (n // self.nr, self._flat(), n % self.nr), self.right),))
            return Right(Block2D(buffer, Const(0), 0, 1), depth * self.nr, self._row_major(self.nr), (nest,))
        block_loops, flat, node = self._block_of(self.right)
        store = Store(None, buffer, (n // self.nr, flat, n % self.nr), node)
        # A window's short rows stay outside: the columns make vectors, also where the window moves by several elements.
        nest = Nest((*block_loops, self.n), (store,), order_is_fixed=bool(block_loops) and block_loops[-1].extent < SHORT_RUN)
        # The address of a block's first row counts from the block, not from the first k of all.
        base = simplify(self.k_start * (-self.nr), c.ranges) if self.blocks > 1 else Const(0)
        steps = self._row_major(self.nr, self.k_block)
        return Right(Block2D(buffer, base, 0, 1), depth * self.nr, steps, (), (nest,))

    def _kept_element(self, node: Node, side: int) -> ElementType:
        """The type of an operand's copy: of what is read where the copy only moves it, of the operand where it is computed."""
        read = next(iter(loads([node])), None)
        if read is not None and not _computes(node):
            return self._buffer(read).element
        element = self.c.stage.op.operands[1 - side if self.swapped else side].tensor.element
        return element if isinstance(element, ElementType) and not self._is_narrow(element) else self.sums

    def _pack_ahead(self) -> Right | None:
        """The right operand comes from memory: it is put into panels once, before all tasks."""
        c, panels = self.c, self._panels()
        runs = []
        renaming: dict[Var, Expr] = {}
        for number, x in enumerate(self.depth_loops):
            v = Var(f"kp{number}_{self.tag}")
            c.ranges[v] = Interval(0, x.extent - 1)
            renaming[x.variable] = as_expr(v) if x.extent > 1 else Const(0)
            if x.extent > 1:
                runs.append(Loop(v, Const(0), Const(x.extent - 1), x.extent))
        node = self._at(self.right, panels.index, renaming)
        if node is None:
            return self._pack_in_task()
        if panels.first is None:
            return None
        extents = (*panels.shape, self.depth, self.nr)
        buffer = make_buffer(
            self.scratch("right"), Scope.SHARED, self._kept_element(self.right, 1),
            extents, extents, (0,) * len(extents),
        )  # fmt: skip
        self.new_buffers.append(buffer)
        at = (*panels.at, substitute(self._flat(), renaming), as_expr(panels.columns.variable))
        turned = self._turned(panels.tiles, runs, panels.columns, node, buffer, at)
        few = prod(panels.shape) < FEW_PANELS and len(runs) > 1
        tiles = (*panels.tiles, *((x.variable, x.extent) for x in runs[:1] if few))
        nest = Nest((*runs[int(few) :], panels.columns), (Store(None, buffer, at, node),))
        self.prepass.append(turned or Phase(tiles, (nest,)))
        base = address(buffer, (*panels.first, Const(0), Const(0)), c.ranges)
        return Right(Block2D(buffer, base, 0, 1), self.depth * self.nr, self._row_major(self.nr))

    def _panels(self) -> _Panels:
        """The right operand in panels of `nr` columns, for each value of the other indices that move it."""
        c, shape = self.c, self.value.shape
        column = next(k for k, x in enumerate(c.loops) if x is self.n)
        # Dimensions whose index moves the right operand, through a tile number or a loop.
        moving = [
            k
            for k, e in enumerate(c.index)
            if k != column and any(v in self.in_right for v in e.variables) and shape[k] > 1
        ]
        count = -(-shape[column] // self.nr)
        p, j = Var(f"p_{self.tag}"), Var(f"j_{self.tag}")
        tiles = (*((Var(f"b{k}_{self.tag}"), shape[k]) for k in moving), (p, count))
        c.ranges.update({v: Interval(0, extent - 1) for v, extent in (*tiles, (j, self.nr))})
        index = {k: as_expr(v) for k, (v, _) in zip(moving, tiles, strict=False)}
        last = simplify(minimum(self.nr - 1, shape[column] - 1 - p * self.nr), c.ranges)
        begin = simplify(substitute(c.index[column], {self.n.variable: Const(0)}), c.ranges)
        starts = simplify(begin % self.nr, c.ranges) is Const(0)
        return _Panels(
            tiles, Loop(j, Const(0), last, self.nr, LoopKind.PARALLEL), {**index, column: p * self.nr + j},
            (*index.values(), as_expr(p)),
            (*(c.index[k] for k in moving), simplify(begin // self.nr, c.ranges)) if starts else None,
        )  # fmt: skip

    def _at(self, node: Node, wanted: Mapping[int, Expr], renaming: Mapping[Var, Expr]) -> Node | None:
        """A node, which this task's loops and tile numbers move, where the result's index is `wanted` in these dimensions."""
        c = self.c
        loops: dict[Var, Expr] = dict(renaming)
        divided = dict(renaming)
        tiles: set[Var] = set()
        for k, e in wanted.items():
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

    def _turned(
        self, tiles: Sequence[tuple[Var, int]], runs: Sequence[Loop], columns: Loop, node: Node, buffer: Buffer,
        at: tuple[Expr, ...],
    ) -> Phase | None:  # fmt: skip
        """Packing by transposes in registers, where memory is consecutive along k and not along the columns."""
        c = self.c
        if not isinstance(node, Load) or self._buffer(node).element != buffer.element:
            return None
        source, wanted = self._buffer(node), [columns.variable, *(x.variable for x in runs)]
        place = in_place(node, source, wanted, c.ranges)
        run = None if place is None else next((x for x in runs if place.steps[x.variable] == 1), None)
        if place is None or run is None or place.steps[columns.variable] < 2 or run.extent < 8:
            return None
        others = [x for x in runs if x is not run]
        base: Expr = place.base
        for x in others:
            base = base + x.variable * place.steps[x.variable]
        target = linear(address(buffer, at, c.ranges), (run.variable, columns.variable))
        if target is None or target[1][1] != 1:
            return None
        turn = Turn(node.value, columns, run, Block2D(source, base, place.steps[columns.variable], 1),
                    Block2D(buffer, target[0], target[1][0], 1))  # fmt: skip
        return Phase((*tiles, *((x.variable, x.extent) for x in others)), (turn,))
