"""Symbolic tiles: their text where it is known, and the elements of concrete tiles for every kind of op and map."""

# ruff: noqa: E501  (programs are kept as they are printed)

from __future__ import annotations

import random
import time
from math import prod

import pytest

import hlo
import indexing
from hlo.errors import Declined
from indexing import IndexingMap, Var, evaluate, parse_map
from tests.indexing.op_examples import EXAMPLES
from tests.tiling.tiles.tile_checks import check
from tiling import SymbolicTile, exact_tile, symbolic_tile


def read_map(text: str, operand: int = 0) -> IndexingMap:
    """The first map of an operand of the entry's root."""
    return indexing.output_to_input(hlo.parse(f"HloModule m\n{text}").root)[operand][0]


def entry(body: str) -> str:
    return f"ENTRY e {{ {body} }}"


def fused(body: str, result: str, arguments: list[str]) -> str:
    parameters = " ".join(f"a{k} = {t} parameter({k})" for k, t in enumerate(arguments))
    names = ", ".join(f"a{k}" for k in range(len(arguments)))
    return f"f {{ {body} }}\nENTRY e {{ {parameters} ROOT r = {result} fusion({names}), kind=kLoop, calls=f }}"


def reshape(a: str, b: str) -> hlo.Op:
    line = f"%r = stablehlo.reshape %a : (tensor<{a}xf32>) -> tensor<{b}xf32>"
    return hlo.parse(f"func.func @main(%a: tensor<{a}xf32>) {{\n  {line}\n  return\n}}").entry.body.ops[0]


MERGE_SIZES = "(d0 + 5) floordiv 6, d0 - ((d0 - 1) floordiv 6) * 6, d1"
SPLIT_STRIDE = (
    "((-d2 + 7) floordiv 6) * (((-d1 + 9) floordiv 8) * ((-((-d0 + 5) floordiv 4) + 1) * 48)"
    " + (-((-d1 + 9) floordiv 8) + 1) * 6) - (-d2 + 7) floordiv 6 + 1"
)

