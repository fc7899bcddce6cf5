"""The judge: sets and relations in isl, every query under a bound on its operations.

Each thread has its own context, because a context serves one thread at a time. isl is loaded with the first question.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import islpy

from hlo import Declined
from indexing.bounds import Interval
from indexing.errors import BudgetSpent, ProofError
from indexing.map import IndexingMap
from indexing.terms import Expr, FloorDiv, Maximum, Minimum, Mod, Product, Var

__all__ = [
    "MAX_OPERATIONS",
    "bounded",
    "context",
    "decided",
    "domain_set",
    "here",
    "is_empty",
    "is_equal",
    "prove_same",
    "relation",
    "to_isl",
]

MAX_OPERATIONS = 5_000_000
"""How much isl may compute for one question; more is answered by `Declined`."""

T = TypeVar("T")
_LOCAL = threading.local()


def context() -> islpy.Context:
    """This thread's context."""
    ctx = getattr(_LOCAL, "context", None)
    if ctx is None:
        ctx = _LOCAL.context = islpy.Context()
        # Errors come as exceptions; isl need not write to the terminal as well (1: continue).
        ctx.set_on_error(1)
    return ctx


def here(thing: Any) -> Any:
    """The same isl set or map in this thread's context: contexts must not be mixed, and isl does not notice."""
    if thing.get_ctx()._wraps_same_instance_as(context()):
        return thing
    ctx = context()
    operations = ctx.get_max_operations()
    ctx.set_max_operations(0)  # a spent budget would look like a syntax error
    try:
        return type(thing).read_from_str(ctx, thing.to_str())
    finally:
        ctx.set_max_operations(operations)


def bounded(question: Callable[[], T], operations: int | None = None) -> T | Declined:
    """question(), or `Declined` when isl has spent `operations` (`MAX_OPERATIONS`) on it."""
    operations = MAX_OPERATIONS if operations is None else operations
    ctx = context()
    ctx.reset_operations()
    ctx.set_max_operations(operations)
    try:
        return question()
    except islpy.Error as error:
        if "maximal number of operations" in str(error):
            return Declined(f"isl did not decide within {operations} operations")
        raise
    finally:
        ctx.set_max_operations(0)
        ctx.reset_operations()


def decided(question: Callable[[], T]) -> T:
    """question() within the budget. Raises BudgetSpent beyond it."""
    answer = bounded(question)
    if isinstance(answer, Declined):
        raise BudgetSpent(answer.reason)
    return answer


class _Builder:
    """Turns expressions into isl's quasi-affine functions over one space, each part once."""

    def __init__(self, variables: Sequence[Var]) -> None:
        ctx = context()
        self.space = islpy.Space.set_alloc(ctx, 0, len(variables))
        self.local = islpy.LocalSpace.from_space(self.space)
        self.place = {v: i for i, v in enumerate(variables)}
        self.known: dict[Expr, Any] = {}

    def constant(self, value: int) -> Any:
        return islpy.PwAff.from_aff(islpy.Aff.val_on_domain(self.local, islpy.Val(value, context())))

    def __call__(self, e: Expr) -> Any:
        total: Any = None
        for atom, k in e.terms:
            part = self.atom(atom)
            if k != 1:
                part = part.scale_val(islpy.Val(k, context()))
            total = part if total is None else total.add(part)
        if total is None:
            return self.constant(e.constant)
        return total.add(self.constant(e.constant)) if e.constant else total

    def atom(self, e: Expr) -> Any:
        found = self.known.get(e)
        if found is None:
            found = self.known[e] = self._atom(e)
        return found

    def _atom(self, e: Expr) -> Any:
        if isinstance(e, Var):
            aff = islpy.Aff.var_on_domain(self.local, islpy.dim_type.set, self.place[e])
            return islpy.PwAff.from_aff(aff)
        if isinstance(e, (FloorDiv, Mod)):
            if not isinstance(e.divisor, int):
                raise ValueError(f"isl has no division by an expression: {e}")
            divisor = islpy.Val(e.divisor, context())
            n = self(e.numerator)
            return n.scale_down_val(divisor).floor() if isinstance(e, FloorDiv) else n.mod_val(divisor)
        if isinstance(e, Product):
            raise ValueError(f"isl has no product of variables: {e}")
        if isinstance(e, (Minimum, Maximum)):
            parts = [self(a) for a in e.arguments]
            total = parts[0]
            for p in parts[1:]:
                total = total.union_min(p) if isinstance(e, Minimum) else total.union_max(p)
            return total
        raise TypeError(f"no atom: {type(e).__name__}")

    def box(self, ranges: Mapping[Var, Interval]) -> Any:
        out = islpy.Set.universe(self.space)
        for v, b in ranges.items():
            i = self.place[v]
            out = out.lower_bound_val(islpy.dim_type.set, i, islpy.Val(b.lower, context()))
            out = out.upper_bound_val(islpy.dim_type.set, i, islpy.Val(b.upper, context()))
        return out

    def holds(self, e: Expr, b: Interval) -> Any:
        f = self(e)
        if b.lower == b.upper:
            return f.eq_set(self.constant(b.lower))
        return f.ge_set(self.constant(b.lower)).intersect(f.le_set(self.constant(b.upper)))


