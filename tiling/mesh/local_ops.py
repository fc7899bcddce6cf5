"""Ops on tiles: the same op, with what its attributes say of sizes cut to the tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo.clone import clone_block
from hlo.errors import VerificationError
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import Fold, Literal, definition
from hlo.types import ElementType, TensorType
from hlo.verify import check_op
from tiling.elements.folds import combined_function, is_idempotent, is_neutral
from tiling.mesh.shardings import Sharding

__all__ = ["cloned", "combination", "filling", "folds_in_parts", "local_op", "padded_dims", "with_halo"]

_LENGTHS = {"stablehlo.slice": "limit_indices", "stablehlo.dynamic_slice": "slice_sizes", "stablehlo.gather": "slice_sizes"}
"""Op -> the attribute that holds a length for each dimension of its first operand."""


def padded_dims(op: Op) -> dict[int, int]:
    """Dimension of the first operand -> its row of the attribute `padding`, of ops with windows."""
    if op.name == "stablehlo.convolution":
        return {k: row for row, k in enumerate(op.attr("dimension_numbers").input_spatial)}
    return {k: k for k in range(op.operands[0].rank)} if op.name == "stablehlo.reduce_window" else {}


def filling(op: Op) -> Value | None:
    """What windows read outside of an op's operand: the initial value of a fold; None for the zeros of a sum of products."""
    semantics = op.definition.semantics
    return op.operands[semantics.inits[0]] if isinstance(semantics, Fold) else None


def with_halo(t: TensorType, dim: int, reach: tuple[int, int]) -> TensorType:
    """The type of a tile with the elements around it that an op reads."""
    shape = list(t.static_shape)
    shape[dim] += max(0, -reach[0]) + max(0, reach[1])
    return TensorType(tuple(shape), t.element)


def local_op(
    op: Op, operands: Sequence[Sharding], result: Sharding, halos: Mapping[tuple[int, int], tuple[int, int]]
) -> Op | None:
    """The op on tiles of its operands, or None where there is no such op. (Its operands are stand-ins of the tiles' types.)"""
    given = [s.local_type(v.tensor) for s, v in zip(operands, op.operands, strict=True)]
    for (k, dim), reach in halos.items():
        given[k] = with_halo(given[k], dim, reach)
    block = Block(given)
    attributes = dict(op.attributes)
    if halos:
        rows = padded_dims(op)
        if any(k != 0 or dim not in rows for k, dim in halos):
            return None
        padding = [tuple(row) for row in op.attr("padding")]
        for (_, dim), (low, high) in halos.items():
            padding[rows[dim]] = (min(0, -low), min(0, high))
        attributes["padding"] = tuple(padding)
    name = _LENGTHS.get(op.name)
    if name is not None:
        lengths = list(op.attr(name))
        for k, digits in enumerate(operands[0].dims):
            if digits and lengths[k] != op.operands[0].shape[k]:
                return None
            lengths[k] = block.arguments[0].shape[k] if digits else lengths[k]
        attributes[name] = tuple(lengths)
    types = [result.local_type(r.tensor) for r in op.results]
    made = Op(op.definition, block.arguments, attributes, op.regions, types, op.location, op.extra)
    try:
        check_op(made)
    except VerificationError:
        return None
    return made


def cloned(op: Op, inner: Mapping[Value, Value]) -> Op:
    """A copy of an op whose operands are replaced, in its regions too."""
    operands = [inner.get(v, v) for v in op.operands]
    regions = [clone_block(b, inner) for b in op.regions]
    types, names = [r.type for r in op.results], [r.name for r in op.results]
    return Op(op.definition, operands, op.attributes, regions, types, op.location, op.extra, names)


def folds_in_parts(op: Op, semantics: Fold) -> bool:
    """Whether folds of parts, each from the initial value, combine to the fold of the whole."""
    if len(op.results) != 1:
        return False
    function, start = combined_function(op.regions[0]), op.operands[semantics.inits[0]].op
    if function is None:
        return False
    if is_idempotent(function):
        return True
    element = op.results[0].tensor.element
    if start is None or not isinstance(start.definition.semantics, Literal) or not isinstance(element, ElementType):
        return False
    dense: DenseArray = start.attr("value")
    return element.dtype.kind != "c" and is_neutral(function, dense.array.reshape(-1)[0], element)


def combination(op: Op) -> Block:
    """The body that combines partial results of an op: a fold's own, else a sum."""
    if op.regions:
        return op.regions[0]
    t = TensorType((), op.results[0].tensor.element)
    block = Block([t, t])
    total = Op(definition("stablehlo.add"), block.arguments, {}, (), [t])
    block.ops += [total, Op(definition("stablehlo.return"), total.results)]
    return block
