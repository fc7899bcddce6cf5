"""Index-set splitting: an innermost loop is cut where a condition on its variable changes, and tested nowhere.

for r in [0, n]: f(x[r] if i - r >= 0 else c)   ->   for r in [0, min(i, n)]: f(x[r])
                                                     for r in [max(i + 1, 0), n]: f(c)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hlo.access import Condition
from indexing.expr import Const, Interval, Var, interval, maximum, minimum, simplify
from tiling.loops.domains.conditions import range_of
from tiling.loops.domains.split_domain import Part, Rewriting, split_domain, where_all_hold
from tiling.loops.element_ir import Choose, Scalar, Test, all_nodes, has_runtimes, runtimes_of
from tiling.loops.ir import Loop, LoopKind, Nest, Segment

__all__ = ["cut_at_masks", "split_innermost"]

MOST_CONDITIONS = 2  # distinct conditions that a loop is cut for; each makes up to three pieces of a piece
MOST_KNOWN_PARTS = 64  # of a loop where all conditions begin and end at known numbers: no more parts than these numbers make
LEAST_KNOWN_ELEMS = 8  # in such a part, on the average
LEAST_LONG = 256  # iterations of a loop of which a part of one or two is not much


def cut_at_masks(nest: Nest, ranges: dict[Var, Interval]) -> Nest:
    """The nest with its innermost loop cut where its flag leaves out what a mask covers."""
    if nest.skip is None or has_runtimes(nest.each):
        return nest
    return _cut(nest, [[c] for c in nest.skip.conditions], ranges)


def split_innermost(nest: Nest, ranges: dict[Var, Interval]) -> Nest:
    """The nest with its innermost loop cut where a mask begins and where a condition on its variable changes."""
    if not nest.loops or any(x.kind is LoopKind.SCAN for x in nest.loops):
        return nest
    inner = nest.loops[-1]
    nodes = list(all_nodes(nest.each))
    read = {r.variable for n in nodes for r in runtimes_of(n)}  # known in an iteration alone
    asked = [c for n in nodes if isinstance(n, (Choose, Test)) for c in n.conditions if read.isdisjoint(c.expression.variables)]
    found = [c for c in dict.fromkeys(asked) if range_of(c, inner.variable) is not None]
    is_long = inner.extent >= LEAST_LONG and len(found) <= MOST_CONDITIONS
    if not found or (read and not is_long and not all(_ends_whole_vectors(c, inner) for c in found)):
        return nest
    found = list(dict.fromkeys((*(nest.skip.conditions if nest.skip is not None else ()), *found)))
    if len(found) <= MOST_CONDITIONS or _makes_few_parts(found, inner):
        return _cut(nest, [[c] for c in found], ranges)
    return nest if nest.skip is not None or not _mostly_hold(found, inner, ranges) else _cut(nest, [found], ranges)


def _ends_whole_vectors(c: Condition, loop: Loop) -> bool:
    """Whether a condition begins and ends to hold at multiples of some elements: what is computed at places known at run time
    alone is not worth parts of one or two elements, as the edges of a row of states are."""
    first, last = range_of(c, loop.variable) or (None, None)
    ends = [e for e in (first, None if last is None else last + 1) if e is not None]
    return all(n % LEAST_KNOWN_ELEMS == 0 for e in ends for n in (e.constant, *(k for _, k in e.terms)))


def _makes_few_parts(conditions: Sequence[Condition], loop: Loop) -> bool:
    """Whether all conditions begin and end at known places, few for so long a loop: operands side by side, say."""
    places: set[int] = set()
    for c in conditions:
        first, last = range_of(c, loop.variable) or (None, None)
        for end in (first, None if last is None else last + 1):
            if end is not None and not isinstance(end, Const):
                return False
            if end is not None:
                places.add(end.value)
    return len(places) <= min(MOST_KNOWN_PARTS, loop.extent // LEAST_KNOWN_ELEMS)


def _mostly_hold(conditions: Sequence[Condition], loop: Loop, ranges: Mapping[Var, Interval]) -> bool:
    """Whether all conditions hold in most of a loop: then a part without any is worth it, where they are too many."""
    (inside,) = where_all_hold([loop], conditions, ranges).loops
    least, whole = (interval(simplify(x.upper - x.lower, ranges), ranges) for x in (inside, loop))
    return 2 * least.lower >= whole.upper


def _cut(nest: Nest, cuts: Sequence[Sequence[Condition]], ranges: dict[Var, Interval]) -> Nest:
    parts = split_domain(nest.loops[-1:], cuts, ranges)
    assert parts is not None, "a condition bounds the innermost loop, which is all that is cut"
    return replace(nest, segments=tuple(x for p in parts for x in _segments(nest, p, ranges)))


def _segments(nest: Nest, part: Part, ranges: dict[Var, Interval]) -> list[Segment]:
    """What a nest does on a part of its innermost loop. Where its flag leaves that out it runs while the flag is 0; while it is 1
    zeros are stored, where they are wanted."""
    on, skip, (loop,) = Rewriting(part, ranges), nest.skip, part.loops
    moved = nest.rewritten(on, nest.loops)
    piece = Segment(loop.lower, loop.upper, moved.stores, moved.folds)
    if skip is None or all(part.truth.get(c, True) for c in skip.conditions):
        return [piece]
    while_one = skip.flag * nest.loops[-1].extent
    parts = [replace(piece, lower=simplify(maximum(piece.lower, while_one), ranges), is_left_out=True)]
    if skip.fill is not None and piece.stores:
        first = simplify(maximum(piece.lower, skip.fill[0]), ranges)
        last = simplify(minimum(piece.upper, skip.fill[1], while_one - 1), ranges)
        if interval(simplify(last - first, ranges), ranges).upper >= 0:
            zeros = [(s, Scalar(s.buffer.element.dtype.type(0), s.buffer.element)) for s in piece.stores]
            parts.append(Segment(first, last, tuple(replace(s, node=zero) for s, zero in zeros), (), True))
    return parts
