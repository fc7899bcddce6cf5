"""Folds that compare and choose run in lanes where that is proved right: places of extrema with ties, NaN, infinities, zeros."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tests.pairs import fast_cover
from tiling.loops.ir import LoopKind, Nest
from tiling.passes.order_loops import order_loops

MACHINE = tiling.Machine(vector_bytes=64, vector_registers=32)
DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "ui8": np.uint8}
STARTS = {
    ("GT", "f32"): "0xFF800000", ("LT", "f32"): "0x7F800000", ("GT", "f64"): "0xFFF0000000000000", ("GT", "f16"): "0xFC00",
    ("GT", "bf16"): "0xFF80", ("GT", "i32"): "-2147483648", ("LT", "i32"): "2147483647", ("GT", "ui8"): "0", ("LT", "ui8"): "255",
}  # fmt: skip
BODY = {
    "place": """%c = stablehlo.compare {direction}, %a, %b : (tensor<{t}>, tensor<{t}>) -> tensor<i1>
      %n = stablehlo.compare NE, %a, %a : (tensor<{t}>, tensor<{t}>) -> tensor<i1>
      %p = stablehlo.or %c, %n : tensor<i1>
      %e = stablehlo.compare EQ, %a, %b : (tensor<{t}>, tensor<{t}>) -> tensor<i1>
      %l = stablehlo.compare LT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %f = stablehlo.and %e, %l : tensor<i1>
      %q = stablehlo.or %p, %f : tensor<i1>
      %x = stablehlo.select %p, %a, %b : tensor<i1>, tensor<{t}>
      %y = stablehlo.select %q, %i, %j : tensor<i1>, tensor<i32>""",
    # The element that stands at the end, which no two parts agree on unless they are in order.
    "last": """%c = stablehlo.compare EQ, %a, %a : (tensor<{t}>, tensor<{t}>) -> tensor<i1>
      %x = stablehlo.select %c, %b, %b : tensor<i1>, tensor<{t}>
      %y = stablehlo.select %c, %j, %j : tensor<i1>, tensor<i32>""",
    # The values' sum, and the last place: a sum is more than a choice.
    "sum": """%x = stablehlo.add %a, %b : tensor<{t}>
      %c = stablehlo.compare LT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %y = stablehlo.select %c, %j, %i : tensor<i1>, tensor<i32>""",
}


def program(n: int, m: int, t: str = "f32", direction: str = "GT", body: str = "place", falling: bool = False) -> str:
    rows = f"(tensor<{n}x{m}x{t}>, tensor<{n}x{m}xi32>, tensor<{t}>, tensor<i32>)"
    order = f"""%top = stablehlo.constant dense<{m - 1}> : tensor<{n}x{m}xi32>
    %k = stablehlo.subtract %top, %up : tensor<{n}x{m}xi32>""" if falling else ""
    return f"""func.func @main(%v: tensor<{n}x{m}x{t}>) -> (tensor<{n}x{t}>, tensor<{n}xi32>) {{
    %up = stablehlo.iota dim = 1 : tensor<{n}x{m}xi32>
    {order}
    %s = stablehlo.constant dense<{STARTS[direction, t]}> : tensor<{t}>
    %z = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.reduce(%v init: %s), (%{"k" if falling else "up"} init: %z) across dimensions = [1]
      : {rows} -> (tensor<{n}x{t}>, tensor<{n}xi32>)
      reducer(%a: tensor<{t}>, %b: tensor<{t}>) (%i: tensor<i32>, %j: tensor<i32>) {{
      {BODY[body].format(direction=direction, t=t)}
      stablehlo.return %x, %y : tensor<{t}>, tensor<i32>
    }}
    return %r#0, %r#1 : tensor<{n}x{t}>, tensor<{n}xi32>
  }}"""


def elements(n: int, m: int, t: str) -> np.ndarray:
    """Rows with many ties; then, where there are floats, rows of NaNs, infinities and zeros of both signs."""
    rng = np.random.default_rng(n * m)
    if not t.endswith(("16", "32", "64")) or t.startswith(("i", "u")):
        return rng.integers(0, 100, (n, m)).astype(DTYPES[t])
    x = rng.integers(-20, 20, (n, m)).astype(np.float64)
    x[1, [3, m // 2, m - 1]] = np.nan
    x[2] = -np.inf
    x[3] = np.nan
    x[4] = np.inf
    x[5] = np.where(np.arange(m) % 3 == 1, 0.0, -0.0)
    x[6, m - 1] = np.nan
    return x.astype(DTYPES[t])


def nests(plan: tiling.Plan) -> int:
    return sum(isinstance(s, Nest) for f in plan.fusions for p in f.schedule.phases for s in p.steps)


def agrees(text: str, x: np.ndarray) -> codegen.Executable:
    module = hlo.parse(text)
    executable = codegen.compile(module)
    assert not executable.fallbacks
    for found, expected in zip(executable(x), interp.evaluate(module, x), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
    return executable


ROWS = [63, 64, 80, 127, 128, 700, 2048]


@pytest.mark.parametrize(("m", "direction"), fast_cover(itertools.product(ROWS, ["GT", "LT"]), strength=1))
def test_places_of_extrema_over_rows(m: int, direction: str) -> None:
    """Rows of 80 classes, computed as they are compared, took 6 ns an element: nothing of it was in vectors."""
    executable = agrees(program(9, m, direction=direction), elements(9, m, "f32"))
    assert (nests(executable.plan) > 1) == (m >= 64)


@pytest.mark.parametrize(("t", "direction"), [k[::-1] for k in STARTS if k[1] != "f32"])
def test_places_of_extrema_in_every_type(t: str, direction: str) -> None:
    assert nests(agrees(program(9, 512, t, direction), elements(9, 512, t)).plan) > 1


@pytest.mark.parametrize(("m", "t"), fast_cover(itertools.product([4, 10, 16, 50], ["f32", "bf16", "ui8"]), strength=1))
def test_short_rows_are_compared_beside_each_other(m: int, t: str) -> None:
    plan = agrees(program(75, m, t), elements(75, m, t)).plan
    (nest,) = (s for s in plan.fusions[0].schedule.main.steps if isinstance(s, Nest))
    buffers = {id(b.value): b for b in plan.fusions[0].schedule.buffers}
    assert order_loops(nest, lambda load: load.buffer or buffers[id(load.value)]).loops[-1].kind is LoopKind.PARALLEL
    assert tiling.prove(plan).holds


def test_short_rows_beside_each_other_are_folded_in_order() -> None:
    x = np.arange(75 * 20, dtype=np.float32).reshape(75, 20) % 77
    agrees(program(75, 20, body="last"), x)
    agrees(program(75, 20, body="sum"), x)


def test_a_place_in_a_long_row_is_found_by_pieces() -> None:
    x = elements(9, 1 << 17, "f32")
    for row in range(9):
        executable = agrees(program(1, 1 << 17), x[row : row + 1])
        assert len(executable.plan.fusions[0].schedule.phases) == 2


@pytest.mark.parametrize(("body", "falling"), [("last", False), ("sum", False), ("place", True)])
def test_what_depends_on_the_order_runs_in_order(body: str, falling: bool) -> None:
    text = program(4, 512, body=body, falling=falling)
    assert nests(codegen.compile(hlo.parse(text)).plan) == 1
    x = np.arange(4 * 512, dtype=np.float32).reshape(4, 512) % 77
    if body != "sum":
        agrees(text, x)


def test_schedules_in_lanes_are_proved() -> None:
    plan = tiling.plan(hlo.parse(program(9, 700)), machine=MACHINE, supports=codegen.supports)
    assert nests(plan) == 3  # whole blocks, the rest, the lanes
    assert tiling.prove(plan).holds


def test_a_fold_of_several_values_in_one_task_is_planned() -> None:
    """The search for products to cut in pieces took every fold for one of a single value."""
    assert nests(agrees(program(9, 4096), elements(9, 4096, "f32")).plan) > 1
