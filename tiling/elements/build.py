"""Builds element expressions from access functions: what an element reads, through everything that is computed in place.

The reads come from the op's access function, run on index expressions; nothing here looks at op names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hlo.access import Condition, Index
from hlo.errors import Declined
from hlo.module import DenseArray, Op, Value
from hlo.registry import Elementwise, Generate, Literal, Move
from hlo.types import ElementType
from indexing.derive import reads_of as maps_of
from indexing.expr import Expr, Interval, Var, as_expr, interval, simplify
from indexing.runtime import clamped, known_element
from tiling.elements.rules import simplify_node
from tiling.loops.element_ir import Apply, Choose, IndexNode, Load, Node, Runtime, Scalar

__all__ = ["Builder", "ElementBuilder", "Read", "reads_of"]


@dataclass(frozen=True)
class Read:
    """operand[index], where all conditions hold; `never` when they hold for no value of the loops."""

    operand: int
    index: tuple[Expr, ...]
    conditions: tuple[Condition, ...] = ()
    never: bool = False


class _Recorder:
    """The access builder on symbolic expressions."""

    def __init__(
        self, op: Op, provide: Callable[[int], Expr], ranges: Mapping[Var, Interval], table: RuntimeTable | None
    ) -> None:
        self.op, self.table = op, table
        self.provide = provide
        self.known = ranges
        self.reads: list[Read] = []
        self.runtimes: list[tuple[Var, int, tuple[Expr, ...]]] = []

    def range(self, size: int, name: str = "") -> Expr:
        return self.provide(size)

    def runtime(self, operand: int, index: Sequence[Index], lower: int, upper: int) -> Expr:
        if self.table is None:
            raise LookupError(f"operand {operand} is an index that is known only at run time")
        at = tuple(simplify(as_expr(i), self.known) for i in index)
        told = known_element(self.op.operands[operand], at, self.known, maps_of)
        if told is not None:  # as the index maps have it: the program says which element that is
            return clamped(told, Interval(lower, max(lower, upper)), self.known)
        v = self.table.variable(self.op.operands[operand], at, Interval(lower, max(lower, upper)))
        self.runtimes.append((v, operand, at))
        return v

    def read(self, operand: int, index: Sequence[Index], where: Sequence[Condition] = ()) -> None:
        found = tuple(simplify(as_expr(i), self.known) for i in index)
        held: list[Condition] = []
        for c in where:
            e = simplify(as_expr(c.expression), self.known)
            bounds = interval(e, self.known)
            if bounds.lower > c.upper or bounds.upper < c.lower:
                self.reads.append(Read(operand, found, never=True))
                return
            if not (c.lower <= bounds.lower and bounds.upper <= c.upper):
                held.append(Condition(e, c.lower, c.upper))
        self.reads.append(Read(operand, found, tuple(held)))


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

    def of(self, expressions: Sequence[Expr]) -> tuple[Runtime, ...]:
        """The runtime variables in some index expressions."""
        found = dict.fromkeys(v for e in expressions for v in e.variables if v in self.nodes)
        return tuple(Runtime(v, self.nodes[v], *self.ranges[v]) for v in found)


def reads_of(
    op: Op,
    output: int,
    index: tuple[Expr, ...],
    ranges: Mapping[Var, Interval],
    provide: Callable[[int], Expr],
    table: RuntimeTable | None = None,
) -> _Recorder | Declined:
    """What `op` reads for its output element at `index`; `provide(size)` gives each range variable, in order."""
    access = op.definition.access
    if isinstance(access, Declined):
        return access
    recorder = _Recorder(op, provide, ranges, table)
    access(op, output, index, recorder)
    return recorder


class ElementBuilder:
    """Builds element expressions for loops whose variables have the given ranges.

    `is_in_memory(value)` says which values are loaded; all others are computed where they are read. `reasons` collects why a
    value could not be expressed; the caller then keeps that value in memory.
    """

    def __init__(self, ranges: dict[Var, Interval], is_in_memory: Callable[[Value], bool]) -> None:
        self.ranges = ranges
        self.table = RuntimeTable(ranges)
        self.is_in_memory = is_in_memory
        self._nodes: dict[tuple[Value, tuple[Expr, ...]], Node] = {}

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

    def reads(
        self,
        op: Op,
        output: int,
        index: tuple[Expr, ...],
        provide: Callable[[int], Expr],
        padding: Callable[[int], Node],
    ) -> list[Node]:
        """The nodes that `op` reads for one output element, in the order of its reads.

        For ops that run over ranges; where a read does not take place, `padding(operand)` stands for it.
        Raises LookupError where the access is declined.
        """
        found = reads_of(op, output, index, self.ranges, provide, self.table)
        if isinstance(found, Declined):
            raise LookupError(found.reason)
        for v, operand, at in found.runtimes:
            self.table.nodes[v] = self.at(op.operands[operand], at)
        nodes: list[Node] = []
        for r in found.reads:
            if r.never:
                nodes.append(padding(r.operand))
                continue
            node = self.at(op.operands[r.operand], r.index)
            nodes.append(self._choose(r.conditions, node, padding(r.operand)) if r.conditions else node)
        return nodes

    def _try(self, v: Value, where: tuple[Expr, ...]) -> list[tuple[Value, tuple[Expr, ...]]]:
        """Makes the node if all that it reads is there; else says what is missing."""
        op = v.op
        if op is None or self.is_in_memory(v):
            return self._put(v, where, Load(v, where, None, self.table.of(where)))
        semantics = op.definition.semantics
        element = v.tensor.element
        if isinstance(semantics, Literal) and isinstance(element, ElementType):
            dense: DenseArray = op.attr("value")
            if dense.is_splat:
                return self._put(v, where, Scalar(dense.array.reshape(-1)[0], element))
        if isinstance(semantics, Generate) and isinstance(element, ElementType):
            number = simplify(as_expr(semantics.value(op, where)), self.ranges)
            return self._put(v, where, IndexNode(number, element, self.table.of((number,))))
        if not isinstance(semantics, (Elementwise, Move)):
            raise LookupError(f"{op.name} is not computed where it is read")
        found = reads_of(op, v.index, where, self.ranges, _no_ranges, self.table)
        if isinstance(found, Declined):
            raise LookupError(found.reason)
        needed = [(op.operands[k], at) for _, k, at in found.runtimes if (op.operands[k], at) not in self._nodes]
        if needed:
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

    def _choose(self, conditions: tuple[Condition, ...], then: Node, otherwise: Node) -> Node:
        return Choose(conditions, then, otherwise, self.table.of([c.expression for c in conditions]))

    def _put(self, v: Value, where: tuple[Expr, ...], node: Node) -> list[tuple[Value, tuple[Expr, ...]]]:
        self._nodes[v, where] = node
        return []


Builder = Callable[[dict[Var, Interval]], ElementBuilder]
"""Makes the builder of element expressions over given ranges."""


def _no_ranges(size: int) -> Expr:
    raise LookupError("an op that runs over a range is not computed where it is read")
