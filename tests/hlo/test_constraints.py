"""Every constraint of every op: a program that keeps it is accepted, one that breaks it is rejected under its label."""

# ruff: noqa: E501 (programs as they are written)

from __future__ import annotations

import re

import pytest

import hlo
from hlo.registry import definitions
from tests.hlo import constraint_cases_structured as _structured  # noqa: F401 (adds its cases)
from tests.hlo.constraint_cases import CASES


def split_types(text: str) -> list[str]:
    """The types of a list, split at the commas outside of brackets."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "<({") - (c in ">)}" and text[i - 1 : i] != "-")
        if c == "," and not depth:
            parts.append(text[last:i].strip())
            last = i + 1
    return [*parts, text[last:].strip()] if text.strip() else []


def program(op: str) -> str:
    """A function around one op in its generic form, with an argument for each operand."""
    values = re.match(r'"[^"]+"\(([^)]*)\)', op)
    assert values is not None
    names = [v.strip() for v in values.group(1).split(",") if v.strip()]
    start = op.rindex(" : (") + 4
    end = op.rindex(") -> ")
    types = split_types(op[start:end])
    assert len(names) == len(types), op
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
    return f"func.func private @called(tensor<f32>) -> tensor<f32>\nfunc.func @main({arguments}) {{\n{op}\nreturn\n}}"


@pytest.mark.parametrize("name", CASES)
def test_the_text_of_the_case_verifies(name: str) -> None:
    module = hlo.parse(program(CASES[name][0]))
    hlo.verify(module)
    printed = str(module)
    again = hlo.parse(printed)
    hlo.verify(again)
    assert str(again) == printed


BROKEN = [(name, *change) for name, (_, changes) in CASES.items() for change in changes]


@pytest.mark.parametrize(("name", "label", "old", "new"), BROKEN, ids=lambda x: x if len(str(x)) < 40 else "…")
def test_a_broken_constraint_is_named(name: str, label: str, old: str, new: str) -> None:
    text = CASES[name][0]
    assert old in text
    with pytest.raises(hlo.VerificationError) as caught:
        hlo.verify(hlo.parse(program(text.replace(old, new, 1) if old not in text.split(" : (")[-1] else _last(text, old, new))))
    assert caught.value.constraint == label, str(caught.value)
    assert caught.value.op == name.partition("#")[0]
    assert caught.value.location is not None and caught.value.location.line == 3


def _last(text: str, old: str, new: str) -> str:
    """The change made in the signature."""
    at = text.rindex(" : (")
    return text[:at] + text[at:].replace(old, new, 1)


LATE = {  # (op, label) -> the text of a body in which the operand of a constant decides, or an op that no text can hold
    ("stablehlo.dynamic_pad", "C3"): "a constant interior padding below 0",
    ("stablehlo.dynamic_gather", "C9"): "constant slice sizes",
    ("stablehlo.dynamic_gather", "C12"): "constant slice sizes",
    ("stablehlo.dynamic_gather", "C21"): "constant slice sizes",
    ("stablehlo.dynamic_broadcast_in_dim", "output_dimensions"): "a constant shape",
    ("stablehlo.dynamic_reshape", "output_shape"): "a constant shape",
    ("stablehlo.dynamic_iota", "output_shape"): "a constant shape",
    ("stablehlo.reduce", "C3"): "an odd number of operands, which the count of operands rejects first",
    ("stablehlo.reduce_window", "C1"): "an odd number of operands, which the count of operands rejects first",
    ("stablehlo.scatter", "C5"): "an even number of operands, which the count of operands rejects first",
}


def test_every_constraint_of_every_op_has_a_case() -> None:
    """What the tables leave out is what `LATE` explains and the tests below cover."""
    have = {(name.partition("#")[0], change[0]) for name, (_, changes) in CASES.items() for change in changes}
    want = {
        (d.name, rule.label)
        for d in definitions()
        for rule in (*d.constraints, *d.module_constraints)
        if rule.label != "ResultAccuracy"  # the parser rejects it already: test_accuracies_are_read
    }
    assert sorted(want - have - set(LATE)) == []
    assert sorted(have - want) == []


CONSTANT = [
    ("dynamic_pad", "C3", '"stablehlo.dynamic_pad"(%a, %z, %c, %c, %c) : (tensor<4xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) '
     "-> tensor<?xf32>", "[-1]"),
    ("dynamic_pad", "C4", '"stablehlo.dynamic_pad"(%a, %z, %c, %c, %c) : (tensor<4xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) '
     "-> tensor<7xf32>", "[1]"),
    ("dynamic_broadcast_in_dim", "output_dimensions", '"stablehlo.dynamic_broadcast_in_dim"(%z, %c) {broadcast_dimensions = array<i64>} '
     ": (tensor<f32>, tensor<1xi64>) -> tensor<4xf32>", "[5]"),
    ("dynamic_reshape", "output_shape", '"stablehlo.dynamic_reshape"(%a, %c) : (tensor<4xf32>, tensor<1xi64>) -> tensor<?xf32>', "[5]"),
    ("dynamic_iota", "output_shape", '"stablehlo.dynamic_iota"(%c) {iota_dimension = 0 : i64} : (tensor<1xi64>) -> tensor<4xi32>', "[5]"),
    ("dynamic_gather", "C21", '"stablehlo.dynamic_gather"(%a, %i, %c) {dimension_numbers = #stablehlo.gather<offset_dims = [1], '
     "start_index_map = [0], index_vector_dim = 1>} : (tensor<4xf32>, tensor<2x1xi32>, tensor<1xi64>) -> tensor<2x?xf32>", "[5]"),
    ("dynamic_gather", "C9", '"stablehlo.dynamic_gather"(%a, %i, %c) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], '
     "start_index_map = [0], index_vector_dim = 1>} : (tensor<4xf32>, tensor<2x1xi32>, tensor<1xi64>) -> tensor<2xf32>", "[2]"),
    ("dynamic_gather", "C12", '"stablehlo.dynamic_gather"(%a, %e, %c) {dimension_numbers = #stablehlo.gather<operand_batching_dims = [0], '
     "start_indices_batching_dims = [0], index_vector_dim = 1>} : (tensor<4xf32>, tensor<4x0xi32>, tensor<1xi64>) -> tensor<4xf32>", "[2]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "label", "op", "value"), CONSTANT, ids=[f"{c[0]} {c[1]}" for c in CONSTANT])
def test_shapes_that_constants_give_are_checked(name: str, label: str, op: str, value: str) -> None:
    def text(constant: str) -> str:
        arguments = "%a: tensor<4xf32>, %z: tensor<f32>, %i: tensor<2x1xi32>, %e: tensor<4x0xi32>"
        return f"func.func @main({arguments}) {{\n%c = stablehlo.constant dense<{constant}> : tensor<1xi64>\n{op}\nreturn\n}}"

    with pytest.raises(hlo.VerificationError) as caught:
        hlo.verify(hlo.parse(text(value)))
    assert (caught.value.op, caught.value.constraint) == (f"stablehlo.{name}", label)
    good = {"dynamic_pad C4": "[0]", "dynamic_broadcast_in_dim output_dimensions": "[4]", "dynamic_reshape output_shape": "[4]",
            "dynamic_iota output_shape": "[4]", "dynamic_pad C3": "[0]"}.get(f"{name} {label}", "[1]")  # fmt: skip
    hlo.verify(hlo.parse(text(good).replace("tensor<7xf32>", "tensor<4xf32>")))


@pytest.mark.parametrize(
    ("text", "count"),
    [('"stablehlo.reduce"(%a) <{dimensions = array<i64: 0>}> ({}) : (tensor<4xf32>) -> ()', 1),
     ('"stablehlo.reduce_window"(%a) <{window_dimensions = array<i64: 1>}> ({}) : (tensor<4xf32>) -> ()', 1),
     ('"stablehlo.scatter"(%a, %b) <{scatter_dimension_numbers = #stablehlo.scatter<>}> ({}) : (tensor<4xf32>, tensor<4xf32>) -> ()', 2)],
)  # fmt: skip
def test_counts_of_operands_are_checked(text: str, count: int) -> None:
    with pytest.raises(hlo.VerificationError, match=f"found {count} operands"):
        hlo.verify(hlo.parse(program(text)))


@pytest.mark.parametrize("mode", ["DEFAULT", "HIGHEST"])
def test_accuracies_are_read(mode: str) -> None:
    def text(accuracy: str) -> str:
        return program(
            f'"stablehlo.tanh"(%a) {{result_accuracy = #stablehlo.result_accuracy<{accuracy}>}} : (tensor<4xf32>) -> tensor<4xf32>'
        )

    good = "atol = 1.0e-5, rtol = 0.0, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>"
    hlo.verify(hlo.parse(text(good)))
    with pytest.raises(hlo.ParseError, match="tolerances"):
        hlo.parse(text(good.replace("TOLERANCE", mode)))