def _domain(m: IndexingMap, b: _Builder) -> Any:
    domain = b.box(m.variable_ranges)
    for e, span in m.constraints:
        domain = domain.intersect(b.holds(e, span))
    return islpy.Set.empty(b.space) if m.is_known_empty else domain


def domain_set(m: IndexingMap) -> islpy.Set:
    """The points (dims, ranges, rts) at which the map is defined."""
    if m.unknown is not None:
        raise ValueError(f"an unknown map has no domain: {m.unknown.reason}")
    return _domain(m, _Builder(list(m.variable_ranges)))


def to_isl(m: IndexingMap) -> islpy.Map:
    """See `IndexingMap.to_isl`."""
    if m.unknown is not None:
        raise ValueError(f"an unknown map has no relation: {m.unknown.reason}")
    b = _Builder(list(m.variable_ranges))
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


# ---------------------------------------------------------------- sets of indices


def full_relation(m: IndexingMap) -> islpy.Map:
    """[dims] -> results, with range and runtime variables existential."""
    out = to_isl(m)
    count_of_symbols = len(m.ranges) + len(m.runtimes)
    out = out.project_out(islpy.dim_type.in_, len(m.dims), count_of_symbols) if count_of_symbols else out
    for i in range(len(m.dims)):
        out = out.set_dim_name(islpy.dim_type.in_, i, f"i{i}")
    return out


def set_of_boxes(rank: int, boxes: Sequence[Sequence[tuple[int, int, int]]]) -> islpy.Set:
    """The union of boxes whose sides are (lower, upper, step)."""
    b = _Builder([Var(f"x{i}") for i in range(rank)])
    total = islpy.Set.empty(b.space)
    for sides in boxes:
        part = b.box({v: Interval(lo, hi) for v, (lo, hi, _) in zip(b.place, sides, strict=True)})
        for v, (lo, _, step) in zip(b.place, sides, strict=True):
            if step != 1:
                part = part.intersect(b.holds((v - lo) % step, Interval(0, 0)))
        total = total.union(part)
    return total


def hull(s: islpy.Set) -> tuple[Interval, ...]:
    """The least interval in each dimension of a bounded set that is not empty."""
    kind = islpy.dim_type.set
    return tuple([Interval(s.dim_min_val(i).to_python(), s.dim_max_val(i).to_python()) for i in range(s.dim(kind))])


def box_of(s: islpy.Set) -> list[tuple[int, int, int]] | None:
    """The sides (lower, upper, step) when the set is a box whose sides are progressions."""
    sides: list[tuple[int, int, int]] = []
    for i, b in enumerate(hull(s)):
        step = 1
        if not b.is_point:
            stride = s.get_stride(i).to_python()
            step = stride if stride > 1 else 1
        sides.append((b.lower, b.upper, step))
    return sides if s.is_equal(set_of_boxes(len(sides), [sides])) else None


def count(s: islpy.Set) -> int | Declined:
    """How many points a bounded set has."""
    return bounded(lambda: int(s.count_val().to_python()))


def shifted(s: islpy.Set, by: int) -> islpy.Set:
    """{x + by : x in s} for a set of integers."""
    move = islpy.Aff.var_on_domain(islpy.LocalSpace.from_space(s.get_space()), islpy.dim_type.set, 0)
    return s.apply(islpy.Map.from_aff(move.set_constant_val(islpy.Val(by, context()))))


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
        b = _Builder(list(loops))
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


def _translation(b: _Builder, vector: Sequence[int]) -> islpy.Map:
    out = islpy.Map.from_domain(islpy.Set.universe(b.space))
    for v, x in zip(b.place, vector, strict=True):
        out = out.flat_range_product(islpy.Map.from_pw_aff(b(v + x)))
    return out
