"""Ops on quantized tensors in terms of ops on what is stored: integers and floats, no quantized type left.

    real = (stored - zero_point) * scale        stored = round(clamp(real / scale + zero_point))

An op of real numbers becomes: dequantize its operands, compute, quantize its results, each step rounded to the expressed type as
the specification's formulas say. A sum of products of integers whose scales are powers of two is computed on the centred
integers themselves and scaled once, which is the same number exactly; with other scales the factors are multiplied and
summed in f64, so that the order of the sum does not show. Specification: "Quantization computations".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp, prod

import numpy as np

from hlo.builder import Builder
from hlo.decompositions.expressions import Expression, maximum, minimum
from hlo.errors import Declined
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import Elementwise, Generate, Literal, Move, SumOfProducts
from hlo.types import ELEMENT_TYPES, ElementType, QuantizedType, TensorType, Type

__all__ = ["has_quantized", "quantized_form", "stored"]

EXACT_F32, EXACT_F64 = 2**24, 2**53


def stored(t: Type) -> Type:
    """The type of the stored integers of a quantized tensor; any other type is its own."""
    if isinstance(t, TensorType) and isinstance(t.element, QuantizedType):
        return TensorType(t.shape, t.element.storage, t.bounds, t.encoding)
    return t


def has_quantized(op: Op) -> bool:
    """True when an operand or a result is quantized."""
    return any(_quantized(v.type) is not None for v in (*op.operands, *op.results))


def _quantized(t: Type) -> QuantizedType | None:
    return t.element if isinstance(t, TensorType) and isinstance(t.element, QuantizedType) else None


def quantized_form(op: Op) -> Block | Declined:
    """A block over the stored forms of the op's operands that ends with the stored forms of its results (a `func.return`).

    Declined where the op has no such form: where it is no op of numbers, or its shape is unknown.
    """
    if not all(isinstance(v.type, TensorType) and v.type.is_static for v in (*op.operands, *op.results)):
        return Declined("a quantized tensor whose shape is known only at run time")
    block = Block([stored(v.type) for v in op.operands])
    b = Builder()
    b.place = op.location
    with b.into(block):
        made = _results(b, op, block.arguments)
        if isinstance(made, Declined):
            return made
        b.emit("func.return", made)
    return block


def _results(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | Declined:
    semantics, kinds = op.definition.semantics, [_quantized(v.type) for v in op.operands]
    goals = [_quantized(r.type) for r in op.results]
    if op.definition.mnemonic in ("uniform_quantize", "uniform_dequantize"):
        real = _dequantized(b, operands[0], kinds[0]) if kinds[0] else Expression(b, operands[0])
        return [_finished(real, op.results[0].type, kinds[0].expressed if kinds[0] else None).value]
    if isinstance(semantics, (Move, Generate, Literal)) or op.definition.mnemonic == "bitcast_convert":
        return _moved(b, op, operands)
    if isinstance(semantics, SumOfProducts):
        return _sum_of_products(b, op, operands)
    if not isinstance(semantics, Elementwise):
        return Declined(f"{op.name} of quantized tensors is rounded at every step, in an order of its own")
    expressed = next((q.expressed for q in (*kinds, *goals) if q is not None), None)
    assert expressed is not None
    factors = [
        (_dequantized(b, x, q) if q else _widened(Expression(b, x))).value
        for x, q in zip(operands, kinds, strict=True)
    ]
    (result,) = op.results
    types = [_working(result.type, expressed)] if goals[0] is not None else [result.type]
    (made,) = b.emit(op.name, factors, op.attributes, (), types)
    return [_finished(Expression(b, made), result.type, expressed).value]


def _moved(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | Declined:
    """Elements are moved as they are stored, which is right as long as they keep their scales."""
    found = [q for v in (*op.operands, *op.results) if (q := _quantized(v.type)) is not None]
    values = {q for q in found if q.axis is None and q.grid is None}
    if len(values) > 1 and op.definition.mnemonic != "bitcast_convert":
        return Declined(f"{op.name} between quantized types of different scales")
    attributes = {
        k: DenseArray(stored(v.type), v.array) if isinstance(v, DenseArray) else v  # type: ignore[arg-type]
        for k, v in op.attributes.items()
    }
    return b.emit(op.name, operands, attributes, (), [stored(r.type) for r in op.results])


# ------------------------------------------------------------------ between stored and real numbers


def _wide(expressed: ElementType) -> ElementType:
    """The type that computes for an expressed type."""
    return ELEMENT_TYPES["f64" if expressed.name == "f64" else "f32"]


def _widened(x: Expression) -> Expression:
    return x.to(_wide(x.element)) if x.element.is_float else x


def _working(t: Type, expressed: ElementType) -> TensorType:
    assert isinstance(t, TensorType)
    return TensorType(t.shape, _wide(expressed), t.bounds)


def _rounded(x: Expression, expressed: ElementType) -> Expression:
    """x in its own type, rounded to the expressed one."""
    return x.to(expressed).to(x.element)


def _parameters(like: Expression, values: Sequence[float], q: QuantizedType) -> Expression:
    """Scales or zero points, as numbers of the expressed type, in the shape of `like`."""
    numbers = np.array(values, np.float64).astype(q.expressed.dtype).astype(like.element.dtype)
    if q.axis is None and q.grid is None:
        return like.lift(float(numbers[0]))
    return _spread(like, numbers, q)


def _spread(like: Expression, numbers: np.ndarray, q: QuantizedType) -> Expression:
    """One number for each index of the quantized axis, or for each block, in the shape of `like`."""
    b, shape = like.builder, like.type.shape
    if q.grid is None:
        assert q.axis is not None
        return Expression(b, b.broadcast_in_dim(b.constant(numbers, like.element.name), shape, (q.axis,)))
    sizes, goal = dict(q.blocks), like.type.static_shape
    table = b.constant(numbers.reshape(q.grid), like.element.name)
    # (g0, b0, g1, b1, …): each number over its block, then the two dimensions of a pair become one.
    pairs = tuple(k for g, (i, n) in zip(q.grid, enumerate(goal), strict=True) for k in (g, sizes.get(i, n)))
    spread = b.broadcast_in_dim(table, pairs, tuple(2 * i for i in range(len(goal))))
    return Expression(b, b.reshape(spread, goal))


def _centred(b: Builder, x: Value, q: QuantizedType, goal: ElementType) -> Expression:
    """stored - zero_point, exact, as numbers of a float type that holds them."""
    numbers = Expression(b, x)
    if not any(q.zero_points):
        return numbers.to(goal)
    zeros: Expression
    if q.storage.bits <= 16:
        numbers = numbers.to(goal)
        zeros = _zero_points(numbers, q)
        return numbers - zeros
    numbers = numbers.to("i64")
    return (numbers - _zero_points(numbers, q)).to(goal)


def _zero_points(like: Expression, q: QuantizedType) -> Expression:
    if q.axis is None and q.grid is None:
        return like.lift(q.zero_points[0])
    return _spread(like, np.array(q.zero_points).astype(like.element.dtype), q)


def _dequantized(b: Builder, x: Value, q: QuantizedType) -> Expression:
    """(stored - zero_point) * scale in the type that computes for the expressed one, rounded to the expressed one."""
    centred = _rounded(_centred(b, x, q, _wide(q.expressed)), q.expressed)
    return _rounded(centred * _parameters(centred, q.scales, q), q.expressed)


def _finished(x: Expression, goal: Type, expressed: ElementType | None) -> Expression:
    """A real number as the type that the program states: quantized, or the expressed type."""
    q = _quantized(goal)
    if q is None:
        assert isinstance(goal, TensorType) and isinstance(goal.element, ElementType)
        return x.to(goal.element)
    x = _rounded(x.to(_wide(q.expressed)), expressed or q.expressed)
    scaled = _rounded(x / _parameters(x, q.scales, q), q.expressed)
    moved = _rounded(scaled + _parameters(x, q.zero_points, q), q.expressed)
    ends = np.array([q.storage_min, q.storage_max]).astype(np.float64).astype(q.expressed.dtype).astype(np.float64)
    clamped = minimum(maximum(moved, float(ends[0])), float(ends[1]))
    return clamped.unary("round_nearest_even").to(q.storage)


# ------------------------------------------------------------------ contractions


def _sum_of_products(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | Declined:
    (result,) = op.results
    q = _quantized(result.type)
    kinds = [_quantized(v.type) for v in op.operands]
    if op.attributes.get("algorithm") is not None:
        return Declined(f"{op.name} of quantized tensors by a prescribed algorithm")
    if q is None:
        # A float result: the factors' own rounding is what its tolerance covers.
        goal = result.tensor.element
        assert isinstance(goal, ElementType)
        factors = [_dequantized(b, x, k).to(goal).value if k else x for x, k in zip(operands, kinds, strict=True)]
        return b.emit(op.name, factors, op.attributes, (), [result.type])
    exact = _exact_product(b, op, operands, kinds, q)
    if exact is not None:
        return [_finished(exact, result.type, q.expressed).value]
    f64 = ELEMENT_TYPES["f64"]
    factors = [
        (_dequantized(b, x, k) if k else Expression(b, x)).to(f64).value for x, k in zip(operands, kinds, strict=True)
    ]
    (total,) = b.emit(op.name, factors, op.attributes, (), [_working(result.type, f64)])
    return [_finished(Expression(b, total).to(q.expressed), result.type, q.expressed).value]


def _exact_product(
    b: Builder, op: Op, operands: Sequence[Value], kinds: Sequence[QuantizedType | None], q: QuantizedType
) -> Expression | None:
    """The sum of products on centred integers, scaled once; None where that is not the same number for certain."""
    known = [k for k in kinds if k is not None]
    if len(known) != 2 or q.expressed.name not in ("f32", "f64"):
        return None
    if any(k.axis is not None or k.storage.bits > 16 or not _is_power_of_two(k.scales[0]) for k in known):
        return None
    largest = [max(abs(k.storage_max - z), abs(k.storage_min - z)) for k in known for z in k.zero_points]
    bound = prod(largest) * _terms(op)
    scale = known[0].scales[0] * known[1].scales[0]
    wide = _wide(q.expressed)
    (result,) = op.results
    if [k.storage.name for k in known] == ["i8", "i8"] and known[1].zero_points == (0,) and bound < 2**31:
        found = _byte_product(b, op, operands, known[0].zero_points[0])
        if found is not None:
            return found.to(wide) * float(scale)
    if bound < EXACT_F64:
        number = ELEMENT_TYPES["f32" if bound < EXACT_F32 else "f64"]
        factors = [_centred(b, x, k, number).value for x, k in zip(operands, known, strict=True)]
    else:
        return None
    (total,) = b.emit(op.name, factors, op.attributes, (), [TensorType(result.tensor.shape, number)])
    return Expression(b, total).to(wide) * float(scale)


def _byte_product(b: Builder, op: Op, operands: Sequence[Value], zero: int) -> Expression | None:
    """sum (a - zero) b = sum a b - zero sum b, on bytes with a 32-bit sum; None for other ops than products of matrices."""
    (result,) = op.results
    i32 = ELEMENT_TYPES["i32"]
    made = TensorType(result.tensor.shape, i32)
    if zero == 0:
        return Expression(b, b.emit(op.name, operands, op.attributes, (), [made])[0])
    if op.definition.mnemonic not in ("dot_general", "dot"):
        return None  # what a convolution reads outside of its input is the zero point, too
    rank = operands[1].rank
    dims = op.attr("dot_dimension_numbers") if op.definition.mnemonic == "dot_general" else None
    contracted, batch = ((0,), ()) if dims is None else (dims.rhs_contracting, dims.rhs_batching)
    total = Expression(b, b.emit(op.name, operands, op.attributes, (), [made])[0])
    columns = Expression(b, operands[1]).to(i32).value
    sums = b.reduce(columns, b.constant(0, "i32"), lambda x, y: b.add(x, y), tuple(contracted))
    assert isinstance(sums, Value)
    kept = [k for k in range(rank) if k not in contracted]  # the dimensions of `sums`, in order
    free = [k for k in kept if k not in batch]
    first = made.rank - len(free)  # where the right operand's own dimensions begin in the result
    places = [batch.index(k) if k in batch else first + free.index(k) for k in kept]
    if places != sorted(places):
        order = sorted(range(len(kept)), key=lambda i: places[i])
        sums, places = b.one("stablehlo.transpose", sums, permutation=tuple(order)), sorted(places)
    return total - Expression(b, b.broadcast_in_dim(sums, made.shape, tuple(places))) * zero


def _is_power_of_two(x: float) -> bool:
    mantissa, exponent = frexp(x)
    return mantissa == 0.5 and -60 < exponent < 60


def _terms(op: Op) -> int:
    """No fewer than the products that one result is a sum of."""
    return min(prod(d or 1 for d in v.tensor.shape) for v in op.operands)
