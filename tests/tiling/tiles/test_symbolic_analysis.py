"""Tiles of whole fusions: every path has its tile, equal ones are one, and concrete tiles hold what is read."""

from __future__ import annotations

import pytest

import hlo
from hlo.errors import Declined
from indexing import IndexingMap
from indexing.regions import Region
from tests.random_programs import random_program
from tests.tiling.tiles.tile_checks import elements
from tiling import SymbolicTile, TileAnalysis, reached_tiles, tile_analysis
from tiling.tiles.concrete import ConcreteTile

MAXIMUM = "mx { a = f32[] parameter(0) b = f32[] parameter(1) ROOT m = f32[] maximum(a, b) }"
DIAMOND = f"""HloModule m
{MAXIMUM}
f {{ p = f32[2,97] parameter(0) c = f32[] constant(-inf) r = f32[2] reduce(p, c), dimensions={{1}}, to_apply=mx
     b = f32[2,97] broadcast(r), dimensions={{0}} ROOT s = f32[2,97] subtract(p, b) }}
ENTRY e {{ p = f32[2,97] parameter(0) ROOT r = f32[2,97] fusion(p), kind=kLoop, calls=f }}
"""


def tile(found: TileAnalysis, path: list[int], sizes: list[int]) -> ConcreteTile:
    made = found.concrete(found.follow(path), sizes)
    assert not isinstance(made, Declined), made.reason
    return made


ROWS = "(pid_0) -> (pid_0 floordiv 10, (pid_0 mod 10) * 10), domain: pid_0 in [0, 19]"


@pytest.mark.parametrize(
    ("path", "sizes", "offsets"),
    [
        ([], (1, 10), ROWS),
        ([0], (1, 10), ROWS),
        ([1], (1, 10), ROWS),
        ([1, 0], (1,), "(pid_0) -> (pid_0 floordiv 10), domain: pid_0 in [0, 19]"),
        ([1, 0, 0], (1, 97), "(pid_0) -> (pid_0 floordiv 10, 0), domain: pid_0 in [0, 19]"),
    ],
)
def test_diamond(path: list[int], sizes: tuple[int, ...], offsets: str) -> None:
    made = tile(tile_analysis(hlo.parse(DIAMOND)), path, [1, 10])
    assert (made.sizes, str(made.offsets)) == (sizes, offsets)
    assert all(s == 1 for s in made.strides)


def test_paths_with_equal_maps_share_a_tile() -> None:
    text = """HloModule m
    ENTRY e { p = f32[8,6] parameter(0) a = f32[6,8] transpose(p), dimensions={1,0} b = f32[6,8] exponential(a)
      q = f32[8,6] exponential(p) c = f32[6,8] transpose(q), dimensions={1,0} ROOT r = f32[6,8] add(b, c) }"""
    found = tile_analysis(hlo.parse(text))
    assert found.follow([0, 0, 0]) is found.follow([1, 0, 0])
    assert len(found.values) == 6
    other = text.replace("ROOT r = f32[6,8] add(b, c)", "d = f32[6,8] reshape(q) ROOT r = f32[6,8] add(b, d)")
    found = tile_analysis(hlo.parse(other))
    assert found.follow([0, 0, 0]) is not found.follow([1, 0, 0])


def test_offsets_of_a_reversed_read_are_the_least_indices() -> None:
    found = tile_analysis(
        hlo.parse("HloModule m ENTRY e { p = f32[20] parameter(0) ROOT r = f32[20] reverse(p), dimensions={0} }")
    )
    made = tile(found, [0], [5])
    assert [made.offsets.evaluate([k]) for k in range(4)] == [[15], [10], [5], [0]]


def test_constraints_of_all_values_count() -> None:
    text = """HloModule m
    ENTRY e { p = f32[8,6] parameter(0) a = f32[48] reshape(p) q = f32[4,12] parameter(1) b = f32[48] reshape(q)
      ROOT r = f32[48] add(a, b) }"""
    found = tile_analysis(hlo.parse(text))
    assert [t for t in range(1, 49) if found.satisfies([t])] == [1, 2, 3, 6, 12, 24, 36, 48]
    assert not isinstance(found.constraints, Declined)
    d0 = found.root.map.dims[0].var
    assert [t for t in range(1, 49) if found.constraints.holds({d0: t})] == [1, 2, 3, 6, 12, 24, 36, 48]
    refused = found.concrete(found.follow([0, 0]), [4])
    assert isinstance(refused, Declined) and "do not meet" in refused.reason
    exact = found.follow([0, 0]).exact([4], [4])
    assert isinstance(exact, Region) and set(exact) == {(0, 4), (0, 5), (1, 0), (1, 1)}


def test_inner_calls_are_entered() -> None:
    text = """func.func @main(%x: tensor<4x6xf32>) -> tensor<6x4xf32> {
      %0 = call @f(%x) : (tensor<4x6xf32>) -> tensor<6x4xf32>
      %1 = stablehlo.negate %0 : tensor<6x4xf32>
      return %1 : tensor<6x4xf32> }
    func.func private @f(%y: tensor<4x6xf32>) -> tensor<6x4xf32> {
      %0 = stablehlo.transpose %y, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
      return %0 : tensor<6x4xf32> }"""
    found = tile_analysis(hlo.parse(text))
    leaf = found.follow([0, 0])
    assert leaf.value.name == "x"
    assert isinstance(leaf.tile, SymbolicTile) and str(leaf.tile.size_map) == "(d0, d1) -> (d1, d0)"


def test_there_is_no_operand_beyond_the_last() -> None:
    with pytest.raises(IndexError, match="reads no operand 3"):
        tile_analysis(hlo.parse(DIAMOND)).follow([3])


def test_reached_tiles_go_the_other_way() -> None:
    text = "HloModule m ENTRY e { p = f32[4,20] parameter(0) ROOT b = f32[20,4] transpose(p), dimensions={1,0} }"
    ((m, reached),) = reached_tiles(hlo.parse(text).root)
    assert isinstance(m, IndexingMap) and isinstance(reached, SymbolicTile)
    assert str(reached.size_map) == "(d0, d1) -> (d1, d0)"


@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed: int) -> None:
    """Each value's tile against all elements that its map reads on every tile of the root."""
    module, _ = random_program(seed)
    found = tile_analysis(module)
    shape = found.root.value.shape
    sizes = [max(1, n // 2) if n % 2 == 0 else n for n in shape]
    compared = 0
    for t in found.values:
        if t.map.unknown is not None:
            continue
        origin = [n - s for n, s in zip(shape, sizes, strict=True)]
        points = {tuple(p) for p in elements(t.map, sizes, origin, []).tolist()} if not t.map.runtimes else None
        if points is None:
            continue
        exact = t.exact(sizes, origin)
        assert isinstance(exact, Region) and set(exact) == points
        made = found.concrete(t, sizes)
        whole = [v.interval for v in t.map.dims] == [v.interval for v in found.root.map.dims]
        if isinstance(made, ConcreteTile) and points and not t.map.constraints and whole:
            counts = [n // s for n, s in zip(shape, sizes, strict=True)]
            last = 1
            for c in counts:
                last *= c
            offsets = made.offsets.evaluate([last - 1])
            for k, (o, n, s) in enumerate(zip(offsets, made.sizes, made.strides, strict=True)):
                assert sorted({p[k] for p in points}) == [o + j * s for j in range(n)]
            compared += 1
    assert compared or len(found.values) < 3
