"""Ops that move elements without computing: broadcast, transpose, reshape, slice, reverse, concatenate, pad; iota, constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from hlo.access import AccessBuilder, Condition, Index
from hlo.errors import Declined
from hlo.module import Op
from hlo.ops.common import fail, rule, same_shape, tensor
from hlo.ops.dynamic import axis_keeps_place, axis_rules, same_element_type
from hlo.ops.rules import at_least, inputs, law, le, one_element, require, result_type, same_shapes, within
from hlo.registry import Attribute, Generate, InferFunction, Literal, Move, OpDefinition, Operand, register
from hlo.types import QuantizedType, TensorType, Type
from hlo.typesets import ANY, C, F, S, U, tensors

__all__ = ["delinearize", "linearize"]


def linearize(index: Sequence[Index], shape: Sequence[int]) -> Index:
    """The row-major position of `index` in a tensor of `shape`: sum of index_i * prod(shape[i+1:]).

    >>> linearize((1, 2), (4, 8))
    10
    """
    position: Index = 0
    for i, n in zip(index, shape, strict=True):
        position = position * n + i
    return position


def delinearize(position: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """The index at a row-major position; the inverse of `linearize`.

    >>> delinearize(10, (4, 8))
    (1, 2)
    """
    if 0 in shape:
        return (0,) * len(shape)  # there is no position to ask about: whatever loop or map this stands in is empty
    index: list[Index] = []
    stride = 1
    for i in range(len(shape) - 1, -1, -1):
        part = position // stride if stride != 1 else position
        index.append(part % shape[i] if i else part)
        stride *= shape[i]
    return tuple(reversed(index))


# ---------------------------------------------------------------- constant and iota


def _infer_constant(op: Op) -> Sequence[Type]:
    # A quantized result's value is of the storage type: its own type is the program's choice.
    if op.results and isinstance(op.results[0].type, TensorType) and isinstance(op.results[0].type.element, QuantizedType):
        return (op.results[0].type,)
    return (op.attr("value").type,)


def _no_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """Reads nothing."""


@rule("C1", "value and result have the same type (a quantized result's value is of its storage type)", result=True)
def _constant_type(op: Op) -> str | None:
    v, r = op.attr("value").type, result_type(op)
    element = r.element.storage if isinstance(r.element, QuantizedType) else r.element
    # A quantized storage type prints as a signless one.
    same = v.shape == r.shape and (
        v.element == element or (v.element.bits == element.bits and isinstance(r.element, QuantizedType))
    )
    return None if same or v == r else f"expected {v}, found {r}"


register(
    OpDefinition(
        name="stablehlo.constant",
        spec="StableHLO: constant",
        operands=(),
        attributes=(Attribute("value", "dense"),),
        infer=_infer_constant,
        access=_no_access,
        semantics=Literal(),
        results=(Operand("output", tensors(*ANY, quantized="block-wise")),),
        constraints=(_constant_type,),
        result_names=("output",),
    )
)


@rule("C1", "0 <= iota_dimension < rank(output)", result=True)
def _iota_dimension(op: Op) -> str | None:
    n, t = op.attr("iota_dimension"), op.results[0].tensor
    return None if 0 <= n < t.rank else f"expected a dimension of {t}, found {n}"


register(
    OpDefinition(
        name="stablehlo.iota",
        spec="StableHLO: iota",
        operands=(),
        attributes=(Attribute("iota_dimension", "i64"),),
        infer=Declined("the result's type is the program's choice"),
        access=_no_access,
        semantics=Generate(lambda op, d: d[op.attr("iota_dimension")]),
        results=(Operand("output", tensors(S, U, F, C, quantized="per-tensor", static=True)),),
        constraints=(_iota_dimension,),
        result_names=("output",),
    )
)

# ---------------------------------------------------------------- one read an element


def _broadcast_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    shape = tensor(op, 0).shape
    dims = op.attr("broadcast_dimensions")
    ix.read(0, [0 if n == 1 and op.results[0].tensor.shape[k] != 1 else d[k] for k, n in zip(dims, shape, strict=True)])


@rule("C2", "as many broadcast_dimensions as operand dimensions")
def _broadcast_count(op: Op) -> str | None:
    dims, t = op.attr("broadcast_dimensions"), tensor(op, 0)
    return None if len(dims) == t.rank else f"expected {t.rank} dimensions for {t}, found {list(dims)}"


@rule("C3", "broadcast_dimensions are dimensions of the result", result=True)
def _broadcast_range(op: Op) -> str | None:
    dims, r = op.attr("broadcast_dimensions"), op.results[0].tensor
    return None if all(0 <= k < r.rank for k in dims) else f"expected dimensions of {r}, found {list(dims)}"


@rule("C4", "broadcast_dimensions differ from each other")
def _broadcast_unique(op: Op) -> str | None:
    dims = op.attr("broadcast_dimensions")
    return None if len(set(dims)) == len(dims) else f"expected distinct dimensions, found {list(dims)}"


@rule("C5", "an operand dimension is 1 or the result's at its place", result=True)
def _broadcast_sizes(op: Op) -> str | None:
    t, r = tensor(op, 0), op.results[0].tensor
    for i, k in enumerate(op.attr("broadcast_dimensions")):
        if i < t.rank and 0 <= k < r.rank and t.shape[i] not in (1, None, r.shape[k]) and r.shape[k] is not None:
            return f"expected operand dimension {i} to be 1 or {r.shape[k]}, found {t.shape[i]}"
    return None


@rule("C1", "the result has the operand's element type", result=True)
def _same_element(op: Op) -> str | None:
    t, r = tensor(op, 0), result_type(op)
    return None if one_element(t, r) else f"expected {t.element}, found {r.element}"


_MOVED_ELEMENT = law(
    "C1",
    "the result has the operand's element type (a per-axis quantized one may change its axis)",
    same_element_type,
    "operand",
    "result",
)
_VALUE = tensors(*ANY, quantized="per-tensor")
_ANY_VALUE = tensors(*ANY, quantized="any")


register(
    OpDefinition(
        name="stablehlo.broadcast_in_dim",
        spec="StableHLO: broadcast_in_dim",
        operands=(Operand("operand", _ANY_VALUE),),
        attributes=(Attribute("broadcast_dimensions", "i64s"),),
        infer=Declined("the result's shape is the program's choice"),
        access=_broadcast_access,
        semantics=Move(),
        results=(Operand("result", tensors(*ANY, quantized="any", static=True)),),
        constraints=(_MOVED_ELEMENT, _broadcast_count, _broadcast_range, _broadcast_unique, _broadcast_sizes, axis_rules("C6")),
    )
)


def _transpose_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    permutation = op.attr("permutation")
    ix.read(0, [d[permutation.index(i)] for i in range(len(permutation))])


@rule("C2", "permutation is a permutation of the operand's dimensions")
def _transpose_permutation(op: Op) -> str | None:
    p, t = op.attr("permutation"), tensor(op, 0)
    return None if sorted(p) == list(range(t.rank)) else f"expected a permutation of 0..{t.rank - 1}, found {list(p)}"


def _infer_transpose(op: Op) -> Sequence[Type]:
    t, p = tensor(op, 0), op.attr("permutation")
    if sorted(p) != list(range(t.rank)):
        raise fail(op, f"expected a permutation of {t.rank} dimensions, found {list(p)}", "C2")
    bounds = tuple(t.bounds[k] for k in p) if t.bounds else None
    element = t.element
    if isinstance(element, QuantizedType) and element.axis is not None:
        element = replace(element, axis=list(p).index(element.axis))
    return (TensorType(tuple(t.shape[k] for k in p), element, bounds),)


_TRANSPOSED = "the result's dimensions are the operand's in the permutation's order"


def _transposed_shape(op: Op) -> bool | str:
    t, p = tensor(op, 0), op.attr("permutation")
    wanted = TensorType(tuple(t.shape[k] for k in p), t.element)
    return same_shape(wanted.shape, result_type(op).shape) or f"expected {wanted}, found {result_type(op)}"


def _transposed_axis(op: Op) -> bool | str:
    a, r, p = tensor(op, 0).element, result_type(op).element, op.attr("permutation")
    if not (isinstance(a, QuantizedType) and isinstance(r, QuantizedType)) or a.axis is None or r.axis is None:
        return True
    return p[r.axis] == a.axis or f"expected quantization dimension {list(p).index(a.axis)} of the result, found {r.axis}"


register(
    OpDefinition(
        name="stablehlo.transpose",
        spec="StableHLO: transpose",
        operands=(Operand("operand", _ANY_VALUE),),
        attributes=(Attribute("permutation", "i64s"),),
        infer=_infer_transpose,
        access=_transpose_access,
        semantics=Move(),
        results=(Operand("result", _ANY_VALUE),),
        constraints=(
            _MOVED_ELEMENT,
            _transpose_permutation,
            law("C3", _TRANSPOSED, _transposed_shape, "operand", "permutation", "result"),
            law("C4", "the quantization dimension moves along", _transposed_axis, result=True),
        ),
    )
)


def _reshape_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    # Dimensions are matched up in groups of equal size first, so that no division spans more than it must.
    source, target = tensor(op, 0).static_shape, op.results[0].shape
    index: list[Index] = []
    for (s0, s1), (t0, t1) in matching_groups(source, target):
        index.extend(delinearize(linearize(d[t0:t1], target[t0:t1]), source[s0:s1]))
    ix.read(0, index)


def matching_groups(source: Sequence[int], target: Sequence[int]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The finest split of two shapes of one size into runs of dimensions with equal products.

    >>> matching_groups((4, 8, 12), (32, 3, 4))
    [((0, 2), (0, 1)), ((2, 3), (1, 3))]
    """
    if prod(source) == 0:
        return [((0, len(source)), (0, len(target)))]
    groups = []
    i = j = 0
    while i < len(source) or j < len(target):
        i0, j0 = i, j
        a = b = 1
        if i < len(source):
            a, i = source[i], i + 1
        if j < len(target):
            b, j = target[j], j + 1
        while a != b:
            if a < b:
                a, i = a * source[i], i + 1
            else:
                b, j = b * target[j], j + 1
        groups.append(((i0, i), (j0, j)))
    return groups


