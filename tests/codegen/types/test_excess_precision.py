"""Narrow floats between ops: each op is rounded to its type, whatever is fused; excess precision is a switch."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import codegen
import hlo
import interp
from codegen.tune.probe import apply
from hlo.errors import SettingError
from hlo.types import ELEMENT_TYPES
from interp.numbers import convert
from tests.codegen.types.test_wider_bodies import agrees
from tiling.machine import Machine

NARROW = ["bf16", "f16", "f8E4M3FN", "f8E5M2"]
CHAIN = """func.func @main(%b: T) -> T {
  %0 = stablehlo.multiply %b, %b : T
  %1 = stablehlo.add %0, %b : T
  return %1 : T
}"""


def _numbers(element: str, count: int, seed: int = 0) -> np.ndarray:
    return convert(np.random.default_rng(seed).normal(0, 2, count), ELEMENT_TYPES[element].dtype)


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    bits = np.dtype(f"u{a.dtype.itemsize}")
    nan = np.isnan(a.astype(np.float32)) & np.isnan(b.astype(np.float32))
    return bool(((a.view(bits) == b.view(bits)) | nan).all())


@pytest.mark.parametrize("element", NARROW)
def test_a_product_and_a_sum_are_rounded_one_by_one(element: str) -> None:
    module, x = hlo.parse(CHAIN.replace("T", f"tensor<4099x{element}>")), _numbers(element, 4099)
    (found,), (want,) = codegen.compile(module)(x), interp.evaluate(module, x)
    assert _same_bits(found, want)


def test_excess_precision_keeps_bf16_in_f32_and_nothing_else() -> None:
    for element in NARROW:
        module, x = hlo.parse(CHAIN.replace("T", f"tensor<4099x{element}>")), _numbers(element, 4099)
        forbidden, allowed = (codegen.compile(module, excess_precision=e) for e in (False, True))
        assert not forbidden.plan.machine.excess_precision
        assert allowed.plan.machine.excess_precision
        (want,) = interp.evaluate(module, x)
        assert _same_bits(forbidden(x)[0], want)
        differ = (allowed(x)[0].view(np.uint8) != want.view(np.uint8)).mean()
        assert (differ > 0.1) == (element == "bf16")
        if element == "bf16":
            wide = x.astype(np.float32)
            assert _same_bits(allowed(x)[0], (wide * wide + wide).astype(ml_dtypes.bfloat16))
            # what was compiled before is another plan and another kernel
            assert _same_bits(codegen.compile(module)(x)[0], want)


def test_the_variable_allows_it_and_other_words_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    for word, wanted in (("allow", True), ("forbid", False), ("", False)):
        monkeypatch.setenv("TILEWRIGHT_EXCESS_PRECISION", word)
        assert Machine.detect().excess_precision is wanted
        assert codegen.calibrated_machine().excess_precision is wanted
    monkeypatch.setenv("TILEWRIGHT_EXCESS_PRECISION", "yes")
    with pytest.raises(SettingError, match="TILEWRIGHT_EXCESS_PRECISION: expected forbid or allow, found 'yes'"):
        Machine.detect()


def test_a_plan_says_itself() -> None:
    plan = codegen.remembered_plan(hlo.parse(CHAIN.replace("T", "tensor<8xbf16>")))
    with pytest.raises(ValueError, match="a plan has it from its machine"):
        codegen.compile(plan, excess_precision=True)


GRAPHS = {
    "broadcast": """%c = stablehlo.constant dense<0.3> : tensor<bf16>
  %d = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<bf16>) -> tensor<37x41xbf16>
  %0 = stablehlo.multiply %x, %d : tensor<37x41xbf16>
  %1 = stablehlo.subtract %0, %y : tensor<37x41xbf16>
  %2 = stablehlo.divide %1, %x : tensor<37x41xbf16>
  return %2 : tensor<37x41xbf16>""",
    "maximum of a product": """%z = stablehlo.constant dense<0xFF80> : tensor<bf16>
  %0 = stablehlo.multiply %x, %y : tensor<37x41xbf16>
  %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.maximum across dimensions = [1] : (tensor<37x41xbf16>, tensor<bf16>) -> tensor<37xbf16>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<37xbf16>) -> tensor<37x41xbf16>
  %3 = stablehlo.subtract %0, %2 : tensor<37x41xbf16>
  %4 = stablehlo.multiply %3, %x : tensor<37x41xbf16>
  return %4 : tensor<37x41xbf16>""",
    "compared": """%0 = stablehlo.multiply %x, %y : tensor<37x41xbf16>
  %1 = stablehlo.add %0, %x : tensor<37x41xbf16>
  %2 = stablehlo.compare LT, %1, %0 : (tensor<37x41xbf16>, tensor<37x41xbf16>) -> tensor<37x41xi1>
  %3 = stablehlo.select %2, %1, %y : tensor<37x41xi1>, tensor<37x41xbf16>
  %4 = stablehlo.negate %3 : tensor<37x41xbf16>
  %5 = stablehlo.add %4, %3 : tensor<37x41xbf16>
  %6 = stablehlo.add %5, %1 : tensor<37x41xbf16>
  return %6 : tensor<37x41xbf16>""",
    "widened": """%0 = stablehlo.multiply %x, %y : tensor<37x41xbf16>
  %1 = stablehlo.convert %0 : (tensor<37x41xbf16>) -> tensor<37x41xf32>
  %2 = stablehlo.multiply %1, %1 : tensor<37x41xf32>
  %3 = stablehlo.convert %2 : (tensor<37x41xf32>) -> tensor<37x41xbf16>
  %4 = stablehlo.add %3, %0 : tensor<37x41xbf16>
  return %4 : tensor<37x41xbf16>""",
    "in a window": """%z = stablehlo.constant dense<0.0> : tensor<bf16>
  %0 = stablehlo.multiply %x, %y : tensor<37x41xbf16>
  %p = stablehlo.pad %0, %z, low = [1, 0], high = [0, 1], interior = [0, 0] : (tensor<37x41xbf16>, tensor<bf16>) -> tensor<38x42xbf16>
  %s = stablehlo.slice %p [0:37, 1:42] : (tensor<38x42xbf16>) -> tensor<37x41xbf16>
  %1 = stablehlo.add %s, %0 : tensor<37x41xbf16>
  %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<37x41xbf16>) -> tensor<41x37xbf16>
  %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<41x37xbf16>) -> tensor<37x41xbf16>
  return %3 : tensor<37x41xbf16>""",
    "scatter with an own body": """%i = stablehlo.constant dense<[[3],[3],[0]]> : tensor<3x1xi32>
  %u = stablehlo.slice %y [0:3, 0:41] : (tensor<37x41xbf16>) -> tensor<3x41xbf16>
  %0 = "stablehlo.scatter"(%x, %i, %u) ({ ^bb0(%p: tensor<bf16>, %q: tensor<bf16>):
    %a = stablehlo.multiply %p, %q : tensor<bf16>
    %s = stablehlo.add %a, %q : tensor<bf16> stablehlo.return %s : tensor<bf16>
  }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<37x41xbf16>, tensor<3x1xi32>, tensor<3x41xbf16>) -> tensor<37x41xbf16>
  return %0 : tensor<37x41xbf16>""",
    "two stores of one value": """%0 = stablehlo.multiply %x, %y : tensor<37x41xbf16>
  %1 = stablehlo.reverse %0, dims = [1] : tensor<37x41xbf16>
  %2 = stablehlo.add %0, %1 : tensor<37x41xbf16>
  %3 = stablehlo.multiply %2, %0 : tensor<37x41xbf16>
  return %3 : tensor<37x41xbf16>""",
}


@pytest.mark.parametrize("name", GRAPHS)
def test_kernels_give_the_evaluators_bits(name: str) -> None:
    text = f"func.func @main(%x: tensor<37x41xbf16>, %y: tensor<37x41xbf16>) -> tensor<37x41xbf16> {{\n  {GRAPHS[name]}\n}}"
    for element in ("bf16", "f16"):
        x, y = (_numbers(element, 37 * 41, k).reshape(37, 41) for k in range(2))
        agrees(text.replace("bf16", element).replace("0xFF80", "0xFC00" if element == "f16" else "0xFF80"), x, y)


@pytest.mark.parametrize("seed", range(6))
def test_random_chains_have_the_evaluators_bits(seed: int) -> None:
    """Ops that are rounded once in f32, on numbers of every size, denormal and infinite ones among them."""
    rng = np.random.default_rng(seed)
    values = ["x", "y"]
    lines = []
    for k in range(12):
        a, b = (values[-1 - int(rng.exponential(1.0)) % len(values)] for _ in range(2))
        op = rng.choice(["add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder", "sqrt", "floor", "negate", "abs", "sign"])
        one = op in ("sqrt", "floor", "negate", "abs", "sign")
        lines.append(f"%v{k} = stablehlo.{op} %{a}{'' if one else f', %{b}'} : tensor<5000xbf16>")
        values.append(f"v{k}")
    outs = ", ".join(f"%{v}" for v in values[-3:])
    types = ", ".join(["tensor<5000xbf16>"] * 3)
    text = f"func.func @main(%x: tensor<5000xbf16>, %y: tensor<5000xbf16>) -> ({types}) {{\n" + "\n".join(lines) + f"\nreturn {outs} : {types}\n}}"
    x, y = (rng.integers(0, 1 << 16, 5000).astype(np.uint16).view(ml_dtypes.bfloat16) for _ in range(2))
    module = hlo.parse(text)
    for found, want in zip(codegen.compile(module)(x, y), interp.evaluate(module, x, y), strict=True):
        assert _same_bits(found, want)


def test_results_do_not_depend_on_the_plan() -> None:
    """The value in the middle is stored in one program and computed where it is read in the other."""
    body = """%0 = stablehlo.multiply %b, %b : T
  %1 = stablehlo.add %0, %b : T
  %2 = stablehlo.multiply %1, %0 : T"""
    alone = f"func.func @main(%b: T) -> T {{\n  {body}\n  return %2 : T\n}}".replace("T", "tensor<5000xbf16>")
    both = f"func.func @main(%b: T) -> (T, T) {{\n  {body}\n  return %2, %1 : T, T\n}}".replace("T", "tensor<5000xbf16>")
    x = _numbers("bf16", 5000)
    assert _same_bits(codegen.compile(hlo.parse(alone))(x)[0], codegen.compile(hlo.parse(both))(x)[0])


@pytest.mark.parametrize("target", ["host", "avx2", "baseline"])
def test_rounding_of_results_is_to_nearest_even_for_denormals_and_nan_too(target: str) -> None:
    from codegen.target import Target, host_target

    if not host_target().triple.startswith("x86_64"):
        pytest.skip("the named targets are x86")
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    numbers = (upper[:, None] | lower).reshape(-1).view(np.float32)
    numbers = numbers[~np.isnan(numbers)]
    found = apply("round_bf16_result(x)", numbers, target=Target.named(target))
    np.testing.assert_array_equal(found.view(np.uint32), numbers.astype(ml_dtypes.bfloat16).astype(np.float32).view(np.uint32))
    nans = (upper[np.isnan(upper.view(np.float32))]).view(np.float32)
    assert np.isnan(apply("round_bf16_result(x)", nans, target=Target.named(target))).all()


def test_what_goes_into_memory_is_rounded_there_alone() -> None:
    source = codegen.compile(hlo.parse(CHAIN.replace("T", "tensor<5000xbf16>"))).kernels[0].source
    assert source.count("round_bf16") == 1


def test_what_changes_no_bit_is_not_rounded() -> None:
    t = "tensor<5000xbf16>"
    text = f"""func.func @main(%x: {t}, %y: {t}) -> {t} {{
  %0 = stablehlo.maximum %x, %y : {t}
  %1 = stablehlo.negate %0 : {t}
  %2 = stablehlo.abs %1 : {t}
  %3 = stablehlo.floor %2 : {t}
  %4 = stablehlo.remainder %3, %y : {t}
  %5 = stablehlo.compare LT, %4, %x : ({t}, {t}) -> tensor<5000xi1>
  %6 = stablehlo.select %5, %4, %x : tensor<5000xi1>, {t}
  return %6 : {t}
}}"""
    assert "round_bf16" not in codegen.compile(hlo.parse(text)).kernels[0].source
