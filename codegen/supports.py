"""Which ops code can be generated for."""

from __future__ import annotations

from codegen.scalars import SCALAR_RULES, number_type
from hlo.errors import Declined
from hlo.module import Op
from hlo.registry import Elementwise
from hlo.types import ElementType, TensorType

__all__ = ["supports"]


def supports(op: Op) -> Declined | None:
    """None when kernels compute the op's element types and every scalar function that it applies, else why not."""
    for inner in (op, *(x for b in op.regions for x in b.ops if not x.definition.is_terminator)):
        for v in (*inner.operands, *inner.results):
            if not isinstance(v.type, TensorType):
                return Declined(f"{v.type} is no tensor")
            if not isinstance(v.type.element, ElementType):
                return Declined(f"{v.type} is quantized")
            number = number_type(v.type.element)
            if isinstance(number, Declined):
                return number
        semantics = inner.definition.semantics
        if isinstance(semantics, Elementwise) and semantics.function not in SCALAR_RULES:
            return Declined(f"codegen.scalars has no rule for {semantics.function!r}")
    return None
