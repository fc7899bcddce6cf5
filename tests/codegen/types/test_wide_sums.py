"""Sums of 16-bit floats: kept in f32 while they grow and rounded once, wherever the running results lie."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.types import ELEMENT_TYPES

ROWS, COLUMNS = 600, 48
SUM = """func.func @main(%x: tensor<600x48xE>) -> tensor<RxE> {
  %z = stablehlo.constant dense<0.0> : tensor<E>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [D] : (tensor<600x48xE>, tensor<E>) -> tensor<RxE>
  return %0 : tensor<RxE>
}"""
WINDOW = """func.func @main(%x: tensor<600x48xE>) -> tensor<AxBxE> {
  %z = stablehlo.constant dense<0.0> : tensor<E>
  %0 = "stablehlo.reduce_window"(%x, %z) ({ ^bb0(%p: tensor<E>, %q: tensor<E>):
    %s = stablehlo.add %p, %q : tensor<E> stablehlo.return %s : tensor<E>
  }) {window_dimensions = array<i64: W>, padding = dense<[P]> : tensor<2x2xi64>} : (tensor<600x48xE>, tensor<E>) -> tensor<AxBxE>
  return %0 : tensor<AxBxE>
}"""


def _module(text: str, element: str, **names: object) -> hlo.Module:
    for key, value in names.items():
        text = text.replace(f"<{key}", f"<{value}").replace(f"x{key}x", f"x{value}x").replace(f"[{key}]", f"[{value}]")
        text = text.replace(f": {key}>", f": {value}>")
    return hlo.parse(text.replace("E>", f"{element}>"))


def _once(exact: np.ndarray, found: np.ndarray, terms: int) -> None:
    """Equal to the exact sum rounded once, but where f32's own rounding decides a tie."""
    away = np.abs(found.astype(np.float64) - exact)
    half = np.exp2(np.floor(np.log2(np.abs(exact)))) * (2.0**-8 if found.dtype.name == "bfloat16" else 2.0**-11)
    assert (away <= half * (1 + terms * 2.0**-12)).all(), (away / half).max()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_sums_of_rows_and_of_columns(element: str, dimension: int, threads: int) -> None:
    """Columns were summed in the result's own memory: of 3000 numbers a third was missing."""
    x = np.random.default_rng(0).uniform(0, 1, (ROWS, COLUMNS)).astype(ELEMENT_TYPES[element].dtype)
    module = _module(SUM, element, R=(COLUMNS, ROWS)[dimension], D=dimension)
    (found,) = codegen.compile(module, threads=threads)(x)
    _once(x.astype(np.float64).sum(dimension), found, (ROWS, COLUMNS)[dimension])


@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_sums_in_parts(element: str) -> None:
    text = SUM.replace("600x48", "6000x48")
    x = np.random.default_rng(0).uniform(0, 0.1, (6000, 48)).astype(ELEMENT_TYPES[element].dtype)
    module = _module(text, element, R=48, D=0)
    executable = codegen.compile(module, threads=2)
    assert "part: shared f32" in "".join(k.source for k in executable.kernels)
    _once(x.astype(np.float64).sum(0), executable(x)[0], 6000)
    assert tiling.prove(executable.plan).holds  # shared parts, put together in scratch of one task


@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_sums_of_what_is_computed_and_read_again(element: str) -> None:
    """A mean over rows, subtracted again: the scratch is f32 while it grows, what is read is rounded."""
    text = f"""func.func @main(%x: tensor<600x48x{element}>) -> (tensor<600x48x{element}>, tensor<48x{element}>) {{
  %z = stablehlo.constant dense<0.0> : tensor<{element}>
  %y = stablehlo.multiply %x, %x : tensor<600x48x{element}>
  %0 = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [0] : (tensor<600x48x{element}>, tensor<{element}>) -> tensor<48x{element}>
  %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<48x{element}>) -> tensor<600x48x{element}>
  %2 = stablehlo.subtract %y, %1 : tensor<600x48x{element}>
  return %2, %0 : tensor<600x48x{element}>, tensor<48x{element}>
}}"""
    x = np.random.default_rng(0).uniform(0, 1, (ROWS, COLUMNS)).astype(ELEMENT_TYPES[element].dtype)
    for threads in (1, 2):
        rest, total = codegen.compile(hlo.parse(text), threads=threads)(x)
        y = (x.astype(np.float32) * x.astype(np.float32)).astype(x.dtype)
        _once(y.astype(np.float64).sum(0), total, ROWS)
        want = (y.astype(np.float32) - total.astype(np.float32)).astype(x.dtype)
        np.testing.assert_array_equal(rest, want)


