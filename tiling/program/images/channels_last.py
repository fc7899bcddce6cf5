"""Which order the dimensions of values between convolutions have: channels last, where that converts little.

    y = convolution(x) -> [b, f, 0, 1];  relu;  convolution([b, f, 0, 1])     ->     the same with [b, 0, 1, f] in between

A convolution reads and writes any order of dimensions, which its dimension numbers name. With channels last they are consecutive
columns of a product whose rows are the pixels, whatever the image's width; what is between (norms, activations, pooling,
depthwise windows) has one vector of channels after the other and no borders inside of a vector.

The order goes on through every op that does the same for each element, or names its dimensions, and through reshapes that cut or
put together a dimension (`tiling.program.images.keep_apart` sees to it that they do no more). Such values are one component,
and have it all or not: not where what is transposed for it (arguments, results, what other ops read) is more than half of what
convolutions write and read. Sums of products follow from the order of a window's dimensions, so what is decided follows from the
program's shapes alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo.attributes import ConvDimensions
from hlo.clone import captured_values, clone_block
from hlo.module import Block, DenseArray, Op, Value
from hlo.registry import Elementwise, Literal, definition
from hlo.types import ElementType, TensorType, Type
from tiling.program.images.keep_apart import common_parts, keep_apart, parts_of

__all__ = ["Order", "channels_last"]

LEAST_CHANNELS = 8  # below, a vector is not filled
LEAST_SUMMED = 32  # pixels that an element of a kernel's gradient is summed over
LEAST_REPEATED = 8  # times that what is spread is small beside its result
MOST_CONVERTED = 0.5  # elements that are transposed, to those that convolutions write and read

Order = tuple[int, ...]
"""The dimensions of a value as they lie, outermost first: dimension `order[k]` is the k-th."""

_PER_DIMENSION = {
    "stablehlo.pad": ("edge_padding_low", "edge_padding_high", "interior_padding"),
    "stablehlo.slice": ("start_indices", "limit_indices", "strides"),
    "stablehlo.reduce_window": ("window_dimensions", "window_strides", "base_dilations", "window_dilations", "padding"),
}
"""Ops with attributes that have an entry for each dimension of operands and results."""

_NAMED = {"stablehlo.concatenate": "dimension", "stablehlo.reverse": "dimensions"}
"""Ops with an attribute that names dimensions, which operands and result have in common."""

_CONVOLUTION, _REDUCE, _TRANSPOSE = "stablehlo.convolution", "stablehlo.reduce", "stablehlo.transpose"
_BROADCAST, _RESHAPE, _CONSTANT = "stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.constant"
_MOVES, _SCALES = (_TRANSPOSE, _RESHAPE, "stablehlo.slice"), ("stablehlo.multiply", "stablehlo.add")


def channels_last(ops: Sequence[Op], results: Sequence[Value]) -> tuple[Sequence[Op], Sequence[Value]]:
    """Ops in dependency order and results, with channels last between convolutions where few elements are transposed for it.

    Arguments and results keep their order.
    """
    if not any(op.name == _CONVOLUTION for op in ops):
        return ops, results
    apart, found = keep_apart(ops, results)
    orders = _chosen(apart, found)
    if not orders:
        return ops, results
    rewriting = _Rewriting(orders)
    for op in apart:
        rewriting.append(op)
    return rewriting.made, [rewriting.as_it_was(v) for v in found]


# ---------------------------------------------------------------- which order goes where


def _identity(v: Value) -> Order:
    return tuple(range(v.rank))


def _lies_alike(v: Value, order: Order) -> bool:
    """Whether an order is the value's own in memory: no two dimensions of more than one element change places."""
    kept = [d for d in order if v.shape[d] != 1]
    return kept == sorted(kept)


def _is_static(v: Value) -> bool:
    return isinstance(v.type, TensorType) and isinstance(v.type.element, ElementType) and v.type.is_static


def _is_convolution(op: Op) -> bool:
    return op.name == _CONVOLUTION and all(_is_static(v) for v in (*op.operands, *op.results))


def _order_of_image(op: Op) -> Order:
    """A convolution's image with channels last."""
    n: ConvDimensions = op.attr("dimension_numbers")
    return (n.input_batch, *n.input_spatial, n.input_feature)


def _order_of_result(op: Op) -> Order:
    """A convolution's result with channels last."""
    n: ConvDimensions = op.attr("dimension_numbers")
    return (n.output_batch, *n.output_spatial, n.output_feature)


