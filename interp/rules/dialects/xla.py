"""Ops that only XLA's HLO has."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import ml_dtypes
import numpy as np

from hlo import Op, TensorType
from interp.machine import Call
from interp.numbers import Array, bits_of, convert, is_float
from interp.registry import decline, rule
from interp.rules.collectives import meet, own_group
from interp.rules.contraction import contract
from interp.rules.quantized import from_bits, to_bits

__all__: list[str] = []


@rule("xla.fusion", transparent=True)
def fusion(ctx: Any, op: Op, *operands: Any) -> Generator[Any, Any, Any]:
    """What its computation computes."""
    return (yield Call(op.regions[0], operands))


def _slowest_first(t: TensorType) -> list[int]:
    """The dimensions in the order in which memory has them."""
    return list(reversed(t.layout.minor_to_major)) if t.layout is not None else list(range(t.rank))


@rule("xla.bitcast")
def bitcast(ctx: Any, op: Op, x: Array) -> Array:
    """The operand's memory, read as the result's type and layout."""
    source, goal = op.operands[0].tensor, op.results[0].tensor
    memory = np.ascontiguousarray(x.transpose(_slowest_first(source))).reshape(-1)
    if x.dtype != goal.dtype:
        bits = to_bits(memory).reshape(-1, bits_of(goal.dtype))
        memory = from_bits(bits, goal.dtype)
    order = _slowest_first(goal)
    return memory.reshape([goal.static_shape[k] for k in order]).transpose(np.argsort(order))


@rule("xla.copy", "xla.domain", transparent=True, view=True)
def copy(ctx: Any, op: Op, x: Array) -> Array:
    return x


@rule("xla.add_dependency", transparent=True, view=True)
def add_dependency(ctx: Any, op: Op, x: Any, token: Any) -> Any:
    return (x,)


# ---------------------------------------------------------------- products and exchanges


def _scaled(x: Array, scale: Array) -> Array:
    """x times the scale of the block that it lies in, in float64: exact for all types of at most 32 bits."""
    wide = scale.astype(np.float64)
    for k, (n, m) in enumerate(zip(x.shape, scale.shape, strict=True)):
        wide = np.repeat(wide, n // m if m else 1, k)
    return np.asarray(x.astype(np.float64) * wide)


@rule("xla.scaled_dot")
def scaled_dot(ctx: Any, op: Op, lhs: Array, rhs: Array, lhs_scale: Array, rhs_scale: Array) -> Array:
    """The product of the scaled factors, made in float64 and rounded once."""
    ctx.reserve(op, 24 * (lhs.size + rhs.size))
    found = contract(_scaled(lhs, lhs_scale), _scaled(rhs, rhs_scale), op.attr("dot_dimension_numbers"), np.dtype(np.float64))
    return convert(found, op.results[0].tensor.dtype)


@rule("xla.ragged_all_to_all")
def ragged_all_to_all(ctx: Any, op: Op, data: Array, output: Array, *lists: Array) -> Generator[Any, Any, Any]:
    """Each process puts rows of its input into the others' outputs, where it says; the other rows stay what they were."""
    group = own_group(ctx, op, pairwise=True)
    if any(len(x) != len(group) for x in lists):
        raise ctx.error(op, f"expected offsets and sizes for {len(group)} processes, found {len(lists[0])}")
    begins, sizes, places, awaited = (x.astype(np.int64) for x in lists)
    answers = yield from meet(op, group, (data, begins, sizes, places))
    mine, result = group.index(ctx.process), output.copy()
    for k, p in enumerate(group):
        rows, *lists_of_p = answers[p]
        first, count, place = (int(x[mine]) for x in lists_of_p)
        inside = 0 <= first <= first + count <= len(rows) and 0 <= place <= place + count <= len(result)
        if count < 0 or not inside or count != awaited[k]:
            raise ctx.error(op, f"process {p} sends {count} rows from {first} to {place}; {int(awaited[k])} are awaited")
        result[place : place + count] = rows[first : first + count]
    return result


# ---------------------------------------------------------------- random bits


@rule("xla.stochastic_convert")
def stochastic_convert(ctx: Any, op: Op, x: Array, random: Array) -> Array:
    """Rounds the magnitude to one of the two integers around it: up with the probability of its fraction.

    The random bits, as a fraction of one, are compared with the operand's fraction. What the type cannot hold becomes its
    nearest end, NaN becomes 0. XLA defines integers as results only.
    """
    goal = op.results[0].tensor
    if is_float(goal.dtype):
        raise ctx.error(op, f"declined: XLA defines stochastic-convert to integers, not to {goal.element}")
    wide, bits = x.astype(np.float64), random.dtype.itemsize * 8
    info = ml_dtypes.iinfo(goal.dtype)  # type: ignore[no-untyped-call]
    low, high = int(info.min), int(info.max)
    with np.errstate(invalid="ignore"):
        whole = np.floor(np.abs(wide))
        share = np.ldexp(np.abs(wide) - whole, bits)  # below 2**bits, in the units of the random number
        inner = np.isfinite(wide) & (wide > low) & (wide < high)
    whole, share = np.where(inner, whole, 0), np.where(inner, share, 0)
    rounded = whole.astype(np.int64) + (random.astype(np.uint64) < share.astype(np.uint64))
    signed = np.where(wide < 0, -rounded, rounded)
    ends = np.where(np.isnan(wide), 0, np.where(wide > 0, high, low))
    return np.where(inner, np.clip(signed, low, high), ends).astype(goal.dtype)


decline("xla.elided_constant", "the dump left the constant's value out")
decline("xla.rng_get_and_update_state", "the state belongs to the device that runs the program, which no evaluator is")
