"""Ops that only XLA's HLO has."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from hlo import Op, TensorType
from interp.machine import Call
from interp.numbers import Array, bits_of
from interp.registry import decline, rule
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


# ---------------------------------------------------------------- asynchronous pairs


@rule("xla.async_start")
def async_start(ctx: Any, op: Op, *operands: Any) -> Generator[Any, Any, Any]:
    """Does the work at once; what the other halves get is the tuple of its results."""
    if not op.regions:
        raise ctx.error(op, "declined: the dump does not say which computation is started")
    results = yield Call(op.regions[0], operands)
    return (tuple(results),)


@rule("xla.async_update", transparent=True, view=True)
def async_update(ctx: Any, op: Op, future: Any) -> Any:
    return (future,)


@rule("xla.async_done")
def async_done(ctx: Any, op: Op, future: Any) -> Any:
    return tuple(future)


@rule("xla.copy_start", transparent=True, view=True)
def copy_start(ctx: Any, op: Op, x: Array, *more: Any) -> Any:
    """(the copy, the operand, a context that nobody reads)"""
    return ((x, x, None),)


@rule("xla.copy_done", transparent=True, view=True)
def copy_done(ctx: Any, op: Op, pair: Any) -> Any:
    return (pair[0],)


for _name in ("all_reduce", "all_gather", "collective_permute"):
    for _half in ("start", "done"):
        decline(f"xla.{_name}_{_half}", "a dump of a scheduled program; the evaluator runs the collective in one piece")
for _name in ("send_done", "recv_done", "ragged_all_to_all"):
    decline(f"xla.{_name}", "a dump of a scheduled program for several devices")
decline("xla.elided_constant", "the dump left the constant's value out")
decline("xla.stochastic_convert", "how random bits round a number is not specified")
decline("xla.rng_get_and_update_state", "the state belongs to XLA's runtime")
decline("xla.scan", "its form in a dump is kept as text")
