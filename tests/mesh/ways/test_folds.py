# ruff: noqa: E501  (programs are written as they are printed)
"""Folds of several results: partial results are exchanged and folded once more, by the op's own body."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
import interp
from tests.mesh.global_programs import module_text
from tests.mesh.test_partition import BYTES_ALONE, on_a_grid
from tiling.mesh.partition import Partitioned, partition

PLACE = """    %g = stablehlo.compare GT, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %n = stablehlo.compare NE, %p, %p, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %t = stablehlo.or %g, %n : tensor<i1>
    %e = stablehlo.compare EQ, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %l = stablehlo.compare LT, %i, %j, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %b = stablehlo.and %e, %l : tensor<i1>
    %o = stablehlo.or %t, %b : tensor<i1>
    %s = stablehlo.select %t, %p, %q : tensor<i1>, tensor<f32>
    %r = stablehlo.select %o, %i, %j : tensor<i1>, tensor<i32>"""
"""The greater number and its place: the first of equal ones, a NaN before all."""

BEST = """    %s = stablehlo.maximum %p, %q : tensor<f32>
    %g = stablehlo.compare GE, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %e = stablehlo.compare EQ, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %l = stablehlo.minimum %i, %j : tensor<i32>
    %t = stablehlo.select %g, %i, %j : tensor<i1>, tensor<i32>
    %r = stablehlo.select %e, %l, %t : tensor<i1>, tensor<i32>"""
"""The same of numbers among which is no NaN, with the smaller place of equal ones chosen by a minimum."""

COUNTED = """    %s = stablehlo.maximum %p, %q : tensor<f32>
    %r = stablehlo.add %i, %j : tensor<i32>"""


def text(shape: tuple[int, int], sharding: str, dims: str, body: str, made: str, wanted: str, mesh: str = '"x"=4', start: int = 0) -> str:
    """A fold of an array and the numbers of its elements."""
    n, m = shape
    result = f"tensor<{made}f32>, tensor<{made}i32>"
    lines = f"""  %k = stablehlo.iota dim = 0 : tensor<{n * m}xi32>
  %c = stablehlo.reshape %k : (tensor<{n * m}xi32>) -> tensor<{n}x{m}xi32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<{start}> : tensor<i32>
  %r:2 = stablehlo.reduce(%a0 init: %low), (%c init: %zero) across dimensions = {dims}
    : (tensor<{n}x{m}xf32>, tensor<{n}x{m}xi32>, tensor<f32>, tensor<i32>) -> ({result})
    reducer(%p: tensor<f32>, %q: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {{
{body}
    stablehlo.return %s, %r : tensor<f32>, tensor<i32> }}
  return %r#0, %r#1 : {result}"""
    return module_text(mesh, [(f"{n}x{m}xf32", sharding)], lines, [(f"{made}f32", wanted), (f"{made}i32", wanted)])


def checked(program: str, has_nan: bool = True) -> Partitioned:
    """The partition, whose results have the bits of the evaluator's; there are ties, infinities and, in one column, NaN."""
    module = hlo.parse(program)
    hlo.verify(module)
    made = partition(module, network=BYTES_ALONE)
    chance = np.random.default_rng(7)
    (x,) = (np.asarray(chance.integers(-3, 3, a.shape), np.float32) for a in module.entry.arguments)
    x[chance.random(x.shape) < 0.2] = -np.inf
    x[:, 1] = -np.inf
    if has_nan:
        x[-1, 2] = np.nan
    for found, whole in zip(on_a_grid(made, (x,)), interp.evaluate(module, x), strict=True):
        np.testing.assert_array_equal(found, whole)
    return made


@pytest.mark.parametrize("body", [PLACE, BEST])
@pytest.mark.parametrize(("mesh", "sharding"), [('"x"=4', '[{"x"}, {}]'), ('"x"=4', '[{}, {"x"}]'), ('"x"=2, "y"=2', '[{"x"}, {"y"}]')])
@pytest.mark.parametrize("shape", [(8, 16), (9, 14), (5, 7)])
def test_the_greatest_of_all_and_its_place_send_a_number_and_a_place(
    shape: tuple[int, int], mesh: str, sharding: str, body: str
) -> None:  # fmt: skip
    """Where tiles reach over an end, too: the initial values are there."""
    made = checked(text(shape, sharding, "[0, 1]", body, "", "[]", mesh), body == PLACE)
    assert [(c.kind, c.sent_bytes) for c in made.communications] == [("all_gather", 12)] * 2, made.explain()
    assert not made.kept_whole


def test_results_are_exchanged_in_parts_where_that_is_less() -> None:
    """Each process folds a part of what all have: 2 * 3/4 of the partial results, not 3 times these."""
    made = checked(text((8, 16), '[{"x"}, {}]', "[0]", PLACE, "16x", "[{}]"))
    assert [(c.kind, c.sent_bytes) for c in made.communications] == [("all_to_all", 48)] * 2 + [("all_gather", 48)] * 2


def test_results_that_are_wanted_in_parts_stay_there() -> None:
    made = checked(text((32, 16), '[{"x"}, {}]', "[0]", PLACE, "16x", '[{"x"}]'))
    assert [(c.kind, c.sent_bytes) for c in made.communications] == [("all_to_all", 48)] * 2


def test_results_that_are_folded_each_by_itself() -> None:
    made = checked(text((32, 6), '[{"x"}, {}]', "[0]", COUNTED, "6x", "[{}]"), False)
    assert [(c.kind, c.sent_bytes) for c in made.communications] == [("all_gather", 72)] * 2


@pytest.mark.parametrize(("body", "start"), [(COUNTED, 5), (PLACE.replace("%r = stablehlo.select %o, %i, %j", "%d = stablehlo.subtract %i, %j : tensor<i32>\n    %r = stablehlo.select %o, %i, %d"), 0)])
def test_a_fold_that_may_not_begin_in_each_part_has_all_of_it(body: str, start: int) -> None:
    """A sum from five would count it four times. Of a difference nothing is known."""
    program = text((32, 6), '[{"x"}, {}]', "[0]", body, "6x", "[{}]", start=start)
    first = checked(program, body != COUNTED).communications[0]
    assert (first.kind, first.value) == ("all_to_all", "%a0")
