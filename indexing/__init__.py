"""Index maps: which elements of one tensor belong to an index of another, and everything that follows from that.

    expressions/  terms, extrema, bounds, simplifier; `indexing.expr` has all that other rooms need of them
    maps          map, notation, map_simplifier, transform, mapset, operations
    deriving/     derive (output to input), edges, runtime, may_read, collectives, blocks
    programs      program (maps along all paths), slices (regions along all paths)
    sets          spans, regions (boxes, or isl sets where boxes do not do)
    questions     questions, layout
    exact/        the judge, isl: isl_sets, isl, from_isl, relation, images, inverse (input to output)
    show/         printer, display, affine (MLIR), sympy_bridge

`import indexing` loads neither isl nor sympy: isl comes with the first question that boxes and rules cannot answer, sympy with
`indexing.show.sympy_bridge`. docs/index-maps.md shows the use.
"""

from indexing import operations as _operations
from indexing.caches import clear_caches
from indexing.deriving.derive import output_to_input
from indexing.exact.inverse import input_to_output, invert
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
from indexing.map import Constraint, IndexingMap, RuntimeVariable, Variable, compose
from indexing.mapset import MapSet
from indexing.notation import parse_expr, parse_map
from indexing.program import maps_from
from indexing.regions import Region
from indexing.show import display as _display  # fill the tables of printers
from indexing.show import printer as _printer
from indexing.show.affine import affine_map, affine_set, parse_affine_map

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
    "affine_map",
    "affine_set",
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
    "parse_affine_map",
    "parse_expr",
    "parse_map",
    "simplify",
    "substitute",
    "variables",
]

IndexingMap._operations = _operations
del _display, _operations, _printer
