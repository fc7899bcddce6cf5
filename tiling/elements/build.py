"""Builds element expressions from the maps of a program's edges: what an element reads, through all that is computed in place.

An element of an op is its semantics over the operands' elements where the maps of its edges lead; nothing here looks at op names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hlo.access import Condition
from hlo.errors import Declined
from hlo.module import DenseArray, Op, Value
from hlo.registry import Elementwise, Fold, Generate, Literal, Move
from hlo.types import ElementType
from indexing.deriving.derive import reads_of as maps_of
from indexing.deriving.edges import Edge, EdgeMaps, OpEdges
from indexing.deriving.runtime import clamped, known_element
from indexing.expr import Expr, Interval, Var, as_expr, interval, simplify, substitute
from tiling.elements.multiples import at_multiples
from tiling.elements.rules import simplify_node, wrapped
from tiling.loops.element_ir import Apply, Choose, IndexNode, Load, Node, Runtime, Scalar

__all__ = ["Builder", "ElementBuilder", "Read"]


@dataclass(frozen=True)
class Read:
    """operand[index], where all conditions hold; `never` when they hold for no value of the loops."""

    operand: int
    index: tuple[Expr, ...]
    conditions: tuple[Condition, ...] = ()
    never: bool = False


@dataclass(frozen=True)
class Reads:
    """What an op reads for one element: `runtimes` are (variable, operand, index) of what only the running program knows."""

    reads: tuple[Read, ...]
    runtimes: tuple[tuple[Var, int, tuple[Expr, ...]], ...] = ()


class RuntimeTable:
    """The runtime variables of a nest: the same one for the same element of the same value with the same limits."""

    def __init__(self, ranges: dict[Var, Interval]) -> None:
        self.ranges = ranges
        self.variables: dict[tuple[Value, tuple[Expr, ...], Interval], Var] = {}
        self.nodes: dict[Var, Node] = {}

    def variable(self, value: Value, index: tuple[Expr, ...], limits: Interval) -> Var:
        key = (value, index, limits)
        if key not in self.variables:
            v = Var(f"rt{len(self.ranges)}")
            self.variables[key] = v
            self.ranges[v] = limits
        return self.variables[key]

    def moved(self, r: Runtime, index: Callable[[Sequence[Expr]], tuple[Expr, ...]], node: Node) -> Runtime:
        """The variable of what `index` makes of a variable's place; computed from `node`, where it is new."""
        value, place, limits = next(key for key, v in self.variables.items() if v is r.variable)
        variable = self.variable(value, index(place), limits)
        return Runtime(variable, self.nodes.setdefault(variable, node), r.lower, r.upper)

    def of(self, expressions: Sequence[Expr]) -> tuple[Runtime, ...]:
        """The runtime variables in some index expressions."""
        if not self.nodes:
            return ()
        found = dict.fromkeys(v for e in expressions for v in e.variables if v in self.nodes)
        return tuple(Runtime(v, self.nodes[v], *self.ranges[v]) for v in found)


def reads_at(
    edges: OpEdges, op: Op, index: tuple[Expr, ...], ranges: Mapping[Var, Interval], provide: Callable[[int], Expr],
    table: RuntimeTable,
) -> Reads:  # fmt: skip
    """What `op` reads for its output element at `index`: the maps of its edges there.

    `provide(size)` gives each range variable, in order.
    """
    here = tuple([simplify(e, ranges) for e in index])
    at: dict[Var, Expr] = dict(zip(edges.dim_vars, here, strict=True))
    for r in edges.ranges:
        at[r.var] = simplify(provide(r.interval.upper + 1), ranges)
    known: dict[Expr, Expr] = {}

    def placed(e: Expr) -> Expr:
        if type(e) is Var:
            return at[e]
        return simplify(substitute(e, at, known), ranges) if e.terms else e

    runtimes: list[tuple[Var, int, tuple[Expr, ...]]] = []
    for v, operand in zip(edges.runtimes, edges.runtime_operands, strict=True):
        element = tuple([placed(e) for e in v.element])
        limits = Interval(v.interval.lower, max(v.interval.lower, v.interval.upper))
        told = known_element(op.operands[operand], element, ranges, maps_of)
        if told is None:  # a task's index may go on beyond the op's, whose maps were made for all of it
            whole = {x.var: x.interval for x in (*edges.dims, *edges.ranges)}
            told = known_element(op.operands[operand], v.element, whole, maps_of)
            told = None if told is None else placed(told)
        if told is None:
            at[v.var] = variable = table.variable(op.operands[operand], element, limits)
            runtimes.append((variable, operand, element))
        else:  # as the index maps have it: the program says which element that is
            at[v.var] = clamped(told, limits, ranges)
    reads = [Read(e.operand, here) if e.is_identity else _read(e, placed, ranges) for e in edges.reads]
    return Reads(tuple(reads), tuple(runtimes))


