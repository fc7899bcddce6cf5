"""Ops that only XLA has: fusion, bitcast, copy, the halves of asynchronous pairs, and what HLO dumps leave out."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.access import AccessBuilder, Index
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import identity_access
from hlo.ops.movement import delinearize, linearize, matching_groups
from hlo.ops.rules import input_type, law, result_is_operand, result_type, returned
from hlo.registry import Attribute, Move, OpDefinition, Operand, register
from hlo.types import TensorType, Type
from hlo.typesets import ANY_TYPE, TENSOR, B, F, S, U, tensors

__all__: list[str] = []


def _fused(op: Op) -> bool | str:
    body = op.regions[0]
    mine, theirs = [v.type for v in op.operands], [a.type for a in body.arguments]
    if mine != theirs:
        return f"expected a computation of {', '.join(map(str, mine))}, found {', '.join(map(str, theirs))}"
    out, results = returned(body), [r.type for r in op.results]
    return out == results or f"expected results {', '.join(map(str, out))}, found {', '.join(map(str, results))}"


_FUSED = Declined("a fusion's maps are those of its computation, composed")
register(
    OpDefinition(
        name="xla.fusion",
        spec="XLA: fusion",
        operands=(Operand("operands", ANY_TYPE, variadic=True),),
        attributes=(Attribute("kind", "string", "kLoop"),),
        regions=("computation",),
        infer=lambda op: tuple(returned(op.regions[0])),
        access=_FUSED,
        semantics=_FUSED,
        constraints=(law("computation", "the computation takes the operands and returns the results", _fused, result=True),),
        result_names=("results",),
    )
)


def physical_shape(t: TensorType) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape as memory has it, slowest dimension first, and the logical dimension of each of its dimensions."""
    order = tuple(reversed(t.layout.minor_to_major)) if t.layout is not None else tuple(range(t.rank))
    return tuple(t.static_shape[k] for k in order), order


def _bitcast_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """Operand and result are the same bytes: the position in the result's memory is that in the operand's."""
    a, r = input_type(op, 0), result_type(op)
    source, source_order = physical_shape(a)
    target, target_order = physical_shape(r)
    out = tuple(d[k] for k in target_order)
    index: list[Index] = []
    for (s0, s1), (t0, t1) in matching_groups(source, target):
        index.extend(delinearize(linearize(out[t0:t1], target[t0:t1]), source[s0:s1]))
    logical: list[Index] = [0] * a.rank
    for k, x in zip(source_order, index, strict=True):
        logical[k] = x
    ix.read(0, logical)


def _same_bytes(op: Op) -> bool:
    a, r = input_type(op, 0), result_type(op)
    return not (a.is_static and r.is_static) or a.size_elems * a.element.bits == r.size_elems * r.element.bits


register(
    OpDefinition(
        name="xla.bitcast",
        spec="XLA: bitcast",
        operands=(Operand("operand", TENSOR),),
        results=(Operand("result", TENSOR),),
        infer=Declined("the result's shape, type and layout are the program's choice"),
        access=_bitcast_access,
        semantics=Move(),
        constraints=(law("size", "operand and result have as many bits", _same_bytes, "operand", "result", result=True),),
    )
)
register(
    OpDefinition(
        name="xla.copy",
        spec="XLA: copy",
        operands=(Operand("operand", TENSOR),),
        results=(Operand("result", TENSOR),),
        infer=lambda op: (op.operands[0].type,),
        access=identity_access,
        semantics=Move(),
        constraints=(
            result_is_operand("type", "operand and result have the same type, layouts aside"),
        ),
    )
)


def _no_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """Reads nothing."""


register(
    OpDefinition(
        name="xla.elided_constant",
        spec="XLA: constant({...})",
        operands=(),
        infer=Declined("the dump left the value out"),
        access=_no_access,
        semantics=Declined("the dump left the constant's value out"),
        result_names=("output",),
    )
)


def _collapsed(op: Op) -> Sequence[Type]:
    return (op.operands[0].type,)


register(
    OpDefinition(
        name="xla.add_dependency",
        spec="XLA: add-dependency",
        operands=(Operand("operand", ANY_TYPE), Operand("token", ANY_TYPE)),
        infer=_collapsed,
        access=lambda op, output, d, ix: ix.read(0, d),
        semantics=Declined("the operand, ordered after a token"),
    )
)
register(
    OpDefinition(
        name="xla.domain",
        spec="XLA: domain",
        operands=(Operand("operand", TENSOR),),
        attributes=(Attribute("domain", "string", ""),),
        infer=_collapsed,
        access=identity_access,
        semantics=Move(),
    )
)
register(
    OpDefinition(
        name="xla.stochastic_convert",
        spec="XLA: stochastic-convert",
        operands=(Operand("operand", tensors(F)), Operand("random", tensors(U))),
        results=(Operand("result", tensors(B, S, U, F)),),
        infer=Declined("the result's element type is the program's choice"),
        access=identity_access,
        semantics=Declined("rounds by random bits, in a way that the specification leaves open"),
    )
)

_PAIR = Declined("one half of an asynchronous pair: the value is known when the other half is done")
for _name in (
    "async_start",
    "async_update",
    "async_done",
    "copy_start",
    "copy_done",
    "send_done",
    "recv_done",
    "all_reduce_start",
    "all_reduce_done",
    "all_gather_start",
    "all_gather_done",
    "collective_permute_start",
    "collective_permute_done",
    "ragged_all_to_all",
    "rng_get_and_update_state",
    "scan",
):
    register(
        OpDefinition(
            name=f"xla.{_name}",
            spec=f"XLA: {_name.replace('_', '-')}",
            operands=(Operand("operands", ANY_TYPE, variadic=True),),
            attributes=(Attribute("attributes", "string", ""),),
            has_any_regions=True,
            infer=Declined("the results' types are the program's choice"),
            access=_PAIR,
            semantics=_PAIR,
            is_pure=False,
            result_names=("results",),
        )
    )