# name, program, operand, offsets, sizes, strides, constraints
TEXTS = [
    ("dot, left", entry("p = f32[4,17,19] parameter(0) q = f32[4,19,23] parameter(1) ROOT d = f32[4,17,23] dot(p, q),"
     " lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"), 0,
     "(0, 0, 0)", "(d0, d1, 19)", "(1, 1, 1)", ""),
    ("dot, right", entry("p = f32[4,17,19] parameter(0) q = f32[4,19,23] parameter(1) ROOT d = f32[4,17,23] dot(p, q),"
     " lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"), 1,
     "(0, 0, 0)", "(d0, 19, d2)", "(1, 1, 1)", ""),
    ("reverse", entry("p = f32[179] parameter(0) ROOT r = f32[179] reverse(p), dimensions={0}"), 0,
     "(-d0 + 179)", "(d0)", "(1)", ""),
    ("slice", entry("p = f32[120,142] parameter(0) ROOT s = f32[10,21] slice(p), slice={[40:60:2], [20:104:4]}"), 0,
     "(40, 20)", "(d0, d1)", "(2, 4)", ""),
    ("transpose", entry("p = f32[21,10] parameter(0) ROOT t = f32[10,21] transpose(p), dimensions={1,0}"), 0,
     "(0, 0)", "(d1, d0)", "(1, 1)", ""),
    ("pad", entry("p = f32[17,19] parameter(0) z = f32[] parameter(1) ROOT s = f32[24,21] pad(p, z), padding=3_4x1_1"), 0,
     "(-3, -1)", "(d0, d1)", "(1, 1)", ""),
    ("concatenate", entry("p = f32[58] parameter(0) q = f32[85] parameter(1) ROOT c = f32[143] concatenate(p, q), dimensions={0}"),
     1, "(-58)", "(d0)", "(1)", ""),
    ("iota below", entry("p = f32[20] parameter(0) ROOT b = f32[10,20,30] broadcast(p), dimensions={1}"), 0,
     "(0)", "(d1)", "(1)", ""),
    ("reshape, trivial", entry("p = f32[11,17,19] parameter(0) ROOT r = f32[1,11,17,19] reshape(p)"), 0,
     "(0, 0, 0)", "(d1, d2, d3)", "(1, 1, 1)", ""),
    ("reshape, merge", entry("p = f32[1,8,6,4] parameter(0) ROOT r = f32[48,4] reshape(p)"), 0,
     "(0, 0, 0, 0)", f"(1, {MERGE_SIZES})", "(0, 1, 1, 1)", "6 mod d0 in [0, 0] || d0 mod 6 in [0, 0]"),
    ("reshape, merge of a reverse",
     fused("p = f32[1,8,6,4] parameter(0) v = f32[1,8,6,4] reverse(p), dimensions={1,2} ROOT r = f32[48,4] reshape(v)",
           "f32[48,4]", ["f32[1,8,6,4]"]), 0,
     "(0, -((d0 + 5) floordiv 6) + 8, -(d0 - ((d0 - 1) floordiv 6) * 6) + 6, 0)", f"(1, {MERGE_SIZES})", "(0, 1, 1, 1)",
     "6 mod d0 in [0, 0] || d0 mod 6 in [0, 0]"),
    ("reshape, split", entry("p = f32[192,4] parameter(0) ROOT r = f32[4,8,6,4] reshape(p)"), 0,
     "(0, 0)", "((d0 * d1) * d2, d3)", f"({SPLIT_STRIDE}, 1)",
     "d0 in [1, 1] && d1 in [1, 1] || d0 in [1, 1] && d2 in [1, 1] || d0 in [1, 1] && d2 in [6, 6] || "
     "d1 in [1, 1] && d2 in [1, 1] || d1 in [8, 8] && d2 in [1, 1] || d1 in [8, 8] && d2 in [6, 6]"),
    ("reshape, two merges", entry("p = f32[1,8,6,4,8] parameter(0) ROOT r = f32[48,32] reshape(p)"), 0, "(0, 0, 0, 0, 0)",
     "(1, (d0 + 5) floordiv 6, d0 - ((d0 - 1) floordiv 6) * 6, (d1 + 7) floordiv 8, d1 - ((d1 - 1) floordiv 8) * 8)",
     "(0, 1, 1, 1, 1)",
     "6 mod d0 in [0, 0] && 8 mod d1 in [0, 0] || 6 mod d0 in [0, 0] && d1 mod 8 in [0, 0] || "
     "8 mod d1 in [0, 0] && d0 mod 6 in [0, 0] || d0 mod 6 in [0, 0] && d1 mod 8 in [0, 0]"),
    ("reduce", "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n" + entry(
        "p = f32[125,150] parameter(0) z = f32[] parameter(1) ROOT r = f32[150] reduce(p, z), dimensions={0}, to_apply=add"), 0,
     "(0, 0)", "(125, d0)", "(1, 1)", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "operand", "offset", "size", "stride", "constraints"), [t[1:] for t in TEXTS], ids=[t[0] for t in TEXTS]
)
def test_text(program: str, operand: int, offset: str, size: str, stride: str, constraints: str) -> None:
    m = read_map(program, operand)
    names = ", ".join(v.var.name for v in m.dims)
    expected = ["Symbolic tile with", f"  offset_map: ({names}) -> {offset}", f"  size_map: ({names}) -> {size}"]
    expected.append(f"  stride_map: ({names}) -> {stride}")
    if constraints:
        expected += ["  constraints:", f"    {constraints}"]
    assert str(symbolic_tile(m)).splitlines() == expected
    assert check(m)[1] > 0


WHOLE = """Symbolic tile with
  offset_map: (d0, d1){} -> {}
  size_map: (d0, d1){} -> {}
  stride_map: (d0, d1){} -> {}"""
