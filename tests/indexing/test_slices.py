"""Slices of programs, against perturbation: an element influences another if changing it changes the other."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
import interp
from indexing.regions import Region
from indexing.slices import dependencies, influence

PROGRAM = """
func.func @main(%a: tensor<4x6xf32>, %b: tensor<6x3xf32>, %c: tensor<3xf32>) -> tensor<2x6xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  %1 = call @scale(%c) : (tensor<3xf32>) -> tensor<4x3xf32>
  %2 = stablehlo.add %0, %1 : tensor<4x3xf32>
  %3 = stablehlo.reverse %2, dims = [0] : tensor<4x3xf32>
  %4 = stablehlo.reshape %3 : (tensor<4x3xf32>) -> tensor<2x6xf32>
  return %4 : tensor<2x6xf32>
}
func.func private @scale(%x: tensor<3xf32>) -> tensor<4x3xf32> {
  %0 = stablehlo.multiply %x, %x : tensor<3xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
"""


@pytest.fixture(scope="module")
def module() -> hlo.Module:
    return hlo.parse(PROGRAM)


def dependence(module: hlo.Module) -> list[np.ndarray]:
    """For each argument, a table [result element, argument element] of what changes what."""
    rng = np.random.default_rng(0)
    arguments = [rng.uniform(1, 2, a.shape).astype(np.float32) for a in module.entry.arguments]
    (base,) = interp.evaluate(module, *arguments)
    tables = []
    for k, a in enumerate(arguments):
        table = np.zeros((base.size, a.size), bool)
        for j in range(a.size):
            changed = [x.copy() for x in arguments]
            changed[k].flat[j] += 1
            table[:, j] = (interp.evaluate(module, *changed)[0] != base).ravel()
        tables.append(table)
    return tables


def test_slices_are_what_perturbation_finds(module: hlo.Module) -> None:
    result = module.root.results[0]
    tables = dependence(module)
    for i, index in enumerate(np.ndindex(*result.shape)):
        found = dependencies({result: Region.box([int(x) for x in index])}, module)
        assert found.is_exact
        for argument, table in zip(module.entry.arguments, tables, strict=True):
            want = {tuple(map(int, np.unravel_index(j, argument.shape))) for j in np.flatnonzero(table[i])}
            assert set(found.of(argument)) == want
    for argument, table in zip(module.entry.arguments, tables, strict=True):
        for j, index in enumerate(np.ndindex(*argument.shape)):
            found = influence({argument: Region.box([int(x) for x in index])}, module.entry.body, module)
            want = {tuple(map(int, np.unravel_index(i, result.shape))) for i in np.flatnonzero(table[:, j])}
            assert set(found.of(result)) == want


def test_without_the_module_a_call_counts_as_reading_everything(module: hlo.Module) -> None:
    result = module.root.results[0]
    found = dependencies({result: Region.box([0, 0])})
    assert [op.name for op, _ in found.unknown] == ["func.call"]
    assert "inlined" in found.unknown[0][1]
    assert set(found.of(module.entry.arguments[2])) == {(0,), (1,), (2,)}
