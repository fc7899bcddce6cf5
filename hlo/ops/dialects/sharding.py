"""Sharding annotations (`sdy.*`): on one device they are the identity, and they are kept for printing."""

from __future__ import annotations

from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import identity_access
from hlo.ops.rules import law
from hlo.registry import Attribute, Move, OpDefinition, Operand, register
from hlo.typesets import ANY_TYPE, TENSOR

__all__: list[str] = []

_ANNOTATIONS: dict[str, tuple[Attribute, ...]] = {
    "sharding_constraint": (Attribute("sharding", "any"),),
    "reshard": (Attribute("sharding", "any"),),
    "propagation_barrier": (Attribute("allowed_direction", "any", None),),
}
for _name, _attributes in _ANNOTATIONS.items():
    register(
        OpDefinition(
            name=f"sdy.{_name}",
            spec=f"Shardy: {_name}",
            operands=(Operand("input", TENSOR),),
            attributes=_attributes,
            infer=lambda op: (op.operands[0].type,),
            access=identity_access,
            semantics=Move(),
        )
    )
register(
    OpDefinition(
        name="sdy.sharding_group",
        spec="Shardy: sharding_group",
        operands=(Operand("input", TENSOR),),
        attributes=(Attribute("group_id", "any"),),
        infer=lambda op: (),
        access=Declined("has no result"),
        semantics=Declined("has no result"),
        result_names=(),
    )
)


def _body_results(op: Op) -> bool | str:
    body = op.regions[0]
    if len(body.arguments) != len(op.operands) or len(body.results) != len(op.results):
        return (
            f"expected {len(op.operands)} arguments and {len(op.results)} results of the body, "
            f"found {len(body.arguments)} and {len(body.results)}"
        )
    return True


_PER_DEVICE = Declined("the body runs once on each device of a mesh, on its shard")
register(
    OpDefinition(
        name="sdy.manual_computation",
        spec="Shardy: manual_computation",
        operands=(Operand("tensors", ANY_TYPE, variadic=True),),
        attributes=(
            Attribute("in_shardings", "any", None),
            Attribute("out_shardings", "any", None),
            Attribute("manual_axes", "any", None),
        ),
        regions=("body",),
        infer=Declined("the results' shapes follow from their shardings"),
        access=_PER_DEVICE,
        semantics=_PER_DEVICE,
        constraints=(law("C1", "the body takes and returns a shard of each operand and result", _body_results, result=True),),
        result_names=("results",),
    )
)
register(
    OpDefinition(
        name="sdy.return",
        spec="Shardy: return",
        operands=(Operand("results", ANY_TYPE, variadic=True),),
        infer=lambda op: (),
        access=Declined("a terminator has no result"),
        semantics=Declined("a terminator has no result"),
        result_names=(),
        is_terminator=True,
    )
)
