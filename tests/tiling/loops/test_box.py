"""Boxes against enumeration: every element that a task reads lies in its box, and a tight box has no other."""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable

import pytest

from indexing.expr import Const, Expr, Interval, Var, evaluate
from indexing.map import IndexingMap
from tiling.loops.domains.box import Box, Span, covers, hull, image


def spans(box: Box, tiles: dict[Var, int]) -> list[tuple[int, int]]:
    """[first, last] of each span for given tile numbers."""
    found = []
    for s in box:
        first = int(evaluate(s.lower, tiles)) if s.lower.variables else s.lower.constant
        found.append((first, min(first + s.size, s.extent) - 1))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_image_holds_every_read(seed: int) -> None:
    r = random.Random(seed)
    t, d, s = Var("t0"), Var("d0"), Var("s0")
    tile, count, width = r.randint(1, 6), r.randint(1, 4), r.randint(1, 5)
    extent = tile * count
    choices: list[tuple[Expr, int]] = [
        (d, extent),
        (extent - 1 - d, extent),
        (d * 2 + s, 2 * extent + width),
        (s, width),
        (d + s, extent + width),
        (d * width + s, extent * width),
        ((d * width + s) // width, extent),
        ((d + s) // 2, extent + width),
        (d % 3, 3),
        (d // 3, extent),
        (Const(0), 1),
    ]
    index = [r.choice(choices) for _ in range(2)]
    m = IndexingMap.over([extent], [e for e, _ in index], ranges=[width])
    over = (Span(t * tile, tile, extent), Span(Const(0), width, width))
    box = image(m, [n for _, n in index], over, {t: Interval(0, count - 1)})
    for tt in range(count):
        bounds = spans(box, {t: tt})
        for ii, jj in itertools.product(range(tile), range(width)):
            for (e, n), (low, high) in zip(index, bounds, strict=True):
                value = int(evaluate(e, {d: tt * tile + ii, s: jj}))
                assert low <= value <= high or not 0 <= value < n


def test_unit_strides_are_exact() -> None:
    t, d, s = Var("t0"), Var("d0"), Var("s0")
    m = IndexingMap.over([32], [d + s], ranges=[3])
    (span,) = image(m, [34], (Span(t * 4, 4, 32), Span(Const(0), 3, 3)), {t: Interval(0, 7)})
    assert span == Span(t * 4, 6, 34)


def test_hull_of_shifted_spans_grows_by_the_shift() -> None:
    t = Var("t0")
    ranges = {t: Interval(0, 7)}
    a, b = (Span(t * 4, 4, 100),), (Span(t * 4 + 3, 4, 100),)
    assert hull(a, b, ranges) == (Span(t * 4, 7, 100),)
    assert hull(b, a, ranges) == (Span(t * 4, 7, 100),)


def test_hull_of_spans_that_move_apart_is_everything() -> None:
    t = Var("t0")
    (span,) = hull((Span(t * 4, 4, 32),), (Span(28 - t * 4, 4, 32),), {t: Interval(0, 7)})
    assert (span.lower, span.size) == (Const(0), 32)


def test_covers() -> None:
    t, u = Var("t0"), Var("t1")
    assert covers((Span(t * 4, 4, 16),), (16,), [(t, 4)])
    assert not covers((Span(t * 4, 6, 16),), (16,), [(t, 4)])
    assert not covers((Span(t * 4, 4, 16),), (16,), [(t, 4), (u, 2)])
    assert covers((Span(t * 4, 4, 16), Span(Const(0), 8, 8)), (16, 8), [(t, 4)])
    assert not covers((Span(t * 4, 4, 16), Span(t * 2, 2, 8)), (16, 8), [(t, 4)])


def test_what_is_known_of_one_box_is_not_taken_for_another() -> None:
    """Covers are shared between maps: of the same spans, whose tile numbers have the same ranges."""
    d, t = Var("d0"), Var("t0")
    m = IndexingMap.over([32], [d // 2 + 1])
    known: dict[Hashable, Span] = {}
    for size, count in ((4, 8), (8, 4), (3, 11), (4, 5), (32, 1)):
        box = (Span(t * size if count > 1 else Const(0), size, 32),)
        ranges = {t: Interval(0, count - 1)}
        assert image(m, [17], box, ranges, known) == image(m, [17], box, ranges), (d, size, count)
    assert len(known) == 5
