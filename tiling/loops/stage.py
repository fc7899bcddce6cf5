"""A stage: an op's results in loops of their own; what is no stage is computed where it is read."""

from __future__ import annotations

from dataclasses import dataclass

from hlo.errors import Declined
from hlo.module import Op, Value
from hlo.registry import Elementwise, Generate, Literal, Move

__all__ = ["Stage", "is_inlinable"]


@dataclass(frozen=True, eq=False)
class Stage:
    """An op's results that are computed together in loops of their own, or by the evaluator (then `declined` says why)."""

    op: Op
    values: tuple[Value, ...]
    declined: Declined | None = None

    def __repr__(self) -> str:
        return f"<stage {self.op!r}>"


def is_inlinable(op: Op) -> Declined | None:
    """None when the op's element can be computed where it is read, else why not."""
    semantics = op.definition.semantics
    if isinstance(semantics, Declined):
        return semantics
    if not isinstance(semantics, (Elementwise, Move, Generate, Literal)):
        return Declined(f"{op.name} runs over a range of its operands")
    access = op.definition.access
    return access if isinstance(access, Declined) else None
