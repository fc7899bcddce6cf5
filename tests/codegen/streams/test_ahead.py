"""Rows at places known only at run time are asked for ahead of their turn, and stay right to the last one."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp

TAKE = """func.func @main(%x: tensor<{n}x{w}xf32>, %i: tensor<{k}x1xi32>) -> tensor<{k}x{w}xf32> {{
  %0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, {w}>}}>
    : (tensor<{n}x{w}xf32>, tensor<{k}x1xi32>) -> tensor<{k}x{w}xf32>
  return %0 : tensor<{k}x{w}xf32>
}}"""


@pytest.mark.parametrize(
    ("n", "w", "k", "ahead"),
    [
        (9000, 128, 300, True),
        (9000, 128, 1, False),  # no row follows
        (5000, 500, 37, True),
        (100, 128, 300, False),  # the caches hold the table
        (300000, 4, 300, False),  # a row is part of a line
    ],
)
@pytest.mark.machine("avx512")
def test_rows_of_a_table(n: int, w: int, k: int, ahead: bool) -> None:
    module = hlo.parse(TAKE.format(n=n, w=w, k=k))
    rng = np.random.default_rng(0)
    table = rng.standard_normal((n, w), np.float32)
    places = rng.integers(-5, n + 5, (k, 1)).astype(np.int32)  # those outside are clamped
    executable = codegen.compile(module)
    assert not executable.fallbacks and ("prefetch(" in executable.source) == ahead
    np.testing.assert_array_equal(executable(table, places)[0], interp.evaluate(module, table, places)[0])


@pytest.mark.machine("avx512")
def test_rows_at_two_indices() -> None:
    """Both places of a row that comes later are known before its lines are asked for."""
    module = hlo.parse("""func.func @main(%x: tensor<70x130x128xf32>, %i: tensor<301x2xi32>) -> tensor<301x128xf32> {
      %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0, 1],
        start_index_map = [0, 1], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 128>}>
        : (tensor<70x130x128xf32>, tensor<301x2xi32>) -> tensor<301x128xf32>
      return %0 : tensor<301x128xf32>
    }""")
    rng = np.random.default_rng(1)
    table, places = rng.standard_normal((70, 130, 128), np.float32), rng.integers(-9, 140, (301, 2)).astype(np.int32)
    executable = codegen.compile(module)
    assert not executable.fallbacks and "prefetch(" in executable.source
    np.testing.assert_array_equal(executable(table, places)[0], interp.evaluate(module, table, places)[0])


def test_places_found_by_way_of_other_places() -> None:
    """x[i[j[k]]]: what is asked for ahead is not looked up through two tables."""
    module = hlo.parse(
        TAKE.format(n=9000, w=128, k=300)
        .replace("%i: tensor<300x1xi32>)", "%i: tensor<9000xi32>, %j: tensor<300x1xi32>)")
        .replace(
            '%0 = "stablehlo.gather"(%x, %i)',
            """%1 = "stablehlo.gather"(%i, %j) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
            start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1>}>
            : (tensor<9000xi32>, tensor<300x1xi32>) -> tensor<300xi32>
            %2 = stablehlo.reshape %1 : (tensor<300xi32>) -> tensor<300x1xi32>
            %0 = "stablehlo.gather"(%x, %2)""",
        )
    )
    rng = np.random.default_rng(2)
    table = rng.standard_normal((9000, 128), np.float32)
    inner, outer = rng.integers(0, 9000, 9000).astype(np.int32), rng.integers(0, 9000, (300, 1)).astype(np.int32)
    executable = codegen.compile(module)
    assert not executable.fallbacks
    np.testing.assert_array_equal(executable(table, inner, outer)[0], table[inner[outer[:, 0]]])
