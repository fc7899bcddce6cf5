"""Loops as text that is read back: the same text again, the same kernels, proved and run; others are refused by their line."""

from __future__ import annotations

import pathlib
import random
import re

import numpy as np
import pytest

import codegen
import hlo
import tiling
from codegen.call.memory_safety import MemorySafetyWarning
from tests.goldens import prints, programs
from tests.shipped_plans import MACHINE, planned
from tilewright.inputs import random_arrays
from tiling import LoopsError, Plan, loops_text, parse_loops
from tiling.files.plan_file import all_loops, plan_from_text, plan_text, with_loops

FAST = ("softmax", "lstm_body", "top_k", "resnet_block")
SOFTMAX = programs.FILES["softmax"]


def check(plan: Plan) -> int:
    """Every kernel's loops are read back: the same text, the same print, and the same sources. How many there are."""
    rows = all_loops(plan)
    read = with_loops(plan, rows)
    assert all_loops(read) == rows
    for own, other in zip(plan.nested(), read.nested(), strict=True):
        for f, g in zip(own.fusions, other.fusions, strict=True):
            assert f.schedule is not g.schedule and str(f.schedule) == str(g.schedule)
    assert prints.kernels(read) == prints.kernels(plan)
    return sum(len(texts) for _, texts in rows)


@pytest.mark.parametrize("name", FAST)
def test_loops_of_shipped_programs_are_read_back(name: str) -> None:
    assert check(planned(programs.FILES[name], MACHINE, kernels=True))


@pytest.mark.slow
@pytest.mark.jax
@pytest.mark.parametrize("group", programs.GROUPS)
def test_every_plan_goes_to_a_file_and_back(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of all programs whose plans are kept: made for one machine, read on another; their loops, too."""
    monkeypatch.setenv("TILEWRIGHT_MACHINE", "cores=3,l2_bytes=262144")
    machine = prints.MACHINES[programs.machine_of(group)]
    found = 0
    for name, make in programs.GROUPS[group]().items():
        made = tiling.plan(make(), "main", machine, codegen.supports)
        read = plan_from_text(plan_text(made))
        assert read.to_json() == made.to_json() and read.machine == made.machine, name
        assert prints.kernels(read) == prints.kernels(made), name
        found += check(made)
    assert found > 20


def test_parsed_loops_are_proved_and_run() -> None:
    plan = planned(programs.FILES["lstm_body"], MACHINE, kernels=True)
    read = with_loops(plan, all_loops(plan))
    assert tiling.prove(read).table() == tiling.prove(plan).table() and tiling.prove(read).holds
    arrays = random_arrays(plan.module.entry, 0)
    for a, b in zip(codegen.compile(read)(*arrays), codegen.compile(plan)(*arrays), strict=True):
        assert a.tobytes() == b.tobytes()


ARGMAX = """func.func @main(%x: tensor<64x512xf32>) -> (tensor<64xf32>, tensor<64xi32>) {
  %i = stablehlo.iota dim = 1 : tensor<64x512xi32>
  %z = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %n = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.reduce(%x init: %z), (%i init: %n) across dimensions = [1]
       : (tensor<64x512xf32>, tensor<64x512xi32>, tensor<f32>, tensor<i32>) -> (tensor<64xf32>, tensor<64xi32>)
   reducer(%a: tensor<f32>, %b: tensor<f32>) (%p: tensor<i32>, %q: tensor<i32>) {
    %g = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %u = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %m = stablehlo.or %g, %u : tensor<i1>
    %v = stablehlo.select %m, %a, %b : tensor<i1>, tensor<f32>
    %e = stablehlo.compare EQ, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %l = stablehlo.compare LT, %p, %q, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %el = stablehlo.and %e, %l : tensor<i1>
    %t = stablehlo.or %m, %el : tensor<i1>
    %w = stablehlo.select %t, %p, %q : tensor<i1>, tensor<i32>
    stablehlo.return %v, %w : tensor<f32>, tensor<i32>
  }
  return %0#0, %0#1 : tensor<64xf32>, tensor<64xi32>
}"""


TANH = """func.func @main(%x: tensor<40xf32>) -> tensor<40xf32> {
  %0 = stablehlo.tanh %x : tensor<40xf32>
  return %0 : tensor<40xf32>
}"""


def test_a_body_that_a_pass_made_is_in_the_text() -> None:
    plan = tiling.plan(hlo.parse(ARGMAX), machine=MACHINE, supports=codegen.supports)
    (fusion,) = plan.fusions
    assert "O0 = fold(op(" in loops_text(plan, fusion.name)
    assert check(plan) == 1
    other = "func.func @body(%0: tensor<f32>) -> tensor<f32> {return %0 : tensor<f32>}"
    text = re.sub(r"fold\((op\(\d+\)), .*", rf'fold(\1, "{other}")', loops_text(plan, fusion.name))
    with pytest.raises(LoopsError, match="a body of the fold's types"):
        parse_loops(text, plan)


def test_a_person_edits_loops_as_text(tmp_path: pathlib.Path) -> None:
    """Loops of another machine's plan: saved with the plan, read, and an edit of the text that is wrong is found by the proof."""
    plan = planned(SOFTMAX)
    name = plan.fusions[0].name
    other = planned(SOFTMAX, tiling.Machine(cores=1, l1_bytes=8 << 10, l2_bytes=64 << 10))
    text = loops_text(other, name)
    assert text != loops_text(plan, name)
    edited = tiling.with_schedule(plan, name, parse_loops(text, plan))
    assert tiling.prove(edited).holds
    edited.save(tmp_path / "plan.json")
    read = tiling.load_plan(tmp_path / "plan.json")
    assert loops_text(read, name) == text and read.to_json() == edited.to_json()
    # One row less of the last nest: the text is one of loops, and they leave a result out.
    wrong = re.sub(r"Loop\((i0_divide\w*), 0, (\d+),", lambda m: f"Loop({m[1]}, 0, {int(m[2]) - 1},", text)
    assert wrong != text
    proof = tiling.prove(tiling.with_schedule(plan, name, parse_loops(wrong, plan)))
    assert proof.refuted


DIGEST = "tilewright.loops/1, a function, a fusion and a program's digest"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("loops/1", "loops/2", f"line 1: expected {DIGEST}, found 'tilewright.loops/2 main"),
        (r"\n(.|\n)*", "", "line 2: expected a Schedule, found the end"),
        (r"\w{16}\n", "0123456789abcdef\n", "line 1: expected @main of the program .*, found @main of 0123456789abcdef"),
        (r"Scope.RESULT", "Scope.MOON", "line 3, column 15: expected one of ARGUMENT, RESULT, SHARED, THREAD, found Scope.MOON"),
        ("size_elems=", "size_bytes=", "line 2, column 6: expected Buffer of name, scope, element, shape"),
        ("size_elems=", "size_elems=(", "line .*: no text of loops: "),
        (r"shape=\(4096", 'shape=("a"', "expected Buffer.shape of type int, found Buffer"),
        (r"op\(4\)", "op(400)", r"expected the place of an op of the program, found op\(400\)"),
        (r"N2 = Load", "N0 = Load", "expected a new buffer B0, node N0, value R0 or fold O0, found N0 = Load"),
        (r"N0 = Load\(", "N0 = open(", "expected a class of loops, found open"),
        (r"B0 = Buffer\(", "B0 = hlo.Buffer(", "expected a part of a schedule, found hlo.Buffer"),
        (r'Scalar\(0.0, "f32"\)', 'Scalar(0.0, "f33")', "expected Scalar.element that is an element type, found"),
        (r"\(N2, N3\)", "(N2, N77)", "expected a part of a line before, found N77"),
        (r"Loop\((\w+), 0", r"Loop(\1, \1 // 0", "expected what fits together"),
        (r"Loop\((\w+), 0", r"Loop(N0, 0", "expected Loop.variable of type Var, found Loop"),
        (r'Buffer\(\n  "divide_1"', r'Buffer("x);import os;(x"', "expected Buffer with a name of letters, digits and _"),
        (r"t0, 256", r'Var("t0);exit(0"), 256', "expected a variable's name of letters, digits and _, found Var"),
        (r"\(B0, B1, B2, B3\), ", "", "expected Schedule with tile_sizes, found|expected Schedule.buffers of type"),
    ],
)  # fmt: skip
def test_other_texts_are_refused(before: str, after: str, message: str) -> None:
    plan = planned(SOFTMAX)
    text = loops_text(plan, plan.fusions[0].name)
    other = re.sub(before, after, text, count=1)
    assert other != text
    with pytest.raises(LoopsError, match=message):
        parse_loops(other, plan)


