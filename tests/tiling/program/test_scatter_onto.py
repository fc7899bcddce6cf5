"""What is scattered into zeros and added is scattered onto the other operand, where that spares a table."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling

TABLE, ROWS = "tensor<64x8xf32>", "tensor<5x8xf32>"


def scatter(name: str, operand: str, k: int, body: str = "add", order: str = "%a, %b") -> str:
    return f"""%{name} = "stablehlo.scatter"({operand}, %i{k}, %u{k}) <{{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %made = stablehlo.{body} {order} : tensor<f32>
      stablehlo.return %made : tensor<f32>
    }}) : ({TABLE}, tensor<5x1xi32>, {ROWS}) -> {TABLE}"""


def module_of(body: str, results: int = 1) -> hlo.Module:
    tables = ", ".join([TABLE] * results)
    arguments = ", ".join(f"%i{k}: tensor<5x1xi32>, %u{k}: {ROWS}" for k in range(3))
    return hlo.parse(f"""func.func @main(%x: {TABLE}, %w: tensor<8x8xf32>, {arguments}) -> ({tables}) {{
    %z = stablehlo.constant dense<0.0> : {TABLE}
    %one = stablehlo.constant dense<1.0> : {TABLE}
    {body} }}""")


def given() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    rows = [y for _ in range(3) for y in (rng.integers(0, 64, (5, 1)).astype(np.int32), rng.standard_normal((5, 8), np.float32))]
    return [rng.standard_normal((64, 8), np.float32), rng.standard_normal((8, 8), np.float32), *rows]


def planned(module: hlo.Module) -> list[str]:
    """The names of the program's ops that are no constants; its kernels give what the evaluator gives."""
    arrays = given()
    found = codegen.compile(module)(*arrays)
    for a, b in zip(found, interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    program = tiling.plan(module, supports=codegen.supports).program
    return [op.name.partition(".")[2] for op in program.ops if op.operands]


def added(a: str, b: str, name: str = "r") -> str:
    return f"%{name} = stablehlo.add {a}, {b} : {TABLE}"


def test_tables_of_one_gradient_are_one_table() -> None:
    """The gradient of a table read at 48 places was 48 tables of zeros: they were filled, and read again by a kernel of adds."""
    lines = [scatter(f"s{k}", "%z", k) for k in range(3)]
    body = "\n".join([*lines, added("%s0", "%s1", "p"), added("%p", "%s2"), f"return %r : {TABLE}"])
    assert planned(module_of(body)) == ["scatter", "scatter", "scatter"]
    program = tiling.plan(module_of(body), supports=codegen.supports).program
    assert [op.name for op in program.ops if op.operands] == ["stablehlo.scatter", "in_place.scatter", "in_place.scatter"]


@pytest.mark.parametrize("order", ["%s0, %d", "%d, %s0"])
def test_rows_are_added_to_what_a_product_gave(order: str) -> None:
    product = f"%d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({TABLE}, tensor<8x8xf32>) -> {TABLE}"
    body = "\n".join([scatter("s0", "%z", 0), product, added(*order.split(", ")), f"return %r : {TABLE}"])
    program = tiling.plan(module_of(body), supports=codegen.supports).program
    assert [op.name for op in program.ops if op.operands] == ["stablehlo.dot_general", "in_place.scatter"]
    planned(module_of(body))


@pytest.mark.parametrize(("lines", "results"), [
    ([scatter("s", "%one", 0), scatter("t", "%z", 1, "maximum"), added("%s", "%t")], "%r"),  # one not zeros, one no sum
    ([scatter("s", "%z", 0), added("%s", "%x")], "%r"),  # an argument is not written over
    ([scatter("s", "%z", 0), scatter("t", "%z", 1), added("%s", "%t")], "%r, %t"),  # read twice
    ([scatter("t", "%z", 0), f"%c = stablehlo.cosine %x : {TABLE}", added("%c", "%t", "p"),
      f"%r = stablehlo.sine %p : {TABLE}"], "%r"),  # the sum has no memory
    ([scatter("t", "%z", 0), added("%t", "%t")], "%r"),
])  # fmt: skip
def test_other_sums_stay(lines: list[str], results: str) -> None:
    n = results.count("%")
    body = "\n".join([*lines, f"return {results} : {', '.join([TABLE] * n)}"])
    assert "add" in planned(module_of(body, n))


def test_a_body_may_add_in_either_order() -> None:
    body = "\n".join([scatter("s", "%z", 0), scatter("t", "%z", 1, order="%b, %a"), added("%s", "%t"), f"return %r : {TABLE}"])
    assert "add" not in planned(module_of(body))


SPOT = """func.func @main(%x: tensor<64x64xf32>, %u: tensor<1x1xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {{
  %z = stablehlo.constant dense<{around}> : tensor<f32>
  %p = stablehlo.pad %u, %z, low = {low}, high = {high}, interior = [0, 0] : (tensor<1x1xf32>, tensor<f32>) -> tensor<64x64xf32>
  %y = stablehlo.sine %x : tensor<64x64xf32>
  %s = stablehlo.add %p, %y : tensor<64x64xf32>
  %t = stablehlo.transpose %s, dims = [1, 0] : (tensor<64x64xf32>) -> tensor<64x64xf32>
  return %s, %t : tensor<64x64xf32>, tensor<64x64xf32>
}}"""


@pytest.mark.parametrize(("low", "high", "around", "made"), [
    ((40, 40), (23, 23), "0.0", "in_place.scatter"),
    ((0, 63), (63, 0), "0.0", "stablehlo.pad"),
    ((40, 40), (23, 23), "1.0", "stablehlo.pad"),
])  # fmt: skip
def test_a_spot_is_added_in_place(low: tuple[int, int], high: tuple[int, int], around: str, made: str) -> None:
    """The gradient of `x[40, 40]`: whatever read the sum asked in its innermost loop whether it was there."""
    module = hlo.parse(SPOT.format(low=list(low), high=list(high), around=around))
    rng = np.random.default_rng(1)
    given = [rng.standard_normal((64, 64), np.float32), np.full((1, 1), 3.0, np.float32)]
    for a, b in zip(codegen.compile(module)(*given), interp.evaluate(module, *given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert made in [op.name for op in tiling.plan(module, supports=codegen.supports).program.ops]
