"""How often a counted loop runs; and which loops are written out, iteration after iteration, as ops of whole tensors.

    x = f(x), five times over   ->   f(f(f(f(f(x)))))

A loop keeps its state in memory from one iteration to the next. Where the body of a short loop computes every element of a large
tensor from the same element of others (the rounds of a generator of random numbers), all iterations written out are one
expression, which any kernel computes where it is read. A loop that runs once (`jax.lax.map` over a batch of one) is its body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import Elementwise, Generate, Literal, Move
from hlo.types import TensorType

__all__ = ["times_written_out", "trips"]

MOST_TIMES = 8
MOST_OPS = 160  # functions of an element, of all iterations together
LEAST_ELEMS = 1 << 14  # less is in the nearest cache from one iteration to the next


def trips(
    start: Sequence[Value], cond: tuple[Sequence[Value], Value], body: tuple[Sequence[Value], Sequence[Value]]
) -> int | None:
    """How often a body runs, where a counter with constant start, step and limit decides it.

    `start` are the loop's operands, `cond` and `body` each the arguments and what is computed from them.
    """
    compare = cond[1].op
    if compare is None or compare.definition.function != "compare":
        return None
    counter, limit = compare.operands
    direction = compare.attr("comparison_direction")
    if counter not in cond[0] or direction not in ("LT", "LE", "NE", "GT", "GE"):
        return None
    place = cond[0].index(counter)
    if place >= len(start):
        return None
    step = body[1][place].op
    if step is None or step.definition.function not in ("add", "subtract") or body[0][place] not in step.operands:
        return None
    position = step.operands.index(body[0][place])
    if position == 1 and step.definition.function == "subtract":
        return None  # c = k - c goes to and fro
    numbers = [_constant(v) for v in (start[place], limit, step.operands[1 - position])]
    if any(n is None for n in numbers):
        return None
    first, stop, by = (int(n) for n in numbers if n is not None)
    by = -by if step.definition.function == "subtract" else by
    if direction == "NE":
        found = 0 if first == stop else (stop - first) // by if by and (stop - first) % by == 0 else -1
        return found if found >= 0 else None
    distance = {"LT": stop - first, "LE": stop - first + 1, "GT": first - stop, "GE": first - stop + 1}[direction]
    forward = by if direction in ("LT", "LE") else -by
    if distance <= 0:
        return 0
    found = -(-distance // forward) if forward > 0 else -1
    last = np.iinfo(counter.tensor.dtype)
    return found if found > 0 and last.min <= first + found * by <= last.max else None  # else it wraps around and goes on


def times_written_out(op: Op, start: Sequence[Value], called: Callable[[Op], Block | None]) -> int:
    """How many copies of a loop's body stand for the loop; 0 where it stays one.

    `called` gives the body of the function that an op stands for, None for other ops.
    """
    cond, body = op.regions
    if not body.arguments:
        return 0
    times = trips(start, (cond.arguments, cond.results[0]), (body.arguments, body.results))
    if times == 1:
        return 1
    if not any(_is_large(a) and r is not a for a, r in zip(body.arguments, body.results, strict=True)):
        return 0
    if times is None or not 1 <= times <= MOST_TIMES:
        return 0
    functions = 0
    for inner in _all_ops(body, called):
        functions += isinstance(inner.definition.semantics, Elementwise) and any(map(_is_large, inner.results))
        if functions * times > MOST_OPS or not _is_of_its_element(inner):
            return 0
    return times


def _all_ops(block: Block, called: Callable[[Op], Block | None]) -> Iterator[Op]:
    todo = [block]
    while todo:
        for op in todo.pop().ops:
            inside = called(op)
            if inside is not None:
                todo.append(inside)
            elif not op.definition.is_terminator:
                yield op


def _is_of_its_element(op: Op) -> bool:
    """Whether a large result's element reads no other elements of large tensors."""
    semantics = op.definition.semantics
    if op.regions or not op.definition.is_pure or not isinstance(semantics, (Elementwise, Generate, Literal, Move)):
        return False
    return isinstance(semantics, (Elementwise, Generate, Literal)) or not any(map(_is_large, op.operands))


def _is_large(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.is_static and v.type.size_elems >= LEAST_ELEMS


def _constant(v: Value) -> int | None:
    if v.op is None or not isinstance(v.op.definition.semantics, Literal) or v.shape:
        return None
    dense: DenseArray = v.op.attr("value")
    return int(dense.array) if dense.array.dtype.kind in "iu" else None
