"""The judge: maps as relations in isl, every query under a bound on its operations (`indexing.exact.isl_sets`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import islpy

from hlo import Declined
from indexing.errors import ProofError
from indexing.exact.isl_sets import (
    MAX_OPERATIONS,
    IslBuilder,
    bounded,
    context,
    count,
    decided,
    here,
    hull,
    set_of_boxes,
    shifted,
)
from indexing.expressions.terms import Expr, FloorDiv, Maximum, Minimum, Mod, Product, Var
from indexing.map import IndexingMap

__all__ = [
    "MAX_OPERATIONS",
    "bounded",
    "context",
    "count",
    "decided",
    "domain_set",
    "here",
    "hull",
    "is_empty",
    "is_equal",
    "prove_same",
    "relation",
    "set_of_boxes",
    "shifted",
    "to_isl",
]

def _domain(m: IndexingMap, b: IslBuilder) -> Any:
    domain = b.box(m.variable_ranges)
    for e, span in m.constraints:
        domain = domain.intersect(b.holds(e, span))
    return islpy.Set.empty(b.space) if m.is_known_empty else domain


def domain_set(m: IndexingMap) -> islpy.Set:
    """The points (dims, ranges, rts) at which the map is defined."""
    if m.unknown is not None:
        raise ValueError(f"an unknown map has no domain: {m.unknown.reason}")
    return _domain(m, IslBuilder(list(m.variable_ranges)))


def to_isl(m: IndexingMap) -> islpy.Map:
    """See `IndexingMap.to_isl`."""
    if m.unknown is not None:
        raise ValueError(f"an unknown map has no relation: {m.unknown.reason}")
    b = IslBuilder(list(m.variable_ranges))
    domain = _domain(m, b)
    out = islpy.Map.from_domain(domain)
    for e in m.results:
        out = out.flat_range_product(islpy.Map.from_pw_aff(b(e)))
    out = out.intersect_domain(domain)
    names = [v.name for v in m.variable_ranges]
    for i, name in enumerate(names):
        out = out.set_dim_name(islpy.dim_type.in_, i, name)
    return out


def relation(m: IndexingMap) -> islpy.Map:
    """[dims, rts] -> results: range variables are existential, so every element that an index touches is related to it."""
    full = to_isl(m)
    out = full.project_out(islpy.dim_type.in_, len(m.dims), len(m.ranges)) if m.ranges else full
    # Names are no part of a relation.
    for i in range(out.dim(islpy.dim_type.in_)):
        out = out.set_dim_name(islpy.dim_type.in_, i, f"i{i}")
    return out


def is_empty(m: IndexingMap) -> bool | Declined:
    """Whether the map's domain has no point."""
    answer = bounded(lambda: bool(domain_set(m).is_empty()))
    return answer


def is_equal(a: IndexingMap, b: IndexingMap, operations: int | None = None) -> bool | Declined:
    """Whether both relate the same dimensions and runtime values to the same results.

    Runtime variables correspond by their order. Decided by isl, within `operations` (`MAX_OPERATIONS`).
    """
    if a.unknown is not None or b.unknown is not None:
        return a.unknown == b.unknown
    if (len(a.dims), len(a.results), len(a.runtimes)) != (len(b.dims), len(b.results), len(b.runtimes)):
        return False
    return bounded(lambda: bool(relation(a).is_equal(relation(b))), operations)


def prove_same(before: IndexingMap, after: IndexingMap) -> None:
    """Raises ProofError when isl finds the two relations to differ; what isl cannot decide in its budget passes."""
    for v in (*before.results, *(e for e, _ in before.constraints)):
        if _has_products(v):
            return
    if is_equal(before, after) is False:
        raise ProofError(f"not the same relation:\n  {before}\n  {after}")


def _has_products(e: Expr) -> bool:
    stack = [e]
    while stack:
        x = stack.pop()
        for atom, _ in x.terms:
            if isinstance(atom, Product):
                return True
            if isinstance(atom, (FloorDiv, Mod)):
                if isinstance(atom.divisor, Expr):
                    return True
                stack.append(atom.numerator)
            elif isinstance(atom, (Minimum, Maximum)):
                stack.extend(atom.arguments)
    return False


