"""uniform_quantize and uniform_dequantize, and reading bits as another type."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo import Op
from interp.numbers import Array, bits_of, is_complex
from interp.quantization import dequantize, quantize, quantized_element
from interp.registry import rule

__all__ = ["from_bits", "to_bits"]


@rule("stablehlo.uniform_quantize")
def uniform_quantize(ctx: Any, op: Op, x: Array) -> Array:
    have, want = quantized_element(op.operands[0].type), quantized_element(op.results[0].type)
    if want is None:
        raise ctx.error(op, f"expected a quantized result, found {op.results[0].type}")
    return quantize(dequantize(x, have) if have else x, want)


@rule("stablehlo.uniform_dequantize")
def uniform_dequantize(ctx: Any, op: Op, x: Array) -> Array:
    have = quantized_element(op.operands[0].type)
    if have is None:
        raise ctx.error(op, f"expected a quantized operand, found {op.operands[0].type}")
    return dequantize(x, have)


def to_bits(x: Array) -> Array:
    """[…, n] elements as […, n * width] bits, the lowest bit of each element first."""
    width = bits_of(x.dtype)
    data = np.ascontiguousarray(x).reshape(*x.shape, 1).view(np.uint8)
    return np.unpackbits(data, axis=-1, bitorder="little")[..., :width]


def from_bits(bits: Array, dtype: np.dtype[Any]) -> Array:
    """The inverse: the last dimension holds the bits of one element. Sub-byte integers are extended by their sign."""
    width = bits_of(dtype)
    if dtype.kind == "b":
        return bits[..., 0].astype(bool)
    padding = 8 * dtype.itemsize - width
    if padding:
        fill = (
            np.repeat(bits[..., -1:], padding, -1)
            if dtype.name in ("int2", "int4")
            else np.zeros((*bits.shape[:-1], padding), np.uint8)
        )
        bits = np.concatenate([bits, fill], -1)
    packed = np.packbits(bits, axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view(dtype)[..., 0]


@rule("stablehlo.bitcast_convert")
def bitcast_convert(ctx: Any, op: Op, x: Array) -> Array:
    """The same bits as elements of another type; an element may become a dimension of narrower ones, or the reverse.

    The element with the lower index holds the lower bits.
    """
    goal = op.results[0].tensor.dtype
    have, want = bits_of(x.dtype), bits_of(goal)
    if have == want and (x.dtype.itemsize == goal.itemsize) and have % 8 == 0:
        return np.ascontiguousarray(x).reshape(x.shape).view(goal)
    if is_complex(x.dtype) and is_complex(goal) and have == want:
        return x
    if have % 8 == 0 and want % 8 == 0:
        if have > want:
            return np.ascontiguousarray(x).reshape(*x.shape, 1).view(goal)
        return np.ascontiguousarray(x).view(goal)[..., 0]
    bits = to_bits(x)
    if have > want:
        return from_bits(bits.reshape(*x.shape, have // want, want), goal)
    if have < want:
        return from_bits(bits.reshape(*x.shape[:-1], want), goal)
    return from_bits(bits, goal)
