"""What a call does, as a tree: kernels, copies, loops and branches over numbered memories (`assembly` makes it).

    Compute    one phase of a fusion             Exchange   two memories change names
    Copy       one memory over another           Evaluate   an op of the evaluator's
    Loop       while cond: body                  Choice     one of several lists, by a predicate or a number
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from codegen.source.emit import PhaseSource
from tiling import EvaluatorStep, Fusion

__all__ = ["Choice", "Compute", "Copy", "Evaluate", "Exchange", "Loop", "Node", "below", "inside", "parts", "with_parts"]


@dataclass(frozen=True, eq=False)
class Compute:
    """A kernel: `slots` are the memories of its source's buffers, `writes` those that it stores to.

    One that only `moves` puts elements elsewhere, as they are, or in the form that a product wants: it packs operands of the
    kernels after it.
    """

    name: str
    fusion: Fusion
    source: PhaseSource
    slots: tuple[int, ...]
    writes: frozenset[int]
    moves: bool = False


@dataclass(frozen=True, eq=False)
class Copy:
    """`target` becomes equal to `source`; where it is `settled`, at the address that the target had at first."""

    source: int
    target: int
    size_bytes: int
    dtype: str
    settled: bool = False


@dataclass(frozen=True, eq=False)
class Exchange:
    """Each of two memories becomes the other."""

    first: int
    second: int


@dataclass(frozen=True, eq=False)
class Evaluate:
    """An op that the evaluator runs, or a function of its own; of one in two `parts` the `begin`, or the `end` of that one.

    The first reads and writes nothing, the second writes and reads nothing.
    """

    step: EvaluatorStep
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    begins: bool = False
    ends: Evaluate | None = None


@dataclass(eq=False)
class Loop:
    """`cond` computes what is `tested`; while it holds, `body` runs. `held` are the memories in use from one run to the next.

    `trips` is how often the body runs, where that is known.
    """

    name: str
    cond: list[Node]
    tested: int
    body: list[Node]
    held: frozenset[int] = frozenset()
    trips: int | None = None


@dataclass(eq=False)
class Choice:
    """Branch 0 where what is `tested` holds, else branch 1; or, `by_number`, the branch of that number, or the last."""

    name: str
    tested: int
    by_number: bool
    branches: list[list[Node]] = field(default_factory=list)


Node = Compute | Copy | Exchange | Evaluate | Loop | Choice


def parts(n: Node) -> Sequence[list[Node]]:
    """The lists of nodes inside a node."""
    return (n.cond, n.body) if isinstance(n, Loop) else n.branches if isinstance(n, Choice) else ()


def with_parts(n: Node, made: Callable[[list[Node]], list[Node]]) -> Node:
    """The node with what `made` gives for each of its lists."""
    if isinstance(n, Loop):
        return replace(n, cond=made(n.cond), body=made(n.body))
    return replace(n, branches=list(map(made, n.branches))) if isinstance(n, Choice) else n


def inside(nodes: Iterable[Node]) -> Iterator[Node]:
    """Every node of a tree, in the order in which they run first."""
    for n in nodes:
        yield n
        for part in parts(n):
            yield from inside(part)


def below(nodes: Iterable[Node]) -> list[Node]:
    """Every node of a tree, the last ones first: in this order kernels are compiled."""
    return [*inside(nodes)][::-1]
