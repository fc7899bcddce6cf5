"""CHLO decomposed: each program means what it meant, for ordinary and for edge values, and other StableHLO tools accept it."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlo
import interp
from hlo.decompositions import DECLINED, rules
from hlo.registry import definitions

EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.7,
    -3.7,
    1e-6,
    -1e-6,
    0.99,
    -0.99,
    1.4616321,
    7.999,
    8.001,
    25.0,
    -25.5,
    88.0,
    300.0,
    np.inf,
    -np.inf,
    np.nan,
]
UNARY = "acos acosh asin asinh atan atanh cosh sinh tan square bessel_i1e digamma erf erf_inv erfc lgamma conj is_inf is_pos_inf is_neg_inf".split()
COMPLEX = "acos acosh asin asinh atan atanh cosh sinh tan square conj".split()
BINARY = "add atan2 divide maximum minimum multiply power remainder subtract next_after polygamma zeta complex compare".split()
TYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16}


@functools.cache
def mlir_context() -> Any:
    """JAX's own parser of StableHLO, or None where it is not installed."""
    if importlib.util.find_spec("jaxlib") is None:
        return None
    ir: Any = importlib.import_module("jaxlib.mlir.ir")
    registry = ir.DialectRegistry()
    importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    importlib.import_module("jaxlib.mlir.dialects.stablehlo").register_dialect(context)
    context.load_all_available_dialects()
    return context


def accepted(module: hlo.Module) -> None:
    """Other StableHLO tools read the module, where they are installed."""
    context = mlir_context()
    if context is not None:
        with context:
            assert importlib.import_module("jaxlib.mlir.ir").Module.parse(str(module)).operation.verify()


def both(text: str, *arrays: Any) -> tuple[list[np.ndarray], list[np.ndarray], hlo.Module]:
    module = hlo.parse(text)
    hlo.verify(module)
    before = str(module)
    made = hlo.decompose(module)
    hlo.verify(made)
    assert str(module) == before, "the module given was changed"
    again = hlo.parse(str(made))
    assert str(again) == str(made)
    assert "chlo." not in str(made)
    accepted(made)
    return list(interp.evaluate(module, *arrays)), list(interp.evaluate(again, *arrays)), made


def ulps_apart(a: np.ndarray, b: np.ndarray, ulps: float, scale: float = 0.0) -> None:
    """Equal, both NaN, of one sign where zero, or at most so many units of the last place apart."""
    assert a.dtype == b.dtype and a.shape == b.shape
    if a.dtype.kind == "c":
        ulps_apart(a.real, b.real, ulps, scale)
        return ulps_apart(a.imag, b.imag, ulps, scale)
    if a.dtype.kind in "biu":
        return np.testing.assert_array_equal(a, b)
    info: Any = ml_dtypes.finfo(a.dtype)
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        close = np.abs(x - y) <= ulps * float(info.eps) * np.maximum(np.maximum(np.abs(x), scale), float(info.smallest_normal))
    same = (x == y) | (np.isnan(x) & np.isnan(y)) | close
    assert same.all(), (x[~same], y[~same])
    return None


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("name", UNARY)
def test_functions(name: str, element: str) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([EDGES, rng.uniform(-1, 1, 40), rng.uniform(-20, 60, 60)]).astype(TYPES[element])
    t = f"tensor<{x.size}x{element}>"
    out = f"tensor<{x.size}xi1>" if name.startswith("is_") else t
    expected, found, _ = both(f"func.func @main(%x: {t}) -> {out} {{ %y = chlo.{name} %x : {t} -> {out} return %y : {out} }}", x)
    # f64 is computed in f64: a handful of roundings of a differently written formula show in the last places.
    ulps_apart(expected[0], found[0], 64 if element == "f64" else 1, 1.0 if name in ("digamma", "lgamma") else 0.0)


@pytest.mark.parametrize("element", ["complex<f32>", "complex<f64>"])
@pytest.mark.parametrize("name", COMPLEX)
def test_functions_of_complex_numbers(name: str, element: str) -> None:
    rng = np.random.default_rng(2)
    x = (rng.standard_normal(60) * 3 + 1j * rng.standard_normal(60) * 3).astype(hlo.element_type(element).dtype)
    x[:8] = [0.5, 2.0 + 0j, complex(2.0, -0.0), -2.0 + 0j, complex(-2.0, -0.0), 1e-3j, 3j, 0.25 + 1e-4j]
    t = f"tensor<60x{element}>"
    expected, found, _ = both(f"func.func @main(%x: {t}) -> {t} {{ %y = chlo.{name} %x : {t} -> {t} return %y : {t} }}", x)
    scale = np.abs(expected[0]).max() if name in ("cosh", "sinh") else 1.0
    ulps_apart(expected[0], found[0], 16, float(scale))


