"""Decompositions of what is not elementwise: implicit broadcasting, constants, top_k, scan, ragged_dot, scaled_dot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from hlo.attributes import DotDimensions
from hlo.decompositions.registry import Rewriter, decomposition, rule
from hlo.errors import Declined
from hlo.module import DenseArray, Op, Value
from hlo.ops.dialects.chlo import broadcast_maps
from hlo.registry import definition, definitions
from hlo.types import ELEMENT_TYPES, ElementType, TensorType
from hlo.typesets import TYPE_SETS, TypeSet

__all__: list[str] = []

Values = tuple[Value, ...]
Axes = tuple[int, ...]
_NEEDS_SIZES = Declined("its sizes must be known: which dimensions stretch depends on them")


def _broadcasting(name: str) -> None:
    base = name.replace("chlo.broadcast_", "stablehlo.")
    inner = base if _is_stablehlo(base) else name.replace("broadcast_", "")

    @rule(name)
    def spread(rewriter: Rewriter, op: Op, operands: Values) -> Values | Declined:
        """broadcast_in_dim of each operand to the common shape, then the op without broadcasting."""
        shape, maps = broadcast_maps(op)
        if None in shape or not all(v.tensor.is_static for v in operands):
            return _NEEDS_SIZES
        b = rewriter.builder
        wide = tuple(
            v if v.tensor.shape == shape else b.broadcast_in_dim(v, shape, m) for v, m in zip(operands, maps, strict=True)
        )
        if inner == "stablehlo.select" and operands[0].rank == 0:
            wide = (operands[0], *wide[1:])
        attributes = {k: v for k, v in op.attributes.items() if k != "broadcast_dimensions"}
        for v, operand in zip(wide, definition(inner).operands, strict=True):
            accepts = operand.accepts if isinstance(operand.accepts, TypeSet) else TYPE_SETS[operand.accepts]
            if not accepts.has(v.type):  # the broadcasting form takes more types than the op itself
                return Declined(f"{inner} does not take {v.type}")
        further = decomposition(inner)
        if further is None:
            return b.emit(inner, wide, attributes)
        if isinstance(further, Declined):
            return further
        return further(rewriter, Op(definition(inner), wide, attributes), wide)


def _is_stablehlo(name: str) -> bool:
    return any(d.name == name for d in definitions())


for _d in list(definitions()):
    if _d.name.startswith("chlo.broadcast_"):
        _broadcasting(_d.name)


@rule("chlo.constant")
def constant(rewriter: Rewriter, op: Op, operands: Values) -> Values:
    return rewriter.builder.emit("stablehlo.constant", (), {"value": op.attr("value")})


@rule("chlo.constant_like")
def constant_like(rewriter: Rewriter, op: Op, operands: Values) -> Values:
    """The number as a constant of the operand's type; its bits, where it was written as bits."""
    (like,) = operands
    value = op.attr("value")
    t = like.tensor
    bits = getattr(value, "bits", None)
    if bits is not None and t.is_static:
        one = np.array(bits, np.uint64).astype(f"u{t.dtype.itemsize}").view(t.dtype)
        made = DenseArray(TensorType(t.shape, t.element), np.broadcast_to(one, t.static_shape))
        return rewriter.builder.emit("stablehlo.constant", (), {"value": made})
    return (rewriter.builder.like(getattr(value, "value", value), like),)


@rule("chlo.top_k")
def top_k(rewriter: Rewriter, op: Op, operands: Values) -> Values | Declined:
    """A stable sort of (values, places) downwards along the last dimension, cut off after k. Floats by totalOrder."""
    (x,) = operands
    t, b = x.tensor, rewriter.builder
    if not t.is_static:
        return Declined("its sizes must be known: the sorted rows are sliced")
    places = b.iota(TensorType(t.shape, ELEMENT_TYPES["i32"]), t.rank - 1)
    total = None if not getattr(t.element, "is_float", False) else "TOTALORDER"
    ordered = b.sort((x, places), lambda p, q, i, j: b.compare(p, q, "GT", None, total), t.rank - 1, True)
    limits = (*t.static_shape[:-1], op.attr("k"))
    assert isinstance(ordered, tuple)
    return tuple(b.slice(v, (0,) * t.rank, limits) for v in ordered)


