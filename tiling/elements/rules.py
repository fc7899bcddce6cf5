"""Rewrites of element expressions, each `before -> after` with its reason.

None changes a value's bits, but for tanh, erf and powers of 3, 4 and -2, which stay within what these functions are off by.

f(index e1, index e2)            -> index e                  integer arithmetic that cannot overflow stays an index
compare(index e1, index e2)      -> test(e1 - e2 in [..])    a mask is a condition on indices, not on data
select(test, a, b)               -> choose(test, a, b)       so that loops can be split where it changes
select(p, true, false)           -> p
select(true, a, b)               -> a
maximum(-inf, x)                 -> x                        also for NaN: the maximum of NaN is NaN
c + d, c - d, c * d, c < d       -> what they are            f32 and f64
x / c                            -> x * (1 / c)              c a power of two: both round the same real number
convert to the same type         -> x
power(x, n)                      -> x, x x, x x x, (x x)(x x), 1 / x, (1 / x)(1 / x): a power takes seven times as long
tanh(x) + c                      -> fast_tanh(x) + c         f32, |c| >= 1: the difference is at most 3 ulp of 1; erf likewise
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import frexp, isinf, isnan
from operator import add, eq, ge, gt, le, lt, mul, ne, sub
from typing import Any

import numpy as np

from hlo.access import Condition
from hlo.module import Op
from hlo.types import ElementType
from hlo.types import default_storage_range as integer_range
from indexing.expr import EVERYTHING, Expr, Interval, Var, as_expr, interval, simplify
from tiling.loops.element_ir import Apply, Choose, IndexNode, Node, Scalar, Test

__all__ = ["simplify_node", "wrapped"]

Ranges = Mapping[Var, Interval]
Rule = Callable[[Apply, Ranges], Node | None]

_WIDE, _NARROW = ("f32", "f64"), ("bf16", "f16")


def simplify_node(node: Apply, ranges: Ranges) -> Node:
    """The node, or what a rule for its function makes of it."""
    rule = _RULES.get(node.function)
    return (rule(node, ranges) if rule is not None else None) or node


def _result_element(op: Op) -> ElementType | None:
    element = op.results[0].tensor.element
    return element if isinstance(element, ElementType) else None


def _as_index(node: Node) -> Expr | None:
    """An integer node as an index expression, where it has no runtime variables: those belong to their node."""
    if isinstance(node, IndexNode) and node.element.is_integer and not node.runtimes:
        return node.expression
    if isinstance(node, Scalar) and node.element.is_integer:
        return as_expr(int(node.value))
    return None


def wrapped(e: Expr, element: ElementType, ranges: Ranges) -> Expr:
    """What an integer type keeps of an index: e itself where it fits, else (e - least) mod numbers + least.

    Types of 64 bits keep all: the index of an element is at least 0, whatever e's interval has where there is no element.
    """
    if not element.is_integer or element.bits == 64:
        return e
    bounds, (low, high) = interval(e, ranges), integer_range(element)
    return e if low <= bounds.lower and bounds.upper <= high else simplify((e - low) % (high - low + 1) + low, ranges)


def _index_arithmetic(combine: Callable[[Expr, Expr], Expr]) -> Rule:
    def rule(node: Apply, ranges: Ranges) -> Node | None:
        a, b = (_as_index(x) for x in node.arguments)
        element = _result_element(node.op)
        if a is None or b is None or element is None or not (a.terms or b.terms):
            return None
        e = simplify(combine(a, b), ranges)
        bounds, (low, high) = interval(e, ranges), integer_range(element)
        return IndexNode(e, element) if low <= bounds.lower and bounds.upper <= high else None

    return rule


def _folded(node: Apply, combine: Callable[[np.generic, np.generic], np.generic]) -> Node | None:
    """What a function makes of two constants."""
    a, b = node.arguments
    if not isinstance(a, Scalar) or not isinstance(b, Scalar) or a.element.name not in _WIDE:
        return None
    with np.errstate(all="ignore"):
        return Scalar(combine(a.value, b.value), a.element)


def _arithmetic(combine: Callable[[Any, Any], Any]) -> Rule:
    on_indices = _index_arithmetic(combine)
    return lambda node, ranges: _folded(node, combine) or on_indices(node, ranges)


_sum = _arithmetic(add)


def _add(node: Apply, ranges: Ranges) -> Node | None:
    for x, y in (node.arguments, node.arguments[::-1]):
        near_one = isinstance(y, Scalar) and y.element.name == "f32" and abs(float(y.value)) >= 1.0
        if near_one and isinstance(x, Apply) and x.function in ("tanh", "erf"):
            # What the cheaper formula is off by is below what the sum is rounded by.
            return Apply(node.op, "add", (Apply(x.op, f"fast_{x.function}", x.arguments), y))
    return _sum(node, ranges)


_FAR = EVERYTHING.upper


_COMPARED: dict[str, Callable[[float, float], bool]] = {"EQ": eq, "NE": ne, "GE": ge, "GT": gt, "LE": le, "LT": lt}


def _compare(node: Apply, ranges: Ranges) -> Node | None:
    x, y = node.arguments
    if isinstance(x, Scalar) and isinstance(y, Scalar) and x.element.name in _WIDE:
        c, d, holds = float(x.value), float(y.value), _COMPARED.get(str(node.op.attr("comparison_direction")))
        is_by_order = isnan(c) or isnan(d) or c == d == 0  # of these the kind of order decides
        return None if is_by_order or holds is None else _truth(holds(c, d), node.op)
    a, b = _as_index(x), _as_index(y)
    if a is None or b is None:
        return None
    difference = simplify(a - b, ranges)
    allowed = {"EQ": (0, 0), "GE": (0, _FAR), "GT": (1, _FAR), "LE": (-_FAR, 0), "LT": (-_FAR, -1)}
    span = allowed.get(node.op.attr("comparison_direction"))
    if span is None:
        return None
    bounds = interval(difference, ranges)
    if span[0] <= bounds.lower and bounds.upper <= span[1]:
        return _truth(True, node.op)
    if bounds.upper < span[0] or span[1] < bounds.lower:
        return _truth(False, node.op)
    return Test((Condition(difference, *span),))


def _truth(value: bool, op: Op) -> Node | None:
    element = _result_element(op)
    return Scalar(np.bool_(value), element) if element is not None and element.is_boolean else None


def _is(node: Node, value: bool) -> bool:
    return isinstance(node, Scalar) and node.element.is_boolean and bool(node.value) is value


def _select(node: Apply, ranges: Ranges) -> Node | None:
    predicate, a, b = node.arguments
    if _is(predicate, True):
        return a
    if _is(predicate, False):
        return b
    if _is(a, True) and _is(b, False):
        return predicate
    conditions = _asked(predicate)
    if conditions is None:
        return None
    if isinstance(a, Choose) and a.conditions == conditions:
        a = a.then
    if isinstance(b, Choose) and b.conditions == conditions:
        b = b.otherwise
    return Choose(conditions, a, b)


def _asked(predicate: Node) -> tuple[Condition, ...] | None:
    """The conditions of which a node is the truth; None where it is something else."""
    if isinstance(predicate, Test):
        return predicate.conditions
    is_truth = isinstance(predicate, Choose) and _is(predicate.then, True) and _is(predicate.otherwise, False)
    return predicate.conditions if is_truth and isinstance(predicate, Choose) and not predicate.runtimes else None


def _and(node: Apply, ranges: Ranges) -> Node | None:
    a, b = node.arguments
    for x, y in ((a, b), (b, a)):
        if _is(x, True):
            return y
        if _is(x, False):
            return x
    if isinstance(a, Test) and isinstance(b, Test):
        return Test((*a.conditions, *b.conditions))
    return None


def _extremum(neutral_is_negative: bool) -> Rule:
    def rule(node: Apply, ranges: Ranges) -> Node | None:
        a, b = node.arguments
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Scalar) and x.element.is_float:
                value = float(x.value)
                if isinf(value) and (value < 0) is neutral_is_negative:
                    return y
        return None

    return rule


def _divide(node: Apply, ranges: Ranges) -> Node | None:
    a, b = node.arguments
    if not isinstance(b, Scalar) or b.element.name not in _WIDE:
        return None
    value = float(b.value)
    mantissa, exponent = frexp(value)
    if abs(mantissa) != 0.5 or abs(exponent) > 100:
        return None
    return Apply(node.op, "multiply", (a, Scalar(type(b.value)(1 / value), b.element)))


def _power(node: Apply, ranges: Ranges) -> Node | None:
    """A power with a small whole exponent as products; types of 16 bits, which round each of them, where there is one at most."""
    x, n = node.arguments
    element = _result_element(node.op)
    if element is None or not isinstance(n, Scalar) or not (element.is_integer or element.name in (*_WIDE, *_NARROW)):
        return None
    exponent = float(n.value)
    if exponent == 1:
        return x
    if (element.is_integer and exponent < 0) or (element.name in _NARROW and exponent not in (2, -1)):
        return None

    def squared(a: Node) -> Node:
        return Apply(node.op, "multiply", (a, a))

    if exponent in (2, 3, 4):
        square = squared(x)
        return square if exponent == 2 else squared(square) if exponent == 4 else Apply(node.op, "multiply", (square, x))
    if exponent in (-1, -2):
        inverse = Apply(node.op, "divide", (Scalar(element.dtype.type(1), element), x))
        return inverse if exponent == -1 else squared(inverse)
    return None


def _convert(node: Apply, ranges: Ranges) -> Node | None:
    (a,) = node.arguments
    element = _result_element(node.op)
    if element is None:
        return None
    if isinstance(a, IndexNode) and element.is_integer and a.element.is_integer:
        bounds, (low, high) = interval(a.expression, ranges), integer_range(element)
        return IndexNode(a.expression, element, a.runtimes) if low <= bounds.lower and bounds.upper <= high else None
    if isinstance(a, Scalar) and a.element.is_integer and (element.name in _WIDE or element.is_integer):
        value = int(a.value)
        exact = (
            abs(value) < 2**24
            if element.is_float
            else integer_range(element)[0] <= value <= integer_range(element)[1]
        )
        return Scalar(element.dtype.type(value), element) if exact else None
    return None


_RULES: dict[str, Rule] = {
    "add": _add,
    "subtract": _arithmetic(sub),
    "multiply": _arithmetic(mul),
    "compare": _compare,
    "select": _select,
    "and": _and,
    "maximum": _extremum(True),
    "minimum": _extremum(False),
    "divide": _divide,
    "power": _power,
    "convert": _convert,
}


def rules() -> Sequence[str]:
    """The scalar functions that have a rule."""
    return sorted(_RULES)
