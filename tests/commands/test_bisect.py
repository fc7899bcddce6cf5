"""Faults put into the generator on purpose: `check` must find the op, the element and both values in a fusion of twenty ops."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
from codegen.call.program import assembly
from codegen.kernel.ir import For, Number
from codegen.kernel.print_numba import statement_lines
from codegen.source import emit, scalars, values
from tilewright.bisect import Culprit, Values, check_kernels, find_culprit
from tilewright.check import first_difference
from tilewright.cli import main
from tilewright.inputs import random_arrays

# A row softmax between elementwise ops, and a column shifted by one: twenty ops in one kernel.
PROGRAM = """func.func @main(%x: tensor<24x37xf32>, %y: tensor<24x37xf32>) -> tensor<24x37xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %half = stablehlo.constant dense<0.5> : tensor<24x37xf32>
  %a0 = stablehlo.multiply %x, %half : tensor<24x37xf32>
  %a1 = stablehlo.add %a0, %y : tensor<24x37xf32>
  %a2 = stablehlo.tanh %a1 : tensor<24x37xf32>
  %a3 = stablehlo.subtract %a2, %y : tensor<24x37xf32>
  %a4 = stablehlo.abs %a3 : tensor<24x37xf32>
  %a5 = stablehlo.sine %a4 : tensor<24x37xf32>
  %a6 = stablehlo.multiply %a5, %a2 : tensor<24x37xf32>
  %m = stablehlo.reduce(%a6 init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<24x37xf32>, tensor<f32>) -> tensor<24xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<24xf32>) -> tensor<24x37xf32>
  %a7 = stablehlo.subtract %a6, %mb : tensor<24x37xf32>
  %a8 = stablehlo.exponential %a7 : tensor<24x37xf32>
  %z = stablehlo.reduce(%a8 init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<24x37xf32>, tensor<f32>) -> tensor<24xf32>
  %zb = stablehlo.broadcast_in_dim %z, dims = [0] : (tensor<24xf32>) -> tensor<24x37xf32>
  %a9 = stablehlo.divide %a8, %zb : tensor<24x37xf32>
  %s0 = stablehlo.slice %a9 [0:24, 1:37] : (tensor<24x37xf32>) -> tensor<24x36xf32>
  %s1 = stablehlo.slice %a9 [0:24, 0:1] : (tensor<24x37xf32>) -> tensor<24x1xf32>
  %s2 = stablehlo.concatenate %s0, %s1, dim = 1 : (tensor<24x36xf32>, tensor<24x1xf32>) -> tensor<24x37xf32>
  %b0 = stablehlo.add %s2, %a6 : tensor<24x37xf32>
  %b1 = stablehlo.negate %b0 : tensor<24x37xf32>
  %b2 = stablehlo.maximum %b1, %y : tensor<24x37xf32>
  return %b2 : tensor<24x37xf32>
}"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("programs") / "twenty.mlir"
    found.write_text(PROGRAM)
    return found


def wrong_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """sine computes the cosine."""
    right = scalars.scalar_source

    def scalar_source(op: Any, function: str, *rest: Any) -> Any:
        return right(op, "cosine" if function == "sine" else function, *rest)

    monkeypatch.setattr(values, "scalar_source", scalar_source)


def wrong_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop around every sum over 37 elements ends one early."""
    right = assembly.emit_phase

    def emit_phase(*args: Any) -> Any:
        made = right(*args)
        body = tuple(shorter(s) for s in made.kernel.body)
        return dataclasses.replace(made, kernel=dataclasses.replace(made.kernel, body=body))

    def shorter(s: Any) -> Any:
        if not isinstance(s, For):
            return s
        if s.stop == Number(37) and any("reduce_add(" in line for line in statement_lines(s.body)):
            return dataclasses.replace(s, stop=Number(36))
        return dataclasses.replace(s, body=tuple(map(shorter, s.body)))

    monkeypatch.setattr(assembly, "emit_phase", emit_phase)


def wrong_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of one column further on comes from two further on."""
    right = emit.PhaseEmitter.address

    def address(self: Any, buffer: Any, index: Any) -> str:
        moved = [e + 1 if len(index) == 2 and k == 1 and e.constant == 1 and e.terms else e for k, e in enumerate(index)]
        return right(self, buffer, moved)

    monkeypatch.setattr(emit.PhaseEmitter, "address", address)


