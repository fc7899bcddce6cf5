"""Expressions tried with numbers: two that are written differently, at one iteration, over elements that are drawn by lot.

A function without an entry in the table stands for any function of its name: equal where its arguments are equal.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hlo.access import Condition
from hlo.module import Op
from hlo.types import ElementType
from indexing.expr import Const, Expr, Interval, Var, as_expr, simplify, substitute
from tiling.loops.element_ir import Apply, Choose, IndexNode, Load, Node, Scalar, Test, runtimes_of

__all__ = ["Trial", "Untried", "close"]

Number = float


class Untried(Exception):
    """Carries why an expression has no number at a point."""


class Trial:
    """The numbers of expressions at one iteration; elements are random, the same for the same element and `seed`."""

    def __init__(
        self, ranges: Mapping[Var, Interval], at: Mapping[Var, Expr], seed: int, fold: Callable[[Load, Trial], Number]
    ) -> None:
        self.ranges, self.at, self.seed, self.fold = ranges, dict(at), seed, fold
        self.known: dict[Node, Number] = {}

    def index(self, e: object) -> int:
        found = simplify(substitute(as_expr(e), self.at), self.ranges)  # type: ignore[arg-type]
        if not isinstance(found, Const):
            raise Untried(f"{found} is known at run time only")
        return found.constant

    def number(self, n: Node) -> Number:
        if n not in self.known:
            for r in runtimes_of(n):
                if r.variable not in self.at:
                    self.at[r.variable] = Const(min(max(int(self.number(r.node)), r.lower), r.upper))
            self.known[n] = self._number(n)
        return self.known[n]

    def _number(self, n: Node) -> Number:
        if isinstance(n, Load):
            return self.load(n)
        if isinstance(n, Scalar):
            return _plain(n.value)
        if isinstance(n, IndexNode):
            return self.index(n.expression)
        if isinstance(n, Test):
            return float(self._hold(n.conditions))
        if isinstance(n, Choose):
            return self.number(n.then if self._hold(n.conditions) else n.otherwise)
        assert isinstance(n, Apply)
        if n.function == "select":
            return self.number(n.arguments[1 if self.number(n.arguments[0]) else 2])
        return apply(n.op, n.function.removeprefix("fast_"), [self.number(a) for a in n.arguments])

    def _hold(self, conditions: Sequence[Condition]) -> bool:
        return all(c.lower <= self.index(c.expression) <= c.upper for c in conditions)

    def load(self, n: Load) -> Number:
        """An element: a fold that is written out elsewhere, or one drawn by lot."""
        if n.buffer is not None:
            raise Untried(f"{n.buffer.name} holds copies")
        where = tuple(self.index(e) for e in n.index)
        for e, size in zip(where, n.value.shape, strict=True):
            if not 0 <= e < size:
                raise Untried("an element that is not there")
        return self.fold(n, self)

    def lot(self, n: Load) -> Number:
        """A number of the value's element type for an element."""
        where = tuple(self.index(e) for e in n.index)
        text = f"{self.seed} {id(n.value)} {where}"
        k = zlib.crc32(text.encode())
        element = n.value.tensor.element
        if isinstance(element, ElementType) and element.is_boolean:
            return float(k & 1)
        if isinstance(element, ElementType) and element.is_integer:
            return float(k % 997 - 300)  # on both sides of what a place may be
        return (k % 100_003) / 50_000 - 1.0


def _plain(x: Any) -> Number:
    return complex(x) if np.iscomplexobj(x) else float(x)  # type: ignore[return-value]


def apply(op: Op, name: str, a: Sequence[Any]) -> Number:
    """A scalar function of numbers; any function for one that is not in the table."""
    element = op.results[0].tensor.element
    is_float = isinstance(element, ElementType) and element.is_float
    is_integer = isinstance(element, ElementType) and element.is_integer
    try:
        if name == "compare":
            return float(_COMPARED[op.attr("comparison_direction")](a[0], a[1]))
        if name == "convert":
            is_boolean = isinstance(element, ElementType) and element.is_boolean
            return float(math.trunc(a[0])) if is_integer else float(a[0] != 0) if is_boolean else float(a[0])
        if name == "divide" and is_float:
            return float(a[0] / a[1])
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*a)
    except (OverflowError, ValueError, ZeroDivisionError, TypeError):
        return math.nan
    text = f"{name} {sorted(map(str, op.attributes.items()))} {[f'{x:.9g}' for x in a]}"
    return (zlib.crc32(text.encode()) % 100_003) / 50_000 - 1.0


_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "negate": operator.neg, "abs": abs,
    "maximum": max, "minimum": min, "clamp": lambda low, x, high: min(max(low, x), high),
    "and": lambda x, y: float(int(x) & int(y)), "or": lambda x, y: float(int(x) | int(y)),
    "xor": lambda x, y: float(int(x) ^ int(y)), "square": lambda x: x * x,
}  # fmt: skip


def close(a: Number, b: Number) -> bool:
    """Equal but for rounding; two that are no numbers are equal."""
    if a != a or b != b:
        return a != a and b != b
    if math.inf in (abs(a), abs(b)):
        return a == b
    return abs(a - b) <= 1e-5 * max(1.0, abs(a), abs(b))
