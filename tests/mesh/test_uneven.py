# ruff: noqa: E501  (programs are written as they are printed)
"""What tiles of one size are not enough for: dimensions that a mesh does not divide, windows, concatenations, scatters."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
import interp
from tests.mesh.global_programs import GlobalProgram, module_text
from tests.mesh.test_partition import BYTES_ALONE, on_a_grid
from tilewright.check import compare
from tilewright.inputs import random_arrays
from tiling.mesh.halo.windows import rounds_of
from tiling.mesh.network import Network
from tiling.mesh.partition import Partitioned, partition
from tiling.mesh.relations import Window
from tiling.mesh.shardings import Digit

X, ROWS, COLUMNS = '[{"x"}]', '[{"x"}, {}]', '[{}, {"x"}]'
_IMAGE = '[{}, {"x"}, {}, {}]'


def _case(
    name: str, given: list[tuple[str, str]], body: str, made: tuple[str, str], kinds: tuple[str, ...], sent: int
) -> GlobalProgram:
    text = module_text('"x"=4', given, f"{body}\n  return %r : tensor<{made[0]}>", [made])
    return GlobalProgram(name, text, kinds, sent)


def _op(op: str, given: list[str], made: str) -> str:
    return f"  %r = stablehlo.{op} : ({', '.join(f'tensor<{t}>' for t in given)}) -> tensor<{made}>"


_CONVOLUTION = """  %w = stablehlo.constant dense<[[[[0.1]]], [[[0.8]]], [[[0.3]]]]> : tensor<3x1x1x1xf32>
  %r = stablehlo.convolution(%a0, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [STRIDE, 1], pad = [[1, 1], [0, 0]]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x13x4x1xf32>, tensor<3x1x1x1xf32>) -> tensor<1xOUTx4x1xf32>"""
_SUM = "({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p, %q : tensor<f32>\n stablehlo.return %s : tensor<f32> })"
_LAST = "({ ^bb0(%p: tensor<f32>, %q: tensor<f32>): stablehlo.return %q : tensor<f32> })"
_SCATTER = """  %r = "stablehlo.scatter"(%a0, %a1, %a2) BODY {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<13x8xf32>, tensor<4x1xI>, tensor<4x8xf32>) -> tensor<13x8xf32>"""
_GATHER = """  %r = "stablehlo.gather"(%a0, %a1) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 2>} : (tensor<401x2xf32>, tensor<5x1xI>) -> tensor<5x2xf32>"""
_TOTAL = """  %z = stablehlo.constant dense<START> : tensor<f32>
  %l = stablehlo.log %a0 : tensor<7x6xf32>
  %r = stablehlo.reduce(%l init: %z) applies stablehlo.FOLD across dimensions = [0] : (tensor<7x6xf32>, tensor<f32>) -> tensor<6xf32>"""
_CUMSUM = """  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce_window"(%a0, %z) BODY {window_dimensions = array<i64: 12>, window_strides = array<i64: 1>,
    padding = dense<[[11, 0]]> : tensor<1x2xi64>} : (tensor<13xf32>, tensor<f32>) -> tensor<13xf32>"""

CASES = (
    # Dimensions that four processes do not divide. (Of seven rows the last process holds one, of five none.)
    _case("element by element", [("7xf32", X)], "  %r = stablehlo.negate %a0 : tensor<7xf32>", ("7xf32", X), (), 0),
    _case("rows to columns", [("7x6xf32", ROWS)], "  %r = stablehlo.negate %a0 : tensor<7x6xf32>", ("7x6xf32", COLUMNS), ("all_to_all",), 2 * 8 * 4 * 3 // 4),
    _case("to all", [("5x3xf32", ROWS)], "  %r = stablehlo.negate %a0 : tensor<5x3xf32>", ("5x3xf32", "[{}, {}]"), ("all_gather",), 3 * 2 * 3 * 4),
    _case("a sum of logarithms", [("7x6xf32", ROWS)], _TOTAL.replace("START", "0.0").replace("FOLD", "add"), ("6xf32", ""), ("all_reduce",), 2 * 24 * 3 // 4),
    _case("a maximum from a number", [("7x6xf32", ROWS)], _TOTAL.replace("START", "0.25").replace("FOLD", "maximum"), ("6xf32", ""), ("all_reduce",), 2 * 24 * 3 // 4),
    _case("a product over what is not divided", [("5x7xf32", COLUMNS), ("7x3xf32", ROWS)],
          "  %l = stablehlo.log %a0 : tensor<5x7xf32>\n" + _op("dot_general %l, %a1, contracting_dims = [1] x [0]", ["5x7xf32", "7x3xf32"], "5x3xf32"),
          ("5x3xf32", "[{}, {}]"), ("all_reduce",), 2 * 60 * 3 // 4),
    _case("a sort of columns", [("7x6xf32", ROWS)], """  %r = "stablehlo.sort"(%a0) ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %c = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1> }) {dimension = 0 : i64} : (tensor<7x6xf32>) -> tensor<7x6xf32>""", ("7x6xf32", ROWS), ("all_to_all", "all_to_all"), 2 * 48),
    _case("a reshape that leaves out a one", [("1x7x6xf32", '[{}, {"x"}, {}]')], _op("reshape %a0", ["1x7x6xf32"], "7x6xf32"), ("7x6xf32", ROWS), (), 0),
    _case("a reshape that puts in a one", [("7x6xf32", ROWS)], _op("reshape %a0", ["7x6xf32"], "1x7x6xf32"), ("1x7x6xf32", '[{}, {"x"}, {}]'), (), 0),
    # Windows: what a process reads lies in tiles of several others.
    _case("a stencil of rows that are not divided", [("1x13x4x1xf32", _IMAGE)], _CONVOLUTION.replace("STRIDE", "1").replace("OUT", "13"), ("1x13x4x1xf32", _IMAGE), ("halo", "halo"), 2 * 16),
    _case("a stencil with strides", [("1x13x4x1xf32", _IMAGE)], _CONVOLUTION.replace("STRIDE", "2").replace("OUT", "7"), ("1x7x4x1xf32", _IMAGE), ("halo",), 16),
    _case("a reversal", [("16xf32", X)], "  %r = stablehlo.reverse %a0, dims = [0] : tensor<16xf32>", ("16xf32", X), ("halo",), 16),
    _case("a slice", [("16xf32", X)], _op("slice %a0 [0:8]", ["16xf32"], "8xf32"), ("8xf32", X), ("halo", "halo"), 16),
    _case("a slice with strides", [("16xf32", X)], _op("slice %a0 [3:16:3]", ["16xf32"], "5xf32"), ("5xf32", X), ("halo", "halo"), 16),
    _case("a padding", [("16xf32", X), ("f32", "")], _op("pad %a0, %a1, low = [2], high = [1], interior = [0]", ["16xf32", "f32"], "19xf32"), ("19xf32", X), ("halo",), 4),
    _case("a padding that cuts", [("16xf32", X), ("f32", "")], _op("pad %a0, %a1, low = [-3], high = [-1], interior = [0]", ["16xf32", "f32"], "12xf32"), ("12xf32", X), ("halo",), 8),
    _case("a concatenation", [("16xf32", X), ("9xf32", X), ("1xf32", "")], _op("concatenate %a0, %a1, %a2, dim = 0", ["16xf32", "9xf32", "1xf32"], "26xf32"),
          ("26xf32", X), ("halo",) * 6, 52),
    _case("a concatenation with what has no elements", [("2x1x16xf32", '[{}, {}, {"x"}]'), ("2x0x16xf32", "")],
          _op("concatenate %a0, %a1, dim = 1", ["2x1x16xf32", "2x0x16xf32"], "2x1x16xf32"), ("2x1x16xf32", '[{}, {}, {"x"}]'), (), 0),
    _case("a window over almost all", [("13xf32", X)], _CUMSUM.replace("BODY", _SUM), ("13xf32", X), ("halo",) * 3, 44),
    # Rows by their numbers.
    _case("a gather of rows by small numbers", [("401x2xf32", ROWS), ("5x1xi8", "")], _GATHER.replace("xI>", "xi8>"), ("5x2xf32", ""), ("all_reduce",), 2 * 40 * 3 // 4),
    _case("a gather of rows by large numbers", [("401x2xf32", ROWS), ("5x1xui64", "")], _GATHER.replace("xI>", "xui64>"), ("5x2xf32", ""), ("all_reduce",), 2 * 40 * 3 // 4),
    _case("a scatter to rows", [("13x8xf32", ROWS), ("4x1xi32", ""), ("4x8xf32", "")], _SCATTER.replace("BODY", _SUM).replace("xI>", "xi32>"), ("13x8xf32", ROWS), (), 0),
    _case("a scatter that overwrites rows", [("13x8xf32", ROWS), ("4x1xi8", ""), ("4x8xf32", "")], _SCATTER.replace("BODY", _LAST).replace("xI>", "xi8>"), ("13x8xf32", ROWS), (), 0),
    _case("a scatter of columns", [("13x8xf32", COLUMNS), ("4x1xi32", ""), ("4x8xf32", COLUMNS)], _SCATTER.replace("BODY", _SUM).replace("xI>", "xi32>"), ("13x8xf32", COLUMNS), (), 0),
    _case("a scatter of updates in parts", [("13x8xf32", ""), ("64x1xi32", ROWS), ("64x8xf32", ROWS)],
          _SCATTER.replace("BODY", _SUM).replace("xI>", "xi32>").replace("<4x", "<64x"), ("13x8xf32", "[{}, {}]"), ("all_reduce",), 2 * 13 * 8 * 4 * 3 // 4),
    _case("a scatter of updates in parts that are not divided", [("13x8xf32", ""), ("61x1xi32", ROWS), ("61x8xf32", ROWS)],
          _SCATTER.replace("BODY", _SUM).replace("xI>", "xi32>").replace("<4x", "<61x"), ("13x8xf32", "[{}, {}]"), ("all_reduce",), 2 * 13 * 8 * 4 * 3 // 4),
)  # fmt: skip


def checked(program: GlobalProgram, network: Network = BYTES_ALONE) -> Partitioned:
    """The partition of a program, which computes on a simulated grid what the program computes whole."""
    module = hlo.parse(program.text)
    hlo.verify(module)
    made = partition(module, network=network)
    arrays = random_arrays(module.entry, 3, module)
    with np.errstate(all="ignore"):
        expected = interp.evaluate(module, *arrays)
        found = on_a_grid(made, arrays)
    for one, whole in zip(found, expected, strict=True):
        assert compare(one, np.asarray(whole)).passed
    return made


@pytest.mark.parametrize("program", CASES, ids=lambda p: p.name)
def test_what_tiles_of_one_size_are_not_enough_for(program: GlobalProgram) -> None:
    made = checked(program)
    assert tuple(c.kind for c in made.communications) == program.kinds, made.explain()
    assert made.sent_bytes == program.sent


@pytest.mark.parametrize("seed", range(12))
def test_windows_anywhere(seed: int) -> None:
    """Every process finds in its rounds what it wants of the others' tiles, and sends and receives once in each."""
    chance = np.random.default_rng(seed)
    parts, size = int(chance.integers(2, 7)), int(chance.integers(1, 40))
    window = Window(int(chance.integers(-9, 9)), int(chance.integers(-9, 9)), int(chance.integers(1, 12)))
    block = -(-size // parts)
    found = {(t, e) for t in range(parts) for e in range(t * block, min((t + 1) * block, size))}  # (target, element)
    for r in rounds_of(window, size, (Digit(1, parts),)):
        sources, targets = [s for s, _, _ in r.pieces], [t for _, t, _ in r.pieces]
        assert len(set(sources)) == len(sources) and len(set(targets)) == len(targets)
        for s, t, a in r.pieces:
            assert s != t and s * block <= a < min((s + 1) * block, size)
            found |= {(t, e) for e in range(a, min(a + r.length, (s + 1) * block))}
    wanted = {
        (t, e)
        for t in range(parts)
        for e in range(window.first + t * window.step, window.first + t * window.step + window.length)
    }
    assert {(t, e) for t, e in wanted if 0 <= e < size} <= found
