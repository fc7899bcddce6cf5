"""The few ops of MLIR's own dialects that StableHLO programs use for sizes. An `index` that is no tensor is an int."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo import DenseArray, Op
from hlo.types import TensorType
from interp.numbers import Array
from interp.registry import rule

__all__: list[str] = []


@rule("arith.constant")
def arith_constant(ctx: Any, op: Op) -> Any:
    value = op.attr("value")
    if isinstance(value, DenseArray):
        return value.array
    number = getattr(value, "value", value)
    t = op.results[0].type
    return np.array(number, t.dtype) if isinstance(t, TensorType) else number


@rule("tensor.cast", view=True)
def tensor_cast(ctx: Any, op: Op, x: Array) -> Array:
    return x


@rule("tensor.dim")
def tensor_dim(ctx: Any, op: Op, x: Array, index: Any) -> int:
    k = int(index)
    if not 0 <= k < x.ndim:
        raise ctx.error(op, f"expected a dimension of {op.operands[0].type}, found {k}")
    return int(x.shape[k])


@rule("shape.shape_of")
def shape_of(ctx: Any, op: Op, x: Array) -> Array:
    return np.array(x.shape, op.results[0].tensor.dtype)
