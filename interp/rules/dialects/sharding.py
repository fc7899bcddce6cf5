"""Sharding annotations: a process holds whole tensors here, so they change nothing."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from hlo import Op
from interp.machine import Call
from interp.numbers import Array
from interp.registry import rule

__all__: list[str] = []


@rule("sdy.sharding_constraint", "sdy.reshard", "sdy.propagation_barrier", transparent=True, view=True)
def annotation(ctx: Any, op: Op, x: Array) -> Array:
    return x


@rule("sdy.sharding_group", transparent=True, view=True)
def sharding_group(ctx: Any, op: Op, x: Array) -> Any:
    return ()


@rule("sdy.manual_computation")
def manual_computation(ctx: Any, op: Op, *operands: Any) -> Generator[Any, Any, Any]:
    """The body, where one shard is the whole tensor."""
    body = op.regions[0]
    whole = [v.type for v in (*op.operands, *op.results)]
    shards = [v.type for v in (*body.arguments, *body.results)]
    if whole != shards:
        raise ctx.error(op, "declined: the body takes shards of the operands, and no mesh of devices is simulated here")
    return (yield Call(body, operands))
