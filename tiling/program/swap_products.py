"""A product's result that is only read transposed is the product of the swapped factors.

    transpose (a . b), free dimensions swapped   ->   b . a

Gradients of products come so: the rule of a factor gives the result in the order of the product that it stands in, and turns it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hlo.attributes import DotDimensions
from hlo.clone import captured_values, with_replaced
from hlo.module import Op, Value
from hlo.registry import definition

__all__ = ["turn_products"]


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
            made.append(_swapped(turned[op], op, done))
            done.update(zip(op.results, made[-1].results, strict=True))
        else:
            made.append(with_replaced(op, done))
    return made, [done.get(v, v) for v in results]


def _swaps(op: Op, product: Op) -> bool:
    """Whether a transpose swaps the free dimensions of a product's two factors, and does nothing else."""
    if product.name != "stablehlo.dot_general" or product.attr("algorithm") is not None:
        return False
    numbers: DotDimensions = product.attr("dot_dimension_numbers")
    batch, rank = len(numbers.lhs_batching), op.results[0].rank
    middle = batch + len(numbers.free("lhs", product.operands[0].rank))
    return tuple(op.attr("permutation")) == (*range(batch), *range(middle, rank), *range(batch, middle))


def _swapped(product: Op, op: Op, done: dict[Value, Value]) -> Op:
    numbers: DotDimensions = product.attr("dot_dimension_numbers")
    attributes = {
        **product.attributes,
        "dot_dimension_numbers": DotDimensions(
            numbers.rhs_batching, numbers.lhs_batching, numbers.rhs_contracting, numbers.lhs_contracting
        ),
        "precision_config": tuple(product.attr("precision_config"))[::-1],
    }
    left, right = (done.get(v, v) for v in product.operands)
    return Op(definition("stablehlo.dot_general"), (right, left), attributes, (), [op.results[0].type], product.location,
              product.extra, [op.results[0].name])  # fmt: skip