PART = ("p = s32[9,40] parameter(0) a = s32[] parameter(1) b = s32[] parameter(2)"
        " ROOT d = s32[1,30] dynamic-slice(p, a, b), dynamic_slice_sizes={1,30}")  # fmt: skip
UPDATE = ("p = s32[20,30] parameter(0) u = s32[5,10] parameter(1) a = s32[] parameter(2) b = s32[] parameter(3)"
          " ROOT d = s32[20,30] dynamic-update-slice(p, u, a, b)")  # fmt: skip
TABLE = ("p = f32[33,70] parameter(0) i = s32[18,1] parameter(1) ROOT g = f32[18,70] gather(p, i), offset_dims={1},"
         " collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,70}")  # fmt: skip
WITH_RUNTIMES = [
    (PART, 0, "{rt0, rt1}", "(rt0, rt1)", "(d0, d1)", "(1, 1)", ["rt0 in [0, 8],", "rt1 in [0, 10],"]),
    (PART, 1, "", "()", "()", "()", []),
    (UPDATE, 0, "", "(0, 0)", "(d0, d1)", "(1, 1)", []),
    (UPDATE, 1, "{rt0, rt1}", "(-rt0, -rt1)", "(d0, d1)", "(1, 1)", ["rt0 in [0, 15],", "rt1 in [0, 20],"]),
    (UPDATE, 3, "", "()", "()", "()", []),
    (TABLE, 0, "{rt0}", "(rt0, 0)", "(1, d1)", "(0, 1)", ["rt0 in [0, 32],"]),
    (TABLE, 1, "", "(0, 0)", "(d0, 1)", "(1, 0)", []),
]


@pytest.mark.parametrize(("program", "operand", "names", "offset", "size", "stride", "runtimes"), WITH_RUNTIMES)
def test_text_with_runtime_values(
    program: str, operand: int, names: str, offset: str, size: str, stride: str, runtimes: list[str]
) -> None:
    lines = WHOLE.format(names, offset, names, size, names, stride).splitlines()
    if runtimes:
        lines += ["  rt_vars:", *("    " + r for r in runtimes)]
    m = read_map(entry(program), operand)
    assert str(symbolic_tile(m)).splitlines() == lines
    check(m)


FROM_MAPS = [
    # text, offsets, sizes, strides, constraints
    ("(d0, d1, d2)[s0] -> (d0 * 64 + d1, s0), domain: d0 in [0, 3], d1 in [0, 63], d2 in [0, 99], s0 in [0, 79], d0 * 64 + d1 in [0, 255]",
     "(0, 0)", "(d0 * d1, 80)", "(((-d1 + 65) floordiv 64) * ((-((-d0 + 5) floordiv 4) + 1) * 64) - (-d1 + 65) floordiv 64 + 1, 1)",
     "d0 in [1, 1] || d1 in [1, 1] || d1 in [64, 64]"),
    ("(d0, d1, d2)[s0] -> (d0, d1, d2 * 16 + s0), domain: d0 in [0, 3], d1 in [0, 63], d2 in [0, 9], s0 in [0, 15]",
     "(0, 0, 0)", "(d0, d1, d2 * 16)", "(1, 1, 1)", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "offset", "size", "stride", "constraints"), FROM_MAPS)
def test_text_of_maps(text: str, offset: str, size: str, stride: str, constraints: str) -> None:
    tile = symbolic_tile(parse_map(text))
    assert isinstance(tile, SymbolicTile)
    shown = [str(t).partition(" -> ")[2] for t in (tile.offset_map, tile.size_map, tile.stride_map)]
    assert shown == [offset, size, stride]
    assert str(tile.constraints) == (constraints or "always satisfied")
    check(parse_map(text))


