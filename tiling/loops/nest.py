"""Nests: loops around stores and folds over one domain, and what a flag or a cut leaves of them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hlo.access import Condition
from hlo.module import Op, Value
from indexing.expr import Const, Expr, Var, maximum, minimum, within
from tiling.loops.buffers import Buffer
from tiling.loops.element_ir import Load, Node

__all__ = ["ZERO", "FoldStep", "Loop", "LoopKind", "Nest", "Rewriter", "Segment", "Skip", "Store"]


ZERO = Const(0)


class LoopKind(enum.Enum):
    """What order a loop's iterations may run in."""

    PARALLEL = "parallel"
    REDUCTION = "reduction"
    SCAN = "scan"  # ascending: an iteration's result starts from the one before

    __hash__ = object.__hash__  # each member is one object; a hash of its name is made anew each time


@dataclass(frozen=True)
class Loop:
    """`variable` runs over [lower, upper]; `extent` is the most iterations that it has.

    `together` iterations are written as one: their number divides that of all iterations.
    """

    variable: Var
    lower: Expr
    upper: Expr
    extent: int
    kind: LoopKind = LoopKind.PARALLEL
    together: int = 1

    @property
    def runs_once(self) -> bool:
        """True for exactly one iteration. An extent of 1 does not say that: the loop may have none where a tile is cut."""
        return self.lower is self.upper and isinstance(self.lower, Const)

    @property
    def is_whole(self) -> bool:
        """True where it runs from 0 through all of its extent, whatever the tile."""
        return self.lower is ZERO and self.upper is Const(self.extent - 1)

    def __str__(self) -> str:
        kind = f" {self.kind.value}" if self.kind is not LoopKind.PARALLEL else ""
        return f"for {self.variable} in [{self.lower}, {self.upper}]{kind}" + (
            f", {self.together} at a time" if self.together > 1 else ""
        )


class Rewriter(Protocol):
    """What gives indices and nodes others: a `Renamer`, or what is known on a part of a domain."""

    def index(self, index: Sequence[Expr]) -> tuple[Expr, ...]: ...
    def node(self, node: Node) -> Node: ...


@dataclass(frozen=True, eq=False)
class Store:
    """buffer[index] = node, once for each iteration. `value` is None for a copy in another layout (a packed operand)."""

    value: Value | None
    buffer: Buffer
    index: tuple[Expr, ...]
    node: Node

    def rewritten(self, by: Rewriter) -> Store:
        """The store with another index and node."""
        return replace(self, index=by.index(self.index), node=by.node(self.node))


@dataclass(frozen=True, eq=False)
class FoldStep:
    """buffers[index] = fold of the op's body over the nest's reduction loops, from `inits`.

    For a sum of products that runs without the micro-kernel, `body` is None and the nodes' product is summed from zero.
    A fold that is `carried` goes on from what the buffers hold. With several `products` the nodes are that many groups of
    factors, whose products are summed one after the other, or of what so many steps fold in. Where it `looks_twice`, a maximum
    or minimum of a row is taken from two bounds of every element, and from a third one, for which the row is read again, where
    those two do not tell.
    """

    values: tuple[Value, ...]
    buffers: tuple[Buffer, ...]
    index: tuple[Expr, ...]
    nodes: tuple[Node, ...]
    inits: tuple[Node, ...]
    op: Op
    carried: bool = False
    products: int = 1
    looks_twice: bool = False

    def rewritten(self, by: Rewriter) -> FoldStep:
        """The fold with another index and other nodes."""
        nodes, inits = tuple(map(by.node, self.nodes)), tuple(map(by.node, self.inits))
        return replace(self, index=by.index(self.index), nodes=nodes, inits=inits)

    def factors(self, k: int) -> tuple[Node, ...]:
        """The nodes of product number `k`."""
        count = len(self.nodes) // self.products
        return self.nodes[k * count : (k + 1) * count]