@pytest.mark.parametrize(("name", "value"), [("erf", 0.3), ("erfc", 2.5), ("lgamma", 4.2), ("acosh", 1.5), ("asinh", -0.7)])
def test_against_pythons_own_functions(name: str, value: float) -> None:
    text = f"func.func @main(%x: tensor<f64>) -> tensor<f64> {{ %y = chlo.{name} %x : tensor<f64> -> tensor<f64> return %y : tensor<f64> }}"
    (found,) = interp.evaluate(hlo.decompose(hlo.parse(text)), np.float64(value))
    assert math.isclose(float(found), getattr(math, name)(value), rel_tol=2e-15)


@pytest.mark.parametrize("element", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("name", ["next_after", "polygamma", "zeta"])
def test_functions_of_two(name: str, element: str) -> None:
    rng = np.random.default_rng(3)
    n, x = (
        a.ravel()
        for a in np.meshgrid(
            [0, 1, 2, 3, 4, 2.5, -1, np.nan, np.inf if name == "next_after" else 6], [*EDGES[:19], 0.3, -0.3, np.nan]
        )
    )
    if name == "zeta":
        n, x = n * 1.25 + 1, np.abs(x)
    if name == "next_after":
        n, x = np.concatenate([n, rng.standard_normal(50)]), np.concatenate([x, rng.standard_normal(50)])
    t = f"tensor<{n.size}x{element}>"
    text = f"func.func @main(%a: {t}, %b: {t}) -> {t} {{ %y = chlo.{name} %a, %b : {t}, {t} -> {t} return %y : {t} }}"
    expected, found, _ = both(text, n.astype(TYPES[element]), x.astype(TYPES[element]))
    ulps_apart(expected[0], found[0], 256 if element == "f64" else 2)


@pytest.mark.parametrize("element", ["i8", "ui8", "i32", "ui32", "i64", "ui64"])
def test_mulhi(element: str) -> None:
    dtype = hlo.element_type(element).dtype
    info = np.iinfo(dtype)
    rng = np.random.default_rng(4)
    x = np.concatenate([np.array([info.min, info.max, 0, 1, info.max], dtype), rng.integers(info.min, info.max, 40, dtype)])
    y = x[::-1].copy()
    t = f"tensor<45x{element}>"
    expected, found, _ = both(
        f"func.func @main(%a: {t}, %b: {t}) -> {t} {{ %y = chlo.mulhi %a, %b : {t}, {t} -> {t} return %y : {t} }}", x, y
    )
    np.testing.assert_array_equal(expected[0], found[0])
    exact = [int(a) * int(b) >> info.bits for a, b in zip(x, y, strict=True)]
    np.testing.assert_array_equal(found[0], np.array(exact, dtype))


@pytest.mark.parametrize("name", [*BINARY, "and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical"])
@pytest.mark.parametrize(
    "shapes", [("3x4", "4", "3x4", "1"), ("3x1", "1x4", "3x4", None), ("", "3x4", "3x4", ""), ("3x4", "3", "3x4", "0")]
)
def test_broadcasting(name: str, shapes: tuple[str, str, str, str | None]) -> None:
    e = "i32" if name in ("and", "or", "xor") or "shift" in name else "f32"
    types = [f"tensor<{s}x{e}>" if s else f"tensor<{e}>" for s in shapes[:3]]
    out = (
        types[2].replace("f32", "complex<f32>")
        if name == "complex"
        else types[2].replace("f32", "i1")
        if name == "compare"
        else types[2]
    )
    dims = [] if shapes[3] is None else [f"broadcast_dimensions = array<i64{': ' + shapes[3] if shapes[3] else ''}>"]
    dims += ["comparison_direction = #chlo<comparison_direction LT>"] if name == "compare" else []
    rng = np.random.default_rng(5)
    arrays = [
        np.asarray(rng.integers(1, 7, [int(n) for n in s.split("x") if n])).astype(np.int32 if e == "i32" else np.float32)
        for s in shapes[:2]
    ]
    text = f'func.func @main(%a: {types[0]}, %b: {types[1]}) -> {out} {{ %y = "chlo.broadcast_{name}"(%a, %b) {{{", ".join(dims)}}} : ({types[0]}, {types[1]}) -> {out} return %y : {out} }}'
    expected, found, _ = both(text, *arrays)
    ulps_apart(expected[0], found[0], 2)


def test_broadcast_select() -> None:
    text = """func.func @main(%p: tensor<4xi1>, %a: tensor<3x4xf32>, %b: tensor<f32>) -> tensor<3x4xf32> {
      %y = "chlo.broadcast_select"(%p, %a, %b) : (tensor<4xi1>, tensor<3x4xf32>, tensor<f32>) -> tensor<3x4xf32>
      return %y : tensor<3x4xf32> }"""
    expected, found, _ = both(text, np.array([1, 0, 1, 0], bool), np.ones((3, 4), np.float32), np.float32(7))
    np.testing.assert_array_equal(expected[0], found[0])


@pytest.mark.parametrize("element", ["f32", "bf16", "i32", "ui8"])
def test_top_k(element: str) -> None:
    dtype = hlo.element_type(element).dtype
    x = np.array([[3, 1, 3, 2, 0, 1], [0, 0, 0, 5, 4, 5]]).astype(dtype)
    if element in TYPES:
        x[1, :4] = [np.nan, -0.0, 0.0, -np.inf]
    text = f"func.func @main(%x: tensor<2x6x{element}>) -> (tensor<2x4x{element}>, tensor<2x4xi32>) {{ %v, %i = chlo.top_k(%x, k = 4) : tensor<2x6x{element}> -> (tensor<2x4x{element}>, tensor<2x4xi32>) return %v, %i : tensor<2x4x{element}>, tensor<2x4xi32> }}"
    expected, found, _ = both(text, x)
    for a, b in zip(expected, found, strict=True):
        ulps_apart(a, b, 0)


@pytest.mark.parametrize("reverse", ["", ", is_reverse = true"])
def test_scan(reverse: str) -> None:
    text = f"""func.func @main(%x: tensor<3x5xf32>, %c: tensor<3xf32>) -> (tensor<3x5xf32>, tensor<3xf32>) {{
      %o, %e = "chlo.scan"(%x, %c) ({{
      ^bb0(%v: tensor<3xf32>, %a: tensor<3xf32>):
        %m = chlo.square %v : tensor<3xf32> -> tensor<3xf32>
        %s = stablehlo.add %a, %m : tensor<3xf32>
        stablehlo.return %s, %s : tensor<3xf32>, tensor<3xf32>
      }}) {{dimension = 1 : i64, operandSegmentSizes = array<i32: 1, 1>{reverse}}} : (tensor<3x5xf32>, tensor<3xf32>) -> (tensor<3x5xf32>, tensor<3xf32>)
      return %o, %e : tensor<3x5xf32>, tensor<3xf32> }}"""
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    expected, found, _ = both(text, x, np.ones(3, np.float32))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(found[1], 1 + (x * x).sum(1))


RAGGED = {
    "free": ("4x3", "2x3x5", "4x5", "[0]", "[0]", "[1]", "[1]", "[]"),
    "contracting": ("4x3", "4x5", "2x3x5", "[0]", "[]", "[0]", "[0]", "[]"),
    "batching": ("4x2x3", "4x3x5", "4x2x5", "[0]", "[]", "[2]", "[1]", "[0]"),
}


@pytest.mark.parametrize("mode", RAGGED)
def test_ragged_dot(mode: str) -> None:
    lhs, rhs, out, ragged, group, lc, rc, batch = RAGGED[mode]
    numbers = f"#chlo.ragged_dot<lhs_batching_dimensions = {batch}, rhs_batching_dimensions = {batch}, lhs_contracting_dimensions = {lc}, rhs_contracting_dimensions = {rc}, lhs_ragged_dimensions = {ragged}, rhs_group_dimensions = {group}>"
    numbers = numbers.replace("lhs_batching_dimensions = [], rhs_batching_dimensions = [], ", "").replace(
        ", rhs_group_dimensions = []", ""
    )
    text = f'func.func @main(%a: tensor<{lhs}xf32>, %b: tensor<{rhs}xf32>, %g: tensor<2xi32>) -> tensor<{out}xf32> {{ %y = "chlo.ragged_dot"(%a, %b, %g) {{ragged_dot_dimension_numbers = {numbers}}} : (tensor<{lhs}xf32>, tensor<{rhs}xf32>, tensor<2xi32>) -> tensor<{out}xf32> return %y : tensor<{out}xf32> }}'
    rng = np.random.default_rng(6)
    arrays = [rng.standard_normal([int(n) for n in s.split("x")]).astype(np.float32) for s in (lhs, rhs)]
    for sizes in ([1, 3], [2, 1], [0, 4]):
        expected, found, _ = both(text, *arrays, np.array(sizes, np.int32))
        ulps_apart(expected[0], found[0], 4, 1.0)


@pytest.mark.parametrize("value", [1.0, np.inf, np.nan], ids=str)
@pytest.mark.parametrize("mode", ["free", "contracting"])
def test_many_products_of_groups_are_one_with_zeros(mode: str, value: float) -> None:
    """Whatever lies in another group's weights: zeros meet only finite ones."""
    _, _, _, ragged, _, lc, rc, _ = RAGGED[mode]
    of_groups = ", rhs_group_dimensions = [0]" if mode == "free" else ""
    numbers = f"#chlo.ragged_dot<lhs_contracting_dimensions = {lc}, rhs_contracting_dimensions = {rc}, lhs_ragged_dimensions = {ragged}{of_groups}>"
    lhs, rhs, out = {"free": ("96x48", "4x48x64", "96x64"), "contracting": ("96x48", "96x64", "4x48x64")}[mode]
    text = f'func.func @main(%a: tensor<{lhs}xf32>, %b: tensor<{rhs}xf32>, %g: tensor<4xi32>) -> tensor<{out}xf32> {{ %y = "chlo.ragged_dot"(%a, %b, %g) {{ragged_dot_dimension_numbers = {numbers}}} : (tensor<{lhs}xf32>, tensor<{rhs}xf32>, tensor<4xi32>) -> tensor<{out}xf32> return %y : tensor<{out}xf32> }}'
    rng = np.random.default_rng(6)
    x, w = (rng.standard_normal([int(n) for n in s.split("x")]).astype(np.float32) for s in (lhs, rhs))
    w.reshape(-1)[w.size // 3] = value
    for sizes in ([10, 30, 0, 50], [0, 0, 96, 0], [0, 0, 0, 0], [96, 96, 96, 96]):
        (expected,), (found,), program = both(text, x, w, np.array(sizes, np.int32))
        assert ("stablehlo.if" in str(program)) is (mode == "free")
        np.testing.assert_array_equal(np.isfinite(expected), np.isfinite(found))
        ok = np.isfinite(expected)
        np.testing.assert_allclose(found[ok], expected[ok], rtol=1e-4, atol=1e-4)


def test_constants_and_unknown_sizes() -> None:
    text = """func.func @main(%x: tensor<?x3xf32>) -> (tensor<?x3xf32>, tensor<?x3xf32>, tensor<2xi32>) {
      %c = "chlo.constant_like"(%x) {value = 2.5 : f32} : (tensor<?x3xf32>) -> tensor<?x3xf32>
      %e = chlo.erf %x : tensor<?x3xf32> -> tensor<?x3xf32>
      %k = "chlo.constant"() {value = dense<[4, 5]> : tensor<2xi32>} : () -> tensor<2xi32>
      return %c, %e, %k : tensor<?x3xf32>, tensor<?x3xf32>, tensor<2xi32> }"""
    expected, found, _ = both(text, np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3))
    for a, b in zip(expected, found, strict=True):
        ulps_apart(a, b, 1)


def test_what_has_no_decomposition_says_why() -> None:
    for d in definitions():
        if d.name.startswith("chlo."):
            assert (d.name in rules()) != (d.name in DECLINED), d.name
    assert all(len(reason.reason.split()) > 3 for reason in DECLINED.values())


def test_unknown_sizes_that_would_have_to_be_known_leave_the_op() -> None:
    text = 'func.func @main(%a: tensor<?xf32>, %b: tensor<3xf32>) -> tensor<3xf32> { %y = "chlo.broadcast_add"(%a, %b) : (tensor<?xf32>, tensor<3xf32>) -> tensor<3xf32> return %y : tensor<3xf32> }'
    module = hlo.decompose(hlo.parse(text))
    hlo.verify(module)
    assert module.entry.body.ops[0].name == "chlo.broadcast_add"


@pytest.mark.jax
def test_other_tools_accept_the_decompositions() -> None:
    pytest.importorskip("jaxlib.mlir.ir")
    texts = []
    for name in UNARY:
        out = "tensor<?x3xi1>" if name.startswith("is_") else "tensor<?x3xf32>"
        texts.append(
            f"func.func @main(%x: tensor<?x3xf32>) -> {out} {{ %y = chlo.{name} %x : tensor<?x3xf32> -> {out} return %y : {out} }}"
        )
    for name in ("next_after", "polygamma", "zeta"):
        t = "tensor<4xbf16>"
        texts.append(f"func.func @main(%x: {t}) -> {t} {{ %y = chlo.{name} %x, %x : {t}, {t} -> {t} return %y : {t} }}")
    for name in COMPLEX:
        t = "tensor<4xcomplex<f32>>"
        texts.append(f"func.func @main(%x: {t}) -> {t} {{ %y = chlo.{name} %x : {t} -> {t} return %y : {t} }}")
    texts.append(
        "func.func @main(%x: tensor<2x6xf32>) -> tensor<2x4xf32> { %v, %i = chlo.top_k(%x, k = 4) : tensor<2x6xf32> -> (tensor<2x4xf32>, tensor<2x4xi32>) return %v : tensor<2x4xf32> }"
    )
    for text in texts:
        accepted(hlo.decompose(hlo.parse(text)))
