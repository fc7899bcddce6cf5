"""HLO text in and out."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.attributes import ChannelHandle, ConvDimensions, DotDimensions, GatherDimensions
from hlo.types import Layout

PROGRAM = """HloModule m, entry_computation_layout={(f32[10,20]{1,0})->f32[10]{0}}

FileNames
1 "x.py"

%max (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %m = f32[] maximum(f32[] %a, f32[] %b), metadata={op_name="max, of } two" source_line=3}
}

fused {
  p = f32[10,20]{1,0} parameter(0) /* a comment */
  z = f32[] constant(-inf)
  ROOT r = f32[10]{0} reduce(p, z), dimensions={1}, to_apply=max
}

ENTRY e {
  x = f32[10,20]{1,0} parameter(0)
  t = f32[20,10]{0,1} transpose(x), dimensions={1,0}
  s = f32[6,10]{1,0} slice(t), slice={[2:20:3], [0:10]}
  c = s32[2,2]{1,0} constant({ {1, -2}, {3, 4} })
  p = f32[10,10]{1,0} pad(s, z), padding=1_2_0x0_0, backend_config={"a":1}
  z = f32[] constant(0)
  ROOT f = f32[10]{0} fusion(x), kind=kInput, calls=fused
}
"""


def entry(lines: str) -> list[hlo.Op]:
    """The ops of an entry computation."""
    module = hlo.parse(f"HloModule m\nENTRY e {{\n{lines}\n}}")
    hlo.verify(module)
    return module.entry.body.ops


def test_a_program_becomes_ops_and_goes_back() -> None:
    text = PROGRAM.replace("  p = f32[10,10]{1,0} pad(s, z), padding=1_2_0x0_0, backend_config={\"a\":1}\n  z = f32[] constant(0)\n",
                           "  z = f32[] constant(0)\n  p = f32[9,10]{1,0} pad(s, z), padding=1_2x0_0, backend_config={\"a\":1}\n")  # fmt: skip
    module = hlo.parse(text)
    hlo.verify(module)
    assert module.root.name == "xla.fusion" and module.root.attr("kind") == "kInput"
    assert [op.name.partition(".")[2] for op in module.entry.body.ops] == [
        "transpose",
        "slice",
        "constant",
        "constant",
        "pad",
        "fusion",
        "return",
    ]
    assert module.entry.body.ops[0].result.tensor.layout == Layout((0, 1))
    assert module.entry.body.ops[4].extra == {"xla.backend_config": '{"a":1}'}
    (reduce, _) = module.root.regions[0].ops[1:]
    assert reduce.name == "stablehlo.reduce" and reduce.regions[0].ops[0].name == "stablehlo.maximum"
    back = hlo.to_hlo_text(module)
    assert isinstance(back, str)
    again = hlo.parse(back)
    hlo.verify(again)
    assert hlo.to_hlo_text(again) == back
    assert str(hlo.parse(str(module))) == str(module)


def test_operands_come_before_their_uses() -> None:
    with pytest.raises(hlo.ParseError, match="undefined operand 'z'") as caught:
        hlo.parse(PROGRAM, "p.hlo")
    assert str(caught.value.location) == "p.hlo:23:30"
    assert caught.value.render().splitlines()[-1].strip() == "^"


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        ("p = f32[2,3,4] parameter(0)\nq = f32[2,4,5] parameter(1)\nROOT r = f32[2,3,5] dot(p, q), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}",
         "dot_dimension_numbers", DotDimensions((0,), (0,), (2,), (1,))),
        ("p = f32[1,8,8,3] parameter(0)\nq = f32[3,3,3,4] parameter(1)\nROOT r = f32[1,4,8,4] convolution(p, q), window={size=3x3 stride=2x1 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
         "dimension_numbers", ConvDimensions(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))),
        ("p = f32[8,4] parameter(0)\ni = s32[3,1] parameter(1)\nROOT r = f32[3,4] gather(p, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}",
         "dimension_numbers", GatherDimensions((1,), (0,), (), (), (0,), 1)),
        ("p = f32[3] parameter(0)\nROOT r = f32[2,3] broadcast(p), dimensions={1}", "broadcast_dimensions", (1,)),
        ("p = f32[3] parameter(0)\nROOT r = pred[3] compare(p, p), direction=LT, type=TOTALORDER", "compare_type", "TOTALORDER"),
        ("p = f32[8] parameter(0)\ni = s32[] parameter(1)\nROOT r = f32[2] dynamic-slice(p, i), dynamic_slice_sizes={2}", "slice_sizes", (2,)),
        ("ROOT r = s32[2,3] iota(), iota_dimension=1", "iota_dimension", 1),
        ("p = f32[4] parameter(0)\nROOT r = f32[8] all-gather(p), replica_groups=[2,2]<=[4], dimensions={0}", "replica_groups", ((0, 1), (2, 3))),
        ("p = f32[4] parameter(0)\nROOT r = f32[8] all-gather(p), replica_groups=[2,2]<=[2,2]T(1,0), dimensions={0}", "replica_groups", ((0, 2), (1, 3))),
        ("p = f32[4] parameter(0), sharding={devices=[2]<=[2]}\nROOT r = f32[8] all-gather(p), replica_groups=mesh['a'=2,'b'=2] {'a'}, dimensions={0}", "replica_groups", ((0, 2), (1, 3))),
        ("p = f32[4] parameter(0)\nROOT r = f32[8] all-gather(p), replica_groups=mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'a'}, dimensions={0}", "replica_groups", ((0, 1), (2, 3))),
        ("p = f32[4] parameter(0)\nROOT r = f32[8] all-gather(p), replica_groups=mesh['a'=4], device_ids=(3,2,1,0) {'a':(2)2}, dimensions={0}", "replica_groups", ((3, 2), (1, 0))),
        ("p = f32[4] parameter(0)\nROOT r = f32[4] all-to-all(p), channel_id=3, replica_groups={{0,1}}, dimensions={0}", "channel_handle", ChannelHandle(3, 1)),
    ],
)  # fmt: skip
def test_attributes(line: str, name: str, expected: object) -> None:
    op = entry(line)[-2]
    assert op.attr(name) == expected
    module = hlo.parse(f"HloModule m\nENTRY e {{\n{line}\n}}")
    text = hlo.to_hlo_text(module)
    assert isinstance(text, str)
    assert hlo.parse(text).entry.body.ops[-2].attributes == op.attributes


@pytest.mark.parametrize(
    ("literal", "kind", "expected"),
    [
        ("{ {1, 2}, {3, 4} }", "f32[2,2]", [[1, 2], [3, 4]]),
        ("{true, false}", "pred[2]", [True, False]),
        ("(1, -2)", "c64[]", 1 - 2j),
        ("nan", "f32[]", np.nan),
        ("{-inf, inf}", "bf16[2]", [-np.inf, np.inf]),
        ("{ /*i0=0*/ {1} }", "s8[1,1]", [[1]]),
        ("f32[2] {1, 2}", "f32[2]", [1, 2]),
        ("{}", "f32[0]", []),
    ],
)
def test_literals(literal: str, kind: str, expected: object) -> None:
    value = entry(f"ROOT c = {kind} constant({literal})")[0].attr("value").array
    np.testing.assert_array_equal(value.astype(complex), np.asarray(expected).astype(complex))


def test_a_value_that_a_dump_left_out_is_not_made_up() -> None:
    assert entry("ROOT c = f32[1000] constant({...})")[0].name == "xla.elided_constant"


def test_tuples_control_flow_and_calls() -> None:
    text = """HloModule m
