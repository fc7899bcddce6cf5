"""MLIR that is run: what `as_mlir` and `as_linalg` say, lowered by MLIR's own passes, computes what the program does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hlo
import interp
import tiling
from hlo.errors import Declined
from tests.goldens.programs import FILES
from tests.shipped_plans import planned
from tests.tiling.files.mlir_runner import run
from tiling import Schedule, Scope, as_linalg, as_mlir

# Small vectors and caches: tiles, borders and panels where programs are small, too.
MACHINE = tiling.Machine(cores=2, vector_bytes=16, vector_registers=16, l1_bytes=1 << 11, l2_bytes=1 << 13, l3_bytes=1 << 15)

SUM = "applies stablehlo.add across dimensions = [1] : (tensor<7x12xf32>, tensor<f32>) -> tensor<7xf32>"
PROGRAMS = {
    "softmax": f"""func.func @main(%x: tensor<7x12xf32>) -> tensor<7x12xf32> {{
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %e = stablehlo.exponential %x : tensor<7x12xf32>
      %s = stablehlo.reduce(%e init: %z) {SUM}
      %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<7xf32>) -> tensor<7x12xf32>
      %y = stablehlo.divide %e, %b : tensor<7x12xf32>
      return %y : tensor<7x12xf32>
    }}""",
    "product": """func.func @main(%x: tensor<5x7xf32>, %w: tensor<7x19xf32>, %c: tensor<19xf32>) -> tensor<5x19xf32> {
      %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<5x7xf32>, tensor<7x19xf32>) -> tensor<5x19xf32>
      %b = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<19xf32>) -> tensor<5x19xf32>
      %y = stablehlo.add %d, %b : tensor<5x19xf32>
      return %y : tensor<5x19xf32>
    }""",
    "product of turned": """func.func @main(%x: tensor<2x4x6xf32>, %w: tensor<2x16x6xf32>) -> tensor<2x4x16xf32> {
      %y = stablehlo.dot_general %x, %w, batching_dims = [0] x [0], contracting_dims = [2] x [2]
        : (tensor<2x4x6xf32>, tensor<2x16x6xf32>) -> tensor<2x4x16xf32>
      return %y : tensor<2x4x16xf32>
    }""",
    "turned": """func.func @main(%x: tensor<9x14xf32>) -> tensor<14x9xf32> {
      %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<9x14xf32>) -> tensor<14x9xf32>
      %y = stablehlo.tanh %t : tensor<14x9xf32>
      return %y : tensor<14x9xf32>
    }""",
    "padded": """func.func @main(%x: tensor<5x6xf32>) -> tensor<8x9xf32> {
      %z = stablehlo.constant dense<2.0> : tensor<f32>
      %y = stablehlo.pad %x, %z, low = [1, 2], high = [2, 1], interior = [0, 0]
        : (tensor<5x6xf32>, tensor<f32>) -> tensor<8x9xf32>
      return %y : tensor<8x9xf32>
    }""",
    "windows": """func.func @main(%x: tensor<3x16xf32>) -> tensor<3x15xf32> {
      %z = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %y = "stablehlo.reduce_window"(%x, %z) <{window_dimensions = array<i64: 1, 2>}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %m = stablehlo.maximum %a, %b : tensor<f32>
          stablehlo.return %m : tensor<f32>
      }) : (tensor<3x16xf32>, tensor<f32>) -> tensor<3x15xf32>
      return %y : tensor<3x15xf32>
    }""",
    "strided": """func.func @main(%x: tensor<8x10xi32>, %w: tensor<4x5xi32>) -> tensor<4x5xi32> {
      %s = stablehlo.slice %x [0:8:2, 1:10:2] : (tensor<8x10xi32>) -> tensor<4x5xi32>
      %y = stablehlo.multiply %s, %w : tensor<4x5xi32>
      return %y : tensor<4x5xi32>
    }""",
    "choices": """func.func @main(%x: tensor<6x8xf32>) -> tensor<6x8xf32> {
      %i = stablehlo.iota dim = 0 : tensor<6x8xi32>
      %j = stablehlo.iota dim = 1 : tensor<6x8xi32>
      %p = stablehlo.compare GE, %i, %j : (tensor<6x8xi32>, tensor<6x8xi32>) -> tensor<i1>
      %z = stablehlo.constant dense<0.0> : tensor<6x8xf32>
      %y = stablehlo.select %p, %x, %z : tensor<6x8xi1>, tensor<6x8xf32>
      return %y : tensor<6x8xf32>
    }""".replace("-> tensor<i1>", "-> tensor<6x8xi1>"),
}  # fmt: skip
WAYS: dict[str, Callable[[Schedule, str], str | Declined]] = {"affine": as_mlir, "linalg": as_linalg}

pytestmark = pytest.mark.mlir


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_said_computes_the_program(way: str, name: str) -> None:
    module = hlo.parse(PROGRAMS[name])
    (fusion,) = tiling.plan(module, machine=MACHINE).fusions
    text = WAYS[way](fusion.schedule, "kernel")
    assert isinstance(text, str), text
    draw = np.random.default_rng(0)
    inputs = []
    for a in module.entry.arguments:
        made = draw.standard_normal(a.shape) if a.tensor.dtype.kind == "f" else draw.integers(-9, 9, a.shape)
        inputs.append(made.astype(a.tensor.dtype))
    given = dict(zip((a.name for a in module.entry.arguments), inputs, strict=True))
    arrays, results = [], []
    for b in fusion.schedule.buffers:
        if b.scope is Scope.ARGUMENT:
            arrays.append(given[b.name].reshape(-1).copy())
        elif b.scope is Scope.RESULT:
            arrays.append(np.full(b.size_elems, 77, b.element.dtype))
            results.append(arrays[-1])
    run(text, arrays)
    for found, expected in zip(results, interp.evaluate(module, *inputs), strict=True):
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


def test_nests_and_products_are_generic() -> None:
    """What stays a loop of `affine` has a condition, a number of a loop, or a place that no view has."""
    said = {}
    for name, program in PROGRAMS.items():
        (fusion,) = tiling.plan(hlo.parse(program), machine=MACHINE).fusions
        text = str(as_linalg(fusion.schedule, "kernel"))
        said[name] = text.count("linalg.generic"), text.count("affine.store")
    assert all(generic and not loops for name, (generic, loops) in said.items() if name in ("softmax", "turned", "strided")), said
    assert said["product"] == (2, 0) and said["product of turned"] == (2, 0) and said["choices"][0] == 0, said


def test_iree_reads_every_kernel_of_the_shipped_programs() -> None:
    from iree.compiler import ir

    generics = 0
    with ir.Context():
        for path in FILES.values():
            for plan in planned(path, tiling.Machine(), kernels=True).nested():
                for fusion in plan.fusions:
                    texts = as_mlir(fusion.schedule, fusion.name), as_linalg(fusion.schedule, fusion.name)
                    assert isinstance(texts[0], Declined) == isinstance(texts[1], Declined)
                    for text in texts:
                        if not isinstance(text, Declined):
                            assert ir.Module.parse(text).operation.verify()
                            generics += text.count("linalg.generic")
    assert generics >= 40
