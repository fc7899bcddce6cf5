"""Which loop of a contraction is a row, a column, a depth, and in which order products are summed.

The roles follow from the reads and from the result: n is the loop along which the result is consecutive, and the factor that it
moves is the right one; m moves the other factor alone, b both. The blocks of k follow from the shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from hlo.module import Value
from hlo.types import ElementType
from indexing.expr import Const, Expr, Interval, Var, as_expr
from tiling.contract.digits import dimensions_that_move
from tiling.contract.operands import Place, in_place, split_by_groups
from tiling.contract.table import Row, Types
from tiling.loops.affine import address, linear
from tiling.loops.element_ir import Load, Node, Renamer, loads, node_variables
from tiling.loops.ir import Buffer, Loop, LoopKind, Phase, Scope, Step
from tiling.loops.names import Names
from tiling.loops.stage import Stage
from tiling.loops.variables import counted
from tiling.machine import Machine
from tiling.passes.unrolling.write_out_sums import MOST_SIDE_BY_SIDE

__all__ = ["ContractionContext", "LoweredContraction", "Roles", "fills_better", "goes_on", "share_of_lanes", "whole_extent"]

DIRECT_ROW_BYTES = 2048  # a right operand with rows further apart than this is packed
MANY_ROWS = 12  # from here on a loop of rows fills blocks of registers
LEAST_WINDOW_DEPTH = 128  # steps of k from which one row by a window runs over the micro-kernel


@dataclass(frozen=True, eq=False)
class LoweredContraction:
    """The steps of a task, the scratch that they need, and the phases that must run before all tasks."""

    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    prepass: tuple[Phase, ...]
    bounded: Mapping[Var, tuple[Expr, Expr]] = field(default_factory=dict)  # the loops that a mask bounds, and their ends
    whole: tuple[Node, ...] = ()  # factors that the task packs whole
    note: str = ""  # why the micro-kernel was taken, or a faster one was not


@dataclass(eq=False)
class ContractionContext:
    """What the fusion around a contraction knows: its loops, the result's index, and the factors' nodes.

    `ranges` are the fusion's own: what is lowered adds its variables there, as it takes names from `names`.
    `ends` are those of the columns' and the depth's loops that are needed while `flag` is 1. With `goes_on` the products are
    added to what is in the result's buffer.
    """

    stage: Stage
    loops: tuple[Loop, ...]
    index: tuple[Expr, ...]
    depth: tuple[Loop, ...]
    nodes: tuple[Node, ...]
    buffers: Mapping[Value, Buffer]
    ranges: dict[Var, Interval]
    machine: Machine
    names: Names
    is_member: Callable[[Value], bool]
    flag: Var | None = None
    ends: Mapping[Var, tuple[Expr, Expr]] = field(default_factory=dict)
    goes_on: bool = False
    suffix: str = ""  # tells several contractions for one value apart: of loops' and buffers' names
    blocks: tuple[tuple[Var, int], ...] = ()  # numbers of blocks of a loop around all of it, and how many there are
    summed: Mapping[Var, Expr] = field(default_factory=dict)  # and the whole one's depth variables in this one's


class Roles:
    """The roles of a contraction's loops for a micro-kernel, whose products are summed in `sums`; `choose` finds them."""

    def __init__(self, c: ContractionContext, row: Row, types: Types, sums: ElementType) -> None:
        self.c = self.given = c
        self.row, self.kernel, self.types, self.sums = row, row.kernel, types, sums
        self.value = c.stage.values[0]
        self.loops = self.whole_loops = c.loops
        self.members: dict[Var, Loop] = {}  # the loop through a group's members -> the loop that was cut into groups
        self.new_buffers: list[Buffer] = []
        self.prepass: list[Phase] = []
        self.is_split = False
        self.column_dimensions: tuple[int, ...] = ()  # of the result, where columns are more than one loop, or a part of one
        self.bounded: dict[Var, tuple[Expr, Expr]] = {}
        self.tag = c.names.stage(c.stage) + c.suffix

    def scratch(self, role: str) -> str:
        """A name for scratch of this contraction."""
        return self.c.names.scratch(self.value, role + self.c.suffix)

    def _dimensions(self, *loops: Loop) -> tuple[int, ...]:
        """The result's dimensions that loops run along; none for the parts of a cut loop."""
        return tuple(k for k, x in enumerate(self.whole_loops) if any(x is y for y in loops))

    def choose(self) -> bool:
        """Chooses the rows' and the columns' loop; False where there are none. Rows of a group are better than one row."""
        kept = self.c, self.loops, self.is_split
        if self._chosen(one_row=False) or (self._split() and self._chosen(one_row=False)):
            return True
        self.c, self.loops, self.is_split = kept
        return self._chosen() or (self._split() and self._chosen())

    def merge_columns(self) -> bool:
        """Makes one loop of few columns and the loop around them, where memory goes on from one to the other in both blocks.

        An image of 7 x 7 elements then fills its vectors: it is one row of 49 columns.
        """
        c, n = self.c, self.n
        lanes = c.machine.lanes(self.sums.itemsize_bytes)
        few = n.extent % lanes and n.extent <= 2 * lanes
        if c.ends or not few or self.out_steps[n.variable] != 1 or not isinstance(self.right, Load):
            return False
        depth = [x.variable for x in self.depth_loops if x.extent > 1]
        for x in self.around:
            place = self._in_place(self.right, [x.variable, n.variable, *depth])
            if place is None or not (x.is_whole and n.is_whole) or not depth or x in self.row_loops:
                continue
            steps = place.steps
            goes_on = self.out_steps[x.variable] == steps[x.variable] == n.extent and steps[n.variable] == 1
            if not goes_on or abs(steps[depth[-1]]) * place.buffer.element.itemsize_bytes > DIRECT_ROW_BYTES:
                continue
            both = counted(f"m{n.variable.name}", x.extent * n.extent, c.ranges)
            self.column_dimensions = self._dimensions(n)
            loops = tuple(both if y is n else y for y in self.loops if y is not x)
            self._run_over(loops, {x.variable: both.variable // n.extent, n.variable: both.variable % n.extent})
            return True
        return False

    def _addressed(self) -> list[frozenset[Var]] | None:
        """The variables that each factor reads, once the result's address has its steps; None where it has none."""
        c, memo = self.c, dict[Node, frozenset[Var]]()
        found = linear(address(c.buffers[self.value], c.index, c.ranges), [x.variable for x in self.loops])
        if found is None:
            return None
        self.out_steps = dict(zip((x.variable for x in self.loops), found[1], strict=True))
        return [node_variables(n, memo) for n in c.nodes]

    def _chosen(self, one_row: bool = True) -> bool:
        c = self.c
        reads = self._addressed()
        if reads is None:
            return False
        alone = [
            [x for x in self.loops if x.extent > 1 and x.variable in reads[k] and x.variable not in reads[1 - k]] for k in (0, 1)
        ]
        columns = [x for x in (*alone[0], *alone[1]) if self.out_steps[x.variable] == 1]
        better = self._better_columns(alone, columns, one_row)
        if not columns and better is None:
            return False
        n = better or columns[0]
        swapped = n in alone[0]
        rows = alone[1 if swapped else 0]
        if not rows and not one_row:
            return False
        if not rows:
            # One row by a window that is read again and again: still better kept in registers than summed in memory.
            read = next(iter(loads([c.nodes[0 if swapped else 1]])), None)
            steps = {} if read is None else dict(address(self._buffer(read), read.index, c.ranges).terms)
            is_deep = sum(x.extent > 1 for x in c.depth) > 1 and prod(x.extent for x in c.depth) >= LEAST_WINDOW_DEPTH
            if not is_deep or steps.get(n.variable) != 1:
                return False
            rows = [self._single("row")]
        if n.variable in self.members:
            self.column_dimensions = self._dimensions(self.members[n.variable])
        self._take(self._row_loop(rows, self.c.nodes[1 if swapped else 0]), n, rows, swapped, reads)
        return True

    def _row_loop(self, rows: Sequence[Loop], left: Node) -> Loop:
        """The loop that rows begin with, innermost: the longest one.

        Of loops of few rows, which leave blocks of registers half empty, the one that makes the most of them with those that go
        on around it in both factors. (Of many rows the factor would leave the nearest cache between two blocks of columns.)
        """
        longest = max(rows, key=lambda x: x.extent)
        if longest.extent >= MANY_ROWS:
            return longest
        place = self._in_place(left, [x.variable for x in rows])

        def together(x: Loop) -> int:
            count = x.extent
            if place is not None and x.is_whole:
                walks = [(of, of[x.variable]) for of in (place.steps, self.out_steps)]
                others = [y for y in rows if y is not x]
                while (y := next((y for y in others if goes_on(y, count, walks)), None)) is not None:
                    others.remove(y)
                    count *= y.extent
            return count

        return max(rows, key=lambda x: (together(x), x.extent))

    def _take(self, m: Loop, n: Loop, rows: list[Loop], swapped: bool, reads: Sequence[frozenset[Var]]) -> None:
        """Gives the loops their roles; with `swapped` factors the second one is the left."""
        nodes = self.c.nodes
        self.m, self.n, self.row_loops, self.swapped = m, n, rows, swapped
        self.left, self.right = (nodes[1], nodes[0]) if swapped else (nodes[0], nodes[1])
        self.in_right = reads[0 if swapped else 1]
        self.around = tuple(x for x in self.loops if x is not m and x is not n and not x.runs_once)
        self.depth = prod(x.extent for x in self.c.depth)
        self.depth_loops = self._depth_order()
        self._flatten()

    def _single(self, role: str) -> Loop:
        """A loop of one iteration, for a side that has no loop of its own."""
        loop = counted(f"one_{role}_{self.tag}", 1, self.c.ranges)
        self.out_steps[loop.variable] = 0
        return loop

    def _better_columns(self, alone: Sequence[Sequence[Loop]], columns: Sequence[Loop], one_row: bool) -> Loop | None:
        """The columns where the result is not consecutive along them, or along too few: its sums are put into place afterwards.

        By the result's whole shape, so that tiles make no difference; None where the result's own columns fill the vectors.
        """
        c = self.c
        lanes = c.machine.lanes(self.sums.itemsize_bytes)

        def filled(x: Loop) -> float:
            return share_of_lanes(self._whole_extent(x), lanes)

        def lies(x: Loop) -> tuple[bool, bool, bool, int, int]:
            """(a residue's window in place, consecutive in its factor, read in place, extent, nearness in the result).

            The less it costs to lay out panels, and to put sums into place, the better.

            A residue's window is of this task. Where it is consecutive along several vectors it is a panel as it lies, if tasks
            keep the other factor in the second cache; else rows of it are read in place, and the other factor's panels are made
            once for all. A task too large for a copy of its windows has the columns of smaller ones.
            """
            side = 0 if x in alone[0] else 1
            node, extent = c.nodes[side], self._whole_extent(x)
            place = self._in_place(node, [x.variable, *(d.variable for d in c.depth)])
            is_consecutive = place is not None and place.steps[x.variable] == 1
            near = -abs(self.out_steps[x.variable]) if c.suffix else 0
            if c.suffix and isinstance(node, Load) and self._buffer(node).scope is Scope.THREAD:
                kept = sum(n.value.tensor.size_bytes for n in loads([c.nodes[1 - side]])) <= c.machine.l2_bytes // 2
                return is_consecutive and kept and extent >= 2 * lanes, is_consecutive, False, 0, near
            return False, is_consecutive, place is not None, min(extent, 4 * lanes), near

        if c.ends:
            return None  # what a mask leaves out is left out in place
        if prod(x.extent for x in c.depth) <= MOST_SIDE_BY_SIDE and any(self._fills_with_groups(x, lanes) for x in columns):
            return None
        known = max((filled(x) for x in columns), default=0.0)
        others = [
            x for k in (0, 1) for x in alone[k]
            if x not in columns and (alone[1 - k] or (one_row and c.suffix))
            and (fills_better(filled(x), known) or (c.suffix and not columns and filled(x) == 0.5))
        ]  # fmt: skip
        # Few columns of a result are better than turning a whole factor.
        found = [x for x in others if known < 0.5 or lies(x)[1]]
        return max(found, key=lies, default=None)

    def _fills_with_groups(self, member: Loop, lanes: int) -> bool:
        """Whether all groups' members fill the vectors side by side: short sums go lane by lane (`tiling.contract.lanes`)."""
        whole = self.members.get(member.variable)
        return whole is not None and not fills_better(1.0, share_of_lanes(self._whole_extent(whole), lanes))

    def _whole_extent(self, loop: Loop) -> int:
        """A loop's extent over the whole result, where it is not a part of a cut one: a residue's over every so many of it."""
        found = self._dimensions(loop)
        return whole_extent(self.c, found[0], loop) if found else loop.extent

    def _split(self) -> bool:
        """Cuts a loop that runs through groups (one factor reads its index divided) into groups and their members."""
        c = self.c
        for x in self.loops:
            parts = split_by_groups(x, c.nodes, c.ranges) if x.extent > 1 else None
            if parts is None:
                continue
            g, j = parts
            loops = tuple(part for y in self.loops for part in (parts if y is x else (y,)))
            self._run_over(loops, {x.variable: g.variable * j.extent + j.variable})
            self.members[j.variable] = x
            return True
        return False

    def _run_over(self, loops: tuple[Loop, ...], at: Mapping[Var, Expr]) -> None:
        """The contraction over loops in place of others, whose variables `at` gives in terms of theirs."""
        rename, c = Renamer(at, self.c.ranges, {}), self.c
        self.loops, self.is_split = loops, True
        self.c = replace(c, loops=loops, index=rename.index(c.index), nodes=tuple(map(rename.node, c.nodes)))

    def _depth_order(self) -> tuple[Loop, ...]:
        """The depth loops, the one with the smallest step in the left operand last: a flat depth index walks along memory."""
        c = self.c
        found = next(iter(loads([self.left])), None)
        if found is None or len(c.depth) < 2:
            return c.depth
        steps = dict(address(self._buffer(found), found.index, c.ranges).terms)
        return tuple(sorted(c.depth, key=lambda x: -abs(steps.get(x.variable, 0))))

    def _flatten(self) -> None:
        """Makes one loop of several depth loops that both factors walk through as one run of memory."""
        c = self.c
        loops = [x for x in self.depth_loops if x.extent > 1]
        self.flat: dict[Var, Expr] = {x.variable: as_expr(x.variable) if x.extent > 1 else Const(0) for x in self.depth_loops}
        variables = [x.variable for x in loops]
        steps = []
        for node in (self.left, self.right) if len(loops) > 1 else ():
            place = self._in_place(node, variables)
            if place is None or place.buffer.scope is Scope.THREAD:
                return
            steps.append([place.steps[v] for v in variables])
        if not steps or any(s[k] != s[k + 1] * loops[k + 1].extent for s in steps for k in range(len(loops) - 1)):
            return
        all_of_k = counted(f"kf_{self.tag}", self.depth, c.ranges, LoopKind.REDUCTION)
        self.flat = self._depth_index(as_expr(all_of_k.variable))  # of the loops that there are until here
        self.depth_loops = (all_of_k,)
        rename = Renamer(self.flat, c.ranges, {})
        self.left, self.right = rename.node(self.left), rename.node(self.right)

    def _cut_depth(self) -> None:
        """Blocks of k, from the shapes alone: sums are made in the same order whatever the tiles are."""
        self.k_loop = [x for x in self.depth_loops if x.extent > 1][-1]
        k = self.k_loop.extent
        self.k_block = self._size_of_blocks(k)
        self.blocks = -(-k // self.k_block)
        self.k_start, self.k = Var(f"k0_{self.tag}"), Var(f"k_{self.tag}")
        self.c.ranges[self.k_start] = Interval(0, (self.blocks - 1) * self.k_block)
        self.c.ranges[self.k] = Interval(0, self.k_block - 1)
        self.packs_left = False

    def _size_of_blocks(self, k: int) -> int:
        around = self.depth // k
        if self.depth <= (self.row.window_block if around > 1 else self.row.depth_block):
            return k
        blocks = max(1, min(-(-self.depth // self.row.depth_block), k // 64))
        size = k // blocks + 8 if around == 1 else -(-k // blocks) + 7
        return min(k, size // 8 * 8)

    @property
    def filled(self) -> int:
        """The depth in whole groups of the steps of k that the micro-kernel takes together."""
        return -(-self.depth // self.kernel.together) * self.kernel.together

    def _depth_variables(self) -> list[Var]:
        return [x.variable for x in self.depth_loops]

    def _buffer(self, load: Load) -> Buffer:
        return load.buffer or self.c.buffers[load.value]

    def _in_place(self, node: Node, wanted: Sequence[Var]) -> Place | None:
        """A node that is read where it lies, by steps of the wanted variables; None for any other."""
        return in_place(node, self._buffer(node), wanted, self.c.ranges) if isinstance(node, Load) else None

    @property
    def _columns_of_right(self) -> int:
        """How many columns of the right operand there are: of the result's dimensions that move it."""
        return prod(n for n, moves in zip(self.value.shape, self._moves_right, strict=True) if moves)

    @property
    def _moves_right(self) -> tuple[bool, ...]:
        """For each of the result's dimensions whether its index moves the right operand."""
        return dimensions_that_move(self.right, self.in_right, self.c.index, self.value.shape, self.c.ranges)

    # ------------------------------------------------------------ the depth

    def _levels(
        self, left: Mapping[Var, int], right: Mapping[Var, int]
    ) -> tuple[tuple[tuple[int, int, int], ...], tuple[int, int, int]]:
        """The depth loops as (count, step in left, step in right), merged where memory goes on; the last one apart."""
        merged: list[tuple[int, int, int]] = []
        for x in self.depth_loops:
            if x.extent == 1:
                continue
            here = (x.extent, left[x.variable], right[x.variable])
            whole = self.blocks == 1 or x is not self.k_loop
            if whole and merged and merged[-1][1:] == (here[0] * here[1], here[0] * here[2]):
                here = (merged.pop()[0] * here[0], *here[1:])
            merged.append(here)
        return tuple(merged[:-1]), merged[-1]

    def _depth_index(self, k: Expr) -> dict[Var, Expr]:
        """The depth variables in terms of one flat index."""
        found: dict[Var, Expr] = {}
        step = 1
        for loop in reversed(self.depth_loops):
            part = k // step
            found[loop.variable] = part % loop.extent if step * loop.extent < self.depth else part
            step *= loop.extent
        return found

    def _row_major(self, unit: int, block: int = 0) -> dict[Var, int]:
        """The depth loops' steps in a packed operand whose rows of k lie `unit` apart, `block` of k where not all of it."""
        steps: dict[Var, int] = {}
        for x in reversed(self.depth_loops):
            steps[x.variable] = unit
            unit *= block if block and x is self.k_loop else x.extent
        return steps

    def _flat(self, block: int = 0) -> Expr:
        """The depth loops' place in a packed operand, counted in rows of k."""
        steps = self._row_major(1, block)
        return sum((steps[x.variable] * as_expr(x.variable) for x in self.depth_loops if x.extent > 1), as_expr(0))


def whole_extent(c: ContractionContext, dimension: int, loop: Loop) -> int:
    """How many elements of a dimension of the whole result all tasks' loops of this kind have."""
    step = abs(dict(c.index[dimension].terms).get(loop.variable, 1))
    return -(-c.stage.values[0].shape[dimension] // step)


def share_of_lanes(extent: int, lanes: int) -> float:
    """The share of the lanes of as many vectors as `extent` columns take that these fill.

    >>> share_of_lanes(3, 8), share_of_lanes(16, 8)
    (0.375, 1.0)
    """
    return extent / (-(-extent // lanes) * lanes)


def fills_better(share: float, known: float) -> bool:
    """Whether columns that fill a share of their lanes are better than a result's own, along which it is consecutive."""
    return share > max(1.5 * known, 0.5)


def goes_on(loop: Loop, count: int, walks: Sequence[tuple[Mapping[Var, int], int]]) -> bool:
    """Whether a loop goes on where `count` rows end: in each of the walks (steps of the loops, step between two rows)."""
    return loop.is_whole and all(steps.get(loop.variable) == step * count for steps, step in walks)
