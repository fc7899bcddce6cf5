"""Programs of known shapes from those of unknown ones: what they compute is what the evaluator finds at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
from hlo.errors import Declined
from hlo.module import walk
from hlo.types import TensorType

Shapes = Sequence[tuple[int, ...]]


def static(text: str, shapes: Shapes) -> hlo.Module:
    """The refined program, in which each type is static; its text is read back."""
    made = interp.refined(hlo.parse(text), shapes)
    assert isinstance(made, hlo.Module), made
    for op in walk(made.entry.body):
        for v in (*op.operands, *op.results):
            assert isinstance(v.type, TensorType) and v.type.is_static, op
    assert str(hlo.parse(str(made))) == str(made)
    return made


def agrees(text: str, *arrays: np.ndarray) -> codegen.Executable:
    """The refined program's kernels give what the evaluator does of the program with `?`."""
    module, made = hlo.parse(text), static(text, [a.shape for a in arrays])
    executable = codegen.compile(made)
    for a, b in zip(executable(*arrays), interp.evaluate(module, *arrays), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return executable


# One program for each op whose shape is a value, each of which is made of the argument's sizes.
SIZES = """
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %four = stablehlo.constant dense<4> : tensor<i32>
  %more = stablehlo.add %n, %one : tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %m1 = stablehlo.reshape %more : (tensor<i32>) -> tensor<1xi32>
  %f1 = stablehlo.reshape %four : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %n1, %f1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %larger = stablehlo.concatenate %m1, %f1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %z2 = stablehlo.constant dense<0> : tensor<2xi32>
  %o2 = stablehlo.constant dense<1> : tensor<2xi32>
  %zero = stablehlo.constant dense<0.5> : tensor<f32>
"""
DYNAMIC = {
    "broadcast": """%y = stablehlo.dynamic_broadcast_in_dim %x, %shape, dims = [0, 1]
      : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<?x4xf32>""",
    "reshape": "%y = stablehlo.dynamic_reshape %x, %shape : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<?x4xf32>",
    "iota": "%y = stablehlo.dynamic_iota %larger, dim = 0 : (tensor<2xi32>) -> tensor<?x4xf32>",
    "pad": """%low = stablehlo.subtract %larger, %shape : tensor<2xi32>
      %y = stablehlo.dynamic_pad %x, %zero, %low, %z2, %z2
        : (tensor<?x4xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x4xf32>""",
    "slice": """%from = stablehlo.subtract %larger, %shape : tensor<2xi32>
      %y = stablehlo.real_dynamic_slice %x, %from, %shape, %o2
        : (tensor<?x4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x4xf32>""",
    "gather": """%at = stablehlo.constant dense<[[1], [0]]> : tensor<2x1xi32>
      %sizes = stablehlo.concatenate %m1, %f1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %less = stablehlo.subtract %sizes, %o2 : tensor<2xi32>
      %cut = stablehlo.concatenate %n1, %n1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %fit = stablehlo.minimum %cut, %less : tensor<2xi32>
      %y = "stablehlo.dynamic_gather"(%x, %at, %fit) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2],
        start_index_map = [1], index_vector_dim = 1>}>
        : (tensor<?x4xf32>, tensor<2x1xi32>, tensor<2xi32>) -> tensor<2x?x?xf32>""",
    "size": """%half = stablehlo.constant dense<2> : tensor<i32>
      %y = stablehlo.set_dimension_size %x, %half, dim = 0 : (tensor<?x4xf32>, tensor<i32>) -> tensor<?x4xf32>""",
    "dot": """%y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1]
      : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x?xf32>""",
    "turned": """%t = stablehlo.transpose %x, dims = [1, 0] : (tensor<?x4xf32>) -> tensor<4x?xf32>
      %i = stablehlo.convert %t : (tensor<4x?xf32>) -> tensor<4x?xi32>
      %f = stablehlo.convert %i : (tensor<4x?xi32>) -> tensor<4x?xf32>
      %y = stablehlo.add %f, %t : tensor<4x?xf32>""",
    "flat": "%y = stablehlo.reshape %x : (tensor<?x4xf32>) -> tensor<?xf32>",
    "select": """%p = stablehlo.compare GT, %n, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %k = stablehlo.select %p, %more, %n : tensor<i1>, tensor<i32>
      %k1 = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>
      %y = stablehlo.dynamic_broadcast_in_dim %zero, %k1, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>""",
    "product": """%c = stablehlo.reduce(%shape init: %one) applies stablehlo.multiply across dimensions = [0]
        : (tensor<2xi32>, tensor<i32>) -> tensor<i32>
      %c1 = stablehlo.reshape %c : (tensor<i32>) -> tensor<1xi32>
      %y = stablehlo.dynamic_reshape %x, %c1 : (tensor<?x4xf32>, tensor<1xi32>) -> tensor<?xf32>""",
}  # fmt: skip


def program(lines: str) -> str:
    result = lines.rpartition(" : ")[2].rpartition("-> ")[2].split("\n")[0]
    return f"func.func @main(%x: tensor<?x4xf32>) -> {result} {{\n{SIZES}\n{lines}\n return %y : {result}\n}}"


@pytest.mark.parametrize("name", DYNAMIC)
@pytest.mark.parametrize("rows", [3, 6])
def test_ops_whose_shape_is_a_value(name: str, rows: int) -> None:
    executable = agrees(program(DYNAMIC[name]), np.random.default_rng(0).standard_normal((rows, 4), np.float32))
    assert not executable.fallbacks


def test_calls_are_made_with_their_own_shapes() -> None:
    """A function is inlined for each shape that it is given; sizes go into it as values."""
    text = """
    func.func private @twice(%n: tensor<i32>, %a: tensor<?xf32>) -> tensor<?xf32> {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %m = func.call @next(%n, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %s = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
      %i = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
      %r = stablehlo.concatenate %a, %i, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
      return %r : tensor<?xf32>
    }
    func.func private @next(%n: tensor<i32>, %m: tensor<i32>) -> tensor<i32> {
      %r = stablehlo.add %n, %m : tensor<i32>
      return %r : tensor<i32>
    }
    func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %m = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %a = func.call @twice(%n, %x) : (tensor<i32>, tensor<?xf32>) -> tensor<?xf32>
      %b = func.call @twice(%m, %y) : (tensor<i32>, tensor<?xf32>) -> tensor<?xf32>
      return %a, %b : tensor<?xf32>, tensor<?xf32>
    }"""
    agrees(text, np.ones(3, np.float32), np.ones(5, np.float32))


def test_loops_and_branches_keep_their_shapes() -> None:
    """A size that each iteration hands on as it is is known inside of the loop."""
    text = """func.func @main(%x: tensor<?xf32>, %p: tensor<i1>) -> (tensor<?xf32>, tensor<?xf32>) {
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %k, %c, %v = stablehlo.while(%i = %zero, %m = %n, %a = %x) : tensor<i32>, tensor<i32>, tensor<?xf32>
       cond { %three = stablehlo.constant dense<3> : tensor<i32>
              %go = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
              stablehlo.return %go : tensor<i1> }
       do { %one = stablehlo.constant dense<1> : tensor<i32>
            %j = stablehlo.add %i, %one : tensor<i32>
            %s = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
            %u = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
            %b = stablehlo.add %a, %u : tensor<?xf32>
            stablehlo.return %j, %m, %b : tensor<i32>, tensor<i32>, tensor<?xf32> }
      %w = "stablehlo.if"(%p) ({
        %t = stablehlo.tanh %x : tensor<?xf32>
        stablehlo.return %t : tensor<?xf32>
      }, {
        stablehlo.return %v : tensor<?xf32>
      }) : (tensor<i1>) -> tensor<?xf32>
      return %v, %w : tensor<?xf32>, tensor<?xf32>
    }"""
    for p in (True, False):
        agrees(text, np.linspace(-1, 1, 7, dtype=np.float32), np.array(p))


def test_what_cannot_be_known_is_declined_by_name() -> None:
    text = """func.func @main(%x: tensor<?xf32>, %n: tensor<1xi32>) -> tensor<?xf32> {
      %i = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
      return %i : tensor<?xf32>
    }"""
    found = interp.refined(hlo.parse(text), [(3,), (1,)])
    assert isinstance(found, Declined)
    assert "stablehlo.dynamic_iota (<text>:2:" in found.reason and "computed from elements of an argument" in found.reason
    call = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %y = stablehlo.custom_call @mine(%x) : (tensor<?xf32>) -> tensor<?xf32>
      return %y : tensor<?xf32>
    }"""
    found = interp.refined(hlo.parse(call), [(3,)])
    assert isinstance(found, Declined) and "no rule says what its result's shape is" in found.reason


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(3,)], "expected 2 shapes, one for each argument of @main, found 1"),
        ([(3, 1), (3,)], r"argument 0 \(%x\) of @main: expected a shape of tensor<\?xf32>, found \[3, 1\]"),
        ([(-1,), (3,)], "found .-1."),
        ([(3,), (4,)], r"<text>:7:12: these shapes do not fit: stablehlo.add: expected operands of one shape"),
        ([(0,), (0,)], "expected at least 1, found 0"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: Shapes, message: str) -> None:
    text = """func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %ok = stablehlo.compare GE, %n, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.custom_call @shape_assertion(%ok, %n) {error_message = "expected at least 1, found {0}", has_side_effect = true}
        : (tensor<i1>, tensor<i32>) -> ()
      %z = stablehlo.add %x, %y : tensor<?xf32>
      return %z : tensor<?xf32>
    }"""
    module = hlo.parse(text)
    before = str(module)
    with pytest.raises(interp.InputError, match=message):
        interp.refined(module, shapes)
    assert str(module) == before


@pytest.mark.jax
def test_exports_of_any_shape_are_refined_for_many() -> None:
    """What JAX writes for symbolic dimensions: sizes as arguments of functions, assertions, windows and random bits as calls."""
    import jax
    import jax.numpy as jnp
    from jax import export

    import tilewright

    def function(x: Any, w: Any) -> Any:
        s = jax.nn.softmax(jnp.tanh(x @ w), -1)
        z = jnp.concatenate([s, jnp.zeros_like(s)], 0)
        t = jax.lax.fori_loop(0, 3, lambda i, a: a * 0.5 + jnp.arange(a.shape[0])[:, None], z)
        q = jnp.sort(jnp.cumsum(z, 0), 0)[:, :2].reshape(-1)
        bits = jax.random.uniform(jax.random.key(0, impl="rbg"), (x.shape[0], 3))
        return q, t.mean(), jnp.argmax(x, 0), jnp.pad(x, ((1, 2), (0, 0))), x[::-1][: x.shape[0] // 2], bits, jax.lax.top_k(x, 3)

    rows = export.symbolic_shape("n, 8", constraints=["n >= 2"])
    arguments = jax.ShapeDtypeStruct(rows, jnp.float32), jax.ShapeDtypeStruct((8, 5), jnp.float32)
    module = tilewright.from_jax(export.export(jax.jit(function))(*arguments))
    for n in (2, 7):
        made = interp.refined(module, [(n, 8), (8, 5)])
        assert isinstance(made, hlo.Module), made
        x, w = np.random.default_rng(n).standard_normal((n, 8), np.float32), np.ones((8, 5), np.float32)
        executable = codegen.compile(made)
        assert [f for f in executable.fallbacks if "rng" not in f] == []
        for a, b in zip(executable(x, w), interp.evaluate(module, x, w), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    with pytest.raises(interp.InputError, match=r"the program does not take these shapes: .*n >= 2"):
        interp.refined(module, [(1, 8), (8, 5)])
