"""Folds by bodies that only compare and choose: whether their parts may be folded by themselves, proved by cases.

    (v, i) o (w, j) = (v, i) if v > w or v is NaN, or v = w and i < j; else (w, j)           (the place of a maximum)

What such a body gives depends on the order of its arguments alone, so that a few numbers, some of each kind, stand for all: three
of them between the infinities, both zeros, NaN, and the initial value with its neighbours. All triples of them are tried.

Where a o b is not b o a (of two NaNs the first one wins), it may still be that one of the folded values tells where an element
stood: then a * b, which is a o b with the one that stood first on the left, is tried in place of o.

Zeros of both signs count as the same number: which one remains, the specification leaves to the order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hlo.clone import clone_block
from hlo.errors import Declined
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import Elementwise, Literal, definition
from hlo.types import ElementType, TensorType, default_storage_range, element_type
from indexing.expr import Interval, Var, interval
from tiling.elements.scalar_functions import COMPARED, on_arrays
from tiling.loops.element_ir import IndexNode, Node
from tiling.loops.monoid import Monoid, Shown

__all__ = ["Columns", "by_cases", "on_cases"]

MOST_CASES = 1 << 18
NOT_ORDERED = Declined("what is compared is not of numbers that a few cases stand for")
LOGIC = ("and", "or", "xor", "not")

Columns = tuple[np.ndarray, ...]


def by_cases(
    body: Block, inits: Sequence[np.generic], nodes: Sequence[Node], places: Sequence[int], ranges: Mapping[Var, Interval]
) -> Monoid | Declined:
    """What holds for a fold of `nodes` from `inits`; `places` are those of them that grow with each iteration.

    Declined where the body does more than compare and choose, or where some case shows that the parts' order counts.
    """
    if not _only_chooses(body):
        return Declined("the body does more than compare and choose")
    columns = [_samples(v.tensor.element, start, nodes[k], k in places, ranges)
               for k, (v, start) in enumerate(zip(body.arguments, inits, strict=False))]  # fmt: skip
    if any(c is None for c in columns):
        return NOT_ORDERED
    found = list(itertools.product(*(c for c in columns if c is not None)))
    floats = [isinstance(v.tensor.element, ElementType) and v.tensor.element.is_float for v in body.arguments]
    elements = [tuple(float(x) if is_float else int(x) for x, is_float in zip(inits, floats, strict=False)), *found]
    if len(elements) ** 3 > MOST_CASES:
        return NOT_ORDERED
    # Order is all that counts: floats of every width are doubles here, integers Python's (of 64 bits, some without a sign).
    domain = tuple(np.array([e[k] for e in elements], dtype=np.float64 if floats[k] else object) for k in range(len(inits)))
    plain = partial(on_cases, body)
    if _holds(plain, domain, None):
        return Monoid(body, None, Shown.CASES, True, _is_neutral(plain, domain))
    for place in places:
        ordered = _ordered_body(body, place)
        if _holds(partial(on_cases, ordered), domain, place):
            return Monoid(ordered, None, Shown.CASES, True, False)
    numbers = np.logical_and.reduce([x == x for x in domain])
    if numbers[0] and not numbers.all() and _holds(plain, tuple(x[numbers] for x in domain), None):
        return Monoid(body, None, Shown.CASES, True, _is_neutral(plain, domain), for_nan=False)
    return Declined("some case shows that the order counts")


def _only_chooses(body: Block) -> bool:
    known = set(body.arguments) | {r for op in body.ops[:-1] for r in op.results}
    return all(map(_chooses, body.ops[:-1])) and all(v in known for op in body.ops for v in op.operands)


def _chooses(op: Op) -> bool:
    semantics = op.definition.semantics
    name = semantics.function if isinstance(semantics, Elementwise) else ""
    if name == "compare":
        return op.attr("comparison_direction") in COMPARED and not _is_total(op)
    return name == "select" or (name in LOGIC and all(map(_is_boolean, op.operands)))


def _is_total(op: Op) -> bool:
    """Whether a comparison orders NaN and zeros by their signs, as the functions on arrays do not."""
    return "TOTAL" in str(op.attributes.get("compare_type") or "")


def _is_boolean(v: Value) -> bool:
    element = v.tensor.element
    return isinstance(element, ElementType) and element.is_boolean


def _samples(element: object, start: np.generic, node: Node, is_place: bool, ranges: Mapping[Var, Interval]) -> list[Any] | None:
    """Values of which every order of three, with the initial value, is found among them."""
    if not isinstance(element, ElementType) or element.is_boolean:
        return None
    if element.is_float:
        ordinary: list[float] = [float("-inf"), -1.0, -0.0, 0.0, 1.0, float("inf"), float("nan")]
        first = float(start)
        near = [] if first in ordinary or first != first else [first - 1, first, first + 1]
        return [*ordinary, *near]
    if not element.is_integer:
        return None
    low, high = default_storage_range(element)
    if is_place and isinstance(node, IndexNode):
        bounds = interval(node.expression, ranges)
        low, high = max(low, bounds.lower), min(high, bounds.upper)
    first = int(start)
    wanted = {first + k for k in range(-3, 4)} | {low, low + 1, low + 2, high - 2, high - 1, high}
    return [x for x in sorted(wanted) if low <= x <= high]


def on_cases(body: Block, a: Columns, b: Columns) -> Columns:
    """A body on arrays of cases; raises LookupError for what is not known on arrays."""
    known: dict[Value, Any] = dict(zip(body.arguments, (*a, *b), strict=True))
    for op in body.ops[:-1]:
        semantics = op.definition.semantics
        if isinstance(semantics, Literal):
            dense: DenseArray = op.attr("value")
            known[op.results[0]] = dense.array.reshape(())[()]
            continue
        function = on_arrays(op, semantics.function) if isinstance(semantics, Elementwise) and not _is_total(op) else NOT_ORDERED
        if isinstance(function, Declined) or any(v not in known for v in op.operands):
            raise LookupError(f"{op.name} is not tried on arrays")
        known[op.results[0]] = function(*(known[v] for v in op.operands))
    return tuple(known[v] for v in body.results)


def _holds(combine: Callable[[Columns, Columns], Columns], domain: Columns, place: int | None) -> bool:
    """start o start = start, a o b = b o a and (a o b) o c = a o (b o c), for elements that stand at different places.

    Element 0 is the initial value, which may stand anywhere.
    """
    n = np.arange(len(domain[0]))
    i, j, k = (x.reshape(-1) for x in np.meshgrid(n, n, n, indexing="ij"))
    if place is not None:
        at = domain[place]
        apart = [(x == y) | (x == 0) | (y == 0) | (at[x] != at[y]) for x, y in ((i, j), (j, k), (i, k))]
        keep = apart[0] & apart[1] & apart[2]
        i, j, k = i[keep], j[keep], k[keep]
    a, b, c = (tuple(x[m] for x in domain) for m in (i, j, k))
    start = tuple(x[:1] for x in domain)
    ab = combine(a, b)
    return _same(combine(start, start), start) and _same(ab, combine(b, a)) and _same(combine(ab, c), combine(a, combine(b, c)))


def _is_neutral(combine: Callable[[Columns, Columns], Columns], domain: Columns) -> bool:
    """start o x = x for every x; element 0 is the initial value."""
    starts = tuple(np.broadcast_to(x[:1], x.shape) for x in domain)
    return _same(combine(starts, domain), domain)


def _same(a: Columns, b: Columns) -> bool:
    return all(np.array_equal(x, y, equal_nan=x.dtype == np.float64) for x, y in zip(a, b, strict=True))


def _ordered_body(body: Block, place: int) -> Block:
    """The body with the argument on its left that stood first."""
    count = len(body.arguments) // 2
    made = Block([v.type for v in body.arguments])
    mine, other = made.arguments[:count], made.arguments[count:]
    test = Op(
        definition("stablehlo.compare"), [other[place], mine[place]], {"comparison_direction": "LT"},
        result_types=[TensorType((), element_type("i1"))],
    )  # fmt: skip
    pairs = [*zip(other, mine, strict=True), *zip(mine, other, strict=True)]
    chosen = [Op(definition("stablehlo.select"), [test.result, x, y], result_types=[x.type]) for x, y in pairs]
    made.ops += [test, *chosen]
    copy = clone_block(body, {})
    known = dict(zip(copy.arguments, [op.result for op in chosen], strict=True))
    for op in copy.ops:
        op.operands = tuple(known.get(v, v) for v in op.operands)
        made.ops.append(op)
    return made
