"""Buffers: memory for the elements of a value, or of a part of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from hlo.module import Value
from hlo.types import ElementType
from indexing.expr import Expr

__all__ = ["Buffer", "Scope", "make_buffer"]


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
