"""Element expressions: one element of a tensor as a scalar computation over loads.

    element(v, index) = Load(v, index)                          when v is in memory (an argument, a stored or scratch value)
                      = f(element(a, …), element(b, …))          when v = f(a, b) is computed where it is read

Nodes form a graph: a value read twice at the same index is one node, computed once. `tiling.elements.build` makes them.
A node equals itself alone, and is a key of the tables about a graph; two loads of one element have the same `Load.place`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from hlo.access import Condition
from hlo.module import Op, Value
from hlo.types import ElementType
from indexing.expr import Expr, Interval, Var, simplify, substitute
from tiling.loops.buffers import Buffer

__all__ = [
    "Apply",
    "Choose",
    "IndexNode",
    "Load",
    "Node",
    "Renamer",
    "Reread",
    "Runtime",
    "Scalar",
    "Test",
    "all_nodes",
    "children",
    "constant",
    "element_name",
    "has_runtimes",
    "loads",
    "loads_among",
    "moves_runtimes",
    "node_variables",
    "operands_first",
    "own_expressions",
    "rebuild",
    "runtimes_of",
    "unconditional_loads",
]


@dataclass(frozen=True, slots=True, eq=False)
class Runtime:
    """A runtime variable: in index expressions `variable` stands for the integer `node`, clamped to [lower, upper]."""

    variable: Var
    node: Node
    lower: int
    upper: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """An element of a value in memory: in the buffer that the fusion keeps the value in, or in `buffer` where one is named."""

    value: Value
    index: tuple[Expr, ...]
    buffer: Buffer | None = None
    runtimes: tuple[Runtime, ...] = ()

    @property
    def place(self) -> Hashable:
        """What is read: equal for loads of the same element."""
        return self.value, self.index, self.buffer, self.runtimes


@final
@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """A scalar function of other nodes: the op names it and carries its attributes."""

    op: Op
    function: str
    arguments: tuple[Node, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Choose:
    """`then` where all conditions hold, else `otherwise`. `then` is evaluated only there (its loads may be out of bounds)."""

    conditions: tuple[Condition, ...]
    then: Node
    otherwise: Node
    runtimes: tuple[Runtime, ...] = ()


@final
@dataclass(frozen=True, slots=True, eq=False)
class Test:
    """The truth of conditions on indices: all of them hold."""

    conditions: tuple[Condition, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class IndexNode:
    """An index expression as a number of an element type."""

    expression: Expr
    element: ElementType
    runtimes: tuple[Runtime, ...] = ()


@final
@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A constant of an element type."""

    value: np.generic
    element: ElementType


Node = Load | Apply | Choose | Test | IndexNode | Scalar


def constant(value: float, like: Value) -> Scalar:
    """A number of the element type of `like`, which is not quantized."""
    element = like.tensor.element
    assert isinstance(element, ElementType)
    return Scalar(element.dtype.type(value), element)


def all_nodes(roots: Sequence[Node]) -> Iterator[Node]:
    """Some nodes and all that they are computed from, each once: a node before its operands, operands from left to right."""
    seen: set[Node] = set()
    stack = list(reversed(roots))
    while stack:
        n = stack.pop()
        if n not in seen:
            seen.add(n)
            yield n
            below = children(n)
            if below:
                stack.extend(reversed(below))


def loads(roots: Sequence[Node]) -> list[Load]:
    """The loads below some nodes, the first one of each element, in the order of `all_nodes`."""
    return loads_among(all_nodes(roots))


def loads_among(nodes: Iterable[Node]) -> list[Load]:
    """The loads among some nodes, the first one of each element."""
    found: dict[Hashable, Load] = {}
    for n in nodes:
        if type(n) is Load:
            found.setdefault(n.place, n)
    return list(found.values())


def unconditional_loads(roots: Sequence[Node]) -> list[Load]:
    """The distinct loads that every iteration makes: those inside a choice may be out of bounds elsewhere."""
    found: dict[Hashable, Load] = {}
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if isinstance(n, Load):
            found.setdefault(n.place, n)
        elif not isinstance(n, Choose):
            stack.extend(children(n))
    return list(found.values())


def children(node: Node) -> tuple[Node, ...]:
    """The nodes that a node is computed from, those of its runtime variables first."""
    if type(node) is Apply:  # asked for millions of times: of these classes there are no subclasses
        return node.arguments
    if type(node) is Scalar or type(node) is Test:
        return ()
    of_runtimes = tuple([r.node for r in node.runtimes]) if node.runtimes else ()
    return (*of_runtimes, node.then, node.otherwise) if type(node) is Choose else of_runtimes


def operands_first(
    root: Node, memo: Mapping[Node, object], below: Callable[[Node], Sequence[Node]] = children
) -> Iterator[Node]:
    """What a node is computed from (what is `below` it) and the node itself, operands first, without those that are in `memo`.

    Whoever asks puts a node into `memo` before asking for the next one.
    """
    stack = [root]
    while stack:
        n = stack[-1]
        waiting = [c for c in below(n) if c not in memo] if n not in memo else ()
        stack.extend(waiting)
        if not waiting:
            stack.pop()
            if n not in memo:
                yield n


def runtimes_of(node: Node) -> tuple[Runtime, ...]:
    """The runtime variables in a node's own index expressions."""
    return () if type(node) is Apply or type(node) is Scalar or type(node) is Test else node.runtimes


def own_expressions(node: Node) -> tuple[Expr, ...]:
    """The index expressions of a node itself: a load's index, an index as a number, the sides of conditions."""
    if type(node) is Apply or type(node) is Scalar:
        return ()
    if type(node) is Load:
        return node.index
    if type(node) is IndexNode:
        return (node.expression,)
    return tuple([c.expression for c in node.conditions])


