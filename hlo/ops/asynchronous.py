"""Asynchronous pairs: an op that starts a collective or a slice, and the one that waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.collective import EXCHANGE
from hlo.ops.control import can_be
from hlo.ops.rules import law, returned
from hlo.registry import OpDefinition, Operand, register
from hlo.types import OpaqueType, Type
from hlo.typesets import ANY_TYPE, TypeSet

__all__: list[str] = []

_FUTURE = TypeSet("future", lambda t: isinstance(t, OpaqueType) and t.text.startswith("!stablehlo.future<"))
_ASYNC_OPS = frozenset(
    f"stablehlo.{n}"
    for n in (
        "all_gather",
        "all_reduce",
        "all_to_all",
        "collective_broadcast",
        "collective_permute",
        "collective_reduce",
        "reduce_scatter",
        "slice",
        "dynamic_slice",
        "dynamic_update_slice",
    )
)


def future_of(types: Sequence[Type]) -> OpaqueType:
    """The type of values that an asynchronous op will have."""
    return OpaqueType("!stablehlo.future<" + ", ".join(map(str, types)) + ">")


def _async_body(op: Op) -> bool | str:
    ops = op.regions[0].ops
    if len(ops) != 2 or ops[0].name not in _ASYNC_OPS:
        return "expected one collective or slice and a return in the region"
    if ops[1].operands != ops[0].results:
        return "expected the region to return what its op makes"
    return True


def _async_arguments(op: Op) -> bool | str:
    mine, theirs = [v.type for v in op.operands], [a.type for a in op.regions[0].arguments]
    ok = len(mine) == len(theirs) and all(map(can_be, mine, theirs))
    return ok or f"expected the region to take {', '.join(map(str, mine))}, found {', '.join(map(str, theirs))}"


register(
    OpDefinition(
        name="stablehlo.async_start",
        spec="StableHLO: async_start",
        operands=(Operand("operands", ANY_TYPE, variadic=True),),
        regions=("body",),
        infer=lambda op: (future_of(returned(op.regions[0])),),
        access=EXCHANGE,
        semantics=EXCHANGE,
        constraints=(
            law("C1", "the region holds one collective or slice", _async_body),
            law("C2", "the region takes the operands' types", _async_arguments),
        ),
    )
)
register(
    OpDefinition(
        name="stablehlo.async_done",
        spec="StableHLO: async_done",
        operands=(Operand("operand", _FUTURE),),
        infer=Declined("the types inside the future, which the program states"),
        access=EXCHANGE,
        semantics=EXCHANGE,
        constraints=(
            law(
                "C1",
                "results are the values inside the future",
                lambda op: future_of([r.type for r in op.results]) == op.operands[0].type,
                "operand",
                "results",
            ),
        ),
        result_names=("results",),
    )
)
