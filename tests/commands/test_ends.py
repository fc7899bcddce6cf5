"""Inputs at the ends of their types: which arguments have them, and that `check` finds with them what small numbers hide."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

import codegen
import hlo
import interp
from tests.commands.command_line import called
from tilewright.check import compare, float_info
from tilewright.ends import end_arrays, takes_ends
from tilewright.inputs import random_arrays
from tiling.program import expand

WIDER = """func.func @main(%x: tensor<2x64xi8>) -> tensor<64xi32> {
  %z = stablehlo.constant dense<0> : tensor<i8>
  %0 = "stablehlo.reduce"(%x, %z) ({ ^bb0(%p: tensor<i32>, %q: tensor<i32>):
    %s = stablehlo.add %p, %q : tensor<i32> stablehlo.return %s : tensor<i32>
  }) {dimensions = array<i64: 0>} : (tensor<2x64xi8>, tensor<i8>) -> tensor<64xi32>
  return %0 : tensor<64xi32>
}"""


def _entry(body: str, arguments: str = "%x: tensor<8xf32>", result: str = "tensor<8xf32>") -> hlo.Function:
    return hlo.parse(f"func.func @main({arguments}) -> {result} {{\n{body}\n}}").function()


@pytest.mark.parametrize(
    ("body", "result", "taken"),
    [
        ("%0 = stablehlo.multiply %x, %x : tensor<8xf32>\n return %0 : tensor<8xf32>", "tensor<8xf32>", [0]),
        ("%0 = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0] : (tensor<8xf32>, tensor<8xf32>) -> tensor<f32>\n"
         " return %0 : tensor<f32>", "tensor<f32>", []),
        ("%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
         "%0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<f32>\n"
         "return %0 : tensor<f32>", "tensor<f32>", []),
        ("%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
         "%0 = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<f32>\n"
         "return %0 : tensor<f32>", "tensor<f32>", [0]),
        ("%z = stablehlo.constant dense<0.0> : tensor<f64>\n%w = stablehlo.convert %x : (tensor<8xf32>) -> tensor<8xf64>\n"
         "%0 = stablehlo.reduce(%w init: %z) applies stablehlo.add across dimensions = [0] : (tensor<8xf64>, tensor<f64>) -> tensor<f64>\n"
         "return %0 : tensor<f64>", "tensor<f64>", [0]),
        ("%0 = stablehlo.sine %x : tensor<8xf32>\n return %0 : tensor<8xf32>", "tensor<8xf32>", []),
    ],
    ids=["elementwise", "product", "sum", "maximum", "sum in a wider type", "sine"],
)  # fmt: skip
def test_floats_have_ends_where_no_order_counts(body: str, result: str, taken: list[int]) -> None:
    assert takes_ends(_entry(body, result=result)) == taken


def test_integers_have_ends_where_no_loop_counts_by_them() -> None:
    assert takes_ends(hlo.parse(WIDER).function()) == [0]
    loop = """%r = stablehlo.while(%i = %n) : tensor<i32> cond {
    %c = stablehlo.compare LT, %i, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %i : tensor<i32>
    stablehlo.return %j : tensor<i32>
  }
  %s = stablehlo.add %r, %k : tensor<i32>
  return %s : tensor<i32>"""
    f = _entry(loop, "%n: tensor<i32>, %m: tensor<i32>, %k: tensor<i32>", "tensor<i32>")
    assert takes_ends(f) == [2]
    assert random_arrays(f, 3)[0] == end_arrays(f, 3)[0]


@pytest.mark.parametrize(
    "element", ["i4", "ui4", "i8", "ui8", "i32", "ui64", "i64", "f32", "f64", "bf16", "f16", "f8E4M3FN", "f8E8M0FNU"]
)
def test_both_ends_are_drawn(element: str) -> None:
    t = f"tensor<999x{element}>"
    f = _entry(f"return %x : {t}", f"%x: {t}", t)
    (x,) = end_arrays(f, 0)
    ordinary = random_arrays(f, 0)[0]
    assert 300 < (x != ordinary).sum() < 700
    wide = x.astype(np.float64)
    dtype = f.arguments[0].tensor.dtype
    e = f.arguments[0].tensor.element
    if e.is_integer:
        low, high = (0, 2**e.bits - 1) if e.is_unsigned else (-(2 ** (e.bits - 1)), 2 ** (e.bits - 1) - 1)
        assert (int(x.min()), int(x.max())) == (low, high)
    else:
        assert wide.max() == float(float_info(dtype).max)
        assert wide.min() == float(float_info(dtype).min) or element == "f8E8M0FNU"
        assert (wide == float(float_info(dtype).smallest_subnormal)).any()


def test_check_tells_a_sum_in_too_narrow_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """What mended kernels would do without the conversion in front: small numbers do not tell, the ends do."""
    module = hlo.parse(WIDER)
    monkeypatch.setattr(expand, "promoted", lambda op: None)
    executable = codegen.compile(module)
    for arrays, right in ((random_arrays(module.entry, 0), True), (end_arrays(module.entry, 0), False)):
        assert arrays is not None
        passed = [compare(a, b).passed for a, b in zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True)]
        assert passed == [right]


def test_the_command_runs_both(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "wider.mlir"
    path.write_text(WIDER)
    done = called("check", str(path))
    assert done.returncode == 0, done.stderr
    assert "check         at the ends of the types: output 0 int32[64]: ok" in done.stdout
    d = json.loads(called("check", str(path), "--json").stdout)
    assert d["ends"]["passed"] is True
    np.save(tmp_path / "x.npy", np.zeros((2, 64), np.int8))
    given = json.loads(called("check", str(path), "--json", "--input", str(tmp_path / "x.npy")).stdout)
    assert given["ends"] is None