def _after(op: Op, order: Order) -> Order | None:
    """The order of an op's results where its operands of that rank have `order`; None for an op that no order goes through."""
    if not all(_is_static(v) for v in (*op.operands, *op.results)):
        return None
    if isinstance(op.definition.semantics, Elementwise):
        shape = op.results[0].shape
        return order if all(v.rank == 0 or v.shape == shape for v in op.operands) else None
    if op.name in _PER_DIMENSION or op.name in _NAMED:
        return order
    if op.name == _REDUCE:
        gone = set(op.attr("dimensions"))
        kept = [d for d in range(len(order)) if d not in gone]
        return tuple(kept.index(d) for d in order if d not in gone)
    if op.name == _TRANSPOSE:
        permutation = tuple(op.attr("permutation"))
        return tuple(permutation.index(d) for d in order)
    return _through_reshape(op, order) if op.name == _RESHAPE else None


def _through_reshape(op: Op, order: Order) -> Order | None:
    """The order of dimensions that are parts of the operand's, or made of parts that lie side by side; None for other shapes."""
    before, after = op.operands[0].shape, op.results[0].shape
    split = parts_of(before, after)
    if split is not None:
        return tuple(p for d in order for p in split[d])
    fine = common_parts(before, after)
    cut, merged = (None, None) if fine is None else (parts_of(before, fine), parts_of(after, fine))
    if fine is None or cut is None or merged is None:
        return None
    lies = [p for d in order for p in cut[d] if fine[p] != 1]
    places = [[lies.index(p) for p in group if fine[p] != 1] for group in merged]
    if any(at and at != list(range(at[0], at[0] + len(at))) for at in places):
        return None
    return tuple(sorted(range(len(merged)), key=lambda d: places[d] or [-1]))


class _Components:
    """Values that have an order together, or none of them: sets that grow together."""

    def __init__(self) -> None:
        self._above: dict[Value, Value] = {}

    def root(self, v: Value) -> Value:
        while (above := self._above.setdefault(v, v)) is not v:
            self._above[v] = self._above[above]
            v = above
        return v

    def join(self, a: Value, b: Value) -> None:
        self._above[self.root(a)] = self.root(b)


@dataclass
class _Weight:
    """Elements of a component that convolutions write and read, and that are transposed on its border."""

    used: int = 0
    converted: int = 0


def _chosen(ops: Sequence[Op], results: Sequence[Value]) -> dict[Value, Order]:
    """The order of each value that has another one than its own."""
    orders: dict[Value, Order] = {}
    parts = _Components()
    border: set[tuple[Value, Value]] = set()  # a value that is transposed, and one of the component for which it is
    used: list[Value] = []
    for op in ops:
        ordered = [v for v in op.operands if v in orders]
        if _is_convolution(op):
            made, order = op.results[0], _order_of_result(op)
            # Of two images it makes a kernel's gradient, which is apart: each element is a sum over pixels, and worth a turn.
            is_image = op.operands[1] not in orders
            is_wanted = is_image or _summed_pixels(op) >= LEAST_SUMMED
            if is_wanted and not _lies_alike(made, order) and made.shape[order[-1]] >= LEAST_CHANNELS:
                orders[made] = order
                used += [] if is_image else [made, made]
            _weigh_convolution(op, orders, parts, used, border, is_image)
            continue
        if _spreads_few(op):
            continue
        if not ordered and _brings_first(op):
            orders[op.results[0]] = _order_of_operand(op)
            continue
        inner = [v for b in op.regions for v in captured_values(b) if v in orders]
        after = _after(op, orders[ordered[0]]) if ordered and not inner else None
        if after is None:
            border.update((v, v) for v in (*ordered, *inner))
            continue
        for v in ordered[1:]:
            if orders[v] == orders[ordered[0]]:
                parts.join(v, ordered[0])
            else:
                border.add((v, v))
        order = orders[ordered[0]]
        border.update(
            (v, ordered[0])
            for v in op.operands
            if v.rank and v not in orders and not _is_remade(v) and not (v.rank == len(order) and _is_turned_from(v, order))
        )
        for r in op.results:
            if not _lies_alike(r, after):
                orders[r] = after
                parts.join(r, ordered[0])
    given = {v for v in results if v in orders}
    border.update((v, v) for v in given)
    weights: dict[Value, _Weight] = {}
    for v in used:
        weights.setdefault(parts.root(v), _Weight()).used += v.tensor.size_elems
    for v, at in border:
        if v in given or not _is_moved_in_rows(v, orders[at]):
            weights.setdefault(parts.root(at), _Weight()).converted += v.tensor.size_elems
    kept = {root for root, w in weights.items() if w.converted <= MOST_CONVERTED * w.used}
    return {v: order for v, order in orders.items() if parts.root(v) in kept}


