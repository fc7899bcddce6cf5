"""custom_call: functions of the caller by target name, and the few targets that frameworks' programs count on."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Generator
from typing import Any

from hlo import Op
from hlo.foreign import copied, given_to
from hlo.types import TupleType
from interp.errors import UnknownTargetError
from interp.numbers import Array
from interp.registry import rule
from interp.rules.random import generated
from interp.rules.sorting import largest
from interp.rules.windows import Windows, windowed

__all__ = ["KNOWN_TARGETS"]


def _identity(ctx: Any, op: Op, *operands: Any) -> Any:
    return operands


def _attribute(op: Op, name: str, default: Any = None) -> Any:
    """An attribute that the definition of custom_call does not know."""
    value = op.extra.get(name, default)
    return getattr(value, "word", value)


def _shape_assertion(ctx: Any, op: Op, holds: Any, *numbers: Any) -> Any:
    """Programs with symbolic shapes state what must hold of them."""
    if not bool(holds):
        text = str(_attribute(op, "error_message", "a shape assertion does not hold"))
        for k, n in enumerate(numbers):
            text = text.replace("{" + str(k) + "}", str(int(n)))
        raise ctx.error(op, text)
    return ()


def _top_k(ctx: Any, op: Op, x: Array, *k: Array) -> Any:
    """The largest of each row and their places; how many, the second operand says or the result's type."""
    goal = op.results[0].type
    types = goal.elements if isinstance(goal, TupleType) else tuple(r.type for r in op.results)
    count = int(k[0]) if k else types[0].static_shape[-1]  # type: ignore[union-attr]
    if not 0 <= count <= x.shape[-1]:
        raise ctx.error(op, f"expected a k of 0 to {x.shape[-1]}, found {count}")
    pair = largest(x, count)
    return (pair,) if isinstance(goal, TupleType) else pair


def _reduce_window(ctx: Any, op: Op, *operands: Array) -> Generator[Any, Any, Any]:
    """reduce_window whose five last operands are window dimensions, strides, both dilations and padding."""
    (name,) = op.attr("called_computations")
    body = ctx.call(op, name, operands[: 2 * ((len(operands) - 5) // 2)]).block
    sizes, strides, base, dilations, padding = ([int(n) for n in x.reshape(-1)] for x in operands[-5:])
    pairs = list(zip(padding[::2], padding[1::2], strict=True))
    return (yield from windowed(ctx, op, body, operands[:-5], Windows(sizes, strides, base, dilations, pairs)))


def _random_bits(ctx: Any, op: Op, state: Array, shape: Array) -> Any:
    sizes = [int(n) for n in shape]
    return generated(ctx, op, str(_attribute(op, "rng_algorithm", "DEFAULT")), state, sizes, op.results[1].tensor.dtype)


_KNOWN_TARGETS: dict[str, Callable[..., Any]] = {
    "Sharding": _identity,
    "SPMDFullToShardShape": _identity,
    "SPMDShardToFullShape": _identity,
    "TopK": _top_k,
    "annotate_device_placement": _identity,
    "shape_assertion": _shape_assertion,
    "stablehlo.dynamic_reduce_window": _reduce_window,
    "stablehlo.dynamic_rng_bit_generator": _random_bits,
    "stablehlo.dynamic_top_k": _top_k,
}

KNOWN_TARGETS = frozenset(_KNOWN_TARGETS)
"""Targets that need no function of the caller's."""


@rule("stablehlo.custom_call", calls_out=True)
def custom_call(ctx: Any, op: Op, *operands: Any) -> Any:
    """What the caller's function for the target gives: one array, or a tuple of results."""
    target = op.attr("call_target_name")
    function = ctx.custom_calls.get(target)
    if function is not None:
        found = function(op, *given_to(function, operands))
        found = tuple(found) if isinstance(found, list) else found
        return found if getattr(function, "borrows_operands", False) else copied(found)
    known = _KNOWN_TARGETS.get(target)
    if known is not None:
        return known(ctx, op, *operands)
    given = sorted(ctx.custom_calls)
    names = ", ".join(given[:8]) + (f" and {len(given) - 8} more" if len(given) > 8 else "") or "none"
    near = difflib.get_close_matches(target, [*_KNOWN_TARGETS, *given], 3)
    similar = f"; similar: {', '.join(near)}" if near else ""
    message = f"unknown target {target!r}, and custom_calls has no function for it{similar}; given by the caller: {names}"
    raise ctx.error(op, message, UnknownTargetError)
