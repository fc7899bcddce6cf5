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
from typing import Any

import numpy as np

from hlo.clone import clone_block
from hlo.errors import Declined
from hlo.module import Block, Op, Value
from hlo.registry import Elementwise, definition
from hlo.types import ElementType, TensorType, default_storage_range, element_type
from indexing.expr import Interval, Var, interval
from tiling.elements.scalar_functions import COMPARED, on_arrays
from tiling.loops.element_ir import IndexNode, Node, Scalar
from tiling.loops.ir import FoldStep, Loop, Monoid

__all__ = ["Monoid", "monoid_of"]

MOST_CASES = 1 << 18
LOGIC = ("and", "or", "xor", "not")

Columns = tuple[np.ndarray, ...]


def monoid_of(
    f: FoldStep, loop: Loop, ranges: Mapping[Var, Interval], known: dict[tuple[object, ...], Monoid | None]
) -> Monoid | None:
    """How the parts of a fold are put together, where each part runs through some of the loop's iterations upwards.

    None where the body does more than compare and choose, or where some case shows that the parts' order counts.
    `known` keeps what was found before.
    """
    inits = [n.value for n in f.inits if isinstance(n, Scalar)]
    if not inits or len(inits) != len(f.inits) or not _only_chooses(f.op.regions[0]):
        return None
    places = [k for k, n in enumerate(f.nodes) if _is_place(n, loop)]
    bounds = tuple(interval(n.expression, ranges) for n in f.nodes if isinstance(n, IndexNode))
    key = (f.op, tuple(places), bounds)
    if key not in known:
        known[key] = _proved(f, inits, places, ranges)
    return known[key]


def _proved(f: FoldStep, inits: list[np.generic], places: Sequence[int], ranges: Mapping[Var, Interval]) -> Monoid | None:
    body = f.op.regions[0]
    columns = [_samples(v.tensor.element, start, f.nodes[k], k in places, ranges)
               for k, (v, start) in enumerate(zip(body.arguments, inits, strict=False))]  # fmt: skip
    if any(c is None for c in columns):
        return None
    found = list(itertools.product(*(c for c in columns if c is not None)))
    floats = [isinstance(v.tensor.element, ElementType) and v.tensor.element.is_float for v in body.arguments]
    elements = [tuple(float(x) if is_float else int(x) for x, is_float in zip(inits, floats, strict=False)), *found]
    if len(elements) ** 3 > MOST_CASES:
        return None
    # Order is all that counts: floats of every width are doubles here, integers Python's (of 64 bits, some without a sign).
    domain = tuple(np.array([e[k] for e in elements], dtype=np.float64 if floats[k] else object) for k in range(len(inits)))

    def plain(a: Columns, b: Columns) -> Columns:
        return _run(body, a, b)

    if _holds(plain, domain, None):
        return Monoid(body)
    for place in places:
        def ordered(a: Columns, b: Columns, place: int = place) -> Columns:
            swap = b[place] < a[place]
            left = tuple(np.where(swap, y, x) for x, y in zip(a, b, strict=True))
            right = tuple(np.where(swap, x, y) for x, y in zip(a, b, strict=True))
            return _run(body, left, right)

        if _holds(ordered, domain, place):
            return Monoid(_ordered_body(body, place))
    return None


def _only_chooses(body: Block) -> bool:
    for op in body.ops[:-1]:
        semantics = op.definition.semantics
        name = semantics.function if isinstance(semantics, Elementwise) else ""
        if name == "compare":
            if op.attr("comparison_direction") not in COMPARED or "TOTAL" in str(op.attr("compare_type") or ""):
                return False
        elif name == "select":
            pass
        elif name not in LOGIC or not all(_is_boolean(v) for v in op.operands):
            return False
    known = set(body.arguments) | {r for op in body.ops[:-1] for r in op.results}
    return all(v in known for op in body.ops for v in op.operands)


def _is_boolean(v: Value) -> bool:
    element = v.tensor.element
    return isinstance(element, ElementType) and element.is_boolean


def _is_place(n: Node, loop: Loop) -> bool:
    """True for an index that grows with each iteration of the loop."""
    return isinstance(n, IndexNode) and n.element.is_integer and dict(n.expression.terms).get(loop.variable, 0) > 0 and all(
        loop.variable not in atom.variables for atom, _ in n.expression.terms if atom is not loop.variable
    )  # fmt: skip


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


def _run(body: Block, a: Columns, b: Columns) -> Columns:
    """The body on arrays of cases."""
    known: dict[Value, Any] = dict(zip(body.arguments, (*a, *b), strict=True))
    for op in body.ops[:-1]:
        x = [known[v] for v in op.operands]
        semantics = op.definition.semantics
        assert isinstance(semantics, Elementwise)
        function = on_arrays(op, semantics.function)
        assert not isinstance(function, Declined), "`_only_chooses` said so"
        known[op.results[0]] = function(*x)
    return tuple(known[v] for v in body.results)


def _holds(combine: Callable[[Columns, Columns], Columns], domain: Columns, place: int | None) -> bool:
    """start o start = start, a o b = b o a and (a o b) o c = a o (b o c), for elements that stand at different places.

    Element 0 is the initial value, which may stand anywhere.
    """
    count = len(domain[0])
    n = np.arange(count)
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
    made.ops.append(test)
    chosen: list[Value] = []
    for pairs in (zip(other, mine, strict=True), zip(mine, other, strict=True)):
        for x, y in pairs:
            made.ops.append(Op(definition("stablehlo.select"), [test.result, x, y], result_types=[x.type]))
            chosen.append(made.ops[-1].result)
    copy = clone_block(body, {})
    known = dict(zip(copy.arguments, chosen, strict=True))
    for op in copy.ops:
        op.operands = tuple(known.get(v, v) for v in op.operands)
        made.ops.append(op)
    return made
