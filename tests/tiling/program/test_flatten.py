"""Flattening keeps the meaning, inlines calls, merges equal ops and drops dead ones."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
import interp
from hlo import Block, Function, Module, Op
from hlo.clone import captured_values
from hlo.registry import definition
from tests.random_programs import random_program
from tiling.program.flatten import Program, flatten


def as_module(program: Program) -> Module:
    block = Block([])
    block.arguments = list(program.arguments)
    block.ops = [*program.ops, Op(definition("func.return"), program.results)]
    return Module({"main": Function("main", block, result_types=tuple(v.type for v in program.results))})


@pytest.mark.parametrize("seed", range(12))
def test_meaning_is_kept(seed: int) -> None:
    module, arrays = random_program(seed)
    flat = as_module(flatten(module))
    for a, b in zip(interp.evaluate(flat, *arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_array_equal(a, b)


CALLS = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = call @f(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = stablehlo.tanh %x : tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func private @f(%y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.exponential %y : tensor<4xf32>
  %1 = stablehlo.exponential %y : tensor<4xf32>
  %2 = call @g(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
func.func private @g(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %b : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def test_moves_that_put_a_value_back_are_left_out() -> None:
    """By their index maps: turned twice, cut and merged, across what lies between."""
    module = hlo.parse("""func.func @main(%x: tensor<4x6xf32>, %y: tensor<6x6xf32>)
        -> (tensor<4x6xf32>, tensor<6x6xf32>, tensor<6x6xf32>, tensor<4x6xf32>, tensor<6x6xf32>) {
      %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
      %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<6x4xf32>) -> tensor<4x6xf32>
      %2 = stablehlo.transpose %y, dims = [1, 0] : (tensor<6x6xf32>) -> tensor<6x6xf32>
      %3 = stablehlo.reverse %y, dims = [0] : tensor<6x6xf32>
      %4 = stablehlo.reverse %3, dims = [0] : tensor<6x6xf32>
      %5 = stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<2x2x6xf32>
      %6 = stablehlo.transpose %5, dims = [1, 0, 2] : (tensor<2x2x6xf32>) -> tensor<2x2x6xf32>
      %7 = stablehlo.transpose %6, dims = [1, 0, 2] : (tensor<2x2x6xf32>) -> tensor<2x2x6xf32>
      %8 = stablehlo.reshape %7 : (tensor<2x2x6xf32>) -> tensor<4x6xf32>
      %9 = stablehlo.reverse %2, dims = [0] : tensor<6x6xf32>
      return %1, %2, %4, %8, %9 : tensor<4x6xf32>, tensor<6x6xf32>, tensor<6x6xf32>, tensor<4x6xf32>, tensor<6x6xf32>
    }""")
    flat = flatten(module)
    x, y = flat.arguments
    assert [op.name for op in flat.ops] == ["stablehlo.transpose", "stablehlo.reverse"]
    assert [flat.results[k] for k in (0, 2, 3)] == [x, y, x]


def test_calls_are_inlined_equal_ops_merged_dead_ops_dropped() -> None:
    program = flatten(hlo.parse(CALLS))
    assert [op.definition.mnemonic for op in program.ops] == ["exponential", "add", "exponential", "add"]
    x = np.array([0.0, 0.5, 1.0, -1.0], np.float32)
    np.testing.assert_array_equal(*interp.evaluate(as_module(program), x), *interp.evaluate(hlo.parse(CALLS), x))


def test_equal_reductions_are_merged_and_different_ones_are_not() -> None:
    text = """
    func.func @main(%x: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {{
      %c = stablehlo.constant dense<0.0> : tensor<f32>
      {0}
      return %a, %b, %d : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }}"""
    line = (
        "%{} = stablehlo.reduce(%x init: %c) applies stablehlo.{} across dimensions = [{}]"
        " : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>"
    )
    lines = [line.format("a", "add", 1), line.format("b", "add", 1), line.format("d", "maximum", 1)]
    program = flatten(hlo.parse(text.format("\n".join(lines))))
    assert len([op for op in program.ops if op.name == "stablehlo.reduce"]) == 2
    assert program.results[0] is program.results[1]
    assert program.results[0] is not program.results[2]


def test_a_splat_follows_its_broadcast() -> None:
    program = flatten(
        hlo.parse("""
        func.func @main() -> tensor<2x3xf32> {
          %c = stablehlo.constant dense<2.0> : tensor<f32>
          %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<3xf32>
          %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
          return %1 : tensor<2x3xf32>
        }""")
    )
    (op,) = program.ops
    assert op.name == "stablehlo.constant"
    assert op.attr("value").is_splat and op.attr("value").array.shape == (2, 3)


def test_regions_nested_two_thousand_deep_are_no_recursion() -> None:
    import codegen

    depth = 2000
    text = ["func.func @main(%p: tensor<i1>, %a: tensor<f32>) -> tensor<f32> {"]
    text += [f'%r{i} = "stablehlo.if"(%p) ({{' for i in range(depth)]
    text.append('"stablehlo.return"(%a) : (tensor<f32>) -> ()')
    for i in reversed(range(depth)):
        text.append('}, {\n "stablehlo.return"(%a) : (tensor<f32>) -> ()\n}) : (tensor<i1>) -> tensor<f32>')
        if i:
            text.append(f'"stablehlo.return"(%r{i}) : (tensor<f32>) -> ()')
    text.append("return %r0 : tensor<f32>\n}")
    executable = codegen.compile(hlo.parse("\n".join(text)))
    assert executable(np.array(True), np.array(2.5, np.float32))[0] == 2.5


TURNED = """func.func @main(%a: tensor<2x30x7xf32>, %b: tensor<2x30x9xf32>) -> ({results}) {{
  %p = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [1] x [1], precision = [DEFAULT, HIGHEST]
    : (tensor<2x30x7xf32>, tensor<2x30x9xf32>) -> tensor<2x7x9xf32>
  %t = stablehlo.transpose %p, dims = {order} : (tensor<2x7x9xf32>) -> {shape}
  %u = stablehlo.negate %t : {shape}
  %c = stablehlo.constant dense<true> : tensor<i1>
  %v = "stablehlo.if"(%c) ({{
    %w = stablehlo.add %u, %t : {shape}
    "stablehlo.return"(%w) : ({shape}) -> ()
  }}, {{
    "stablehlo.return"(%t) : ({shape}) -> ()
  }}) : (tensor<i1>) -> {shape}
  return {returned} : {results}
}}"""


@pytest.mark.parametrize(
    ("order", "shape", "also", "swapped"),
    [
        ((0, 2, 1), "tensor<2x9x7xf32>", False, True),
        ((0, 2, 1), "tensor<2x9x7xf32>", True, False),  # the product is a result, too: it would be computed twice
        ((1, 0, 2), "tensor<7x2x9xf32>", False, False),  # batch dimensions come first in a product
    ],
)
def test_a_product_that_is_only_read_turned_has_swapped_factors(
    order: tuple[int, ...], shape: str, also: bool, swapped: bool
) -> None:
    results, returned = (f"{shape}, tensor<2x7x9xf32>", "%v, %p") if also else (shape, "%v")
    module = hlo.parse(TURNED.format(results=results, returned=returned, shape=shape, order=list(order)))
    program = flatten(module)
    names = [op.name for op in program.ops]
    assert names.count("stablehlo.dot_general") == 1
    assert ("stablehlo.transpose" not in names) == swapped
    if swapped:
        (product,) = [op for op in program.ops if op.name == "stablehlo.dot_general"]
        assert product.operands == program.arguments[::-1]
        assert [str(x).rpartition(".")[2] for x in product.attr("precision_config")] == ["HIGHEST", "DEFAULT"]
    flat = as_module(program)
    hlo.verify(flat)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.shape).astype(np.float32) for v in module.functions["main"].arguments]
    for found, expected in zip(interp.evaluate(flat, *arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


LOOP = """func.func @main(%x: tensor<{n}xf32>, %y: tensor<{n}xf32>) -> (tensor<{n}xf32>, tensor<i32>) {{
  %first = stablehlo.constant dense<{first}> : tensor<i32>
  %shifts = stablehlo.constant dense<[3, 1, 2]> : tensor<3xi32>
  %r:4 = stablehlo.while(%i = %first, %a = %x, %b = %y, %c = %shifts)
    : tensor<i32>, tensor<{n}xf32>, tensor<{n}xf32>, tensor<3xi32>
  cond {{
    %limit = stablehlo.constant dense<{limit}> : tensor<i32>
    %go = stablehlo.compare LT, %i, %limit, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    %s = stablehlo.slice %c [1:2] : (tensor<3xi32>) -> tensor<1xi32>
    %t = stablehlo.reshape %s : (tensor<1xi32>) -> tensor<i32>
    %u = stablehlo.add %t, %next : tensor<i32>
    %f = stablehlo.convert %u : (tensor<i32>) -> tensor<f32>
    %w = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<{n}xf32>
    %p = func.call @mixed(%a, %b) : (tensor<{n}xf32>, tensor<{n}xf32>) -> tensor<{n}xf32>
    %q = stablehlo.add %p, %w : tensor<{n}xf32>
    %m = {moved} : tensor<{n}xf32>
    stablehlo.return %next, %b, %m, %c : tensor<i32>, tensor<{n}xf32>, tensor<{n}xf32>, tensor<3xi32>
  }}
  %d = stablehlo.subtract %r#1, %r#2 : tensor<{n}xf32>
  return %d, %r#0 : tensor<{n}xf32>, tensor<i32>
}}
func.func private @mixed(%a: tensor<{n}xf32>, %b: tensor<{n}xf32>) -> tensor<{n}xf32> {{
  %h = stablehlo.constant dense<0.5> : tensor<{n}xf32>
  %g = stablehlo.multiply %a, %h : tensor<{n}xf32>
  %s = stablehlo.subtract %g, %b : tensor<{n}xf32>
  return %s : tensor<{n}xf32>
}}"""
SAME, TURNED_ROUND = "stablehlo.negate %q", "stablehlo.reverse %q, dims = [0]"


@pytest.mark.parametrize(
    ("n", "first", "limit", "moved", "written"),
    [
        (1 << 14, 0, 5, SAME, True),
        (1 << 14, -3, 0, SAME, True),
        (1 << 14, 0, 9, SAME, False),  # too many iterations
        (1 << 14, 5, 5, SAME, False),  # none
        (1 << 10, 0, 5, SAME, False),  # small: its state is in the nearest cache
        (1 << 14, 0, 5, TURNED_ROUND, False),  # elements read others: written out, each would be computed again and again
    ],
)
def test_short_loops_over_elements_are_written_out(n: int, first: int, limit: int, moved: str, written: bool) -> None:
    module = hlo.parse(LOOP.format(n=n, first=first, limit=limit, moved=moved))
    program = flatten(module)
    assert ("stablehlo.while" not in [op.name for op in program.ops]) == written
    flat = Module({**module.functions, **as_module(program).functions})
    hlo.verify(flat)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(n).astype(np.float32) for _ in range(2)]
    for found, expected in zip(interp.evaluate(flat, *arrays), interp.evaluate(module, *arrays), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("type", ["i8", "ui8", "i32", "ui32", "i64"])
def test_integers_of_the_program_are_computed_ahead_and_wrap_around(type: str) -> None:
    text = f"""func.func @main(%x: tensor<{type}>) -> (tensor<{type}>, tensor<ui16>, tensor<2x{type}>) {{
      %c = stablehlo.constant dense<[1, 100, 3, 77]> : tensor<4x{type}>
      %s = stablehlo.slice %c [1:2] : (tensor<4x{type}>) -> tensor<1x{type}>
      %a = stablehlo.reshape %s : (tensor<1x{type}>) -> tensor<{type}>
      %p = stablehlo.multiply %a, %a : tensor<{type}>
      %q = stablehlo.subtract %p, %a : tensor<{type}>
      %m = stablehlo.subtract %q, %p : tensor<{type}>
      %w = stablehlo.convert %m : (tensor<{type}>) -> tensor<ui16>
      %r = stablehlo.add %q, %x : tensor<{type}>
      %t = stablehlo.slice %c [0:4:2] : (tensor<4x{type}>) -> tensor<2x{type}>
      return %r, %w, %t : tensor<{type}>, tensor<ui16>, tensor<2x{type}>
    }}"""
    module = hlo.parse(text)
    program = flatten(module)
    assert [op.name for op in program.ops if op.name != "stablehlo.constant"] == ["stablehlo.add"]
    x = np.array(5, {"ui8": "u1", "ui32": "u4"}.get(type, type.replace("i", "int")))
    for found, expected in zip(interp.evaluate(as_module(program), x), interp.evaluate(module, x), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_bodies_have_the_constants_that_they_read_from_outside() -> None:
    """Programs that a compiler has tidied up keep them out of sorts and reductions, whose bodies are kernels' all the same."""
    program = flatten(
        hlo.parse("""func.func @main(%x: tensor<4x5xf32>, %s: tensor<f32>) -> (tensor<4x5xf32>, tensor<4xf32>, tensor<4x5xf32>) {
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %two = stablehlo.constant dense<2.0> : tensor<f32>
          %y = "stablehlo.sort"(%x) <{dimension = 1 : i64}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %c = stablehlo.multiply %a, %two : tensor<f32>
            %l = stablehlo.compare LT, %c, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
            stablehlo.return %l : tensor<i1>
          }) : (tensor<4x5xf32>) -> tensor<4x5xf32>
          %r = stablehlo.reduce(%x init: %zero) across dimensions = [1] : (tensor<4x5xf32>, tensor<f32>) -> tensor<4xf32>
            reducer(%a: tensor<f32>, %b: tensor<f32>) {
              %c = stablehlo.maximum %b, %zero : tensor<f32>
              %d = stablehlo.add %a, %c : tensor<f32>
              stablehlo.return %d : tensor<f32>
            }
          %z = "stablehlo.sort"(%x) <{dimension = 1 : i64}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %c = stablehlo.multiply %a, %s : tensor<f32>
            %l = stablehlo.compare LT, %c, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
            stablehlo.return %l : tensor<i1>
          }) : (tensor<4x5xf32>) -> tensor<4x5xf32>
          return %y, %r, %z : tensor<4x5xf32>, tensor<4xf32>, tensor<4x5xf32>
        }""")
    )
    outside = [len(captured_values(b)) for op in program.ops for b in op.regions]
    assert outside == [0, 0, 1]  # (the last one reads an argument)


FACTORED_TWICE = """func.func @main(%a: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3xi32>, tensor<3x3xf32>, tensor<3x3xf32>) {{
  %0:3 = stablehlo.custom_call @{first}(%a) {{{one}}} : (tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3xi32>, tensor<{last}>)
  %1:3 = stablehlo.custom_call @{first}(%a) {{{two}}} : (tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3xi32>, tensor<{last}>)
  %2 = stablehlo.add %0#0, %1#0 : tensor<3x3xf32>
  return %0#0, %1#1, %1#0, %2 : tensor<3x3xf32>, tensor<3xi32>, tensor<3x3xf32>, tensor<3x3xf32> }}"""
LOWER, UPPER = (f"mhlo.backend_config = {{uplo = {ord(x)} : ui8}}" for x in "LU")


@pytest.mark.parametrize(
    ("first", "last", "one", "two", "calls"),
    [
        ("LuDecomposition", "3xi32", "", "", 1), ("lapack_sgetrf_ffi", "i32", LOWER, LOWER, 1),
        ("lapack_sgetrf_ffi", "i32", LOWER, UPPER, 2),  # is told something else
        ("LuDecomposition", "3xi32", "has_side_effect = true", "has_side_effect = true", 2), ("own", "i32", "", "", 2),
        ("lapack_mine", "i32", "", "", 2),
    ],
)  # fmt: skip
def test_a_matrix_is_factored_once(first: str, last: str, one: str, two: str, calls: int) -> None:
    """A system that is solved, and its determinant; other functions of custom calls are the caller's."""
    ops = flatten(hlo.parse(FACTORED_TWICE.format(first=first, last=last, one=one, two=two))).ops
    assert sum(op.name == "stablehlo.custom_call" for op in ops) == calls
