"""Ops whose shapes are values: dynamic_* ops, get_dimension_size, set_dimension_size, real_dynamic_slice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import fail
from hlo.ops.rules import entry_each, eq, input_type, law, one_element, result_type, within
from hlo.registry import Attribute, Constraint, OpDefinition, Operand, register
from hlo.types import ELEMENT_TYPES, QuantizedType, TensorType, Type
from hlo.typesets import ANY, DIMENSIONS, C, F, S, TypeSet, U, tensors

__all__ = ["axis_rules", "constant_of", "same_element_type"]

_VALUE = tensors(*ANY, quantized="per-tensor")
_ANY_VALUE = tensors(*ANY, quantized="any")
_RUNTIME = Declined("the result's shape is a value of the program; fold the shapes first")


def constant_of(op: Op, operand: int) -> tuple[int, ...] | None:
    """The values of an operand that a constant produces; None when it is something else."""
    producer = op.operands[operand].op
    if producer is None or producer.name != "stablehlo.constant":
        return None
    array = producer.attributes["value"].array
    return tuple(int(x) for x in array.reshape(-1)) if array.size <= 64 and array.dtype.kind in "iu" else None


def same_element_type(op: Op) -> bool:
    """C1 of the ops that move elements: equal types, but per-axis quantized ones may change their axis and parameters."""
    a, r = input_type(op, 0).element, result_type(op).element
    if isinstance(a, QuantizedType) and isinstance(r, QuantizedType) and a.axis is not None:
        return r.axis is not None and (a.storage, a.expressed, a.storage_min, a.storage_max) == (
            r.storage,
            r.expressed,
            r.storage_min,
            r.storage_max,
        )
    return a == r


def axis_rules(label: str) -> Constraint:
    """C6 of broadcast_in_dim: where a per-axis quantized result has its axis, and what its parameters are."""

    def holds(op: Op) -> bool | str:
        a, r, dims = input_type(op, 0).element, result_type(op).element, op.attr("broadcast_dimensions")
        if not isinstance(a, QuantizedType) or not isinstance(r, QuantizedType) or r.axis is None or a.axis is None:
            return True
        if a.axis >= len(dims) or dims[a.axis] != r.axis:
            return f"expected quantization dimension {dims[a.axis] if a.axis < len(dims) else None} of the result, found {r.axis}"
        if input_type(op, 0).shape[a.axis] == 1:
            same = all(s == a.scales[0] for s in r.scales) and all(z == a.zero_points[0] for z in r.zero_points)
            return same or "expected the operand's scale and zero point everywhere in the result"
        same = a.scales == r.scales and a.zero_points == r.zero_points
        return same or "expected the operand's scales and zero points in the result"

    return law(label, "a per-axis quantized result has the operand's axis and parameters at its place", holds, result=True)


# ---------------------------------------------------------------- broadcasting and reshaping


def _dims(op: Op) -> tuple[int, ...]:
    dims: tuple[int, ...] = op.attr("broadcast_dimensions")
    return dims


def _sizes_fit(op: Op) -> bool | str:
    t, r, stated = input_type(op, 0), result_type(op), constant_of(op, 1)
    for i, k in enumerate(_dims(op)):
        # A constant shape says what an unknown dimension of the result is.
        goal = stated[k] if r.shape[k] is None and stated is not None and k < len(stated) else r.shape[k]
        if t.shape[i] not in (1, None) and not eq(t.shape[i], goal):
            return f"expected operand dimension {i} to be 1 or {goal}, found {t.shape[i]}"
    return True


def _stated_shape(operand: int) -> Callable[[Op], bool | str]:
    def holds(op: Op) -> bool | str:
        values, r = constant_of(op, operand), result_type(op)
        if values is None:
            return True
        ok = len(values) == r.rank and all(eq(a, b) for a, b in zip(values, r.shape, strict=True))
        return ok or f"expected the shape {list(values)}, found {r}"

    return holds


_KNOWN = ("known_expanding_dimensions", "known_nonexpanding_dimensions")
register(
    OpDefinition(
        name="stablehlo.dynamic_broadcast_in_dim",
        spec="StableHLO: dynamic_broadcast_in_dim",
        operands=(Operand("operand", _ANY_VALUE), Operand("output_dimensions", DIMENSIONS)),
        results=(Operand("result", _ANY_VALUE),),
        attributes=(
            Attribute("broadcast_dimensions", "i64s"),
            Attribute(_KNOWN[0], "i64s", None),
            Attribute(_KNOWN[1], "i64s", None),
        ),
        infer=Declined("the result's shape is a value of the program"),
        access=_RUNTIME,
        semantics=_RUNTIME,
        constraints=(
            law(
                "C2",
                "as many broadcast_dimensions as operand dimensions",
                lambda op: len(_dims(op)) == input_type(op, 0).rank,
                "broadcast_dimensions",
                "operand",
            ),
            law(
                "C4",
                "broadcast_dimensions differ from each other",
                lambda op: len(set(_dims(op))) == len(_dims(op)),
                "broadcast_dimensions",
            ),
            law(
                "C8",
                "known expanding and nonexpanding dimensions differ from each other",
                lambda op: len(set(k := (op.attr(_KNOWN[0]) or ()) + (op.attr(_KNOWN[1]) or ()))) == len(k),
                *_KNOWN,
            ),
            within("C9", _KNOWN[0], "the operand's dimensions", lambda op: input_type(op, 0).rank),
            within("C10", _KNOWN[1], "the operand's dimensions", lambda op: input_type(op, 0).rank),
            law("C1", "the result has the operand's element type", same_element_type, "operand", "result"),
            law("C7", "as many output_dimensions as dimensions of the result", entry_each, "output_dimensions", "result"),
            within("C3", "broadcast_dimensions", "the result's dimensions", lambda op: result_type(op).rank, result=True),
            law("C5", "an operand dimension is 1 or the result's at its place", _sizes_fit, result=True),
            axis_rules("C6"),
            law("output_dimensions", "a constant shape is the result's", _stated_shape(1), result=True),
        ),
    )
)


def _stated_count(op: Op) -> bool | str:
    values, t = constant_of(op, 1), input_type(op, 0)
    if values is None or not t.is_static:
        return True
    if any(n < 0 for n in values):
        return f"expected sizes of 0 or more, found {list(values)}"
    return prod(values) == t.size_elems or f"expected {t.size_elems} elements, found {prod(values)}"


def elements_agree(op: Op) -> bool:
    """Can operand and result have as many elements?"""
    t, r = input_type(op, 0), result_type(op)
    return not t.is_static or not r.is_static or t.size_elems == r.size_elems


def axis_keeps_place(op: Op) -> bool:
    """C3 of reshape: as many elements before, at and after the quantization dimension."""
    t, r = input_type(op, 0), result_type(op)
    a, b = t.element, r.element
    if not (isinstance(a, QuantizedType) and isinstance(b, QuantizedType)) or a.axis is None or b.axis is None:
        return True
    if not t.is_static or not r.is_static:
        return True
    i, j, s, u = a.axis, b.axis, t.static_shape, r.static_shape
    return prod(s[:i]) == prod(u[:j]) and s[i] == u[j] and prod(s[i + 1 :]) == prod(u[j + 1 :])


register(
    OpDefinition(
        name="stablehlo.dynamic_reshape",
        spec="StableHLO: dynamic_reshape",
        operands=(Operand("operand", _ANY_VALUE), Operand("output_shape", DIMENSIONS)),
        results=(Operand("result", _ANY_VALUE),),
        infer=Declined("the result's shape is a value of the program"),
        access=_RUNTIME,
        semantics=_RUNTIME,
        constraints=(
            law("C1", "the result has the operand's element type", same_element_type, "operand", "result"),
            law("C2", "operand and result have as many elements", elements_agree, "operand", "result"),
            law("C3", "a per-axis quantized dimension keeps its place", axis_keeps_place, "operand", "result"),
            law("C4", "as many entries of output_shape as dimensions of the result", entry_each, "output_shape", "result"),
            law("output_shape", "a constant shape is the result's", _stated_shape(1), result=True),
            law("output_shape", "a constant shape has as many elements as the operand", _stated_count, "operand"),
        ),
    )
)


register(
    OpDefinition(
        name="stablehlo.dynamic_iota",
        spec="StableHLO: dynamic_iota",
        operands=(Operand("output_shape", DIMENSIONS),),
        results=(Operand("result", tensors(S, U, F, C, quantized="per-tensor")),),
        attributes=(Attribute("iota_dimension", "i64"),),
        infer=Declined("the result's type is the program's choice"),
        access=_RUNTIME,
        semantics=_RUNTIME,
        constraints=(
            law(
                "C1",
                "0 <= iota_dimension < size(output_shape)",
                lambda op: 0 <= op.attr("iota_dimension") < result_type(op).rank,
                "iota_dimension",
                "output_shape",
                result=True,
            ),
            law(
                "C2",
                "as many entries of output_shape as dimensions of the result",
                lambda op: eq(input_type(op, 0).shape[0], result_type(op).rank),
                "output_shape",
                "result",
            ),
            law("output_shape", "a constant shape is the result's", _stated_shape(0), result=True),
        ),
    )
)


# ---------------------------------------------------------------- padding and slicing

_SPANS = ("edge_padding_low", "edge_padding_high", "interior_padding")


def _one_for_each(names: Sequence[str]) -> Callable[[Op], bool]:
    return lambda op: all(eq(input_type(op, n).shape[0], input_type(op, "operand").rank) for n in names)


def _padded(op: Op) -> bool | str:
    t, r = input_type(op, 0), result_type(op)
    spans = [constant_of(op, k) for k in (2, 3, 4)]
    if r.rank != t.rank:
        return f"expected the rank of {t}, found {r}"
    low, high, inner = spans
    if low is None or high is None or inner is None:
        return True
    for i, n in enumerate(t.shape):
        if n is not None and not eq(r.shape[i], low[i] + n + max(n - 1, 0) * inner[i] + high[i]):
            return f"expected {low[i] + n + max(n - 1, 0) * inner[i] + high[i]} in dimension {i}, found {r}"
    return True


register(
    OpDefinition(
        name="stablehlo.dynamic_pad",
        spec="StableHLO: dynamic_pad",
        operands=(
            Operand("operand", _VALUE),
            Operand("padding_value", tensors(*ANY, quantized="per-tensor", rank=0)),
            *(Operand(n, DIMENSIONS) for n in _SPANS),
        ),
        results=(Operand("result", _VALUE),),
        infer=Declined("the result's shape is a value of the program"),
        access=_RUNTIME,
        semantics=_RUNTIME,
        constraints=(
            law("C2", "as many entries of each padding as dimensions of the operand", _one_for_each(_SPANS), "operand", *_SPANS),
            law("C3", "0 <= interior_padding", lambda op: all(n >= 0 for n in constant_of(op, 4) or ()), "interior_padding"),
            law(
                "C1",
                "operand, padding_value and result have the same element type",
                lambda op: one_element(input_type(op, 0), input_type(op, 1), result_type(op)),
                "operand",
                "padding_value",
                "result",
            ),
            law("C4", "the result's shape is the padded one", _padded, result=True),
        ),
    )
)

_BOUNDS = ("start_indices", "limit_indices", "strides")
_INDICES = tensors(S, U, rank=1, index=True, static=True)
register(
    OpDefinition(
        name="stablehlo.real_dynamic_slice",
        spec="StableHLO: real_dynamic_slice (unused)",
        operands=(Operand("operand", _VALUE), *(Operand(n, _INDICES) for n in _BOUNDS)),
        results=(Operand("result", _VALUE),),
        infer=Declined("the result's shape is a value of the program"),
        access=_RUNTIME,
        semantics=_RUNTIME,
        constraints=(
            law(
                "C1",
                "start_indices, limit_indices and strides have one type",
                lambda op: len({input_type(op, n).element for n in _BOUNDS}) == 1,
                *_BOUNDS,
            ),
            law(
                "C2",
                "as many start indices, limit indices and strides as dimensions of the operand",
                _one_for_each(_BOUNDS),
                "operand",
                *_BOUNDS,
            ),
            law(
                "C3",
                "operand and result have the same rank and element type",
                lambda op: input_type(op, 0).rank == result_type(op).rank and one_element(input_type(op, 0), result_type(op)),
                "operand",
                "result",
            ),
        ),
    )
)

# ---------------------------------------------------------------- sizes


def _dimension(op: Op) -> int:
    d: int = op.attr("dimension")
    return d


register(
    OpDefinition(
        name="stablehlo.get_dimension_size",
        spec="StableHLO: get_dimension_size",
        operands=(Operand("operand", _ANY_VALUE),),
        attributes=(Attribute("dimension", "i64"),),
        infer=lambda op: (TensorType((), ELEMENT_TYPES["i32"]),),
        access=lambda op, output, d, ix: None,
        semantics=Declined("a dimension's size, which no element of the operand tells"),
        constraints=(within("C1", "dimension", "the operand's dimensions", lambda op: input_type(op, 0).rank),),
    )
)

_SIZE = TypeSet(
    "0-dimensional tensor of i32", lambda t: isinstance(t, TensorType) and not t.shape and t.element == ELEMENT_TYPES["i32"]
)


def _infer_set_size(op: Op) -> Sequence[Type]:
    t, dim, size = input_type(op, 0), _dimension(op), constant_of(op, 1)
    if not 0 <= dim < t.rank:
        raise fail(op, f"expected a dimension of {t}, found {dim}", "C1")
    old = t.shape[dim]
    shape, bounds = list(t.shape), list(t.bounds or (None,) * t.rank)
    if size is not None and old is not None and size[0] == old:
        return (t,)
    shape[dim] = None
    bounds[dim] = old if old is not None else bounds[dim]
    return (TensorType(tuple(shape), t.element, tuple(bounds)),)


register(
    OpDefinition(
        name="stablehlo.set_dimension_size",
        spec="StableHLO: set_dimension_size (bounded dynamism)",
        operands=(Operand("operand", _VALUE), Operand("size", _SIZE)),
        attributes=(Attribute("dimension", "i64"),),
        infer=_infer_set_size,
        access=_RUNTIME,
        semantics=_RUNTIME,
        constraints=(within("C1", "dimension", "the operand's dimensions", lambda op: input_type(op, 0).rank),),
    )
)
