"""Bodies of wider types than their operands': operands are converted to the body's type before anything is folded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.types import ELEMENT_TYPES
from tiling.program.promotion import promoted

PAIRS = {
    ("i8", "i32"): 100, ("i16", "i32"): 30000, ("i32", "i64"): 2**31 - 1, ("ui8", "ui32"): 200, ("i4", "i32"): 7,
    ("i4", "i8"): 7, ("ui16", "ui64"): 65535, ("f32", "f64"): 3e38, ("f16", "f64"): 60000.0, ("f16", "f32"): 60000.0,
    ("bf16", "f32"): 257.0, ("f8E4M3FN", "f32"): 448.0,
}  # fmt: skip
REDUCE = """func.func @main(%x: tensor<3x5xN>, %z: tensor<N>) -> tensor<5xW> {
  %0 = "stablehlo.reduce"(%x, %z) ({ ^bb0(%p: tensor<W>, %q: tensor<W>):
    BODY
  }) {dimensions = array<i64: 0>} : (tensor<3x5xN>, tensor<N>) -> tensor<5xW>
  return %0 : tensor<5xW>
}"""
FUSED = """func.func @main(%x: tensor<3x5xN>, %z: tensor<N>) -> tensor<5xW> {
  %y = stablehlo.maximum %x, %x : tensor<3x5xN>
  %0 = "stablehlo.reduce"(%y, %z) ({ ^bb0(%p: tensor<W>, %q: tensor<W>):
    BODY
  }) {dimensions = array<i64: 0>} : (tensor<3x5xN>, tensor<N>) -> tensor<5xW>
  %1 = stablehlo.add %0, %0 : tensor<5xW>
  return %1 : tensor<5xW>
}"""
WINDOWS = """func.func @main(%x: tensor<3x5xN>, %z: tensor<N>) -> tensor<3x4xW> {
  %0 = "stablehlo.reduce_window"(%x, %z) ({ ^bb0(%p: tensor<W>, %q: tensor<W>):
    BODY
  }) {window_dimensions = array<i64: 3, 2>, padding = dense<[[1, 1], [0, 0]]> : tensor<2x2xi64>}
    : (tensor<3x5xN>, tensor<N>) -> tensor<3x4xW>
  return %0 : tensor<3x4xW>
}"""
BODIES = {
    "add": "%s = stablehlo.add %p, %q : tensor<W> stablehlo.return %s : tensor<W>",
    "maximum": "%s = stablehlo.maximum %p, %q : tensor<W> stablehlo.return %s : tensor<W>",
    "own": """%t = stablehlo.add %p, %q : tensor<W>
    %s = stablehlo.subtract %t, %p : tensor<W>
    %u = stablehlo.add %p, %s : tensor<W>
    stablehlo.return %u : tensor<W>""",
}


def agrees(text: str, *arrays: np.ndarray) -> tuple[Any, ...]:
    """The evaluator's results, which kernels give exactly, without falling back to it."""
    module = hlo.parse(text)
    wanted = interp.evaluate(module, *arrays)
    for threads in (1, 2):
        executable = codegen.compile(module, threads=threads)
        assert executable.fallbacks == []
        for found, want in zip(executable(*arrays), wanted, strict=True):
            assert found.dtype == want.dtype
            np.testing.assert_array_equal(found, want)
    return wanted


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("program", [REDUCE, FUSED, WINDOWS], ids=["reduce", "fused", "reduce_window"])
@pytest.mark.parametrize(("narrow", "wide"), [("i8", "i32"), ("f16", "f64")])
def test_folds(program: str, body: str, narrow: str, wide: str) -> None:
    dtype = ELEMENT_TYPES[narrow].dtype
    text = program.replace("BODY", BODIES[body]).replace("N>", f"{narrow}>").replace("xN", f"x{narrow}")
    text = text.replace("W>", f"{wide}>").replace("xW", f"x{wide}")
    x = np.full((3, 5), PAIRS[narrow, wide]).astype(dtype)
    x[1, 2] = 1
    agrees(text, x, np.zeros((), dtype))


@pytest.mark.parametrize(("narrow", "wide"), PAIRS)
def test_sums_are_made_in_the_bodys_type(narrow: str, wide: str) -> None:
    dtype, most = ELEMENT_TYPES[narrow].dtype, PAIRS[narrow, wide]
    text = REDUCE.replace("BODY", BODIES["add"]).replace("xN", f"x{narrow}").replace("xW", f"x{wide}")
    text = text.replace("<N>", f"<{narrow}>").replace("<W>", f"<{wide}>")
    (found,) = agrees(text, np.full((3, 5), most).astype(dtype), np.zeros((), dtype))
    np.testing.assert_array_equal(found, 3 * np.full(5, most).astype(dtype).astype(ELEMENT_TYPES[wide].dtype))


def test_a_wide_output_beside_a_narrow_one() -> None:
    agrees(
        """func.func @main(%x: tensor<4x6xi8>, %y: tensor<4x6xi8>, %z: tensor<i8>) -> (tensor<6xi32>, tensor<6xi8>) {
  %0, %1 = "stablehlo.reduce"(%x, %y, %z, %z) ({ ^bb0(%p: tensor<i32>, %q: tensor<i8>, %r: tensor<i32>, %s: tensor<i8>):
    %a = stablehlo.add %p, %r : tensor<i32>
    %b = stablehlo.add %q, %s : tensor<i8>
    stablehlo.return %a, %b : tensor<i32>, tensor<i8>
  }) {dimensions = array<i64: 0>} : (tensor<4x6xi8>, tensor<4x6xi8>, tensor<i8>, tensor<i8>) -> (tensor<6xi32>, tensor<6xi8>)
  return %0, %1 : tensor<6xi32>, tensor<6xi8>
}""",
        np.full((4, 6), 100, np.int8), np.full((4, 6), 100, np.int8), np.int8(0),
    )  # fmt: skip


