"""What is known of a value's elements: a closed interval that holds every one of them, and that none is NaN.

    x in [a, b], y in [c, d]   ->   x + y in [a + c, b + d], a little wider for rounding

None stands for a value of which nothing is known: it may be NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf, isinf, isnan
from typing import Any

import ml_dtypes
import numpy as np

from hlo.errors import Declined
from hlo.types import ElementType, default_storage_range
from indexing.expr import Interval, Var, interval
from tiling.elements.scalar_functions import Span, SpanFunction, scalar_function
from tiling.loops.element_ir import Apply, IndexNode, Node, Scalar, Test, children, operands_first

__all__ = ["Order", "Span", "greatest_of", "hull", "rounded", "span_of", "span_of_sum"]

ZERO_BELOW = {"f64": -750.0}
"""exp is +0 from here down; -110 for what is computed in f32."""


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
    return Span(_lowest(low, element), 0.0 - _lowest(-high, element), attains, along if attains is not None else None)


def _lowest(x: float, element: ElementType) -> float:
    """The least number of a float type that a number from `x` on may be rounded to."""
    epsilon, tiny, most = _limits(element)
    x = x if x == 0.0 or isinf(x) else x - abs(x) * (16 * epsilon)
    if x and abs(x) < tiny:  # what is smaller than the normal numbers may become zero, or round to a neighbor
        return 0.0 if x > 0.0 else -tiny
    return -inf if x < -most else x


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
        return _truth(n.function, operands)
    if n.function == "select":
        chosen = operands[0]
        if chosen is not None and chosen.low == chosen.high:
            return operands[1] if chosen.low else operands[2]
        return hull(operands[1], operands[2])
    known = [s for s in operands if s is not None]
    f = scalar_function(n.function).span
    if len(known) < len(operands) or isinstance(f, Declined):
        return None
    if len(known) == 1:
        return _unary(n.function, f, known[0], element)
    low, high = f(*known)
    along = peak() if n.function == "subtract" and not isnan(low) else None
    if along is not None:
        return rounded(low, min(high, 0.0), element, 0.0, along)
    moves = n.function in ("multiply", "add") and element.is_float
    return rounded(low, high, element, *(_shifted(n.function, *known) if moves else ()))


def _truth(function: str, operands: Sequence[Span | None]) -> Span:
    """What is known of a truth, from those that it is made of: with a false one no conjunction is true."""
    known = {s.low for s in operands if s is not None and s.low == s.high}
    if function in ("and", "or"):
        decides = 0.0 if function == "and" else 1.0
        if decides in known:
            return Span(decides, decides)
    return ANY_BOOLEAN


def _unary(function: str, f: SpanFunction, a: Span, element: ElementType) -> Span | None:
    if function == "convert" and not element.is_float and (isinf(a.magnitude) or not element.is_integer):
        return None
    low, high = f(a)
    at = None if a.attains is None or isnan(f(Span(a.attains, a.attains))[0]) else f(Span(a.attains, a.attains))[0]
    if function == "exponential" and a.high <= ZERO_BELOW.get(element.name, -110.0):
        return Span(0.0, 0.0)
    found = rounded(low, high, element, at, a.along)
    return replace(found, low=max(found.low, 0.0)) if found is not None and function == "exponential" else found


def _shifted(function: str, a: Span, b: Span) -> tuple[float | None, Var | None]:
    """What is attained by a sum or product with a constant, where zero is what the other one attains; and along which loop."""
    for x, y in ((a, b), (b, a)):
        if x.attains == 0.0 and x.along is not None and y.low == y.high and not isinf(y.low):
            return (0.0 if function == "multiply" else y.low), x.along
    return None, None
