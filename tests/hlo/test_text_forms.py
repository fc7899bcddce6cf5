"""Spellings and forms of StableHLO text that are rare: what is read, what is refused, and where."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import importlib
import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import interp
from hlo.errors import ParseError
from hlo.text import literals
from hlo.text.bytecode import bytecode_kind
from hlo.text.xla import types
from hlo.types import TensorType, element_type


def body(line: str, arguments: str = "") -> str:
    """A function of one line."""
    return f"func.func @main({arguments}) {{\n  {line}\n  return\n}}"


def refused(text: str | bytes) -> hlo.TilewrightError:
    """The error that parsing or verifying raises."""
    with pytest.raises(hlo.TilewrightError) as caught:
        hlo.verify(hlo.parse(text, "p"))
    return caught.value


def at(error: hlo.TilewrightError) -> tuple[int, int]:
    """Line and column."""
    assert error.location is not None
    return error.location.line, error.location.column


def first(module: hlo.Module) -> hlo.Op:
    """The first op of the only function."""
    return module.entry.body.ops[0]


def round_trip(text: str) -> hlo.Module:
    """The module, which verifies and prints to what it is."""
    module = hlo.parse(text)
    hlo.verify(module)
    assert str(hlo.parse(str(module))) == str(module)
    return module


# ---------------------------------------------------------------- types


@pytest.mark.parametrize("bits", [2, 4, 8, 16, 32, 64])
def test_signed_integers_have_the_specifications_name(bits: int) -> None:
    module = round_trip(body(f"%0 = stablehlo.add %a, %a : tensor<4xsi{bits}>", f"%a: tensor<4xi{bits}>"))
    assert str(first(module).result.type) == f"tensor<4xi{bits}>"
    assert element_type(f"si{bits}") is element_type(f"i{bits}")


def test_signed_integers_in_attributes_and_constants() -> None:
    module = round_trip(body("%0 = stablehlo.constant dense<[1, -2]> : tensor<2xsi32>"))
    assert first(module).attr("value").array.dtype == np.int32
    text = '%0 = "stablehlo.iota"() {iota_dimension = 1 : si64} : () -> tensor<2x3xsi16>'
    assert first(round_trip(body(text))).attr("iota_dimension") == 1
    assert first(round_trip(body('%0 = "stablehlo.slice"(%a) {start_indices = array<si64: 0>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<4xf32>) -> tensor<2xf32>', "%a: tensor<4xf32>"))).attr("start_indices") == (0,)


@pytest.mark.parametrize("name", ["si7", "si128", "sf32", "si1"])
def test_other_widths_are_no_types(name: str) -> None:
    error = refused(body(f"%0 = stablehlo.constant dense<1> : tensor<2x{name}>"))
    assert isinstance(error, ParseError) and f"unknown element type {name!r}" in str(error)
    assert at(error) == (2, 47)


BLOCKS = "!quant.uniform<i8:f32:{0:2, 1:4}, {{1.0, 2.0}, {3.0, 4.0:1}}>"


def test_quantization_by_blocks() -> None:
    module = round_trip(f"func.func @main(%a: tensor<4x8x{BLOCKS}>) -> tensor<4x8xf32> {{ %0 = stablehlo.uniform_dequantize %a : (tensor<4x8x{BLOCKS}>) -> tensor<4x8xf32> return %0 : tensor<4x8xf32> }}")
    element = module.entry.arguments[0].tensor.element
    assert isinstance(element, hlo.types.QuantizedType) and (element.grid, element.blocks) == ((2, 2), ((0, 2), (1, 4)))
    assert str(element) == BLOCKS
    x = np.full((4, 8), 10, np.int8)
    expected = np.block([[np.full((2, 4), 10.0), np.full((2, 4), 20.0)], [np.full((2, 4), 30.0), np.full((2, 4), 36.0)]])
    assert np.array_equal(interp.evaluate(module, x)[0], expected)
    executable = codegen.compile(module)
    assert np.array_equal(executable(x)[0], expected) and not executable.fallbacks


def test_quantizing_by_blocks_undoes_it() -> None:
    text = f"func.func @main(%a: tensor<4x8xf32>) -> tensor<4x8x{BLOCKS}> {{ %0 = stablehlo.uniform_quantize %a : (tensor<4x8xf32>) -> tensor<4x8x{BLOCKS}> return %0 : tensor<4x8x{BLOCKS}> }}"
    module = round_trip(text)
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    scales, zeros = np.repeat(np.repeat([[1.0, 2.0], [3.0, 4.0]], 2, 0), 4, 1), np.repeat(np.repeat([[0, 0], [0, 1]], 2, 0), 4, 1)
    expected = np.rint((x / scales.astype(np.float32)) + zeros).astype(np.int8)
    assert np.array_equal(interp.evaluate(module, x)[0], expected)
    assert np.array_equal(codegen.compile(module)(x)[0], expected)


@pytest.mark.parametrize(
    ("kind", "shape", "column", "message"),
    [
        ("{0:2, 0:4}, {{1.0}}", "4x8", 60, "each once, found 0"),
        ("{0:0}, {{1.0}}", "4x8", 57, "a block of 1 or more, found 0"),
        ("{0:2}, {{1.0, 2.0}, {3.0}}", "4x8", 78, "expected 2 entries, found 1"),
        ("{0:2}, {{1.0}, 3.0}", "4x8", 69, "nested 2 deep"),
        ("{0:2}, {{}}", "4x8", 63, "expected a scale"),
        ("{0:2}, 1.0", "4x8", 61, "expected '{'"),
        ("{0:2}, {{1.0}", "4x8", 67, "expected '}', found '>'"),
    ],
)
def test_blocks_that_are_not_well_formed(kind: str, shape: str, column: int, message: str) -> None:
    error = refused(body("", f"%a: tensor<{shape}x!quant.uniform<i8:f32:{kind}>>"))
    assert isinstance(error, ParseError) and message in str(error)
    assert at(error) == (1, column)


@pytest.mark.parametrize(
    ("kind", "shape", "message"),
    [
        ("{0:2}, {{1.0}, {2.0}}", "6x8", "expected 2 blocks of 2 in dimension 0, found a size of 6"),
        ("{0:2}, {{1.0, 1.0}, {2.0, 2.0}}", "4x8", "one scale along dimension 1"),
        ("{0:2}, {1.0, 2.0}", "4x8", "nested 2 deep"),
        ("{3:2}, {{1.0}}", "4x8", "must be a dimension of the tensor"),
        ("{0:2}, {{1.0}, {0.0}}", "4x8", "positive and finite"),
    ],
)
def test_blocks_that_do_not_fit_the_tensor(kind: str, shape: str, message: str) -> None:
    t = f"tensor<{shape}x!quant.uniform<i8:f32:{kind}>>"
    error = refused(body(f"%0 = stablehlo.uniform_dequantize %a : ({t}) -> tensor<{shape}xf32>", f"%a: {t}"))
    assert isinstance(error, hlo.VerificationError) and message in str(error) and at(error) == (2, 8)


def test_other_ops_do_not_take_blocks() -> None:
    error = refused(body(f"%0 = stablehlo.add %a, %a : tensor<4x8x{BLOCKS}>", f"%a: tensor<4x8x{BLOCKS}>"))
    assert "quantized by blocks, which only uniform_quantize" in str(error)


@pytest.mark.parametrize("line", ["%0 = stablehlo.add %a, %a : tensor<*xf32>", ""])
def test_unranked_tensors_are_refused(line: str) -> None:
    error = refused(body(line, "%a: tensor<*xf32>"))
    assert isinstance(error, hlo.VerificationError) and "tensor of a known rank" in str(error)
    made = body('%0 = "stablehlo.custom_call"(%a) {call_target_name = "f"} : (tensor<2xf32>) -> tensor<*xf32>', "%a: tensor<2xf32>")
    assert "tensor of a known rank" in str(refused(made)) and at(refused(made)) == (2, 8)


# ---------------------------------------------------------------- resources

RESOURCE = """func.func @main() -> tensor<2xf32> {
  %0 = stablehlo.constant dense_resource<w> : tensor<2xf32>
  return %0 : tensor<2xf32>
}

