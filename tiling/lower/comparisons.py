"""Comparisons of an index with a number known at run time, as conditions on a variable that stands for the number.

    compare LT, i, ends[g]      ->   i - v in [-infinity, -1], where v is ends[g]

The number must not depend on the index: then it ends a loop over the index. Numbers that are computed alike from the same
arguments have one variable, in whichever stage they are compared: what `v` is of, is known by its pattern and its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlo.access import Condition
from hlo.types import ElementType, default_storage_range
from indexing.expr import EVERYTHING, Expr, Interval, Var, interval, simplify, substitute
from tiling.loops.element_ir import Apply, IndexNode, Node, Renamer, all_nodes, has_runtimes, loads, own_expressions
from tiling.loops.same_node import same_node

__all__ = ["Comparisons", "Number"]

_BOUNDS = {
    "LT": (EVERYTHING.lower, -1), "LE": (EVERYTHING.lower, 0), "GT": (1, EVERYTHING.upper), "GE": (0, EVERYTHING.upper),
    "EQ": (0, 0),
}  # fmt: skip
_TURNED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ"}


@dataclass(frozen=True, eq=False)
class Number:
    """What a variable stands for: a pattern of nodes whose `parameters` are these `arguments`."""

    pattern: Node
    parameters: tuple[Var, ...]
    arguments: tuple[Expr, ...]
    spans: tuple[Interval, ...]

    def at(self, arguments: tuple[Expr, ...], ranges: Mapping[Var, Interval]) -> Node:
        """The number for other arguments."""
        return Renamer(dict(zip(self.parameters, arguments, strict=True)), ranges, {}).node(self.pattern)


class Comparisons:
    """The comparisons of a fusion's members; the variables get their ranges in `ranges`."""

    def __init__(self, ranges: dict[Var, Interval]) -> None:
        self.ranges = ranges
        self.numbers: dict[Var, Number] = {}
        self._conditions: dict[Node, Condition | None] = {}

    def condition(self, n: Node) -> Condition | None:
        """The condition that a node is the truth of; None where it is no such comparison."""
        if n not in self._conditions:
            self._conditions[n] = self._condition(n) if isinstance(n, Apply) and n.function == "compare" else None
        return self._conditions[n]

    def is_among(self, c: Condition) -> bool:
        """Whether a condition asks for a number known at run time."""
        return self.of(c) is not None

    def of(self, c: Condition) -> Var | None:
        """The variable of the number that a condition asks for."""
        return next((v for v in c.expression.variables if v in self.numbers), None)

    def moved(self, c: Condition, at: Mapping[Var, Expr]) -> Condition:
        """The condition where the loops that the number depends on are others."""
        v = self.of(c)
        if v is None:
            return c
        number = self.numbers[v]
        new = tuple(simplify(substitute(e, at), self.ranges) for e in number.arguments)
        return Condition(substitute(c.expression, {v: self._variable(number, new)}), c.lower, c.upper)

    def _condition(self, n: Apply) -> Condition | None:
        direction = str(n.op.attributes.get("comparison_direction"))
        element = n.op.operands[0].tensor.element
        if direction not in _BOUNDS or not isinstance(element, ElementType) or not element.is_integer:
            return None
        index, other = n.arguments
        if not isinstance(index, IndexNode):
            index, other, direction = other, index, _TURNED[direction]
        if not isinstance(index, IndexNode) or index.runtimes or has_runtimes([other]):
            return None
        if not Interval(*default_storage_range(element)).covers(interval(index.expression, self.ranges)):
            return None  # the index wraps around
        free = list(dict.fromkeys(v for x in all_nodes([other]) for e in own_expressions(x) for v in e.variables))
        if set(free) & set(index.expression.variables) or not loads([other]):
            return None
        spans = tuple(self.ranges[v] for v in free)
        parameters = tuple(Var(f"argument{k}_{b.lower}_{b.upper}") for k, b in enumerate(spans))
        self.ranges.update(zip(parameters, spans, strict=True))
        pattern = Renamer(dict(zip(free, parameters, strict=True)), self.ranges, {}).node(other)
        v = self._variable(Number(pattern, parameters, tuple(free), spans), tuple(free), element)
        lower, upper = _BOUNDS[direction]
        return Condition(index.expression - v, lower, upper)

    def _variable(self, number: Number, arguments: tuple[Expr, ...], element: ElementType | None = None) -> Var:
        for v, known in self.numbers.items():
            if known.spans == number.spans and known.arguments == arguments and same_node(known.pattern, number.pattern):
                return v
        v = Var(f"number{len(self.numbers)}")
        self.numbers[v] = Number(number.pattern, number.parameters, arguments, number.spans)
        span = default_storage_range(element) if element is not None else (EVERYTHING.lower, EVERYTHING.upper)
        self.ranges[v] = Interval(*span)
        return v
