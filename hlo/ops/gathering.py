"""Ops that read or write at positions given by values: gather, scatter, dynamic_slice, dynamic_update_slice,
torch_index_select."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hlo.access import AccessBuilder, Condition, Index
from hlo.attributes import GatherDimensions
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.dynamic import constant_of
from hlo.ops.rules import (
    attributes_size,
    distinct,
    eq,
    input_type,
    inputs,
    law,
    le,
    one_element,
    result_is_operand,
    result_type,
    same_shapes,
    sorted_distinct,
    within,
)
from hlo.registry import Attribute, Constraint, Move, OpDefinition, Operand, register
from hlo.types import TensorType
from hlo.typesets import ANY, DIMENSIONS, S, U, tensors

__all__ = ["SORTED", "field_of", "paired_sizes", "vector_size", "without"]

_VALUE = tensors(*ANY, quantized="per-tensor")
_INDEX = tensors(S, U, rank=0)

# ---------------------------------------------------------------- dynamic_slice, dynamic_update_slice


def _starts(op: Op) -> list[TensorType]:
    return inputs(op, "start_indices")


def _dynamic_slice_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    shape, sizes = input_type(op, 0).static_shape, op.attr("slice_sizes")
    starts = [ix.runtime(1 + k, (), 0, n - s) for k, (n, s) in enumerate(zip(shape, sizes, strict=True))]
    ix.read(0, [x + start for x, start in zip(d, starts, strict=True)])


def _slice_sizes_fit(op: Op) -> bool:
    return all(n >= 0 and le(n, m) for n, m in zip(op.attr("slice_sizes"), input_type(op, 0).shape, strict=True))


register(
    OpDefinition(
        name="stablehlo.dynamic_slice",
        spec="StableHLO: dynamic_slice",
        operands=(Operand("operand", _VALUE), Operand("start_indices", _INDEX, variadic=True)),
        attributes=(Attribute("slice_sizes", "i64s"),),
        infer=lambda op: (TensorType(tuple(op.attr("slice_sizes")), input_type(op, 0).element),),
        access=_dynamic_slice_access,
        semantics=Move(),
        constraints=(
            law(
                "C2",
                "as many start indices and slice sizes as dimensions of the operand",
                lambda op: len(_starts(op)) == len(op.attr("slice_sizes")) == input_type(op, 0).rank,
                "operand",
                "start_indices",
                "slice_sizes",
            ),
            law("C3", "start indices have one type", lambda op: len({t.element for t in _starts(op)}) <= 1, "start_indices"),
            law("C4", "0 <= slice_sizes <= the operand's shape", _slice_sizes_fit, "operand", "slice_sizes"),
            law(
                "C1",
                "operand and result have the same element type",
                lambda op: one_element(input_type(op, 0), result_type(op)),
                "operand",
                "result",
            ),
            law(
                "C5",
                "the result's shape is slice_sizes",
                lambda op: same_shapes(result_type(op).shape, op.attr("slice_sizes")),
                "slice_sizes",
                "result",
            ),
        ),
    )
)


def _dynamic_update_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """The update where the output lies in its window, the operand elsewhere."""
    shape, update = input_type(op, 0).static_shape, input_type(op, 1).static_shape
    starts = [ix.runtime(2 + k, (), 0, n - m) for k, (n, m) in enumerate(zip(shape, update, strict=True))]
    inside = [x - start for x, start in zip(d, starts, strict=True)]
    ix.read(1, inside, [Condition(x, 0, m - 1) for x, m in zip(inside, update, strict=True)])
    # The operand is read where the update is not; as a set of reads, that is every place.
    ix.read(0, d)


register(
    OpDefinition(
        name="stablehlo.dynamic_update_slice",
        spec="StableHLO: dynamic_update_slice",
        operands=(Operand("operand", _VALUE), Operand("update", _VALUE), Operand("start_indices", _INDEX, variadic=True)),
        infer=lambda op: (TensorType(input_type(op, 0).shape, input_type(op, 0).element, input_type(op, 0).bounds),),
        access=_dynamic_update_access,
        semantics=Move(),
        constraints=(
            law(
                "C2",
                "update has the operand's element type",
                lambda op: one_element(input_type(op, 0), input_type(op, 1)),
                "operand",
                "update",
            ),
            law(
                "C3",
                "update has the operand's rank",
                lambda op: input_type(op, 0).rank == input_type(op, 1).rank,
                "operand",
                "update",
            ),
            law(
                "C4",
                "as many start indices as dimensions of the operand",
                lambda op: len(_starts(op)) == input_type(op, 0).rank,
                "operand",
                "start_indices",
            ),
            law("C5", "start indices have one type", lambda op: len({t.element for t in _starts(op)}) <= 1, "start_indices"),
            law(
                "C6",
                "update fits into the operand",
                lambda op: all(le(a, b) for a, b in zip(input_type(op, 1).shape, input_type(op, 0).shape, strict=True)),
                "operand",
                "update",
            ),
            result_is_operand("C1", "operand and result have the same type"),
        ),
    )
)

# ---------------------------------------------------------------- gather


def _g(op: Op) -> GatherDimensions:
    numbers: GatherDimensions = op.attr("dimension_numbers")
    return numbers


def field_of(of: Callable[[Op], Any], name: str) -> Callable[[Op], tuple[int, ...]]:
    return lambda op: getattr(of(op), name)


def vector_size(indices: TensorType, dim: int) -> int | None:
    """How many components an index vector has."""
    return indices.shape[dim] if 0 <= dim < indices.rank else 1


def without(shape: Sequence[int | None], *dims: int) -> list[int | None]:
    return [n for k, n in enumerate(shape) if k not in dims]


def _gather_sizes(op: Op) -> tuple[int | None, ...]:
    """slice_sizes; unknown ones where they are a value of the program (dynamic_gather)."""
    if "slice_sizes" in op.definition.known_attributes:
        return tuple(op.attr("slice_sizes"))
    constant, rank = constant_of(op, 2), input_type(op, 0).rank
    return constant if constant is not None and len(constant) == rank else (None,) * rank


def _constant_sizes_fit(op: Op) -> bool:
    return all(n is None or (n >= 0 and le(n, m)) for n, m in zip(_gather_sizes(op), input_type(op, 0).shape, strict=True))


def _gather_rank(op: Op) -> int:
    g, indices = _g(op), input_type(op, 1)
    return len(g.offset_dims) + indices.rank - (1 if g.index_vector_dim < indices.rank else 0)


def _gather_shape(op: Op) -> tuple[int | None, ...]:
    g, indices = _g(op), input_type(op, 1)
    batch = iter(without(indices.shape, g.index_vector_dim))
    offset = iter(without(_gather_sizes(op), *g.collapsed_slice_dims, *g.operand_batching_dims))
    return tuple(next(offset) if k in g.offset_dims else next(batch) for k in range(_gather_rank(op)))


def paired_sizes(t: TensorType, indices: TensorType, left: Sequence[int], right: Sequence[int]) -> bool:
    return all(eq(t.shape[i], indices.shape[j]) for i, j in zip(left, right, strict=True))


def _slice_at_most_one(dims: str) -> Callable[[Op], bool]:
    return lambda op: all(le(_gather_sizes(op)[k], 1) for k in getattr(_g(op), dims))


def _gather_rules(sizes: Constraint) -> tuple[Constraint, ...]:
    def rank_of_operand(op: Op) -> int:
        return input_type(op, 0).rank

    def rank_of_indices(op: Op) -> int:
        return input_type(op, 1).rank

    def both(a: str, b: str) -> Callable[[Op], tuple[int, ...]]:
        return lambda op: getattr(_g(op), a) + getattr(_g(op), b)

    return (
        law(
            "C1",
            "rank(operand) is the number of offset, collapsed and batching dimensions",
            lambda op: (
                input_type(op, 0).rank
                == len(_g(op).offset_dims) + len(_g(op).collapsed_slice_dims) + len(_g(op).operand_batching_dims)
            ),
            "operand",
            "dimension_numbers",
        ),
        within(
            "C2",
            "index_vector_dim",
            "0 and rank(start_indices), inclusive",
            lambda op: input_type(op, 1).rank + 1,
            lambda op: (_g(op).index_vector_dim,),
        ),
        law(
            "C3",
            "start_index_map has an entry for each component of an index vector",
            lambda op: eq(len(_g(op).start_index_map), vector_size(input_type(op, 1), _g(op).index_vector_dim)),
            "start_indices",
            "dimension_numbers",
        ),
        sorted_distinct("C4", "offset_dims", field_of(_g, "offset_dims")),
        within("C5", "offset_dims", "the result's dimensions", _gather_rank, field_of(_g, "offset_dims")),
        distinct("C6", "collapsed_slice_dims and operand_batching_dims", both("collapsed_slice_dims", "operand_batching_dims")),
        sorted_distinct("C7", "collapsed_slice_dims", field_of(_g, "collapsed_slice_dims"), unique=False),
        within("C8", "collapsed_slice_dims", "the operand's dimensions", rank_of_operand, field_of(_g, "collapsed_slice_dims")),
        sorted_distinct("C10", "operand_batching_dims", field_of(_g, "operand_batching_dims"), unique=False),
        within(
            "C11", "operand_batching_dims", "the operand's dimensions", rank_of_operand, field_of(_g, "operand_batching_dims")
        ),
        distinct("C13", "start_indices_batching_dims", field_of(_g, "start_indices_batching_dims")),
        within(
            "C14",
            "start_indices_batching_dims",
            "the dimensions of start_indices",
            rank_of_indices,
            field_of(_g, "start_indices_batching_dims"),
        ),
        law(
            "C15",
            "index_vector_dim is not in start_indices_batching_dims",
            lambda op: _g(op).index_vector_dim not in _g(op).start_indices_batching_dims,
            "dimension_numbers",
        ),
        law(
            "C16",
            "as many operand_batching_dims as start_indices_batching_dims",
            lambda op: len(_g(op).operand_batching_dims) == len(_g(op).start_indices_batching_dims),
            "dimension_numbers",
        ),
        law(
            "C17",
            "batching dimensions of operand and start_indices have equal sizes",
            lambda op: paired_sizes(
                input_type(op, 0), input_type(op, 1), _g(op).operand_batching_dims, _g(op).start_indices_batching_dims
            ),
            "operand",
            "start_indices",
        ),
        distinct("C18", "start_index_map and operand_batching_dims", both("start_index_map", "operand_batching_dims")),
        within("C19", "start_index_map", "the operand's dimensions", rank_of_operand, field_of(_g, "start_index_map")),
        sizes,
        law(
            "C9",
            "slice_sizes of collapsed dimensions are at most 1",
            _slice_at_most_one("collapsed_slice_dims"),
            "dimension_numbers",
        ),
        law(
            "C12",
            "slice_sizes of batching dimensions are at most 1",
            _slice_at_most_one("operand_batching_dims"),
            "dimension_numbers",
        ),
    )


_GATHER_RESULT = (
    law(
        "C22",
        "the result's shape is made of batch and slice dimensions",
        lambda op: same_shapes(_gather_shape(op), result_type(op).shape),
        "operand",
        "start_indices",
        "result",
    ),
    law(
        "C23",
        "operand and result have the same element type",
        lambda op: one_element(input_type(op, 0), result_type(op)),
        "operand",
        "result",
    ),
)


def _gather_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    g, shape, indices = _g(op), input_type(op, 0).static_shape, input_type(op, 1).static_shape
    sizes = _gather_sizes(op)
    batch = [x for k, x in enumerate(d) if k not in g.offset_dims]
    offset = iter([x for k, x in enumerate(d) if k in g.offset_dims])
    index: list[Index] = []
    for k, n in enumerate(shape):
        x: Index = 0
        if k in g.operand_batching_dims:
            j = g.start_indices_batching_dims[g.operand_batching_dims.index(k)]
            x = batch[j - (1 if j > g.index_vector_dim else 0)]
        elif k not in g.collapsed_slice_dims:
            x = next(offset)
        if k in g.start_index_map:
            at = list(batch)
            if g.index_vector_dim < len(indices):
                at.insert(g.index_vector_dim, g.start_index_map.index(k))
            x = x + ix.runtime(1, at, 0, n - (sizes[k] or 0))
        index.append(x)
    ix.read(0, index)


_GATHER = (Attribute("dimension_numbers", "gather"),)
SORTED = Attribute("indices_are_sorted", "bool", False)
register(
    OpDefinition(
        name="stablehlo.gather",
        spec="StableHLO: gather",
        operands=(Operand("operand", _VALUE), Operand("start_indices", tensors(S, U))),
        attributes=(*_GATHER, Attribute("slice_sizes", "i64s"), SORTED),
        infer=lambda op: (TensorType(_gather_shape(op), input_type(op, 0).element),),
        access=_gather_access,
        semantics=Move(),
        constraints=(
            attributes_size("C20", "slice_sizes", lambda op: input_type(op, 0).rank, "dimensions of the operand"),
            *_gather_rules(law("C21", "0 <= slice_sizes <= the operand's shape", _slice_sizes_fit, "operand", "slice_sizes")),
            *_GATHER_RESULT,
        ),
    )
)
register(
    OpDefinition(
        name="stablehlo.dynamic_gather",
        spec="StableHLO: dynamic_gather",
        operands=(Operand("operand", _VALUE), Operand("start_indices", tensors(S, U)), Operand("slice_sizes", DIMENSIONS)),
        attributes=(*_GATHER, SORTED),
        infer=lambda op: (TensorType(_gather_shape(op), input_type(op, 0).element),),
        access=Declined("slice_sizes are values of the program, so the result's shape is known only at run time"),
        semantics=Declined("slice_sizes are values of the program, so the result's shape is known only at run time"),
        constraints=(
            law(
                "C20",
                "as many slice_sizes as dimensions of the operand",
                lambda op: eq(input_type(op, 2).shape[0], input_type(op, 0).rank),
                "operand",
                "slice_sizes",
            ),
            *_gather_rules(law("C21", "0 <= slice_sizes <= the operand's shape", _constant_sizes_fit, "operand", "slice_sizes")),
            *_GATHER_RESULT,
        ),
    )
)

# ---------------------------------------------------------------- torch_index_select (deprecated)


def _select_shape(op: Op) -> tuple[int | None, ...]:
    t, index, dim, batch = input_type(op, 0), input_type(op, 1), op.attr("dim"), op.attr("batch_dims")
    return (*t.shape[:dim], *index.shape[batch:], *t.shape[dim + 1 :])


def _index_select_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    t, rank, dim, batch = input_type(op, 0), input_type(op, 1).rank, op.attr("dim"), op.attr("batch_dims")
    inner = rank - batch
    row = ix.runtime(1, (*d[:batch], *d[dim : dim + inner]), 0, t.static_shape[dim] - 1)
    ix.read(0, (*d[:dim], row, *d[dim + inner :]))


register(
    OpDefinition(
        name="stablehlo.torch_index_select",
        spec="StableHLO: torch_index_select (deprecated)",
        operands=(Operand("operand", tensors(*ANY, quantized="per-tensor")), Operand("index", tensors(S, U))),
        attributes=(Attribute("dim", "i64"), Attribute("batch_dims", "i64")),
        infer=lambda op: (TensorType(_select_shape(op), input_type(op, 0).element),),
        access=_index_select_access,
        semantics=Move(),
        constraints=(
            within("C1", "dim", "the operand's dimensions", lambda op: input_type(op, 0).rank),
            within(
                "C2",
                "batch_dims",
                "0 and min(dim, rank(index)), inclusive",
                lambda op: min(op.attr("dim"), input_type(op, 1).rank) + 1,
            ),
            law(
                "C3",
                "batch dimensions of operand and index have equal sizes",
                lambda op: same_shapes(
                    input_type(op, 0).shape[: op.attr("batch_dims")], input_type(op, 1).shape[: op.attr("batch_dims")]
                ),
                "operand",
                "index",
            ),
        ),
    )
)
