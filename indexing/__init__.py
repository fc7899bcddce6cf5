"""Index maps: expressions, their simplification, maps between tensors."""

from indexing.caches import clear_caches
from indexing.derive import output_to_input
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
from indexing.inverse import input_to_output, invert
from indexing.map import Constraint, IndexingMap, RuntimeVariable, Variable, compose
from indexing.mapset import MapSet
from indexing.notation import parse_expr, parse_map
from indexing.program import maps_from
from indexing.regions import Region

__all__ = [
    "Const",
    "Constraint",
    "Expr",
    "IndexingMap",
    "Interval",
    "MapSet",
    "Region",
    "RuntimeVariable",
    "Var",
    "Variable",
    "clear_caches",
    "coefficients",
    "compose",
    "evaluate",
    "floordiv",
    "input_to_output",
    "interval",
    "invert",
    "maps_from",
    "maximum",
    "minimum",
    "mod",
    "output_to_input",
    "parse_expr",
    "parse_map",
    "simplify",
    "substitute",
    "variables",
]
