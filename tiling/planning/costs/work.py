"""What one nest does, as the cost model sees it: its loops, operations, loads, stores and folds, without its expressions.

    for i, for j: a[i, j] = exp(x[i])          operations (10 along i), load x[i], store a[i, j]
    for i, for j: b[i, j] = a[i, j] * y[j]     operations (1 along i and j), loads a[i, j], y[j], store b[i, j]

joined, as nests over one domain are (`tiling.passes.merge_nests`), without a copy of any expression:

    for i, for j: ...                          operations 10 along i, 1 along i and j, loads x[i], y[j], stores a, b

A set of loops is an integer with a bit for each loop's place, so what is joined need not be renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hlo.lazy import cached_property
from hlo.module import Value
from indexing.expr import Expr, Interval, Var, as_expr, simplify, substitute
from tiling.elements.scalar_functions import scalar_function
from tiling.loops.affine import steps_along
from tiling.loops.element_ir import (
    Apply,
    Choose,
    Load,
    Node,
    Scalar,
    all_nodes,
    children,
    loads_among,
    operands_first,
    own_expressions,
    runtimes_of,
    unconditional_loads,
)
from tiling.loops.ir import Buffer, FoldStep, Loop, LoopKind, Nest, Scope, Skip, Step
from tiling.passes.merge_nests import join_steps, one_skip
from tiling.passes.order_loops import innermost, loads_that_count, steps_looked_up

__all__ = ["Access", "Fold", "Operation", "Part", "Stored", "Work", "as_in", "join_all", "lanes_used", "order_of", "work_of"]

CHOICE = 2.0  # what a choice costs in additions


@dataclass(frozen=True, eq=False)
class Access:
    """A load, with the variables of the loops that it is written in, and the loops that what it reads depends on."""

    load: Load
    variables: tuple[Var, ...]
    depends: int
    is_taken: bool  # by every iteration: it is inside of no choice
    counts: bool = True  # for the order of the loops (`tiling.passes.order_loops.loads_that_count`)


@dataclass(frozen=True)
class Operation:
    """What one costs in additions, the loops that it depends on but for its loads, and a bit for each of these."""

    cost: float
    own: int
    loads: int

    def depends(self, loads: Sequence[int]) -> int:
        """The loops that it depends on, where its loads depend on these."""
        found = self.own
        for k, depends in enumerate(loads):
            if self.loads >> k & 1:
                found |= depends
        return found


@dataclass(frozen=True, eq=False)
class Stored:
    """buffer[index] = what depends on the loads of `operation`."""

    value: Value | None
    buffer: Buffer
    index: tuple[Expr, ...]
    variables: tuple[Var, ...]
    operation: Operation
    depends: int


@dataclass(frozen=True, eq=False)
class Fold:
    step: FoldStep
    variables: tuple[Var, ...]


@dataclass(frozen=True, eq=False)
class Work:
    """A nest's work. `operations` are (additions, the loops that they depend on)."""

    loops: tuple[Loop, ...]
    operations: tuple[tuple[float, int], ...]
    loads: tuple[Access, ...]
    stores: tuple[Stored, ...] = ()
    folds: tuple[Fold, ...] = ()
    order_is_fixed: bool = False
    skip: Skip | None = None
    has_runtimes: bool = False
    parts: tuple[Operation, ...] = ()  # the operations of a nest that is not joined from several
    orders: dict[tuple[tuple[int, ...], ...], list[int]] = field(default_factory=dict, init=False)  # by the loads' strides

    @cached_property
    def variables(self) -> tuple[Var, ...]:
        return tuple(x.variable for x in self.loops)

    @cached_property
    def is_unflattened(self) -> bool:
        """Whether loops over whole rows become two (`tiling.passes.unflatten_loops`): those of members that fold nothing. Copies
        for products have loops over rows as it is."""
        return bool(self.stores) and not self.folds and all(s.value is not None for s in self.stores)

    @cached_property
    def iterations(self) -> int:
        found = 1
        for x in self.loops:
            found *= x.extent
        return found

    @cached_property
    def extents(self) -> dict[Var, int]:
        """By the variables of all nests that are joined in this one."""
        found: dict[Var, int] = {}
        for variables in {self.variables, *(a.variables for a in self.loads)}:
            found.update(zip(variables, (x.extent for x in self.loops), strict=True))
        return found


Part = Work | Step