def test_all_is_right_without_a_fault(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["culprit"] is None
    assert len(document["kernels"]) == 1 and document["kernels"][0]["ops"] >= 19
    assert all(k["passed"] for k in document["kernels"])


def test_a_wrong_function_is_found(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong_function(monkeypatch)
    assert main(["check", str(path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    culprit = document["culprit"]
    assert culprit["op"] == "%a5 = stablehlo.sine"
    assert culprit["ops"] == ["%a5 = stablehlo.sine"]
    assert culprit["element"] == [0, 0]
    read = float(culprit["reads"][0].split(" = ")[1])
    assert culprit["reads"][0].startswith("operand 0 %a4[0, 0]")
    assert culprit["expected"] == pytest.approx(np.sin(read), rel=1e-5)
    assert culprit["found"] == pytest.approx(np.cos(read), rel=1e-5)
    assert "(d0, d1) -> (d0, d1)" in culprit["maps"][0]


def test_what_people_see(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_function(monkeypatch)
    assert main(["check", str(path)]) == 1
    text = capsys.readouterr().out
    for line in ("FAILED", "wrong op      %a5 = stablehlo.sine", "element       [0, 0]", "expected      ", "found         ",
                 "map           operand 0 %a4: (d0, d1) -> (d0, d1)", "reads         operand 0 %a4[0, 0] = "):  # fmt: skip
        assert line in text


def found_in_program() -> Culprit:
    module = hlo.parse(PROGRAM)
    plan = codegen.remembered_plan(module)
    values = Values.of(plan, random_arrays(module.entry, 0))
    kernels = check_kernels(plan, values)
    assert not all(k.passed for k in kernels)
    culprit = find_culprit(plan, values, kernels[0].name)
    assert culprit is not None
    return culprit


def test_a_wrong_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_bound(monkeypatch)
    culprit = found_in_program()
    assert culprit.op == "%z = stablehlo.reduce"
    assert culprit.ops == ("%z = stablehlo.reduce",)
    assert culprit.element == (0,) and culprit.mismatched_elems == 24
    assert culprit.found < culprit.expected  # type: ignore[operator]
    assert "(d0)[s0] -> (d0, s0)" in culprit.maps[0]


def test_a_wrong_index_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_index(monkeypatch)
    culprit = found_in_program()
    assert culprit.op in ("%s0 = stablehlo.slice", "%s2 = stablehlo.concatenate")
    assert culprit.element[1] == 0
    assert culprit.maps and culprit.reads


def test_the_first_difference() -> None:
    rng = np.random.default_rng(0)
    b = rng.standard_normal((50, 300, 9)).astype(np.float32)
    for at in ((0, 0, 0), (17, 200, 3), (49, 299, 8)):
        a = b.copy()
        a[at] += 1
        a[49, 299, 8] -= 3
        assert first_difference(a, b) == at
    with pytest.raises(ValueError, match="no element differs"):
        first_difference(b, b)
    assert first_difference(np.array([1, 2, 3]), np.array([1, 2, 4])) == (2,)
    assert first_difference(np.array([1, np.nan], np.float64), np.array([np.nan, np.nan])) == (0,)


# The body takes the sine in iteration 3 alone, inside of a branch inside of the loop.
LOOP = """func.func @main(%x: tensor<6x5xf32>) -> tensor<6x5xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %n = stablehlo.constant dense<7> : tensor<i32>
  %y = stablehlo.tanh %x : tensor<6x5xf32>
  %r:2 = stablehlo.while(%i = %zero, %a = %y) : tensor<i32>, tensor<6x5xf32> cond {
    %more = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = stablehlo.add %i, %one : tensor<i32>
    %p = stablehlo.compare EQ, %i, %three, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %b = "stablehlo.if"(%p) ({
      %s = stablehlo.sine %a : tensor<6x5xf32>
      %m = stablehlo.multiply %s, %y : tensor<6x5xf32>
      stablehlo.return %m : tensor<6x5xf32>
    }, {
      %t = stablehlo.negate %a : tensor<6x5xf32>
      stablehlo.return %t : tensor<6x5xf32>
    }) : (tensor<i1>) -> tensor<6x5xf32>
    stablehlo.return %next, %b : tensor<i32>, tensor<6x5xf32>
  }
  return %r#1 : tensor<6x5xf32>
}"""


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("programs") / "loop.mlir"
    found.write_text(LOOP)
    return found


def test_a_wrong_op_in_a_loop_is_found_with_its_iteration(
    loop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["check", str(loop), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["culprit"] is None
    wrong_function(monkeypatch)
    assert main(["check", str(loop), "--json"]) == 1
    culprit = json.loads(capsys.readouterr().out)["culprit"]
    assert culprit["op"] == "%s = stablehlo.sine" and culprit["ops"] == ["%s = stablehlo.sine"]
    assert len(culprit["inside"]) == 2
    assert culprit["inside"][0].endswith("stablehlo.while, the body of iteration 3")
    assert culprit["inside"][1].endswith("stablehlo.if, the true branch")
    assert culprit["element"] == [0, 0] and culprit["size_elems"] == 30
    read = float(culprit["reads"][0].split(" = ")[1])
    assert culprit["expected"] == pytest.approx(np.sin(read), rel=1e-5)
    assert culprit["found"] == pytest.approx(np.cos(read), rel=1e-5)


def test_what_people_see_of_a_loop(loop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_function(monkeypatch)
    assert main(["check", str(loop)]) == 1
    lines = [line.split(None, 1) for line in capsys.readouterr().out.splitlines()]
    inside = [rest[1] for rest in lines if rest and rest[0] == "inside"]
    assert len(inside) == 2 and "the body of iteration 3" in inside[0] and "the true branch" in inside[1]


def test_a_wrong_condition_is_found_in_its_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1 sine and cosine are both above a half; at 1.5 the cosine is not."""
    wrong_function(monkeypatch)
    module = hlo.parse("""func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %half = stablehlo.constant dense<0.5> : tensor<f32>
      %r:2 = stablehlo.while(%i = %one, %a = %x) : tensor<f32>, tensor<4xf32> cond {
        %s = stablehlo.sine %i : tensor<f32>
        %more = stablehlo.compare GT, %s, %half : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      } do {
        %k = stablehlo.add %i, %half : tensor<f32>
        %b = stablehlo.add %a, %a : tensor<4xf32>
        stablehlo.return %k, %b : tensor<f32>, tensor<4xf32>
      }
      return %r#1 : tensor<4xf32>
    }""")
    plan = codegen.remembered_plan(module)
    values = Values.of(plan, random_arrays(module.entry, 0))
    (step,) = plan.controls
    culprit = find_culprit(plan, values, step.name)
    assert culprit is not None
    assert culprit.op == "%s = stablehlo.sine"
    assert len(culprit.inside) == 1 and culprit.inside[0].endswith("the condition of iteration 1")
