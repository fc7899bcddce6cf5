"""Random bits as XLA makes them (Threefry 2x32, Philox 4x32), and `rng` on top of such bits.

Specification: rng_bit_generator, rng. The layout of state and output is that of XLA's generators, bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from hlo import Op
from interp.numbers import Array, bits_of, convert, is_float
from interp.registry import rule

__all__ = ["generated", "philox_4x32", "random_bits", "threefry_2x32"]

_U32 = np.uint32
_MASK = np.uint64(0xFFFFFFFF)


def _halves(x: Array) -> tuple[Array, Array]:
    """uint64 as (lower, upper) uint32."""
    return (x & _MASK).astype(_U32), (x >> np.uint64(32)).astype(_U32)


def _joined(low: Array, high: Array) -> Array:
    return low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))


def _rotated(x: Array, by: int) -> Array:
    return (x << _U32(by)) | (x >> _U32(32 - by))


def threefry_2x32(key: tuple[Array, Array], x: tuple[Array, Array]) -> tuple[Array, Array]:
    """Twenty rounds of Threefry on pairs of uint32."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _U32(0x1BD11BDA))
    a, b = x[0] + keys[0], x[1] + keys[1]
    for group in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            a = a + b
            b = _rotated(b, rotation) ^ a
        a = a + keys[(group + 1) % 3]
        b = b + keys[(group + 2) % 3] + _U32(group + 1)
    return a, b


def philox_4x32(key: tuple[Array, Array], x: Sequence[Array]) -> tuple[Array, Array, Array, Array]:
    """Ten rounds of Philox on quadruples of uint32."""
    k0, k1 = key
    a, b, c, d = x
    for _ in range(10):
        low0, high0 = _halves(a.astype(np.uint64) * np.uint64(0xD2511F53))
        low1, high1 = _halves(c.astype(np.uint64) * np.uint64(0xCD9E8D57))
        a, b, c, d = high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0
        k0, k1 = k0 + _U32(0x9E3779B9), k1 + _U32(0xBB67AE85)
    return a, b, c, d


def _threefry(state: Array, shape: tuple[int, ...], bits: int) -> tuple[Array, Array]:
    """state = [key, counter]. Up to 32 bits: a dimension is cut in two halves, the two outputs of one call interleave."""
    key = _halves(state[0])
    if bits == 64:
        counters = np.arange(prod(shape), dtype=np.uint64).reshape(shape) + state[1]
        value = _joined(*threefry_2x32(key, _halves(counters)))
        return np.array([state[0], state[1] + np.uint64(counters.size)]), value
    if not shape:
        first, _ = threefry_2x32(key, _halves(state[1:2]))
        return np.array([state[0], state[1] + np.uint64(1)]), first[0]
    even = [k for k, n in enumerate(shape) if n % 2 == 0]
    axis = even[0] if even else int(np.argmax(shape))
    half = tuple(-(-n // 2) if k == axis else n for k, n in enumerate(shape))
    counters = np.arange(prod(half), dtype=np.uint64).reshape(half) + state[1]
    first, second = threefry_2x32(key, _halves(counters))
    both = np.stack([first, second], axis + 1)
    full = both.reshape([2 * half[axis] if k == axis else n for k, n in enumerate(shape)])
    cut = full[tuple(slice(0, n) for n in shape)]
    return np.array([state[0], state[1] + np.uint64(counters.size)]), cut


def _philox(state: Array, shape: tuple[int, ...], bits: int) -> tuple[Array, Array]:
    """state = [key, counter low, counter high]: a 128-bit counter, counted up once for every four words."""
    words = prod(shape) * (2 if bits == 64 else 1)
    calls = -(-words // 4)
    steps = np.arange(calls, dtype=np.uint64)
    low = state[1] + steps
    high = state[2] + (low < steps).astype(np.uint64)
    out = philox_4x32(_halves(state[0]), (*_halves(low), *_halves(high)))
    if bits == 64:
        value = np.stack([_joined(out[0], out[1]), _joined(out[2], out[3])], 1).reshape(-1)
    else:
        value = np.stack(out, 1).reshape(-1)
    next_low = state[1] + np.uint64(calls)
    next_high = state[2] + np.uint64(next_low < state[1])
    return np.array([state[0], next_low, next_high]), value[: prod(shape)].reshape(shape)


def random_bits(algorithm: str, state: Array, shape: Sequence[int], bits: int) -> tuple[Array, Array]:
    """(next state, unsigned random integers): uint64 for 64 bits, else uint32 of which the lowest `bits` count."""
    make = _threefry if algorithm == "THREE_FRY" else _philox
    new, value = make(state, tuple(shape), bits)
    return new, np.asarray(value)


@rule("stablehlo.rng_bit_generator")
def rng_bit_generator(ctx: Any, op: Op, initial: Array) -> tuple[Array, Array]:
    """DEFAULT is Philox. The state is two or three 64-bit words, or the same bits in narrower ones.

    Philox with two words: the key is the upper half of the counter as well, as in XLA.
    """
    t = op.results[1].tensor
    return generated(ctx, op, op.attr("rng_algorithm"), initial, t.static_shape, t.dtype)


def generated(
    ctx: Any, op: Op, algorithm: str, initial: Array, shape: Sequence[int], dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """rng_bit_generator with algorithm and shape given."""
    words = np.ascontiguousarray(initial).view(np.uint64).copy()
    if algorithm == "THREE_FRY" and words.size != 2:
        raise ctx.error(op, f"expected a state of 2 64-bit words, found {words.size}")
    if algorithm != "THREE_FRY" and words.size not in (2, 3):
        raise ctx.error(op, f"expected a state of 2 or 3 64-bit words, found {words.size}")
    state = words if algorithm == "THREE_FRY" or words.size == 3 else words[[0, 1, 0]]
    new, value = random_bits(algorithm, state, shape, bits_of(dtype))
    bits = bits_of(dtype)
    if is_float(dtype):
        value = value.astype(f"u{dtype.itemsize}").view(dtype)
    else:
        value = convert(value if bits == 64 else value & _U32((1 << bits) - 1), dtype)
    return new[: words.size].view(initial.dtype), value.reshape(tuple(shape))


@rule("stablehlo.rng")
def rng(ctx: Any, op: Op, a: Array, b: Array, shape: Array) -> Array:
    """UNIFORM: in [a, b); NORMAL: of mean a and deviation b. The same values in every run of a program.

    The specification leaves the generator to the implementation: this is Threefry, counted on from op to op.
    """
    sizes, dtype = tuple(int(n) for n in shape), op.results[0].tensor.dtype
    draws = ctx.draws
    ctx.draws += 1
    state = np.array([0x5EED, draws << 40], np.uint64)
    _, words = random_bits("THREE_FRY", state, (2, *sizes), 64)
    unit = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53  # [0, 1)
    if op.attr("rng_distribution") == "NORMAL":
        radius = np.sqrt(-2.0 * np.log1p(-unit[0]))
        value = float(a) + float(b) * radius * np.cos(2 * np.pi * unit[1])
        return convert(np.asarray(value), dtype)
    if is_float(dtype):
        low, high = float(a), float(b)
        value = convert(np.asarray(low + (high - low) * unit[0]), dtype)
        below = np.asarray(value).astype(np.float64) < high  # rounding may reach the open end
        return np.where(below, value, a) if high > low else value
    low_, width = int(a), max(int(b) - int(a), 1)
    value = np.asarray(words[0] % np.uint64(width)).astype(np.int64) + low_
    return convert(value, dtype)