@rule("C2", "operand and result have as many elements", result=True)
def _reshape_size(op: Op) -> str | None:
    t, r = tensor(op, 0), result_type(op)
    if not t.is_static or not r.is_static or t.size_elems == r.size_elems:
        return None
    return f"expected {t.size_elems} elements, found {r.size_elems}"


register(
    OpDefinition(
        name="stablehlo.reshape",
        spec="StableHLO: reshape",
        operands=(Operand("operand", _ANY_VALUE),),
        infer=Declined("the result's shape is the program's choice"),
        access=_reshape_access,
        semantics=Move(),
        results=(Operand("result", tensors(*ANY, quantized="any", static=True)),),
        constraints=(
            _MOVED_ELEMENT,
            _reshape_size,
            law("C3", "a per-axis quantized dimension keeps its place", axis_keeps_place, "operand", "result"),
        ),
    )
)


def _slice_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    ix.read(0, [i * s + o for i, s, o in zip(d, op.attr("strides"), op.attr("start_indices"), strict=True)])


_SLICE = ("start_indices", "limit_indices", "strides")


def _slice_limits(op: Op) -> bool:
    t = tensor(op, 0)
    bounds = t.bounds if t.bounds and len(t.bounds) == t.rank else (None,) * t.rank
    most = [b if n is None else n for n, b in zip(t.shape, bounds, strict=True)]
    rows = zip(most, op.attr("start_indices"), op.attr("limit_indices"), strict=True)
    return all(0 <= lo <= hi and le(hi, n) for n, lo, hi in rows)