def full_relation(m: IndexingMap) -> islpy.Map:
    """[dims] -> results, with range and runtime variables existential."""
    out = to_isl(m)
    count_of_symbols = len(m.ranges) + len(m.runtimes)
    out = out.project_out(islpy.dim_type.in_, len(m.dims), count_of_symbols) if count_of_symbols else out
    for i in range(len(m.dims)):
        out = out.set_dim_name(islpy.dim_type.in_, i, f"i{i}")
    return out


def _with_runtimes_as_parameters(m: IndexingMap) -> islpy.Map:
    """[dims, ranges] -> results, with the runtime variables as parameters."""
    full = to_isl(m)
    count_of_runtimes = len(m.runtimes)
    if not count_of_runtimes:
        return full
    start = len(m.dims) + len(m.ranges)
    for i, v in enumerate(m.runtimes):
        full = full.set_dim_name(islpy.dim_type.in_, start + i, v.var.name)
    return full.move_dims(islpy.dim_type.param, 0, islpy.dim_type.in_, start, count_of_runtimes)


def relation_for_each_runtime(m: IndexingMap) -> islpy.Map:
    """[dims] -> results with the runtime variables as parameters and the ranges existential."""
    r = _with_runtimes_as_parameters(m)
    r = r.project_out(islpy.dim_type.in_, len(m.dims), len(m.ranges)) if m.ranges else r
    for i in range(len(m.dims)):
        r = r.set_dim_name(islpy.dim_type.in_, i, f"i{i}")
    return r


def is_injective_for_each_runtime(m: IndexingMap) -> bool | Declined:
    """Whether no result belongs to two different dims under the same runtime values."""

    return bounded(lambda: bool(relation_for_each_runtime(m).is_injective()))


def shortest_reuse(m: IndexingMap, loops: Sequence[Var]) -> tuple[tuple[int, ...], int | Declined] | Declined | None:
    """(vector, distinct elements in between) of the lexicographically least distance between two reads of one element."""

    def asked() -> tuple[tuple[int, ...], int | Declined] | None:
        ordered = [v.var for v in (*m.dims, *m.ranges)]
        full = _with_runtimes_as_parameters(m)
        for rt in m.runtimes:
            place = full.find_dim_by_name(islpy.dim_type.param, rt.var.name)
            full = full.fix_val(islpy.dim_type.param, place, islpy.Val(rt.interval.lower, context()))
        full = full.project_out(islpy.dim_type.param, 0, full.dim(islpy.dim_type.param))
        b = IslBuilder(list(loops))
        reorder = islpy.Map.from_domain(islpy.Set.universe(b.space))
        for v in ordered:
            reorder = reorder.flat_range_product(islpy.Map.from_pw_aff(b(v)))
        reads = reorder.apply_range(full)
        same = reads.apply_range(reads.reverse())
        later = same.intersect(islpy.Map.lex_lt(b.space))
        if later.is_empty():
            return None
        least = later.deltas().lexmin()
        vector = _point(least)
        pairs = later.intersect(_translation(b, vector))
        start = pairs.domain().lexmin()
        stop = start.apply(_translation(b, vector))
        order_le = islpy.Map.lex_le(b.space)
        window = start.apply(order_le).intersect(stop.apply(islpy.Map.lex_gt(b.space)))
        return vector, int(window.apply(reads).count_val().to_python())

    return bounded(asked)


def _point(s: islpy.Set) -> tuple[int, ...]:
    p = s.sample_point()
    n = s.dim(islpy.dim_type.set)
    return tuple([p.get_coordinate_val(islpy.dim_type.set, i).to_python() for i in range(n)])


def _translation(b: IslBuilder, vector: Sequence[int]) -> islpy.Map:
    out = islpy.Map.from_domain(islpy.Set.universe(b.space))
    for v, x in zip(b.place, vector, strict=True):
        out = out.flat_range_product(islpy.Map.from_pw_aff(b(v + x)))
    return out