def _summed_pixels(op: Op) -> int:
    """How many places of its second operand each element of a convolution's result is a sum over."""
    kernel = op.operands[1]
    n: ConvDimensions = op.attr("dimension_numbers")
    return kernel.tensor.size_elems // max(1, kernel.shape[n.kernel_output_feature])


def _brings_first(op: Op) -> bool:
    """Whether an op moves the last dimension, of channels, behind the first one: its result lies with channels last."""
    if op.name != _TRANSPOSE or not _is_static(op.operands[0]):
        return False
    rank = op.results[0].rank
    is_image = rank >= 4 and tuple(op.attr("permutation")) == (0, rank - 1, *range(1, rank - 1))
    return is_image and op.results[0].shape[1] >= LEAST_CHANNELS and not _lies_alike(op.results[0], _order_of_operand(op))


def _order_of_operand(op: Op) -> Order:
    """A transpose's result as its operand lies."""
    permutation = tuple(op.attr("permutation"))
    return tuple(permutation.index(d) for d in range(len(permutation)))


def _weigh_convolution(
    op: Op, orders: Mapping[Value, Order], parts: _Components, used: list[Value], border: set[tuple[Value, Value]],
    is_image: bool,
) -> None:  # fmt: skip
    """What a convolution writes and reads counts for the component, and what it has to turn against it.

    It reads one order and writes another as well, but as slowly as if one were transposed; an image of few channels is no matter.
    What is made of two images (`is_image` is false) has a component of its own.
    """
    image, made = op.operands[0], op.results[0]
    ordered = [v for v in (*op.operands, *((made,) if is_image else ())) if v in orders]
    used += ordered
    for v in ordered[1:]:
        parts.join(v, ordered[0])
    if not ordered:
        return
    order = _order_of_image(op)
    is_turned = image not in orders and not _lies_alike(image, order) and not _is_turned_from(image, order)
    if is_turned and image.shape[order[-1]] >= LEAST_CHANNELS:
        border.add((image, ordered[0]))
    if is_image and made not in orders and not _lies_alike(made, _order_of_result(op)):
        border.add((made, ordered[0]))


def _spreads_few(op: Op) -> bool:
    """Whether few elements are repeated so often that it does not matter in which order they lie."""
    if op.name != _BROADCAST or not all(_is_static(v) for v in (*op.operands, *op.results)):
        return False
    return op.operands[0].tensor.size_elems * LEAST_REPEATED <= op.results[0].tensor.size_elems


def _is_remade(v: Value) -> bool:
    """Whether a value is made in any order by the op that makes it: one element or few, spread; a constant that repeats one."""
    op = v.op
    if op is None or not _is_static(v):
        return False
    if op.name == _CONSTANT:
        return _is_splat(op)
    return op.name == _BROADCAST or (op.name == _RESHAPE and _has_one_long_dimension(v))


def _order_of_source(v: Value) -> Order:
    """The order in which the elements of a value lie where they come from, through transposes, reshapes, slices and scalings.

    Tokens [b, p, f], transposed to [b, f, p] and cut to an image [b, f, 0, 1], lie as [b, 0, 1, f].
    """
    moved = _moves_of(v)
    order: Order | None = None
    for op in reversed(moved):
        k = _moved_operand(op)
        assert k is not None
        after = _after(op, _identity(op.operands[k]) if order is None else order)
        order = _identity(op.results[0]) if after is None else after
    return _identity(v) if order is None else order


def _moves_of(v: Value) -> list[Op]:
    """The transposes, reshapes, slices and scalings that a value is made by, the last one first."""
    found: list[Op] = []
    while (op := v.op) is not None and _is_static(v) and (k := _moved_operand(op)) is not None:
        found.append(op)
        v = op.operands[k]
    return found


def _moved_operand(op: Op) -> int | None:
    """The operand whose elements an op moves, or scales each; None where there is no such one."""
    if op.name in _MOVES:
        return 0 if _is_static(op.operands[0]) else None
    if op.name not in _SCALES:
        return None
    others = [k for k, v in enumerate(op.operands) if not _is_remade(v)]
    return others[0] if len(others) == 1 and _is_static(op.operands[others[0]]) else None


def _is_turned_from(v: Value, order: Order) -> bool:
    """Whether a value comes by transposes from one that lies in this order: two turns, of which nothing is left."""
    lies = _order_of_source(v)
    return not _lies_alike(v, lies) and _without_single(v, lies) == _without_single(v, order)


