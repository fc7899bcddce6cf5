"""Long functions of one short number are looked up: with the bits that computing them gives, and only where that pays."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import re

import numpy as np
import pytest

import codegen
import hlo
import interp
import tiling
from hlo.types import ELEMENT_TYPES
from tiling.passing import without
from tiling.program.as_module import as_module
from tiling.program.flatten import flatten

SWISH = """
  %n = stablehlo.negate %x : T
  %l = stablehlo.logistic %n : T
  %m = stablehlo.multiply %l, %x : T
  %t = stablehlo.tanh %m : T"""
ENDS = {
    "alone": ("%x: T", SWISH + "\n  return %t : T"),
    "beside": ("%x: T, %r: T", SWISH + "\n  %y = stablehlo.add %t, %r : T\n  return %y : T"),
    "inner": ("%x: T, %r: T", SWISH + "\n  %y = stablehlo.multiply %m, %r : T\n  %z = stablehlo.add %t, %y : T\n  return %z : T"),
    "scaled": ("%x: T, %s: S", SWISH + """
  %b = stablehlo.broadcast_in_dim %s, dims = [] : (S) -> T
  %y = stablehlo.multiply %t, %b : T
  return %y : T"""),
    "clamped": ("%x: T, %s: S", SWISH + """
  %c = stablehlo.constant dense<0.75> : S
  %y = stablehlo.clamp %s, %t, %c : (S, T, S) -> T
  return %y : T"""),
    "wider": ("%x: T", SWISH + "\n  %y = stablehlo.convert %t : (T) -> W\n  return %y : W"),
}  # fmt: skip


def _module(end: str, element: str, shape: tuple[int, ...]) -> hlo.Module:
    arguments, body = ENDS[end]
    result = body.rsplit(" : ", 1)[1]
    sizes = "".join(f"{n}x" for n in shape)
    types = {"T": f"tensor<{sizes}{element}>", "S": f"tensor<{element}>", "W": f"tensor<{sizes}f32>"}
    return hlo.parse(re.sub(r"\b[TSW]\b", lambda m: types[m[0]], f"func.func @main({arguments}) -> {result} {{{body}\n}}"))


def _looked_up(module: hlo.Module) -> int:
    return sum(op.name == "stablehlo.gather" for op in flatten(module).ops)


def _codes(element: str, size: int) -> np.ndarray:
    """Every number of the type, and then some again."""
    t = ELEMENT_TYPES[element].dtype
    return np.resize(np.arange(1 << 8 * t.itemsize, dtype=f"u{t.itemsize}"), size).view(t)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("element", ["bf16", "f16", "f8E4M3FN"])
def test_results_have_the_bits_of_what_is_computed(element: str, end: str) -> None:
    shape = (1024, 1024) if element != "f8E4M3FN" else (64, 1024)
    module = _module(end, element, shape)
    assert _looked_up(module) == (2 if end == "inner" and element == "f8E4M3FN" else 1)  # taking codes apart is long in itself
    x = _codes(element, shape[0] * shape[1]).reshape(shape)
    others = {"alone": (), "wider": (), "scaled": (np.asarray(1.5, x.dtype),), "clamped": (np.asarray(0.25, x.dtype),)}.get(end, (x[::-1].copy(),))
    found = codegen.compile(module)(x, *others)[0]
    with without("look_up_functions"):
        computed = codegen.compile(module)
    assert "gather" not in computed.plan.explain()
    want = computed(x, *others)[0]
    numbers = ~np.isnan(want.astype(np.float32))
    bits = f"u{want.dtype.itemsize}"
    assert (found.view(bits) == want.view(bits))[numbers].all()
    assert np.isnan(found.astype(np.float32))[~numbers].all()


def test_the_evaluator_sees_the_same_program() -> None:
    module = _module("inner", "bf16", (1024, 1024))
    program = as_module(flatten(module), module)
    x = _codes("bf16", 1 << 20).reshape(1024, 1024)
    (want,) = interp.evaluate(module, x, x)
    (found,) = interp.evaluate(program, x, x)
    assert np.array_equal(found.view(np.uint16), want.view(np.uint16))


def test_what_is_short_or_small_or_of_two_tensors_is_computed() -> None:
    assert _looked_up(_module("alone", "bf16", (512, 512))) == 0  # a table of 65,536 for 262,144 elements
    assert _looked_up(_module("alone", "f32", (1024, 1024))) == 0
    short = "func.func @main(%x: T) -> T {\n  %y = stablehlo.multiply %x, %x : T\n  return %y : T\n}"
    assert _looked_up(hlo.parse(short.replace("T", "tensor<1024x1024xbf16>"))) == 0
    two = "func.func @main(%x: T, %w: T) -> T {\n  %m = stablehlo.multiply %x, %w : T\n  %t = stablehlo.tanh %m : T\n  %y = stablehlo.logistic %t : T\n  return %y : T\n}"
    made = flatten(hlo.parse(two.replace("T", "tensor<1024x1024xbf16>")))
    (gather,) = (op for op in made.ops if op.name == "stablehlo.gather")
    indices = gather.operands[1].op
    assert indices is not None and indices.operands[0].op is not None  # of the product, which is one number of 16 bits
    assert indices.operands[0].op.name == "stablehlo.multiply"


def test_the_table_is_a_kernel_and_the_gather_computes_nothing() -> None:
    plan = codegen.compile(_module("alone", "bf16", (1024, 1024))).plan
    table, gather = plan.fusions
    assert "tanh" in {op.name.split(".")[1] for op in table.ops}
    assert {op.name for op in gather.ops} == {"stablehlo.bitcast_convert", "stablehlo.gather"}
    for fusion in plan.fusions:
        proof = tiling.prove(fusion)
        assert proof.holds, str(proof)


def test_functions_of_scalars_alone_are_no_tables() -> None:
    """A bound of a clamp was taken for the tensor whose function the result is."""
    text = """func.func @main(%s: S) -> T {
  %k = stablehlo.constant dense<0.5> : T
  %c = stablehlo.constant dense<0.75> : S
  %x = stablehlo.clamp %s, %k, %c : (S, T, S) -> T
  %y = stablehlo.tanh %x : T
  %z = stablehlo.logistic %y : T
  return %z : T
}"""
    module = hlo.parse(text.replace("T", "tensor<1024x1024xbf16>").replace("S", "tensor<bf16>"))
    assert _looked_up(module) == 0
    s = np.asarray(0.625, ELEMENT_TYPES["bf16"].dtype)
    (found,), (want,) = codegen.compile(module)(s), interp.evaluate(module, s)
    assert np.array_equal(found.view(np.uint16), want.view(np.uint16))


def test_what_is_looked_up_under_a_mask_is_looked_up_once_and_where_it_is_needed() -> None:
    """A soft cap: two loops looked each element up, behind a test of the mask; eight heads of 1024 took 16 ms, then 11."""
    x, s, v = "tensor<8x512x512xbf16>", "tensor<bf16>", "tensor<8x512xbf16>"
    mask, ints = x.replace("bf16", "i1"), x.replace("bf16", "i32")
    module = hlo.parse(f"""func.func @main(%x: {x}) -> {x} {{
      %c = stablehlo.constant dense<3.0e+01> : {x}
      %q = stablehlo.divide %x, %c : {x}
      %t = stablehlo.tanh %q : {x}
      %y = stablehlo.multiply %t, %c : {x}
      %i = stablehlo.iota dim = 1 : {ints}
      %j = stablehlo.iota dim = 2 : {ints}
      %m = stablehlo.compare GE, %i, %j : ({ints}, {ints}) -> {mask}
      %low = stablehlo.constant dense<-3.0e+38> : {x}
      %z = stablehlo.select %m, %y, %low : {mask}, {x}
      %none = stablehlo.constant dense<0xFF80> : {s}
      %r = stablehlo.reduce(%z init: %none) applies stablehlo.maximum across dimensions = [2] : ({x}, {s}) -> {v}
      %b = stablehlo.broadcast_in_dim %r, dims = [0, 1] : ({v}) -> {x}
      %d = stablehlo.subtract %z, %b : {x}
      %e = stablehlo.exponential %d : {x}
      return %e : {x} }}""")
    executable = codegen.compile(module)
    array = np.random.default_rng(0).standard_normal((8, 512, 512)).astype("bfloat16") * 40
    (found,), (expected,) = executable(array), interp.evaluate(module, array)
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))
    lines = [line.strip() for k in executable.kernels for line in k.source.splitlines()]
    assert sum("bits_of_bfloat16(" in line and line.startswith("rt") for line in lines) == 1
    assert not any(line.startswith("if ") and "<= 0" in line for line in lines)
