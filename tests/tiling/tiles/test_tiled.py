"""Tiled fusions as `tiling.tiled` and `tile_analysis` give them: concrete tiles by path, several roots, nested calls."""

# ruff: noqa: E501  (programs are kept as they are printed)

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hlo
import interp
from hlo.errors import Declined
from tests.tiling.tiles.tile_checks import elements
from tiling import ConcreteTile, DimensionKind, Tile, tile_analysis, tiled

REGIONS = """max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT m = f32[] maximum(a, b) }
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }"""


def fused(body: str, result: str, *arguments: str) -> hlo.Module:
    parameters = " ".join(f"a{k} = {t} parameter({k})" for k, t in enumerate(arguments))
    names = ", ".join(f"a{k}" for k in range(len(arguments)))
    return hlo.parse(
        f"HloModule m\n{REGIONS}\nf {{ {body} }}\n"
        f"ENTRY e {{ {parameters} ROOT r = {result} fusion({names}), kind=kLoop, calls=f }}"
    )


def shown(module: hlo.Module, sizes: list[int], path: list[int]) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    tile = tiled(module, sizes, path)
    assert isinstance(tile, ConcreteTile), tile
    return tile.sizes, tile.strides, str(tile.offsets)


SLICES = fused(
    "p = f32[8,16] parameter(0) s = f32[4,8] slice(p), slice={[0:4], [2:10]} t = f32[4,8] slice(p), slice={[3:7], [4:12]}"
    " ROOT r = f32[4,8] add(s, t)", "f32[4,8]", "f32[8,16]")  # fmt: skip
TURN = fused("p = f32[6,12,4] parameter(0) ROOT t = f32[4,6,12] transpose(p), dimensions={2,0,1}", "f32[4,6,12]", "f32[6,12,4]")
PART = fused(
    "p = s32[3,2,200] parameter(0) i = s32[] parameter(1) j = s32[] parameter(2) k = s32[] parameter(3)"
    " ROOT d = s32[1,2,64] dynamic-slice(p, i, j, k), dynamic_slice_sizes={1,2,64}",
    "s32[1,2,64]", "s32[3,2,200]", "s32[]", "s32[]", "s32[]")  # fmt: skip
ROWS = fused(
    "t = f32[50,16] parameter(0) i = s32[40,1] parameter(1) ROOT g = f32[40,16] gather(t, i), offset_dims={1},"
    " collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,16}",
    "f32[40,16]", "f32[50,16]", "s32[40,1]")  # fmt: skip
SPLIT = fused(
    "p = f32[40] parameter(0) b = f32[8,5] bitcast(p) z = f32[] constant(0) r = f32[8] reduce(b, z), dimensions={1}, to_apply=add"
    " ROOT s = f32[] reduce(r, z), dimensions={0}, to_apply=add", "f32[]", "f32[40]")  # fmt: skip
MERGE = fused("p = f32[1,8,6,4,8] parameter(0) ROOT b = f32[48,32] bitcast(p)", "f32[48,32]", "f32[1,8,6,4,8]")
ENDS = fused("p = f32[10] parameter(0) q = f32[20] parameter(1) ROOT c = f32[30] concatenate(p, q), dimensions={0}",
             "f32[30]", "f32[10]", "f32[20]")  # fmt: skip
FRAME = fused("p = f32[4,6] parameter(0) z = f32[] parameter(1) ROOT c = f32[12,8] pad(p, z), padding=1_7x2_0",
              "f32[12,8]", "f32[4,6]", "f32[]")  # fmt: skip
HUGE = fused("p = f16[65538,32768] parameter(0) ROOT n = f16[65538,32768] negate(p)", "f16[65538,32768]", "f16[65538,32768]")

