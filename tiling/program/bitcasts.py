"""The same bits as elements of another width: shifts of unsigned integers, the element with the lower index in the lower bits.

    wide -> narrow   out[d, k] = (bits(x[d]) >> k n) mod 2^n              n bits a narrow element
    narrow -> wide   out[d] = or over k of bits(x[d, k]) << k n
    xla.bitcast      the operand's memory as a row, its bits as the result's elements, that row as the result's memory
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hlo.builder import Builder
from hlo.module import Op, Value
from hlo.types import ELEMENT_TYPES, ElementType, TensorType

__all__ = ["bitcast", "bitcast_convert"]


def bitcast_convert(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    """stablehlo.bitcast_convert between different widths; None for equal ones, complex and quantized elements."""
    (x,), goal = operands, op.results[0].tensor.element
    found = _converted(b, x, goal) if isinstance(goal, ElementType) and goal.bits != x.tensor.element.bits else None
    return None if found is None else [found]


def bitcast(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    """xla.bitcast to another element type; None where the type stays."""
    (x,), goal = operands, op.results[0].tensor
    source, element = x.tensor.element, goal.element
    if source == element or not isinstance(source, ElementType) or not isinstance(element, ElementType):
        return None
    if source.is_complex or element.is_complex:
        return None
    row = b.bitcast(x, TensorType((x.tensor.size_elems,), source))
    if source.bits < element.bits:
        row = b.reshape(row, (goal.size_elems, element.bits // source.bits))
    made = _same_width(b, row, element) if source.bits == element.bits else _converted(b, row, element)
    return None if made is None else [b.bitcast(made, goal)]


def _same_width(b: Builder, x: Value, goal: ElementType) -> Value:
    if x.tensor.element == goal:
        return x
    return b.emit("stablehlo.bitcast_convert", (x,), {}, (), [TensorType(x.shape, goal)])[0]


def _converted(b: Builder, x: Value, goal: ElementType) -> Value | None:
    source = x.tensor.element
    if not isinstance(source, ElementType) or source.is_complex or goal.is_complex:
        return None
    least, most = sorted((source.bits, goal.bits))
    wide = ELEMENT_TYPES.get(f"ui{most}")
    if wide is None or (least > 1 and f"ui{least}" not in ELEMENT_TYPES):
        return None
    return _split(b, x, wide, goal) if source.bits == most else _joined(b, x, wide, goal)


def _places(b: Builder, t: TensorType, bits: int) -> Value:
    """The lowest bit of each part, along the last dimension."""
    return b.one("stablehlo.multiply", b.iota(t, t.rank - 1), b.constant(bits, t))


def _split(b: Builder, x: Value, wide: ElementType, goal: ElementType) -> Value:
    t = TensorType((*x.tensor.static_shape, wide.bits // goal.bits), wide)
    every = b.broadcast_in_dim(_same_width(b, x, wide), t.shape, range(x.rank))
    parts = b.one("stablehlo.shift_right_logical", every, _places(b, t, goal.bits))
    parts = b.one("stablehlo.and", parts, b.constant((1 << goal.bits) - 1, t))
    if goal.is_boolean:
        return b.one("stablehlo.compare", parts, b.constant(0, t), comparison_direction="NE")
    unsigned = ELEMENT_TYPES[f"ui{goal.bits}"]
    return _same_width(b, b.convert_element_type(parts, unsigned), goal)


def _joined(b: Builder, x: Value, wide: ElementType, goal: ElementType) -> Value:
    t, source = replace(x.tensor, element=wide), x.tensor.element
    bits = x if source.name == "i1" else _same_width(b, x, ELEMENT_TYPES[f"ui{source.bits}"])
    parts = b.one("stablehlo.shift_left", b.convert_element_type(bits, wide), _places(b, t, source.bits))
    zero = b.constant(np.zeros((), wide.dtype), TensorType((), wide))
    whole = b.reduce(parts, zero, lambda p, q: b.emit("stablehlo.or", (p, q))[0], (x.rank - 1,))
    assert isinstance(whole, Value)
    return _same_width(b, whole, goal)
