"""Loops over the elements of rows become loops over rows and what each has."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tiling.loops.ir import Nest, Scatter
from tiling.pipeline import finished

MACHINE = tiling.Machine(cores=2, vector_bytes=64, vector_registers=32)


def flattened(rows: int, columns: int, of_rows: str = "logarithm") -> hlo.Module:
    """log(y)[row] + x as one row of numbers: what a choice among all of them reads."""
    m, y, flat = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}xf32>", f"tensor<{rows * columns}xf32>"
    own = f"%l = stablehlo.log %y : {y}\n  " if of_rows == "logarithm" else f"%l = stablehlo.negate %y : {y}\n  "
    return hlo.parse(f"""func.func @main(%x: {m}, %y: {y}) -> {flat} {{
  {own}%b = stablehlo.broadcast_in_dim %l, dims = [0] : ({y}) -> {m}
  %s = stablehlo.add %x, %b : {m}
  %r = stablehlo.reshape %s : ({m}) -> {flat}
  return %r : {flat} }}""")


def extents(module: hlo.Module) -> list[list[int]]:
    (kernel,) = tiling.plan(module, machine=MACHINE, supports=codegen.supports).fusions
    assert tiling.prove(kernel).holds
    return [[x.extent for x in s.loops] for p in finished(kernel.schedule).phases for s in p.steps if isinstance(s, Nest)]


@pytest.mark.parametrize(
    ("rows", "columns", "expected"),
    [
        (5, 400, [[5, 400]]),  # a beam's scores, each less its row's logarithm: that was taken 2000 times
        (3, 17, [[3, 17]]),
        (40, 8, [[320]]),  # rows of less than a vector
        (1, 64, [[64]]),
    ],
)
def test_what_is_a_rows_alone_is_computed_once_for_it(rows: int, columns: int, expected: list[list[int]]) -> None:
    module = flattened(rows, columns)
    assert extents(module) == expected
    rng = np.random.default_rng(rows)
    x, y = rng.standard_normal((rows, columns), np.float32), rng.random(rows, np.float32) + 0.5
    (found,) = codegen.compile(tiling.plan(module, machine=MACHINE, supports=codegen.supports))(x, y)
    np.testing.assert_allclose(found, interp.evaluate(module, x, y)[0], rtol=1e-6)


def test_rows_of_rows() -> None:
    a, b, c = 4, 6, 32
    m, flat = f"tensor<{a}x{b}x{c}xf32>", f"tensor<{a * b * c}xf32>"
    module = hlo.parse(f"""func.func @main(%x: {m}, %y: tensor<{a}xf32>, %z: tensor<{b}xf32>) -> {flat} {{
  %p = stablehlo.broadcast_in_dim %y, dims = [0] : (tensor<{a}xf32>) -> {m}
  %q = stablehlo.broadcast_in_dim %z, dims = [1] : (tensor<{b}xf32>) -> {m}
  %s = stablehlo.multiply %x, %p : {m}
  %t = stablehlo.add %s, %q : {m}
  %r = stablehlo.reshape %t : ({m}) -> {flat}
  return %r : {flat} }}""")
    assert extents(module) == [[a * b, c]]  # which row it is told once for each
    rng = np.random.default_rng(1)
    given = [rng.standard_normal(s, np.float32) for s in ((a, b, c), (a,), (b,))]
    (found,) = codegen.compile(tiling.plan(module, machine=MACHINE, supports=codegen.supports))(*given)
    np.testing.assert_allclose(found, interp.evaluate(module, *given)[0], rtol=1e-6)


def test_a_loop_over_all_elements_stays_where_nothing_is_a_rows_alone() -> None:
    m, flat = "tensor<5x400xf32>", "tensor<2000xf32>"
    module = hlo.parse(f"""func.func @main(%x: {m}) -> {flat} {{
  %s = stablehlo.tanh %x : {m}
  %r = stablehlo.reshape %s : ({m}) -> {flat}
  return %r : {flat} }}""")
    assert extents(module) == [[2000]]


def test_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_SKIP", "unflatten_loops")
    assert extents(flattened(5, 400)) == [[2000]]


def innermost(module: hlo.Module, *arrays: np.ndarray) -> list[int]:
    """How many turns innermost loops have, once the kernel gives the evaluator's numbers and its loops are proved."""
    executable = codegen.compile(tiling.plan(module, machine=tiling.Machine(1, 64, 32), supports=codegen.supports))
    for found, expected in zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_array_equal(found, np.asarray(expected))
    (kernel,) = executable.plan.fusions
    assert tiling.prove(kernel).holds
    steps = [s for p in finished(kernel.schedule).phases for s in p.steps if isinstance(s, Nest)]
    return [x.extent for s in steps for x in s.loops[-1:]]


