"""Tiles of single ops in both directions, in tile numbers and tile sizes, against the elements that the maps enumerate."""

# ruff: noqa: E501  (programs are kept as they are printed)

from __future__ import annotations

import itertools
import random
from math import prod

import pytest

import hlo
import indexing
from hlo.errors import Declined
from hlo.types import TensorType
from indexing import IndexingMap
from tests.indexing.op_examples import EXAMPLES
from tests.tiling.tiles.tile_checks import elements
from tiling import DimensionKind, Tile, operand_tiles, result_tiles, symbolic_tile
from tiling.tiles.reads_of_fusion import Walk

MOST_POINTS = 20_000


def op_of(name: str) -> hlo.Op:
    line, arguments = EXAMPLES[name]
    return hlo.parse(f"func.func @main({arguments}) {{\n  {line}\n  return\n}}").entry.body.ops[0]


def compare(m: IndexingMap, tile: Tile, generator: random.Random) -> int:
    """How many tiles were compared: each dimension's indices with those that the map has there."""
    extents = [d.extent for d in tile.dimensions]
    assert [v.interval.upper < n for v, n in zip(m.dims, extents, strict=True)] == [True] * len(extents)
    every = [list(range(1, n + 1)) for n in extents]
    choices = list(itertools.islice(itertools.product(*every), 400))
    generator.shuffle(choices)
    compared = 0
    numbered = max((d.number for d in tile.dimensions), default=-1) + 1
    for chosen in [tuple([1] * len(extents)), tuple(extents), *choices[:60]]:
        ids, sizes = [0] * numbered, [1] * numbered
        for d, t, n in zip(tile.dimensions, chosen, extents, strict=True):
            sizes[d.number], ids[d.number] = t, generator.randrange(-(-n // t))
        origin = [ids[d.number] * sizes[d.number] for d in tile.dimensions]
        inside = [min(t, n - o) for t, n, o in zip(chosen, extents, origin, strict=True)]
        if prod(inside) * prod(v.interval.size for v in m.ranges) > MOST_POINTS:
            continue
        runtimes = [generator.randint(*v.interval) for v in m.runtimes]
        used = {x for e in m.results for x in e.variables}
        pairs = zip(m.runtimes, runtimes, strict=True)
        given = [x for v, x in pairs if not v.interval.is_point and v.var in used]
        try:
            found = tile.indices(ids, sizes, given)
        except ValueError:
            continue
        points = elements(m, inside, origin, runtimes)
        if not len(points):
            continue
        cut = any(d.number in tile.divided and t != i for d, t, i in zip(tile.dimensions, chosen, inside, strict=True))
        for k, indices in enumerate(found):
            expected = set(points[:, k].tolist())
            assert expected <= set(indices), f"{m}\n{tile}\nresult {k} of tiles {ids} of sizes {chosen}"
            whole = all(v.interval.lower <= o and o + i - 1 <= v.interval.upper for v, o, i in zip(m.dims, origin, inside, strict=True))
            if tile.is_exact and not cut and whole:
                assert expected == set(indices), f"{m}\n{tile}\nresult {k} of tiles {ids} of sizes {chosen}"
        compared += 1
    return compared


OPS = sorted(EXAMPLES)


@pytest.mark.parametrize("name", OPS)
def test_operands_from_results(name: str) -> None:
    op = op_of(name)
    if not op.results or not isinstance(op.results[0].type, TensorType):
        return
    walk = Walk(None, sequential=True, producers=False)
    walk.until = set(op.operands)
    root = walk.start((op.results[0], None), IndexingMap.identity(op.results[0].shape))
    generator = random.Random(name)
    for nodes, tiles in zip(root.operands, operand_tiles(op), strict=True):
        assert len(nodes) == len(tiles)
        for node, tile in zip(nodes, tiles, strict=True):
            if isinstance(tile, Declined):
                assert tile.reason
            elif prod(v.interval.size for v in node.map.dims):
                assert compare(node.map, tile, generator) or node.map.is_known_empty


@pytest.mark.parametrize("name", OPS)
def test_results_from_operands(name: str) -> None:
    op = op_of(name)
    generator = random.Random(name)
    for k, operand in enumerate(op.operands):
        if not isinstance(operand.type, TensorType):
            continue
        for maps, tiles in zip(indexing.input_to_output(op, k), result_tiles(op, k), strict=True):
            kept = [m for m in maps if not m.is_known_empty]
            assert len(kept) == len(tiles)
            for m, tile in zip(kept, tiles, strict=True):
                if isinstance(tile, Declined):
                    assert tile.reason
                else:
                    compare(m, tile, generator)


HLO = {
    "dot with a batch": "p = f32[3,4,6] parameter(0) q = f32[3,6,5] parameter(1) ROOT r = f32[3,4,5] dot(p, q), lhs_batch_dims={0},"
    " rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    "padded convolution with strides": "p = f32[2,9,7,3] parameter(0) q = f32[3,3,5,4] parameter(1) ROOT r = f32[2,5,4,4]"
    " convolution(p, q), window={size=3x5 stride=2x2 pad=1_1x2_2}, dim_labels=b01f_i01o->b01f",
    "window with padding": "p = f32[13,17] parameter(0) z = f32[] parameter(1) ROOT r = f32[7,17] reduce-window(p, z),"
    " window={size=3x3 stride=2x1 pad=1_1x0_2}, to_apply=add",
    "pad between and around": "p = f32[4,5] parameter(0) z = f32[] parameter(1) ROOT r = f32[12,9] pad(p, z), padding=1_1_2x3_1",
    "slice with steps": "p = f32[20,30] parameter(0) ROOT r = f32[5,7] slice(p), slice={[3:18:3], [1:29:4]}",
    "two dimensions into one": "p = f32[4,6,2] parameter(0) ROOT r = f32[24,2] reshape(p)",
    "one dimension into three": "p = f32[48] parameter(0) ROOT r = f32[4,3,4] reshape(p)",
    "update of a part": "p = s32[20,12] parameter(0) u = s32[5,4] parameter(1) a = s32[] parameter(2) b = s32[] parameter(3)"
    " ROOT r = s32[20,12] dynamic-update-slice(p, u, a, b)",
    "rows that values name": "p = f32[9,6] parameter(0) i = s32[7,1] parameter(1) ROOT r = f32[7,6] gather(p, i), offset_dims={1},"
    " collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,6}",
}  # fmt: skip
ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }"


@pytest.mark.parametrize("name", HLO)
def test_larger_ops(name: str) -> None:
    """Every operand has a tile in both directions (the table of rows is read at a value's place, and covered from there)."""
    op = hlo.parse(f"HloModule m\n{ADD}\nENTRY e {{ {HLO[name]} }}").root
    generator = random.Random(1)
    walk = Walk(None, sequential=True, producers=False)
    walk.until = set(op.operands)
    root = walk.start((op.results[0], None), IndexingMap.identity(op.results[0].shape))
    compared = 0
    for nodes, tiles in zip(root.operands, operand_tiles(op), strict=True):
        for node, tile in zip(nodes, tiles, strict=True):
            assert isinstance(tile, Tile), tile
            compared += compare(node.map, tile, generator)
    assert compared > 10
    for k in range(len(op.operands)):
        ((maps,), (tiles,)) = indexing.input_to_output(op, k), result_tiles(op, k)
        for m, tile in zip([m for m in maps if not m.is_known_empty], tiles, strict=True):
            assert isinstance(tile, Tile), tile
            compare(m, tile, generator)


def test_sequential_dimensions_have_tiles_of_their_own() -> None:
    text = "p = f32[6,40] parameter(0) z = f32[] parameter(1) ROOT r = f32[6] reduce(p, z), dimensions={1}, to_apply=add"
    op = hlo.parse(f"HloModule m\n{ADD}\nENTRY e {{ {text} }}").root
    ((tile,), _) = operand_tiles(op)
    assert isinstance(tile, Tile)
    assert [d.kind for d in tile.dimensions] == [DimensionKind.PARALLEL, DimensionKind.SEQUENTIAL]
    assert str(tile.dimensions[1]) == "tid_1: sequential, 40 = summed or folded index 0 of %r"
    assert tile.indices([2, 2], [2, 16]) == (range(4, 6), range(32, 40))
    covered: set[tuple[int, int]] = set()
    for ids in itertools.product(range(3), range(3)):
        rows, columns = tile.indices(ids, [2, 16])
        mine = set(itertools.product(rows, columns))
        assert not covered & mine
        covered |= mine
    assert covered == set(itertools.product(range(6), range(40)))


def test_conditions_that_tie_dimensions_are_covered_or_declined() -> None:
    """Which rows of a filter meet a padded image depends on where: the tile holds all of them."""
    op = hlo.parse(f"HloModule m\nENTRY e {{ {HLO['padded convolution with strides']} }}").root
    (_, (tile,)) = operand_tiles(op)
    assert isinstance(tile, Tile) and not tile.is_exact
    assert str(tile).endswith("covers what is read")
    m = next(iter(indexing.output_to_input(op)[1]))
    strict = symbolic_tile(m)
    assert isinstance(strict, Declined) and "is no bound of a result" in strict.reason


def test_wrong_numbers_are_refused() -> None:
    op = op_of("transpose")
    with pytest.raises(IndexError, match="none with number 1"):
        operand_tiles(op, 1)
    with pytest.raises(IndexError, match="none with number 3"):
        result_tiles(op, 3)


def test_sizes_that_break_a_constraint_have_no_indices() -> None:
    op = hlo.parse("HloModule m\nENTRY e { p = f32[8,6] parameter(0) ROOT r = f32[48] reshape(p) }").root
    (((tile,),)) = operand_tiles(op)
    assert isinstance(tile, Tile)
    assert str(tile.constraints) == "6 mod ts_0 in [0, 0] || ts_0 mod 6 in [0, 0]"
    assert tile.indices([1], [12]) == (range(2, 4), range(6))
    with pytest.raises(ValueError, match="do not meet"):
        tile.indices([1], [4])


def test_dimensions_that_are_divided_keep_their_size_at_an_edge() -> None:
    """50 elements in rows of 6, 12 at a time: the last tile has two elements, its rows' positions are covered."""
    m = indexing.parse_map("(d0) -> (d0 floordiv 6, d0 mod 6), domain: d0 in [0, 49]")
    made = symbolic_tile(m)
    assert not isinstance(made, Declined) and made.divided == {m.dims[0].var}
    with pytest.raises(ValueError, match="is not inside"):
        made.indices([12], [48])
