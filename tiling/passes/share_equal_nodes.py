"""What the stores and segments of a nest compute alike is one node, which is written, compiled and computed once.

    for i: a[i, 0] = f(x[i]) + y[i]; a[i, 1] = g(f(x[i]))   ->   for i: v = f(x[i]); a[i, 0] = v + y[i]; a[i, 1] = g(v)

Two pieces of a concatenation that read one value (the two words of a random generator's round) come to it along different
indices, and only where the loop is cut between them (`split_innermost`, `take_turns`) are the indices the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from hlo.access import Condition
from hlo.attributes import freeze_attributes
from hlo.module import Op
from indexing.expr import Var, substitute
from tiling.loops.element_ir import (
    Apply,
    Choose,
    IndexNode,
    Load,
    Node,
    Runtime,
    Scalar,
    Test,
    all_nodes,
    children,
    operands_first,
    runtimes_of,
)
from tiling.loops.ir import Buffer, FoldStep, LoopKind, Nest, Store

__all__ = ["share_equal_nodes"]


def share_equal_nodes(nest: Nest, buffer_of: Callable[[Load], Buffer]) -> Nest:
    """The nest with one node for all that are equal; the nest itself where no two are.

    Loads of what the nest writes stay apart: what they read may change from one store to the next. So do nests whose nodes are
    written in an order of their own (scans, second looks at a row), and those of which a part has a runtime variable's name for
    another number than a part before it.
    """
    if any(x.kind is LoopKind.SCAN for x in nest.loops) or any(f.looks_twice for f in nest.folds):
        return nest
    stores = [s for part in nest.parts for s in part.stores]
    folds = [f for part in nest.parts for f in part.folds]
    roots = [*(s.node for s in stores), *(n for f in folds for n in (*f.nodes, *f.inits))]
    if not any(isinstance(n, Apply) for n in roots):
        return nest
    written = {s.buffer for s in stores} | {b for f in folds for b in f.buffers}
    sharing = _Sharing(lambda load: buffer_of(load) in written)
    made = [sharing.node(n) for n in roots]
    if sharing.has_name_twice or len(set(all_nodes(made))) == len(set(all_nodes(roots))):
        return nest
    segments = tuple(
        replace(part, stores=sharing.stores(part.stores), folds=sharing.folds(part.folds)) for part in nest.segments
    )
    return replace(nest, stores=sharing.stores(nest.stores), folds=sharing.folds(nest.folds), segments=segments)


class _Sharing:
    """The first node of each kind, and what became of every node."""

    def __init__(self, changes: Callable[[Load], bool]) -> None:
        self.changes = changes
        self.known: dict[Hashable, Node] = {}
        self.made: dict[Node, Node] = {}
        self.functions: dict[Op, Hashable] = {}
        self.runtimes: dict[Hashable, Runtime] = {}
        self.numbers: dict[Var, Hashable] = {}  # what each runtime variable stands for
        self.has_name_twice = False

    def node(self, root: Node) -> Node:
        for n in operands_first(root, self.made):
            new = self._over_shared(n)
            key = self._key(new)
            self.made[n] = new if key is None else self.known.setdefault(key, new)
        return self.made[root]

    def stores(self, stores: Sequence[Store]) -> tuple[Store, ...]:
        return tuple(replace(s, node=self.node(s.node)) for s in stores)

    def folds(self, folds: Sequence[FoldStep]) -> tuple[FoldStep, ...]:
        return tuple(replace(f, nodes=tuple(map(self.node, f.nodes)), inits=tuple(map(self.node, f.inits))) for f in folds)

    def _over_shared(self, n: Node) -> Node:
        """The node with what became of its operands in their place."""
        runtimes = tuple([self._runtime(r) for r in runtimes_of(n)])
        if all(self.made[c] is c for c in children(n)) and runtimes == runtimes_of(n):
            return n
        if isinstance(n, Apply):
            return Apply(n.op, n.function, tuple(self.made[a] for a in n.arguments))
        at = {r.variable: x.variable for r, x in zip(runtimes_of(n), runtimes, strict=True) if r.variable is not x.variable}
        if isinstance(n, Load):
            return Load(n.value, tuple([substitute(e, at) for e in n.index]), n.buffer, runtimes)
        if isinstance(n, IndexNode):
            return IndexNode(substitute(n.expression, at), n.element, runtimes)
        assert isinstance(n, Choose)
        conditions = tuple([Condition(substitute(c.expression, at), c.lower, c.upper) for c in n.conditions])
        return Choose(conditions, self.made[n.then], self.made[n.otherwise], runtimes)

    def _runtime(self, r: Runtime) -> Runtime:
        """The first runtime variable that stands for the same number."""
        node = self.made[r.node]
        number = (node, r.lower, r.upper)
        self.has_name_twice |= self.numbers.setdefault(r.variable, number) != number
        return self.runtimes.setdefault(number, r if node is r.node else replace(r, node=node))

    def _key(self, n: Node) -> Hashable | None:
        """Equal for nodes of equal value; None for one that is like no other."""
        if isinstance(n, Apply):
            return self._function(n.op), n.function, n.arguments
        if isinstance(n, Load):
            return None if self.changes(n) else n.place
        if isinstance(n, Choose):
            return n.conditions, n.then, n.otherwise, n.runtimes
        if isinstance(n, IndexNode):
            return n.expression, n.element, n.runtimes
        if isinstance(n, Scalar):
            return n.value.tobytes(), n.element
        assert isinstance(n, Test)
        return n.conditions

    def _function(self, op: Op) -> Hashable:
        """What an op's function depends on, besides its operands' values."""
        known = self.functions.get(op)
        if known is None:
            elements = [v.tensor.element for v in (*op.operands, *op.results)]
            known = self.functions[op] = (op.name, freeze_attributes(op.attributes), tuple(elements))
        return known
