"""StableHLO text in and out."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import importlib
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlo
from hlo.attributes import DotDimensions, Foreign, TypedInteger
from hlo.text.printer import print_module


def one(text: str) -> hlo.Op:
    """The first op of a program's only function."""
    return hlo.parse(text).entry.body.ops[0]


def constant(body: str, kind: str) -> np.ndarray:
    """The value of `dense<body> : kind`."""
    array: np.ndarray = one(f"func.func @f() {{ %0 = stablehlo.constant dense<{body}> : {kind} return }}").attr("value").array
    return array


def round_trip(text: str) -> hlo.Module:
    """The module, after its pretty and its generic text were read back."""
    module = hlo.parse(text)
    hlo.verify(module)
    pretty = str(module)
    assert str(hlo.parse(pretty)) == pretty
    assert str(hlo.parse(print_module(module, generic=True))) == pretty
    return module


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        ("1", "tensor<2xi32>", [1, 1]),
        ("[[1, -2], [3, 4]]", "tensor<2x2xi8>", [[1, -2], [3, 4]]),
        ("255", "tensor<1xi8>", [-1]),
        ("true", "tensor<2xi1>", [True, True]),
        ("[true, false]", "tensor<2xi1>", [True, False]),
        ("1.5e3", "tensor<f32>", 1500.0),
        ("0xFF800000", "tensor<f32>", -np.inf),
        ("0x7FC0", "tensor<bf16>", np.nan),
        ("[(1.0, -2.0)]", "tensor<1xcomplex<f32>>", [1 - 2j]),
        ("", "tensor<0x3xf32>", np.zeros((0, 3))),
        ('"0x0000803F00000040"', "tensor<2xf32>", [1.0, 2.0]),
        ('"0x0000803F"', "tensor<2xf32>", [1.0, 1.0]),
        ('"0x05"', "tensor<4xi1>", [True, False, True, False]),
        ('"0x01000100"', "tensor<4xi1>", [True, False, True, False]),
        ("0x10", "tensor<i32>", 16),
        ("-7", "tensor<i4>", -7),
    ],
)
def test_constants(body: str, kind: str, expected: object) -> None:
    found = constant(body, kind)
    want = np.asarray(expected).astype(found.dtype)
    assert found.shape == want.shape
    np.testing.assert_array_equal(found.astype(complex), want.astype(complex))
    assert not found.flags.writeable


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("1", "tensor<f32>", "expected an element of f32"),
        ("1.0", "tensor<i32>", "expected an element of i32"),
        ("300", "tensor<i8>", "out of range"),
        ("-1", "tensor<ui8>", "negative"),
        ("[1, 2, 3]", "tensor<2xi32>", "expected 2 entries"),
        ("[[1, 2]]", "tensor<2xi32>", "deeper"),
        ("[1, 2", "tensor<2xi32>", "not closed"),
        ("[1,, 2]", "tensor<2xi32>", "unexpected ','"),
        ("", "tensor<2xi32>", "found none"),
        ('"0xZZ"', "tensor<i8>", "hexadecimal"),
        ('"0x0000"', "tensor<2xf32>", "expected 8 bytes"),
        ("1", "tensor<?xi32>", "static shape"),
        ("1", "tensor<99999999999x99999999999xi32>", "absurd"),
        ("0xFF8000000", "tensor<f32>", "too many bits"),
    ],
)
def test_bad_constants(body: str, kind: str, message: str) -> None:
    with pytest.raises(hlo.ParseError, match=message):
        constant(body, kind)


def test_nan_payloads_survive_printing() -> None:
    module = hlo.parse("func.func @f() { %0 = stablehlo.constant dense<0x7FC00001> : tensor<f32> return }")
    assert "0x7FC00001" in str(module)