def _read(edge: Edge, placed: Callable[[Expr], Expr], ranges: Mapping[Var, Interval]) -> Read:
    index = tuple([placed(e) for e in edge.settled])
    held: list[Condition] = []
    for c, span in edge.conditions:
        e = placed(c)
        bounds = interval(e, ranges)
        if bounds.lower > span.upper or bounds.upper < span.lower:
            return Read(edge.operand, index, never=True)
        if not span.covers(bounds):
            held.append(Condition(e, span.lower, span.upper))
    return Read(edge.operand, index, tuple(held))


class ElementBuilder:
    """Builds element expressions for loops whose variables have the given ranges.

    `is_in_memory(value)` says which values are loaded; all others are computed where they are read. `reasons` collects why a
    value could not be expressed; the caller then keeps that value in memory. `edges` are those of the program, where it has them.
    """

    def __init__(
        self, ranges: dict[Var, Interval], is_in_memory: Callable[[Value], bool], edges: EdgeMaps | None = None
    ) -> None:
        self.ranges = ranges
        self.edges = EdgeMaps() if edges is None else edges
        self.table = RuntimeTable(ranges)
        self.is_in_memory = is_in_memory
        self._nodes: dict[tuple[Value, tuple[Expr, ...]], Node] = {}
        self._settled: dict[tuple[Expr, ...], tuple[Expr, ...]] = {}  # an index, simplified
        self._waiting: dict[tuple[Value, tuple[Expr, ...]], Reads] = {}  # what is read for nodes whose operands are not there yet

    def at(self, value: Value, index: tuple[Expr, ...]) -> Node:
        """The node for value[index]. Raises LookupError for a value that must be in memory but is not."""
        todo: list[tuple[Value, tuple[Expr, ...]]] = [(value, index)]
        while todo:  # an explicit stack: chains of thousands of elementwise ops are no exception
            v, where = todo[-1]
            if (v, where) in self._nodes:
                todo.pop()
                continue
            missing = self._try(v, where)
            if missing:
                todo.extend(missing)
            else:
                todo.pop()
        return self._nodes[value, index]

    def outside(self, op: Op, operand: int) -> Node:
        """What stands for an element that a fold or a sum of products does not read: the initial value, or zero."""
        if isinstance(op.definition.semantics, Fold):
            return self.at(op.operands[operand + len(op.operands) // 2], ())
        element = op.operands[operand].tensor.element
        assert isinstance(element, ElementType)
        return Scalar(element.dtype.type(0), element)

    def reads(self, op: Op, output: int, index: tuple[Expr, ...], provide: Callable[[int], Expr]) -> list[Node]:
        """The nodes that a fold or a sum of products reads for one output element, in the order of its reads.

        Where a read does not take place, what is `outside` stands for it. Raises LookupError where the access is declined.
        """
        found = self._reads(op, output, index, provide)
        for v, operand, at in found.runtimes:
            self.table.nodes[v] = self.at(op.operands[operand], at)
        nodes: list[Node] = []
        for r in found.reads:
            if r.never:
                nodes.append(self.outside(op, r.operand))
                continue
            node = self.at(op.operands[r.operand], r.index)
            nodes.append(self._choose(r.conditions, node, self.outside(op, r.operand)) if r.conditions else node)
        return nodes

    def _try(self, v: Value, where: tuple[Expr, ...]) -> list[tuple[Value, tuple[Expr, ...]]]:
        """Makes the node if all that it reads is there; else says what is missing."""
        op = v.op
        if op is None or self.is_in_memory(v):
            self._load(v, where)
            return []
        semantics = op.definition.semantics
        element = v.tensor.element
        if isinstance(semantics, Literal) and isinstance(element, ElementType):
            dense: DenseArray = op.attr("value")
            if dense.is_splat:
                return self._put(v, where, Scalar(dense.array.reshape(-1)[0], element))
        if isinstance(semantics, Generate) and isinstance(element, ElementType):
            number = wrapped(simplify(as_expr(semantics.value(op, where)), self.ranges), element, self.ranges)
            return self._put(v, where, IndexNode(number, element, self.table.of((number,))))
        if not isinstance(semantics, (Elementwise, Move)):
            raise LookupError(f"{op.name} is not computed where it is read")
        if isinstance(semantics, Elementwise):
            edges = self.edges.of(op, v.index)
            if not isinstance(edges, Declined) and edges.is_elementwise:
                return self._elementwise(v, where, op, semantics.function, edges)
        found = self._waiting.pop((v, where), None) or self._reads(op, v.index, where, _no_ranges)
        needed = [(op.operands[k], at) for _, k, at in found.runtimes if (op.operands[k], at) not in self._nodes]
        if needed:
            self._waiting[v, where] = found
            return needed
        for variable, k, at in found.runtimes:
            self.table.nodes[variable] = self._nodes[op.operands[k], at]
        taken = [r for r in found.reads if not r.never]
        missing = [
            (op.operands[r.operand], r.index)
            for r in taken
            if (op.operands[r.operand], r.index) not in self._nodes
        ]
        if missing:
            self._waiting[v, where] = found
            return missing
        nodes = [self._nodes[op.operands[r.operand], r.index] for r in taken]
        if isinstance(semantics, Elementwise):
            made = Apply(op, semantics.function, tuple(nodes))
            return self._put(v, where, simplify_node(made, self.ranges))
        # The last read without conditions, or the padding value, is what stays when no condition holds.
        result = nodes[-1]
        for read, node in reversed(list(zip(taken[:-1], nodes[:-1], strict=True))):
            result = self._choose(read.conditions, node, result) if read.conditions else node
        return self._put(v, where, result)

    def _elementwise(
        self, v: Value, where: tuple[Expr, ...], op: Op, function: str, edges: OpEdges
    ) -> list[tuple[Value, tuple[Expr, ...]]]:
        """The same for an op that reads all of its operands at its own index, as most do."""
        here = self._settled.get(where)
        if here is None:
            here = self._settled[where] = tuple([simplify(e, self.ranges) for e in where])
        keys = [(op.operands[e.operand], here) for e in edges.reads]
        missing = [k for k in keys if k not in self._nodes]
        if missing:
            return missing
        made = Apply(op, function, tuple([self._nodes[k] for k in keys]))
        return self._put(v, where, simplify_node(made, self.ranges))

    def _reads(self, op: Op, output: int, index: tuple[Expr, ...], provide: Callable[[int], Expr]) -> Reads:
        edges = self.edges.of(op, output)
        if isinstance(edges, Declined):
            raise LookupError(edges.reason)
        return reads_at(edges, op, index, self.ranges, provide, self.table)

    def _choose(self, conditions: tuple[Condition, ...], then: Node, otherwise: Node) -> Node:
        runtimes = self.table.of([c.expression for c in conditions])
        return Choose(conditions, at_multiples(then, conditions, self._load, self.table.moved), otherwise, runtimes)

    def _load(self, v: Value, where: tuple[Expr, ...]) -> Node:
        if (v, where) not in self._nodes:
            self._nodes[v, where] = Load(v, where, None, self.table.of(where))
        return self._nodes[v, where]

    def _put(self, v: Value, where: tuple[Expr, ...], node: Node) -> list[tuple[Value, tuple[Expr, ...]]]:
        self._nodes[v, where] = node
        return []


Builder = Callable[[dict[Var, Interval]], ElementBuilder]
"""Makes the builder of element expressions over given ranges."""


def _no_ranges(size: int) -> Expr:
    raise LookupError("an op that runs over a range is not computed where it is read")
