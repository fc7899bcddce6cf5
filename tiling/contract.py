"""Sums of products over a register-blocked micro-kernel: which index is a row, a column, a depth, and what must be packed.

    out[b, m, n] = sum over k of left[b, m, k] * right[b, k, n]

The roles follow from the reads: m occurs in the left operand's index alone, n in the right one's alone, b in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from hlo.module import Value
from hlo.types import ElementType
from indexing.expr import Const, Expr, Interval, Var, as_expr, maximum, minimum, simplify, substitute
from tiling.element import Load, Node, Renamer, has_runtimes, loads, node_variables
from tiling.linear import address, linear, when
from tiling.machine import Machine
from tiling.names import Names, make_buffer
from tiling.schedule import Block2D, Buffer, Contract, Loop, LoopKind, Nest, Phase, Scope, Step, Store
from tiling.stages import Stage

__all__ = ["Contraction", "ContractionContext", "LoweredContraction", "lower_contraction"]

DEPTH_BLOCK = 384  # steps of k whose panel of the right operand stays in the second-level cache
MOST_WINDOW_DEPTH = 1536  # steps of k that a window of several dimensions is packed for at once
DIRECT_ROW_BYTES = 2048  # a right operand with rows further apart than this is packed


@dataclass(frozen=True, eq=False)
class LoweredContraction:
    """The steps of a task, the scratch that they need, and the phases that must run before all tasks."""

    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    prepass: tuple[Phase, ...]
    bounded: Mapping[Var, tuple[Expr, Expr]] = field(default_factory=dict)  # the loops that a mask bounds, and their ends
    right_is_whole: bool = False  # the right operand is packed by the task itself, all of it


@dataclass(frozen=True, eq=False)
class ContractionContext:
    """What the fusion around a contraction knows.

    `operands(index, provide)` gives the two operands' nodes for an output index, with `provide(size)` as the depth index.
    `ends` are those of the columns' and the depth's loops that are needed while `flag` is 1.
    """

    stage: Stage
    loops: tuple[Loop, ...]
    index: tuple[Expr, ...]
    depth: tuple[Loop, ...]
    nodes: tuple[Node, ...]
    operands: Callable[[tuple[Expr, ...], Callable[[int], Expr]], list[Node]]
    buffers: Mapping[int, Buffer]
    ranges: dict[Var, Interval]
    machine: Machine
    names: Names
    is_member: Callable[[Value], bool]
    flag: Var | None = None
    ends: Mapping[Var, tuple[Expr, Expr]] = field(default_factory=dict)


def lower_contraction(c: ContractionContext) -> LoweredContraction | None:
    """The contraction's steps over the micro-kernel, or None when plain loops do as well (no rows, no columns, other types)."""
    from tiling.contract_bytes import ByteContraction

    return Contraction(c).run() or ByteContraction(c).run()