cond { t = (s32[], f32[2]) parameter(0) i = s32[] get-tuple-element(t), index=0 n = s32[] constant(3) ROOT c = pred[] compare(i, n), direction=LT }
body { t = (s32[], f32[2]) parameter(0) i = s32[] get-tuple-element(t), index=0 x = f32[2] get-tuple-element(t), index=1
  o = s32[] constant(1) j = s32[] add(i, o) ROOT r = (s32[], f32[2]) tuple(j, x) }
yes { a = f32[2] parameter(0) ROOT n = f32[2] negate(a) }
no { a = f32[2] parameter(0) ROOT n = f32[2] abs(a) }
f { a = f32[2] parameter(0) ROOT t = (f32[2], f32[2]) tuple(a, a) }
ENTRY e {
  i = s32[] parameter(0)
  x = f32[2] parameter(1)
  p = pred[] parameter(2)
  t = (s32[], f32[2]) tuple(i, x)
  w = (s32[], f32[2]) while(t), condition=cond, body=body
  y = f32[2] get-tuple-element(w), index=1
  b = f32[2] conditional(p, y, x), true_computation=yes, false_computation=no
  c = (f32[2], f32[2]) call(b), to_apply=f
  d = f32[2] get-tuple-element(c), index=1
  ROOT r = (f32[2], s32[]) tuple(d, i)
}
"""
    module = hlo.parse(text)
    hlo.verify(module)
    assert [str(t) for t in module.entry.result_types] == ["tensor<2xf32>", "tensor<i32>"]
    assert {op.name for op in hlo.walk(module.entry.body)} >= {
        "stablehlo.while",
        "stablehlo.if",
        "func.call",
        "stablehlo.get_tuple_element",
    }
    back = hlo.to_hlo_text(module)
    assert isinstance(back, str)
    hlo.verify(hlo.parse(back))
    assert hlo.to_hlo_text(hlo.parse(back)) == back


def test_stablehlo_becomes_hlo_text() -> None:
    module = hlo.parse("""func.func @main(%p: tensor<i1>, %x: tensor<2xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.if"(%p) ({ stablehlo.return %x : tensor<2xf32> }, { %1 = stablehlo.add %x, %y : tensor<2xf32> stablehlo.return %1 : tensor<2xf32> })
    : (tensor<i1>) -> tensor<2xf32>
  %2:2 = stablehlo.while(%a = %0, %b = %p) : tensor<2xf32>, tensor<i1>
  cond { stablehlo.return %b : tensor<i1> } do { %3 = stablehlo.add %a, %y : tensor<2xf32> stablehlo.return %3, %p : tensor<2xf32>, tensor<i1> }
  return %2#0 : tensor<2xf32>
}""")
    hlo.verify(module)
    text = hlo.to_hlo_text(module)
    assert isinstance(text, str)
    hlo.verify(hlo.parse(text))


def test_what_results_may_be_written_over_goes_there_and_back() -> None:
    t = "tensor<4xf32>"
    module = hlo.parse(
        f"func.func @main(%x: {t} {{tf.aliasing_output = 1 : i32}}, %y: {t}, %z: {t} {{tf.aliasing_output = 0 : i32}})"
        f" -> ({t}, {t}) {{\n  %0 = stablehlo.add %x, %y : {t}\n  return %z, %0 : {t}, {t}\n}}"
    )
    assert module.function().donations == {0: 1, 2: 0}
    text = hlo.to_hlo_text(module)
    assert isinstance(text, str)
    assert "input_output_alias={ {1}: (0, {}, may-alias), {0}: (2, {}, may-alias) }" in text
    again = hlo.parse(text)
    assert again.function().donations == {0: 1, 2: 0} and hlo.to_hlo_text(again) == text
    head = "HloModule m, input_output_alias={ {}: (0, {}, must-alias) }"
    one = hlo.parse(head + "\nENTRY e { p = f32[3] parameter(0) ROOT r = f32[3] negate(p) }")
    assert one.function().donations == {0: 0}


def test_what_hlo_cannot_say_is_declined() -> None:
    module = hlo.parse(
        "func.func @main(%x: tensor<2x!quant.uniform<i8:f32, 1.0>>) -> tensor<2x!quant.uniform<i8:f32, 1.0>> { return %x : tensor<2x!quant.uniform<i8:f32, 1.0>> }"
    )
    answer = hlo.to_hlo_text(module)
    assert isinstance(answer, hlo.Declined) and "quant" in answer.reason


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ROOT r = f32[2] nothing()", "unknown opcode 'nothing'"),
        ("ROOT r = f99[2] iota()", "unknown element type 'f99'"),
        ("ROOT r = f32[2]{1} iota(), iota_dimension=0", "permutation of 1 dimensions"),
        ("ROOT r = f32[2] parameter(1)", "expected parameters 0 to 0"),
        ("p = f32[2] parameter(0)\nROOT r = f32[2] reduce(p, p), dimensions={0}, to_apply=missing", "no computation 'missing'"),
        ("p = f32[2] parameter(0)\nROOT r = f32[2] fusion(p), kind=kLoop, calls=e", "applies itself"),
        ("ROOT r = f32[2] constant({1, 2, 3})", "expected 2 elements"),
        ("p = f32[2] parameter(0)\nROOT r = f32[2] slice(p), slice=7", "as many start indices"),
        ("p = f32[2] parameter(0)\nROOT r = f32[2] transpose(p), dimensions={x}", "expected an integer"),
        ("p = f32[2] parameter(0)\np = f32[2] abs(p)", "defined twice"),
        ("p = f32[2] parameter(0)\nROOT r = f32[2] abs(p), ", "expected an attribute"),
    ],
)  # fmt: skip
def test_errors(line: str, message: str) -> None:
    with pytest.raises((hlo.ParseError, hlo.VerificationError), match=message) as caught:
        entry(line)
    assert caught.value.location is not None and caught.value.location.line >= 2
