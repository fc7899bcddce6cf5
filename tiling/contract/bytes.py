"""Sums of products of bytes: as `tiling.contract.panels`, with the right operand in quads along the depth.

    out[m, n] = sum over k of left[m, k] * right[k, n]      int8 factors, int32 sums

    packed[n // P, k // 4, n % P, k % 4] = right[k, n]      once, before all tasks; four steps of k lie side by side

A depth that is no multiple of four is filled up with zeros. The left operand is copied where its k do not follow each other.
"""

from __future__ import annotations

from hlo.access import Condition
from hlo.types import ElementType, element_type
from indexing.expr import Const, Expr, Interval, Var, as_expr, interval, simplify
from tiling.contract.operands import in_place
from tiling.contract.panels import Contraction, LoweredContraction
from tiling.loops.affine import address
from tiling.loops.buffers import make_buffer
from tiling.loops.element_ir import Choose, Load, Node, Renamer, Scalar, has_runtimes, loads
from tiling.loops.ir import Block2D, Contract, Loop, Nest, Phase, Scope, Store

__all__ = ["ByteContraction"]

PANEL_VECTORS = 2


class ByteContraction(Contraction):
    """The lowering for int8 operands and an int32 result; None where the operands do not lie as it needs them."""

    def run(self) -> LoweredContraction | None:
        c = self.c
        names = [getattr(v.tensor.element, "name", "") for v in (*c.stage.op.operands, self.value)]
        if names != ["i8", "i8", "i32"] or not c.depth or has_runtimes(c.nodes):
            return None
        element = c.stage.op.operands[0].tensor.element
        assert isinstance(element, ElementType)
        self.element = element
        self.sums = element_type("i32")
        if not self.choose() or self.depth < 2:
            return None
        self.mr, self.nr = 12, PANEL_VECTORS * c.machine.lanes(4)
        self._cut_depth()
        self.k_block, self.blocks = self.k_loop.extent, 1
        if self.is_split or self._expands() or any(c.is_member(x.value) for x in loads([self.right])):
            return None
        out = self._out()
        right = self._quads() if out is not None else None
        if out is None or right is None:
            return None
        left = self._bytes_in_place()
        pack: tuple[Nest, ...] = ()
        if left is None:
            left, pack = self._bytes_copied()
        filled = self.quads * 4
        apart = self._apart((self.m,), self.m.extent) if out.column_stride != 1 else None
        out = apart.out if apart else out
        step = Contract(
            c.stage.op, self.value, self.around, self.m.upper, self.n.upper, self.m.extent, self.n.extent, filled, filled, left,
            right, filled * self.nr, out, self.mr, self.nr, self.k_start, pack, in_quads=True, is_swapped=self.swapped,
            row_dimensions=self._dimensions(*self.row_loops), column_dimension=self._dimensions(self.n),
            places=apart.places if apart else (), element=apart.element if apart else (),
        )  # fmt: skip
        return LoweredContraction((step, *((apart.store,) if apart else ())), tuple(self.new_buffers), tuple(self.prepass))

    @property
    def quads(self) -> int:
        return -(-self.depth // 4)

    def _bytes_in_place(self) -> Block2D | None:
        """The left operand where it lies: its k one after the other, in whole quads."""
        read = self.left
        if self.depth % 4 or not isinstance(read, Load):
            return None
        place = in_place(read, self._buffer(read), [self.m.variable, *self._depth_variables()], self.c.ranges)
        if place is None:
            return None
        levels, (_, step, _) = self._levels(place.steps, self._row_major(1))
        return None if levels or step != 1 else Block2D(place.buffer, place.base, place.steps[self.m.variable], 1)

    def _bytes_copied(self) -> tuple[Block2D, tuple[Nest, ...]]:
        c, filled = self.c, self.quads * 4
        width = -(-filled // 64) * 64 + 64
        name, shape, padded = self.scratch("left"), (self.m.extent, filled), (self.m.extent, width)
        buffer = make_buffer(name, Scope.THREAD, self.element, shape, padded, (0, 0))
        self.new_buffers.append(buffer)
        k = Var(f"kf_{self.tag}_left")
        c.ranges[k] = Interval(0, filled - 1)
        node = self._or_zero(Renamer(self._depth_index(as_expr(k)), c.ranges, {}).node(self.left), as_expr(k))
        loop = Loop(k, Const(0), Const(filled - 1), filled)
        nest = Nest((self.m, loop), (Store(None, buffer, (as_expr(self.m.variable), as_expr(k)), node),))
        return Block2D(buffer, Const(0), width, 1), (nest,)

    def _or_zero(self, node: Node, k: Expr) -> Node:
        """The node where k is inside of the depth, else zero."""
        k = simplify(k, self.c.ranges)
        bounds, zero = interval(k, self.c.ranges), Scalar(self.element.dtype.type(0), self.element)
        if bounds.upper < self.depth:
            return node
        return zero if bounds.lower >= self.depth else Choose((Condition(k, 0, self.depth - 1),), node, zero)

    def _quads(self) -> Block2D | None:
        c, panels = self.c, self._panels()
        if panels.first is None:
            return None
        quad = Var(f"q_{self.tag}")
        c.ranges[quad] = Interval(0, self.quads - 1)
        extents = (*panels.shape, self.quads, self.nr, 4)
        buffer = make_buffer(
            self.scratch("right"), Scope.SHARED, self.element, extents, extents, (0,) * len(extents)
        )
        self.new_buffers.append(buffer)
        stores = []
        for byte in range(4):
            node = self._at(self.right, panels.index, self._depth_index(quad * 4 + byte))
            if node is None:
                return None
            at = (*panels.at, as_expr(quad), as_expr(panels.columns.variable), Const(byte))
            stores.append(Store(None, buffer, at, self._or_zero(node, quad * 4 + byte)))
        loops = (Loop(quad, Const(0), Const(self.quads - 1), self.quads), panels.columns)
        self.prepass.append(Phase(panels.tiles, (Nest(loops, tuple(stores)),)))
        where = (*panels.first, Const(0), Const(0), Const(0))
        return Block2D(buffer, address(buffer, where, c.ranges), 4 * self.nr, 1)
