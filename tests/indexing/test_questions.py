"""Use of operands, memory traffic, injectivity, overlap, reuse: against enumeration of all points."""

from __future__ import annotations

from itertools import product

import pytest

import hlo
from hlo import TensorType, element_type
from hlo.types import Layout
from indexing import IndexingMap, Interval, Var, input_to_output, output_to_input, parse_map
from indexing.exact.images import image
from indexing.layout import bitcast_map, from_position, to_position
from indexing.questions import (
    coalescing,
    footprint_bytes,
    is_injective,
    operand_utilization,
    overlap,
    point_count,
    reuse_distance,
    touched,
)
from indexing.regions import Region
from tests.indexing.index_helpers import op_of

F32 = element_type("f32")

MAPS = [
    "(d0, d1)[s0] -> (d0, s0), domain: d0 in [0, 3], d1 in [0, 2], s0 in [0, 4]",
    "(d0, d1) -> (d1, d0), domain: d0 in [0, 3], d1 in [0, 4]",
    "(d0)[s0] -> (d0 + s0, 1), domain: d0 in [0, 5], s0 in [0, 2]",
    "(d0)[s0] -> (d0 * 2 + s0 - 1, s0), domain: d0 in [0, 3], s0 in [0, 2], d0 * 2 + s0 in [1, 7]",
    "(d0, d1) -> (d0 * 2 + d1 floordiv 2, d1 mod 2), domain: d0 in [0, 2], d1 in [0, 3]",
    "(d0, d1) -> (d0 floordiv 2, 0), domain: d0 in [0, 7], d1 in [0, 1]",
    "(d0, d1) -> (d0, d1), domain: d0 in [0, 7], d1 in [0, 4], d0 + d1 in [3, 8]",
]


