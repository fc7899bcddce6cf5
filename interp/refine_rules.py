"""What ops of unknown shape are, once shapes are known: ops whose shape is in their type, and which shape that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlo import Op
from hlo.ops.contraction import dot_shape
from hlo.ops.convolution import window_shape
from hlo.types import TensorType

__all__ = ["IDENTITY", "SHAPES", "SIZES", "STATIC", "Rewritten", "Rule", "key_of"]

Known = Sequence[np.ndarray]
Shape = tuple[int | None, ...]
IDENTITY = ""


@dataclass(frozen=True)
class Rewritten:
    """The op that another one is: its name (`IDENTITY`: its first operand), its attributes, the shapes of its results where
    nothing else says them, and the function whose body is its region."""

    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    shapes: tuple[tuple[int, ...], ...] | None = None
    region: str | None = None


def key_of(op: Op) -> str:
    """What the tables know an op by: its name, or the target of a custom call."""
    return str(op.attr("call_target_name")) if op.name == "stablehlo.custom_call" else op.name


# Ops whose value is a size of their operand.
SIZES: Mapping[str, Callable[[Op, TensorType], Any]] = {
    "stablehlo.get_dimension_size": lambda op, t: t.static_shape[op.attr("dimension")],
    "shape.shape_of": lambda op, t: np.array(t.static_shape, np.int64),
}


def _numbers(a: np.ndarray) -> tuple[int, ...]:
    return tuple(int(n) for n in a.reshape(-1))


def _pairs(a: np.ndarray) -> tuple[tuple[int, int], ...]:
    return tuple((int(low), int(high)) for low, high in a.reshape(-1, 2))


def _broadcast(op: Op, types: Sequence[TensorType], values: Known) -> Rewritten:
    own = {"broadcast_dimensions": op.attr("broadcast_dimensions")}
    return Rewritten("stablehlo.broadcast_in_dim", own, (_numbers(values[0]),))


def _reshape(op: Op, types: Sequence[TensorType], values: Known) -> Rewritten:
    return Rewritten("stablehlo.reshape", {}, (_numbers(values[0]),))


def _iota(op: Op, types: Sequence[TensorType], values: Known) -> Rewritten:
    return Rewritten("stablehlo.iota", {"iota_dimension": op.attr("iota_dimension")}, (_numbers(values[0]),))


def _pad(op: Op, types: Sequence[TensorType], values: Known) -> Rewritten:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return Rewritten("stablehlo.pad", {n: _numbers(v) for n, v in zip(names, values, strict=True)})


def _slice(op: Op, types: Sequence[TensorType], values: Known) -> Rewritten:
    names = ("start_indices", "limit_indices", "strides")
    return Rewritten("stablehlo.slice", {n: _numbers(v) for n, v in zip(names, values, strict=True)})


def _gather(op: Op, types: Sequence[TensorType], values: Known) -> Rewritten:
    return Rewritten("stablehlo.gather", {**op.attributes, "slice_sizes": _numbers(values[0])})


def _convolution(op: Op, types: Sequence[TensorType], values: Known) -> Rewritten:
    return Rewritten("stablehlo.convolution", {**op.attributes, "padding": _pairs(values[0])})


def _set_size(op: Op, types: Sequence[TensorType], values: Known) -> Rewritten:
    t, n, axis = types[0], int(values[0].reshape(())), op.attr("dimension")
    if t.shape[axis] == n:
        return Rewritten(IDENTITY)
    ends = tuple(n if k == axis else m for k, m in enumerate(t.static_shape))
    own = {"start_indices": (0,) * t.rank, "limit_indices": ends, "strides": (1,) * t.rank}
    return Rewritten("stablehlo.slice", own)


def _windows(op: Op, types: Sequence[TensorType], values: Known) -> Rewritten:
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    own: dict[str, Any] = {n: _numbers(v) for n, v in zip(names, values[:-1], strict=True)}
    (body,) = op.attr("called_computations")
    return Rewritten("stablehlo.reduce_window", {**own, "padding": _pairs(values[-1])}, None, body)


def _random_bits(op: Op, types: Sequence[TensorType], values: Known) -> Rewritten:
    algorithm = op.extra.get("rng_algorithm", "DEFAULT")
    own = {"rng_algorithm": str(getattr(algorithm, "word", algorithm))}
    return Rewritten("stablehlo.rng_bit_generator", own, (types[0].static_shape, _numbers(values[0])))


def _top_k(op: Op, types: Sequence[TensorType], values: Known) -> Rewritten:
    return Rewritten("chlo.top_k", {"k": int(values[0].reshape(()))})


Rule = Callable[[Op, Sequence[TensorType], Known], Rewritten]

# name -> (how many of the last operands have to be known, what the op is with their values)
STATIC: Mapping[str, tuple[int, Rule]] = {
    "stablehlo.dynamic_broadcast_in_dim": (1, _broadcast),
    "stablehlo.dynamic_reshape": (1, _reshape),
    "stablehlo.dynamic_iota": (1, _iota),
    "stablehlo.dynamic_pad": (3, _pad),
    "stablehlo.real_dynamic_slice": (3, _slice),
    "stablehlo.dynamic_gather": (1, _gather),
    "stablehlo.dynamic_conv": (1, _convolution),
    "stablehlo.set_dimension_size": (1, _set_size),
    # Custom calls that JAX writes, by their target.
    "stablehlo.dynamic_reduce_window": (5, _windows),
    "stablehlo.dynamic_rng_bit_generator": (1, _random_bits),
    "stablehlo.dynamic_top_k": (1, _top_k),
}


def _spread(op: Op) -> tuple[int | None, ...]:
    """A broadcast's shape as far as its operand says it."""
    shape = list(op.results[0].tensor.shape)
    for k, n in zip(op.attr("broadcast_dimensions"), op.operands[0].tensor.static_shape, strict=True):
        shape[k] = n if shape[k] is None else shape[k]
    return tuple(shape)


def _reshaped(op: Op) -> tuple[int | None, ...]:
    """A reshape's shape, where one of its sizes is unknown."""
    shape, count = op.results[0].tensor.shape, op.operands[0].tensor.size_elems
    rest = int(np.prod([n for n in shape if n is not None], dtype=np.int64))
    if shape.count(None) != 1 or rest == 0:
        return shape
    return tuple(count // rest if n is None else n for n in shape)


def _cast_shape(op: Op) -> tuple[int | None, ...]:
    return op.operands[0].tensor.shape


def _dot(op: Op) -> tuple[int | None, ...]:
    left, right = (v.tensor.shape for v in op.operands)
    return (*left[:-1], *right[1:])


def _narrowed(op: Op) -> tuple[int | None, ...]:
    """bitcast_convert: the sizes that both have, and what the widths make of the last."""
    shape, rank = op.operands[0].tensor.shape, op.results[0].tensor.rank
    return shape[:rank] if rank <= len(shape) else (*shape, *op.results[0].tensor.shape[len(shape) :])


SHAPES: Mapping[str, Callable[[Op], tuple[int | None, ...]]] = {
    "stablehlo.broadcast_in_dim": _spread,
    "stablehlo.reshape": _reshaped,
    "stablehlo.bitcast_convert": _narrowed,
    "stablehlo.convolution": lambda op: window_shape(op, op.attr("padding")),
    "stablehlo.dot": _dot,
    "stablehlo.dot_general": dot_shape,
    "tensor.cast": _cast_shape,
}
