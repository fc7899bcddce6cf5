"""Calls and returns."""

from __future__ import annotations

from hlo.errors import Declined
from hlo.module import Module, Op
from hlo.registry import Attribute, ModuleConstraint, OpDefinition, Operand, Structure, register
from hlo.types import FunctionType

__all__: list[str] = []

_INLINED = Declined("calls are inlined before analysis; ask for the maps of the called function's ops")


def _called(op: Op, module: Module) -> str | None:
    name = op.attr("callee")
    f = module.functions.get(name)
    if f is None:
        return f"found no function @{name}; there is {', '.join('@' + n for n in list(module.functions)[:20]) or 'none'}"
    found = FunctionType(tuple(v.type for v in op.operands), tuple(r.type for r in op.results))
    return None if found == f.type else f"expected {f.type}, found {found}"


register(
    OpDefinition(
        name="func.call",
        structure=Structure.CALL,
        calls="callee",
        spec="StableHLO: Functions",
        operands=(Operand("inputs", "any", variadic=True),),
        attributes=(Attribute("callee", "symbol"),),
        infer=Declined("the callee's type, which the module knows"),
        access=_INLINED,
        semantics=_INLINED,
        module_constraints=(ModuleConstraint("callee", "the callee is a function of the operands' and results' types", _called),),
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