def _is_moved_in_rows(v: Value, order: Order) -> bool:
    """Whether vectors stay what they are where a value is brought from its own order into another one, or back."""
    here, there = _without_single(v, _identity(v)), _without_single(v, order) if v.rank == len(order) else []
    return bool(there) and here[-1] == there[-1] and v.shape[here[-1]] >= LEAST_CHANNELS


def _without_single(v: Value, order: Order) -> list[int]:
    """The dimensions of more than one element, in an order."""
    return [d for d in order if v.shape[d] != 1]


def _is_splat(op: Op) -> bool:
    value: DenseArray = op.attr("value")
    return isinstance(op.definition.semantics, Literal) and value.is_splat


def _has_one_long_dimension(v: Value) -> bool:
    return sum(n != 1 for n in v.shape) <= 1


# ---------------------------------------------------------------- the ops in these orders


def _permuted(values: Sequence[Any], order: Order) -> tuple[Any, ...]:
    return tuple(values[d] for d in order)


def _type_in(t: TensorType, order: Order) -> TensorType:
    return TensorType(_permuted(t.static_shape, order), t.element)


class _Rewriting:
    """The ops as they are made, and each value in the orders that it is asked for in."""

    def __init__(self, orders: Mapping[Value, Order]) -> None:
        self.orders = orders
        self.made: list[Op] = []
        self.forms: dict[tuple[Value, Order], Value] = {}
        self.later: set[Value] = set()  # what is made in the orders that it is asked for in, and not before

    def append(self, op: Op) -> None:
        """The op, its results in their orders."""
        ordered = [v for v in op.operands if v in self.orders]
        order = self.orders[ordered[0]] if ordered else ()
        if not ordered and op.name == _TRANSPOSE and op.results[0] in self.orders:
            self.forms[op.results[0], self.orders[op.results[0]]] = self.as_it_was(op.operands[0])  # it lies so already
        elif _is_convolution(op) and (ordered or op.results[0] in self.orders):
            self._new(op, *self._convolution(op))
        elif ordered and _spreads_few(op):
            self.later.add(op.results[0])
        elif ordered and self._goes_on(op, order):
            self._follow(op, order)
        else:
            operands, regions = [self.as_it_was(v) for v in op.operands], [self._region(b) for b in op.regions]
            if operands == list(op.operands) and all(a is b for a, b in zip(regions, op.regions, strict=True)):
                self.made.append(op)
            else:
                self._new(op, operands, op.attributes, [r.type for r in op.results])

    def _goes_on(self, op: Op, order: Order) -> bool:
        """Whether results have the order of the operands, or one that is their own in memory."""
        after = _after(op, order)
        return after is not None and all(
            self.orders[r] == after if r in self.orders else _lies_alike(r, after) for r in op.results
        )

    def _follow(self, op: Op, order: Order) -> None:
        """The op in the order of its operands."""
        operands, attributes, after = self._followed(op, order)
        if op.name == _TRANSPOSE:
            made: Sequence[Value] = operands  # it lies so already
        else:
            made = self._new(op, operands, attributes, [_type_in(r.tensor, after) for r in op.results])
        for old, new in zip(op.results, made, strict=True):
            if old in self.orders:
                self.forms[old, after] = new
            else:
                self.forms[old, _identity(old)] = new if new.type == old.type else self._one(_RESHAPE, (new,), {}, old.tensor, op)

    def as_it_was(self, v: Value) -> Value:
        """A value in its own order."""
        if not _is_static(v):
            return self.forms.get((v, ()), v)
        return self.form(v, _identity(v))

    def form(self, v: Value, order: Order) -> Value:
        """A value in an order: as it was made, or made again."""
        found = self.forms.get((v, order))
        if found is None:
            found = self.forms[v, order] = self._again(v, order)
        return found

    def _again(self, v: Value, order: Order) -> Value:
        own = _identity(v)
        if v not in self.orders and order == own and v not in self.later:
            return v
        op, t = v.op, _type_in(v.tensor, order)
        if op is not None and v not in self.orders and _is_remade(v):
            if op.name == _CONSTANT:
                constant: DenseArray = op.attr("value")
                repeated = np.broadcast_to(constant.array.reshape(-1)[:1].reshape(()), t.static_shape)
                return self._one(_CONSTANT, (), {"value": DenseArray(t, repeated)}, t, op)
            (given,) = op.operands
            if op.name == _RESHAPE:
                return self._one(_RESHAPE, (self.as_it_was(given),), {}, t, op)
            lies = self.orders.get(given, _identity(given))
            places = tuple(order.index(d) for d in _permuted(op.attr("broadcast_dimensions"), lies))
            return self._one(_BROADCAST, (self.form(given, lies),), {"broadcast_dimensions": places}, t, op)
        if op is not None and v not in self.orders and _is_turned_from(v, order):
            given = self._as_it_lies(v)
            return given if given.type == t else self._one(_RESHAPE, (given,), {}, t, op)
        here = self.orders.get(v, own)
        source = self.forms.get((v, here), v)
        if _without_single(v, here) == _without_single(v, order):
            return self._one(_RESHAPE, (source,), {}, t, op)
        return self._one(_TRANSPOSE, (source,), {"permutation": tuple(here.index(d) for d in order)}, t, op)

    def _as_it_lies(self, v: Value) -> Value:
        """A value in the order of its source: the same reshapes, slices and scalings, and no transposes."""
        lies = _order_of_source(v)
        if v in self.orders or _lies_alike(v, lies):
            return self.form(v, lies)
        known = self.forms.get((v, lies))
        if known is not None:
            return known
        op = v.op
        k = None if op is None else _moved_operand(op)
        assert op is not None and k is not None
        made, t = self._as_it_lies(op.operands[k]), _type_in(v.tensor, lies)
        if op.name in _SCALES:
            operands = [made if x is op.operands[k] else self.form(x, lies) for x in op.operands]
            made = self._one(op.name, operands, op.attributes, t, op)
        elif op.name in _PER_DIMENSION:
            attributes = {name: _permuted(op.attr(name), lies) for name in _PER_DIMENSION[op.name]}
            made = self._one(op.name, (made,), attributes, t, op)
        elif made.type != t:
            made = self._one(_RESHAPE, (made,), {}, t, op)
        self.forms[v, lies] = made
        return made

    def _one(self, name: str, operands: Sequence[Value], attributes: Mapping[str, Any], t: TensorType, at: Op | None) -> Value:
        op = Op(definition(name), operands, attributes, (), [t], at.location if at is not None else None)
        self.made.append(op)
        return op.results[0]

    def _new(self, op: Op, operands: Sequence[Value], attributes: Mapping[str, Any], types: Sequence[Type]) -> Sequence[Value]:
        new = Op(op.definition, operands, attributes, [self._region(b) for b in op.regions], types, op.location, op.extra,
                 [r.name for r in op.results])  # fmt: skip
        self.made.append(new)
        for old, made in zip(op.results, new.results, strict=True):
            self.forms[old, self.orders.get(old, _identity(old)) if _is_static(old) else ()] = made
        return new.results

    def _region(self, block: Block) -> Block:
        """A region that reads the values outside in their own orders."""
        env = {v: found for v in captured_values(block) if (found := self.as_it_was(v)) is not v}
        return clone_block(block, env) if env else block

    def _convolution(self, op: Op) -> tuple[list[Value], Mapping[str, Any], list[TensorType]]:
        image, kernel = op.operands
        result = op.results[0]
        n: ConvDimensions = op.attr("dimension_numbers")
        read, weights, made = (self.orders.get(v, _identity(v)) for v in (image, kernel, result))
        if image not in self.orders and _is_turned_from(image, _order_of_image(op)):
            read = _order_of_image(op)
        numbers = ConvDimensions(
            read.index(n.input_batch), read.index(n.input_feature), tuple(read.index(d) for d in n.input_spatial),
            weights.index(n.kernel_input_feature), weights.index(n.kernel_output_feature),
            tuple(weights.index(d) for d in n.kernel_spatial),
            made.index(n.output_batch), made.index(n.output_feature), tuple(made.index(d) for d in n.output_spatial),
        )  # fmt: skip
        operands = [self.form(image, read), self.form(kernel, weights)]
        return operands, {**op.attributes, "dimension_numbers": numbers}, [_type_in(result.tensor, made)]

    def _followed(self, op: Op, order: Order) -> tuple[list[Value], Mapping[str, Any], Order]:
        """An op's operands in an order, its attributes there, and the order of its results."""
        operands = [self.form(v, order) if v.rank else self.as_it_was(v) for v in op.operands]
        after = _after(op, order)
        assert after is not None
        attributes = dict(op.attributes)
        if op.name in _PER_DIMENSION:
            attributes.update({name: _permuted(op.attr(name), order) for name in _PER_DIMENSION[op.name]})
        elif op.name in _NAMED:
            name = _NAMED[op.name]
            named = op.attr(name)
            attributes[name] = order.index(named) if isinstance(named, int) else tuple(sorted(order.index(d) for d in named))
        elif op.name == _REDUCE:
            attributes["dimensions"] = tuple(sorted(order.index(d) for d in op.attr("dimensions")))
        return operands, attributes, after
