"""A product's result that is only read transposed is the product of the swapped factors.

    transpose (a . b), free dimensions swapped         ->   b . a
    transpose (a . b), whose rows are along a's last   ->   transpose (b . a), whose rows stay rows

Gradients of products come so: the rule of a factor gives the result in the order of the product that it stands in, and turns it.
The second is worth it as whatever reads a transpose, one element here and one there, fetches a line of memory for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from hlo.attributes import DotDimensions
from hlo.clone import captured_values, with_replaced
from hlo.module import Op, Value
from hlo.types import TensorType

__all__ = ["turn_products"]

LEAST_COLUMNS = 16  # of the swapped product, or as many as it has now
LEAST_ROW = 8  # elements that lie side by side when the transpose is read


def turn_products(ops: Sequence[Op], results: Sequence[Value]) -> tuple[list[Op], list[Value]]:
    """Ops in dependency order and results, with swapped factors where that spares a transpose; the product itself is gone."""
    readers = Counter(results)
    for op in ops:
        readers.update(op.operands)
        readers.update(v for b in op.regions for v in captured_values(b))
    turned: dict[Op, Op] = {}  # a transpose -> the product that it turns
    for op in ops:
        product = op.operands[0].op if op.name == "stablehlo.transpose" else None
        if product is not None and readers[op.operands[0]] == 1 and _swaps(op, product):
            turned[op] = product
    if not turned:
        return list(ops), list(results)
    gone = set(turned.values())
    done: dict[Value, Value] = {}
    made: list[Op] = []
    for op in ops:
        if op in gone:
            continue
        if op in turned:
            made += _swapped(turned[op], op, done)
            done.update(zip(op.results, made[-1].results, strict=True))
        else:
            made.append(with_replaced(op, done))
    return made, [done.get(v, v) for v in results]


def _swaps(op: Op, product: Op) -> bool:
    """Whether a transpose swaps the free dimensions of a product's two factors, or makes rows of the left one's last."""
    if product.name != "stablehlo.dot_general" or product.attr("algorithm") is not None:
        return False
    batch, middle, rank = _parts(product)
    permutation = tuple(op.attr("permutation"))
    if permutation == (*range(batch), *range(middle, rank), *range(batch, middle)):
        return True
    if not op.results[0].tensor.is_static or not batch < middle < rank or permutation[-1] != middle - 1:
        return False
    shape = product.results[0].shape
    return prod(shape[batch:middle]) >= min(prod(shape[middle:]), LEAST_COLUMNS) and shape[middle - 1] >= LEAST_ROW


def _parts(product: Op) -> tuple[int, int, int]:
    """Where the left factor's free dimensions begin in a product's result, where the right one's do, and where they end."""
    numbers: DotDimensions = product.attr("dot_dimension_numbers")
    batch = len(numbers.lhs_batching)
    return batch, batch + len(numbers.free("lhs", product.operands[0].rank)), product.results[0].rank


def _swapped(product: Op, op: Op, done: dict[Value, Value]) -> list[Op]:
    """The product of the swapped factors, and what is left to transpose."""
    numbers: DotDimensions = product.attr("dot_dimension_numbers")
    attributes = {
        **product.attributes,
        "dot_dimension_numbers": DotDimensions(
            numbers.rhs_batching, numbers.lhs_batching, numbers.rhs_contracting, numbers.lhs_contracting
        ),
        "precision_config": tuple(product.attr("precision_config"))[::-1],
    }
    left, right = (done.get(v, v) for v in product.operands)
    batch, middle, rank = _parts(product)
    order = (*range(batch), *range(middle, rank), *range(batch, middle))  # its dimension k is the product's order[k]
    t = product.results[0].tensor
    made = [Op(product.definition, (right, left), attributes, (), [_turned(t, order)], product.location, product.extra,
               [op.results[0].name])]  # fmt: skip
    permutation = tuple(order.index(k) for k in op.attr("permutation"))
    if permutation == tuple(range(rank)):
        return made
    made.append(Op(op.definition, made[0].results, {**op.attributes, "permutation": permutation}, (), [op.results[0].type],
                   op.location, op.extra, [op.results[0].name]))  # fmt: skip
    return made


def _turned(t: TensorType, order: Sequence[int]) -> TensorType:
    bounds = tuple(t.bounds[k] for k in order) if t.bounds else t.bounds
    return replace(t, shape=tuple(t.shape[k] for k in order), bounds=bounds, layout=None)
