"""What is known of a value's elements: a closed interval that holds every one of them, and that none is NaN.

    x in [a, b], y in [c, d]   ->   x + y in [a + c, b + d], a little wider for rounding

None stands for a value of which nothing is known: it may be NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import erf, exp, inf, isinf, isnan, log, sqrt, tanh
from typing import Any

import ml_dtypes
import numpy as np

from hlo.types import ElementType, default_storage_range
from indexing.expr import Interval, Var, interval
from tiling.loops.element_ir import Apply, IndexNode, Node, Scalar, Test, children, operands_first

__all__ = ["Order", "Span", "greatest_of", "hull", "rounded", "span_of", "span_of_sum"]

ZERO_BELOW = {"f64": -750.0}
"""exp is +0 from here down; -110 for what is computed in f32."""


@dataclass(frozen=True)
class Span:
    """All elements lie in [low, high], which may reach to the infinities, and none is NaN.

    `attains`, where it is known: among the elements along the loop `along` some have just this value.
    """

    low: float
    high: float
    attains: float | None = None
    along: Var | None = None

    @property
    def is_zero(self) -> bool:
        return self.low == 0.0 == self.high

    @property
    def magnitude(self) -> float:
        return max(abs(self.low), abs(self.high))


ANY_BOOLEAN = Span(0.0, 1.0)


def greatest_of(element: ElementType) -> float:
    """The greatest finite number of a float type."""
    return _limits(element)[2]


@lru_cache(maxsize=64)  # there are fewer float types
def _limits(element: ElementType) -> tuple[float, float, float]:
    """(distance from 1 to the next number, least normal number, greatest number) of a float type."""
    info: Any = ml_dtypes.finfo
    found = info(element.dtype)
    return float(found.eps), float(found.smallest_normal), float(found.max)


def rounded(
    low: float, high: float, element: ElementType, attains: float | None = None, along: Var | None = None
) -> Span | None:
    """[low, high] widened by what one rounding to `element` may move its ends; None where an end is NaN."""
    if isnan(low) or isnan(high):
        return None
    if not element.is_float:
        least, greatest = (0, 1) if element.is_boolean else default_storage_range(element)
        return Span(low, high) if least <= low and high <= greatest else Span(float(least), float(greatest))
    epsilon, tiny, most = _limits(element)
    slack = 16 * epsilon
    low = low if low == 0.0 or isinf(low) else low - abs(low) * slack
    high = high if high == 0.0 or isinf(high) else high + abs(high) * slack
    # What is smaller than the normal numbers may become zero, or round to a neighbour.
    if 0.0 < low < tiny:
        low = 0.0
    elif -tiny < low < 0.0:
        low = -tiny
    if 0.0 < high < tiny:
        high = tiny
    elif -tiny < high < 0.0:
        high = 0.0
    return Span(-inf if low < -most else low, inf if high > most else high, attains, along if attains is not None else None)


def span_of_sum(term: Span, count: int, element: ElementType, over: frozenset[Var] = frozenset()) -> Span | None:
    """The sum of `count` terms, those along the loops `over`, in any order; None where a part of it may overflow."""
    if count * term.magnitude >= greatest_of(element) / 4:
        return None
    low, high = min(0.0, count * term.low), max(0.0, count * term.high)
    if term.low >= 0.0 and term.attains is not None and term.along in over:
        low = term.attains
    slack = 1.0 + count * _limits(element)[0]
    return rounded(low / slack if low > 0 else low * slack, high * slack, element)


def hull(a: Span | None, b: Span | None) -> Span | None:
    return None if a is None or b is None else Span(min(a.low, b.low), max(a.high, b.high))


def _corners(f: Callable[[float, float], float], a: Span, b: Span) -> tuple[float, float]:
    found = [f(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return (float("nan"),) * 2 if any(map(isnan, found)) else (min(found), max(found))


def _product(x: float, y: float) -> float:
    return x * y


def _add(a: Span, b: Span) -> tuple[float, float]:
    if inf in (a.high, b.high) and -inf in (a.low, b.low):
        return float("nan"), float("nan")
    return a.low + b.low, a.high + b.high


def _multiply(a: Span, b: Span) -> tuple[float, float]:
    touches_zero = [x.low <= 0.0 <= x.high for x in (a, b)]
    if any(t and isinf(y.magnitude) for t, y in zip(touches_zero, (b, a), strict=True)):
        return float("nan"), float("nan")
    return _corners(_product, a, b)


def _divide(a: Span, b: Span) -> tuple[float, float]:
    if b.low <= 0.0 <= b.high or isinf(b.magnitude):
        return float("nan"), float("nan")
    return _corners(lambda x, y: x / y, a, b)


def _exponential(x: float) -> float:
    return 0.0 if x == -inf else inf if x > 709.0 else exp(x)


def _monotone(f: Callable[[float], float], low: float = -inf, high: float = inf) -> Callable[[Span], tuple[float, float]]:
    """f on an interval, f ascending, where it is defined on [low, high]."""

    def span(a: Span) -> tuple[float, float]:
        return (f(a.low), f(a.high)) if low <= a.low and a.high <= high else (float("nan"), float("nan"))

    return span


def _abs(a: Span) -> tuple[float, float]:
    return (0.0 if a.low <= 0.0 <= a.high else min(abs(a.low), abs(a.high))), a.magnitude


UNARY: Mapping[str, Callable[[Span], tuple[float, float]]] = {
    "negate": lambda a: (-a.high, -a.low),
    "abs": _abs,
    "square": lambda a: (_abs(a)[0] ** 2, _abs(a)[1] ** 2),
    "exponential": _monotone(_exponential),
    "tanh": _monotone(tanh),
    "fast_tanh": _monotone(tanh),
    "erf": _monotone(erf),
    "fast_erf": _monotone(erf),
    "logistic": _monotone(lambda x: 1.0 / (1.0 + _exponential(-x))),
    "sqrt": _monotone(lambda x: x if isinf(x) else sqrt(x), low=0.0),
    "log": _monotone(lambda x: x if isinf(x) else log(x), low=1e-300),
    "sign": _monotone(lambda x: (x > 0.0) - (x < 0.0)),
    "convert": lambda a: (a.low, a.high),
}
BINARY: Mapping[str, Callable[[Span, Span], tuple[float, float]]] = {
    "add": _add,
    "subtract": lambda a, b: _add(a, Span(-b.high, -b.low)),
    "multiply": _multiply,
    "divide": _divide,
    "maximum": lambda a, b: (max(a.low, b.low), max(a.high, b.high)),
    "minimum": lambda a, b: (min(a.low, b.low), min(a.high, b.high)),
}


class Order:
    """Nodes in a row, operands first: `operands` are the places of what each one is computed from, `roots` those asked for."""

    def __init__(self, roots: Sequence[Node]) -> None:
        at: dict[Node, int] = {}
        nodes: list[Node] = []
        for root in roots:
            for n in operands_first(root, at):
                at[n] = len(nodes)
                nodes.append(n)
        self.nodes = tuple(nodes)
        self.operands = tuple(tuple(at[c] for c in children(n)) for n in nodes)
        self.roots = tuple(at[r] for r in roots)


def span_of(
    n: Node, operands: Sequence[Span | None], ranges: Mapping[Var, Interval], peak: Callable[[], Var | None]
) -> Span | None:
    """The span of a node that is no load and no choice; `peak()` is the loop along which a difference's second operand is the
    greatest of its first, or None."""
    if isinstance(n, Scalar):
        value = float("nan") if np.iscomplexobj(n.value) else float(n.value)
        return None if isnan(value) else Span(value, value)
    if isinstance(n, IndexNode):
        span = interval(n.expression, ranges)
        return rounded(float(span.lower), float(span.upper), n.element)
    if isinstance(n, Test):
        return ANY_BOOLEAN
    assert isinstance(n, Apply)
    element = getattr(n.op.results[0].type, "element", None)
    if not isinstance(element, ElementType) or element.is_complex:
        return None
    if element.is_boolean:
        return ANY_BOOLEAN
    if n.function == "select":
        return hull(operands[1], operands[2])
    known = [s for s in operands if s is not None]
    if len(known) < len(operands):
        return None
    if n.function in UNARY:
        return _unary(n.function, known[0], element)
    if n.function not in BINARY:
        return None
    low, high = BINARY[n.function](*known)
    if n.function == "subtract" and not isnan(low):
        along = peak()
        if along is not None:
            return rounded(low, min(high, 0.0), element, 0.0, along)
    if n.function in ("multiply", "add") and element.is_float:
        return rounded(low, high, element, *_shifted(n.function, *known))
    return rounded(low, high, element)


def _unary(function: str, a: Span, element: ElementType) -> Span | None:
    f = UNARY[function]
    if function == "convert" and not element.is_float and (isinf(a.magnitude) or not element.is_integer):
        return None
    low, high = f(a)
    at = None if a.attains is None or isnan(f(Span(a.attains, a.attains))[0]) else f(Span(a.attains, a.attains))[0]
    found = rounded(low, high, element, at, a.along)
    if found is not None and function == "exponential":
        zero = a.high <= ZERO_BELOW.get(element.name, -110.0)
        return Span(0.0, 0.0) if zero else Span(max(found.low, 0.0), found.high, found.attains, found.along)
    return found


def _shifted(function: str, a: Span, b: Span) -> tuple[float | None, Var | None]:
    """What is attained by a sum or product with a constant, where zero is what the other one attains; and along which loop."""
    for x, y in ((a, b), (b, a)):
        if x.attains == 0.0 and x.along is not None and y.low == y.high and not isinf(y.low):
            return (0.0 if function == "multiply" else y.low), x.along
    return None, None
