"""Dimensions of images that a normalisation merges are kept apart, so that the order of channels can go on through it.

    reshape [n, 32, h, w] -> [n, 8, 4 h w];  reduce over 2;  y - mean;  reshape -> [n, 32, h, w]
    ->  reshape [n, 32, h, w] -> [n, 8, 4, h, w];  reduce over 3, 4, then 2;  y - mean;  reshape -> [n, 32, h, w]

Groups of channels are normalised so. Their elements lie together where channels lie first, but nowhere else: a merged dimension
has no other order, and what convolutions write and read around it would be transposed (`tiling.program.images.channels_last`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlo.clone import captured_values, clone_block
from hlo.module import DenseArray, Op, Value
from hlo.registry import Elementwise, Literal, definition
from hlo.types import ElementType, TensorType

__all__ = ["common_parts", "keep_apart", "parts_of"]

MOST_DIMENSIONS = 7
_CONVOLUTION, _RESHAPE, _REDUCE = "stablehlo.convolution", "stablehlo.reshape", "stablehlo.reduce"
_BROADCAST = "stablehlo.broadcast_in_dim"
_NEUTRAL = {"add": 0.0, "maximum": float("-inf"), "minimum": float("inf")}

Groups = tuple[tuple[int, ...], ...]


def parts_of(shape: Sequence[int], fine: Sequence[int]) -> Groups | None:
    """For each dimension of `shape` the dimensions of `fine` that it is made of, in order; None where they are not its parts.

    >>> parts_of((1, 32, 5), (1, 8, 4, 5))
    ((0,), (1, 2), (3,))
    >>> parts_of((4, 6), (6, 4)) is None
    True
    """
    groups: list[tuple[int, ...]] = []
    k = 0
    for n in shape:
        first, size = k, 1
        while size < n and k < len(fine):
            size *= fine[k]
            k += 1
        if size != n:
            return None
        if n == 1 and k < len(fine) and fine[k] == 1:
            k += 1
        groups.append(tuple(range(first, k)))
    rest = range(k, len(fine))
    if any(fine[d] != 1 for d in rest):
        return None
    if rest and groups:
        groups[-1] = (*groups[-1], *rest)
    return tuple(groups) if groups or not fine else None


def common_parts(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    """The shape of which the dimensions of both shapes are made, with the ones of `a`; None where there is none.

    >>> common_parts((1, 6, 20), (2, 3, 4, 5)), common_parts((4, 6), (6, 4))
    ((1, 2, 3, 4, 5), None)
    """
    fine: list[int] = []
    todo = [n for n in b if n != 1]
    for n in a:
        if n == 1:
            fine.append(1)
        while n > 1:
            if not todo:
                return None
            size = min(n, todo[0])
            if n % size or todo[0] % size:
                return None
            fine.append(size)
            n //= size
            todo[0] //= size
            if todo[0] == 1:
                todo.pop(0)
    return None if todo else tuple(fine)


@dataclass(frozen=True, eq=False)
class _Apart:
    """A value with its dimensions apart, the groups that are its own dimensions, rows and columns, and the image's shape."""

    value: Value
    groups: Groups
    spatial: frozenset[int]
    image: tuple[int, ...]


def keep_apart(ops: Sequence[Op], results: Sequence[Value]) -> tuple[Sequence[Op], Sequence[Value]]:
    """Ops in dependency order and results, without merged dimensions between what convolutions make and the next image."""
    if not any(op.name == _RESHAPE for op in ops) or not any(_has_channels_first(op) for op in ops):
        return ops, results
    rewriting = _Rewriting()
    for op in ops:
        rewriting.append(op)
    if not rewriting.is_used:
        return ops, results
    return rewriting.made, [rewriting.own(v) for v in results]


def _has_channels_first(op: Op) -> bool:
    if op.name != _CONVOLUTION or not _is_static(op.results[0]):
        return False
    n = op.attr("dimension_numbers")
    return bool(n.output_feature < min(n.output_spatial, default=0))


