"""Calls, branches, loops and values that are no tensors."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from hlo import Op
from interp.machine import Call, Lanes
from interp.registry import rule

__all__: list[str] = []


@rule("func.call", transparent=True)
def call(ctx: Any, op: Op, *arguments: Any) -> Generator[Any, Any, Any]:
    return (yield ctx.call(op, op.attr("callee"), arguments))


@rule("stablehlo.if", transparent=True)
def if_(ctx: Any, op: Op, pred: Any) -> Generator[Any, Any, Any]:
    return (yield Call(op.regions[0 if bool(pred) else 1]))


@rule("stablehlo.case", transparent=True)
def case(ctx: Any, op: Op, index: Any) -> Generator[Any, Any, Any]:
    """Branch `index`, or the last one where there is no such branch."""
    k = int(index)
    return (yield Call(op.regions[k if 0 <= k < len(op.regions) else -1]))


@rule("stablehlo.while")
def while_(ctx: Any, op: Op, *state: Any) -> Generator[Any, Any, Any]:
    condition, body = op.regions
    while True:
        (goes_on,) = yield Call(condition, tuple(state))
        if not bool(goes_on):
            return tuple(state)
        state = yield Call(body, tuple(state))


@rule("stablehlo.optimization_barrier", transparent=True, view=True)
def optimization_barrier(ctx: Any, op: Op, *values: Any) -> Any:
    return values


@rule("stablehlo.tuple", transparent=True, view=True)
def tuple_(ctx: Any, op: Op, *values: Any) -> Any:
    return (values,)


@rule("stablehlo.get_tuple_element", transparent=True, view=True)
def get_tuple_element(ctx: Any, op: Op, value: Any) -> Any:
    return (value[op.attr("index")],)


@rule("stablehlo.composite", transparent=True)
def composite(ctx: Any, op: Op, *arguments: Any) -> Generator[Any, Any, Any]:
    """What its decomposition computes."""
    return (yield ctx.call(op, op.attr("decomposition"), arguments))


@rule("stablehlo.after_all", "stablehlo.create_token")
def after_all(ctx: Any, op: Op, *tokens: Any) -> Any:
    return (None,)


@rule("stablehlo.map")
def map_(ctx: Any, op: Op, *inputs: Any) -> Generator[Any, Any, Any]:
    """The computation on the elements at each position."""
    shape = inputs[0].shape
    lanes = tuple(Lanes(x, x.ndim) for x in inputs) if shape else inputs
    (result,) = yield Call(op.regions[0], lanes)
    return result.array if isinstance(result, Lanes) else np.broadcast_to(result, shape)
