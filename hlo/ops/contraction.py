"""Ops that run over range variables: reduce and dot_general."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.access import AccessBuilder, Index
from hlo.attributes import DotDimensions
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import fail, rule, same_shape, tensor
from hlo.registry import Attribute, Fold, Operand, OpDefinition, SumOfProducts, register
from hlo.types import TensorType, Type

__all__: list[str] = []


def _reduce_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    shape, dims = tensor(op, 0).static_shape, op.attr("dimensions")
    kept = iter(d)
    index = [ix.range(n) if i in dims else next(kept) for i, n in enumerate(shape)]
    inputs = len(op.segment("inputs"))
    for k in range(inputs):
        ix.read(k, index)
    for k in range(inputs):
        ix.read(inputs + k, ())


def _infer_reduce(op: Op) -> Sequence[Type]:
    inputs, dims = op.segment("inputs"), op.attr("dimensions")
    first = tensor(op, 0)
    if len(set(dims)) != len(dims):
        raise fail(op, f"expected distinct dimensions, found {list(dims)}", "C5")
    if any(not 0 <= k < first.rank for k in dims):
        raise fail(op, f"expected dimensions of {first}, found {list(dims)}", "C4")
    for k in range(len(inputs)):
        if not same_shape(tensor(op, k).shape, first.shape):
            raise fail(op, f"expected inputs of one shape, found {first} and {tensor(op, k)}", "C1")
    shape = tuple(n for i, n in enumerate(first.shape) if i not in dims)
    # The body's results name the element types: they may be wider than the inputs'.
    body = op.regions[0].results
    return tuple(TensorType(shape, r.tensor.element) for r in body)


@rule("C2", "inputs and init_values have the same element types, and init_values are scalars")
def _reduce_inits(op: Op) -> str | None:
    inputs, inits = op.segment("inputs"), op.segment("init_values")
    if not inputs or len(op.operands) % 2:
        return f"expected as many init values as inputs, found {len(op.operands)} operands"
    for a, b in zip(inputs, inits, strict=True):
        if b.rank != 0 or a.tensor.element != b.tensor.element:
            return f"expected a scalar {a.tensor.element} init value, found {b.type}"
    return None


@rule("C6", "the body takes 2N scalars and returns N")
def _reduce_body(op: Op) -> str | None:
    n, body = len(op.operands) // 2, op.regions[0]
    if len(body.arguments) != 2 * n or len(body.results) != n:
        return f"expected {2 * n} arguments and {n} results, found {len(body.arguments)} and {len(body.results)}"
    for v in (*body.arguments, *body.results):
        if not isinstance(v.type, TensorType) or v.rank:
            return f"expected scalars in the body, found {v.type}"
    return None


register(
    OpDefinition(
        name="stablehlo.reduce",
        spec="StableHLO: reduce",
        operands=(Operand("inputs", variadic=True), Operand("init_values", "0-dimensional tensor", variadic=True)),
        attributes=(Attribute("dimensions", "i64s"),),
        regions=("body",),
        infer=_infer_reduce,
        access=_reduce_access,
        semantics=Fold(inputs=(0,), inits=(1,)),
        constraints=(_reduce_inits, _reduce_body),
        result_names=("results",),
    )
)


def _dot_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    dims: DotDimensions = op.attr("dot_dimension_numbers")
    lhs, rhs = tensor(op, 0), tensor(op, 1)
    left: dict[int, Index] = {}
    right: dict[int, Index] = {}
    out = iter(d)
    for i, j in zip(dims.lhs_batching, dims.rhs_batching, strict=True):
        left[i] = right[j] = next(out)
    for i in dims.free("lhs", lhs.rank):
        left[i] = next(out)
    for j in dims.free("rhs", rhs.rank):
        right[j] = next(out)
    for i, j in zip(dims.lhs_contracting, dims.rhs_contracting, strict=True):
        left[i] = right[j] = ix.range(lhs.static_shape[i])
    ix.read(0, [left[i] for i in range(lhs.rank)])
    ix.read(1, [right[j] for j in range(rhs.rank)])


def _dot_shape(op: Op) -> tuple[int | None, ...]:
    dims: DotDimensions = op.attr("dot_dimension_numbers")
    lhs, rhs = tensor(op, 0), tensor(op, 1)
    for label, side, t, used in (
        ("C3", "lhs", lhs, dims.lhs_batching + dims.lhs_contracting),
        ("C4", "rhs", rhs, dims.rhs_batching + dims.rhs_contracting),
    ):
        if len(set(used)) != len(used):
            raise fail(op, f"expected distinct {side} dimensions, found {list(used)}", label)
        if any(not 0 <= k < t.rank for k in used):
            raise fail(op, f"expected dimensions of {t}, found {list(used)}", "C5" if side == "lhs" else "C7")
    for label, pairs in (
        ("C9", (dims.lhs_batching, dims.rhs_batching)),
        ("C10", (dims.lhs_contracting, dims.rhs_contracting)),
    ):
        if len(pairs[0]) != len(pairs[1]):
            raise fail(op, f"expected dimensions in pairs, found {list(pairs[0])} and {list(pairs[1])}", label)
        for i, j in zip(*pairs, strict=True):
            if not same_shape((lhs.shape[i],), (rhs.shape[j],)):
                raise fail(op, f"expected equal sizes, found {lhs.shape[i]} (lhs {i}) and {rhs.shape[j]} (rhs {j})", label)
    return (
        *(lhs.shape[i] for i in dims.lhs_batching),
        *(lhs.shape[i] for i in dims.free("lhs", lhs.rank)),
        *(rhs.shape[j] for j in dims.free("rhs", rhs.rank)),
    )


@rule("C12", "the result's shape is batching, free lhs and free rhs dimensions in order")
def _dot_result(op: Op) -> str | None:
    shape, r = _dot_shape(op), op.results[0].tensor
    return None if same_shape(shape, r.shape) else f"expected shape {list(shape)}, found {r}"


register(
    OpDefinition(
        name="stablehlo.dot_general",
        spec="StableHLO: dot_general",
        operands=(Operand("lhs"), Operand("rhs")),
        attributes=(
            Attribute("dot_dimension_numbers", "dot"),
            Attribute("precision_config", "enums", (), "precision"),
            Attribute("algorithm", "any", None),
        ),
        infer=Declined("the result's element type is the program's choice"),
        access=_dot_access,
        semantics=SumOfProducts(),
        constraints=(_dot_result,),
    )
)