def test_loops_that_leave_their_arrays_do_not_run() -> None:
    """One column more than there is: the kernel is refuted when it is compiled, and the evaluator runs the program."""
    plan = tiling.plan(hlo.parse(TANH), machine=MACHINE, supports=codegen.supports)
    name = plan.fusions[0].name
    text = loops_text(plan, name)
    wrong = re.sub(r"Loop\((\w+), 0, 39, 40", r"Loop(\1, 0, 40, 41", text)
    assert wrong != text
    with pytest.warns(MemorySafetyWarning, match="refuted"):
        made = codegen.compile(tiling.with_schedule(plan, name, parse_loops(wrong, plan)))
    x = np.linspace(-1, 1, 40, dtype=np.float32)
    np.testing.assert_allclose(made(x)[0], np.tanh(x), rtol=1e-6)


def test_names_in_a_plans_file_are_harmless() -> None:
    """A file's names go into kernels: what is no identifier is refused."""
    plan = planned(SOFTMAX)
    names, texts = all_loops(plan)[0]
    for wrong in ("x); import os", "lambda", "__import__", "a b", ""):
        with pytest.raises(ValueError, match="expected a name of letters, digits and _, found"):
            with_loops(plan, [({**names, "argument(0)": wrong}, texts)])
    product = planned(programs.FILES["gelu_mlp"], MACHINE, kernels=True)
    text = loops_text(product, product.fusions[0].name)
    other = re.sub(r'MicroKernel\((\s*)"\w+"', r'MicroKernel(\1"breakpoint"', text)
    assert other != text
    with pytest.raises(LoopsError, match="expected MicroKernel with a name"):
        parse_loops(other, product)


def test_damaged_texts_are_refused_or_loops() -> None:
    """Nothing but a `LoopsError` comes out of a text with other characters, lines, or a part of it missing."""
    plan = planned(programs.FILES["layer_norm"])
    text = loops_text(plan, plan.fusions[0].name)
    draw = random.Random(0)
    refused = 0
    for k in range(150):
        at, n = draw.randrange(len(text)), draw.randrange(1, 12)
        inside = ("", "0", "(", "B1", "None", "op(0)", '"x"', "\n")[k % 8]
        try:
            read = parse_loops(text[:at] + inside + text[at + n :], plan)
        except LoopsError:
            refused += 1
        else:
            assert isinstance(read, tiling.Schedule)
    assert refused > 100