@rule("chlo.scan")
def scan(rewriter: Rewriter, op: Op, operands: Values) -> Values | Declined:
    """A while loop over the scanned dimension: slices in, the body's ops, slices out."""
    b, axis = rewriter.builder, op.attr("dimension")
    count = len(op.segment("inputs"))
    ins, inits = operands[:count], operands[count:]
    outputs = [r.type for r in op.results[: len(op.results) - len(inits)]]
    if not all(isinstance(t, TensorType) and t.is_static for t in (*(v.type for v in ins), *outputs)):
        return Declined("its sizes must be known: they say how many steps there are")
    tensors = [t for t in outputs if isinstance(t, TensorType)]
    length = ins[0].shape[axis] if ins else tensors[0].static_shape[axis] if tensors else int(op.attr("scan_dim_size") or 0)
    buffers = [b.constant(0, t) for t in tensors]
    first, step = (length - 1, -1) if op.attr("is_reverse") else (0, 1)

    def begin(rank: int, i: Value) -> list[Value]:
        zero = b.constant(0)
        return [i if k == axis else zero for k in range(rank)]

    def body(i: Value, k: Value, *state: Value) -> list[Value]:
        made, carry = state[: len(buffers)], state[len(buffers) :]
        parts = []
        for x in ins:
            sizes = [1 if d == axis else n for d, n in enumerate(x.shape)]
            part = b.dynamic_slice(x, begin(x.rank, i), sizes)
            parts.append(b.reshape(part, x.shape[:axis] + x.shape[axis + 1 :]))
        results = rewriter.inline(op.regions[0], (*parts, *carry))
        written = []
        for buffer, r in zip(made, results, strict=False):
            row = b.reshape(r, (*buffer.shape[:axis], 1, *buffer.shape[axis + 1 :]))
            written.append(b.dynamic_update_slice(buffer, row, begin(buffer.rank, i)))
        return [b.add(i, b.constant(step)), b.add(k, b.constant(1)), *written, *results[len(buffers) :]]

    final = b.while_(lambda i, k, *state: b.lt(k, b.constant(length)), body, (b.constant(first), b.constant(0), *buffers, *inits))
    assert isinstance(final, tuple)
    return final[2:]


# ---------------------------------------------------------------- ragged_dot


FEW_PRODUCTS = 1 << 20
"""With fewer products than that of all rows by all groups, a choice among the groups' results is all that there is."""


def _bounds(b: Any, sizes: Value) -> list[tuple[Value, Value]]:
    """(start, end) of each group: running sums along the last dimension, without that dimension."""
    t = sizes.tensor
    lead = t.static_shape[:-1]
    wide = b.convert(sizes, "i64")
    start = b.constant(0, TensorType(lead, ELEMENT_TYPES["i64"]))
    out = []
    for g in range(t.static_shape[-1]):
        part = b.slice(wide, (0,) * (t.rank - 1) + (g,), (*lead, g + 1))
        end = b.add(start, b.reshape(part, lead))
        out.append((start, end))
        start = end
    return out


def _all_bounds(b: Any, sizes: Value) -> tuple[Value, Value]:
    """(starts, ends) of all groups."""
    (groups,) = sizes.shape
    wide = b.convert(sizes, "i64")
    zero = TensorType((), ELEMENT_TYPES["i64"])
    ends = b.reduce_window([wide], [b.constant(0, zero)], lambda p, q: b.add(p, q), (groups,), padding=((groups - 1, 0),))
    none = b.constant(0, TensorType((1,), ELEMENT_TYPES["i64"]))
    return b.concat_in_dim([none, b.slice(ends, (0,), (groups - 1,))], 0), ends


def _by_group(b: Any, bounds: tuple[Value, Value], v: Value, axis: int) -> Value:
    """[group, ...]: a factor with zeros outside of each group's part along `axis`."""
    shape = (bounds[0].shape[0], *v.shape)
    inside = _inside(b, bounds, shape, (0, axis + 1))
    copies, zeros = b.broadcast_in_dim(v, shape, range(1, len(shape))), b.constant(0, TensorType(shape, v.tensor.element))
    return b.select(inside, copies, zeros)  # type: ignore[no-any-return]


def _inside(b: Any, bounds: tuple[Value, Value], shape: Sequence[int], axes: Sequence[int]) -> Value:
    """Booleans of `shape`: the index along axes[-1] lies within the group that the indices along the other axes choose."""
    t = TensorType(tuple(shape), ELEMENT_TYPES["i64"])
    at = b.iota(t, axes[-1])
    prefix = list(axes[:-1])[: bounds[0].rank]
    low, high = (b.broadcast_in_dim(v, tuple(shape), prefix) for v in bounds)
    return b.emit("stablehlo.and", (b.ge(at, low), b.lt(at, high)))[0]  # type: ignore[no-any-return]