P8 = "pid_0 in [0, 7]"
SHOWN = [
    ("slice, left", SLICES, [2, 2], [0, 0], (2, 2), (1, 1), "(pid_0) -> ((pid_0 floordiv 4) * 2, (pid_0 mod 4) * 2 + 2), domain: " + P8),
    ("slice, right", SLICES, [2, 2], [1, 0], (2, 2), (1, 1),
     "(pid_0) -> ((pid_0 floordiv 4) * 2 + 3, (pid_0 mod 4) * 2 + 4), domain: " + P8),
    ("transpose", TURN, [2, 3, 4], [0], (3, 4, 2), (1, 1, 1),
     "(pid_0) -> (((pid_0 floordiv 3) mod 2) * 3, (pid_0 mod 3) * 4, (pid_0 floordiv 6) * 2), domain: pid_0 in [0, 11]"),
    ("a part at places that values name", PART, [1, 1, 64], [0], (1, 1, 64), (1, 1, 1),
     "(pid_0){rt0, rt1} -> (rt0, pid_0, rt1), domain: pid_0 in [0, 1], rt0 in [0, 2], rt1 in [0, 136]"),
    ("and the place", PART, [1, 1, 64], [1], (), (), "(pid_0) -> (), domain: pid_0 in [0, 1]"),
    ("a row that a value names", ROWS, [1, 16], [0], (1, 16), (0, 1), "(pid_0){rt0} -> (rt0, 0), domain: pid_0 in [0, 39], rt0 in [0, 49]"),
    ("and the value", ROWS, [8, 16], [1], (8, 1), (1, 0), "(pid_0) -> (pid_0 * 8, 0), domain: pid_0 in [0, 4]"),
    ("a reduction in two steps", SPLIT, [], [0, 0, 0], (40,), (1,), "(pid_0) -> (0), domain: pid_0 in [0, 0]"),
    ("dimensions merged", MERGE, [12, 16], [0], (1, 2, 6, 2, 8), (0, 1, 1, 1, 1),
     "(pid_0) -> (0, (pid_0 floordiv 2) * 2, 0, (pid_0 mod 2) * 2, 0), domain: " + P8),
    ("the second of two ends", ENDS, [10], [1], (10,), (1,), "(pid_0) -> (pid_0 * 10 - 10), domain: pid_0 in [0, 2]"),
    ("inside a frame", FRAME, [4, 4], [0], (4, 4), (1, 1),
     "(pid_0) -> ((pid_0 floordiv 2) * 4 - 1, (pid_0 mod 2) * 4 - 2), domain: pid_0 in [0, 5]"),
    ("more tiles than 32 bits count", HUGE, [1, 1], [0], (1, 1), (1, 1),
     "(pid_0) -> (pid_0 floordiv 32768, pid_0 mod 32768), domain: pid_0 in [0, 2147549183]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "sizes", "path", "tile", "strides", "offsets"), [s[1:] for s in SHOWN], ids=[s[0] for s in SHOWN]
)
def test_by_path(
    module: hlo.Module, sizes: list[int], path: list[int], tile: tuple[int, ...], strides: tuple[int, ...], offsets: str
) -> None:
    assert shown(module, sizes, path) == (tile, strides, offsets)


DOT = fused("p = f32[4,8] parameter(0) q = f32[8,16] parameter(1) ROOT d = f32[4,16] dot(p, q), lhs_contracting_dims={1},"
            " rhs_contracting_dims={0}", "f32[4,16]", "f32[4,8]", "f32[8,16]")  # fmt: skip


def test_sizes_for_contractions_stand_first() -> None:
    assert shown(DOT, [2, 2], [0]) == ((2, 8), (1, 1), "(pid_0) -> ((pid_0 floordiv 8) * 2, 0), domain: pid_0 in [0, 15]")
    assert shown(DOT, [8, 2, 2], [0]) == shown(DOT, [2, 2], [0])
    offsets = "(pid_0)[s0] -> ((pid_0 floordiv 8) * 2, s0 * 3), domain: pid_0 in [0, 15], s0 in [0, 2]"
    assert shown(DOT, [3, 2, 2], [0]) == ((2, 3), (1, 1), offsets)
    with pytest.raises(ValueError, match="expected 2 to 3 tile sizes, found 4"):
        tiled(DOT, [1, 1, 1, 1])
    with pytest.raises(ValueError, match="expected 2 tile sizes, found 1"):
        tiled(DOT, [1])


def test_tiles_may_be_padded_beyond_their_dimension() -> None:
    assert shown(DOT, [8, 32], [0]) == ((8, 8), (1, 1), "(pid_0) -> (0, 0), domain: pid_0 in [0, 0]")
    assert shown(DOT, [1, 32], []) == ((1, 32), (1, 1), "(pid_0) -> (pid_0, 0), domain: pid_0 in [0, 3]")
    refused = tiled(DOT, [0, 2])
    assert isinstance(refused, Declined) and "not all positive" in refused.reason


def test_sizes_that_break_a_constraint_are_declined() -> None:
    refused = tiled(MERGE, [4, 8], [0])
    assert isinstance(refused, Declined) and "do not meet 6 mod d0 in [0, 0]" in refused.reason
    assert isinstance(tiled(MERGE, [4, 8], []), ConcreteTile)


def test_a_producer_in_a_fusion_of_its_own_is_followed() -> None:
    module = hlo.parse(f"""HloModule m
    {REGIONS}
    f {{ p = f32[2,97] parameter(0) c = f32[] constant(-inf) ROOT r = f32[2] reduce(p, c), dimensions={{1}}, to_apply=max }}
    g {{ p = f32[2,97] parameter(0) q = f32[2] parameter(1) b = f32[2,97] broadcast(q), dimensions={{0}} ROOT s = f32[2,97] subtract(p, b) }}
    ENTRY e {{ p = f32[2,97] parameter(0) m = f32[2] fusion(p), kind=kInput, calls=f
               ROOT r = f32[2,97] fusion(p, m), kind=kLoop, calls=g }}""")
    assert shown(module, [1, 97], [1, 0, 0]) == ((1, 97), (1, 1), "(pid_0) -> (pid_0, 0), domain: pid_0 in [0, 1]")
    alone = tile_analysis(module)
    assert alone.follow([1, 0]).value.name == "q" and not alone.follow([1, 0]).operands


def test_fusions_inside_fusions() -> None:
    module = hlo.parse("""HloModule m
    left { p = f32[16,8] parameter(0) ROOT n = f32[16,8] negate(p) }
    right { p = f32[32,8] parameter(0) ROOT t = f32[8,32] transpose(p), dimensions={1,0} }
    inner { p = f32[16,8] parameter(0) q = f32[32,8] parameter(1) l = f32[16,8] fusion(p), kind=kCustom, calls=left
            r = f32[8,32] fusion(q), kind=kCustom, calls=right
            ROOT d = f32[16,32] dot(l, r), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
    outer { p = f32[16,8] parameter(0) q = f32[32,8] parameter(1) e = f32[32,8] exponential(q)
            ROOT i = f32[16,32] fusion(p, e), kind=kCustom, calls=inner }
    ENTRY e { p = f32[16,8] parameter(0) q = f32[32,8] parameter(1) ROOT r = f32[16,32] fusion(p, q), kind=kCustom, calls=outer }""")
    assert shown(module, [4, 16], [1, 0]) == ((16, 8), (1, 1), "(pid_0) -> ((pid_0 mod 2) * 16, 0), domain: pid_0 in [0, 7]")
    names = [tile_analysis(module).follow([1, 0, 0][:k]).value.op for k in range(4)]
    assert [op.name.partition(".")[2] if op is not None else "" for op in names] == ["dot_general", "transpose", "exponential", ""]


def test_two_calls_of_one_function_keep_their_arguments_apart() -> None:
    """f(x) - f(y): both calls have the same body, whose argument is x in one and y in the other."""
    module = hlo.parse("""func.func @main(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>) -> tensor<6x4xf32> {
      %0 = call @f(%x) : (tensor<4x6xf32>) -> tensor<6x4xf32>
      %1 = call @f(%y) : (tensor<4x6xf32>) -> tensor<6x4xf32>
      %2 = stablehlo.subtract %0, %1 : tensor<6x4xf32>
      return %2 : tensor<6x4xf32> }
    func.func private @f(%a: tensor<4x6xf32>) -> tensor<6x4xf32> {
      %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
      return %0 : tensor<6x4xf32> }""")
    found = tile_analysis(module)
    assert [found.follow([k, 0]).value.name for k in range(2)] == ["x", "y"]


# ---------------------------------------------------------------- several roots


def roots(body: str, result: str, *arguments: str) -> tuple[list[str], str, list[str]]:
    """(the roots that share a space, the constraints, the reasons of the others)."""
    found = tile_analysis(fused(body, result, *arguments))
    shared = [f"%{r.value.name} {r.map}".partition(", domain")[0] for r in found.roots]
    return shared, str(found.constraints), [why.reason for _, why in found.apart]


def test_roots_of_one_shape_share_tiles() -> None:
    shared, constraints, apart = roots(
        "p = f32[100] parameter(0) e = f32[100] exponential(p) a = f32[100] abs(p) ROOT t = (f32[100], f32[100]) tuple(e, a)",
        "(f32[100], f32[100])", "f32[100]")  # fmt: skip
    assert shared == ["%e (d0) -> (d0)", "%a (d0) -> (d0)"] and constraints == "always satisfied" and not apart


def test_a_root_that_another_reads_takes_its_tile() -> None:
    shared, _, apart = roots(
        "p = f32[10,20] parameter(0) e = f32[10,20] exponential(p) t = f32[20,10] transpose(e), dimensions={1,0}"
        " ROOT r = (f32[10,20], f32[20,10]) tuple(e, t)", "(f32[10,20], f32[20,10])", "f32[10,20]")  # fmt: skip
    assert shared == ["%e (d0, d1) -> (d1, d0)", "%t (d0, d1) -> (d0, d1)"] and not apart


def test_a_reduction_beside_what_it_reduces_needs_whole_rows() -> None:
    shared, constraints, apart = roots(
        "p = f32[10,20] parameter(0) z = f32[] constant(0) e = f32[10,20] exponential(p)"
        " s = f32[10] reduce(p, z), dimensions={1}, to_apply=add ROOT r = (f32[10], f32[10,20]) tuple(s, e)",
        "(f32[10], f32[10,20])", "f32[10,20]")  # fmt: skip
    assert shared == ["%s (d0, d1) -> (d0)", "%e (d0, d1) -> (d0, d1)"]
    assert constraints == "d1 in [20, 20]" and not apart


def test_rows_beside_their_sums() -> None:
    """The sum is the main root: it reads the other, and a tile of sums has its own rows."""
    shared, constraints, apart = roots(
        "p = f32[10,20] parameter(0) z = f32[] constant(0) e = f32[10,20] exponential(p)"
        " s = f32[10] reduce(e, z), dimensions={1}, to_apply=add ROOT r = (f32[10,20], f32[10]) tuple(e, s)",
        "(f32[10,20], f32[10])", "f32[10,20]")  # fmt: skip
    assert shared == ["%e (d0)[s0] -> (d0, s0)", "%s (d0) -> (d0)"] and constraints == "always satisfied" and not apart


def test_windows_that_overlap_share_no_tiles() -> None:
    shared, _, apart = roots(
        "p = f32[10] parameter(0) z = f32[] constant(0) e = f32[10] exponential(p)"
        " w = f32[8] reduce-window(e, z), window={size=3}, to_apply=add ROOT r = (f32[10], f32[8]) tuple(e, w)",
        "(f32[10], f32[8])", "f32[10]")  # fmt: skip
    assert shared == ["%w (d0) -> (d0)"]
    assert apart == ["%w reads it, but an element belongs to several indices of the main root"]


def test_a_softmax_and_its_exponentials() -> None:
    """The second root is read in two ways: element by element, which is its tile, and by rows."""
    shared, _, apart = roots(
        "p = f32[10,20] parameter(0) z = f32[] constant(0) e = f32[10,20] exponential(p)"
        " s = f32[10] reduce(e, z), dimensions={1}, to_apply=add b = f32[10,20] broadcast(s), dimensions={0}"
        " d = f32[10,20] divide(e, b) ROOT r = (f32[10,20], f32[10,20]) tuple(d, e)",
        "(f32[10,20], f32[10,20])", "f32[10,20]")  # fmt: skip
    assert shared == ["%d (d0, d1) -> (d0, d1)", "%e (d0, d1) -> (d0, d1)"] and not apart


def test_a_root_of_which_only_a_part_is_read_is_apart() -> None:
    shared, _, apart = roots(
        "p = f32[30] parameter(0) e = f32[30] exponential(p) s = f32[10] slice(e), slice={[0:10]} n = f32[10] negate(s)"
        " ROOT r = (f32[10], f32[30]) tuple(n, e)", "(f32[10], f32[30])", "f32[30]")  # fmt: skip
    assert shared == ["%n (d0) -> (d0)"]
    assert apart == ["%n reads it, but not every element is reached, for one (10,)"]


def test_roots_without_anything_in_common() -> None:
    shared, _, apart = roots(
        "p = f32[30] parameter(0) q = f32[4,5] parameter(1) e = f32[30] exponential(p) n = f32[4,5] negate(q)"
        " ROOT r = (f32[30], f32[4,5]) tuple(e, n)", "(f32[30], f32[4,5])", "f32[30]", "f32[4,5]")  # fmt: skip
    assert shared == ["%e (d0) -> (d0)"] and apart == ["the roots have shapes [30] and [4, 5] and read nothing in common"]


def test_tiles_of_all_roots_hold_every_element_once() -> None:
    module = fused(
        "p = f32[6,10] parameter(0) z = f32[] constant(0) e = f32[6,10] exponential(p) t = f32[10,6] transpose(e), dimensions={1,0}"
        " s = f32[6] reduce(p, z), dimensions={1}, to_apply=add ROOT r = (f32[6,10], f32[10,6], f32[6]) tuple(e, t, s)",
        "(f32[6,10], f32[10,6], f32[6])", "f32[6,10]")  # fmt: skip
    found = tile_analysis(module)
    assert len(found.roots) == 3
    sizes = [s for s in itertools.product(range(1, 11), range(1, 7)) if found.satisfies(s)]
    assert {s[0] for s in sizes} == {10} and len(sizes) == 6
    for chosen in sizes:
        for root in found.roots:
            tile = found.tile(root)
            assert isinstance(tile, Tile)
            seen: list[tuple[int, ...]] = []
            for ids in itertools.product(*map(range, found.space.counts(chosen))):
                seen += itertools.product(*tile.indices(ids, chosen))
            assert sorted(seen) == sorted(itertools.product(*map(range, root.value.shape)))


def test_no_tensor_among_the_roots() -> None:
    module = hlo.parse("func.func @main(%t: !stablehlo.token) -> !stablehlo.token { return %t : !stablehlo.token }")
    with pytest.raises(ValueError, match="no root is a tensor"):
        tile_analysis(module)


# ---------------------------------------------------------------- spaces


ATTENTION = fused(
    "q = f32[8,4] parameter(0) k = f32[12,4] parameter(1) v = f32[12,6] parameter(2) z = f32[] constant(0)"
    " s = f32[8,12] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={1} e = f32[8,12] exponential(s)"
    " n = f32[8] reduce(e, z), dimensions={1}, to_apply=add o = f32[8,6] dot(e, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    " b = f32[8,6] broadcast(n), dimensions={0} ROOT r = f32[8,6] divide(o, b)", "f32[8,6]", "f32[8,4]", "f32[12,4]", "f32[12,6]")  # fmt: skip


def test_every_reduction_and_contraction_is_a_dimension() -> None:
    found = tile_analysis(ATTENTION, sequential=True)
    assert [d.extent for d in found.space.parallel] == [8, 6]
    assert sorted((d.extent, d.value.name) for d in found.space.sequential) == [(4, "s"), (12, "n"), (12, "o")]
    assert all(d.kind is DimensionKind.SEQUENTIAL for d in found.space.sequential)
    exponentials = [t for t in found.values if t.value.name == "e"]
    assert len(exponentials) == 2, "in the loop of the product and in that of the sum"
    for t in exponentials:
        tile = found.tile(t)
        assert isinstance(tile, Tile)
        (loop,) = [d for d in tile.dimensions if d.kind is DimensionKind.SEQUENTIAL]
        assert [str(e) for e in tile.sizes] == ["ts_0", f"ts_{loop.number}"]
    whole = tile_analysis(ATTENTION)
    assert len([t for t in whole.values if t.value.name == "e"]) == 1, "whole rows are one tile"
    assert not whole.space.sequential


def test_tiles_in_a_sequential_space_are_those_that_are_read() -> None:
    found = tile_analysis(ATTENTION, sequential=True)
    sizes = [3, 4, *(5 for _ in found.space.sequential)]
    for t in found.values:
        tile = found.tile(t)
        assert isinstance(tile, Tile) and tile.is_exact
        mine = [d.number for d in tile.dimensions]
        counts = found.space.counts(sizes)
        for ids in itertools.product(*(range(counts[k]) for k in mine)):
            every = [0] * len(sizes)
            for k, number in zip(mine, ids, strict=True):
                every[k] = number
            origin = [every[k] * sizes[k] for k in mine]
            inside = [min(sizes[d.number], d.extent - o) for d, o in zip(tile.dimensions, origin, strict=True)]
            points = elements(t.map, inside, origin, [])
            for k, indices in enumerate(tile.indices(every, sizes)):
                assert set(indices) == set(points[:, k].tolist())


def test_runtime_values_are_dimensions_too() -> None:
    found = tile_analysis(PART, sequential=True)
    assert [str(v.interval) for v in found.space.runtimes] == ["[0, 2]", "[0, 136]"]
    assert "rt_0: runtime, in [0, 2] = %i" in str(found.space)
    table = tile_analysis(ROWS)
    assert str(table.space).splitlines()[-1] == "rt_0: runtime, in [0, 49] = %i[i_0, 0]"
    with pytest.raises(ValueError, match="expected 2 positive tile sizes"):
        table.space.counts([1])


LARGER = [
    ("merged", "p = f32[20] parameter(0) ROOT r = f32[4,5] reshape(p)"),
    ("merged twice", "p = f32[60] parameter(0) ROOT r = f32[3,4,5] reshape(p)"),
    ("merged rows", "p = f32[12,7] parameter(0) ROOT r = f32[3,4,7] reshape(p)"),
    ("split", "p = f32[4,5] parameter(0) ROOT r = f32[20] reshape(p)"),
    ("both", "p = f32[6,10] parameter(0) ROOT r = f32[4,15] reshape(p)"),
    ("strided", "p = f32[20] parameter(0) ROOT r = f32[7] slice(p), slice={[1:20:3]}"),
    ("reversed", "p = f32[7] parameter(0) ROOT r = f32[7] reverse(p), dimensions={0}"),
    ("turned", "p = f32[5,4] parameter(0) ROOT r = f32[4,5] transpose(p), dimensions={1,0}"),
]


def test_tiles_larger_than_the_dimension_have_the_dimensions_stride() -> None:
    """A row of 5 in tiles of 8 had a stride of 2, in tiles of 64 one of 13."""
    module = hlo.parse("HloModule m\nENTRY e { p = f32[20] parameter(0) ROOT r = f32[4,5] reshape(p) }")
    for size in (5, 8, 16, 64):
        found = tiled(module, [1, size], [0])
        assert isinstance(found, ConcreteTile)
        assert (found.sizes, found.strides, str(found.offsets)) == ((size,), (1,), "(pid_0) -> (pid_0 * 5), domain: pid_0 in [0, 3]")


@pytest.mark.parametrize(("name", "ops"), LARGER, ids=[n for n, _ in LARGER])
def test_tiles_larger_than_their_dimensions_hold_what_the_whole_dimensions_read(name: str, ops: str) -> None:
    """Of every tile that is given for sizes up to twice the dimensions: the elements that are read lie in it."""
    module = hlo.parse(f"HloModule m\nENTRY e {{ {ops} }}")
    root = module.entry.body.results[0]
    shape = root.shape
    count = 0
    for sizes in itertools.product(*([1, n - 1, n, n + 1, n + 3, 2 * n] for n in shape)):
        if min(sizes) < 1:
            continue
        found = tiled(module, list(sizes), [0])
        if isinstance(found, Declined):
            continue
        count += 1
        numbers = [-(-n // t) for n, t in zip(shape, sizes, strict=True)]
        for pid, at in enumerate(itertools.product(*(range(k) for k in numbers))):
            box = [range(a * t, min((a + 1) * t, n)) for a, t, n in zip(at, sizes, shape, strict=True)]
            read = _read_by(module, box)
            starts = found.offsets.evaluate([pid], [])
            for k, (o, n, s) in enumerate(zip(starts, found.sizes, found.strides, strict=True)):
                progression = {int(o) + j * s for j in range(n)}
                assert {index[k] for index in read} <= progression, (name, sizes, at, k)
    assert count


def _read_by(module: hlo.Module, box: list[range]) -> set[tuple[int, ...]]:
    """The indices of the argument that a box of the result reads, found by moving the numbers of its elements."""
    shape = module.entry.body.arguments[0].shape
    numbers = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    (moved,) = interp.evaluate(module, numbers)
    return {tuple(int(x) for x in np.unravel_index(int(v), shape)) for v in moved[np.ix_(*box)].reshape(-1)}