{-#
  dialect_resources: {
    builtin: {
      w: "0x040000000000803F00000040", "other w": "0x01000000AA"
    }
  },
  external_resources: {
    mlir_reproducer: { pipeline: "a #-} in a string", verify_each: true }
  }
#-}
"""


def test_resources_are_read() -> None:
    module = round_trip(RESOURCE)
    assert first(module).attr("value").array.tolist() == [1.0, 2.0]
    spread = body("%0 = stablehlo.constant dense_resource<w> : tensor<4xi1>") + '\n{-# dialect_resources: { builtin: { w: "0x0100000001000101" } } #-}'
    assert first(hlo.parse(spread)).attr("value").array.tolist() == [True, False, True, True]
    other = RESOURCE.replace("dense_resource<w> : tensor<2xf32>", 'dense_resource<"other w"> : tensor<1xui8>').replace("tensor<2xf32>", "tensor<1xui8>")
    assert first(hlo.parse(other)).attr("value").array.tolist() == [0xAA]


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("dense_resource<w>", "dense_resource<v>", (2, 42), "no resource 'v' at the end of the text; there is w, other w"),
        ("dense_resource<w>", "dense_resource<__elided__>", (2, 42), "left this constant's value out"),
        ("00000040", "000000", (9, 13), "expected 8 bytes for tensor<2xf32> in the resource 'w', found 7"),
        ("0x04000000", "0x03000000", (9, 10), "a power of two as the alignment, found 3"),
        ("0x040000000000803F00000040", "0x0400", (9, 10), "begins with four bytes of alignment"),
        ("0x040000000000803F00000040", "0x040000000000803F0000004Z", (9, 13), "hexadecimal digits"),
        ('"other w":', "w:", (9, 43), "the resource 'w' is there twice"),
        ("#-}\n", "", (6, 1), "without its end"),
        ("builtin: {", "builtin {", (8, 13), "expected ':'"),
        ('"0x040000000000803F00000040"', "4", (9, 10), "expected a blob"),
    ],
)
def test_resources_that_are_wrong(old: str, new: str, place: tuple[int, int], message: str) -> None:
    assert RESOURCE.count(old) >= 1
    error = refused((RESOURCE[::-1].replace(old[::-1], new[::-1], 1)[::-1]) if old == "#-}\n" else RESOURCE.replace(old, new, 1))
    assert isinstance(error, ParseError) and message in str(error)
    assert at(error) == place
    assert error.render().splitlines()[-1].index("^") - 2 == place[1] - 1


# ---------------------------------------------------------------- bytecode and VHLO


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('module { "vhlo.func_v1"() ({}) : () -> () }', (1, 10)),
        ("vhlo.func_v1 @main() {\n}", (1, 1)),
        (body('%0 = "vhlo.add_v1"(%a, %a) : (tensor<f32>, tensor<f32>) -> tensor<f32>', "%a: tensor<f32>"), (2, 8)),
        (body("", "%a: !vhlo.tensor_v1<!vhlo.f32_v1>"), (1, 21)),
        (body('"stablehlo.custom_call"() {call_target_name = "f", a = #vhlo.string_v1<"x">} : () -> ()'), (2, 58)),
    ],
)
def test_vhlo_is_named(text: str, place: tuple[int, int]) -> None:
    error = refused(text)
    assert "is VHLO, the versioned form in which StableHLO is stored" in str(error) and at(error) == place


def test_bytecode_and_portable_artifacts_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact, plain = b"ML\xefR\x0dStableHLO_v1.9.0\x00rest", b"ML\xefR\x0dMLIR20.0.0git\x00rest"
    assert bytecode_kind(artifact) == "StableHLO portable artifact (StableHLO_v1.9.0)"
    assert bytecode_kind(plain) == "MLIR bytecode (MLIR20.0.0git)"
    monkeypatch.setitem(sys.modules, "jaxlib.mlir.ir", None)
    assert "this is a StableHLO portable artifact (StableHLO_v1.9.0), which is read through jaxlib" in str(refused(artifact))
    assert "this is MLIR bytecode (MLIR20.0.0git), which is read through jaxlib" in str(refused(plain))


@pytest.mark.parametrize("how", ["latin-1", "replace", "surrogateescape"])
def test_bytecode_read_as_text_is_named(how: str) -> None:
    data = b"ML\xefR\x0dMLIR20\x00"
    text = data.decode("latin-1") if how == "latin-1" else data.decode("utf-8", how)
    error = refused(text)
    assert "MLIR bytecode that was decoded as text" in str(error) and at(error) == (1, 1)


# ---------------------------------------------------------------- what the verifier judges

WINDOW = '%0 = "stablehlo.reduce_window"(%a, %b) ({^bb0(%x: tensor<f32>, %y: tensor<f32>): %s = stablehlo.add %x, %y : tensor<f32> stablehlo.return %s : tensor<f32>}) {window_dimensions = array<i64: 2>, window_strides = STRIDES} : (tensor<4xf32>, tensor<f32>) -> tensor<3xf32>'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (WINDOW.replace("STRIDES", "array<i64: 18446744073709551614>"), "1 <= window_strides: found window_strides = [-2]"),
        (WINDOW.replace("STRIDES", "dense<18446744073709551614> : tensor<1xi64>"), "1 <= window_strides: found window_strides = [-2]"),
        (WINDOW.replace("STRIDES", "dense<18446744073709551614> : tensor<1xui64>"), "expected array<i64: …>"),
        ("%0 = stablehlo.slice %a [0:2:18446744073709551614] : (tensor<4xf32>) -> tensor<1xf32>", "18446744073709551614 does not fit into 64 bits"),
        ("%0 = stablehlo.broadcast_in_dim %a, dims = [18446744073709551614] : (tensor<4xf32>) -> tensor<4xf32>", "does not fit into 64 bits"),
        ('%0 = "stablehlo.iota"() {iota_dimension = 18446744073709551614 : i64} : () -> tensor<4xi32>', "found -2"),
    ],
)
def test_strides_beyond_64_bits(line: str, message: str) -> None:
    error = refused(body(line, "%a: tensor<4xf32>, %b: tensor<f32>"))
    assert message in str(error) and at(error)[0] == 2


SELECT = '%0 = "stablehlo.select_and_scatter"(%a, %c, %b) ({^bb0(%x: tensor<f32>, %y: tensor<f32>): %s = stablehlo.compare GE, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1> stablehlo.return %s : tensor<i1>}, {^bb0(%x: tensor<f32>, %y: tensor<f32>): %s = stablehlo.add %x, %y : tensor<f32> stablehlo.return %s : tensor<f32>}) {WINDOW} : (tensor<4xf32>, tensor<4xf32>, tensor<f32>) -> tensor<4xf32>'


def test_select_and_scatter_needs_its_window() -> None:
    arguments = "%a: tensor<4xf32>, %c: tensor<4xf32>, %b: tensor<f32>"
    round_trip(body(SELECT.replace("WINDOW", "window_dimensions = array<i64: 1>"), arguments))
    error = refused(body(SELECT.replace("WINDOW", ""), arguments))
    assert "needs the attribute 'window_dimensions'" in str(error) and at(error) == (2, 8)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("op", ["dot_general", "dot"])
def test_up_to_two_precisions(op: str, count: int) -> None:
    """The reference takes one as well."""
    numbers = "dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>, " if op == "dot_general" else ""
    words = ", ".join(["#stablehlo<precision DEFAULT>"] * count)
    text = body(f'%0 = "stablehlo.{op}"(%a, %a) {{{numbers}precision_config = [{words}]}} : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>', "%a: tensor<4xf32>")
    if count <= 2:
        round_trip(text)
    else:
        assert "at most two precisions" in str(refused(text))


@pytest.mark.parametrize(
    "line",
    [
        '"stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xQ>) -> tensor<8xR>',
        '"stablehlo.all_to_all"(%a) {split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xQ>) -> tensor<4xR>',
        '"stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xQ>) -> tensor<4xR>',
        '"stablehlo.collective_broadcast"(%a) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xQ>) -> tensor<4xR>',
    ],
)
def test_exchanges_keep_scales(line: str) -> None:
    """type(results) = type(operands): what is exchanged is what is stored."""
    q, r = "!quant.uniform<i8:f32, 1.0>", "!quant.uniform<i8:f32, 2.0>"
    text = body("%0 = " + line.replace("Q", q), f"%a: tensor<4x{q}>")
    round_trip(text.replace("R", q))
    error = refused(text.replace("R", r))
    assert isinstance(error, hlo.VerificationError) and at(error) == (2, 8) and error.constraint in ("C3", "C5", "C6", "C9")


@pytest.mark.parametrize("op", "add and maximum minimum multiply or xor subtract divide power atan2 remainder compare complex negate reduce".split())
def test_the_short_form_of_a_reduction_takes_commutative_ops(op: str) -> None:
    element = "i32" if op in ("and", "or", "xor") else "f32"
    text = body(f"%0 = stablehlo.reduce(%a init: %b) applies stablehlo.{op} across dimensions = [0] : (tensor<4x{element}>, tensor<{element}>) -> tensor<{element}>", f"%a: tensor<4x{element}>, %b: tensor<{element}>")
    if op in ("add", "and", "maximum", "minimum", "multiply", "or", "xor"):
        assert f"applies stablehlo.{op}" in str(round_trip(text))
    else:
        error = refused(text)
        assert isinstance(error, ParseError) and f"a commutative op of two operands on one input (stablehlo.add, stablehlo.and, stablehlo.maximum, stablehlo.minimum, stablehlo.multiply, stablehlo.or, stablehlo.xor), found stablehlo.{op}" in str(error)
        assert at(error) == (2, 46)


@pytest.mark.parametrize(("shape", "fits"), [("[3, 5]", True), ("[4, 5]", False), ("[0, 5]", False)])
def test_a_constant_shape_fits_what_is_broadcast(shape: str, fits: bool) -> None:
    text = body(f"%s = stablehlo.constant dense<{shape}> : tensor<2xi64>\n  %0 = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [0] : (tensor<3xf32>, tensor<2xi64>) -> tensor<?x?xf32>", "%a: tensor<3xf32>")
    if fits:
        round_trip(text)
    else:
        error = refused(text)
        assert f"expected operand dimension 0 to be 1 or {shape[1]}, found 3" in str(error) and at(error) == (3, 8)
        assert isinstance(error, hlo.VerificationError) and error.constraint == "C5"


# ---------------------------------------------------------------- long lists

WORDS = {
    "f32": ["1.0", "-2.5e3", "0.", "1", "nan", "0x7FC00000", "1.e5", ".5", "+1.0", "1_0.0", "inf", "--1.0", "1.0e", "0x7FC000001"],
    "i8": ["1", "-128", "127", "255", "256", "0x7", "-0", "1.0", "--1", "1-2", "", "+3", "00012"],
    "ui64": ["1", str(2**64 - 1), "-1", str(2**64)],
    "i1": ["true", "false", "1", "0", "True"],
    "complex<f32>": ["(1.0, 2.0)", "(1.0,2.0)", "1.0", "(1.0)", "(1.0,2.0,3.0)", "(0x7FC00000,1.0)"],
}


@pytest.mark.parametrize("element", WORDS)
def test_lists_read_at_once_are_what_they_are_read_one_by_one(element: str) -> None:
    """Random lists of right and wrong words, with and without a character too many or too few."""
    rnd, t, at_once = random.Random(5), element_type(element), 0
    for _ in range(600):
        shape = tuple(rnd.randint(1, 3) for _ in range(rnd.randint(1, 3)))
        words = WORDS[element][: rnd.choice([1, 2, 2, 3, len(WORDS[element])])]
        text = nested(rnd, words, shape)
        if rnd.random() < 0.3:
            k = rnd.randrange(len(text))
            text = text[:k] + rnd.choice("[](), 1xe.") + text[k + rnd.randint(0, 1) :]
        found = literals.bulk_list(text, shape, t, b"[]", True)
        if found is None:
            continue
        at_once += 1
        slow = literals.from_list(text, TensorType(shape, t), lambda message, offset: ParseError(message, hlo.Location("p", 1, offset)))
        assert found.tobytes() == np.ascontiguousarray(slow.array).tobytes(), text
    assert at_once > 50


def nested(rnd: random.Random, words: list[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return rnd.choice(words)
    inner = rnd.choice([", ", ",", " ,\n"]).join(nested(rnd, words, shape[1:]) for _ in range(shape[0]))
    return rnd.choice(["[", "[ "]) + inner + "]"


@pytest.mark.parametrize(("wrong", "message"), [("x", "expected an element of f32, found 'x'"), ("1.0 2.0", "expected ',' or ']', found '2.0'"), ("[1.0]", "lists nested deeper")])
def test_errors_in_long_lists_have_the_same_places(wrong: str, message: str) -> None:
    text = "func.func @main() {\n  %0 = stablehlo.constant dense<[" + "1.5, " * 500 + wrong + ", 2.0]> : tensor<502xf32>\n  return\n}"
    error = refused(text)
    assert message in str(error)
    assert at(error) == (2, 34 + 5 * 500 + (4 if wrong == "1.0 2.0" else 0))


LISTS = {
    "floats": ("func.func @main() -> tensor<COUNTxf32> {\n %0 = stablehlo.constant dense<[LIST]> : tensor<COUNTxf32>\n return %0 : tensor<COUNTxf32>\n}", "1.25"),
    "integers": ("func.func @main() -> tensor<COUNTxi32> {\n %0 = stablehlo.constant dense<[LIST]> : tensor<COUNTxi32>\n return %0 : tensor<COUNTxi32>\n}", "-7"),
    "HLO": ("HloModule m\nENTRY e {\n ROOT r = f32[COUNT] constant({LIST})\n}", "1.25"),
}


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_of_three_hundred_thousand_numbers_is_read_at_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser makes no more calls than for a list of a hundred; the reader that goes element by element makes some for each."""
    form, word = LISTS[kind]

    def calls(count: int) -> int:
        text = form.replace("LIST", ", ".join([word] * count)).replace("COUNT", str(count))
        made = 0

        def counted(frame: Any, event: str, argument: Any) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(counted)
        try:
            module = hlo.parse(text)
        finally:
            sys.setprofile(before)
        assert np.all(interp.evaluate(module)[0] == float(word))
        return made

    calls(100)  # what is made once in a process
    assert calls(300_000) <= calls(100) + 20
    monkeypatch.setattr(literals, "BULK_CHARS", 1 << 60)
    monkeypatch.setattr(types, "BULK_CHARS", 1 << 60)
    assert calls(3000) > 3000


def fragile(items: Any, is_inside: bool = False) -> bool:
    """Whether a possessive repetition of a group holds what looks ahead, or as little as it can."""
    for kind, value in items:
        name = str(kind)
        if is_inside and name in ("ASSERT", "ASSERT_NOT", "MIN_REPEAT"):
            return True
        inside = is_inside or name == "POSSESSIVE_REPEAT"
        parts = value if isinstance(value, (list, tuple)) else ()
        if name == "BRANCH":
            parts = value[1]
        if any(fragile(x, inside) for x in parts if type(x).__name__ == "SubPattern"):
            return True
    return False


def test_patterns_match_alike_in_every_python_that_is_supported() -> None:
    """Python 3.11 before 3.11.5 does not match those that are fragile (gh-106052): no resource section had an end there."""
    parse = importlib.import_module("re._parser").parse
    assert fragile(parse(r"(?:a|#(?!b))*+#b")) and not fragile(parse(r"(?>(?:a|#(?!b))*)#b"))
    modules = [importlib.import_module(f"hlo.text.{p.stem}") for p in Path(hlo.text.__file__).parent.glob("[a-z]*.py")]
    found = {p.pattern: p for m in modules for p in vars(m).values() if isinstance(p, re.Pattern)}
    assert len(found) > 15
    assert not [p for p, known in found.items() if fragile(parse(p, known.flags & ~re.UNICODE))]
