"""Index maps: expressions, their simplification, maps between tensors."""

from indexing.expr import (
    Const,
    Expr,
    Interval,
    Var,
    coefficients,
    evaluate,
    floordiv,
    interval,
    maximum,
    minimum,
    mod,
    simplify,
    substitute,
    variables,
)

__all__ = [
    "Const",
    "Expr",
    "Interval",
    "Var",
    "coefficients",
    "evaluate",
    "floordiv",
    "interval",
    "maximum",
    "minimum",
    "mod",
    "simplify",
    "substitute",
    "variables",
]
