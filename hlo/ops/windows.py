"""Ops that fold or choose over windows: reduce_window, select_and_scatter."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.access import AccessBuilder, Condition, Index
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import fail
from hlo.ops.rules import (
    at_least,
    attributes_size,
    input_type,
    inputs,
    law,
    num_windows,
    one_element,
    one_shape,
    pairs_for_each,
    reducer_problem,
    result_type,
    results_of_body,
    returned,
    same_shapes,
    shape_stays,
)
from hlo.registry import Attribute, Constraint, Fold, OpDefinition, Operand, register
from hlo.types import ELEMENT_TYPES, TensorType, Type
from hlo.typesets import ANY, tensors

__all__: list[str] = []

Pairs = tuple[tuple[int, int], ...]


def _rank(op: Op) -> int:
    return input_type(op, 0).rank


def _window_ones(op: Op) -> tuple[int, ...]:
    return (1,) * _rank(op)


def _no_padding(op: Op) -> Pairs:
    return ((0, 0),) * _rank(op)


_INPUTS = tensors(*ANY, quantized="per-tensor")


def _reduce_window_shape(op: Op) -> tuple[int | None, ...]:
    t = input_type(op, 0)
    rows = zip(
        t.shape,
        op.attr("window_dimensions"),
        op.attr("window_strides"),
        op.attr("padding"),
        op.attr("base_dilations"),
        op.attr("window_dilations"),
        strict=True,
    )
    return tuple(num_windows(n, w, s, low, high, b, k) for n, w, s, (low, high), b, k in rows)


def _infer_reduce_window(op: Op) -> Sequence[Type]:
    shape = _reduce_window_shape(op)
    types: list[Type] = []
    for t in returned(op.regions[0]):
        if not isinstance(t, TensorType):
            raise fail(op, f"expected tensors from the body, found {t}", "C13")
        types.append(TensorType(shape, t.element))
    return types


def _reduce_window_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    shape = input_type(op, 0).static_shape
    index: list[Index] = []
    where: list[Condition] = []
    rows = zip(
        d,
        shape,
        op.attr("window_dimensions"),
        op.attr("window_strides"),
        op.attr("padding"),
        op.attr("base_dilations"),
        op.attr("window_dilations"),
        strict=True,
    )
    for x, n, window, stride, (low, high), base, dilation in rows:
        w: Index = ix.range(window) if window != 1 else 0
        position = x * stride + w * dilation - low
        if low or high or base != 1:
            where.append(Condition(position, 0, (n - 1) * base))
        if base != 1:
            where.append(Condition(position % base, 0, 0))
        index.append(position // base if base != 1 else position)
    count = len(op.segment("inputs"))
    for k in range(count):
        ix.read(k, index, where)
    for k in range(count):
        ix.read(count + k, ())


def _counted(op: Op) -> bool | str:
    n = len(op.operands)
    return (n > 0 and n % 2 == 0) or f"expected as many init values as inputs, found {n} operands"


def _window_body(op: Op) -> bool | str:
    # A body may also work on windows of some of the dimensions, which are those of the window.
    return reducer_problem(op.regions[0], inputs(op, "inputs"), inputs(op, "init_values"), op.attr("window_dimensions")) or True


def _one_for_each(label: str, name: str, operand: str) -> Constraint:
    return attributes_size(label, name, lambda op: input_type(op, 0).rank, f"dimensions of {operand}")


register(
    OpDefinition(
        name="stablehlo.reduce_window",
        spec="StableHLO: reduce_window",
        operands=(Operand("inputs", _INPUTS, variadic=True), Operand("init_values", _INPUTS, variadic=True)),
        attributes=(
            Attribute("window_dimensions", "i64s"),
            Attribute("window_strides", "i64s", _window_ones),
            Attribute("base_dilations", "i64s", _window_ones),
            Attribute("window_dilations", "i64s", _window_ones),
            Attribute("padding", "pairs", _no_padding),
        ),
        regions=("body",),
        infer=_infer_reduce_window,
        access=_reduce_window_access,
        semantics=Fold(inputs=(0,), inits=(1,)),
        constraints=(
            law("C1", "as many init values as inputs, at least one", _counted),
            one_shape("C2", "inputs"),
            law(
                "C3",
                "inputs and init values have the same element types",
                lambda op: all(one_element(a, b) for a, b in zip(inputs(op, "inputs"), inputs(op, "init_values"), strict=True)),
                "inputs",
                "init_values",
            ),
            _one_for_each("C4", "window_dimensions", "the inputs"),
            at_least("C5", "window_dimensions", 1),
            _one_for_each("C6", "window_strides", "the inputs"),
            at_least("C7", "window_strides", 1),
            _one_for_each("C8", "base_dilations", "the inputs"),
            at_least("C9", "base_dilations", 1),
            _one_for_each("C10", "window_dilations", "the inputs"),
            at_least("C11", "window_dilations", 1),
            pairs_for_each("C12", "padding", _rank, "dimension", "inputs"),
            law(
                "C13",
                "the body takes 2N scalars and returns N, of types that inputs and init values are promotable to",
                _window_body,
            ),
            law(
                "C14",
                "results have one shape",
                lambda op: same_shapes(*(result_type(op, k).shape for k in range(len(op.results)))),
                "results",
            ),
            law(
                "C15",
                "the results' shape is the number of windows",
                lambda op: not op.results or same_shapes(result_type(op).shape, _reduce_window_shape(op)),
                "inputs",
                "window_dimensions",
                "result",
            ),
            results_of_body("C16"),
        ),
        result_names=("results",),
    )
)


# ---------------------------------------------------------------- select_and_scatter


def _source_shape(op: Op) -> bool | str:
    t = input_type(op, 0)
    rows = zip(t.shape, op.attr("window_dimensions"), op.attr("window_strides"), op.attr("padding"), strict=True)
    shape = tuple(num_windows(n, w, s, low, high) for n, w, s, (low, high) in rows)
    source = input_type(op, 1)
    return (
        same_shapes(shape, source.shape)
        or f"expected a source of shape {['?' if n is None else n for n in shape]}, found {source}"
    )


def _select_body(op: Op) -> bool | str:
    body, element = op.regions[0], input_type(op, 0).element
    if len(body.arguments) != 2:
        return f"expected 2 arguments of select, found {len(body.arguments)}"
    for a in body.arguments:
        if not isinstance(a.type, TensorType) or a.type.shape or not one_element(a.type, TensorType((), element)):
            return f"expected a scalar {element} argument of select, found {a.type}"
    out = returned(body)
    ok = len(out) == 1 and isinstance(out[0], TensorType) and not out[0].shape and out[0].element == ELEMENT_TYPES["i1"]
    return ok or f"expected select to return tensor<i1>, found {', '.join(map(str, out))}"


def _infer_select_and_scatter(op: Op) -> Sequence[Type]:
    (t,) = returned(op.regions[1])
    if not isinstance(t, TensorType):
        raise fail(op, f"expected a tensor from scatter, found {t}", "C10")
    return (TensorType(input_type(op, 0).shape, t.element),)


_SCATTERS = Declined("which window chose an element depends on the values")
register(
    OpDefinition(
        name="stablehlo.select_and_scatter",
        spec="StableHLO: select_and_scatter",
        operands=(
            Operand("operand", _INPUTS),
            Operand("source", _INPUTS),
            Operand("init_value", tensors(*ANY, quantized="per-tensor", rank=0)),
        ),
        results=(Operand("result", _INPUTS),),
        attributes=(
            Attribute("window_dimensions", "i64s"),
            Attribute("window_strides", "i64s", _window_ones),
            Attribute("padding", "pairs", _no_padding),
        ),
        regions=("select", "scatter"),
        infer=_infer_select_and_scatter,
        access=_SCATTERS,
        semantics=_SCATTERS,
        constraints=(
            law(
                "C1",
                "operand and source have the same element type",
                lambda op: one_element(input_type(op, 0), input_type(op, 1)),
                "operand",
                "source",
            ),
            law(
                "C3",
                "init_value has the operand's element type",
                lambda op: one_element(input_type(op, 0), input_type(op, 2)),
                "operand",
                "init_value",
            ),
            _one_for_each("C4", "window_dimensions", "the operand"),
            at_least("C5", "window_dimensions", 1),
            _one_for_each("C6", "window_strides", "the operand"),
            at_least("C7", "window_strides", 1),
            pairs_for_each("C8", "padding", _rank, "dimension", "operand"),
            law("C2", "source has an element for each window", _source_shape),
            law("C9", "select takes two scalars of the operand's element type and returns a boolean", _select_body),
            law(
                "C10",
                "scatter takes two scalars and returns one, of a type that the operand's is promotable to",
                lambda op: reducer_problem(op.regions[1], [input_type(op, 1)], [input_type(op, 2)]) or True,
            ),
            law("C11", "operand and result have the same shape", shape_stays, "operand", "result"),
            law(
                "C12",
                "the result has the element type that scatter returns",
                lambda op: [result_type(op).element] == [getattr(t, "element", None) for t in returned(op.regions[1])],
                "result",
            ),
        ),
    )
)