@pytest.mark.parametrize("cut", ["[18:43:5]", "[20:45:5]", "[1:25]"])
@pytest.mark.parametrize("first", ["bitcast(p)", "reshape(v)", "reshape(t)"])
def test_slices_of_merged_dimensions_that_begin_inside_a_row(cut: str, first: str) -> None:
    """Elements 18, 23, 28, … of rows of 6: where a tile begins is no multiple of anything. It is covered, and known exactly."""
    n = 24 if cut == "[1:25]" else 5
    rows = "[1,6,8,4]" if first == "reshape(t)" else "[1,8,6,4]"
    body = (f"p = f32{rows} parameter(0) v = f32{rows} reverse(p), dimensions={{1,2}}"
            f" t = f32[1,8,6,4] transpose(p), dimensions={{0,2,1,3}} r = f32[48,4] {first}"
            f" ROOT s = f32[{n},2] slice(r), slice={{{cut}, [0:4:2]}}")  # fmt: skip
    if rows == "[1,8,6,4]":
        body = body.replace(" t = f32[1,8,6,4] transpose(p), dimensions={0,2,1,3}", "")
    m = read_map(fused(body, f"f32[{n},2]", [f"f32{rows}"]))
    refused = symbolic_tile(m)
    assert isinstance(refused, Declined) and refused.reason
    covering = symbolic_tile(m, cover=True)
    assert isinstance(covering, SymbolicTile) and not covering.is_exact
    exact = exact_tile(m, [2, 1], [2, 1])
    assert not isinstance(exact, Declined) and exact.count == 2


def test_runtime_offsets_are_symbols() -> None:
    m = read_map(entry(
        "p = s32[2,2,258] parameter(0) a = s32[] parameter(1) b = s32[] parameter(2) c = s32[] parameter(3)"
        " ROOT d = s32[1,2,32] dynamic-slice(p, a, b, c), dynamic_slice_sizes={1,2,32}"))  # fmt: skip
    tile = symbolic_tile(m)
    assert isinstance(tile, SymbolicTile)
    assert str(tile.offset_map) == "(d0, d1, d2){rt0, rt1} -> (rt0, 0, rt1)"
    assert [(str(v.var), str(v.interval)) for v in tile.runtimes] == [("rt0", "[0, 1]"), ("rt1", "[0, 226]")]
    assert "%a: s32[]" in tile.to_document() or "%a: tensor<i32>" in tile.to_document()
    assert check(m)[1] > 0


def test_a_dimension_of_size_one_stays_a_variable() -> None:
    tile = symbolic_tile(parse_map("(d0) -> (d0), domain: d0 in [0, 0]"))
    assert isinstance(tile, SymbolicTile)
    assert (str(tile.size_map), str(tile.stride_map)) == ("(d0) -> (d0)", "(d0) -> (1)")


OPS = sorted(EXAMPLES)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("direction", [indexing.output_to_input, indexing.input_to_output], ids=["reads", "reached"])
def test_every_op(name: str, direction: object) -> None:
    """Each map of each operand in both directions: a tile that holds what enumeration finds, or a reason."""
    line, arguments = EXAMPLES[name]
    op = hlo.parse(f"func.func @main({arguments}) {{\n  {line}\n  return\n}}").entry.body.ops[0]
    if direction is indexing.output_to_input:
        sets = indexing.output_to_input(op)
    else:
        sets = tuple(s for k in range(len(op.operands)) for s in indexing.input_to_output(op, k)[:1])
    for maps in sets:
        for m in maps:
            check(m, most=12)


