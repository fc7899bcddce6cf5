"""What the interpreter of schedules works on: buffers' elements, and iterations as arrays of their variables' values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hlo.module import Op, Value
from indexing.expr import Var
from tiling.loops.ir import (
    Buffer,
    Schedule,
    Scope,
)

__all__ = [
    "Array",
    "Memory",
    "Misuse",
    "Points",
    "Scalars",
    "as_place",
    "count_of",
    "each_point",
    "in_order",
    "numbered",
    "subset",
    "total_order",
]

Array = np.ndarray[Any, Any]
Scalars = Callable[[Op, str, Sequence[Array]], Array]


Points = dict[Var, Array]
"""Iterations: an array of its values for each variable, all as long."""


class Misuse(Exception):
    """Carries what a schedule does that no schedule may: leave a buffer, read what was never written, store twice at once."""


class Memory:
    """The buffers' elements, and which of them were written."""

    def __init__(self, schedule: Schedule, given: Mapping[Value, Array]) -> None:
        self.data: dict[Buffer, Array] = {}
        self.written: dict[Buffer, Array] = {}
        for b in schedule.buffers:
            self.data[b] = np.zeros(b.size_elems, b.element.dtype)
            self.written[b] = np.zeros(b.size_elems, bool)
            if b.value is not None and b.value in given and b.scope in (Scope.ARGUMENT, Scope.RESULT):
                at = self.addresses(b)
                self.data[b][at] = given[b.value].reshape(-1)
                self.written[b][at] = True

    @staticmethod
    def addresses(b: Buffer) -> Array:
        """The address of each element of a buffer's shape, row by row."""
        total = np.zeros(b.shape, np.int64)
        for k, (n, s) in enumerate(zip(b.shape, b.strides, strict=True)):
            total = total + (np.arange(n) * s).reshape([n if j == k else 1 for j in range(len(b.shape))])
        return total.reshape(-1)

    def forget(self, scope: Scope) -> None:
        """A thread's scratch holds anything when a task starts."""
        for b, known in self.written.items():
            if b.scope is scope:
                known[:] = False

    def check(self, b: Buffer, at: Array) -> None:
        if b not in self.data:
            raise Misuse(f"{b.name} is none of the schedule's buffers")
        if at.size and (at.min() < 0 or at.max() >= b.size_elems):
            raise Misuse(f"{b.name} has {b.size_elems} elements, number {at.min()} to {at.max()} are asked for")

    def load(self, b: Buffer, at: Array) -> Array:
        self.check(b, at)
        if not self.written[b][at].all():
            raise Misuse(f"{b.name}: what is read was never written")
        found: Array = self.data[b][at]
        return found

    def store(self, b: Buffer, at: Array, value: Array) -> None:
        self.check(b, at)
        if b.scope is Scope.ARGUMENT:
            raise Misuse(f"{b.name} is an argument")
        self.data[b][at] = value.astype(b.element.dtype) if value.dtype != b.element.dtype else value
        self.written[b][at] = True

    def result(self, b: Buffer) -> Array:
        at = self.addresses(b)
        if not self.written[b][at].all():
            raise Misuse(f"{b.name}: elements of it were never written")
        return self.data[b][at].reshape(b.shape)


def count_of(points: Points) -> int:
    return len(next(iter(points.values()))) if points else 1


def subset(points: Points, kept: Array) -> Points:
    return {v: a[kept] for v, a in points.items()}


def each_point(points: Points) -> Iterator[Points]:
    for k in range(count_of(points)):
        yield {v: a[k : k + 1] for v, a in points.items()}


def numbered(columns: Sequence[Array], count: int) -> Array:
    """A number for each row of some columns, the same for equal rows."""
    if not columns:
        return np.zeros(count, np.int64)
    return np.unique(np.stack(columns, 1), axis=0, return_inverse=True)[1].reshape(-1)


def in_order(where: Array) -> Iterator[Array]:
    """Rounds that take the points in order, each round at most one for each place."""
    order = np.argsort(where, kind="stable")
    ordered = where[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]] if ordered.size else np.zeros(0, bool)
    starts = np.maximum.accumulate(np.where(first, np.arange(ordered.size), 0)) if ordered.size else ordered
    rank = np.empty(where.size, np.int64)
    rank[order] = np.arange(ordered.size) - starts
    by_rank = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[by_rank], np.arange(int(rank.max(initial=-1)) + 2))
    for k in range(len(bounds) - 1):
        yield by_rank[bounds[k] : bounds[k + 1]]


def as_place(x: Array) -> Array:
    """A value as an index: unsigned numbers too large for one are as far as can be."""
    if x.dtype.kind == "u":
        x = np.minimum(x, np.iinfo(np.int64).max)
    return x.astype(np.int64)


def total_order(x: Array) -> Array:
    """Integers that order as the numbers do, NaN beyond the infinities."""
    if x.dtype.kind in "iub":
        return x.astype(np.int64)
    bits = x.view(f"i{x.dtype.itemsize}").astype(np.int64)
    most = (1 << (8 * x.dtype.itemsize - 1)) - 1
    return np.where(bits < 0, bits ^ most, bits)
