"""scatter: updates that land where values say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.attributes import ScatterDimensions
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import fail
from hlo.ops.gathering import SORTED, field_of, paired_sizes, vector_size, without
from hlo.ops.rules import (
    distinct,
    eq,
    inputs,
    law,
    le,
    one_element,
    one_shape,
    reducer_problem,
    result_type,
    results_of_body,
    returned,
    same_shapes,
    sorted_distinct,
    within,
)
from hlo.registry import Attribute, OpDefinition, Operand, register
from hlo.types import TensorType, Type
from hlo.typesets import ANY, S, U, tensors

__all__: list[str] = []

_VALUE = tensors(*ANY, quantized="per-tensor")


def _s(op: Op) -> ScatterDimensions:
    numbers: ScatterDimensions = op.attr("scatter_dimension_numbers")
    return numbers


def _sd(name: str) -> Callable[[Op], tuple[int, ...]]:
    return field_of(_s, name)


def _first(op: Op) -> TensorType:
    return inputs(op, "inputs")[0]


def _indices(op: Op) -> TensorType:
    return inputs(op, "scatter_indices")[0]


def _update(op: Op) -> TensorType:
    return inputs(op, "updates")[0]


def _scatter_update_rank(op: Op) -> int:
    s, indices = _s(op), _indices(op)
    return len(s.update_window_dims) + indices.rank - (1 if s.index_vector_dim < indices.rank else 0)


def _scatter_update_shape(op: Op) -> bool | str:
    s, update, indices = _s(op), _update(op), _indices(op)
    if update.rank != _scatter_update_rank(op):
        return f"expected updates of rank {_scatter_update_rank(op)}, found {update}"
    scatter = iter(without(indices.shape, s.index_vector_dim))
    window = iter(without(_first(op).shape, *s.inserted_window_dims, *s.input_batching_dims))
    for k, n in enumerate(update.shape):
        if k in s.update_window_dims:
            bound = next(window)
            if not le(n, bound):
                return f"expected a window of at most {bound} in dimension {k} of updates, found {update}"
        elif not eq(n, bound := next(scatter)):
            return f"expected {bound} in dimension {k} of updates, found {update}"
    return True


def _counted(op: Op) -> bool | str:
    n = len(op.operands)
    return (n >= 3 and n % 2 == 1) or f"expected N inputs, indices and N updates, found {n} operands"


def _infer_scatter(op: Op) -> Sequence[Type]:
    types: list[Type] = []
    for t, r in zip(inputs(op, "inputs"), returned(op.regions[0]), strict=True):
        if not isinstance(r, TensorType):
            raise fail(op, f"expected tensors from the body, found {r}", "C23")
        types.append(TensorType(t.shape, r.element, t.bounds))
    return types


_SCATTERS = Declined("which updates land on an element depends on the values of scatter_indices")
register(
    OpDefinition(
        name="stablehlo.scatter",
        spec="StableHLO: scatter",
        operands=(
            Operand("inputs", _VALUE, variadic=True),
            Operand("scatter_indices", tensors(S, U, index=True)),
            Operand("updates", _VALUE, variadic=True),
        ),
        attributes=(
            Attribute("scatter_dimension_numbers", "scatter"),
            SORTED,
            Attribute("unique_indices", "bool", False),
        ),
        regions=("update_computation",),
        infer=_infer_scatter,
        access=_SCATTERS,
        semantics=_SCATTERS,
        constraints=(
            law("C5", "as many updates as inputs, at least one", _counted),
            one_shape("C1", "inputs"),
            one_shape("C3", "updates"),
            law(
                "C6",
                "updates have the inputs' element types",
                lambda op: all(one_element(a, b) for a, b in zip(inputs(op, "inputs"), inputs(op, "updates"), strict=True)),
                "inputs",
                "updates",
            ),
            within(
                "C22",
                "index_vector_dim",
                "0 and rank(scatter_indices), inclusive",
                lambda op: _indices(op).rank + 1,
                lambda op: (_s(op).index_vector_dim,),
            ),
            law(
                "C2",
                "rank(inputs) is the number of window, inserted and batching dimensions",
                lambda op: (
                    _first(op).rank
                    == len(_s(op).update_window_dims) + len(_s(op).inserted_window_dims) + len(_s(op).input_batching_dims)
                ),
                "inputs",
                "scatter_dimension_numbers",
            ),
            sorted_distinct("C7", "update_window_dims", _sd("update_window_dims")),
            within(
                "C8", "update_window_dims", "the dimensions of updates", lambda op: _update(op).rank, _sd("update_window_dims")
            ),
            distinct(
                "C9",
                "inserted_window_dims and input_batching_dims",
                lambda op: _s(op).inserted_window_dims + _s(op).input_batching_dims,
            ),
            sorted_distinct("C10", "inserted_window_dims", _sd("inserted_window_dims"), unique=False),
            within(
                "C11", "inserted_window_dims", "the inputs' dimensions", lambda op: _first(op).rank, _sd("inserted_window_dims")
            ),
            sorted_distinct("C12", "input_batching_dims", _sd("input_batching_dims"), unique=False),
            within(
                "C13", "input_batching_dims", "the inputs' dimensions", lambda op: _first(op).rank, _sd("input_batching_dims")
            ),
            distinct("C14", "scatter_indices_batching_dims", _sd("scatter_indices_batching_dims")),
            within(
                "C15",
                "scatter_indices_batching_dims",
                "the dimensions of scatter_indices",
                lambda op: _indices(op).rank,
                _sd("scatter_indices_batching_dims"),
            ),
            law(
                "C16",
                "index_vector_dim is not in scatter_indices_batching_dims",
                lambda op: _s(op).index_vector_dim not in _s(op).scatter_indices_batching_dims,
                "scatter_dimension_numbers",
            ),
            law(
                "C17",
                "as many input_batching_dims as scatter_indices_batching_dims",
                lambda op: len(_s(op).input_batching_dims) == len(_s(op).scatter_indices_batching_dims),
                "scatter_dimension_numbers",
            ),
            law(
                "C18",
                "batching dimensions of inputs and scatter_indices have equal sizes",
                lambda op: paired_sizes(
                    _first(op), _indices(op), _s(op).input_batching_dims, _s(op).scatter_indices_batching_dims
                ),
                "inputs",
                "scatter_indices",
            ),
            law(
                "C19",
                "scatter_dims_to_operand_dims has an entry for each component of an index vector",
                lambda op: eq(len(_s(op).scatter_dims_to_operand_dims), vector_size(_indices(op), _s(op).index_vector_dim)),
                "scatter_indices",
                "scatter_dimension_numbers",
            ),
            distinct(
                "C20",
                "scatter_dims_to_operand_dims and input_batching_dims",
                lambda op: _s(op).scatter_dims_to_operand_dims + _s(op).input_batching_dims,
            ),
            within(
                "C21",
                "scatter_dims_to_operand_dims",
                "the inputs' dimensions",
                lambda op: _first(op).rank,
                _sd("scatter_dims_to_operand_dims"),
            ),
            law("C4", "the shape of updates is made of scatter and window dimensions", _scatter_update_shape),
            law(
                "C23",
                "the body takes 2N scalars and returns N, of types that the inputs are promotable to",
                lambda op: (
                    reducer_problem(
                        op.regions[0], inputs(op, "updates"), [TensorType((), t.element) for t in inputs(op, "inputs")]
                    )
                    or True
                ),
            ),
            law(
                "C24",
                "results have the inputs' shapes",
                lambda op: (
                    len(op.results) == len(inputs(op, "inputs"))
                    and all(same_shapes(result_type(op, k).shape, t.shape) for k, t in enumerate(inputs(op, "inputs")))
                ),
                "inputs",
                "results",
            ),
            results_of_body("C25"),
        ),
        result_names=("results",),
    )
)