# map, whether it has a tile
MAPS = [
    ("(d0, d1)[s0] -> (d0, d1 + s0), domain: d0 in [0, 23], d1 in [0, 8], s0 in [0, 5]", True),
    ("(d0)[s0] -> (d0 * 2 + s0), domain: d0 in [0, 10], s0 in [0, 2]", True),
    ("(d0)[s0] -> (d0 * 2 + s0), domain: d0 in [0, 10], s0 in [0, 1]", True),
    ("(d0)[s0] -> (d0 * 3 + s0), domain: d0 in [0, 10], s0 in [0, 1]", True),
    ("(d0)[s0] -> (d0 * 3 + s0 * 2), domain: d0 in [0, 10], s0 in [0, 3]", True),
    ("(d0)[s0, s1] -> (d0 * 4 + s0 * 2 + s1), domain: d0 in [0, 6], s0 in [0, 1], s1 in [0, 1]", True),
    ("(d0)[s0, s1] -> (d0 + s0 + s1 * 2, s1), domain: d0 in [0, 6], s0 in [0, 3], s1 in [0, 2]", True),
    ("(d0, d1) -> (d0 + d1), domain: d0 in [0, 6], d1 in [0, 4]", True),
    ("(d0, d1) -> (d0 - d1 + 4), domain: d0 in [0, 6], d1 in [0, 4]", True),
    ("(d0, d1) -> (d0 * 5 + d1), domain: d0 in [0, 6], d1 in [0, 4]", True),
    ("(d0, d1) -> (d0 * 7 + d1), domain: d0 in [0, 6], d1 in [0, 4]", True),
    ("(d0, d1) -> (d0 * -5 - d1 + 34), domain: d0 in [0, 6], d1 in [0, 4]", True),
    ("(d0) -> (d0 floordiv 6), domain: d0 in [0, 47]", True),
    ("(d0) -> (d0 mod 6), domain: d0 in [0, 47]", True),
    ("(d0) -> (-(d0 mod 6) * 3 + 20), domain: d0 in [0, 47]", True),
    ("(d0) -> (d0 floordiv 4 * 8 + 3), domain: d0 in [0, 23]", True),
    ("(d0, d1) -> ((d0 * 4 + d1) floordiv 10, (d0 * 4 + d1) mod 10), domain: d0 in [0, 14], d1 in [0, 3]", True),
    ("(d0, d1) -> ((d0 * 6 + d1) floordiv 4, (d0 * 6 + d1) mod 4), domain: d0 in [0, 3], d1 in [0, 5]", True),
    ("(d0)[s0] -> ((d0 * 4 + s0) floordiv 8, (d0 * 4 + s0) mod 8), domain: d0 in [0, 9], s0 in [0, 3]", True),
    ("(d0)[s0] -> (d0 + s0 floordiv 4, s0 mod 4), domain: d0 in [0, 9], s0 in [0, 15]", True),
    ("(d0)[s0] -> (s0 mod 4 + s0 floordiv 4 * 4, d0), domain: d0 in [0, 9], s0 in [0, 15]", True),
    ("(d0)[s0] -> (d0 * 2 + s0 - 1), domain: d0 in [0, 10], s0 in [0, 2], d0 * 2 + s0 in [1, 21]", True),
    ("(d0, d1)[s0] -> (d0, d1 * 4 + s0 * 2 - 2), domain: d0 in [0, 3], d1 in [0, 10], s0 in [0, 3], d1 * 2 + s0 in [1, 22]", True),
    ("(d0){rt0} -> (d0 + rt0), domain: d0 in [0, 10], rt0 in [0, 5]", True),
    ("(d0){rt0} -> (d0 - rt0), domain: d0 in [0, 10], rt0 in [0, 5], d0 - rt0 in [0, 4]", True),
    ("(d0)[s0]{rt0, rt1} -> (rt1, -d0 + s0 + rt0 + 10), domain: d0 in [0, 10], s0 in [0, 2], rt0 in [0, 5], rt1 in [3, 9]", True),
    ("(d0) -> (3, d0, d0), domain: d0 in [2, 7]", True),
    ("() -> (), domain:", True),
    ("()[s0] -> (s0 * 3 + 1), domain: s0 in [0, 4]", True),
    ("()[s0] -> (s0 * 3 + 1), domain: s0 in [2, 4]", True),
    ("(d0) -> ((d0 * 5) floordiv 6), domain: d0 in [0, 5]", False),
    ("(d0) -> ((d0 + 1) floordiv 6), domain: d0 in [0, 20]", False),
    ("(d0) -> ((d0 + 1) mod 6), domain: d0 in [0, 20]", False),
    ("(d0) -> ((20 - d0) mod 6), domain: d0 in [0, 20]", False),
    ("(d0) -> (d0 + d0 floordiv 4), domain: d0 in [0, 20]", False),
    ("(d0)[s0] -> (d0 * 4 + s0 + s0 floordiv 2 * 3), domain: d0 in [0, 20], s0 in [0, 3]", False),
    ("(d0)[s0] -> ((d0 + s0) floordiv 4), domain: d0 in [0, 20], s0 in [0, 3]", False),
    ("(d0, d1) -> (d0, d1), domain: d0 in [0, 20], d1 in [0, 20], d0 + d1 in [0, 20]", False),
    ("(d0, d1) -> (d0 + d1, d1), domain: d0 in [0, 20], d1 in [0, 20], d0 + d1 in [5, 20]", False),
    ("(d0) -> (d0 floordiv 2), domain: d0 in [0, 20], d0 mod 2 in [0, 0]", True),
    ("(d0) -> ((d0 - 3) floordiv 7), domain: d0 in [3, 31], (d0 - 3) mod 7 in [0, 0]", True),
    ("(d0, d1) -> (d1, (d0 + 1) floordiv 3 * 5), domain: d0 in [0, 31], d1 in [0, 3], (d0 + 1) mod 3 in [0, 0]", True),
    ("(d0) -> (d0), domain: d0 in [0, 31], d0 mod 3 in [1, 1]", True),
    ("(d0) -> (-d0 + 31), domain: d0 in [0, 31], d0 mod 3 in [1, 1]", True),
    ("(d0) -> (d0 mod 6), domain: d0 in [0, 31], d0 mod 2 in [0, 0]", True),
    ("(d0) -> (d0), domain: d0 in [0, 30], d0 mod 3 in [0, 1]", False),
    ("(d0)[s0] -> (d0 * 6 + s0 floordiv 2), domain: d0 in [0, 9], s0 in [0, 11], s0 mod 2 in [0, 0]", True),
    ("(d0)[s0, s1] -> (d0 + 1, s0 * 2 + s1), domain: d0 in [0, 9], s0 in [1, 7], s1 in [0, 5], s1 mod 2 in [1, 1]", True),
    ("(d0)[s0, s1] -> (d0 + 1, s0 * 2 + s1), domain: d0 in [0, 9], s0 in [1, 7], s1 in [0, 5], s1 mod 3 in [2, 2]", False),
    ("(d0)[s0] -> (d0 * 4 + (s0 - 1) mod 4), domain: d0 in [0, 9], s0 in [0, 15]", True),
    ("(d0)[s0] -> (-d0 * 4 - (s0 - 1) mod 4 + 40), domain: d0 in [0, 9], s0 in [0, 15]", True),
    ("(d0)[s0] -> (d0 * 4 - (s0 - 1) mod 4 + 3), domain: d0 in [0, 9], s0 in [0, 15]", True),
    ("(d0)[s0] -> (-d0 * 4 + (s0 - 1) mod 4 + 40), domain: d0 in [0, 9], s0 in [0, 15]", True),
    ("(d0){rt0} -> ((d0 + rt0) floordiv 4), domain: d0 in [0, 20], rt0 in [0, 3]", False),
    ("(d0) -> (d0), domain: d0 in [3, 2]", False),
    ("KNOWN EMPTY", False),
    ("unknown indexing", False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "has_tile"), MAPS, ids=[t for t, _ in MAPS])
