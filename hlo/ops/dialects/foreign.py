"""The few ops of other dialects that StableHLO programs hold: constants of `arith`, casts of `tensor`, shapes of `shape`."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.access import AccessBuilder, Index
from hlo.errors import Declined
from hlo.module import DenseArray, Op
from hlo.ops.common import fail, identity_access
from hlo.ops.rules import input_type, law, type_stays
from hlo.registry import Attribute, Literal, Move, OpDefinition, Operand, register
from hlo.types import ELEMENT_TYPES, OpaqueType, TensorType, Type
from hlo.typesets import ANY, ANY_TYPE, tensors

__all__: list[str] = []


def _no_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """Reads nothing."""


def _infer_constant(op: Op) -> Sequence[Type]:
    value = op.attr("value")
    if isinstance(value, DenseArray):
        return (value.type,)
    if isinstance(value, bool):
        return (OpaqueType("i1"),)
    kind = getattr(value, "type", None)
    if not isinstance(kind, str):
        raise fail(op, "expected a number or a constant")
    return (OpaqueType(kind),)


register(
    OpDefinition(
        name="arith.constant",
        spec="MLIR: arith.constant",
        operands=(),
        attributes=(Attribute("value", "any"),),
        infer=_infer_constant,
        access=_no_access,
        semantics=Literal(),
        result_names=("output",),
    )
)
register(
    OpDefinition(
        name="tensor.cast",
        spec="MLIR: tensor.cast",
        operands=(Operand("operand", tensors(*ANY, quantized="any", index=True)),),
        infer=Declined("the result's type is the program's choice"),
        access=identity_access,
        semantics=Move(),
        constraints=(law("C1", "the shapes can be the same, and the element types are", type_stays, "operand", "result"),),
    )
)
register(
    OpDefinition(
        name="tensor.dim",
        spec="MLIR: tensor.dim",
        operands=(Operand("operand", tensors(*ANY, quantized="any", index=True)), Operand("index", ANY_TYPE)),
        infer=lambda op: (OpaqueType("index"),),
        access=Declined("a dimension's size, which no element of the operand tells"),
        semantics=Declined("a dimension's size, which no element of the operand tells"),
    )
)
register(
    OpDefinition(
        name="shape.shape_of",
        spec="MLIR: shape.shape_of",
        operands=(Operand("operand", tensors(*ANY, quantized="any", index=True)),),
        infer=lambda op: (TensorType((input_type(op, 0).rank,), ELEMENT_TYPES["index"]),),
        access=Declined("the sizes of an operand, which none of its elements tell"),
        semantics=Declined("the sizes of an operand, which none of its elements tell"),
    )
)
