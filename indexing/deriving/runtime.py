"""Runtime values that are known after all: the element of a tensor as an index expression.

A tensor's element at an index is an expression of that index when the tensor is a constant, an iota, or comes from those by
moving elements, also from several tensors that go on from each other, and by integer arithmetic that stays affine.
`known_element` finds it by the ops' semantics (`hlo.registry`), so that a dynamic slice at a constant offset has no runtime
variable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hlo import Declined, DenseArray, ElementType, Op, Value
from hlo.registry import Elementwise, Generate, Literal, Move
from hlo.types import default_storage_range
from indexing.expr import ExprLike, substitute
from indexing.expressions.bounds import Interval, interval
from indexing.expressions.extrema import maximum, minimum
from indexing.expressions.simplifier import simplify
from indexing.expressions.terms import Const, Expr, Var, as_expr
from indexing.map import IndexingMap

__all__ = ["clamped", "known_element"]

DEPTH = 32
"""How many ops are looked through before an element counts as unknown."""

_LARGEST_TABLE = 1 << 16  # elements of a constant that are compared with an affine function
_LARGEST_NUMBER = 1 << 40  # beyond, steps from one to the next might be no int64


def _times(a: Expr, b: Expr) -> Expr | None:
    return a * b if a.is_constant or b.is_constant else None


AFFINE: dict[str, Callable[..., Expr | None]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": _times,
    "negate": lambda a: -a,
    "convert": lambda a: a,
    "minimum": minimum,
    "maximum": maximum,
}
"""Elementwise functions on integers that keep an index expression one."""


def clamped(e: Expr, limits: Interval, ranges: Mapping[Var, Interval]) -> Expr:
    """max(lower, min(e, upper)), without what e's range makes superfluous.

    >>> d0 = Var("d0")
    >>> str(clamped(d0 + 2, Interval(0, 5), {d0: Interval(0, 9)}))
    'min(d0 + 2, 5)'
    """
    return simplify(maximum(minimum(e, limits.upper), limits.lower), ranges)


def known_element(
    value: Value,
    index: Sequence[Expr],
    ranges: Mapping[Var, Interval],
    maps_of: Callable[[Op], Sequence[Sequence[IndexingMap]] | Declined],
    depth: int = DEPTH,
) -> Expr | None:
    """`value[index]` as an expression of the index's variables, or None when the program does not tell.

    `ranges` are the intervals of those variables: a result that might not fit its element type, and so wrap around, counts
    as unknown. `maps_of` gives the output-to-input maps of an op.
    """
    op = value.op
    if op is None or depth == 0 or not _is_integer(value):
        return None
    semantics = op.definition.semantics
    if isinstance(semantics, Literal):
        return _constant_element(op.attr("value"), index)
    if isinstance(semantics, Generate):
        return _fitting(simplify(as_expr(semantics.value(op, tuple(index))), ranges), value, ranges)
    if not isinstance(semantics, (Move, Elementwise)):
        return None
    found = maps_of(op)
    if isinstance(found, Declined):
        return None
    function: Callable[..., Expr | None] = lambda a: a  # noqa: E731
    if isinstance(semantics, Elementwise):
        if semantics.function not in AFFINE:
            return None
        function = AFFINE[semantics.function]
    elif len(op.operands) != 1:
        pieces = _pieces(op, index, ranges, found)
        told = None if pieces is None else _joined(op, pieces, ranges, maps_of, depth)
        return None if told is None else _fitting(simplify(told, ranges), value, ranges)
    arguments: list[Expr] = []
    for operand, maps in zip(op.operands, found, strict=True):
        if len(maps) != 1 or maps[0].ranges or maps[0].runtimes or maps[0].constraints or maps[0].unknown:
            return None
        replace: dict[Var, ExprLike] = {v.var: e for v, e in zip(maps[0].dims, index, strict=True)}
        inner = [substitute(e, replace) for e in maps[0].results]
        argument = known_element(operand, inner, ranges, maps_of, depth - 1)
        if argument is None:
            return None
        arguments.append(argument)
    result = function(*arguments)
    return None if result is None else _fitting(simplify(result, ranges), value, ranges)


_Piece = tuple[int, list[Expr], dict[Var, Interval]]
"""An operand that a move reads, its index there, and what is known of the index's variables where it is read."""