@rule("chlo.ragged_dot")
def ragged_dot(rewriter: Rewriter, op: Op, operands: Values) -> Values | Declined:
    """A dot_general over all groups, of rows with zeros outside of their group; a plain one where the ragged dimension is a
    batching one.

    Zeros times weights that are not finite are no numbers: where such a result comes out, groups are multiplied one by one. Where
    there is little to multiply there is a dot_general for each group, and each row's result is chosen.
    """
    lhs, rhs, sizes = operands
    b, numbers = rewriter.builder, op.attr("ragged_dot_dimension_numbers")
    dims: DotDimensions = numbers.dot
    (ragged,) = numbers.lhs_ragged
    if not all(v.tensor.is_static for v in operands):
        return Declined("its sizes must be known: there is one dot for each group")
    result = op.results[0].tensor
    element = result.element
    precision = op.attr("precision_config")

    def dot(x: Value, y: Value, d: DotDimensions) -> Value:
        return b.dot_general(x, y, d, precision, element_type=element)  # type: ignore[arg-type]

    if ragged in dims.lhs_batching:
        return (dot(lhs, rhs, dims),)
    count = sizes.shape[-1]
    products = result.size_elems * prod(lhs.shape[k] for k in dims.lhs_contracting)
    everywhere = products if ragged in dims.lhs_contracting else products * count
    is_plain = isinstance(element, ElementType) and not element.is_complex and sizes.rank == 1
    if not is_plain or count < 2 or everywhere < FEW_PRODUCTS:
        return (_chosen(b, op, operands, dot),)
    if ragged in dims.lhs_contracting:
        along = dims.rhs_contracting[dims.lhs_contracting.index(ragged)]
        bounds = _all_bounds(b, sizes)
        left, right = _by_group(b, bounds, lhs, ragged), _by_group(b, bounds, rhs, along)
        return (dot(left, right, _later(dims, (0,), (0,), (), ())),)

    (axis,) = numbers.rhs_group
    left = _by_group(b, _all_bounds(b, sizes), lhs, ragged)
    right = b.transpose(rhs, (axis, *(k for k in range(rhs.rank) if k != axis))) if axis else rhs
    batching, contracting = (tuple(k - (k > axis) for k in ks) for ks in (dims.rhs_batching, dims.rhs_contracting))
    one = DotDimensions(dims.lhs_batching, batching, dims.lhs_contracting, contracting)
    product = dot(left, right, _later(one, (), (), (0,), (0,)))
    if not getattr(rhs.tensor.element, "is_float", False):
        return (product,)
    (are_finite,) = b.emit("stablehlo.is_finite", (product,))
    finite = b.reduce([are_finite], [b.constant(True)], lambda p, q: b.emit("stablehlo.and", (p, q))[0])
    assert isinstance(finite, Value)
    found = b.if_(finite, lambda: product, lambda: _one_by_one(b, op, (lhs, right, sizes), one, dot))
    assert isinstance(found, Value)
    return (found,)


def _one_by_one(
    b: Any, op: Op, operands: Values, dims: DotDimensions, dot: Callable[[Value, Value, DotDimensions], Value]
) -> Value:
    """A loop over the groups, whose weights lie along the first dimension, of which each one's rows are put into the result."""
    lhs, rhs, sizes = operands
    (ragged,) = op.attr("ragged_dot_dimension_numbers").lhs_ragged
    order = [*dims.lhs_batching, *dims.free("lhs", lhs.rank)]
    starts, ends = _all_bounds(b, sizes)

    def body(g: Value, out: Value) -> list[Value]:
        at = [g, *[b.constant(0)] * (rhs.rank - 1)]
        part = dot(lhs, b.reshape(b.dynamic_slice(rhs, at, (1, *rhs.shape[1:])), rhs.shape[1:]), dims)
        mine = tuple(b.reshape(b.dynamic_slice(v, [g], (1,)), ()) for v in (starts, ends))
        return [b.add(g, b.constant(1)), b.select(_inside(b, mine, out.shape, [order.index(ragged)]), part, out)]

    result = op.results[0].tensor
    zeros = b.constant(0, TensorType(result.shape, result.element))
    count = b.constant(sizes.shape[0])
    return b.while_(lambda g, out: b.lt(g, count), body, (b.constant(0), zeros))[1]  # type: ignore[no-any-return]


