"""Which values get loops of their own: those that would be computed again and again where they are read."""

from __future__ import annotations

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling

MACHINE = tiling.Machine(vector_bytes=64, vector_registers=32)


def turned(heads: int, m: int, d: int, dims: str = "[1, 2]", function: str = "cosine") -> str:
    """x times a function of angles, which every head has the same of, or with `dims` the rows or columns of each head."""
    shape = {"[1, 2]": f"{m}x{d}", "[0, 1]": f"{heads}x{m}"}[dims]
    x, a = f"tensor<{heads}x{m}x{d}xf32>", f"tensor<{shape}xf32>"
    return f"""func.func @main(%x: {x}, %a: {a}) -> {x} {{
      %c = stablehlo.{function} %a : {a}
      %b = stablehlo.broadcast_in_dim %c, dims = {dims} : ({a}) -> {x}
      %y = stablehlo.multiply %x, %b : {x}
      return %y : {x}
    }}"""


def stages(text: str) -> list[str]:
    plan = tiling.plan(hlo.parse(text), machine=MACHINE, supports=codegen.supports)
    return [s.op.name.removeprefix("stablehlo.") for f in plan.fusions for s in f.stages]


def test_what_every_head_would_compute_again_is_kept() -> None:
    assert stages(turned(8, 256, 64)) == ["cosine", "multiply"]


@pytest.mark.parametrize(
    "text",
    [
        turned(2, 512, 64),  # twice is not often
        turned(8, 16, 64),  # there is little of it
        turned(8, 256, 64, function="negate"),  # it costs nothing
        turned(8, 256, 64, "[0, 1]"),  # the innermost loop does not move it
    ],
    ids=["twice", "little", "cheap", "hoisted"],
)
def test_what_is_not_worth_keeping_is_computed_where_it_is_read(text: str) -> None:
    assert stages(text) == ["multiply"]


