"""Random inputs: reproducible, in the range of their type, scaled where a contraction reads a weight."""

from __future__ import annotations

import pathlib

import ml_dtypes
import numpy as np
import pytest

import hlo
from tilewright.inputs import InputError, random_arrays, read_arrays, weight_scales, write_arrays


def function(*types: str, body: str = "", result: str = "%a0", result_type: str | None = None) -> hlo.Function:
    arguments = ", ".join(f"%a{k}: {t}" for k, t in enumerate(types))
    out = result_type or types[0]
    return hlo.parse(f"func.func @main({arguments}) -> {out} {{\n{body}\n  return {result} : {out}\n}}\n").entry


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("i1", 0, 1),
        ("i4", -8, 7),
        ("ui4", 0, 15),
        ("i2", -2, 1),
        ("i8", -8, 7),
        ("ui8", 0, 15),
        ("i32", -8, 7),
        ("ui64", 0, 15),
    ],
)
def test_integers_fill_a_small_range(name: str, low: int, high: int) -> None:
    (x,) = random_arrays(function(f"tensor<4000x{name}>"), 0)
    values = x.astype(np.int64)
    assert x.dtype == hlo.element_type(name).dtype
    assert (values.min(), values.max()) == (low, high)


@pytest.mark.parametrize("name", ["f64", "f32", "f16", "bf16", "f8E4M3FN", "f8E5M2", "complex<f32>", "complex<f64>"])
def test_floats_are_normal(name: str) -> None:
    (x,) = random_arrays(function(f"tensor<100x100x{name}>"), 0)
    assert (x.shape, x.dtype) == ((100, 100), hlo.element_type(name).dtype)
    parts = x.view(x.real.dtype).astype(np.float64) if x.dtype.kind == "c" else x.astype(np.float64)
    assert abs(parts.mean()) < 0.03
    assert abs(parts.std() - 1) < 0.03


def test_powers_of_two_have_no_sign() -> None:
    (x,) = random_arrays(function("tensor<1000xf8E8M0FNU>"), 0)
    assert np.isfinite(x.astype(np.float32)).all()


def test_a_seed_and_a_number_decide() -> None:
    f = function("tensor<50xf32>", "tensor<50xf32>")
    a, b = random_arrays(f, 1)
    np.testing.assert_array_equal(a, random_arrays(f, 1)[0])
    assert not np.array_equal(a, b)
    assert not np.array_equal(a, random_arrays(f, 2)[0])


def dot(left: str, right: str, out: str, numbers: str) -> hlo.Function:
    body = f"  %0 = stablehlo.dot_general %a0, %a1, {numbers} : ({left}, {right}) -> {out}"
    return function(left, right, body=body, result="%0", result_type=out)


def test_weights_are_scaled_by_what_they_contract() -> None:
    plain = dot("tensor<8x100xf32>", "tensor<100x7xf32>", "tensor<8x7xf32>", "contracting_dims = [1] x [0]")
    assert weight_scales(plain) == {1: pytest.approx(0.1)}
    x, w = random_arrays(plain, 0)
    assert x.std() == pytest.approx(1, rel=0.1)
    assert w.std() == pytest.approx(0.1, rel=0.1)


RECURRENT = """
func.func @main(%x: tensor<4x100xf32>, %w: tensor<100x100xf32>, %u: tensor<100x9xf32>, %b: tensor<i1>) -> tensor<4x9xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %h = %x, %v = %w) : tensor<i32>, tensor<4x100xf32>, tensor<100x100xf32>
  cond {
    %n = stablehlo.constant dense<3> : tensor<i32>
    %t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %s = func.call @step(%h, %v) : (tensor<4x100xf32>, tensor<100x100xf32>) -> tensor<4x100xf32>
    %o = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %o : tensor<i32>
    stablehlo.return %j, %s, %v : tensor<i32>, tensor<4x100xf32>, tensor<100x100xf32>
  }
  %y = "stablehlo.if"(%b) ({
    %p = stablehlo.dot_general %r#1, %u, contracting_dims = [1] x [0] : (tensor<4x100xf32>, tensor<100x9xf32>) -> tensor<4x9xf32>
    stablehlo.return %p : tensor<4x9xf32>
  }, {
    %q = stablehlo.slice %x [0:4, 0:9] : (tensor<4x100xf32>) -> tensor<4x9xf32>
    stablehlo.return %q : tensor<4x9xf32>
  }) : (tensor<i1>) -> tensor<4x9xf32>
  return %y : tensor<4x9xf32>
}
func.func private @step(%h: tensor<4x100xf32>, %v: tensor<100x100xf32>) -> tensor<4x100xf32> {
  %p = stablehlo.dot_general %h, %v, contracting_dims = [1] x [0] : (tensor<4x100xf32>, tensor<100x100xf32>) -> tensor<4x100xf32>
  %t = stablehlo.tanh %p : tensor<4x100xf32>
  return %t : tensor<4x100xf32>
}"""


def test_weights_in_loops_branches_and_calls_are_scaled() -> None:
    """A recurrent network's were not: it blew rounding errors up, and `check` called its loop wrong."""
    module = hlo.parse(RECURRENT)
    hlo.verify(module)
    assert weight_scales(module.entry, module) == {1: pytest.approx(0.1), 2: pytest.approx(0.1)}
    assert weight_scales(module.entry) == {2: pytest.approx(0.1)}, "calls are not known without the module"
    assert random_arrays(module.entry, 0, module)[1].std() == pytest.approx(0.1, rel=0.1)


def test_batched_operands_are_no_weights() -> None:
    for batch in (3, 1):
        f = dot(f"tensor<{batch}x8x16xf32>", f"tensor<{batch}x16x8xf32>", f"tensor<{batch}x8x8xf32>",
                "batching_dims = [0] x [0], contracting_dims = [2] x [1]")  # fmt: skip
        assert weight_scales(f) == {}


def test_narrow_types_come_back_from_a_file(tmp_path: pathlib.Path) -> None:
    f = function("tensor<5xbf16>")
    x = np.arange(5).astype(ml_dtypes.bfloat16)
    (path,) = write_arrays([x], str(tmp_path / "x.npy"))
    (y,) = read_arrays(f, [path])
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(x, y)


def test_bytes_are_no_f32(tmp_path: pathlib.Path) -> None:
    np.save(tmp_path / "v.npy", np.zeros(5, "V4"))
    with pytest.raises(InputError, match="expected float32, found"):
        read_arrays(function("tensor<5xf32>"), [str(tmp_path / "v.npy")])


def test_unknown_dimensions_take_any_size(tmp_path: pathlib.Path) -> None:
    np.save(tmp_path / "v.npy", np.zeros((5, 3), np.float32))
    (x,) = read_arrays(function("tensor<?x3xf32>"), [str(tmp_path / "v.npy")])
    assert x.shape == (5, 3)
    with pytest.raises(InputError, match=r"expected \[\?, 4\], found \[5, 3\]"):
        read_arrays(function("tensor<?x4xf32>"), [str(tmp_path / "v.npy")])