@pytest.mark.parametrize("value", [0.1, 1e-45, 3.4e38, 1 / 3, 123456789.0, -0.0, 6.02e23])
@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_numbers_print_to_the_same_bits(value: float, kind: str) -> None:
    first = constant(repr(value) if "." in repr(value) else repr(value).replace("e", ".0e"), f"tensor<{kind}>")
    text = str(hlo.parse(f"func.func @f() {{ %0 = stablehlo.constant dense<{value:.20e}> : tensor<{kind}> return }}"))
    again = hlo.parse(text).entry.body.ops[0].attr("value").array
    assert again.tobytes() == first.tobytes()


def test_the_pretty_forms_of_one_program() -> None:
    text = """module @m attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32> {jax.arg_info = "x"}, %arg1: tensor<3x4xf32>) -> (tensor<2xf32> {jax.result_info = ""}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, HIGH] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    %1 = stablehlo.slice %0 [0:2, 1:4:2] : (tensor<2x4xf32>) -> tensor<2x2xf32>
    %2 = stablehlo.compare LT, %1, %1, TOTALORDER : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xi1>
    %3 = stablehlo.select %2, %1, %1 : tensor<2x2xi1>, tensor<2x2xf32>
    %4 = stablehlo.reduce(%3 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<2x2xf32>, tensor<f32>) -> tensor<2xf32>
    %5:2 = call @pair(%4) : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
    %6 = chlo.erf %5#1 : tensor<2xf32> -> tensor<2xf32>
    return %6 : tensor<2xf32>
  }
  func.func private @pair(%arg0: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
    return %arg0, %arg0 : tensor<2xf32>, tensor<2xf32>
  }
}
"""
    module = round_trip(text)
    assert str(module) == text
    ops = module.functions["main"].body.ops
    assert ops[1].attr("dot_dimension_numbers") == DotDimensions((), (), (1,), (0,))
    assert ops[2].attr("strides") == (1, 2)
    assert module.attributes == {"mhlo.num_partitions": TypedInteger(1, "i32")}
    assert ops[1].location == hlo.Location("<text>", 4, 10)


def test_while_and_reduce_with_their_regions() -> None:
    round_trip("""func.func @f(%n: tensor<i32>, %x: tensor<4xf32>, %z: tensor<f32>) -> tensor<f32> {
  %0:2 = stablehlo.while(%i = %n, %y = %x) : tensor<i32>, tensor<4xf32> attributes {a = 1 : i64}
  cond {
    %1 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.add %i, %n : tensor<i32>
    stablehlo.return %1, %y : tensor<i32>, tensor<4xf32>
  }
  %2 = stablehlo.reduce(%0#1 init: %z) across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    reducer(%a: tensor<f32>, %b: tensor<f32>) {
    %3 = stablehlo.subtract %a, %b : tensor<f32>
    stablehlo.return %3 : tensor<f32>
  }
  return %2 : tensor<f32>
}""")


def test_aliases_locations_and_foreign_attributes_are_kept() -> None:
    module = round_trip("""#loc = loc("x.py":1:2)
#map = affine_map<(d0) -> (d0)>
!t = tensor<2xf32>
module {
  sdy.mesh @mesh = <["x"=2]>
  func.func @f(%a: !t {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> !t attributes {m = #map} {
    %0 = stablehlo.abs %a {mhlo.x = #other.attr<1, {"}"}>} : tensor<2xf32> loc(#loc)
    return %0 : !t loc("end")
  }
}""")
    f = module.functions["f"]
    assert f.attributes["m"] == Foreign("affine_map<(d0) -> (d0)>")
    assert f.body.ops[0].debug == "loc(#loc)"
    assert 'sdy.mesh @mesh = <["x"=2]>' in str(module) and 'loc("end")' in str(module)


