"""Maps from isl's relations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import islpy

from indexing.exact.isl import here
from indexing.expressions.bounds import Bounds, Interval
from indexing.expressions.terms import Const, Expr, Var, floordiv
from indexing.map import Constraint, IndexingMap, Variable, build, usual
from indexing.mapset import MapSet

__all__ = ["from_isl"]

_IN, _OUT, _SET, _DIV = islpy.dim_type.in_, islpy.dim_type.out, islpy.dim_type.set, islpy.dim_type.div


def from_isl(relation: islpy.Map) -> MapSet:
    """Maps whose union is a bounded relation without parameters: its inputs are the dimensions.

    A part that is a function gives expressions; in any other part the outputs are range variables with constraints.
    Raises ValueError for a relation with parameters or without bounds.

    >>> r = islpy.Map("{ [i, j] -> [i + 4 * j, floor(i / 2)] : 0 <= i < 4 and 0 <= j <= i }")
    >>> from_isl(r)
    {(d0, d1) -> (d0 + d1 * 4, d0 floordiv 2), domain: d0 in [0, 3], d1 in [0, 3], d0 - d1 in [0, 3]}
    """
    if relation.dim(islpy.dim_type.param):
        raise ValueError(f"expected a relation without parameters, found {relation}")
    relation = here(relation)
    found: list[IndexingMap] = []
    for part in relation.compute_divs().coalesce().get_basic_maps():
        whole = islpy.Map.from_basic_map(part)
        if whole.is_single_valued():
            pieces: list[tuple[Any, Any]] = []
            islpy.PwMultiAff.from_map(whole).foreach_piece(lambda s, f: pieces.append((s, f)))  # noqa: B023
            for domain, function in pieces:
                found += _functions(domain, function)
        else:
            found += _relations(whole)
    return MapSet(m for m in (m.simplify() for m in found) if not m.is_known_empty)


def _functions(domain: islpy.Set, function: islpy.MultiAff) -> list[IndexingMap]:
    dims = [usual("d", i) for i in range(domain.dim(_SET))]
    results = [_expression(function.get_aff(k), dims) for k in range(function.dim(_OUT))]
    return [build(_box(s, dims), results, (), (), _constraints(s, dims)) for s in _parts(domain)]


def _relations(whole: islpy.Map) -> list[IndexingMap]:
    n, m = whole.dim(_IN), whole.dim(_OUT)
    dims, ranges = [usual("d", i) for i in range(n)], [usual("s", i) for i in range(m)]
    flat = whole.move_dims(_IN, n, _OUT, 0, m).domain()
    out = []
    for s in _parts(flat):
        sides = _box(s, [*dims, *ranges])
        out.append(build(sides[:n], ranges, sides[n:], (), _constraints(s, [*dims, *ranges])))
    return out


def _parts(s: islpy.Set) -> list[islpy.BasicSet]:
    return [b for b in s.compute_divs().get_basic_sets() if not b.is_empty()]


def _box(s: islpy.BasicSet, names: Sequence[Var]) -> list[Variable]:
    whole = islpy.Set.from_basic_set(s)
    if not whole.is_bounded():
        raise ValueError(f"expected a bounded relation, found {whole}")
    return [
        Variable(v, Interval(whole.dim_min_val(i).to_python(), whole.dim_max_val(i).to_python())) for i, v in enumerate(names)
    ]


def _constraints(s: islpy.BasicSet, names: Sequence[Var]) -> list[Constraint]:
    ranges = dict(_box(s, names))
    bounds = Bounds(ranges)
    out = []
    for c in s.get_constraints():
        e = _expression(c.get_aff(), names)
        out.append(Constraint(e, Interval(0, 0) if c.is_equality() else Interval(0, max(0, bounds(e).upper))))
    return out


def _expression(f: islpy.Aff, names: Sequence[Var]) -> Expr:
    """The expression of an integer function: isl gives rational coefficients that add up to integers."""
    denominator = f.get_denominator_val().to_python()

    def scaled(value: Any) -> int:
        return int((value * islpy.Val(denominator, value.get_ctx())).to_python())

    total: Expr = Const(scaled(f.get_constant_val()))
    parts: list[tuple[int, Callable[[], Expr]]] = []
    for i, v in enumerate(names):
        parts.append((scaled(f.get_coefficient_val(_IN, i)), lambda v=v: v))  # type: ignore[misc]
    for i in range(f.dim(_DIV)):
        parts.append((scaled(f.get_coefficient_val(_DIV, i)), lambda i=i: _quotient(f.get_div(i), names)))  # type: ignore[misc]
    for k, part in parts:
        if k:
            total = total + k * part()
    return floordiv(total, denominator)


def _quotient(f: islpy.Aff, names: Sequence[Var]) -> Expr:
    # A div is the floor of its function; `_expression` floors.
    return _expression(f, names)
