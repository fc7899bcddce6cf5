"""The maps on a program's edges: derived once for ops of one structure, and what elements and boxes are made of."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import hlo
import tiling
from benchmarks.compiling.what_runs import called
from hlo import Declined
from hlo.access import Condition
from hlo.registry import definitions
from indexing import clear_caches
from indexing.deriving.edges import edges_of
from indexing.expr import Expr, Interval, Var, as_expr, evaluate
from tests.indexing.index_helpers import op_of
from tests.indexing.op_examples import EXAMPLES
from tiling.elements.build import ElementBuilder, RuntimeTable, reads_at
from tiling.loops.element_ir import Load
from tiling.machine import Machine
from tiling.pipeline import finished
from tiling.tiles.covers import cover_of

D = Var("d0")
ROOT = Path(__file__).parents[3]
PROGRAMS = [ROOT / f"{p}.mlir" for p in ("examples/softmax", "tests/programs/embedding_gradient", "tests/programs/max_pooling")]
BUILT = [n for n in EXAMPLES if not isinstance(op_of(*EXAMPLES[n]).definition.access, Declined)]


class Numbers:
    """The `AccessBuilder` on numbers: ranges and runtime values are given in the order in which they are asked for."""

    def __init__(self, ranges: Sequence[int], runtimes: Sequence[int]) -> None:
        self.ranges, self.runtimes = iter(ranges), iter(runtimes)
        self.read_at: list[tuple[int, tuple[int, ...]]] = []
        self.asked: list[tuple[int, tuple[int, ...]]] = []

    def range(self, size: int, name: str = "") -> int:
        return next(self.ranges)

    def runtime(self, operand: int, index: Sequence[int], lower: int, upper: int) -> int:
        self.asked.append((operand, tuple(index)))
        return min(max(next(self.runtimes), lower), upper)

    def read(self, operand: int, index: Sequence[int], where: Sequence[Condition] = ()) -> None:
        if all(c.lower <= c.expression <= c.upper for c in where):
            self.read_at.append((operand, tuple(index)))


@pytest.mark.parametrize("name", BUILT)
def test_reads_at_loops_are_the_access_functions_on_numbers(name: str) -> None:
    """An op's maps at an index in loops and tile numbers, with numbers in their place: what its access function says of these."""
    op, rng = op_of(*EXAMPLES[name]), random.Random(name)
    for output, result in enumerate(op.results):
        edges = edges_of(op, output)
        assert not isinstance(edges, Declined)
        ranges: dict[Var, Interval] = {}
        index: list[Expr] = []
        for k, n in enumerate(result.shape):
            size = rng.randint(1, n)
            t, i = Var(f"t{k}"), Var(f"i{k}")
            ranges |= {t: Interval(0, (n - 1) // size), i: Interval(0, size - 1)}
            index.append(t * size + i)
        made: list[Var] = []

        def provide(size: int, made: list[Var] = made, ranges: dict[Var, Interval] = ranges) -> Expr:
            made.append(Var(f"r{len(made)}"))
            ranges[made[-1]] = Interval(0, size - 1)
            return as_expr(made[-1])

        found = reads_at(edges, op, tuple(index), ranges, provide, RuntimeTable(ranges))
        for _ in range(20):
            values: dict[Var, Any] = {v: rng.randint(b.lower, max(b)) for v, b in ranges.items()}
            at = [int(evaluate(e, values)) for e in index]
            if any(x >= n for x, n in zip(at, result.shape, strict=True)):
                continue  # a tile that is cut
            numbers = Numbers([values[v] for v in made], [values[v] for v, _, _ in found.runtimes])
            op.definition.access(op, output, at, numbers)  # type: ignore[operator]
            read = [
                (r.operand, tuple([int(evaluate(e, values)) for e in r.index])) for r in found.reads
                if not r.never and all(c.lower <= evaluate(as_expr(c.expression), values) <= c.upper for c in r.conditions)
            ]  # fmt: skip
            assert read == numbers.read_at
            assert [(k, tuple([int(evaluate(e, values)) for e in x])) for _, k, x in found.runtimes] == numbers.asked


def test_what_is_compiled_is_the_maps() -> None:
    """Planning and proving run access functions on symbols alone, once for each structure: nothing reads them a second time."""
    accesses = {d.access.__code__ for d in definitions() if not isinstance(d.access, Declined)}  # type: ignore[attr-defined]
    calls: list[tuple[str, str]] = []

    def see(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code in accesses and frame.f_back is not None:
            op = frame.f_locals["op"]
            types = tuple(str(v.type) for v in (*op.operands, *op.results))
            attributes = op.attributes if op.operands else {}
            calls.append((frame.f_back.f_code.co_qualname, f"{op.name} {types} {attributes} {frame.f_locals['output']}"))

    modules = [hlo.load(p) for p in PROGRAMS]
    before = sys.getprofile()
    clear_caches()
    sys.setprofile(see)
    try:
        for m in modules:
            for f in tiling.plan(m, machine=Machine()).fusions:
                assert tiling.prove(finished(f.schedule)).holds
    finally:
        sys.setprofile(before)
    assert {caller for caller, _ in calls} == {"edges_of"}
    structures = [s for _, s in calls]
    assert len(structures) > 10
    assert sorted(structures) == sorted(set(structures))


def test_what_runs_while_programs_are_compiled() -> None:
    """Elements come from the edges' maps, runtime values from what maps say of them, boxes from the tile algebra's covers."""
    modules = [hlo.load(p) for p in (PROGRAMS[1], ROOT / "tests/programs/group_norm.mlir")]
    ran = called(modules, lambda m: tiling.plan(m, machine=Machine()))
    assert {"edges_of", "EdgeMaps.of"} <= ran["indexing/deriving/edges"]
    assert "Reads.__init__" in ran["indexing/deriving/derive"]
    assert "known_element" in ran["indexing/deriving/runtime"]
    assert {"cover_of", "_inside_a_period"} <= ran["tiling/tiles/covers"]


def test_ops_of_one_structure_share_their_maps() -> None:
    text = """func.func @main(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
      %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
      %1 = stablehlo.transpose %y, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
      %2 = stablehlo.reshape %y : (tensor<8x4xf32>) -> tensor<4x8xf32>
      return %0, %1, %2 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
    }"""
    a, b, c, _ = hlo.parse(text).entry.body.ops
    assert edges_of(a) is edges_of(b) is not edges_of(c)


def test_maps_of_a_kernels_edges_are_seen() -> None:
    (fusion,) = tiling.plan(hlo.load(PROGRAMS[0]), machine=Machine()).fusions
    assert str(fusion.reads[0]) == "%0 reads %arg0 at (d0)[s0] -> (d0, s0), domain: d0 in [0, 4095], s0 in [0, 4095]"
    assert len(fusion.reads) == sum(len(op.operands) for op in fusion.ops)


def test_covers_of_range_variables_alone_are_exact() -> None:
    s = Var("s0")
    cover = cover_of((s + 1) // 2, {}, {s: Interval(0, 3)}, {s: Interval(0, 3)})
    assert [str(e) for e in (cover.start + cover.shift, cover.span)] == ["0", "2"]


@pytest.mark.parametrize(
    ("size", "expression", "start", "span"),
    [(24, D // 12, "t0 * 2", 1), (4, D // 12, "t0 floordiv 3", 0), (4, D % 12, "(t0 mod 3) * 4", 3), (24, D % 12, "0", 11),
     (24, (D + 3) // 12, "t0 * 2", 2), (5, D // 12, None, 1), (5, D % 12, None, 11)],
)  # fmt: skip
def test_covers_of_divisions_where_a_tile_begins_at_a_known_place(
    size: int, expression: Expr, start: str | None, span: int
) -> None:
    """With numbers for sizes: exact where all of a tile's numbers lie alike to the divisor, on every tile."""
    d, t = D, Var("t0")
    cover = cover_of(expression, {d: (t * size, as_expr(size - 1))}, {}, {t: Interval(0, 9), d: Interval(0, 10 * size - 1)})
    assert (str(cover.start) if cover.separates else None, cover.span) == (start, as_expr(span))
    for k in range(10):
        first = int(evaluate(cover.start + cover.shift, {t: k}))
        found = {int(evaluate(expression, {d: k * size + y})) for y in range(size)}
        assert found <= set(range(first, first + span + 1))
        assert not cover.separates or (min(found), max(found)) == (first, first + span)


BY_ROWS = """func.func @main(%x: tensor<256x9xf32>, %i: tensor<256x1xi32>) -> tensor<256x7xf32> {
  %n = stablehlo.iota dim = 0 : tensor<256x1xi32>
  %at = stablehlo.concatenate %n, %i, dim = 1 : (tensor<256x1xi32>, tensor<256x1xi32>) -> tensor<256x2xi32>
  %r = "stablehlo.gather"(%x, %at) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 7>}>
    : (tensor<256x9xf32>, tensor<256x2xi32>) -> tensor<256x7xf32>
  return %r : tensor<256x7xf32> }"""


def test_a_last_tile_reads_what_the_maps_of_all_say() -> None:
    """Rows 12 t + i of a last tile that goes on beyond 255: a number that the maps knew was a variable of the loops, and what it
    was looked for in had no room for other rows."""
    module = hlo.parse(BY_ROWS)
    (result,) = module.entry.body.results
    t, i, j = Var("t"), Var("i"), Var("j")
    for tasks in (20, 21):
        ranges = {t: Interval(0, tasks), i: Interval(0, 11), j: Interval(0, 6)}
        builder = ElementBuilder(ranges, lambda v: v.op is None)
        load = builder.at(result, (t * 12 + i, as_expr(j)))
        assert len(builder.table.variables) == 1
        assert isinstance(load, Load)
        assert str(load.index[0]) == ("i + t * 12" if tasks == 20 else "min(i + t * 12, 255)")