def test_maps(text: str, has_tile: bool) -> None:
    tile, compared = check(parse_map(text))
    assert isinstance(tile, SymbolicTile) == has_tile, str(tile)
    assert compared or not has_tile


@pytest.mark.parametrize("seed", range(30))
def test_random_reshapes(seed: int) -> None:
    """Shapes of equal size, split at random: each map has a tile that enumeration confirms, or is declined."""
    generator = random.Random(seed)
    factors = [generator.choice([2, 2, 3, 4, 5]) for _ in range(generator.randint(2, 4))]

    def shape() -> list[int]:
        mixed = factors[:]
        if generator.random() < 0.3:
            generator.shuffle(mixed)
        out: list[int] = []
        for f in mixed:
            if out and generator.random() < 0.5:
                out[-1] *= f
            else:
                out.append(f)
        return out

    a, b = shape(), shape()
    op = reshape("x".join(map(str, a)), "x".join(map(str, b)))
    assert prod(a) == prod(b)
    for m in (*indexing.output_to_input(op)[0], *indexing.input_to_output(op)[0]):
        check(m, seed)


def test_reshapes_that_nest_have_tiles() -> None:
    """Only shapes whose factors do not line up are declined."""
    for a, b in [((4, 8), (2, 4, 4)), ((4, 8, 12), (32, 3, 4)), ((6, 10), (15, 4)), ((32,), (4, 8)), ((2, 3, 4), (24,))]:
        x, y = "x".join(map(str, a)), "x".join(map(str, b))
        (m,) = indexing.output_to_input(reshape(x, y))[0]
        tile, compared = check(m)
        assert isinstance(tile, SymbolicTile) and compared > 2


