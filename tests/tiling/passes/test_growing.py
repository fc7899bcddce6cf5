"""Windows that grow are scans for every body that folds in any order; other bodies keep theirs."""

from __future__ import annotations

import re

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.types import element_type
from tiling.elements.monoids import monoid_of
from tiling.loops.element_ir import Load, Scalar
from tiling.loops.ir import FoldStep
from tiling.loops.monoid import Monoid

LOG_ADD_EXP = """%m = stablehlo.maximum %a, %b : tensor<f32>
    %d = stablehlo.subtract %a, %b : tensor<f32>
    %n = stablehlo.compare NE, %d, %d, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %s = stablehlo.add %a, %b : tensor<f32>
    %e = stablehlo.abs %d : tensor<f32>
    %f = stablehlo.negate %e : tensor<f32>
    %g = stablehlo.exponential %f : tensor<f32>
    %h = stablehlo.log_plus_one %g : tensor<f32>
    %i = stablehlo.add %m, %h : tensor<f32>
    %z = stablehlo.select %n, %s, %i : tensor<i1>, tensor<f32>"""
LARGER = """%c = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %z = stablehlo.select %c, %a, %b : tensor<i1>, tensor<f32>"""
ROOT_OF_SQUARES = """%p = stablehlo.multiply %a, %a : tensor<f32>
    %q = stablehlo.multiply %b, %b : tensor<f32>
    %s = stablehlo.add %p, %q : tensor<f32>
    %z = stablehlo.sqrt %s : tensor<f32>"""
SUM_OF_SQUARES = """%q = stablehlo.multiply %b, %b : tensor<f32>
    %z = stablehlo.add %a, %q : tensor<f32>"""
FIRST = "%z = stablehlo.maximum %a, %a : tensor<f32>"
MEAN = """%h = stablehlo.constant dense<0.5> : tensor<f32>
    %s = stablehlo.add %a, %b : tensor<f32>
    %z = stablehlo.multiply %s, %h : tensor<f32>"""
HALF_SUM_LESS = """%s = stablehlo.subtract %a, %b : tensor<f32>
    %z = stablehlo.negate %s : tensor<f32>"""


def program(body: str, start: str, shape: tuple[int, int], axis: int, reverse: bool) -> hlo.Module:
    window = [n if k == axis else 1 for k, n in enumerate(shape)]
    last = shape[axis] - 1
    padding = [([0, last] if reverse else [last, 0]) if k == axis else [0, 0] for k in range(2)]
    s = "x".join(map(str, shape))
    return hlo.parse(f"""func.func @main(%x: tensor<{s}xf32>) -> tensor<{s}xf32> {{
  %start = stablehlo.constant dense<{start}> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %start) <{{padding = dense<{padding}> : tensor<2x2xi64>,
      window_dimensions = array<i64: {window[0]}, {window[1]}>}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    {body}
    stablehlo.return %z : tensor<f32>
  }}) : (tensor<{s}xf32>, tensor<f32>) -> tensor<{s}xf32>
  return %r : tensor<{s}xf32>
}}""")


def fold_of(body: str, start: float) -> FoldStep:
    """A fold by a body of what no pass looks at."""
    (op,) = [o for o in program(body, "0.0", (4, 4), 0, False).entry.body.ops if o.name == "stablehlo.reduce_window"]
    f32 = element_type("f32")
    return FoldStep((op.result,), (), (), (Load(op.operands[0], ()),), (Scalar(np.float32(start), f32),), op)