class Contraction:
    def __init__(self, c: ContractionContext) -> None:
        self.c = c
        self.value = c.stage.values[0]
        self.new_buffers: list[Buffer] = []
        self.prepass: list[Phase] = []

    def run(self) -> LoweredContraction | None:
        c = self.c
        elements = {v.tensor.element for v in (*c.stage.op.operands, self.value)}
        if len(elements) != 1 or next(iter(elements)).name not in ("f32", "f64"):
            return None
        element = self.value.tensor.element
        assert isinstance(element, ElementType)
        self.element = element
        if not c.depth or has_runtimes(c.nodes) or not self._roles():
            return None
        in_right = node_variables(c.nodes[1], {})
        if self.n.extent < c.machine.lanes(element.itemsize_bytes) // 2 or self.depth < 2:
            return None
        self.mr, self.nr = c.machine.micro_tile(element.itemsize_bytes, self.n.extent)
        blocks = -(-self.depth // DEPTH_BLOCK)
        self.k_block = min(self.depth, (self.depth // blocks + 8) // 8 * 8)
        if len([x for x in c.depth if x.extent > 1]) > 1 and self.depth <= MOST_WINDOW_DEPTH:
            self.k_block = self.depth  # packed by the window's own loops, which need no division
            blocks = 1
        tag = c.names.stage(c.stage)
        self.k_start, self.k = Var(f"k0_{tag}"), Var(f"k_{tag}")
        c.ranges[self.k_start] = Interval(0, (blocks - 1) * self.k_block)
        c.ranges[self.k] = Interval(0, self.k_block - 1)
        out = self._out()
        right = self._right(in_right)
        if out is None or right is None:
            return None
        bounded = self._bounded(whole_columns=bool(right[2]))
        columns_lower, columns_upper = self._while_flag(self.n, bounded)
        first_depth, last_depth = self._while_flag(c.depth[0], bounded)
        left, pack = self._left(first_depth, last_depth)
        step = Contract(
            c.stage.op, self.value, self.around, self.m.upper, columns_upper, self.m.extent, self.n.extent, self.depth,
            self.k_block, left, right[0], right[1], out, self.mr, self.nr, self.k_start, pack,
            columns_lower, first_depth, last_depth if c.depth[0].variable in bounded else None,
        )  # fmt: skip
        return LoweredContraction((*right[2], step), tuple(self.new_buffers), tuple(self.prepass), bounded, bool(right[2]))

    # ------------------------------------------------------------ bounds

    def _bounded(self, whole_columns: bool) -> dict[Var, tuple[Expr, Expr]]:
        """Which of the columns' and the depth's ends are taken: whole panels of columns, and a depth of one loop."""
        c = self.c
        found: dict[Var, tuple[Expr, Expr]] = {}
        if self.n.variable in c.ends and not whole_columns:
            lower, upper = c.ends[self.n.variable]
            last = minimum(upper // self.nr * self.nr + (self.nr - 1), self.n.extent - 1)
            found[self.n.variable] = simplify(lower // self.nr * self.nr, c.ranges), simplify(last, c.ranges)
        if len(c.depth) == 1 and c.depth[0].variable in c.ends:
            found[c.depth[0].variable] = c.ends[c.depth[0].variable]
        return found

    def _while_flag(self, loop: Loop, bounded: Mapping[Var, tuple[Expr, Expr]]) -> tuple[Expr, Expr]:
        """A loop's ends, those in `bounded` while the flag is 1."""
        ends = bounded.get(loop.variable)
        if ends is None or self.c.flag is None:
            return Const(0), loop.upper
        lower, upper = when(self.c.flag, ends, loop.extent)
        return lower, simplify(minimum(loop.upper, upper), self.c.ranges)

    def _roles(self) -> bool:
        """Chooses the rows' and the columns' loop; False where there are none."""
        c = self.c
        memo: dict[int, frozenset[Var]] = {}
        in_left, in_right = (node_variables(n, memo) for n in c.nodes)
        rows = [x for x in c.loops if x.variable in in_left and x.variable not in in_right and x.extent > 1]
        columns = [x for x in c.loops if x.variable in in_right and x.variable not in in_left and x.extent > 1]
        if not rows or not columns:
            return False
        self.m = max(rows, key=lambda x: x.extent)
        self.n = max(columns, key=lambda x: x.extent)
        self.around = tuple(x for x in c.loops if x is not self.m and x is not self.n and x.extent > 1)
        self.depth = prod(x.extent for x in c.depth)
        self.depth_loops = self._depth_order()
        return True

    # ------------------------------------------------------------ the result

    def _out(self) -> Block2D | None:
        c = self.c
        buffer = c.buffers[id(self.value)]
        found = linear(address(buffer, c.index, c.ranges), (self.m.variable, self.n.variable))
        if found is None or found[1][1] != 1:
            return None
        return Block2D(buffer, found[0], found[1][0], 1)

    # ------------------------------------------------------------ operands

    def _depth_order(self) -> tuple[Loop, ...]:
        """The depth loops, the one with the smallest step in the left operand last: a flat depth index walks along memory."""
        c = self.c
        found = next(iter(loads([c.nodes[0]])), None)
        if found is None or len(c.depth) < 2:
            return c.depth
        at = address(found.buffer or c.buffers[id(found.value)], found.index, c.ranges)
        steps = dict(at.terms)
        return tuple(sorted(c.depth, key=lambda x: -abs(steps.get(x.variable, 0))))

    def _depth_index(self, k: Expr) -> dict[Var, Expr]:
        """The depth variables in terms of one flat index."""
        found: dict[Var, Expr] = {}
        step = 1
        for loop in reversed(self.depth_loops):
            part = k // step
            found[loop.variable] = part % loop.extent if step * loop.extent < self.depth else part
            step *= loop.extent
        return found

    def _in_place(self, node: Node, other: Var) -> tuple[Block2D, int] | None:
        """(block without its column stride, depth stride) for a node that is a load with constant strides in `other` and k."""
        if not isinstance(node, Load):
            return None
        c = self.c
        buffer = node.buffer or c.buffers[id(node.value)]
        flat = tuple(substitute(e, self._depth_index(as_expr(self.k))) for e in node.index)
        found = linear(address(buffer, flat, {**c.ranges, self.k: Interval(0, self.depth - 1)}), (other, self.k))
        if found is None:
            return None
        base, (stride, depth_stride) = found
        return Block2D(buffer, base, stride, 1), depth_stride

    def _left(self, first: Expr, last: Expr) -> tuple[Block2D, tuple[Nest, ...]]:
        c = self.c
        found = self._in_place(c.nodes[0], self.m.variable)
        if found is not None and found[1] == 1 and (
            found[0].row_stride * self.element.itemsize_bytes % 2048 != 0 or found[0].buffer.scope is Scope.THREAD
            or self.depth * self.element.itemsize_bytes <= 1024
        ):  # fmt: skip
            block = found[0]
            return Block2D(block.buffer, simplify(block.base + self.k_start, c.ranges), block.row_stride, 1), ()
        pad = c.machine.lanes(self.element.itemsize_bytes)
        width = -(-self.k_block // pad) * pad + pad
        buffer = make_buffer(c.names.scratch(self.value, "left"), Scope.THREAD, self.element, (self.m.extent, self.k_block),
                             (self.m.extent, width), (0, 0))  # fmt: skip
        self.new_buffers.append(buffer)
        if self.k_block == self.depth and len(self.depth_loops) > 1:
            flat: Expr = Const(0)
            for x in self.depth_loops:
                flat = flat * x.extent + x.variable
            loops = tuple(replace(x, kind=LoopKind.PARALLEL) for x in self.depth_loops)
            store = Store(None, buffer, (as_expr(self.m.variable), flat), c.nodes[0])
            return Block2D(buffer, Const(0), width, 1), (Nest((self.m, *loops), (store,)),)
        rename = Renamer(self._depth_index(self.k_start + self.k), c.ranges, {})
        ends = minimum(self.k_block - 1, self.depth - 1 - self.k_start)
        lower: Expr = Const(0)
        if len(c.depth) == 1 and (first is not Const(0) or last is not Const(self.depth - 1)):
            ends, lower = minimum(ends, last - self.k_start), maximum(0, first - self.k_start)
        k_loop = Loop(self.k, lower, simplify(ends, c.ranges), self.k_block)
        nest = Nest((self.m, k_loop),
                    (Store(None, buffer, (as_expr(self.m.variable), as_expr(self.k)), rename.node(c.nodes[0])),))  # fmt: skip
        return Block2D(buffer, Const(0), width, 1), (nest,)

    def _right(self, in_right: frozenset[Var]) -> tuple[Block2D, int, tuple[Nest, ...]] | None:
        c = self.c
        found = self._in_place(c.nodes[1], self.n.variable)
        itemsize = self.element.itemsize_bytes
        if found is not None and found[0].row_stride == 1 and found[1] > 0 and (
            found[1] * itemsize <= DIRECT_ROW_BYTES or found[0].buffer.scope is Scope.THREAD
        ):  # fmt: skip
            block = found[0]
            return Block2D(block.buffer, block.base, found[1], 1), self.nr, ()
        if any(c.is_member(x.value) for x in loads([c.nodes[1]])):
            return self._pack_in_task()
        return self._pack_ahead(in_right)

    def _pack_in_task(self) -> tuple[Block2D, int, tuple[Nest, ...]] | None:
        """The right operand is made by this task: its panels are, too."""
        c = self.c
        if self.around:
            return None
        panels = -(-self.n.extent // self.nr)
        buffer = make_buffer(c.names.scratch(self.value, "right"), Scope.THREAD, self.element, (panels, self.depth, self.nr),
                             (panels, self.depth, self.nr), (0, 0, 0))  # fmt: skip
        self.new_buffers.append(buffer)
        tag = c.names.stage(c.stage)
        k = Var(f"kp_{tag}")
        c.ranges[k] = Interval(0, self.depth - 1)
        rename = Renamer(self._depth_index(as_expr(k)), c.ranges, {})
        n = as_expr(self.n.variable)
        nest = Nest(
            (Loop(k, Const(0), Const(self.depth - 1), self.depth), self.n),
            (Store(None, buffer, (n // self.nr, as_expr(k), n % self.nr), rename.node(c.nodes[1])),),
        )
        return Block2D(buffer, Const(0), self.nr, 1), self.depth * self.nr, (nest,)

    def _pack_ahead(self, in_right: frozenset[Var]) -> tuple[Block2D, int, tuple[Nest, ...]] | None:
        """The right operand comes from memory: it is put into panels once, before all tasks."""
        c = self.c
        shape = self.value.shape
        column = next(k for k, x in enumerate(c.loops) if x is self.n)
        # Dimensions whose index moves the right operand, through a tile number or a loop.
        moving = [
            k
            for k, e in enumerate(c.index)
            if k != column and any(v in in_right for v in e.variables) and shape[k] > 1
        ]
        tag = c.names.stage(c.stage)
        panels = -(-shape[column] // self.nr)
        index: list[Expr] = [Const(0)] * len(shape)
        tiles: list[tuple[Var, int]] = []
        for k in moving:
            v = Var(f"b{k}_{tag}")
            c.ranges[v] = Interval(0, shape[k] - 1)
            tiles.append((v, shape[k]))
            index[k] = v
        p, j, k_var = Var(f"p_{tag}"), Var(f"j_{tag}"), Var(f"kp_{tag}")
        c.ranges.update({p: Interval(0, panels - 1), j: Interval(0, self.nr - 1), k_var: Interval(0, self.depth - 1)})
        tiles.append((p, panels))
        index[column] = p * self.nr + j
        parts = iter([self._depth_index(as_expr(k_var))[x.variable] for x in c.depth])
        node = c.operands(tuple(index), lambda size: next(parts))[1]
        extents = (*(shape[k] for k in moving), panels, self.depth, self.nr)
        buffer = make_buffer(
            c.names.scratch(self.value, "right"), Scope.SHARED, self.element, extents, extents, (0,) * len(extents)
        )
        self.new_buffers.append(buffer)
        at = (*(index[k] for k in moving), as_expr(p), as_expr(k_var), as_expr(j))
        last = simplify(minimum(self.nr - 1, shape[column] - 1 - p * self.nr), c.ranges)
        nest = Nest(
            (
                Loop(k_var, Const(0), Const(self.depth - 1), self.depth),
                Loop(j, Const(0), last, self.nr, LoopKind.PARALLEL),
            ),
            (Store(None, buffer, at, node),),
        )
        self.prepass.append(Phase(tuple(tiles), (nest,)))
        first = simplify(substitute(c.index[column], {self.n.variable: Const(0)}), c.ranges)
        panel = simplify(first // self.nr, c.ranges)
        if simplify(first % self.nr, c.ranges) is not Const(0):
            return None  # the task's columns do not start at a panel
        base = address(buffer, (*(c.index[k] for k in moving), panel, Const(0), Const(0)), c.ranges)
        return Block2D(buffer, base, self.nr, 1), self.depth * self.nr, ()