def points(m: IndexingMap) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All (point, result) pairs in lexicographic order of (dims, ranges)."""
    sides = [range(b.lower, b.upper + 1) for b in m.variable_ranges.values()]
    n = len(m.dims)
    return [(p, tuple(m.evaluate(p[:n], p[n:]))) for p in product(*sides) if m.holds(p[:n], p[n:])]


@pytest.mark.parametrize("text", MAPS)
def test_against_enumeration(text: str) -> None:
    m = parse_map(text)
    listed = points(m)
    assert point_count(m) == len(listed)
    assert is_injective(m) == all(a[: len(m.dims)] == b[: len(m.dims)] for a, x in listed for b, y in listed if x == y)
    t = TensorType((8, 5), F32)
    elements = {x for _, x in listed}
    assert footprint_bytes([m], t) == 4 * len(elements)
    found = coalescing(m, t, line_bytes=16)
    addresses = sorted({x[0] * 5 + x[1] for x in elements})
    assert found.useful_bytes == 4 * len(addresses)
    assert found.runs == sum(1 for i, a in enumerate(addresses) if i == 0 or addresses[i - 1] != a - 1)
    assert found.lines == len({a * 4 // 16 for a in addresses})
    assert found.fetched_bytes == found.lines * 16
    _check_reuse(m, listed)


def _check_reuse(m: IndexingMap, listed: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
    best = None
    for i, (p, x) in enumerate(listed):
        for q, y in listed[i + 1 :]:
            if x == y:
                vector = tuple(b - a for a, b in zip(p, q, strict=True))
                best = vector if best is None else min(best, vector)
    found = reuse_distance(m)
    if best is None:
        assert found is None
        return
    assert found.vector == best
    start = next(
        p for p, x in listed if any(y == x and q == tuple(a + b for a, b in zip(p, best, strict=True)) for q, y in listed)
    )
    stop = tuple(a + b for a, b in zip(start, best, strict=True))
    assert found.elements == len({x for p, x in listed if start <= p < stop})


def test_loop_order_decides_reuse_and_stride() -> None:
    m = parse_map("(d0, d1)[s0] -> (s0, d1), domain: d0 in [0, 63], d1 in [0, 31], s0 in [0, 15]")
    d0, d1, s0 = Var("d0"), Var("d1"), Var("s0")
    assert reuse_distance(m, [d0, s0, d1]).elements == 16 * 32
    assert reuse_distance(m, [s0, d1, d0]).iterations == 1
    t = TensorType((16, 32), F32)
    assert coalescing(m, t, order=[d0, s0, d1]).stride_bytes == 4
    assert coalescing(m, t, order=[d0, d1, s0]).stride_bytes == 128
    with pytest.raises(ValueError, match="expected an order of d0, d1, s0"):
        reuse_distance(m, [d0, d1])


def test_coalescing_of_a_tile_through_a_transpose() -> None:
    m = parse_map("(d0, d1) -> (d1, d0), domain: d0 in [0, 63], d1 in [0, 63]")
    row = Region.box([0, Interval(0, 63)])
    found = coalescing(m, TensorType((64, 64), F32), row)
    assert (found.stride_bytes, found.runs, found.lines) == (256, 64, 64)
    assert found.efficiency == pytest.approx(4 / 64)
    column_major = TensorType((64, 64), F32, layout=Layout((0, 1)))
    found = coalescing(m, column_major, row)
    assert (found.stride_bytes, found.runs, found.lines, found.efficiency) == (4, 1, 4, 1.0)


def test_utilization() -> None:
    op = op_of("%r = stablehlo.slice %a [0:8:2, 1:4] : (tensor<10x4xf32>) -> tensor<4x3xf32>", "%a: tensor<10x4xf32>")
    use = operand_utilization(op, 0)
    assert (use.elements_read, use.elements_total, use.reads, use.is_exact) == (12, 40, 12, True)
    assert use.fraction == pytest.approx(0.3)
    tile = operand_utilization(op, 0, tile=Region.box([Interval(0, 1), 2]))
    assert str(tile.elements) == "{([0, 2] step 2, 3)}"
    dot = op_of(
        "%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>",
        "%a: tensor<4x8xf32>, %b: tensor<8x5xf32>",
    )
    use = operand_utilization(dot, 0)
    assert (use.elements_read, use.reads, use.reads_per_element) == (32, 160, 5.0)


def test_maps_into_two_tensors_are_refused_in_words() -> None:
    """A `zip()` said it."""
    line, grid = parse_map("(d0) -> (d0), domain: d0 in [0, 9]"), parse_map("(d0) -> (d0, 0), domain: d0 in [0, 9]")
    for ask in (lambda: overlap(line, grid), lambda: touched([line, grid])):
        with pytest.raises(ValueError, match="expected maps into one tensor, found 1 and 2 results"):
            ask()
    with pytest.raises(ValueError, match="expected a region of the map's 1 dimensions, found one of 2"):
        touched([line], image(grid))
    with pytest.raises(ValueError, match="expected regions of one tensor, found 1 and 2 dimensions"):
        _ = image(line) <= image(grid)


def test_overlap_of_two_slices() -> None:
    a = parse_map("(d0) -> (d0 * 2), domain: d0 in [0, 9]")
    b = parse_map("(d0) -> (d0 * 3 + 1), domain: d0 in [0, 5]")
    assert set(overlap(a, b)) == {(4,), (10,), (16,)}


def test_positions_and_bitcasts() -> None:
    t = TensorType((3, 4, 5), F32, layout=Layout((1, 2, 0)))
    there, back = to_position(t), from_position(t)
    for p in product(range(3), range(4), range(5)):
        (at,) = there.evaluate(p)
        assert at == p[0] * 20 + p[2] * 4 + p[1]
        assert back.evaluate([at]) == list(p)
    flat = TensorType((60,), F32)
    assert bitcast_map(t, flat) == back
    # A bitcast that is a transpose in disguise.
    turned = bitcast_map(TensorType((4, 6), F32), TensorType((6, 4), F32, layout=Layout((0, 1))))
    assert str(turned) == "(d0, d1) -> (d1, d0), domain: d0 in [0, 5], d1 in [0, 3]"
    with pytest.raises(ValueError, match="as many elements"):
        bitcast_map(t, TensorType((7,), F32))


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("f32[4, 32]", "f32[4, 8, 4]", "(d0, d1, d2) -> (d0, d1 * 4 + d2), domain: d0 in [0, 3], d1 in [0, 7], d2 in [0, 3]"),
        ("f32[3, 128, 6, 12]", "f32[3, 6, 12, 128]{2,1,3,0}", "(d0, d1, d2, d3) -> (d0, d3, d1, d2), domain:"
         " d0 in [0, 2], d1 in [0, 5], d2 in [0, 11], d3 in [0, 127]"),
        ("f32[16, 17, 3]", "f32[51, 16]{0,1}", "(d0, d1) -> (d1, d0 floordiv 3, d0 mod 3), domain: d0 in [0, 50], d1 in [0, 15]"),
    ],
)  # fmt: skip
def test_bitcasts_of_hlo(source: str, target: str, text: str) -> None:
    op = hlo.parse(f"HloModule m\nENTRY e {{ p0 = {source} parameter(0)\n ROOT b = {target} bitcast(p0) }}").root
    found = output_to_input(op)[0].only
    assert str(found) == text
    assert bitcast_map(op.operands[0].tensor, op.result.tensor) == found
    assert found.inverse(op.operands[0].shape) == input_to_output(op)[0].only
