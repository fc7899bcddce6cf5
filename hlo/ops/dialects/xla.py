"""Ops that only XLA has: fusion, bitcast, copy, the halves of asynchronous pairs, and what HLO dumps leave out."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.access import AccessBuilder, Index
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import identity_access
from hlo.ops.contraction import dot_shape, dot_shape_rules, scaled_access
from hlo.ops.movement import delinearize, linearize, matching_groups
from hlo.ops.rules import input_type, law, result_is_operand, result_type, returned, same_shapes
from hlo.registry import Attribute, Move, OpDefinition, Operand, Structure, register
from hlo.types import ELEMENT_TYPES, TensorType, Type
from hlo.typesets import ANY_TYPE, TENSOR, F, S, U, tensors

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
        structure=Structure.CALL,
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
        constraints=(law("size", "operand and result have as many bits", _same_bytes, "operand", "result"),),
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
        constraints=(result_is_operand("type", "operand and result have the same type, layouts aside"),),
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


# ---------------------------------------------------------------- random bits


def _bits_for_each(op: Op) -> bool | str:
    a, b, r = input_type(op, 0), input_type(op, 1), result_type(op)
    if not (same_shapes(a.shape, b.shape) and same_shapes(a.shape, r.shape)):
        return f"expected operand, random and result of one shape, found {a}, {b} and {r}"
    return a.element.bits == b.element.bits or f"expected {a.element.bits} random bits for each element, found {b}"


register(
    OpDefinition(
        name="xla.stochastic_convert",
        spec="XLA: stochastic-convert",
        operands=(Operand("operand", tensors(F)), Operand("random", tensors(U))),
        results=(Operand("result", tensors(S, F)),),
        infer=Declined("the result's element type is the program's choice"),
        access=identity_access,
        semantics=Declined("rounds up or down by random bits, which no scalar function of the kernels does"),
        constraints=(law("random", "as many random bits as the operand has", _bits_for_each, result=True),),
    )
)


def _two_words(op: Op) -> bool | str:
    t = result_type(op)
    return (t.shape == (2,) and t.element == ELEMENT_TYPES["ui64"]) or f"expected tensor<2xui64>, found {t}"


_STATE = Declined("the state belongs to the device that runs the program: it starts with what was there and outlives the program")
register(
    OpDefinition(
        name="xla.rng_get_and_update_state",
        spec="XLA: rng-get-and-update-state",
        operands=(),
        attributes=(Attribute("delta", "i64"),),
        infer=Declined("the result's type is the program's choice"),
        access=_no_access,
        semantics=_STATE,
        constraints=(law("state", "the state is 128 bits in two words", _two_words, result=True),),
        is_pure=False,
    )
)


# ---------------------------------------------------------------- products and exchanges


def _scales_fit(op: Op) -> bool | str:
    """A scale has its factor's rank; each of its dimensions divides the factor's."""
    for k, name in ((0, "lhs"), (1, "rhs")):
        t, scale = input_type(op, k), input_type(op, k + 2)
        fits = t.rank == scale.rank and all(
            n is None or m is None or (m > 0 and n % m == 0) or n == m for n, m in zip(t.shape, scale.shape, strict=True)
        )
        if not fits:
            return f"expected the sizes of {name}_scale to divide those of {t}, found {scale}"
    return True


_SCALED = Declined("scaled first, then multiplied: see its decomposition")
register(
    OpDefinition(
        name="xla.scaled_dot",
        spec="XLA: scaled-dot",
        operands=tuple(Operand(n, tensors(F)) for n in ("lhs", "rhs", "lhs_scale", "rhs_scale")),
        attributes=(Attribute("dot_dimension_numbers", "dot"), Attribute("precision_config", "enums", (), "precision")),
        results=(Operand("result", tensors(F)),),
        infer=Declined("the result's element type is the program's choice"),
        access=scaled_access,
        semantics=_SCALED,
        constraints=(
            *dot_shape_rules(),
            law("scales", "each factor has scales for blocks of one size", _scales_fit),
            law(
                "shape",
                "the result has the batching and free dimensions",
                lambda op: same_shapes(dot_shape(op), result_type(op).shape),
                "lhs",
                "rhs",
                "result",
            ),
        ),
    )
)


def _offsets_fit(op: Op) -> bool | str:
    t, out, r = input_type(op, 0), input_type(op, 1), result_type(op)
    if t.element != out.element or t.rank != out.rank or t.rank == 0 or not same_shapes(t.shape[1:], out.shape[1:]):
        return f"expected input and output that differ in their rows at most, found {t} and {out}"
    if not (same_shapes(out.shape, r.shape) and out.element == r.element):
        return f"expected a result of type {out}, found {r}"
    lists = [input_type(op, k) for k in range(2, 6)]
    if any(x.rank != 1 or not same_shapes(x.shape, lists[0].shape) or x.element != lists[0].element for x in lists):
        return f"expected four lists of one type, found {', '.join(map(str, lists))}"
    return True


_RAGGED = ("input_offsets", "send_sizes", "output_offsets", "recv_sizes")
_ROWS = Declined("which rows come from which process are values of the program")
register(
    OpDefinition(
        name="xla.ragged_all_to_all",
        spec="XLA: ragged-all-to-all",
        operands=(Operand("input", TENSOR), Operand("output", TENSOR), *(Operand(n, tensors(S, U)) for n in _RAGGED)),
        attributes=(Attribute("replica_groups", "groups", ()), Attribute("channel_handle", "channel", None)),
        infer=lambda op: (op.operands[1].type,),
        access=_ROWS,
        semantics=_ROWS,
        constraints=(law("types", "rows, offsets and sizes fit each other", _offsets_fit, result=True),),
    )
)