def _is_static(v: Value) -> bool:
    return isinstance(v.type, TensorType) and isinstance(v.type.element, ElementType) and v.type.is_static


class _Rewriting:
    def __init__(self) -> None:
        self.made: list[Op] = []
        self.env: dict[Value, Value] = {}
        self.apart: dict[Value, _Apart] = {}
        self.channels: dict[Value, int] = {}  # images, and which dimension their channels are
        self.is_used = False

    def append(self, op: Op) -> None:
        found = next((self.apart[v] for v in op.operands if v in self.apart), None)
        if found is not None and all(_is_static(v) for v in (*op.operands, *op.results)) and self._goes_on(op, found):
            return
        if op.name == _RESHAPE and op.operands[0] in self.channels and self._merges(op):
            return
        self._copy(op)
        if _has_channels_first(op):
            self.channels[op.results[0]] = op.attr("dimension_numbers").output_feature
        elif isinstance(op.definition.semantics, Elementwise) and len(op.results) == 1 and _is_static(op.results[0]):
            mine = [v for v in op.operands if v in self.channels and v.shape == op.results[0].shape]
            if mine:
                self.channels[op.results[0]] = self.channels[mine[0]]

    def own(self, v: Value) -> Value:
        """A value in its own shape."""
        if v in self.apart and v not in self.env:
            self.env[v] = self._reshaped(self.apart[v].value, v.tensor)
        return self.env.get(v, v)

    def _emit(self, name: str, operands: Sequence[Value], attributes: dict[str, object], t: TensorType, at: Op | None) -> Value:
        op = Op(definition(name), operands, attributes, at.regions if at is not None and name == _REDUCE else (), [t],
                at.location if at is not None else None)  # fmt: skip
        self.made.append(op)
        return op.results[0]

    def _reshaped(self, v: Value, t: TensorType) -> Value:
        return v if v.type == t else self._emit(_RESHAPE, (v,), {}, t, v.op)

    def _copy(self, op: Op) -> None:
        operands = [self.own(v) for v in op.operands]
        outside = {v: self.own(v) for b in op.regions for v in captured_values(b) if v in self.env or v in self.apart}
        if operands == list(op.operands) and not outside:
            self.made.append(op)
            return
        regions = tuple(clone_block(b, outside) if outside else b for b in op.regions)
        new = Op(op.definition, operands, op.attributes, regions, [r.type for r in op.results], op.location, op.extra,
                 [r.name for r in op.results])  # fmt: skip
        self.made.append(new)
        self.env.update(zip(op.results, new.results, strict=True))

    def _merges(self, op: Op) -> bool:
        """A reshape that merges an image's dimensions: they are kept apart."""
        image, t = op.operands[0], op.results[0].tensor
        fine = common_parts(image.shape, t.static_shape)
        merged = None if fine is None else parts_of(t.static_shape, fine)
        of_image = None if fine is None else parts_of(image.shape, fine)
        if fine is None or merged is None or of_image is None or len(fine) > MOST_DIMENSIONS or len(t.static_shape) >= len(fine):
            return False
        channel = self.channels[image]
        spatial = frozenset(d for k in range(channel + 1, len(image.shape)) for d in of_image[k])
        if not any(spatial & set(g) and len([d for d in g if fine[d] != 1]) > 1 for g in merged):
            return False
        value = self._reshaped(self.own(image), TensorType(fine, t.element))
        self.apart[op.results[0]] = _Apart(value, merged, spatial, tuple(image.shape))
        self.is_used = True
        return True

    def _goes_on(self, op: Op, at: _Apart) -> bool:
        """Whether an op is done with its dimensions apart."""
        if isinstance(op.definition.semantics, Elementwise) and len(op.results) == 1:
            return self._elementwise(op, at)
        if op.name == _RESHAPE or _adds_ones(op):
            return self._reshape(op, at)
        return op.name == _REDUCE and self._reduce(op, at)

    def _elementwise(self, op: Op, at: _Apart) -> bool:
        shape, fine = op.results[0].shape, at.value.shape
        if parts_of(shape, fine) != at.groups or any(v.rank and v.shape != shape for v in op.operands):
            return False
        operands = [self._fine(v, at, fine) if v.rank else self.own(v) for v in op.operands]
        t = TensorType(fine, op.results[0].tensor.element)
        self.apart[op.results[0]] = _Apart(
            self._emit(op.name, operands, dict(op.attributes), t, op), at.groups, at.spatial, at.image
        )  # fmt: skip
        return True

    def _fine(self, v: Value, at: _Apart, fine: tuple[int, ...]) -> Value:
        """An operand with its dimensions apart."""
        known = self.apart.get(v)
        if known is not None and known.value.shape == fine:
            return known.value
        t, op = TensorType(fine, v.tensor.element), v.op
        if op is not None and op.name == _BROADCAST and v not in self.apart:
            given = op.operands[0]
            spread = zip(given.shape, op.attr("broadcast_dimensions"), strict=True)
            places = [p for n, d in spread if n != 1 or v.shape[d] == 1 for p in at.groups[d]]
            small = self._reshaped(self.own(given), TensorType(tuple(fine[p] for p in places), t.element))
            return self._emit(_BROADCAST, (small,), {"broadcast_dimensions": tuple(places)}, t, op)
        if op is not None and isinstance(op.definition.semantics, Literal):
            dense: DenseArray = op.attr("value")
            return self._emit(op.name, (), {"value": DenseArray(t, dense.array.reshape(fine))}, t, op)
        return self._reshaped(self.own(v), t)

    def _reshape(self, op: Op, at: _Apart) -> bool:
        shape = op.results[0].shape
        if shape == at.image:
            self.env[op.results[0]] = self._reshaped(at.value, op.results[0].tensor)
            return True
        groups = parts_of(shape, at.value.shape)
        if groups is None:
            return False
        self.apart[op.results[0]] = _Apart(at.value, groups, at.spatial, at.image)
        return True

    def _reduce(self, op: Op, at: _Apart) -> bool:
        """A fold over the dimensions that a merged one is made of; over an image's first, so that channels are side by side."""
        if len(op.results) != 1 or op.operands[0] not in self.apart:
            return False
        at = self.apart[op.operands[0]]
        over = sorted(p for d in op.attr("dimensions") for p in at.groups[d])
        init = self.own(op.operands[1])
        steps = [[p for p in over if p in at.spatial], [p for p in over if p not in at.spatial]]
        if not all(steps) or not _is_neutral(op):
            steps = [over]
        value, kept = at.value, list(range(at.value.rank))
        for step in steps:
            places = tuple(kept.index(p) for p in step)
            kept = [p for p in kept if p not in step]
            t = TensorType(tuple(at.value.shape[p] for p in kept), op.results[0].tensor.element)
            value = self._emit(_REDUCE, (value, init), {**op.attributes, "dimensions": places}, t, op)
        if prod(op.results[0].shape) != prod(value.shape):
            return False
        self.env[op.results[0]] = self._reshaped(value, op.results[0].tensor)
        return True


def _adds_ones(op: Op) -> bool:
    """Whether a value is spread along dimensions of one element alone."""
    if op.name != _BROADCAST or op.results[0].tensor.size_elems != op.operands[0].tensor.size_elems:
        return False
    places = tuple(op.attr("broadcast_dimensions"))
    return places == tuple(sorted(places))


def _is_neutral(op: Op) -> bool:
    """Whether a fold is a sum from 0, or an extremum from infinity: it may be done in two steps."""
    body, init = op.regions[0], op.operands[1].op
    if len(body.ops) != 2 or init is None or not isinstance(init.definition.semantics, Literal):
        return False
    function = body.ops[0].name.removeprefix("stablehlo.")
    dense: DenseArray = init.attr("value")
    is_real = dense.array.dtype.kind in "fiV" and str(dense.type.element)[0] in "fb"
    return is_real and function in _NEUTRAL and float(dense.array.reshape(-1)[0]) == _NEUTRAL[function]
