"""Random bits of a state as arithmetic: the counter is an iota, so that every element is computed by itself.

    rng_bit_generator THREE_FRY [key, counter]        ->  threefry(key, counter + n), two words for each n
    rng_bit_generator PHILOX    [key, low, high]      ->  philox(key, (low, high) + n), four words for each n

Words of the state are 64 bits wide; a state of 32-bit integers holds their halves, the lower first. How words are laid out
over the elements is XLA's: Threefry's two go next to each other along one dimension, Philox's four along all elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from hlo.builder import Builder
from hlo.decompositions.expressions import Expression
from hlo.module import Op, Value
from hlo.types import ELEMENT_TYPES, ElementType, TensorType
from tiling.program.random.threefry import words

__all__ = ["random_bits"]

X = Expression


def random_bits(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    """(next state, bits); None for states of other sizes, which are the implementation's own."""
    (state,) = operands
    words = _words(b, state)
    threefry = op.attr("rng_algorithm") == "THREE_FRY"
    if words is None or not 2 <= len(words) <= (2 if threefry else 3):
        return None
    result = op.results[1].tensor
    element, shape = result.element, result.static_shape
    if not isinstance(element, ElementType) or element.is_complex or element.bits not in (8, 16, 32, 64):
        return None
    make = _threefry if threefry else _philox
    found, following = make(b, words, shape, element.bits == 64)
    unsigned = found.to(f"ui{element.bits}")
    bits = unsigned.bits(element.name) if element.is_float else unsigned.to(element)
    return [_state(b, following[: len(words)], state.tensor), bits.value]


def _words(b: Builder, state: Value) -> list[X] | None:
    """The state as scalars of 64 bits."""
    t = state.tensor
    if t.rank != 1 or t.element not in (ELEMENT_TYPES["ui64"], ELEMENT_TYPES["ui32"]):
        return None
    parts = [X(b, b.reshape(b.slice_in_dim(state, k, k + 1, 1, 0), ())) for k in range(t.static_shape[0])]
    if t.element == ELEMENT_TYPES["ui64"]:
        return parts
    return [_joined(low, high) for low, high in zip(parts[::2], parts[1::2], strict=True)] if len(parts) % 2 == 0 else None


def _state(b: Builder, words: Sequence[X], t: TensorType) -> Value:
    parts = [p for w in words for p in _halves(w)] if t.element == ELEMENT_TYPES["ui32"] else list(words)
    return b.concat_in_dim([b.reshape(p.value, (1,)) for p in parts], 0)


def _halves(x: X) -> tuple[X, X]:
    return x.to("ui32"), (x >> 32).to("ui32")


def _joined(low: X, high: X) -> X:
    return low.to("ui64") | high.to("ui64").apply("stablehlo.shift_left", 32)


def _spread(x: X, n: int) -> X:
    return X(x.builder, x.builder.broadcast_in_dim(x.value, (n,), ()))


def _counted(b: Builder, n: int) -> X:
    return X(b, b.iota(TensorType((n,), ELEMENT_TYPES["ui64"]), 0))


def _xor(x: X, y: X) -> X:
    return x.apply("stablehlo.xor", y)


def _threefry(b: Builder, state: Sequence[X], shape: tuple[int, ...], wide: bool) -> tuple[X, list[X]]:
    """Up to 32 bits one dimension, the first of even length or else the longest, holds both words of each counter in turn."""
    half, axis = shape, 0
    if not wide:
        even = [k for k, n in enumerate(shape) if n % 2 == 0]
        axis = even[0] if even else int(np.argmax(shape)) if shape else 0
        half = tuple(-(-n // 2) if k == axis else n for k, n in enumerate(shape))
    n = prod(half)
    first, second = words(b, _halves(state[0]), _halves(_spread(state[1], n) + _counted(b, n)))
    following = [state[0], state[1] + n]
    if wide or not shape:
        value = _joined(first, second) if wide else first
        return X(b, b.reshape(value.value, shape)), following
    between = (*half[: axis + 1], 1, *half[axis + 1 :])
    both = b.concat_in_dim([b.reshape(x.value, between) for x in (first, second)], axis + 1)
    full = b.reshape(both, tuple(2 * m if k == axis else m for k, m in enumerate(half)))
    return X(b, full if full.shape == shape else b.slice(full, (0,) * len(shape), shape)), following


def _rounds_of_philox(key: tuple[X, X], x: tuple[X, X, X, X]) -> tuple[X, X, X, X]:
    k0, k1 = key
    p, q, r, s = x
    n = p.type.static_shape[0]
    for _ in range(10):
        low0, high0 = _halves(p.to("ui64") * 0xD2511F53)
        low1, high1 = _halves(r.to("ui64") * 0xCD9E8D57)
        p, q, r, s = _xor(_xor(high1, q), _spread(k0, n)), low1, _xor(_xor(high0, s), _spread(k1, n)), low0
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return p, q, r, s


def _philox(b: Builder, state: Sequence[X], shape: tuple[int, ...], wide: bool) -> tuple[X, list[X]]:
    """A counter of 128 bits. With two words of state the key is the counter's upper half, too."""
    key, low, high = state if len(state) == 3 else (*state, state[0])
    count = prod(shape)
    n = -(-count * (2 if wide else 1) // 4)
    at = _spread(low, n) + _counted(b, n)
    over = (at < _spread(low, n)).to("ui64")
    words = _rounds_of_philox(_halves(key), (*_halves(at), *_halves(_spread(high, n) + over)))
    rows = [_joined(words[0], words[1]), _joined(words[2], words[3])] if wide else list(words)
    flat = b.reshape(b.concat_in_dim([b.reshape(x.value, (n, 1)) for x in rows], 1), (n * len(rows),))
    if n * len(rows) != count:
        flat = b.slice_in_dim(flat, 0, count, 1, 0)
    next_low = low + n
    return X(b, b.reshape(flat, shape)), [key, next_low, high + (next_low < low).to("ui64")]
