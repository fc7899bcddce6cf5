"""Sums of products with few rows or few columns, k consecutive in memory: as `tiling.contract.panels`, summed in lanes along k.

    out[m, n] = sum over k of left[m, k] * right[n, k]

Neither factor is turned or packed where k is consecutive in it already; a small one that lies otherwise is copied first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, prod

from hlo.types import ElementType
from indexing.expr import Var
from tiling.contract.panels import Contraction
from tiling.contract.table import LEAST_RUN_VECTORS, Problem
from tiling.loops.element_ir import Node, loads
from tiling.loops.ir import Loop

__all__ = ["AlongDepth"]


class AlongDepth(Contraction):
    """A contraction by a micro-kernel that sums along k: its roles are those of long runs of k, not of columns."""

    # ------------------------------------------------------------ roles

    def cost(self) -> float:
        c, shape = self.c, self.value.shape
        key = c.stage, c.suffix, self.types
        reads = self._addressed() if not c.ends and key not in c.names.no_dots else None
        if reads is None:
            return inf
        # By the whole shape: a tile of one row is a row all the same.
        alone = []
        for k in (0, 1):
            own = [d for d, e in enumerate(c.index) if shape[d] > 1 and any(v in reads[k] for v in e.variables)]
            alone.append([d for d in own if not any(v in reads[1 - k] for v in c.index[d].variables)])
        sizes = [prod(shape[d] for d in a) for a in alone]
        depth = prod(x.extent for x in c.depth)
        lanes = c.machine.lanes(max(self.sums.itemsize_bytes, 4))
        longer = 0 if sizes[0] >= sizes[1] else 1
        item = max(v.tensor.element.itemsize_bytes for v in c.stage.op.operands if isinstance(v.tensor.element, ElementType))
        best = Problem(self.types, sizes[longer], sizes[1 - longer], depth, depth, lanes, item)
        if self.row.cost(best) == inf:
            c.names.no_dots.add(key)  # in no tile: sizes are those of the whole
            return inf  # as for most, however the factors lie
        lies = [self._lies_along_depth(n) for n in c.nodes]
        run = min((x for x in lies if x), default=0) if lies[longer] else 0
        # What is copied is copied before all tasks; the longer factor may be what a task computes.
        copy = not lies[1 - longer] and any(c.is_member(x.value) for x in loads([c.nodes[longer]]))
        cost = self.row.cost(replace(best, run=run, copy=copy))
        if cost == inf or (any(len(a) > 1 for a in alone) and not all(lies)):
            return inf
        # What has to be copied is the right factor: it can be, once for all tasks.
        mine, other = (alone[0], alone[1]) if lies[0] else (alone[1], alone[0])
        m, n = self._longest(mine, "row"), self._longest(other, "column")
        self._take(m, n, [self.loops[d] for d in mine] or [m], not lies[0], reads)
        return cost if self.depth_loops[-1].extent >= LEAST_RUN_VECTORS * lanes else inf

    def _longest(self, dimensions: list[int], role: str) -> Loop:
        """The longest of the result's dimensions; a loop of one iteration where there is none."""
        return self.loops[max(dimensions, key=lambda d: self.value.shape[d])] if dimensions else self._single(role)

    def _lies_along_depth(self, node: Node) -> int:
        """How many steps of k follow each other in a factor as it lies in memory; 0 where none do."""
        place = self._in_place(node, [x.variable for x in (*self.loops, *self.c.depth)])
        return 0 if place is None else next((x.extent for x in self.c.depth if place.steps[x.variable] == 1 < x.extent), 0)

    def _size_of_blocks(self, k: int) -> int:
        lanes, blocks = 4 * self.c.machine.lanes(4), -(-k // self.row.depth_block)
        return k if blocks == 1 else -(-k // (blocks * lanes)) * lanes

    def _levels(
        self, left: Mapping[Var, int], right: Mapping[Var, int]
    ) -> tuple[tuple[tuple[int, int, int], ...], tuple[int, int, int]]:
        """As above, not merged: in which lane a product is summed must not depend on where a copy was made."""
        found = [(x.extent, left[x.variable], right[x.variable]) for x in self.depth_loops if x.extent > 1]
        return tuple(found[:-1]), found[-1]
