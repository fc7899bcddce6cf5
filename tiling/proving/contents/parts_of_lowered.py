"""Final statements as parts of lowered ones: loops that were cut, joined or put in another order do what one statement did."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from indexing.expr import Const, Expr, Var, simplify
from tiling.loops.element_ir import (
    Node,
    Renamer,
    has_runtimes,
)
from tiling.loops.ir import FoldStep, Nest
from tiling.proving.contents.compared import Compared, Place
from tiling.proving.contents.same_expression import (
    NOWHERE,
    Comparison,
    Point,
)
from tiling.proving.contents.statements import (
    matched,
)
from tiling.proving.relations import points_of, relation_of

__all__ = ["PartsOfLowered"]


class PartsOfLowered(Compared):
    """Finds, for a statement of final loops, the lowered one that each of its iterations is an iteration of."""

    lowered: PartsOfLowered | None

    def _lowered_fold(self, f: FoldStep, place: Place) -> tuple[FoldStep, Nest, Place, Point] | None:
        """The lowered fold that a final one is a part of, with its nest and its iteration in the final one's variables."""
        for nest, its, _ in self.lowered.nests() if self.lowered is not None else ():
            for x in nest.folds:
                if (x.values, x.op, x.carried, len(x.nodes), x.buffers) != (f.values, f.op, f.carried, len(f.nodes), f.buffers):
                    continue
                at = self._part(f.index, (*f.nodes, *f.inits), place, x.index, (*x.nodes, *x.inits), its)
                if at is not None:
                    return x, nest, its, at
        return None

    def _part(
        self, index: Sequence[Expr], nodes: Sequence[Node], place: Place,
        its_index: Sequence[Expr], its_nodes: Sequence[Node], its: Place,
    ) -> Point | None:  # fmt: skip
        """The lowered iteration that each final one is: both write the same element from the same expressions. None where not."""
        if len(index) != len(its_index) or len(nodes) != len(its_nodes):
            return None
        at = self._iteration(its_index, index, place, its)
        is_moved = at is not None and any(v is not e for v, e in at.items())
        if at is None or (is_moved and has_runtimes(its_nodes)):
            return None
        ranges = self._ranges(place)
        rename = Renamer(at, ranges, {})
        symbols = Comparison(ranges, NOWHERE, within=place.domain)
        if is_moved:
            its_index, its_nodes = rename.index(its_index), [rename.node(n) for n in its_nodes]
        if not all(symbols.equal(a, b) for a, b in zip(index, its_index, strict=True)):
            return None
        return at if all(symbols.same(a, b) for a, b in zip(nodes, its_nodes, strict=True)) else None

    def _iteration(self, its_index: Sequence[Expr], index: Sequence[Expr], place: Place, its: Place) -> Point | None:
        """The lowered iteration, in a final one's variables, that writes the same element; None where there is none for some."""
        mine = place.domain.ranges
        missing = [(v, b) for v, b in its.domain.variables if v not in mine]
        solved = matched(its_index, index, [v for v, _ in missing], self._ranges(place))
        left = [(v, b) for v, b in missing if v not in solved and b.size > 1]
        known = its.domain.ranges
        own = [(v, b) for v, b in mine.items() if v not in known and not any(v in e.variables for e in solved.values())]
        if left and len(own) == 1 and all(b.lower == 0 for _, b in (*left, *own)):
            # Loops that were joined: their numbers are the digits of the one loop's.
            ((joined, span),), below = own, 1
            if prod(b.size for _, b in left) == span.size:
                for v, b in reversed(left):
                    solved[v] = simplify(joined // below % b.size, self._ranges(place))
                    below *= b.size
        at: dict[Var, Expr] = {}
        for v, b in its.domain.variables:
            e = v if v in mine else solved.get(v, Const(b.lower) if b.size == 1 else None)
            if e is None or not all(x in mine for x in e.variables):
                return None
            at[v] = e
        reached = relation_of(place.domain, tuple(at[v] for v, _ in its.domain.variables)).range()
        return at if reached.is_subset(points_of(its.domain)) else None