def work_of(nest: Nest) -> Work:
    """The work of one nest."""
    variables = tuple([x.variable for x in nest.loops])
    bit = {v: 1 << k for k, v in enumerate(variables)}
    roots: list[Node] = [s.node for s in nest.stores]
    for f in nest.folds:
        roots += [*f.nodes, *f.inits]
    nodes = list(all_nodes(roots))
    read = loads_among(nodes)
    place = {x.place: k for k, x in enumerate(read)}
    # Of each node: the loops that it depends on, those that it depends on but for loads, and the loads below it.
    known: dict[Node, tuple[int, int, int]] = {}
    for root in roots:
        for n in operands_first(root, known):
            mine = 0
            for e in own_expressions(n):
                for v in e.variables:
                    mine |= bit.get(v, 0)
            own, below, all_of = mine, 0, mine
            for c in children(n):
                a, o, b = known[c]
                all_of, own, below = all_of | a, own | o, below | b
            known[n] = (all_of, 0, 1 << place[n.place]) if isinstance(n, Load) else (all_of, own, below)
    chosen = any(type(n) is Choose or (type(n) is Load and n.runtimes) for n in nodes)
    taken = {x.place for x in unconditional_loads(roots)} if chosen else place.keys()
    starts = any(not isinstance(n, Scalar) for f in nest.folds for n in f.inits)
    has_places = any(runtimes_of(n) for n in nodes)
    steps = {x.place for x in loads_that_count(nest)} if starts or has_places else place.keys()
    accesses = tuple([Access(x, variables, known[x][0], x.place in taken, x.place in steps) for x in read])

    def operation(n: Node, cost: float) -> Operation:
        return Operation(cost, *known[n][1:])

    parts, operations = [], []
    for n in nodes:
        if type(n) is Apply or type(n) is Choose:
            cost = scalar_function(n.function).cost if type(n) is Apply else CHOICE
            parts.append(operation(n, cost))
            operations.append((cost, known[n][0]))
    stores = [Stored(s.value, s.buffer, s.index, variables, operation(s.node, 0.0), known[s.node][0]) for s in nest.stores]
    return Work(
        nest.loops, tuple(operations), accesses, tuple(stores), tuple([Fold(f, variables) for f in nest.folds]),
        nest.order_is_fixed, nest.skip, has_places, tuple(parts),
    )  # fmt: skip


def order_of(work: Work, buffer_of: Callable[[Load], Buffer]) -> list[int]:
    """The places of the loops as `order_loops` has them, outermost first, for folds that are one function each."""
    loops = work.loops
    if len(loops) < 2 or work.order_is_fixed:
        return list(range(len(loops)))
    strides = tuple([buffer_of(a.load).strides for a in work.loads])
    known = work.orders.get(strides)
    if known is None:
        known = work.orders[strides] = _ordered(work, strides)
    return known


def _ordered(work: Work, strides: Sequence[tuple[int, ...]]) -> list[int]:
    """`order_of`, where the loads' buffers have these strides."""
    loops = work.loops
    accesses: list[tuple[Sequence[int | None], float]] = [
        (steps_along(s.index, s.buffer.strides, s.variables), 1.1) for s in work.stores
    ]
    for a, apart in zip(work.loads, strides, strict=True):
        if a.counts:
            steps = steps_along(a.load.index, apart, a.variables)
            if a.load.runtimes:
                steps = steps_looked_up(steps, [bool(a.depends >> k & 1) for k in range(len(loops))])
            accesses.append((steps, 1.0))
    best = innermost(loops, accesses)[0]
    last = next(k for k, x in enumerate(loops) if x is best)
    rest = [k for k in range(len(loops)) if k != last]
    parallel = [k for k in rest if loops[k].kind is LoopKind.PARALLEL]
    return [*parallel, *(k for k in rest if loops[k].kind is not LoopKind.PARALLEL), last]


# ---------------------------------------------------------------- joining


def join_all(steps: Sequence[Part], ranges: Mapping[Var, Interval], buffer_of: Callable[[Load], Buffer]) -> list[Part]:
    """The steps as `merge_nests` has them: a nest's work with an earlier one's, where both run over one domain."""

    def joined(first: Work, second: Work) -> Work | None:
        return None if _overtakes(second, first, ranges, buffer_of) else _joined(first, second, ranges)

    return join_steps(steps, Work, joined, lambda w: _touched(w, buffer_of))