def test_one_element_and_no_element() -> None:
    for rows in (1, 0):
        text = REDUCE.replace("3x5", f"{rows}x5").replace("BODY", BODIES["add"]).replace("xN", "xi8").replace("xW", "xi32")
        agrees(text.replace("<N>", "<i8>").replace("<W>", "<i32>"), np.full((rows, 5), 127, np.int8), np.int8(127))


def test_inside_a_loop() -> None:
    agrees(
        """func.func @main(%x: tensor<4xi8>) -> tensor<i32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %n = stablehlo.constant dense<40> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %z = stablehlo.constant dense<0> : tensor<i8>
  %r:2 = stablehlo.while(%i = %i0, %a = %i0) : tensor<i32>, tensor<i32> cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %s = "stablehlo.reduce"(%x, %z) ({ ^bb0(%p: tensor<i32>, %q: tensor<i32>):
      %t = stablehlo.add %p, %q : tensor<i32> stablehlo.return %t : tensor<i32>
    }) {dimensions = array<i64: 0>} : (tensor<4xi8>, tensor<i8>) -> tensor<i32>
    %b = stablehlo.add %a, %s : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %b : tensor<i32>, tensor<i32>
  }
  return %r#1 : tensor<i32>
}""",
        np.full(4, 100, np.int8),
    )


def test_scatter() -> None:
    text = """func.func @main(%x: tensor<4xi8>, %i: tensor<5x1xi32>, %u: tensor<5xi8>) -> tensor<4xi32> {
  %0 = "stablehlo.scatter"(%x, %i, %u) ({ ^bb0(%p: tensor<i32>, %q: tensor<i32>):
    %s = stablehlo.add %p, %q : tensor<i32> stablehlo.return %s : tensor<i32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
    index_vector_dim = 1>} : (tensor<4xi8>, tensor<5x1xi32>, tensor<5xi8>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}"""
    indices = np.array([[1], [1], [2], [9], [1]], np.int32)
    (found,) = agrees(text, np.full(4, 100, np.int8), indices, np.full(5, 100, np.int8))
    assert found.tolist() == [100, 400, 200, 100]


@pytest.mark.parametrize(("narrow", "wide"), [("i8", "i32"), ("bf16", "f32")])
def test_select_and_scatter(narrow: str, wide: str) -> None:
    text = f"""func.func @main(%x: tensor<6x{narrow}>, %u: tensor<5x{narrow}>, %z: tensor<{narrow}>) -> tensor<6x{wide}> {{
  %0 = "stablehlo.select_and_scatter"(%x, %u, %z) ({{ ^bb0(%p: tensor<{narrow}>, %q: tensor<{narrow}>):
    %n = stablehlo.add %p, %p : tensor<{narrow}>
    %m = stablehlo.add %q, %q : tensor<{narrow}>
    %s = stablehlo.compare GE, %n, %m : (tensor<{narrow}>, tensor<{narrow}>) -> tensor<i1>
    stablehlo.return %s : tensor<i1>
  }}, {{ ^bb0(%p: tensor<{wide}>, %q: tensor<{wide}>):
    %s = stablehlo.add %p, %q : tensor<{wide}> stablehlo.return %s : tensor<{wide}>
  }}) {{window_dimensions = array<i64: 2>}} : (tensor<6x{narrow}>, tensor<5x{narrow}>, tensor<{narrow}>) -> tensor<6x{wide}>
  return %0 : tensor<6x{wide}>
}}"""
    dtype = ELEMENT_TYPES[narrow].dtype
    # the select body is one of narrow numbers: 100 + 100 is -56 in i8
    x, u = np.array([1, 5, 100, 3, 9, 0]).astype(dtype), np.full(5, 100).astype(dtype)
    agrees(text, x, u, np.array(1).astype(dtype))


@pytest.mark.parametrize(("op", "size"), [("all_reduce", 2), ("reduce_scatter", 1)])
def test_collectives(op: str, size: int) -> None:
    text = """func.func @main(%x: tensor<2xi8>) -> tensor<SIZExi32> {
  %0 = "stablehlo.OP"(%x) ({ ^bb0(%p: tensor<i32>, %q: tensor<i32>):
    %s = stablehlo.add %p, %q : tensor<i32> stablehlo.return %s : tensor<i32>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>MORE} : (tensor<2xi8>) -> tensor<SIZExi32>
  return %0 : tensor<SIZExi32>
}"""
    more = ", scatter_dimension = 0 : i64" if op == "reduce_scatter" else ""
    module = hlo.parse(text.replace("SIZE", str(size)).replace("OP", op).replace("MORE", more))
    x = np.full(2, 100, np.int8)
    found = interp.run_parallel(module, [["main"], ["main"]], x, x)
    assert [f.tolist() for f in found] == [[200] * size] * 2


def test_planned_without_a_code_generator_too() -> None:
    text = REDUCE.replace("BODY", BODIES["add"]).replace("xN", "xi8").replace("xW", "xi32")
    module = hlo.parse(text.replace("<N>", "<i8>").replace("<W>", "<i32>"))
    plan = tiling.plan(module)
    assert not isinstance(plan, hlo.Declined)
    assert not tiling.prove(plan).refuted
    (op,) = [o for o in module.function().body.ops if o.name == "stablehlo.reduce"]
    made = promoted(op)
    assert made is not None
    assert [o.name for o in made.ops] == ["stablehlo.convert"] * 2 + ["stablehlo.reduce", "func.return"]
    assert promoted(made.ops[2]) is None
