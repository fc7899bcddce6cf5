"""Definitions that cannot be meant are refused when they are registered, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hlo
from hlo.errors import DefinitionError
from hlo.registry import Attribute, OpDefinition, Operand, SumOfProducts, definition, definitions, is_added, lookup, register
from hlo.typesets import F, tensors
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
