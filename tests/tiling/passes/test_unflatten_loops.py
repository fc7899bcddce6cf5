"""Loops over the elements of rows become loops over rows and what each has."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tiling.loops.ir import Nest
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