_SLICE_RULES = (
    law(
        "C2",
        "as many start indices, limit indices and strides as dimensions of the operand",
        lambda op: all(len(op.attr(n)) == tensor(op, 0).rank for n in _SLICE),
        "operand",
        *_SLICE,
    ),
    law("C3", "0 <= start_indices <= limit_indices <= the operand's shape", _slice_limits, "operand", *_SLICE[:2]),
    at_least("C4", "strides", 1),
)


def _infer_slice(op: Op) -> Sequence[Type]:
    require(op, *_SLICE_RULES)
    rows = zip(*(op.attr(n) for n in _SLICE), strict=True)
    return (TensorType(tuple(-(-(hi - lo) // step) for lo, hi, step in rows), tensor(op, 0).element),)


_INFERRED_SHAPE = "the result has the inferred shape"


def _shape_is_inferred(infer: InferFunction) -> Callable[[Op], bool | str]:
    def holds(op: Op) -> bool | str:
        (expected,) = infer(op)
        found = result_type(op)
        return same_shape(expected.shape, found.shape) or f"expected {expected}, found {found}"  # type: ignore[union-attr]

    return holds


register(
    OpDefinition(
        name="stablehlo.slice",
        spec="StableHLO: slice",
        operands=(Operand("operand", _VALUE),),
        attributes=(
            Attribute("start_indices", "i64s"),
            Attribute("limit_indices", "i64s"),
            Attribute("strides", "i64s"),
        ),
        infer=_infer_slice,
        access=_slice_access,
        semantics=Move(),
        constraints=(*_SLICE_RULES, _same_element, law("C5", _INFERRED_SHAPE, _shape_is_inferred(_infer_slice), result=True)),
    )
)


def _reverse_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    shape, reversed_dims = op.results[0].shape, op.attr("dimensions")
    ix.read(0, [shape[i] - 1 - x if i in reversed_dims else x for i, x in enumerate(d)])


@rule("C2", "dimensions differ from each other")
def _reverse_unique(op: Op) -> str | None:
    dims = op.attr("dimensions")
    return None if len(set(dims)) == len(dims) else f"expected distinct dimensions, found {list(dims)}"


@rule("C3", "dimensions are dimensions of the result")
def _reverse_range(op: Op) -> str | None:
    dims, t = op.attr("dimensions"), tensor(op, 0)
    return None if all(0 <= k < t.rank for k in dims) else f"expected dimensions of {t}, found {list(dims)}"


def _infer_operand(op: Op) -> Sequence[Type]:
    return (tensor(op, 0),)


register(
    OpDefinition(
        name="stablehlo.reverse",
        spec="StableHLO: reverse",
        operands=(Operand("operand", _VALUE),),
        attributes=(Attribute("dimensions", "i64s"),),
        infer=_infer_operand,
        access=_reverse_access,
        semantics=Move(),
        constraints=(_same_element, _reverse_unique, _reverse_range),
    )
)

# ---------------------------------------------------------------- several reads, one of which holds


def _concatenate_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    axis, start = op.attr("dimension"), 0
    for k, v in enumerate(op.operands):
        n = v.shape[axis]
        if n:
            index = [x - start if i == axis else x for i, x in enumerate(d)]
            ix.read(k, index, [Condition(d[axis], start, start + n - 1)])
        start += n


def _alike_but_for_axis(op: Op) -> bool:
    axis = op.attr("dimension")
    shapes = [t.shape for t in inputs(op, "inputs")]
    if not 0 <= axis < len(shapes[0]):
        return len({len(x) for x in shapes}) == 1  # C4 tells
    return same_shapes(*((*x[:axis], None, *x[axis + 1 :]) if axis < len(x) else x for x in shapes))


_CONCATENATE_RULES = (
    law("C3", "at least one input", lambda op: bool(op.operands) or "found none"),
    law("C1", "inputs have one element type", lambda op: one_element(*inputs(op, "inputs")), "inputs"),
    law("C2", "inputs have one shape but for the concatenated dimension", _alike_but_for_axis, "inputs", "dimension"),
    within("C4", "dimension", "the inputs' dimensions", lambda op: tensor(op, 0).rank),
)


def _infer_concatenate(op: Op) -> Sequence[Type]:
    require(op, *_CONCATENATE_RULES)
    axis, first = op.attr("dimension"), tensor(op, 0)
    columns = list(zip(*(t.shape for t in inputs(op, "inputs")), strict=True))
    total = None if None in columns[axis] else sum(n for n in columns[axis] if n is not None)
    shape = tuple(total if i == axis else next((n for n in c if n is not None), None) for i, c in enumerate(columns))
    return (TensorType(shape, first.element),)


register(
    OpDefinition(
        name="stablehlo.concatenate",
        spec="StableHLO: concatenate",
        operands=(Operand("inputs", _VALUE, variadic=True),),
        attributes=(Attribute("dimension", "i64"),),
        infer=_infer_concatenate,
        access=_concatenate_access,
        semantics=Move(),
        constraints=(
            *_CONCATENATE_RULES,
            law(
                "C5",
                "the result has the inputs' element type",
                lambda op: one_element(tensor(op, 0), result_type(op)),
                "inputs",
                "result",
            ),
            law("C6", _INFERRED_SHAPE, _shape_is_inferred(_infer_concatenate), result=True),
        ),
    )
)


def _pad_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    index: list[Index] = []
    where: list[Condition] = []
    spans = zip(
        d, tensor(op, 0).static_shape, op.attr("edge_padding_low"), op.attr("interior_padding"), op.results[0].shape, strict=True
    )
    for x, n, low, inner, out in spans:
        step = inner + 1
        first, last = low, low + (n - 1) * step
        index.append((x - low) // step if step != 1 else x - low)
        if first > 0 or last < out - 1:
            where.append(Condition(x, first, last))
        if step != 1:
            where.append(Condition((x - low) % step, 0, 0))
    ix.read(0, index, where)
    ix.read(1, ())


_PADDINGS = ("edge_padding_low", "edge_padding_high", "interior_padding")


def _padded(op: Op) -> tuple[int | None, ...]:
    rows = zip(tensor(op, 0).shape, *(op.attr(n) for n in _PADDINGS), strict=True)
    return tuple(None if n is None else low + n + max(n - 1, 0) * inner + high for n, low, high, inner in rows)


_PAD_RULES = (
    law(
        "C2",
        "as many entries of each padding as dimensions of the operand",
        lambda op: all(len(op.attr(n)) == tensor(op, 0).rank for n in _PADDINGS),
        "operand",
        *_PADDINGS,
    ),
    at_least("C3", "interior_padding", 0),
    law(
        "C4", "the padded shape is not negative", lambda op: all(n is None or n >= 0 for n in _padded(op)), "operand", *_PADDINGS
    ),
)


def _infer_pad(op: Op) -> Sequence[Type]:
    require(op, *_PAD_RULES)
    t = tensor(op, 0)
    return (TensorType(_padded(op), t.element, _padded_bounds(op, t)),)


def _padded_bounds(op: Op, t: TensorType) -> tuple[int | None, ...] | None:
    if not t.bounds:
        return None
    spans = (op.attr("edge_padding_low"), op.attr("edge_padding_high"), op.attr("interior_padding"))
    bounds: list[int | None] = []
    for b, low, high, inner in zip(t.bounds, *spans, strict=True):
        bounds.append(None if b is None else low + b + max(b - 1, 0) * inner + high)
        if b is not None and (bounds[-1] or 0) < 0:
            raise fail(op, f"expected a result of bound 0 or more, found {bounds[-1]}", "C4")
    return tuple(bounds)


@rule("C1", "operand, padding_value and result have the same element type", result=True)
def _pad_elements(op: Op) -> str | None:
    a, b = tensor(op, 0), tensor(op, 1)
    if b.rank != 0:
        return f"expected a scalar padding value, found {b}"
    return (
        None if one_element(a, b, result_type(op)) else f"expected {a.element}, found {b.element} and {result_type(op).element}"
    )


register(
    OpDefinition(
        name="stablehlo.pad",
        spec="StableHLO: pad",
        operands=(Operand("operand", _VALUE), Operand("padding_value", tensors(*ANY, quantized="per-tensor", rank=0))),
        attributes=(
            Attribute("edge_padding_low", "i64s"),
            Attribute("edge_padding_high", "i64s"),
            Attribute("interior_padding", "i64s"),
        ),
        infer=_infer_pad,
        access=_pad_access,
        semantics=Move(otherwise=1),
        constraints=(*_PAD_RULES, _pad_elements, law("C4", _INFERRED_SHAPE, _shape_is_inferred(_infer_pad), result=True)),
    )
)
