"""Sums of products with few rows or few columns, k consecutive in memory: as `tiling.contract.panels`, summed in lanes along k.

    out[m, n] = sum over k of left[m, k] * right[n, k]

Neither factor is turned or packed where k is consecutive in it already; a small one that lies otherwise is copied first. Which
contractions run so follows from the shapes and from how the factors lie, never from tiles: so do the bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from hlo.types import ElementType, element_type
from indexing.expr import Interval, Var, simplify
from tiling.contract.operands import in_place
from tiling.contract.panels import FLOATS, INTEGERS, Contraction, LoweredContraction, Place, Right, accumulates
from tiling.loops.affine import address, linear
from tiling.loops.element_ir import Load, Node, has_runtimes, loads
from tiling.loops.ir import Block2D, Contract, Loop

__all__ = ["DotContraction"]

DOT_BLOCK = 2048  # steps of k over which the shorter side stays in the second-level cache
FEW_VECTORS = 2.0  # rows or columns up to which summing in lanes is faster, in vectors of sums
FEW_NARROW_VECTORS = {1: 1.5, 2: 2.5}  # the same by the bytes of an operand's element, where that is not what is summed
LEAST_RUN_VECTORS = 4  # vectors in one run of k
LEAST_DEPTH_VECTORS = 12  # vectors in all of a sum: adding up the lanes at the end must not count
LEAST_ALONE_VECTORS = 36  # the same for a matrix by a vector, which plain loops do well


class DotContraction(Contraction):
    """The lowering along k; None where the other one is better, or the factors do not lie as this needs them."""

    def run(self) -> LoweredContraction | None:
        c = self.c
        names = [getattr(v.tensor.element, "name", "") for v in (*c.stage.op.operands, self.value)]
        if len(names) != 3 or not accumulates(*names) or names[2] not in (*FLOATS, *INTEGERS):
            return None
        element = self.value.tensor.element
        if not c.depth or has_runtimes(c.nodes) or c.ends or not isinstance(element, ElementType):
            return None
        self.sums = element_type("f32") if element.name in ("bf16", "f16") else element
        if not self._chosen():
            return None
        self.mr, self.nr = 4, 1
        self._cut_depth()
        out = self._out()
        found = self._placed() if out is not None else None
        if found is None or out is None:
            return None
        left, before, inside, right = found
        rows, row_step = self._rows(left, out)
        levels, (k, left_step, right_step) = self._levels(left.steps, right.steps)
        assert left_step == right_step == 1
        start, m, upper = self._rows_of_task(left, left_step, rows)
        apart = None
        if self.blocks > 1 and self.sums is not element:
            apart = self._apart(rows, m)
            out = apart.out
        out = self._from_first_row(out, rows)
        step = Contract(
            c.stage.op, self.value, tuple(x for x in self.around if x not in rows), upper, self.n.upper, m, self.n.extent, k,
            self.k_block if self.blocks > 1 else k,
            Block2D(left.buffer, simplify(start, c.ranges), row_step, 1), replace(right.block, row_stride=1), right.panel_stride,
            out, self.mr, self.nr, self.k_start, inside, levels=levels, is_swapped=self.swapped, along_depth=True,
            row_dimensions=self._dimensions(*self.row_loops), column_dimension=self._dimensions(self.n),
            places=apart.places if apart else (), element=apart.element if apart else (),
        )  # fmt: skip
        after = (apart.store,) if apart else ()
        return LoweredContraction((*before, step, *after), tuple(self.new_buffers), tuple(self.prepass))

    # ------------------------------------------------------------ roles

    def _chosen(self) -> bool:
        c, shape = self.c, self.value.shape
        reads = self._addressed()
        if reads is None:
            return False
        # By the whole shape: a tile of one row is a row all the same.
        alone = []
        for k in (0, 1):
            own = [d for d, e in enumerate(c.index) if shape[d] > 1 and any(v in reads[k] for v in e.variables)]
            alone.append([d for d in own if not any(v in reads[1 - k] for v in c.index[d].variables)])
        sizes = [prod(shape[d] for d in a) for a in alone]
        depth = prod(x.extent for x in c.depth)
        lanes = c.machine.lanes(max(self.sums.itemsize_bytes, 4))
        longer = 0 if sizes[0] >= sizes[1] else 1
        least = LEAST_DEPTH_VECTORS if sizes[1 - longer] > 1 else LEAST_ALONE_VECTORS
        if depth < least * lanes or sizes[1 - longer] > lanes * max(FEW_VECTORS, *FEW_NARROW_VECTORS.values()):
            return False  # as most are, however the factors lie
        lies = [self._lies_along_depth(n) for n in c.nodes]
        run = min((x for x in lies if x), default=0)
        if run < LEAST_RUN_VECTORS * lanes or not lies[longer]:
            return False
        if sizes[longer] < 2 or sizes[1 - longer] > self._few(lanes, c.nodes[longer], lies[1 - longer] > 0):
            return False
        if any(len(a) > 1 for a in alone) and not all(lies):
            return False
        # What has to be copied is the right factor: it can be, once for all tasks.
        self.swapped = not lies[0]
        mine, other = (alone[1], alone[0]) if self.swapped else (alone[0], alone[1])
        self.left, self.right = (c.nodes[1], c.nodes[0]) if self.swapped else (c.nodes[0], c.nodes[1])
        self.in_right = reads[0 if self.swapped else 1]
        self.m, self.n = self._longest(mine, "row"), self._longest(other, "column")
        self.row_loops = [self.loops[d] for d in mine] or [self.m]
        self.around = tuple(x for x in self.loops if x is not self.m and x is not self.n and not x.runs_once)
        self.depth = depth
        self.depth_loops = self._depth_order()
        self._flatten()
        return self.depth_loops[-1].extent >= LEAST_RUN_VECTORS * lanes

    def _few(self, lanes: int, longer: Node, both_lie: bool) -> int:
        """Up to how many rows or columns of the shorter factor sums in lanes are better.

        A copy of the shorter factor is made before all tasks and holds all of k. Where the task itself computes the longer
        factor (a row of weights, say), the sums could then not be made block by block beside what computes it, nor end where a
        mask does: only what is too narrow for the other kernel is summed in lanes there.
        """
        computed = any(self.c.is_member(x.value) for x in loads([longer]))
        if computed and not both_lie:
            return lanes // 2 - 1
        item = max(v.tensor.element.itemsize_bytes for v in self.c.stage.op.operands if isinstance(v.tensor.element, ElementType))
        return int(lanes * FEW_NARROW_VECTORS.get(item, FEW_VECTORS))

    def _longest(self, dimensions: list[int], role: str) -> Loop:
        """The longest of the result's dimensions; a loop of one iteration where there is none."""
        shape = self.value.shape
        if dimensions:
            return self.loops[max(dimensions, key=lambda d: shape[d])]
        return self._single(role)

    def _lies_along_depth(self, node: Node) -> int:
        """How many steps of k follow each other in a factor as it lies in memory; 0 where none do."""
        if not isinstance(node, Load):
            return 0
        wanted = [x.variable for x in (*self.loops, *self.c.depth)]
        place = in_place(node, self._buffer(node), wanted, self.c.ranges)
        return 0 if place is None else next((x.extent for x in self.c.depth if place.steps[x.variable] == 1 < x.extent), 0)

    def _cut_depth(self) -> None:
        super()._cut_depth()
        lanes = 4 * self.c.machine.lanes(4)
        k = self.k_loop.extent
        blocks = -(-k // DOT_BLOCK)
        self.k_block = k if blocks == 1 else -(-k // (blocks * lanes)) * lanes
        self.blocks = -(-k // self.k_block)
        self.c.ranges[self.k_start] = Interval(0, (self.blocks - 1) * self.k_block)
        self.c.ranges[self.k] = Interval(0, self.k_block - 1)

    def _levels(
        self, left: Mapping[Var, int], right: Mapping[Var, int]
    ) -> tuple[tuple[tuple[int, int, int], ...], tuple[int, int, int]]:
        """As above, not merged: in which lane a product is summed must not depend on where a copy was made."""
        found = [(x.extent, left[x.variable], right[x.variable]) for x in self.depth_loops if x.extent > 1]
        return tuple(found[:-1]), found[-1]

    # ------------------------------------------------------------ places

    def _out(self) -> Block2D | None:
        c = self.c
        buffer = c.buffers[self.value]
        found = linear(address(buffer, c.index, c.ranges), (self.m.variable, self.n.variable))
        return None if found is None else Block2D(buffer, found[0], *found[1])

    def _left_in_place(self) -> Place | None:
        if not isinstance(self.left, Load):
            return None
        wanted = [*(x.variable for x in self.row_loops), *self._depth_variables()]
        place = in_place(self.left, self._buffer(self.left), wanted, self.c.ranges)
        return place if place is not None and place.steps[self.k_loop.variable] == 1 else None

    def _walks_along_rows(self) -> bool:
        return False

    def _right(self) -> Right | None:
        c, node = self.c, self.right
        if isinstance(node, Load):
            place = in_place(node, self._buffer(node), [self.n.variable, *self._depth_variables()], c.ranges)
            if place is not None and place.steps[self.k_loop.variable] == 1:
                return Right(Block2D(place.buffer, place.base, 0, 1), place.steps[self.n.variable], place.steps)
        if not any(x is self.n for x in c.loops) or self._is_made_inside() or self._expands():
            return self._pack_in_task()
        return self._pack_ahead()
