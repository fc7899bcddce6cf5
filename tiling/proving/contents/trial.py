"""Expressions tried with numbers: two that are written differently, at one iteration, over elements that are drawn by lot.

A function without an entry in the table stands for any function of its name: equal where its arguments are equal.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from hlo.access import Condition
from hlo.module import Op, Value
from hlo.types import ElementType
from indexing.expr import Const, Expr, Interval, Var, as_expr, simplify, substitute
from tiling.loops.element_ir import Apply, Choose, IndexNode, Load, Node, Scalar, Test, runtimes_of

__all__ = ["Trial", "Untried", "close"]

Number = float


class Untried(Exception):
    """Carries why an expression has no number at a point."""


class Trial:
    """The numbers of expressions at one iteration; elements are random, the same for the same element and `seed`.

    `places` numbers the values whose elements were asked for: trials that are compared share it.
    """

    def __init__(
        self, ranges: Mapping[Var, Interval], at: Mapping[Var, Expr], seed: int, fold: Callable[[Load, Trial], Number],
        places: dict[Value, int], running: Collection[Value] = (),
    ) -> None:  # fmt: skip
        self.ranges, self.at, self.seed, self.fold = ranges, dict(at), seed, fold
        self.places = places
        self.running = running  # values that are read through copies, or while they grow: one number for each
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
                    place = self.number(r.node)
                    if place != place:
                        raise Untried("a place that is no number")
                    self.at[r.variable] = Const(min(max(int(place), r.lower), r.upper))
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
            return int(self._hold(n.conditions))
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
        if n.value in self.running:
            return self.drawn(n.value, "running")
        if n.buffer is not None:
            raise Untried(f"{n.buffer.name} holds copies")
        where = tuple(self.index(e) for e in n.index)
        for e, size in zip(where, n.value.shape, strict=True):
            if not 0 <= e < size:
                raise Untried("an element that is not there")
        return self.fold(n, self)

    def lot(self, n: Load) -> Number:
        """A number of the value's element type for an element."""
        return self.drawn(n.value, tuple(self.index(e) for e in n.index))

    def drawn(self, v: Value, where: object) -> Number:
        k = zlib.crc32(f"{self.seed} {self.places.setdefault(v, len(self.places))} {where}".encode())
        element = v.tensor.element
        if isinstance(element, ElementType) and (element.is_integer or element.is_boolean):
            if element.is_boolean:
                return _wrapped(k & 1, element)
            # Small ones, on both sides of what a place may be; those about the first places; and any.
            small = k % 997 - 300 if self.seed % 8 == 0 else k % 17 - 4
            return _wrapped(small if self.seed % 2 == 0 else k * 0x9E3779B97F4A7C15 >> 7, element)
        return (k % 100_003) / 50_000 - 1.0


def _plain(x: Any) -> Number:
    if np.iscomplexobj(x):
        return complex(x)  # type: ignore[return-value]
    return int(x) if x.dtype.kind in "iub" else float(x)


def _wrapped(x: int, element: ElementType) -> int:
    """An integer as its type holds it."""
    if element.is_boolean:
        return int(x != 0)
    low = x & ((1 << element.bits) - 1)
    return low - (1 << element.bits) if element.is_signed and low >> (element.bits - 1) else low


def apply(op: Op, name: str, a: Sequence[Any]) -> Number:
    """A scalar function of numbers, exact for integers; any function for one that is not in the table."""
    element = op.results[0].tensor.element
    if not isinstance(element, ElementType):
        return math.nan
    is_whole = element.is_integer or element.is_boolean
    try:
        if name == "compare":
            return int(_COMPARED[op.attr("comparison_direction")](a[0], a[1]))
        if name == "convert" and not isinstance(a[0], complex):
            whole = int(a[0] != 0) if element.is_boolean else math.trunc(a[0])
            return _wrapped(whole, element) if is_whole else float(a[0])
        if name == "divide" and element.is_float:
            return float(a[0] / a[1])
        if is_whole and name in _WHOLE and all(isinstance(x, int) for x in a):
            return _wrapped(_WHOLE[name](element.bits, *a), element)
        if not is_whole and name in _FUNCTIONS:
            return _FUNCTIONS[name](*a)
        if name in _WHOLE_PARTS and abs(a[0]) >= 1:  # numbers of elements, which places are computed from; drawn ones are below 1
            return float(_WHOLE_PARTS[name](a[0]))
    except (OverflowError, ValueError, ZeroDivisionError, TypeError):
        return math.nan
    text = f"{name} {sorted(map(str, op.attributes.items()))} {[str(x) if isinstance(x, int) else f'{x:.9g}' for x in a]}"
    k = zlib.crc32(text.encode())
    return _wrapped(k, element) if is_whole else (k % 100_003) / 50_000 - 1.0


_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
}  # fmt: skip
_WHOLE_PARTS: Mapping[str, Callable[[float], float]] = {"floor": math.floor, "ceil": math.ceil, "round_nearest_even": round}
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "negate": operator.neg, "abs": abs,
    "maximum": max, "minimum": min, "clamp": lambda low, x, high: min(max(low, x), high), "square": lambda x: x * x,
}  # fmt: skip
_WHOLE: Mapping[str, Callable[..., int]] = {
    **{name: lambda bits, *a, f=f: f(*a) for name, f in _FUNCTIONS.items()},
    "and": lambda bits, x, y: x & y, "or": lambda bits, x, y: x | y, "xor": lambda bits, x, y: x ^ y,
    "not": lambda bits, x: ~x if bits > 1 else 1 - x,
    "shift_left": lambda bits, x, k: x << k if 0 <= k < bits else 0,
    "shift_right_logical": lambda bits, x, k: (x & ((1 << bits) - 1)) >> k if 0 <= k < bits else 0,
    "shift_right_arithmetic": lambda bits, x, k: x >> min(max(k, 0), bits - 1),
}  # fmt: skip


def close(a: Number, b: Number) -> bool:
    """Equal but for rounding, integers exactly; two that are no numbers are equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if a != a or b != b:
        return a != a and b != b
    if math.inf in (abs(a), abs(b)):
        return a == b
    return abs(a - b) <= 1e-5 * max(1.0, abs(a), abs(b))
