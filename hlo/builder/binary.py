"""Elementwise ops with XlaBuilder's implicit broadcasting: `broadcast_dimensions` first, then dimensions of size 1 stretch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlo.builder.core import BuilderCore, _caller
from hlo.errors import VerificationError
from hlo.module import Value
from hlo.types import TensorType

__all__ = ["BINARY", "BinaryOps"]

BINARY: dict[str, str] = {
    "add": "stablehlo.add", "sub": "stablehlo.subtract", "subtract": "stablehlo.subtract", "mul": "stablehlo.multiply",
    "multiply": "stablehlo.multiply", "div": "stablehlo.divide", "divide": "stablehlo.divide", "rem": "stablehlo.remainder",
    "remainder": "stablehlo.remainder", "max": "stablehlo.maximum", "maximum": "stablehlo.maximum", "min": "stablehlo.minimum",
    "minimum": "stablehlo.minimum", "pow": "stablehlo.power", "power": "stablehlo.power", "and_": "stablehlo.and",
    "or_": "stablehlo.or", "xor": "stablehlo.xor", "xor_": "stablehlo.xor", "atan2": "stablehlo.atan2",
    "complex": "stablehlo.complex", "shift_left": "stablehlo.shift_left",
    "shift_right_arithmetic": "stablehlo.shift_right_arithmetic", "shift_right_logical": "stablehlo.shift_right_logical",
    "next_after": "chlo.next_after", "polygamma": "chlo.polygamma", "zeta": "chlo.zeta",
}  # fmt: skip
"""Method -> op. All take `(lhs, rhs, broadcast_dimensions=None)`."""

COMPARISONS: dict[str, str] = {"eq": "EQ", "ne": "NE", "ge": "GE", "gt": "GT", "le": "LE", "lt": "LT"}


class BinaryOps(BuilderCore):
    """Binary ops, comparisons, select and clamp."""

    def broadcast_operands(
        self, op: str, values: Sequence[Value], broadcast_dimensions: Sequence[int] | None = None
    ) -> list[Value]:
        """The operands of one shape.

        An operand of smaller rank needs `broadcast_dimensions` (the result dimension of each of its own, ascending), unless it is
        a scalar. Then dimensions of size 1 stretch to the other's size. Raises VerificationError where shapes disagree.
        """
        types = [v.tensor if isinstance(v, Value) and isinstance(v.type, TensorType) else None for v in values]
        if None in types:
            raise VerificationError(f"expected tensors, found {values!r}", _caller(), op=op)
        known = [t for t in types if t is not None]
        rank = max(t.rank for t in known)
        places = [self._places(op, t, rank, broadcast_dimensions) for t in known]
        shape: list[int | None] = [1] * rank
        for t, at in zip(known, places, strict=True):
            for n, k in zip(t.shape, at, strict=True):
                old = shape[k]
                if old == 1 or old is None:
                    shape[k] = n if n != 1 or old == 1 else old
                elif n not in (1, old, None):
                    both = " and ".join(map(str, known))
                    raise VerificationError(
                        f"operands broadcast: expected equal sizes or 1 in dimension {k}, found {old} and {n} ({both})",
                        _caller(), op=op, constraint="implicit broadcasting",
                    )  # fmt: skip
        return [self._spread(v, at, shape) for v, at in zip(values, places, strict=True)]

    @staticmethod
    def _places(op: str, t: TensorType, rank: int, dims: Sequence[int] | None) -> tuple[int, ...]:
        if t.rank == rank:
            return tuple(range(rank))
        if t.rank == 0:
            return ()
        if dims is None:
            raise VerificationError(
                f"operands of different ranks need broadcast_dimensions: expected rank {rank}, found {t}",
                _caller(), op=op, constraint="broadcast_dimensions",
            )  # fmt: skip
        ascending = list(dims) == sorted(set(dims))
        if len(dims) != t.rank or not ascending or any(not 0 <= k < rank for k in dims):
            raise VerificationError(
                f"broadcast_dimensions: expected {t.rank} ascending dimensions below {rank}, found {list(dims)}",
                _caller(), op=op, constraint="broadcast_dimensions",
            )  # fmt: skip
        return tuple(dims)

    def _spread(self, v: Value, at: tuple[int, ...], shape: Sequence[int | None]) -> Value:
        t = v.tensor
        if at == tuple(range(len(shape))) and all(a == b or a is None or b is None for a, b in zip(t.shape, shape, strict=True)):
            return v
        if None in shape:
            raise VerificationError(
                f"implicit broadcasting needs known sizes, found {t} against an unknown dimension", _caller(),
                op="stablehlo.broadcast_in_dim", constraint="implicit broadcasting",
            )  # fmt: skip
        made = TensorType(tuple(shape), t.element)
        return self.emit("stablehlo.broadcast_in_dim", (v,), {"broadcast_dimensions": at}, (), [made])[0]

    def binary(
        self, op: str, lhs: Value, rhs: Value, broadcast_dimensions: Sequence[int] | None = None, **attributes: Any
    ) -> Value:
        """op(lhs, rhs) element by element after implicit broadcasting."""
        return self.emit(op, self.broadcast_operands(op, (lhs, rhs), broadcast_dimensions), attributes)[0]

    def compare(
        self, lhs: Value, rhs: Value, comparison_direction: str, broadcast_dimensions: Sequence[int] | None = None,
        compare_type: str | None = None,
    ) -> Value:  # fmt: skip
        """lhs <comparison_direction> rhs, as booleans; XLA: Eq, Ne, Ge, Gt, Le, Lt."""
        op = "stablehlo.compare"
        return self.binary(
            op, lhs, rhs, broadcast_dimensions, comparison_direction=comparison_direction, compare_type=compare_type
        )

    def select(self, pred: Value, on_true: Value, on_false: Value) -> Value:
        """on_true where pred, else on_false. A scalar pred chooses whole arrays; a scalar branch spreads over the other."""
        if on_true.rank != on_false.rank and not (on_true.rank and on_false.rank):
            on_true, on_false = self.broadcast_operands("stablehlo.select", (on_true, on_false))
        return self.emit("stablehlo.select", (pred, on_true, on_false))[0]

    def clamp(self, min: Value, operand: Value, max: Value) -> Value:
        """min(max(operand, min), max); the limits have the operand's shape or are scalars."""
        return self.emit("stablehlo.clamp", (min, operand, max))[0]


def _add_methods() -> None:
    def arithmetic(name: str, op: str) -> Any:
        def method(self: BinaryOps, lhs: Value, rhs: Value, broadcast_dimensions: Sequence[int] | None = None) -> Value:
            return self.binary(op, lhs, rhs, broadcast_dimensions)

        method.__name__ = name
        method.__doc__ = f"{op}(lhs, rhs) element by element after implicit broadcasting."
        return method

    def comparison(name: str, direction: str) -> Any:
        def method(self: BinaryOps, lhs: Value, rhs: Value, broadcast_dimensions: Sequence[int] | None = None) -> Value:
            return self.compare(lhs, rhs, direction, broadcast_dimensions)

        method.__name__ = name
        method.__doc__ = f"lhs {direction} rhs, element by element after implicit broadcasting."
        return method

    for name, op in BINARY.items():
        setattr(BinaryOps, name, arithmetic(name, op))
    for name, direction in COMPARISONS.items():
        setattr(BinaryOps, name, comparison(name, direction))


_add_methods()