def _later(dims: DotDimensions, lb: Axes, rb: Axes, lc: Axes, rc: Axes) -> DotDimensions:
    """Dimension numbers of factors that have one more dimension in front: these numbers, and those given for what is in front."""

    def next_ones(axes: Axes) -> Axes:
        return tuple(k + 1 for k in axes)

    return DotDimensions(
        (*lb, *next_ones(dims.lhs_batching)), (*rb, *next_ones(dims.rhs_batching)),
        (*lc, *next_ones(dims.lhs_contracting)), (*rc, *next_ones(dims.rhs_contracting)),
    )  # fmt: skip


def _chosen(b: Any, op: Op, operands: Values, dot: Callable[[Value, Value, DotDimensions], Value]) -> Value:
    """A dot_general for each group, of which each row's group is chosen."""
    lhs, rhs, sizes = operands
    numbers, result = op.attr("ragged_dot_dimension_numbers"), op.results[0].tensor
    dims: DotDimensions = numbers.dot
    (ragged,) = numbers.lhs_ragged
    own = dims.lhs_contracting if ragged in dims.lhs_contracting else dims.free("lhs", lhs.rank)
    prefix = [*dims.lhs_batching, *own[: own.index(ragged)]][: sizes.rank - 1]
    axes = [*prefix, ragged]
    groups = _bounds(b, sizes)
    if ragged in dims.lhs_contracting:
        pair = dict(zip(dims.lhs_batching + dims.lhs_contracting, dims.rhs_batching + dims.rhs_contracting, strict=True))
        parts = []
        for bounds in groups:
            left = b.select(_inside(b, bounds, lhs.shape, axes), lhs, b.like(0, lhs))
            right = b.select(_inside(b, bounds, rhs.shape, [pair[k] for k in axes]), rhs, b.like(0, rhs))
            part = dot(left, right, dims)
            parts.append(b.reshape(part, (1, *part.shape)))
        return b.concat_in_dim(parts, 0) if parts else b.constant(0, result)  # type: ignore[no-any-return]
    (axis,) = numbers.rhs_group
    batching, contracting = (tuple(k - (k > axis) for k in ks) for ks in (dims.rhs_batching, dims.rhs_contracting))
    order = [*dims.lhs_batching, *dims.free("lhs", lhs.rank)]
    out = b.constant(0, TensorType(result.shape, result.element))
    for g, bounds in enumerate(groups):
        one = b.slice_in_dim(rhs, g, g + 1, 1, axis)
        flat = b.reshape(one, rhs.shape[:axis] + rhs.shape[axis + 1 :])
        part = dot(lhs, flat, DotDimensions(dims.lhs_batching, batching, dims.lhs_contracting, contracting))
        out = b.select(_inside(b, bounds, out.shape, [order.index(k) for k in axes]), part, out)
    return out  # type: ignore[no-any-return]


def _scaled_factor(b: Any, x: Value, scale: Value, element: ElementType) -> Value:
    """x times the scale of the block that it lies in."""
    shape = x.tensor.static_shape
    pairs = [k for n, m in zip(shape, scale.tensor.static_shape, strict=True) for k in (m, n // m if m else 1)]
    table = b.broadcast_in_dim(b.convert(scale, element), tuple(pairs), tuple(2 * i for i in range(len(shape))))
    return b.multiply(b.convert(x, element), b.reshape(table, shape))  # type: ignore[no-any-return]


@rule("xla.scaled_dot")
def scaled_dot(rewriter: Rewriter, op: Op, operands: Values) -> Values | Declined:
    """The factors, each scaled by blocks in f32 (f64 for a result of f64), and a dot_general of them."""
    if not all(v.tensor.is_static for v in operands):
        return Declined("its sizes must be known: the scales are repeated over their blocks")
    lhs, rhs, lhs_scale, rhs_scale = operands
    b, element = rewriter.builder, op.results[0].tensor.element
    assert isinstance(element, ElementType)
    wide = ELEMENT_TYPES["f64" if any(v.tensor.element.bits == 64 for v in (*operands, op.results[0])) else "f32"]
    left, right = _scaled_factor(b, lhs, lhs_scale, wide), _scaled_factor(b, rhs, rhs_scale, wide)
    dims = op.attr("dot_dimension_numbers")
    product = b.dot_general(left, right, dims, op.attr("precision_config"), element_type=wide)
    return (b.convert(product, element),)