@pytest.mark.parametrize(
    "kind",
    [
        "tensor<?x3xf32, #stablehlo.bounds<5, ?>>",
        "tensor<2x!quant.uniform<i8:f32, 2.0:15>>",
        "tensor<2x3x!quant.uniform<u8<1:254>:f32:0, {0.5, 0.25:3}>>",
        "tuple<tensor<f32>, tuple<!stablehlo.token>>",
        "!stablehlo.future<tensor<?xf32>, tensor<4xi32>>",
        "memref<2xf32>",
        "tensor<2xf32, #other.encoding<{a = (d0) -> (d0)}>>",
        "tensor<3xf8E4M3FN>",
        "tensor<complex<f64>>",
    ],
)
def test_types(kind: str) -> None:
    module = round_trip(f"func.func private @f({kind}) -> {kind}")
    assert hlo.parse(str(module)).functions["f"].type == module.functions["f"].type


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("func.func @f() {\n  %0 = stablehlo.nothing : tensor<f32>\n}", 2, 8, "unknown op 'stablehlo.nothing'"),
        ("func.func @f() {\n  %0 = mine.op : tensor<f32>\n}", 2, 8, "unknown op 'mine.op': none of mine is defined; a module that registers"),
        ("func.func @f() {\n  return %x : tensor<f32>\n}", 2, 10, "undefined value %x"),
        ("func.func @f(%a: tensor<2xf33>) { return }", 1, 27, "unknown element type 'f33'"),
        ("func.func @f(%a: tensor<f32>) {\n %a = stablehlo.abs %a : tensor<f32>\nreturn }", 2, 2, "defined twice"),
        ("func.func @f(%a: tensor<f32>) {\n %b = stablehlo.abs %a : tensor<f64>\nreturn }", 2, 26, "the op says tensor<f64>"),
        ("func.func @f() { return }\nfunc.func @f() { return }", 2, 11, "defined twice"),
        ("func.func @f() {", 1, 17, "the end of the text"),
        ("func.func @f() {\n  return\n  ^bb1: return\n}", 3, 3, "one block"),
        ("#a = #b", 1, 6, "undefined attribute alias"),
        (
            'func.func @f() {\n  "stablehlo.iota"() {iota_dimension = 0 : i32} : () -> tensor<2xi32>\n return }',
            2,
            22,
            "of type i64",
        ),
    ],
)
def test_errors_have_a_place_and_a_caret(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(hlo.ParseError) as caught:
        hlo.parse(text, "p.mlir")
    error = caught.value
    assert message in error.message
    assert error.location == hlo.Location("p.mlir", line, column)
    assert error.render().splitlines()[0].startswith(f"p.mlir:{line}:{column}: error: ")
    assert error.render().splitlines()[-1].index("^") == 2 + min(column - 1, 60)


def test_verification_errors_name_everything() -> None:
    text = "func.func @f(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {\n  %0 = stablehlo.cholesky %a : tensor<2x3xf32>\n  return %0 : tensor<2x3xf32>\n}"
    with pytest.raises(hlo.VerificationError) as caught:
        hlo.verify(hlo.parse(text, "p.mlir"))
    error = caught.value
    assert (error.op, error.constraint) == ("stablehlo.cholesky", "C3")
    assert error.render().splitlines()[1] == "    %0 = stablehlo.cholesky %a : tensor<2x3xf32>"
    assert "the last two dimensions of a are equal: found a: tensor<2x3xf32>" in error.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "func.func @a() { call @b() : () -> () return }\nfunc.func @b() { call @a() : () -> () return }",
            "recursive: @a -> @b -> @a",
        ),
        ("func.func @a() { call @a() : () -> () return }", "recursive: @a -> @a"),
        ("func.func @a() { call @b() : () -> () return }", "found no function @b"),
        ("func.func @a() -> tensor<f32> { return }", "but says (tensor<f32>)"),
        ("func.func @a() { }", "must end in a return"),
        ("func.func @a() { return return }", "must be the last op"),
        ("func.func @a() { stablehlo.iota dim = 0 : tensor<2xi32> }", "must end in a return"),
    ],
)
def test_functions(text: str, message: str) -> None:
    with pytest.raises(hlo.VerificationError) as caught:
        hlo.verify(hlo.parse(text))
    assert message in caught.value.message


def test_several_modules_and_none() -> None:
    module = hlo.parse("module @a { module @b { func.func @f() { return } } } module @c { }")
    assert [m.name for m in module.nested] == ["a", "c"] and module.nested[0].nested[0].functions
    assert not hlo.parse("").functions
    with pytest.raises(KeyError):
        hlo.parse("").function()


