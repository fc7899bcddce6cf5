"""A sum with what is scattered into zeros is scattered onto the other operand.

    x + scatter(zeros, indices, u)   ->   scatter(x, indices, u),   which adds u's elements to x's
    x + pad(u, 0), few of x's places ->   scatter(x, [place], u)

The gradient of a table that a program reads at several places is such a sum, of tables that are nearly all zeros: each was
filled, read and added as a whole. Scattered one onto the other they are one table, to which each adds its few rows in place
(`tiling.program.updates.in_place`). The gradient of an element that is read is a few numbers amid zeros, which would be asked
for in the innermost loop of whatever reads the sum. What is added to one element is added in another order, as it is by scatters
anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from hlo.attributes import ScatterDimensions
from hlo.builder import Builder
from hlo.clone import captured_values, with_replaced
from hlo.module import Op, Value
from hlo.types import ELEMENT_TYPES, ElementType, TensorType
from tiling.program.known_tests import repeated
from tiling.program.updates.known_places import Places, are_amid

__all__ = ["is_small_update", "scatter_onto"]

_NEW = {"stablehlo.dynamic_update_slice": 1, "stablehlo.scatter": 2}
"""Op -> the number of the operand that holds the new elements. Operand 0 is what they are written over."""


def scatter_onto(ops: Sequence[Op], results: Sequence[Value]) -> tuple[list[Op], list[Value]]:
    """Ops in dependency order and results, with such sums gone, and the scatters in their places."""
    if not any(op.name == "stablehlo.scatter" or (op.name == "stablehlo.pad" and _is_spot(op)) for op in ops):
        return list(ops), list(results)
    readers = Counter(results)
    for op in ops:
        readers.update(op.operands)
        readers.update(v for b in op.regions for v in captured_values(b))
    returned = set(results)
    sums: dict[Op, int] = {}  # a sum -> which of its operands is scattered into zeros

    def takes(v: Value, stays: bool) -> bool:
        """Whether rows are scattered onto a value: another such table, or what the program computes for a sum that stays.

        What is computed of a sum is computed where that is read, as a rule with the other operand: it has no memory then.
        """
        return v.op is not None and (v.op in sums or v.op.name == "stablehlo.scatter" or (stays and bool(v.op.operands)))

    for op in ops:
        if op.name == "stablehlo.add" and readers[op.operands[0]] == readers[op.operands[1]] == 1:
            stays = op.results[0] in returned
            found = next((k for k in (1, 0) if _is_scattered(op.operands[k]) and takes(op.operands[1 - k], stays)), None)
            if found is None and (stays or readers[op.results[0]] > 1):
                found = next((k for k in (1, 0) if _is_padded(op.operands[k]) and not _is_constant(op.operands[1 - k])), None)
            if found is not None:
                sums[op] = found
    if not sums:
        return list(ops), list(results)
    gone = {op.operands[k].op for op, k in sums.items()}
    done: dict[Value, Value] = {}
    made: list[Op] = []
    for op in ops:
        if op in gone:
            continue
        if op not in sums:
            made.append(with_replaced(op, done))
            continue
        scatter = op.operands[sums[op]].op
        assert scatter is not None, "it is scattered"
        if scatter.name == "stablehlo.pad":
            b = Builder()
            b.place = scatter.location
            onto, update = op.operands[1 - sums[op]], scatter.operands[0]
            done[op.results[0]] = _at_place(b, done.get(onto, onto), done.get(update, update), scatter.attr("edge_padding_low"))
            made += b.current.ops
            continue
        onto, *others = op.operands[1 - sums[op]], *scatter.operands[1:]
        new = Op(
            scatter.definition, [done.get(v, v) for v in (onto, *others)], scatter.attributes, scatter.regions,
            [r.type for r in op.results], op.location, scatter.extra, [r.name for r in op.results],
        )  # fmt: skip
        made.append(new)
        done.update(zip(op.results, new.results, strict=True))
    return made, [done.get(v, v) for v in results]


def _is_constant(v: Value) -> bool:
    return v.op is not None and not v.op.operands


def _is_padded(v: Value) -> bool:
    return v.op is not None and v.op.name == "stablehlo.pad" and _is_spot(v.op)


def _is_spot(op: Op) -> bool:
    """Whether a padding has zeros around few elements that lie amid a large tensor."""
    update, zero = op.operands
    if not all(isinstance(x.type, TensorType) and x.tensor.is_static for x in (update, op.results[0])):
        return False
    low, high = op.attr("edge_padding_low"), op.attr("edge_padding_high")
    number = repeated(zero)
    if number is None or number != 0 or any(op.attr("interior_padding")):
        return False
    if min((*low, *high), default=0) < 0 or 0 in update.shape:
        return False
    places = [Places(at, 1, n, None) for at, n in zip(low, update.shape, strict=True)]
    return isinstance(update.tensor.element, ElementType) and are_amid(op.results[0].shape, places)


def _at_place(b: Builder, onto: Value, update: Value, place: Sequence[int]) -> Value:
    """A value with an update added at one place."""
    rank = onto.rank
    numbers = ScatterDimensions(
        update_window_dims=tuple(range(rank)), scatter_dims_to_operand_dims=tuple(range(rank)), index_vector_dim=0
    )
    indices = b.constant(np.array(place), TensorType((rank,), ELEMENT_TYPES["i64"]))
    made = b.scatter(onto, indices, update, lambda x, y: b.add(x, y), numbers, unique_indices=True)
    assert isinstance(made, Value), "of one operand"
    return made


def _is_scattered(v: Value) -> bool:
    """Whether a value is zeros but for the few elements that a scatter adds to them."""
    op = v.op
    if op is None or op.name != "stablehlo.scatter" or len(op.operands) != 3 or len(op.results) != 1:
        return False
    zero = repeated(op.operands[0])
    return zero is not None and zero == 0 and is_small_update(op) and _adds(op)


def _adds(op: Op) -> bool:
    body = op.regions[0]
    if len(body.ops) != 2:
        return False
    add, end = body.ops
    return add.definition.function == "add" and {*add.operands} == {*body.arguments} and [*end.operands] == [*add.results]


def is_small_update(op: Op) -> bool:
    """True when at most half of the elements are new, and kernels know the types."""
    for v in (*op.operands, *op.results):
        if not isinstance(v.type, TensorType) or not v.type.is_static or not isinstance(v.type.element, ElementType):
            return False
    size = op.operands[0].tensor.size_elems
    if len(op.results) != 1 or not size:
        return False
    return 0 < 2 * op.operands[_NEW[op.name]].tensor.size_elems <= size
