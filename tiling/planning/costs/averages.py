"""How many iterations loops have on average, where their bounds move with the tile: for the cost model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from indexing.expr import Const, Expr, Interval, Var, evaluate
from tiling.loops.domains.conditions import bounds_by
from tiling.loops.ir import Loop, Phase
from tiling.passes.merge_nests import Skipping

__all__ = ["Averages"]

POINTS = 4  # of each variable; bounds are linear but for minima and maxima


class Averages:
    """Averages over a phase's tiles while its flags are 1, from a few points."""

    def __init__(self, phase: Phase, ranges: Mapping[Var, Interval]) -> None:
        self.ranges = ranges
        self.fixed = {f.variable: 1 for f in phase.flags}

    def count(self, lower: Expr, upper: Expr, extent: int) -> int:
        """The mean of upper - lower + 1, at least 1."""
        if isinstance(lower, Const) and isinstance(upper, Const):
            return extent
        return self._mean([evaluate(upper, at) - evaluate(lower, at) + 1 for at in self._points(lower, upper)])

    def _mean(self, counts: list[int]) -> int:
        return max(1, round(sum(max(0, n) for n in counts) / len(counts)))

    def never_runs(self, loops: Sequence[Loop]) -> bool:
        """Whether some loop has no iteration while the flags are 1."""
        known = [x for x in loops if self.fixed.keys() >= {*x.lower.variables, *x.upper.variables}]
        return any(evaluate(x.upper, self.fixed) < evaluate(x.lower, self.fixed) for x in known)

    def loops(self, nest: Skipping) -> tuple[Loop, ...]:
        """A nest's loops with their average extents, those that it leaves out taken off."""
        found = []
        for x in nest.loops:
            extent = self.count(x.lower, x.upper, x.extent)
            for c in nest.skip.conditions if nest.skip is not None and nest.skip.variable is x.variable else ():
                first, last = bounds_by(c, x.variable) or (None, None)
                lower, upper = x.lower if first is None else first, x.upper if last is None else last
                values = [
                    min(evaluate(upper, at), x.extent - 1) - max(evaluate(lower, at), 0) + 1
                    for at in self._points(lower, upper)
                ]
                extent = min(extent, self._mean(values))
            found.append(Loop(x.variable, x.lower, x.upper, extent, x.kind))
        return tuple(found)

    def _points(self, *expressions: Expr) -> Iterator[dict[Var, int]]:
        free = [v for v in dict.fromkeys(v for e in expressions for v in e.variables) if v not in self.fixed]
        spans = [self.ranges.get(v, Interval(0, 0)) for v in free]
        axes = [sorted({b.lower + (b.upper - b.lower) * k // (POINTS - 1) for k in range(POINTS)}) for b in spans]
        for point in product(*axes):
            yield {**self.fixed, **dict(zip(free, point, strict=True))}
