"""Definitions that cannot be meant are refused when they are registered, in words."""

from __future__ import annotations

from dataclasses import replace
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import codegen
import hlo
import indexing
import interp
from codegen.source.scalars import SCALAR_CODE, ScalarCode
from hlo.errors import DefinitionError
from hlo.registry import (
    Attribute,
    Elementwise,
    Move,
    OpDefinition,
    Operand,
    SumOfProducts,
    definition,
    definitions,
    is_added,
    lookup,
    register,
)  # fmt: skip
from hlo.typesets import F, tensors
from interp.registry import rule
from tests.added_ops import add_op, program

ROLL = OpDefinition(
    name="example.roll", spec="", operands=(Operand("x", tensors(F)),), attributes=(Attribute("by", "i64"),),
    infer=definition("stablehlo.tanh").infer, access=definition("stablehlo.tanh").access,
    semantics=definition("stablehlo.tanh").semantics,
)  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (replace(ROLL, name="roll"), "op roll: expected a name with a dialect, such as 'mylib.roll'"),
        (replace(ROLL, name="stablehlo.tanh"), "op stablehlo.tanh is registered twice"),
        (replace(ROLL, attributes=(Attribute("by", "int"),)), "attribute 'by': expected a kind of hlo.attributes.KINDS"),
        (replace(ROLL, attributes=(Attribute("way", "enum"),)), "expected a domain of hlo.attributes.ENUMS"),
        (replace(ROLL, operands=(Operand("x", "floats"),)), "operand 'x': expected a set of types"),
        (replace(ROLL, semantics=SumOfProducts()), "expected two operands of a sum of products, found 1"),
    ],
)
def test_what_cannot_be_meant_is_not_registered(wrong: OpDefinition, said: str) -> None:
    """These were taken, and ended in a KeyError or as "malformed" when a program was read."""
    before = lookup(wrong.name)
    with pytest.raises(DefinitionError, match=said):
        register(wrong)
    assert lookup(wrong.name) is before


def test_a_module_registers_again_what_it_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook's cell that runs again: it was refused. Maps of the first definition are not given for the second one."""
    add_op(monkeypatch, "example.again", rule=lambda context, op, x: -x, semantics=Elementwise("negate"))
    old = program("example.again")
    indexing.output_to_input(old.entry.body.ops[0])

    def turned(op: Any, output: int, d: Any, ix: Any) -> None:
        ix.read(0, (8 - d[0], d[1]))

    def add(made: OpDefinition) -> None:
        register(made)

    def add_rule(function: Any) -> None:
        rule("example.again")(function)

    def within(module: str, function: Any) -> Any:
        return FunctionType(function.__code__, {**globals(), "__name__": module})

    first = definition("example.again")
    with pytest.raises(DefinitionError, match=r"op example\.again is registered twice: by tests\.added_ops and by another"):
        within("another", add)(first)
    within("tests.added_ops", add)(replace(first, access=turned, semantics=Move()))
    reverse = within(__name__, lambda context, op, x: x[::-1])
    add_rule(reverse)
    reverse.__module__ = "another"
    with pytest.raises(DefinitionError, match=r"two rules for example\.again"):
        add_rule(lambda context, op, x: x)
    new, x = program("example.again"), np.arange(36, dtype=np.float32).reshape(9, 4)
    assert "(-d0 + 8, d1)" in str(indexing.output_to_input(new.entry.body.ops[0])[0])
    assert "(d0, d1) -> (d0, d1)" in str(indexing.output_to_input(old.entry.body.ops[0])[0])
    assert np.array_equal(codegen.compile(new)(x)[0], interp.evaluate(new, x)[0])


def test_a_rule_is_of_a_registered_op() -> None:
    """A misspelled name was taken, and the op had no rule."""
    with pytest.raises(DefinitionError, match=r"a registered op, found 'stablehlo\.tanhh', did you mean 'stablehlo\.tanh'"):
        rule("stablehlo.tanhh")(lambda context, op, x: x)


def test_a_rule_that_fails_names_its_op_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    add_op(monkeypatch, "example.broken", rule=lambda context, op, x: x.no_such)
    with pytest.raises(interp.ExecutionError, match=r":2:8: example\.broken: its evaluator rule failed: AttributeError"):
        interp.evaluate(program("example.broken"), np.ones((9, 4), np.float32))


def test_a_scalar_function_has_the_operands_of_its_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """An IndexError inside of the code generator."""
    add_op(monkeypatch, "example.one", semantics=Elementwise("add"))
    with pytest.raises(DefinitionError, match=r"one: .*expected 2 operands of the scalar function 'add', found 1"):
        codegen.compile(program("example.one"))
    monkeypatch.setitem(SCALAR_CODE, "two_of_one", ScalarCode(lambda op, args, types: args[1]))
    add_op(monkeypatch, "example.two", semantics=Elementwise("two_of_one"))
    with pytest.raises(DefinitionError, match=r"example\.two: its row of SCALAR_CODE for 'two_of_one', of 1 .*: IndexError"):
        codegen.compile(program("example.two"))


def test_a_scalar_function_without_code_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    add_op(monkeypatch, "example.misspelled", semantics=Elementwise("exponentail"), rule=lambda context, op, x: np.exp(x))
    module = program("example.misspelled")
    with pytest.warns(UserWarning, match=r"misspelled runs in the evaluator: .*'exponentail', did you mean 'exponential'"):
        executable = codegen.compile(module)
    assert len(executable.fallbacks) == 1
    monkeypatch.setitem(SCALAR_CODE, "exponentail", SCALAR_CODE["exponential"])  # mended in the same session
    assert not codegen.compile(program("example.misspelled")).fallbacks


def test_types_that_are_inferred_are_a_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was called malformed, as a TensorType has no len()."""
    add_op(monkeypatch, "example.one")
    made = definition("example.one")
    monkeypatch.setitem(hlo.registry._REGISTRY, "example.one", replace(made, infer=lambda op: op.operands[0].type))
    with pytest.raises(hlo.VerificationError, match=r"infer: expected a sequence of types, .* found tensor<9x4xf32>"):
        hlo.verify(program("example.one"))


def test_only_ops_of_other_packages_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [d for d in definitions() if not d.name.startswith("example.")]  # the pages' ops, where they have been run
    assert len(own) > 180 and not any(map(is_added, own))
    assert is_added(add_op(monkeypatch, "example.another"))
