"""The factors of a sum of products: which of them is zero where a padded operand has no element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from indexing.expr import Expr, Interval, Var, interval
from tiling.loops.element_ir import Choose, Node, has_runtimes, loads

__all__ = ["without_repeats"]


def without_repeats(nodes: Sequence[Node], ranges: Mapping[Var, Interval], within: Mapping[Expr, int]) -> list[Node]:
    """A product's factors: where one factor is zero outside of some conditions, the others need not test them as well.

    That is what such an op means: around an operand and in its holes there are zeros, which are multiplied like any other
    element. Zero times an infinity is no number. `within` are indices of the result with its extents.
    """
    found, first = list(nodes), nodes[0]
    if isinstance(first, Choose):
        for k, n in enumerate(found[1:], 1):
            if isinstance(n, Choose) and n.conditions == first.conditions and _always_inside(n.then, ranges, within):
                found[k] = n.then
    return found


def _always_inside(node: Node, ranges: Mapping[Var, Interval], within: Mapping[Expr, int]) -> bool:
    """True for a node, perhaps computed, that loads from inside of its values wherever the loops are.

    `within` are indices of the result with its extents: loops stop there, also in a tile that is cut.
    """
    if has_runtimes([node]):
        return False
    pairs = [(e, interval(e, ranges), n) for x in loads([node]) for e, n in zip(x.index, x.value.shape, strict=True)]
    return all((b.lower >= 0 and b.upper < n) or within.get(e, n + 1) <= n for e, b, n in pairs)
