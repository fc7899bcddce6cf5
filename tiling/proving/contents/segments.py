"""Segments of an innermost loop: do they, taken together, do what the nest's stores and folds say?

    segments    each iteration that the nest has belongs to one segment; there the segment's expressions are the nest's own, with
                the choices made that its domain settles; where only zeros are stored, the nest leaves them out
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import islpy

from indexing.expr import Interval
from tiling.loops.domains.iterations import Domain
from tiling.loops.element_ir import Node, Scalar
from tiling.loops.ir import FoldStep, Nest, Schedule, Segment, Skip
from tiling.proving.contents.same_expression import NOWHERE, Comparison
from tiling.proving.nests import Located, nests_of
from tiling.proving.relations import Questions, Undecided, named, points_of

__all__ = ["segment_questions"]

Question = tuple[str, str, Callable[[], str | None]]


def segment_questions(schedule: Schedule, ask: Questions) -> Iterator[Question]:
    """(obligation, subject, question) for each nest whose innermost loop consists of segments."""
    for located in nests_of(schedule):
        if located.nest.segments:
            yield "segments", located.label, partial(ask.ask, partial(_fault, schedule, located))


def _fault(schedule: Schedule, located: Located) -> str | None:
    nest = located.nest
    if not nest.loops:
        return "a nest without loops has segments"
    inner, skip = nest.loops[-1], _skip_in_force(schedule, nest)
    every = points_of(located.domain(nest.loops, ()))
    needed = points_of(located.domain(nest.loops, skip.conditions if skip is not None else ()))
    done = zeros = islpy.Set.empty(every.get_space())
    names = [v.name for v, _ in located.domain(nest.loops, ()).variables]
    for k, x in enumerate(nest.segments):
        d = located.domain((*nest.loops[:-1], replace(inner, lower=x.lower, upper=x.upper)), ())
        points = points_of(d)
        if points.is_empty():
            continue
        if not points.is_subset(every):
            return f"segment {k} leaves the loop: {named(points.subtract(every), names)}"
        if not points.intersect(done.union(zeros)).is_empty():
            return f"segment {k} does what an earlier one did: {named(points.intersect(done.union(zeros)), names)}"
        if _stores_zeros(nest, x):
            zeros = zeros.union(points)
        elif not _is_the_same(schedule, nest, x, d):
            return f"segment {k} computes something else than its nest"
        else:
            done = done.union(points)
    if not needed.is_subset(done):
        return f"no segment has an iteration: {named(needed.subtract(done), names)}"
    filled = _filled(located, skip, every) if skip is not None else islpy.Set.empty(every.get_space())
    if not zeros.is_subset(filled):
        return f"zeros are stored where something is computed: {named(zeros.subtract(filled), names)}"
    if not filled.is_subset(zeros.union(done)):
        return f"no zeros are stored: {named(filled.subtract(zeros.union(done)), names)}"
    return None


def _skip_in_force(schedule: Schedule, nest: Nest) -> Skip | None:
    """What a nest leaves out at the flags' values, which are points of their ranges."""
    if nest.skip is None:
        return None
    span = schedule.ranges.get(nest.skip.flag, Interval(0, 1))
    if span.size > 1:
        raise Undecided(f"the value of {nest.skip.flag} is not known")
    return nest.skip if span.lower == 1 else None


def _filled(located: Located, skip: Skip, every: islpy.Set) -> islpy.Set:
    """Where zeros are stored in place of what is left out."""
    if skip.fill is None:
        return islpy.Set.empty(every.get_space())
    loops = skip.filled(located.nest.loops)
    return points_of(located.domain(loops, ())).subtract(points_of(located.domain(loops, skip.conditions)))


def _stores_zeros(nest: Nest, x: Segment) -> bool:
    if nest.skip is None or not nest.stores or x.folds or len(x.stores) != len(nest.stores):
        return False
    pairs = list(zip(x.stores, nest.stores, strict=True))
    same = all(a.buffer is b.buffer and a.value is b.value and a.index == b.index for a, b in pairs)
    return same and all(isinstance(a.node, Scalar) and not any(a.node.value.tobytes()) for a, _ in pairs)


def _is_the_same(schedule: Schedule, nest: Nest, x: Segment, d: Domain) -> bool:
    """Whether a segment's statements are the nest's, on the segment's iterations."""
    symbols = Comparison({**schedule.ranges, **d.ranges}, NOWHERE, within=d)

    def alike(a: Node, b: Node) -> bool:
        return a is b or symbols.same(a, b)

    if (len(x.stores), len(x.folds)) != (len(nest.stores), len(nest.folds)):
        return False
    for s, t in zip(x.stores, nest.stores, strict=True):
        same = s.buffer is t.buffer and s.value is t.value and len(s.index) == len(t.index)
        if not same or not all(map(symbols.equal, s.index, t.index)) or not alike(s.node, t.node):
            return False
    for f, g in zip(x.folds, nest.folds, strict=True):
        same = _frame(f) == _frame(g) and len(f.index) == len(g.index) and len(f.nodes) == len(g.nodes)
        if not same or not all(map(symbols.equal, f.index, g.index)):
            return False
        if not all(map(alike, (*f.nodes, *f.inits), (*g.nodes, *g.inits))):
            return False
    return True


def _frame(f: FoldStep) -> tuple[object, ...]:
    """What of a fold no cut changes."""
    return f.values, f.buffers, f.op, f.carried, f.products, f.looks_twice, len(f.inits)