@pytest.mark.parametrize(("window", "padding", "shape"), [
    ("3, 3", "[1, 1], [1, 1]", (600, 48)), ("600, 1", "[599, 0], [0, 0]", (600, 48)), ("1, 48", "[0, 0], [47, 0]", (600, 48)),
    ("40, 1", "[0, 0], [0, 0]", (561, 48)), ("2, 2", "[0, 0], [0, 0]", (599, 47)),
])  # fmt: skip
@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_sums_of_windows(element: str, window: str, padding: str, shape: tuple[int, int]) -> None:
    """Written out, scanned, or in loops: the same rule."""
    module = _module(WINDOW.replace("array<i64: W>", f"array<i64: {window}>").replace("[P]", f"[{padding}]")
                     .replace("AxBx", f"{shape[0]}x{shape[1]}x"), element)  # fmt: skip
    x = np.random.default_rng(1).uniform(0.5, 1, (ROWS, COLUMNS)).astype(ELEMENT_TYPES[element].dtype)
    (found,) = codegen.compile(module)(x)
    sizes = tuple(map(int, window.split(", ")))
    pads = [tuple(map(int, p.strip("[] ").split(", "))) for p in padding.split("], [")]
    grown = np.pad(x.astype(np.float64), pads)
    exact = np.lib.stride_tricks.sliding_window_view(grown, sizes).sum((2, 3))
    _once(exact, found, sizes[0] * sizes[1])


def test_plans_are_proved() -> None:
    for element in ("bf16", "f16"):
        for module in (_module(SUM, element, R=48, D=0), _module(SUM.replace("600x48", "6000x48"), element, R=48, D=0)):
            proof = tiling.prove(codegen.remembered_plan(module))
            assert proof.holds, str(proof)


def test_a_maximum_needs_no_scratch() -> None:
    module = _module(SUM.replace("stablehlo.add", "stablehlo.maximum"), "bf16", R=48, D=0)
    assert "sums" not in codegen.compile(module).kernels[0].source


GATE = """func.func @main(%x: tensor<192x512xE>, %v: tensor<512x128xE>, %w: tensor<512x128xE>) -> tensor<192x128xE> {
  %p = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<192x512xE>, tensor<512x128xE>) -> tensor<192x128xE>
  %q = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<192x512xE>, tensor<512x128xE>) -> tensor<192x128xE>
  %n = stablehlo.negate %p : tensor<192x128xE>
  %y = stablehlo.multiply %n, %q : tensor<192x128xE>
  return %y : tensor<192x128xE>
}"""


@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_a_sum_is_rounded_before_it_is_an_operand(element: str) -> None:
    """The second product was multiplied as its kernel had it, in f32: one bit in seven of a gate was not XLA's."""
    module = hlo.parse(GATE.replace("E>", f"{element}>"))
    random = np.random.default_rng(3)
    # products of few bits, whose sums are exact in f32: there is one result, whatever the order
    x, v, w = ((random.integers(-16, 17, s) / 64).astype(ELEMENT_TYPES[element].dtype) for s in ((192, 512), (512, 128), (512, 128)))
    executable = codegen.compile(module)
    assert len(executable.plan.fusions) == 1
    (found,), (want,) = executable(x, v, w), interp.evaluate(module, x, v, w)
    assert np.array_equal(found.view(np.uint16), want.view(np.uint16))
