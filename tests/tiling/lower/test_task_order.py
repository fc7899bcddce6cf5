"""The order in which tasks of products are counted: what they share stays in a core's own caches, where it fits."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tiling.loops.ir import Schedule


def product(rows: int, depth: int, columns: int) -> hlo.Module:
    left, right, out = (f"tensor<{a}x{b}xf32>" for a, b in ((rows, depth), (depth, columns), (rows, columns)))
    return hlo.parse(
        f"func.func @main(%a: {left}, %b: {right}) -> {out} {{\n"
        f"  %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({left}, {right}) -> {out}\n"
        f"  return %c : {out}\n}}"
    )


def scheduled(module: hlo.Module, sizes: tuple[int, ...], l2_bytes: int) -> Schedule:
    machine = tiling.Machine(cores=2, vector_bytes=64, vector_registers=32, l2_bytes=l2_bytes)
    return tiling.plan(module, machine=machine, pins=[tiling.Pin((0,), tile_sizes=sizes)]).fusions[0].schedule


def numbers(schedule: Schedule) -> list[tuple[str, int]]:
    return [(str(v), n) for v, n in schedule.main.tiles]


def test_rows_are_counted_fastest_where_columns_are_too_many_for_the_cache() -> None:
    """All rows of A are 512 KiB, all columns of B 5.5 MiB: the other order reads B anew for each of eleven blocks of rows."""
    schedule = scheduled(product(256, 512, 2752), (24, 64), 2 << 20)
    assert numbers(schedule) == [("t1", 43), ("t0", 11)]


def test_columns_are_counted_fastest_where_rows_are_too_many() -> None:
    assert numbers(scheduled(product(4096, 512, 256), (24, 64), 1 << 20)) == [("t0", 171), ("t1", 4)]


@pytest.mark.parametrize("l2_bytes", [1 << 20, 32 << 20])
def test_the_usual_order_stays_where_all_fits_or_nothing_does(l2_bytes: int) -> None:
    rows = 192 if l2_bytes > 1 << 20 else 4096
    assert [v for v, _ in numbers(scheduled(product(rows, 1024, rows), (64, 64), l2_bytes))] == ["t0", "t1"]


@pytest.mark.parametrize("sizes", [(24, 64), (7, 48), (250, 64)])
def test_results_and_proofs_do_not_depend_on_it(sizes: tuple[int, int]) -> None:
    module = product(100, 64, 333)
    machine = tiling.Machine(cores=2, vector_bytes=64, vector_registers=32, l2_bytes=60 << 10)
    plan = tiling.plan(module, machine=machine, pins=[tiling.Pin((0,), tile_sizes=sizes)])
    if sizes[0] < 100:
        assert [str(v) for v, n in plan.fusions[0].schedule.main.tiles if n > 1] == ["t1", "t0"]
    assert tiling.prove(plan.fusions[0]).holds
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((100, 64)).astype(np.float32), rng.standard_normal((64, 333)).astype(np.float32)
    (found,), (expected,) = codegen.compile(plan)(a, b), interp.evaluate(module, a, b)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
