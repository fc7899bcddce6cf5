"""The one matcher: which row of the table of micro-kernels computes a contraction, by cost."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from tiling.contract.dots import AlongDepth
from tiling.contract.panels import Contraction
from tiling.contract.roles import ContractionContext, LoweredContraction
from tiling.contract.table import MICRO_KERNELS
from tiling.loops.element_ir import has_runtimes

__all__ = ["lower_contraction"]


def lower_contraction(c: ContractionContext) -> LoweredContraction | None:
    """The contraction's steps over a micro-kernel, or None where plain loops do as well (no rows or columns, other types).

    The row of least cost is taken whose layouts the factors have, or can be copied into. What is chosen follows from the shapes
    and from how the factors lie, never from tiles: so do the bits.
    """
    names = [getattr(v.tensor.element, "name", "") for v in (*c.stage.op.operands, c.stage.values[0])]
    if len(names) != 3 or not c.depth or not all(x.extent for x in c.depth) or has_runtimes(c.nodes):
        return None
    types = (names[0], names[1], names[2])
    found: list[tuple[float, Contraction]] = []
    for row in MICRO_KERNELS:
        sums = row.sums(types)
        if sums is not None and (row.kernel.adds or not c.goes_on):
            one = (AlongDepth if row.kernel.along else Contraction)(c, row, types, sums)
            found.append((one.cost(), one))
    fitting = (x for cost, x in sorted(found, key=lambda f: f[0]) if cost < inf)
    taken = next(((x, made) for x in fitting if (made := x.lower()) is not None), None)
    if taken is None:
        return None
    narrow = [(cost, x) for cost, x in found if x.takes_narrow]
    if not narrow or c.machine.pairs_per_lane <= 1:
        return taken[1]
    means = "tiles" if c.machine.tile_products > 1 else "the dot instruction"
    return replace(taken[1], note=_why(means, *narrow[0], taken[0]))


def _why(means: str, cost: float, narrow: Contraction, taken: Contraction) -> str:
    """Why products of bf16 are, or are not, made by an instruction of their own, on a machine that has one."""
    routine = taken.kernel.routine
    if taken is narrow:
        return f"bf16 by {means}; as f32 where factors are so small that denormal numbers might count"
    if cost == inf:
        return f"bf16 by {routine}, not by {means}: a window, or too few columns or steps of k"
    return f"bf16 by {routine}, not by {means}: it costs less for so few rows, or a factor lies otherwise"
