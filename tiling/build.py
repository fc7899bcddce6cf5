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
from indexing.expr import Expr, Interval, Var, as_expr, interval, simplify
from tiling.algebra import simplify_node
from tiling.element import Apply, Choose, IndexNode, Load, Node, Scalar

__all__ = ["ElementBuilder", "Reads", "reads_of"]


@dataclass(frozen=True)
class Reads:
    """What an access function said about one output element."""

    reads: tuple[tuple[int, tuple[Expr, ...], tuple[Condition, ...]], ...]


class _Recorder:
    """The access builder on symbolic expressions."""

    def __init__(self, provide: Callable[[int], Expr], ranges: Mapping[Var, Interval]) -> None:
        self.provide = provide
        self.known = ranges
        self.reads: list[tuple[int, tuple[Expr, ...], tuple[Condition, ...]]] = []
        self.runtime_reason: str | None = None

    def range(self, size: int, name: str = "") -> Expr:
        return self.provide(size)

    def runtime(self, operand: int, index: Sequence[Index], lower: int, upper: int) -> Expr:
        self.runtime_reason = f"operand {operand} is an index that is known only at run time"
        return as_expr(lower)

    def read(self, operand: int, index: Sequence[Index], where: Sequence[Condition] = ()) -> None:
        found = tuple(simplify(as_expr(i), self.known) for i in index)
        held: list[Condition] = []
        for c in where:
            e = simplify(as_expr(c.expression), self.known)
            bounds = interval(e, self.known)
            if bounds.lower > c.upper or bounds.upper < c.lower:
                return  # this read never takes place here
            if not (c.lower <= bounds.lower and bounds.upper <= c.upper):
                held.append(Condition(e, c.lower, c.upper))
        self.reads.append((operand, found, tuple(held)))


def reads_of(
    op: Op, output: int, index: tuple[Expr, ...], ranges: Mapping[Var, Interval], provide: Callable[[int], Expr]
) -> Reads | Declined:
    """The reads of `op` for its output element at `index`; `provide(size)` gives each range variable, in order."""
    access = op.definition.access
    if isinstance(access, Declined):
        return access
    recorder = _Recorder(provide, ranges)
    access(op, output, index, recorder)
    if recorder.runtime_reason:
        return Declined(recorder.runtime_reason)
    return Reads(tuple(recorder.reads))


class ElementBuilder:
    """Builds element expressions for loops whose variables have the given ranges.

    `is_in_memory(value)` says which values are loaded; all others are computed where they are read. `reasons` collects why a
    value could not be expressed; the caller then keeps that value in memory.
    """

    def __init__(self, ranges: Mapping[Var, Interval], is_in_memory: Callable[[Value], bool]) -> None:
        self.ranges = ranges
        self.is_in_memory = is_in_memory
        self._nodes: dict[tuple[int, tuple[Expr, ...]], Node] = {}
        self._keep: list[Value] = []

    def at(self, value: Value, index: tuple[Expr, ...]) -> Node:
        """The node for value[index]. Raises LookupError for a value that must be in memory but is not."""
        todo: list[tuple[Value, tuple[Expr, ...]]] = [(value, index)]
        while todo:  # an explicit stack: chains of thousands of elementwise ops are no exception
            v, where = todo[-1]
            if (id(v), where) in self._nodes:
                todo.pop()
                continue
            missing = self._try(v, where)
            if missing:
                todo.extend(missing)
            else:
                todo.pop()
        return self._nodes[id(value), index]

    def reads(self, op: Op, output: int, index: tuple[Expr, ...], provide: Callable[[int], Expr]) -> list[Node]:
        """The nodes that `op` reads for one output element, in the order of its reads.

        For ops that run over ranges. Raises LookupError where the access is declined.
        """
        found = reads_of(op, output, index, self.ranges, provide)
        if isinstance(found, Declined):
            raise LookupError(found.reason)
        return [self.at(op.operands[k], at) for k, at, _ in found.reads]

    def _try(self, v: Value, where: tuple[Expr, ...]) -> list[tuple[Value, tuple[Expr, ...]]]:
        """Makes the node if all that it reads is there; else says what is missing."""
        op = v.op
        if op is None or self.is_in_memory(v):
            return self._put(v, where, Load(v, where))
        semantics = op.definition.semantics
        element = v.tensor.element
        if isinstance(semantics, Literal) and isinstance(element, ElementType):
            dense: DenseArray = op.attr("value")
            if dense.is_splat:
                return self._put(v, where, Scalar(dense.array.reshape(-1)[0], element))
        if isinstance(semantics, Generate) and isinstance(element, ElementType):
            return self._put(v, where, IndexNode(simplify(as_expr(semantics.value(op, where)), self.ranges), element))
        if not isinstance(semantics, (Elementwise, Move)):
            raise LookupError(f"{op.name} is not computed where it is read")
        found = reads_of(op, v.index, where, self.ranges, _no_ranges)
        if isinstance(found, Declined):
            raise LookupError(found.reason)
        missing = [(op.operands[k], at) for k, at, _ in found.reads if (id(op.operands[k]), at) not in self._nodes]
        if missing:
            return missing
        nodes = [self._nodes[id(op.operands[k]), at] for k, at, _ in found.reads]
        if isinstance(semantics, Elementwise):
            return self._put(v, where, simplify_node(Apply(op, semantics.function, tuple(nodes)), self.ranges))
        # The last read without conditions, or the padding value, is what stays when no condition holds.
        result = nodes[-1]
        for (_, _, conditions), node in reversed(list(zip(found.reads[:-1], nodes[:-1], strict=True))):
            result = Choose(conditions, node, result) if conditions else node
        return self._put(v, where, result)

    def _put(self, v: Value, where: tuple[Expr, ...], node: Node) -> list[tuple[Value, tuple[Expr, ...]]]:
        self._nodes[id(v), where] = node
        self._keep.append(v)  # ids stay valid as long as their values live
        return []


def _no_ranges(size: int) -> Expr:
    raise LookupError("an op that runs over a range is not computed where it is read")
