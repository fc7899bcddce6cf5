# ruff: noqa: E501  (programs are written as they are printed)
"""Sorts along a dimension that is spread: column sort, where it sends less than gathering everything."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
import interp
from tests.mesh.global_programs import module_text
from tests.mesh.test_partition import BYTES_ALONE, on_a_grid
from tiling.mesh.partition import Partitioned, partition

ZERO = """%z = stablehlo.constant dense<0.0> : tensor<f32>
    %p0 = stablehlo.compare EQ, %p, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %q0 = stablehlo.compare EQ, %q, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %f = stablehlo.select %p0, %z, %p : tensor<i1>, tensor<f32>
    %g = stablehlo.select %q0, %z, %q : tensor<i1>, tensor<f32>
    %s = stablehlo.compare DIRECTION, %f, %g, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>"""
FLOATS = """  %r = "stablehlo.sort"(%a0) ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    """ + ZERO + """
    stablehlo.return %s : tensor<i1> }) {dimension = AXIS : i64, is_stable = true} : (tensor<SHAPExf32>) -> tensor<SHAPExf32>
  return %r : tensor<SHAPExf32>"""
INTEGERS = """  %r = "stablehlo.sort"(%a0) ({ ^bb0(%p: tensor<i32>, %q: tensor<i32>):
    %s = stablehlo.compare DIRECTION, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %s : tensor<i1> }) {dimension = AXIS : i64, is_stable = true} : (tensor<SHAPExi32>) -> tensor<SHAPExi32>
  return %r : tensor<SHAPExi32>"""
PAIRS = """  %r:2 = "stablehlo.sort"(%a0, %a1) ({ ^bb0(%p: tensor<i32>, %q: tensor<i32>, %v: tensor<f32>, %w: tensor<f32>):
    %s = stablehlo.compare DIRECTION, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %s : tensor<i1> }) {dimension = AXIS : i64, is_stable = true} : (tensor<SHAPExi32>, tensor<SHAPExf32>) -> (tensor<SHAPExi32>, tensor<SHAPExf32>)
  return %r#0, %r#1 : tensor<SHAPExi32>, tensor<SHAPExf32>"""


def checked(body: str, elements: tuple[str, ...], shape: tuple[int, ...], axis: int, mesh: str, spread: str, direction: str = "LT") -> Partitioned:
    """The partition; results have the bits of the evaluator's, of few different numbers in a random order."""
    written = "x".join(map(str, shape))
    text = body.replace("AXIS", str(axis)).replace("SHAPE", written).replace("DIRECTION", direction)
    values = [(f"{written}x{e}", spread) for e in elements]
    module = hlo.parse(module_text(mesh, values, text, values))
    hlo.verify(module)
    made = partition(module, network=BYTES_ALONE)
    chance = np.random.default_rng(5)
    arrays = tuple(chance.integers(-40, 40, shape).astype(a.tensor.dtype) for a in module.entry.arguments)
    for a in arrays:
        if a.dtype.kind == "f":
            a[chance.random(shape) < 0.2] = 0.0
            a[chance.random(shape) < 0.2] = -0.0
            a[chance.random(shape) < 0.05] = np.nan
    for found, whole in zip(on_a_grid(made, arrays), interp.evaluate(module, *arrays), strict=True):
        assert found.tobytes() == np.asarray(whole).tobytes()
    return made


SENT = ("all_to_all", "all_to_all", "permute", "permute")


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize(("mesh", "spread", "rows"), [
    ('"x"=4', '[{"x"}]', 20), ('"x"=4', '[{"x"}]', 36), ('"x"=2, "y"=2', '[{"y", "x"}]', 20), ('"x"=8', '[{"x"}]', 104), ('"x"=3', '[{"x"}]', 9),
])  # fmt: skip
def test_integers_send_less_than_three_tiles(mesh: str, spread: str, rows: int, direction: str) -> None:
    """As many tiles for any number of processes; of three, two are gathered."""
    n = {20: 4, 36: 4, 104: 8, 9: 3}[rows]
    made = checked(INTEGERS, ("i32",), (n * rows,), 0, mesh, spread, direction)
    if n > 3:
        assert tuple(c.kind for c in made.communications) == SENT
        assert made.sent_bytes == 4 * (2 * (rows - rows // n) + 2 * (rows // 2)) < 4 * rows * (n - 1)
    else:
        assert [c.kind for c in made.communications] == ["all_gather"]


def test_a_row_is_sorted_along_a_dimension_of_its_own() -> None:
    """Two rows on eight processes: rows are too few for them all. The other dimension's tiles stay."""
    made = checked(INTEGERS, ("i32",), (3, 8 * 104, 5), 1, '"x"=8', '[{}, {"x"}, {}]')
    assert {c.kind for c in made.communications} <= {"all_to_all", "permute"}
    made = checked(INTEGERS, ("i32",), (2, 4 * 20), 1, '"x"=4, "y"=2', '[{"y"}, {"x"}]')
    assert {c.kind for c in made.communications} <= {"all_to_all", "permute"}


def test_equal_elements_keep_their_order() -> None:
    """Zeros of either sign are equal; values go with their keys. Numbers travel with them."""
    made = checked(FLOATS, ("f32",), (8 * 104,), 0, '"x"=8', '[{"x"}]')
    assert tuple(c.kind for c in made.communications) == ("all_to_all",) * 4 + ("permute",) * 4
    assert made.sent_bytes < 4 * 104 * 7
    made = checked(PAIRS, ("i32", "f32"), (8 * 104,), 0, '"x"=8', '[{"x"}]', "GT")
    assert len(made.communications) == 12 and made.sent_bytes < 8 * 104 * 7


def test_few_elements_are_gathered() -> None:
    """Columns of less than 2 (s - 1)^2 elements, or that s does not divide, and comparators that are no order."""
    assert [c.kind for c in checked(INTEGERS, ("i32",), (64,), 0, '"x"=4', '[{"x"}]').communications] == ["all_gather"]
    assert [c.kind for c in checked(INTEGERS, ("i32",), (4 * 21,), 0, '"x"=4', '[{"x"}]').communications] == ["all_gather"]
    odd = INTEGERS.replace("DIRECTION, %p, %q", "LT, %p, %p")
    assert [c.kind for c in checked(odd, ("i32",), (8 * 104,), 0, '"x"=8', '[{"x"}]').communications] == ["all_gather"]
