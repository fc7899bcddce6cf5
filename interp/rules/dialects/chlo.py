"""CHLO: functions above StableHLO's, implicit broadcasting, scan."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from hlo import Op
from interp import complexes, special, special_gamma
from interp.machine import Call
from interp.numbers import Array, bits_of, convert, is_complex, is_float, is_signed, narrow, widen
from interp.registry import decline, rule, rule_for
from interp.rules.elementwise import in_float64
from interp.rules.movement import spread

__all__: list[str] = []

Unary = Callable[[Array], Array]

# ---------------------------------------------------------------- functions


def _function(name: str, real: Unary, complex_: Unary | None = None) -> None:
    @rule(f"chlo.{name}", elementwise=True)
    def evaluate(ctx: Any, op: Op, x: Array) -> Array:
        return in_float64(x, real, complex_)


for _name, _real, _complex in (
    ("acos", np.arccos, complexes.acos),
    ("acosh", np.arccosh, complexes.acosh),
    ("asin", np.arcsin, complexes.asin),
    ("asinh", np.arcsinh, complexes.asinh),
    ("atan", np.arctan, complexes.atan),
    ("atanh", np.arctanh, complexes.atanh),
    ("tan", np.tan, complexes.tan),
):
    _function(_name, _real, _complex)


def _exponentials(x: Array) -> tuple[Array, Array]:
    """exp(x) / 2 and exp(-x) / 2, the half inside of the exponent so that it does not overflow early."""
    wide = np.complex128 if is_complex(x.dtype) else np.float64
    half = x.dtype.type(np.log(0.5))
    plus, minus = (x + half).astype(wide), (-x + half).astype(wide)
    return np.exp(plus).astype(x.dtype), np.exp(minus).astype(x.dtype)


@rule("chlo.cosh", elementwise=True)
def cosh(ctx: Any, op: Op, x: Array) -> Array:
    """exp(x + log(1/2)) + exp(-x + log(1/2)), each step rounded: so CHLO defines it."""
    plus, minus = _exponentials(widen(x))
    return narrow(plus + minus, x.dtype)


@rule("chlo.sinh", elementwise=True)
def sinh(ctx: Any, op: Op, x: Array) -> Array:
    """exp(x + log(1/2)) - exp(-x + log(1/2)), each step rounded; reals within [-1, 1] in a form that cancels nothing."""
    y = widen(x)
    plus, minus = _exponentials(y)
    if is_complex(x.dtype):
        return np.asarray(plus - minus)
    near = narrow(np.sinh(np.clip(y.astype(np.float64), -1, 1)), y.dtype)
    return narrow(np.where(np.abs(y) < 1, near, plus - minus), x.dtype)


_function("bessel_i1e", special_gamma.bessel_i1e)
_function("digamma", special_gamma.digamma)
_function("erf", special.erf)
_function("erf_inv", special_gamma.erf_inv)
_function("erfc", special.erfc)
_function("lgamma", special_gamma.lgamma)
decline("chlo._asin_acos_kernel", "an inner step of one lowering of asin and acos, whose result that lowering defines")


@rule("chlo.conj", elementwise=True)
def conj(ctx: Any, op: Op, x: Array) -> Array:
    return np.conj(x) if is_complex(x.dtype) else x


@rule("chlo.is_inf", elementwise=True)
def is_inf(ctx: Any, op: Op, x: Array) -> Array:
    return np.isinf(widen(x))


@rule("chlo.is_pos_inf", elementwise=True)
def is_pos_inf(ctx: Any, op: Op, x: Array) -> Array:
    return np.asarray(widen(x) == np.inf)


@rule("chlo.is_neg_inf", elementwise=True)
def is_neg_inf(ctx: Any, op: Op, x: Array) -> Array:
    return np.asarray(widen(x) == -np.inf)


@rule("chlo.next_after", elementwise=True)
def next_after(ctx: Any, op: Op, x: Array, y: Array) -> Array:
    """The neighbour of x towards y: one step on the bits, which are ordered as the magnitudes are."""
    bits = np.ascontiguousarray(x).reshape(x.shape).view(f"u{x.dtype.itemsize}")
    of = bits.dtype.type
    sign_bit = of(1 << (bits_of(x.dtype) - 1))
    a, b = widen(x), widen(y)
    outwards = (a < b) == ((bits & sign_bit) == 0)
    stepped = np.where(outwards, bits + of(1), bits - of(1))
    least = np.where(b < 0, sign_bit | of(1), of(1))
    moved = np.asarray(np.where(a == 0, least, stepped)).astype(bits.dtype).view(x.dtype)
    return np.where((a != a) | (b != b), x if not (b != b).any() else np.where(a != a, x, y), np.where(a == b, y, moved))


@rule("chlo.mulhi", elementwise=True)
def mulhi(ctx: Any, op: Op, x: Array, y: Array) -> Array:
    """The upper half of the product of twice the width."""
    width = bits_of(x.dtype)
    if width < 64:
        wide = np.int64 if is_signed(x.dtype) else np.uint64
        product = widen(x).astype(wide) * widen(y).astype(wide)
        return convert(product >> wide(width), x.dtype)
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b = x.astype(np.uint64), y.astype(np.uint64)
    (a0, a1), (b0, b1) = (a & mask, a >> half), (b & mask, b >> half)
    middle = a1 * b0 + ((a0 * b0) >> half)
    upper = a1 * b1 + (middle >> half) + (((middle & mask) + a0 * b1) >> half)
    if is_signed(x.dtype):  # a negative factor stands for itself minus 2**64
        upper = upper - np.where(x < 0, b, np.uint64(0)) - np.where(y < 0, a, np.uint64(0))
    return np.asarray(upper.astype(x.dtype))


def _two(name: str, function: Callable[[Array, Array], Array]) -> None:
    @rule(f"chlo.{name}", elementwise=True)
    def evaluate(ctx: Any, op: Op, x: Array, y: Array) -> Array:
        if not is_float(x.dtype):
            raise ctx.error(op, f"declined: {name} of {x.dtype} has no definition to evaluate")
        return narrow(function(widen(x).astype(np.float64), widen(y).astype(np.float64)), x.dtype)


_two("polygamma", special_gamma.polygamma)
_two("zeta", special_gamma.zeta)

# ---------------------------------------------------------------- implicit broadcasting


def _broadcast(op: Op, operands: Sequence[Array]) -> list[Array]:
    """Operands of one shape: an operand of smaller rank lies at `broadcast_dimensions`, or at the end; sizes of 1 stretch."""
    rank = max(x.ndim for x in operands)
    dims = op.attr("broadcast_dimensions") if "broadcast_dimensions" in op.definition.known_attributes else None
    places = [list(dims) if dims is not None and x.ndim < rank else list(range(rank - x.ndim, rank)) for x in operands]
    shape = [1] * rank
    for x, at in zip(operands, places, strict=True):
        for k, n in zip(at, x.shape, strict=True):
            shape[k] = n if shape[k] == 1 else shape[k]
    return [spread(x, at, shape) for x, at in zip(operands, places, strict=True)]


def _broadcasting(name: str, base: str) -> None:
    function = rule_for(base)
    assert function is not None, base
    compute = function.function

    @rule(name, dequantizes=True)
    def evaluate(ctx: Any, op: Op, *operands: Array) -> Array:
        try:
            spread_out = _broadcast(op, operands)
        except ValueError:
            shapes = " and ".join(str(list(x.shape)) for x in operands)
            raise ctx.error(op, f"expected shapes that broadcast, found {shapes}") from None
        return np.asarray(compute(ctx, op, *spread_out))


for _name in (
    "add", "and", "atan2", "compare", "complex", "divide", "maximum", "minimum", "multiply", "or", "power",
    "remainder", "select", "shift_left", "shift_right_arithmetic", "shift_right_logical", "subtract", "xor",
):  # fmt: skip
    _broadcasting(f"chlo.broadcast_{_name}", f"stablehlo.{_name}")
for _name in ("next_after", "polygamma", "zeta"):
    _broadcasting(f"chlo.broadcast_{_name}", f"chlo.{_name}")


@rule("chlo.constant_like")
def constant_like(ctx: Any, op: Op, x: Array) -> Array:
    """The value in every element of the operand's shape."""
    value = op.attr("value")
    bits = getattr(value, "bits", None)
    if bits is not None:
        one = np.array(bits, np.uint64).astype(f"u{x.dtype.itemsize}").view(x.dtype)
    else:
        number = getattr(value, "value", value)
        one = convert(np.array(number, np.int64 if isinstance(number, int) and not is_float(x.dtype) else None), x.dtype)
    return np.broadcast_to(one, x.shape)