def node_variables(node: Node, memo: dict[Node, frozenset[Var]]) -> frozenset[Var]:
    """The loop variables that a node's value depends on."""
    for n in operands_first(node, memo):
        own = frozenset(x for e in own_expressions(n) for x in e.variables)
        memo[n] = own.union(*(memo[c] for c in children(n)))
    return memo[node]


def rebuild(
    root: Node,
    leaf: Callable[[Load], Node],
    index: Callable[[Sequence[Expr]], tuple[Expr, ...]],
    memo: dict[Node, Node],
    settle: Callable[[Node], Node] = lambda n: n,
    runtimes: Callable[[Sequence[Runtime]], tuple[Runtime, ...]] = tuple,
) -> Node:
    """A copy of a node with every load passed through `leaf`, every other index expression through `index`, and then every
    copied node through `settle`. What does not change is not copied.

    Without `runtimes` nothing is copied below runtime variables: these stand for the original's values. So only what does not
    move them may be renamed (`moves_runtimes` tells). `runtimes` gives a node's own, before its expressions are asked for.
    `memo`, a node's copy, lets several roots share their copies.
    """
    for n in operands_first(root, memo):
        new: Node = n
        own = runtimes_of(n)
        known = runtimes(own) if own else own
        if isinstance(n, Load):
            new = leaf(n)
        elif isinstance(n, IndexNode):
            (expression,) = index((n.expression,))
            if expression is not n.expression:
                new = IndexNode(expression, n.element, n.runtimes)
        elif isinstance(n, Apply):
            if any(memo[a] is not a for a in n.arguments):
                new = Apply(n.op, n.function, tuple(memo[a] for a in n.arguments))
        elif isinstance(n, Choose):
            conditions = _conditions(n, index)
            then, otherwise = memo[n.then], memo[n.otherwise]
            if conditions != n.conditions or then is not n.then or otherwise is not n.otherwise:
                new = Choose(conditions, then, otherwise, n.runtimes)
        elif isinstance(n, Test):
            conditions = _conditions(n, index)
            if conditions != n.conditions:
                new = Test(conditions)
        if known != own and isinstance(new, (Load, IndexNode, Choose)) and new.runtimes == own:
            new = replace(new, runtimes=known)
        memo[n] = settle(new)
    return memo[root]


@final
class Reread:
    """Copies of nodes that read elsewhere what has the same value: nodes of `memo`, and loads through `leaf`.

    Unlike `rebuild` also below runtime variables: what they stand for does not change. Those that several loads share are
    shared by the copies.
    """

    def __init__(self, memo: dict[Node, Node], leaf: Callable[[Load], Node] = lambda x: x) -> None:
        self._memo = memo
        self._leaf = leaf
        self._runtimes: dict[Runtime, Runtime] = {}

    def node(self, root: Node) -> Node:
        """A copy of a node; the node itself where nothing below it is read elsewhere."""
        return rebuild(root, self._leaf, tuple, self._memo, self.own)

    def own(self, n: Node) -> Node:
        """A copy whose operands are copies already, with runtime variables that stand for copies."""
        found = runtimes_of(n)
        new = tuple([self._runtime(r) for r in found])
        if all(a is b for a, b in zip(new, found, strict=True)) or isinstance(n, (Apply, Scalar, Test)):
            return n
        return replace(n, runtimes=new)

    def _runtime(self, r: Runtime) -> Runtime:
        if r not in self._runtimes:
            node = self._memo.get(r.node, r.node)
            self._runtimes[r] = r if node is r.node else replace(r, node=node)
        return self._runtimes[r]


def _conditions(n: Choose | Test, index: Callable[[Sequence[Expr]], tuple[Expr, ...]]) -> tuple[Condition, ...]:
    return tuple(Condition(index((c.expression,))[0], c.lower, c.upper) for c in n.conditions)


def has_runtimes(roots: Sequence[Node]) -> bool:
    """True when an index below some nodes depends on values known only at run time."""
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if runtimes_of(n):
            return True
        stack.extend(children(n))
    return False


def moves_runtimes(roots: Sequence[Node], variables: Iterable[Var]) -> bool:
    """Whether an index below some nodes depends on values known only at run time that are others for others of `variables`.

    What does not move is one number wherever these variables are renamed: the slice that an iteration of a program's loop reads.
    """
    moving = set(variables)
    memo: dict[Node, frozenset[Var]] = {}
    return any(not moving.isdisjoint(node_variables(r.node, memo)) for n in all_nodes(roots) for r in runtimes_of(n))


def element_name(n: Node) -> str | None:
    """The element type of a node's value, where the node tells."""
    if isinstance(n, Load):
        return str(n.value.tensor.element)
    if isinstance(n, Apply):
        return str(n.op.results[0].tensor.element)
    if isinstance(n, Choose):
        return element_name(n.then) or element_name(n.otherwise)
    return str(n.element) if isinstance(n, (IndexNode, Scalar)) else None


class Renamer:
    """Copies nodes with variables replaced and loads of just-computed values replaced by what computes them."""

    def __init__(
        self, renaming: Mapping[Var, Expr], ranges: Mapping[Var, Interval], computed: Mapping[Value, Node]
    ) -> None:
        self.renaming, self.ranges, self.computed = renaming, ranges, computed
        self._memo: dict[Node, Node] = {}

    def index(self, index: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(simplify(substitute(e, self.renaming), self.ranges) for e in index)

    def node(self, node: Node) -> Node:
        return rebuild(node, self._leaf, self.index, self._memo)

    def _leaf(self, load: Load) -> Node:
        return self.computed.get(load.value) or Load(load.value, self.index(load.index), load.buffer, load.runtimes)
