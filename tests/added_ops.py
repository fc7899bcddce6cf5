"""Ops of another package, for the length of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hlo
import interp.registry
from hlo import registry
from hlo.ops.common import identity_access, tensor
from hlo.registry import Attribute, Elementwise, OpDefinition, Operand, Semantics, register
from hlo.typesets import F, tensors

__all__ = ["SQUARE", "add_op", "program"]

SQUARE = "tensor<9x4xf32>"


def add_op(
    patch: pytest.MonkeyPatch, name: str, access: Callable[..., Any] = identity_access, semantics: Semantics | None = None,
    rule: Callable[..., Any] | None = None, operands: int = 1,
) -> OpDefinition:  # fmt: skip
    """Registers an op of so many tensors of floats of one shape, with an integer `by`; it is forgotten after the test."""
    patch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    patch.setattr(interp.registry, "_RULES", dict(interp.registry._RULES))
    made = OpDefinition(
        name=name,
        spec="a test",
        operands=tuple(Operand(f"x{k}", tensors(F)) for k in range(operands)),
        attributes=(Attribute("by", "i64", 0),),
        infer=lambda op: (tensor(op, 0),),
        access=access,
        semantics=semantics or Elementwise("tanh"),
    )
    register(made)
    if rule is not None:
        interp.registry.rule(name)(rule)
    return made


def program(name: str, operands: int = 1, by: int = 1) -> hlo.Module:
    """One such op, of the program's arguments."""
    arguments = ", ".join(f"%x{k}: {SQUARE}" for k in range(operands))
    given = ", ".join(f"%x{k}" for k in range(operands))
    return hlo.parse(
        f"func.func @main({arguments}) -> {SQUARE} {{\n"
        f'  %y = "{name}"({given}) {{by = {by} : i64}} : ({", ".join([SQUARE] * operands)}) -> {SQUARE}\n'
        f"  return %y : {SQUARE} }}"
    )
