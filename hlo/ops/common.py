"""What many definitions share: type predicates, shape helpers, access functions of the simplest kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.access import AccessBuilder, Index
from hlo.errors import VerificationError
from hlo.module import Op
from hlo.registry import Constraint
from hlo.types import ElementType, TensorType, Type

__all__ = ["broadcast_shapes", "element_of", "fail", "identity_access", "rule", "same_shape", "tensor"]


def fail(op: Op, message: str, label: str | None = None) -> VerificationError:
    """The error to raise for `op`, with its place."""
    return VerificationError(message, op.location, op=op.name, constraint=label)


def tensor(op: Op, operand: int) -> TensorType:
    """The type of an operand that must be a tensor. Raises VerificationError when it is none."""
    if operand >= len(op.operands):
        raise fail(op, f"needs at least {operand + 1} operands, got {len(op.operands)}")
    t = op.operands[operand].type
    if not isinstance(t, TensorType):
        raise fail(op, f"operand {operand} must be a tensor, got {t}")
    return t


def element_of(op: Op, operand: int) -> ElementType:
    """The element type of a tensor operand that is not quantized."""
    e = tensor(op, operand).element
    if not isinstance(e, ElementType):
        raise fail(op, f"operand {operand} is quantized ({e}), which this op does not take")
    return e


def rule(label: str, text: str, result: bool = False) -> Callable[[Callable[[Op], str | None]], Constraint]:
    """Decorator: makes a check function a `Constraint` with the specification's label and a short text.

    `result` marks the rules that look at the op's results.
    """

    def wrap(check: Callable[[Op], str | None]) -> Constraint:
        return Constraint(label, text, check, result)

    return wrap


def identity_access(op: Op, output: int, d: tuple[Index, ...], ix: AccessBuilder) -> None:
    """(d0, …) -> (d0, …) for every operand; a rank-0 operand is read as a scalar."""
    for k, v in enumerate(op.operands):
        ix.read(k, d if v.rank == len(d) else ())


def same_shape(a: Sequence[int | None], b: Sequence[int | None]) -> bool:
    """True when the shapes can be equal: unknown dimensions match anything."""
    return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))


def broadcast_shapes(types: Sequence[Type]) -> tuple[int | None, ...] | None:
    """The most specific shape that all tensor types share, or None when they contradict each other."""
    shape: list[int | None] | None = None
    for t in types:
        if not isinstance(t, TensorType):
            return None
        if shape is None:
            shape = list(t.shape)
            continue
        if len(shape) != len(t.shape):
            return None
        for i, n in enumerate(t.shape):
            if n is None:
                continue
            if shape[i] is None:
                shape[i] = n
            elif shape[i] != n:
                return None
    return tuple(shape or ())
