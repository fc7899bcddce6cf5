"""Copies into another layout: what is read in an order that its memory has not is put into scratch once, and read there.

    layout = panels(element, (), *blocks(n, 40, 16), (k, 64), ranges)
    stage_into(layout.buffer("b_right", Scope.THREAD), layout, [loop_k, loop_n], node)
        for k: for n: b_right[n // 16, k, n % 16] = node

A layout is data: where an element is put, in the variables of the loops that copy. The step that copies is a nest (or a turn of
tiles) like all others, so that it prints, costs and is proved as they are: that a read of the copy finds the element that the op
reads is one obligation, `mapped`, whatever the layout is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hlo.types import ElementType
from indexing.expr import Const, Expr, Interval, Var, as_expr, simplify
from tiling.loops.affine import address, linear
from tiling.loops.buffers import SAME_SETS_BYTES, make_buffer
from tiling.loops.element_ir import Load, Node
from tiling.loops.ir import Block2D, Buffer, Loop, Nest, Scope, Store, Turn

__all__ = ["Along", "Layout", "blocks", "panels", "row_major", "stage_into", "turn_of"]

Along = tuple[Expr, int]
"""An index, and how many values it has."""


@dataclass(frozen=True)
class Layout:
    """Where a copy puts an element: dimensions from the outermost one in, with padding.

    at        the element's index along each dimension, in the variables of the loops that copy
    shape     how many elements there are along each
    room      how many there is memory for
    origin    the index of the first one
    """

    element: ElementType
    at: tuple[Expr, ...]
    shape: tuple[int, ...]
    room: tuple[int, ...]
    origin: tuple[Expr | int, ...]

    def with_rows_of(self, room: int) -> Layout:
        """The layout with memory for `room` elements in a row."""
        return replace(self, room=(*self.room[:-1], room))

    def with_rows_apart(self, elems: int, period_bytes: int = SAME_SETS_BYTES) -> Layout:
        """The layout with `elems` more in a row where rows would lie a multiple of the period apart."""
        if len(self.room) < 2 or self.room[-1] * self.element.itemsize_bytes % period_bytes:
            return self
        return self.with_rows_of(self.room[-1] + elems)

    def buffer(self, name: str, scope: Scope) -> Buffer:
        """Memory for the copy."""
        return make_buffer(name, scope, self.element, self.shape, self.room, self.origin)


def row_major(element: ElementType, dimensions: Sequence[Along], origin: Sequence[Expr | int] = ()) -> Layout:
    """Each index as a dimension of its own, the last one consecutive.

    >>> from hlo.types import element_type
    >>> i, j = Var("i"), Var("j")
    >>> row_major(element_type("f32"), [(j, 4), (i, 256)]).with_rows_apart(8).room
    (4, 264)
    """
    at, shape = tuple(as_expr(e) for e, _ in dimensions), tuple(n for _, n in dimensions)
    return Layout(element, at, shape, shape, tuple(origin) or (0,) * len(shape))


def blocks(index: Expr, count: int, size: int) -> tuple[Along, Along]:
    """An index in blocks: the block's number, and the place inside of it.

    >>> print(*(f"{e}: {n}" for e, n in blocks(as_expr(Var("n")), 40, 16)))
    n floordiv 16: 3 n mod 16: 16
    """
    return (index // size, -(-count // size)), (index % size, size)


def panels(
    element: ElementType, around: Sequence[Along], panel: Along, column: Along, depth: Along,
    ranges: Mapping[Var, Interval], together: int = 1,
) -> Layout:  # fmt: skip
    """A matrix for each of `around`, in panels of columns: rows of k, `together` steps of which lie side by side in a column.

    >>> from hlo.types import element_type
    >>> k, n = as_expr(Var("k")), as_expr(Var("n"))
    >>> layout = panels(element_type("i8"), (), *blocks(n, 40, 16), (k, 64), {}, together=4)
    >>> print(*layout.at, layout.shape)
    n floordiv 16 k floordiv 4 n mod 16 k mod 4 (3, 16, 16, 4)
    """
    panel, column = (simplify(panel[0], ranges), panel[1]), (simplify(column[0], ranges), column[1])
    if together == 1:
        return row_major(element, [*around, panel, depth, column])
    (group, groups), (part, _) = blocks(*depth, together)
    side = (simplify(part, ranges), together)
    return row_major(element, [*around, panel, (simplify(group, ranges), groups), column, side])


def stage_into(
    buffer: Buffer, layout: Layout, loops: Sequence[Loop], node: Node, order_is_fixed: bool = False
) -> Nest:
    """The nest that puts `node` where the layout has it, for each iteration of the loops.

    >>> from hlo.types import element_type
    >>> from tiling.loops.element_ir import Scalar
    >>> i, f32 = Var("i"), element_type("f32")
    >>> layout, loop = row_major(f32, [(i, 8)]), Loop(i, as_expr(0), as_expr(7), 8)
    >>> nest = stage_into(layout.buffer("zeros", Scope.THREAD), layout, [loop], Scalar(f32.dtype.type(0), f32))
    >>> print(nest.stores[0].buffer)
    zeros: thread f32[8] at (0), 32 bytes
    """
    return Nest(tuple(loops), (Store(None, buffer, layout.at, node),), order_is_fixed=order_is_fixed)


def turn_of(nest: Nest, rows: Loop, columns: Loop, source: Buffer, ranges: Mapping[Var, Interval]) -> Turn | None:
    """The turn in registers that does what a copy of loads does along two of its loops; None where none does.

    Its stores move what lies side by side. The source must be consecutive along `columns`, the copy along `rows`, and both of one
    element type. A turn is for one iteration of the other loops.
    """
    first, together = nest.stores[0], len(nest.stores)
    if not isinstance(first.node, Load) or source.element != first.buffer.element:
        return None
    wanted = (rows.variable, columns.variable)
    found, to = _linear(first, source, wanted, ranges), linear(address(first.buffer, first.index, ranges), wanted)
    if found is None or to is None or found[1][0] < 2 or found[1][1] != together or to[1][0] != together:
        return None
    for k, s in enumerate(nest.stores[1:], 1):
        next_to = linear(address(s.buffer, s.index, ranges), wanted)
        for one, before in ((_linear(s, source, wanted, ranges), found), (next_to, to)):
            if one is None or one[1] != before[1] or simplify(one[0] - before[0], ranges) is not Const(k):
                return None
    here, there = Block2D(source, found[0], found[1][0], together), Block2D(first.buffer, to[0], to[1][1], together)
    return Turn(first.node.value, rows, columns, here, there, together)


def _linear(
    s: Store, source: Buffer, wanted: tuple[Var, Var], ranges: Mapping[Var, Interval]
) -> tuple[Expr, tuple[int, ...]] | None:  # fmt: skip
    """Where in the source a store's load lies, along two loops."""
    return linear(address(source, s.node.index, ranges), wanted) if isinstance(s.node, Load) else None