def _touched(work: Work, buffer_of: Callable[[Load], Buffer]) -> tuple[set[Buffer], set[Buffer]]:
    writes = {s.buffer for s in work.stores} | {b for f in work.folds for b in f.step.buffers}
    return {buffer_of(a.load) for a in work.loads}, writes


def as_in(
    index: Sequence[Expr], here: tuple[Var, ...], there: tuple[Var, ...], ranges: Mapping[Var, Interval]
) -> tuple[Expr, ...]:
    """An index written with some loops' variables, written with others'."""
    if here == there:
        return tuple(index)
    renaming = {b: as_expr(a) for a, b in zip(there, here, strict=True)}
    return tuple([simplify(substitute(e, renaming), ranges) for e in index])


def _overtakes(second: Work, first: Work, ranges: Mapping[Var, Interval], buffer_of: Callable[[Load], Buffer]) -> bool:
    """True when `second` writes, in place, elements that a later iteration of `first` still reads."""
    read = [(a, b) for a in first.loads for b in [buffer_of(a.load)] if b.scope is not Scope.ARGUMENT]
    if not read:
        return False
    folded = {b for f in second.folds for b in f.step.buffers}
    if any(b in folded and a.load.index for a, b in read):
        return True
    for s in second.stores:
        mine = [a for a, b in read if b is s.buffer]
        if not mine:
            continue
        if len(first.loops) != len(second.loops):
            return True  # they are not joined anyway
        at = as_in(s.index, s.variables, first.variables, ranges)
        if any(as_in(a.load.index, a.variables, first.variables, ranges) != at for a in mine):
            return True
    return False


def _joined(first: Work, second: Work, ranges: Mapping[Var, Interval]) -> Work | None:
    """The work of two nests as one; None where they stay two."""
    if len(first.loops) != len(second.loops) or second.has_runtimes:
        return None
    skip = None
    if first.skip is not None or second.skip is not None:
        one = one_skip(first, second, ranges)
        if one is None:
            return None
        (skip,) = one
    loops: list[Loop] = []
    scans = differs = reduces = False
    for x, y in zip(first.loops, second.loops, strict=True):
        if x.extent != y.extent or x.lower != y.lower or x.upper != y.upper:
            return None
        scans |= LoopKind.SCAN in (x.kind, y.kind)
        differs |= x.kind is not y.kind
        kind = LoopKind.REDUCTION if LoopKind.REDUCTION in (x.kind, y.kind) else x.kind
        reduces |= kind is LoopKind.REDUCTION
        loops.append(x if x.kind is kind else replace(x, kind=kind))
    if scans or (first.folds and differs) or (second.stores and reduces):
        return None
    stored = {s.value: s for s in first.stores if s.value is not None}
    folded = {v for f in first.folds for v in f.step.values}
    here: dict[Value, list[Access]] = {}
    for a in first.loads:
        here.setdefault(a.load.value, []).append(a)
    depends: list[int] = []
    kept: list[Access] = []
    for a in second.loads:
        if a.load.value in folded:
            return None
        made = stored.get(a.load.value)
        if made is not None:
            if as_in(a.load.index, a.variables, made.variables, ranges) != made.index:
                return None
            depends.append(made.depends)
            continue
        depends.append(a.depends)
        if not any(
            o.load.buffer is a.load.buffer and o.load.runtimes == a.load.runtimes
            and as_in(a.load.index, a.variables, o.variables, ranges) == o.load.index
            for o in here.get(a.load.value, ())
        ):
            kept.append(a)
    operations = tuple([(p.cost, p.depends(depends)) for p in second.parts])
    stores = tuple([replace(s, depends=s.operation.depends(depends)) for s in second.stores])
    return Work(
        tuple(loops), (*first.operations, *operations), (*first.loads, *kept), (*first.stores, *stores),
        (*first.folds, *second.folds), first.order_is_fixed or second.order_is_fixed, skip, first.has_runtimes,
    )  # fmt: skip


def lanes_used(extent: int, lanes: int) -> float:
    """Elements of an inner loop done at a time: whole vectors, and what is left in parts of them, each of which takes twice as
    long as a whole one for what is around it; 1 for a loop that never runs.

    >>> lanes_used(64, 16), lanes_used(8, 16), lanes_used(24, 16), lanes_used(3, 16)
    (16.0, 4.0, 8.0, 1.0)
    """
    rest = extent % lanes
    return extent / (extent // lanes + min(rest, 2 * rest.bit_count())) if extent else 1.0
