"""Threefry's twenty rounds as one function of an element, which gives both words of a counter's block in 64 bits.

    w = threefry2x32(key_0, key_1, x_0, x_1)     ->     first = w mod 2^32, second = w >> 32

Written out they are some 115 additions, shifts and exclusive ors, which a program with random numbers has at each `split` and
each draw: more ops than all others together, planned and typed one by one. Kernels call a function of the library instead
(`codegen.lib.random_words`), which is written into them. Only programs that are planned have this op (`as_module` writes it out).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hlo.builder import Builder
from hlo.decompositions.expressions import Expression
from hlo.errors import Declined
from hlo.module import Block, Op, Value
from hlo.ops.common import identity_access
from hlo.registry import Elementwise, OpDefinition, Operand
from hlo.types import ELEMENT_TYPES, TensorType
from hlo.typesets import U, tensors

__all__ = ["THREEFRY", "in_ops", "rounds", "words", "words_of_call"]

X = Expression
T = TypeVar("T")
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
SUM_OF_KEYS = 0x1BD11BDA
_BLOCK = ELEMENT_TYPES["ui64"]

THREEFRY = OpDefinition(
    name="random.threefry2x32",
    spec="Salmon, Moraes, Dror and Shaw: Parallel random numbers: as easy as 1, 2, 3 (2011), section 3.3",
    operands=tuple(Operand(name, tensors(U)) for name in ("key_0", "key_1", "x_0", "x_1")),
    infer=Declined("its one maker says it"),
    access=identity_access,
    semantics=Elementwise("threefry2x32"),
)


def words(b: Builder, key: Sequence[X], x: Sequence[X]) -> tuple[X, X]:
    """Both words of each block of counters `x`, which have one shape; keys have it, too, or are scalars."""
    result = TensorType(x[0].type.static_shape, _BLOCK)
    op = Op(THREEFRY, [v.value for v in (*key, *x)], {}, (), [result], b.place)
    (made,) = b.append(op)
    both = X(b, made)
    return both.to("ui32"), (both >> 32).to("ui32")


def words_of_call(op: Op) -> Block:
    """What a call of a function that is Threefry stands for (`tiling.program.random.recognized`)."""
    b = Builder()
    b.place = op.location
    block = Block([v.type for v in op.operands])
    with b.into(block):
        shape = op.results[0].shape
        keys = [v if not v.rank else _spread(b, v, shape) for v in block.arguments[:2]]
        counters = [_spread(b, v, shape) for v in block.arguments[2:]]
        found = words(b, [X(b, v) for v in keys], [X(b, v) for v in counters])
        b.emit("func.return", [x.value for x in found])
    return block


def _spread(b: Builder, v: Value, shape: tuple[int, ...]) -> Value:
    """A value in a shape, as NumPy spreads it."""
    return v if v.shape == shape else b.broadcast_in_dim(v, shape, range(len(shape) - v.rank, len(shape)))


def in_ops(op: Op, operands: Sequence[Value]) -> list[Op]:
    """The rounds as ops of StableHLO on an op's operands; the last one gives its result."""
    b = Builder()
    b.place = op.location
    block = Block([])
    with b.into(block):
        shape = op.results[0].shape
        k0, k1, x0, x1 = (X(b, _spread(b, v, shape)) for v in operands)
        first, second = rounds((k0, k1), (x0, x1), lambda a, b: a + b, _xor, _rotated, k0.lift)
        second.to("ui64").apply("stablehlo.shift_left", 32).apply("stablehlo.or", first.to("ui64"))
    return list(block.ops)


def rounds(
    key: Sequence[T], x: Sequence[T], add: Callable[[T, T], T], xor: Callable[[T, T], T], rotated: Callable[[T, int], T],
    number: Callable[[int], T],
) -> tuple[T, T]:  # fmt: skip
    """Both words of a block, of whatever words are: values of a program, or unknowns."""
    keys = (key[0], key[1], xor(xor(key[0], key[1]), number(SUM_OF_KEYS)))
    first, second = add(x[0], keys[0]), add(x[1], keys[1])
    for group in range(5):
        for by in ROTATIONS[group % 2]:
            first = add(first, second)
            second = xor(rotated(second, by), first)
        first = add(first, keys[(group + 1) % 3])
        second = add(add(second, keys[(group + 2) % 3]), number(group + 1))
    return first, second


def _rotated(x: X, by: int) -> X:
    return x.apply("stablehlo.shift_left", by) | (x >> (32 - by))


def _xor(x: X, y: X) -> X:
    return x.apply("stablehlo.xor", y)
