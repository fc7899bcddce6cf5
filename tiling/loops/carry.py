"""State that goes from one iteration, block or tile to the next: where it lies, what begins it, what takes it on.

    begun      buffer[index] = start                  before the first: by a nest, or by the fold itself
    added to   buffer[index] o= …                     tiles and lanes add to parts, blocks along k to sums, the last rows to folds
    changed    buffer[index] = g(buffer[index], …)    an online form rescales its running results before it adds to them
    stepped    buffer[i] = buffer[i - 1] o …          a scan, as the loop's kind says: an iteration begins from the one before

Who makes such a state makes a `Carry`; who asks what goes on asks the functions here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

from hlo.module import Value
from indexing.expr import Expr
from tiling.loops.element_ir import Load, Node, loads
from tiling.loops.ir import Buffer, Contract, FoldStep, Loop, Nest, Step, Store

__all__ = ["Carry", "added_to", "going_on", "is_changed", "starts_from_state", "taken_on"]


@dataclass(frozen=True)
class Carry:
    """The state of a value: one number for each `index`, `start` before the first iteration."""

    value: Value
    buffer: Buffer
    index: tuple[Expr, ...]
    start: Node

    def begun(self, loops: Sequence[Loop]) -> Nest:
        """What stands before the first iteration."""
        return Nest(tuple(loops), stores=(Store(None, self.buffer, self.index, self.start),))

    def now(self, index: tuple[Expr, ...] | None = None) -> Load:
        """The state as it is."""
        return Load(self.value, self.index if index is None else index, self.buffer)


@overload
def going_on(step: FoldStep) -> FoldStep: ...
@overload
def going_on(step: Contract) -> Contract: ...


def going_on(step: FoldStep | Contract) -> FoldStep | Contract:
    """A fold or a contraction that adds to what is there."""
    return replace(step, carried=True) if isinstance(step, FoldStep) else replace(step, accumulate=True)


def added_to(step: Step) -> Iterator[tuple[Value, Buffer]]:
    """The values, with their buffers, that a step adds to."""
    if isinstance(step, Contract) and step.accumulate:
        yield step.value, step.out.buffer
    elif isinstance(step, Nest):
        for f in step.folds:
            yield from zip(f.values, f.buffers, strict=True) if f.carried else ()


def is_changed(s: Store) -> bool:
    """Whether a store changes what is there: it reads it."""
    return any(x.buffer is s.buffer for x in loads([s.node]))


def starts_from_state(f: FoldStep) -> bool:
    """Whether a fold goes on from a state, as it is or changed, and not from its initial value."""
    return f.carried or any(x.buffer is not None for x in loads(f.inits))


def taken_on(steps: Sequence[Step]) -> list[Buffer]:
    """What each round of some steps finds as the round before left it: buffers that they read before they write them."""
    read: dict[Buffer, None] = {}
    written: set[Buffer] = set()
    for step in steps:
        parts: list[tuple[Sequence[Node], Sequence[Buffer]]] = []
        if isinstance(step, Nest):
            parts += [((s.node,), (s.buffer,)) for s in step.stores]
            parts += [((*f.nodes, *f.inits), f.buffers) for f in step.folds]
        elif isinstance(step, Contract):
            parts.append(((), (step.out.buffer,)))
        for b in (b for _, b in added_to(step)):
            read.update({} if b in written else {b: None})
        for nodes, _ in parts:
            found = [x.buffer for x in loads(nodes) if x.buffer is not None]
            read.update(dict.fromkeys(b for b in found if b not in written))
        written.update(b for _, buffers in parts for b in buffers)
    return [b for b in read if b in written]
