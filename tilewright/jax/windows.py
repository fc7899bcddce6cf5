"""What JAX means by windows that lie partly outside of an array: what XLA does, where StableHLO's specification says otherwise.

    scatter x, i, u   with windows of several elements along a scattered dimension
      ->  scatter x, select(0 <= i and i + window <= size for all of an index, i, outside), u
    reduce_window f x init   over a padding, f a sum or a product, init not its neutral element
      ->  reduce_window f (pad x with the neutral element) init

XLA drops an update whose window lies partly outside; the specification drops the elements outside. XLA leaves out what a window
has outside of its array; the specification takes `init` for it, once more for each.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hlo.attributes import ScatterDimensions
from hlo.builder import Builder
from hlo.module import Block, Module, Op, Value
from hlo.registry import Literal
from hlo.types import ElementType, TensorType, default_storage_range
from indexing.deriving.derive import reads_of
from indexing.deriving.runtime import known_element
from indexing.expr import Const, Interval, Var, interval

__all__ = ["as_xla_takes_windows"]


def as_xla_takes_windows(module: Module) -> None:
    """Rewrites a module's scatters and reductions of windows, in place, into what XLA computes for them."""
    for function in module.functions.values():
        for block in _blocks(function.body):
            made: list[Op] = []
            for op in block.ops:
                if op.name == "stablehlo.scatter":
                    extra = Block()
                    indices = _checked(op, extra)
                    if indices is not None:
                        made += extra.ops
                        n = (len(op.operands) - 1) // 2
                        op.operands = (*op.operands[:n], indices, *op.operands[n + 1 :])
                if op.name == "stablehlo.reduce_window":
                    extra = Block()
                    padded = _padded(op, extra)
                    if padded is not None:
                        made += extra.ops
                        nothing = ((0, 0),) * padded.rank
                        op.operands = (padded, op.operands[1])
                        op.attributes |= {"padding": nothing, "base_dilations": (1,) * padded.rank}
                made.append(op)
            block.ops = made


_NEUTRAL = {"add": 0, "multiply": 1}
"""Bodies that notice how often their initial value is taken, and what they do not notice."""


def _padded(op: Op, into: Block) -> Value | None:
    """The operand with the body's neutral element around it; None where that makes no difference, or nobody knows what it is."""
    body = op.regions[0].ops
    neutral = _NEUTRAL.get(body[0].definition.function)
    if len(op.operands) != 2 or len(body) != 2 or neutral is None or set(body[0].operands) != set(op.regions[0].arguments):
        return None
    padding, dilations = op.attr("padding"), op.attr("base_dilations")
    x, init = op.operands
    if not any(p for pair in padding for p in pair) and all(n == 1 for n in dilations):
        return None
    if not x.tensor.is_static or not isinstance(x.tensor.element, ElementType):
        return None
    made = init.op
    if made is not None and isinstance(made.definition.semantics, Literal) and made.attr("value").array.reshape(-1)[0] == neutral:
        return None
    b = Builder()
    b.place = op.location
    with b.into(into):
        rows = [(low, high, n - 1) for (low, high), n in zip(padding, dilations, strict=True)]
        return b.pad(x, b.constant(neutral, TensorType((), x.tensor.element)), rows)


def _blocks(block: Block) -> Iterator[Block]:
    todo = [block]
    while todo:
        b = todo.pop()
        yield b
        todo += [r for op in b.ops for r in op.regions]


def _checked(op: Op, into: Block) -> Value | None:
    """The scatter's indices with those of partial windows moved outside, made of new ops in `into`; None if none is partial."""
    n = (len(op.operands) - 1) // 2
    operand, indices, updates = op.operands[0].tensor, op.operands[n], op.operands[n + 1].tensor
    dims: ScatterDimensions = op.attr("scatter_dimension_numbers")
    t = indices.tensor
    if not (operand.is_static and updates.is_static and t.is_static and t.size_elems) or not isinstance(t.element, ElementType):
        return None
    sizes = iter(updates.static_shape[k] for k in dims.update_window_dims)
    single = {*dims.inserted_window_dims, *dims.input_batching_dims}
    window = [1 if d in single else next(sizes) for d in range(operand.rank)]
    axes = dims.scatter_dims_to_operand_dims
    last = np.array([operand.static_shape[d] - window[d] for d in axes])
    if all(window[d] == 1 for d in axes) or _is_clamped(indices, last) or _are_inside(indices, last, dims.index_vector_dim):
        return None
    lowest, highest = default_storage_range(t.element)
    outside = np.array([max(-window[d], lowest) if lowest else min(operand.static_shape[d], highest) for d in axes])
    b = Builder()
    b.place = op.location
    along = dims.index_vector_dim
    with b.into(into):
        if along == t.rank:  # every element is an index of one number
            ok = _within(b, indices, np.zeros(1, int), last, None)
            return b.select(ok, indices, b.constant(int(outside[0]), t))
        ok = _within(b, indices, np.zeros(len(axes), int), last, along)
        every = b.reduce(ok, b.constant(True), lambda x, y: b.emit("stablehlo.and", (x, y))[0], [along])
        assert isinstance(every, Value)
        rest = [k for k in range(t.rank) if k != along]
        spread = b.broadcast_in_dim(every, t.static_shape, rest)
        return b.select(spread, indices, _row(b, outside, t, along))


def _within(b: Builder, indices: Value, low: np.ndarray, last: np.ndarray, along: int | None) -> Value:
    """low <= indices <= last, element by element."""
    t = indices.tensor
    assert isinstance(t.element, ElementType)
    _, highest = default_storage_range(t.element)
    last = np.minimum(last, highest)
    below, above = (_row(b, x, t, along) for x in (low, last))
    return b.emit("stablehlo.and", (b.ge(indices, below), b.le(indices, above)))[0]


def _row(b: Builder, numbers: np.ndarray, t: TensorType, along: int | None) -> Value:
    """One number for each place along a dimension (or one for all), as a tensor of type t."""
    if along is None or len(set(numbers.tolist())) == 1:
        return b.constant(int(numbers[0]), t)
    shape = [len(numbers) if k == along else 1 for k in range(t.rank)]
    return b.constant(np.broadcast_to(numbers.astype(t.dtype).reshape(shape), t.static_shape).copy())


def _are_inside(indices: Value, last: np.ndarray, along: int) -> bool:
    """Whether the program tells that all windows lie inside, as for slices with known ends."""
    variables = [Var(f"i{k}") for k in range(indices.rank)]
    ranges = {v: Interval(0, n - 1) for v, n in zip(variables, indices.shape, strict=True)}
    for number, limit in enumerate(last.tolist()):
        place = [Const(number) if k == along else v for k, v in enumerate(variables)]
        e = known_element(indices, place, ranges, reads_of)
        if e is None or not Interval(0, limit).covers(interval(e, ranges)):
            return False
    return True


def _is_clamped(indices: Value, last: np.ndarray) -> bool:
    """True for indices that a clamp has just brought inside: JAX's own, where an update is to be moved instead of dropped."""
    op = indices.op
    if op is None or op.definition.function != "clamp":
        return False
    limits = []
    for v in (op.operands[0], op.operands[2]):
        while v.op is not None and v.op.name in ("stablehlo.broadcast_in_dim", "stablehlo.convert"):
            v = v.op.operands[0]
        if v.op is None or not isinstance(v.op.definition.semantics, Literal):
            return False
        limits.append(np.asarray(v.op.attr("value").array).astype(np.int64))
    return bool(limits[0].min() >= 0 and limits[1].max() <= last.min())
