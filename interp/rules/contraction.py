"""dot_general and its relatives.

Sums of a few products are made as the specification's `reduce` makes them, one after the other in the type of the
result. Longer ones would gather rounding errors that are nobody's fault: floats of at most 32 bits are multiplied and
summed in float64 and rounded once. Integers are exact modulo 2**bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hlo import Op, element_type
from hlo.attributes import DotAlgorithm, DotDimensions
from hlo.blas import matmul
from interp.numbers import Array, convert, is_complex, is_float, is_signed, narrow, reduce_bits, widen
from interp.quantization import expressed_dtype
from interp.registry import rule
from interp.rules.elementwise import complex_multiply
from interp.rules.reduction import FEW_TERMS

__all__ = ["contract", "product", "result_dtype", "working"]


@dataclass(frozen=True)
class Working:
    """Two factors in a type in which products and sums are made, and the way from there to the result's type."""

    left: Array
    right: Array
    finish: Callable[[Array], Array]


def _largest(x: Array) -> int:
    return max(abs(int(x.min())), abs(int(x.max()))) if x.size else 0


def working(a: Array, b: Array, dtype: np.dtype[Any], terms: int, wide: bool = True) -> Working:
    """How sums of `terms` products of elements of `a` and `b` are made.

    float    in float64, rounded once; where they need not be `wide`, in the type of the result, float32 at least
    complex  in complex128, or likewise
    integer  modulo 2**bits: in float64 where no sum can reach 2**53, else in 64-bit integers, which wrap around
    boolean  products are `and`, sums are `or`
    """
    if is_complex(dtype):
        made = np.dtype(np.complex128) if wide else dtype
        return Working(a.astype(made), b.astype(made), lambda x: x.astype(dtype, copy=False))
    if dtype.kind == "b":
        return Working(convert(a, dtype).astype(float), convert(b, dtype).astype(float), lambda x: x != 0)
    if is_float(dtype):
        made = np.dtype(np.float64) if wide or dtype.itemsize > 4 else np.dtype(np.float32)
        return Working(convert(a, made), convert(b, made), lambda x: narrow(x, dtype))
    a, b = widen(convert(a, dtype)), widen(convert(b, dtype))
    if _largest(a) * _largest(b) * terms < 2**53:
        return Working(a.astype(np.float64), b.astype(np.float64), lambda x: convert(x.astype(np.int64), dtype))
    integer = np.int64 if is_signed(dtype) else np.uint64
    return Working(a.astype(integer), b.astype(integer), lambda x: convert(x, dtype))


def result_dtype(op: Op) -> np.dtype[Any]:
    """The type an op computes in: its result's, or what a quantized result expresses."""
    return expressed_dtype(op.results[0].tensor)


# ---------------------------------------------------------------- dot products


def contract(lhs: Array, rhs: Array, dims: DotDimensions, dtype: np.dtype[Any], wide: bool = True) -> Array:
    """out[batch, free lhs, free rhs] = sum over contracting dimensions of lhs * rhs, as `dtype`; `wide` is for `working`."""
    pairs = zip(dims.lhs_batching + dims.lhs_contracting, dims.rhs_batching + dims.rhs_contracting, strict=True)
    if any(lhs.shape[i] != rhs.shape[j] for i, j in pairs):
        raise ValueError("batching and contracting dimensions differ in size")
    left_free, right_free = dims.free("lhs", lhs.ndim), dims.free("rhs", rhs.ndim)
    a = _as_matrices(lhs, dims.lhs_batching, left_free, dims.lhs_contracting)
    b = _as_matrices(rhs, dims.rhs_batching, dims.rhs_contracting, right_free)
    shape = [lhs.shape[i] for i in (*dims.lhs_batching, *left_free)] + [rhs.shape[j] for j in right_free]
    if a.shape[-1] <= FEW_TERMS and (is_float(dtype) or is_complex(dtype)):
        return narrow(_one_by_one(widen(convert(a, dtype)), widen(convert(b, dtype))), dtype).reshape(shape)
    w = working(a, b, dtype, a.shape[-1], wide)
    return w.finish(matmul(w.left, w.right)).reshape(shape)


