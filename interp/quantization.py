"""Quantized tensors: arrays of stored integers whose type gives scale and zero point.

    real = (stored - zero_point) * scale        stored = round(clamp(real / scale + zero_point))

All arithmetic is that of the expressed type. Specification: "Quantization computations".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from inspect import isgeneratorfunction
from typing import Any

import numpy as np

from hlo import Op
from hlo.types import QuantizedType, TensorType, Type
from interp.numbers import Array, convert, narrow, widen
from interp.registry import Rule

__all__ = ["dequantize", "expressed_dtype", "quantize", "through_expressed"]


def _spread(values: Array, t: QuantizedType, rank: int) -> Array:
    """Scales or zero points, shaped to broadcast along the quantized axis, or repeated over their blocks."""
    if t.grid is not None:
        values = values.reshape(t.grid)
        for dimension, size in t.blocks:
            values = np.repeat(values, size, dimension)
        return values
    if t.axis is None:
        return values.reshape(())
    return values.reshape([-1 if i == t.axis else 1 for i in range(rank)])


def _parameter(values: tuple[float, ...], t: QuantizedType, dtype: np.dtype[Any], rank: int) -> Array:
    """Scales or zero points of the expressed type, for a tensor of that rank."""
    return _spread(convert(np.array(values, np.float64), dtype), t, rank)


def dequantize(x: Array, t: QuantizedType) -> Array:
    """(x - zero_point) * scale in the expressed type; same shape as `x`, which holds stored integers.

    >>> from hlo import element_type
    >>> t = QuantizedType(element_type("i8"), element_type("f32"), (0.5,), (-20,), -128, 127)
    >>> dequantize(np.array([10], np.int8), t)
    array([15.], dtype=float32)
    """
    dtype = t.expressed.dtype
    zero = _spread(np.array(t.zero_points, np.int64), t, x.ndim)
    centred = convert(x.astype(np.int64) - zero, dtype)
    return narrow(widen(centred) * widen(_parameter(t.scales, t, dtype, x.ndim)), dtype)


def quantize(x: Array, t: QuantizedType) -> Array:
    """round(clamp(x / scale + zero_point, storage_min, storage_max)) as stored integers; ties to even."""
    dtype = t.expressed.dtype
    scaled = narrow(widen(x) / widen(_parameter(t.scales, t, dtype, x.ndim)), dtype)
    moved = narrow(widen(scaled) + widen(_parameter(t.zero_points, t, dtype, x.ndim)), dtype)
    ends = convert(np.array([t.storage_min, t.storage_max], np.int64), dtype)
    clamped = np.clip(widen(moved), widen(ends)[0], widen(ends)[1])
    return convert(np.rint(clamped), t.dtype)


def quantized_element(t: Type) -> QuantizedType | None:
    """The quantized element type of a tensor type, or None."""
    return t.element if isinstance(t, TensorType) and isinstance(t.element, QuantizedType) else None


def expressed_dtype(t: TensorType) -> np.dtype[Any]:
    """The type that a tensor's elements stand for: the expressed type of quantized ones, else their own."""
    return np.dtype(t.element.expressed.dtype if isinstance(t.element, QuantizedType) else t.dtype)


def through_expressed(found: Rule) -> Rule:
    """The rule of an op on quantized tensors: dequantize the operands, compute, quantize the results.

    Operands that are not quantized pass as they are (the hybrid forms of dot_general and convolution).
    """

    def before(op: Op, inputs: tuple[Any, ...]) -> list[Any]:
        kinds = [quantized_element(v.type) for v in op.operands]
        return [dequantize(x, t) if t else x for x, t in zip(inputs, kinds, strict=True)]

    def after(op: Op, outputs: Any) -> tuple[Any, ...]:
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        goals = [quantized_element(v.type) for v in op.results]
        return tuple(quantize(np.asarray(y), t) if t else y for y, t in zip(several, goals, strict=True))

    def at_once(context: Any, op: Op, *inputs: Any) -> Any:
        outputs = after(op, found.function(context, op, *before(op, inputs)))
        return outputs[0] if len(outputs) == 1 else outputs

    def with_regions(context: Any, op: Op, *inputs: Any) -> Generator[Any, Any, Any]:
        return after(op, (yield from found.function(context, op, *before(op, inputs))))

    return dataclasses.replace(found, function=with_regions if isgeneratorfunction(found.function) else at_once)


def to_type(x: Array, source: Type, goal: Type) -> Array:
    """`x` of type `source` in the element type of `goal`: converted, quantized, requantized or dequantized."""
    if not isinstance(source, TensorType) or not isinstance(goal, TensorType) or source.element == goal.element:
        return x
    have, want = quantized_element(source), quantized_element(goal)
    if want is not None:
        return quantize(dequantize(x, have) if have else x, want)
    return dequantize(x, have) if have else convert(x, goal.dtype)
