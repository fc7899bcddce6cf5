"""An element's expression at one index, as a pattern for the same at all others: what a box changes of it is where it loads.

    at d0, d1    f(x[d0, d1], b[d1])
    at t0 * 8 + i0, i1    f(x[t0 * 8 + i0, i1], b[i1])

It is one where nothing depends on the index but the loads' places, and these are sums of the index's parts: no conditions, no
index as a number, nothing known at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlo.module import Op
from indexing.expr import Expr, Interval, Var, interval, simplify, substitute
from tiling.loops.element_ir import Apply, Load, Node, Scalar, operands_first

__all__ = ["Template", "template_of"]


@dataclass(frozen=True)
class _Function:
    """A scalar function of nodes, which are given by their places."""

    op: Op
    name: str
    arguments: tuple[int, ...]


_Part = Scalar | Load | _Function


@dataclass(frozen=True, eq=False)
class Template:
    """An element's nodes, operands first, at the index `dims`, which lies in `within` (empty where it may lie anywhere)."""

    dims: tuple[Var, ...]
    within: tuple[Interval, ...]
    nodes: tuple[_Part, ...]

    def at(self, index: Sequence[Expr], ranges: Mapping[Var, Interval]) -> Node | None:
        """The element at `index`; None where that may lie elsewhere: conditions may then be asked for."""
        if self.within and not all(span.covers(interval(e, ranges)) for span, e in zip(self.within, index, strict=True)):
            return None
        place: dict[Var, Expr] = dict(zip(self.dims, index, strict=True))
        made: list[Node] = []
        known: dict[object, Node] = {}  # what is the same at this index is one node
        for n in self.nodes:
            found: Node
            if isinstance(n, _Function):
                arguments = tuple([made[k] for k in n.arguments])
                key = n.op, n.name, arguments
                found = known.get(key) or known.setdefault(key, Apply(n.op, n.name, arguments))
            elif isinstance(n, Load):
                where = tuple([place[e] if type(e) is Var else simplify(substitute(e, place), ranges) for e in n.index])
                found = known.get((n.value, where)) or known.setdefault((n.value, where), Load(n.value, where))
            else:
                found = n
            made.append(found)
        return made[-1]


def template_of(root: Node, dims: Sequence[Var], within: Sequence[Interval]) -> Template | None:
    """The pattern of an element that was built at `dims`, for an index `within`; None where more than loads depends on it."""
    place: dict[Node, int] = {}
    nodes: list[_Part] = []
    for n in operands_first(root, place):
        place[n] = len(nodes)
        if isinstance(n, Load) and not n.runtimes and n.buffer is None and all(_is_sum(e) for e in n.index):
            nodes.append(n)
        elif isinstance(n, Apply):
            nodes.append(_Function(n.op, n.function, tuple([place[c] for c in n.arguments])))
        elif isinstance(n, Scalar):
            nodes.append(n)
        else:
            return None
    return Template(tuple(dims), tuple(within), tuple(nodes))


def _is_sum(e: Expr) -> bool:
    return all(type(atom) is Var for atom, _ in e.terms)
