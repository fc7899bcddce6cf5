"""Batch normalization, as the specification spells it out in other ops; every step rounded to the operand's type."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo import Op
from interp.numbers import Array, convert, narrow, widen
from interp.registry import rule

__all__: list[str] = []


class _Numbers:
    """Arithmetic in one element type, features along one axis."""

    def __init__(self, op: Op, x: Array) -> None:
        self.dtype = x.dtype
        self.axis = op.attr("feature_index")
        self.rank = x.ndim
        self.others = tuple(k for k in range(x.ndim) if k != self.axis)
        self.count = self.number(x.size // max(x.shape[self.axis], 1))
        self.epsilon = self.number(float(op.attr("epsilon")))

    def number(self, v: float) -> Array:
        return convert(np.array(v, np.float64), self.dtype)

    def round(self, x: Array) -> Array:
        return narrow(x, self.dtype)

    def spread(self, x: Array) -> Array:
        """One value for each feature, to broadcast."""
        return x.reshape([-1 if k == self.axis else 1 for k in range(self.rank)])

    def sum(self, x: Array) -> Array:
        """For each feature, in float64."""
        return self.round(widen(x).astype(np.float64).sum(self.others))

    def mean(self, x: Array) -> Array:
        return self.round(widen(self.sum(x)) / widen(self.count))

    def deviation(self, variance: Array) -> Array:
        return self.round(np.sqrt(widen(self.round(widen(variance) + widen(self.epsilon)))))


def _normalized(n: _Numbers, x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Array:
    centred = n.round(widen(x) - widen(n.spread(mean)))
    unit = n.round(widen(centred) / widen(n.spread(n.deviation(variance))))
    return n.round(widen(n.round(widen(n.spread(scale)) * widen(unit))) + widen(n.spread(offset)))


@rule("stablehlo.batch_norm_inference", dequantizes=True)
def batch_norm_inference(ctx: Any, op: Op, x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Array:
    return _normalized(_Numbers(op, x), x, scale, offset, mean, variance)


@rule("stablehlo.batch_norm_training", dequantizes=True)
def batch_norm_training(ctx: Any, op: Op, x: Array, scale: Array, offset: Array) -> tuple[Array, Array, Array]:
    n = _Numbers(op, x)
    mean = n.mean(x)
    centred = n.round(widen(x) - widen(n.spread(mean)))
    variance = n.mean(n.round(widen(centred) * widen(centred)))
    return _normalized(n, x, scale, offset, mean, variance), mean, variance


@rule("stablehlo.batch_norm_grad", dequantizes=True)
def batch_norm_grad(
    ctx: Any, op: Op, x: Array, scale: Array, mean: Array, variance: Array, grad: Array
) -> tuple[Array, Array, Array]:
    n = _Numbers(op, x)
    centred = n.round(widen(x) - widen(n.spread(mean)))
    deviation = n.deviation(variance)
    unit = n.round(widen(centred) / widen(n.spread(deviation)))
    grad_offset = n.sum(grad)
    grad_scale = n.sum(n.round(widen(grad) * widen(unit)))
    product = n.sum(n.round(widen(grad) * widen(centred)))
    i1 = n.round(widen(grad) * widen(n.count))
    i4 = n.round(widen(n.spread(product)) * widen(centred))
    i5 = n.round(widen(i4) / widen(n.spread(n.round(widen(variance) + widen(n.epsilon)))))
    i6 = n.round(widen(n.round(widen(i1) - widen(n.spread(grad_offset)))) - widen(i5))
    factor = n.round(widen(n.round(widen(scale) / widen(deviation))) / widen(n.count))
    return n.round(widen(n.spread(factor)) * widen(i6)), grad_scale, grad_offset