def test_what_is_kept_gives_the_evaluators_numbers() -> None:
    module = hlo.parse(turned(8, 256, 64))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.shape, np.float32) for v in module.entry.arguments]
    arrays[1][3, :4] = [np.nan, np.inf, -0.0, 1e30]
    (found,) = codegen.compile(module)(*arrays)
    (expected,) = interp.evaluate(module, *arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def picked(rows: int, count: int, function: str = "cosine", dim: int = 1) -> str:
    """Columns, or with `dim` 0 rows, of x picked by numbers that are computed from others."""
    shape, rest = ((rows, count), (count,)) if dim else ((count, rows), (count,))
    x, size = f"tensor<{'x'.join(map(str, (rows, 64) if dim else (64, rows)))}xf32>", rest[0]
    out, sizes = f"tensor<{'x'.join(map(str, shape))}xf32>", f"{rows}, 1" if dim else f"1, {rows}"
    return f"""func.func @main(%x: {x}, %a: tensor<{size}x1xf32>) -> {out} {{
      %c = stablehlo.{function} %a : tensor<{size}x1xf32>
      %i = stablehlo.convert %c : (tensor<{size}x1xf32>) -> tensor<{size}x1xi32>
      %y = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = [{1 - dim}],
        collapsed_slice_dims = [{dim}], start_index_map = [{dim}], index_vector_dim = 1>, slice_sizes = array<i64: {sizes}>}}>
        : ({x}, tensor<{size}x1xi32>) -> {out}
      return %y : {out}
    }}"""


def test_columns_picked_by_computed_numbers_have_these_computed_once() -> None:
    """1,000 columns of 2,048 rows: the numbers were computed 2,048 times."""
    assert stages(picked(2048, 1000)) == ["convert", "gather"]
    others = [picked(2048, 1000, dim=0), picked(2048, 1000, "negate"), picked(16, 100)]  # hoisted, cheap, little
    assert [stages(text) for text in others] == [["gather"]] * 3
    module = hlo.parse(picked(64, 500))
    (found,), (expected,) = (f(*inputs(module)) for f in (codegen.compile(module), lambda *a: interp.evaluate(module, *a)))
    np.testing.assert_array_equal(found, expected)


def inputs(module: hlo.Module) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [60 * rng.random(v.shape, np.float32) for v in module.entry.arguments]


def rolled(parts: int, n: int = 64) -> str:
    """As many planes of one image, each rolled by one column more than the one before, and what two folds make of them."""
    ops, rows, whole = [], [], f"tensor<{parts}x{n}x{n}xf32>"
    for k in range(parts):
        a, b = f"tensor<{n}x{n - k}xf32>", f"tensor<{n}x{k}xf32>"
        ops.append(f"""%l{k} = stablehlo.slice %x [{k}:{k + 1}, 0:{n}, {k}:{n}] : ({whole}) -> tensor<1x{n}x{n - k}xf32>
      %m{k} = stablehlo.reshape %l{k} : (tensor<1x{n}x{n - k}xf32>) -> {a}
      %h{k} = stablehlo.slice %x [{k}:{k + 1}, 0:{n}, 0:{k}] : ({whole}) -> tensor<1x{n}x{k}xf32>
      %i{k} = stablehlo.reshape %h{k} : (tensor<1x{n}x{k}xf32>) -> {b}
      %j{k} = stablehlo.concatenate %m{k}, %i{k}, dim = 1 : ({a}, {b}) -> tensor<{n}x{n}xf32>
      %r{k} = stablehlo.reshape %j{k} : (tensor<{n}x{n}xf32>) -> tensor<1x{n}x{n}xf32>""")
        rows.append(f"%r{k}")
    types = ", ".join([f"tensor<1x{n}x{n}xf32>"] * parts)
    plane = f"tensor<{n}x{n}xf32>"
    lines = "\n      ".join(ops)
    return f"""func.func @main(%x: {whole}) -> {whole} {{
      {lines}
      %all = stablehlo.concatenate {", ".join(rows)}, dim = 0 : ({types}) -> {whole}
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %sum = stablehlo.reduce(%all init: %z) applies stablehlo.add across dimensions = [0] : ({whole}, tensor<f32>) -> {plane}
      %b = stablehlo.broadcast_in_dim %sum, dims = [1, 2] : ({plane}) -> {whole}
      %y = stablehlo.multiply %all, %b : {whole}
      return %y : {whole}
    }}"""


@pytest.mark.parametrize(("parts", "is_kept"), [(3, False), (9, True)])
def test_many_parts_side_by_side_are_put_there_once_for_several_readers(parts: int, is_kept: bool) -> None:
    """Each reader chose among them for each element: a lattice Boltzmann step took 2.8 times as long."""
    text = rolled(parts)
    assert ("concatenate" in stages(text)) == is_kept
    module = hlo.parse(text)
    x = np.random.default_rng(1).standard_normal((parts, 64, 64), np.float32)
    (found,), (expected,) = codegen.compile(module)(x), interp.evaluate(module, x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.jax
def test_attention_with_rotary_positions_keeps_no_scores() -> None:
    """The scores would take 33 MB: the angles of the positions, computed for each head, made it look cheaper to keep them."""
    import jax

    from benchmarks.cases.forms import cases

    case = next(c for c in cases() if c.name == "rotary")
    shapes = [jax.ShapeDtypeStruct(g.shape, g.dtype) for g in case.arguments]  # type: ignore[no-untyped-call]
    text = jax.jit(case.function).lower(*shapes).as_text()
    plan = tiling.plan(hlo.parse(text), machine=MACHINE, supports=codegen.supports)
    largest = max(b.size_bytes for f in plan.fusions for b in f.schedule.buffers)
    assert largest < 8_000_000


@pytest.mark.parametrize("moves", [1, 9])
def test_places_that_take_many_operations_are_computed_before_a_scatter(moves: int) -> None:
    """A scatter goes update by update; a nest computes the places several at once. Few operations are not worth a nest."""
    t = "tensor<8192xi32>"
    lines = [f"%k = stablehlo.constant dense<3> : {t}"]
    at = "%i"
    for k in range(moves):
        lines.append(f"%m{k} = stablehlo.{('maximum', 'xor', 'minimum')[k % 3]} {at}, %k : {t}")
        at = f"%m{k}"
    body = "\n".join(lines)
    module = hlo.parse(f"""func.func @main(%x: tensor<512xf32>, %i: {t}, %u: tensor<8192xf32>) -> tensor<512xf32> {{
      {body}
      %r = stablehlo.reshape {at} : ({t}) -> tensor<8192x1xi32>
      %s = "stablehlo.scatter"(%x, %r, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
          inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %n = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %n : tensor<f32>
      }}) : (tensor<512xf32>, tensor<8192x1xi32>, tensor<8192xf32>) -> tensor<512xf32>
      return %s : tensor<512xf32>
    }}""")
    plan = tiling.plan(module, machine=MACHINE, supports=codegen.supports)
    assert [f.stages[-1].op.name for f in plan.fusions] == ["stablehlo.minimum"] * (moves > 1) + ["stablehlo.scatter"]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(512, np.float32), rng.integers(0, 500, 8192, np.int32), rng.standard_normal(8192, np.float32)]
    np.testing.assert_allclose(codegen.compile(plan)(*arrays)[0], interp.evaluate(module, *arrays)[0], rtol=1e-4, atol=1e-4)
