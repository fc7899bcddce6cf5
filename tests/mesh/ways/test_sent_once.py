# ruff: noqa: E501  (programs are written as they are printed)
"""What is sent no more than once, and tiles that change places instead of being gathered."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
import interp
from tests.mesh.global_programs import module_text
from tests.mesh.test_partition import BYTES_ALONE, on_a_grid
from tilewright.inputs import random_arrays
from tiling.mesh.partition import Partitioned, partition

SUM = """ = stablehlo.reduce(%a0 init: %zero) across dimensions = [0] : (tensor<16x8xf32>, tensor<f32>) -> tensor<8xf32>
    reducer(%p: tensor<f32>, %q: tensor<f32>) { %s = stablehlo.add %p, %q : tensor<f32> stablehlo.return %s : tensor<f32> }"""


def checked(program: str) -> Partitioned:
    module = hlo.parse(program)
    hlo.verify(module)
    made = partition(module, network=BYTES_ALONE)
    arrays = random_arrays(module.entry, 3, module)
    for found, whole in zip(on_a_grid(made, arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_allclose(found, whole, rtol=1e-5)
    return made


def test_a_sum_that_is_written_twice_is_sent_once() -> None:
    """A mean, and the mean in a variance."""
    body = f"""  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m{SUM}
  %n{SUM}
  %r = stablehlo.multiply %m, %n : tensor<8xf32>
  return %r : tensor<8xf32>"""
    made = checked(module_text('"x"=4', [("16x8xf32", '[{"x"}, {}]')], body, [("8xf32", "[{}]")]))
    assert [(c.kind, c.sent_bytes) for c in made.communications] == [("all_reduce", 48)]


@pytest.mark.parametrize(
    ("mesh", "given", "wanted", "sent"),
    [
        ('"x"=4, "y"=2', '[{"x"}, {}]', '[{"y"}, {}]', [("permute", 128), ("all_gather", 128)]),
        ('"x"=2, "y"=2, "z"=2', '[{"x", "y"}, {}]', '[{"y", "z"}, {}]', [("permute", 128)]),
        ('"x"=4, "y"=4', '[{"x"}, {}]', '[{"y"}, {}]', [("permute", 128)]),
        ('"x"=4, "y"=2', '[{"y"}, {"x"}]', '[{"x"}, {"y"}]', [("all_to_all", 32), ("permute", 64)]),
    ],
)  # fmt: skip
def test_tiles_change_places(mesh: str, given: str, wanted: str, sent: list[tuple[str, int]]) -> None:
    """From an axis to another one, along which there were copies; and from one dimension to another."""
    body = "  %r = stablehlo.negate %a0 : tensor<16x8xf32>\n  return %r : tensor<16x8xf32>"
    made = checked(module_text(mesh, [("16x8xf32", given)], body, [("16x8xf32", wanted)]))
    assert [(c.kind, c.sent_bytes) for c in made.communications] == sent, made.explain()


BY_KEY = """  %start = stablehlo.constant dense<START> : tensor<5xTYPE>
  %r = "stablehlo.scatter"(%start, %a0, %a1) ({ ^bb0(%p: tensor<TYPE>, %q: tensor<TYPE>): %s = stablehlo.NAME %p, %q : tensor<TYPE>
    stablehlo.return %s : tensor<TYPE> }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (tensor<5xTYPE>, tensor<Nx1xi32>, tensor<NxTYPE>) -> tensor<5xTYPE>
  return %r : tensor<5xTYPE>"""


@pytest.mark.parametrize("n", [64, 61])
@pytest.mark.parametrize(
    ("name", "t", "start"), [("maximum", "f32", "-0.5"), ("minimum", "i32", "3"), ("multiply", "f32", "2.0"), ("or", "i1", "false"),
                             ("add", "complex<f32>", "(1.0, 2.0)")]
)  # fmt: skip
def test_updates_by_keys_are_put_together_in_parts(name: str, t: str, start: str, n: int) -> None:
    """What was there counts once."""
    body = BY_KEY
    for old, new in {"START": start, "TYPE": t, "NAME": name, "Nx": f"{n}x"}.items():
        body = body.replace(old, new)
    made = checked(module_text('"x"=4', [(f"{n}x1xi32", '[{"x"}, {}]'), (f"{n}x{t}", '[{"x"}]')], body, [(f"5x{t}", "[{}]")]))
    assert [c.kind for c in made.communications] == ["all_reduce"], made.explain()


def test_sums_of_complex_numbers_are_combined() -> None:
    body = """  %zero = stablehlo.constant dense<(0.0, 0.0)> : tensor<complex<f32>>
  %r = stablehlo.reduce(%a0 init: %zero) across dimensions = [0] : (tensor<16x8xcomplex<f32>>, tensor<complex<f32>>) -> tensor<8xcomplex<f32>>
    reducer(%p: tensor<complex<f32>>, %q: tensor<complex<f32>>) { %s = stablehlo.add %p, %q : tensor<complex<f32>> stablehlo.return %s : tensor<complex<f32>> }
  return %r : tensor<8xcomplex<f32>>"""
    made = checked(module_text('"x"=4', [("16x8xcomplex<f32>", '[{"x"}, {}]')], body, [("8xcomplex<f32>", "[{}]")]))
    assert [(c.kind, c.sent_bytes) for c in made.communications] == [("all_reduce", 96)]


@pytest.mark.parametrize(
    ("mesh", "sharding", "shape", "dims"),
    [
        ('"x"=2, "y"=2', '[{"x"}, {"y"}]', "8x8", "0, 1"),
        ('"x"=2, "y"=2', '[{"y"}, {"x"}]', "8x6", "1, 0"),
        ('"x"=2, "y"=4', '[{"x"}, {"y"}]', "6x8", "0, 1"),
        ('"x"=2, "y"=2, "z"=2', '[{"x"}, {"y"}, {"z"}]', "4x6x8", "0, 1, 2"),
        ('"x"=2, "y"=2, "z"=2', '[{"x"}, {"y"}, {"z"}]', "4x6x8", "0, 2"),
    ],
)
def test_tiles_that_move_along_several_dimensions_are_sent_once(mesh: str, sharding: str, shape: str, dims: str) -> None:
    """The tile itself, and not once for each dimension."""
    t = f"{shape}xf32"
    body = f"  %r = stablehlo.reverse %a0, dims = [{dims}] : tensor<{t}>\n  return %r : tensor<{t}>"
    made = checked(module_text(mesh, [(t, sharding)], body, [(t, sharding)]))
    (tile,) = made.argument_types[0:1]
    local = np.prod(made.local(0, np.zeros(tile.static_shape, np.float32), 0).shape)
    assert [(c.kind, c.sent_bytes) for c in made.communications] == [("halo", 4 * local)]


def test_tiles_of_which_parts_stay_are_sent_dimension_by_dimension() -> None:
    """Rolled by less than a tile: what comes is put beside what stays, so there is no permutation of tiles to compose."""
    body = """  %a = stablehlo.slice %a0 [5:8, 0:8] : (tensor<8x8xf32>) -> tensor<3x8xf32>
  %b = stablehlo.slice %a0 [0:5, 0:8] : (tensor<8x8xf32>) -> tensor<5x8xf32>
  %c = stablehlo.concatenate %a, %b, dim = 0 : (tensor<3x8xf32>, tensor<5x8xf32>) -> tensor<8x8xf32>
  %r = stablehlo.reverse %c, dims = [1] : tensor<8x8xf32>
  return %r : tensor<8x8xf32>"""
    made = checked(module_text('"x"=2, "y"=2', [("8x8xf32", '[{"x"}, {"y"}]')], body, [("8x8xf32", '[{"x"}, {"y"}]')]))
    assert len(made.communications) > 1