def product(a: Array, b: Array) -> Array:
    """a * b, complex numbers by their parts."""
    return complex_multiply(a, b) if is_complex(a.dtype) else np.asarray(a * b)


def _one_by_one(a: Array, b: Array) -> Array:
    """a @ b with every product and every sum rounded, in order of the contracted index."""
    total = np.zeros((*a.shape[:-1], b.shape[-1]), a.dtype)
    for k in range(a.shape[-1]):
        total += product(a[..., :, k, None], b[..., k, None, :])
    return total


def _as_matrices(x: Array, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> Array:
    """`x` as [batch, rows, columns]."""
    sizes = [prod(x.shape[i] for i in group) for group in (batch, rows, columns)]
    return x.transpose((*batch, *rows, *columns)).reshape(sizes)


@rule("stablehlo.dot_general", dequantizes=True)
def dot_general(ctx: Any, op: Op, lhs: Array, rhs: Array) -> Array:
    dims, dtype, algorithm = op.attr("dot_dimension_numbers"), result_dtype(op), op.attr("algorithm")
    ctx.reserve(op, 8 * (lhs.size + rhs.size))
    if algorithm is None:
        return contract(lhs, rhs, dims, dtype, ctx.wide)
    return by_algorithm(ctx, op, lhs, rhs, dims, algorithm, dtype)


def by_algorithm(
    ctx: Any, op: Op, lhs: Array, rhs: Array, dims: DotDimensions, algorithm: DotAlgorithm, dtype: np.dtype[Any]
) -> Array:
    """The factors as sums of components of the precision types; the most significant products of components, summed
    in the accumulation type. Specification: dot_general, `algorithm`.
    """
    count = algorithm.num_primitive_operations
    enough = math.isqrt(count - 1) + 1 if count > 1 else 1  # components for so many products: 3 need 2, 6 and 9 need 3
    left = _components(lhs, algorithm.lhs_precision_type, max(algorithm.lhs_component_count, enough))
    right = _components(rhs, algorithm.rhs_precision_type, max(algorithm.rhs_component_count, enough))
    pairs = sorted((i + j, i, j) for i in range(len(left)) for j in range(len(right)))[:count]
    accumulation = _precision(algorithm.accumulation_type)
    floats = is_float(accumulation)
    total: Any = 0
    for _, i, j in reversed(pairs):  # the least significant first
        total = total + contract(left[i], right[j], dims, np.dtype(np.float64) if floats else accumulation)
    return convert(convert(np.asarray(total), accumulation), dtype)


def _precision(name: str) -> np.dtype[Any]:
    return np.dtype(np.float32) if name == "tf32" else element_type(name).dtype


def _components(x: Array, name: str, count: int) -> list[Array]:
    """x as the sum of `count` arrays of the precision type `name`, each the nearest to what the others leave."""
    if is_complex(x.dtype) or not is_float(_precision(name)):
        return [convert(x, _precision(name))]
    rest, parts = convert(x, np.dtype(np.float64)), []
    for _ in range(count):
        part = convert(rest, _precision(name))
        if name == "tf32":
            part = reduce_bits(part, 8, 10, 8, 23)
        parts.append(part)
        rest = rest - part.astype(np.float64)
    return parts


@rule("stablehlo.dot", dequantizes=True)
def dot(ctx: Any, op: Op, lhs: Array, rhs: Array) -> Array:
    """The last dimension of lhs with the first of rhs."""
    return contract(lhs, rhs, DotDimensions((), (), (lhs.ndim - 1,), (0,)), result_dtype(op), ctx.wide)


def _einsum(op: Op, config: str, *operands: Array) -> Array:
    """NumPy's einsum on the types that `working` picks; labels are letters, "..." stands for any further dimensions."""
    dtype = result_dtype(op)
    left = operands[0]
    right = operands[1] if len(operands) == 2 else np.ones((), left.dtype)
    w = working(left, right, dtype, left.size * right.size)
    arrays = (w.left, w.right)[: len(operands)]
    return w.finish(np.asarray(np.einsum(config.replace(" ", ""), *arrays)))


@rule("stablehlo.einsum")
def einsum(ctx: Any, op: Op, lhs: Array, rhs: Array) -> Array:
    return _einsum(op, op.attr("einsum_config"), lhs, rhs)


@rule("stablehlo.unary_einsum")
def unary_einsum(ctx: Any, op: Op, x: Array) -> Array:
    return _einsum(op, op.attr("einsum_config").lstrip(","), x)


@rule("chlo.ragged_dot")
def ragged_dot(ctx: Any, op: Op, lhs: Array, rhs: Array, group_sizes: Array) -> Array:
    """A dot whose lhs has rows in groups of `group_sizes`, one after the other along the ragged dimension.

    ragged dimension free         each group of rows meets its own slice of rhs; rows beyond all groups give 0
    ragged dimension contracting  one result for each group, in front: the sum over that group alone
    ragged dimension batching     the plain dot
    """
    d = op.attr("ragged_dot_dimension_numbers")
    dims: DotDimensions = d.dot
    (ragged,) = d.lhs_ragged
    dtype = result_dtype(op)
    if ragged in dims.lhs_batching:
        return contract(lhs, rhs, dims, dtype)
    at = np.arange(lhs.shape[ragged])
    ends = np.cumsum(group_sizes.astype(np.int64), axis=-1)
    starts = ends - group_sizes
    # Group sizes may differ along the dimensions in front of the ragged one: [those…, groups].
    prefix = _in_front(ragged, dims, lhs.ndim)[: group_sizes.ndim - 1] if group_sizes.ndim > 1 else []
    results = []
    out = np.zeros(op.results[0].shape, dtype)
    for g in range(group_sizes.shape[-1]):
        inside = (at >= starts[..., g, None]) & (at < ends[..., g, None])
        if ragged in dims.lhs_contracting:
            pair = dict(zip(dims.lhs_batching + dims.lhs_contracting, dims.rhs_batching + dims.rhs_contracting, strict=True))
            axes = [*prefix, ragged]
            left = np.where(_placed(inside, axes, lhs.ndim), lhs, np.zeros_like(lhs))
            right = np.where(_placed(inside, [pair[k] for k in axes], rhs.ndim), rhs, np.zeros_like(rhs))
            results.append(contract(left, right, dims, dtype))
            continue
        (axis,) = d.rhs_group
        part = contract(lhs, np.take(rhs, g, axis=axis), _without(dims, axis), dtype)
        order = [*dims.lhs_batching, *dims.free("lhs", lhs.ndim)]  # the result's dimensions that come from lhs
        out = np.where(_placed(inside, [order.index(k) for k in (*prefix, ragged)], out.ndim), part, out)
    return np.stack(results) if results else out


def _in_front(ragged: int, dims: DotDimensions, rank: int) -> list[int]:
    """The dimensions of lhs along which group sizes may vary: batching ones, and those of the ragged one's own kind before it."""
    own = dims.lhs_contracting if ragged in dims.lhs_contracting else dims.free("lhs", rank)
    return [*dims.lhs_batching, *own[: own.index(ragged)]]


def _without(dims: DotDimensions, axis: int) -> DotDimensions:
    """Dimension numbers after dimension `axis` of rhs was taken out."""
    batching, contracting = (tuple(k - (k > axis) for k in ks) for ks in (dims.rhs_batching, dims.rhs_contracting))
    return DotDimensions(dims.lhs_batching, batching, dims.lhs_contracting, contracting)


def _placed(mask: Array, axes: Sequence[int], rank: int) -> Array:
    """`mask` with its dimensions at `axes` of `rank` dimensions, to broadcast along the others."""
    shape = [1] * rank
    for k, n in zip(axes, mask.shape, strict=True):
        shape[k] = n
    return mask.transpose(np.argsort(axes)).reshape(shape)
