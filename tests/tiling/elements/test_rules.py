"""Rewrites of element expressions: powers with constant exponents are products, and compute what the evaluator does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import codegen
import hlo
import interp
from hlo.types import element_type
from tests.pairs import fast_cover
from tiling.loops.element_ir import Apply, Node, Scalar, all_nodes
from tiling.loops.ir import Nest
from tiling.planning.plan import plan

EXPONENTS = [-2, -1, 1, 2, 3, 4]
TYPES = ["f32", "f64", "bf16", "f16", "i32"]
ULP = {"f32": 2.0**-23, "f64": 2.0**-52, "bf16": 2.0**-8, "f16": 2.0**-10}


def power(exponent: str, element: str) -> hlo.Module:
    return hlo.parse(f"""func.func @main(%x: tensor<64x{element}>) -> tensor<64x{element}> {{
      %c = stablehlo.constant dense<{exponent}> : tensor<{element}>
      %n = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<{element}>) -> tensor<64x{element}>
      %r = stablehlo.power %x, %n : tensor<64x{element}>
      return %r : tensor<64x{element}> }}""")


def nodes(module: hlo.Module) -> Iterator[Node]:
    for fusion in plan(module).fusions:
        for phase in fusion.schedule.phases:
            for step in phase.all_steps:
                yield from all_nodes(step.roots if isinstance(step, Nest) else ())


def functions(module: hlo.Module) -> set[str]:
    return {n.function for n in nodes(module) if isinstance(n, Apply)}


HALVES = [(n, t) for n in (-0.5, 0.5) for t in TYPES if t != "i32"]  # a square root, in the kernel's code


@pytest.mark.parametrize(("exponent", "element"), fast_cover([*((n, t) for n in EXPONENTS for t in TYPES), *HALVES]))
def test_a_power_is_what_the_evaluator_computes(exponent: float, element: str) -> None:
    module, dtype = power(str(exponent if element == "i32" else float(exponent)), element), element_type(element).dtype
    x = np.random.default_rng(0).standard_normal(64)
    if element == "i32":
        x = np.arange(64) * 77777777 % 2**31 - 2**30  # their products wrap around
        x[:3] = 0, 1, -1
    else:
        x[:8] = 0.0, -0.0, np.inf, -np.inf, np.nan, 1e30 if element != "f16" else 200.0, 1e-30 if element != "f16" else 1e-4, 1.0
    x = x.astype(dtype)
    (found,), (expected,) = codegen.compile(module)(x), interp.evaluate(module, x)
    if element == "i32":
        np.testing.assert_array_equal(found, expected)
        return
    a, b = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(np.signbit(a[np.isfinite(b)]), np.signbit(b[np.isfinite(b)]))
    least = np.finfo(np.float32).tiny if element in ("f32", "bf16") else 0  # smaller ones may be rounded in another place
    np.testing.assert_allclose(a, b, rtol=2 * ULP[element], atol=least)


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_a_power_with_a_small_whole_exponent_is_products(exponent: int, element: str) -> None:
    assert functions(power(f"{exponent}.0", element)) <= {"multiply", "divide"}


@pytest.mark.parametrize(
    ("exponent", "element"), [("2.5", "f32"), ("0.5", "f32"), ("5.0", "f64"), ("3.0", "bf16"), ("-2.0", "f16"), ("-1", "i32")]
)
def test_other_powers_stay(exponent: str, element: str) -> None:
    assert functions(power(exponent, element)) == {"power"}


def test_an_exponent_that_is_computed_of_constants_is_one() -> None:
    """As the derivative of a square has it: 2 - 1."""
    module = hlo.parse("""func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
      %two = stablehlo.constant dense<2.0> : tensor<f32>
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %less = stablehlo.subtract %two, %one : tensor<f32>
      %n = stablehlo.broadcast_in_dim %less, dims = [] : (tensor<f32>) -> tensor<64xf32>
      %r = stablehlo.power %x, %n : tensor<64xf32>
      %s = stablehlo.multiply %r, %n : tensor<64xf32>
      return %s : tensor<64xf32> }""")
    assert functions(module) == {"multiply"}
    assert [n.value for n in nodes(module) if isinstance(n, Scalar)] == [np.float32(1)]
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    np.testing.assert_array_equal(codegen.compile(module)(x)[0], x)


@pytest.mark.parametrize(
    ("count", "less", "decided"),
    [("64.0", "0.0", True), ("48.0", "0.5", True), ("3.0", "3.0", False), ("0x7FC00000", "0.0", False)],
)
def test_what_constants_decide_is_no_choice(count: str, less: str, decided: bool) -> None:
    """As a variance asks whether there is more than nothing to divide by."""
    module = hlo.parse(f"""func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {{
      %n = stablehlo.constant dense<{count}> : tensor<f32>
      %c = stablehlo.constant dense<{less}> : tensor<f32>
      %nan = stablehlo.constant dense<0x7FC00000> : tensor<64xf32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %left = stablehlo.subtract %n, %c : tensor<f32>
      %some = stablehlo.compare GT, %left, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %by = stablehlo.broadcast_in_dim %left, dims = [] : (tensor<f32>) -> tensor<64xf32>
      %p = stablehlo.broadcast_in_dim %some, dims = [] : (tensor<i1>) -> tensor<64xi1>
      %d = stablehlo.divide %x, %by : tensor<64xf32>
      %r = stablehlo.select %p, %d, %nan : tensor<64xi1>, tensor<64xf32>
      return %r : tensor<64xf32> }}""")
    assert functions(module).isdisjoint({"compare", "select"}) is decided
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    np.testing.assert_array_equal(codegen.compile(module)(x)[0], interp.evaluate(module, x)[0])