@dataclass(frozen=True)
class Skip:
    """While `flag` is 1 nothing is computed where one of `conditions` fails: folds would fold in what changes nothing there.

    Stores would store zeros: they do so where the innermost loop's `variable` is in [first, last] of `fill`, or not at all.
    """

    flag: Var
    variable: Var
    conditions: tuple[Condition, ...]
    fill: tuple[Expr, Expr] | None = None

    def filled(self, loops: Sequence[Loop]) -> list[Loop]:
        """A nest's loops over all that zeros are stored for, where nothing else is; there have to be zeros."""
        assert self.fill is not None
        first, last = self.fill
        return [
            replace(x, lower=maximum(x.lower, first), upper=minimum(x.upper, last)) if x.variable is self.variable else x
            for x in loops
        ]

    def __str__(self) -> str:
        where = " and ".join(within(str(c.expression), c.lower, c.upper) for c in self.conditions)
        zeros = f", zeros for {self.variable} in [{self.fill[0]}, {self.fill[1]}]" if self.fill is not None else ""
        return f"while {self.flag} only where {where}{zeros}"


@dataclass(frozen=True, eq=False)
class Segment:
    """A part of a nest's innermost loop, [lower, upper] (empty when lower > upper), and what it computes.

    Nothing of one that `is_left_out` runs while the flag of the nest's `skip` is 1, but for stores of zeros.
    """

    lower: Expr
    upper: Expr
    stores: tuple[Store, ...]
    folds: tuple[FoldStep, ...]
    is_left_out: bool = False


@dataclass(frozen=True, eq=False)
class Nest:
    """Loops, outermost first, around stores and folds over one domain.

    Passes may reorder them for the sake of strides, unless `order_is_fixed`. Where there are `segments`, they are what the
    innermost loop consists of, in order: together they do what the stores and folds say. Rows that the loads of `ahead` read are
    prefetched before their turn.
    """

    loops: tuple[Loop, ...]
    stores: tuple[Store, ...] = ()
    folds: tuple[FoldStep, ...] = ()
    order_is_fixed: bool = False
    skip: Skip | None = None
    segments: tuple[Segment, ...] = ()
    ahead: tuple[Load, ...] = ()

    @property
    def parts(self) -> tuple[Segment, ...]:
        """The segments of the innermost loop; the whole of it where it is not cut."""
        if self.segments:
            return self.segments
        lower, upper = (self.loops[-1].lower, self.loops[-1].upper) if self.loops else (ZERO, ZERO)
        return (Segment(lower, upper, self.stores, self.folds),)

    @property
    def reductions(self) -> list[Loop]:
        """The loops that are folded over, outermost first."""
        return [x for x in self.loops if x.kind is LoopKind.REDUCTION]

    def rewritten(self, by: Rewriter, loops: tuple[Loop, ...]) -> Nest:
        """Around what is stored and folded other loops, with indices and nodes as `by` has them."""
        stores, folds = tuple(s.rewritten(by) for s in self.stores), tuple(f.rewritten(by) for f in self.folds)
        return replace(self, loops=loops, stores=stores, folds=folds)

    @property
    def each(self) -> tuple[Node, ...]:
        """What is stored and folded, at each iteration."""
        return (*(s.node for s in self.stores), *(n for f in self.folds for n in f.nodes))

    @property
    def roots(self) -> tuple[Node, ...]:
        """All that is stored and folded, and what folds start from."""
        return (*(s.node for s in self.stores), *(n for f in self.folds for n in (*f.nodes, *f.inits)))

    @property
    def values(self) -> tuple[Value, ...]:
        stored = tuple(s.value for s in self.stores if s.value is not None)
        return stored + tuple(v for f in self.folds for v in f.values)

    def __repr__(self) -> str:
        loops = ", ".join(f"{x.variable} < {x.extent}" for x in self.loops) or "no loops"
        return f"<Nest: {loops}; computes {', '.join(f'%{v.name or chr(63)}' for v in self.values) or 'copies'}>"
