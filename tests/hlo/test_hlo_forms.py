"""Rare forms of HLO text: asynchronous pairs, shapes as scalars, scans, literals and types as dumps and tests write them."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import numpy as np
import pytest

import hlo
import interp
from hlo.errors import ParseError
from hlo.text.xla.table import names_of_opcode
from hlo.types import Layout

ADD = "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b)\n}\n"
NEGATE = "f {\n p = f32[4] parameter(0)\n ROOT r = f32[4] negate(p)\n}\n"


def program(lines: str, before: str = "") -> str:
    """A module with an entry of these lines; the first of them is line 3 when nothing stands before."""
    return f"HloModule m\n{before}ENTRY e {{\n{lines}\n}}"


def read(lines: str, before: str = "") -> hlo.Module:
    """The module; it verifies, and so does what it is printed to, in both syntaxes."""
    module = hlo.parse(program(lines, before))
    hlo.verify(module)
    printed = hlo.to_hlo_text(module)
    assert isinstance(printed, str), printed
    again = hlo.parse(printed)
    hlo.verify(again)
    once = hlo.to_hlo_text(again)
    assert isinstance(once, str) and hlo.to_hlo_text(hlo.parse(once)) == once
    assert sorted(names(again)) == sorted(names(module))  # the root comes last
    assert str(hlo.parse(str(module))) == str(module)
    return module


def names(module: hlo.Module) -> list[str]:
    return [op.name for f in module.functions.values() for op in f.body.ops if "tuple" not in op.name]


def refused(lines: str, message: str, place: tuple[int, int], before: str = "") -> None:
    with pytest.raises(hlo.TilewrightError) as caught:
        hlo.verify(hlo.parse(program(lines, before)))
    assert message in str(caught.value)
    assert caught.value.location is not None
    assert (caught.value.location.line, caught.value.location.column) == place
    if place[1] < 100:  # of a long line, a part is shown
        assert caught.value.render().splitlines()[-1].index("^") - 2 == place[1] - 1


# ---------------------------------------------------------------- asynchronous pairs

P = "p = f32[4] parameter(0)\n"


@pytest.mark.parametrize(
    ("lines", "before", "ops"),
    [
        ("s = f32[4] all-reduce-start(p), replica_groups={{0,1}}, to_apply=add\nROOT r = f32[4] all-reduce-done(s)", ADD, ["all_reduce"]),
        ("s = (f32[4], f32[8]) all-gather-start(p), dimensions={0}, replica_groups={{0,1}}\nROOT r = f32[8] all-gather-done(s)", "", ["all_gather"]),
        ("s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(p), source_target_pairs={{0,1}}\nROOT r = f32[4] collective-permute-done(s)", "", ["collective_permute"]),
        ("s = (f32[4]{0}, f32[4], u32[]) copy-start(p)\nROOT r = f32[4]{0} copy-done(s)", "", ["copy"]),
        ("s = ((f32[4]), f32[4], s32[]) async-start(p), calls=f\nu = ((f32[4]), f32[4], s32[]) async-update(s)\nROOT r = f32[4] async-done(u)", NEGATE, ["call"]),
        ("s = ((f32[4]), f32[4], s32[]) async-start(p), calls=f, async_execution_thread=\"x\"\nROOT r = f32[4] async-done(s), calls=f", NEGATE, ["call"]),
        ("s = ((f32[4]), f32[4], s32[]) negate-start(p)\nu = ((f32[4]), f32[4], s32[]) negate-update(s)\nROOT r = f32[4] negate-done(u)", "", ["negate"]),
        ("s = ((f32[4]), f32[2]) reduce-scatter-start(p), replica_groups={{0,1}}, dimensions={0}, to_apply=add\nROOT r = f32[2] reduce-scatter-done(s)", ADD, ["reduce_scatter"]),
        ("s = ((f32[4]), f32[4], s32[]) async-start(p), calls=f\nc = s32[] get-tuple-element(s), index=2\nx = s32[] add(c, c)\nROOT r = f32[4] async-done(s)", NEGATE, ["call", "constant", "constant", "add"]),
    ],
)  # fmt: skip
def test_a_pair_is_its_op(lines: str, before: str, ops: list[str]) -> None:
    module = read(P + lines, before)
    assert [op.name.partition(".")[2] for op in module.entry.body.ops[:-1]] == ops


def test_a_pair_computes_what_its_op_does() -> None:
    module = read(P + "s = ((f32[4]), f32[4], s32[]) async-start(p), calls=f\nROOT r = f32[4] async-done(s)", NEGATE)
    x = np.arange(4, dtype=np.float32)
    assert np.array_equal(interp.evaluate(module, x)[0], -x)


def test_a_started_op_may_travel_as_a_tuple() -> None:
    """Through a computation that takes it as a parameter: the tuple is a value there."""
    before = NEGATE + "g {\n t = ((f32[4]), f32[4], s32[]) parameter(0)\n ROOT d = f32[4] async-done(t)\n}\n"
    module = read(P + "s = ((f32[4]), f32[4], s32[]) async-start(p), calls=f\nROOT r = f32[4] call(s), to_apply=g", before)
    assert np.array_equal(interp.evaluate(module, np.ones(4, np.float32))[0], -np.ones(4))


@pytest.mark.parametrize(
    ("lines", "before", "message", "place"),
    [
        ("s = ((f32[4]), f32[4], s32[]) async-start(p)", "", "async-start needs calls=", (4, 31)),
        ("s = f32[4] negate-start(p)", "", "expected (operands, result, …) with operands of type tuple<tensor<4xf32>>", (4, 12)),
        ("s = ((f32[3]), f32[4], s32[]) negate-start(p)", "", "expected (operands, result, …)", (4, 31)),
        ("s = (f32[4], f32[3], u32[]) copy-start(p)", "", "expected (result, operand, …)", (4, 29)),
        ("s = ((f32[4]), f32[5], s32[]) async-start(p), calls=f", NEGATE, "expected the result tensor<4xf32> in the type of async-start", (8, 31)),
        ("s = ((f32[4]), f32[4], s32[]) negate-start(p)\nr = f32[5] negate-done(s)", "", "expected the type tensor<4xf32> of negate-done, found tensor<5xf32>", (5, 12)),
        ("r = f32[4] negate-done(p)", "", "expected a tuple with an element 1 as the operand of negate-done, found tensor<4xf32>", (4, 12)),
        ("r = f32[4] all-reduce-done(p, p)", "", "expected one operand of all-reduce-done, found 2", (4, 12)),
        ("r = f32[4] nonsense-start(p)", "", "unknown opcode 'nonsense-start'", (4, 12)),
        ("t = (f32[4], f32[4]) tuple(p, p)\nr = f32[5] get-tuple-element(t), index=0", "", "expected the type tensor<4xf32> of get-tuple-element, found tensor<5xf32>", (5, 12)),
    ],
)  # fmt: skip
def test_pairs_that_do_not_fit(lines: str, before: str, message: str, place: tuple[int, int]) -> None:
    refused(P + lines, message, place, before)


def test_transfers() -> None:
    module = read(P + "t = token[] after-all()\ns = (f32[4], u32[], token[]) send(p, t), channel_id=3, is_host_transfer=true\nd = token[] send-done(s), channel_id=3, is_host_transfer=true\n"
                  "r = (f32[4], u32[], token[]) recv(d), channel_id=4\nROOT e2 = (f32[4], token[]) recv-done(r), channel_id=4")  # fmt: skip
    ops = {op.name: op for op in module.entry.body.ops}
    send, recv = ops["stablehlo.send"], ops["stablehlo.recv"]
    assert send.attr("channel_handle") == hlo.attributes.ChannelHandle(3, 2) and send.attr("is_host_transfer")
    assert recv.attr("channel_handle") == hlo.attributes.ChannelHandle(4, 1) and len(recv.results) == 2
    refused(P + "s = (f32[4], u32[], token[]) send(p), channel_id=3", "expected (data, context, token) from send", (4, 30))
    refused("t = token[] after-all()\nr = f32[4] recv(t), channel_id=4", "expected (data, context, token) from recv", (4, 12))


def test_one_operand_for_each_process() -> None:
    text = "q = f32[4] parameter(1)\nROOT r = (f32[4], f32[4]) all-to-all(p, q), replica_groups={{0,1}}"
    module = read(P + text)
    rows = [np.arange(4, dtype=np.float32) + 10 * k for k in range(4)]
    found = interp.run_parallel(module, [["e"], ["e"]], *rows)
    assert [x.tolist() for x in found] == [rows[0].tolist(), rows[2].tolist(), rows[1].tolist(), rows[3].tolist()]
    declined = hlo.to_hlo_text(hlo.parse(program(P + text.replace(", replica_groups={{0,1}}", ""))))
    assert isinstance(declined, hlo.Declined) and "needs replica groups" in declined.reason
    refused(P + "q = f32[3] parameter(1)\nROOT r = (f32[4], f32[3]) all-to-all(p, q), replica_groups={{0,1}}", "expected operands and results of one tensor type", (5, 27))


# ---------------------------------------------------------------- single ops


def test_dynamic_reshape() -> None:
    module = read("p = f32[6] parameter(0)\na = s32[] parameter(1)\nb = s32[] parameter(2)\nROOT r = f32[<=2,<=3] dynamic-reshape(p, a, b)")
    assert [op.name for op in module.entry.body.ops][-2] == "stablehlo.dynamic_reshape"
    x = np.arange(6, dtype=np.float32)
    assert interp.evaluate(module, x, np.int32(2), np.int32(3))[0].tolist() == x.reshape(2, 3).tolist()
    # A shape that is no list of scalars is taken apart when it is printed.
    text = "func.func @main(%a: tensor<6xf32>, %s: tensor<2xi32>) -> tensor<?x?xf32> { %0 = stablehlo.dynamic_reshape %a, %s : (tensor<6xf32>, tensor<2xi32>) -> tensor<?x?xf32> return %0 : tensor<?x?xf32> }"
    printed = hlo.to_hlo_text(hlo.parse(text))
    assert isinstance(printed, str) and "dynamic-reshape(%a, %size, %size.1)" in printed
    assert interp.evaluate(hlo.parse(printed), x, np.array([3, 2], np.int32))[0].shape == (3, 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ROOT r = f32[<=2,<=3] dynamic-reshape(p, a)", "one size for each dimension of tensor<?x?xf32, #stablehlo.bounds<2, 3>>, found 2 operands"),
        ("ROOT r = f32[<=2,<=3] dynamic-reshape(p, a, p)", "expected scalars of one integer type as sizes, found tensor<6xf32>"),
    ],
)
def test_dynamic_reshape_of_other_operands(line: str, message: str) -> None:
    refused("p = f32[6] parameter(0)\na = s32[] parameter(1)\n" + line, message, (5, 23))


SCAN = """body {
  x = f32[2] parameter(0)
  c = f32[2] parameter(1)
  s = f32[2] add(c, x)
  m = f32[2] multiply(c, x)
  ROOT t = (f32[2], f32[2]) tuple(m, s)
}
"""


@pytest.mark.parametrize("is_reverse", [False, True])
def test_scan(is_reverse: bool) -> None:
    flag = ", is_reverse=true" if is_reverse else ", is_associative=false"
    module = read(f"p = f32[5,2] parameter(0)\ni = f32[2] parameter(1)\nROOT r = (f32[5,2], f32[2]) scan(p, i), dimensions={{0}}, num_carries=1{flag}, to_apply=body", SCAN)
    op = next(op for op in module.entry.body.ops if op.name == "chlo.scan")
    assert op.attributes["operandSegmentSizes"] == (1, 1) and op.attr("dimension") == 0
    x, carry = np.arange(10, dtype=np.float32).reshape(5, 2), np.ones(2, np.float32)
    found = interp.evaluate(module, x, carry)
    outputs: list[np.ndarray] = []
    for row in x[::-1] if is_reverse else x:
        outputs.append(carry * row)
        carry = carry + row
    assert found[0].tolist() == np.array(outputs[::-1] if is_reverse else outputs).tolist()
    assert found[1].tolist() == carry.tolist()


def test_scan_without_its_number_of_carries() -> None:
    lines = "p = f32[5,2] parameter(0)\ni = f32[2] parameter(1)\nROOT r = (f32[5,2], f32[2]) scan(p, i), dimensions={0}, to_apply=body"
    refused(lines, "scan: expected an integer", (12, 29), SCAN)
    refused(lines.replace("to_apply", "num_carries=3, to_apply"), "num_carries of at most 2 operands, found 3", (12, 29), SCAN)


def test_scaled_dot() -> None:
    module = read("a = f8e4m3fn[4,64] parameter(0)\nb = f8e4m3fn[8,64] parameter(1)\nc = f8e8m0fnu[4,2] parameter(2)\nd = f8e8m0fnu[8,2] parameter(3)\n"
                  "ROOT r = f32[4,8] scaled-dot(a, b, c, d), lhs_contracting_dims={1}, rhs_contracting_dims={1}")  # fmt: skip
    assert module.root.name == "xla.scaled_dot"
    refused("a = bf16[4,64] parameter(0)\nb = bf16[64,8] parameter(1)\nc = bf16[4,3] parameter(2)\nd = bf16[1,1] parameter(3)\nROOT r = f32[4,8] scaled-dot(a, b, c, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "expected the sizes of lhs_scale to divide those of tensor<4x64xbf16>, found tensor<4x3xbf16>", (7, 19))  # fmt: skip


def test_ragged_all_to_all() -> None:
    module = read("a = f32[4] parameter(0)\no = f32[6] parameter(1)\ns = s32[2] parameter(2)\nROOT r = f32[6] ragged-all-to-all(a, o, s, s, s, s), replica_groups={{0,1}}")
    assert module.root.attr("replica_groups") == ((0, 1),)
    refused("a = f32[4] parameter(0)\no = f32[6] parameter(1)\ns = s32[2] parameter(2)\nROOT r = f32[5] ragged-all-to-all(a, o, s, s, s, s), replica_groups={{0,1}}", "expected a result of type tensor<6xf32>", (6, 17))


def test_random_state_and_stochastic_rounding() -> None:
    module = read("ROOT r = u64[2] rng-get-and-update-state(), delta=4")
    assert module.root.attr("delta") == 4 and not module.root.definition.is_pure
    with pytest.raises(hlo.TilewrightError, match="the state belongs to the device that runs the program"):
        interp.evaluate(module)
    refused("ROOT r = u64[3] rng-get-and-update-state(), delta=4", "expected tensor<2xui64>, found tensor<3xui64>", (3, 17))
    refused("ROOT r = u64[2] rng-get-and-update-state()", "needs the attribute 'delta'", (3, 17))
    read("p = f32[4] parameter(0)\nq = u32[4] parameter(1)\nROOT r = s8[4] stochastic-convert(p, q)")
    refused("p = f32[4] parameter(0)\nq = u16[4] parameter(1)\nROOT r = s8[4] stochastic-convert(p, q)", "expected 32 random bits for each element", (5, 16))


def test_rng_does_not_leave_its_shape_behind() -> None:
    module = read("a = f32[] parameter(0)\nROOT r = f32[2,3] rng(a, a), distribution=rng_uniform")
    assert [op.name for op in module.entry.body.ops] == ["stablehlo.constant", "stablehlo.rng", "func.return"]


def test_a_barrier_of_several_values_and_a_call_of_none() -> None:
    text = "func.func @main(%a: tensor<4xf32>, %b: tensor<2xf32>) -> (tensor<4xf32>, tensor<2xf32>) { %0:2 = stablehlo.optimization_barrier %a, %b : tensor<4xf32>, tensor<2xf32> return %0#0, %0#1 : tensor<4xf32>, tensor<2xf32> }"
    printed = hlo.to_hlo_text(hlo.parse(text))
    assert isinstance(printed, str) and "opt-barrier(%tuple)" in printed
    hlo.verify(hlo.parse(printed))
    read(P + 'c = () custom-call(p), custom_call_target="f", custom_call_has_side_effect=true\nROOT r = f32[4] negate(p)')


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [("all-reduce-start", ("stablehlo.all_reduce",)), ("async-done", ("func.call",)), ("dynamic-reshape", ("stablehlo.dynamic_reshape",)), ("scan", ("chlo.scan",)), ("no-start", ())],
)
def test_the_ops_of_an_opcode(opcode: str, expected: tuple[str, ...]) -> None:
    assert names_of_opcode(opcode) == expected


# ---------------------------------------------------------------- types and literals


@pytest.mark.parametrize(
    ("line", "layout"),
    [
        ("ROOT r = f32[51,16] {0,1} bitcast(p)", (0, 1)),
        ("ROOT r = f32[51,16]{0,1} bitcast(f32[51,16] {1,0} %p)", (0, 1)),
        ("ROOT r = f32[51,16] /*a comment*/ {1,0:T(8,128)} bitcast(p)", (1, 0)),
        ("ROOT r = f32 [51,16] bitcast(p)", None),
    ],
)
def test_blanks_inside_a_type(line: str, layout: tuple[int, ...] | None) -> None:
    found = read("p = f32 [51,16] {1,0} parameter(0)\n" + line).root.result.tensor.layout
    assert (found.minor_to_major if found else None) == layout


def test_a_brace_after_a_type_may_begin_a_body() -> None:
    module = hlo.parse("HloModule m\n%f (p: f32[4]) -> f32[4] {\n %p = f32[4] parameter(0)\n ROOT %r = f32[4] negate(%p)\n}\nENTRY %e (p: s32 [5,4]) -> s32 [5,4] {\n ROOT p = s32 [5,4] {0,1} parameter(0)\n}")
    assert module.entry.arguments[0].tensor.layout == Layout((0, 1))
    with pytest.raises(ParseError, match="a computation without instructions"):
        hlo.parse("HloModule m\nENTRY %e () -> f32[] {}")


@pytest.mark.parametrize(
    ("literal", "kind", "expected"),
    [
        ("{0x1.8p+1, -0x1p-3}", "f32[2]", [3.0, -0.125]),
        ("0X1.8", "f32[]", 1.5),
        ("0x1p-149", "f32[]", 2.0**-149),
        ("-0x1p9999", "f64[]", -np.inf),
        ("1", "bf16[17,22]", np.ones((17, 22))),
        ("true", "pred[2,2]", [[True, True], [True, True]]),
        ("(1, 0x1p1)", "c64[3]", [1 + 2j] * 3),
        ("7", "s32[0]", []),
        ("{" + ", ".join(["{1, -2.5e3}"] * 200) + "}", "f32[200,2]", [[1, -2500.0]] * 200),
        ("{ /*i0=0*/ " + ", /*i0=1*/ ".join(["{ 1, 2 }"] * 200) + " }", "u8[200,2]", [[1, 2]] * 200),
        ("{" + ", ".join(["nan", "-inf", "0x1p1"] * 100) + "}", "f32[300]", [np.nan, -np.inf, 2.0] * 100),
    ],
)
def test_literals(literal: str, kind: str, expected: object) -> None:
    value = hlo.parse(program(f"ROOT r = {kind} constant({literal})")).root.attr("value").array
    np.testing.assert_array_equal(value, np.array(expected, value.dtype).reshape(value.shape))
    read(f"ROOT r = {kind} constant({literal})")


def test_payloads_of_nans() -> None:
    value = hlo.parse(program("ROOT r = f32[3] constant({nan(0x1), -nan(0x400000), nan})")).root.attr("value").array
    assert value.view(np.uint32)[:2].tolist() == [0x7F800001, 0xFFC00000]
    assert np.isnan(value[2])


@pytest.mark.parametrize(
    ("literal", "kind", "message", "column"),
    [
        ("{0x1.8p, 1}", "f32[2]", "expected an element of f32, found '0x1.8p'", 27),
        ("{1, 0xg}", "f32[2]", "found '0xg'", 30),
        ("{1, 1_0}", "f32[2]", "found '1_0'", 30),
        ("nan(0x800000)", "f32[]", "found 'nan(0x800000)'", 25),
        ("{1}", "f32[2]", "expected 2 elements for tensor<2xf32>, found 1", 26),
        ("{{1}, {2}}", "f32[2]", "braces that do not fit tensor<2xf32>", 27),
        ("{" + "1, " * 200 + "x}", "f32[201]", "expected an element of f32, found 'x'", 29 + 600),
        ("300", "u8[4]", "expected an element of ui8, found '300'", 25),
    ],
)
def test_bad_literals(literal: str, kind: str, message: str, column: int) -> None:
    refused(f"ROOT r = {kind} constant({literal})", message, (3, column))