def _pieces(
    op: Op, index: Sequence[Expr], ranges: Mapping[Var, Interval], found: Sequence[Sequence[IndexingMap]]
) -> list[_Piece] | None:
    """What a move of several operands, a concatenation say, reads where; None where more than a range of one variable tells."""
    pieces: list[_Piece] = []
    for number, maps in enumerate(found):
        if len(maps) != 1 or maps[0].ranges or maps[0].runtimes or maps[0].unknown:
            return None
        replace: dict[Var, ExprLike] = {v.var: e for v, e in zip(maps[0].dims, index, strict=True)}
        here = dict(ranges)
        wanted = [(e, v.interval) for v, e in zip(maps[0].dims, index, strict=True)]
        wanted += [(substitute(c.expression, replace), c.interval) for c in maps[0].constraints]
        for where, limits in wanted:
            e = simplify(where, here)
            bounds = interval(e, here)
            if bounds.upper < limits.lower or limits.upper < bounds.lower:
                break
            if limits.covers(bounds):
                continue
            v = e.variables[0] if len(e.variables) == 1 else None
            if v is None or simplify(e - v, here) is not Const(e.constant):
                return None
            known = here[v]
            here[v] = Interval(max(known.lower, limits.lower - e.constant), min(known.upper, limits.upper - e.constant))
        else:
            pieces.append((number, [substitute(e, replace) for e in maps[0].results], here))
    return pieces


def _joined(
    op: Op, pieces: Sequence[_Piece], ranges: Mapping[Var, Interval],
    maps_of: Callable[[Op], Sequence[Sequence[IndexingMap]] | Declined], depth: int,
) -> Expr | None:  # fmt: skip
    """One expression that all pieces have where they are read: that of the one which is read the most."""
    told = []
    for number, index, here in pieces:
        e = known_element(op.operands[number], index, here, maps_of, depth - 1)
        if e is None:
            return None
        told.append((sum(x.size for x in here.values()), e, here))
    if not told:
        return None
    _, most, _ = max(told, key=lambda found: found[0])
    return most if all(interval(simplify(e - most, here), here) == Interval(0, 0) for _, e, here in told) else None


def _is_integer(value: Value) -> bool:
    element = value.tensor.element
    return isinstance(element, ElementType) and element.is_integer


def _fitting(e: Expr, value: Value, ranges: Mapping[Var, Interval]) -> Expr | None:
    """`e` when all its values are values of the tensor's element type."""
    element = value.tensor.element
    assert isinstance(element, ElementType)
    lower, upper = default_storage_range(element)
    return e if Interval(lower, upper).covers(interval(e, ranges)) else None


def _constant_element(constant: DenseArray, index: Sequence[Expr]) -> Expr | None:
    array = constant.array
    if array.size == 0:
        return None
    if constant.is_splat:
        return Const(int(array.flat[0]))
    if all(e.is_constant for e in index):
        place = tuple(e.constant for e in index)
        inside = all(0 <= i < n for i, n in zip(place, array.shape, strict=True))
        return Const(int(array[place])) if inside else None
    # Components of an index, say, are functions of their own: one number's place in the table is one part of it.
    if not all(0 <= e.constant < n for e, n in zip(index, array.shape, strict=True) if e.is_constant):
        return None
    array = array[tuple(slice(e.constant, e.constant + 1) if e.is_constant else slice(None) for e in index)]
    if array.size > _LARGEST_TABLE:
        return None
    table = array.astype(object) if array.dtype.itemsize > 4 else array.astype(np.int64)
    if max(abs(int(table.min())), abs(int(table.max()))) > _LARGEST_NUMBER:
        return None
    # An affine table a_0 + sum of a_k i_k is determined by its first elements along each dimension.
    table = table.astype(np.int64)
    origin = (0,) * array.ndim
    first = int(table[origin])
    fitted = np.full(array.shape, first, dtype=table.dtype)
    total: Expr = Const(first)
    for k, n in enumerate(array.shape):
        step = int(table[(*origin[:k], 1, *origin[k + 1 :])]) - first if n > 1 else 0
        fitted = fitted + step * np.arange(n).reshape([-1 if i == k else 1 for i in range(array.ndim)])
        total = total + step * index[k] if n > 1 else total
    return total if bool((fitted == table).all()) else None
