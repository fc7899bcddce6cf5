"""Buffers: memory for the elements of a value, or of a part of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from math import prod

from hlo.module import Value
from hlo.types import ElementType
from indexing.expr import Expr

__all__ = ["SAME_SETS_BYTES", "Buffer", "Scope", "make_buffer", "shares_sets", "with_planes_apart"]

SAME_SETS_BYTES = 1024  # what lies a multiple of it apart falls into few of a cache's sets
LINE_BYTES = 64
FEW = 4  # lines that a cache holds of one set in any case


class Scope(enum.Enum):
    """Where a buffer lives."""

    ARGUMENT = "argument"  # read only, made by someone else
    RESULT = "result"  # stored by this fusion for others
    SHARED = "shared"  # scratch of the whole fusion (packed operands)
    THREAD = "thread"  # scratch of one thread, reused by each of its tasks

    __hash__ = object.__hash__  # each member is one object; a hash of its name is made anew each time


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory for elements: element (i0, i1, …) of the value lies at sum of (i_k - origin_k) * strides_k.

    `shape` counts the elements kept along each dimension; `size_elems` includes padding.
    """

    name: str
    scope: Scope
    element: ElementType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    origin: tuple[Expr | int, ...]
    size_elems: int
    value: Value | None = None

    @property
    def size_bytes(self) -> int:
        return self.size_elems * self.element.itemsize_bytes

    def __str__(self) -> str:
        at = ", ".join(map(str, self.origin))
        shape = ", ".join(map(str, self.shape))
        return f"{self.name}: {self.scope.value} {self.element}[{shape}] at ({at}), {self.size_bytes} bytes"


def make_buffer(name: str, scope: Scope, element: ElementType, shape: tuple[int, ...], padded: tuple[int, ...],
                origin: tuple[object, ...], value: Value | None = None) -> Buffer:  # fmt: skip
    """A row-major buffer with `padded` elements allocated along each dimension."""
    strides: list[int] = []
    step = 1
    for n in reversed(padded):
        strides.append(step)
        step *= max(n, 1)
    return Buffer(name, scope, element, shape, tuple(reversed(strides)), origin, max(step, 1), value)  # type: ignore[arg-type]


def shares_sets(buffer: Buffer) -> bool:
    """Whether a buffer may have many planes that lie a multiple of `SAME_SETS_BYTES` apart; a question that costs little."""
    item = buffer.element.itemsize_bytes
    return buffer.size_bytes > FEW * SAME_SETS_BYTES and any(s > 1 and s * item % SAME_SETS_BYTES == 0 for s in buffer.strides)


def with_planes_apart(buffer: Buffer, planes: int) -> Buffer:
    """The buffer with a line more between the planes that its first dimensions count, where these fall into the same sets.

    A loop that stores to all planes at once, or reads them, has a line of each in the nearest cache: of one set there are few.

    >>> from hlo.types import element_type
    >>> tile = make_buffer("tile", Scope.THREAD, element_type("f32"), (16, 64, 96), (16, 64, 96), (0, 0, 0))
    >>> with_planes_apart(tile, 1).strides, with_planes_apart(tile, 0).strides
    ((6160, 96, 1), (6144, 96, 1))
    """
    item = buffer.element.itemsize_bytes
    count, inner = prod(buffer.shape[:planes]), prod(buffer.shape[planes:])
    if count <= FEW or buffer.strides[planes - 1] * item % SAME_SETS_BYTES or inner * item < SAME_SETS_BYTES:
        return buffer
    strides = list(buffer.strides)
    step = strides[planes - 1] + LINE_BYTES // item
    for k in reversed(range(planes)):
        strides[k], step = step, step * buffer.shape[k]
    return replace(buffer, strides=tuple(strides), size_elems=step)