def test_names_from_programs_cannot_break_the_text() -> None:
    module = hlo.parse('func.func @"a\\22 b\\0A"(%x: tensor<f32> {"q\\22" = "\\FF"}) -> tensor<f32> { return %x : tensor<f32> }')
    assert list(module.functions) == ['a" b\n']
    assert str(hlo.parse(str(module))) == str(module)


def jax_context() -> Any:
    """A context that knows every dialect that JAX prints."""
    ir = pytest.importorskip("jaxlib.mlir.ir")
    registry = ir.DialectRegistry()
    importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    for name in ("stablehlo", "chlo", "sdy"):
        importlib.import_module(f"jaxlib.mlir.dialects.{name}").register_dialect(context)
    context.load_all_available_dialects()
    return context


@pytest.mark.jax
def test_bytecode_is_read_through_jaxlib(tmp_path: Path) -> None:
    ir = pytest.importorskip("jaxlib.mlir.ir")
    stablehlo = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
    text = "module {\n  func.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {\n    %0 = stablehlo.abs %arg0 : tensor<2xf32>\n    return %0 : tensor<2xf32>\n  }\n}\n"
    with jax_context():
        module = ir.Module.parse(text)
        stream = io.BytesIO()
        module.operation.write_bytecode(stream)
        artifact = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())
    for data in (stream.getvalue(), artifact):
        path = tmp_path / "m.mlirbc"
        path.write_bytes(data)
        assert str(hlo.load(path)) == text
    with pytest.raises(hlo.ParseError, match="no MLIR bytecode"):
        hlo.parse(b"ML\xefR" + b"nonsense")


@pytest.mark.jax
def test_artifacts_with_shardings_are_read() -> None:
    """JAX's portable artifacts hold ops of the partitioner's dialect, which is not versioned."""
    ir = pytest.importorskip("jaxlib.mlir.ir")
    stablehlo = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
    text = (
        'module { sdy.mesh @mesh = <["x"=1]> func.func @main(%a: tensor<2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})'
        " -> tensor<2xf32> { return %a : tensor<2xf32> } }"
    )
    with jax_context():
        artifact = stablehlo.serialize_portable_artifact(ir.Module.parse(text), stablehlo.get_current_version(), True)
    module = hlo.parse(artifact)
    hlo.verify(module)
    assert str(module.function().type) == "(tensor<2xf32>) -> tensor<2xf32>"


def test_bytecode_without_jaxlib_is_declined_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib.mlir.ir", None)
    with pytest.raises(hlo.ParseError, match="jaxlib is not installed"):
        hlo.parse(b"ML\xefR")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(hlo.ParseError, match="cannot read the file"):
        hlo.load(tmp_path / "missing.mlir")
    path = tmp_path / "latin.mlir"
    path.write_bytes(b"module {\n  // caf\xe9\n}")
    with pytest.raises(hlo.ParseError, match="no UTF-8 text") as caught:
        hlo.load(path)
    assert caught.value.location == hlo.Location(str(path), 2, 9)


@pytest.mark.jax
@pytest.mark.parametrize("generic", [False, True])
def test_jax_reads_what_is_printed(generic: bool) -> None:
    ir = pytest.importorskip("jaxlib.mlir.ir")
    with jax_context():
        for path in sorted((Path(__file__).parents[2] / "examples").glob("*.mlir")):
            text = path.read_text()
            printed = print_module(hlo.parse(text), generic=generic)
            mine, theirs = (ir.Module.parse(t).operation.get_asm(print_generic_op_form=True) for t in (printed, text))
            assert mine == theirs, path.name


def test_a_byte_order_mark_begins_no_program(tmp_path: Path) -> None:
    """Editors on Windows write one; it was an unknown module item."""
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    path = tmp_path / "marked.mlir"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert str(hlo.load(path)) == str(hlo.parse(text)) == str(hlo.parse("\ufeff" + text))