@pytest.mark.parametrize(("high", "low"), [(1, 1), (0, 2)])
def test_rows_of_few_channels_are_one_row_where_only_pixels_are_asked_for(low: int, high: int) -> None:
    """The border around an image of three colours: a test for each colour of each pixel, in a loop of three turns."""
    n, m = 6, 50 + low + high
    module = hlo.parse(f"""func.func @main(%x: tensor<6x50x3xf32>) -> tensor<{n}x{m}x3xf32> {{
  %z = stablehlo.constant dense<2.0> : tensor<f32>
  %r = stablehlo.pad %x, %z, low = [0, {low}, 0], high = [0, {high}, 0], interior = [0, 0, 0]
       : (tensor<6x50x3xf32>, tensor<f32>) -> tensor<{n}x{m}x3xf32>
  return %r : tensor<{n}x{m}x3xf32> }}""")
    assert innermost(module, np.random.default_rng(0).standard_normal((6, 50, 3), np.float32)) == [3 * m]


def test_a_table_is_looked_up_along_rows_of_few_channels() -> None:
    """Colours by a table, of which the second image's come from the end: places known at run time are computed in one loop."""
    t = "tensor<8x40x3x"
    module = hlo.parse(f"""func.func @main(%x: {t}i32>, %t: tensor<99xf32>) -> {t}f32> {{
  %a = stablehlo.slice %x [7:8, 0:40, 0:3] : ({t}i32>) -> tensor<1x40x3xi32>
  %b = stablehlo.slice %x [0:7, 0:40, 0:3] : ({t}i32>) -> tensor<7x40x3xi32>
  %c = stablehlo.concatenate %a, %b, dim = 0 : (tensor<1x40x3xi32>, tensor<7x40x3xi32>) -> {t}i32>
  %i = stablehlo.add %x, %c : {t}i32>
  %j = stablehlo.reshape %i : ({t}i32>) -> {t}1xi32>
  %g = "stablehlo.gather"(%t, %j) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
       index_vector_dim = 3>, slice_sizes = array<i64: 1>}}> : (tensor<99xf32>, {t}1xi32>) -> {t}f32>
  return %g : {t}f32> }}""".replace("x1xi32>", "x1xi32>"))
    rng = np.random.default_rng(0)
    arrays = rng.integers(0, 49, (8, 40, 3), np.int32), rng.standard_normal(99, np.float32)
    assert min(innermost(module, *arrays)) >= 120


def test_updates_add_whole_rows_of_rows() -> None:
    """Segments' sums of (20, 3): an update was a loop of three turns in one of twenty."""
    module = hlo.parse("""func.func @main(%s: tensor<5xROW>, %i: tensor<9xi32>, %u: tensor<9xROW>) -> tensor<5xROW> {
  %j = stablehlo.reshape %i : (tensor<9xi32>) -> tensor<9x1xi32>
  %r = "stablehlo.scatter"(%s, %j, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1, 2],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %z = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %z : tensor<f32>
  }) : (tensor<5xROW>, tensor<9x1xi32>, tensor<9xROW>) -> tensor<5xROW>
  return %r : tensor<5xROW> }""".replace("ROW", "20x3xf32"))
    plan = tiling.plan(module, machine=MACHINE, supports=codegen.supports)
    assert tiling.prove(plan).holds
    steps = [s for p in finished(plan.fusions[0].schedule).phases for s in p.steps if isinstance(s, Scatter)]
    assert [[x.extent for x in s.loops] for s in steps] == [[9, 60]]
    rng = np.random.default_rng(0)
    x, u = (rng.integers(-9, 9, (n, 20, 3)).astype(np.float32) for n in (5, 9))
    i = rng.integers(-1, 6, 9).astype(np.int32)
    np.testing.assert_array_equal(codegen.compile(plan)(x, i, u)[0], interp.evaluate(module, x, i, u)[0])


def test_what_is_a_rows_alone_keeps_rows_of_few_elements_apart() -> None:
    """exp(s[i]) for each row of five, which comes from x or from y: it was computed, and gathered, for each element."""
    x, s, t = "tensor<40x5xf32>", "tensor<80xf32>", "tensor<80x5xf32>"
    module = hlo.parse(f"""func.func @main(%x: {x}, %y: {x}, %s: {s}) -> {t} {{
  %c = stablehlo.concatenate %x, %y, dim = 0 : ({x}, {x}) -> {t}
  %n = stablehlo.abs %s : {s}
  %b = stablehlo.broadcast_in_dim %n, dims = [0] : ({s}) -> {t}
  %r = stablehlo.multiply %c, %b : {t}
  return %r : {t} }}""")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(n, np.float32) for n in ((40, 5), (40, 5), 80)]
    assert innermost(module, *arrays) == [5]