@pytest.mark.parametrize(
    ("body", "start", "holds"),
    [
        (LOG_ADD_EXP, -np.inf, True),
        (LOG_ADD_EXP, 0.0, False),  # 0 is not neutral
        (LARGER, -np.inf, True),
        (LARGER, 0.0, False),
        (ROOT_OF_SQUARES, 0.0, False),  # of one negative number it is the absolute value
        (SUM_OF_SQUARES, 0.0, False),
        (FIRST, 0.0, False),
        (MEAN, 0.0, False),
        (HALF_SUM_LESS, 0.0, False),
    ],
)
def test_what_folds_in_any_order(body: str, start: float, holds: bool) -> None:
    found = monoid_of(fold_of(body, start), (), {}, {})
    assert (isinstance(found, Monoid) and found.is_neutral) is holds, found


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("body", "start", "scans"), [(LOG_ADD_EXP, "0xFF800000", True), (LARGER, "0xFF800000", True),
                                                      (SUM_OF_SQUARES, "0.0", False), (MEAN, "0.0", False)])  # fmt: skip
def test_growing_windows(body: str, start: str, scans: bool, axis: int, reverse: bool) -> None:
    module = program(body, start, (24, 40), axis, reverse)
    x = np.random.default_rng(0).normal(size=(24, 40)).astype(np.float32) * 3
    x[3, 5], x[7, 7] = -np.inf, np.inf
    x[2, :2] = -np.inf
    executable = codegen.compile(module)
    assert not executable.fallbacks
    (loops,) = [k.source.count("for ") for k in executable.kernels]
    assert (loops == 3) is scans  # a task's loop and two more; windows have a third
    if scans:  # what is no monoid depends on the order, and the evaluator folds in pairs
        np.testing.assert_allclose(executable(x)[0], interp.evaluate(module, x)[0], rtol=3e-5, atol=1e-5)


@pytest.mark.parametrize(("body", "start"), [("add", "(0.0, 0.0)"), ("multiply", "(1.0, 0.0)")])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_and_products_of_complex_numbers_are_scans(body: str, start: str, reverse: bool) -> None:
    """The neutral numbers of complex types were not known: each result was a fold of its own, 934 ms for 65,536 sums."""
    c = f"%z = stablehlo.{body} %a, %b : tensor<complex<f32>>"
    text = str(program(c.replace("complex<f32>", "f32"), "0.0", (3, 40), 1, reverse))
    module = hlo.parse(text.replace("f32", "complex<f32>").replace("dense<0.000000e+00>", f"dense<{start}>"))
    executable = codegen.compile(module)
    x = np.random.default_rng(0).standard_normal((2, 3, 40), np.float32)
    z = np.exp(1j * x[0]).astype(np.complex64) if body == "multiply" else (x[0] + 1j * x[1]).astype(np.complex64)
    (found,), (expected,) = executable(z), interp.evaluate(module, z)
    np.testing.assert_allclose(found, np.asarray(expected), rtol=2e-5, atol=2e-5)
    assert "scan" in str(executable.plan)


@pytest.mark.parametrize(("shape", "row"), [((4, 500, 3), 1500), ((9, 20, 2), 40)])
def test_a_scan_across_short_rows_goes_along_all_of_them(shape: tuple[int, ...], row: int) -> None:
    """Running sums of points' coordinates over time: the innermost loop was one of three turns."""
    n, s = shape[0], "x".join(map(str, shape))
    module = hlo.parse(f"""func.func @main(%x: tensor<{s}xf32>) -> tensor<{s}xf32> {{
  %start = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %start) <{{padding = dense<[[{n - 1}, 0], [0, 0], [0, 0]]> : tensor<3x2xi64>,
      window_dimensions = array<i64: {n}, 1, 1>}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %z = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %z : tensor<f32>
  }}) : (tensor<{s}xf32>, tensor<f32>) -> tensor<{s}xf32>
  return %r : tensor<{s}xf32>
}}""")
    machine = tiling.Machine(cores=1, vector_bytes=64, vector_registers=32)
    executable = codegen.compile(tiling.plan(module, machine=machine, supports=codegen.supports))
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    np.testing.assert_array_equal(executable(x)[0], np.cumsum(x, 0))
    inner = [int(e) for e in re.findall(r"for i2 in range\((\d+)\)", executable.source)]
    assert inner == [row], executable.source
