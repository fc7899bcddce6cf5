"""Folds across rows of a few elements: in lanes over many rows, or along the loops that go on through memory where a row ends."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from tiling.loops.ir import Nest, Schedule

MACHINE = tiling.Machine(cores=1, vector_bytes=64, vector_registers=32)
DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "ui8": np.uint8}
LOWEST = {"f32": "0xFF800000", "f64": "0xFFF0000000000000", "f16": "0xFC00", "bf16": "0xFF80", "i32": "-2147483648", "ui8": "0"}


def program(shape: tuple[int, ...], dims: tuple[int, ...], op: str = "maximum", t: str = "f32", start: str | None = None) -> str:
    given = "x".join(map(str, (*shape, t)))
    made = "x".join(map(str, (*(n for k, n in enumerate(shape) if k not in dims), t)))
    number = start or (LOWEST[t] if op == "maximum" else "0.0" if t[0] in "fb" else "0")
    return f"""func.func @main(%x: tensor<{given}>) -> tensor<{made}> {{
  %i = stablehlo.constant dense<{number}> : tensor<{t}>
  %r = stablehlo.reduce(%x init: %i) applies stablehlo.{op} across dimensions = {list(dims)}
       : (tensor<{given}>, tensor<{t}>) -> tensor<{made}>
  return %r : tensor<{made}>
}}"""


def planned(text: str) -> tiling.Plan:
    return tiling.plan(hlo.parse(text), supports=codegen.supports, machine=MACHINE)


def final(plan: tiling.Plan) -> Schedule:
    (fusion,) = plan.fusions
    return tiling.pipeline.finished(fusion.schedule)


def longest_rows(plan: tiling.Plan) -> int:
    """The innermost loop of the folds that read the argument."""
    first, *_ = (s for s in final(plan).phases[0].steps if isinstance(s, Nest) and s.folds)
    return first.loops[-1].extent


@pytest.mark.parametrize(
    ("shape", "dims", "rows"),
    [
        ((2, 64, 410, 3), (1, 2), 48),  # 16 rows of 3, and some left
        ((3, 20, 53, 5), (2,), 80),  # 16 rows of 5, and five left
        ((3, 4, 24, 5), (2,), 40),  # 8 rows of 5
        ((4, 50, 60, 3), (1,), 180),  # rows of 60 x 3 without lanes
        ((7, 117, 11, 15), (1,), 165),
        ((7, 9, 11, 13, 15), (1, 3), 15),  # the rows of 15 follow one another along the fold alone
        ((40, 30, 3, 5), (1,), 15),
        ((6, 30, 40, 20), (1,), 20),  # 800 elements would be more than half a page
    ],
)
def test_how_long_rows_get(shape: tuple[int, ...], dims: tuple[int, ...], rows: int) -> None:
    plan = planned(program(shape, dims))
    assert longest_rows(plan) == rows
    proof = tiling.prove(plan)
    assert proof.holds and not proof.undecided
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x[(0,) * len(shape)], x[(-1,) * len(shape)] = np.nan, np.inf
    np.testing.assert_array_equal(codegen.compile(plan)(x)[0], x.max(dims))


@pytest.mark.parametrize("t", DTYPES)
@pytest.mark.parametrize("op", ["add", "maximum", "multiply"])
@pytest.mark.parametrize(
    ("shape", "dims"), [((2, 5, 51, 3), (2,)), ((2, 70, 3), (1,)), ((3, 20, 7, 5), (1,)), ((3, 9, 5, 2), (0, 1))]
)
def test_results_in_all_types(shape: tuple[int, ...], dims: tuple[int, ...], op: str, t: str) -> None:
    text = program(shape, dims, op, t, start="2" if t in ("i32", "ui8") else None)
    rng = np.random.default_rng(1)
    x = rng.integers(0, 4, shape) if t in ("i32", "ui8") else 1 + rng.standard_normal(shape) * 0.01
    given = x.astype(DTYPES[t])
    (found,) = codegen.compile(planned(text))(given)
    (expected,) = interp.evaluate(hlo.parse(text), given)
    close = {"f16": 2e-2, "bf16": 1e-1, "f32": 1e-5}.get(t, 1e-12)
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=close)


def test_a_fold_with_its_own_start_starts_once() -> None:
    """A sum that starts from 2 is 2 and the elements: 16 lanes that each start from it would be 32."""
    text = program((2, 64, 3), (1,), "add", start="2.0")
    x = np.ones((2, 64, 3), np.float32)
    np.testing.assert_array_equal(codegen.compile(planned(text))(x)[0], np.full((2, 3), 66, np.float32))


def test_a_fold_without_dimensions_and_loops() -> None:
    x = np.float32(2)
    assert codegen.compile(planned(program((), (), "add", start="3.0")))(x)[0] == 5
