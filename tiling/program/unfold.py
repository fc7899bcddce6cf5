"""Ops of StableHLO that are other ops in short: what each stands for. One entry each in `UNFOLDED`.

    map f (x, …)                      ->  f's ops on the whole tensors
    scatter f x at no index           ->  f's ops on x and the update
    scatter f x of no updates         ->  x
    select_and_scatter of no source   ->  its initial value everywhere
    optimization_barrier x            ->  x
    sort x along a dimension of 1     ->  x
    reduce x over dimensions of 1     ->  body(init, x) on the whole tensors
    batch_norm_training x, …          ->  mean, variance, (x - mean) / sqrt(variance + epsilon) * scale + offset
    unary_einsum "ab->a"              ->  a sum
    get_dimension_size                ->  the size
    bitcast_convert to another width  ->  shifts (tiling.program.bitcasts)
    rng_bit_generator state           ->  the generator's arithmetic on counters (tiling.program.random.bits)
    convolution with one window        ->  dot_general over channels, rows and columns
    dynamic_slice of all of x         ->  x, wherever it begins
    dynamic_update_slice of all of x  ->  the update
    dot_general that contracts nothing -> 0 + x y
    fft                               ->  itself with tables of roots (tiling.routines.fourier)

A rule gives the results' values, or None for an op that it leaves as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from hlo.attributes import ConvDimensions, DotDimensions, ScatterDimensions
from hlo.builder import Builder
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import Elementwise, Literal
from hlo.types import ElementType, TensorType
from tiling.program.bitcasts import bitcast, bitcast_convert
from tiling.program.fourier_halves import fourier
from tiling.program.random.bits import random_bits

__all__ = ["PASSES", "UNFOLDED", "Unfold", "on_tensors"]

Unfold = Callable[[Builder, Op, Sequence[Value]], "Sequence[Value] | None"]


def _map(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    return on_tensors(b, op.regions[0], operands, op.results[0].shape)


def on_tensors(b: Builder, body: Block, operands: Sequence[Value], shape: tuple[int, ...]) -> Sequence[Value] | None:
    """A scalar function's ops on whole tensors of one shape; None for one that is no chain of scalar ops of its operands."""
    known = dict(zip(body.arguments, operands, strict=True))
    for inner in body.ops[:-1]:
        semantics = inner.definition.semantics
        if isinstance(semantics, Literal):
            dense: DenseArray = inner.attr("value")
            goal = TensorType(shape, dense.type.element)
            known[inner.results[0]] = b.constant(DenseArray(goal, np.broadcast_to(dense.array.reshape(()), shape)))
            continue
        if not isinstance(semantics, Elementwise) or any(v not in known for v in inner.operands):
            return None
        types = [TensorType(shape, r.tensor.element) for r in inner.results]
        made = b.emit(inner.name, [known[v] for v in inner.operands], inner.attributes, (), types)
        known.update(zip(inner.results, made, strict=True))
    return [known[v] for v in body.results] if all(v in known for v in body.results) else None