@pytest.mark.parametrize("rank", [6, 12])
def test_high_ranks_are_decided_quickly(rank: int) -> None:
    sizes = [(2, 3, 5, 7)[k % 4] for k in range(rank)]
    x, y, z = "x".join(map(str, sizes)), str(prod(sizes)), "x".join(map(str, sizes[::-1]))
    start = time.process_time()
    for a, b in ((x, y), (y, x), (x, z)):
        (m,) = indexing.output_to_input(reshape(a, b))[0]
        assert isinstance(symbolic_tile(m), (SymbolicTile, Declined))
    assert time.process_time() - start < 20


def test_declined_tiles_are_still_known_exactly_for_concrete_sizes() -> None:
    m = parse_map("(d0) -> ((d0 * 5 + 18) floordiv 6, (d0 * 5 + 18) mod 6), domain: d0 in [0, 5]")
    assert isinstance(symbolic_tile(m), Declined)
    region = exact_tile(m, [2], [2])
    assert not isinstance(region, Declined)
    assert set(region) == {(28 // 6, 28 % 6), (33 // 6, 33 % 6)}


def test_offsets_and_upper_bounds_of_any_tile() -> None:
    m = parse_map("(d0, d1)[s0] -> (d1 * 3 + s0, -d0 + 29), domain: d0 in [0, 29], d1 in [0, 9], s0 in [0, 4]")
    tile = symbolic_tile(m)
    assert isinstance(tile, SymbolicTile)
    d0, d1 = (v.var for v in tile.sizes)
    for t0, t1 in ((0, 0), (2, 1), (4, 3)):
        values = {d0: 6, d1: 3, Var("t0"): t0, Var("t1"): t1}
        least = [evaluate(e, values) for e in tile.tile_offsets]
        greatest = [evaluate(e, values) for e in tile.tile_upper_bounds]
        if t1 < 3:
            found = tile.indices([6, 3], [6 * t0, 3 * t1])
            assert [(r[0], r[-1]) for r in found] == list(zip(least, greatest, strict=True))
        else:
            assert greatest[0] == 31  # the last tile of the second dimension is cut


def test_sizes_that_break_a_constraint_are_refused() -> None:
    tile = symbolic_tile(parse_map("(d0) -> (d0 floordiv 6, d0 mod 6), domain: d0 in [0, 47]"))
    assert isinstance(tile, SymbolicTile)
    assert [t for t in range(1, 13) if tile.satisfies([t])] == [1, 2, 3, 6, 12]
    with pytest.raises(ValueError, match="do not meet"):
        tile.indices([4], [0])
    with pytest.raises(ValueError, match="expected 1 tile sizes, found 2"):
        tile.satisfies([1, 1])
