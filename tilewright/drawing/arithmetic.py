"""The arithmetic of kernels: what rooflines count."""

from __future__ import annotations

import math

from hlo.module import Op
from hlo.registry import Elementwise, Fold, SumOfProducts
from hlo.types import TensorType
from indexing import output_to_input
from tiling import Fusion
from tiling.loops.ir import Contract
from tiling.planning.costs.averages import Averages

__all__ = ["operations"]


def operations(fusion: Fusion) -> int:
    """Elementwise ops count one an element, folds one an element read, contractions two a product that no mask skips."""
    total, shares = 0.0, _computed_shares(fusion)
    for op in fusion.ops:
        semantics = op.definition.semantics
        shape = op.results[0].type
        if not isinstance(shape, TensorType) or not shape.is_static:
            continue
        elems = math.prod(shape.static_shape)
        if isinstance(semantics, Elementwise):
            total += elems
        elif isinstance(semantics, Fold):
            total += math.prod(op.operands[0].shape)
        elif isinstance(semantics, SumOfProducts):
            (m, *_) = output_to_input(op)[0]
            total += 2 * elems * math.prod(v.interval.size for v in m.ranges) * shares.get(op, 1.0)
    return round(total)


def _computed_shares(fusion: Fusion) -> dict[Op, float]:
    """Of contractions that masks bound, by op: the part of their products that is computed while inputs are within limits."""
    shares: dict[Op, float] = {}
    for phase in fusion.schedule.phases:
        averages = Averages(phase, fusion.schedule.ranges)
        for c in phase.all_steps if phase.flags else ():
            if isinstance(c, Contract):
                n = averages.count(c.columns_lower, c.columns_upper, c.n)
                k = averages.count(c.depth_lower, c.last_depth, c.k)
                shares[c.op] = min(1.0, n * k / (c.n * c.k))
    return shares