def _reduce(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    """Over dimensions of one element each nothing is folded: body(init, x) is computed in place like any scalar function."""
    count = len(operands) // 2
    inputs, inits, shape = operands[:count], operands[count:], op.results[0].shape
    if not op.attr("dimensions") or any(inputs[0].shape[k] != 1 for k in op.attr("dimensions")):
        return None
    elements = [v.tensor.element for v in (*inits, *inputs)]
    if [v.tensor.element for v in op.regions[0].arguments] != elements:
        return None  # a body that widens what it is given
    starts = [b.broadcast_in_dim(v, shape, ()) for v in inits]
    values = [b.reshape(v, shape) for v in inputs]
    return on_tensors(b, op.regions[0], [*starts, *values], shape)


def _scatter(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    """One update that goes everywhere, as `x.at[:].add(u)` has it: the body on whole tensors. None at all: the inputs."""
    dims: ScatterDimensions = op.attr("scatter_dimension_numbers")
    n = len(operands) // 2
    if 0 in operands[n + 1].shape and 0 not in operands[0].shape:
        same = all(v.type == r.type for v, r in zip(operands[:n], op.results, strict=True))
        return operands[:n] if same else None  # a body that widens its inputs, that would have to be said of none
    indices, shape = operands[n], operands[0].shape
    vectors = prod(m for k, m in enumerate(indices.shape) if k != dims.index_vector_dim)
    sizes = iter(operands[n + 1].shape[k] for k in dims.update_window_dims)
    single = {*dims.inserted_window_dims, *dims.input_batching_dims}
    window = tuple(1 if k in single else next(sizes) for k in range(len(shape)))
    if dims.scatter_dims_to_operand_dims or vectors != 1 or window != shape:
        return None
    values = [*operands[:n], *(b.reshape(u, shape) for u in operands[n + 1 :])]
    if [v.tensor.element for v in op.regions[0].arguments] != [v.tensor.element for v in values]:
        return None  # a body that widens what it is given
    return on_tensors(b, op.regions[0], values, shape)


def _select_and_scatter(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    """Of a source without elements nothing is scattered: what is there before is the initial value."""
    _, source, init = operands
    (result,) = op.results
    if 0 not in source.shape or 0 in result.shape or init.tensor.element != result.tensor.element:
        return None
    return [b.broadcast_in_dim(init, result.shape, ())]


def _barrier(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value]:
    return operands


def _sort(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    """Rows of one element are sorted."""
    return operands if operands[0].shape[op.attr("dimension")] <= 1 else None


def _product(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    """A product that sums up nothing: 0 + x y, which any kernel around it can compute where it is read."""
    (result,), numbers = op.results, op.attr("dot_dimension_numbers")
    if not isinstance(result.tensor.element, ElementType) or not all(isinstance(v.tensor.element, ElementType) for v in operands):
        return None
    real = result.tensor.element.is_float or result.tensor.element.is_integer
    sides = ((operands[0], "lhs", 0), (operands[1], "rhs", len(numbers.free("lhs", operands[0].rank))))
    if not real or any(v.shape[d] != 1 for v, side, _ in sides for d in getattr(numbers, f"{side}_contracting")):
        return None
    spread = []
    for v, side, free_before in sides:
        batching, free = getattr(numbers, f"{side}_batching"), numbers.free(side, v.rank)
        kept = [d for d in range(v.rank) if d in batching or d in free]
        at = [batching.index(d) if d in batching else len(batching) + free_before + free.index(d) for d in kept]
        if v.tensor.element != result.tensor.element:
            (v,) = b.emit("stablehlo.convert", [v], result_types=[TensorType(v.shape, result.tensor.element)])
        if len(kept) < v.rank:
            shape = tuple(v.shape[d] for d in kept)
            (v,) = b.emit("stablehlo.reshape", [v], result_types=[TensorType(shape, result.tensor.element)])
        (v,) = b.emit("stablehlo.broadcast_in_dim", [v], {"broadcast_dimensions": tuple(at)}, result_types=[result.type])
        spread.append(v)
    found = b.emit("stablehlo.multiply", spread)
    if result.tensor.element.is_float:
        zero = DenseArray(result.tensor, np.broadcast_to(np.zeros((), result.tensor.dtype), result.shape))
        found = b.emit("stablehlo.add", [*found, b.constant(zero)])
    return found


def _dimension_size(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value]:
    return [b.constant(np.int32(operands[0].shape[op.attr("dimension")]))]


def _sum(b: Builder, x: Value, dimensions: Sequence[int]) -> Value:
    zero = b.constant(np.zeros((), x.tensor.dtype))
    found = b.reduce(x, zero, lambda p, q: b.emit("stablehlo.add", (p, q))[0], dimensions)
    assert isinstance(found, Value)
    return found


def _unary_einsum(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    source, _, goal = op.attr("einsum_config").lstrip(",").replace(" ", "").partition("->")
    if len(set(source)) != len(source) or len(set(goal)) != len(goal) or "." in source or not set(goal) <= set(source):
        return None
    x = operands[0]
    lost = [k for k, letter in enumerate(source) if letter not in goal]
    if lost:
        x = _sum(b, x, lost)
    kept = [letter for letter in source if letter in goal]
    order = tuple(kept.index(letter) for letter in goal)
    return [x if order == tuple(range(len(order))) else b.emit("stablehlo.transpose", (x,), {"permutation": order})[0]]


class _Norm:
    """The numbers of a batch normalization: features along one dimension, statistics over the others."""

    def __init__(self, b: Builder, op: Op, x: Value) -> None:
        self.b, self.x = b, x
        self.axis = op.attr("feature_index")
        self.others = tuple(k for k in range(x.rank) if k != self.axis)
        self.count = self.number(x.tensor.size_elems // max(x.shape[self.axis], 1), (x.shape[self.axis],))
        self.epsilon = self.number(float(op.attr("epsilon")), (x.shape[self.axis],))

    def number(self, v: float, shape: tuple[int, ...]) -> Value:
        t = self.x.tensor
        return self.b.constant(DenseArray(TensorType(shape, t.element), np.broadcast_to(np.asarray(v, t.dtype), shape)))

    def __call__(self, word: str, *operands: Value) -> Value:
        return self.b.emit(f"stablehlo.{word}", operands)[0]

    def spread(self, v: Value) -> Value:
        return self.b.broadcast_in_dim(v, self.x.shape, (self.axis,))

    def sum(self, v: Value) -> Value:
        return _sum(self.b, v, self.others)

    def mean(self, v: Value) -> Value:
        return self("divide", self.sum(v), self.count)

    def deviation(self, variance: Value) -> Value:
        return self("sqrt", self("add", variance, self.epsilon))

    def normalized(self, scale: Value, offset: Value, mean: Value, variance: Value) -> Value:
        centred = self("subtract", self.x, self.spread(mean))
        unit = self("divide", centred, self.spread(self.deviation(variance)))
        return self("add", self("multiply", self.spread(scale), unit), self.spread(offset))


def _batch_norm_inference(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value]:
    x, scale, offset, mean, variance = operands
    return [_Norm(b, op, x).normalized(scale, offset, mean, variance)]


def _batch_norm_training(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value]:
    x, scale, offset = operands
    n = _Norm(b, op, x)
    mean = n.mean(x)
    centred = n("subtract", x, n.spread(mean))
    variance = n.mean(n("multiply", centred, centred))
    return [n.normalized(scale, offset, mean, variance), mean, variance]


def _batch_norm_grad(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value]:
    """d x = scale / deviation / count * (count * g - sum g - centred * sum(g * centred) / (variance + epsilon))"""
    x, scale, mean, variance, g = operands
    n = _Norm(b, op, x)
    centred = n("subtract", x, n.spread(mean))
    deviation = n.deviation(variance)
    unit = n("divide", centred, n.spread(deviation))
    grad_offset, grad_scale = n.sum(g), n.sum(n("multiply", g, unit))
    product = n.sum(n("multiply", g, centred))
    whole = n("multiply", g, n.spread(n.count))
    along = n("multiply", n.spread(product), centred)
    along = n("divide", along, n.spread(n("add", variance, n.epsilon)))
    rest = n("subtract", n("subtract", whole, n.spread(grad_offset)), along)
    factor = n("divide", n("divide", scale, deviation), n.count)
    return [n("multiply", n.spread(factor), rest), grad_scale, grad_offset]


def _convolution(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    """A window that is as large as its image: features of whole images, whose weights lie as they are read."""
    x, w = op.operands
    types = [v.type for v in (x, w, op.results[0])]
    if not all(isinstance(t, TensorType) and t.is_static and isinstance(t.element, ElementType) for t in types):
        return None
    n: ConvDimensions = op.attr("dimension_numbers")
    window, image = (tuple(v.shape[d] for d in places) for v, places in ((w, n.kernel_spatial), (x, n.input_spatial)))
    plain = all(op.attr(name) == 1 for name in ("feature_group_count", "batch_group_count"))
    edges = [p for pair in op.attr("padding") or () for p in pair]
    holes = [d for name in ("lhs_dilation", "rhs_dilation") for d in op.attr(name) or ()]
    if window != image or prod(window) == 1 or not plain or any(edges) or any(d != 1 for d in holes):
        return None
    if any(op.attr("window_reversal") or ()):
        return None
    # Weights are read as they lie: the image's dimensions come in their order.
    place = {n.kernel_input_feature: n.input_feature, **dict(zip(n.kernel_spatial, n.input_spatial, strict=True))}
    features, order = n.kernel_output_feature, (n.input_batch, *(place[d] for d in sorted(place)))
    if features not in (0, w.rank - 1):
        return None
    count, size, depth = x.shape[n.input_batch], w.shape[features], prod(w.shape) // max(w.shape[features], 1)
    turned = operands[0] if order == tuple(range(x.rank)) else b.one("stablehlo.transpose", operands[0], permutation=order)
    rows = b.reshape(turned, (count, depth))
    weights = b.reshape(operands[1], (size, depth) if features == 0 else (depth, size))
    along, precision = (1,) if features == 0 else (0,), tuple(op.attr("precision_config") or ())
    element = op.results[0].tensor.element
    assert isinstance(element, ElementType)
    if n.output_batch < n.output_feature:
        product = b.dot_general(rows, weights, DotDimensions((), (), (1,), along), precision, element_type=element)
    else:
        product = b.dot_general(weights, rows, DotDimensions((), (), along, (1,)), precision[::-1], element_type=element)
    return [b.reshape(product, op.results[0].shape)]


def _dynamic_slice(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    """A slice that begins where it fits is all of the operand, if it is as large."""
    return [operands[0]] if operands[0].type == op.results[0].type else None


def _dynamic_update_slice(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value] | None:
    return [operands[1]] if operands[1].type == op.results[0].type else None


UNFOLDED: dict[str, Unfold] = {
    "stablehlo.convolution": _convolution,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.map": _map,
    "stablehlo.scatter": _scatter,
    "stablehlo.select_and_scatter": _select_and_scatter,
    "stablehlo.bitcast_convert": bitcast_convert,
    "xla.bitcast": bitcast,
    "stablehlo.optimization_barrier": _barrier,
    "stablehlo.sort": _sort,
    "stablehlo.reduce": _reduce,
    "stablehlo.get_dimension_size": _dimension_size,
    "stablehlo.unary_einsum": _unary_einsum,
    "stablehlo.dot_general": _product,
    "stablehlo.batch_norm_inference": _batch_norm_inference,
    "stablehlo.batch_norm_training": _batch_norm_training,
    "stablehlo.batch_norm_grad": _batch_norm_grad,
    "stablehlo.rng_bit_generator": random_bits,
    "stablehlo.fft": fourier,
}

PASSES = {
    "stablehlo.bitcast_convert": "bitcasts",
    "xla.bitcast": "bitcasts",
    "stablehlo.rng_bit_generator": "random_bits",
    "stablehlo.fft": "fourier_halves",
}
"""Ops whose rule is a pass of its own (`tiling.pipeline`); the others together are `unfold`."""