# ---------------------------------------------------------------- scan


@rule("chlo.scan")
def scan(ctx: Any, op: Op, *operands: Array) -> Generator[Any, Any, tuple[Array, ...]]:
    """(outputs[i], carry) = body(inputs[i], carry) for i = 0, 1, … (from the end where `is_reverse`)."""
    axis = op.attr("dimension")
    n = len(op.segment("inputs"))
    inputs, carry = operands[:n], tuple(operands[n:])
    length = inputs[0].shape[axis] if inputs else int(op.attr("scan_dim_size") or 0)
    count = len(op.results) - len(carry)
    collected: list[list[Array]] = [[] for _ in range(count)]
    steps = range(length - 1, -1, -1) if op.attr("is_reverse") else range(length)
    for i in steps:
        parts = tuple(np.take(x, i, axis=axis) for x in inputs)
        results = yield Call(op.regions[0], (*parts, *carry))
        carry = tuple(results[count:])
        for k in range(count):
            collected[k].append(results[k])
    if op.attr("is_reverse"):
        collected = [c[::-1] for c in collected]
    outputs = [
        np.stack(c, axis) if c else np.zeros([m or 0 for m in r.tensor.shape], r.tensor.dtype)
        for c, r in zip(collected, op.results, strict=False)
    ]
    return (*outputs, *carry)
