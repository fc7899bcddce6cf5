"""What an op's reads have to be for its semantics to mean something: the rest of the compiler takes it for granted.

    Elementwise     each operand once, in order, without conditions; at any index
    Move            one whose conditions hold at any index: the last one has none, or all of them leave nothing out
    Fold            the inputs, then the initial values
    SumOfProducts   the two factors
    Generate, Literal   nothing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo import Op
from hlo.registry import Elementwise, Fold, Generate, Literal, Move, OpDefinition, SumOfProducts, operands_fault
from hlo.types import TensorType
from indexing.expressions.bounds import Interval, interval
from indexing.expressions.terms import Expr, Var
from indexing.map import Constraint

__all__ = ["Written", "disagreement"]

Written = tuple[int, tuple[Expr, ...], tuple[Constraint, ...]]
"""A read as the access function writes it: operand, index, conditions."""


def disagreement(definition: OpDefinition, op: Op, reads: Sequence[Written], ranges: Mapping[Var, Interval]) -> str | None:
    """What of the reads cannot be meant: what was expected, and what was found. `ranges` are the variables'.

    >>> import hlo
    >>> add = hlo.parse("HloModule m ENTRY e { p = f32[8] parameter(0) ROOT r = f32[8] add(p, p) }").root
    >>> disagreement(add.definition, add, [(0, (Var("d0"),), ())], {})
    'expected one read of each of 2 operands of an elementwise op, in order, found reads of [0]'
    """
    for operand, index, _ in reads:
        if not 0 <= operand < len(op.operands):
            return f"expected a read of one of {len(op.operands)} operands, counted from 0, found one of operand {operand}"
        t = op.operands[operand].type
        if isinstance(t, TensorType) and len(index) != len(t.shape):
            return f"expected an index of {len(t.shape)} numbers into operand {operand} of type {t}, found {_text(index)}"
    semantics, found = definition.semantics, [operand for operand, _, _ in reads]
    if isinstance(semantics, Elementwise):
        fault = operands_fault(semantics.function, len(op.operands))
        if fault is not None:
            return fault
        if found != list(range(len(op.operands))):
            count = len(op.operands)
            return f"expected one read of each of {count} operands of an elementwise op, in order, found reads of {found}"
        for operand, _, where in reads:
            if where:
                return (
                    f"expected reads of an elementwise op to have no conditions, found one of operand {operand}: what is read "
                    f"where it fails is for an op of its own to say, with the semantics Move"
                )
    elif isinstance(semantics, Move):
        if not reads:
            return "expected a read, found none"
        if not _leave_nothing_out([where for _, _, where in reads], ranges):
            return (
                "expected a last read without conditions (it stands where those of the others fail), or conditions that are "
                "intervals of one expression and leave none of its values out"
            )
    elif isinstance(semantics, (Fold, SumOfProducts)):
        expected = list(range(len(op.operands) if isinstance(semantics, Fold) else 2))
        if found != expected:
            return f"expected reads of operands {expected} for its {type(semantics).__name__}, in this order, found {found}"
    elif isinstance(semantics, (Generate, Literal)) and reads:
        return f"expected no reads for its {type(semantics).__name__}, found one of operand {found[0]}"
    return None


def _leave_nothing_out(conditions: Sequence[Sequence[Constraint]], ranges: Mapping[Var, Interval]) -> bool:
    """Whether one of the conditions holds wherever there is an element, as far as one expression tells."""
    if not all(conditions) or any(v.upper < v.lower for v in ranges.values()):
        return True
    if any(len(where) > 1 or where[0].expression is not conditions[0][0].expression for where in conditions):
        return False
    values = interval(conditions[0][0].expression, ranges)
    reached = values.lower
    for span in sorted((where[0].interval for where in conditions), key=lambda x: x.lower):
        if span.lower <= reached <= span.upper:
            reached = span.upper + 1
    return reached > values.upper


def _text(index: Sequence[Expr]) -> str:
    return f"({', '.join(map(str, index))})"
