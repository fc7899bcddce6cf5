"""Calls and returns."""

from __future__ import annotations

from hlo.errors import Declined
from hlo.registry import Attribute, Operand, OpDefinition, register

__all__: list[str] = []

_INLINED = Declined("calls are inlined before analysis; ask for the maps of the called function's ops")

register(
    OpDefinition(
        name="func.call",
        spec="StableHLO: Functions",
        operands=(Operand("inputs", "any", variadic=True),),
        attributes=(Attribute("callee", "symbol"),),
        infer=Declined("the callee's type, which the module knows"),
        access=_INLINED,
        semantics=_INLINED,
        result_names=("results",),
    )
)

for _name in ("func.return", "stablehlo.return"):
    register(
        OpDefinition(
            name=_name,
            spec="StableHLO: Functions",
            operands=(Operand("operands", "any", variadic=True),),
            infer=lambda op: (),
            access=Declined("a terminator has no result"),
            semantics=Declined("a terminator has no result"),
            result_names=(),
            is_terminator=True,
        )
    )
