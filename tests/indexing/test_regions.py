"""Regions, images and preimages against isl and against enumeration."""

from __future__ import annotations

import random

import pytest

from indexing import Interval, parse_map
from indexing.exact.images import image, preimage
from indexing.exact.isl import full_relation
from indexing.regions import Region
from indexing.spans import Span

MAPS = [
    "(d0, d1) -> (d0 * 8 + d1), domain: d0 in [0, 3], d1 in [0, 7]",
    "(d0)[s0] -> (d0 * 2 + s0 - 1), domain: d0 in [0, 3], s0 in [0, 2], d0 * 2 + s0 in [1, 7]",
    "(d0) -> (d0 floordiv 8, d0 mod 8), domain: d0 in [0, 28]",
    "(d0, d1, d2) -> ((d0 * 3 + d1) floordiv 7, ((d0 * 30 + d1 * 10 + d2) floordiv 14) mod 5),"
    " domain: d0 in [0, 6], d1 in [0, 2], d2 in [0, 9]",
    "(d0) -> (d0 floordiv 12, (d0 floordiv 4) mod 3, d0 mod 4), domain: d0 in [0, 35]",
    "(d0, d1) -> (d0 + d1, d0), domain: d0 in [0, 4], d1 in [0, 5]",
    "(d0, d1) -> ((d0 - 1) floordiv 2, d1 - 4), domain: d0 in [1, 7], d1 in [4, 11], (d0 - 1) mod 2 in [0, 0]",
    "(d0, d1)[s0] -> (d0 * 6 + s0 * 2), domain: d0 in [0, 4], d1 in [0, 5], s0 in [0, 3]",
    "(d0, d1) -> (d0, d0), domain: d0 in [0, 4], d1 in [0, 5]",
    "(d0){rt0} -> (d0 + rt0), domain: d0 in [0, 4], rt0 in [0, 5]",
]


def random_region(r: random.Random, sizes: list[int]) -> Region:
    region = Region.empty(len(sizes))
    for _ in range(r.randint(1, 2)):
        sides = []
        for n in sizes:
            a, b = sorted((r.randrange(n), r.randrange(n)))
            sides.append(Span.of(a, b, r.choice([1, 1, 1, 2, 3])))
        region = region | Region.box(sides)
    return region


@pytest.mark.parametrize("text", MAPS)
def test_images_and_preimages_are_exact(text: str) -> None:
    m, r = parse_map(text), random.Random(7)
    for _ in range(12):
        region = random_region(r, [v.interval.upper + 1 for v in m.dims])
        found = image(m, region)
        want = full_relation(m).intersect_domain(region.to_isl()).range()
        assert found.to_isl().is_equal(want), f"{found} is not {want}"
        assert found.count == len(set(found)) == len(list(found))
        back = preimage(m, found)
        assert back.to_isl().is_equal(full_relation(m).intersect_range(found.to_isl()).domain())


def test_set_operations_agree_with_enumeration() -> None:
    r = random.Random(3)
    for _ in range(60):
        a, b = random_region(r, [6, 7]), random_region(r, [6, 7])
        x, y = set(a), set(b)
        assert set(a | b) == x | y
        assert set(a & b) == x & y
        assert set(a - b) == x - y
        assert (a <= b) == (x <= y)
        assert (a == b) == (x == y)
        assert all(p in a for p in x)
        assert (a | b).count == len(x | y)


def test_spans_intersect_as_sets() -> None:
    r = random.Random(5)
    for _ in range(400):
        a, b = (Span.of(lo, lo + r.randint(0, 20), r.randint(1, 6)) for lo in (r.randint(-5, 5), r.randint(-5, 5)))
        members = set(range(a.lower, a.upper + 1, a.step)) & set(range(b.lower, b.upper + 1, b.step))
        c = a.intersect(b)
        assert set(range(c.lower, c.upper + 1, c.step)) == members


def test_region_of_an_isl_set_finds_the_box() -> None:
    box = Region.box([Span.of(1, 9, 4), Interval(2, 5)])
    again = Region.of_isl(box.to_isl())
    assert again.boxes == box.boxes
    assert hash(again) == hash(box)
    with pytest.raises(ValueError, match="no hull"):
        _ = Region.empty(2).hull
