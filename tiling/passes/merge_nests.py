"""Nests over one domain become one: what a nest stores and the next one reads stays in a register, and shared loads are one.

    for i: a[i] = f(x[i])    for i: b[i] = g(a[i])    ->    for i: v = f(x[i]); a[i] = v; b[i] = g(v)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Protocol, TypeVar

from indexing.expr import Expr, Interval, Var, as_expr
from tiling.loops.domains.conditions import translated
from tiling.loops.element_ir import Load, Renamer, all_nodes, loads, moves_runtimes, runtimes_of
from tiling.loops.ir import Buffer, Contract, Loop, LoopKind, Nest, Schedule, Sequential, Skip, Step

__all__ = ["Skipping", "join_steps", "merge_nests", "merged", "one_skip"]

S = TypeVar("S")
N = TypeVar("N")
Buffers = AbstractSet[Buffer]


def merged(schedule: Schedule, buffer_of: Callable[[Load], Buffer]) -> Schedule:
    """The schedule with nests of the main phase and those after it merged, also inside sequential loops."""

    def inside(step: Step) -> Step:
        if not isinstance(step, Sequential):
            return step
        made = merge_nests(step.steps, schedule.ranges, buffer_of)
        return replace(step, steps=tuple(s for s in made if isinstance(s, (Nest, Contract))))

    first = schedule.phases.index(schedule.main)
    if all(len(p.steps) < 2 and not any(isinstance(s, Sequential) for s in p.steps) for p in schedule.phases[first:]):
        return schedule
    phases = (
        replace(p, steps=tuple(merge_nests([inside(s) for s in p.steps], schedule.ranges, buffer_of)))
        for p in schedule.phases[first:]
    )
    return replace(schedule, phases=(*schedule.phases[:first], *phases))


def merge_nests(steps: Sequence[Step], ranges: Mapping[Var, Interval], buffer_of: Callable[[Load], Buffer]) -> list[Step]:
    """Puts a nest into an earlier one where both run over the same domain and it needs only the same iteration's values."""

    return join_steps(steps, Nest, lambda a, b: _merge_two(a, b, ranges, buffer_of), lambda n: _touched(n, buffer_of))


def join_steps(
    steps: Sequence[S], kind: type[N], joined: Callable[[N, N], N | None], touched: Callable[[N], tuple[Buffers, Buffers]]
) -> list[S | N]:
    """The steps, each of a `kind` put into an earlier one where `joined(earlier, later)` does both.

    Between the two may be others of the kind that neither write what it touches nor touch what it writes: `touched` gives
    (what a step reads, what it writes).
    """
    done: list[S | N] = []
    for step in steps:
        for k in reversed(range(len(done))):
            other = done[k]
            if not isinstance(step, kind) or not isinstance(other, kind):
                done.append(step)
                break
            both = joined(other, step)
            if both is not None:
                done[k] = both
                break
            (reads, writes), (others, made) = touched(step), touched(other)
            if writes & (others | made) or made & reads:
                done.append(step)
                break
        else:
            done.append(step)
    return done


def _touched(nest: Nest, buffer_of: Callable[[Load], Buffer]) -> tuple[set[Buffer], set[Buffer]]:
    """(what a nest reads, what it writes)."""
    writes = {s.buffer for s in nest.stores} | {b for f in nest.folds for b in f.buffers}
    return {buffer_of(load) for load in loads(nest.roots)}, writes


def _overtakes(second: Nest, first: Nest, renamer: Renamer, buffer_of: Callable[[Load], Buffer]) -> bool:
    """True when `second` writes, in place, elements that a later iteration of `first` still reads: they may not be merged."""
    written: dict[Buffer, set[tuple[Expr, ...]]] = {b: {()} for f in second.folds for b in f.buffers}
    for x in second.stores:
        written.setdefault(x.buffer, set()).add(renamer.index(x.index))
    return any(written.get(buffer_of(x), set()) - {x.index} for x in loads(first.roots))


def _merge_two(
    first: Nest, second: Nest, ranges: Mapping[Var, Interval], buffer_of: Callable[[Load], Buffer]
) -> Nest | None:
    if [(x.extent, x.lower, x.upper) for x in first.loops] != [(x.extent, x.lower, x.upper) for x in second.loops]:
        return None
    skips = one_skip(first, second, ranges)
    kinds = [(a.kind, b.kind) for a, b in zip(first.loops, second.loops, strict=True)]
    found = {k for both in kinds for k in both}
    # Where the second nest reduces, the first one has either the same reduction or none (it stores what is reduced).
    differs = bool(first.folds) and any(a is not b for a, b in kinds)
    if skips is None or LoopKind.SCAN in found or (second.stores and LoopKind.REDUCTION in found) or differs:
        return None
    stored = {s.value: s for s in first.stores if s.value is not None}
    folded = {v for f in first.folds for v in f.values}
    renaming = {b.variable: as_expr(a.variable) for a, b in zip(first.loops, second.loops, strict=True)}
    renamer = Renamer(renaming, ranges, {v: s.node for v, s in stored.items()})
    read = loads(second.roots)
    if any(x.value in folded or (x.value in stored and renamer.index(x.index) != stored[x.value].index) for x in read):
        return None
    fixed = [r.node for n in all_nodes(second.roots) for r in runtimes_of(n)]
    if fixed and second.folds:  # measured: a selective scan's states and their sums, rows of 16, take a tenth longer in one loop
        return None
    if moves_runtimes(second.roots, renaming) or any(x.value in stored for x in loads(fixed)):
        return None
    if _overtakes(second, first, renamer, buffer_of):
        return None
    moved = second.rewritten(renamer, ())
    loops = tuple(
        Loop(a.variable, a.lower, a.upper, a.extent, LoopKind.REDUCTION if LoopKind.REDUCTION in both else a.kind)
        for a, both in zip(first.loops, kinds, strict=True)
    )
    return Nest(
        loops, (*first.stores, *moved.stores), (*first.folds, *moved.folds), first.order_is_fixed or second.order_is_fixed,
        skips[0],
    )  # fmt: skip


class Skipping(Protocol):
    """Loops that may leave something out."""

    @property
    def loops(self) -> tuple[Loop, ...]: ...
    @property
    def skip(self) -> Skip | None: ...
    @property
    def stores(self) -> Sequence[object]: ...


def one_skip(first: Skipping, second: Skipping, ranges: Mapping[Var, Interval]) -> tuple[Skip | None] | None:
    """What two nests leave out, when that is the same; None when it is not. Zeros are stored where either one stores them."""
    a, b = first.skip, second.skip
    if a is None or b is None:
        return (None,) if a is b else None
    renaming = {y.variable: as_expr(x.variable) for x, y in zip(first.loops, second.loops, strict=True)}
    same = {translated(c, renaming, ranges) for c in b.conditions} == set(a.conditions)
    if not same or renaming.get(b.variable) is not a.variable or (first.stores and second.stores and a.fill != b.fill):
        return None
    return (a if first.stores else Skip(a.flag, a.variable, a.conditions, b.fill),)
