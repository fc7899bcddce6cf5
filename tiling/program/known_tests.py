"""Tests that come out alike for all elements, whatever the program is given: on indices, as those that wrap negative ones.

    i = iota; j = select(i < 0, i + n, i)      ->  j = i
    select(p, x, x);  p != false               ->  x;  p
    sum over zeros; all of true, ...           ->  zeros; true
    a move of one repeated number              ->  that number, repeated

Frameworks write such tests for every access by an array of indices. As data they hide which element is read: a mask over
positions would be gathered element by element, and no loop would end where it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hlo.errors import Declined
from hlo.module import DenseArray, Op, Value
from hlo.registry import Fold, Generate, Literal, Move
from hlo.types import ElementType, TensorType
from indexing.deriving.derive import reads_of
from indexing.deriving.edges import edges_of
from indexing.deriving.runtime import DEPTH, known_element
from indexing.expr import Interval, Var, interval, simplify

__all__ = ["known_result", "repeated", "splat"]

_HOLDS: dict[str, tuple[Callable[[Interval], bool], Callable[[Interval], bool]]] = {
    "EQ": (lambda d: d.lower == d.upper == 0, lambda d: d.lower > 0 or d.upper < 0),
    "NE": (lambda d: d.lower > 0 or d.upper < 0, lambda d: d.lower == d.upper == 0),
    "LT": (lambda d: d.upper < 0, lambda d: d.lower >= 0),
    "LE": (lambda d: d.upper <= 0, lambda d: d.lower > 0),
    "GT": (lambda d: d.lower > 0, lambda d: d.upper <= 0),
    "GE": (lambda d: d.lower >= 0, lambda d: d.upper < 0),
}
"""By a comparison's direction: whether it holds, whether it fails, for all differences in an interval."""


def splat(scalar: np.generic, type: TensorType) -> DenseArray:
    """A constant that repeats one element, stored once."""
    return DenseArray(type, np.broadcast_to(np.asarray(scalar, type.dtype), type.static_shape))


def known_result(op: Op, operands: Sequence[Value]) -> Value | DenseArray | None:
    """What an op gives on these operands, whatever the program's arguments: an operand, or one number for all elements.

    None where that is not known, and for what gives no integers or booleans but selects them.
    """
    function = op.definition.function
    if function == "select":
        chosen = repeated(operands[0])
        either = operands[1] if operands[1] is operands[2] else None  # the branches of a `cond` under `vmap` often agree
        value = either if chosen is None else operands[1] if chosen else operands[2]
        return value if value is not None and value.type == op.results[0].type else None
    type = op.results[0].type if len(op.results) == 1 else None
    if not isinstance(type, TensorType) or not isinstance(type.element, ElementType) or not type.is_static or not type.size_elems:
        return None
    if type.element.is_boolean and function in ("and", "or", "not"):
        return _logic(function, operands, type)
    if function == "compare":
        truth = _compared(op, operands)
        return _tested(op, operands) if truth is None else splat(np.bool_(truth), type)
    if not (type.element.is_boolean or type.element.is_integer):
        return None
    if isinstance(op.definition.semantics, Move) or function == "convert":
        return _moved(op, operands, type)
    return _folded(op, operands, type) if isinstance(op.definition.semantics, Fold) else None


def repeated(value: Value) -> np.generic | None:
    """The number that all elements of a constant are; None for what is no such constant."""
    if value.op is None or not isinstance(value.op.definition.semantics, Literal):
        return None
    dense: DenseArray = value.op.attr("value")
    number: np.generic | None = dense.array.reshape(-1)[0] if dense.is_splat and dense.array.size else None
    return number


def _logic(function: str, operands: Sequence[Value], type: TensorType) -> Value | DenseArray | None:
    """`and`, `or`, `not` of booleans of which one is the same everywhere."""
    known = [repeated(v) for v in operands]
    if function == "not":
        return None if known[0] is None else splat(np.bool_(not known[0]), type)
    deciding = function == "or"
    for number, other in zip(known, reversed(operands), strict=True):
        if number is not None:
            return splat(np.bool_(deciding), type) if bool(number) is deciding else other
    return None


def _moved(op: Op, operands: Sequence[Value], type: TensorType) -> DenseArray | None:
    """A move, or a conversion, of the same number everywhere: which element is read where does not matter then."""
    edges = edges_of(op)
    if isinstance(edges, Declined):
        return None
    read = [operands[k] for k in {e.operand for e in edges.reads}]
    found = {repeated(v) for v in read}
    number = found.pop() if len(found) == 1 else None
    if number is None or number.dtype.kind not in "iub" or (type.dtype.kind != "b" and number.astype(type.dtype) != number):
        return None  # what does not fit its new type is no matter of indices
    return splat(number.astype(type.dtype), type)


_SAME = ("and", "or", "minimum", "maximum")
"""Functions f with f(x, x) = x."""


def _folded(op: Op, operands: Sequence[Value], type: TensorType) -> DenseArray | None:
    """A fold over one number, whose initial value is that number as well: a sum of zeros, what holds for each of many."""
    body = op.regions[0].ops
    numbers = [repeated(v) for v in operands]
    if len(numbers) != 2 or len(body) != 2 or numbers[0] is None or numbers[1] is None or numbers[0] != numbers[1]:
        return None
    function = body[0].definition.function
    is_same = function in _SAME and {*body[0].operands} == {*op.regions[0].arguments}
    return splat(numbers[0], type) if is_same or (function == "add" and numbers[0] == 0) else None


def _compared(op: Op, operands: Sequence[Value]) -> bool | None:
    """How a comparison of integers comes out for every element."""
    if not all(_comes_from_nothing(v) for v in operands):
        return None
    shape = op.results[0].shape
    ranges = {Var(f"e{k}"): Interval(0, n - 1) for k, n in enumerate(shape)}
    index = tuple(ranges)
    a, b = (known_element(v, index, ranges, reads_of) for v in operands)
    if a is None or b is None:
        return None
    difference = interval(simplify(a - b, ranges), ranges)
    holds, fails = _HOLDS[str(op.attr("comparison_direction"))]
    return True if holds(difference) else False if fails(difference) else None


def _tested(op: Op, operands: Sequence[Value]) -> Value | None:
    """The boolean that a comparison asks for once more: `p != false`, `p == true`."""
    direction = str(op.attr("comparison_direction"))
    if direction not in ("EQ", "NE") or operands[0].type != op.results[0].type:
        return None
    for a, b in (operands, reversed(operands)):
        number = repeated(b)
        if number is not None and bool(number) is (direction == "EQ"):
            return a
    return None


def _comes_from_nothing(value: Value) -> bool:
    """Whether a value follows from constants and iotas alone, through few ops."""
    todo, seen = [value], {value}
    while todo:
        op = todo.pop().op
        if op is None or len(seen) > DEPTH:
            return False
        if not isinstance(op.definition.semantics, (Literal, Generate)):
            new = [v for v in op.operands if v not in seen]
            todo += new
            seen.update(new)
    return True
